/* op_check_nn.c -- what the ops of the layers demand of their operands, and their nominal FLOPs (e^x, a root
 * and a quotient count as one each). */
#include "op_check.h"

static polar_status need_act(const char *op, int64_t act)
{
    PL_NEED(act >= 0 && act < PL_ACT_COUNT, POLAR_E_ARG, "%s: no activation has the number %lld", op,
            (long long)act);
    return POLAR_OK;
}

/* ---- elementwise, and sums over rows ---- */

polar_status pl_check_bias_act(const pl_args_bias_act *a)
{
    PL_TRY(need_act("bias_act", a->act));
    PL_TRY(need_same_shape("bias_act", "X", &a->Y, &a->X));
    PL_TRY(need_apart("bias_act", "X", &a->Y, &a->X));
    if (!a->b.data) return POLAR_OK;
    PL_TRY(need_row("bias_act", "b", &a->b, a->Y.batch, a->Y.cols));
    NEED_DISJOINT("bias_act", 1, &a->Y, &a->b);
    return POLAR_OK;
}

polar_status pl_check_gemm_act(const pl_args_gemm_act *a)
{
    const pl_args_gemm product = {.C = a->Y, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb};
    PL_TRY(need_act("gemm_act", a->act));
    PL_TRY(pl_check_gemm(&product));
    NEED_DISJOINT("gemm_act", 1, &a->Y, &a->S, &a->b, &a->F);
    NEED_DISJOINT("gemm_act", 1, &a->S, &a->A, &a->B, &a->D, &a->b);
    if (a->S.data) PL_TRY(need_same_shape("gemm_act", "S", &a->Y, &a->S));
    if (a->b.data) PL_TRY(need_row("gemm_act", "b", &a->b, a->Y.batch, a->Y.cols));
    if (!a->F.data) return POLAR_OK;
    PL_NEED(!a->S.data && !a->b.data && a->act == PL_ACT_NONE, POLAR_E_ARG,
            "gemm_act: with a factor F there is neither bias nor activation");
    return need_same_shape("gemm_act", "F", &a->Y, &a->F);
}

polar_status pl_check_bias_act_back(const pl_args_bias_act_back *a)
{
    PL_TRY(need_act("bias_act_back", a->act));
    PL_TRY(need_same_shape("bias_act_back", "X", &a->dX, &a->X));
    PL_TRY(need_same_shape("bias_act_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_apart("bias_act_back", "X", &a->dX, &a->X));
    PL_TRY(need_apart("bias_act_back", "dY", &a->dX, &a->dY));
    if (!a->b.data) return POLAR_OK;
    PL_TRY(need_row("bias_act_back", "b", &a->b, a->dX.batch, a->dX.cols));
    NEED_DISJOINT("bias_act_back", 1, &a->dX, &a->b);
    return POLAR_OK;
}

polar_status pl_check_row_sum(const pl_args_row_sum *a)
{
    PL_NEED(a->Y.batch == a->X.batch && a->Y.cols == a->X.cols &&
                (a->Y.rows ? a->X.rows % a->Y.rows == 0 : a->X.rows == 0),
            POLAR_E_SHAPE, "row_sum: the rows of " SHAPE_FMT " do not fall into the groups of " SHAPE_FMT,
            SHAPE(a->X), SHAPE(a->Y));
    NEED_DISJOINT("row_sum", 1, &a->Y, &a->X);
    return POLAR_OK;
}

polar_status pl_check_row_spread(const pl_args_row_spread *a)
{
    PL_NEED(a->Y.batch == a->X.batch && a->Y.cols == a->X.cols &&
                (a->X.rows ? a->Y.rows % a->X.rows == 0 : a->Y.rows == 0),
            POLAR_E_SHAPE,
            "row_spread: " SHAPE_FMT " does not repeat the rows of " SHAPE_FMT " equally often", SHAPE(a->Y),
            SHAPE(a->X));
    NEED_DISJOINT("row_spread", 1, &a->Y, &a->X);
    return POLAR_OK;
}

polar_status pl_check_mse(const pl_args_mse *a)
{
    PL_TRY(need_values("mse", "L", &a->L, 1));
    PL_NEED(a->P.cols == 1 && a->P.rows > 0, POLAR_E_SHAPE,
            "mse wants a column of predictions, got " SHAPE_FMT, SHAPE(a->P));
    PL_NEED(a->L.batch == a->P.batch, POLAR_E_SHAPE, "mse: %lld losses for %lld columns",
            (long long)a->L.batch, (long long)a->P.batch);
    PL_TRY(need_shape("mse", "Y", &a->Y, a->P.batch, a->P.rows, 1));
    if (a->dP.data) PL_TRY(need_shape("mse", "dP", &a->dP, a->P.batch, a->P.rows, 1));
    NEED_DISJOINT("mse", 2, &a->L, &a->dP, &a->P, &a->Y);
    return POLAR_OK;
}

/* ---- pairs of points ---- */

static int64_t pairs_of(int64_t points)
{
    return points * (points + 1) / 2;
}

/* X is a value of h channels per component and point of a cloud, W one per channel and pair. */
static polar_status need_pairs(const char *op, const pl_mat *X, const pl_mat *W, const char *name,
                               int64_t points)
{
    PL_NEED(points > 0 && X->rows % points == 0, POLAR_E_SHAPE,
            "%s: %lld rows are no whole number for each of %lld points", op, (long long)X->rows,
            (long long)points);
    return need_shape(op, name, W, X->batch, pairs_of(points), X->cols);
}

polar_status pl_check_pair_dist(const pl_args_pair_dist *a)
{
    PL_TRY(need_eps("pair_dist", a->eps, 0));
    PL_NEED(a->X.cols == 3, POLAR_E_SHAPE, "pair_dist wants points in three dimensions, got " SHAPE_FMT,
            SHAPE(a->X));
    PL_TRY(need_shape("pair_dist", "D", &a->D, a->X.batch, pairs_of(a->X.rows), 1));
    NEED_DISJOINT("pair_dist", 1, &a->D, &a->X);
    return POLAR_OK;
}

polar_status pl_check_pair_sum(const pl_args_pair_sum *a)
{
    PL_TRY(need_same_shape("pair_sum", "X", &a->Y, &a->X));
    PL_TRY(need_pairs("pair_sum", &a->X, &a->W, "W", a->points));
    NEED_DISJOINT("pair_sum", 1, &a->Y, &a->X, &a->W);
    if (!a->Z.data) return POLAR_OK;
    PL_TRY(need_same_shape("pair_sum", "Z", &a->Y, &a->Z));
    return need_apart("pair_sum", "Z", &a->Y, &a->Z);
}

polar_status pl_check_pair_grad(const pl_args_pair_grad *a)
{
    PL_TRY(need_shape("pair_grad", "dY", &a->dY, a->X.batch, a->X.rows, a->X.cols));
    PL_TRY(need_pairs("pair_grad", &a->X, &a->dW, "dW", a->points));
    NEED_DISJOINT("pair_grad", 1, &a->dW, &a->dY, &a->X);
    return POLAR_OK;
}

/* ---- vectors: three rows per row of scalars ---- */

polar_status pl_check_vec_dots(const pl_args_vec_dots *a)
{
    PL_TRY(need_shape("vec_dots", "V", &a->V, a->Q.batch, 3 * a->Q.rows, a->V.cols));
    PL_TRY(need_shape("vec_dots", "Q", &a->Q, a->V.batch, a->Q.rows, pairs_of(a->V.cols)));
    NEED_DISJOINT("vec_dots", 1, &a->Q, &a->V);
    return POLAR_OK;
}

polar_status pl_check_vec_dots_back(const pl_args_vec_dots_back *a)
{
    PL_TRY(need_same_shape("vec_dots_back", "V", &a->dV, &a->V));
    PL_TRY(need_shape("vec_dots_back", "V", &a->V, a->dQ.batch, 3 * a->dQ.rows, a->V.cols));
    PL_TRY(need_shape("vec_dots_back", "dQ", &a->dQ, a->V.batch, a->dQ.rows, pairs_of(a->V.cols)));
    NEED_DISJOINT("vec_dots_back", 1, &a->dV, &a->V, &a->dQ);
    return POLAR_OK;
}

polar_status pl_check_vec_norm(const pl_args_vec_norm *a)
{
    PL_TRY(need_eps("vec_norm", a->eps, 0));
    PL_TRY(need_shape("vec_norm", "V", &a->V, a->R.batch, 3 * a->R.rows, a->R.cols));
    NEED_DISJOINT("vec_norm", 1, &a->R, &a->V);
    return POLAR_OK;
}

polar_status pl_check_vec_norm_back(const pl_args_vec_norm_back *a)
{
    PL_TRY(need_eps("vec_norm_back", a->eps, 1));
    PL_TRY(need_same_shape("vec_norm_back", "V", &a->dV, &a->V));
    PL_TRY(need_shape("vec_norm_back", "V", &a->V, a->dR.batch, 3 * a->dR.rows, a->dR.cols));
    NEED_DISJOINT("vec_norm_back", 1, &a->dV, &a->V, &a->dR);
    return POLAR_OK;
}

polar_status pl_check_vec_gate(const pl_args_vec_gate *a)
{
    PL_TRY(need_eps("vec_gate", a->eps, 0));
    PL_TRY(need_same_shape("vec_gate", "V", &a->Y, &a->V));
    PL_NEED(a->V.rows % 3 == 0, POLAR_E_SHAPE, "vec_gate wants three rows per vector, got " SHAPE_FMT,
            SHAPE(a->V));
    PL_TRY(need_row("vec_gate", "g", &a->g, a->V.batch, a->V.cols));
    PL_TRY(need_row("vec_gate", "b", &a->b, a->V.batch, a->V.cols));
    PL_TRY(need_apart("vec_gate", "V", &a->Y, &a->V));
    NEED_DISJOINT("vec_gate", 1, &a->Y, &a->g, &a->b);
    if (!a->Z.data) return POLAR_OK;
    PL_TRY(need_same_shape("vec_gate", "Z", &a->Y, &a->Z));
    return need_apart("vec_gate", "Z", &a->Y, &a->Z);
}

polar_status pl_check_vec_gate_back(const pl_args_vec_gate_back *a)
{
    PL_TRY(need_eps("vec_gate_back", a->eps, 1));
    PL_TRY(need_same_shape("vec_gate_back", "V", &a->dV, &a->V));
    PL_TRY(need_same_shape("vec_gate_back", "dY", &a->dV, &a->dY));
    PL_TRY(need_shape("vec_gate_back", "V", &a->V, a->T.batch, 3 * a->T.rows, a->T.cols));
    PL_TRY(need_same_shape("vec_gate_back", "TR", &a->T, &a->TR));
    PL_TRY(need_row("vec_gate_back", "g", &a->g, a->V.batch, a->V.cols));
    PL_TRY(need_row("vec_gate_back", "b", &a->b, a->V.batch, a->V.cols));
    PL_TRY(need_apart("vec_gate_back", "dY", &a->dV, &a->dY));
    NEED_DISJOINT("vec_gate_back", 3, &a->dV, &a->T, &a->TR, &a->V, &a->g, &a->b);
    NEED_DISJOINT("vec_gate_back", 2, &a->T, &a->TR, &a->dY);
    return POLAR_OK;
}

/* ---- messages in one ---- */

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

/* ---- FLOPs ---- */

double pl_flops_bias_act(const pl_args_bias_act *a)
{
    static const double act[PL_ACT_COUNT] = {
        [PL_ACT_NONE] = 0, [PL_ACT_SILU] = 4, [PL_ACT_SIGMOID] = 3, [PL_ACT_GELU] = 4};
    return a->act < 0 || a->act >= PL_ACT_COUNT ? 0 : (act[a->act] + (a->b.data ? 1 : 0)) * elements(&a->Y);
}

double pl_flops_gemm_act(const pl_args_gemm_act *a)
{
    const pl_args_gemm product = {.C = a->Y, .A = a->A, .B = a->B, .D = a->D, .alpha = 1, .beta = 1};
    const pl_args_bias_act rest = {.Y = a->Y, .b = a->b, .act = a->act};
    return pl_flops_gemm(&product) +
           (a->F.data ? elements(&a->Y) : (a->S.data ? 2 : 1) * pl_flops_bias_act(&rest));
}

double pl_flops_bias_act_back(const pl_args_bias_act_back *a)
{
    static const double slope[PL_ACT_COUNT] = {
        [PL_ACT_NONE] = 0, [PL_ACT_SILU] = 8, [PL_ACT_SIGMOID] = 6, [PL_ACT_GELU] = 8};
    return a->act < 0 || a->act >= PL_ACT_COUNT ? 0
                                                : (slope[a->act] + (a->b.data ? 1 : 0)) * elements(&a->dX);
}

double pl_flops_row_sum(const pl_args_row_sum *a)
{
    return elements(&a->X) + elements(&a->Y);
}

double pl_flops_row_spread(const pl_args_row_spread *a)
{
    return elements(&a->Y);
}

double pl_flops_mse(const pl_args_mse *a)
{
    return (a->dP.data ? 4 : 3) * elements(&a->P);
}

double pl_flops_pair_dist(const pl_args_pair_dist *a)
{
    return 10 * elements(&a->D);
}

double pl_flops_pair_sum(const pl_args_pair_sum *a)
{
    return (2 * (double)a->points + (a->Z.data ? 2 : 1)) * elements(&a->Y);
}

double pl_flops_pair_grad(const pl_args_pair_grad *a)
{
    /* as many products as the sum has, each with its own pair */
    return 2 * (double)a->points * elements(&a->X) + elements(&a->dW);
}

double pl_flops_vec_dots(const pl_args_vec_dots *a)
{
    return 5 * elements(&a->Q);
}

double pl_flops_vec_dots_back(const pl_args_vec_dots_back *a)
{
    return 2 * (double)a->V.cols * elements(&a->V);
}

double pl_flops_vec_norm(const pl_args_vec_norm *a)
{
    return 7 * elements(&a->R);
}

double pl_flops_vec_norm_back(const pl_args_vec_norm_back *a)
{
    return (7 + 1 + 6) * elements(&a->dR);
}

double pl_flops_vec_gate(const pl_args_vec_gate *a)
{
    return (7 + 2 + 3 + (a->Z.data ? 6 : 3)) * elements(&a->V) / 3;
}

double pl_flops_vec_gate_back(const pl_args_vec_gate_back *a)
{
    return (7 + 2 + 4 + 5 + 2 + 1 + 2 + 9) * elements(&a->T);
}

/* Per pair: the radial layer (2 h and silu), the second (4 h^2), then every weight used by both its points (2
 * and 6 h each). */
double pl_flops_pair_message(const pl_args_pair_message *a)
{
    double h = (double)a->S.cols, pairs = elements(&a->D);
    return pairs * (2 * h + 4 * h + 4 * h * h + 2 * 8 * h);
}

/* The forward's layers again, the gradients of the weights and of both inputs, and the two products of the
 * second layer's backward. */
double pl_flops_pair_message_back(const pl_args_pair_message_back *a)
{
    double h = (double)a->S.cols, pairs = elements(&a->D);
    return pairs * (6 * h + 4 * h * h + 2 * 2 * 8 * h + 2 * 4 * h * h + 12 * h);
}
