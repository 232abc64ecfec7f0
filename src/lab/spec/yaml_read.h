/* yaml_read.h -- a small YAML file as a tree of nodes that know their lines. What a spec does not need is
 * refused.
 *
 *     PL_TRY(pl_yaml_read(&y, "specs/demo/so3_tiny.yaml"));
 *     for (const pl_yaml_node *n = pl_yaml_root(y)->child; n; n = n->next) ... n->key, n->line, n->text ...
 *     pl_yaml_close(y);
 *
 * A byte order mark of UTF-8 at the start is left out of the text. Refused, with file and line: more than
 * PL_YAML_MAX_BYTES bytes, PL_YAML_MAX_DEPTH levels or PL_YAML_MAX_NODES nodes; text that is no UTF-8; a key
 * twice in one mapping; keys that are no plain words; anchors, aliases and tags; more than one document; a
 * root that is no mapping.
 */
#ifndef PL_LAB_YAML_READ_H
#define PL_LAB_YAML_READ_H

#include <stdint.h>

#include "base/status.h"

#define PL_YAML_MAX_BYTES (256 * 1024)
#define PL_YAML_MAX_DEPTH 8
#define PL_YAML_MAX_NODES 20000

typedef enum pl_yaml_kind { PL_YAML_SCALAR, PL_YAML_LIST, PL_YAML_MAP } pl_yaml_kind;

typedef struct pl_yaml_node {
    pl_yaml_kind kind;
    int line; /* counted from 1; of the key in a mapping */
    /* a scalar in quotes or a block scalar: text, whatever it looks like */
    int quoted;
    char *key; /* in a mapping, otherwise NULL */
    /* of a scalar, without zero bytes; "" when nothing is written */
    char *text;
    int64_t count;                     /* of children */
    struct pl_yaml_node *child, *next; /* in the order of the file */
} pl_yaml_node;

typedef struct pl_yaml pl_yaml;

/* POLAR_E_ARG no such file, POLAR_E_IO, POLAR_E_FORMAT "path:line: ..." */
polar_status pl_yaml_read(pl_yaml **out, const char *path);
/* the same of a text; path stands in complaints */
polar_status pl_yaml_read_text(pl_yaml **out, const char *path, const char *text);
void pl_yaml_close(pl_yaml *y);                     /* NULL is fine */
const pl_yaml_node *pl_yaml_root(const pl_yaml *y); /* a mapping; borrowed */
const char *pl_yaml_text(const pl_yaml *y);         /* the file; borrowed */

#endif
