/* fuzz_spec.c -- a spec and its --set: parts between bytes 1, the file first. What is planned is planned to
 * the same ids again, and a run's canonical text gives its id back. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "lab/run/testbed.h"
#include "lab/spec/plan.h"

enum { MOST_SETS = 6, MOST_RUNS = 3000 }; /* a million may be planned, which takes its time */

static pl_schema schemas[PL_TESTBED_MAX];
static int schema_count;

static const char so3[] =
    "name: t\ntitle: 'Title'\ntestbed: so3\nmetric: test_mse\nabout: |\n  some\n  text\nseeds: [7, 0..2]\n"
    "arms:\n  adamw:\n  muon: {optim.beta1: 0.9}\n  slow: {optim.rule: muon, optim.lr: 1e-4}\n"
    "grid:\n  model.width: [16, 32]\n  map.rounding: [reference, fused]\nset: {route.matrix: \"*.W, x\"}\n"
    "published:\n  by: x\n  values:\n  - {model.width: 16, map.rounding: fused, muon: 1, slow: 2e-3}\n"
    "  - {model.width: 32, map.rounding: fused, seed: 7, muon: 1}\n  differences:\n"
    "  - {model.width: 16, map.rounding: fused, a: muon, b: slow, mean: -1, n: 3}\n"
    "compare: [{with: u, labels: [a, b], tables: [lift], since: {muon: 3}}]\n"
    "tests: {target: 0.005, equivalence: 1e-4}\n"
    "\1seeds=0..3\1arms=m*,slow\1model.width=16\1optim.aux_lr=0.5";
/* nearly as many cells as can be counted */
static const char wide[] =
    "name: w\ntestbed: so3\nseeds: 0\narms: [muon]\ngrid:\n  model.width: [2, 3, 4, 5, 6, 7, 8, 9]\n"
    "  model.layers: [1, 2, 3, 4, 5, 6, 7, 8]\n  data.points: [2, 3, 4, 5, 6, 7, 8, 9]\n"
    "  data.train: [2, 3, 4, 5, 6, 7, 8, 9]\n  data.valid: [2, 3, 4, 5, 6, 7, 8, 9]\n"
    "  data.test: [2, 3, 4, 5, 6, 7, 8, 9]\n  train.batch: [2, 3, 4, 5, 6, 7, 8, 9]\n"
    "  train.epochs: [2, 3, 4, 5, 6, 7, 8, 9]\n  train.warmup: [2, 3, 4, 5, 6, 7, 8, 9]\n"
    "  optim.lr: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]\npublished:\n  values:\n"
    "  - {model.width: 9, model.layers: 8, data.points: 9, data.train: 9, data.valid: 9, data.test: 9,"
    " train.batch: 9, train.epochs: 9, train.warmup: 9, optim.lr: 0.8, muon: 1}\n\1model.width=2";
static const char deit[] =
    "name: d\ntestbed: deit\nseeds: 0..1\narms: [adamw, muon, polaradamw]\nset:\n"
    "  data.set: 'synth:classes=3,train=5,test=3,size=12'\n  train.epochs: 3\n  augment.rand: "
    "rand-m9-mstd0.5-inc1\n\1model.depth=2";

void fuzz_begin(void)
{
    static const char *const words[] = {
        "name: ",  "title: ",      "testbed: ", "metric: ",      "about: ",  "seeds: ",
        "arms:",   "grid:",        "set:",      "published:",    "compare:", "tests:",
        "values:", "differences:", "seed: ",    "labels: ",      "tables: ", "[lift, seeds, crossover]",
        "curve: ", "at_epoch: ",   "since: ",   "equivalence: ", "target: ", "0..99",
        "\1arms=", "\1seeds=",     "1e-3"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) fuzz_word(words[i]);
    schema_count = pl_testbed_schemas(schemas);
    for (int i = 0; i < schema_count; i++)
        for (int k = 0; k < schemas[i].key_count; k++) {
            const pl_key *key = &schemas[i].keys[k];
            fuzz_word(key->name);
            for (int c = 0; key->type == PL_KEY_CHOICE && key->choices[c]; c++) fuzz_word(key->choices[c]);
        }
    fuzz_seed("so3", so3, sizeof so3 - 1);
    fuzz_seed("deit", deit, sizeof deit - 1);
    fuzz_seed("wide", wide, sizeof wide - 1);
}

static polar_status plan_of(pl_spec **s, pl_plan **p, const char *path, char *const *sets, int n)
{
    *s = NULL;
    *p = NULL;
    PL_TRY(pl_spec_read(s, path, schemas, schema_count, (const char *const *)sets, n));
    double runs = (double)(*s)->seed_count * (*s)->arm_count;
    for (int i = 0; i < (*s)->grid_count; i++) runs *= (*s)->grid[i].count;
    if (runs > MOST_RUNS) return POLAR_E_STATE; /* left alone */
    return pl_plan_create(p, *s);
}

/* "so3 v1\nkey=value\n...seed=7\n" */
static void try_canonical(const pl_plan_run *r, const pl_schema *schema)
{
    char *text, id[PL_RUN_ID_CHARS], *save = NULL;
    pl_config *c;
    need(pl_config_canonical(&text, r->config, r->seed) == POLAR_OK);
    need(pl_config_create(&c, schema) == POLAR_OK && strtok_r(text, "\n", &save));
    for (char *line; (line = strtok_r(NULL, "\n", &save));)
        if (strncmp(line, "seed=", 5)) need(pl_config_assign(c, line) == POLAR_OK);
    need(pl_config_run_id(id, c, r->seed) == POLAR_OK && !strcmp(id, r->id));
    pl_config_destroy(c);
    pl_free(text);
}

static void compare_plans(const pl_plan *a, const pl_plan *b)
{
    need(a->count == b->count && a->distinct == b->distinct && a->cell_count == b->cell_count);
    for (int64_t i = 0; i < a->count; i++) {
        const pl_plan_run *x = &a->runs[i], *y = &b->runs[i];
        need(!strcmp(x->id, y->id) && !strcmp(x->cell, y->cell) && !strcmp(x->arm, y->arm));
        need(x->seed == y->seed && x->first == y->first && x->first <= i);
        need(!strcmp(a->runs[x->first].id, x->id));
        if (i < 64) try_canonical(x, &a->spec->schema);
    }
}

void fuzz_try(const uint8_t *data, size_t size)
{
    char *text = fuzz_part(data, size, 0), *sets[MOST_SETS];
    pl_spec *spec, *same;
    pl_plan *plan, *again;
    int n = 0;
    while (n < MOST_SETS && (sets[n] = fuzz_part(data, size, n + 1))) n++;
    const char *path = fuzz_file(0, text, strlen(text));
    polar_status st = plan_of(&spec, &plan, path, sets, n);
    need(st == POLAR_OK || st == POLAR_E_FORMAT || st == POLAR_E_ARG || st == POLAR_E_STATE);
    if (st == POLAR_E_FORMAT) need(strstr(polar_error_message(), path) != NULL);
    if (st == POLAR_OK) {
        path = fuzz_file(0, spec->text, strlen(spec->text));
        need(plan_of(&same, &again, path, sets, n) == POLAR_OK);
        need(!strcmp(spec->sha, same->sha) && !strcmp(spec->name, same->name));
        compare_plans(plan, again);
        pl_plan_destroy(again);
        pl_spec_destroy(same);
    }
    pl_plan_destroy(plan);
    pl_spec_destroy(spec);
    for (int i = 0; i < n; i++) free(sets[i]);
    free(text);
}
