/* clock.c -- the system's clocks. */
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double pl_clock_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double pl_clock_thread_seconds(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
