/* rank_threads.h -- one function on every rank: threads of this process, or this process as a rank of an MPI
 * job (argv[2] "mpi").
 *
 *     static void work(polar_comm *comm, void *arg) { ... }
 *     ranks_run(3, work, &arg);
 */
#ifndef TESTS_RANK_THREADS_H
#define TESTS_RANK_THREADS_H

#include <pthread.h>

#include "polar/comm.h"
#include "test.h"

typedef struct rank_thread {
    polar_comm *comm;
    void (*work)(polar_comm *comm, void *arg);
    void *arg;
} rank_thread;

static inline void *rank_main(void *arg)
{
    rank_thread *t = arg;
    t->work(t->comm, t->arg);
    polar_comm_close(t->comm);
    return NULL;
}

/* comms are closed by the threads */
static inline void ranks_run_on(polar_comm **comms, int ranks, void (*work)(polar_comm *, void *), void *arg)
{
    pthread_t threads[64];
    rank_thread all[64];
    for (int r = 0; r < ranks; r++) {
        all[r] = (rank_thread){comms[r], work, arg};
        if (pthread_create(&threads[r], NULL, rank_main, &all[r])) exit(1);
    }
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
}

static inline void ranks_run(int ranks, void (*work)(polar_comm *, void *), void *arg)
{
    polar_comm *comms[64];
    TEST_TRY(polar_comm_open_threads(comms, ranks, 60));
    ranks_run_on(comms, ranks, work, arg);
}

#endif
