/* deit_memory.c -- where the arrays of a vision transformer lie, and the making of one.
 *
 * Three pieces of device memory: weights, gradients, activations, each measured, committed once, then pointed
 * at by the function that measured. Activations are pointed at anew for each forward's B, inside the same
 * piece; before them lie the rounded weights and the factors of stochastic depth, which do not move.
 */
#include "base/alloc.h"
#include "device/queue.h"
#include "models/deit_impl.h"

#define LOW_COLS 64 /* floats in PL_ARENA_ALIGN bytes: the rounded weights are seen as rows of so many */

/* ---- memory ------------------------------------------------------------------------------------- */

/* The weights' piece once more, in bf16: each array lies as far from the beginning, counted in numbers, as in
 * f32. */
static void point_low(pl_deit *m, pl_arena *a)
{
    if (m->wide == m->shape.dtype) return;
    m->low =
        pl_arena_mat(a, m->shape.dtype, 1, (int64_t)(m->memory.bytes.weights / PL_ARENA_ALIGN), LOW_COLS);
    for (int64_t i = 0; m->low.data && i < m->param_count; i++) {
        pl_param *p = &m->params[i];
        p->low = pl_mat_dense((char *)m->low.data + ((char *)p->W.data - m->memory.weights) / 2,
                              m->shape.dtype, p->W.batch, p->rows, p->cols);
    }
}

static void point_block(pl_deit *m, pl_deit_block *y, pl_arena *a, int64_t B)
{
    polar_dtype w = m->wide, t = m->shape.dtype;
    int64_t E = m->shape.members, C = m->shape.width, n = B * m->tokens;
    y->h1 = pl_arena_mat(a, t, E, n, C);
    y->S1 = pl_arena_mat(a, w, E, n, 2);
    y->attn_kept.QKV = pl_arena_mat(a, t, E, n, 3 * C);
    y->attn_kept.O = pl_arena_mat(a, t, E, n, C);
    y->attn_kept.lse = pl_arena_mat(a, w, E * B, m->shape.heads, m->tokens);
    y->mlp_kept.U = pl_arena_mat(a, t, E, n, m->hidden);
    y->mlp_kept.A = y->mlp_kept.U;
    y->X1 = y->X2 = m->X0;
    y->h2 = y->h1;
    y->S2 = y->S1;
    if (!m->training) return;
    y->mlp_kept.A = pl_arena_mat(a, t, E, n, m->hidden);
    y->X1 = pl_arena_mat(a, w, E, n, C);
    y->X2 = pl_arena_mat(a, w, E, n, C);
    y->h2 = pl_arena_mat(a, t, E, n, C);
    y->S2 = pl_arena_mat(a, w, E, n, 2);
}

void pl_deit_point_activations(pl_deit *m, pl_arena *a, int64_t B)
{
    polar_dtype w = m->wide;
    int64_t E = m->shape.members, C = m->shape.width, p = m->shape.patch, depth = m->shape.depth;
    point_low(m, a);
    pl_mat factors = pl_arena_mat(a, w, 2 * depth, E * m->shape.batch, 1);
    m->drop = pl_mat_dense(factors.data, w, 2 * depth, E * B, 1);
    m->P = pl_arena_mat(a, m->shape.dtype, E, B * (m->tokens - 1), 3 * p * p);
    m->X0 = pl_arena_mat(a, w, E, B * m->tokens, C);
    for (int64_t l = 0; l < depth; l++) {
        pl_deit_block *y = &m->blocks[l], *first = &m->blocks[0];
        if (m->training || l == 0) point_block(m, y, a, B);
        else {
            y->h1 = y->h2 = first->h1, y->S1 = y->S2 = first->S1, y->X1 = y->X2 = first->X1;
            y->attn_kept = first->attn_kept, y->mlp_kept = first->mlp_kept;
        }
        y->s1 = pl_mat_at(m->drop, 2 * l, 1);
        y->s2 = pl_mat_at(m->drop, 2 * l + 1, 1);
        y->s1.batch = y->s2.batch = E;
        y->s1.rows = y->s2.rows = y->s1.bs = y->s2.bs = B;
    }
    m->h = pl_arena_mat(a, w, E, B, C);
    m->S = pl_arena_mat(a, w, E, B, 2);
    m->logits = pl_arena_mat(a, w, E, B, m->shape.classes);
}

static void measure(pl_deit *m)
{
    pl_arena weights = {0}, gradients = {0}, activations = {0};
    pl_params_point(m->params, m->param_count, m->wide, m->shape.members, m->training, &weights, &gradients);
    m->memory.bytes.weights = weights.used;
    m->memory.bytes.gradients = gradients.used;
    pl_deit_point_activations(m, &activations, m->shape.batch);
    m->memory.bytes.activations = activations.used;
}

/* ---- making ------------------------------------------------------------------------------------- */

static polar_status check_size(const char *what, int64_t n, int64_t most)
{
    PL_NEED(n >= 1 && n <= most, POLAR_E_ARG, "a vision transformer of %lld %s: from 1 to %lld can be had",
            (long long)n, what, (long long)most);
    return POLAR_OK;
}

static polar_status check_shape(const pl_deit_shape *s)
{
    PL_TRY(check_size("members", s->members, 1 << 16));
    PL_TRY(check_size("images in a batch", s->batch, 1 << 20));
    PL_TRY(check_size("pixels along a side", s->image, 1 << 14));
    PL_TRY(check_size("pixels along a patch", s->patch, 1 << 10));
    PL_TRY(check_size("channels", s->width, 1 << 14));
    PL_TRY(check_size("blocks", s->depth, 1 << 10));
    PL_TRY(check_size("heads", s->heads, 1 << 10));
    PL_TRY(check_size("classes", s->classes, 1 << 20));
    PL_NEED(s->image % s->patch == 0, POLAR_E_SHAPE, "images of %lld pixels do not fall into patches of %lld",
            (long long)s->image, (long long)s->patch);
    PL_NEED(s->width % s->heads == 0, POLAR_E_SHAPE, "%lld channels do not fall into %lld heads",
            (long long)s->width, (long long)s->heads);
    PL_NEED(s->mlp_ratio > 0 && s->mlp_ratio <= 64 && (double)s->width * s->mlp_ratio >= 1, POLAR_E_ARG,
            "mlp_ratio is %g; it makes of %lld channels the hidden ones, at least one and at most 64 times "
            "as many",
            s->mlp_ratio, (long long)s->width);
    PL_NEED(s->drop_path >= 0 && s->drop_path < 1, POLAR_E_ARG, "drop_path is %g: a probability below 1",
            s->drop_path);
    PL_NEED(s->dtype >= 0 && s->dtype < POLAR_DTYPE_COUNT, POLAR_E_DTYPE,
            "a vision transformer in format %d: f64, f32 and bf16 (mixed) can be had", (int)s->dtype);
    double side = (double)s->image / (double)s->patch, T = side * side + 1, C = (double)s->width;
    double row = C * (32 + 4 * s->mlp_ratio) * (double)s->depth + 3 * (double)s->patch * (double)s->patch +
                 (double)s->heads * (double)s->depth;
    /* more than it takes */
    double largest = (double)s->members *
                     ((double)s->batch * (T * row + (double)s->classes) +
                      C * C * (8 + 4 * s->mlp_ratio) * (double)s->depth) *
                     8;
    PL_NEED(largest < 0x1p50, POLAR_E_SHAPE,
            "a vision transformer of %lld x %lld images of %lld pixels, patches of %lld, %lld channels and "
            "%lld blocks does not fit any memory",
            (long long)s->members, (long long)s->batch, (long long)s->image, (long long)s->patch,
            (long long)s->width, (long long)s->depth);
    return POLAR_OK;
}

polar_status pl_deit_make(pl_deit **out, polar_device *dev, const pl_deit_shape *shape, int training)
{
    *out = NULL;
    PL_NEED(dev, POLAR_E_ARG, "a vision transformer without a device (did polar_device_open fail?)");
    PL_TRY(check_shape(shape));
    pl_deit *m = pl_calloc(1, sizeof *m);
    PL_NEED(m, POLAR_E_NOMEM, "a vision transformer");
    int64_t side = shape->image / shape->patch;
    m->dev = dev;
    m->shape = *shape;
    m->training = training != 0;
    m->wide = shape->dtype == POLAR_DTYPE_BF16 ? POLAR_DTYPE_F32 : shape->dtype;
    m->tokens = 1 + side * side;
    m->hidden = (int64_t)((double)shape->width * shape->mlp_ratio);
    m->params = pl_calloc((size_t)pl_deit_param_most(shape->depth), sizeof *m->params);
    m->blocks = pl_calloc((size_t)shape->depth, sizeof *m->blocks);
    m->factors = pl_calloc((size_t)(2 * shape->depth * shape->members * shape->batch), sizeof *m->factors);
    if (!m->params || !m->blocks || !m->factors) {
        pl_deit_free(m);
        return PL_FAIL(POLAR_E_NOMEM, "the parameter list of a vision transformer");
    }
    pl_deit_list(m);
    measure(m);
    *out = m;
    return POLAR_OK;
}

void pl_deit_free(pl_deit *m)
{
    if (!m) return;
    pl_free(m->params);
    pl_free(m->blocks);
    pl_free(m->factors);
    pl_free(m);
}
