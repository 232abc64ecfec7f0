/* overtake.h -- when one curve over the epochs has left another behind: "overtakes" within a spec, "crosses
 * over" between two.
 *
 *     pl_overtake l;
 *     pl_overtake_side a = {augmented, 0, arm}, b = {minimal, 0, arm};      // sections of a report
 *     PL_TRY(pl_overtake_measure(&l, &a, &b, 26));                          // l.since: epochs done; 0: not
 *                                                                           // ahead at the end
 *
 * Definition: a leads b since epoch e if from the e-th epoch to the last that both have a is strictly
 * better after every epoch, and was not after the one before. The paper says "catches the minimal recipe
 * around epoch 65 and then pulls away" and "overtakes during the late cosine schedule", and defines
 * neither. No smoothing: of means over the seeds that both have, and of each of these seeds by itself.
 * Epochs count from 1: the paper's epoch 65 is 66 epochs done.
 */
#ifndef PL_REPORT_OVERTAKE_H
#define PL_REPORT_OVERTAKE_H

#include "report/report_section.h"

typedef struct pl_overtake_side {
    const pl_section *section;
    int64_t cell, arm;
} pl_overtake_side;

typedef struct pl_overtake {
    int64_t n, epochs;   /* seeds that both have, epochs that all of these have */
    int64_t since;       /* of the means */
    int64_t ahead;       /* seeds on which a leads at the end */
    int64_t least, most; /* since when on those, 0 without any */
    double gap;          /* a - b of the means after the last epoch */
    double at_a, at_b;   /* the means after the epoch asked for; NaN where it is not there */
} pl_overtake;

/* of values after epochs 1..count; higher: is better */
int64_t pl_ahead_since(const double *a, const double *b, int64_t count, int higher);
/* finished runs of both; at: an epoch, 0 for none */
polar_status pl_overtake_measure(pl_overtake *out, const pl_overtake_side *a, const pl_overtake_side *b,
                                 int64_t at);

#endif
