/* strip_checksum.h -- a safetensors file of ours as another program, or an older polar, would have written it: without a checksum. */
#ifndef POLAR_STRIP_CHECKSUM_H
#define POLAR_STRIP_CHECKSUM_H

#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

/* The pair stays, under a name that means nothing. */
static inline void strip_checksum(void *file, size_t size)
{
    static const char key[] = PL_SAFETENSORS_CHECKSUM, other[] = "other.metadata";
    _Static_assert(sizeof key == sizeof other, "the header keeps its size");
    char *at = memmem(file, size, key, sizeof key - 1);
    if (!at) exit(3);
    memcpy(at, other, sizeof other - 1);
}

#endif
