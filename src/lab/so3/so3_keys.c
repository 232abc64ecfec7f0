/* so3_keys.c -- every setting of an SO(3) run, one row each; defaults where the paper is silent are those of
 * docs/NUMERICS.md, sections 5 and 6. */
#include "lab/so3/so3_keys.h"

#include <string.h>

#include "lab/run/optim_keys.h"

static const char *const dtypes[] = {"f32", "f64", NULL};
/* pl_message_kind */
const char *const pl_so3_messages[] = {"channel", "shared", "shared_bounded", "kernel", "scalars_only", NULL};
static const char *const off_on[] = {"off", "on", NULL};
static const char *const gates[] = {"diagonal", "linear", NULL};
static const char *const readouts[] = {"scalars_lengths", "scalars", NULL};
static const char *const clouds[] = {"gauss", "anisotropic", NULL};
static const char *const precisions[] = {"f32", "tf32", NULL};
static const char *const coordinates[] = {"plain", "rotated", NULL};

#define OPTIM_LR        "1e-3"
#define OPTIM_AUX_LR    "=optim.lr"
#define OPTIM_DECAY     "0"
#define OPTIM_AUX_DECAY "=optim.weight_decay"
#define OPTIM_MATRIX    "layers.*"

/* ---- what a key depends on ---------------------------------------------------------------------- */

static void warmup(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_warmup_default(out, c, 10);
}

static int is_stretched(const pl_config *c)
{
    return pl_config_choice(c, "data.cloud") == 1;
}

static int is_rotated(const pl_config *c)
{
    return pl_config_choice(c, "model.coordinates") == 1;
}

static int is_f32(const pl_config *c)
{
    return pl_config_choice(c, "train.dtype") == 0;
}

static int is_turned(const pl_config *c)
{
    return pl_config_real(c, "update.turn") > 0;
}

static int has_shadows(const pl_config *c)
{
    return pl_config_int(c, "gauge.shadows") > 0;
}

static int shadows_map(const pl_config *c)
{
    return has_shadows(c) && pl_optim_has_map(c);
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const pl_key keys[] = {
    {"model.width", PL_KEY_INT, "16", .min = 1, .max = 1024, .help = "channels h_c"},
    {"model.layers", PL_KEY_INT, "3", .min = 1, .max = 64, .help = "layers"},
    {"model.eps", PL_KEY_REAL, "1e-8", .min = 1e-30, .max = 1,
     .help = "under the square roots of distances and norms"},
    {"model.message", PL_KEY_CHOICE, "channel", .choices = pl_so3_messages,
     .help = "weights of a pair from its distance: each channel's own, one for all, one in (0, 1), a fixed "
             "2 sigmoid(-d) for scalars that went through the MLP, or each channel's own for scalars alone"},
    {"model.gate", PL_KEY_CHOICE, "diagonal", .choices = gates,
     .help = "what opens a vector channel: its own length, or a linear layer of all lengths"},
    {"model.readout", PL_KEY_CHOICE, "scalars_lengths", .choices = readouts,
     .help = "what is averaged over a cloud for the readout"},
    {"model.precision", PL_KEY_CHOICE, "f32", .choices = precisions, .applies = is_f32,
     .help =
         "factors of the linear layers' products: as they are, or rounded to tf32; sums are f32. Messages "
         "and readings of lengths are f32"},
    {"model.coordinates", PL_KEY_CHOICE, "plain", .choices = coordinates,
     .help = "rotated: the optimiser sees W' of every matrix on its route, W = P^T W' Q with fixed P, Q"},
    {"model.rotation", PL_KEY_INT, "0", .min = 0, .max = 1e9, .applies = is_rotated,
     .help = "which rotations P, Q, a seed of their own"},
    {"data.points", PL_KEY_INT, "64", .min = 1, .max = 4096, .help = "points N of a cloud"},
    {"data.cloud", PL_KEY_CHOICE, "gauss", .choices = clouds,
     .help = "points of a standard normal, or those stretched by I + a S, one symmetric Gaussian S a cloud"},
    {"data.anisotropy", PL_KEY_REAL, "0.25", .min = 0, .max = 10, .applies = is_stretched,
     .help = "a, how far clouds are stretched"},
    {"data.train", PL_KEY_INT, "256", .min = 1, .max = 1e7, .help = "training clouds"},
    {"data.valid", PL_KEY_INT, "256", .min = 1, .max = 1e7,
     .help = "validation clouds, which choose the best epoch"},
    {"data.test", PL_KEY_INT, "512", .min = 1, .max = 1e7, .help = "test clouds"},
    {"train.epochs", PL_KEY_INT, "100", .min = 1, .max = 1e6,
     .help = "epochs, if nothing stops the run; the schedule's length"},
    {"train.batch", PL_KEY_INT, "32", .min = 1, .max = 1e6,
     .help = "clouds of a step; what does not fill the last batch is left out"},
    {"train.leaves", PL_KEY_INT, "1", .min = 1, .max = 4096,
     .help = "parts of a batch, a pass each, whose gradients are added in one order: up to so many ranks "
             "(mpirun) share the run"},
    {"train.warmup", PL_KEY_INT, "10, at most half of train.epochs", .derive = warmup, .min = 0, .max = 1e6,
     .help = "epochs of linear warm-up, then a cosine to 0"},
    {"train.warmup_from", PL_KEY_REAL, "1e-3", .min = 0, .max = 1,
     .help = "where the warm-up begins, as a share of the learning rate"},
    {"train.patience", PL_KEY_INT, "30", .min = 0, .max = 1e6,
     .help = "epochs without a better validation loss before a run stops; 0: never"},
    {"train.dtype", PL_KEY_CHOICE, "f32", .choices = dtypes,
     .help = "number format of weights, activations and gradients"},
#include "lab/run/optim_keys.inc"
    {"update.noise", PL_KEY_REAL, "0", .min = 0, .max = 1000,
     .help = "random signs of so many times its norm are added to every update of the matrix route"},
    {"update.turn", PL_KEY_REAL, "0", .min = 0, .max = 3.15,
     .help = "every update of the matrix route is turned by this angle, its rows in random pairs"},
    {"update.redraw", PL_KEY_INT, "1", .min = 0, .max = 1e9, .applies = is_turned,
     .help = "steps between draws of the turn; 0: one for the whole run"},
    {"gauge.shadows", PL_KEY_INT, "0", .min = 0, .max = 64,
     .help = "shadow optimisers fed P g Q^T, which measure gauge violation; the run itself stays as it is"},
    {"gauge.every", PL_KEY_INT, "0", .min = 0, .max = 1e9, .applies = has_shadows,
     .help = "steps between measurements (and the first); 0: steps 1, 2, 5, 10, 20, 50, ..."},
    {"gauge.maps", PL_KEY_TEXT, "ns_bf16_reference,ns_bf16_fused,ns_fp32,exact", .applies = shadows_map,
     .help = "polar maps to measure, by commas"},
    {"gauge.blocks", PL_KEY_TEXT, "*", .applies = has_shadows,
     .help = "parameters of the matrix route to shadow: patterns by commas"},
    {"gauge.spectra", PL_KEY_CHOICE, "off", .choices = off_on, .applies = has_shadows,
     .help = "also the singular values of the blocks' gradients and of their directions before the map"},
    {"gauge.dtype", PL_KEY_CHOICE, "f64", .choices = dtypes, .applies = has_shadows,
     .help = "number format of rotations, shadow moments and directions"},
};

static polar_status check(const pl_config *c)
{
    pl_so3_settings s;
    return pl_so3_settings_read(&s, c);
}

static const pl_metric results[] = {
    {.name = "test_mse", .better = -1},
    {.name = "best_valid"},
    {.name = "best_epoch"},
    {.name = "epochs"},
    {.name = "plateau_epoch", .better = -1},
    {.name = "stopped_early"},
    {.name = "diverged"},
    {.name = "trace_mse", .better = -1, .beside = "test_mse", .head = "trace", .line = "the trace alone"},
    {.name = "trace_anisotropy_mse",
     .better = -1,
     .beside = "test_mse",
     .head = "+ anis.",
     .line = "trace + anisotropy"},
    {0}};

const pl_schema pl_so3_schema = {.name = "so3",
                                 .version = 1,
                                 .metric = "test_mse",
                                 .results = results,
                                 .keys = keys,
                                 .key_count = (int)(sizeof keys / sizeof *keys),
                                 .check = check,
                                 .curve = {.heading = "Validation error during training",
                                           .what = "Validation error",
                                           .axis = "validation MSE",
                                           .timing = "so3_timing gives every arm the same work"},
                                 .reference = "least squares",
                                 .reference_note =
                                     "Least squares: test error of predictors that see only the trace of "
                                     "X^T X / N, or the trace and the anisotropy, fitted to each seed's "
                                     "training clouds."};

/* ---- reading ------------------------------------------------------------------------------------ */

static polar_dtype dtype_of(const pl_config *c, const char *key)
{
    return pl_config_choice(c, key) == 0 ? POLAR_DTYPE_F32 : POLAR_DTYPE_F64; /* the order of dtypes[] */
}

polar_status pl_so3_settings_read(pl_so3_settings *out, const pl_config *c)
{
    *out = (pl_so3_settings){
        .width = pl_config_int(c, "model.width"),
        .layers = pl_config_int(c, "model.layers"),
        .eps = pl_config_real(c, "model.eps"),
        .message = pl_config_choice(c, "model.message"),
        .linear_gate = pl_config_choice(c, "model.gate") == 1,
        .scalars_only = pl_config_choice(c, "model.readout") == 1,
        .tf32 = is_f32(c) && pl_config_choice(c, "model.precision") == 1,
        .anisotropy = is_stretched(c) ? pl_config_real(c, "data.anisotropy") : 0,
        .rotated = is_rotated(c),
        .rotation = pl_config_int(c, "model.rotation"),
        .points = pl_config_int(c, "data.points"),
        .train = pl_config_int(c, "data.train"),
        .valid = pl_config_int(c, "data.valid"),
        .test = pl_config_int(c, "data.test"),
        .epochs = pl_config_int(c, "train.epochs"),
        .batch = pl_config_int(c, "train.batch"),
        .leaves = pl_config_int(c, "train.leaves"),
        .patience = pl_config_int(c, "train.patience"),
        .dtype = dtype_of(c, "train.dtype"),
        .shadows = pl_config_int(c, "gauge.shadows"),
        .gauge_every = pl_config_int(c, "gauge.every"),
        .gauge_maps = pl_config_text(c, "gauge.maps"),
        .gauge_blocks = pl_config_text(c, "gauge.blocks"),
        .gauge_dtype = dtype_of(c, "gauge.dtype"),
        .spectra = pl_config_choice(c, "gauge.spectra") == 1,
        .no_decay = pl_config_text(c, "route.no_decay"),
        .disturb = {pl_config_real(c, "update.noise"), pl_config_real(c, "update.turn"),
                    pl_config_int(c, "update.redraw")},
    };
    out->steps = out->train / out->batch;
    PL_NEED(out->steps > 0, POLAR_E_ARG, "train.batch is %lld and data.train %lld: not one whole batch",
            (long long)out->batch, (long long)out->train);
    PL_NEED(out->batch % out->leaves == 0, POLAR_E_ARG,
            "train.batch is %lld and train.leaves %lld: the parts of a batch are equal",
            (long long)out->batch, (long long)out->leaves);
    PL_NEED(out->leaves == 1 || (!out->shadows && out->disturb.noise == 0 && out->disturb.turn == 0),
            POLAR_E_ARG,
            "train.leaves=%lld: shadows (gauge.shadows) and disturbed updates want whole batches",
            (long long)out->leaves);
    PL_TRY(pl_optim_keys_read(&out->optim, c));
    PL_NEED((out->disturb.noise == 0 && out->disturb.turn == 0) || out->optim.weight_decay == 0, POLAR_E_ARG,
            "update.noise and update.turn want optim.weight_decay 0, which is %g: decay is no part of an "
            "update",
            out->optim.weight_decay);
    PL_TRY(pl_schedule_read(&out->schedule, c, out->steps));
    out->optim.schedule = pl_schedule_of_steps(&out->schedule);
    return POLAR_OK;
}

int pl_so3_same_shape(const pl_config *a, const pl_config *b)
{
    /* all keys that begin so, but for the patience */
    static const char *const alike[] = {"model.", "data.", "train."};
    char x[PL_VALUE_CHARS], y[PL_VALUE_CHARS];
    for (int i = 0; i < pl_so3_schema.key_count; i++) {
        const char *name = keys[i].name;
        int counts = 0;
        for (size_t k = 0; k < sizeof alike / sizeof *alike; k++)
            counts |= !strncmp(name, alike[k], strlen(alike[k]));
        counts |= is_rotated(a) && !strcmp(name, "route.matrix"); /* says which blocks are turned */
        if (!counts || !strcmp(name, "train.patience")) continue;
        pl_config_value(x, a, name);
        pl_config_value(y, b, name);
        if (strcmp(x, y)) return 0;
    }
    return 1;
}
