/* data_work.c -- lines of progress go to ctx->log: one that rewrites itself on a terminal, plain ones every
 * half minute otherwise. */
#include "data_work.h"

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cli_line.h"
#include "run_progress.h"

#define NAMED         20 /* broken pictures that are named one by one, unless a command wants more */
#define PLAIN_SECONDS 30

data_progress data_progress_begin(cli_context *ctx, const char *doing)
{
    double now = pl_clock_seconds();
    return (data_progress){
        .ctx = ctx, .doing = doing, .bad_as = "left out", .names = NAMED, .began = now, .shown = now};
}

void data_progress_show(void *progress, int64_t done, int64_t total, int64_t bad)
{
    data_progress *p = progress;
    double now = pl_clock_seconds(), gone = now - p->began;
    if (now - p->shown < (p->ctx->log_is_terminal ? 0.2 : PLAIN_SECONDS)) return;
    p->shown = now;
    char left[32], broken[48] = "", line[256];
    if (bad) snprintf(broken, sizeof broken, "  %lld broken", (long long)bad);
    run_progress_time(left, done ? gone * (double)(total - done) / (double)done : 1e99);
    snprintf(line, sizeof line, "%s  %lld/%lld pictures  %.0f/s  about %s left%s", p->doing, (long long)done,
             (long long)total, (double)done / gone, left, broken);
    cli_line_show(p->ctx, "%s", line);
    if (!p->ctx->log_is_terminal) fprintf(p->ctx->log, "%s\n", line);
    p->open = p->ctx->log_is_terminal;
}

void data_progress_end(data_progress *p)
{
    if (p->open) fprintf(p->ctx->log, "\n");
    if (p->bad > p->names)
        fprintf(p->ctx->log,
                "%s: ... and %lld more (`polar data stat DIR --decode --skip-bad` names them all)\n",
                p->bad_as, (long long)(p->bad - p->names));
    p->open = 0;
}

void data_progress_bad(void *progress, const char *sentence)
{
    data_progress *p = progress;
    if (p->bad++ >= p->names) return;
    if (p->open) cli_line_clear(p->ctx);
    p->open = 0;
    fprintf(p->ctx->log, "%s: %s\n", p->bad_as, sentence);
}

void data_note_others(cli_context *ctx, const pl_image_folder *f)
{
    if (f->passed_over == 1) fprintf(ctx->log, "note: 1 file is no picture and was passed over\n");
    else if (f->passed_over)
        fprintf(ctx->log, "note: %lld files are no pictures and were passed over\n",
                (long long)f->passed_over);
}

int data_jobs(int64_t asked)
{
    int64_t n = asked > 0 ? asked : pl_processor_count();
    return (int)(n < 256 ? n : 256);
}

polar_status data_parse_seed(uint64_t *out, const char *text)
{
    int64_t v;
    PL_TRY(cli_parse_int(&v, "--seed", text, 0, INT64_MAX));
    *out = (uint64_t)v;
    return POLAR_OK;
}
