/* coef_table.c -- coefficients of the odd quintic a x + b x^3 + c x^5, by name.
 *
 *   jordan          one triple for every step: fast, ends in about [0.68, 1.2] (Jordan et al. 2024, the paper's choice)
 *   polar_express   a minimax polynomial per step for singular values in [1e-3, 1] (Amsel et al. 2025, algorithm 1), each but the
 *                   last slowed by their safety factor 1.01 so that rounding cannot push a value out of the interval
 *   classical       (15/8, -5/4, 3/8): Newton-Schulz of order five, slow at first, converges to 1 to rounding
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "polar/map.h"

#define MAX_ROWS 8

typedef struct {
    const char *name;
    double      safety;    /* rows but the last: p(x) becomes p(x / safety) */
    int         rows;
    polar_coef  row[MAX_ROWS];
} coef_table;

static const coef_table tables[] = {
    {"jordan", 1, 1, {{3.4445, -4.7750, 2.0315}}},
    {"polar_express",
     1.01,
     8,
     {{8.28721201814563, -23.595886519098837, 17.300387312530933},
      {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
      {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
      {3.3184196573706015, -2.488488024314874, 0.51004894012372},
      {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
      {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
      {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
      {1.875, -1.25, 0.375}}},
    {"classical", 1, 1, {{1.875, -1.25, 0.375}}},
};

#define TABLES ((int)(sizeof tables / sizeof *tables))

const char *polar_coef_table_name(int i)
{
    return i >= 0 && i < TABLES ? tables[i].name : NULL;
}

polar_status polar_coef_table(polar_coef *out, int steps, const char *name)
{
    const coef_table *t = NULL;
    for (int i = 0; i < TABLES; i++)
        if (!strcmp(name, tables[i].name)) t = &tables[i];
    PL_NEED(t, POLAR_E_ARG, "no coefficient table '%s' (there are: jordan, polar_express, classical)", name);
    PL_NEED(steps >= 0 && steps <= POLAR_MAX_STEPS, POLAR_E_ARG, "%d steps; 0 to %d can be had", steps, POLAR_MAX_STEPS);
    for (int s = 0; s < steps; s++) {
        int r = s < t->rows ? s : t->rows - 1;
        double f = r < t->rows - 1 ? t->safety : 1;
        out[s] = (polar_coef){t->row[r].a / f, t->row[r].b / (f * f * f), t->row[r].c / (f * f * f * f * f)};
    }
    return POLAR_OK;
}
