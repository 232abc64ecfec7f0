/* sha256.h -- SHA-256 (FIPS 180-4): names of runs and of spec files. Not for secrets.
 *
 *     char hex[PL_SHA256_HEX];
 *     pl_sha256 h = pl_sha256_begin();
 *     pl_sha256_add(&h, text, n);                // as often as one likes
 *     pl_sha256_end(hex, &h);                    // 64 digits and a zero
 */
#ifndef PL_BASE_SHA256_H
#define PL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define PL_SHA256_HEX 65

typedef struct pl_sha256 {
    uint32_t state[8];
    uint64_t bytes;          /* added so far */
    unsigned char block[64]; /* the last bytes % 64 of them */
} pl_sha256;

pl_sha256 pl_sha256_begin(void);                                  /* of nothing yet */
void pl_sha256_add(pl_sha256 *h, const void *data, size_t bytes); /* more of the message */
/* lower-case hex digits; h is used up */
void pl_sha256_end(char out[PL_SHA256_HEX], pl_sha256 *h);

#endif
