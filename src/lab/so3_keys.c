/* so3_keys.c -- every setting of an SO(3) run, one row each; defaults are NUMERICS' (sections 5 and 6), where the paper is silent. */
#include "lab/so3_keys.h"

#include <stdio.h>
#include <string.h>

static const char *const rules[] = {"sgdm", "adamw", "muon", "polaradamw", "muon_v", "polar_ema", NULL};
static const char *const dtypes[] = {"f32", "f64", NULL};
static const char *const scales[] = {"none", "paper", "jordan", "spectral", "rms", NULL};
static const char *const kinds[] = {"none", "newton_schulz", "exact", NULL};    /* in the order of polar_map_kind */
static const char *const precisions[] = {"f64", "f32", "bf16", NULL};           /* in the order of polar_dtype */
static const char *const roundings[] = {"fused", "reference", NULL};            /* in the order of polar_rounding */
static const char *const tables[] = {"jordan", "polar_express", "classical", NULL};

/* ---- what a key depends on --------------------------------------------------------------------------- */

static polar_rule rule_of(const pl_config *c)
{
    polar_rule r;
    if (polar_rule_parse(&r, pl_config_text(c, "optim.rule")) != POLAR_OK) r = (polar_rule){0};    /* cannot be: the key's choices are the rules */
    return r;
}

static void rule_beta1(char out[PL_VALUE_CHARS], const pl_config *c)
{
    snprintf(out, PL_VALUE_CHARS, "%.17g", rule_of(c).beta1);
}

/* Ten epochs, and at most half of a short run. */
static void warmup(char out[PL_VALUE_CHARS], const pl_config *c)
{
    long long half = (long long)pl_config_int(c, "train.epochs") / 2;
    snprintf(out, PL_VALUE_CHARS, "%lld", half < 10 ? half : 10);
}

static int has_moment(const pl_config *c)
{
    return rule_of(c).precondition == POLAR_PRECONDITION_ADAM;
}

static int rule_maps(const pl_config *c)
{
    return rule_of(c).map.kind != POLAR_MAP_NONE;
}

static int has_map(const pl_config *c)
{
    return rule_maps(c) && pl_config_choice(c, "map.kind") != POLAR_MAP_NONE;
}

static int iterates(const pl_config *c)
{
    return rule_maps(c) && pl_config_choice(c, "map.kind") == POLAR_MAP_NEWTON_SCHULZ;
}

static int iterates_bf16(const pl_config *c)
{
    return iterates(c) && pl_config_choice(c, "map.precision") == POLAR_DTYPE_BF16;
}

static int has_shadows(const pl_config *c)
{
    return pl_config_int(c, "gauge.shadows") > 0;
}

static int shadows_map(const pl_config *c)
{
    return has_shadows(c) && has_map(c);
}

/* ---- the table --------------------------------------------------------------------------------------- */

static const pl_key keys[] = {
    {"model.width", PL_KEY_INT, "16", .min = 1, .max = 1024, .help = "channels h_c"},
    {"model.layers", PL_KEY_INT, "3", .min = 1, .max = 64, .help = "layers"},
    {"model.eps", PL_KEY_REAL, "1e-8", .min = 1e-30, .max = 1, .help = "under the square roots of distances and norms"},
    {"data.points", PL_KEY_INT, "64", .min = 1, .max = 4096, .help = "points N of a cloud"},
    {"data.train", PL_KEY_INT, "256", .min = 1, .max = 1e7, .help = "training clouds"},
    {"data.valid", PL_KEY_INT, "256", .min = 1, .max = 1e7, .help = "validation clouds, which choose the best epoch"},
    {"data.test", PL_KEY_INT, "512", .min = 1, .max = 1e7, .help = "test clouds"},
    {"train.epochs", PL_KEY_INT, "100", .min = 1, .max = 1e6, .help = "epochs, if nothing stops the run; the schedule's length"},
    {"train.batch", PL_KEY_INT, "32", .min = 1, .max = 1e6, .help = "clouds of a step; what does not fill the last batch is left out"},
    {"train.warmup", PL_KEY_INT, "10, at most half of train.epochs", .derive = warmup, .min = 0, .max = 1e6, .help = "epochs of linear warm-up, then a cosine to 0"},
    {"train.warmup_from", PL_KEY_REAL, "1e-3", .min = 0, .max = 1, .help = "where the warm-up begins, as a share of the learning rate"},
    {"train.patience", PL_KEY_INT, "30", .min = 0, .max = 1e6, .help = "epochs without a better validation loss before a run stops; 0: never"},
    {"train.dtype", PL_KEY_CHOICE, "f32", .choices = dtypes, .help = "number format of weights, activations and gradients"},
    {"optim.rule", PL_KEY_CHOICE, "polaradamw", .choices = rules, .help = "rule of the matrix route"},
    {"optim.lr", PL_KEY_REAL, "1e-3", .min = 0, .max = 1e6, .help = "learning rate of the matrix route"},
    {"optim.aux_lr", PL_KEY_REAL, "=optim.lr", .min = 0, .max = 1e6, .help = "learning rate of the aux route (AdamW)"},
    {"optim.weight_decay", PL_KEY_REAL, "0", .min = 0, .max = 1e6, .help = "decoupled weight decay of the matrix route"},
    {"optim.aux_weight_decay", PL_KEY_REAL, "=optim.weight_decay", .min = 0, .max = 1e6, .help = "decoupled weight decay of the aux route"},
    {"optim.beta1", PL_KEY_REAL, "the rule's", .derive = rule_beta1, .min = 0, .max = 0.999999, .help = "momentum of the matrix route: 0.95 for sgdm, muon and muon_v, 0.9 for the others"},
    {"optim.beta2", PL_KEY_REAL, "0.999", .min = 0, .max = 0.999999, .applies = has_moment, .help = "second moment of the matrix route"},
    {"optim.eps", PL_KEY_REAL, "1e-8", .min = 1e-30, .max = 1e6, .applies = has_moment, .help = "added to the second moment's root, matrix route"},
    {"optim.aux_beta1", PL_KEY_REAL, "0.9", .min = 0, .max = 0.999999, .help = "first moment of the aux route"},
    {"optim.aux_beta2", PL_KEY_REAL, "0.999", .min = 0, .max = 0.999999, .help = "second moment of the aux route"},
    {"optim.aux_eps", PL_KEY_REAL, "1e-8", .min = 1e-30, .max = 1e6, .help = "added to the second moment's root, aux route"},
    {"optim.scale", PL_KEY_CHOICE, "paper", .choices = scales, .applies = has_map, .help = "factor of a mapped update by its shape"},
    {"map.kind", PL_KEY_CHOICE, "newton_schulz", .choices = kinds, .applies = rule_maps, .help = "polar map of the rules that have one"},
    {"map.precision", PL_KEY_CHOICE, "bf16", .choices = precisions, .applies = iterates, .help = "number format of the Newton-Schulz iterates"},
    {"map.rounding", PL_KEY_CHOICE, "fused", .choices = roundings, .applies = iterates_bf16, .help = "of bf16 iterates: once per product, or as the public Muon code and the paper"},
    {"map.steps", PL_KEY_INT, "5", .min = 0, .max = POLAR_MAX_STEPS, .applies = iterates, .help = "Newton-Schulz steps"},
    {"map.table", PL_KEY_CHOICE, "jordan", .choices = tables, .applies = iterates, .help = "Newton-Schulz coefficients"},
    {"route.matrix", PL_KEY_TEXT, "layers.*", .help = "parameters on the matrix route: patterns (* and ?) by commas, two-dimensional ones only; empty: none"},
    {"gauge.shadows", PL_KEY_INT, "0", .min = 0, .max = 64, .help = "shadow optimisers fed P g Q^T, which measure gauge violation; the run itself stays as it is"},
    {"gauge.every", PL_KEY_INT, "0", .min = 0, .max = 1e9, .applies = has_shadows, .help = "steps between measurements (and the first); 0: steps 1, 2, 5, 10, 20, 50, ..."},
    {"gauge.maps", PL_KEY_TEXT, "ns_bf16_reference,ns_bf16_fused,ns_fp32,exact", .applies = shadows_map, .help = "polar maps to measure, by commas"},
    {"gauge.blocks", PL_KEY_TEXT, "*", .applies = has_shadows, .help = "parameters of the matrix route to shadow: patterns by commas"},
    {"gauge.dtype", PL_KEY_CHOICE, "f64", .choices = dtypes, .applies = has_shadows, .help = "number format of rotations, shadow moments and directions"},
};

static polar_status check(const pl_config *c)
{
    pl_so3_settings s;
    return pl_so3_settings_read(&s, c);
}

const pl_schema pl_so3_schema = {"so3", 1, "test_mse", keys, (int)(sizeof keys / sizeof *keys), check};

/* ---- reading ----------------------------------------------------------------------------------------- */

static polar_dtype dtype_of(const pl_config *c, const char *key)
{
    return pl_config_choice(c, key) == 0 ? POLAR_DTYPE_F32 : POLAR_DTYPE_F64;    /* the order of dtypes[] */
}

static polar_status read_optim(polar_optim_opts *o, const pl_config *c)
{
    PL_TRY(polar_optim_opts_parse(o, pl_config_text(c, "optim.rule")));
    o->lr = pl_config_real(c, "optim.lr");
    o->aux_lr = pl_config_real(c, "optim.aux_lr");
    o->weight_decay = pl_config_real(c, "optim.weight_decay");
    o->aux_weight_decay = pl_config_real(c, "optim.aux_weight_decay");
    o->rule.beta1 = pl_config_real(c, "optim.beta1");
    o->rule.beta2 = pl_config_real(c, "optim.beta2");
    o->rule.eps = pl_config_real(c, "optim.eps");
    o->aux_beta1 = pl_config_real(c, "optim.aux_beta1");
    o->aux_beta2 = pl_config_real(c, "optim.aux_beta2");
    o->aux_eps = pl_config_real(c, "optim.aux_eps");
    if (rule_maps(c)) {
        PL_TRY(polar_scale_parse(&o->rule.scale, pl_config_text(c, "optim.scale")));
        o->rule.map.kind = (polar_map_kind)pl_config_choice(c, "map.kind");
        o->rule.map.precision = (polar_dtype)pl_config_choice(c, "map.precision");
        o->rule.map.rounding = iterates_bf16(c) ? (polar_rounding)pl_config_choice(c, "map.rounding") : POLAR_ROUND_FUSED;
        o->rule.map.steps = (int)pl_config_int(c, "map.steps");
        o->rule.map.table = tables[pl_config_choice(c, "map.table")];
    }
    o->matrix_names = pl_config_text(c, "route.matrix");
    o->allow_no_matrix = !*o->matrix_names;
    return POLAR_OK;
}

polar_status pl_so3_settings_read(pl_so3_settings *out, const pl_config *c)
{
    *out = (pl_so3_settings){
        .width = pl_config_int(c, "model.width"),
        .layers = pl_config_int(c, "model.layers"),
        .eps = pl_config_real(c, "model.eps"),
        .points = pl_config_int(c, "data.points"),
        .train = pl_config_int(c, "data.train"),
        .valid = pl_config_int(c, "data.valid"),
        .test = pl_config_int(c, "data.test"),
        .epochs = pl_config_int(c, "train.epochs"),
        .batch = pl_config_int(c, "train.batch"),
        .patience = pl_config_int(c, "train.patience"),
        .dtype = dtype_of(c, "train.dtype"),
        .shadows = pl_config_int(c, "gauge.shadows"),
        .gauge_every = pl_config_int(c, "gauge.every"),
        .gauge_maps = pl_config_text(c, "gauge.maps"),
        .gauge_blocks = pl_config_text(c, "gauge.blocks"),
        .gauge_dtype = dtype_of(c, "gauge.dtype"),
    };
    int64_t warm = pl_config_int(c, "train.warmup");
    out->steps = out->train / out->batch;
    PL_NEED(out->steps > 0, POLAR_E_ARG, "train.batch is %lld and data.train %lld: not one whole batch", (long long)out->batch, (long long)out->train);
    PL_NEED(warm <= out->epochs, POLAR_E_ARG, "train.warmup is %lld and train.epochs %lld: the warm-up is part of the epochs", (long long)warm, (long long)out->epochs);
    PL_TRY(read_optim(&out->optim, c));
    out->optim.schedule = (polar_schedule){.warmup = warm * out->steps, .total = out->epochs * out->steps, .warmup_from = pl_config_real(c, "train.warmup_from")};
    return POLAR_OK;
}

int pl_so3_same_shape(const pl_config *a, const pl_config *b)
{
    static const char *const alike[] = {"model.", "data.", "train."};    /* all keys that begin so, but for the patience */
    char x[PL_VALUE_CHARS], y[PL_VALUE_CHARS];
    for (int i = 0; i < pl_so3_schema.key_count; i++) {
        const char *name = keys[i].name;
        int counts = 0;
        for (size_t k = 0; k < sizeof alike / sizeof *alike; k++) counts |= !strncmp(name, alike[k], strlen(alike[k]));
        if (!counts || !strcmp(name, "train.patience")) continue;
        pl_config_value(x, a, name);
        pl_config_value(y, b, name);
        if (strcmp(x, y)) return 0;
    }
    return 1;
}
