/* map_fixture.h -- host doubles through a polar map on a device and back. */
#ifndef POLAR_MAP_FIXTURE_H
#define POLAR_MAP_FIXTURE_H

#include "device/queue.h"
#include "polar/map.h"
#include "test.h"

#define MAX_MATS 8

typedef struct {
    int64_t     batch, rows, cols;
    polar_dtype dtype;            /* of the input */
    const double *in;             /* exactly representable in dtype, or rounded to it */
    double     *out;
    polar_dtype out_dtype;
} map_item;

static inline polar_tensor map_tensor(const pl_mat *m)
{
    return polar_tensor_3d(m->data, m->dtype, m->batch, m->rows, m->cols);
}

/* All items in one call. dim NULL: own norms. Returns the first status that is not OK. */
static inline polar_status map_run_on(pl_device *dev, map_item *items, int n, const int64_t *dim, const polar_map_opts *o)
{
    polar_status st = POLAR_OK;
    pl_queue *q = NULL;
    pl_mat in[MAX_MATS] = {{0}}, out[MAX_MATS] = {{0}};
    polar_tensor tin[MAX_MATS], tout[MAX_MATS];
    st = polar_queue_create(&q, dev, NULL);
    for (int i = 0; i < n && st == POLAR_OK; i++) {
        st = pl_mat_alloc(&in[i], dev, items[i].dtype, items[i].batch, items[i].rows, items[i].cols);
        if (st == POLAR_OK) st = pl_mat_alloc(&out[i], dev, items[i].out_dtype, items[i].batch, items[i].rows, items[i].cols);
        if (st == POLAR_OK) st = pl_mat_upload_f64(q, &in[i], items[i].in);
        tin[i] = map_tensor(&in[i]);
        tout[i] = map_tensor(&out[i]);
    }
    if (st == POLAR_OK) st = dim ? polar_map_apply_blocks(q, tout, tin, dim, n, o) : polar_map_apply(q, tout, tin, n, o);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    for (int i = 0; i < n && st == POLAR_OK; i++) st = pl_mat_download_f64(q, &out[i], items[i].out);
    polar_queue_destroy(q);
    for (int i = 0; i < n; i++) {
        pl_mat_free(&in[i], dev);
        pl_mat_free(&out[i], dev);
    }
    return st;
}

static inline polar_status map_run(const char *device, map_item *items, int n, const int64_t *dim, const polar_map_opts *o)
{
    pl_device *dev;
    polar_status st = polar_device_open(&dev, device);
    if (st != POLAR_OK) return st;
    st = map_run_on(dev, items, n, dim, o);
    polar_device_close(dev);
    return st;
}

/* Ends the test as skipped where the device asks for an instruction set that this CPU lacks. */
static inline void map_need_device(const char *device)
{
    pl_device *dev;
    if (polar_device_open(&dev, device) == POLAR_E_UNSUPPORTED) exit(77);
    polar_device_close(dev);
}

/* One matrix by a map's name, f32 in, f64 out (so the iterate's own format shows). */
static inline void map_one(const char *device, const char *map, double *out, const double *in, int64_t rows, int64_t cols)
{
    polar_map_opts o;
    TEST_TRY(polar_map_opts_parse(&o, map));
    map_item item = {1, rows, cols, POLAR_DTYPE_F32, in, out, POLAR_DTYPE_F64};
    TEST_TRY(map_run(device, &item, 1, NULL, &o));
}

/* Normal-ish numbers, exactly representable in float: a sum of uniforms from a small generator of our own. */
static inline void map_fill(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            s += (double)(seed >> 40) / (1 << 24) - 0.5;
        }
        x[i] = (double)(float)s;
    }
}

static inline double *map_new(int64_t n)
{
    double *x = calloc((size_t)(n ? n : 1), sizeof *x);
    if (!x) exit(3);
    return x;
}

static inline double map_distance(const double *a, const double *b, int64_t n)
{
    double d = 0, r = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (a[i] - b[i]) * (a[i] - b[i]);
        r += b[i] * b[i];
    }
    return r > 0 ? sqrt(d / r) : sqrt(d);
}

/* Bits that differ; a NaN equals a NaN. */
static inline int64_t map_mismatches(const double *a, const double *b, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += !(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]));
    return bad;
}

#endif
