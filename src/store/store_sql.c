/* store_sql.c -- SQLite as the rest of the store sees it: typed arguments in, a status with a sentence out.
 *
 * SQLite takes its memory from base/alloc.h, so that tests can make it run out there too. Every connection
 * waits up to BUSY_SECONDS for others.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

#define BUSY_SECONDS 60
/* of a text, and of a row; the longest we write is a spec's file, 256 KiB */
#define MOST_VALUE_BYTES (1 << 20)

/* ---- memory ------------------------------------------------------------------------------------- */

#define HEAD ((size_t)16) /* in front of each block: its size; keeps the alignment SQLite wants (8) */

static void *memory_take(int bytes)
{
    char *p = pl_alloc(HEAD + (size_t)bytes);
    if (!p) return NULL;
    *(int *)p = bytes;
    return p + HEAD;
}

static int memory_size(void *block)
{
    return block ? *(int *)((char *)block - HEAD) : 0;
}

static void memory_free(void *block)
{
    if (block) pl_free((char *)block - HEAD);
}

static void *memory_resize(void *block, int bytes)
{
    char *p = pl_realloc((char *)block - HEAD, HEAD + (size_t)memory_size(block), HEAD + (size_t)bytes);
    if (!p) return NULL;
    *(int *)p = bytes;
    return p + HEAD;
}

static int memory_round(int bytes)
{
    return (bytes + 15) & ~15;
}
static int memory_begin(void *unused)
{
    return (void)unused, SQLITE_OK;
}
static void memory_end(void *unused)
{
    (void)unused;
}

static void configure_once(void)
{
    static const sqlite3_mem_methods ours = {memory_take,  memory_free,  memory_resize, memory_size,
                                             memory_round, memory_begin, memory_end,    NULL};
    /* refused where somebody used SQLite before us: no harm */
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &ours);
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

/* ---- errors ------------------------------------------------------------------------------------- */

/* Whether the store's folder lacks the right: F_OK to be there, W_OK to be written. */
static int folder_lacks(const pl_store *s, int right)
{
    char folder[4096];
    const char *slash = strrchr(s->path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - s->path + 1) : 1, slash ? s->path : ".");
    return access(folder, right) != 0;
}

static int no_folder(const pl_store *s)
{
    return folder_lacks(s, F_OK) && errno == ENOENT;
}

/* SQLite's own reason is often that of its last attempt at something else. */
static const char *why_not_opened(const pl_store *s, int io)
{
    if (no_folder(s)) return "there is no folder for it (make it, or give another file with --store)";
    if (s->writes && folder_lacks(s, W_OK))
        return "you may not write in its folder (give another file with --store)";
    return io ? strerror(io) : "an error of the file system";
}

polar_status pl_sql_fail(pl_store *s, int rc, const char *file, int line)
{
    pl_shown path = pl_text_shown(s->path);
    int io = s->db ? sqlite3_system_errno(s->db) : 0;
    /* what fails there where SQLite kept no reason */
    int grows = rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_SHMSIZE || rc == SQLITE_IOERR_FSYNC;
    if ((rc & 0xff) == SQLITE_FULL ||
        ((rc & 0xff) == SQLITE_IOERR && (io == ENOSPC || io == EDQUOT || io == EFBIG || (grows && !io))))
        return pl_fail(POLAR_E_IO, file, line,
                       "no room for the store '%s' (%s): what it holds is safe; make room and give the same "
                       "command again",
                       path.text, io ? strerror(io) : "a full disk, or a limit on the size of files");
    switch (rc & 0xff) {
    case SQLITE_NOMEM: return pl_fail(POLAR_E_NOMEM, file, line, "memory for the store '%s'", path.text);
    case SQLITE_NOTADB:
        return pl_fail(POLAR_E_FORMAT, file, line,
                       "'%s' is no store: not an SQLite database (give another file with --store)",
                       path.text);
    case SQLITE_CORRUPT:
        return pl_fail(POLAR_E_FORMAT, file, line,
                       "the store '%s' is damaged (%s): move it away and run again, or rescue it with "
                       "`sqlite3 FILE .recover`",
                       path.text, s->db ? sqlite3_errmsg(s->db) : "unreadable");
    case SQLITE_TOOBIG:
        return pl_fail(POLAR_E_FORMAT, file, line,
                       "the store '%s' holds a value of more than %d bytes, which polar never writes: the "
                       "file was changed or is damaged",
                       path.text, MOST_VALUE_BYTES);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return pl_fail(POLAR_E_IO, file, line,
                       "the store '%s' or its folder is read-only: copy it to where you may write, or give "
                       "another with --store",
                       path.text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return pl_fail(POLAR_E_IO, file, line,
                       "another program has kept the store '%s' locked for %d seconds", path.text,
                       BUSY_SECONDS);
    case SQLITE_CANTOPEN:
        return pl_fail(no_folder(s) ? POLAR_E_ARG : POLAR_E_IO, file, line,
                       "the store '%s' cannot be opened: %s", path.text, why_not_opened(s, io));
    case SQLITE_IOERR:
        return pl_fail(POLAR_E_IO, file, line, "the store '%s': %s", path.text,
                       io ? strerror(io) : "an error of the file system");
    default:
        return pl_fail(POLAR_E_STATE, file, line, "the store '%s': %s (SQLite %d)", path.text,
                       s->db ? sqlite3_errmsg(s->db) : "no connection", rc);
    }
}

/* A store may be anybody's file: nothing in its schema is executed, and no value is longer than what we
 * write. */
static polar_status harden(pl_store *s)
{
    static const struct {
        int option, value;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
        {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
        {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int rc = sqlite3_db_config(s->db, settings[i].option, settings[i].value, NULL);
        if (rc != SQLITE_OK) return PL_SQL_FAIL(s, rc);
    }
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    return pl_sql_do(s, "PRAGMA cell_size_check = 1", "");
}

polar_status pl_sql_open(pl_store *s, const char *name, int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_once);
    int rc = sqlite3_open_v2(name, &s->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc != SQLITE_OK) return PL_SQL_FAIL(s, rc);
    sqlite3_busy_timeout(s->db, BUSY_SECONDS * 1000);
    PL_TRY(harden(s));
    PL_TRY(pl_sum_register(s));
    return pl_sql_prepare(&s->rollback, s, "ROLLBACK");
}

void pl_sql_close(pl_store *s)
{
    for (int i = 0; i < PL_SQL_KEPT; i++) {
        sqlite3_finalize(s->kept[i].st);
        s->kept[i].st = NULL;
        s->kept[i].sql = NULL;
    }
    sqlite3_finalize(s->rollback);
    sqlite3_close(s->db);
    s->rollback = NULL;
    s->db = NULL;
}

/* ---- statements --------------------------------------------------------------------------------- */

polar_status pl_sql_prepare(sqlite3_stmt **out, pl_store *s, const char *sql)
{
    int rc = sqlite3_prepare_v2(s->db, sql, -1, out, NULL);
    return rc == SQLITE_OK ? POLAR_OK : PL_SQL_FAIL(s, rc);
}

polar_status pl_sql_hold(sqlite3_stmt **out, pl_store *s, const char *sql)
{
    int i = 0;
    while (i < PL_SQL_KEPT && s->kept[i].sql && s->kept[i].sql != sql) i++;
    assert(i < PL_SQL_KEPT);
    if (!s->kept[i].st) {
        PL_TRY(pl_sql_prepare(&s->kept[i].st, s, sql));
        s->kept[i].sql = sql;
    }
    *out = s->kept[i].st;
    return POLAR_OK;
}

void pl_sql_release(sqlite3_stmt *st)
{
    if (!st) return;
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
}

static polar_status bind_v(pl_store *s, sqlite3_stmt *st, const char *types, va_list ap)
{
    for (int i = 0; types[i]; i++) {
        int rc = SQLITE_OK;
        switch (types[i]) {
        /* it outlives the step */
        case 't': rc = sqlite3_bind_text(st, i + 1, va_arg(ap, const char *), -1, SQLITE_STATIC); break;
        case 'i': rc = sqlite3_bind_int64(st, i + 1, va_arg(ap, int64_t)); break;
        case 'r': rc = sqlite3_bind_double(st, i + 1, va_arg(ap, double)); break;
        default: assert(!"a letter of pl_sql_bind");
        }
        if (rc != SQLITE_OK) return PL_SQL_FAIL(s, rc);
    }
    return POLAR_OK;
}

polar_status pl_sql_bind(pl_store *s, sqlite3_stmt *st, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    polar_status status = bind_v(s, st, types, ap);
    va_end(ap);
    return status;
}

polar_status pl_sql_next(pl_store *s, sqlite3_stmt *st, int *row)
{
    int rc = sqlite3_step(st);
    *row = rc == SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? POLAR_OK : PL_SQL_FAIL(s, rc);
}

static polar_status put_v(pl_store *s, sqlite3_stmt *st, const char *types, va_list ap)
{
    int row = 0;
    polar_status status = bind_v(s, st, types, ap);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    sqlite3_reset(st);
    return status;
}

polar_status pl_sql_put(pl_store *s, sqlite3_stmt *st, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    polar_status status = put_v(s, st, types, ap);
    va_end(ap);
    return status;
}

polar_status pl_sql_do(pl_store *s, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    PL_TRY(pl_sql_prepare(&st, s, sql));
    va_start(ap, types);
    polar_status status = put_v(s, st, types, ap);
    va_end(ap);
    sqlite3_finalize(st);
    return status;
}

polar_status pl_sql_integer(pl_store *s, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, sql));
    polar_status status = pl_sql_next(s, st, &row);
    *out = row ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    return status;
}

polar_status pl_sql_begin(pl_store *s)
{
    PL_NEED(s->writes, POLAR_E_STATE, "the store '%s' was opened for reading", pl_text_shown(s->path).text);
    return pl_sql_do(s, "BEGIN IMMEDIATE", "");
}

polar_status pl_sql_end(pl_store *s, polar_status st)
{
    if (st == POLAR_OK) st = pl_sql_do(s, "COMMIT", "");
    if (st != POLAR_OK) pl_sql_abandon(s);
    return st;
}

void pl_sql_abandon(pl_store *s)
{
    if (sqlite3_get_autocommit(s->db)) return;
    (void)sqlite3_step(s->rollback);
    sqlite3_reset(s->rollback);
}
