/* run_progress.h -- what `polar run` and `polar train` show while they work: one line that rewrites itself on
 * a terminal, plain lines otherwise. */
#ifndef POLAR_CLI_RUN_PROGRESS_H
#define POLAR_CLI_RUN_PROGRESS_H

#include "cli.h"
#include "lab/run/runner.h"

typedef struct run_progress {
    cli_context *ctx;
    const char *name; /* begins the line */
    int several;      /* specs: of a run it is said whose it is */
    int epochs;       /* plain lines: one per epoch rather than one per run */
    atomic_int *stop;
    double shown; /* when the last line was, in the runner's seconds */
    int open;     /* a line that rewrites itself stands on the terminal */
    int said_stop;
} run_progress;

void run_progress_watch(void *progress, const pl_runner_event *e); /* pl_runner_opts.watch */
void run_progress_end(run_progress *p);                            /* ends the open line */
/* "0.4 s", "48 s", "12 min", "3.1 h"; returns out */
const char *run_progress_time(char out[32], double seconds);

/* How it ended, for people: what is left, why, and the command that goes on. `st` is what pl_runner_run
 * returned. */
void run_progress_outcome(cli_context *ctx, const pl_runner_outcome *o, polar_status st, const char *command,
                          int argc, char **argv);

#endif
