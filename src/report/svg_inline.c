/* svg_inline.c -- copies an SVG into a page: without the XML head, with its ids and the references to them renamed, and a label for those who cannot see it. */
#include "report/svg_inline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/table.h"

#define MOST_BYTES (64 << 20)

/* The file's text, ended by a zero; NULL in *out when there is no such file. */
static polar_status read_text(char **out, const char *path)
{
    *out = NULL;
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOENT) return POLAR_OK;
    PL_NEED(f, POLAR_E_IO, "read '%s': %s", path, strerror(errno));
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    polar_status st = size >= 0 && size < MOST_BYTES ? POLAR_OK : PL_FAIL(POLAR_E_IO, "'%s' is no figure of ours: its size is %ld", path, size);
    char *text = st == POLAR_OK ? pl_alloc((size_t)size + 1) : NULL;
    if (st == POLAR_OK && !text) st = PL_FAIL(POLAR_E_NOMEM, "a figure of %ld bytes", size);
    rewind(f);
    if (st == POLAR_OK && fread(text, 1, (size_t)size, f) != (size_t)size) st = PL_FAIL(POLAR_E_IO, "read '%s': it became shorter", path);
    fclose(f);
    if (st != POLAR_OK) {
        pl_free(text);
        return st;
    }
    text[size] = 0;
    *out = text;
    return POLAR_OK;
}

polar_status pl_svg_inline(FILE *f, const char *path, const char *prefix, const char *label, int *found)
{
    static const char *const marks[] = {" id=\"", " id='", "href=\"#", "href='#", "url(#"};    /* after each of them a name follows */
    char *text;
    PL_TRY(read_text(&text, path));
    *found = text != NULL;
    if (!text) return POLAR_OK;
    const char *s = strstr(text, "<svg");
    polar_status st = s ? POLAR_OK : PL_FAIL(POLAR_E_FORMAT, "'%s' holds no <svg", path);
    if (s) {
        fputs("<svg role=\"img\" aria-label=\"", f);
        pl_html_text(f, label);
        const char *box = strstr(s, "viewBox=\"0 0 ");
        fprintf(f, "\" style=\"max-width:%dpx\"", box ? atoi(box + 13) : 1000);
        s += 4;
    }
    while (s && *s) {
        size_t hit = 0;
        const char *title_end = strncmp(s, "<title>", 7) ? NULL : strstr(s, "</title>");    /* gnuplot's own name, which browsers show */
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
