/* ref_elem.c -- elementwise ops of the oracle: formulas_elem.h, in double, element by element. */
#include "math/formulas_elem.h"
#include "ref_ops.h"

#define FOR_EACH(m)                                    \
    for (int64_t b = 0; b < (m).batch; b++)            \
        for (int64_t i = 0; i < (m).rows; i++)         \
            for (int64_t j = 0; j < (m).cols; j++)

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
        pl_put(&a->Y, b, i, j, a->round_terms ? pl_axpby_rounded_f64(a->alpha, x, a->beta, z) : pl_axpby_f64(a->alpha, x, a->beta, z));
    }
}

/* Y = X / ||X||, or R(R(X) / R(R(||R(X)||) + eps)) */
void pl_ref_normalise(pl_queue *q, const pl_args_normalise *a)
{
    (void)q;
    FOR_EACH(a->Y)
    {
        int64_t nb = a->N.batch == 1 ? 0 : b;
        double s = pl_get(&a->N, nb, 0, 0), n = pl_get(&a->N, nb, 0, 1), x = pl_get(&a->X, b, i, j);
        pl_put(&a->Y, b, i, j, a->reference ? pl_normalise_reference_f64(x, s, pl_reference_divisor_f64(s, n, a->eps)) : pl_normalise_f64(x, s, n));
    }
}

/* Live value j of matrix b: one row for all, or one per matrix. */
static double live(const pl_mat *m, int64_t b, int64_t j)
{
    return pl_get(m, m->batch == 1 ? 0 : b, 0, j);
}

/* D = u, or u / (sqrt(v^) + eps); u = m, g + beta1 m or m^ */
void pl_ref_direction(pl_queue *q, const pl_args_direction *a)
{
    (void)q;
    FOR_EACH(a->D)
    {
        double c1 = live(&a->live, b, 0), c2 = live(&a->live, b, 1), g = pl_get(&a->G, b, i, j), m = pl_get(&a->M, b, i, j);
        double d = pl_momentum_f64(g, &m, a->momentum, a->beta1, 1 - a->beta1, c1);
        if (a->precondition) {
            double v = pl_get(&a->V, b, i, j);
            d = pl_precondition_f64(d, g, &v, a->beta2, 1 - a->beta2, c2, a->eps);
            pl_put(&a->V, b, i, j, v);
        }
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
        double lr = live(&a->live, b, 0), wd = live(&a->live, b, 1);
        pl_put(&a->W, b, i, j, pl_decay_and_step_f64(pl_get(&a->W, b, i, j), pl_get(&a->D, b, i, j), lr, wd, a->scale));
    }
}

/* W <- (1 - lr wd) W - lr m^ / (sqrt(v^) + eps) */
void pl_ref_adamw_step(pl_queue *q, const pl_args_adamw_step *a)
{
    (void)q;
    FOR_EACH(a->W)
    {
        double c1 = live(&a->live, b, 0), c2 = live(&a->live, b, 1), lr = live(&a->live, b, 2), wd = live(&a->live, b, 3);
        double m = pl_get(&a->M, b, i, j), v = pl_get(&a->V, b, i, j);
        double d = pl_adam_direction_f64(pl_get(&a->G, b, i, j), &m, &v, a->beta1, 1 - a->beta1, a->beta2, 1 - a->beta2, c1, c2, a->eps);
        pl_put(&a->W, b, i, j, pl_decay_and_step_f64(pl_get(&a->W, b, i, j), d, lr, wd, 1));
        pl_put(&a->M, b, i, j, m);
        pl_put(&a->V, b, i, j, v);
    }
}
