/* host_threads.cpp -- blocks on host threads, their threads as fibers, what fibers meet at (cuda_host.h).
 *
 *     CUDA_HOST_ORDER=backward|SEED    the fibers of a block in the other order, or in a new one every round
 *
 * Invariants
 *  1. A fiber is ready, waits (a barrier, a meeting: others make it ready), or has ended. One that polls is
 *     ready: it looks again in the next round.
 *  2. In a round every ready fiber runs once. A round in which all of them only polled has done nothing: the
 *     host thread yields, and after SILENCE seconds of such rounds the program ends and says who waits where.
 *  3. What a block shares with others, cluster barriers and mbarriers, is atomic or under the cluster's lock.
 */
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "host_block.h"

__thread dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_host
{

constexpr double SILENCE = 60;
constexpr uint32_t SHARED_BEGIN = 1024, STATIC_AT = 0x800000, RANK_SHIFT = 24;

__thread thread *now;
/* ---- fibers ------------------------------------------------------------------------------------- */

__thread block *here;

#if defined(__x86_64__)
extern "C" void cuda_host_switch(void **save, void *to);
asm(".text\n.globl cuda_host_switch\n.type cuda_host_switch,@function\ncuda_host_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size cuda_host_switch, .-cuda_host_switch\n");

static void *stack_prepare(char *top, void (*entry)())
{
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = nullptr; /* entry never returns; keeps the stack as after a call */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#else
#error "cuda_host: fibers are written for x86-64"
#endif

/* The next fiber of the round that is ready, made the one that runs; null: the round is over. */
static fiber *next_ready(block *b)
{
    while (b->at < b->threads) {
        fiber *f = &b->fibers[(size_t)b->turns[(size_t)b->at++]];
        if (f->is != READY) continue;
        f->polled = false;
        now = &f->self;
        threadIdx = now->index;
        return f;
    }
    return nullptr;
}

/* The fiber that runs rests: on to the next of the round, after the last to block_run. */
static void to_others()
{
    block *b = here;
    fiber *f = now->of;
    b->moved = b->moved || !f->polled;
    fiber *next = next_ready(b);
    cuda_host_switch(&f->stack_pointer, next ? next->stack_pointer : b->scheduler);
}

void poll()
{
    now->of->polled = true;
    to_others();
}

static void report(const char *why)
{
    block *b = here;
    fprintf(stderr, "cuda_host: %s\n", why);
    if (!b) return;
    fprintf(stderr, "block (%u, %u, %u) of %u x %u x %u, %d threads, %d live, rank %d of %d\n", b->index.x,
            b->index.y, b->index.z, b->what->grid.x, b->what->grid.y, b->what->grid.z, b->threads, b->live,
            b->rank, b->in->size);
    const char *last = "";
    int alike = 0, first = 0;
    for (int i = 0; i <= b->threads; i++) {
        const fiber *f = i < b->threads ? &b->fibers[(size_t)i] : nullptr;
        const char *at = !f                              ? nullptr
                         : f->is == ENDED                ? "ended"
                         : f->is == WAITING || f->polled ? f->at
                                                         : "runs";
        if (at && at == last) {
            alike++;
            continue;
        }
        if (alike) fprintf(stderr, "  threads %d to %d: %s\n", first, first + alike - 1, last);
        last = at, first = i, alike = 1;
    }
}

void stop(const char *why)
{
    report(why);
    abort();
}

void polling_at(const char *what)
{
    now->of->at = what;
}

/* ---- meetings ----------------------------------------------------------------------------------- */

static void release(int first, int count, const char *at)
{
    for (int i = first; i < first + count && i < here->threads; i++) {
        fiber *f = &here->fibers[(size_t)i];
        if (f->is == WAITING && f->at == at) f->is = READY, here->waiting--;
    }
}

static void wait_at(const char *at)
{
    now->of->is = WAITING, now->of->at = at;
    here->waiting++;
}

static const char *const BARRIER_AT[BARRIERS] = {"barrier 0",  "barrier 1",  "barrier 2",  "barrier 3",
                                                 "barrier 4",  "barrier 5",  "barrier 6",  "barrier 7",
                                                 "barrier 8",  "barrier 9",  "barrier 10", "barrier 11",
                                                 "barrier 12", "barrier 13", "barrier 14", "barrier 15"};

static void barrier_check(int id)
{
    named_barrier *b = &here->barriers[id];
    if (!b->come || b->come < (b->count ? b->count : here->live)) return;
    b->result = b->sums;
    b->sums = {};
    b->come = 0;
    if (race::on) {
        std::vector<race::actor *> all_met;
        for (fiber &f : here->fibers)
            if (f.is == WAITING && f.at == BARRIER_AT[id]) all_met.push_back(f.self.clock);
        race::meet(all_met.data(), (int)all_met.size());
    }
    release(0, here->threads, BARRIER_AT[id]);
}

met barrier(int id, int count, int add)
{
    named_barrier *b = &here->barriers[id];
    if (id < 0 || id >= BARRIERS || count % WARP) stop("a barrier that does not exist");
    if (b->come && b->count != count) stop("threads come to a barrier with different counts");
    b->count = count;
    b->come++;
    b->sums.threads++, b->sums.sum += add, b->sums.truths += add != 0;
    wait_at(BARRIER_AT[id]);
    barrier_check(id);
    to_others();
    return b->result;
}

static int bits_of(unsigned mask)
{
    return __builtin_popcount(mask);
}

/* True: all that are expected have come, and the act is done. */
static bool meeting_check(meeting *m, unsigned live)
{
    unsigned wanted = m->mask & live;
    if (!m->come || m->come < bits_of(wanted)) return false;
    m->act(m->mine);
    m->come = 0;
    memset(m->mine, 0, sizeof m->mine);
    return true;
}

static const char WARP_AT[] = "a warp's meeting", GROUP_AT[] = "a warpgroup's meeting";

/* The lanes of `mask` that wait in a meeting of this warp. */
static void release_lanes(unsigned warp, unsigned mask)
{
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) release((int)(warp * WARP + i), 1, WARP_AT);
}

static void meet_group(void *mine, action *act)
{
    unsigned g = now->number / GROUP;
    auto *m = &here->groups[g];
    m->mine[now->number % GROUP] = mine, m->act = act;
    wait_at(GROUP_AT);
    if (++m->come == GROUP) {
        act(m->mine);
        m->come = 0;
        release((int)g * GROUP, GROUP, GROUP_AT);
    }
    to_others();
}

void meet(unsigned mask, void *mine, action *act, bool group)
{
    if (group) return meet_group(mine, act);
    if (!(mask >> now->lane & 1)) stop("a lane is not in the mask that it gives");
    meeting *m = mask == ALL_LANES ? &here->whole_warps[now->warp] : &here->warps[now->warp][mask];
    if (m->come && m->act != act) stop("lanes of a warp meet for different things");
    m->mask = mask, m->act = act, m->mine[now->lane] = mine, m->come++;
    wait_at(WARP_AT);
    if (meeting_check(m, here->lanes[now->warp])) release_lanes(now->warp, mask);
    to_others();
}

/* ---- clusters ----------------------------------------------------------------------------------- */

static void cluster_check(cluster *c) /* under its lock */
{
    if (c->come && c->come >= c->live) {
        c->come = 0;
        c->phase.fetch_add(1);
        race::cluster_met(c->order);
    }
}

void cluster_arrive()
{
    cluster *c = here->in;
    std::lock_guard<std::mutex> hold(c->lock);
    now->of->cluster_phase = c->phase.load();
    c->come++;
    race::cluster_arrive(now->clock);
    cluster_check(c);
}

void cluster_wait()
{
    while (here->in->phase.load() == now->of->cluster_phase) {
        polling_at("a cluster's barrier");
        poll();
    }
    race::cluster_waited(now->clock);
}

uint32_t cluster_size()
{
    return (uint32_t)here->in->size;
}

uint32_t cluster_rank()
{
    return (uint32_t)here->rank;
}

/* ---- shared memory ------------------------------------------------------------------------------ */

void *dynamic_shared()
{
    return here->dynamic;
}

uint32_t shared_address(const void *p)
{
    ptrdiff_t from = (const char *)p - here->dynamic, far = (const char *)p - here->statics;
    uint32_t rank = (uint32_t)here->rank << RANK_SHIFT;
    if (from >= 0 && from <= (ptrdiff_t)SHARED_MOST) return rank | (uint32_t)(from + SHARED_BEGIN);
    if (far < -(ptrdiff_t)STATIC_AT / 2 || far > (ptrdiff_t)STATIC_AT / 2)
        stop("an address that is not in shared memory");
    return rank | (uint32_t)(far + STATIC_AT);
}

void *shared_pointer(uint32_t address)
{
    uint32_t rank = address >> RANK_SHIFT, at = address & ((1u << RANK_SHIFT) - 1);
    if (rank >= (uint32_t)here->in->size) stop("an address of a block that is not in the cluster");
    block *b = here->in->member[rank];
    if (at >= STATIC_AT / 2) return b->statics + ((ptrdiff_t)at - STATIC_AT);
    if (at < SHARED_BEGIN || at - SHARED_BEGIN >= here->what->shared)
        stop("an address beyond the launch's shared memory");
    return b->dynamic + (at - SHARED_BEGIN);
}

uint32_t remote_address(uint32_t address, uint32_t rank)
{
    return (address & ((1u << RANK_SHIFT) - 1)) | rank << RANK_SHIFT;
}

/* ---- copies that are done later ----------------------------------------------------------------- */

bool copies_late()
{
    return here->late;
}

void put_off(bool blocks, deferred copy)
{
    (blocks ? here->copies : now->of->copies).list.push_back(std::move(copy));
}

void catch_up(bool blocks)
{
    (blocks ? here->copies : now->of->copies).do_all();
}

void end_group()
{
    now->of->copies.groups.push_back(now->of->copies.list.size());
}

void catch_up_groups(size_t left)
{
    now->of->copies.do_groups(left);
}

/* ---- a block ------------------------------------------------------------------------------------ */

/* A lane of the warp has ended: who waited for it need not. */
static void ended_without(unsigned warp)
{
    block *b = here;
    for (int id = 0; id < BARRIERS; id++)
        if (b->barriers[id].come && !b->barriers[id].count) barrier_check(id);
    if (meeting_check(&b->whole_warps[warp], b->lanes[warp])) release_lanes(warp, ALL_LANES);
    for (auto &m : b->warps[warp])
        if (meeting_check(&m.second, b->lanes[warp])) release_lanes(warp, m.first);
}

static void fiber_main()
{
    fiber *f = now->of;
    block *b = here;
    b->what->signature.call(b->what->kernel, b->what->args);
    f = now->of;
    if (!f->copies.list.empty()) stop("a thread ends with bulk stores that it did not wait for");
    f->is = ENDED;
    b->live--;
    b->lanes[f->self.warp] &= ~(1u << f->self.lane);
    if (b->waiting) ended_without(f->self.warp);
    if (b->in->size > 1) b->in->lock.lock();
    b->in->live--;
    cluster_check(b->in);
    if (b->in->size > 1) b->in->lock.unlock();
    to_others();
    abort();
}

static void fibers_make(block *b)
{
    b->fibers.resize((size_t)b->threads);
    b->waiting = 0;
    b->actors.clear();
    b->actors.reserve(race::on ? (size_t)b->threads : 0);
    for (int i = 0; i < b->threads; i++) {
        fiber *f = &b->fibers[(size_t)i];
        dim3 size = b->what->block;
        unsigned n = (unsigned)i;
        race::actor *clock = nullptr;
        if (race::on) {
            b->actors.push_back(race::actor_make(b->in->order, (uint32_t)(b->rank * b->threads + i)));
            clock = &b->actors.back();
        }
        f->self = {
            dim3(n % size.x, n / size.x % size.y, n / size.x / size.y), n, n % WARP, n / WARP, f, clock};
        f->is = READY, f->polled = false, f->at = "", f->cluster_phase = 0;
        f->stack_pointer = stack_prepare(b->stacks + STACK * (size_t)(i + 1), fiber_main);
    }
    for (int w = 0; w < (b->threads + WARP - 1) / WARP; w++) {
        int lanes = b->threads - w * WARP;
        b->lanes[w] = lanes >= WARP ? ALL_LANES : (1u << lanes) - 1;
        b->whole_warps[w] = {};
        b->warps[w].clear();
    }
    memset(b->barriers, 0, sizeof b->barriers);
    memset(b->groups, 0, sizeof b->groups);
    b->copies.list.clear();
}

static void order_make(block *b)
{
    const char *how = b->order;
    std::vector<int> &order = b->turns;
    int n = b->threads;
    if ((int)order.size() != n) {
        order.resize((size_t)n);
        for (int i = 0; i < n; i++) order[(size_t)i] = how && *how == 'b' ? n - 1 - i : i;
    }
    if (how && *how >= '0' && *how <= '9') std::shuffle(order.begin(), order.end(), b->dice);
}

static double seconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void block_run(block *b)
{
    double quiet_since = 0;
    const char *late = getenv("CUDA_HOST_LATE");
    b->order = getenv("CUDA_HOST_ORDER"), b->late = late && *late == '1';
    b->dice.seed((unsigned)(b->order ? atoi(b->order) : 0) + b->index.x * 7919);
    memset(b->dynamic, 0xff, b->what->shared); /* NaN in every format */
    blockIdx = b->index, blockDim = b->what->block, gridDim = b->what->grid;
    fibers_make(b);
    b->turns.clear();
    while (b->live) {
        b->moved = false, b->at = 0;
        order_make(b);
        fiber *first = next_ready(b);
        if (!first) stop("every thread waits at a barrier or for its warp");
        cuda_host_switch(&b->scheduler, first->stack_pointer);
        if (b->moved) quiet_since = 0;
        else {
            if (!quiet_since) quiet_since = seconds();
            if (seconds() - quiet_since > SILENCE) stop("nothing moves");
            call_another();
            race::turn_give();
            sched_yield();
            race::turn_take();
        }
    }
    now = nullptr;
}

} // namespace cuda_host
