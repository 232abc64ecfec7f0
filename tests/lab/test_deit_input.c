/* test_deit_input.c -- DeiT runs whose pictures are made on the device, from all of them in its memory or
 * batch by batch, have the bits of runs whose pictures the host makes: packs, folders, sets made on the fly,
 * every recipe and filling, broken pictures, several seeds, parts of a batch, interrupted anywhere. And
 * folders through nvJPEG, of which a library of the test's stands in (fixtures/fake_nvjpeg.c): what it is
 * given, what it is not, and what it says.
 *
 *     ctest -R test_deit_input
 */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/codec/image_nvjpeg.h"
#include "data/codec/image_write.h"
#include "data/set/image_pack.h"
#include "data/set/image_synth.h"
#include "fixtures/folder.h"
#include "lab/deit/deit_train.h"

static const pl_testbed *const bed = &pl_testbed_deit;

/* 90 training pictures, 9 test pictures. */
static const char *const tiny[] = {"model.image=16", "model.patch=4",     "model.width=24", "model.depth=2",
                                   "model.heads=3",  "data.set=textures", "data.classes=0", "train.batch=30",
                                   "train.epochs=2", "train.warmup=0",    "data.workers=2", NULL};

#include "fixtures/run_fixture.h"

static char sets[4][160]; /* data.path=... of a pack and a folder, data.set=... of one made on the fly */
enum { PACK, FOLDER, SYNTH, BROKEN };

static void write_bytes(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) exit(1);
}

/* Cut to half of it. */
static void spoil(const char *path)
{
    char *bytes;
    int64_t n = run_file(&bytes, path);
    if (n < 2) exit(1);
    write_bytes(path, (const uint8_t *)bytes, (size_t)n / 2);
    free(bytes);
}

static void make_sets(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    pl_pack_opts with = {.workers = 1};
    pl_pack_result made;
    pl_image_folder *f;
    int stopped;
    o.classes = 3, o.per_class[0] = 30, o.per_class[1] = 3, o.size = 20;
    TEST_TRY(pl_image_synth_write(&stopped, &o, in_folder("pictures")));
    TEST_TRY(pl_image_synth_write(&stopped, &o, in_folder("broken")));
    TEST_TRY(pl_image_folder_open(&f, in_folder("pictures")));
    TEST_TRY(pl_image_pack_write(&made, in_folder("pack"), f, &with));
    pl_image_folder_close(f);
    spoil(in_folder("broken/train/texture_001/00004.jpg"));
    spoil(in_folder("broken/train/texture_001/00005.jpg"));
    spoil(in_folder("broken/val/texture_002/00001.jpg"));
    snprintf(sets[PACK], sizeof sets[0], "data.path=%s", in_folder("pack"));
    snprintf(sets[FOLDER], sizeof sets[0], "data.path=%s", in_folder("pictures"));
    snprintf(sets[SYNTH], sizeof sets[0], "data.set=synth:classes=3,train=30,test=3,size=20");
    snprintf(sets[BROKEN], sizeof sets[0], "data.path=%s data.skip_bad=true", in_folder("broken"));
}

static void remove_sets(void)
{
    remove(in_folder("pack"));
    folder_remove(in_folder("pictures"));
    folder_remove(in_folder("broken"));
}

static const char *with(int set, const char *input, const char *recipe)
{
    static char changes[2][700];
    static int turn;
    char *c = changes[turn++ % 2];
    snprintf(c, sizeof changes[0], "%s data.input=%s %s", sets[set], input, recipe);
    return c;
}

/* ---- the same run --------------------------------------------------------------------------------- */

static void test_ways(const char *device)
{
    static const char *const names[] = {"a pack", "a folder", "made on the fly", "broken pictures"};
    static const char *const recipes[] = {
        "optim.rule=adamw", "optim.rule=muon data.recipe=deit",
        "optim.rule=muon data.recipe=deit data.erase=pixel train.last_batch=keep train.batch=28",
        "optim.rule=adamw data.recipe=deit data.erase=rand train.batch=60"};
    static const char *const ways[] = {"host", "device", "stream"};
    for (int set = PACK; set <= BROKEN; set++)
        for (int i = 0; i < 4; i++) {
            run_story story[3];
            int64_t bad = 0;
            for (int k = 0; k < 3; k++) {
                if (set == BROKEN && k == 1) continue;
                run_run(&story[k], device, &(run_arm){with(set, ways[k], recipes[i]), 5}, 1);
                if (k) bad += story_differs(&story[0], &story[k]);
            }
            test_exact(names[set], bad);
            if (set == BROKEN && !i)
                test_true("... some were passed", run_result(&story[2], "skipped") > 0, "%g of three",
                          run_result(&story[2], "skipped"));
            for (int k = 0; k < 3; k++)
                if (set != BROKEN || k != 1) run_free(&story[k], 1);
        }
}

/* Where the pictures are, and how many bytes of them the device has. */
static void test_where(const char *device)
{
    static const char *const ways[] = {"auto", "host", "device", "stream"};
    const pl_deit_way on_host[] = {PL_DEIT_BY_HOST, PL_DEIT_BY_HOST, PL_DEIT_BY_DEVICE,
                                   PL_DEIT_BY_DEVICE_PARTS};
    int gpu = !strncmp(device, "cuda", 4);
    for (int i = 0; i < 4; i++) {
        run_rig r;
        TEST_TRY(run_open(&r, device, &(run_arm){with(FOLDER, ways[i], "optim.rule=adamw"), 5}, 1));
        const pl_deit_data *d = &r.t->data[0];
        test_true(ways[i],
                  PART(d->way == (gpu && !i ? PL_DEIT_BY_DEVICE : on_host[i])) &&
                      PART((d->way == PL_DEIT_BY_DEVICE) == (d->pixels.data != NULL)),
                  "way %d, %lld bytes", d->way, (long long)(4 * d->pixels.cols));
        run_close(&r);
    }
    run_rig r;
    polar_status st = run_open(&r, device, &(run_arm){with(BROKEN, "device", "optim.rule=adamw"), 5}, 1);
    test_true("all of them, and one is broken",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "broken/train/texture_001/00004.jpg"),
              "%s", polar_error_message());
    run_close(&r);
}

#define MATES 3

/* Two seeds, three members; interrupted after k batches: saved, ended, begun anew, loaded, on to the end. */
static void run_mates(run_story *s, const char *device, const char *input, int k)
{
    char text[MATES][700];
    run_arm arms[MATES];
    static const char *const rules[MATES] = {"optim.rule=muon", "optim.rule=adamw", "optim.rule=muon"};
    for (int i = 0; i < MATES; i++) {
        snprintf(text[i], sizeof text[i], "%s data.recipe=deit", with(FOLDER, input, rules[i]));
        arms[i] = (run_arm){text[i], i == 2 ? 7 : 5};
    }
    run_rig r;
    int left = k, more = 1;
    TEST_TRY(run_open(&r, device, arms, MATES));
    run_begin_story(s, MATES);
    if (k) {
        bed->watch(r.t, &(pl_step_watch){run_pause, &left});
        while (more && left > 0) more = run_epoch(&r, s);
        TEST_TRY(bed->save(r.t, in_folder("checkpoint")));
        run_close(&r);
        TEST_TRY(run_open(&r, device, arms, MATES));
        TEST_TRY(bed->load(r.t, in_folder("checkpoint")));
        remove(in_folder("checkpoint"));
    }
    while (more) more = run_epoch(&r, s);
    run_finish(&r, s);
    run_close(&r);
}

static void test_mates(const char *device)
{
    run_story host[MATES], other[MATES];
    int64_t bad = 0;
    run_mates(host, device, "host", 0);
    for (int k = 0; k < 8; k += 1 + (k > 1)) {
        run_mates(other, device, k % 2 ? "device" : "stream", k);
        for (int i = 0; i < MATES; i++) bad += story_differs(&host[i], &other[i]);
        run_free(other, MATES);
    }
    test_exact("members of two seeds, and interrupted", bad);
    run_free(host, MATES);
}

/* ---- memory --------------------------------------------------------------------------------------- */

/* Fails the N-th allocation of a beginning and of its first epoch. */
static void test_faults(const char *device)
{
    for (int i = 0; i < 2; i++) {
        int64_t leaks = 0, wrong = 0, n = 0;
        polar_status st = POLAR_E_NOMEM;
        for (; st != POLAR_OK && n < 3000; n += 1 + n / 40) {
            run_rig r = {.n = 1, .seed = {5}};
            pl_epoch_row row;
            int active;
            TEST_TRY(polar_device_open(&r.dev, device));
            r.config[0] = config_of(with(FOLDER, i ? "stream" : "device", "train.epochs=1 data.workers=1"));
            int64_t live = pl_alloc_live();
            pl_alloc_fail_at(n + 1);
            st = bed->begin(&r.t, r.dev, (const pl_config *const *)r.config, r.seed, 1, NULL);
            if (st == POLAR_OK) st = bed->epoch(r.t, &row, &active);
            pl_alloc_fail_at(0);
            wrong += st != POLAR_OK && st != POLAR_E_NOMEM && st != POLAR_E_UNSUPPORTED;
            bed->end(r.t);
            r.t = NULL;
            leaks += pl_alloc_live() != live;
            run_close(&r);
        }
        test_true(i ? "no memory, batch by batch" : "no memory, all of them",
                  PART(!wrong) && PART(!leaks) && PART(st == POLAR_OK), "%lld allocations", (long long)n);
    }
}

/* ---- told, and stopped ---------------------------------------------------------------------------- */

typedef struct listener {
    int64_t calls, stop_at, last, total, wrong;
    const char *what;
    int phases;
} listener;

/* Counts upwards to `total`, once for each thing that is counted. */
static int listen(void *arg, const pl_step_view *v)
{
    listener *l = arg;
    if (!l->what || strcmp(l->what, v->what)) {
        l->wrong += l->what && l->last % (l->total / 2) != 0; /* of two sets: the first's end, or both's */
        l->phases++;
    } else l->wrong += v->done <= l->last;
    l->wrong += v->total != 2 * 99 || v->done < 1 || v->done > v->total;
    l->what = v->what, l->last = v->done, l->total = v->total;
    return ++l->calls == l->stop_at;
}

/* Two seeds, so two sets of 99 pictures: stopped at any word about them, it is as if it had not begun. */
static void test_told(const char *device)
{
    static const uint64_t seeds[] = {5, 6};
    static const int kinds[] = {FOLDER, PACK, SYNTH};
    for (int i = 0; i < 3; i++) {
        polar_device *dev;
        pl_config *c = config_of(with(kinds[i], "device", ""));
        const pl_config *const both[] = {c, c};
        listener all = {0};
        int64_t leaks = 0, wrong = 0, tries = 0;
        pl_train *t = NULL;
        TEST_TRY(polar_device_open(&dev, device));
        int64_t live = pl_alloc_live();
        TEST_TRY(bed->begin(&t, dev, both, seeds, 2, &(pl_step_watch){listen, &all}));
        bed->end(t);
        for (int64_t k = 1; k <= all.calls; k += 1 + k / 4, tries++) {
            listener l = {.stop_at = k};
            polar_status st = bed->begin(&t, dev, both, seeds, 2, &(pl_step_watch){listen, &l});
            wrong += st != POLAR_E_STATE || t || l.calls != k || !*polar_error_message();
            leaks += pl_alloc_live() != live;
        }
        test_true("told of pictures on their way, and stopped",
                  PART(all.phases == 4) && PART(all.last == 2 * 99) && PART(!all.wrong) && PART(!wrong) &&
                      PART(!leaks) && PART(all.calls >= 2 * (99 / 8)),
                  "%lld words, stopped at %lld of them; \"%s\"", (long long)all.calls, (long long)tries,
                  polar_error_message());
        pl_config_destroy(c);
        polar_device_close(dev);
    }
}

/* ---- nvJPEG --------------------------------------------------------------------------------------- */

/* A JPEG of w x h waves with a comment, `cut` bytes of its end left out. */
static void write_jpeg(const char *path, int64_t w, int64_t h, const char *comment, size_t cut)
{
    pl_image im;
    uint8_t *bytes, all[8192];
    size_t size, n = strlen(comment) + 2;
    TEST_TRY(pl_image_create(&im, w, h));
    for (int64_t i = 0; i < 3 * w * h; i++) im.data[i] = (uint8_t)(100 + 50 * sin((double)i / 7));
    TEST_TRY(pl_image_encode(&bytes, &size, &im, PL_IMAGE_JPEG, 90));
    if (size + n + 2 > sizeof all) exit(1);
    memcpy(all, bytes, 2);
    memcpy(all + 2, (uint8_t[]){0xff, 0xfe, 0, (uint8_t)n}, 4);
    memcpy(all + 6, comment, n - 2);
    memcpy(all + 4 + n, bytes + 2, size - 2);
    write_bytes(path, all, size + n + 2 - cut);
    pl_image_destroy(&im);
    pl_free(bytes);
}

static void write_png(const char *path, int64_t w, int64_t h)
{
    pl_image im;
    TEST_TRY(pl_image_create(&im, w, h));
    memset(im.data, 77, pl_image_bytes(&im));
    TEST_TRY(pl_image_write(path, &im, PL_IMAGE_PNG, 0));
    pl_image_destroy(&im);
}

/* Training pictures of the first class, in the order of their names: what nvJPEG is given, refuses, lies
 * about; a PNG. */
static const struct {
    const char *name, *comment;
    int theirs; /* decoded by nvJPEG */
} files[] = {{"a.jpg", "plain", 1}, {"b.jpg", "fake:refuse", 0}, {"c.jpg", "fake:lie", 0},
             {"d.png", NULL, 0},    {"e.jpg", "odd size", 1},    {"f.jpg", "more", 1}};
#define FILES ((int)(sizeof files / sizeof *files))

static void make_jpegs(void)
{
    static const char *const folders[] = {"jpegs",           "jpegs/train",   "jpegs/val",
                                          "jpegs/train/one", "jpegs/val/one", "jpegs/train/two",
                                          "jpegs/val/two"};
    char name[64];
    for (int i = 0; i < 7; i++)
        if (mkdir(in_folder(folders[i]), 0700)) exit(1);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "jpegs/train/one/%s", files[i].name);
        if (files[i].comment) write_jpeg(in_folder(name), 20 + i, 24 + 3 * i, files[i].comment, 0);
        else write_png(in_folder(name), 20 + i, 24 + 3 * i);
    }
    write_jpeg(in_folder("jpegs/train/two/a.jpg"), 20, 20, "another class", 0);
    write_jpeg(in_folder("jpegs/val/one/a.jpg"), 20, 20, "test", 0);
    write_jpeg(in_folder("jpegs/val/two/a.jpg"), 20, 20, "test", 0);
}

static const char *jpegs(const char *more)
{
    static char changes[2][500];
    static int turn;
    char *c = changes[turn++ % 2];
    snprintf(c, sizeof changes[0], "data.path=%s data.decode=nvjpeg train.batch=7 %s", in_folder("jpegs"),
             more);
    return c;
}

/* Bytes of training picture i on the device that are neither the library's nor the host's, as they should. */
static int64_t wrong_bytes(const pl_deit_data *d, const uint8_t *all, int i)
{
    const pl_deit_place *p = &d->places[PL_IMAGES_TRAIN][i];
    int64_t wrong = 0, n = 3 * (int64_t)p->width * p->height;
    char name[64];
    pl_image im;
    char *bytes = NULL;
    snprintf(name, sizeof name, "jpegs/train/one/%s", files[i].name);
    int64_t size = run_file(&bytes, in_folder(name));
    TEST_TRY(pl_image_decode_file(&im, in_folder(name)));
    wrong += p->width != im.width || p->height != im.height || p->width != 20 + i;
    for (int64_t k = 0; k < n && !wrong; k++)
        wrong += all[p->at + k] != (files[i].theirs ? (uint8_t)((k + size) % 251) : im.data[k]);
    pl_image_destroy(&im);
    free(bytes);
    return wrong;
}

static void check_pixels(const char *device)
{
    run_rig r;
    int64_t bad = 0;
    TEST_TRY(run_open(&r, device, &(run_arm){jpegs(""), 5}, 1));
    const pl_deit_data *d = &r.t->data[0];
    uint8_t *all = calloc((size_t)d->pixels.cols, 4);
    polar_queue_download(r.t->q, all, d->pixels.data, (size_t)(4 * d->pixels.cols));
    TEST_TRY(polar_queue_sync(r.t->q));
    for (int i = 0; i < FILES; i++) bad += wrong_bytes(d, all, i);
    test_exact("whose pixels: nvJPEG's, or the host's", bad);
    free(all);
    run_close(&r);
}

static void check_runs(const char *device)
{
    run_story a, b, host;
    char changes[500];
    run_run(&a, device, &(run_arm){jpegs("data.workers=1"), 5}, 1);
    run_run(&b, device, &(run_arm){jpegs("data.workers=3 data.input=device"), 5}, 1);
    snprintf(changes, sizeof changes, "%s data.decode=host", jpegs(""));
    run_run(&host, device, &(run_arm){changes, 5}, 1);
    test_exact("nvJPEG with one worker and with three", story_differs(&a, &b));
    test_true("... and another run than the host's", story_differs(&a, &host) != 0, "as its id says");
    pl_config *c = config_of(jpegs("")), *h = config_of(changes);
    char x[PL_RUN_ID_CHARS], y[PL_RUN_ID_CHARS];
    TEST_TRY(pl_config_run_id(x, c, 5));
    TEST_TRY(pl_config_run_id(y, h, 5));
    test_true("... under another name", strcmp(x, y) != 0, "%s, %s", x, y);
    pl_config_destroy(c);
    pl_config_destroy(h);
    run_free(&a, 1), run_free(&b, 1), run_free(&host, 1);
}

static void refused(const char *what, const char *device, const char *changes, polar_status code,
                    const char *word)
{
    run_rig r;
    polar_status st = run_open(&r, device, &(run_arm){changes, 5}, 1);
    test_true(what, st == code && strstr(polar_error_message(), word), "%s", polar_error_message());
    run_close(&r);
}

static void check_refused(const char *device)
{
    char changes[500];
    refused("nvJPEG, batch by batch", device, jpegs("data.input=stream"), POLAR_E_ARG, "data.input=stream");
    refused("... by the host", device, jpegs("data.input=host"), POLAR_E_ARG, "data.input=host");
    refused("... past broken pictures", device, jpegs("data.skip_bad=true"), POLAR_E_ARG, "--skip-bad");
    snprintf(changes, sizeof changes, "%s data.decode=nvjpeg", sets[PACK]);
    refused("... of a pack", device, changes, POLAR_E_ARG, "no decoding");
    write_jpeg(in_folder("jpegs/train/one/g.jpg"), 30, 30, "cut", 9);
    refused("a file that was cut", device, jpegs(""), POLAR_E_FORMAT, "one/g.jpg: broken JPEG: ends early");
    remove(in_folder("jpegs/train/one/g.jpg"));
    write_jpeg(in_folder("jpegs/train/one/g.jpg"), 30, 30, "fake:fail", 0);
    refused("one at which nvJPEG fails", device, jpegs(""), POLAR_E_DEVICE, "one/g.jpg: nvJPEG, decoding");
    remove(in_folder("jpegs/train/one/g.jpg"));
}

/* In a process of its own: a library is loaded once. */
static void in_child(const char *what, void (*check)(const char *), const char *device, const char *library,
                     const char *major)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        test_passed = test_failed = 0;
        if (library) setenv(PL_NVJPEG_VARIABLE, library, 1);
        else unsetenv(PL_NVJPEG_VARIABLE);
        if (major) setenv("FAKE_NVJPEG_MAJOR", major, 1);
        check(device);
        fflush(stdout);
        _exit(test_failed || !test_passed);
    }
    test_true(what, child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

static void check_missing(const char *device)
{
    refused("no such library", device, jpegs(""), POLAR_E_UNSUPPORTED, "no nvJPEG");
}

static void check_old(const char *device)
{
    refused("an old library", device, jpegs(""), POLAR_E_UNSUPPORTED, "nvJPEG 11.0");
}

static void check_no_gpu(const char *device)
{
    refused("nvJPEG without a GPU", device, jpegs(""), POLAR_E_ARG, "a GPU's memory");
}

static void check_all(const char *device)
{
    check_pixels(device);
    check_runs(device);
    check_refused(device);
}

/* Its memory is the host's, and may be written outside of the queue's work. */
static void test_nvjpeg(const char *device)
{
    make_jpegs();
    in_child("nvJPEG's part", check_all, device, FAKE_NVJPEG, NULL);
    in_child("... a path that leads nowhere", check_missing, device, "/nowhere/libnvjpeg.so", NULL);
    in_child("... a version without interpolation", check_old, device, FAKE_NVJPEG, "11");
    in_child("... on a CPU", check_no_gpu, device, NULL, NULL);
    folder_remove(in_folder("jpegs"));
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    make_sets();
    test_ways(device);
    test_where(device);
    test_mates(device);
    test_told(device);
    if (!strncmp(device, "cpu", 3)) {
        test_faults(device);
        test_nvjpeg(device);
    }
    remove_sets();
    folder_close();
    return test_end();
}
