/* train_ranks.h -- `mpirun polar train ...`: the ranks of a launch share one run. Rank 0 has the store, the
 * checkpoints and the terminal, the others follow it (lab/run/follow.h). */
#ifndef POLAR_CLI_TRAIN_RANKS_H
#define POLAR_CLI_TRAIN_RANKS_H

#include "lab/run/follow.h"

typedef struct train_ranks {
    polar_comm *comm; /* NULL: this process alone */
    int rank, size;
    char leaves[16];  /* train.leaves unless told */
    char device[256]; /* the caller's; a plain cpu gets this rank's part of the machine's threads */
} train_ranks;

polar_status train_ranks_begin(train_ranks *r, const char *device);
/* of the ranks but the first: until that ends */
polar_status train_ranks_follow(train_ranks *r, const pl_testbed *tb, const pl_config *config, uint64_t seed);
/* st: how this rank's work ended; of a rank that lost the others the sentence says what to do */
polar_status train_ranks_end(train_ranks *r, polar_status st);

#endif
