/* ref_patches.c -- pictures cut into squares. */
#include "ref_loops.h"

/* Token (row, column of patches), column (channel, row, column inside the patch). */
void pl_ref_patches(pl_queue *q, const pl_args_patches *a)
{
    (void)q;
    int64_t p = a->patch, across = a->width / p;
    FOR_EACH(a->Y)
    {
        int64_t channel = j / (p * p), y = i / across * p + j / p % p, x = i % across * p + j % p;
        pl_put(&a->Y, b, i, j, pl_get(&a->X, b, channel * a->height + y, x));
    }
}
