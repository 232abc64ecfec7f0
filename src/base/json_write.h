/* json_write.h -- a small JSON writer onto a stream: no memory, no tree, what json_read.h reads back.
 *
 *     pl_json_writer w = pl_json_writer_begin(f, 2);       // containers deeper than 2 stay on one line
 *     pl_json_object(&w);
 *     pl_json_key(&w, "shape");  pl_json_array(&w);  pl_json_integer(&w, 8);  pl_json_integer(&w, 44);
 *         pl_json_array_end(&w);
 *     pl_json_key(&w, "polar");  pl_json_number(&w, 1.7e-7);
 *     pl_json_object_end(&w);
 *     PL_TRY(pl_json_writer_end(&w));
 *
 * Numbers read back to the same double; NaN and infinities, which JSON lacks, become null. Strings are
 * escaped; a byte that is no UTF-8 becomes U+FFFD. Commas and line breaks are the writer's business,
 * balance the caller's (asserted).
 */
#ifndef PL_BASE_JSON_WRITE_H
#define PL_BASE_JSON_WRITE_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define PL_JSON_WRITER_DEPTH 32

typedef struct pl_json_writer {
    FILE *f; /* borrowed */
    int break_depth, depth, after_key;
    struct {
        char close; /* '}' or ']' */
        int64_t count;
    } level[PL_JSON_WRITER_DEPTH];
} pl_json_writer;

#define PL_DOUBLE_CHARS 32

pl_json_writer pl_json_writer_begin(FILE *f, int break_depth); /* before the first value; borrows f */
/* the last newline; POLAR_E_IO when the stream failed */
polar_status pl_json_writer_end(pl_json_writer *w);
void pl_json_object(pl_json_writer *w);     /* { */
void pl_json_object_end(pl_json_writer *w); /* } */
void pl_json_array(pl_json_writer *w);      /* [ */
void pl_json_array_end(pl_json_writer *w);  /* ] */
/* inside an object, before each value */
void pl_json_key(pl_json_writer *w, const char *key);
void pl_json_string(pl_json_writer *w, const char *s); /* NULL writes null */
/* shortest text that reads back the same, or null */
void pl_json_number(pl_json_writer *w, double x);
void pl_json_integer(pl_json_writer *w, int64_t x);             /* exact */
void pl_json_bool(pl_json_writer *w, int x);                    /* true or false */
void pl_json_null(pl_json_writer *w);                           /* null */
void pl_json_put(pl_json_writer *w, const char *key, double x); /* key and number */

/* shortest of 15 to 17 digits that reads back the same; "nan", "inf", "-inf"; returns out */
const char *pl_double_print(char out[PL_DOUBLE_CHARS], double x);

#endif
