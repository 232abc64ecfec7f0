/* augment_draw.h -- where the random numbers of one picture lie: philox(seed, PL_STREAM_AUGMENT, epoch, draw
 * << 48 | image).
 *
 *     draw          words
 *     2 t           crop, try t of 10: area (x, y), logarithm of the aspect ratio (z, w)
 *     2 t + 1       crop, try t: top (x), left (y)
 *     20            flip (x, y)
 *     32 + 2 l      RandAugment, layer l < 16: which (x), whether (y, z), sign (w)
 *     33 + 2 l      RandAugment, layer l: magnitude, the first normal of the draw
 *     64            erasing: whether (x, y)
 *     65 + 2 t      erasing, try t of 10: area (x, y), logarithm of the aspect ratio (z, w)
 *     66 + 2 t      erasing, try t: top (x), left (y)
 *
 * A draw that a recipe does not ask for moves no other: recipes that share a seed share their crops and
 * flips. A number once given stays.
 */
#ifndef PL_DATA_AUGMENT_DRAW_H
#define PL_DATA_AUGMENT_DRAW_H

#include "base/philox.h"

#define PL_DRAW_TRIES     10
#define PL_DRAW_CROP      0
#define PL_DRAW_FLIP      20
#define PL_DRAW_LAYER     32
#define PL_DRAW_ERASE     64
#define PL_DRAW_ERASE_TRY 65
#define PL_DRAW_LAYERS    16 /* at most */

/* Whose draws: one picture in one epoch of one run. */
typedef struct pl_draw_key {
    uint64_t seed;
    int64_t epoch; /* below 2^48 */
    int64_t image; /* its number in the whole set, below 2^48 */
} pl_draw_key;

static inline pl_u4 pl_augment_draw(pl_draw_key key, int draw)
{
    return pl_philox(key.seed, PL_STREAM_AUGMENT, (uint64_t)key.epoch,
                     (uint64_t)draw << 48 | (uint64_t)key.image);
}

/* Uniform in (lo, hi). */
static inline double pl_draw_between(uint32_t a, uint32_t b, double lo, double hi)
{
    return lo + (hi - lo) * pl_uniform_f64(a, b);
}

#endif
