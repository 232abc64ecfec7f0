/* comm.c -- communicators: making them, one all-to-all for host and device memory, and what is made of it.
 * The transports are tables of one function (polar_comm_funcs), ours as the caller's. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/launch_env.h"
#include "base/sized.h"
#include "comm/tree_sum.h"
#include "comm/transport.h"
#include "device/backend.h"

enum { RECV_AT, RECV_BYTES, SEND_AT, SEND_BYTES, OTHERS_RECV, OTHERS_SEND, TABLES };

/* ---- making them -------------------------------------------------------------------------------- */

polar_status pl_comm_make(polar_comm **out, const polar_comm_funcs *f, const char *name, int own)
{
    polar_comm *c = pl_calloc(1, sizeof *c);
    *out = NULL;
    size_t *at = pl_calloc((size_t)TABLES * (size_t)f->size, sizeof *at);
    if (!c || !at) {
        pl_free(c);
        pl_free(at);
        return PL_FAIL(POLAR_E_NOMEM, "a communicator of %d ranks", f->size);
    }
    c->f = *f;
    c->name = name;
    c->own = own;
    c->at = at;
    *out = c;
    return POLAR_OK;
}

void pl_comm_set_stop(polar_comm *comm, const atomic_int *stop)
{
    comm->stop = stop;
    if (comm->aside) pl_comm_set_stop(comm->aside, stop);
    if (comm->f.host) pl_comm_set_stop(comm->f.host, stop);
}

void pl_comm_spoil(polar_comm *comm, polar_status st, const char *why)
{
    if (comm->broken != POLAR_OK) return;
    comm->broken = st;
    snprintf(comm->why, sizeof comm->why, "%s", why);
}

void pl_comm_abandon(polar_comm *comm)
{
    pl_comm_spoil(comm, POLAR_E_STATE, "this rank has given up");
    if (comm->f.host) pl_comm_abandon(comm->f.host);
}

polar_status polar_comm_create(polar_comm **out, const polar_comm_funcs *funcs)
{
    polar_comm_funcs f = {0};
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(funcs);
    PL_TRY(pl_sized_read("polar_comm_funcs", &f, sizeof f, funcs, funcs->struct_size,
                         PL_SIZE_UP_TO(polar_comm_funcs, host)));
    PL_NEED(f.size >= 1 && f.size <= PL_COMM_MOST_RANKS && f.rank >= 0 && f.rank < f.size, POLAR_E_ARG,
            "rank %d of %d: there are 1 to %d ranks, numbered from 0", f.rank, f.size, PL_COMM_MOST_RANKS);
    PL_NEED(f.memory == POLAR_COMM_HOST || f.memory == POLAR_COMM_DEVICE, POLAR_E_ARG,
            "polar_comm_funcs.memory is %d, which is none", (int)f.memory);
    PL_NEED(f.reserved == 0, POLAR_E_ARG, "polar_comm_funcs.reserved is %d; it must be 0", f.reserved);
    PL_NEED(f.exchange, POLAR_E_ARG, "polar_comm_funcs.exchange is NULL: it is what moves the bytes");
    PL_NEED(!f.host || (polar_comm_rank(f.host) == f.rank && polar_comm_size(f.host) == f.size), POLAR_E_ARG,
            "polar_comm_funcs.host is rank %d of %d, this is rank %d of %d", polar_comm_rank(f.host),
            polar_comm_size(f.host), f.rank, f.size);
    return pl_comm_make(out, &f, "own", 1);
}

static int alone(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    (void)arg, (void)recv, (void)send, (void)stream;
    return POLAR_OK;
}

polar_status polar_comm_open(polar_comm **out, const char *name)
{
    const polar_comm_funcs self = {sizeof self, 0, 1, POLAR_COMM_HOST, 0, NULL, alone, NULL, NULL};
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(name);
    size_t head = strcspn(name, ":");
    int automatic = !strcmp(name, "auto");
    pl_launch launch = {.size = 1};
    if (automatic) PL_TRY(pl_launch_read(&launch));
    if (!strcmp(name, "self") || (automatic && launch.size == 1)) return pl_comm_make(out, &self, "self", 0);
    PL_NEED(automatic || (head == 3 && !strncmp(name, "mpi", 3)), POLAR_E_ARG,
            "no communicator '%s': there are auto, self, mpi, mpi:timeout=SECONDS", name);
    return pl_comm_open_mpi(out, automatic || !name[head] ? "" : name + head + 1);
}

void polar_comm_close(polar_comm *comm)
{
    if (!comm) return;
    polar_comm_close(comm->aside);
    if (comm->f.release) comm->f.release(comm->f.arg);
    pl_free(comm->at);
    pl_free(comm->stage);
    pl_free(comm);
}

int polar_comm_rank(const polar_comm *comm)
{
    return comm ? comm->f.rank : 0;
}

int polar_comm_size(const polar_comm *comm)
{
    return comm ? comm->f.size : 0;
}

const char *polar_comm_name(const polar_comm *comm)
{
    return comm ? comm->name : "";
}

int64_t polar_comm_bytes_sent(const polar_comm *comm)
{
    return comm ? comm->sent + polar_comm_bytes_sent(comm->aside) : 0;
}

void pl_comm_share_of(int64_t total, int rank, int size, int64_t *first, int64_t *count)
{
    int64_t whole = total / size, rest = total % size; /* r total / size without its overflow */
    *first = whole * rank + rest * rank / size;
    *count = whole * (rank + 1) + rest * (rank + 1) / size - *first;
}

polar_status polar_comm_share(const polar_comm *comm, int64_t total, int64_t *first, int64_t *count)
{
    PL_NEED_ARG(comm);
    PL_NEED_ARG(first);
    PL_NEED_ARG(count);
    PL_NEED(total >= 0, POLAR_E_ARG, "a share of %lld things", (long long)total);
    pl_comm_share_of(total, comm->f.rank, comm->f.size, first, count);
    return POLAR_OK;
}

/* ---- the all-to-all ----------------------------------------------------------------------------- */

/* The first failure stays: whoever is out of step can only exchange nonsense. */
static polar_status fail(polar_comm *c, polar_status st)
{
    pl_comm_spoil(c, st, pl_fail_sentence());
    return st;
}

static polar_status check(polar_comm *c, pl_queue *q)
{
    PL_NEED_ARG(c);
    PL_NEED(c->broken == POLAR_OK, c->broken, "the communicator is broken since an earlier failure: %s",
            c->why);
    if (!q) return POLAR_OK;
    if (q->error != POLAR_OK) return pl_fail_again(q->error, q->message);
    PL_NEED(c->f.memory == POLAR_COMM_DEVICE || !pl_queue_in_capture(q), POLAR_E_STATE,
            "an exchange by '%s' waits for the other ranks and cannot be captured in a graph", c->name);
    return POLAR_OK;
}

/* Calls the transport and turns its answer into a status with a sentence. */
static polar_status carry(polar_comm *c, const polar_comm_parts *recv, const polar_comm_parts *send,
                          void *stream)
{
    int nobody = c->f.size == 1 && c->f.memory == POLAR_COMM_HOST;
    int answer = nobody ? 0 : c->f.exchange(c->f.arg, recv, send, stream);
    for (int r = 0; r < c->f.size && !answer; r++)
        if (r != c->f.rank) c->sent += (int64_t)send->bytes[r];
    if (!answer) return POLAR_OK;
    if (!c->own) return fail(c, (polar_status)answer);
    return fail(c, PL_FAIL(POLAR_E_IO, "rank %d of %d: the caller's exchange of bytes failed with %d",
                           c->f.rank, c->f.size, answer));
}

/* Host memory on both sides: this rank's own part is copied, the transport does not see it. */
static polar_status exchange_host(polar_comm *c, const polar_comm_parts *recv, const polar_comm_parts *send)
{
    int me = c->f.rank;
    size_t n = (size_t)c->f.size, *in = c->at + OTHERS_RECV * n, *out = c->at + OTHERS_SEND * n;
    memcpy(in, recv->bytes, n * sizeof *in);
    memcpy(out, send->bytes, n * sizeof *out);
    if (in[me]) memcpy((char *)recv->data + recv->at[me], (const char *)send->data + send->at[me], in[me]);
    in[me] = out[me] = 0;
    const polar_comm_parts others_in = {recv->data, recv->at, in}, others_out = {send->data, send->at, out};
    return carry(c, &others_in, &others_out, NULL);
}

static size_t extent(const polar_comm_parts *p, int size)
{
    size_t end = 0;
    for (int r = 0; r < size; r++)
        if (p->bytes[r] && p->at[r] + p->bytes[r] > end) end = p->at[r] + p->bytes[r];
    return end;
}

/* A host communicator and memory that the host cannot read: copied both ways. */
static polar_status exchange_staged(polar_comm *c, pl_queue *q, const polar_comm_parts *recv,
                                    const polar_comm_parts *send)
{
    size_t in = extent(recv, c->f.size), out = extent(send, c->f.size);
    if (in + out > c->stage_bytes) {
        pl_free(c->stage);
        c->stage = pl_alloc(in + out);
        c->stage_bytes = c->stage ? in + out : 0;
        PL_NEED(c->stage, POLAR_E_NOMEM, "%zu bytes for an exchange", in + out);
    }
    if (out) polar_queue_download(q, c->stage + in, send->data, out);
    PL_TRY(polar_queue_sync(q));
    PL_TRY(exchange_host(c, &(polar_comm_parts){c->stage, recv->at, recv->bytes},
                         &(polar_comm_parts){c->stage + in, send->at, send->bytes}));
    for (int r = 0; r < c->f.size; r++)
        polar_queue_upload(q, (char *)recv->data + recv->at[r], c->stage + recv->at[r], recv->bytes[r]);
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

polar_status polar_comm_all_to_all(polar_comm *comm, polar_queue *q, const polar_comm_parts *recv,
                                   const polar_comm_parts *send)
{
    PL_TRY(check(comm, q));
    PL_NEED_ARG(recv);
    PL_NEED_ARG(send);
    PL_NEED(recv->at && recv->bytes && send->at && send->bytes, POLAR_E_ARG,
            "an all-to-all without tables: at or bytes is NULL");
    int n = comm->f.size, me = comm->f.rank;
    PL_NEED(recv->bytes[me] == send->bytes[me], POLAR_E_SHAPE,
            "rank %d sends itself %zu bytes and receives %zu of them", me, send->bytes[me], recv->bytes[me]);
    PL_NEED((recv->data || !extent(recv, n)) && (send->data || !extent(send, n)), POLAR_E_ARG,
            "an all-to-all of some bytes: %s is NULL", recv->data ? "send.data" : "recv.data");
    if (!q && comm->f.memory == POLAR_COMM_DEVICE) {
        PL_NEED(comm->f.host, POLAR_E_UNSUPPORTED,
                "a communicator of device memory was given no other one for host memory");
        int64_t before = comm->f.host->sent;
        polar_status st = polar_comm_all_to_all(comm->f.host, NULL, recv, send);
        comm->sent += comm->f.host->sent - before;
        return st == POLAR_OK ? st : fail(comm, st);
    }
    if (!q) return exchange_host(comm, recv, send);
    if (q->dry) return POLAR_OK;
    const pl_backend *b = q->dev->backend;
    if (comm->f.memory == POLAR_COMM_DEVICE)
        return carry(comm, recv, send, b->queue_stream ? b->queue_stream(q) : NULL);
    if (b->mem_alloc != pl_host_mem_alloc) return exchange_staged(comm, q, recv, send);
    PL_TRY(polar_queue_sync(q));
    return exchange_host(comm, recv, send);
}

/* ---- what is made of it ------------------------------------------------------------------------- */

/* Tables of a call made here, all zero. */
static void parts_begin(polar_comm *c, polar_comm_parts *recv, polar_comm_parts *send, void *in, void *out)
{
    size_t n = (size_t)c->f.size;
    memset(c->at, 0, OTHERS_RECV * n * sizeof *c->at);
    *recv = (polar_comm_parts){in, c->at + RECV_AT * n, c->at + RECV_BYTES * n};
    *send = (polar_comm_parts){out, c->at + SEND_AT * n, c->at + SEND_BYTES * n};
}

static size_t *entry(polar_comm *c, int table, int rank)
{
    return &c->at[(size_t)table * (size_t)c->f.size + (size_t)rank];
}

polar_status polar_comm_broadcast(polar_comm *comm, polar_queue *q, void *data, size_t bytes, int root)
{
    polar_comm_parts recv, send;
    PL_TRY(check(comm, q));
    PL_NEED(root >= 0 && root < comm->f.size, POLAR_E_ARG, "a broadcast from rank %d of %d", root,
            comm->f.size);
    PL_NEED(data || !bytes, POLAR_E_ARG, "%s: data is NULL", __func__);
    parts_begin(comm, &recv, &send, data, data);
    for (int r = 0; r < comm->f.size && comm->f.rank == root; r++)
        if (r != root) *entry(comm, SEND_BYTES, r) = bytes;
    if (comm->f.rank != root) *entry(comm, RECV_BYTES, root) = bytes;
    return polar_comm_all_to_all(comm, q, &recv, &send);
}

polar_status pl_comm_gather(polar_comm *comm, void *all, const void *mine, size_t bytes)
{
    polar_comm_parts recv, send;
    PL_TRY(check(comm, NULL));
    parts_begin(comm, &recv, &send, all, (void *)mine);
    for (int r = 0; r < comm->f.size; r++) {
        *entry(comm, RECV_AT, r) = (size_t)r * bytes;
        *entry(comm, RECV_BYTES, r) = *entry(comm, SEND_BYTES, r) = bytes;
    }
    return polar_comm_all_to_all(comm, NULL, &recv, &send);
}

polar_status pl_comm_any(polar_comm *comm, int *flag)
{
    int *all = pl_calloc((size_t)comm->f.size, sizeof *all);
    PL_NEED(all, POLAR_E_NOMEM, "a flag of %d ranks", comm->f.size);
    polar_status st = pl_comm_gather(comm, all, flag, sizeof *flag);
    for (int r = 0; r < comm->f.size && st == POLAR_OK; r++) *flag |= all[r];
    pl_free(all);
    return st;
}

polar_status pl_comm_agree(polar_comm *comm, polar_status st, const char *what)
{
    int *all = pl_calloc((size_t)comm->f.size, sizeof *all), mine = (int)st, other = -1;
    char why[1024];
    snprintf(why, sizeof why, "%s", st == POLAR_OK ? "" : polar_error_message());
    polar_status told = all ? pl_comm_gather(comm, all, &mine, sizeof mine)
                            : PL_FAIL(POLAR_E_NOMEM, "the answers of %d ranks", comm->f.size);
    for (int r = 0; r < comm->f.size && told == POLAR_OK && other < 0; r++)
        if (all[r] != POLAR_OK) other = r;
    int code = other >= 0 ? all[other] : 0;
    pl_free(all);
    if (st != POLAR_OK) return pl_fail_again(st, why);
    PL_TRY(told);
    PL_NEED(other < 0, (polar_status)code, "%s failed on rank %d of %d (%s); its own sentence says why", what,
            other, comm->f.size, polar_status_name((polar_status)code));
    return POLAR_OK;
}

/* ---- sums --------------------------------------------------------------------------------------- */

/* Scratch of a sum: the queue's, or the host's. */
typedef struct room {
    pl_queue *q;
    pl_scratch_mark mark;
    char *data;
} room;

static polar_status room_take(room *out, pl_queue *q, size_t bytes)
{
    *out = (room){.q = q};
    if (q) out->mark = pl_scratch_begin(q);
    out->data = q ? pl_scratch_take(q, bytes ? bytes : 1) : pl_alloc(bytes ? bytes : 1);
    if (!out->data && q) return pl_fail_again(q->error, q->message);
    PL_NEED(out->data, POLAR_E_NOMEM, "%zu bytes for a sum over ranks", bytes);
    return POLAR_OK;
}

static void room_give(room *r)
{
    if (r->q) pl_scratch_end(r->q, r->mark);
    else pl_free(r->data);
}

static polar_status check_sum(polar_comm *c, pl_queue *q, const void *data, int64_t n, polar_dtype dtype,
                              int64_t *leaves)
{
    PL_TRY(check(c, q));
    PL_NEED(n >= 0 && n <= INT64_MAX / 64 && *leaves >= 0, POLAR_E_ARG, "a sum of %lld vectors of %lld",
            (long long)*leaves, (long long)n);
    PL_NEED(data || !n, POLAR_E_ARG, "a sum over ranks: data is NULL");
    PL_NEED(dtype == POLAR_DTYPE_F32 || dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE,
            "sums over ranks are of f32 or f64, not %s", polar_dtype_name(dtype));
    if (!*leaves) *leaves = c->f.size;
    return POLAR_OK;
}

/* This rank's leaves become its subtrees, at the front of data. */
static void sum_here(const polar_comm *c, pl_queue *q, void *data, int64_t n, polar_dtype dtype,
                     int64_t leaves)
{
    int64_t first, count;
    pl_tree_sum s = {.q = q, .slots = data, .n = n, .stride = n, .dtype = dtype};
    pl_comm_share_of(leaves, c->f.rank, c->f.size, &first, &count);
    for (int64_t k = 0; k < count; k++)
        pl_tree_sum_push(&s, (char *)data + (size_t)(k * n) * polar_dtype_size(dtype), dtype, first + k, 1);
}

static pl_tree tree_of(const polar_comm *c, int rank, int64_t leaves)
{
    int64_t first, count;
    pl_comm_share_of(leaves, rank, c->f.size, &first, &count);
    return pl_tree_of(first, count);
}

/* got holds the subtrees of all ranks, in order: out[0 .. n) is their sum, zero where there are none. */
static void sum_all(const polar_comm *c, pl_queue *q, char *got, void *out, int64_t n, polar_dtype dtype,
                    int64_t leaves)
{
    pl_tree_sum s = {.q = q, .slots = got, .n = n, .stride = n, .dtype = dtype};
    const size_t vector = (size_t)n * polar_dtype_size(dtype);
    char *piece = got; /* never behind the slot it goes to */
    for (int r = 0; r < c->f.size; r++) {
        pl_tree t = tree_of(c, r, leaves);
        for (int k = 0; k < t.depth; k++, piece += vector)
            pl_tree_sum_push(&s, piece, dtype, t.start[k], t.size[k]);
    }
    pl_tree_sum_fold(&s);
    if (q) PL_CALL(copy, q, .Y = pl_mat_dense(out, dtype, 1, 1, n), .X = pl_mat_dense(got, dtype, 1, 1, n));
    else memcpy(out, got, vector);
}

polar_status polar_comm_reduce(polar_comm *comm, polar_queue *q, void *data, int64_t n, polar_dtype dtype,
                               int64_t leaves, int owner)
{
    polar_comm_parts recv, send;
    room got;
    PL_TRY(check_sum(comm, q, data, n, dtype, &leaves));
    PL_NEED(owner >= 0 && owner < comm->f.size, POLAR_E_ARG, "a sum for rank %d of %d", owner, comm->f.size);
    const size_t vector = (size_t)n * polar_dtype_size(dtype);
    int me = comm->f.rank;
    size_t pieces = 0;
    sum_here(comm, q, data, n, dtype, leaves);
    parts_begin(comm, &recv, &send, NULL, data);
    *entry(comm, SEND_BYTES, owner) = (size_t)tree_of(comm, me, leaves).depth * vector;
    for (int r = 0; r < comm->f.size && me == owner; r++) {
        size_t depth = (size_t)tree_of(comm, r, leaves).depth;
        *entry(comm, RECV_AT, r) = pieces * vector;
        *entry(comm, RECV_BYTES, r) = depth * vector;
        pieces += depth;
    }
    PL_TRY(room_take(&got, q, pieces * vector));
    recv.data = got.data;
    polar_status st = polar_comm_all_to_all(comm, q, &recv, &send);
    if (st == POLAR_OK && me == owner) sum_all(comm, q, got.data, data, n, dtype, leaves);
    room_give(&got);
    return st;
}

/* Round k: every rank's subtree number k, of which each rank receives its share of the numbers. */
static polar_status scatter(polar_comm *c, pl_queue *q, char *got, char *data, int64_t n, polar_dtype dtype,
                            int64_t leaves, int k)
{
    polar_comm_parts recv, send;
    const size_t item = polar_dtype_size(dtype);
    int64_t first, count, mine;
    int have = tree_of(c, c->f.rank, leaves).depth;
    size_t before = 0;
    pl_comm_share_of(n, c->f.rank, c->f.size, &first, &mine);
    parts_begin(c, &recv, &send, got, data + (size_t)k * (size_t)n * item);
    for (int r = 0; r < c->f.size; r++) {
        size_t depth = (size_t)tree_of(c, r, leaves).depth;
        pl_comm_share_of(n, r, c->f.size, &first, &count);
        *entry(c, RECV_AT, r) = (before + (size_t)k) * (size_t)mine * item;
        *entry(c, RECV_BYTES, r) = (size_t)k < depth ? (size_t)mine * item : 0;
        *entry(c, SEND_AT, r) = (size_t)first * item;
        *entry(c, SEND_BYTES, r) = k < have ? (size_t)count * item : 0;
        before += depth;
    }
    return polar_comm_all_to_all(c, q, &recv, &send);
}

polar_status polar_comm_all_reduce(polar_comm *comm, polar_queue *q, void *data, int64_t n, polar_dtype dtype,
                                   int64_t leaves)
{
    polar_comm_parts recv, send;
    room got;
    PL_TRY(check_sum(comm, q, data, n, dtype, &leaves));
    const size_t item = polar_dtype_size(dtype);
    int rounds = 0, pieces = 0;
    int64_t first, mine;
    sum_here(comm, q, data, n, dtype, leaves);
    for (int r = 0; r < comm->f.size; r++) {
        int depth = tree_of(comm, r, leaves).depth;
        pieces += depth;
        if (depth > rounds) rounds = depth;
    }
    pl_comm_share_of(n, comm->f.rank, comm->f.size, &first, &mine);
    PL_TRY(room_take(&got, q, (size_t)pieces * (size_t)mine * item));
    polar_status st = POLAR_OK;
    for (int k = 0; k < rounds && st == POLAR_OK; k++)
        st = scatter(comm, q, got.data, data, n, dtype, leaves, k);
    char *share = (char *)data + (size_t)first * item;
    if (st == POLAR_OK) sum_all(comm, q, got.data, share, mine, dtype, leaves);
    room_give(&got);
    PL_TRY(st);
    parts_begin(comm, &recv, &send, data, share);
    for (int r = 0; r < comm->f.size; r++) {
        int64_t at, count;
        if (r == comm->f.rank) continue;
        pl_comm_share_of(n, r, comm->f.size, &at, &count);
        *entry(comm, RECV_AT, r) = (size_t)at * item;
        *entry(comm, RECV_BYTES, r) = (size_t)count * item;
        *entry(comm, SEND_BYTES, r) = (size_t)mine * item;
    }
    return polar_comm_all_to_all(comm, q, &recv, &send);
}
