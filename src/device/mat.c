/* mat.c -- views of matrices, and the way of host doubles into and out of device memory. */
#include "device/mat.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/status.h"
#include "math/f16_elem.h"

size_t polar_dtype_size(polar_dtype dtype)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: return 8;
    case POLAR_DTYPE_F32: return 4;
    case POLAR_DTYPE_BF16:
    case POLAR_DTYPE_F16: return 2;
    default: return 0;
    }
}

const char *polar_dtype_name(polar_dtype dtype)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: return "f64";
    case POLAR_DTYPE_F32: return "f32";
    case POLAR_DTYPE_BF16: return "bf16";
    case POLAR_DTYPE_F16: return "f16";
    default: return "?";
    }
}

polar_status polar_dtype_parse(polar_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        polar_dtype dtype;
    } names[] = {{"f64", POLAR_DTYPE_F64},       {"fp64", POLAR_DTYPE_F64},  {"float64", POLAR_DTYPE_F64},
                 {"double", POLAR_DTYPE_F64},    {"f32", POLAR_DTYPE_F32},   {"fp32", POLAR_DTYPE_F32},
                 {"float32", POLAR_DTYPE_F32},   {"float", POLAR_DTYPE_F32}, {"bf16", POLAR_DTYPE_BF16},
                 {"bfloat16", POLAR_DTYPE_BF16}, {"f16", POLAR_DTYPE_F16},   {"fp16", POLAR_DTYPE_F16},
                 {"float16", POLAR_DTYPE_F16}};
    PL_NEED_ARG(out);
    PL_NEED_ARG(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i].name)) {
            *out = names[i].dtype;
            return POLAR_OK;
        }
    return PL_FAIL(POLAR_E_DTYPE, "'%s' is no number format known here (use f64, f32, bf16 or f16)", name);
}

polar_tensor polar_tensor_1d(void *data, polar_dtype dtype, int64_t n)
{
    return (polar_tensor){.data = data, .dtype = dtype, .ndim = 1, .shape = {n}, .stride = {1}};
}

polar_tensor polar_tensor_2d(void *data, polar_dtype dtype, int64_t rows, int64_t cols)
{
    return (polar_tensor){
        .data = data, .dtype = dtype, .ndim = 2, .shape = {rows, cols}, .stride = {cols, 1}};
}

polar_tensor polar_tensor_3d(void *data, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols)
{
    return (polar_tensor){.data = data,
                          .dtype = dtype,
                          .ndim = 3,
                          .shape = {batch, rows, cols},
                          .stride = {rows * cols, cols, 1}};
}

pl_mat pl_mat_dense(void *data, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols)
{
    return (pl_mat){.data = data,
                    .dtype = dtype,
                    .batch = batch,
                    .rows = rows,
                    .cols = cols,
                    .bs = rows * cols,
                    .rs = cols};
}

pl_mat pl_mat_at(pl_mat m, int64_t first, int64_t batch)
{
    /* without data while memory is measured */
    if (m.data) m.data = (char *)m.data + (size_t)(first * m.bs) * polar_dtype_size(m.dtype);
    m.batch = batch;
    return m;
}

size_t pl_mat_bytes(const pl_mat *m)
{
    return (size_t)(m->batch * m->rows * m->cols) * polar_dtype_size(m->dtype);
}

size_t pl_mat_extent(const pl_mat *m)
{
    if (!m->data || m->batch <= 0 || m->rows <= 0 || m->cols <= 0) return 0;
    return (size_t)((m->batch - 1) * m->bs + (m->rows - 1) * m->rs + m->cols) * polar_dtype_size(m->dtype);
}

int pl_mat_same_shape(const pl_mat *a, const pl_mat *b)
{
    return a->batch == b->batch && a->rows == b->rows && a->cols == b->cols;
}

/* Two single matrices on the same rows of memory that share no column. */
static int columns_apart(const pl_mat *a, const pl_mat *b)
{
    int64_t size = (int64_t)polar_dtype_size(a->dtype), bytes = (const char *)b->data - (const char *)a->data;
    if (bytes % size) return 0;
    int64_t shift = bytes / size % a->rs; /* where b's columns begin among a's row */
    if (shift < 0) shift += a->rs;
    return shift >= a->cols && shift + b->cols <= a->rs;
}

int pl_mat_overlap(const pl_mat *a, const pl_mat *b)
{
    const char *pa = a->data, *pb = b->data;
    size_t na = pl_mat_extent(a), nb = pl_mat_extent(b);
    if (!(na && nb && pa < pb + nb && pb < pa + na)) return 0;
    return !(a->dtype == b->dtype && a->batch <= 1 && b->batch <= 1 && a->rows > 1 && b->rows > 1 &&
             a->rs == b->rs && columns_apart(a, b));
}

polar_status pl_mat_from_tensor(pl_mat *out, const polar_tensor *t)
{
    PL_NEED(t->dtype >= 0 && t->dtype < POLAR_DTYPE_COUNT, POLAR_E_DTYPE,
            "a tensor has number format %d, which is none of f64, f32, bf16, f16", (int)t->dtype);
    PL_NEED(t->ndim == 2 || t->ndim == 3, POLAR_E_SHAPE,
            "a matrix has two dimensions, or three with a batch first; got %d", t->ndim);
    int r = t->ndim - 2, c = t->ndim - 1;
    int64_t batch = t->ndim == 3 ? t->shape[0] : 1, rows = t->shape[r], cols = t->shape[c];
    PL_NEED(batch >= 0 && rows >= 0 && cols >= 0, POLAR_E_SHAPE, "negative size %lld x %lld x %lld",
            (long long)batch, (long long)rows, (long long)cols);
    int64_t elements;
    PL_NEED(!__builtin_mul_overflow(rows, cols, &elements) &&
                !__builtin_mul_overflow(elements, batch, &elements) && elements < INT64_MAX / 16,
            POLAR_E_SHAPE, "%lld x %lld x %lld elements are more than memory can hold", (long long)batch,
            (long long)rows, (long long)cols);
    PL_NEED(cols <= 1 || t->stride[c] == 1, POLAR_E_SHAPE,
            "the last dimension must be contiguous, its stride is %lld", (long long)t->stride[c]);
    PL_NEED(rows <= 1 || t->stride[r] >= cols, POLAR_E_SHAPE,
            "rows overlap: %lld columns at a row stride of %lld", (long long)cols, (long long)t->stride[r]);
    int64_t reach = 0, last = 0;
    PL_NEED(batch <= 1 || t->ndim == 2 || t->stride[0] >= 0, POLAR_E_SHAPE, "a negative batch stride, %lld",
            (long long)t->stride[0]);
    PL_NEED((rows <= 1 || !__builtin_mul_overflow(rows, t->stride[r], &reach)) &&
                (batch <= 1 ||
                 (!__builtin_mul_overflow(batch, t->stride[0], &last) &&
                  !__builtin_add_overflow(last, rows > 1 ? reach : cols, &last) && last < INT64_MAX / 16)) &&
                (rows <= 1 || reach < INT64_MAX / 16),
            POLAR_E_SHAPE, "strides of %lld and %lld elements reach beyond memory", (long long)t->stride[0],
            (long long)t->stride[r]);
    PL_NEED(t->data || !elements, POLAR_E_ARG, "a %lld x %lld matrix without data", (long long)rows,
            (long long)cols);
    *out = (pl_mat){.data = t->data,
                    .dtype = t->dtype,
                    .batch = batch,
                    .rows = rows,
                    .cols = cols,
                    .rs = rows > 1 ? t->stride[r] : cols};
    out->bs = batch > 1 ? t->stride[0] : rows * out->rs; /* one matrix has no batch stride of its own */
    return POLAR_OK;
}

polar_status pl_mat_alloc(pl_mat *out, pl_device *dev, polar_dtype dtype, int64_t batch, int64_t rows,
                          int64_t cols)
{
    *out = pl_mat_dense(NULL, dtype, batch, rows, cols);
    return polar_device_alloc(dev, &out->data, pl_mat_bytes(out));
}

void pl_mat_free(pl_mat *m, pl_device *dev)
{
    polar_device_free(dev, m->data);
    m->data = NULL;
}

double pl_load_f64(const void *data, polar_dtype dtype, int64_t i)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: return ((const double *)data)[i];
    case POLAR_DTYPE_F32: return ((const float *)data)[i];
    case POLAR_DTYPE_F16: return pl_f16_to_f32(((const pl_f16 *)data)[i]);
    default: return pl_bf16_to_f32(((const pl_bf16 *)data)[i]);
    }
}

void pl_store_f64(void *data, polar_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: ((double *)data)[i] = x; break;
    case POLAR_DTYPE_F32: ((float *)data)[i] = (float)x; break;
    case POLAR_DTYPE_F16: ((pl_f16 *)data)[i] = pl_f16_from_f64(x); break;
    default: ((pl_bf16 *)data)[i] = pl_bf16_from_f64(x); break;
    }
}

polar_status pl_mat_upload_f64(pl_queue *q, const pl_mat *m, const double *src)
{
    int64_t n = m->batch * m->rows * m->cols;
    void *staging = pl_alloc(pl_mat_bytes(m));
    PL_NEED(staging, POLAR_E_NOMEM, "%zu bytes to upload from", pl_mat_bytes(m));
    for (int64_t i = 0; i < n; i++) pl_store_f64(staging, m->dtype, i, src[i]);
    polar_queue_upload(q, m->data, staging, pl_mat_bytes(m));
    pl_free(staging);
    return POLAR_OK;
}

polar_status pl_mat_download_f64(pl_queue *q, const pl_mat *m, double *dst)
{
    int64_t n = m->batch * m->rows * m->cols;
    void *staging = pl_alloc(pl_mat_bytes(m));
    PL_NEED(staging, POLAR_E_NOMEM, "%zu bytes to download to", pl_mat_bytes(m));
    polar_queue_download(q, staging, m->data, pl_mat_bytes(m));
    polar_status st = polar_queue_sync(q);
    for (int64_t i = 0; st == POLAR_OK && i < n; i++) dst[i] = pl_load_f64(staging, m->dtype, i);
    pl_free(staging);
    return st;
}
