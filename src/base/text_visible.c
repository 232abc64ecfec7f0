/* text_visible.c -- see text_visible.h.
 *
 * Shown as \xNN: control characters (below 0x20, 0x7f, and U+0080 to U+009F, where terminals find escape
 * sequences too), characters that turn the direction of text or break lines (U+200E, U+200F, U+2028 to
 * U+202E, U+2066 to U+2069), and bytes that are no UTF-8.
 */
#include "base/text_visible.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"

/* Bytes of the UTF-8 character at s, at most `left`; 0: none. */
static int character_bytes(const char *s, size_t left)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n <= left && pl_utf8_valid(s, (int64_t)n) ? (int)n : 0;
}

/* The character of n bytes moves or reverses what stands around it. */
static int is_control(const char *s, int n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 1) return u[0] < 0x20 || u[0] == 0x7f;
    if (n == 2) return u[0] == 0xc2 && u[1] < 0xa0;
    if (n != 3 || u[0] != 0xe2) return 0;
    if (u[1] == 0x80) return u[2] == 0x8e || u[2] == 0x8f || (u[2] >= 0xa8 && u[2] <= 0xae);
    return u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9;
}

int pl_text_visible(char room[PL_VISIBLE_CHARS], const char *s)
{
    size_t left = strnlen(s, 4);
    int n = left ? character_bytes(s, left) : 0;
    const char *letter = left ? strchr("\nn\tt\rr", *s) : NULL;
    if (n && !is_control(s, n)) snprintf(room, PL_VISIBLE_CHARS, "%.*s", n, s);
    else if (letter && (unsigned char)*s < 0x20) snprintf(room, PL_VISIBLE_CHARS, "\\%c", letter[1]);
    else if (left) snprintf(room, PL_VISIBLE_CHARS, "\\x%02x", (unsigned char)*s);
    else *room = 0;
    return n && !is_control(s, n) ? n : left > 0;
}

int pl_text_is_plain(const char *s, size_t size)
{
    for (size_t i = 0; i < size;) {
        int n = character_bytes(s + i, size - i);
        if (!n || is_control(s + i, n)) return 0;
        i += (size_t)n;
    }
    return 1;
}
