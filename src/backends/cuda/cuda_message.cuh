/* cuda_message.cuh -- the fused messages of `cuda`, pair_message and pair_message_back: what their kernels
 * share.
 *
 * Weights come from a table over the distance and the MLP's gradients from moments (math/message_pieces.h),
 * so nothing as large as pairs times channels is ever written:
 *
 *     prepare   a block per member: the width of its pieces, which clouds they serve
 *     table     a block per member and piece: the MLP at the piece's nodes, in double
 *     clouds    a block per cloud and `channels` channels: sums over the pairs and, backward, the moments
 *     direct    clouds outside of the table: the MLP at every pair, in double; slow, and rarely any
 *     nodes     a block per member and piece: moments of all its clouds -> gradients at the nodes
 *     weights   a block per member and some rows of W2: gradients of the MLP
 *
 * Every sum has one order, by the shape and the member's own numbers: a member's bits are the same alone and
 * among others.
 */
#ifndef PL_CUDA_MESSAGE_CUH
#define PL_CUDA_MESSAGE_CUH

#include "cuda_kernels.h"
#include "math/message_pieces.h"

#define TERMS        PL_MESSAGE_TERMS
#define PIECES       PL_MESSAGE_ROWS
#define ROW_TERMS    (2 * TERMS) /* of a piece and channel: the scalars' weight, the vectors' */
#define DIRECT_PARTS 8           /* of a member's clouds that take the direct way backward */

/* A member's pieces. */
typedef struct {
    double delta; /* width of a piece, a power of two */
    float scale;  /* 1 / delta */
    int rows;     /* pieces that its clouds fall into */
} message_pieces;

/* What both directions know: sums go from the source (S, V or dYs, dYv) to the sink (Ys, Yv or dS, dV). */
typedef struct {
    pl_mat sink_s, sink_v, source_s, source_v, D, w0, b0, W2, b2;
    pl_mat S, V, dw0, db0, dW2, db2; /* the backward's */
    double alpha;
    int members, clouds, points, h; /* clouds: of one member */
    int channels, groups;           /* of a block; blocks that share a cloud */
    int back, parts;                /* parts: of a member's clouds on the direct way */
    pl_message_basis basis;
    /* scratch */
    message_pieces *pieces; /* (members) */
    int *is_direct;         /* (clouds of all): which way a cloud goes */
    float *table;           /* (members, PIECES, groups, ROW_TERMS, channels) */
    float *moments;         /* (clouds of all), each as a member's table */
    double *z, *slope;      /* (members, PIECES TERMS, h): silu and silu' at the nodes */
    double *dw, *du;        /* (members, PIECES TERMS, 2h), (.., h): gradients at the nodes */
    double *direct;         /* (members, parts, 2h h + 4h): dW2, db2, dw0, db0 of direct clouds */
} message_job;

static __device__ __forceinline__ float *message_row(float *base, const message_job &a, int64_t which,
                                                     int row, int group)
{
    return base + ((which * PIECES + row) * a.groups + group) * ROW_TERMS * a.channels;
}

static __device__ __forceinline__ float message_get(const pl_mat &m, int64_t b, int64_t i, int64_t j)
{
    return ((const float *)m.data)[b * m.bs + i * m.rs + j];
}

static __device__ __forceinline__ void message_put(const pl_mat &m, int64_t b, int64_t i, int64_t j, float x)
{
    ((float *)m.data)[b * m.bs + i * m.rs + j] = x;
}

static __device__ __forceinline__ int message_pair(int points, int i, int j) /* of i and j in any order */
{
    int low = i < j ? i : j, high = i < j ? j : i;
    return low * points - low * (low - 1) / 2 + high - low;
}

/* clouds outside of the table */
extern "C" void pl_cuda_message_direct(cudaStream_t stream, const message_job *a);
/* the MLP's gradients from moments and from the direct clouds */
extern "C" void pl_cuda_message_grads(cudaStream_t stream, const message_job *a);

#endif
