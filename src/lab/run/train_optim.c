/* train_optim.c -- an optimiser over the parameters of a model, and its dry run. */
#include "lab/run/train_optim.h"

#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"

#define SPLIT_BLOCKS 3 /* q, k and v */

/* The blocks of rows of every parameter that split names; a pattern that names nothing is a mistake. */
static polar_status mark_split(polar_param *out, const pl_param *params, int64_t n, const char *split)
{
    int64_t marked = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!*split || params[i].ndim < 2 || !pl_pattern_match(split, params[i].name)) continue;
        PL_NEED(params[i].rows % SPLIT_BLOCKS == 0, POLAR_E_ARG,
                "route.split '%s' names %s, whose %lld rows do not fall into %d blocks", split,
                params[i].name, (long long)params[i].rows, SPLIT_BLOCKS);
        out[i].row_blocks = SPLIT_BLOCKS;
        marked++;
    }
    PL_NEED(!*split || marked, POLAR_E_ARG, "route.split '%s' names no matrix of the model", split);
    return POLAR_OK;
}

/* Parameters without decay are a group of their own. */
#define NO_DECAY_GROUP 1

static polar_status mark_no_decay(polar_param *out, const pl_param *params, int64_t n, const char *names)
{
    int64_t marked = 0;
    for (int64_t i = 0; *names && i < n; i++) {
        if (!pl_pattern_match(names, params[i].name)) continue;
        out[i].group = NO_DECAY_GROUP;
        marked++;
    }
    PL_NEED(!*names || marked, POLAR_E_ARG, "route.no_decay '%s' names no parameter of the model", names);
    return POLAR_OK;
}

int64_t pl_train_slots(int64_t *slot_of, pl_train_group *groups, int64_t members,
                       int (*alike)(const void *settings, int64_t i, int64_t k), const void *settings)
{
    int64_t slot = 0, count = 0;
    for (int64_t i = 0; i < members; i++) {
        int seen = 0;
        for (int64_t k = 0; k < i && !seen; k++) seen = alike(settings, k, i);
        if (seen) continue;
        pl_train_group *g = &groups[count++];
        g->first = slot;
        for (int64_t k = i; k < members; k++)
            if (alike(settings, k, i)) slot_of[k] = slot++;
        g->count = slot - g->first;
    }
    return count;
}

polar_status pl_train_optim_create(polar_optim **out, polar_device *dev, const pl_param *params, int64_t n,
                                   int64_t first, int64_t count, const polar_optim_opts *opts,
                                   const pl_train_routes *routes)
{
    polar_optim_opts o = *opts;
    polar_group no_decay = polar_group_of(opts);
    no_decay.weight_decay = no_decay.aux_weight_decay = 0;
    if (*routes->no_decay) {
        o.groups = &no_decay;
        o.group_count = 1;
    }
    polar_param *list = pl_calloc((size_t)n, sizeof *list);
    *out = NULL;
    PL_NEED(list, POLAR_E_NOMEM, "a list of %lld parameters", (long long)n);
    o.members = count;
    for (int64_t i = 0; i < n; i++) {
        pl_mat W = pl_mat_at(params[i].W, first, count), G = pl_mat_at(params[i].G, first, count);
        list[i] = (polar_param){.name = params[i].name,
                                .weight = pl_param_tensor(&params[i], &W),
                                .grad = pl_param_tensor(&params[i], &G)};
    }
    polar_status st = mark_split(list, params, n, routes->split);
    if (st == POLAR_OK) st = mark_no_decay(list, params, n, routes->no_decay);
    if (st == POLAR_OK) st = polar_optim_create(out, dev, list, n, &o);
    pl_free(list);
    return st;
}

int pl_train_optim_same(const polar_optim_opts *a, const polar_optim_opts *b)
{
    const polar_rule *r = &a->rule, *s = &b->rule;
    const polar_map_opts *m = &r->map, *n = &s->map;
    int rule = r->momentum == s->momentum && r->precondition == s->precondition && r->scale == s->scale &&
               r->post == s->post && r->apply == s->apply && r->radius == s->radius && r->clip == s->clip &&
               r->strength == s->strength && r->kron_power == s->kron_power && r->refresh == s->refresh &&
               r->first_basis == s->first_basis && r->fraction == s->fraction && r->beta1 == s->beta1 &&
               r->beta2 == s->beta2 && r->eps == s->eps;
    int map = m->kind == n->kind && m->precision == n->precision && m->rounding == n->rounding &&
              m->steps == n->steps && !strcmp(m->table, n->table) && m->power == n->power;
    int aux = a->aux_beta1 == b->aux_beta1 && a->aux_beta2 == b->aux_beta2 && a->aux_eps == b->aux_eps;
    return rule && map && aux && a->kron_tf32 == b->kron_tf32 && !strcmp(a->matrix_names, b->matrix_names);
}

polar_status pl_train_optim_set_member(polar_optim *opt, int64_t member, const polar_optim_opts *o,
                                       double factor, int active)
{
    static const polar_route routes[] = {POLAR_ROUTE_MATRIX, POLAR_ROUTE_AUX};
    PL_TRY(polar_optim_set_member(opt, member, factor * o->lr, factor * o->aux_lr, o->weight_decay,
                                  o->aux_weight_decay, active));
    for (int i = 0; i < 2 && polar_optim_group_count(opt) > NO_DECAY_GROUP; i++) {
        polar_hyper h;
        PL_TRY(polar_optim_get_hyper(opt, member, NO_DECAY_GROUP, routes[i], &h));
        h.weight_decay = 0;
        PL_TRY(polar_optim_set_hyper(opt, member, NO_DECAY_GROUP, routes[i], &h));
    }
    return POLAR_OK;
}

/* ---- estimates ---------------------------------------------------------------------------------- */

static polar_status count_routes(pl_estimate *e, polar_optim *opt, polar_queue *q)
{
    int64_t n = polar_optim_param_count(opt);
    polar_param_stats *stats = pl_calloc((size_t)n, sizeof *stats);
    PL_NEED(stats, POLAR_E_NOMEM, "a list of %lld parameters", (long long)n);
    polar_status st = polar_optim_stats(opt, q, stats);
    for (int64_t i = 0; i < n && st == POLAR_OK; i++) {
        int64_t weights = stats[i].rows * stats[i].cols * (stats[i].blocks > 1 ? stats[i].blocks : 1);
        *(stats[i].route == POLAR_ROUTE_MATRIX ? &e->matrix_arrays : &e->aux_arrays) += 1;
        *(stats[i].route == POLAR_ROUTE_MATRIX ? &e->matrix_weights : &e->aux_weights) += weights;
    }
    pl_free(stats);
    return st;
}

static polar_status dry_step(pl_estimate *e, polar_optim *opt, polar_queue *q)
{
    PL_TRY(polar_queue_dry_begin(q));
    polar_status step = polar_optim_step(opt, q), st = polar_queue_dry_end(q, &e->step);
    return step != POLAR_OK ? step : st;
}

polar_status pl_estimate_step(pl_estimate *e, polar_device *dev, const pl_param *params, int64_t n,
                              const polar_optim_opts *opts, const pl_train_routes *routes)
{
    polar_optim *opt = NULL;
    polar_queue *q = NULL;
    polar_status st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = pl_train_optim_create(&opt, dev, params, n, 0, 1, opts, routes);
    if (st == POLAR_OK) st = dry_step(e, opt, q);
    if (st == POLAR_OK) st = count_routes(e, opt, q);
    if (st == POLAR_OK) {
        e->memory += polar_optim_state_bytes(opt);
        e->routes = pl_strdup(polar_optim_report(opt));
        if (!e->routes) st = PL_FAIL(POLAR_E_NOMEM, "a table of routes");
    }
    polar_optim_destroy(opt);
    polar_queue_destroy(q);
    return st;
}

double pl_whole_batches(int64_t items, int64_t batch)
{
    return (double)((items + batch - 1) / batch);
}

void pl_estimate_sum(pl_estimate *e, double looks)
{
    double steps = (double)e->epochs * (double)e->steps;
    looks += (double)e->epochs * e->epoch_looks;
    e->memory +=
        e->pass.scratch_bytes > e->step.scratch_bytes ? e->pass.scratch_bytes : e->step.scratch_bytes;
    e->flops = steps * (e->pass.flops + e->step.flops) + looks * e->look.flops;
    e->bytes = steps * (e->pass.bytes + e->step.bytes) + looks * e->look.bytes;
}
