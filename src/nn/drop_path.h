/* drop_path.h -- stochastic depth: which images leave out a branch at a step.
 *
 * As timm's DropPath: a branch's result is multiplied by 0 with probability `rate`, else by 1 / (1 - rate),
 * so that its expectation stays. The draw of (seed, step, branch, image) is philox(seed, PL_STREAM_DROP,
 * step, branch 2^32 + image): the same on any device, whatever else is in the batch.
 */
#ifndef PL_NN_DROP_PATH_H
#define PL_NN_DROP_PATH_H

#include "base/philox.h"

/* The rate of block `block` of `depth`: evenly from 0 to most, as timm's linspace. */
static inline double pl_drop_path_rate(double most, int64_t block, int64_t depth)
{
    return depth > 1 ? most * (double)block / (double)(depth - 1) : 0;
}

/* The factor of an image's branch: 0 or 1 / (1 - rate). */
static inline double pl_drop_path_factor(uint64_t seed, uint64_t step, int64_t branch, int64_t image,
                                         double rate)
{
    pl_u4 r = pl_philox(seed, PL_STREAM_DROP, step, (uint64_t)branch << 32 | (uint64_t)image);
    return pl_uniform_f64(r.x, r.y) < rate ? 0 : 1 / (1 - rate);
}

#endif
