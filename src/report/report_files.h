/* report_files.h -- folders and files of a report. A file appears under its name when it is whole: it is
 * written beside it and renamed. */
#ifndef PL_REPORT_REPORT_FILES_H
#define PL_REPORT_REPORT_FILES_H

#include <stdio.h>

#include "base/status.h"

typedef struct pl_out_file {
    FILE *f;
    char *path, *part; /* the name it will have, the name it has */
} pl_out_file;

/* with its parents; fine when it is there */
polar_status pl_folder_make(const char *path);
/* "dir/name", free with pl_free */
polar_status pl_path_join(char **out, const char *dir, const char *name);
/* opens dir/name for writing */
polar_status pl_out_begin(pl_out_file *o, const char *dir, const char *name);
/* closes and renames; with another status than OK removes it and returns that */
polar_status pl_out_end(pl_out_file *o, polar_status st);

#endif
