/* checksum.h -- a 64-bit checksum of bytes, for what rots: files of tensors, packs of pictures, rows of the
 * store. Not for secrets.
 *
 *     uint64_t sum = pl_checksum_of(data, bytes);
 *
 *     pl_checksum c = pl_checksum_begin(total);        // how many bytes there will be
 *     pl_checksum_add(&c, part, bytes);                // in any pieces, in order
 *     uint64_t same = pl_checksum_end(&c);
 *
 * Four lanes take the words of 8 bytes in turn: lane = (lane ^ word) * odd, then a shift that folds the high
 * half down. Each of these is a bijection, of the lane and of the word, and so is every step of joining the
 * lanes: a change within one word always changes the sum; any other change keeps it with a chance of about
 * 2^-64. The value is the same on every machine and never changes: packs hold it.
 */
#ifndef PL_BASE_CHECKSUM_H
#define PL_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define PL_CHECKSUM_HEX 17 /* as text: 16 lower-case digits and the zero */

typedef struct pl_checksum {
    uint64_t lane[4];
    size_t waiting; /* bytes of `block` */
    unsigned char block[32];
} pl_checksum;

/* of so many bytes, none seen yet */
pl_checksum pl_checksum_begin(uint64_t total);
void pl_checksum_add(pl_checksum *c, const void *data, size_t bytes); /* the next ones */
uint64_t pl_checksum_end(const pl_checksum *c);                       /* after `total` bytes */
uint64_t pl_checksum_of(const void *data, size_t bytes);              /* of one piece */
void pl_checksum_print(char out[PL_CHECKSUM_HEX], uint64_t sum);      /* as text */

#endif
