/* image_pack.h -- a packed set of pictures: one file, mapped into memory, pixels as RGB bytes. Reading a
 * picture costs nothing but its pages.
 *
 *     256 bytes   header (pl_pack_header): magic, counts, places, SHA-256 of itself, the index and the names
 *     pictures    rows of RGB, each picture at a multiple of 64 bytes, in the order of the index
 *     index       one pl_pack_entry per picture, training pictures first, in the folder's order
 *     names       class names in order, then the pictures' names; strings ended by a zero
 *
 *     pl_image_pack *p;
 *     PL_TRY(pl_image_pack_open(&p, "set.pack"));                        // checks header, index and names
 *     // in the mapping: read only; compared with its checksum the first time
 *     PL_TRY(pl_image_pack_read(&im, p, PL_IMAGES_TRAIN, i));
 *     pl_image_pack_close(p);
 *
 * Numbers are little-endian. The index carries a checksum of each picture (base/checksum.h), so the
 * header's SHA-256 is the fingerprint of the whole set, and no byte of the file is without one. A file that
 * becomes shorter while it is mapped ends the process with SIGBUS at the next page that is gone:
 * pl_image_pack_at names the file to whoever catches it.
 */
#ifndef PL_DATA_IMAGE_PACK_H
#define PL_DATA_IMAGE_PACK_H

#include <stdatomic.h>

#include "base/sha256.h"
#include "data/image.h"
#include "data/set/image_folder.h"
#include "data/augment/image_resize.h"

#define PL_PACK_MAGIC   "polarpk"
#define PL_PACK_VERSION 1
#define PL_PACK_ALIGN   64

typedef struct pl_pack_header {
    char magic[8];
    uint64_t version;
    uint64_t order; /* 0x0102030405060708 */
    uint64_t file_bytes;
    uint64_t classes;
    uint64_t count[PL_IMAGE_SPLITS];
    uint64_t side, filter; /* the short side asked for, 0: as they were; pl_filter */
    uint64_t index_at, names_at, names_bytes;
    uint64_t room[12]; /* zero */
    char sha256[64];   /* hex digits, of the header up to here, the index and the names */
} pl_pack_header;

typedef struct pl_pack_entry {
    uint64_t at, hash, name; /* name: offset in the names */
    uint32_t width, height, label, reserved;
} pl_pack_entry;

typedef struct pl_image_pack pl_image_pack;

/* _ARG no such file, _FORMAT not ours or damaged */
polar_status pl_image_pack_open(pl_image_pack **out, const char *path);
/* ends every borrow; NULL is fine */
void pl_image_pack_close(pl_image_pack *p);
/* borrowed */
const pl_pack_header *pl_image_pack_header(const pl_image_pack *p);
/* its name; borrowed */
const char *pl_image_pack_class(const pl_image_pack *p, int64_t label);
/* of the file it was; borrowed */
const char *pl_image_pack_name(const pl_image_pack *p, pl_image_split split, int64_t i);
/* its class */
int64_t pl_image_pack_label(const pl_image_pack *p, pl_image_split split, int64_t i);
/* pixels in the mapping, unchecked: read only */
pl_image pl_image_pack_view(const pl_image_pack *p, pl_image_split split, int64_t i);
/* _FORMAT when its pixels are not those written */
polar_status pl_image_pack_check(const pl_image_pack *p, pl_image_split split, int64_t i);
/* the view, checked once; from any thread */
polar_status pl_image_pack_read(pl_image *out, const pl_image_pack *p, pl_image_split split, int64_t i);
/* the path of the open pack mapped there, or NULL; for signal handlers */
const char *pl_image_pack_at(const void *address);

typedef struct pl_pack_opts {
    /* pictures with a longer short side are resized to it as torchvision's Resize; 0: none */
    int64_t side;
    pl_filter filter;
    int workers, skip_bad; /* skip_bad: broken pictures are left out and counted */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t bad); /* or NULL */
    /* one per picture left out; or NULL */
    void (*bad)(void *user, const char *sentence);
    void *user;
    atomic_int *stop; /* not 0: leave; or NULL */
} pl_pack_opts;

typedef struct pl_pack_result {
    int64_t count[PL_IMAGE_SPLITS], bad, bytes;
    int stopped; /* as asked: there is no file */
    char sha256[PL_SHA256_HEX];
} pl_pack_result;

/* in one rename, synced; path as it was on failure */
polar_status pl_image_pack_write(pl_pack_result *out, const char *path, const pl_image_folder *f,
                                 const pl_pack_opts *o);

#endif
