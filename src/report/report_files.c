/* report_files.c -- see report_files.h. */
#include "report/report_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/string_build.h"

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

polar_status pl_folder_make(const char *path)
{
    PL_NEED(*path, POLAR_E_ARG, "the folder of a report needs a name");
    char *p = pl_strdup(path);
    PL_NEED(p, POLAR_E_NOMEM, "a path");
    polar_status st = POLAR_OK;
    for (char *c = p + 1; st == POLAR_OK; c++) {
        if (*c && *c != '/') continue;
        char was = *c;
        *c = 0;
        if (mkdir(p, 0777) != 0) {
            int reason = errno;
            if (!is_folder(p))
                st = PL_FAIL(POLAR_E_IO, "make the folder '%s': %s (-o wants a folder that can be written)",
                             p, strerror(reason == EEXIST ? ENOTDIR : reason));
        }
        *c = was;
        if (!was) break;
    }
    pl_free(p);
    return st;
}

polar_status pl_path_join(char **out, const char *dir, const char *name)
{
    pl_string s = {0};
    pl_string_add(&s, "%s/%s", dir, name);
    return pl_string_take(out, &s, "a path");
}

polar_status pl_out_begin(pl_out_file *o, const char *dir, const char *name)
{
    *o = (pl_out_file){0};
    pl_string part = {0};
    PL_TRY(pl_path_join(&o->path, dir, name));
    pl_string_add(&part, "%s.part", o->path);
    polar_status st = pl_string_take(&o->part, &part, "a path");
    if (st == POLAR_OK && !(o->f = fopen(o->part, "w")))
        st = PL_FAIL(POLAR_E_IO, "write '%s': %s", o->path, strerror(errno));
    if (st != POLAR_OK) {
        pl_free(o->path);
        pl_free(o->part);
    }
    return st;
}

polar_status pl_out_end(pl_out_file *o, polar_status st)
{
    int lost = ferror(o->f);
    errno = 0;
    if (fclose(o->f) != 0) lost = 1;
    if (st == POLAR_OK && lost)
        st = PL_FAIL(POLAR_E_IO, "write '%s': %s", o->path,
                     errno ? strerror(errno) : "some of it did not arrive");
    if (st == POLAR_OK && rename(o->part, o->path) != 0)
        st = PL_FAIL(POLAR_E_IO, "write '%s': %s", o->path, strerror(errno));
    if (st != POLAR_OK) unlink(o->part);
    pl_free(o->path);
    pl_free(o->part);
    return st;
}
