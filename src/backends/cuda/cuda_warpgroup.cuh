/* cuda_warpgroup.cuh -- Hopper's warpgroup products (sm_90a) of many widths: D (64 x N, f32, registers) += A
 * B, bf16.
 *
 *     pl_wg<N>::shared<TA, TB>(d, a, b, add)    A and B by descriptors
 *     pl_wg<N>::mixed<TB>(d, a, b, add)         A's fragment in registers
 *
 * add 0: D = A B, whatever D was. TA, TB: the operand is MN-major (its rows run along K). Operands lie as
 * cuda_wgmma.cuh has them: rows of 128 bytes swizzled by eights, panels at multiples of 1024 bytes. K-major:
 * 16 k further is 32 bytes on. MN-major: 16 k further is 2048 bytes on, the next 64 columns are `panel` bytes
 * on. Fragments are mma.sync's: thread (g = lane / 4, t = lane % 4) of warp w has in d[4 j + 2 h + i] row 16
 * w + g + 8 h, column 8 j + 2 t + i; two neighbouring j are the fragment of A for 16 k.
 */
#ifndef PL_CUDA_WARPGROUP_CUH
#define PL_CUDA_WARPGROUP_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "cuda_hopper.cuh"

/* A descriptor of MN-major rows; K-major ones are pl_wgmma_desc's. */
__device__ __forceinline__ uint64_t pl_wg_across(uint32_t at, uint32_t panel)
{
    return (uint64_t)((at & 0x3FFFF) >> 4) | (uint64_t)(panel >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

template <int N> struct pl_wg;

#define PL_TEXT "%0, %1, %2, %3"
#define PL_SUMS "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
template <> struct pl_wg<8> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[4], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %4, %5, p, 1, 1, %7, %8;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT "%0, %1, %2, %3, %4, %5, %6, %7"
#define PL_SUMS "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
template <> struct pl_wg<16> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[8], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %8, %9, p, 1, 1, %11, %12;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
template <> struct pl_wg<64> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[32], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %32, %33, p, 1, 1, %35, %36;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
    template <int TB>
    static __device__ __forceinline__ void mixed(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PL_TEXT
                     "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
                     : PL_SUMS
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
template <> struct pl_wg<80> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[40], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %42, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %40, %41, p, 1, 1, %43, %44;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
template <> struct pl_wg<96> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[48], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %50, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %48, %49, p, 1, 1, %51, %52;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),  \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),  \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
template <> struct pl_wg<128> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[64], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %64, %65, p, 1, 1, %67, %68;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),  \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),  \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),  \
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),  \
        "+f"(d[71])
template <> struct pl_wg<144> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[72], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %74, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n144k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %72, %73, p, 1, 1, %75, %76;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),  \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),  \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),  \
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),  \
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),  \
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),  \
        "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),  \
        "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
template <> struct pl_wg<192> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[96], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %98, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %96, %97, p, 1, 1, %99, %100;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

#define PL_TEXT                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103"
#define PL_SUMS                                                                                     \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),  \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),  \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),  \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),  \
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),  \
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),  \
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),  \
        "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),  \
        "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]),  \
        "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
template <> struct pl_wg<208> {
    template <int TA, int TB>
    static __device__ __forceinline__ void shared(float (&d)[104], uint64_t a, uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %106, "
                     "0;\nwgmma.mma_async.sync.aligned.m64n208k16.f32.bf16.bf16 {" PL_TEXT
                     "}, %104, %105, p, 1, 1, %107, %108;\n}\n"
                     : PL_SUMS
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
    }
};
#undef PL_TEXT
#undef PL_SUMS

/* ---- fragments ------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t pl_pack(float low, float high)
{
    __nv_bfloat162 r = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&r);
}

__device__ __forceinline__ float pl_low(uint32_t v)
{
    return __uint_as_float(v << 16);
}

__device__ __forceinline__ float pl_high(uint32_t v)
{
    return __uint_as_float(v & 0xFFFF0000u);
}

/* Four words of each of a quad's lanes, transposed: lane t gets word t of the lanes 0 to 3. Of a row's words
 * for j = 0 .. 3 it makes the 16 bytes of unit j = t. Its own inverse. */
__device__ __forceinline__ uint4 pl_quad_transpose(uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    uint32_t from0 = __shfl_xor_sync(0xffffffffu, odd ? r0 : r1, 1),
             from1 = __shfl_xor_sync(0xffffffffu, odd ? r2 : r3, 1);
    uint32_t low0 = odd ? from0 : r0, high0 = odd ? r1 : from0, low1 = odd ? from1 : r2,
             high1 = odd ? r3 : from1;
    uint32_t low = __shfl_xor_sync(0xffffffffu, upper ? low0 : low1, 2),
             high = __shfl_xor_sync(0xffffffffu, upper ? high0 : high1, 2);
    return upper ? make_uint4(low, high, low1, high1) : make_uint4(low0, high0, low, high);
}

#endif
