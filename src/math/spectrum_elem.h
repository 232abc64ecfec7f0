/* spectrum_elem.h -- what a spectral map makes of a singular value, in double. */
#ifndef PL_MATH_SPECTRUM_ELEM_H
#define PL_MATH_SPECTRUM_ELEM_H

#include <math.h>

#include "math/hd.h"
#include "polar/map.h" /* polar_map_kind */

/* Of a sigma > 0: sigma^power, or t sigma / sqrt((t sigma)^2 + rms^2) with t = power and rms the root of the
 * mean square of the short side's singular values, so that soft does not see the matrix's size; else 1. */
PL_HD double pl_spectrum(int64_t kind, double power, double sigma, double rms)
{
    const double x = power * (sigma / rms);
    if (kind == POLAR_MAP_POWER) return power == 0.5 ? sqrt(sigma) : pow(sigma, power);
    return kind == POLAR_MAP_SOFT ? x / sqrt(x * x + 1) : 1;
}

#endif
