/* shard.c -- making an optimiser over several ranks: the ranks agree, pieces get their places, and this
 * rank's own pieces become an optimiser of their own. */
#include "optim/shard.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "device/backend.h"

#define SEGMENT_ALIGN ((size_t)8) /* of a rank's part of the weights: what the largest element wants */
#define BUCKETS       8           /* unless told, and where a bucket has so many bytes: */
#define BUCKET_LEAST  ((int64_t)256 << 10)

/* ---- the ranks agree ---------------------------------------------------------------------------- */

static void hash_text(pl_sha256 *h, const char *text)
{
    pl_sha256_add(h, text, strlen(text) + 1);
}

/* Everything from which pieces and places follow. */
static void hash_all(char hex[PL_SHA256_HEX], const polar_optim *opt)
{
    pl_sha256 h = pl_sha256_begin();
    char line[400];
    snprintf(line, sizeof line,
             "%lld params, %lld groups, leaves %lld, grads %d, skip %d %d, buckets %lld, tf32 %d",
             (long long)opt->n, (long long)opt->groups, (long long)opt->o.leaves, (int)opt->o.grads,
             opt->o.skip_missing, (int)opt->o.skip_nonfinite, (long long)opt->o.bucket_bytes,
             opt->o.kron_tf32);
    hash_text(&h, line);
    for (int64_t i = 0; i < opt->groups; i++) {
        const polar_rule *r = &opt->group[i].rule;
        snprintf(line, sizeof line, "rule %d %d %d %d %d %.17g %.17g %.17g, map %d %d %d %d %.17g",
                 (int)r->momentum, (int)r->precondition, (int)r->scale, (int)r->post, (int)r->apply,
                 r->radius, r->clip, r->strength, (int)r->map.kind, (int)r->map.precision,
                 (int)r->map.rounding, r->map.steps, r->map.power);
        hash_text(&h, line);
    }
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        snprintf(line, sizeof line,
                 "%d %lldx%lld, %lld blocks, group %lld of dim %lld, group %lld, %d %d, %d", (int)p->route,
                 (long long)p->rows, (long long)p->cols, (long long)p->row_blocks, (long long)p->schur_group,
                 (long long)p->schur_dim, (long long)p->group, (int)p->W.dtype, (int)p->G.dtype, p->by_rows);
        hash_text(&h, p->name);
        hash_text(&h, line);
        pl_sha256_add(&h, p->blocks, (size_t)p->block_count * sizeof *p->blocks);
    }
    pl_sha256_end(hex, &h);
}

static polar_status agree(const polar_optim *opt, pl_shard *s)
{
    char mine[PL_SHA256_HEX];
    char *all = pl_calloc((size_t)s->size, sizeof mine);
    PL_NEED(all, POLAR_E_NOMEM, "the lists of %d ranks", s->size);
    hash_all(mine, opt);
    polar_status st = pl_comm_gather(s->comm, all, mine, sizeof mine);
    int unlike = -1;
    for (int r = 0; r < s->size && st == POLAR_OK && unlike < 0; r++)
        if (memcmp(all + (size_t)r * sizeof mine, all, sizeof mine)) unlike = r;
    pl_free(all);
    PL_TRY(st);
    PL_NEED(unlike < 0, POLAR_E_ARG,
            "rank %d has other parameters (names, order, shapes, formats, routes) or options than rank 0: "
            "every rank makes the same optimiser",
            unlike);
    return POLAR_OK;
}

static int64_t *rows_at(const pl_shard *s, const polar_optim *opt, int rank, int64_t param)
{
    return s->rows + 2 * ((int64_t)rank * opt->n + param);
}

static polar_status gather_rows(const polar_optim *opt, pl_shard *s)
{
    int64_t *mine = pl_calloc((size_t)opt->n, 2 * sizeof *mine);
    PL_NEED(mine, POLAR_E_NOMEM, "the rows of %lld parameters", (long long)opt->n);
    for (int64_t i = 0; i < opt->n; i++) {
        mine[2 * i] = opt->params[i].here_first;
        mine[2 * i + 1] = opt->params[i].here_count;
    }
    polar_status st = pl_comm_gather(s->comm, s->rows, mine, (size_t)opt->n * 2 * sizeof *mine);
    pl_free(mine);
    PL_TRY(st);
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        int64_t at = 0;
        for (int r = 0; r < s->size && p->by_rows; r++) {
            const int64_t *part = rows_at(s, opt, r, i);
            PL_NEED(
                !part[1] || part[0] == at, POLAR_E_SHAPE,
                "'%s': the rows of rank %d begin at element %lld, those before them end at %lld: rows lie "
                "by rank, without gaps",
                p->name, r, (long long)part[0], (long long)at);
            at += part[1];
        }
        PL_NEED(!p->by_rows || at == p->rows * p->cols, POLAR_E_SHAPE,
                "'%s': all ranks together have %lld of its %lld elements", p->name, (long long)at,
                (long long)(p->rows * p->cols));
    }
    return POLAR_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------- */

static int64_t overlap(int64_t a, int64_t na, int64_t b, int64_t nb, int64_t *first)
{
    int64_t end = a + na < b + nb ? a + na : b + nb;
    *first = a > b ? a : b;
    return end > *first ? end - *first : 0;
}

/* Elements of parameter i that rank r steps; before: elements without a map in front of it. */
static int64_t part_of(const pl_shard *s, const polar_optim *opt, int rank, int64_t i, int64_t before,
                       int64_t ranged, int64_t *first)
{
    const pl_optim_param *p = &opt->params[i];
    int64_t whole = p->rows * p->cols, from, count;
    *first = 0;
    if (s->owner[i] >= 0) return s->owner[i] == rank ? whole : 0;
    if (p->by_rows) {
        *first = rows_at(s, opt, rank, i)[0];
        return rows_at(s, opt, rank, i)[1];
    }
    pl_comm_share_of(ranged, rank, s->size, &from, &count);
    count = overlap(from, count, before, whole, first);
    *first -= before;
    return count;
}

static int ranged(const pl_shard *s, const polar_optim *opt, int64_t i)
{
    return s->owner[i] < 0 && !opt->params[i].by_rows;
}

/* All pieces by rank, size of element and parameter; with out NULL counts them. */
static int64_t cut(const pl_shard *s, const polar_optim *opt, pl_piece *out)
{
    int64_t n = 0, all = 0;
    for (int64_t i = 0; i < opt->n; i++)
        all += ranged(s, opt, i) ? opt->params[i].rows * opt->params[i].cols : 0;
    for (int r = 0; r < s->size; r++)
        for (size_t item = 8; item >= 2; item /= 2)
            for (int64_t i = 0, before = 0; i < opt->n; i++) {
                const pl_optim_param *p = &opt->params[i];
                int64_t first, count = part_of(s, opt, r, i, before, all, &first);
                if (ranged(s, opt, i)) before += p->rows * p->cols;
                if (!count || polar_dtype_size(p->W.dtype) != item) continue;
                if (out)
                    out[n] = (pl_piece){
                        .param = i, .rank = r, .first = first, .count = count, .at = -1, .inner = -1};
                n++;
            }
    return n;
}

/* Parameters into buckets, the last ones first; without a thread to carry them there is one. */
static void fill_buckets(pl_shard *s, const polar_optim *opt, int overlap)
{
    int64_t item = (int64_t)polar_dtype_size(s->sum_dtype), all = 0, most, used = 0;
    for (int64_t i = 0; i < opt->n; i++)
        if (!opt->params[i].by_rows) all += item * opt->params[i].rows * opt->params[i].cols;
    most = all / BUCKETS > BUCKET_LEAST ? all / BUCKETS : BUCKET_LEAST;
    if (opt->o.bucket_bytes) most = opt->o.bucket_bytes;
    s->buckets = 1;
    for (int64_t i = opt->n - 1; i >= 0 && overlap; i--) {
        int64_t bytes = opt->params[i].by_rows ? 0 : item * opt->params[i].rows * opt->params[i].cols;
        if (used && used + bytes > most) s->buckets++, used = 0;
        used += bytes;
        s->bucket_of[i] = s->buckets - 1;
    }
}

/* Pieces [first, end) of a rank, bucket by bucket, from `at` on in the vector of gradients. */
static int64_t place_grads(pl_shard *s, const polar_optim *opt, int rank, int64_t first, int64_t end,
                           int64_t at)
{
    for (int64_t b = 0; b < s->buckets; b++) {
        s->bucket_at[rank * s->buckets + b] = at;
        for (int64_t k = first; k < end; k++) {
            pl_piece *piece = &s->pieces[k];
            if (opt->params[piece->param].by_rows || s->bucket_of[piece->param] != b) continue;
            piece->at = at;
            at += piece->count;
        }
    }
    return at;
}

/* Places among gradients and weights, and the numbers of this rank's own. */
static void place(pl_shard *s, const polar_optim *opt)
{
    int64_t at = 0, k = 0, inner = 0;
    size_t weight_at = 0;
    for (int r = 0; r <= s->size; r++) {
        weight_at = (weight_at + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
        s->segment[r] = at;
        s->weight_segment[r] = weight_at;
        int64_t first = k;
        for (; k < s->piece_count && s->pieces[k].rank == r; k++) {
            pl_piece *piece = &s->pieces[k];
            const pl_optim_param *p = &opt->params[piece->param];
            if (r == s->rank) piece->inner = inner++;
            s->any_rows |= p->by_rows && s->owner[piece->param] >= 0;
            if (p->by_rows) continue;
            s->any_whole = 1;
            piece->weight_at = weight_at;
            weight_at += (size_t)piece->count * polar_dtype_size(p->W.dtype);
        }
        if (r < s->size) at = place_grads(s, opt, r, first, k, at);
    }
    s->bucket_at[s->size * s->buckets] = at;
}

/* The pieces of each parameter. */
static void list_pieces(pl_shard *s, const polar_optim *opt)
{
    for (int64_t k = 0; k < s->piece_count; k++) s->pieces_at[s->pieces[k].param + 1]++;
    for (int64_t i = 0; i < opt->n; i++) s->pieces_at[i + 1] += s->pieces_at[i];
    for (int64_t k = s->piece_count - 1; k >= 0; k--) { /* each end goes down to its beginning */
        int64_t *end = &s->pieces_at[s->pieces[k].param + 1];
        s->piece_of[--*end] = k;
    }
    for (int64_t i = 0; i < opt->n; i++) s->pieces_at[i] = s->pieces_at[i + 1];
    s->pieces_at[opt->n] = s->piece_count;
}

/* Every rank has memory that a thread of it can send from, a channel for it, and leaves to compute. */
static polar_status can_overlap(const pl_shard *s, const polar_optim *opt, int *out)
{
    int cannot = !s->comm->aside || opt->dev->backend->mem_alloc != pl_host_mem_alloc || !opt->o.leaves ||
                 opt->o.grads != POLAR_GRADS_MEAN || s->size == 1;
    PL_TRY(pl_comm_any(s->comm, &cannot));
    *out = !cannot;
    return POLAR_OK;
}

static polar_status make_pieces(pl_shard *s, const polar_optim *opt, int overlap)
{
    PL_TRY(pl_shard_owners(s->owner, s->load, opt, s->size));
    fill_buckets(s, opt, overlap);
    s->piece_count = cut(s, opt, NULL);
    s->pieces = pl_calloc((size_t)s->piece_count + 1, sizeof *s->pieces);
    s->piece_of = pl_calloc((size_t)s->piece_count + 1, sizeof *s->piece_of);
    s->bucket_at = pl_calloc((size_t)(s->size * s->buckets) + 1, sizeof *s->bucket_at);
    s->bucket_missing = pl_calloc((size_t)s->buckets, sizeof *s->bucket_missing);
    PL_NEED(s->pieces && s->piece_of && s->bucket_at && s->bucket_missing, POLAR_E_NOMEM,
            "%lld pieces of parameters", (long long)s->piece_count);
    for (int64_t i = 0; i < opt->n; i++) s->bucket_missing[s->bucket_of[i]]++;
    cut(s, opt, s->pieces);
    place(s, opt);
    list_pieces(s, opt);
    return POLAR_OK;
}

/* ---- memory ------------------------------------------------------------------------------------- */

static polar_status choose_format(pl_shard *s, const polar_optim *opt)
{
    int64_t wide = 0;
    for (int64_t i = 0; i < opt->n; i++) wide += opt->params[i].W.dtype == POLAR_DTYPE_F64;
    PL_NEED(wide == 0 || wide == opt->n, POLAR_E_DTYPE,
            "%lld of %lld weights are f64: over several ranks all are, or none", (long long)wide,
            (long long)opt->n);
    s->sum_dtype = wide ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    return POLAR_OK;
}

static polar_status take(pl_shard *s, polar_optim *opt, char **out, size_t bytes)
{
    void *data = NULL;
    if (!bytes) return POLAR_OK;
    PL_TRY(polar_device_alloc(opt->dev, &data, bytes));
    *out = data;
    s->bytes += bytes;
    return POLAR_OK;
}

static polar_status take_sums(pl_shard *s, polar_optim *opt)
{
    const size_t item = polar_dtype_size(s->sum_dtype);
    size_t bucket = (size_t)s->segment[s->size] * item, pieces = 0, most = 0;
    for (int r = 0; r < s->size; r++) {
        int64_t first, count;
        pl_comm_share_of(s->leaves, r, s->size, &first, &count);
        pieces += (size_t)pl_tree_of(first, count).depth;
    }
    size_t mine = (size_t)(s->segment[s->rank + 1] - s->segment[s->rank]) * item;
    PL_TRY(take(s, opt, &s->slots, (size_t)pl_tree_room(s->first_leaf, s->leaf_count) * bucket));
    PL_TRY(take(s, opt, &s->got, pieces * mine));
    for (int64_t k = 0; k < s->piece_count; k++)
        if ((size_t)s->pieces[k].count > most) most = (size_t)s->pieces[k].count;
    if (!opt->o.skip_missing) return POLAR_OK;
    void *zeros = pl_calloc(most + 1, item);
    polar_queue *q = NULL;
    polar_status st = zeros ? take(s, opt, &s->zeros, (most + 1) * item) : PL_FAIL(POLAR_E_NOMEM, "zeros");
    if (st == POLAR_OK) st = polar_queue_create(&q, opt->dev, NULL);
    if (st == POLAR_OK) polar_queue_upload(q, s->zeros, zeros, (most + 1) * item);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    polar_queue_destroy(q);
    pl_free(zeros);
    return st;
}

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Whole copies of what this rank owns by rows, and the messages they come and go by. */
static polar_status take_rows(pl_shard *s, polar_optim *opt)
{
    size_t used = 0, in = 0, out = 0;
    for (int pointing = 0; pointing < 2; pointing++) {
        if (pointing) PL_TRY(take(s, opt, &s->homes, used));
        used = 0;
        for (int64_t i = 0; i < opt->n; i++) {
            const pl_optim_param *p = &opt->params[i];
            if (!p->by_rows || s->owner[i] < 0) continue;
            size_t whole = (size_t)(p->rows * p->cols), here = (size_t)p->here_count;
            if (!pointing) out += 8 * here + 8 * (size_t)s->size;
            if (s->owner[i] != s->rank) continue;
            if (!pointing) in += 8 * whole + 8 * (size_t)s->size;
            if (pointing) s->home_w[i] = s->homes + used;
            used += align(whole * polar_dtype_size(p->W.dtype));
            if (pointing) s->home_g[i] = s->homes + used;
            used += align(whole * polar_dtype_size(p->G.dtype));
        }
    }
    /* gradients come in as weights go out, and the reverse: each buffer serves both ways */
    size_t most = in > out ? in : out;
    PL_TRY(take(s, opt, &s->rows_in, most));
    return take(s, opt, &s->rows_out, most);
}

static polar_status take_memory(pl_shard *s, polar_optim *opt)
{
    char *flag = NULL;
    if (opt->o.grads == POLAR_GRADS_MEAN) PL_TRY(take_sums(s, opt));
    if (s->size > 1) PL_TRY(take(s, opt, &s->weights, s->weight_segment[s->size]));
    if (s->any_rows) PL_TRY(take_rows(s, opt));
    if (opt->o.skip_nonfinite != POLAR_SKIP_NEVER) PL_TRY(take(s, opt, &flag, 2 * sizeof(float)));
    s->flag = (float *)flag;
    return POLAR_OK;
}

/* ---- this rank's own ---------------------------------------------------------------------------- */

static char *offset(void *data, polar_dtype dtype, int64_t elements)
{
    return data ? (char *)data + (size_t)elements * polar_dtype_size(dtype) : NULL;
}

void *pl_shard_grad_of(const polar_optim *opt, const pl_piece *piece, polar_dtype *dtype)
{
    const pl_shard *s = opt->shard;
    const pl_optim_param *p = &opt->params[piece->param];
    *dtype = p->G.dtype;
    if (p->by_rows && s->owner[piece->param] >= 0) return s->home_g[piece->param];
    if (p->by_rows) return p->G.data;
    if (opt->o.grads == POLAR_GRADS_SAME) return offset(p->G.data, p->G.dtype, piece->first);
    *dtype = s->sum_dtype;
    return offset(s->got, s->sum_dtype, piece->at - s->segment[s->rank]);
}

static char *weight_of(const polar_optim *opt, const pl_piece *piece)
{
    const pl_shard *s = opt->shard;
    const pl_optim_param *p = &opt->params[piece->param];
    if (p->by_rows) return s->owner[piece->param] >= 0 ? s->home_w[piece->param] : p->W.data;
    return offset(p->W.data, p->W.dtype, piece->first);
}

static polar_tensor tensor(void *data, polar_dtype dtype, const pl_optim_param *p, const pl_piece *piece,
                           int whole)
{
    if (whole) return polar_tensor_2d(data, dtype, p->rows, p->cols);
    if (p->route == POLAR_ROUTE_MATRIX) return polar_tensor_2d(data, dtype, 1, piece->count);
    return polar_tensor_1d(data, dtype, piece->count);
}

typedef char piece_name[PL_OPTIM_NAME_MAX + 1];

static void fill_param(polar_param *out, piece_name name, const polar_optim *opt, const pl_piece *piece)
{
    const pl_optim_param *p = &opt->params[piece->param];
    int mapped = opt->shard->owner[piece->param] >= 0;
    polar_dtype dtype;
    void *grad = pl_shard_grad_of(opt, piece, &dtype);
    if (piece->count == p->rows * p->cols) snprintf(name, sizeof(piece_name), "%s", p->name);
    else if (strlen(p->name) < PL_OPTIM_NAME_MAX - 48)
        snprintf(name, sizeof(piece_name), "%.*s[%lld:%lld]", PL_OPTIM_NAME_MAX - 48, p->name,
                 (long long)piece->first, (long long)(piece->first + piece->count));
    else snprintf(name, sizeof(piece_name), "parameter %lld in pieces", (long long)piece->param);
    *out = (polar_param){.name = name,
                         .weight = tensor(weight_of(opt, piece), p->W.dtype, p, piece, mapped),
                         .grad = tensor(grad, dtype, p, piece, mapped),
                         .route = p->route,
                         .row_blocks = mapped && !p->block_count ? p->row_blocks : 0,
                         .schur_group = mapped ? p->schur_group : 0,
                         .schur_dim = mapped && p->schur_group && !p->block_count ? p->schur_dim : 0,
                         .group = p->group,
                         .blocks = p->blocks,
                         .block_count = p->block_count};
}

static polar_status make_inner(pl_shard *s, polar_optim *opt)
{
    int64_t n = 0, groups = opt->groups - 1;
    for (int64_t k = 0; k < s->piece_count; k++) n += s->pieces[k].inner >= 0;
    if (!n) return POLAR_OK;
    polar_param *params = pl_calloc((size_t)n, sizeof *params);
    piece_name *names = pl_calloc((size_t)n, sizeof *names);
    polar_group *group = pl_calloc((size_t)groups + 1, sizeof *group);
    polar_status st = params && names && group
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_NOMEM, "%lld pieces of an optimiser", (long long)n);
    for (int64_t k = 0; k < s->piece_count && st == POLAR_OK; k++) {
        const pl_piece *piece = &s->pieces[k];
        if (piece->inner >= 0) fill_param(&params[piece->inner], names[piece->inner], opt, piece);
    }
    polar_optim_opts o = opt->o;
    o.comm = NULL, o.leaves = o.bucket_bytes = 0, o.grads = POLAR_GRADS_MEAN;
    o.rule = opt->group[0].rule;
    o.matrix_names = o.aux_names = NULL; /* every piece says its route */
    o.allow_no_matrix = 1;
    o.groups = group, o.group_count = groups;
    if (o.skip_nonfinite != POLAR_SKIP_NEVER) o.skip_nonfinite = POLAR_SKIP_FLAGGED; /* all ranks together */
    for (int64_t i = 0; i < groups && st == POLAR_OK; i++) {
        const polar_hyper *m = &opt->group[i + 1].given[0], *a = &opt->group[i + 1].given[1];
        group[i] = (polar_group){&opt->group[i + 1].rule, m->lr,    m->weight_decay, a->lr,
                                 a->weight_decay,         a->beta1, a->beta2,        a->eps,
                                 POLAR_ROUTE_AUTO,        0};
    }
    if (st == POLAR_OK) st = polar_optim_create(&s->inner, opt->dev, params, n, &o);
    pl_free(params);
    pl_free(names);
    pl_free(group);
    return st;
}

/* ---- making and unmaking ------------------------------------------------------------------------ */

static polar_status take_lists(pl_shard *s, const polar_optim *opt)
{
    size_t n = (size_t)opt->n, ranks = (size_t)s->size;
    s->owner = pl_calloc(n, sizeof *s->owner);
    s->load = pl_calloc(ranks, sizeof *s->load);
    s->segment = pl_calloc(ranks + 1, sizeof *s->segment);
    s->weight_segment = pl_calloc(ranks + 1, sizeof *s->weight_segment);
    s->rows = pl_calloc(2 * n * ranks, sizeof *s->rows);
    s->present = pl_calloc(n, sizeof *s->present);
    s->home_w = pl_calloc(n, sizeof *s->home_w);
    s->home_g = pl_calloc(n, sizeof *s->home_g);
    s->part = pl_calloc(4 * ranks, sizeof *s->part);
    s->bucket_of = pl_calloc(n, sizeof *s->bucket_of);
    s->pieces_at = pl_calloc(n + 1, sizeof *s->pieces_at);
    s->added = pl_calloc(n, sizeof *s->added);
    int all = s->bucket_of && s->pieces_at && s->added && s->owner && s->load && s->segment &&
              s->weight_segment && s->rows && s->present && s->home_w && s->home_g && s->part;
    PL_NEED(all, POLAR_E_NOMEM, "an optimiser of %lld parameters over %d ranks", (long long)opt->n, s->size);
    return POLAR_OK;
}

static polar_status fill(pl_shard *s, polar_optim *opt)
{
    int overlap;
    PL_TRY(take_lists(s, opt));
    PL_TRY(agree(opt, s));
    PL_TRY(gather_rows(opt, s));
    s->leaves = opt->o.leaves ? opt->o.leaves : s->size;
    pl_comm_share_of(s->leaves, s->rank, s->size, &s->first_leaf, &s->leaf_count);
    s->next_leaf = s->first_leaf;
    PL_TRY(choose_format(s, opt));
    PL_TRY(can_overlap(s, opt, &overlap));
    PL_TRY(make_pieces(s, opt, overlap));
    polar_status taken = take_memory(s, opt);
    if (taken == POLAR_OK && overlap) taken = pl_courier_begin(s);
    PL_TRY(pl_comm_agree(s->comm, taken, "taking memory for the exchanges of an optimiser"));
    if (s->any_rows) { /* the owners' copies must be there before their master copies are made of them */
        polar_queue *q;
        PL_TRY(polar_queue_create(&q, opt->dev, NULL));
        polar_status st = pl_shard_weights_in(opt, q);
        if (st == POLAR_OK) st = polar_queue_sync(q);
        polar_queue_destroy(q);
        PL_TRY(st);
    }
    return pl_comm_agree(s->comm, make_inner(s, opt), "making an optimiser");
}

polar_status pl_shard_create(polar_optim *opt)
{
    pl_shard *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "an optimiser over several ranks");
    opt->shard = s;
    s->comm = opt->o.comm;
    s->rank = polar_comm_rank(s->comm);
    s->size = polar_comm_size(s->comm);
    return fill(s, opt);
}

void pl_shard_destroy(polar_optim *opt)
{
    pl_shard *s = opt->shard;
    if (!s) return;
    pl_courier_end(s->courier);
    polar_optim_destroy(s->inner);
    char *const device[] = {s->slots, s->got,     s->zeros,    s->weights,
                            s->homes, s->rows_in, s->rows_out, (char *)s->flag};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) polar_device_free(opt->dev, device[i]);
    void *const host[] = {s->pieces,         s->owner,     s->load,      s->segment,
                          s->weight_segment, s->rows,      s->present,   s->home_w,
                          s->home_g,         s->part,      s->bucket_at, s->bucket_missing,
                          s->bucket_of,      s->pieces_at, s->piece_of,  s->added};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) pl_free(host[i]);
    pl_free(s);
    opt->shard = NULL;
}

polar_status polar_optim_get_part(const polar_optim *opt, int64_t param, int rank, int64_t *first,
                                  int64_t *count)
{
    PL_NEED_ARG(opt);
    PL_NEED_ARG(first);
    PL_NEED_ARG(count);
    int ranks = opt->shard ? opt->shard->size : 1;
    PL_NEED(param >= 0 && param < opt->n && rank >= 0 && rank < ranks, POLAR_E_ARG,
            "parameter %lld on rank %d: there are %lld on %d, from 0", (long long)param, rank,
            (long long)opt->n, ranks);
    *first = 0;
    *count = opt->shard ? 0 : opt->params[param].rows * opt->params[param].cols;
    for (int64_t k = 0; opt->shard && k < opt->shard->piece_count; k++) {
        const pl_piece *piece = &opt->shard->pieces[k];
        if (piece->param == param && piece->rank == rank) *first = piece->first, *count = piece->count;
    }
    return POLAR_OK;
}
