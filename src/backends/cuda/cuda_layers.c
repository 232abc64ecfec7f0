/* cuda_layers.c -- the fused ops of a transformer's layers: which kernel, and what is done where none of ours
 * fits.
 *
 * attention, its gradient, weight_grad: Hopper's kernels or nothing (pl_cuda_layer_serves; compose/ makes
 * them of products); pair_message, pair_weight and their gradients in f32 or not at all. gemm_act takes
 * everything but some calls with factors of rows: one pass where cuda_gemm_act.h has it, else gemm and a pass
 * over its result.
 */
#include "cuda_attention.h"
#include "cuda_gemm_act.h"
#include "cuda_kernels.h"
#include "cuda_state.h"
#include "cuda_weight_grad.h"

/* A launch of ours that failed, as CUDA says it. */
static void check(pl_queue *q, pl_op_id id, const void *args, cudaError_t e)
{
    char line[400];
    if (e == cudaSuccess) pl_cuda_check_op(q, id, args);
    else
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: %s: %s", q->dev->name, pl_op_print(line, sizeof line, id, args),
                      cudaGetErrorString(e));
}

static int on_hopper(const pl_queue *q)
{
    return pl_cuda_hopper(q->dev)->multiprocessors > 0;
}

/* gemm_act in one pass. */
static int whole(const pl_queue *q, const pl_args_gemm_act *a)
{
    return on_hopper(q) && pl_hopper_rows_suits(a) && pl_hopper_rows_whole(a);
}

int pl_cuda_layer_serves(pl_queue *q, pl_op_id id, const void *args)
{
    switch (id) {
    case PL_OP_gemm_act: return !((const pl_args_gemm_act *)args)->s.data || whole(q, args);
    case PL_OP_attention: return on_hopper(q) && pl_hopper_attention_suits(args);
    case PL_OP_attention_back: return on_hopper(q) && pl_hopper_attention_back_suits(args);
    case PL_OP_weight_grad: return on_hopper(q) && pl_hopper_weight_grad_suits(args);
    case PL_OP_pair_message:
        return pl_cuda_message_suits(pl_op_operands(args), 9, ((const pl_args_pair_message *)args)->points);
    case PL_OP_pair_message_back:
        return pl_cuda_message_suits(pl_op_operands(args), 15,
                                     ((const pl_args_pair_message_back *)args)->points);
    case PL_OP_pair_weight: {
        const pl_args_pair_weight *a = args;
        return pl_cuda_weight_suits(pl_op_operands(args), 5, &a->D, &a->w0);
    }
    case PL_OP_pair_weight_back: {
        const pl_args_pair_weight_back *a = args;
        return pl_cuda_weight_suits(pl_op_operands(args), 9, &a->D, &a->w0);
    }
    default: return 1;
    }
}

/* 0 after the sentence of a call that is not served. */
static int served(pl_queue *q, pl_op_id id, const void *args)
{
    char line[400];
    if (pl_cuda_layer_serves(q, id, args)) return 1;
    PL_QUEUE_FAIL(q, POLAR_E_UNSUPPORTED, "%s: %s: no kernel for this shape (ask pl_queue_serves)",
                  q->dev->name, pl_op_print(line, sizeof line, id, args));
    return 0;
}

void pl_cuda_attention(pl_queue *q, const pl_args_attention *a)
{
    if (served(q, PL_OP_attention, a))
        check(q, PL_OP_attention, a, pl_hopper_attention(pl_cuda_hopper(q->dev), pl_cuda_q(q)->stream, a));
}

void pl_cuda_attention_back(pl_queue *q, const pl_args_attention_back *a)
{
    if (served(q, PL_OP_attention_back, a))
        check(q, PL_OP_attention_back, a,
              pl_hopper_attention_back(pl_cuda_hopper(q->dev), pl_cuda_q(q)->stream, a));
}

void pl_cuda_weight_grad(pl_queue *q, const pl_args_weight_grad *a)
{
    if (!served(q, PL_OP_weight_grad, a)) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    const size_t bytes = pl_hopper_weight_grad_scratch(a);
    void *scratch = bytes ? pl_scratch_take(q, bytes) : NULL;
    if (scratch || !bytes)
        check(q, PL_OP_weight_grad, a,
              pl_hopper_weight_grad(pl_cuda_hopper(q->dev), pl_cuda_q(q)->stream, a, scratch));
    pl_scratch_end(q, mark);
}

#define OVER_PAIRS(op)                                                      \
    void pl_cuda_##op(pl_queue *q, const pl_args_##op *a)                   \
    {                                                                       \
        if (!served(q, PL_OP_##op, a)) return;                              \
        pl_scratch_mark mark = pl_scratch_begin(q);                         \
        void *scratch = pl_scratch_take(q, pl_cuda_##op##_scratch(a));      \
        if (scratch) pl_cuda_launch_##op(pl_cuda_q(q)->stream, a, scratch); \
        pl_scratch_end(q, mark);                                            \
        pl_cuda_check_op(q, PL_OP_##op, a);                                 \
    }
OVER_PAIRS(pair_message)
OVER_PAIRS(pair_message_back)
OVER_PAIRS(pair_weight)
OVER_PAIRS(pair_weight_back)

int pl_cuda_gemm_rows(pl_queue *q, const pl_args_gemm *a)
{
    const pl_args_gemm_act rows = {.Y = a->C, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb};
    if (a->ta || a->alpha != 1 || (a->D.data && a->beta != 1) || !on_hopper(q) ||
        !pl_hopper_rows_suits(&rows))
        return 0;
    check(q, PL_OP_gemm, a, pl_hopper_rows(pl_cuda_hopper(q->dev), pl_cuda_q(q)->stream, &rows));
    return 1;
}

static pl_args_gemm product_of(const pl_args_gemm_act *a)
{
    return (pl_args_gemm){
        .C = a->Y, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb, .alpha = 1, .beta = a->D.data ? 1 : 0};
}

void pl_cuda_gemm_act(pl_queue *q, const pl_args_gemm_act *a)
{
    if (!served(q, PL_OP_gemm_act, a)) return;
    if (whole(q, a)) {
        check(q, PL_OP_gemm_act, a, pl_hopper_rows(pl_cuda_hopper(q->dev), pl_cuda_q(q)->stream, a));
        return;
    }
    const pl_args_gemm product = product_of(a);
    pl_cuda_gemm(q, &product);
    pl_cuda_parts_flush(q); /* what follows reads it */
    if (q->error != POLAR_OK || (!a->b.data && !a->F.data && !a->S.data && a->act == PL_ACT_NONE)) return;
    pl_cuda_launch_finish(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_gemm_act, a);
}

size_t pl_cuda_layer_scratch(pl_op_id id, const void *args)
{
    if (id == PL_OP_weight_grad) return pl_hopper_weight_grad_scratch(args);
    if (id == PL_OP_pair_message) return pl_cuda_pair_message_scratch(args);
    if (id == PL_OP_pair_message_back) return pl_cuda_pair_message_back_scratch(args);
    if (id == PL_OP_pair_weight) return pl_cuda_pair_weight_scratch(args);
    if (id == PL_OP_pair_weight_back) return pl_cuda_pair_weight_back_scratch(args);
    if (id == PL_OP_gemm) return pl_cuda_gemm_scratch(args);
    if (id != PL_OP_gemm_act) return 0;
    const pl_args_gemm product = product_of(args);
    return pl_cuda_gemm_scratch(&product);
}
