/* plan_rows.c -- see plan_rows.h. */
#include "lab/spec/plan_rows.h"

#include <stdlib.h>

#include "base/alloc.h"

typedef struct pl_config_text {
    const pl_config *config;
    char *json;
} config_text;

static int by_config(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const config_text *)a)->config,
              y = (uintptr_t)((const config_text *)b)->config;
    return (x > y) - (x < y);
}

/* One for each configuration of the plan, in order. */
static polar_status make_texts(pl_plan_rows *r, const pl_plan_run *runs)
{
    config_text *texts = r->texts;
    int64_t kept = 0;
    for (int64_t i = 0; i < r->count; i++) texts[i] = (config_text){runs[i].config, NULL};
    qsort(texts, (size_t)r->count, sizeof *texts, by_config);
    for (int64_t i = 0; i < r->count; i++)
        if (!kept || texts[kept - 1].config != texts[i].config) texts[kept++] = texts[i];
    r->text_count = kept;
    for (int64_t i = 0; i < kept; i++) PL_TRY(pl_config_json(&texts[i].json, texts[i].config));
    return POLAR_OK;
}

pl_store_spec pl_spec_row(const pl_spec *s)
{
    return (pl_store_spec){.name = s->name,
                           .sha = s->sha,
                           .title = s->title,
                           .testbed = s->schema.name,
                           .metric = s->metric,
                           .text = s->text};
}

polar_status pl_plan_rows_create(pl_plan_rows *out, const pl_plan_run *runs, int64_t count)
{
    pl_plan_rows r = {.count = count};
    *out = (pl_plan_rows){0};
    r.rows = pl_calloc((size_t)count + 1, sizeof *r.rows);
    r.texts = pl_calloc((size_t)count + 1, sizeof *r.texts);
    polar_status st = r.rows && r.texts ? make_texts(&r, runs)
                                        : PL_FAIL(POLAR_E_NOMEM, "a plan of %lld runs", (long long)count);
    for (int64_t i = 0; st == POLAR_OK && i < count; i++) {
        const config_text key = {runs[i].config, NULL},
                          *text = bsearch(&key, r.texts, (size_t)r.text_count, sizeof *r.texts, by_config);
        r.rows[i] = (pl_store_plan_row){runs[i].id, runs[i].cell, runs[i].arm, text->json, runs[i].seed};
    }
    if (st == POLAR_OK) *out = r;
    else pl_plan_rows_free(&r);
    return st;
}

void pl_plan_rows_free(pl_plan_rows *r)
{
    for (int64_t i = 0; i < r->text_count; i++) pl_free(r->texts[i].json);
    pl_free(r->texts);
    pl_free(r->rows);
    *r = (pl_plan_rows){0};
}
