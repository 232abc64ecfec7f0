/* verify_spectra.c -- covariance on matrices with given singular values, as `polar verify --only spectra`
 * prints it: a row for each shape, number of large values and size of the others. */
#include "verify_results.h"

static const pl_table_column spectra_columns[] = {
    {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"samples", "n", NULL, PL_CELL_INTEGER, 0},
    {"large", "are 1", "singular values", PL_CELL_INTEGER, 0},
    {"tail", "the others", "singular values", PL_CELL_SCI, 0},
    {"polar", "fp64", "exact polar", PL_CELL_SCI, 1},
    {"ns_fp64", "fp64", "Newton-Schulz", PL_CELL_SCI, 1},
    {"ns_fp32", "fp32", "Newton-Schulz", PL_CELL_SCI, 1},
    {"ns_bf16_reference", "bf16 ref.", "Newton-Schulz", PL_CELL_SCI, 1},
    {"ns_bf16_fused", "bf16 fused", "Newton-Schulz", PL_CELL_SCI, 1},
    {"ns_fp16_fused", "fp16 fused", "Newton-Schulz", PL_CELL_SCI, 1},
};

static const pl_covariance_column shown[] = {PL_COV_POLAR,         PL_COV_NS_FP64,
                                             PL_COV_NS_FP32,       PL_COV_NS_BF16_REFERENCE,
                                             PL_COV_NS_BF16_FUSED, PL_COV_NS_FP16_FUSED};
#define SHOWN (sizeof shown / sizeof *shown)

static void spectra_cells(pl_table *t, const pl_covariance_row *r)
{
    pl_table_row(t);
    verify_put_shape(t, r->n, r->m);
    pl_table_integer(t, r->samples);
    pl_table_integer(t, r->values.rank);
    if (r->values.rank < r->n && r->values.rank < r->m) pl_table_number(t, r->values.tail);
    else pl_table_none(t);
    for (size_t i = 0; i < SHOWN; i++) pl_table_number(t, r->mean[shown[i]]);
}

polar_status verify_print_spectra(FILE *out, const verify_results *v, pl_table_format format)
{
    pl_table *t;
    PL_TRY(
        pl_table_create(&t,
                        "Covariance by singular values: ||phi(P G Q^T) - P phi(G) Q^T|| / ||phi(G)||, mean "
                        "over n triples (G with Haar singular vectors; P, Q Haar)",
                        spectra_columns, sizeof spectra_columns / sizeof *spectra_columns));
    for (int64_t i = 0; i < v->n_spectra; i++) spectra_cells(t, &v->spectra[i]);
    polar_status st = pl_table_print(t, out, format);
    pl_table_destroy(t);
    return st;
}

void verify_json_spectra(pl_json_writer *w, const verify_results *v)
{
    pl_json_key(w, "spectra");
    pl_json_array(w);
    for (int64_t i = 0; i < v->n_spectra; i++) {
        const pl_covariance_row *r = &v->spectra[i];
        pl_json_object(w);
        verify_json_shape(w, r->n, r->m);
        pl_json_key(w, "samples");
        pl_json_integer(w, r->samples);
        pl_json_key(w, "large");
        pl_json_integer(w, r->values.rank);
        pl_json_put(w, "tail", r->values.tail);
        for (size_t c = 0; c < SHOWN; c++) {
            char sd[48];
            snprintf(sd, sizeof sd, "%s_sd", pl_covariance_key(shown[c]));
            pl_json_put(w, pl_covariance_key(shown[c]), r->mean[shown[c]]);
            pl_json_put(w, sd, r->sd[shown[c]]);
        }
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}
