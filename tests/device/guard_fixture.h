/* guard_fixture.h -- a guard device, a queue and a few matrices, for the tests of what the guard catches. */
#ifndef POLAR_GUARD_FIXTURE_H
#define POLAR_GUARD_FIXTURE_H

#include "backends/guard/guard_impl.h"
#include "base/alloc.h"
#include "test.h"

enum { N = 8 }; /* matrices of N x N floats: 256 bytes */

typedef struct {
    const char *name;
    pl_device *dev;
    pl_queue *q;
    pl_mat X, Y, W;
    pl_live *live; /* a row */
    double lr;     /* the host's, for those who capture it */
    int variant;
} bench;

static inline polar_status bench_fill(bench *t)
{
    double x[N * N];
    PL_TRY(pl_mat_alloc(&t->X, t->dev, POLAR_DTYPE_F32, 1, N, N));
    PL_TRY(pl_mat_alloc(&t->Y, t->dev, POLAR_DTYPE_F32, 1, N, N));
    PL_TRY(pl_mat_alloc(&t->W, t->dev, POLAR_DTYPE_F32, 1, N, N));
    PL_TRY(pl_live_create(&t->live, t->dev, PL_LIVE_COLS));
    for (int i = 0; i < N * N; i++) x[i] = i - 20;
    PL_TRY(pl_mat_upload_f64(t->q, &t->X, x));
    return pl_mat_upload_f64(t->q, &t->W, x);
}

static inline polar_status bench_open(bench *t, const char *name)
{
    *t = (bench){.name = name};
    PL_TRY(polar_device_open(&t->dev, name));
    PL_TRY(polar_queue_create(&t->q, t->dev, NULL));
    return bench_fill(t);
}

static inline void bench_close(bench *t)
{
    polar_queue_destroy(t->q); /* its last work may use what follows */
    if (t->dev) {
        pl_mat_free(&t->X, t->dev);
        pl_mat_free(&t->Y, t->dev);
        pl_mat_free(&t->W, t->dev);
    }
    pl_live_destroy(t->live);
    polar_device_close(t->dev);
}

/* The queue fails with this in its sentence, and works on. */
static inline void test_caught(const char *what, bench *t, const char *expect)
{
    polar_status st = polar_queue_sync(t->q);
    test_true(what, st != POLAR_OK && strstr(polar_error_message(), expect), "%s",
              st == POLAR_OK ? "passed unseen" : polar_error_message());
    TEST_TRY(polar_queue_sync(t->q));
}

#endif
