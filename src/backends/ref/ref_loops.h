/* ref_loops.h -- what the oracle's files have in common: the loop over every entry, rows of values, a row's
 * maximum. */
#ifndef PL_REF_LOOPS_H
#define PL_REF_LOOPS_H

#include <math.h>

#include "ref_ops.h"

#define FOR_EACH(m)                            \
    for (int64_t b = 0; b < (m).batch; b++)    \
        for (int64_t i = 0; i < (m).rows; i++) \
            for (int64_t j = 0; j < (m).cols; j++)

/* Row of values m: one for all matrices, or one each. */
static inline double value(const pl_mat *m, int64_t b, int64_t j)
{
    return pl_get(m, m->batch == 1 ? 0 : b, 0, j);
}

/* The largest of a row; a NaN is passed over. */
static inline double row_max(const pl_mat *X, int64_t b, int64_t i)
{
    double m = -INFINITY;
    for (int64_t j = 0; j < X->cols; j++) m = pl_get(X, b, i, j) > m ? pl_get(X, b, i, j) : m;
    return m;
}

#endif
