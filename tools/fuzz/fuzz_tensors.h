/* fuzz_tensors.h -- changes to safetensors files that go deeper than their first bytes: the header's length
 * and the checksum, where there is one, are made right again. */
#ifndef POLAR_FUZZ_TENSORS_H
#define POLAR_FUZZ_TENSORS_H

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/safetensors.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static inline void tensors_mend(uint8_t *data, size_t size, size_t header)
{
    static const char key[] = "\"" PL_SAFETENSORS_CHECKSUM "\":\"";
    char hex[PL_CHECKSUM_HEX];
    for (int i = 0; i < 8; i++) data[i] = (uint8_t)((uint64_t)header >> 8 * i);
    uint8_t *at = memmem(data + 8, header, key, sizeof key - 1);
    if (!at || (size_t)(data + 8 + header - at) < sizeof key - 1 + sizeof hex) return;
    at += sizeof key - 1;
    memset(at, '0', sizeof hex - 1);
    pl_checksum_print(hex, pl_checksum_of(data, size));
    memcpy(at, hex, sizeof hex - 1);
}

/* Of the header or of the data; now and then of all, with nothing made right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size_t header = 0, rest;
    for (int i = 7; size >= 8 && i >= 0; i--) header = header << 8 | data[i];
    if (size < 8 || header > size - 8 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, max);
    rest = size - 8 - header;
    if (rest && seed % 4 == 0) rest = LLVMFuzzerMutate(data + 8 + header, rest, max - 8 - header);
    else {
        uint8_t *tail = malloc(rest + 1);
        if (!tail) return size;
        memcpy(tail, data + 8 + header, rest);
        header = LLVMFuzzerMutate(data + 8, header, max - 8 - rest);
        memcpy(data + 8 + header, tail, rest);
        free(tail);
    }
    tensors_mend(data, 8 + header + rest, header);
    return 8 + header + rest;
}

#endif
