/* image_jpeg_scan.c -- Huffman codes to coefficients, MCU by MCU. See image_jpeg_scan.h.
 *
 * The next bits are an index into a table that knows the code and, where they fit, the bits of the
 * coefficient behind it: most coefficients cost one look-up and one shift, and a dozen instructions. An
 * entry: bits 0 to 6 the length of code and coefficient, 0 for a code longer than the index; bit 7 "slow":
 * that, or a coefficient still to be read; bits 8 to 15 how far to go, the run of zeros and one; from bit 16
 * on the coefficient, or its size where it is to be read. The end of a block is a way that leads out of it.
 * Where a block is not wanted only lengths are added up.
 */
#include "data/codec/image_jpeg_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define LOOK      11 /* bits of the index, for AC and DC */
#define LOOK_DC   9
#define SLOW      0x80u
#define LENGTH    0x7fu
#define END_RUN   80                 /* from any place beyond what 15 zeros can reach */
#define SMALL     6                  /* bits of a coefficient that no step of 255 takes to PL_JPEG_LIMIT */
#define MOST_AREA ((int64_t)1 << 24) /* samples; larger pictures go row by row through libjpeg */
#define MAX_PARTS 3

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

typedef struct codes {
    int32_t look[1 << LOOK];
    /* of codes of length l, left in 16 bits: the first value that none of them reaches */
    uint32_t below[18];
    int32_t shift[17]; /* the index of a code's symbol less the code */
    const uint8_t *symbol;
    int is_dc, index; /* index: LOOK or LOOK_DC */
} codes;

typedef struct reader {
    uint64_t bits; /* the next ones at the top */
    /* bits that count; of them, and of those read before, beyond the end of the data */
    unsigned have, fake;
    const uint8_t *at, *end;
} reader;

typedef struct scan {
    reader in;
    codes dc[2], ac[2];
    pl_jpeg_part part[MAX_PARTS];
    int parts, dc_of[MAX_PARTS], ac_of[MAX_PARTS];
    int32_t before[MAX_PARTS];     /* the DC of the block before */
    uint16_t quant[MAX_PARTS][64]; /* quantisation in zigzag order */
    /* of coefficient k in a pair; out of the block: that of the last one */
    uint8_t place[64 + END_RUN + 16];
    int64_t mcus, mcu_rows; /* of the file */
    int64_t x0, x1, y0, y1; /* MCUs wanted */
    int64_t until_restart, restart, next_restart;
    int odd;
} scan;

static const uint8_t natural[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* ---- tables ------------------------------------------------------------------------------------- */

static int32_t entry(int length, int size, int run, unsigned slow, int value)
{
    return (int32_t)((uint32_t)value << 16 | (uint32_t)(run + 1) << 8 | slow | (uint32_t)(length + size));
}

/* All entries that begin with `code` of `length` bits. A DC coefficient is always read. */
static void fill_code(codes *c, uint32_t code, int length, int symbol)
{
    int run = c->is_dc ? 0 : symbol >> 4, size = c->is_dc ? symbol : symbol & 15, left = c->index - length;
    int32_t *e = c->look + ((size_t)code << left);
    if (!size && !c->is_dc && run < 15) run = END_RUN;
    if (size > SMALL || size > left || c->is_dc) {
        for (int i = 0; i < 1 << left; i++) e[i] = entry(length, size, run, SLOW, size);
        return;
    }
    for (int v = 0; v < 1 << size; v++)
        for (int i = 0; i < 1 << (left - size); i++)
            *e++ = entry(length, size, run, 0, size && v < 1 << (size - 1) ? v - (1 << size) + 1 : v);
}

/* 0: not a set of codes, or symbols that a baseline file does not have. */
static int codes_make(codes *c, const JHUFF_TBL *t, int is_dc)
{
    uint32_t code = 0;
    int n = 0;
    if (!t) return 0;
    c->symbol = t->huffval, c->is_dc = is_dc, c->index = is_dc ? LOOK_DC : LOOK;
    for (int i = 0; i < 1 << LOOK; i++) c->look[i] = (int32_t)SLOW;
    for (int l = 1; l <= 16; l++) {
        c->shift[l] = n - (int32_t)code;
        for (int i = 0; i < t->bits[l]; i++, n++, code++) {
            if (n >= 256 || code >= 1u << l || (is_dc ? t->huffval[n] > 11 : (t->huffval[n] & 15) > 10))
                return 0;
            if (l <= c->index) fill_code(c, code, l, t->huffval[n]);
        }
        c->below[l] = code << (16 - l);
        code <<= 1;
    }
    return 1;
}

/* ---- bits --------------------------------------------------------------------------------------- */

#ifdef __x86_64__
#define FAST __attribute__((target("avx2,bmi2")))
#else
#define FAST
#endif
#define INLINE static inline __attribute__((always_inline)) FAST

/* Byte by byte: over the zeros stuffed after 0xff, not over markers, with zeros after the end. */
FAST static __attribute__((noinline)) reader refill_slowly(reader r)
{
    r.bits = r.have ? r.bits >> (64 - r.have) << (64 - r.have) : 0;
    for (; r.have < 56; r.have += 8) {
        uint64_t byte = 0;
        if (r.at < r.end && *r.at != 0xff) byte = *r.at++;
        else if (r.end - r.at >= 2 && r.at[1] == 0) byte = 0xff, r.at += 2;
        else r.fake += 8;
        r.bits |= byte << (56 - r.have);
    }
    return r;
}

/* 56 bits or more. */
INLINE void refill(reader *r)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    if (likely(r->end - r->at >= 8)) {
        uint64_t x;
        memcpy(&x, r->at, sizeof x);
        x = __builtin_bswap64(x);
        if (likely(!((~x - ones) & x & tops))) { /* no byte is 0xff */
            r->bits |= x >> r->have;
            r->at += (63 - r->have) >> 3;
            r->have |= 56;
            return;
        }
    }
    *r = refill_slowly(*r);
}

/* The entry for a code longer than the index, its coefficient to be read; 0: there is no such code. */
static __attribute__((noinline)) int32_t long_code(const codes *c, uint64_t bits)
{
    uint32_t code = (uint32_t)(bits >> 48);
    for (int l = c->index + 1; l <= 16; l++)
        if (code < c->below[l]) {
            int symbol = c->symbol[(int32_t)(code >> (16 - l)) + c->shift[l]],
                run = c->is_dc ? 0 : symbol >> 4, size = c->is_dc ? symbol : symbol & 15;
            return entry(l, size, !size && !c->is_dc && run < 15 ? END_RUN : run, SLOW, size);
        }
    return 0;
}

/* The coefficient of an entry in which it is to be read. */
INLINE int read(reader *r, int32_t e)
{
    unsigned size = (unsigned)e >> 16, length = ((unsigned)e & LENGTH) - size;
    int v = (int)(r->bits << length >> 1 >> (63 - size)), all = (1 << size) - 1;
    r->bits <<= e & 63;
    r->have -= (unsigned)e & LENGTH;
    return v <= all >> 1 ? v - all : v;
}

/* ---- blocks ------------------------------------------------------------------------------------- */

/* One entry, *k the place behind it, *used its length in the lower seven bits. 1: the end of the block, or a
 * slow one, which is left where it is. */
INLINE int step(reader *r, int *k, uint32_t *used, int32_t *e, const int32_t *look, const uint8_t *place,
                int16_t *to, int wanted)
{
    *e = look[r->bits >> (64 - LOOK)];
    if (unlikely(wanted ? *e & SLOW : !(*e & LENGTH))) return 1;
    r->bits <<= *e & 63;
    *used += (uint32_t)*e;
    *k += *e >> 8 & 255;
    if (wanted) to[place[*k - 1]] = (int16_t)(*e >> 16);
    return *k >= 64;
}

/* One block; its coefficients go to `to`, which is zero, or nowhere. 0, or 1 for something odd.
 * 56 bits are enough for three entries of LOOK bits, the last of them a long code with its coefficient
 * instead (26), and for two whose coefficients are not looked at (42). */
INLINE int block(reader *r, int32_t *before, const codes *dc, const codes *ac, const uint16_t *quant,
                 const uint8_t *place, int16_t *to, int wanted)
{
    const int32_t *look = ac->look;
    int k = 1, odd = 0;
    __asm__("" : "+r"(look)); /* a register, not an offset to be added each time */
    refill(r);
    int32_t e = dc->look[r->bits >> (64 - LOOK_DC)];
    if (unlikely(!(e & LENGTH)) && !(e = long_code(dc, r->bits))) return 1;
    int32_t v = *before += read(r, e);
    if (unlikely((uint32_t)(v + 32767) > 65534)) return 1;
    if (wanted) {
        odd = abs(v) * quant[0] >= PL_JPEG_LIMIT;
        to[0] = (int16_t)v;
    }
    for (;;) {
        uint32_t used = 0;
        refill(r);
        int stop = step(r, &k, &used, &e, look, place, to, wanted) ||
                   step(r, &k, &used, &e, look, place, to, wanted) ||
                   (wanted && step(r, &k, &used, &e, look, place, to, wanted));
        r->have -= used & LENGTH;
        if (likely(!stop)) continue;
        if (k < 64) {
            if (!(e & LENGTH) && !(e = long_code(ac, r->bits))) return 1;
            v = read(r, e);
            k += e >> 8 & 255;
            if (wanted) {
                odd |= abs(v) * quant[(k - 1) & 63] >= PL_JPEG_LIMIT;
                to[place[k - 1]] = (int16_t)v;
            }
        }
        if (k >= 64) return odd | (k > 64 && k <= END_RUN); /* a coefficient beyond the last one */
    }
}

/* ---- MCUs --------------------------------------------------------------------------------------- */

/* At a restart marker the bits begin anew. 0: there is none, or not the next. */
static int restart(scan *s)
{
    reader *r = &s->in;
    if (r->have < r->fake || r->have - r->fake > 7 || r->end - r->at < 2 || r->at[0] != 0xff ||
        r->at[1] != 0xd0 + s->next_restart)
        return 0;
    *r = (reader){.at = r->at + 2, .end = r->end};
    memset(s->before, 0, sizeof s->before);
    s->next_restart = (s->next_restart + 1) & 7;
    s->until_restart = s->restart;
    return 1;
}

/* MCUs [from, to) of a row; `wanted`: into the coefficients, from MCU s->x0 on. */
INLINE void mcus(scan *s, int64_t from, int64_t to, int wanted)
{
    reader r = s->in;
    for (int64_t x = from; x < to; x++) {
        if (unlikely(s->restart && !s->until_restart--)) {
            s->in = r;
            if (!restart(s)) {
                s->odd = 1;
                return;
            }
            r = s->in;
            s->until_restart--;
        }
        int odd = 0;
        for (int i = 0; i < s->parts; i++) {
            pl_jpeg_part *p = &s->part[i];
            for (int v = 0; v < p->v; v++)
                for (int h = 0; h < p->h; h++) {
                    int64_t at = (x - s->x0) * p->h + h;
                    int16_t *coef = wanted ? p->coef + (v * p->pairs + at / 2) * 128 + at % 2 * 8 : NULL;
                    odd |= block(&r, &s->before[i], &s->dc[s->dc_of[i]], &s->ac[s->ac_of[i]], s->quant[i],
                                 s->place, coef, wanted);
                }
        }
        if (unlikely(odd)) {
            s->odd = 1;
            return;
        }
    }
    s->in = r;
    s->odd |= r.fake > r.have; /* bits were read that are not there */
}

FAST static void mcus_skip(scan *s, int64_t from, int64_t to)
{
    mcus(s, from, to, 0);
}

FAST static void mcus_keep(scan *s, int64_t from, int64_t to)
{
    mcus(s, from, to, 1);
}

static int decode_rows(scan *s, int to_the_end)
{
    for (int64_t y = 0; y < (to_the_end ? s->mcu_rows : s->y1); y++) {
        int inside = y >= s->y0 && y < s->y1;
        mcus_skip(s, 0, inside ? s->x0 : s->mcus);
        if (s->odd) return 0;
        if (!inside) continue;
        for (int i = 0; i < s->parts; i++)
            memset(s->part[i].coef, 0, (size_t)(s->part[i].v * s->part[i].pairs) * 128 * sizeof(int16_t));
        mcus_keep(s, s->x0, s->x1);
        for (int i = 0; i < s->parts && !s->odd; i++)
            s->odd = !pl_jpeg_blocks_transform(&s->part[i], y - s->y0);
        if (!s->odd && (y + 1 < s->y1 || to_the_end)) mcus_skip(s, s->x1, s->mcus);
        if (s->odd) return 0;
    }
    const reader *r = &s->in;
    return !to_the_end ||
           (r->have - r->fake < 8 && r->end - r->at >= 2 && r->at[0] == 0xff && r->at[1] == 0xd9);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static int is_usual(j_decompress_ptr c)
{
    if (c->progressive_mode || c->arith_code || c->data_precision != 8 ||
        c->comps_in_scan != c->num_components || c->Ss || c->Se != 63 || c->Ah || c->Al)
        return 0;
    if (c->num_components == 1) return c->jpeg_color_space == JCS_GRAYSCALE;
    if (c->num_components != 3 || c->jpeg_color_space != JCS_YCbCr) return 0;
    const jpeg_component_info *i = c->comp_info;
    for (int k = 0; k < 3; k++)
        if (c->cur_comp_info[k] != &i[k] || (k && (i[k].h_samp_factor != 1 || i[k].v_samp_factor != 1)))
            return 0;
    int h = i->h_samp_factor, v = i->v_samp_factor;
    return h <= 2 && v <= h && (h == 1 || i[1].downsampled_width > 2);
}

/* What is wanted, in MCUs: with one sample of the colours beyond the box where they are smoothed. */
static void wanted_mcus(scan *s, j_decompress_ptr c, const pl_box *box)
{
    int h = s->part[0].h, v = s->part[0].v, unit_x = 8 * h, unit_y = 8 * v, more_x = h > 1 ? 2 : 0,
        more_y = v > 1 ? 2 : 0;
    s->mcus = (c->image_width + unit_x - 1) / unit_x, s->mcu_rows = (c->image_height + unit_y - 1) / unit_y;
    s->x0 = box->x < more_x ? 0 : (box->x - more_x) / unit_x,
    s->y0 = box->y < more_y ? 0 : (box->y - more_y) / unit_y;
    s->x1 = (box->x + box->width + more_x + unit_x - 1) / unit_x,
    s->y1 = (box->y + box->height + more_y + unit_y - 1) / unit_y;
    if (s->x1 > s->mcus) s->x1 = s->mcus;
    if (s->y1 > s->mcu_rows) s->y1 = s->mcu_rows;
}

static int set_up(scan *s, j_decompress_ptr c, const pl_box *box)
{
    int dc_no[2] = {-1, -1}, ac_no[2] = {-1, -1};
    for (int k = 0; k < 64 + END_RUN + 16; k++) {
        int n = natural[k < 64 ? k : 63];
        s->place[k] = (uint8_t)(n / 8 * 16 + n % 8);
    }
    s->parts = c->num_components;
    for (int i = 0; i < s->parts; i++) {
        const jpeg_component_info *info = &c->comp_info[i];
        if (info->quant_tbl_no < 0 || info->quant_tbl_no >= NUM_QUANT_TBLS || info->dc_tbl_no < 0 ||
            info->dc_tbl_no >= NUM_HUFF_TBLS || info->ac_tbl_no < 0 || info->ac_tbl_no >= NUM_HUFF_TBLS)
            return 0;
        const JQUANT_TBL *q = c->quant_tbl_ptrs[info->quant_tbl_no];
        int dc = !i || info->dc_tbl_no == dc_no[0] ? 0 : 1, ac = !i || info->ac_tbl_no == ac_no[0] ? 0 : 1;
        if (!q || (dc_no[dc] >= 0 && dc_no[dc] != info->dc_tbl_no) ||
            (ac_no[ac] >= 0 && ac_no[ac] != info->ac_tbl_no))
            return 0;
        if (dc_no[dc] < 0 && !codes_make(&s->dc[dc], c->dc_huff_tbl_ptrs[info->dc_tbl_no], 1)) return 0;
        if (ac_no[ac] < 0 && !codes_make(&s->ac[ac], c->ac_huff_tbl_ptrs[info->ac_tbl_no], 0)) return 0;
        dc_no[dc] = info->dc_tbl_no, ac_no[ac] = info->ac_tbl_no;
        s->dc_of[i] = dc, s->ac_of[i] = ac;
        pl_jpeg_part *p = &s->part[i];
        p->h = s->parts == 1 ? 1 : info->h_samp_factor, p->v = s->parts == 1 ? 1 : info->v_samp_factor;
        p->across = info->downsampled_width, p->down = info->downsampled_height;
        for (int k = 0; k < 64; k++) {
            if (q->quantval[k] > 255) return 0;
            p->quant[k] = (int16_t)q->quantval[k];
            s->quant[i][k] = q->quantval[natural[k]];
        }
    }
    wanted_mcus(s, c, box);
    s->in = (reader){.at = c->src->next_input_byte, .end = c->src->next_input_byte + c->src->bytes_in_buffer};
    s->until_restart = s->restart = c->restart_interval;
    return 1;
}

/* Coefficients, planes and lines in one piece of memory, which is returned; NULL: none, or too much. */
static uint8_t *point(scan *s, const pl_box *box, uint8_t **lines)
{
    size_t bytes = 0;
    uint8_t *base = NULL;
    for (int pass = 0; pass < 2; pass++) {
        bytes = 0;
        for (int i = 0; i < s->parts; i++) {
            pl_jpeg_part *p = &s->part[i];
            int64_t rows = (s->y1 - s->y0) * p->v * 8;
            p->pairs = ((s->x1 - s->x0) * p->h + 1) / 2;
            p->x0 = s->x0 * p->h * 8, p->y0 = s->y0 * p->v * 8;
            if (p->pairs * 16 * rows > MOST_AREA) return NULL;
            if (pass) p->coef = (int16_t *)(base + bytes);
            bytes += (size_t)(p->v * p->pairs) * 128 * sizeof(int16_t);
            if (pass) p->plane = base + bytes;
            bytes += ((size_t)(rows * p->pairs * 16) + 127) / 64 * 64;
        }
        if (pass) *lines = base + bytes;
        bytes += PL_JPEG_LINES((size_t)box->width);
        if (!pass && !(base = pl_alloc(bytes))) return NULL;
    }
    return base;
}

int pl_jpeg_scan_decode(pl_image *out, j_decompress_ptr c, const pl_box *box, int to_the_end)
{
    if (!pl_jpeg_blocks_here() || !is_usual(c)) return 0;
    scan *s = pl_calloc(1, sizeof *s);
    uint8_t *lines, *base = s && set_up(s, c, box) ? point(s, box, &lines) : NULL;
    int done = base && decode_rows(s, to_the_end);
    if (done) pl_jpeg_blocks_colour(out, s->part, s->parts, box, lines);
    pl_free(base);
    pl_free(s);
    return done;
}
