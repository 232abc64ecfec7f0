/* op_case.c -- the list: each op's family is the product of its formats, sizes and variants, less what makes
 * no sense. The layers' ops: op_case_nn.c. */
#include <stdio.h>
#include <string.h>

#include "op_case_impl.h"

#define D POLAR_DTYPE_F64
#define F POLAR_DTYPE_F32
#define H POLAR_DTYPE_BF16
#define E POLAR_DTYPE_F16

/* ---- formats, in the order of the operands in ops.def ---- */

static const pl_case_formats copy_formats[] = {{{D, D}}, {{D, F}}, {{D, H}}, {{F, D}}, {{F, F}},
                                               {{F, H}}, {{H, D}}, {{H, F}}, {{H, H}}, {{E, D}},
                                               {{E, F}}, {{E, E}}, {{F, E}}, {{D, E}}, {{H, E}}};
static const pl_case_formats axpby_formats[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}}, {{F, H, F}},
                                                {{H, F, F}}, {{H, D, D}}, {{F, D, D}}, {{D, F, H}},
                                                {{H, H, F}}, {{E, E, E}}, {{F, E, E}}, {{E, F, F}}};
static const pl_case_formats gemm_formats[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, H, H}}, {{F, H, H, F}},
                                               {{H, F, F, H}}, {{H, D, D, H}}, {{F, D, D, F}}, {{D, F, F, D}},
                                               {{D, H, H, D}}, {{H, H, H, F}}, {{F, H, H, H}}, {{E, E, E, E}},
                                               {{F, E, E, F}}, {{E, E, E, F}}, {{D, E, E, D}}};
static const pl_case_formats frob_formats[] = {{{D, D}}, {{D, F}}, {{D, H}}, {{D, E}}};
static const pl_case_formats join_formats[] = {{{D, D}}};
static const pl_case_formats normalise_formats[] = {{{D, D, D}}, {{F, F, D}}, {{H, H, D}}, {{H, F, D}},
                                                    {{H, D, D}}, {{F, H, D}}, {{F, D, D}}, {{D, F, D}},
                                                    {{E, F, D}}, {{E, E, D}}};
static const pl_case_formats polar_formats[] = {{{D, D}}, {{F, F}}, {{H, H}}, {{D, F}},
                                                {{D, H}}, {{H, D}}, {{F, H}}};
static const pl_case_formats direction_formats[] = {{{D, D, D, D, D}}, {{F, F, F, F, D}}, {{H, H, H, H, D}},
                                                    {{H, F, F, H, D}}, {{F, H, F, F, D}}, {{H, F, F, F, D}},
                                                    {{H, D, D, F, D}}};
static const pl_case_formats adamw_formats[] = {{{D, D, D, D, D}}, {{F, F, F, F, D}}, {{H, H, H, H, D}},
                                                {{H, F, F, H, D}}, {{F, F, F, H, D}}, {{F, F, H, F, D}},
                                                {{D, F, F, F, D}}, {{H, D, D, F, D}}};
static const pl_case_formats nonfinite_formats[] = {{{F, D}}, {{F, F}}, {{F, H}}};
static const pl_case_formats advance_formats[] = {{{D, D, F, F, F}}};
static const pl_case_formats decay_formats[] = {{{D, D, D}}, {{F, F, D}}, {{H, H, D}}, {{F, H, D}},
                                                {{H, F, D}}, {{D, F, D}}, {{F, D, D}}};

/* ---- sizes: batch, rows, cols, K ---- */

static const pl_case_sizes plain_sizes[] = {{1, 1, 1, 0, 0},
                                            {1, 1, 37, 0, 0},
                                            {1, 37, 1, 0, 0},
                                            {3, 7, 13, 0, 0},
                                            {1, 8, 44, 0, 0},
                                            {3, 33, 17, 0, 0},
                                            {4, 0, 5, 0, 0},
                                            {1, 64, 192, 0, PL_CASE_LARGE},
                                            {1, 192, 64, 0, PL_CASE_LARGE}};
static const pl_case_sizes gemm_sizes[] = {{1, 1, 1, 1, 0},
                                           {1, 1, 37, 5, 0},
                                           {1, 37, 1, 5, 0},
                                           {3, 7, 13, 1, 0},
                                           {1, 8, 44, 8, 0},
                                           {3, 33, 17, 64, 0},
                                           {2, 5, 9, 0, 0},
                                           {1, 9, 21, 300, 0},
                                           {2, 24, 24, 40, 0},
                                           {1, 7, 13, 700, 0},
                                           {1, 64, 192, 64, PL_CASE_LARGE},
                                           {1, 192, 64, 64, PL_CASE_LARGE}};
static const pl_case_sizes join_sizes[] = {
    {1, 1, 2, 0, 0}, {3, 1, 2, 0, 0}, {33, 1, 2, 0, 0}, {100, 1, 2, 0, 0}};
static const pl_case_sizes advance_sizes[] = {
    {1, 1, PL_LIVE_COLS, 0, 0}, {6, 1, PL_LIVE_COLS, 0, 0}, {300, 1, PL_LIVE_COLS, 0, 0}};
static const pl_case_sizes polar_sizes[] = {
    {1, 1, 1, 0, 0},  {1, 1, 37, 0, 0}, {1, 37, 1, 0, 0},  {3, 7, 13, 0, 0},
    {3, 13, 7, 0, 0}, {2, 8, 8, 0, 0},  {3, 33, 17, 0, 0}, {1, 32, 96, 0, PL_CASE_LARGE}};

/* ---- variants: flags, alpha, beta, eps. LARGE: runs at large sizes too ---- */

#define ALL PL_CASE_LARGE
#define ADD PL_CASE_ADDEND
static const pl_case_variant copy_variants[] = {{ALL, 0, 0, 0},
                                                {ALL | PL_CASE_TRANS, 0, 0, 0},
                                                {PL_CASE_IN_PLACE, 0, 0, 0},
                                                {PL_CASE_TRANS | PL_CASE_STRIDED, 0, 0, 0}};
static const pl_case_variant axpby_variants[] = {{0, -1.5, 0, 0},
                                                 {ADD, 2, -3, 0},
                                                 {ALL | ADD, 3.4445, -4.775, 0},
                                                 {ALL | ADD | PL_CASE_ROUND_TERMS, 3.4445, -4.775, 0},
                                                 {PL_CASE_ROUND_TERMS, 2.0315, 0, 0},
                                                 {ADD | PL_CASE_IN_PLACE, 2.0315, 0.1, 0},
                                                 {ADD | PL_CASE_IN_PLACE_Z, 1, 0.1, 0}};
static const pl_case_variant gemm_variants[] = {{0, 1, 0, 0},
                                                {ALL | PL_CASE_TB, 1, 0, 0},
                                                {PL_CASE_TA, 2, 0, 0},
                                                {PL_CASE_TA | PL_CASE_TB, -0.3, 0, 0},
                                                {ADD, 2, -3, 0},
                                                {ALL | ADD, 2.0315, -4.775, 0},
                                                {ADD | PL_CASE_IN_PLACE | PL_CASE_TB, 1, 3.4445, 0},
                                                {ADD | PL_CASE_STRIDED, 1, 1, 0},
                                                {ADD | PL_CASE_SHARED | PL_CASE_TB, 1, -1, 0},
                                                {PL_CASE_SYM | PL_CASE_TB, 1, 0, 0},
                                                {ADD | PL_CASE_SYM | PL_CASE_TB, 2.0315, -4.775, 0}};
static const pl_case_variant frob_variants[] = {{ALL, 1, 0, 0},
                                                {0, 3, 0, 0},
                                                {ALL | PL_CASE_ROUNDED, 1, 0, 0},
                                                {ALL | PL_CASE_TRANS, 1, 0, 0},
                                                {PL_CASE_TRANS | PL_CASE_ROUNDED, 3, 0, 0}};
static const pl_case_variant join_variants[] = {{0, 0, 0, 0}};
static const pl_case_variant normalise_variants[] = {{ALL, 0, 0, 0},
                                                     {ALL | PL_CASE_REFERENCE, 0, 0, 1e-7},
                                                     {PL_CASE_IN_PLACE, 0, 0, 0},
                                                     {PL_CASE_SHARED, 0, 0, 0},
                                                     {0, 0, 0, 12}};
static const pl_case_variant polar_variants[] = {{ALL, 0, 0, 0}, {PL_CASE_IN_PLACE, 0, 0, 0}};
static const pl_case_variant direction_variants[] = {
    {ALL, 0.9, 0.999, 1e-8},
    {0, 0.5, 0.75, 0.125},
    {PL_CASE_IN_PLACE, 0.95, 0.99, 1e-6},
    {PL_CASE_PER_MATRIX, 0.9, 0.999, 1e-8},
    {PL_CASE_PLAIN, 0.9, 0, 0},
    {PL_CASE_PLAIN | PL_CASE_PER_MATRIX, 0.75, 0, 0},
    {PL_CASE_HEAVY_BALL, 0.5, 0.75, 0.125},
    {PL_CASE_HEAVY_BALL | PL_CASE_PLAIN, 0.9, 0, 0},
    {PL_CASE_HEAVY_BALL | PL_CASE_PLAIN | PL_CASE_IN_PLACE, 0.5, 0, 0},
    {PL_CASE_NESTEROV | PL_CASE_PER_MATRIX, 0.95, 0.999, 1e-8},
    {PL_CASE_NESTEROV | PL_CASE_IN_PLACE, 0.5, 0.75, 0.125},
    {ALL | PL_CASE_NESTEROV | PL_CASE_PLAIN, 0.95, 0, 0},
    {PL_CASE_AVERAGE | PL_CASE_PLAIN | PL_CASE_PER_MATRIX, 0.95, 0, 0},
    {PL_CASE_AVERAGE, 0.5, 0.75, 0.125},
    {PL_CASE_AVERAGE | PL_CASE_NESTEROV | PL_CASE_PLAIN, 0.95, 0, 0},
    {PL_CASE_AVERAGE | PL_CASE_NESTEROV | PL_CASE_IN_PLACE, 0.5, 0.75, 0.125}};
static const pl_case_variant decay_variants[] = {
    {ALL, 1, 0, 0}, {0, 1.7320508075688772, 0, 0}, {PL_CASE_PER_MATRIX, 2, 0, 0}};
static const pl_case_variant nonfinite_variants[] = {{ALL, 0, 0, 0}, {PL_CASE_PER_MATRIX, 0, 0, 0}};
static const pl_case_variant advance_variants[] = {{0, 0.9, 0.999, 0}, {PL_CASE_ADDEND, 0.95, 0.75, 0}};
static const pl_case_variant adamw_variants[] = {
    {ALL, 0.9, 0.999, 1e-8}, {0, 0.5, 0.75, 0.125}, {PL_CASE_PER_MATRIX, 0.9, 0.999, 1e-8}};

static const pl_case_family families[] = {
    PL_CASE_FAMILY(copy, copy_formats, plain_sizes, copy_variants),
    PL_CASE_FAMILY(axpby, axpby_formats, plain_sizes, axpby_variants),
    PL_CASE_FAMILY(gemm, gemm_formats, gemm_sizes, gemm_variants),
    PL_CASE_FAMILY(frob, frob_formats, plain_sizes, frob_variants),
    PL_CASE_FAMILY(frob_join, join_formats, join_sizes, join_variants),
    PL_CASE_FAMILY(normalise, normalise_formats, plain_sizes, normalise_variants),
    PL_CASE_FAMILY(polar_exact, polar_formats, polar_sizes, polar_variants),
    PL_CASE_FAMILY(direction, direction_formats, plain_sizes, direction_variants),
    PL_CASE_FAMILY(decay_step, decay_formats, plain_sizes, decay_variants),
    PL_CASE_FAMILY(adamw_step, adamw_formats, plain_sizes, adamw_variants),
    PL_CASE_FAMILY(nonfinite, nonfinite_formats, plain_sizes, nonfinite_variants),
    PL_CASE_FAMILY(advance, advance_formats, advance_sizes, advance_variants),
};

int pl_op_case_in_place_on(const pl_op_case *c, int i)
{
    if (pl_vit_case(c->op)) return pl_vit_case_in_place_on(c, i);
    if (i > 0) return -1;
    if (pl_nn_case(c->op)) return pl_nn_case_in_place_on(c);
    if (c->flags & PL_CASE_IN_PLACE_Z) return 2;
    if (!(c->flags & PL_CASE_IN_PLACE)) return -1;
    return c->op == PL_OP_gemm || c->op == PL_OP_direction ? 3 : 1;
}

int64_t pl_op_case_momentum(const pl_op_case *c)
{
    if (c->flags & PL_CASE_AVERAGE)
        return c->flags & PL_CASE_NESTEROV ? POLAR_MOMENTUM_AVERAGE_NESTEROV : POLAR_MOMENTUM_AVERAGE;
    return c->flags & PL_CASE_HEAVY_BALL ? POLAR_MOMENTUM_HEAVY_BALL
           : c->flags & PL_CASE_NESTEROV ? POLAR_MOMENTUM_NESTEROV
                                         : POLAR_MOMENTUM_EMA;
}

/* True where the member exists. */
static int member(pl_op_case *out, const pl_case_family *m, const pl_case_formats *f, const pl_case_sizes *s,
                  const pl_case_variant *v)
{
    *out = (pl_op_case){.op = m->op,
                        .batch = s->batch,
                        .rows = s->rows,
                        .cols = s->cols,
                        .K = s->K,
                        .flags = v->flags,
                        .alpha = v->alpha,
                        .beta = v->beta,
                        .eps = v->eps};
    memcpy(out->dtype, f->dtype, sizeof out->dtype);
    for (int i = 0; i < pl_op_describe(m->op)->out; i++) {
        int on = pl_op_case_in_place_on(out, i);
        if (on >= 0 && f->dtype[on] != f->dtype[i]) return 0;
    }
    if ((s->flags & PL_CASE_LARGE) && !(v->flags & PL_CASE_LARGE)) return 0;
    if ((v->flags & PL_CASE_SYM) && s->rows != s->cols) return 0;
    if ((v->flags & (PL_CASE_SHARED | PL_CASE_PER_MATRIX)) && s->batch < 2) return 0;
    out->flags = (v->flags & ~(uint32_t)PL_CASE_LARGE) | s->flags;
    return 1;
}

static const pl_case_family *family_at(int m)
{
    int own = PL_CASE_OF(families);
    if (m < own) return &families[m];
    m -= own;
    if (m < pl_nn_family_count) return &pl_nn_families[m];
    m -= pl_nn_family_count;
    return m < pl_vit_family_count ? &pl_vit_families[m] : NULL;
}

/* Case number `wanted` or of the name `named`; its number, -1 where there is none; with out NULL the number
 * of cases. */
static int64_t walk(pl_op_case *out, int64_t wanted, const char *named)
{
    int64_t n = 0;
    pl_op_case c;
    char name[PL_OP_CASE_NAME];
    const pl_case_family *m;
    for (int k = 0; (m = family_at(k)); k++) {
        const char *op = pl_op_describe(m->op)->name;
        if (named && strncmp(named, op, strlen(op))) continue;
        for (int f = 0; f < m->n_formats; f++)
            for (int s = 0; s < m->n_sizes; s++)
                for (int v = 0; v < m->n_variants; v++) {
                    if (!member(&c, m, &m->f[f], &m->s[s], &m->v[v])) continue;
                    if (out &&
                        (named ? !strcmp(named, pl_op_case_name(name, sizeof name, &c)) : n == wanted)) {
                        *out = c;
                        return n;
                    }
                    n++;
                }
    }
    return out ? -1 : n;
}

int64_t pl_op_case_count(void)
{
    return walk(NULL, 0, NULL);
}

int pl_op_case_at(pl_op_case *out, int64_t i)
{
    return i >= 0 && walk(out, i, NULL) == i;
}

int pl_op_case_named(pl_op_case *out, const char *name)
{
    return walk(out, 0, name) >= 0;
}

int pl_op_case_data_operand(const pl_op_case *c, int i)
{
    if (pl_nn_case(c->op)) return pl_nn_case_data_operand(c, i);
    if (pl_vit_case(c->op)) return pl_vit_case_data_operand(c, i);
    switch (c->op) {
    case PL_OP_gemm: return i < 3 || (i == 3 && c->flags & PL_CASE_ADDEND);
    case PL_OP_axpby: return i < 2 || (i == 2 && c->flags & PL_CASE_ADDEND);
    case PL_OP_nonfinite:
    case PL_OP_frob: return i == 1;
    case PL_OP_advance:
    case PL_OP_frob_join: return 0;
    case PL_OP_direction: return i < 4 && !(i == 2 && c->flags & PL_CASE_PLAIN);
    case PL_OP_adamw_step: return i < 4;
    default: return i < 2;
    }
}

polar_dtype pl_op_case_compute(const pl_op_case *c)
{
    if (c->op == PL_OP_frob || c->op == PL_OP_frob_join || c->op == PL_OP_advance ||
        c->op == PL_OP_polar_exact || c->op == PL_OP_mse || c->op == PL_OP_cross_entropy)
        return POLAR_DTYPE_F64;
    for (int i = 0; i < PL_MAX_OPERANDS; i++)
        if (pl_op_case_data_operand(c, i) && c->dtype[i] == POLAR_DTYPE_F64) return POLAR_DTYPE_F64;
    return POLAR_DTYPE_F32;
}

/* Formats of the data operands from `first` to `end`, neighbours of one format once. */
static size_t put_formats(char *out, size_t bytes, size_t used, const pl_op_case *c, int first, int end)
{
    const char *before = "";
    for (int i = first; i < end; i++) {
        const char *name = polar_dtype_name(c->dtype[i]);
        if (!pl_op_case_data_operand(c, i) || !strcmp(name, before)) continue;
        if (used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", *before ? "," : "", name);
        before = name;
    }
    return used;
}

char *pl_op_case_group(char *out, size_t bytes, const pl_op_case *c)
{
    const pl_op_info *info = pl_op_describe(c->op);
    int results = info->out + info->inout, operands = pl_op_operand_count(info), same = 1, first = -1;
    for (int i = 0; i < operands; i++) {
        if (!pl_op_case_data_operand(c, i)) continue;
        if (first < 0) first = i;
        same = same && c->dtype[i] == c->dtype[first];
    }
    size_t used = (size_t)snprintf(out, bytes, "%s ", info->name);
    if (first < 0) snprintf(out + used, used < bytes ? bytes - used : 0, "f64");
    else if (same) put_formats(out, bytes, used, c, first, first + 1);
    else {
        used = put_formats(out, bytes, used, c, results, operands);
        if (used < bytes) used += (size_t)snprintf(out + used, bytes - used, "->");
        put_formats(out, bytes, used, c, 0, results);
    }
    return out;
}

char *pl_op_case_name(char *out, size_t bytes, const pl_op_case *c)
{
    static const struct {
        uint32_t flag;
        const char *word;
    } words[] = {{PL_CASE_TA, " ta"},
                 {PL_CASE_TB, " tb"},
                 {PL_CASE_SYM, " sym"},
                 {PL_CASE_TRANS, " trans"},
                 {PL_CASE_ROUND_TERMS, " round_terms"},
                 {PL_CASE_REFERENCE, " reference"},
                 {PL_CASE_ROUNDED, " rounded"},
                 {PL_CASE_IN_PLACE, " in_place"},
                 {PL_CASE_IN_PLACE_Z, " in_place_z"},
                 {PL_CASE_STRIDED, " strided"},
                 {PL_CASE_SHARED, " shared"},
                 {PL_CASE_HEAVY_BALL, " heavy_ball"},
                 {PL_CASE_NESTEROV, " nesterov"},
                 {PL_CASE_PLAIN, " plain"},
                 {PL_CASE_PER_MATRIX, " per_matrix"},
                 {PL_CASE_SILU, " silu"},
                 {PL_CASE_SIGMOID, " sigmoid"},
                 {PL_CASE_GELU, " gelu"},
                 {PL_CASE_IN_PLACE_X, " in_place_x"},
                 {PL_CASE_LOW, " dL"},
                 {PL_CASE_AVERAGE, " average"}};
    const char *addend = c->op == PL_OP_advance                                    ? "found scale"
                         : c->op == PL_OP_gemm                                     ? "D"
                         : c->op == PL_OP_mse                                      ? "dP"
                         : c->op == PL_OP_cross_entropy                            ? "dZ"
                         : c->op == PL_OP_bias_act || c->op == PL_OP_bias_act_back ? "b"
                                                                                   : "Z";
    pl_op_case_group(out, bytes, c);
    size_t used = strlen(out);
    used += (size_t)snprintf(out + used, bytes - used, " %lldx%lldx%lld", (long long)c->batch,
                             (long long)c->rows, (long long)c->cols);
    if ((c->op == PL_OP_gemm || c->K) && used < bytes)
        used += (size_t)snprintf(out + used, bytes - used, "x%lld", (long long)c->K);
    for (size_t i = 0; i < sizeof words / sizeof *words && used < bytes; i++)
        if (c->flags & words[i].flag) used += (size_t)snprintf(out + used, bytes - used, "%s", words[i].word);
    if ((c->flags & PL_CASE_ADDEND) && used < bytes)
        used += (size_t)snprintf(out + used, bytes - used, " %s", addend);
    if (c->alpha != 0 && used < bytes) used += (size_t)snprintf(out + used, bytes - used, " %g", c->alpha);
    if (c->beta != 0 && used < bytes) used += (size_t)snprintf(out + used, bytes - used, ",%g", c->beta);
    int tells_eps = pl_nn_case(c->op) || pl_vit_case(c->op) ||
                    (c->op == PL_OP_normalise && !(c->flags & PL_CASE_REFERENCE));
    if (c->eps != 0 && tells_eps && used < bytes) snprintf(out + used, bytes - used, " eps %g", c->eps);
    return out;
}
