/* cuda_message_grad.cu -- pair_message's clouds outside of the table, and the gradients of its MLP from
 * moments (cuda_message.cuh). All in double. */
#include "cuda_message.cuh"

/* ---- the direct way: the MLP at every pair ------------------------------------------------------ */

#define DIRECT_BLOCK 256

/* sink_i += w source_j in channel x of 2h. */
static __device__ __forceinline__ void direct_add(const message_job &a, int64_t cloud, int i, int j, int x,
                                                  float w)
{
    const int h = a.h, many = x < h ? 1 : 3, c = x < h ? x : x - h;
    const pl_mat &to = x < h ? a.sink_s : a.sink_v, &from = x < h ? a.source_s : a.source_v;
    for (int d = 0; d < many; d++)
        message_put(
            to, cloud, many * i + d, c,
            fmaf(w, message_get(from, cloud, many * j + d, c), message_get(to, cloud, many * i + d, c)));
}

/* dY_i X_j in channel x of 2h. */
static __device__ __forceinline__ double direct_dw(const message_job &a, int64_t cloud, int i, int j, int x)
{
    const int h = a.h, many = x < h ? 1 : 3, c = x < h ? x : x - h;
    const pl_mat &dY = x < h ? a.source_s : a.source_v, &X = x < h ? a.S : a.V;
    double s = 0;
    for (int d = 0; d < many; d++)
        s = fma(message_get_f64(dY, cloud, many * i + d, c), message_get_f64(X, cloud, many * j + d, c), s);
    return s;
}

/* The pair's part of the MLP's gradients; sum: dW2, db2, dw0, db0. */
static __device__ void direct_grads(const message_job &a, int e, double d, double *sum, const double *z,
                                    const double *slope, const double *dw)
{
    const int h = a.h;
    double *db2 = sum + 2 * h * h, *dw0 = db2 + 2 * h, *db0 = dw0 + h;
    FOR_THREADS(x, 2 * h * h) sum[x] = fma(dw[x / h], z[x % h], sum[x]);
    FOR_THREADS(x, 2 * h) db2[x] += dw[x];
    FOR_THREADS(k, h)
    {
        double du = 0;
        for (int x = 0; x < 2 * h; x++) du = fma(message_get_f64(a.W2, e, x, k), dw[x], du);
        du *= slope[k];
        dw0[k] = fma(du, d, dw0[k]);
        db0[k] += du;
    }
}

static __device__ void direct_cloud(const message_job &a, int e, int64_t cloud, double *sum, double *room)
{
    const int n = a.points, h = a.h;
    double *z = room, *slope = z + h, *dw = slope + h; /* (h), (h), (2h) */
    FOR_THREADS(x, 4 * n * h)
    {
        if (x < n * h) message_put(a.sink_s, cloud, x / h, x % h, 0);
        else message_put(a.sink_v, cloud, x / h - n, x % h, 0);
    }
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double d = message_get_f64(a.D, cloud, message_pair(n, i, j), 0);
            __syncthreads();
            FOR_THREADS(k, h)
            {
                double u = message_hidden(a, e, k, d);
                z[k] = pl_silu_f64(u);
                if (a.back) slope[k] = pl_silu_slope_f64(u);
            }
            __syncthreads();
            FOR_THREADS(x, 2 * h)
            {
                double w = message_get_f64(a.b2, e, 0, x);
                for (int k = 0; k < h; k++) w = fma(message_get_f64(a.W2, e, x, k), z[k], w);
                direct_add(a, cloud, i, j, x, (float)w);
                if (i != j) direct_add(a, cloud, j, i, x, (float)w);
                if (!a.back) continue;
                double g = direct_dw(a, cloud, i, j, x);
                dw[x] = a.alpha * (i == j ? g : g + direct_dw(a, cloud, j, i, x));
            }
            __syncthreads();
            if (a.back) direct_grads(a, e, d, sum, z, slope, dw);
        }
    __syncthreads();
    FOR_THREADS(x, 4 * n * h)
    {
        const pl_mat &to = x < n * h ? a.sink_s : a.sink_v, &from = x < n * h ? a.source_s : a.source_v;
        int row = x < n * h ? x / h : x / h - n;
        message_put(
            to, cloud, row, x % h,
            fmaf((float)a.alpha, message_get(to, cloud, row, x % h), message_get(from, cloud, row, x % h)));
    }
    __syncthreads();
}

/* A block per cloud, backward per part of a member's clouds, whose gradients it adds in order. */
static __global__ void message_direct(const __grid_constant__ message_job a)
{
    extern __shared__ double room[];
    const int blocks = a.back ? a.parts : a.clouds, e = blockIdx.x / blocks, part = blockIdx.x % blocks;
    const int each = (a.clouds + blocks - 1) / blocks, size = 2 * a.h * a.h + 4 * a.h;
    const int end = min((part + 1) * each, a.clouds);
    double *sum = a.back ? a.direct + (int64_t)blockIdx.x * size : NULL;
    if (a.back) FOR_THREADS(x, size) sum[x] = 0;
    for (int c = part * each; c < end; c++) {
        int64_t cloud = (int64_t)e * a.clouds + c;
        if (a.is_direct[cloud]) direct_cloud(a, e, cloud, sum, room);
    }
}

extern "C" void pl_cuda_message_direct(cudaStream_t stream, const message_job *a)
{
    int blocks = a->members * (a->back ? a->parts : a->clouds);
    message_direct<<<(unsigned)blocks, DIRECT_BLOCK, sizeof(double) * 4 * (size_t)a->h, stream>>>(*a);
}

/* ---- gradients at the nodes --------------------------------------------------------------------- */

#define NODES_BLOCK 128

static __global__ void message_nodes(const __grid_constant__ message_job a)
{
    extern __shared__ double dw[]; /* (TERMS, 2h) */
    const int row = blockIdx.x, e = blockIdx.y, h = a.h;
    if (row >= a.pieces[e].rows) return;
    int64_t first = ((int64_t)e * PIECES + row) * TERMS;
    FOR_THREADS(x, 2 * h)
    {
        int half = x >= h, channel = x - half * h, group = channel / a.channels;
        double total[TERMS] = {0};
        for (int c = 0; c < a.clouds; c++) {
            int64_t cloud = (int64_t)e * a.clouds + c;
            if (a.is_direct[cloud]) continue;
            const float *m = message_row(a.moments, a, cloud, row, group) + channel % a.channels;
            for (int q = 0; q < TERMS; q++) total[q] += (double)m[(half * TERMS + q) * a.channels];
        }
        for (int m = 0; m < TERMS; m++) {
            double g = a.alpha * message_node_grad(a, total, m);
            dw[m * 2 * h + x] = g;
            a.dw[(first + m) * 2 * h + x] = g;
        }
    }
    __syncthreads();
    FOR_THREADS(k, h)
    {
        double sum[TERMS] = {0};
        for (int x = 0; x < 2 * h; x++) {
            double w = message_get_f64(a.W2, e, x, k);
            for (int m = 0; m < TERMS; m++) sum[m] = fma(dw[m * 2 * h + x], w, sum[m]);
        }
        for (int m = 0; m < TERMS; m++) a.du[(first + m) * h + k] = sum[m] * a.slope[(first + m) * h + k];
    }
}

/* ---- gradients of the weights ------------------------------------------------------------------- */

#define WEIGHTS_BLOCK 128
#define W2_ROWS       8 /* of a block */

/* What the direct clouds of member e add to number x of (dW2, db2, dw0, db0). */
static __device__ __forceinline__ double direct_sum(const message_job &a, int e, int x)
{
    int64_t size = 2 * a.h * a.h + 4 * a.h;
    double s = 0;
    for (int p = 0; p < a.parts; p++) s += a.direct[((int64_t)e * a.parts + p) * size + x];
    return s;
}

/* Rows [first, first + W2_ROWS) of dW2 and db2; the weights of a node's polynomials add up to 1, so the
 * gradients at the nodes do to db2. */
static __device__ void weights_rows(const message_job &a, int e, int nodes, int first)
{
    const int h = a.h, many = min(W2_ROWS, 2 * h - first), lane = threadIdx.x % 32;
    const double *dw = a.dw + (int64_t)e * PIECES * TERMS * 2 * h + first;
    const double *z = a.z + (int64_t)e * PIECES * TERMS * h;
    FOR_THREADS(k, h)
    {
        double sum[W2_ROWS] = {0};
        for (int i = 0; i < nodes; i++) {
            double zi = z[(int64_t)i * h + k];
#pragma unroll
            for (int r = 0; r < W2_ROWS; r++)
                if (r < many) sum[r] = fma(dw[(int64_t)i * 2 * h + r], zi, sum[r]);
        }
#pragma unroll
        for (int r = 0; r < W2_ROWS; r++)
            if (r < many)
                message_put(a.dW2, e, first + r, k, (float)(sum[r] + direct_sum(a, e, (first + r) * h + k)));
    }
    for (int r = threadIdx.x / 32; r < many; r += WEIGHTS_BLOCK / 32) {
        double s = 0;
        for (int i = lane; i < nodes; i += 32) s += dw[(int64_t)i * 2 * h + r];
        for (int k = 16; k > 0; k /= 2) s += __shfl_xor_sync(0xffffffffu, s, k);
        if (lane == 0)
            message_put(a.db2, e, 0, first + r, (float)(s + direct_sum(a, e, 2 * h * h + first + r)));
    }
}

static __device__ void weights_hidden(const message_job &a, int e, int nodes)
{
    const int h = a.h, at = 2 * h * h + 2 * h;
    const double *du = a.du + (int64_t)e * PIECES * TERMS * h;
    FOR_THREADS(k, h)
    {
        double dw0 = 0, db0 = 0;
        for (int i = 0; i < nodes; i++) {
            double d = message_node(a, e, i / TERMS, i % TERMS);
            dw0 = fma(du[(int64_t)i * h + k], d, dw0);
            db0 += du[(int64_t)i * h + k];
        }
        message_put(a.dw0, e, k, 0, (float)(dw0 + direct_sum(a, e, at + k)));
        message_put(a.db0, e, 0, k, (float)(db0 + direct_sum(a, e, at + h + k)));
    }
}

static __global__ void message_weights(const __grid_constant__ message_job a)
{
    const int e = blockIdx.y, nodes = a.pieces[e].rows * TERMS, first = blockIdx.x * W2_ROWS;
    if (first < 2 * a.h) weights_rows(a, e, nodes, first);
    else weights_hidden(a, e, nodes);
}

extern "C" void pl_cuda_message_grads(cudaStream_t stream, const message_job *a)
{
    const size_t bytes = sizeof(double) * TERMS * 2 * (size_t)a->h;
    const unsigned members = (unsigned)a->members, tiles = (unsigned)(2 * a->h + W2_ROWS - 1) / W2_ROWS;
    cudaFuncSetAttribute(message_nodes, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    message_nodes<<<dim3(PIECES, members), NODES_BLOCK, bytes, stream>>>(*a);
    message_weights<<<dim3(tiles + 1, members), WEIGHTS_BLOCK, 0, stream>>>(*a);
}
