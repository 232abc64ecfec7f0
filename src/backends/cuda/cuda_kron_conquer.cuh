/* cuda_kron_conquer.cuh -- eigenvectors of a symmetric tridiagonal matrix: divide and conquer (Cuppen; Gu and
 * Eisenstat 1995; LAPACK's dstedc), by a block of W warps in double.
 *
 *     T = diag(T_1, T_2) + rho v v^T,  T_i = Q_i D_i Q_i^T   ->   D + rho z z^T,  z = (Q_1's last row, Q_2's
 * first)
 *
 * Leaves of at most `leaf` rows are a warp's each, by QL with implicit shifts; then all merges of a level go
 * together. Entries z that do not matter, and of equal d all but one, are deflated; the others' eigenvalues
 * come from cuda_kron_secular.cuh, and z is made anew from them (Loewner's formula), so that vectors are
 * orthogonal whatever the eigenvalues' errors.
 *
 * Vectors are rows of Z. Eigenvalues are in no order.
 *
 * Invariants
 *  1. The tree is one of n and leaf alone: node q of c lies between q n / c and (q + 1) n / c.
 *  2. Outside of its node a row of Z is anything, inside a vector, zeros included, once its level is merged.
 */
#ifndef PL_CUDA_KRON_CONQUER_CUH
#define PL_CUDA_KRON_CONQUER_CUH

#include "cuda_kron_secular.cuh"
#include "cuda_kron_tridiagonal.cuh"

#define MOST_TURNED 60 /* steps of QL for an eigenvalue; three are many */

/* What merges keep; arrays of n. */
struct merge_work {
    double *z, *pole, *weight, *root; /* z; of those that are left d and z, compact; their roots */
    double *cosine, *sine;            /* turns that deflate */
    int *order, *left, *origin, *turned, *against;
    int *count, *turns; /* of a node: what is left, turns */
};

static __host__ __device__ inline int64_t merge_vectors(int64_t n)
{
    return 6 * n + (7 * n + 1) / 2;
}

__device__ __forceinline__ merge_work merge_of(const eigen_work &m)
{
    merge_work g;
    g.z = m.vectors, g.pole = g.z + m.n, g.weight = g.pole + m.n, g.root = g.weight + m.n;
    g.cosine = g.root + m.n, g.sine = g.cosine + m.n;
    g.order = (int *)(g.sine + m.n), g.left = g.order + m.n, g.origin = g.left + m.n;
    g.turned = g.origin + m.n, g.against = g.turned + m.n;
    g.count = g.against + m.n, g.turns = g.count + m.n;
    return g;
}

/* Where part q of c begins. */
__device__ __forceinline__ int part_begin(int n, int c, int q)
{
    return (int)((int64_t)q * n / c);
}

/* A node of a level of `nodes` and its two halves. */
struct node {
    int q, begin, middle, end;
};

__device__ __forceinline__ node node_at(int n, int nodes, int q)
{
    node x = {q, part_begin(n, nodes, q), part_begin(n, 2 * nodes, 2 * q + 1), part_begin(n, nodes, q + 1)};
    return x;
}

__device__ __forceinline__ node node_with(int n, int nodes, int i)
{
    int q = (int)((int64_t)i * nodes / n);
    while (part_begin(n, nodes, q) > i) q--;
    while (part_begin(n, nodes, q + 1) <= i) q++;
    return node_at(n, nodes, q);
}

/* ---- leaves ------------------------------------------------------------------------------------- */

/* One step of QL on rows [l, last] with its shift; lane c turns component c of the vectors, rows of z. What
 * stands beside row `last` is nothing, or, behind the leaf, another's. */
__device__ __forceinline__ void ql_step(double *d, double *e, double *z, int n, int l, int last, bool inside,
                                        bool mine)
{
    const int lane = threadIdx.x % 32;
    const double half = (d[l + 1] - d[l]) / (2 * e[l]), length = sqrt(fma(half, half, 1.0));
    double g = d[last] - d[l] + e[l] / (half + (half < 0 ? -length : length)), s = 1, c = 1, p = 0;
    double above = d[last], y = mine ? z[(int64_t)last * n] : 0, ei = e[last - 1], di = d[last - 1];
    double x = mine ? z[(int64_t)(last - 1) * n] : 0;
    bool cut = false;
#pragma unroll 1
    for (int i = last - 1; i >= l; i--) {
        __syncwarp(); /* all have read what is written from here on */
        const double f = s * ei, b = c * ei, square = fma(f, f, g * g);
        const int next = max(i - 1, l);
        const double e_next = e[next], d_next = d[next], x_next = mine ? z[(int64_t)next * n] : 0;
        if (square < 0x1p-1000) { /* the matrix falls apart here */
            if (lane == 0) d[i + 1] = above - p;
            if (lane == 0 && i + 1 < last) e[i + 1] = 0;
            cut = true;
            if (mine) z[(int64_t)(i + 1) * n] = y;
            break;
        }
        const double r = rsqrt(square), length_i = square * r;
        s = f * r, c = g * r;
        g = above - p;
        const double t = fma(di - g, s, 2 * c * b);
        p = s * t;
        if (lane == 0) d[i + 1] = g + p;
        if (lane == 0 && i + 1 < last) e[i + 1] = length_i;
        g = fma(c, t, -b);
        if (mine) z[(int64_t)(i + 1) * n] = fma(s, x, c * y);
        y = fma(c, x, -(s * y));
        above = di, di = d_next, ei = e_next, x = x_next;
    }
    __syncwarp(); /* the last step has read row l, in vain */
    if (!cut) {
        if (lane == 0) d[l] = above - p, e[l] = g;
        if (mine) z[(int64_t)l * n] = y;
    }
    if (lane == 0 && inside) e[last] = 0;
    __syncwarp();
}

/* A warp makes rows [0, size) of z the vectors of the tridiagonal matrix (d, e). n: from row to row. */
static __device__ void ql_leaf(double *d, double *e, double *z, int n, int size)
{
    const int lane = threadIdx.x % 32;
    const bool mine = lane < size;
    for (int i = 0; i < size && mine; i++) z[(int64_t)i * n + lane] = i == lane;
    __syncwarp();
#pragma unroll 1
    for (int l = 0; l < size - 1; l++) {
#pragma unroll 1
        for (int turn = 0; turn < MOST_TURNED; turn++) {
            bool small = lane == size - 1;
            if (lane < size - 1) {
                const double off = fabs(e[lane]);
                small = off <= 0x1p-53 * (fabs(d[lane]) + fabs(d[lane + 1])) || off < 0x1p-300;
            }
            const unsigned ends = __ballot_sync(PL_WARP_LANES, small && lane >= l);
            const int last = __ffs((int)ends) - 1;
            if (last <= l) break;
            ql_step(d, e, z + lane, n, l, last, last < size - 1, mine);
        }
    }
}

/* The matrix is torn where leaves meet, and the leaves are solved. */
template <int W> __device__ void solve_leaves(const eigen_work &m, int leaves)
{
    const int n = m.n;
    for (int q = 1 + threadIdx.x; q < leaves; q += 32 * W) {
        const int at = part_begin(n, leaves, q);
        const double off = fabs(m.e[at - 1]);
        m.d[at - 1] -= off; /* a row beside two cuts is in a leaf of one row: there is none */
        m.d[at] -= off;
    }
    __syncthreads();
#pragma unroll 1
    for (int q = threadIdx.x / 32; q < leaves; q += W) {
        const int begin = part_begin(n, leaves, q), end = part_begin(n, leaves, q + 1);
        ql_leaf(m.d + begin, m.e + begin, m.Z + (int64_t)begin * n + begin, n, end - begin);
    }
    __syncthreads();
}

/* ---- deflation ---------------------------------------------------------------------------------- */

/* z of every entry, zeros where its vector ends, and the order of a node's d. */
template <int W> __device__ void merge_begin(const eigen_work &m, const merge_work &g, int nodes)
{
    const int n = m.n, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < n; i += 32 * W) {
        const node x = node_with(n, nodes, i);
        const double *row = m.Z + (int64_t)i * n, sign = m.e[x.middle - 1] < 0 ? -1 : 1;
        g.z[i] = 0.70710678118654752440 * (i < x.middle ? row[x.middle - 1] : sign * row[x.middle]);
        int before = 0;
        for (int k = x.begin; k < x.end; k++) before += m.d[k] < m.d[i] || (m.d[k] == m.d[i] && k < i);
        g.order[x.begin + before] = i;
    }
    for (int i = threadIdx.x / 32; i < n; i += W) {
        const node x = node_with(n, nodes, i);
        const int from = i < x.middle ? x.middle : x.begin, to = i < x.middle ? x.end : x.middle;
        for (int j = from + lane; j < to; j += 32) m.Z[(int64_t)i * n + j] = 0;
    }
    __syncthreads();
}

__device__ __forceinline__ void keep_entry(const eigen_work &m, const merge_work &g, int to, int i)
{
    g.left[to] = i, g.pole[to] = m.d[i], g.weight[to] = g.z[i];
}

/* A thread goes through a node's entries in order (LAPACK's dlaed2). top: of |d| and |z|. */
static __device__ void deflate_node(const eigen_work &m, const merge_work &g, const node &x, double top)
{
    const double rho = 2 * fabs(m.e[x.middle - 1]), tol = 8 * 0x1p-53 * top;
    int left = x.begin, turns = x.begin, held = -1;
#pragma unroll 1
    for (int at = x.begin; at < x.end; at++) {
        const int i = g.order[at];
        if (!(rho * fabs(g.z[i]) > tol)) continue;
        if (held >= 0) {
            const double length = sqrt(fma(g.z[i], g.z[i], g.z[held] * g.z[held])), c = g.z[i] / length,
                         s = -g.z[held] / length, low = m.d[held], high = m.d[i];
            if (fabs((high - low) * c * s) <= tol) {
                g.z[i] = length, g.z[held] = 0;
                m.d[held] = low * c * c + high * s * s, m.d[i] = low * s * s + high * c * c;
                g.turned[turns] = held, g.against[turns] = i;
                g.cosine[turns] = c, g.sine[turns] = s, turns++;
            } else keep_entry(m, g, left++, held);
        }
        held = i;
    }
    if (held >= 0) keep_entry(m, g, left++, held);
    g.count[x.q] = left - x.begin, g.turns[x.q] = turns - x.begin;
}

template <int W> __device__ void deflate(const eigen_work &m, const merge_work &g, int nodes)
{
    const int n = m.n, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int q = threadIdx.x / 32; q < nodes; q += W) {
        const node x = node_at(n, nodes, q);
        double top = 0;
        for (int i = x.begin + lane; i < x.end; i += 32) top = fmax(top, fmax(fabs(m.d[i]), fabs(g.z[i])));
        for (int half = 16; half > 0; half /= 2) top = fmax(top, __shfl_xor_sync(PL_WARP_LANES, top, half));
        __syncwarp(); /* all have read what lane 0 changes: exchanges order no memory */
        if (lane == 0) deflate_node(m, g, x, top);
        __syncwarp();
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += 32 * W) { /* a thread turns component j */
        const node x = node_with(n, nodes, j);
#pragma unroll 1
        for (int t = x.begin; t < x.begin + g.turns[x.q]; t++) {
            double *p = m.Z + (int64_t)g.turned[t] * n + j, *r = m.Z + (int64_t)g.against[t] * n + j;
            const double a = *p, b = *r, c = g.cosine[t], s = g.sine[t];
            *p = fma(c, a, s * b), *r = fma(c, b, -(s * a));
        }
    }
}

/* ---- what is left ------------------------------------------------------------------------------- */

/* Roots, then U's rows: the vectors in the coordinates of what is left. */
template <int W> __device__ void merge_vectors_of(const eigen_work &m, const merge_work &g, int nodes)
{
    const int n = m.n, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < n; i += 32 * W) {
        const node x = node_with(n, nodes, i);
        const int k = g.count[x.q];
        if (i - x.begin < k)
            g.root[i] = secular_root(g.pole + x.begin, g.weight + x.begin, k, i - x.begin,
                                     2 * fabs(m.e[x.middle - 1]), &g.origin[i]);
    }
    __syncthreads();
    for (int i = warp; i < n; i += W) { /* d_j - lambda_i */
        const node x = node_with(n, nodes, i);
        const int k = g.count[x.q];
        if (i - x.begin >= k) continue;
        const double from = g.pole[x.begin + g.origin[i]], root = g.root[i];
        double *row = m.U + (int64_t)i * n + x.begin;
        for (int j = lane; j < k; j += 32) row[j] = (g.pole[x.begin + j] - from) - root;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 32 * W) { /* z anew */
        const node x = node_with(n, nodes, i);
        const int k = g.count[x.q];
        if (i - x.begin >= k) continue;
        double w = -m.U[(int64_t)i * n + i];
#pragma unroll 2
        for (int r = x.begin; r < x.begin + k; r++)
            if (r != i) w *= m.U[(int64_t)r * n + i] / (g.pole[i] - g.pole[r]);
        g.weight[i] = copysign(sqrt(w), g.weight[i]);
    }
    __syncthreads();
    for (int i = warp; i < n; i += W) {
        const node x = node_with(n, nodes, i);
        const int k = g.count[x.q];
        if (i - x.begin >= k) continue;
        double *row = m.U + (int64_t)i * n + x.begin, sum = 0;
        for (int j = lane; j < k; j += 32) {
            const double y = g.weight[x.begin + j] / row[j];
            row[j] = y;
            sum = fma(y, y, sum);
        }
        sum = 1 / sqrt(lanes_sum(sum));
        for (int j = lane; j < k; j += 32) row[j] *= sum;
    }
    __syncthreads();
}

/* A tile of Y = U Z, of the rows of Z that are left. */
template <int W>
__device__ void merge_tile(const eigen_work &m, const merge_work &g, const node &x, int row, int col)
{
    const int k = g.count[x.q];
    const auto vectors = [&](int i, int j) {
        i += row;
        return i < k && j < k ? m.U[(int64_t)(x.begin + i) * m.n + x.begin + j] : 0;
    };
    const auto before = [&](int i, int j) {
        j += x.begin + col;
        return i < k && j < x.end ? m.Z[(int64_t)g.left[x.begin + i] * m.n + j] : 0;
    };
    const auto put = [&](int i, int j, double y) {
        i += row, j += x.begin + col;
        if (i < k && j < x.end) m.Y[(int64_t)(x.begin + i) * m.n + j] = y;
    };
    tile_product<W>(m.shared, k, vectors, before, put);
}

/* Y, and its rows and the roots in the places of what was left. */
template <int W> __device__ void merge_end(const eigen_work &m, const merge_work &g, int nodes)
{
    using S = tiling<W>;
    const int n = m.n, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int q = 0; q < nodes; q++) {
        const node x = node_at(n, nodes, q);
#pragma unroll 1
        for (int row = 0; row < g.count[q]; row += S::ROWS)
#pragma unroll 1
            for (int col = 0; col < x.end - x.begin; col += S::COLS) merge_tile<W>(m, g, x, row, col);
    }
    __syncthreads();
    for (int i = threadIdx.x / 32; i < n; i += W) {
        const node x = node_with(n, nodes, i);
        if (i - x.begin >= g.count[x.q]) continue;
        const int to = g.left[i];
        for (int j = x.begin + lane; j < x.end; j += 32) m.Z[(int64_t)to * n + j] = m.Y[(int64_t)i * n + j];
        if (lane == 0) m.d[to] = g.pole[x.begin + g.origin[i]] + g.root[i];
    }
    __syncthreads();
}

/* d: eigenvalues of the tridiagonal matrix (d, e), rows of Z: its vectors. The phase's vectors:
 * merge_vectors(n); shared: tiling<W>::DOUBLES. */
template <int W> __device__ void conquer(const eigen_work &m, int leaf)
{
    const merge_work g = merge_of(m);
    int leaves = 1;
    while (m.n > leaf * leaves) leaves *= 2;
    solve_leaves<W>(m, leaves);
    if constexpr (W > 1) { /* a warp's matrices are leaves */
#pragma unroll 1
        for (int nodes = leaves / 2; nodes > 0; nodes /= 2) {
            merge_begin<W>(m, g, nodes);
            deflate<W>(m, g, nodes);
            merge_vectors_of<W>(m, g, nodes);
            merge_end<W>(m, g, nodes);
        }
    }
}

#endif
