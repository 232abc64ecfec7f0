/* svg_inline.c -- copies an SVG into a page: without the XML head, with its ids and the references to them
 * renamed, and a label for those who cannot see it. Nothing but drawing gets in: see check_tag. */
#include "report/figure/svg_inline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "report/table/table.h"

#define MOST_BYTES (64 << 20)
/* gnuplot writes 13 pixels high: below 10 they cannot be read, so a narrow window scrolls */
#define SMALLEST_SCALE 0.8

/* The file's text, ended by a zero; NULL in *out when there is no such file. */
static polar_status read_text(char **out, const char *path)
{
    *out = NULL;
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOENT) return POLAR_OK;
    PL_NEED(f, POLAR_E_IO, "read '%s': %s", path, strerror(errno));
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    polar_status st = size >= 0 && size < MOST_BYTES
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_IO, "'%s' is no figure of ours: its size is %ld", path, size);
    char *text = st == POLAR_OK ? pl_alloc((size_t)size + 1) : NULL;
    if (st == POLAR_OK && !text) st = PL_FAIL(POLAR_E_NOMEM, "a figure of %ld bytes", size);
    rewind(f);
    if (st == POLAR_OK && fread(text, 1, (size_t)size, f) != (size_t)size)
        st = PL_FAIL(POLAR_E_IO, "read '%s': it became shorter", path);
    fclose(f);
    if (st != POLAR_OK) {
        pl_free(text);
        return st;
    }
    text[size] = 0;
    *out = text;
    return POLAR_OK;
}

/* ---- what a figure may hold ---- */

static int is_one_of(const char *word, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == n && !strncmp(word, *list, n)) return 1;
    return 0;
}

/* The end of the tag that begins at s, its '>', with quotes respected; NULL: it has none. */
static const char *tag_end(const char *s)
{
    char quote = 0;
    for (; *s; s++) {
        if (quote) quote = *s == quote ? 0 : quote;
        else if (*s == '"' || *s == '\'') quote = *s;
        else if (*s == '>') return s;
    }
    return NULL;
}

/* Every url( in the value is one of a part of the same picture. Characters by number (&#117;rl, u\72 l),
 * which a browser would read and we do not, stand in no figure of ours, nor does a tag: what is a <title>
 * below must be one. */
static int stays_inside(const char *value, size_t n)
{
    if (memchr(value, '&', n) || memchr(value, '\\', n) || memchr(value, '<', n)) return 0;
    for (size_t i = 0; i + 4 < n; i++)
        if (!strncasecmp(value + i, "url(", 4) && value[i + 4] != '#') return 0;
    return 1;
}

#define SPACES " \t\r\n"

/* No attribute acts (onload) or leads elsewhere (href, url). Names are of letters, so that nobody else finds
 * another name in them: a form feed is a space to a browser. */
static int harmless_attributes(const char *s, const char *end)
{
    static const char *const links[] = {"href", "xlink:href", "src", NULL};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.-";
    while (s < end) {
        s += strspn(s, SPACES "/");
        if (s >= end) return 1;
        size_t name = strspn(s, letters);
        const char *equals = s + name + strspn(s + name, SPACES);
        if (!name || *equals != '=') return 0;
        const char *quote = equals + 1 + strspn(equals + 1, SPACES);
        if (*quote != '"' && *quote != '\'') return 0;
        const char *value = quote + 1, *stop = strchr(value, *quote);
        if (!stop || stop > end || !strncasecmp(s, "on", 2)) return 0;
        if (is_one_of(s, name, links) && *value != '#') return 0;
        if (!stays_inside(value, (size_t)(stop - value))) return 0;
        s = stop + 1;
    }
    return 1;
}

/* What gnuplot writes, and nothing that a browser would run or load: the page is opened by whoever gets it.
 */
static polar_status check_tag(const char *path, const char *s)
{
    static const char *const known[] = {
        "svg",      "g",       "path",    "text",           "tspan",          "rect",
        "circle",   "ellipse", "line",    "polygon",        "polyline",       "use",
        "defs",     "desc",    "title",   "filter",         "feFlood",        "feComposite",
        "clipPath", "mask",    "pattern", "linearGradient", "radialGradient", "stop",
        NULL};
    const char *end = tag_end(s), *name = s + 1 + (s[1] == '/');
    size_t n = strcspn(name, " \t\r\n/>");
    PL_NEED(end && is_one_of(name, n, known) && harmless_attributes(name + n, end), POLAR_E_FORMAT,
            "'%s' holds '%.40s', which no figure of ours does: it is not put into the page", path, s);
    return POLAR_OK;
}

static polar_status check_figure(const char *path, const char *s)
{
    for (s = strchr(s, '<'); s; s = strchr(s + 1, '<')) PL_TRY(check_tag(path, s));
    return POLAR_OK;
}

/* ---- into the page ---- */

polar_status pl_svg_inline(FILE *f, const char *path, const char *prefix, const char *label, int *found)
{
    /* after each of them a name follows */
    static const char *const marks[] = {" id=\"", " id='", "href=\"#", "href='#", "url(#"};
    char *text;
    PL_TRY(read_text(&text, path));
    *found = text != NULL;
    if (!text) return POLAR_OK;
    const char *s = strstr(text, "<svg");
    polar_status st = s ? check_figure(path, s) : PL_FAIL(POLAR_E_FORMAT, "'%s' holds no <svg", path);
    if (st != POLAR_OK) s = NULL;
    if (s) {
        fputs("<svg role=\"img\" aria-label=\"", f);
        pl_html_text(f, label);
        const char *box = strstr(s, "viewBox=\"0 0 ");
        int width = box ? atoi(box + 13) : 1000;
        fprintf(f, "\" style=\"max-width:%dpx;min-width:%dpx\"", width, (int)(SMALLEST_SCALE * width));
        s += 4;
    }
    int titles = 1; /* one that ends may still come */
    while (s && *s) {
        size_t hit = 0;
        /* gnuplot's own name, which browsers show */
        int title = titles && !strncmp(s, "<title>", 7);
        const char *title_end = title ? strstr(s, "</title>") : NULL;
        if (title && !title_end) titles = 0;
        if (title_end) {
            s = title_end + 8;
            continue;
        }
        for (size_t i = 0; i < sizeof marks / sizeof *marks && !hit; i++)
            if (!strncmp(s, marks[i], strlen(marks[i]))) hit = strlen(marks[i]);
        if (hit) fprintf(f, "%.*s%s_", (int)hit, s, prefix);
        else fputc(*s, f);
        s += hit ? hit : 1;
    }
    pl_free(text);
    return st;
}
