/* op_check_polar.c -- polar maps: exact, by Newton-Schulz, and whole steps with one: what the ops demand of
 * their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_polar_exact(const pl_args_polar_exact *a)
{
    PL_TRY(need_same_shape("polar_exact", "X", &a->Y, &a->X));
    PL_NEED(a->kind == 0 || (a->kind >= POLAR_MAP_EXACT && a->kind <= POLAR_MAP_SOFT), POLAR_E_ARG,
            "polar_exact: no spectral map of kind %lld", (long long)a->kind);
    PL_NEED(a->power - a->power == 0, POLAR_E_ARG, "polar_exact: a power of %g", a->power);
    return need_apart("polar_exact", "X", &a->Y, &a->X);
}

/* A thin SVD by bidiagonalisation with both factors, then one product: about 14 m^2 n + 8 m^3 + 2 m^2 n, m
 * the short side. */
double pl_flops_polar_exact(const pl_args_polar_exact *a)
{
    double m = (double)(a->X.rows < a->X.cols ? a->X.rows : a->X.cols),
           n = (double)(a->X.rows < a->X.cols ? a->X.cols : a->X.rows);
    return (double)a->X.batch * (16 * m * m * n + 8 * m * m * m);
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
    if (a->Y.data) {
        PL_TRY(need_same_shape("newton_schulz", "X", &a->Y, &a->X));
        PL_TRY(need_apart("newton_schulz", "X", &a->Y, &a->X));
        PL_NEED(a->Y.dtype == POLAR_DTYPE_F32 || a->Y.dtype == POLAR_DTYPE_BF16, POLAR_E_DTYPE,
                "newton_schulz wants Y in f32 or bf16, got %s", polar_dtype_name(a->Y.dtype));
    }
    return need_steps("newton_schulz", a->steps, a->chain);
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

polar_status pl_check_frob_normalise(const pl_args_frob_normalise *a)
{
    PL_TRY(need_same_shape("frob_normalise", "X", &a->Y, &a->X));
    PL_TRY(need_apart("frob_normalise", "X", &a->Y, &a->X));
    if (a->N.data) {
        PL_TRY(need_values("frob_normalise", "N", &a->N, 2));
        NEED_DISJOINT("frob_normalise", 1, &a->N, &a->Y);
        NEED_DISJOINT("frob_normalise", 1, &a->N, &a->X);
        PL_NEED(a->N.batch == a->X.batch, POLAR_E_SHAPE, "frob_normalise: %lld norms for %lld matrices",
                (long long)a->N.batch, (long long)a->X.batch);
    }
    return need_eps("frob_normalise", a->eps, 0);
}

double pl_flops_frob_normalise(const pl_args_frob_normalise *a)
{
    return (3 + 2) * elements(&a->X);
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

double pl_flops_polar_map(const pl_args_polar_map *a)
{
    return ((a->N.data ? 0 : 3) + 2) * elements(&a->X) + iteration_flops(&a->X, a->steps);
}

polar_status pl_check_polar_step(const pl_args_polar_step *a)
{
    const int lines = a->post != POLAR_POST_NONE;
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
    PL_NEED(a->post >= POLAR_POST_NONE && a->post <= POLAR_POST_LONG_MOMENT && a->apply >= 0 &&
                a->apply <= POLAR_APPLY_RADIAL_BRAKE,
            POLAR_E_ARG, "polar_step: no stage after the map has the number %lld, or no step %lld",
            (long long)a->post, (long long)a->apply);
    PL_NEED(lines ? a->P.data || elements(&a->W) == 0 : !a->P.data, POLAR_E_ARG,
            "polar_step: moments of lines have P, other steps none");
    if (lines)
        PL_TRY(need_shape("polar_step", "P", &a->P, a->W.batch, 1,
                          pl_post_columns(a->post, a->W.rows, a->W.cols) ? a->W.cols : a->W.rows));
    if (lines) PL_TRY(need_wide("polar_step", "P", &a->P));
    for (int i = 0; i < n && lines; i++)
        PL_NEED(!pl_mat_overlap(&a->P, m[i]), POLAR_E_ARG, "polar_step: the moments of lines overlap others");
    return need_live("polar_step", &a->W, &a->live);
}

double pl_flops_polar_step(const pl_args_polar_step *a)
{
    const pl_args_direction first = {.D = a->W, .momentum = a->momentum, .precondition = a->precondition};
    return pl_flops_direction(&first) +
           (3 + 2 + 3 + (a->post ? 4 : 0) + (a->apply >= POLAR_APPLY_HYPERBALL ? 6 : 0)) * elements(&a->W) +
           iteration_flops(&a->W, a->steps);
}
