/* image_folder.h -- a folder of pictures as torchvision's ImageFolder reads it: train/ and val/ (or test/),
 * one sub-folder per class in each.
 *
 *     pl_image_folder *f;
 *     PL_TRY(pl_image_folder_open(&f, "imagenet"));                            // reads names only
 *     for (int64_t i = 0; i < f->count[PL_IMAGES_TRAIN]; i++) {
 *         // "imagenet/train/n01440764/n01440764_10026.JPEG"
 *         pl_image_folder_path(path, sizeof path, f, PL_IMAGES_TRAIN, i);
 *         label = f->items[PL_IMAGES_TRAIN][i].label;                          // 0 .. f->classes - 1
 *     }
 *     pl_image_folder_close(f);
 *
 * Classes are numbered in the order of their names, pictures of a class come in the order of their folder
 * and name (bytes compared, folders within a class included, links followed). Every file with a picture's
 * ending counts, and every other one that begins like a JPEG or PNG; hidden files never. An error: no
 * train/, neither val/ nor test/, no class, a class without a picture, a class in one of the two that the
 * other does not have.
 *
 * val/ may also be as in Tiny-ImageNet: all pictures in val/images/, their classes in
 * val/val_annotations.txt, a line "file<tab>class..." each.
 */
#ifndef PL_DATA_IMAGE_FOLDER_H
#define PL_DATA_IMAGE_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum pl_image_split {
    PL_IMAGES_TRAIN,
    PL_IMAGES_TEST, /* val/, or test/ where there is no val/ */
    PL_IMAGE_SPLITS
} pl_image_split;

typedef struct pl_image_item {
    size_t at;      /* of its name in `names`: "train/cat/0.jpg" */
    int32_t folder; /* the first so many bytes of it name its folder */
    int32_t label;
} pl_image_item;

typedef struct pl_image_folder {
    char *root;
    int64_t classes;
    size_t *class_at;                        /* (classes), names in `names` */
    const char *split_name[PL_IMAGE_SPLITS]; /* "train"; "val" or "test" */
    int listed;                              /* the test pictures lie in one heap with a list of classes */
    int64_t count[PL_IMAGE_SPLITS];
    pl_image_item *items[PL_IMAGE_SPLITS];
    int64_t room[PL_IMAGE_SPLITS];
    char *names; /* strings, each ended by a zero */
    size_t names_used, names_room;
    int64_t passed_over; /* files that are no pictures, by ending and content */
} pl_image_folder;

/* _ARG with what is missing and what to try */
polar_status pl_image_folder_open(pl_image_folder **out, const char *path);
/* NULL is fine */
void pl_image_folder_close(pl_image_folder *f);
/* its name; borrowed */
const char *pl_image_folder_class(const pl_image_folder *f, int64_t label);
/* below the root; borrowed */
const char *pl_image_folder_name(const pl_image_folder *f, pl_image_split split, int64_t i);
/* with the root; _ARG when it is longer than that */
polar_status pl_image_folder_path(char *out, size_t bytes, const pl_image_folder *f, pl_image_split split,
                                  int64_t i);
/* keeps these classes, in any order, and numbers them anew by name */
polar_status pl_image_folder_select(pl_image_folder *f, const int64_t *chosen, int64_t n);

#endif
