/* mix.h -- Mixup and CutMix with label smoothing, as timm's Mixup in batch mode: one draw for a batch,
 * picture i is mixed with picture n - 1 - i.
 *
 *     pl_mix_options o = {.mixup_alpha = 0.8, .cutmix_alpha = 1, .prob = 1, .switch_prob = 0.5,
 *         .smoothing = 0.1};      // the paper's
 *     pl_mix m;
 *     PL_TRY(pl_mix_draw(&m, &o, (pl_mix_key){seed, epoch, batch}, 224, 224));
 *     PL_TRY(pl_mix_images(x, &m, n, 3, 224, 224));                  // (n, 3, 224, 224) in place
 *     PL_TRY(pl_mix_targets(t, &m, labels, n, 100, o.smoothing));    // (n, 100)
 *
 *     Mixup      x_i <- lam x_i + (1 - lam) x_{n-1-i}
 *     CutMix     a rectangle of x_i comes from x_{n-1-i}; lam is then the share of the picture that stayed
 *     target_i   lam e(y_i) + (1 - lam) e(y_{n-1-i}),   e(y) = smoothing / classes everywhere, 1 -
 *                smoothing more at y
 *
 * lam ~ Beta(alpha, alpha). Without mixing (pl_mix_none) the targets are smoothed labels, with smoothing 0
 * plain ones.
 */
#ifndef PL_DATA_MIX_H
#define PL_DATA_MIX_H

#include "base/status.h"
#include "data/augment/image_resize.h"

typedef struct pl_mix_options {
    double mixup_alpha, cutmix_alpha; /* 0: that one never */
    double prob;                      /* that a batch is mixed at all */
    double switch_prob;               /* of CutMix where both are on */
    double smoothing;
} pl_mix_options;

/* One batch of one epoch of one run; its draws are philox(seed, PL_STREAM_MIX, epoch, draw << 48 | batch):
 * draw 0 whether (x, y) and which (z, w), draw 1 lam (x, y) and the rectangle's centre, row (z) and column
 * (w). */
typedef struct pl_mix_key {
    uint64_t seed;
    int64_t epoch, batch; /* below 2^48 */
} pl_mix_key;

typedef enum pl_mix_kind { PL_MIX_NONE, PL_MIX_MIXUP, PL_MIX_CUTMIX } pl_mix_kind;

typedef struct pl_mix {
    pl_mix_kind kind;
    double lam; /* share of the picture itself; 1 without mixing */
    pl_box cut; /* CutMix's rectangle, possibly empty */
} pl_mix;

/* what happens to a batch */
polar_status pl_mix_draw(pl_mix *out, const pl_mix_options *o, pl_mix_key key, int64_t width, int64_t height);
/* nothing happens */
pl_mix pl_mix_none(void);
/* x (n, channels, height, width); n even where something is mixed */
polar_status pl_mix_images(float *x, const pl_mix *m, int64_t n, int64_t channels, int64_t width,
                           int64_t height);
/* t (n, classes) */
polar_status pl_mix_targets(float *t, const pl_mix *m, const int32_t *label, int64_t n, int64_t classes,
                            double smoothing);
/* x with I_x(a, a) = u, 0 < u < 1, a > 0: Beta(a, a) from a uniform */
double pl_beta_quantile(double u, double a);

#endif
