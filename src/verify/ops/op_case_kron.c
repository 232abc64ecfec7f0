/* op_case_kron.c -- cases of Kronecker factors; rows are the factor's side, cols the other one's. */
#include "math/kron_elem.h"
#include "op_case_impl.h"

static const pl_case_sizes sizes[] = {{1, 1, 1, 0, 0},  {1, 2, 5, 0, 0},   {3, 7, 13, 0, 0},
                                      {3, 13, 7, 0, 0}, {1, 33, 17, 0, 0}, {1, 64, 96, 0, 1},
                                      {2, 97, 6, 0, 1}};

static pl_mat factor(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->rows);
}

/* Matrix b is in step 3 + b; the third one is left out in some fills. */
static void live_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)o, (void)seed;
    pl_live_row(v, 1, 1.5, 0.25, 0.5, 0.9, r->c.how.beta, r->c.how.eps);
    v[PL_LIVE_SKIP] = b == 2 && r->fill != PL_FILL_ADVERSARIAL && r->fill != PL_FILL_SPECIAL;
    v[PL_LIVE_STEP] = (double)(3 + b);
    v[PL_LIVE_GRAD] = b == 1 ? 0.5 : 1;
}

/* ---- kron_moment ---- */

static const pl_case_formats moment_formats[] = {{{D, D, D, D, D}}, {{D, D, F, D, D}}, {{D, D, H, D, D}}};
static const pl_case_variant moment_how[] = {{.large = 1, .beta = 0.95},
                                             {.per_matrix = 1, .with = "A", .beta = 0.75},
                                             {.strided = 1, .with = "A", .beta = 0.95}};

static pl_mat moment_shape(const pl_op_case *c, int i)
{
    if (i == 3) return pl_mat_dense(NULL, POLAR_DTYPE_F64, c->batch, 1, 2);
    return i == 4 ? pl_case_values(c, i, PL_LIVE_COLS) : factor(c, i);
}

static void moment_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->kron_moment = (pl_args_kron_moment){.A = m[0], .K = m[1], .T = m[2], .N = m[3], .live = m[4]};
}

static void moment_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    if (o == 4) live_fill(v, r, o, b, seed);
    else v[0] = b == 0 ? 0.5 : 2, v[1] = b == 1 ? 0 : 1.5;
}

const pl_case_family pl_cases_kron_moment = {PL_CASES(moment_formats, sizes, moment_how),
                                             .shape = moment_shape,
                                             .args = moment_args,
                                             .in_double = 1,
                                             .values = 1 << 3 | 1 << 4,
                                             .fill = moment_fill,
                                             .live = 4};

/* ---- kron_eigen ---- */

static const pl_case_formats eigen_formats[] = {
    {{D, D, D, D}}, {{F, D, F, D}}, {{F, D, D, D}}, {{D, D, F, D}}, {{H, D, H, D}}};
static const pl_case_variant eigen_how[] = {
    {.large = 1, .every = 1, .with = "F", .alpha = 0.25, .beta = 0.95, .eps = 1e-6},
    {.kind = PL_KRON_TRACE, .every = 2, .with = "F", .alpha = 0.125, .beta = 0.95, .eps = 1e-5},
    {.kind = PL_KRON_NESTEROV,
     .every = 1,
     .with = "F",
     .per_matrix = 1,
     .alpha = 0.3,
     .beta = 0.75,
     .eps = 1e-6},
    {.every = 10, .after = 4, .per_matrix = 1, .beta = 0.95, .eps = 1e-8},
    {.kind = PL_KRON_CLAMPED,
     .every = 10,
     .after = 3,
     .with = "F",
     .per_matrix = 1,
     .alpha = 0.5,
     .beta = 0.75,
     .eps = 1e-8},
    {.every = 1, .strided = 1, .with = "F", .alpha = 0.5, .beta = 0.95, .eps = 1e-3}};

static pl_mat eigen_shape(const pl_op_case *c, int i)
{
    if (i == 3) return pl_case_values(c, i, PL_LIVE_COLS);
    return i == 1 ? pl_case_mat(c, i, 1, c->rows) : factor(c, i);
}

static void eigen_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->kron_eigen = (pl_args_kron_eigen){.Q = m[0],
                                         .F = m[1],
                                         .K = m[2],
                                         .live = m[3],
                                         .kind = c->how.kind,
                                         .every = c->how.every,
                                         .after = c->how.after,
                                         .power = c->how.alpha};
}

const pl_case_family pl_cases_kron_eigen = {PL_CASES(eigen_formats, sizes, eigen_how),
                                            .shape = eigen_shape,
                                            .args = eigen_args,
                                            .in_double = 1,
                                            .values = 1 << 3,
                                            .fill = live_fill,
                                            .live = 3};

/* ---- kron_sweep ---- */

static const pl_case_formats sweep_formats[] = {
    {{D, D, D, D, D}}, {{F, F, D, F, D}}, {{F, F, D, D, D}}, {{D, F, D, F, D}}, {{H, H, D, H, D}}};
static const pl_case_variant sweep_how[] = {{.large = 1, .every = 1, .after = 1, .beta = 0.95},
                                            {.every = 2, .after = 1, .trans = 1, .beta = 0.95},
                                            {.every = 2, .after = 2, .per_matrix = 1, .beta = 0.95},
                                            {.every = 1, .after = 2, .trans = 1, .strided = 1, .beta = 0.95},
                                            {.kind = PL_KRON_CLAMPED,
                                             .every = 1,
                                             .after = 2,
                                             .per_matrix = 1,
                                             .with = "F",
                                             .alpha = 0.5,
                                             .beta = 0.75,
                                             .eps = 1e-8}};

static pl_mat sweep_shape(const pl_op_case *c, int i)
{
    if (i == 4) return pl_case_values(c, i, PL_LIVE_COLS);
    if (i == 2) return pl_case_mat(c, i, 1, c->rows);
    if (i != 1) return factor(c, i);
    return c->how.trans ? pl_case_mat(c, i, c->cols, c->rows) : pl_case_mat(c, i, c->rows, c->cols);
}

static void sweep_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->kron_sweep = (pl_args_kron_sweep){.Q = m[0],
                                         .V = m[1],
                                         .F = m[2],
                                         .K = m[3],
                                         .live = m[4],
                                         .trans = c->how.trans,
                                         .every = c->how.every,
                                         .after = c->how.after,
                                         .kind = c->how.kind,
                                         .power = c->how.alpha};
}

const pl_case_family pl_cases_kron_sweep = {PL_CASES(sweep_formats, sizes, sweep_how),
                                            .shape = sweep_shape,
                                            .args = sweep_args,
                                            .in_double = 1,
                                            .values = 1 << 4,
                                            .fill = live_fill,
                                            .live = 4};
