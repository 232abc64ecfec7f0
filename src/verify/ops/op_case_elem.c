/* op_case_elem.c -- cases of the elementwise ops and of the steps of optimisers; sizes are the result's, of
 * advance those of its live rows. */
#include <math.h>

#include "math/norm_elem.h"
#include "op_case_impl.h"

static pl_mat as_result(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols);
}

/* ---- copy ---- */

static const pl_case_formats copies[] = {{{D, D}}, {{D, F}}, {{D, H}}, {{F, D}}, {{F, F}},
                                         {{F, H}}, {{H, D}}, {{H, F}}, {{H, H}}, {{E, D}},
                                         {{E, F}}, {{E, E}}, {{F, E}}, {{D, E}}, {{H, E}}};
static const pl_case_variant copy_how[] = {
    {.large = 1}, {.large = 1, .trans = 1}, {.onto = 1}, {.trans = 1, .strided = 1}};

static pl_mat copy_shape(const pl_op_case *c, int i)
{
    return i == 1 && c->how.trans ? pl_case_mat(c, i, c->cols, c->rows) : as_result(c, i);
}

static void copy_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->copy = (pl_args_copy){.Y = m[0], .X = m[1], .trans = c->how.trans};
}

const pl_case_family pl_cases_copy = {PL_CASES(copies, pl_sizes_plain, copy_how), .shape = copy_shape,
                                      .args = copy_args};

/* ---- axpby ---- */

static const pl_case_formats sums[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}}, {{F, H, F}},
                                       {{H, F, F}}, {{H, D, D}}, {{F, D, D}}, {{D, F, H}},
                                       {{H, H, F}}, {{E, E, E}}, {{F, E, E}}, {{E, F, F}}};
static const pl_case_variant axpby_how[] = {
    {.alpha = -1.5},
    {.with = "Z", .alpha = 2, .beta = -3},
    {.large = 1, .with = "Z", .alpha = 3.4445, .beta = -4.775},
    {.large = 1, .with = "Z", .round_terms = 1, .alpha = 3.4445, .beta = -4.775},
    {.round_terms = 1, .alpha = 2.0315},
    {.with = "Z", .onto = 1, .alpha = 2.0315, .beta = 0.1},
    {.with = "Z", .onto = 2, .alpha = 1, .beta = 0.1}};

static void axpby_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->axpby = (pl_args_axpby){.Y = m[0],
                               .X = m[1],
                               .Z = m[2],
                               .alpha = c->how.alpha,
                               .beta = c->how.beta,
                               .round_terms = c->how.round_terms};
}

const pl_case_family pl_cases_axpby = {PL_CASES(sums, pl_sizes_plain, axpby_how), .shape = as_result,
                                       .args = axpby_args};

/* ---- normalise ---- */

static const pl_case_formats quotients[] = {{{D, D, D}}, {{F, F, D}}, {{H, H, D}}, {{H, F, D}}, {{H, D, D}},
                                            {{F, H, D}}, {{F, D, D}}, {{D, F, D}}, {{E, F, D}}, {{E, E, D}}};
static const pl_case_variant normalise_how[] = {
    {.large = 1}, {.large = 1, .reference = 1, .eps = 1e-7}, {.onto = 1}, {.shared = 1}, {.eps = 12}};

static pl_mat normalise_shape(const pl_op_case *c, int i)
{
    return i == 2 ? pl_mat_dense(NULL, POLAR_DTYPE_F64, c->how.shared ? 1 : c->batch, 1, 2) : as_result(c, i);
}

static void normalise_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->normalise = (pl_args_normalise){
        .Y = m[0], .X = m[1], .N = m[2], .reference = c->how.reference, .eps = c->how.eps};
}

/* The norm of X's matrix b, or of all of X, in units of s. */
static void normalise_fill(double out[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    const pl_mat *m = &r->mat[1];
    const int64_t from = r->c.how.shared ? 0 : b, to = r->c.how.shared ? m->batch : b + 1;
    double amax = 0, sum = 0;
    (void)o, (void)seed;
    for (int pass = 0; pass < 2; pass++) {
        out[0] = pl_norm_scale(amax, m->dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32);
        for (int64_t k = from; k < to; k++)
            for (int64_t i = 0; i < m->rows; i++)
                for (int64_t j = 0; j < m->cols; j++) {
                    double x = pl_op_run_before(r, 1, k, i, j);
                    if (pass == 0) amax = fmax(amax, fabs(x));
                    else sum += x * out[0] * (x * out[0]);
                }
    }
    out[1] = sqrt(sum);
}

const pl_case_family pl_cases_normalise = {PL_CASES(quotients, pl_sizes_plain, normalise_how),
                                           .shape = normalise_shape, .args = normalise_args, .values = 1 << 2,
                                           .fill = normalise_fill};

/* ---- direction, decay_step, adamw_step ---- */

/* The live row of the third step and, matrix by matrix, of later ones; short numbers where sums shall be
 * exact. The second of several matrices is frozen and has its gradient multiplied, the third one is left out
 * in some fills. */
static void live_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    const pl_case_variant *k = &r->c.how;
    int whole = r->fill == PL_FILL_INTEGERS;
    double lr = (whole ? 0.25 : 5e-3) * (b == 1 ? 0 : (double)(1 + b)), wd = whole ? 0.5 : 0.05;
    (void)o, (void)seed;
    pl_live_row(v, 1 / (1 - pow(k->alpha, (double)(3 + b))), 1 / (1 - pow(k->beta, (double)(3 + b))), lr, wd,
                k->alpha, k->beta, k->eps);
    if (b == 1) v[PL_LIVE_GRAD] = whole ? 0.5 : 0.7;
    v[PL_LIVE_SKIP] = b == 2 && r->fill != PL_FILL_ADVERSARIAL && r->fill != PL_FILL_SPECIAL;
}

static const pl_case_formats directions[] = {{{D, D, D, D, D}}, {{F, F, F, F, D}}, {{H, H, H, H, D}},
                                             {{H, F, F, H, D}}, {{F, H, F, F, D}}, {{H, F, F, F, D}},
                                             {{H, D, D, F, D}}};
#define HEAVY_BALL       .momentum = POLAR_MOMENTUM_HEAVY_BALL
#define NESTEROV         .momentum = POLAR_MOMENTUM_NESTEROV
#define EMA              .momentum = POLAR_MOMENTUM_EMA
#define AVERAGE          .momentum = POLAR_MOMENTUM_AVERAGE
#define AVERAGE_NESTEROV .momentum = POLAR_MOMENTUM_AVERAGE_NESTEROV
static const pl_case_variant direction_how[] = {
    {EMA, .large = 1, .with = "V", .alpha = 0.9, .beta = 0.999, .eps = 1e-8},
    {EMA, .with = "V", .alpha = 0.5, .beta = 0.75, .eps = 0.125},
    {EMA, .with = "V", .onto = 3, .alpha = 0.95, .beta = 0.99, .eps = 1e-6},
    {EMA, .with = "V", .per_matrix = 1, .alpha = 0.9, .beta = 0.999, .eps = 1e-8},
    {EMA, .alpha = 0.9},
    {EMA, .per_matrix = 1, .alpha = 0.75},
    {HEAVY_BALL, .with = "V", .alpha = 0.5, .beta = 0.75, .eps = 0.125},
    {HEAVY_BALL, .alpha = 0.9},
    {HEAVY_BALL, .onto = 3, .alpha = 0.5},
    {NESTEROV, .with = "V", .per_matrix = 1, .alpha = 0.95, .beta = 0.999, .eps = 1e-8},
    {NESTEROV, .with = "V", .onto = 3, .alpha = 0.5, .beta = 0.75, .eps = 0.125},
    {NESTEROV, .large = 1, .alpha = 0.95},
    {AVERAGE, .per_matrix = 1, .alpha = 0.95},
    {AVERAGE, .with = "V", .alpha = 0.5, .beta = 0.75, .eps = 0.125},
    {AVERAGE_NESTEROV, .alpha = 0.95},
    {EMA, .laprop = 1, .large = 1, .with = "V", .alpha = 0.9, .beta = 0.99, .eps = 1e-8},
    {NESTEROV, .laprop = 1, .with = "V", .onto = 3, .alpha = 0.5, .beta = 0.75, .eps = 0.125},
    {EMA, .laprop = 1, .with = "V", .per_matrix = 1, .alpha = 0.9, .beta = 0.99, .eps = 1e-8},
    {AVERAGE_NESTEROV, .with = "V", .onto = 3, .alpha = 0.5, .beta = 0.75, .eps = 0.125}};

static pl_mat step_shape(const pl_op_case *c, int i)
{
    return i == pl_op_case_family(c->op)->live ? pl_case_values(c, i, PL_LIVE_COLS) : as_result(c, i);
}

static void direction_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->direction =
        (pl_args_direction){.D = m[0],
                            .M = m[1],
                            .V = m[2],
                            .G = m[3],
                            .live = m[4],
                            .momentum = c->how.momentum,
                            .precondition = c->how.laprop ? POLAR_PRECONDITION_LAPROP : c->how.with != NULL};
}

const pl_case_family pl_cases_direction = {PL_CASES(directions, pl_sizes_plain, direction_how),
                                           .shape = step_shape,
                                           .args = direction_args,
                                           .values = 1 << 4,
                                           .fill = live_fill,
                                           .live = 4,
                                           .squares = 1 << 2};

static const pl_case_formats decays[] = {{{D, D, D}}, {{F, F, D}}, {{H, H, D}}, {{F, H, D}},
                                         {{H, F, D}}, {{D, F, D}}, {{F, D, D}}};
static const pl_case_variant decay_how[] = {
    {.large = 1, .alpha = 1}, {.alpha = 1.7320508075688772}, {.per_matrix = 1, .alpha = 2}};

static void decay_step_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->decay_step = (pl_args_decay_step){.W = m[0], .D = m[1], .live = m[2], .scale = c->how.alpha};
}

const pl_case_family pl_cases_decay_step = {PL_CASES(decays, pl_sizes_plain, decay_how),
                                            .shape = step_shape,
                                            .args = decay_step_args,
                                            .values = 1 << 2,
                                            .fill = live_fill,
                                            .live = 2};

static const pl_case_formats adamws[] = {{{D, D, D, D, D}}, {{F, F, F, F, D}}, {{H, H, H, H, D}},
                                         {{H, F, F, H, D}}, {{F, F, F, H, D}}, {{F, F, H, F, D}},
                                         {{D, F, F, F, D}}, {{H, D, D, F, D}}};
static const pl_case_variant adamw_how[] = {{EMA, .large = 1, .alpha = 0.9, .beta = 0.999, .eps = 1e-8},
                                            {EMA, .alpha = 0.5, .beta = 0.75, .eps = 0.125},
                                            {EMA, .per_matrix = 1, .alpha = 0.9, .beta = 0.999, .eps = 1e-8}};

static void adamw_step_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->adamw_step = (pl_args_adamw_step){.W = m[0], .M = m[1], .V = m[2], .G = m[3], .live = m[4]};
}

const pl_case_family pl_cases_adamw_step = {PL_CASES(adamws, pl_sizes_plain, adamw_how),
                                            .shape = step_shape,
                                            .args = adamw_step_args,
                                            .values = 1 << 4,
                                            .fill = live_fill,
                                            .live = 4,
                                            .squares = 1 << 2};

/* ---- nonfinite, advance ---- */

static const pl_case_formats flags[] = {{{F, D}}, {{F, F}}, {{F, H}}};
static const pl_case_variant nonfinite_how[] = {{.large = 1}, {.per_matrix = 1}};

static pl_mat nonfinite_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_values(c, i, 1) : as_result(c, i);
}

static void nonfinite_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->nonfinite = (pl_args_nonfinite){.F = m[0], .G = m[1]};
}

static void nonfinite_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)r, (void)o, (void)seed;
    v[0] = b == 1;
}

const pl_case_family pl_cases_nonfinite = {PL_CASES(flags, pl_sizes_plain, nonfinite_how),
                                           .shape = nonfinite_shape, .args = nonfinite_args, .values = 1 << 0,
                                           .fill = nonfinite_fill};

static const pl_case_formats counts[] = {{{D, D, F, F, F}}};
static const pl_case_sizes live_rows[] = {
    {1, 1, PL_LIVE_COLS, 0, 0}, {6, 1, PL_LIVE_COLS, 0, 0}, {300, 1, PL_LIVE_COLS, 0, 0}};
static const pl_case_variant advance_how[] = {{.alpha = 0.9, .beta = 0.999},
                                              {.with = "F", .alpha = 0.9, .beta = 0.999},
                                              {.with = "F found scale", .alpha = 0.95, .beta = 0.75}};

static pl_mat advance_shape(const pl_op_case *c, int i)
{
    const int64_t members = c->batch % 2 ? 1 : 2;
    if (i == 0) return as_result(c, i);
    return i == 1 ? pl_case_mat(c, i, 1, 2) : pl_mat_dense(NULL, POLAR_DTYPE_F32, i == 2 ? members : 1, 1, 1);
}

static void advance_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->advance = (pl_args_advance){.L = m[0], .T = m[1], .F = m[2], .found = m[3], .scale = m[4]};
}

/* Row b has made b steps and left out 2 b; every fifth is the host's to leave out, every fourth waits four
 * steps; the second member and, in the odd fill, found are flagged. */
static void advance_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)seed;
    if (o == 0) {
        pl_live_row(v, 0.5, 0.25, 5e-3, 0.05, r->c.how.alpha, r->c.how.beta, 1e-8);
        v[PL_LIVE_SKIP] = b % 5 == 3;
        v[PL_LIVE_WAIT] = b % 4 == 2 ? 4 : 0;
    } else if (o == 1) v[0] = (double)b, v[1] = (double)(2 * b);
    else v[0] = o == 2 ? b == 1 : o == 3 ? r->fill == PL_FILL_ODD : 1024;
}

const pl_case_family pl_cases_advance = {PL_CASES(counts, live_rows, advance_how),
                                         .shape = advance_shape,
                                         .args = advance_args,
                                         .in_double = 1,
                                         .values = 0x1f,
                                         .fill = advance_fill};
