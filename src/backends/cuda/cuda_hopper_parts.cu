/* cuda_hopper_parts.cu -- which products go to the kernel of cuda_hopper_parts.cuh, by which tiles. See
 * cuda_hopper_parts.h. */
#include <algorithm>

#include "cuda_hopper_parts.cuh"
#include "cuda_parts.h"

#define MOST_WORK (1ll << 27) /* multiplications of a matrix in tf32: from there on cuBLASLt's */

int pl_hopper_parts_suits(const pl_args_gemm *a)
{
    const pl_mat *all[] = {&a->C, &a->A, &a->B, &a->D};
    pl_args_gemm plain = *a;
    plain.tf32 = 0;
    for (int i = 0; i < 4; i++)
        if (all[i]->data && all[i]->rs > INT32_MAX) return 0;
    if (!pl_cuda_parts_suits(&plain)) return 0;
    return !a->tf32 || a->C.rows * a->C.cols * (a->ta ? a->A.rows : a->A.cols) < MOST_WORK;
}

#define MOST_TIMES 64
#define OWN        DEPTH /* k that a tile's beginning and its end are worth */

/* When the last block ends, each taking the next tile where it is done with one: in k of a tile. 0: later
 * than is worth counting. */
static int64_t end_of(const product_table *t, int64_t blocks)
{
    struct {
        int64_t time, blocks; /* that end then */
    } at[MOST_TIMES] = {{0, blocks}};
    int64_t last = 0;
    int times = 1;
    if (t->tiles > 64 * blocks) return 0;
    for (int g = 0; g < t->groups; g++)
        for (int64_t left = t->first[g + 1] - t->first[g]; left > 0;) {
            int soon = 0, to = 0;
            for (int i = 1; i < times; i++)
                if (at[i].time < at[soon].time) soon = i;
            const int64_t some = std::min(left, at[soon].blocks),
                          then = at[soon].time + t->call[t->leader[g]].k + OWN;
            while (to < times && at[to].time != then) to++;
            if (to == MOST_TIMES) return 0;
            if (to == times) at[times++] = {then, 0};
            at[to].blocks += some, at[soon].blocks -= some, left -= some;
            last = std::max(last, then);
            if (!at[soon].blocks) at[soon] = at[--times];
        }
    return last;
}

/* Tiles of 192 x 192 read less of L2, which is what tf32 waits for; those of half as many columns may be
 * shared out more evenly. No bit depends on it. */
static cudaError_t launch_in_tf32(const pl_hopper_device *dev, cudaStream_t stream,
                                  const pl_hopper_parts_list *list, const product_table &narrow)
{
    product_table wide = narrow;
    fill(&wide, list, 192, 192);
    const int64_t soon = end_of(&narrow, dev->multiprocessors), late = end_of(&wide, dev->multiprocessors);
    /* bytes of 192 + 192 lines for those of 192 + 96 */
    if (soon && (!late || 3 * soon <= 4 * late)) return launch<2, 3, 96>(dev, stream, narrow);
    return launch<2, 3, 192>(dev, stream, wide);
}

cudaError_t pl_hopper_parts(const pl_hopper_device *dev, cudaStream_t stream,
                            const pl_hopper_parts_list *list, uint32_t *counter)
{
    if (!list->calls) return cudaSuccess;
    const bool tf32 = list->call[0].tf32 != 0;
    product_table tall, low;
    tall.asked = low.asked = counter;
    const int64_t tiles = fill(&tall, list, 192, 96), most = fill(&low, list, 64, 96);
    if (most > INT32_MAX) return cudaErrorInvalidValue;
    if (!tiles) return cudaSuccess;
    /* tiles of 64 rows read more, but there are enough of them, and none is mostly empty; no bit depends on
     * it */
    if (tiles < dev->multiprocessors || 2 * tiles > most)
        return tf32 ? launch<2, 1, 96>(dev, stream, low) : launch<3, 1, 96>(dev, stream, low);
    return tf32 ? launch_in_tf32(dev, stream, list, tall) : launch<3, 3, 96>(dev, stream, tall);
}
