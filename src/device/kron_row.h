/* kron_row.h -- what the ops of Kronecker factors read off a live row, for cc and nvcc. */
#ifndef PL_DEVICE_KRON_ROW_H
#define PL_DEVICE_KRON_ROW_H

#include "device/ops.h"
#include "math/hd.h"

/* Moments of the factors move in this step. */
PL_HD int pl_kron_moves(const double *live)
{
    return live[PL_LIVE_SKIP] == 0 || live[PL_LIVE_SKIP] == PL_SKIP_WAIT;
}

/* The step makes a basis anew. */
PL_HD int pl_kron_eigen_due(const double *live, int64_t every, int64_t after)
{
    const int64_t step = (int64_t)live[PL_LIVE_STEP];
    return pl_kron_moves(live) && (after ? step == after : (step - 1) % every == 0);
}

/* The step sweeps it. */
PL_HD int pl_kron_sweep_due(const double *live, int64_t every, int64_t after)
{
    const int64_t step = (int64_t)live[PL_LIVE_STEP];
    return pl_kron_moves(live) && step > after && (step - after) % every == 0;
}

#endif
