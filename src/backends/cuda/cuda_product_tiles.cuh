/* cuda_product_tiles.cuh -- how a block makes tiles of C = alpha op(A) op(B)^T + beta D (cuda_products.h).
 *
 * A block is a producer (one thread) and two consumer warpgroups of 64 x WIDTH results each. Everything in
 * shared memory is a box of 64 rows of 128 bytes, swizzled as the copy engine and wgmma want it: a stage has
 * two boxes of A and WIDTH / 64 of B, 64 k of them; each warpgroup has WIDTH / 64 boxes of C, in which D
 * arrives and from which results leave, direct ones and then, of symmetric products, the mirrored ones.
 *
 * Barriers: full[s] completes when a stage has come, empty[s] when both warpgroups are through with it;
 * come[g] when warpgroup g's boxes hold D, freed[g] when the boxes' last results have been written. The first
 * stage of a tile carries the tile's place (slot), a place without a phase ends the block.
 *
 * Of shared memory 128 columns cost 80 KB a stage (tensor cores read 48, the copy engine writes 32), which at
 * 128 bytes a cycle is 640 cycles for 512 of the tensor cores; 256 columns 128 KB, 1024 cycles for 1024. So
 * wide tiles are the fast ones, and narrow ones are for what would not fill the multiprocessors.
 *
 * Several products: tiles are taken from a ticket counter in the order of the phases, so that everything a
 * tile waits for was taken before by a block that runs: no block waits for one that has not started. Behind a
 * tile's last store each warpgroup adds one to its matrix's counter; a tile of the next phase is loaded when
 * that counter says that all tiles before are written. What a warpgroup owes (a counter's one, freed[g]) it
 * settles some k into its next tile, or at once where that has not come: it may wait for this very debt.
 * The last warpgroup to leave sets the counters back.
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
#define CONTROL    (16 * STAGES_MAX + 4 * 8 + 16 * STAGES_MAX)
#define SETTLE_AT  3 /* stages into a tile: the last one's stores have been written by then */

typedef struct {
    int end;         /* tickets of this phase and all before it */
    int tiles, rows; /* of one matrix: tiles, rows of tiles */
    int m, n, k_blocks;
    uint32_t need; /* the matrix's counter when all phases before have been written */
    uint8_t c, a, b, d, e, ta, tb, sym;
    float alpha, beta, gamma;
} phase;

/* How an array is copied: as A or B, 128 or WIDTH lines of 64 k at once, its lines standing (rows) or lying
 * (panels of 64 columns); in single boxes, as C and D. One copy a factor and stage: a thread takes 0.13 us to
 * ask for one. */
enum role { A_ROWS, A_PANELS, B_ROWS, B_PANELS, AS_BOX, ROLES };

typedef struct {
    CUtensorMap map[PL_CUDA_PRODUCTS_ARRAYS][ROLES];
    phase of[PL_CUDA_PRODUCTS_MAX];
    int total, batch;
    const void *base[PL_CUDA_PRODUCTS_ARRAYS]; /* the arrays once more, for second addends */
    int64_t ld[PL_CUDA_PRODUCTS_ARRAYS], bs[PL_CUDA_PRODUCTS_ARRAYS];
    const float *wide;
    int64_t ldw, bsw;
    uint32_t *counters; /* tickets taken, warpgroups gone, then one a matrix */
} list_params;

template <int WIDTH> struct shape {
    static constexpr int PARTS = WIDTH / 64, STAGE = (2 + PARTS) * BOX, BOXES = 2 * PARTS * BOX;
    static constexpr int FIT = (SMEM_LIMIT - 1024 - CONTROL - BOXES) / STAGE;
    static constexpr int STAGES = FIT > STAGES_MAX ? STAGES_MAX : FIT;
    static constexpr int BYTES = 1024 + STAGES * STAGE + BOXES + CONTROL;
    static_assert(WIDTH % 64 == 0 && STAGES >= 3);
};

struct places {
    uint32_t stages, boxes, full, empty, come, freed, slots;
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

/* ---- producer ----------------------------------------------------------------------------------- */

/* Two slots in turn: a thread has read its tile before its warpgroup meets in finish(), and the producer
 * waits for what comes behind that, the tile's boxes, before it begins the tile after the next. A stage's
 * `empty` says less: thread 0 arrives there for threads that may not have read yet. */
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

/* A factor's part of a stage: its lines from `line` on, 64 k from `k` on. */
__device__ __forceinline__ void load_factor(const CUtensorMap *maps, int rows, int trans, uint32_t to,
                                            uint32_t bar, int line, int k, int matrix)
{
    if (trans) pl_tma_load4(to, maps + rows + 1, bar, 0, k, line / 64, matrix);
    else pl_tma_load(to, maps + rows, bar, k, line, matrix);
}

/* D's boxes of both warpgroups, each when its last results have left. */
template <int WIDTH>
__device__ __forceinline__ void load_addend(const list_params &p, const places &at, const phase &f, tile t,
                                            uint32_t parity)
{
    using S = shape<WIDTH>;
    const int parts = min(S::PARTS, (f.n - t.column + 63) / 64);
    for (int g = 0; g < 2; g++) {
        uint32_t bar = at.come + 8 * g;
        pl_mbar_wait(at.freed + 8 * g, parity);
        if (f.d == PL_CUDA_PRODUCTS_NONE) continue;
        pl_mbar_expect(bar, (uint32_t)(parts * BOX));
        for (int b = 0; b < parts; b++)
            pl_tma_load(at.boxes + (uint32_t)((g * S::PARTS + b) * BOX), &p.map[f.d][AS_BOX], bar,
                        t.column + 64 * b, t.row + 64 * g, t.matrix);
    }
}

/* A tile to come: where it is, and whether what it needs is known to be written. */
struct errand {
    int ticket, begin; /* begin: the first ticket of its phase */
    tile at;
    bool ready;
};

/* The next tile, asked for while the stages of the one before are full: nothing waits for it. */
template <int WIDTH> __device__ __forceinline__ errand take(const list_params &p, errand before)
{
    errand e = before;
    e.ticket = p.counters           ? (int)atomicAdd(p.counters, 1u)
               : before.ticket >= 0 ? before.ticket + (int)gridDim.x
                                    : (int)blockIdx.x;
    if (e.ticket >= p.total) return e;
    int now = before.at.phase;
    while (e.ticket >= p.of[now].end) e.begin = p.of[now++].end;
    const phase &f = p.of[now];
    int matrix = (e.ticket - e.begin) / f.tiles;
    e.at = tile_at<WIDTH>(f, e.ticket - e.begin - matrix * f.tiles);
    e.at.phase = now, e.at.matrix = matrix;
    e.ready = !f.need || counter_read(p.counters + 2 + matrix) >= f.need;
    return e;
}

template <int WIDTH> __device__ __forceinline__ void produce(const list_params &p, const places &at)
{
    using S = shape<WIDTH>;
    int s = 0;
    uint32_t parity = 1, tile_parity = 1; /* of fresh barriers the phase before the first counts as over */
    errand next = take<WIDTH>(p, {-1, 0, {0, 0, 0, 0}, false});
    while (next.ticket < p.total) {
        const errand e = next;
        const phase &f = p.of[e.at.phase];
        const CUtensorMap *a = p.map[f.a], *b = p.map[f.b];
        const int addend_at = min(f.k_blocks - 1, S::STAGES + SETTLE_AT + 1),
                  take_at = max(f.k_blocks - 3, 0);
        if (f.need) {
            if (!e.ready) counter_wait(p.counters + 2 + e.at.matrix, f.need);
            asm volatile("fence.proxy.async;" ::: "memory"); /* the copy engine sees what the counter says */
        }
        for (int kb = 0; kb < f.k_blocks; kb++) {
            uint32_t bar = at.full + 8 * s, to = at.stages + (uint32_t)(s * S::STAGE);
            pl_mbar_wait(at.empty + 8 * s, parity);
            if (kb == 0) slot_put(at.slots + 16 * tile_parity, e.at);
            pl_mbar_expect(bar, S::STAGE);
            load_factor(a, A_ROWS, f.ta, to, bar, e.at.row, kb * DEPTH, e.at.matrix);
            load_factor(b, B_ROWS, f.tb, to + 2 * BOX, bar, e.at.column, kb * DEPTH, e.at.matrix);
            if (kb == addend_at) load_addend<WIDTH>(p, at, f, e.at, tile_parity);
            if (kb == take_at) next = take<WIDTH>(p, e);
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
        tile_parity ^= 1;
    }
    tile stop = {-1, 0, 0, 0};
    pl_mbar_wait(at.empty + 8 * s, parity);
    slot_put(at.slots + 16 * tile_parity, stop);
    pl_mbar_arrive(at.full + 8 * s);
}

/* ---- consumers ---------------------------------------------------------------------------------- */

/* One of the two warpgroups: where it stands in the ring and what it owes. */
struct worker {
    int group, thread, bar; /* bar: its named barrier */
    int s;
    uint32_t parity, addend_parity;
    uint32_t slot; /* where the next tile stands */
    int owes;      /* the matrix of a tile whose stores are under way, or -1; thread 0's */
};

/* Thread 0's: the last tile's results are written. */
__device__ __forceinline__ void settle(const list_params &p, const places &at, worker &w)
{
    if (w.owes < 0) return;
    pl_bulk_wait();
    if (p.counters) counter_add(p.counters + 2 + w.owes);
    pl_mbar_arrive(at.freed + 8 * w.group);
    w.owes = -1;
}

/* The tile's sums; its first stage has come. */
template <class T, int WIDTH, int TA, int TB>
__device__ __forceinline__ void multiply(const list_params &p, const places &at, worker &w,
                                         float (&acc)[WIDTH / 2], int k_blocks)
{
    using S = shape<WIDTH>;
    constexpr uint64_t A_STEP = TA ? 2048 >> 4 : 2, B_STEP = TB ? 2048 >> 4 : 2; /* 16 k in a descriptor */
    int before = 0;
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
        if (w.thread == 0 && (kb == SETTLE_AT || kb == k_blocks - 1)) settle(p, at, w);
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

/* Half of the boxes, as each store of the copy engine takes it. */
template <int WIDTH> constexpr int HALF = (shape<WIDTH>::PARTS + 1) / 2;

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
template <class T, int WIDTH, addend ADD>
__device__ __forceinline__ void put_direct(const list_params &p, worker &w, const phase &f,
                                           float (&acc)[WIDTH / 2], uint32_t (&packed)[WIDTH / 4],
                                           uint32_t boxes, tile t)
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
        pl_async_fence();
        pl_group_sync(w.bar);
        if (w.thread == 0) {
            for (int b = first; b < first + HALF<WIDTH> && b < S::PARTS; b++)
                if (row < f.m && t.column + 64 * b < f.n)
                    pl_tma_store(&p.map[f.c][AS_BOX], boxes + (uint32_t)(b * BOX), t.column + 64 * b, row,
                                 t.matrix);
            pl_bulk_commit();
        }
    }
}

/* The same results on the other side of the diagonal, from the same boxes. */
template <int WIDTH>
__device__ __forceinline__ void put_mirrored(const list_params &p, worker &w, const phase &f,
                                             uint32_t (&packed)[WIDTH / 4], uint32_t boxes, tile t)
{
    using S = shape<WIDTH>;
    const int warp = w.thread / 32, lane = w.thread % 32, row = t.row + 64 * w.group;
    const uint32_t own =
        boxes + (uint32_t)((lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16);
#pragma unroll
    for (int first = 0; first < S::PARTS; first += HALF<WIDTH>) {
        if (w.thread == 0) { /* the same boxes' direct results have left */
            if (S::PARTS > HALF<WIDTH>) pl_bulk_wait_read<1>();
            else pl_bulk_wait_read<0>();
        }
        pl_group_sync(w.bar);
#pragma unroll
        for (int i = 8 * first; i < 8 * (first + HALF<WIDTH>)&&i < 8 * S::PARTS; i += 2)
            pl_stm4_trans(own + (uint32_t)(i * 1024), packed[2 * i], packed[2 * i + 1], packed[2 * i + 2],
                          packed[2 * i + 3]);
        pl_async_fence();
        pl_group_sync(w.bar);
        if (w.thread == 0) {
            for (int b = first; b < first + HALF<WIDTH> && b < S::PARTS; b++) {
                int c = t.column + 64 * b;
                if (row < f.m && c >= t.row + ROWS && c < f.n)
                    pl_tma_store(&p.map[f.c][AS_BOX], boxes + (uint32_t)(b * BOX), row, c, t.matrix);
            }
            pl_bulk_commit();
        }
    }
}

template <class T, int WIDTH, addend MOST>
__device__ __forceinline__ void finish(const list_params &p, const places &at, worker &w, const phase &f,
                                       float (&acc)[WIDTH / 2], tile t)
{
    const uint32_t boxes = at.boxes + (uint32_t)(w.group * shape<WIDTH>::PARTS * BOX);
    uint32_t packed[WIDTH / 4];
    if (MOST != ADD_WIDE && f.d != PL_CUDA_PRODUCTS_NONE) {
        pl_mbar_wait(at.come + 8 * w.group, w.addend_parity);
        w.addend_parity ^= 1;
        if (MOST == ADD_TWO && f.gamma != 0) put_direct<T, WIDTH, ADD_TWO>(p, w, f, acc, packed, boxes, t);
        else put_direct<T, WIDTH, ADD_BOXES>(p, w, f, acc, packed, boxes, t);
    } else {
        pl_group_sync(w.bar); /* the boxes are free: thread 0 has settled */
        put_direct<T, WIDTH, MOST == ADD_WIDE ? ADD_WIDE : ADD_NONE>(p, w, f, acc, packed, boxes, t);
    }
    if (f.sym && t.column + WIDTH > t.row + ROWS) put_mirrored<WIDTH>(p, w, f, packed, boxes, t);
}

/* The last of all warpgroups leaves the counters as it found them. */
__device__ __forceinline__ void leave(const list_params &p, const worker &w)
{
    uint32_t gone = 0;
    if (!p.counters || w.thread >= 32) return;
    if (w.thread == 0) {
        __threadfence();
        gone = atomicAdd(p.counters + 1, 1u);
        __threadfence(); /* after what the others did before they left */
    }
    gone = __shfl_sync(0xFFFFFFFFu, gone, 0);
    if (gone + 1 != 2 * gridDim.x) return;
    __syncwarp();
    for (int i = w.thread; i < p.batch + 2; i += 32) p.counters[i] = 0;
}

/* MOST: the kind of addends that the list has. */
template <class T, int WIDTH, addend MOST>
__device__ __forceinline__ void consume(const list_params &p, const places &at)
{
    worker w = {(int)threadIdx.x / 128 - 1, (int)threadIdx.x % 128, (int)threadIdx.x / 128, 0, 0, 0, 16, -1};
    float acc[WIDTH / 2];
    for (;;) {
        if (w.thread == 0 && w.owes >= 0 && !pl_mbar_test(at.full + 8 * w.s, w.parity)) settle(p, at, w);
        pl_mbar_wait(at.full + 8 * w.s, w.parity);
        tile t = slot_get(at.slots + w.slot);
        w.slot ^= 16;
        if (t.phase < 0) break;
        const phase &f = p.of[t.phase];
        if (f.ta) multiply<T, WIDTH, 1, 1>(p, at, w, acc, f.k_blocks);
        else if (f.tb) multiply<T, WIDTH, 0, 1>(p, at, w, acc, f.k_blocks);
        else multiply<T, WIDTH, 0, 0>(p, at, w, acc, f.k_blocks);
        finish<T, WIDTH, MOST>(p, at, w, f, acc, t);
        w.owes = t.matrix;
    }
    if (w.thread == 0) settle(p, at, w);
    leave(p, w);
}

#endif
