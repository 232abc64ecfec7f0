/* fuzz_image.c -- any bytes as a picture: JPEG or PNG, whole and in part. What is decoded has the size it
 * says and, of JPEG, libjpeg's pixels; a part is that of the whole; time and memory keep to the file's size.
 */
#include "fuzz.h"

#include <time.h>

#include "data/broken_fixture.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static void seed_made(const char *name, made m)
{
    fuzz_seed(name, m.data, m.size);
    free(m.data);
}

void fuzz_begin(void)
{
    made_jpeg_opts j = {.width = 21, .height = 19, .components = 3, .h = 2, .v = 2, .quality = 30}, k = j;
    made_png_opts p = {.width = 20, .height = 14, .type = PNG_COLOR_TYPE_RGB, .depth = 8};
    seed_made("jpeg", made_jpeg(&j));
    k.scans = MADE_PROGRESSIVE;
    seed_made("progressive", made_jpeg(&k));
    k.scans = MADE_ARITHMETIC;
    seed_made("arithmetic", made_jpeg(&k));
    k = j, k.components = 1, k.restart = 2;
    seed_made("grey", made_jpeg(&k));
    k.components = 4, k.ycck = 1;
    seed_made("ycck", made_jpeg(&k));
    seed_made("png", made_png(&p));
    p.type = PNG_COLOR_TYPE_PALETTE, p.depth = 4, p.colours = 16, p.interlaced = 1, p.transparent = 1;
    seed_made("palette", made_png(&p));
    p = (made_png_opts){.width = 9, .height = 8, .type = PNG_COLOR_TYPE_GRAY, .depth = 16};
    seed_made("grey16", made_png(&p));
}

/* A PNG's sums are made right again. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    if (seed % 8 == 0 || pl_image_sniff(data, size) != PL_IMAGE_PNG) return size;
    made m = {data, size};
    for (size_t at = 8; at + 12 <= size && made_png_chunk(&m, at) <= size - at; at += made_png_chunk(&m, at))
        made_png_mend(&m, at);
    return size;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fuzz_try(const uint8_t *data, size_t size)
{
    pl_image_info info;
    pl_image im;
    double begun = now();
    if (pl_image_decode(&im, data, size, "some.file") == POLAR_OK) {
        need(pl_image_measure(&info, data, size, "some.file") == POLAR_OK);
        need(im.width == info.width && im.height == info.height && im.channels == PL_IMAGE_CHANNELS);
        need(pl_image_bytes(&im) <= 3 * 1032 * 8 * size); /* of one bit a pixel, the most that deflate can */
    }
    pl_image_destroy(&im);
    need(now() - begun < 0.5 + 1e-3 * (double)size); /* a thousand times as slow as a picture is */
    need(broken_try(data, size) != BROKEN_WRONG);
}
