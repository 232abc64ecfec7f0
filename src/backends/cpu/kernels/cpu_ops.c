/* cpu_ops.c -- the table of one instruction set (cpu_ops.def). */
#include "cpu_tiles.h"

const pl_ops PL_ISA_NAME(pl_cpu_ops) = {
#define CPU_OP(name) .name = PL_ISA_NAME(pl_cpu_##name),
#ifndef PL_TILES
#define CPU_TILES_OP(name)
#endif
#include "../cpu_ops.def"
    .polar_exact = pl_cpu_polar_exact, /* the same for all */
};
