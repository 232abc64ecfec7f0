/* run_progress.c -- lines of progress. Nothing here is a result: all of it goes to ctx->log. */
#include "run_progress.h"

#include <math.h>
#include <string.h>

#include "cli_line.h"

#define LINE_CHARS    256
#define PLAIN_SECONDS 30 /* between two plain lines when no run ends */

const char *run_progress_time(char out[32], double seconds)
{
    if (!(seconds < 1e9)) snprintf(out, 32, "?");
    else if (seconds < 10) snprintf(out, 32, "%.1f s", seconds);
    else if (seconds < 120) snprintf(out, 32, "%.0f s", seconds);
    else if (seconds < 7200) snprintf(out, 32, "%.0f min", seconds / 60);
    else snprintf(out, 32, "%.1f h", seconds / 3600);
    return out;
}

/* ---- one line ----------------------------------------------------------------------------------- */

typedef struct line {
    char text[LINE_CHARS];
} line;

static void add(line *l, const char *fmt, ...) PL_PRINTF(2, 3);
static void add(line *l, const char *fmt, ...)
{
    size_t used = strlen(l->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->text + used, sizeof l->text - used, fmt, ap);
    va_end(ap);
}

/* What an epoch's valid is called. */
static const char *valid_name(const pl_runner_plan *plan)
{
    const char *name = plan->tb->schema->curve.progress;
    return name ? name : "valid";
}

/* What a job does before its first epoch. */
static void add_beginning(line *l, const pl_job_view *job)
{
    char left[32];
    double seconds = (double)(job->to_begin - job->begun) / job->begin_rate;
    add(l, "  %s %lld/%lld", job->begins, (long long)job->begun, (long long)job->to_begin);
    if (!(job->begin_rate > 0)) return;
    add(l, "  %.*f/s", job->begin_rate < 10 ? 2 : 0, job->begin_rate);
    if (seconds > 0) add(l, "  about %s", run_progress_time(left, seconds));
}

/* Epochs of all runs count alike, so this is rough where their sizes differ. Of running epochs the part that
 * is done counts, where it is known. */
static void add_rate(line *l, const pl_runner_view *v)
{
    char left[32];
    double gone = v->epochs_gone, here = v->epochs_here, rate = 0;
    const char *what = NULL;
    for (int j = 0; j < v->job_count; j++) {
        const pl_job_view *job = &v->jobs[j];
        if (!job->run || !job->what) continue;
        gone += job->part;
        here += job->part_here;
        rate += job->rate;
        what = job->what;
    }
    if (what && rate > 0) add(l, "  %.*f %s/s", rate < 10 ? 2 : 0, rate, what);
    if ((!what && v->epochs_made < 2) || v->seconds < 1) return;
    if (!what) add(l, "  %.3g epochs/s", (double)v->epochs_made / v->seconds);
    if (here > 0 && gone < v->epochs_total)
        add(l, "  about %s left", run_progress_time(left, (v->epochs_total - gone) * v->seconds / here));
}

/* The epoch a job is at: those made, and with a part of one that runs "12.3". */
static void add_epoch(line *l, const pl_job_view *job)
{
    if (job->what) add(l, "%.2f", (double)job->epoch + job->part);
    else add(l, "%lld", (long long)job->epoch);
}

static line line_of(const run_progress *p, const pl_runner_view *v)
{
    line l = {""};
    add(&l, "%s", p->name);
    /* of one run its epochs say more */
    if (!p->epochs) add(&l, "  %lld/%lld runs", (long long)v->done, (long long)v->total);
    const pl_job_view *shown = NULL, *begins = NULL;
    for (int j = 0; j < v->job_count; j++) {
        const pl_job_view *job = &v->jobs[j];
        if (job->begins && !begins) begins = job;
        if (!job->run) continue;
        if (!shown && p->several) add(&l, "  %.80s", job->plan->spec->name);
        add(&l, shown ? " " : "  epoch ");
        add_epoch(&l, job);
        if (!shown) add(&l, "/%lld", (long long)job->epochs);
        shown = shown ? shown : job;
    }
    double loss = !shown ? (double)NAN : isnan(shown->loss) ? shown->train_loss : shown->loss;
    if (!isnan(loss)) add(&l, "  loss %.3g", loss);
    if (shown && !isnan(shown->valid)) add(&l, "  %s %.3g", valid_name(shown->plan), shown->valid);
    if (begins) add_beginning(&l, begins);
    if (v->waiting && !shown) add(&l, "  waiting for another process");
    add_rate(&l, v);
    return l;
}

static void rewrite_line(run_progress *p, const pl_runner_view *v)
{
    line l = line_of(p, v);
    cli_line_show(p->ctx, "%s", l.text);
    p->open = 1;
    p->shown = v->seconds;
}

void run_progress_end(run_progress *p)
{
    if (p->open) fprintf(p->ctx->log, "\n");
    p->open = 0;
}

/* A line that stays, above the one that rewrites itself. */
static void lasting_line(run_progress *p, const char *text)
{
    if (p->open) cli_line_clear(p->ctx);
    p->open = 0;
    fprintf(p->ctx->log, "%s\n", text);
    fflush(p->ctx->log);
}

/* ---- events ------------------------------------------------------------------------------------- */

static void show_finished(run_progress *p, const pl_runner_event *e)
{
    line l = {""};
    char time[32];
    const char *metric = e->plan->spec->metric;
    add(&l, "[%lld/%lld] ", (long long)e->view->done, (long long)e->view->total);
    if (p->several) add(&l, "%.80s ", e->plan->spec->name);
    add(&l, "%.80s %.40s seed %lld: ", e->run->cell, e->run->arm, (long long)e->run->seed);
    for (int64_t i = 0; i < e->result_count; i++)
        if (!strcmp(e->results[i].name, metric)) add(&l, "%s %.5g, ", metric, e->results[i].value);
    add(&l, "%s%lld epochs, %s", e->state == PL_RUN_DIVERGED ? "diverged, " : "", (long long)e->epochs,
        run_progress_time(time, e->wall));
    add_rate(&l, e->view);
    lasting_line(p, l.text);
    p->shown = e->view->seconds;
}

static void show_epoch(run_progress *p, const pl_runner_event *e)
{
    line l = {""};
    add(&l, "epoch %4lld  train %.6g  %s %.6g  lr %.3g%s", (long long)e->epoch->epoch, e->epoch->train_loss,
        valid_name(e->plan), e->epoch->valid, e->epoch->lr, e->epoch->improved ? "  best" : "");
    if (e->view->job_count && e->view->jobs[0].what) add_rate(&l, e->view);
    lasting_line(p, l.text);
}

void run_progress_watch(void *progress, const pl_runner_event *e)
{
    run_progress *p = progress;
    int terminal = p->ctx->log_is_terminal;
    if (p->stop && atomic_load(p->stop) && !p->said_stop) {
        p->said_stop = 1;
        lasting_line(p, "stopping: what is running is saved (once more Ctrl-C kills)");
    }
    switch (e->kind) {
    case PL_RUNNER_NOTE: lasting_line(p, e->note); break;
    case PL_RUNNER_RESUMED:
        if (e->epochs && (p->epochs || e->view->total < 4)) {
            line l = {""};
            add(&l, "going on after epoch %lld", (long long)e->epochs);
            lasting_line(p, l.text);
        }
        break;
    case PL_RUNNER_EPOCH:
        if (p->epochs && !terminal) {
            show_epoch(p, e);
            p->shown = e->view->seconds;
        }
        break;
    case PL_RUNNER_FINISHED:
        if (!terminal && !p->epochs) show_finished(p, e);
        else if (terminal) rewrite_line(p, e->view);
        break;
    case PL_RUNNER_TICK:
        if (terminal) rewrite_line(p, e->view);
        else if (e->view->seconds - p->shown >= PLAIN_SECONDS &&
                 (!p->epochs || (e->view->job_count && (e->view->jobs[0].what || e->view->jobs[0].begins)))) {
            lasting_line(p, line_of(p, e->view).text);
            p->shown = e->view->seconds;
        }
        break;
    }
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* As one would type it: quoted where a shell would read something into it. */
static void print_word(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
    if (*word && !word[strspn(word, plain)]) {
        fprintf(f, " %s", word);
        return;
    }
    fputs(" '", f);
    for (; *word; word++) *word == '\'' ? fputs("'\\''", f) : fputc(*word, f);
    fputc('\'', f);
}

void run_progress_outcome(cli_context *ctx, const pl_runner_outcome *o, polar_status st, const char *command,
                          int argc, char **argv)
{
    char time[32];
    /* it did not come to running */
    if ((st != POLAR_OK && !o->total) || (st == POLAR_E_ARG && !o->done_here)) return;
    if (o->unplanned)
        fprintf(ctx->log, "no time was left to put the plan of %lld runs into the store\n",
                (long long)o->total);
    else fprintf(ctx->log, "%lld of %lld runs are done", (long long)o->done, (long long)o->total);
    if (o->diverged) fprintf(ctx->log, " (%lld of them diverged)", (long long)o->diverged);
    if (o->done_here)
        fprintf(ctx->log, ", %lld now, in %s", (long long)o->done_here, run_progress_time(time, o->seconds));
    if (!o->unplanned) fprintf(ctx->log, "\n");
    if (!o->left) return;
    fprintf(ctx->log, "%s; what was begun goes on from its last checkpoint with\n  %s %s",
            o->stopped       ? "stopped by a signal"
            : o->out_of_time ? "the budget is spent"
                             : "ended by an error",
            ctx->program, command);
    for (int i = 0; i < argc; i++) print_word(ctx->log, argv[i]);
    fprintf(ctx->log, "\n");
}
