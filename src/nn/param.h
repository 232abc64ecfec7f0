/* param.h -- a trainable array of a model, for all members of an ensemble at once.
 *
 * A member's matrix is (rows, cols); W and G are (members, rows, cols), packed, in device memory. A one-dimensional array of n numbers has ndim 1, rows 1,
 * cols n. Names and order are the checkpoint's.
 */
#ifndef PL_NN_PARAM_H
#define PL_NN_PARAM_H

#include "device/mat.h"

#define PL_PARAM_NAME 64

typedef struct pl_param {
    char    name[PL_PARAM_NAME];
    int     ndim;          /* 1 or 2, of one member's array */
    int64_t rows, cols;
    int64_t fan_in;        /* inputs of the layer it belongs to: initial values lie within 1/sqrt(fan_in); 0: a gate's (weight 1, bias 0) */
    pl_mat  W, G;          /* G has no data in a model that is not trained */
} pl_param;

#endif
