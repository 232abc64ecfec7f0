/* op_case_stage.c -- cases of the stages of rules; sizes are those of the direction. */
#include <math.h>

#include "op_case_impl.h"

static pl_mat as_result(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols);
}

/* Live rows as those of the third step and later ones; the second of several matrices is frozen, the third
 * one left out in some fills. */
static void stage_live(double v[PL_LIVE_COLS], const pl_op_run *r, int64_t b)
{
    const pl_case_variant *k = &r->c.how;
    int whole = r->fill == PL_FILL_INTEGERS;
    pl_live_row(v, 1, 1 / (1 - pow(k->beta, (double)(3 + b))),
                (whole ? 0.25 : 5e-3) * (b == 1 ? 0 : (double)(1 + b)), whole ? 0.5 : 0.05, k->alpha, k->beta,
                k->eps);
    v[PL_LIVE_SKIP] = b == 2 && r->fill != PL_FILL_ADVERSARIAL && r->fill != PL_FILL_SPECIAL;
    v[PL_LIVE_STEP] = (double)(3 + b);
    v[PL_LIVE_GRAD] = b == 1 ? 0.5 : 1;
}

static void live_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)o, (void)seed;
    stage_live(v, r, b);
}

/* ---- line_factors ---- */

static const pl_case_formats line_formats[] = {
    {{D, D, D, D}}, {{D, F, F, D}}, {{D, F, H, D}}, {{D, D, F, D}}};
static const pl_case_variant line_how[] = {
    {.alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.trans = 1, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.kind = PL_LINE_MOMENT, .with = "V", .alpha = 0.9, .beta = 0.95, .eps = 1e-10},
    {.kind = PL_LINE_MOMENT,
     .trans = 1,
     .with = "V",
     .per_matrix = 1,
     .alpha = 0.9,
     .beta = 0.75,
     .eps = 0.125},
    {.kind = PL_LINE_CLAMPED, .with = "V", .per_matrix = 1, .alpha = 0.9, .beta = 0.95, .eps = 0.5},
    {.kind = PL_LINE_CLAMPED, .trans = 1, .with = "V", .alpha = 0.9, .beta = 0.95, .eps = 1e-10}};

static pl_mat line_shape(const pl_op_case *c, int i)
{
    if (i == 3) return pl_case_values(c, i, PL_LIVE_COLS);
    return i == 2 ? as_result(c, i) : pl_case_mat(c, i, 1, c->how.trans ? c->cols : c->rows);
}

static void line_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->line_factors = (pl_args_line_factors){
        .F = m[0], .V = m[1], .X = m[2], .live = m[3], .trans = c->how.trans, .kind = c->how.kind};
}

const pl_case_family pl_cases_line_factors = {PL_CASES(line_formats, pl_sizes_plain, line_how),
                                              .shape = line_shape,
                                              .args = line_args,
                                              .in_double = 1,
                                              .values = 1 << 0 | 1 << 3,
                                              .fill = live_fill,
                                              .live = 3,
                                              .squares = 1 << 1};

/* ---- scale_lines ---- */

static const pl_case_formats scale_formats[] = {
    {{D, D, D, D}}, {{F, F, D, D}}, {{H, H, D, D}}, {{H, F, D, D}}, {{F, H, D, D}}};
static const pl_case_variant scale_how[] = {
    {.large = 1, .with = "R"}, {.large = 1, .with = "C"}, {.with = "R C"}, {.with = "R C", .onto = 1}};

static pl_mat scale_shape(const pl_op_case *c, int i)
{
    return i < 2 ? as_result(c, i) : pl_case_mat(c, i, 1, i == 2 ? c->rows : c->cols);
}

static void scale_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->scale_lines = (pl_args_scale_lines){.Y = m[0], .X = m[1], .R = m[2], .C = m[3]};
}

const pl_case_family pl_cases_scale_lines = {PL_CASES(scale_formats, pl_sizes_plain, scale_how),
                                             .shape = scale_shape, .args = scale_args, .in_double = 1};

/* ---- entry_stage ---- */

static const pl_case_formats entry_formats[] = {
    {{D, D, D, D, D}}, {{F, F, F, F, D}}, {{H, F, H, H, D}}, {{F, H, F, H, D}}};
static const pl_case_variant entry_how[] = {
    {.large = 1, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.onto = 2, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.large = 1, .with = "V", .alpha = 0.9, .beta = 0.999, .eps = 1e-8},
    {.with = "V", .onto = 2, .alpha = 0.9, .beta = 0.75, .eps = 0.125},
    {.with = "V", .per_matrix = 1, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.large = 1, .with = "V G", .onto = 2, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.with = "V G", .onto = 2, .per_matrix = 1, .after = 3, .alpha = 0.9, .beta = 0.75, .eps = 1e-8},
    {.large = 1, .with = "V G", .onto = 2, .root = 1, .alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.with = "V G", .root = 1, .per_matrix = 1, .alpha = 0.9, .beta = 0.75, .eps = 0.125}};

static pl_mat entry_shape(const pl_op_case *c, int i)
{
    return i == 4 ? pl_case_values(c, i, PL_LIVE_COLS) : as_result(c, i);
}

static void entry_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->entry_stage = (pl_args_entry_stage){
        .Y = m[0], .V = m[1], .X = m[2], .G = m[3], .live = m[4], .after = c->how.after, .root = c->how.root};
}

const pl_case_family pl_cases_entry_stage = {PL_CASES(entry_formats, pl_sizes_plain, entry_how),
                                             .shape = entry_shape,
                                             .args = entry_args,
                                             .values = 1 << 4,
                                             .fill = live_fill,
                                             .live = 4,
                                             .squares = 1 << 1};

/* ---- pick_lines ---- */

static const pl_case_formats pick_formats[] = {
    {{D, D, D, D, D}}, {{F, D, F, F, D}}, {{F, D, F, H, D}}, {{H, D, F, F, D}}};
/* a matrix without entries has no lines to compare: nothing is written */
static const pl_case_sizes pick_sizes[] = {{1, 1, 1, 0, 0},    {1, 1, 37, 0, 0},  {1, 37, 1, 0, 0},
                                           {3, 7, 13, 0, 0},   {1, 8, 44, 0, 0},  {3, 33, 17, 0, 0},
                                           {1, 64, 192, 0, 1}, {1, 192, 64, 0, 1}};
static const pl_case_variant pick_how[] = {{.large = 1, .alpha = 0.95, .beta = 0.9},
                                           {.large = 1, .trans = 1, .alpha = 0.95, .beta = 0.9},
                                           {.per_matrix = 1, .alpha = 0.75, .beta = 0.9},
                                           {.trans = 1, .per_matrix = 1, .alpha = 0.75, .beta = 0.9},
                                           {.strided = 1, .alpha = 0.95, .beta = 0.9}};

static int64_t pick_count(const pl_op_case *c)
{
    return ((c->how.trans ? c->cols : c->rows) + 3) / 4;
}

static pl_mat pick_shape(const pl_op_case *c, int i)
{
    if (i == 4) return pl_case_values(c, i, PL_LIVE_COLS);
    return i == 1 ? pl_case_mat(c, i, 1, c->how.trans ? c->cols : c->rows) : as_result(c, i);
}

static void pick_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->pick_lines = (pl_args_pick_lines){.D = m[0],
                                         .F = m[1],
                                         .M = m[2],
                                         .G = m[3],
                                         .live = m[4],
                                         .trans = c->how.trans,
                                         .count = pick_count(c)};
}

const pl_case_family pl_cases_pick_lines = {PL_CASES(pick_formats, pick_sizes, pick_how),
                                            .shape = pick_shape,
                                            .args = pick_args,
                                            .in_double = 1,
                                            .values = 1 << 4,
                                            .fill = live_fill,
                                            .live = 4};

/* ---- move_lines ---- */

static const pl_case_formats move_formats[] = {
    {{D, D, D}}, {{F, F, D}}, {{H, H, D}}, {{H, F, D}}, {{F, D, D}}};
static const pl_case_variant move_how[] = {{.large = 1},
                                           {.large = 1, .back = 1},
                                           {.large = 1, .trans = 1},
                                           {.large = 1, .trans = 1, .back = 1},
                                           {.strided = 1},
                                           {.trans = 1, .back = 1, .strided = 1}};

/* Half of the lines: F, as good as random, has more than that above 0 as often as fewer. */
static pl_mat move_shape(const pl_op_case *c, int i)
{
    const int64_t lines = c->how.trans ? c->cols : c->rows;
    if (i == 2) return pl_case_mat(c, i, 1, lines);
    if ((i == 0) == (c->how.back != 0)) return as_result(c, i);
    return c->how.trans ? pl_case_mat(c, i, c->rows, (lines + 1) / 2)
                        : pl_case_mat(c, i, (lines + 1) / 2, c->cols);
}

static void move_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->move_lines =
        (pl_args_move_lines){.Y = m[0], .X = m[1], .F = m[2], .trans = c->how.trans, .back = c->how.back};
}

const pl_case_family pl_cases_move_lines = {PL_CASES(move_formats, pick_sizes, move_how), .shape = move_shape,
                                            .args = move_args, .in_double = 1};

/* ---- inner ---- */

static const pl_case_formats inner_formats[] = {{{D, D, D}}, {{D, F, F}}, {{D, F, H}}};
static const pl_case_variant inner_how[] = {{.large = 1}};

static pl_mat inner_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, 1, 4) : as_result(c, i);
}

static void inner_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->inner = (pl_args_inner){.N = m[0], .X = m[1], .Y = m[2]};
}

const pl_case_family pl_cases_inner = {PL_CASES(inner_formats, pl_sizes_plain, inner_how),
                                       .shape = inner_shape, .args = inner_args, .in_double = 1,
                                       .values = 1 << 0};

/* ---- apply_step ---- */

static const pl_case_formats apply_formats[] = {
    {{D, D, D, D}}, {{F, F, D, D}}, {{H, F, D, D}}, {{F, D, D, D}}};
static const pl_case_variant apply_how[] = {
    {.apply = POLAR_APPLY_CAUTIOUS, .large = 1, .alpha = 1.7320508075688772},
    {.apply = POLAR_APPLY_CAUTIOUS, .per_matrix = 1, .alpha = 2},
    {.apply = POLAR_APPLY_HYPERBALL, .large = 1, .with = "N", .alpha = 1},
    {.apply = POLAR_APPLY_HYPERBALL, .per_matrix = 1, .with = "N", .alpha = 1},
    {.apply = POLAR_APPLY_UPDATE_FLOOR, .large = 1, .with = "N", .alpha = 1.25, .beta = 3},
    {.apply = POLAR_APPLY_UPDATE_FLOOR, .per_matrix = 1, .with = "N", .alpha = 1.25, .beta = 0.35},
    {.apply = POLAR_APPLY_RADIAL_BRAKE, .large = 1, .with = "N", .alpha = 1.25, .beta = 0.5},
    {.apply = POLAR_APPLY_RADIAL_BRAKE, .per_matrix = 1, .with = "N", .alpha = 1.25, .beta = 0.5}};

static pl_mat apply_shape(const pl_op_case *c, int i)
{
    if (i == 2) return pl_mat_dense(NULL, POLAR_DTYPE_F64, c->batch, 1, 4);
    return i == 3 ? pl_case_values(c, i, PL_LIVE_COLS) : as_result(c, i);
}

static void apply_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->apply_step = (pl_args_apply_step){.W = m[0],
                                         .D = m[1],
                                         .N = m[2],
                                         .live = m[3],
                                         .scale = c->how.alpha,
                                         .apply = c->how.apply,
                                         .strength = c->how.beta};
}

/* Products of W and D that some pair has: the cosine is between -1 and 1; of the last matrix all are zero. */
static void apply_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)seed;
    if (o == 3) {
        stage_live(v, r, b);
        return;
    }
    const int none = b == r->mat[2].batch - 1 && b > 0;
    const int against = (b % 2 != 0) != (r->c.how.apply == POLAR_APPLY_RADIAL_BRAKE); /* D and W */
    v[2] = none ? 0 : 4, v[3] = none ? 0 : 16, v[0] = none ? 0 : against ? -2 : 4, v[1] = 1;
}

const pl_case_family pl_cases_apply_step = {PL_CASES(apply_formats, pl_sizes_plain, apply_how),
                                            .shape = apply_shape,
                                            .args = apply_args,
                                            .values = 1 << 2 | 1 << 3,
                                            .fill = apply_fill,
                                            .live = 3};

/* ---- norm_moment ---- */

static const pl_case_formats norm_formats[] = {{{D, D, D, D}}, {{D, F, D, D}}};
static const pl_case_variant norm_how[] = {
    {.alpha = 0.9, .beta = 0.95, .eps = 1e-8},
    {.per_matrix = 1, .alpha = 0.9, .beta = 0.75, .eps = 0.125},
    {.kind = PL_NORM_SUM, .alpha = 0.9, .beta = 0.95, .eps = 5e-4},
    {.kind = PL_NORM_SUM, .per_matrix = 1, .alpha = 0.9, .beta = 0.95, .eps = 0.5}};

static pl_mat norm_shape(const pl_op_case *c, int i)
{
    if (i == 3) return pl_case_values(c, i, PL_LIVE_COLS);
    return pl_case_mat(c, i, 1, i == 0 ? 2 : i == 1 ? 1 : 4);
}

static void norm_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->norm_moment = (pl_args_norm_moment){
        .F = m[0], .V = m[1], .N = m[2], .live = m[3], .kind = c->how.kind, .clip = 2.5};
}

/* Norms below and above the clip; of the last matrix all are zero. */
static void norm_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)seed;
    if (o == 3) {
        stage_live(v, r, b);
        return;
    }
    const int none = b == r->mat[2].batch - 1 && b > 0;
    v[0] = none ? 0 : 3, v[1] = 1, v[2] = none ? 0 : b % 2 ? 2 : 9, v[3] = none ? 0 : 16;
}

const pl_case_family pl_cases_norm_moment = {PL_CASES(norm_formats, pl_sizes_plain, norm_how),
                                             .shape = norm_shape,
                                             .args = norm_args,
                                             .in_double = 1,
                                             .values = 1 << 0 | 1 << 2 | 1 << 3,
                                             .fill = norm_fill,
                                             .live = 3,
                                             .squares = 1 << 1};
