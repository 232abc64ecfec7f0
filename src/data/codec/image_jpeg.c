/* image_jpeg.c -- JPEG through libjpeg-turbo: whole pictures, and parts of them with the same pixels.
 *
 * A part. Its columns and rows are widened to whole iMCUs (the blocks that are coded together, 8 to 32
 * pixels) and by one more on each side, which is what the smooth upsampling of the colour channels looks at;
 * columns outside are neither transformed nor converted (jpeg_crop_scanline), rows above only entropy-decoded
 * (jpeg_skip_scanlines), rows below not touched. Progressive files take three iMCUs: where fine coefficients
 * are missing libjpeg smooths over two blocks.
 *
 * Claims. Every block of a Huffman-coded file costs a bit at least, in its DC scan; a file with fewer bits
 * than blocks cannot be whole, and is refused before any memory is taken. Arithmetic codes have no such bound
 * (128 bytes can be 12000 x 12000 pixels of one colour): what they shrink further than deflate can is
 * refused. A scan walks over every block, however few bytes it has, so that a file of many may take hours: as
 * many are read as an encoder makes of the flattest picture, and twice that. A file that ends early is
 * refused as Pillow does; other damage that libjpeg reads over with a warning is read over, as there.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/alloc.h"
#include "data/codec/image_codec.h"

#define MAX_SCANS    500
#define MAX_VISITS   160 /* of blocks by scans, for each byte: 20 scans, where a block is one bit in all */
#define MAX_MEMORY   1500000000 /* of libjpeg: coefficients of a progressive file */
#define MARGIN       1          /* iMCUs */
#define MARGIN_SCANS 3
/* bytes: aligned rows libjpeg-turbo writes past the caches (movnt), and reading them at once made the whole
 * decoding 1.5 times as long */
#define OFF_ALIGN 8

typedef struct jpeg_work {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    polar_status status;
    char said[JMSG_LENGTH_MAX];
    const pl_codec_source *src;
    uint64_t blocks; /* of all components */
    uint8_t *row;    /* one decoded row */
} jpeg_work;

/* ---- what libjpeg calls ------------------------------------------------------------------------- */

static void leave(jpeg_work *w, polar_status status, const char *said)
{
    w->status = status;
    if (said) snprintf(w->said, sizeof w->said, "%s", said);
    longjmp(w->out, 1);
}

static void on_error(j_common_ptr c)
{
    jpeg_work *w = c->client_data;
    int memory = c->err->msg_code == JERR_OUT_OF_MEMORY;
    c->err->format_message(c, w->said);
    leave(w, memory ? POLAR_E_NOMEM : POLAR_E_FORMAT, NULL);
}

static void on_message(j_common_ptr c, int level)
{
    (void)c, (void)level;
}

static void on_print(j_common_ptr c)
{
    (void)c;
}

static void on_source(j_decompress_ptr c)
{
    (void)c;
}

static boolean on_empty(j_decompress_ptr c)
{
    leave(c->client_data, POLAR_E_FORMAT, "ends early");
    return FALSE;
}

static void on_skip(j_decompress_ptr c, long n)
{
    if (n <= 0) return;
    if ((size_t)n > c->src->bytes_in_buffer) leave(c->client_data, POLAR_E_FORMAT, "ends early");
    c->src->next_input_byte += n;
    c->src->bytes_in_buffer -= (size_t)n;
}

static void on_progress(j_common_ptr c)
{
    jpeg_work *w = c->client_data;
    if (!c->is_decompressor) return;
    uint64_t scans = (uint64_t)((j_decompress_ptr)c)->input_scan_number;
    if (scans > MAX_SCANS) leave(w, POLAR_E_FORMAT, "has more than 500 scans");
    if (scans * w->blocks > MAX_VISITS * (uint64_t)w->src->size)
        leave(w, POLAR_E_FORMAT, "has too many scans for its size");
}

/* ---- the header --------------------------------------------------------------------------------- */

static void begin(jpeg_work *w, const pl_codec_source *src)
{
    memset(w, 0, sizeof *w);
    w->src = src;
    w->cinfo.err = jpeg_std_error(&w->errors);
    w->errors.error_exit = on_error;
    w->errors.emit_message = on_message;
    w->errors.output_message = on_print;
    w->cinfo.client_data = w;
    w->source = (struct jpeg_source_mgr){.next_input_byte = src->bytes,
                                         .bytes_in_buffer = src->size,
                                         .init_source = on_source,
                                         .fill_input_buffer = on_empty,
                                         .skip_input_data = on_skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = on_source};
    w->progress.progress_monitor = on_progress;
}

static polar_status read_header(jpeg_work *w, pl_image_info *info, const pl_box *box, int whole)
{
    j_decompress_ptr c = &w->cinfo;
    jpeg_create_decompress(c);
    c->mem->max_memory_to_use = MAX_MEMORY;
    c->src = &w->source;
    c->progress = &w->progress;
    jpeg_read_header(c, TRUE);
    *info = (pl_image_info){.width = c->image_width,
                            .height = c->image_height,
                            .format = PL_IMAGE_JPEG,
                            .progressive = c->progressive_mode};
    int n = c->num_components;
    info->plain = !c->arith_code && !jpeg_has_multiple_scans(c) &&
                  (n == 1 || (n == 3 && c->jpeg_color_space == JCS_YCbCr));
    info->colour = n == 1 ? PL_COLOUR_GREY : n == 4 ? PL_COLOUR_CMYK : PL_COLOUR_RGB;
    PL_NEED(n == 1 || n == 3 || n == 4, POLAR_E_FORMAT, "%s: a JPEG of %d components (1, 3 or 4 are known)",
            w->src->name, n);
    PL_NEED(c->data_precision == 8, POLAR_E_FORMAT, "%s: a JPEG of %d bits per sample (8 are known)",
            w->src->name, c->data_precision);
    for (int i = 0; i < n; i++)
        w->blocks += (uint64_t)c->comp_info[i].width_in_blocks * c->comp_info[i].height_in_blocks;
    uint64_t raw = (uint64_t)info->width * (uint64_t)info->height * (uint64_t)n,
             least = c->arith_code ? raw / PL_CODEC_MAX_RATIO : w->blocks / 8;
    return pl_codec_check(w->src, info, box, whole ? least : 0);
}

/* ---- pixels ------------------------------------------------------------------------------------- */

/* Adobe's inverted CMYK as Pillow converts it: (255 - k) (1 - c / 255), rounded. In these units 255 - k is
 * the stored value itself. */
static void rgb_of_cmyk(uint8_t *out, const uint8_t *in, int64_t pixels)
{
    for (int64_t i = 0; i < pixels; i++, in += 4, out += 3)
        for (int k = 0; k < 3; k++) {
            int nk = in[3], t = (255 - in[k]) * nk + 128, ink = ((t >> 8) + t) >> 8;
            out[k] = (uint8_t)(nk > ink ? nk - ink : 0);
        }
}

static JDIMENSION floor_to(int64_t x, int64_t unit, int64_t less)
{
    int64_t at = x / unit * unit - less;
    return (JDIMENSION)(at > 0 ? at : 0);
}

static polar_status read_rows(jpeg_work *w, pl_image *out, const pl_box *box, int64_t first, int64_t left)
{
    j_decompress_ptr c = &w->cinfo;
    w->row = pl_alloc((size_t)c->output_width * (size_t)c->out_color_components + OFF_ALIGN);
    PL_NEED(w->row, POLAR_E_NOMEM, "%s: a row of %u pixels", w->src->name, c->output_width);
    JSAMPROW row = w->row + OFF_ALIGN;
    const uint8_t *part = row + (box->x - left) * c->out_color_components;
    for (int64_t y = first; y < box->y + box->height; y++) {
        if (jpeg_read_scanlines(c, &row, 1) != 1)
            return PL_FAIL(POLAR_E_FORMAT, "%s: no row %lld", w->src->name, (long long)y);
        if (y < box->y) continue;
        uint8_t *to = pl_image_at(out, 0, y - box->y);
        if (c->out_color_components == 3) memcpy(to, part, pl_image_row_bytes(out));
        else rgb_of_cmyk(to, part, out->width);
    }
    return POLAR_OK;
}

static polar_status decode(jpeg_work *w, pl_image *out, const pl_box *part)
{
    j_decompress_ptr c = &w->cinfo;
    pl_image_info info;
    PL_TRY(read_header(w, &info, part, 1));
    pl_box box = part ? *part : (pl_box){0, 0, info.width, info.height};
    PL_TRY(pl_image_create(out, box.width, box.height));
    c->out_color_space = info.colour == PL_COLOUR_CMYK ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(c);

    int64_t unit_x = 8 * c->max_h_samp_factor, unit_y = 8 * c->max_v_samp_factor,
            margin = c->progressive_mode ? MARGIN_SCANS : MARGIN;
    JDIMENSION left = floor_to(box.x, unit_x, margin * unit_x),
               first = floor_to(box.y, unit_y, margin * unit_y);
    int64_t right = (box.x + box.width + unit_x - 1) / unit_x * unit_x + margin * unit_x;
    JDIMENSION width = (JDIMENSION)(right < info.width ? right : info.width) - left;
    if (left > 0 || width < c->output_width) jpeg_crop_scanline(c, &left, &width);
    if (first > 0) first = jpeg_skip_scanlines(c, first);
    PL_TRY(read_rows(w, out, &box, first, left));
    if (!part) jpeg_finish_decompress(c); /* up to the end marker: a file without one is not whole */
    return POLAR_OK;
}

/* ---- entries ------------------------------------------------------------------------------------ */

static polar_status failed(const jpeg_work *w)
{
    return PL_FAIL(w->status,
                   w->status == POLAR_E_NOMEM ? "%s: not enough memory to decode it (%s)"
                                              : "%s: broken JPEG: %s",
                   w->src->name, w->said);
}

polar_status pl_jpeg_measure(pl_image_info *out, const pl_codec_source *src, int whole)
{
    jpeg_work w;
    begin(&w, src);
    polar_status st;
    if (setjmp(w.out)) st = failed(&w);
    else st = read_header(&w, out, NULL, whole);
    jpeg_destroy_decompress(&w.cinfo);
    return st;
}

polar_status pl_jpeg_decode(pl_image *out, const pl_codec_source *src, const pl_box *box)
{
    jpeg_work w;
    begin(&w, src);
    polar_status st;
    if (setjmp(w.out)) st = failed(&w);
    else st = decode(&w, out, box);
    jpeg_destroy_decompress(&w.cinfo);
    pl_free(w.row);
    if (st != POLAR_OK) pl_image_destroy(out);
    return st;
}
