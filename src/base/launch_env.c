/* launch_env.c -- the variables of each launcher, in the order in which they are believed. */
#include "base/launch_env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct launcher {
    const char *by, *rank, *size, *size_too; /* variables; size_too: where there is no size */
    const char *needs;                       /* must be there too; or NULL */
    const char *local;                       /* its number on its machine */
    const char *ids[2];                      /* whose values, those that are there, make the id */
} launcher;

static const launcher known[] = {
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     NULL,
     NULL,
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", NULL, NULL, "MPI_LOCALRANKID", {"PMI_JOBID", "SLURM_JOB_ID"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_NTASKS",
     "SLURM_STEP_ID",
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

static const char *value_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text && *text ? text : NULL;
}

static polar_status read_number(int64_t *out, const char *name, const char *text, int64_t most)
{
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    PL_NEED(end != text && !*end && !errno && x >= 0 && x <= most, POLAR_E_ARG,
            "%s is '%.40s', and a launcher sets a whole number from 0 to %" PRId64
            " (unset it, or start with mpirun or srun)",
            name, text, most);
    *out = x;
    return POLAR_OK;
}

static void copy_id(char *out, size_t room, const launcher *l)
{
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        const char *text = value_of(l->ids[i]);
        if (!text) continue;
        if (used && used + 1 < room) out[used++] = '.';
        for (; *text && used + 1 < room; text++) /* one word, whatever it holds */
            out[used++] =
                (*text >= '0' && *text <= '9') || ((*text | 32) >= 'a' && (*text | 32) <= 'z') ? *text : '-';
    }
    out[used] = 0;
}

polar_status pl_launch_read(pl_launch *out)
{
    *out = (pl_launch){.rank = 0, .size = 1, .local = -1};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const launcher *l = &known[i];
        const char *rank = value_of(l->rank), *size = value_of(l->size), *name = l->size;
        if (!size) size = value_of(l->size_too), name = l->size_too;
        if (!rank || !size || (l->needs && !value_of(l->needs))) continue;
        PL_TRY(read_number(&out->size, name, size, INT32_MAX));
        PL_TRY(read_number(&out->rank, l->rank, rank, INT32_MAX));
        PL_NEED(out->rank < out->size, POLAR_E_ARG,
                "%s says rank %" PRId64 " of %" PRId64 ": they count from 0", l->by, out->rank, out->size);
        const char *local = value_of(l->local), *local_name = local ? l->local : "LOCAL_RANK";
        if (!local) local = value_of(local_name);
        if (local) PL_TRY(read_number(&out->local, local_name, local, INT32_MAX));
        out->by = l->by;
        copy_id(out->id, sizeof out->id, l);
        return POLAR_OK;
    }
    return POLAR_OK;
}
