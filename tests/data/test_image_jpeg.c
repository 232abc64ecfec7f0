/* test_image_jpeg.c -- the usual JPEG, whole and in parts, against libjpeg's plain calls: the same bytes,
 * also of files that are damaged but still read; what is cut off is refused. */
#include "image_fixture.h"

#include <setjmp.h>

#include "base/alloc.h"

typedef struct quiet {
    struct jpeg_error_mgr errors;
    jmp_buf out;
} quiet;

static void quiet_exit(j_common_ptr c)
{
    longjmp(((quiet *)c->err)->out, 1);
}

static void quiet_begin(struct jpeg_decompress_struct *c, quiet *q, const made *m)
{
    c->err = jpeg_std_error(&q->errors);
    q->errors.error_exit = quiet_exit;
    q->errors.emit_message = made_quiet;
    jpeg_create_decompress(c);
    jpeg_mem_src(c, m->data, m->size);
}

/* Whether pl_image_decode, or of a box pl_image_decode_crop, takes it. */
static int ours(pl_image *out, const made *m, const pl_box *box)
{
    *out = (pl_image){0};
    polar_status st = box ? pl_image_decode_crop(out, m->data, m->size, "made", *box)
                          : pl_image_decode(out, m->data, m->size, "made");
    return st == POLAR_OK;
}

/* The whole by libjpeg, as RGB; 0: it gave up. */
static int theirs(pl_image *out, const made *m)
{
    struct jpeg_decompress_struct c;
    quiet q;
    volatile int done = 0;
    *out = (pl_image){0};
    quiet_begin(&c, &q, m);
    if (!setjmp(q.out)) {
        jpeg_read_header(&c, TRUE);
        c.out_color_space = JCS_RGB;
        jpeg_start_decompress(&c);
        TEST_TRY(pl_image_create(out, c.output_width, c.output_height));
        while (c.output_scanline < c.output_height) {
            JSAMPROW row = pl_image_at(out, 0, c.output_scanline);
            jpeg_read_scanlines(&c, &row, 1);
        }
        done = 1;
    }
    jpeg_destroy_decompress(&c);
    if (!done) pl_image_destroy(out);
    return done;
}

static int64_t part_differs(const pl_image *part, const pl_image *whole, pl_box b)
{
    int64_t wrong = 0;
    for (int64_t y = 0; y < b.height; y++)
        wrong +=
            memcmp(pl_image_at(part, 0, y), pl_image_at(whole, b.x, b.y + y), pl_image_row_bytes(part)) != 0;
    return wrong;
}

/* ---- every usual kind --------------------------------------------------------------------------- */

static const int sampling[][3] = {{1, 1, 1}, {3, 1, 1}, {3, 2, 1}, {3, 2, 2}}; /* components, h, v */
static const char *const sampling_name[] = {"grey", "4:4:4", "4:2:2", "4:2:0"};

static void test_usual(void)
{
    static const int sides[][2] = {{5, 5},   {6, 40},  {8, 8},   {15, 17},  {16, 16}, {17, 33}, {31, 7},
                                   {32, 64}, {47, 49}, {64, 16}, {101, 83}, {255, 3}, {300, 20}};
    static const int quality[] = {1, 30, 75, 95, 100};
    for (int k = 0; k < 4; k++) {
        int64_t wrong = 0, refused = 0, n = 0;
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
            for (size_t q = 0; q < sizeof quality / sizeof *quality; q++)
                for (int restart = 0; restart < 3; restart += 2) {
                    made_jpeg_opts o = {.width = sides[i][0],
                                        .height = sides[i][1],
                                        .components = sampling[k][0],
                                        .h = sampling[k][1],
                                        .v = sampling[k][2],
                                        .quality = quality[q],
                                        .restart = restart,
                                        .seed = (uint32_t)(i * 10 + q)};
                    made m = made_jpeg(&o);
                    pl_image whole, im;
                    if (!theirs(&whole, &m)) wrong++;
                    refused += !ours(&im, &m, NULL);
                    if (im.data)
                        wrong += part_differs(&im, &whole, (pl_box){0, 0, whole.width, whole.height});
                    pl_image_destroy(&im);
                    for (uint32_t t = 0; t < 8; t++) {
                        pl_box b = {.width = 1 + made_draw(t, 20, (uint32_t)whole.width),
                                    .height = 1 + made_draw(t, 21, (uint32_t)whole.height)};
                        b.x = made_draw(t, 22, (uint32_t)(whole.width - b.width) + 1),
                        b.y = made_draw(t, 23, (uint32_t)(whole.height - b.height) + 1);
                        refused += !ours(&im, &m, &b);
                        if (im.data) wrong += part_differs(&im, &whole, b);
                        pl_image_destroy(&im);
                    }
                    pl_image_destroy(&whole);
                    free(m.data);
                    n += 9;
                }
        char what[96];
        snprintf(what, sizeof what, "%s: %lld pictures and parts, as libjpeg", sampling_name[k],
                 (long long)n);
        test_exact(what, wrong);
        snprintf(what, sizeof what, "%s: none is refused", sampling_name[k]);
        test_exact(what, refused);
    }
}

/* ---- damage ------------------------------------------------------------------------------------- */

static size_t scan_begins(const made *m)
{
    for (size_t i = 0; i + 1 < m->size; i++)
        if (m->data[i] == 0xff && m->data[i + 1] == 0xda) return i + 2 + (size_t)m->data[i + 3];
    return m->size;
}

/* A bit changed, or the end cut off: what is still decoded is what libjpeg makes of it. */
static void test_damage(void)
{
    int64_t wrong = 0, taken = 0, refused = 0, cut_taken = 0;
    for (int k = 0; k < 4; k++)
        for (uint32_t t = 0; t < 300; t++) {
            made_jpeg_opts o = {.width = 90,
                                .height = 60,
                                .components = sampling[k][0],
                                .h = sampling[k][1],
                                .v = sampling[k][2],
                                .quality = 80,
                                .restart = t % 3 ? 0 : 5,
                                .seed = (uint32_t)k};
            made m = made_jpeg(&o);
            size_t from = scan_begins(&m);
            pl_image whole, im;
            pl_box top = {3, 2, 50, 20};
            if (t % 10 == 9) m.size = from + made_draw(t, 30, (uint32_t)(m.size - from));
            else
                m.data[from + made_draw(t, 31, (uint32_t)(m.size - from))] ^=
                    (uint8_t)(1u << made_draw(t, 32, 8));
            int good = theirs(&whole, &m);
            for (int part = 0; part < 2; part++) {
                int done = ours(&im, &m, part ? &top : NULL);
                taken += done, refused += !done;
                cut_taken += done && t % 10 == 9 && !part;
                if (im.data)
                    wrong +=
                        !good || part_differs(&im, &whole,
                                              part ? top : (pl_box){0, 0, whole.width, whole.height}) != 0;
                pl_image_destroy(&im);
            }
            pl_image_destroy(&whole);
            free(m.data);
        }
    test_exact("damaged: decoded, and otherwise than libjpeg", wrong);
    test_exact("cut off: decoded to the end", cut_taken);
    test_true("damaged: both happen", taken > 100 && refused > 100, "%lld decoded, %lld refused",
              (long long)taken, (long long)refused);
}

/* Quantisation steps of 255 on a file that was written with 1: coefficients that no picture has. */
static void test_too_large(void)
{
    int64_t wrong = 0;
    for (int k = 0; k < 4; k++) {
        made_jpeg_opts o = {.width = 40,
                            .height = 30,
                            .components = sampling[k][0],
                            .h = sampling[k][1],
                            .v = sampling[k][2],
                            .quality = 100};
        made m = made_jpeg(&o);
        pl_image im, whole;
        for (size_t i = 0; i + 68 < m.size; i++)
            if (m.data[i] == 0xff && m.data[i + 1] == 0xdb) memset(m.data + i + 5, 255, 64);
        if (!theirs(&whole, &m)) wrong++;
        TEST_TRY(pl_image_decode(&im, m.data, m.size, "made"));
        wrong += part_differs(&im, &whole, (pl_box){0, 0, whole.width, whole.height});
        pl_image_destroy(&im);
        pl_image_destroy(&whole);
        free(m.data);
    }
    test_exact("coefficients too large: as libjpeg", wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_usual();
    test_damage();
    test_too_large();
    test_exact("blocks left over", pl_alloc_live() - live);
    return test_end();
}
