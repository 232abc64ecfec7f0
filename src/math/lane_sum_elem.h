/* lane_sum_elem.h -- the one order in which this tree sums squares.
 *
 * Element j of a row goes to lane j mod 32, each lane adds in ascending order, the 32 lanes are folded by
 * halves; row sums are then added the same way over the row index. The order depends on nothing but the
 * position, so threads, batches and zero padding on the right or below (a zero added to a lane changes
 * nothing) leave the bits alone, and a GPU warp does the same thing with one lane per thread.
 */
#ifndef PL_MATH_LANE_SUM_ELEM_H
#define PL_MATH_LANE_SUM_ELEM_H

#include "math/hd.h"

#define PL_LANES     32
#define PL_SUM_CHUNK 64 /* rows that row_sum adds one after another before a lane gets them */

/* Folds 32 lanes to one: halves are added onto halves. Destroys the lanes. */
PL_HD double pl_lanes_fold(double lane[PL_LANES])
{
    for (int half = PL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

#endif
