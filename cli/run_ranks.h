/* run_ranks.h -- `mpirun polar run SPEC`: every rank does its shard, rank 0 joins the stores.
 *
 * Ranks share nothing but a folder, which may be on a network file system, and only whole files go there:
 *
 *     STORE                     the joined store; rank 0 replaces it
 *     STORE.rank-2-of-4         what rank 2 (from 0) has, copied now and then and when it ends; goes when it
 * is joined STORE.rank-2-of-4.state   one line: the launch, "running" and a number that grows, "ended" or
 * "failed"
 *
 * A rank's database is on its own machine, under TMPDIR (or /tmp), and stays there while runs are left: the
 * same launch on the same machines goes on from its checkpoints. It begins with what STORE and the rank's own
 * file hold, so a launch with other machines or another number of ranks makes no finished run again. */
#ifndef POLAR_CLI_RUN_RANKS_H
#define POLAR_CLI_RUN_RANKS_H

#include "base/launch_env.h"
#include "cli.h"
#include "merge_stores.h"

typedef struct run_ranks {
    pl_launch launch;
    const char *store;         /* as given; borrowed */
    char local[SCRATCH_CHARS]; /* the rank's database */
    double beaten, copied;     /* when the state was last written, and the database copied */
    int64_t beats, done;       /* written; runs that the last copy has */
} run_ranks;

/* the rank's database with what is known of its runs */
polar_status run_ranks_begin(run_ranks *r, cli_context *ctx, const pl_launch *launch, const char *store);
/* a sign of life, now and then; after `copy_every` seconds, where more runs are done, a copy of the database
 * too */
void run_ranks_beat(run_ranks *r, cli_context *ctx, int64_t done, double copy_every);
/* copies the database to its place and says that the rank has ended; st: how. `complete`: nothing is left to
 * do */
polar_status run_ranks_end(run_ranks *r, polar_status st, int complete);
/* Of rank 0: waits until the others have ended, or one has been silent so many seconds, joins what there is
 * into a store in `folder` (scratch_open), and that into its place. A rank that failed or is silent is named,
 * and the check has failed. */
polar_status run_ranks_join(run_ranks *r, cli_context *ctx, const char *folder, double silence);

#endif
