/* image_resize.c -- two passes with fixed-point weights, each rounded to a byte: along the rows first, then
 * down the columns.
 *
 * The weights are those of math/picture_elem.h. With eight bits of pixel and two of headroom the sums fit 32
 * bits; that is Pillow's choice, and it decides the bytes.
 *
 * (A picture more than 100 times as high as wide is done the other way round, as there.)
 * Rows are filtered 16 at a time, transposed: the inner loop then runs over 48 bytes that share a weight, in
 * both passes. On processors with dot products of bytes image_resize_wide.c does both passes otherwise, to
 * the same bytes. ctest -R test_image_resize
 */
#include "data/augment/image_resize.h"

#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/alloc.h"
#include "data/set/clones.h"
#include "data/augment/image_resize_impl.h"

#define ROWS     16 /* of a tile */
#define STRIP    64 /* bytes of a row that the second pass keeps in registers */
#define MAX_SIDE ((int64_t)1 << 24)
#define MAX_OUT  ((int64_t)1 << 44) /* side of a whole result of which a part is wanted */

typedef struct scratch {
    void *p;
    size_t bytes;
} scratch;

struct pl_resizer {
    scratch bounds[2], weights[2], real, tile, out_tile, rows, narrow, plan;
    int wide; /* by image_resize_wide.c */
};

polar_status pl_resizer_create(pl_resizer **out)
{
    *out = pl_calloc(1, sizeof **out);
    PL_NEED(*out, POLAR_E_NOMEM, "a resizer");
    (*out)->wide = pl_resize_wide_here();
    return POLAR_OK;
}

void pl_resizer_set_plain(pl_resizer *r, int plain)
{
    r->wide = !plain && pl_resize_wide_here();
}

void pl_resizer_destroy(pl_resizer *r)
{
    if (!r) return;
    for (int d = 0; d < 2; d++) pl_free(r->bounds[d].p), pl_free(r->weights[d].p);
    pl_free(r->real.p);
    pl_free(r->tile.p);
    pl_free(r->out_tile.p);
    pl_free(r->rows.p);
    pl_free(r->narrow.p);
    pl_free(r->plan.p);
    pl_free(r);
}

static polar_status scratch_reserve(scratch *s, int64_t count, size_t item)
{
    size_t bytes = (size_t)count * item;
    if (bytes <= s->bytes) return POLAR_OK;
    pl_free(s->p);
    s->bytes = 0;
    s->p = pl_alloc(bytes);
    PL_NEED(s->p, POLAR_E_NOMEM, "%zu bytes of scratch for resizing", bytes);
    s->bytes = bytes;
    return POLAR_OK;
}

/* ---- weights ------------------------------------------------------------------------------------ */

/* Zeros at both ends of w are left out: [*skip, returned). */
static int64_t trim(int64_t *skip, const int32_t *w, int64_t n)
{
    int64_t from = 0;
    while (n > 1 && !w[n - 1]) n--;
    while (from < n - 1 && !w[from]) from++;
    *skip = from;
    return n;
}

/* Weights of the outputs [part, part + n), in reverse order when flipped. */
static polar_status taps_make(pl_taps *t, pl_resizer *r, int way, const pl_resize_way *d, int64_t part,
                              int64_t n, int flip)
{
    t->n = n, t->width = 2 * (int64_t)ceil(d->support) + 1;
    t->begin = d->side, t->end = 0;
    PL_TRY(scratch_reserve(&r->bounds[way], 2 * n, sizeof(int64_t)));
    PL_TRY(scratch_reserve(&r->weights[way], n * t->width, sizeof(int32_t)));
    PL_TRY(scratch_reserve(&r->real, t->width, sizeof(double)));
    double *real = r->real.p;
    t->first = r->bounds[way].p, t->count = t->first + n, t->weight = r->weights[way].p;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = flip ? n - 1 - i : i, skip, from, to;
        int32_t *w = t->weight + at * t->width;
        double centre = pl_resize_way_reach(&from, &to, d, part + i), sum = 0;
        for (int64_t j = from; j < to; j++) sum += real[j - from] = pl_resize_real(d, centre, j);
        for (int64_t k = 0; k < to - from; k++) w[k] = pl_resize_weight(real[k], sum);
        int64_t count = trim(&skip, w, to - from);
        if (skip) memmove(w, w + skip, (size_t)(count - skip) * sizeof *w);
        t->first[at] = from + skip, t->count[at] = count - skip;
        if (t->first[at] < t->begin) t->begin = t->first[at];
        if (t->first[at] + t->count[at] > t->end) t->end = t->first[at] + t->count[at];
    }
    return POLAR_OK;
}

/* ---- along the rows ----------------------------------------------------------------------------- */

/* out[16 b + r] = row r's byte b, for 16 rows and 16 bytes: four rounds of interleaving row i with row i + 8.
 */
static inline void transpose_16(uint8_t *out, int64_t out_step, const uint8_t *in, int64_t in_step)
{
#ifdef __SSE2__
    __m128i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm_loadu_si128((const __m128i *)(in + i * in_step));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++)
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]), b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        for (int i = 0; i < 8; i++)
            a[2 * i] = _mm_unpacklo_epi8(b[i], b[i + 8]), a[2 * i + 1] = _mm_unpackhi_epi8(b[i], b[i + 8]);
    }
    for (int i = 0; i < 16; i++) _mm_storeu_si128((__m128i *)(out + i * out_step), a[i]);
#else
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) out[i * out_step + j] = in[j * in_step + i];
#endif
}

PL_CLONES static void tile_filter(uint8_t *restrict out, const uint8_t *restrict tile, const pl_taps *t)
{
    enum { LANES = 3 * ROWS };
    for (int64_t i = 0; i < t->n; i++) {
        const int32_t *w = t->weight + i * t->width;
        const uint8_t *in = tile + (t->first[i] - t->begin) * LANES;
        int32_t sum[LANES];
        for (int l = 0; l < LANES; l++) sum[l] = 1 << (PL_RESIZE_BITS - 1);
        for (int64_t k = 0; k < t->count[i]; k++, in += LANES)
            for (int l = 0; l < LANES; l++) sum[l] += w[k] * in[l];
        for (int l = 0; l < LANES; l++) out[i * LANES + l] = pl_resize_byte(sum[l]);
    }
}

/* Rows [0, rows) of src, from pixel t->begin on, into `tile`; what is missing to 16 rows or bytes is repeated
 * or left as it is. */
static void tile_load(uint8_t *tile, const uint8_t *src, int64_t stride, int64_t rows, int64_t bytes)
{
    uint8_t edge[ROWS * ROWS];
    int64_t whole = rows == ROWS ? bytes / ROWS * ROWS : 0;
    for (int64_t b = 0; b < whole; b += ROWS) transpose_16(tile + b * ROWS, ROWS, src + b, stride);
    for (int64_t b = whole; b < bytes; b += ROWS) {
        int64_t n = bytes - b < ROWS ? bytes - b : ROWS;
        memset(edge, 0, sizeof edge);
        for (int64_t i = 0; i < rows; i++) memcpy(edge + i * ROWS, src + i * stride + b, (size_t)n);
        transpose_16(tile + b * ROWS, ROWS, edge, ROWS);
    }
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static polar_status tiles_reserve(pl_resizer *r, const pl_taps *t)
{
    PL_TRY(scratch_reserve(&r->tile, round_up(3 * (t->end - t->begin), ROWS) * ROWS, 1));
    return scratch_reserve(&r->out_tile, round_up(3 * t->n, ROWS) * ROWS, 1);
}

/* `rows` rows, filtered, into out; src is at pixel t->begin. Both the tiles and out's rows are padded to
 * whole blocks. */
static void rows_filter(uint8_t *out, int64_t out_stride, pl_resizer *r, const uint8_t *src, int64_t stride,
                        const pl_taps *t, int64_t rows)
{
    int64_t in_bytes = 3 * (t->end - t->begin), out_bytes = 3 * t->n;
    uint8_t *tile = r->tile.p, *filtered = r->out_tile.p;
    for (int64_t y = 0; y < rows; y += ROWS) {
        int64_t n = rows - y < ROWS ? rows - y : ROWS;
        tile_load(tile, src + y * stride, stride, n, in_bytes);
        tile_filter(filtered, tile, t);
        for (int64_t b = 0; b < out_bytes; b += ROWS)
            transpose_16(out + y * out_stride + b, out_stride, filtered + b * ROWS, ROWS);
    }
}

/* ---- down the columns --------------------------------------------------------------------------- */

PL_CLONES static void columns_filter(uint8_t *restrict out, const uint8_t *restrict rows, int64_t stride,
                                     int64_t bytes, const pl_taps *t)
{
    for (int64_t y = 0; y < t->n; y++, out += bytes) {
        const int32_t *w = t->weight + y * t->width;
        const uint8_t *from = rows + (t->first[y] - t->begin) * stride;
        for (int64_t x = 0; x < bytes; x += STRIP) {
            int32_t sum[STRIP];
            uint8_t strip[STRIP];
            for (int l = 0; l < STRIP; l++) sum[l] = 1 << (PL_RESIZE_BITS - 1);
            const uint8_t *in = from + x;
            for (int64_t k = 0; k < t->count[y]; k++, in += stride)
                for (int l = 0; l < STRIP; l++) sum[l] += w[k] * in[l];
            for (int l = 0; l < STRIP; l++) strip[l] = pl_resize_byte(sum[l]);
            if (bytes - x >= STRIP) memcpy(out + x, strip, STRIP);
            else memcpy(out + x, strip, (size_t)(bytes - x));
        }
    }
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* src is at the first pixel that both directions need. */
static polar_status rows_first(pl_resizer *r, uint8_t *out, const uint8_t *src, int64_t src_stride,
                               const pl_taps *across, const pl_taps *down)
{
    int64_t rows = down->end - down->begin, bytes = 3 * across->n, stride = round_up(bytes + ROWS, STRIP);
    int64_t plan_x = r->wide ? pl_resize_wide_plan_bytes(across) : 0,
            plan_y = r->wide ? pl_resize_wide_plan_bytes(down) : 0;
    PL_TRY(scratch_reserve(&r->rows, round_up(rows, ROWS) * stride, 1));
    if (plan_x && plan_y) {
        PL_TRY(scratch_reserve(&r->plan, plan_x > plan_y ? plan_x : plan_y, 1));
        pl_resize_wide_rows(r->rows.p, stride, src, src_stride, across, rows, r->plan.p);
        pl_resize_wide_columns(out, r->rows.p, stride, bytes, down, r->plan.p);
        return POLAR_OK;
    }
    PL_TRY(tiles_reserve(r, across));
    rows_filter(r->rows.p, stride, r, src, src_stride, across, rows);
    columns_filter(out, r->rows.p, stride, bytes, down);
    return POLAR_OK;
}

/* The other order, which Pillow takes for pictures more than 100 times as high as wide. The source is first
 * copied to padded rows. */
static polar_status columns_first(pl_resizer *r, uint8_t *out, const uint8_t *src, int64_t src_stride,
                                  const pl_taps *across, const pl_taps *down)
{
    int64_t rows = down->end - down->begin, in_bytes = 3 * (across->end - across->begin),
            in_stride = round_up(in_bytes, STRIP), bytes = 3 * across->n, stride = round_up(bytes, STRIP);
    PL_TRY(scratch_reserve(&r->narrow, rows * in_stride + down->n * in_bytes, 1));
    PL_TRY(scratch_reserve(&r->rows, round_up(down->n, ROWS) * stride, 1));
    PL_TRY(tiles_reserve(r, across));
    uint8_t *copy = r->narrow.p, *narrow = copy + rows * in_stride, *filtered = r->rows.p;
    for (int64_t y = 0; y < rows; y++) {
        memcpy(copy + y * in_stride, src + y * src_stride, (size_t)in_bytes);
        memset(copy + y * in_stride + in_bytes, 0, (size_t)(in_stride - in_bytes));
    }
    columns_filter(narrow, copy, in_stride, in_bytes, down);
    rows_filter(filtered, stride, r, narrow, in_bytes, across, down->n);
    for (int64_t y = 0; y < down->n; y++) memcpy(out + y * bytes, filtered + y * stride, (size_t)bytes);
    return POLAR_OK;
}

static int box_inside(const float box[4], const pl_resize_args *a)
{
    return box[0] >= 0 && box[1] >= 0 && box[2] <= (float)a->src_width && box[3] <= (float)a->src_height &&
           box[0] < box[2] && box[1] < box[3];
}

/* The arguments with what they leave out, after a look at them. */
static polar_status args_complete(pl_resize_args *a, const pl_resize_args *given)
{
    const float zero[4] = {0}, whole[4] = {0, 0, (float)given->src_width, (float)given->src_height};
    *a = *given;
    if (!memcmp(a->box, zero, sizeof zero)) memcpy(a->box, whole, sizeof whole);
    if (!a->part.width && !a->part.height) a->part = (pl_box){0, 0, a->out_width, a->out_height};
    if (!a->have.width && !a->have.height) a->have = (pl_box){0, 0, a->src_width, a->src_height};
    const float *box = a->box;
    pl_box part = a->part;
    PL_NEED(a->src_width >= 1 && a->src_height >= 1 && a->src_width < MAX_SIDE && a->src_height < MAX_SIDE,
            POLAR_E_ARG, "cannot resize a picture of %lld x %lld pixels", (long long)a->src_width,
            (long long)a->src_height);
    PL_NEED(a->filter >= 0 && a->filter < PL_FILTERS, POLAR_E_ARG, "there is no filter %d", (int)a->filter);
    PL_NEED(box_inside(box, a), POLAR_E_ARG,
            "the box %g, %g, %g, %g does not lie in a picture of %lld x %lld", (double)box[0], (double)box[1],
            (double)box[2], (double)box[3], (long long)a->src_width, (long long)a->src_height);
    PL_NEED(a->out_width >= 1 && a->out_height >= 1 && a->out_width < MAX_OUT && a->out_height < MAX_OUT &&
                part.x >= 0 && part.y >= 0 && part.width >= 1 && part.height >= 1 && part.width < MAX_SIDE &&
                part.height < MAX_SIDE && part.x <= a->out_width - part.width &&
                part.y <= a->out_height - part.height,
            POLAR_E_ARG, "cannot resize to %lld x %lld, of which %lld x %lld from (%lld, %lld)",
            (long long)a->out_width, (long long)a->out_height, (long long)part.width, (long long)part.height,
            (long long)part.x, (long long)part.y);
    return POLAR_OK;
}

polar_status pl_resize_reach(pl_box *out, const pl_resize_args *args)
{
    pl_resize_args a;
    int64_t x[2], y[2], unused;
    PL_TRY(args_complete(&a, args));
    pl_resize_way across = pl_resize_way_of(a.filter, a.src_width, a.box[0], a.box[2], a.out_width),
                  down = pl_resize_way_of(a.filter, a.src_height, a.box[1], a.box[3], a.out_height);
    pl_resize_way_reach(&x[0], &unused, &across, a.part.x),
        pl_resize_way_reach(&unused, &x[1], &across, a.part.x + a.part.width - 1);
    pl_resize_way_reach(&y[0], &unused, &down, a.part.y),
        pl_resize_way_reach(&unused, &y[1], &down, a.part.y + a.part.height - 1);
    *out = (pl_box){x[0], y[0], x[1] - x[0], y[1] - y[0]};
    return POLAR_OK;
}

polar_status pl_resize(pl_resizer *r, const pl_resize_args *args)
{
    pl_resize_args a;
    pl_taps across, down;
    PL_TRY(args_complete(&a, args));
    pl_resize_way dx = pl_resize_way_of(a.filter, a.src_width, a.box[0], a.box[2], a.out_width),
                  dy = pl_resize_way_of(a.filter, a.src_height, a.box[1], a.box[3], a.out_height);
    PL_TRY(taps_make(&across, r, 0, &dx, a.part.x, a.part.width, a.flip));
    PL_TRY(taps_make(&down, r, 1, &dy, a.part.y, a.part.height, 0));
    pl_box have = a.have;
    PL_NEED(
        have.x <= across.begin && have.y <= down.begin && have.x + have.width >= across.end &&
            have.y + have.height >= down.end,
        POLAR_E_ARG,
        "resizing looks at columns %lld to %lld, rows %lld to %lld; there are %lld x %lld from (%lld, %lld)",
        (long long)across.begin, (long long)across.end - 1, (long long)down.begin, (long long)down.end - 1,
        (long long)have.width, (long long)have.height, (long long)have.x, (long long)have.y);
    const uint8_t *src = a.src + (down.begin - have.y) * a.src_stride + 3 * (across.begin - have.x);
    int tall = a.src_height > 100 * a.src_width && a.out_height < a.src_height;
    return tall ? columns_first(r, a.out, src, a.src_stride, &across, &down)
                : rows_first(r, a.out, src, a.src_stride, &across, &down);
}
