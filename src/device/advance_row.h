/* advance_row.h -- what the op `advance` does to one live row, for cc and nvcc. */
#ifndef PL_DEVICE_ADVANCE_ROW_H
#define PL_DEVICE_ADVANCE_ROW_H

#include "device/ops.h"
#include "math/hd.h"

/* x^n for a whole n >= 0, by squares: multiplications alone, so every device has the same bits (pow has not).
 */
PL_HD double pl_whole_power(double x, double n)
{
    double power = 1;
    for (int64_t k = (int64_t)n; k > 0; k /= 2) {
        if (k % 2) power *= x;
        x *= x;
    }
    return power;
}

/* Row r of a->L and a->T. F is read, not cleared: other rows want it too. */
PL_HD void pl_advance_row(const pl_args_advance *a, int64_t r)
{
    double *live = (double *)a->L.data + r * a->L.bs;
    double *steps = (double *)a->T.data + r * a->T.bs;
    const int flagged = a->F.data && ((const float *)a->F.data)[r % a->F.batch * a->F.bs] != 0;
    const int found = a->found.data && *(const float *)a->found.data != 0;
    if (a->scale.data) live[PL_LIVE_GRAD] = 1 / (double)*(const float *)a->scale.data;
    if (live[PL_LIVE_SKIP] >= PL_SKIP_FLAG)
        live[PL_LIVE_SKIP] = 0; /* the flag of an earlier launch: that step is over */
    if (live[PL_LIVE_SKIP] != 0) return;
    if (flagged || found) {
        live[PL_LIVE_SKIP] = PL_SKIP_FLAG;
        steps[1] += 1;
        return;
    }
    steps[0] += 1;
    live[PL_LIVE_STEP] = steps[0];
    const double t = steps[0] - live[PL_LIVE_WAIT];
    if (t < 1) live[PL_LIVE_SKIP] = PL_SKIP_WAIT;
    live[PL_LIVE_C1] = 1 / (1 - pl_whole_power(live[PL_LIVE_BETA1], t < 1 ? 1 : t));
    live[PL_LIVE_C2] = 1 / (1 - pl_whole_power(live[PL_LIVE_BETA2], t < 1 ? 1 : t));
}

#endif
