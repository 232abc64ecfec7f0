/* test_optim_fault.c -- an optimiser when memory runs out: no crash, no leak, no file left, and a step that
 * was refused can be made again.
 *
 *     ctest -R test_optim_fault
 */
#include <unistd.h>

#include "fixtures/folder.h"
#include "base/alloc.h"
#include "fixtures/optim_fixture.h"

static const param_spec model[] = {{.name = "qkv", .ndim = 2, .shape = {12, 4}, .row_blocks = 3},
                                   {.name = "proj", .ndim = 2, .shape = {8, 8}},
                                   {.name = "bias", .ndim = 1, .shape = {12}}};
#define MODEL 3

static char folder[64], state_path[96];

static polar_optim_opts model_opts(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = 0.01, o.aux_lr = 0.002, o.weight_decay = 0.03;
    return o;
}

/* From opening the device to closing it; *left counts files that a failed save left. */
static polar_status life(const char *device, polar_dtype weights, const polar_optim_opts *o, int64_t *left)
{
    optim_rig r;
    polar_param_stats stats[MODEL];
    polar_status st = rig_open(&r, device, model, MODEL, weights, POLAR_DTYPE_F32, o);
    if (st != POLAR_OK) return st;
    for (int t = 0; t < 2 && st == POLAR_OK; t++) st = rig_step(&r, t);
    if (st == POLAR_OK) {
        st = polar_optim_save(r.opt, r.q, state_path);
        if (st != POLAR_OK) *left += folder_files(folder);
    }
    if (st == POLAR_OK) st = polar_optim_load(r.opt, r.q, state_path);
    if (st == POLAR_OK) st = rig_step(&r, 2);
    if (st == POLAR_OK) st = polar_optim_stats(r.opt, r.q, stats);
    rig_close(&r);
    return st;
}

/* Allocation 1, 2, ... fails until a whole life passes: out of memory each time, nothing left over. */
static void no_memory(const char *device, const char *rule, const char *map, polar_dtype weights)
{
    polar_optim_opts o = model_opts(rule);
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, before = pl_alloc_live(), leaks = 0, wrong = 0, files = 0;
    char line[96];
    TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    o.measure = 1;
    while (st != POLAR_OK && n < 100000) {
        pl_alloc_fail_at(++n);
        st = life(device, weights, &o, &files);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != before;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
        remove(state_path);
        files += folder_files(folder);
    }
    snprintf(line, sizeof line, "%s %s, %s: allocation 1 ... %lld fails", rule, map,
             polar_dtype_name(weights), (long long)n - 1);
    test_true(line, PART(st == POLAR_OK) && PART(n > 20) && PART(!leaks) && PART(!wrong) && PART(!files),
              "%lld leaks, %lld wrong codes, %lld files left", (long long)leaks, (long long)wrong,
              (long long)files);
}

/* A step that returned "out of memory" was none: made again it gives the bits of one that had memory at once.
 */
static void step_again(const char *device)
{
    optim_rig r, twin;
    polar_optim_opts o = model_opts("polaradamw");
    int64_t refusals = 0, counted = 0;
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&twin, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < 3; t++) {
        TEST_TRY(rig_step(&twin, t));
        for (int i = 0; i < MODEL; i++) {
            double *g = map_new(r.elements[i]);
            rig_gradient(g, r.elements[i], i, t);
            TEST_TRY(pl_mat_upload_f64(r.q, &r.G[i], g));
            free(g);
        }
        TEST_TRY(polar_queue_sync(r.q));
        for (int64_t n = 1;; n++, refusals++) {
            pl_alloc_fail_at(n);
            polar_status st = polar_optim_step(r.opt, r.q);
            pl_alloc_fail_at(0);
            if (st == POLAR_OK) break;
            polar_queue_sync(r.q); /* clears the error, if the queue kept it */
            counted += polar_optim_get_step(r.opt) != t || st != POLAR_E_NOMEM;
        }
        TEST_TRY(polar_queue_sync(r.q));
    }
    test_true("a step refused for want of memory, again", refusals && !counted && !rig_mismatches(&r, &twin),
              "%lld refusals, %lld counted", (long long)refusals, (long long)counted);
    rig_close(&r);
    rig_close(&twin);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_fault_XXXXXX");
    if (!mkdtemp(folder)) return 3;
    snprintf(state_path, sizeof state_path, "%s/state.safetensors", folder);
    no_memory(device, "polaradamw", "ns_bf16_fused", POLAR_DTYPE_BF16);
    no_memory(device, "muon", "ns_bf16_reference", POLAR_DTYPE_F32);
    no_memory(device, "polar_ema", "exact", POLAR_DTYPE_F64);
    no_memory(device, "adamw", "none", POLAR_DTYPE_F32);
    step_again(device);
    test_true("the folder is empty at the end", rmdir(folder) == 0, "%s", "");
    return test_end();
}
