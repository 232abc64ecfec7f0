/* test_image_decode.c -- whole pictures: against libjpeg's plain calls, the samples put into a PNG, and
 * Pillow's pixels (golden/image.safetensors). All exact.
 *
 * With POLAR_EDGE_DIR=<a folder of awkward pictures> every file there is decoded too, whole and in parts.
 */
#include "image_fixture.h"

#include <dirent.h>

#include "base/alloc.h"
#include "base/safetensors.h"
#include "data/codec/image_file.h"

static int64_t compare_jpeg(const made_jpeg_opts *o)
{
    made m = made_jpeg(o);
    int w, h, n;
    uint8_t *plain = made_jpeg_plain(&m, &w, &h, &n);
    pl_image im;
    pl_image_info info;
    TEST_TRY(pl_image_measure(&info, m.data, m.size, "made"));
    TEST_TRY(pl_image_decode(&im, m.data, m.size, "made"));
    pl_image_colour colour = o->components == 1   ? PL_COLOUR_GREY
                             : o->components == 4 ? PL_COLOUR_CMYK
                                                  : PL_COLOUR_RGB;
    int64_t bad = im.width != w || im.height != h || info.width != w || info.height != h ||
                  info.colour != colour || info.format != PL_IMAGE_JPEG;
    bad += info.progressive != (o->scans == MADE_PROGRESSIVE || o->scans == MADE_DC_ONLY);
    for (int64_t i = 0; !bad && i < (int64_t)w * h; i++)
        for (int k = 0; k < 3; k++) bad += im.data[3 * i + k] != made_jpeg_rgb(plain + i * n, n, k);
    pl_image_destroy(&im);
    free(plain);
    free(m.data);
    return bad;
}

static void test_jpeg(void)
{
    static const int sizes[][2] = {{1, 1}, {83, 61}, {16, 16}, {17, 33}, {20000, 10}, {3, 500}};
    static const int sampling[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}};
    for (int s = 0; s < 6; s++) {
        int64_t bad = 0, n = 0;
        for (int f = 0; f < 5; f++)
            for (int scans = 0; scans <= MADE_ARITHMETIC; scans++) {
                made_jpeg_opts o = {.width = sizes[s][0],
                                    .height = sizes[s][1],
                                    .components = 3,
                                    .h = sampling[f][0],
                                    .v = sampling[f][1],
                                    .scans = (made_scans)scans};
                bad += compare_jpeg(&o);
                n++;
            }
        made_jpeg_opts others[] = {{.components = 1},
                                   {.components = 1, .scans = MADE_PROGRESSIVE},
                                   {.components = 1, .h = 2, .v = 2},
                                   {.components = 4},
                                   {.components = 4, .ycck = 1, .h = 2, .v = 2},
                                   {.components = 4, .scans = MADE_PROGRESSIVE},
                                   {.components = 3, .plain_rgb = 1},
                                   {.components = 3, .h = 2, .v = 2, .restart = 1},
                                   {.components = 3, .h = 2, .v = 1, .restart = 3},
                                   {.components = 3, .h = 2, .v = 2, .quality = 100},
                                   {.components = 3, .quality = 5}};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++, n++) {
            others[i].width = sizes[s][0];
            others[i].height = sizes[s][1];
            bad += compare_jpeg(&others[i]);
        }
        char what[64];
        snprintf(what, sizeof what, "%lld JPEG codings of %d x %d", (long long)n, sizes[s][0], sizes[s][1]);
        test_exact(what, bad);
    }
}

static int64_t compare_png(const made_png_opts *o)
{
    made m = made_png(o);
    pl_image im;
    pl_image_info info;
    TEST_TRY(pl_image_measure(&info, m.data, m.size, "made"));
    TEST_TRY(pl_image_decode(&im, m.data, m.size, "made"));
    pl_image_colour colour = o->type == PNG_COLOR_TYPE_PALETTE ? PL_COLOUR_PALETTE
                             : o->type & PNG_COLOR_MASK_COLOR  ? PL_COLOUR_RGB
                                                               : PL_COLOUR_GREY;
    int64_t bad = im.width != o->width || im.height != o->height || info.width != o->width ||
                  info.height != o->height || info.format != PL_IMAGE_PNG ||
                  info.progressive != o->interlaced || info.colour != colour;
    for (int y = 0; !bad && y < o->height; y++)
        for (int x = 0; x < o->width; x++)
            for (int k = 0; k < 3; k++) bad += pl_image_at(&im, x, y)[k] != made_png_rgb(o, x, y, k);
    pl_image_destroy(&im);
    free(m.data);
    return bad;
}

static void test_png(void)
{
    static const int sizes[][2] = {{1, 1}, {37, 20}, {20000, 10}};
    static const int kinds[][2] = {
        {PNG_COLOR_TYPE_GRAY, 1},        {PNG_COLOR_TYPE_GRAY, 2},      {PNG_COLOR_TYPE_GRAY, 4},
        {PNG_COLOR_TYPE_GRAY, 8},        {PNG_COLOR_TYPE_GRAY, 16},     {PNG_COLOR_TYPE_RGB, 8},
        {PNG_COLOR_TYPE_RGB, 16},        {PNG_COLOR_TYPE_PALETTE, 1},   {PNG_COLOR_TYPE_PALETTE, 2},
        {PNG_COLOR_TYPE_PALETTE, 4},     {PNG_COLOR_TYPE_PALETTE, 8},   {PNG_COLOR_TYPE_GRAY_ALPHA, 8},
        {PNG_COLOR_TYPE_GRAY_ALPHA, 16}, {PNG_COLOR_TYPE_RGB_ALPHA, 8}, {PNG_COLOR_TYPE_RGB_ALPHA, 16}};
    for (int s = 0; s < 3; s++) {
        int64_t bad = 0, n = 0;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            for (int form = 0; form < 4; form++, n++) {
                int type = kinds[i][0], depth = kinds[i][1], full = 1 << (depth < 8 ? depth : 8);
                made_png_opts o = {.width = sizes[s][0],
                                   .height = sizes[s][1],
                                   .type = type,
                                   .depth = depth,
                                   .interlaced = form & 1,
                                   .transparent = form >> 1 && !(type & PNG_COLOR_MASK_ALPHA),
                                   .colours = form & 1     ? full
                                              : full > 200 ? 200
                                                           : full};
                bad += compare_png(&o);
            }
        char what[64];
        snprintf(what, sizeof what, "%lld PNG codings of %d x %d", (long long)n, sizes[s][0], sizes[s][1]);
        test_exact(what, bad);
    }
}

/* Colours that PLTE does not define are black, as in Pillow. libpng's writer would refuse such a file: the
 * palette's length is patched. */
static void test_short_palette(void)
{
    made_png_opts o = {.width = 40, .height = 9, .type = PNG_COLOR_TYPE_PALETTE, .depth = 4, .colours = 16};
    made m = made_png(&o);
    size_t at = 33; /* signature 8, IHDR 25 */
    size_t cut = 3 * 11, tail = at + 8 + 48 + 4;
    m.data[at + 3] = (uint8_t)(48 - cut);
    made_png_mend(&m, at);
    memmove(m.data + tail - cut, m.data + tail, m.size - tail);
    m.size -= cut;
    pl_image im;
    TEST_TRY(pl_image_decode(&im, m.data, m.size, "made"));
    int64_t bad = 0;
    for (int y = 0; y < o.height; y++)
        for (int x = 0; x < o.width; x++)
            for (int k = 0; k < 3; k++) {
                int i = (int)made_png_sample(&o, x, y, 0);
                bad += pl_image_at(&im, x, y)[k] != (i < 5 ? made_png_colour(i, k) : 0);
            }
    test_exact("a palette shorter than its indices", bad);
    pl_image_destroy(&im);
    free(m.data);
}

static void test_golden(void)
{
    pl_safetensors *f;
    pl_image im;
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("image.safetensors")));
    const pl_safetensors_entry *bytes = pl_safetensors_find(f, "jpeg.bytes"),
                               *pixels = pl_safetensors_find(f, "jpeg.decoded");
    if (!bytes || !pixels) {
        test_true("golden JPEG", 0, "image.safetensors has no jpeg.bytes and jpeg.decoded");
        return;
    }
    TEST_TRY(pl_image_decode(&im, bytes->data, (size_t)bytes->bytes, "jpeg.bytes"));
    int64_t bad = pixels->shape[0] != im.height || pixels->shape[1] != im.width ||
                  pixels->bytes != (int64_t)pl_image_bytes(&im);
    for (int64_t i = 0; !bad && i < pixels->bytes; i++)
        bad += im.data[i] != ((const uint8_t *)pixels->data)[i];
    test_exact("golden JPEG, decoded by Pillow", bad);
    pl_image_destroy(&im);
    pl_safetensors_close(f);
}

/* ---- what is refused ---------------------------------------------------------------------------- */

static void test_refused(void)
{
    static const struct {
        const char *what, *bytes;
        size_t size;
        const char *says;
    } cases[] = {{"an empty file", "", 0, "empty"},
                 {"a text", "hello, world", 12, "neither JPEG nor PNG"},
                 {"a GIF", "GIF89a..........", 16, "GIF"},
                 {"a WebP", "RIFF....WEBPVP8 ", 16, "WebP"},
                 {"two bytes of a JPEG", "\xff\xd8", 2, "neither"},
                 {"three bytes of a JPEG", "\xff\xd8\xff", 3, "ends early"},
                 {"a PNG's signature", "\x89PNG\r\n\x1a\n", 8, "ends early"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_image im;
        pl_image_info info;
        polar_status a = pl_image_decode(&im, (const uint8_t *)cases[i].bytes, cases[i].size,
                                         "some/name.jpg"),
                     b = pl_image_measure(&info, (const uint8_t *)cases[i].bytes, cases[i].size,
                                          "some/name.jpg");
        const char *said = polar_error_message();
        test_true(cases[i].what,
                  PART(a == POLAR_E_FORMAT) && PART(b == a) && PART(!im.data) &&
                      PART(strstr(said, "some/name.jpg: ")) && PART(strstr(said, cases[i].says)),
                  "%s", said);
    }
    pl_image im;
    pl_image_info info;
    polar_status a = pl_image_decode_file(&im, "/nowhere/at/all.jpg"),
                 b = pl_image_measure_file(&info, "/nowhere/at/all.jpg");
    test_true("a file that is not there",
              a == POLAR_E_ARG && b == a && strstr(polar_error_message(), "/nowhere/at/all.jpg"), "%s",
              polar_error_message());
    a = pl_image_decode_file(&im, "/tmp");
    b = pl_image_decode_file(&im, "/dev/zero");
    test_true("a folder and a device", a == POLAR_E_FORMAT && b == a, "%s", polar_error_message());
}

/* ---- a folder of awkward pictures --------------------------------------------------------------- */

static void test_edge_folder(const char *folder)
{
    DIR *d = opendir(folder);
    int64_t files = 0, refused = 0, wrong = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        pl_file_bytes b = {0};
        pl_image whole, part;
        pl_image_info info;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        TEST_TRY(pl_file_bytes_read(&b, path, 0));
        polar_status st = pl_image_decode(&whole, b.data, b.size, path);
        files++;
        if (st != POLAR_OK) {
            printf("  %s\n", polar_error_message());
            refused++;
        }
        for (uint32_t t = 0; st == POLAR_OK && t < 20; t++) {
            pl_box x = {.width = 1 + made_draw(t, 0, (uint32_t)whole.width),
                        .height = 1 + made_draw(t, 1, (uint32_t)whole.height)};
            x.x = made_draw(t, 2, (uint32_t)(whole.width - x.width) + 1);
            x.y = made_draw(t, 3, (uint32_t)(whole.height - x.height) + 1);
            TEST_TRY(pl_image_measure_file(&info, path));
            TEST_TRY(pl_image_decode_crop(&part, b.data, b.size, path, x));
            wrong += info.width != whole.width || info.height != whole.height;
            for (int64_t y = 0; y < x.height; y++)
                wrong += memcmp(pl_image_at(&part, 0, y), pl_image_at(&whole, x.x, x.y + y),
                                pl_image_row_bytes(&part)) != 0;
            pl_image_destroy(&part);
        }
        if (st == POLAR_OK) pl_image_destroy(&whole);
        pl_file_bytes_drop(&b);
    }
    if (d) closedir(d);
    test_true("POLAR_EDGE_DIR, parts of every picture", files && !wrong,
              "%lld files, %lld refused, %lld rows differ", (long long)files, (long long)refused,
              (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_jpeg();
    test_png();
    test_short_palette();
    test_golden();
    test_refused();
    const char *edge = getenv("POLAR_EDGE_DIR");
    if (edge && *edge) test_edge_folder(edge);
    test_exact("blocks left over", pl_alloc_live() - live);
    return test_end();
}
