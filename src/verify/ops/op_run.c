/* op_run.c -- see op_run.h. */
#include "verify/ops/op_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "math/norm_elem.h"
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

/* The packed shape of an operand; absent ones have batch -1. */
static pl_mat operand_shape(const pl_op_case *c, int i)
{
    if (pl_nn_case(c->op)) return pl_nn_case_shape(c, i);
    if (pl_vit_case(c->op)) return pl_vit_case_shape(c, i);
    pl_mat result = pl_mat_dense(NULL, c->dtype[i], c->batch, c->rows, c->cols);
    pl_mat values = pl_mat_dense(NULL, POLAR_DTYPE_F64, c->batch, 1, 2),
           one = pl_mat_dense(NULL, POLAR_DTYPE_F64, 1, 1, 2);
    int64_t r = c->rows, n = c->cols, K = c->K;
    if ((c->op == PL_OP_gemm || c->op == PL_OP_axpby || c->op == PL_OP_direction) &&
        !pl_op_case_data_operand(c, i))
        result.batch = -1;
    if (c->flags & PL_CASE_PER_MATRIX) one.batch = c->batch;
    pl_mat live = pl_mat_dense(NULL, POLAR_DTYPE_F64, one.batch, 1, PL_LIVE_COLS),
           flag = pl_mat_dense(NULL, POLAR_DTYPE_F32, one.batch, 1, 1);
    switch (c->op) {
    case PL_OP_copy:
        return i == 1 && c->flags & PL_CASE_TRANS ? pl_mat_dense(NULL, c->dtype[1], c->batch, n, r) : result;
    case PL_OP_gemm:
        if (i == 1)
            return c->flags & PL_CASE_TA ? pl_mat_dense(NULL, c->dtype[1], c->batch, K, r)
                                         : pl_mat_dense(NULL, c->dtype[1], c->batch, r, K);
        if (i == 2)
            return c->flags & PL_CASE_TB ? pl_mat_dense(NULL, c->dtype[2], c->batch, n, K)
                                         : pl_mat_dense(NULL, c->dtype[2], c->batch, K, n);
        return result;
    case PL_OP_frob: return i == 0 ? values : result;
    case PL_OP_frob_join: return i == 0 ? one : values;
    case PL_OP_normalise: return i == 2 ? (c->flags & PL_CASE_SHARED ? one : values) : result;
    case PL_OP_direction: return i == 4 ? live : result;
    case PL_OP_decay_step: return i == 2 ? live : result;
    case PL_OP_adamw_step: return i == 4 ? live : result;
    case PL_OP_nonfinite: return i == 0 ? flag : result;
    case PL_OP_advance:
        if (i < 2) return i == 0 ? result : values;
        if (i == 2) flag.batch = c->batch % 2 ? 1 : 2; /* members */
        else if (!(c->flags & PL_CASE_ADDEND)) flag.batch = -1;
        return flag;
    default: return result;
    }
}

/* Strides and the bytes between the margins. */
static size_t lay_out(pl_op_run *r, int i)
{
    pl_mat *m = &r->mat[i];
    int odd = r->fill == PL_FILL_ODD, apart = odd || r->c.flags & PL_CASE_STRIDED;
    if (apart) {
        m->rs = m->cols + ROW_GAP;
        m->bs = m->rows * m->rs + MATRIX_GAP;
    }
    if (r->c.op == PL_OP_gemm && i == 2 && r->c.flags & PL_CASE_SHARED) m->bs = 0;
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

/* The norm of X's matrix b (of all of X: b < 0) in units of s, for ops that take norms. */
static void norm_of(double out[2], const pl_op_run *r, int o, int64_t b)
{
    const pl_mat *m = &r->mat[o];
    double amax = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        out[0] = pl_norm_scale(amax, m->dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32);
        for (int64_t k = b < 0 ? 0 : b; k < (b < 0 ? m->batch : b + 1); k++)
            for (int64_t i = 0; i < m->rows; i++)
                for (int64_t j = 0; j < m->cols; j++) {
                    double x = pl_op_run_before(r, o, k, i, j);
                    if (pass == 0) amax = fmax(amax, fabs(x));
                    else sum += x * out[0] * (x * out[0]);
                }
    }
    out[1] = sqrt(sum);
}

/* The live row of the third step and, matrix by matrix, of later ones; short numbers where sums shall be
 * exact. The second of several matrices is frozen and has its gradient multiplied, the third one is left out
 * in some fills. */
static void fill_live(double v[PL_LIVE_COLS], const pl_op_case *c, pl_fill fill, int64_t b)
{
    int whole = fill == PL_FILL_INTEGERS;
    double lr = (whole ? 0.25 : 5e-3) * (b == 1 ? 0 : (double)(1 + b)), wd = whole ? 0.5 : 0.05;
    pl_live_row(v, 1 / (1 - pow(c->alpha, (double)(3 + b))), 1 / (1 - pow(c->beta, (double)(3 + b))), lr, wd,
                c->alpha, c->beta, c->eps);
    if (b == 1) v[PL_LIVE_GRAD] = whole ? 0.5 : 0.7;
    v[PL_LIVE_SKIP] = b == 2 && fill != PL_FILL_ADVERSARIAL && fill != PL_FILL_SPECIAL;
}

/* advance: row r has made r steps and left out 2 r; every fifth is the host's to leave out, its neighbour was
 * left out by an earlier flag; the second member and, in the odd fill, found are flagged. */
static void fill_advance(double v[PL_LIVE_COLS], const pl_op_case *c, pl_fill fill, int o, int64_t r)
{
    if (o == 0) {
        pl_live_row(v, 0.5, 0.25, 5e-3, 0.05, c->alpha, c->beta, 1e-8);
        v[PL_LIVE_SKIP] = r % 5 == 3 ? 1 : r % 5 == 4 ? PL_SKIP_FLAG : 0;
    } else if (o == 1) v[0] = (double)r, v[1] = (double)(2 * r);
    else v[0] = o == 2 ? r == 1 : o == 3 ? fill == PL_FILL_ODD : 1024;
}

int pl_op_run_left_out(const pl_op_run *r, int64_t b)
{
    int live = r->c.op == PL_OP_direction || r->c.op == PL_OP_adamw_step ? 4
               : r->c.op == PL_OP_decay_step                             ? 2
                                                                         : -1;
    return live >= 0 && pl_op_run_before(r, live, r->mat[live].batch == 1 ? 0 : b, 0, PL_LIVE_SKIP) != 0;
}

/* Rows of f64: norms to read, or the live values of the optimisers. */
static void fill_values(pl_op_run *r, int o, uint64_t seed)
{
    const pl_op_case *c = &r->c;
    for (int64_t b = 0; b < r->mat[o].batch; b++) {
        double v[PL_LIVE_COLS] = {0};
        switch (c->op) {
        case PL_OP_frob_join: pl_fill_norm(v, r->fill, seed, b); break;
        case PL_OP_normalise: norm_of(v, r, 1, c->flags & PL_CASE_SHARED ? -1 : b); break;
        case PL_OP_direction:
        case PL_OP_decay_step:
        case PL_OP_adamw_step: fill_live(v, c, r->fill, b); break;
        case PL_OP_nonfinite: v[0] = b == 1; break;
        case PL_OP_advance: fill_advance(v, c, r->fill, o, b); break;
        default: break;
        }
        for (int64_t j = 0; j < r->mat[o].cols; j++) put_entry(r, o, b, 0, j, v[j]);
    }
}

static void fill_data(pl_op_run *r, int o, uint64_t seed)
{
    const pl_mat *m = &r->mat[o];
    /* B has A's entries */
    int from = r->c.flags & PL_CASE_SYM && o == 2 ? 1 : o;
    int mirror = r->c.flags & PL_CASE_SYM && o == 3;
    /* V, a mean of squares, is not negative */
    int square = (r->c.op == PL_OP_direction || r->c.op == PL_OP_adamw_step) && o == 2;
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

/* The call, with the operands in place. */
static void make_args(pl_op_run *r)
{
    const pl_op_case *c = &r->c;
    const pl_mat *m = r->mat;
    uint32_t f = c->flags;
    pl_op_args *a = &r->args;
    switch (c->op) {
    case PL_OP_copy: a->copy = (pl_args_copy){.Y = m[0], .X = m[1], .trans = !!(f & PL_CASE_TRANS)}; break;
    case PL_OP_axpby:
        a->axpby = (pl_args_axpby){.Y = m[0],
                                   .X = m[1],
                                   .Z = m[2],
                                   .alpha = c->alpha,
                                   .beta = c->beta,
                                   .round_terms = !!(f & PL_CASE_ROUND_TERMS)};
        break;
    case PL_OP_gemm:
        a->gemm = (pl_args_gemm){.C = m[0],
                                 .A = m[1],
                                 .B = m[2],
                                 .D = m[3],
                                 .ta = !!(f & PL_CASE_TA),
                                 .tb = !!(f & PL_CASE_TB),
                                 .sym = !!(f & PL_CASE_SYM),
                                 .alpha = c->alpha,
                                 .beta = c->beta};
        break;
    case PL_OP_frob:
        a->frob = (pl_args_frob){.N = m[0],
                                 .X = m[1],
                                 .weight = c->alpha,
                                 .rounded = !!(f & PL_CASE_ROUNDED),
                                 .trans = !!(f & PL_CASE_TRANS)};
        break;
    case PL_OP_frob_join: a->frob_join = (pl_args_frob_join){.N = m[0], .M = m[1]}; break;
    case PL_OP_normalise:
        a->normalise = (pl_args_normalise){
            .Y = m[0], .X = m[1], .N = m[2], .reference = !!(f & PL_CASE_REFERENCE), .eps = c->eps};
        break;
    case PL_OP_polar_exact: a->polar_exact = (pl_args_polar_exact){.Y = m[0], .X = m[1]}; break;
    case PL_OP_direction:
        a->direction = (pl_args_direction){.D = m[0],
                                           .M = m[1],
                                           .V = m[2],
                                           .G = m[3],
                                           .live = m[4],
                                           .momentum = pl_op_case_momentum(c),
                                           .precondition = !(f & PL_CASE_PLAIN)};
        break;
    case PL_OP_decay_step:
        a->decay_step = (pl_args_decay_step){.W = m[0], .D = m[1], .live = m[2], .scale = c->alpha};
        break;
    case PL_OP_adamw_step:
        a->adamw_step = (pl_args_adamw_step){.W = m[0], .M = m[1], .V = m[2], .G = m[3], .live = m[4]};
        break;
    case PL_OP_nonfinite: a->nonfinite = (pl_args_nonfinite){.F = m[0], .G = m[1]}; break;
    case PL_OP_advance:
        a->advance = (pl_args_advance){.L = m[0], .T = m[1], .F = m[2], .found = m[3], .scale = m[4]};
        break;
    default:
        if (pl_vit_case(c->op)) pl_vit_case_args(a, c, m);
        else pl_nn_case_args(a, c, m);
        break;
    }
}

static polar_status build(pl_op_run *r)
{
    const pl_op_info *info = pl_op_describe(r->c.op);
    uint64_t seed = case_seed(&r->c, r->fill);
    for (int o = 0; o < r->operands; o++) {
        r->mat[o] = operand_shape(&r->c, o);
        r->buffer_of[o] = r->mat[o].batch < 0 ? -1 : o;
        if (r->mat[o].batch >= 0) PL_TRY(take_buffer(r, o));
    }
    for (int o = 0; o < r->operands; o++) {
        int on = o < info->out ? pl_op_case_in_place_on(&r->c, o) : -1;
        if (on >= 0) r->buffer_of[o] = on; /* the result's own buffer stays, untouched */
        if (r->buffer_of[o] < 0) continue;
        r->mat[o].data = (char *)r->buffers[r->buffer_of[o]].device + r->offset[o];
        if (o < info->out) {
            if (on < 0) fill_poison(r, o);
        } else if (pl_op_case_data_operand(&r->c, o)) fill_data(r, o, seed);
        else fill_values(r, o, seed);
    }
    make_args(r);
    return POLAR_OK;
}

polar_status pl_op_run_create(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev)
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
    if (st == POLAR_OK) st = build(r);
    if (st == POLAR_OK) *out = r;
    else pl_op_run_destroy(r);
    return st;
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
#undef PL_OP
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

/* True where byte `at` of the operand's buffer belongs to one of its elements. */
static int inside(const pl_op_run *r, int o, size_t at)
{
    const pl_mat *m = &r->mat[o];
    if (at < r->offset[o] || m->bs <= 0 || m->rs <= 0) return 0;
    int64_t e = (int64_t)((at - r->offset[o]) / polar_dtype_size(m->dtype)), in_matrix = e % m->bs;
    return e / m->bs < m->batch && in_matrix / m->rs < m->rows && in_matrix % m->rs < m->cols;
}

int64_t pl_op_run_stray_bytes(const pl_op_run *r, int buffer, int *constant)
{
    const pl_op_buffer *p = &r->buffers[buffer];
    int64_t stray = 0;
    *constant = 1;
    for (int o = 0; o < r->results; o++)
        if (r->buffer_of[o] == buffer) *constant = 0;
    for (size_t at = 0; at < p->bytes; at++) {
        if (p->before[at] == p->after[at]) continue;
        int owned = 0;
        for (int o = 0; o < r->results && !owned; o++) owned = r->buffer_of[o] == buffer && inside(r, o, at);
        stray += !owned;
    }
    return stray;
}
