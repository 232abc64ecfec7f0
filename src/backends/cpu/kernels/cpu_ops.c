/* cpu_ops.c -- the table of one instruction set; frob_join, a handful of numbers, is the oracle's. */
#include "cpu_tiles.h"

const pl_ops PL_ISA_NAME(pl_cpu_ops) = {
    .copy = PL_ISA_NAME(pl_cpu_copy),
    .axpby = PL_ISA_NAME(pl_cpu_axpby),
    .gemm = PL_ISA_NAME(pl_cpu_gemm),
    .frob = PL_ISA_NAME(pl_cpu_frob),
    .normalise = PL_ISA_NAME(pl_cpu_normalise),
    .polar_exact = pl_cpu_polar_exact,
    .direction = PL_ISA_NAME(pl_cpu_direction),
    .decay_step = PL_ISA_NAME(pl_cpu_decay_step),
    .adamw_step = PL_ISA_NAME(pl_cpu_adamw_step),
#ifdef PL_TILES
    .newton_schulz = PL_ISA_NAME(pl_cpu_newton_schulz),
#endif
};
