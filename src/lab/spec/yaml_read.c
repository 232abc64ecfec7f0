/* yaml_read.c -- libyaml's events into a tree; bounds and refusals of yaml_read.h.
 *
 * Invariants: every node hangs in the tree from the moment it exists, so closing frees it; open[depth - 1] is
 * the container that takes the next node; in a mapping `key` waits for its value. libyaml sees only text that
 * is UTF-8 and short.
 */
#include "lab/spec/yaml_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/json_read.h"

#define UTF8_BOM "\xef\xbb\xbf"

struct pl_yaml {
    char *text;
    int64_t size;
    pl_yaml_node *root;
};

typedef struct reader {
    const char *path;
    pl_yaml *y;
    /* containers, and the last child of each */
    pl_yaml_node *open[PL_YAML_MAX_DEPTH], *last[PL_YAML_MAX_DEPTH];
    int depth;
    int64_t nodes;
    char *key;
    int key_line, documents;
} reader;

/* ---- the file ----------------------------------------------------------------------------------- */

static polar_status read_stream(pl_yaml *y, const char *path, FILE *f)
{
    y->text = pl_alloc(PL_YAML_MAX_BYTES + 2);
    PL_NEED(y->text, POLAR_E_NOMEM, "a file of at most %d bytes", PL_YAML_MAX_BYTES);
    size_t n = fread(y->text, 1, PL_YAML_MAX_BYTES + 1, f);
    PL_NEED(!ferror(f), errno == EISDIR ? POLAR_E_ARG : POLAR_E_IO, "read '%s': %s", path, strerror(errno));
    PL_NEED(n <= PL_YAML_MAX_BYTES, POLAR_E_FORMAT, "%s: a spec has at most %d KiB", path,
            PL_YAML_MAX_BYTES / 1024);
    int utf16 = n >= 2 && (!memcmp(y->text, "\xff\xfe", 2) || !memcmp(y->text, "\xfe\xff", 2));
    PL_NEED(!utf16, POLAR_E_FORMAT, "%s:1: the file is UTF-16: save it as UTF-8", path);
    /* the same spec as without it */
    if (n >= 3 && !memcmp(y->text, UTF8_BOM, 3)) memmove(y->text, y->text + 3, n -= 3);
    y->text[n] = 0;
    y->size = (int64_t)n;
    return POLAR_OK;
}

/* The line of the first byte that is no text. */
static polar_status check_text(const pl_yaml *y, const char *path)
{
    int line = 1;
    const char *begin = y->text, *end = y->text + y->size;
    while (begin < end) {
        const char *stop = memchr(begin, '\n', (size_t)(end - begin));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - begin);
        int ok = !memchr(begin, 0, n) && pl_utf8_valid(begin, (int64_t)n);
        PL_NEED(ok, POLAR_E_FORMAT, "%s:%d: not UTF-8 text", path, line);
        begin = stop + 1;
        line++;
    }
    return POLAR_OK;
}

/* ---- the tree ----------------------------------------------------------------------------------- */

/* Children before their parents; the depth is bounded. */
static void free_nodes(pl_yaml_node *n)
{
    while (n) {
        pl_yaml_node *next = n->next;
        free_nodes(n->child);
        pl_free(n->key);
        pl_free(n->text);
        pl_free(n);
        n = next;
    }
}

static int line_of(yaml_mark_t mark)
{
    return (int)mark.line + 1;
}

/* A new node where the reader stands. */
static polar_status add_node(pl_yaml_node **out, reader *r, pl_yaml_kind kind, const yaml_event_t *e)
{
    int line = line_of(e->start_mark);
    PL_NEED(r->nodes < PL_YAML_MAX_NODES, POLAR_E_FORMAT, "%s:%d: more than %d values in one file", r->path,
            line, PL_YAML_MAX_NODES);
    PL_NEED(r->depth || kind == PL_YAML_MAP, POLAR_E_FORMAT,
            "%s:%d: a spec is a mapping: 'name: ...', 'testbed: ...'", r->path, line);
    PL_NEED(r->depth < PL_YAML_MAX_DEPTH || kind == PL_YAML_SCALAR, POLAR_E_FORMAT,
            "%s:%d: nested deeper than %d levels", r->path, line, PL_YAML_MAX_DEPTH);
    pl_yaml_node *n = pl_calloc(1, sizeof *n);
    PL_NEED(n, POLAR_E_NOMEM, "a node of a YAML file");
    r->nodes++;
    n->kind = kind;
    n->line = r->key ? r->key_line : line;
    n->key = r->key;
    r->key = NULL;
    if (r->depth) {
        pl_yaml_node **last = &r->last[r->depth - 1];
        if (*last) (*last)->next = n;
        else r->open[r->depth - 1]->child = n;
        *last = n;
        r->open[r->depth - 1]->count++;
    } else {
        r->y->root = n;
    }
    if (kind != PL_YAML_SCALAR) {
        r->open[r->depth] = n;
        r->last[r->depth++] = NULL;
    }
    *out = n;
    return POLAR_OK;
}

static int wants_key(const reader *r)
{
    return r->depth && r->open[r->depth - 1]->kind == PL_YAML_MAP && !r->key;
}

static polar_status take_key(reader *r, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    int line = line_of(e->start_mark);
    PL_NEED(e->data.scalar.length == strlen(text) && *text, POLAR_E_FORMAT, "%s:%d: an empty key", r->path,
            line);
    for (const pl_yaml_node *n = r->open[r->depth - 1]->child; n; n = n->next)
        PL_NEED(strcmp(n->key, text), POLAR_E_FORMAT, "%s:%d: '%s' is given twice (first on line %d)",
                r->path, line, pl_text_shown(text).text, n->line);
    r->key = pl_strdup(text);
    PL_NEED(r->key, POLAR_E_NOMEM, "a key of a YAML file");
    r->key_line = line;
    return POLAR_OK;
}

static polar_status take_scalar(reader *r, const yaml_event_t *e)
{
    if (wants_key(r)) return take_key(r, e);
    pl_yaml_node *n;
    const char *text = (const char *)e->data.scalar.value;
    PL_TRY(add_node(&n, r, PL_YAML_SCALAR, e));
    PL_NEED(e->data.scalar.length == strlen(text), POLAR_E_FORMAT, "%s:%d: a zero byte in a text", r->path,
            n->line);
    n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    n->text = pl_strdup(text);
    PL_NEED(n->text, POLAR_E_NOMEM, "a text of a YAML file");
    return POLAR_OK;
}

/* Anchors and tags of the three kinds of node. */
static int decorated(const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT: return e->data.scalar.anchor || e->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT: return e->data.sequence_start.anchor || e->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT: return e->data.mapping_start.anchor || e->data.mapping_start.tag;
    default: return e->type == YAML_ALIAS_EVENT;
    }
}

static polar_status take_event(reader *r, const yaml_event_t *e)
{
    pl_yaml_node *n;
    int line = line_of(e->start_mark);
    PL_NEED(!decorated(e), POLAR_E_FORMAT,
            "%s:%d: anchors (&), aliases (*) and tags (!) are not taken: write the value, or quote the text",
            r->path, line);
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        PL_NEED(++r->documents == 1, POLAR_E_FORMAT, "%s:%d: a second document: one spec per file", r->path,
                line);
        return POLAR_OK;
    case YAML_SCALAR_EVENT: return take_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        PL_NEED(!wants_key(r), POLAR_E_FORMAT, "%s:%d: a key must be a word", r->path, line);
        return add_node(&n, r, e->type == YAML_MAPPING_START_EVENT ? PL_YAML_MAP : PL_YAML_LIST, e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return POLAR_OK;
    default: return POLAR_OK;
    }
}

/* The line of a byte, and where that line begins. */
static size_t line_at(const char **begin, const char *text, size_t offset)
{
    size_t line = 1;
    *begin = text;
    for (const char *p = text; *p && (size_t)(p - text) < offset; p++)
        if (*p == '\n') *begin = p + 1, line++;
    return line;
}

/* What libyaml calls the problem, and the commonest causes. */
static polar_status parser_failure(const reader *r, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR) return PL_FAIL(POLAR_E_NOMEM, "libyaml reading '%s'", r->path);
    const char *begin, *hint = "", *context = p->context ? p->context : "";
    size_t line = line_at(&begin, r->y->text, p->error == YAML_READER_ERROR ? p->problem_offset : 0);
    if (p->error != YAML_READER_ERROR) { /* these know their line */
        line = p->problem_mark.line + 1;
        for (size_t i = 1; i < line && strchr(begin, '\n'); i++) begin = strchr(begin, '\n') + 1;
    }
    if (memchr(begin, '\t', strcspn(begin, "\n"))) hint = " (YAML takes no tabs: indent by spaces)";
    else if (strstr(context, "alias") || strstr(context, "anchor") || strstr(context, "tag"))
        hint = " (quote the text: it begins with *, & or !)";
    return PL_FAIL(POLAR_E_FORMAT, "%s:%zu: %s%s", r->path, line, p->problem ? p->problem : "no YAML", hint);
}

static polar_status parse(reader *r)
{
    yaml_parser_t p;
    polar_status st = POLAR_OK;
    PL_NEED(yaml_parser_initialize(&p), POLAR_E_NOMEM, "libyaml's parser");
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)r->y->text, (size_t)r->y->size);
    for (int more = 1; more && st == POLAR_OK;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&p, &e)) {
            st = parser_failure(r, &p);
            break;
        }
        more = e.type != YAML_STREAM_END_EVENT;
        st = take_event(r, &e);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&p);
    pl_free(r->key);
    return st;
}

/* Closes f. */
static polar_status read_tree(pl_yaml **out, const char *path, FILE *f)
{
    pl_yaml *y = pl_calloc(1, sizeof *y);
    reader r = {.path = path, .y = y};
    polar_status st = y ? read_stream(y, path, f) : PL_FAIL(POLAR_E_NOMEM, "a YAML tree");
    fclose(f);
    if (st == POLAR_OK) st = check_text(y, path);
    if (st == POLAR_OK) st = parse(&r);
    if (st == POLAR_OK && !y->root)
        st = PL_FAIL(POLAR_E_FORMAT, "%s:1: the file is empty: a spec begins with 'name: ...'", path);
    if (st == POLAR_OK) *out = y;
    else pl_yaml_close(y);
    return st;
}

polar_status pl_yaml_read(pl_yaml **out, const char *path)
{
    *out = NULL;
    FILE *f = fopen(path, "rb");
    PL_NEED(f, errno == ENOENT || errno == ENOTDIR ? POLAR_E_ARG : POLAR_E_IO, "open '%s': %s", path,
            strerror(errno));
    return read_tree(out, path, f);
}

polar_status pl_yaml_read_text(pl_yaml **out, const char *path, const char *text)
{
    *out = NULL;
    PL_NEED(*text, POLAR_E_FORMAT, "%s:1: the text is empty: a spec begins with 'name: ...'", path);
    FILE *f = fmemopen((void *)text, strlen(text), "rb");
    PL_NEED(f, POLAR_E_NOMEM, "a stream of '%s'", path);
    return read_tree(out, path, f);
}

void pl_yaml_close(pl_yaml *y)
{
    if (!y) return;
    free_nodes(y->root);
    pl_free(y->text);
    pl_free(y);
}

const pl_yaml_node *pl_yaml_root(const pl_yaml *y)
{
    return y->root;
}

const char *pl_yaml_text(const pl_yaml *y)
{
    return y->text;
}
