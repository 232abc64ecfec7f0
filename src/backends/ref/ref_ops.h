/* ref_ops.h -- the oracle's ops, one function per row of ops.def; `cpu` and `guard` may lean on them. */
#ifndef PL_REF_OPS_H
#define PL_REF_OPS_H

#include "device/backend.h"

#define PL_OP(name, out, inout, in, ...)    void pl_ref_##name(pl_queue *q, const pl_args_##name *a);
#define PL_FUSED(name, out, inout, in, ...) /* composed */
#include "device/ops.def"

/* Element (i, j) of matrix b, as a double, and back with one rounding. */
static inline double pl_get(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(m->data, m->dtype, b * m->bs + i * m->rs + j);
}

static inline void pl_put(const pl_mat *m, int64_t b, int64_t i, int64_t j, double x)
{
    pl_store_f64(m->data, m->dtype, b * m->bs + i * m->rs + j, x);
}

#endif
