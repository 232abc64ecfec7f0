/* test_augment_op.c -- pictures made and mixed by a device have the bits of the host's pipeline: crops, both
 * filters, flips, every operation of RandAugment, erasing, the test's crop, Mixup and CutMix; what the ops
 * refuse, and rows that make no sense.
 *
 *     ctest -R test_augment_op
 *     test_augment_op DEVICE few    without the large pictures
 */
#include "base/alloc.h"
#include "data/augment/augment.h"
#include "data/augment/mix.h"
#include "data/set/image_synth.h"
#include "device/queue.h"
#include "fixtures/place.h"

#define PICTURES 8
#define SIZES    5

/* of the pictures: square, wide, high, small, one pixel high */
static const int64_t widths[SIZES] = {64, 150, 40, 9, 30}, heights[SIZES] = {64, 64, 131, 11, 1};

typedef struct {
    place at;
    uint8_t *bytes; /* of all pictures */
    int64_t count, offset[SIZES], tallest, longest;
    pl_mat P;
} pictures;

static pictures pictures_open(const char *device)
{
    pictures p = {.at = place_open(device)};
    for (int i = 0; i < SIZES; i++) {
        p.offset[i] = p.count;
        p.count += 3 * widths[i] * heights[i];
        if (heights[i] > p.tallest) p.tallest = heights[i];
        if (widths[i] > p.longest) p.longest = widths[i];
        if (heights[i] > p.longest) p.longest = heights[i];
    }
    p.count = (p.count + 3) / 4 * 4;
    p.bytes = calloc((size_t)p.count, 1);
    for (int i = 0; i < SIZES; i++) /* waves and noise: neighbours are alike, and every byte occurs */
        for (int64_t k = 0; k < 3 * widths[i] * heights[i]; k++) {
            int64_t x = k / 3 % widths[i], y = k / 3 / widths[i];
            uint32_t noise = pl_philox(3, PL_STREAM_TEST, (uint64_t)i, (uint64_t)k).x % 40;
            p.bytes[p.offset[i] + k] =
                (uint8_t)(100 + 90 * sin((double)(x * (k % 3 + 1) + 3 * y) / 9) + noise);
        }
    TEST_TRY(pl_mat_alloc(&p.P, p.at.dev, POLAR_DTYPE_F32, 1, 1, p.count / 4));
    polar_queue_upload(p.at.q, p.P.data, p.bytes, (size_t)p.count);
    return p;
}

static void pictures_close(pictures *p)
{
    pl_mat_free(&p->P, p->at.dev);
    place_close(p->at);
    free(p->bytes);
}

/* Rows to floats by the device. */
static void make(float *out, const pictures *p, const double *rows, int64_t n, int64_t side,
                 const float *scale)
{
    pl_mat T, N, Y;
    TEST_TRY(pl_mat_alloc(&T, p->at.dev, POLAR_DTYPE_F64, 1, n, PL_AUG_COLS));
    TEST_TRY(pl_mat_alloc(&N, p->at.dev, POLAR_DTYPE_F32, 1, 3, 256));
    TEST_TRY(pl_mat_alloc(&Y, p->at.dev, POLAR_DTYPE_F32, n, 3 * side, side));
    polar_queue_upload(p->at.q, T.data, rows, pl_mat_bytes(&T));
    polar_queue_upload(p->at.q, N.data, scale, pl_mat_bytes(&N));
    PL_CALL(augment, p->at.q, .Y = Y, .P = p->P, .T = T, .N = N, .height = p->tallest,
            .taps = 4 * p->longest / side + 10);
    polar_queue_download(p->at.q, out, Y.data, pl_mat_bytes(&Y));
    TEST_TRY(polar_queue_sync(p->at.q));
    pl_mat_free(&T, p->at.dev);
    pl_mat_free(&N, p->at.dev);
    pl_mat_free(&Y, p->at.dev);
}

static int64_t differ(const float *a, const float *b, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return bad;
}

/* All pictures, some epochs, by the host and by the device. */
static int64_t compare(const pictures *p, const pl_augment_options *o, int test)
{
    enum { EPOCHS = 8, N = SIZES * EPOCHS };
    int64_t each = 3 * o->size * o->size;
    float *want = calloc((size_t)(N * each), sizeof *want), *got = calloc((size_t)(N * each), sizeof *got);
    double(*rows)[PL_AUG_COLS] = calloc(N, sizeof *rows);
    pl_augment *a;
    TEST_TRY(pl_augment_create(&a, o));
    for (int i = 0; i < N; i++) {
        int k = i % SIZES;
        pl_image im = pl_image_view(p->bytes + p->offset[k], widths[k], heights[k]);
        pl_draw_key key = {7, i / SIZES, k};
        TEST_TRY(test ? pl_augment_eval(a, want + i * each, &im)
                      : pl_augment_train(a, want + i * each, &im, key));
        TEST_TRY(test ? pl_augment_eval_row(rows[i], a, p->offset[k], widths[k], heights[k])
                      : pl_augment_train_row(rows[i], a, p->offset[k], widths[k], heights[k], key));
    }
    make(got, p, rows[0], N, o->size, pl_augment_scale(a));
    int64_t bad = differ(want, got, N * each);
    pl_augment_destroy(a);
    free(want);
    free(got);
    free(rows);
    return bad;
}

static void test_recipes(const pictures *p, int few)
{
    static const int64_t sides[] = {32, 17, 200};
    static const char *const recipes[] = {"minimal", "deit"};
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < (few ? 2 : 3); s++)
            for (int test = 0; test < 2; test++) {
                pl_augment_options o;
                char name[96];
                TEST_TRY(pl_augment_recipe(&o, recipes[r], sides[s]));
                if (r) o.test_filter = PL_FILTER_BICUBIC;
                snprintf(name, sizeof name, "%s, %lld pixels, %s", recipes[r], (long long)sides[s],
                         test ? "test" : "training");
                test_exact(name, compare(p, &o, test));
            }
}

/* Erased to a colour and to noise, with a seed and an epoch of many bits; and by the box alone. */
static void test_fills(const pictures *p)
{
    static const char *const names[] = {"erased to zeros", "erased to a colour", "erased to noise"};
    enum { SIDE = 31, EPOCHS = 8 };
    const int64_t each = 3 * SIDE * SIDE;
    static float want[3 * SIDE * SIDE], got[3 * SIDE * SIDE];
    for (int fill = PL_ERASE_CONST; fill <= PL_ERASE_PIXEL; fill++) {
        int64_t bad = 0, whole = 0;
        pl_augment_options o;
        pl_augment *a;
        TEST_TRY(pl_augment_recipe(&o, "minimal", SIDE));
        o.erasing.prob = 1, o.erasing.fill = (pl_erasing_fill)fill;
        TEST_TRY(pl_augment_create(&a, &o));
        for (int i = 0; i < SIZES * EPOCHS; i++) {
            int k = i % SIZES;
            double row[PL_AUG_COLS];
            uint8_t *part = p->bytes + p->offset[k];
            pl_image im = pl_image_view(part, widths[k], heights[k]);
            pl_draw_key key = {0xfedcba9876543210u + (uint64_t)i, ((int64_t)1 << 47) + i,
                               ((int64_t)1 << 46) + k};
            TEST_TRY(pl_augment_train(a, want, &im, key));
            TEST_TRY(pl_augment_train_row(row, a, p->offset[k], widths[k], heights[k], key));
            make(got, p, row, 1, SIDE, pl_augment_scale(a));
            bad += differ(want, got, each);
            pl_box box = pl_augment_row_cut(row, 0);
            uint8_t *cut = calloc((size_t)(3 * box.width * box.height + 3), 1);
            for (int64_t y = 0; y < box.height; y++)
                memcpy(cut + 3 * y * box.width, pl_image_at(&im, box.x, box.y + y), (size_t)(3 * box.width));
            pictures alone = *p;
            alone.P.cols = (3 * box.width * box.height + 3) / 4;
            TEST_TRY(pl_mat_alloc(&alone.P, p->at.dev, POLAR_DTYPE_F32, 1, 1, alone.P.cols));
            polar_queue_upload(p->at.q, alone.P.data, cut, (size_t)(4 * alone.P.cols));
            make(got, &alone, row, 1, SIDE, pl_augment_scale(a));
            whole += differ(want, got, each);
            pl_mat_free(&alone.P, p->at.dev);
            free(cut);
        }
        test_exact(names[fill], bad);
        test_exact("... from the box alone", whole);
        pl_augment_destroy(a);
    }
}

/* Noise beside libm's normals. Both have radius sqrt(-2 log u), from a logarithm within 1 ulp, and a cosine
 * or sine of a rounded angle; the radius is at most 8.58, the angle's rounding at most 2^-51 (of 2 pi), and
 * ten roundings of 2^-53 are more than the two series and products make together. */
static void test_noise(void)
{
    double most = 0;
    int64_t other = 0;
    enum { DRAWS = 200000 };
    for (int64_t i = 0; i < DRAWS; i++) {
        const pl_n2 z = pl_noise(5, 9, (uint64_t)i, 3, i % 7),
                    w = pl_normal(5, PL_STREAM_ERASE, 9 << 16 | 3, (uint64_t)(i % 7) << 48 | (uint64_t)i);
        most = fmax(most, fmax(fabs(z.a - w.a), fabs(z.b - w.b)));
        other += ((float)z.a != (float)w.a) + ((float)z.b != (float)w.b);
    }
    test_bound("noise beside libm's", most, 8.58 * (0x1p-51 + 10 * 0x1p-53), "an angle and ten roundings");
    /* 4e-15 of a step of 6e-8 |z|, which over normal z is some 1e-6: a third of a number is expected, and
     * eleven come once in 1e14 */
    test_true("... as floats", other <= 10, "%lld of %d differ", (long long)other, 2 * DRAWS);
}

/* Each operation on its own, with either filter, weak and strong. */
static void test_operations(const pictures *p)
{
    for (int op = 0; op < PL_IMAGE_OPS; op++) {
        enum { SIDE = 40 };
        int64_t each = 3 * SIDE * SIDE, bad = 0;
        float *want = calloc((size_t)each, sizeof *want), *got = calloc((size_t)each, sizeof *got);
        pl_augment_options o;
        pl_augment *a;
        TEST_TRY(pl_augment_recipe(&o, "minimal", SIDE));
        TEST_TRY(pl_augment_create(&a, &o));
        uint8_t fill[3] = {124, 116, 104};
        for (int i = 0; i < 8; i++) {
            double row[PL_AUG_COLS];
            pl_draw_key key = {5, i, 1};
            pl_image im = pl_image_view(p->bytes + p->offset[1], widths[1], heights[1]);
            pl_image_op_args args = {.op = (pl_image_op)op,
                                     .arg = pl_rand_augment_arg((pl_image_op)op, i < 4 ? 3 : 9.7, i % 2),
                                     .filter = i / 2 % 2 ? PL_FILTER_BICUBIC : PL_FILTER_BILINEAR,
                                     .fill = {fill[0], fill[1], fill[2]}};
            TEST_TRY(pl_augment_train_row(row, a, p->offset[1], widths[1], heights[1], key));
            TEST_TRY(pl_augment_train(a, want, &im, key));
            pl_image pixels = pl_augment_pixels(a);
            uint8_t *work = pl_alloc(pl_image_op_work(&pixels));
            row[PL_AUG_OPS] = 1;
            row[PL_AUG_OP] = op, row[PL_AUG_OP + 1] = args.arg;
            pl_image_op_map(row + PL_AUG_OP + 2, args.op, args.arg, SIDE, SIDE);
            if (args.filter == PL_FILTER_BICUBIC) { /* the crop's too */
                pl_augment *c;
                o.filter = PL_FILTER_BICUBIC;
                TEST_TRY(pl_augment_create(&c, &o));
                TEST_TRY(pl_augment_train(c, want, &im, key));
                memcpy(pixels.data, pl_augment_pixels(c).data, pl_image_bytes(&pixels));
                pl_augment_destroy(c);
                row[PL_AUG_FILTER] = 1;
            }
            pl_image_op_apply(&pixels, &args, work);
            for (int64_t k = 0; k < SIDE * SIDE; k++)
                for (int c = 0; c < 3; c++)
                    want[c * SIDE * SIDE + k] = pl_augment_scale(a)[256 * c + pixels.data[3 * k + c]];
            make(got, p, row, 1, SIDE, pl_augment_scale(a));
            bad += differ(want, got, each);
            pl_free(work);
        }
        test_exact(pl_image_op_name((pl_image_op)op), bad);
        pl_augment_destroy(a);
        free(want);
        free(got);
    }
}

static void test_mixing(const pictures *p)
{
    enum { N = 6, SIDE = 20, EACH = 3 * SIDE * SIDE };
    static float want[N * EACH], got[N * EACH];
    const pl_mix mixes[] = {{.kind = PL_MIX_MIXUP, .lam = 0.3},
                            {.kind = PL_MIX_CUTMIX, .lam = 0.7, .cut = {3, 5, 9, 15}},
                            {.kind = PL_MIX_CUTMIX, .lam = 1, .cut = {0, 0, 0, 0}}};
    pl_mat X;
    int64_t bad = 0, moved = 0;
    TEST_TRY(pl_mat_alloc(&X, p->at.dev, POLAR_DTYPE_F32, N, 3 * SIDE, SIDE));
    for (int k = 0; k < 3; k++) {
        const pl_mix *m = &mixes[k];
        for (int i = 0; i < N * EACH; i++) want[i] = (float)sin(i + k);
        polar_queue_upload(p->at.q, X.data, want, sizeof want);
        PL_CALL(mix, p->at.q, .X = X, .mixup = m->kind == PL_MIX_MIXUP, .x = m->cut.x, .y = m->cut.y,
                .width = m->cut.width, .height = m->cut.height, .lam = m->lam, .rest = 1 - m->lam);
        polar_queue_download(p->at.q, got, X.data, sizeof got);
        TEST_TRY(polar_queue_sync(p->at.q));
        moved += differ(want, got, N * EACH);
        TEST_TRY(pl_mix_images(want, m, N, 3, SIDE, SIDE));
        bad += differ(want, got, N * EACH);
    }
    test_exact("Mixup, CutMix, an empty CutMix", bad);
    test_true("... something was mixed", moved > N * EACH, "%lld numbers", (long long)moved);
    pl_mat_free(&X, p->at.dev);
}

/* Rows outside of the bytes, of no size, not numbers: NaNs, and nothing is touched that is not there. */
static void test_senseless(const pictures *p)
{
    enum { SIDE = 16, N = 10 };
    static const struct {
        int column;
        double value;
    } wrong[N] = {{PL_AUG_AT, -1},          {PL_AUG_AT, 1e15},
                  {PL_AUG_WIDTH, 0},        {PL_AUG_HEIGHT, 1e9},
                  {PL_AUG_BOX, 64},         {PL_AUG_BOX + 2, 65},
                  {PL_AUG_OUT, 15},         {PL_AUG_PART + 1, 1},
                  {PL_AUG_AT, (double)NAN}, {PL_AUG_OPS, PL_AUG_MOST + 1}};
    double rows[N][PL_AUG_COLS];
    static float got[N * 3 * SIDE * SIDE];
    pl_augment_options o;
    pl_augment *a;
    int64_t numbers = 0;
    TEST_TRY(pl_augment_recipe(&o, "minimal", SIDE));
    TEST_TRY(pl_augment_create(&a, &o));
    for (int i = 0; i < N; i++) {
        TEST_TRY(
            pl_augment_train_row(rows[i], a, p->offset[0], widths[0], heights[0], (pl_draw_key){1, 1, i}));
        rows[i][wrong[i].column] = wrong[i].value;
    }
    make(got, p, rows[0], N, SIDE, pl_augment_scale(a));
    for (int i = 0; i < N * 3 * SIDE * SIDE; i++) numbers += !isnan(got[i]);
    test_exact("rows that make no sense give NaNs", numbers);
    pl_augment_destroy(a);
}

static void refused(const char *what, const place *at, const pl_args_augment *a, const pl_args_mix *m,
                    polar_status code)
{
    pl_queue *q;
    TEST_TRY(polar_queue_create(&q, at->dev, NULL));
    if (a) pl_call_augment(q, a);
    else pl_call_mix(q, m);
    polar_status st = polar_queue_sync(q);
    test_true(what, st == code, "%s", polar_error_message());
    polar_queue_destroy(q);
}

static void test_refused(const pictures *p)
{
    pl_mat T, N, Y;
    TEST_TRY(pl_mat_alloc(&T, p->at.dev, POLAR_DTYPE_F64, 1, 3, PL_AUG_COLS));
    TEST_TRY(pl_mat_alloc(&N, p->at.dev, POLAR_DTYPE_F32, 1, 3, 256));
    TEST_TRY(pl_mat_alloc(&Y, p->at.dev, POLAR_DTYPE_F32, 3, 24, 8));
    pl_args_augment good = {.Y = Y, .P = p->P, .T = T, .N = N, .height = 200, .taps = 100}, a = good;
    a.T.rows = 2;
    refused("fewer rows than pictures", &p->at, &a, NULL, POLAR_E_SHAPE);
    a = good, a.Y.rows = 16;
    refused("two channels", &p->at, &a, NULL, POLAR_E_SHAPE);
    a = good, a.T.dtype = POLAR_DTYPE_F32;
    refused("rows in f32", &p->at, &a, NULL, POLAR_E_DTYPE);
    a = good, a.taps = 0;
    refused("no weights", &p->at, &a, NULL, POLAR_E_ARG);
    refused("an odd number of pictures to mix", &p->at, NULL, &(pl_args_mix){.X = Y, .mixup = 1, .lam = 1},
            POLAR_E_SHAPE);
    pl_mat X = pl_mat_at(Y, 0, 2);
    refused("a rectangle outside", &p->at, NULL, &(pl_args_mix){.X = X, .x = 5, .width = 4, .height = 1},
            POLAR_E_ARG);
    pl_mat_free(&T, p->at.dev);
    pl_mat_free(&N, p->at.dev);
    pl_mat_free(&Y, p->at.dev);
}

int main(int argc, char **argv)
{
    pictures p = pictures_open(test_begin(argc, argv));
    test_recipes(&p, test_few(argc, argv));
    test_fills(&p);
    test_noise();
    test_operations(&p);
    test_mixing(&p);
    test_senseless(&p);
    test_refused(&p);
    pictures_close(&p);
    return test_end();
}
