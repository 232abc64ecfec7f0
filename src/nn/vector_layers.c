/* vector_layers.c -- see vector_layers.h. */
#include "nn/vector_layers.h"

#include "compose/view.h"

/* ---- dot products into scalars ------------------------------------------------------------------- */

/* Y = act(W [s, dots] + b);   dv_a += sum_b (1 + [a = b]) d(dots)_ab v_b. */

void pl_dots_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat cat, pl_mat v)
{
    PL_CALL(vec_dots, q, .Q = pl_view_cols(cat, v.cols, cat.cols - v.cols), .V = v);
    pl_linear_forward(q, l, Y, U, cat);
}

void pl_dots_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dcat, pl_mat dv, pl_mat dY, pl_mat U,
                             pl_mat cat, pl_mat v, int64_t groups)
{
    pl_linear_backward(q, l, dcat, (pl_mat){0}, dY, U, cat, groups);
    PL_CALL(vec_dots_back, q, .dV = dv, .V = v, .dQ = pl_view_cols(dcat, v.cols, dcat.cols - v.cols));
}

/* ---- gate ---------------------------------------------------------------------------------------- */

/* Y = V s, s = sigmoid(u), u = g R + b, R = sqrt(|V|^2 + eps);
 *
 *     t = <dY, V> s (1 - s)     dV = dY s + t g V / R     dg = sum t R     db = sum t
 *
 * A linear gate, u = G R + b, is a gate of every point's own: with g = 0 and b = u, points as the batch.
 *
 *     dG = t^T R     db = sum t     dR = t G     dV = dY s + dR V / R */

static int is_linear(const pl_gate *l)
{
    return l->weight->ndim == 2;
}

typedef struct {
    pl_linear layer;
    pl_mat R, U, zero; /* (E, r, h): lengths, what the sigmoid is of, and g */
} linear_gate;

/* Points as the batch: (E, k r, h) -> (E r, k, h). */
static pl_mat by_point(pl_mat m, int64_t r)
{
    return m.data ? pl_view_split(m, r) : m;
}

static linear_gate gates_make(pl_queue *q, const pl_gate *l, pl_mat V)
{
    int64_t E = V.batch, r = V.rows / 3, h = V.cols;
    linear_gate k = {.layer = {l->weight, l->bias, PL_ACT_NONE, l->tf32}};
    k.R = pl_scratch_mat(q, V.dtype, E, r, h);
    k.U = pl_scratch_mat(q, V.dtype, E, r, h);
    k.zero = pl_scratch_mat(q, V.dtype, E, r, h);
    PL_CALL(vec_norm, q, .R = k.R, .V = V, .eps = l->eps);
    /* zero, or NaN where V is not finite any more */
    PL_CALL(axpby, q, .Y = k.zero, .X = k.R, .alpha = 0);
    pl_linear_forward(q, &k.layer, k.U, k.U, k.R);
    return k;
}

void pl_gate_forward(pl_queue *q, const pl_gate *l, pl_mat Y, pl_mat V, pl_mat Z)
{
    if (is_linear(l)) {
        pl_scratch_mark mark = pl_scratch_begin(q);
        linear_gate k = gates_make(q, l, V);
        int64_t r = V.rows / 3;
        PL_CALL(vec_gate, q, .Y = by_point(Y, r), .V = by_point(V, r), .g = by_point(k.zero, r),
                .b = by_point(k.U, r), .Z = by_point(Z, r), .eps = l->eps);
        pl_scratch_end(q, mark);
        return;
    }
    PL_CALL(vec_gate, q, .Y = Y, .V = V, .g = l->weight->W, .b = l->bias->W, .Z = Z, .eps = l->eps);
}

void pl_gate_backward(pl_queue *q, const pl_gate *l, pl_mat dV, pl_mat V, pl_mat dY, int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t r = V.rows / 3;
    pl_mat T = pl_scratch_mat(q, V.dtype, V.batch, r, V.cols),
           TR = pl_scratch_mat(q, V.dtype, V.batch, r, V.cols);
    if (is_linear(l)) {
        linear_gate k = gates_make(q, l, V);
        PL_CALL(vec_gate_back, q, .dV = by_point(dV, r), .T = by_point(T, r), .TR = by_point(TR, r),
                .V = by_point(V, r), .g = by_point(k.zero, r), .b = by_point(k.U, r), .dY = by_point(dY, r),
                .eps = l->eps);
        pl_linear_backward(q, &k.layer, TR, (pl_mat){0}, T, (pl_mat){0}, k.R, groups); /* dR */
        PL_CALL(vec_norm_back, q, .dV = dV, .V = V, .dR = TR, .eps = l->eps);
        pl_scratch_end(q, mark);
        return;
    }
    PL_CALL(vec_gate_back, q, .dV = dV, .T = T, .TR = TR, .V = V, .g = l->weight->W, .b = l->bias->W,
            .dY = dY, .eps = l->eps);
    PL_CALL(row_sum, q, .Y = l->weight->G, .X = TR, .alpha = 1);
    PL_CALL(row_sum, q, .Y = l->bias->G, .X = T, .alpha = 1);
    pl_scratch_end(q, mark);
}

/* ---- means over a cloud -------------------------------------------------------------------------- */

/* Y = [mean_i s_i, mean_i sqrt(|v_i|^2 + eps)];   ds_i = dY[:h] / N,   dv_i = dY[h:] / N v_i /
 * sqrt(|v_i|^2 + eps). */

void pl_cloud_mean_forward(pl_queue *q, pl_mat Y, pl_mat s, pl_mat v, double eps)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t h = s.cols;
    double alpha = (double)Y.rows / (double)s.rows;
    PL_CALL(row_sum, q, .Y = pl_view_cols(Y, 0, h), .X = s, .alpha = alpha);
    if (Y.cols > h) {
        pl_mat R = pl_scratch_mat(q, s.dtype, s.batch, s.rows, h); /* lengths */
        PL_CALL(vec_norm, q, .R = R, .V = v, .eps = eps);
        PL_CALL(row_sum, q, .Y = pl_view_cols(Y, h, h), .X = R, .alpha = alpha);
    }
    pl_scratch_end(q, mark);
}

void pl_cloud_mean_backward(pl_queue *q, pl_mat ds, pl_mat dv, pl_mat v, pl_mat dY, double eps)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t h = ds.cols;
    double alpha = (double)dY.rows / (double)ds.rows;
    PL_CALL(row_spread, q, .Y = ds, .X = pl_view_cols(dY, 0, h), .alpha = alpha);
    /* zero, or NaN where v is not finite any more */
    PL_CALL(axpby, q, .Y = dv, .X = v, .alpha = 0);
    if (dY.cols > h) {
        pl_mat dR = pl_scratch_mat(q, ds.dtype, ds.batch, ds.rows, h);
        PL_CALL(row_spread, q, .Y = dR, .X = pl_view_cols(dY, h, h), .alpha = alpha);
        PL_CALL(vec_norm_back, q, .dV = dv, .V = v, .dR = dR, .eps = eps);
    }
    pl_scratch_end(q, mark);
}
