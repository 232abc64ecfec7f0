/* epoch_order.h -- in which order an epoch goes through its data. */
#ifndef PL_DATA_EPOCH_ORDER_H
#define PL_DATA_EPOCH_ORDER_H

#include <stdint.h>

#include "base/status.h"

/* the epoch's permutation of 0 .. count - 1, 1 <= count < 2^31; epochs from 0 */
polar_status pl_epoch_order(int64_t *out, int64_t count, uint64_t seed, int64_t epoch);

#endif
