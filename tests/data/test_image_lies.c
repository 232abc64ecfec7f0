/* test_image_lies.c -- headers that lie, one lie at a time and all of them: every byte of a JPEG's segments
 * and of a PNG's chunks (sums made right again) takes the values that matter, every segment and chunk is left
 * out, doubled and put before its neighbour. What is read must be libjpeg's pixels, whole and in part; the
 * rest is refused by name.
 */
#include "broken_fixture.h"

#include <sys/resource.h>

#define MAX_PARTS 64

typedef struct parts { /* segments or chunks, in order; the last one takes the rest of the file */
    int n;
    size_t at[MAX_PARTS], size[MAX_PARTS];
} parts;

/* From the start of image to the first scan, which takes everything after it. */
static parts jpeg_parts(const made *m)
{
    parts p = {0};
    size_t at = 2;
    for (; m->data[at + 1] != 0xda; at += p.size[p.n++]) {
        p.at[p.n] = at;
        p.size[p.n] = 2 + ((size_t)m->data[at + 2] << 8 | m->data[at + 3]);
    }
    p.at[p.n] = at;
    p.size[p.n++] = m->size - at;
    return p;
}

static parts png_parts(const made *m)
{
    parts p = {0};
    for (size_t at = 8; at < m->size; at += p.size[p.n++]) {
        p.at[p.n] = at;
        p.size[p.n] = made_png_chunk(m, at);
    }
    return p;
}

/* The file again with part k left out, twice there, or after the next one. */
static size_t rebuild(uint8_t *to, const made *m, const parts *p, int k, int how)
{
    size_t n = p->at[0];
    memcpy(to, m->data, n);
    for (int i = 0; i < p->n; i++) {
        int from = how == 2 && i == k && k + 1 < p->n ? k + 1 : how == 2 && i == k + 1 ? k : i;
        for (int times = i == k && how < 2 ? 2 * how : 1; times > 0; times--) {
            memcpy(to + n, m->data + p->at[from], p->size[from]);
            n += p->size[from];
        }
    }
    return n;
}

/* Bytes of a part that say something of the file rather than being its pixels. */
static size_t telling(const made *m, const parts *p, int k)
{
    int png = m->data[0] == 0x89, pixels = png ? !memcmp(m->data + p->at[k] + 4, "IDAT", 4) : k == p->n - 1;
    /* a scan's header, a deflate stream's first block */
    return pixels && p->size[k] > 20 ? 20 : p->size[k];
}

static void lie(const char *what, made m)
{
    static const int values[] = {0, 1, 2, 3, 0x7f, 0x80, 0xff};
    int png = m.data[0] == 0x89;
    parts p = png ? png_parts(&m) : jpeg_parts(&m);
    broken_count bytes = {0}, order = {0};
    int64_t live = pl_alloc_live();
    uint8_t *copy = malloc(3 * m.size);
    for (int k = 0; k < p.n; k++)
        for (size_t i = 0, n = telling(&m, &p, k); i < n; i++)
            for (int v = 0; v < 9; v++) {
                made c = {copy, m.size};
                memcpy(copy, m.data, m.size);
                copy[p.at[k] + i] = (uint8_t)(v < 7 ? values[v] : m.data[p.at[k] + i] + (v == 7 ? 1 : -1));
                /* not where the length or the sum itself lies */
                if (png && i > 3 && i < p.size[k] - 4) made_png_mend(&c, p.at[k]);
                broken_add(&bytes, copy, m.size);
            }
    for (int k = 0; k < p.n; k++)
        for (int how = 0; how < 3; how++) broken_add(&order, copy, rebuild(copy, &m, &p, k, how));
    /* lies that matter and lies that do not */
    int both = bytes.decoded > bytes.tries / 20 && bytes.refused > bytes.tries / 20 && order.refused > 2;
    test_true(what, PART(!bytes.wrong) && PART(!order.wrong) && PART(both) && PART(pl_alloc_live() == live),
              "%lld bytes changed, %lld decoded, %lld refused; %lld parts moved, %lld refused; %lld wrong",
              (long long)bytes.tries, (long long)bytes.decoded, (long long)bytes.refused,
              (long long)order.tries, (long long)order.refused, (long long)(bytes.wrong + order.wrong));
    free(copy);
    free(m.data);
}

/* Every pair of a depth and a colour type, compression, filter and interlacing: PNG knows 15 times 2 of them.
 */
static void test_png_kinds(void)
{
    /* more bytes than any other kind needs */
    made_png_opts o = {.width = 24, .height = 9, .type = PNG_COLOR_TYPE_RGB_ALPHA, .depth = 16};
    made m = made_png(&o);
    broken_count c = {0};
    int64_t known = 0;
    for (int depth = 0; depth < 18; depth++)
        for (int type = 0; type < 8; type++)
            for (int rest = 0; rest < 12; rest++) {
                pl_image_info info;
                m.data[24] = (uint8_t)depth, m.data[25] = (uint8_t)type, m.data[26] = (uint8_t)(rest / 6),
                m.data[27] = (uint8_t)(rest / 3 % 2), m.data[28] = (uint8_t)(rest % 3);
                made_png_mend(&m, 8);
                broken_add(&c, m.data, m.size);
                known += pl_image_measure(&info, m.data, m.size, "some.file") == POLAR_OK;
            }
    /* the 4 palette kinds have no PLTE here and are refused with it: 11 times 2 are left */
    test_true("every kind of PNG header", !c.wrong && known == 22, "%lld headers, %lld known, %lld wrong",
              (long long)c.tries, (long long)known, (long long)c.wrong);
    free(m.data);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    lie("4:2:0 JPEG", made_jpeg(&(made_jpeg_opts){
                          .width = 41, .height = 29, .components = 3, .h = 2, .v = 2, .quality = 60}));
    lie("grey JPEG with restarts",
        made_jpeg(&(made_jpeg_opts){.width = 33, .height = 25, .components = 1, .restart = 2}));
    lie("progressive JPEG",
        made_jpeg(&(made_jpeg_opts){
            .width = 41, .height = 29, .components = 3, .h = 2, .v = 1, .scans = MADE_PROGRESSIVE}));
    lie("YCCK JPEG",
        made_jpeg(&(made_jpeg_opts){.width = 20, .height = 20, .components = 4, .ycck = 1, .h = 2, .v = 2}));
    lie("arithmetic JPEG",
        made_jpeg(&(made_jpeg_opts){.width = 41, .height = 29, .components = 3, .scans = MADE_ARITHMETIC}));
    lie("JPEG of 1 x 1", made_jpeg(&(made_jpeg_opts){.width = 1, .height = 1, .components = 3}));
    lie("RGB PNG", made_png(&(made_png_opts){
                       .width = 20, .height = 14, .type = PNG_COLOR_TYPE_RGB, .depth = 8, .transparent = 1}));
    lie("interlaced palette PNG", made_png(&(made_png_opts){.width = 40,
                                                            .height = 30,
                                                            .type = PNG_COLOR_TYPE_PALETTE,
                                                            .depth = 4,
                                                            .colours = 16,
                                                            .interlaced = 1,
                                                            .transparent = 1}));
    lie("16-bit grey PNG",
        made_png(&(made_png_opts){.width = 20, .height = 14, .type = PNG_COLOR_TYPE_GRAY, .depth = 16}));
    lie("PNG of 1 x 1",
        made_png(&(made_png_opts){.width = 1, .height = 1, .type = PNG_COLOR_TYPE_RGB, .depth = 8}));
    lie("PNG of 20000 x 10",
        made_png(&(made_png_opts){.width = 20000, .height = 10, .type = PNG_COLOR_TYPE_GRAY, .depth = 1}));
    test_png_kinds();
#ifndef __SANITIZE_ADDRESS__
    struct rusage use;
    getrusage(RUSAGE_SELF, &use); /* the bound of test_image_fuzz, whose files are as long */
    test_true("memory at the most", use.ru_maxrss < 128 * 1024, "%ld MB", use.ru_maxrss / 1024);
#endif
    return test_end();
}
