/* lead.h -- when one curve over the epochs has left another behind: "overtakes" within a spec, "crosses
 * over" between two.
 *
 *     pl_lead l;
 *     PL_TRY(pl_lead_measure(&l, &(pl_lead_of){s1, 0, polaradamw}, &(pl_lead_of){minimal, 0,
 *         polaradamw}, 26));
 *     l.since                 // epochs done; 0: not ahead at the end
 *
 * Definition: a leads b since epoch e if from the e-th epoch to the last that both have a is strictly
 * better after every epoch, and was not after the one before. The paper says "catches the minimal recipe
 * around epoch 65 and then pulls away" and "overtakes during the late cosine schedule", and defines
 * neither. No smoothing: of means over the seeds that both have, and of each of these seeds by itself.
 * Epochs count from 1: the paper's epoch 65 is 66 epochs done.
 */
#ifndef PL_REPORT_LEAD_H
#define PL_REPORT_LEAD_H

#include "report/report_part.h"

typedef struct pl_lead_of {
    const pl_part *part;
    int64_t cell, arm;
} pl_lead_of;

typedef struct pl_lead {
    int64_t n, epochs;   /* seeds that both have, epochs that all of these have */
    int64_t since;       /* of the means */
    int64_t ahead;       /* seeds on which a leads at the end */
    int64_t least, most; /* since when on those, 0 without any */
    double gap;          /* a - b of the means after the last epoch */
    double at_a, at_b;   /* the means after the epoch asked for; NaN where it is not there */
} pl_lead;

/* of values after epochs 1..count; higher: is better */
int64_t pl_lead_since(const double *a, const double *b, int64_t count, int higher);
/* finished runs of both; at: an epoch, 0 for none */
polar_status pl_lead_measure(pl_lead *out, const pl_lead_of *a, const pl_lead_of *b, int64_t at);

#endif
