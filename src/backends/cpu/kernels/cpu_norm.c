/* cpu_norm.c -- Frobenius norms, with the oracle's bits: its scale (norm_elem.h), its order
 * (lane_sum_elem.h), double inside.
 *
 * Two passes over a matrix: the largest magnitude, then the sum of squares. Of f32 and bf16 one: double holds
 * their squares, and sums of them, without the scale, which is a power of two and may come last. The order
 * gives every 32nd row a lane of its own, so a large matrix is shared out by row lanes and a batch of small
 * ones by matrices; neither changes a bit.
 */
#include "cpu_convert.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"

#define SMALL (1 << 15) /* elements below which one thread does it all */
#define VECS  (PL_LANES * (int)sizeof(double) / PL_VEC_BYTES) /* vectors that hold the lanes */

/* The largest magnitude of n elements, as an integer of the same order; NaN does not count, as in fmax. */
PL_INLINE uint32_t largest_bits_32(const void *x, polar_dtype dtype, int64_t at, int64_t n)
{
    int32_t most = 0;
    for (int64_t j = 0; j < n; j++) {
        int32_t u;
        if (dtype == POLAR_DTYPE_BF16) u = (int32_t)(((const pl_bf16 *)x)[at + j] & 0x7fff) << 16;
        else {
            memcpy(&u, (const float *)x + at + j, sizeof u);
            u &= 0x7fffffff;
        }
        u = u > 0x7f800000 ? 0 : u;
        most = u > most ? u : most;
    }
    return (uint32_t)most;
}

PL_INLINE uint64_t largest_bits_64(const double *x, int64_t n)
{
    int64_t most = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t u;
        memcpy(&u, x + j, sizeof u);
        u &= INT64_MAX;
        u = u > 0x7ff0000000000000 ? 0 : u;
        most = u > most ? u : most;
    }
    return (uint64_t)most;
}

static double row_largest(const pl_mat *x, int64_t at)
{
    if (x->dtype == POLAR_DTYPE_F64) {
        uint64_t u = largest_bits_64((const double *)x->data + at, x->cols);
        double d;
        memcpy(&d, &u, sizeof d);
        return d;
    }
    if (x->dtype == POLAR_DTYPE_F16) {
        pl_f16 most = 0;
        for (int64_t j = 0; j < x->cols; j++) {
            pl_f16 u = ((const pl_f16 *)x->data)[at + j] & 0x7fff;
            if (u <= 0x7c00 && u > most) most = u;
        }
        return (double)pl_f16_to_f32(most);
    }
    int f32 = x->dtype == POLAR_DTYPE_F32;
    uint32_t u = f32 ? largest_bits_32(x->data, POLAR_DTYPE_F32, at, x->cols)
                     : largest_bits_32(x->data, POLAR_DTYPE_BF16, at, x->cols);
    float f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

/* 32 elements, scaled and perhaps rounded, squared onto their lanes. */
PL_INLINE void add_squares(pl_vec_f64 lane[VECS], const double x[PL_LANES], double s, int rounded)
{
    _Alignas(64) double y[PL_LANES];
    for (int l = 0; l < PL_LANES; l++) y[l] = x[l] * s;
    if (rounded)
        for (int l = 0; l < PL_LANES; l++) y[l] = pl_bf16_round_f64(y[l]);
#pragma GCC unroll 16
    for (int v = 0; v < VECS; v++) {
        pl_vec_f64 t = *(const pl_vec_f64 *)(y + v * (PL_LANES / VECS));
        lane[v] += t * t;
    }
}

PL_INLINE double row_sum_of(const void *x, polar_dtype dtype, int64_t at, int64_t n, double s, int rounded)
{
    _Alignas(64) double buf[PL_LANES];
    pl_vec_f64 lane[VECS] = {0};
    int64_t j = 0;
    for (; j + PL_LANES <= n; j += PL_LANES) {
        pl_row_load_f64(buf, x, dtype, at + j, PL_LANES);
        add_squares(lane, buf, s, rounded);
    }
    if (j < n) {
        memset(buf, 0, sizeof buf); /* a zero added to a lane changes nothing */
        pl_row_load_f64(buf, x, dtype, at + j, n - j);
        add_squares(lane, buf, s, rounded);
    }
    memcpy(buf, lane, sizeof buf);
    return pl_lanes_fold(buf);
}

static double row_sum(const pl_mat *x, int64_t at, double s, int rounded)
{
    switch (x->dtype) {
    case POLAR_DTYPE_F64: return row_sum_of(x->data, POLAR_DTYPE_F64, at, x->cols, s, rounded);
    case POLAR_DTYPE_F32: return row_sum_of(x->data, POLAR_DTYPE_F32, at, x->cols, s, rounded);
    case POLAR_DTYPE_F16: return row_sum_of(x->data, POLAR_DTYPE_F16, at, x->cols, s, rounded);
    default: return row_sum_of(x->data, POLAR_DTYPE_BF16, at, x->cols, s, rounded);
    }
}

/* ---- f32 and bf16 in one pass ------------------------------------------------------------------- */

#define TOPS (PL_LANES * (int)sizeof(float) / PL_VEC_BYTES) /* vectors that hold 32 floats */

typedef int32_t vec_i32 __attribute__((vector_size(PL_VEC_BYTES)));
typedef float half_vec __attribute__((vector_size(PL_VEC_BYTES / 2)));

/* The squares of 32 elements onto their lanes. */
PL_INLINE void lanes_add(pl_vec_f64 lane[VECS], const float *x)
{
#pragma GCC unroll 16
    for (int v = 0; v < VECS; v++) {
        half_vec h;
        memcpy(&h, x + v * (PL_LANES / VECS), sizeof h);
        pl_vec_f64 d = __builtin_convertvector(h, pl_vec_f64);
        lane[v] = pl_vec_fma_f64(d, d, lane[v]); /* the square is exact: with or without fma */
    }
}

PL_INLINE vec_i32 larger(vec_i32 a, vec_i32 b)
{
#if defined(__AVX512F__)
    return (vec_i32)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vec_i32)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    vec_i32 more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* Their largest magnitudes, as integers of the same order; NaN is the largest. */
PL_INLINE void tops_add(vec_i32 top[TOPS], const float *x)
{
#pragma GCC unroll 16
    for (int v = 0; v < TOPS; v++) {
        vec_i32 u;
        memcpy(&u, x + v * (PL_LANES / TOPS), sizeof u);
        top[v] = larger(u & 0x7fffffff, top[v]);
    }
}

static uint32_t tops_most(const vec_i32 tops[TOPS])
{
    int32_t top[PL_LANES], most = 0;
    memcpy(top, tops, sizeof top);
    for (int l = 0; l < PL_LANES; l++) most = top[l] > most ? top[l] : most;
    return (uint32_t)most;
}

static void amax_add(pl_cpu_norm *s, uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    s->amax = fmax(s->amax, (double)f);
}

/* 32 elements as floats, the first n of a row, zero beyond: a zero added to a lane changes nothing. */
PL_INLINE const float *floats(float room[PL_LANES], const void *x, polar_dtype dtype, int64_t at, int64_t n)
{
    if (dtype == POLAR_DTYPE_F32 && n >= PL_LANES) return (const float *)x + at;
    memset(room, 0, PL_LANES * sizeof *room);
    pl_row_load_f32(room, x, dtype, at, n < PL_LANES ? n : PL_LANES);
    return room;
}

/* Row i, which begins at `at`. */
PL_INLINE void plain_row(pl_cpu_norm *s, const void *x, polar_dtype dtype, int64_t at, int64_t n, int64_t i)
{
    pl_vec_f64 lane[VECS] = {0};
    vec_i32 top[TOPS] = {0};
    double sums[PL_LANES];
    float room[PL_LANES];
    for (int64_t j = 0; j < n; j += PL_LANES) {
        const float *p = floats(room, x, dtype, at + j, n - j);
        lanes_add(lane, p);
        tops_add(top, p);
    }
    memcpy(sums, lane, sizeof sums);
    s->rows[i % PL_LANES] += pl_lanes_fold(sums);
    uint32_t most = tops_most(top);
    /* NaN does not count, as in fmax */
    amax_add(s, most <= 0x7f800000 ? most : largest_bits_32(x, dtype, at, n));
}

static void fold_columns(double sums[PL_LANES], double lane[PL_LANES][PL_LANES])
{
    for (int half = PL_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            for (int c = 0; c < PL_LANES; c++) lane[l][c] += lane[l + half][c];
    memcpy(sums, lane[0], sizeof lane[0]);
}

/* 32 columns from `first`, as rows of the transpose: every 32nd row has a lane of its own. */
PL_INLINE void plain_columns(pl_cpu_norm *s, const pl_mat *x, polar_dtype dtype, int64_t b, int64_t first)
{
    pl_vec_f64 lane[PL_LANES][VECS] = {{{0}}};
    vec_i32 top[TOPS] = {0};
    double lanes[PL_LANES][PL_LANES], sums[PL_LANES];
    float room[PL_LANES];
    for (int64_t j = 0; j < x->rows; j++) {
        const float *p = floats(room, x->data, dtype, b * x->bs + j * x->rs + first, x->cols - first);
        lanes_add(lane[j % PL_LANES], p);
        tops_add(top, p);
    }
    memcpy(lanes, lane, sizeof lanes);
    fold_columns(sums, lanes);
    int64_t cols = x->cols - first < PL_LANES ? x->cols - first : PL_LANES;
    for (int64_t c = 0; c < cols; c++) s->rows[c] += sums[c];
    uint32_t most = tops_most(top);
    if (most <= 0x7f800000) amax_add(s, most);
    else
        for (int64_t j = 0; j < x->rows; j++)
            amax_add(s, largest_bits_32(x->data, dtype, b * x->bs + j * x->rs + first, cols));
}

static void norm_end(double out[2], const pl_cpu_norm *s, double weight)
{
    double rows[PL_LANES], scale = pl_norm_scale(s->amax, PL_SCALE_EXP_F32);
    memcpy(rows, s->rows, sizeof rows);
    out[0] = scale;
    out[1] = sqrt(weight * (pl_lanes_fold(rows) * scale * scale));
}

void PL_ISA_NAME(pl_cpu_norm_row)(pl_cpu_norm *s, const float *x, int64_t n, int64_t i)
{
    plain_row(s, x, POLAR_DTYPE_F32, 0, n, i);
}

void PL_ISA_NAME(pl_cpu_norm_end)(double out[2], const pl_cpu_norm *s)
{
    norm_end(out, s, 1);
}

/* N[b] on this thread. */
static void plain_one(const pl_args_frob *a, int64_t b)
{
    const pl_mat *x = &a->X;
    pl_cpu_norm s = {0};
    for (int64_t first = 0; a->trans && first < x->cols; first += PL_LANES) {
        if (x->dtype == POLAR_DTYPE_F32) plain_columns(&s, x, POLAR_DTYPE_F32, b, first);
        else plain_columns(&s, x, POLAR_DTYPE_BF16, b, first);
    }
    for (int64_t i = 0; !a->trans && i < x->rows; i++) {
        if (x->dtype == POLAR_DTYPE_F32)
            plain_row(&s, x->data, POLAR_DTYPE_F32, b * x->bs + i * x->rs, x->cols, i);
        else plain_row(&s, x->data, POLAR_DTYPE_BF16, b * x->bs + i * x->rs, x->cols, i);
    }
    norm_end((double *)a->N.data + b * a->N.bs, &s, a->weight);
}

static int is_plain(const pl_args_frob *a)
{
    return (a->X.dtype == POLAR_DTYPE_F32 || a->X.dtype == POLAR_DTYPE_BF16) && !a->rounded;
}

/* ---- everything else ---------------------------------------------------------------------------- */

#define CHUNK PL_LANES /* columns of a transposed sum taken together: as many as add_squares takes */

/* sums[c] = the sum over column `first + c` of matrix b, in the order of a row of the transpose: a lane for
 * every 32nd row, folded by halves. */
PL_INLINE void column_sums_of(double sums[CHUNK], const pl_mat *x, polar_dtype dtype, int64_t b,
                              int64_t first, int64_t cols, double s, int rounded)
{
    _Alignas(64) double lane[PL_LANES][CHUNK], y[CHUNK] = {0};
    for (int l = 0; l < PL_LANES; l++) {
        pl_vec_f64 sum[VECS] = {0};
        for (int64_t j = l; j < x->rows; j += PL_LANES) {
            int64_t at = b * x->bs + j * x->rs + first;
            if (cols == CHUNK) pl_row_load_f64(y, x->data, dtype, at, CHUNK);
            else pl_row_load_f64(y, x->data, dtype, at, cols);
            add_squares(sum, y, s, rounded);
        }
        memcpy(lane[l], sum, sizeof sum);
    }
    fold_columns(sums, lane);
}

static void column_sums(double sums[CHUNK], const pl_mat *x, int64_t b, int64_t first, double s, int rounded)
{
    int64_t cols = x->cols - first < CHUNK ? x->cols - first : CHUNK;
    switch (x->dtype) {
    case POLAR_DTYPE_F64: column_sums_of(sums, x, POLAR_DTYPE_F64, b, first, cols, s, rounded); break;
    case POLAR_DTYPE_F32: column_sums_of(sums, x, POLAR_DTYPE_F32, b, first, cols, s, rounded); break;
    case POLAR_DTYPE_F16: column_sums_of(sums, x, POLAR_DTYPE_F16, b, first, cols, s, rounded); break;
    default: column_sums_of(sums, x, POLAR_DTYPE_BF16, b, first, cols, s, rounded); break;
    }
}

#define CHUNKS 256 /* whose sums wait to be joined in order: 64 KB */

/* A matrix in the making: its norm by lanes. */
typedef struct {
    const pl_args_frob *a;
    int64_t b;
    double most[PL_LANES], rows[PL_LANES];
    double s;
    int64_t first; /* of a transpose: the first column of those in sums */
    double (*sums)[CHUNK];
} norm_of;

static void largest_lane(void *arg, int me, int64_t r)
{
    norm_of *o = arg;
    const pl_mat *x = &o->a->X;
    double most = 0;
    (void)me;
    for (int64_t i = r; i < x->rows; i += PL_LANES)
        most = fmax(most, row_largest(x, o->b * x->bs + i * x->rs));
    o->most[r] = most;
}

static void sum_lane(void *arg, int me, int64_t r)
{
    norm_of *o = arg;
    const pl_mat *x = &o->a->X;
    double sum = 0;
    (void)me;
    for (int64_t i = r; i < x->rows; i += PL_LANES)
        sum += row_sum(x, o->b * x->bs + i * x->rs, o->s, o->a->rounded != 0);
    o->rows[r] = sum;
}

static void sum_chunk(void *arg, int me, int64_t k)
{
    const norm_of *o = arg;
    (void)me;
    column_sums(o->sums[k], &o->a->X, o->b, o->first + k * CHUNK, o->s, o->a->rounded != 0);
}

/* Of a transpose: chunks of columns, whose sums join the lanes in order. */
static void sum_columns(norm_of *o, pl_pool *pool, int threads)
{
    double sums[CHUNKS][CHUNK];
    int64_t cols = o->a->X.cols;
    o->sums = sums;
    memset(o->rows, 0, sizeof o->rows);
    for (o->first = 0; o->first < cols; o->first += CHUNKS * CHUNK) {
        int64_t here = cols - o->first < CHUNKS * CHUNK ? cols - o->first : CHUNKS * CHUNK;
        pl_pool_items(pool, threads, (here + CHUNK - 1) / CHUNK, 1, sum_chunk, o);
        for (int64_t c = 0; c < here; c++) o->rows[(o->first + c) % PL_LANES] += sums[c / CHUNK][c % CHUNK];
    }
}

/* N[b], the 32 row lanes on up to `threads` threads. */
static void frob_one(const pl_args_frob *a, int64_t b, pl_pool *pool, int threads)
{
    norm_of o;
    int limit = a->X.dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    double amax = 0;
    o.a = a;
    o.b = b;
    pl_pool_items(pool, threads, PL_LANES, 1, largest_lane, &o);
    for (int r = 0; r < PL_LANES; r++) amax = fmax(amax, o.most[r]);
    o.s = pl_norm_scale(amax, limit);
    if (a->trans) sum_columns(&o, pool, threads);
    else pl_pool_items(pool, threads, PL_LANES, 1, sum_lane, &o);
    double *out = (double *)a->N.data + b * a->N.bs;
    out[0] = o.s;
    out[1] = sqrt(a->weight * pl_lanes_fold(o.rows));
}

void PL_ISA_NAME(pl_cpu_frob_one)(const pl_args_frob *a, int64_t b)
{
    if (is_plain(a)) plain_one(a, b);
    else frob_one(a, b, NULL, 1);
}

static void norm_item(void *arg, int me, int64_t b)
{
    (void)me;
    PL_ISA_NAME(pl_cpu_frob_one)(*(const pl_args_frob **)arg, b);
}

void PL_ISA_NAME(pl_cpu_frob)(pl_queue *q, const pl_args_frob *a)
{
    int64_t each = a->X.rows * a->X.cols;
    int threads = q->dev->threads;
    if (a->X.batch < threads && each > SMALL) {
        for (int64_t b = 0; b < a->X.batch; b++)
            frob_one(a, b, q->dev->pool, threads < PL_LANES ? threads : PL_LANES);
        return;
    }
    pl_pool_items(q->dev->pool, a->X.batch * each > SMALL ? threads : 1, a->X.batch, 0, norm_item, &a);
}
