/* cli_line.c -- see cli_line.h. */
#include "cli_line.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES    512
#define USUAL_COLUMNS 80

int cli_line_possible(FILE *log)
{
    const char *term = getenv("TERM");
    return isatty(fileno(log)) && term && *term && strcmp(term, "dumb");
}

/* The last column stays free: some terminals begin a new line there. */
static int columns_of(FILE *log)
{
    struct winsize w;
    const char *text = getenv("COLUMNS");
    int n = ioctl(fileno(log), TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col
            : text                                              ? atoi(text)
                                                                : USUAL_COLUMNS;
    return n > 1 ? n - 1 : USUAL_COLUMNS - 1;
}

int cli_line_fit(const char *text, int columns)
{
    int bytes = 0;
    while (text[bytes] && columns > 0) {
        for (bytes++; (text[bytes] & 0xc0) == 0x80;) bytes++;
        columns--;
    }
    return bytes;
}

void cli_line_show(const cli_context *ctx, const char *fmt, ...)
{
    char text[LINE_BYTES];
    va_list ap;
    if (!ctx->log_is_terminal) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(ctx->log, "\r%.*s\033[K", cli_line_fit(text, columns_of(ctx->log)), text);
    fflush(ctx->log);
}

void cli_line_clear(const cli_context *ctx)
{
    if (ctx->log_is_terminal) fputs("\r\033[K", ctx->log);
}
