/* op_check.c -- what each op of ops.def demands of its operands, and its nominal FLOPs. */
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

polar_status pl_check_axpby(const pl_args_axpby *a)
{
    PL_TRY(need_same_shape("axpby", "X", &a->Y, &a->X));
    PL_TRY(need_apart("axpby", "X", &a->Y, &a->X));
    if (!a->Z.data) return POLAR_OK;
    PL_TRY(need_same_shape("axpby", "Z", &a->Y, &a->Z));
    return need_apart("axpby", "Z", &a->Y, &a->Z);
}

polar_status pl_check_gemm(const pl_args_gemm *a)
{
    int64_t ar = a->ta ? a->A.cols : a->A.rows, ak = a->ta ? a->A.rows : a->A.cols;
    int64_t bk = a->tb ? a->B.cols : a->B.rows, bc = a->tb ? a->B.rows : a->B.cols;
    PL_NEED(ar == a->C.rows && bc == a->C.cols && ak == bk, POLAR_E_SHAPE,
            "gemm: (" SHAPE_FMT ")%s times (" SHAPE_FMT ")%s is no " SHAPE_FMT, SHAPE(a->A),
            a->ta ? "^T" : "", SHAPE(a->B), a->tb ? "^T" : "", SHAPE(a->C));
    PL_NEED(!a->sym || a->C.rows == a->C.cols, POLAR_E_SHAPE,
            "gemm: a symmetric result is square, got " SHAPE_FMT, SHAPE(a->C));
    PL_NEED(a->A.batch == a->C.batch && a->B.batch == a->C.batch, POLAR_E_SHAPE,
            "gemm: batches of %lld and %lld for %lld results", (long long)a->A.batch, (long long)a->B.batch,
            (long long)a->C.batch);
    PL_NEED(a->A.dtype == a->B.dtype, POLAR_E_DTYPE, "gemm wants both factors in one format, got %s and %s",
            polar_dtype_name(a->A.dtype), polar_dtype_name(a->B.dtype));
    PL_NEED(!pl_mat_overlap(&a->C, &a->A) && !pl_mat_overlap(&a->C, &a->B), POLAR_E_ARG,
            "gemm: the result overlaps a factor");
    if (!a->D.data) return POLAR_OK;
    PL_TRY(need_same_shape("gemm", "D", &a->C, &a->D));
    return need_apart("gemm", "D", &a->C, &a->D);
}

polar_status pl_check_frob(const pl_args_frob *a)
{
    PL_TRY(need_values("frob", "N", &a->N, 2));
    PL_NEED(a->N.batch == a->X.batch, POLAR_E_SHAPE, "frob: %lld norms for %lld matrices",
            (long long)a->N.batch, (long long)a->X.batch);
    PL_NEED(a->weight > 0, POLAR_E_ARG, "frob wants a positive weight, got %g", a->weight);
    return POLAR_OK;
}

polar_status pl_check_frob_join(const pl_args_frob_join *a)
{
    PL_TRY(need_values("frob_join", "N", &a->N, 2));
    PL_TRY(need_values("frob_join", "M", &a->M, 2));
    PL_NEED(a->N.batch == 1, POLAR_E_SHAPE, "frob_join joins into one norm, got room for %lld",
            (long long)a->N.batch);
    return POLAR_OK;
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

polar_status pl_check_polar_exact(const pl_args_polar_exact *a)
{
    PL_TRY(need_same_shape("polar_exact", "X", &a->Y, &a->X));
    return need_apart("polar_exact", "X", &a->Y, &a->X);
}

/* Live values: one row for all matrices, or one for each. */
static polar_status need_live(const char *op, const pl_mat *y, const pl_mat *live)
{
    PL_TRY(need_values(op, "live", live, PL_LIVE_COLS));
    PL_NEED(live->batch == 1 || live->batch == y->batch, POLAR_E_SHAPE,
            "%s: %lld rows of live values for %lld matrices", op, (long long)live->batch,
            (long long)y->batch);
    return POLAR_OK;
}

static polar_status need_rule(const char *op, int64_t momentum, int64_t precondition, const pl_mat *V)
{
    PL_NEED(momentum >= 0 && momentum < PL_MOMENTUM_COUNT, POLAR_E_ARG, "%s: no momentum has the number %lld",
            op, (long long)momentum);
    PL_NEED(precondition == POLAR_PRECONDITION_NONE || precondition == POLAR_PRECONDITION_ADAM, POLAR_E_ARG,
            "%s: no preconditioner has the number %lld", op, (long long)precondition);
    PL_NEED(precondition || !V->data, POLAR_E_ARG,
            "%s: a second moment is given, and no preconditioner that keeps one", op);
    return POLAR_OK;
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

polar_status pl_check_decay_step(const pl_args_decay_step *a)
{
    PL_TRY(need_same_shape("decay_step", "D", &a->W, &a->D));
    PL_NEED(!pl_mat_overlap(&a->W, &a->D), POLAR_E_ARG, "decay_step: the weights overlap the direction");
    return need_live("decay_step", &a->W, &a->live);
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

static polar_status need_steps(const char *op, int64_t steps, int64_t chain)
{
    PL_NEED(steps >= 0 && steps <= PL_FUSED_STEPS, POLAR_E_ARG,
            "%s: %lld steps in one call; 0 to %d can be had", op, (long long)steps, PL_FUSED_STEPS);
    PL_NEED(chain >= 0 && chain < (int64_t)1 << (steps > 1 ? steps - 1 : 0), POLAR_E_ARG,
            "%s: a chain goes beyond the last of %lld steps", op, (long long)steps);
    return POLAR_OK;
}

polar_status pl_check_newton_schulz(const pl_args_newton_schulz *a)
{
    PL_NEED(a->X.dtype == POLAR_DTYPE_BF16, POLAR_E_DTYPE, "newton_schulz wants X in bf16, got %s",
            polar_dtype_name(a->X.dtype));
    return need_steps("newton_schulz", a->steps, a->chain);
}

polar_status pl_check_polar_map(const pl_args_polar_map *a)
{
    PL_TRY(need_same_shape("polar_map", "X", &a->Y, &a->X));
    PL_TRY(need_apart("polar_map", "X", &a->Y, &a->X));
    PL_NEED(a->X.dtype != POLAR_DTYPE_F64 && a->Y.dtype != POLAR_DTYPE_F64, POLAR_E_DTYPE,
            "polar_map wants X and Y in f32 or bf16");
    PL_TRY(need_steps("polar_map", a->steps, a->chain));
    PL_TRY(need_eps("polar_map", a->eps, 0));
    if (!a->N.data) return POLAR_OK;
    PL_TRY(need_values("polar_map", "N", &a->N, 2));
    PL_NEED(a->N.batch == a->X.batch || a->N.batch == 1, POLAR_E_SHAPE,
            "polar_map: %lld norms for %lld matrices", (long long)a->N.batch, (long long)a->X.batch);
    return POLAR_OK;
}

polar_status pl_check_polar_step(const pl_args_polar_step *a)
{
    const pl_mat *m[] = {&a->W, &a->M, &a->G, &a->V};
    int n = a->precondition ? 4 : 3;
    PL_TRY(need_rule("polar_step", a->momentum, a->precondition, &a->V));
    PL_TRY(need_steps("polar_step", a->steps, a->chain));
    PL_TRY(need_eps("polar_step", a->eps, 0));
    PL_NEED(a->W.dtype == POLAR_DTYPE_F32, POLAR_E_DTYPE, "polar_step wants W in f32, got %s",
            polar_dtype_name(a->W.dtype));
    for (int i = 0; i < n; i++) {
        PL_NEED(m[i]->dtype != POLAR_DTYPE_F64, POLAR_E_DTYPE, "polar_step wants no f64 but in live");
        PL_TRY(need_same_shape("polar_step", "M, V and G", &a->W, m[i]));
        for (int k = 0; k < i; k++)
            PL_NEED(!pl_mat_overlap(m[i], m[k]), POLAR_E_ARG,
                    "polar_step: weights, moments and gradient overlap");
    }
    return need_live("polar_step", &a->W, &a->live);
}

double pl_flops_copy(const pl_args_copy *a)
{
    (void)a;
    return 0;
}

double pl_flops_axpby(const pl_args_axpby *a)
{
    return (a->Z.data ? 3 : 1) * elements(&a->Y);
}

double pl_flops_gemm(const pl_args_gemm *a)
{
    return 2 * elements(&a->C) * (double)(a->ta ? a->A.rows : a->A.cols);
}

double pl_flops_frob(const pl_args_frob *a)
{
    return 3 * elements(&a->X);
}

double pl_flops_frob_join(const pl_args_frob_join *a)
{
    return 3 * (double)a->M.batch;
}

double pl_flops_normalise(const pl_args_normalise *a)
{
    return 2 * elements(&a->X);
}

/* A thin SVD by bidiagonalisation with both factors, then one product: about 14 m^2 n + 8 m^3 + 2 m^2 n, m
 * the short side. */
double pl_flops_polar_exact(const pl_args_polar_exact *a)
{
    double m = (double)(a->X.rows < a->X.cols ? a->X.rows : a->X.cols),
           n = (double)(a->X.rows < a->X.cols ? a->X.cols : a->X.rows);
    return (double)a->X.batch * (16 * m * m * n + 8 * m * m * m);
}

static double direction_flops(const pl_mat *d, int64_t momentum, int64_t precondition)
{
    static const double flops[PL_MOMENTUM_COUNT] = {[POLAR_MOMENTUM_HEAVY_BALL] = 2,
                                                    [POLAR_MOMENTUM_NESTEROV] = 4,
                                                    [POLAR_MOMENTUM_EMA] = 4,
                                                    [POLAR_MOMENTUM_AVERAGE] = 3,
                                                    [POLAR_MOMENTUM_AVERAGE_NESTEROV] = 5};
    if (momentum < 0 || momentum >= PL_MOMENTUM_COUNT) return 0; /* refused by the op's check */
    return (flops[momentum] + (precondition ? 8 : 0)) * elements(d);
}

double pl_flops_direction(const pl_args_direction *a)
{
    return direction_flops(&a->D, a->momentum, a->precondition);
}

double pl_flops_decay_step(const pl_args_decay_step *a)
{
    return 3 * elements(&a->W);
}

double pl_flops_adamw_step(const pl_args_adamw_step *a)
{
    return (12 + 3) * elements(&a->W);
}

double pl_flops_nonfinite(const pl_args_nonfinite *a)
{
    (void)a;
    return 0;
}

double pl_flops_advance(const pl_args_advance *a)
{
    (void)a;
    return 0;
}

static double iteration_flops(const pl_mat *x, int64_t steps)
{
    double m = (double)(x->rows < x->cols ? x->rows : x->cols),
           n = (double)(x->rows < x->cols ? x->cols : x->rows);
    return (double)steps * (double)x->batch * (4 * m * m * n + 2 * m * m * m);
}

double pl_flops_newton_schulz(const pl_args_newton_schulz *a)
{
    return iteration_flops(&a->X, a->steps);
}

double pl_flops_polar_map(const pl_args_polar_map *a)
{
    return ((a->N.data ? 0 : 3) + 2) * elements(&a->X) + iteration_flops(&a->X, a->steps);
}

double pl_flops_polar_step(const pl_args_polar_step *a)
{
    return direction_flops(&a->W, a->momentum, a->precondition) + (3 + 2 + 3) * elements(&a->W) +
           iteration_flops(&a->W, a->steps);
}
