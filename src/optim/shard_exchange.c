/* shard_exchange.c -- a step over several ranks: leaves are added, gradients go to the owners, weights come
 * back. */
#include <string.h>

#include "base/alloc.h"
#include "optim/shard.h"

static pl_mat flat(void *data, polar_dtype dtype, int64_t first, int64_t count)
{
    char *at = data ? (char *)data + (size_t)first * polar_dtype_size(dtype) : NULL;
    return pl_mat_dense(at, dtype, 1, 1, count);
}

enum { RECV_AT, RECV_BYTES, SEND_AT, SEND_BYTES };

static size_t *part(pl_shard *s, int table, int rank)
{
    return &s->part[(size_t)table * (size_t)s->size + (size_t)rank];
}

static polar_status exchange(pl_shard *s, pl_queue *q, void *recv, void *send)
{
    const polar_comm_parts in = {recv, part(s, RECV_AT, 0), part(s, RECV_BYTES, 0)},
                           out = {send, part(s, SEND_AT, 0), part(s, SEND_BYTES, 0)};
    return polar_comm_all_to_all(s->comm, q, &in, &out);
}

static void parts_clear(pl_shard *s)
{
    memset(s->part, 0, 4 * (size_t)s->size * sizeof *s->part);
}

/* ---- leaves ------------------------------------------------------------------------------------- */

/* A gradient should be here: the rows of a matrix that are none need none. */
static int lacks(const pl_optim_param *p)
{
    return !p->G.data && p->here_count > 0;
}

static polar_status check_one(const polar_optim *opt, int64_t i)
{
    PL_NEED(opt->o.skip_missing || !lacks(&opt->params[i]), POLAR_E_STATE,
            "'%s' has no gradient yet (polar_optim_set_grad; or opts.skip_missing, if it is to stay as it "
            "is)",
            opt->params[i].name);
    return POLAR_OK;
}

static polar_status check_here(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++) PL_TRY(check_one(opt, i));
    return POLAR_OK;
}

static polar_status check_turn(const pl_shard *s, int64_t leaf)
{
    PL_NEED(leaf == s->next_leaf && leaf < s->first_leaf + s->leaf_count, POLAR_E_STATE,
            "rank %d of %d adds part %lld of the batch; it has parts [%lld, %lld) and the next is %lld",
            s->rank, s->size, (long long)leaf, (long long)s->first_leaf,
            (long long)(s->first_leaf + s->leaf_count), (long long)s->next_leaf);
    return POLAR_OK;
}

/* Its pieces onto the sums so far; after this rank's last leaf its bucket may be whole. */
static void add_param(polar_optim *opt, pl_queue *q, int64_t leaf, int64_t i)
{
    pl_shard *s = opt->shard;
    const pl_optim_param *p = &opt->params[i];
    q->subject = p->name;
    for (int64_t k = s->pieces_at[i]; k < s->pieces_at[i + 1]; k++) {
        const pl_piece *piece = &s->pieces[s->piece_of[k]];
        if (piece->at < 0) continue;
        pl_tree_sum sum = {.q = q,
                           .tree = s->tree,
                           .slots = s->slots + (size_t)piece->at * polar_dtype_size(s->sum_dtype),
                           .n = piece->count,
                           .stride = s->segment[s->size],
                           .dtype = s->sum_dtype};
        if (p->G.data)
            pl_tree_sum_push(&sum, flat(p->G.data, p->G.dtype, piece->first, 0).data, p->G.dtype, leaf, 1);
        else pl_tree_sum_push(&sum, s->zeros, s->sum_dtype, leaf, 1);
    }
    q->subject = NULL;
    if (q->dry) return;
    s->added[i] = 1;
    s->present[i] |= p->G.data != NULL;
    if (!s->courier || leaf + 1 < s->first_leaf + s->leaf_count) return;
    s->bucket_missing[s->bucket_of[i]]--;
    int64_t whole = s->posted;
    while (whole < s->buckets && !s->bucket_missing[whole]) whole++;
    if (whole > s->posted && polar_queue_sync(q) == POLAR_OK) pl_courier_post(s->courier, s->posted = whole);
}

/* What had gone by the time that all leaves were there; the last bucket does not while others are computed.
 */
static void count_ahead(const pl_shard *s)
{
    int64_t here = pl_courier_done(s->courier);
    for (int64_t b = 0; b < s->buckets; b++) {
        int64_t bytes = pl_shard_bucket_bytes(s, b), last = b == s->buckets - 1;
        s->comm->overlap.bytes += bytes;
        s->comm->overlap.begun += b < s->posted && !last ? bytes : 0;
        s->comm->overlap.done += b < here && !last ? bytes : 0;
    }
}

polar_status pl_shard_add(polar_optim *opt, pl_queue *q, int64_t leaf)
{
    pl_shard *s = opt->shard;
    PL_TRY(check_turn(s, leaf));
    PL_TRY(check_here(opt));
    if (s->courier && !q->dry && leaf + 1 == s->first_leaf + s->leaf_count) count_ahead(s);
    for (int64_t i = 0; i < opt->n; i++)
        if (!s->added[i]) add_param(opt, q, leaf, i);
    if (q->dry) return POLAR_OK;
    if (q->error != POLAR_OK) return pl_fail_again(q->error, q->message);
    memset(s->added, 0, (size_t)opt->n);
    pl_tree_push(&s->tree, leaf, 1);
    s->next_leaf++;
    return POLAR_OK;
}

static polar_status check_leaves(const polar_optim *opt)
{
    PL_NEED(opt->shard && opt->o.leaves, POLAR_E_STATE,
            "the optimiser was made without opts.comm and opts.leaves: its step takes the gradients as they "
            "are");
    return POLAR_OK;
}

polar_status polar_optim_add_grads(polar_optim *opt, polar_queue *q, int64_t leaf)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_TRY(check_leaves(opt));
    return pl_shard_add(opt, q, leaf);
}

polar_status polar_optim_add_grad(polar_optim *opt, polar_queue *q, int64_t leaf, int64_t param)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_TRY(check_leaves(opt));
    PL_TRY(check_turn(opt->shard, leaf));
    PL_NEED(param >= 0 && param < opt->n, POLAR_E_ARG, "there is no parameter %lld: there are %lld, from 0",
            (long long)param, (long long)opt->n);
    PL_NEED(!opt->shard->added[param], POLAR_E_STATE, "'%s' was added to part %lld of the batch already",
            opt->params[param].name, (long long)leaf);
    PL_TRY(check_one(opt, param));
    add_param(opt, q, leaf, param);
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

polar_status pl_shard_check(polar_optim *opt)
{
    const pl_shard *s = opt->shard;
    if (!opt->o.leaves) return check_here(opt);
    PL_NEED(s->next_leaf == s->first_leaf + s->leaf_count, POLAR_E_STATE,
            "rank %d of %d has parts [%lld, %lld) of the batch and has added those before %lld "
            "(polar_optim_add_grads)",
            s->rank, s->size, (long long)s->first_leaf, (long long)(s->first_leaf + s->leaf_count),
            (long long)s->next_leaf);
    return POLAR_OK;
}

/* ---- sums to the owners ------------------------------------------------------------------------- */

static pl_tree tree_of(const pl_shard *s, int rank)
{
    int64_t first, count;
    pl_comm_share_of(s->leaves, rank, s->size, &first, &count);
    return pl_tree_of(first, count);
}

static size_t segment_bytes(const pl_shard *s, int rank)
{
    return (size_t)(s->segment[rank + 1] - s->segment[rank]) * polar_dtype_size(s->sum_dtype);
}

int pl_shard_rounds(const pl_shard *s)
{
    int rounds = 0;
    for (int r = 0; r < s->size; r++)
        if (tree_of(s, r).depth > rounds) rounds = tree_of(s, r).depth;
    return rounds;
}

int64_t pl_shard_bucket_bytes(const pl_shard *s, int64_t bucket)
{
    int64_t sent = 0;
    for (int r = 0; r < s->size; r++) {
        const int64_t *at = &s->bucket_at[r * s->buckets + bucket];
        if (r != s->rank) sent += at[1] - at[0];
    }
    return sent * tree_of(s, s->rank).depth * (int64_t)polar_dtype_size(s->sum_dtype);
}

void pl_shard_round(const pl_shard *s, size_t *table, int64_t first, int64_t count, int k)
{
    const size_t item = polar_dtype_size(s->sum_dtype), mine = segment_bytes(s, s->rank), n = (size_t)s->size;
    const int64_t *here = &s->bucket_at[s->rank * s->buckets + first];
    size_t before = 0;
    for (int r = 0; r < s->size; r++) {
        int depth = tree_of(s, r).depth;
        const int64_t *there = &s->bucket_at[r * s->buckets + first];
        size_t in_mine = (size_t)(here[0] - s->segment[s->rank]) * item;
        table[RECV_AT * n + (size_t)r] = (before + (size_t)k) * mine + in_mine;
        table[RECV_BYTES * n + (size_t)r] = k < depth ? (size_t)(here[count] - here[0]) * item : 0;
        table[SEND_AT * n + (size_t)r] = ((size_t)k * (size_t)s->segment[s->size] + (size_t)there[0]) * item;
        table[SEND_BYTES * n + (size_t)r] =
            k < tree_of(s, s->rank).depth ? (size_t)(there[count] - there[0]) * item : 0;
        before += (size_t)depth;
    }
}

/* All buckets at once, or those that were not posted yet; then everything is here. */
static polar_status gather_sums(const polar_optim *opt, pl_queue *q)
{
    pl_shard *s = opt->shard;
    if (s->courier) {
        pl_courier_post(s->courier, s->buckets);
        PL_TRY(pl_courier_wait(s->courier));
        s->posted = 0;
        memset(s->bucket_missing, 0, (size_t)s->buckets * sizeof *s->bucket_missing);
        for (int64_t i = 0; i < opt->n; i++) s->bucket_missing[s->bucket_of[i]]++;
        return POLAR_OK;
    }
    for (int k = 0; k < pl_shard_rounds(s); k++) {
        pl_shard_round(s, s->part, 0, s->buckets, k);
        PL_TRY(exchange(s, q, s->got, s->slots));
    }
    return POLAR_OK;
}

static polar_status sum_in(polar_optim *opt, pl_queue *q)
{
    pl_shard *s = opt->shard;
    int64_t n = s->segment[s->rank + 1] - s->segment[s->rank];
    if (!opt->o.leaves) PL_TRY(pl_shard_add(opt, q, s->rank));
    if (s->any_whole) PL_TRY(gather_sums(opt, q));
    pl_tree_sum sum = {.q = q, .slots = s->got, .n = n, .stride = n, .dtype = s->sum_dtype};
    char *piece = s->got;
    for (int r = 0; r < s->size && n; r++) {
        pl_tree t = tree_of(s, r);
        for (int k = 0; k < t.depth; k++, piece += segment_bytes(s, s->rank))
            pl_tree_sum_push(&sum, piece, s->sum_dtype, t.start[k], t.size[k]);
    }
    pl_tree_sum_fold(&sum);
    pl_mat all = flat(s->got, s->sum_dtype, 0, n);
    if (n && s->leaves > 1) PL_CALL(axpby, q, .Y = all, .X = all, .alpha = 1 / (double)s->leaves);
    s->tree = (pl_tree){0};
    s->next_leaf = s->first_leaf;
    return POLAR_OK;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static size_t align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

typedef struct row_walk { /* rows of matrices with an owner, in the order of their message */
    polar_optim *opt;
    pl_queue *q;
    int weights, owner, holder; /* else gradients; whose matrices; whose rows of them */
} row_walk;

typedef void (*row_fn)(const row_walk *w, int64_t param, const int64_t *rows, char *place);

/* Calls fn for each; returns the bytes of the message. */
static size_t walk_rows(const row_walk *w, char *message, row_fn fn)
{
    const polar_optim *opt = w->opt;
    const pl_shard *s = opt->shard;
    size_t used = 0;
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        const int64_t *rows = s->rows + 2 * ((int64_t)w->holder * opt->n + i);
        if (!p->by_rows || s->owner[i] != w->owner || !rows[1]) continue;
        if (fn) fn(w, i, rows, message + used);
        used += align8((size_t)rows[1] * polar_dtype_size(w->weights ? p->W.dtype : p->G.dtype));
    }
    return used;
}

static pl_mat rows_home(const row_walk *w, int64_t i, const int64_t *rows)
{
    const pl_optim_param *p = &w->opt->params[i];
    const pl_shard *s = w->opt->shard;
    return flat(w->weights ? s->home_w[i] : s->home_g[i], w->weights ? p->W.dtype : p->G.dtype, rows[0],
                rows[1]);
}

static pl_mat rows_here(const row_walk *w, int64_t i)
{
    const pl_mat *m = w->weights ? &w->opt->params[i].W : &w->opt->params[i].G;
    return flat(m->data, m->dtype, 0, w->opt->params[i].here_count);
}

static pl_mat in_message(pl_mat like, char *place)
{
    like.data = place;
    return like;
}

/* A gradient that is not there is sent as it lies in the buffer: its owner leaves the matrix alone. */
static void pack_here(const row_walk *w, int64_t i, const int64_t *rows, char *place)
{
    pl_mat here = rows_here(w, i);
    (void)rows;
    if (here.data) PL_CALL(copy, w->q, .Y = in_message(here, place), .X = here);
}

static void unpack_home(const row_walk *w, int64_t i, const int64_t *rows, char *place)
{
    pl_mat home = rows_home(w, i, rows);
    PL_CALL(copy, w->q, .Y = home, .X = in_message(home, place));
}

static void pack_home(const row_walk *w, int64_t i, const int64_t *rows, char *place)
{
    pl_mat home = rows_home(w, i, rows);
    PL_CALL(copy, w->q, .Y = in_message(home, place), .X = home);
}

static void unpack_here(const row_walk *w, int64_t i, const int64_t *rows, char *place)
{
    pl_mat here = rows_here(w, i);
    (void)rows;
    PL_CALL(copy, w->q, .Y = here, .X = in_message(here, place));
}

/* Rows from where they are to the owners, or back. */
static polar_status rows_move(polar_optim *opt, pl_queue *q, int weights, int home)
{
    pl_shard *s = opt->shard;
    size_t in = 0, out = 0;
    parts_clear(s);
    for (int r = 0; r < s->size; r++) {
        row_walk mine = {opt, q, weights, r, s->rank}, theirs = {opt, q, weights, s->rank, r};
        const row_walk *sent = home ? &mine : &theirs, *got = home ? &theirs : &mine;
        *part(s, SEND_AT, r) = out;
        *part(s, SEND_BYTES, r) = walk_rows(sent, s->rows_out + out, home ? pack_here : pack_home);
        *part(s, RECV_AT, r) = in;
        *part(s, RECV_BYTES, r) = walk_rows(got, NULL, NULL);
        out += *part(s, SEND_BYTES, r);
        in += *part(s, RECV_BYTES, r);
    }
    PL_TRY(exchange(s, q, s->rows_in, s->rows_out));
    for (int r = 0; r < s->size; r++) {
        row_walk mine = {opt, q, weights, r, s->rank}, theirs = {opt, q, weights, s->rank, r};
        walk_rows(home ? &theirs : &mine, s->rows_in + *part(s, RECV_AT, r),
                  home ? unpack_home : unpack_here);
    }
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

polar_status pl_shard_weights_in(polar_optim *opt, pl_queue *q)
{
    return opt->shard->any_rows ? rows_move(opt, q, 1, 1) : POLAR_OK;
}

/* ---- who has a gradient, and whether all of them are numbers -------------------------------------- */

/* A parameter is there where a leaf of any rank had it; where all ranks have the same, this rank's word
 * counts for what it steps. */
static polar_status share_presence(polar_optim *opt)
{
    pl_shard *s = opt->shard;
    size_t n = (size_t)opt->n;
    if (opt->o.grads == POLAR_GRADS_SAME)
        for (size_t i = 0; i < n; i++) s->present[i] = opt->params[i].G.data != NULL;
    for (size_t i = 0; i < n; i++)
        if (opt->params[i].by_rows) s->present[i] = opt->params[i].G.data && opt->params[i].here_count > 0;
    unsigned char *all = pl_calloc((size_t)s->size, n);
    PL_NEED(all, POLAR_E_NOMEM, "which of %lld gradients are there", (long long)opt->n);
    polar_status st = pl_comm_gather(s->comm, all, s->present, n);
    for (size_t k = 0; k < n * (size_t)s->size && st == POLAR_OK; k++) s->present[k % n] |= all[k];
    pl_free(all);
    return st;
}

/* The inner optimiser's gradients: where they are now, or none. */
static polar_status point_grads(polar_optim *opt)
{
    pl_shard *s = opt->shard;
    for (int64_t k = 0; k < s->piece_count; k++) {
        const pl_piece *piece = &s->pieces[k];
        polar_dtype dtype;
        if (piece->inner < 0) continue;
        int there = !opt->o.skip_missing || s->present[piece->param];
        void *grad = there ? pl_shard_grad_of(opt, piece, &dtype) : NULL;
        PL_TRY(polar_optim_set_grad(s->inner, piece->inner, grad));
    }
    return POLAR_OK;
}

/* One rank's infinity leaves the step out on all. */
static polar_status share_flag(polar_optim *opt, pl_queue *q)
{
    pl_shard *s = opt->shard;
    pl_mat found = pl_mat_dense(&s->flag[0], POLAR_DTYPE_F32, 1, 1, 1);
    float none = 0, here = 0, theirs = 0;
    polar_queue_upload(q, found.data, &none, sizeof none);
    for (int64_t i = 0; s->inner && i < s->inner->n && opt->o.skip_nonfinite == POLAR_SKIP_NONFINITE; i++)
        if (s->inner->params[i].G.data) PL_CALL(nonfinite, q, .F = found, .G = s->inner->params[i].G);
    polar_queue_download(q, &here, found.data, sizeof here);
    if (opt->found.data) polar_queue_download(q, &theirs, opt->found.data, sizeof theirs);
    PL_TRY(polar_queue_sync(q));
    int any = here != 0 || theirs != 0;
    PL_TRY(pl_comm_any(s->comm, &any));
    float all = any ? 1 : 0;
    polar_queue_upload(q, &s->flag[1], &all, sizeof all);
    if (!s->inner) return POLAR_OK;
    return polar_optim_set_scaler(s->inner, &s->flag[1], opt->scale.data);
}

polar_status pl_shard_grads_in(polar_optim *opt, pl_queue *q)
{
    pl_shard *s = opt->shard;
    if (q->dry) return POLAR_OK;
    if (opt->o.grads == POLAR_GRADS_MEAN) PL_TRY(sum_in(opt, q));
    if (s->any_rows) PL_TRY(rows_move(opt, q, 0, 1));
    if (opt->o.skip_missing) PL_TRY(share_presence(opt));
    PL_TRY(point_grads(opt));
    if (opt->o.skip_missing) memset(s->present, 0, (size_t)opt->n);
    if (s->flag) PL_TRY(share_flag(opt, q));
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

/* ---- weights to everybody ----------------------------------------------------------------------- */

polar_status pl_shard_weights_out(polar_optim *opt, pl_queue *q)
{
    pl_shard *s = opt->shard;
    if (q->dry) return POLAR_OK;
    if (s->any_rows) PL_TRY(rows_move(opt, q, 1, 0));
    if (s->size == 1 || !s->any_whole) return POLAR_OK;
    parts_clear(s);
    for (int r = 0; r < s->size; r++) {
        if (r == s->rank) continue;
        *part(s, RECV_AT, r) = s->weight_segment[r];
        *part(s, RECV_BYTES, r) = s->weight_segment[r + 1] - s->weight_segment[r];
        *part(s, SEND_AT, r) = s->weight_segment[s->rank];
        *part(s, SEND_BYTES, r) = s->weight_segment[s->rank + 1] - s->weight_segment[s->rank];
    }
    for (int unpacking = 0; unpacking < 2; unpacking++) {
        for (int64_t k = 0; k < s->piece_count; k++) {
            const pl_piece *piece = &s->pieces[k];
            const pl_optim_param *p = &opt->params[piece->param];
            if (piece->at < 0 || (piece->rank == s->rank) == unpacking) continue;
            pl_mat place = flat(s->weights + piece->weight_at, p->W.dtype, 0, piece->count),
                   weight = flat(p->W.data, p->W.dtype, piece->first, piece->count);
            if (unpacking) PL_CALL(copy, q, .Y = weight, .X = place);
            else PL_CALL(copy, q, .Y = place, .X = weight);
        }
        if (!unpacking) PL_TRY(exchange(s, q, s->weights, s->weights));
    }
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

void pl_shard_settings(polar_optim *opt)
{
    polar_optim *inner = opt->shard->inner;
    if (!inner) return;
    memcpy(inner->hyper, opt->hyper, 2 * (size_t)opt->groups * sizeof *opt->hyper);
    inner->active[0] = opt->active[0];
}
