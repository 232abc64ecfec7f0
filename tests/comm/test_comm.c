/* test_comm.c -- communicators: exchanges of unequal parts, broadcasts, sums that do not depend on the number
 * of ranks, and what becomes of the others when a rank does not come.
 *
 *     test_comm DEVICE          threads as ranks
 *     mpirun -n 3 test_comm DEVICE mpi
 *     test_comm cuda:0 nccl     processes as ranks, all on this GPU
 */
#include <stdatomic.h>
#include <string.h>

#include "polar/polar.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "device/queue.h"
#include "rank_processes.h"
#include "rank_threads.h"

enum { N_MOST = 1000, LEAVES_MOST = 12 };

static const char *device;
static _Atomic int64_t wrong;

static void want(int ok, const char *what, int rank)
{
    if (ok) return;
    wrong++;
    printf("  rank %d: %s does not hold (%s)\n", rank, what, polar_error_message());
}
#define WANT(...) want((__VA_ARGS__) ? 1 : 0, #__VA_ARGS__, polar_comm_rank(comm))

/* ---- exchanges ---------------------------------------------------------------------------------- */

static size_t part_bytes(int from, int to)
{
    return (size_t)((from * 7 + to * 3) % 11) * 13; /* none for some, odd numbers for others */
}

static unsigned char part_byte(int from, int to, size_t i)
{
    return (unsigned char)(from * 31 + to * 17 + (int)i * 5 + 1);
}

/* send: what this rank has for the others, or what it should have got */
static size_t fill_parts(unsigned char *data, size_t *at, size_t *bytes, int rank, int size, int send)
{
    size_t used = 3;
    for (int r = 0; r < size; r++) {
        int from = send ? rank : r, to = send ? r : rank;
        at[r] = used;
        bytes[r] = part_bytes(from, to);
        for (size_t i = 0; i < bytes[r]; i++) data[used++] = part_byte(from, to, i);
        used += 2; /* gaps, which stay as they are */
    }
    return used;
}

static void exchange(polar_comm *comm, polar_device *dev, polar_queue *q)
{
    enum { ROOM = 64 * 160 };
    static _Thread_local unsigned char out[ROOM], wanted[ROOM], got[ROOM];
    size_t out_at[64], out_bytes[64], in_at[64], in_bytes[64], sent = 0;
    int rank = polar_comm_rank(comm), size = polar_comm_size(comm);
    void *a = out, *b = got;
    memset(wanted, 0xee, sizeof wanted);
    memset(got, 0xee, sizeof got);
    memset(out, 0, sizeof out);
    fill_parts(out, out_at, out_bytes, rank, size, 1);
    fill_parts(wanted, in_at, in_bytes, rank, size, 0);
    if (q) {
        TEST_TRY(polar_device_alloc(dev, &a, ROOM));
        TEST_TRY(polar_device_alloc(dev, &b, ROOM));
        polar_queue_upload(q, a, out, ROOM);
        polar_queue_upload(q, b, got, ROOM);
    }
    int64_t before = polar_comm_bytes_sent(comm);
    WANT(polar_comm_all_to_all(comm, q, &(polar_comm_parts){b, in_at, in_bytes},
                               &(polar_comm_parts){a, out_at, out_bytes}) == POLAR_OK);
    if (q) polar_queue_download(q, got, b, ROOM);
    if (q) WANT(polar_queue_sync(q) == POLAR_OK);
    WANT(!memcmp(got, wanted, sizeof got));
    for (int r = 0; r < size; r++)
        if (r != rank) sent += out_bytes[r];
    WANT(polar_comm_bytes_sent(comm) - before == (int64_t)sent);
    if (q) polar_device_free(dev, a), polar_device_free(dev, b);
}

static void broadcast(polar_comm *comm, polar_device *dev, polar_queue *q)
{
    int size = polar_comm_size(comm), rank = polar_comm_rank(comm);
    for (int root = 0; root < size; root++) {
        float mine[17], back[17];
        void *data = mine;
        for (int i = 0; i < 17; i++) mine[i] = (float)(rank * 100 + i);
        if (q) {
            TEST_TRY(polar_device_alloc(dev, &data, sizeof mine));
            polar_queue_upload(q, data, mine, sizeof mine);
        }
        WANT(polar_comm_broadcast(comm, q, data, sizeof mine, root) == POLAR_OK);
        if (q) polar_queue_download(q, back, data, sizeof back);
        if (q) WANT(polar_queue_sync(q) == POLAR_OK);
        if (!q) memcpy(back, mine, sizeof back);
        int same = 1;
        for (int i = 0; i < 17; i++) same &= back[i] == (float)(root * 100 + i);
        WANT(same);
        if (q) polar_device_free(dev, data);
    }
}

/* ---- sums --------------------------------------------------------------------------------------- */

/* Numbers whose sum depends on the order of its additions. */
static double leaf_value(int64_t leaf, int64_t i)
{
    return sin((double)(leaf * 131 + i * 17 + 1)) * pow(10, (double)((leaf * 5 + i) % 9 - 4));
}

/* T(a, b) from its definition. */
static double tree(int64_t a, int64_t b, int64_t i, int f32)
{
    int64_t half = 1;
    if (b - a == 1) return f32 ? (double)(float)leaf_value(a, i) : leaf_value(a, i);
    while (2 * half < b - a) half *= 2;
    double left = tree(a, a + half, i, f32), right = tree(a + half, b, i, f32);
    return f32 ? (double)((float)left + (float)right) : left + right;
}

static double in_a_row(int64_t leaves, int64_t i)
{
    float sum = 0;
    for (int64_t k = 0; k < leaves; k++) sum += (float)leaf_value(k, i);
    return (double)sum;
}

typedef struct sum_case {
    int64_t n, leaves;
    polar_dtype dtype;
    int owner; /* -1: all */
} sum_case;

static int64_t sum_once(polar_comm *comm, polar_device *dev, polar_queue *q, const sum_case *c)
{
    int64_t first, count, given = c->leaves ? c->leaves : polar_comm_size(comm), differ = 0;
    int f32 = c->dtype == POLAR_DTYPE_F32;
    size_t item = polar_dtype_size(c->dtype);
    TEST_TRY(polar_comm_share(comm, given, &first, &count));
    size_t bytes = (size_t)((count ? count : 1) * c->n) * item;
    char *host = pl_calloc(1, bytes + 8);
    void *data = host;
    for (int64_t k = 0; k < count * c->n; k++) {
        double x = leaf_value(first + k / c->n, k % c->n);
        if (f32) ((float *)host)[k] = (float)x;
        else ((double *)host)[k] = x;
    }
    if (q) {
        TEST_TRY(polar_device_alloc(dev, &data, bytes + 8));
        polar_queue_upload(q, data, host, bytes);
    }
    if (c->owner < 0) WANT(polar_comm_all_reduce(comm, q, data, c->n, c->dtype, c->leaves) == POLAR_OK);
    else WANT(polar_comm_reduce(comm, q, data, c->n, c->dtype, c->leaves, c->owner) == POLAR_OK);
    if (q) polar_queue_download(q, host, data, (size_t)c->n * item);
    if (q) WANT(polar_queue_sync(q) == POLAR_OK);
    for (int64_t i = 0; i < c->n && (c->owner < 0 || c->owner == polar_comm_rank(comm)); i++)
        differ += (f32 ? (double)((float *)host)[i] : ((double *)host)[i]) != tree(0, given, i, f32);
    if (q) polar_device_free(dev, data);
    pl_free(host);
    return differ;
}

static void sums(polar_comm *comm, polar_device *dev, polar_queue *q)
{
    static const int64_t ns[] = {0, 1, 7, N_MOST}, leaves[] = {0, 1, 3, 8, LEAVES_MOST};
    for (int f64 = 0; f64 < 2; f64++)
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 5; k++) {
                sum_case c = {ns[i], leaves[k], f64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32, -1};
                wrong += sum_once(comm, dev, q, &c);
                c.owner = (int)(i + k) % polar_comm_size(comm);
                wrong += sum_once(comm, dev, q, &c);
            }
}

/* Powers of two: an all-reduce sends what a ring would, 2 (N - 1) / N of the data. */
static void bytes_of_sums(polar_comm *comm)
{
    enum { N = 960 };
    static _Thread_local float data[8 * N];
    int size = polar_comm_size(comm);
    int64_t before = polar_comm_bytes_sent(comm);
    if (size & (size - 1) || size > 8) return;
    WANT(polar_comm_all_reduce(comm, NULL, data, N, POLAR_DTYPE_F32, 8) == POLAR_OK);
    WANT(polar_comm_bytes_sent(comm) - before == 2 * (size - 1) * (int64_t)sizeof(float) * N / size);
}

static void everything(polar_comm *comm, void *arg)
{
    polar_device *dev;
    polar_queue *q;
    (void)arg;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    for (int host = 0; host < 2; host++) {
        exchange(comm, dev, host ? NULL : q);
        broadcast(comm, dev, host ? NULL : q);
        sums(comm, dev, host ? NULL : q);
    }
    bytes_of_sums(comm);
    polar_queue_destroy(q);
    polar_device_close(dev);
}

/* ---- a table of the caller's --------------------------------------------------------------------- */

static int pass_on(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    return stream || polar_comm_all_to_all(arg, NULL, recv, send) != POLAR_OK;
}

static int refuse(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    (void)arg, (void)recv, (void)send, (void)stream;
    return 5;
}

static void by_table(polar_comm *inner, void *arg)
{
    polar_comm_funcs f = POLAR_COMM_FUNCS_INIT;
    polar_comm *comm;
    f.rank = polar_comm_rank(inner), f.size = polar_comm_size(inner);
    f.arg = inner;
    f.exchange = pass_on;
    TEST_TRY(polar_comm_create(&comm, &f));
    WANT(!strcmp(polar_comm_name(comm), "own"));
    everything(comm, arg);
    polar_comm_close(comm);
}

static void test_refusing_table(void)
{
    polar_comm_funcs f = POLAR_COMM_FUNCS_INIT;
    polar_comm *comm;
    float x = 1;
    f.size = 2;
    f.exchange = refuse;
    TEST_TRY(polar_comm_create(&comm, &f));
    polar_status st = polar_comm_all_reduce(comm, NULL, &x, 1, POLAR_DTYPE_F32, 0);
    test_true("a table's own error is told", st == POLAR_E_IO && strstr(polar_error_message(), "with 5"),
              "%s", polar_error_message());
    st = polar_comm_broadcast(comm, NULL, &x, sizeof x, 0);
    test_true("  and stays", st == POLAR_E_IO && strstr(polar_error_message(), "earlier failure"), "%s",
              polar_error_message());
    polar_comm_close(comm);
}

/* ---- a rank that does not come ------------------------------------------------------------------ */

static _Atomic int told;

/* Rank 1 stays away. */
static void late(polar_comm *comm, void *arg)
{
    float x = 1;
    (void)arg;
    if (polar_comm_rank(comm) == 1) {
        while (told < polar_comm_size(comm) - 1) sched_yield();
        return;
    }
    told += polar_comm_all_reduce(comm, NULL, &x, 1, POLAR_DTYPE_F32, 0) == POLAR_E_IO &&
            strstr(polar_error_message(), "waited") &&
            polar_comm_broadcast(comm, NULL, &x, sizeof x, 0) == POLAR_E_IO;
}

/* Rank 1 leaves at once. */
static void gone(polar_comm *comm, void *arg)
{
    float x = 1;
    (void)arg;
    if (polar_comm_rank(comm) == 1) {
        struct timespec t = {0, 50000000};
        nanosleep(&t, NULL); /* the others wait by now, or find it gone: both end by a sentence */
        return;
    }
    told += polar_comm_all_reduce(comm, NULL, &x, 1, POLAR_DTYPE_F32, 0) == POLAR_E_IO;
}

static void unlike(polar_comm *comm, void *arg)
{
    size_t at[2] = {0, 0}, in[2] = {0, 0}, out[2] = {0, 0};
    char data[8] = {0}, back[8];
    int rank = polar_comm_rank(comm);
    (void)arg;
    out[1 - rank] = 4;
    in[1 - rank] = rank ? 4 : 3;
    polar_status st = polar_comm_all_to_all(comm, NULL, &(polar_comm_parts){back, at, in},
                                            &(polar_comm_parts){data, at, out});
    told += rank ? st == POLAR_OK : st == POLAR_E_SHAPE && strstr(polar_error_message(), "expects 3 bytes");
}

static void test_failures(void)
{
    polar_comm *comms[3];
    told = 0;
    TEST_TRY(polar_comm_open_threads(comms, 3, 0.2));
    double begun = pl_clock_seconds();
    ranks_run_on(comms, 3, late, NULL);
    test_true("a rank that does not come: the others are told", told == 2 && pl_clock_seconds() - begun < 30,
              "%d of 2", told);
    told = 0;
    TEST_TRY(polar_comm_open_threads(comms, 3, 20));
    ranks_run_on(comms, 3, gone, NULL);
    test_true("a rank that closes: the others are told", told == 2, "%d of 2", told);
    told = 0;
    TEST_TRY(polar_comm_open_threads(comms, 2, 20));
    ranks_run_on(comms, 2, unlike, NULL);
    test_true("parts of unlike lengths are refused", told == 2, "%d of 2", told);
}

/* ---- processes, and NCCL between them ------------------------------------------------------------ */

static int64_t everything_here(polar_comm *comm, void *arg)
{
    everything(comm, arg);
    return wrong;
}

enum { CAPTURED = 300, REPLAYS = 4 };

typedef struct captured {
    polar_comm *comm;
    void *data;
    _Atomic int64_t failed;
} captured;

static void enqueue_sum(pl_queue *q, void *arg)
{
    captured *c = arg;
    c->failed += polar_comm_all_reduce(c->comm, q, c->data, CAPTURED, POLAR_DTYPE_F32, 0) != POLAR_OK;
}

/* Sums captured once and replayed: of N ranks run k has N^(k - 1) times the sum of what they began with,
 * which is exact. */
static int64_t in_a_graph(polar_comm *comm, void *arg)
{
    polar_device *dev;
    polar_queue *q;
    pl_graph *graph;
    float x[CAPTURED];
    captured c = {.comm = comm};
    int64_t failed = 0;
    int size = polar_comm_size(comm);
    (void)arg;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(polar_device_alloc(dev, &c.data, sizeof x));
    TEST_TRY(pl_graph_create(&graph, dev));
    for (int i = 0; i < CAPTURED; i++) x[i] = (float)(polar_comm_rank(comm) * 5 + i);
    polar_queue_upload(q, c.data, x, sizeof x);
    for (int k = 0; k < REPLAYS; k++) TEST_TRY(pl_graph_run(graph, q, enqueue_sum, &c));
    polar_queue_download(q, x, c.data, sizeof x);
    TEST_TRY(polar_queue_sync(q));
    for (int i = 0; i < CAPTURED; i++)
        failed += x[i] != (float)(pow(size, REPLAYS - 1) * (5 * size * (size - 1) / 2 + size * i));
    pl_graph_destroy(graph);
    polar_device_free(dev, c.data);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return failed + c.failed;
}

/* Two ranks that both say they are of this machine: NCCL wants a GPU for each, and says so. */
static int64_t one_gpu_for_two(polar_comm *via, void *arg)
{
    polar_device *dev;
    polar_comm *comm;
    (void)arg;
    TEST_TRY(polar_device_open(&dev, device));
    polar_status st = polar_comm_open_nccl(&comm, dev, via);
    int refused = st == POLAR_E_DEVICE && !comm && strstr(polar_error_message(), "each wants a GPU");
    printf("  rank %d is told: %s\n", polar_comm_rank(via), polar_error_message());
    polar_device_close(dev);
    return !refused;
}

/* What is short comes first: between processes that share a GPU a message takes milliseconds. */
static int nccl_tests(void)
{
    test_exact("2 ranks on one GPU of one machine: refused", processes_run(2, one_gpu_for_two, NULL));
    test_exact("1 rank by NCCL: a sum in a graph", processes_run_nccl(1, device, in_a_graph, NULL));
    test_exact("2 ranks by NCCL: a sum in a graph", processes_run_nccl(2, device, in_a_graph, NULL));
    for (int ranks = 1; ranks <= 4; ranks++) {
        char what[64];
        snprintf(what, sizeof what, "%d ranks by NCCL: exchanges, broadcasts, sums", ranks);
        test_exact(what, processes_run_nccl(ranks, device, everything_here, NULL));
    }
    return test_end();
}

/* The promise would be empty if every order gave the same bits. */
static void test_order_matters(void)
{
    int64_t differ = 0;
    for (int64_t i = 0; i < N_MOST; i++) differ += in_a_row(8, i) != tree(0, 8, i, 1);
    test_true("another order gives other bits", differ > N_MOST / 10, "%lld of %d sums", (long long)differ,
              N_MOST);
}

int main(int argc, char **argv)
{
    device = test_begin(argc, argv);
    int mpi = argc > 2 && !strcmp(argv[2], "mpi");
    int64_t blocks = pl_alloc_live();
    if (argc > 2 && !strcmp(argv[2], "nccl")) return nccl_tests();
    if (mpi) {
        polar_comm *comm;
        TEST_TRY(polar_comm_open(&comm, "auto"));
        char what[64];
        snprintf(what, sizeof what, "rank %d of %d by %s", polar_comm_rank(comm), polar_comm_size(comm),
                 polar_comm_name(comm));
        everything(comm, NULL);
        test_true(what, !wrong && !strcmp(polar_comm_name(comm), "mpi"), "%lld wrong", (long long)wrong);
        polar_comm_close(comm);
        return test_end();
    }
    test_exact("3 processes by a table of the caller's", processes_run(3, everything_here, NULL));
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        char what[64];
        snprintf(what, sizeof what, "%d threads: exchanges, broadcasts, sums", ranks[i]);
        wrong = 0;
        ranks_run(ranks[i], everything, NULL);
        test_exact(what, wrong);
    }
    wrong = 0;
    ranks_run(3, by_table, NULL);
    test_exact("3 ranks by a table of the caller's", wrong);
    polar_comm *self;
    TEST_TRY(polar_comm_open(&self, "self"));
    wrong = 0;
    everything(self, NULL);
    polar_comm_close(self);
    test_exact("one rank by itself", wrong);
    test_order_matters();
    test_refusing_table();
    test_failures();
    test_exact("blocks left", pl_alloc_live() - blocks);
    return test_end();
}
