/* cpu_kernels.h -- what is built once per instruction set, and the choice between them at run time.
 *
 * Every file in kernels/ is compiled with PL_ISA set: on x86-64 for scalar (baseline), avx2, avx512,
 * avx512bf16 (and its dot products of bf16) and amx (avx512bf16 and the tile unit; only the files of tiles
 * and those they call, the rest being avx512bf16's), on aarch64 for scalar (baseline, no fused multiply-add)
 * and neon. The functions carry the instruction set in their names, cpu_ops.c collects them into a table, and
 * cpu_backend.c chooses one. Results depend on nothing but the operands: not on threads, batch mates or the
 * position in a matrix; in the element tier and in norms not on the instruction set either.
 */
#ifndef PL_CPU_KERNELS_H
#define PL_CPU_KERNELS_H

#include "device/backend.h"

#define PL_PASTE_(a, b) a##_##b
#define PL_PASTE(a, b)  PL_PASTE_(a, b)
#define PL_ISA_NAME(f)  PL_PASTE(f, PL_ISA) /* pl_cpu_gemm -> pl_cpu_gemm_avx512 */
/* so that a constant argument makes a loop of its own */
#define PL_INLINE static inline __attribute__((always_inline))

/* Before a loop whose stores do not meet its later loads: it may become vectors. */
#ifdef __clang__
#define PL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define PL_IVDEP _Pragma("GCC ivdep")
#endif

typedef enum pl_isa {
    PL_ISA_SCALAR,
    PL_ISA_NEON,
    PL_ISA_AVX2,
    PL_ISA_AVX512,
    PL_ISA_AVX512BF16,
    PL_ISA_AMX,
    PL_ISA_COUNT
} pl_isa;

/* All ops of one instruction set, parallel over `q->dev->threads`; same shape as pl_ops, empty slots fall to
 * ref. */
extern const pl_ops pl_cpu_ops_scalar, pl_cpu_ops_neon, pl_cpu_ops_avx2, pl_cpu_ops_avx512,
    pl_cpu_ops_avx512bf16, pl_cpu_ops_amx;

/* FLOPs per second of multiply-adds that stay in registers, all threads at once, dtype being that of the
 * factors. */
double pl_cpu_peak_scalar(pl_device *dev, polar_dtype dtype);
double pl_cpu_peak_neon(pl_device *dev, polar_dtype dtype);
double pl_cpu_peak_avx2(pl_device *dev, polar_dtype dtype);
double pl_cpu_peak_avx512(pl_device *dev, polar_dtype dtype);
double pl_cpu_peak_avx512bf16(pl_device *dev, polar_dtype dtype);
double pl_cpu_peak_amx(pl_device *dev, polar_dtype dtype);

/* The scratch of newton_schulz, polar_map and polar_step, which only these have; 0 for other ops. */
size_t pl_cpu_fused_scratch_avx512bf16(pl_op_id id, const void *args, int threads);
size_t pl_cpu_fused_scratch_amx(pl_op_id id, const void *args, int threads);

/* A call that can be put off until pl_queue_overlap_end. */
typedef struct pl_cpu_item {
    /* pl_cpu_do_items of its instruction set */
    void (*run)(pl_queue *q, const struct pl_cpu_item *items, int count);
    pl_op_id id;
    union {
        pl_args_adamw_step adamw;
        pl_args_polar_map map;
        pl_args_polar_step step;
    };
} pl_cpu_item;

/* The matrices of one with a polar map. */
static inline const pl_mat *pl_cpu_item_matrix(const pl_cpu_item *item)
{
    return item->id == PL_OP_polar_map ? &item->map.X : &item->step.W;
}

/* A norm in the making, row by row; begins as zeros. */
typedef struct pl_cpu_norm {
    double rows[32]; /* the lanes of lane_sum_elem.h */
    double amax;
} pl_cpu_norm;

#define PL_CPU_ITEMS 256 /* put off at once; a queue with as many does them before it takes another */

void pl_cpu_do_item(pl_queue *q, const pl_cpu_item *item); /* at pl_queue_overlap_end, or at once */

const char *pl_isa_name(pl_isa isa); /* "scalar", "neon", "avx2", "avx512", "avx512bf16", "amx" */
/* built in, and this CPU and kernel have it; asks the kernel for the tile unit */
int pl_isa_usable(pl_isa isa);

/* the oracle's, the batch shared out over the threads */
void pl_cpu_polar_exact(pl_queue *q, const pl_args_polar_exact *a);
/* by the device's own products */
void pl_cpu_kron_sweep(pl_queue *q, const pl_args_kron_sweep *a);

/* Rows [i, i + rows), columns [j, j + cols) of matrix b of a product, in C's format: in C or, where `staged`
 * is set, there, `step` elements apart, and C is not written yet. */
typedef struct pl_gemm_rows {
    int64_t b, i, j, rows, cols;
    const void *staged;
    int64_t step;
} pl_gemm_rows;

/* What follows a product while its result is still in the cache: called for every part of it when it is
 * finished, on the thread that made it, and writes C. */
typedef struct pl_epilogue {
    void (*fn)(const struct pl_epilogue *t, const pl_gemm_rows *r);
    const void *arg;
    /* as large as C, read or written by fn at the same places, its lines worth prefetching before the product
     * (pl_prefetch_operand, cpu_convert.h); or NULL */
    const pl_mat *operand;
    int operand_written; /* written there, not read */
    /* rows that come staged are stored non-temporally (cpu_convert.h): those of C; those of the operand */
    int nontemporal, operand_nontemporal;
} pl_epilogue;

#ifdef PL_ISA /* inside kernels/ */
/* this instruction set's ops, each in the file of its noun */
#define CPU_OP(name) void PL_ISA_NAME(pl_cpu_##name)(pl_queue * q, const pl_args_##name *a);
#define CPU_PLAIN_OP CPU_OP
#define CPU_TILES_OP CPU_OP
#include "device/ops.def"

/* cpu_gemm.c: gemm, and what follows; epilogue or NULL */
void PL_ISA_NAME(pl_cpu_gemm_then)(pl_queue *q, const pl_args_gemm *g, const pl_epilogue *epilogue);
/* cpu_gemm_tiles.c: A and B bf16, the rest bf16 or f32; where PL_TILES is set */
void PL_ISA_NAME(pl_cpu_gemm_tiles)(pl_queue *q, const pl_args_gemm *g, const pl_epilogue *epilogue);
/* the scratch it takes */
size_t PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(const pl_args_newton_schulz *a, int threads);

/* Parts of ops, on the calling thread. */
/* cpu_elem.c: row i of the first matrix; no f64 */
void PL_ISA_NAME(pl_cpu_direction_row)(const pl_args_direction *a, int64_t i);
/* cpu_elem.c: how many */
int64_t PL_ISA_NAME(pl_cpu_adamw_pieces)(const pl_args_adamw_step *a);
/* cpu_elem.c: some of them */
void PL_ISA_NAME(pl_cpu_adamw_some)(const pl_args_adamw_step *a, int64_t from, int64_t to);
/* cpu_norm.c: N[b] */
void PL_ISA_NAME(pl_cpu_frob_one)(const pl_args_frob *a, int64_t b);
/* cpu_stage.c: F of matrix b from the squares of lines that it holds, as line_factors does */
void PL_ISA_NAME(pl_cpu_line_factors_end)(const pl_args_line_factors *a, int64_t b);
/* cpu_norm.c: row i, rows ascending */
void PL_ISA_NAME(pl_cpu_norm_row)(pl_cpu_norm *s, const float *x, int64_t n, int64_t i);
/* cpu_norm.c: as frob leaves it */
void PL_ISA_NAME(pl_cpu_norm_end)(double out[2], const pl_cpu_norm *s);
/* cpu_polar_step.c: a thread's work memory; 0: too large */
size_t PL_ISA_NAME(pl_cpu_matrix_bytes)(const pl_cpu_item *item);
/* cpu_polar_step.c: matrix b */
void PL_ISA_NAME(pl_cpu_matrix)(const pl_cpu_item *item, int64_t b, char *work);
/* cpu_polar_step.c: over all threads */
void PL_ISA_NAME(pl_cpu_large_matrix)(pl_queue *q, const pl_cpu_item *item);
/* cpu_polar_step.c: see above */
size_t PL_ISA_NAME(pl_cpu_fused_scratch)(pl_op_id id, const void *args, int threads);
/* cpu_overlap.c: now, side by side */
void PL_ISA_NAME(pl_cpu_do_items)(pl_queue *q, const pl_cpu_item *items, int count);
/* cpu_attention_tiles.c: all but lse bf16; where PL_TILES is set */
void PL_ISA_NAME(pl_cpu_attention_tiles)(pl_queue *q, const pl_args_attention *a);
/* cpu_attention_tiles.c: the same */
void PL_ISA_NAME(pl_cpu_attention_back_tiles)(pl_queue *q, const pl_args_attention_back *a);
#endif

#endif
