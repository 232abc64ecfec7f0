/* thread_pool.c -- regions over threads that sleep in futexes: a word that calls, a door that counts who is
 * inside.
 *
 * Invariants:
 *  1. `turn` is held by the thread whose region it is; regions of one pool follow one another. Whoever finds
 *     the pool at work waits asleep. fn, arg, threads and fp_mode are written by that thread while the door
 *     is shut and nobody is inside, and read by workers inside only.
 *  2. Order of memory: the region's fields, then door |= OPEN (release), then the new call (sequentially
 *     consistent). A worker that sees the call counts itself into the door (acquire) and is in if the door
 *     was open; it leaves by counting itself out (release). The caller shuts the door and waits until nobody
 *     is inside (acquire). Every change of the door is a read-modify-write, so each release reaches the
 *     caller however many came after it.
 *  3. A worker that comes late finds the door shut, or open to a later region, and joins that one: what it
 *     does is read inside. So no region waits for a worker that has not begun, and none needs a worker at
 *     all: threads that could not be started, or sleep on, cost speed and nothing else.
 *  4. A worker sleeps on its own `asleep` = 1, after it has looked once more at the call; whoever has seen
 *     the new call looks at `asleep` after it (both sequentially consistent, so one of the two sees the
 *     other). Thread i wakes FANOUT * i + 1 .. FANOUT * i + FANOUT: what one thread has to wake does not grow
 *     with the pool. Only destruction relies on being heard, and wakes everybody itself.
 *  5. The caller sleeps on the door, with WAITING set; the worker that leaves it empty wakes it.
 *  6. Waiting awake looks, then yields the core, and ends after `spin` microseconds of the clock: where a
 *     neighbour took the core meanwhile, at once.
 *  7. After fork the child has the forking thread alone. Every pool is in a list, whose lock fork holds; in
 *     the child each begins anew, without workers, its turn free, and starts its own when a region wants
 *     them; also where it ran on the host's team, which is not there either.
 *  8. Workers block the signals that are sent to a process; those that an instruction raises stay its own.
 *     They run on the cores that were open to the thread that created the pool.
 *  9. On the host's team a region always asks for all `most` threads, and those it does not want return at
 *     once: an OpenMP runtime ends and starts threads where the size of its team changes.
 */
#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/work_share.h"

#define FANOUT 4                 /* workers that a thread wakes */
#define LOOKS  64                /* between yields: a microsecond or two */
#define STACK  ((size_t)4 << 20) /* of a worker; the largest kernel takes a tenth of it */
#define PIECES 16                /* of a thread's stretch, where nobody has chosen */

/* the door: who is inside, and two flags */
enum { INSIDE = 0xffff, OPEN = 1 << 16, WAITING = 1 << 17 };
/* the call: threads, an end, its number */
enum { CALL_THREADS = 0x7fff, CALL_STOP = 1 << 15, CALL_ONE = 1 << 16 };

typedef struct {
    _Alignas(64) _Atomic uint32_t asleep;
    pl_pool *pool;
    pthread_t thread;
    int me;
} worker;

struct pl_pool {
    /* constant */
    int most, spin_us, placed;
    cpu_set_t cores; /* where `placed` */
    worker *workers; /* threads 1 .. most - 1 at 0 .. */
    const pl_host_team *team;
    /* the turn's */
    pthread_mutex_t turn;
    int started, refused; /* workers there are; the system gave no more */
    uint64_t called;      /* the last call */
    /* the region's */
    pl_region_fn fn;
    void *arg;
    int threads;
    uint32_t fp_mode;
    /* the list's */
    pl_pool *next, **link;
    _Alignas(64) _Atomic uint64_t call; /* a line of its own: all who wait look at it */
    _Alignas(64) _Atomic uint32_t door;
};

static _Thread_local int inside_region;

/* ---- the processor and the kernel --------------------------------------------------------------- */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Rounding and flushing, without the flags that arithmetic leaves. */
static inline uint32_t fp_mode_get(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return (uint32_t)mode;
#else
    return 0;
#endif
}

static inline void fp_mode_set(uint32_t mode)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)mode));
#else
    (void)mode;
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    /* who calls looks again, whatever it says */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

int64_t pl_processor_count(void)
{
    cpu_set_t set;
    int64_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

/* ---- waiting awake ------------------------------------------------------------------------------ */

typedef struct {
    int looks;
    double until; /* 0: not begun */
} spin;

/* False when it has lasted long enough. */
static int spin_on(spin *s, int spin_us)
{
    if (!spin_us) return 0;
    relax();
    if (++s->looks % LOOKS) return 1;
    double now = pl_clock_seconds();
    if (s->until == 0) s->until = now + 1e-6 * spin_us;
    if (now >= s->until) return 0;
    sched_yield();
    return 1;
}

/* ---- workers ------------------------------------------------------------------------------------ */

static void wake(worker *w)
{
    if (atomic_load(&w->asleep) && atomic_exchange(&w->asleep, 0)) futex_wake(&w->asleep);
}

static void wake_below(pl_pool *p, int me, int threads)
{
    int from = FANOUT * me + 1, to = from + FANOUT;
    if (to > threads) to = threads;
    for (int i = from; i < to; i++) wake(&p->workers[i - 1]);
}

/* The next call that is not `seen`. */
static uint64_t next_call(worker *w, uint64_t seen)
{
    pl_pool *p = w->pool;
    spin s = {0, 0};
    uint64_t call;
    while ((call = atomic_load(&p->call)) == seen) {
        if (spin_on(&s, p->spin_us)) continue;
        atomic_store(&w->asleep, 1);
        if (atomic_load(&p->call) == seen) futex_wait(&w->asleep, 1);
        atomic_store(&w->asleep, 0);
    }
    return call;
}

static void leave(pl_pool *p)
{
    uint32_t before = atomic_fetch_sub_explicit(&p->door, 1, memory_order_release);
    if (before == (WAITING | 1)) futex_wake(&p->door);
}

/* Takes part in the region that is open, if there is one and it wants this worker. */
static void take_part(worker *w)
{
    pl_pool *p = w->pool;
    if (!(atomic_load_explicit(&p->door, memory_order_relaxed) & OPEN)) return;
    uint32_t before = atomic_fetch_add_explicit(&p->door, 1, memory_order_acquire);
    if ((before & OPEN) && w->me < p->threads) {
        wake_below(p, w->me, p->threads);
        if (p->fp_mode != fp_mode_get()) fp_mode_set(p->fp_mode);
        p->fn(p->arg, w->me);
    }
    leave(p);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    char name[16];
    snprintf(name, sizeof name, "polar-cpu:%d", w->me);
    pthread_setname_np(pthread_self(), name);
    /* refused: where it is */
    if (w->pool->placed) sched_setaffinity(0, sizeof w->pool->cores, &w->pool->cores);
    inside_region = 1;
    for (uint64_t call = 0; !(call & CALL_STOP);) {
        call = next_call(w, call);
        if (w->me < (int)(call & CALL_THREADS)) take_part(w);
    }
    return NULL;
}

/* As many workers as `threads` threads want, or as the system gives. */
static void start(pl_pool *p, int threads)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    pthread_attr_t attr;
    sigset_t blocked, before;
    if (pthread_attr_init(&attr) != 0) return;
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    while (p->started < threads - 1 && !p->refused) {
        worker *w = &p->workers[p->started];
        p->refused = pthread_create(&w->thread, &attr, worker_main, w) != 0;
        p->started += !p->refused;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* ---- regions ------------------------------------------------------------------------------------ */

/* Waits until nobody is inside; the door is shut. */
static void wait_empty(pl_pool *p)
{
    spin s = {0, 0};
    uint32_t door;
    while ((door = atomic_load_explicit(&p->door, memory_order_acquire)) & INSIDE) {
        if (spin_on(&s, p->spin_us)) continue;
        if (door & WAITING) futex_wait(&p->door, door);
        else atomic_compare_exchange_strong(&p->door, &door, door | WAITING);
    }
    if (door & WAITING) atomic_fetch_and(&p->door, ~(uint32_t)WAITING);
}

static int alone(const pl_pool *p, int threads)
{
    return !p || threads <= 1 || p->most <= 1 || inside_region;
}

/* What each thread of the host's team does. */
static void team_member(void *data)
{
    pl_pool *p = data;
    int me = p->team->thread_num();
    if (me >= p->threads) return;
    uint32_t mode = fp_mode_get();
    if (mode != p->fp_mode) fp_mode_set(p->fp_mode);
    inside_region = 1;
    p->fn(p->arg, me);
    inside_region = 0;
    if (mode != p->fp_mode) fp_mode_set(mode);
}

void pl_pool_run(pl_pool *p, int threads, pl_region_fn fn, void *arg)
{
    if (alone(p, threads)) {
        fn(arg, 0);
        return;
    }
    if (threads > p->most) threads = p->most;
    pthread_mutex_lock(&p->turn);
    p->fn = fn;
    p->arg = arg;
    p->threads = threads;
    p->fp_mode = fp_mode_get();
    if (p->team) {
        p->team->parallel(team_member, p, (unsigned)p->most, 0);
        pthread_mutex_unlock(&p->turn);
        return;
    }
    if (p->started < threads - 1 && !p->refused) start(p, threads);
    p->called = (p->called / CALL_ONE + 1) * CALL_ONE + (uint64_t)threads;
    atomic_fetch_or_explicit(&p->door, OPEN, memory_order_release);
    atomic_store(&p->call, p->called);
    wake_below(p, 0, threads);
    inside_region = 1;
    fn(arg, 0);
    inside_region = 0;
    if (atomic_fetch_and_explicit(&p->door, ~(uint32_t)OPEN, memory_order_acquire) & INSIDE) wait_empty(p);
    pthread_mutex_unlock(&p->turn);
}

typedef struct {
    pl_share share;
    pl_item_fn fn;
    void *arg;
} items_of;

static void items_share(void *arg, int me)
{
    items_of *o = arg;
    PL_SHARE(t, &o->share, me) o->fn(o->arg, me, t);
}

void pl_pool_items(pl_pool *p, int threads, int64_t items, int64_t each, pl_item_fn fn, void *arg)
{
    if (threads > items) threads = (int)items;
    if (alone(p, threads)) {
        for (int64_t t = 0; t < items; t++) fn(arg, 0, t);
        return;
    }
    items_of o;
    o.fn = fn;
    o.arg = arg;
    if (!each) each = items / (PIECES * (int64_t)threads);
    pl_share_begin(&o.share, items, each ? each : 1, threads);
    pl_pool_run(p, threads, items_share, &o);
}

/* ---- creation, destruction, fork ---------------------------------------------------------------- */

static pl_pool *pools;
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t pools_once = PTHREAD_ONCE_INIT;

static void fork_prepare(void)
{
    pthread_mutex_lock(&pools_lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&pools_lock);
}

static void fork_child(void)
{
    for (pl_pool *p = pools; p; p = p->next) {
        pthread_mutex_init(&p->turn, NULL);
        for (int i = 0; i < p->most - 1; i++) atomic_store(&p->workers[i].asleep, 0);
        atomic_store(&p->door, 0);
        p->started = p->refused = 0;
        p->team = NULL;
    }
    pthread_mutex_unlock(&pools_lock);
}

static void watch_forks(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

polar_status pl_pool_create(pl_pool **out, int threads, int spin_us, const pl_host_team *team)
{
    *out = NULL;
    pl_pool *p = pl_calloc(1, sizeof *p);
    worker *workers = pl_calloc((size_t)threads, sizeof *workers);
    if (!p || !workers) {
        pl_free(p);
        pl_free(workers);
        return PL_FAIL(POLAR_E_NOMEM, "a pool of %d threads", threads);
    }
    p->most = threads;
    p->spin_us = spin_us;
    p->team = team;
    p->workers = workers;
    p->placed = sched_getaffinity(0, sizeof p->cores, &p->cores) == 0;
    for (int i = 0; i < threads - 1; i++) {
        workers[i].pool = p;
        workers[i].me = i + 1;
    }
    pthread_mutex_init(&p->turn, NULL);
    pthread_once(&pools_once, watch_forks);
    pthread_mutex_lock(&pools_lock);
    p->next = pools;
    p->link = &pools;
    if (pools) pools->link = &p->next;
    pools = p;
    pthread_mutex_unlock(&pools_lock);
    *out = p;
    return POLAR_OK;
}

int pl_pool_spin(const pl_pool *p)
{
    return p ? p->spin_us : 0;
}

const pl_host_team *pl_pool_team(const pl_pool *p)
{
    return p ? p->team : NULL;
}

void pl_pool_destroy(pl_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&pools_lock);
    *p->link = p->next;
    if (p->next) p->next->link = p->link;
    pthread_mutex_unlock(&pools_lock);
    atomic_store(&p->call, (p->called / CALL_ONE + 1) * CALL_ONE + CALL_STOP);
    for (int i = 0; i < p->started; i++) wake(&p->workers[i]);
    for (int i = 0; i < p->started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->turn);
    pl_free(p->workers);
    pl_free(p);
}
