/* cuda_ns_products.cuh -- the Newton-Schulz steps of a matrix in shared memory, by a thread block or a
 * cluster.
 *
 *     A = R(X X^T)    P = R(b A + c A A)    X = R(a X + P X)
 *
 * Blocks of a cluster have 64-column panels of X each, and all of A: partial X X^T go to their owners by
 * distributed shared memory, are added in rank order, rounded, and sent to all. Rows are padded to MB blocks
 * of 64 with zeros; warpgroup w works on rows 64 w .. 64 w + 63. Of the symmetric products only half is made:
 * tile (w, w), tile (w, w + 1) from three blocks on, and half a tile (i, i + MB / 2) where MB is even. Their
 * accumulators are counted in units of 16 columns: 8 floats a thread.
 *
 *     shared memory    control | X: panels of M rows x 128 bytes, swizzled | A, as X
 *     over A           partial sums of others, rounded units; in the prologue low halves of D
 */
#ifndef PL_CUDA_NS_PRODUCTS_CUH
#define PL_CUDA_NS_PRODUCTS_CUH

#include "cuda_ns_memory.cuh"
#include "cuda_ns_shared.cuh"
#include "cuda_wgmma.cuh"

template <int MB> struct shape {
    static const int THREADS = 128 * MB, M = 64 * MB, PANEL = M * 128;
    static const int OFF = MB >= 3 ? 4 : 0, HALF = MB % 2 == 0 ? 2 : 0, UNITS = 4 + OFF + HALF;
    static const int CHUNK = MB == 4 ? 2 : 4; /* panels of X whose products are in registers at a time */
};

struct place {
    int warpgroup, warp, lane; /* warp: within its warpgroup */
    int c, rank;               /* blocks that share the matrix */
    uint32_t control, x, a;    /* shared addresses */
};

/* Addresses are made anew from here on: kept in registers from one step to the next they would push out
 * accumulators. */
__device__ __forceinline__ void forget(place &p)
{
    asm volatile("" : "+r"(p.lane), "+r"(p.warp), "+r"(p.x), "+r"(p.a));
}

/* Accumulators are the asynchronous products' own from here on, or ours again: nothing of them is moved past
 * this. */
template <int N> __device__ __forceinline__ void hold(float *acc)
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(acc[i])::"memory");
}

template <int N, int TB, bool FIRST>
__device__ __forceinline__ void product_k16(float *acc, uint64_t a, uint64_t b)
{
    float(&d)[N / 2] = *(float(*)[N / 2]) acc;
    if (FIRST) pl_wgmma<N>::template first<TB>(d, a, b);
    else pl_wgmma<N>::template product<0, TB>(d, a, b, 1);
}

template <int MB, bool FIRST>
__device__ __forceinline__ void symmetric_k16(float *acc, uint32_t own, uint32_t next, uint32_t left,
                                              uint32_t right)
{
    uint64_t mine = pl_wgmma_desc(own, 0);
    float *half = acc + 32 + 8 * shape<MB>::OFF;
    product_k16<64, 0, FIRST>(acc, mine, mine);
    if (MB >= 3) product_k16<64, 0, FIRST>(acc + 32, mine, pl_wgmma_desc(next, 0));
    if (MB % 2 == 0) product_k16<32, 0, FIRST>(half, pl_wgmma_desc(left, 0), pl_wgmma_desc(right, 0));
}

/* The warpgroup's tiles of S S^T, S in panels along k. */
template <int MB>
__device__ __forceinline__ void symmetric_product(float *acc, const place &p, uint32_t s, int k16)
{
    const uint32_t panel = shape<MB>::PANEL, block = 64 * 128;
    const int w = p.warpgroup, pairs = MB / 2 ? MB / 2 : 1;
    uint32_t own = s + w * block, next = s + (w + 1) % MB * block;
    uint32_t left = s + w % pairs * block, right = s + (w % pairs + MB / 2) * block + w / pairs * 4096;
    if (k16 == 0) {
#pragma unroll
        for (int i = 0; i < 8 * shape<MB>::UNITS; i++) acc[i] = 0;
        return;
    }
    pl_wgmma_fence();
    symmetric_k16<MB, true>(acc, own, next, left, right);
#pragma unroll 1
    for (int i = 1; i < k16; i++) {
        uint32_t at = (uint32_t)(i >> 2) * panel + (uint32_t)(i & 3) * 32;
        symmetric_k16<MB, false>(acc, own + at, next + at, left + at, right + at);
    }
    pl_wgmma_commit();
    pl_wgmma_wait<0>();
    hold<8 * shape<MB>::UNITS>(acc);
}

/* Where unit u of the warpgroup's tiles lies in A: row block, column block, first 16 columns within it. */
template <int MB>
__device__ __forceinline__ void unit_place(const place &p, int u, int *row, int *col, int *sixteen)
{
    const int half_first = 4 + shape<MB>::OFF, pairs = MB / 2 ? MB / 2 : 1;
    *row = p.warpgroup;
    *col = u < 4 ? p.warpgroup : (p.warpgroup + 1) % MB;
    *sixteen = u % 4;
    if (MB % 2 == 0 && u >= half_first) {
        *row = p.warpgroup % pairs;
        *col = *row + MB / 2;
        *sixteen = p.warpgroup / pairs * 2 + u - half_first;
    }
}

/* A lane's share of the addresses of the four 8 x 8 matrices of a unit: rows 16 warp + (0 .. 15), 16 columns.
 */
template <int MB> __device__ __forceinline__ uint32_t unit_address(const place &p, int u)
{
    int row, col, sixteen, l = p.lane;
    unit_place<MB>(p, u, &row, &col, &sixteen);
    uint32_t tile = p.a + (uint32_t)(col * shape<MB>::PANEL + row * 64 * 128);
    return tile + unit_at(16 * p.warp + l % 16, 2 * sixteen + l / 16);
}

/* Writes the unit, and its transpose on the other side of the diagonal. */
template <int MB> __device__ __forceinline__ void unit_write(const place &p, int u, const uint32_t r[4])
{
    int row, col, sixteen, l = p.lane;
    unit_place<MB>(p, u, &row, &col, &sixteen);
    matrices_store(unit_address<MB>(p, u), r);
    if (u < 4) return;
    uint32_t tile = p.a + (uint32_t)(row * shape<MB>::PANEL + col * 64 * 128);
    matrices_store_trans(tile + unit_at(16 * sixteen + l / 16 * 8 + l % 8, 2 * p.warp + l / 8 % 2), r);
}

/* Partial sums to their owners, in rank order to one sum, rounded, to everybody: all units in r. The cluster
 * has arrived before. */
template <int MB>
__device__ __forceinline__ void exchange(uint32_t (&r)[shape<MB>::UNITS][4], float *acc, const place &p,
                                         const pl_ns_table &table)
{
    const int T = shape<MB>::THREADS, U = shape<MB>::UNITS, t = threadIdx.x;
    const int per = table.per_round, slots = (per + p.c - 1) / p.c;
    cluster_wait();
#pragma unroll 1
    for (int first = 0; first < U; first += per) {
        int owner = 0, slot = 0;
        uint32_t mine = p.a + 16u * (uint32_t)t;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (u < first || u >= first + per) continue;
            if (owner != p.rank) {
                int sender = p.rank < owner ? p.rank : p.rank - 1; /* the owner keeps no room for itself */
                uint32_t to = remote(mine + 32u * (uint32_t)((sender * slots + slot) * T), owner);
                store_16_remote(to, (const uint32_t *)(acc + 8 * u));
                store_16_remote(to + 16u * T, (const uint32_t *)(acc + 8 * u + 4));
            }
            if (++owner == p.c) owner = 0, slot++;
        }
        cluster_sync();
        owner = slot = 0;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (u < first || u >= first + per) continue;
            if (owner == p.rank) {
                float sum[8];
#pragma unroll
                for (int k = 0; k < 8; k++) sum[k] = 0;
#pragma unroll 1
                for (int q = 0; q < p.c; q++) {
                    float x[8];
                    /* q = rank reads something, and drops it */
                    int sender = q < p.rank ? q : max(q - 1, 0);
                    uint32_t from = mine + 32u * (uint32_t)((sender * slots + slot) * T);
                    load_16((uint32_t *)x, from);
                    load_16((uint32_t *)(x + 4), from + 16u * T);
#pragma unroll
                    for (int k = 0; k < 8; k++) sum[k] += q == p.rank ? acc[8 * u + k] : x[k];
                }
#pragma unroll
                for (int k = 0; k < 8; k++) acc[8 * u + k] = sum[k];
            }
            if (++owner == p.c) owner = 0, slot++;
        }
        if (table.overlay) cluster_sync();
    }
    int owner = 0, in_round = 0;
    uint32_t stage = p.a + (uint32_t)table.stage + 16u * (uint32_t)t;
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (owner == p.rank) {
            uint32_t h[4];
#pragma unroll
            for (int k = 0; k < 4; k++) h[k] = pack2(acc[8 * u + 2 * k], acc[8 * u + 2 * k + 1]);
#pragma unroll 1
            for (int q = 0; q < p.c; q++) store_16_remote(remote(stage + 16u * (uint32_t)(u * T), q), h);
        }
        if (++owner == p.c) owner = 0;
        if (++in_round == per) owner = in_round = 0;
    }
    cluster_sync();
#pragma unroll
    for (int u = 0; u < U; u++) load_16(r[u], stage + 16u * (uint32_t)(u * T));
    __syncthreads(); /* A may now be written over what arrived */
}

/* NP panels of X from x on: X = R(a X + P X). All warpgroups read all rows before one of them writes its own.
 */
template <int MB, int NP> __device__ __forceinline__ void update_panels(place p, uint32_t x, float a)
{
    const uint32_t panel = shape<MB>::PANEL, rows = p.a + p.warpgroup * 64 * 128;
    float acc[32 * NP];
    pl_wgmma_fence();
    product_k16<64 * NP, 1, true>(acc, pl_wgmma_desc(rows, 0), pl_wgmma_desc(x, panel));
#pragma unroll 1
    for (int s = 1; s < 4 * MB; s++) {
        uint32_t at = rows + (uint32_t)(s >> 2) * panel + (uint32_t)(s & 3) * 32;
        product_k16<64 * NP, 1, false>(acc, pl_wgmma_desc(at, 0),
                                       pl_wgmma_desc(x + (uint32_t)s * 2048, panel));
    }
    pl_wgmma_commit();
    pl_wgmma_wait<0>();
    hold<32 * NP>(acc);
    __syncthreads();
    forget(p);
#pragma unroll
    for (int u = 0; u < 4 * NP; u++) {
        int row = 64 * p.warpgroup + 16 * p.warp + p.lane % 16;
        uint32_t r[4], at = x + (uint32_t)(u / 4) * panel + unit_at(row, 2 * (u % 4) + p.lane / 16);
        matrices_load(r, at);
#pragma unroll
        for (int k = 0; k < 4; k++) r[k] = epilogue2(acc[8 * u + 2 * k], acc[8 * u + 2 * k + 1], 1, a, r[k]);
        matrices_store(at, r);
    }
}

/* A, then P in its place: every warpgroup's tiles. */
template <int MB>
__device__ __forceinline__ void polynomial(place p, const pl_ns_table &table, const float *coef, int k16)
{
    const int U = shape<MB>::UNITS;
    float acc[8 * U];
    uint32_t r[U][4];
    symmetric_product<MB>(acc, p, p.x, k16);
    forget(p);
    if (p.c > 1) exchange<MB>(r, acc, p, table);
    else {
#pragma unroll
        for (int i = 0; i < 4 * U; i++) r[i / 4][i % 4] = pack2(acc[2 * i], acc[2 * i + 1]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) unit_write<MB>(p, u, r[u]);
    fence_async();
    __syncthreads();
    forget(p);
    symmetric_product<MB>(acc, p, p.a, 4 * MB);
    forget(p);
#pragma unroll
    for (int u = 0; u < U; u++) {
        matrices_load(r[u], unit_address<MB>(p, u));
#pragma unroll
        for (int k = 0; k < 4; k++)
            r[u][k] = epilogue2(acc[8 * u + 2 * k], acc[8 * u + 2 * k + 1], coef[2], coef[1], r[u][k]);
    }
    __syncthreads();
    forget(p);
#pragma unroll
    for (int u = 0; u < U; u++) unit_write<MB>(p, u, r[u]);
    fence_async();
    __syncthreads();
}

/* X is there for the tensor cores, and where the matrix is split the cluster has arrived. */
template <int MB>
__device__ __forceinline__ void newton_schulz(place p, const pl_ns_table &table, int panels, int k16)
{
    const int CHUNK = shape<MB>::CHUNK;
#pragma unroll 1
    for (int step = 0; step < table.steps; step++) {
        const float *coef = table.coef + 3 * step;
        forget(p);
        polynomial<MB>(p, table, coef, k16);
#pragma unroll 1
        for (int first = 0; first < panels; first += CHUNK) {
            forget(p);
            uint32_t x = p.x + (uint32_t)first * shape<MB>::PANEL;
            int np = min(CHUNK, panels - first);
            if (CHUNK > 3 && np == 4) update_panels<MB, CHUNK >= 4 ? 4 : 1>(p, x, coef[0]);
            else if (CHUNK > 2 && np == 3) update_panels<MB, CHUNK >= 3 ? 3 : 1>(p, x, coef[0]);
            else if (CHUNK > 1 && np == 2) update_panels<MB, CHUNK >= 2 ? 2 : 1>(p, x, coef[0]);
            else update_panels<MB, 1>(p, x, coef[0]);
        }
        fence_async();
        if (p.c > 1 && step + 1 < table.steps) {
            if (panels == 0) __syncthreads();
            cluster_arrive(); /* others may write over P here */
        }
        __syncthreads();
    }
}

#endif
