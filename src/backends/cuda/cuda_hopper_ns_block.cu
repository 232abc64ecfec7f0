/* cuda_hopper_ns_block.cu -- Newton-Schulz of matrices with a short side of at most 256: a thread block, or a
 * cluster of them, has a matrix from end to end.
 *
 *     prologue    D = direction(M, V, G), its norm, X = R(D / norm) in shared memory
 *     steps       cuda_ns_products.cuh
 *     epilogue    W, or W stepped by X; of rules with more stages cuda_ns_stages.cuh
 *
 * Where all entries are inside and aligned (regular) a thread has several chunks' loads under way at a time
 * (cuda_ns_chunks.cuh).
 */
#include "cuda_ns_stages.cuh"

/* ---- prologue ----------------------------------------------------------------------------------- */

/* D into shared memory, split by bits: upper halves in X's place, lower halves `under` bytes on. */
__device__ __forceinline__ void keep(const float d[8], uint32_t at, uint32_t under, bool halves)
{
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a = __float_as_uint(d[2 * k]), b = __float_as_uint(d[2 * k + 1]);
        hi[k] = __byte_perm(a, b, 0x7632);
        lo[k] = __byte_perm(a, b, 0x5410);
    }
    store_16(at, hi);
    if (halves) store_16(at + under, lo);
}

template <int MB>
__device__ __forceinline__ void direction_edge(const place &p, const pl_cuda_ns_task &t, const view &v,
                                               const share &s)
{
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += shape<MB>::THREADS) {
        int i, group;
        float g[8], m[8], w[8];
        chunk_place<MB>(q, v.tall, &i, &group);
        int j = s.column + 8 * group;
        edge in = edge_of(v, i, j, t.g_rs);
        load_edge(g, v.G, t.g_bf16, in);
        if (t.kind == PL_CUDA_NS_STEP) {
            edge em = edge_of(v, i, j, t.m_rs), ev = edge_of(v, i, j, t.v_rs);
            load_edge(m, v.M, 0, em);
            if (v.V) load_edge(w, v.V, 0, ev);
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (k < in.count) g[k] = direction_of(g[k], &m[k], &w[k], t, v.k);
            store_edge(v.M, m, em);
            if (v.V) store_edge(v.V, w, ev);
        }
        keep(g, p.x + chunk_at<MB>(i, group), s.under, t.kind != PL_CUDA_NS_ITERATE);
    }
}

/* MAP and ITERATE: four chunks' loads at a time; a thread has 4 x panels of them. */
template <int MB, bool TALL, typename GRAD>
__device__ __forceinline__ void read_regular(const place &p, const pl_cuda_ns_task &t, const view &v,
                                             const share &s)
{
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += 4 * shape<MB>::THREADS) {
        float g[4][8];
        int i[4], group[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            chunk_place<MB>(q + k * shape<MB>::THREADS, TALL, &i[k], &group[k]);
            load_8<TALL>(g[k], (const GRAD *)v.G, i[k], s.column + 8 * group[k], t.g_rs);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            keep(g[k], p.x + chunk_at<MB>(i[k], group[k]), s.under, t.kind != PL_CUDA_NS_ITERATE);
    }
}

/* A chunk's lines of memory on their way to the second cache: a warp's chunks are 8 lines of f32. */
template <bool TALL, typename T> __device__ __forceinline__ void prefetch_8(const T *p, int i, int j, int rs)
{
    const T *at = TALL ? p + (j + threadIdx.x % 8) * rs + i / 32 * 32 : p + i * rs + j;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

#define STEP_AHEAD 4 /* chunks */

template <int MB, bool TALL, typename GRAD> struct operands {
    float g[8], m[8], w[8];
    int i, group;
    static __device__ __forceinline__ void ask(int q, const pl_cuda_ns_task &t, const view &v, const share &s)
    {
        int i, group;
        if (q >= s.chunks) return;
        chunk_place<MB>(q, TALL, &i, &group);
        int j = s.column + 8 * group;
        prefetch_8<TALL>((const GRAD *)v.G, i, j, t.g_rs);
        prefetch_8<TALL>(v.M, i, j, t.m_rs);
        if (v.V) prefetch_8<TALL>(v.V, i, j, t.v_rs);
    }
    __device__ __forceinline__ void load(int q, const pl_cuda_ns_task &t, const view &v, const share &s)
    {
        chunk_place<MB>(q, TALL, &i, &group);
        int j = s.column + 8 * group;
        load_8<TALL>(g, (const GRAD *)v.G, i, j, t.g_rs);
        load_8<TALL>(m, v.M, i, j, t.m_rs);
        if (v.V) load_8<TALL>(w, v.V, i, j, t.v_rs);
    }
    __device__ __forceinline__ void use(const place &p, const pl_cuda_ns_task &t, const view &v,
                                        const share &s)
    {
        int j = s.column + 8 * group;
#pragma unroll
        for (int k = 0; k < 8; k++) g[k] = direction_of(g[k], &m[k], &w[k], t, v.k);
        store_8<TALL>(v.M, i, j, t.m_rs, m);
        if (v.V) store_8<TALL>(v.V, i, j, t.v_rs, w);
        keep(g, p.x + chunk_at<MB>(i, group), s.under, true);
    }
};

/* STEP: the next chunk's loads are under way while one is used, later ones are asked for; a thread has an
 * even number of chunks. */
template <int MB, bool TALL, typename GRAD>
__device__ __forceinline__ void direction_regular(const place &p, const pl_cuda_ns_task &t, const view &v,
                                                  const share &s)
{
    const int T = shape<MB>::THREADS;
    operands<MB, TALL, GRAD> a, b;
    if (s.chunks == 0) return;
    a.load(threadIdx.x, t, v, s);
#pragma unroll 1
    for (int k = 1; k < STEP_AHEAD; k++) a.ask(threadIdx.x + k * T, t, v, s);
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += 2 * T) {
        a.ask(q + STEP_AHEAD * T, t, v, s);
        a.ask(q + (STEP_AHEAD + 1) * T, t, v, s);
        b.load(q + T, t, v, s);
        a.use(p, t, v, s);
        a.load(q + 2 * T < s.chunks ? q + 2 * T : q, t, v, s); /* the last one, its own again, is of no use */
        b.use(p, t, v, s);
    }
}

template <int MB, bool TALL, typename GRAD>
__device__ __forceinline__ void prologue_regular(const place &p, const pl_cuda_ns_task &t, const view &v,
                                                 const share &s)
{
    if (t.kind == PL_CUDA_NS_STEP) direction_regular<MB, TALL, GRAD>(p, t, v, s);
    else read_regular<MB, TALL, GRAD>(p, t, v, s);
}

template <int MB>
__device__ __forceinline__ void prologue(const place &p, const pl_cuda_ns_task &t, const view &v,
                                         const share &s)
{
    if (!s.regular) direction_edge<MB>(p, t, v, s);
    else if (v.tall && t.g_bf16) prologue_regular<MB, true, pl_bf16>(p, t, v, s);
    else if (v.tall) prologue_regular<MB, true, float>(p, t, v, s);
    else if (t.g_bf16) prologue_regular<MB, false, pl_bf16>(p, t, v, s);
    else prologue_regular<MB, false, float>(p, t, v, s);
}

/* Unit `at` of D. */
__device__ __forceinline__ void unit_of_d(float d[8], uint32_t x, uint32_t under, int at)
{
    uint32_t hi[4], lo[4];
    load_16(hi, x + at);
    load_16(lo, x + under + at);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        d[2 * k] = __uint_as_float(__byte_perm(lo[k], hi[k], 0x5410));
        d[2 * k + 1] = __uint_as_float(__byte_perm(lo[k], hi[k], 0x7632));
    }
}

/* A sum of squares, which a double holds without scaling, and the largest magnitude. */
struct extent {
    double sum;
    float top;
};

/* Of a thread's units of D as they lie in X, so that a matrix and its transpose have the same norm. */
__device__ __forceinline__ extent extent_of(uint32_t x, uint32_t under, int bytes, int threads)
{
    extent e = {0, 0};
#pragma unroll 2
    for (int at = 16 * threadIdx.x; at < bytes; at += 16 * threads) {
        float d[8];
        unit_of_d(d, x, under, at);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            e.sum += (double)d[k] * (double)d[k];
            e.top = fmaxf(e.top, fabsf(d[k])); /* a NaN is passed over: the sum has it */
        }
    }
    return e;
}

/* The whole matrix's norm: lanes, warps, ranks, always in this order. */
template <int MB>
__device__ __forceinline__ void norm_of(float *s, float *n, extent e, const place &p, const double *given,
                                        float eps)
{
    const int WARPS = 4 * MB;
    double *sums = (double *)__cvta_shared_to_generic(p.control), *all = sums + 32;
    float *tops = (float *)(sums + 16), *all_tops = (float *)(all + PL_NS_RANKS);
    double sum = e.sum;
    float top = e.top;
    for (int half = 16; half > 0; half /= 2) {
        sum += __shfl_xor_sync(PL_NS_FULL, sum, half);
        top = fmaxf(top, __shfl_xor_sync(PL_NS_FULL, top, half));
    }
    if (p.lane == 0) sums[threadIdx.x / 32] = sum, tops[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x < (unsigned)p.c) {
        sum = 0, top = 0;
        for (int i = 0; i < WARPS; i++) sum += sums[i], top = fmaxf(top, tops[i]);
        uint32_t to = shared_address(all + p.rank), to_top = shared_address(all_tops + p.rank);
        if (p.c > 1) {
            to = remote(to, threadIdx.x), to_top = remote(to_top, threadIdx.x);
            asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(to), "d"(sum) : "memory");
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to_top), "f"(top) : "memory");
        } else all[0] = sum, all_tops[0] = top;
    }
    if (p.c > 1) cluster_sync();
    __syncthreads();
    sum = 0, top = 0;
#pragma unroll 1
    for (int q = 0; q < p.c; q++) {
        sum += ((volatile double *)all)[q];
        top = fmaxf(top, ((volatile float *)all_tops)[q]);
    }
    norm_from(s, n, sum, top, given, eps);
}

/* X = R(D / norm), unit by unit wherever it lies. */
__device__ __forceinline__ void normalise(uint32_t x, uint32_t under, int bytes, const divisor &by,
                                          int threads)
{
#pragma unroll 2
    for (int at = 16 * threadIdx.x; at < bytes; at += 16 * threads) {
        float d[8];
        uint32_t r[4];
        unit_of_d(d, x, under, at);
        normalise_8(r, d, by);
        store_16(x + at, r);
    }
}

/* ---- epilogue ----------------------------------------------------------------------------------- */

/* W's lines on their way to the second cache while the products run. */
template <int MB>
__device__ __forceinline__ void prefetch_w(const pl_cuda_ns_task &t, const view &v, const share &s)
{
    int rows = v.tall ? s.columns : v.m, cols = v.tall ? v.m : s.columns, lines = (cols + 31) / 32;
    const float *w = (const float *)v.W + (v.tall ? s.column * t.w_rs : s.column);
    for (int q = threadIdx.x; q < rows * lines; q += shape<MB>::THREADS)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + q / lines * t.w_rs + q % lines * 32));
}

template <int MB>
__device__ __forceinline__ void finish_edge(const place &p, const pl_cuda_ns_task &t, const view &v,
                                            const share &s)
{
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += shape<MB>::THREADS) {
        int i, group;
        uint32_t x[4];
        float w[8], d[8];
        chunk_place<MB>(q, v.tall, &i, &group);
        edge e = edge_of(v, i, s.column + 8 * group, t.w_rs);
        if (t.kind == PL_CUDA_NS_STEP) load_edge(w, v.W, 0, e);
        load_16(x, p.x + chunk_at<MB>(i, group));
        unpack(d, x);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (k >= e.count) continue;
            if (t.kind == PL_CUDA_NS_STEP) d[k] = stepped(w[k], d[k], v.k, (float)t.scale);
            if (t.w_bf16) ((pl_bf16 *)v.W)[e.at + k * e.by] = (pl_bf16)(x[k / 2] >> (k % 2 * 16));
            else ((float *)v.W)[e.at + k * e.by] = d[k];
        }
    }
}

template <int MB, bool TALL>
__device__ __forceinline__ void finish_regular(const place &p, const pl_cuda_ns_task &t, const view &v,
                                               const share &s)
{
    /* chunks at a time: more of them spill, of the steps' registers above all */
    const int SOME = MB == 4 ? 1 : 2;
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += SOME * shape<MB>::THREADS) {
        float w[SOME][8];
        int i[SOME], group[SOME];
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            chunk_place<MB>(q + c * shape<MB>::THREADS, TALL, &i[c], &group[c]);
            int j = s.column + 8 * group[c];
            if (t.kind == PL_CUDA_NS_STEP) load_8<TALL>(w[c], (const float *)v.W, i[c], j, t.w_rs);
        }
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            uint32_t x[4];
            float d[8];
            int j = s.column + 8 * group[c];
            load_16(x, p.x + chunk_at<MB>(i[c], group[c]));
            unpack(d, x);
            if (t.kind == PL_CUDA_NS_STEP) {
#pragma unroll
                for (int k = 0; k < 8; k++) d[k] = stepped(w[c][k], d[k], v.k, (float)t.scale);
            }
            if (t.w_bf16) store_8<TALL>((pl_bf16 *)v.W, i[c], j, t.w_rs, x);
            else store_8<TALL>((float *)v.W, i[c], j, t.w_rs, d);
        }
    }
}

/* ---- the kernel --------------------------------------------------------------------------------- */

template <int MB, bool STAGES>
__global__ void __launch_bounds__(128 * MB, 1) block_kernel(const __grid_constant__ pl_ns_table table)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t size, rank;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    int cluster = blockIdx.x / size, split = cluster < table.clusters, index = cluster;
    if (!split) index = table.clusters + (cluster - table.clusters) * (int)size + (int)rank;
    if (index >= table.matrices) return;
    const pl_cuda_ns_task &t = table.task[task_of(table, index)];
    if (is_skipped(t, index - t.first)) return; /* all blocks of the matrix */
    place p;
    p.warpgroup = threadIdx.x / 128, p.warp = threadIdx.x / 32 % 4, p.lane = threadIdx.x % 32;
    p.c = split ? (int)size : 1, p.rank = split ? (int)rank : 0;
    p.control = shared_address(memory);
    p.x = p.control + PL_NS_CONTROL;
    p.a = p.x + (uint32_t)(table.panels * shape<MB>::PANEL);
    if (p.c > 1) cluster_arrive();
    view v = view_of(t, index - t.first);
    share s = share_of<MB>(p, t, v, table.panels);
    prologue<MB>(p, t, v, s);
    if (t.kind == PL_CUDA_NS_STEP) prefetch_w<MB>(t, v, s);
    if (p.c > 1) cluster_wait(); /* everybody has begun */
    if (t.kind != PL_CUDA_NS_ITERATE) {
        const int bytes = s.panels * shape<MB>::PANEL, T = shape<MB>::THREADS;
        float scale, norm;
        __syncthreads();
        extent e = extent_of(p.x, s.under, bytes, T);
        norm_of<MB>(&scale, &norm, e, p, v.N, t.eps);
        normalise(p.x, s.under, bytes, divisor_of(scale, norm), T);
    }
    fence_async();
    if (p.c > 1 && table.steps > 0) cluster_arrive();
    __syncthreads();
    newton_schulz<MB>(p, table, s.panels, (s.columns + 15) / 16);
    asm volatile("" : "+r"(index)); /* nothing of the view is kept in registers through the steps */
    const pl_cuda_ns_task &again = table.task[task_of(table, index)];
    v = view_of(again, index - again.first);
    s = share_of<MB>(p, again, v, table.panels);
    if constexpr (STAGES) finish_stages<MB>(p, again, index - again.first, v, s);
    else if (!s.regular) finish_edge<MB>(p, again, v, s);
    else if (v.tall) finish_regular<MB, true>(p, again, v, s);
    else finish_regular<MB, false>(p, again, v, s);
}

template <bool STAGES> static const void *kernel_of(int mb)
{
    static const void *const kernels[PL_NS_MAX_MB] = {
        (const void *)block_kernel<1, STAGES>,
        (const void *)block_kernel<2, STAGES>,
        (const void *)block_kernel<3, STAGES>,
        (const void *)block_kernel<4, STAGES>,
    };
    return kernels[mb - 1];
}

const void *pl_ns_block_kernel(int mb, int stages)
{
    return stages ? kernel_of<true>(mb) : kernel_of<false>(mb);
}
