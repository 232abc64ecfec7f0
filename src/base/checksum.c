/* checksum.c -- see checksum.h. The four chains of a block of 32 bytes do not wait for each other: about 5
 * bytes a cycle (docs/SPEED.md). */
#include "base/checksum.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "words are taken as they stand in memory: little-endian");

#define MULTIPLIER UINT64_C(0x9fb21c651e98df25) /* odd */

static inline void add_blocks(uint64_t lane[4], const unsigned char *data, size_t blocks)
{
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3], word[4];
    for (; blocks; blocks--, data += 32) {
        memcpy(word, data, 32);
        a = (a ^ word[0]) * MULTIPLIER, a ^= a >> 32;
        b = (b ^ word[1]) * MULTIPLIER, b ^= b >> 32;
        c = (c ^ word[2]) * MULTIPLIER, c ^= c >> 32;
        d = (d ^ word[3]) * MULTIPLIER, d ^= d >> 32;
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
}

pl_checksum pl_checksum_begin(uint64_t total)
{
    return (pl_checksum){.lane = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9),
                                  UINT64_C(0x94d049bb133111eb), total}};
}

void pl_checksum_add(pl_checksum *c, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    if (c->waiting) {
        size_t room = sizeof c->block - c->waiting;
        size_t n = bytes < room ? bytes : room;
        memcpy(c->block + c->waiting, p, n);
        c->waiting += n, p += n, bytes -= n;
        if (c->waiting < sizeof c->block) return;
        add_blocks(c->lane, c->block, 1);
        c->waiting = 0;
    }
    add_blocks(c->lane, p, bytes / sizeof c->block);
    c->waiting = bytes % sizeof c->block;
    if (c->waiting) memcpy(c->block, p + bytes - c->waiting, c->waiting);
}

uint64_t pl_checksum_end(const pl_checksum *c)
{
    uint64_t lane[4], h;
    memcpy(lane, c->lane, sizeof lane);
    for (size_t i = 0; i < c->waiting; i++) lane[i & 3] = (lane[i & 3] ^ c->block[i]) * MULTIPLIER;
    h = lane[0];
    for (int k = 1; k < 4; k++) h = (h ^ (h >> 29) ^ lane[k]) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 32;
}

uint64_t pl_checksum_of(const void *data, size_t bytes)
{
    pl_checksum c = pl_checksum_begin(bytes);
    pl_checksum_add(&c, data, bytes);
    return pl_checksum_end(&c);
}

void pl_checksum_print(char out[PL_CHECKSUM_HEX], uint64_t sum)
{
    snprintf(out, PL_CHECKSUM_HEX, "%016llx", (unsigned long long)sum);
}
