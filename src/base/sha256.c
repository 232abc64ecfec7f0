/* sha256.c -- SHA-256 as FIPS 180-4 writes it: message schedule, 64 rounds per block of 64 bytes.
 *
 *     ctest -R test_sha256
 */
#include "base/sha256.h"

#include <string.h>

static const uint32_t K[64] = {
    /* fractional parts of the cube roots of the first 64 primes */
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

pl_sha256 pl_sha256_begin(void)
{
    return (pl_sha256){
        /* fractional parts of the square roots of the first 8 primes */
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                  0x5be0cd19},
    };
}

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void add_block(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64], s[8];
    for (int t = 0; t < 16; t++, p += 4)
        w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(s, state, sizeof s); /* a, b, ..., h */
    for (int t = 0; t < 64; t++) {
        uint32_t S1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25),
                 choose = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t S0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22),
                 majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t1 = s[7] + S1 + choose + K[t] + w[t];
        for (int i = 7; i > 0; i--) s[i] = s[i - 1]; /* unrolled; memmove would be a call */
        s[4] += t1;
        s[0] = t1 + S0 + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void pl_sha256_add(pl_sha256 *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    while (bytes) {
        size_t used = h->bytes % 64, n = 64 - used < bytes ? 64 - used : bytes;
        memcpy(h->block + used, p, n);
        h->bytes += n;
        p += n;
        bytes -= n;
        if (used + n == 64) add_block(h->state, h->block);
    }
}

void pl_sha256_end(char out[PL_SHA256_HEX], pl_sha256 *h)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char tail[72] = {0x80};
    uint64_t bits = 8 * h->bytes;
    size_t pad = (119 - h->bytes % 64) % 64 + 1; /* so that the length ends a block */
    for (int i = 0; i < 8; i++) tail[pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    pl_sha256_add(h, tail, pad + 8);
    for (int i = 0; i < 64; i++) out[i] = digits[h->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    out[64] = 0;
}
