/* test_image_ops.c -- the fifteen operations of RandAugment against timm and Pillow: the golden pictures and
 * hashes of Pillow's results (picture_fixture.h); affine maps by both of their codes. All exact. */
#include "data/augment/image_affine.c" /* for affine_rows_any, which processors with AVX2 never run */

#include "base/philox.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "data/augment/rand_augment.h"
#include "picture_fixture.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* ---- golden: timm's operations at magnitude 9, both signs --------------------------------------- */

/* The only number, or 0 of an empty list, that image.json has under this name. */
static double json_argument(const char *text, int64_t size, const char *name)
{
    pl_json p = pl_json_view(text, size, "'image.json'");
    TEST_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        TEST_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) return NAN;
        if (!pl_json_is(&p, name)) {
            TEST_TRY(pl_json_skip(&p));
            continue;
        }
        TEST_TRY(pl_json_need(&p, PL_JSON_ARRAY));
        TEST_TRY(pl_json_next(&p));
        return p.token == PL_JSON_ARRAY_END ? 0 : p.number;
    }
}

static void golden(void)
{
    pl_safetensors *f;
    static char text[1 << 14];
    FILE *json = fopen(test_golden_path("image.json"), "rb");
    if (!test_true("golden: image.json", json != NULL, "%s", test_golden_path("image.json"))) return;
    int64_t size = (int64_t)fread(text, 1, sizeof text, json);
    fclose(json);
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("image.safetensors")));
    const pl_safetensors_entry *image = pl_safetensors_find(f, "image");
    for (int op = 0; op < PL_IMAGE_OPS; op++) {
        int64_t wrong = 0, args = 0, found = 0;
        for (int s = 0; s < 2; s++)
            for (int k = 0; k < PL_FILTERS; k++) {
                char name[64];
                snprintf(name, sizeof name, "aug.%s.%d.%s", pl_image_op_name((pl_image_op)op), s,
                         k ? "bicubic" : "bilinear");
                const pl_safetensors_entry *want = pl_safetensors_find(f, name);
                if (!image || !want || want->bytes != image->bytes) continue;
                double arg = pl_rand_augment_arg((pl_image_op)op, 9, s == 0);
                pl_image im;
                TEST_TRY(pl_image_create(&im, image->shape[1], image->shape[0]));
                memcpy(im.data, image->data, (size_t)image->bytes);
                apply(&im, (pl_image_op)op, arg, k);
                wrong += bytes_differ(im.data, want->data, want->bytes);
                args += arg != json_argument(text, size, name);
                found++;
                pl_image_destroy(&im);
            }
        test_true(pl_image_op_name((pl_image_op)op), found == 4 && !wrong && !args,
                  "%lld golden pictures, %lld bytes and %lld arguments differ", (long long)found,
                  (long long)wrong, (long long)args);
    }
    pl_safetensors_close(f);
}

/* ---- Pillow 12.3 through timm 1.0.29: sizes 1x1, 29x2, 41x29, of each the picture and a third of its
 * values, of each both filters, one hash ----- */

static const struct {
    int op;
    double arg;
    uint64_t hash;
} pillow[] = {
    {0, 0.0, 0xdcd82e4723a43569u},     {1, 0.0, 0xc6684c8805e3a005u},     {2, 0.0, 0x1236deeb7d5b5eadu},
    {3, -30.0, 0xffbdcfdd6c9bb83bu},   {3, 12.3456, 0x295cc4de2c123ec5u}, {3, 0.0, 0x4e8fc625bdfacbf1u},
    {3, 180.0, 0x1675a25896b8a9f1u},   {3, 90.0, 0x125848da9c1fdefeu},    {4, 0.0, 0x2b1878cd94c87525u},
    {4, 1.0, 0x9057f33eec51c625u},     {4, 4.0, 0xf0b8f38980157de5u},     {5, 0.0, 0x1236deeb7d5b5eadu},
    {5, 13.0, 0x4b39934400f7604bu},    {5, 256.0, 0x4e8fc625bdfacbf1u},   {6, 0.0, 0x4e8fc625bdfacbf1u},
    {6, 99.0, 0x0df0cd4e09cd1f2fu},    {6, 128.0, 0x268fff073fde85f1u},   {7, 0.1, 0x6799ede974136f9bu},
    {7, 0.55, 0xd8feaff7e9a32c6bu},    {7, 1.0, 0x4e8fc625bdfacbf1u},     {7, 1.9, 0x739794a76013307du},
    {8, 0.1, 0xfb265a0a32330d47u},     {8, 0.55, 0xdd167fb82d155897u},    {8, 1.0, 0x4e8fc625bdfacbf1u},
    {8, 1.9, 0x3d43b1b9a2e0f24du},     {9, 0.1, 0x9610aba8679ae74du},     {9, 0.55, 0x32d6bc1d6e91ec0bu},
    {9, 1.0, 0x4e8fc625bdfacbf1u},     {9, 1.9, 0x4b227dea397c79f3u},     {10, 0.1, 0xbf14706b06d56ff3u},
    {10, 0.55, 0x81979cf1bd835415u},   {10, 1.0, 0x4e8fc625bdfacbf1u},    {10, 1.9, 0x09bedddd25cdefebu},
    {11, -0.3, 0xe6f366b5b4c89ea5u},   {11, 0.1234, 0x5b13a03a8bd5cbdbu}, {12, -0.3, 0xcf63d01ebb0f6289u},
    {12, 0.1234, 0xe603c7c9e10761ecu}, {13, -0.45, 0x7dce422546cc0280u},  {13, 0.1234, 0x55b04d8b67d81fd9u},
    {14, -0.45, 0xe1532a1115521ff6u},  {14, 0.1234, 0x9e9bd128e2125e6fu},
};

static void against_pillow(void)
{
    static const int64_t sizes[3][2] = {{1, 1}, {29, 2}, {41, 29}};
    char what[64];
    for (int i = 0; i < COUNT(pillow); i++) {
        uint64_t hash = FNV_START;
        for (int k = 0; k < 12; k++) {
            pl_image im = picture(sizes[k / 4][0], sizes[k / 4][1]);
            if (k / 2 % 2)
                for (size_t b = 0; b < pl_image_bytes(&im); b++) im.data[b] /= 3;
            apply(&im, (pl_image_op)pillow[i].op, pillow[i].arg, k % 2);
            hash = fnv(hash, im.data, pl_image_bytes(&im));
            pl_image_destroy(&im);
        }
        snprintf(what, sizeof what, "Pillow: %s %g", pl_image_op_name((pl_image_op)pillow[i].op),
                 pillow[i].arg);
        test_exact(what, hash != pillow[i].hash);
    }
}

/* A point that misses the first pixel's centre by less than 1 can tell: it lies between that pixel and its
 * copy beyond the border. Reckoned from the pixel's own side it would be 1 - 254 2^-54, cut to 0. Pillow
 * gives 1 too, with both filters. */
static void just_outside(void)
{
    const double m[6] = {0, 0, 0.5 - 0x1p-54, 0, 0, 0.5};
    int64_t wrong = 0;
    for (int k = 0; k < PL_FILTERS; k++) {
        uint8_t pixels[9] = {1, 1, 1, 255, 255, 255, 255, 255, 255}, fill[3] = {9, 9, 9}, *work;
        pl_image im = pl_image_view(pixels, 3, 1);
        work = pl_alloc(pl_image_op_work(&im));
        if (!work) exit(1);
        pl_image_affine(&im, m, (pl_filter)k, fill, work);
        for (int i = 0; i < 9; i++) wrong += pixels[i] != 1;
        pl_free(work);
    }
    test_exact("just outside of the first centre", wrong);
}

/* Twice mirrored is the same, once is each row read backwards. */
static void flips(void)
{
    static const int64_t widths[] = {1, 2, 3, 16, 31};
    int64_t wrong = 0;
    for (int k = 0; k < COUNT(widths); k++) {
        pl_image im = picture(widths[k], 5), once = picture(widths[k], 5);
        pl_image_flip(&once);
        for (int64_t y = 0; y < 5; y++)
            for (int64_t x = 0; x < widths[k]; x++)
                wrong += memcmp(pl_image_at(&once, x, y), pl_image_at(&im, widths[k] - 1 - x, y), 3) != 0;
        pl_image_flip(&once);
        wrong += bytes_differ(once.data, im.data, (int64_t)pl_image_bytes(&im));
        pl_image_destroy(&im);
        pl_image_destroy(&once);
    }
    test_exact("mirrored", wrong);
}

/* Random maps, also far outside, by the code for any processor and by the one this processor takes. */
static void both_codes(void)
{
    const uint8_t fill[3] = {9, 99, 199};
    int64_t wrong = 0;
    for (uint64_t t = 0; t < 60; t++) {
        pl_u4 r = pl_philox(5, PL_STREAM_TEST, t, 0), q = pl_philox(5, PL_STREAM_TEST, t, 1);
        int64_t w = 1 + pl_uniform_below(r.x, 90), h = 1 + pl_uniform_below(r.y, 90);
        pl_image im = picture(w, h), other = picture(w, h);
        uint8_t *work = pl_alloc(pl_image_affine_work(w, h));
        double m[6], wild = t % 5 == 4 ? 1e9 : 1;
        pl_image_rotation(m, w, h, 360.0 * r.z / 4294967296.0);
        m[t % 6] += wild * (q.x / 4294967296.0 - 0.5);
        if (t % 3 == 0) m[0] = m[4] = 1, m[1] = m[3] = 0; /* a translation */
        widen_any((void *)work, other.data, w, h);
        affine_rows_any(other.data, (void *)work, w, h, m, t & 1, fill);
        pl_image_affine(&im, m, t & 1 ? PL_FILTER_BICUBIC : PL_FILTER_BILINEAR, fill, work);
        wrong += bytes_differ(im.data, other.data, (int64_t)pl_image_bytes(&im));
        pl_free(work);
        pl_image_destroy(&im);
        pl_image_destroy(&other);
    }
    test_exact("affine maps by both codes", wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    both_codes();
    golden();
    against_pillow();
    just_outside();
    flips();
    return test_end();
}
