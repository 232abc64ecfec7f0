/* op_check_vectors.c -- vectors, three rows per row of scalars: what the ops demand of their operands, and
 * their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_vec_dots(const pl_args_vec_dots *a)
{
    PL_TRY(need_shape("vec_dots", "V", &a->V, a->Q.batch, 3 * a->Q.rows, a->V.cols));
    PL_TRY(need_shape("vec_dots", "Q", &a->Q, a->V.batch, a->Q.rows, pairs_of(a->V.cols)));
    NEED_DISJOINT("vec_dots", 1, &a->Q, &a->V);
    return POLAR_OK;
}

double pl_flops_vec_dots(const pl_args_vec_dots *a)
{
    return 5 * elements(&a->Q);
}

polar_status pl_check_vec_dots_back(const pl_args_vec_dots_back *a)
{
    PL_TRY(need_same_shape("vec_dots_back", "V", &a->dV, &a->V));
    PL_TRY(need_shape("vec_dots_back", "V", &a->V, a->dQ.batch, 3 * a->dQ.rows, a->V.cols));
    PL_TRY(need_shape("vec_dots_back", "dQ", &a->dQ, a->V.batch, a->dQ.rows, pairs_of(a->V.cols)));
    NEED_DISJOINT("vec_dots_back", 1, &a->dV, &a->V, &a->dQ);
    return POLAR_OK;
}

double pl_flops_vec_dots_back(const pl_args_vec_dots_back *a)
{
    return 2 * (double)a->V.cols * elements(&a->V);
}

polar_status pl_check_vec_norm(const pl_args_vec_norm *a)
{
    PL_TRY(need_eps("vec_norm", a->eps, 0));
    PL_TRY(need_shape("vec_norm", "V", &a->V, a->R.batch, 3 * a->R.rows, a->R.cols));
    NEED_DISJOINT("vec_norm", 1, &a->R, &a->V);
    return POLAR_OK;
}

double pl_flops_vec_norm(const pl_args_vec_norm *a)
{
    return 7 * elements(&a->R);
}

polar_status pl_check_vec_norm_back(const pl_args_vec_norm_back *a)
{
    PL_TRY(need_eps("vec_norm_back", a->eps, 1));
    PL_TRY(need_same_shape("vec_norm_back", "V", &a->dV, &a->V));
    PL_TRY(need_shape("vec_norm_back", "V", &a->V, a->dR.batch, 3 * a->dR.rows, a->dR.cols));
    NEED_DISJOINT("vec_norm_back", 1, &a->dV, &a->V, &a->dR);
    return POLAR_OK;
}

double pl_flops_vec_norm_back(const pl_args_vec_norm_back *a)
{
    return (7 + 1 + 6) * elements(&a->dR);
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

double pl_flops_vec_gate(const pl_args_vec_gate *a)
{
    return (7 + 2 + 3 + (a->Z.data ? 6 : 3)) * elements(&a->V) / 3;
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

double pl_flops_vec_gate_back(const pl_args_vec_gate_back *a)
{
    return (7 + 2 + 4 + 5 + 2 + 1 + 2 + 9) * elements(&a->T);
}
