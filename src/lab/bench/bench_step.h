/* bench_step.h -- whole optimiser steps timed on lists of parameters. */
#ifndef PL_LAB_BENCH_STEP_H
#define PL_LAB_BENCH_STEP_H

#include "lab/bench/bench.h"
#include "polar/optim.h"

/* A list of bench_list.h, captured as a graph; of a rule that refreshes bases every few steps, a step between
 * refreshes. */
polar_status pl_bench_step(pl_bench_row *out, pl_queue *q, const char *list, const polar_optim_opts *o,
                           const pl_bench_peak_rates *peak);

/* Seconds of one polar_optim_step over many of them, its host work and refreshes included: with gradients
 * that stay, and with gradients that lie elsewhere at every step. */
polar_status pl_bench_moving(double *fixed, double *moving, pl_queue *q, const char *list,
                             const polar_optim_opts *o);

/* Reads four and writes three f32 arrays of so many elements in place, on a device that is the host: what an
 * AdamW step must move at the least. */
polar_status pl_bench_loop(pl_bench_row *out, pl_queue *q, int64_t elements);

int64_t pl_bench_list_weights(const char *list); /* weights of a list; 0 for an unknown one */

#endif
