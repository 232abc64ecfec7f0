/* text_visible.h -- text of others as a line can show it: what would move a cursor, change a colour or end
 * the line becomes letters.
 *
 *     char room[PL_VISIBLE_CHARS];
 *     while (*s) s += pl_text_visible(room, s), fputs(room, f);
 */
#ifndef PL_BASE_TEXT_VISIBLE_H
#define PL_BASE_TEXT_VISIBLE_H

#include <stddef.h>

#define PL_VISIBLE_CHARS 8 /* room for one character and the zero */

/* the first character of s ("" is none), as it is or as \n, \x1b; gives the bytes of s it took */
int pl_text_visible(char room[PL_VISIBLE_CHARS], const char *s);
/* one line of UTF-8 that stays as it is; zero bytes are not plain */
int pl_text_is_plain(const char *s, size_t size);

#endif
