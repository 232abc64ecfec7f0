/* test_augment.c -- the distributions of what is drawn for a picture, and the recipes' chains: for training
 * against their parts, for tests against hashes of torchvision's results (picture_fixture.h).
 *
 * Pictures are exact. Statistical bounds are 6 standard deviations, which a right draw passes with
 * probability 1 - 2e-9 per line; seeds are fixed, so a line passes always or never.
 */
#include "data/augment/augment.h"

#include "base/alloc.h"
#include "picture_fixture.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define DRAWS       60000

/* ---- distributions ------------------------------------------------------------------------------ */

static void share(const char *what, int64_t hits, int64_t n, double p)
{
    test_bound(what, fabs((double)hits / (double)n - p), 6 * sqrt(p * (1 - p) / (double)n), "6 sd of a coin");
}

/* Moments of what should be uniform in (0, 1); `grain`: rounding that the variable went through. */
static void uniform(const char *what, double sum, double square, int64_t n, double grain)
{
    char full[96];
    double m = sum / (double)n, v = square / (double)n - m + 0.25; /* the second moment about 1/2 */
    snprintf(full, sizeof full, "%s: mean", what);
    test_bound(full, fabs(m - 0.5), 6 * sqrt(1 / 12.0 / (double)n) + grain,
               "6 sd, var u = 1/12, and rounding");
    snprintf(full, sizeof full, "%s: variance", what);
    test_bound(full, fabs(v - 1 / 12.0), 6 * sqrt(1 / 180.0 / (double)n) + grain,
               "6 sd, var (u - 1/2)^2 = 1/180, and rounding");
}

static void rand_draws(void)
{
    pl_rand_augment ra;
    pl_image_op_args ops[PL_DRAW_LAYERS];
    int64_t count[3] = {0}, op[PL_IMAGE_OPS] = {0}, negative = 0, moved = 0, at_top = 0, both = 0, out = 0;
    double sum = 0, chi = 0, all = 0;
    TEST_TRY(pl_rand_augment_parse(&ra, "rand-m9-mstd0.5-inc1"));
    test_true("rand-m9-mstd0.5-inc1",
              PART(ra.layers == 2) && PART(ra.magnitude == 9) && PART(ra.std == 0.5) && PART(ra.prob == 0.5),
              "%d layers, m %g, std %g, p %g", ra.layers, ra.magnitude, ra.std, ra.prob);
    for (int64_t i = 0; i < DRAWS; i++) {
        int n = pl_rand_augment_draw(ops, &ra, (pl_draw_key){7, i % 3, i});
        count[n]++;
        for (int k = 0; k < n; k++) {
            op[ops[k].op]++;
            if (ops[k].op != PL_IMAGE_ROTATE) continue;
            double magnitude = fabs(ops[k].arg) / 3;
            moved++;
            sum += magnitude;
            negative += ops[k].arg < 0;
            at_top += magnitude == 10;
            out += magnitude > 10;
        }
        both += n == 2 && ops[0].op == ops[1].op;
    }
    for (int k = 0; k < PL_IMAGE_OPS; k++) all += (double)op[k];
    for (int k = 0; k < PL_IMAGE_OPS; k++)
        chi += ((double)op[k] - all / PL_IMAGE_OPS) * ((double)op[k] - all / PL_IMAGE_OPS) /
               (all / PL_IMAGE_OPS);
    share("RandAugment: no operation", count[0], DRAWS, 0.25);
    share("RandAugment: two operations", count[2], DRAWS, 0.25);
    share("RandAugment: the same twice", both, count[2], 1.0 / PL_IMAGE_OPS);
    test_bound("RandAugment: chi^2 over 15 operations - 14", fabs(chi - 14), 6 * sqrt(2 * 14.0),
               "6 sd, var chi^2_k = 2k");
    share("RandAugment: negative", negative, moved, 0.5);
    share("RandAugment: magnitude cut at 10", at_top, moved, 0.022750131948); /* P(z > 2) */
    test_exact("RandAugment: magnitude above 10", out);
    /* the cut takes 0.5 (phi(2) - 2 P(z > 2)) from the mean; the variance only shrinks */
    test_bound("RandAugment: mean magnitude",
               fabs(sum / (double)moved - (9 - 0.5 * (0.053990966513 - 2 * 0.022750131948))),
               6 * 0.5 / sqrt((double)moved), "6 sd, var < 1/4");
}

static void arguments(void)
{
    /* timm: posterize 4 - int(0.4 m), solarize 256 - min(256, int(25.6 m)), add min(128, int(11 m)), enhance
     * max(0.1, 1 +- 0.09 m) */
    test_true("posterize at 9, 7.4, 10, 0",
              PART(pl_rand_augment_arg(PL_IMAGE_POSTERIZE, 9, 0) == 1) &&
                  PART(pl_rand_augment_arg(PL_IMAGE_POSTERIZE, 7.4, 1) == 2) &&
                  PART(pl_rand_augment_arg(PL_IMAGE_POSTERIZE, 10, 0) == 0) &&
                  PART(pl_rand_augment_arg(PL_IMAGE_POSTERIZE, 0, 0) == 4),
              "1, 2, 0, 4");
    test_true("solarize at 9, 10, 0",
              pl_rand_augment_arg(PL_IMAGE_SOLARIZE, 9, 0) == 26 &&
                  pl_rand_augment_arg(PL_IMAGE_SOLARIZE, 10, 0) == 0 &&
                  pl_rand_augment_arg(PL_IMAGE_SOLARIZE, 0, 0) == 256,
              "26, 0, 256");
    test_true("solarize-add at 9, 10",
              pl_rand_augment_arg(PL_IMAGE_SOLARIZE_ADD, 9, 0) == 99 &&
                  pl_rand_augment_arg(PL_IMAGE_SOLARIZE_ADD, 10, 0) == 110,
              "99, 110");
    test_true("enhancing at 10",
              pl_rand_augment_arg(PL_IMAGE_COLOR, 10, 1) == 0.1 &&
                  pl_rand_augment_arg(PL_IMAGE_SHARPNESS, 10, 0) == 1.9,
              "0.1, 1.9");
    pl_rand_augment ra;
    static const char *const wrong[] = {"",
                                        "random-m9",
                                        "rand-m9",
                                        "rand-m11-inc1",
                                        "rand-inc0",
                                        "rand-q3-inc1",
                                        "rand-m-inc1",
                                        "rand--inc1",
                                        "rand-m9x-inc1",
                                        "rand-n17-inc1",
                                        "rand-n1.5-inc1",
                                        "rand-inc1-"};
    int64_t taken = 0;
    for (int i = 0; i < COUNT(wrong); i++) taken += pl_rand_augment_parse(&ra, wrong[i]) != POLAR_E_ARG;
    test_exact("malformed RandAugment words", taken);
    test_true("words in another order",
              PART(pl_rand_augment_parse(&ra, "rand-inc1-p0.25-n3-m5") == POLAR_OK) && PART(ra.layers == 3) &&
                  PART(ra.prob == 0.25) && PART(ra.magnitude == 5) && PART(ra.std == 0),
              "n 3, p 0.25, m 5");
}

/* Sides of 100000 pixels and areas to 1/2, so that every first try fits and rounding moves a moment by less
 * than 1e-4 (a side of at least 0.24 W is off by 1/2). */
static void crop_draws(void)
{
    enum { W = 100000 };
    pl_augment_options o;
    double area = 0, area2 = 0, ratio = 0, ratio2 = 0, x = 0, x2 = 0, y = 0, y2 = 0, cross = 0;
    TEST_TRY(pl_augment_recipe(&o, "minimal", 224));
    test_true("minimal: RandomResizedCrop's defaults",
              PART(o.scale[0] == 0.08) && PART(o.scale[1] == 1) && PART(o.ratio[0] == 0.75) &&
                  PART(o.ratio[1] == 4 / 3.0) && PART(!o.rand.layers) && PART(o.erasing.prob == 0) &&
                  PART(o.test_side == 256),
              "as torchvision");
    o.scale[1] = 0.5;
    for (int64_t i = 0; i < DRAWS; i++) {
        pl_box c = pl_augment_crop(&o, W, W, (pl_draw_key){5, 2, i});
        double a = ((double)c.width * (double)c.height / ((double)W * W) - 0.08) / 0.42,
               r = (log((double)c.width / (double)c.height) - log(0.75)) / log(16 / 9.0);
        double u = ((double)c.x + 0.5) / (double)(W - c.width + 1),
               v = ((double)c.y + 0.5) / (double)(W - c.height + 1);
        area += a, area2 += a * a, ratio += r, ratio2 += r * r, x += u, x2 += u * u, y += v, y2 += v * v,
            cross += (a - 0.5) * (r - 0.5);
    }
    uniform("crop: area", area, area2, DRAWS, 1e-4);
    uniform("crop: log ratio", ratio, ratio2, DRAWS, 1e-4);
    uniform("crop: left", x, x2, DRAWS, 1e-4);
    uniform("crop: top", y, y2, DRAWS, 1e-4);
    test_bound("crop: area and ratio are uncorrelated", fabs(cross / DRAWS), 6 / 12.0 / sqrt(DRAWS) + 1e-4,
               "6 sd, var = 1/144, and rounding");
}

/* 1000 x 100: a try fits when its height sqrt(A / r) is below 100.5, A uniform in (8000, 100000), r
 * log-uniform; the mean of (10100.25 r - 8000)+ is (10100.25 (4/3 - r0) - 8000 log(4/3 / r0)) / log(16/9), r0
 * = 8000 / 10100.25. After ten the middle 133 x 100. */
static void crop_fallback(void)
{
    pl_augment_options o;
    int64_t middle = 0, outside = 0;
    double r0 = 8000 / 10100.25,
           fits = (10100.25 * (4 / 3.0 - r0) - 8000 * log(4 / 3.0 / r0)) / log(16 / 9.0) / 92000;
    TEST_TRY(pl_augment_recipe(&o, "minimal", 224));
    for (int64_t i = 0; i < DRAWS; i++) {
        pl_box c = pl_augment_crop(&o, 1000, 100, (pl_draw_key){5, 3, i}),
               d = pl_augment_crop(&o, 1 + i % 37, 1 + i % 41, (pl_draw_key){5, 4, i});
        middle += c.x == 433 && c.y == 0 && c.width == 133 && c.height == 100;
        outside +=
            c.width < 1 || c.height < 1 || c.x < 0 || c.y < 0 || c.x + c.width > 1000 || c.y + c.height > 100;
        outside += d.width < 1 || d.height < 1 || d.x < 0 || d.y < 0 || d.x + d.width > 1 + i % 37 ||
                   d.y + d.height > 1 + i % 41;
    }
    share("crop: the middle after ten tries", middle, DRAWS, pow(1 - fits, 10));
    test_exact("crop: outside of the picture", outside);
    pl_box tall = pl_augment_crop(&o, 10, 20000, (pl_draw_key){1, 0, 0}),
           dot = pl_augment_crop(&o, 1, 1, (pl_draw_key){1, 0, 0});
    test_true("crop: 10 x 20000",
              PART(tall.width == 10) && PART(tall.height == 13) && PART(tall.x == 0) && PART(tall.y == 9993),
              "%lld x %lld at %lld", (long long)tall.width, (long long)tall.height, (long long)tall.y);
    test_true("crop: 1 x 1", dot.width == 1 && dot.height == 1, "itself");
}

static void erase_draws(void)
{
    enum { W = 100000 };
    pl_erasing e = {.prob = 0.25, .area = {0.02, 0.25}, .min_aspect = 0.3},
               /* to 1/4: sqrt(1/4 / 0.3) < 1, all fit */
        real = {.prob = 0.25, .area = {0.02, 1 / 3.}, .min_aspect = 0.3};
    int64_t n = 0, some = 0, outside = 0;
    double area = 0, area2 = 0, aspect = 0, aspect2 = 0, x = 0, x2 = 0;
    for (int64_t i = 0; i < DRAWS; i++) {
        pl_box c = pl_erasing_draw(&e, W, W, (pl_draw_key){6, 2, i}),
               d = pl_erasing_draw(&real, 224, 224, (pl_draw_key){6, 3, i});
        some += d.width > 0;
        outside += d.x < 0 || d.y < 0 || d.x + d.width > 224 || d.y + d.height > 224 || d.width > 223 ||
                   d.height > 223;
        if (!c.width) continue;
        double a = ((double)c.width * (double)c.height / ((double)W * W) - 0.02) / 0.23,
               r = (log((double)c.height / (double)c.width) - log(0.3)) / (-2 * log(0.3)),
               u = ((double)c.x + 0.5) / (double)(W - c.width + 1);
        n++, area += a, area2 += a * a, aspect += r, aspect2 += r * r, x += u, x2 += u * u;
    }
    share("erasing: happens", n, DRAWS, 0.25);
    /* a try fails with probability below 0.02: ten never do */
    share("erasing: happens at 224", some, DRAWS, 0.25);
    test_exact("erasing: outside of the picture", outside);
    uniform("erasing: area", area, area2, n, 2e-4);
    uniform("erasing: log aspect", aspect, aspect2, n, 2e-4);
    uniform("erasing: left", x, x2, n, 2e-4);
}

/* What an erased rectangle holds: zeros, a colour, noise; nothing else is touched, and a draw is a function
 * of its key. */
static void erase_fills(void)
{
    enum { W = 41, H = 30, PICTURES = 4000 };
    static float x[3 * H * W], again[3 * H * W];
    const pl_box w = {7, 5, 30, 20};
    double sum[3] = {0}, squares[3] = {0}, pair = 0;
    int64_t n[3] = {0}, outside = 0, uneven = 0, other = 0;
    for (int fill = PL_ERASE_CONST; fill <= PL_ERASE_PIXEL; fill++)
        for (int64_t k = 0; k < (fill == PL_ERASE_RAND ? PICTURES : 4); k++) {
            pl_draw_key key = {9, 3, k};
            for (int i = 0; i < 3 * H * W; i++) x[i] = again[i] = 77;
            pl_erasing_apply(x, W, H, w, (pl_erasing_fill)fill, key);
            pl_erasing_apply(again, W, H, w, (pl_erasing_fill)fill, key);
            other += memcmp(x, again, sizeof x) != 0;
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < H; y++)
                    for (int i = 0; i < W; i++) {
                        float v = x[(c * H + y) * W + i], first = x[(c * H + w.y) * W + w.x];
                        int in = i >= w.x && i < w.x + w.width && y >= w.y && y < w.y + w.height;
                        if (!in) outside += v != 77;
                        if (in && fill != PL_ERASE_PIXEL) uneven += v != first;
                        if (!in || (fill == PL_ERASE_RAND && (y != w.y || i != w.x))) continue;
                        n[fill]++, sum[fill] += v, squares[fill] += (double)v * v;
                        if (fill == PL_ERASE_PIXEL && i > w.x) pair += (double)v * x[(c * H + y) * W + i - 1];
                    }
        }
    test_exact("erasing: pixels outside that changed", outside);
    test_exact("erasing: zeros and colours are even", uneven);
    test_exact("erasing: the same key, other noise", other);
    test_exact("erasing: const is zero", squares[PL_ERASE_CONST] != 0);
    for (int fill = PL_ERASE_RAND; fill <= PL_ERASE_PIXEL; fill++) {
        double m = (double)n[fill];
        /* standard normals: the mean has deviation 1 / sqrt(n), the mean square sqrt(2 / n); five of them */
        test_bound(fill == PL_ERASE_RAND ? "erasing: rand, mean" : "erasing: pixel, mean",
                   fabs(sum[fill] / m), 5 / sqrt(m), "5 sigma");
        test_bound(fill == PL_ERASE_RAND ? "erasing: rand, variance" : "erasing: pixel, variance",
                   fabs(squares[fill] / m - 1), 5 * sqrt(2 / m), "5 sigma");
    }
    test_bound("erasing: pixel, neighbours", fabs(pair / (double)n[PL_ERASE_PIXEL]),
               5 / sqrt((double)n[PL_ERASE_PIXEL]), "5 sigma of products of independent normals");
}

/* ---- chains ------------------------------------------------------------------------------------- */

/* torchvision 0.29: Resize(size * 256 // 224), CenterCrop(size): hash of the bytes; then ToTensor, Normalize:
 * hash of the floats. */
static const struct {
    int64_t size, width, height;
    uint64_t pixels, floats;
} torchvision[] = {
    {224, 1, 1, 0x921dfb611ac37325u, 0xdb159b851ee71b25u},
    {224, 300, 200, 0x939b6a902a49ef37u, 0x1eaa3ab50e101352u},
    {224, 200, 301, 0xb1e660b3e0f09f6du, 0x0b0dda508d3339fbu},
    {224, 900, 3, 0x21397be63cc7c66cu, 0x47e954dc3369f377u},
    {224, 3, 900, 0xbed3643562bf35f2u, 0x9b0b86b42f050c7fu},
    {224, 256, 256, 0xa36c3b35847ebf75u, 0x79504f37d62bd51bu},
    {224, 75, 73, 0x28628cd911ec3847u, 0x086204227caa0266u},
    {64, 1, 1, 0x7d8cedb672eb6325u, 0x2b1bdb20d85c0325u},
    {64, 300, 200, 0xf68b8c2e89ffd7ecu, 0xf1a47d28ff6205dbu},
    {64, 200, 301, 0xeea1357a5a2ea113u, 0x666ef29d64cdea33u},
    {64, 900, 3, 0xa61f58ef66539198u, 0x37cfdcd1a7e48d38u},
    {64, 3, 900, 0x9467d7807b486780u, 0x7f1ab30a08d0b2f2u},
    {64, 256, 256, 0xc6ea49ff79464846u, 0xba4bb7887b206f49u},
    {64, 75, 73, 0x6098fe00f81c4c15u, 0x9c1b49bc55fa60b3u},
};

static void eval_chain(void)
{
    char what[64];
    for (int i = 0; i < COUNT(torchvision); i++) {
        int64_t size = torchvision[i].size;
        pl_augment_options o;
        pl_augment *a;
        TEST_TRY(pl_augment_recipe(&o, i % 2 ? "deit" : "minimal", size));
        TEST_TRY(pl_augment_create(&a, &o));
        float *x = pl_alloc((size_t)(3 * size * size) * sizeof *x);
        pl_image im = picture(torchvision[i].width, torchvision[i].height);
        TEST_TRY(pl_augment_eval(a, x, &im));
        pl_image bytes = pl_augment_pixels(a);
        snprintf(what, sizeof what, "torchvision: %lldx%lld at test, %lld", (long long)im.width,
                 (long long)im.height, (long long)size);
        test_exact(what,
                   (fnv(FNV_START, bytes.data, pl_image_bytes(&bytes)) != torchvision[i].pixels) +
                       (fnv(FNV_START, x, (size_t)(3 * size * size) * sizeof *x) != torchvision[i].floats));
        pl_image_destroy(&im);
        pl_free(x);
        pl_augment_destroy(a);
    }
}

enum { SIZE = 48, NUMBERS = 3 * SIZE * SIZE, PICTURES = 60 };

static pl_image nth(int64_t i)
{
    return picture(20 + 17 * i % 90, 25 + 31 * i % 70);
}

/* The chain put together from its parts. */
static void train_parts(float *x, const pl_augment_options *o, const pl_image *im, pl_draw_key key,
                        int *flipped)
{
    pl_box c = pl_augment_crop(o, im->width, im->height, key);
    pl_image_op_args ops[PL_DRAW_LAYERS];
    pl_image p;
    pl_resizer *r;
    TEST_TRY(pl_image_create(&p, SIZE, SIZE));
    TEST_TRY(pl_resizer_create(&r));
    TEST_TRY(pl_resize(r, &(pl_resize_args){.out = p.data,
                                            .src = pl_image_at(im, c.x, c.y),
                                            .src_width = c.width,
                                            .src_height = c.height,
                                            .src_stride = 3 * im->width,
                                            .out_width = SIZE,
                                            .out_height = SIZE,
                                            .filter = o->filter}));
    pl_u4 u =
        pl_philox(key.seed, PL_STREAM_AUGMENT, (uint64_t)key.epoch, (uint64_t)20 << 48 | (uint64_t)key.image);
    if (u.x < 0x80000000u) pl_image_flip(&p), ++*flipped;
    int n = pl_rand_augment_draw(ops, &o->rand, key);
    for (int k = 0; k < n; k++) apply(&p, ops[k].op, ops[k].arg, (int)o->filter);
    for (int64_t i = 0; i < NUMBERS; i++) {
        int ch = (int)(i / (SIZE * SIZE));
        x[i] =
            ((float)p.data[3 * (i % (SIZE * SIZE)) + ch] / 255.0f - (float)o->mean[ch]) / (float)o->std[ch];
    }
    pl_box e = pl_erasing_draw(&o->erasing, SIZE, SIZE, key);
    for (int64_t i = 0; i < NUMBERS; i++) {
        int64_t px = i % SIZE, py = i / SIZE % SIZE;
        if (px >= e.x && px < e.x + e.width && py >= e.y && py < e.y + e.height) x[i] = 0;
    }
    pl_resizer_destroy(r);
    pl_image_destroy(&p);
}

static void train_chain(const char *recipe)
{
    char what[96];
    pl_augment_options o;
    pl_augment *a, *b;
    float *x = pl_alloc(NUMBERS * sizeof *x), *y = pl_alloc(NUMBERS * sizeof *y);
    uint64_t forward[PICTURES];
    int64_t parts = 0, cropped = 0, order = 0, epochs = 0;
    int flipped = 0;
    TEST_TRY(pl_augment_recipe(&o, recipe, SIZE));
    TEST_TRY(pl_augment_create(&a, &o));
    TEST_TRY(pl_augment_create(&b, &o));
    for (int64_t i = 0; i < PICTURES; i++) {
        pl_image im = nth(i), cut;
        pl_draw_key key = {11, 4, i};
        TEST_TRY(pl_augment_train(a, x, &im, key));
        forward[i] = fnv(FNV_START, x, NUMBERS * sizeof *x);
        train_parts(y, &o, &im, key, &flipped);
        parts += memcmp(x, y, NUMBERS * sizeof *x) != 0;
        pl_box c = pl_augment_crop(&o, im.width, im.height, key);
        TEST_TRY(pl_image_create(&cut, c.width, c.height));
        for (int64_t v = 0; v < c.height; v++)
            memcpy(pl_image_at(&cut, 0, v), pl_image_at(&im, c.x, c.y + v), pl_image_row_bytes(&cut));
        pl_pixels p = {
            cut.data, (int64_t)pl_image_row_bytes(&cut), {0, 0, c.width, c.height}, c.width, c.height};
        TEST_TRY(pl_augment_train_pixels(b, y, &p, key));
        cropped += memcmp(x, y, NUMBERS * sizeof *x) != 0;
        key.epoch++;
        TEST_TRY(pl_augment_train(b, y, &im, key));
        epochs += memcmp(x, y, NUMBERS * sizeof *x) == 0;
        pl_image_destroy(&im);
        pl_image_destroy(&cut);
    }
    /* backwards, with tests in between, on a context with another past */
    for (int64_t i = PICTURES - 1; i >= 0; i--) {
        pl_image im = nth(i);
        TEST_TRY(pl_augment_eval(b, y, &im));
        TEST_TRY(pl_augment_train(b, x, &im, (pl_draw_key){11, 4, i}));
        order += fnv(FNV_START, x, NUMBERS * sizeof *x) != forward[i];
        pl_image_destroy(&im);
    }
    snprintf(what, sizeof what, "%s: the chain is its parts", recipe);
    test_exact(what, parts);
    snprintf(what, sizeof what, "%s: from the crop alone", recipe);
    test_exact(what, cropped);
    snprintf(what, sizeof what, "%s: in any order", recipe);
    test_exact(what, order);
    snprintf(what, sizeof what, "%s: another epoch, another picture", recipe);
    test_exact(what, epochs);
    snprintf(what, sizeof what, "%s: flips", recipe);
    share(what, flipped, PICTURES, 0.5);

    /* all these sizes have been seen: no further memory is asked for */
    int64_t failed = 0;
    static const int64_t seen[4] = {1, 5, 9, 33};
    pl_image im[4] = {nth(1), nth(5), nth(9), nth(33)};
    pl_alloc_fail_at(1);
    for (int k = 0; k < 40; k++) {
        failed += pl_augment_train(b, x, &im[k % 4], (pl_draw_key){11, 4, seen[k % 4]}) != POLAR_OK;
        failed += pl_augment_eval(b, x, &im[k % 4]) != POLAR_OK;
    }
    pl_alloc_fail_at(0);
    for (int k = 0; k < 4; k++) pl_image_destroy(&im[k]);
    snprintf(what, sizeof what, "%s: no allocation per picture", recipe);
    test_exact(what, failed);
    pl_augment_destroy(a);
    pl_augment_destroy(b);
    pl_free(x);
    pl_free(y);
}

/* The recipes share crops and flips where they share a seed: what one adds moves no draw of the other. */
static void shared_draws(void)
{
    pl_augment_options a, b;
    int64_t differ = 0;
    TEST_TRY(pl_augment_recipe(&a, "minimal", 224));
    TEST_TRY(pl_augment_recipe(&b, "deit", 224));
    for (int64_t i = 0; i < 500; i++) {
        pl_box c = pl_augment_crop(&a, 300, 200, (pl_draw_key){1, 0, i}),
               d = pl_augment_crop(&b, 300, 200, (pl_draw_key){1, 0, i});
        differ += memcmp(&c, &d, sizeof c) != 0;
    }
    test_exact("the recipes share their crops", differ);
    test_true("deit",
              PART(b.filter == PL_FILTER_BICUBIC) && PART(b.test_filter == PL_FILTER_BILINEAR) &&
                  PART(b.erasing.prob == 0.25) && PART(b.erasing.area[0] == 0.02) &&
                  PART(b.erasing.area[1] == 1 / 3.) && PART(b.rand.layers == 2),
              "bicubic, tests bilinear, erasing 0.25");
}

static void extremes(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {20000, 10}, {10, 20000}, {1, 300}, {300, 1}, {2, 2}};
    pl_augment_options o;
    pl_augment *a;
    float *x = pl_alloc(NUMBERS * sizeof *x);
    int64_t bad = 0;
    TEST_TRY(pl_augment_recipe(&o, "deit", SIZE));
    TEST_TRY(pl_augment_create(&a, &o));
    for (int k = 0; k < COUNT(sizes); k++) {
        pl_image im = picture(sizes[k][0], sizes[k][1]);
        for (int64_t i = 0; i < 20; i++)
            bad += pl_augment_train(a, x, &im, (pl_draw_key){3, 0, i}) != POLAR_OK;
        bad += pl_augment_eval(a, x, &im) != POLAR_OK;
        for (int64_t i = 0; i < NUMBERS; i++) bad += !(fabsf(x[i]) < 3); /* (1 - 0.406) / 0.225 = 2.64 */
        pl_image_destroy(&im);
    }
    test_exact("1x1, 20000x10, 10x20000, ...", bad);
    pl_augment_destroy(a);
    pl_free(x);
}

static void misuse(void)
{
    pl_augment_options o, w;
    pl_augment *a = NULL;
    float x[3 * 4 * 4];
    int64_t before = pl_alloc_live(), n = 0, bad = 0;
    pl_image im = picture(9, 7), empty = {0};
    test_true("no such recipe", pl_augment_recipe(&o, "heavy", 224) == POLAR_E_ARG, "%s",
              polar_error_message());
    TEST_TRY(pl_augment_recipe(&o, "deit", 4));
    w = o, w.size = 0;
    test_true("pictures of nothing", pl_augment_create(&a, &w) == POLAR_E_ARG && !a, "%s",
              polar_error_message());
    w = o, w.scale[0] = 0;
    test_true("a crop of nothing", pl_augment_create(&a, &w) == POLAR_E_ARG && !a, "%s",
              polar_error_message());
    w = o, w.flip = NAN;
    test_true("a probability of NaN", pl_augment_create(&a, &w) == POLAR_E_ARG && !a, "%s",
              polar_error_message());
    w = o, w.test_side = 3;
    test_true("a short side below the size", pl_augment_create(&a, &w) == POLAR_E_ARG && !a, "%s",
              polar_error_message());
    w = o, w.std[1] = 0;
    test_true("a deviation of 0", pl_augment_create(&a, &w) == POLAR_E_ARG && !a, "%s",
              polar_error_message());
    TEST_TRY(pl_augment_create(&a, &o));
    test_true("an empty picture", pl_augment_train(a, x, &empty, (pl_draw_key){0}) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("picture -1", pl_augment_train(a, x, &im, (pl_draw_key){1, 0, -1}) == POLAR_E_ARG, "%s",
              polar_error_message());
    pl_augment_destroy(a);
    pl_augment_destroy(NULL);
    for (polar_status st = POLAR_E_NOMEM; st != POLAR_OK && n < 40;) {
        pl_alloc_fail_at(++n);
        st = pl_augment_create(&a, &o);
        if (st == POLAR_OK) st = pl_augment_train(a, x, &im, (pl_draw_key){1, 0, 0});
        pl_alloc_fail_at(0);
        pl_augment_destroy(a);
        a = NULL;
        bad += (st != POLAR_OK && st != POLAR_E_NOMEM) + (pl_alloc_live() != before + 1); /* im */
    }
    test_true("memory running out", n > 5 && n < 40 && !bad, "%lld allocations", (long long)n - 1);
    pl_image_destroy(&im);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    rand_draws();
    arguments();
    crop_draws();
    crop_fallback();
    erase_draws();
    erase_fills();
    eval_chain();
    train_chain("minimal");
    train_chain("deit");
    shared_draws();
    extremes();
    misuse();
    return test_end();
}
