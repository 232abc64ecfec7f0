/* cpu_meet.h -- the end of a thread's share: it waits for the others awake, for a while, but gives its core to whoever else wants it.
 *
 *     _Atomic int met = 0;
 *     #pragma omp parallel
 *     {
 *         #pragma omp for nowait
 *         ...
 *         pl_meet(&met);
 *     }
 *
 * OpenMP's own waiting, in which the region ends, spins and then sleeps. Spinning long keeps others, and a team's own late thread, from their cores; sleeping early costs a wake-up,
 * often longer than the op that waits for it. After pl_meet it has little left to wait for. It is no barrier: after about a millisecond it gives up.
 */
#ifndef PL_CPU_MEET_H
#define PL_CPU_MEET_H

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

#define PL_MEET_ROUNDS 600
#define PL_MEET_LOOKS  64     /* a round: about a microsecond */

static inline void pl_meet(_Atomic int *met)
{
    const int all = omp_get_num_threads();
    if (all == 1 || atomic_fetch_add_explicit(met, 1, memory_order_relaxed) + 1 == all) return;
    for (int round = 0; round < PL_MEET_ROUNDS; round++) {
        for (int look = 0; look < PL_MEET_LOOKS; look++) {
            if (atomic_load_explicit(met, memory_order_relaxed) >= all) return;
#ifdef __x86_64__
            __builtin_ia32_pause();
#endif
        }
        sched_yield();
    }
}

#endif
