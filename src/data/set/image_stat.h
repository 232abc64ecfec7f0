/* image_stat.h -- what a set of pictures is made of: formats, colours, sizes, and which of them are broken.
 */
#ifndef PL_DATA_IMAGE_STAT_H
#define PL_DATA_IMAGE_STAT_H

#include <stdatomic.h>

#include "data/codec/image_decode.h"
#include "data/set/image_folder.h"
#include "data/set/image_pack.h"

typedef struct pl_image_stat { /* of one split; broken pictures count in `count` and `bad` only */
    int64_t count, bad, bytes;
    int64_t formats[PL_IMAGE_OTHER], colours[PL_COLOURS], progressive;
    /* the least, the median, the greatest; lesser: the short side */
    int64_t width[3], height[3], lesser[3];
    int64_t class_least, class_most; /* pictures of a class */
} pl_image_stat;

typedef struct pl_stat_opts {
    /* all of every picture (a pack: its hashes); 0: headers only */
    int decode;
    int workers, skip_bad; /* skip_bad 0: the first broken picture is an error */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t bad); /* or NULL */
    void (*bad)(void *user, const char *sentence);                          /* or NULL */
    void *user;
    atomic_int *stop;
} pl_stat_opts;

/* *stopped: as asked, out is not filled */
polar_status pl_image_stat_folder(pl_image_stat out[PL_IMAGE_SPLITS], int *stopped, const pl_image_folder *f,
                                  const pl_stat_opts *o);
/* the same of a pack */
polar_status pl_image_stat_pack(pl_image_stat out[PL_IMAGE_SPLITS], int *stopped, const pl_image_pack *p,
                                const pl_stat_opts *o);

#endif
