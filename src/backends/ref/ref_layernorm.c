/* ref_layernorm.c -- rows normalised, and the gradients. */
#include "math/lane_sum_elem.h"
#include "ref_loops.h"

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

/* h = dy g:  dx = r (h - mean h - x^ mean(h x^)) + z,  dl = s dx or dx */
void pl_ref_layernorm_back(pl_queue *q, const pl_args_layernorm_back *a)
{
    (void)q;
    int64_t n = a->X.cols, each = a->s.data ? a->X.rows / a->s.rows : 1;
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
                if (!a->dL.data) continue;
                double dx = pl_get(&a->dX, b, i, j);
                pl_put(&a->dL, b, i, j, a->s.data ? pl_get(&a->s, b, i / each, 0) * dx : dx);
            }
        }
}
