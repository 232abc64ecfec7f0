/* image_set.h -- labelled pictures, wherever they are: a folder, a pack, or textures made on the fly. What
 * a trainer reads.
 *
 *     pl_image_set *set;
 *     // "set.pack"; "synth:classes=10,train=400,test=100,size=64,seed=0"
 *     PL_TRY(pl_image_set_open(&set, "imagenet"));
 *     // a subset of the classes, numbered anew by name
 *     PL_TRY(pl_image_set_select(set, chosen, 100));
 *
 *     pl_picture p = {0};                                            // one per worker: it keeps its buffers
 *     // p.width, p.height, p.label: enough to draw a crop
 *     PL_TRY(pl_picture_open(&p, set, PL_IMAGES_TRAIN, i));
 *     // p.pixels, p.stride: only now, and only this part, is decoded
 *     PL_TRY(pl_picture_read(&p, (pl_box){x, y, w, h}));
 *     pl_picture_drop(&p);
 *
 * The crop's pixels are those of the whole picture. A set may be read from several threads, each with its
 * own pl_picture.
 */
#ifndef PL_DATA_IMAGE_SET_H
#define PL_DATA_IMAGE_SET_H

#include "base/sha256.h"
#include "data/image.h"
#include "data/codec/image_decode.h"
#include "data/codec/image_file.h"
#include "data/set/image_folder.h"

typedef enum pl_image_source { PL_SOURCE_FOLDER, PL_SOURCE_PACK, PL_SOURCE_SYNTH } pl_image_source;

typedef struct pl_image_set pl_image_set;

typedef struct pl_picture {
    int64_t width, height, label;
    /* of the part read: RGB, rows `stride` bytes apart; borrowed until the next open or read */
    const uint8_t *pixels;
    int64_t stride;
    const char *name; /* for sentences; borrowed from the set */
    /* the rest is the picture's own */
    const pl_image_set *set;
    pl_image_split split;
    int64_t item;
    pl_file_bytes file;
    pl_image decoded, view;
} pl_picture;

/* _ARG, _FORMAT with what is wrong and what to try */
polar_status pl_image_set_open(pl_image_set **out, const char *what);
/* NULL is fine */
void pl_image_set_close(pl_image_set *s);
/* keeps these classes, in any order, numbered anew by name; once */
polar_status pl_image_set_select(pl_image_set *s, const int64_t *chosen, int64_t n);
/* what it was opened from */
pl_image_source pl_image_set_source(const pl_image_set *s);
/* how many */
int64_t pl_image_set_classes(const pl_image_set *s);
/* its name; borrowed */
const char *pl_image_set_class(const pl_image_set *s, int64_t label);
/* pictures */
int64_t pl_image_set_count(const pl_image_set *s, pl_image_split split);
/* from the header: reads no more of a file than it needs */
polar_status pl_image_set_measure(pl_image_info *out, const pl_image_set *s, pl_image_split split, int64_t i);
/* the class of a picture */
int64_t pl_image_set_label(const pl_image_set *s, pl_image_split split, int64_t i);
/* names, classes and order; of a pack the pixels too */
polar_status pl_image_set_fingerprint(char out[PL_SHA256_HEX], const pl_image_set *s);

/* reads the file and its header */
polar_status pl_picture_open(pl_picture *p, const pl_image_set *s, pl_image_split split, int64_t i);
/* the pixels of a part; may be called again */
polar_status pl_picture_read(pl_picture *p, pl_box box);
/* all of it, packed, in *own, which is the caller's; of a pack borrowed from the set, and *own is empty */
polar_status pl_picture_take(const uint8_t **pixels, pl_image *own, pl_picture *p);
/* of a folder: the path of its file, whose bytes are p->file */
polar_status pl_picture_path(char *out, size_t bytes, const pl_picture *p);
/* frees its buffers; safe on a zeroed one */
void pl_picture_drop(pl_picture *p);

#endif
