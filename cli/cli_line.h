/* cli_line.h -- a line of progress that rewrites itself, on terminals that can; elsewhere nothing is
 * printed by these.
 *
 *     // cut to the terminal's width: a longer one would not go away
 *     cli_line_show(ctx, "mapping tensor %d of %d", i, n);
 *     cli_line_clear(ctx);                                    // before anything that stays
 */
#ifndef POLAR_CLI_LINE_H
#define POLAR_CLI_LINE_H

#include "cli.h"

/* a terminal, and TERM is neither "dumb" nor missing */
int cli_line_possible(FILE *log);
/* bytes of the text that fit in so many columns, whole characters */
int cli_line_fit(const char *text, int columns);
/* in place of the last one */
void cli_line_show(const cli_context *ctx, const char *fmt, ...) PL_PRINTF(2, 3);
void cli_line_clear(const cli_context *ctx);

#endif
