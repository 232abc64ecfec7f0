/* ref_kron.h -- kron_sweep for those who multiply faster than the oracle. */
#ifndef PL_REF_KRON_H
#define PL_REF_KRON_H

#include "ref_ops.h"

/* kron_sweep with its products K Q in T, f64, packed (NULL: made here); T is lost */
void pl_kron_sweep_with(pl_queue *q, const pl_args_kron_sweep *a, const pl_mat *T);

#endif
