/* fake_store.h -- a store filled with made-up runs, for tests of what reads it.
 *
 *     fake_plan p = {.spec = "so3_capacity", .cells = {"model.width=16"}, .arms = {"adamw", "muon"}, .n_seeds = 8, ...};
 *     fake_store_fill(s, &p, value);      // value() gives a run's test_mse, NaN: diverged, FAKE_UNFINISHED, FAKE_NOT_RUN
 *
 * With .accuracy it is of the testbed deit: accuracy() gives the test top-1 after an epoch, l10 and the other results follow; value() says which runs there are.
 */
#ifndef POLAR_FAKE_STORE_H
#define POLAR_FAKE_STORE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "store/store.h"
#include "test.h"

#define FAKE_UNFINISHED (-1.0)
#define FAKE_NOT_RUN    (-2.0)
#define FAKE_MOST       512
#define FAKE_EPOCHS     320

typedef struct fake_plan {
    const char *spec, *cells[4], *arms[12];
    int         n_cells, n_arms, n_seeds, epochs, gauge;
    int         backwards;    /* runs are finished from the last to the first */
    const int64_t *seeds;     /* NULL: 0, 1, ... */
    double      seconds;      /* of the first arm's epochs, a tenth more for each one after it; 0: NaN, as of a store of version 1 */
    double    (*accuracy)(int seed, int arm, int epoch);    /* places of seed and arm, epochs from 1; NULL: so3 */
} fake_plan;

typedef double (*fake_value)(int cell, int seed, int arm);

static inline void fake_id(char out[PL_RUN_ID_CHARS], const fake_plan *p, int cell, int seed, int arm)
{
    snprintf(out, PL_RUN_ID_CHARS, "%04x%04x%04x%04x%016x", (cell + 1) & 0xffffu, seed & 0xffffu, (arm + 1) & 0xffffu, (unsigned)strlen(p->spec) & 0xffffu, 0x1234567u + (unsigned)cell);
}

static inline double fake_wall(int cell, int seed, int arm)
{
    return 20.0 * (cell + 1) + arm + 0.25 * (seed % 5);
}

static inline double fake_l10(const fake_plan *p, int seed, int arm)
{
    double sum = 0;
    for (int e = p->epochs - 9; e <= p->epochs; e++) sum += p->epochs < 10 ? (double)NAN : p->accuracy(seed, arm, e);
    return sum / 10;
}

/* Epochs that fall from 1 to the value, and results as the testbed names them. */
static inline void fake_finish(pl_store *s, const fake_plan *p, int cell, int seed, int arm, double value)
{
    static const char *const maps[] = {"ns_bf16_reference", "exact"};
    char id[PL_RUN_ID_CHARS];
    pl_epoch_row epochs[FAKE_EPOCHS];
    pl_gauge_row gauges[64] = {{0}};
    int n = p->accuracy ? p->epochs : p->epochs - seed % 3, g = 0, diverged = isnan(value);
    fake_id(id, p, cell, seed, arm);
    if (value == FAKE_NOT_RUN) return;
    TEST_TRY(pl_store_begin_run(s, id, &(pl_provenance){.code = "0.1.0-test", .device = "cpu", .cpu = "a processor", .threads = 2}, 1));
    if (value == FAKE_UNFINISHED) return;
    for (int e = 0; e < n; e++) {
        double x = (double)(e + 1) / p->epochs;
        epochs[e] = (pl_epoch_row){.epoch = e + 1, .train_loss = exp(-5 * x), .valid = (diverged ? 0.01 : value) * (1 + 60 * exp(-9 * x) + 0.1 * sin(seed + 9 * x)), .lr = 1e-3 * (1 - x), .improved = 1};
        epochs[e].seconds = p->seconds ? p->seconds * (1 + 0.1 * arm) : (double)NAN;
        if (p->accuracy) epochs[e].valid = p->accuracy(seed, arm, e + 1);
    }
    for (int step = 1; p->gauge && step <= 100; step *= 10)
        for (int m = 0; m < 2; m++)
            for (int shadow = 0; shadow < 2; shadow++) {
                pl_gauge_row *r = &gauges[g++];
                *r = (pl_gauge_row){.step = step, .shadow = shadow, .deviation = (m ? 1e-14 : 2e-2) * (1 + arm) + (arm == 2 ? 0.5 : 0) + 1e-3 * shadow * (m ? 1e-12 : 1)};
                snprintf(r->block, sizeof r->block, "layers.0.W_00.weight");
                snprintf(r->map, sizeof r->map, "%s", maps[m]);
            }
    pl_result results[] = {{"test_mse", value}, {"best_epoch", n - 1}, {"epochs", n}, {"trace_mse", 0.0093 + 1e-5 * seed}, {"trace_anisotropy_mse", 0.0012 + 1e-6 * seed}, {"diverged", diverged}};
    pl_run_progress progress = {.epochs = epochs, .epoch_count = n, .gauges = gauges, .gauge_count = g, .wall = fake_wall(cell, seed, arm)};
    if (p->accuracy) {
        double top1 = epochs[n - 1].valid;
        pl_result of_deit[] = {{"l10", diverged ? (double)NAN : fake_l10(p, seed, arm)}, {"top1", top1}, {"best_top1", top1}, {"best_epoch", n}, {"epochs", n}, {"diverged", diverged}};
        memcpy(results, of_deit, sizeof results);
    }
    TEST_TRY(pl_store_finish(s, id, diverged ? PL_RUN_DIVERGED : PL_RUN_DONE, results, sizeof results / sizeof *results, &progress));
}

static inline void fake_store_fill(pl_store *s, const fake_plan *p, fake_value value)
{
    static char ids[FAKE_MOST][PL_RUN_ID_CHARS], configs[FAKE_MOST][160];
    static pl_store_plan_row rows[FAKE_MOST];
    int n = 0;
    for (int c = 0; c < p->n_cells; c++)
        for (int k = 0; k < p->n_seeds; k++)
            for (int r = 0; r < p->n_arms; r++, n++) {
                fake_id(ids[n], p, c, k, r);
                snprintf(configs[n], sizeof configs[n], "{\"model.width\": %d, \"optim.rule\": \"%s\", \"optim.lr\": 0.001, \"train.epochs\": %d}", 16 << c, p->arms[r], p->epochs);
                rows[n] = (pl_store_plan_row){ids[n], p->cells[c], p->arms[r], configs[n], p->seeds ? p->seeds[k] : k};
            }
    pl_store_spec spec = {.name = p->spec, .sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", .title = "Test MSE <against> width & seeds",
                          .testbed = p->accuracy ? "deit" : "so3", .metric = p->accuracy ? "l10" : "test_mse", .text = "name: x\n# a < b\n"};
    TEST_TRY(pl_store_put_spec(s, &spec, rows, n));
    for (int i = 0; i < n; i++) {
        int at = p->backwards ? n - 1 - i : i, c = at / (p->n_seeds * p->n_arms), k = at / p->n_arms % p->n_seeds, r = at % p->n_arms;
        fake_finish(s, p, c, k, r, value(c, k, r));
    }
}

#endif
