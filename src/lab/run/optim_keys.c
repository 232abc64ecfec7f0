/* optim_keys.c -- what the optimiser's keys depend on, and a configuration read into options. */
#include "lab/run/optim_keys.h"

#include <stdio.h>

#include "base/json_write.h"

const char *const pl_key_dtypes[] = {"f64", "f32", "bf16", NULL};
const char *const pl_optim_key_precisions[] = {"f64", "f32", "bf16", "f16", NULL};
const char *const pl_schedule_units[] = {"step", "epoch", NULL};
const char *const pl_optim_key_kinds[] = {"none", "newton_schulz", "exact", "power", "soft", NULL};
const char *const pl_optim_key_roundings[] = {"fused", "reference", "gram", NULL};
const char *const pl_optim_key_factors[] = {"f32", "tf32", NULL};

/* ---- what a key depends on ---------------------------------------------------------------------- */

static polar_optim_opts rule_opts(const pl_config *c)
{
    polar_optim_opts o;
    /* cannot be: the key's choices are the rules */
    if (polar_optim_opts_parse(&o, pl_config_text(c, "optim.rule")) != POLAR_OK) o = (polar_optim_opts){0};
    return o;
}

/* numbers of the rule as they stand there */
#define KEY_OF(number)                                                       \
    void pl_optim_key_##number(char out[PL_VALUE_CHARS], const pl_config *c) \
    {                                                                        \
        pl_double_print(out, rule_opts(c).rule.number);                      \
    }
KEY_OF(beta1)
KEY_OF(beta2)
KEY_OF(eps)
KEY_OF(clip)
KEY_OF(strength)
KEY_OF(kron_power)
KEY_OF(fraction)
#undef KEY_OF
/* a rule without a map has no scale, and the key no effect */
void pl_optim_key_scale(char out[PL_VALUE_CHARS], const pl_config *c)
{
    const polar_rule r = rule_opts(c).rule;
    snprintf(out, PL_VALUE_CHARS, "%s",
             pl_scale_names[r.map.kind == POLAR_MAP_NONE ? POLAR_SCALE_PAPER : r.scale]);
}
/* the same of a map */
void pl_optim_key_kind(char out[PL_VALUE_CHARS], const pl_config *c)
{
    const polar_map_kind kind = rule_opts(c).rule.map.kind;
    snprintf(out, PL_VALUE_CHARS, "%s",
             pl_optim_key_kinds[kind == POLAR_MAP_NONE ? POLAR_MAP_NEWTON_SCHULZ : kind]);
}
void pl_optim_key_power(char out[PL_VALUE_CHARS], const pl_config *c)
{
    const polar_map_opts own = rule_opts(c).rule.map;
    const int kind = pl_config_choice(c, "map.kind");
    pl_double_print(out, own.kind == (polar_map_kind)kind ? own.power : kind == POLAR_MAP_SOFT ? 1 : 0.5);
}
void pl_optim_key_radius(char out[PL_VALUE_CHARS], const pl_config *c)
{
    const double radius = rule_opts(c).rule.radius;
    pl_double_print(out, radius == 0 ? 1 : radius);
}
static void count_print(char out[PL_VALUE_CHARS], int64_t count)
{
    snprintf(out, PL_VALUE_CHARS, "%lld", (long long)(count ? count : 1));
}
void pl_optim_key_refresh(char out[PL_VALUE_CHARS], const pl_config *c)
{
    count_print(out, rule_opts(c).rule.refresh);
}
void pl_optim_key_first_basis(char out[PL_VALUE_CHARS], const pl_config *c)
{
    count_print(out, rule_opts(c).rule.first_basis);
}
void pl_optim_key_lr(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_double_print(out, rule_opts(c).lr);
}
void pl_optim_key_decay(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_double_print(out, rule_opts(c).weight_decay);
}

int pl_optim_decays(const pl_config *c)
{
    return pl_config_real(c, "optim.weight_decay") > 0 || pl_config_real(c, "optim.aux_weight_decay") > 0;
}

int pl_optim_has_moment(const pl_config *c)
{
    const polar_rule r = rule_opts(c).rule;
    return r.precondition == POLAR_PRECONDITION_ADAM || r.precondition == POLAR_PRECONDITION_LAPROP ||
           r.precondition >= POLAR_PRECONDITION_KRON || r.post != POLAR_POST_NONE;
}
int pl_optim_has_eps(const pl_config *c)
{
    const polar_precondition kind = rule_opts(c).rule.precondition;
    return pl_optim_has_moment(c) || (kind >= POLAR_PRECONDITION_ROWS && kind <= POLAR_PRECONDITION_BOTH);
}
int pl_optim_rule_maps(const pl_config *c)
{
    return rule_opts(c).rule.map.kind != POLAR_MAP_NONE;
}
int pl_optim_has_map(const pl_config *c)
{
    return pl_optim_rule_maps(c) && pl_config_choice(c, "map.kind") != POLAR_MAP_NONE;
}
int pl_optim_iterates(const pl_config *c)
{
    return pl_optim_rule_maps(c) && pl_config_choice(c, "map.kind") == POLAR_MAP_NEWTON_SCHULZ;
}

int pl_optim_has_power(const pl_config *c)
{
    return pl_optim_rule_maps(c) && pl_config_choice(c, "map.kind") > POLAR_MAP_EXACT;
}

int pl_optim_has_radius(const pl_config *c)
{
    return rule_opts(c).rule.apply == POLAR_APPLY_CONSTRAINED;
}
int pl_optim_has_clip(const pl_config *c)
{
    return rule_opts(c).rule.post == POLAR_POST_NORM_SUM;
}
int pl_optim_has_strength(const pl_config *c)
{
    const polar_apply apply = rule_opts(c).rule.apply;
    return apply == POLAR_APPLY_UPDATE_FLOOR || apply == POLAR_APPLY_RADIAL_BRAKE;
}
int pl_optim_has_fraction(const pl_config *c)
{
    return rule_opts(c).rule.momentum == POLAR_MOMENTUM_PICKED;
}
int pl_optim_has_kron(const pl_config *c)
{
    return pl_precondition_kron(rule_opts(c).rule.precondition);
}
int pl_optim_has_kron_power(const pl_config *c)
{
    return pl_optim_has_kron(c) && !pl_optim_has_basis(c);
}
int pl_optim_has_basis(const pl_config *c)
{
    return pl_precondition_soap(rule_opts(c).rule.precondition);
}

int pl_optim_iterates_half(const pl_config *c)
{
    return pl_optim_iterates(c) && polar_dtype_size((polar_dtype)pl_config_choice(c, "map.precision")) == 2;
}

void pl_warmup_default(char out[PL_VALUE_CHARS], const pl_config *c, int64_t most)
{
    int64_t half = pl_config_int(c, "train.epochs") / 2;
    snprintf(out, PL_VALUE_CHARS, "%lld", (long long)(half < most ? half : most));
}

/* ---- reading ------------------------------------------------------------------------------------ */

polar_status pl_schedule_read(pl_lr_schedule *out, const pl_config *c, int64_t steps)
{
    int64_t warm = pl_config_int(c, "train.warmup"), epochs = pl_config_int(c, "train.epochs");
    PL_NEED(warm <= epochs, POLAR_E_ARG,
            "train.warmup is %lld and train.epochs %lld: the warm-up is part of the epochs", (long long)warm,
            (long long)epochs);
    out->unit = pl_config_choice(c, "train.schedule") ? steps : 1;
    out->shape = (polar_schedule){.warmup = warm * (steps / out->unit),
                                  .total = epochs * (steps / out->unit),
                                  .warmup_from = pl_config_real(c, "train.warmup_from")};
    return POLAR_OK;
}

double pl_schedule_factor(const pl_lr_schedule *s, int64_t step)
{
    return polar_schedule_factor(&s->shape, step / s->unit);
}

polar_schedule pl_schedule_of_steps(const pl_lr_schedule *s)
{
    return s->unit == 1 ? s->shape : (polar_schedule){0};
}

polar_status pl_optim_keys_read(polar_optim_opts *o, const pl_config *c)
{
    PL_TRY(polar_optim_opts_parse(o, pl_config_text(c, "optim.rule")));
    o->lr = pl_config_real(c, "optim.lr");
    o->aux_lr = pl_config_real(c, "optim.aux_lr");
    o->weight_decay = pl_config_real(c, "optim.weight_decay");
    o->aux_weight_decay = pl_config_real(c, "optim.aux_weight_decay");
    o->rule.beta1 = pl_config_real(c, "optim.beta1");
    o->rule.beta2 = pl_config_real(c, "optim.beta2");
    o->rule.eps = pl_config_real(c, "optim.eps");
    if (pl_optim_has_radius(c)) o->rule.radius = pl_config_real(c, "optim.radius");
    if (pl_optim_has_clip(c)) o->rule.clip = pl_config_real(c, "optim.clip");
    if (pl_optim_has_strength(c)) o->rule.strength = pl_config_real(c, "optim.strength");
    if (pl_optim_has_fraction(c)) o->rule.fraction = pl_config_real(c, "optim.fraction");
    if (pl_optim_has_kron_power(c)) o->rule.kron_power = pl_config_real(c, "optim.kron_power");
    if (pl_optim_has_kron(c)) o->rule.refresh = pl_config_int(c, "optim.refresh");
    if (pl_optim_has_basis(c)) o->rule.first_basis = pl_config_int(c, "optim.first_basis");
    if (pl_optim_has_kron(c)) o->kron_tf32 = pl_config_choice(c, "optim.kron_precision") == 1;
    o->aux_beta1 = pl_config_real(c, "optim.aux_beta1");
    o->aux_beta2 = pl_config_real(c, "optim.aux_beta2");
    o->aux_eps = pl_config_real(c, "optim.aux_eps");
    if (pl_optim_rule_maps(c)) {
        PL_TRY(polar_scale_parse(&o->rule.scale, pl_config_text(c, "optim.scale")));
        o->rule.map.kind = (polar_map_kind)pl_config_choice(c, "map.kind");
        o->rule.map.power = pl_optim_has_power(c) ? pl_config_real(c, "map.power") : 0;
        o->rule.map.precision = (polar_dtype)pl_config_choice(c, "map.precision");
        o->rule.map.rounding = pl_optim_iterates_half(c) ? (polar_rounding)pl_config_choice(c, "map.rounding")
                                                         : POLAR_ROUND_FUSED;
        o->rule.map.steps = (int)pl_config_int(c, "map.steps");
        o->rule.map.table = pl_coef_table_names[pl_config_choice(c, "map.table")];
    }
    o->matrix_names = pl_config_text(c, "route.matrix");
    o->allow_no_matrix = !*o->matrix_names;
    return POLAR_OK;
}
