/* json_read.h -- a strict JSON pull-parser over text in memory: one token per call, no recursion, no
 * allocation.
 *
 *     pl_json p = pl_json_view(text, size, "'audit.json'");      // the last word begins every error sentence
 *     PL_TRY(pl_json_need(&p, PL_JSON_OBJECT));
 *     for (;;) {
 *         PL_TRY(pl_json_next(&p));                              // a key or the end of the object
 *         if (p.token == PL_JSON_OBJECT_END) break;
 *         if (pl_json_is(&p, "n")) { PL_TRY(pl_json_need(&p, PL_JSON_INTEGER)); n = p.integer; }
 *         else PL_TRY(pl_json_skip(&p));                         // any value
 *     }
 *     PL_TRY(pl_json_need(&p, PL_JSON_END));
 *
 * Strict: RFC 8259 and nothing more (no NaN, comments, trailing commas, byte order mark), UTF-8 well formed,
 * surrogates in pairs. Ours: at most PL_JSON_MAX_DEPTH levels, numbers of at most 127 characters that fit a
 * double. Duplicate keys pass: whoever gives keys a meaning must look for them. After a failure every further
 * call fails.
 */
#ifndef PL_BASE_JSON_READ_H
#define PL_BASE_JSON_READ_H

#include <stdint.h>

#include "base/status.h"

#define PL_JSON_MAX_DEPTH 64

typedef enum pl_json_token {
    PL_JSON_END, /* of the text */
    PL_JSON_OBJECT,
    PL_JSON_OBJECT_END,
    PL_JSON_ARRAY,
    PL_JSON_ARRAY_END,
    PL_JSON_KEY,     /* raw; its value is the next token */
    PL_JSON_STRING,  /* raw */
    PL_JSON_INTEGER, /* integer, exact, and number; raw */
    /* number: has a fraction or an exponent, or does not fit an int64 (-0 neither); raw */
    PL_JSON_NUMBER,
    PL_JSON_TRUE,
    PL_JSON_FALSE,
    PL_JSON_NULL
} pl_json_token;

typedef struct pl_json {
    pl_json_token token; /* what the last pl_json_next found */
    /* as written, without the quotes; borrowed from the text, not zero-terminated */
    const char *raw;
    int64_t raw_size;
    int64_t integer;
    double number;
    const char *where; /* begins every error sentence; borrowed; may be changed between calls */
    const char *text;  /* the rest is the parser's own */
    int64_t size, pos;
    int want, depth;
    char open[PL_JSON_MAX_DEPTH];
} pl_json;

typedef struct pl_shown {
    char text[88];
} pl_shown;

/* a parser before the first token; borrows both strings */
pl_json pl_json_view(const char *text, int64_t size, const char *where);
/* the next token, or POLAR_E_FORMAT */
polar_status pl_json_next(pl_json *p);
/* the same, and it must be this one */
polar_status pl_json_need(pl_json *p, pl_json_token token);
/* after a key: its value, whatever it holds */
polar_status pl_json_skip(pl_json *p);
/* KEY, STRING -> UTF-8 and a zero, raw_size + 1 bytes at most; gives its length */
int64_t pl_json_decode(char *out, const pl_json *p);
int pl_json_is(const pl_json *p, const char *s); /* whether the KEY or STRING, decoded, is s */
int pl_utf8_valid(const char *s, int64_t size);  /* well-formed UTF-8 (zero bytes included) */
/* outside text fit for a sentence: cut short, control bytes as '?' */
pl_shown pl_text_shown(const char *s);

#endif
