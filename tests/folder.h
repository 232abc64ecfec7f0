/* folder.h -- what a test's temporary folder holds. */
#ifndef POLAR_FOLDER_H
#define POLAR_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>

/* Files there, hidden ones not counted. */
static inline int folder_files(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static inline int folder_remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

/* The folder with everything in it. */
static inline void folder_remove(const char *path)
{
    nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
