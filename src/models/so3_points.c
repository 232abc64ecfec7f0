/* so3_points.c -- the SO(3) model, forward and backward. tests/golden/so3.safetensors holds predictions and
 * gradients of the same in torch.
 *
 *     s = |x_i|^2, v = x_i, d_ij = sqrt(|x_i - x_j|^2 + eps)
 *     layer:  S = W_00 s + b            V = W_11 v                          mixers: Schur blocks of the
 *             symmetry
 *             S, V += messages along d                                      compose/message.h
 *             s' = silu(cg_proj [S, <V_a, V_b>])     v' = V sigmoid(g |V| + b)     dots and gate (g
 *                 diagonal or a matrix); s' += s, v' += v from the second layer on
 *     y = readout(mean_i s, mean_i |v|), or of the first alone
 *
 * Every v transforms as x under a rotation, every s not at all. Translations do change y: |x| and x are
 * features.
 *     ./polar train so3
 */
#include "models/so3_points.h"

#include "base/status.h"
#include "compose/message.h"
#include "compose/view.h"
#include "device/queue.h"
#include "models/so3_impl.h"
#include "nn/vector_layers.h"

/* ---- life --------------------------------------------------------------------------------------- */

static void point(pl_so3 *m)
{
    pl_arena weights = {.base = m->memory.weights}, gradients = {.base = m->memory.gradients},
             activations = {.base = m->memory.activations};
    pl_params_point(m->params, m->param_count, m->shape.dtype, m->shape.members, m->training, &weights,
                    &gradients);
    pl_so3_point_activations(m, &activations, m->shape.batch);
}

polar_status pl_so3_create(pl_so3 **out, polar_device *dev, const pl_so3_shape *shape, int training)
{
    pl_so3 *m;
    *out = NULL;
    PL_TRY(pl_so3_make(&m, dev, shape, training));
    polar_status st = pl_model_memory_commit(&m->memory, dev);
    if (st != POLAR_OK) {
        pl_so3_free(m);
        return st;
    }
    point(m);
    *out = m;
    return POLAR_OK;
}

void pl_so3_destroy(pl_so3 *m)
{
    if (!m) return;
    pl_model_memory_release(&m->memory, m->dev);
    pl_so3_free(m);
}

pl_param *pl_so3_params(pl_so3 *m, int64_t *count)
{
    *count = m->param_count;
    return m->params;
}

/* ---- a layer ------------------------------------------------------------------------------------ */

static pl_message message_of(const pl_so3 *m, const pl_so3_layer *y)
{
    return (pl_message){.D = m->D,
                        .w0 = y->w0->W,
                        .b0 = y->b0->W,
                        .W2 = y->W2->W,
                        .b2 = y->b2->W,
                        .points = m->shape.points,
                        .alpha = 1 / (double)m->shape.points,
                        .kind = (pl_message_kind)m->shape.message};
}

/* s (E, n, in), v (E, 3n, in); residual from the second layer on. */
static void layer_forward(pl_so3 *m, pl_queue *q, pl_so3_layer *y, pl_mat s, pl_mat v, int residual)
{
    pl_message msg = message_of(m, y);
    pl_mat none = {0};
    pl_linear_forward(q, &y->mix_s, y->S, y->S, s);
    pl_linear_forward(q, &y->mix_v, y->V, y->V, v);
    pl_message_forward(q, pl_view_split(pl_view_cols(y->cat, 0, y->S.cols), m->B), pl_view_split(y->M, m->B),
                       pl_view_split(y->S, m->B), pl_view_split(y->V, m->B), &msg);
    pl_dots_linear_forward(q, &y->cg_proj, y->s, y->U, y->cat, y->M);
    if (residual) PL_CALL(axpby, q, .Y = y->s, .X = y->s, .alpha = 1, .Z = s, .beta = 1);
    pl_gate_forward(q, &y->gate, y->v, y->M, residual ? v : none);
}

/* ds, dv: gradients of the layer's output, replaced by those of its input; the first layer's input needs
 * none. */
static void layer_backward(pl_so3 *m, pl_queue *q, pl_so3_layer *y, pl_mat ds, pl_mat dv, pl_mat s, pl_mat v,
                           int residual)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_message msg = message_of(m, y);
    pl_message_grads grads = {y->w0->G, y->b0->G, y->W2->G, y->b2->G};
    pl_mat none = {0};
    int64_t h = m->shape.width;
    pl_mat dS = pl_scratch_mat(q, ds.dtype, ds.batch, ds.rows, h),
           dV = pl_scratch_mat(q, dv.dtype, dv.batch, dv.rows, h);
    pl_mat dcat = pl_scratch_mat(q, ds.dtype, y->cat.batch, y->cat.rows, y->cat.cols),
           dM = pl_scratch_mat(q, dv.dtype, dv.batch, dv.rows, h);
    pl_gate_backward(q, &y->gate, dM, y->M, dv, m->B);
    pl_dots_linear_backward(q, &y->cg_proj, dcat, dM, ds, y->U, y->cat, y->M, m->B);
    pl_message_backward(q, pl_view_split(dS, m->B), pl_view_split(dV, m->B), &grads,
                        pl_view_split(pl_view_cols(dcat, 0, h), m->B), pl_view_split(dM, m->B),
                        pl_view_split(y->S, m->B), pl_view_split(y->V, m->B), &msg);
    pl_linear_backward(q, &y->mix_s, residual ? ds : none, residual ? ds : none, dS, none, s, m->B);
    pl_linear_backward(q, &y->mix_v, residual ? dv : none, residual ? dv : none, dV, none, v, m->B);
    pl_scratch_end(q, mark);
}

/* ---- the model ---------------------------------------------------------------------------------- */

static polar_status check_input(const pl_so3 *m, const pl_mat *x)
{
    const pl_so3_shape *s = &m->shape;
    PL_NEED(x->dtype == s->dtype, POLAR_E_DTYPE, "an SO(3) model in %s got clouds in %s",
            polar_dtype_name(s->dtype), polar_dtype_name(x->dtype));
    PL_NEED(x->data && x->rows == s->points && x->cols == 3 && x->rs == 3 &&
                (x->batch <= 1 || x->bs == 3 * s->points),
            POLAR_E_SHAPE,
            "an SO(3) model of %lld points wants packed clouds (clouds, %lld, 3), got %lldx%lldx%lld",
            (long long)s->points, (long long)s->points, (long long)x->batch, (long long)x->rows,
            (long long)x->cols);
    PL_NEED(x->batch > 0 && x->batch % s->members == 0 && x->batch / s->members <= s->batch, POLAR_E_SHAPE,
            "%lld clouds for %lld members of at most %lld each: every member gets the same number",
            (long long)x->batch, (long long)s->members, (long long)s->batch);
    return POLAR_OK;
}

/* The vectors the first layer sees, (E, 3n, 1): the clouds themselves. */
static pl_mat first_vectors(const pl_so3 *m)
{
    return pl_mat_dense(m->x.data, m->shape.dtype, m->shape.members, 3 * m->B * m->shape.points, 1);
}

pl_mat pl_so3_forward(pl_so3 *m, polar_queue *q, pl_mat x)
{
    polar_status st = check_input(m, &x);
    if (st != POLAR_OK) {
        pl_queue_keep(q, st);
        return (pl_mat){0};
    }
    pl_arena a = {.base = m->memory.activations};
    m->x = x;
    m->B = x.batch / m->shape.members;
    pl_so3_point_activations(m, &a, m->B);
    pl_mat s = m->s0, v = first_vectors(m);
    PL_CALL(vec_dots, q, .Q = s, .V = v);
    PL_CALL(pair_dist, q, .D = m->D, .X = x, .eps = m->shape.eps);
    for (int64_t l = 0; l < m->shape.layers; l++) {
        layer_forward(m, q, &m->layers[l], s, v, l > 0);
        s = m->layers[l].s;
        v = m->layers[l].v;
    }
    pl_cloud_mean_forward(q, m->pooled, s, v, m->shape.eps);
    pl_linear_forward(q, &m->read0, m->z, m->U, m->pooled);
    pl_linear_forward(q, &m->read2, m->pred, m->pred, m->z);
    return m->pred;
}

void pl_so3_watch_grads(pl_so3 *m, pl_grads_watch watch)
{
    m->watch = watch;
}

void pl_so3_backward(pl_so3 *m, polar_queue *q, pl_mat dpred)
{
    if (!m->training || !m->B) {
        PL_QUEUE_FAIL(q, POLAR_E_STATE,
                      m->training ? "the backward of an SO(3) model before its forward"
                                  : "an SO(3) model made without gradients (training 0) has no backward");
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    polar_dtype t = m->shape.dtype;
    int64_t E = m->shape.members, n = m->B * m->shape.points, h = m->shape.width;
    pl_so3_layer *last = &m->layers[m->shape.layers - 1];
    pl_mat none = {0}, dz = pl_scratch_mat(q, t, E, m->B, h),
           dpooled = pl_scratch_mat(q, t, E, m->B, m->pooled.cols);
    pl_mat ds = pl_scratch_mat(q, t, E, n, h), dv = pl_scratch_mat(q, t, E, 3 * n, h);
    pl_linear_backward(q, &m->read2, dz, none, dpred, none, m->z, m->B);
    pl_linear_backward(q, &m->read0, dpooled, none, dz, m->U, m->pooled, m->B);
    pl_grads_tell(&m->watch, q, m->params, m->read0.weight, m->read2.bias);
    pl_cloud_mean_backward(q, ds, dv, last->v, dpooled, m->shape.eps);
    for (int64_t l = m->shape.layers - 1; l >= 0; l--) {
        pl_so3_layer *y = &m->layers[l];
        layer_backward(m, q, y, ds, dv, l ? y[-1].s : m->s0, l ? y[-1].v : first_vectors(m), l > 0);
        pl_grads_tell(&m->watch, q, m->params, y->mix_s.weight, y->gate.bias);
    }
    pl_scratch_end(q, mark);
}

/* ---- cost --------------------------------------------------------------------------------------- */

polar_status pl_so3_cost(polar_cost *step, pl_model_bytes *memory, polar_device *dev,
                         const pl_so3_shape *shape, int training)
{
    pl_so3 *m;
    pl_queue *q = NULL;
    PL_TRY(pl_so3_make(&m, dev, shape, training));
    polar_status st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = polar_queue_dry_begin(q);
    if (st == POLAR_OK) {
        char *rest = pl_model_memory_pretend(&m->memory);
        point(m);
        pl_mat x = pl_mat_dense(rest, shape->dtype, shape->members * shape->batch, shape->points, 3);
        pl_mat pred = pl_so3_forward(m, q, x);
        pl_mat dpred = pl_mat_dense(rest + pl_mat_bytes(&x), shape->dtype, pred.batch, pred.rows, pred.cols);
        if (training) pl_so3_backward(m, q, dpred);
        st = polar_queue_dry_end(q, step);
    }
    if (memory) *memory = m->memory.bytes;
    polar_queue_destroy(q);
    pl_so3_free(m);
    return st;
}
