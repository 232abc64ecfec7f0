/* comm_nccl.c -- ranks with a GPU each, by NCCL, loaded when it is asked for.
 *
 * An exchange is a group of ncclSend and ncclRecv on the queue's stream: it is enqueued, may be captured, and
 * nothing waits. NCCL's own sums are not used (polar/comm.h says why). As with MPI nothing is compiled
 * against its header: NCCL 2's ABI has a communicator as a pointer, an id of 128 bytes handed over by value,
 * and ncclInt8 as 0.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/comm.h"
#include "device/backend.h"

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

enum { NCCL_INT8 = 0 };

static struct {
    pthread_once_t once;
    int there;
    int (*GetUniqueId)(nccl_id *id);
    int (*CommInitRank)(void **comm, int size, nccl_id id, int rank);
    int (*CommDestroy)(void *comm);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*Send)(const void *data, size_t count, int type, int peer, void *comm, void *stream);
    int (*Recv)(void *data, size_t count, int type, int peer, void *comm, void *stream);
    const char *(*GetErrorString)(int error);
    const char *(*GetLastError)(void *comm); /* since 2.13; or NULL: what it is about, in a sentence */
} nccl = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    const struct {
        void **at;
        const char *name;
    } wanted[] = {
        {(void **)&nccl.GetUniqueId, "ncclGetUniqueId"},
        {(void **)&nccl.CommInitRank, "ncclCommInitRank"},
        {(void **)&nccl.CommDestroy, "ncclCommDestroy"},
        {(void **)&nccl.GroupStart, "ncclGroupStart"},
        {(void **)&nccl.GroupEnd, "ncclGroupEnd"},
        {(void **)&nccl.Send, "ncclSend"},
        {(void **)&nccl.Recv, "ncclRecv"},
        {(void **)&nccl.GetErrorString, "ncclGetErrorString"},
    };
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    nccl.there = library != NULL;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && library; i++) {
        *wanted[i].at = dlsym(library, wanted[i].name);
        nccl.there &= *wanted[i].at != NULL;
    }
    if (library) *(void **)&nccl.GetLastError = dlsym(library, "ncclGetLastError");
}

typedef struct gpus {
    void *comm;
    int rank, size;
} gpus;

static polar_status told(int error, const char *what)
{
    if (!error) return POLAR_OK;
    const char *more = nccl.GetLastError ? nccl.GetLastError(NULL) : NULL;
    while (more && *more == '\n') more++;
    return PL_FAIL(POLAR_E_DEVICE, "NCCL: %s: %s%s%.300s", what, nccl.GetErrorString(error),
                   more && *more ? ": " : "", more ? more : "");
}

/* This rank's own part is one of them: NCCL copies it in the stream. A group that was begun is ended, or
 * every later call would belong to it. */
static int exchange(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    const gpus *g = arg;
    PL_TRY(told(nccl.GroupStart(), "beginning an exchange"));
    int error = 0;
    for (int r = 0; r < g->size && !error; r++) {
        char *out = (char *)send->data + send->at[r], *in = (char *)recv->data + recv->at[r];
        if (send->bytes[r]) error = nccl.Send(out, send->bytes[r], NCCL_INT8, r, g->comm, stream);
        if (recv->bytes[r] && !error) error = nccl.Recv(in, recv->bytes[r], NCCL_INT8, r, g->comm, stream);
    }
    int end = nccl.GroupEnd();
    return told(error ? error : end, "an exchange");
}

static void leave(void *arg)
{
    gpus *g = arg;
    nccl.CommDestroy(g->comm);
    pl_free(g);
}

/* Whoever cannot take part says so before the others wait for it. */
static polar_status begin(gpus *g, pl_device *dev, polar_comm *via)
{
    nccl_id id;
    void *touch = NULL; /* the device becomes this thread's current one, on which NCCL works */
    memset(&id, 0, sizeof id);
    polar_status st = polar_device_alloc(dev, &touch, 1);
    polar_device_free(dev, touch);
    if (st == POLAR_OK && !nccl.there)
        st = PL_FAIL(POLAR_E_UNSUPPORTED,
                     "no NCCL: libnccl.so.2 could not be loaded (LD_LIBRARY_PATH is where it is looked for; "
                     "torch's lies in nvidia/nccl/lib of its site-packages)");
    if (st == POLAR_OK && !g->rank) st = told(nccl.GetUniqueId(&id), "making an id");
    PL_TRY(pl_comm_agree(via, st, "beginning with NCCL"));
    PL_TRY(polar_comm_broadcast(via, NULL, &id, sizeof id, 0));
    st = told(nccl.CommInitRank(&g->comm, g->size, id, g->rank), "joining the ranks (each wants a GPU)");
    return pl_comm_agree(via, st, "joining NCCL's ranks");
}

polar_status polar_comm_open_nccl(polar_comm **out, polar_device *dev, polar_comm *via)
{
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(dev);
    PL_NEED_ARG(via);
    PL_NEED(dev->backend->queue_stream, POLAR_E_UNSUPPORTED,
            "NCCL works between GPUs; '%s' is none (polar_comm_open for host memory)", dev->name);
    pthread_once(&nccl.once, load);
    gpus *g = pl_calloc(1, sizeof *g);
    PL_NEED(g, POLAR_E_NOMEM, "a communicator of GPUs");
    g->rank = polar_comm_rank(via);
    g->size = polar_comm_size(via);
    polar_status st = begin(g, dev, via);
    const polar_comm_funcs f = {sizeof f, g->rank, g->size, POLAR_COMM_DEVICE, 0, g, exchange, leave, via};
    if (st == POLAR_OK) st = pl_comm_make(out, &f, "nccl", 0);
    if (st != POLAR_OK && g->comm) nccl.CommDestroy(g->comm);
    if (st != POLAR_OK) pl_free(g);
    return st;
}
