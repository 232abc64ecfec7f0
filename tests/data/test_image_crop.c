/* test_image_crop.c -- a part of a picture has exactly the pixels of the whole: every sampling, coding and
 * colour, many places and sizes. */
#include "image_fixture.h"

#include "base/alloc.h"

static int64_t rows_wrong(const made *m, const pl_image *whole, pl_box b)
{
    pl_image part;
    TEST_TRY(pl_image_decode_crop(&part, m->data, m->size, "made", b));
    int64_t wrong = part.width != b.width || part.height != b.height;
    for (int64_t y = 0; !wrong && y < b.height; y++)
        wrong += memcmp(pl_image_at(&part, 0, y), pl_image_at(whole, b.x, b.y + y),
                        pl_image_row_bytes(&part)) != 0;
    pl_image_destroy(&part);
    return wrong;
}

/* Every column and every row as a line of its own, then random boxes: thin ones, and all sizes. */
static int64_t crops_wrong(const made *m, int64_t *tried, int boxes)
{
    pl_image whole;
    TEST_TRY(pl_image_decode(&whole, m->data, m->size, "made"));
    int64_t w = whole.width, h = whole.height, wrong = 0;
    for (int64_t x = 0; x<w; x += w> 400 ? 97 : 1, ++*tried)
        wrong += rows_wrong(m, &whole, (pl_box){x, 0, 1, h});
    for (int64_t y = 0; y < h; y++, ++*tried) wrong += rows_wrong(m, &whole, (pl_box){0, y, w, 1});
    for (uint32_t t = 0; t < (uint32_t)boxes; t++, ++*tried) {
        pl_box b = {.width = 1 + made_draw(t, 10, (uint32_t)(t & 1 && w > 20 ? 20 : w)),
                    .height = 1 + made_draw(t, 11, (uint32_t)(t & 2 && h > 20 ? 20 : h))};
        b.x = made_draw(t, 12, (uint32_t)(w - b.width) + 1);
        b.y = made_draw(t, 13, (uint32_t)(h - b.height) + 1);
        wrong += rows_wrong(m, &whole, b);
    }
    wrong += rows_wrong(m, &whole, (pl_box){0, 0, w, h});
    pl_image_destroy(&whole);
    return wrong;
}

static void test_jpeg_crops(void)
{
    static const int sampling[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}};
    static const char *const names[] = {"baseline", "progressive", "only DC, smoothed", "separate scans",
                                        "arithmetic"};
    for (int scans = 0; scans <= MADE_ARITHMETIC; scans++) {
        int64_t wrong = 0, tried = 0;
        for (int f = 0; f < 6; f++) {
            made_jpeg_opts o = {.width = 147,
                                .height = 131,
                                .components = 3,
                                .h = sampling[f][0],
                                .v = sampling[f][1],
                                .scans = (made_scans)scans,
                                .seed = (uint32_t)f};
            made m = made_jpeg(&o);
            wrong += crops_wrong(&m, &tried, 120);
            free(m.data);
        }
        char what[96];
        snprintf(what, sizeof what, "JPEG %s, %lld parts", names[scans], (long long)tried);
        test_exact(what, wrong);
    }
    made_jpeg_opts others[] = {{.width = 130, .height = 90, .components = 1},
                               {.width = 130, .height = 90, .components = 1, .h = 2, .v = 2},
                               {.width = 130, .height = 90, .components = 4},
                               {.width = 130, .height = 90, .components = 4, .ycck = 1, .h = 2, .v = 2},
                               {.width = 130, .height = 90, .components = 3, .plain_rgb = 1},
                               {.width = 130, .height = 90, .components = 3, .h = 2, .v = 2, .restart = 2},
                               {.width = 20000, .height = 10, .components = 3, .h = 2, .v = 2},
                               {.width = 5, .height = 700, .components = 3, .h = 2, .v = 2},
                               {.width = 1, .height = 1, .components = 3, .h = 2, .v = 2}};
    int64_t wrong = 0, tried = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        made m = made_jpeg(&others[i]);
        wrong += crops_wrong(&m, &tried, 80);
        free(m.data);
    }
    char what[96];
    snprintf(what, sizeof what, "JPEG grey, CMYK, restarts, long ones, %lld parts", (long long)tried);
    test_exact(what, wrong);
}

static void test_png_crops(void)
{
    static const int kinds[][2] = {{PNG_COLOR_TYPE_GRAY, 1},
                                   {PNG_COLOR_TYPE_GRAY, 16},
                                   {PNG_COLOR_TYPE_RGB, 8},
                                   {PNG_COLOR_TYPE_PALETTE, 4},
                                   {PNG_COLOR_TYPE_RGB_ALPHA, 16}};
    int64_t wrong = 0, tried = 0;
    for (size_t i = 0; i < 10; i++) {
        made_png_opts o = {.width = 61,
                           .height = 47,
                           .type = kinds[i / 2][0],
                           .depth = kinds[i / 2][1],
                           .interlaced = (int)(i & 1),
                           .colours = 16};
        made m = made_png(&o);
        wrong += crops_wrong(&m, &tried, 60);
        free(m.data);
    }
    char what[96];
    snprintf(what, sizeof what, "PNG, %lld parts", (long long)tried);
    test_exact(what, wrong);
}

static void test_outside(void)
{
    made_jpeg_opts jo = {.width = 40, .height = 30, .components = 3};
    made_png_opts po = {.width = 40, .height = 30, .type = PNG_COLOR_TYPE_RGB, .depth = 8};
    made m[2] = {made_jpeg(&jo), made_png(&po)};
    const pl_box boxes[] = {
        {-1, 0, 5, 5}, {0, -1, 5, 5}, {0, 0, 0, 5},  {0, 0, 5, 0},         {36, 0, 5, 5},
        {0, 26, 5, 5}, {0, 0, 41, 5}, {0, 0, 5, 31}, {INT64_MAX, 0, 1, 1}, {1, 1, INT64_MAX, INT64_MAX},
        {0, 0, -5, -5}};
    int64_t wrong = 0;
    for (int i = 0; i < 2; i++)
        for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
            pl_image im;
            polar_status st = pl_image_decode_crop(&im, m[i].data, m[i].size, "made", boxes[b]);
            wrong += st != POLAR_E_ARG || im.data || !strstr(polar_error_message(), "made: a crop of");
        }
    test_exact("boxes that are not inside", wrong);
    free(m[0].data);
    free(m[1].data);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_jpeg_crops();
    test_png_crops();
    test_outside();
    test_exact("blocks left over", pl_alloc_live() - live);
    return test_end();
}
