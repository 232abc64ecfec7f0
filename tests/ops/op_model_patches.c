/* op_model_patches.c -- where a picture's numbers go. */
#include "op_model_impl.h"

/* Walks over the picture instead of dividing the position in Y. */
MODEL(patches)
{
    int64_t K = r->c.K, channel = 0, token = 0;
    while (j >= K * K) j -= K * K, channel++;
    while (i >= r->c.cols) i -= r->c.cols, token++;
    return at(r, 1, b, (channel * r->c.rows + token) * K + j / K, i * K + j % K);
}
