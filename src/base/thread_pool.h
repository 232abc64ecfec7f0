/* thread_pool.h -- the threads of a device: a region is one function, called by the thread that asks for it
 * and by as many of the pool's workers as come in time.
 *
 *     pl_pool_create(&pool, 8, PL_POOL_SPIN, NULL);
 *     pl_pool_items(pool, 8, n, 1, one_item, &args);      one_item(&args, me, t) for every t of 0 .. n - 1
 *     pl_pool_run(pool, 8, one_share, &args);             one_share(&args, me): takes its items itself
 *                                                         (work_share.h)
 *     pl_pool_destroy(pool);
 *
 * What a region may count on, and nothing more:
 *   - thread 0, the one that asked, calls the function; each of the threads 1 .. threads - 1 calls it once
 *     or not at all. So a region takes its items from a pl_share or a counter, which one thread alone would
 *     empty too, and never waits for another thread inside. Work in two phases is two regions.
 *   - `me` < threads, and no two calls of a region have the same: memory for each thread is indexed by it.
 *   - what was written before pl_pool_run is seen in the region, what was written in the region after it.
 *   - all calls have the floating-point mode (rounding, flushing of subnormals) of the thread that asked.
 * A region inside a region, a NULL pool, and one thread: the function is called once, with me = 0.
 */
#ifndef PL_BASE_THREAD_POOL_H
#define PL_BASE_THREAD_POOL_H

#include <stdint.h>

#include "base/host_team.h"
#include "base/status.h"

#define PL_POOL_MOST 1024 /* threads, the asking one among them */
/* microseconds that a thread without work waits awake, where nobody has chosen */
#define PL_POOL_SPIN      300
#define PL_POOL_SPIN_MOST 1000000

typedef struct pl_pool pl_pool;
typedef void (*pl_region_fn)(void *arg, int me);
typedef void (*pl_item_fn)(void *arg, int me, int64_t item);

/* starts no thread yet; team: regions run on these threads and the pool has none of its own, or NULL */
polar_status pl_pool_create(pl_pool **out, int threads, int spin_us, const pl_host_team *team);
/* after its last region; NULL is fine */
void pl_pool_destroy(pl_pool *pool);

int pl_pool_spin(const pl_pool *pool);                 /* microseconds; 0 of NULL */
const pl_host_team *pl_pool_team(const pl_pool *pool); /* NULL: threads of its own */

/* a region of up to `threads` threads */
void pl_pool_run(pl_pool *pool, int threads, pl_region_fn fn, void *arg);

/* fn for every item, in pieces of `each` neighbours; each = 0: some sixteen pieces to a thread. */
void pl_pool_items(pl_pool *pool, int threads, int64_t items, int64_t each, pl_item_fn fn, void *arg);

int64_t pl_processor_count(void); /* that the calling thread may use */

#endif
