/* fake_plan.h -- a plan for the fake testbed: cells fake.width=4, 8 x seeds x three arms. */
#ifndef POLAR_FAKE_PLAN_H
#define POLAR_FAKE_PLAN_H

#include "fake_testbed.h"
#include "lab/spec/plan.h"

#define FAKE_SEEDS 3
#define FAKE_RUNS  (2 * FAKE_SEEDS * 3)

typedef struct fake_plan {
    pl_store_spec spec;
    pl_plan_run runs[FAKE_RUNS];
    pl_config *configs[6];
} fake_plan;

static inline polar_status fake_plan_create(fake_plan *p, const char *shadows)
{
    static const char *const cells[] = {"fake.width=4", "fake.width=8"};
    *p = (fake_plan){.spec = {"fake_spec", "0", "A fake", "fake", "mse", "name: fake_spec\n", NULL}};
    int64_t n = 0;
    for (int c = 0; c < 2; c++) {
        for (int a = 0; a < 3; a++) {
            pl_config **config = &p->configs[c * 3 + a];
            PL_TRY(pl_config_create(config, &fake_schema));
            PL_TRY(pl_config_assign(*config, cells[c]));
            PL_TRY(pl_config_set(*config, "optim.rule", fake_rules[a]));
            PL_TRY(pl_config_set(*config, "fake.shadows", shadows));
        }
        for (int64_t seed = 0; seed < FAKE_SEEDS; seed++)
            for (int a = 0; a < 3; a++, n++) {
                p->runs[n] = (pl_plan_run){.cell = cells[c],
                                           .arm = fake_rules[a],
                                           .seed = seed,
                                           .config = p->configs[c * 3 + a],
                                           .first = n,
                                           .cell_index = c,
                                           .arm_index = a};
                PL_TRY(pl_config_run_id(p->runs[n].id, p->runs[n].config, seed));
            }
    }
    return POLAR_OK;
}

static inline void fake_plan_destroy(fake_plan *p)
{
    for (int i = 0; i < 6; i++) pl_config_destroy(p->configs[i]);
}

#endif
