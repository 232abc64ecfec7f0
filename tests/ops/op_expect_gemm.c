/* op_expect_gemm.c -- what products may return. */
#include "device/backend.h"
#include "op_calls.h"
#include "op_model_impl.h"

#define F64  POLAR_DTYPE_F64
#define BF16 POLAR_DTYPE_BF16

/* A factor in tf32: whole units of 2^-10 of its leading bit's, ties away from zero. */
static double in_tf32(double x)
{
    if (x - x != 0 || x == 0) return x;
    int e = ilogb(x) < -126 ? -126 : ilogb(x);
    double y = ldexp(round(ldexp(x, 10 - e)), e - 10);
    return fabs(y) >= 0x1p128 ? copysign(INFINITY, x) : y;
}

#define PIECE 128 /* factors that are loaded at once: sums stay in registers between */

/* How far a product may be from that of the rounded factors where they are cut, or kept: a factor that is
 * rounded, cut or kept is within one unit of its tenth bit of each of the others. */
static long double cut_apart(double x, double y)
{
    long double dx = x == in_tf32(x) ? 0 : ldexpl(1, (ilogb(x) < -126 ? -126 : ilogb(x)) - 10),
                dy = y == in_tf32(y) ? 0 : ldexpl(1, (ilogb(y) < -126 ? -126 : ilogb(y)) - 10);
    if (!isfinite(x) || !isfinite(y)) return 0;
    if (!isfinite(in_tf32(x)) || !isfinite(in_tf32(y))) return INFINITY; /* rounded up to infinity, or not */
    return dx * (fabsl((long double)y) + dy) + dy * fabsl((long double)x);
}

/* The sum over k, in any order. */
static pl_iv model_sum(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int ta = r->c.how.ta != 0, tb = r->c.how.tb != 0, whole = 1;
    int flushes = r->dev->flushes && r->c.dtype[1] == BF16 && ct == POLAR_DTYPE_F32;
    int cuts = r->c.how.tf32 && r->dev->cuts_tf32;
    long double s = 0, S = 0, lost = 0, K = (long double)r->c.K, u = pl_unit_roundoff(ct);
    double X[PIECE], Y[PIECE], special = 0; /* of terms that are infinite or NaN: 0 or not finite */
    for (int64_t k = 0; k < r->c.K; k++) {
        if (k % PIECE == 0) {
            const int64_t n = r->c.K - k < PIECE ? r->c.K - k : PIECE;
            pl_op_run_line(X, r, 1, b, ta ? k : i, ta ? i : k, ta, n);
            pl_op_run_line(Y, r, 2, b, tb ? j : k, tb ? k : j, !tb, n);
            for (int64_t l = 0; cuts && l < n; l++) lost += cut_apart(X[l], Y[l]);
            for (int64_t l = 0; r->c.how.tf32 && l < n; l++) X[l] = in_tf32(X[l]), Y[l] = in_tf32(Y[l]);
        }
        const double x = X[k % PIECE], y = Y[k % PIECE];
        if (!isfinite(x) || !isfinite(y)) {
            special += x * y;
            whole = 0;
            continue;
        }
        long double p = (long double)x * y;
        s += p;
        S += fabsl(p);
        /* a subnormal factor may count as zero; bf16 has float's exponents */
        if (flushes && (fabs(x) < 0x1p-126 || fabs(y) < 0x1p-126)) lost += fabsl(p);
        whole = whole && is_small_whole(x) && is_small_whole(y);
    }
    S += cuts ? lost : 0;
    whole = whole && lost == 0;
    if (S * (1 + 2 * K * u) >= pl_largest(ct)) return (pl_iv){-INFINITY, INFINITY, 1};
    if (special != 0) return pl_iv_point(special); /* x87 takes a hundred times longer over such sums */
    if (whole && S < 1 / u) return pl_iv_point(s);
    /* of s itself: long double has 64 bits or more */
    long double own = pl_unit_roundoff(F64) / 2048 * (K + 1) * S;
    if (sizeof(long double) == sizeof(double)) own *= 2048;
    /* ... and so may each sum on the way: K products, their sums by halves of 32, what they are added to */
    if (flushes) lost += 2 * (K + 2) * 0x1p-126L;
    return pl_iv_around(s, K * u / (1 - K * u) * S + K * pl_least_half(ct) + own + lost);
}

/* The epilogue may be fused or not: vendors' libraries do not say. */
MODEL(gemm)
{
    pl_iv acc = pl_iv_in(model_sum(r, b, i, j, ct), ct), d = has(r, 3) ? at(r, 3, b, i, j) : pl_iv_point(0);
    return sum(product(scalar(r->c.how.alpha, ct), acc, ct), product(scalar(r->c.how.beta, ct), d, ct), ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void gemm_on_factor(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    *entry(&a->A, 0, 0, 0) ^= 1;
}

/* Forgets the last k. */
static void gemm_short(pl_queue *q, const pl_args_gemm *a)
{
    pl_args_gemm less = *a;
    less.A.cols -= 1;
    less.B.rows -= 1;
    pl_ref_ops.gemm(q, &less);
}

static void gemm_nan(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    pl_store_f64(a->C.data, a->C.dtype, 0, NAN);
}

/* Rounds the accumulator to bf16 before the epilogue. */
static void gemm_rounds_twice(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    for (int64_t i = 0; i < a->C.rows; i++)
        for (int64_t j = 0; j < a->C.cols; j++)
            pl_store_f64(
                entry(&a->C, 0, i, j), a->C.dtype, 0,
                (double)pl_round_to(pl_load_f64(entry(&a->C, 0, i, j), a->C.dtype, 0), POLAR_DTYPE_BF16));
}

/* Forgets to round the factors. */
static void gemm_in_f32(pl_queue *q, const pl_args_gemm *a)
{
    pl_args_gemm other = *a;
    other.tf32 = 0;
    pl_ref_ops.gemm(q, &other);
}

static const fault gemm_faults[] = {
    {"factors not rounded to tf32", "gemm f32 3x33x17x64 tf32 1", (op_fn)gemm_in_f32},
    {"a factor written to", "gemm f32 3x33x17x64 1", (op_fn)gemm_on_factor},
    {"the last of 300 terms left out", "gemm f32 1x9x21x300 1", (op_fn)gemm_short},
    {"a NaN", "gemm f64 1x8x44x8 1", (op_fn)gemm_nan},
    {"f32 results rounded to bf16", "gemm bf16->f32 1x8x44x8 1", (op_fn)gemm_rounds_twice},
};

static const bad_call gemm_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},     {0, COLS, 0, POLAR_E_SHAPE},   {1, COLS, 0, POLAR_E_SHAPE},
    {2, ROWS, 0, POLAR_E_SHAPE},     {1, BATCH, 0, POLAR_E_SHAPE},  {2, BATCH, 0, POLAR_E_SHAPE},
    {3, ROWS, 0, POLAR_E_SHAPE},     {2, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},       {0, ONTO, 3, POLAR_E_ARG},     {1, NO_DATA, 0, POLAR_E_ARG},
    {1, NEGATIVE, 0, POLAR_E_SHAPE},
};

const op_calls pl_calls_gemm = {"gemm f32 3x33x17x64 D 2,-3", LIST(gemm_bad), LIST(gemm_faults)};
