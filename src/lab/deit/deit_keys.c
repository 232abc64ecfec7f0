/* deit_keys.c -- every setting of a DeiT run, one row each; defaults are the paper's minimal recipe, where it
 * is silent those of docs/NUMERICS.md, section 5.
 *
 *     ./polar plan --keys deit
 */
#include "lab/deit/deit_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "lab/run/optim_keys.h"
#include "lab/run/train_optim.h"

static const char *const recipes[] = {"minimal", "deit", NULL};
static const char *const filters[] = {"bilinear", "bicubic", NULL};     /* in the order of pl_filter */
static const char *const erasings[] = {"const", "rand", "pixel", NULL}; /* in the order of pl_erasing_fill */
/* in the orders of pl_deit_input_key, pl_deit_decode_key */
static const char *const inputs[] = {"auto", "host", "device", "stream", NULL};
static const char *const decodes[] = {"host", "nvjpeg", NULL};
static const char *const last_batches[] = {"drop", "keep", NULL};

#define OPTIM_LR        "the rule's", .derive = pl_optim_key_lr
#define OPTIM_AUX_LR    "5e-4"
#define OPTIM_DECAY     "the rule's", .derive = pl_optim_key_decay
#define OPTIM_AUX_DECAY "0.05"
#define OPTIM_MATRIX    "blocks.*"

/* ---- what a key depends on ---------------------------------------------------------------------- */

/* The recipe's mixing: none, or the one of DeiT. */
static pl_mix_options recipe_mix(const pl_config *c)
{
    if (pl_config_choice(c, "data.recipe") == 0) return (pl_mix_options){.prob = 1, .switch_prob = 0.5};
    return (pl_mix_options){
        .mixup_alpha = 0.8, .cutmix_alpha = 1, .prob = 1, .switch_prob = 0.5, .smoothing = 0.1};
}

static void warmup(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_warmup_default(out, c, 5);
}
static void mix_mixup(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_double_print(out, recipe_mix(c).mixup_alpha);
}
static void mix_cutmix(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_double_print(out, recipe_mix(c).cutmix_alpha);
}
static void mix_smoothing(char out[PL_VALUE_CHARS], const pl_config *c)
{
    pl_double_print(out, recipe_mix(c).smoothing);
}

/* A set made on the fly has as many classes as are wanted. */
static void classes(char out[PL_VALUE_CHARS], const pl_config *c)
{
    snprintf(out, PL_VALUE_CHARS, "%d", strncmp(pl_config_text(c, "data.set"), "synth:", 6) ? 100 : 0);
}

static int mixes(const pl_config *c)
{
    return pl_config_real(c, "mix.mixup") > 0 || pl_config_real(c, "mix.cutmix") > 0;
}

static int mixes_both(const pl_config *c)
{
    return pl_config_real(c, "mix.mixup") > 0 && pl_config_real(c, "mix.cutmix") > 0;
}

static int erases(const pl_config *c)
{
    return pl_config_choice(c, "data.recipe") == 1;
}

static int chooses(const pl_config *c)
{
    return pl_config_int(c, "data.classes") > 0;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const pl_key keys[] = {
    {"model.image", PL_KEY_INT, "224", .min = 1, .max = 4096, .help = "pixels along a side"},
    {"model.patch", PL_KEY_INT, "16", .min = 1, .max = 1024,
     .help = "pixels along a patch; divides model.image"},
    {"model.width", PL_KEY_INT, "192", .min = 1, .max = 16384, .help = "channels"},
    {"model.depth", PL_KEY_INT, "12", .min = 1, .max = 1024, .help = "blocks"},
    {"model.heads", PL_KEY_INT, "3", .min = 1, .max = 1024,
     .help = "heads of attention; divides model.width"},
    {"model.mlp_ratio", PL_KEY_REAL, "4", .min = 1e-3, .max = 64,
     .help = "hidden channels of the MLP, as a multiple of the width"},
    {"model.drop_path", PL_KEY_REAL, "0", .min = 0, .max = 0.999999,
     .help = "stochastic depth of the last block, rising evenly from 0 in the first"},
    {"data.set", PL_KEY_TEXT, "imagenet",
     .help = "the set's name, a part of the run; or synth:classes=10,train=400,test=100,size=64,seed=0, made "
             "on the fly"},
    {"data.path", PL_KEY_TEXT, "", .place = 1,
     .help = "where the set lies: a folder with train/ and val/ (or test/), or a pack"},
    {"data.workers", PL_KEY_INT, "0", .place = 1, .min = 0, .max = 1024,
     .help = "threads that read and augment pictures; 0: as many as the device has"},
    {"data.input", PL_KEY_CHOICE, "auto", .place = 1, .choices = inputs,
     .help =
         "who cuts and augments pictures: the host's threads; the device, from all pictures in its memory "
         "(device) or a batch at a time (stream); auto: a GPU, from its memory where they fit"},
    {"data.decode", PL_KEY_CHOICE, "host", .choices = decodes,
     .help = "who decodes JPEG files: the host, as Pillow, or nvJPEG on a GPU whose memory holds the set, "
             "within a grey level of that"},
    {"data.skip_bad", PL_KEY_BOOL, "false", .place = 1,
     .help = "go on past broken pictures: in training the next one takes the place, in the test it does not "
             "count"},
    {"data.classes", PL_KEY_INT, "100, all of a synthetic set", .derive = classes, .min = 0, .max = 1e6,
     .help = "classes, chosen by data.subset_seed; 0: all"},
    {"data.subset_seed", PL_KEY_INT, "-1", .min = -1, .max = 9007199254740991., .applies = chooses,
     .help = "of the choice, Python's random.Random(seed).sample; -1: the run's seed"},
    {"data.recipe", PL_KEY_CHOICE, "minimal", .choices = recipes,
     .help = "minimal: crop and flip; deit: with RandAugment, erasing, Mixup, CutMix, smoothing"},
    {"data.erase", PL_KEY_CHOICE, "const", .choices = erasings, .applies = erases,
     .help = "what an erased rectangle holds after normalisation: zeros, one normal colour, normal noise"},
    {"data.test_filter", PL_KEY_CHOICE, "bilinear", .choices = filters,
     .help = "interpolation of the test pictures' Resize; of training crops it is the recipe's"},
    {"mix.mixup", PL_KEY_REAL, "the recipe's", .derive = mix_mixup, .min = 0, .max = 1e6,
     .help = "alpha of Mixup, 0: never; 0 or 0.8"},
    {"mix.cutmix", PL_KEY_REAL, "the recipe's", .derive = mix_cutmix, .min = 0, .max = 1e6,
     .help = "alpha of CutMix, 0: never; 0 or 1"},
    {"mix.prob", PL_KEY_REAL, "1", .min = 0, .max = 1, .applies = mixes,
     .help = "probability that a batch is mixed"},
    {"mix.switch", PL_KEY_REAL, "0.5", .min = 0, .max = 1, .applies = mixes_both,
     .help = "probability of CutMix rather than Mixup"},
    {"mix.smoothing", PL_KEY_REAL, "the recipe's", .derive = mix_smoothing, .min = 0, .max = 1,
     .help = "label smoothing; 0 or 0.1"},
    {"train.epochs", PL_KEY_INT, "100", .min = 1, .max = 1e6, .help = "epochs, the schedule's length"},
    {"train.batch", PL_KEY_INT, "128", .min = 1, .max = 65536, .help = "pictures of a step"},
    {"train.leaves", PL_KEY_INT, "1", .min = 1, .max = 4096,
     .help = "parts of a batch, a pass each, whose gradients are added in one order: up to so many ranks "
             "(mpirun) share the run"},
    {"train.last_batch", PL_KEY_CHOICE, "drop", .choices = last_batches,
     .help = "pictures that do not fill the last batch of an epoch: left out, or a step of their own"},
    {"train.warmup", PL_KEY_INT, "5, at most half of train.epochs", .derive = warmup, .min = 0, .max = 1e6,
     .help = "epochs of linear warm-up, then a cosine to 0"},
    {"train.warmup_from", PL_KEY_REAL, "1e-3", .min = 0, .max = 1,
     .help = "where the warm-up begins, as a share of the learning rate"},
    {"train.dtype", PL_KEY_CHOICE, "bf16", .choices = pl_key_dtypes,
     .help = "number format of activations and products; weights are f32 with bf16"},
#include "lab/run/optim_keys.inc"
    {"route.split", PL_KEY_TEXT, "", .applies = pl_optim_has_map,
     .help = "matrices whose rows are three, each mapped by itself (*.qkv.weight): patterns by commas"},
};

static polar_status check(const pl_config *c)
{
    pl_deit_settings s;
    return pl_deit_settings_read(&s, c);
}

static const pl_metric results[] = {
    {.name = "l10", .title = "L10, %", .better = 1, .percent = 1},
    {.name = "top1", .title = "test top-1, %", .better = 1, .percent = 1},
    {.name = "best_top1", .title = "best test top-1, %", .better = 1, .percent = 1},
    {.name = "best_epoch"},
    {.name = "epochs"},
    {.name = "diverged"},
    {.name = "train_images"},
    {.name = "test_images"},
    {.name = "classes"},
    {.name = "skipped"},
    {0}};

const pl_schema pl_deit_schema = {.name = "deit",
                                  .version = 1,
                                  .metric = "l10",
                                  .results = results,
                                  .keys = keys,
                                  .key_count = (int)(sizeof keys / sizeof *keys),
                                  .check = check,
                                  .curve = {.progress = "top-1 %",
                                            .heading = "Test accuracy during training",
                                            .what = "Test accuracy",
                                            .axis = "test top-1, %",
                                            .timing = "the table of seconds per epoch compares the same work",
                                            .higher = 1,
                                            .accuracy = 1,
                                            .seeds_differ = 1}};

/* ---- reading ------------------------------------------------------------------------------------ */

static polar_status check_settings(const pl_deit_settings *s)
{
    const pl_deit_shape *m = &s->shape;
    PL_NEED(m->image % m->patch == 0, POLAR_E_ARG,
            "model.image is %lld and model.patch %lld: pictures do not fall into whole patches",
            (long long)m->image, (long long)m->patch);
    PL_NEED(m->width % m->heads == 0, POLAR_E_ARG,
            "model.width is %lld and model.heads %lld: channels do not fall into whole heads",
            (long long)m->width, (long long)m->heads);
    PL_NEED(s->batch % s->leaves == 0, POLAR_E_ARG,
            "train.batch is %lld and train.leaves %lld: the parts of a batch are equal", (long long)s->batch,
            (long long)s->leaves);
    PL_NEED(s->leaves == 1 || (!s->keep_last && !s->skip_bad), POLAR_E_ARG,
            "train.leaves=%lld wants whole batches of pictures that can be read: neither "
            "train.last_batch=keep nor --skip-bad",
            (long long)s->leaves);
    PL_NEED((s->mix.mixup_alpha == 0 && s->mix.cutmix_alpha == 0) || s->leaves == 1 ||
                s->batch / s->leaves % 2 == 0,
            POLAR_E_ARG,
            "train.batch / train.leaves is %lld: Mixup and CutMix pair the pictures of a part, so it must be "
            "even",
            (long long)(s->batch / s->leaves));
    PL_NEED((s->mix.mixup_alpha == 0 && s->mix.cutmix_alpha == 0) || s->batch % 2 == 0, POLAR_E_ARG,
            "train.batch is %lld: Mixup and CutMix pair the pictures of a batch, so it must be even",
            (long long)s->batch);
    PL_NEED(strncmp(s->path, "synth:", 6), POLAR_E_ARG,
            "data.path '%s': a set made on the fly is no place but a part of the run, so write data.set=%s",
            s->path, s->path);
    PL_NEED(!*s->path || strncmp(s->set, "synth:", 6), POLAR_E_ARG,
            "data.set is '%s', made on the fly, and data.path '%s': for the pictures there set data.set to "
            "their name",
            s->set, s->path);
    int resident = s->input == PL_INPUT_AUTO || s->input == PL_INPUT_DEVICE;
    PL_NEED(
        s->decode == PL_DECODE_HOST || (resident && !s->skip_bad), POLAR_E_ARG,
        "data.decode=nvjpeg keeps all pictures in the device's memory and wants each of them whole: not with "
        "%s%s",
        resident ? "--skip-bad" : "data.input=", resident ? "" : inputs[s->input]);
    PL_NEED(*s->set, POLAR_E_ARG, "data.set is empty: it wants the set's name, such as imagenet");
    return POLAR_OK;
}

polar_status pl_deit_settings_read(pl_deit_settings *out, const pl_config *c)
{
    pl_lr_schedule unused;
    *out = (pl_deit_settings){
        .shape = {.members = 1,
                  .batch = pl_config_int(c, "train.batch"),
                  .image = pl_config_int(c, "model.image"),
                  .patch = pl_config_int(c, "model.patch"),
                  .width = pl_config_int(c, "model.width"),
                  .depth = pl_config_int(c, "model.depth"),
                  .heads = pl_config_int(c, "model.heads"),
                  .mlp_ratio = pl_config_real(c, "model.mlp_ratio"),
                  .classes = pl_config_int(c, "data.classes"),
                  .dtype = (polar_dtype)pl_config_choice(c, "train.dtype"),
                  .drop_path = pl_config_real(c, "model.drop_path")},
        .set = pl_config_text(c, "data.set"),
        .path = pl_config_text(c, "data.path"),
        .subset_seed = pl_config_int(c, "data.subset_seed"),
        .workers = pl_config_int(c, "data.workers"),
        .skip_bad = pl_config_bool(c, "data.skip_bad"),
        .input = (pl_deit_input_key)pl_config_choice(c, "data.input"),
        .decode = (pl_deit_decode_key)pl_config_choice(c, "data.decode"),
        .mix = {.mixup_alpha = pl_config_real(c, "mix.mixup"),
                .cutmix_alpha = pl_config_real(c, "mix.cutmix"),
                .prob = pl_config_real(c, "mix.prob"),
                .switch_prob = pl_config_real(c, "mix.switch"),
                .smoothing = pl_config_real(c, "mix.smoothing")},
        .epochs = pl_config_int(c, "train.epochs"),
        .batch = pl_config_int(c, "train.batch"),
        .leaves = pl_config_int(c, "train.leaves"),
        .keep_last = pl_config_choice(c, "train.last_batch"),
        .split = pl_optim_has_map(c) ? pl_config_text(c, "route.split") : "",
        .no_decay = pl_config_text(c, "route.no_decay"),
    };
    PL_TRY(check_settings(out));
    PL_TRY(pl_augment_recipe(&out->augment, pl_config_text(c, "data.recipe"), out->shape.image));
    out->augment.erasing.fill = (pl_erasing_fill)pl_config_choice(c, "data.erase");
    out->augment.test_filter = (pl_filter)pl_config_choice(c, "data.test_filter");
    PL_TRY(pl_schedule_read(&unused, c, 1));
    return pl_optim_keys_read(&out->optim, c);
}

/* ---- ensembles ---------------------------------------------------------------------------------- */

int pl_deit_same_shape(const pl_config *a, const pl_config *b)
{
    static const char *const alike[] = {"model.", "data.", "mix.", "train."};
    char x[PL_VALUE_CHARS], y[PL_VALUE_CHARS];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int counts = 0;
        for (size_t k = 0; k < sizeof alike / sizeof *alike; k++)
            counts |= !strncmp(keys[i].name, alike[k], strlen(alike[k]));
        if (!counts) continue;
        pl_config_value(x, a, keys[i].name);
        pl_config_value(y, b, keys[i].name);
        if (strcmp(x, y)) return 0;
    }
    return 1;
}

int pl_deit_same_rule(const pl_deit_settings *a, const pl_deit_settings *b)
{
    return pl_train_optim_same(&a->optim, &b->optim) && !strcmp(a->split, b->split) &&
           !strcmp(a->no_decay, b->no_decay);
}
