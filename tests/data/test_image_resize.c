/* test_image_resize.c -- resampling against Pillow: the golden pictures, hashes of Pillow's results
 * (picture_fixture.h), and the definition written plainly for random sizes, crops, boxes, parts and pieces of
 * the source. Everything is exact, and everything is done twice: as the processor allows, and plainly. */
#include "base/alloc.h"
#include "base/philox.h"
#include "base/safetensors.h"
#include "data/augment/image_resize.h"
#include "picture_fixture.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char *const filter_name[PL_FILTERS] = {"bilinear", "bicubic"};

/* ---- golden ------------------------------------------------------------------------------------- */

static void golden(pl_resizer *r)
{
    /* image.json: crop x0, y0, x1, y1, then the size */
    static const int64_t rows[4][6] = {
        {3, 5, 67, 61, 64, 64}, {0, 0, 96, 80, 32, 32}, {10, 2, 40, 70, 64, 64}, {0, 0, 96, 80, 160, 160}};
    pl_safetensors *f;
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("image.safetensors")));
    const pl_safetensors_entry *image = pl_safetensors_find(f, "image");
    uint8_t *out = pl_alloc(3 * 160 * 160);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < PL_FILTERS; k++) {
            char name[64];
            const int64_t *q = rows[i];
            snprintf(name, sizeof name, "resize.%d.%s", i, filter_name[k]);
            const pl_safetensors_entry *want = pl_safetensors_find(f, name);
            if (!test_true(name,
                           PART(image) && PART(want) && PART(want->bytes == 3 * q[4] * q[5]) &&
                               PART(image->shape[1] == 96),
                           "the golden file has it"))
                continue;
            TEST_TRY(
                pl_resize(r, &(pl_resize_args){.out = out,
                                               .src = (const uint8_t *)image->data + 3 * (q[1] * 96 + q[0]),
                                               .src_width = q[2] - q[0],
                                               .src_height = q[3] - q[1],
                                               .src_stride = 3 * 96,
                                               .out_width = q[4],
                                               .out_height = q[5],
                                               .filter = (pl_filter)k}));
            test_exact(name, bytes_differ(out, want->data, want->bytes));
        }
    pl_free(out);
    pl_safetensors_close(f);
}

/* ---- Pillow 12.3: Image.fromarray(picture).resize((out_width, out_height), filter, box=box) ----- */

static const struct {
    int64_t width, height;
    float box[4];
    int64_t out_width, out_height;
    int filter;
    uint64_t hash;
} pillow[] = {
    {1, 1, {0, 0, 0, 0}, 5, 3, 0, 0x721d3579debe7bd1u},
    {1, 1, {0, 0, 0, 0}, 5, 3, 1, 0x721d3579debe7bd1u},
    {1, 1, {0, 0, 0, 0}, 1, 1, 0, 0xd97cc2186c37cb89u},
    {1, 1, {0, 0, 0, 0}, 1, 1, 1, 0xd97cc2186c37cb89u},
    {7, 5, {0, 0, 0, 0}, 7, 5, 0, 0xb66acbb157c59f39u},
    {7, 5, {0, 0, 0, 0}, 7, 5, 1, 0xb66acbb157c59f39u},
    {500, 3, {0, 0, 0, 0}, 40, 40, 0, 0x799b9a94035a68c2u},
    {500, 3, {0, 0, 0, 0}, 40, 40, 1, 0x66aaf9a3db02dd4au},
    {3, 500, {0, 0, 0, 0}, 40, 40, 0, 0x2fa0b2c8ac0a7776u},
    {3, 500, {0, 0, 0, 0}, 40, 40, 1, 0x859435903cc2bba3u},
    {3, 500, {0, 0, 0, 0}, 40, 600, 0, 0x9364ce4f1f7d9232u},
    {3, 500, {0, 0, 0, 0}, 40, 600, 1, 0x8fa8d5feb51af08cu},
    {2, 201, {0, 0, 0, 0}, 9, 100, 0, 0x733a968fa31767d0u},
    {2, 201, {0, 0, 0, 0}, 9, 100, 1, 0x0bbfe72d97b352b7u},
    {2, 200, {0, 0, 0, 0}, 9, 100, 0, 0x6a133aad45614d80u},
    {2, 200, {0, 0, 0, 0}, 9, 100, 1, 0xa56becd93a5ddfeeu},
    {640, 480, {0, 0, 0, 0}, 224, 224, 0, 0xe33f6753c0498c23u},
    {640, 480, {0, 0, 0, 0}, 224, 224, 1, 0x9f2dda5d049b350fu},
    {37, 53, {0, 0, 0, 0}, 224, 17, 0, 0x5eae6fd115ab9d6bu},
    {37, 53, {0, 0, 0, 0}, 224, 17, 1, 0x7175e663f0730278u},
    {300, 200, {0, 0, 0, 0}, 1, 1, 0, 0xaddc5c1975af198cu},
    {300, 200, {0, 0, 0, 0}, 1, 1, 1, 0xaddc5c1975af198cu},
    {60, 40, {0.25f, 0.5f, 59.75f, 39.5f}, 33, 21, 0, 0xed748ee560d84575u},
    {60, 40, {0.25f, 0.5f, 59.75f, 39.5f}, 33, 21, 1, 0xd0de9e01ae94099eu},
    {60, 40, {10.1f, 3.7f, 14.9f, 30.3f}, 64, 64, 0, 0x29d44bc04bc09921u},
    {60, 40, {10.1f, 3.7f, 14.9f, 30.3f}, 64, 64, 1, 0x80195e0d4972be2eu},
    {60, 40, {20, 10, 50, 35}, 30, 25, 0, 0xf8533c1f9a5a9e1du},
    {60, 40, {20, 10, 50, 35}, 30, 25, 1, 0xf8533c1f9a5a9e1du},
    {3, 400, {0.5f, 10.25f, 2.5f, 390.5f}, 20, 50, 0, 0x0c801a2febb8cf73u},
    {3, 400, {0.5f, 10.25f, 2.5f, 390.5f}, 20, 50, 1, 0x7df2c9799817d84au},
};

static void against_pillow(pl_resizer *r)
{
    char what[96];
    for (int i = 0; i < COUNT(pillow); i++) {
        pl_image im = picture(pillow[i].width, pillow[i].height), out;
        TEST_TRY(pl_image_create(&out, pillow[i].out_width, pillow[i].out_height));
        pl_resize_args a = {.out = out.data,
                            .src = im.data,
                            .src_width = im.width,
                            .src_height = im.height,
                            .src_stride = 3 * im.width,
                            .out_width = out.width,
                            .out_height = out.height,
                            .filter = (pl_filter)pillow[i].filter};
        memcpy(a.box, pillow[i].box, sizeof a.box);
        TEST_TRY(pl_resize(r, &a));
        snprintf(what, sizeof what, "Pillow: %lldx%lld to %lldx%lld %s%s", (long long)im.width,
                 (long long)im.height, (long long)out.width, (long long)out.height, filter_name[a.filter],
                 a.box[2] > 0 ? ", a box" : "");
        test_exact(what, fnv(FNV_START, out.data, pl_image_bytes(&out)) != pillow[i].hash);
        pl_image_destroy(&im);
        pl_image_destroy(&out);
    }
}

/* ---- the definition, one pixel at a time -------------------------------------------------------- */

static double kernel(int filter, double x)
{
    x = fabs(x);
    if (!filter) return x < 1 ? 1 - x : 0;
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

/* Output i of one line of `side` bytes, `step` apart, seen through x0 .. x1 and `size` outputs. */
static uint8_t plain_value(const uint8_t *line, int64_t step, int64_t side, float x0, float x1, int64_t size,
                           int64_t i, int filter)
{
    double scale = (double)(x1 - x0) / (double)size, wide = fmax(scale, 1), reach = (filter ? 2 : 1) * wide,
           centre = (double)x0 + ((double)i + 0.5) * scale, sum = 0;
    int64_t from = (int64_t)fmax(centre - reach + 0.5, 0),
            to = (int64_t)fmin(centre + reach + 0.5, (double)side);
    int64_t total = 1 << 21;
    for (int64_t j = from; j < to; j++) sum += kernel(filter, ((double)j + 0.5 - centre) / wide);
    for (int64_t j = from; j < to; j++)
        total += llround(kernel(filter, ((double)j + 0.5 - centre) / wide) / sum * 4194304) * line[j * step];
    total >>= 22;
    return (uint8_t)(total < 0 ? 0 : total > 255 ? 255 : total);
}

/* Rows, then columns, into bytes each time. The weights here are computed by other roundings (a division for
 * a product with the inverse), each within 4 eps of the library's, so that a whole multiple of 2^-22 can
 * differ by one where the weight lies within 4 eps 2^22 = 4e-9 of a half: in the cases below, none does. */
static void plain_resize(uint8_t *out, const uint8_t *src, int64_t stride, int64_t w, int64_t h,
                         const float box[4], int64_t ow, int64_t oh, int filter, uint8_t *between)
{
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < 3 * ow; x++)
            between[y * 3 * ow + x] =
                plain_value(src + y * stride + x % 3, 3, w, box[0], box[2], ow, x / 3, filter);
    for (int64_t y = 0; y < oh; y++)
        for (int64_t x = 0; x < 3 * ow; x++)
            out[y * 3 * ow + x] = plain_value(between + x, 3 * ow, h, box[1], box[3], oh, y, filter);
}

static int64_t draw(uint64_t *next, int64_t lo, int64_t hi)
{
    return lo + pl_uniform_below(pl_philox(3, PL_STREAM_TEST, 20, (*next)++).x, (uint32_t)(hi - lo + 1));
}

/* The same part from no more of the source than it looks at, in memory of just that size. */
static int64_t piece_differs(pl_resizer *r, const pl_resize_args *whole, const uint8_t *want)
{
    pl_resize_args a = *whole;
    TEST_TRY(pl_resize_reach(&a.have, &a));
    int64_t bytes = 3 * a.part.width * a.part.height, row = 3 * a.have.width;
    uint8_t *piece = malloc((size_t)(row * a.have.height)), *got = malloc((size_t)bytes);
    for (int64_t y = 0; y < a.have.height; y++)
        memcpy(piece + y * row, a.src + (a.have.y + y) * a.src_stride + 3 * a.have.x, (size_t)row);
    a.src = piece, a.src_stride = row, a.out = got;
    TEST_TRY(pl_resize(r, &a));
    int64_t wrong = bytes_differ(got, want, bytes);
    a.have.height--; /* a row less is either not needed (weights of zero at the end) or refused */
    wrong += a.have.height && pl_resize(r, &a) == POLAR_OK && bytes_differ(got, want, bytes);
    free(piece);
    free(got);
    return wrong;
}

static void against_definition(pl_resizer *r)
{
    enum { SIDE = 90, CASES = 120 };
    uint8_t *between = pl_alloc(3 * SIDE * SIDE), *want = pl_alloc(3 * SIDE * SIDE),
            *got = pl_alloc(3 * SIDE * SIDE + 1);
    int64_t whole = 0, boxed = 0, part = 0, beyond = 0, pieces = 0;
    uint64_t n = 0;
    for (int i = 0; i < CASES; i++) {
        pl_image im = picture(draw(&n, 1, SIDE), draw(&n, 1, SIDE));
        if (i % 2)
            for (size_t k = 0; k < pl_image_bytes(&im); k++) /* overshoots to be cut */
                im.data[k] = (uint8_t)(pl_philox(4, PL_STREAM_TEST, (uint64_t)i, k).x & 1 ? 255 : 0);
        int64_t x = draw(&n, 0, im.width - 1), y = draw(&n, 0, im.height - 1), w = draw(&n, 1, im.width - x),
                h = draw(&n, 1, im.height - y), ow = draw(&n, 1, SIDE), oh = draw(&n, 1, SIDE);
        int filter = i / 2 % 2;
        pl_resize_args a = {.out = got,
                            .src = pl_image_at(&im, x, y),
                            .src_width = w,
                            .src_height = h,
                            .src_stride = 3 * im.width,
                            .out_width = ow,
                            .out_height = oh,
                            .filter = (pl_filter)filter};
        float all[4] = {0, 0, (float)w, (float)h},
              some[4] = {(float)w * 0.125f, (float)h * 0.0625f, (float)w * 0.75f, (float)h};
        plain_resize(want, a.src, a.src_stride, w, h, all, ow, oh, filter, between);
        got[3 * ow * oh] = 77;
        TEST_TRY(pl_resize(r, &a));
        whole += bytes_differ(got, want, 3 * ow * oh);
        beyond += got[3 * ow * oh] != 77;

        int64_t px = draw(&n, 0, ow - 1), py = draw(&n, 0, oh - 1), pw = draw(&n, 1, ow - px),
                ph = draw(&n, 1, oh - py);
        pl_resize_args b = a;
        b.part = (pl_box){px, py, pw, ph}, b.flip = 1;
        got[3 * pw * ph] = 77;
        TEST_TRY(pl_resize(r, &b));
        for (int64_t v = 0; v < ph; v++)
            for (int64_t u = 0; u < pw; u++)
                part += memcmp(got + 3 * (v * pw + u), want + 3 * ((py + v) * ow + px + pw - 1 - u), 3) != 0;
        beyond += got[3 * pw * ph] != 77;
        pieces += piece_differs(r, &b, got);

        plain_resize(want, a.src, a.src_stride, w, h, some, ow, oh, filter, between);
        memcpy(a.box, some, sizeof some);
        TEST_TRY(pl_resize(r, &a));
        boxed += bytes_differ(got, want, 3 * ow * oh);
        pl_image_destroy(&im);
    }
    test_exact("the definition: crops", whole);
    test_exact("the definition: a mirrored part", part);
    test_exact("the definition: a box", boxed);
    test_exact("a part from a piece of the source", pieces);
    test_exact("no byte beyond the result is written", beyond);
    pl_free(between);
    pl_free(want);
    pl_free(got);
}

/* A constant stays: the weights sum to 2^22 within half a unit each, 255 times which is below the rounding's
 * half for fewer than 2^22 / 255 = 16448 of them. */
static void constants(pl_resizer *r)
{
    enum { OUT = 50 };
    pl_image im;
    uint8_t out[3 * OUT * OUT];
    int64_t wrong = 0;
    TEST_TRY(pl_image_create(&im, 700, 900));
    for (int v = 0; v < 256; v += 51) {
        memset(im.data, v, pl_image_bytes(&im));
        for (int k = 0; k < PL_FILTERS; k++) {
            TEST_TRY(pl_resize(r, &(pl_resize_args){.out = out,
                                                    .src = im.data,
                                                    .src_width = 700,
                                                    .src_height = 900,
                                                    .src_stride = 2100,
                                                    .out_width = OUT,
                                                    .out_height = OUT,
                                                    .filter = (pl_filter)k}));
            for (int i = 0; i < 3 * OUT * OUT; i++) wrong += out[i] != v;
        }
    }
    test_exact("a constant stays", wrong);
    pl_image_destroy(&im);
}

/* 20000 x 10 to a short side of 256 would be 512000 x 256; the part is that of the whole, here checked
 * against a box of whole pixels' worth. */
static void huge(pl_resizer *r)
{
    pl_image im = picture(20000, 10);
    uint8_t *out = pl_alloc(3 * 224 * 224), *same = pl_alloc(3 * 224 * 224);
    pl_resize_args a = {.out = out,
                        .src = im.data,
                        .src_width = 20000,
                        .src_height = 10,
                        .src_stride = 60000,
                        .out_width = 512000,
                        .out_height = 256,
                        .part = {255888, 16, 224, 224},
                        .filter = PL_FILTER_BILINEAR};
    TEST_TRY(pl_resize(r, &a));
    /* columns 255888 to 256112 of 512000 are pixels 9995.625 to 10004.375 of 20000 (25.6 columns a pixel),
     * all exact in binary */
    pl_resize_args b = a;
    b.out = same, b.out_width = 224, b.part = (pl_box){0, 16, 224, 224};
    memcpy(b.box, (float[4]){9995.625f, 0, 10004.375f, 10}, sizeof b.box);
    TEST_TRY(pl_resize(r, &b));
    /* the scales 20000 / 512000 and 8.75 / 224 are both 5/128 exactly, so the weights are the same numbers */
    test_exact("a part of 512000 x 256", bytes_differ(out, same, 3 * 224 * 224));
    pl_free(out);
    pl_free(same);
    pl_image_destroy(&im);
}

static void misuse(void)
{
    pl_resizer *r = NULL;
    uint8_t src[12] = {0}, out[12];
    int64_t before = pl_alloc_live(), n = 0, bad = 0;
    TEST_TRY(pl_resizer_create(&r));
    const pl_resize_args ok = {.out = out,
                               .src = src,
                               .src_width = 2,
                               .src_height = 2,
                               .src_stride = 6,
                               .out_width = 2,
                               .out_height = 2};
    pl_resize_args a = ok;
    a.src_width = 0;
    test_true("an empty picture", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    a = ok, a.out_height = 0;
    test_true("to nothing", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    a = ok, a.box[2] = 3, a.box[3] = 2;
    test_true("a box outside", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    a = ok, a.box[2] = NAN;
    test_true("a box of NaN", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    a = ok, a.part = (pl_box){1, 0, 2, 2};
    test_true("a part outside", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    a = ok, a.have = (pl_box){0, 0, 2, 1};
    test_true("less of the source than it takes", pl_resize(r, &a) == POLAR_E_ARG, "%s",
              polar_error_message());
    a = ok, a.filter = PL_FILTERS;
    test_true("no such filter", pl_resize(r, &a) == POLAR_E_ARG, "%s", polar_error_message());
    pl_resizer_destroy(r);
    pl_resizer_destroy(NULL);
    for (polar_status st = POLAR_E_NOMEM; st != POLAR_OK && n < 30;) {
        pl_alloc_fail_at(++n);
        st = pl_resizer_create(&r);
        if (st == POLAR_OK) st = pl_resize(r, &ok);
        pl_alloc_fail_at(0);
        /* a resizer that once ran out still works */
        if (st == POLAR_E_NOMEM && r) bad += pl_resize(r, &ok) != POLAR_OK;
        pl_resizer_destroy(r);
        r = NULL;
        bad += (st != POLAR_OK && st != POLAR_E_NOMEM) + (pl_alloc_live() != before);
    }
    test_true("memory running out", n > 5 && n < 30 && !bad, "%lld allocations", (long long)n - 1);
}

int main(int argc, char **argv)
{
    pl_resizer *r;
    test_begin(argc, argv);
    TEST_TRY(pl_resizer_create(&r));
    for (int plain = 0; plain < 2; plain++) {
        pl_resizer_set_plain(r, plain);
        printf("%s\n", plain ? "plainly:" : "as the processor allows:");
        golden(r);
        against_pillow(r);
        against_definition(r);
        constants(r);
        huge(r);
    }
    pl_resizer_destroy(r);
    misuse();
    return test_end();
}
