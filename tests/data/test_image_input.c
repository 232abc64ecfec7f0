/* test_image_input.c -- pictures of folders, packs and textures as floats: the same as from the whole
 * picture, and normalisation the same both ways. */
#include "base/alloc.h"
#include "data/augment/image_floats.h"
#include "data/set/image_input.h"
#include "data/set/image_pack.h"
#include "data/set/image_synth.h"
#include "fixtures/folder.h"
#include "lab/bench/bench_input.h"
#include "picture_fixture.h"

#define SIZE    48
#define NUMBERS (3 * SIZE * SIZE)

static char place[] = "/tmp/polar_test_input.XXXXXX";
static char folder[64], pack[64];
static const char synth[] = "synth:classes=3,train=4,test=3,size=90,seed=5";

static void make_sets(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    pl_image_folder *f;
    pl_pack_result r;
    int stopped;
    o.classes = 3, o.per_class[PL_IMAGES_TRAIN] = 4, o.per_class[PL_IMAGES_TEST] = 3, o.size = 90, o.seed = 5;
    snprintf(folder, sizeof folder, "%s/set", place);
    snprintf(pack, sizeof pack, "%s/set.pack", place);
    TEST_TRY(pl_image_synth_write(&stopped, &o, folder));
    TEST_TRY(pl_image_folder_open(&f, folder));
    TEST_TRY(pl_image_pack_write(&r, pack, f, &(pl_pack_opts){.workers = 1}));
    pl_image_folder_close(f);
}

/* Every picture of a set by pl_input_*, and from all of its pixels at once. */
static int64_t set_differs(const char *what, pl_augment *a, pl_augment *b, int test)
{
    static float x[NUMBERS], y[NUMBERS];
    pl_image_set *s;
    pl_picture p = {0}, all = {0};
    int64_t wrong = 0;
    pl_image_split split = test ? PL_IMAGES_TEST : PL_IMAGES_TRAIN;
    TEST_TRY(pl_image_set_open(&s, what));
    for (int64_t i = 0; i < pl_image_set_count(s, split); i++) {
        pl_draw_key key = {7, 1, i};
        TEST_TRY(pl_picture_open(&p, s, split, i));
        TEST_TRY(test ? pl_input_eval(x, &p, a) : pl_input_train(x, &p, a, key));
        TEST_TRY(pl_picture_open(&all, s, split, i));
        TEST_TRY(pl_picture_read(&all, (pl_box){0, 0, all.width, all.height}));
        pl_image im;
        TEST_TRY(pl_image_create(&im, all.width, all.height));
        for (int64_t v = 0; v < im.height; v++)
            memcpy(pl_image_at(&im, 0, v), all.pixels + v * all.stride, pl_image_row_bytes(&im));
        TEST_TRY(test ? pl_augment_eval(b, y, &im) : pl_augment_train(b, y, &im, key));
        wrong += memcmp(x, y, sizeof x) != 0;
        pl_image_destroy(&im);
    }
    pl_picture_drop(&p);
    pl_picture_drop(&all);
    pl_image_set_close(s);
    return wrong;
}

static void test_sets(void)
{
    static const char *const recipes[] = {"minimal", "deit"};
    const char *const sets[] = {folder, pack, synth};
    for (int k = 0; k < 2; k++) {
        pl_augment_options o;
        pl_augment *a, *b;
        int64_t train = 0, test = 0;
        TEST_TRY(pl_augment_recipe(&o, recipes[k], SIZE));
        TEST_TRY(pl_augment_create(&a, &o));
        TEST_TRY(pl_augment_create(&b, &o));
        for (int i = 0; i < 3; i++)
            train += set_differs(sets[i], a, b, 0), test += set_differs(sets[i], a, b, 1);
        test_exact(k ? "deit: training from a part" : "minimal: training from a part", train);
        test_exact(k ? "deit: test from a part" : "minimal: test from a part", test);
        pl_augment_destroy(a);
        pl_augment_destroy(b);
    }
}

/* What the test looks at is less than the whole, and no less than it needs; sizes that the middle does not
 * fit are held inside. */
static void test_boxes(void)
{
    static const int64_t sides[][2] = {{500, 375},  {375, 500},  {224, 224}, {1, 1},
                                       {20000, 10}, {10, 20000}, {257, 256}};
    pl_augment_options o;
    pl_augment *a;
    int64_t wrong = 0;
    TEST_TRY(pl_augment_recipe(&o, "minimal", 224));
    TEST_TRY(pl_augment_create(&a, &o));
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        int64_t w = sides[i][0], h = sides[i][1];
        pl_box b;
        TEST_TRY(pl_augment_eval_box(&b, a, w, h));
        wrong += b.x < 0 || b.y < 0 || b.width < 1 || b.height < 1 || b.x + b.width > w || b.y + b.height > h;
        /* 224 / 256 of 375 pixels are 328, and three more on each side at the most */
        if (!i) wrong += b.width > 340 || b.height > 340;
    }
    test_exact("boxes of the test", wrong);
    pl_box none;
    test_true("an empty picture", pl_augment_eval_box(&none, a, 0, 5) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("no such epoch", pl_augment_train_box(&none, a, 5, 5, (pl_draw_key){0, -1, 0}) == POLAR_E_ARG,
              "%s", polar_error_message());
    pl_augment_destroy(a);
}

/* Every byte in every channel, for scales that people use, at lengths that do not fill a vector. */
static void test_floats(void)
{
    static const double scales[][6] = {{0.485, 0.456, 0.406, 0.229, 0.224, 0.225},
                                       {0.5, 0.5, 0.5, 0.5, 0.5, 0.5},
                                       {0, 0, 0, 1, 1, 1},
                                       {0.4914, 0.4822, 0.4465, 0.2023, 0.1994, 0.2010}};
    enum { N = 256 + 13 };
    uint8_t pixels[3 * N];
    float x[3 * N];
    int64_t wrong = 0;
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 3; c++) pixels[3 * i + c] = (uint8_t)(i * (2 * c + 1));
    for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
        pl_floats_scale s;
        pl_floats_scale_make(&s, scales[k], scales[k] + 3);
        for (int n = N - 20; n <= N; n++) {
            memset(x, 0xff, sizeof x);
            pl_floats_of_bytes(x, &s, pixels, n);
            for (int c = 0; c < 3; c++)
                for (int i = 0; i < n; i++) {
                    float want =
                        ((float)pixels[3 * i + c] / 255.0f - (float)scales[k][c]) / (float)scales[k][c + 3];
                    wrong += memcmp(&x[c * n + i], &want, sizeof want) != 0;
                }
        }
    }
    test_exact("floats of bytes", wrong);
}

static void test_bench(void)
{
    pl_bench_input_row rows[3 * PL_INPUT_CHAINS];
    const char *const sets[] = {folder, pack, synth}, *const nowhere[] = {"/nowhere/at/all"};
    pl_bench_input_opts o = {.sets = sets, .n_sets = 3, .size = SIZE, .samples = 1, .pictures = 15};
    int64_t wrong = 0;
    TEST_TRY(pl_bench_input(rows, &o));
    for (int i = 0; i < 3 * PL_INPUT_CHAINS; i++) {
        double parts = rows[i].open + rows[i].pixels + rows[i].chain;
        /* three doubles added in the same order: 1e-12 s is 1e4 roundings of a millisecond */
        wrong += !(rows[i].seconds > 0) || rows[i].q1 != rows[i].seconds ||
                 fabs(parts - rows[i].seconds) > 1e-12 || strcmp(rows[i].set, sets[i / PL_INPUT_CHAINS]);
    }
    test_exact("rows of the benchmark", wrong);
    o.sets = nowhere, o.n_sets = 1;
    test_true("a set that is not there", pl_bench_input(rows, &o) == POLAR_E_ARG, "%s",
              polar_error_message());
    o.samples = 0;
    test_true("no samples", pl_bench_input(rows, &o) == POLAR_E_ARG, "%s", polar_error_message());
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    if (!mkdtemp(place)) return 1;
    make_sets();
    test_sets();
    test_boxes();
    test_floats();
    test_bench();
    folder_remove(place);
    test_exact("blocks left over", pl_alloc_live() - live);
    return test_end();
}
