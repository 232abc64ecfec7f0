/* safetensors_mutate.h -- a file of test_safetensors with lies in it: bytes, digits and pieces of its header
 * changed. */
#ifndef PL_TESTS_SAFETENSORS_MUTATE_H
#define PL_TESTS_SAFETENSORS_MUTATE_H

#include <stdint.h>
#include <string.h>

typedef struct mutant {
    unsigned char bytes[8192];
    size_t size;
} mutant;

static uint64_t draw(uint64_t *x, uint64_t below)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17; /* xorshift64 */
    return *x % below;
}

static size_t header_size(const mutant *m)
{
    size_t n = m->bytes[0] + 256u * m->bytes[1];
    return 8 + n <= m->size ? n : m->size - 8;
}

/* Replaces `cut` bytes of the header at `at` and, mostly, makes its length right again: the lie is then
 * deeper in. */
static void replace_piece(mutant *m, uint64_t *x, size_t at, size_t cut, const char *in, size_t n)
{
    size_t header = header_size(m), new_header = header - cut + n;
    if (m->size - cut + n > sizeof m->bytes) return;
    memmove(m->bytes + 8 + at + n, m->bytes + 8 + at + cut, m->size - 8 - at - cut);
    memcpy(m->bytes + 8 + at, in, n);
    m->size = m->size - cut + n;
    if (draw(x, 20)) m->bytes[0] = (unsigned char)new_header, m->bytes[1] = (unsigned char)(new_header >> 8);
}

static size_t find_digits(const mutant *m, uint64_t *x, size_t *length)
{
    size_t header = header_size(m), at = draw(x, header);
    for (*length = 0; at < header && (m->bytes[8 + at] < '0' || m->bytes[8 + at] > '9');) at++;
    while (at + *length < header && m->bytes[8 + at + *length] >= '0' && m->bytes[8 + at + *length] <= '9')
        ++*length;
    return at;
}

static void mutate(mutant *m, uint64_t *x)
{
    static const char *const hostile[] = {
        "-1",
        "0",
        "1",
        "8",
        "3",
        "27",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "4611686018427387904",
        "4294967296",
        "1e3",
        "1.0",
        "-0",
        "NaN",
        "Infinity",
        "null",
        "\"4\"",
        "[1]",
        "{}",
        "",
        "4,4",
        "0,9223372036854775807",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["};
    static const char *const words[] = {
        "U8",    "F32",          "F64",          "F16", "F4", "Q8", "\\u0000", "\\ud800", "\xff", "shape",
        "dtype", "data_offsets", "__metadata__", "odd", "w",  "{",  "}",       "\",\"",   "null"};
    char copy[64];
    if (m->size < 16 || !header_size(m)) return;
    size_t header = header_size(m), length, at = draw(x, header), to, to_length;
    const char *word = words[draw(x, sizeof words / sizeof *words)],
               *number = hostile[draw(x, sizeof hostile / sizeof *hostile)];
    switch (draw(x, 9)) {
    case 0:
        for (uint64_t n = 1 + draw(x, 8); n > 0; n--)
            m->bytes[draw(x, m->size)] ^= (unsigned char)(1 << draw(x, 8));
        break;
    case 1: m->size = draw(x, m->size); break;
    /* the header's length lies */
    case 2: m->bytes[draw(x, 8)] = (unsigned char)draw(x, 256); break;
    /* a number becomes a hostile one */
    case 3:
    case 4:
        at = find_digits(m, x, &length);
        replace_piece(m, x, at, length, number, strlen(number));
        break;
    /* a number becomes another of this file */
    case 5:
        at = find_digits(m, x, &length);
        if (length > sizeof copy) return;
        memcpy(copy, m->bytes + 8 + at, length);
        to = find_digits(m, x, &to_length);
        replace_piece(m, x, to, to_length, copy, length);
        break;
    /* a word somewhere, or over an old one */
    case 6:
        replace_piece(m, x, at, draw(x, 2) && at + strlen(word) <= header ? strlen(word) : 0, word,
                      strlen(word));
        break;
    /* a piece twice: names, fields, brackets */
    case 7:
        length = draw(x, sizeof copy);
        if (at + length > header) return;
        memcpy(copy, m->bytes + 8 + at, length);
        replace_piece(m, x, draw(x, header), 0, copy, length);
        break;
    /* bytes more or less of data */
    case 8:
        if (m->size + 8 > sizeof m->bytes) return;
        length = draw(x, 8);
        memset(m->bytes + m->size, 0, 8);
        m->size = draw(x, 2) ? m->size + length : m->size - length;
        break;
    }
}

#endif
