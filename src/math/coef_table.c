/* coef_table.c -- coefficients of the odd quintic a x + b x^3 + c x^5, by name.
 *
 *   jordan          one triple for every step: fast, ends in about [0.68, 1.2] (Jordan et al. 2024, the
 *                   paper's choice)
 *   polar_express   a minimax polynomial per step for singular values in [1e-3, 1] (Amsel et al. 2025,
 *                   algorithm 1), each but the last slowed by their safety factor 1.01 so that rounding
 *                   cannot push a value out of the interval
 *   classical       (15/8, -5/4, 3/8): Newton-Schulz of order five, slow at first, converges to 1 to rounding
 *   quintic5        a triple for each of five steps, tuned by hand for a narrow end (You 2025)
 *   cans5           Chebyshev-optimal for five steps (Grishina et al. 2025)
 *   cubic5          c = 0, so that no step needs the product A A; made for singular values from 7e-3 on
 *                   (2026)
 *   polar_express_long   polar_express with its safety factor inside and four decimals, as others ship it
 *   classical12     (2, -3/2, 1/2): slower still and meant for twelve steps, very flat at 1
 * The last row of a table repeats; results/tables.md has what each does to singular values and to
 * equivariance.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "math/coef_table.h"

#include "base/status.h"
#include "polar/map.h"

#define MAX_ROWS 8

const char *const pl_coef_table_names[] = {"jordan", "polar_express",      "classical",   "quintic5", "cans5",
                                           "cubic5", "polar_express_long", "classical12", NULL};

typedef struct {   /* in the order of the names */
    double safety; /* rows but the last: p(x) becomes p(x / safety) */
    int rows;
    polar_coef row[MAX_ROWS];
} coef_table;

/* clang-format off */
static const coef_table tables[] = {
    {1, 1, {{3.4445, -4.7750, 2.0315}}},
    {1.01,
     8,
     {{8.28721201814563, -23.595886519098837, 17.300387312530933},
      {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
      {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
      {3.3184196573706015, -2.488488024314874, 0.51004894012372},
      {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
      {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
      {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
      {1.875, -1.25, 0.375}}},
    {1, 1, {{1.875, -1.25, 0.375}}},
    {1,
     5,
     {{4.0848, -6.8946, 2.9270},
      {3.9505, -6.3029, 2.6377},
      {3.7418, -5.5913, 2.3037},
      {2.8769, -3.1427, 1.2046},
      {2.8366, -3.0525, 1.2012}}},
    {1,
     5,
     {{8.4703, -25.1081, 18.6293},
      {4.1828, -3.1087, 0.5806},
      {3.9619, -2.9541, 0.5630},
      {3.2866, -2.4647, 0.5074},
      {2.2737, -1.6447, 0.4162}}},
    {1,
     5,
     {{3.3656576, -3.3420992, 0},
      {2.5744352, -1.4957376, 0},
      {2.5368962, -1.4312570, 0},
      {2.4418906, -1.2764040, 0},
      {2.2230472, -0.9630650, 0}}},
    {1,
     8,
     {{8.2051, -22.9019, 16.4607},
      {4.0664, -2.8612, 0.5184},
      {3.9096, -2.8234, 0.5250},
      {3.2856, -2.4153, 0.4853},
      {2.2779, -1.6198, 0.3985},
      {1.8726, -1.2307, 0.3585},
      {1.8564, -1.2132, 0.3568},
      {1.875, -1.25, 0.375}}},
    {1, 1, {{2, -1.5, 0.5}}},
};
/* clang-format on */

#define TABLES ((int)(sizeof tables / sizeof *tables))
_Static_assert(sizeof pl_coef_table_names / sizeof *pl_coef_table_names == sizeof tables / sizeof *tables + 1,
               "a name for every table");

const char *polar_coef_table_name(int i)
{
    return i >= 0 && i < TABLES ? pl_coef_table_names[i] : NULL;
}

static polar_status no_table(const char *name)
{
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < TABLES && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 pl_coef_table_names[i]);
    return PL_FAIL(POLAR_E_ARG, "no coefficient table '%.64s' (there are: %s)", name, names);
}

polar_status polar_coef_table(polar_coef *out, int steps, const char *name)
{
    const coef_table *t = NULL;
    PL_NEED_ARG(name);
    for (int i = 0; i < TABLES; i++)
        if (!strcmp(name, pl_coef_table_names[i])) t = &tables[i];
    if (!t) return no_table(name);
    PL_NEED(steps >= 0 && steps <= POLAR_MAX_STEPS, POLAR_E_ARG, "%d steps; 0 to %d can be had", steps,
            POLAR_MAX_STEPS);
    if (steps) PL_NEED_ARG(out);
    for (int s = 0; s < steps; s++) {
        int r = s < t->rows ? s : t->rows - 1;
        double f = r < t->rows - 1 ? t->safety : 1;
        out[s] = (polar_coef){t->row[r].a / f, t->row[r].b / (f * f * f), t->row[r].c / (f * f * f * f * f)};
    }
    return POLAR_OK;
}
