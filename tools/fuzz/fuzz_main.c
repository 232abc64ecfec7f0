/* fuzz_main.c -- libFuzzer's side of an entry (fuzz.h): seeds into the folder FUZZ_SEEDS, words into
 * FUZZ_SEEDS.dict, files in TMPDIR. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "polar/status.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[256];

void fuzz_need(int cond, const char *what, const char *file, int line)
{
    if (cond) return;
    fprintf(stderr, "%s:%d: not so: %s\nthe last sentence: %s\n", file, line, what, polar_error_message());
    abort();
}

static void put_file(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    need(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
}

void fuzz_seed(const char *name, const void *bytes, size_t size)
{
    const char *to = getenv("FUZZ_SEEDS");
    char path[512];
    if (!to) return;
    snprintf(path, sizeof path, "%s/%s", to, name);
    put_file(path, bytes, size);
}

void fuzz_seed_file(const char *name, const char *path)
{
    size_t size;
    uint8_t *bytes = fuzz_read(path, &size);
    fuzz_seed(name, bytes, size);
    free(bytes);
    remove(path);
}

void fuzz_word(const char *word)
{
    const char *to = getenv("FUZZ_SEEDS");
    char path[512];
    if (!to) return;
    snprintf(path, sizeof path, "%s.dict", to);
    FILE *f = fopen(path, "a");
    need(f != NULL);
    putc('"', f);
    for (; *word; word++) fprintf(f, "\\x%02x", (unsigned char)*word);
    fputs("\"\n", f);
    fclose(f);
}

const char *fuzz_file(int i, const void *bytes, size_t size)
{
    static struct {
        int fd;
        char path[32];
    } files[4];
    if (!files[i].fd) {
        files[i].fd = memfd_create("fuzz", 0);
        snprintf(files[i].path, sizeof files[i].path, "/proc/self/fd/%d", files[i].fd);
    }
    need(ftruncate(files[i].fd, 0) == 0 && pwrite(files[i].fd, bytes, size, 0) == (ssize_t)size);
    return files[i].path;
}

const char *fuzz_path(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *p = paths[turn++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

uint8_t *fuzz_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    need(f && fseek(f, 0, SEEK_END) == 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*size + 1);
    need(bytes && fread(bytes, 1, *size, f) == *size);
    bytes[*size] = 0;
    fclose(f);
    return bytes;
}

char *fuzz_part(const uint8_t *data, size_t size, int i)
{
    const uint8_t *end = data + size, *cut;
    for (; i > 0; i--, data = cut + 1)
        if (!(cut = size ? memchr(data, 1, (size_t)(end - data)) : NULL)) return NULL;
    cut = data < end ? memchr(data, 1, (size_t)(end - data)) : NULL;
    size_t n = (size_t)((cut ? cut : end) - data);
    char *text = malloc(n + 1);
    need(text != NULL);
    if (n) memcpy(text, data, n);
    text[n] = 0;
    return text;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/polar_fuzz_XXXXXX", base ? base : "/tmp");
    need(mkdtemp(folder) != NULL);
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = pl_alloc_live();
    fuzz_try(data, size);
    need(pl_alloc_live() == live);
    return 0;
}
