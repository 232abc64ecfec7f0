/* op_check_attention.c -- attention in one: what the ops demand of their operands, and their nominal FLOPs.
 */
#include "op_check.h"

static polar_status need_heads(const char *op, const pl_mat *QKV, const pl_mat *O, const pl_mat *lse,
                               int64_t heads)
{
    PL_NEED(heads > 0 && QKV->cols % (3 * heads) == 0, POLAR_E_SHAPE,
            "%s: %lld columns are no q, k and v of %lld heads", op, (long long)QKV->cols, (long long)heads);
    PL_TRY(need_shape(op, "O", O, QKV->batch, QKV->rows, QKV->cols / 3));
    if (!lse->data) return POLAR_OK;
    PL_TRY(need_shape(op, "lse", lse, QKV->batch, heads, QKV->rows));
    return need_wide(op, "lse", lse);
}

polar_status pl_check_attention(const pl_args_attention *a)
{
    PL_TRY(need_heads("attention", &a->QKV, &a->O, &a->lse, a->heads));
    NEED_DISJOINT("attention", 2, &a->O, &a->lse, &a->QKV);
    return POLAR_OK;
}

/* Two products of tokens x tokens x cols, and a softmax per head. */
double pl_flops_attention(const pl_args_attention *a)
{
    double pairs = (double)a->O.batch * (double)a->O.rows * (double)a->O.rows;
    return pairs * (4 * (double)a->O.cols + 6 * (double)a->heads);
}

polar_status pl_check_attention_back(const pl_args_attention_back *a)
{
    PL_TRY(need_heads("attention_back", &a->QKV, &a->O, &a->lse, a->heads));
    PL_TRY(need_same_shape("attention_back", "QKV", &a->dQKV, &a->QKV));
    PL_TRY(need_same_shape("attention_back", "dO", &a->O, &a->dO));
    NEED_DISJOINT("attention_back", 1, &a->dQKV, &a->QKV, &a->O, &a->lse, &a->dO);
    return POLAR_OK;
}

/* The first product again, four more, the softmax and its gradient. */
double pl_flops_attention_back(const pl_args_attention_back *a)
{
    double pairs = (double)a->O.batch * (double)a->O.rows * (double)a->O.rows;
    return pairs * (10 * (double)a->O.cols + 9 * (double)a->heads);
}
