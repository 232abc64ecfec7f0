/* stop_signal.c -- three signals, one flag. Whoever ignores a signal already (nohup, a shell's background
 * job) keeps ignoring it.
 *
 * A second signal kills, but not one of the same moment: timeout(1) and others send theirs to a process and
 * again to its group.
 */
#include "stop_signal.h"

#include <time.h>

#define SAME_MOMENT 500 /* milliseconds */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
static atomic_int flag;         /* a handler can reach nothing else */
static atomic_llong first_time; /* of the first signal, milliseconds */

static void on_signal(int number)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long time = (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (!atomic_exchange(&flag, 1)) atomic_store(&first_time, time);
    else if (time - atomic_load(&first_time) > SAME_MOMENT) {
        signal(number, SIG_DFL);
        raise(number); /* takes effect when this handler returns */
    }
}

atomic_int *stop_signal_begin(stop_signal *s)
{
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    atomic_store(&flag, 0);
    atomic_store(&first_time, 0);
    for (int i = 0; i < 3; i++) {
        sigaction(numbers[i], NULL, &s->old[i]);
        if (s->old[i].sa_handler != SIG_IGN) sigaction(numbers[i], &ours, NULL);
    }
    return &flag;
}

void stop_signal_end(stop_signal *s)
{
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &s->old[i], NULL);
}
