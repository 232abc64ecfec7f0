/* cuda_double.cuh -- sums over lanes and products of tensor cores, in double. */
#ifndef PL_CUDA_DOUBLE_CUH
#define PL_CUDA_DOUBLE_CUH

#define PL_WARP_LANES 0xffffffffu

/* The sum over the warp, for every lane. */
__device__ __forceinline__ double lanes_sum(double x)
{
    for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(PL_WARP_LANES, x, half);
    return x;
}

/* C += A B, 8 x 8 from 8 x 4 and 4 x 8: A's row and B's column lane / 4, depth lane % 4; of C row lane / 4,
 * columns 2 (lane % 4) and the next. */
__device__ __forceinline__ void product_8x8x4(double c[2], double a, double b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a), "d"(b));
}

/* ---- tiles of a product, by a block of W warps ---------------------------------------------------- */

#define TILE_DEPTH 32 /* of a step */
#define TILE_A_ROW 36 /* doubles from row to row: no bank conflicts */

/* Warps down and across, each has 16 x 16 of the tile. */
template <int W> struct tiling {
    static constexpr int DOWN = W == 16 || W == 8 ? 4 : W == 4 ? 2 : 1, ACROSS = W / DOWN;
    static constexpr int ROWS = 16 * DOWN, COLS = 16 * ACROSS, B_ROW = COLS + 4;
    static constexpr int DOUBLES = ROWS * TILE_A_ROW + TILE_DEPTH * B_ROW; /* of shared memory */
};

/* Entries (i, j) of the tile, put(i, j, sum over k < depth of a(i, k) b(k, j)); a and b give 0 where there is
 * nothing. All threads of the block. */
template <int W, class LEFT, class RIGHT, class PUT>
__device__ __forceinline__ void tile_product(double *shared, int depth, const LEFT &a_at, const RIGHT &b_at,
                                             const PUT &put)
{
    using S = tiling<W>;
    const int T = 32 * W, t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int i0 = warp / S::ACROSS * 16 + lane / 4, j0 = warp % S::ACROSS * 16, quarter = lane % 4;
    double *A = shared, *B = A + S::ROWS * TILE_A_ROW, c[2][2][2] = {};
    double a[16 / S::ACROSS], b[16 / S::DOWN];
#pragma unroll 1
    for (int from = -TILE_DEPTH; from < depth; from += TILE_DEPTH) { /* the first time only loads */
        if (from >= 0) {
            __syncthreads();
#pragma unroll
            for (int r = 0; r < 16 / S::ACROSS; r++)
                A[(t + r * T) / TILE_DEPTH * TILE_A_ROW + (t + r * T) % TILE_DEPTH] = a[r];
#pragma unroll
            for (int r = 0; r < 16 / S::DOWN; r++)
                B[(t + r * T) / S::COLS * S::B_ROW + (t + r * T) % S::COLS] = b[r];
            __syncthreads();
        }
        if (from + TILE_DEPTH < depth) {
#pragma unroll
            for (int r = 0; r < 16 / S::ACROSS; r++)
                a[r] = a_at((t + r * T) / TILE_DEPTH, from + TILE_DEPTH + (t + r * T) % TILE_DEPTH);
#pragma unroll
            for (int r = 0; r < 16 / S::DOWN; r++)
                b[r] = b_at(from + TILE_DEPTH + (t + r * T) / S::COLS, (t + r * T) % S::COLS);
        }
        if (from < 0) continue;
#pragma unroll
        for (int s = 0; s < TILE_DEPTH; s += 4) {
            const double a0 = A[i0 * TILE_A_ROW + s + quarter], a1 = A[(i0 + 8) * TILE_A_ROW + s + quarter],
                         b0 = B[(s + quarter) * S::B_ROW + j0 + lane / 4],
                         b1 = B[(s + quarter) * S::B_ROW + j0 + 8 + lane / 4];
            product_8x8x4(c[0][0], a0, b0);
            product_8x8x4(c[0][1], a0, b1);
            product_8x8x4(c[1][0], a1, b0);
            product_8x8x4(c[1][1], a1, b1);
        }
    }
#pragma unroll
    for (int q = 0; q < 8; q++)
        put(i0 + q / 4 * 8, j0 + q / 2 % 2 * 8 + 2 * quarter + q % 2, c[q / 4][q / 2 % 2][q % 2]);
}

#endif
