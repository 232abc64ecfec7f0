/* store_damage.c -- damaged checkpoints, and how damaged runs become as if they had never been begun, to a
 * reader or for good, so that the next `polar run` makes them again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "store/store_impl.h"

/* ---- checkpoints -------------------------------------------------------------------------------- */

typedef struct {
    pl_damage_fn tell;
    void *arg;
} listener;

static polar_status look_at(void *arg, const char *path, const char *id, int *more)
{
    const listener *l = arg;
    pl_safetensors *f = NULL;
    polar_status st = pl_safetensors_open(&f, path);
    pl_safetensors_close(f);
    /* _ARG: its run has just ended, and it went */
    if (st != POLAR_E_FORMAT) return st == POLAR_E_ARG ? POLAR_OK : st;
    *more = l->tell(l->arg, id, "its checkpoint; `polar run` begins it anew");
    return POLAR_OK;
}

polar_status pl_store_examine_checkpoints(pl_store *s, pl_damage_fn tell, void *arg)
{
    return pl_store_each_checkpoint(s, look_at, &(listener){tell, arg});
}

polar_status pl_store_specs_of(char *out, size_t room, pl_store *s, const char *run)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    *out = 0;
    PL_TRY(pl_sql_prepare(&st, s, "SELECT group_concat(DISTINCT spec) FROM member WHERE run = ?"));
    polar_status status = pl_sql_bind(s, st, "t", run);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    const char *names = status == POLAR_OK && row ? (const char *)sqlite3_column_text(st, 0) : NULL;
    if (names) snprintf(out, room, "%s", names);
    sqlite3_finalize(st);
    return status;
}

/* ---- setting aside ------------------------------------------------------------------------------ */

static int is_run_id(const char *run)
{
    return strspn(run, "0123456789abcdef") == PL_RUN_ID_CHARS - 1 && !run[PL_RUN_ID_CHARS - 1];
}

typedef struct sorting {
    pl_store_damage other; /* than of one run; what "": none */
    pl_grow runs;
    int no_memory;
} sorting;

static int keep_other(void *arg, const char *run, const char *what)
{
    return pl_damage_keep(&((sorting *)arg)->other, run, what);
}

static int keep_run(void *arg, const char *run, const char *what)
{
    sorting *x = arg;
    if (!is_run_id(run)) return keep_other(x, run, what);
    pl_store_damage *d = pl_grow_add(&x->runs);
    x->no_memory = !d;
    if (d) (void)pl_damage_keep(d, run, what);
    return d != NULL;
}

static int by_run(const void *a, const void *b)
{
    return strcmp(((const pl_store_damage *)a)->run, ((const pl_store_damage *)b)->run);
}

polar_status pl_store_set_aside(pl_store *s)
{
    sorting x = {.runs.item = sizeof(pl_store_damage)};
    polar_status st = pl_store_examine_apart(s, keep_other, keep_run, &x);
    if (st == POLAR_OK && x.no_memory)
        st = PL_FAIL(POLAR_E_NOMEM, "the damaged runs of the store '%s'", pl_text_shown(s->path).text);
    if (st == POLAR_OK && *x.other.what) st = pl_damage_refuse(s, &x.other);
    if (st != POLAR_OK) {
        pl_free(x.runs.data);
        return st;
    }
    pl_store_damage *all = (pl_store_damage *)(void *)x.runs.data;
    int64_t kept = 0;
    if (x.runs.count) qsort(all, (size_t)x.runs.count, sizeof *all, by_run);
    for (int64_t i = 0; i < x.runs.count; i++)
        if (!kept || strcmp(all[kept - 1].run, all[i].run)) all[kept++] = all[i];
    pl_free(s->damaged);
    s->damaged = all;
    s->damaged_count = kept;
    return POLAR_OK;
}

const pl_store_damage *pl_store_damaged(const pl_store *s, int64_t *count)
{
    *count = s->damaged_count;
    return s->damaged;
}

const pl_store_damage *pl_store_damage_of(const pl_store *s, const char *run)
{
    pl_store_damage key;
    if (!s->damaged_count) return NULL;
    snprintf(key.run, sizeof key.run, "%s", run);
    return bsearch(&key, s->damaged, (size_t)s->damaged_count, sizeof *s->damaged, by_run);
}

/* ---- dropping ----------------------------------------------------------------------------------- */

#define COUNT(table) "(SELECT count(*) FROM " table " WHERE " table ".run = run.id)"
#define STRAY(table)     \
    "DELETE FROM " table \
    " WHERE run IN (SELECT id FROM bad) OR run NOT IN (SELECT id FROM run) OR sum IS NOT "

/* Runs with a damaged row are planned again, without results; rows that cannot be believed go, and the next
 * plan puts them anew. */
static const char script[] =
    "INSERT OR IGNORE INTO bad SELECT run FROM result WHERE sum IS NOT " PL_SUM_RESULT ";"
    "INSERT OR IGNORE INTO bad SELECT run FROM epoch WHERE sum IS NOT " PL_SUM_EPOCH ";"
    "INSERT OR IGNORE INTO bad SELECT run FROM gauge WHERE sum IS NOT " PL_SUM_GAUGE ";"
    "INSERT OR IGNORE INTO bad SELECT id FROM run WHERE state <> 'planned' AND"
    "  (results IS NOT " COUNT("result") " OR epochs IS NOT " COUNT("epoch") " OR gauges IS NOT " COUNT(
        "gauge") ");"
                 "INSERT OR IGNORE INTO bad SELECT id FROM run WHERE state = 'planned' AND EXISTS(SELECT 1 "
                 "FROM result WHERE run = id);"
                 "DELETE FROM config WHERE sum IS NOT " PL_SUM_CONFIG ";"
                 "DELETE FROM spec WHERE sum IS NOT " PL_SUM_SPEC ";"
                 "DELETE FROM run WHERE sum IS NOT " PL_SUM_RUN " OR config NOT IN (SELECT key FROM config);"
                 "DELETE FROM member WHERE sum IS NOT " PL_SUM_MEMBER
                 " OR run NOT IN (SELECT id FROM run) OR spec NOT IN (SELECT name FROM spec);" STRAY("result")
                     PL_SUM_RESULT ";" STRAY("epoch") PL_SUM_EPOCH ";" STRAY("gauge") PL_SUM_GAUGE
    ";"
    "UPDATE run SET state = 'planned', wall = 0, started = NULL, finished = NULL, results = NULL, epochs = "
    "NULL, gauges = NULL WHERE id IN (SELECT id FROM bad);"
    "UPDATE run SET sum = " PL_SUM_RUN " WHERE id IN (SELECT id FROM bad);"
    "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = name);"
    "UPDATE spec SET sum = " PL_SUM_SPEC ";";

static polar_status run_script(pl_store *s)
{
    int rc = sqlite3_exec(s->db, script, NULL, NULL, NULL);
    return rc == SQLITE_OK ? POLAR_OK : PL_SQL_FAIL(s, rc);
}

typedef struct dropping {
    pl_store *s;
    polar_status status;
} dropping;

/* Nobody else may be at a run that is reset; its checkpoint goes too. The claims end with the connection. */
static int claim_one(void *arg, const char *run, const char *what)
{
    dropping *d = arg;
    int mine = 0;
    (void)what;
    if (!is_run_id(run)) return 1; /* none, or not an id any more */
    d->status = pl_store_claim(d->s, run, &mine);
    if (d->status == POLAR_OK && !mine)
        d->status =
            PL_FAIL(POLAR_E_STATE, "another process is at run %.12s: try again when it has ended", run);
    if (d->status == POLAR_OK) d->status = pl_store_remove_checkpoints(d->s, run);
    return d->status == POLAR_OK;
}

polar_status pl_store_drop_damaged(pl_store *s)
{
    dropping d = {s, POLAR_OK};
    PL_TRY(pl_store_check(s)); /* what SQLite cannot read, it cannot mend */
    PL_TRY(pl_store_examine(s, claim_one, &d));
    PL_TRY(d.status);
    PL_TRY(pl_store_examine_checkpoints(s, claim_one, &d));
    PL_TRY(d.status);
    PL_TRY(pl_sql_do(s, "CREATE TEMP TABLE IF NOT EXISTS bad(id TEXT PRIMARY KEY)", ""));
    PL_TRY(pl_sql_do(s, "DELETE FROM bad", ""));
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, run_script(s));
}
