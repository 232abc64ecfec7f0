/* host_race.cpp -- what orders the accesses of device threads (host_race.h). */
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "host_race.h"

namespace cuda_host
{
namespace race
{

bool on = false;

/* ---- turns -------------------------------------------------------------------------------------- */

/* In the order in which they ask. Never destroyed, as the host threads are not. */
static struct waiting_line {
    std::mutex lock;
    std::condition_variable next;
    uint64_t given = 0, serves = 0;
} &line = *new waiting_line;

void turn_take()
{
    if (!on) return;
    std::unique_lock<std::mutex> hold(line.lock);
    uint64_t mine = line.given++;
    line.next.wait(hold, [&] { return line.serves == mine; });
}

void turn_give()
{
    if (!on) return;
    std::lock_guard<std::mutex> hold(line.lock);
    line.serves++;
    line.next.notify_all();
}

/* ---- launches ----------------------------------------------------------------------------------- */

static grid *current;
static std::unordered_map<cudaStream_t, grid *> &last = *new std::unordered_map<cudaStream_t, grid *>;

/* A counter in memory, and what those that changed it have made known. */
static std::unordered_map<const void *, views> &flags = *new std::unordered_map<const void *, views>;

static void grid_add(std::vector<uint32_t> &to, const std::vector<uint32_t> &more)
{
    for (uint32_t n : more)
        if (std::find(to.begin(), to.end(), n) == to.end()) to.push_back(n);
}

/* A kernel that begins early does so beside the one before it, and beside those which that one did not wait
 * for: until all its blocks have let it begin, or until its own wait. */
void kernel_begin(const launch &l)
{
    static uint32_t launches;
    if (!on) return;
    grid *before = nullptr;
    auto found = last.find(l.stream);
    if (l.early && found != last.end()) before = found->second;
    if (!before) last.clear(); /* of other streams nothing is known: they count as ended */
    if (++launches % GRIDS == 0) forget_all(), last.clear(), before = nullptr, launches++;
    grids_keep(before);
    current = new grid;
    current->number = launches % GRIDS, current->what = l;
    if (before) {
        current->at_begin = {before->number};
        grid_add(current->at_begin, before->begins_next_late ? before->after_wait : before->at_begin);
        current->after_wait = before->waited ? before->after_wait : before->at_begin;
    }
    last[l.stream] = current;
    grids_keep(current);
    flags.clear();
}

void kernel_end()
{
    if (!on) return;
    flags.clear();
    current->what.args = nullptr;
}

void stream_idle(cudaStream_t)
{
    if (on) last.clear();
}

/* ---- threads ------------------------------------------------------------------------------------ */

/* The first number behind the threads: 1 where the launches before are known to have ended. */
static uint32_t launches_before(const group *g)
{
    return g->threads;
}

group *group_make(uint32_t number, uint32_t threads)
{
    group *g = new group();
    g->in = current, g->number = number, g->threads = threads, g->next = threads + 1;
    return g;
}

/* The next kernel begins when all blocks have let it, or ended: after the wait of any that did so after it.
 */
void group_end(group *g)
{
    if (!on) return;
    turn_take();
    current->waited = current->waited || g->waited;
    current->begins_next_late = current->begins_next_late || (g->waited && !g->let_early);
    turn_give();
    delete g;
}

uint32_t newcomer(group *g, const std::string &about)
{
    g->in->others[(uint64_t)g->number << 32 | g->next] = about;
    return g->next++;
}

static void tick(actor *a)
{
    a->own[ORDER]++;
    a->plain.stamp = stamp_of(a->in, a->self, a->own[ORDER]);
}

actor actor_make(group *g, uint32_t self)
{
    actor a = {};
    a.in = g, a.self = self;
    tick(&a);
    return a;
}

static actor *mine()
{
    actor *a = now->clock;
    a->plain.in = a->in, a->plain.sees = &a->sees, a->plain.own = a->own, a->plain.self = a->self;
    return a;
}

void meet(actor **who, int count)
{
    if (!on) return;
    gathering all;
    for (int i = 0; i < count; i++) all.add(who[i]->sees, who[i]->self, who[i]->own);
    views v = all.result();
    for (int i = 0; i < count; i++) {
        who[i]->sees = v;
        tick(who[i]);
    }
}

void cluster_arrive(actor *a)
{
    if (!on) return;
    a->in->come.add(a->sees, a->self, a->own);
    tick(a);
}

void cluster_met(group *g)
{
    if (!on) return;
    g->met = g->come.result();
    g->come.clear();
}

void cluster_waited(actor *a)
{
    if (on) a->sees = joined(a->sees, a->in->met);
}

/* ---- mbarriers ---------------------------------------------------------------------------------- */

static mbarrier_state *mbarrier_at(group *g, const void *at)
{
    auto found = g->mbarriers.find(at);
    if (found != g->mbarriers.end()) return &found->second;
    mbarrier_state *m = &g->mbarriers[at];
    m->who = newcomer(g, "a copy that an mbarrier counts");
    m->phases = 0;
    return m;
}

void mbarrier_init(const void *at)
{
    if (!on) return;
    touch_as(0, at, 8, true);
    mbarrier_state *m = mbarrier_at(mine()->in, at);
    m->come.clear();
    m->done = views();
    m->phases++;
}

void mbarrier_arrive(const void *at)
{
    if (!on) return;
    actor *a = mine();
    touch_as(ATOMIC, at, 8, false); /* so that its making stays the last write */
    mbarrier_at(a->in, at)->come.add(a->sees, a->self, a->own);
    tick(a);
}

void mbarrier_complete(const void *at)
{
    if (!on) return;
    mbarrier_state *m = mbarrier_at(mine()->in, at);
    m->phases++;
    m->come.add(m->who, m->phases);
    m->done = m->come.result();
    m->come.clear();
}

void mbarrier_seen(const void *at, bool complete)
{
    if (!on) return;
    actor *a = mine();
    touch_as(ATOMIC, at, 8, false);
    if (complete) a->sees = joined(a->sees, mbarrier_at(a->in, at)->done);
}

/* ---- fences, counters in memory ----------------------------------------------------------------- */

void fence_proxy(bool everywhere)
{
    if (!on) return;
    actor *a = mine();
    for (int i = PROXY_SHARED; i <= (everywhere ? PROXY_ALL : PROXY_SHARED); i++)
        a->sees.of[i] = a->sees.of[ORDER], a->own[i] = a->own[ORDER];
    tick(a);
}

static views published(const actor *a)
{
    return outward(a->sees, a->in->number, a->self, a->own);
}

static void learn(actor *a, const views &v)
{
    a->sees = joined(a->sees, inward(v, a->in->number));
}

void release(const void *at)
{
    if (!on) return;
    actor *a = mine();
    touch_as(ATOMIC, at, 4, true);
    views &flag = flags[at];
    flag = joined(flag, published(a));
    tick(a);
}

void acquire(const void *at)
{
    if (!on) return;
    actor *a = mine();
    touch_as(ATOMIC, at, 4, false);
    auto found = flags.find(at);
    if (found != flags.end()) learn(a, found->second);
}

} // namespace race

/* ---- what kernels call -------------------------------------------------------------------------- */

using namespace race;

/* The writes before it are known to who sees what this thread adds to a counter later; what others have added
 * to counters that it has read is known from here on. */
void fence()
{
    if (!on || !now) return;
    actor *a = mine();
    learn(a, a->pending);
    a->pending = views();
    a->released = published(a);
    tick(a);
}

void atomic_access(const void *at, size_t bytes)
{
    if (!on || !now) return;
    actor *a = mine();
    a->pc = __builtin_return_address(0);
    touch_as(ATOMIC, at, bytes, true);
    views &flag = flags[at];
    a->pending = joined(a->pending, flag);
    flag = joined(flag, a->released);
}

void join_lanes(void **lanes)
{
    if (!on) return;
    actor *who[32];
    int count = 0;
    for (int i = 0; i < 32; i++)
        if (lanes[i]) who[count++] = ((thread *)lanes[i])->clock;
    race::meet(who, count);
}

namespace race
{

/* ---- the launches before ------------------------------------------------------------------------ */

void grid_wait()
{
    if (!on) return;
    actor *a = mine();
    a->sees.of[ORDER] = with(a->sees.of[ORDER], launches_before(a->in), 1);
    a->in->waited = true;
}

bool after_launches(const asker &a)
{
    return count_of(a.sees->of[ORDER], launches_before(a.in)) != 0;
}

void grid_trigger()
{
    if (on && !after_launches(mine()->plain)) mine()->in->let_early = true;
}

/* ---- what acts on its own ----------------------------------------------------------------------- */

/* By the thread that runs, as `who`, whose count is said. */
static void touch_apart(uint32_t who, uint32_t count, const void *at, size_t bytes, bool write, unsigned how)
{
    actor *a = mine();
    asker as = a->plain;
    as.stamp = stamp_of(a->in, who, count), as.how = how;
    touch(as, at, bytes, write, a->pc);
}

static std::string of_thread(const char *what)
{
    return std::string(what) + " of thread " + std::to_string(now->number);
}

static void know(uint32_t who, uint32_t count)
{
    actor *a = mine();
    a->sees.of[ORDER] = with(a->sees.of[ORDER], who, count);
}

void counted(const void *mbarrier, const void *at, size_t bytes, bool write, unsigned how)
{
    if (!on) return;
    mbarrier_state *m = mbarrier_at(mine()->in, mbarrier);
    touch_apart(m->who, m->phases + 1, at, bytes, write, how);
}

void copy_own(const void *to, const void *from, size_t bytes)
{
    if (!on) return;
    actor *a = mine();
    if (!a->as_copies) a->as_copies = newcomer(a->in, of_thread("a cp.async"));
    touch_apart(a->as_copies, a->copies + 1, from, bytes, false, 0);
    touch_apart(a->as_copies, a->copies + 1, to, bytes, true, 0);
}

void copies_commit()
{
    if (on) mine()->copies++;
}

void copies_waited(uint32_t left)
{
    if (!on) return;
    actor *a = mine();
    if (a->as_copies && a->copies > left) know(a->as_copies, a->copies - left);
}

void bulk_store(const void *at, size_t bytes, bool write)
{
    if (!on) return;
    actor *a = mine();
    if (!a->as_reading) {
        a->as_reading = newcomer(a->in, of_thread("a bulk store"));
        a->as_writing = newcomer(a->in, of_thread("a bulk store"));
    }
    touch_apart(write ? a->as_writing : a->as_reading, a->stores + 1, at, bytes, write, ASYNC);
}

void stores_commit()
{
    if (on) mine()->stores++;
}

void stores_waited(uint32_t left, bool reads_alone)
{
    if (!on) return;
    actor *a = mine();
    if (!a->as_reading || a->stores <= left) return;
    know(a->as_reading, a->stores - left);
    if (!reads_alone) know(a->as_writing, a->stores - left);
}

void products_commit()
{
    if (on) mine()->products++;
}

void products_waited(uint32_t left)
{
    if (!on) return;
    actor *a = mine();
    auto found = a->in->products.find(a->self - now->number % WARPGROUP);
    if (found != a->in->products.end() && a->products > left) know(found->second, a->products - left);
}

/* The lanes' own counts are in what they know together. A product is one of four warps: each must know its
 * operands written, and who has waited for it knows it done by all four. */
warp_asker::warp_asker(actor *first, int lanes, bool products) : lane0(first), as_products(products), stamp(0)
{
    gathering all;
    for (int i = 0; i < lanes; i++) all.add(first[i].sees, first[i].self, first[i].own);
    sees = all.result();
    if (!products) return;
    group *g = first->in;
    uint32_t &who = g->products[now->clock->self - now->number % WARPGROUP];
    if (!who) who = newcomer(g, "a wgmma of warpgroup " + std::to_string(now->number / WARPGROUP));
    stamp = stamp_of(g, who, first->products + 1);
}

void warp_asker::narrow(const warp_asker &to)
{
    for (int i = 0; i < VIEWS; i++) sees.of[i] = common(sees.of[i], to.sees.of[i]);
}

void warp_asker::touch(int lane, const void *at, size_t bytes, bool write)
{
    const actor *a = lane0 + lane;
    static const uint32_t none[VIEWS] = {};
    asker as = {lane0->in, &sees, none, NOBODY, stamp, as_products ? (unsigned)ASYNC : 0};
    if (!as_products) as.stamp = stamp_of(a->in, a->self, a->own[ORDER]);
    race::touch(as, at, bytes, write, a->pc);
}

} // namespace race
} // namespace cuda_host
