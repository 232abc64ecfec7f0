/* merge_stores.h -- stores joined into one file, for `polar store merge` and for the ranks of `mpirun polar
 * run`.
 *
 * A store that is new is made in a folder on this machine and copied to its place as one file, so that no
 * database is at work on a network file system. */
#ifndef POLAR_CLI_MERGE_STORES_H
#define POLAR_CLI_MERGE_STORES_H

#include "cli.h"
#include "store/store.h"

#define SCRATCH_CHARS    4096
#define MOST_DIFFERENCES 40 /* that are printed; the rest is counted */

/* a new folder under TMPDIR, or /tmp */
polar_status scratch_open(char out[SCRATCH_CHARS]);
void scratch_close(const char *folder); /* with the stores in it */

typedef struct cli_differences {
    FILE *out;
    int64_t lines;
} cli_differences;

/* a pl_damage_fn of a cli_differences: a line for each of the first */
int cli_print_difference(void *arg, const char *run, const char *what);

/* Into a store that is there (one transaction) or is made. Disagreements are printed to ctx->out. */
polar_status merge_stores(pl_merge_count *did, cli_context *ctx, const char *out, const char *const *in,
                          int64_t count);

#endif
