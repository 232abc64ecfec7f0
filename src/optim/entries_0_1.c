/* entries_0_1.c -- what programs compiled against version 0.1 call: functions whose structs may have grown
 * since.
 *
 * The headers of today call polar_..._sized with the sizes of today; those of 0.1 had none to give. Structs
 * grow at their tails only, so the sizes of then are all that is needed. Nothing here may change while
 * libpolar.so.0 is the name.
 */
#define POLAR_ENTRIES_OF_0_1
#include "optim/optim_layout.h"

static const polar_optim_layout layout_0_1 = {
    sizeof(polar_optim_layout),
    PL_MAP_OPTS_0_1,
    PL_RULE_0_1,
    PL_SCHEDULE_0_1,
    PL_PARAM_0_1,
    PL_OPTIM_OPTS_0_1,
    0,
    0,
};

/* What libpolar.so 0.1 had on 64-bit machines, as numbers: a field put in front of another's end is found
 * here. */
#define LP64 (sizeof(void *) == 8)
_Static_assert(!LP64 || PL_MAP_OPTS_0_1 == 40, "polar_map_opts of 0.1");
_Static_assert(!LP64 || PL_RULE_0_1 == 80, "polar_rule of 0.1");
_Static_assert(!LP64 || PL_SCHEDULE_0_1 == 24, "polar_schedule of 0.1");
_Static_assert(!LP64 || PL_PARAM_0_1 == 328, "polar_param of 0.1");
_Static_assert(!LP64 || PL_OPTIM_OPTS_0_1 == 200, "polar_optim_opts of 0.1");
_Static_assert(!LP64 || PL_PARAM_STATS_0_1 == 64, "polar_param_stats of 0.1");
_Static_assert(!LP64 || PL_COST_0_1 == 32, "polar_cost of 0.1");
_Static_assert(!LP64 || sizeof(polar_tensor) == 144, "polar_tensor is passed by value and cannot grow");
_Static_assert(!LP64 || sizeof(polar_coef) == 24, "polar_coef comes in arrays and cannot grow");

polar_status polar_queue_dry_end(polar_queue *q, polar_cost *out)
{
    return polar_queue_dry_end_sized(q, out, PL_COST_0_1);
}

polar_status polar_map_opts_parse(polar_map_opts *out, const char *name)
{
    return polar_map_opts_parse_sized(out, PL_MAP_OPTS_0_1, name);
}

polar_status polar_rule_parse(polar_rule *out, const char *name)
{
    return polar_rule_parse_sized(out, name, &layout_0_1);
}

polar_status polar_optim_opts_parse(polar_optim_opts *out, const char *rule)
{
    return polar_optim_opts_parse_sized(out, rule, &layout_0_1);
}

polar_status polar_optim_create(polar_optim **out, polar_device *dev, const polar_param *params, int64_t n,
                                const polar_optim_opts *opts)
{
    return polar_optim_create_sized(out, dev, params, n, opts, &layout_0_1);
}

/* 0.1 replaced the settings and did not ask for the map. */
polar_status polar_optim_load(polar_optim *opt, polar_queue *q, const char *path)
{
    return polar_optim_load_with(opt, q, path, POLAR_LOAD_SETTINGS | POLAR_LOAD_OTHER_MAP);
}

polar_status polar_optim_stats(polar_optim *opt, polar_queue *q, polar_param_stats *out)
{
    return polar_optim_stats_sized(opt, q, out, PL_PARAM_STATS_0_1);
}
