/* test_image_fuzz.c -- broken pictures: cut at every length, with changed bytes, with headers that lie, and with memory that runs out. Decoded or
 * refused with a sentence that names the file; no crash (the sanitizers watch), no block left over, little memory.
 */
#include "image_fixture.h"

#include <sys/resource.h>

#include "base/alloc.h"

static int told(polar_status st, const pl_image *im)
{
    if (st == POLAR_OK) return im->data != NULL;
    return st == POLAR_E_FORMAT && !im->data && strstr(polar_error_message(), ": some.file: ") != NULL;
}

/* Whole, and a part in the middle: bit 0 and bit 1 of the answer say which was decoded, -1 that something was not told. */
static int try_both(const uint8_t *data, size_t size)
{
    pl_image im;
    pl_image_info info;
    int which = 0;
    polar_status st = pl_image_decode(&im, data, size, "some.file");
    if (!told(st, &im)) return -1;
    which |= st == POLAR_OK;
    pl_image_destroy(&im);
    st = pl_image_measure(&info, data, size, "some.file");
    if (st != POLAR_OK) return st == POLAR_E_FORMAT && !which ? 0 : -1;
    if (info.width > PL_IMAGE_MAX_PIXELS / info.height) return which ? -1 : 0;
    pl_box b = {info.width / 3, info.height / 3, info.width - info.width / 2, info.height - info.height / 2};
    if (b.x + b.width > info.width) b.x = 0;
    if (b.y + b.height > info.height) b.y = 0;
    st = pl_image_decode_crop(&im, data, size, "some.file", b);
    if (!told(st, &im)) return -1;
    which |= (st == POLAR_OK) << 1;
    pl_image_destroy(&im);
    return which;
}

static void fuzz(const char *what, made m, int lenient_tail)
{
    int64_t untold = 0, whole_ones = 0, decoded = 0, refused = 0, live = pl_alloc_live();
    uint8_t *copy = malloc(m.size + 64);
    for (size_t n = 0; n < m.size; n++) {    /* an exact copy, so that a sanitizer sees the end */
        uint8_t *cut = malloc(n + 1);
        memcpy(cut, m.data, n);
        int r = try_both(cut, n);
        free(cut);
        untold += r < 0;
        whole_ones += r > 0 && (r & 1) && n + (size_t)lenient_tail < m.size;
    }
    for (uint32_t trial = 0; trial < 1500; trial++) {
        size_t n = m.size;
        uint32_t k = 0, changes = 1 + made_draw(trial, k++, 4);
        memcpy(copy, m.data, n);
        for (uint32_t c = 0; c < changes; c++) {
            size_t at = made_draw(trial, k++, trial & 1 && n > 300 ? 300 : (uint32_t)n), span = made_draw(trial, k++, 9);    /* headers half of the time */
            if (at + span > n) span = n - at;
            switch (made_draw(trial, k++, 4)) {
            case 0: copy[at] ^= (uint8_t)(1u << made_draw(trial, k++, 8)); break;
            case 1: copy[at] = (uint8_t)made_draw(trial, k++, 256); break;
            case 2: memset(copy + at, made_draw(trial, k++, 2) ? 255 : 0, span); break;
            default:
                memmove(copy + at, copy + at + span, n - at - span);
                n -= span;
            }
        }
        int r = try_both(copy, n);
        untold += r < 0;
        decoded += r > 0;
        refused += r == 0;
    }
    test_true(what, !untold && !whole_ones && refused > 50 && pl_alloc_live() == live, "%zu cuts, %lld taken for whole; 1500 changes, %lld decoded, %lld refused; %lld untold", m.size,
              (long long)whole_ones, (long long)decoded, (long long)refused, (long long)untold);
    free(copy);
    free(m.data);
}

/* ---- lies ------------------------------------------------------------------------------------------------------------- */

static void set_jpeg_size(made *m, int w, int h)
{
    for (size_t i = 2; i + 9 < m->size;) {
        int marker = m->data[i + 1];
        if (marker >= 0xc0 && marker <= 0xc2) {
            m->data[i + 5] = (uint8_t)(h >> 8), m->data[i + 6] = (uint8_t)h;
            m->data[i + 7] = (uint8_t)(w >> 8), m->data[i + 8] = (uint8_t)w;
            return;
        }
        i += 2 + (size_t)(m->data[i + 2] << 8 | m->data[i + 3]);
    }
}

static void set_png_size(made *m, uint32_t w, uint32_t h)
{
    for (int k = 0; k < 4; k++) {
        m->data[16 + k] = (uint8_t)(w >> (24 - 8 * k));
        m->data[20 + k] = (uint8_t)(h >> (24 - 8 * k));
    }
    uint32_t crc = 0xffffffffu;
    for (int i = 12; i < 29; i++) {
        crc ^= m->data[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (int k = 0; k < 4; k++) m->data[29 + k] = (uint8_t)(~crc >> (24 - 8 * k));
}

static void expect_refused(const char *what, const made *m, const char *says)
{
    pl_image im;
    polar_status st = pl_image_decode(&im, m->data, m->size, "some.file");
    int ok = st == POLAR_E_FORMAT && !im.data && strstr(polar_error_message(), says);
    polar_status part = pl_image_decode_crop(&im, m->data, m->size, "some.file", (pl_box){0, 0, 1, 1});
    test_true(what, ok && part == POLAR_E_FORMAT && strstr(polar_error_message(), says), "%s", polar_error_message());
}

static void test_lies(void)
{
    made_jpeg_opts jo = {.width = 40, .height = 30, .components = 3, .h = 2, .v = 2}, po = jo;
    made_png_opts no = {.width = 40, .height = 30, .type = PNG_COLOR_TYPE_RGB, .depth = 8};
    po.scans = MADE_PROGRESSIVE;
    made j = made_jpeg(&jo), p = made_jpeg(&po), n = made_png(&no);
    set_jpeg_size(&j, 60000, 60000);
    expect_refused("a JPEG that claims 60000 x 60000", &j, "claims 60000 x 60000");
    set_jpeg_size(&p, 60000, 60000);
    expect_refused("a progressive one", &p, "claims 60000 x 60000");
    set_jpeg_size(&j, 12000, 12000);
    expect_refused("a JPEG of 1.5 kB that claims 12000 x 12000", &j, "ends early: 12000 x 12000");
    set_jpeg_size(&j, 0, 30);
    expect_refused("a JPEG of no columns", &j, "some.file");
    set_png_size(&n, 60000, 60000);
    expect_refused("a PNG that claims 60000 x 60000", &n, "claims 60000 x 60000");
    set_png_size(&n, 2000000000, 2000000000);
    expect_refused("a PNG that claims 2e9 x 2e9", &n, "some.file");
    set_png_size(&n, 9000, 9000);
    expect_refused("a PNG of 4 kB that claims 9000 x 9000", &n, "ends early: 9000 x 9000");
    set_png_size(&n, 40, 31);    /* one row more than there is */
    pl_image im;
    polar_status st = pl_image_decode(&im, n.data, n.size, "some.file");
    test_true("a PNG that claims one row more", st == POLAR_E_FORMAT && !im.data, "%s", polar_error_message());
    free(j.data);
    free(p.data);
    free(n.data);
}

/* The last scan of a progressive file again and again: each walks over all blocks, however few bytes it has. */
static void test_many_scans(void)
{
    made_jpeg_opts o = {.width = 64, .height = 64, .components = 3, .scans = MADE_PROGRESSIVE};
    made m = made_jpeg(&o), long_one = {NULL, 0};
    size_t at = 0;
    for (size_t i = 2; i + 1 < m.size; i++)
        if (m.data[i] == 0xff && m.data[i + 1] == 0xda) at = i;
    size_t span = m.size - 2 - at, times = 600;
    long_one.data = malloc(m.size + times * span);
    memcpy(long_one.data, m.data, m.size - 2);
    long_one.size = m.size - 2;
    for (size_t i = 0; i < times; i++, long_one.size += span) memcpy(long_one.data + long_one.size, m.data + at, span);
    memcpy(long_one.data + long_one.size, "\xff\xd9", 2);
    long_one.size += 2;
    expect_refused("a JPEG of 600 scans", &long_one, "500 scans");
    free(m.data);
    free(long_one.data);
}

/* ---- memory ----------------------------------------------------------------------------------------------------------- */

static void test_faults(const char *what, made m)
{
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0;
    for (; st != POLAR_OK && n < 1000; n++) {
        pl_image im;
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = pl_image_decode_crop(&im, m.data, m.size, "some.file", (pl_box){3, 4, 20, 10});
        pl_alloc_fail_at(0);
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || im.data);
        pl_image_destroy(&im);
        leaks += pl_alloc_live() != live;
    }
    test_true(what, st == POLAR_OK && n > 2 && !leaks && !wrong, "%lld allocations, %lld leaks, %lld other errors", (long long)n - 1, (long long)leaks, (long long)wrong);
    free(m.data);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    fuzz("grey JPEG", made_jpeg(&(made_jpeg_opts){.width = 33, .height = 25, .components = 1}), 0);
    fuzz("4:2:0 JPEG", made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .h = 2, .v = 2, .quality = 60}), 0);
    fuzz("progressive JPEG", made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .h = 2, .v = 1, .quality = 60, .scans = MADE_PROGRESSIVE}), 0);
    fuzz("CMYK JPEG with restarts", made_jpeg(&(made_jpeg_opts){.width = 21, .height = 19, .components = 4, .quality = 60, .restart = 2}), 0);
    fuzz("arithmetic JPEG", made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .quality = 60, .scans = MADE_ARITHMETIC}), 0);
    /* the pixels of a PNG are whole before its last bytes: the end of the deflate stream, the chunk's sum, IEND, as in Pillow */
    fuzz("RGB PNG", made_png(&(made_png_opts){.width = 20, .height = 14, .type = PNG_COLOR_TYPE_RGB, .depth = 8}), 24);
    fuzz("interlaced palette PNG", made_png(&(made_png_opts){.width = 40, .height = 30, .type = PNG_COLOR_TYPE_PALETTE, .depth = 4, .colours = 16, .interlaced = 1, .transparent = 1}), 24);
    fuzz("16-bit grey PNG", made_png(&(made_png_opts){.width = 20, .height = 14, .type = PNG_COLOR_TYPE_GRAY, .depth = 16}), 24);
    test_lies();
    test_many_scans();
    test_faults("JPEG, memory runs out", made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .h = 2, .v = 2}));
    test_faults("PNG, memory runs out", made_png(&(made_png_opts){.width = 41, .height = 29, .type = PNG_COLOR_TYPE_RGB, .depth = 8}));
    test_faults("interlaced palette PNG, memory runs out", made_png(&(made_png_opts){.width = 41, .height = 29, .type = PNG_COLOR_TYPE_PALETTE, .depth = 8, .colours = 200, .interlaced = 1}));
#ifndef __SANITIZE_ADDRESS__
    /* Files here have at most 4 kB: 32000 blocks of 64 pixels as JPEG (3 bytes a pixel, 2 of coefficients in each of 3 channels: 19 MB), or 4.2 MB of 4-bit rows as PNG (1 byte
     * a pixel for the indices, 3 of RGB: 34 MB); the long one of 600 scans is refused early. Twice the sum, and the program itself. */
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    test_true("memory at the most", use.ru_maxrss < 128 * 1024, "%ld MB", use.ru_maxrss / 1024);
#endif
    return test_end();
}
