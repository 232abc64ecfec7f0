/* point_cloud.h -- the SO(3) testbed's data: Gaussian clouds, their targets, and what a predictor without
 * learning reaches.
 *
 * A cloud is N points x_i ~ N(0, I_3), or stretched: B x_i with one B = I + a S per cloud, S symmetric
 * Gaussian, so that no direction is preferred; its target is the largest eigenvalue of A = X^T X / N, of the
 * coordinates as the model sees them (rounded to the run's format), in double. Every cloud is a function of
 * (seed, split, its number): counts, threads and neighbours do not change it.
 *
 *     pl_clouds train;
 *     PL_TRY(pl_clouds_create(&train, seed, PL_SPLIT_TRAIN, 256, 64, POLAR_DTYPE_F32));
 *     // a permutation per epoch (epoch_order.h)
 *     pl_epoch_order(order, 256, seed, epoch);
 *     for (...) memcpy(batch, pl_clouds_view(&train, order[i]), pl_clouds_bytes(&train));
 *     pl_clouds_destroy(&train);
 */
#ifndef PL_DATA_POINT_CLOUD_H
#define PL_DATA_POINT_CLOUD_H

#include "base/status.h"
#include "polar/tensor.h"

typedef enum pl_split {
    PL_SPLIT_TRAIN,
    PL_SPLIT_VALID,
    PL_SPLIT_TEST,
    PL_SPLITS
} pl_split; /* part of the draws' coordinates: a number once given stays */

typedef struct pl_clouds {
    int64_t count, points;
    polar_dtype dtype; /* F32 or F64 */
    void *x;           /* (count, points, 3) */
    double *target;    /* (count) */
} pl_clouds;

/* Test error of least squares fitted on the training clouds: features 1, tr A; and 1, tr A, ||A - tr A / 3
 * I||_F. */
typedef struct pl_cloud_baseline {
    double trace_mse, trace_anisotropy_mse;
} pl_cloud_baseline;

/* draws all of them */
polar_status pl_clouds_create(pl_clouds *out, uint64_t seed, pl_split split, int64_t count, int64_t points,
                              polar_dtype dtype);
/* the same points, each cloud stretched by I + anisotropy S: S_kk ~ N(0, 1), S_kl ~ N(0, 1/2) */
polar_status pl_clouds_create_stretched(pl_clouds *out, uint64_t seed, pl_split split, int64_t count,
                                        int64_t points, polar_dtype dtype, double anisotropy);
/* safe on a zeroed one */
void pl_clouds_destroy(pl_clouds *c);
/* the 3 N coordinates of cloud i; borrowed */
const void *pl_clouds_view(const pl_clouds *c, int64_t i);
/* of one cloud's coordinates */
size_t pl_clouds_bytes(const pl_clouds *c);
/* A = X^T X / N of cloud i: a00, a01, a02, a11, a12, a22 */
void pl_cloud_moment(double a[6], const pl_clouds *c, int64_t i);
/* the predictors without learning */
polar_status pl_cloud_baseline_measure(pl_cloud_baseline *out, const pl_clouds *train, const pl_clouds *test);

#endif
