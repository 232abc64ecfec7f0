/* cuda_wgmma.cuh -- Hopper's warpgroup products (sm_90a): D (64 x N, f32, registers) = A B or += A B, k by
 * 16, of bf16 or f16.
 *
 *     pl_wgmma<N>::product<TA, TB, T>(d, a, b, add)    A and B by descriptors; add 0: D = A B
 *     pl_wgmma<N>::first<TB>(d, a, b)                  D = A B, whatever D was: it need not be set; bf16
 *     pl_wgmma<N>::mixed<TB>(d, a, b, add)             A's fragment in registers; bf16
 *
 * An operand lies in shared memory in panels of 64 numbers (128 bytes) a row, swizzled: the 16-byte unit u of
 * row r stands at r * 128 + ((u ^ (r & 7)) << 4), panels begin at multiples of 1024 bytes. K-major (rows are
 * M or N, a panel runs along K): 16 k further is 32 bytes on, in a descriptor + 2. MN-major (TA, TB; rows are
 * K, a panel runs along M or N): 16 k further is 2048 bytes on, the next 64 columns are the next panel.
 *
 * Fragments are mma.sync's: thread (g = lane / 4, t = lane % 4) of warp w has in d[4 j + 2 h + i] row 16 w +
 * g + 8 h, column 8 j + 2 t + i; two neighbouring j are the fragment of A for 16 k.
 */
#ifndef PL_CUDA_WGMMA_CUH
#define PL_CUDA_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include <type_traits>

/* Of an MN-major operand `panel` is the bytes to the next 64 columns; a K-major one's is not looked at. */
__device__ __forceinline__ uint64_t pl_wgmma_desc(uint32_t at, uint32_t panel = 16)
{
    const uint64_t swizzle_128 = 1ull << 62, rows8 = 1024; /* bytes of 8 rows */
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(panel >> 4) << 16 | rows8 >> 4 << 32 | swizzle_128;
}

/* An MN-major operand in panels of PANEL columns and `depth` k each, from k 16 step on. Panels of 32 columns
 * have rows of 64 bytes, unit u of row r at r * 64 + ((u ^ (r / 2 & 3)) << 4). */
template <int PANEL> __device__ __forceinline__ uint64_t pl_wgmma_across(uint32_t at, int step, int depth)
{
    const uint32_t panel = (uint32_t)(depth * PANEL * 2), from = at + (uint32_t)(step * 16 * PANEL * 2);
    if (PANEL == 64) return pl_wgmma_desc(from, panel);
    const uint64_t swizzle_64 = 2ull << 62, rows8 = 512;
    return (uint64_t)((from & 0x3ffff) >> 4) | (uint64_t)(panel >> 4) << 16 | rows8 >> 4 << 32 | swizzle_64;
}

/* A K-major operand in rows of 32 k (64 bytes), from k 16 step on; unit u of row r as in panels of 32
 * columns.
 */
__device__ __forceinline__ uint64_t pl_wgmma_along(uint32_t at, int step)
{
    const uint64_t swizzle_64 = 2ull << 62, rows8 = 512;
    return (uint64_t)((at + (uint32_t)(step * 32)) & 0x3ffff) >> 4 | 1ull << 16 | rows8 >> 4 << 32 |
           swizzle_64;
}

__device__ __forceinline__ void pl_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void pl_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all but the last LEFT groups are done. */
template <int LEFT> __device__ __forceinline__ void pl_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* The first n registers of the text, and d's n numbers under a constraint c. */
#define PL_REGS_4   "%0, %1, %2, %3"
#define PL_REGS_8   PL_REGS_4 ", %4, %5, %6, %7"
#define PL_REGS_16  PL_REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PL_REGS_24  PL_REGS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define PL_REGS_32  PL_REGS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define PL_REGS_40  PL_REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PL_REGS_48  PL_REGS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PL_REGS_56  PL_REGS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PL_REGS_64  PL_REGS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PL_REGS_72  PL_REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PL_REGS_80  PL_REGS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PL_REGS_88  PL_REGS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PL_REGS_96  PL_REGS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PL_REGS_104 PL_REGS_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PL_REGS_112 PL_REGS_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define PL_REGS_120 PL_REGS_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define PL_REGS_128 PL_REGS_120 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define PL_AT_4(c, i)  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define PL_AT_8(c, i)  PL_AT_4(c, i), PL_AT_4(c, i + 4)
#define PL_AT_16(c, i) PL_AT_8(c, i), PL_AT_8(c, i + 8)
#define PL_AT_32(c, i) PL_AT_16(c, i), PL_AT_16(c, i + 16)
#define PL_AT_64(c, i) PL_AT_32(c, i), PL_AT_32(c, i + 32)
#define PL_SUMS_4(c)   PL_AT_4(c, 0)
#define PL_SUMS_8(c)   PL_AT_8(c, 0)
#define PL_SUMS_16(c)  PL_AT_16(c, 0)
#define PL_SUMS_32(c)  PL_AT_32(c, 0)
#define PL_SUMS_40(c)  PL_AT_32(c, 0), PL_AT_8(c, 32)
#define PL_SUMS_48(c)  PL_AT_32(c, 0), PL_AT_16(c, 32)
#define PL_SUMS_64(c)  PL_AT_64(c, 0)
#define PL_SUMS_72(c)  PL_AT_64(c, 0), PL_AT_8(c, 64)
#define PL_SUMS_80(c)  PL_AT_64(c, 0), PL_AT_16(c, 64)
#define PL_SUMS_96(c)  PL_AT_64(c, 0), PL_AT_32(c, 64)
#define PL_SUMS_104(c) PL_AT_64(c, 0), PL_AT_32(c, 64), PL_AT_8(c, 96)
#define PL_SUMS_128(c) PL_AT_64(c, 0), PL_AT_64(c, 64)

#define PL_NAME(N, T) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." T "." T " {"
/* p: D is added to */
#define PL_IF(flag) "{\n.reg .pred p;\nsetp.ne.b32 p, " flag ", 0;\n"

#define PL_PRODUCT(N, R, T, a0, a1, a2, a3, a4)                                                         \
    asm volatile(PL_IF(a2) PL_NAME(N, T) PL_REGS_##R "}, " a0 ", " a1 ", p, 1, 1, " a3 ", " a4 ";\n}\n" \
                 : PL_SUMS_##R("+f")                                                                    \
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB))

template <int N> struct pl_wgmma;

/* N columns: R = N / 2 registers of the result, a0 .. a6 the names of the operands behind them. */
#define PL_WGMMA(N, R, a0, a1, a2, a3, a4, a5, a6)                                                           \
    template <> struct pl_wgmma<N> {                                                                         \
        template <int TA, int TB, class T = __nv_bfloat16>                                                   \
        static __device__ __forceinline__ void product(float (&d)[R], uint64_t a, uint64_t b, int add)       \
        {                                                                                                    \
            if constexpr (std::is_same<T, __half>::value) PL_PRODUCT(N, R, "f16", a0, a1, a2, a3, a4);       \
            else PL_PRODUCT(N, R, "bf16", a0, a1, a2, a3, a4);                                               \
        }                                                                                                    \
        template <int TB>                                                                                    \
        static __device__ __forceinline__ void first(float (&d)[R], uint64_t a, uint64_t b)                  \
        {                                                                                                    \
            asm volatile(PL_IF("0") PL_NAME(N, "bf16") PL_REGS_##R "}, " a0 ", " a1 ", p, 1, 1, 0, " a2      \
                                                                   ";\n}\n"                                  \
                         : PL_SUMS_##R("=f")                                                                 \
                         : "l"(a), "l"(b), "n"(TB));                                                         \
        }                                                                                                    \
        template <int TB>                                                                                    \
        static __device__ __forceinline__ void mixed(float (&d)[R], const uint32_t (&a)[4], uint64_t b,      \
                                                     int add)                                                \
        {                                                                                                    \
            asm volatile(PL_IF(a5) PL_NAME(N, "bf16") PL_REGS_##R "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " a4 \
                                                                  ", p, 1, 1, " a6 ";\n}\n"                  \
                         : PL_SUMS_##R("+f")                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));           \
        }                                                                                                    \
    };

PL_WGMMA(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
PL_WGMMA(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
PL_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
PL_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PL_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
PL_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
PL_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PL_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
PL_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
PL_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
PL_WGMMA(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
PL_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef PL_WGMMA
#undef PL_PRODUCT
#undef PL_IF
#undef PL_NAME

/* Two neighbours in 16 bits each. */
template <class T> struct pl_pair_of;

template <> struct pl_pair_of<__nv_bfloat16> {
    static __device__ __forceinline__ float2 wide(uint32_t v)
    {
        return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xFFFF0000u));
    }
    static __device__ __forceinline__ uint32_t narrow(float x, float y)
    {
        __nv_bfloat162 r = __floats2bfloat162_rn(x, y);
        return *reinterpret_cast<uint32_t *>(&r);
    }
};

template <> struct pl_pair_of<__half> {
    static __device__ __forceinline__ float2 wide(uint32_t v)
    {
        return __half22float2(*reinterpret_cast<__half2 *>(&v));
    }
    static __device__ __forceinline__ uint32_t narrow(float x, float y)
    {
        __half2 r = __floats2half2_rn(x, y);
        return *reinterpret_cast<uint32_t *>(&r);
    }
};

#endif
