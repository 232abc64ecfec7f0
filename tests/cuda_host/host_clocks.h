/* host_clocks.h -- vector clocks of device threads, for the race detector (host_race.h).
 *
 * A cluster numbers what can act in it: its threads, then what acts beside them (copies that an mbarrier
 * counts, a warp's products, a thread's bulk stores). Each has a count of its own, which grows when others
 * may learn of it. What somebody knows is a count of each: all up to it happened before.
 *
 * Invariants
 *  1. What is known is never changed, only replaced, so that it is shared: after a barrier all threads have
 *     one and the same.
 *  2. A thread's own count is not in what it knows: it stands beside it.
 */
#ifndef CUDA_HOST_CLOCKS_H
#define CUDA_HOST_CLOCKS_H

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cuda_host
{
namespace race
{

typedef std::vector<uint32_t> counts;

struct clocks {
    counts own; /* of the cluster itself; what is not there is 0 */
    std::map<uint32_t, std::shared_ptr<const counts>> others; /* of other clusters of the grid, by number */
};
typedef std::shared_ptr<const clocks> known; /* null: nothing */

/* What happened before, and of that, what a fence has shown to the asynchronous proxy: in shared memory, and
 * everywhere. */
enum view { ORDER, PROXY_SHARED, PROXY_ALL, VIEWS };
struct views {
    known of[VIEWS];
};

uint32_t count_of(const known &k, uint32_t who);
uint32_t count_of(const known &k, uint32_t cluster, uint32_t who); /* of another cluster */
known joined(const known &a, const known &b);
known common(const known &a, const known &b); /* of the own cluster alone */
known with(const known &k, uint32_t who, uint32_t count);
views joined(const views &a, const views &b);

/* As clusters hand it to each other: all of it under `others`; and back. */
views outward(const views &v, uint32_t cluster, uint32_t who, const uint32_t count[VIEWS]);
views inward(const views &v, uint32_t cluster);

/* What several that meet know together. */
class gathering
{
  public:
    void add(const views &v);
    void add(const views &v, uint32_t who, const uint32_t count[VIEWS]);
    void add(uint32_t who, uint32_t count); /* to ORDER alone */
    views result() const;
    void clear();

  private:
    std::vector<known> parts[VIEWS]; /* different ones */
    std::vector<std::pair<uint32_t, uint32_t>> single[VIEWS];
};

} // namespace race
} // namespace cuda_host

#endif
