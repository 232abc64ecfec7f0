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
 *     published: {...}                        # what others reported (published.h); optional
 *     compare: [{with: so3_small}]            # beside other specs, in a report that holds both; optional
 *     tests: {target: 0.005, equivalence: 1e-4}  # of audits; optional
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
#include "lab/spec/published.h"

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

enum { PL_COMPARE_SEEDS = 1, PL_COMPARE_LIFT = 2, PL_COMPARE_CROSSOVER = 4 };

typedef struct pl_spec_compare { /* with another spec, paired by cell, arm and seed; what is not given: NULL
                                  */
    char *with;                  /* its name */
    char *name, *title, *note;   /* of the files, of the heading; below the tables */
    char *labels[2];             /* this spec, the other one */
    int tables;                  /* PL_COMPARE_*: seed by seed; what the other adds; since when it is ahead */
    char *curve;                 /* the arm whose curve of the other spec is drawn into this one's figure */
    int64_t at_epoch;            /* an epoch at which both curves are given; 0: none */
    double equivalence;          /* the margin within which both specs count as the same; 0: none */
    struct pl_since {
        char *arm;
        int64_t epochs;
    } * since; /* published: epochs done since when the other has been ahead */
    int since_count;
} pl_spec_compare;

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
    pl_published *published; /* or NULL */
    pl_spec_compare *compares;
    int compare_count;
    /* tests: what the curve is to reach; the margin within which arms count as the same, in the metric's
     * units; 0: not given */
    double target, equivalence;
} pl_spec;

/* file, checks, overrides */
polar_status pl_spec_read(pl_spec **out, const char *path, const pl_schema *schemas, int schema_count,
                          const char *const *overrides, int override_count);
/* the same from a text, such as a store keeps; `path` stands in complaints */
polar_status pl_spec_read_text(pl_spec **out, const char *path, const char *text, const pl_schema *schemas,
                               int schema_count);
void pl_spec_destroy(pl_spec *s); /* NULL is fine */

#endif
