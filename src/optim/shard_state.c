/* shard_state.c -- the state of an optimiser over several ranks: whole on rank 0 for a file, taken apart
 * again by every rank that reads one; and its statistics.
 *
 * The image of a state (optim_state.h) is laid out by the optimiser that has all parameters, so a file says
 * nothing of ranks.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "optim/optim_state.h"
#include "optim/shard.h"

/* Item k of a piece's state: 0 past the last; else its bytes, and where they begin in the image. */
static int piece_item(const polar_optim *opt, const pl_piece *piece, int64_t k, size_t *at, size_t *bytes)
{
    pl_state_item it;
    *bytes = 0;
    if (!pl_optim_state_item(&it, opt, piece->param, k)) return 0;
    if (!it.mat->data) return 1;
    size_t item = polar_dtype_size(it.mat->dtype);
    *at = (size_t)((char *)it.mat->data - (char *)opt->state);
    if (it.by_element) *at += (size_t)piece->first * item;
    /* who keeps more than a number for each weight is not cut */
    *bytes = it.by_element ? (size_t)piece->count * item : pl_mat_bytes(it.mat);
    return 1;
}

/* The same item where this rank keeps it. */
static void *inner_item(const pl_shard *s, const pl_piece *piece, int64_t k)
{
    pl_state_item it;
    return pl_optim_state_item(&it, s->inner, piece->inner, k) ? it.mat->data : NULL;
}

static size_t align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Everything of rank r: a message's bytes, or (with one) unpacked into the image. */
static size_t walk_rank(const polar_optim *opt, int rank, const char *message, char *image)
{
    const pl_shard *s = opt->shard;
    size_t used = 0, at = 0, bytes;
    for (int64_t p = 0; p < s->piece_count; p++)
        for (int64_t k = 0; s->pieces[p].rank == rank && piece_item(opt, &s->pieces[p], k, &at, &bytes);
             k++) {
            if (image && bytes) memcpy(image + at, message + used, bytes);
            used += align8(bytes);
        }
    return used;
}

static polar_status download_mine(polar_optim *opt, pl_queue *q, char *message)
{
    const pl_shard *s = opt->shard;
    size_t used = 0, at = 0, bytes;
    for (int64_t p = 0; p < s->piece_count; p++)
        for (int64_t k = 0; s->pieces[p].inner >= 0 && piece_item(opt, &s->pieces[p], k, &at, &bytes); k++) {
            if (bytes) polar_queue_download(q, message + used, inner_item(s, &s->pieces[p], k), bytes);
            used += align8(bytes);
        }
    return polar_queue_sync(q);
}

/* The counts of all parameters lie in one piece; every rank wants them. */
static polar_status share_counts(polar_optim *opt, char *image)
{
    if (!opt->own_counts) return POLAR_OK;
    size_t at = (size_t)((char *)opt->params[0].T.data - (char *)opt->state);
    return polar_comm_broadcast(opt->shard->comm, NULL, image + at, (size_t)opt->n * 2 * sizeof(double), 0);
}

polar_status pl_shard_state_gather(polar_optim *opt, pl_queue *q, char *bytes)
{
    pl_shard *s = opt->shard;
    size_t n = (size_t)s->size, all = 0;
    memset(s->part, 0, 4 * n * sizeof *s->part);
    size_t *recv_at = s->part, *recv_bytes = s->part + n, *send_at = s->part + 2 * n,
           *send_bytes = s->part + 3 * n;
    send_bytes[0] = walk_rank(opt, s->rank, NULL, NULL);
    for (int r = 0; r < s->size && s->rank == 0; r++) {
        recv_at[r] = all;
        recv_bytes[r] = walk_rank(opt, r, NULL, NULL);
        all += recv_bytes[r];
    }
    char *mine = pl_alloc(send_bytes[0] + 8), *got = pl_alloc(all + 8);
    polar_status st = mine && got ? download_mine(opt, q, mine)
                                  : PL_FAIL(POLAR_E_NOMEM, "%zu bytes of state of %d ranks", all, s->size);
    st = pl_comm_agree(s->comm, st, "reading an optimiser's state");
    const polar_comm_parts recv = {got, recv_at, recv_bytes}, send = {mine, send_at, send_bytes};
    if (st == POLAR_OK) st = polar_comm_all_to_all(s->comm, NULL, &recv, &send);
    for (int r = 0; r < s->size && st == POLAR_OK && s->rank == 0; r++)
        walk_rank(opt, r, got + recv_at[r], bytes);
    pl_free(mine);
    pl_free(got);
    PL_TRY(st);
    return share_counts(opt, bytes);
}

polar_status pl_shard_state_apply(polar_optim *opt, pl_queue *q, const char *bytes, int64_t step)
{
    pl_shard *s = opt->shard;
    size_t at = 0, size;
    int rounded = 0;
    PL_TRY(pl_shard_weights_in(opt, q));
    for (int64_t i = 0; i < opt->n; i++) rounded |= opt->params[i].W.dtype == POLAR_DTYPE_BF16;
    for (int64_t k = 0; k < s->piece_count; k++) {
        if (s->pieces[k].inner < 0) continue;
        const pl_optim_param *p = &s->inner->params[s->pieces[k].inner];
        for (int64_t j = 0; piece_item(opt, &s->pieces[k], j, &at, &size); j++)
            if (size) polar_queue_upload(q, inner_item(s, &s->pieces[k], j), bytes + at, size);
        if (p->master.data) PL_CALL(copy, q, .Y = p->W, .X = p->master);
    }
    if (rounded) PL_TRY(pl_shard_weights_out(opt, q));
    PL_TRY(polar_queue_sync(q));
    if (!s->inner) return POLAR_OK;
    s->inner->t = step;
    s->inner->stepped = 0;
    return POLAR_OK;
}

/* ---- statistics --------------------------------------------------------------------------------- */

enum { SEEN, LR, NORM2, STEPS, SKIPPED, MAPS, LAST_MAPS, NUMBERS };

static polar_status stats_here(polar_optim *opt, pl_queue *q, double *out)
{
    pl_shard *s = opt->shard;
    if (!s->inner) return POLAR_OK;
    polar_param_stats *here = pl_calloc((size_t)s->inner->n, sizeof *here);
    PL_NEED(here, POLAR_E_NOMEM, "the statistics of %lld pieces", (long long)s->inner->n);
    polar_status st = polar_optim_stats(s->inner, q, here);
    for (int64_t k = 0; k < s->piece_count && st == POLAR_OK; k++) {
        if (s->pieces[k].inner < 0) continue;
        const polar_param_stats *h = &here[s->pieces[k].inner];
        double *row = out + s->pieces[k].param * NUMBERS;
        const double values[NUMBERS] = {1,
                                        h->effective_lr,
                                        h->update_norm * h->update_norm,
                                        (double)h->steps,
                                        (double)h->skipped,
                                        (double)h->maps,
                                        (double)h->last_maps};
        memcpy(row, values, sizeof values);
    }
    pl_free(here);
    return st;
}

/* Norms of pieces are joined, the rest is alike wherever it is known. */
static void join(polar_param_stats *out, const double *row)
{
    if (row[SEEN] == 0) return;
    out->effective_lr = row[LR];
    out->update_norm += row[NORM2];
    out->steps = (int64_t)row[STEPS];
    out->skipped = (int64_t)row[SKIPPED];
    out->maps = (int64_t)row[MAPS];
    out->last_maps = (int64_t)row[LAST_MAPS];
}

polar_status pl_shard_stats(polar_optim *opt, pl_queue *q, polar_param_stats *all)
{
    pl_shard *s = opt->shard;
    size_t rows = (size_t)opt->n * NUMBERS;
    double *mine = pl_calloc(rows, sizeof *mine), *every = pl_calloc(rows * (size_t)s->size, sizeof *every);
    polar_status st = mine && every ? stats_here(opt, q, mine)
                                    : PL_FAIL(POLAR_E_NOMEM, "the statistics of %d ranks", s->size);
    st = pl_comm_agree(s->comm, st, "reading statistics");
    if (st == POLAR_OK) st = pl_comm_gather(s->comm, every, mine, rows * sizeof *mine);
    opt->skipped = 0;
    for (int64_t i = 0; i < opt->n && st == POLAR_OK; i++) {
        all[i] = pl_optim_stats_of(opt, i);
        for (int r = 0; r < s->size; r++) join(&all[i], every + (size_t)r * rows + i * NUMBERS);
        all[i].update_norm = opt->o.measure && opt->t ? sqrt(all[i].update_norm) : (double)NAN;
        if (all[i].skipped > opt->skipped) opt->skipped = all[i].skipped;
    }
    pl_free(mine);
    pl_free(every);
    return st;
}
