/* cuda_mma.cuh -- a warp's own products, mma.sync m16n8k16 of bf16, and the 8 x 8 blocks of their fragments
 * in shared memory.
 *
 * Thread (g = lane / 4, t = lane % 4) has in d[2 h + i] row g + 8 h, column 2 t + i; in a[2 c + h] columns 8
 * c + 2 t and + 1 of row g + 8 h; in b0, b1 rows 2 t, 2 t + 1 and those + 8 of column g. So the sums of two
 * products side by side, rounded, are the factor a of another.
 */
#ifndef PL_CUDA_MMA_CUH
#define PL_CUDA_MMA_CUH

#include <stdint.h>

/* The 16-byte unit u (of 8) of row r of a panel (cuda_wgmma.cuh). */
__device__ __forceinline__ uint32_t unit_at(int r, int u)
{
    return (uint32_t)(r * 128 + ((u ^ (r & 7)) << 4));
}

__device__ __forceinline__ void matrices_load(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Each of the four transposed. */
__device__ __forceinline__ void matrices_load_trans(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void matrices_store(uint32_t at, const uint32_t r[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

__device__ __forceinline__ void matrices_store_trans(uint32_t at, const uint32_t r[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* What ordinary stores wrote is there for the tensor cores after this and a barrier. */
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* mma.sync m16n8k16, bf16 with sums in f32. */
__device__ __forceinline__ void mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
