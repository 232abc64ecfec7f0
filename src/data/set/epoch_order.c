/* epoch_order.c -- Fisher and Yates' shuffle with the draws philox(seed, PL_STREAM_ORDER, epoch, i). */
#include "data/set/epoch_order.h"

#include "base/philox.h"

polar_status pl_epoch_order(int64_t *out, int64_t count, uint64_t seed, int64_t epoch)
{
    PL_NEED(count >= 1 && count <= INT32_MAX && epoch >= 0, POLAR_E_ARG,
            "the order of %lld items in epoch %lld", (long long)count, (long long)epoch);
    for (int64_t i = 0; i < count; i++) out[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = pl_uniform_below(pl_philox(seed, PL_STREAM_ORDER, (uint64_t)epoch, (uint64_t)i).x,
                                     (uint32_t)i + 1),
                held = out[i];
        out[i] = out[j];
        out[j] = held;
    }
    return POLAR_OK;
}
