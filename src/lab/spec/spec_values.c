/* spec_values.c -- the parts of a spec that set keys of the runs: set, grid, arms. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "lab/spec/spec_impl.h"

#define BAD(...) PL_SPEC_BAD(s, __VA_ARGS__)

/* ---- shared with spec.c ------------------------------------------------------------------------- */

polar_status pl_spec_bad(const pl_spec *s, const char *file, int source_line, int line, const char *fmt, ...)
{
    char what[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return pl_fail(POLAR_E_FORMAT, file, source_line, "%s:%d: %s", s->path, line, what);
}

polar_status pl_spec_copy(char **out, const char *text)
{
    *out = pl_strdup(text);
    PL_NEED(*out, POLAR_E_NOMEM, "a text of a spec");
    return POLAR_OK;
}

int pl_spec_is_word(const char *text, const char *more, size_t most)
{
    size_t n = strlen(text);
    char set[80];
    snprintf(set, sizeof set, "abcdefghijklmnopqrstuvwxyz0123456789_%s", more);
    return n && n <= most && strspn(text, set) == n;
}

const char *pl_spec_kind(const pl_yaml_node *n)
{
    return n->kind == PL_YAML_LIST  ? "a list"
           : n->kind == PL_YAML_MAP ? "a mapping"
           : *n->text || n->quoted  ? "a value"
                                    : "nothing";
}

/* ---- keys and values ---------------------------------------------------------------------------- */

static polar_status read_value(char **out, const pl_spec *s, const pl_key *k, const pl_yaml_node *n)
{
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    if (n->kind != PL_YAML_SCALAR)
        return BAD(n->line, "%s wants one value here, got %s (several values belong in grid)", k->name,
                   pl_spec_kind(n));
    if (!*n->text && !n->quoted) return BAD(n->line, "%s has no value", k->name);
    int number = k->type == PL_KEY_INT || k->type == PL_KEY_REAL || k->type == PL_KEY_BOOL;
    if (number && n->quoted)
        return BAD(n->line, "%s is of type %s, got the text \"%s\": leave the quotes out", k->name,
                   pl_key_type_name(k->type), pl_text_shown(n->text).text);
    if (!pl_key_read(value, why, k, n->text)) return BAD(n->line, "%s", why);
    return pl_spec_copy(out, value);
}

static polar_status read_key(const pl_key **out, const pl_spec *s, const pl_yaml_node *n)
{
    char why[PL_WHY_CHARS];
    *out = pl_schema_find_key(why, &s->schema, n->key);
    return *out ? POLAR_OK : BAD(n->line, "%s", why);
}

/* A mapping key -> value behind what is in `set` already; the array has room. */
static polar_status read_assigns(pl_assign *set, int *count, const pl_spec *s, const pl_yaml_node *map)
{
    for (const pl_yaml_node *n = map->child; n; n = n->next) {
        pl_assign *a = &set[*count];
        PL_TRY(read_key(&a->key, s, n));
        PL_TRY(read_value(&a->value, s, a->key, n));
        a->line = n->line;
        ++*count;
    }
    return POLAR_OK;
}

polar_status pl_spec_read_set(pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_MAP)
        return BAD(n->line, "set wants a mapping: set: {key: value}, got %s", pl_spec_kind(n));
    s->set = pl_calloc((size_t)n->count + 1, sizeof *s->set);
    PL_NEED(s->set, POLAR_E_NOMEM, "a list of %lld settings", (long long)n->count);
    return read_assigns(s->set, &s->set_count, s, n);
}

/* ---- the grid ----------------------------------------------------------------------------------- */

static polar_status read_axis_value(pl_spec_axis *x, const pl_spec *s, const pl_yaml_node *n)
{
    char **value = &x->values[x->count];
    PL_TRY(read_value(value, s, x->key, n));
    x->count++;
    for (int i = 0; i < x->count - 1; i++)
        if (!strcmp(x->values[i], *value))
            return BAD(n->line, "%s has the value %s twice in the grid", x->key->name, *value);
    return POLAR_OK;
}

static polar_status read_axis(pl_spec_axis *x, const pl_spec *s, const pl_yaml_node *n)
{
    PL_TRY(read_key(&x->key, s, n));
    x->line = n->line;
    if (n->kind == PL_YAML_MAP || (n->kind == PL_YAML_LIST && !n->count))
        return BAD(n->line, "%s wants a list of values in the grid: [16, 32]", x->key->name);
    x->values = pl_calloc((size_t)n->count + 1, sizeof *x->values);
    PL_NEED(x->values, POLAR_E_NOMEM, "a list of %lld values", (long long)n->count);
    if (n->kind == PL_YAML_SCALAR) return read_axis_value(x, s, n);
    for (const pl_yaml_node *v = n->child; v; v = v->next) PL_TRY(read_axis_value(x, s, v));
    return POLAR_OK;
}

polar_status pl_spec_read_grid(pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_MAP || !n->count)
        return BAD(n->line,
                   "grid wants a mapping: grid: {model.width: [16, 32]}, got %s (without cells leave it out)",
                   pl_spec_kind(n));
    s->grid = pl_calloc((size_t)n->count, sizeof *s->grid);
    PL_NEED(s->grid, POLAR_E_NOMEM, "a grid of %lld keys", (long long)n->count);
    double cells = 1;
    for (const pl_yaml_node *x = n->child; x; x = x->next) {
        pl_spec_axis *axis = &s->grid[s->grid_count++]; /* a half-read one is freed too */
        PL_TRY(read_axis(axis, s, x));
        cells *= axis->count;
        /* --set may leave few of them, but places of cells are counted before */
        if (cells > INT_MAX) return BAD(x->line, "a grid of more than %d cells", INT_MAX);
    }
    return POLAR_OK;
}

/* ---- arms --------------------------------------------------------------------------------------- */

static int is_choice(const pl_key *k, const char *word)
{
    for (int i = 0; k && k->choices && k->choices[i]; i++)
        if (!strcmp(k->choices[i], word)) return 1;
    return 0;
}

/* The arm's rule by its name; a rule it sets itself must not contradict the name. */
static polar_status imply_rule(pl_spec_arm *a, const pl_spec *s, const pl_yaml_node *map)
{
    const pl_key *rule = pl_schema_key(&s->schema, PL_ARM_KEY);
    if (!is_choice(rule, a->name)) return POLAR_OK;
    for (const pl_yaml_node *n = map->child; n; n = n->next) {
        if (strcmp(n->key, PL_ARM_KEY)) continue;
        if (n->kind == PL_YAML_SCALAR && strcmp(n->text, a->name))
            return BAD(n->line, "arm '%s' has another rule than its name says: %s", a->name,
                       pl_text_shown(n->text).text);
        return POLAR_OK;
    }
    a->set[0] = (pl_assign){.key = rule, .line = a->line};
    a->set_count = 1;
    return pl_spec_copy(&a->set[0].value, a->name);
}

static polar_status read_arm(pl_spec_arm *a, const pl_spec *s, const char *name, const pl_yaml_node *n,
                             const pl_yaml_node *body)
{
    static const pl_yaml_node none = {.kind = PL_YAML_MAP};
    if (!pl_spec_is_word(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ.+-", 63))
        return BAD(n->line, "an arm's name is a word of letters, digits, _ . + -, got '%s'",
                   pl_text_shown(name).text);
    a->line = n->line;
    PL_TRY(pl_spec_copy(&a->name, name));
    if (!body || (body->kind == PL_YAML_SCALAR && !*body->text)) body = &none;
    if (body->kind != PL_YAML_MAP)
        return BAD(n->line, "arm '%s' wants a mapping: %s: {optim.rule: muon, key: value}", name, name);
    a->set = pl_calloc((size_t)body->count + 1, sizeof *a->set);
    PL_NEED(a->set, POLAR_E_NOMEM, "an arm of %lld settings", (long long)body->count);
    PL_TRY(imply_rule(a, s, body));
    return read_assigns(a->set, &a->set_count, s, body);
}

/* A name in a list is a value of optim.rule and nothing else. */
static polar_status check_listed(const pl_spec *s, const pl_yaml_node *n)
{
    const pl_key *rule = pl_schema_key(&s->schema, PL_ARM_KEY);
    if (n->kind != PL_YAML_SCALAR)
        return BAD(n->line,
                   "a list of arms holds names of rules, got %s; arms with settings are a mapping: name: "
                   "{key: value}",
                   pl_spec_kind(n));
    if (is_choice(rule, n->text)) return POLAR_OK;
    const char *near = rule && rule->choices ? pl_nearest(n->text, rule->choices) : NULL;
    if (near) return BAD(n->line, "no rule '%s' (did you mean %s?)", pl_text_shown(n->text).text, near);
    return BAD(
        n->line,
        "no rule '%s': a list of arms holds values of %s; other names are a mapping: name: {key: value}",
        pl_text_shown(n->text).text, PL_ARM_KEY);
}

polar_status pl_spec_read_arms(pl_spec *s, const pl_yaml_node *n)
{
    const char *got = n->kind == PL_YAML_SCALAR ? pl_spec_kind(n) : n->count ? NULL : "none";
    if (got)
        return BAD(n->line,
                   "arms wants a list of rules, [adamw, muon], or a mapping name: {key: value}, got %s", got);
    s->arms = pl_calloc((size_t)n->count, sizeof *s->arms);
    PL_NEED(s->arms, POLAR_E_NOMEM, "a list of %lld arms", (long long)n->count);
    for (const pl_yaml_node *a = n->child; a; a = a->next) {
        int listed = n->kind == PL_YAML_LIST;
        if (listed) PL_TRY(check_listed(s, a));
        s->arm_count++;
        PL_TRY(read_arm(&s->arms[s->arm_count - 1], s, listed ? a->text : a->key, a, listed ? NULL : a));
        for (int i = 0; i < s->arm_count - 1; i++)
            if (!strcmp(s->arms[i].name, s->arms[s->arm_count - 1].name))
                return BAD(a->line, "arm '%s' is given twice (first on line %d)", s->arms[i].name,
                           s->arms[i].line);
    }
    return POLAR_OK;
}
