/* spec.c -- a spec file read and checked against its testbed's keys; every complaint has a line.
 *
 *     ctest -R test_spec
 */
#include "lab/spec/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "base/sha256.h"
#include "base/text_visible.h"
#include "lab/spec/spec_impl.h"
#include "lab/spec/yaml_read.h"

#define BAD(...) PL_SPEC_BAD(s, __VA_ARGS__)

/* ---- words and texts ---------------------------------------------------------------------------- */

static polar_status read_word(char **out, const pl_spec *s, const pl_yaml_node *n)
{
    int ok = n->kind == PL_YAML_SCALAR && pl_spec_is_word(n->text, "", 63);
    if (!ok) return BAD(n->line, "%s wants a word of a-z, 0-9 and _", n->key);
    return pl_spec_copy(out, n->text);
}

polar_status pl_spec_metric_copy(char **out, const pl_spec *s, const char *name, int line)
{
    char test_name[80], known[400] = PL_METRIC_WALL;
    const char *names[PL_SCHEMA_MAX_RESULTS + 1];
    snprintf(test_name, sizeof test_name, "test_%.70s", name);
    if (pl_schema_has_result(&s->schema, name) || !strcmp(name, PL_METRIC_WALL))
        return pl_spec_copy(out, name);
    if (pl_schema_has_result(&s->schema, test_name)) return pl_spec_copy(out, test_name);
    pl_schema_result_names(names, &s->schema);
    for (int i = 0; names[i]; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", names[i]);
    }
    const char *near = pl_nearest(name, names);
    if (near)
        return BAD(line, "no result '%s' in testbed %s (did you mean %s? there is: %s)",
                   pl_text_shown(name).text, s->schema.name, near, known);
    return BAD(line, "no result '%s' in testbed %s (there is: %s)", pl_text_shown(name).text, s->schema.name,
               known);
}

/* A result of the testbed's runs, or their seconds; kept as it is written. */
static polar_status read_metric(pl_spec *s, const pl_yaml_node *n)
{
    char *name = NULL;
    PL_TRY(read_word(&s->metric, s, n));
    polar_status st = pl_spec_metric_copy(&name, s, s->metric, n->line);
    pl_free(name);
    return st;
}

polar_status pl_spec_read_line(char **out, const pl_spec *s, const pl_yaml_node *n, int lines)
{
    int ok = n->kind == PL_YAML_SCALAR && *n->text && strlen(n->text) <= (lines ? 4000 : 200);
    for (const char *line = ok ? n->text : NULL; line && ok;) {
        size_t size = strcspn(line, "\n");
        ok = pl_text_is_plain(line, size) && (lines || !line[size]);
        line = line[size] ? line + size + 1 : NULL;
    }
    if (!ok)
        return BAD(n->line,
                   lines ? "%s wants a text of at most 4000 bytes without control characters"
                         : "%s wants one line of at most 200 bytes without control characters",
                   n->key ? n->key : "a label");
    return pl_spec_copy(out, n->text);
}

/* ---- seeds -------------------------------------------------------------------------------------- */

static polar_status read_seed_node(pl_seed_list *l, const pl_spec *s, const pl_yaml_node *n)
{
    char why[PL_WHY_CHARS];
    if (n->kind != PL_YAML_SCALAR)
        return BAD(n->line, "seeds wants 7, 0..99 or [42, 7], got %s", pl_spec_kind(n));
    polar_status st = pl_seeds_add(l, why, n->text, n->line);
    return st == POLAR_E_FORMAT ? BAD(n->line, "%s", why) : st;
}

static polar_status read_seeds(pl_spec *s, const pl_yaml_node *n)
{
    pl_seed_list l = {0};
    char why[PL_WHY_CHARS];
    int line = n->line;
    polar_status st = POLAR_OK;
    if (n->kind == PL_YAML_LIST) {
        if (!n->count) st = BAD(n->line, "seeds is an empty list");
        for (const pl_yaml_node *c = n->child; c && st == POLAR_OK; c = c->next)
            st = read_seed_node(&l, s, c);
    } else {
        st = read_seed_node(&l, s, n);
    }
    if (st == POLAR_OK) {
        st = pl_seeds_take(s, &l, why, &line);
        if (st == POLAR_E_FORMAT) st = BAD(line, "%s", why);
    }
    pl_free(l.items);
    return st;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static polar_status read_testbed(pl_spec *s, const pl_yaml_node *n, const pl_schema *schemas, int count)
{
    char known[200] = "";
    if (n->kind != PL_YAML_SCALAR) return BAD(n->line, "testbed wants a name, got %s", pl_spec_kind(n));
    for (int i = 0; i < count; i++) {
        size_t used = strlen(known);
        if (!strcmp(schemas[i].name, n->text)) {
            s->schema = schemas[i];
            return POLAR_OK;
        }
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", schemas[i].name);
    }
    return BAD(n->line, "no testbed '%s' (there is: %s)", pl_text_shown(n->text).text, known);
}

static const char *const fields[] = {"name", "title", "testbed",   "metric",  "about", "seeds", "arms",
                                     "grid", "set",   "published", "compare", "tests", NULL};

polar_status pl_spec_read_positive(double *out, const pl_spec *s, const pl_yaml_node *n)
{
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    const pl_key key = {.name = n->key, .type = PL_KEY_REAL, .min = 1e-300, .max = 1e300};
    if (n->kind != PL_YAML_SCALAR) return BAD(n->line, "%s wants a number", n->key);
    if (!pl_key_read(value, why, &key, n->text)) return BAD(n->line, "%s", why);
    *out = strtod(value, NULL);
    return POLAR_OK;
}

/* tests: {target: X, equivalence: X} */
static polar_status read_tests(pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_MAP)
        return BAD(n->line, "tests wants a mapping: {target: 0.005, equivalence: 1e-4}");
    for (const pl_yaml_node *t = n->child; t; t = t->next) {
        int is_target = !strcmp(t->key, "target");
        if (!is_target && strcmp(t->key, "equivalence"))
            return BAD(t->line, "unknown '%s' in tests (there are target and equivalence)",
                       pl_text_shown(t->key).text);
        PL_TRY(pl_spec_read_positive(is_target ? &s->target : &s->equivalence, s, t));
    }
    return POLAR_OK;
}

static polar_status read_field(pl_spec *s, const pl_yaml_node *n)
{
    if (!strcmp(n->key, "name")) return read_word(&s->name, s, n);
    if (!strcmp(n->key, "metric")) return read_metric(s, n);
    if (!strcmp(n->key, "title")) return pl_spec_read_line(&s->title, s, n, 0);
    if (!strcmp(n->key, "about")) return pl_spec_read_line(&s->about, s, n, 1);
    if (!strcmp(n->key, "seeds")) return read_seeds(s, n);
    if (!strcmp(n->key, "arms")) return pl_spec_read_arms(s, n);
    if (!strcmp(n->key, "grid")) return pl_spec_read_grid(s, n);
    if (!strcmp(n->key, "set")) return pl_spec_read_set(s, n);
    if (!strcmp(n->key, "tests")) return read_tests(s, n);
    /* testbed: read first; published and compare: after all others, as they name arms and cells */
    if (!strcmp(n->key, "testbed") || !strcmp(n->key, "published") || !strcmp(n->key, "compare"))
        return POLAR_OK;
    if (pl_schema_key(&s->schema, n->key))
        return BAD(n->line, "%s is a key of the runs: write it under set, grid or an arm", n->key);
    const char *near = pl_nearest(n->key, fields);
    if (near) return BAD(n->line, "unknown '%s' (did you mean %s?)", pl_text_shown(n->key).text, near);
    return BAD(n->line,
               "unknown '%s' (a spec has name, title, testbed, metric, about, seeds, arms, grid, set, "
               "published, compare, tests)",
               pl_text_shown(n->key).text);
}

static const pl_yaml_node *find_field(const pl_yaml_node *map, const char *name)
{
    const pl_yaml_node *n = map->child;
    while (n && strcmp(n->key, name)) n = n->next;
    return n;
}

static const pl_spec_axis *find_axis(const pl_spec *s, const pl_key *k)
{
    for (int i = 0; i < s->grid_count; i++)
        if (s->grid[i].key == k) return &s->grid[i];
    return NULL;
}

static int assigns(const pl_assign *set, int count, const pl_key *k)
{
    for (int i = 0; i < count; i++)
        if (set[i].key == k) return 1;
    return 0;
}

/* One key, one place: a cell's name must be true of all its runs. Every arm has a rule. */
static polar_status check_places(const pl_spec *s)
{
    const pl_key *rule = pl_schema_key(&s->schema, PL_ARM_KEY);
    for (int i = 0; i < s->set_count; i++)
        if (find_axis(s, s->set[i].key))
            return BAD(s->set[i].line, "%s is in the grid and in set", s->set[i].key->name);
    for (int a = 0; a < s->arm_count; a++) {
        const pl_spec_arm *arm = &s->arms[a];
        for (int i = 0; i < arm->set_count; i++)
            if (find_axis(s, arm->set[i].key))
                return BAD(arm->set[i].line, "%s is in the grid and in arm '%s'", arm->set[i].key->name,
                           arm->name);
        int has_rule = !rule || assigns(arm->set, arm->set_count, rule) ||
                       assigns(s->set, s->set_count, rule) || find_axis(s, rule);
        if (!has_rule)
            return BAD(arm->line, "arm '%s' has no %s, and its name is none", arm->name, PL_ARM_KEY);
    }
    return POLAR_OK;
}

static polar_status read_tree(pl_spec *s, const pl_yaml_node *root, const pl_schema *schemas, int count)
{
    static const char *const needed[] = {"name", "testbed", "seeds", "arms"};
    for (int i = 0; i < 4; i++)
        if (!find_field(root, needed[i])) return BAD(root->line, "'%s: ...' is missing", needed[i]);
    PL_TRY(read_testbed(s, find_field(root, "testbed"), schemas, count));
    for (const pl_yaml_node *n = root->child; n; n = n->next) PL_TRY(read_field(s, n));
    if (!s->title) PL_TRY(pl_spec_copy(&s->title, s->name));
    if (!s->metric) PL_TRY(pl_spec_copy(&s->metric, s->schema.metric));
    if (!s->about) PL_TRY(pl_spec_copy(&s->about, ""));
    PL_TRY(check_places(s));
    const pl_yaml_node *published = find_field(root, "published"), *compare = find_field(root, "compare");
    if (published) PL_TRY(pl_spec_read_published(s, published));
    return compare ? pl_spec_read_compare(s, compare) : POLAR_OK;
}

/* What was parsed into a spec; closes it. */
static polar_status take_yaml(pl_spec *s, pl_yaml *y, const pl_schema *schemas, int count)
{
    polar_status st = pl_spec_copy(&s->text, pl_yaml_text(y));
    if (st == POLAR_OK) st = read_tree(s, pl_yaml_root(y), schemas, count);
    pl_yaml_close(y);
    return st;
}

/* Arms first, in whatever order they are given: a key that an arm has of its own is refused. */
static polar_status apply_overrides(pl_spec *s, const char *const *overrides, int count)
{
    for (int i = 0; i < count; i++) {
        size_t stem = strcspn(overrides[i], "=");
        for (int j = 0; j < i; j++)
            PL_NEED(strcspn(overrides[j], "=") != stem || strncmp(overrides[i], overrides[j], stem),
                    POLAR_E_ARG, "--set %s is given twice", pl_text_shown(overrides[i]).text);
    }
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < count; i++)
            if (!strncmp(overrides[i], "arms=", 5) == !others) PL_TRY(pl_spec_override(s, overrides[i]));
    return POLAR_OK;
}

/* text: NULL, the file of this path is read. */
static polar_status read_all(pl_spec *s, const char *path, const char *text, const pl_schema *schemas,
                             int count, const char *const *overrides, int override_count)
{
    pl_yaml *y = NULL;
    PL_TRY(pl_spec_copy(&s->path, path));
    PL_TRY(text ? pl_yaml_read_text(&y, path, text) : pl_yaml_read(&y, path));
    PL_TRY(take_yaml(s, y, schemas, count));
    PL_TRY(apply_overrides(s, overrides, override_count));
    pl_sha256 h = pl_sha256_begin();
    pl_sha256_add(&h, s->text, strlen(s->text));
    pl_sha256_end(s->sha, &h);
    return POLAR_OK;
}

static polar_status create(pl_spec **out, const char *path, const char *text, const pl_schema *schemas,
                           int schema_count, const char *const *overrides, int override_count)
{
    pl_spec *s = pl_calloc(1, sizeof *s);
    *out = NULL;
    PL_NEED(s, POLAR_E_NOMEM, "a spec");
    polar_status st = read_all(s, path, text, schemas, schema_count, overrides, override_count);
    if (st == POLAR_OK) *out = s;
    else pl_spec_destroy(s);
    return st;
}

polar_status pl_spec_read(pl_spec **out, const char *path, const pl_schema *schemas, int schema_count,
                          const char *const *overrides, int override_count)
{
    return create(out, path, NULL, schemas, schema_count, overrides, override_count);
}

polar_status pl_spec_read_text(pl_spec **out, const char *path, const char *text, const pl_schema *schemas,
                               int schema_count)
{
    return create(out, path, text, schemas, schema_count, NULL, 0);
}

static void free_assigns(pl_assign *set, int count)
{
    for (int i = 0; i < count; i++) pl_free(set[i].value);
    pl_free(set);
}

void pl_spec_destroy(pl_spec *s)
{
    if (!s) return;
    for (int i = 0; i < s->arm_count; i++) {
        pl_free(s->arms[i].name);
        free_assigns(s->arms[i].set, s->arms[i].set_count);
    }
    for (int i = 0; i < s->grid_count; i++) {
        for (int j = 0; j < s->grid[i].count; j++) pl_free(s->grid[i].values[j]);
        pl_free(s->grid[i].values);
    }
    free_assigns(s->set, s->set_count);
    pl_published_destroy(s->published);
    pl_spec_free_compares(s);
    pl_free(s->arms);
    pl_free(s->grid);
    pl_free(s->seeds);
    pl_free(s->path);
    pl_free(s->name);
    pl_free(s->title);
    pl_free(s->metric);
    pl_free(s->about);
    pl_free(s->text);
    pl_free(s);
}
