/* ref_pairs.c -- ops on pairs i <= j of a cloud's points. Pair (i, j) is row i N - i (i - 1) / 2 + (j - i);
 * w_ij = w_ji stands once. */
#include "math/vectors_elem.h"
#include "ref_ops.h"

static int64_t pair(int64_t points, int64_t i, int64_t j)
{
    int64_t a = i < j ? i : j, b = i < j ? j : i;
    return a * points - a * (a - 1) / 2 + (b - a);
}

/* D_ij = sqrt(|x_i - x_j|^2 + eps) */
void pl_ref_pair_dist(pl_queue *q, const pl_args_pair_dist *a)
{
    (void)q;
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t i = 0; i < a->X.rows; i++)
            for (int64_t j = i; j < a->X.rows; j++) {
                double d[3];
                for (int k = 0; k < 3; k++) d[k] = pl_get(&a->X, b, i, k) - pl_get(&a->X, b, j, k);
                pl_put(&a->D, b, pair(a->X.rows, i, j), 0, pl_norm3_f64(d[0], d[1], d[2], a->eps));
            }
}

/* Y_i = Z_i + alpha sum_j w_ij X_j, for every component k of a point and every channel c */
void pl_ref_pair_sum(pl_queue *q, const pl_args_pair_sum *a)
{
    (void)q;
    int64_t n = a->points, components = a->X.rows / n;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < components; k++)
                for (int64_t c = 0; c < a->Y.cols; c++) {
                    double s = 0;
                    for (int64_t j = 0; j < n; j++)
                        s += pl_get(&a->W, b, pair(n, i, j), c) * pl_get(&a->X, b, j * components + k, c);
                    pl_put(
                        &a->Y, b, i * components + k, c,
                        pl_sum_end_f64(s, a->alpha, a->Z.data ? pl_get(&a->Z, b, i * components + k, c) : 0));
                }
}

/* dW_ij = alpha sum_k (dY_ik X_jk + dY_jk X_ik), for i = j the first term alone */
void pl_ref_pair_grad(pl_queue *q, const pl_args_pair_grad *a)
{
    (void)q;
    int64_t n = a->points, components = a->X.rows / n;
    for (int64_t b = 0; b < a->dW.batch; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++)
                for (int64_t c = 0; c < a->dW.cols; c++) {
                    double s = 0;
                    for (int64_t k = 0; k < components; k++) {
                        int64_t ik = i * components + k, jk = j * components + k;
                        s += pl_get(&a->dY, b, ik, c) * pl_get(&a->X, b, jk, c);
                        if (i != j) s += pl_get(&a->dY, b, jk, c) * pl_get(&a->X, b, ik, c);
                    }
                    pl_put(&a->dW, b, pair(n, i, j), c, a->alpha * s);
                }
}

/* Y_ij = Y_ji = w_ij */
void pl_ref_pair_square(pl_queue *q, const pl_args_pair_square *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.rows; j++)
                pl_put(&a->Y, b, i, j, pl_get(&a->W, b, pair(a->Y.rows, i, j), 0));
}

/* w_ij = Y_ij + Y_ji, for i = j Y_ii */
void pl_ref_pair_fold(pl_queue *q, const pl_args_pair_fold *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = i; j < a->Y.rows; j++) {
                double y = pl_get(&a->Y, b, i, j);
                if (i != j) y += pl_get(&a->Y, b, j, i);
                pl_put(&a->W, b, pair(a->Y.rows, i, j), 0, y);
            }
}
