/* comm.h -- several ranks at one piece of work: who they are, and bytes that go from one to another.
 *
 *     polar_comm *comm;
 *     polar_comm_open(&comm, "auto");                      // MPI under mpirun or srun, otherwise one rank
 *     polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
 *     o.comm = comm;                                       // every matrix has an owner, see optim.h
 *     ...
 *     polar_comm_all_reduce(comm, q, x, n, POLAR_DTYPE_F32, 0);
 *     polar_comm_close(comm);
 *
 * Ranks are numbered 0 to size - 1. Every rank makes the same calls in the same order; a call ends when this
 * rank's part is done. There is one way to move bytes, the all-to-all of unequal parts; broadcasts, sums and
 * the optimiser's exchanges are made of it. So a communicator of the caller's own (torch's process group,
 * another MPI) is a table with one function.
 *
 * Sums have the same bits for every number of ranks. No transport adds anything, since MPI and NCCL choose
 * the order of a sum by the number of ranks and the size of the message. What is added is L vectors, the
 * leaves, and L belongs to the work and not to the machine: the parts into which a batch is always cut.
 * Leaves are numbered; T(a, b) is the sum of leaves a to b - 1: a leaf by itself, otherwise T(a, m) + T(m, b)
 * with m - a the largest power of two below b - a. Where the leaves lie changes who adds, never what is
 * added: rank r of N has leaves [r L / N, (r + 1) L / N) (polar_comm_share), adds those T(a, b) of the tree
 * that lie wholly within its share, and sends these few vectors (one, where N and L are powers of two, N <=
 * L); the receiver adds the rest of the tree. Each addition is one IEEE addition of the same two numbers on
 * every N, so the result is. With one leaf per rank (leaves 0) the order is as fixed, but L is then N.
 *
 * Queues: with a queue the data lies in the memory of its device and the call is in order with its work. A
 * communicator of host memory (all but NCCL) waits for the queue first, and on devices with memory of their
 * own copies both ways; it cannot be captured. With q NULL the data lies in host memory and the call is done
 * when it returns.
 *
 * Errors: a rank that is gone, or late by more than the timeout, ends the call of the others with a sentence;
 * the communicator is then of no further use and every later call says so.
 */
#ifndef POLAR_COMM_H
#define POLAR_COMM_H

#include "polar/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct polar_comm polar_comm;

/* Bytes [at[r], at[r] + bytes[r]) of data belong to rank r; one entry of at and bytes for each rank. Never
 * grows. */
typedef struct polar_comm_parts {
    void *data;
    const size_t *at;
    const size_t *bytes;
} polar_comm_parts;

/* Part r of send goes to rank r, part r of recv comes from rank r, which sends as many bytes. In host memory
 * this rank's own parts are empty, in device memory they are there and as long as one another. Parts of send
 * may be the same bytes. 0: done, or enqueued on stream; otherwise an error of the caller's choice. */
typedef int (*polar_comm_exchange)(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send,
                                   void *stream);
typedef void (*polar_comm_release)(void *arg);

typedef enum polar_comm_memory {
    POLAR_COMM_HOST = 0,  /* parts lie in host memory; the exchange is done when it returns; stream is NULL */
    POLAR_COMM_DEVICE = 1 /* parts lie in device memory; the exchange is enqueued on stream, the queue's */
} polar_comm_memory;

/* A communicator as a table: polar_comm_create. */
typedef struct polar_comm_funcs {
    size_t struct_size;
    int rank, size;
    polar_comm_memory memory;
    int reserved; /* 0 */
    void *arg;    /* for the functions */
    polar_comm_exchange exchange;
    polar_comm_release release; /* called by polar_comm_close; or NULL */
    /* for calls without a queue, where memory is POLAR_COMM_DEVICE; borrowed; NULL: there are none */
    polar_comm *host;
} polar_comm_funcs;

#define POLAR_COMM_FUNCS_INIT                                                      \
    {                                                                              \
        sizeof(polar_comm_funcs), 0, 1, POLAR_COMM_HOST, 0, NULL, NULL, NULL, NULL \
    }

/* "self": one rank. "mpi", "mpi:timeout=60" (seconds, 0: wait for ever): MPI_COMM_WORLD of an Open MPI that
 * is loaded now, and initialised unless the program has. "auto": mpi where mpirun or srun started several
 * processes, else self. The caller closes it. */
POLAR_API polar_status polar_comm_open(polar_comm **out, const char *name);
/* `ranks` communicators into out[0 .. ranks - 1], one for each of so many threads of this process; a rank
 * that is `timeout` seconds late ends the others' calls, 0: they wait for ever */
POLAR_API polar_status polar_comm_open_threads(polar_comm **out, int ranks, double timeout);
/* NCCL between the devices "cuda:N" of the ranks of `via`, which carries the id and calls without a queue,
 * and is borrowed until the close; NCCL is loaded now */
POLAR_API polar_status polar_comm_open_nccl(polar_comm **out, polar_device *dev, polar_comm *via);
/* the caller's own; funcs is copied */
POLAR_API polar_status polar_comm_create(polar_comm **out, const polar_comm_funcs *funcs);
/* after the work that uses it; NULL is fine */
POLAR_API void polar_comm_close(polar_comm *comm);

/* this one; of NULL 0 */
POLAR_API int polar_comm_rank(const polar_comm *comm);
/* of all; of NULL 0 */
POLAR_API int polar_comm_size(const polar_comm *comm);
/* "self", "threads", "mpi", "nccl", "own"; of NULL "" */
POLAR_API const char *polar_comm_name(const polar_comm *comm);
/* bytes that this rank has sent to others so far; of NULL 0 */
POLAR_API int64_t polar_comm_bytes_sent(const polar_comm *comm);
/* [*first, *first + *count): the share of this rank of `total` things in a row */
POLAR_API polar_status polar_comm_share(const polar_comm *comm, int64_t total, int64_t *first,
                                        int64_t *count);

/* part r of send to rank r, part r of recv from rank r, this rank's own among them; they do not overlap */
POLAR_API polar_status polar_comm_all_to_all(polar_comm *comm, polar_queue *q, const polar_comm_parts *recv,
                                             const polar_comm_parts *send);
/* root's bytes to every rank */
POLAR_API polar_status polar_comm_broadcast(polar_comm *comm, polar_queue *q, void *data, size_t bytes,
                                            int root);

/* The sum of `leaves` vectors of n numbers (f32 or f64) in the fixed order above. data holds this rank's
 * polar_comm_share of them one after the other, and has room for one at least; leaves 0: one of each rank.
 * Afterwards the first n numbers of data are the sum, on the owner or on every rank; the rest of data, and on
 * other ranks than the owner all of it, holds partial sums. */
POLAR_API polar_status polar_comm_reduce(polar_comm *comm, polar_queue *q, void *data, int64_t n,
                                         polar_dtype dtype, int64_t leaves, int owner);
/* the same, the sum to every rank */
POLAR_API polar_status polar_comm_all_reduce(polar_comm *comm, polar_queue *q, void *data, int64_t n,
                                             polar_dtype dtype, int64_t leaves);

#ifdef __cplusplus
}
#endif
#endif
