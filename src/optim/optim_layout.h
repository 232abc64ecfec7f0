/* optim_layout.h -- the caller's polar_optim_opts, polar_rule and polar_param, which may be of other headers
 * than ours (docs/abi.md). */
#ifndef PL_OPTIM_LAYOUT_H
#define PL_OPTIM_LAYOUT_H

#include "base/sized.h"
#include "polar/optim.h"

/* Sizes in version 0.1: a struct grows behind the field named here, and a struct that holds others grows with
 * them. */
#define PL_MAP_OPTS_0_1    PL_SIZE_UP_TO(polar_map_opts, coefs)
#define PL_RULE_0_1        (offsetof(polar_rule, map) + PL_MAP_OPTS_0_1)
#define PL_SCHEDULE_0_1    PL_SIZE_UP_TO(polar_schedule, warmup_from)
#define PL_PARAM_0_1       PL_SIZE_UP_TO(polar_param, schur_dim)
#define PL_GROUP_0_2       PL_SIZE_UP_TO(polar_group, reserved) /* newer than 0.1 */
#define PL_BLOCK_0_3       PL_SIZE_UP_TO(polar_block, dim)
#define PL_PARAM_STATS_0_1 PL_SIZE_UP_TO(polar_param_stats, update_norm)
#define PL_COST_0_1        PL_SIZE_UP_TO(polar_cost, scratch_bytes)
#define PL_OPTIM_OPTS_0_1                                                            \
    (PL_SIZE_UP_TO(polar_optim_opts, members) - (sizeof(polar_rule) - PL_RULE_0_1) - \
     (sizeof(polar_schedule) - PL_SCHEDULE_0_1))

/* checked; the sizes make sense */
polar_status pl_layout_read(polar_optim_layout *out, const polar_optim_layout *in);
/* ours <- the caller's */
polar_status pl_optim_opts_read(polar_optim_opts *out, const polar_optim_opts *in,
                                const polar_optim_layout *layout);
/* the caller's <- ours, all or nothing */
polar_status pl_optim_opts_write(polar_optim_opts *out, const polar_optim_opts *in,
                                 const polar_optim_layout *layout);
/* ours <- the caller's */
polar_status pl_rule_read(polar_rule *out, const polar_rule *in, const polar_optim_layout *layout);
/* groups[i] of the caller's array */
polar_status pl_group_read(polar_group *out, const polar_group *groups, int64_t i,
                           const polar_optim_layout *layout);
/* the same */
polar_status pl_rule_write(polar_rule *out, const polar_rule *in, const polar_optim_layout *layout);
/* params[i] of the caller's array */
polar_status pl_param_read(polar_param *out, const polar_param *params, int64_t i,
                           const polar_optim_layout *layout);
/* blocks[i] of the caller's array */
polar_status pl_block_read(polar_block *out, const polar_block *blocks, int64_t i,
                           const polar_optim_layout *layout);

#endif
