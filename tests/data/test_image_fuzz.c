/* test_image_fuzz.c -- broken pictures: cut at every length, with changed bytes, with headers that lie, and
 * with memory that runs out. Decoded or refused with a sentence that names the file; no crash (the sanitizers
 * watch), no block left over, little memory.
 */
#include "broken_fixture.h"

#include <sys/resource.h>

/* One to four changes of a copy of m: a bit, a byte, a run of 0 or 255, bytes left out. Headers half of the
 * time. */
static size_t change(uint8_t *copy, const made *m, uint32_t trial)
{
    size_t n = m->size;
    uint32_t k = 0, changes = 1 + made_draw(trial, k++, 4);
    memcpy(copy, m->data, n);
    for (uint32_t c = 0; c < changes; c++) {
        size_t at = made_draw(trial, k++, trial & 1 && n > 300 ? 300 : (uint32_t)n),
               span = made_draw(trial, k++, 9);
        if (at + span > n) span = n - at;
        switch (made_draw(trial, k++, 4)) {
        case 0: copy[at] ^= (uint8_t)(1u << made_draw(trial, k++, 8)); break;
        case 1: copy[at] = (uint8_t)made_draw(trial, k++, 256); break;
        case 2: memset(copy + at, made_draw(trial, k++, 2) ? 255 : 0, span); break;
        default: memmove(copy + at, copy + at + span, n - at - span); n -= span;
        }
    }
    return n;
}

/* Sums of a PNG's chunks made right again, so that what is behind them is reached. */
static void mend(uint8_t *data, size_t size)
{
    made m = {data, size};
    for (size_t at = 8, n; at + 12 <= size && (n = made_png_chunk(&m, at)) <= size - at; at += n)
        made_png_mend(&m, at);
}

static void fuzz(const char *what, made m, int lenient_tail)
{
    int64_t live = pl_alloc_live(), early = 0;
    size_t step = m.size / 1200 + 1; /* every length, unless the file is long */
    uint32_t trials = m.size < 8192 ? 1500 : 150;
    broken_count cuts = {0}, changes = {0};
    uint8_t *copy = malloc(m.size);
    for (size_t n = 0; n < m.size; n += step)
        early += broken_add(&cuts, m.data, n) > 0 && n + (size_t)lenient_tail < m.size &&
                 broken_try(m.data, n) & BROKEN_WHOLE;
    for (uint32_t trial = 0; trial < trials; trial++) {
        size_t n = change(copy, &m, trial);
        if (m.data[0] == 0x89 && trial % 4) mend(copy, n);
        broken_add(&changes, copy, n);
    }
    test_true(
        what,
        PART(!cuts.wrong) && PART(!changes.wrong) && PART(!early) && PART(changes.refused > trials / 30) &&
            PART(pl_alloc_live() == live),
        "%zu bytes: %lld cuts, %lld taken for whole; %lld changes, %lld decoded, %lld refused; %lld wrong",
        m.size, (long long)cuts.tries, (long long)early, (long long)changes.tries, (long long)changes.decoded,
        (long long)changes.refused, (long long)(cuts.wrong + changes.wrong));
    free(copy);
    free(m.data);
}

/* ---- lies --------------------------------------------------------------------------------------- */

static void set_jpeg_size(made *m, int w, int h)
{
    for (size_t i = 2; i + 9 < m->size;) {
        int marker = m->data[i + 1];
        if ((marker >= 0xc0 && marker <= 0xc2) || marker == 0xc9) { /* the last: arithmetic */
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
    made_png_mend(m, 8);
}

static void expect_refused(const char *what, const made *m, const char *says)
{
    pl_image im;
    polar_status st = pl_image_decode(&im, m->data, m->size, "some.file");
    int ok = st == POLAR_E_FORMAT && !im.data && strstr(polar_error_message(), says);
    polar_status part = pl_image_decode_crop(&im, m->data, m->size, "some.file", (pl_box){0, 0, 1, 1});
    test_true(what, ok && part == POLAR_E_FORMAT && strstr(polar_error_message(), says), "%s",
              polar_error_message());
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
    po.scans = MADE_ARITHMETIC;
    made a = made_jpeg(&po);
    set_jpeg_size(&a, 12000, 12000);
    expect_refused("an arithmetic one", &a, "ends early: 12000 x 12000");
    free(a.data);
    set_jpeg_size(&j, 0, 30);
    expect_refused("a JPEG of no columns", &j, "some.file");
    set_png_size(&n, 60000, 60000);
    expect_refused("a PNG that claims 60000 x 60000", &n, "claims 60000 x 60000");
    set_png_size(&n, 2000000000, 2000000000);
    expect_refused("a PNG that claims 2e9 x 2e9", &n, "some.file");
    set_png_size(&n, 9000, 9000);
    expect_refused("a PNG of 4 kB that claims 9000 x 9000", &n, "ends early: 9000 x 9000");
    set_png_size(&n, 40, 31); /* one row more than there is */
    pl_image im;
    polar_status st = pl_image_decode(&im, n.data, n.size, "some.file");
    test_true("a PNG that claims one row more", st == POLAR_E_FORMAT && !im.data, "%s",
              polar_error_message());
    free(j.data);
    free(p.data);
    free(n.data);
}

/* The last scan of a progressive file again and again: each walks over all blocks, however few bytes it has.
 */
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
    for (size_t i = 0; i < times; i++, long_one.size += span)
        memcpy(long_one.data + long_one.size, m.data + at, span);
    memcpy(long_one.data + long_one.size, "\xff\xd9", 2);
    long_one.size += 2;
    expect_refused("a JPEG of 600 scans", &long_one, "500 scans");
    free(m.data);
    free(long_one.data);
}

/* The middle of a progressive file's scans, which has few bytes, often enough for minutes of work; the limit
 * is one of its size. */
static void test_scans_by_size(void)
{
    made_jpeg_opts o = {.width = 64, .height = 64, .components = 1, .scans = MADE_PROGRESSIVE, .quality = 1};
    made m = made_jpeg(&o), long_one = {NULL, 0};
    size_t at = 0, times = 200,
           span = 12; /* a scan of AC coefficients without any: its header and two bytes */
    for (size_t i = 2; i + 1 < m.size; i++)
        if (m.data[i] == 0xff && m.data[i + 1] == 0xda) at = i;
    long_one.data = malloc(m.size + times * span);
    memcpy(long_one.data, m.data, at);
    long_one.size = at;
    for (size_t i = 0; i < times; i++, long_one.size += span)
        memcpy(long_one.data + long_one.size, "\xff\xda\0\x08\1\1\0\1\1\0\xff\xd0", span);
    memcpy(long_one.data + long_one.size, m.data + at, m.size - at);
    long_one.size += m.size - at;
    set_jpeg_size(&long_one, 1200, 1200); /* 22500 blocks, 200 times: more than 160 for each byte */
    expect_refused("a JPEG of 200 scans over 22500 blocks", &long_one, "too many scans for its size");
    free(m.data);
    free(long_one.data);
}

/* ---- memory ------------------------------------------------------------------------------------- */

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
    test_true(what, PART(st == POLAR_OK) && PART(n > 2) && PART(!leaks) && PART(!wrong),
              "%lld allocations, %lld leaks, %lld other errors", (long long)n - 1, (long long)leaks,
              (long long)wrong);
    free(m.data);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    fuzz("grey JPEG", made_jpeg(&(made_jpeg_opts){.width = 33, .height = 25, .components = 1}), 0);
    fuzz("4:2:0 JPEG",
         made_jpeg(
             &(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .h = 2, .v = 2, .quality = 60}),
         0);
    fuzz("4:2:2 JPEG with restarts",
         made_jpeg(&(made_jpeg_opts){
             .width = 41, .height = 29, .components = 3, .h = 2, .v = 1, .quality = 60, .restart = 2}),
         0);
    fuzz("progressive JPEG",
         made_jpeg(&(made_jpeg_opts){.width = 41,
                                     .height = 29,
                                     .components = 3,
                                     .h = 2,
                                     .v = 1,
                                     .quality = 60,
                                     .scans = MADE_PROGRESSIVE}),
         0);
    fuzz(
        "CMYK JPEG with restarts",
        made_jpeg(&(made_jpeg_opts){.width = 21, .height = 19, .components = 4, .quality = 60, .restart = 2}),
        0);
    fuzz("arithmetic JPEG",
         made_jpeg(&(made_jpeg_opts){
             .width = 41, .height = 29, .components = 3, .quality = 60, .scans = MADE_ARITHMETIC}),
         0);
    /* the pixels of a PNG are whole before its last bytes: the end of the deflate stream, the chunk's sum,
     * IEND, as in Pillow */
    fuzz("RGB PNG",
         made_png(&(made_png_opts){.width = 20, .height = 14, .type = PNG_COLOR_TYPE_RGB, .depth = 8}), 24);
    fuzz("interlaced palette PNG",
         made_png(&(made_png_opts){.width = 40,
                                   .height = 30,
                                   .type = PNG_COLOR_TYPE_PALETTE,
                                   .depth = 4,
                                   .colours = 16,
                                   .interlaced = 1,
                                   .transparent = 1}),
         24);
    fuzz("16-bit grey PNG",
         made_png(&(made_png_opts){.width = 20, .height = 14, .type = PNG_COLOR_TYPE_GRAY, .depth = 16}), 24);
    fuzz("JPEG of 1 x 1",
         made_jpeg(&(made_jpeg_opts){.width = 1, .height = 1, .components = 3, .h = 2, .v = 2}), 0);
    fuzz("PNG of 1 x 1",
         made_png(&(made_png_opts){.width = 1, .height = 1, .type = PNG_COLOR_TYPE_RGB_ALPHA, .depth = 8}),
         24);
    fuzz("JPEG of 20000 x 10",
         made_jpeg(
             &(made_jpeg_opts){.width = 20000, .height = 10, .components = 3, .h = 2, .v = 2, .quality = 10}),
         0);
    fuzz("progressive JPEG of 10 x 20000",
         made_jpeg(&(made_jpeg_opts){
             .width = 10, .height = 20000, .components = 1, .quality = 10, .scans = MADE_PROGRESSIVE}),
         0);
    fuzz("PNG of 20000 x 10",
         made_png(&(made_png_opts){
             .width = 20000, .height = 10, .type = PNG_COLOR_TYPE_PALETTE, .depth = 1, .colours = 2}),
         24);
    test_lies();
    test_many_scans();
    test_scans_by_size();
    test_faults("JPEG, memory runs out",
                made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .h = 2, .v = 2}));
    test_faults(
        "PNG, memory runs out",
        made_png(&(made_png_opts){.width = 41, .height = 29, .type = PNG_COLOR_TYPE_RGB, .depth = 8}));
    test_faults("interlaced palette PNG, memory runs out",
                made_png(&(made_png_opts){.width = 41,
                                          .height = 29,
                                          .type = PNG_COLOR_TYPE_PALETTE,
                                          .depth = 8,
                                          .colours = 200,
                                          .interlaced = 1}));
#ifndef __SANITIZE_ADDRESS__
    /* Files here have at most 28 kB: 224000 blocks of 64 pixels of a grey JPEG, which are 43 MB whole, 11 MB
     * in part, 14 MB by libjpeg itself and 29 MB of coefficients. A PNG's claim may come to more, but its
     * rows are written one by one, and those that are not in the file never touch a page. With the program
     * itself below 128 MB. */
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    test_true("memory at the most", use.ru_maxrss < 128 * 1024, "%ld MB", use.ru_maxrss / 1024);
#endif
    return test_end();
}
