/* rank_processes.h -- one function on every rank, ranks being processes forked here: a communicator of the
 * caller's own over shared memory, where there is no MPI; and NCCL over it, several ranks on one GPU.
 *
 *     static int64_t work(polar_comm *comm, void *arg) { ... return wrong; }
 *     test_exact("3 processes", processes_run(3, work, &arg));        // before any thread or GPU is there
 *
 * NCCL wants a GPU for each rank of a machine. processes_run_nccl gives every rank a host name of its own
 * (NCCL_HOSTID), so that NCCL takes them for machines and sends over sockets of the loopback: slow, and the
 * same calls as between GPUs.
 */
#ifndef TESTS_RANK_PROCESSES_H
#define TESTS_RANK_PROCESSES_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "polar/comm.h"
#include "test.h"

enum { PROCESSES_MOST = 16, PROCESS_BOX = 1 << 20, PROCESS_SECONDS = 120 };

typedef struct process_box { /* what a rank has for the others */
    size_t at[PROCESSES_MOST], bytes[PROCESSES_MOST];
    unsigned char data[PROCESS_BOX];
} process_box;

typedef struct process_hall {
    pthread_barrier_t gate;
    process_box box[PROCESSES_MOST];
} process_hall;

typedef struct process_rank {
    process_hall *hall;
    int rank, size;
} process_rank;

typedef int64_t (*process_work)(polar_comm *comm, void *arg);

static inline int process_exchange(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send,
                                   void *stream)
{
    const process_rank *me = arg;
    process_box *mine = &me->hall->box[me->rank];
    size_t used = 0;
    int wrong = stream != NULL;
    for (int r = 0; r < me->size; r++) {
        int fits = send->bytes[r] <= PROCESS_BOX - used;
        mine->at[r] = used;
        mine->bytes[r] = fits ? send->bytes[r] : 0;
        if (mine->bytes[r]) memcpy(mine->data + used, (char *)send->data + send->at[r], send->bytes[r]);
        used += mine->bytes[r];
        wrong |= !fits;
    }
    pthread_barrier_wait(&me->hall->gate);
    for (int r = 0; r < me->size; r++) {
        const process_box *from = &me->hall->box[r];
        wrong |= from->bytes[me->rank] != recv->bytes[r];
        if (recv->bytes[r] && !wrong)
            memcpy((char *)recv->data + recv->at[r], from->data + from->at[me->rank], recv->bytes[r]);
    }
    pthread_barrier_wait(&me->hall->gate);
    return wrong;
}

/* The life of a rank; it ends with its process. */
static inline void process_main(process_hall *hall, int rank, int ranks, int own_hosts, process_work work,
                                void *arg)
{
    process_rank me = {hall, rank, ranks};
    polar_comm_funcs f = POLAR_COMM_FUNCS_INIT;
    polar_comm *comm;
    char host[32];
    f.rank = rank, f.size = ranks;
    f.arg = &me;
    f.exchange = process_exchange;
    alarm(PROCESS_SECONDS); /* one that fails leaves the others at the gate */
    snprintf(host, sizeof host, "rank-%d", rank);
    if (own_hosts) {
        setenv("NCCL_HOSTID", host, 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
        setenv("NCCL_NET", "Socket", 1);
    }
    TEST_TRY(polar_comm_create(&comm, &f));
    int64_t wrong = work(comm, arg);
    polar_comm_close(comm);
    fflush(stdout);
    _exit(wrong != 0);
}

static inline int64_t processes_run_as(int ranks, int own_hosts, process_work work, void *arg)
{
    pthread_barrierattr_t shared;
    pid_t pids[PROCESSES_MOST];
    int64_t failed = 0;
    process_hall *hall = mmap(NULL, sizeof *hall, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hall == MAP_FAILED) return ranks;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&hall->gate, &shared, (unsigned)ranks);
    fflush(stdout);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (!pids[r]) process_main(hall, r, ranks, own_hosts, work, arg);
    }
    for (int r = 0; r < ranks; r++) {
        int status = 1;
        failed += pids[r] < 0 || waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    }
    munmap(hall, sizeof *hall);
    return failed;
}

/* ranks that failed */
static inline int64_t processes_run(int ranks, process_work work, void *arg)
{
    return processes_run_as(ranks, 0, work, arg);
}

typedef struct nccl_work {
    const char *device;
    process_work work;
    void *arg;
} nccl_work;

static inline int64_t nccl_main(polar_comm *via, void *arg)
{
    const nccl_work *w = arg;
    polar_device *dev;
    polar_comm *comm;
    TEST_TRY(polar_device_open(&dev, w->device));
    TEST_TRY(polar_comm_open_nccl(&comm, dev, via));
    int64_t wrong = w->work(comm, w->arg) + (strcmp(polar_comm_name(comm), "nccl") != 0);
    polar_comm_close(comm);
    polar_device_close(dev);
    return wrong;
}

/* ranks by NCCL, all of them on one GPU; those that failed */
static inline int64_t processes_run_nccl(int ranks, const char *device, process_work work, void *arg)
{
    nccl_work w = {device, work, arg};
    return processes_run_as(ranks, 1, nccl_main, &w);
}

#endif
