/* state_words.c -- a rule and a map in words, as a file of an optimiser's state has them (optim_state.h):
 * equal words, equal meaning of its numbers. */
#include <stdio.h>

#include "base/sha256.h"
#include "compose/map.h"
#include "optim/optim_state.h"

/* What must agree between a file and an optimiser for the numbers to mean the same. */
void pl_optim_describe_rule(char *text, const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->groups; i++) {
        const polar_rule *r = &opt->group[i].rule;
        const polar_hyper *m = &opt->group[i].given[0], *a = &opt->group[i].given[1];
        if (i) text += sprintf(text, ", group %lld: ", (long long)i);
        text += snprintf(
            text, PL_OPTIM_RULE_BYTES - 140,
            "momentum %d, precondition %d, beta1 %.17g, beta2 %.17g, eps %.17g, aux %.17g %.17g %.17g",
            (int)r->momentum, (int)r->precondition, m->beta1, m->beta2, m->eps, a->beta1, a->beta2, a->eps);
        if (r->momentum == POLAR_MOMENTUM_PICKED) text += sprintf(text, ", fraction %.17g", r->fraction);
        if (r->post != POLAR_POST_NONE) text += sprintf(text, ", post %d", (int)r->post);
        if (pl_precondition_kron(r->precondition))
            text += sprintf(text, ", power %.17g, refresh %lld", r->kron_power, (long long)r->refresh);
        if (pl_precondition_soap(r->precondition))
            text += sprintf(text, ", first basis %lld", (long long)r->first_basis);
    }
}

/* What the step does with the moments: items by commas, each with its name; further groups after the options'
 * own. */
static char *describe_polar_map(char *text, const polar_rule *r)
{
    static const char *const kinds[] = {"none", "newton_schulz", "exact", "power", "soft"};
    static const char *const roundings[] = {"fused", "reference", "gram"};
    const polar_map_opts *m = &r->map;
    char hex[PL_SHA256_HEX];
    if (m->kind == POLAR_MAP_NONE) return text + snprintf(text, PL_OPTIM_MAP_BYTES, "map none");
    if (m->kind == POLAR_MAP_EXACT)
        return text + snprintf(text, PL_OPTIM_MAP_BYTES, "scale %s, map exact", pl_scale_name(r->scale));
    if (m->kind > POLAR_MAP_EXACT)
        return text + snprintf(text, PL_OPTIM_MAP_BYTES, "scale %s, map %s of %.17g", pl_scale_name(r->scale),
                               kinds[m->kind], m->power);
    pl_sha256 h = pl_sha256_begin();
    pl_sha256_add(&h, m->coefs, (size_t)m->steps * sizeof *m->coefs);
    pl_sha256_end(hex, &h);
    text += snprintf(text, PL_OPTIM_MAP_BYTES,
                     "scale %s, map %s, precision %s, rounding %s, steps %d, coefficients %.12s",
                     pl_scale_name(r->scale), kinds[m->kind], polar_dtype_name(m->precision),
                     roundings[m->rounding], m->steps, hex);
    if (m->eps != (m->rounding == POLAR_ROUND_REFERENCE ? PL_REFERENCE_EPS : 0))
        text += sprintf(text, ", eps %.17g", m->eps);
    return text;
}

static char *describe_group_map(char *text, const polar_rule *r, int kron_tf32)
{
    text = describe_polar_map(text, r);
    if (kron_tf32 && pl_precondition_kron(r->precondition)) text += sprintf(text, " with factors in tf32");
    if (r->apply != POLAR_APPLY_DECOUPLED) text += sprintf(text, ", apply %d", (int)r->apply);
    if (r->radius != 0 && r->radius != 1) text += sprintf(text, ", radius %.17g", r->radius);
    if (r->clip != 0) text += sprintf(text, ", clip %.17g", r->clip);
    if (r->strength != 0) text += sprintf(text, ", strength %.17g", r->strength);
    return text;
}

void pl_optim_describe_map(char *text, const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->groups; i++) {
        if (i) text += sprintf(text, ", group %lld: ", (long long)i);
        text = describe_group_map(text, &opt->group[i].rule, opt->o.kron_tf32);
    }
}
