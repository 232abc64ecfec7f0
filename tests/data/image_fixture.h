/* image_fixture.h -- small pictures made by libjpeg and libpng themselves: every sampling, colour and coding
 * that the decoders must read. */
#ifndef POLAR_IMAGE_FIXTURE_H
#define POLAR_IMAGE_FIXTURE_H

#include <stdio.h>

#include <jpeglib.h>
#include <png.h>

#include "base/philox.h"
#include "data/codec/image_decode.h"
#include "test.h"

typedef struct made {
    uint8_t *data;
    size_t size;
} made;

static inline uint32_t made_draw(uint32_t trial, uint32_t k, uint32_t n)
{
    return pl_uniform_below(pl_philox(20240601, PL_STREAM_TEST, trial, k).x, n);
}

/* Patches with noise: edges in every block, so that a wrong neighbour shows. n bytes per pixel. */
static inline uint8_t *made_pixels(int w, int h, int n, uint32_t seed)
{
    uint8_t *p = malloc((size_t)w * (size_t)h * (size_t)n);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < n; k++) {
                int v = (int)made_draw(seed, (uint32_t)((y / 5) * 65536 + (x / 7) * 8 + k), 256) +
                        (int)made_draw(seed + 1, (uint32_t)((y * w + x) * n + k), 41) - 20;
                p[((size_t)y * (size_t)w + (size_t)x) * (size_t)n + (size_t)k] = (uint8_t)(v < 0     ? 0
                                                                                           : v > 255 ? 255
                                                                                                     : v);
            }
    return p;
}

/* ---- JPEG --------------------------------------------------------------------------------------- */

typedef enum made_scans {
    MADE_BASELINE,
    MADE_PROGRESSIVE,
    MADE_DC_ONLY,
    MADE_SEPARATE,
    MADE_ARITHMETIC
} made_scans;

typedef struct made_jpeg_opts {
    int width, height, components; /* 1 grey, 3 YCbCr, 4 CMYK */
    /* sampling factors of the first component; the others have 1 x 1 */
    int h, v;
    made_scans scans;
    int restart; /* MCUs between restart markers */
    int quality, plain_rgb, ycck;
    uint32_t seed;
} made_jpeg_opts;

static inline made made_jpeg(const made_jpeg_opts *o)
{
    static const jpeg_scan_info dc_only[] = {{3, {0, 1, 2}, 0, 0, 0, 0}},
                                separate[] = {
                                    {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    made m = {NULL, 0};
    unsigned long size = 0;
    uint8_t *pixels = made_pixels(o->width, o->height, o->components, 100 + o->seed);
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &m.data, &size);
    c.image_width = (JDIMENSION)o->width;
    c.image_height = (JDIMENSION)o->height;
    c.input_components = o->components;
    c.in_color_space = o->components == 1 ? JCS_GRAYSCALE : o->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    if (o->plain_rgb) jpeg_set_colorspace(&c, JCS_RGB);
    if (o->ycck) jpeg_set_colorspace(&c, JCS_YCCK);
    jpeg_set_quality(&c, o->quality ? o->quality : 85, TRUE);
    for (int i = 0; i < o->components; i++) c.comp_info[i].h_samp_factor = c.comp_info[i].v_samp_factor = 1;
    if (o->h) c.comp_info[0].h_samp_factor = o->h;
    if (o->v) c.comp_info[0].v_samp_factor = o->v;
    if (o->ycck) { /* K has the size of Y */
        c.comp_info[3].h_samp_factor = c.comp_info[0].h_samp_factor;
        c.comp_info[3].v_samp_factor = c.comp_info[0].v_samp_factor;
    }
    if (o->scans == MADE_PROGRESSIVE) jpeg_simple_progression(&c);
    if (o->scans == MADE_DC_ONLY) c.scan_info = dc_only, c.num_scans = 1;
    if (o->scans == MADE_SEPARATE) c.scan_info = separate, c.num_scans = 3;
    if (o->scans == MADE_ARITHMETIC) c.arith_code = TRUE;
    c.restart_interval = (unsigned)o->restart;
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = pixels + (size_t)c.next_scanline * (size_t)o->width * (size_t)o->components;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(pixels);
    m.size = size;
    return m;
}

static inline void made_quiet(j_common_ptr c, int level)
{
    (void)c, (void)level;
}

/* All of it by libjpeg's plain calls, in the library's own colours (n = 1, 3 or 4 bytes per pixel). */
static inline uint8_t *made_jpeg_plain(const made *m, int *w, int *h, int *n)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    c.err = jpeg_std_error(&errors);
    errors.emit_message = made_quiet;
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, m->data, m->size);
    jpeg_read_header(&c, TRUE);
    jpeg_start_decompress(&c);
    *w = (int)c.output_width;
    *h = (int)c.output_height;
    *n = c.output_components;
    uint8_t *p = malloc((size_t)*w * (size_t)*h * (size_t)*n);
    while (c.output_scanline < c.output_height) {
        JSAMPROW row = p + (size_t)c.output_scanline * (size_t)*w * (size_t)*n;
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return p;
}

/* What those become: grey three times; inverted CMYK by the exactly rounded formula nk - round(c nk / 255).
 */
static inline uint8_t made_jpeg_rgb(const uint8_t *p, int n, int k)
{
    if (n < 4) return n == 1 ? p[0] : p[k];
    int c = 255 - p[k], nk = p[3], ink = (int)((2 * c * nk + 255) / 510);
    return (uint8_t)(nk > ink ? nk - ink : 0);
}

/* ---- PNG ---------------------------------------------------------------------------------------- */

typedef struct made_png_opts {
    int width, height, type, depth, interlaced; /* type: PNG_COLOR_TYPE_... */
    int colours;                                /* of a palette */
    int transparent;                            /* a tRNS chunk, and gAMA, tEXt beside it */
    uint32_t seed;
} made_png_opts;

static inline void made_png_put(png_structp png, png_bytep data, size_t n)
{
    made *m = png_get_io_ptr(png);
    m->data = realloc(m->data, m->size + n);
    memcpy(m->data + m->size, data, n);
    m->size += n;
}

static inline int made_png_channels(int type)
{
    return type == PNG_COLOR_TYPE_RGB          ? 3
           : type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
           : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                               : 1;
}

/* Samples are random words of `depth` bits; below 8 bits of a palette they stay below `colours`. */
static inline uint32_t made_png_sample(const made_png_opts *o, int x, int y, int k)
{
    uint32_t bits =
        pl_philox(20240602, PL_STREAM_TEST, 7 + o->seed, (uint64_t)((y * o->width + x) * 4 + k)).x >>
        (32 - o->depth);
    return o->type == PNG_COLOR_TYPE_PALETTE ? bits % (uint32_t)o->colours : bits;
}

static inline uint8_t made_png_colour(int i, int k)
{
    return (uint8_t)(37 * i + 91 * k + 5);
}

static inline made made_png(const made_png_opts *o)
{
    made m = {NULL, 0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    int n = made_png_channels(o->type), row_bytes = (o->width * n * o->depth + 7) / 8;
    png_set_write_fn(png, &m, made_png_put, NULL);
    png_set_IHDR(png, info, (png_uint_32)o->width, (png_uint_32)o->height, o->depth, o->type,
                 o->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    png_color palette[256];
    for (int i = 0; i < o->colours; i++)
        palette[i] = (png_color){made_png_colour(i, 0), made_png_colour(i, 1), made_png_colour(i, 2)};
    if (o->type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, o->colours);
    if (o->transparent) {
        png_byte alpha[1] = {0};
        png_color_16 one = {.red = 1, .green = 2, .blue = 3, .gray = 1};
        png_text text = {.compression = PNG_TEXT_COMPRESSION_zTXt, .key = "Comment", .text = "made"};
        png_set_tRNS(png, info, alpha, 1, &one);
        png_set_gAMA(png, info, 0.6);
        png_set_text(png, info, &text, 1);
    }
    png_write_info(png, info);
    png_bytep *rows = malloc((size_t)o->height * sizeof *rows);
    for (int y = 0; y < o->height; y++) {
        rows[y] = calloc(1, (size_t)row_bytes);
        for (int x = 0; x < o->width; x++)
            for (int k = 0; k < n; k++) {
                uint32_t v = made_png_sample(o, x, y, k);
                int i = x * n + k;
                if (o->depth == 16) rows[y][2 * i] = (uint8_t)(v >> 8), rows[y][2 * i + 1] = (uint8_t)v;
                else rows[y][i * o->depth / 8] |= (uint8_t)(v << (8 - o->depth - i * o->depth % 8));
            }
    }
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    for (int y = 0; y < o->height; y++) free(rows[y]);
    free(rows);
    return m;
}

/* The chunk that begins at `at`: how many bytes it has in all, and its sum made right again. */
static inline size_t made_png_chunk(const made *m, size_t at)
{
    return 12 + ((size_t)m->data[at] << 24 | (size_t)m->data[at + 1] << 16 | (size_t)m->data[at + 2] << 8 |
                 m->data[at + 3]);
}
static inline void made_png_mend(made *m, size_t at)
{
    size_t end = at + made_png_chunk(m, at) - 4;
    uint32_t crc = 0xffffffffu;
    for (size_t i = at + 4; i < end; i++) {
        crc ^= m->data[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (int k = 0; k < 4; k++) m->data[end + (size_t)k] = (uint8_t)(~crc >> (24 - 8 * k));
}

/* The RGB that Pillow's convert("RGB") makes of the sample (image_png.c has the table). */
static inline uint8_t made_png_rgb(const made_png_opts *o, int x, int y, int k)
{
    int grey = o->type == PNG_COLOR_TYPE_GRAY || o->type == PNG_COLOR_TYPE_GRAY_ALPHA;
    uint32_t v = made_png_sample(o, x, y, grey || o->type == PNG_COLOR_TYPE_PALETTE ? 0 : k);
    if (o->type == PNG_COLOR_TYPE_PALETTE) return made_png_colour((int)v, k);
    if (o->type == PNG_COLOR_TYPE_GRAY && o->depth == 16) return (uint8_t)(v > 255 ? 255 : v);
    return (uint8_t)(o->depth == 16 ? v >> 8 : v * 255 / ((1u << o->depth) - 1));
}

#endif
