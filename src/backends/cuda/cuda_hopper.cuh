/* cuda_hopper.cuh -- Hopper's own instructions, one function each: mbarriers, bulk tensor loads;
 * wgmma is in cuda_wgmma.cuh.
 *
 * PL_HOPPER_WATCH makes a wait that lasts over half a second trap, so that a mistake costs a moment and not
 * the machine.
 */
#ifndef PL_CUDA_HOPPER_CUH
#define PL_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#include "cuda_wgmma.cuh"

__device__ __forceinline__ uint32_t pl_smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- mbarriers ---------------------------------------------------------------------------------- */

__device__ __forceinline__ void pl_mbar_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void pl_mbar_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void pl_mbar_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void pl_mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ int pl_mbar_try(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
    return (int)done;
}

/* The same without waiting at all. */
__device__ __forceinline__ int pl_mbar_test(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
    return (int)done;
}

template <int (*TRY)(uint32_t, uint32_t)>
__device__ __forceinline__ void pl_mbar_until(uint32_t bar, uint32_t parity)
{
#ifdef PL_HOPPER_WATCH
    if (TRY(bar, parity)) return;
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    while (!TRY(bar, parity)) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > 500000000ull) __trap();
    }
#else
    while (!TRY(bar, parity)) {
    }
#endif
}

__device__ __forceinline__ void pl_mbar_wait(uint32_t bar, uint32_t parity)
{
    pl_mbar_until<pl_mbar_try>(bar, parity);
}

/* At a barrier of another block of the cluster (an address of mapa): this thread has read what it had to
 * read. What it wrote is not told by this: `.release.cluster` would, and waits for every store of the thread
 * that is on its way to memory (MEMBAR.ALL.GPU). */
__device__ __forceinline__ void pl_mbar_arrive_remote(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* As pl_mbar_try, of a barrier at which other blocks of the cluster arrive: what they wrote is there. */
__device__ __forceinline__ int pl_mbar_try_cluster(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], "
                 "%2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return (int)done;
}

__device__ __forceinline__ void pl_mbar_wait_cluster(uint32_t bar, uint32_t parity)
{
    pl_mbar_until<pl_mbar_try_cluster>(bar, parity);
}

/* A ring of stages in shared memory: where they begin, and their barriers, 8 bytes each. */
struct pl_ring {
    uint32_t stages, full, empty;
};

/* ---- bulk tensor loads -------------------------------------------------------------------------- */

__device__ __forceinline__ void pl_tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void pl_tma_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y,
                                            int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void pl_tma_load4(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y,
                                             int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* ---- bulk tensor stores: groups of the thread that issues them ----------------------------------- */

__device__ __forceinline__ void pl_tma_store(const CUtensorMap *map, uint32_t from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void pl_bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all but the last LEFT groups have read shared memory. */
template <int LEFT> __device__ __forceinline__ void pl_bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* Until all groups have been written. */
__device__ __forceinline__ void pl_bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* What this thread wrote to shared memory before is there for the copy engine after. */
__device__ __forceinline__ void pl_async_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers ---------------------------------------------------------------------------------- */

template <int N> __device__ __forceinline__ void pl_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void pl_registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- blocks, kernels ---------------------------------------------------------------------------- */

/* Among the 128 threads of a warpgroup. */
__device__ __forceinline__ void pl_group_sync(int id)
{
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

/* Waits for the kernels this one depends on, and lets the next one be placed. */
__device__ __forceinline__ void pl_kernel_begin(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- shared memory ------------------------------------------------------------------------------ */

__device__ __forceinline__ void pl_copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void pl_copy_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ uint32_t pl_lds(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

__device__ __forceinline__ void pl_sts(uint32_t at, uint32_t v)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}

__device__ __forceinline__ uint4 pl_lds16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/* To another block of the cluster, counted at its barrier `bar` as bytes that have come (addresses of mapa).
 */
__device__ __forceinline__ void pl_sts_counted(uint32_t at, float v, uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at),
                 "f"(v), "r"(bar)
                 : "memory");
}

__device__ __forceinline__ void pl_sts4_counted(uint32_t at, const float *v, uint32_t bar)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            at),
        "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(bar)
        : "memory");
}

__device__ __forceinline__ float4 pl_lds4(uint32_t at)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/* Four 8 x 8 blocks, each stored transposed. */
__device__ __forceinline__ void pl_stm4_trans(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

#endif
