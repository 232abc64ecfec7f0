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
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(t.phase), "r"(t.matrix),
                 "r"(t.row), "r"(t.column)
                 : "memory");
}

__device__ __forceinline__ tile slot_get(uint32_t at)
{
    uint4 v = pl_lds16(at);
    return {(int)v.x, (int)v.y, (int)v.z, (int)v.w};
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
    tile t = {0, 0, 0, 0};
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
            if (f.need) {
                counter_wait(p.counters + 2 + matrix, f.need);
                asm volatile("fence.proxy.async;" ::: "memory"); /* the copy engine sees what that says */
            }
            pl_mbar_wait(at.taken + 8 * now.slot, now.parity);
            slot_put(at.slots + 16 * now.slot, t);
            pl_mbar_arrive(at.known + 8 * now.slot);
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
    slot_put(at.slots + 16 * now.slot, {-1, 0, 0, 0});
    pl_mbar_arrive(at.known + 8 * now.slot);
}

/* ---- carriers ----------------------------------------------------------------------------------- */

/* Half of the boxes, as each store of the copy engine takes it. */
template <int WIDTH> constexpr int HALF = (shape<WIDTH>::PARTS + 1) / 2;

/* Consumer g's carrier; one lane's. */
template <int WIDTH, int N>
__device__ __forceinline__ void carry(const list_params<N> &p, const places &at, int g)
{
    using S = shape<WIDTH>;
    constexpr int HALVES = S::PARTS > HALF<WIDTH> ? 2 : 1;
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
            asm volatile("fence.proxy.async;" ::: "memory"); /* what the producer has seen written */
            pl_mbar_expect(at.come + 8 * g, (uint32_t)(parts * BOX));
            for (int b = 0; b < parts; b++)
                pl_tma_load(boxes + (uint32_t)(b * BOX), d, at.come + 8 * g, t.column + 64 * b, row,
                            t.matrix);
        }
        const CUtensorMap *c = &p.map[f.c];
        for (int h = 0; h < HALVES; h++) {
            pl_mbar_wait(ready + 8 * h, parity);
            if (h == 0) pl_mbar_arrive(at.taken + 8 * now.slot); /* who is ready has read it */
            for (int b = h * HALF<WIDTH>; b < min(parts, (h + 1) * HALF<WIDTH>); b++)
                if (row < f.m && !f.out)
                    pl_tma_store(c, boxes + (uint32_t)(b * BOX), t.column + 64 * b, row, t.matrix);
            pl_bulk_commit();
        }
        parity ^= 1;
        if (f.sym && t.column + WIDTH > t.row + ROWS) {
            for (int h = 0; h < HALVES; h++) {
                pl_bulk_wait_read<HALVES - 1>(); /* the same boxes' direct results */
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

/* ---- consumers ---------------------------------------------------------------------------------- */

/* One of the two consumers: where it stands. */
struct worker {
    int group, thread;
    int s;
    uint32_t parity, addend_parity, drained_parity, freed_parity;
};

/* Half of its results is there for the carrier. */
__device__ __forceinline__ void hand_over(const places &at, const worker &w, int half)
{
    pl_async_fence();
    __syncwarp();
    if (w.thread % 32 == 0) pl_mbar_arrive(at.ready + 16 * w.group + 8 * half);
}

/* The tile's sums. */
template <class T, int WIDTH, int TA, int TB>
__device__ __forceinline__ void multiply(const places &at, worker &w, float (&acc)[WIDTH / 2], int k_blocks)
{
    using S = shape<WIDTH>;
    constexpr uint64_t A_STEP = TA ? 2048 >> 4 : 2, B_STEP = TB ? 2048 >> 4 : 2; /* 16 k in a descriptor */
    int before = 0;
    asm volatile("" : "+r"(k_blocks)); /* kept: read anew, it would be waited for between products */
    for (int kb = 0; kb < k_blocks; kb++) {
        uint32_t a = at.stages + (uint32_t)(w.s * S::STAGE);
        uint64_t da = pl_wgmma_desc(a + (uint32_t)(w.group * BOX), TA ? BOX : 16),
                 db = pl_wgmma_desc(a + 2 * BOX, TB ? BOX : 16);
        pl_mbar_wait(at.full + 8 * w.s, w.parity);
        pl_wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            pl_wgmma<WIDTH>::template product<TA, TB, T>(acc, da + A_STEP * k, db + B_STEP * k,
                                                         (kb | k) != 0);
        pl_wgmma_commit();
        pl_wgmma_wait<1>();
        if (kb && w.thread == 0) pl_mbar_arrive(at.empty + 8 * before);
        before = w.s;
        if (++w.s == S::STAGES) w.s = 0, w.parity ^= 1;
    }
    pl_wgmma_wait<0>();
    if (w.thread == 0) pl_mbar_arrive(at.empty + 8 * before);
}

/* D: none, in the boxes, there and E in device memory, in f32 in device memory. */
enum addend { ADD_NONE, ADD_BOXES, ADD_TWO, ADD_WIDE };

/* A thread's words or pairs of addends in device memory, zeros where they are none; past L1, in the order in
 * which they are asked for. */
__device__ __forceinline__ float2 load_pair(const void *from, bool inside)
{
    float2 v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
                 "@p ld.global.cg.v2.f32 {%0, %1}, [%2];\n}\n"
                 : "=&f"(v.x), "=&f"(v.y)
                 : "l"(from), "r"((int)inside));
    return v;
}

__device__ __forceinline__ uint32_t load_word(const void *from, bool inside)
{
    uint32_t v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.cg.b32 %0, [%1];\n}\n"
                 : "=&r"(v)
                 : "l"(from), "r"((int)inside));
    return v;
}

__device__ __forceinline__ void store_pair(float *to, float2 v, bool inside)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p st.global.v2.f32 [%0], {%1, %2};\n}\n" ::"l"(to),
        "f"(v.x), "f"(v.y), "r"((int)inside)
        : "memory");
}

/* A thread's 16 pairs of a box: from the sums, with D and E, to the box. `from`: its two rows in device
 * memory, `columns` of them from this box on. */
template <class T, addend ADD>
__device__ __forceinline__ void fill_box(const phase &f, const float *acc, uint32_t *packed, uint32_t own,
                                         int flip, const char *const *from, int columns)
{
    using pair = pl_pair_of<T>;
    constexpr int AT_ONCE = ADD == ADD_WIDE ? 4 : 8, SIZE = ADD == ADD_WIDE ? 4 : 2;
#pragma unroll
    for (int first = 0; first < 16; first += AT_ONCE) {
        float2 d[AT_ONCE];
        uint32_t e[AT_ONCE];
#pragma unroll
        for (int i = first; i < first + AT_ONCE; i++) {
            const char *at = from[i % 2] + 8 * (i / 2) * SIZE;
            bool inside = 8 * (i / 2) < columns;
            d[i - first] = make_float2(0, 0);
            if (ADD == ADD_TWO) e[i - first] = load_word(at, inside);
            if (ADD == ADD_BOXES || ADD == ADD_TWO)
                d[i - first] = pair::wide(pl_lds(own + i % 2 * 1024 + ((i / 2 ^ flip) << 4)));
            if (ADD == ADD_WIDE) d[i - first] = load_pair(at, inside);
        }
#pragma unroll
        for (int i = first; i < first + AT_ONCE; i++) {
            float x = f.beta * d[i - first].x, y = f.beta * d[i - first].y;
            if (ADD == ADD_TWO) {
                float2 more = pair::wide(e[i - first]);
                x = fmaf(f.gamma, more.x, x), y = fmaf(f.gamma, more.y, y);
            }
            packed[i] = pair::narrow(fmaf(f.alpha, acc[2 * i], x), fmaf(f.alpha, acc[2 * i + 1], y));
            pl_sts(own + i % 2 * 1024 + ((i / 2 ^ flip) << 4), packed[i]);
        }
    }
}

/* From the sums to C, half of the boxes at a time: while one half is filled the other leaves. */
template <class T, int WIDTH, addend ADD, int N>
__device__ __forceinline__ void put_direct(const list_params<N> &p, const places &at, worker &w,
                                           const phase &f, float (&acc)[WIDTH / 2],
                                           uint32_t (&packed)[WIDTH / 4], uint32_t boxes, tile t)
{
    using S = shape<WIDTH>;
    const int lane = w.thread % 32, row = t.row + 64 * w.group, r = 16 * (w.thread / 32) + lane / 4;
    const uint32_t own = boxes + (uint32_t)(r * 128 + 4 * (lane % 4));
    const char *rows[2] = {nullptr, nullptr}; /* what lies beyond the edge is not stored */
    for (int h = 0; h < 2 && ADD >= ADD_TWO; h++) {
        const int64_t line = min(row + r + 8 * h, f.m - 1), column = t.column + 2 * (lane % 4);
        if (ADD == ADD_WIDE) rows[h] = (const char *)(p.wide + t.matrix * p.bsw + line * p.ldw + column);
        else
            rows[h] = (const char *)((const uint16_t *)p.base[f.e] + t.matrix * p.bs[f.e] + line * p.ld[f.e] +
                                     column);
    }
#pragma unroll
    for (int first = 0; first < S::PARTS; first += HALF<WIDTH>) {
#pragma unroll
        for (int b = first; b < first + HALF<WIDTH> && b < S::PARTS; b++) {
            constexpr int BYTES = 64 * (ADD == ADD_WIDE ? 4 : 2);
            const char *from[2] = {rows[0] + b * BYTES, rows[1] + b * BYTES};
            fill_box<T, ADD>(f, acc + 32 * b, packed + 16 * b, own + (uint32_t)(b * BOX), lane / 4, from,
                             f.n - t.column - 64 * b);
        }
        hand_over(at, w, first != 0);
    }
}

/* From the sums to the list's array in f32, each rounded as in a box; a quad's lanes fill 32 bytes. */
template <class T, int WIDTH, int N>
__device__ __forceinline__ void put_out(const list_params<N> &p, const places &at, worker &w, const phase &f,
                                        float (&acc)[WIDTH / 2], uint32_t boxes, tile t)
{
    using S = shape<WIDTH>;
    using pair = pl_pair_of<T>;
    const int lane = w.thread % 32, r = 16 * (w.thread / 32) + lane / 4, row = t.row + 64 * w.group + r;
    const int flip = lane / 4, column = t.column + 2 * (lane % 4);
    const uint32_t own = boxes + (uint32_t)(r * 128 + 4 * (lane % 4));
    float *const to = p.out + t.matrix * p.bso + row * p.ldo + column;
    float *const rows[2] = {to, to + 8 * p.ldo};
    const bool inside[2] = {row < f.m, row + 8 < f.m};
    const int columns = f.n - column;
#pragma unroll
    for (int b = 0; b < S::PARTS; b++) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int across = 64 * b + 8 * (i / 2);
            float2 d = make_float2(0, 0);
            if (f.d != PL_CUDA_PRODUCTS_NONE)
                d = pair::wide(pl_lds(own + (uint32_t)(b * BOX + i % 2 * 1024 + ((i / 2 ^ flip) << 4))));
            const float *sum = acc + 32 * b + 2 * i;
            float2 v = pair::wide(
                pair::narrow(fmaf(f.alpha, sum[0], f.beta * d.x), fmaf(f.alpha, sum[1], f.beta * d.y)));
            store_pair(rows[i % 2] + across, v, inside[i % 2] && across < columns);
        }
        if (b % HALF<WIDTH> == HALF<WIDTH> - 1 || b == S::PARTS - 1) hand_over(at, w, b >= HALF<WIDTH>);
    }
}

/* The same results on the other side of the diagonal, from the same boxes. */
template <int WIDTH>
__device__ __forceinline__ void put_mirrored(const places &at, worker &w, uint32_t (&packed)[WIDTH / 4],
                                             uint32_t boxes)
{
    using S = shape<WIDTH>;
    const int warp = w.thread / 32, lane = w.thread % 32;
    const uint32_t own =
        boxes + (uint32_t)((lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16);
#pragma unroll
    for (int first = 0; first < S::PARTS; first += HALF<WIDTH>) {
        pl_mbar_wait(at.drained + 8 * w.group, w.drained_parity);
        w.drained_parity ^= 1;
#pragma unroll
        for (int i = 8 * first; i < 8 * (first + HALF<WIDTH>)&&i < 8 * S::PARTS; i += 2)
            pl_stm4_trans(own + (uint32_t)(i * 1024), packed[2 * i], packed[2 * i + 1], packed[2 * i + 2],
                          packed[2 * i + 3]);
        hand_over(at, w, first != 0);
    }
}

template <class T, int WIDTH, addend MOST, int N>
__device__ __forceinline__ void finish(const list_params<N> &p, const places &at, worker &w, const phase &f,
                                       float (&acc)[WIDTH / 2], tile t)
{
    const uint32_t boxes = at.boxes + (uint32_t)(w.group * shape<WIDTH>::PARTS * BOX);
    uint32_t packed[WIDTH / 4];
    pl_mbar_wait(at.freed + 8 * w.group, w.freed_parity); /* where D has come they are */
    w.freed_parity ^= 1;
    if (MOST != ADD_WIDE && f.d != PL_CUDA_PRODUCTS_NONE) {
        pl_mbar_wait(at.come + 8 * w.group, w.addend_parity);
        w.addend_parity ^= 1;
        if (f.out) put_out<T, WIDTH>(p, at, w, f, acc, boxes, t);
        else if (MOST == ADD_TWO && f.gamma != 0)
            put_direct<T, WIDTH, ADD_TWO>(p, at, w, f, acc, packed, boxes, t);
        else put_direct<T, WIDTH, ADD_BOXES>(p, at, w, f, acc, packed, boxes, t);
    } else {
        put_direct<T, WIDTH, MOST == ADD_WIDE ? ADD_WIDE : ADD_NONE>(p, at, w, f, acc, packed, boxes, t);
    }
    if (f.sym && t.column + WIDTH > t.row + ROWS) put_mirrored<WIDTH>(at, w, packed, boxes);
}

/* MOST: the kind of addends that the list has. */
template <class T, int WIDTH, addend MOST, int N>
__device__ __forceinline__ void consume(const list_params<N> &p, const places &at)
{
    worker w = {(int)threadIdx.x / 128 - 1, (int)threadIdx.x % 128, 0, 0, 0, 0, 1};
    float acc[WIDTH / 2];
    turn now = {0, 0};
    for (;; turn_on(now)) {
        pl_mbar_wait(at.known + 8 * now.slot, now.parity);
        const tile t = slot_get(at.slots + 16 * now.slot);
        if (t.phase < 0) break;
        const phase &f = p.of[t.phase];
        if (f.ta) multiply<T, WIDTH, 1, 1>(at, w, acc, f.k_blocks);
        else if (f.tb) multiply<T, WIDTH, 0, 1>(at, w, acc, f.k_blocks);
        else multiply<T, WIDTH, 0, 0>(at, w, acc, f.k_blocks);
        finish<T, WIDTH, MOST>(p, at, w, f, acc, t);
    }
}

#endif
