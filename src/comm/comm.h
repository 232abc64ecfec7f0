/* comm.h -- a communicator's inside, and exchanges of host memory for those who build on it. */
#ifndef PL_COMM_COMM_H
#define PL_COMM_COMM_H

#include <stdatomic.h>

#include "base/status.h"
#include "device/queue.h"
#include "polar/comm.h"

#define PL_COMM_MOST_RANKS 65536

struct polar_comm {
    polar_comm_funcs f;
    const char *name;
    int own;              /* the caller's functions, which leave no sentence of ours */
    _Atomic int64_t sent; /* bytes, to others */
    size_t *at;           /* room for the parts of a call made here: 6 tables of `size` */
    char *stage;          /* host copies of device memory; grows */
    size_t stage_bytes;
    polar_status broken; /* the first failure, after which nothing is exchanged */
    char why[512];
    const atomic_int *stop; /* not 0: somebody wants the program to end; or NULL */
    /* between the same ranks, for one other thread of each: its exchanges and those of this one do not meet;
     * of transports of ours between host memories; or NULL */
    polar_comm *aside;
    /* bytes of gradients that went aside in all; of these, handed over and arrived while a backward was still
     * at work */
    struct {
        int64_t bytes, begun, done;
    } overlap;
};

/* room for the tables; name is static; a failed one releases nothing of f */
polar_status pl_comm_make(polar_comm **out, const polar_comm_funcs *f, const char *name, int own);
/* the caller's flag, which transports of processes watch while they wait: a rank that is gone often takes
 * the others with it by a signal */
void pl_comm_set_stop(polar_comm *comm, const atomic_int *stop);

/* this rank will make no further call: its close waits for nobody, and where a process ends so the launcher
 * ends the others */
void pl_comm_abandon(polar_comm *comm);

/* its other thread has failed: it is of no use any more, as after a failure of its own */
void pl_comm_spoil(polar_comm *comm, polar_status st, const char *why);

/* every rank's `bytes` bytes of host memory, one after the other by rank, into all */
polar_status pl_comm_gather(polar_comm *comm, void *all, const void *mine, size_t bytes);
/* 1 where the flag of any rank is not 0: host memory */
polar_status pl_comm_any(polar_comm *comm, int *flag);
/* OK where st is on every rank; otherwise this rank's own, or a sentence that names the first other */
polar_status pl_comm_agree(polar_comm *comm, polar_status st, const char *what);
/* share of rank r */
void pl_comm_share_of(int64_t total, int rank, int size, int64_t *first, int64_t *count);

#endif
