/* stop_signal.h -- Ctrl-C (and SIGTERM, SIGHUP) as a flag that long work looks at; the second one kills as
 * usual.
 *
 *     stop_signal signals;
 *     atomic_int *stop = stop_signal_begin(&signals);
 *     ... work that leaves cleanly once *stop is not 0 ...
 *     stop_signal_end(&signals);
 */
#ifndef POLAR_CLI_STOP_SIGNAL_H
#define POLAR_CLI_STOP_SIGNAL_H

#include <signal.h>
#include <stdatomic.h>

typedef struct stop_signal {
    struct sigaction old[3];
} stop_signal;

/* 0 from here on, until a signal comes; one at a time in a process */
atomic_int *stop_signal_begin(stop_signal *s);
void stop_signal_end(stop_signal *s); /* the handlers that were there before */

#endif
