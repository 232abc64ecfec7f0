/* cuda_pair_weight.cu -- pair_weight and pair_weight_back: one number a pair from its distance, and the
 * gradients of the MLP that gives it, f32, by the pieces of cuda_message_pieces.cuh.
 *
 *     forward   prepare   a block per member: the width of its pieces, which clouds they serve
 *               table     a block per member and piece: TERMS coefficients, in double
 *               pairs     a block per PAIRS pairs of a cloud: k = floor(d / delta), u = sum_q c_kq t^q
 *     backward  prepare   as above
 *               moments   a block per cloud: M_kq = sum of du t^q over its pairs, in double
 *               nodes     a block per member and piece: the gradients g at its nodes, of all its clouds
 *               channels  a warp per hidden channel: dW2 = sum g z, dw0 = sum g w2 silu' d, db0 without d,
 *                         db2 = sum g, over the nodes
 *
 * A cloud outside of the table takes the direct way in the kernels that go over pairs: the MLP at every pair,
 * in double. Sums of moments: every lane adds its pairs to a column of its own in shared memory, in order,
 * which needs no atomics; columns are added up in an order by position. u has the bits of `cpu`; a gradient
 * depends on its member's clouds and weights alone.
 */
#include "cuda_message_pieces.cuh"

#define PAIRS_BLOCK    256
#define PAIRS          1024 /* of a block */
#define TABLE_BLOCK    128
#define MOMENTS_WARPS  2
#define TILE           16 /* pieces whose columns are in shared memory at a time */
#define AHEAD          8  /* pairs of a lane whose loads are under way together */
#define NODES_BLOCK    (32 * TERMS)
#define CHANNELS_WARPS 8

struct weight_job : message_mlp {
    pl_mat U;                  /* dU backward */
    pl_mat dw0, db0, dW2, db2; /* the backward's */
    int chunks;                /* of PAIRS pairs: blocks of a cloud */
    /* scratch */
    float *table;    /* (members, TERMS, PIECES) */
    double *moments; /* (clouds of all, PIECES, TERMS) */
    double *nodes;   /* (members, PIECES, TERMS): gradients at the nodes */
    double *direct;  /* (clouds of all, 3, h + 1): weight_sums of clouds that took the direct way */
};

/* ---- forward ------------------------------------------------------------------------------------ */

static __global__ void weight_table(const __grid_constant__ weight_job a)
{
    extern __shared__ double terms[]; /* (TERMS, h): w2 z at the nodes */
    __shared__ double u[TERMS];
    const int e = blockIdx.x / PIECES, row = blockIdx.x % PIECES, h = a.h;
    if (row >= a.pieces[e].rows) return;
    FOR_THREADS(x, TERMS * h)
    {
        double z = pl_silu_f64(message_hidden(a, e, x % h, message_node(a, e, row, x / h)));
        terms[x] = message_get_f64(a.W2, e, 0, x % h) * z;
    }
    __syncthreads();
    FOR_THREADS(m, TERMS)
    {
        double sum = 0;
        for (int k = 0; k < h; k++) sum += terms[m * h + k];
        u[m] = sum;
    }
    __syncthreads();
    FOR_THREADS(q, TERMS)
    {
        double c = 0;
        for (int m = 0; m < TERMS; m++) c += a.basis.of[q][m] * u[m];
        a.table[((int64_t)e * TERMS + q) * PIECES + row] = (float)c;
    }
}

static __device__ __forceinline__ double weight_direct(const weight_job &a, int e, double d)
{
    double u = 0;
    for (int k = 0; k < a.h; k++)
        u += message_get_f64(a.W2, e, 0, k) * pl_silu_f64(message_hidden(a, e, k, d));
    return u;
}

static __global__ void weight_pairs(const __grid_constant__ weight_job a)
{
    __shared__ float table[TERMS][PIECES]; /* lanes in different pieces read different banks */
    const int64_t cloud = blockIdx.x / a.chunks, first = (int64_t)(blockIdx.x % a.chunks) * PAIRS;
    const int many = (int)min((int64_t)PAIRS, a.D.rows - first), e = (int)(cloud / a.clouds);
    const message_pieces pieces = a.pieces[e];
    if (a.is_direct[cloud]) {
        FOR_THREADS(p, many)
        message_put(a.U, cloud, first + p, 0,
                    (float)weight_direct(a, e, message_get_f64(a.D, cloud, first + p, 0)));
        return;
    }
    for (int q = 0; q < TERMS; q++)
        FOR_THREADS(r, pieces.rows) table[q][r] = a.table[((int64_t)e * TERMS + q) * PIECES + r];
    __syncthreads();
    FOR_THREADS(p, many)
    {
        float t;
        int r = message_locate(message_get(a.D, cloud, first + p, 0), pieces.scale, t);
        float u = table[TERMS - 1][r];
#pragma unroll
        for (int q = TERMS - 2; q >= 0; q--) u = u * t + table[q][r];
        message_put(a.U, cloud, first + p, 0, u);
    }
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* What a gradient g of u at distance d adds to dW2, dw0, db0 of channel k; channel h stands for db2. */
typedef struct {
    double w2, w0, b0;
} weight_sums;

static __device__ __forceinline__ void sums_add(weight_sums &s, const weight_job &a, int e, int k, double d,
                                                double g)
{
    if (k == a.h) {
        s.w2 += g;
        return;
    }
    double u = message_hidden(a, e, k, d), da = g * message_get_f64(a.W2, e, 0, k) * pl_silu_slope_f64(u);
    s.w2 = fma(g, pl_silu_f64(u), s.w2);
    s.w0 = fma(da, d, s.w0);
    s.b0 += da;
}

static __device__ __forceinline__ double over_lanes(double x)
{
    for (int k = 16; k > 0; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

static __device__ void cloud_direct(const weight_job &a, int e, int64_t cloud)
{
    const int lane = threadIdx.x % 32;
    double *to = a.direct + cloud * 3 * (a.h + 1);
    for (int k = threadIdx.x / 32; k <= a.h; k += MOMENTS_WARPS) {
        weight_sums s = {0, 0, 0};
        for (int64_t p = lane; p < a.D.rows; p += 32)
            sums_add(s, a, e, k, message_get_f64(a.D, cloud, p, 0), message_get_f64(a.U, cloud, p, 0));
        s = {over_lanes(s.w2), over_lanes(s.w0), over_lanes(s.b0)};
        if (lane == 0) to[k] = s.w2, to[a.h + 1 + k] = s.w0, to[2 * (a.h + 1) + k] = s.b0;
    }
}

/* Pairs of a cloud that fall into pieces [base, base + many), to the columns of this lane, 32 doubles apart.
 */
static __device__ __forceinline__ void columns_add(double *columns, const weight_job &a, int64_t cloud,
                                                   float scale, int base, int many)
{
    const int64_t step = 32 * MOMENTS_WARPS;
    for (int64_t first = threadIdx.x; first < a.D.rows; first += AHEAD * step) {
        float d[AHEAD], g[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64_t p = first + i * step;
            d[i] = p < a.D.rows ? message_get(a.D, cloud, p, 0) : -1;
            g[i] = p < a.D.rows ? message_get(a.U, cloud, p, 0) : 0;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float t;
            int r = message_locate(d[i], scale, t) - base;
            if (d[i] < 0 || r < 0 || r >= many) continue;
            double *to = columns + r * TERMS * 32, power = (double)g[i];
#pragma unroll
            for (int q = 0; q < TERMS; q++) {
                to[q * 32] += power;
                power *= (double)t;
            }
        }
    }
}

static __global__ void __launch_bounds__(32 * MOMENTS_WARPS)
    weight_moments(const __grid_constant__ weight_job a)
{
    __shared__ double columns[MOMENTS_WARPS][TILE * TERMS][32];
    const int64_t cloud = blockIdx.x;
    const int e = (int)(cloud / a.clouds), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const message_pieces pieces = a.pieces[e];
    if (a.is_direct[cloud]) {
        cloud_direct(a, e, cloud);
        return;
    }
    for (int base = 0; base < pieces.rows; base += TILE) {
        const int many = min(TILE, pieces.rows - base);
        for (int x = 0; x < many * TERMS; x++) columns[warp][x][lane] = 0;
        columns_add(&columns[warp][0][lane], a, cloud, pieces.scale, base, many);
        __syncthreads();
        FOR_THREADS(x, many * TERMS)
        {
            double sum[MOMENTS_WARPS] = {0}, all = 0;
            for (int i = 0; i < 32; i++) /* from lane x on, so that threads read different banks */
#pragma unroll
                for (int w = 0; w < MOMENTS_WARPS; w++) sum[w] += columns[w][x][(x + i) % 32];
            for (int w = 0; w < MOMENTS_WARPS; w++) all += sum[w];
            a.moments[(cloud * PIECES + base) * TERMS + x] = all;
        }
        __syncthreads();
    }
}

/* A warp a moment: its sum over the member's clouds; then a thread a node. */
static __global__ void weight_nodes(const __grid_constant__ weight_job a)
{
    __shared__ double total[TERMS];
    const int e = blockIdx.x / PIECES, row = blockIdx.x % PIECES, q = threadIdx.x / 32;
    if (row >= a.pieces[e].rows) return;
    double sum = 0;
    for (int c = threadIdx.x % 32; c < a.clouds; c += 32) {
        int64_t cloud = (int64_t)e * a.clouds + c;
        if (!a.is_direct[cloud]) sum += a.moments[(cloud * PIECES + row) * TERMS + q];
    }
    sum = over_lanes(sum);
    if (threadIdx.x % 32 == 0) total[q] = sum;
    __syncthreads();
    FOR_THREADS(m, TERMS)
    a.nodes[((int64_t)e * PIECES + row) * TERMS + m] = message_node_grad(a, total, m);
}

static __global__ void weight_channels(const __grid_constant__ weight_job a)
{
    const int groups = a.h / CHANNELS_WARPS + 1, e = blockIdx.x / groups, lane = threadIdx.x % 32;
    const int k = blockIdx.x % groups * CHANNELS_WARPS + threadIdx.x / 32, nodes = a.pieces[e].rows * TERMS;
    if (k > a.h) return;
    weight_sums s = {0, 0, 0};
    for (int i = lane; i < nodes; i += 32)
        sums_add(s, a, e, k, message_node(a, e, i / TERMS, i % TERMS),
                 a.nodes[(int64_t)e * PIECES * TERMS + i]);
    for (int c = lane; c < a.clouds; c += 32) {
        int64_t cloud = (int64_t)e * a.clouds + c;
        const double *from = a.direct + cloud * 3 * (a.h + 1) + k;
        if (!a.is_direct[cloud]) continue;
        s.w2 += from[0], s.w0 += from[a.h + 1], s.b0 += from[2 * (a.h + 1)];
    }
    s = {over_lanes(s.w2), over_lanes(s.w0), over_lanes(s.b0)};
    if (lane) return;
    if (k == a.h) {
        message_put(a.db2, e, 0, 0, (float)s.w2);
        return;
    }
    message_put(a.dW2, e, 0, k, (float)s.w2);
    message_put(a.dw0, e, k, 0, (float)s.w0);
    message_put(a.db0, e, 0, k, (float)s.b0);
}

/* ---- both directions ---------------------------------------------------------------------------- */

static weight_job forward_job(const pl_args_pair_weight *f)
{
    weight_job a = {};
    a.U = f->U, a.D = f->D, a.w0 = f->w0, a.b0 = f->b0, a.W2 = f->W2;
    return a;
}

static weight_job backward_job(const pl_args_pair_weight_back *b)
{
    weight_job a = {};
    a.U = b->dU, a.D = b->D, a.w0 = b->w0, a.b0 = b->b0, a.W2 = b->W2;
    a.dw0 = b->dw0, a.db0 = b->db0, a.dW2 = b->dW2, a.db2 = b->db2;
    return a;
}

/* Sizes and scratch of a job whose operands are set; its bytes. */
static size_t job_make(weight_job *a, int back, char *base)
{
    size_t used = 0;
    message_mlp_make(a, base, &used);
    a->chunks = (int)((a->D.rows + PAIRS - 1) / PAIRS);
    size_t members = (size_t)a->members, all = members * (size_t)a->clouds, h = (size_t)a->h;
    if (!back) {
        take(a->table, base, &used, members * TERMS * PIECES);
        return used;
    }
    take(a->moments, base, &used, all * PIECES * TERMS);
    take(a->nodes, base, &used, members * PIECES * TERMS);
    take(a->direct, base, &used, all * 3 * (h + 1));
    return used;
}

size_t pl_cuda_pair_weight_scratch(const pl_args_pair_weight *f)
{
    weight_job a = forward_job(f);
    return job_make(&a, 0, NULL);
}

void pl_cuda_launch_pair_weight(cudaStream_t stream, const pl_args_pair_weight *f, void *scratch)
{
    weight_job a = forward_job(f);
    job_make(&a, 0, (char *)scratch);
    const unsigned members = (unsigned)a.members, clouds = members * (unsigned)a.clouds;
    pl_cuda_message_prepare(stream, &a);
    weight_table<<<members * PIECES, TABLE_BLOCK, sizeof(double) * TERMS *(size_t)a.h, stream>>>(a);
    weight_pairs<<<clouds *(unsigned)a.chunks, PAIRS_BLOCK, 0, stream>>>(a);
}

size_t pl_cuda_pair_weight_back_scratch(const pl_args_pair_weight_back *b)
{
    weight_job a = backward_job(b);
    return job_make(&a, 1, NULL);
}

void pl_cuda_launch_pair_weight_back(cudaStream_t stream, const pl_args_pair_weight_back *b, void *scratch)
{
    weight_job a = backward_job(b);
    job_make(&a, 1, (char *)scratch);
    const unsigned members = (unsigned)a.members, clouds = members * (unsigned)a.clouds;
    const unsigned groups = (unsigned)(a.h / CHANNELS_WARPS + 1); /* of h + 1 channels */
    pl_cuda_message_prepare(stream, &a);
    if (clouds) weight_moments<<<clouds, 32 * MOMENTS_WARPS, 0, stream>>>(a);
    weight_nodes<<<members * PIECES, NODES_BLOCK, 0, stream>>>(a);
    weight_channels<<<members * groups, 32 * CHANNELS_WARPS, 0, stream>>>(a);
}

int pl_cuda_weight_suits(const pl_mat *operands, int count, const pl_mat *D, const pl_mat *w0)
{
    for (int i = 0; i < count; i++)
        if (operands[i].dtype != POLAR_DTYPE_F32) return 0;
    const double blocks = (double)D->batch * ((double)D->rows / PAIRS + 1),
                 nodes = (double)w0->batch * PIECES;
    return w0->rows <= MOST_WIDTH && blocks < INT32_MAX && nodes < INT32_MAX;
}
