/* folder.h -- what a test's temporary folder holds. */
#ifndef POLAR_FOLDER_H
#define POLAR_FOLDER_H

#include <dirent.h>

/* Files there, hidden ones not counted. */
static inline int folder_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

#endif
