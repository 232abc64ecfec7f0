/* image_tree.h -- a folder that appears whole: it grows under another name beside its place and takes its own
 * in one rename.
 *
 *     pl_image_tree t;
 *     PL_TRY(pl_image_tree_begin(&t, "out"));
 *     st = fill(t.part);                          // files and folders below it
 *     return pl_image_tree_end(&t, st);           // out, or nothing at all
 */
#ifndef PL_DATA_IMAGE_TREE_H
#define PL_DATA_IMAGE_TREE_H

#include "base/status.h"

#define PL_TREE_PATH 4096

typedef struct pl_image_tree {
    char path[PL_TREE_PATH], part[PL_TREE_PATH + 48];
} pl_image_tree;

/* _ARG when something other than an empty folder is there, or no folder above it */
polar_status pl_image_tree_begin(pl_image_tree *t, const char *path);
/* makes a folder below it, those above it too */
polar_status pl_image_tree_folder(const pl_image_tree *t, const char *name);
/* renames; with another status than OK removes everything and returns that */
polar_status pl_image_tree_end(pl_image_tree *t, polar_status st);
/* a folder and all that is below it; links are not followed */
void pl_image_tree_remove(const char *path);

#endif
