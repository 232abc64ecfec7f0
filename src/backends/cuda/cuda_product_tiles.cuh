/* cuda_product_tiles.cuh -- how a block makes tiles of C = alpha op(A) op(B)^T + beta D (cuda_products.h).
 *
 * A block is two consumer warpgroups of 64 x WIDTH results each and, in the first warpgroup, a producer that
 * asks for factors and a carrier for each consumer, which asks for D and sends results away. Everything in
 * shared memory is a box of 64 rows of 128 bytes, swizzled as the copy engine and wgmma want it: a stage has
 * two boxes of A and WIDTH / 64 of B, 64 k of them; each consumer has WIDTH / 64 boxes of C, in which D
 * arrives and from which results leave, direct ones and then, of symmetric products, the mirrored ones.
 *
 * The producer's loop over k decides the rate of narrow tiles: a copy takes its operands from uniform
 * registers, so all that it is told is the same for the warp (of_first) and read before the loop.
 *
 * Barriers: full[s] completes when a stage has come, empty[s] when both consumers are through with it. A tile
 * stands in one of two slots: known[i] when it does, taken[i] when consumers and carriers have read it; a
 * slot without a phase ends the block. Of consumer g's boxes: come[g], D is there; ready[g][h], half h of the
 * results is; drained[g], half of them have left and the mirrored ones may come; freed[g], all have left.
 * Nobody comes twice to a barrier before who waits there has seen the first time, so one parity tells: both
 * halves may be ready before the carrier looks, hence a barrier each.
 *
 * Of shared memory 128 columns cost 80 KB a stage (tensor cores read 48, the copy engine writes 32), which at
 * 128 bytes a cycle is 640 cycles for 512 of the tensor cores; 256 columns 128 KB, 1024 cycles for 1024. So
 * wide tiles are the fast ones, and narrow ones are for what would not fill the multiprocessors.
 *
 * The end of a tile is spread over the next one's products (cuda_product_sums.cuh), so a block whose next
 * tile waits for results must not keep its own: a tile is told with a mark, late, when what it needs is not
 * written yet, and who finds it makes an end of the one before first.
 *
 * Several products: tiles are taken from a ticket counter in the order of the phases, so that everything a
 * tile waits for was taken before by a block that runs: no block waits for one that has not started. When a
 * tile's last results are written its carriers add one each to its matrix's counter; a tile of the next phase
 * is loaded when that counter says that all tiles before are written. The last carrier to leave sets the
 * counters back.
 */
#ifndef PL_CUDA_PRODUCT_TILES_CUH
#define PL_CUDA_PRODUCT_TILES_CUH

#include "cuda_products.h"

#include "cuda_tiles.cuh"

#define ROWS       128 /* of a block's tile */
#define DEPTH      64  /* k of a stage */
#define BOX        8192
#define THREADS    384
#define GROUP      8 /* rows of tiles walked together */
#define STAGES_MAX 8
#define CONTROL    (16 * STAGES_MAX + 7 * 16 + 2 * 16) /* barriers of the ring, seven pairs, two slots */

typedef struct {
    int end;         /* tickets of this phase and all before it */
    int tiles, rows; /* of one matrix: tiles, rows of tiles */
    int m, n, k_blocks;
    uint32_t need;      /* the matrix's counter when all phases before have been written */
    uint8_t c, a, b, d; /* places in map */
    uint8_t e;          /* a place in base */
    uint8_t ta, tb, sym;
    uint8_t out; /* results go there, not to C */
    float alpha, beta, gamma;
} phase;

/* How an array is copied: as A or B, 128 or WIDTH lines of 64 k at once, its lines standing (rows) or lying
 * (panels of 64 columns); in single boxes, as C and D. One copy a factor and stage: a thread takes 0.13 us to
 * ask for one. */
enum role { A_ROWS, A_PANELS, B_ROWS, B_PANELS, AS_BOX, ROLES };

#define MAPS_OF_LIST (PL_CUDA_PRODUCTS_ARRAYS * ROLES)

/* N: of how many products at most. A launch takes the longer the more its parameters are, 8 KB 1.6 us longer
 * than a fourth of that, so a single product has a form of its own. */
template <int N> struct list_params {
    CUtensorMap map[N == 1 ? 4 : MAPS_OF_LIST];
    phase of[N];
    int total, batch;
    const void *base[N == 1 ? 1 : PL_CUDA_PRODUCTS_ARRAYS]; /* second addends, once more */
    int64_t ld[N == 1 ? 1 : PL_CUDA_PRODUCTS_ARRAYS], bs[N == 1 ? 1 : PL_CUDA_PRODUCTS_ARRAYS];
    const float *wide;
    int64_t ldw, bsw;
    float *out;
    int64_t ldo, bso;
    uint32_t *counters; /* tickets taken, carriers gone, then one a matrix */
};

template <int WIDTH> struct shape {
    static constexpr int PARTS = WIDTH / 64, STAGE = (2 + PARTS) * BOX, BOXES = 2 * PARTS * BOX;
    static constexpr int FIT = (SMEM_LIMIT - 1024 - CONTROL - BOXES) / STAGE;
    static constexpr int STAGES = FIT > STAGES_MAX ? STAGES_MAX : FIT;
    static constexpr int BYTES = 1024 + STAGES * STAGE + BOXES + CONTROL;
    static_assert(WIDTH % 64 == 0 && STAGES >= 3);
};

struct places {
    uint32_t stages, boxes, full, empty, come, ready, drained, freed, known, taken, slots;
};

/* ---- tiles -------------------------------------------------------------------------------------- */

typedef struct {
    int phase, matrix, row, column; /* phase < 0: no more */
    int late;                       /* what it needs was not written when it was told */
} tile;

/* Tiles of row i of tiles; of a symmetric product they begin at the diagonal. */
template <int WIDTH> __host__ __device__ __forceinline__ int columns_of(int n, int sym, int i)
{
    return (n - (sym ? i * ROWS : 0) + WIDTH - 1) / WIDTH;
}

/* Tile t of a matrix: groups of rows of tiles one after the other, each column by column as far as all its
 * rows go, for L2's sake. */
template <int WIDTH> __device__ __forceinline__ tile tile_at(const phase &f, int t)
{
    tile r;
    int i = 0, j = 0;
    for (;; i += GROUP) {
        int last = min(i + GROUP, f.rows), all = 0;
        for (int s = i; s < last; s++) all += columns_of<WIDTH>(f.n, f.sym, s);
        if (t < all) break;
        t -= all;
    }
    int height = min(GROUP, f.rows - i), common = columns_of<WIDTH>(f.n, f.sym, i + height - 1);
    if (t < common * height) {
        j = t / height;
        i += t - j * height;
    } else {
        t -= common * height;
        for (;; i++) {
            int more = columns_of<WIDTH>(f.n, f.sym, i) - common;
            if (t < more) break;
            t -= more;
        }
        j = common + t;
    }
    r.row = i * ROWS;
    r.column = (f.sym ? r.row : 0) + j * WIDTH;
    return r;
}

/* ---- counters ----------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t counter_read(const uint32_t *c)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(c) : "memory");
    return v;
}

/* Until everything that a phase needs of a matrix is written. */
__device__ __forceinline__ void counter_wait(const uint32_t *c, uint32_t need)
{
#ifdef PL_HOPPER_WATCH
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    while (counter_read(c) < need) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > 500000000ull) __trap();
    }
#else
    while (counter_read(c) < need) {
    }
#endif
}

/* What the copy engine has written for this thread is there for who reads the counter. */
__device__ __forceinline__ void counter_add(uint32_t *c)
{
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(c) : "memory");
}

/* ---- slots -------------------------------------------------------------------------------------- */

__device__ __forceinline__ void slot_put(uint32_t at, tile t)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(2 * t.phase + t.late),
                 "r"(t.matrix), "r"(t.row), "r"(t.column)
                 : "memory");
}

__device__ __forceinline__ tile slot_get(uint32_t at)
{
    uint4 v = pl_lds16(at);
    return {(int)v.x >> 1, (int)v.y, (int)v.z, (int)v.w, (int)v.x & 1};
}

/* Which slot a tile stands in: one after the other, the other way round every second time. */
struct turn {
    int slot;
    uint32_t parity;
};

__device__ __forceinline__ void turn_on(turn &t)
{
    t.slot ^= 1;
    if (!t.slot) t.parity ^= 1;
}

/* ---- producer ----------------------------------------------------------------------------------- */

/* A value that is lane 0's for the whole warp, and known to be. */
__device__ __forceinline__ int of_first(int v)
{
    return __shfl_sync(0xFFFFFFFFu, v, 0);
}

/* The ring as the producer sees it. */
struct filler {
    int s;
    uint32_t parity;
};

/* A tile's factors, 64 k at a time; one lane's. The next ticket is asked for while the last stages are: what
 * comes back is the ticket. */
template <int WIDTH, int TA, int TB, int N>
__device__ __forceinline__ int load_tile(const list_params<N> &p, const places &at, filler &ring,
                                         const CUtensorMap *a, const CUtensorMap *b, tile t, int k_blocks)
{
    using S = shape<WIDTH>;
    const int ask_at = max(k_blocks - 3, 0);
    int ticket = 0;
    for (int kb = 0; kb < k_blocks; kb++) {
        uint32_t bar = at.full + 8 * ring.s, to = at.stages + (uint32_t)(ring.s * S::STAGE);
        pl_mbar_wait(at.empty + 8 * ring.s, ring.parity);
        pl_mbar_expect(bar, S::STAGE);
        if (TA) pl_tma_load4(to, a, bar, 0, kb * DEPTH, t.row / 64, t.matrix);
        else pl_tma_load(to, a, bar, kb * DEPTH, t.row, t.matrix);
        if (TB) pl_tma_load4(to + 2 * BOX, b, bar, 0, kb * DEPTH, t.column / 64, t.matrix);
        else pl_tma_load(to + 2 * BOX, b, bar, kb * DEPTH, t.column, t.matrix);
        if (kb == ask_at && p.counters) ticket = (int)atomicAdd(p.counters, 1u);
        if (++ring.s == S::STAGES) ring.s = 0, ring.parity ^= 1;
    }
    return ticket;
}

/* The producer's warp. */
template <int WIDTH, int N> __device__ __forceinline__ void produce(const list_params<N> &p, const places &at)
{
    const int first = threadIdx.x == 0;
    filler ring = {0, 1}; /* of fresh barriers the phase before the first counts as over */
    turn now = {0, 1};
    int begin = 0, ticket = (int)blockIdx.x; /* begin: the first ticket of the phase */
    tile t = {0, 0, 0, 0, 0};
    if (p.counters) ticket = of_first(first ? (int)atomicAdd(p.counters, 1u) : 0);
    while (ticket < p.total) {
        while (ticket >= p.of[t.phase].end) begin = p.of[t.phase++].end;
        const phase &f = p.of[t.phase];
        const int matrix = (ticket - begin) / f.tiles, k_blocks = f.k_blocks, form = f.ta + f.tb;
        const tile place = tile_at<WIDTH>(f, ticket - begin - matrix * f.tiles);
        const CUtensorMap *a = &p.map[f.a], *b = &p.map[f.b];
        t.matrix = matrix, t.row = place.row, t.column = place.column;
        int next = 0;
        if (first) {
            t.late = f.need && counter_read(p.counters + 2 + matrix) < f.need;
            pl_mbar_wait(at.taken + 8 * now.slot, now.parity);
            slot_put(at.slots + 16 * now.slot, t);
            pl_mbar_arrive(at.known + 8 * now.slot);
            if (t.late) counter_wait(p.counters + 2 + matrix, f.need);
            if (f.need)
                asm volatile("fence.proxy.async;" ::: "memory"); /* the copy engine sees what that says */
            next = form == 0   ? load_tile<WIDTH, 0, 0>(p, at, ring, a, b, t, k_blocks)
                   : form == 1 ? load_tile<WIDTH, 0, 1>(p, at, ring, a, b, t, k_blocks)
                               : load_tile<WIDTH, 1, 1>(p, at, ring, a, b, t, k_blocks);
        }
        __syncwarp();
        turn_on(now);
        ticket = p.counters ? of_first(next) : ticket + (int)gridDim.x;
    }
    if (!first) return;
    pl_mbar_wait(at.taken + 8 * now.slot, now.parity);
    slot_put(at.slots + 16 * now.slot, {-1, 0, 0, 0, 0});
    pl_mbar_arrive(at.known + 8 * now.slot);
}

/* ---- carriers ----------------------------------------------------------------------------------- */

/* Half of the boxes, as each store of the copy engine takes it. */
template <int WIDTH> constexpr int HALF = (shape<WIDTH>::PARTS + 1) / 2;
template <int WIDTH> constexpr int HALVES = shape<WIDTH>::PARTS > HALF<WIDTH> ? 2 : 1;

/* Consumer g's carrier; one lane's. */
template <int WIDTH, int N>
__device__ __forceinline__ void carry(const list_params<N> &p, const places &at, int g)
{
    using S = shape<WIDTH>;
    const uint32_t boxes = at.boxes + (uint32_t)(g * S::PARTS * BOX), ready = at.ready + 16 * g;
    uint32_t parity = 0; /* of ready */
    turn now = {0, 0};
    for (;; turn_on(now)) {
        pl_mbar_wait(at.known + 8 * now.slot, now.parity);
        const tile t = slot_get(at.slots + 16 * now.slot);
        if (t.phase < 0) break;
        const phase &f = p.of[t.phase];
        const int row = t.row + 64 * g, parts = min(S::PARTS, (f.n - t.column + 63) / 64);
        if (f.d != PL_CUDA_PRODUCTS_NONE) {
            const CUtensorMap *d = &p.map[f.d];
            if (t.late) counter_wait(p.counters + 2 + t.matrix, f.need);
            asm volatile("fence.proxy.async;" ::
                             : "memory"); /* what that, or the producer, has seen written */
            pl_mbar_expect(at.come + 8 * g, (uint32_t)(parts * BOX));
            for (int b = 0; b < parts; b++)
                pl_tma_load(boxes + (uint32_t)(b * BOX), d, at.come + 8 * g, t.column + 64 * b, row,
                            t.matrix);
        }
        const CUtensorMap *c = &p.map[f.c];
        for (int h = 0; h < HALVES<WIDTH>; h++) {
            pl_mbar_wait(ready + 8 * h, parity);
            if (h == 0) pl_mbar_arrive(at.taken + 8 * now.slot); /* who is ready has read it */
            for (int b = h * HALF<WIDTH>; b < min(parts, (h + 1) * HALF<WIDTH>); b++)
                if (row < f.m && !f.out)
                    pl_tma_store(c, boxes + (uint32_t)(b * BOX), t.column + 64 * b, row, t.matrix);
            pl_bulk_commit();
        }
        parity ^= 1;
        if (f.sym && t.column + WIDTH > t.row + ROWS) {
            for (int h = 0; h < HALVES<WIDTH>; h++) {
                pl_bulk_wait_read<HALVES<WIDTH> - 1>(); /* the same boxes' direct results */
                pl_mbar_arrive(at.drained + 8 * g);
                pl_mbar_wait(ready + 8 * h, parity);
                for (int b = h * HALF<WIDTH>; b < min(parts, (h + 1) * HALF<WIDTH>); b++) {
                    const int line = t.column + 64 * b;
                    if (row < f.m && line >= t.row + ROWS)
                        pl_tma_store(c, boxes + (uint32_t)(b * BOX), row, line, t.matrix);
                }
                pl_bulk_commit();
            }
            parity ^= 1;
        }
        pl_bulk_wait_read<0>();
        pl_mbar_arrive(at.freed + 8 * g);
        if (p.counters) {
            pl_bulk_wait();
            counter_add(p.counters + 2 + t.matrix);
        }
    }
    pl_bulk_wait();
}

/* The last carrier of all to leave sets the counters back; a warp's. */
template <int N> __device__ __forceinline__ void leave(const list_params<N> &p)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t gone = 0;
    if (!p.counters) return;
    if (lane == 0) {
        __threadfence();
        gone = atomicAdd(p.counters + 1, 1u);
        __threadfence(); /* after what the others did before they left */
    }
    gone = __shfl_sync(0xFFFFFFFFu, gone, 0);
    if (gone + 1 != 2 * gridDim.x) return;
    __syncwarp();
    for (int i = lane; i < p.batch + 2; i += 32) p.counters[i] = 0;
}

#endif
