/* ref_vit.c -- the transformer's ops: normalised rows, softmax, cross entropy, rows scaled by group, patches
 * of a picture. In double. */
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"
#include "ref_ops.h"

#define FOR_EACH(m)                            \
    for (int64_t b = 0; b < (m).batch; b++)    \
        for (int64_t i = 0; i < (m).rows; i++) \
            for (int64_t j = 0; j < (m).cols; j++)

/* Row of values m: one for all matrices, or one each. */
static double value(const pl_mat *m, int64_t b, int64_t j)
{
    return pl_get(m, m->batch == 1 ? 0 : b, 0, j);
}

/* mean = sum x / n, r = 1 / sqrt(sum (x - mean)^2 / n + eps), y = (x - mean) r g + b */
void pl_ref_layernorm(pl_queue *q, const pl_args_layernorm *a)
{
    (void)q;
    int64_t n = a->X.cols;
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t i = 0; i < a->X.rows; i++) {
            double sum[PL_LANES] = {0}, square[PL_LANES] = {0};
            for (int64_t j = 0; j < n; j++) sum[j % PL_LANES] += pl_get(&a->X, b, i, j);
            double mean = pl_lanes_fold(sum) / (double)n;
            for (int64_t j = 0; j < n; j++) {
                double d = pl_get(&a->X, b, i, j) - mean;
                square[j % PL_LANES] += d * d;
            }
            double r = 1 / sqrt(pl_lanes_fold(square) / (double)n + a->eps);
            for (int64_t j = 0; j < n; j++)
                pl_put(&a->Y, b, i, j,
                       fma((pl_get(&a->X, b, i, j) - mean) * r, value(&a->g, b, j), value(&a->b, b, j)));
            pl_put(&a->S, b, i, 0, mean);
            pl_put(&a->S, b, i, 1, r);
        }
}

/* x^ = (x - mean) r:  db = sum dy,  dg = sum dy x^  over the rows, in row_sum's order */
static void layernorm_sums(const pl_args_layernorm_back *a)
{
    int64_t rows = a->X.rows;
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t j = 0; j < a->X.cols; j++) {
            double lane_g[PL_LANES] = {0}, lane_b[PL_LANES] = {0};
            for (int64_t first = 0; first < rows; first += PL_SUM_CHUNK) {
                double dg = 0, db = 0;
                for (int64_t i = first; i < rows && i < first + PL_SUM_CHUNK; i++) {
                    double dy = pl_get(&a->dY, b, i, j),
                           x = (pl_get(&a->X, b, i, j) - pl_get(&a->S, b, i, 0)) * pl_get(&a->S, b, i, 1);
                    dg = fma(dy, x, dg);
                    db += dy;
                }
                lane_g[first / PL_SUM_CHUNK % PL_LANES] += dg;
                lane_b[first / PL_SUM_CHUNK % PL_LANES] += db;
            }
            pl_put(&a->dg, b, 0, j, pl_lanes_fold(lane_g));
            pl_put(&a->db, b, 0, j, pl_lanes_fold(lane_b));
        }
}

/* h = dy g:  dx = r (h - mean h - x^ mean(h x^)) + z */
void pl_ref_layernorm_back(pl_queue *q, const pl_args_layernorm_back *a)
{
    (void)q;
    int64_t n = a->X.cols;
    layernorm_sums(a); /* first: dX may stand where dY stands */
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t i = 0; i < a->X.rows; i++) {
            double lane[PL_LANES] = {0}, along[PL_LANES] = {0}, mean = pl_get(&a->S, b, i, 0),
                   r = pl_get(&a->S, b, i, 1);
            for (int64_t j = 0; j < n; j++) {
                double h = pl_get(&a->dY, b, i, j) * value(&a->g, b, j);
                lane[j % PL_LANES] += h;
                along[j % PL_LANES] = fma(h, (pl_get(&a->X, b, i, j) - mean) * r, along[j % PL_LANES]);
            }
            double m = pl_lanes_fold(lane) / (double)n, c = pl_lanes_fold(along) / (double)n;
            for (int64_t j = 0; j < n; j++) {
                double h = pl_get(&a->dY, b, i, j) * value(&a->g, b, j),
                       x = (pl_get(&a->X, b, i, j) - mean) * r;
                pl_put(&a->dX, b, i, j, fma(r, fma(-x, c, h - m), a->Z.data ? pl_get(&a->Z, b, i, j) : 0));
                if (a->dL.data) pl_put(&a->dL, b, i, j, pl_get(&a->dX, b, i, j));
            }
        }
}

static double row_max(const pl_mat *X, int64_t b, int64_t i)
{
    double m = -INFINITY;
    for (int64_t j = 0; j < X->cols; j++) m = pl_get(X, b, i, j) > m ? pl_get(X, b, i, j) : m;
    return m;
}

/* y = e^(scale (x - max)) / sum */
void pl_ref_softmax(pl_queue *q, const pl_args_softmax *a)
{
    (void)q;
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t i = 0; i < a->X.rows; i++) {
            double lane[PL_LANES] = {0}, m = row_max(&a->X, b, i);
            for (int64_t j = 0; j < a->X.cols; j++)
                lane[j % PL_LANES] += pl_exp_f64(a->scale * (pl_get(&a->X, b, i, j) - m));
            double part = 1 / pl_lanes_fold(lane);
            for (int64_t j = 0; j < a->X.cols; j++)
                pl_put(&a->Y, b, i, j, pl_exp_f64(a->scale * (pl_get(&a->X, b, i, j) - m)) * part);
        }
}

/* dx = scale y (dy - sum dy y) */
void pl_ref_softmax_back(pl_queue *q, const pl_args_softmax_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++) {
            double lane[PL_LANES] = {0};
            for (int64_t j = 0; j < a->Y.cols; j++)
                lane[j % PL_LANES] = fma(pl_get(&a->dY, b, i, j), pl_get(&a->Y, b, i, j), lane[j % PL_LANES]);
            double s = pl_lanes_fold(lane);
            for (int64_t j = 0; j < a->Y.cols; j++)
                pl_put(&a->dX, b, i, j, a->scale * pl_get(&a->Y, b, i, j) * (pl_get(&a->dY, b, i, j) - s));
        }
}

/* With d = z - max and s = sum e^d:  L = mean over the rows of sum_j t_j (log s - d_j),  dz_j = (sum t
 * e^(d_j) / s - t_j) / rows */
void pl_ref_cross_entropy(pl_queue *q, const pl_args_cross_entropy *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Z.batch; b++) {
        double total[PL_LANES] = {0}, rows = (double)a->Z.rows;
        for (int64_t i = 0; i < a->Z.rows; i++) {
            double lane[PL_LANES] = {0}, weight[PL_LANES] = {0}, loss[PL_LANES] = {0},
                   m = row_max(&a->Z, b, i);
            for (int64_t j = 0; j < a->Z.cols; j++) {
                lane[j % PL_LANES] += pl_exp_f64(pl_get(&a->Z, b, i, j) - m);
                weight[j % PL_LANES] += pl_get(&a->T, b, i, j);
            }
            double s = pl_lanes_fold(lane), t = pl_lanes_fold(weight), log_s = pl_log_f64(s);
            for (int64_t j = 0; j < a->Z.cols; j++) {
                double d = pl_get(&a->Z, b, i, j) - m, target = pl_get(&a->T, b, i, j);
                loss[j % PL_LANES] = fma(target, log_s - d, loss[j % PL_LANES]);
                if (a->dZ.data) pl_put(&a->dZ, b, i, j, fma(pl_exp_f64(d), t / s, -target) / rows);
            }
            total[i % PL_LANES] += pl_lanes_fold(loss);
        }
        pl_put(&a->L, b, 0, 0, pl_lanes_fold(total) / rows);
    }
}

/* y = z + s x */
void pl_ref_scale_rows(pl_queue *q, const pl_args_scale_rows *a)
{
    (void)q;
    int64_t n = a->s.rows ? a->Y.rows / a->s.rows : 1;
    FOR_EACH(a->Y)
    {
        double s = pl_get(&a->s, b, i / n, 0), x = pl_get(&a->X, b, i, j);
        pl_put(&a->Y, b, i, j, a->Z.data ? fma(s, x, pl_get(&a->Z, b, i, j)) : s * x);
    }
}

/* Token (row, column of patches), column (channel, row, column inside the patch). */
void pl_ref_patches(pl_queue *q, const pl_args_patches *a)
{
    (void)q;
    int64_t p = a->patch, across = a->width / p;
    FOR_EACH(a->Y)
    {
        int64_t channel = j / (p * p), y = i / across * p + j / p % p, x = i % across * p + j % p;
        pl_put(&a->Y, b, i, j, pl_get(&a->X, b, channel * a->height + y, x));
    }
}
