/* store_fixture.h -- a store in a folder of its own, with one finished, one begun and one planned run. */
#ifndef POLAR_STORE_FIXTURE_H
#define POLAR_STORE_FIXTURE_H

#include "fixtures/store_dump.h"
#include "test.h"

#include <unistd.h>

#include "store/store_impl.h"

static char folder[64], path[128];

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define ID_C "cccccccccccccccccccccccccccccccc"

static const pl_store_spec spec = {
    "so3_test", "5ha", "A title with 'quotes' and \xc3\xa9", "so3", "test_mse", "name: so3_test\n", NULL};
static const pl_store_plan_row plan[] = {
    {ID_A, "model.width=16", "muon", "{\"model.width\":16}", 0},
    {ID_B, "model.width=16", "adamw", "{}", -7},
    {ID_C, "model.width=32", "muon", "{}", INT64_MAX},
};
static const pl_provenance where = {"v1-2-gabc", "cpu:isa=avx2,threads=2", "A processor", 2, NULL};

static inline void clean(void)
{
    char command[512];
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s/*", folder, folder);
    if (system(command) != 0) exit(1);
}

/* A store with one finished, one begun and one planned run. */
static inline polar_status fill(pl_store *s)
{
    static const pl_result results[] = {{"test_mse", 0x1.fedcba9876543p-7},
                                        {"best_epoch", 17},
                                        {"nothing", (double)NAN},
                                        {"infinite", -INFINITY},
                                        {"tiny", 0x1p-1074}};
    static const pl_epoch_row epochs[] = {{1, 0.1, 0.3, 1e-3, 1, 12.5},
                                          {2, (double)NAN, INFINITY, 0x1.23456789abcdep-10, 0, (double)NAN}};
    static const pl_gauge_row gauges[] = {{10, 1, "layers.0.W_00", "ns_fp32", 1e-7},
                                          {10, 0, "layers.0.W_00", "exact", (double)NAN}};
    const pl_run_progress half = {epochs, 1, NULL, 0, 1.5}, all = {epochs, 2, gauges, 2, 4.25};
    PL_TRY(pl_store_put_spec(s, &spec, plan, 3));
    PL_TRY(pl_store_begin_run(s, ID_A, &where, 1));
    PL_TRY(pl_store_put_progress(s, ID_A, &half));
    PL_TRY(pl_store_begin_run(s, ID_A, &where, 0));
    PL_TRY(pl_store_finish(s, ID_A, PL_RUN_DIVERGED, results, 5, &all));
    PL_TRY(pl_store_begin_run(s, ID_B, &where, 1));
    return pl_store_put_progress(s, ID_B, &half);
}

/* The folder and the store's path in it. */
static inline void store_folder_open(void)
{
    /* syncing a real disk is slow */
    snprintf(folder, sizeof folder, "%s/polar_test_store.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) exit(1);
    snprintf(path, sizeof path, "%s/test.db", folder);
    pl_store *s = NULL;
    /* before any other use of SQLite: it shall take our memory */
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    pl_store_close(s);
}

static inline void store_folder_close(void)
{
    clean();
    rmdir(folder);
}

#endif
