/* op_check_message.c -- messages in one: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

/* The shapes of the forward's inputs, which the backward shares: S, V, D of every cloud, the weights of every
 * member. */
static polar_status need_message(const char *op, const pl_mat *S, const pl_mat *V, const pl_mat *D,
                                 const pl_mat *w0, const pl_mat *b0, const pl_mat *W2, const pl_mat *b2,
                                 int64_t points)
{
    int64_t clouds = S->batch, members = w0->batch, h = S->cols;
    PL_NEED(members > 0 && clouds % members == 0, POLAR_E_SHAPE, "%s: %lld clouds for %lld members", op,
            (long long)clouds, (long long)members);
    PL_TRY(need_shape(op, "S", S, clouds, points, h));
    PL_TRY(need_shape(op, "V", V, clouds, 3 * points, h));
    PL_TRY(need_shape(op, "D", D, clouds, pairs_of(points), 1));
    PL_TRY(need_shape(op, "w0", w0, members, h, 1));
    PL_TRY(need_shape(op, "b0", b0, members, 1, h));
    PL_TRY(need_shape(op, "W2", W2, members, 2 * h, h));
    return need_shape(op, "b2", b2, members, 1, 2 * h);
}

polar_status pl_check_pair_message(const pl_args_pair_message *a)
{
    PL_TRY(need_message("pair_message", &a->S, &a->V, &a->D, &a->w0, &a->b0, &a->W2, &a->b2, a->points));
    PL_TRY(need_same_shape("pair_message", "S", &a->Ys, &a->S));
    PL_TRY(need_same_shape("pair_message", "V", &a->Yv, &a->V));
    NEED_DISJOINT("pair_message", 2, &a->Ys, &a->Yv, &a->S, &a->V, &a->D, &a->w0, &a->b0, &a->W2, &a->b2);
    return POLAR_OK;
}

/* Per pair: the radial layer (2 h and silu), the second (4 h^2), then every weight used by both its points (2
 * and 6 h each). */
double pl_flops_pair_message(const pl_args_pair_message *a)
{
    double h = (double)a->S.cols, pairs = elements(&a->D);
    return pairs * (2 * h + 4 * h + 4 * h * h + 2 * 8 * h);
}

polar_status pl_check_pair_message_back(const pl_args_pair_message_back *a)
{
    PL_TRY(need_message("pair_message_back", &a->S, &a->V, &a->D, &a->w0, &a->b0, &a->W2, &a->b2, a->points));
    PL_TRY(need_same_shape("pair_message_back", "S", &a->dS, &a->S));
    PL_TRY(need_same_shape("pair_message_back", "V", &a->dV, &a->V));
    PL_TRY(need_same_shape("pair_message_back", "dYs", &a->dS, &a->dYs));
    PL_TRY(need_same_shape("pair_message_back", "dYv", &a->dV, &a->dYv));
    PL_TRY(need_same_shape("pair_message_back", "w0", &a->dw0, &a->w0));
    PL_TRY(need_same_shape("pair_message_back", "b0", &a->db0, &a->b0));
    PL_TRY(need_same_shape("pair_message_back", "W2", &a->dW2, &a->W2));
    PL_TRY(need_same_shape("pair_message_back", "b2", &a->db2, &a->b2));
    NEED_DISJOINT("pair_message_back", 6, &a->dS, &a->dV, &a->dw0, &a->db0, &a->dW2, &a->db2, &a->dYs,
                  &a->dYv, &a->S, &a->V, &a->D, &a->w0, &a->b0, &a->W2, &a->b2);
    return POLAR_OK;
}

/* The forward's layers again, the gradients of the weights and of both inputs, and the two products of the
 * second layer's backward. */
double pl_flops_pair_message_back(const pl_args_pair_message_back *a)
{
    double h = (double)a->S.cols, pairs = elements(&a->D);
    return pairs * (6 * h + 4 * h * h + 2 * 2 * 8 * h + 2 * 4 * h * h + 12 * h);
}

/* One number for each distance, and the MLP of every member. */
static polar_status need_weight(const char *op, const char *name, const pl_mat *U, const pl_mat *D,
                                const pl_mat *w0, const pl_mat *b0, const pl_mat *W2)
{
    int64_t members = w0->batch, h = w0->rows;
    PL_NEED(members > 0 && D->batch % members == 0, POLAR_E_SHAPE, "%s: %lld clouds for %lld members", op,
            (long long)D->batch, (long long)members);
    PL_TRY(need_shape(op, "D", D, D->batch, D->rows, 1));
    PL_TRY(need_shape(op, name, U, D->batch, D->rows, 1));
    PL_TRY(need_shape(op, "w0", w0, members, h, 1));
    PL_TRY(need_shape(op, "b0", b0, members, 1, h));
    return need_shape(op, "W2", W2, members, 1, h);
}

polar_status pl_check_pair_weight(const pl_args_pair_weight *a)
{
    PL_TRY(need_weight("pair_weight", "U", &a->U, &a->D, &a->w0, &a->b0, &a->W2));
    NEED_DISJOINT("pair_weight", 1, &a->U, &a->D, &a->w0, &a->b0, &a->W2);
    return POLAR_OK;
}

/* As the definition: w0 d + b0, silu, the product with w2. */
double pl_flops_pair_weight(const pl_args_pair_weight *a)
{
    return elements(&a->D) * (double)a->w0.rows * (2 + 4 + 2);
}

polar_status pl_check_pair_weight_back(const pl_args_pair_weight_back *a)
{
    PL_TRY(need_weight("pair_weight_back", "dU", &a->dU, &a->D, &a->w0, &a->b0, &a->W2));
    PL_TRY(need_same_shape("pair_weight_back", "w0", &a->dw0, &a->w0));
    PL_TRY(need_same_shape("pair_weight_back", "b0", &a->db0, &a->b0));
    PL_TRY(need_same_shape("pair_weight_back", "W2", &a->dW2, &a->W2));
    PL_TRY(need_shape("pair_weight_back", "db2", &a->db2, a->w0.batch, 1, 1));
    NEED_DISJOINT("pair_weight_back", 4, &a->dw0, &a->db0, &a->dW2, &a->db2, &a->dU, &a->D, &a->w0, &a->b0,
                  &a->W2);
    return POLAR_OK;
}

/* z and silu' again, the gradients of w2, of the hidden values, of w0 and b0. */
double pl_flops_pair_weight_back(const pl_args_pair_weight_back *a)
{
    return elements(&a->D) * (double)a->w0.rows * (2 + 4 + 8 + 2 + 2 + 3);
}
