/* fuzz_csv.c -- any bytes as a table: what is read, written with every field in quotes, is read the same
 * again. */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv_read.h"
#include "base/json_read.h"
#include "base/json_write.h"

void fuzz_begin(void)
{
    static const char text[] = "a,b\n1,-2.5e-3\r\n\"x, \"\"y\"\"\nz\",nan\n";
    fuzz_seed("table", text, sizeof text - 1);
}

static void put_field(FILE *f, const char *text)
{
    putc('"', f);
    for (; *text; text++) {
        if (*text == '"') putc('"', f);
        putc(*text, f);
    }
    putc('"', f);
}

static void try_numbers(const char *text)
{
    char again[PL_DOUBLE_CHARS];
    int64_t whole;
    double real, same;
    if (pl_csv_integer(&whole, text)) need(strtoll(text, NULL, 10) == whole && pl_csv_real(&real, text));
    if (!pl_csv_real(&real, text)) return;
    need(pl_csv_real(&same, pl_double_print(again, real)));
    need(real == same || (isnan(real) && isnan(same)));
}

static char *write_again(pl_csv *c, size_t *size, int64_t *records)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, size);
    polar_status st;
    for (int more = 1; (st = pl_csv_next(c, &more)) == POLAR_OK && more; ++*records) {
        need(c->count > 0 && c->count <= PL_CSV_MAX_FIELDS && c->line >= 1);
        for (int i = 0; i < c->count; i++) {
            need(pl_utf8_valid(c->fields[i], (int64_t)strlen(c->fields[i])));
            try_numbers(c->fields[i]);
            if (i) putc(',', f);
            put_field(f, c->fields[i]);
        }
        putc('\n', f);
    }
    need(st == POLAR_OK || st == POLAR_E_FORMAT);
    fclose(f);
    return text;
}

void fuzz_try(const uint8_t *data, size_t size)
{
    pl_csv *c;
    size_t n = 0, n_again = 0;
    int64_t records = 0, same = 0;
    polar_status st = pl_csv_open(&c, fuzz_file(0, data, size));
    need(st == POLAR_OK || st == POLAR_E_FORMAT);
    if (st != POLAR_OK) return;
    char *text = write_again(c, &n, &records);
    pl_csv_close(c);
    need(pl_csv_open(&c, fuzz_file(1, text, n)) == POLAR_OK);
    char *again = write_again(c, &n_again, &same);
    pl_csv_close(c);
    need(records == same && n == n_again && !memcmp(text, again, n));
    free(text);
    free(again);
}
