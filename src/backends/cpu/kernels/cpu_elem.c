/* cpu_elem.c -- copy, axpby, normalise, direction, decay_step, adamw_step, nonfinite: rows in chunks over the
 * threads; the loops are in cpu_elem.inc.
 *
 * Every element is computed from its own operands by formulas_elem.h, so chunks, threads and instruction sets
 * leave the bits alone.
 */
#include "cpu_ratio.h"
#include "cpu_convert.h"
#include "cpu_vec.h"

#define CHUNK 512 /* elements of a row at a time: a few buffers of these fit the first cache */
/* and of a direction: few enough that the roots and quotients of some run while the next ones come from
 * memory */
#define TURN     64
#define SIDE     32        /* of a square block of a transpose */
#define SMALL    (1 << 15) /* elements below which one thread does it all */
#define INDEX(m) (b * (m).bs + i * (m).rs + j)

/* d = d / (sqrt x + eps), n times. */
static void ratios_f32(float *d, const float *x, int64_t n, float eps)
{
#ifdef PL_RATIO_BY_FMA
    const int64_t whole = eps >= 0 && eps <= PL_RATIO_EPS ? n / 16 * 16 : 0;
    for (int64_t p = 0; p < whole; p += 16)
        _mm512_storeu_ps(d + p,
                         pl_ratio16(_mm512_loadu_ps(d + p), _mm512_loadu_ps(x + p), _mm512_set1_ps(eps)));
    for (int64_t p = whole; p < n; p++) d[p] = pl_ratio_f32(d[p], x[p], eps);
#else
#pragma omp simd
    for (int64_t p = 0; p < n; p++) d[p] = pl_ratio_f32(d[p], x[p], eps);
#endif
}

static void ratios_f64(double *d, const double *x, int64_t n, double eps)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) d[p] = pl_ratio_f64(d[p], x[p], eps);
}

#include "cpu_as_f32.inc"
#include "cpu_elem.inc"
#include "cpu_as_f64.inc"
#include "cpu_elem.inc"

typedef void (*chunk_fn)(const void *args, int64_t b, int64_t i, int64_t j, int64_t n);

typedef struct {
    int64_t rows, cols;  /* of a matrix */
    int64_t pieces, all; /* chunks of a row, of everything */
} chunks;

/* The chunks of n operands, which have one shape. Where all are packed a matrix counts as one row, and (if
 * `join`) a batch too. */
static chunks chunks_of(const void *args, int n, int join)
{
    const pl_mat *m = pl_op_operands(args);
    int64_t batch = m[0].batch, rows = m[0].rows, cols = m[0].cols;
    int packed = 1;
    for (int k = 0; k < n; k++)
        if (m[k].data) {
            packed &= rows == 1 || m[k].rs == cols;
            join &= m[k].bs == rows * cols || batch == 1;
        }
    if (packed) cols *= rows, rows = 1;
    if (packed && join) cols *= batch, batch = 1;
    int64_t pieces = (cols + CHUNK - 1) / CHUNK;
    return (chunks){rows, cols, pieces, batch * rows * pieces};
}

static void do_chunks(chunk_fn fn, const void *args, const chunks *c, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        int64_t j = t % c->pieces * CHUNK, row = t / c->pieces;
        fn(args, row / c->rows, row % c->rows, j, c->cols - j < CHUNK ? c->cols - j : CHUNK);
    }
}

typedef struct {
    chunk_fn fn;
    const void *args;
    chunks c;
} chunks_in;

static void one_chunk(void *arg, int me, int64_t t)
{
    const chunks_in *o = arg;
    (void)me;
    do_chunks(o->fn, o->args, &o->c, t, t + 1);
}

/* Calls fn for every chunk. */
static void for_chunks(pl_queue *q, chunk_fn fn, const void *args, int n, int join)
{
    chunks_in o = {fn, args, chunks_of(args, n, join)};
    pl_pool_items(q->dev->pool, o.c.all > SMALL / CHUNK ? q->dev->threads : 1, o.c.all, 0, one_chunk, &o);
}

/* A row of one format into the same format. */
static void same_chunk(const void *args, int64_t b, int64_t i, int64_t j, int64_t n)
{
    const pl_args_copy *a = args;
    size_t size = polar_dtype_size(a->X.dtype);
    memmove((char *)a->Y.data + (size_t)INDEX(a->Y) * size,
            (const char *)a->X.data + (size_t)INDEX(a->X) * size, (size_t)n * size);
}

typedef struct {
    const pl_args_copy *a;
    int64_t down, across; /* blocks of X */
    int f64;
} blocks_of;

static void transpose_block(void *arg, int me, int64_t t)
{
    const blocks_of *o = arg;
    const pl_args_copy *a = o->a;
    /* along rows of the result: stores stream */
    int64_t b = t / (o->down * o->across), j = t / o->down % o->across * SIDE, i = t % o->down * SIDE;
    int64_t m = a->X.rows - i < SIDE ? a->X.rows - i : SIDE, n = a->X.cols - j < SIDE ? a->X.cols - j : SIDE;
    (void)me;
    if (o->f64) turn_chunk_f64(a, b, i, j, m, n);
    else turn_chunk_f32(a, b, i, j, m, n);
}

static void copy_transposed(pl_queue *q, const pl_args_copy *a, int f64)
{
    blocks_of o = {a, (a->X.rows + SIDE - 1) / SIDE, (a->X.cols + SIDE - 1) / SIDE, f64};
    int64_t all = a->X.batch * o.down * o.across;
    pl_pool_items(q->dev->pool, all > SMALL / (SIDE * SIDE) ? q->dev->threads : 1, all, 0, transpose_block,
                  &o);
}

void PL_ISA_NAME(pl_cpu_copy)(pl_queue *q, const pl_args_copy *a)
{
    int f64 = pl_any_f64(pl_op_operands(a), 2);
    if (a->trans) copy_transposed(q, a, f64);
    else
        for_chunks(q, a->X.dtype == a->Y.dtype ? same_chunk : f64 ? copy_chunk_f64 : copy_chunk_f32, a, 2, 1);
}

void PL_ISA_NAME(pl_cpu_axpby)(pl_queue *q, const pl_args_axpby *a)
{
    for_chunks(q, pl_any_f64(pl_op_operands(a), 3) ? axpby_chunk_f64 : axpby_chunk_f32, a, 3, 1);
}

void PL_ISA_NAME(pl_cpu_normalise)(pl_queue *q, const pl_args_normalise *a)
{
    /* a norm per matrix */
    for_chunks(q, pl_any_f64(pl_op_operands(a), 2) ? normalise_chunk_f64 : normalise_chunk_f32, a, 2, 0);
}

void PL_ISA_NAME(pl_cpu_direction)(pl_queue *q, const pl_args_direction *a)
{
    for_chunks(q, pl_any_f64(pl_op_operands(a), 4) ? direction_chunk_f64 : direction_chunk_f32, a, 4,
               a->live.batch == 1);
}

void PL_ISA_NAME(pl_cpu_decay_step)(pl_queue *q, const pl_args_decay_step *a)
{
    for_chunks(q, pl_any_f64(pl_op_operands(a), 2) ? decay_chunk_f64 : decay_chunk_f32, a, 2,
               a->live.batch == 1);
}

void PL_ISA_NAME(pl_cpu_direction_row)(const pl_args_direction *a, int64_t i)
{
    for (int64_t j = 0; j < a->D.cols; j += CHUNK)
        direction_chunk_f32(a, 0, i, j, a->D.cols - j < CHUNK ? a->D.cols - j : CHUNK);
}

typedef struct {
    pl_mat G, F; /* the shape is G's */
} flag_args;

/* An infinity or a NaN has all bits of its exponent set. */
static void nonfinite_chunk(const void *args, int64_t b, int64_t i, int64_t j, int64_t n)
{
    const flag_args *a = args;
    const int64_t at = INDEX(a->G);
    int bad = 0;
    if (a->G.dtype == POLAR_DTYPE_F64) {
        const uint64_t *g = (const uint64_t *)a->G.data + at, all = 0x7ff0000000000000u;
#pragma omp simd reduction(| : bad)
        for (int64_t p = 0; p < n; p++) bad |= (g[p] & all) == all;
    } else if (a->G.dtype == POLAR_DTYPE_F32) {
        const uint32_t *g = (const uint32_t *)a->G.data + at, all = 0x7f800000u;
#pragma omp simd reduction(| : bad)
        for (int64_t p = 0; p < n; p++) bad |= (g[p] & all) == all;
    } else {
        const uint16_t *g = (const uint16_t *)a->G.data + at, all = 0x7f80u;
#pragma omp simd reduction(| : bad)
        for (int64_t p = 0; p < n; p++) bad |= (g[p] & all) == all;
    }
    /* several threads may write the same 1 */
    if (bad)
        __atomic_store_n((uint32_t *)a->F.data + (a->F.batch == 1 ? 0 : b * a->F.bs), 0x3f800000u,
                         __ATOMIC_RELAXED);
}

void PL_ISA_NAME(pl_cpu_nonfinite)(pl_queue *q, const pl_args_nonfinite *a)
{
    const flag_args f = {a->G, a->F};
    for_chunks(q, nonfinite_chunk, &f, 1, a->F.batch == 1);
}

int64_t PL_ISA_NAME(pl_cpu_adamw_pieces)(const pl_args_adamw_step *a)
{
    return chunks_of(a, 4, a->live.batch == 1).all;
}

void PL_ISA_NAME(pl_cpu_adamw_some)(const pl_args_adamw_step *a, int64_t from, int64_t to)
{
    chunks c = chunks_of(a, 4, a->live.batch == 1);
    do_chunks(pl_any_f64(pl_op_operands(a), 4) ? adamw_chunk_f64 : adamw_chunk_f32, a, &c, from, to);
}
