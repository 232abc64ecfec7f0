/* host_crew.cpp -- the host threads that run blocks (cuda_host.h): who launches works, too; others are called
 * when there are more blocks than those at work, one for a start, a cluster's all, and one more each time a
 * block does nothing but wait. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <condition_variable>
#include <thread>

#include "host_block.h"

namespace cuda_host
{

static thread_local char anchor; /* static shared memory is told by its distance from here */

/* Never destroyed: its threads wait on it until the process ends. */
struct crew {
    std::mutex lock;
    std::condition_variable begin, end;
    const launch *what = nullptr;
    int blocks = 0, next = 0;
    int threads = 0, busy = 0, called = 0; /* busy: at work or called; called: not yet awake */
    cluster *forming = nullptr;
};

static crew &all = *new crew;

/* A place for the next block; false where there is none. A cluster is made with its first block. */
static bool take(const launch *l, int *at, cluster **in)
{
    std::lock_guard<std::mutex> hold(all.lock);
    if (all.next >= all.blocks) return false;
    *at = all.next++;
    if (*at % l->cluster == 0) {
        all.forming = new cluster;
        all.forming->size = l->cluster;
        all.forming->live = l->cluster * (int)(l->block.x * l->block.y * l->block.z);
        all.forming->come = 0;
        if (race::on)
            all.forming->order = race::group_make((uint32_t)(*at / l->cluster), (uint32_t)all.forming->live);
    }
    *in = all.forming;
    return true;
}

static void work_on(const launch *l, block *b)
{
    int at;
    cluster *c;
    while (take(l, &at, &c)) {
        b->what = l, b->in = c, b->rank = at % l->cluster;
        unsigned n = (unsigned)at;
        b->index = dim3(n % l->grid.x, n / l->grid.x % l->grid.y, n / l->grid.x / l->grid.y);
        b->threads = b->live = (int)(l->block.x * l->block.y * l->block.z);
        c->member[b->rank] = b;
        c->started.fetch_add(1);
        while (c->started.load() < c->size) sched_yield();
        race::turn_take();
        block_run(b);
        race::turn_give();
        c->ended.fetch_add(1);
        while (c->ended.load() < c->size) sched_yield(); /* others may still read its memory */
        if (c->started.fetch_sub(1) == 1) {
            race::group_end(c->order);
            delete c;
        }
    }
}

static char *memory(size_t bytes)
{
    void *p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) stop("no memory for fibers");
    return (char *)p;
}

/* This host thread's place for blocks, as long as the thread. */
static block *own_block()
{
    if (here) return here;
    here = new block;
    here->stacks = memory(STACK * THREADS_MOST);
    here->dynamic = memory(SHARED_MOST);
    here->statics = &anchor;
    race::shared_areas(here->dynamic, here->statics, here->stacks, STACK * THREADS_MOST);
    return here;
}

static void worker()
{
    std::unique_lock<std::mutex> hold(all.lock);
    for (;;) {
        all.begin.wait(hold, [] { return all.called > 0; });
        all.called--;
        const launch *l = all.what;
        hold.unlock();
        work_on(l, own_block());
        hold.lock();
        if (--all.busy == 0) all.end.notify_all();
    }
}

/* One more, if there are blocks for it; under the lock. */
static void call()
{
    if (all.busy >= WORKERS || all.next >= all.blocks) return;
    if (all.threads < all.busy) {
        std::thread(worker).detach();
        all.threads++;
    }
    all.busy++, all.called++;
    all.begin.notify_one();
}

void call_another()
{
    std::lock_guard<std::mutex> hold(all.lock);
    call();
}

void run(const launch &l)
{
    static std::mutex one; /* launches of several host threads one by one */
    static const int child = pthread_atfork(nullptr, nullptr, [] { all.threads = 0; }); /* it has none */
    (void)child;
    std::lock_guard<std::mutex> turn(one);
    race::kernel_begin(l);
    std::unique_lock<std::mutex> hold(all.lock);
    all.what = &l, all.next = 0, all.blocks = (int)(l.grid.x * l.grid.y * l.grid.z), all.busy = 1;
    for (int i = 1; i < (l.cluster > 1 ? l.cluster : all.blocks > 1 ? 2 : 1); i++) call();
    hold.unlock();
    work_on(&l, own_block());
    hold.lock();
    all.busy--;
    all.end.wait(hold, [] { return all.busy == 0; });
    race::kernel_end();
}

} // namespace cuda_host
