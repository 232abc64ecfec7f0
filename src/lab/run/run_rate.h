/* run_rate.h -- how fast a device trains, by a short run on made-up data: what turns the FLOPs of a plan into
 * hours.
 *
 *     pl_run_rate r[2];
 *     PL_TRY(pl_run_rate_measure(&r[0], tb, dev, smallest));
 *     PL_TRY(pl_run_rate_measure(&r[1], tb, dev, largest));
 *     hours = e.flops / pl_run_rate_between(&r[0], &r[1], pl_step_flops(&e)) / 3600;
 *
 * The rate is of FLOPs as pl_estimate counts them, whole epochs long: passes, optimiser, evaluation, reading
 * of data that cost little to make. One run alone on the device.
 */
#ifndef PL_LAB_RUN_RATE_H
#define PL_LAB_RUN_RATE_H

#include "lab/run/testbed.h"

typedef struct pl_run_rate {
    double step_flops; /* of a step of the run that was timed */
    double rate;       /* FLOPs a second */
} pl_run_rate;

/* Some epochs of two steps, the fastest counts; POLAR_E_UNSUPPORTED: the testbed cannot. */
polar_status pl_run_rate_measure(pl_run_rate *out, const pl_testbed *tb, polar_device *dev,
                                 const pl_config *c);
/* of a run whose step has so many FLOPs: between two measurements by a power law, beyond them the nearer */
double pl_run_rate_between(const pl_run_rate *small, const pl_run_rate *large, double step_flops);
double pl_step_flops(const pl_estimate *e); /* pass and optimiser */

#endif
