/* whole_file.h -- a file that appears whole: it grows under another name beside its place, is synced, and
 * takes its own in one rename.
 *
 *     pl_whole_file w;
 *     PL_TRY(pl_whole_file_begin(&w, path));
 *     polar_status st = pl_write_all(w.fd, bytes, n, path);
 *     return pl_whole_file_end(&w, st);               // the new file, or whatever was there before
 *
 * Whoever opens the path sees the old file or the new one. On any failure the other name is removed; only
 * kill -9 or a power cut can leave a <path>.tmp.<pid>.<n>. A path that is a symbolic link stays one: the file
 * it leads to is replaced, or made. The new file has the old one's mode and, where we may give it, its owner;
 * other names of the old one (hard links) keep the old one. Devices, pipes and folders are refused.
 */
#ifndef PL_BASE_WHOLE_FILE_H
#define PL_BASE_WHOLE_FILE_H

#include <stddef.h>

#include "base/status.h"

typedef struct pl_whole_file {
    int fd;           /* write here, anywhere in the file */
    const char *path; /* borrowed */
    char *target;     /* where path leads */
    char *temp;
} pl_whole_file;

/* _ARG no folder for it, or something other than a file is there; _IO */
polar_status pl_whole_file_begin(pl_whole_file *w, const char *path);
/* syncs and renames; with another status than OK removes and returns that */
polar_status pl_whole_file_end(pl_whole_file *w, polar_status st);
/* where a path leads that may be a symbolic link, there or not; pl_free it */
polar_status pl_whole_file_target(char **out, const char *path);
/* however many calls it takes; path for the sentence */
polar_status pl_write_all(int fd, const void *bytes, size_t n, const char *path);

#endif
