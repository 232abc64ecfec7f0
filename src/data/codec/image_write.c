/* image_write.c -- libjpeg-turbo (4:2:0, baseline) and libpng into a buffer that grows. */
#include "data/codec/image_write.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

#include "base/alloc.h"
#include "base/whole_file.h"

typedef struct sink {
    uint8_t *data;
    size_t used, room;
    jmp_buf out;
    int no_memory;
} sink;

static void grow(sink *s, size_t more)
{
    if (more <= s->room - s->used) return;
    size_t room = 2 * s->room + more + 16384;
    uint8_t *data = pl_realloc(s->data, s->room, room);
    if (!data) {
        s->no_memory = 1;
        longjmp(s->out, 1);
    }
    s->data = data;
    s->room = room;
}

/* ---- JPEG --------------------------------------------------------------------------------------- */

static void jpeg_begin(j_compress_ptr c)
{
    sink *s = c->client_data;
    grow(s, 1);
    c->dest->next_output_byte = s->data;
    c->dest->free_in_buffer = s->room;
}

static boolean jpeg_full(j_compress_ptr c) /* called with the buffer full, whatever free_in_buffer says */
{
    sink *s = c->client_data;
    s->used = s->room;
    grow(s, s->room);
    c->dest->next_output_byte = s->data + s->used;
    c->dest->free_in_buffer = s->room - s->used;
    return TRUE;
}

static void jpeg_end(j_compress_ptr c)
{
    sink *s = c->client_data;
    s->used = s->room - c->dest->free_in_buffer;
}

static void jpeg_error(j_common_ptr c)
{
    longjmp(((sink *)c->client_data)->out, 1);
}

static void encode_jpeg(struct jpeg_compress_struct *c, const pl_image *im, int quality)
{
    jpeg_create_compress(c);
    c->image_width = (JDIMENSION)im->width;
    c->image_height = (JDIMENSION)im->height;
    c->input_components = 3;
    c->in_color_space = JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    struct jpeg_destination_mgr dest = {
        .init_destination = jpeg_begin, .empty_output_buffer = jpeg_full, .term_destination = jpeg_end};
    c->dest = &dest;
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = pl_image_at(im, 0, c->next_scanline);
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

/* ---- PNG ---------------------------------------------------------------------------------------- */

static void png_bytes(png_structp png, png_bytep data, size_t n)
{
    sink *s = png_get_io_ptr(png);
    grow(s, n);
    memcpy(s->data + s->used, data, n);
    s->used += n;
}

static void png_failed(png_structp png, png_const_charp said)
{
    (void)said;
    longjmp(((sink *)png_get_error_ptr(png))->out, 1);
}

static void png_quiet(png_structp png, png_const_charp said)
{
    (void)png, (void)said;
}

static void png_nothing(png_structp png)
{
    (void)png;
}

static void encode_png(png_structp png, png_infop info, sink *s, const pl_image *im)
{
    png_set_write_fn(png, s, png_bytes, png_nothing);
    png_set_IHDR(png, info, (png_uint_32)im->width, (png_uint_32)im->height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < im->height; y++) png_write_row(png, pl_image_at(im, 0, y));
    png_write_end(png, info);
}

/* ---- entries ------------------------------------------------------------------------------------ */

polar_status pl_image_encode(uint8_t **out, size_t *size, const pl_image *im, pl_image_format format,
                             int quality)
{
    sink s = {0};
    struct jpeg_compress_struct c = {0};
    struct jpeg_error_mgr errors;
    png_structp volatile png = NULL;
    png_infop volatile info = NULL;
    volatile int ok = 0;
    *out = NULL;
    PL_NEED(im->width > 0 && im->height > 0 && im->data &&
                (format == PL_IMAGE_JPEG || format == PL_IMAGE_PNG),
            POLAR_E_ARG, "a picture of %lld x %lld to write", (long long)im->width, (long long)im->height);
    c.err = jpeg_std_error(&errors);
    errors.error_exit = jpeg_error;
    c.client_data = &s;
    if (!setjmp(s.out)) {
        if (format == PL_IMAGE_JPEG) encode_jpeg(&c, im, quality);
        else {
            png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &s, png_failed, png_quiet);
            if (png) info = png_create_info_struct(png);
            if (!info) longjmp(s.out, 1);
            encode_png(png, info, &s, im);
        }
        ok = 1;
    }
    jpeg_destroy_compress(&c);
    png_structp p = png;
    png_infop i = info;
    if (p) png_destroy_write_struct(&p, i ? &i : NULL);
    if (!ok) {
        pl_free(s.data);
        return PL_FAIL(s.no_memory ? POLAR_E_NOMEM : POLAR_E_ARG,
                       "a picture of %lld x %lld could not be encoded", (long long)im->width,
                       (long long)im->height);
    }
    *out = s.data;
    *size = s.used;
    return POLAR_OK;
}

polar_status pl_image_write(const char *path, const pl_image *im, pl_image_format format, int quality)
{
    uint8_t *data;
    size_t size = 0;
    PL_TRY(pl_image_encode(&data, &size, im, format, quality));
    polar_status st = POLAR_OK;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) st = PL_FAIL(POLAR_E_IO, "create '%s': %s", path, strerror(errno));
    else st = pl_write_all(fd, data, size, path);
    if (fd >= 0 && close(fd) != 0 && st == POLAR_OK)
        st = PL_FAIL(POLAR_E_IO, "write '%s': %s", path, strerror(errno));
    if (fd >= 0 && st != POLAR_OK) unlink(path);
    pl_free(data);
    return st;
}
