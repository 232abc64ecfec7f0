/* image_png.c -- PNG through libpng, to the RGB that Pillow's convert("RGB") gives.
 *
 *     grey 1, 2, 4 bits    spread over 0 .. 255           grey 16    min(value, 255), Pillow's I;16
 *     palette              its colours                    colour 16  the high byte
 *     alpha, tRNS          dropped, colours unchanged     gamma, profiles, background  ignored
 *
 * Deflate shrinks at most 1032 times: a file that claims more than that is refused before memory is taken.
 * Rows of an interlaced picture are spread over the whole file, so it is decoded whole; of others a part
 * needs the rows down to its last one.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "base/alloc.h"
#include "data/codec/image_codec.h"

typedef struct png_work {
    png_structp png;
    png_infop info;
    jmp_buf out;
    polar_status status;
    char said[200];
    const pl_codec_source *src;
    size_t at;
    int no_memory;
    int grey16, palette; /* rows that libpng does not bring to RGB */
    uint8_t colours[256][3];
    uint8_t *rows; /* one row, or all of an interlaced picture */
    png_bytep *row_list;
} png_work;

/* ---- what libpng calls -------------------------------------------------------------------------- */

static void leave(png_work *w, polar_status status, const char *said)
{
    w->status = status;
    snprintf(w->said, sizeof w->said, "%s", said);
    longjmp(w->out, 1);
}

static void on_error(png_structp png, png_const_charp said)
{
    png_work *w = png_get_error_ptr(png);
    leave(w, w->no_memory ? POLAR_E_NOMEM : POLAR_E_FORMAT, said);
}

static void on_warning(png_structp png, png_const_charp said)
{
    (void)png, (void)said;
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    png_work *w = png_get_mem_ptr(png);
    void *p = pl_alloc(bytes);
    if (!p) w->no_memory = 1; /* libpng comes to on_error, or goes on without a part: neither counts */
    return p;
}

static void on_free(png_structp png, png_voidp p)
{
    (void)png;
    pl_free(p);
}

static void on_read(png_structp png, png_bytep out, size_t n)
{
    png_work *w = png_get_io_ptr(png);
    if (n > w->src->size - w->at) leave(w, POLAR_E_FORMAT, "ends early");
    memcpy(out, w->src->bytes + w->at, n);
    w->at += n;
}

/* ---- the header --------------------------------------------------------------------------------- */

static polar_status read_header(png_work *w, pl_image_info *info, const pl_box *box, int whole)
{
    static const pl_image_colour colour_of[] = {[PNG_COLOR_TYPE_GRAY] = PL_COLOUR_GREY,
                                                [PNG_COLOR_TYPE_RGB] = PL_COLOUR_RGB,
                                                [PNG_COLOR_TYPE_PALETTE] = PL_COLOUR_PALETTE,
                                                [PNG_COLOR_TYPE_GRAY_ALPHA] = PL_COLOUR_GREY,
                                                [PNG_COLOR_TYPE_RGB_ALPHA] = PL_COLOUR_RGB};
    w->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, w, on_error, on_warning, w, on_alloc, on_free);
    PL_NEED(w->png, POLAR_E_NOMEM, "%s: a PNG reader", w->src->name);
    w->info = png_create_info_struct(w->png);
    PL_NEED(w->info, POLAR_E_NOMEM, "%s: a PNG header", w->src->name);
    png_set_read_fn(w->png, w, on_read);
    /* pl_codec_check has the limit */
    png_set_user_limits(w->png, 0x7fffffff, 0x7fffffff);
    /* texts and profiles are passed over unread */
    png_set_keep_unknown_chunks(w->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(w->png, w->info);
    int type = png_get_color_type(w->png, w->info);
    *info = (pl_image_info){.width = png_get_image_width(w->png, w->info),
                            .height = png_get_image_height(w->png, w->info),
                            .format = PL_IMAGE_PNG,
                            .colour = colour_of[type],
                            .progressive = png_get_interlace_type(w->png, w->info) != PNG_INTERLACE_NONE};
    uint64_t raw = ((uint64_t)png_get_rowbytes(w->png, w->info) + 1) * (uint64_t)info->height;
    return pl_codec_check(w->src, info, box, whole ? raw / PL_CODEC_MAX_RATIO : 0);
}

/* As Pillow: what PLTE does not define is black. */
static void read_palette(png_work *w)
{
    png_colorp given = NULL;
    int n = 0;
    png_get_PLTE(w->png, w->info, &given, &n);
    for (int i = 0; i < 256; i++) {
        w->colours[i][0] = i < n ? given[i].red : 0;
        w->colours[i][1] = i < n ? given[i].green : 0;
        w->colours[i][2] = i < n ? given[i].blue : 0;
    }
}

static void choose_transforms(png_work *w)
{
    int type = png_get_color_type(w->png, w->info), depth = png_get_bit_depth(w->png, w->info);
    w->palette = type == PNG_COLOR_TYPE_PALETTE;
    w->grey16 = type == PNG_COLOR_TYPE_GRAY && depth == 16;
    if (w->palette) {
        png_set_packing(w->png);
        read_palette(w);
    } else if (!w->grey16) {
        if (depth == 16) png_set_strip_16(w->png);
        if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(w->png);
        if (type & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(w->png);
        if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(w->png);
    }
    png_set_interlace_handling(w->png);
    png_read_update_info(w->png, w->info);
}

/* ---- pixels ------------------------------------------------------------------------------------- */

static void convert_row(const png_work *w, uint8_t *out, const uint8_t *row, int64_t x, int64_t pixels)
{
    if (w->palette) {
        for (int64_t i = 0; i < pixels; i++, out += 3) memcpy(out, w->colours[row[x + i]], 3);
    } else if (w->grey16) {
        for (int64_t i = 0; i < pixels; i++, out += 3)
            out[0] = out[1] = out[2] = row[2 * (x + i)] ? 255 : row[2 * (x + i) + 1];
    } else memcpy(out, row + 3 * x, (size_t)pixels * 3);
}

static polar_status read_rows(png_work *w, pl_image *out, const pl_box *box, size_t row_bytes)
{
    w->rows = pl_alloc(row_bytes);
    PL_NEED(w->rows, POLAR_E_NOMEM, "%s: a row of %zu bytes", w->src->name, row_bytes);
    for (int64_t y = 0; y < box->y + box->height; y++) {
        png_read_row(w->png, w->rows, NULL);
        if (y >= box->y) convert_row(w, pl_image_at(out, 0, y - box->y), w->rows, box->x, box->width);
    }
    return POLAR_OK;
}

static polar_status read_interlaced(png_work *w, pl_image *out, const pl_box *box, size_t row_bytes,
                                    int64_t height)
{
    w->rows = pl_calloc((size_t)height, row_bytes);
    w->row_list = pl_calloc((size_t)height, sizeof *w->row_list);
    PL_NEED(w->rows && w->row_list, POLAR_E_NOMEM, "%s: %lld rows of %zu bytes", w->src->name,
            (long long)height, row_bytes);
    for (int64_t y = 0; y < height; y++) w->row_list[y] = w->rows + (size_t)y * row_bytes;
    png_read_image(w->png, w->row_list);
    for (int64_t y = 0; y < box->height; y++)
        convert_row(w, pl_image_at(out, 0, y), w->row_list[box->y + y], box->x, box->width);
    return POLAR_OK;
}

static polar_status decode(png_work *w, pl_image *out, const pl_box *part)
{
    pl_image_info info;
    PL_TRY(read_header(w, &info, part, 1));
    pl_box box = part ? *part : (pl_box){0, 0, info.width, info.height};
    choose_transforms(w);
    size_t row_bytes = png_get_rowbytes(w->png, w->info);
    PL_TRY(pl_image_create(out, box.width, box.height));
    return info.progressive ? read_interlaced(w, out, &box, row_bytes, info.height)
                            : read_rows(w, out, &box, row_bytes);
}

/* ---- entries ------------------------------------------------------------------------------------ */

static polar_status failed(const png_work *w)
{
    return PL_FAIL(w->status,
                   w->status == POLAR_E_NOMEM ? "%s: not enough memory to decode it (%s)"
                                              : "%s: broken PNG: %s",
                   w->src->name, w->said);
}

static polar_status end(png_work *w, polar_status st)
{
    png_destroy_read_struct(w->png ? &w->png : NULL, w->info ? &w->info : NULL, NULL);
    pl_free(w->rows);
    pl_free(w->row_list);
    if (st == POLAR_OK && w->no_memory)
        return PL_FAIL(POLAR_E_NOMEM, "%s: not enough memory to decode it", w->src->name);
    return st;
}

polar_status pl_png_measure(pl_image_info *out, const pl_codec_source *src)
{
    png_work w = {.src = src};
    polar_status st;
    if (setjmp(w.out)) st = failed(&w);
    else st = read_header(&w, out, NULL, 0);
    return end(&w, st);
}

polar_status pl_png_decode(pl_image *out, const pl_codec_source *src, const pl_box *box)
{
    png_work w = {.src = src};
    polar_status st;
    if (setjmp(w.out)) st = failed(&w);
    else st = decode(&w, out, box);
    st = end(&w, st);
    if (st != POLAR_OK) pl_image_destroy(out);
    return st;
}
