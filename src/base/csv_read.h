/* csv_read.h -- a file of comma-separated values (RFC 4180), a record at a time.
 *
 *     pl_csv *c;
 *     PL_TRY(pl_csv_open(&c, path));
 *     for (int more = 1; (st = pl_csv_next(c, &more)) == POLAR_OK && more;)
 *         use(c->fields, c->count, c->line);                  // texts that live until the file is closed
 *     pl_csv_close(c);
 *
 * Fields may be quoted, with "" for a quote inside; lines end with LF or CRLF, the last one too: a file that
 * was cut short is refused. Everything wrong with a file is POLAR_E_FORMAT, "FILE:LINE: ...".
 */
#ifndef PL_BASE_CSV_READ_H
#define PL_BASE_CSV_READ_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_CSV_MAX_BYTES  (256 << 20)
#define PL_CSV_MAX_FIELDS 128

typedef struct pl_csv {
    const char *path; /* borrowed */
    const char *fields[PL_CSV_MAX_FIELDS];
    int count;    /* of this record's fields */
    int64_t line; /* where this record begins, from 1 */
    /* inside */
    char *text, *at, *end;
    int64_t next_line;
} pl_csv;

/* reads the whole file; POLAR_E_ARG: there is none; POLAR_E_FORMAT: too long, a zero byte, not UTF-8 */
polar_status pl_csv_open(pl_csv **out, const char *path);
/* the next record; *more 0 after the last */
polar_status pl_csv_next(pl_csv *c, int *more);
void pl_csv_close(pl_csv *c); /* NULL is fine */

/* Whole fields as tables of this tree write them; 0: it is none. */
int pl_csv_integer(int64_t *out, const char *text); /* decimal, within int64_t */
/* what pl_double_print gives: decimal, nan, inf, -inf; a number too large for a double is none */
int pl_csv_real(double *out, const char *text);

#endif
