/* data_work.h -- what the parts of `polar data` share: progress, the list of broken pictures, the choice of classes. */
#ifndef POLAR_CLI_DATA_WORK_H
#define POLAR_CLI_DATA_WORK_H

#include "cli.h"

typedef struct data_progress {
    cli_context *ctx;
    const char  *doing;        /* "packing" */
    double       began, shown;
    int64_t      bad;          /* broken pictures named so far */
    int          open;         /* a line that rewrites itself stands on the terminal */
} data_progress;

data_progress data_progress_begin(cli_context *ctx, const char *doing);                                /* the clock starts */
void          data_progress_show(void *progress, int64_t done, int64_t total, int64_t bad);            /* a line, not more often than makes sense */
void          data_progress_bad(void *progress, const char *sentence);                                 /* names a picture that is left out; the first of many */
void          data_progress_end(data_progress *p);                                                     /* ends the open line */
int           data_jobs(int64_t asked);                                                                /* threads; 0: one per processor */
polar_status  data_choose(int64_t **out, int64_t of, int64_t classes, uint64_t seed);                  /* the paper's choice, random.Random(seed).sample(range(of), classes); free with pl_free */
polar_status  data_parse_seed(uint64_t *out, const char *text);                                        /* a whole number from 0 to 2^63 - 1 */

extern const cli_command cli_data_pack, cli_data_stat, cli_data_subset, cli_data_synth;

#endif
