/* verify_print.c -- the results of `polar verify` as text, CSV, JSON and TeX. No clock and no device in
 * there: the same seed prints the same bytes. */
#include <math.h>

#include "verify/paper_covariance.h"
#include "verify_results.h"

const char *verify_label(int64_t n, int64_t m)
{
    const pl_paper_covariance *p = pl_paper_covariance_find(n, m);
    return p ? p->label : "-";
}

void verify_put_shape(pl_table *t, int64_t n, int64_t m)
{
    char shape[48];
    snprintf(shape, sizeof shape, "%lldx%lld", (long long)n, (long long)m);
    pl_table_text(t, shape);
}

void verify_json_shape(pl_json_writer *w, int64_t n, int64_t m)
{
    pl_json_key(w, "shape");
    pl_json_array(w);
    pl_json_integer(w, n);
    pl_json_integer(w, m);
    pl_json_array_end(w);
}

/* ---- the covariance table ---- */

static const pl_table_column covariance_columns[] = {
    {"label", "label", NULL, PL_CELL_TEXT, 0},
    {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"samples", "n", NULL, PL_CELL_INTEGER, 0},
    {"polar", "fp64", "exact polar", PL_CELL_SCI, 1},
    {"polar_fp32_inputs", "fp32 in", "exact polar", PL_CELL_SCI, 1},
    {"paper_polar", "paper", "exact polar", PL_CELL_SCI, 1},
    {"ns_fp64", "fp64", "NS5 fp64", PL_CELL_SCI, 1},
    {"ns_fp64_fp32_inputs", "fp32 in", "NS5 fp64", PL_CELL_SCI, 1},
    {"paper_ns_fp64", "paper", "NS5 fp64", PL_CELL_SCI, 1},
    {"ns_fp32", "fp32", "NS5", PL_CELL_SCI, 1},
    {"ns_bf16_reference", "ref.", "NS5 bf16", PL_CELL_SCI, 1},
    {"paper_ns_bf16", "paper", "NS5 bf16", PL_CELL_SCI, 1},
    {"ns_bf16_fused", "fused", "NS5 bf16", PL_CELL_SCI, 1},
    {"ns_fp16_fused", "fp16", "NS5", PL_CELL_SCI, 1},
    {"rho0_mean", "mean", "rho_0", PL_CELL_FIXED, 2},
    {"rho0_sd", "sd", "rho_0", PL_CELL_FIXED, 2},
    {"paper_rho0_mean", "mean", "paper", PL_CELL_FIXED, 2},
    {"paper_rho0_sd", "sd", "paper", PL_CELL_FIXED, 2},
};

static void covariance_cells(pl_table *t, const pl_covariance_row *r)
{
    const pl_paper_covariance *p = pl_paper_covariance_find(r->n, r->m);
    pl_table_row(t);
    pl_table_text(t, verify_label(r->n, r->m));
    verify_put_shape(t, r->n, r->m);
    pl_table_integer(t, r->samples);
#define OR_NONE(field)                       \
    do {                                     \
        if (p) pl_table_number(t, p->field); \
        else pl_table_none(t);               \
    } while (0)
    pl_table_number(t, r->mean[PL_COV_POLAR]);
    pl_table_number(t, r->mean[PL_COV_POLAR_FP32_INPUTS]);
    OR_NONE(polar);
    pl_table_number(t, r->mean[PL_COV_NS_FP64]);
    pl_table_number(t, r->mean[PL_COV_NS_FP64_FP32_INPUTS]);
    OR_NONE(ns_fp64);
    pl_table_number(t, r->mean[PL_COV_NS_FP32]);
    pl_table_number(t, r->mean[PL_COV_NS_BF16_REFERENCE]);
    OR_NONE(ns_bf16);
    pl_table_number(t, r->mean[PL_COV_NS_BF16_FUSED]);
    pl_table_number(t, r->mean[PL_COV_NS_FP16_FUSED]);
    pl_table_number(t, r->mean[PL_COV_RHO0]);
    pl_table_number(t, r->sd[PL_COV_RHO0]);
    OR_NONE(rho0_mean);
    OR_NONE(rho0_sd);
#undef OR_NONE
}

static polar_status print_covariance(FILE *out, const verify_results *v, pl_table_format format)
{
    pl_table *t;
    PL_TRY(pl_table_create(&t,
                           "Covariance: ||phi(P G Q^T) - P phi(G) Q^T|| / ||phi(G)||, mean over n triples (G "
                           "Gaussian; P, Q Haar-orthogonal)",
                           covariance_columns, sizeof covariance_columns / sizeof *covariance_columns));
    for (int64_t i = 0; i < v->n_rows; i++) covariance_cells(t, &v->rows[i]);
    polar_status st = pl_table_print(t, out, format);
    pl_table_destroy(t);
    return st;
}

/* ---- the measurements as text ---- */

static void text_schur(FILE *out, const verify_results *v)
{
    fprintf(out, "\nSchur reduction: a Gaussian 3m x 3m matrix averaged over (I (x) R)^T M (I (x) R); "
                 "distance to the nearest B (x) I_3 over ||M||\n");
    fprintf(out, "   m   before");
    for (int k = 0; k < PL_SCHUR_COUNTS; k++)
        fprintf(out, "   N=%-6lld", (long long)v->schur[0].rotations[k]);
    fprintf(out, "  24 of the cube  change of B  parameters (rank of the averaging, by SVD)\n");
    for (int i = 0; i < VERIFY_SCHUR_ROWS; i++) {
        const pl_schur_reduction *s = &v->schur[i];
        fprintf(out, "%4lld  %7.4f", (long long)s->m, s->before);
        for (int k = 0; k < PL_SCHUR_COUNTS; k++) fprintf(out, "  %9.5f", s->monte_carlo[k]);
        fprintf(out, "  %14.1e  %11.1e  %lld -> %lld\n", s->octahedral, s->b_change,
                (long long)s->parameters_before, (long long)s->parameters_after);
    }
    fprintf(out, "   rms expected: before / sqrt(N)\n");
}

static void text_gauge(FILE *out, const verify_results *v)
{
    const pl_block_lemma *b = &v->block;
    const pl_theorem *t = &v->theorem;
    fprintf(out,
            "\nBlock lemma: a %lldx%lld direct sum of %lld blocks G_i (x) I_d, d = 1, 3, 5, one of them "
            "rank-deficient; map of the whole against maps of the blocks\n",
            (long long)b->rows, (long long)b->cols, (long long)b->blocks);
    fprintf(out, "  exact polar %.1e   NS5 fp64, shared norm %.1e   NS5 fp64, own norms %.2f (another map)\n",
            b->polar, b->ns5_shared_norm, b->ns5_own_norms);
    fprintf(out, "  AdamW, three gradients %.1e (the blocks are aligned with the coordinates)\n", b->adamw);
    fprintf(out,
            "\nTheorem in fp64: the largest deviation over %lld shapes x %lld triples (condition numbers up "
            "to %.0f)\n",
            (long long)t->shapes, (long long)t->samples, t->condition);
    fprintf(out, "  exact polar     %.1e\n  NS_k, k =      ", t->polar);
    for (int k = 0; k < PL_THEOREM_STEPS; k++) fprintf(out, " %7d", k + 1);
    for (int i = 0; i < PL_THEOREM_TABLES; i++) {
        fprintf(out, "\n  %-15s", t->table[i]);
        for (int k = 0; k < PL_THEOREM_STEPS; k++) fprintf(out, " %.1e", t->ns[i][k]);
    }
    fprintf(out, "\n");
}

static void text_proposition(FILE *out, const verify_results *v)
{
    fprintf(out, "\nProposition: M = I, P = rotation by pi/4. rho_eps(P M) = f P and P rho_eps(M) = g P; "
                 "paper: f = sqrt2/(1 + sqrt2 eps), g = 1/(1 + eps)\n");
    fprintf(out, "      eps  f measured    f paper       g measured    g paper       ||f P - g P||   over "
                 "||rho_eps(M)||\n");
    for (int i = 0; i < VERIFY_PROP_ROWS; i++) {
        const pl_proposition *p = &v->proposition[i];
        fprintf(out, "%9.0e  %-12.9g  %-12.9g  %-12.9g  %-12.9g  %-14.9g  %.9g\n", p->eps, p->factor_rotated,
                p->factor_rotated_paper, p->factor, p->factor_paper, p->deviation, p->delta);
    }
}

static void text_linear(FILE *out, const verify_results *v)
{
    const pl_linear_maps *l = &v->linear;
    fprintf(out,
            "\nLinear maps are covariant (SGD %.1e, momentum over %lld gradients %.1e) but leave the size of "
            "the update open: ||update||_2 on a %lldx%lld matrix\n",
            l->sgd, (long long)l->history, l->momentum, (long long)l->n, (long long)l->m);
    static const char *const names[] = {"||G||_2", "SGD, lr 1", "NS5", "AdamW, rho_0"};
    const double *rows[] = {l->input_norm, l->sgd_norm, l->ns5_norm, l->adamw_norm};
    for (int r = 0; r < 4; r++) {
        fprintf(out, "  %-13s", names[r]);
        for (int i = 0; i < PL_LINEAR_SCALES; i++) fprintf(out, " %9.4g", rows[r][i]);
        fprintf(out, "\n");
    }
}

/* ---- JSON ---- */

static void json_covariance(pl_json_writer *w, const pl_covariance_row *r)
{
    const pl_paper_covariance *p = pl_paper_covariance_find(r->n, r->m);
    pl_json_object(w);
    pl_json_key(w, "label");
    pl_json_string(w, verify_label(r->n, r->m));
    verify_json_shape(w, r->n, r->m);
    pl_json_key(w, "samples");
    pl_json_integer(w, r->samples);
    for (int c = 0; c < PL_COV_RHO0; c++)
        pl_json_put(w, pl_covariance_key((pl_covariance_column)c), r->mean[c]);
    pl_json_put(w, "rho0_mean", r->mean[PL_COV_RHO0]);
    pl_json_put(w, "rho0_sd", r->sd[PL_COV_RHO0]);
    pl_json_key(w, "ns_bf16_reference_sd");
    pl_json_number(w, r->sd[PL_COV_NS_BF16_REFERENCE]);
    pl_json_key(w, "ns_bf16_fused_sd");
    pl_json_number(w, r->sd[PL_COV_NS_BF16_FUSED]);
    pl_json_key(w, "paper");
    if (p) {
        pl_json_object(w);
        pl_json_put(w, "polar", p->polar);
        pl_json_put(w, "ns_fp64", p->ns_fp64);
        pl_json_put(w, "ns_bf16", p->ns_bf16);
        pl_json_put(w, "rho0_mean", p->rho0_mean);
        pl_json_put(w, "rho0_sd", p->rho0_sd);
        pl_json_object_end(w);
    } else pl_json_null(w);
    pl_json_object_end(w);
}

static void json_schur(pl_json_writer *w, const pl_schur_reduction *s)
{
    pl_json_object(w);
    pl_json_key(w, "m");
    pl_json_integer(w, s->m);
    pl_json_put(w, "before", s->before);
    pl_json_key(w, "monte_carlo");
    pl_json_array(w);
    for (int k = 0; k < PL_SCHUR_COUNTS; k++) {
        pl_json_object(w);
        pl_json_key(w, "rotations");
        pl_json_integer(w, s->rotations[k]);
        pl_json_put(w, "distance", s->monte_carlo[k]);
        pl_json_put(w, "rms_expected", s->before / sqrt((double)s->rotations[k]));
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
    pl_json_put(w, "octahedral", s->octahedral);
    pl_json_put(w, "b_change", s->b_change);
    pl_json_key(w, "parameters_before");
    pl_json_integer(w, s->parameters_before);
    pl_json_key(w, "parameters_after");
    pl_json_integer(w, s->parameters_after);
    pl_json_put(w, "projector_gap", s->projector_gap);
    pl_json_object_end(w);
}

static void json_gauge(pl_json_writer *w, const verify_results *v)
{
    const pl_block_lemma *b = &v->block;
    const pl_theorem *t = &v->theorem;
    pl_json_key(w, "block_lemma");
    pl_json_object(w);
    verify_json_shape(w, b->rows, b->cols);
    pl_json_key(w, "blocks");
    pl_json_integer(w, b->blocks);
    pl_json_put(w, "polar", b->polar);
    pl_json_put(w, "ns5_shared_norm", b->ns5_shared_norm);
    pl_json_put(w, "ns5_own_norms", b->ns5_own_norms);
    pl_json_put(w, "adamw", b->adamw);
    pl_json_object_end(w);
    pl_json_key(w, "theorem");
    pl_json_object(w);
    pl_json_put(w, "polar", t->polar);
    pl_json_put(w, "condition", t->condition);
    for (int i = 0; i < PL_THEOREM_TABLES; i++) {
        pl_json_key(w, t->table[i]); /* NS_1 .. NS_10 */
        pl_json_array(w);
        for (int k = 0; k < PL_THEOREM_STEPS; k++) pl_json_number(w, t->ns[i][k]);
        pl_json_array_end(w);
    }
    pl_json_object_end(w);
}

static void json_rest(pl_json_writer *w, const verify_results *v)
{
    const pl_linear_maps *l = &v->linear;
    pl_json_key(w, "proposition");
    pl_json_array(w);
    for (int i = 0; i < VERIFY_PROP_ROWS; i++) {
        const pl_proposition *p = &v->proposition[i];
        pl_json_object(w);
        pl_json_put(w, "eps", p->eps);
        pl_json_put(w, "factor_rotated", p->factor_rotated);
        pl_json_put(w, "factor_rotated_paper", p->factor_rotated_paper);
        pl_json_put(w, "factor", p->factor);
        pl_json_put(w, "factor_paper", p->factor_paper);
        pl_json_put(w, "deviation", p->deviation);
        pl_json_put(w, "delta", p->delta);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
    pl_json_key(w, "linear_maps");
    pl_json_object(w);
    pl_json_put(w, "sgd", l->sgd);
    pl_json_put(w, "momentum", l->momentum);
    pl_json_key(w, "spectral_norms");
    pl_json_array(w);
    for (int i = 0; i < PL_LINEAR_SCALES; i++) {
        pl_json_object(w);
        pl_json_put(w, "input", l->input_norm[i]);
        pl_json_put(w, "sgd", l->sgd_norm[i]);
        pl_json_put(w, "ns5", l->ns5_norm[i]);
        pl_json_put(w, "adamw", l->adamw_norm[i]);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
    pl_json_object_end(w);
}

static polar_status print_json(FILE *out, const verify_results *v)
{
    pl_json_writer w = pl_json_writer_begin(out, 2);
    pl_json_object(&w);
    pl_json_key(&w, "seed");
    pl_json_integer(&w, (int64_t)v->seed);
    if (v->n_rows) {
        pl_json_key(&w, "covariance");
        pl_json_array(&w);
        for (int64_t i = 0; i < v->n_rows; i++) json_covariance(&w, &v->rows[i]);
        pl_json_array_end(&w);
    }
    if (v->n_spectra) verify_json_spectra(&w, v);
    if (v->n_rules) verify_json_rules(&w, v);
    if (v->n_classes) verify_json_classes(&w, v);
    if (v->claims) {
        pl_json_key(&w, "schur_reduction");
        pl_json_array(&w);
        for (int i = 0; i < VERIFY_SCHUR_ROWS; i++) json_schur(&w, &v->schur[i]);
        pl_json_array_end(&w);
        json_gauge(&w, v);
        json_rest(&w, v);
    }
    pl_json_object_end(&w);
    return pl_json_writer_end(&w);
}

polar_status verify_print(FILE *out, const verify_results *v, pl_table_format format)
{
    if (format == PL_TABLE_JSON) return print_json(out, v);
    if (v->n_rows) PL_TRY(print_covariance(out, v, format));
    if (v->n_rows && format != PL_TABLE_TEXT) return POLAR_OK;
    if (v->n_spectra) return verify_print_spectra(out, v, format);
    if (v->n_rows && v->n_rules) fprintf(out, "\n");
    if (v->n_rules) PL_TRY(verify_print_rules(out, v, format));
    if (v->n_classes && format == PL_TABLE_TEXT) {
        fprintf(out, "\n");
        PL_TRY(verify_print_classes(out, v, format));
    }
    if (!v->claims || format != PL_TABLE_TEXT) return POLAR_OK;
    text_schur(out, v);
    text_gauge(out, v);
    text_proposition(out, v);
    text_linear(out, v);
    return POLAR_OK;
}
