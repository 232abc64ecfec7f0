/* report_fixture.h -- for tests of reports: a folder, a report written of a store in it, its files as text,
 * and checks of XML, links and CSV. */
#ifndef POLAR_REPORT_FIXTURE_H
#define POLAR_REPORT_FIXTURE_H

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixtures/fake_store.h"
#include "fixtures/folder.h"
#include "lab/run/testbed.h"
#include "report/report.h"

static char folder[64];

static inline char *at(const char *name)
{
    static char paths[4][256];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, 256, "%s/%s", folder, name);
    return p;
}

/* The file's text, to be freed; NULL when there is none. */
static inline char *text_of(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0;
    if (!f) return NULL;
    FILE *m = open_memstream(&text, &size);
    for (int c; (c = getc(f)) != EOF;) putc(c, m);
    fclose(m);
    fclose(f);
    return text;
}

static inline polar_status write_report(pl_report_outcome *out, const char *store, const char *dir,
                                        const char *const *specs, int64_t count)
{
    pl_store *s;
    pl_schema schemas[PL_TESTBED_MAX];
    pl_report_opts o = {.dir = dir,
                        .specs = specs,
                        .spec_count = count,
                        .schemas = schemas,
                        .schema_count = pl_testbed_schemas(schemas),
                        .code = "0.1.0-test"};
    PL_TRY(pl_store_open(&s, store, PL_STORE_READ));
    polar_status st = pl_report_write(out, s, &o);
    pl_store_close(s);
    return st;
}

/* ---- XML: tags that close in order, quoted attributes, known entities, unique ids ---- */

#define DEPTH 64
#define IDS   4096

typedef struct {
    const char *names[DEPTH];
    int lengths[DEPTH], depth, root_closed;
    const char *ids[IDS];
    int id_lengths[IDS], n_ids, twice;
} xml;

static inline int name_length(const char *s)
{
    int n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == ':' || s[n] == '_' || s[n] == '-' || s[n] == '.') n++;
    return n;
}

static inline void keep_id(xml *x, const char *s, int n)
{
    for (int i = 0; i < x->n_ids; i++) x->twice += x->id_lengths[i] == n && !strncmp(x->ids[i], s, (size_t)n);
    if (x->n_ids == IDS) return;
    x->ids[x->n_ids] = s;
    x->id_lengths[x->n_ids++] = n;
}

/* After "<"; the place after ">" or NULL. `loose`: HTML, where meta and br never close. */
static inline const char *read_tag(xml *x, const char *s, int loose)
{
    int closing = *s == '/', n = name_length(s += closing);
    const char *name = s;
    if (!n) return NULL;
    for (s += n; *s && *s != '>' && *s != '/';) {
        while (isspace((unsigned char)*s)) s++;
        if (*s == '>' || *s == '/') break;
        int length = name_length(s);
        const char *attribute = s;
        if (!length) return NULL;
        s += length;
        while (isspace((unsigned char)*s)) s++;
        if (*s != '=' && loose) continue; /* <details open> */
        if (*s++ != '=') return NULL;
        while (isspace((unsigned char)*s)) s++;
        char quote = *s++;
        if (quote != '"' && quote != '\'') return NULL;
        const char *end = strchr(s, quote);
        if (!end || memchr(s, '<', (size_t)(end - s))) return NULL;
        if (length == 2 && !strncmp(attribute, "id", 2)) keep_id(x, s, (int)(end - s));
        s = end + 1;
    }
    int empty = *s == '/' ||
                (loose && ((n == 4 && !strncmp(name, "meta", 4)) || (n == 2 && !strncmp(name, "br", 2))));
    if (*s == '/') s++;
    if (*s != '>') return NULL;
    if (closing) {
        if (!x->depth-- || x->lengths[x->depth] != n || strncmp(x->names[x->depth], name, (size_t)n))
            return NULL;
        x->root_closed = !x->depth;
    } else if (!empty) {
        if (x->depth == DEPTH) return NULL;
        x->names[x->depth] = name;
        x->lengths[x->depth++] = n;
    }
    return s + 1;
}

/* NULL when the text is well formed, else where it is not. */
static inline const char *check_xml(xml *x, const char *text, int loose)
{
    static const struct {
        const char *begin, *end;
    } skipped[] = {
        {"<?", "?>"}, {"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<!DOCTYPE", ">"}, {"<style>", "</style>"}};
    *x = (xml){0};
    for (const char *s = text; *s;) {
        const char *here = s;
        if (*s == '&') {
            if (!(s = strchr(s, ';')) || s - here > 7) return here;
            s++;
        } else if (*s != '<') s++;
        else {
            size_t i = 0;
            while (i < 5 && strncmp(s, skipped[i].begin, strlen(skipped[i].begin))) i++;
            if (i < 5) {
                s = strstr(s, skipped[i].end);
                if (s) s += strlen(skipped[i].end);
            } else s = read_tag(x, s + 1, loose);
            if (!s) return here;
        }
    }
    return x->depth || !x->root_closed ? text + strlen(text) : NULL;
}

/* ---- files ---- */

static inline int count_files(const char *const *names, int n)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        struct stat s;
        if (stat(at(names[i]), &s) == 0 && s.st_size > 0) found++;
        else printf("    no file %s\n", names[i]);
    }
    return found;
}

/* Everything that a browser would fetch; names of XML spaces are not fetched. */
static inline int loads(const char *html)
{
    static const char *const words[] = {"<script", "<link", "<img",   "<iframe", "<object", " src=",
                                        "@import", "url(h", "url(\"", "url('",   "data:"};
    int n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(html, words[i])) printf("    the page holds %s\n", words[i]);
        n += strstr(html, words[i]) != NULL;
    }
    for (const char *s = html; (s = strstr(s, "http")); s++) n += strncmp(s, "http://www.w3.org/", 18) != 0;
    for (const char *s = html; (s = strstr(s, "href")); s++) n += s[4] == '=' && s[6] != '#';
    return n;
}

static inline void check_svg(const char *name)
{
    char file[128], what[160];
    static xml x;
    snprintf(file, sizeof file, "out/figures/%s.svg", name);
    snprintf(what, sizeof what, "svg: %s", name);
    char *text = text_of(at(file));
    const char *bad = text ? check_xml(&x, text, 0) : "no file";
    test_true(what, !bad && !x.twice && strstr(text, "<svg"), "%zu bytes%s%.30s", text ? strlen(text) : 0,
              bad ? ", at " : "", bad ? bad : "");
    free(text);
}

/* The number in column `column` of the line of the CSV that begins so. */
static inline double csv_number(const char *csv, const char *line, int column)
{
    const char *s = csv ? strstr(csv, line) : NULL;
    for (; s && column; column--) s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL;
    return s ? strtod(s, NULL) : NAN;
}

#endif
