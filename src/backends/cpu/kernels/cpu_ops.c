/* cpu_ops.c -- the table of one instruction set (PL_KERNELS in ops.def); where only the files of tiles are
 * built for it (PL_PART) the other slots are empty. */
#include "cpu_tiles.h"

const pl_ops PL_ISA_NAME(pl_cpu_ops) = {
#define CPU_OP(name) .name = PL_ISA_NAME(pl_cpu_##name),
#ifndef PL_PART
#define CPU_PLAIN_OP CPU_OP
#endif
#ifdef PL_TILES
#define CPU_TILES_OP CPU_OP
#endif
#include "device/ops.def"
    .polar_exact = pl_cpu_polar_exact, /* the same for all */
    .kron_sweep = pl_cpu_kron_sweep,
};
