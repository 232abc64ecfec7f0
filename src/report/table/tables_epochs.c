/* tables_epochs.c -- the epochs of runs whose table was read (tables_read.h).
 *
 * A table of epochs names a run by cell, arm and seed: it belongs to the report whose table of runs has these
 * names. Where several give a name to different runs, it is the one of the table beside it, NAME_runs.csv of
 * NAME_epochs.csv. A run that several reports have may have its epochs in the table of each, where they are
 * the same.
 * Which epochs were the best so far is not written, and found again as the runner found it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv_read.h"
#include "base/json_read.h"
#include "report/table/tables_read.h"

typedef enum epoch_column {
    EPOCH_CELL,
    EPOCH_ARM,
    EPOCH_SEED,
    EPOCH_EPOCH,
    EPOCH_TRAIN_LOSS,
    EPOCH_VALID,
    EPOCH_LR,
    EPOCH_SECONDS,
    EPOCH_COLUMNS
} epoch_column;

static const char *const names[EPOCH_COLUMNS] = {"cell",       "arm",   "seed", "epoch",
                                                 "train_loss", "valid", "lr",   "seconds"};

typedef struct epochs_reader {
    pl_tables *t;
    pl_csv *c;
    int at[EPOCH_COLUMNS];
    int count;         /* of columns */
    pl_tables_row *of; /* the run of the row before */
} epochs_reader;

static polar_status wrong(const epochs_reader *e, const char *name, const char *text, const char *what)
{
    return PL_FAIL(POLAR_E_FORMAT, "%s:%" PRId64 ": %s '%s' %s", pl_text_shown(e->c->path).text, e->c->line,
                   name, pl_text_shown(text).text, what);
}

static polar_status read_header(epochs_reader *e)
{
    int more = 0;
    PL_TRY(pl_csv_next(e->c, &more));
    PL_NEED(more, POLAR_E_FORMAT, "%s:1: the file is empty", pl_text_shown(e->c->path).text);
    e->count = e->c->count;
    for (int k = 0; k < EPOCH_COLUMNS; k++) {
        e->at[k] = -1;
        for (int i = 0; i < e->c->count; i++) {
            if (strcmp(e->c->fields[i], names[k])) continue;
            if (e->at[k] >= 0) return wrong(e, "the column", names[k], "comes twice");
            e->at[k] = i;
        }
        if (e->at[k] < 0 && k != EPOCH_SECONDS)
            return wrong(e, "no column", names[k], "in the first line: this is no table of epochs");
    }
    return POLAR_OK;
}

/* ---- whose row it is ---------------------------------------------------------------------------- */

/* -1, 0, 1 */
static int order_names(const pl_tables_row *x, const pl_tables_row *y)
{
    int d = strcmp(x->cell ? x->cell : "", y->cell ? y->cell : "");
    if (!d) d = strcmp(x->arm ? x->arm : "", y->arm ? y->arm : "");
    return d ? (d > 0) - (d < 0) : (x->seed > y->seed) - (x->seed < y->seed);
}

static int by_name(const void *a, const void *b)
{
    const pl_tables_row *x = *(const pl_tables_row *const *)a, *y = *(const pl_tables_row *const *)b;
    int d = order_names(x, y);
    if (!d) d = strcmp(x->id, y->id);
    return d ? d : x < y ? -1 : x > y;
}

static polar_status sort_rows(pl_tables *t)
{
    if (t->by_name) return POLAR_OK;
    t->by_name = pl_calloc((size_t)t->row_count + 1, sizeof *t->by_name);
    PL_NEED(t->by_name, POLAR_E_NOMEM, "a list of %" PRId64 " runs", t->row_count);
    for (int64_t i = 0; i < t->row_count; i++) t->by_name[i] = &t->rows[i];
    qsort(t->by_name, (size_t)t->row_count, sizeof *t->by_name, by_name);
    return POLAR_OK;
}

/* How many rows come before those of that name, or before what comes after them. */
static int64_t rows_before(const pl_tables *t, const pl_tables_row *key, int after)
{
    int64_t low = 0, high = t->row_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (order_names(t->by_name[middle], key) < after) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The row is of NAME_runs.csv, and these are NAME_epochs.csv. */
static int beside(const epochs_reader *e, const pl_tables_row *r)
{
    static const char ours[] = "_epochs.csv", theirs[] = "_runs.csv";
    const char *path = e->c->path, *runs = e->t->files[r->file].csv->path;
    const size_t n = strlen(path), stem = n - strlen(ours);
    return n > strlen(ours) && !strcmp(path + stem, ours) && strlen(runs) == stem + strlen(theirs) &&
           !strncmp(path, runs, stem) && !strcmp(runs + stem, theirs);
}

/* The first row of the run of that name. Of one name they are in the order of their ids. */
static polar_status find_row(epochs_reader *e, const pl_tables_row *key)
{
    pl_tables_row **rows = e->t->by_name;
    int64_t low = rows_before(e->t, key, 0), high = rows_before(e->t, key, 1), first = low;
    if (low == high)
        return wrong(e, "the run", key->arm, "of this cell and seed is in none of the tables of runs");
    e->of = strcmp(rows[low]->id, rows[high - 1]->id) ? NULL : rows[low];
    for (int64_t i = low; i < high && !e->of; i++) {
        if (strcmp(rows[i]->id, rows[first]->id)) first = i;
        if (beside(e, rows[i])) e->of = rows[first];
    }
    if (!e->of)
        return wrong(
            e, "the run", key->arm,
            "of this cell and seed is one run in one table and another in another: give the table of "
            "runs beside this one, NAME_runs.csv of NAME_epochs.csv, or import them one after the "
            "other");
    return POLAR_OK;
}

static polar_status choose_row(epochs_reader *e)
{
    const char *seed = e->c->fields[e->at[EPOCH_SEED]];
    pl_tables_row key = {.cell = e->c->fields[e->at[EPOCH_CELL]], .arm = e->c->fields[e->at[EPOCH_ARM]]};
    if (!pl_csv_integer(&key.seed, seed)) return wrong(e, "the seed", seed, "is no whole number");
    if (!e->of || order_names(e->of, &key)) PL_TRY(find_row(e, &key));
    if (!e->of->epochs_of) e->of->epochs_of = e->c->path;
    return POLAR_OK;
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* An empty field is NaN. */
static polar_status read_real(double *out, const epochs_reader *e, epoch_column k)
{
    const char *text = e->at[k] >= 0 ? e->c->fields[e->at[k]] : "";
    *out = (double)NAN;
    return !*text || pl_csv_real(out, text) ? POLAR_OK : wrong(e, names[k], text, "is no number");
}

static polar_status read_epoch(pl_epoch_row *x, const epochs_reader *e)
{
    const char *number = e->c->fields[e->at[EPOCH_EPOCH]];
    if (!pl_csv_integer(&x->epoch, number) || x->epoch < 1 || x->epoch > INT32_MAX)
        return wrong(e, "the epoch", number, "is no whole number from 1 on");
    PL_TRY(read_real(&x->train_loss, e, EPOCH_TRAIN_LOSS));
    PL_TRY(read_real(&x->valid, e, EPOCH_VALID));
    PL_TRY(read_real(&x->lr, e, EPOCH_LR));
    return read_real(&x->seconds, e, EPOCH_SECONDS);
}

/* The mark of early_stop.h: better than all before, and finite. */
static int improves(pl_tables_row *r, const pl_epoch_row *x, int higher)
{
    if (!isfinite(x->train_loss) || !isfinite(x->valid)) return 0;
    int better = !r->has_best || (higher ? x->valid > r->best : x->valid < r->best);
    if (better) r->best = x->valid;
    r->has_best = 1;
    return better;
}

static polar_status add_epoch(epochs_reader *e, pl_epoch_row x)
{
    pl_tables_row *r = e->of;
    if (r->epoch_count && x.epoch <= r->epochs[r->epoch_count - 1].epoch)
        return wrong(e, "the epoch", e->c->fields[e->at[EPOCH_EPOCH]], "does not come after the one before");
    if (r->epoch_count == r->epoch_room) {
        int64_t room = r->epoch_room ? 2 * r->epoch_room : 64;
        pl_epoch_row *rows =
            pl_realloc(r->epochs, (size_t)r->epoch_room * sizeof *rows, (size_t)room * sizeof *rows);
        PL_NEED(rows, POLAR_E_NOMEM, "%" PRId64 " epochs of a run", room);
        r->epochs = rows;
        r->epoch_room = room;
    }
    x.improved = improves(r, &x, e->t->plan->spec->schema.curve.higher);
    r->epochs[r->epoch_count++] = x;
    return POLAR_OK;
}

static int same_real(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Of a run whose epochs another table had. */
static polar_status check_epoch(const epochs_reader *e, const pl_epoch_row *x)
{
    const pl_tables_row *r = e->of;
    int64_t low = 0, high = r->epoch_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (r->epochs[middle].epoch < x->epoch) low = middle + 1;
        else high = middle;
    }
    const pl_epoch_row *y = low < r->epoch_count ? &r->epochs[low] : NULL;
    if (y && y->epoch == x->epoch && same_real(x->train_loss, y->train_loss) &&
        same_real(x->valid, y->valid) && same_real(x->lr, y->lr) && same_real(x->seconds, y->seconds))
        return POLAR_OK;
    return wrong(e, "the run", e->c->fields[e->at[EPOCH_ARM]],
                 "has this epoch otherwise in another table, or not at all");
}

static polar_status read_rows(epochs_reader *e)
{
    for (;;) {
        pl_epoch_row x = {0};
        int more = 0;
        PL_TRY(pl_csv_next(e->c, &more));
        if (!more) return POLAR_OK;
        PL_NEED(e->c->count == e->count, POLAR_E_FORMAT,
                "%s:%" PRId64 ": %d fields, where the first line has %d", pl_text_shown(e->c->path).text,
                e->c->line, e->c->count, e->count);
        PL_TRY(choose_row(e));
        PL_TRY(read_epoch(&x, e));
        PL_TRY(e->of->epochs_of == e->c->path ? add_epoch(e, x) : check_epoch(e, &x));
    }
}

/* A run says how many epochs it had: fewer are a table that was cut. */
static polar_status check_counts(const epochs_reader *e)
{
    for (int64_t i = 0; i < e->t->row_count; i++) {
        const pl_tables_row *r = &e->t->rows[i];
        if (r->epochs_of != e->c->path) continue;
        for (int64_t k = 0; k < r->result_count; k++)
            PL_NEED(strcmp(r->results[k].name, "epochs") || r->results[k].value == (double)r->epoch_count,
                    POLAR_E_FORMAT, "%s: %" PRId64 " epochs of run %s, which had %g: was the file cut short?",
                    pl_text_shown(e->c->path).text, r->epoch_count, r->id, r->results[k].value);
    }
    return POLAR_OK;
}

polar_status pl_tables_read_epochs(pl_tables *t, const char *path)
{
    epochs_reader e = {.t = t};
    PL_TRY(sort_rows(t));
    PL_TRY(pl_csv_open(&e.c, path));
    polar_status st = read_header(&e);
    if (st == POLAR_OK) st = read_rows(&e);
    if (st == POLAR_OK) st = check_counts(&e);
    pl_csv_close(e.c);
    return st;
}
