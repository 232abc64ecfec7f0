/* run_data.h -- --data and --skip-bad of `polar run`, `plan` and `train`: short for settings of a run. */
#ifndef POLAR_CLI_RUN_DATA_H
#define POLAR_CLI_RUN_DATA_H

#include "cli.h"

typedef struct run_data {
    const char *data; /* --data */
    int skip_bad;     /* --skip-bad */
    char path[4096], name[512];
} run_data;

#define RUN_DATA_OPTIONS(type, member)                                                              \
    {"data", CLI_STRING(type, member.data), .value = "DIR",                                         \
     .help = "pictures: a folder with train/ and val/, a pack, or synth:classes=10,train=400,..."}, \
    {                                                                                               \
        "skip-bad", CLI_FLAG(type, member.skip_bad), .help = "count broken pictures and go on"      \
    }

/* The settings they stand for, added to `set`; naming: a folder's last name becomes data.set where that is
 * not set. Strings are d's. */
polar_status run_data_settings(cli_list *set, run_data *d, int naming, const char *command);

#endif
