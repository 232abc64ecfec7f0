/* plan.c -- a spec multiplied out: cells x seeds x arms. Later settings win: defaults, set, the grid, the
 * arm. */
#include "lab/spec/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/string_build.h"

/* Which value of each axis cell c has, the last axis fastest. */
static int axis_value(const pl_spec *s, int axis, int cell)
{
    for (int i = s->grid_count - 1; i > axis; i--) cell /= s->grid[i].count;
    return cell % s->grid[axis].count;
}

polar_status pl_plan_cell_name(char **out, const pl_spec *s, int cell)
{
    pl_string name = {0};
    for (int i = 0; i < s->grid_count; i++)
        pl_string_add(&name, "%s%s=%s", i ? " " : "", s->grid[i].key->name,
                      s->grid[i].values[axis_value(s, i, cell)]);
    if (!s->grid_count) pl_string_add(&name, "all");
    return pl_string_take(out, &name, "the name of a cell");
}

static polar_status configure(pl_config **out, const pl_spec *s, int cell, const pl_spec_arm *arm)
{
    PL_TRY(pl_config_create(out, &s->schema));
    for (int i = 0; i < s->set_count; i++) PL_TRY(pl_config_set(*out, s->set[i].key->name, s->set[i].value));
    for (int i = 0; i < s->grid_count; i++)
        PL_TRY(pl_config_set(*out, s->grid[i].key->name, s->grid[i].values[axis_value(s, i, cell)]));
    for (int i = 0; i < arm->set_count; i++)
        PL_TRY(pl_config_set(*out, arm->set[i].key->name, arm->set[i].value));
    return POLAR_OK;
}

/* Keys that contradict each other, with the cell and arm where they do. */
static polar_status check(const pl_plan *p, int cell, int arm)
{
    const pl_spec *s = p->spec;
    polar_status st = s->schema.check ? s->schema.check(p->configs[cell * s->arm_count + arm]) : POLAR_OK;
    if (st != POLAR_E_ARG) return st;
    char why[PL_WHY_CHARS];
    snprintf(why, sizeof why, "%s", pl_fail_sentence());
    return PL_FAIL(POLAR_E_ARG, "%s: cell '%s', arm '%s': %s", s->path, p->cells[cell], s->arms[arm].name,
                   why);
}

static polar_status make_runs(pl_plan *p)
{
    const pl_spec *s = p->spec;
    for (int c = 0; c < p->cell_count; c++)
        for (int a = 0; a < s->arm_count; a++) {
            pl_sha256 begun;
            pl_config *config = p->configs[c * s->arm_count + a];
            PL_TRY(pl_config_id_begin(&begun, config));
            for (int64_t k = 0; k < s->seed_count; k++) {
                pl_plan_run *r = &p->runs[(c * s->seed_count + k) * s->arm_count + a];
                *r = (pl_plan_run){.cell = p->cells[c],
                                   .arm = s->arms[a].name,
                                   .config = config,
                                   .seed = s->seeds[k],
                                   .cell_index = c,
                                   .arm_index = a};
                pl_config_id_end(r->id, &begun, r->seed);
            }
        }
    p->count = p->cell_count * s->seed_count * s->arm_count;
    return POLAR_OK;
}

/* ---- the same run twice ------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const pl_plan_run *x = *(const pl_plan_run *const *)a, *y = *(const pl_plan_run *const *)b;
    int d = strcmp(x->id, y->id);
    return d ? d : x < y ? -1 : x > y;
}

polar_status pl_plan_find_first(pl_plan_run *runs, int64_t count, int64_t *distinct)
{
    int64_t n = 0;
    pl_plan_run **order = pl_calloc((size_t)count + 1, sizeof *order);
    PL_NEED(order, POLAR_E_NOMEM, "a list of %lld runs", (long long)count);
    for (int64_t i = 0; i < count; i++) order[i] = &runs[i];
    qsort(order, (size_t)count, sizeof *order, by_id);
    for (int64_t i = 0; i < count; i++) {
        int twin = i && !strcmp(order[i - 1]->id, order[i]->id);
        order[i]->first = twin ? order[i - 1]->first : order[i] - runs;
        n += !twin;
    }
    if (distinct) *distinct = n;
    pl_free(order);
    return POLAR_OK;
}

/* Of one seed, so of all: arms that are the same run have the same configuration. */
static polar_status check_arms(const pl_plan *p)
{
    const pl_spec *s = p->spec;
    for (int c = 0; c < p->cell_count; c++) {
        const pl_plan_run *cell = &p->runs[c * s->seed_count * s->arm_count];
        for (int b = 1; b < s->arm_count; b++)
            for (int a = 0; a < b; a++)
                PL_NEED(strcmp(cell[a].id, cell[b].id), POLAR_E_ARG,
                        "%s: arms '%s' and '%s' are the same run in cell '%s': nothing they set makes a "
                        "difference there",
                        s->path, cell[a].arm, cell[b].arm, cell[a].cell);
    }
    return POLAR_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static polar_status make_cells(pl_plan *p)
{
    const pl_spec *s = p->spec;
    double cells = 1;
    for (int i = 0; i < s->grid_count; i++) cells *= s->grid[i].count;
    double runs = cells * (double)s->seed_count * s->arm_count;
    PL_NEED(runs <= PL_SPEC_MAX_RUNS, POLAR_E_ARG,
            "%s: %.0f cells x %lld seeds x %d arms are more than %d runs", s->path, cells,
            (long long)s->seed_count, s->arm_count, PL_SPEC_MAX_RUNS);
    p->cells = pl_calloc((size_t)cells, sizeof *p->cells);
    p->configs = pl_calloc((size_t)cells * (size_t)s->arm_count, sizeof *p->configs);
    p->runs = pl_calloc((size_t)runs, sizeof *p->runs);
    PL_NEED(p->cells && p->configs && p->runs, POLAR_E_NOMEM, "a plan of %.0f runs", runs);
    for (p->cell_count = 0; p->cell_count < (int)cells;) {
        int c = p->cell_count++;
        PL_TRY(pl_plan_cell_name(&p->cells[c], s, c));
        for (int a = 0; a < s->arm_count; a++) {
            PL_TRY(configure(&p->configs[c * s->arm_count + a], s, c, &s->arms[a]));
            PL_TRY(check(p, c, a));
        }
    }
    return POLAR_OK;
}

polar_status pl_plan_create(pl_plan **out, const pl_spec *spec)
{
    pl_plan *p = pl_calloc(1, sizeof *p);
    *out = NULL;
    PL_NEED(p, POLAR_E_NOMEM, "a plan");
    p->spec = spec;
    polar_status st = make_cells(p);
    if (st == POLAR_OK) st = make_runs(p);
    if (st == POLAR_OK) st = check_arms(p);
    if (st == POLAR_OK) st = pl_plan_find_first(p->runs, p->count, &p->distinct);
    if (st == POLAR_OK) *out = p;
    else pl_plan_destroy(p);
    return st;
}

void pl_plan_destroy(pl_plan *p)
{
    if (!p) return;
    for (int c = 0; c < p->cell_count; c++) {
        pl_free(p->cells[c]);
        for (int a = 0; a < p->spec->arm_count; a++)
            pl_config_destroy(p->configs[c * p->spec->arm_count + a]);
    }
    pl_free(p->cells);
    pl_free(p->configs);
    pl_free(p->runs);
    pl_free(p);
}
