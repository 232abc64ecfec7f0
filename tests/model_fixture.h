/* model_fixture.h -- what the tests of all models share: host arrays, distances, random changes, and memory that runs out. */
#ifndef POLAR_MODEL_FIXTURE_H
#define POLAR_MODEL_FIXTURE_H

#include "base/alloc.h"
#include "base/philox.h"
#include "device/backend.h"
#include "nn/param.h"
#include "test.h"

static inline double *model_new(int64_t n)
{
    double *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
    if (!p) exit(3);
    return p;
}

static inline double model_norm(const double *x, const double *y, int64_t n)    /* of x - y, or of x */
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (x[i] - (y ? y[i] : 0)) * (x[i] - (y ? y[i] : 0));
    return sqrt(s);
}

static inline int64_t model_mismatches(const double *a, const double *b, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return bad;
}

/* x times 1 + relative U(-1, 1), draw number d of a seed. */
static inline void model_shake(double *out, const double *x, int64_t n, double relative, uint64_t seed, uint64_t d)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * (1 + relative * (2 * pl_uniform_f64(pl_philox(seed, PL_STREAM_TEST, d, (uint64_t)i).x, 0) - 1));
}

/* All weights, one array after the other, each (members, rows, cols). */
static inline void model_set_weights(pl_queue *q, const pl_param *p, int64_t count, const double *w)
{
    for (int64_t i = 0; i < count; w += p[i].W.batch * p[i].rows * p[i].cols, i++) TEST_TRY(pl_mat_upload_f64(q, &p[i].W, w));
    TEST_TRY(polar_queue_sync(q));
}

/* All weights, or all gradients, in the same order. */
static inline void model_get(pl_queue *q, const pl_param *p, int64_t count, double *out, int gradients)
{
    for (int64_t i = 0; i < count; out += p[i].W.batch * p[i].rows * p[i].cols, i++) TEST_TRY(pl_mat_download_f64(q, gradients ? &p[i].G : &p[i].W, out));
}

/* A device and its queue; ends the test as skipped where the CPU lacks the instruction set. */
static inline void model_open(pl_device **dev, pl_queue **q, const char *device)
{
    polar_status st = polar_device_open(dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77);
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(q, *dev, NULL));
}

/* Allocation 1, 2, ... fails until a whole life passes: out of memory each time, nothing left over. */
static inline void model_no_memory(const char *device, polar_status (*life)(pl_device *dev))
{
    pl_device *dev;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(life(dev));
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, before = pl_alloc_live(), leaks = 0, wrong = 0;
    while (st != POLAR_OK && n < 100000) {
        pl_alloc_fail_at(++n);
        st = life(dev);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != before;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
    }
    test_true("allocation 1, 2, ... fails", st == POLAR_OK && n > 8 && !leaks && !wrong, "%lld times: %lld leaks, %lld wrong codes", (long long)n - 1, (long long)leaks, (long long)wrong);
    polar_device_close(dev);
}

#endif
