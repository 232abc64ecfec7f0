/* cpu_norm.c -- Frobenius norms, with the oracle's bits: its scale (norm_elem.h), its order (lane_sum_elem.h), double inside.
 *
 * Two passes over a matrix: the largest magnitude, then the sum of squares. The order gives every 32nd row a lane of its own, so
 * a large matrix is shared out by row lanes and a batch of small ones by matrices; neither changes a bit.
 */
#include <omp.h>

#include "cpu_rows.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"

#define SMALL (1 << 15)                                      /* elements below which one thread does it all */
#define VECS  (PL_LANES * (int)sizeof(double) / PL_VEC_BYTES)    /* vectors that hold the lanes */

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
    int f32 = x->dtype == POLAR_DTYPE_F32;
    uint32_t u = f32 ? largest_bits_32(x->data, POLAR_DTYPE_F32, at, x->cols) : largest_bits_32(x->data, POLAR_DTYPE_BF16, at, x->cols);
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
        memset(buf, 0, sizeof buf);    /* a zero added to a lane changes nothing */
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
    default: return row_sum_of(x->data, POLAR_DTYPE_BF16, at, x->cols, s, rounded);
    }
}

#define CHUNK PL_LANES    /* columns of a transposed sum taken together: as many as add_squares takes */

/* sums[c] = the sum over column `first + c` of matrix b, in the order of a row of the transpose: a lane for every 32nd row, folded by halves. */
PL_INLINE void column_sums_of(double sums[CHUNK], const pl_mat *x, polar_dtype dtype, int64_t b, int64_t first, int64_t cols, double s, int rounded)
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
    for (int half = PL_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            for (int c = 0; c < CHUNK; c++) lane[l][c] += lane[l + half][c];
    memcpy(sums, lane[0], sizeof lane[0]);
}

static void column_sums(double sums[CHUNK], const pl_mat *x, int64_t b, int64_t first, double s, int rounded)
{
    int64_t cols = x->cols - first < CHUNK ? x->cols - first : CHUNK;
    switch (x->dtype) {
    case POLAR_DTYPE_F64: column_sums_of(sums, x, POLAR_DTYPE_F64, b, first, cols, s, rounded); break;
    case POLAR_DTYPE_F32: column_sums_of(sums, x, POLAR_DTYPE_F32, b, first, cols, s, rounded); break;
    default: column_sums_of(sums, x, POLAR_DTYPE_BF16, b, first, cols, s, rounded); break;
    }
}

/* N[b], the 32 row lanes on up to `threads` threads; of a transpose, chunks of columns, whose sums join in order. */
static void frob_one(const pl_args_frob *a, int64_t b, int threads)
{
    const pl_mat *x = &a->X;
    int limit = x->dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    double most[PL_LANES] = {0}, rows[PL_LANES] = {0}, amax = 0, s = 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int r = 0; r < PL_LANES; r++)
            for (int64_t i = r; i < x->rows; i += PL_LANES) most[r] = fmax(most[r], row_largest(x, b * x->bs + i * x->rs));
#pragma omp single
        {
            for (int r = 0; r < PL_LANES; r++) amax = fmax(amax, most[r]);
            s = pl_norm_scale(amax, limit);
        }
        if (a->trans) {
#pragma omp for schedule(static, 1) ordered
            for (int64_t first = 0; first < x->cols; first += CHUNK) {
                double sums[CHUNK];
                column_sums(sums, x, b, first, s, a->rounded != 0);
#pragma omp ordered
                for (int c = 0; c < CHUNK && first + c < x->cols; c++) rows[(first + c) % PL_LANES] += sums[c];
            }
        } else
#pragma omp for schedule(static)
        for (int r = 0; r < PL_LANES; r++)
            for (int64_t i = r; i < x->rows; i += PL_LANES) rows[r] += row_sum(x, b * x->bs + i * x->rs, s, a->rounded != 0);
    }
    double *out = (double *)a->N.data + b * a->N.bs;
    out[0] = s;
    out[1] = sqrt(a->weight * pl_lanes_fold(rows));
}

void PL_ISA_NAME(pl_cpu_frob)(pl_queue *q, const pl_args_frob *a)
{
    int64_t each = a->X.rows * a->X.cols;
    int threads = q->dev->threads;
    if (a->X.batch < threads && each > SMALL) {
        for (int64_t b = 0; b < a->X.batch; b++) frob_one(a, b, threads < PL_LANES ? threads : PL_LANES);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (a->X.batch * each > SMALL)
    for (int64_t b = 0; b < a->X.batch; b++) frob_one(a, b, 1);
}
