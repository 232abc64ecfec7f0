/* launch_env.h -- which of several processes this one is, where a launcher started them: from the environment
 * alone, without a library of MPI.
 *
 *     pl_launch l;
 *     PL_TRY(pl_launch_read(&l));
 *     if (l.size > 1) ...                       // rank l.rank of l.size
 *
 * Known: Open MPI (OMPI_COMM_WORLD_RANK), PMI as of MPICH and Intel MPI (PMI_RANK), Slurm's srun
 * (SLURM_PROCID; in a batch script itself there is no SLURM_STEP_ID, and it is one process). Which of its
 * machine's it is: OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID, or a plain LOCAL_RANK. */
#ifndef PL_BASE_LAUNCH_ENV_H
#define PL_BASE_LAUNCH_ENV_H

#include <stdint.h>

#include "base/status.h"

typedef struct pl_launch {
    int64_t rank, size; /* 0 and 1 where nobody launched several */
    int64_t local;      /* its number among those of its machine; -1: the launcher does not say */
    const char *by;     /* "Open MPI", "PMI", "Slurm", or NULL */
    char id[128]; /* the same for all ranks, another for the next launch where the launcher tells; or "" */
} pl_launch;

/* POLAR_E_ARG: variables that contradict each other */
polar_status pl_launch_read(pl_launch *out);

#endif
