/* cuda_message.cu -- pair_message and pair_message_back: the table of a member's weights, and the sums over
 * the pairs of a cloud (cuda_message.cuh).
 *
 * A block of 8 warps has a cloud and 32 channels (or 16, and the halves of a warp share out the pairs). Its
 * sources lie in shared memory as (s, v) quadruples. A warp has every eighth point i, up to 8 at a time, with
 * their sums in registers, and for each a list of all points j ordered by the piece that d_ij falls into. So
 * a piece's coefficients are loaded once per warp, and a pair costs one load of its t and j, one of the
 * source at j, 10 fma for the two weights, 4 for the sums; backward 4 more for S_i dY_j and V_i . dY_j, whose
 * sum over the ordered pairs is dw's, and 12 for their moments, which the warps add up at a piece's end.
 */
#include "cuda_launch.cuh"
#include "cuda_message.cuh"

#define WARPS   8
#define BLOCK   (32 * WARPS)
#define EACH    8              /* points of a warp at a time */
#define AT_ONCE (WARPS * EACH) /* points of a block at a time */
#define MOST    128            /* points of a cloud: what shared memory has room for */
#define STARTS  (PIECES + 4)   /* bytes of a point's starts */

/* ---- pieces ------------------------------------------------------------------------------------- */

/* Magnitudes are compared as integers, which have the same order; NaN counts as more than infinity. */
static __device__ __forceinline__ unsigned magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

static __device__ unsigned largest(const pl_mat &m, int64_t e)
{
    unsigned most = 0;
    for (int64_t x = threadIdx.x; x < m.rows * m.cols; x += blockDim.x)
        most = max(most, magnitude(message_get(m, e, x / m.cols, x % m.cols)));
    return most;
}

static __global__ void message_prepare(const __grid_constant__ message_mlp a)
{
    __shared__ unsigned most_w0, most_rest;
    __shared__ int rows;
    int e = blockIdx.x, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) most_w0 = most_rest = 0, rows = 0;
    __syncthreads();
    atomicMax(&most_w0, largest(a.w0, e));
    atomicMax(&most_rest, max(largest(a.b0, e), max(largest(a.W2, e), largest(a.b2, e))));
    __syncthreads();
    int usable = max(most_w0, most_rest) < magnitude((float)PL_MESSAGE_LARGE);
    double delta = 1;
    while (usable && delta * (double)__uint_as_float(most_w0) > 0.5) delta *= 0.5;
    /* distances from here on take the direct way; 0: all do */
    unsigned limit = usable ? __float_as_uint((float)(PIECES * delta)) : 0;
    for (int c = threadIdx.x / 32; c < a.clouds; c += blockDim.x / 32) {
        int64_t cloud = (int64_t)e * a.clouds + c;
        unsigned most = 0; /* with its sign: negative numbers are beyond all others */
        for (int64_t p = lane; p < a.D.rows; p += 32)
            most = max(most, __float_as_uint(message_get(a.D, cloud, p, 0)));
        most = __reduce_max_sync(0xffffffffu, most);
        if (lane) continue;
        a.is_direct[cloud] = most >= limit;
        if (most < limit) atomicMax(&rows, (int)((double)__uint_as_float(most) / delta) + 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) a.pieces[e] = {delta, (float)(1 / delta), rows};
}

extern "C" void pl_cuda_message_prepare(cudaStream_t stream, const message_mlp *a)
{
    message_prepare<<<(unsigned)a->members, 512, 0, stream>>>(*a);
}

/* ---- the table ---------------------------------------------------------------------------------- */

#define TABLE_BLOCK 128
#define DEPTH       32 /* hidden channels at a time */

static __global__ void message_table(const __grid_constant__ message_job a)
{
    extern __shared__ double shared[];
    const int row = blockIdx.x, e = blockIdx.y, h = a.h;
    if (row >= a.pieces[e].rows) return;
    double *z = shared, *coef = z + TERMS * h; /* (TERMS, h) each */
    float *tile = (float *)(coef + TERMS * h); /* (TABLE_BLOCK, DEPTH + 1) of W2 */
    int64_t first = ((int64_t)e * PIECES + row) * TERMS * h;
    for (int x = threadIdx.x; x < TERMS * h; x += blockDim.x) {
        double u = message_hidden(a, e, x % h, message_node(a, e, row, x / h));
        z[x] = pl_silu_f64(u);
        if (a.back) a.z[first + x] = z[x], a.slope[first + x] = pl_silu_slope_f64(u);
    }
    __syncthreads();
    for (int x = threadIdx.x; x < TERMS * h; x += blockDim.x) {
        double s = 0;
        for (int m = 0; m < TERMS; m++) s = fma(a.basis.of[x / h][m], z[m * h + x % h], s);
        coef[x] = s;
    }
    __syncthreads();
    for (int base = 0; base < 2 * h; base += TABLE_BLOCK) {
        int c = base + threadIdx.x, half = c >= h, channel = c - half * h;
        double sum[TERMS] = {c < 2 * h ? (double)message_get(a.b2, e, 0, c) : 0};
        for (int k = 0; k < h; k += DEPTH) {
            int deep = min(DEPTH, h - k);
            for (int x = threadIdx.x; x < TABLE_BLOCK * DEPTH; x += TABLE_BLOCK) {
                int r = x / DEPTH, i = x % DEPTH;
                if (base + r < 2 * h && i < deep)
                    tile[r * (DEPTH + 1) + i] = message_get(a.W2, e, base + r, k + i);
            }
            __syncthreads();
            for (int i = 0; i < deep && c < 2 * h; i++) {
                double w = (double)tile[threadIdx.x * (DEPTH + 1) + i];
                for (int q = 0; q < TERMS; q++) sum[q] = fma(coef[q * h + k + i], w, sum[q]);
            }
            __syncthreads();
        }
        if (c >= 2 * h) continue;
        float *to = message_row(a.table, a, e, row, channel / a.channels) + channel % a.channels;
        for (int q = 0; q < TERMS; q++) to[(half * TERMS + q) * a.channels] = (float)sum[q];
    }
    int padded = a.groups * a.channels - h; /* channels that nobody has */
    for (int x = threadIdx.x; x < ROW_TERMS * padded; x += blockDim.x) {
        int channel = h + x % padded;
        message_row(a.table, a, e, row,
                    channel / a.channels)[x / padded * a.channels + channel % a.channels] = 0;
    }
}

static void table_launch(cudaStream_t stream, const message_job *a)
{
    size_t bytes = sizeof(double) * 2 * TERMS * a->h + sizeof(float) * TABLE_BLOCK * (DEPTH + 1);
    cudaFuncSetAttribute(message_table, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    message_table<<<dim3(PIECES, (unsigned)a->members), TABLE_BLOCK, bytes, stream>>>(*a);
}

/* ---- a cloud ------------------------------------------------------------------------------------ */

/* A pair seen from i: t, and where the source of j begins. */
typedef struct {
    float t;
    int at;
} neighbour;

/* The list of point i, ordered by piece, then by j; starts[r] of piece r. All lanes of a warp together. */
template <int CHANNELS, int CHUNKS>
static __device__ __forceinline__ void list_make(neighbour *list, uint8_t *starts, const message_job &a,
                                                 int64_t cloud, int i, int rows, float scale)
{
    int lane = threadIdx.x % 32, piece[CHUNKS], used = 0;
    float t[CHUNKS];
#pragma unroll
    for (int b = 0; b < CHUNKS; b++) {
        int j = b * 32 + lane;
        piece[b] = -1, t[b] = 0;
        if (j >= a.points) continue;
        piece[b] = message_locate(message_get(a.D, cloud, message_pair(a.points, i, j), 0), scale, t[b]);
    }
    for (int r = 0; r < rows; r++) {
        if (lane == 0) starts[r] = (uint8_t)used;
#pragma unroll
        for (int b = 0; b < CHUNKS; b++) {
            unsigned mine = __ballot_sync(0xffffffffu, piece[b] == r), before = mine & ((1u << lane) - 1);
            if (piece[b] == r) list[used + __popc(before)] = {t[b], (b * 32 + lane) * CHANNELS};
            used += __popc(mine);
        }
    }
    if (lane == 0) starts[rows] = (uint8_t)used;
}

static __device__ __forceinline__ float4 point_load(const pl_mat &S, const pl_mat &V, int64_t cloud, int i,
                                                    int c, int in)
{
    if (!in) return make_float4(0, 0, 0, 0);
    return make_float4(message_get(S, cloud, i, c), message_get(V, cloud, 3 * i, c),
                       message_get(V, cloud, 3 * i + 1, c), message_get(V, cloud, 3 * i + 2, c));
}

/* The polynomials of a piece in one channel, and the moments gathered over it. */
typedef struct {
    float s[TERMS], v[TERMS];
} piece_terms;

template <bool BACK>
static __device__ __forceinline__ void pair_add(float4 &sum, piece_terms &m, const piece_terms &c, float t,
                                                float4 x, float4 own)
{
    float ws = c.s[TERMS - 1], wv = c.v[TERMS - 1];
#pragma unroll
    for (int q = TERMS - 2; q >= 0; q--) ws = fmaf(ws, t, c.s[q]), wv = fmaf(wv, t, c.v[q]);
    sum.x = fmaf(ws, x.x, sum.x);
    sum.y = fmaf(wv, x.y, sum.y);
    sum.z = fmaf(wv, x.z, sum.z);
    sum.w = fmaf(wv, x.w, sum.w);
    if (!BACK) return;
    float gs = own.x * x.x, gv = fmaf(own.w, x.w, fmaf(own.z, x.z, own.y * x.y)), power = t;
    m.s[0] += gs;
    m.v[0] += gv;
#pragma unroll
    for (int q = 1; q < TERMS; q++) {
        m.s[q] = fmaf(gs, power, m.s[q]);
        m.v[q] = fmaf(gv, power, m.v[q]);
        power *= t;
    }
}

template <int CHANNELS> static __device__ __forceinline__ float over_halves(float x)
{
    return CHANNELS == 32 ? x : x + __shfl_xor_sync(0xffffffffu, x, 16);
}

/* The block's moments of a piece: every warp's, then their sum in the warps' order; `more` adds it to what is
 * there. */
template <int CHANNELS>
static __device__ __forceinline__ void moments_flush(float *to, float *room, const piece_terms &m, int more)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int q = 0; q < TERMS; q++) {
        float s = over_halves<CHANNELS>(m.s[q]), v = over_halves<CHANNELS>(m.v[q]);
        if (lane >= CHANNELS) continue;
        room[(warp * ROW_TERMS + q) * CHANNELS + lane] = s;
        room[(warp * ROW_TERMS + TERMS + q) * CHANNELS + lane] = v;
    }
    __syncthreads();
    for (int x = threadIdx.x; x < ROW_TERMS * CHANNELS; x += BLOCK) {
        float sum = room[x];
        for (int w = 1; w < WARPS; w++) sum += room[w * ROW_TERMS * CHANNELS + x];
        to[x] = more ? to[x] + sum : sum;
    }
}

static size_t clouds_shared(const message_job *a)
{
    size_t points = (size_t)a->points, moments = a->back ? (size_t)(WARPS * ROW_TERMS * a->channels) : 0;
    return sizeof(float4) * points * (size_t)a->channels + sizeof(neighbour) * AT_ONCE * points +
           2 * sizeof(float) * moments + AT_ONCE * STARTS;
}

template <int CHANNELS, int CHUNKS, bool BACK>
static __global__ void __launch_bounds__(BLOCK, BACK ? 2 : 3)
    message_clouds(const __grid_constant__ message_job a)
{
    extern __shared__ float4 source[]; /* (points, CHANNELS) */
    const int SPLIT = 32 / CHANNELS, room_size = WARPS * ROW_TERMS * CHANNELS;
    const int n = a.points, group = blockIdx.x % a.groups, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int channel = lane % CHANNELS, part = lane / CHANNELS, c = group * CHANNELS + channel;
    const int64_t cloud = blockIdx.x / a.groups;
    const int in = c < a.h, e = (int)(cloud / a.clouds), rows = a.pieces[e].rows;
    neighbour *lists = (neighbour *)(source + n * CHANNELS); /* (AT_ONCE, points) */
    float *room = (float *)(lists + AT_ONCE * n);            /* two of moments_flush, used by turns */
    uint8_t *starts = (uint8_t *)(room + (BACK ? 2 * room_size : 0));
    if (a.is_direct[cloud]) return;
    for (int x = threadIdx.x; x < n * CHANNELS; x += BLOCK) {
        int at = group * CHANNELS + x % CHANNELS;
        source[x] = point_load(a.source_s, a.source_v, cloud, x / CHANNELS, at, at < a.h);
    }
    __syncthreads();
    for (int base = 0; base < n; base += AT_ONCE) {
        float4 sum[EACH], own[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int mine = k * WARPS + warp, i = base + mine;
            sum[k] = own[k] = make_float4(0, 0, 0, 0);
            if (i >= n) continue;
            list_make<CHANNELS, CHUNKS>(lists + mine * n, starts + mine * STARTS, a, cloud, i, rows,
                                        a.pieces[e].scale);
            if (BACK) own[k] = point_load(a.S, a.V, cloud, i, c, in);
        }
        __syncwarp();
        for (int r = 0; r < rows; r++) {
            const float *from = message_row(a.table, a, e, r, group) + channel;
            piece_terms coef, moments;
#pragma unroll
            for (int q = 0; q < TERMS; q++) {
                coef.s[q] = from[q * CHANNELS], coef.v[q] = from[(TERMS + q) * CHANNELS];
                moments.s[q] = moments.v[q] = 0;
            }
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                int mine = k * WARPS + warp;
                if (base + mine >= n) continue;
                const uint8_t *start = starts + mine * STARTS + r;
                const neighbour *p = lists + mine * n + start[0] + part, *end = lists + mine * n + start[1];
#pragma unroll 2
                for (; p < end; p += SPLIT)
                    pair_add<BACK>(sum[k], moments, coef, p->t, source[p->at + channel], own[k]);
            }
            if (BACK)
                moments_flush<CHANNELS>(message_row(a.moments, a, cloud, r, group),
                                        room + (r & 1) * room_size, moments, base > 0);
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int i = base + k * WARPS + warp;
            if (i >= n) continue;
            float4 s = make_float4(over_halves<CHANNELS>(sum[k].x), over_halves<CHANNELS>(sum[k].y),
                                   over_halves<CHANNELS>(sum[k].z), over_halves<CHANNELS>(sum[k].w));
            if (part || !in) continue;
            float4 x = source[i * CHANNELS + channel];
            const float alpha = (float)a.alpha;
            message_put(a.sink_s, cloud, i, c, fmaf(alpha, s.x, x.x));
            message_put(a.sink_v, cloud, 3 * i, c, fmaf(alpha, s.y, x.y));
            message_put(a.sink_v, cloud, 3 * i + 1, c, fmaf(alpha, s.z, x.z));
            message_put(a.sink_v, cloud, 3 * i + 2, c, fmaf(alpha, s.w, x.w));
        }
        __syncthreads(); /* the rooms of the last two pieces have been read */
    }
}

template <int CHANNELS, int CHUNKS> static void clouds_launch_as(cudaStream_t stream, const message_job *a)
{
    auto kernel = a->back ? message_clouds<CHANNELS, CHUNKS, true> : message_clouds<CHANNELS, CHUNKS, false>;
    size_t bytes = clouds_shared(a);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    kernel<<<(unsigned)(a->members * a->clouds * a->groups), BLOCK, bytes, stream>>>(*a);
}

static void clouds_launch(cudaStream_t stream, const message_job *a)
{
    if (a->channels == 32 && a->points <= 64) clouds_launch_as<32, 2>(stream, a);
    else if (a->channels == 32) clouds_launch_as<32, 4>(stream, a);
    else if (a->points <= 64) clouds_launch_as<16, 2>(stream, a);
    else clouds_launch_as<16, 4>(stream, a);
}

/* ---- both directions ---------------------------------------------------------------------------- */

/* Sizes and scratch of a job whose operands are set; its bytes. */
static size_t job_make(message_job *a, int64_t points, int back, char *base)
{
    size_t used = 0;
    message_mlp_make(a, base, &used);
    a->points = (int)points, a->back = back;
    int sixteens = (a->h + 15) / 16;
    a->channels = sixteens % 2 ? 16 : 32;
    a->groups = (a->h + a->channels - 1) / a->channels;
    a->parts = a->clouds < DIRECT_PARTS ? a->clouds : DIRECT_PARTS;
    size_t members = (size_t)a->members, all = members * (size_t)a->clouds, h = (size_t)a->h,
           row = (size_t)(a->groups * a->channels * ROW_TERMS), nodes = members * PIECES * TERMS;
    take(a->table, base, &used, members * PIECES * row);
    if (!back) return used;
    take(a->moments, base, &used, all * PIECES * row);
    take(a->z, base, &used, nodes * h);
    take(a->slope, base, &used, nodes * h);
    take(a->dw, base, &used, nodes * 2 * h);
    take(a->du, base, &used, nodes * h);
    take(a->direct, base, &used, members * (size_t)a->parts * (2 * h * h + 4 * h));
    return used;
}

static void job_run(cudaStream_t stream, message_job *a)
{
    pl_cuda_message_prepare(stream, a);
    table_launch(stream, a);
    clouds_launch(stream, a);
    pl_cuda_message_direct(stream, a);
    if (a->back) pl_cuda_message_grads(stream, a);
}

static message_job forward_job(const pl_args_pair_message *f)
{
    message_job a = {};
    a.sink_s = f->Ys, a.sink_v = f->Yv, a.source_s = f->S, a.source_v = f->V;
    a.D = f->D, a.w0 = f->w0, a.b0 = f->b0, a.W2 = f->W2, a.b2 = f->b2, a.alpha = f->alpha;
    return a;
}

static message_job backward_job(const pl_args_pair_message_back *b)
{
    message_job a = {};
    a.sink_s = b->dS, a.sink_v = b->dV, a.source_s = b->dYs, a.source_v = b->dYv;
    a.D = b->D, a.w0 = b->w0, a.b0 = b->b0, a.W2 = b->W2, a.b2 = b->b2, a.alpha = b->alpha;
    a.S = b->S, a.V = b->V, a.dw0 = b->dw0, a.db0 = b->db0, a.dW2 = b->dW2, a.db2 = b->db2;
    return a;
}

size_t pl_cuda_pair_message_scratch(const pl_args_pair_message *f)
{
    message_job a = forward_job(f);
    return job_make(&a, f->points, 0, NULL);
}

void pl_cuda_launch_pair_message(cudaStream_t stream, const pl_args_pair_message *f, void *scratch)
{
    message_job a = forward_job(f);
    job_make(&a, f->points, 0, (char *)scratch);
    job_run(stream, &a);
}

size_t pl_cuda_pair_message_back_scratch(const pl_args_pair_message_back *b)
{
    message_job a = backward_job(b);
    return job_make(&a, b->points, 1, NULL);
}

void pl_cuda_launch_pair_message_back(cudaStream_t stream, const pl_args_pair_message_back *b, void *scratch)
{
    message_job a = backward_job(b);
    job_make(&a, b->points, 1, (char *)scratch);
    job_run(stream, &a);
}

int pl_cuda_message_suits(const pl_mat *operands, int count, int64_t points)
{
    int64_t blocks = 0, h = 0;
    for (int i = 0; i < count; i++) {
        if (operands[i].dtype != POLAR_DTYPE_F32) return 0;
        blocks = operands[i].batch > blocks ? operands[i].batch : blocks;
        h = i == 0 ? operands[i].cols : h; /* Ys or dS */
    }
    return points <= MOST && h <= MOST_WIDTH && blocks * (h + 31) / 16 < INT32_MAX;
}
