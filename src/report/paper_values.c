/* paper_values.c -- the numbers of the PolarAdamW paper. SO(3): its table of test MSE, its wall times
 * (appendix), the lr sweep and the weight-decay audit. DeiT: table 1 with its seeds, the audits S1 and S2,
 * AdamW's learning rates, seconds per epoch, the two points of a trajectory that its text names.
 *
 * Cells are named as plans name them. A difference is a - b with a the later arm (PolarAdamW - Muon is
 * +0.00070 at h_c = 16); asked the other way round it changes its sign. Lifts from one recipe to another are
 * differences of its seed values; the paper's text agrees with them.
 */
#include "report/paper_values.h"

#include <math.h>
#include <string.h>

typedef struct {
    const char *spec, *cell, *arm, *metric;
    double value;
} arm_value;

typedef struct {
    const char *spec, *cell, *a, *b, *metric;
    pl_paper_pair v;
} pair_value;

typedef struct {
    const char *spec;
    int64_t seed;
    double adamw, muon, polaradamw; /* L10, cell "all" */
} seed_value;

static const arm_value arm_values[] = {
    {"so3_capacity", "model.width=16", "adamw", "test_mse", 0.0099},
    {"so3_capacity", "model.width=16", "muon", "test_mse", 0.0067},
    {"so3_capacity", "model.width=16", "polaradamw", "test_mse", 0.0074},
    {"so3_capacity", "model.width=32", "adamw", "test_mse", 0.0102},
    {"so3_capacity", "model.width=32", "muon", "test_mse", 0.0064},
    {"so3_capacity", "model.width=32", "polaradamw", "test_mse", 0.0074},
    {"so3_capacity", "model.width=64", "adamw", "test_mse", 0.0103},
    {"so3_capacity", "model.width=64", "muon", "test_mse", 0.0055},
    {"so3_capacity", "model.width=64", "polaradamw", "test_mse", 0.0067},
    {"so3_capacity", "model.width=128", "adamw", "test_mse", 0.0104},
    {"so3_capacity", "model.width=128", "muon", "test_mse", 0.0049},
    {"so3_capacity", "model.width=128", "polaradamw", "test_mse", 0.0063},

    {"so3_capacity", "model.width=16", "adamw", "wall", 629},
    {"so3_capacity", "model.width=16", "muon", "wall", 657},
    {"so3_capacity", "model.width=16", "polaradamw", "wall", 590},
    {"so3_capacity", "model.width=32", "adamw", "wall", 1353},
    {"so3_capacity", "model.width=32", "muon", "wall", 1445},
    {"so3_capacity", "model.width=32", "polaradamw", "wall", 1392},
    {"so3_capacity", "model.width=64", "adamw", "wall", 4606},
    {"so3_capacity", "model.width=64", "muon", "wall", 4915},
    {"so3_capacity", "model.width=64", "polaradamw", "wall", 5151},
    {"so3_capacity", "model.width=128", "adamw", "wall", 17768},
    {"so3_capacity", "model.width=128", "muon", "wall", 23025},
    {"so3_capacity", "model.width=128", "polaradamw", "wall", 21068},

    {"so3_weight_decay", "model.width=32", "adamw", "test_mse", 0.00923},
    {"so3_weight_decay", "model.width=32", "adamw_wd0", "test_mse", 0.00918},

    {"deit_minimal_100ep", "all", "adamw", "l10", 63.97},
    {"deit_minimal_100ep", "all", "muon", "l10", 71.53},
    {"deit_minimal_100ep", "all", "polaradamw", "l10", 73.47},
    {"deit_matched_aug_100ep", "all", "adamw", "l10", 66.27}, /* seed 42 alone */
    {"deit_matched_aug_100ep", "all", "muon", "l10", 79.07},
    {"deit_matched_aug_100ep", "all", "polaradamw", "l10", 80.67},
    {"deit_style_300ep", "all", "adamw", "l10", 79.98},
    {"deit_style_300ep", "all", "muon", "l10", 84.41},
    {"deit_style_300ep", "all", "polaradamw", "l10", 85.78},
    /* the winners, seed 42 of the minimal recipe */
    {"deit_lr_scan", "all", "adamw_5e-4", "l10", 63.08},
    {"deit_lr_scan", "all", "muon_5e-3", "l10", 71.13},
    {"deit_lr_scan", "all", "polaradamw_5e-3", "l10", 73.11},
    {"deit_adamw_lr_audit", "all", "adamw_6.25e-5", "l10", 54.71},
    {"deit_adamw_lr_audit", "all", "adamw_1.77e-4", "l10", 63.63},
    {"deit_adamw_lr_audit", "all", "adamw", "l10", 66.27},
    {"deit_qkv_split", "all", "muon", "l10", 71.13}, /* seed 42 */
    {"deit_qkv_split", "all", "polaradamw", "l10", 73.11},

    {"deit_style_300ep", "all", "adamw", PL_PAPER_EPOCH_SECONDS, 174},
    {"deit_style_300ep", "all", "muon", PL_PAPER_EPOCH_SECONDS, 183},
    {"deit_style_300ep", "all", "polaradamw", PL_PAPER_EPOCH_SECONDS, 185},
    {"deit_timing", "all", "adamw", PL_PAPER_EPOCH_SECONDS, 174},
    {"deit_timing", "all", "muon", PL_PAPER_EPOCH_SECONDS, 183},
    {"deit_timing", "all", "polaradamw", PL_PAPER_EPOCH_SECONDS, 185},
};

static const seed_value seed_values[] = {
    {"deit_minimal_100ep", 42, 63.08, 71.13, 73.11},     {"deit_minimal_100ep", 7, 63.73, 72.17, 73.37},
    {"deit_minimal_100ep", 123, 64.56, 71.53, 73.75},    {"deit_minimal_100ep", 2024, 64.49, 71.31, 73.65},
    {"deit_matched_aug_100ep", 42, 66.27, 79.07, 80.67}, {"deit_style_300ep", 42, 79.80, 83.72, 85.03},
    {"deit_style_300ep", 7, 79.95, 83.82, 85.42},        {"deit_style_300ep", 123, 79.42, 84.97, 86.10},
    {"deit_style_300ep", 2024, 80.75, 85.14, 86.56},
};

static const pair_value pair_values[] = {
    {"so3_capacity", "model.width=16", "polaradamw", "muon", "test_mse", {0.00070, 4.97, 100}},
    {"so3_capacity", "model.width=32", "polaradamw", "muon", "test_mse", {0.00103, 7.63, 100}},
    {"so3_capacity", "model.width=64", "polaradamw", "muon", "test_mse", {0.00120, 6.96, 100}},
    {"so3_capacity", "model.width=128", "polaradamw", "muon", "test_mse", {0.00139, 8.62, 100}},
    {"so3_capacity", "model.width=128", "polaradamw", "muon", "wall", {-1957, -3.36, 100}},

    {"so3_lr_sweep", "optim.lr=0.0003", "polaradamw", "muon", "test_mse", {0.00111, NAN, 4}},
    {"so3_lr_sweep", "optim.lr=0.001", "polaradamw", "muon", "test_mse", {0.00084, NAN, 4}},
    {"so3_lr_sweep", "optim.lr=0.003", "polaradamw", "muon", "test_mse", {0.00014, NAN, 4}},

    /* which of the two Muons */
    {"so3_weight_decay", "model.width=16", "polaradamw", "muon", "test_mse", {0.00174, NAN, 4}},
    /* it was, the paper does not say */
    {"so3_weight_decay", "model.width=16", "polaradamw", "muon_aux_only", "test_mse", {0.00174, NAN, 4}},
    {"so3_weight_decay", "model.width=16", "polaradamw_wd0", "muon_wd0", "test_mse", {0.00158, NAN, 4}},

    {"deit_minimal_100ep", "all", "polaradamw", "muon", "l10", {1.93, NAN, 4}},
    {"deit_minimal_100ep", "all", "polaradamw", "adamw", "l10", {9.5, NAN, 4}},
    {"deit_matched_aug_100ep", "all", "muon", "adamw", "l10", {12.80, NAN, 1}},
    /* of its table's entries */
    {"deit_matched_aug_100ep", "all", "polaradamw", "muon", "l10", {1.60, NAN, 1}},
    {"deit_style_300ep", "all", "polaradamw", "muon", "l10", {1.37, NAN, 4}},
    {"deit_style_300ep", "all", "polaradamw", "adamw", "l10", {5.80, NAN, 4}},
    {"deit_style_300ep", "all", "muon", "adamw", "l10", {4.43, NAN, 4}},
};

/* Specs whose cells and arms are, where the names agree, those of another. */
static const char *const aliases[][2] = {
    {"so3_timing", "so3_capacity"},     {"so3_small", "so3_capacity"}, {"so3_factorial", "so3_capacity"},
    {"so3_schur_only", "so3_capacity"}, {"so3_gauge", "so3_capacity"}, {"deit_muon_wd", "deit_minimal_100ep"},
};

static const char *base_of(const char *spec)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(spec, aliases[i][0])) return aliases[i][1];
    return spec;
}

double pl_paper_value(const char *spec, const char *cell, const char *arm, const char *metric)
{
    spec = base_of(spec);
    for (size_t i = 0; i < sizeof arm_values / sizeof *arm_values; i++) {
        const arm_value *v = &arm_values[i];
        if (!strcmp(v->spec, spec) && !strcmp(v->cell, cell) && !strcmp(v->arm, arm) &&
            !strcmp(v->metric, metric))
            return v->value;
    }
    return NAN;
}

double pl_paper_seed_value(const char *spec, const char *cell, const char *arm, const char *metric,
                           int64_t seed)
{
    spec = base_of(spec);
    for (size_t i = 0;
         i < sizeof seed_values / sizeof *seed_values && !strcmp(cell, "all") && !strcmp(metric, "l10");
         i++) {
        const seed_value *v = &seed_values[i];
        if (strcmp(v->spec, spec) || v->seed != seed) continue;
        return !strcmp(arm, "adamw")        ? v->adamw
               : !strcmp(arm, "muon")       ? v->muon
               : !strcmp(arm, "polaradamw") ? v->polaradamw
                                            : NAN;
    }
    return NAN;
}

double pl_paper_epoch_value(const char *spec, const char *arm, int64_t epoch)
{
    if (strcmp(arm, "polaradamw") || epoch != 26) return NAN;
    return !strcmp(spec, "deit_minimal_100ep")       ? 64.88
           : !strcmp(spec, "deit_matched_aug_100ep") ? 55.46
                                                     : NAN;
}

int64_t pl_paper_crossover(const char *from, const char *to, const char *arm)
{
    return !strcmp(from, "deit_minimal_100ep") && !strcmp(to, "deit_matched_aug_100ep") &&
                   !strcmp(arm, "polaradamw")
               ? 66
               : 0;
}

pl_paper_pair pl_paper_pair_value(const char *spec, const char *cell, const char *a, const char *b,
                                  const char *metric)
{
    spec = base_of(spec);
    for (size_t i = 0; i < sizeof pair_values / sizeof *pair_values; i++) {
        const pair_value *v = &pair_values[i];
        if (strcmp(v->spec, spec) || strcmp(v->cell, cell) || strcmp(v->metric, metric)) continue;
        if (!strcmp(v->a, a) && !strcmp(v->b, b)) return v->v;
        if (!strcmp(v->a, b) && !strcmp(v->b, a)) return (pl_paper_pair){-v->v.diff, -v->v.t, v->v.n};
    }
    return (pl_paper_pair){NAN, NAN, 0};
}

int pl_paper_has(const char *spec, const char *metric)
{
    spec = base_of(spec);
    for (size_t i = 0; i < sizeof arm_values / sizeof *arm_values; i++)
        if (!strcmp(arm_values[i].spec, spec) && !strcmp(arm_values[i].metric, metric)) return 1;
    for (size_t i = 0; i < sizeof pair_values / sizeof *pair_values; i++)
        if (!strcmp(pair_values[i].spec, spec) && !strcmp(pair_values[i].metric, metric)) return 1;
    return 0;
}

const char *pl_paper_note(const char *spec)
{
    spec = base_of(spec);
    if (!strcmp(spec, "so3_capacity"))
        return "The paper: 100 paired seeds per width; wall times on four cores of a shared cluster. It is "
               "silent on the sizes of the data, so its absolute "
               "values are not ours to match; the order of the arms and the size of their differences are.";
    if (!strcmp(spec, "so3_lr_sweep"))
        return "The paper: four seeds, h_c = 32; it gives the differences PolarAdamW - Muon only.";
    if (!strcmp(spec, "so3_weight_decay"))
        return "The paper: four seeds; it gives PolarAdamW - Muon at h_c = 16 and AdamW's mean at h_c = 32, "
               "with and without weight decay 0.05.";
    if (!strcmp(spec, "deit_minimal_100ep"))
        return "The paper: four seeds, each with its own 100 classes of ImageNet-1k; absolute accuracies "
               "belong to the subset, differences on one seed are what it measures.";
    if (!strcmp(spec, "deit_matched_aug_100ep")) return "The paper: seed 42 alone.";
    if (!strcmp(spec, "deit_style_300ep"))
        return "The paper: the same four seeds and class subsets as at 100 epochs.";
    if (!strcmp(spec, "deit_lr_scan"))
        return "The paper: seed 42; it names the winners, whose values are those of the minimal recipe, and "
               "gives no others.";
    if (!strcmp(spec, "deit_adamw_lr_audit"))
        return "The paper: seed 42, the DeiT-style recipe at 100 epochs.";
    if (!strcmp(spec, "deit_qkv_split"))
        return "The paper: seed 42 of the minimal recipe, qkv as it was trained there.";
    return "";
}
