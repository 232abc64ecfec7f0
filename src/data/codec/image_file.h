/* image_file.h -- the bytes of a file, in a buffer that is used again for the next one.
 *
 *     pl_file_bytes b = {0};
 *     for (...) { PL_TRY(pl_file_bytes_read(&b, path, 0)); use(b.data, b.size); }
 *     pl_file_bytes_drop(&b);
 */
#ifndef PL_DATA_IMAGE_FILE_H
#define PL_DATA_IMAGE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_FILE_MAX_BYTES ((int64_t)1 << 30)

typedef struct pl_file_bytes {
    uint8_t *data;
    size_t size, room;
    int whole; /* 0: only the first bytes were asked for and there are more */
} pl_file_bytes;

/* all of it, or its first `most` bytes (0: all); _ARG no such file, _FORMAT too large, _IO */
polar_status pl_file_bytes_read(pl_file_bytes *b, const char *path, size_t most);
/* frees; safe on a zeroed one */
void pl_file_bytes_drop(pl_file_bytes *b);

#endif
