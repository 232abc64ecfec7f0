/* bench.h -- times of work on a device, with what the machine could do beside them.
 *
 *     // the best product of this run, the best copy
 *     PL_TRY(pl_bench_peak(&peak, q, POLAR_DTYPE_BF16));
 *     // median and quartiles over samples of captured replays
 *     PL_TRY(pl_bench_time(&row, q, fn, arg, &peak));
 *
 * A row's FLOPs and bytes come from a dry run of the same calls (nominal: 2 M N K a product, every operand
 * once per op).
 */
#ifndef PL_LAB_BENCH_H
#define PL_LAB_BENCH_H

#include "device/queue.h"

typedef struct pl_bench_peak_rates {
    /* per second: of a loop in registers where the device has one, or of the fastest product if that is more
     */
    double flops;
    double product;    /* per second: the fastest of a few large products */
    double bytes;      /* per second, read and written, of a large copy */
    double copy_bytes; /* ... which moved so many */
    int64_t side;      /* of the product that won */
} pl_bench_peak_rates;

typedef struct pl_bench_row {
    char what[80];
    double seconds, q1, q3; /* median and quartiles of one run */
    double flops, bytes;    /* of one run */
    double peak_share;      /* flops / seconds over the peak */
    int samples, replays;   /* samples of so many replays each */
} pl_bench_row;

/* takes a second or two */
polar_status pl_bench_peak(pl_bench_peak_rates *out, pl_queue *q, polar_dtype dtype);
/* peak may be NULL; out->what is left alone */
polar_status pl_bench_time(pl_bench_row *out, pl_queue *q, pl_graph_fn fn, void *arg,
                           const pl_bench_peak_rates *peak);
/* sorts the samples */
void pl_bench_quartiles(double *q1, double *median, double *q3, double *samples, int n);

#endif
