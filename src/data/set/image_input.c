/* image_input.c -- open picture, box, pixels, chain. */
#include "data/set/image_input.h"

polar_status pl_input_train(float *out, pl_picture *p, pl_augment *a, pl_draw_key key)
{
    pl_box box;
    PL_TRY(pl_augment_train_box(&box, a, p->width, p->height, key));
    PL_TRY(pl_picture_read(p, box));
    return pl_augment_train_pixels(a, out, &(pl_pixels){p->pixels, p->stride, box, p->width, p->height}, key);
}

polar_status pl_input_eval(float *out, pl_picture *p, pl_augment *a)
{
    pl_box box;
    PL_TRY(pl_augment_eval_box(&box, a, p->width, p->height));
    PL_TRY(pl_picture_read(p, box));
    return pl_augment_eval_pixels(a, out, &(pl_pixels){p->pixels, p->stride, box, p->width, p->height});
}
