/* spec.h -- an experiment on paper: a YAML file that says which runs belong to it (docs/specs.md).
 *
 *     name: so3_capacity                      # [a-z0-9_]+
 *     title: Test MSE against width
 *     testbed: so3
 *     metric: test_mse                        # what audits compare; optional
 *     seeds: 0..99                            # or [42, 7, 123, 2024], or one number
 *     arms: [adamw, muon, polaradamw]         # values of optim.rule; or a mapping name -> {key: value}
 *     grid: {model.width: [16, 32, 64, 128]}  # cells: every combination, the last key fastest; optional
 *     set: {map.rounding: reference}          # for every run; optional
 *
 *     // overrides: "seeds=0..7", "model.width=16,32", ...
 *     PL_TRY(pl_spec_read(&spec, path, schemas, n_schemas, overrides, n_overrides));
 *     PL_TRY(pl_plan_create(&plan, spec));                                               // plan.h
 *
 * Everything wrong with a file is POLAR_E_FORMAT, "FILE:LINE: ..."; with an override POLAR_E_ARG, "--set
 * ...", as where there is no such file.
 */
#ifndef PL_LAB_SPEC_H
#define PL_LAB_SPEC_H

#include <stdint.h>

#include "lab/spec/config.h"

/* an arm named like one of its choices, and without a value for it, has that one */
#define PL_ARM_KEY        "optim.rule"
#define PL_SPEC_MAX_SEEDS 100000
#define PL_SPEC_MAX_SEED  9007199254740991 /* 2^53 - 1: every reader of JSON keeps it */
#define PL_SPEC_MAX_RUNS  1000000

typedef struct pl_assign {
    const pl_key *key;
    char *value; /* canonical */
    int line;    /* of the file; 0: from an override */
} pl_assign;

typedef struct pl_spec_arm {
    char *name;     /* [A-Za-z0-9_.+-]+, at most 63 bytes */
    pl_assign *set; /* the rule comes first if the name says it */
    int set_count, line;
} pl_spec_arm;

typedef struct pl_spec_axis {
    const pl_key *key;
    char **values; /* canonical, no two alike */
    int count, line;
} pl_spec_axis;

typedef struct pl_spec {
    char *path;                  /* as given */
    char *name, *title, *metric; /* title: the name unless given; metric: the testbed's unless given */
    char *about;                 /* a paragraph for readers of the report, "" unless given */
    char *text;                  /* the file */
    char sha[65];                /* SHA-256 of text */
    pl_schema schema;            /* the testbed's */
    int64_t *seeds;              /* no two alike */
    int64_t seed_count;
    pl_spec_arm *arms;
    int arm_count;
    pl_spec_axis *grid;
    int grid_count;
    pl_assign *set;
    int set_count;
} pl_spec;

/* file, checks, overrides */
polar_status pl_spec_read(pl_spec **out, const char *path, const pl_schema *schemas, int schema_count,
                          const char *const *overrides, int override_count);
void pl_spec_destroy(pl_spec *s); /* NULL is fine */

#endif
