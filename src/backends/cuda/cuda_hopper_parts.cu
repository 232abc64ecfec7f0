/* cuda_hopper_parts.cu -- which products go to the kernel of cuda_hopper_parts.cuh, by which tiles. See
 * cuda_hopper_parts.h. */
#include "cuda_hopper_parts.cuh"
#include "cuda_parts.h"

int pl_hopper_parts_suits(const pl_args_gemm *a)
{
    const pl_mat *all[] = {&a->C, &a->A, &a->B, &a->D};
    for (int i = 0; i < 4; i++)
        if (all[i]->data && all[i]->rs > INT32_MAX) return 0;
    return pl_cuda_parts_suits(a);
}

cudaError_t pl_hopper_parts(const pl_hopper_device *dev, cudaStream_t stream,
                            const pl_hopper_parts_list *list, uint32_t *counter)
{
    if (!list->calls) return cudaSuccess;
    product_table tall, low;
    tall.asked = low.asked = counter;
    const int64_t tiles = fill(&tall, list, 192), most = fill(&low, list, 64);
    if (most > INT32_MAX) return cudaErrorInvalidValue;
    if (!tiles) return cudaSuccess;
    /* tiles of 64 rows read more, but there are enough of them, and none is mostly empty; no bit depends on
     * it */
    if (tiles < dev->multiprocessors || 2 * tiles > most) return launch<1>(dev, stream, low);
    return launch<3>(dev, stream, tall);
}
