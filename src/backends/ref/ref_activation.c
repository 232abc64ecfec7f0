/* ref_activation.c -- activations with their bias, and their gradients: activation_elem.h, in double. */
#include "math/activation_elem.h"
#include "ref_loops.h"

/* x + bias[j]: one row of biases for all matrices, one per matrix, or none */
static double biased(const pl_mat *X, const pl_mat *bias, int64_t b, int64_t i, int64_t j)
{
    double x = pl_get(X, b, i, j);
    return bias->data ? x + pl_get(bias, bias->batch == 1 ? 0 : b, 0, j) : x;
}

/* Y = act(X + b) */
void pl_ref_bias_act(pl_queue *q, const pl_args_bias_act *a)
{
    (void)q;
    FOR_EACH(a->Y) pl_put(&a->Y, b, i, j, pl_activate_f64(biased(&a->X, &a->b, b, i, j), a->act));
}

/* dX = dY act'(X + b) */
void pl_ref_bias_act_back(pl_queue *q, const pl_args_bias_act_back *a)
{
    (void)q;
    FOR_EACH(a->dX)
    pl_put(&a->dX, b, i, j,
           pl_activate_back_f64(pl_get(&a->dY, b, i, j), biased(&a->X, &a->b, b, i, j), a->act));
}
