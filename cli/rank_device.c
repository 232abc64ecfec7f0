/* rank_device.c -- which GPU a rank has. */
#include "rank_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "polar/device.h"

static int opens(const char *name)
{
    polar_device *dev;
    polar_status st = polar_device_open(&dev, name);
    polar_device_close(dev);
    return st == POLAR_OK;
}

polar_status rank_device_choose(rank_device *out, const pl_launch *launch, const char *device)
{
    snprintf(out->name, sizeof out->name, "%s", device);
    if (strcmp(device, "cuda") || launch->size == 1) return POLAR_OK;
    PL_NEED(launch->local >= 0, POLAR_E_ARG,
            "rank %" PRId64 " of %" PRId64 ": %s does not say which of its machine's ranks it is, so it has "
            "no GPU by itself: set LOCAL_RANK, or give --device cuda:N",
            launch->rank, launch->size, launch->by);
    snprintf(out->name, sizeof out->name, "cuda:%" PRId64, launch->local);
    if (opens(out->name)) return POLAR_OK;
    int one = opens("cuda:0") && !opens("cuda:1"); /* the launcher shows each rank its own, or they share */
    if (one) snprintf(out->name, sizeof out->name, "cuda:0");
    return POLAR_OK; /* if it cannot be opened, whoever does says why */
}
