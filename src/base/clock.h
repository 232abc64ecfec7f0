/* clock.h -- monotonic seconds and CPU time, for benchmarks and progress; never in a result that is compared.
 */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H

double pl_clock_seconds(void);        /* since some moment in the past */
double pl_clock_thread_seconds(void); /* of a processor, spent by the calling thread */

#endif
