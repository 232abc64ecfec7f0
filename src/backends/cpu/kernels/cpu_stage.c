/* cpu_stage.c -- stages of rules beside momentum, map and step: factors of lines, moments of entries,
 * products of two matrices, other ways to apply a step; the loops are in cpu_stage.inc.
 *
 * Sums are in double and in the lanes of lane_sum_elem.h, everything else is element by element: the bits
 * depend on neither threads nor instruction set.
 */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/formulas_elem.h"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"

#define CHUNK 512 /* elements of a row at a time */
#define RUN   16  /* rows of a task */
#define WIDE  64  /* columns summed at a time */

#include "cpu_as_f32.inc"
#include "cpu_stage.inc"
#include "cpu_as_f64.inc"
#include "cpu_stage.inc"

/* ---- lines -------------------------------------------------------------------------------------- */

#define SIZES PL_LINE_COUNT /* a pl_line of this file alone: sums of magnitudes, not of squares */

PL_INLINE double term(double x, int sizes)
{
    return sizes ? fabs(x) : x * x;
}

/* n squares (or magnitudes), the first of lane 0, onto their lanes. */
PL_INLINE void add_squares(double lane[PL_LANES], const double *x, int64_t n, int sizes)
{
    int64_t j = 0;
    for (; j + PL_LANES <= n; j += PL_LANES)
#pragma omp simd
        for (int l = 0; l < PL_LANES; l++) lane[l] += term(x[j + l], sizes);
    for (int l = 0; j + l < n; l++) lane[l] += term(x[j + l], sizes);
}

_Static_assert(CHUNK % PL_LANES == 0, "a chunk begins at lane 0");

/* F = the squares of rows [from, to). */
static void row_squares(const void *args, int64_t b, int64_t from, int64_t to)
{
    const pl_args_line_factors *a = args;
    double *F = (double *)a->F.data + b * a->F.bs, buf[CHUNK];
    for (int64_t i = from; i < to; i++) {
        double lane[PL_LANES] = {0};
        for (int64_t j = 0; j < a->X.cols; j += CHUNK) {
            const int64_t n = a->X.cols - j < CHUNK ? a->X.cols - j : CHUNK;
            add_squares(lane, get_f64(buf, &a->X, b * a->X.bs + i * a->X.rs + j, n), n, a->kind == SIZES);
        }
        F[i] = pl_lanes_fold(lane);
    }
}

typedef struct {
    const pl_args_line_factors *a;
    int64_t pieces; /* of WIDE columns, of a matrix */
} columns_of;

/* F = the squares of WIDE columns: row i in lane i mod 32. */
static void column_squares(void *arg, int me, int64_t t)
{
    const columns_of *o = arg;
    const pl_args_line_factors *a = o->a;
    const int64_t b = t / o->pieces, j = t % o->pieces * WIDE,
                  n = a->X.cols - j < WIDE ? a->X.cols - j : WIDE;
    _Alignas(64) double lane[PL_LANES][WIDE] = {{0}};
    double buf[WIDE], *F = (double *)a->F.data + b * a->F.bs + j;
    (void)me;
    for (int64_t i = 0; i < a->X.rows; i++) {
        const double *x = get_f64(buf, &a->X, b * a->X.bs + i * a->X.rs + j, n);
        double *sum = lane[i % PL_LANES];
#pragma omp simd
        for (int64_t p = 0; p < n; p++) sum[p] += term(x[p], a->kind == SIZES);
    }
    for (int half = PL_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            for (int64_t p = 0; p < n; p++) lane[l][p] += lane[l + half][p];
    memcpy(F, lane[0], (size_t)n * sizeof *F);
}

/* F from the squares that it holds: a few numbers. */
void PL_ISA_NAME(pl_cpu_line_factors_end)(const pl_args_line_factors *a, int64_t b)
{
    const double *live = pl_live_of(&a->live, b), eps = live[PL_LIVE_EPS], beta2 = live[PL_LIVE_BETA2],
                 n = (double)(a->trans ? a->X.rows : a->X.cols);
    double *F = (double *)a->F.data + b * a->F.bs, before[PL_LANES] = {0}, after[PL_LANES] = {0};
    if (a->kind == PL_LINE_EQUILIBRATE) {
        for (int64_t l = 0; l < a->F.cols; l++) F[l] = pl_line_equilibrate(F[l], eps);
        return;
    }
    for (int64_t l = 0; l < a->F.cols; l++) {
        double v = pl_load_f64(a->V.data, a->V.dtype, b * a->V.bs + l), square = F[l];
        F[l] = pl_line_moment(&v, square / n, beta2, eps, a->kind == PL_LINE_CLAMPED);
        pl_store_f64(a->V.data, a->V.dtype, b * a->V.bs + l, v);
        before[l % PL_LANES] += square;
        after[l % PL_LANES] += square * F[l] * F[l];
    }
    const double kept = pl_line_kept(pl_lanes_fold(before), pl_lanes_fold(after));
    for (int64_t l = 0; l < a->F.cols; l++) F[l] = kept * F[l];
}

static void line_sums(pl_queue *q, const pl_args_line_factors *a)
{
    const columns_of o = {a, (a->X.cols + WIDE - 1) / WIDE};
    const int threads = a->X.batch * a->X.rows * a->X.cols > PL_PARALLEL_LEAST ? q->dev->threads : 1;
    if (a->trans) pl_pool_items(q->dev->pool, threads, a->X.batch * o.pieces, 0, column_squares, (void *)&o);
    else pl_parallel_rows(q, row_squares, a, a->X.batch, a->X.rows, a->X.cols);
}

/* Of matrices of which none is left out: their squares and moments are written. */
static void line_factors(pl_queue *q, const pl_args_line_factors *a)
{
    line_sums(q, a);
    for (int64_t b = 0; b < a->X.batch; b++) PL_ISA_NAME(pl_cpu_line_factors_end)(a, b);
}

void PL_ISA_NAME(pl_cpu_line_factors)(pl_queue *q, const pl_args_line_factors *a)
{
    for (int64_t b = 0, n; b < a->X.batch; b += n) {
        n = 1;
        if (pl_live_of(&a->live, b)[PL_LIVE_SKIP] != 0) {
            double *F = (double *)a->F.data + b * a->F.bs;
            for (int64_t l = 0; l < a->F.cols; l++) F[l] = 1;
            continue;
        }
        while (b + n < a->X.batch && pl_live_of(&a->live, b + n)[PL_LIVE_SKIP] == 0) n++;
        pl_args_line_factors some = *a;
        some.F = pl_mat_at(a->F, b, n), some.X = pl_mat_at(a->X, b, n);
        if (a->V.data) some.V = pl_mat_at(a->V, b, n);
        if (a->live.batch > 1) some.live = pl_mat_at(a->live, b, n);
        line_factors(q, &some);
    }
}

/* ---- picked lines ------------------------------------------------------------------------------- */

static void add_gradient_rows(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n)
{
    const pl_args_pick_lines *a = args;
    const double grad = pl_live_of(&a->live, b)[PL_LIVE_GRAD];
    double mb[CHUNK], gb[CHUNK];
    for (int64_t i = from; i < to; i++) {
        const double *g = get_f64(gb, &a->G, b * a->G.bs + i * a->G.rs + j, n);
        double *m = edit_f64(mb, &a->M, b * a->M.bs + i * a->M.rs + j, n);
#pragma omp simd
        for (int64_t p = 0; p < n; p++) m[p] = m[p] + grad * g[p];
        put_f64(m, mb, &a->M, b * a->M.bs + i * a->M.rs + j, n);
    }
}

/* n elements of Y from `to` on: all x, 0 or NaN. */
static void fill_run(const pl_mat *Y, int64_t to, int64_t n, double x)
{
    const size_t size = polar_dtype_size(Y->dtype);
    if (x == 0) memset((char *)Y->data + (size_t)to * size, 0, (size_t)n * size);
    else
        for (int64_t p = 0; p < n; p++) pl_store_f64(Y->data, Y->dtype, to + p, x);
}

/* n elements of X from `from` on become those of Y from `to` on. */
static void move_run(const pl_mat *Y, int64_t to, const pl_mat *X, int64_t from, int64_t n)
{
    const size_t size = polar_dtype_size(Y->dtype);
    char *y = (char *)Y->data + (size_t)to * size;
    if (X->dtype == Y->dtype) memcpy(y, (const char *)X->data + (size_t)from * size, (size_t)n * size);
    else
        for (int64_t p = 0; p < n; p++)
            pl_store_f64(Y->data, Y->dtype, to + p, pl_load_f64(X->data, X->dtype, from + p));
}

static void take_picked_rows(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n)
{
    const pl_args_pick_lines *a = args;
    const double *F = (const double *)a->F.data + b * a->F.bs, beta1 = pl_live_of(&a->live, b)[PL_LIVE_BETA1];
    double mb[CHUNK], db[CHUNK];
    for (int64_t i = from; i < to; i++) {
        if (!a->trans && F[i] == 0) { /* the most of them: M is not looked at */
            fill_run(&a->D, b * a->D.bs + i * a->D.rs + j, n, 0);
            continue;
        }
        double *m = edit_f64(mb, &a->M, b * a->M.bs + i * a->M.rs + j, n),
               *d = room_f64(db, &a->D, b * a->D.bs + i * a->D.rs + j);
        for (int64_t p = 0; p < n; p++) {
            const int picked = F[a->trans ? j + p : i] != 0;
            d[p] = picked ? m[p] : 0;
            m[p] = picked ? beta1 * m[p] : m[p];
        }
        put_f64(d, db, &a->D, b * a->D.bs + i * a->D.rs + j, n);
        put_f64(m, mb, &a->M, b * a->M.bs + i * a->M.rs + j, n);
    }
}

/* F from the sums that it holds; D keeps what becomes of them until all are compared. */
static void compare_lines(const pl_args_pick_lines *a, int64_t b)
{
    double *F = (double *)a->F.data + b * a->F.bs;
    const int64_t apart = a->trans ? 1 : a->D.rs;
    for (int64_t l = 0; l < a->F.cols; l++) F[l] = pl_line_size(F[l]);
    for (int64_t l = 0; l < a->F.cols; l++)
        pl_store_f64(a->D.data, a->D.dtype, b * a->D.bs + l * apart,
                     pl_line_picked(F, a->F.cols, l, a->count));
    for (int64_t l = 0; l < a->F.cols; l++)
        F[l] = pl_load_f64(a->D.data, a->D.dtype, b * a->D.bs + l * apart);
}

void PL_ISA_NAME(pl_cpu_pick_lines)(pl_queue *q, const pl_args_pick_lines *a)
{
    for (int64_t b = 0, n; b < a->M.batch; b += n) {
        n = 1;
        if (pl_live_of(&a->live, b)[PL_LIVE_SKIP] != 0) continue;
        while (b + n < a->M.batch && pl_live_of(&a->live, b + n)[PL_LIVE_SKIP] == 0) n++;
        pl_args_pick_lines some = *a;
        some.D = pl_mat_at(a->D, b, n), some.F = pl_mat_at(a->F, b, n);
        some.M = pl_mat_at(a->M, b, n), some.G = pl_mat_at(a->G, b, n);
        if (a->live.batch > 1) some.live = pl_mat_at(a->live, b, n);
        pl_parallel_pieces(q, add_gradient_rows, &some, n, a->M.rows, a->M.cols, RUN, CHUNK);
        line_sums(q, &(pl_args_line_factors){.F = some.F, .X = some.M, .trans = a->trans, .kind = SIZES});
        for (int64_t i = 0; i < n; i++) compare_lines(&some, i);
        pl_parallel_pieces(q, take_picked_rows, &some, n, a->M.rows, a->M.cols, RUN, CHUNK);
    }
}

/* ---- moved lines -------------------------------------------------------------------------------- */

/* Which lines of X become which of Y, in their order: at most CHUNK of them at a time. */
typedef struct {
    const pl_args_move_lines *a;
    const double *F;
    double empty;     /* what the other lines of Y hold */
    int64_t l, taken; /* lines of F that were looked at, and of those picked */
    int64_t n, to[CHUNK], from[CHUNK];
} moves;

static moves moves_begin(const pl_args_move_lines *a, int64_t b)
{
    const int looks = a->back && a->X.rows * a->X.cols > 0;
    return (moves){.a = a,
                   .F = (const double *)a->F.data + b * a->F.bs,
                   .empty = looks ? pl_line_empty(pl_load_f64(a->X.data, a->X.dtype, b * a->X.bs)) : 0};
}

/* The next of them, in s->n; 0: there are no more. */
static int64_t moves_next(moves *s)
{
    const pl_mat *few = s->a->back ? &s->a->X : &s->a->Y;
    const int64_t most = s->a->trans ? few->cols : few->rows;
    for (s->n = 0; s->n < CHUNK && s->taken < most; s->l++) {
        s->l = pl_line_next(s->F, s->a->F.cols, s->l);
        if (s->l == s->a->F.cols) break;
        s->to[s->n] = s->a->back ? s->l : s->taken;
        s->from[s->n++] = s->a->back ? s->taken : s->l;
        s->taken++;
    }
    return s->n;
}

static void move_rows(const void *args, int64_t b, int64_t from, int64_t to)
{
    const pl_args_move_lines *a = args;
    const int64_t y = b * a->Y.bs, n = a->Y.cols;
    int64_t i = from; /* the next row of Y */
    moves s = moves_begin(a, b);
    while (i < to && moves_next(&s))
        for (int64_t p = 0; p < s.n && s.to[p] < to; p++) {
            if (s.to[p] < from) continue;
            for (; i < s.to[p]; i++) fill_run(&a->Y, y + i * a->Y.rs, n, s.empty);
            move_run(&a->Y, y + i++ * a->Y.rs, &a->X, b * a->X.bs + s.from[p] * a->X.rs, n);
        }
    for (; i < to; i++) fill_run(&a->Y, y + i * a->Y.rs, n, s.empty);
}

static void move_columns(const void *args, int64_t b, int64_t from, int64_t to)
{
    const pl_args_move_lines *a = args;
    const int floats = a->X.dtype == POLAR_DTYPE_F32 && a->Y.dtype == POLAR_DTYPE_F32;
    moves s = moves_begin(a, b);
    for (int64_t i = from; i < to; i++) fill_run(&a->Y, b * a->Y.bs + i * a->Y.rs, a->Y.cols, s.empty);
    while (moves_next(&s))
        for (int64_t i = from; i < to; i++) {
            const int64_t x = b * a->X.bs + i * a->X.rs, y = b * a->Y.bs + i * a->Y.rs;
            if (floats) {
                const float *in = (const float *)a->X.data + x;
                float *out = (float *)a->Y.data + y;
                for (int64_t p = 0; p < s.n; p++) out[s.to[p]] = in[s.from[p]];
            } else
                for (int64_t p = 0; p < s.n; p++) move_run(&a->Y, y + s.to[p], &a->X, x + s.from[p], 1);
        }
}

void PL_ISA_NAME(pl_cpu_move_lines)(pl_queue *q, const pl_args_move_lines *a)
{
    if (!a->Y.rows || !a->Y.cols) return;
    pl_parallel_rows(q, a->trans ? move_columns : move_rows, a, a->Y.batch, a->Y.rows, a->Y.cols);
}

/* In double, as the factors are. */
static void scale_lines_rows(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n)
{
    const pl_args_scale_lines *a = args;
    const double *R = a->R.data ? (const double *)a->R.data + b * a->R.bs : NULL;
    double xb[CHUNK], yb[CHUNK], c[CHUNK];
    for (int64_t p = 0; p < n; p++) c[p] = a->C.data ? ((const double *)a->C.data)[b * a->C.bs + j + p] : 1;
    for (int64_t i = from; i < to; i++) {
        const double *x = get_f64(xb, &a->X, b * a->X.bs + i * a->X.rs + j, n), r = R ? R[i] : 1;
        double *y = room_f64(yb, &a->Y, b * a->Y.bs + i * a->Y.rs + j);
#pragma omp simd
        for (int64_t p = 0; p < n; p++) y[p] = pl_scale_entry_f64(x[p], r, c[p]);
        put_f64(y, yb, &a->Y, b * a->Y.bs + i * a->Y.rs + j, n);
    }
}

void PL_ISA_NAME(pl_cpu_scale_lines)(pl_queue *q, const pl_args_scale_lines *a)
{
    pl_parallel_pieces(q, scale_lines_rows, a, a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

/* ---- entries ------------------------------------------------------------------------------------ */

void PL_ISA_NAME(pl_cpu_entry_stage)(pl_queue *q, const pl_args_entry_stage *a)
{
    pl_parallel_pieces(q, pl_any_f64(pl_op_operands(a), 4) ? entry_stage_rows_f64 : entry_stage_rows_f32, a,
                       a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

void PL_ISA_NAME(pl_cpu_apply_step)(pl_queue *q, const pl_args_apply_step *a)
{
    pl_parallel_pieces(q, pl_any_f64(pl_op_operands(a), 2) ? apply_step_rows_f64 : apply_step_rows_f32, a,
                       a->W.batch, a->W.rows, a->W.cols, RUN, CHUNK);
}

/* ---- products ----------------------------------------------------------------------------------- */

typedef struct {
    const pl_args_inner *a;
    int64_t b;
    double sum[3][PL_LANES]; /* of every 32nd row */
} products_of;

static void add_products(double lane[3][PL_LANES], const double *x, const double *y, int64_t n)
{
    int64_t j = 0;
    for (; j + PL_LANES <= n; j += PL_LANES)
#pragma omp simd
        for (int l = 0; l < PL_LANES; l++) {
            lane[0][l] += x[j + l] * y[j + l];
            lane[1][l] += x[j + l] * x[j + l];
            lane[2][l] += y[j + l] * y[j + l];
        }
    for (int l = 0; j + l < n; l++) {
        lane[0][l] += x[j + l] * y[j + l];
        lane[1][l] += x[j + l] * x[j + l];
        lane[2][l] += y[j + l] * y[j + l];
    }
}

/* Rows r, r + 32, ... */
static void lane_products(void *arg, int me, int64_t r)
{
    products_of *o = arg;
    const pl_args_inner *a = o->a;
    double xb[CHUNK], yb[CHUNK];
    (void)me;
    for (int64_t i = r; i < a->X.rows; i += PL_LANES) {
        double lane[3][PL_LANES] = {{0}};
        for (int64_t j = 0; j < a->X.cols; j += CHUNK) {
            const int64_t n = a->X.cols - j < CHUNK ? a->X.cols - j : CHUNK;
            add_products(lane, get_f64(xb, &a->X, o->b * a->X.bs + i * a->X.rs + j, n),
                         get_f64(yb, &a->Y, o->b * a->Y.bs + i * a->Y.rs + j, n), n);
        }
        for (int k = 0; k < 3; k++) o->sum[k][r] += pl_lanes_fold(lane[k]);
    }
}

static void products_end(products_of *o)
{
    double *N = (double *)o->a->N.data + o->b * o->a->N.bs;
    N[1] = 1;
    for (int k = 0; k < 3; k++) N[k ? k + 1 : 0] = pl_lanes_fold(o->sum[k]);
}

static void matrix_products(void *arg, int me, int64_t b)
{
    products_of o = {.a = arg, .b = b};
    for (int64_t r = 0; r < PL_LANES; r++) lane_products(&o, me, r);
    products_end(&o);
}

/* Many matrices are shared out by matrices, one by its rows' lanes: the same sums. */
void PL_ISA_NAME(pl_cpu_inner)(pl_queue *q, const pl_args_inner *a)
{
    const int threads = a->X.batch * a->X.rows * a->X.cols > PL_PARALLEL_LEAST ? q->dev->threads : 1;
    products_of o = {.a = a};
    if (a->X.batch > 1) {
        pl_pool_items(q->dev->pool, threads, a->X.batch, 0, matrix_products, (void *)a);
        return;
    }
    pl_pool_items(q->dev->pool, threads, PL_LANES, 0, lane_products, &o);
    products_end(&o);
}
