/* verify_rules.c -- whole update rules as `polar verify` prints them: one row for each rule and shape, a
 * member of "rules" for each precision too. */
#include "verify_results.h"

static const pl_table_column rule_columns[] = {
    {"rule", "rule", NULL, PL_CELL_TEXT, 0},
    {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"samples", "n", NULL, PL_CELL_INTEGER, 0},
    {"steps", "T", NULL, PL_CELL_INTEGER, 0},
    {"deviation_fp64", "fp64", "last update", PL_CELL_SCI, 1},
    {"deviation_sd_fp64", "sd", "last update", PL_CELL_SCI, 1},
    {"deviation_fp32", "fp32", "last update", PL_CELL_SCI, 1},
    {"deviation_bf16_reference", "bf16 ref.", "last update", PL_CELL_SCI, 1},
    {"deviation_bf16_fused", "fused", "last update", PL_CELL_SCI, 1},
    {"weight_deviation_fp64", "fp64", "weights", PL_CELL_SCI, 1},
    {"weight_deviation_fp32", "fp32", "weights", PL_CELL_SCI, 1},
    {"weight_deviation_bf16_reference", "bf16 ref.", "weights", PL_CELL_SCI, 1},
    {"weight_deviation_bf16_fused", "fused", "weights", PL_CELL_SCI, 1},
    {"spectral_norm_fp64", "fp64", "||u||_2 / (lr s)", PL_CELL_FIXED, 3},
    {"spectral_norm_bf16_reference", "bf16 ref.", "||u||_2 / (lr s)", PL_CELL_FIXED, 3},
    {"spectral_norm_bf16_fused", "fused", "||u||_2 / (lr s)", PL_CELL_FIXED, 3},
};

static void put(pl_table *t, const pl_rule_row *r, pl_rule_precision p, double x)
{
    if (pl_rule_has(r, p)) pl_table_number(t, x);
    else pl_table_none(t);
}

static void rule_cells(pl_table *t, const pl_rule_row *r)
{
    pl_table_row(t);
    pl_table_text(t, r->rule);
    verify_put_shape(t, r->n, r->m);
    pl_table_integer(t, r->samples);
    pl_table_integer(t, r->steps);
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) {
        put(t, r, p, r->at[p].deviation_mean);
        if (p == PL_RULE_FP64) put(t, r, p, r->at[p].deviation_sd);
    }
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) put(t, r, p, r->at[p].weight_deviation_mean);
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++)
        if (p != PL_RULE_FP32) put(t, r, p, r->at[p].spectral_norm_max);
}

polar_status verify_print_rules(FILE *out, const verify_results *v, pl_table_format format)
{
    pl_table *t;
    PL_TRY(pl_table_create(&t,
                           "Whole rules after T steps on g_t and on P g_t Q^T: ||u' - P u Q^T|| / ||u|| of "
                           "the last update, the same of the weights, mean over n histories; "
                           "largest spectral norm",
                           rule_columns, sizeof rule_columns / sizeof *rule_columns));
    for (int64_t i = 0; i < v->n_rules; i++) rule_cells(t, &v->rules[i]);
    polar_status st = pl_table_print(t, out, format);
    pl_table_destroy(t);
    return st;
}

/* An object of a rule on a shape; its measures follow. */
static void json_begin(pl_json_writer *w, const char *rule, int64_t n, int64_t m, int64_t steps,
                       int64_t samples)
{
    pl_json_object(w);
    pl_json_key(w, "rule");
    pl_json_string(w, rule);
    verify_json_shape(w, n, m);
    pl_json_key(w, "steps");
    pl_json_integer(w, steps);
    pl_json_key(w, "samples");
    pl_json_integer(w, samples);
}

static void json_rule(pl_json_writer *w, const pl_rule_row *r, pl_rule_precision p)
{
    const pl_rule_measure *x = &r->at[p];
    json_begin(w, r->rule, r->n, r->m, r->steps, r->samples);
    pl_json_key(w, "precision");
    pl_json_string(w, pl_rule_precision_key(p));
    pl_json_put(w, "deviation_mean", x->deviation_mean);
    pl_json_put(w, "deviation_sd", x->deviation_sd);
    pl_json_put(w, "weight_deviation_mean", x->weight_deviation_mean);
    pl_json_put(w, "spectral_norm_max", x->spectral_norm_max);
    pl_json_object_end(w);
}

void verify_json_rules(pl_json_writer *w, const verify_results *v)
{
    pl_json_key(w, "rules");
    pl_json_array(w);
    for (int64_t i = 0; i < v->n_rules; i++)
        for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++)
            if (pl_rule_has(&v->rules[i], p)) json_rule(w, &v->rules[i], p);
    pl_json_array_end(w);
}

/* ---- symmetries ---- */

static const pl_table_column class_columns[] = {
    {"rule", "rule", NULL, PL_CELL_TEXT, 0},
    {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"class", "class", NULL, PL_CELL_TEXT, 0},
    {"left_fp64", "left", "fp64", PL_CELL_SCI, 1},
    {"right_fp64", "right", "fp64", PL_CELL_SCI, 1},
    {"permutation_fp64", "permuted", "fp64", PL_CELL_SCI, 1},
    {"scaling_fp64", "scaled", "fp64", PL_CELL_SCI, 1},
    {"left_fp32", "left", "fp32", PL_CELL_SCI, 1},
    {"right_fp32", "right", "fp32", PL_CELL_SCI, 1},
    {"permutation_fp32", "permuted", "fp32", PL_CELL_SCI, 1},
    {"scaling_fp32", "scaled", "fp32", PL_CELL_SCI, 1},
    {"left_bf16_fused", "left", "bf16 fused", PL_CELL_SCI, 1},
    {"right_bf16_fused", "right", "bf16 fused", PL_CELL_SCI, 1},
    {"permutation_bf16_fused", "permuted", "bf16 fused", PL_CELL_SCI, 1},
    {"scaling_bf16_fused", "scaled", "bf16 fused", PL_CELL_SCI, 1},
};

static const pl_rule_precision class_precisions[] = {PL_RULE_FP64, PL_RULE_FP32, PL_RULE_BF16_FUSED};

static void class_cells(pl_table *t, const pl_rule_symmetry *s)
{
    pl_table_row(t);
    pl_table_text(t, s->rule);
    verify_put_shape(t, s->n, s->m);
    pl_table_text(t, pl_rule_class(s));
    for (int k = 0; k < 3; k++)
        for (pl_rule_group g = PL_RULE_LEFT; g < PL_RULE_GROUPS; g++) {
            double x = s->deviation[g][class_precisions[k]];
            if (x == x) pl_table_number(t, x);
            else pl_table_none(t);
        }
}

polar_status verify_print_classes(FILE *out, const verify_results *v, pl_table_format format)
{
    pl_table *t;
    PL_TRY(pl_table_create(
        &t,
        "Symmetries of rules: the last update after T steps on P g_t, on g_t Q^T, on rows and "
        "columns permuted, and (unchanged) on 3 g_t; the class is the sides on which it "
        "is equivariant",
        class_columns, sizeof class_columns / sizeof *class_columns));
    for (int64_t i = 0; i < v->n_classes; i++) class_cells(t, &v->classes[i]);
    polar_status st = pl_table_print(t, out, format);
    pl_table_destroy(t);
    return st;
}

static void json_class(pl_json_writer *w, const pl_rule_symmetry *s, pl_rule_precision p)
{
    static const char *const keys[PL_RULE_GROUPS] = {NULL, "left", "right", "permutation", "scaling"};
    json_begin(w, s->rule, s->n, s->m, s->steps, s->samples);
    pl_json_key(w, "class");
    pl_json_string(w, pl_rule_class(s));
    pl_json_key(w, "precision");
    pl_json_string(w, pl_rule_precision_key(p));
    for (pl_rule_group g = PL_RULE_LEFT; g < PL_RULE_GROUPS; g++) pl_json_put(w, keys[g], s->deviation[g][p]);
    pl_json_object_end(w);
}

void verify_json_classes(pl_json_writer *w, const verify_results *v)
{
    pl_json_key(w, "symmetries");
    pl_json_array(w);
    for (int64_t i = 0; i < v->n_classes; i++)
        for (int k = 0; k < 3; k++) {
            double seen = v->classes[i].deviation[PL_RULE_LEFT][class_precisions[k]];
            if (seen == seen) json_class(w, &v->classes[i], class_precisions[k]);
        }
    pl_json_array_end(w);
}
