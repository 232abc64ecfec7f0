/* data_work.c -- lines of progress go to ctx->log: one that rewrites itself on a terminal, plain ones every half minute otherwise. */
#include "data_work.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "math/mersenne.h"
#include "run_progress.h"

#define NAMED         20     /* broken pictures that are named one by one */
#define PLAIN_SECONDS 30

data_progress data_progress_begin(cli_context *ctx, const char *doing)
{
    double now = pl_clock_seconds();
    return (data_progress){.ctx = ctx, .doing = doing, .began = now, .shown = now};
}

void data_progress_show(void *progress, int64_t done, int64_t total, int64_t bad)
{
    data_progress *p = progress;
    double now = pl_clock_seconds(), gone = now - p->began;
    if (now - p->shown < (p->ctx->log_is_terminal ? 0.2 : PLAIN_SECONDS)) return;
    p->shown = now;
    char left[32], broken[48] = "";
    if (bad) snprintf(broken, sizeof broken, "  %lld broken", (long long)bad);
    run_progress_time(left, done ? gone * (double)(total - done) / (double)done : 1e99);
    fprintf(p->ctx->log, "%s%s  %lld/%lld pictures  %.0f/s  about %s left%s%s", p->ctx->log_is_terminal ? "\r" : "", p->doing, (long long)done, (long long)total, (double)done / gone, left,
            broken, p->ctx->log_is_terminal ? "\033[K" : "\n");
    fflush(p->ctx->log);
    p->open = p->ctx->log_is_terminal;
}

void data_progress_end(data_progress *p)
{
    if (p->open) fprintf(p->ctx->log, "\n");
    if (p->bad > NAMED) fprintf(p->ctx->log, "left out: ... and %lld more\n", (long long)(p->bad - NAMED));
    p->open = 0;
}

void data_progress_bad(void *progress, const char *sentence)
{
    data_progress *p = progress;
    if (p->bad++ >= NAMED) return;
    if (p->open) fprintf(p->ctx->log, "\r\033[K");
    p->open = 0;
    fprintf(p->ctx->log, "left out: %s\n", sentence);
}

int data_jobs(int64_t asked)
{
    if (asked > 0) return (int)asked;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 256 ? 256 : (int)n;
}

polar_status data_choose(int64_t **out, int64_t of, int64_t classes, uint64_t seed)
{
    *out = NULL;
    PL_NEED(classes >= 1 && classes <= of, POLAR_E_ARG, "%lld classes are wanted, of %lld", (long long)classes, (long long)of);
    int64_t *chosen = pl_alloc((size_t)classes * sizeof *chosen), *room = pl_alloc((size_t)of * sizeof *room);
    if (!chosen || !room) {
        pl_free(chosen);
        pl_free(room);
        return PL_FAIL(POLAR_E_NOMEM, "a choice of %lld classes", (long long)of);
    }
    pl_mersenne m;
    pl_mersenne_seed(&m, seed);
    pl_mersenne_sample(chosen, room, &m, of, classes);
    pl_free(room);
    *out = chosen;
    return POLAR_OK;
}

polar_status data_parse_seed(uint64_t *out, const char *text)
{
    int64_t v;
    PL_TRY(cli_parse_int(&v, "--seed", text, 0, INT64_MAX));
    *out = (uint64_t)v;
    return POLAR_OK;
}
