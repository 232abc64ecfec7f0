/* op_run.c -- see op_run.h. */
#include "verify/ops/op_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "op_case_impl.h"

#define MARGIN     ((size_t)64) /* guard bytes before and after every operand */
#define BESIDE     0xA5         /* fills what is no element */
#define ROW_GAP    3            /* strided views: elements between rows */
#define MATRIX_GAP 5            /* ... and between matrices */

/* A quiet NaN nobody computes. */
static void put_poison(void *at, polar_dtype dtype)
{
    uint64_t d = 0x7ff8dead0000beefull;
    uint32_t f = 0x7fc0deadu;
    uint16_t h = 0x7fddu;
    memcpy(at,
           dtype == POLAR_DTYPE_F64   ? (void *)&d
           : dtype == POLAR_DTYPE_F32 ? (void *)&f
                                      : (void *)&h,
           polar_dtype_size(dtype));
}

/* Seeds come from the name, so that a case keeps its operands when the list changes. */
static uint64_t case_seed(const pl_op_case *c, pl_fill fill)
{
    char name[PL_OP_CASE_NAME];
    uint64_t h = 0xcbf29ce484222325ull + (uint64_t)fill; /* FNV-1a */
    for (const char *p = pl_op_case_name(name, sizeof name, c); *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
    return h;
}

/* Strides and the bytes between the margins. */
static size_t lay_out(pl_op_run *r, int i)
{
    pl_mat *m = &r->mat[i];
    int odd = r->fill == PL_FILL_ODD, apart = odd || r->c.how.strided;
    if (apart) {
        m->rs = m->cols + ROW_GAP;
        m->bs = m->rows * m->rs + MATRIX_GAP;
    }
    if (r->c.op == PL_OP_gemm && i == 2 && r->c.how.shared) m->bs = 0;
    r->offset[i] = MARGIN + (odd ? polar_dtype_size(m->dtype) : 0);
    m->data = r; /* an extent is that of a matrix with data */
    size_t bytes = pl_mat_extent(m) + (odd ? polar_dtype_size(m->dtype) : 0);
    m->data = NULL;
    return bytes;
}

static unsigned char *entry_at(const pl_op_run *r, unsigned char *image, int o, int64_t b, int64_t i,
                               int64_t j)
{
    const pl_mat *m = &r->mat[o];
    return image + r->offset[o] + (size_t)(b * m->bs + i * m->rs + j) * polar_dtype_size(m->dtype);
}

static void put_entry(pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, double x)
{
    pl_store_f64(entry_at(r, r->buffers[r->buffer_of[o]].before, o, b, i, j), r->mat[o].dtype, 0, x);
}

double pl_op_run_before(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(entry_at(r, r->buffers[r->buffer_of[o]].before, o, b, i, j), r->mat[o].dtype, 0);
}

void pl_op_run_line(double *out, const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, int down,
                    int64_t n)
{
    const unsigned char *first = entry_at(r, r->buffers[r->buffer_of[o]].before, o, b, i, j);
    const polar_dtype dtype = r->mat[o].dtype;
    const int64_t step = down ? r->mat[o].rs : 1;
    for (int64_t k = 0; k < n; k++) out[k] = pl_load_f64(first, dtype, k * step);
}

double pl_op_run_after(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(entry_at(r, r->buffers[r->buffer_of[o]].after, o, b, i, j), r->mat[o].dtype, 0);
}

const void *pl_op_run_bits(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j)
{
    return entry_at(r, r->buffers[r->buffer_of[o]].after, o, b, i, j);
}

int pl_op_run_poisoned(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j)
{
    unsigned char poison[8];
    put_poison(poison, r->mat[o].dtype);
    return o < pl_op_describe(r->c.op)->out &&
           !memcmp(pl_op_run_bits(r, o, b, i, j), poison, polar_dtype_size(r->mat[o].dtype));
}

int pl_op_run_left_out(const pl_op_run *r, int64_t b)
{
    int live = pl_op_case_family(r->c.op)->live;
    return live && pl_op_run_before(r, live, r->mat[live].batch == 1 ? 0 : b, 0, PL_LIVE_SKIP) != 0;
}

/* Rows of norms to read, of live values, of flags. */
static void fill_values(pl_op_run *r, int o, uint64_t seed)
{
    for (int64_t b = 0; b < r->mat[o].batch; b++) {
        double v[PL_LIVE_COLS] = {0};
        pl_op_case_family(r->c.op)->fill(v, r, o, b, seed);
        for (int64_t j = 0; j < r->mat[o].cols; j++) put_entry(r, o, b, 0, j, v[j]);
    }
}

static void fill_data(pl_op_run *r, int o, uint64_t seed)
{
    const pl_mat *m = &r->mat[o];
    /* B has A's entries */
    int from = r->c.how.sym && o == 2 ? 1 : o;
    int mirror = r->c.how.sym && o == 3;
    int square = pl_op_case_family(r->c.op)->squares >> o & 1;
    for (int64_t b = 0; b < (m->bs ? m->batch : 1); b++)
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) {
                double x = pl_fill_entry(r->fill, seed, from, m->dtype, b, mirror && i > j ? j : i,
                                         mirror && i > j ? i : j);
                put_entry(r, o, b, i, j, square ? fabs(x) : x);
            }
}

static void fill_poison(pl_op_run *r, int o)
{
    const pl_mat *m = &r->mat[o];
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++)
                put_poison(entry_at(r, r->buffers[r->buffer_of[o]].before, o, b, i, j), m->dtype);
}

static polar_status take_buffer(pl_op_run *r, int o)
{
    pl_op_buffer *p = &r->buffers[o];
    p->bytes = 2 * MARGIN + lay_out(r, o);
    p->before = pl_alloc(p->bytes);
    p->after = pl_alloc(p->bytes);
    PL_NEED(p->before && p->after, POLAR_E_NOMEM, "images of an operand of %zu bytes", p->bytes);
    memset(p->before, BESIDE, p->bytes);
    memset(p->after, 0, p->bytes);
    return polar_device_alloc(r->dev, &p->device, p->bytes);
}

/* The operands' first bits: made here, or those of `like`, a run of the same case. */
static void fill_operands(pl_op_run *r, const pl_op_run *like)
{
    const pl_op_info *info = pl_op_describe(r->c.op);
    uint64_t seed = like ? 0 : case_seed(&r->c, r->fill);
    for (int o = 0; o < r->operands; o++) {
        const pl_op_buffer *p = &r->buffers[o];
        if (like) {
            if (p->bytes) memcpy(p->before, like->buffers[o].before, p->bytes);
        } else if (r->buffer_of[o] < 0) continue;
        else if (o < info->out) {
            if (r->buffer_of[o] == o) fill_poison(r, o);
        } else if (pl_op_case_data_operand(&r->c, o)) fill_data(r, o, seed);
        else fill_values(r, o, seed);
    }
}

static polar_status build(pl_op_run *r, const pl_op_run *like)
{
    const pl_op_info *info = pl_op_describe(r->c.op);
    const pl_case_family *family = pl_op_case_family(r->c.op);
    for (int o = 0; o < r->operands; o++) {
        r->buffer_of[o] = r->c.present >> o & 1 ? o : -1;
        if (r->buffer_of[o] < 0) continue;
        r->mat[o] = family->shape(&r->c, o);
        PL_TRY(take_buffer(r, o));
    }
    for (int o = 0; o < r->operands; o++) {
        int on = o < info->out ? pl_op_case_in_place_on(&r->c, o) : -1;
        if (on >= 0) r->buffer_of[o] = on; /* the result's own buffer stays, untouched */
        if (r->buffer_of[o] < 0) continue;
        r->mat[o].data = (char *)r->buffers[r->buffer_of[o]].device + r->offset[o];
    }
    fill_operands(r, like);
    family->args(&r->args, &r->c, r->mat);
    return POLAR_OK;
}

static polar_status create(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                           const pl_op_run *like)
{
    const pl_op_info *info = pl_op_describe(c->op);
    pl_op_run *r = pl_calloc(1, sizeof *r);
    *out = NULL;
    PL_NEED(r, POLAR_E_NOMEM, "a run of %s", info->name);
    r->c = *c;
    r->fill = fill;
    r->dev = dev;
    r->operands = pl_op_operand_count(info);
    r->results = info->out + info->inout;
    polar_status st = polar_queue_create(&r->q, dev, NULL);
    if (st == POLAR_OK) st = build(r, like);
    if (st == POLAR_OK) *out = r;
    else pl_op_run_destroy(r);
    return st;
}

polar_status pl_op_run_create(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev)
{
    return create(out, c, fill, dev, NULL);
}

polar_status pl_op_run_create_like(pl_op_run **out, const pl_op_run *like, pl_device *dev)
{
    return create(out, &like->c, like->fill, dev, like);
}

void pl_op_run_destroy(pl_op_run *r)
{
    if (!r) return;
    polar_queue_destroy(r->q);
    for (int o = 0; o < r->operands; o++) {
        polar_device_free(r->dev, r->buffers[o].device);
        pl_free(r->buffers[o].before);
        pl_free(r->buffers[o].after);
    }
    pl_free(r);
}

polar_status pl_op_run_upload(pl_op_run *r)
{
    for (int o = 0; o < r->operands; o++)
        if (r->buffers[o].bytes)
            polar_queue_upload(r->q, r->buffers[o].device, r->buffers[o].before, r->buffers[o].bytes);
    return polar_queue_sync(r->q);
}

void pl_op_run_enqueue(pl_op_run *r)
{
    switch (r->c.op) {
#define PL_OP(name, out, inout, in, ...)     \
    case PL_OP_##name:                       \
        pl_call_##name(r->q, &r->args.name); \
        break;
#include "device/ops.def"
    default: break;
    }
}

polar_status pl_op_run_fetch(pl_op_run *r)
{
    for (int o = 0; o < r->operands; o++)
        if (r->buffers[o].bytes)
            polar_queue_download(r->q, r->buffers[o].after, r->buffers[o].device, r->buffers[o].bytes);
    return polar_queue_sync(r->q);
}

polar_status pl_op_run_cost(pl_op_run *r, polar_cost *out)
{
    PL_TRY(polar_queue_dry_begin(r->q));
    pl_op_run_enqueue(r);
    return polar_queue_dry_end(r->q, out);
}

pl_queue *pl_op_run_queue(pl_op_run *r)
{
    return r->q;
}

static int64_t bytes_changed(const unsigned char *before, const unsigned char *after, size_t bytes)
{
    int64_t changed = 0;
    for (size_t at = 0; at < bytes; at++) changed += before[at] != after[at];
    return changed;
}

/* Of the elements of operand o. */
static int64_t elements_changed(const pl_op_run *r, int o)
{
    const pl_op_buffer *p = &r->buffers[r->buffer_of[o]];
    const pl_mat *m = &r->mat[o];
    int64_t changed = 0;
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->rows; i++)
            changed += bytes_changed(entry_at(r, p->before, o, b, i, 0), entry_at(r, p->after, o, b, i, 0),
                                     (size_t)m->cols * polar_dtype_size(m->dtype));
    return changed;
}

int64_t pl_op_run_stray_bytes(const pl_op_run *r, int buffer, int *constant)
{
    const pl_op_buffer *p = &r->buffers[buffer];
    int64_t changed = bytes_changed(p->before, p->after, p->bytes);
    *constant = 1;
    for (int o = 0; o < r->results && *constant; o++) /* no two results stand on one buffer */
        if (r->buffer_of[o] == buffer) {
            *constant = 0;
            changed -= elements_changed(r, o);
        }
    return changed;
}
