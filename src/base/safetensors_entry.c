/* safetensors_entry.c -- what reader and writer of safetensors.h must agree on: number formats, sizes, unique
 * names. */
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int bits, dtype;
} formats[] = {{"F64", 64, POLAR_DTYPE_F64},
               {"F32", 32, POLAR_DTYPE_F32},
               {"BF16", 16, POLAR_DTYPE_BF16},
               {"F16", 16, -1},
               {"I64", 64, -1},
               {"I32", 32, -1},
               {"I16", 16, -1},
               {"I8", 8, -1},
               {"U64", 64, -1},
               {"U32", 32, -1},
               {"U16", 16, -1},
               {"U8", 8, -1},
               {"BOOL", 8, -1},
               {"C64", 64, -1},
               {"F8_E4M3", 8, -1},
               {"F8_E5M2", 8, -1},
               {"F8_E8M0", 8, -1},
               {"F8_E4M3FNUZ", 8, -1},
               {"F8_E5M2FNUZ", 8, -1},
               {"F6_E2M3", 6, -1},
               {"F6_E3M2", 6, -1},
               {"F4", 4, -1}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static int format_find(const char *dtype_name)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (!strcmp(formats[i].name, dtype_name)) return i;
    return -1;
}

int pl_safetensors_dtype(const char *dtype_name)
{
    int i = format_find(dtype_name);
    return i < 0 ? -2 : formats[i].dtype;
}

const char *pl_safetensors_dtype_name(int dtype)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (dtype >= 0 && formats[i].dtype == dtype) return formats[i].name;
    return NULL;
}

const char *pl_safetensors_bytes(int64_t *out, const char *dtype_name, int ndim, const int64_t *shape)
{
    int format = format_find(dtype_name), empty = 0;
    if (format < 0) return "not a number format of safetensors";
    if (ndim < 0 || ndim > POLAR_MAX_DIMS) return "more dimensions than we take (8)";
    int64_t bits = formats[format].bits;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return "a negative dimension";
        empty |= shape[i] == 0;
        if (__builtin_mul_overflow(bits, shape[i] ? shape[i] : 1, &bits))
            return "the shape counts more than 2^63 bits";
    }
    if (bits % 8 && !empty) return "the elements do not fill whole bytes";
    *out = empty ? 0 : bits / 8;
    return NULL;
}

/* ---- names -------------------------------------------------------------------------------------- */

static int compare_name(const void *a, const void *b)
{
    return strcmp(**(const pl_named *)a, **(const pl_named *)b);
}

void pl_named_sort(pl_named *index, const void *items, int64_t n, size_t item_bytes)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = (pl_named)(const void *)((const char *)items + (size_t)i * item_bytes);
    qsort(index, (size_t)n, sizeof *index, compare_name);
}

const char *pl_named_twice(const pl_named *index, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(*index[i - 1], *index[i])) return *index[i];
    return NULL;
}

const void *pl_named_find(const pl_named *index, int64_t n, const char *name)
{
    const char *const *key = &name;
    const pl_named *found = bsearch(&key, index, (size_t)n, sizeof *index, compare_name);
    return found ? (const void *)*found : NULL;
}
