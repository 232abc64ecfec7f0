/* model_fixture.h -- what the tests of all models share: host arrays, distances, random changes, and memory that runs out. */
#ifndef POLAR_MODEL_FIXTURE_H
#define POLAR_MODEL_FIXTURE_H

#include "base/alloc.h"
#include "base/philox.h"
#include "device/backend.h"
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
