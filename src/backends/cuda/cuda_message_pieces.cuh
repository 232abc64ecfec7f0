/* cuda_message_pieces.cuh -- the pieces of a member's distances (math/message_pieces.h) on `cuda`: what the
 * fused ops over pairs share, messages (cuda_message.cuh) and one number a pair (cuda_pair_weight.cu). f32.
 */
#ifndef PL_CUDA_MESSAGE_PIECES_CUH
#define PL_CUDA_MESSAGE_PIECES_CUH

#include "cuda_kernels.h"
#include "math/activation_elem.h"
#include "math/message_pieces.h"

#define TERMS      PL_MESSAGE_TERMS
#define PIECES     PL_MESSAGE_ROWS
#define MOST_WIDTH 512 /* hidden channels: what shared memory has room for */

#define FOR_THREADS(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

/* A member's pieces. */
typedef struct {
    double delta; /* width of a piece, a power of two */
    float scale;  /* 1 / delta */
    int rows;     /* pieces that its clouds fall into */
} message_pieces;

/* The MLP of distances of some members, and their pieces. */
struct message_mlp {
    pl_mat D, w0, b0, W2, b2;
    int members, clouds, h; /* clouds: of one member */
    pl_message_basis basis;
    /* scratch */
    message_pieces *pieces; /* (members) */
    int *is_direct;         /* (clouds of all): which way a cloud goes */
};

/* The next piece of the scratch memory, aligned; base NULL: its size alone. */
template <typename T> static inline void take(T *&at, char *base, size_t *used, size_t count)
{
    at = base ? (T *)(base + *used) : NULL;
    *used += (count * sizeof(T) + 255) / 256 * 256;
}

/* Sizes of an MLP whose operands are set, its basis and the scratch of its pieces. */
static inline void message_mlp_make(message_mlp *a, char *base, size_t *used)
{
    a->members = (int)a->w0.batch, a->clouds = (int)(a->D.batch / a->w0.batch), a->h = (int)a->w0.rows;
    pl_message_basis_make(&a->basis);
    take(a->pieces, base, used, (size_t)a->members);
    take(a->is_direct, base, used, (size_t)a->members * (size_t)a->clouds);
}

/* a block per member: the width of its pieces, which clouds they serve (cuda_message.cu) */
extern "C" void pl_cuda_message_prepare(cudaStream_t stream, const message_mlp *a);

static __device__ __forceinline__ float message_get(const pl_mat &m, int64_t b, int64_t i, int64_t j)
{
    return ((const float *)m.data)[b * m.bs + i * m.rs + j];
}

static __device__ __forceinline__ double message_get_f64(const pl_mat &m, int64_t b, int64_t i, int64_t j)
{
    return (double)message_get(m, b, i, j);
}

static __device__ __forceinline__ void message_put(const pl_mat &m, int64_t b, int64_t i, int64_t j, float x)
{
    ((float *)m.data)[b * m.bs + i * m.rs + j] = x;
}

/* The piece that a distance falls into, and t in [-1, 1) there. */
static __device__ __forceinline__ int message_locate(float d, float scale, float &t)
{
    float x = d * scale;
    int piece = (int)x;
    t = 2 * (x - (float)piece) - 1;
    return piece;
}

/* The distance at node m of a piece. */
static __device__ __forceinline__ double message_node(const message_mlp &a, int e, int row, int m)
{
    return a.pieces[e].delta * ((double)row + 0.5 * (1 + a.basis.node[m]));
}

/* w0 d + b0 of hidden channel k. */
static __device__ __forceinline__ double message_hidden(const message_mlp &a, int e, int k, double d)
{
    return fma(message_get_f64(a.w0, e, k, 0), d, message_get_f64(a.b0, e, 0, k));
}

/* The gradient at node m of a piece from its moments. */
static __device__ __forceinline__ double message_node_grad(const message_mlp &a, const double *moments, int m)
{
    double g = 0;
    for (int q = 0; q < TERMS; q++) g = fma(a.basis.of[q][m], moments[q], g);
    return g;
}

#endif
