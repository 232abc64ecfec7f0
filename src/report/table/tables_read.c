/* tables_read.c -- see tables_read.h. Here: tables of runs, and what of them belongs to the plan; epochs are
 * read by tables_epochs.c.
 *
 * Invariants:
 *  1. A row keeps nothing that the store would refuse to read: words, lines and numbers are checked here,
 *     where the file and the line are known.
 *  2. Rows with one id may come again (a run in two cells, in two tables): the store demands that they agree.
 */
#include "report/table/tables_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv_read.h"
#include "base/json_read.h"
#include "base/string_build.h"
#include "base/text_visible.h"

#define MOST_ORIGIN 1000 /* bytes of code, device, data, as the store has them */
#define DATA_DIGITS 64
#define HEX         "0123456789abcdef"
#define WORD        "abcdefghijklmnopqrstuvwxyz0123456789_"

typedef enum column_kind {
    COLUMN_CELL,
    COLUMN_ARM,
    COLUMN_SEED,
    COLUMN_STATE,
    COLUMN_WALL,
    COLUMN_CODE,
    COLUMN_DEVICE,
    COLUMN_DATA,
    COLUMN_ID,
    COLUMN_KINDS,
    COLUMN_RESULT = COLUMN_KINDS,
    COLUMN_OTHER
} column_kind;

static const char *const fixed[COLUMN_KINDS] = {"cell", "arm",    "seed", "state", "wall",
                                                "code", "device", "data", "id"};

typedef struct header {
    column_kind kind[PL_CSV_MAX_FIELDS];
    pl_result empty[PL_CSV_MAX_FIELDS]; /* of a result: its name */
    int count, results;
    int at[COLUMN_KINDS]; /* -1: there is none */
    int metric;           /* its column; the testbed's, where the spec's is wall */
} header;

/* ---- complaints --------------------------------------------------------------------------------- */

/* "FILE:LINE: the seed '1x' is no whole number" */
static polar_status wrong(const pl_csv *c, const char *name, const char *text, const char *what)
{
    return PL_FAIL(POLAR_E_FORMAT, "%s:%" PRId64 ": %s '%s' %s", pl_text_shown(c->path).text, c->line, name,
                   pl_text_shown(text).text, what);
}

/* ---- the first line ----------------------------------------------------------------------------- */

static column_kind kind_of(const char *name, const pl_schema *schema)
{
    for (int k = 0; k < COLUMN_KINDS; k++)
        if (!strcmp(name, fixed[k])) return (column_kind)k;
    size_t n = strlen(name);
    int word = n && n < sizeof((pl_result *)0)->name && strspn(name, WORD) == n;
    return word && pl_schema_has_result(schema, name) ? COLUMN_RESULT : COLUMN_OTHER;
}

/* A column whose fields are not read: said once, with the others. */
static void leave_out(pl_tables *t, const char *name)
{
    size_t used = strlen(t->left_out);
    pl_shown shown = pl_text_shown(name);
    if (strstr(t->left_out, shown.text)) return;
    snprintf(t->left_out + used, sizeof t->left_out - used, "%s%s", used ? ", " : "", shown.text);
}

static polar_status read_header(header *h, pl_tables *t, pl_csv *c)
{
    const pl_spec *spec = t->plan->spec;
    int timed = !strcmp(spec->metric, PL_METRIC_WALL), more = 0;
    const char *metric = timed ? spec->schema.metric : spec->metric;
    *h = (header){.metric = -1};
    for (int k = 0; k < COLUMN_KINDS; k++) h->at[k] = -1;
    PL_TRY(pl_csv_next(c, &more));
    PL_NEED(more, POLAR_E_FORMAT, "%s:1: the file is empty", pl_text_shown(c->path).text);
    h->count = c->count;
    for (int i = 0; i < c->count; i++) {
        const char *name = c->fields[i];
        for (int k = 0; k < i; k++)
            if (!strcmp(name, c->fields[k])) return wrong(c, "the column", name, "comes twice");
        h->kind[i] = kind_of(name, &spec->schema);
        if (h->kind[i] < COLUMN_KINDS) h->at[h->kind[i]] = i;
        if (h->kind[i] == COLUMN_OTHER) leave_out(t, name);
        if (h->kind[i] != COLUMN_RESULT) continue;
        strcpy(h->empty[i].name, name);
        h->results++;
        if (!strcmp(name, metric)) h->metric = i;
    }
    if (h->at[COLUMN_ID] < 0 || h->at[COLUMN_SEED] < 0)
        return wrong(c, "no column", h->at[COLUMN_ID] < 0 ? "id" : "seed",
                     "in the first line: this is no table of runs");
    if (h->metric < 0 || (timed && h->at[COLUMN_WALL] < 0))
        return wrong(c, "no column", h->metric < 0 ? metric : PL_METRIC_WALL,
                     "in the first line, the metric of the spec or its testbed");
    return POLAR_OK;
}

/* ---- a row -------------------------------------------------------------------------------------- */

/* The field of a kind, or NULL: no such column, or nothing in it. */
static const char *field(const pl_csv *c, const header *h, column_kind kind)
{
    int at = h->at[kind];
    return at >= 0 && *c->fields[at] ? c->fields[at] : NULL;
}

static polar_status read_line(const char **out, const pl_csv *c, const header *h, column_kind kind,
                              size_t most)
{
    const char *text = *out = field(c, h, kind);
    if (!text) return POLAR_OK;
    size_t n = strlen(text);
    if (n > most || !pl_text_is_plain(text, n))
        return wrong(c, fixed[kind], text, n > most ? "is too long" : "is not one line of text");
    return POLAR_OK;
}

static polar_status read_names(pl_tables_row *r, const pl_csv *c, const header *h)
{
    PL_TRY(read_line(&r->cell, c, h, COLUMN_CELL, 4096));
    PL_TRY(read_line(&r->arm, c, h, COLUMN_ARM, 200));
    PL_TRY(read_line(&r->code, c, h, COLUMN_CODE, MOST_ORIGIN));
    PL_TRY(read_line(&r->device, c, h, COLUMN_DEVICE, MOST_ORIGIN));
    PL_TRY(read_line(&r->data, c, h, COLUMN_DATA, MOST_ORIGIN));
    size_t n = r->data ? strlen(r->data) : 0;
    if (r->data && (n <= DATA_DIGITS || strspn(r->data + n - DATA_DIGITS, HEX) != DATA_DIGITS))
        return wrong(c, "the data", r->data, "do not end with 64 hexadecimal digits");
    return POLAR_OK;
}

static polar_status read_id(pl_tables_row *r, const pl_csv *c, const header *h)
{
    const char *id = field(c, h, COLUMN_ID), *seed = field(c, h, COLUMN_SEED);
    if (!id || strlen(id) != PL_RUN_ID_CHARS - 1 || strspn(id, HEX) != PL_RUN_ID_CHARS - 1)
        return wrong(c, "the id", id ? id : "", "is not made of 32 hexadecimal digits");
    strcpy(r->id, id);
    if (!seed || !pl_csv_integer(&r->seed, seed))
        return wrong(c, "the seed", seed ? seed : "", "is no whole number");
    return POLAR_OK;
}

static int by_result(const void *a, const void *b)
{
    return strcmp(((const pl_result *)a)->name, ((const pl_result *)b)->name);
}

static polar_status read_results(pl_tables_row *r, const pl_csv *c, const header *h)
{
    r->results = pl_calloc((size_t)h->results, sizeof *r->results);
    PL_NEED(r->results, POLAR_E_NOMEM, "the results of a run");
    for (int i = 0; i < h->count; i++) {
        if (h->kind[i] != COLUMN_RESULT || !*c->fields[i]) continue;
        pl_result *x = &r->results[r->result_count++];
        *x = h->empty[i];
        if (!pl_csv_real(&x->value, c->fields[i])) return wrong(c, x->name, c->fields[i], "is no number");
    }
    qsort(r->results, (size_t)r->result_count, sizeof *r->results, by_result);
    return POLAR_OK;
}

static const double *result_of(const pl_tables_row *r, const char *name)
{
    for (int64_t i = 0; i < r->result_count; i++)
        if (!strcmp(r->results[i].name, name)) return &r->results[i].value;
    return NULL;
}

static polar_status read_state(pl_tables_row *r, const pl_csv *c, const header *h)
{
    const char *word = field(c, h, COLUMN_STATE);
    r->state = PL_RUN_DONE;
    if (h->at[COLUMN_STATE] < 0) return POLAR_OK;
    for (r->state = PL_RUN_PLANNED; r->state <= PL_RUN_DIVERGED; r->state++)
        if (word && !strcmp(word, pl_run_state_name(r->state))) return POLAR_OK;
    return wrong(c, "the state", word ? word : "", "is none of planned, done, diverged");
}

/* What a finished run must have: its metric, which says whether it is done where no column does. */
static polar_status check_finished(const pl_tables_row *r, const pl_csv *c, const header *h)
{
    const char *metric = h->empty[h->metric].name;
    const double *value = result_of(r, metric), *diverged = result_of(r, "diverged");
    if (!value) return wrong(c, metric, "", "is empty, and the run is finished");
    if (h->at[COLUMN_STATE] < 0 && !isfinite(*value))
        return wrong(c, metric, c->fields[h->metric], "of a table without a column 'state' is not finite");
    if (diverged && (*diverged != 0) != (r->state == PL_RUN_DIVERGED))
        return wrong(c, "the state", pl_run_state_name(r->state), "contradicts the result 'diverged'");
    return POLAR_OK;
}

static polar_status read_row(pl_tables_row *r, const pl_csv *c, const header *h)
{
    PL_NEED(c->count == h->count, POLAR_E_FORMAT, "%s:%" PRId64 ": %d fields, where the first line has %d",
            pl_text_shown(c->path).text, c->line, c->count, h->count);
    r->line = c->line;
    PL_TRY(read_id(r, c, h));
    PL_TRY(read_names(r, c, h));
    PL_TRY(read_state(r, c, h));
    const char *wall = field(c, h, COLUMN_WALL);
    if (wall && (!pl_csv_real(&r->wall, wall) || !isfinite(r->wall) || r->wall < 0))
        return wrong(c, "wall", wall, "is no time in seconds");
    if (r->state == PL_RUN_PLANNED) return POLAR_OK;
    PL_TRY(read_results(r, c, h));
    return check_finished(r, c, h);
}

/* ---- a table ------------------------------------------------------------------------------------ */

/* NULL when there is no memory. */
static pl_tables_row *add_row(pl_tables *t)
{
    if (t->row_count == t->row_room) {
        int64_t room = t->row_room ? 2 * t->row_room : 256;
        pl_tables_row *rows =
            pl_realloc(t->rows, (size_t)t->row_room * sizeof *rows, (size_t)room * sizeof *rows);
        if (!rows) return NULL;
        t->rows = rows;
        t->row_room = room;
    }
    t->rows[t->row_count] = (pl_tables_row){.file = t->file_count - 1};
    return &t->rows[t->row_count++];
}

/* What stands in the place of the processor. */
static polar_status name_origin(char **out, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    pl_string s = {0};
    pl_string_add(&s, "not known: imported from %s",
                  pl_text_is_plain(name, strlen(name)) && strlen(name) < 256 ? name : "a table");
    return pl_string_take(out, &s, "the name of a table");
}

/* The file, open, as the last of t->files; its texts live as long as t. */
static polar_status add_file(pl_tables *t, const char *path)
{
    pl_tables_file *files = pl_realloc(t->files, (size_t)t->file_count * sizeof *files,
                                       (size_t)(t->file_count + 1) * sizeof *files);
    PL_NEED(files, POLAR_E_NOMEM, "a list of tables");
    t->files = files;
    files[t->file_count] = (pl_tables_file){0};
    pl_tables_file *f = &files[t->file_count++];
    PL_TRY(pl_csv_open(&f->csv, path));
    return name_origin(&f->origin, path);
}

polar_status pl_tables_read_runs(pl_tables *t, const char *path)
{
    header h;
    PL_TRY(add_file(t, path));
    pl_csv *c = t->files[t->file_count - 1].csv;
    PL_TRY(read_header(&h, t, c));
    for (;;) {
        int more = 0;
        PL_TRY(pl_csv_next(c, &more));
        if (!more) return POLAR_OK;
        pl_tables_row *r = add_row(t);
        PL_NEED(r, POLAR_E_NOMEM, "a table of %" PRId64 " runs", t->row_count);
        PL_TRY(read_row(r, c, &h));
    }
}

/* ---- the plan ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const pl_plan_run *const *)a)->id, (*(const pl_plan_run *const *)b)->id);
}

static const pl_plan_run *find_run(const pl_tables *t, const pl_tables_row *r)
{
    pl_plan_run key = {.seed = 0};
    const pl_plan_run *at = &key, **found;
    memcpy(key.id, r->id, sizeof key.id);
    found = bsearch(&at, t->by_id, (size_t)t->plan->count, sizeof *t->by_id, by_id);
    return found ? *found : NULL;
}

static polar_status refuse_unknown(const pl_tables *t, const pl_tables_row *r)
{
    return PL_FAIL(POLAR_E_FORMAT,
                   "%s:%" PRId64 ": run %s (%s, seed %" PRId64 ") is none of the %" PRId64
                   " planned of %s: give the --set it was made with, or --skip-unknown",
                   pl_text_shown(t->files[r->file].csv->path).text, r->line, r->id,
                   r->arm ? pl_text_shown(r->arm).text : "-", r->seed, t->plan->distinct,
                   t->plan->spec->name);
}

static polar_status match_row(pl_tables *t, pl_tables_row *r, int skip)
{
    const pl_plan_run *run = find_run(t, r);
    const char *path = t->files[r->file].csv->path;
    t->unfinished += run && r->state == PL_RUN_PLANNED;
    t->unknown += !run;
    if (!run && !skip) return refuse_unknown(t, r);
    if (!run) return POLAR_OK;
    PL_NEED(r->seed == run->seed, POLAR_E_FORMAT,
            "%s:%" PRId64 ": the seed of run %s is %" PRId64 " by the spec, and %" PRId64 " here",
            pl_text_shown(path).text, r->line, r->id, run->seed, r->seed);
    if (r->state == PL_RUN_PLANNED) return POLAR_OK;
    pl_string where = {0};
    pl_string_add(&where, "%s:%" PRId64, pl_text_shown(path).text, r->line);
    PL_TRY(pl_string_take(&r->where, &where, "the place of a row"));
    pl_store_import_run *x = &t->runs[t->count++];
    *x = (pl_store_import_run){.where = r->where, .epochs = r->epochs, .epoch_count = r->epoch_count};
    x->run = (pl_store_member){.testbed = t->plan->spec->schema.name,
                               .config = t->plan_rows->rows[run - t->plan->runs].config,
                               .seed = run->seed,
                               .state = r->state,
                               .wall = r->wall,
                               .code = r->code,
                               .device = r->device,
                               .cpu = t->files[r->file].origin,
                               .data = r->data,
                               .results = r->results,
                               .result_count = r->result_count};
    memcpy(x->run.id, r->id, sizeof x->run.id);
    return POLAR_OK;
}

polar_status pl_tables_match(pl_tables *t, int skip)
{
    t->by_id = pl_calloc((size_t)t->plan->count + 1, sizeof *t->by_id);
    t->runs = pl_calloc((size_t)t->row_count + 1, sizeof *t->runs);
    PL_NEED(t->by_id && t->runs, POLAR_E_NOMEM, "a list of %" PRId64 " runs", t->row_count);
    for (int64_t i = 0; i < t->plan->count; i++) t->by_id[i] = &t->plan->runs[i];
    qsort(t->by_id, (size_t)t->plan->count, sizeof *t->by_id, by_id);
    for (int64_t i = 0; i < t->row_count; i++) PL_TRY(match_row(t, &t->rows[i], skip));
    return POLAR_OK;
}

polar_status pl_tables_create(pl_tables **out, const pl_plan *plan, const pl_plan_rows *rows)
{
    *out = pl_calloc(1, sizeof **out);
    PL_NEED(*out, POLAR_E_NOMEM, "tables");
    (*out)->plan = plan;
    (*out)->plan_rows = rows;
    return POLAR_OK;
}

void pl_tables_destroy(pl_tables *t)
{
    if (!t) return;
    for (int64_t i = 0; i < t->row_count; i++) {
        pl_free(t->rows[i].results);
        pl_free(t->rows[i].epochs);
        pl_free(t->rows[i].where);
    }
    for (int i = 0; i < t->file_count; i++) {
        pl_csv_close(t->files[i].csv);
        pl_free(t->files[i].origin);
    }
    pl_free(t->rows);
    pl_free(t->files);
    pl_free(t->by_name);
    pl_free(t->by_id);
    pl_free(t->runs);
    pl_free(t);
}
