/* test_spec.c -- specs and plans: what is read, what every mistake is told and on which line, --set, order
 * and twins of runs. */
#include "spec_fixture.h"

#include "lab/run/testbed.h"

#define HEAD        "name: t\ntestbed: toy\nseeds: 0..3\n"                        /* three lines */
#define DIFFERENCES PUBLISHED "    - {model.width: 8, muon: 1}\n  differences:\n" /* nine lines */
#define PUBLISHED \
    HEAD "arms: [adamw, muon]\ngrid: {model.width: [8, 16]}\npublished:\n  values:\n" /* seven lines */

/* ---- mistakes in a file ------------------------------------------------------------------------- */

static const struct {
    const char *text, *line, *part;
} mistakes[] = {
    {"", ":1:", "the file is empty"},
    {"# only a comment\n", ":1:", "the file is empty"},
    {"- a\n- b\n", ":1:", "a spec is a mapping"},
    {"just a word\n", ":1:", "a spec is a mapping"},
    {"name: t\nseeds: 0\narms: [muon]\n", ":1:", "'testbed: ...' is missing"},
    {"testbed: toy\nseeds: 0\narms: [muon]\n", ":1:", "'name: ...' is missing"},
    {"name: t\ntestbed: toy\nseeds: 0\n", ":1:", "'arms: ...' is missing"},
    {"name: t\ntestbed: toy\narms: [muon]\n", ":1:", "'seeds: ...' is missing"},
    {"name: t\ntestbed: deit\nseeds: 0\narms: [muon]\n", ":2:", "no testbed 'deit' (there is: toy)"},
    {"name: T-1\ntestbed: toy\nseeds: 0\narms: [muon]\n", ":1:", "a word of a-z"},
    {HEAD "arms: [muon]\nmetric: [a]\n", ":5:", "metric wants a word"},
    {HEAD "arms: [muon]\nmetric: losss\n",
     ":5:", "no result 'losss' in testbed toy (did you mean loss? there is: wall, loss, test_top1)"},
    {HEAD "arms: [muon]\nmetric: speed\n",
     ":5:", "no result 'speed' in testbed toy (there is: wall, loss, test_top1)"},
    {HEAD "arms: [muon]\ntitle: \"\\u009b31m\"\n", ":5:", "without control characters"},
    {HEAD "arms: [muon]\nabout: \"a\\n\\u202eb\"\n", ":5:", "without control characters"},
    {HEAD "arms: [muon]\ntitle:\n", ":5:", "title wants one line"},
    {HEAD "arms: [muon]\ntitel: x\n", ":5:", "did you mean title?"},
    {HEAD "arms: [muon]\nsomething: x\n", ":5:", "unknown 'something'"},
    {HEAD "arms: [muon]\nmodel.width: 8\n", ":5:", "under set, grid or an arm"},
    /* values */
    {HEAD "arms: [muon]\nset:\n  model.layers: 2\n  model.wdth: 8\n", ":7:", "did you mean model.width?"},
    {HEAD "arms: [muon]\nset: {model.width: wide}\n",
     ":5:", "model.width wants a whole number from 1 to 4096, got 'wide'"},
    {HEAD "arms: [muon]\nset: {model.width: 8.5}\n", ":5:", "whole number"},
    {HEAD "arms: [muon]\nset: {model.width: -16}\n", ":5:", "from 1 to 4096, got '-16'"},
    {HEAD "arms: [muon]\nset: {model.width: \"16\"}\n", ":5:", "leave the quotes out"},
    {HEAD "arms: [muon]\nset: {model.width: 100000}\n", ":5:", "from 1 to 4096"},
    {HEAD "arms: [muon]\nset: {model.width: [8, 16]}\n", ":5:", "one value here, got a list"},
    {HEAD "arms: [muon]\nset: {model.width: }\n", ":5:", "has no value"},
    {HEAD "arms: [muon]\nset: {optim.lr: fast}\n", ":5:", "a number from 0 to 10"},
    {HEAD "arms: [muon]\nset: {optim.lr: .nan}\n", ":5:", "a number from 0 to 10"},
    {HEAD "arms: [muon]\nset: {train.clip: yes}\n", ":5:", "one of false, true"},
    {HEAD "arms: [muon]\nset: {map.rounding: refrence}\n", ":5:", "one of fused, reference"},
    {HEAD "arms: [muon]\nset: [model.width]\n", ":5:", "set wants a mapping"},
    {HEAD "arms: [muon]\nset:\n  optim.lr: 1\n  optim.lr: 1\n",
     ":7:", "'optim.lr' is given twice (first on line 6)"},
    /* grid */
    {HEAD "arms: [muon]\ngrid:\n", ":5:", "grid wants a mapping"},
    {HEAD "arms: [muon]\ngrid: {}\n", ":5:", "leave it out"},
    {HEAD "arms: [muon]\ngrid: {model.width: []}\n", ":5:", "a list of values"},
    {HEAD "arms: [muon]\ngrid:\n  model.width:\n    - 8\n    - 16\n    - 0\n", ":9:", "got '0'"},
    {HEAD "arms: [muon]\ngrid: {optim.lr: [1e-3, 0.001]}\n", ":5:", "the value 0.001 twice"},
    {HEAD "arms: [muon]\ngrid: {optim.lr: [1, 2]}\nset: {optim.lr: 1}\n", ":6:", "in the grid and in set"},
    {HEAD "arms:\n  a: {optim.rule: muon, optim.lr: 3}\ngrid: {optim.lr: [1, 2]}\n",
     ":5:", "in the grid and in arm 'a'"},
    {HEAD "arms: [muon]\ngrid: {optim.rule: [muon, adamw]}\n", ":4:", "in the grid and in arm 'muon'"},
    /* arms */
    {HEAD "arms: []\n", ":4:", "arms wants a list"},
    {HEAD "arms: muon\n", ":4:", "arms wants a list"},
    {HEAD "arms: [muno]\n", ":4:", "did you mean muon?"},
    {HEAD "arms: [sgd]\n", ":4:", "holds values of optim.rule"},
    {HEAD "arms:\n  - muon\n  - adamw\n  - muon\n", ":7:", "arm 'muon' is given twice (first on line 5)"},
    {HEAD "arms:\n  a: {optim.rule: muon}\n  a: {optim.rule: adamw}\n",
     ":6:", "'a' is given twice (first on line 5)"},
    {HEAD "arms: [{muon: 1}]\n", ":4:", "arms with settings are a mapping"},
    {HEAD "arms:\n  fast: {optim.lr: 1}\n", ":5:", "arm 'fast' has no optim.rule"},
    {HEAD "arms:\n  muon: {optim.rule: adamw}\n", ":5:", "another rule than its name says"},
    {HEAD "arms:\n  muon: 3\n", ":5:", "arm 'muon' wants a mapping"},
    {HEAD "arms:\n  a b: {optim.rule: muon}\n", ":5:", "an arm's name"},
    {HEAD "arms:\n  muon: {\n    optim.lrr: 1}\n", ":6:", "did you mean optim.lr?"},
    /* published values */
    {HEAD "arms: [muon]\npublished: 3\n", ":5:", "published wants a mapping"},
    {HEAD "arms: [muon]\npublished: {value: []}\n", ":5:", "unknown 'value' (published has by, note, values"},
    {HEAD "arms: [muon]\npublished: {values: 3}\n", ":5:", "values wants a list of rows"},
    {HEAD "arms: [muon]\npublished: {values: [3]}\n", ":5:", "a published row is a mapping"},
    {HEAD "arms: [muon]\npublished: {values: [{}]}\n", ":5:", "a published row without an arm"},
    {PUBLISHED "    - {model.width: 8, muno: 1}\n", ":8:", "did you mean muon?"},
    {PUBLISHED "    - {model.width: 9, muon: 1}\n", ":8:", "the grid has no cell with model.width=9"},
    {PUBLISHED "    - {model.width: eight, muon: 1}\n", ":8:", "model.width wants a whole number"},
    {PUBLISHED "    - {muon: 1}\n", ":8:", "which model.width?"},
    {PUBLISHED "    - {model.width: 8, metric: losss, muon: 1}\n", ":8:", "did you mean loss?"},
    {PUBLISHED "    - {model.width: 8, seed: 4, muon: 1}\n", ":8:", "seed 4 is not one of the spec's"},
    {PUBLISHED "    - {model.width: 8, epoch: 0, muon: 1}\n", ":8:", "epoch wants"},
    {PUBLISHED "    - {model.width: 8, epoch: 2, seed: 1, muon: 1}\n", ":8:", "no metric, no seed"},
    {PUBLISHED "    - {model.width: 8, muon: fast}\n", ":8:", "muon wants"},
    {PUBLISHED "    - {model.width: 8, muon: \"1\"}\n", ":8:", "muon wants a number"},
    {PUBLISHED "    - {model.width: 8, muon: .inf}\n", ":8:", "muon wants"},
    {PUBLISHED "    - {model.width: 8, muon: 1}\n    - {model.width: 8, muon: 2}\n", ":9:", "is given twice"},
    {DIFFERENCES "    - {model.width: 8, a: muon, b: adamw}\n", ":10:", "wants a, b and mean"},
    {DIFFERENCES "    - {model.width: 8, a: muon, b: sgd, mean: 1}\n", ":10:", "'sgd' here"},
    {DIFFERENCES "    - {model.width: 8, a: muon, b: muon, mean: 1}\n", ":10:", "with itself"},
    {DIFFERENCES "    - {model.width: 8, a: muon, b: adamw, mean: 1, p: 1}\n", ":10:", "'p' here"},
    {DIFFERENCES "    - {model.width: 8, a: muon, b: adamw, mean: 1}\n"
                 "    - {model.width: 8, a: adamw, b: muon, mean: 1}\n",
     ":11:", "is given twice"},
    /* comparisons */
    {HEAD "arms: [muon]\ncompare: u\n", ":5:", "compare wants a list"},
    {HEAD "arms: [muon]\ncompare: [u]\n", ":5:", "a comparison is a mapping"},
    {HEAD "arms: [muon]\ncompare: [{title: x}]\n", ":5:", "wants with"},
    {HEAD "arms: [muon]\ncompare: [{with: t}]\n", ":5:", "with itself"},
    {HEAD "arms: [muon]\ncompare: [{with: u, tabless: []}]\n", ":5:", "did you mean tables"},
    {HEAD "arms: [muon]\ncompare: [{with: u, tables: [lifts]}]\n", ":5:", "seeds, lift, crossover"},
    {HEAD "arms: [muon]\ncompare: [{with: u, curve: adamw}]\n", ":5:", "no arm 'adamw'"},
    {HEAD "arms: [muon]\ncompare: [{with: u, labels: [a]}]\n", ":5:", "labels wants two"},
    {HEAD "arms: [muon]\ncompare: [{with: u, at_epoch: 0}]\n", ":5:", "an epoch wants"},
    {HEAD "arms: [muon]\ncompare: [{with: u, since: {adamw: 3}}]\n", ":5:", "no arm 'adamw'"},
    {HEAD "arms: [muon]\ncompare: [{with: u, equivalence: 0}]\n", ":5:", "equivalence wants"},
    {HEAD "arms: [muon]\ntests: 3\n", ":5:", "tests wants a mapping"},
    {HEAD "arms: [muon]\ntests: {margin: 3}\n", ":5:", "there are target and equivalence"},
    {HEAD "arms: [muon]\ntests: {target: x}\n", ":5:", "target wants"},
    {HEAD "arms: [muon]\ntests: {equivalence: -1}\n", ":5:", "equivalence wants"},
    {HEAD "arms: [muon]\ntests: {target: [1]}\n", ":5:", "target wants a number"},
    /* seeds */
    {"name: t\ntestbed: toy\nseeds: []\narms: [muon]\n", ":3:", "empty list"},
    {"name: t\ntestbed: toy\nseeds:\narms: [muon]\n", ":3:", "seeds wants whole numbers"},
    {"name: t\ntestbed: toy\nseeds: {a: 1}\narms: [muon]\n", ":3:", "got a mapping"},
    {"name: t\ntestbed: toy\nseeds: -1\narms: [muon]\n", ":3:", "got '-1'"},
    {"name: t\ntestbed: toy\nseeds: 1.5\narms: [muon]\n", ":3:", "got '1.5'"},
    {"name: t\ntestbed: toy\nseeds: 9..0\narms: [muon]\n", ":3:", "ends before it begins"},
    {"name: t\ntestbed: toy\nseeds: 0..\narms: [muon]\n", ":3:", "got '0..'"},
    {"name: t\ntestbed: toy\nseeds: 0...3\narms: [muon]\n", ":3:", "got '0...3'"},
    {"name: t\ntestbed: toy\nseeds: 0..9999999\narms: [muon]\n", ":3:", "more than 100000 seeds"},
    {"name: t\ntestbed: toy\nseeds: 99999999999999999999\narms: [muon]\n",
     ":3:", "seeds wants whole numbers"},
    {"name: t\ntestbed: toy\nseeds: [42, 7, 42]\narms: [muon]\n", ":3:", "seed 42 is given twice"},
    {"name: t\ntestbed: toy\nseeds:\n- 0..9\n- 12\n- 5\narms: [muon]\n", ":6:", "seed 5 is given twice"},
    /* YAML */
    {HEAD "arms: [muon]\nname: u\n", ":5:", "'name' is given twice (first on line 1)"},
    {HEAD "arms: [muon]\nset:\n\tmodel.width: 8\n", ":6:", "no tabs"},
    {HEAD "arms: [muon\n", ":5:", ""},
    {HEAD "arms: [muon]\n---\nname: u\n", ":5:", "a second document"},
    {HEAD "arms: &a [muon]\n", ":4:", "anchors"},
    {HEAD "arms: [muon]\nset: {route.matrix: *.weight}\n", ":5:", "quote the text"},
    {HEAD "arms: [muon]\nset: {model.width: !!int 8}\n", ":5:", "tags"},
    {HEAD "arms: [muon]\n? [a]\n: b\n", ":5:", "a key must be a word"},
    {HEAD "arms: [muon]\n\"\": b\n", ":5:", "an empty key"},
    {HEAD "arms: [muon]\nset: {route.matrix: \"a\\0b\"}\n", ":5:", "zero byte"},
    {HEAD "arms: [muon]\nset: {route.matrix: \"a\\nb\"}\n", ":5:", "one line"},
    {HEAD "arms: [[[[[[[[[[[[[[[[[[[[[[muon\n", ":4:", "nested deeper than 8 levels"},
    {HEAD "arms: [muon]\ntitle: \xff\xfe\n", ":5:", "not UTF-8"},
    {HEAD "arms: [muon]\ntitle: \x01\n", ":5:", "control characters"},
};

static void test_mistakes(void)
{
    int64_t wrong = 0, leaks = 0;
    int n = (int)(sizeof mistakes / sizeof *mistakes);
    for (int i = 0; i < n; i++) {
        pl_spec *s;
        char where[96];
        int64_t live = pl_alloc_live();
        spec_write(mistakes[i].text, strlen(mistakes[i].text));
        polar_status st = pl_spec_read(&s, spec_path, &toy_schema, 1, NULL, 0);
        snprintf(where, sizeof where, "%s%s", spec_path, mistakes[i].line);
        int ok = st == POLAR_E_FORMAT && !s && strstr(polar_error_message(), where) &&
                 strstr(polar_error_message(), mistakes[i].part);
        if (!ok)
            printf("mistake %d wants '%s %s', got %d: %s  FAIL\n%s\n", i, mistakes[i].line, mistakes[i].part,
                   (int)st, polar_error_message(), mistakes[i].text);
        wrong += !ok;
        leaks += pl_alloc_live() != live;
        pl_spec_destroy(s);
    }
    test_true("each mistake with its line and its word", !wrong, "%d mistakes, %lld told otherwise", n,
              (long long)wrong);
    test_exact("nothing left behind by a mistake", leaks);
}

/* Published values under the names that plans give cells; read before the fields they refer to, and kept when
 * --set narrows the rest. */
static void test_published(void)
{
    static const char text[] =
        "published:\n"
        "  by: a paper\n"
        "  values:\n"
        "    - {optim.lr: 1e-3, model.width: 8, muon: 0.5, adamw: 0.75}\n"
        "    - {model.width: 8, optim.lr: 2, metric: top1, muon: 80}\n"
        "    - {model.width: 8, optim.lr: 2, seed: 3, muon: 0.25}\n"
        "    - {model.width: 8, optim.lr: 2, epoch: 26, muon: 64.5}\n"
        "    - {model.width: 8, optim.lr: 2, metric: epoch_seconds, muon: 7}\n"
        "  differences:\n"
        "    - {model.width: 8, optim.lr: 2, a: muon, b: adamw, mean: -1.5, t: -3, n: 9}\n"
        "compare:\n"
        "  - {with: u, tables: [lift], curve: muon, since: {muon: 66}, labels: [x, y], equivalence: 0.5}\n"
        "  - {with: v}\n"
        "tests: {equivalence: 1e-4}\n"
        "grid: {model.width: [8, 16], optim.lr: [0.001, 2]}\narms: [adamw, muon]\n" HEAD;
    static const char *const narrowed[] = {"model.width=16", "arms=adamw"};
    const char *cell = "model.width=8 optim.lr=2";
    pl_spec *s, *again;
    spec_write(text, strlen(text));
    TEST_TRY(pl_spec_read(&s, spec_path, &toy_schema, 1, narrowed, 2));
    const pl_published *p = s->published;
    pl_published_difference d = pl_published_pair_of(p, cell, "adamw", "muon", "loss");
    test_true("published: by cell, arm, metric",
              PART(pl_published_value(p, "model.width=8 optim.lr=0.001", "muon", "loss") == 0.5) &&
                  PART(pl_published_value(p, cell, "muon", "test_top1") == 80) &&
                  PART(pl_published_value(p, cell, "muon", PL_METRIC_EPOCH_SECONDS) == 7) &&
                  PART(isnan(pl_published_value(p, cell, "muon", "loss"))) &&
                  PART(!strcmp(pl_published_by(p), "a paper")),
              "cells as plans name them, top1 for test_top1");
    test_true("published: of a seed, after an epoch",
              PART(pl_published_seed(p, cell, "muon", "loss", 3) == 0.25) &&
                  PART(isnan(pl_published_seed(p, cell, "muon", "loss", 2))) &&
                  PART(pl_published_epoch(p, cell, "muon", 26) == 64.5) &&
                  PART(isnan(pl_published_epoch(p, cell, "muon", 25))),
              "seed 3, epoch 26");
    test_true("tests: a margin, no target", s->equivalence == 1e-4 && s->target == 0, "%g", s->equivalence);
    test_true("published: a difference turned round", d.mean == 1.5 && d.t == 3 && d.n == 9, "%g", d.mean);
    int has = pl_published_has(p, "loss") && pl_published_has(p, "test_top1");
    test_true("published: which metrics", has && !pl_published_has(p, "wall"), "loss, test_top1");
    test_true(
        "compare: as written, and by default",
        PART(s->compare_count == 2) && PART(!strcmp(s->compares[0].with, "u")) &&
            PART(s->compares[0].tables == PL_COMPARE_LIFT) && PART(!strcmp(s->compares[0].curve, "muon")) &&
            PART(s->compares[0].since[0].epochs == 66) && PART(!strcmp(s->compares[0].labels[1], "y")) &&
            PART(s->compares[1].tables == (PL_COMPARE_SEEDS | PL_COMPARE_LIFT | PL_COMPARE_CROSSOVER)) &&
            PART(!s->compares[1].curve) && PART(s->compares[0].equivalence == 0.5) &&
            PART(s->compares[1].equivalence == 0),
        "two");
    TEST_TRY(pl_spec_read_text(&again, "a store's text", s->text, &toy_schema, 1));
    test_true("the same from a text",
              PART(!strcmp(again->sha, s->sha)) && PART(again->published->row_count == p->row_count) &&
                  PART(again->arm_count == 2) && PART(s->arm_count == 1),
              "%d values", p->row_count);
    pl_spec_destroy(s);
    pl_spec_destroy(again);
}

static void refuse_bytes(const char *what, const void *bytes, size_t n, const char *part)
{
    pl_spec *s;
    spec_write(bytes, n);
    polar_status st = pl_spec_read(&s, spec_path, &toy_schema, 1, NULL, 0);
    test_true(what, st == POLAR_E_FORMAT && strstr(polar_error_message(), part), "%s", polar_error_message());
    pl_spec_destroy(s);
}

/* Six keys of 60 values each: more cells than an int counts, and a published value in the last of them. */
static void test_wide_grid(void)
{
    static const char *const keys[] = {"model.width",  "model.layers", "optim.lr",
                                       "optim.aux_lr", "optim.beta1",  "route.matrix"};
    char text[8192] = HEAD "arms: [muon]\ngrid:\n", row[256] = "";
    for (int i = 0; i < 6; i++) {
        const char *value = i < 2 ? "%d, " : "0.%02d, ";
        snprintf(text + strlen(text), sizeof text - strlen(text), "  %s: [", keys[i]);
        for (int k = 1; k <= 60; k++) snprintf(text + strlen(text), sizeof text - strlen(text), value, k);
        strcat(text, "]\n");
        snprintf(row + strlen(row), sizeof row - strlen(row), "%s: ", keys[i]);
        snprintf(row + strlen(row), sizeof row - strlen(row), value, 60);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "published:\n  values:\n  - {%smuon: 1}\n",
             row);
    refuse_bytes("a grid of more cells than can be counted", text, strlen(text), "2147483647 cells");
}

static void test_files(void)
{
    test_wide_grid();
    pl_spec *s;
    static char big[300 * 1024];
    unsigned char noise[4096];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)(i * 167 + i / 256 * 13);
    memset(big, '#', sizeof big);
    refuse_bytes("a huge file", big, sizeof big, "at most 256 KiB");
    refuse_bytes("a binary file", noise, sizeof noise, "not UTF-8 text");
    refuse_bytes("zero bytes", "name: t\0\n", 9, ":1: not UTF-8 text");
    refuse_bytes("UTF-16, the low byte first", "\xff\xfen\0a\0", 6,
                 ":1: the file is UTF-16: save it as UTF-8");
    refuse_bytes("UTF-16, the high byte first", "\xfe\xff\0n\0a", 6,
                 ":1: the file is UTF-16: save it as UTF-8");
    memset(big, '[', 200000);
    refuse_bytes("a file of brackets", big, 200000, ":1:");
    size_t used = (size_t)snprintf(big, sizeof big, HEAD "arms: [muon]\nset:\n");
    for (int i = 0; used < 200000; i++)
        used += (size_t)snprintf(big + used, sizeof big - used, "  a%d: 1\n", i);
    refuse_bytes("very many keys", big, used, ":");
    polar_status st = pl_spec_read(&s, "/tmp/polar_there_is_no_such_file.yaml", &toy_schema, 1, NULL, 0);
    test_true("a missing file",
              st == POLAR_E_ARG && strstr(polar_error_message(), "polar_there_is_no_such_file"), "%s",
              polar_error_message());
    st = pl_spec_read(&s, "/tmp", &toy_schema, 1, NULL, 0);
    test_true("a folder", st == POLAR_E_ARG, "%s", polar_error_message());
}

/* ---- plans -------------------------------------------------------------------------------------- */

static const char good[] = "# a comment\n"
                           "name: t\ntitle: 'A title: with a colon'\ntestbed: toy\nseeds: [7, 0..2]\n"
                           "arms:\n  adamw:\n  muon:\n  slow: {optim.rule: muon, optim.lr: 1e-4}\n"
                           "grid: {model.width: [16, 32], map.rounding: [reference, fused]}\n"
                           "set: {route.matrix: \"*.W, x\"}\n";

static void test_plan(void)
{
    static const char *const cells[] = {
        "model.width=16 map.rounding=reference", "model.width=16 map.rounding=fused",
        "model.width=32 map.rounding=reference", "model.width=32 map.rounding=fused"};
    static const int64_t seeds[] = {7, 0, 1, 2};
    pl_spec *s;
    pl_plan *p;
    spec_write(good, strlen(good));
    TEST_TRY(spec_plan(&s, &p, NULL, 0));
    int64_t wrong = 0, twins = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const pl_plan_run *r = &p->runs[i];
        int c = (int)(i / 12), a = (int)(i % 3);
        wrong += strcmp(r->cell, cells[c]) || strcmp(r->arm, s->arms[a].name) ||
                 r->seed != seeds[i / 3 % 4] || r->cell_index != c || r->arm_index != a;
        wrong += pl_config_int(r->config, "model.width") != (c < 2 ? 16 : 32) ||
                 pl_config_choice(r->config, "map.rounding") != (c % 2 ? 0 : 1);
        wrong += pl_config_real(r->config, "optim.lr") != (a == 2 ? 1e-4 : 1e-3) ||
                 strcmp(pl_config_text(r->config, "route.matrix"), "*.W, x");
        wrong += strcmp(pl_config_text(r->config, "optim.rule"), a ? "muon" : "adamw") != 0;
        /* adamw has no rounding: its runs of the second cell are those of the first */
        int twin = a == 0 && c % 2;
        wrong += r->first != (twin ? i - 12 : i);
        twins += twin;
    }
    test_true("cells x seeds x arms, in order, configured", !wrong && p->count == 48 && p->cell_count == 4,
              "%lld runs, %lld wrong", (long long)p->count, (long long)wrong);
    test_true("the same run in two cells is done once", p->distinct == p->count - twins && twins == 8,
              "%lld distinct", (long long)p->distinct);
    test_true("title, metric, sha",
              PART(!strcmp(s->title, "A title: with a colon")) && PART(!strcmp(s->metric, "loss")) &&
                  PART(strlen(s->sha) == 64) && PART(!strcmp(s->text, good)),
              "%s", s->sha);
    pl_plan_destroy(p);
    pl_spec_destroy(s);
    pl_config *c; /* the pinned id of test_config.c by way of a file */
    char id[PL_RUN_ID_CHARS];
    const char *one =
        "name: t\ntestbed: toy\nseeds: 7\narms: [polaradamw]\nset: {model.width: 32, optim.beta1: 0.9}\n";
    spec_write(one, strlen(one));
    TEST_TRY(spec_plan(&s, &p, NULL, 0));
    TEST_TRY(pl_config_create(&c, &toy_schema));
    TEST_TRY(pl_config_assign(c, "model.width=32"));
    TEST_TRY(pl_config_assign(c, "optim.rule=polaradamw"));
    TEST_TRY(pl_config_run_id(id, c, 7));
    test_true("the id does not know the spec",
              p->count == 1 && !strcmp(p->runs[0].id, id) && !strcmp(p->runs[0].cell, "all"), "%s",
              p->runs[0].id);
    pl_config_destroy(c);
    pl_plan_destroy(p);
    pl_spec_destroy(s);
}

/* As some editors save a file: the same spec, to its checksum. */
static void test_byte_order_mark(void)
{
    static const char plain[] = HEAD "arms: [muon]\n", marked[] = "\xef\xbb\xbf" HEAD "arms: [muon]\n";
    pl_spec *a = NULL, *b = NULL, *c = NULL;
    spec_write(plain, strlen(plain));
    TEST_TRY(pl_spec_read(&a, spec_path, &toy_schema, 1, NULL, 0));
    spec_write(marked, strlen(marked));
    TEST_TRY(pl_spec_read(&b, spec_path, &toy_schema, 1, NULL, 0));
    test_true("a byte order mark changes nothing", !strcmp(a->sha, b->sha) && !strcmp(a->text, b->text),
              "%.12s", b->sha);
    spec_write("\xef\xbb\xbf", 3);
    polar_status st = pl_spec_read(&c, spec_path, &toy_schema, 1, NULL, 0);
    test_true("nothing but a mark", st == POLAR_E_FORMAT && strstr(polar_error_message(), "is empty"), "%s",
              polar_error_message());
    pl_spec_destroy(a);
    pl_spec_destroy(b);
    pl_spec_destroy(c);
}

static void refuse_plan(const char *what, const char *text, const char *override, const char *part)
{
    pl_spec *s = NULL;
    pl_plan *p = NULL;
    spec_write(text, strlen(text));
    polar_status st = spec_plan(&s, &p, &override, override != NULL);
    int ok = st == POLAR_E_ARG && strstr(polar_error_message(), part);
    test_true(what, ok, "%s", polar_error_message());
    pl_plan_destroy(p);
    pl_spec_destroy(s);
}

static void test_refused_plans(void)
{
    refuse_plan("two arms that are the same run",
                HEAD "arms:\n  muon:\n  again: {optim.rule: muon, optim.lr: 0.001}\n", NULL,
                "arms 'muon' and 'again' are the same run");
    refuse_plan("keys that contradict each other", HEAD "arms: [muon]\ngrid: {model.width: [8, 2]}\n", NULL,
                "cell 'model.width=2', arm 'muon': more layers");
    refuse_plan("too many runs",
                "name: t\ntestbed: toy\nseeds: 0..99999\narms: [muon]\ngrid: {model.width: "
                "[4,5,6,7,8,9,10,11,12,13,14]}\n",
                NULL, "more than 1000000 runs");
    refuse_plan("--set without =", good, "seeds", "--set wants key=value");
    refuse_plan("--set of nothing", good, "=3", "--set wants key=value");
    refuse_plan("--set unknown", good, "model.wdth=3", "did you mean model.width?");
    refuse_plan("--set wrong type", good, "model.layers=many", "model.layers wants a whole number");
    refuse_plan("--set seeds wrong", good, "seeds=a", "--set seeds=a: seeds wants");
    char zeros[400]; /* a seed of 300 digits, which once was cut to 255 of them */
    snprintf(zeros, sizeof zeros, "seeds=%0299d7", 1);
    refuse_plan("--set seeds too long", good, zeros, "more than 255 bytes");
    snprintf(zeros, sizeof zeros, "arms=%0300d", 0);
    memset(zeros + 5, '*', 300);
    refuse_plan("--set arms too long", good, zeros, "more than 255 bytes");
    refuse_plan("--set seeds empty", good, "seeds=", "seeds wants");
    refuse_plan("--set seeds twice", good, "seeds=0..3,2", "seed 2 is given twice");
    refuse_plan("--set unknown arm", good, "arms=sgdm", "has adamw, muon, slow");
    refuse_plan("--set arm twice", good, "arms=muon,muon", "given twice");
    refuse_plan("--set arm twice, once by a pattern", good, "arms=muon,*u*", "'muon' is given twice");
    refuse_plan("--set pattern without an arm", good, "arms=*_wd", "has adamw, muon, slow");
    refuse_plan("--set outside the grid", good, "model.width=64", "has 16, 32");
    refuse_plan("--set grid wrong type", good, "model.width=wide", "whole number");
    refuse_plan("--set what an arm has", good, "optim.lr=1", "arm 'slow' has its own");
    refuse_plan("--set name", good, "name=x", "only the file says that");
    const char *twice[] = {"seeds=1", "seeds=2"};
    pl_spec *s;
    polar_status st = pl_spec_read(&s, spec_path, &toy_schema, 1, twice, 2);
    test_true("--set twice", st == POLAR_E_ARG && strstr(polar_error_message(), "given twice"), "%s",
              polar_error_message());
}

static void test_overrides(void)
{
    static const char *const all[] = {"seeds=0..3,100", "arms=slow,adamw",
                                      "model.width=32", "map.rounding=fused,reference",
                                      "model.layers=2", "route.matrix=a,b"};
    pl_spec *s;
    pl_plan *p;
    spec_write(good, strlen(good));
    TEST_TRY(spec_plan(&s, &p, all, 6));
    const pl_config *c = p->runs[p->count - 1].config;
    int ok = p->count == 5 * 2 * 2 && p->cell_count == 2 && s->seed_count == 5 && s->seeds[4] == 100 &&
             !strcmp(s->arms[0].name, "adamw") && !strcmp(s->arms[1].name, "slow") &&
             !strcmp(p->cells[0], "model.width=32 map.rounding=reference") &&
             pl_config_int(c, "model.layers") == 2 && !strcmp(pl_config_text(c, "route.matrix"), "a,b");
    test_true("--set seeds, arms, grid, keys", ok, "%lld runs, first cell %s", (long long)p->count,
              p->cells[0]);
    pl_plan_destroy(p);
    pl_spec_destroy(s);
}

/* A key that another arm has of its own is no obstacle, whether the arms are named before it or after. */
static void test_override_order(void)
{
    static const char *const sets[][2] = {{"arms=*d*,m?on", "optim.lr=1"}, {"optim.lr=1", "arms=*d*,m?on"}};
    spec_write(good, strlen(good));
    for (int i = 0; i < 2; i++) {
        pl_spec *s;
        TEST_TRY(pl_spec_read(&s, spec_path, &toy_schema, 1, sets[i], 2));
        test_true("--set arms before other keys",
                  s->arm_count == 2 && !strcmp(s->arms[0].name, "adamw") && !strcmp(s->arms[1].name, "muon"),
                  "%d arms", s->arm_count);
        pl_spec_destroy(s);
    }
}

static void test_faults(void)
{
    static const char *const overrides[] = {"seeds=0..1", "arms=slow,adamw", "model.width=32",
                                            "model.layers=2"};
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0;
    char text[4096];
    snprintf(text, sizeof text,
             "%spublished:\n  note: x\n  values:\n    - {model.width: 32, map.rounding: fused, muon: 1, "
             "slow: 2}\n  differences:\n"
             "    - {model.width: 32, map.rounding: fused, a: muon, b: slow, mean: 3}\ncompare: [{with: u, "
             "since: {muon: 3}}]\n",
             good);
    spec_write(text, strlen(text));
    for (; st != POLAR_OK && n < 10000; n++) {
        pl_spec *s = NULL;
        pl_plan *p = NULL;
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = spec_plan(&s, &p, overrides, 4);
        pl_alloc_fail_at(0);
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || p);
        pl_plan_destroy(p);
        pl_spec_destroy(s);
        leaks += pl_alloc_live() != live;
    }
    test_true("memory runs out at every allocation", st == POLAR_OK && n > 50 && !leaks && !wrong,
              "%lld allocations, %lld leaks, %lld other errors", (long long)n - 1, (long long)leaks,
              (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    spec_file_begin();
    test_mistakes();
    test_published();
    test_files();
    test_plan();
    test_byte_order_mark();
    test_refused_plans();
    test_overrides();
    test_override_order();
    test_faults();
    spec_file_end();
    return test_end();
}
