/* product.c -- see product.h. */
#include "compose/product.h"

static int fused(const pl_queue *q)
{
    return pl_queue_has(q, PL_OP_gemm_act);
}

void pl_product(pl_queue *q, pl_mat Y, pl_mat U, pl_mat X, pl_mat W, pl_mat b, int64_t act, int64_t tf32)
{
    if (b.data && Y.data == U.data && !tf32 && fused(q)) {
        PL_CALL(gemm_act, q, .Y = Y, .A = X, .B = W, .tb = 1, .b = b, .act = act);
        return;
    }
    PL_CALL(gemm, q, .C = U, .A = X, .B = W, .tb = 1, .tf32 = tf32, .alpha = 1);
    if (b.data || act != PL_ACT_NONE) PL_CALL(bias_act, q, .Y = Y, .X = U, .b = b, .act = act);
}

/* Z is read after the product: the op wants Y elsewhere. */
static void add_scaled(pl_queue *q, pl_mat Y, pl_mat X, pl_mat W, pl_mat b, pl_mat Z, pl_mat s)
{
    const pl_args_gemm_act fused = {.Y = Y, .A = X, .B = W, .D = Z, .b = b, .s = s, .tb = 1};
    if (Y.data != Z.data && pl_queue_serves(q, PL_OP_gemm_act, &fused)) {
        pl_call_gemm_act(q, &fused);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat U = pl_scratch_mat(q, X.dtype, Y.batch, Y.rows, Y.cols);
    pl_product(q, U, U, X, W, b, PL_ACT_NONE, 0);
    PL_CALL(scale_rows, q, .Y = Y, .X = U, .s = s, .Z = Z);
    pl_scratch_end(q, mark);
}

void pl_product_add(pl_queue *q, pl_mat Y, pl_mat X, pl_mat W, pl_mat b, pl_mat Z, pl_mat s)
{
    if (s.data) {
        add_scaled(q, Y, X, W, b, Z, s);
        return;
    }
    if (fused(q)) {
        PL_CALL(gemm_act, q, .Y = Y, .A = X, .B = W, .tb = 1, .D = Z, .b = b, .act = PL_ACT_NONE);
        return;
    }
    /* the product is added as it leaves its sum */
    PL_CALL(gemm, q, .C = Y, .A = X, .B = W, .tb = 1, .alpha = 1, .D = Z, .beta = 1);
    PL_CALL(bias_act, q, .Y = Y, .X = Y, .b = b, .act = PL_ACT_NONE);
}

void pl_product_activate(pl_queue *q, pl_mat Y, const pl_activation *a, pl_mat X, pl_mat W)
{
    if (fused(q))
        PL_CALL(gemm_act, q, .Y = Y, .S = a->kept, .A = X, .B = W, .tb = 1, .b = a->b, .act = a->act);
    else pl_product(q, Y, a->kept, X, W, a->b, a->act, 0);
}

void pl_product_activate_back(pl_queue *q, pl_mat dX, const pl_activation *a, pl_mat dY, pl_mat W)
{
    if (fused(q)) {
        PL_CALL(gemm_act, q, .Y = dX, .A = dY, .B = W, .F = a->kept, .act = PL_ACT_NONE);
        return;
    }
    PL_CALL(gemm, q, .C = dX, .A = dY, .B = W, .alpha = 1);
    /* in place: these are the largest arrays of a block */
    PL_CALL(bias_act_back, q, .dX = dX, .X = a->kept, .b = a->b, .dY = dX, .act = a->act);
}
