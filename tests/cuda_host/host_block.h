/* host_block.h -- a block of threads on the host (cuda_host.h): its fibers and what they meet at, shared by
 * host_threads.cpp, which runs it, and host_crew.cpp, which has the host threads for it. */
#ifndef CUDA_HOST_BLOCK_H
#define CUDA_HOST_BLOCK_H

#include <atomic>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "host_race.h"

namespace cuda_host
{

constexpr size_t STACK = (256 << 10) + 17 * 64; /* apart by no power of two: caches hold many of their tops */
constexpr int THREADS_MOST = 1024, WARP = 32, GROUP = 128, BARRIERS = 16;

enum state { READY, WAITING, ENDED };

/* Copies that were put off, done in the order in which they came. */
struct copy_list {
    std::vector<deferred> list;
    std::vector<size_t> groups; /* where each ends in the list */
    void do_all()
    {
        for (size_t i = 0; i < list.size(); i++) deferred(std::move(list[i]))();
        list.clear();
        groups.clear();
    }
    void do_groups(size_t left) /* all but the last ones */
    {
        if (groups.size() <= left) return;
        const size_t gone = groups.size() - left, end = groups[gone - 1];
        for (size_t i = 0; i < end; i++) deferred(std::move(list[i]))();
        list.erase(list.begin(), list.begin() + (ptrdiff_t)end);
        groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)gone);
        for (size_t &g : groups) g -= end;
    }
};

struct fiber {
    thread self;
    state is;
    bool polled;
    const char *at; /* what it waits for */
    void *stack_pointer;
    uint32_t cluster_phase;
    copy_list copies; /* of its own, until it waits for them */
};

/* Lanes of a warp, or threads of a warpgroup, that have come to a meeting of theirs. */
template <int MOST> struct meeting_of {
    unsigned mask;
    int come;
    void *mine[MOST];
    action *act;
};
typedef meeting_of<WARP> meeting;

struct named_barrier {
    int come, count;
    met sums, result;
};

struct cluster {
    std::mutex lock;
    int size;
    block *member[WORKERS];
    int live, come;
    std::atomic<uint32_t> phase{0};
    std::atomic<int> started{0}, ended{0};
    race::group *order = nullptr;
};

struct block {
    const launch *what;
    cluster *in;
    int rank;
    dim3 index;
    int threads, live;
    std::vector<fiber> fibers;
    std::vector<race::actor> actors; /* where races are looked for */
    named_barrier barriers[BARRIERS];
    int waiting;                              /* fibers */
    meeting whole_warps[THREADS_MOST / WARP]; /* of all lanes; others by mask */
    std::unordered_map<unsigned, meeting> warps[THREADS_MOST / WARP];
    meeting_of<GROUP> groups[THREADS_MOST / GROUP];
    unsigned lanes[THREADS_MOST / WARP]; /* those that have not ended */
    copy_list copies;
    char *dynamic, *statics, *stacks;
    void *scheduler;
    const char *order;      /* as the environment says, or null */
    std::vector<int> turns; /* fibers in the order of a round */
    int at;                 /* the next of them */
    bool moved;             /* not all only polled */
    bool late;
    std::mt19937 dice;
};

extern __thread block *here; /* of this host thread */

void block_run(block *b); /* to its end */
void call_another();      /* host thread, if there are blocks for it: those at work wait */

} // namespace cuda_host

#endif
