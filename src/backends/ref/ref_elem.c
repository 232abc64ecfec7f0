/* ref_elem.c -- elementwise ops of the oracle: formulas_elem.h, in double, element by element. */
#include "device/advance_row.h"
#include "math/formulas_elem.h"
#include "ref_loops.h"

/* Y = X or X^T */
void pl_ref_copy(pl_queue *q, const pl_args_copy *a)
{
    (void)q;
    FOR_EACH(a->Y) pl_put(&a->Y, b, i, j, a->trans ? pl_get(&a->X, b, j, i) : pl_get(&a->X, b, i, j));
}

/* Y = alpha X + beta Z */
void pl_ref_axpby(pl_queue *q, const pl_args_axpby *a)
{
    (void)q;
    FOR_EACH(a->Y)
    {
        double x = pl_get(&a->X, b, i, j), z = a->Z.data ? pl_get(&a->Z, b, i, j) : 0;
        pl_put(&a->Y, b, i, j,
               a->round_terms ? pl_axpby_rounded_f64(a->alpha, x, a->beta, z)
                              : pl_axpby_f64(a->alpha, x, a->beta, z));
    }
}

/* Y = X / max(||X||, eps), or R(R(X) / R(R(||R(X)||) + eps)) */
void pl_ref_normalise(pl_queue *q, const pl_args_normalise *a)
{
    (void)q;
    FOR_EACH(a->Y)
    {
        int64_t nb = a->N.batch == 1 ? 0 : b;
        double s = pl_get(&a->N, nb, 0, 0), n = pl_get(&a->N, nb, 0, 1), x = pl_get(&a->X, b, i, j);
        pl_put(&a->Y, b, i, j,
               a->reference ? pl_normalise_reference_f64(x, s, pl_reference_divisor_f64(s, n, a->eps))
                            : pl_normalise_f64(x, s, pl_norm_or_eps_f64(s, n, a->eps)));
    }
}

typedef struct {
    double c1, c2, lr, wd, beta1, beta2, eps, grad, skip;
} coefs;

/* The live values of matrix b: one row for all, or one per matrix. */
static coefs coefs_of(const pl_mat *m, int64_t b)
{
    const double *v = (const double *)m->data + (m->batch == 1 ? 0 : b * m->bs);
    return (coefs){v[PL_LIVE_C1],    v[PL_LIVE_C2],  v[PL_LIVE_LR],   v[PL_LIVE_WD],  v[PL_LIVE_BETA1],
                   v[PL_LIVE_BETA2], v[PL_LIVE_EPS], v[PL_LIVE_GRAD], v[PL_LIVE_SKIP]};
}

/* D = u, or u / (sqrt(v^) + eps); u = m, g + beta1 m or m^, of g or (LaProp) of g / (sqrt(v^) + eps) */
void pl_ref_direction(pl_queue *q, const pl_args_direction *a)
{
    (void)q;
    FOR_EACH(a->D)
    {
        const coefs k = coefs_of(&a->live, b);
        double g = k.grad * pl_get(&a->G, b, i, j), m = pl_get(&a->M, b, i, j);
        if (k.skip) continue;
        double v = a->precondition ? pl_get(&a->V, b, i, j) : 0, d;
        if (a->precondition == POLAR_PRECONDITION_LAPROP)
            d = pl_laprop_direction_f64(g, &m, &v, a->momentum, k.beta1, 1 - k.beta1, k.beta2, 1 - k.beta2,
                                        k.c1, k.c2, k.eps);
        else d = pl_momentum_f64(g, &m, a->momentum, k.beta1, 1 - k.beta1, k.c1);
        if (a->precondition == POLAR_PRECONDITION_ADAM)
            d = pl_precondition_f64(d, g, &v, k.beta2, 1 - k.beta2, k.c2, k.eps);
        if (a->precondition) pl_put(&a->V, b, i, j, v);
        pl_put(&a->M, b, i, j, m);
        pl_put(&a->D, b, i, j, d);
    }
}

/* W <- (1 - lr wd) W - lr s D */
void pl_ref_decay_step(pl_queue *q, const pl_args_decay_step *a)
{
    (void)q;
    FOR_EACH(a->W)
    {
        const coefs k = coefs_of(&a->live, b);
        if (!k.skip)
            pl_put(
                &a->W, b, i, j,
                pl_decay_and_step_f64(pl_get(&a->W, b, i, j), pl_get(&a->D, b, i, j), k.lr, k.wd, a->scale));
    }
}

/* W <- (1 - lr wd) W - lr m^ / (sqrt(v^) + eps) */
void pl_ref_adamw_step(pl_queue *q, const pl_args_adamw_step *a)
{
    (void)q;
    FOR_EACH(a->W)
    {
        const coefs k = coefs_of(&a->live, b);
        double g = k.grad * pl_get(&a->G, b, i, j), m = pl_get(&a->M, b, i, j), v = pl_get(&a->V, b, i, j);
        if (k.skip) continue;
        double d =
            pl_adam_direction_f64(g, &m, &v, k.beta1, 1 - k.beta1, k.beta2, 1 - k.beta2, k.c1, k.c2, k.eps);
        pl_put(&a->W, b, i, j, pl_decay_and_step_f64(pl_get(&a->W, b, i, j), d, k.lr, k.wd, 1));
        pl_put(&a->M, b, i, j, m);
        pl_put(&a->V, b, i, j, v);
    }
}

/* F = 1 where G holds an infinity or a NaN */
void pl_ref_nonfinite(pl_queue *q, const pl_args_nonfinite *a)
{
    (void)q;
    FOR_EACH(a->G)
    {
        double g = pl_get(&a->G, b, i, j);
        if (g - g != 0) pl_put(&a->F, a->F.batch == 1 ? 0 : b, 0, 0, 1);
    }
}

/* T = T + 1, C1 = 1/(1 - beta1^T), C2 = 1/(1 - beta2^T), unless a flag says otherwise (device/advance_row.h)
 */
void pl_ref_advance(pl_queue *q, const pl_args_advance *a)
{
    (void)q;
    for (int64_t r = 0; r < a->L.batch; r++) pl_advance_row(a, r);
    for (int64_t b = 0; a->F.data && b < a->F.batch; b++) pl_put(&a->F, b, 0, 0, 0);
}
