/* store_impl.h -- inside src/store: the connection, statements with typed arguments, and the memory of
 * selected rows. */
#ifndef PL_STORE_STORE_IMPL_H
#define PL_STORE_STORE_IMPL_H

#include <sqlite3.h>
#include <stddef.h>

#include "base/checksum.h"
#include "store/store.h"

typedef struct pl_pool pl_pool; /* strings and small arrays, freed together */
enum { PL_SQL_KEPT = 8 };

struct pl_store {
    sqlite3 *db;
    sqlite3_stmt *rollback; /* made when it opens: rolling back must not want memory */
    struct {
        const char *sql;
        sqlite3_stmt *st;
    } kept[PL_SQL_KEPT]; /* statements that come again and again */
    char *path;
    int writes;              /* PL_STORE_WRITE */
    int torn;                /* the log's end was not whole */
    int (*leave)(void *arg); /* asked now and then while a plan is put: not 0 ends it; or NULL */
    void *leave_arg;
    int lock_fd;              /* "<path>.lock", or -1; the claims belong to this open file */
    pl_store_damage *damaged; /* runs that were set aside, by id */
    int64_t damaged_count;
};

/* ---- statements (store_sql.c) ------------------------------------------------------------------- */

/* an SQLite result code as a status with its sentence */
polar_status pl_sql_fail(pl_store *s, int rc, const char *file, int line);
#define PL_SQL_FAIL(s, rc) pl_sql_fail((s), (rc), __FILE__, __LINE__)
/* sets s->db; waits for locks from then on */
polar_status pl_sql_open(pl_store *s, const char *name, int flags);
/* s->db and what belongs to it; fine when it is not open */
void pl_sql_close(pl_store *s);
/* finalise with sqlite3_finalize */
polar_status pl_sql_prepare(sqlite3_stmt **out, pl_store *s, const char *sql);
/* the same, kept for the next time (sql: a constant); not while it is held */
polar_status pl_sql_hold(sqlite3_stmt **out, pl_store *s, const char *sql);
/* one that was held; NULL is fine */
void pl_sql_release(sqlite3_stmt *st);
/* by letter: t text (NULL: null; borrowed until the last step), i int64_t, r double (NaN becomes null) */
polar_status pl_sql_bind(pl_store *s, sqlite3_stmt *st, const char *types, ...);
/* one step: *row 1 with a row, 0 after the last */
polar_status pl_sql_next(pl_store *s, sqlite3_stmt *st, int *row);
/* bind, step, reset: a statement without rows, again and again */
polar_status pl_sql_put(pl_store *s, sqlite3_stmt *st, const char *types, ...);
/* prepare, bind, step, finalise */
polar_status pl_sql_do(pl_store *s, const char *sql, const char *types, ...);
/* the one number a statement gives */
polar_status pl_sql_integer(pl_store *s, const char *sql, int64_t *out);
/* a transaction that will write */
polar_status pl_sql_begin(pl_store *s);
/* commits if st is POLAR_OK; else rolls back and returns st with its sentence */
polar_status pl_sql_end(pl_store *s, polar_status st);
/* rolls back if a transaction is open; takes no memory, leaves the sentence alone */
void pl_sql_abandon(pl_store *s);

/* ---- columns of a row (store_read.c): a store may come from anywhere ---------------------------- */

typedef enum pl_text_kind {
    PL_TEXT_WORD, /* a-z, 0-9, _: fit for a file's name */
    PL_TEXT_ID,   /* `most` hexadecimal digits */
    PL_TEXT_LINE, /* one line of UTF-8 without control characters */
    PL_TEXT_LINES /* UTF-8 without zero bytes: a spec's file */
} pl_text_kind;

typedef struct pl_text_rule {
    const char *what; /* "the name of a spec" */
    pl_text_kind kind;
    size_t most; /* bytes */
    int maybe;   /* it may be null */
} pl_text_rule;

extern const pl_text_rule pl_rule_cell, pl_rule_arm; /* what a plan puts, and what is read of it */

/* before it is put: POLAR_E_FORMAT */
polar_status pl_text_check(pl_store *s, const pl_text_rule *rule, const char *text);
/* a copy, or NULL for a null that may be */
polar_status pl_read_text(const char **out, pl_pool **pool, pl_store *s, sqlite3_stmt *st, int column,
                          const pl_text_rule *rule);
/* into an array; never null */
polar_status pl_read_chars(char *out, size_t room, pl_store *s, sqlite3_stmt *st, int column,
                           const pl_text_rule *rule);
polar_status pl_read_integer(int64_t *out, pl_store *s, sqlite3_stmt *st, int column, const char *what,
                             int64_t least, int64_t most);
/* null is NaN */
polar_status pl_read_real(double *out, pl_store *s, sqlite3_stmt *st, int column, const char *what);

/* ---- what rots (store_sum.c, store_log.c) ------------------------------------------------------- */

/* The checksum of a row, as SQL over its columns: the column `sum` of every table. */
#define PL_SUM_SPEC   "polar_sum('spec', name, sha, title, testbed, metric, text, members)"
#define PL_SUM_CONFIG "polar_sum('config', key, json)"
#define PL_SUM_RUN                                                                                    \
    "polar_sum('run', id, testbed, seed, config, state, wall, started, finished, code, device, cpu, " \
    "threads, data, results, epochs, gauges)"
#define PL_SUM_MEMBER       "polar_sum('member', spec, cell, arm, seed, ord, run)"
#define PL_SUM_EPOCH        "polar_sum('epoch', run, epoch, train_loss, valid, lr, improved, seconds)"
#define PL_SUM_RESULT       "polar_sum('result', run, name, value)"
#define PL_SUM_GAUGE        "polar_sum('gauge', run, step, block, shadow, map, deviation)"
#define PL_CONFIG_KEY(json) "printf('%016x', polar_sum('json', " json "))" /* of a configuration */

void pl_sum_config_key(char out[PL_CHECKSUM_HEX], const char *json); /* what PL_CONFIG_KEY gives */
polar_status pl_sum_register(pl_store *s); /* polar_sum for the statements of this connection */
/* pl_store_examine; what a run gave, which can be made again without touching others, goes to tell_run */
polar_status pl_store_examine_apart(pl_store *s, pl_damage_fn tell, pl_damage_fn tell_run, void *arg);
int pl_damage_keep(void *damage, const char *run, const char *what);        /* pl_damage_fn: the first one */
polar_status pl_damage_refuse(const pl_store *s, const pl_store_damage *d); /* POLAR_E_FORMAT that names it */

typedef enum pl_log_state {
    PL_LOG_SOUND,
    PL_LOG_TORN,   /* its last transaction is not whole */
    PL_LOG_DAMAGED /* one before another is not as it was written */
} pl_log_state;

/* *wrong: the entry, from 1; 0: the header */
polar_status pl_log_examine(pl_log_state *out, int64_t *wrong, const char *store);
polar_status pl_log_need(pl_store *s); /* POLAR_E_FORMAT: damaged, or torn where it is to be read */

/* ---- the schema (store_schema.c) ---------------------------------------------------------------- */

#define PL_STORE_APPLICATION 0x706f6c72 /* "polr": PRAGMA application_id */

/* step[v] takes a store of version v to v + 1 */
extern const char *const pl_store_steps[PL_STORE_VERSION];

/* Whose file it is: a store of at most `count` steps that holds the tables of its version and nothing else
 * (no trigger, no view), or one with nothing in it yet; sets *version. */
polar_status pl_store_identify(pl_store *s, const char *const *steps, int count, int *version);
/* to version `count`, all steps in one transaction */
polar_status pl_store_upgrade(pl_store *s, const char *const *steps, int count);
/* the file's structure, by SQLite's integrity_check */
polar_status pl_store_check(pl_store *s);

/* ---- checkpoints (store_checkpoint.c) ----------------------------------------------------------- */

#define PL_STORE_CHECKPOINT ".safetensors" /* the end of their names */

/* "<id>....safetensors": the id of the run that it is named after, its bearer */
int pl_store_is_checkpoint(char id[PL_RUN_ID_CHARS], const char *file);
/* every checkpoint of the store, until more is 0 or a status is none */
typedef polar_status (*pl_checkpoint_fn)(void *arg, const char *path, const char *bearer, int *more);
polar_status pl_store_each_checkpoint(pl_store *s, pl_checkpoint_fn fn, void *arg);

/* ---- finished runs of elsewhere (store_join.c) -------------------------------------------------- */

typedef struct pl_joining { /* within a transaction of `out` */
    pl_store *out;
    pl_damage_fn tell; /* of disagreements */
    void *arg;
    pl_merge_count did;
    int deaf;  /* tell has heard enough */
    int alone; /* `out` began without a run: nobody is at one */
    sqlite3_stmt *config, *planned, *run, *epoch, *gauge, *result;
} pl_joining;

typedef struct pl_run_rows { /* what there is of a run beside its row */
    pl_store_epochs epochs;
    pl_store_gauges gauges;
} pl_run_rows;

polar_status pl_run_rows_read(pl_run_rows *r, pl_store *s, const char *id); /* free also after a failure */
void pl_run_rows_free(pl_run_rows *r);

polar_status pl_join_begin(pl_joining *j); /* prepares; finalise also after a failure */
void pl_join_finalise(pl_joining *j);      /* before the transaction ends */
polar_status pl_join_count(pl_joining *j); /* sets did.runs and did.finished */
void pl_join_differ(pl_joining *j, const char *run, const char *what); /* counts and tells */
/* planned where `out` does not know it; its results where `out` lacks them, compared where it has them.
 * Results are by name; rows: empty unless it is finished */
polar_status pl_join_run(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows);

/* pl_store_put_spec within a transaction (store_put.c) */
polar_status pl_put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows,
                         int64_t count);

/* ---- memory of selected rows (store_pool.c) ----------------------------------------------------- */

/* NULL when there is no memory; *pool begins as NULL */
void *pl_pool_take(pl_pool **pool, size_t bytes);
polar_status pl_pool_copy(const char **out, pl_pool **pool, const char *text);
void pl_pool_free(pl_pool *pool); /* NULL is fine */

typedef struct pl_grow { /* an array that grows */
    char *data;
    int64_t count, room;
    size_t item;
} pl_grow;

void *pl_grow_add(pl_grow *g); /* one more, cleared; NULL when there is no memory */

#endif
