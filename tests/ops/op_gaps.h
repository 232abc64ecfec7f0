/* op_gaps.h -- what lies between the rows and the matrices of an operand stays as it was. */
#ifndef OP_GAPS_H
#define OP_GAPS_H

#include "device/mat.h"

/* Bytes beside the entries of m[first] .. m[end - 1], as they lie in host, that are not 0x7f. */
static inline int64_t gaps_touched(const pl_mat *m, unsigned char *const *host, int first, int end)
{
    int64_t touched = 0;
    for (int i = first; i < end; i++) {
        const size_t size = polar_dtype_size(m[i].dtype);
        for (int64_t at = 0, n = m[i].batch * m[i].bs; at < n; at++) {
            int64_t in = at % m[i].bs;
            if (in / m[i].rs < m[i].rows && in % m[i].rs < m[i].cols) continue;
            for (size_t k = 0; k < size; k++) touched += host[i][(size_t)at * size + k] != 0x7f;
        }
    }
    return touched;
}

#endif
