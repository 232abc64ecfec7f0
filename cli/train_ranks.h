/* train_ranks.h -- `mpirun polar train ...`: the ranks of a launch share one run. Rank 0 has the store, the
 * checkpoints and the terminal, the others follow it (lab/run/follow.h). */
#ifndef POLAR_CLI_TRAIN_RANKS_H
#define POLAR_CLI_TRAIN_RANKS_H

#include <stdio.h>

#include "lab/run/follow.h"

/* what carries the bytes between ranks: TRAIN_COMM_AUTO takes NCCL for a plain --device cuda, if it can, and
 * MPI otherwise */
enum { TRAIN_COMM_AUTO, TRAIN_COMM_MPI, TRAIN_COMM_NCCL };
extern const char *const train_comms[]; /* their names, NULL at the end */

typedef struct train_ranks {
    polar_comm *comm;  /* NULL: this process alone */
    polar_comm *via;   /* MPI below NCCL; or NULL */
    polar_device *gpu; /* NCCL's; or NULL */
    int rank, size;
    char leaves[16];  /* train.leaves unless told */
    char device[256]; /* the caller's; a plain cpu gets this rank's part of the machine's threads, a plain
                         cuda its own GPU */
    char note[600];   /* why the bytes do not go by NCCL, where they might have; or "" */
} train_ranks;

polar_status train_ranks_begin(train_ranks *r, const char *device, int comm);
/* of the ranks but the first: until that ends */
polar_status train_ranks_follow(train_ranks *r, const pl_testbed *tb, const pl_config *config, uint64_t seed);
/* a line on what this rank sent while its backward was at work; nothing where it could not */
void train_ranks_overlap(const train_ranks *r, FILE *log);
/* st: how this rank's work ended; of a rank that lost the others the sentence says what to do */
polar_status train_ranks_end(train_ranks *r, polar_status st);

#endif
