/* spec_compare.c -- `compare:`, the other specs that a report sets beside this one. They need not be known
 * when this one is read: a comparison is made where a report holds both. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "lab/spec/spec_impl.h"

#define BAD(...) PL_SPEC_BAD(s, __VA_ARGS__)

static const char *const tables[] = {"seeds", "lift", "crossover", NULL}; /* in the order of the bits */

static polar_status read_word(char **out, const pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_SCALAR || !pl_spec_is_word(n->text, "", 63))
        return BAD(n->line, "%s wants a word of a-z, 0-9 and _", n->key);
    return pl_spec_copy(out, n->text);
}

static polar_status read_arm(char **out, const pl_spec *s, const pl_yaml_node *n, const char *name)
{
    for (int i = 0; i < s->arm_count; i++)
        if (!strcmp(s->arms[i].name, name)) return pl_spec_copy(out, name);
    return BAD(n->line, "no arm '%s'", pl_text_shown(name).text);
}

static polar_status read_epoch(int64_t *out, const pl_spec *s, const pl_yaml_node *n)
{
    static const pl_key epoch = {.name = "an epoch", .type = PL_KEY_INT, .min = 1, .max = 1e9};
    char value[PL_VALUE_CHARS], why[PL_WHY_CHARS];
    if (n->kind != PL_YAML_SCALAR) return BAD(n->line, "%s wants a number of epochs", n->key);
    if (!pl_key_read(value, why, &epoch, n->text)) return BAD(n->line, "%s", why);
    *out = strtoll(value, NULL, 10);
    return POLAR_OK;
}

static polar_status read_labels(pl_spec_compare *c, const pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_LIST || n->count != 2)
        return BAD(n->line, "labels wants two: [this spec, the other one]");
    PL_TRY(pl_spec_read_line(&c->labels[0], s, n->child, 0));
    return pl_spec_read_line(&c->labels[1], s, n->child->next, 0);
}

static polar_status read_tables(pl_spec_compare *c, const pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_LIST) return BAD(n->line, "tables wants a list of seeds, lift, crossover");
    c->tables = 0;
    for (const pl_yaml_node *t = n->child; t; t = t->next) {
        int i = 0;
        while (t->kind == PL_YAML_SCALAR && tables[i] && strcmp(tables[i], t->text)) i++;
        if (t->kind != PL_YAML_SCALAR || !tables[i])
            return BAD(t->line, "tables wants a list of seeds, lift, crossover");
        c->tables |= 1 << i;
    }
    return POLAR_OK;
}

/* since: {polaradamw: 66} */
static polar_status read_since(pl_spec_compare *c, const pl_spec *s, const pl_yaml_node *n)
{
    if (n->kind != PL_YAML_MAP) return BAD(n->line, "since wants a mapping: {arm: epochs}");
    c->since = pl_calloc((size_t)n->count + 1, sizeof *c->since);
    PL_NEED(c->since, POLAR_E_NOMEM, "a list of %lld epochs", (long long)n->count);
    for (const pl_yaml_node *a = n->child; a; a = a->next) {
        c->since_count++;
        PL_TRY(read_arm(&c->since[c->since_count - 1].arm, s, a, a->key));
        PL_TRY(read_epoch(&c->since[c->since_count - 1].epochs, s, a));
    }
    return POLAR_OK;
}

static polar_status read_field(pl_spec_compare *c, const pl_spec *s, const pl_yaml_node *n)
{
    static const char *const fields[] = {"with",  "name",     "title", "note",        "labels", "tables",
                                         "curve", "at_epoch", "since", "equivalence", NULL};
    if (!strcmp(n->key, "with")) return read_word(&c->with, s, n);
    if (!strcmp(n->key, "name")) return read_word(&c->name, s, n);
    if (!strcmp(n->key, "title")) return pl_spec_read_line(&c->title, s, n, 0);
    if (!strcmp(n->key, "note")) return pl_spec_read_line(&c->note, s, n, 1);
    if (!strcmp(n->key, "labels")) return read_labels(c, s, n);
    if (!strcmp(n->key, "tables")) return read_tables(c, s, n);
    if (!strcmp(n->key, "at_epoch")) return read_epoch(&c->at_epoch, s, n);
    if (!strcmp(n->key, "since")) return read_since(c, s, n);
    if (!strcmp(n->key, "equivalence")) return pl_spec_read_positive(&c->equivalence, s, n);
    if (!strcmp(n->key, "curve"))
        return n->kind == PL_YAML_SCALAR ? read_arm(&c->curve, s, n, n->text)
                                         : BAD(n->line, "curve wants an arm's name");
    const char *near = pl_nearest(n->key, fields);
    return BAD(n->line,
               "unknown '%s'%s%s (a comparison has with, name, title, note, labels, tables, curve, at_epoch, "
               "since, equivalence)",
               pl_text_shown(n->key).text, near ? ", did you mean " : "", near ? near : "");
}

polar_status pl_spec_read_compare(pl_spec *s, const pl_yaml_node *list)
{
    if (list->kind != PL_YAML_LIST)
        return BAD(list->line, "compare wants a list: - {with: another_spec, title: ...}");
    s->compares = pl_calloc((size_t)list->count + 1, sizeof *s->compares);
    PL_NEED(s->compares, POLAR_E_NOMEM, "%lld comparisons", (long long)list->count);
    for (const pl_yaml_node *n = list->child; n; n = n->next) {
        pl_spec_compare *c = &s->compares[s->compare_count++];
        c->tables = PL_COMPARE_SEEDS | PL_COMPARE_LIFT | PL_COMPARE_CROSSOVER;
        if (n->kind != PL_YAML_MAP) return BAD(n->line, "a comparison is a mapping: {with: another_spec}");
        for (const pl_yaml_node *f = n->child; f; f = f->next) PL_TRY(read_field(c, s, f));
        if (!c->with) return BAD(n->line, "a comparison wants with: the name of another spec");
        if (!strcmp(c->with, s->name)) return BAD(n->line, "a comparison of '%s' with itself", c->with);
    }
    return POLAR_OK;
}

void pl_spec_free_compares(pl_spec *s)
{
    for (int i = 0; i < s->compare_count; i++) {
        pl_spec_compare *c = &s->compares[i];
        for (int k = 0; k < c->since_count; k++) pl_free(c->since[k].arm);
        pl_free(c->since);
        pl_free(c->with);
        pl_free(c->name);
        pl_free(c->title);
        pl_free(c->note);
        pl_free(c->labels[0]);
        pl_free(c->labels[1]);
        pl_free(c->curve);
    }
    pl_free(s->compares);
}
