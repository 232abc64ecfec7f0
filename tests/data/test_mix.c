/* test_mix.c -- Mixup, CutMix, label smoothing: Beta's quantiles against scipy, the draws' distributions,
 * pictures and targets against timm's arithmetic written out.
 *
 * Statistical bounds are 6 standard deviations, which a right draw passes with probability 1 - 2e-9 per line;
 * seeds are fixed, so a line passes always or never.
 */
#include "data/augment/mix.h"

#include <float.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "test.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define DRAWS       20000

static const pl_mix_options paper = {
    .mixup_alpha = 0.8, .cutmix_alpha = 1, .prob = 1, .switch_prob = 0.5, .smoothing = 0.1};

/* ---- Beta: scipy.stats.beta.ppf(u, a, a) -------------------------------------------------------- */

static const struct {
    double u, a, x;
} quantiles[] = {
    {0.03, 0.2, 6.0216742576464081e-07},
    {0.3, 0.2, 0.057880575315493669},
    {0.77, 0.2, 0.98421842945907179},
    {0.0001, 0.8, 1.2737407566199855e-05},
    {0.03, 0.8, 0.015874973094357009},
    {0.3, 0.8, 0.27343033416362883},
    {0.5, 0.8, 0.5},
    {0.77, 0.8, 0.80186635220770808},
    {0.9999, 0.8, 0.99998726259243376},
    {0.0001, 2, 0.0057846675928877695},
    {0.3, 2, 0.36325749109056765},
    {0.77, 2, 0.68900197406529118},
    {0.0001, 8, 0.11618797585828472},
    {0.03, 8, 0.27425428861614398},
    {0.9999, 8, 0.88381202414171711},
    {0.123, 1, 0.123},
};

static void beta(void)
{
    char what[64];
    for (int i = 0; i < COUNT(quantiles); i++) {
        double u = quantiles[i].u, a = quantiles[i].a, x = pl_beta_quantile(u, a);
        snprintf(what, sizeof what, "Beta(%g, %g) at %g", a, a, u);
        /* In the lower half I_x ~ x^a up to a factor between 1/2 and 2 in its slope, so a relative error e of
         * I, itself some 20 eps in two libraries (each a product of a power, whose logarithm is below 12, and
         * a short series), is one of 2 e / a in x; the upper half is 1 minus that. */
        test_bound(what, fabs(x - quantiles[i].x) / fmin(quantiles[i].x, 1), (80 / a + 20) * DBL_EPSILON,
                   "(2 40 / a + 20) eps");
    }
    int64_t disorder = 0;
    for (int i = 1; i < 1000; i++)
        disorder += !(pl_beta_quantile(i / 1000.0, 0.8) < pl_beta_quantile((i + 1) / 1000.5, 0.8));
    test_exact("a larger u, a larger lam", disorder);
    double lo = pl_beta_quantile(0x1p-53, 0.01), hi = pl_beta_quantile(1 - 0x1p-53, 0.01);
    test_true("the ends stay in [0, 1]",
              PART(lo > 0) && PART(lo < 1e-15) && PART(hi <= 1) && PART(hi > 1 - 1e-15), "%g, 1 - %g", lo,
              1 - hi);
}

/* ---- draws -------------------------------------------------------------------------------------- */

static void share(const char *what, int64_t hits, int64_t n, double p)
{
    test_bound(what, fabs((double)hits / (double)n - p), 6 * sqrt(p * (1 - p) / (double)n), "6 sd of a coin");
}

/* Mixup's lam is Beta(0.8, 0.8): mean 1/2, variance 1/(4 (2 a + 1)) = 0.0962, fourth moment about the mean 3
 * / (16 (2 a + 1)(2 a + 3)) = 0.01568; P(lam < 0.27343) = 0.3. */
static void mixup_draws(void)
{
    int64_t cut = 0, mix = 0, low = 0, repeat = 0;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        pl_mix m, again;
        TEST_TRY(pl_mix_draw(&m, &paper, (pl_mix_key){9, i % 5, i}, 224, 224));
        cut += m.kind == PL_MIX_CUTMIX;
        if (m.kind != PL_MIX_MIXUP) continue;
        mix++, sum += m.lam - 0.5, square += (m.lam - 0.5) * (m.lam - 0.5),
            low += m.lam < 0.27343033416362883;
        /* Mixup does not know the size */
        TEST_TRY(pl_mix_draw(&again, &paper, (pl_mix_key){9, i % 5, i}, 32, 48));
        repeat += again.kind != m.kind || again.lam != m.lam;
    }
    double n = (double)mix, variance = 1 / (4 * 2.6), fourth = 3 / (16 * 2.6 * 4.6);
    share("CutMix half of the time", cut, DRAWS, 0.5);
    test_exact("Mixup or CutMix", DRAWS - cut - mix);
    test_bound("Mixup: mean of lam - 1/2", fabs(sum / n), 6 * sqrt(variance / n), "6 sd");
    test_bound("Mixup: variance of lam", fabs(square / n - variance),
               6 * sqrt((fourth - variance * variance) / n), "6 sd");
    share("Mixup: lam below its 0.3 quantile", low, mix, 0.3);
    test_exact("the same key, the same draw", repeat);
}

/* CutMix with alpha 1: lam uniform, sides sqrt(1 - lam) W, a centre anywhere, so that what is cut at the
 * border goes. With s = side / W in (0, 1), P(s < t) = t^2, the part of it inside, along one direction, has
 * mean s - s^2 / 4; the two are independent given s, so the mean area is E[(s - s^2/4)^2] = 1/2
 * - 1/5 + 1/48 = 0.32083. Rounding to pixels: at most 2 / W each way. */
static void cutmix_draws(void)
{
    enum { W = 10000, H = 5000 };
    const pl_mix_options o = {.cutmix_alpha = 1, .prob = 1};
    int64_t wrong = 0, outside = 0, left = 0;
    double sum = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        pl_mix m;
        TEST_TRY(pl_mix_draw(&m, &o, (pl_mix_key){9, 1, i}, W, H));
        wrong +=
            m.kind != PL_MIX_CUTMIX || m.lam != 1 - (double)(m.cut.width * m.cut.height) / ((double)W * H);
        outside += m.cut.x < 0 || m.cut.y < 0 || m.cut.width < 0 || m.cut.height < 0 ||
                   m.cut.x + m.cut.width > W || m.cut.y + m.cut.height > H;
        sum += 1 - m.lam;
        left += 2 * m.cut.x + m.cut.width < W;
    }
    test_exact("CutMix: lam is what stayed", wrong);
    test_exact("CutMix: outside of the picture", outside);
    test_bound("CutMix: mean area", fabs(sum / DRAWS - (0.5 - 0.2 + 1 / 48.0)),
               6 * 0.5 / sqrt(DRAWS) + 8.0 / H, "6 sd, sd of what is in (0, 1) <= 1/2, and rounding");
    test_bound("CutMix: as often left as right", fabs((double)left / DRAWS - 0.5),
               6 * 0.5 / sqrt(DRAWS) + 4.0 / W, "6 sd of a coin, and rounding");
}

/* The rectangle by timm's formula from the documented words: sides int(H sqrt(1 - lam)), half of them, the
 * smaller half first, on either side of the centre. */
static void cutmix_rectangle(void)
{
    enum { WIDE = 15, HIGH = 9 };
    const pl_mix_options o = {.cutmix_alpha = 1, .prob = 1};
    int64_t wrong = 0, odd = 0;
    for (int64_t i = 0; i < 2000; i++) {
        pl_mix m;
        TEST_TRY(pl_mix_draw(&m, &o, (pl_mix_key){4, 2, i}, WIDE, HIGH));
        pl_u4 r = pl_philox(4, PL_STREAM_MIX, 2, (uint64_t)1 << 48 | (uint64_t)i);
        double side = sqrt(1 - pl_uniform_f64(r.x, r.y));
        int h = (int)(HIGH * side), w = (int)(WIDE * side), cy = (int)((uint64_t)r.z * HIGH >> 32),
            cx = (int)((uint64_t)r.w * WIDE >> 32);
        int top = cy - h / 2, bottom = cy + h - h / 2, left = cx - w / 2, right = cx + w - w / 2;
        top = top < 0 ? 0 : top, left = left < 0 ? 0 : left, bottom = bottom > HIGH ? HIGH : bottom,
        right = right > WIDE ? WIDE : right;
        wrong +=
            m.cut.x != left || m.cut.y != top || m.cut.width != right - left || m.cut.height != bottom - top;
        odd += h % 2 && w % 2;
    }
    test_true("CutMix: the rectangle", !wrong && odd > 100, "%lld of 2000 differ; %lld with odd sides",
              (long long)wrong, (long long)odd);
}

static void other_options(void)
{
    pl_mix_options o = paper;
    int64_t none = 0, bad = 0;
    pl_mix m;
    o.prob = 0.25;
    for (int64_t i = 0; i < DRAWS; i++) {
        TEST_TRY(pl_mix_draw(&m, &o, (pl_mix_key){3, 0, i}, 32, 32));
        none += m.kind == PL_MIX_NONE;
        bad += m.kind == PL_MIX_NONE && m.lam != 1;
    }
    share("mixed with probability 1/4", none, DRAWS, 0.75);
    o.mixup_alpha = o.cutmix_alpha = 0, o.prob = 1;
    TEST_TRY(pl_mix_draw(&m, &o, (pl_mix_key){3, 0, 0}, 32, 32));
    bad += m.kind != PL_MIX_NONE || m.lam != 1;
    o.mixup_alpha = 0.8;
    for (int64_t i = 0; i < 100; i++) {
        TEST_TRY(pl_mix_draw(&m, &o, (pl_mix_key){3, 0, i}, 32, 32));
        bad += m.kind != PL_MIX_MIXUP;
    }
    test_exact("one of the two, or none", bad);
}

/* ---- pictures and targets ----------------------------------------------------------------------- */

enum { N = 6, C = 3, H = 10, W = 14, CLASSES = 10, PICTURE = C * H * W };

static void pictures(void)
{
    float x[N * PICTURE], y[N * PICTURE];
    pl_mix up = {.kind = PL_MIX_MIXUP, .lam = 0.3137},
           cut = {.kind = PL_MIX_CUTMIX, .lam = 1 - 24 / 140., .cut = {5, 2, 4, 6}}, none = pl_mix_none(),
           empty = {.kind = PL_MIX_CUTMIX, .lam = 1};
    int64_t wrong[3] = {0};
    for (int64_t i = 0; i < N * PICTURE; i++) x[i] = (float)pl_normal(1, PL_STREAM_TEST, 0, (uint64_t)i).a;
    memcpy(y, x, sizeof x);
    TEST_TRY(pl_mix_images(y, &up, N, C, W, H));
    for (int64_t i = 0; i < N * PICTURE; i++) {
        /* torch: mul_, mul_, add_ */
        float a = x[i] * (float)0.3137,
              b = x[(N - 1 - i / PICTURE) * PICTURE + i % PICTURE] * (float)(1 - 0.3137);
        wrong[0] += y[i] != a + b;
    }
    memcpy(y, x, sizeof x);
    TEST_TRY(pl_mix_images(y, &cut, N, C, W, H));
    for (int64_t i = 0; i < N * PICTURE; i++) {
        int64_t u = i % W, v = i / W % H;
        int inside = u >= 5 && u < 9 && v >= 2 && v < 8;
        wrong[1] += y[i] != (inside ? x[(N - 1 - i / PICTURE) * PICTURE + i % PICTURE] : x[i]);
    }
    memcpy(y, x, sizeof x);
    TEST_TRY(pl_mix_images(y, &none, N - 1, C, W, H));
    TEST_TRY(pl_mix_images(y, &empty, N, C, W, H));
    wrong[2] = memcmp(x, y, sizeof x) != 0;
    test_exact("Mixup of pictures", wrong[0]);
    test_exact("CutMix of pictures", wrong[1]);
    test_exact("nothing to mix", wrong[2]);
}

/* timm's mixup_target in floats: y1 lam + y2 (1 - lam) of smoothed one-hot rows. */
static void targets(void)
{
    static const int32_t label[N] = {1, 2, 3, 3, 2, 9};
    float t[N * CLASSES];
    pl_mix m = {.kind = PL_MIX_MIXUP, .lam = 0.3137}, none = pl_mix_none();
    int64_t wrong = 0, plain = 0;
    double sum = 0;
    TEST_TRY(pl_mix_targets(t, &m, label, N, CLASSES, 0.1));
    for (int i = 0; i < N; i++) {
        double row = 0;
        for (int k = 0; k < CLASSES; k++) {
            float y1 = k == label[i] ? (float)(1 - 0.1 + 0.1 / CLASSES) : (float)(0.1 / CLASSES),
                  y2 = k == label[N - 1 - i] ? (float)(1 - 0.1 + 0.1 / CLASSES) : (float)(0.1 / CLASSES);
            float a = y1 * (float)0.3137, b = y2 * (float)(1 - 0.3137);
            wrong += t[i * CLASSES + k] != a + b;
            row += (double)t[i * CLASSES + k];
        }
        sum = fmax(sum, fabs(row - 1));
    }
    test_exact("targets, label by label", wrong);
    test_bound("targets sum to 1", sum, 4 * FLT_EPSILON,
               "each of the parts of 1 is rounded three times to half an ulp, lam and 1 - lam once");
    TEST_TRY(pl_mix_targets(t, &none, label, N, CLASSES, 0));
    for (int i = 0; i < N * CLASSES; i++) plain += t[i] != (float)(i % CLASSES == label[i / CLASSES]);
    test_exact("without mixing and smoothing: one-hot", plain);
}

static void misuse(void)
{
    float x[2 * 3] = {0}, t[4];
    pl_mix m, up = {.kind = PL_MIX_MIXUP, .lam = 0.5},
              cut = {.kind = PL_MIX_CUTMIX, .lam = 0.5, .cut = {0, 0, 2, 1}};
    pl_mix_options o = paper;
    const int32_t label[2] = {0, 2};
    o.mixup_alpha = -1;
    test_true("a negative alpha", pl_mix_draw(&m, &o, (pl_mix_key){0}, 8, 8) == POLAR_E_ARG, "%s",
              polar_error_message());
    o = paper, o.switch_prob = 1.5;
    test_true("a probability of 1.5", pl_mix_draw(&m, &o, (pl_mix_key){0}, 8, 8) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("batch -1", pl_mix_draw(&m, &paper, (pl_mix_key){0, 0, -1}, 8, 8) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("an odd batch", pl_mix_images(x, &up, 1, 3, 1, 1) == POLAR_E_ARG, "%s", polar_error_message());
    test_true("a rectangle of another size", pl_mix_images(x, &cut, 2, 3, 1, 1) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("a label beyond the classes", pl_mix_targets(t, &up, label, 2, 2, 0) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("smoothing by 2", pl_mix_targets(t, &up, label, 1, 2, 2) == POLAR_E_ARG, "%s",
              polar_error_message());
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    beta();
    mixup_draws();
    cutmix_draws();
    cutmix_rectangle();
    other_options();
    pictures();
    targets();
    misuse();
    return test_end();
}
