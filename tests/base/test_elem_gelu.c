/* test_elem_gelu.c -- the element tier of gelu and the losses by itself: the normal distribution's tail, gelu
 * and its slope, the logarithm, against long double.
 *
 * u is 2^-24 (float) or 2^-53 (double), eta half of the smallest denormal. Bounds are derived at their lines;
 * first order in u, hence the 1.01.
 */
#include "base/philox.h"
#include "math/log_elem.h"
#include "math/activation_elem.h"
#include "elem_function.h"

#define SEED     31ull
#define COUNT    1000000
#define HASH_F32 0x0e33b664371848cbull
#define HASH_F64 0x63def3cfa51e3863ull

/* The reference needs more bits than double has. */
_Static_assert(sizeof(long double) > sizeof(double), "these tests measure doubles against long double");

static long double normal(long double x)
{
    return 0.5L * erfcl(-x * 0.70710678118654752440084436210484904L);
}

static long double bell(long double x)
{
    return x * expl(-0.5L * x * x) * 0.39894228040143267793994605993438187L;
}

/* Over the range where the tail is a number, near 0, near the slope's zero, and of every exponent. */
static double argument(int64_t i, int wide)
{
    pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, (uint64_t)wide, (uint64_t)i);
    double z = pl_uniform_f64(r.x, r.y), sign = r.w & 1 ? -1 : 1, x;
    switch (i % 4) {
    case 0: x = sign * z * (wide ? 40 : 15.5); break;
    case 1: x = sign * z * 6; break;
    case 2: x = sign * z; break;
    default:
        x = sign * ldexp(1 + z, (int)pl_uniform_below(r.z, wide ? 1100 : 160) - (wide ? 1074 : 149));
        break;
    }
    return wide ? x : (double)(float)x;
}

/* Phi(-t) = e w p(q). In u: e^(-s/2) 3.14 (1.57 ulps); its correction 1; w: the sum t + K and the quotient,
 * 2; p with its coefficients rounded 1.13 (2^-23.83) or 0.76 (2^-53.40); Horner's roundings and q's own error
 * (4 w + |q|) |p'/p|, largest at t = 0: 2.1 + 5.5 or 2.9 + 9.5 (K counts: an error of w is one of K times
 * that in t); the two products 2: 16.9 and 21.4. Where e underflows 2 1.57 eta, h <= 1/2 of it, and eta for
 * the product. */
static long double tail_bound(long double t, long double u, long double eta)
{
    return (u > 0x1p-30L ? 17 : 22) * u * normal(-t) + 3 * eta;
}

/* Phi(x): the tail, or 1 less the tail with one rounding. */
static long double normal_bound(long double x, long double u, long double eta)
{
    return tail_bound(fabsl(x), u, eta) + (x >= 0 ? u : 0);
}

static long double gelu_exact(long double x)
{
    return x * normal(x);
}

static long double gelu_bound(long double x, long double u, long double eta)
{
    return fabsl(x) * normal_bound(x, u, eta) + u * fabsl(gelu_exact(x)) + eta;
}

static long double slope_exact(long double x)
{
    return normal(x) + bell(x);
}

/* x's factor: the constant and a product, 2u, of e within 4.14u + u: 8u; where e underflows 4 eta times 0.4
 * |x|. The sum: one rounding. */
static long double slope_bound(long double x, long double u, long double eta)
{
    return normal_bound(x, u, eta) + 8 * u * fabsl(bell(x)) + (2 * fabsl(x) + 1) * eta +
           u * fabsl(slope_exact(x));
}

static double tail64(double x)
{
    double e;
    return pl_normal_tail_f64(fabs(x), &e);
}

static float tail32(float x)
{
    float e;
    return pl_normal_tail_f32(fabsf(x), &e);
}

static long double tail_exact(long double x)
{
    return normal(-fabsl(x));
}

static long double tail_bound_of(long double x, long double u, long double eta)
{
    return tail_bound(fabsl(x), u, eta);
}

enum { FUNCTIONS = 3 };
static const function functions[FUNCTIONS] = {
    {"Phi(-|x|)", tail64, tail32, tail_exact, tail_bound_of},
    {"gelu", pl_gelu_f64, pl_gelu_f32, gelu_exact, gelu_bound},
    {"gelu'", pl_gelu_slope_f64, pl_gelu_slope_f32, slope_exact, slope_bound}};

static void function_error(const function *f, int wide)
{
    double worst = 0, at = 0, relative = 0;
    int64_t nans = 0;
    long double u = wide ? 0x1p-53L : 0x1p-24L, eta = wide ? 0x1p-1075L : 0x1p-150L;
    for (int64_t i = 0; i < COUNT; i++) {
        double x = argument(i, wide), y = wide ? f->f64(x) : (double)f->f32((float)x);
        long double exact = f->exact(x), tol = f->bound(x, u, eta), err = fabsl(y - exact);
        nans += isnan(y);
        if (err > worst * tol) worst = (double)(err / tol), at = x;
        if (fabsl(exact) > 0x1p30L * eta / u) relative = fmax(relative, (double)(err / (u * fabsl(exact))));
    }
    char what[64], why[96];
    snprintf(what, sizeof what, "%s %s: %d arguments", f->name, wide ? "f64" : "f32", COUNT);
    snprintf(why, sizeof why, "share of the bound; at %.9g; %.3g u relative", at, relative);
    test_bound(what, worst, 1.01, why);
    test_exact("... and NaN for no number", nans);
}

static void function_ends(void)
{
    static const double at_minus[] = {0, 0, 0}, at_plus[] = {0, INFINITY, 1}, at_zero[] = {0.5, 0, 0.5};
    int64_t wrong = 0, nans = 0;
    for (int k = 0; k < FUNCTIONS; k++) {
        const function *f = &functions[k];
        wrong += function_limits(f, at_minus[k], at_plus[k]);
        wrong +=
            fabs(f->f32(0) - at_zero[k]) > 17 * 0x1p-25 || fabs(f->f64(-0.0) - at_zero[k]) > 22 * 0x1p-54;
        nans += function_loses_nan(f);
    }
    test_exact("Phi, gelu, its slope: limits and 0", wrong);
    test_exact("Phi, gelu, its slope: NaN stays NaN", nans);
    test_exact("gelu by its number",
               (pl_activate_f32(1.5f, PL_ACT_GELU) != pl_gelu_f32(1.5f)) +
                   (pl_activate_f64(-2, PL_ACT_GELU) != pl_gelu_f64(-2)) +
                   (pl_activate_back_f64(2, 0.25, PL_ACT_GELU) != 2 * pl_gelu_slope_f64(0.25)));
}

/* The slope is the slope: (gelu(x + h) - gelu(x - h)) / 2h, off by h^2 |gelu'''| / 6 <= 0.4 h^2 and by
 * roundings, 24u (|x| + 1) / h. */
static void slope_of_gelu(void)
{
    double worst = 0, h = 0x1p-17;
    for (int64_t i = 0; i < 20000; i++) {
        double x = -8 + (double)i * (16.0 / 20000), d = (pl_gelu_f64(x + h) - pl_gelu_f64(x - h)) / (2 * h);
        worst =
            fmax(worst, fabs(d - pl_gelu_slope_f64(x)) / (0.4 * h * h + 24 * 0x1p-53 * (fabs(x) + 1) / h));
    }
    test_bound("gelu' is the slope of gelu", worst, 1, "share of 0.4 h^2 + 24u (|x| + 1) / h");
}

/* log x = n ln 2 + log m. In u: off m = 1 the last sum 1/2 ulp; f - (half - small): two roundings of at most
 * |f|; half, s (half + R) below 0.1 |f| with three each; n times ln 2's second part: less. |f| <= 0.42 and
 * |log m| >= 0.83 |f|, so below 1.5 ulps wherever n = 0, and less where n is not. */
static void logarithm(void)
{
    double worst = 0, at = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, 2, (uint64_t)i);
        double z = pl_uniform_f64(r.x, r.y), x = i % 3 == 0 ? 1 + 4096 * z
                                                 : i % 3 == 1
                                                     ? 0.5 + z
                                                     : ldexp(1 + z, (int)pl_uniform_below(r.z, 2045) - 1022);
        long double want = logl(x);
        int e;
        frexpl(want, &e);
        double err = want == 0 ? (pl_log_f64(x) != 0 ? INFINITY : 0)
                               : (double)(fabsl(pl_log_f64(x) - want) / ldexpl(1, e - 53));
        if (err > worst) worst = err, at = x;
    }
    char why[64];
    snprintf(why, sizeof why, "ulps; worst at %.9g", at);
    test_bound("log f64: 1000000 arguments", worst, 1.5, why);
    test_exact("log: 1, NaN, infinity",
               (pl_log_f64(1) != 0) + !isnan(pl_log_f64(NAN)) + !isnan(pl_log_f64(INFINITY)));
}

/* Every compiler, instruction set and device gives these bits. */
static void same_bits(void)
{
    uint64_t h32 = HASH_BEGIN, h64 = h32;
    for (int64_t i = 0; i < 200000; i++) {
        double x = argument(i, 1), y[FUNCTIONS + 1] = {pl_log_f64(1 + fabs(x))};
        float fx = (float)argument(i, 0), fy[FUNCTIONS];
        for (int k = 0; k < FUNCTIONS; k++) y[k + 1] = functions[k].f64(x), fy[k] = functions[k].f32(fx);
        h64 = hash_bytes(h64, y, sizeof y);
        h32 = hash_bytes(h32, fy, sizeof fy);
    }
    same_hashes(h32, HASH_F32, h64, HASH_F64);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    for (int k = 0; k < FUNCTIONS; k++)
        for (int wide = 0; wide < 2; wide++) function_error(&functions[k], wide);
    function_ends();
    slope_of_gelu();
    logarithm();
    same_bits();
    return test_end();
}
