/* op_case.c -- the list of cases: walked through, named, found by name. The families: op_case_<noun>.c. */
#include <stdio.h>
#include <string.h>

#include "math/kron_elem.h"
#include "op_case_impl.h"

const pl_case_formats pl_formats_two[7] = {{{D, D}}, {{F, F}}, {{H, H}}, {{F, H}},
                                           {{H, F}}, {{D, F}}, {{F, D}}};
const pl_case_formats pl_formats_three[6] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}},
                                             {{F, F, H}}, {{F, H, F}}, {{H, D, F}}};

const pl_case_sizes pl_sizes_plain[9] = {{1, 1, 1, 0, 0},  {1, 1, 37, 0, 0},   {1, 37, 1, 0, 0},
                                         {3, 7, 13, 0, 0}, {1, 8, 44, 0, 0},   {3, 33, 17, 0, 0},
                                         {4, 0, 5, 0, 0},  {1, 64, 192, 0, 1}, {1, 192, 64, 0, 1}};
const pl_case_sizes pl_sizes_rows[7] = {{1, 1, 1, 0, 0},  {1, 3, 2, 0, 0},  {3, 7, 13, 0, 0},
                                        {2, 3, 32, 0, 0}, {1, 5, 33, 0, 0}, {1, 2, 100, 0, 0},
                                        {1, 3, 192, 0, 1}};

static const pl_case_family *const families[PL_OP_COUNT] = {
#define PL_OP(name, out, inout, in, ...) [PL_OP_##name] = &pl_cases_##name,
#define PL_FUSED(name, out, inout, in, ...)
#include "device/ops.def"
};

const pl_case_family *pl_op_case_family(pl_op_id op)
{
    return families[op];
}

pl_mat pl_case_mat(const pl_op_case *c, int i, int64_t rows, int64_t cols)
{
    return pl_mat_dense(NULL, c->dtype[i], c->batch, rows, cols);
}

pl_mat pl_case_values(const pl_op_case *c, int i, int64_t cols)
{
    return pl_mat_dense(NULL, c->dtype[i], c->how.per_matrix ? c->batch : 1, 1, cols);
}

/* The operand's letter is one of the words. */
static int among(const char *words, pl_operand_words letter)
{
    size_t n = strlen(letter.text);
    for (const char *p = words; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && !strncmp(p, letter.text, n)) return 1;
    return 0;
}

static uint32_t present(pl_op_id op, const char *with)
{
    uint32_t there = 0;
    for (int i = 0; i < pl_op_operand_count(pl_op_describe(op)); i++)
        if (!pl_op_or_none(op, i) || among(with, pl_op_operand_letter(op, i))) there |= 1u << i;
    return there;
}

/* The operand that result i of an op stands on; -1 where none. */
static int on_operand(const pl_case_variant *v, int results, int i)
{
    int on = i == 0 ? v->onto : i == results - 1 ? v->last_onto : 0;
    return on ? on : -1;
}

int pl_op_case_in_place_on(const pl_op_case *c, int i)
{
    return on_operand(&c->how, pl_op_describe(c->op)->out, i);
}

/* True where the family, an op with `results` written operands, has that member. */
static int has_member(int results, const pl_case_formats *f, const pl_case_sizes *s, const pl_case_variant *v)
{
    const int f32 = f->dtype[0] == POLAR_DTYPE_F32 && f->dtype[1] == POLAR_DTYPE_F32;
    if ((s->large && !v->large) || (v->sym && s->rows != s->cols) || (v->tf32 && !f32)) return 0;
    if ((v->shared || v->per_matrix) && s->batch < 2) return 0;
    for (int i = 0; i < results; i++) {
        int on = on_operand(v, results, i);
        if (on >= 0 && f->dtype[on] != f->dtype[i]) return 0;
    }
    return 1;
}

static pl_op_case member(pl_op_id op, const pl_case_formats *f, const pl_case_sizes *s,
                         const pl_case_variant *v)
{
    pl_op_case c = {.op = op,
                    .batch = s->batch,
                    .rows = s->rows,
                    .cols = s->cols,
                    .K = s->K,
                    .large = s->large,
                    .how = *v,
                    .present = present(op, v->with)};
    for (int i = 0; i < PL_MAX_OPERANDS; i++) c.dtype[i] = (polar_dtype)f->dtype[i];
    return c;
}

/* Case number `wanted` or of the name `named`; its number, -1 where there is none; with out NULL the number
 * of cases. */
static int64_t walk(pl_op_case *out, int64_t wanted, const char *named)
{
    int64_t n = 0;
    char name[PL_OP_CASE_NAME];
    for (int op = 0; op < PL_OP_COUNT; op++) {
        const pl_case_family *m = families[op];
        const pl_op_info *info = pl_op_describe((pl_op_id)op);
        if (!m || (named && strncmp(named, info->name, strlen(info->name)))) continue;
        for (int f = 0; f < m->n_formats; f++)
            for (int s = 0; s < m->n_sizes; s++)
                for (int v = 0; v < m->n_variants; v++) {
                    if (!has_member(info->out, &m->formats[f], &m->sizes[s], &m->variants[v])) continue;
                    if (out && (named || n == wanted)) {
                        *out = member((pl_op_id)op, &m->formats[f], &m->sizes[s], &m->variants[v]);
                        if (!named || !strcmp(named, pl_op_case_name(name, sizeof name, out))) return n;
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
    return (c->present & ~families[c->op]->values) >> i & 1;
}

polar_dtype pl_op_case_compute(const pl_op_case *c)
{
    if (families[c->op]->in_double) return POLAR_DTYPE_F64;
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

static size_t add_word(char *out, size_t bytes, size_t used, const char *word)
{
    return used < bytes ? used + (size_t)snprintf(out + used, bytes - used, " %s", word) : used;
}

char *pl_op_case_name(char *out, size_t bytes, const pl_op_case *c)
{
    static const char *const acts[PL_ACT_COUNT] = {
        [PL_ACT_SILU] = "silu", [PL_ACT_SIGMOID] = "sigmoid", [PL_ACT_GELU] = "gelu"};
    static const char *const momenta[PL_MOMENTUM_COUNT] = {[POLAR_MOMENTUM_HEAVY_BALL] = "heavy_ball",
                                                           [POLAR_MOMENTUM_NESTEROV] = "nesterov",
                                                           [POLAR_MOMENTUM_EMA] = "ema",
                                                           [POLAR_MOMENTUM_AVERAGE] = "average",
                                                           [POLAR_MOMENTUM_AVERAGE_NESTEROV] =
                                                               "average_nesterov"};
    static const char *const lines[PL_LINE_COUNT] = {"equilibrate", "moment", "clamped"};
    static const char *const ways[] = {"", "cautious", "", "hyperball", "update_floor", "radial_brake"};
    static const char *const krons[PL_KRON_COUNT] = {"shifted", "trace", "nesterov", "clamped"};
    const pl_case_variant *v = &c->how;
    const struct {
        int64_t set;
        const char *word;
    } words[] = {{v->ta, "ta"},
                 {v->tb, "tb"},
                 {v->sym, "sym"},
                 {v->tf32, "tf32"},
                 {v->trans, "trans"},
                 {v->round_terms, "round_terms"},
                 {v->reference, "reference"},
                 {v->rounded, "rounded"},
                 {c->op == PL_OP_direction, momenta[v->momentum]},
                 {v->laprop, "laprop"},
                 {v->act, acts[v->act]},
                 {v->kind, c->op == PL_OP_kron_eigen || c->op == PL_OP_kron_sweep ? krons[v->kind]
                           : c->op == PL_OP_norm_moment                           ? "sum"
                                                                                  : lines[v->kind]},
                 {v->every > 1, "every"},
                 {v->after, "after"},
                 {v->root, "root"},
                 {v->back, "back"},
                 {v->apply, ways[v->apply]},
                 {v->strided, "strided"},
                 {v->shared, "shared"},
                 {v->per_matrix, "per_matrix"},
                 {v->with != NULL, v->with}};
    pl_op_case_group(out, bytes, c);
    size_t used = strlen(out);
    used += (size_t)snprintf(out + used, bytes - used, " %lldx%lldx%lld", (long long)c->batch,
                             (long long)c->rows, (long long)c->cols);
    if ((c->op == PL_OP_gemm || c->K) && used < bytes)
        used += (size_t)snprintf(out + used, bytes - used, "x%lld", (long long)c->K);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].set) used = add_word(out, bytes, used, words[i].word);
    for (int i = 0; i < pl_op_describe(c->op)->out; i++) {
        int on = pl_op_case_in_place_on(c, i);
        if (on < 0) continue;
        used = add_word(out, bytes, used, pl_op_operand_letter(c->op, i).text);
        used = add_word(out, bytes, used, "on");
        used = add_word(out, bytes, used, pl_op_operand_letter(c->op, on).text);
    }
    if (v->alpha != 0 && used < bytes) used += (size_t)snprintf(out + used, bytes - used, " %g", v->alpha);
    if (v->beta != 0 && used < bytes) used += (size_t)snprintf(out + used, bytes - used, ",%g", v->beta);
    if (v->eps != 0 && used < bytes) snprintf(out + used, bytes - used, " eps %g", v->eps);
    return out;
}
