/* spec_override.c -- --set key=value over a spec that was read: seeds are replaced, arms and the grid
 * narrowed, any other key set for every run. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/pattern.h"
#include "lab/spec/spec_impl.h"

/* The next word of a list by commas, which then begins behind it, NULL after the last; 0: it is too long for
 * any value. */
static int next_word(char out[PL_VALUE_CHARS], const char **list)
{
    size_t n = strcspn(*list, ",");
    if (n >= PL_VALUE_CHARS) return 0;
    memcpy(out, *list, n);
    out[n] = 0;
    *list = (*list)[n] ? *list + n + 1 : NULL;
    return 1;
}

#define TOO_LONG "a word of more than %d bytes"

static polar_status override_seeds(pl_spec *s, const char *list)
{
    pl_seed_list l = {0};
    char why[PL_WHY_CHARS], word[PL_VALUE_CHARS];
    int line = 0;
    polar_status st = POLAR_OK;
    for (const char *p = list; p && st == POLAR_OK;) {
        int fits = next_word(word, &p);
        if (!fits) snprintf(why, sizeof why, TOO_LONG, PL_VALUE_CHARS - 1);
        st = fits ? pl_seeds_add(&l, why, word, 0) : POLAR_E_FORMAT;
    }
    if (st == POLAR_OK) st = pl_seeds_take(s, &l, why, &line);
    pl_free(l.items);
    return st == POLAR_E_FORMAT ? PL_FAIL(POLAR_E_ARG, "--set seeds=%s: %s", pl_text_shown(list).text, why)
                                : st;
}

static void free_arm(pl_spec_arm *a)
{
    for (int i = 0; i < a->set_count; i++) pl_free(a->set[i].value);
    pl_free(a->set);
    pl_free(a->name);
}

/* Marks what every word of the list names: values of an axis, arms by name or by pattern (* and ?). Words
 * that fit nothing are errors, as are those that name what an earlier one does. */
static polar_status mark_words(char *keep, const char *what, const char *list, const pl_spec *s,
                               const pl_spec_axis *x)
{
    char word[PL_VALUE_CHARS], why[PL_WHY_CHARS], value[PL_VALUE_CHARS], known[300] = "";
    int n = x ? x->count : s->arm_count;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 x ? x->values[i] : s->arms[i].name);
    }
    for (const char *p = list; p;) {
        PL_NEED(next_word(word, &p), POLAR_E_ARG, "--set %s: " TOO_LONG, what, PL_VALUE_CHARS - 1);
        int found = 0;
        if (x) PL_NEED(pl_key_read(value, why, x->key, word), POLAR_E_ARG, "--set %s", why);
        for (int i = 0; i < n; i++) {
            if (x ? strcmp(value, x->values[i]) : !pl_pattern_match(word, s->arms[i].name)) continue;
            PL_NEED(!keep[i], POLAR_E_ARG, "--set %s: '%s' is given twice", what,
                    x ? value : s->arms[i].name);
            keep[i] = found = 1;
        }
        PL_NEED(found, POLAR_E_ARG, "--set %s=%s: %s has %s", what, pl_text_shown(word).text, s->path, known);
    }
    return POLAR_OK;
}

/* Keeps the marked arms, or values of an axis, in the order of the file. */
static polar_status narrow(pl_spec *s, pl_spec_axis *x, const char *list)
{
    int n = x ? x->count : s->arm_count, kept = 0, found = 0;
    char *keep = pl_calloc((size_t)n + 1, 1);
    PL_NEED(keep, POLAR_E_NOMEM, "a list of %d marks", n);
    polar_status st = POLAR_OK;
    /* a text may hold commas */
    for (int i = 0; x && i < n; i++) found |= keep[i] = !strcmp(x->values[i], list);
    if (!found) st = mark_words(keep, x ? x->key->name : "arms", list, s, x);
    for (int i = 0; i < n && st == POLAR_OK; i++) {
        if (x && keep[i]) x->values[kept++] = x->values[i];
        else if (x) pl_free(x->values[i]);
        else if (keep[i]) s->arms[kept++] = s->arms[i];
        else free_arm(&s->arms[i]);
    }
    if (st == POLAR_OK) *(x ? &x->count : &s->arm_count) = kept;
    pl_free(keep);
    return st;
}

/* For every run; an arm that has its own value would make it untrue. */
static polar_status override_key(pl_spec *s, const pl_key *k, const char *text)
{
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    PL_NEED(pl_key_read(value, why, k, text), POLAR_E_ARG, "--set %s", why);
    for (int a = 0; a < s->arm_count; a++)
        for (int i = 0; i < s->arms[a].set_count; i++)
            PL_NEED(s->arms[a].set[i].key != k, POLAR_E_ARG,
                    "--set %s: arm '%s' has its own (%s, line %d); narrow the arms with --set arms=...",
                    k->name, s->arms[a].name, s->path, s->arms[a].set[i].line);
    char *copy = pl_strdup(value);
    PL_NEED(copy, POLAR_E_NOMEM, "a value");
    for (int i = 0; i < s->set_count; i++) {
        if (s->set[i].key != k) continue;
        pl_free(s->set[i].value);
        s->set[i].value = copy;
        s->set[i].line = 0;
        return POLAR_OK;
    }
    size_t bytes = (size_t)s->set_count * sizeof *s->set;
    pl_assign *set = pl_realloc(s->set, bytes, bytes + sizeof *s->set);
    if (!set) {
        pl_free(copy);
        return PL_FAIL(POLAR_E_NOMEM, "a list of %d settings", s->set_count + 1);
    }
    s->set = set;
    set[s->set_count++] = (pl_assign){.key = k, .value = copy};
    return POLAR_OK;
}

polar_status pl_spec_override(pl_spec *s, const char *assignment)
{
    static const char *const fixed[] = {"name", "title", "testbed",   "metric", "about",
                                        "grid", "set",   "published", "compare"};
    char name[128], why[PL_WHY_CHARS];
    size_t n = strcspn(assignment, "=");
    PL_NEED(assignment[n] && n && n < sizeof name, POLAR_E_ARG,
            "--set wants key=value (seeds=0..7, arms=muon,adamw, model.width=16), got '%s'",
            pl_text_shown(assignment).text);
    memcpy(name, assignment, n);
    name[n] = 0;
    const char *value = assignment + n + 1;
    if (!strcmp(name, "seeds")) return override_seeds(s, value);
    if (!strcmp(name, "arms")) return narrow(s, NULL, value);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        PL_NEED(strcmp(name, fixed[i]), POLAR_E_ARG,
                "--set %s: only the file says that; --set takes seeds, arms and keys of the runs", name);
    const pl_key *k = pl_schema_find_key(why, &s->schema, name);
    PL_NEED(k, POLAR_E_ARG, "--set %s: %s", pl_text_shown(assignment).text, why);
    for (int i = 0; i < s->grid_count; i++)
        if (s->grid[i].key == k) return narrow(s, &s->grid[i], value);
    return override_key(s, k, value);
}
