/* spec_published.c -- the parts of a spec that no run depends on: published values, and the specs it is
 * compared with in a report. Every cell, arm, metric and seed named there must be one of the spec's. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "base/string_build.h"
#include "lab/spec/plan.h"
#include "lab/spec/spec_impl.h"

#define BAD(...) PL_SPEC_BAD(s, __VA_ARGS__)

/* ---- words and numbers -------------------------------------------------------------------------- */

static polar_status read_number(double *out, const pl_spec *s, const pl_yaml_node *n, double least,
                                pl_key_type type)
{
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    const pl_key k = {.name = n->key, .type = type, .min = least, .max = type == PL_KEY_INT ? 1e15 : DBL_MAX};
    if (n->kind != PL_YAML_SCALAR || n->quoted) return BAD(n->line, "%s wants a number", n->key);
    if (!pl_key_read(value, why, &k, n->text)) return BAD(n->line, "%s", why);
    *out = strtod(value, NULL);
    return POLAR_OK;
}

static polar_status read_count(int64_t *out, const pl_spec *s, const pl_yaml_node *n, int64_t least)
{
    double x;
    PL_TRY(read_number(&x, s, n, (double)least, PL_KEY_INT));
    *out = (int64_t)x;
    return POLAR_OK;
}

/* "the grid's keys model.width; the arms adamw, muon": what a row may name. */
static polar_status unknown_word(const pl_spec *s, const pl_yaml_node *n, const char *word,
                                 const char *const *fields)
{
    pl_string known = {0};
    int count = s->arm_count + s->grid_count + 1;
    for (int i = 0; fields[i]; i++) count++;
    const char **words = pl_calloc((size_t)count, sizeof *words);
    PL_NEED(words, POLAR_E_NOMEM, "a list of %d words", count);
    int at = 0;
    for (int i = 0; i < s->arm_count; i++) words[at++] = s->arms[i].name;
    for (int i = 0; i < s->grid_count; i++) words[at++] = s->grid[i].key->name;
    for (int i = 0; fields[i]; i++) words[at++] = fields[i];
    for (int i = 0; i < at; i++) pl_string_add(&known, "%s%s", i ? ", " : "", words[i]);
    const char *near = pl_nearest(word, words);
    polar_status st = near ? BAD(n->line, "no arm, key of the grid or field '%s' here (did you mean %s?)",
                                 pl_text_shown(word).text, near)
                           : BAD(n->line, "no arm, key of the grid or field '%s' here (there is: %s)",
                                 pl_text_shown(word).text, known.text ? known.text : "");
    pl_string_drop(&known);
    pl_free(words);
    return st;
}

static int is_arm(const pl_spec *s, const char *name)
{
    for (int i = 0; i < s->arm_count; i++)
        if (!strcmp(s->arms[i].name, name)) return 1;
    return 0;
}

static polar_status read_arm_name(char **out, const pl_spec *s, const pl_yaml_node *n)
{
    static const char *const none[] = {NULL};
    if (n->kind != PL_YAML_SCALAR) return BAD(n->line, "%s wants an arm's name", n->key);
    if (!is_arm(s, n->text)) return unknown_word(s, n, n->text, none);
    return pl_spec_copy(out, n->text);
}

static const pl_yaml_node *field(const pl_yaml_node *map, const char *name)
{
    const pl_yaml_node *n = map->child;
    while (n && strcmp(n->key, name)) n = n->next;
    return n;
}

/* ---- where a row stands ------------------------------------------------------------------------- */

static const pl_spec_axis *axis_of(const pl_spec *s, const char *key)
{
    for (int i = 0; i < s->grid_count; i++)
        if (!strcmp(s->grid[i].key->name, key)) return &s->grid[i];
    return NULL;
}

/* The place of the row's value in the axis. */
static polar_status read_axis_place(int *out, const pl_spec *s, const pl_spec_axis *x,
                                    const pl_yaml_node *row)
{
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    const pl_yaml_node *n = field(row, x->key->name);
    if (!n)
        return BAD(row->line, "which %s? A published row names its cell by the grid's keys", x->key->name);
    if (n->kind != PL_YAML_SCALAR) return BAD(n->line, "%s wants one value here", x->key->name);
    if (!pl_key_read(value, why, x->key, n->text)) return BAD(n->line, "%s", why);
    for (*out = 0; *out < x->count; ++*out)
        if (!strcmp(x->values[*out], value)) return POLAR_OK;
    return BAD(n->line, "the grid has no cell with %s=%s", x->key->name, value);
}

static polar_status read_cell(char **out, const pl_spec *s, const pl_yaml_node *row)
{
    int cell = 0;
    for (int i = 0; i < s->grid_count; i++) {
        int place = 0;
        PL_TRY(read_axis_place(&place, s, &s->grid[i], row));
        cell = cell * s->grid[i].count + place;
    }
    return pl_plan_cell_name(out, s, cell);
}

static polar_status read_seed(int64_t *out, const pl_spec *s, const pl_yaml_node *n)
{
    PL_TRY(read_count(out, s, n, 0));
    for (int64_t i = 0; i < s->seed_count; i++)
        if (s->seeds[i] == *out) return POLAR_OK;
    return BAD(n->line, "seed %lld is not one of the spec's", (long long)*out);
}

/* The name that the runs' results have; of a row without a metric the spec's. */
static polar_status read_metric(char **out, const pl_spec *s, const pl_yaml_node *row)
{
    const pl_yaml_node *n = field(row, "metric");
    if (n && n->kind != PL_YAML_SCALAR) return BAD(n->line, "metric wants the name of a result");
    const char *name = n ? n->text : s->metric;
    if (!strcmp(name, PL_METRIC_EPOCH_SECONDS)) return pl_spec_copy(out, name);
    return pl_spec_metric_copy(out, s, name, n ? n->line : row->line);
}

/* ---- values and differences --------------------------------------------------------------------- */

static const char *const row_fields[] = {"metric", "seed", "epoch", NULL};
static const char *const pair_fields[] = {"metric", "a", "b", "mean", "t", "n", NULL};

static int is_field(const char *const *fields, const char *name)
{
    for (int i = 0; fields[i]; i++)
        if (!strcmp(fields[i], name)) return 1;
    return 0;
}

static int same_row(const pl_published_row *a, const pl_published_row *b)
{
    return a->seed == b->seed && a->epoch == b->epoch && !strcmp(a->arm, b->arm) &&
           !strcmp(a->cell, b->cell) && !strcmp(a->metric, b->metric);
}

static polar_status add_row(pl_published *p, const pl_spec *s, const pl_published_row *where,
                            const pl_yaml_node *n)
{
    pl_published_row *r = &p->rows[p->row_count];
    *r = (pl_published_row){.seed = where->seed, .epoch = where->epoch};
    p->row_count++;
    PL_TRY(pl_spec_copy(&r->cell, where->cell));
    PL_TRY(pl_spec_copy(&r->metric, where->metric));
    PL_TRY(pl_spec_copy(&r->arm, n->key));
    PL_TRY(read_number(&r->value, s, n, -DBL_MAX, PL_KEY_REAL));
    for (int i = 0; i < p->row_count - 1; i++)
        if (same_row(&p->rows[i], r))
            return BAD(n->line, "a published value of arm '%s' in cell '%s' is given twice", r->arm, r->cell);
    return POLAR_OK;
}

static polar_status read_row(pl_published *p, const pl_spec *s, const pl_yaml_node *row)
{
    pl_published_row where = {.seed = -1};
    int arms = 0;
    if (row->kind != PL_YAML_MAP) return BAD(row->line, "a published row is a mapping: {muon: 0.0067}");
    const pl_yaml_node *seed = field(row, "seed"), *epoch = field(row, "epoch");
    polar_status st = read_cell(&where.cell, s, row);
    if (st == POLAR_OK && seed) st = read_seed(&where.seed, s, seed);
    if (st == POLAR_OK && epoch) st = read_count(&where.epoch, s, epoch, 1);
    if (st == POLAR_OK && epoch && (seed || field(row, "metric")))
        st =
            BAD(epoch->line, "a value after an epoch is of the curve, a mean over seeds: no metric, no seed");
    if (st == POLAR_OK) st = epoch ? pl_spec_copy(&where.metric, "") : read_metric(&where.metric, s, row);
    for (const pl_yaml_node *n = row->child; n && st == POLAR_OK; n = n->next) {
        if (is_field(row_fields, n->key) || axis_of(s, n->key)) continue;
        st = is_arm(s, n->key) ? add_row(p, s, &where, n) : unknown_word(s, n, n->key, row_fields);
        arms++;
    }
    if (st == POLAR_OK && !arms) st = BAD(row->line, "a published row without an arm");
    pl_free(where.cell);
    pl_free(where.metric);
    return st;
}

static polar_status read_pair(pl_published *p, const pl_spec *s, const pl_yaml_node *row)
{
    if (row->kind != PL_YAML_MAP)
        return BAD(row->line, "a published difference is a mapping: {a: muon, b: adamw, mean: -0.003}");
    pl_published_pair *r = &p->pairs[p->pair_count];
    *r = (pl_published_pair){.d = {NAN, NAN, 0}};
    p->pair_count++;
    const pl_yaml_node *a = field(row, "a"), *b = field(row, "b"), *mean = field(row, "mean");
    if (!a || !b || !mean) return BAD(row->line, "a published difference wants a, b and mean");
    for (const pl_yaml_node *n = row->child; n; n = n->next)
        if (!is_field(pair_fields, n->key) && !axis_of(s, n->key))
            return unknown_word(s, n, n->key, pair_fields);
    PL_TRY(read_cell(&r->cell, s, row));
    PL_TRY(read_metric(&r->metric, s, row));
    PL_TRY(read_arm_name(&r->a, s, a));
    PL_TRY(read_arm_name(&r->b, s, b));
    if (!strcmp(r->a, r->b)) return BAD(b->line, "a published difference of arm '%s' with itself", r->a);
    PL_TRY(read_number(&r->d.mean, s, mean, -DBL_MAX, PL_KEY_REAL));
    if (field(row, "t")) PL_TRY(read_number(&r->d.t, s, field(row, "t"), -DBL_MAX, PL_KEY_REAL));
    if (field(row, "n")) PL_TRY(read_count(&r->d.n, s, field(row, "n"), 1));
    for (int i = 0; i < p->pair_count - 1; i++)
        if (!strcmp(p->pairs[i].cell, r->cell) && !strcmp(p->pairs[i].metric, r->metric) &&
            ((!strcmp(p->pairs[i].a, r->a) && !strcmp(p->pairs[i].b, r->b)) ||
             (!strcmp(p->pairs[i].a, r->b) && !strcmp(p->pairs[i].b, r->a))))
            return BAD(row->line, "the published difference of '%s' and '%s' in cell '%s' is given twice",
                       r->a, r->b, r->cell);
    return POLAR_OK;
}

static polar_status read_rows(pl_published *p, const pl_spec *s, const pl_yaml_node *list)
{
    int64_t numbers = 0;
    if (list->kind != PL_YAML_LIST) return BAD(list->line, "%s wants a list of rows", list->key);
    for (const pl_yaml_node *n = list->child; n; n = n->next) numbers += n->count;
    p->rows = pl_calloc((size_t)numbers + 1, sizeof *p->rows);
    PL_NEED(p->rows, POLAR_E_NOMEM, "%lld published values", (long long)numbers);
    for (const pl_yaml_node *n = list->child; n; n = n->next) PL_TRY(read_row(p, s, n));
    return POLAR_OK;
}

static polar_status read_pairs(pl_published *p, const pl_spec *s, const pl_yaml_node *list)
{
    if (list->kind != PL_YAML_LIST) return BAD(list->line, "%s wants a list of rows", list->key);
    p->pairs = pl_calloc((size_t)list->count + 1, sizeof *p->pairs);
    PL_NEED(p->pairs, POLAR_E_NOMEM, "%lld published differences", (long long)list->count);
    for (const pl_yaml_node *n = list->child; n; n = n->next) PL_TRY(read_pair(p, s, n));
    return POLAR_OK;
}

polar_status pl_spec_read_published(pl_spec *s, const pl_yaml_node *map)
{
    if (map->kind != PL_YAML_MAP)
        return BAD(map->line, "published wants a mapping of by, note, values, differences, got %s",
                   pl_spec_kind(map));
    pl_published *p = s->published = pl_calloc(1, sizeof *p);
    PL_NEED(p, POLAR_E_NOMEM, "published values");
    for (const pl_yaml_node *n = map->child; n; n = n->next) {
        if (!strcmp(n->key, "by")) PL_TRY(pl_spec_read_line(&p->by, s, n, 0));
        else if (!strcmp(n->key, "note")) PL_TRY(pl_spec_read_line(&p->note, s, n, 1));
        else if (!strcmp(n->key, "values")) PL_TRY(read_rows(p, s, n));
        else if (!strcmp(n->key, "differences")) PL_TRY(read_pairs(p, s, n));
        else
            return BAD(n->line, "unknown '%s' (published has by, note, values, differences)",
                       pl_text_shown(n->key).text);
    }
    return POLAR_OK;
}
