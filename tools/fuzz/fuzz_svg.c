/* fuzz_svg.c -- any bytes as a figure of the report's page: what is put there only draws. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figure/svg_inline.h"

void fuzz_begin(void)
{
    static const char text[] =
        "<?xml version=\"1.0\"?>\n<svg width=\"9\" viewBox=\"0 0 640 480\"><title>Gnuplot</title>"
        "<defs><circle id='gpDot' r='0.5'/></defs><g fill=\"none\"><use xlink:href='#gpDot'/>"
        "<path d='M1,2 L3,4' style='fill:url(#a)'/><text><tspan>x</tspan></text></g></svg>\n";
    static const char *const words[] = {"<script>",      "<g ",    "<title>", "</title>",
                                        " onload=\"x\"", "href='", "url(",    " id='"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) fuzz_word(words[i]);
    fuzz_seed("figure", text, sizeof text - 1);
}

#define PLAIN "0123456789:_.-=/ \t\r\n"

/* No element that acts, no handler, no link that leads away. */
static void check_page(const char *page)
{
    static const char *const never[] = {"<script", "<foreignObject", "<iframe", "<image",
                                        "<a ",     "<animate",       "<set",    "<style"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) need(!strcasestr(page, never[i]));
    char quote = 0;
    int tag = 0;
    for (const char *s = page; *s; s++) {
        if (quote && !strncasecmp(s, "url(", 4) && s[4] != quote) need(s[4] == '#');
        if (quote) need(*s != '&' && *s != '\\');
        if (quote) quote = *s == quote ? 0 : quote;
        else if (tag && (*s == '"' || *s == '\'')) quote = *s;
        else if (*s == '<' || *s == '>') tag = *s == '<';
        else if (tag) need((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || strchr(PLAIN, *s));
        if (tag && !quote && !strncasecmp(s, " on", 3)) need(!memchr(s, '=', strcspn(s, ">\"' ")));
    }
}

void fuzz_try(const uint8_t *data, size_t size)
{
    char *page = NULL;
    size_t n = 0;
    int found = 0;
    FILE *f = open_memstream(&page, &n);
    polar_status st = pl_svg_inline(f, fuzz_file(0, data, size), "p", "a label", &found);
    fclose(f);
    need(found && (st == POLAR_OK || st == POLAR_E_FORMAT));
    need(st == POLAR_OK || !n);
    if (st == POLAR_OK) check_page(page);
    free(page);
}
