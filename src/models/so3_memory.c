/* so3_memory.c -- the parameter list of the SO(3) model, and where its arrays lie.
 *
 * Names and order are the reference's; they are the checkpoint's keys. Three pieces of device memory:
 * weights, gradients, activations, each measured, committed once, then pointed at by the function that
 * measured. Activations are pointed at anew for each forward's B, inside the same piece.
 */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "compose/message.h"
#include "device/queue.h"
#include "models/so3_impl.h"

#define PARAMS_PER_LAYER 11
#define PARAMS_READOUT   4

static int64_t dots(int64_t h)
{
    return h * (h + 1) / 2;
}

/* ---- the list ----------------------------------------------------------------------------------- */

static const pl_param *add(pl_so3 *m, int64_t layer, const char *name, int ndim, int64_t rows, int64_t cols,
                           int64_t fan_in)
{
    pl_param *p = &m->params[m->param_count++];
    *p = (pl_param){.ndim = ndim, .rows = rows, .cols = cols, .fan_in = fan_in};
    if (layer < 0) snprintf(p->name, sizeof p->name, "%s", name);
    else snprintf(p->name, sizeof p->name, "layers.%lld.%s", (long long)layer, name);
    return p;
}

/* What the message's MLP gives for a pair, or for a point. */
static int64_t message_out(const pl_so3_shape *s)
{
    switch ((pl_message_kind)s->message) {
    case PL_MESSAGE_CHANNEL: return 2 * s->width;
    case PL_MESSAGE_SHARED:
    case PL_MESSAGE_SHARED_BOUNDED: return 1;
    default: return s->width;
    }
}

static void list_params(pl_so3 *m)
{
    int64_t h = m->shape.width, nd = dots(h), of = m->shape.message == PL_MESSAGE_KERNEL ? h : 1,
            weights = message_out(&m->shape), gate = m->shape.linear_gate ? h : 0;
    for (int64_t l = 0; l < m->shape.layers; l++) {
        int64_t in = l ? h : 1;
        pl_so3_layer *y = &m->layers[l];
        y->mix_s.weight = add(m, l, "W_00.weight", 2, h, in, in);
        y->mix_s.bias = add(m, l, "W_00.bias", 1, 1, h, in);
        y->mix_v.weight = add(m, l, "W_11", 2, h, in, in);
        y->w0 = add(m, l, "message.0.weight", 2, h, of, of);
        y->b0 = add(m, l, "message.0.bias", 1, 1, h, of);
        y->W2 = add(m, l, "message.2.weight", 2, weights, h, h);
        y->b2 = add(m, l, "message.2.bias", 1, 1, weights, h);
        y->cg_proj.weight = add(m, l, "cg_proj.weight", 2, h, h + nd, h + nd);
        y->cg_proj.bias = add(m, l, "cg_proj.bias", 1, 1, h, h + nd);
        y->gate.weight = add(m, l, "gate.weight", gate ? 2 : 1, gate ? h : 1, h, gate);
        y->gate.bias = add(m, l, "gate.bias", 1, 1, h, gate);
        y->cg_proj.act = PL_ACT_SILU;
        y->gate.eps = m->shape.eps;
        y->mix_s.tf32 = y->mix_v.tf32 = y->cg_proj.tf32 = y->gate.tf32 = m->shape.tf32;
    }
    int64_t pooled = pl_so3_pooled(&m->shape);
    m->read0.weight = add(m, -1, "readout.0.weight", 2, h, pooled, pooled);
    m->read0.bias = add(m, -1, "readout.0.bias", 1, 1, h, pooled);
    m->read0.act = PL_ACT_SILU;
    m->read2.weight = add(m, -1, "readout.2.weight", 2, 1, h, h);
    m->read2.bias = add(m, -1, "readout.2.bias", 1, 1, 1, h);
    m->read0.tf32 = m->read2.tf32 = m->shape.tf32;
}

/* ---- memory ------------------------------------------------------------------------------------- */

void pl_so3_point_activations(pl_so3 *m, pl_arena *a, int64_t B)
{
    polar_dtype t = m->shape.dtype;
    int64_t E = m->shape.members, N = m->shape.points, h = m->shape.width, n = B * N;
    m->s0 = pl_arena_mat(a, t, E, n, 1);
    m->D = pl_arena_mat(a, t, E * B, N * (N + 1) / 2, 1);
    for (int64_t l = 0; l < m->shape.layers; l++) {
        pl_so3_layer *y = &m->layers[l], *first = &m->layers[0];
        if (m->training || l == 0) {
            y->S = pl_arena_mat(a, t, E, n, h);
            y->V = pl_arena_mat(a, t, E, 3 * n, h);
            y->cat = pl_arena_mat(a, t, E, n, h + dots(h));
            y->M = pl_arena_mat(a, t, E, 3 * n, h);
            y->U = pl_arena_mat(a, t, E, n, h);
        } else y->S = first->S, y->V = first->V, y->cat = first->cat, y->M = first->M, y->U = first->U;
        if (m->training || l < 2) {
            y->s = pl_arena_mat(a, t, E, n, h);
            y->v = pl_arena_mat(a, t, E, 3 * n, h);
        } else y->s = y[-2].s, y->v = y[-2].v; /* input and output by turns */
    }
    m->pooled = pl_arena_mat(a, t, E, B, pl_so3_pooled(&m->shape));
    m->U = pl_arena_mat(a, t, E, B, h);
    m->z = pl_arena_mat(a, t, E, B, h);
    m->pred = pl_arena_mat(a, t, E, B, 1);
}

static void measure(pl_so3 *m)
{
    pl_arena weights = {0}, gradients = {0}, activations = {0};
    pl_params_point(m->params, m->param_count, m->shape.dtype, m->shape.members, m->training, &weights,
                    &gradients);
    pl_so3_point_activations(m, &activations, m->shape.batch);
    m->memory.bytes = (pl_model_bytes){weights.used, gradients.used, activations.used};
}

/* ---- making ------------------------------------------------------------------------------------- */

static polar_status check_size(const char *what, int64_t n, int64_t most)
{
    PL_NEED(n >= 1 && n <= most, POLAR_E_ARG, "an SO(3) model of %lld %s: from 1 to %lld can be had",
            (long long)n, what, (long long)most);
    return POLAR_OK;
}

static polar_status check_shape(const pl_so3_shape *s)
{
    PL_TRY(check_size("members", s->members, 1 << 20));
    PL_TRY(check_size("clouds in a batch", s->batch, 1 << 20));
    PL_TRY(check_size("points", s->points, 1 << 14));
    PL_TRY(check_size("channels", s->width, 1 << 12));
    PL_TRY(check_size("layers", s->layers, 1 << 10));
    PL_NEED(s->dtype == POLAR_DTYPE_F32 || s->dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE,
            "an SO(3) model computes in f32 or f64, not in %s", polar_dtype_name(s->dtype));
    PL_NEED(!s->tf32 || s->dtype == POLAR_DTYPE_F32, POLAR_E_DTYPE,
            "an SO(3) model with products in tf32 is one in f32, not in %s", polar_dtype_name(s->dtype));
    PL_NEED(s->message >= PL_MESSAGE_CHANNEL && s->message < PL_MESSAGE_KINDS, POLAR_E_ARG,
            "an SO(3) model with messages of kind %d: there are 0 to %d", s->message, PL_MESSAGE_KINDS - 1);
    PL_NEED(s->eps >= 0x1p-126 && s->eps <= 0x1p126, POLAR_E_ARG,
            "eps under the square roots is %g; it must be positive and finite in f32", s->eps);
    double E = (double)s->members, N = (double)s->points, h = (double)s->width, clouds = E * (double)s->batch;
    /* more than the activations take */
    double largest = clouds * N * (N + 2 * h * (h + 16)) * (double)s->layers * 8;
    PL_NEED(largest < 0x1p50, POLAR_E_SHAPE,
            "an SO(3) model of %lld x %lld clouds of %lld points and %lld channels does not fit any memory",
            (long long)s->members, (long long)s->batch, (long long)s->points, (long long)s->width);
    return POLAR_OK;
}

polar_status pl_so3_make(pl_so3 **out, polar_device *dev, const pl_so3_shape *shape, int training)
{
    *out = NULL;
    PL_NEED(dev, POLAR_E_ARG, "an SO(3) model without a device (did polar_device_open fail?)");
    PL_TRY(check_shape(shape));
    pl_so3 *m = pl_calloc(1, sizeof *m);
    PL_NEED(m, POLAR_E_NOMEM, "an SO(3) model");
    m->dev = dev;
    m->shape = *shape;
    m->training = training != 0;
    m->params = pl_calloc((size_t)(PARAMS_PER_LAYER * shape->layers + PARAMS_READOUT), sizeof *m->params);
    m->layers = pl_calloc((size_t)shape->layers, sizeof *m->layers);
    if (!m->params || !m->layers) {
        pl_so3_free(m);
        return PL_FAIL(POLAR_E_NOMEM, "the parameter list of an SO(3) model");
    }
    list_params(m);
    measure(m);
    *out = m;
    return POLAR_OK;
}

void pl_so3_free(pl_so3 *m)
{
    if (!m) return;
    pl_free(m->params);
    pl_free(m->layers);
    pl_free(m);
}
