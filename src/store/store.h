/* store.h -- what is known of every run: one SQLite file, written by `polar run`, read by audits and reports.
 *
 *     pl_store *s;
 *     PL_TRY(pl_store_open(&s, "polar.db", PL_STORE_WRITE));            // makes it, or upgrades an older one
 *     // the plan; runs that are known keep what they have
 *     PL_TRY(pl_store_put_spec(s, &spec, rows, count));
 *     PL_TRY(pl_store_claim(s, id, &mine));                             // a kernel lock: kill -9 releases it
 *     PL_TRY(pl_store_begin_run(s, id, &provenance, fresh));
 *     PL_TRY(pl_store_put_progress(s, id, &progress));                  // epochs so far, then the checkpoint
 *     PL_TRY(pl_store_finish(s, id, PL_RUN_DONE, results, n, &progress));
 *     pl_store_release(s, id);
 *     pl_store_close(s);
 *
 *     // a spec's runs with state, results, provenance
 *     pl_store_members m;
 *     PL_TRY(pl_store_select_members(&m, s, "so3_capacity"));
 *     const double *mse = pl_store_result(&m.rows[0], "test_mse");      // NULL: not there; NaN is a value
 *     pl_store_members_free(&m);
 *
 * Files: "polar.db" (WAL mode: beside it -wal and -shm while it is open), "polar.db.lock" (claims; empty),
 * "polar.db.d/" (checkpoints). A connection belongs to one thread at a time; every job opens its own. What
 * goes wrong is one sentence: POLAR_E_ARG no such store, or no folder for it, POLAR_E_FORMAT not a store of
 * ours, damaged or newer, POLAR_E_IO a full disk, a read-only file or folder.
 */
#ifndef PL_STORE_STORE_H
#define PL_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_STORE_VERSION 4      /* of the schema: PRAGMA user_version */
#define PL_RUN_ID_CHARS  33     /* 32 hex digits and the zero */
#define PL_METRIC_WALL   "wall" /* what audits compare besides results: a run's seconds */

typedef struct pl_store pl_store;

typedef enum pl_store_mode {
    PL_STORE_READ,  /* it must exist; a read-only file or folder will do */
    PL_STORE_SOUND, /* the same of what is sound: see pl_store_set_aside */
    /* made where there is none; its rows are not verified (pl_store_verify) */
    PL_STORE_WRITE,
    PL_STORE_EXAMINE /* to read what may be damaged: nothing is verified */
} pl_store_mode;

typedef enum pl_run_state {
    PL_RUN_PLANNED = 0, /* not finished: never begun, running now, or interrupted */
    PL_RUN_DONE = 1,
    PL_RUN_DIVERGED = 2 /* finished, with a NaN or an infinity: a result like any other */
} pl_run_state;

/* ---- rows --------------------------------------------------------------------------------------- */

typedef struct pl_epoch_row { /* one epoch of one run */
    int64_t epoch;            /* from 1 */
    /* mean over the epoch; the validation metric after it; the matrix route's lr in its last step */
    double train_loss, valid, lr;
    int improved; /* the best validation so far */
    /* that it took, an ensemble's shared among its members; NaN of an epoch put by version 1; no result and
     * in no audit */
    double seconds;
} pl_epoch_row;

typedef struct pl_result { /* one number of a finished run; no clock */
    char name[32];         /* "test_mse", "best_epoch", ...: [a-z0-9_]+ */
    double value;          /* may be NaN */
} pl_result;

typedef struct pl_gauge_row { /* ||shadow update - P u Q^T|| / ||u|| of one block at one step */
    int64_t step;             /* from 1 */
    int64_t shadow;           /* from 0 */
    char block[64];           /* the parameter's name */
    char map[24];     /* "exact", "ns_fp64", ..., as polar_map_opts_parse spells them; or a spectrum */
    double deviation; /* of a spectrum: the block's singular value number `shadow`, from 0 */
} pl_gauge_row;

/* in the place of a map: PL_SPECTRUM "gradient", PL_SPECTRUM "direction" */
#define PL_SPECTRUM "spectrum:"

typedef struct pl_provenance { /* where and with what a run was made; borrowed strings */
    const char *code;          /* git describe at build time, or the version */
    const char *device;        /* polar_device_name */
    const char *cpu;           /* the processor's model */
    int64_t threads;           /* processors the device may use */
    /* what it is trained on, where its id does not tell: a name, and 64 digits that differ with the data; or
     * NULL */
    const char *data;
} pl_provenance;

typedef struct pl_run_progress { /* what became known of a run since the last call; borrowed arrays */
    const pl_epoch_row *epochs;
    int64_t epoch_count;
    const pl_gauge_row *gauges;
    int64_t gauge_count;
    double wall; /* seconds spent so far, all sittings together */
} pl_run_progress;

typedef struct pl_store_spec { /* borrowed strings to put; owned by the select */
    const char *name;          /* [a-z0-9_]+ */
    const char *sha;           /* SHA-256 of the file's text */
    const char *title, *testbed, *metric;
    const char *text; /* the file as it was read */
    /* selected: why this one cannot be used, a sentence (its texts are then "", its name may be "?");
     * otherwise NULL */
    const char *bad;
} pl_store_spec;

typedef struct pl_store_plan_row { /* one run of a spec to put; borrowed strings */
    const char *id, *cell, *arm;
    const char *config; /* JSON */
    int64_t seed;
} pl_store_plan_row;

typedef struct pl_store_member { /* one run of a spec, as selected */
    char id[PL_RUN_ID_CHARS];
    const char *testbed, *cell, *arm, *config;
    int64_t seed, ord; /* ord: its place in the plan, from 0 */
    pl_run_state state;
    double wall;                     /* seconds; 0 before the first checkpoint */
    const char *started, *finished;  /* UTC, "2024-05-01T12:00:00Z", or NULL */
    const char *code, *device, *cpu; /* NULL before the run began */
    const char *data;                /* of the provenance; NULL also of a run of an older version */
    int64_t threads;
    pl_result *results;   /* by name */
    int64_t result_count; /* 0 unless finished */
} pl_store_member;

/* by name */
typedef struct pl_store_specs {
    pl_store_spec *rows;
    int64_t count;
    void *own;
} pl_store_specs;
/* by ord, then cell, arm, seed */
typedef struct pl_store_members {
    pl_store_member *rows;
    int64_t count;
    void *own;
} pl_store_members;
/* by epoch */
typedef struct pl_store_epochs {
    pl_epoch_row *rows;
    int64_t count;
    void *own;
} pl_store_epochs;
/* by step, block, shadow, map */
typedef struct pl_store_gauges {
    pl_gauge_row *rows;
    int64_t count;
    void *own;
} pl_store_gauges;

/* ---- open and close ----------------------------------------------------------------------------- */

/* checks the file; see above */
polar_status pl_store_open(pl_store **out, const char *path, pl_store_mode mode);
void pl_store_close(pl_store *s); /* releases its claims; NULL is fine */
/* of one opened to write: its log's end was not whole, and what it held is lost */
int pl_store_torn(const pl_store *s);
const char *pl_store_path(const pl_store *s); /* as given to open; borrowed */

/* ---- damage ------------------------------------------------------------------------------------- */

typedef struct pl_store_damage {
    char run[PL_RUN_ID_CHARS]; /* "" where it is not one run's */
    char what[88];             /* of several the first */
} pl_store_damage;

/* Told of every damage: the run's id, or "" where it is not one run's, and what; 0: enough. */
typedef int (*pl_damage_fn)(void *arg, const char *run, const char *what);

/* every row against its checksum; POLAR_E_FORMAT names the first that is not as it was written. Open does it
 * for PL_STORE_READ */
polar_status pl_store_verify(pl_store *s);
/* all of them, and rows that are missing; only the structure, where that is damaged */
polar_status pl_store_examine(pl_store *s, pl_damage_fn tell, void *arg);
/* Every row, as verify does; but a run of which a result, an epoch or a gauge row is damaged or missing is
 * set aside: to this connection it is as if it had never been begun, and pl_store_damaged names it. Who calls
 * this tells the user. POLAR_E_FORMAT for any other damage. */
polar_status pl_store_set_aside(pl_store *s);
/* by id; borrowed */
const pl_store_damage *pl_store_damaged(const pl_store *s, int64_t *count);
/* NULL: it was not set aside */
const pl_store_damage *pl_store_damage_of(const pl_store *s, const char *run);
/* the files beside the store */
polar_status pl_store_examine_checkpoints(pl_store *s, pl_damage_fn tell, void *arg);
/* the names of the specs that have it, by commas; "" for none */
polar_status pl_store_specs_of(char *out, size_t room, pl_store *s, const char *run);
/* runs with damage are planned again, without results and checkpoints; POLAR_E_STATE while another process is
 * at one */
polar_status pl_store_drop_damaged(pl_store *s);

/* ---- select ------------------------------------------------------------------------------------- */

/* every spec that was planned here */
polar_status pl_store_select_specs(pl_store_specs *out, pl_store *s);
/* its runs; POLAR_E_ARG for a spec it does not know */
polar_status pl_store_select_members(pl_store_members *out, pl_store *s, const char *spec);
/* runs by id in that order, cell and arm ""; POLAR_E_ARG for an unknown one */
polar_status pl_store_select_runs(pl_store_members *out, pl_store *s, const char *const *ids, int64_t count);
/* every run by id, those of no spec too; cell and arm "" */
polar_status pl_store_select_all(pl_store_members *out, pl_store *s);
/* of a run */
polar_status pl_store_select_epochs(pl_store_epochs *out, pl_store *s, const char *id);
/* of a run */
polar_status pl_store_select_gauges(pl_store_gauges *out, pl_store *s, const char *id);
/* of a known run; wall may be NULL */
polar_status pl_store_run_state(pl_store *s, const char *id, pl_run_state *state, double *wall);
/* a finished run whose provenance has the name of data and other digits; "" if there is none */
polar_status pl_store_other_data(char id[PL_RUN_ID_CHARS], pl_store *s, const char *data);
void pl_store_specs_free(pl_store_specs *x); /* the four: rows and strings; empty is fine */
void pl_store_members_free(pl_store_members *x);
void pl_store_epochs_free(pl_store_epochs *x);
void pl_store_gauges_free(pl_store_gauges *x);
/* borrowed; NULL if there is none of that name */
const double *pl_store_result(const pl_store_member *m, const char *name);
/* it came from a table: finished, and nobody knows when; it may lack results, epochs and gauge rows that the
 * run once had, its seconds are 0 where the table has none, `cpu` says which table it was */
int pl_store_is_imported(const pl_store_member *m);
const char *pl_run_state_name(pl_run_state state); /* "planned", "done", "diverged" */

/* ---- put: each call is one transaction, all of it or nothing ------------------------------------ */

/* The spec and its runs. The same text planned again (with other --set) adds to its members, and (cell, arm,
 * seed) points at its latest run; a changed text replaces the list. Runs and their results are never removed.
 */
polar_status pl_store_put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows,
                               int64_t count);
/* asked while a plan is put: not 0 ends it with POLAR_E_STATE, and nothing was put */
void pl_store_set_leave(pl_store *s, int (*leave)(void *arg), void *arg);
/* fresh: no checkpoint, so epochs, gauge rows and seconds begin anew */
polar_status pl_store_begin_run(pl_store *s, const char *id, const pl_provenance *p, int fresh);
/* rows that are there are replaced */
polar_status pl_store_put_progress(pl_store *s, const char *id, const pl_run_progress *p);
/* the last progress, results and state; a finished run stays as it is */
polar_status pl_store_finish(pl_store *s, const char *id, pl_run_state state, const pl_result *results,
                             int64_t count, const pl_run_progress *p);
/* a run becomes planned again, without results and epochs (--retry, damage) */
polar_status pl_store_forget(pl_store *s, const char *id);

/* ---- joining stores (store_merge.c) and tables (store_import.c)
 * ------------------------------------------------------------- */

typedef struct pl_merge_count {
    int64_t runs, finished; /* that `out` has now */
    int64_t put;            /* of the finished ones, those that it did not have before */
    int64_t differ;         /* disagreements that were told */
} pl_merge_count;

/* Everything that the stores at `paths` hold into `out`, in one transaction: all of it or nothing. Runs that
 * two stores have finished must agree in every bit but those of clocks and machines, specs of one name in
 * their text, places of a plan in their run; `tell` hears of each that does not (a run's id, or ""), and then
 * the call fails with POLAR_E_FORMAT. Of runs that agree the first one stays. One that is not finished is
 * planned in `out`, without epochs: its checkpoint is not joined. POLAR_E_STATE where another process is at a
 * run that `out` would get. */
polar_status pl_store_merge(pl_merge_count *did, pl_store *out, const char *const *paths, int64_t count,
                            pl_damage_fn tell, void *arg);

typedef struct pl_store_import_run { /* of a table; borrowed arrays */
    /* finished, with testbed and configuration as in the plan, results by name; cell, arm and ord are the
     * plan's to say; clocks NULL */
    pl_store_member run;
    const pl_epoch_row *epochs; /* ascending; none: the table has none */
    int64_t epoch_count;
    const char *where; /* "FILE:LINE", for disagreements */
} pl_store_import_run;

/* A spec's plan, as pl_store_put_spec has it, and what is known of finished runs of it from tables, in one
 * transaction: all of it or nothing. A run that the store has finished must agree with the table in what
 * both have, and stays; `tell` hears of each that does not, and then the call fails with POLAR_E_FORMAT.
 * POLAR_E_STATE where another process is at a run that would get its results. */
polar_status pl_store_import(pl_merge_count *did, pl_store *s, const pl_store_spec *spec,
                             const pl_store_plan_row *plan, int64_t planned, const pl_store_import_run *runs,
                             int64_t count, pl_damage_fn tell, void *arg);

/* a store that nobody has open, as one file; `to` is replaced whole or not at all; POLAR_E_STATE where its
 * log is still there: somebody has it open, or was killed */
polar_status pl_store_copy(const char *to, const char *from);

/* ---- claims and checkpoints --------------------------------------------------------------------- */

/* 0: another job or process has it; read the state again after a claim */
polar_status pl_store_claim(pl_store *s, const char *id, int *mine);
void pl_store_release(pl_store *s, const char *id); /* a claim of this connection */
/* "<store>.d/<name>.safetensors", making the folder; pl_free it */
polar_status pl_store_checkpoint_path(char **out, pl_store *s, const char *name);
/* it, what is named "<name>-...", and half-written ones; while claimed */
polar_status pl_store_remove_checkpoints(pl_store *s, const char *name);
typedef struct pl_store_checkpoint {
    char *path, *runs;            /* the ids of those it holds, by blanks */
    char bearer[PL_RUN_ID_CHARS]; /* the one it is named after */
    int64_t count;                /* of runs */
} pl_store_checkpoint;

typedef struct pl_store_checkpoints {
    pl_store_checkpoint *rows;
    int64_t count;
} pl_store_checkpoints;

/* those beside the store, as they are now, by their headers */
polar_status pl_store_list_checkpoints(pl_store_checkpoints *out, pl_store *s);
void pl_store_checkpoints_free(pl_store_checkpoints *x); /* empty is fine */
/* of those that hold the run the one of the fewest, which is the latest where members have left; or NULL */
const pl_store_checkpoint *pl_store_checkpoint_of(const pl_store_checkpoints *list, const char *id);
/* removes the checkpoints that finished runs left behind (a kill between the two) */
polar_status pl_store_sweep(pl_store *s);

#endif
