/* region_latency.c -- what a parallel region costs: nanoseconds from its begin to its end around (almost)
 * no work.
 *
 *     cc -O2 -D_GNU_SOURCE -Isrc -Iinclude bench/region_latency.c build/cpu/libpolar.a -lpthread -ldl
 *         -lm -o region_latency
 *     ./region_latency [THREADS [SPIN]]
 *     cc -O2 -fopenmp -DWITH_OPENMP ... and GOMP_SPINCOUNT=2000       the same by OpenMP, for comparison
 *
 * Three lines: the threads awake (regions back to back), after 20 us without a region, and after 2 ms, when
 * they sleep. The fastest and the median of the regions to which every thread came, how many those are, and
 * the median of all: the pool waits for no thread that has not begun.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread_pool.h"

#define REGIONS 2000
#define WORK    2000 /* nanoseconds that an item takes, so that there is something to share */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static _Atomic int came;

static void work(void)
{
    double end = now() + WORK;
    atomic_fetch_add_explicit(&came, 1, memory_order_relaxed);
    while (now() < end) {
    }
}

#ifdef WITH_OPENMP
static void run(pl_pool *pool, int threads)
{
    (void)pool;
#pragma omp parallel num_threads(threads)
    work();
}
#else
static void once(void *arg, int me)
{
    (void)arg, (void)me;
    work();
}

static void run(pl_pool *pool, int threads)
{
    pl_pool_run(pool, threads, once, NULL);
}
#endif

static int up(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
    static const int pauses[] = {0, 20000, 2000000};
    int threads = argc > 1 ? atoi(argv[1]) : 2, spin = argc > 2 ? atoi(argv[2]) : PL_POOL_SPIN;
    static double took[REGIONS], there[REGIONS], whole[REGIONS];
    pl_pool *pool;
    if (pl_pool_create(&pool, threads, spin, NULL) != POLAR_OK) return 1;
    for (int p = 0; p < 3; p++) {
        int n = p == 2 ? REGIONS / 10 : REGIONS;
        for (int i = 0; i < n; i++) {
            for (double until = now() + pauses[p]; now() < until;) {
            }
            atomic_store(&came, 0);
            double t = now();
            run(pool, threads);
            took[i] = now() - t - WORK;
            there[i] = atomic_load(&came);
        }
        int full = 0;
        for (int i = 0; i < n; i++)
            if (there[i] == threads) whole[full++] = took[i];
        qsort(took, (size_t)n, sizeof *took, up);
        qsort(whole, (size_t)full, sizeof *whole, up);
        printf("%7.0f us before: all %d came in %4d of %4d: least %6.0f ns, median %6.0f ns; median of all "
               "%6.0f ns\n",
               1e-3 * pauses[p], threads, full, n, full ? whole[0] : 0.0, full ? whole[full / 2] : 0.0,
               took[n / 2]);
    }
    pl_pool_destroy(pool);
    return 0;
}
