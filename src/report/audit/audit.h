/* audit.h -- paired statistics of a spec's runs: every pair of arms, in every cell, over the seeds that
 * both finished.
 *
 *     pl_audit *a;
 *     pl_audit_of of = {.spec = name, .metric = "test_mse", .schema = testbed, .published = others};
 *     PL_TRY(pl_audit_create(&a, &of, runs, count));      // runs in plan order, each with what the store
 *     for (int64_t i = 0; i < a->pair_count; i++) ...     // knows of it; a->pairs[i].s.mean_diff
 *     PL_TRY(pl_audit_print(a, stdout, PL_TABLE_JSON));
 *     pl_audit_destroy(a);
 *
 * Invariants:
 *  1. A pair is two arms of one cell and one seed; a is the later of the two in the plan, b the earlier;
 *     differences are a - b.
 *  2. Every (cell, seed) where some arm has no finite value is in `missing`, arm by arm with the reason;
 *     nothing is dropped in silence.
 *  3. Order everywhere is that of the runs given (cell, then seed, then arm), so equal runs give equal
 *     bytes whatever wrote the store, in what order.
 *  4. No clock (unless the metric is "wall") and no run id in what is printed.
 */
#ifndef PL_REPORT_AUDIT_H
#define PL_REPORT_AUDIT_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "lab/spec/config.h"
#include "lab/spec/published.h"
#include "math/statistics.h"
#include "report/table/table.h"
#include "store/store.h"

typedef struct pl_audit_run {
    const char *cell, *arm; /* borrowed for the life of the audit */
    int64_t seed;
    const pl_store_member *run; /* NULL: the store has never heard of it; borrowed */
    /* epochs to the target (pl_audit_reach); time 0: not asked, not finished, or imported without epochs */
    pl_event_time reach;
} pl_audit_run;

typedef enum pl_audit_why {
    PL_AUDIT_HAS_VALUE,
    PL_AUDIT_NOT_PLANNED, /* the plan has no such run: this arm has other seeds */
    PL_AUDIT_NOT_RUN,     /* planned, never begun */
    PL_AUDIT_UNFINISHED,  /* begun: running now, or interrupted */
    PL_AUDIT_DIVERGED,    /* finished with a NaN or an infinity */
    PL_AUDIT_NO_VALUE,    /* done, without a result of this name */
    PL_AUDIT_UNDEFINED    /* done, and the result is NaN: l10 of a run planned for fewer than ten epochs */
} pl_audit_why;

#define PL_AUDIT_REFERENCES 4 /* the most that are shown beside a metric */

typedef struct pl_audit_arm { /* one arm in one cell */
    const char *cell, *arm;
    pl_sample s;                           /* of the finite values */
    int64_t planned, diverged;             /* seeds in the plan, those that ended without a finite value */
    double reference[PL_AUDIT_REFERENCES]; /* means of the audit's reference values, or NaN */
    double epochs;                         /* mean number of epochs trained, or NaN */
    pl_survival reach; /* epochs to the target, diverged runs among them; n 0: not asked */
} pl_audit_arm;

typedef struct pl_audit_race { /* epochs to the target, over the seeds that both arms finished or diverged on
                                */
    int64_t sooner, later, same, unknown; /* a before b, after it, at once; neither has reached it */
    double p;    /* of sooner against later: the signs, which is the log-rank by pairs */
    pl_paired s; /* epochs until the target, at most tau: all of them known */
} pl_audit_race;

typedef struct pl_audit_pair {
    const char *cell, *a, *b;
    pl_paired s;
    int64_t incomplete;   /* seeds of the cell where a or b has no value */
    const int64_t *seeds; /* of the s.n pairs */
    const double *values_a, *values_b;
    pl_effect effect;
    double p_holm;        /* s.p, corrected for all pairs of the audit */
    double p_equivalence; /* NaN without a margin */
    pl_audit_race race;
} pl_audit_pair;

typedef struct pl_audit_missing {
    const char *cell, *arm;
    int64_t seed;
    pl_audit_why why;
} pl_audit_missing;

typedef struct pl_audit_of {
    const char *spec, *metric;     /* copied */
    const pl_schema *schema;       /* of the testbed, borrowed; NULL: not of this build */
    const pl_published *published; /* borrowed; NULL: none */
    double equivalence;            /* differences within it count as none; 0: not asked */
    double target;                 /* of the curve, as given to pl_audit_reach; 0: not asked */
} pl_audit_of;

typedef struct pl_audit {
    char *spec, *metric;
    const pl_schema *schema;
    const pl_published *published;
    pl_metric shown;                                  /* what the metric is to a reader */
    const pl_metric *references[PL_AUDIT_REFERENCES]; /* the testbed's, for this metric */
    int reference_count;
    const char **cells, **arms; /* names in plan order */
    int64_t cell_count, arm_count, seed_count;
    int64_t *seeds;
    const pl_audit_run **runs; /* (cells, seeds, arms); NULL: not planned */
    pl_audit_arm *arm_rows;    /* (cells, arms) */
    pl_audit_pair *pairs;      /* (cells, arms (arms - 1) / 2) */
    int64_t pair_count;
    pl_audit_missing *missing;
    int64_t missing_count;
    double *values; /* what the pairs' views point at, as pair_seeds */
    int64_t *pair_seeds;
    int64_t tests;              /* pairs with a p: the family that p_holm is corrected for */
    double equivalence, target; /* 0: not asked */
    double *taus;               /* (cells): the least budget of epochs, for restricted means */
} pl_audit;

/* POLAR_E_ARG: a metric no finished run has */
polar_status pl_audit_create(pl_audit **out, const pl_audit_of *of, const pl_audit_run *runs, int64_t count);
void pl_audit_destroy(pl_audit *a); /* NULL is fine */
/* Before pl_audit_create: the first epoch after which a run's curve has reached the target (as the testbed's
 * curve is better). A run that ended without, early, diverged or not, had its planned epochs for it: censored
 * there. */
polar_status pl_audit_reach(pl_audit_run *runs, int64_t count, pl_store *s, const pl_schema *schema,
                            double target);
/* one run's value, or why there is none (then NaN); run may be NULL */
pl_audit_why pl_audit_value(double *out, const pl_audit_run *run, const char *metric);
const char *pl_audit_better(const pl_audit *a); /* "higher", "lower" or "" */
/* "not run", "diverged", ... */
const char *pl_audit_why_text(pl_audit_why why);
/* text and JSON: all; CSV and TeX: the table of pairs */
polar_status pl_audit_print(const pl_audit *a, FILE *f, pl_table_format format);
/* a line per cell and reason, seeds as ranges; "" when complete; free with pl_free */
polar_status pl_audit_missing_text(char **out, const pl_audit *a);

#endif
