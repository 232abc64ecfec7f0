/* fuzz_safetensors.c -- any bytes as a safetensors file: what is taken holds together, is covered by its
 * tensors, and is read the same again after it was written. */
#include "fuzz_tensors.h"

#include <stdio.h>

void fuzz_begin(void)
{
    static const float x[2] = {1, -2};
    static const char plain[] =
        "\066\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}\0\0\200\077";
    const pl_safetensors_entry e[] = {
        {.name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 2, .shape = {1, 2}, .data = x, .bytes = 8},
        {.name = "n", .dtype_name = "I64", .dtype = -1, .ndim = 0, .data = x, .bytes = 8}};
    const pl_safetensors_meta meta = {"key", "value"};
    fuzz_seed("plain", plain, sizeof plain - 1);
    need(pl_safetensors_write(fuzz_path("seed"), e, 2, &meta, 1) == POLAR_OK);
    fuzz_seed_file("summed", fuzz_path("seed"));
}

static int same_entry(const pl_safetensors_entry *a, const pl_safetensors_entry *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->dtype_name, b->dtype_name) && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) && a->bytes == b->bytes &&
           !memcmp(a->data, b->data, (size_t)a->bytes);
}

static void write_again(const pl_safetensors *f)
{
    int64_t n = pl_safetensors_count(f), n_meta = pl_safetensors_meta_count(f);
    pl_safetensors_entry *entries = calloc((size_t)n + 1, sizeof *entries);
    pl_safetensors_meta *meta = calloc((size_t)n_meta + 1, sizeof *meta);
    pl_safetensors *again;
    const char *path = fuzz_path("again");
    for (int64_t i = 0; i < n; i++) entries[i] = *pl_safetensors_view(f, i);
    for (int64_t i = 0; i < n_meta; i++) meta[i] = *pl_safetensors_meta_view(f, i);
    need(pl_safetensors_write(path, entries, n, meta, n_meta) == POLAR_OK);
    need(pl_safetensors_open(&again, path) == POLAR_OK && pl_safetensors_checked(again));
    need(pl_safetensors_count(again) == n && pl_safetensors_meta_count(again) == n_meta);
    for (int64_t i = 0; i < n; i++) need(same_entry(&entries[i], pl_safetensors_view(again, i)));
    for (int64_t i = 0; i < n_meta; i++)
        need(!strcmp(pl_safetensors_meta_find(again, meta[i].key), meta[i].value));
    pl_safetensors_close(again);
    remove(path);
    free(entries);
    free(meta);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    pl_safetensors *f;
    int64_t total = 0, sum = 0, header = 0;
    if (pl_safetensors_open_bytes(&f, data, (int64_t)size, "fuzz") != POLAR_OK) return;
    for (int64_t i = 0; i < pl_safetensors_count(f); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(f, i);
        need((uintptr_t)e->data % 64 == 0 && pl_safetensors_find(f, e->name) == e);
        for (int64_t b = 0; b < e->bytes; b++) sum += ((const uint8_t *)e->data)[b];
        total += e->bytes;
    }
    for (int64_t i = 0; i < pl_safetensors_meta_count(f); i++) {
        const pl_safetensors_meta *m = pl_safetensors_meta_view(f, i);
        need(pl_safetensors_meta_find(f, m->key) == m->value);
    }
    for (int i = 3; i >= 0; i--) header = header << 8 | data[i];
    for (int64_t b = 8 + header; b < (int64_t)size; b++) sum -= data[b];
    need(total == (int64_t)size - 8 - header && sum == 0);
    write_again(f);
    pl_safetensors_close(f);
}
