/* cpu_ops.c -- the table of one instruction set; frob_join and mse, a handful of numbers, are the oracle's. */
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
    .bias_act = PL_ISA_NAME(pl_cpu_bias_act),
    .bias_act_back = PL_ISA_NAME(pl_cpu_bias_act_back),
    .row_sum = PL_ISA_NAME(pl_cpu_row_sum),
    .row_spread = PL_ISA_NAME(pl_cpu_row_spread),
    .pair_dist = PL_ISA_NAME(pl_cpu_pair_dist),
    .pair_sum = PL_ISA_NAME(pl_cpu_pair_sum),
    .pair_grad = PL_ISA_NAME(pl_cpu_pair_grad),
    .vec_dots = PL_ISA_NAME(pl_cpu_vec_dots),
    .vec_dots_back = PL_ISA_NAME(pl_cpu_vec_dots_back),
    .vec_norm = PL_ISA_NAME(pl_cpu_vec_norm),
    .vec_norm_back = PL_ISA_NAME(pl_cpu_vec_norm_back),
    .vec_gate = PL_ISA_NAME(pl_cpu_vec_gate),
    .vec_gate_back = PL_ISA_NAME(pl_cpu_vec_gate_back),
    .pair_message = PL_ISA_NAME(pl_cpu_pair_message),
    .pair_message_back = PL_ISA_NAME(pl_cpu_pair_message_back),
#ifdef PL_TILES
    .newton_schulz = PL_ISA_NAME(pl_cpu_newton_schulz),
#endif
};
