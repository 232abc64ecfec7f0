/* comm_mpi.c -- ranks that are processes of an MPI job, by Open MPI, loaded when it is asked for.
 *
 * Nothing here is compiled against mpi.h: the handles of Open MPI are pointers to objects that the library
 * exports by name (ompi_mpi_comm_world, ompi_mpi_byte), and have been since its first version. So one
 * libpolar serves machines with and without MPI, and the cluster's own Open MPI is taken. Other MPIs have
 * other handles and are refused; polar_comm_create takes an exchange over any of them.
 *
 * Messages are sent and received without blocking and polled, so that a rank can give up: at a timeout, or
 * when the program is told to end (mpirun does that where one rank has died). No call blocks, so two threads
 * can wait for the others at once, one with messages aside (another tag), with one of them inside MPI at a
 * time, which is all that is asked of it (MPI_THREAD_SERIALIZED).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/transport.h"
#include "device/backend.h"

#define MOST_BYTES ((size_t)1 << 30) /* of one message: counts are int */
#define TAG        271               /* and the next: those aside */
#define GRACE      0.5 /* seconds from being told to end to giving up: less than mpirun's second */

enum { MPI_SERIALIZED = 2, MPI_ERROR_TEXT = 512 };

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* held within MPI */
    int there, ours;      /* all of these were found; we initialised it */
    int (*Initialized)(int *flag);
    int (*Finalized)(int *flag);
    int (*Init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*Finalize)(void);
    int (*Comm_rank)(void *comm, int *rank);
    int (*Comm_size)(void *comm, int *size);
    int (*Comm_dup)(void *comm, void **out);
    int (*Comm_free)(void **comm);
    int (*Comm_set_errhandler)(void *comm, void *handler);
    int (*Isend)(const void *data, int count, void *type, int to, int tag, void *comm, void **request);
    int (*Irecv)(void *data, int count, void *type, int from, int tag, void *comm, void **request);
    int (*Testall)(int count, void **requests, int *flag, void *statuses);
    int (*Error_string)(int error, char *text, int *length);
    void *world, *byte, *errors_return;
} mpi = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void load(void)
{
    static const char *const names[] = {"libmpi.so.40", "libmpi.so"};
    const struct {
        void **at;
        const char *name;
    } wanted[] = {
        {(void **)&mpi.Initialized, "MPI_Initialized"},
        {(void **)&mpi.Finalized, "MPI_Finalized"},
        {(void **)&mpi.Init_thread, "MPI_Init_thread"},
        {(void **)&mpi.Finalize, "MPI_Finalize"},
        {(void **)&mpi.Comm_rank, "MPI_Comm_rank"},
        {(void **)&mpi.Comm_size, "MPI_Comm_size"},
        {(void **)&mpi.Comm_dup, "MPI_Comm_dup"},
        {(void **)&mpi.Comm_free, "MPI_Comm_free"},
        {(void **)&mpi.Isend, "MPI_Isend"},
        {(void **)&mpi.Irecv, "MPI_Irecv"},
        {(void **)&mpi.Testall, "MPI_Testall"},
        {(void **)&mpi.Error_string, "MPI_Error_string"},
        {(void **)&mpi.Comm_set_errhandler, "MPI_Comm_set_errhandler"},
        {&mpi.world, "ompi_mpi_comm_world"},
        {&mpi.byte, "ompi_mpi_byte"},
        {&mpi.errors_return, "ompi_mpi_errors_return"},
    };
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL); /* its plugins look for its symbols */
    mpi.there = library != NULL;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && library; i++) {
        *wanted[i].at = dlsym(library, wanted[i].name);
        mpi.there &= *wanted[i].at != NULL;
    }
}

typedef struct world {
    void *comm; /* a duplicate of MPI_COMM_WORLD: no message of the program's meets ours */
    polar_comm *of;
    double timeout;
    int rank, size, failed, tag;
    void **requests;
    size_t room;
} world;

static polar_status mpi_fail(int error, const char *what)
{
    char text[MPI_ERROR_TEXT] = "";
    int length = 0;
    if (mpi.Error_string(error, text, &length)) snprintf(text, sizeof text, "error %d", error);
    return PL_FAIL(POLAR_E_IO, "MPI: %s: %s", what, text);
}

#define TRY_MPI(call, what)                        \
    do {                                           \
        pthread_mutex_lock(&mpi.lock);             \
        int error_ = (call);                       \
        pthread_mutex_unlock(&mpi.lock);           \
        if (error_) return mpi_fail(error_, what); \
    } while (0)

/* All are done, or somebody is gone. */
static polar_status wait_all(world *w, int count)
{
    double begun = pl_clock_seconds(), told = 0;
    for (int64_t turn = 0;; turn++) {
        int done = 0;
        TRY_MPI(mpi.Testall(count, w->requests, &done, NULL), "waiting for the other ranks");
        if (done) return POLAR_OK;
        double now = pl_clock_seconds();
        PL_NEED(w->timeout <= 0 || now - begun < w->timeout, POLAR_E_IO,
                "rank %d of %d waited %g s for the others: one of them is gone or stuck", w->rank, w->size,
                w->timeout);
        if (!told && w->of->stop && atomic_load(w->of->stop)) told = now;
        PL_NEED(!told || now - told < GRACE, POLAR_E_IO,
                "rank %d of %d was told to end while it waited for the others: one of them is gone, or all "
                "are to stop",
                w->rank, w->size);
        if (turn > 2000) nanosleep(&(struct timespec){0, turn > 20000 ? 1000000 : 50000}, NULL);
    }
}

static size_t messages(size_t bytes)
{
    return (bytes + MOST_BYTES - 1) / MOST_BYTES;
}

/* The messages of one part, of MOST_BYTES or less. */
static polar_status post(world *w, int *count, char *data, size_t bytes, int rank, int sends)
{
    for (size_t at = 0; at < bytes; at += MOST_BYTES) {
        int n = (int)(bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES);
        void **request = &w->requests[(*count)++];
        if (sends) TRY_MPI(mpi.Isend(data + at, n, mpi.byte, rank, w->tag, w->comm, request), "sending");
        else TRY_MPI(mpi.Irecv(data + at, n, mpi.byte, rank, w->tag, w->comm, request), "receiving");
    }
    return POLAR_OK;
}

static polar_status exchange_all(world *w, const polar_comm_parts *recv, const polar_comm_parts *send)
{
    size_t wanted = 0;
    int count = 0;
    for (int r = 0; r < w->size; r++) wanted += messages(recv->bytes[r]) + messages(send->bytes[r]);
    if (wanted > w->room) {
        void **larger = pl_calloc(wanted, sizeof *larger);
        PL_NEED(larger, POLAR_E_NOMEM, "%zu messages", wanted);
        pl_free(w->requests);
        w->requests = larger;
        w->room = wanted;
    }
    for (int k = 1; k < w->size; k++) { /* each begins with its neighbour, so that nobody is sent to by all */
        int from = (w->rank + w->size - k) % w->size;
        PL_TRY(post(w, &count, (char *)recv->data + recv->at[from], recv->bytes[from], from, 0));
    }
    for (int k = 1; k < w->size; k++) {
        int to = (w->rank + k) % w->size;
        PL_TRY(post(w, &count, (char *)send->data + send->at[to], send->bytes[to], to, 1));
    }
    return wait_all(w, count);
}

static int exchange(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    world *w = arg;
    (void)stream;
    polar_status st = exchange_all(w, recv, send);
    w->failed |= st != POLAR_OK;
    return (int)st;
}

/* After a failure nothing is finished: MPI_Finalize would wait for those who are gone, and a process that
 * ends without it tells mpirun to end the others. Messages under way keep their memory. */
static void leave(void *arg)
{
    world *w = arg;
    int over = 1;
    w->failed |= w->of->broken != POLAR_OK;
    if (!w->failed && w->tag == TAG && !mpi.Finalized(&over) && !over) {
        mpi.Comm_free(&w->comm);
        if (mpi.ours) mpi.Finalize();
    }
    if (w->failed) return;
    pl_free(w->requests);
    pl_free(w);
}

static polar_status set_option(void *arg, const char *key, const char *value)
{
    char *end;
    double *timeout = arg;
    PL_NEED(!strcmp(key, "timeout"), POLAR_E_ARG, "mpi has no option '%s': it has timeout=SECONDS", key);
    *timeout = strtod(value, &end);
    PL_NEED(*value && !*end && *timeout >= 0 && *timeout <= 1e9, POLAR_E_ARG,
            "mpi:timeout wants seconds, 0 for none, not '%s'", value);
    return POLAR_OK;
}

static polar_status begin(world *w)
{
    int begun = 0, over = 0, level = 0;
    TRY_MPI(mpi.Finalized(&over), "asking whether it is over");
    PL_NEED(!over, POLAR_E_STATE, "MPI was finalised in this process and cannot begin again");
    TRY_MPI(mpi.Initialized(&begun), "asking whether it has begun");
    if (!begun) {
        TRY_MPI(mpi.Init_thread(NULL, NULL, MPI_SERIALIZED, &level), "beginning");
        mpi.ours = 1;
    }
    TRY_MPI(mpi.Comm_dup(mpi.world, &w->comm), "a communicator of our own");
    TRY_MPI(mpi.Comm_set_errhandler(w->comm, mpi.errors_return), "setting how errors are told");
    TRY_MPI(mpi.Comm_rank(w->comm, &w->rank), "asking for the rank");
    TRY_MPI(mpi.Comm_size(w->comm, &w->size), "asking for the number of ranks");
    return POLAR_OK;
}

static polar_status make(polar_comm **out, world *w)
{
    const polar_comm_funcs f = {sizeof f, w->rank, w->size, POLAR_COMM_HOST, 0, w, exchange, leave, NULL};
    PL_TRY(pl_comm_make(out, &f, "mpi", 0));
    w->of = *out;
    return POLAR_OK;
}

polar_status pl_comm_open_mpi(polar_comm **out, const char *options)
{
    double timeout = 600;
    if (*options) PL_TRY(pl_device_options("mpi", options, set_option, &timeout));
    pthread_once(&mpi.once, load);
    PL_NEED(mpi.there, POLAR_E_UNSUPPORTED,
            "no Open MPI: libmpi.so.40 could not be loaded, or is another MPI (on Debian: apt install "
            "openmpi-bin; others by polar_comm_create)");
    world *w = pl_calloc(1, sizeof *w), *aside = pl_calloc(1, sizeof *aside);
    polar_status st = w && aside ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "an MPI communicator");
    if (st == POLAR_OK) {
        w->timeout = timeout;
        w->tag = TAG;
        st = begin(w);
    }
    if (st == POLAR_OK) st = make(out, w);
    if (st == POLAR_OK) {
        *aside = *w;
        aside->tag = TAG + 1;
        st = make(&(*out)->aside, aside);
        if (st == POLAR_OK) return st;
        polar_comm_close(*out);
        *out = NULL;
        w = NULL;
    }
    pl_free(w);
    pl_free(aside);
    return st;
}
