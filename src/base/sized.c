/* sized.c -- copies between our structs and those of a caller compiled with older or newer headers. */
#include "base/sized.h"

#include <string.h>

static int all_zero(const void *data, size_t from, size_t to)
{
    const unsigned char *byte = data;
    for (size_t i = from; i < to; i++)
        if (byte[i]) return 0;
    return 1;
}

static polar_status check_least(const char *type, size_t their_size, size_t least)
{
    PL_NEED(their_size >= least, POLAR_E_ARG,
            "%s of %zu bytes: version 0.1 already had %zu (set struct_size by its INIT macro, and every "
            "nested one too)",
            type, their_size, least);
    return POLAR_OK;
}

polar_status pl_sized_read(const char *type, void *ours, size_t size, const void *theirs, size_t their_size,
                           size_t least)
{
    PL_TRY(check_least(type, their_size, least));
    PL_NEED(their_size <= size || all_zero(theirs, size, their_size), POLAR_E_ARG,
            "%s of %zu bytes sets a field that libpolar %s, which knows %zu bytes of it, does not have: use "
            "the library of the "
            "program's headers, or leave the field zero",
            type, their_size, POLAR_VERSION, size);
    size_t shared = their_size < size ? their_size : size;
    memcpy(ours, theirs, shared);
    memset((char *)ours + shared, 0, size - shared);
    return POLAR_OK;
}

polar_status pl_sized_fits(const char *type, size_t their_size, const void *ours, size_t size, size_t least)
{
    PL_TRY(check_least(type, their_size, least));
    PL_NEED(their_size >= size || all_zero(ours, their_size, size), POLAR_E_UNSUPPORTED,
            "the result sets a field of %s that the program's headers (%zu bytes of %zu) do not have: "
            "compile it with those of "
            "libpolar %s",
            type, their_size, size, POLAR_VERSION);
    return POLAR_OK;
}

polar_status pl_sized_give(const char *type, void *theirs, size_t their_size, const void *ours, size_t size,
                           size_t least)
{
    PL_TRY(check_least(type, their_size, least));
    size_t shared = their_size < size ? their_size : size;
    memcpy(theirs, ours, shared);
    memset((char *)theirs + shared, 0, their_size - shared);
    return POLAR_OK;
}

polar_status pl_sized_write(const char *type, void *theirs, size_t their_size, const void *ours, size_t size,
                            size_t least)
{
    PL_TRY(pl_sized_fits(type, their_size, ours, size, least));
    return pl_sized_give(type, theirs, their_size, ours, size, least);
}
