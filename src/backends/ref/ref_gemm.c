/* ref_gemm.c -- C = alpha op(A) op(B) + beta D, row-major, summed in double over ascending k. */
#include "math/formulas_elem.h"
#include "math/tf32_elem.h"
#include "ref_ops.h"

static double factor(const pl_mat *m, int64_t b, int64_t i, int64_t j, int64_t tf32)
{
    double x = pl_get(m, b, i, j);
    return tf32 ? (double)pl_tf32_round((float)x) : x;
}

void pl_ref_gemm(pl_queue *q, const pl_args_gemm *a)
{
    (void)q;
    int64_t K = a->ta ? a->A.rows : a->A.cols;
    for (int64_t b = 0; b < a->C.batch; b++)
        for (int64_t i = 0; i < a->C.rows; i++)
            for (int64_t j = 0; j < a->C.cols; j++) {
                double s = 0;
                for (int64_t k = 0; k < K; k++)
                    s += factor(&a->A, b, a->ta ? k : i, a->ta ? i : k, a->tf32) *
                         factor(&a->B, b, a->tb ? j : k, a->tb ? k : j, a->tf32);
                pl_put(&a->C, b, i, j,
                       pl_gemm_epilogue_f64(s, a->alpha, a->beta, a->D.data ? pl_get(&a->D, b, i, j) : 0));
            }
}
