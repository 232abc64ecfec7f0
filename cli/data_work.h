/* data_work.h -- what the parts of `polar data` share: progress, the list of broken pictures. */
#ifndef POLAR_CLI_DATA_WORK_H
#define POLAR_CLI_DATA_WORK_H

#include "cli.h"
#include "data/set/image_folder.h"

typedef struct data_progress {
    cli_context *ctx;
    const char *doing; /* "packing" */
    double began, shown;
    const char *bad_as; /* what is said of a broken picture: "left out" */
    int64_t bad, names; /* broken pictures so far; the first so many are named */
    int open;           /* a line that rewrites itself stands on the terminal */
} data_progress;

/* the clock starts */
data_progress data_progress_begin(cli_context *ctx, const char *doing);
/* a line, not more often than makes sense */
void data_progress_show(void *progress, int64_t done, int64_t total, int64_t bad);
/* names a broken picture; the first of many */
void data_progress_bad(void *progress, const char *sentence);
/* ends the open line */
void data_progress_end(data_progress *p);
/* says how many files of the folder are no pictures, if there are any */
void data_note_others(cli_context *ctx, const pl_image_folder *f);
/* threads; 0: one per processor */
int data_jobs(int64_t asked);
/* a whole number from 0 to 2^63 - 1 */
polar_status data_parse_seed(uint64_t *out, const char *text);

extern const cli_command cli_data_pack, cli_data_stat, cli_data_subset, cli_data_synth;

#endif
