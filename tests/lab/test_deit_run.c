/* test_deit_run.c -- DeiT runs: every rule and format, the schedule, l10, pauses and checkpoints at every
 * batch, worker threads, broken pictures, divergence, misuse.
 *
 *     ctest -R test_deit_run
 */
#include <sys/stat.h>

#include "data/set/image_synth.h"
#include "fixtures/folder.h"
#include "lab/deit/deit_train.h"

static const pl_testbed *const bed = &pl_testbed_deit;

/* 15 training pictures in batches of 4: 3 steps, 3 pictures left out; 9 test pictures: 4, 4, 1. */
static const char *const tiny[] = {"model.image=8",
                                   "model.patch=4",
                                   "model.width=12",
                                   "model.depth=2",
                                   "model.heads=3",
                                   "model.mlp_ratio=2",
                                   "data.set=synth:classes=3,train=5,test=3,size=12",
                                   "train.batch=4",
                                   "train.epochs=3",
                                   "train.warmup=1",
                                   "train.dtype=f32",
                                   "optim.lr=0.01",
                                   NULL};

#include "fixtures/run_fixture.h"

enum { PER_EPOCH = 3 + 3 }; /* batches */

static const char *const everything = "data.recipe=deit model.drop_path=0.3 train.dtype=bf16 data.workers=2";

/* ---- numbers ------------------------------------------------------------------------------------ */

/* Top-1 of the saved weights, picture by picture, on a model of its own. */
static double accuracy_of(const run_story *s, const char *device, polar_dtype dtype)
{
    place at = place_open(device);
    pl_deit_shape shape = {.members = 1,
                           .batch = 1,
                           .image = 8,
                           .patch = 4,
                           .width = 12,
                           .depth = 2,
                           .heads = 3,
                           .mlp_ratio = 2,
                           .classes = 3,
                           .dtype = dtype};
    pl_deit *m;
    pl_image_set *set;
    pl_augment *a;
    pl_augment_options o;
    pl_picture p = {0};
    pl_mat x;
    float pixels[3 * 8 * 8];
    double z[3];
    int right = 0;
    put_file(in_folder("w"), s->weights, s->weight_bytes);
    TEST_TRY(pl_deit_create(&m, at.dev, &shape, 0));
    TEST_TRY(pl_deit_load(m, at.q, 0, in_folder("w")));
    TEST_TRY(pl_image_set_open(&set, "synth:classes=3,train=5,test=3,size=12"));
    TEST_TRY(pl_augment_recipe(&o, "minimal", 8));
    TEST_TRY(pl_augment_create(&a, &o));
    TEST_TRY(pl_mat_alloc(&x, at.dev, POLAR_DTYPE_F32, 1, 24, 8));
    for (int64_t i = 0; i < 9; i++) {
        TEST_TRY(pl_picture_open(&p, set, PL_IMAGES_TEST, i));
        TEST_TRY(pl_input_eval(pixels, &p, a));
        polar_queue_upload(at.q, x.data, pixels, sizeof pixels);
        pl_mat logits = pl_deit_forward(m, at.q, x);
        TEST_TRY(pl_mat_download_f64(at.q, &logits, z));
        int best = z[1] > z[0] ? 1 : 0;
        right += (z[2] > z[best] ? 2 : best) == i / 3;
    }
    pl_mat_free(&x, at.dev);
    pl_picture_drop(&p);
    pl_augment_destroy(a);
    pl_image_set_close(set);
    pl_deit_destroy(m);
    place_close(at);
    remove(in_folder("w"));
    return 100. * right / 9;
}

static void test_rules(const char *device)
{
    static const char *const formats[] = {"f64", "f32", "bf16"};
    for (int k = 0; polar_rule_name(k); k++) {
        char changes[96];
        run_story s;
        snprintf(changes, sizeof changes, "optim.rule=%s train.dtype=%s", polar_rule_name(k), formats[k % 3]);
        run_run(&s, device, &(run_arm){changes, 5}, 1);
        double best = 0, top1 = run_result(&s, "top1");
        int64_t bad = 0;
        for (int64_t e = 0; e < s.epochs; e++) {
            bad += s.row[e].improved != (e == 0 || s.row[e].valid > best) || !isfinite(s.row[e].train_loss) ||
                   s.row[e].epoch != e + 1;
            best = fmax(best, s.row[e].valid);
        }
        bad += s.epochs != 3 || top1 != s.row[2].valid || best != run_result(&s, "best_top1") ||
               run_result(&s, "diverged") || run_result(&s, "train_images") != 15 ||
               run_result(&s, "test_images") != 9;
        bad +=
            run_result(&s, "classes") != 3 || run_result(&s, "skipped") != 0 || !isnan(run_result(&s, "l10"));
        test_true(changes, !bad, "losses %.3f %.3f %.3f, top-1 %.1f", s.row[0].train_loss,
                  s.row[1].train_loss, s.row[2].train_loss, top1);
        /* a picture's scores do not depend on its batch */
        test_exact("... picture by picture", accuracy_of(&s, device, (polar_dtype)(k % 3)) != top1);
        run_free(&s, 1);
    }
}

static void test_schedule(const char *device)
{
    run_story s;
    polar_schedule k = {.warmup = 3, .total = 36, .warmup_from = 1e-3};
    run_run(&s, device, &(run_arm){"optim.rule=muon optim.lr=0.02 train.epochs=12", 5}, 1);
    double sum = 0;
    int64_t bad = 0;
    for (int64_t e = 0; e < 12; e++) bad += s.row[e].lr != 0.02 * polar_schedule_factor(&k, 3 * e + 2);
    for (int64_t e = 2; e < 12; e++) sum += s.row[e].valid;
    test_exact("the learning rate of every epoch", bad);
    test_exact("l10 is the mean of the last ten", run_result(&s, "l10") != sum / 10);
    run_free(&s, 1);
}

/* ---- what the paper leaves open ------------------------------------------------------------------ */

/* The numbers of two runs on one seed that differ; the rates are only looked at where `rates`. */
static int64_t runs_differ(const char *device, const char *a, const char *b, int rates)
{
    run_story x, y;
    run_run(&x, device, &(run_arm){a, 5}, 1);
    run_run(&y, device, &(run_arm){b, 5}, 1);
    int64_t bad = x.epochs != y.epochs;
    for (int64_t e = 0; e < x.epochs && !bad; e++)
        bad += bits_differ(x.row[e].train_loss, y.row[e].train_loss) +
               bits_differ(x.row[e].valid, y.row[e].valid) + (rates && bits_differ(x.row[e].lr, y.row[e].lr));
    bad += weights_differ(&x, &y, NULL, 0);
    run_free(&x, 1);
    run_free(&y, 1);
    return bad;
}

static void test_choices(const char *device)
{
    run_story s;
    polar_schedule k = {.warmup = 1, .total = 12, .warmup_from = 1e-3};
    pl_deit_settings set;
    pl_config *c;
    run_run(&s, device, &(run_arm){"optim.rule=muon optim.lr=0.02 train.epochs=12 train.schedule=epoch", 5},
            1);
    int64_t bad = 0;
    for (int64_t e = 0; e < 12; e++) bad += s.row[e].lr != 0.02 * polar_schedule_factor(&k, e);
    test_exact("train.schedule=epoch: the learning rate of every epoch", bad);
    run_free(&s, 1);
    /* one step an epoch: a step is an epoch */
    test_exact("train.schedule=epoch, one step an epoch: as by steps",
               runs_differ(device, "train.batch=15 train.schedule=epoch", "train.batch=15", 1));
    test_true("train.schedule=epoch: three steps an epoch",
              runs_differ(device, "train.schedule=epoch", "train.schedule=step", 0) > 0, "other weights");
    /* a batch that 15 pictures do not fill, kept, is a batch of 15 */
    test_exact("train.last_batch=keep: a short batch is a small one",
               runs_differ(device, "train.batch=16 train.last_batch=keep", "train.batch=15", 1));
    test_true("train.last_batch=keep: a fourth step",
              runs_differ(device, "train.last_batch=keep", "train.last_batch=drop", 0) > 0, "other weights");
    test_exact("train.last_batch: nothing is left over",
               runs_differ(device, "train.batch=5 train.last_batch=keep", "train.batch=5", 1));
    test_exact("route.no_decay of everything: no decay",
               runs_differ(device,
                           "optim.rule=polaradamw optim.weight_decay=0.5 optim.aux_weight_decay=0.5 "
                           "route.no_decay=*",
                           "optim.rule=polaradamw optim.weight_decay=0 optim.aux_weight_decay=0", 1));
    test_true("route.no_decay of norms and biases",
              runs_differ(device, "optim.aux_weight_decay=0.5 route.no_decay=*.bias,*norm*",
                          "optim.aux_weight_decay=0.5", 1) > 0,
              "other weights");
    test_true("data.erase=pixel",
              runs_differ(device, "data.recipe=deit data.erase=pixel", "data.recipe=deit", 0),
              "other weights");
    TEST_TRY(pl_config_create(&c, &pl_deit_schema));
    TEST_TRY(pl_deit_settings_read(&set, c));
    int before = set.augment.test_filter == PL_FILTER_BILINEAR && set.augment.erasing.fill == PL_ERASE_CONST;
    TEST_TRY(pl_config_assign(c, "data.test_filter=bicubic"));
    TEST_TRY(pl_config_assign(c, "data.recipe=deit"));
    TEST_TRY(pl_config_assign(c, "data.erase=rand"));
    TEST_TRY(pl_deit_settings_read(&set, c));
    test_true("data.test_filter, data.erase",
              PART(before) && PART(set.augment.test_filter == PL_FILTER_BICUBIC) &&
                  PART(set.augment.erasing.fill == PL_ERASE_RAND) &&
                  PART(set.augment.filter == PL_FILTER_BICUBIC),
              "as they were, and as asked for");
    pl_config_destroy(c);
}

/* ---- pauses ------------------------------------------------------------------------------------- */

typedef struct pauses {
    int seen, at, every; /* batches; pause after batch number `at`, or after each */
    double loss;         /* after the first batch */
    pl_step_view last;
} pauses;

static int pause_at(void *arg, const pl_step_view *v)
{
    pauses *p = arg;
    if (!p->seen) p->loss = v->loss;
    p->last = *v;
    return ++p->seen == p->at || p->every;
}

/* The run with a pause after batch k: saved there, ended, begun anew, loaded, and on to the end. */
static void interrupted(run_story *s, const char *device, const run_arm *arm, int k)
{
    run_rig r;
    const char *path = in_folder("checkpoint");
    pauses p = {.at = k};
    TEST_TRY(run_open(&r, device, arm, 1));
    run_begin_story(s, 1);
    bed->watch(r.t, &(pl_step_watch){pause_at, &p});
    int more = 1;
    while (more && p.seen < k) more = run_epoch(&r, s);
    TEST_TRY(bed->save(r.t, path));
    run_close(&r);
    TEST_TRY(run_open(&r, device, arm, 1));
    TEST_TRY(bed->load(r.t, path));
    while (more) more = run_epoch(&r, s);
    run_finish(&r, s);
    run_close(&r);
    remove(path);
}

static void test_resume(const char *device)
{
    static const char *const rules[] = {"optim.rule=polaradamw", "optim.rule=muon",
                                        ("optim.rule=muon train.schedule=epoch train.last_batch=keep "
                                         "route.no_decay=*.bias optim.aux_weight_decay=0.5")};
    static const char *const names[] = {
        "everything on, interrupted after each batch", "muon, interrupted within epochs",
        "a rate an epoch, a short batch, no decay, interrupted within epochs"};
    int stride = strncmp(device, "guard", 5) ? 1 : 4;
    for (int i = 0; i < 3; i++) {
        char changes[240];
        snprintf(changes, sizeof changes, "%s %s", rules[i], i ? "data.workers=1" : everything);
        const run_arm arm = {changes, 7};
        run_story whole, parts;
        int64_t bad = 0, points = 0;
        run_run(&whole, device, &arm, 1);
        for (int k = 1; k <= 3 * PER_EPOCH; k += i ? 5 : stride, points++) {
            interrupted(&parts, device, &arm, k);
            bad += story_differs(&whole, &parts);
            run_free(&parts, 1);
        }
        test_exact(names[i], bad);
        run_free(&whole, 1);
    }
}

static void test_watch(const char *device)
{
    const run_arm arms[2] = {{"optim.rule=polaradamw data.recipe=deit", 3},
                             {"optim.rule=adamw data.recipe=deit", 3}};
    run_story whole, parts;
    pauses p[2] = {{.every = 1}, {.every = 1}};
    for (int i = 0; i < 2; i++) {
        run_rig r;
        int calls = 0;
        run_run(&whole, device, &arms[i], 1);
        TEST_TRY(run_open(&r, device, &arms[i], 1));
        bed->watch(r.t, &(pl_step_watch){pause_at, &p[i]});
        run_begin_story(&parts, 1);
        while (run_epoch(&r, &parts)) calls++;
        run_finish(&r, &parts);
        test_exact("a pause after every batch changes nothing", story_differs(&whole, &parts));
        test_true("... and all were told",
                  PART(p[i].seen == 3 * PER_EPOCH) && PART(calls == 3 * (PER_EPOCH + 1) - 1) &&
                      PART(p[i].last.done == 12 + 9) && PART(p[i].last.total == 12 + 9) &&
                      PART(!strcmp(p[i].last.what, "images")),
                  "%d batches in %d calls", p[i].seen, calls + 1);
        run_close(&r);
        run_free(&whole, 1);
        run_free(&parts, 1);
    }
    /* its loss comes before any update */
    test_exact("the arms of a seed see the same first batch", bits_differ(p[0].loss, p[1].loss));
}

/* ---- pictures ----------------------------------------------------------------------------------- */

/* A hash of every batch of two epochs and of the test, and the labels. */
static uint64_t batches(const pl_config *c, int workers, uint64_t seed)
{
    pl_deit_settings s;
    pl_deit_data d;
    pl_deit_batch b;
    int32_t labels[4];
    uint64_t hash = 14695981039346656037u;
    TEST_TRY(pl_deit_settings_read(&s, c));
    TEST_TRY(pl_deit_data_create(&d, &s, seed, workers));
    for (int pass = 0; pass < 3; pass++) {
        TEST_TRY(pl_deit_data_begin(&d, pass == 2 ? PL_IMAGES_TEST : PL_IMAGES_TRAIN, pass, 0,
                                    pass == 2 ? d.count[PL_IMAGES_TEST] : 12, 4, 8));
        for (;;) {
            TEST_TRY(pl_deit_data_next(&b, &d, labels));
            if (!b.count) break;
            const unsigned char *bytes[2] = {(const unsigned char *)b.x, (const unsigned char *)labels};
            const size_t sizes[2] = {(size_t)b.count * d.picture_bytes, (size_t)b.count * sizeof *labels};
            for (int k = 0; k < 2; k++)
                for (size_t i = 0; i < sizes[k]; i++) hash = (hash ^ bytes[k][i]) * 1099511628211u;
        }
    }
    hash ^= (uint64_t)pl_deit_data_skipped(&d) << 56;
    pl_deit_data_destroy(&d);
    return hash;
}

static void test_workers(void)
{
    pl_config *c = config_of("data.recipe=deit");
    uint64_t one = batches(c, 1, 5), other = batches(c, 1, 6);
    test_exact("1, 2 and 4 workers: the same batches", (one != batches(c, 2, 5)) + (one != batches(c, 4, 5)));
    test_true("another seed: others", one != other, "%016llx", (unsigned long long)one);
    pl_config_destroy(c);
}

static void test_subset(void)
{
    static const char *const changes[] = {"data.classes=2", "data.classes=2 data.subset_seed=8",
                                          "data.classes=3", ""};
    const uint64_t seeds[] = {8, 9};
    uint64_t hash[4];
    for (int i = 0; i < 4; i++) {
        pl_config *c = config_of(changes[i]);
        pl_deit_settings s;
        pl_image_set *set;
        char print[2][PL_SHA256_HEX];
        TEST_TRY(pl_deit_settings_read(&s, c));
        for (int k = 0; k < 2; k++) {
            TEST_TRY(pl_deit_data_open(&set, &s, seeds[k]));
            TEST_TRY(pl_image_set_fingerprint(print[k], set));
            pl_image_set_close(set);
        }
        memcpy(&hash[i], print[0], sizeof hash[i]);
        /* seeds 8 and 9 choose differently: sample(range(3), 2) is [0, 1] and [1, 2] */
        int same = !strcmp(print[0], print[1]);
        test_true(*changes[i] ? changes[i] : "all classes", same == (i > 0), "the two seeds have %s classes",
                  same ? "the same" : "different");
        pl_config_destroy(c);
    }
    test_exact("the run's seed is the subset's unless told", hash[0] != hash[1]);
}

/* ---- files -------------------------------------------------------------------------------------- */

static char pictures[128]; /* a folder of JPEGs, 3 classes of 5 and 3 */

static void make_folder(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    int stopped;
    o.classes = 3, o.per_class[0] = 5, o.per_class[1] = 3, o.size = 24;
    snprintf(pictures, sizeof pictures, "%s", in_folder("pictures"));
    TEST_TRY(pl_image_synth_write(&stopped, &o, pictures));
}

static const char *changes_with(const char *more)
{
    static char text[400];
    snprintf(text, sizeof text, "data.set=textures data.classes=0 data.path=%s %s", pictures, more);
    return text;
}

/* Half of a file. */
static void break_picture(const char *name)
{
    char path[256], *bytes;
    snprintf(path, sizeof path, "%s/%s", pictures, name);
    int64_t n = run_file(&bytes, path);
    if (n < 0) exit(1);
    put_file(path, bytes, n / 3);
    free(bytes);
}

static void refused(const char *what, const char *device, const char *changes, polar_status code,
                    const char *said)
{
    run_rig r;
    pl_epoch_row row = {0};
    int active = 0;
    polar_status st = run_open(&r, device, &(run_arm){changes, 1}, 1);
    if (st == POLAR_OK) st = bed->epoch(r.t, &row, &active);
    test_true(what, st == code && strstr(polar_error_message(), said), "%s", polar_error_message());
    run_close(&r);
}

static void test_folder(const char *device)
{
    run_story a, b;
    make_folder();
    run_run(&a, device, &(run_arm){changes_with(""), 2}, 1);
    run_run(&b, device, &(run_arm){changes_with("data.skip_bad=true data.workers=3"), 2}, 1);
    test_exact("a folder, with --skip-bad and three workers: the same", story_differs(&a, &b));
    run_free(&a, 1);
    run_free(&b, 1);
    break_picture("train/texture_001/00002.jpg");
    break_picture("val/texture_000/00001.jpg");
    refused("a broken picture", device, changes_with(""), POLAR_E_FORMAT, "texture_00");
    run_run(&a, device, &(run_arm){changes_with("data.skip_bad=true data.workers=1 train.epochs=4"), 2}, 1);
    run_run(&b, device, &(run_arm){changes_with("data.skip_bad=true data.workers=4 train.epochs=4"), 2}, 1);
    test_exact("skipped: the same with 1 and 4 workers", story_differs(&a, &b));
    int eighths = 0;
    for (int64_t e = 0; e < a.epochs; e++) eighths += fmod(a.row[e].valid, 12.5) == 0;
    test_true("... it is counted, and the test goes without it",
              run_result(&a, "skipped") == 2 && run_result(&a, "test_images") == 9 && eighths == 4,
              "%g skipped, top-1 in eighths", run_result(&a, "skipped"));
    run_free(&a, 1);
    run_free(&b, 1);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "val/texture_%03d/%05d.jpg", c, i);
            break_picture(name);
        }
    refused("every test picture broken", device, changes_with("data.skip_bad=true"), POLAR_E_FORMAT,
            "not one of 9");
    char path[256];
    snprintf(path, sizeof path, "%s/val/another", pictures);
    if (mkdir(path, 0700) != 0) exit(1);
    refused("a class in val/ but not in train/", device, changes_with(""), POLAR_E_ARG, "another");
    snprintf(path, sizeof path, "%s/train/another", pictures);
    if (mkdir(path, 0700) != 0) exit(1);
    refused("an empty class folder", device, changes_with(""), POLAR_E_ARG, "holds no JPEG or PNG");
    snprintf(path, sizeof path, "%s/train", pictures);
    folder_remove(path);
    refused("no train/", device, changes_with(""), POLAR_E_ARG, "train");
    folder_remove(pictures);
    refused("no folder at all", device, changes_with(""), POLAR_E_ARG, pictures);
}

/* ---- checkpoints and misuse --------------------------------------------------------------------- */

static void test_files(const char *device)
{
    const run_arm arm = {"optim.rule=muon", 1}, seed = {"optim.rule=muon", 2},
                  width = {"optim.rule=muon model.width=6", 1},
                  place_only = {"optim.rule=muon data.workers=3 data.skip_bad=true", 1};
    const char *path = in_folder("checkpoint"), *spoilt = in_folder("spoilt");
    run_rig r;
    pauses p = {.at = 2};
    char *bytes = NULL;
    pl_epoch_row row;
    int active;
    TEST_TRY(run_open(&r, device, &arm, 1));
    bed->watch(r.t, &(pl_step_watch){pause_at, &p});
    TEST_TRY(bed->epoch(r.t, &row, &active));
    TEST_TRY(bed->save(r.t, path));
    r.t->prints[0] ^= 1; /* other pictures of the same number */
    test_true("of other pictures", bed->load(r.t, path) == POLAR_E_ARG, "%s", polar_error_message());
    r.t->prints[0] ^= 1;
    r.t->step = 9;
    TEST_TRY(bed->save(r.t, spoilt));
    run_close(&r);
    test_true("its own", load_into(device, &arm, 1, path) == POLAR_OK, "after 2 batches");
    test_true("its own, read by others", load_into(device, &place_only, 1, path) == POLAR_OK,
              "workers and --skip-bad are no part of a run");
    test_true("of another seed", load_into(device, &seed, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("of another width", load_into(device, &width, 1, path) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    test_true("counters that make no sense", load_into(device, &arm, 1, spoilt) == POLAR_E_FORMAT, "%s",
              polar_error_message());
    int64_t n = run_file(&bytes, path);
    put_file(spoilt, bytes, n - 1);
    test_true("cut", load_into(device, &arm, 1, spoilt) == POLAR_E_FORMAT, "%s", polar_error_message());
    free(bytes);
    remove(path);
    remove(spoilt);
}

static void test_diverged(const char *device)
{
    const run_arm arm = {"optim.rule=sgdm optim.lr=1e6 optim.weight_decay=1e6 train.warmup=0 train.epochs=10",
                         2};
    run_story whole, parts;
    run_run(&whole, device, &arm, 1);
    int64_t last = whole.epochs - 1;
    test_true("it diverged, and that is a result",
              PART(run_result(&whole, "diverged") == 1) && PART(isnan(run_result(&whole, "l10"))) &&
                  PART(isnan(run_result(&whole, "top1"))) && PART(whole.epochs < 10) &&
                  PART(isnan(whole.row[last].valid)),
              "in epoch %lld", (long long)whole.epochs);
    interrupted(&parts, device, &arm, 1);
    test_exact("... interrupted", story_differs(&whole, &parts));
    run_free(&whole, 1);
    run_free(&parts, 1);
}

static void test_misuse(const char *device)
{
    run_rig r;
    pl_result out[PL_MAX_RESULTS];
    int count;
    const run_arm two[2] = {{"", 1}, {"model.width=6", 2}};
    refused("a batch larger than the data", device, "train.batch=16", POLAR_E_ARG, "train.batch");
    refused("an odd batch that is mixed", device, "train.batch=3 mix.mixup=0.2", POLAR_E_ARG, "even");
    refused("more classes than there are", device, "data.classes=4", POLAR_E_ARG, "data.classes is 4");
    refused("a patch that does not divide", device, "model.patch=3", POLAR_E_ARG, "model.patch");
    refused("heads that do not divide", device, "model.heads=5", POLAR_E_ARG, "model.heads");
    refused("no --data", device, "data.set=imagenet", POLAR_E_ARG, "--data");
    refused("a synthetic place", device, "data.set=imagenet data.path=synth:classes=3", POLAR_E_ARG,
            "data.set=synth");
    refused("two sets", device, "data.path=/tmp", POLAR_E_ARG, "made on the fly");
    refused("a split that names nothing", device, "route.split=nothing", POLAR_E_ARG, "route.split");
    refused("a split that is not three", device, "route.split=*.proj.weight model.width=8 model.heads=2",
            POLAR_E_ARG, "3 blocks");
    refused("a route that matches nothing", device, "route.matrix=nothing", POLAR_E_ARG, "nothing");
    polar_status st = run_open(&r, device, two, 2);
    test_true("two members of different widths",
              st == POLAR_E_ARG && !r.t && !bed->same_shape(r.config[0], r.config[1]), "%s",
              polar_error_message());
    run_close(&r);
    TEST_TRY(run_open(&r, device, two, 1));
    test_true("results before the end", bed->results(r.t, 0, out, PL_MAX_RESULTS, &count) == POLAR_E_STATE,
              "%s", polar_error_message());
    run_close(&r);
}

/* qkv as three: other numbers than as one, and the same with a pattern that matches the same. */
static void test_split(const char *device)
{
    run_story a, b, c;
    run_run(&a, device, &(run_arm){"optim.rule=muon", 4}, 1);
    run_run(&b, device, &(run_arm){"optim.rule=muon route.split=*.qkv.weight", 4}, 1);
    run_run(&c, device, &(run_arm){"optim.rule=muon route.split=blocks.?.attn.qkv.weight", 4}, 1);
    test_true("qkv in three blocks", story_differs(&a, &b) && !weights_differ(&b, &c, NULL, 0),
              "other weights");
    run_free(&a, 1);
    run_free(&b, 1);
    run_free(&c, 1);
}

static void test_estimate(const char *device)
{
    polar_device *dev;
    pl_estimate e;
    TEST_TRY(polar_device_open(&dev, device));
    pl_config *c = config_of("optim.rule=muon"), *none = config_of("data.set=imagenet data.classes=7");
    TEST_TRY(pl_deit_estimate(&e, dev, c));
    int64_t matrices = 2 * (36 * 12 + 12 * 12 + 2 * 24 * 12);
    test_true("an estimate",
              PART(e.steps == 3) && PART(e.epochs == 3) && PART(e.flops > 0) && PART(!e.note) &&
                  PART(e.matrix_weights == matrices) && PART(e.memory > 0),
              "%g flops, %lld weights on the matrix route", e.flops, (long long)e.matrix_weights);
    pl_free(e.routes);
    TEST_TRY(pl_deit_estimate(&e, dev, none));
    test_true("... without the pictures", e.steps == 7 * 1300 / 4 && e.note, "%s",
              e.note ? e.note : "no note");
    pl_free(e.routes);
    pl_config_destroy(c);
    pl_config_destroy(none);
    polar_device_close(dev);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_rules(device);
    test_schedule(device);
    test_choices(device);
    test_resume(device);
    test_watch(device);
    test_workers();
    test_subset();
    test_folder(device);
    test_files(device);
    test_diverged(device);
    test_split(device);
    test_estimate(device);
    test_misuse(device);
    run_fault(device, &(run_arm){"optim.rule=polaradamw data.recipe=deit model.depth=1 data.workers=1", 1});
    folder_close();
    return test_end();
}
