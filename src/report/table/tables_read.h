/* tables_read.h -- what run_tables.h wrote, read back: finished runs of a plan, ready for pl_store_import.
 *
 *     PL_TRY(pl_tables_create(&t, plan, &rows));
 *     for (...) PL_TRY(pl_tables_read_runs(t, "so3_capacity_runs.csv"));     // then, where there are any,
 *     for (...) PL_TRY(pl_tables_read_epochs(t, "..._epochs.csv"));          // the epochs of these runs
 *     PL_TRY(pl_tables_match(t, skip));                                      // t->runs, t->count
 *     ...
 *     pl_tables_destroy(t);                                                  // before the rows and the plan
 *
 * A row of a table of runs belongs to the run of the plan that has its id; its cell and arm are names, which
 * another spec may have given it. Columns: id and seed; the spec's metric and any other results of the
 * testbed; state, wall, code, device, data, cell, arm where there are any. Without a column `state` a run
 * with a finite metric is done, and one without is refused. A field that is empty is no result, "nan" is one.
 * Rows of epochs have no id: they belong to the row of runs with their cell, arm and seed; where tables of
 * runs disagree which one that is, to that of NAME_runs.csv if they are NAME_epochs.csv.
 *
 * Files are a stranger's: everything wrong is POLAR_E_FORMAT, "FILE:LINE: ...".
 */
#ifndef PL_REPORT_TABLES_READ_H
#define PL_REPORT_TABLES_READ_H

#include "lab/spec/plan_rows.h"

typedef struct pl_tables_row { /* of a table of runs */
    char id[PL_RUN_ID_CHARS];
    const char *cell, *arm, *code, *device, *data; /* of the file's text; NULL: not there */
    int64_t seed, line;
    pl_run_state state;
    double wall;
    pl_result *results; /* owned; by name */
    int64_t result_count;
    pl_epoch_row *epochs; /* owned; ascending */
    int64_t epoch_count, epoch_room;
    double best; /* validation of the last epoch that improved; 0 before */
    int has_best;
    int file;              /* of t->files */
    const char *epochs_of; /* the table its epochs come from, borrowed; or NULL */
    char *where;           /* "FILE:LINE"; owned */
} pl_tables_row;

typedef struct pl_tables_file {
    struct pl_csv *csv; /* holds the texts */
    char *origin;       /* for pl_store_member.cpu */
} pl_tables_file;

typedef struct pl_tables {
    const pl_plan *plan; /* both borrowed */
    const pl_plan_rows *plan_rows;
    pl_tables_row *rows;
    int64_t row_count, row_room;
    pl_tables_file *files;
    int file_count;
    pl_tables_row **by_name; /* rows by cell, arm and seed, once epochs are read */
    const pl_plan_run **by_id;
    char left_out[200]; /* columns that are no results, by commas; or "" */
    /* set by match */
    pl_store_import_run *runs;
    int64_t count;
    int64_t unfinished, unknown; /* rows that were left out: of runs that are only planned, of no run */
} pl_tables;

/* borrows both */
polar_status pl_tables_create(pl_tables **out, const pl_plan *plan, const pl_plan_rows *rows);
/* path is borrowed until the end; POLAR_E_ARG: no such file */
polar_status pl_tables_read_runs(pl_tables *t, const char *path);
/* after all tables of runs */
polar_status pl_tables_read_epochs(pl_tables *t, const char *path);
/* what there is to import; skip: rows whose id the plan does not have are counted, not refused */
polar_status pl_tables_match(pl_tables *t, int skip);
void pl_tables_destroy(pl_tables *t); /* NULL is fine */

#endif
