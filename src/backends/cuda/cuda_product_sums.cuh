/* cuda_product_sums.cuh -- the consumers of cuda_product_tiles.cuh: a tile's sums, and how they become
 * results.
 *
 * A tile's end is in two parts. The sums are rounded, D and E added, to half as many registers (pack): this
 * the tensor cores wait for. What is left goes piece by piece, each when a stage of the next tile has been
 * given to the tensor cores: the first half of the boxes is filled and leaves, the second half, and of
 * symmetric products the same once more with the mirrored results, which are transposed on the way into the
 * boxes. By 256 columns that is shared memory's time beside the products', which by themselves take all of
 * it: 512 cycles for every 64 KB that are written, read or copied, of 16 x 1024 for 1024 k.
 *
 * Nothing that anybody waits for may wait for the next tile's factors: before a tile that came late, and at
 * the end, all pieces that are left are done at once.
 */
#ifndef PL_CUDA_PRODUCT_SUMS_CUH
#define PL_CUDA_PRODUCT_SUMS_CUH

#include "cuda_product_tiles.cuh"

/* One of the two consumers: where it stands. */
struct worker {
    int group, thread;
    int s;
    uint32_t parity, addend_parity, drained_parity, freed_parity;
};

/* What is left to do of a tile: so many pieces. */
struct rest {
    int pieces;
    tile t;
};

/* Half of its results is there for the carrier. */
__device__ __forceinline__ void hand_over(const places &at, const worker &w, int half)
{
    pl_async_fence();
    __syncwarp();
    if (w.thread % 32 == 0) pl_mbar_arrive(at.ready + 16 * w.group + 8 * half);
}

/* ---- the pieces of an end ----------------------------------------------------------------------- */

/* Where a thread's pair i of box b stands among the boxes; of its row in the first box, `flip` that row % 8.
 */
__device__ __forceinline__ uint32_t pair_at(int b, int i, int flip)
{
    return (uint32_t)(b * BOX + i % 2 * 1024 + ((i / 2 ^ flip) << 4));
}

__device__ __forceinline__ int row_of(const worker &w)
{
    return 16 * (w.thread / 32) + w.thread % 32 / 4;
}

/* Half HALF_NO of the boxes from the packed results. */
template <int WIDTH, int HALF_NO>
__device__ __forceinline__ void put_direct(const places &at, const worker &w,
                                           const uint32_t (&packed)[WIDTH / 4])
{
    using S = shape<WIDTH>;
    const int lane = w.thread % 32;
    const uint32_t own = at.boxes + (uint32_t)(w.group * S::PARTS * BOX + row_of(w) * 128 + 4 * (lane % 4));
#pragma unroll
    for (int b = HALF_NO * HALF<WIDTH>; b < (HALF_NO + 1) * HALF<WIDTH> && b < S::PARTS; b++)
#pragma unroll
        for (int i = 0; i < 16; i++) pl_sts(own + pair_at(b, i, lane / 4), packed[16 * b + i]);
    hand_over(at, w, HALF_NO);
}

__device__ __forceinline__ void store_pair(float *to, float2 v, bool inside)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p st.global.v2.f32 [%0], {%1, %2};\n}\n" ::"l"(to),
        "f"(v.x), "f"(v.y), "r"((int)inside)
        : "memory");
}

/* The same half to the list's array in f32; a quad's lanes fill 32 bytes. */
template <class T, int WIDTH, int HALF_NO, int N>
__device__ __forceinline__ void put_out(const list_params<N> &p, const places &at, const worker &w,
                                        const uint32_t (&packed)[WIDTH / 4], const tile &t)
{
    using S = shape<WIDTH>;
    const phase &f = p.of[t.phase];
    const int row = t.row + 64 * w.group + row_of(w), column = t.column + 2 * (w.thread % 4);
    float *const to = p.out + t.matrix * p.bso + row * p.ldo + column;
    float *const rows[2] = {to, to + 8 * p.ldo};
    const bool inside[2] = {row < f.m, row + 8 < f.m};
    const int columns = f.n - column;
#pragma unroll
    for (int b = HALF_NO * HALF<WIDTH>; b < (HALF_NO + 1) * HALF<WIDTH> && b < S::PARTS; b++)
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int across = 64 * b + 8 * (i / 2);
            uint32_t both = packed[16 * b + i];
            asm volatile("" : "+r"(both)); /* widened here, not in front of the loop over k */
            store_pair(rows[i % 2] + across, pl_pair_of<T>::wide(both), inside[i % 2] && across < columns);
        }
    hand_over(at, w, HALF_NO);
}

/* The same results on the other side of the diagonal, from the same boxes. */
template <int WIDTH, int HALF_NO>
__device__ __forceinline__ void put_mirrored(const places &at, worker &w, const uint32_t (&packed)[WIDTH / 4])
{
    using S = shape<WIDTH>;
    const int warp = w.thread / 32, lane = w.thread % 32;
    const uint32_t own = at.boxes + (uint32_t)(w.group * S::PARTS * BOX + (lane / 16 * 8 + lane % 8) * 128 +
                                               ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16);
    constexpr int FROM = 8 * HALF_NO * HALF<WIDTH>, TO = FROM + 8 * HALF<WIDTH>;
    pl_mbar_wait(at.drained + 8 * w.group, w.drained_parity);
    w.drained_parity ^= 1;
#pragma unroll
    for (int i = FROM; i < TO && i < 8 * S::PARTS; i += 2)
        pl_stm4_trans(own + (uint32_t)(i * 1024), packed[2 * i], packed[2 * i + 1], packed[2 * i + 2],
                      packed[2 * i + 3]);
    hand_over(at, w, HALF_NO);
}

/* Piece i of a tile's end: half by half, direct and then mirrored. */
template <class T, int WIDTH, int N>
__device__ __forceinline__ void put_piece(const list_params<N> &p, const places &at, worker &w,
                                          const uint32_t (&packed)[WIDTH / 4], const rest &left, int i)
{
    constexpr int SECOND = HALVES<WIDTH> - 1;
    const bool out = p.of[left.t.phase].out;
    if (i == 0) {
        if (out) put_out<T, WIDTH, 0>(p, at, w, packed, left.t);
        else put_direct<WIDTH, 0>(at, w, packed);
    } else if (SECOND && i == 1) {
        if (out) put_out<T, WIDTH, SECOND>(p, at, w, packed, left.t);
        else put_direct<WIDTH, SECOND>(at, w, packed);
    } else if (i == HALVES<WIDTH>) {
        put_mirrored<WIDTH, 0>(at, w, packed);
    } else {
        put_mirrored<WIDTH, SECOND>(at, w, packed);
    }
}

/* Those from `first` on. */
template <class T, int WIDTH, int N>
__device__ __forceinline__ void put_rest(const list_params<N> &p, const places &at, worker &w,
                                         const uint32_t (&packed)[WIDTH / 4], rest &left, int first)
{
    for (int i = first; i < left.pieces; i++) put_piece<T, WIDTH>(p, at, w, packed, left, i);
    left.pieces = 0;
}

/* ---- sums --------------------------------------------------------------------------------------- */

/* The tile's sums, and beside the first stages what is left of the tile before. */
template <class T, int WIDTH, int TA, int TB, int N>
__device__ __forceinline__ void multiply(const list_params<N> &p, const places &at, worker &w,
                                         float (&acc)[WIDTH / 2], int k_blocks,
                                         const uint32_t (&packed)[WIDTH / 4], rest &left)
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
        if (kb < left.pieces) put_piece<T, WIDTH>(p, at, w, packed, left, kb);
    }
    pl_wgmma_wait<0>();
    if (w.thread == 0) pl_mbar_arrive(at.empty + 8 * before);
    put_rest<T, WIDTH>(p, at, w, packed, left, k_blocks);
}

/* ---- from sums to packed results ---------------------------------------------------------------- */

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

/* A thread's 16 pairs of a box: the sums, with D and E, rounded. `own`: its place in the boxes; `from`: its
 * two rows in device memory, `columns` of them from this box on. */
template <class T, addend ADD>
__device__ __forceinline__ void pack_box(const phase &f, const float *acc, uint32_t *packed, uint32_t own,
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
                d[i - first] = pair::wide(pl_lds(own + pair_at(0, i, flip)));
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
        }
    }
}

template <class T, int WIDTH, addend ADD, int N>
__device__ __forceinline__ void pack_boxes(const list_params<N> &p, const places &at, const worker &w,
                                           const phase &f, const float (&acc)[WIDTH / 2],
                                           uint32_t (&packed)[WIDTH / 4], const tile &t)
{
    using S = shape<WIDTH>;
    const int lane = w.thread % 32, row = t.row + 64 * w.group + row_of(w);
    const uint32_t own = at.boxes + (uint32_t)(w.group * S::PARTS * BOX + row_of(w) * 128 + 4 * (lane % 4));
    const char *rows[2] = {nullptr, nullptr}; /* what lies beyond the edge is not stored */
    for (int h = 0; h < 2 && ADD >= ADD_TWO; h++) {
        const int64_t line = min(row + 8 * h, f.m - 1), column = t.column + 2 * (lane % 4);
        if (ADD == ADD_WIDE) rows[h] = (const char *)(p.wide + t.matrix * p.bsw + line * p.ldw + column);
        else
            rows[h] = (const char *)((const uint16_t *)p.base[f.e] + t.matrix * p.bs[f.e] + line * p.ld[f.e] +
                                     column);
    }
#pragma unroll
    for (int b = 0; b < S::PARTS; b++) {
        constexpr int BYTES = 64 * (ADD == ADD_WIDE ? 4 : 2);
        const char *from[2] = {rows[0] + b * BYTES, rows[1] + b * BYTES};
        pack_box<T, ADD>(f, acc + 32 * b, packed + 16 * b, own + (uint32_t)(b * BOX), lane / 4, from,
                         f.n - t.column - 64 * b);
    }
}

template <class T, int WIDTH, addend MOST, int N>
__device__ __forceinline__ void pack(const list_params<N> &p, const places &at, worker &w, const phase &f,
                                     const float (&acc)[WIDTH / 2], uint32_t (&packed)[WIDTH / 4],
                                     const tile &t)
{
    pl_mbar_wait(at.freed + 8 * w.group, w.freed_parity); /* where D has come they are */
    w.freed_parity ^= 1;
    if (MOST != ADD_WIDE && f.d != PL_CUDA_PRODUCTS_NONE) {
        pl_mbar_wait(at.come + 8 * w.group, w.addend_parity);
        w.addend_parity ^= 1;
        if (MOST == ADD_TWO && f.gamma != 0) pack_boxes<T, WIDTH, ADD_TWO>(p, at, w, f, acc, packed, t);
        else pack_boxes<T, WIDTH, ADD_BOXES>(p, at, w, f, acc, packed, t);
    } else {
        pack_boxes<T, WIDTH, MOST == ADD_WIDE ? ADD_WIDE : ADD_NONE>(p, at, w, f, acc, packed, t);
    }
}

/* MOST: the kind of addends that the list has. */
template <class T, int WIDTH, addend MOST, int N>
__device__ __forceinline__ void consume(const list_params<N> &p, const places &at)
{
    worker w = {(int)threadIdx.x / 128 - 1, (int)threadIdx.x % 128, 0, 0, 0, 0, 1};
    float acc[WIDTH / 2];
    uint32_t packed[WIDTH / 4] = {};
    rest left = {0, {0, 0, 0, 0, 0}};
    turn now = {0, 0};
    for (;; turn_on(now)) {
        pl_mbar_wait(at.known + 8 * now.slot, now.parity);
        const tile t = slot_get(at.slots + 16 * now.slot);
        if (t.phase < 0 || t.late) put_rest<T, WIDTH>(p, at, w, packed, left, 0);
        if (t.phase < 0) break;
        const phase &f = p.of[t.phase];
        if (f.ta) multiply<T, WIDTH, 1, 1>(p, at, w, acc, f.k_blocks, packed, left);
        else if (f.tb) multiply<T, WIDTH, 0, 1>(p, at, w, acc, f.k_blocks, packed, left);
        else multiply<T, WIDTH, 0, 0>(p, at, w, acc, f.k_blocks, packed, left);
        pack<T, WIDTH, MOST>(p, at, w, f, acc, packed, t);
        left.pieces = (f.sym && t.column + WIDTH > t.row + ROWS ? 2 : 1) * HALVES<WIDTH>;
        left.t = t;
    }
}

#endif
