/* attention.c -- attention by the fused ops attention and attention_back, or composed of products and
 * softmax, head by head.
 *
 *     S = Q K^T              P = softmax(S / sqrt(d))          O = P V
 *     dV = P^T dO            dP = dO V^T                       dS = P (dP - rowsum(dP P)) / sqrt(d)
 *         dQ = dS K            dK = dS^T Q
 *
 * The backward makes S and P again: they are tokens^2 numbers per image and head. The scores stand in float
 * (in double for doubles), P and dS are rounded to the activations' format, for they are factors of
 * products. Images are worked on a few at a time, so that the scores stay below a slab's bytes; an image's
 * bits do not depend on how many.
 */
#include "compose/attention.h"

#include <math.h>

#include "compose/view.h"

#define SLAB_BYTES ((int64_t)1 << 30)

typedef struct {
    pl_mat Q, K, V; /* (images, tokens, d): one head's */
} head;

/* Head number h of an array of three parts. */
static head head_of(pl_mat QKV, int64_t h, int64_t heads)
{
    int64_t C = QKV.cols / 3, d = C / heads;
    return (head){pl_view_cols(QKV, h * d, d), pl_view_cols(QKV, C + h * d, d),
                  pl_view_cols(QKV, 2 * C + h * d, d)};
}

static polar_dtype score_format(polar_dtype dtype)
{
    return dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
}

/* P of one head; S is where the scores may stand, and may be P. */
static void probabilities(pl_queue *q, pl_mat P, pl_mat S, const head *x)
{
    PL_CALL(gemm, q, .C = S, .A = x->Q, .B = x->K, .tb = 1, .alpha = 1);
    PL_CALL(softmax, q, .Y = P, .X = S, .scale = 1 / sqrt((double)x->Q.cols));
}

static void forward_slab(pl_queue *q, pl_mat O, pl_mat QKV, int64_t heads)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t d = QKV.cols / 3 / heads;
    polar_dtype wide = score_format(QKV.dtype);
    pl_mat S = pl_scratch_mat(q, wide, QKV.batch, QKV.rows, QKV.rows);
    pl_mat P = QKV.dtype == wide ? S : pl_scratch_mat(q, QKV.dtype, QKV.batch, QKV.rows, QKV.rows);
    for (int64_t h = 0; h < heads; h++) {
        head x = head_of(QKV, h, heads);
        probabilities(q, P, S, &x);
        PL_CALL(gemm, q, .C = pl_view_cols(O, h * d, d), .A = P, .B = x.V, .alpha = 1);
    }
    pl_scratch_end(q, mark);
}

static void backward_slab(pl_queue *q, pl_mat dQKV, pl_mat QKV, pl_mat dO, int64_t heads)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t d = QKV.cols / 3 / heads;
    polar_dtype wide = score_format(QKV.dtype);
    pl_mat S = pl_scratch_mat(q, wide, QKV.batch, QKV.rows, QKV.rows),
           P = pl_scratch_mat(q, QKV.dtype, QKV.batch, QKV.rows, QKV.rows);
    pl_mat dS = QKV.dtype == wide ? S : pl_scratch_mat(q, QKV.dtype, QKV.batch, QKV.rows, QKV.rows);
    for (int64_t h = 0; h < heads; h++) {
        head x = head_of(QKV, h, heads), g = head_of(dQKV, h, heads);
        pl_mat dOh = pl_view_cols(dO, h * d, d);
        probabilities(q, P, S, &x);
        PL_CALL(gemm, q, .C = g.V, .A = P, .B = dOh, .ta = 1, .alpha = 1);
        /* dP, where the scores were */
        PL_CALL(gemm, q, .C = S, .A = dOh, .B = x.V, .tb = 1, .alpha = 1);
        PL_CALL(softmax_back, q, .dX = dS, .Y = P, .dY = S, .scale = 1 / sqrt((double)d));
        PL_CALL(gemm, q, .C = g.Q, .A = dS, .B = x.K, .alpha = 1);
        PL_CALL(gemm, q, .C = g.K, .A = dS, .B = x.Q, .ta = 1, .alpha = 1);
    }
    pl_scratch_end(q, mark);
}

/* Images worked on at a time: of one the backward takes three matrices of scores at most. */
static int64_t slab_images(pl_mat QKV, int64_t slab)
{
    int64_t one = QKV.rows * QKV.rows * 3 * (int64_t)polar_dtype_size(score_format(QKV.dtype)),
            n = (slab ? slab : SLAB_BYTES) / (one > 0 ? one : 1);
    return n < 1 ? 1 : n > QKV.batch ? QKV.batch : n;
}

void pl_attention_forward_composed(pl_queue *q, pl_mat O, pl_mat QKV, int64_t heads, int64_t slab)
{
    int64_t most = slab_images(QKV, slab);
    for (int64_t i = 0; i < QKV.batch; i += most) {
        int64_t n = i + most > QKV.batch ? QKV.batch - i : most;
        forward_slab(q, pl_mat_at(O, i, n), pl_mat_at(QKV, i, n), heads);
    }
}

void pl_attention_backward_composed(pl_queue *q, pl_mat dQKV, pl_mat QKV, pl_mat dO, int64_t heads,
                                    int64_t slab)
{
    int64_t most = slab_images(QKV, slab);
    for (int64_t i = 0; i < QKV.batch; i += most) {
        int64_t n = i + most > QKV.batch ? QKV.batch - i : most;
        backward_slab(q, pl_mat_at(dQKV, i, n), pl_mat_at(QKV, i, n), pl_mat_at(dO, i, n), heads);
    }
}

int pl_attention_fused(pl_queue *q, pl_mat QKV, int64_t heads)
{
    pl_mat O = pl_mat_dense(NULL, QKV.dtype, QKV.batch, QKV.rows, QKV.cols / 3);
    pl_mat lse = pl_mat_dense(NULL, score_format(QKV.dtype), QKV.batch, heads, QKV.rows);
    const pl_args_attention forward = {.O = O, .lse = lse, .QKV = QKV, .heads = heads};
    const pl_args_attention_back backward = {
        .dQKV = QKV, .QKV = QKV, .O = O, .lse = lse, .dO = O, .heads = heads};
    return pl_queue_serves(q, PL_OP_attention, &forward) &&
           pl_queue_serves(q, PL_OP_attention_back, &backward);
}

void pl_attention_forward(pl_queue *q, pl_mat O, pl_mat lse, pl_mat QKV, int64_t heads)
{
    if (pl_attention_fused(q, QKV, heads))
        PL_CALL(attention, q, .O = O, .lse = lse, .QKV = QKV, .heads = heads);
    else pl_attention_forward_composed(q, O, QKV, heads, 0);
}

void pl_attention_backward(pl_queue *q, pl_mat dQKV, pl_mat QKV, pl_mat O, pl_mat lse, pl_mat dO,
                           int64_t heads)
{
    if (pl_attention_fused(q, QKV, heads))
        PL_CALL(attention_back, q, .dQKV = dQKV, .QKV = QKV, .O = O, .lse = lse, .dO = dO, .heads = heads);
    else pl_attention_backward_composed(q, dQKV, QKV, dO, heads, 0);
}
