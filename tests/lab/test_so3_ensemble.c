/* test_so3_ensemble.c -- a run is the same bits whoever trains beside it and wherever it was interrupted;
 * files that are none of ours are refused. */
#include "fixtures/so3_fixture.h"

#define ARMS 3

/* Groups interleave: slots differ from members. The second stops early, the third has its own lr and decay.
 */
static const run_arm arms[ARMS] = {
    {"optim.rule=muon", 1},
    {"optim.rule=adamw optim.lr=0 optim.aux_lr=0 train.patience=1", 2},
    {"optim.rule=muon optim.lr=0.003 optim.aux_lr=0.02 optim.weight_decay=0.1", 3}};

static void test_ensemble(const char *device)
{
    run_story together[ARMS], alone[ARMS];
    run_run(together, device, arms, ARMS);
    for (int i = 0; i < ARMS; i++) run_run(&alone[i], device, &arms[i], 1);
    for (int i = 0; i < ARMS; i++)
        test_exact("a member of three, and alone", story_differs(&together[i], &alone[i]));
    test_true("the second stopped early", together[1].epochs == 2 && together[0].epochs == 4,
              "%lld and %lld epochs", (long long)together[1].epochs, (long long)together[0].epochs);
    run_free(together, ARMS);
    run_free(alone, ARMS);

    /* one seed, two arms: the data are shared */
    const run_arm pair[2] = {{"optim.rule=polaradamw map.rounding=reference", 4},
                             {"optim.rule=polaradamw", 4}};
    run_run(together, device, pair, 2);
    for (int i = 0; i < 2; i++) run_run(&alone[i], device, &pair[i], 1);
    test_exact("two arms of one seed",
               story_differs(&together[0], &alone[0]) + story_differs(&together[1], &alone[1]));
    test_true("... with the same clouds, and different ends",
              run_result(&together[0], "trace_mse") == run_result(&together[1], "trace_mse") &&
                  together[0].row[0].valid != together[1].row[0].valid,
              "%.4f", run_result(&together[0], "trace_mse"));
    run_free(together, 2);
    run_free(alone, 2);

    /* rules that differ in a number of one stage and in nothing else */
    static const char *const twins[][2] = {
        {"optim.rule=soap", "optim.rule=soap_warm"},
        {"optim.rule=soap", "optim.rule=soap optim.refresh=2"},
        {"optim.rule=kl_soap optim.first_basis=2", "optim.rule=kl_soap"},
        {"optim.rule=shampoo_polar", "optim.rule=shampoo_polar optim.kron_power=0.5"},
        {"optim.rule=soap", "optim.rule=soap optim.kron_precision=tf32"},
        {"optim.rule=adago", "optim.rule=adago optim.clip=0.01"},
        {"optim.rule=muon_floor", "optim.rule=muon_floor optim.strength=3"},
        {"optim.rule=muon_brake", "optim.rule=muon_brake optim.strength=1"},
        {"optim.rule=dion2", "optim.rule=dion2 optim.fraction=0.5"},
        {"optim.rule=scion", "optim.rule=scion optim.radius=7"}};
    for (size_t k = 0; k < sizeof twins / sizeof *twins; k++) {
        const run_arm two[2] = {{twins[k][0], 5}, {twins[k][1], 5}};
        run_run(together, device, two, 2);
        for (int i = 0; i < 2; i++) run_run(&alone[i], device, &two[i], 1);
        test_exact(twins[k][1],
                   story_differs(&together[0], &alone[0]) + story_differs(&together[1], &alone[1]));
        test_true("... and not the other one's numbers", story_differs(&alone[0], &alone[1]) > 0,
                  "%lld differ", (long long)story_differs(&alone[0], &alone[1]));
        run_free(together, 2);
        run_free(alone, 2);
    }

    /* the other messages, gate and readout */
#define KINDS 4
    static const char *const kinds[KINDS] = {"model.message=shared_bounded model.readout=scalars "
                                             "data.cloud=anisotropic",
                                             "model.message=kernel model.gate=linear",
                                             "model.message=scalars_only",
                                             "model.precision=tf32 model.gate=linear"};
    for (int k = 0; k < KINDS; k++) {
        char first[160], second[160];
        snprintf(first, sizeof first, "%s optim.rule=muon", kinds[k]);
        snprintf(second, sizeof second, "%s optim.rule=adamw", kinds[k]);
        const run_arm two[2] = {{first, 5}, {second, 6}};
        run_run(together, device, two, 2);
        for (int i = 0; i < 2; i++) {
            run_run(&alone[i], device, &two[i], 1);
            test_exact(two[i].changes, story_differs(&together[i], &alone[i]));
        }
        run_free(together, 2);
        run_free(alone, 2);
    }
#undef KINDS
}

/* The ensemble interrupted after k epochs: saved, ended, begun anew, loaded, and on to the end. */
static void interrupted(run_story *s, const char *device, const run_arm *who, int64_t n, int k,
                        int finished_first)
{
    run_rig r;
    const char *path = in_folder("checkpoint");
    int more = 1;
    TEST_TRY(run_open(&r, device, who, n));
    run_begin_story(s, n);
    for (int i = 0; i < k; i++) more = run_epoch(&r, s);
    if (finished_first && !more) {
        run_finish(&r, s);
        for (int64_t i = 0; i < n; i++) free(s[i].weights);
    }
    TEST_TRY(pl_testbed_so3.save(r.t, path));
    run_close(&r);
    TEST_TRY(run_open(&r, device, who, n));
    TEST_TRY(pl_testbed_so3.load(r.t, path));
    while (more) more = run_epoch(&r, s);
    run_finish(&r, s);
    run_close(&r);
    remove(path);
}

static void test_resume(const char *device)
{
    static const struct {
        const char *what;
        run_arm arm;
    } singles[] = {{"polaradamw, interrupted after each epoch", {"optim.rule=polaradamw", 7}},
                   {"muon_v in f64 with shadows, the same",
                    {"optim.rule=muon_v train.dtype=f64 gauge.shadows=2 gauge.maps=exact,ns_fp32", 8}},
                   {"sgdm with decay, the same", {"optim.rule=sgdm optim.weight_decay=0.1", 9}},
                   {"soap with a late basis, the same", {"optim.rule=soap optim.first_basis=9", 10}},
                   {"kl_soap_warm, the same", {"optim.rule=kl_soap_warm", 11}},
                   {"mousse, the same", {"optim.rule=mousse", 12}}};
    run_story whole[ARMS], parts[ARMS];
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        int64_t bad = 0;
        run_run(whole, device, &singles[i].arm, 1);
        for (int k = 0; k <= 4; k++) {
            interrupted(parts, device, &singles[i].arm, 1, k, 1);
            bad += story_differs(whole, parts) + (parts->gauges != whole->gauges);
            run_free(parts, 1);
        }
        test_exact(singles[i].what, bad);
        run_free(whole, 1);
    }
    int64_t bad = 0;
    run_run(whole, device, arms, ARMS);
    for (int k = 0; k <= 4; k++) {
        interrupted(parts, device, arms, ARMS, k, 0);
        for (int i = 0; i < ARMS; i++) bad += story_differs(&whole[i], &parts[i]);
        run_free(parts, ARMS);
    }
    test_exact("an ensemble, interrupted after each epoch", bad);
    run_free(whole, ARMS);
}

/* Some of an ensemble's runs go on from its file, in any order and whoever stopped: the same bits. */
static void test_some(const char *device)
{
    static const run_arm four[4] = {
        {"optim.rule=muon gauge.shadows=1 gauge.maps=exact", 1},
        {"optim.rule=adamw optim.lr=0 optim.aux_lr=0 train.patience=1 gauge.shadows=1 gauge.maps=exact", 2},
        {"optim.rule=muon optim.lr=0.003 optim.aux_lr=0.02 optim.weight_decay=0.1 gauge.shadows=1 "
         "gauge.maps=exact",
         3},
        {"optim.rule=adamw gauge.shadows=1 gauge.maps=exact", 1}};
    static const int parts[][5] = {{0, 2, 3, -1}, {2, 0, -1}, {3, -1}, {1, -1}, {3, 1, -1}, {1, 0, 3, 2, -1}};
    run_story whole[4];
    for (int i = 0; i < 4; i++) run_run(&whole[i], device, &four[i], 1);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        int64_t bad = 0;
        for (int k = 1; k <= 3; k++) bad += some_differ(device, four, whole, 4, parts[p], k);
        test_exact("some of four go on alone after 1, 2, 3 epochs", bad);
    }
    run_free(whole, 4);
}

/* A learning rate that blows up: an infinity within the first epochs. */
static void test_diverged(const char *device)
{
    const run_arm three[ARMS] = {arms[0], {"optim.rule=sgdm optim.lr=1e6 optim.aux_lr=1e6", 2}, arms[2]};
    run_story together[ARMS], alone[ARMS], resumed[ARMS];
    run_run(together, device, three, ARMS);
    for (int i = 0; i < ARMS; i++) run_run(&alone[i], device, &three[i], 1);
    test_true("it diverged, and that is a result",
              run_result(&together[1], "diverged") == 1 && isnan(run_result(&together[1], "test_mse")) &&
                  together[1].epochs < 4,
              "after %lld epochs", (long long)together[1].epochs);
    for (int i = 0; i < ARMS; i++)
        test_exact("a member beside a diverged one, and alone", story_differs(&together[i], &alone[i]));
    int64_t bad = 0;
    for (int k = 1; k <= 3; k++) {
        interrupted(resumed, device, three, ARMS, k, 0);
        for (int i = 0; i < ARMS; i++) bad += story_differs(&together[i], &resumed[i]);
        run_free(resumed, ARMS);
    }
    test_exact("... interrupted after each epoch", bad);
    run_free(together, ARMS);
    run_free(alone, ARMS);
}

/* ---- files -------------------------------------------------------------------------------------- */

static void test_files(const char *device)
{
    const run_arm arm = {"optim.rule=muon", 1}, seed = {"optim.rule=muon", 2},
                  rule = {"optim.rule=polar_ema", 1}, lr = {"optim.rule=muon optim.lr=0.011", 1},
                  width = {"optim.rule=muon model.width=4", 1},
                  twice[2] = {{"optim.rule=muon", 1}, {"optim.rule=muon", 1}};
    const char *path = in_folder("checkpoint"), *spoilt = in_folder("spoilt");
    run_rig r;
    run_story s;
    char *bytes, *weights;
    TEST_TRY(run_open(&r, device, &arm, 1));
    run_begin_story(&s, 1);
    run_epoch(&r, &s);
    TEST_TRY(pl_testbed_so3.save(r.t, path));
    TEST_TRY(pl_testbed_so3.weights(r.t, 0, spoilt));
    run_close(&r);
    int64_t n = run_file(&bytes, path), m = run_file(&weights, spoilt);
    test_true("its own", load_into(device, &arm, 1, path) == POLAR_OK, "%lld bytes", (long long)n);
    test_true("of another seed", load_into(device, &seed, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("of another rule", load_into(device, &rule, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("of another lr", load_into(device, &lr, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("of another width", load_into(device, &width, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("of another ensemble", load_into(device, twice, 2, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("weights, no checkpoint", load_into(device, &arm, 1, spoilt) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    int64_t bad = 0;
    const int64_t cuts[] = {0, 1, 8, 100, n / 2, n - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        put_file(spoilt, bytes, cuts[i]);
        bad += load_into(device, &arm, 1, spoilt) != POLAR_E_FORMAT;
    }
    test_exact("cut anywhere", bad);
    /* counters out of range: the I64 tensor of three numbers lies where the header says; spoil its end flag
     */
    pl_safetensors *f;
    TEST_TRY(pl_safetensors_open(&f, path));
    int64_t entries = pl_safetensors_count(f);
    pl_safetensors_entry *all = calloc((size_t)entries, sizeof *all);
    pl_safetensors_meta *meta = calloc((size_t)pl_safetensors_meta_count(f), sizeof *meta);
    int64_t counts[3] = {1, 1, 9}, at = -1;
    for (int64_t i = 0; i < entries; i++) {
        all[i] = *pl_safetensors_view(f, i);
        if (!strcmp(all[i].name, "slots.count")) all[at = i].data = counts;
    }
    for (int64_t i = 0; i < pl_safetensors_meta_count(f); i++) meta[i] = *pl_safetensors_meta_view(f, i);
    TEST_TRY(pl_safetensors_write(spoilt, all, entries, meta, pl_safetensors_meta_count(f)));
    test_true("counters that make no sense", at >= 0 && load_into(device, &arm, 1, spoilt) == POLAR_E_FORMAT,
              "%s", polar_error_message());
    all[at] = all[entries - 1];
    TEST_TRY(pl_safetensors_write(spoilt, all, entries - 1, meta, pl_safetensors_meta_count(f)));
    test_true("a tensor missing", load_into(device, &arm, 1, spoilt) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    pl_safetensors_close(f);
    free(all);
    free(meta);
    remove(spoilt);
    remove(path);
    test_true("no file", load_into(device, &arm, 1, path) == POLAR_E_ARG, "%s", polar_error_message());
    TEST_TRY(run_open(&r, device, &arm, 1));
    test_true("a folder that is not there", pl_testbed_so3.save(r.t, in_folder("missing/x")) == POLAR_E_ARG,
              "%s", polar_error_message());
    run_close(&r);
    free(bytes);
    free(weights);
    run_free(&s, 1);
    (void)m;
}

static void test_shapes(const char *device)
{
    const run_arm mixed[2] = {{"model.width=3", 1}, {"model.width=4", 1}};
    run_rig r;
    polar_status st = run_open(&r, device, mixed, 2);
    test_true("two shapes in one ensemble", st == POLAR_E_ARG && !r.t, "%s", polar_error_message());
    test_true("... which same_shape would have told",
              !pl_testbed_so3.same_shape(r.config[0], r.config[1]) &&
                  pl_testbed_so3.same_shape(r.config[0], r.config[0]),
              "no");
    run_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_ensemble(device);
    test_resume(device);
    test_some(device);
    test_diverged(device);
    test_files(device);
    test_shapes(device);
    run_fault(device, &(run_arm){"optim.rule=muon gauge.shadows=1 gauge.maps=exact model.layers=1", 1});
    folder_close();
    return test_end();
}
