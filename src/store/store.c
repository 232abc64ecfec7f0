/* store.c -- opening and closing a store.
 *
 * Invariants:
 *  1. A connection to write is in WAL mode with synchronous = FULL: what a call has put survives kill -9 and
 * a power cut.
 *  2. The database file is opened by SQLite only: closing any other descriptor of it would drop SQLite's
 * POSIX locks in this process.
 *  3. A reader changes nothing (query_only); it opens to write where it may, only so that the last to close
 * can tidy -wal and -shm away. Where it may not even make them (a read-only folder) and there is no -wal, the
 * file is read as immutable.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

/* KiB, at most: most stores, and a plan of half a million runs, fit */
#define CACHE "PRAGMA cache_size = -65536"

static polar_status path_of(char **out, const char *path, const char *tail)
{
    size_t a = strlen(path), b = strlen(tail);
    *out = pl_alloc(a + b + 1);
    PL_NEED(*out, POLAR_E_NOMEM, "a path");
    memcpy(*out, path, a);
    memcpy(*out + a, tail, b + 1);
    return POLAR_OK;
}

/* ---- to write ----------------------------------------------------------------------------------- */

/* The switch wants the file for itself for a moment and does not wait by itself. */
static polar_status use_wal(pl_store *s)
{
    const struct timespec pause = {0, 20 * 1000 * 1000};
    for (int tries = 0;; tries++) {
        int rc = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (rc == SQLITE_OK) return pl_sql_do(s, "PRAGMA synchronous = FULL", "");
        if (((rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED) || tries == 500)
            return PL_SQL_FAIL(s, rc);
        nanosleep(&pause, NULL);
    }
}

static polar_status open_lock(pl_store *s)
{
    char *path = NULL;
    PL_TRY(path_of(&path, s->path, ".lock"));
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    polar_status st = s->lock_fd >= 0 ? POLAR_OK
                                      : PL_FAIL(POLAR_E_IO, "open '%s' beside the store: %s",
                                                pl_text_shown(path).text, strerror(errno));
    pl_free(path);
    return st;
}

static polar_status open_to_write(pl_store *s)
{
    int version = 0;
    PL_TRY(pl_log_need(s));
    PL_TRY(pl_sql_open(s, s->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    if (sqlite3_db_readonly(s->db, "main") == 1) return PL_SQL_FAIL(s, SQLITE_READONLY);
    PL_TRY(pl_store_identify(s, pl_store_steps, PL_STORE_VERSION, &version));
    PL_TRY(use_wal(s));
    PL_TRY(pl_sql_do(s, CACHE, ""));
    PL_TRY(pl_store_upgrade(s, pl_store_steps, PL_STORE_VERSION));
    PL_TRY(pl_store_check(s));
    return open_lock(s);
}

/* ---- to read ------------------------------------------------------------------------------------ */

/* "file:<path>?immutable=1", the path's special characters as %xx. */
static polar_status immutable_name(char **out, const char *path)
{
    size_t n = strlen(path);
    char *p = *out = pl_alloc(3 * n + 32);
    PL_NEED(p, POLAR_E_NOMEM, "a path");
    p += sprintf(p, "file:%s", *path == '/' ? "//" : "");
    for (size_t i = 0; i < n; i++)
        p +=
            strchr("?#%", path[i]) ? sprintf(p, "%%%02x", (unsigned char)path[i]) : sprintf(p, "%c", path[i]);
    strcpy(p, "?immutable=1");
    return POLAR_OK;
}

static polar_status open_immutable(pl_store *s)
{
    struct stat wal;
    char *name = NULL;
    PL_TRY(path_of(&name, s->path, "-wal"));
    int pending = stat(name, &wal) == 0 && wal.st_size > 0;
    pl_free(name);
    PL_NEED(!pending, POLAR_E_IO,
            "the store '%s' holds work of an interrupted run and its folder is read-only: copy '%s' and "
            "'%s-wal' to where you may write",
            pl_text_shown(s->path).text, pl_text_shown(s->path).text, pl_text_shown(s->path).text);
    pl_sql_close(s);
    PL_TRY(immutable_name(&name, s->path));
    polar_status st = pl_sql_open(s, name, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    pl_free(name);
    return st;
}

static polar_status open_to_read(pl_store *s, pl_store_mode mode)
{
    int version = 0;
    struct stat file;
    PL_NEED(stat(s->path, &file) == 0, errno == ENOENT ? POLAR_E_ARG : POLAR_E_IO,
            "no store at '%s': %s (`polar run` makes one)", pl_text_shown(s->path).text, strerror(errno));
    PL_TRY(pl_log_need(s));
    /* a file that may not be written is opened to read */
    PL_TRY(pl_sql_open(s, s->path, SQLITE_OPEN_READWRITE));
    PL_TRY(pl_sql_do(s, "PRAGMA query_only = 1", ""));
    int rc = sqlite3_exec(s->db, "SELECT 1 FROM sqlite_schema", NULL, NULL, NULL);
    if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY) PL_TRY(open_immutable(s));
    PL_TRY(pl_store_identify(s, pl_store_steps, PL_STORE_VERSION, &version));
    PL_NEED(version > 0, POLAR_E_FORMAT, "the store '%s' is empty (`polar run` fills it)",
            pl_text_shown(s->path).text);
    PL_NEED(version == PL_STORE_VERSION, POLAR_E_FORMAT,
            "the store '%s' has the older version %d: `polar run` upgrades it", pl_text_shown(s->path).text,
            version);
    PL_TRY(pl_sql_do(s, CACHE, ""));
    if (mode == PL_STORE_EXAMINE) return POLAR_OK;
    return mode == PL_STORE_SOUND ? pl_store_set_aside(s) : pl_store_verify(s); /* the structure too */
}

/* ---- both --------------------------------------------------------------------------------------- */

polar_status pl_store_open(pl_store **out, const char *path, pl_store_mode mode)
{
    struct stat file;
    *out = NULL;
    PL_NEED(path && *path && *path != ':', POLAR_E_ARG, "the store wants a file name");
    PL_NEED(stat(path, &file) != 0 || S_ISREG(file.st_mode), POLAR_E_ARG,
            "the store '%s' is not a regular file", pl_text_shown(path).text);
    pl_store *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "the store's handle");
    s->lock_fd = -1;
    s->writes = mode == PL_STORE_WRITE;
    s->path = pl_strdup(path);
    polar_status st = s->path ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "the store's path");
    if (st == POLAR_OK) st = s->writes ? open_to_write(s) : open_to_read(s, mode);
    if (st == POLAR_OK) *out = s;
    else pl_store_close(s);
    return st;
}

void pl_store_close(pl_store *s)
{
    if (!s) return;
    if (s->lock_fd >= 0) close(s->lock_fd);
    pl_sql_close(s);
    pl_free(s->damaged);
    pl_free(s->path);
    pl_free(s);
}

const char *pl_store_path(const pl_store *s)
{
    return s->path;
}

int pl_store_torn(const pl_store *s)
{
    return s->torn;
}
