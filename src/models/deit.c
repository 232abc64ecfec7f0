/* deit.c -- a vision transformer, forward and backward. tests/golden/vit.safetensors holds logits and
 * gradients of the same in torch.
 *
 *     X = [cls, W patches + b] + pos
 *     block:  X += attention(norm1(X))        X += mlp(norm2(X))           each branch left out for some
 *             images (stochastic depth)
 *     y = head(norm(X)[class token])
 *
 * Only the class tokens pass the last norm: nothing else reaches the head.
 *     ./polar train deit --data DIR
 */
#include "models/deit.h"

#include "base/status.h"
#include "compose/view.h"
#include "device/queue.h"
#include "models/deit_impl.h"
#include "nn/transformer.h"

/* ---- life --------------------------------------------------------------------------------------- */

static void point(pl_deit *m)
{
    pl_arena weights = {.base = m->memory.weights}, gradients = {.base = m->memory.gradients},
             activations = {.base = m->memory.activations};
    pl_params_point(m->params, m->param_count, m->wide, m->shape.members, m->training, &weights, &gradients);
    pl_deit_point_activations(m, &activations, m->shape.batch);
}

polar_status pl_deit_create(pl_deit **out, polar_device *dev, const pl_deit_shape *shape, int training)
{
    pl_deit *m;
    *out = NULL;
    PL_TRY(pl_deit_make(&m, dev, shape, training));
    polar_status st = pl_model_memory_commit(&m->memory, dev);
    if (st != POLAR_OK) {
        pl_deit_free(m);
        return st;
    }
    point(m);
    *out = m;
    return POLAR_OK;
}

void pl_deit_destroy(pl_deit *m)
{
    if (!m) return;
    pl_model_memory_release(&m->memory, m->dev);
    pl_deit_free(m);
}

pl_param *pl_deit_params(pl_deit *m, int64_t *count)
{
    *count = m->param_count;
    return m->params;
}

void pl_deit_set_drop(pl_deit *m, polar_queue *q, const uint64_t *seeds, uint64_t step, int64_t B)
{
    int64_t E = m->shape.members, depth = m->shape.depth, n = 0;
    m->drop_images = 0;
    if (!seeds || m->shape.drop_path <= 0) return;
    if (B < 1 || B > m->shape.batch) {
        PL_QUEUE_FAIL(q, POLAR_E_ARG, "stochastic depth of %lld images in a model of at most %lld",
                      (long long)B, (long long)m->shape.batch);
        return;
    }
    for (int64_t branch = 0; branch < 2 * depth; branch++)
        for (int64_t e = 0; e < E; e++)
            for (int64_t i = 0; i < B; i++)
                pl_store_f64(m->factors, m->wide, n++,
                             pl_drop_path_factor(seeds[e], step, branch, i, m->blocks[branch / 2].drop));
    polar_queue_upload(q, m->drop.data, m->factors, (size_t)n * polar_dtype_size(m->wide));
    m->drop_images = B;
}

/* ---- a block ------------------------------------------------------------------------------------ */

/* A branch's factors, or none where nothing is left out. */
static pl_mat factors(const pl_deit *m, const pl_deit_block *y, pl_mat s)
{
    return m->drop_images && y->drop > 0 ? s : (pl_mat){0};
}

static void block_forward(pl_deit *m, pl_queue *q, pl_deit_block *y, pl_mat X)
{
    pl_layer_norm_forward(q, &y->norm1, y->h1, y->S1, X);
    pl_attention_layer_forward(q, &y->attn, y->X1, &y->attn_kept, y->h1, X, factors(m, y, y->s1), m->B);
    pl_layer_norm_forward(q, &y->norm2, y->h2, y->S2, y->X1);
    pl_mlp_forward(q, &y->mlp, y->X2, &y->mlp_kept, y->h2, y->X1, factors(m, y, y->s2));
}

/* dX += what comes through the norm, dh; what the branch in front of it, of factors s, is to get for it: dX,
 * or s dX in dh's place, in the format products want. */
static pl_mat norm_backward(pl_queue *q, const pl_layer_norm *l, pl_mat dX, pl_mat dh, pl_mat X, pl_mat S,
                            pl_mat s)
{
    int apart = dX.dtype != dh.dtype || s.data;
    pl_layer_norm_backward(q, l, dX, apart ? dh : (pl_mat){0}, s, dX, X, S, dh);
    return apart ? dh : dX;
}

/* dX: the stream's gradient after block l, replaced by the one before it; dU and the result: those of the
 * branches (norm_backward). */
static pl_mat block_backward(pl_deit *m, pl_queue *q, int64_t l, pl_mat dX, pl_mat dh, pl_mat dU)
{
    const pl_deit_block *y = &m->blocks[l], *before = l ? y - 1 : NULL;
    const pl_mat none = {0};
    pl_mlp_backward(q, &y->mlp, dh, dU, &y->mlp_kept, y->h2, m->B);
    dU = norm_backward(q, &y->norm2, dX, dh, y->X1, y->S2, factors(m, y, y->s1));
    pl_attention_layer_backward(q, &y->attn, dh, dU, &y->attn_kept, y->h1, m->B);
    if (before) return norm_backward(q, &y->norm1, dX, dh, before->X2, y->S1, factors(m, before, before->s2));
    pl_layer_norm_backward(q, &y->norm1, dX, none, none, dX, m->X0, y->S1, dh);
    return dX;
}

/* ---- the model ---------------------------------------------------------------------------------- */

static polar_status check_input(const pl_deit *m, const pl_mat *x)
{
    const pl_deit_shape *s = &m->shape;
    PL_NEED(x->data && x->rows == 3 * s->image && x->cols == s->image && x->rs == s->image &&
                (x->batch <= 1 || x->bs == 3 * s->image * s->image),
            POLAR_E_SHAPE,
            "a vision transformer for %lld x %lld pixels wants packed images (images, %lld, %lld), got "
            "%lldx%lldx%lld",
            (long long)s->image, (long long)s->image, (long long)(3 * s->image), (long long)s->image,
            (long long)x->batch, (long long)x->rows, (long long)x->cols);
    PL_NEED(x->batch > 0 && x->batch % s->members == 0 && x->batch / s->members <= s->batch, POLAR_E_SHAPE,
            "%lld images for %lld members of at most %lld each: every member gets the same number",
            (long long)x->batch, (long long)s->members, (long long)s->batch);
    PL_NEED(!m->drop_images || m->drop_images == x->batch / s->members, POLAR_E_STATE,
            "stochastic depth was drawn for %lld images per member, the forward has %lld",
            (long long)m->drop_images, (long long)(x->batch / s->members));
    return POLAR_OK;
}

/* The class tokens of the stream X, (E, B, C). */
static pl_mat class_tokens(const pl_deit *m, pl_mat X)
{
    X.rows = m->B;
    X.rs = m->tokens * X.cols;
    return X;
}

/* Mixed precision: all weights, rounded for products, in one pass. */
static void round_weights(pl_deit *m, pl_queue *q)
{
    if (m->low.data)
        PL_CALL(copy, q, .Y = m->low,
                .X = pl_mat_dense(m->memory.weights, m->wide, 1, m->low.rows, m->low.cols));
}

pl_mat pl_deit_forward(pl_deit *m, polar_queue *q, pl_mat x)
{
    polar_status st = check_input(m, &x);
    if (st != POLAR_OK) {
        pl_queue_keep(q, st);
        return (pl_mat){0};
    }
    pl_arena a = {.base = m->memory.activations};
    m->B = x.batch / m->shape.members;
    pl_deit_point_activations(m, &a, m->B);
    round_weights(m, q);
    pl_patch_embed_forward(q, &m->embed, m->X0, m->P, x, m->B);
    for (int64_t l = 0; l < m->shape.depth; l++)
        block_forward(m, q, &m->blocks[l], l ? m->blocks[l - 1].X2 : m->X0);
    pl_layer_norm_forward(q, &m->norm, m->h, m->S, class_tokens(m, m->blocks[m->shape.depth - 1].X2));
    /* in the wide format: it is little work */
    PL_CALL(gemm, q, .C = m->logits, .A = m->h, .B = m->head.weight->W, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = m->logits, .X = m->logits, .b = m->head.bias->W, .act = PL_ACT_NONE);
    return m->logits;
}

void pl_deit_watch_grads(pl_deit *m, pl_grads_watch watch)
{
    m->watch = watch;
}

void pl_deit_backward(pl_deit *m, polar_queue *q, pl_mat dlogits)
{
    if (!m->training || !m->B) {
        PL_QUEUE_FAIL(q, POLAR_E_STATE,
                      m->training
                          ? "the backward of a vision transformer before its forward"
                          : "a vision transformer made without gradients (training 0) has no backward");
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t E = m->shape.members, C = m->shape.width;
    const pl_deit_block *last = &m->blocks[m->shape.depth - 1];
    pl_mat none = {0}, X = last->X2, dX = pl_scratch_mat(q, m->wide, E, m->B * m->tokens, C);
    pl_mat dclass = pl_scratch_mat(q, m->wide, E, m->B, C),
           dh = pl_scratch_mat(q, m->shape.dtype, E, m->B * m->tokens, C);
    PL_CALL(gemm, q, .C = m->head.weight->G, .A = dlogits, .B = m->h, .ta = 1, .alpha = 1);
    PL_CALL(row_sum, q, .Y = m->head.bias->G, .X = dlogits, .alpha = 1);
    PL_CALL(gemm, q, .C = dclass, .A = dlogits, .B = m->head.weight->W, .alpha = 1);
    /* zero, or NaN where the stream is not finite any more */
    PL_CALL(axpby, q, .Y = dX, .X = X, .alpha = 0);
    pl_layer_norm_backward(q, &m->norm, class_tokens(m, dX), none, none, none, class_tokens(m, X), m->S,
                           dclass);
    pl_grads_tell(&m->watch, q, m->params, m->norm.weight, m->head.bias);
    /* of all tokens: no norm behind this branch has made it */
    pl_mat dU = pl_residual_gradient(q, dh, dX, factors(m, last, last->s2));
    for (int64_t l = m->shape.depth - 1; l >= 0; l--) {
        dU = block_backward(m, q, l, dX, dh, dU);
        pl_grads_tell(&m->watch, q, m->params, m->blocks[l].norm1.weight, m->blocks[l].mlp.fc2.bias);
    }
    pl_patch_embed_backward(q, &m->embed, dX, m->P, m->B);
    pl_grads_tell(&m->watch, q, m->params, m->embed.cls, m->embed.proj.bias);
    pl_scratch_end(q, mark);
}

/* ---- cost --------------------------------------------------------------------------------------- */

polar_status pl_deit_cost(polar_cost *step, pl_model_bytes *memory, polar_device *dev,
                          const pl_deit_shape *shape, int training)
{
    pl_deit *m;
    pl_queue *q = NULL;
    PL_TRY(pl_deit_make(&m, dev, shape, training));
    polar_status st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = polar_queue_dry_begin(q);
    if (st == POLAR_OK) {
        char *rest = pl_model_memory_pretend(&m->memory);
        point(m);
        if (training && shape->drop_path > 0) m->drop_images = shape->batch;
        pl_mat x = pl_mat_dense(rest, m->wide, shape->members * shape->batch, 3 * shape->image, shape->image);
        pl_mat logits = pl_deit_forward(m, q, x);
        pl_mat dlogits =
            pl_mat_dense(rest + pl_mat_bytes(&x), m->wide, logits.batch, logits.rows, logits.cols);
        if (training) pl_deit_backward(m, q, dlogits);
        st = polar_queue_dry_end(q, step);
    }
    if (memory) *memory = m->memory.bytes;
    polar_queue_destroy(q);
    pl_deit_free(m);
    return st;
}
