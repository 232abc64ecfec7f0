/* fuzz_safetensors.c -- libFuzzer entry: any bytes as a safetensors file, and as JSON. It must not crash,
 * leak or read too far; what is taken must hold together.
 *
 *     clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc
 *         tools/fuzz_safetensors.c \
 *         src/base/safetensors*.c src/base/json_read.c src/base/alloc.c src/base/status.c -o fuzz_safetensors
 *     ./fuzz_safetensors -max_total_time=60 -max_len=4096 corpus/
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int cond)
{
    if (!cond) abort();
}

static void try_json(const char *text, size_t size)
{
    pl_json p = pl_json_view(text, (int64_t)size, "'fuzz'");
    while (pl_json_next(&p) == POLAR_OK && p.token != PL_JSON_END) {
        if (p.token != PL_JSON_KEY && p.token != PL_JSON_STRING) continue;
        char *out = malloc((size_t)p.raw_size + 1);
        need(out != NULL);
        int64_t n = pl_json_decode(out, &p);
        need(n <= p.raw_size && pl_utf8_valid(out, n));
        free(out);
    }
}

static void try_safetensors(const uint8_t *data, size_t size)
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
    pl_safetensors_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = pl_alloc_live();
    try_json((const char *)data, size);
    try_safetensors(data, size);
    need(pl_alloc_live() == live);
    return 0;
}
