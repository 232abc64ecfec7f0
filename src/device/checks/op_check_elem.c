/* op_check_elem.c -- copies, sums, the steps of optimisers: what the ops demand of their operands, and their
 * nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_copy(const pl_args_copy *a)
{
    int64_t rows = a->trans ? a->X.cols : a->X.rows, cols = a->trans ? a->X.rows : a->X.cols;
    PL_NEED(a->Y.batch == a->X.batch && a->Y.rows == rows && a->Y.cols == cols, POLAR_E_SHAPE,
            "copy: " SHAPE_FMT " into " SHAPE_FMT "%s", SHAPE(a->X), SHAPE(a->Y),
            a->trans ? " transposed" : "");
    if (a->trans)
        PL_NEED(!pl_mat_overlap(&a->Y, &a->X), POLAR_E_ARG, "copy: a transpose cannot be done in place");
    return need_apart("copy", "X", &a->Y, &a->X);
}

double pl_flops_copy(const pl_args_copy *a)
{
    (void)a;
    return 0;
}

polar_status pl_check_axpby(const pl_args_axpby *a)
{
    PL_TRY(need_same_shape("axpby", "X", &a->Y, &a->X));
    PL_TRY(need_apart("axpby", "X", &a->Y, &a->X));
    if (!a->Z.data) return POLAR_OK;
    PL_TRY(need_same_shape("axpby", "Z", &a->Y, &a->Z));
    return need_apart("axpby", "Z", &a->Y, &a->Z);
}

double pl_flops_axpby(const pl_args_axpby *a)
{
    return (a->Z.data ? 3 : 1) * elements(&a->Y);
}

polar_status pl_check_normalise(const pl_args_normalise *a)
{
    PL_TRY(need_same_shape("normalise", "X", &a->Y, &a->X));
    PL_TRY(need_apart("normalise", "X", &a->Y, &a->X));
    PL_TRY(need_values("normalise", "N", &a->N, 2));
    PL_NEED(a->N.batch == a->X.batch || a->N.bs == 0 || a->N.batch == 1, POLAR_E_SHAPE,
            "normalise: %lld norms for %lld matrices", (long long)a->N.batch, (long long)a->X.batch);
    return need_eps("normalise", a->eps, 0);
}

double pl_flops_normalise(const pl_args_normalise *a)
{
    return 2 * elements(&a->X);
}

polar_status pl_check_direction(const pl_args_direction *a)
{
    PL_TRY(need_rule("direction", a->momentum, a->precondition, &a->V));
    PL_TRY(need_same_shape("direction", "M", &a->D, &a->M));
    if (a->precondition) PL_TRY(need_same_shape("direction", "V", &a->D, &a->V));
    PL_TRY(need_same_shape("direction", "G", &a->D, &a->G));
    PL_NEED(!pl_mat_overlap(&a->M, &a->G) && !pl_mat_overlap(&a->V, &a->G) && !pl_mat_overlap(&a->M, &a->V),
            POLAR_E_ARG, "direction: moments and gradient overlap");
    PL_NEED(!pl_mat_overlap(&a->D, &a->M) && !pl_mat_overlap(&a->D, &a->V), POLAR_E_ARG,
            "direction: the direction overlaps a moment");
    PL_TRY(need_apart("direction", "G", &a->D, &a->G));
    return need_live("direction", &a->D, &a->live);
}

double pl_flops_direction(const pl_args_direction *a)
{
    static const double flops[PL_MOMENTUM_COUNT] = {[POLAR_MOMENTUM_HEAVY_BALL] = 2,
                                                    [POLAR_MOMENTUM_NESTEROV] = 4,
                                                    [POLAR_MOMENTUM_EMA] = 4,
                                                    [POLAR_MOMENTUM_AVERAGE] = 3,
                                                    [POLAR_MOMENTUM_AVERAGE_NESTEROV] = 5};
    if (a->momentum < 0 || a->momentum >= PL_MOMENTUM_COUNT) return 0; /* refused by the op's check */
    return (flops[a->momentum] + (a->precondition ? 8 : 0)) * elements(&a->D);
}

polar_status pl_check_decay_step(const pl_args_decay_step *a)
{
    PL_TRY(need_same_shape("decay_step", "D", &a->W, &a->D));
    PL_NEED(!pl_mat_overlap(&a->W, &a->D), POLAR_E_ARG, "decay_step: the weights overlap the direction");
    return need_live("decay_step", &a->W, &a->live);
}

double pl_flops_decay_step(const pl_args_decay_step *a)
{
    return 3 * elements(&a->W);
}

polar_status pl_check_adamw_step(const pl_args_adamw_step *a)
{
    PL_TRY(need_same_shape("adamw_step", "M", &a->W, &a->M));
    PL_TRY(need_same_shape("adamw_step", "V", &a->W, &a->V));
    PL_TRY(need_same_shape("adamw_step", "G", &a->W, &a->G));
    const pl_mat *m[] = {&a->W, &a->M, &a->V, &a->G};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            PL_NEED(!pl_mat_overlap(m[i], m[k]), POLAR_E_ARG,
                    "adamw_step: weights, moments and gradient overlap");
    return need_live("adamw_step", &a->W, &a->live);
}

double pl_flops_adamw_step(const pl_args_adamw_step *a)
{
    return (12 + 3) * elements(&a->W);
}

/* Flags and the like: one f32 a matrix. */
static polar_status need_flags(const char *op, const char *name, const pl_mat *m, int64_t batch)
{
    PL_NEED(m->dtype == POLAR_DTYPE_F32, POLAR_E_DTYPE, "%s wants %s in f32, got %s", op, name,
            polar_dtype_name(m->dtype));
    return need_shape(op, name, m, batch, 1, 1);
}

polar_status pl_check_nonfinite(const pl_args_nonfinite *a)
{
    PL_TRY(need_flags("nonfinite", "F", &a->F, a->F.batch == 1 ? 1 : a->G.batch));
    PL_NEED(!pl_mat_overlap(&a->F, &a->G), POLAR_E_ARG, "nonfinite: the flags overlap the gradient");
    return POLAR_OK;
}

double pl_flops_nonfinite(const pl_args_nonfinite *a)
{
    (void)a;
    return 0;
}

polar_status pl_check_advance(const pl_args_advance *a)
{
    PL_TRY(need_values("advance", "L", &a->L, PL_LIVE_COLS));
    PL_TRY(need_values("advance", "T", &a->T, 2));
    PL_NEED(a->T.batch == a->L.batch, POLAR_E_SHAPE, "advance: %lld counts for %lld live rows",
            (long long)a->T.batch, (long long)a->L.batch);
    if (a->F.data) {
        PL_NEED(a->F.batch >= 1 && a->L.batch % a->F.batch == 0, POLAR_E_SHAPE,
                "advance: %lld live rows are not those of %lld members", (long long)a->L.batch,
                (long long)a->F.batch);
        PL_TRY(need_flags("advance", "F", &a->F, a->F.batch));
    }
    if (a->found.data) PL_TRY(need_flags("advance", "found", &a->found, 1));
    if (a->scale.data) PL_TRY(need_flags("advance", "scale", &a->scale, 1));
    NEED_DISJOINT("advance", 3, &a->L, &a->T, &a->F, &a->found, &a->scale);
    return POLAR_OK;
}

double pl_flops_advance(const pl_args_advance *a)
{
    (void)a;
    return 0;
}
