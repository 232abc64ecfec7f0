/* rule.c -- an optimiser is a row: the table of rules, and the scale conventions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "optim/optim_impl.h"
#include "optim/optim_layout.h"
#include "optim/rule_names.h"

/* The rules, the only list of them: name; momentum, preconditioner, map, post, scale, apply; beta1, beta2,
 * eps, radius; lr and decay (and .power of a spectral map, .kron_power, .refresh and .first_basis of
 * Kronecker factors, .clip, .strength and .fraction), of the first six the paper's, for DeiT, of the others
 * mostly those of the code they come from (docs/rules.md says which are not). muon, polaradamw, muon_v and
 * polar_ema are the 2 x 2 of momentum and preconditioner. NS is Newton-Schulz, LERP torch's form of
 * Nesterov's momentum. */
#define POLAR_MAP_NS        POLAR_MAP_NEWTON_SCHULZ
#define POLAR_MOMENTUM_LERP POLAR_MOMENTUM_AVERAGE_NESTEROV
#define EACH_RULE(ROW)                                                                                      \
    ROW(sgdm, HEAVY_BALL, NONE, NONE, NONE, NONE, DECOUPLED, 0.95, 0.999, 1e-8, 1, 5e-3, 0.05)              \
    ROW(adamw, EMA, ADAM, NONE, NONE, NONE, DECOUPLED, 0.9, 0.999, 1e-8, 1, 5e-4, 0.05)                     \
    ROW(muon, NESTEROV, NONE, NS, NONE, PAPER, DECOUPLED, 0.95, 0.999, 1e-8, 1, 5e-3, 0)                    \
    ROW(polaradamw, EMA, ADAM, NS, NONE, PAPER, DECOUPLED, 0.9, 0.999, 1e-8, 1, 5e-3, 0.05)                 \
    ROW(muon_v, NESTEROV, ADAM, NS, NONE, PAPER, DECOUPLED, 0.95, 0.999, 1e-8, 1, 5e-3, 0.05)               \
    ROW(polar_ema, EMA, NONE, NS, NONE, PAPER, DECOUPLED, 0.9, 0.999, 1e-8, 1, 5e-3, 0.05)                  \
    ROW(normuon, LERP, NONE, NS, ROW_MOMENT, JORDAN, DECOUPLED, 0.95, 0.95, 1e-10, 1, 0.02, 0)              \
    ROW(normuon_long, LERP, NONE, NS, LONG_MOMENT, JORDAN, DECOUPLED, 0.95, 0.95, 1e-10, 1, 0.02, 0)        \
    ROW(adamuon, LERP, NONE, NS, ENTRY_MOMENT, FROBENIUS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 0.02, 0.01)      \
    ROW(adamuon_sign, LERP, SIGN, NS, ENTRY_MOMENT, FROBENIUS, DECOUPLED, 0.95, 0.95, 1e-8, 1, 0.02, 0.01)  \
    ROW(muon2, LERP, ADAM, NS, NONE, JORDAN, DECOUPLED, 0.95, 0.95, 1e-10, 1, 0.1, 0)                       \
    ROW(muon_laprop, EMA, LAPROP, NS, NONE, JORDAN, DECOUPLED, 0.9, 0.99, 1e-8, 1, 2.5e-3, 0)               \
    ROW(muoneq_r, NESTEROV, ROWS, NS, NONE, RMS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 1e-3, 0.1)                \
    ROW(muoneq_c, NESTEROV, COLUMNS, NS, NONE, RMS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 1e-3, 0.1)             \
    ROW(muoneq_rc, NESTEROV, BOTH, NS, NONE, RMS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 1e-3, 0.1)               \
    ROW(polargrad, AVERAGE, NONE, NS, NONE, NUCLEAR, DECOUPLED, 0.95, 0.999, 1e-8, 1, 0.02, 0)              \
    ROW(scion, AVERAGE, NONE, NS, NONE, SPECTRAL, CONSTRAINED, 0.9, 0.999, 1e-8, 50, 0x1p-12, 0)            \
    ROW(muonh, LERP, NONE, NS, NONE, JORDAN, HYPERBALL, 0.95, 0.999, 1e-8, 1, 0.018, 0)                     \
    ROW(muon_cautious, LERP, NONE, NS, NONE, JORDAN, CAUTIOUS, 0.95, 0.999, 1e-8, 1, 0.02, 0.01)            \
    ROW(muon_power, NESTEROV, NONE, POWER, NONE, FROBENIUS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 5e-3, 0,       \
        .power = 0.5)                                                                                       \
    ROW(muon_soft, NESTEROV, NONE, SOFT, NONE, FROBENIUS, DECOUPLED, 0.95, 0.999, 1e-8, 1, 5e-3, 0,         \
        .power = 1)                                                                                         \
    ROW(shampoo, EMA, KRON, NONE, NONE, NONE, DECOUPLED, 0.9, 0.95, 1e-12, 1, 0.01, 0, .kron_power = 0.25)  \
    ROW(shampoo_polar, EMA, KRON, NS, NONE, PAPER, DECOUPLED, 0.9, 0.95, 1e-12, 1, 5e-3, 0.05,              \
        .kron_power = 0.25)                                                                                 \
    ROW(pmuon, LERP, KRON_NESTEROV, NS, NONE, JORDAN, DECOUPLED, 0.95, 0.95, 1e-6, 1, 0.035, 0.025,         \
        .kron_power = 0.3)                                                                                  \
    ROW(mousse, HEAVY_BALL, KRON_TRACE, NS, UNWHITEN, SPECTRAL, DECOUPLED, 0.95, 0.95, 1e-5, 1, 0.06, 0.01, \
        .kron_power = 0.125, .refresh = 10)                                                                 \
    ROW(namo, LERP, NONE, NS, NORM_MOMENT, JORDAN, DECOUPLED, 0.95, 0.95, 1e-8, 1, 0.02, 0)                 \
    ROW(adago, AVERAGE, NONE, NS, NORM_SUM, NONE, DECOUPLED, 0.95, 0.999, 5e-4, 1, 0.05, 0, .clip = 10)     \
    ROW(muon_floor, LERP, NONE, NS, NONE, JORDAN, UPDATE_FLOOR, 0.95, 0.999, 1e-8, 1, 0.02, 0,              \
        .strength = 0.35)                                                                                   \
    ROW(muon_brake, LERP, NONE, NS, NONE, JORDAN, RADIAL_BRAKE, 0.95, 0.999, 1e-8, 1, 0.02, 0,              \
        .strength = 0.5)                                                                                    \
    ROW(muon_plus, LERP, NONE, NS, COLUMN_MOMENT, JORDAN, DECOUPLED, 0.95, 0, 1e-8, 1, 0.02, 0)             \
    ROW(aurora, LERP, NONE, NS, BALANCE, JORDAN, DECOUPLED, 0.95, 0.999, 1e-14, 1, 0.05, 0.025)             \
    ROW(soap, EMA, SOAP, NONE, NONE, NONE, DECOUPLED, 0.95, 0.95, 1e-8, 1, 3e-3, 0.01, .refresh = 10,       \
        .first_basis = 1)                                                                                   \
    ROW(soap_warm, EMA, SOAP, NONE, NONE, NONE, DECOUPLED, 0.95, 0.95, 1e-8, 1, 3e-3, 0.01, .refresh = 10,  \
        .first_basis = 4)                                                                                   \
    ROW(soap_muon, LERP, SOAP_MOMENTUM, NS, NONE, JORDAN, DECOUPLED, 0.95, 0.9, 1e-8, 1, 0.0375, 0,         \
        .refresh = 10, .first_basis = 1)                                                                    \
    ROW(soap_muon_warm, LERP, SOAP_MOMENTUM, NS, NONE, JORDAN, DECOUPLED, 0.95, 0.9, 1e-8, 1, 0.0375, 0,    \
        .refresh = 10, .first_basis = 4)                                                                    \
    ROW(kl_soap, EMA, KL_SOAP, NONE, NONE, NONE, DECOUPLED, 0.9, 0.95, 1e-8, 1, 3e-3, 0.01,                 \
        .first_basis = 1)                                                                                   \
    ROW(kl_soap_warm, EMA, KL_SOAP, NONE, NONE, NONE, DECOUPLED, 0.9, 0.95, 1e-8, 1, 3e-3, 0.01,            \
        .first_basis = 4)                                                                                   \
    ROW(muon2_paper, AVERAGE, ROOT, NS, NONE, TRANSPOSED, DECOUPLED, 0.95, 0.95, 1e-10, 1, 0.1, 0)          \
    ROW(dion2, PICKED, NONE, NS, NONE, SPECTRAL, DECOUPLED, 0.95, 0.999, 1e-8, 1, 0.01, 0.01,               \
        .fraction = 0.25)

typedef struct {
    polar_momentum momentum;
    polar_precondition precondition;
    polar_map_kind map;
    polar_post post;
    polar_scale scale;
    polar_apply apply;
    double beta1, beta2, eps, radius, lr, decay, power, kron_power, clip, strength, fraction;
    int64_t refresh, first_basis;
} rule_row;

#define NAME(name, ...) #name,
const char *const pl_rule_names[] = {EACH_RULE(NAME) NULL};

#define ROW(name, first, second, third, fourth, fifth, sixth, ...) \
    {.momentum = POLAR_MOMENTUM_##first,                           \
     .precondition = POLAR_PRECONDITION_##second,                  \
     .map = POLAR_MAP_##third,                                     \
     .post = POLAR_POST_##fourth,                                  \
     .scale = POLAR_SCALE_##fifth,                                 \
     .apply = POLAR_APPLY_##sixth,                                 \
     __VA_ARGS__},
static const rule_row rules[] = {EACH_RULE(ROW)};

#define RULES ((int)(sizeof rules / sizeof *rules))

const char *polar_rule_name(int i)
{
    return i >= 0 && i < RULES ? pl_rule_names[i] : NULL;
}

static polar_status find(const rule_row **out, const char *name)
{
    PL_NEED(name, POLAR_E_ARG, "a rule without a name: it is NULL");
    for (int i = 0; i < RULES; i++)
        if (!strcmp(name, pl_rule_names[i])) {
            *out = &rules[i];
            return POLAR_OK;
        }
    char known[1000] = "";
    for (int i = 0; i < RULES; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", pl_rule_names[i]);
    }
    return PL_FAIL(POLAR_E_ARG, "no rule '%s' (there are: %s)", name, known);
}

static polar_rule make(const rule_row *r)
{
    polar_rule out = {.momentum = r->momentum,
                      .precondition = r->precondition,
                      .scale = r->scale,
                      .beta1 = r->beta1,
                      .beta2 = r->beta2,
                      .eps = r->eps,
                      .map = POLAR_MAP_OPTS_INIT,
                      .post = r->post,
                      .apply = r->apply,
                      .radius = r->radius == 1 ? 0 : r->radius, /* 0: 1, as older headers have it */
                      .kron_power = r->kron_power,
                      .refresh = r->refresh,
                      .first_basis = r->first_basis};
    out.map.kind = r->map;
    out.map.power = r->power;
    out.clip = r->clip;
    out.strength = r->strength;
    out.fraction = r->fraction;
    return out;
}

polar_status polar_rule_parse_sized(polar_rule *out, const char *name, const polar_optim_layout *layout)
{
    const rule_row *r = NULL;
    polar_optim_layout theirs;
    PL_NEED_ARG(out);
    PL_TRY(find(&r, name));
    PL_TRY(pl_layout_read(&theirs, layout));
    polar_rule rule = make(r);
    return pl_rule_write(out, &rule, &theirs);
}

polar_status polar_optim_opts_parse_sized(polar_optim_opts *out, const char *rule,
                                          const polar_optim_layout *layout)
{
    const rule_row *r = NULL;
    polar_optim_layout theirs;
    PL_NEED_ARG(out);
    PL_TRY(find(&r, rule));
    PL_TRY(pl_layout_read(&theirs, layout));
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    o.rule = make(r);
    o.lr = r->lr;
    o.weight_decay = r->decay;
    return pl_optim_opts_write(out, &o, &theirs);
}

const char *const pl_scale_names[] = {"none",      "paper",   "jordan",     "spectral",          "rms",
                                      "frobenius", "nuclear", "transposed", "jordan_transposed", NULL};

const char *pl_scale_name(polar_scale scale)
{
    return pl_scale_names[scale];
}

polar_status polar_scale_parse(polar_scale *out, const char *name)
{
    PL_NEED_ARG(out);
    PL_NEED_ARG(name);
    for (int i = 0; pl_scale_names[i]; i++)
        if (!strcmp(name, pl_scale_names[i])) {
            *out = (polar_scale)i;
            return POLAR_OK;
        }
    return PL_FAIL(POLAR_E_ARG,
                   "no scale convention '%s' (there are: none, paper, jordan, spectral, rms, "
                   "frobenius, nuclear, transposed, jordan_transposed)",
                   name);
}

double polar_scale_value(polar_scale scale, int64_t rows, int64_t cols)
{
    double out = (double)rows, in = (double)cols, max = out > in ? out : in, min = out > in ? in : out;
    if (min <= 0) return 1;
    switch (scale) {
    case POLAR_SCALE_PAPER: return sqrt(max / min);
    case POLAR_SCALE_JORDAN: return sqrt(out > in ? out / in : 1);
    case POLAR_SCALE_SPECTRAL: return sqrt(out / in);
    case POLAR_SCALE_TRANSPOSED: return sqrt(in / out);
    case POLAR_SCALE_JORDAN_TRANSPOSED: return sqrt(in > out ? in / out : 1);
    case POLAR_SCALE_RMS: return 0.2 * sqrt(max);
    case POLAR_SCALE_FROBENIUS: return 0.2 * sqrt(out * in);
    default: return 1;
    }
}
