/* test_so3_run.c -- single SO(3) runs: early stopping, every rule, routes with their own lr and decay, the
 * test error, gauge shadows, misuse. */
#include "data/point_cloud.h"
#include "device/queue.h"
#include "lab/run/early_stop.h"
#include "models/so3_points.h"
#include "polar/optim.h"
#include "fixtures/so3_fixture.h"

/* ---- early stopping ----------------------------------------------------------------------------- */

typedef struct {
    const char *what;
    int64_t patience, epochs;
    double valid[8];
    int64_t made, best_epoch;
    double best;
    pl_end end;
} stop_case;

static void test_early_stop(void)
{
    const double inf = INFINITY, nan = NAN;
    const stop_case cases[] = {
        {"better every time", 2, 4, {4, 3, 2, 1}, 4, 4, 1, PL_END_EPOCHS},
        {"never better than the first", 2, 8, {1, 2, 3, 4}, 3, 1, 1, PL_END_PATIENCE},
        {"equal is not better", 2, 8, {1, 1, 1, 1}, 3, 1, 1, PL_END_PATIENCE},
        {"patience begins anew", 2, 8, {5, 6, 4, 5, 3, 9, 9, 9}, 7, 5, 3, PL_END_PATIENCE},
        {"the last epoch and patience at once", 2, 3, {1, 2, 3}, 3, 1, 1, PL_END_EPOCHS},
        {"patience 0 never stops", 0, 5, {1, 2, 3, 4, 5}, 5, 1, 1, PL_END_EPOCHS},
        {"one epoch", 30, 1, {7}, 1, 1, 7, PL_END_EPOCHS},
        {"NaN at once", 2, 4, {nan}, 1, 0, 0, PL_END_DIVERGED},
        {"infinity later", 2, 8, {3, 2, inf}, 3, 2, 2, PL_END_DIVERGED},
        {"zero is a number", 1, 8, {0, 0}, 2, 1, 0, PL_END_PATIENCE},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const stop_case *k = &cases[c];
        pl_early_stop s = {.patience = k->patience, .epochs = k->epochs};
        int improvements = 0;
        while (s.end == PL_END_NOT) {
            pl_early_stop_step(&s, 1, k->valid[s.made]);
            improvements += s.improved;
        }
        test_true(k->what,
                  PART(s.made == k->made) && PART(s.best_epoch == k->best_epoch) && PART(s.best == k->best) &&
                      PART(s.end == k->end) && PART((improvements > 0) == (k->best_epoch > 0)),
                  "%lld epochs, best %lld, end %d", (long long)s.made, (long long)s.best_epoch, (int)s.end);
    }
    pl_early_stop s = {.patience = 2, .epochs = 4};
    pl_early_stop_step(&s, nan, 1);
    test_true("a training loss that is none", s.end == PL_END_DIVERGED && !s.best_epoch && !s.improved,
              "end %d", (int)s.end);
}

/* ---- rules -------------------------------------------------------------------------------------- */

/* The prediction of the best weights, cloud by cloud, on a model of its own: its mean square is the run's
 * test error. */
static double test_error_of(const run_story *s, const char *device, uint64_t seed)
{
    place at = place_open(device);
    pl_so3_shape shape = {.members = 1,
                          .batch = 1,
                          .points = 5,
                          .width = 3,
                          .layers = 2,
                          .dtype = POLAR_DTYPE_F32,
                          .eps = 1e-8};
    pl_so3 *m;
    pl_safetensors *f;
    pl_clouds c;
    pl_mat x;
    int64_t count;
    double sum = 0, p;
    TEST_TRY(pl_so3_create(&m, at.dev, &shape, 0));
    TEST_TRY(pl_safetensors_open_bytes(&f, s->weights, s->weight_bytes, "weights"));
    TEST_TRY(pl_clouds_create(&c, seed, PL_SPLIT_TEST, 7, 5, POLAR_DTYPE_F32));
    TEST_TRY(pl_mat_alloc(&x, at.dev, POLAR_DTYPE_F32, 1, 5, 3));
    pl_param *params = pl_so3_params(m, &count);
    for (int64_t i = 0; i < count; i++) {
        const pl_safetensors_entry *e = pl_safetensors_find(f, params[i].name);
        if (!e || e->ndim != params[i].ndim || e->bytes != (int64_t)pl_mat_bytes(&params[i].W)) return NAN;
        polar_queue_upload(at.q, params[i].W.data, e->data, (size_t)e->bytes);
    }
    for (int64_t i = 0; i < 7; i++) {
        polar_queue_upload(at.q, x.data, pl_clouds_view(&c, i), pl_clouds_bytes(&c));
        pl_mat out = pl_so3_forward(m, at.q, x);
        TEST_TRY(pl_mat_download_f64(at.q, &out, &p));
        sum += (p - c.target[i]) * (p - c.target[i]);
    }
    pl_mat_free(&x, at.dev);
    pl_clouds_destroy(&c);
    pl_safetensors_close(f);
    pl_so3_destroy(m);
    place_close(at);
    return sum / 7;
}

static void test_rules(const char *device)
{
    for (int k = 0; polar_rule_name(k); k++) {
        char changes[64];
        run_story s;
        snprintf(changes, sizeof changes, "optim.rule=%s", polar_rule_name(k));
        run_run(&s, device, &(run_arm){changes, 5}, 1);
        double test = run_result(&s, "test_mse"), best = run_result(&s, "best_valid");
        int64_t bad = 0, at = (int64_t)run_result(&s, "best_epoch");
        for (int64_t e = 0; e < s.epochs; e++)
            bad += !(s.row[e].valid >= best) || (e && s.row[e].valid == s.row[e - 1].valid) ||
                   !isfinite(s.row[e].train_loss);
        test_true(polar_rule_name(k),
                  PART(!bad) && PART(s.epochs == 4) && PART(isfinite(test)) &&
                      PART(s.row[at - 1].valid == best) && PART(s.row[at - 1].improved) &&
                      PART(run_result(&s, "diverged") == 0),
                  "best epoch %lld, valid %.4f, test %.4f", (long long)at, best, test);
        /* the same float network on batches of one: a sum or product rounded otherwise moves the prediction
         * by some eps */
        test_bound("... cloud by cloud", fabs(test_error_of(&s, device, 5) / test - 1), 1e-4,
                   "1000 eps of float, in a prediction's difference");
        run_free(&s, 1);
    }
}

/* The epoch that leaves the plateau is the first whose validation error is a tenth below that of least
 * squares on the trace, made here from the same clouds; there is none where weights stay as they are. Saved
 * before and loaded after it, it is the same. */
static void test_plateau(const char *device)
{
    const char *changes = "model.width=8 data.train=128 data.valid=32 train.epochs=8 optim.rule=muon";
    const run_arm arm = {changes, 3}, still = {"optim.lr=0 optim.aux_lr=0", 3};
    pl_clouds train, valid;
    pl_cloud_baseline base;
    run_story s, resumed;
    run_rig r;
    int64_t first = 0;
    TEST_TRY(pl_clouds_create(&train, 3, PL_SPLIT_TRAIN, 128, 5, POLAR_DTYPE_F32));
    TEST_TRY(pl_clouds_create(&valid, 3, PL_SPLIT_VALID, 32, 5, POLAR_DTYPE_F32));
    TEST_TRY(pl_cloud_baseline_measure(&base, &train, &valid));
    run_run(&s, device, &arm, 1);
    for (int64_t e = s.epochs; e-- > 0;)
        if (s.row[e].valid < 0.9 * base.trace_mse) first = e + 1;
    double at = run_result(&s, "plateau_epoch");
    test_true("the epoch that leaves the plateau", first > 1 && at == (double)first, "%g, %lld by the curve",
              at, (long long)first);
    int64_t bad = 0;
    for (int64_t k = first - 1; k <= first; k++) { /* saved before it, and after */
        const char *path = in_folder("checkpoint");
        int more = 1;
        TEST_TRY(run_open(&r, device, &arm, 1));
        run_begin_story(&resumed, 1);
        for (int64_t i = 0; i < k; i++) more = run_epoch(&r, &resumed);
        TEST_TRY(pl_testbed_so3.save(r.t, path));
        run_close(&r);
        TEST_TRY(run_open(&r, device, &arm, 1));
        TEST_TRY(pl_testbed_so3.load(r.t, path));
        while (more) more = run_epoch(&r, &resumed);
        run_finish(&r, &resumed);
        run_close(&r);
        remove(path);
        bad += story_differs(&s, &resumed);
        run_free(&resumed, 1);
    }
    test_exact("... and saved before it, or after", bad);
    run_free(&s, 1);
    run_run(&s, device, &still, 1);
    test_true("a run that does not move never leaves it", isnan(run_result(&s, "plateau_epoch")), "%g",
              run_result(&s, "plateau_epoch"));
    run_free(&s, 1);
    pl_clouds_destroy(&train);
    pl_clouds_destroy(&valid);
}

/* Members of one ensemble: two with decay and route.no_decay of everything, on steps and on epochs, and the
 * same without decay. */
static void test_no_decay(const char *device)
{
    static const run_arm arms[] = {
        {"optim.rule=muon optim.weight_decay=0.5 route.no_decay=* train.schedule=epoch", 5},
        {"optim.rule=muon optim.weight_decay=0 train.schedule=epoch", 5},
        {"optim.rule=muon optim.weight_decay=0.5 train.schedule=epoch", 5}};
    run_story s[3];
    run_run(s, device, arms, 3);
    test_exact("route.no_decay of everything: no decay", story_differs(&s[0], &s[1]));
    test_true("... and decay is another run", story_differs(&s[1], &s[2]) > 0, "other weights");
    run_free(s, 3);
}

/* lr of the rows: the schedule at the last step of each epoch, 3 steps an epoch (13 clouds, batches of 4, the
 * rest dropped). */
static void test_schedule(const char *device)
{
    run_story s;
    polar_schedule k = {.warmup = 3, .total = 12, .warmup_from = 1e-3};
    run_run(&s, device, &(run_arm){"optim.rule=muon optim.lr=0.02", 5}, 1);
    int64_t bad = 0;
    for (int64_t e = 0; e < 4; e++)
        bad += s.row[e].lr != 0.02 * polar_schedule_factor(&k, 3 * e + 2) || s.row[e].epoch != e + 1;
    test_exact("the learning rate of every epoch", bad);
    run_free(&s, 1);
    polar_schedule epochs = {.warmup = 1, .total = 4, .warmup_from = 1e-3};
    run_run(&s, device, &(run_arm){"optim.rule=muon optim.lr=0.02 train.schedule=epoch", 5}, 1);
    for (int64_t e = 0; e < 4; e++) bad += s.row[e].lr != 0.02 * polar_schedule_factor(&epochs, e);
    test_exact("train.schedule=epoch: the learning rate of every epoch", bad);
    run_free(&s, 1);
    run_run(&s, device, &(run_arm){"optim.lr=0 optim.aux_lr=0 train.patience=2", 5}, 1);
    test_true("nothing moves, patience 2: three epochs",
              s.epochs == 3 && run_result(&s, "best_epoch") == 1 && run_result(&s, "stopped_early") == 1,
              "%lld epochs", (long long)s.epochs);
    run_free(&s, 1);
}

/* ---- routes ------------------------------------------------------------------------------------- */

/* One step without warm-up, then which weights differ from those of another run. */
static int64_t after_one_step(char *list, size_t bytes, const char *device, const char *changes,
                              const char *others)
{
    char text[512];
    run_story a, b;
    const char *one = "train.epochs=1 train.warmup=0 data.train=4";
    snprintf(text, sizeof text, "%s %s", one, changes);
    run_run(&a, device, &(run_arm){text, 3}, 1);
    snprintf(text, sizeof text, "%s %s", one, others);
    run_run(&b, device, &(run_arm){text, 3}, 1);
    int64_t n = weights_differ(&a, &b, list, bytes);
    run_free(&a, 1);
    run_free(&b, 1);
    return n;
}

static void test_routes(const char *device)
{
    static const char all[] = "layers.0.W_00.weight,layers.0.W_11,layers.0.message.0.weight,layers.0.message."
                              "2.weight,layers.0.cg_proj.weight,"
                              "layers.1.W_00.weight,layers.1.W_11,layers.1.message.0.weight,layers.1.message."
                              "2.weight,layers.1.cg_proj.weight";
    static const char schur[] = "layers.0.W_00.weight,layers.0.W_11,layers.0.cg_proj.weight,layers.1.W_00."
                                "weight,layers.1.W_11,layers.1.cg_proj.weight";
    const char *still = "optim.lr=0 optim.aux_lr=0",
               *names = "route.matrix=layers.*.W_00.weight,layers.*.W_11,layers.*.cg_proj.weight";
    char list[1024], changes[256];
    int64_t aux = after_one_step(list, sizeof list, device, "optim.lr=0 optim.aux_lr=0.01", still);
    test_true("lr 0: the aux route alone moves",
              PART(aux == 16) && PART(!strstr(list, "W_11")) && PART(strstr(list, "readout.0.weight")) &&
                  PART(strstr(list, "layers.1.gate.bias")),
              "%lld arrays", (long long)aux);
    after_one_step(list, sizeof list, device, "optim.aux_lr=0", still);
    test_exact("aux lr 0: the matrix route alone moves", strcmp(list, all) != 0);
    snprintf(changes, sizeof changes, "optim.aux_lr=0 %s", names);
    after_one_step(list, sizeof list, device, changes, still);
    test_exact("Schur blocks only", strcmp(list, schur) != 0);
    int64_t none = after_one_step(list, sizeof list, device, "optim.aux_lr=0 route.matrix=", still);
    test_exact("an empty matrix route, if asked for", none);
    after_one_step(list, sizeof list, device, "optim.weight_decay=0.5 optim.aux_weight_decay=0", "");
    test_exact("decay of the matrix route", strcmp(list, all) != 0);
    aux = after_one_step(list, sizeof list, device, "optim.aux_weight_decay=0.5", "");
    test_true("decay of the aux route",
              PART(aux >= 13) && PART(aux <= 16) && PART(!strstr(list, "W_11")) &&
                  PART(!strstr(list, "message.2.weight")) && PART(strstr(list, "readout.0.weight")),
              "%lld arrays (biases of 0 stay)", (long long)aux);
    int64_t inherited = after_one_step(list, sizeof list, device, "optim.weight_decay=0.5",
                                       "optim.weight_decay=0.5 optim.aux_weight_decay=0.5");
    test_exact("aux decay follows unless told", inherited);
}

/* ---- gauge shadows ------------------------------------------------------------------------------ */

static void test_shadows(const char *device)
{
    static const char *const rules[] = {"muon", "adamw", "polaradamw"};
    for (int k = 0; k < 3; k++) {
        char plain[64], shadowed[192];
        run_story a, b;
        snprintf(plain, sizeof plain, "optim.rule=%s", rules[k]);
        snprintf(shadowed, sizeof shadowed,
                 "optim.rule=%s gauge.shadows=2 gauge.maps=exact,ns_bf16_fused gauge.spectra=%s", rules[k],
                 k == 0 ? "on" : "off");
        run_run(&a, device, &(run_arm){plain, 5}, 1);
        run_run(&b, device, &(run_arm){shadowed, 5}, 1);
        test_exact("a run with shadows is the run without", story_differs(&a, &b));
        /* steps 1, 2, 5, 10 of 12; 10 matrices; 2 shadows; two spectra of each matrix, as long as its short
         * side: 1 + 1 + 1 + 3 + 3 in the first layer, 3 + 3 + 1 + 3 + 3 in the second */
        int maps = k == 1 ? 1 : 2, want = 4 * 10 * 2 * maps + (k == 0 ? 4 * 2 * 22 : 0);
        double worst = 0;
        for (int i = 0; i < b.gauges; i++)
            if (!strcmp(b.gauge[i].map, k == 1 ? "none" : "exact") && !(b.gauge[i].deviation <= worst))
                worst = b.gauge[i].deviation;
        test_true(rules[k], b.gauges == want && (k == 0 ? worst < 1e-6 : worst > 0.05),
                  "%d rows, worst exact deviation %.1e", b.gauges, worst);
        run_free(&a, 1);
        run_free(&b, 1);
    }
    run_story s;
    run_run(&s, device,
            &(run_arm){"optim.rule=muon gauge.shadows=1 gauge.maps=ns_fp32 gauge.every=6 gauge.blocks=*.W_11 "
                       "gauge.dtype=f32",
                       5},
            1);
    test_true("chosen blocks and steps",
              s.gauges == 3 * 2 && s.gauge[5].step == 12 && !strcmp(s.gauge[5].block, "layers.1.W_11"),
              "%d rows", s.gauges);
    run_free(&s, 1);
}

/* ---- misuse ------------------------------------------------------------------------------------- */

static void refused(const char *what, const char *device, const char *changes, const char *said)
{
    run_rig r;
    polar_status st = run_open(&r, device, &(run_arm){changes, 1}, 1);
    test_true(what, st == POLAR_E_ARG && !r.t && strstr(polar_error_message(), said), "%s",
              polar_error_message());
    run_close(&r);
}

static void test_misuse(const char *device)
{
    run_rig r;
    pl_result out[PL_MAX_RESULTS];
    int count;
    refused("a batch larger than the data", device, "train.batch=14", "train.batch");
    refused("a warm-up longer than the run", device, "train.warmup=5", "train.warmup");
    refused("a route that matches nothing", device, "route.matrix=nothing", "nothing");
    refused("blocks that match nothing", device, "gauge.shadows=1 gauge.blocks=readout*", "gauge.blocks");
    refused("a map nobody knows", device, "gauge.shadows=1 gauge.maps=best", "best");
    TEST_TRY(run_open(&r, device, &(run_arm){"", 1}, 1));
    test_true("results before the end",
              pl_testbed_so3.results(r.t, 0, out, PL_MAX_RESULTS, &count) == POLAR_E_STATE, "%s",
              polar_error_message());
    test_true("weights before the first epoch",
              pl_testbed_so3.weights(r.t, 0, in_folder("w")) == POLAR_E_STATE, "%s", polar_error_message());
    run_close(&r);
}

static void test_threads(const char *device)
{
    run_story a, b;
    if (strcmp(device, "cpu")) return;
    for (int k = 0; k < 2; k++) {
        const run_arm arm = {k ? "optim.rule=polaradamw model.width=16 data.points=40 train.epochs=2"
                               : "optim.rule=muon train.dtype=f64",
                             9};
        run_run(&a, "cpu:threads=1", &arm, 1);
        run_run(&b, "cpu:threads=2", &arm, 1);
        test_exact("one thread or two: the same bits", story_differs(&a, &b));
        run_free(&a, 1);
        run_free(&b, 1);
    }
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_early_stop();
    test_rules(device);
    test_plateau(device);
    test_schedule(device);
    test_no_decay(device);
    test_routes(device);
    test_shadows(device);
    test_threads(device);
    test_misuse(device);
    folder_close();
    return test_end();
}
