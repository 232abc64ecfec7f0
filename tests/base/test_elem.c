/* test_elem.c -- the element tier by itself: bf16 rounding, the unit of norms, the order of sums, the
 * formulas of the optimisers.
 *
 * Exact where the definition is exact; bounds are derived at their lines, u = 2^-24 (float) or 2^-53
 * (double).
 */
#include "base/philox.h"
#include "math/f16_elem.h"
#include "math/formulas_elem.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"
#include "math/tf32_elem.h"
#include "test.h"

#define SEED 11ull

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Nearest bf16 by the definition: of the two neighbours the nearer one, of two equally near the even one,
 * overflow by the same rule with 2^128 as the neighbour of the largest. The middle of two neighbours is exact
 * in double. */
static pl_bf16 nearest(double x)
{
    if (isnan(x)) return 0x7fc0;
    uint16_t sign = signbit(x) ? 0x8000 : 0, below = 0;
    double m = fabs(x);
    if (m >= 0x1p128) return sign | 0x7f80;
    for (int bit = 14; bit >= 0; bit--) { /* the largest bf16 <= m: magnitudes are ordered as their bits */
        uint16_t t = (uint16_t)(below | 1u << bit);
        if (t < 0x7f80 && (double)float_of((uint32_t)t << 16) <= m) below = t;
    }
    double lo = float_of((uint32_t)below << 16),
           hi = below == 0x7f7f ? 0x1p128 : (double)float_of((uint32_t)(below + 1) << 16),
           mid = lo + (hi - lo) / 2;
    return sign | (uint16_t)(m > mid || (m == mid && below & 1) ? below + 1 : below);
}

static int same_bf16(pl_bf16 a, pl_bf16 b)
{
    int a_nan = (a & 0x7fff) > 0x7f80, b_nan = (b & 0x7fff) > 0x7f80;
    return a_nan || b_nan ? a_nan && b_nan : a == b;
}

static void bf16_all(void)
{
    int64_t there_and_back = 0, tie = 0, below_tie = 0, above_tie = 0, not_quiet = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        pl_bf16 v = (pl_bf16)h;
        float x = pl_bf16_to_f32(v);
        there_and_back += !same_bf16(pl_bf16_from_f32(x), v) || !same_bf16(pl_bf16_from_f64(x), v);
        if (isnan(x)) {
            not_quiet += !(pl_bf16_from_f32(x) & 0x40) || !isnan(pl_bf16_round(x));
            continue;
        }
        if ((h & 0x7fff) >= 0x7f80) continue; /* beyond here there is no neighbour */
        /* half-way to the next larger magnitude, which for the largest is infinity */
        float t = float_of(h << 16 | 0x8000);
        pl_bf16 even = (pl_bf16)(h + (h & 1)), next = (pl_bf16)(h + 1);
        /* a float between t and these would be a first rounding onto the tie */
        double inch = ldexp(t, -40), low = t - inch, high = t + inch;
        tie += pl_bf16_from_f32(t) != even || pl_bf16_from_f64(t) != even;
        below_tie += pl_bf16_from_f32(float_of(h << 16 | 0x7fff)) != v || pl_bf16_from_f64(low) != v;
        above_tie += pl_bf16_from_f32(float_of(h << 16 | 0x8001)) != next || pl_bf16_from_f64(high) != next;
    }
    test_exact("bf16: 65536 values there and back", there_and_back);
    test_exact("bf16: a NaN stays one and is quiet", not_quiet);
    test_exact("bf16: ties go to even", tie);
    test_exact("bf16: just below a tie, f32 and f64", below_tie);
    test_exact("bf16: just above a tie, f32 and f64", above_tie);
}

static void bf16_sweep(void)
{
    int64_t wrong32 = 0, wrong64 = 0, random64 = 0, n = 0;
    /* a prime stride meets every exponent and every low half */
    for (uint64_t u = 0; u < 1ull << 32; u += 4099, n++) {
        float x = float_of((uint32_t)u);
        pl_bf16 want = nearest(x);
        wrong32 += !same_bf16(pl_bf16_from_f32(x), want);
        wrong64 += !same_bf16(pl_bf16_from_f64(x), want);
    }
    /* doubles of all significands; exponents around and beyond a float's */
    for (uint64_t i = 0; i < 1 << 20; i++) {
        pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, 0, i);
        double x = ldexp(1 + pl_uniform_f64(r.x, r.y), (int)pl_uniform_below(r.z, 300) - 160);
        if (r.w & 1) x = -x;
        if ((r.w & 6) == 6) x = (double)(float)x;
        if ((r.w & 24) == 24)
            x = float_of((bits_of((float)x) & 0xffff0000u) | 0x8000u) *
                (r.w & 32 ? 1 + 0x1p-52 : 1 - 0x1p-53); /* at a tie but for one unit in the last place */
        random64 += !same_bf16(pl_bf16_from_f64(x), nearest(x));
    }
    test_true("bf16 from f32: a sweep against the definition", wrong32 == 0, "%lld of %lld floats wrong",
              (long long)wrong32, (long long)n);
    test_true("bf16 from f64: the same floats", wrong64 == 0, "%lld of %lld wrong", (long long)wrong64,
              (long long)n);
    test_true("bf16 from f64: random doubles and near ties", random64 == 0, "%lld of %d wrong",
              (long long)random64, 1 << 20);
}

static void bf16_ends(void)
{
    static const struct {
        double x;
        pl_bf16 want;
    } rows[] = {{0.0, 0},
                {-0.0, 0x8000},
                {INFINITY, 0x7f80},
                {-INFINITY, 0xff80},
                {1, 0x3f80},
                {1e300, 0x7f80},
                {-1e300, 0xff80},
                {1e-300, 0},
                {-1e-300, 0x8000},
                {0x1.fep127, 0x7f7f},
                /* half-way to 2^128: to even, which is infinity; just below: the largest */
                {0x1.ffp127, 0x7f80},
                {0x1.feffffffffp127, 0x7f7f},
                /* the smallest denormal 2^-133, its half (a tie with zero), and just above */
                {0x1p-133, 1},
                {0x1p-134, 0},
                {0x1.0000000001p-134, 1},
                {0x1.8p-133, 2},
                {0x1p-126, 0x80},
                {0x1.fcp-127, 0x7f},
                /* twice rounded these two would go to even over the float 1 + 2^-8 */
                {1 + 0x1p-8 + 0x1p-40, 0x3f81},
                {1 + 0x1p-8 - 0x1p-40, 0x3f80},
                {1 + 0x3p-8 - 0x1p-40, 0x3f81},
                {-(1 + 0x1p-8 + 0x1p-40), 0xbf81}};
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_bf16_from_f64(rows[i].x) != rows[i].want) {
            printf("    %a: %04x for %04x  FAIL\n", rows[i].x, pl_bf16_from_f64(rows[i].x), rows[i].want);
            wrong++;
        }
    test_exact("bf16: zeros, ends, denormals, double rounding", wrong);
}

/* Nearest tf32 by the definition: whole units of 2^-10 of the leading bit's, of a denormal that of 2^-126;
 * round() takes ties away from zero; 2^128 is infinity. */
static float nearest_tf32(float x)
{
    if (x - x != 0 || x == 0) return x;
    int e = ilogb(x) < -126 ? -126 : ilogb(x);
    double y = ldexp(round(ldexp(x, 10 - e)), e - 10);
    return fabs(y) >= 0x1p128 ? (float)copysign(INFINITY, x) : (float)y;
}

static void tf32_sweep(void)
{
    int64_t wrong = 0, n = 0, again = 0;
    for (uint64_t u = 0; u < 1ull << 32; u += 4099, n++) { /* every exponent, every low half, ties */
        for (int tie = 0; tie < 2; tie++) {
            float x = float_of(tie ? ((uint32_t)u & ~0x1fffu) | 0x1000u : (uint32_t)u), y = pl_tf32_round(x);
            wrong += isnan(x) ? !isnan(y) : bits_of(y) != bits_of(nearest_tf32(x));
            again += !isnan(x) && bits_of(pl_tf32_round(y)) != bits_of(y);
        }
    }
    test_true("tf32: a sweep against the definition, ties away from zero", wrong == 0, "%lld of %lld wrong",
              (long long)wrong, (long long)n);
    test_exact("tf32: rounded twice is rounded once", again);
}

/* s = 2^-e, 2^e <= amax < 2^(e+1), clamped: x s and s are exact in the format, x s <= 4, and s follows a
 * power of two. */
static void norm_unit(void)
{
    int64_t wrong = 0, follows = 0;
    for (int e = -149; e <= 127; e++)
        for (int k = 0; k < 3; k++) {
            float amax = (float)ldexp(k == 0 ? 1 : k == 1 ? 1.5 : 2 - 0x1p-23, e);
            double s = pl_norm_scale(amax, PL_SCALE_EXP_F32);
            int clamped = amax != 0 && (ilogb(amax) > 126 || ilogb(amax) < -126);
            double y = amax * s;
            wrong += (double)(float)s != s || amax * (float)s != y || y >= 4 ||
                     (!clamped && !(y >= 1 && y < 2)) || frexp(s, &(int){0}) != 0.5;
            if (!clamped && e > -126 && e < 126)
                follows += pl_norm_scale(2 * (double)amax, PL_SCALE_EXP_F32) * 2 != s;
        }
    for (int e = -1074; e <= 1023; e++) {
        double amax = ldexp(1.25, e), s = pl_norm_scale(amax, PL_SCALE_EXP_F64), y = amax * s;
        wrong +=
            amax > 0 && (!isfinite(s) || s == 0 || y >= 4 || y / s != amax || (abs(e) <= 1022 && y != 1.25));
    }
    test_exact("norm unit: exact and in range, f32 and f64", wrong);
    test_exact("norm unit: follows powers of two", follows);
    double odd[] = {0, -1, NAN, INFINITY};
    int64_t not_one = 0;
    for (int i = 0; i < 4; i++)
        not_one +=
            pl_norm_scale(odd[i], PL_SCALE_EXP_F32) != 1 || pl_norm_scale(odd[i], PL_SCALE_EXP_F64) != 1;
    test_exact("norm unit: 1 for zero, NaN and infinity", not_one);
}

static double lane_sum(const double *x, int64_t n)
{
    double lane[PL_LANES] = {0};
    for (int64_t j = 0; j < n; j++) lane[j % PL_LANES] += x[j] * x[j];
    return pl_lanes_fold(lane);
}

static void lanes(void)
{
    double x[300] = {0};
    long double exact = 0;
    int64_t padding = 0;
    double folded[PL_LANES];
    for (int i = 0; i < 200; i++) {
        x[i] = pl_normal(SEED, PL_STREAM_TEST, 1, (uint64_t)i).a;
        exact += (long double)x[i] * x[i];
    }
    double s = lane_sum(x, 200);
    for (int64_t n = 200; n <= 300; n++) padding += lane_sum(x, n) != s;
    test_exact("lane sum: zeros on the right change no bit", padding);
    /* one square, at most ceil(200/32) - 1 = 6 additions in a lane and 5 folds: 12 roundings of positive
     * terms */
    test_bound("lane sum: 200 squares", (double)fabsl(s - exact), 12 * 0x1p-53 * (double)exact * 1.01,
               "12 u S");
    for (int i = 0; i < PL_LANES; i++) folded[i] = ldexp(1, i);
    test_exact("lane sum: every lane counts once", pl_lanes_fold(folded) != 0x1p32 - 1);
}

/* ---- formulas ---- */

typedef struct {
    double beta1, beta2, eps, c1, c2;
} adam;

static void adam_exact(long double out[3], double g, double m, double v, const adam *k)
{
    out[1] = (long double)k->beta1 * m + (1 - k->beta1) * (long double)g;
    out[2] = (long double)k->beta2 * v + (1 - k->beta2) * (long double)g * g;
    out[0] = out[1] * k->c1 / (sqrtl(out[2] * k->c2) + k->eps);
}

/* Bounds, first order in u, all scalars rounded once on entry (u each):
 *   m = fma(b1, m, (1-b1) g):      b1 m carries u of b1, (1-b1) g carries u + u, the sum u     ->  3 u
 *       (|b1 m| + |(1-b1) g|)
 *   v = fma(b2, v, (1-b2) g g):    terms >= 0: u for b2; u + 2u for (1-b2) g g; the sum u       ->  4 u v
 *   d = (m c1) / (sqrt(v c2) + eps): relative: c1 u, product u, quotient u = 3u; denominator: sqrt(v
 *       c2): (4u + u + u)/2 + u = 4u, eps u, sum u -> at
 * most 5u on top of m's error: |err d| <= 8 u |d| + err(m) c1 / denominator 1.01 covers the second order;
 * inputs are chosen so that nothing underflows. */
static void adam_bounds(void)
{
    static const adam ks[] = {{0.9, 0.999, 1e-8, 1 / (1 - 0.9), 1 / (1 - 0.999)},
                              {0.95, 0.99, 1e-6, 1 / (1 - 0.95 * 0.95), 1 / (1 - 0.99 * 0.99)},
                              {0, 0, 1e-3, 1, 1}};
    double worst[2][3] = {{0}};
    for (uint64_t i = 0; i < 60000; i++) {
        const adam *k = &ks[i % 3];
        pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, 3, i);
        pl_n2 z = pl_normal(SEED, PL_STREAM_TEST, 4, i);
        double scale = ldexp(1, (int)pl_uniform_below(r.z, 41) - 30); /* 2^-30 to 2^10 */
        double g = (float)(z.a * scale), m = (float)(z.b * scale),
               v = (float)(pl_uniform_f64(r.x, r.y) * scale * scale);
        long double want[3];
        adam_exact(want, g, m, v, k);
        for (int wide = 0; wide < 2; wide++) {
            double got[3], u = wide ? 0x1p-53 : 0x1p-24;
            if (wide) {
                got[1] = m, got[2] = v;
                got[0] = pl_adam_direction_f64(g, &got[1], &got[2], k->beta1, 1 - k->beta1, k->beta2,
                                               1 - k->beta2, k->c1, k->c2, k->eps);
            } else {
                float fm = (float)m, fv = (float)v;
                got[0] = pl_adam_direction_f32((float)g, &fm, &fv, (float)k->beta1, (float)(1 - k->beta1),
                                               (float)k->beta2, (float)(1 - k->beta2), (float)k->c1,
                                               (float)k->c2, (float)k->eps);
                got[1] = fm, got[2] = fv;
            }
            double tol_m = 3 * u * (fabs(k->beta1 * m) + fabs((1 - k->beta1) * g)),
                   tol_v = 4 * u * (double)want[2];
            double tol_d = 8 * u * (double)fabsl(want[0]) +
                           tol_m * k->c1 / (sqrt((double)want[2] * k->c2) + k->eps),
                   tol[3] = {tol_d, tol_m, tol_v};
            for (int o = 0; o < 3; o++)
                if (tol[o] > 0)
                    worst[wide][o] = fmax(worst[wide][o], (double)fabsl(got[o] - want[o]) / tol[o]);
        }
    }
    static const char *const names[2][3] = {
        {"adam f32: direction", "adam f32: first moment", "adam f32: second moment"},
        {"adam f64: direction", "adam f64: first moment", "adam f64: second moment"}};
    static const char *const why[3] = {"share of 8 u |d| + err(m) c1 / denominator",
                                       "share of 3 u (|b1 m| + |(1-b1) g|)", "share of 4 u v"};
    for (int wide = 0; wide < 2; wide++)
        for (int o = 0; o < 3; o++) test_bound(names[wide][o], worst[wide][o], 1.01, why[o]);
}

/* From m = 4 with g = 3 and beta1 = 1/2: heavy ball m = 5, u = 5; Nesterov u = 3 + 5/2; EMA (c1 = 2) m = 7/2,
 * u = 7. Preconditioned from v = 6 with beta2 = 1/4: v = 6/4 + 27/4 = 33/4; from v = 0 with beta2 = 0, c2 =
 * 4, eps = 1: v = 9, u / (6 + 1). */
static void momenta(void)
{
    static const double want[3][2] = {[POLAR_MOMENTUM_HEAVY_BALL] = {5, 5},
                                      [POLAR_MOMENTUM_NESTEROV] = {5, 5.5},
                                      [POLAR_MOMENTUM_EMA] = {3.5, 7}};
    int64_t wrong = 0;
    for (int k = 0; k < 3; k++) {
        float fm = 4, fu = pl_momentum_f32(3, &fm, k, 0.5f, 0.5f, 2);
        double m = 4, u = pl_momentum_f64(3, &m, k, 0.5, 0.5, 2);
        wrong += (fm != want[k][0]) + (fu != want[k][1]) + (m != want[k][0]) + (u != want[k][1]);
    }
    test_exact("momenta: short numbers", wrong);
    float fv = 6;
    double v = 0;
    pl_precondition_f32(1, 3, &fv, 0.25f, 0.75f, 1, 1);
    test_exact("preconditioner: short numbers",
               (fv != 8.25f) + (pl_precondition_f64(14, 3, &v, 0, 1, 4, 1) != 2) + (v != 9));
    /* fused: beta1 m + g with m = 1 + 2^-12, beta1 = 1 + 2^-12 (no beta, but a number) and g = -(1 + 2^-11)
     * is 2^-24, with separate roundings 0 */
    float b = 1 + 0x1p-12f, m = b;
    test_exact("momentum is fused",
               pl_momentum_f32(-(1 + 0x1p-11f), &m, POLAR_MOMENTUM_HEAVY_BALL, b, 0, 0) != 0x1p-24f);
}

static void small_formulas(void)
{
    float m = 0, v = 0;
    test_exact("adam: no gradient yet, no direction",
               pl_adam_direction_f32(0, &m, &v, 0.9f, 0.1f, 0.999f, 0.001f, 10, 1000, 1e-8f) != 0);
    test_exact("normalise: a zero matrix stays zero", pl_normalise_f32(0, 1, 0) != 0 ||
                                                          pl_normalise_f64(0, 1, 0) != 0 ||
                                                          pl_normalise_reference_f32(0, 1, 0) != 0);
    /* whole numbers: 2 * 3 - 5 * 4 */
    test_exact("axpby, epilogue: whole numbers",
               (pl_axpby_f32(2, 3, -5, 4) != -14) + (pl_axpby_f64(2, 3, -5, 4) != -14) +
                   (pl_gemm_epilogue_f32(3, 2, -5, 4) != -14) + (pl_gemm_epilogue_f64(3, 2, -5, 4) != -14) +
                   (pl_axpby_rounded_f32(2, 3, -5, 4) != -14));
    /* 257 lies half-way between the bf16 numbers 256 and 258, 259 between 258 and 260: each term to even,
     * then the sum */
    test_exact("axpby: each term rounded to bf16", (pl_axpby_rounded_f32(1, 257, 1, 259) != 256 + 260) +
                                                       (pl_axpby_rounded_f64(1, 257, 1, 259) != 256 + 260));
    /* lr 1/4, wd 1/2, s 2: W (1 - 1/8) - D / 2 */
    test_exact("decay and step: short numbers", (pl_decay_and_step_f32(8, 3, 0.25f, 0.5f, 2) != 5.5f) +
                                                    (pl_decay_and_step_f64(8, 3, 0.25, 0.5, 2) != 5.5));
    /* lr 0: the weight stays, whatever the direction; the other way round a NaN shows */
    test_exact("decay and step: lr 0 freezes the weight",
               (pl_decay_and_step_f32(8, NAN, 0, 0.5f, 2) != 8) +
                   (pl_decay_and_step_f64(8, NAN, 0, 0.5, 2) != 8) +
                   (pl_decay_and_step_f32(8, INFINITY, -0.0f, INFINITY, 2) != 8) +
                   !isnan(pl_decay_and_step_f32(8, NAN, 0.25f, 0.5f, 2)));
    momenta();
    /* n = 3.01 -> R = 3.015625 (step 2^-6), + 1 = 4.015625 -> R = 4.03125 or 4 (step 2^-5): 4.015625 is the
     * tie, to even = 4 */
    test_exact("reference divisor: R(R(n) + eps s)", (pl_reference_divisor_f32(4, 3.01f, 0.25f) != 4) +
                                                         (pl_reference_divisor_f64(4, 3.01, 0.25) != 4));
    /* fused: with separate roundings (1 + 2^-12)^2 - 1 - 2^-11 would be 0 in float, fused it is 2^-24 */
    float a = 1 + 0x1p-12f;
    test_exact("axpby is fused", pl_axpby_f32(a, a, -1, 1 + 0x1p-11f) != 0x1p-24f);
}

/* Every half there is, and every midpoint between two of them: to nearest, ties to the even one; from float
 * and from double. */
static void halves(void)
{
    int64_t back = 0, ties = 0, near = 0, order = 0;
    for (uint32_t h = 0; h < 0x10000; h++) {
        int nan = (h & 0x7fff) > 0x7c00;
        float x = pl_f16_to_f32((pl_f16)h);
        pl_f16 again = pl_f16_from_f32(x);
        back += nan ? !isnan(x) || (again & 0x7fff) <= 0x7c00 : again != h || pl_f16_from_f64((double)x) != h;
    }
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = pl_f16_to_f32((pl_f16)h), b = pl_f16_to_f32((pl_f16)(h + 1));
        double middle = ((double)a + (double)b) / 2; /* 12 bits: exact in float too */
        order += !(a < b);
        ties += pl_f16_from_f32((float)middle) != (h & 1 ? h + 1 : h) ||
                pl_f16_from_f64(-middle) != ((h & 1 ? h + 1 : h) | 0x8000);
        near +=
            pl_f16_from_f64(nextafter(middle, 0)) != h || pl_f16_from_f64(nextafter(middle, 1e9)) != h + 1;
        near += pl_f16_from_f32(nextafterf((float)middle, 0)) != h ||
                pl_f16_from_f32(nextafterf((float)middle, 1e9f)) != h + 1;
    }
    test_exact("f16: all 65,536 come back", back);
    test_exact("f16: in order", order);
    test_exact("f16: ties to even, float and double", ties);
    test_exact("f16: one unit off a tie", near);
    test_true("f16: 65504 is the largest, 65519.996 rounds to it, 65520 to infinity",
              pl_f16_to_f32(0x7bff) == 65504 && pl_f16_from_f32(65519.996f) == 0x7bff &&
                  pl_f16_from_f32(65520) == 0x7c00,
              "%s", "");
    test_true("f16: 2^-25 is a tie with zero, more is not",
              pl_f16_from_f32(0x1p-25f) == 0 && pl_f16_from_f64(0x1.0000001p-25) == 1, "%s", "");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    bf16_all();
    bf16_sweep();
    bf16_ends();
    tf32_sweep();
    norm_unit();
    lanes();
    adam_bounds();
    small_formulas();
    halves();
    return test_end();
}
