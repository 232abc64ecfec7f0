/* mix.c -- one draw per batch, pictures in pairs, soft targets.
 *
 * Beta(a, a) is drawn through its distribution function: x solves I_x(a, a) = u, by bisection in the lower
 * half (the upper one by symmetry) until doubles end. One uniform per batch, no rejection, and a larger u
 * gives a larger lam for every a. With a = 1 it is u itself. Pictures and targets are computed in floats,
 * operation by operation as torch does: x lam + y (1 - lam), lam and 1 - lam rounded to floats each. ctest -R
 * test_mix
 */
#include "data/augment/mix.h"

#include <math.h>

#include "base/philox.h"
#include "data/set/clones.h"
#include "math/picture_elem.h"
#include "math/statistics.h"

double pl_beta_quantile(double u, double a)
{
    if (a == 1) return u;
    if (u > 0.5) return 1 - pl_beta_quantile(1 - u, a);
    double lo = 0, hi = 0.5;
    for (;;) {
        double x = lo > 0 && hi > 4 * lo ? sqrt(lo) * sqrt(hi) : lo + (hi - lo) / 2;
        if (!(x > lo && x < hi)) return hi;
        if (pl_beta_regularised(x, 1 - x, a, a) < u) lo = x;
        else hi = x;
        if (hi < 0x1p-60) return hi; /* 1 - lam is 1 in any format that follows */
    }
}

static int64_t clip(int64_t v, int64_t top)
{
    return v < 0 ? 0 : v > top ? top : v;
}

pl_mix pl_mix_none(void)
{
    return (pl_mix){.kind = PL_MIX_NONE, .lam = 1};
}

polar_status pl_mix_draw(pl_mix *out, const pl_mix_options *o, pl_mix_key key, int64_t width, int64_t height)
{
    const int64_t top = (int64_t)1 << 48;
    *out = pl_mix_none();
    PL_NEED(o->mixup_alpha >= 0 && o->cutmix_alpha >= 0 && o->mixup_alpha <= 1e6 && o->cutmix_alpha <= 1e6,
            POLAR_E_ARG, "Mixup with alpha %g, CutMix with alpha %g: 0 to 1e6 are wanted", o->mixup_alpha,
            o->cutmix_alpha);
    PL_NEED(o->prob >= 0 && o->prob <= 1 && o->switch_prob >= 0 && o->switch_prob <= 1, POLAR_E_ARG,
            "mixing with probability %g, CutMix with %g: 0 to 1 are wanted", o->prob, o->switch_prob);
    PL_NEED(key.epoch >= 0 && key.epoch < top && key.batch >= 0 && key.batch < top, POLAR_E_ARG,
            "no draws for batch %lld of epoch %lld", (long long)key.batch, (long long)key.epoch);
    PL_NEED(width >= 1 && height >= 1 && width < 1 << 24 && height < 1 << 24, POLAR_E_ARG,
            "pictures of %lld x %lld", (long long)width, (long long)height);
    pl_u4 r = pl_philox(key.seed, PL_STREAM_MIX, (uint64_t)key.epoch, (uint64_t)key.batch);
    if ((o->mixup_alpha == 0 && o->cutmix_alpha == 0) || pl_uniform_f64(r.x, r.y) >= o->prob) return POLAR_OK;
    int cut = o->cutmix_alpha > 0 && (o->mixup_alpha == 0 || pl_uniform_f64(r.z, r.w) < o->switch_prob);
    r = pl_philox(key.seed, PL_STREAM_MIX, (uint64_t)key.epoch, (uint64_t)1 << 48 | (uint64_t)key.batch);
    out->kind = cut ? PL_MIX_CUTMIX : PL_MIX_MIXUP;
    out->lam = pl_beta_quantile(pl_uniform_f64(r.x, r.y), cut ? o->cutmix_alpha : o->mixup_alpha);
    if (cut) {
        double side = sqrt(1 - out->lam);
        int64_t h = (int64_t)((double)height * side), w = (int64_t)((double)width * side),
                y = pl_uniform_below(r.z, (uint32_t)height), x = pl_uniform_below(r.w, (uint32_t)width);
        int64_t y0 = clip(y - h / 2, height), y1 = clip(y + (h + 1) / 2, height), x0 = clip(x - w / 2, width),
                x1 = clip(x + (w + 1) / 2, width);
        out->cut = (pl_box){x0, y0, x1 - x0, y1 - y0};
        out->lam = 1 - (double)((y1 - y0) * (x1 - x0)) / (double)(height * width);
    }
    return POLAR_OK;
}

PL_CLONES static void mix_pair(float *restrict x, float *restrict y, int64_t n, float lam, float rest)
{
    for (int64_t i = 0; i < n; i++) {
        float a = x[i], b = y[i];
        x[i] = pl_mix_of(a, b, lam, rest);
        y[i] = pl_mix_of(b, a, lam, rest);
    }
}

static void swap_rows(float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float a = x[i];
        x[i] = y[i], y[i] = a;
    }
}

polar_status pl_mix_images(float *x, const pl_mix *m, int64_t n, int64_t channels, int64_t width,
                           int64_t height)
{
    int64_t picture = channels * width * height;
    const pl_box *c = &m->cut;
    if (m->kind == PL_MIX_NONE) return POLAR_OK;
    PL_NEED(n % 2 == 0, POLAR_E_ARG,
            "Mixup and CutMix pair the pictures of a batch: %lld of them is an odd number", (long long)n);
    PL_NEED(m->kind == PL_MIX_MIXUP || (c->x >= 0 && c->y >= 0 && c->width >= 0 && c->height >= 0 &&
                                        c->x + c->width <= width && c->y + c->height <= height),
            POLAR_E_ARG, "CutMix's rectangle was drawn for pictures of another size than %lld x %lld",
            (long long)width, (long long)height);
    for (int64_t i = 0; i < n / 2; i++) {
        float *a = x + i * picture, *b = x + (n - 1 - i) * picture;
        if (m->kind == PL_MIX_MIXUP) {
            mix_pair(a, b, picture, (float)m->lam, (float)(1 - m->lam));
            continue;
        }
        for (int64_t k = 0; k < channels * c->height; k++) {
            int64_t at = ((k / c->height) * height + c->y + k % c->height) * width + c->x;
            swap_rows(a + at, b + at, c->width);
        }
    }
    return POLAR_OK;
}

polar_status pl_mix_targets(float *t, const pl_mix *m, const int32_t *label, int64_t n, int64_t classes,
                            double smoothing)
{
    float off = (float)(smoothing / (double)classes),
          on = (float)(1 - smoothing + smoothing / (double)classes), lam = (float)m->lam,
          rest = (float)(1 - m->lam);
    PL_NEED(n >= 1 && classes >= 1 && smoothing >= 0 && smoothing <= 1, POLAR_E_ARG,
            "targets of %lld pictures in %lld classes, smoothed by %g", (long long)n, (long long)classes,
            smoothing);
    for (int64_t i = 0; i < n; i++)
        PL_NEED(label[i] >= 0 && label[i] < classes, POLAR_E_ARG,
                "label %d of picture %lld is not in 0 .. %lld", label[i], (long long)i,
                (long long)classes - 1);
    for (int64_t i = 0; i < n; i++) {
        int32_t mine = label[i], other = label[n - 1 - i];
        float *row = t + i * classes;
        for (int64_t k = 0; k < classes; k++) row[k] = off * lam + off * rest;
        row[mine] = on * lam + (mine == other ? on : off) * rest;
        if (mine != other) row[other] = off * lam + on * rest;
    }
    return POLAR_OK;
}
