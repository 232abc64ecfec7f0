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

#include "cuda_message_pieces.cuh"

#define ROW_TERMS    (2 * TERMS) /* of a piece and channel: the scalars' weight, the vectors' */
#define DIRECT_PARTS 8           /* of a member's clouds that take the direct way backward */

/* What both directions know: sums go from the source (S, V or dYs, dYv) to the sink (Ys, Yv or dS, dV). */
struct message_job : message_mlp {
    pl_mat sink_s, sink_v, source_s, source_v;
    pl_mat S, V, dw0, db0, dW2, db2; /* the backward's */
    double alpha;
    int points;
    int channels, groups; /* of a block; blocks that share a cloud */
    int back, parts;      /* parts: of a member's clouds on the direct way */
    /* scratch */
    float *table;      /* (members, PIECES, groups, ROW_TERMS, channels) */
    float *moments;    /* (clouds of all), each as a member's table */
    double *z, *slope; /* (members, PIECES TERMS, h): silu and silu' at the nodes */
    double *dw, *du;   /* (members, PIECES TERMS, 2h), (.., h): gradients at the nodes */
    double *direct;    /* (members, parts, 2h h + 4h): dW2, db2, dw0, db0 of direct clouds */
};

static __device__ __forceinline__ float *message_row(float *base, const message_job &a, int64_t which,
                                                     int row, int group)
{
    return base + ((which * PIECES + row) * a.groups + group) * ROW_TERMS * a.channels;
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
