/* fuzz_pack.c -- any bytes as a pack of pictures: in one that opens every picture lies within the file,
 * beside the others, and has a class and names. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/set/image_pack.h"
#include "data/set/image_set.h"
#include "data/set/image_synth.h"
#include "base/checksum.h"
#include "fixtures/folder.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

void fuzz_begin(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    pl_pack_opts po = {.workers = 1};
    pl_pack_result result;
    pl_image_folder *f;
    int stopped;
    o.classes = 2, o.per_class[0] = 2, o.per_class[1] = 1, o.size = 5;
    need(pl_image_synth_write(&stopped, &o, fuzz_path("set")) == POLAR_OK);
    need(pl_image_folder_open(&f, fuzz_path("set")) == POLAR_OK);
    need(pl_image_pack_write(&result, fuzz_path("pack"), f, &po) == POLAR_OK);
    pl_image_folder_close(f);
    folder_remove(fuzz_path("set"));
    fuzz_seed_file("pack", fuzz_path("pack"));
}

/* Sizes and sums are made right again, those of the pictures now and then. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    pl_pack_header h;
    char hex[PL_SHA256_HEX];
    size = LLVMFuzzerMutate(data, size, max);
    if (seed % 16 == 0 || size < sizeof h) return size;
    memcpy(&h, data, sizeof h);
    h.file_bytes = size;
    if (seed % 4 && h.names_at <= size) h.names_bytes = size - h.names_at;
    memcpy(data, &h, sizeof h);
    if (h.index_at > size) return size;
    for (size_t at = h.index_at; seed % 3 == 0 && at <= size && size - at >= sizeof(pl_pack_entry);
         at += sizeof(pl_pack_entry)) {
        pl_pack_entry e;
        memcpy(&e, data + at, sizeof e);
        uint64_t bytes = (uint64_t)e.width * e.height * PL_IMAGE_CHANNELS;
        if (e.at > size || bytes > size - e.at) break;
        e.hash = pl_checksum_of(data + e.at, bytes);
        memcpy(data + at, &e, sizeof e);
    }
    pl_sha256 sha = pl_sha256_begin();
    pl_sha256_add(&sha, data, offsetof(pl_pack_header, sha256));
    pl_sha256_add(&sha, data + h.index_at, size - h.index_at);
    pl_sha256_end(hex, &sha);
    memcpy(data + offsetof(pl_pack_header, sha256), hex, sizeof h.sha256);
    return size;
}

static void try_pack(const pl_image_pack *p, size_t size)
{
    const pl_pack_header *h = pl_image_pack_header(p);
    const uint8_t *base = (const uint8_t *)h;
    size_t all = 0;
    need(h->classes <= size);
    for (uint64_t c = 0; c < h->classes; c++) {
        const char *name = pl_image_pack_class(p, (int64_t)c);
        need(name > (const char *)base && name + strlen(name) < (const char *)base + size);
    }
    for (int s = 0; s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; i < (int64_t)h->count[s]; i++) {
            pl_image im = pl_image_pack_view(p, s, i);
            need(im.width > 0 && im.height > 0 && im.data >= base + sizeof *h);
            need(im.data + pl_image_bytes(&im) <= base + h->index_at);
            need(pl_image_pack_label(p, s, i) < (int64_t)h->classes);
            need(pl_image_pack_name(p, s, i) + strlen(pl_image_pack_name(p, s, i)) <
                 (const char *)base + size);
            (void)pl_image_pack_read(&im, p, s, i);
            all += pl_image_bytes(&im);
        }
    need(all <= h->index_at - sizeof *h); /* none twice: reading all costs what the file's size costs */
}

void fuzz_try(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(0, data, size);
    pl_image_pack *p;
    pl_image_set *set;
    polar_status st = pl_image_pack_open(&p, path);
    need(st == POLAR_OK || st == POLAR_E_FORMAT);
    if (st != POLAR_OK) return;
    need(!strcmp(pl_image_pack_at(pl_image_pack_header(p)), path));
    try_pack(p, size);
    pl_image_pack_close(p);
    need(pl_image_set_open(&set, path) == POLAR_OK);
    pl_image_set_close(set);
}
