/* test_api.c -- every public function: used as it should be, and given what it must refuse.
 *
 *     test_api DEVICE
 *
 * Two tables name every function of include/polar: `use_all` calls it rightly, `refuse_all` with NULL where
 * none may be and with sizes that cannot be. Both are walked by the main thread, by a child after fork (with
 * the parent's objects, then with its own), and by two threads at once on one device. A function that
 * cmake/polar.map exports and a table lacks fails the test. Then come the calls whose order is wrong.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <polar/polar.h>

#include "base/alloc.h"
#include "test.h"

enum { ROWS = 4, COLS = 6, SIZE = ROWS * COLS, PARAMS = 2, MOST = 128 };
enum { USED, REFUSED, TABLES };
static const char *const table_names[TABLES] = {"use_all", "refuse_all"};

typedef struct place {
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    void *weight[PARAMS], *grad[PARAMS];
    char path[64];                  /* of an optimiser's state */
    const char *seen[TABLES][MOST]; /* functions of each table */
    int count[TABLES], rows, wrong;
    char first[400]; /* the first row that went wrong */
} place;

static float start[SIZE], slope[SIZE];

static int has(const place *p, int table, const char *name)
{
    int found = 0;
    for (int i = 0; i < p->count[table]; i++) found |= !strcmp(p->seen[table][i], name);
    return found;
}

static void note(place *p, int table, const char *function, const char *row, int ok)
{
    if (!has(p, table, function) && p->count[table] < MOST) p->seen[table][p->count[table]++] = function;
    p->rows++;
    if (ok) return;
    if (!p->wrong++)
        snprintf(p->first, sizeof p->first, "%s: %s (%.150s)", function, row, polar_error_message());
}

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    printf("%s  FAIL\n", polar_error_message());
    _exit(1);
}

static void fill_params(place *p, polar_param params[PARAMS])
{
    params[0] = (polar_param){.name = "matrix",
                              .weight = polar_tensor_2d(p->weight[0], POLAR_DTYPE_F32, ROWS, COLS),
                              .grad = polar_tensor_2d(p->grad[0], POLAR_DTYPE_F32, ROWS, COLS)};
    params[1] = (polar_param){.name = "vector",
                              .weight = polar_tensor_1d(p->weight[1], POLAR_DTYPE_F32, SIZE),
                              .grad = polar_tensor_1d(p->grad[1], POLAR_DTYPE_F32, SIZE)};
}

static void place_begin(place *p, polar_device *dev)
{
    static _Atomic int number;
    polar_param params[PARAMS];
    memset(p, 0, sizeof *p);
    p->dev = dev;
    snprintf(p->path, sizeof p->path, "/tmp/test_api.%d.%d.safetensors", (int)getpid(), ++number);
    must(polar_queue_create(&p->q, dev, NULL));
    for (int i = 0; i < PARAMS; i++) {
        must(polar_device_alloc(dev, &p->weight[i], sizeof start));
        must(polar_device_alloc(dev, &p->grad[i], sizeof slope));
        polar_queue_upload(p->q, p->weight[i], start, sizeof start);
        polar_queue_upload(p->q, p->grad[i], slope, sizeof slope);
    }
    must(polar_queue_sync(p->q));
    fill_params(p, params);
    must(polar_optim_create(&p->opt, dev, params, PARAMS, NULL));
}

static void place_end(place *p)
{
    polar_optim_destroy(p->opt);
    for (int i = 0; i < PARAMS; i++) {
        polar_device_free(p->dev, p->weight[i]);
        polar_device_free(p->dev, p->grad[i]);
    }
    polar_queue_destroy(p->q);
    unlink(p->path);
}

#include "api_table.inc"

/* ---- who walks them ----------------------------------------------------------------------------- */

static void walk(place *p)
{
    for (int i = 0; i < 2; i++) { /* what was refused must not spoil what follows */
        refuse_all(p);
        use_all(p);
    }
}

static void report(const char *who, const place *p)
{
    test_true(who, p->wrong == 0 && p->rows > 0, "%d of %d rows wrong%s%s", p->wrong, p->rows,
              p->wrong ? ", the first: " : "", p->first);
}

static void *thread_main(void *arg)
{
    place *p = arg;
    walk(p);
    return NULL;
}

static void test_threads(polar_device *dev)
{
    static place p[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) place_begin(&p[i], dev);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, thread_main, &p[i])) exit(1);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    report("one of two threads on a device", &p[0]);
    report("the other", &p[1]);
    for (int i = 0; i < 2; i++) place_end(&p[i]);
}

/* The child has no other threads than the one that forked: a device of several must make its own anew. */
static int child(place *parents, const char *device)
{
    static place own;
    polar_device *dev;
    walk(parents);
    must(polar_device_open(&dev, device));
    place_begin(&own, dev);
    walk(&own);
    place_end(&own);
    polar_device_close(dev);
    if (parents->wrong) printf("  with the parent's objects: %s\n", parents->first);
    if (own.wrong) printf("  with its own: %s\n", own.first);
    return parents->wrong || own.wrong;
}

static void test_fork(const char *device, polar_device *dev)
{
    static place p;
    int status = -1;
    place_begin(&p, dev);
    walk(&p); /* whatever the library makes lazily, the parent has made */
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(60); /* a child that waits for threads it does not have is ended */
        int wrong = child(&p, device);
        fflush(stdout);
        _exit(wrong);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
    test_true("a child after fork", WIFEXITED(status) && WEXITSTATUS(status) == 0, "exit %d, signal %d",
              WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    p.wrong = p.rows = 0;
    walk(&p);
    report("  and its parent", &p);
    place_end(&p);
}

/* ---- nobody was forgotten ----------------------------------------------------------------------- */

/* Words of a file that stand before `end` and begin with polar_: "    polar_version;" of the version script.
 */
static int exported(char names[MOST][64], const char *path)
{
    char line[200];
    int n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && n < MOST)
        n += sscanf(line, " polar_%57[a-z0-9_]", names[n] + 6) == 1 && memcpy(names[n], "polar_", 6) &&
             line[0] == ' ';
    if (f) fclose(f);
    return n;
}

static void test_complete(const place *p)
{
    static char names[MOST][64];
    int n = exported(names, SOURCE_DIR "/cmake/polar.map"), lacking = 0;
    for (int table = 0; table < TABLES; table++)
        for (int i = 0; i < n; i++) {
            if (has(p, table, names[i])) continue;
            printf("  %s lacks %s, which cmake/polar.map exports\n", table_names[table], names[i]);
            lacking++;
        }
    test_true("exported functions are in both tables", lacking == 0 && n >= 59, "%d functions", n);
    for (int table = 0; table < TABLES; table++)
        test_true(table_names[table], p->count[table] == n, "%d functions", p->count[table]);
    test_true("  a function that is in neither is found out",
              !has(p, USED, "polar_none") && !has(p, REFUSED, "polar_none"), "polar_none");
}

/* ---- wrong order -------------------------------------------------------------------------------- */

static int same_weights(place *p, const float *want)
{
    float back[SIZE];
    polar_queue_download(p->q, back, p->weight[0], sizeof back);
    must(polar_queue_sync(p->q));
    return !memcmp(back, want, sizeof back);
}

/* The device is closed first and everything else goes on working. */
static void test_closed_first(const char *device)
{
    static place p;
    polar_device *dev;
    polar_queue *late = (polar_queue *)&p;
    polar_optim *opt;
    polar_param params[PARAMS];
    int64_t blocks = pl_alloc_live();
    must(polar_device_open(&dev, device));
    place_begin(&p, dev);
    polar_device_close(dev);
    polar_status st = polar_optim_step(p.opt, p.q);
    test_true("a closed device: its optimiser steps",
              st == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK && !same_weights(&p, start),
              "the weights moved");
    test_true("  a new queue is refused", polar_queue_create(&late, dev, NULL) == POLAR_E_STATE && !late,
              "%s", polar_error_message());
    fill_params(&p, params);
    test_true("  a new optimiser too", polar_optim_create(&opt, dev, params, PARAMS, NULL) == POLAR_E_STATE,
              "%s", polar_error_message());
    polar_device_close(dev); /* once more, while it is kept: nothing */
    polar_queue_destroy(p.q);
    p.q = NULL;
    /* optimiser and buffers after queue and device: the last one ends the device */
    place_end(&p);
    test_exact("  device, queue, optimiser, buffers: blocks left", pl_alloc_live() - blocks);
}

/* A graph of a queue that is gone, and work in a queue whose optimiser is gone. */
static void test_gone(polar_device *dev)
{
    static place p;
    float want[SIZE];
    polar_queue *first;
    place_begin(&p, dev);
    must(polar_queue_create(&first, dev, NULL));
    must(polar_optim_step(p.opt, first));
    must(polar_optim_step(p.opt, first));
    must(polar_queue_sync(first));
    polar_queue_destroy(first);
    polar_status st = polar_optim_step(p.opt, p.q);
    test_true("a captured queue is gone: another steps on",
              st == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK, "step %lld",
              (long long)polar_optim_get_step(p.opt));
    polar_queue_download(p.q, want, p.weight[0], sizeof want);
    must(polar_queue_sync(p.q));
    must(polar_optim_step(p.opt, p.q));
    polar_optim_destroy(p.opt); /* with its step perhaps still in the queue */
    p.opt = NULL;
    test_true("an optimiser goes before its work is done",
              polar_queue_sync(p.q) == POLAR_OK && !same_weights(&p, want), "the step was made");
    place_end(&p);
}

/* The work without the values of a step: no weight moves, and none becomes NaN. */
static void test_not_prepared(polar_device *dev)
{
    static place p;
    place_begin(&p, dev);
    test_true("enqueue before the first prepare",
              polar_optim_enqueue(p.opt, p.q) == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK, "step %lld",
              (long long)polar_optim_get_step(p.opt));
    test_true("  moves no weight", same_weights(&p, start), "as they were");
    place_end(&p);
}

/* guard finds what a GPU would stumble over, and says whose it is. */
static void test_named(const char *device, polar_device *dev)
{
    static place p;
    static float host[SIZE];
    if (strncmp(device, "guard", 5)) return;
    place_begin(&p, dev);
    must(polar_optim_set_grad(p.opt, 0, host));
    polar_status st = polar_optim_step(p.opt, p.q);
    if (st == POLAR_OK) st = polar_queue_sync(p.q);
    test_true("a gradient in host memory",
              st != POLAR_OK && strstr(polar_error_message(), "gradient of 'matrix'"), "%s",
              polar_error_message());
    must(polar_optim_set_grad(p.opt, 0, p.grad[0]));
    (void)polar_queue_sync(p.q);
    place_end(&p);
}

int main(int argc, char **argv)
{
    static place p;
    polar_device *dev;
    const char *device = test_begin(argc, argv);
    for (int i = 0; i < SIZE; i++) start[i] = (float)(i % 7) - 3, slope[i] = (float)(i * i % 11) - 5;
    must(polar_device_open(&dev, device));
    place_begin(&p, dev);
    walk(&p);
    report("the main thread", &p);
    test_complete(&p);
    place_end(&p);
    test_threads(dev);
    test_fork(device, dev);
    test_gone(dev);
    test_not_prepared(dev);
    test_named(device, dev);
    test_closed_first(device);
    polar_device_close(dev);
    return test_end();
}
