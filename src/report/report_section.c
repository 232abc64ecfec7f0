/* report_section.c -- the rows of the store that belong to one spec, put in the order of its plan, and the
 * curves over epochs and steps.
 *
 * Curves take finished runs only (done or diverged). A run that stopped early has no rows afterwards: n says
 * how many there were at each point.
 */
#include "report/report_section.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* ---- curves ---- */

typedef struct {
    double x, y;
} point;

typedef struct {
    point *rows;
    int64_t count, room;
} points;

static polar_status add_point(points *p, double x, double y)
{
    if (!isfinite(y)) return POLAR_OK;
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 256;
        point *rows = pl_realloc(p->rows, (size_t)p->room * sizeof *rows, (size_t)room * sizeof *rows);
        PL_NEED(rows, POLAR_E_NOMEM, "a curve of %lld points", (long long)room);
        p->rows = rows;
        p->room = room;
    }
    p->rows[p->count++] = (point){x, y};
    return POLAR_OK;
}

/* Sums must not depend on the order of rows: by x, then by y. */
static int by_place(const void *a, const void *b)
{
    const point *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return (p->y > q->y) - (p->y < q->y);
}

/* Points of equal x become one. */
static polar_status gather(pl_curve *c, points *p)
{
    int64_t count = 0;
    if (p->count) qsort(p->rows, (size_t)p->count, sizeof *p->rows, by_place);
    for (int64_t i = 0; i < p->count; i++) count += !i || p->rows[i].x != p->rows[i - 1].x;
    if (!count) return POLAR_OK;
    c->x = pl_calloc((size_t)count, sizeof *c->x);
    c->mean = pl_calloc((size_t)count, sizeof *c->mean);
    c->min = pl_calloc((size_t)count, sizeof *c->min);
    c->max = pl_calloc((size_t)count, sizeof *c->max);
    c->n = pl_calloc((size_t)count, sizeof *c->n);
    PL_NEED(c->x && c->mean && c->min && c->max && c->n, POLAR_E_NOMEM, "a curve of %lld points",
            (long long)count);
    for (int64_t i = 0; i < p->count; i++) {
        if (!i || p->rows[i].x != p->rows[i - 1].x) {
            c->x[c->count] = p->rows[i].x;
            c->min[c->count++] = p->rows[i].y;
        }
        int64_t at = c->count - 1;
        c->mean[at] += p->rows[i].y;
        c->max[at] = p->rows[i].y;
        c->n[at]++;
    }
    for (int64_t i = 0; i < c->count; i++) c->mean[i] /= (double)c->n[i];
    return POLAR_OK;
}

void pl_curve_free(pl_curve *c)
{
    pl_free(c->x);
    pl_free(c->mean);
    pl_free(c->min);
    pl_free(c->max);
    pl_free(c->n);
    *c = (pl_curve){0};
}

const pl_audit_run *pl_section_run(const pl_section *p, int64_t cell, int64_t seed, int64_t arm)
{
    const pl_audit *a = p->audit;
    return a->runs[(cell * a->seed_count + seed) * a->arm_count + arm];
}

const pl_store_epochs *pl_section_epochs(const pl_section *p, int64_t cell, int64_t seed, int64_t arm)
{
    return &p->epochs[(cell * p->audit->seed_count + seed) * p->audit->arm_count + arm];
}

static int64_t find_name(const char *const *names, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

int64_t pl_section_arm(const pl_section *p, const char *arm)
{
    return find_name(p->audit->arms, p->audit->arm_count, arm);
}
int64_t pl_section_cell(const pl_section *p, const char *cell)
{
    return find_name(p->audit->cells, p->audit->cell_count, cell);
}

int64_t pl_section_seed(const pl_section *p, int64_t seed)
{
    for (int64_t i = 0; i < p->audit->seed_count; i++)
        if (p->audit->seeds[i] == seed) return i;
    return -1;
}

static int is_finished(const pl_audit_run *r)
{
    return r && r->run && r->run->state != PL_RUN_PLANNED;
}

static polar_status load_epochs(pl_section *p, pl_store *s)
{
    int64_t slots = p->audit->cell_count * p->audit->seed_count * p->audit->arm_count;
    p->epochs = pl_calloc((size_t)slots + 1, sizeof *p->epochs);
    PL_NEED(p->epochs, POLAR_E_NOMEM, "the epochs of %lld runs", (long long)slots);
    for (int64_t i = 0; i < slots; i++)
        if (is_finished(p->audit->runs[i]))
            PL_TRY(pl_store_select_epochs(&p->epochs[i], s, p->audit->runs[i]->run->id));
    return POLAR_OK;
}

static polar_status validation_curve(pl_curve *c, const pl_section *p, int64_t cell, int64_t arm)
{
    points all = {0};
    polar_status st = POLAR_OK;
    for (int64_t k = 0; k < p->audit->seed_count && st == POLAR_OK; k++) {
        const pl_store_epochs *e = pl_section_epochs(p, cell, k, arm);
        for (int64_t i = 0; i < e->count && st == POLAR_OK; i++)
            st = add_point(&all, (double)e->rows[i].epoch, e->rows[i].valid);
        c->runs += e->count > 0;
    }
    if (st == POLAR_OK) st = gather(c, &all);
    pl_free(all.rows);
    return st;
}

/* ---- gauge rows ---- */

polar_status pl_section_gauge(pl_curve *out, pl_store *s, const pl_section *p, int64_t cell, int64_t arm,
                              const char *map)
{
    points all = {0};
    polar_status st = POLAR_OK;
    *out = (pl_curve){0};
    for (int64_t k = 0; k < p->audit->seed_count && st == POLAR_OK; k++) {
        const pl_audit_run *r = pl_section_run(p, cell, k, arm);
        pl_store_gauges rows = {0};
        int64_t before = all.count;
        if (!is_finished(r)) continue;
        st = pl_store_select_gauges(&rows, s, r->run->id);
        for (int64_t i = 0; i < rows.count && st == POLAR_OK; i++)
            if (!strcmp(rows.rows[i].map, map))
                st = add_point(&all, (double)rows.rows[i].step, rows.rows[i].deviation);
        out->runs += all.count > before;
        pl_store_gauges_free(&rows);
    }
    if (st == POLAR_OK) st = gather(out, &all);
    pl_free(all.rows);
    if (st != POLAR_OK) pl_curve_free(out);
    return st;
}

polar_status pl_section_gauge_maps(char maps[][24], int *count, int most, pl_store *s, const pl_section *p,
                                   int64_t cell)
{
    const pl_audit *a = p->audit;
    polar_status st = POLAR_OK;
    *count = 0;
    for (int64_t k = 0; k < a->seed_count * a->arm_count && st == POLAR_OK; k++) {
        const pl_audit_run *r = pl_section_run(p, cell, k / a->arm_count, k % a->arm_count);
        pl_store_gauges rows = {0};
        if (!is_finished(r)) continue;
        st = pl_store_select_gauges(&rows, s, r->run->id);
        for (int64_t i = 0; i < rows.count && st == POLAR_OK; i++) {
            int at = 0;
            if (!strncmp(rows.rows[i].map, PL_SPECTRUM, sizeof PL_SPECTRUM - 1)) continue;
            while (at < *count && strcmp(maps[at], rows.rows[i].map)) at++;
            if (at == *count && *count < most) memcpy(maps[(*count)++], rows.rows[i].map, 24);
        }
        pl_store_gauges_free(&rows);
    }
    return st;
}

/* ---- the section ---- */

const pl_published *pl_section_published(const pl_section *p)
{
    return p->read ? p->read->published : NULL;
}

/* The spec's text again. One that this build cannot read (of another testbed, from another version) costs its
 * published values and comparisons only, and the section says so. */
static polar_status read_spec(pl_section *p, const pl_section_source *from)
{
    static const pl_curve_kind unknown = {
        .heading = "Validation during training", .what = "The validation metric", .axis = "validation"};
    const char *text = from->text ? from->text : p->spec->text ? p->spec->text : "";
    for (int i = 0; i < from->schema_count; i++)
        if (!strcmp(from->schemas[i].name, p->spec->testbed)) p->schema = &from->schemas[i];
    p->kind = p->schema ? p->schema->curve : unknown;
    polar_status st = pl_spec_read_text(&p->read, p->spec->name, text, from->schemas, from->schema_count);
    if (st != POLAR_E_FORMAT) return st;
    snprintf(p->unread, sizeof p->unread, "%s", pl_fail_sentence());
    return POLAR_OK;
}

polar_status pl_section_load(pl_section *p, pl_store *s, const pl_store_spec *spec,
                             const pl_section_source *from)
{
    p->spec = spec;
    PL_TRY(read_spec(p, from));
    PL_TRY(pl_store_select_members(&p->members, s, spec->name));
    p->runs = pl_calloc((size_t)p->members.count + 1, sizeof *p->runs);
    PL_NEED(p->runs, POLAR_E_NOMEM, "a list of %lld runs", (long long)p->members.count);
    for (int64_t i = 0; i < p->members.count; i++) {
        const pl_store_member *m = &p->members.rows[i];
        p->runs[i] = (pl_audit_run){.cell = m->cell, .arm = m->arm, .seed = m->seed, .run = m};
    }
    double target = p->read ? p->read->target : 0;
    if (target != 0) PL_TRY(pl_audit_reach(p->runs, p->members.count, s, p->schema, target));
    pl_audit_of of = {.spec = spec->name,
                      .metric = spec->metric,
                      .schema = p->schema,
                      .published = pl_section_published(p),
                      .equivalence = p->read ? p->read->equivalence : 0,
                      .target = target};
    PL_TRY(pl_audit_create(&p->audit, &of, p->runs, p->members.count));
    of.metric = PL_METRIC_WALL;
    of.equivalence = of.target = 0; /* they are the metric's and the curve's */
    PL_TRY(pl_audit_create(&p->wall, &of, p->runs, p->members.count));
    PL_TRY(load_epochs(p, s));
    const pl_audit *a = p->audit;
    p->valid = pl_calloc((size_t)(a->cell_count * a->arm_count) + 1, sizeof *p->valid);
    PL_NEED(p->valid, POLAR_E_NOMEM, "the curves of %lld arms", (long long)(a->cell_count * a->arm_count));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        PL_TRY(validation_curve(&p->valid[i], p, i / a->arm_count, i % a->arm_count));
    return POLAR_OK;
}

pl_section_figure *pl_section_add_figure(pl_section *p, const char *name, const char *heading)
{
    assert(p->figure_count < PL_SECTION_FIGURES);
    pl_section_figure *g = &p->figures[p->figure_count++];
    snprintf(g->name, sizeof g->name, "%.60s_%.30s", p->spec->name, name);
    snprintf(g->heading, sizeof g->heading, "%s", heading);
    return g;
}

void pl_section_free(pl_section *p)
{
    if (p->valid)
        for (int64_t i = 0; i < p->audit->cell_count * p->audit->arm_count; i++) pl_curve_free(&p->valid[i]);
    pl_free(p->valid);
    if (p->epochs)
        for (int64_t i = 0; i < p->audit->cell_count * p->audit->seed_count * p->audit->arm_count; i++)
            pl_store_epochs_free(&p->epochs[i]);
    pl_free(p->epochs);
    pl_audit_destroy(p->audit);
    pl_audit_destroy(p->wall);
    pl_spec_destroy(p->read);
    pl_free(p->runs);
    pl_store_members_free(&p->members);
    *p = (pl_section){0};
}
