/* deit_estimate.c -- what a DeiT run will cost, by dry runs: a pass over a batch, the optimiser's step, and
 * both times their number.
 *
 *     ./polar plan specs/paper/deit_minimal_100ep.yaml --data imagenet
 *
 * Steps and test batches are those of the pictures where they can be counted, with the classes of seed 0
 * unless data.subset_seed says another; where nobody says where the set lies, it is taken to be as large as
 * ImageNet, which has at most 1300 training and exactly 50 validation pictures a class.
 */
#include <stdio.h>
#include <string.h>

#include "lab/deit/deit_train.h"
#include "lab/run/train_optim.h"

#define IMAGENET_CLASSES 1000
#define IMAGENET_TRAIN   1300
#define IMAGENET_TEST    50

static polar_status count_pictures(int64_t count[PL_IMAGE_SPLITS], pl_deit_settings *s, const char **note)
{
    pl_image_set *set;
    if (!*s->path && strncmp(s->set, "synth:", 6)) {
        if (!s->shape.classes) s->shape.classes = IMAGENET_CLASSES;
        count[PL_IMAGES_TRAIN] = IMAGENET_TRAIN * s->shape.classes;
        count[PL_IMAGES_TEST] = IMAGENET_TEST * s->shape.classes;
        *note = "without --data every class is taken to have 1300 training and 50 test pictures";
        return POLAR_OK;
    }
    PL_TRY(pl_deit_data_open(&set, s, 0));
    s->shape.classes = pl_image_set_classes(set);
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) count[k] = pl_image_set_count(set, k);
    pl_image_set_close(set);
    return POLAR_OK;
}

/* The optimiser of a small stand-in: its weights have the run's shapes, its batch is one picture. */
static polar_status estimate_step(pl_estimate *e, polar_device *dev, const pl_deit_settings *s)
{
    pl_deit_shape small = s->shape;
    pl_deit *model = NULL;
    int64_t n;
    small.batch = 1;
    PL_TRY(pl_deit_create(&model, dev, &small, 1));
    const pl_param *params = pl_deit_params(model, &n);
    polar_status st =
        pl_estimate_step(e, dev, params, n, &s->optim, &(pl_train_routes){s->split, s->no_decay});
    pl_deit_destroy(model);
    return st;
}

polar_status pl_deit_estimate(pl_estimate *out, polar_device *dev, const pl_config *c)
{
    pl_deit_settings s;
    pl_model_bytes memory;
    int64_t count[PL_IMAGE_SPLITS];
    *out = (pl_estimate){0};
    PL_TRY(pl_deit_settings_read(&s, c));
    PL_TRY(count_pictures(count, &s, &out->note));
    PL_TRY(pl_deit_cost(&out->pass, &memory, dev, &s.shape, 1));
    PL_TRY(pl_deit_cost(&out->look, NULL, dev, &s.shape, 0));
    out->memory = memory.weights + memory.gradients + memory.activations;
    PL_TRY(estimate_step(out, dev, &s));
    out->epochs = s.epochs;
    out->steps = s.keep_last ? (int64_t)pl_whole_batches(count[PL_IMAGES_TRAIN], s.batch)
                             : count[PL_IMAGES_TRAIN] / s.batch;
    out->epoch_looks = pl_whole_batches(count[PL_IMAGES_TEST], s.batch);
    pl_estimate_sum(out, 0);
    return POLAR_OK;
}

#define SMALL_SIDE 32 /* of a made-up picture: it costs what one of a pack does */

polar_status pl_deit_shorten(pl_config *c, int64_t steps)
{
    pl_deit_settings s;
    const char *note;
    int64_t count[PL_IMAGE_SPLITS];
    char set[160];
    PL_TRY(pl_deit_settings_read(&s, c));
    PL_TRY(count_pictures(count, &s, &note));
    int64_t classes = s.shape.classes, train = (steps * s.batch + classes - 1) / classes,
            test = (s.batch + classes - 1) / classes;
    snprintf(set, sizeof set, "synth:classes=%lld,train=%lld,test=%lld,size=%d", (long long)classes,
             (long long)train, (long long)test, SMALL_SIDE);
    PL_TRY(pl_config_set(c, "data.path", ""));
    PL_TRY(pl_config_set(c, "data.set", set));
    PL_TRY(pl_config_set(c, "data.classes", "0"));
    PL_TRY(pl_config_set(c, "train.last_batch", "drop"));
    PL_TRY(pl_config_set(c, "train.warmup", "1"));
    return pl_config_set(c, "train.epochs", "1000");
}
