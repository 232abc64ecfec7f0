/* test_deit_beside.c -- several DeiT runs at once on one device, as members of one ensemble or each with a
 * queue of its own, have the bits they have alone, wherever they were interrupted; and a loss that is none
 * ends a run after the same batch.
 *
 *     ctest -R test_deit_beside
 */
#include <pthread.h>

#include "data/set/image_synth.h"
#include "fixtures/folder.h"
#include "lab/deit/deit_train.h"

static const pl_testbed *const bed = &pl_testbed_deit;

/* 90 training pictures, 9 test pictures. */
static const char *const tiny[] = {"model.image=16",
                                   "model.patch=4",
                                   "model.width=24",
                                   "model.depth=2",
                                   "model.heads=3",
                                   "data.set=synth:classes=3,train=30,test=3,size=20",
                                   "train.batch=30",
                                   "train.epochs=2",
                                   "train.warmup=0",
                                   "data.workers=2",
                                   NULL};

#include "fixtures/run_fixture.h"

#define BESIDE 4

static const run_arm small[BESIDE] = {{"optim.rule=polaradamw", 1},
                                      {"optim.rule=muon data.recipe=deit model.drop_path=0.1", 2},
                                      {"optim.rule=adamw", 1},
                                      {"optim.rule=polaradamw map.rounding=reference", 3}};
/* DeiT-Tiny's width, which a GPU's fused kernels take */
static const run_arm wide[BESIDE] = {
    {"optim.rule=polaradamw model.width=192", 1},
    {"optim.rule=muon data.recipe=deit model.drop_path=0.1 model.width=192", 2},
    {"optim.rule=adamw model.width=192", 1},
    {"optim.rule=polaradamw map.rounding=reference model.width=192", 3}};

typedef struct {
    const char *device;
    const run_arm *arm;
    pthread_barrier_t *start;
    run_rig rig;
    run_story story;
} beside;

static void *train(void *arg)
{
    beside *b = arg;
    TEST_TRY(run_open(&b->rig, b->device, b->arm, 1));
    run_begin_story(&b->story, 1);
    pthread_barrier_wait(b->start);
    while (run_epoch(&b->rig, &b->story)) {
    }
    return NULL;
}

static void test_beside(const char *device, const run_arm *arms)
{
    pthread_barrier_t start;
    pthread_t threads[BESIDE];
    beside all[BESIDE];
    run_story alone;
    if (pthread_barrier_init(&start, NULL, BESIDE)) exit(1);
    for (int i = 0; i < BESIDE; i++) {
        all[i] = (beside){.device = device, .arm = &arms[i], .start = &start};
        if (pthread_create(&threads[i], NULL, train, &all[i])) exit(1);
    }
    for (int i = 0; i < BESIDE; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < BESIDE; i++) {
        run_finish(&all[i].rig, &all[i].story);
        run_close(&all[i].rig);
        run_run(&alone, device, &arms[i], 1);
        test_exact(arms[i].changes, story_differs(&all[i].story, &alone));
        run_free(&all[i].story, 1);
        run_free(&alone, 1);
    }
    pthread_barrier_destroy(&start);
}

/* ---- ensembles ---------------------------------------------------------------------------------- */

/* Four rules, two seeds, slots in another order than members; the third diverges, the last has its own rate.
 */
static const run_arm small_mates[BESIDE] = {
    {"optim.rule=polaradamw data.recipe=deit model.drop_path=0.1", 1},
    {"optim.rule=muon data.recipe=deit model.drop_path=0.1", 2},
    {"optim.rule=sgdm optim.lr=1e6 optim.weight_decay=1e6 data.recipe=deit model.drop_path=0.1", 1},
    {"optim.rule=muon optim.lr=0.02 optim.weight_decay=0.1 data.recipe=deit model.drop_path=0.1", 1}};
static const run_arm wide_mates[BESIDE] = {
    {"optim.rule=polaradamw map.rounding=reference model.width=192 train.batch=64 data.classes=3", 1},
    {"optim.rule=muon map.rounding=reference model.width=192 train.batch=64 data.classes=3", 2},
    {"optim.rule=adamw model.width=192 train.batch=64 data.classes=3", 1},
    {"optim.rule=polaradamw model.width=192 train.batch=64 data.classes=3", 3}};

/* The ensemble in one go, or interrupted after k batches: saved, ended, begun anew, loaded, on to the end. */
static void run_mates(run_story *s, const char *device, const run_arm *arms, int k)
{
    run_rig r;
    int left = k, more = 1;
    const char *path = in_folder("checkpoint");
    TEST_TRY(run_open(&r, device, arms, BESIDE));
    run_begin_story(s, BESIDE);
    if (k) {
        bed->watch(r.t, &(pl_step_watch){run_pause, &left});
        while (more && left > 0) more = run_epoch(&r, s);
        TEST_TRY(bed->save(r.t, path));
        run_close(&r);
        TEST_TRY(run_open(&r, device, arms, BESIDE));
        TEST_TRY(bed->load(r.t, path));
        remove(path);
    }
    while (more) more = run_epoch(&r, s);
    run_finish(&r, s);
    run_close(&r);
}

static void test_ensemble(const char *device, const run_arm *arms, int every)
{
    run_story together[BESIDE], parts[BESIDE], alone;
    int64_t bad = 0;
    run_mates(together, device, arms, 0);
    for (int i = 0; i < BESIDE; i++) {
        char name[160];
        run_run(&alone, device, &arms[i], 1);
        snprintf(name, sizeof name, "a member of four: %s", arms[i].changes);
        test_exact(name, story_differs(&together[i], &alone));
        run_free(&alone, 1);
    }
    for (int k = 1; k < 12; k += every) {
        run_mates(parts, device, arms, k);
        for (int i = 0; i < BESIDE; i++) bad += story_differs(&together[i], &parts[i]);
        run_free(parts, BESIDE);
    }
    test_exact("... and interrupted", bad);
    static const int some[][4] = {{1, 3, -1}, {3, 0, -1}, {1, -1}, {2, -1}};
    bad = 0;
    for (int p = 0; p < (every < 9 ? 4 : 1); p++)
        for (int k = 1 + p % 2; k < 12; k += every + 2)
            bad += some_differ(device, arms, together, BESIDE, some[p], k);
    test_exact("... and some of them alone from there", bad);
    run_free(together, BESIDE);
}

/* Seeds 8 and 9 choose the classes 0, 1 and 1, 2 of three; class 0 lacks a picture. */
static void test_uneven(const char *device)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    run_rig r;
    char changes[300];
    int stopped;
    o.classes = 3, o.per_class[0] = 20, o.per_class[1] = 3, o.size = 20;
    TEST_TRY(pl_image_synth_write(&stopped, &o, in_folder("uneven")));
    if (remove(in_folder("uneven/train/texture_000/00000.jpg")) != 0) exit(1);
    snprintf(changes, sizeof changes, "data.set=textures data.classes=2 data.path=%s", in_folder("uneven"));
    const run_arm mates[2] = {{changes, 8}, {changes, 9}};
    polar_status st = run_open(&r, device, mates, 2);
    test_true("seeds whose classes have different numbers of pictures",
              st == POLAR_E_UNSUPPORTED && strstr(polar_error_message(), "39 and 40 pictures"), "%s",
              polar_error_message());
    run_close(&r);
    st = run_open(&r, device, &mates[1], 1);
    test_true("... each by itself", st == POLAR_OK, "%lld steps", st == POLAR_OK ? (long long)r.t->steps : 0);
    run_close(&r);
    folder_remove(in_folder("uneven"));
}

/* 45 batches of two: the sum of losses is read after the first, the 32nd and the last. */
static void test_lost(const char *device)
{
    const run_arm arm = {"optim.rule=sgdm optim.lr=1e6 optim.weight_decay=1e6 train.batch=2 model.width=12 "
                         "model.patch=8 train.dtype=f32",
                         2};
    run_story whole, parts;
    int64_t bad = 0;
    run_run(&whole, device, &arm, 1);
    test_true("diverged, in the first epoch",
              PART(run_result(&whole, "diverged") == 1) && PART(whole.epochs == 1) &&
                  PART(!isfinite(whole.row[0].train_loss)),
              "rate %g at its end", whole.row[0].lr);
    for (int k = 1; k < 32; k += 6) {
        run_rig r;
        int left = k;
        const char *path = in_folder("checkpoint");
        TEST_TRY(run_open(&r, device, &arm, 1));
        run_begin_story(&parts, 1);
        bed->watch(r.t, &(pl_step_watch){run_pause, &left});
        (void)run_epoch(&r, &parts);
        TEST_TRY(bed->save(r.t, path));
        run_close(&r);
        TEST_TRY(run_open(&r, device, &arm, 1));
        TEST_TRY(bed->load(r.t, path));
        while (run_epoch(&r, &parts)) {
        }
        run_finish(&r, &parts);
        bad += story_differs(&whole, &parts);
        run_close(&r);
        run_free(&parts, 1);
        remove(path);
    }
    test_exact("... and the same where it was interrupted before that was seen", bad);
    run_free(&whole, 1);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_beside(device, small);
    test_ensemble(device, small_mates, strcmp(device, "ref") ? 3 : 9);
    if (!strncmp(device, "cuda", 4)) {
        test_beside(device, wide);
        test_ensemble(device, wide_mates, 5);
    }
    test_lost(device);
    test_uneven(device);
    folder_close();
    return test_end();
}
