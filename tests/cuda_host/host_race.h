/* host_race.h -- a race detector for kernels on the host (cuda_host.h): two accesses to the same bytes, one
 * of them a write, of which no rule of CUDA says that one happens before the other.
 *
 * Converted kernels are compiled with -fsanitize=thread, which calls a function before every load and store;
 * those functions are ours (host_shadow.cpp), the compiler's own runtime is not linked. Linking a file that
 * was compiled so turns the detector on. What orders accesses is told by the functions that make threads wait
 * (host_race.cpp). An access is compared with the last write and the last reads of its bytes by vector clocks
 * (host_clocks.h), so that a race is seen in any order in which threads happen to run.
 *
 * What orders
 *     __syncthreads, bar.sync        all that meet; __syncwarp the lanes of its mask. Exchanges, votes and
 *                                    products of a warp order nothing, as CUDA's guide says
 *     barrier.cluster                arrive before wait
 *     mbarrier                       arrivals of a phase before a wait for it; bytes that it counts, too
 *     atomics in memory              red.release before ld.acquire; __threadfence, atomicAdd before
 *                                    atomicAdd, __threadfence
 *     cp.async, bulk stores, wgmma   act between their issue and the wait for their group
 *     fence.proxy.async              what was written before it, for copies and tensor cores
 *     launches                       a kernel after all of the one before in its stream; one that begins
 *                                    early, after its griddepcontrol.wait
 *
 * Invariants
 *  1. While the detector is on, one host thread at a time runs fibers (turn), so that nothing here has a
 * lock.
 *  2. A race is told once for each pair of places in the code; the process then ends with status 9.
 */
#ifndef CUDA_HOST_RACE_H
#define CUDA_HOST_RACE_H

#include <string>
#include <unordered_map>

#include "host_clocks.h"
#include "host_launch.h"

namespace cuda_host
{
namespace race
{

extern bool on;

/* ---- who acts ----------------------------------------------------------------------------------- */

/* What a launch's accesses are compared by; its number is unique among those that can still be met. */
struct grid {
    uint32_t number;
    launch what;
    std::vector<uint32_t> at_begin, after_wait; /* numbers of launches that may still run beside it */
    bool waited = false, begins_next_late = false;
    std::unordered_map<uint64_t, std::string> others; /* by cluster and number: what acts beside threads */
};

struct mbarrier_state {
    uint32_t who, phases; /* what it counts acts as that */
    gathering come;
    views done; /* of the last phase */
};

struct group { /* a cluster */
    grid *in;
    uint32_t number, threads, next; /* of it in the grid; in all its blocks; the next that acts beside them */
    std::unordered_map<const void *, mbarrier_state> mbarriers;
    std::unordered_map<uint32_t, uint32_t> products; /* of a warpgroup, by its first thread */
    gathering come;
    views met;
    bool waited, let_early; /* for the launches before; let the next begin without that */
};

/* Who asks whether an access is ordered, and how it will be remembered. */
struct asker {
    const group *in;
    const views *sees;
    const uint32_t *own; /* counts of `self`, one a view */
    uint32_t self;
    uint64_t stamp;
    unsigned how;
};
enum { ATOMIC = 1, ASYNC = 2 }; /* how: ASYNC is the asynchronous proxy */
constexpr uint32_t NOBODY = UINT32_MAX, WARPGROUP = 128;

struct actor { /* a device thread */
    group *in;
    uint32_t self, own[VIEWS]; /* its number in the cluster; its count, and how far fences covered it */
    views sees, released, pending;
    asker plain;
    uint32_t copies, stores, products;          /* groups so far: cp.async, bulk stores, wgmma */
    uint32_t as_copies, as_reading, as_writing; /* who those act as; 0: none yet */
    const void *pc;                             /* of its last assembly text */
};

constexpr uint32_t GRIDS = 4096;

uint64_t stamp_of(const group *in, uint32_t who, uint32_t count);
uint32_t newcomer(group *g, const std::string &about);

/* ---- host_shadow.cpp: memory -------------------------------------------------------------------- */

void touch(const asker &a, const void *at, size_t bytes, bool write, const void *pc);
void touch_as(unsigned how, const void *at, size_t bytes, bool write); /* by the thread that runs */
/* This host thread's: dynamic shared memory, one of its static variables, the stacks of its fibers. */
void shared_areas(const char *dynamic, const char *in_statics, const char *stacks, size_t stack_bytes);
void memory_is_new(const void *at, size_t bytes);
void forget_all();
void grids_keep(grid *latest); /* null: none of the earlier can be met any more */
grid *grid_of(uint32_t number);

/* ---- host_race.cpp: order ----------------------------------------------------------------------- */

void turn_take(), turn_give(); /* who runs fibers */

void kernel_begin(const launch &l);
void kernel_end();
void stream_idle(cudaStream_t s); /* all that is in it has ended before what comes */

group *group_make(uint32_t number, uint32_t threads);
actor actor_make(group *g, uint32_t self);
void group_end(group *g);

void meet(actor **who, int count);
void cluster_arrive(actor *a), cluster_met(group *g), cluster_waited(actor *a);
void mbarrier_init(const void *at), mbarrier_arrive(const void *at), mbarrier_complete(const void *at),
    mbarrier_seen(const void *at, bool complete);
void fence_proxy(bool everywhere);
void release(const void *at), acquire(const void *at);
void grid_wait(), grid_trigger();
bool after_launches(const asker &a); /* those before have ended, as far as the asker knows */

/* Copies and products that act on their own. */
void counted(const void *mbarrier, const void *at, size_t bytes, bool write, unsigned how);
void copy_own(const void *to, const void *from, size_t bytes), copies_commit(), copies_waited(uint32_t left);
void bulk_store(const void *at, size_t bytes, bool write), stores_commit(),
    stores_waited(uint32_t left, bool reads_alone);
void products_commit(), products_waited(uint32_t left);

/* What a whole warp does at once: it is after what any of its lanes is after. */
class warp_asker
{
  public:
    warp_asker(actor *first, int lanes, bool products);
    void touch(int lane, const void *at, size_t bytes, bool write);
    void narrow(const warp_asker &to); /* to what both know */

  private:
    actor *lane0;
    views sees;
    bool as_products;
    uint64_t stamp;
};

} // namespace race

} // namespace cuda_host

#endif
