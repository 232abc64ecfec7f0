/* cpu_polar_step.c -- polar_map and polar_step on the tile unit: a matrix from end to end on one thread,
 * while it sits in the second cache.
 *
 *     polar_step   D = direction(M, V, G)   norm of D   blocks R(D / norm)   Newton-Schulz   W stepped by
 *                  its blocks, after a pass over them where a rule asks for sums of lines or products with W
 *     polar_map                             norm of X   blocks R(X / norm)   Newton-Schulz   Y
 *
 * The bits are those of the ops one after the other. x s / n is made without a division: with r = 1 / n
 * rounded and two corrections
 *
 *     q = a r;   e = a - n q, q = q + e r;   e = a - n q, q = q + e r        (fused multiply-adds)
 *
 * the first leaves q a neighbour of a / n, the second the nearest number, since r is the nearest to 1 / n
 * (Markstein). Nothing may underflow on the way: vectors with an entry below 2^-80 are divided. Matrices
 * too large for the cache take the ops one after the other, each over all threads.
 */
#include "cpu_ns.h"
#include "cpu_convert.h"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"

#ifdef PL_TILES

/* ---- x over its norm ---------------------------------------------------------------------------- */

typedef struct {
    float s, n, r;
    int exact; /* by division, element by element: the norm is zero, infinite or no number */
} divisor;

static divisor divisor_of(const double *value, double eps)
{
    divisor d = {.s = (float)value[0], .n = pl_norm_or_eps_f32((float)value[0], (float)value[1], (float)eps)};
    d.exact = !(d.n > 0x1p-80f && d.n < 0x1p80f);
    d.r = 1 / d.n;
    return d;
}

/* 16 quotients in the upper halves, rounded to bf16; none of them NaN. */
PL_INLINE __m512i quotients(__m512 x, const divisor *d)
{
    const __m512 n = _mm512_set1_ps(d->n), r = _mm512_set1_ps(d->r),
                 a = _mm512_mul_ps(x, _mm512_set1_ps(d->s));
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u), one = _mm512_set1_epi32(1);
    __m512 q = _mm512_mul_ps(a, r);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(n, q, a), r, q);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(n, q, a), r, q);
    __m512i u = _mm512_castps_si512(a), v = _mm512_castps_si512(q);
    if (_mm512_cmplt_epu32_mask(_mm512_sub_epi32(_mm512_andnot_si512(sign, u), one),
                                _mm512_set1_epi32((127 - 80) << 23)))
        v = _mm512_castps_si512(_mm512_div_ps(a, n));
    v = _mm512_ternarylogic_epi32(sign, u, v, 0xCA); /* a's sign, which -0 has lost */
    return _mm512_mask_add_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(0x7fff)),
                                 _mm512_test_epi32_mask(v, _mm512_set1_epi32(0x10000)), v,
                                 _mm512_set1_epi32(0x8000));
}

/* 32 elements of a row as floats, zero beyond the first n. */
PL_INLINE const float *row_floats(float room[PL_BLOCK], const pl_mat *x, int64_t at, int64_t n)
{
    if (x->dtype == POLAR_DTYPE_F32 && n >= PL_BLOCK) return (const float *)x->data + at;
    memset(room, 0, PL_BLOCK * sizeof *room);
    pl_row_load_f32(room, x->data, x->dtype, at, n < PL_BLOCK ? n : PL_BLOCK);
    return room;
}

/* n <= 32 elements by division, zeros after them. */
static void divide_row(pl_bf16 *out, const float *x, int64_t n, const divisor *d)
{
    for (int64_t k = 0; k < n; k++) out[k] = pl_bf16_from_f32(pl_normalise_f32(x[k], d->s, d->n));
    memset(out + n, 0, (size_t)(PL_BLOCK - n) * sizeof *out);
}

PL_INLINE void normalise_row(pl_bf16 *out, const float *x, const divisor *d)
{
    const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
                                           29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    _mm512_store_si512(out, _mm512_permutex2var_epi16(quotients(_mm512_loadu_ps(x), d), upper,
                                                      quotients(_mm512_loadu_ps(x + 16), d)));
}

/* A block of X from row i and column j on, in the left form. */
static void pack_block(pl_bf16 *block, const pl_mat *X, int64_t b, int64_t i, int64_t j, const divisor *d)
{
    _Alignas(64) float room[PL_BLOCK];
    const divisor k = *d;
    int64_t rows = X->rows - i < PL_BLOCK ? X->rows - i : PL_BLOCK,
            cols = X->cols - j < PL_BLOCK ? X->cols - j : PL_BLOCK, at = b * X->bs + i * X->rs + j;
    if (!k.exact && cols == PL_BLOCK && X->dtype == POLAR_DTYPE_F32)
        for (int64_t r = 0; r < rows; r++)
            normalise_row(block + PL_BLOCK * r, (const float *)X->data + at + r * X->rs, &k);
    else
        for (int64_t r = 0; r < rows; r++) {
            const float *x = row_floats(room, X, at + r * X->rs, cols);
            if (k.exact) divide_row(block + PL_BLOCK * r, x, cols, &k);
            else normalise_row(block + PL_BLOCK * r, x, &k);
        }
    memset(block + PL_BLOCK * rows, 0, (size_t)(PL_BLOCK * (PL_BLOCK - rows)) * sizeof *block);
}

/* Matrix b of X over its norm, or eps, into w. */
static void pack(pl_ns *w, const pl_mat *X, int64_t b, const double *norm, double eps)
{
    const divisor d = divisor_of(norm, eps);
    for (int64_t i = 0; i < X->rows; i += PL_BLOCK) {
        pl_bf16 *block = pl_ns_rows(w, i / PL_BLOCK);
        for (int64_t j = 0; j < X->cols; j += PL_BLOCK, block += PL_BLOCK_SIZE)
            pack_block(block, X, b, i, j, &d);
        pl_ns_put(w, i / PL_BLOCK);
    }
}

/* ---- what becomes of the rows ------------------------------------------------------------------- */

/* columns taken together: long enough for memory, few enough blocks for the first cache */
#define STRIP (4 * PL_BLOCK)

PL_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of blocks side by side: row r of the one that holds column j. */
PL_INLINE int64_t block_row(int64_t r, int64_t j)
{
    return (j + r) * PL_BLOCK;
}

PL_INLINE void block_floats(float out[PL_BLOCK], const pl_bf16 *row)
{
    for (int k = 0; k < PL_BLOCK; k++) out[k] = pl_bf16_to_f32(row[k]);
}

static void unpack(const pl_ns *w, const pl_mat *Y, int64_t b)
{
    _Alignas(64) float y[PL_BLOCK];
    for (int64_t i = 0; i < Y->rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t j0 = 0; j0 < Y->cols; j0 += STRIP)
            for (int64_t r = 0; r < least(PL_BLOCK, Y->rows - i); r++)
                for (int64_t j = j0; j < least(j0 + STRIP, Y->cols); j += PL_BLOCK) {
                    int64_t at = b * Y->bs + (i + r) * Y->rs + j, n = Y->cols - j;
                    block_floats(y, rows + block_row(r, j));
                    if (n >= PL_BLOCK) pl_row_store_f32(Y->data, Y->dtype, at, y, PL_BLOCK);
                    else pl_row_store_f32(Y->data, Y->dtype, at, y, n);
                }
    }
}

static void step(const pl_ns *w, const pl_args_polar_step *a, int64_t b)
{
    _Alignas(64) float d[PL_BLOCK];
    const double *live = pl_live_of(&a->live, b);
    const float lr = (float)live[PL_LIVE_LR], wd = (float)live[PL_LIVE_WD], scale = (float)a->scale;
    for (int64_t i = 0; i < a->W.rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t j0 = 0; j0 < a->W.cols; j0 += STRIP)
            for (int64_t r = 0; r < least(PL_BLOCK, a->W.rows - i); r++)
                for (int64_t j = j0; j < least(j0 + STRIP, a->W.cols); j += PL_BLOCK) {
                    float *x = (float *)a->W.data + b * a->W.bs + (i + r) * a->W.rs + j;
                    int64_t n = a->W.cols - j;
                    pl_prefetch(j + STRIP < a->W.cols ? x + STRIP : x + PL_BLOCK * a->W.rs + j % STRIP - j,
                                PL_BLOCK * sizeof(float), 1);
                    block_floats(d, rows + block_row(r, j));
                    if (n >= PL_BLOCK)
                        for (int k = 0; k < PL_BLOCK; k++)
                            x[k] = pl_decay_and_step_f32(x[k], d[k], lr, wd, scale);
                    else
                        for (int64_t k = 0; k < n; k++)
                            x[k] = pl_decay_and_step_f32(x[k], d[k], lr, wd, scale);
                }
    }
}

/* ---- steps of other rules ----------------------------------------------------------------------- */

_Static_assert(PL_BLOCK == PL_LANES, "column k of a block is in lane k, and so is row k");

/* What a step takes beside its blocks: factors of lines (or NULL), and those of W and D. */
typedef struct {
    double *R, *C, keep, move;
} factors;

/* R = the squares of rows. */
static void row_squares(double *R, const pl_ns *w, const pl_mat *W)
{
    _Alignas(64) float d[PL_BLOCK];
    for (int64_t i = 0; i < W->rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t r = 0; r < least(PL_BLOCK, W->rows - i); r++) {
            _Alignas(64) double lane[PL_LANES] = {0};
            for (int64_t j = 0; j < W->cols; j += PL_BLOCK) { /* zero beyond the matrix */
                block_floats(d, rows + block_row(r, j));
                for (int k = 0; k < PL_BLOCK; k++) lane[k] += (double)d[k] * (double)d[k];
            }
            R[i + r] = pl_lanes_fold(lane);
        }
    }
}

/* C = the squares of columns, row i in lane i mod 32. */
static void column_squares(double *C, const pl_ns *w, const pl_mat *W)
{
    _Alignas(64) float d[PL_BLOCK];
    for (int64_t j = 0; j < W->cols; j += PL_BLOCK) {
        _Alignas(64) double lane[PL_LANES][PL_BLOCK] = {{0}};
        for (int64_t i = 0; i < W->rows; i += PL_BLOCK) {
            const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
            for (int64_t r = 0; r < PL_BLOCK; r++) {
                block_floats(d, rows + block_row(r, j));
                for (int k = 0; k < PL_BLOCK; k++) lane[r][k] += (double)d[k] * (double)d[k];
            }
        }
        for (int half = PL_LANES / 2; half > 0; half /= 2)
            for (int l = 0; l < half; l++)
                for (int k = 0; k < PL_BLOCK; k++) lane[l][k] += lane[l + half][k];
        memcpy(C + j, lane[0], (size_t)least(PL_BLOCK, W->cols - j) * sizeof *C);
    }
}

/* Row r of the blocks as floats, its lines scaled; columns from j on. */
PL_INLINE void scaled_floats(float d[PL_BLOCK], const pl_bf16 *row, const factors *f, int64_t i, int64_t j,
                             int64_t n)
{
    block_floats(d, row);
    if (f->R) {
        const double s = f->R[i];
        for (int k = 0; k < PL_BLOCK; k++) d[k] = (float)pl_scale_entry_f64((double)d[k], s, 1);
    } else if (f->C)
        for (int64_t k = 0; k < n; k++) d[k] = (float)pl_scale_entry_f64((double)d[k], 1, f->C[j + k]);
}

/* n = (<W, D>, 1, <W, W>, <D, D>), as `inner` */
static void products(double n[4], const pl_ns *w, const pl_mat *W, int64_t b, const factors *f)
{
    _Alignas(64) float d[PL_BLOCK], room[PL_BLOCK];
    double all[3][PL_LANES] = {{0}};
    for (int64_t i = 0; i < W->rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t r = 0; r < least(PL_BLOCK, W->rows - i); r++) {
            _Alignas(64) double wd[PL_LANES] = {0}, ww[PL_LANES] = {0}, dd[PL_LANES] = {0};
            for (int64_t j = 0; j < W->cols; j += PL_BLOCK) {
                const float *x = row_floats(room, W, b * W->bs + (i + r) * W->rs + j, W->cols - j);
                scaled_floats(d, rows + block_row(r, j), f, i + r, j, least(PL_BLOCK, W->cols - j));
                for (int k = 0; k < PL_BLOCK; k++) wd[k] += (double)x[k] * (double)d[k];
                for (int k = 0; k < PL_BLOCK; k++) ww[k] += (double)x[k] * (double)x[k];
                for (int k = 0; k < PL_BLOCK; k++) dd[k] += (double)d[k] * (double)d[k];
            }
            all[0][r] += pl_lanes_fold(wd), all[1][r] += pl_lanes_fold(ww), all[2][r] += pl_lanes_fold(dd);
        }
    }
    n[1] = 1;
    for (int k = 0; k < 3; k++) n[k ? k + 1 : 0] = pl_lanes_fold(all[k]);
}

/* The factors of matrix b, its lines' in `room`. */
static factors factors_of(const pl_ns *w, const pl_args_polar_step *a, int64_t b, double *room)
{
    const double *live = pl_live_of(&a->live, b);
    factors f = {.keep = 1};
    double n[4];
    if (a->post) {
        const int columns = pl_post_columns(a->post, a->W.rows, a->W.cols);
        const pl_args_line_factors lines = {
            .F = pl_mat_dense(room, POLAR_DTYPE_F64, 1, 1, columns ? a->W.cols : a->W.rows),
            .V = pl_mat_at(a->P, b, 1),
            .X = pl_mat_at(a->W, b, 1), /* its sizes */
            .live = pl_mat_dense((void *)live, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS),
            .trans = columns,
            .kind = a->post == POLAR_POST_LONG_MOMENT ? PL_LINE_CLAMPED : PL_LINE_MOMENT};
        *(columns ? &f.C : &f.R) = room;
        (columns ? column_squares : row_squares)(room, w, &a->W);
        PL_ISA_NAME(pl_cpu_line_factors_end)(&lines, 0);
    }
    if (a->apply >= POLAR_APPLY_HYPERBALL) {
        products(n, w, &a->W, b, &f);
        pl_apply_factors(&f.keep, &f.move, n, a->apply, live[PL_LIVE_LR], live[PL_LIVE_WD], a->scale,
                         a->strength);
    }
    return f;
}

typedef struct {
    float lr, wd, scale, keep, move;
} step_numbers;

PL_INLINE void step_row(float *x, const float *d, const int64_t n, const pl_args_polar_step *a,
                        const step_numbers *s)
{
    const float lr = s->lr, wd = s->wd, scale = s->scale, keep = s->keep, move = s->move;
    if (a->apply >= POLAR_APPLY_HYPERBALL)
        for (int64_t k = 0; k < n; k++) x[k] = pl_ball_step_f32(x[k], d[k], lr, keep, move);
    else if (a->apply == POLAR_APPLY_CAUTIOUS)
        for (int64_t k = 0; k < n; k++) x[k] = pl_cautious_step_f32(x[k], d[k], lr, wd, scale);
    else
        for (int64_t k = 0; k < n; k++) x[k] = pl_decay_and_step_f32(x[k], d[k], lr, wd, scale);
}

/* step for rules with factors, or a cautious decay. */
static void step_by_factors(const pl_ns *w, const pl_args_polar_step *a, int64_t b, double *room)
{
    _Alignas(64) float d[PL_BLOCK];
    const double *live = pl_live_of(&a->live, b);
    const factors f = factors_of(w, a, b, room);
    const step_numbers s = {(float)live[PL_LIVE_LR], (float)live[PL_LIVE_WD], (float)a->scale, (float)f.keep,
                            (float)f.move};
    for (int64_t i = 0; i < a->W.rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t r = 0; r < least(PL_BLOCK, a->W.rows - i); r++)
            for (int64_t j = 0; j < a->W.cols; j += PL_BLOCK) {
                float *x = (float *)a->W.data + b * a->W.bs + (i + r) * a->W.rs + j;
                const int64_t n = least(PL_BLOCK, a->W.cols - j);
                scaled_floats(d, rows + block_row(r, j), &f, i + r, j, n);
                if (n == PL_BLOCK) step_row(x, d, PL_BLOCK, a, &s);
                else step_row(x, d, n, a, &s);
            }
    }
}

static int is_plain(const pl_args_polar_step *a)
{
    return !a->post && (a->apply == POLAR_APPLY_DECOUPLED || a->apply == POLAR_APPLY_CONSTRAINED);
}

/* ---- a matrix ----------------------------------------------------------------------------------- */

static int64_t chain_of(const pl_cpu_item *item)
{
    return item->id == PL_OP_polar_map ? item->map.chain : item->step.chain;
}

size_t PL_ISA_NAME(pl_cpu_matrix_bytes)(const pl_cpu_item *item)
{
    const pl_mat *x = pl_cpu_item_matrix(item);
    pl_ns size;
    size_t bytes = PL_ISA_NAME(pl_ns_point)(&size, NULL, x->rows, x->cols, chain_of(item)),
           lines = (size_t)(x->rows > x->cols ? x->rows : x->cols) * sizeof(double),
           room = ((size_t)(x->rows * x->cols) * sizeof(float) + lines + 63) / 64 * 64;
    return bytes > PL_NS_CACHE ? 0 : bytes + (item->id == PL_OP_polar_step ? room : 0);
}

static pl_args_direction direction_args(const pl_args_polar_step *a, int64_t b, int64_t batch, pl_mat D)
{
    return (pl_args_direction){.D = D,
                               .M = pl_mat_at(a->M, b, batch),
                               .V = a->precondition ? pl_mat_at(a->V, b, batch) : (pl_mat){0},
                               .G = pl_mat_at(a->G, b, batch),
                               .live = a->live.batch == 1 ? a->live : pl_mat_at(a->live, b, batch),
                               .momentum = a->momentum,
                               .precondition = a->precondition};
}

static void own_norm(double norm[2], const pl_mat *X, int64_t b)
{
    pl_args_frob f = {.N = pl_mat_dense(norm, POLAR_DTYPE_F64, 1, 1, 2),
                      .X = pl_mat_at(*X, b, 1),
                      .weight = 1,
                      .trans = X->rows > X->cols};
    PL_ISA_NAME(pl_cpu_frob_one)(&f, 0);
}

/* The norm of a row while it is at hand; of a tall matrix, whose norm is its transpose's, when all is done.
 */
static void direction_and_norm(double norm[2], const pl_args_direction *a)
{
    int tall = a->D.rows > a->D.cols;
    pl_cpu_norm sum = {0};
    for (int64_t i = 0; i < a->D.rows; i++) {
        PL_ISA_NAME(pl_cpu_direction_row)(a, i);
        if (!tall) PL_ISA_NAME(pl_cpu_norm_row)(&sum, (const float *)a->D.data + i * a->D.rs, a->D.cols, i);
    }
    if (tall) own_norm(norm, &a->D, 0);
    else PL_ISA_NAME(pl_cpu_norm_end)(norm, &sum);
}

void PL_ISA_NAME(pl_cpu_matrix)(const pl_cpu_item *item, int64_t b, char *work)
{
    const pl_mat *x = pl_cpu_item_matrix(item);
    pl_ns w;
    double norm[2];
    size_t used = PL_ISA_NAME(pl_ns_point)(&w, work, x->rows, x->cols, chain_of(item));
    if (item->id == PL_OP_polar_map) {
        const pl_args_polar_map *a = &item->map;
        if (a->N.data)
            memcpy(norm, (const double *)a->N.data + (a->N.batch == 1 ? 0 : b * a->N.bs), sizeof norm);
        else own_norm(norm, x, b);
        pack(&w, x, b, norm, a->eps);
        pl_ns_begin(&w);
        PL_ISA_NAME(pl_ns_steps)(&w, a->coef, a->steps, a->chain);
        pl_ns_end(&w);
        unpack(&w, &a->Y, b);
    } else {
        const pl_args_polar_step *a = &item->step;
        if (pl_live_of(&a->live, b)[PL_LIVE_SKIP] != 0) return;
        pl_mat D = pl_mat_dense(work + used, POLAR_DTYPE_F32, 1, x->rows, x->cols);
        pl_args_direction d = direction_args(a, b, 1, D);
        direction_and_norm(norm, &d);
        pack(&w, &D, 0, norm, a->eps);
        pl_ns_begin(&w);
        PL_ISA_NAME(pl_ns_steps)(&w, a->coef, a->steps, a->chain);
        pl_ns_end(&w);
        /* the direction is in the blocks now: its room is free, and more than that is there */
        if (is_plain(a)) step(&w, a, b);
        else step_by_factors(&w, a, b, (double *)D.data);
    }
}

/* ---- matrices too large for the cache ----------------------------------------------------------- */

static pl_args_newton_schulz steps_args(pl_mat X, const double *coef, int64_t steps, int64_t chain)
{
    pl_args_newton_schulz n = {.X = X, .steps = steps, .chain = chain};
    memcpy(n.coef, coef, sizeof n.coef);
    return n;
}

static void large_map(pl_queue *q, const pl_args_polar_map *a)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat X = pl_scratch_mat(q, POLAR_DTYPE_BF16, a->X.batch, a->X.rows, a->X.cols), N = a->N;
    if (!N.data) N = pl_scratch_mat(q, POLAR_DTYPE_F64, a->X.batch, 1, 2);
    if (q->error == POLAR_OK) {
        pl_args_newton_schulz n = steps_args(X, a->coef, a->steps, a->chain);
        if (!a->N.data) PL_ISA_NAME(pl_cpu_frob)
        (q, &(pl_args_frob){.N = N, .X = a->X, .weight = 1, .trans = a->X.rows > a->X.cols});
        PL_ISA_NAME(pl_cpu_normalise)(q, &(pl_args_normalise){.Y = X, .X = a->X, .N = N, .eps = a->eps});
        PL_ISA_NAME(pl_cpu_newton_schulz)(q, &n);
        if (q->error == POLAR_OK) PL_ISA_NAME(pl_cpu_copy)(q, &(pl_args_copy){.Y = a->Y, .X = X});
    }
    pl_scratch_end(q, mark);
}

static void large_stages(pl_queue *q, const pl_args_polar_step *a, pl_mat D)
{
    const int columns = pl_post_columns(a->post, D.rows, D.cols), cautious = a->apply == POLAR_APPLY_CAUTIOUS;
    pl_mat F = pl_scratch_mat(q, POLAR_DTYPE_F64, D.batch, 1, D.rows > D.cols ? D.rows : D.cols),
           N = pl_scratch_mat(q, POLAR_DTYPE_F64, D.batch, 1, 4), none = {0};
    if (q->error != POLAR_OK) return;
    F = pl_mat_dense(F.data, POLAR_DTYPE_F64, D.batch, 1, columns ? D.cols : D.rows);
    if (a->post) {
        PL_ISA_NAME(pl_cpu_line_factors)
        (q, &(pl_args_line_factors){.F = F,
                                    .V = a->P,
                                    .X = D,
                                    .live = a->live,
                                    .trans = columns,
                                    .kind = a->post == POLAR_POST_LONG_MOMENT ? PL_LINE_CLAMPED
                                                                              : PL_LINE_MOMENT});
        PL_ISA_NAME(pl_cpu_scale_lines)
        (q, &(pl_args_scale_lines){.Y = D, .X = D, .R = columns ? none : F, .C = columns ? F : none});
    }
    if (a->apply == POLAR_APPLY_DECOUPLED || a->apply == POLAR_APPLY_CONSTRAINED) {
        PL_ISA_NAME(pl_cpu_decay_step)
        (q, &(pl_args_decay_step){.W = a->W, .D = D, .live = a->live, .scale = a->scale});
        return;
    }
    if (!cautious) PL_ISA_NAME(pl_cpu_inner)(q, &(pl_args_inner){.N = N, .X = a->W, .Y = D});
    PL_ISA_NAME(pl_cpu_apply_step)
    (q, &(pl_args_apply_step){.W = a->W,
                              .D = D,
                              .N = cautious ? none : N,
                              .live = a->live,
                              .scale = a->scale,
                              .apply = a->apply,
                              .strength = a->strength});
}

static void large_step(pl_queue *q, const pl_args_polar_step *a)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat D = pl_scratch_mat(q, POLAR_DTYPE_F32, a->W.batch, a->W.rows, a->W.cols);
    pl_args_polar_map map = {.Y = D, .X = D, .steps = a->steps, .chain = a->chain, .eps = a->eps};
    memcpy(map.coef, a->coef, sizeof map.coef);
    int skip = a->live.batch == 1 && pl_live_of(&a->live, 0)[PL_LIVE_SKIP] != 0;
    if (q->error == POLAR_OK && !skip) {
        pl_args_direction d = direction_args(a, 0, a->W.batch, D);
        PL_ISA_NAME(pl_cpu_direction)(q, &d);
        large_map(q, &map);
        if (q->error == POLAR_OK && !is_plain(a)) large_stages(q, a, D);
        else if (q->error == POLAR_OK) PL_ISA_NAME(pl_cpu_decay_step)
        (q, &(pl_args_decay_step){.W = a->W, .D = D, .live = a->live, .scale = a->scale});
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_large_matrix)(pl_queue *q, const pl_cpu_item *item)
{
    if (item->id == PL_OP_polar_map) large_map(q, &item->map);
    else large_step(q, &item->step);
}

static size_t item_scratch(const pl_cpu_item *item, int threads)
{
    const pl_mat *x = pl_cpu_item_matrix(item);
    size_t bytes = PL_ISA_NAME(pl_cpu_matrix_bytes)(item), elements = (size_t)(x->batch * x->rows * x->cols);
    if (bytes) return bytes * (size_t)threads;
    pl_args_newton_schulz n =
        steps_args(*x, item->id == PL_OP_polar_map ? item->map.coef : item->step.coef, 0, chain_of(item));
    return pl_scratch_bytes(elements * sizeof(pl_bf16)) +
           pl_scratch_bytes((size_t)x->batch * 2 * sizeof(double)) +
           pl_scratch_bytes(PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(&n, threads)) +
           (item->id == PL_OP_polar_step
                ? pl_scratch_bytes(elements * sizeof(float)) +
                      pl_scratch_bytes((size_t)(x->batch * (x->rows > x->cols ? x->rows : x->cols)) *
                                       sizeof(double)) +
                      pl_scratch_bytes((size_t)x->batch * 4 * sizeof(double))
                : 0);
}

size_t PL_ISA_NAME(pl_cpu_fused_scratch)(pl_op_id id, const void *args, int threads)
{
    if (id == PL_OP_newton_schulz) return PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(args, threads);
    if (id == PL_OP_polar_map)
        return item_scratch(&(pl_cpu_item){.id = id, .map = *(const pl_args_polar_map *)args}, threads);
    if (id == PL_OP_polar_step)
        return item_scratch(&(pl_cpu_item){.id = id, .step = *(const pl_args_polar_step *)args}, threads);
    return 0;
}

void PL_ISA_NAME(pl_cpu_polar_map)(pl_queue *q, const pl_args_polar_map *a)
{
    pl_cpu_do_item(q, &(pl_cpu_item){.run = PL_ISA_NAME(pl_cpu_do_items), .id = PL_OP_polar_map, .map = *a});
}

void PL_ISA_NAME(pl_cpu_polar_step)(pl_queue *q, const pl_args_polar_step *a)
{
    pl_cpu_do_item(q,
                   &(pl_cpu_item){.run = PL_ISA_NAME(pl_cpu_do_items), .id = PL_OP_polar_step, .step = *a});
}

#endif
