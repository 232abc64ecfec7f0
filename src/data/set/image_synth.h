/* image_synth.h -- procedural textures: a labelled set of any size, for tests and first tries, from nothing
 * but a seed.
 *
 * A class is a pattern (stripes, checks, rings, spots), a scale, a direction and a pair of colours; a picture
 * of it has its own place, tilt, scale, light, mixture of colours and noise. Pixel values are a function of
 * (seed, class, split, number, size) and use no library function: the same bytes on every machine.
 *
 *     pl_image_synth_draw(&im, &opts, PL_IMAGES_TRAIN, label, number);
 *     PL_TRY(pl_image_synth_write(&stopped, &opts, "out"));            // out/train/texture_000/00000.jpg ...
 */
#ifndef PL_DATA_IMAGE_SYNTH_H
#define PL_DATA_IMAGE_SYNTH_H

#include <stdatomic.h>

#include "data/image.h"
#include "data/codec/image_decode.h"
#include "data/set/image_folder.h"

typedef struct pl_synth_opts {
    int64_t classes;
    int64_t per_class[PL_IMAGE_SPLITS]; /* pictures */
    int64_t size;                       /* pixels a side */
    uint64_t seed;
    double noise;           /* standard deviation, grey levels, about */
    pl_image_format format; /* of the files */
    int quality;
    int workers;
    void (*progress)(void *user, int64_t done, int64_t total); /* or NULL */
    void *user;
    atomic_int *stop; /* not 0: leave; or NULL */
} pl_synth_opts;

#define PL_SYNTH_OPTS_INIT                    \
    ((pl_synth_opts){.classes = 10,           \
                     .per_class = {100, 20},  \
                     .size = 64,              \
                     .noise = 12,             \
                     .format = PL_IMAGE_JPEG, \
                     .quality = 90,           \
                     .workers = 1})

#define PL_SYNTH_NAME 32

/* "texture_007": as many digits as the order of names needs, three at least */
void pl_image_synth_class(char out[PL_SYNTH_NAME], const pl_synth_opts *o, int64_t label);
/* fills a picture of o->size squared */
void pl_image_synth_draw(pl_image *im, const pl_synth_opts *o, pl_image_split split, int64_t label,
                         int64_t number);
/* a new folder, whole or not at all; *stopped: not at all, as asked */
polar_status pl_image_synth_write(int *stopped, const pl_synth_opts *o, const char *path);

#endif
