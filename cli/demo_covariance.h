/* demo_covariance.h -- the first part of `polar demo`: the paper's covariance table with few samples, and in
 * words what it shows. */
#ifndef POLAR_DEMO_COVARIANCE_H
#define POLAR_DEMO_COVARIANCE_H

#include "cli.h"

/* prints table and findings; ctx->check_failed when the theorem fails in double precision */
polar_status demo_covariance(cli_context *ctx, const char *device, uint64_t seed);

#endif
