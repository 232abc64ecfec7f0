/* spec_impl.h -- what spec.c, spec_values.c, spec_seeds.c and spec_override.c share. */
#ifndef PL_LAB_SPEC_IMPL_H
#define PL_LAB_SPEC_IMPL_H

#include <stddef.h>

#include "lab/spec/spec.h"
#include "lab/spec/yaml_read.h"

typedef struct pl_seed_list { /* seeds with the lines they came from, while they are collected */
    struct pl_seed_entry {
        int64_t seed;
        int line;
        int64_t place;
    } * items;
    int64_t count, room;
} pl_seed_list;

/* "7" or "0..99"; POLAR_E_FORMAT leaves why and no sentence */
polar_status pl_seeds_add(pl_seed_list *l, char why[PL_WHY_CHARS], const char *text, int line);
/* into s->seeds; the same seed twice: POLAR_E_FORMAT, why and its line */
polar_status pl_seeds_take(pl_spec *s, pl_seed_list *l, char why[PL_WHY_CHARS], int *line);
/* one --set; POLAR_E_ARG */
polar_status pl_spec_override(pl_spec *s, const char *assignment);

/* set: {key: value} */
polar_status pl_spec_read_set(pl_spec *s, const pl_yaml_node *n);
/* grid: {key: [value, ...]} */
polar_status pl_spec_read_grid(pl_spec *s, const pl_yaml_node *n);
/* arms: [rule, ...] or {name: {key: value}} */
polar_status pl_spec_read_arms(pl_spec *s, const pl_yaml_node *n);

/* published: {by, note, values, differences}; after arms, grid, seeds and metric */
polar_status pl_spec_read_published(pl_spec *s, const pl_yaml_node *n);
/* a number above 0 */
polar_status pl_spec_read_positive(double *out, const pl_spec *s, const pl_yaml_node *n);
/* compare: [{with, ...}]; after arms */
polar_status pl_spec_read_compare(pl_spec *s, const pl_yaml_node *n);
void pl_spec_free_compares(pl_spec *s);

/* one line of at most 200 bytes, or with `lines` a text of at most 4000 */
polar_status pl_spec_read_line(char **out, const pl_spec *s, const pl_yaml_node *n, int lines);
/* the name of a result: "test_mse" for "mse" too; POLAR_E_FORMAT names those there are */
polar_status pl_spec_metric_copy(char **out, const pl_spec *s, const char *name, int line);

#define PL_SPEC_BAD(s, line, ...) pl_spec_bad((s), __FILE__, __LINE__, (line), __VA_ARGS__)

/* POLAR_E_FORMAT, "spec:line: ..." */
polar_status pl_spec_bad(const pl_spec *s, const char *file, int source_line, int line, const char *fmt, ...)
    PL_PRINTF(5, 6);
/* for the spec to own */
polar_status pl_spec_copy(char **out, const char *text);
/* a-z, 0-9, _ and more; 1 to `most` bytes */
int pl_spec_is_word(const char *text, const char *more, size_t most);
/* "a list", "a mapping", "a value", "nothing" */
const char *pl_spec_kind(const pl_yaml_node *n);

#endif
