/* ref_vectors.c -- ops on vectors: row r's vector of channel c is V[3r + d, c], d = 0, 1, 2. */
#include "math/vectors_elem.h"
#include "ref_loops.h"

typedef struct {
    double d[3];
} vec3;

static vec3 get3(const pl_mat *V, int64_t b, int64_t r, int64_t c)
{
    return (vec3){{pl_get(V, b, 3 * r, c), pl_get(V, b, 3 * r + 1, c), pl_get(V, b, 3 * r + 2, c)}};
}

static double dot(vec3 v, vec3 w)
{
    return pl_dot3_f64(v.d[0], v.d[1], v.d[2], w.d[0], w.d[1], w.d[2]);
}

/* R = sqrt(|v|^2 + eps) */
static double norm(vec3 v, double eps)
{
    return pl_norm3_f64(v.d[0], v.d[1], v.d[2], eps);
}

/* Q[r, ab] = v_a . v_b, a <= b row by row */
void pl_ref_vec_dots(pl_queue *q, const pl_args_vec_dots *args)
{
    (void)q;
    int64_t h = args->V.cols;
    for (int64_t m = 0; m < args->Q.batch; m++)
        for (int64_t r = 0; r < args->Q.rows; r++)
            for (int64_t a = 0, ab = 0; a < h; a++)
                for (int64_t b = a; b < h; b++, ab++)
                    pl_put(&args->Q, m, r, ab, dot(get3(&args->V, m, r, a), get3(&args->V, m, r, b)));
}

/* dv_a += sum_b dQ_ab v_b, the diagonal twice */
void pl_ref_vec_dots_back(pl_queue *q, const pl_args_vec_dots_back *args)
{
    (void)q;
    int64_t h = args->V.cols;
    for (int64_t m = 0; m < args->V.batch; m++)
        for (int64_t row = 0; row < args->V.rows; row++)
            for (int64_t a = 0; a < h; a++) {
                double s = 0;
                for (int64_t b = 0; b < h; b++) {
                    int64_t lo = a < b ? a : b, hi = a < b ? b : a;
                    double dq = pl_get(&args->dQ, m, row / 3, lo * h - lo * (lo - 1) / 2 + (hi - lo));
                    s += (a == b ? 2 * dq : dq) * pl_get(&args->V, m, row, b);
                }
                pl_put(&args->dV, m, row, a, pl_get(&args->dV, m, row, a) + s);
            }
}

void pl_ref_vec_norm(pl_queue *q, const pl_args_vec_norm *a)
{
    (void)q;
    FOR_EACH(a->R) pl_put(&a->R, b, i, j, norm(get3(&a->V, b, i, j), a->eps));
}

/* dv += dR v / R */
void pl_ref_vec_norm_back(pl_queue *q, const pl_args_vec_norm_back *a)
{
    (void)q;
    FOR_EACH(a->dR)
    {
        vec3 v = get3(&a->V, b, i, j), dv = get3(&a->dV, b, i, j);
        double along = pl_get(&a->dR, b, i, j) / norm(v, a->eps);
        for (int d = 0; d < 3; d++) pl_put(&a->dV, b, 3 * i + d, j, fma(along, v.d[d], dv.d[d]));
    }
}

/* y = v sigmoid(g R + b) + z */
void pl_ref_vec_gate(pl_queue *q, const pl_args_vec_gate *a)
{
    (void)q;
    for (int64_t m = 0; m < a->V.batch; m++)
        for (int64_t r = 0; r < a->V.rows / 3; r++)
            for (int64_t c = 0; c < a->V.cols; c++) {
                vec3 v = get3(&a->V, m, r, c), z = {{0, 0, 0}};
                double s = pl_sigmoid_f64(fma(value(&a->g, m, c), norm(v, a->eps), value(&a->b, m, c)));
                if (a->Z.data) z = get3(&a->Z, m, r, c);
                for (int d = 0; d < 3; d++) pl_put(&a->Y, m, 3 * r + d, c, fma(v.d[d], s, z.d[d]));
            }
}

/* u = g R + b, s = sigmoid(u), t = (dy . v) s (1 - s): T = t, TR = t R, dv = dy s + t g v / R */
void pl_ref_vec_gate_back(pl_queue *q, const pl_args_vec_gate_back *a)
{
    (void)q;
    FOR_EACH(a->T)
    {
        vec3 v = get3(&a->V, b, i, j), dy = get3(&a->dY, b, i, j);
        double s, along, tr,
            t = pl_gate_back_f64(v.d, dy.d, value(&a->g, b, j), value(&a->b, b, j), a->eps, &s, &along, &tr);
        pl_put(&a->T, b, i, j, t);
        pl_put(&a->TR, b, i, j, tr);
        for (int d = 0; d < 3; d++) pl_put(&a->dV, b, 3 * i + d, j, fma(along, v.d[d], dy.d[d] * s));
    }
}
