/* image_input.h -- a picture of a set as the numbers a model sees: the crop is drawn from the picture's
 * size, and only what it needs is decoded.
 *
 *     // one per worker, and one pl_augment
 *     pl_picture p = {0};
 *     PL_TRY(pl_picture_open(&p, set, PL_IMAGES_TRAIN, i));
 *     // x: (3, size, size) floats
 *     PL_TRY(pl_input_train(x, &p, a, (pl_draw_key){seed, epoch, number}));
 *     PL_TRY(pl_picture_open(&p, set, PL_IMAGES_TEST, i));
 *     PL_TRY(pl_input_eval(x, &p, a));
 *
 * The floats are those of pl_augment_train and pl_augment_eval on the whole picture, whatever the set was
 * opened from.
 */
#ifndef PL_DATA_IMAGE_INPUT_H
#define PL_DATA_IMAGE_INPUT_H

#include "data/augment/augment.h"
#include "data/set/image_set.h"

/* the open picture p as the recipe's training sees it */
polar_status pl_input_train(float *out, pl_picture *p, pl_augment *a, pl_draw_key key);
/* ... as its test does */
polar_status pl_input_eval(float *out, pl_picture *p, pl_augment *a);

#endif
