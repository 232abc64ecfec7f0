/* rand_augment.h -- RandAugment as timm's "rand-m9-mstd0.5-inc1": some operations of fifteen, drawn with
 * replacement, each done with probability 1/2.
 *
 *     pl_rand_augment ra;
 *     PL_TRY(pl_rand_augment_parse(&ra, "rand-m9-mstd0.5-inc1"));
 *     // what happens to this picture, at most PL_DRAW_LAYERS
 *     int n = pl_rand_augment_draw(ops, &ra, key);
 *     // after filter and fill are set
 *     for (int i = 0; i < n; i++) pl_image_op_apply(&image, &ops[i], work);
 *
 * A layer's magnitude is N(m, mstd^2) cut to [0, 10] and becomes the operation's argument by timm's tables
 * for "inc1" (larger is stronger everywhere).
 */
#ifndef PL_DATA_RAND_AUGMENT_H
#define PL_DATA_RAND_AUGMENT_H

#include "data/augment/augment_draw.h"
#include "data/augment/image_ops.h"

typedef struct pl_rand_augment {
    int layers;            /* n; 0: no RandAugment */
    double magnitude, std; /* m, mstd */
    double prob;           /* p, of each layer */
} pl_rand_augment;

/* "rand" and -m, -n, -p, -mstd, -inc1 in any order; timm's defaults otherwise */
polar_status pl_rand_augment_parse(pl_rand_augment *out, const char *text);
/* the argument; negate is seen by those with a direction */
double pl_rand_augment_arg(pl_image_op op, double magnitude, int negate);
/* how many ops are to be done; filter and fill stay 0 */
int pl_rand_augment_draw(pl_image_op_args ops[PL_DRAW_LAYERS], const pl_rand_augment *ra, pl_draw_key key);

#endif
