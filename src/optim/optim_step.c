/* optim_step.c -- one step: live values, then momentum and preconditioner, the polar map over all matrices at
 * once (and what a rule has around it, optim_stage.c), scale, decay and step; or, where the device has an op
 * for all of that (polar_step) that takes the shape, each matrix from end to end. */
#include <math.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "compose/newton_schulz.h"
#include "device/backend.h"
#include "optim/optim_impl.h"
#include "optim/optim_layout.h"
#include "optim/shard.h"

/* ---- live values -------------------------------------------------------------------------------- */

static double correction(double beta, int64_t t)
{
    return 1 / (1 - pow(beta, (double)t));
}

polar_status pl_optim_check_queue(polar_optim *opt, const pl_queue *q)
{
    PL_NEED(opt, POLAR_E_ARG, "no optimiser: opt is NULL (did polar_optim_create fail?)");
    PL_NEED(q, POLAR_E_ARG, "no queue: q is NULL (did polar_queue_create fail?)");
    PL_NEED(q->dev == opt->dev, POLAR_E_ARG,
            "the queue is one of device '%s', the optimiser was made for another ('%s')", q->dev->name,
            opt->dev->name);
    opt->last_serial = q->serial;
    return pl_optim_check_ready(opt);
}

/* The live row of a member: of a group's route, or of a parameter where those count their own steps. */
static void fill_row(polar_optim *opt, int64_t slot, int64_t member, double factor, int skip)
{
    const int rest = slot >= opt->n;
    const pl_optim_param *p =
        opt->own_counts ? &opt->params[rest ? opt->rest_of[slot - opt->n] : slot] : NULL;
    int64_t group = p ? p->group : slot / 2;
    int aux = p ? rest || p->route == POLAR_ROUTE_AUX : slot % 2;
    const polar_hyper *h = pl_optim_hyper(opt, group, aux, member);
    double *row = opt->live_host + (slot * opt->members + member) * PL_LIVE_COLS;
    double lr =
        opt->active[member] ? h->lr * factor : 0; /* lr 0 leaves the weights alone, whatever the direction */
    const polar_rule *r = &opt->group[group].rule;
    /* steps that only gather gradients for a first basis */
    const int waits =
        r->precondition == POLAR_PRECONDITION_SOAP || r->precondition == POLAR_PRECONDITION_KL_SOAP;
    int64_t wait = !aux && waits ? r->first_basis : 0, t = opt->t + 1 > wait ? opt->t + 1 - wait : 1;
    double c1 = p ? 0 : correction(h->beta1, t),
           c2 = p ? 0 : correction(h->beta2, t); /* else `advance` makes them */
    int constrained = !aux && r->apply == POLAR_APPLY_CONSTRAINED;
    pl_live_row(row, c1, c2, lr, constrained ? 1 : h->weight_decay, h->beta1, h->beta2, h->eps);
    row[PL_LIVE_STEP] = p ? 0 : (double)(opt->t + 1);
    row[PL_LIVE_WAIT] = (double)wait;
    row[PL_LIVE_SKIP] = skip || (p && pl_optim_missing(p)) ? 1 : !p && opt->t < wait ? PL_SKIP_WAIT : 0;
}

/* Every live row; with skip the work leaves everything as it is. */
static void upload_live(polar_optim *opt, pl_queue *q, double factor, int skip)
{
    for (int64_t slot = 0; slot < opt->slots; slot++)
        for (int64_t i = 0; i < opt->members; i++) fill_row(opt, slot, i, factor, skip);
    pl_live_set(opt->live, q, 0, opt->slots * opt->members * PL_LIVE_COLS, opt->live_host);
}

void pl_optim_live_begin(polar_optim *opt, pl_queue *q)
{
    upload_live(opt, q, 0, 1);
}

/* Over several ranks the gradients come together first: whether one is missing is known then only. */
static polar_status prepare_shared(polar_optim *opt, pl_queue *q)
{
    PL_TRY(pl_shard_check(opt));
    PL_TRY(pl_shard_grads_in(opt, q));
    pl_shard_settings(opt);
    if (opt->shard->inner) PL_TRY(polar_optim_prepare(opt->shard->inner, q));
    opt->t++;
    opt->stepped = 1;
    return POLAR_OK;
}

static polar_status enqueue_shared(polar_optim *opt, pl_queue *q)
{
    if (opt->shard->inner) PL_TRY(polar_optim_enqueue(opt->shard->inner, q));
    return pl_shard_weights_out(opt, q);
}

static polar_status step_shared(polar_optim *opt, pl_queue *q)
{
    polar_optim *inner = opt->shard->inner;
    PL_TRY(pl_shard_check(opt));
    PL_TRY(pl_shard_grads_in(opt, q));
    pl_shard_settings(opt);
    if (inner) PL_TRY(polar_optim_step(inner, q));
    PL_TRY(pl_shard_weights_out(opt, q));
    if (q->dry) return POLAR_OK;
    opt->t++;
    opt->stepped = 1;
    return POLAR_OK;
}

polar_status polar_optim_prepare(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    if (q->dry) return POLAR_OK; /* a dry run counts costs, not steps */
    if (opt->shard) return prepare_shared(opt, q);
    upload_live(opt, q, polar_schedule_factor(&opt->o.schedule, opt->t), 0);
    if (q->error != POLAR_OK) return pl_fail_again(q->error, q->message);
    opt->t++;
    opt->stepped = 1;
    return POLAR_OK;
}

/* The live rows of `slots` slots from `slot` on. */
static pl_mat live_rows(const polar_optim *opt, int64_t slot, int64_t slots)
{
    pl_mat m = pl_live_view(opt->live, slot * opt->members * PL_LIVE_COLS, PL_LIVE_COLS);
    m.batch = slots * opt->members;
    return m;
}

pl_mat pl_optim_live_of(const polar_optim *opt, const pl_optim_param *p)
{
    return live_rows(opt, p->slot, 1);
}

/* ---- the work ----------------------------------------------------------------------------------- */

pl_mat pl_optim_blocks(pl_mat m, const pl_optim_param *p)
{
    m.rows = p->rows / p->row_blocks;
    m.cols = p->cols;
    if (p->row_blocks > 1) m.batch *= p->row_blocks, m.bs = m.rows * m.rs;
    return m;
}

/* One row of live values for all matrices of a call, or one for each. */
static int64_t whole_calls(const polar_optim *opt, const pl_optim_param *p)
{
    return p->row_blocks == 1 ? 1 : opt->members;
}

static pl_args_polar_step whole_args(const polar_optim *opt, const pl_optim_param *p, int64_t k)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    pl_mat W = pl_optim_blocks(pl_optim_weight(p), p), M = pl_optim_blocks(p->M, p),
           V = pl_optim_blocks(p->V, p), G = pl_optim_blocks(p->G, p), live = pl_optim_live_of(opt, p);
    int64_t calls = whole_calls(opt, p), each = W.batch / calls;
    pl_args_polar_step a = {.W = pl_mat_at(W, k * each, each),
                            .M = pl_mat_at(M, k * each, each),
                            .G = pl_mat_at(G, k * each, each),
                            .live = calls == 1 ? live : pl_mat_at(live, k, 1),
                            .momentum = r->momentum,
                            .precondition = r->precondition,
                            .steps = r->map.steps,
                            .eps = r->map.eps,
                            .scale = p->scale,
                            .post = r->post,
                            .apply = r->apply,
                            .strength = r->strength};
    if (r->post) a.P = pl_mat_at(pl_optim_moments(opt, p), k * each, each);
    if (r->precondition) a.V = pl_mat_at(V, k * each, each);
    pl_ns_coefs(a.coef, r->map.coefs, a.steps);
    a.chain = pl_ns_chain(opt->group[p->group].joined, 0, a.steps, &a.W);
    return a;
}

/* polar_step can do p: a matrix over its own norm, of a shape and formats that the device's op takes. */
static int can_be_whole(const polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_map_opts *map = &pl_optim_rule(opt, p)->map;
    if (p->route != POLAR_ROUTE_MATRIX || p->schur_group || p->rows * p->cols == 0 || opt->o.measure)
        return 0;
    if (!pl_optim_fused(opt, p)) return 0;
    if (!pl_polar_step_fuses(q, map)) return 0;
    if (p->M.dtype != POLAR_DTYPE_F32 || p->G.dtype == POLAR_DTYPE_F64) return 0;
    pl_args_polar_step a = whole_args(opt, p, 0);
    return pl_polar_step_serves(q, &a);
}

static void enqueue_whole(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    for (int64_t k = 0; k < whole_calls(opt, p); k++) {
        pl_args_polar_step a = whole_args(opt, p, k);
        pl_call_polar_step(q, &a);
    }
}

static void enqueue_direction(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    int aux = p->route == POLAR_ROUTE_AUX;
    pl_mat V = aux || r->precondition <= POLAR_PRECONDITION_LAPROP ? p->V : (pl_mat){0};
    if (pl_optim_keeps_direction(opt, p))
        PL_CALL(direction, q, .D = p->D, .M = p->M, .V = V, .G = p->G, .live = pl_optim_live_of(opt, p),
                .momentum = aux ? POLAR_MOMENTUM_EMA : r->momentum,
                .precondition = aux                                           ? POLAR_PRECONDITION_ADAM
                                : r->precondition > POLAR_PRECONDITION_LAPROP ? POLAR_PRECONDITION_NONE
                                                                              : r->precondition);
    else
        PL_CALL(adamw_step, q, .W = pl_optim_weight(p), .M = p->M, .V = p->V, .G = p->G,
                .live = pl_optim_live_of(opt, p));
}

/* The directions that were made, as batches of the map: neighbours of one shape together. Returns how many.
 */
static int64_t gather_maps(polar_optim *opt, int again)
{
    int64_t n = 0;
    for (int64_t k = 0; k < opt->order_count; k++) {
        const pl_optim_param *p = &opt->parts[opt->order[k]];
        if (pl_optim_missing(p) || p->whole || !pl_optim_mapped(opt, p)) continue;
        if (again && !pl_optim_again(opt, p)) continue;
        pl_mat D = p->R.data ? p->R : pl_optim_blocks(p->D, p), *last = n ? &opt->maps[n - 1] : NULL;
        int64_t set = opt->group[p->group].map_set;
        int joins = last && !p->schur_group && !opt->map_group[n - 1] && opt->map_set[n - 1] == set &&
                    last->dtype == D.dtype && last->rows == D.rows && last->cols == D.cols;
        if (joins && (char *)last->data + pl_mat_bytes(last) == (char *)D.data) {
            last->batch += D.batch;
            continue;
        }
        opt->maps[n] = D;
        opt->map_dim[n] = p->schur_dim;
        opt->map_set[n] = set;
        opt->map_group[n++] = p->schur_group;
    }
    return n;
}

/* All shapes of a map in one call; then each Schur group with its shared norm. */
static void enqueue_maps(polar_optim *opt, pl_queue *q, int again)
{
    pl_optim_lines_move(opt, q, again, 0);
    for (int64_t i = 0, count, n = gather_maps(opt, again); i < n; i += count) {
        for (count = 1; i + count < n && opt->map_group[i + count] == opt->map_group[i] &&
                        opt->map_set[i + count] == opt->map_set[i];)
            count++;
        pl_map_enqueue(q, opt->maps + i, opt->maps + i, opt->map_group[i] ? opt->map_dim + i : NULL, count,
                       &opt->group[opt->map_set[i]].rule.map);
    }
    pl_optim_lines_move(opt, q, again, 1);
}

static void enqueue_step(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    if (pl_optim_keeps_direction(opt, p) && !p->whole) {
        pl_mat flat = pl_mat_dense(p->D.data, p->D.dtype, 1, p->D.batch * p->rows, p->cols);
        if (p->N.data) PL_CALL(frob, q, .N = p->N, .X = flat, .weight = 1);
        pl_optim_apply(opt, q, p);
    }
}

static void enqueue_rounded(pl_queue *q, const pl_optim_param *p)
{
    if (p->master.data) PL_CALL(copy, q, .Y = p->W, .X = p->master);
}

/* Whether the step is made at all, its rates where they are not the host's, and its bias corrections: on the
 * device. */
static void enqueue_advance(polar_optim *opt, pl_queue *q)
{
    pl_queue_overlap_begin(q);
    if (opt->rates.data) {
        pl_mat lr = live_rows(opt, 0, opt->slots);
        lr.data = (double *)lr.data + PL_LIVE_LR;
        lr.cols = 1;
        PL_CALL(copy, q, .Y = lr, .X = opt->rates);
    }
    for (int64_t i = 0; i < opt->part_count && opt->o.skip_nonfinite == POLAR_SKIP_NONFINITE; i++)
        if (opt->parts[i].G.data) PL_CALL(nonfinite, q, .F = opt->flags, .G = opt->parts[i].G);
    for (int64_t i = 0; i < opt->rests; i++) /* whoever wrote a parameter's count wrote that of all of it */
        PL_CALL(copy, q, .Y = pl_mat_at(opt->rest_counts, i * opt->members, opt->members),
                .X = opt->params[opt->rest_of[i]].T);
    pl_queue_overlap_end(q);
    PL_CALL(advance, q, .L = live_rows(opt, 0, opt->slots),
            .T = pl_mat_dense(opt->params[0].T.data, POLAR_DTYPE_F64, opt->slots * opt->members, 1, 2),
            .F = opt->flags, .found = opt->found, .scale = opt->scale);
}

static void enqueue_all(pl_queue *q, void *arg)
{
    polar_optim *opt = arg;
    for (int64_t i = 0; i < opt->part_count; i++)
        opt->parts[i].whole = !pl_optim_missing(&opt->parts[i]) && can_be_whole(opt, q, &opt->parts[i]);
    if (opt->own_counts) enqueue_advance(opt, q);
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        q->subject = opt->parts[i].name;
        if (!pl_optim_missing(&opt->parts[i]) && !pl_optim_picks(opt, &opt->parts[i]))
            (opt->parts[i].whole ? enqueue_whole : enqueue_direction)(opt, q, &opt->parts[i]);
    }
    q->subject = NULL;
    pl_queue_overlap_end(q);
    pl_optim_stages_before(opt, q);
    enqueue_maps(opt, q, 0);
    if (pl_optim_stages_again(opt, q)) enqueue_maps(opt, q, 1);
    pl_optim_stages_after(opt, q);
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        q->subject = opt->parts[i].name;
        if (!pl_optim_missing(&opt->parts[i])) enqueue_step(opt, q, &opt->parts[i]);
    }
    q->subject = NULL;
    pl_queue_overlap_end(q);
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->n; i++)
        if (!pl_optim_missing(&opt->params[i])) enqueue_rounded(q, &opt->params[i]);
    pl_queue_overlap_end(q);
}

/* Every gradient is there, or may be missing; blocks that share a norm are there together. */
static polar_status check_grads(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        if (!pl_optim_missing(p)) continue;
        PL_NEED(opt->o.skip_missing, POLAR_E_STATE,
                "'%s' has no gradient yet (polar_optim_set_grad; or opts.skip_missing, if it is to stay as "
                "it is)",
                p->name);
        for (int64_t j = 0; j < opt->n && p->schur_group; j++) {
            const pl_optim_param *s = &opt->params[j];
            PL_NEED(s->schur_group != p->schur_group || pl_optim_missing(s), POLAR_E_STATE,
                    "'%s' has no gradient and '%s', with which it shares a norm, has one", p->name, s->name);
        }
    }
    return POLAR_OK;
}

/* A gradient that was taken away between prepare and enqueue would leave its parameter's count a step ahead.
 */
static polar_status check_prepared(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n && opt->own_counts && opt->stepped; i++) {
        const pl_optim_param *p = &opt->params[i];
        int prepared = opt->live_host[p->slot * opt->members * PL_LIVE_COLS + PL_LIVE_SKIP] == 0;
        PL_NEED(!pl_optim_missing(p) || !prepared, POLAR_E_STATE,
                "the gradient of '%s' was there in polar_optim_prepare and is gone in polar_optim_enqueue",
                p->name);
    }
    return POLAR_OK;
}

polar_status polar_optim_enqueue(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    if (opt->shard) return enqueue_shared(opt, q);
    PL_TRY(check_grads(opt));
    PL_TRY(check_prepared(opt));
    enqueue_all(q, opt);
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

/* All the scratch of a step before its first op, so that running out of memory comes before the moments have
 * moved. */
static polar_status take_scratch(polar_optim *opt, pl_queue *q)
{
    polar_cost cost;
    if (opt->scratch_serial == q->serial || q->dry || q->capturing || q->error != POLAR_OK) return POLAR_OK;
    PL_TRY(polar_queue_dry_begin(q));
    enqueue_all(q, opt);
    PL_TRY(polar_queue_dry_end(q, &cost));
    PL_TRY(polar_queue_reserve(q, cost.scratch_bytes));
    opt->scratch_serial = q->serial;
    return POLAR_OK;
}

/* 1: the graph reads the gradients where they are now. */
static int follow(polar_optim *opt, pl_queue *q)
{
    for (int64_t i = 0; i < opt->part_count; i++) opt->grads[i].to = opt->parts[i].G.data;
    return pl_graph_move(opt->graph, q, opt->grads, opt->part_count);
}

/* Ops of some part read its gradient beside those that a graph can follow (direction, polar_step and the
 * like): Kronecker factors, moments under a root, momentum of picked lines, norms of gradients. */
static int reads_again(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (pl_optim_kron(opt, p) || pl_optim_rooted(opt, p) || pl_optim_picks(opt, p)) return 1;
        if (p->B.data && pl_post_norms(pl_optim_rule(opt, p))) return 1;
    }
    return 0;
}

/* Whether what has moved is more than a graph can follow. */
static int is_lost(polar_optim *opt, pl_queue *q)
{
    if (!opt->moved) return 0;
    if (opt->moved & PL_MOVED_OTHERS || opt->rigid || !pl_graph_can_move(opt->dev)) return 1;
    if (reads_again(opt)) return opt->rigid = 1;
    if (opt->graph) opt->rigid = !follow(opt, q);
    return opt->rigid;
}

/* A capture pays where it can be launched again: gradients that no graph can follow and that have just moved
 * (torch hands out new ones) may move on, and those that moved after a capture are waited for longer each
 * time. */
static polar_status run_step(polar_optim *opt, pl_queue *q)
{
    if (pl_queue_in_capture(q)) return polar_optim_enqueue(opt, q); /* the caller's: ours stays as it is */
    int lost = is_lost(opt, q);
    if (lost && opt->graph) {
        opt->patience = opt->patience < 2 ? 2 : opt->patience < 32 ? 2 * opt->patience : 64;
        pl_optim_drop_graph(opt);
    }
    opt->calm = lost ? 0 : opt->calm + 1;
    opt->moved = 0;
    int plain = lost || opt->calm < opt->patience;
    for (int64_t i = 0; i < opt->groups; i++) plain |= pl_map_decomposes(&opt->group[i].rule.map);
    if (plain) return polar_optim_enqueue(opt, q); /* an SVD cannot be captured everywhere */
    if (!opt->graph) PL_TRY(pl_graph_create(&opt->graph, opt->dev));
    for (int64_t i = 0; i < opt->part_count; i++) opt->grads[i].from = opt->parts[i].G.data;
    return pl_graph_run(opt->graph, q, enqueue_all, opt);
}

polar_status polar_optim_step(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    if (opt->shard) return step_shared(opt, q);
    int64_t t = opt->t;
    PL_TRY(check_grads(opt));
    PL_TRY(take_scratch(opt, q));
    PL_TRY(polar_optim_prepare(opt, q));
    polar_status st = run_step(opt, q);
    if (st != POLAR_OK) opt->t = t;
    return st;
}

/* ---- what happened ------------------------------------------------------------------------------ */

/* What the device knows of steps: per parameter and member (made, left out), and the live rows of the last
 * step. */
typedef struct counts {
    double *steps, *rows;
} counts;

static polar_status counts_take(counts *out, polar_optim *opt, pl_queue *q)
{
    size_t rows = (size_t)(opt->n * opt->members);
    *out = (counts){0};
    if (!opt->own_counts) return polar_queue_sync(q);
    out->steps = pl_calloc(rows, 2 * sizeof(double));
    out->rows = pl_calloc(rows, PL_LIVE_COLS * sizeof(double));
    PL_NEED(out->steps && out->rows, POLAR_E_NOMEM, "step counts of %lld parameters", (long long)opt->n);
    polar_queue_download(q, out->steps, opt->params[0].T.data, rows * 2 * sizeof(double));
    if (opt->stepped)
        polar_queue_download(q, out->rows, live_rows(opt, 0, 1).data, rows * PL_LIVE_COLS * sizeof(double));
    PL_TRY(polar_queue_sync(q));
    pl_optim_step_count(opt, out->steps);
    for (size_t i = 0; i < rows && opt->stepped && opt->rates.data; i++) /* the device's rates */
        opt->live_host[i * PL_LIVE_COLS + PL_LIVE_LR] = out->rows[i * PL_LIVE_COLS + PL_LIVE_LR];
    return POLAR_OK;
}

/* A count of the state, which its owner may have written: what is no number of steps is none. */
static int64_t counted(double x)
{
    return x >= 0 && x <= 0x1p40 ? (int64_t)x : 0;
}

void pl_optim_step_count(polar_optim *opt, const double *steps)
{
    opt->skipped = 0;
    if (opt->o.placed) opt->t = 0;
    for (int64_t i = 0; i < opt->n; i++) { /* a parameter that is missing is not asked */
        const double *at = steps + 2 * i * opt->members;
        int64_t skipped = counted(at[1]), all = counted(at[0]) + skipped;
        if (skipped > opt->skipped) opt->skipped = skipped;
        if (opt->o.placed && all > opt->t) opt->t = all;
    }
}

/* Steps and maps of parameter i. */
static void count_into(polar_param_stats *s, const polar_optim *opt, int64_t i, const counts *c)
{
    const pl_optim_param *p = &opt->params[i];
    int64_t all = 0, last = 0;
    for (int64_t m = 0; m < opt->members; m++) {
        int64_t row = i * opt->members + m, made = c->steps ? counted(c->steps[2 * row]) : opt->t;
        all += made;
        last += opt->stepped && !(c->rows && c->rows[row * PL_LIVE_COLS + PL_LIVE_SKIP] != 0);
        if (m == 0) s->steps = made, s->skipped = c->steps ? counted(c->steps[2 * row + 1]) : 0;
    }
    s->maps = pl_optim_mapped(opt, p) ? all * pl_optim_matrices(opt, p) : 0;
    s->last_maps = pl_optim_mapped(opt, p) ? last * pl_optim_matrices(opt, p) : 0;
}

polar_param_stats pl_optim_stats_of(const polar_optim *opt, int64_t i)
{
    const pl_optim_param *p = &opt->params[i], *first = &opt->parts[p->first_part];
    return (polar_param_stats){.name = p->name,
                               .route = p->route,
                               .rows = first->rows / first->row_blocks,
                               .cols = first->cols,
                               .blocks = pl_optim_matrices(opt, p) * opt->members,
                               .scale = first->scale,
                               .group = p->group};
}

static double part_lr(const polar_optim *opt, const pl_optim_param *part)
{
    return opt->live_host[part->slot * opt->members * PL_LIVE_COLS + PL_LIVE_LR] * part->scale;
}

/* From frob's pairs, one for each part: mantissa and power of two. */
static double update_norm(const polar_optim *opt, const pl_optim_param *p, const double *norms)
{
    double sum = 0, last = NAN;
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++) {
        const pl_optim_param *part = &opt->parts[k];
        if (!part->N.data || (part->route == POLAR_ROUTE_MATRIX && pl_apply_looks(pl_optim_rule(opt, part))))
            return NAN;
        last = part_lr(opt, part) * norms[2 * k + 1] / norms[2 * k];
        sum += last * last;
    }
    return p->part_count == 1 ? last : sqrt(sum);
}

static polar_status shared_stats(polar_optim *opt, pl_queue *q, polar_param_stats *out, size_t size)
{
    polar_param_stats *all = pl_calloc((size_t)opt->n, sizeof *all);
    PL_NEED(all, POLAR_E_NOMEM, "statistics of %lld parameters", (long long)opt->n);
    polar_status st = pl_shard_stats(opt, q, all);
    for (int64_t i = 0; i < opt->n && st == POLAR_OK; i++)
        st = pl_sized_give("polar_param_stats", (char *)out + (size_t)i * size, size, &all[i], sizeof *all,
                           PL_PARAM_STATS_0_1);
    pl_free(all);
    return st;
}

polar_status polar_optim_stats_sized(polar_optim *opt, polar_queue *q, polar_param_stats *out, size_t size)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_NEED_ARG(out);
    if (opt->shard) return shared_stats(opt, q, out, size);
    counts c = {0};
    double *norms = pl_calloc((size_t)opt->part_count * 2, sizeof *norms);
    PL_NEED(norms, POLAR_E_NOMEM, "norms of %lld parameters", (long long)opt->n);
    for (int64_t i = 0; i < opt->part_count; i++)
        if (opt->parts[i].N.data)
            polar_queue_download(q, norms + 2 * i, opt->parts[i].N.data, 2 * sizeof *norms);
    polar_status st = counts_take(&c, opt, q);
    for (int64_t i = 0; i < opt->n && st == POLAR_OK; i++) {
        polar_param_stats s = pl_optim_stats_of(opt, i);
        s.effective_lr = part_lr(opt, &opt->parts[opt->params[i].first_part]);
        s.update_norm = opt->t ? update_norm(opt, &opt->params[i], norms) : NAN;
        count_into(&s, opt, i, &c);
        st = pl_sized_give("polar_param_stats", (char *)out + (size_t)i * size, size, &s, sizeof s,
                           PL_PARAM_STATS_0_1);
    }
    pl_free(c.steps);
    pl_free(c.rows);
    pl_free(norms);
    return st;
}
