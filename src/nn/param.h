/* param.h -- a trainable array of a model, for all members of an ensemble at once.
 *
 * A member's matrix is (rows, cols); W and G are (members, rows, cols), packed, in device memory. A
 * one-dimensional array of n numbers has ndim 1, rows 1, cols n; an array of more than two dimensions says in
 * shape what the checkpoint calls it, and how it is seen as a matrix in rows and cols. Names and order are
 * the checkpoint's.
 */
#ifndef PL_NN_PARAM_H
#define PL_NN_PARAM_H

#include "device/mat.h"

#define PL_PARAM_NAME 64
#define PL_PARAM_DIMS 4

typedef struct pl_param {
    char name[PL_PARAM_NAME];
    int ndim; /* of one member's array in a checkpoint */
    int64_t rows, cols;
    int64_t shape[PL_PARAM_DIMS]; /* with ndim > 2; rows * cols numbers in all */
    /* inputs of the layer it belongs to: initial values lie within 1/sqrt(fan_in); 0: as the model says (a
     * gate: weight 1, bias 0) */
    int64_t fan_in;
    pl_mat W, G; /* G has no data in a model that is not trained */
    /* mixed precision: W rounded to the activations' format, for products; otherwise without data */
    pl_mat low;
} pl_param;

/* W as a factor of a product with activations. */
static inline pl_mat pl_param_factor(const pl_param *p)
{
    return p->low.data ? p->low : p->W;
}

/* m, a W or a G of p, as an optimiser wants it: the checkpoint's shape, the members before it where there are
 * several. */
static inline polar_tensor pl_param_tensor(const pl_param *p, const pl_mat *m)
{
    polar_tensor t = {.data = m->data, .dtype = m->dtype};
    if (m->batch > 1) t.shape[t.ndim++] = m->batch;
    if (p->ndim > 2)
        for (int i = 0; i < p->ndim; i++) t.shape[t.ndim++] = p->shape[i];
    else {
        if (p->ndim == 2) t.shape[t.ndim++] = p->rows;
        t.shape[t.ndim++] = p->cols;
    }
    int64_t stride = 1;
    for (int i = t.ndim - 1; i >= 0; stride *= t.shape[i], i--) t.stride[i] = stride;
    return t;
}

#endif
