/* cuda_ns_chunks.cuh -- a block's share of a matrix, and the chunks of 8 entries in which its threads read
 * and write memory.
 *
 * A chunk is (i, j .. j + 7) of X, 16 bytes in shared memory. Of a wide matrix it lies along a row of memory,
 * of a tall one along a column, and then neighbouring lanes have neighbouring i.
 */
#ifndef PL_CUDA_NS_CHUNKS_CUH
#define PL_CUDA_NS_CHUNKS_CUH

#include "cuda_ns_products.cuh"

template <int MB> __device__ __forceinline__ void chunk_place(int q, int tall, int *i, int *group)
{
    const int M = shape<MB>::M;
    *i = tall ? q % M : q / 8 % M;
    *group = tall ? q / M : q / (8 * M) * 8 + q % 8;
}

template <int MB> __device__ __forceinline__ uint32_t chunk_at(int i, int group)
{
    return (uint32_t)(group / 8 * shape<MB>::PANEL) + unit_at(i, group % 8);
}

/* 8 entries of a matrix with row stride rs, all inside; of a wide one aligned to 16 bytes. */
template <bool TALL> __device__ __forceinline__ void load_8(float x[8], const float *p, int i, int j, int rs)
{
    if (TALL) {
        const float *at = p + j * rs + i;
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = at[k * rs];
    } else {
        const float4 *at = (const float4 *)(p + i * rs + j);
        float4 a = at[0], b = at[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
}

template <bool TALL>
__device__ __forceinline__ void load_8(float x[8], const pl_bf16 *p, int i, int j, int rs)
{
    if (TALL) {
        const pl_bf16 *at = p + j * rs + i;
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = pl_bf16_to_f32(at[k * rs]);
    } else {
        uint4 a = *(const uint4 *)(p + i * rs + j);
        x[0] = low(a.x), x[1] = high(a.x), x[2] = low(a.y), x[3] = high(a.y);
        x[4] = low(a.z), x[5] = high(a.z), x[6] = low(a.w), x[7] = high(a.w);
    }
}

template <bool TALL> __device__ __forceinline__ void store_8(float *p, int i, int j, int rs, const float x[8])
{
    if (TALL) {
        float *at = p + j * rs + i;
#pragma unroll
        for (int k = 0; k < 8; k++) at[k * rs] = x[k];
    } else {
        float4 *at = (float4 *)(p + i * rs + j);
        at[0] = make_float4(x[0], x[1], x[2], x[3]);
        at[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
}

template <bool TALL>
__device__ __forceinline__ void store_8(pl_bf16 *p, int i, int j, int rs, const uint32_t x[4])
{
    if (TALL) {
        pl_bf16 *at = p + j * rs + i;
#pragma unroll
        for (int k = 0; k < 8; k++) at[k * rs] = (pl_bf16)(x[k / 2] >> (k % 2 * 16));
    } else *(uint4 *)(p + i * rs + j) = make_uint4(x[0], x[1], x[2], x[3]);
}

/* The same of a chunk that may reach beyond the matrix, or that is not aligned. */
struct edge {
    int at, by, count; /* count: entries inside */
};

__device__ __forceinline__ edge edge_of(const view &v, int i, int j, int rs)
{
    edge e;
    e.at = v.tall ? j * rs + i : i * rs + j;
    e.by = v.tall ? rs : 1;
    e.count = i < v.m ? min(8, max(0, v.n - j)) : 0;
    return e;
}

__device__ __forceinline__ void load_edge(float x[8], const void *p, int bf16, const edge &e)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int at = e.at + k * e.by;
        if (k >= e.count) x[k] = 0;
        else x[k] = bf16 ? pl_bf16_to_f32(((const pl_bf16 *)p)[at]) : ((const float *)p)[at];
    }
}

__device__ __forceinline__ void store_edge(float *p, const float x[8], const edge &e)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (k < e.count) p[e.at + k * e.by] = x[k];
}

__device__ __forceinline__ bool aligned(const void *p, int64_t row_bytes)
{
    return (((uintptr_t)p | (uintptr_t)row_bytes) & 15) == 0;
}

__device__ __forceinline__ void unpack(float d[8], const uint32_t x[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) d[2 * k] = low(x[k]), d[2 * k + 1] = high(x[k]);
}

/* The block's share of the matrix. */
struct share {
    int column, columns; /* of X */
    int panels, chunks;
    uint32_t under; /* from a chunk's upper halves to its lower ones, bytes */
    bool regular;
};

template <int MB>
__device__ __forceinline__ share share_of(const place &p, const pl_cuda_ns_task &t, const view &v, int room)
{
    share s;
    int all = (v.n + 63) / 64, each = (all + p.c - 1) / p.c, first = p.rank * each;
    s.panels = max(0, min(each, all - first));
    s.column = first * 64;
    s.columns = max(0, min(s.panels * 64, v.n - s.column));
    s.chunks = s.panels * 8 * shape<MB>::M;
    s.under = (uint32_t)(room * shape<MB>::PANEL);
    s.regular = v.m == shape<MB>::M && s.columns == 64 * s.panels;
    if (v.tall) return s;
    int g_width = t.g_bf16 ? 2 : 4, w_width = t.w_bf16 ? 2 : 4;
    s.regular =
        s.regular && aligned(v.G, (int64_t)t.g_rs * g_width) && aligned(v.W, (int64_t)t.w_rs * w_width);
    if (t.kind != PL_CUDA_NS_STEP) return s;
    s.regular = s.regular && aligned(v.M, (int64_t)t.m_rs * 4) && (!v.V || aligned(v.V, (int64_t)t.v_rs * 4));
    return s;
}

#endif
