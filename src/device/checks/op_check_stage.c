/* op_check_stage.c -- stages of rules beside momentum, map and step: what the ops demand of their operands,
 * and their nominal FLOPs. */
#include "op_check.h"

/* One number in f64 a line, for each matrix. */
static polar_status need_lines(const char *op, const char *name, const pl_mat *m, int64_t batch,
                               int64_t lines)
{
    PL_NEED(m->dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE, "%s wants %s in f64", op, name);
    return need_shape(op, name, m, batch, 1, lines);
}

polar_status pl_check_line_factors(const pl_args_line_factors *a)
{
    const int64_t lines = a->trans ? a->X.cols : a->X.rows;
    PL_NEED(a->kind >= 0 && a->kind < PL_LINE_COUNT, POLAR_E_ARG, "line_factors: no kind has the number %lld",
            (long long)a->kind);
    PL_TRY(need_lines("line_factors", "F", &a->F, a->X.batch, lines));
    PL_NEED(a->kind == PL_LINE_EQUILIBRATE ? !a->V.data : a->V.data || lines * a->X.batch == 0, POLAR_E_ARG,
            "line_factors: a moment has V, factors without a memory have none");
    if (a->V.data) PL_TRY(need_shape("line_factors", "V", &a->V, a->X.batch, 1, lines));
    if (a->V.data) PL_TRY(need_wide("line_factors", "V", &a->V));
    NEED_DISJOINT("line_factors", 2, &a->F, &a->V, &a->X, &a->live);
    return need_live("line_factors", &a->X, &a->live);
}

double pl_flops_line_factors(const pl_args_line_factors *a)
{
    return 2 * elements(&a->X) + 9 * elements(&a->F);
}

polar_status pl_check_pick_lines(const pl_args_pick_lines *a)
{
    const int64_t lines = a->trans ? a->M.cols : a->M.rows;
    PL_TRY(need_same_shape("pick_lines", "D", &a->M, &a->D));
    PL_TRY(need_same_shape("pick_lines", "G", &a->M, &a->G));
    PL_TRY(need_lines("pick_lines", "F", &a->F, a->M.batch, lines));
    PL_NEED(a->count >= 0, POLAR_E_ARG, "pick_lines: %lld lines", (long long)a->count);
    NEED_DISJOINT("pick_lines", 3, &a->D, &a->F, &a->M, &a->G, &a->live);
    return need_live("pick_lines", &a->M, &a->live);
}

double pl_flops_pick_lines(const pl_args_pick_lines *a)
{
    return 4 * elements(&a->M);
}

polar_status pl_check_move_lines(const pl_args_move_lines *a)
{
    const pl_mat *all = a->back ? &a->Y : &a->X;
    const int64_t rows = a->trans ? a->Y.rows : a->X.rows, cols = a->trans ? a->X.cols : a->Y.cols;
    PL_TRY(need_shape("move_lines", "X", &a->X, a->Y.batch, rows, cols));
    PL_TRY(need_lines("move_lines", "F", &a->F, a->Y.batch, a->trans ? all->cols : all->rows));
    NEED_DISJOINT("move_lines", 1, &a->Y, &a->X, &a->F);
    return POLAR_OK;
}

double pl_flops_move_lines(const pl_args_move_lines *a)
{
    (void)a;
    return 0;
}

polar_status pl_check_scale_lines(const pl_args_scale_lines *a)
{
    PL_TRY(need_same_shape("scale_lines", "X", &a->Y, &a->X));
    PL_TRY(need_apart("scale_lines", "X", &a->Y, &a->X));
    if (a->R.data) PL_TRY(need_lines("scale_lines", "R", &a->R, a->X.batch, a->X.rows));
    if (a->C.data) PL_TRY(need_lines("scale_lines", "C", &a->C, a->X.batch, a->X.cols));
    NEED_DISJOINT("scale_lines", 1, &a->Y, &a->R, &a->C);
    return POLAR_OK;
}

double pl_flops_scale_lines(const pl_args_scale_lines *a)
{
    return 2 * elements(&a->Y);
}

polar_status pl_check_entry_stage(const pl_args_entry_stage *a)
{
    PL_TRY(need_same_shape("entry_stage", "X", &a->Y, &a->X));
    PL_TRY(need_apart("entry_stage", "X", &a->Y, &a->X));
    if (a->V.data) PL_TRY(need_same_shape("entry_stage", "V", &a->Y, &a->V));
    PL_NEED(a->V.data || !a->G.data, POLAR_E_ARG, "entry_stage: signs have no G, whose moment V would be");
    if (a->G.data) PL_TRY(need_same_shape("entry_stage", "G", &a->Y, &a->G));
    NEED_DISJOINT("entry_stage", 1, &a->Y, &a->G);
    NEED_DISJOINT("entry_stage", 1, &a->V, &a->G);
    PL_NEED(a->after >= 0, POLAR_E_ARG, "entry_stage: after %lld steps", (long long)a->after);
    PL_NEED(!pl_mat_overlap(&a->V, &a->X) && !pl_mat_overlap(&a->V, &a->Y), POLAR_E_ARG,
            "entry_stage: the moment overlaps the direction");
    return need_live("entry_stage", &a->Y, &a->live);
}

double pl_flops_entry_stage(const pl_args_entry_stage *a)
{
    return (a->V.data ? 8 : 1) * elements(&a->Y);
}

polar_status pl_check_inner(const pl_args_inner *a)
{
    PL_TRY(need_values("inner", "N", &a->N, 4));
    PL_NEED(a->N.batch == a->X.batch, POLAR_E_SHAPE, "inner: %lld products for %lld matrices",
            (long long)a->N.batch, (long long)a->X.batch);
    PL_NEED(pl_mat_same_shape(&a->X, &a->Y), POLAR_E_SHAPE,
            "inner wants two matrices of one shape, got " SHAPE_FMT " and " SHAPE_FMT, SHAPE(a->X),
            SHAPE(a->Y));
    NEED_DISJOINT("inner", 1, &a->N, &a->X, &a->Y);
    return POLAR_OK;
}

double pl_flops_inner(const pl_args_inner *a)
{
    return 6 * elements(&a->X);
}

polar_status pl_check_norm_moment(const pl_args_norm_moment *a)
{
    PL_NEED(a->kind >= 0 && a->kind < PL_NORM_COUNT, POLAR_E_ARG, "norm_moment: no kind has the number %lld",
            (long long)a->kind);
    PL_NEED(a->clip >= 0, POLAR_E_ARG, "norm_moment: a clip of %g", a->clip);
    PL_TRY(need_values("norm_moment", "F", &a->F, 2));
    PL_TRY(need_values("norm_moment", "N", &a->N, 4));
    PL_NEED(a->N.batch == a->F.batch, POLAR_E_SHAPE, "norm_moment: %lld products for %lld matrices",
            (long long)a->N.batch, (long long)a->F.batch);
    PL_TRY(need_shape("norm_moment", "V", &a->V, a->F.batch, 1, 1));
    PL_TRY(need_wide("norm_moment", "V", &a->V));
    NEED_DISJOINT("norm_moment", 2, &a->F, &a->V, &a->N, &a->live);
    return need_live("norm_moment", &a->F, &a->live);
}

double pl_flops_norm_moment(const pl_args_norm_moment *a)
{
    return 5 * elements(&a->F);
}

polar_status pl_check_apply_step(const pl_args_apply_step *a)
{
    const int ball = a->apply >= POLAR_APPLY_HYPERBALL && a->apply <= POLAR_APPLY_RADIAL_BRAKE;
    PL_NEED(ball || a->apply == POLAR_APPLY_CAUTIOUS, POLAR_E_ARG,
            "apply_step: no way of it has the number %lld", (long long)a->apply);
    PL_TRY(need_same_shape("apply_step", "D", &a->W, &a->D));
    PL_NEED(!pl_mat_overlap(&a->W, &a->D), POLAR_E_ARG, "apply_step: the weights overlap the direction");
    PL_NEED(ball ? a->N.data || a->W.batch == 0 : !a->N.data, POLAR_E_ARG,
            "apply_step: a step that looks at norms has N, a cautious step none");
    if (ball) PL_TRY(need_values("apply_step", "N", &a->N, 4));
    PL_NEED(!ball || a->N.batch == a->W.batch, POLAR_E_SHAPE, "apply_step: %lld products for %lld matrices",
            (long long)a->N.batch, (long long)a->W.batch);
    return need_live("apply_step", &a->W, &a->live);
}

double pl_flops_apply_step(const pl_args_apply_step *a)
{
    return 4 * elements(&a->W);
}
