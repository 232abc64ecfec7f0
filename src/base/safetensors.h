/* safetensors.h -- tensor files: a checked reader and a writer that never leaves half a file.
 *
 *     8 bytes   H, the size of the header, unsigned little-endian
 *     H bytes   JSON: {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3],
 *         "data_offsets": [0, 24]}, ...}
 *     the rest  the tensors' bytes, little-endian, row-major; offsets count from here, cover all of it
 *         and never overlap
 *
 *     pl_safetensors *f;
 *     PL_TRY(pl_safetensors_open(&f, "w.safetensors"));
 *     for (int64_t i = 0; i < pl_safetensors_count(f); i++) use(pl_safetensors_view(f, i));
 *     pl_safetensors_close(f);
 *
 *     pl_safetensors_entry e = {.name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 2, .shape = {2, 3},
 *         .data = w, .bytes = 24};
 *     PL_TRY(pl_safetensors_write("w.safetensors", &e, 1, NULL, 0));
 *
 * What write puts carries a checksum of the whole file, the header too, as metadata: "polar.checksum": 16
 * hex digits, of the file with zeros ('0') in their place (checksum.h). Open compares it and keeps it to
 * itself: it is not among the metadata that it shows, and write takes none. Other programs see one more
 * pair. A file without one is read unchecked (pl_safetensors_checked), as other programs write them.
 *
 * What open accepts, write takes back and open reads the same again, formats that polar does not compute in
 * (F16, I64, F8_...) included. Ours, not the format's: at most POLAR_MAX_DIMS dimensions, no zero character
 * inside a string.
 */
#ifndef PL_BASE_SAFETENSORS_H
#define PL_BASE_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"
#include "polar/tensor.h"

#define PL_SAFETENSORS_MAX_HEADER 100000000 /* bytes, the format's own limit */
#define PL_SAFETENSORS_CHECKSUM   "polar.checksum"

typedef struct pl_safetensors pl_safetensors;

typedef struct pl_safetensors_entry {
    const char *name; /* UTF-8; not "__metadata__" */
    /* the format's: "F32", "BF16", "I64", ...; to write, NULL means the one of dtype */
    const char *dtype_name;
    /* polar_dtype, or -1 for one that polar does not compute in; write looks at it only without dtype_name */
    int dtype;
    int ndim;
    int64_t shape[POLAR_MAX_DIMS];
    /* dense, row-major; when read: aligned to 64 bytes, never NULL (but for open_header), valid until close
     */
    const void *data;
    int64_t bytes;
} pl_safetensors_entry;

typedef struct pl_safetensors_meta {
    const char *key, *value; /* UTF-8 */
} pl_safetensors_meta;

/* reads and checks all: _ARG no such file, _FORMAT malformed, _IO */
polar_status pl_safetensors_open(pl_safetensors **out, const char *path);
/* names, shapes and metadata alone: entries have no data, and the checksum is not looked at */
polar_status pl_safetensors_open_header(pl_safetensors **out, const char *path);
/* all of it, from a copy of memory */
polar_status pl_safetensors_open_bytes(pl_safetensors **out, const void *bytes, int64_t size,
                                       const char *name);
/* ends every borrow; NULL is fine */
void pl_safetensors_close(pl_safetensors *f);
/* tensors */
int64_t pl_safetensors_count(const pl_safetensors *f);
/* the i-th in the header's order; borrowed */
const pl_safetensors_entry *pl_safetensors_view(const pl_safetensors *f, int64_t i);
/* by name, NULL if there is none; borrowed */
const pl_safetensors_entry *pl_safetensors_find(const pl_safetensors *f, const char *name);
/* pairs under __metadata__ */
int64_t pl_safetensors_meta_count(const pl_safetensors *f);
/* the i-th in the header's order; borrowed */
const pl_safetensors_meta *pl_safetensors_meta_view(const pl_safetensors *f, int64_t i);
/* its value, NULL if there is none; borrowed */
const char *pl_safetensors_meta_find(const pl_safetensors *f, const char *key);
/* whether it had a checksum, which was right */
int pl_safetensors_checked(const pl_safetensors *f);

/* Puts the file at path in one rename, tensors in the given order, the same bytes for the same arguments. On
 * failure path is as it was. */
polar_status pl_safetensors_write(const char *path, const pl_safetensors_entry *entries, int64_t n,
                                  const pl_safetensors_meta *meta, int64_t n_meta);
/* whether it begins as write puts it; reads no more than that */
int pl_safetensors_has_checksum(const char *path);

/* ---- shared by reader and writer, in safetensors_entry.c ---- */
/* polar_dtype, -1 for another known format, -2 for none */
int pl_safetensors_dtype(const char *dtype_name);
/* of a polar_dtype, "F32"; NULL for any other number */
const char *pl_safetensors_dtype_name(int dtype);
/* sets *out; NULL, or what is wrong */
const char *pl_safetensors_bytes(int64_t *out, const char *dtype_name, int ndim, const int64_t *shape);

/* points at a struct whose first member is its name */
typedef const char *const *pl_named;
/* index: n pointers to the items, in order of name */
void pl_named_sort(pl_named *index, const void *items, int64_t n, size_t item_bytes);
/* a name that stands there twice, or NULL */
const char *pl_named_twice(const pl_named *index, int64_t n);
/* the item of that name, or NULL */
const void *pl_named_find(const pl_named *index, int64_t n, const char *name);

#endif
