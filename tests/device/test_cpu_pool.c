/* test_cpu_pool.c -- threads of a device: when they start and end, fork, several devices and host threads at
 * once, a memory limit, signals, the floating-point mode. A child that hangs is ended by its alarm, which
 * fails the test.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "base/thread_pool.h"
#include "polar/polar.h"
#include "test.h"

#define SIDE    96 /* of the matrices of a piece of work */
#define COUNT   12 /* matrices: enough for every thread here */
#define NUMBERS (COUNT * SIDE * SIDE)
#define HANG    120 /* seconds after which a child counts as hung, on however slow a machine */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#ifdef __SANITIZE_THREAD__
#define BLIND_TO_TEAM 1 /* libgomp's barriers are not instrumented: what they order looks like races */
#else
#define BLIND_TO_TEAM 0
#endif

static float expected[NUMBERS]; /* of `work`, on one thread */

/* Threads of this process. */
static int tasks(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* The same, when it is `wanted`, or after a while: a joined thread stays listed for a moment. */
static int tasks_soon(int wanted)
{
    int n = tasks();
    for (int i = 0; i < 1000 && n != wanted; i++) {
        usleep(1000);
        n = tasks();
    }
    return n;
}

/* Polar maps of matrices that depend on nothing; how many numbers are not the expected ones, -1 if it could
 * not be done. */
static int64_t work(polar_queue *q, float *x)
{
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    polar_tensor t = polar_tensor_3d(x, POLAR_DTYPE_F32, COUNT, SIDE, SIDE);
    int64_t wrong = 0;
    for (int64_t i = 0; i < NUMBERS; i++) x[i] = (float)((i * 7919) % 1009 - 504);
    if (polar_map_apply(q, &t, &t, 1, &o) != POLAR_OK || polar_queue_sync(q) != POLAR_OK) return -1;
    for (int64_t i = 0; i < NUMBERS; i++) wrong += x[i] != expected[i];
    return wrong;
}

static int64_t work_on(polar_device *dev)
{
    polar_queue *q = NULL;
    float *x = malloc(NUMBERS * sizeof *x);
    int64_t wrong = x && polar_queue_create(&q, dev, NULL) == POLAR_OK ? work(q, x) : -1;
    polar_queue_destroy(q);
    free(x);
    return wrong;
}

static int64_t work_by_name(const char *name)
{
    polar_device *dev = NULL;
    int64_t wrong = polar_device_open(&dev, name) == POLAR_OK ? work_on(dev) : -1;
    polar_device_close(dev);
    return wrong;
}

static polar_device *opened(const char *name)
{
    polar_device *dev;
    if (polar_device_open(&dev, name) == POLAR_OK) return dev;
    fprintf(stderr, "%s\n", polar_error_message());
    exit(1);
}

/* The exit code of fn(arg) in a child; -1: it was ended by a signal, its alarm for one. */
static int in_child(int (*fn)(void *arg), void *arg)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(HANG);
        _exit(fn(arg));
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- start and end ------------------------------------------------------------------------------ */

static void test_lives(void)
{
    int before = tasks();
    polar_device *one = opened("cpu:threads=1"), *four = opened("cpu:threads=4");
    test_exact("one thread: the work is right", work_on(one));
    test_true("one thread starts none", tasks() == before, "%d more", tasks() - before);
    test_exact("four threads: the same bits", work_on(four));
    test_true("four threads: three were started by the first work", tasks() == before + 3, "%d more",
              tasks() - before);
    test_exact("and no more by the second", work_on(four) + (tasks() - before - 3));
    polar_device_close(one);
    polar_device_close(four);
    test_true("closing ends them", tasks_soon(before) == before, "%d more", tasks() - before);
    int64_t wrong = 0;
    for (int i = 0; i < 100; i++) {
        char name[40];
        snprintf(name, sizeof name, "cpu:threads=%d,spin=%d", 1 + i % 5, i % 3 * 20);
        wrong += work_by_name(name) != 0;
    }
    test_exact("100 devices opened, used and closed at once", wrong);
    test_true("and no thread is left", tasks_soon(before) == before, "%d more", tasks() - before);
}

static void test_names(void)
{
    polar_device *dev = opened("cpu:threads=3,spin=70"), *none;
    test_true("the name tells threads and spin", strstr(polar_device_name(dev), ",threads=3,spin=70") != NULL,
              "%s", polar_device_name(dev));
    test_true("and so do the calls", polar_device_get_threads(dev) == 3 && polar_device_get_spin(dev) == 70,
              "%d, %d", polar_device_get_threads(dev), polar_device_get_spin(dev));
    int64_t wrong = work_on(dev);
    wrong += polar_device_set_threads(dev, 2, -1) != POLAR_OK;
    wrong += work_on(dev);
    test_exact("threads can be set between works", wrong);
    test_true("the name follows",
              strstr(polar_device_name(dev), ",threads=2") && !strstr(polar_device_name(dev), "spin"), "%s",
              polar_device_name(dev));
    test_true("-1 threads are refused", polar_device_set_threads(dev, -1, 0) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("a spin of an hour is refused", polar_device_set_threads(dev, 1, 2000000000) == POLAR_E_ARG,
              "%s", polar_error_message());
    test_true("no device is refused", polar_device_set_threads(NULL, 1, 1) == POLAR_E_ARG, "%s",
              polar_error_message());
    polar_device_close(dev);
    test_true("spin=-1 is refused", polar_device_open(&none, "cpu:spin=-1") == POLAR_E_ARG, "%s",
              polar_error_message());
    dev = opened("ref");
    test_true("ref has no threads to set",
              polar_device_set_threads(dev, 2, 0) == POLAR_E_UNSUPPORTED &&
                  polar_device_get_threads(dev) == 1,
              "%s", polar_error_message());
    polar_device_close(dev);
    dev = opened("guard:on=cpu,threads=3");
    test_true("guard passes them on",
              polar_device_set_threads(dev, 2, 10) == POLAR_OK && polar_device_get_threads(dev) == 2 &&
                  strstr(polar_device_name(dev), ",threads=2,spin=10"),
              "%s", polar_device_name(dev));
    polar_device_close(dev);
}

/* ---- fork --------------------------------------------------------------------------------------- */

static int child_uses(void *dev)
{
    /* with threads of its own; a sanitizer may have some too */
    return work_on(dev) != 0 || (!SANITIZED && tasks() != 4);
}

static int child_opens(void *dev)
{
    (void)dev;
    return work_by_name("cpu:threads=3") != 0;
}

static int child_closes(void *dev)
{
    polar_device_close(dev);
    return !SANITIZED && tasks_soon(1) != 1;
}

static int child_forks(void *dev)
{
    return child_uses(dev) || in_child(child_uses, dev) || child_uses(dev);
}

typedef struct {
    polar_device *dev;
    _Atomic int stop;
    int64_t wrong;
} busy;

static void *keep_busy(void *arg)
{
    busy *b = arg;
    polar_queue *q = NULL;
    float *x = malloc(NUMBERS * sizeof *x);
    if (!x || polar_queue_create(&q, b->dev, NULL) != POLAR_OK) exit(1);
    while (!atomic_load(&b->stop)) b->wrong += work(q, x) != 0;
    polar_queue_destroy(q);
    free(x);
    return NULL;
}

static void *make_queues(void *arg)
{
    busy *b = arg;
    while (!atomic_load(&b->stop)) {
        polar_queue *q = NULL;
        b->wrong += polar_queue_create(&q, b->dev, NULL) != POLAR_OK;
        polar_queue_destroy(q);
    }
    return NULL;
}

static int child_makes_queue(void *dev)
{
    polar_queue *q = NULL;
    if (polar_queue_create(&q, dev, NULL) != POLAR_OK) return 1;
    polar_queue_destroy(q);
    return 0;
}

/* Another thread holds the device's list of queues at about every tenth fork. */
__attribute__((unused)) static void test_fork_lists(void)
{
    polar_device *dev = opened("cpu:threads=1");
    pthread_t other;
    busy b = {.dev = dev};
    int bad = 0;
    if (pthread_create(&other, NULL, make_queues, &b)) exit(1);
    for (int i = 0; i < 300 && !bad; i++) bad += in_child(child_makes_queue, dev) != 0;
    atomic_store(&b.stop, 1);
    pthread_join(other, NULL);
    test_exact("fork while another thread makes queues: children that hang", bad);
    test_exact("fork while another thread makes queues: it", b.wrong);
    polar_device_close(dev);
}

__attribute__((unused)) static void test_fork(void)
{
    polar_device *dev = opened("cpu:threads=4");
    pthread_t other;
    busy b = {.dev = dev};
    int bad = 0;
    test_exact("fork before the first work: the child's is right", in_child(child_uses, dev));
    test_exact("the parent's first work", work_on(dev));
    test_exact("fork after it: the child goes on with the device", in_child(child_uses, dev));
    test_exact("fork: the child opens a device of its own", in_child(child_opens, dev));
    test_exact("fork: the child closes the parent's device", in_child(child_closes, dev));
    test_exact("fork: a child of the child", in_child(child_forks, dev));
    test_exact("fork: the parent goes on", work_on(dev));
    if (pthread_create(&other, NULL, keep_busy, &b)) exit(1);
    for (int i = 0; i < 10; i++) bad += in_child(SANITIZED ? child_opens : child_uses, dev) != 0;
    atomic_store(&b.stop, 1);
    pthread_join(other, NULL);
    test_exact("fork in the middle of another thread's work: children", bad);
    test_exact("fork in the middle of another thread's work: it", b.wrong);
    polar_device_close(dev);
}

/* ---- host threads ------------------------------------------------------------------------------- */

typedef struct {
    polar_device *dev;
    int64_t wrong;
} host;

static void *works(void *arg)
{
    host *h = arg;
    for (int i = 0; i < 10; i++) h->wrong += work_on(h->dev) != 0;
    return NULL;
}

static int64_t side_by_side(polar_device *a, polar_device *b)
{
    host h[2] = {{.dev = a}, {.dev = b}};
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, works, &h[i])) exit(1);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    return h[0].wrong + h[1].wrong;
}

static void test_hosts(void)
{
    polar_device *two = opened("cpu:threads=2"), *five = opened("cpu:threads=5,spin=0");
    test_exact("two devices, two host threads", side_by_side(two, five));
    test_exact("one device, two host threads", side_by_side(five, five));
    polar_device_close(two);
    polar_device_close(five);
}

/* ---- regions ------------------------------------------------------------------------------------ */

typedef struct {
    pl_pool *pool;
    _Atomic int done[64];
    _Atomic int outside; /* a number of a thread that cannot be */
    int threads;
    float flushed[64];
} region;

static void count_item(void *arg, int me, int64_t item)
{
    region *r = arg;
    atomic_fetch_add(&r->done[item], 1);
    if (me < 0 || me >= r->threads) atomic_fetch_add(&r->outside, 1);
}

static int64_t many_regions(int threads, int spin, int regions, const pl_host_team *team)
{
    region r = {.threads = threads};
    int64_t bad = 0;
    if (pl_pool_create(&r.pool, threads, spin, team) != POLAR_OK) exit(1);
    for (int k = 0; k < regions; k++) {
        int n = k % 65;
        memset(&r.done, 0, sizeof r.done);
        pl_pool_items(r.pool, 1 + k % (threads + 2), n, k % 3, count_item, &r);
        for (int i = 0; i < 64; i++) bad += atomic_load(&r.done[i]) != (i < n);
        if (spin < 50 && k % 100 == 0) usleep(100); /* let them fall asleep */
    }
    pl_pool_destroy(r.pool);
    return bad + atomic_load(&r.outside);
}

static void inner_region(void *arg, int me, int64_t item)
{
    region *r = arg;
    (void)me, (void)item;
    pl_pool_items(r->pool, r->threads, 64, 1, count_item, r);
}

static void test_regions(void)
{
    region r = {.threads = 4};
    int64_t bad = 0;
    test_exact("50000 short regions, waiting awake", many_regions(3, 300, 50000, NULL));
    test_exact("5000 short regions, every wait asleep", many_regions(3, 0, 5000, NULL));
    test_exact("2000 short regions of up to 40 threads", many_regions(40, 20, 2000, NULL));
    if (pl_pool_create(&r.pool, 4, 100, NULL) != POLAR_OK) exit(1);
    pl_pool_items(r.pool, 4, 8, 1, inner_region, &r);
    for (int i = 0; i < 64; i++) bad += atomic_load(&r.done[i]) != 8;
    test_exact("regions inside a region", bad);
    pl_pool_destroy(r.pool);
}

/* ---- what a worker inherits --------------------------------------------------------------------- */

#ifdef __x86_64__
static void halve_item(void *arg, int me, int64_t item)
{
    region *r = arg;
    volatile float tiny = 0x1p-126f;
    (void)me;
    for (int k = 0; k < 20; k++) sched_yield(); /* so that others come */
    r->flushed[item] = tiny * 0.5f;
}

static void test_mode(const pl_host_team *team)
{
    region r = {.threads = 4};
    int64_t kept = 0, flushed = 0;
    unsigned before = __builtin_ia32_stmxcsr();
    if (pl_pool_create(&r.pool, 4, 300, team) != POLAR_OK) exit(1);
    pl_pool_items(r.pool, 4, 64, 1, halve_item, &r);
    for (int i = 0; i < 64; i++) kept += r.flushed[i] == 0;
    __builtin_ia32_ldmxcsr(before | 0x8000); /* flush to zero */
    pl_pool_items(r.pool, 4, 64, 1, halve_item, &r);
    __builtin_ia32_ldmxcsr(before);
    for (int i = 0; i < 64; i++) flushed += r.flushed[i] != 0;
    test_exact("subnormal results where the caller keeps them", kept);
    test_exact("none where it does not, whoever made them", flushed);
    pl_pool_destroy(r.pool);
}
#else
static void test_mode(const pl_host_team *team)
{
    (void)team;
}
#endif

static void test_signals(void)
{
    polar_device *dev = opened("cpu:threads=4");
    sigset_t usr, waiting;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    work_on(dev);
    /* after they were started: a worker that took it would end the process */
    pthread_sigmask(SIG_BLOCK, &usr, NULL);
    kill(getpid(), SIGUSR1);
    usleep(1000);
    sigpending(&waiting);
    test_true("no worker takes a signal", sigismember(&waiting, SIGUSR1) == 1, "it waits for who wants it");
    struct timespec now = {0, 0};
    sigtimedwait(&usr, NULL, &now);
    pthread_sigmask(SIG_UNBLOCK, &usr, NULL);
    polar_device_close(dev);
}

/* ---- little memory ------------------------------------------------------------------------------ */

/* This program again, with no more than `megabytes` of address space. */
static int limited(void *arg)
{
    rlim_t bytes = (rlim_t)(*(const int *)arg) << 20;
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 99;
    execl("/proc/self/exe", "test_cpu_pool", "limited", (char *)NULL);
    return 98;
}

enum { REFUSED = 4 };

/* In there: work for more threads than have room, and LAPACK, which may be refused for want of room. */
static int run_limited(void)
{
    static const float two[4] = {2, 0, 0, 2};
    float x[4];
    polar_device *dev = NULL;
    polar_queue *q = NULL;
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    polar_tensor t = polar_tensor_2d(x, POLAR_DTYPE_F32, 2, 2);
    memcpy(x, two, sizeof x);
    o.kind = POLAR_MAP_EXACT;
    if (work_by_name("cpu:threads=1") < 0 || work_by_name("cpu:threads=64") < 0) return 1;
    if (polar_device_open(&dev, "cpu") || polar_queue_create(&q, dev, NULL)) return 2;
    polar_status st = polar_map_apply(q, &t, &t, 1, &o);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    if (st != POLAR_OK) return st == POLAR_E_NOMEM && strstr(polar_error_message(), "OpenBLAS") ? REFUSED : 2;
    polar_queue_destroy(q);
    polar_device_close(dev);
    return x[0] == 1 && x[3] == 1 ? 0 : 3;
}

static void test_memory(void)
{
    int megabytes[] = {146, 400};
    if (SANITIZED) return; /* a sanitizer takes terabytes of address space */
    for (int i = 0; i < 2; i++) {
        int end = in_child(limited, &megabytes[i]);
        if (i == 0 && end == REFUSED) end = 0; /* OpenBLAS has no room in 146; never for ever */
        test_exact(i ? "400 MB of address space" : "146 MB of address space", end);
    }
}

/* ---- threads of the host's OpenMP --------------------------------------------------------------- */

static int child_falls_back(void *dev)
{
    polar_device *none;
    return child_uses(dev) || polar_device_open(&none, "cpu:threads=4,team=openmp") != POLAR_E_UNSUPPORTED;
}

__attribute__((unused)) static int child_is_refused(void *arg)
{
    polar_device *dev;
    (void)arg;
    return polar_device_open(&dev, "cpu:threads=4,team=openmp") != POLAR_E_UNSUPPORTED;
}

/* A process with a runtime that has never asked for its team, and its child. */
__attribute__((unused)) static int child_loads(void *arg)
{
    return dlopen("libgomp.so.1", RTLD_NOW) ? in_child(child_is_refused, arg) : 0;
}

/* Last: the runtime stays loaded, with its threads. */
static void test_team(void)
{
    const char *name = "cpu:threads=4,team=openmp";
    polar_device *dev = NULL, *own;
#ifndef __SANITIZE_THREAD__
    test_exact("team=openmp in a forked child, the first to ask for it", in_child(child_loads, NULL));
#endif
    test_true("team=tbb is refused", polar_device_open(&dev, "cpu:team=tbb") == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("team=openmp without a runtime is refused",
              polar_device_open(&dev, name) == POLAR_E_UNSUPPORTED, "%s", polar_error_message());
    if (BLIND_TO_TEAM || !dlopen("libgomp.so.1", RTLD_NOW)) {
        printf("team=openmp: left out, %s\n", BLIND_TO_TEAM ? "the thread sanitizer does not see its barriers"
                                                            : "there is no libgomp.so.1 here");
        return;
    }
    int before = tasks();
    dev = opened(name);
    test_exact("team=openmp: the same bits", work_on(dev));
    test_true("... on three threads of the runtime's", tasks() == before + 3, "%d more", tasks() - before);
    test_true("the name tells it", strstr(polar_device_name(dev), ",threads=4,team=openmp") != NULL, "%s",
              polar_device_name(dev));
    test_true("threads can be set and the team stays",
              polar_device_set_threads(dev, 3, -1) == POLAR_OK &&
                  polar_device_set_threads(dev, 4, -1) == POLAR_OK &&
                  strstr(polar_device_name(dev), ",team=openmp"),
              "%s", polar_device_name(dev));
    test_exact("... and works", work_on(dev));
    own = opened("cpu:threads=3");
    test_exact("beside a device with its own, two host threads", side_by_side(dev, own));
    test_exact("two host threads on one team", side_by_side(dev, dev));
    test_exact("3000 short regions", many_regions(4, 0, 3000, pl_host_team_find()));
    test_mode(pl_host_team_find());
#ifndef __SANITIZE_THREAD__
    test_exact("a forked child goes on with threads of its own", in_child(child_falls_back, dev));
    test_exact("and the parent with the team", work_on(dev));
#endif
    polar_device_close(dev);
    polar_device_close(own);
}

static void *nothing(void *arg)
{
    return arg;
}

static void *first_use(void *both_there)
{
    pthread_barrier_wait(both_there);
    int traced = pl_trace_wanted(); /* asked by every op, read from the environment at first */
    return work_by_name("cpu:threads=1") < 0 || traced != pl_trace_wanted() ? "it failed" : NULL;
}

/* Two threads make the library's first calls at once: what is made at first use is made once, or twice alike
 * (the thread sanitizer looks on). */
static void test_first_use(void)
{
    pthread_t a, b;
    pthread_barrier_t both_there;
    void *failed[2] = {NULL, NULL};
    pthread_barrier_init(&both_there, NULL, 2);
    if (pthread_create(&a, NULL, first_use, &both_there) || pthread_create(&b, NULL, first_use, &both_there))
        exit(1);
    pthread_join(a, &failed[0]), pthread_join(b, &failed[1]);
    pthread_barrier_destroy(&both_there);
    test_true("two threads make the first calls at once", !failed[0] && !failed[1], "both did their work");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "limited")) return run_limited();
    test_begin(argc, argv);
    pthread_t first;
    /* a sanitizer starts its own with it */
    if (pthread_create(&first, NULL, nothing, NULL) || pthread_join(first, NULL)) return 1;
    test_first_use();
    polar_device *one = opened("cpu:threads=1");
    polar_queue *q;
    float *x = malloc(sizeof expected);
    if (!x || polar_queue_create(&q, one, NULL) != POLAR_OK || work(q, x) < 0) return 1;
    memcpy(expected, x, sizeof expected);
    polar_queue_destroy(q);
    polar_device_close(one);
    free(x);
    test_lives();
    test_names();
#ifdef __SANITIZE_THREAD__
    printf("fork: left out, the thread sanitizer cannot follow threads that a child starts\n");
#else
    test_fork();
#ifdef __SANITIZE_ADDRESS__
    printf("fork beside a thread that allocates: left out, the address sanitizer's allocator cannot\n");
#else
    test_fork_lists();
#endif
#endif
    test_hosts();
    test_regions();
    test_mode(NULL);
    test_signals();
    test_memory();
    test_team();
    return test_end();
}
