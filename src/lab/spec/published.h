/* published.h -- what others reported of a spec's runs, to stand beside what is measured here. A spec has it
 * under `published:`; everything in it is checked when the spec is read.
 *
 *     published:
 *       by: the paper                       # heads the columns; "published" unless given
 *       note: Four cores of a cluster.      # said below the tables; optional
 *       values:                             # means over seeds, one row a cell; arms have their names
 *         - {model.width: 16, adamw: 0.0099, muon: 0.0067}         # of the spec's metric
 *         - {model.width: 16, metric: wall, adamw: 629, muon: 657}
 *         - {model.width: 16, seed: 42, muon: 0.0061}              # of one seed
 *         - {model.width: 16, epoch: 26, muon: 0.02}               # the curve after so many epochs
 *       differences:                        # paired, a - b
 *         - {model.width: 16, a: muon, b: adamw, mean: -0.0032, t: -4.97, n: 100}
 *
 *     pl_published_value(p, "model.width=16", "muon", "test_mse")      // NaN where it is silent
 */
#ifndef PL_LAB_PUBLISHED_H
#define PL_LAB_PUBLISHED_H

#include <stdint.h>

/* a metric of the values beside a testbed's results and "wall": mean seconds of an epoch */
#define PL_METRIC_EPOCH_SECONDS "epoch_seconds"

typedef struct pl_published_row { /* one number */
    char *cell, *arm, *metric;    /* metric: "" of a curve */
    int64_t seed, epoch;          /* seed -1: a mean over seeds; epoch 0: a result */
    double value;
} pl_published_row;

typedef struct pl_published_difference {
    double mean, t; /* of a - b, paired; NaN: not given */
    int64_t n;      /* seeds; 0: not given */
} pl_published_difference;

typedef struct pl_published_pair {
    char *cell, *a, *b, *metric;
    pl_published_difference d;
} pl_published_pair;

typedef struct pl_published {
    char *by, *note; /* "published", "" unless given */
    pl_published_row *rows;
    pl_published_pair *pairs;
    int row_count, pair_count;
} pl_published;

/* All of these take NULL for a spec without published values. */

/* an arm's mean */
double pl_published_value(const pl_published *p, const char *cell, const char *arm, const char *metric);
/* of one seed */
double pl_published_seed(const pl_published *p, const char *cell, const char *arm, const char *metric,
                         int64_t seed);
/* of the curve after so many epochs */
double pl_published_epoch(const pl_published *p, const char *cell, const char *arm, int64_t epoch);
/* a against b; asked the other way round the signs turn */
pl_published_difference pl_published_pair_of(const pl_published *p, const char *cell, const char *a,
                                             const char *b, const char *metric);
/* whether it says anything in this metric */
int pl_published_has(const pl_published *p, const char *metric);
const char *pl_published_by(const pl_published *p);

void pl_published_destroy(pl_published *p); /* NULL is fine */

#endif
