/* tensor.h -- a borrowed array with a shape: what callers hand to the library.
 *
 * A polar_tensor owns nothing and copying it copies no data. Strides are in elements; the last
 * dimension must be contiguous wherever a matrix is meant.
 *
 *     polar_tensor w = polar_tensor_2d(ptr, POLAR_DTYPE_F32, 192, 768);
 */
#ifndef POLAR_TENSOR_H
#define POLAR_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "polar/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum polar_dtype {
    POLAR_DTYPE_F64 = 0,
    POLAR_DTYPE_F32 = 1,
    POLAR_DTYPE_BF16 = 2,
    /* Newton-Schulz iterates and the matrices of polar_map_apply only */
    POLAR_DTYPE_F16 = 3,
    POLAR_DTYPE_COUNT = 4 /* grows with new formats */
} polar_dtype;

#define POLAR_MAX_DIMS 8

typedef struct polar_tensor {
    void *data; /* in the memory of the device that will work on it */
    polar_dtype dtype;
    int ndim;
    int64_t shape[POLAR_MAX_DIMS];
    int64_t stride[POLAR_MAX_DIMS]; /* in elements */
} polar_tensor;

/* bytes per element, 0 for an unknown one */
POLAR_API size_t polar_dtype_size(polar_dtype dtype);
/* "f64", "f32", "bf16", "f16" */
POLAR_API const char *polar_dtype_name(polar_dtype dtype);
/* the reverse; also "fp64", "float32", ... */
POLAR_API polar_status polar_dtype_parse(polar_dtype *out, const char *name);
/* a vector */
POLAR_API polar_tensor polar_tensor_1d(void *data, polar_dtype dtype, int64_t n);
/* dense row-major */
POLAR_API polar_tensor polar_tensor_2d(void *data, polar_dtype dtype, int64_t rows, int64_t cols);
/* a batch of dense matrices */
POLAR_API polar_tensor polar_tensor_3d(void *data, polar_dtype dtype, int64_t batch, int64_t rows,
                                       int64_t cols);

#ifdef __cplusplus
}
#endif
#endif
