/* ref_gemm.c -- C = alpha op(A) op(B) + beta D, row-major, summed in double over ascending k.
 *
 * A row of C at a time, SOME of its columns side by side: s_j += a_ik b_kj, k = 0, 1, ... Half the time of
 * the tests on `ref` and `guard` is spent here.
 */
#include "math/bf16_elem.h"
#include "math/formulas_elem.h"
#include "math/tf32_elem.h"
#include "ref_ops.h"

#define SOME 64

/* n factors in double, the first at element `at`, `step` elements apart. */
static void factors(double *x, const pl_mat *m, int64_t at, int64_t step, int64_t n, int64_t tf32)
{
    if (m->dtype == POLAR_DTYPE_F32) /* what most are, without a call each */
        for (int64_t p = 0; p < n; p++) x[p] = ((const float *)m->data)[at + p * step];
    else if (m->dtype == POLAR_DTYPE_BF16)
        for (int64_t p = 0; p < n; p++) x[p] = pl_bf16_to_f32(((const pl_bf16 *)m->data)[at + p * step]);
    else
        for (int64_t p = 0; p < n; p++) x[p] = pl_load_f64(m->data, m->dtype, at + p * step);
    for (int64_t p = 0; tf32 && p < n; p++) x[p] = (double)pl_tf32_round((float)x[p]);
}

/* Entries (i, j) to (i, j + n) of C. */
static void entries(const pl_args_gemm *a, int64_t b, int64_t i, int64_t j, int64_t n)
{
    const int64_t K = a->ta ? a->A.rows : a->A.cols;
    double s[SOME] = {0}, x, y[SOME];
    for (int64_t k = 0; k < K; k++) {
        factors(&x, &a->A, b * a->A.bs + (a->ta ? k * a->A.rs + i : i * a->A.rs + k), 0, 1, a->tf32);
        factors(y, &a->B, b * a->B.bs + (a->tb ? j * a->B.rs + k : k * a->B.rs + j), a->tb ? a->B.rs : 1, n,
                a->tf32);
        for (int64_t p = 0; p < n; p++) s[p] += x * y[p];
    }
    for (int64_t p = 0; p < n; p++)
        pl_put(&a->C, b, i, j + p,
               pl_gemm_epilogue_f64(s[p], a->alpha, a->beta, a->D.data ? pl_get(&a->D, b, i, j + p) : 0));
}

void pl_ref_gemm(pl_queue *q, const pl_args_gemm *a)
{
    (void)q;
    for (int64_t b = 0; b < a->C.batch; b++)
        for (int64_t i = 0; i < a->C.rows; i++)
            for (int64_t j = 0; j < a->C.cols; j += SOME)
                entries(a, b, i, j, a->C.cols - j < SOME ? a->C.cols - j : SOME);
}
