/* bench.c -- see bench.h. The work is captured as a graph where the device has graphs; a sample is as many
 * replays as fill 5 ms. */
#include "lab/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/backend.h"

#define SAMPLES        31
#define SAMPLE_SECONDS 5e-3
#define BUDGET_SECONDS 4.0 /* slow work gets fewer samples, never fewer than 5 */
#define COPY_BYTES     ((int64_t)256 << 20)

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void pl_bench_quartiles(double *q1, double *median, double *q3, double *samples, int n)
{
    qsort(samples, (size_t)n, sizeof *samples, by_size);
    *q1 = samples[n / 4];
    *median = samples[n / 2];
    *q3 = samples[n * 3 / 4];
}

static polar_status sample(double *seconds, pl_queue *q, pl_graph *g, pl_graph_fn fn, void *arg, int replays)
{
    double t = pl_clock_seconds();
    for (int i = 0; i < replays; i++) PL_TRY(pl_graph_run(g, q, fn, arg));
    PL_TRY(polar_queue_sync(q));
    *seconds = (pl_clock_seconds() - t) / replays;
    return POLAR_OK;
}

static polar_status time_graph(pl_bench_row *out, pl_queue *q, pl_graph *g, pl_graph_fn fn, void *arg)
{
    double s[SAMPLES], once;
    PL_TRY(sample(&once, q, g, fn, arg, 1)); /* captures, loads, allocates */
    PL_TRY(sample(&once, q, g, fn, arg, 2));
    out->replays = once < SAMPLE_SECONDS ? (int)(SAMPLE_SECONDS / once) + 1 : 1;
    double one_sample = once * out->replays;
    out->samples = one_sample * SAMPLES < BUDGET_SECONDS ? SAMPLES : (int)(BUDGET_SECONDS / one_sample);
    if (out->samples < 5) out->samples = 5;
    for (int i = 0; i < out->samples; i++) PL_TRY(sample(&s[i], q, g, fn, arg, out->replays));
    pl_bench_quartiles(&out->q1, &out->seconds, &out->q3, s, out->samples);
    return POLAR_OK;
}

polar_status pl_bench_time(pl_bench_row *out, pl_queue *q, pl_graph_fn fn, void *arg,
                           const pl_bench_peak_rates *peak)
{
    polar_cost cost;
    pl_graph *g;
    PL_TRY(polar_queue_dry_begin(q));
    fn(q, arg);
    PL_TRY(polar_queue_dry_end(q, &cost));
    PL_TRY(pl_graph_create(&g, q->dev));
    polar_status st = time_graph(out, q, g, fn, arg);
    pl_graph_destroy(g);
    out->flops = cost.flops;
    out->bytes = cost.bytes;
    out->peak_share = peak && peak->flops > 0 ? cost.flops / out->seconds / peak->flops : 0;
    return st;
}

typedef struct {
    pl_mat A, B, C;
} product;

static void run_product(pl_queue *q, void *arg)
{
    product *p = arg;
    PL_CALL(gemm, q, .C = p->C, .A = p->A, .B = p->B, .alpha = 1);
}

static void run_copy(pl_queue *q, void *arg)
{
    product *p = arg;
    PL_CALL(copy, q, .Y = p->B, .X = p->A);
}

/* Something that is not zero: products of zeros run faster than those of data. */
static polar_status fill(pl_queue *q, pl_mat *m)
{
    double values[256];
    pl_mat piece = pl_mat_dense(m->data, m->dtype, 1, 1, 256);
    for (int i = 0; i < 256; i++) values[i] = ((i * 37) % 101 - 50) / 64.0 + i / 1024.0;
    PL_TRY(pl_mat_upload_f64(q, &piece, values));
    /* doubling by copies on the device */
    for (int64_t have = 256, all = m->batch * m->rows * m->cols; have < all; have *= 2) {
        int64_t n = have < all - have ? have : all - have;
        pl_mat to = pl_mat_dense((char *)m->data + (size_t)have * polar_dtype_size(m->dtype), m->dtype, 1, 1,
                                 n),
               from = pl_mat_dense(m->data, m->dtype, 1, 1, n);
        PL_CALL(copy, q, .Y = to, .X = from);
    }
    return polar_queue_sync(q);
}

static polar_status time_product(pl_bench_row *row, pl_queue *q, polar_dtype dtype, int64_t side)
{
    product p = {.A = {0}};
    pl_device *dev = q->dev;
    polar_status st = pl_mat_alloc(&p.A, dev, dtype, 1, side, side);
    if (st == POLAR_OK) st = pl_mat_alloc(&p.B, dev, dtype, 1, side, side);
    if (st == POLAR_OK) st = pl_mat_alloc(&p.C, dev, dtype, 1, side, side);
    if (st == POLAR_OK) st = fill(q, &p.A);
    if (st == POLAR_OK) st = fill(q, &p.B);
    if (st == POLAR_OK) st = pl_bench_time(row, q, run_product, &p, NULL);
    pl_mat_free(&p.A, dev);
    pl_mat_free(&p.B, dev);
    pl_mat_free(&p.C, dev);
    return st;
}

static polar_status time_copy(pl_bench_row *row, pl_queue *q)
{
    product p = {.A = {0}};
    polar_status st = pl_mat_alloc(&p.A, q->dev, POLAR_DTYPE_F32, 1, 1, COPY_BYTES / 4);
    if (st == POLAR_OK) st = pl_mat_alloc(&p.B, q->dev, POLAR_DTYPE_F32, 1, 1, COPY_BYTES / 4);
    if (st == POLAR_OK) st = fill(q, &p.A);
    if (st == POLAR_OK) st = pl_bench_time(row, q, run_copy, &p, NULL);
    pl_mat_free(&p.A, q->dev);
    pl_mat_free(&p.B, q->dev);
    return st;
}

polar_status pl_bench_peak(pl_bench_peak_rates *out, pl_queue *q, polar_dtype dtype)
{
    pl_bench_row row = {.what = ""};
    *out = (pl_bench_peak_rates){0};
    for (int64_t side = 512; side <= 8192; side *= 2) {
        PL_TRY(time_product(&row, q, dtype, side));
        if (row.flops / row.seconds > out->flops) {
            out->flops = row.flops / row.seconds;
            out->side = side;
        }
        if (row.seconds > 0.05) break; /* large enough for this device */
    }
    out->product = out->flops;
    double registers = q->dev->backend->peak_flops ? q->dev->backend->peak_flops(q->dev, dtype) : 0;
    if (registers > out->flops) out->flops = registers;
    PL_TRY(time_copy(&row, q));
    out->copy_bytes = row.bytes;
    out->bytes = row.bytes / row.seconds;
    return POLAR_OK;
}
