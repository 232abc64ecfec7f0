/* cuda_host.h -- CUDA kernels as they stand, run on the host: the words and functions of CUDA C++ that they
 * use, threads of a block as fibers of one host thread.
 *
 * convert_cuda.py turns a preprocessed .cu file into C++: launches become calls, every inline assembly text
 * is read and done at run time (host_ptx.cpp), shared memory belongs to the host thread that runs a block.
 *
 * What it shows: that kernels compute what they should under any order of their threads, that no thread
 * waits for ever, and that no shared memory is read before it is written where that would be seen (it begins
 * as NaN). What it does not: speed, a GPU's rounding of sums inside tensor cores, its memory model. Accesses
 * that nothing orders are found by a build of their own (host_race.h).
 *
 * Invariants
 *  1. A block runs on one host thread from its beginning to its end; its fibers never change thread, so that
 *     thread_local is the block's own.
 *  2. A fiber runs until it waits: at a barrier, in an exchange of its warp, or where it looks in vain for
 *     something that others do (poll). Nothing that only a lockstep would promise holds.
 *  3. An exchange (meet) is done by the last lane that comes, on behalf of all.
 *  4. Blocks begin in the order of their numbers, a cluster's together, WORKERS at a time: as many as the
 *     device says it has multiprocessors, so kernels whose blocks wait for each other get what they count on.
 */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

/* ---- words -------------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __shared__      static thread_local
#define __grid_constant__
#define __launch_bounds__(...)

#define VECTOR2(T, name, bytes)                 \
    struct alignas(bytes) name {                \
        T x, y;                                 \
    };                                          \
    inline constexpr name make_##name(T x, T y) \
    {                                           \
        return {x, y};                          \
    }
#define VECTOR4(T, name, bytes)                           \
    struct alignas(bytes) name {                          \
        T x, y, z, w;                                     \
    };                                                    \
    inline constexpr name make_##name(T x, T y, T z, T w) \
    {                                                     \
        return {x, y, z, w};                              \
    }
VECTOR2(float, float2, 8)
VECTOR2(double, double2, 16)
VECTOR2(unsigned, uint2, 8)
VECTOR2(int, int2, 8)
VECTOR4(float, float4, 16)
VECTOR4(unsigned, uint4, 16)
VECTOR4(int, int4, 16)
VECTOR4(unsigned short, ushort4, 8)
VECTOR4(unsigned char, uchar4, 4)
#undef VECTOR2
#undef VECTOR4

struct float3 {
    float x, y, z;
};

inline constexpr float3 make_float3(float x, float y, float z)
{
    return {x, y, z};
}

/* ---- threads ------------------------------------------------------------------------------------ */

extern __thread dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the fiber that runs */

namespace cuda_host
{

constexpr int WORKERS = 8; /* blocks at once, and the device's multiprocessors */
constexpr unsigned ALL_LANES = 0xffffffffu;

struct block;
struct fiber;
namespace race
{
struct actor;
}

struct thread {
    dim3 index;
    unsigned number, lane, warp; /* in the block, in the warp, of the warp */
    fiber *of;
    race::actor *clock; /* null: races are not looked for (host_race.h) */
};

extern __thread thread *now;

/* Lets the other fibers of the block run: the caller waits for something that they, or other blocks, do. */
void poll();
void stop(const char *why); /* says where, and ends the program */

/* A barrier of `count` threads of the block, 0: of all that have not ended; the sums of `add` and of its
 * truth over those that met. */
struct met {
    int threads, sum, truths;
};
met barrier(int id, int count, int add = 0);

/* Lanes of a warp (or, `group`, all threads of four warps) come with something each, and the last one acts
 * on what they brought: mine[lane], null for lanes that did not come. */
typedef void action(void **mine);
void meet(unsigned mask, void *mine, action *act, bool group = false);

/* For the race detector, where it is linked in. */
void join_lanes(void **lanes); /* an action: memory is ordered among them */
void fence();
void atomic_access(const void *at, size_t bytes);

void *dynamic_shared();
uint32_t shared_address(const void *p);      /* of this block's shared memory */
void *shared_pointer(uint32_t address);      /* of any block of the cluster */
uint32_t remote_address(uint32_t, uint32_t); /* the same place in the block with that rank */
uint32_t cluster_size(), cluster_rank();
void cluster_arrive(), cluster_wait();

/* ---- kernels ------------------------------------------------------------------------------------ */

typedef void invoke(const void *kernel, void **args);

/* What is to know of a kernel in order to call it: written down when its address is first taken. */
struct signature {
    invoke *call;
    int args;
    const size_t *sizes;
};
void enrol(const void *kernel, signature s);

template <class... P> struct caller {
    static constexpr size_t sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    template <size_t... I> static void call_all(const void *kernel, void **args, std::index_sequence<I...>)
    {
        ((void (*)(P...))kernel)(*(std::remove_const_t<P> *)args[I]...);
    }
    static void call(const void *kernel, void **args)
    {
        call_all(kernel, args, std::index_sequence_for<P...>());
    }
};

template <class... P> const void *address(void (*kernel)(P...))
{
    enrol((const void *)kernel, {caller<P...>::call, (int)sizeof...(P), caller<P...>::sizes});
    return (const void *)kernel;
}

template <class T> const void *address(T *data)
{
    return (const void *)data;
}

template <class... P> struct launch_of {
    void (*kernel)(P...);
    cudaLaunchConfig_t config;
    launch_of(void (*k)(P...), dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr)
        : kernel(k), config{grid, block, shared, stream, nullptr, 0}
    {
    }
    template <class... A> cudaError_t operator()(const A &...args)
    {
        std::tuple<std::remove_const_t<P>...> own(args...);
        return std::apply(
            [this](auto &...x) {
                void *list[] = {(void *)&x..., nullptr};
                return cudaLaunchKernelExC(&config, address(kernel), list);
            },
            own);
    }
};

} // namespace cuda_host

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    cuda_host::launch_of<P...> launch(kernel, 1, 1);
    launch.config = *config;
    return launch(args...);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute which, int value)
{
    return cudaFuncSetAttribute(cuda_host::address(kernel), which, value);
}

template <class... P>
cudaError_t cudaOccupancyMaxActiveClusters(int *out, void (*)(P...), const cudaLaunchConfig_t *config)
{
    unsigned size = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            size = config->attrs[i].val.clusterDim.x;
    *out = cuda_host::WORKERS / (int)size;
    return cudaSuccess;
}

/* ---- barriers and exchanges --------------------------------------------------------------------- */

inline void __syncthreads()
{
    cuda_host::barrier(0, 0);
}

inline int __syncthreads_or(int x)
{
    return cuda_host::barrier(0, 0, x).truths != 0;
}

inline int __syncthreads_count(int x)
{
    return cuda_host::barrier(0, 0, x).truths;
}

inline void __syncwarp(unsigned mask = cuda_host::ALL_LANES)
{
    cuda_host::meet(mask, cuda_host::now, cuda_host::join_lanes);
}

inline void __threadfence()
{
    cuda_host::fence();
}
inline void __threadfence_block()
{
    cuda_host::fence();
}

namespace cuda_host
{

template <class T> struct exchanged {
    T value, result;
    int from;
};

/* value of the lane `from`; of one that did not come, or beyond the width, the caller's own. */
template <class T> T exchange(unsigned mask, T value, int from)
{
    exchanged<T> x = {value, value, from};
    meet(mask, &x, [](void **mine) {
        for (int i = 0; i < 32; i++) {
            auto *to = (exchanged<T> *)mine[i];
            if (to && to->from >= 0 && to->from < 32 && mine[to->from])
                to->result = ((exchanged<T> *)mine[to->from])->value;
        }
    });
    return x.result;
}

inline unsigned vote(unsigned mask, bool mine)
{
    exchanged<unsigned> x = {mine, 0, 0};
    meet(mask, &x, [](void **lanes) {
        unsigned all = 0;
        for (int i = 0; i < 32; i++)
            if (lanes[i]) all |= ((exchanged<unsigned> *)lanes[i])->value << i;
        for (int i = 0; i < 32; i++)
            if (lanes[i]) ((exchanged<unsigned> *)lanes[i])->result = all;
    });
    return x.result;
}

} // namespace cuda_host

template <class T> T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
    return cuda_host::exchange(mask, v, (int)(cuda_host::now->lane & ~(width - 1)) | (from & (width - 1)));
}

template <class T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32)
{
    int lane = (int)cuda_host::now->lane, from = lane ^ bits;
    return cuda_host::exchange(mask, v, from / width > lane / width ? lane : from);
}

template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    int lane = (int)cuda_host::now->lane, from = lane + (int)by;
    return cuda_host::exchange(mask, v, from / width > lane / width ? lane : from);
}

template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    int lane = (int)cuda_host::now->lane, from = lane - (int)by;
    return cuda_host::exchange(mask, v, from < (lane & ~(width - 1)) ? lane : from);
}

inline unsigned __ballot_sync(unsigned mask, int x)
{
    return cuda_host::vote(mask, x != 0);
}

inline int __any_sync(unsigned mask, int x)
{
    return cuda_host::vote(mask, x != 0) != 0;
}

inline int __all_sync(unsigned mask, int x)
{
    return cuda_host::vote(mask, x == 0) == 0;
}

template <class T> T __reduce_max_sync(unsigned mask, T v)
{
    for (int bits = 16; bits; bits /= 2) {
        T other = __shfl_xor_sync(mask, v, bits);
        v = other > v ? other : v;
    }
    return v;
}

/* ---- memory, numbers ---------------------------------------------------------------------------- */

template <class T> T __ldcg(const T *p)
{
    return *p;
}

template <class T> T __ldcs(const T *p)
{
    return *p;
}

template <class T> T __ldg(const T *p)
{
    return *p;
}

template <class T> void __stcs(T *p, T v)
{
    *p = v;
}

/* The value before; CHANGE by compare and exchange, since blocks run side by side. */
template <class T, class CHANGE> __attribute__((no_sanitize_thread)) T cuda_host_atomic(T *p, CHANGE change)
{
    T before, after;
    __atomic_load(p, &before, __ATOMIC_SEQ_CST);
    do after = change(before);
    while (!__atomic_compare_exchange(p, &before, &after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return before;
}

template <class T> T atomicAdd(T *p, std::common_type_t<T> v)
{
    cuda_host::atomic_access(p, sizeof *p);
    return cuda_host_atomic(p, [v](T x) { return (T)(x + v); });
}

template <class T> T atomicMax(T *p, std::common_type_t<T> v)
{
    cuda_host::atomic_access(p, sizeof *p);
    return cuda_host_atomic(p, [v](T x) { return x > v ? x : v; });
}

template <class T> T atomicMin(T *p, std::common_type_t<T> v)
{
    cuda_host::atomic_access(p, sizeof *p);
    return cuda_host_atomic(p, [v](T x) { return x < v ? x : v; });
}

template <class T> T atomicOr(T *p, std::common_type_t<T> v)
{
    cuda_host::atomic_access(p, sizeof *p);
    return cuda_host_atomic(p, [v](T x) { return (T)(x | v); });
}

inline size_t __cvta_generic_to_shared(const void *p)
{
    return cuda_host::shared_address(p);
}

inline void *__cvta_shared_to_generic(size_t address)
{
    return cuda_host::shared_pointer((uint32_t)address);
}

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    return (std::common_type_t<A, B>)a < (std::common_type_t<A, B>)b ? a : b;
}

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    return (std::common_type_t<A, B>)a > (std::common_type_t<A, B>)b ? a : b;
}

template <class TO, class FROM> TO cuda_host_bits(FROM x)
{
    static_assert(sizeof(TO) == sizeof(FROM), "of one size");
    TO y;
    memcpy(&y, &x, sizeof y);
    return y;
}

inline float __uint_as_float(unsigned x)
{
    return cuda_host_bits<float>(x);
}

inline unsigned __float_as_uint(float x)
{
    return cuda_host_bits<unsigned>(x);
}

inline float __int_as_float(int x)
{
    return cuda_host_bits<float>(x);
}

inline int __float_as_int(float x)
{
    return cuda_host_bits<int>(x);
}

inline double __longlong_as_double(long long x)
{
    return cuda_host_bits<double>(x);
}

inline long long __double_as_longlong(double x)
{
    return cuda_host_bits<long long>(x);
}

inline double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)((uint64_t)(unsigned)high << 32 | (unsigned)low));
}

inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}

inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    return r;
}

inline float rsqrtf(float x)
{
    return 1 / std::sqrt(x);
}

inline double rsqrt(double x)
{
    return 1 / std::sqrt(x);
}

inline void __trap()
{
    cuda_host::stop("a kernel trapped");
}

namespace cuda_host
{

/* Numbers of 16 bits, rounded to nearest even. */
uint16_t bf16_of(float x), f16_of(float x);
float from_bf16(uint16_t bits), from_f16(uint16_t bits);

} // namespace cuda_host

/* ---- assembly text ------------------------------------------------------------------------------ */

namespace cuda_host
{

/* An operand of an assembly text: the bits of a number of at most 8 bytes. */
struct reg {
    uint64_t bits;
};

template <class T> __attribute__((always_inline)) inline reg reg_of(const T &x)
{
    reg r = {0};
    static_assert(sizeof x <= sizeof r.bits, "a register holds 8 bytes");
    memcpy(&r.bits, &x, sizeof x);
    return r;
}

template <class T> __attribute__((always_inline)) inline void reg_to(T &x, const reg &r)
{
    memcpy(&x, &r.bits, sizeof x);
}

struct statement;

/* The statements of an assembly text, read once. */
class ptx
{
  public:
    explicit ptx(const char *text);
    void run(reg *operands) const;

  private:
    const statement *first;
    int count;
};

} // namespace cuda_host

#endif
