/* image_tree.c -- mkdir, rename, and the removal of what did not become whole. */
#include "data/set/image_tree.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nothing there, or an empty folder, which rename replaces. */
static int is_free(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0) return 1;
    DIR *d = S_ISDIR(s.st_mode) ? opendir(path) : NULL;
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return d && !n;
}

/* The working directory and the one above it cannot be replaced by a rename, empty or not. */
static int ends_in_dots(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return !strcmp(name, ".") || !strcmp(name, "..");
}

polar_status pl_image_tree_begin(pl_image_tree *t, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    PL_NEED(n && n < sizeof t->path, POLAR_E_ARG, "the folder's name '%.80s' is empty or too long", path);
    memcpy(t->path, path, n);
    t->path[n] = 0;
    PL_NEED(is_free(t->path), POLAR_E_ARG,
            "'%s' is there already and not an empty folder: nothing is overwritten", t->path);
    PL_NEED(!ends_in_dots(t->path), POLAR_E_ARG, "'%s' cannot take a new folder's place: give it a name",
            t->path);
    int made = -1;
    for (int i = 0; i < 1000; i++) { /* a number may be that of a run that was killed */
        snprintf(t->part, sizeof t->part, "%s.tmp.%ld.%d", t->path, (long)getpid(), i);
        made = mkdir(t->part, 0777);
        if (made == 0 || errno != EEXIST) break;
    }
    int lost = errno == ENOENT || errno == ENOTDIR, wrong = lost || errno == ENAMETOOLONG;
    PL_NEED(made == 0, wrong ? POLAR_E_ARG : POLAR_E_IO, "make the folder '%s': %s%s", t->path,
            strerror(errno), lost ? " (the folder above it is not there)" : "");
    return POLAR_OK;
}

polar_status pl_image_tree_folder(const pl_image_tree *t, const char *name)
{
    char path[sizeof t->part + 1024];
    size_t stem = strlen(t->part);
    PL_NEED((size_t)snprintf(path, sizeof path, "%s/%s", t->part, name) < sizeof path, POLAR_E_ARG,
            "the folder's name '%.80s' is too long", name);
    for (char *p = path + stem + 1;; p++) {
        if (*p && *p != '/') continue;
        char kept = *p;
        *p = 0;
        int made = mkdir(path, 0777) == 0 || errno == EEXIST;
        PL_NEED(made, POLAR_E_IO, "make the folder '%s': %s", path, strerror(errno));
        *p = kept;
        if (!kept) return POLAR_OK;
    }
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

void pl_image_tree_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

polar_status pl_image_tree_end(pl_image_tree *t, polar_status st)
{
    if (st == POLAR_OK && rename(t->part, t->path) != 0)
        st = PL_FAIL(POLAR_E_IO, "rename '%s' to '%s': %s", t->part, t->path, strerror(errno));
    if (st != POLAR_OK) pl_image_tree_remove(t->part);
    return st;
}
