/* test_elem_sigmoid.c -- the element tier of activations by itself: e^x, sigmoid, silu and their slopes
 * against long double, over the whole range.
 *
 * u is 2^-24 (float) or 2^-53 (double), eta half of the smallest denormal; an ulp of y is the distance of y's
 * neighbours in the format. Bounds are derived at their lines; first order in u, hence the 1.01.
 */
#include "base/philox.h"
#include "math/vectors_elem.h"
#include "elem_function.h"

#define SEED           29ull
#define RANDOM_DOUBLES 1000000
#define HASH_F32       0x2b80654f5019af12ull
#define HASH_F64       0x89503fe056bd9f05ull

/* The reference needs more bits than double has. */
_Static_assert(sizeof(long double) > sizeof(double), "these tests measure doubles against long double");

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The unit in the last place of y. */
static long double ulp(long double y, int wide)
{
    int e, bits = wide ? 53 : 24, least = wide ? -1074 : -149;
    frexpl(y, &e);
    return ldexpl(1, y != 0 && e - bits > least ? e - bits : least);
}

/* Doubles over the range where e^x is a number, near its ends, near 0, and of every exponent. */
static double random_double(uint64_t i)
{
    pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, 0, i);
    double z = pl_uniform_f64(r.x, r.y), sign = r.w & 1 ? -1 : 1;
    switch (i % 4) {
    case 0: return -746 + z * (746 + 710);
    case 1: return sign * z * 40;
    case 2: return sign * z;
    default: return sign * ldexp(1 + z, (int)pl_uniform_below(r.z, 2098) - 1074);
    }
}

/* The argument number i of a sweep: floats at a prime stride over all bit patterns, doubles at random. */
#define FLOAT_STRIDE 4093ull
#define FLOATS       ((int64_t)((1ull << 32) / FLOAT_STRIDE))

static int64_t arguments(int wide)
{
    return wide ? RANDOM_DOUBLES : FLOATS;
}

static double argument(int64_t i, int wide)
{
    return wide ? random_double((uint64_t)i) : (double)float_of((uint32_t)((uint64_t)i * FLOAT_STRIDE));
}

/* ---- e^x ---- */

static double exp_of(double x, int wide)
{
    return wide ? pl_exp_f64(x) : (double)pl_exp_f32((float)x);
}

/* Roundings, in units of an ulp of the result, at most: r = x - n ln 2 by its last fma, half an ulp of |r| <=
 * 0.35, that is u/4 absolute: 1/4 u relative to e^r; ln 2's own second part is rounded: 150 (1077) times u
 * 2^-20 (2^-42): less. r + r^2 q: one rounding below u/2; q: its error times r^2 <= 0.12 twice: u/4; the
 * polynomial: 2^-28.2 (2^-57.9), u/16; the sum 1 + ...: u of at most 2^0 (above 1) or u/2 (below). e^r >=
 * 0.707 is held against ulps of 2u above 1 and u below. Above 1: (1/4 + 1/2 + 1/4 + 1/16) u e^r / (2u) < 0.75
 * with e^r < 1.42, and 1/2 for the sum. Below 1, e^r < 1: 1.07 u / u, and 1/2: 1.57 in all. */
#define EXP_ULPS 1.57

static void exp_error(int wide)
{
    double worst = 0, at = 0;
    int64_t ends = 0;
    for (int64_t i = 0; i < arguments(wide); i++) {
        double x = argument(i, wide), y = exp_of(x, wide);
        long double want = expl(x), largest = wide ? 0x1.fffffffffffffp1023L : 0x1.fffffep127L;
        if (isnan(x)) ends += !isnan(y);
        else if (want > largest) ends += !(y == INFINITY || want < largest + ulp(largest, wide) * EXP_ULPS);
        else if (isfinite(y)) {
            double err = (double)(fabsl(y - want) / ulp(want, wide));
            if (err > worst) worst = err, at = x;
        } else ends += !(want > largest - ulp(largest, wide) * EXP_ULPS);
    }
    char what[64], why[64];
    snprintf(what, sizeof what, "exp %s: %lld arguments", wide ? "f64" : "f32", (long long)arguments(wide));
    snprintf(why, sizeof why, "ulps; worst at %.9g", at);
    test_bound(what, worst, EXP_ULPS, why);
    test_exact(wide ? "exp f64: infinite, NaN where it should be"
                    : "exp f32: infinite, NaN where it should be",
               ends);
}

static void exp_ends(void)
{
    static const struct {
        double x, f32, f64; /* NaN: not asked here */
    } rows[] = {{0.0, 1, 1},
                {-0.0, 1, 1},
                {INFINITY, INFINITY, INFINITY},
                {-INFINITY, 0, 0},
                {1e300, INFINITY, INFINITY},
                {-1e300, 0, 0},
                {-104, 0, NAN},
                {89, INFINITY, NAN},
                {710, INFINITY, INFINITY},
                {-746, 0, 0},
                {1e-30, 1, 1},
                {-0x1p-1074, 1, 1}};
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wrong += pl_exp_f32((float)rows[i].x) != rows[i].f32;
        wrong += !isnan(rows[i].f64) && pl_exp_f64(rows[i].x) != rows[i].f64;
    }
    test_exact("exp: zeros, infinities, saturation", wrong);
    test_exact("exp: NaN stays NaN", !isnan(pl_exp_f32(NAN)) + !isnan(pl_exp_f64(NAN)) +
                                         !isnan(pl_exp_f32(-NAN)) + !isnan(pl_exp_f64(-NAN)));
}

/* Rounding may turn neighbours round, by less than twice the error: of two arguments apart, the larger never
 * gives less by more than that. */
static void exp_monotone(int wide)
{
    double worst = 0, before = exp_of(wide ? -747 : -105, wide);
    for (int64_t i = 0; i <= 2000000; i++) {
        double x = wide ? -746 + (double)i * (1456.0 / 2000000)
                        : (double)(float)(-104.5 + (double)i * (193.5 / 2000000)),
               y = exp_of(x, wide);
        if (y < before) worst = fmax(worst, (double)((before - y) / ulp(before, wide)));
        before = y;
    }
    test_bound(wide ? "exp f64: monotone but for rounding" : "exp f32: monotone but for rounding", worst,
               2 * EXP_ULPS, "ulps");
    test_exact(wide ? "exp f64: reaches infinity" : "exp f32: reaches infinity", before != INFINITY);
}

/* ---- sigmoid, silu, and slopes ---- */

static long double sigmoid_exact(long double x)
{
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}

static long double silu_exact(long double x)
{
    return x * sigmoid_exact(x);
}

static long double sigmoid_slope_exact(long double x)
{
    return sigmoid_exact(x) * sigmoid_exact(-x);
}

static long double silu_slope_exact(long double x)
{
    return sigmoid_exact(x) * (1 + x * sigmoid_exact(-x));
}

/* e = e^-|x| relative 2 EXP_ULPS u (an ulp is at most 2u relative) or, denormal, EXP_ULPS 2 eta. 1 + e: e's
 * error counts at most half, and u; the quotient u: large = 1/(1+e) within (EXP_ULPS + 2) u. small = e large:
 * e's error in full, less e/(1+e) of it again: 2 EXP_ULPS + 3 u, and eta where it underflows. */
static long double sigmoid_bound(long double x, long double u, long double eta)
{
    long double s = sigmoid_exact(x);
    return x >= 0 ? (EXP_ULPS + 2) * u * s + EXP_ULPS * 2 * eta
                  : (2 * EXP_ULPS + 3) * u * s + (1 + 2 * EXP_ULPS) * eta;
}

/* One more rounding, and the sigmoid's absolute error times |x| (as it counts: 2000 at most, where s is 0 on
 * both sides). */
static long double silu_bound(long double x, long double u, long double eta)
{
    return fabsl(x) * sigmoid_bound(x, u, eta) + u * fabsl(silu_exact(x)) + eta;
}

static long double sigmoid_slope_bound(long double x, long double u, long double eta)
{
    long double s = sigmoid_exact(x), rest = sigmoid_exact(-x);
    return s * sigmoid_bound(-x, u, eta) + rest * sigmoid_bound(x, u, eta) + u * s * rest + eta;
}

/* y = 1 + x rest: |x| err(rest), one rounding of y; then s y: both errors and one rounding. */
static long double silu_slope_bound(long double x, long double u, long double eta)
{
    long double s = sigmoid_exact(x), rest = sigmoid_exact(-x), y = 1 + x * rest,
                err = fabsl(x) * sigmoid_bound(-x, u, eta) + u * fabsl(y);
    return s * err + (fabsl(y) + err) * sigmoid_bound(x, u, eta) + u * fabsl(s * y) + eta;
}

static const function functions[] = {
    {"sigmoid", pl_sigmoid_f64, pl_sigmoid_f32, sigmoid_exact, sigmoid_bound},
    {"sigmoid'", pl_sigmoid_slope_f64, pl_sigmoid_slope_f32, sigmoid_slope_exact, sigmoid_slope_bound},
    {"silu", pl_silu_f64, pl_silu_f32, silu_exact, silu_bound},
    {"silu'", pl_silu_slope_f64, pl_silu_slope_f32, silu_slope_exact, silu_slope_bound}};

static void function_error(const function *f, int wide)
{
    double worst = 0, at = 0, ulps = 0;
    int64_t nans = 0;
    long double u = wide ? 0x1p-53L : 0x1p-24L, eta = wide ? 0x1p-1075L : 0x1p-150L;
    for (int64_t i = 0; i < arguments(wide); i++) {
        double x = argument(i, wide), y = wide ? f->f64(x) : (double)f->f32((float)x);
        if (isnan(x) || isinf(x)) continue;
        long double exact = f->exact(x),
                    tol = f->bound(fabs(x) < 11000 ? x : copysign(11000, x), u, eta) + u * fabsl(exact),
                    err = fabsl(y - exact);
        nans += isnan(y);
        if (err > worst * tol) worst = (double)(err / tol), at = x;
        if (tol < 16 * u * fabsl(exact)) ulps = fmax(ulps, (double)(err / ulp(exact, wide)));
    }
    char what[64], why[96];
    snprintf(what, sizeof what, "%s %s: %lld arguments", f->name, wide ? "f64" : "f32",
             (long long)arguments(wide));
    snprintf(why, sizeof why, "share of the bound; at %.9g; %.1f ulps off zeros", at, ulps);
    test_bound(what, worst, 1.01, why);
    test_exact("... and NaN for no number", nans);
}

/* At infinity the limits; NaN through every one. */
static void function_ends(void)
{
    static const double at_minus[] = {0, 0, 0, 0}, at_plus[] = {1, 0, INFINITY, 1},
                        at_zero[] = {0.5, 0.25, 0, 0.5};
    int64_t wrong = 0, nans = 0;
    for (int k = 0; k < 4; k++) {
        const function *f = &functions[k];
        wrong += function_limits(f, at_minus[k], at_plus[k]);
        wrong += f->f32(0) != at_zero[k] || f->f64(-0.0) != at_zero[k];
        nans += function_loses_nan(f);
    }
    test_exact("sigmoid, silu, slopes: limits and 0", wrong);
    test_exact("sigmoid, silu, slopes: NaN stays NaN", nans);
}

/* 1 - s without cancellation, and s(-x) = 1 - s(x) to the last bit: the pair is one computation read twice.
 */
static void symmetry(void)
{
    int64_t differ = 0;
    for (int64_t i = 0; i < 100000; i++) {
        double x = random_double((uint64_t)i), rest;
        float fx = (float)x, frest;
        double s = pl_sigmoid_pair_f64(x, &rest);
        float fs = pl_sigmoid_pair_f32(fx, &frest);
        if (x == 0 || fx == 0) continue;
        differ += rest != pl_sigmoid_f64(-x) || s != pl_sigmoid_f64(x) || frest != pl_sigmoid_f32(-fx) ||
                  fs != pl_sigmoid_f32(fx);
    }
    test_exact("sigmoid(-x) is 1 - sigmoid(x)", differ);
}

/* Every compiler, instruction set and device gives these bits. */
static void same_bits(void)
{
    uint64_t h32 = HASH_BEGIN, h64 = h32;
    for (int64_t i = 0; i < 200000; i++) {
        double x = random_double((uint64_t)i), y[5] = {pl_exp_f64(x)};
        float fx = (float)x, fy[5] = {pl_exp_f32(fx)};
        for (int k = 0; k < 4; k++) y[k + 1] = functions[k].f64(x), fy[k + 1] = functions[k].f32(fx);
        h64 = hash_bytes(h64, y, sizeof y);
        h32 = hash_bytes(h32, fy, sizeof fy);
    }
    same_hashes(h32, HASH_F32, h64, HASH_F64);
}

/* ---- the other formulas, on short numbers ---- */

static void small_formulas(void)
{
    test_exact("dot3, norm3: short numbers",
               (pl_dot3_f32(1, 2, 3, 4, 5, 6) != 32) + (pl_dot3_f64(1, 2, 3, 4, 5, 6) != 32) +
                   (pl_norm3_f32(2, 3, 6, 0) != 7) + (pl_norm3_f64(1, 1, 1, 1) != 2));
    /* fused: (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24, with separate roundings 0 */
    float b = 1 + 0x1p-12f;
    test_exact("dot3 is fused", pl_dot3_f32(-(1 + 0x1p-11f), b, 0, 1, b, 0) != 0x1p-24f);
    test_exact("no activation, by its number", pl_activate_f32(3, PL_ACT_NONE) != 3);
    test_exact("silu by its number", pl_activate_f64(2, PL_ACT_SILU) != pl_silu_f64(2));
    test_exact("sigmoid by its number", pl_activate_f64(2, PL_ACT_SIGMOID) != pl_sigmoid_f64(2));
    test_exact("no slope, by its number", pl_activate_back_f32(5, 3, PL_ACT_NONE) != 5);
    test_exact("silu's slope by its number", pl_activate_back_f64(5, 0, PL_ACT_SILU) != 2.5);
    test_exact("sigmoid's slope by its number", pl_activate_back_f64(4, 0, PL_ACT_SIGMOID) != 1);
    /* v = (2, 3, 6), R = 7, g = 0 and b = 0: s = 1/2, dy . v = 32 with dy = (1, 2, 4): t = 8, TR = 56, along
     * = 0; with g = 7, b = -49: along = 8 */
    const float v[3] = {2, 3, 6}, dy[3] = {1, 2, 4};
    const double vd[3] = {2, 3, 6}, dyd[3] = {1, 2, 4};
    float s, along, tr, t = pl_gate_back_f32(v, dy, 0, 0, 0, &s, &along, &tr);
    int64_t wrong = t != 8 || s != 0.5f || along != 0 || tr != 56;
    double sd, alongd, trd, td = pl_gate_back_f64(vd, dyd, 7, -49, 0, &sd, &alongd, &trd);
    wrong += td != 8 || sd != 0.5 || alongd != 8 || trd != 56;
    test_exact("gate: short numbers", wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    for (int wide = 0; wide < 2; wide++) {
        exp_error(wide);
        exp_monotone(wide);
    }
    exp_ends();
    for (int k = 0; k < 4; k++)
        for (int wide = 0; wide < 2; wide++) function_error(&functions[k], wide);
    function_ends();
    symmetry();
    same_bits();
    small_formulas();
    return test_end();
}
