/* fuzz_json.c -- any bytes as JSON: every token is what the text says, and strings written again read the
 * same. */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_write.h"

void fuzz_begin(void)
{
    static const char text[] =
        "{\"a\": [1, -2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\\n\"], \"b\": {\"c\": {}}}";
    fuzz_seed("object", text, sizeof text - 1);
}

/* Written by us and read again. */
static void try_string(const char *text)
{
    char *written = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&written, &size);
    pl_json_writer w = pl_json_writer_begin(f, 0);
    pl_json_string(&w, text);
    need(pl_json_writer_end(&w) == POLAR_OK && fclose(f) == 0);
    pl_json p = pl_json_view(written, (int64_t)size, "'again'");
    need(pl_json_need(&p, PL_JSON_STRING) == POLAR_OK && pl_json_is(&p, text));
    need(pl_json_need(&p, PL_JSON_END) == POLAR_OK);
    free(written);
}

static void try_text(const pl_json *p)
{
    char *out = malloc((size_t)p->raw_size + 1);
    need(out != NULL);
    int64_t n = pl_json_decode(out, p);
    need(n <= p->raw_size && pl_utf8_valid(out, n) && !out[n]);
    if (!memchr(out, 0, (size_t)n)) {
        need(pl_json_is(p, out));
        try_string(out);
    }
    free(out);
}

static void try_number(const pl_json *p)
{
    char raw[128], again[128];
    need(p->raw_size > 0 && p->raw_size < (int64_t)sizeof raw);
    snprintf(raw, sizeof raw, "%.*s", (int)p->raw_size, p->raw);
    snprintf(again, sizeof again, "%" PRId64, p->integer);
    need(p->number == strtod(raw, NULL) && p->number - p->number == 0);
    need(p->token == PL_JSON_NUMBER || !strcmp(raw, again));
}

void fuzz_try(const uint8_t *data, size_t size)
{
    pl_json p = pl_json_view((const char *)data, (int64_t)size, "'fuzz'");
    polar_status st;
    int64_t tokens = 0;
    while ((st = pl_json_next(&p)) == POLAR_OK && p.token != PL_JSON_END) {
        tokens++;
        if (p.token == PL_JSON_KEY || p.token == PL_JSON_STRING) try_text(&p);
        if (p.token == PL_JSON_INTEGER || p.token == PL_JSON_NUMBER) try_number(&p);
    }
    need(tokens <= (int64_t)size && (st == POLAR_OK || st == POLAR_E_FORMAT));
    if (st != POLAR_OK) need(pl_json_next(&p) != POLAR_OK);
}
