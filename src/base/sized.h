/* sized.h -- structs that cross the ABI: the caller's may be shorter (older) or longer (newer) than ours.
 *
 * A field's zero means what the library did before the field was there (docs/abi.md). So what a shorter
 * struct lacks is read as zero, a longer one is taken while what we do not know of it is zero, and what
 * options handed out set beyond the caller's may be left out while it is zero.
 */
#ifndef PL_BASE_SIZED_H
#define PL_BASE_SIZED_H

#include <stddef.h>

#include "base/status.h"

/* Bytes of `type` up to the end of its field `last`: how large it was when `last` was the last one. */
#define PL_SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* ours <- theirs. Refused: fewer bytes than `least`, or bytes beyond ours that are not zero. */
polar_status pl_sized_read(const char *type, void *ours, size_t size, const void *theirs, size_t their_size,
                           size_t least);

/* theirs <- ours; what they have beyond ours is cleared. Refused: bytes of ours that they have no room for
 * and that are not zero. */
polar_status pl_sized_write(const char *type, void *theirs, size_t their_size, const void *ours, size_t size,
                            size_t least);

/* The same for what was measured: what they have no room for is left out, whatever it says. */
polar_status pl_sized_give(const char *type, void *theirs, size_t their_size, const void *ours, size_t size,
                           size_t least);

/* Whether pl_sized_write would do it. */
polar_status pl_sized_fits(const char *type, size_t their_size, const void *ours, size_t size, size_t least);

#endif
