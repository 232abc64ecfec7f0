/* op_model_vectors.c -- what dot products, lengths and gates of vectors may be. */
#include "op_model_sums.h"

/* The vector of row `row` and channel c of operand o. */
static void get3(pl_iv out[3], const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c)
{
    for (int d = 0; d < 3; d++) out[d] = at(r, o, b, 3 * row + d, c);
}

static pl_iv model_dot(const pl_op_run *r, int o, int64_t a, int p, int64_t c, int64_t b, int64_t row,
                       polar_dtype ct)
{
    running s = {.whole = 1};
    for (int d = 0; d < 3; d++)
        add_term(&s, pl_op_run_before(r, o, b, 3 * row + d, a), pl_op_run_before(r, p, b, 3 * row + d, c));
    return end_sum(&s, 3, ct);
}

static pl_iv model_vec_dots(const pl_op_run *r, int64_t b, int64_t row, int64_t ab, polar_dtype ct)
{
    int64_t i, j;
    points_of(&i, &j, r->c.cols, ab);
    return model_dot(r, 1, i, 1, j, b, row, ct);
}

MODEL(vec_dots)
{
    return model_vec_dots(r, b, i, j, ct);
}

static pl_iv model_vec_dots_back(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t h = r->c.cols;
    for (int64_t k = 0; k < h; k++)
        add_term(&a, (c == k ? 2 : 1) * pl_op_run_before(r, 2, b, row / 3, pair(h, c, k)),
                 pl_op_run_before(r, 1, b, row, k));
    return sum(at(r, 0, b, row, c), end_sum(&a, (long double)h, ct), ct);
}

MODEL(vec_dots_back)
{
    return model_vec_dots_back(r, b, i, j, ct);
}

/* R of row `row` and channel c of operand o. */
static pl_iv norm(const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    pl_iv v[3];
    get3(v, r, o, b, row, c);
    return pl_iv_in(pl_iv_sqrt(sum(pl_square_sum(v, ct), scalar(r->c.how.eps, ct), ct)), ct);
}

MODEL(vec_norm)
{
    return norm(r, 1, b, i, j, ct);
}

static pl_iv model_vec_norm_back(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv along = pl_iv_in(pl_iv_div(at(r, 2, b, i / 3, c), norm(r, 1, b, i / 3, c, ct)), ct);
    return fused(along, at(r, 1, b, i, c), at(r, 0, b, i, c), ct);
}

MODEL(vec_norm_back)
{
    return model_vec_norm_back(r, b, i, j, ct);
}

/* g R + b, V and its gate being operands v, v + 1 and v + 2. */
static pl_iv gate_argument(const pl_op_run *r, int v, pl_iv R, int64_t b, int64_t c, polar_dtype ct)
{
    return fused(at(r, v + 1, r->mat[v + 1].batch == 1 ? 0 : b, 0, c), R,
                 at(r, v + 2, r->mat[v + 2].batch == 1 ? 0 : b, 0, c), ct);
}

static pl_iv model_vec_gate(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv s = pl_model_curve(SIGMOID, gate_argument(r, 1, norm(r, 1, b, i / 3, c, ct), b, c, ct), ct);
    return fused(at(r, 1, b, i, c), s, has(r, 4) ? at(r, 4, b, i, c) : pl_iv_point(0), ct);
}

MODEL(vec_gate)
{
    return model_vec_gate(r, b, i, j, ct);
}

/* Result o: 0 dV (i a row of vectors), 1 T, 2 TR (i a row of scalars). */
static pl_iv model_vec_gate_back(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    int64_t row = o == 0 ? i / 3 : i;
    pl_iv R = norm(r, 3, b, row, c, ct), u = gate_argument(r, 3, R, b, c, ct);
    pl_iv t = product(model_dot(r, 6, c, 3, c, b, row, ct), pl_model_curve(SIGMOID_SLOPE, u, ct), ct);
    if (o == 1) return t;
    if (o == 2) return product(t, R, ct);
    pl_iv along = pl_iv_in(pl_iv_div(product(t, at(r, 4, r->mat[4].batch == 1 ? 0 : b, 0, c), ct), R), ct);
    return fused(along, at(r, 3, b, i, c), product(at(r, 6, b, i, c), pl_model_curve(SIGMOID, u, ct), ct),
                 ct);
}

MODEL(vec_gate_back)
{
    return model_vec_gate_back(r, o, b, i, j, ct);
}
