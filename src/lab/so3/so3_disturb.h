/* so3_disturb.h -- an update of a matrix, disturbed: noise of a given size, or a turn by a given angle.
 *
 *     D' = R D + noise ||D||_F / sqrt(rows cols) S
 *
 * S has random signs, so the noise has exactly `noise` times the update's norm. R is a rotation: the rows are
 * paired at random and every pair turned by the angle, one way or the other, so ||R D - D|| = 2 sin(turn / 2)
 * ||D|| (of an odd number of rows one is left out) and R D has D's singular values. Signs are drawn anew
 * every step; R every `redraw` steps, or once for all.
 */
#ifndef PL_LAB_SO3_DISTURB_H
#define PL_LAB_SO3_DISTURB_H

#include <stdint.h>

#include "base/status.h"

typedef struct pl_disturb {
    double noise, turn; /* 0: none; turn in radians */
    int64_t redraw;     /* 0: one R for the whole run */
} pl_disturb;

/* D (rows, cols) of parameter `number` at a step, from 1, of the run `seed`, in place. */
polar_status pl_disturb_update(double *D, int64_t rows, int64_t cols, const pl_disturb *how, uint64_t seed,
                               int64_t number, int64_t step);

#endif
