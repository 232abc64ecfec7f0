/* cuda_table.cuh -- tables of calls that one launch serves: which of them a block belongs to. */
#ifndef PL_CUDA_TABLE_CUH
#define PL_CUDA_TABLE_CUH

#include <stdint.h>

/* i, where first[i] <= blockIdx.x < first[i + 1]; a call without blocks is never found. */
static __device__ __forceinline__ int call_of_block(const uint32_t *first, int count)
{
    int low = 0, high = count;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (first[mid] <= blockIdx.x) low = mid;
        else high = mid;
    }
    return low;
}

#endif
