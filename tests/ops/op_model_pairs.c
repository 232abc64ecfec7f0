/* op_model_pairs.c -- what distances of points and sums over their pairs may be. */
#include "op_model_sums.h"

static pl_iv model_pair_dist(const pl_op_run *r, int64_t b, int64_t row, polar_dtype ct)
{
    int64_t i, j;
    pl_iv d[3];
    points_of(&i, &j, r->c.rows, row);
    for (int k = 0; k < 3; k++) d[k] = sum(at(r, 1, b, i, k), negative(at(r, 1, b, j, k)), ct);
    return pl_iv_in(pl_iv_sqrt(sum(pl_square_sum(d, ct), scalar(r->c.how.eps, ct), ct)), ct);
}

MODEL(pair_dist)
{
    return model_pair_dist(r, b, i, ct);
}

static pl_iv model_pair_sum(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t n = r->c.rows, K = r->c.K, i = row / K, k = row % K;
    for (int64_t j = 0; j < n; j++)
        add_term(&a, pl_op_run_before(r, 2, b, pair(n, i, j), c), pl_op_run_before(r, 1, b, j * K + k, c));
    pl_iv z = has(r, 3) ? at(r, 3, b, row, c) : pl_iv_point(0);
    return sum(product(scalar(r->c.how.alpha, ct), end_sum(&a, (long double)n, ct), ct), z, ct);
}

MODEL(pair_sum)
{
    return model_pair_sum(r, b, i, j, ct);
}

static pl_iv model_pair_grad(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t i, j, K = r->c.K;
    points_of(&i, &j, r->c.rows, row);
    for (int64_t k = 0; k < K; k++) {
        add_term(&a, pl_op_run_before(r, 1, b, i * K + k, c), pl_op_run_before(r, 2, b, j * K + k, c));
        if (i != j)
            add_term(&a, pl_op_run_before(r, 1, b, j * K + k, c), pl_op_run_before(r, 2, b, i * K + k, c));
    }
    return product(scalar(r->c.how.alpha, ct), end_sum(&a, a.terms, ct), ct);
}

MODEL(pair_grad)
{
    return model_pair_grad(r, b, i, j, ct);
}
