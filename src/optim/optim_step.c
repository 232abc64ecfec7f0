/* optim_step.c -- one step: live values, then momentum and preconditioner, the polar map over all matrices at once, scale, decay and step; or, where the device has an op for
 * all of that (polar_step), each matrix from end to end. */
#include <math.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "compose/newton_schulz.h"
#include "device/backend.h"
#include "optim/optim_impl.h"
#include "optim/optim_layout.h"

/* ---- live values ----------------------------------------------------------------------------------- */

static double correction(double beta, int64_t t)
{
    return 1 / (1 - pow(beta, (double)t));
}

polar_status pl_optim_check_queue(polar_optim *opt, const pl_queue *q)
{
    PL_NEED(opt, POLAR_E_ARG, "no optimiser: opt is NULL (did polar_optim_create fail?)");
    PL_NEED(q, POLAR_E_ARG, "no queue: q is NULL (did polar_queue_create fail?)");
    PL_NEED(q->dev == opt->dev, POLAR_E_ARG, "the queue is one of device '%s', the optimiser was made for another ('%s')", q->dev->name, opt->dev->name);
    opt->last_serial = q->serial;
    return POLAR_OK;
}

/* The values of step t at f times the lr; with skip the work leaves everything as it is. */
static void upload_live(polar_optim *opt, pl_queue *q, int64_t t, double f, int skip)
{
    const polar_optim_opts *o = &opt->o;
    for (int64_t i = 0; i < opt->members; i++) {
        const pl_optim_member *m = &opt->member[i];
        double *rule = opt->live_host + i * 2 * PL_LIVE_COLS, *aux = rule + PL_LIVE_COLS;
        double lr = m->active ? m->lr * f : 0, aux_lr = m->active ? m->aux_lr * f : 0;    /* lr 0 leaves the weights alone, whatever the direction */
        pl_live_row(rule, correction(o->rule.beta1, t), correction(o->rule.beta2, t), lr, m->decay, o->rule.beta1, o->rule.beta2, o->rule.eps);
        pl_live_row(aux, correction(o->aux_beta1, t), correction(o->aux_beta2, t), aux_lr, m->aux_decay, o->aux_beta1, o->aux_beta2, o->aux_eps);
        rule[PL_LIVE_SKIP] = aux[PL_LIVE_SKIP] = skip;
    }
    pl_live_set(opt->live, q, 0, opt->members * 2 * PL_LIVE_COLS, opt->live_host);
}

void pl_optim_live_begin(polar_optim *opt, pl_queue *q)
{
    upload_live(opt, q, 1, 0, 1);
}

polar_status polar_optim_prepare(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    if (q->dry) return POLAR_OK;    /* a dry run counts costs, not steps */
    upload_live(opt, q, opt->t + 1, polar_schedule_factor(&opt->o.schedule, opt->t), 0);
    if (q->error != POLAR_OK) return pl_fail_again(q->error, q->message);
    opt->t++;
    return POLAR_OK;
}

/* The live rows of a route, one per member. */
static pl_mat live_of(const polar_optim *opt, polar_route route)
{
    pl_mat m = pl_live_view(opt->live, route == POLAR_ROUTE_AUX ? PL_LIVE_COLS : 0, PL_LIVE_COLS);
    m.batch = opt->members;
    m.bs = 2 * PL_LIVE_COLS;
    return m;
}

/* ---- the work -------------------------------------------------------------------------------------- */

/* polar_step can do p: a matrix over its own norm. */
static int is_plain_matrix(const pl_optim_param *p)
{
    return p->route == POLAR_ROUTE_MATRIX && !p->schur_group;
}

/* All plain matrices go from end to end; the directions of one shape are one batch of the map, so none of them may stay behind. */
static int whole_steps(const polar_optim *opt, const pl_queue *q)
{
    const polar_map_opts *map = &opt->o.rule.map;
    int can = pl_queue_has(q, PL_OP_polar_step) && !opt->o.measure && map->kind == POLAR_MAP_NEWTON_SCHULZ && map->precision == POLAR_DTYPE_BF16 &&
              map->rounding != POLAR_ROUND_REFERENCE && map->steps <= PL_FUSED_STEPS;
    for (int64_t i = 0; i < opt->n && can; i++) {
        const pl_optim_param *p = &opt->params[i];
        can = !is_plain_matrix(p) || (p->M.dtype == POLAR_DTYPE_F32 && p->G.dtype != POLAR_DTYPE_F64);
    }
    return can;
}

/* Every block of rows a matrix of its own; all tensors are packed. */
static pl_mat blocks_of(pl_mat m, const pl_optim_param *p)
{
    return pl_mat_dense(m.data, m.dtype, m.batch * p->row_blocks, p->rows / p->row_blocks, p->cols);
}

static void enqueue_whole(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_rule *r = &opt->o.rule;
    pl_mat W = blocks_of(pl_optim_weight(p), p), M = blocks_of(p->M, p), V = blocks_of(p->V, p), G = blocks_of(p->G, p), live = live_of(opt, p->route);
    int64_t calls = p->row_blocks == 1 ? 1 : opt->members, each = W.batch / calls;    /* one row of live values for all matrices of a call, or one for each */
    for (int64_t k = 0; k < calls; k++) {
        pl_args_polar_step a = {.W = pl_mat_at(W, k * each, each), .M = pl_mat_at(M, k * each, each), .G = pl_mat_at(G, k * each, each),
                                .live = calls == 1 ? live : pl_mat_at(live, k, 1), .momentum = r->momentum, .precondition = r->precondition, .steps = r->map.steps,
                                .scale = p->scale};
        if (r->precondition) a.V = pl_mat_at(V, k * each, each);
        pl_ns_coefs(a.coef, r->map.coefs, a.steps);
        a.chain = pl_ns_chain(r->map.rounding, r->map.coefs, 0, a.steps, &a.W);
        pl_call_polar_step(q, &a);
    }
}

static void enqueue_direction(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_optim_opts *o = &opt->o;
    int aux = p->route == POLAR_ROUTE_AUX;
    if (pl_optim_keeps_direction(opt, p))
        PL_CALL(direction, q, .D = p->D, .M = p->M, .V = p->V, .G = p->G, .live = live_of(opt, p->route), .momentum = aux ? POLAR_MOMENTUM_EMA : o->rule.momentum,
                .precondition = aux ? POLAR_PRECONDITION_ADAM : o->rule.precondition);
    else
        PL_CALL(adamw_step, q, .W = pl_optim_weight(p), .M = p->M, .V = p->V, .G = p->G, .live = live_of(opt, p->route));
}

/* All shapes in one call; then each Schur group with its shared norm. */
static void enqueue_maps(polar_optim *opt, pl_queue *q, int whole)
{
    for (int64_t i = 0, count; i < opt->map_count; i += count) {
        for (count = 1; i + count < opt->map_count && opt->map_group[i + count] == opt->map_group[i];) count++;
        if (opt->map_group[i] || !whole) pl_map_enqueue(q, opt->maps + i, opt->maps + i, opt->map_group[i] ? opt->map_dim + i : NULL, count, &opt->o.rule.map);
    }
}

static void enqueue_step(polar_optim *opt, pl_queue *q, const pl_optim_param *p, int whole)
{
    if (pl_optim_keeps_direction(opt, p) && !(whole && is_plain_matrix(p))) {
        pl_mat flat = pl_mat_dense(p->D.data, p->D.dtype, 1, p->D.batch * p->rows, p->cols);
        if (p->N.data) PL_CALL(frob, q, .N = p->N, .X = flat, .weight = 1);
        PL_CALL(decay_step, q, .W = pl_optim_weight(p), .D = p->D, .live = live_of(opt, p->route), .scale = p->scale);
    }
}

static void enqueue_rounded(pl_queue *q, const pl_optim_param *p)
{
    if (p->master.data) PL_CALL(copy, q, .Y = p->W, .X = p->master);
}

static void enqueue_all(pl_queue *q, void *arg)
{
    polar_optim *opt = arg;
    int whole = whole_steps(opt, q);
    pl_queue_together_begin(q);
    for (int64_t i = 0; i < opt->n; i++) {
        q->subject = opt->params[i].name;
        (whole && is_plain_matrix(&opt->params[i]) ? enqueue_whole : enqueue_direction)(opt, q, &opt->params[i]);
    }
    q->subject = NULL;
    pl_queue_together_end(q);
    enqueue_maps(opt, q, whole);
    pl_queue_together_begin(q);
    for (int64_t i = 0; i < opt->n; i++) {
        q->subject = opt->params[i].name;
        enqueue_step(opt, q, &opt->params[i], whole);
    }
    q->subject = NULL;
    pl_queue_together_end(q);
    pl_queue_together_begin(q);
    for (int64_t i = 0; i < opt->n; i++) enqueue_rounded(q, &opt->params[i]);
    pl_queue_together_end(q);
}

static polar_status check_grads(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++)
        PL_NEED(opt->params[i].G.data || opt->params[i].rows * opt->params[i].cols == 0, POLAR_E_STATE, "'%s' has no gradient yet (polar_optim_set_grad)", opt->params[i].name);
    return POLAR_OK;
}

polar_status polar_optim_enqueue(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_TRY(check_grads(opt));
    enqueue_all(q, opt);
    return q->error == POLAR_OK ? POLAR_OK : pl_fail_again(q->error, q->message);
}

/* All the scratch of a step before its first op, so that running out of memory comes before the moments have moved. */
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

/* A capture pays where the same pointers come again: gradients that have just moved (torch hands out new ones every step) may move on. */
static polar_status run_step(polar_optim *opt, pl_queue *q)
{
    int moved = opt->moved;
    opt->moved = 0;
    if (moved || opt->o.rule.map.kind == POLAR_MAP_EXACT) return polar_optim_enqueue(opt, q);    /* an SVD cannot be captured everywhere */
    if (!opt->graph) PL_TRY(pl_graph_create(&opt->graph, opt->dev));
    return pl_graph_run(opt->graph, q, enqueue_all, opt);
}

polar_status polar_optim_step(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    int64_t t = opt->t;
    PL_TRY(check_grads(opt));
    PL_TRY(take_scratch(opt, q));
    PL_TRY(polar_optim_prepare(opt, q));
    polar_status st = run_step(opt, q);
    if (st != POLAR_OK) opt->t = t;
    return st;
}

/* ---- what happened --------------------------------------------------------------------------------- */

polar_status polar_optim_stats_sized(polar_optim *opt, polar_queue *q, polar_param_stats *out, size_t size)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_NEED_ARG(out);
    double *norms = pl_calloc((size_t)opt->n * 2, sizeof *norms);
    PL_NEED(norms, POLAR_E_NOMEM, "norms of %lld parameters", (long long)opt->n);
    for (int64_t i = 0; i < opt->n; i++)
        if (opt->params[i].N.data) polar_queue_download(q, norms + 2 * i, opt->params[i].N.data, 2 * sizeof *norms);
    polar_status st = polar_queue_sync(q);
    for (int64_t i = 0; i < opt->n && st == POLAR_OK; i++) {
        const pl_optim_param *p = &opt->params[i];
        double lr = opt->live_host[PL_LIVE_LR + (p->route == POLAR_ROUTE_AUX ? PL_LIVE_COLS : 0)];
        polar_param_stats s = {.name = p->name, .route = p->route, .rows = p->rows / p->row_blocks, .cols = p->cols, .blocks = p->row_blocks * opt->members, .scale = p->scale};
        s.effective_lr = lr * p->scale;
        s.update_norm = p->N.data && opt->t ? lr * p->scale * norms[2 * i + 1] / norms[2 * i] : NAN;
        st = pl_sized_give("polar_param_stats", (char *)out + (size_t)i * size, size, &s, sizeof s, PL_PARAM_STATS_0_1);
    }
    pl_free(norms);
    return st;
}
