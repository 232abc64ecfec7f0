/* nearest.c -- which known word somebody may have meant. */
#include "base/nearest.h"

#include <string.h>

#define MAX_WORD 48 /* longer words have no nearest one */

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal string alignment).
 */
static int edits(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX_WORD || m > MAX_WORD) return MAX_WORD;
    int d[3][MAX_WORD + 1];
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = d[i % 3], *before = d[(i + 2) % 3], *two = d[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < now[j])
                now[j] = two[j - 2] + 1;
        }
    }
    return d[n % 3][m];
}

const char *pl_nearest(const char *word, const char *const *known)
{
    const char *best = NULL;
    size_t length = strlen(word);
    int least = 2 + (int)length / 5; /* one edit, and one more per five letters */
    for (; *known; known++) {
        /* a beginning counts as one */
        int d = length >= 2 && !strncmp(word, *known, length) ? 1 : edits(word, *known);
        if (d >= least) continue;
        least = d;
        best = *known;
    }
    return best;
}
