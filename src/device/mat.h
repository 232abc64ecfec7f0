/* mat.h -- pl_mat, the operand of every op: a batch of row-major matrices in device memory.
 *
 * A value, borrowed: {pointer, dtype, batch, rows, cols, batch stride, row stride}, strides in elements, the
 * columns contiguous. A batch stride of 0 repeats one matrix. No padding bytes anywhere, so that recorded
 * calls can be compared byte by byte.
 */
#ifndef PL_DEVICE_MAT_H
#define PL_DEVICE_MAT_H

#include "polar/device.h"

#ifdef __cplusplus /* kernels are compiled as C++ */
#define PL_STATIC_ASSERT static_assert
#else
#define PL_STATIC_ASSERT _Static_assert
#endif

typedef polar_device pl_device;
typedef polar_queue pl_queue;

typedef struct pl_mat {
    void *data;
    polar_dtype dtype;
    int32_t unused;
    int64_t batch, rows, cols;
    int64_t bs, rs;
} pl_mat;

PL_STATIC_ASSERT(sizeof(pl_mat) == 56, "pl_mat must have no padding");
PL_STATIC_ASSERT(sizeof(polar_dtype) == 4, "pl_mat counts on a 4-byte enum");

/* packed, row-major */
pl_mat pl_mat_dense(void *data, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols);
pl_mat pl_mat_at(pl_mat m, int64_t first, int64_t batch); /* the sub-batch [first, first + batch) */
size_t pl_mat_bytes(const pl_mat *m);                     /* bytes of a packed copy */
/* bytes from data to the end of the last element */
size_t pl_mat_extent(const pl_mat *m);
int pl_mat_same_shape(const pl_mat *a, const pl_mat *b); /* batch, rows and cols equal */
int pl_mat_overlap(const pl_mat *a, const pl_mat *b);    /* the byte ranges meet */
/* 2-D or 3-D, last dimension contiguous */
polar_status pl_mat_from_tensor(pl_mat *out, const polar_tensor *t);

/* packed, in new device memory */
polar_status pl_mat_alloc(pl_mat *out, pl_device *dev, polar_dtype dtype, int64_t batch, int64_t rows,
                          int64_t cols);
void pl_mat_free(pl_mat *m, pl_device *dev); /* of pl_mat_alloc; safe on a zeroed pl_mat */
/* packed doubles, rounded to m's dtype; m packed too */
polar_status pl_mat_upload_f64(pl_queue *q, const pl_mat *m, const double *src);
polar_status pl_mat_download_f64(pl_queue *q, const pl_mat *m, double *dst); /* synchronises */

/* host memory: element i as a double */
double pl_load_f64(const void *data, polar_dtype dtype, int64_t i);
/* host memory: one rounding */
void pl_store_f64(void *data, polar_dtype dtype, int64_t i, double x);

static inline void pl_mat_swap(pl_mat *a, pl_mat *b)
{
    pl_mat t = *a;
    *a = *b;
    *b = t;
}

#endif
