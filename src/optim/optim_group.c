/* optim_group.c -- groups of parameters: the numbers of the options and of further groups, checked, and set
 * while training.
 *
 * Every group has numbers for both routes, and every member its own: hyper[(2 group + aux) members + member].
 * They reach the device with the next polar_optim_prepare, as live values.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "compose/newton_schulz.h"
#include "optim/optim_impl.h"
#include "optim/optim_layout.h"

#define MOST_GROUPS (1 << 20)

/* ---- checks ------------------------------------------------------------------------------------- */

/* "lr", or "lr of group 2". */
typedef struct label {
    char text[64];
} label;

static label label_of(const char *what, int64_t group)
{
    label l;
    if (group) snprintf(l.text, sizeof l.text, "%s of group %lld", what, (long long)group);
    else snprintf(l.text, sizeof l.text, "%s", what);
    return l;
}

static polar_status check_number(const char *what, int64_t group, double x, double below)
{
    PL_NEED(x >= 0 && x < below, POLAR_E_ARG, "%s is %g; it must be at least 0%s", label_of(what, group).text,
            x, below == 1 ? " and below 1" : " and finite");
    return POLAR_OK;
}

/* An eps that float holds: without one a zero gradient would give 0 / 0. */
static polar_status check_eps(const char *what, int64_t group, double x)
{
    PL_NEED(x >= (double)FLT_MIN && x <= (double)FLT_MAX, POLAR_E_ARG,
            "%s is %g; it must be positive (from %.2g on) and finite, so that a zero gradient gives a zero "
            "direction",
            label_of(what, group).text, x, (double)FLT_MIN);
    return POLAR_OK;
}

static polar_status check_schedule(const polar_schedule *s)
{
    PL_TRY(check_number("schedule.warmup_from", 0, s->warmup_from, INFINITY));
    PL_NEED(s->total >= 0 && s->warmup >= 0 && s->warmup <= s->total, POLAR_E_ARG,
            "a schedule of %lld warm-up steps in %lld (total 0: no schedule and no warm-up)",
            (long long)s->warmup, (long long)s->total);
    return POLAR_OK;
}

polar_status pl_optim_check_opts(const polar_optim_opts *o)
{
    PL_NEED(o->members >= 0 && o->members < 1 << 20, POLAR_E_ARG,
            "members is %lld; it must be from 0 (one model) to %d", (long long)o->members, (1 << 20) - 1);
    PL_NEED(o->group_count >= 0 && o->group_count < MOST_GROUPS, POLAR_E_ARG,
            "group_count is %lld; it must be from 0 to %d", (long long)o->group_count, MOST_GROUPS - 1);
    PL_NEED(o->groups || !o->group_count, POLAR_E_ARG, "group_count is %lld and groups is NULL",
            (long long)o->group_count);
    PL_NEED(o->skip_nonfinite >= POLAR_SKIP_NEVER && o->skip_nonfinite <= POLAR_SKIP_FLAGGED, POLAR_E_ARG,
            "skip_nonfinite is %d, which is no polar_skip", (int)o->skip_nonfinite);
    PL_NEED(o->grads == POLAR_GRADS_MEAN || o->grads == POLAR_GRADS_SAME, POLAR_E_ARG,
            "grads is %d, which is no polar_grads", (int)o->grads);
    PL_NEED(o->placed == 0 || o->placed == 1, POLAR_E_ARG, "placed is %d; it is 0 or 1", o->placed);
    PL_NEED(!o->placed || o->skip_missing || o->skip_nonfinite != POLAR_SKIP_NEVER, POLAR_E_ARG,
            "placed goes with skip_missing or skip_nonfinite, which put the counts of steps into the state");
    PL_NEED(!o->placed || !o->comm, POLAR_E_UNSUPPORTED, "placed is not offered over several ranks");
    PL_NEED(o->kron_tf32 == 0 || o->kron_tf32 == 1, POLAR_E_ARG, "kron_tf32 is %d; it is 0 or 1",
            o->kron_tf32);
    PL_NEED(o->reserved == 0, POLAR_E_ARG, "reserved is %d; it must be 0", o->reserved);
    PL_NEED(o->leaves >= 0 && o->leaves < 1 << 24, POLAR_E_ARG, "leaves is %lld; it must be from 0 to %d",
            (long long)o->leaves, (1 << 24) - 1);
    PL_NEED(o->comm || (!o->leaves && o->grads == POLAR_GRADS_MEAN), POLAR_E_ARG,
            "leaves and grads speak of several ranks and opts.comm is NULL (polar_comm_open \"self\" is one "
            "rank)");
    PL_NEED(o->bucket_bytes >= 0, POLAR_E_ARG, "bucket_bytes is %lld; 0 is the library's choice",
            (long long)o->bucket_bytes);
    PL_NEED(!o->leaves || o->grads == POLAR_GRADS_MEAN, POLAR_E_ARG,
            "gradients that are alike on every rank are added once: leaves must be 0");
    PL_NEED(!o->comm || o->members <= 1, POLAR_E_UNSUPPORTED,
            "an ensemble of %lld over several ranks is not offered: give each rank members of its own",
            (long long)o->members);
    return check_schedule(&o->schedule);
}

/* The numbers of Kronecker factors, where a rule has them. */
static polar_status check_kron(const polar_rule *r, int64_t group)
{
    const int powers =
        r->precondition >= POLAR_PRECONDITION_KRON && r->precondition <= POLAR_PRECONDITION_KRON_NESTEROV;
    PL_NEED(!powers || (r->kron_power > 0 && r->kron_power <= 1), POLAR_E_ARG,
            "%s is %g; that of Kronecker factors must be above 0 and at most 1",
            label_of("kron_power", group).text, r->kron_power);
    PL_NEED(r->refresh >= 0 && r->refresh < (int64_t)1 << 50, POLAR_E_ARG,
            "%s is %lld; it must be a number of steps, 0 for 1", label_of("refresh", group).text,
            (long long)r->refresh);
    PL_NEED(r->first_basis >= 0 && r->first_basis < (int64_t)1 << 50, POLAR_E_ARG,
            "%s is %lld; it must be a number of gradients, 0 for 1", label_of("first_basis", group).text,
            (long long)r->first_basis);
    PL_NEED(powers || r->post != POLAR_POST_UNWHITEN, POLAR_E_ARG,
            "%s is there for rules that whiten (POLAR_PRECONDITION_KRON and its kin)",
            label_of("POLAR_POST_UNWHITEN", group).text);
    return POLAR_OK;
}

static polar_status check_rule(const polar_rule *r, int64_t group)
{
    PL_NEED(r->momentum >= 0 && r->momentum <= POLAR_MOMENTUM_PICKED, POLAR_E_ARG, "no %s %d",
            label_of("momentum", group).text, (int)r->momentum);
    PL_NEED(r->momentum != POLAR_MOMENTUM_PICKED || (r->fraction > 0 && r->fraction <= 1), POLAR_E_ARG,
            "%s is %g; that of picked lines must be above 0 and at most 1", label_of("fraction", group).text,
            r->fraction);
    PL_NEED(r->momentum != POLAR_MOMENTUM_PICKED ||
                (r->precondition != POLAR_PRECONDITION_ADAM && r->precondition != POLAR_PRECONDITION_LAPROP),
            POLAR_E_ARG, "%s is not there for picked lines (POLAR_MOMENTUM_PICKED)",
            label_of("Adam's second moment", group).text);
    PL_NEED(r->precondition >= 0 && r->precondition <= POLAR_PRECONDITION_ROOT, POLAR_E_ARG, "no %s %d",
            label_of("preconditioner", group).text, (int)r->precondition);
    PL_NEED(r->scale >= 0 && r->scale <= POLAR_SCALE_JORDAN_TRANSPOSED, POLAR_E_ARG, "no %s %d",
            label_of("scale convention", group).text, (int)r->scale);
    PL_NEED(r->post >= 0 && r->post <= POLAR_POST_BALANCE, POLAR_E_ARG, "no %s %d",
            label_of("stage after the map (polar_post)", group).text, (int)r->post);
    PL_NEED(r->apply >= 0 && r->apply <= POLAR_APPLY_RADIAL_BRAKE, POLAR_E_ARG, "no %s %d",
            label_of("way to apply a step (polar_apply)", group).text, (int)r->apply);
    PL_TRY(check_number("radius", group, r->radius, INFINITY));
    PL_TRY(check_number("clip", group, r->clip, INFINITY));
    PL_NEED(r->post != POLAR_POST_NORM_SUM || r->clip > 0, POLAR_E_ARG,
            "%s is 0: a sum of norms wants one to clip them at", label_of("clip", group).text);
    PL_TRY(check_number("strength", group, r->strength, INFINITY));
    PL_NEED(r->apply != POLAR_APPLY_RADIAL_BRAKE || r->strength <= 1, POLAR_E_ARG,
            "%s is %g; a radial brake lets a part from 0 to 1 of a growth pass",
            label_of("strength", group).text, r->strength);
    return check_kron(r, group);
}

/* Of a route with these names for its numbers; eps is looked at where it is used. */
static polar_status check_hyper(const polar_hyper *h, const char *const names[5], int64_t group, int uses_eps)
{
    PL_TRY(check_number(names[0], group, h->lr, INFINITY));
    PL_TRY(check_number(names[1], group, h->beta1, 1));
    PL_TRY(check_number(names[2], group, h->beta2, 1));
    if (uses_eps) PL_TRY(check_eps(names[3], group, h->eps));
    return check_number(names[4], group, h->weight_decay, INFINITY);
}

static polar_status check_numbers(const pl_optim_group *g, const polar_hyper *h, int aux, int64_t group)
{
    static const char *const names[2][5] = {
        {"lr", "beta1", "beta2", "eps", "weight_decay"},
        {"aux_lr", "aux_beta1", "aux_beta2", "aux_eps", "aux_weight_decay"}};
    const polar_rule *r = &g->rule;
    int uses_eps =
        (r->precondition != POLAR_PRECONDITION_NONE && r->precondition != POLAR_PRECONDITION_SIGN) ||
        r->post != POLAR_POST_NONE;
    return check_hyper(h, names[aux], group, aux || uses_eps);
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int same_map(const polar_map_opts *a, const polar_map_opts *b)
{
    if (a->kind != b->kind || a->kind > POLAR_MAP_EXACT) return a->kind == b->kind && a->power == b->power;
    if (a->kind != POLAR_MAP_NEWTON_SCHULZ) return 1;
    return a->precision == b->precision && a->rounding == b->rounding && a->steps == b->steps &&
           a->eps == b->eps && !memcmp(a->coefs, b->coefs, (size_t)a->steps * sizeof *a->coefs);
}

static polar_status group_set(pl_optim_group *out, const polar_group *g, const polar_rule *rule, int64_t i)
{
    *out = (pl_optim_group){.rule = *rule, .route = g->route};
    out->given[0] = (polar_hyper){g->lr, rule->beta1, rule->beta2, rule->eps, g->weight_decay};
    out->given[1] = (polar_hyper){g->aux_lr, g->aux_beta1, g->aux_beta2, g->aux_eps, g->aux_weight_decay};
    PL_NEED(g->route >= POLAR_ROUTE_AUTO && g->route <= POLAR_ROUTE_AUX, POLAR_E_ARG,
            "group %lld asks for route %d, which is none", (long long)i, (int)g->route);
    PL_NEED(g->reserved == 0, POLAR_E_ARG, "group %lld sets its reserved field; it must be 0", (long long)i);
    PL_TRY(check_rule(rule, i));
    for (int aux = 0; aux < 2; aux++) PL_TRY(check_numbers(out, &out->given[aux], aux, i));
    if (!out->rule.refresh) out->rule.refresh = 1;
    if (!out->rule.first_basis) out->rule.first_basis = 1;
    PL_TRY(pl_map_resolve(&out->rule.map, out->coefs, &rule->map)); /* the caller's coefficients may go */
    if (out->rule.map.kind == POLAR_MAP_NEWTON_SCHULZ && out->rule.map.rounding == POLAR_ROUND_GRAM)
        out->joined = pl_ns_joined(out->coefs, out->rule.map.steps, out->rule.map.precision);
    return POLAR_OK;
}

polar_status pl_optim_groups_read(polar_optim *opt, const polar_optim_layout *layout)
{
    const polar_optim_opts *o = &opt->o;
    const polar_group own = polar_group_of(o);
    int64_t rows = 2 * (1 + o->group_count) * opt->members;
    opt->groups = 1 + o->group_count;
    opt->group = pl_calloc((size_t)opt->groups, sizeof *opt->group);
    opt->hyper = pl_calloc((size_t)rows, sizeof *opt->hyper);
    opt->active = pl_calloc((size_t)opt->members, sizeof *opt->active);
    PL_NEED(opt->group && opt->hyper && opt->active, POLAR_E_NOMEM, "%lld groups of %lld members",
            (long long)opt->groups, (long long)opt->members);
    for (int64_t i = 0; i < opt->groups; i++) {
        polar_group g = own;
        polar_rule rule = o->rule;
        if (i) PL_TRY(pl_group_read(&g, o->groups, i - 1, layout));
        if (i && g.rule) PL_TRY(pl_rule_read(&rule, g.rule, layout));
        PL_TRY(group_set(&opt->group[i], &g, &rule, i));
        opt->group[i].map_set = i;
        for (int64_t j = 0; j < i; j++)
            if (opt->group[i].map_set == i && same_map(&opt->group[j].rule.map, &opt->group[i].rule.map))
                opt->group[i].map_set = j;
        for (int64_t k = 0; k < 2 * opt->members; k++)
            opt->hyper[2 * i * opt->members + k] = opt->group[i].given[k / opt->members];
    }
    memset(opt->active, 1, (size_t)opt->members);
    return POLAR_OK;
}

/* ---- setting ------------------------------------------------------------------------------------ */

static polar_status check_row(const polar_optim *opt, int64_t member, int64_t first_member, int64_t group,
                              polar_route route)
{
    PL_NEED(member >= first_member && member < opt->members, POLAR_E_ARG,
            "there is no member %lld: the optimiser has %lld, from 0", (long long)member,
            (long long)opt->members);
    PL_NEED(group >= 0 && group < opt->groups, POLAR_E_ARG,
            "there is no group %lld: the optimiser has %lld, from 0, which are the options' own numbers",
            (long long)group, (long long)opt->groups);
    PL_NEED(route == POLAR_ROUTE_MATRIX || route == POLAR_ROUTE_AUX, POLAR_E_ARG,
            "numbers of route %d; there are POLAR_ROUTE_MATRIX and POLAR_ROUTE_AUX", (int)route);
    return POLAR_OK;
}

polar_status polar_optim_set_hyper(polar_optim *opt, int64_t member, int64_t group, polar_route route,
                                   const polar_hyper *h)
{
    PL_NEED_ARG(opt);
    PL_NEED_ARG(h);
    PL_TRY(check_row(opt, member, -1, group, route));
    int aux = route == POLAR_ROUTE_AUX;
    PL_TRY(check_numbers(&opt->group[group], h, aux, group));
    for (int64_t i = 0; i < opt->members; i++)
        if (member < 0 || i == member) *pl_optim_hyper(opt, group, aux, i) = *h;
    return POLAR_OK;
}

polar_status polar_optim_get_hyper(const polar_optim *opt, int64_t member, int64_t group, polar_route route,
                                   polar_hyper *out)
{
    PL_NEED_ARG(opt);
    PL_NEED_ARG(out);
    PL_TRY(check_row(opt, member, 0, group, route));
    *out = *pl_optim_hyper(opt, group, route == POLAR_ROUTE_AUX, member);
    return POLAR_OK;
}

int64_t polar_optim_group_count(const polar_optim *opt)
{
    return opt ? opt->groups : 0;
}

polar_status polar_optim_set_member(polar_optim *opt, int64_t member, double lr, double aux_lr, double decay,
                                    double aux_decay, int active)
{
    PL_NEED_ARG(opt);
    PL_TRY(check_row(opt, member, 0, 0, POLAR_ROUTE_MATRIX));
    PL_TRY(check_number("lr", 0, lr, INFINITY));
    PL_TRY(check_number("aux_lr", 0, aux_lr, INFINITY));
    PL_TRY(check_number("weight_decay", 0, decay, INFINITY));
    PL_TRY(check_number("aux_weight_decay", 0, aux_decay, INFINITY));
    for (int64_t i = 0; i < opt->groups; i++) {
        polar_hyper *matrix = pl_optim_hyper(opt, i, 0, member), *aux = pl_optim_hyper(opt, i, 1, member);
        matrix->lr = lr, matrix->weight_decay = decay;
        aux->lr = aux_lr, aux->weight_decay = aux_decay;
    }
    opt->active[member] = active != 0;
    return POLAR_OK;
}

polar_status polar_optim_set_lr(polar_optim *opt, double lr, double aux_lr)
{
    PL_NEED_ARG(opt);
    PL_TRY(check_number("lr", 0, lr, INFINITY));
    PL_TRY(check_number("aux_lr", 0, aux_lr, INFINITY));
    for (int64_t k = 0; k < 2 * opt->groups * opt->members; k++)
        opt->hyper[k].lr = k / opt->members % 2 ? aux_lr : lr;
    return POLAR_OK;
}

polar_status polar_optim_set_weight_decay(polar_optim *opt, double decay, double aux_decay)
{
    PL_NEED_ARG(opt);
    PL_TRY(check_number("weight_decay", 0, decay, INFINITY));
    PL_TRY(check_number("aux_weight_decay", 0, aux_decay, INFINITY));
    for (int64_t k = 0; k < 2 * opt->groups * opt->members; k++)
        opt->hyper[k].weight_decay = k / opt->members % 2 ? aux_decay : decay;
    return POLAR_OK;
}

polar_status polar_optim_set_scaler(polar_optim *opt, const float *found_inf, const float *grad_scale)
{
    PL_NEED_ARG(opt);
    PL_NEED(opt->o.skip_nonfinite != POLAR_SKIP_NEVER, POLAR_E_STATE,
            "the optimiser was made without opts.skip_nonfinite and never leaves a step out");
    if (found_inf == opt->found.data && grad_scale == opt->scale.data) return POLAR_OK;
    opt->moved |= PL_MOVED_OTHERS;
    opt->found = pl_mat_dense((void *)found_inf, POLAR_DTYPE_F32, 1, 1, 1);
    opt->scale = pl_mat_dense((void *)grad_scale, POLAR_DTYPE_F32, 1, 1, 1);
    return POLAR_OK;
}

polar_status polar_optim_set_rates(polar_optim *opt, const float *rates, int64_t n)
{
    PL_NEED_ARG(opt);
    PL_NEED(opt->own_counts && !opt->shard, POLAR_E_STATE,
            "rates in device memory are for an optimiser of one rank made with opts.skip_missing or "
            "opts.skip_nonfinite");
    PL_NEED(!rates || n == opt->slots * opt->members, POLAR_E_ARG,
            "%lld rates; there are %lld parameters and %lld rests that no block covers, of %lld members each",
            (long long)n, (long long)opt->n, (long long)opt->rests, (long long)opt->members);
    if (rates == opt->rates.data) return POLAR_OK;
    opt->moved |= PL_MOVED_OTHERS;
    opt->rates = pl_mat_dense((void *)rates, POLAR_DTYPE_F32, opt->slots * opt->members, 1, 1);
    return POLAR_OK;
}
