/* run_ranks.c -- the files of run_ranks.h. Nothing here needs to be right about time for the results to be: a
 * state that is old or missing costs a wait, or leaves a rank's runs to the next launch. */
#include "run_ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "base/whole_file.h"

#define BEAT_SECONDS 5
#define TELL_SECONDS 30 /* between two lines about who is waited for */
#define NAME_CHARS   (SCRATCH_CHARS + 64)
#define LINE_CHARS   200

/* ---- names -------------------------------------------------------------------------------------- */

static void shard_name(char out[NAME_CHARS], const run_ranks *r, int64_t rank, const char *tail)
{
    snprintf(out, NAME_CHARS, "%s.rank-%" PRId64 "-of-%" PRId64 "%s", r->store, rank, r->launch.size, tail);
}

/* "<TMPDIR>/polar-<user>", ours alone. */
static polar_status local_folder(char out[SCRATCH_CHARS])
{
    struct stat info;
    const char *base = getenv("TMPDIR");
    int n = snprintf(out, SCRATCH_CHARS, "%s/polar-%ld", base && *base ? base : "/tmp", (long)getuid());
    PL_NEED(n < SCRATCH_CHARS - 128, POLAR_E_ARG, "the name of TMPDIR is too long");
    int made = mkdir(out, 0700) == 0 || errno == EEXIST;
    int ours = made && lstat(out, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() &&
               !(info.st_mode & 022);
    PL_NEED(ours, POLAR_E_IO, "the folder '%s' for a rank's store: %s", pl_text_shown(out).text,
            made ? "others may write there, or it is another user's" : strerror(errno));
    return POLAR_OK;
}

/* The store's folder as everybody calls it: ranks and launches must name the same. */
static polar_status local_name(run_ranks *r)
{
    char folder[PATH_MAX], real[PATH_MAX], hex[PL_CHECKSUM_HEX];
    const char *slash = strrchr(r->store, '/');
    int n = snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - r->store + 1) : 1,
                     slash ? r->store : ".");
    PL_NEED(n < (int)sizeof folder && strlen(r->store) < SCRATCH_CHARS - 64, POLAR_E_ARG,
            "the store's name is too long");
    PL_NEED(realpath(folder, real), POLAR_E_ARG, "the store '%s' cannot be made: no folder for it",
            pl_text_shown(r->store).text);
    const char *name = slash ? slash + 1 : r->store;
    pl_checksum c = pl_checksum_begin(strlen(real) + 1 + strlen(name));
    pl_checksum_add(&c, real, strlen(real) + 1);
    pl_checksum_add(&c, name, strlen(name));
    pl_checksum_print(hex, pl_checksum_end(&c));
    PL_TRY(local_folder(r->local));
    size_t used = strlen(r->local);
    snprintf(r->local + used, SCRATCH_CHARS - used, "/%s-%" PRId64 "-of-%" PRId64 ".db", hex, r->launch.rank,
             r->launch.size);
    return POLAR_OK;
}

static void remove_store(const char *path)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    char name[NAME_CHARS + 8];
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        snprintf(name, sizeof name, "%s%s", path, tails[i]);
        (void)unlink(name);
    }
    snprintf(name, sizeof name, "%s.d", path);
    (void)rmdir(name); /* no checkpoint is left of runs that are done */
}

/* ---- states ------------------------------------------------------------------------------------- */

static polar_status write_state(const run_ranks *r, const char *word, int64_t number)
{
    char name[NAME_CHARS], line[LINE_CHARS];
    pl_whole_file w;
    shard_name(name, r, r->launch.rank, ".state");
    int n = snprintf(line, sizeof line, "launch=%s %s %" PRId64 "\n", r->launch.id, word, number);
    PL_TRY(pl_whole_file_begin(&w, name));
    return pl_whole_file_end(&w, pl_write_all(w.fd, line, (size_t)n, name));
}

/* The line of a rank, "" where there is none. */
static void read_state(char out[LINE_CHARS], const run_ranks *r, int64_t rank)
{
    char name[NAME_CHARS];
    shard_name(name, r, rank, ".state");
    FILE *f = fopen(name, "r");
    *out = 0;
    if (f && !fgets(out, LINE_CHARS, f)) *out = 0;
    if (f) fclose(f);
}

typedef enum rank_state { RANK_RUNNING, RANK_ENDED, RANK_FAILED, RANK_SILENT } rank_state;

static rank_state state_of(const run_ranks *r, const char *line)
{
    char ours[LINE_CHARS];
    int n = snprintf(ours, sizeof ours, "launch=%s ", r->launch.id);
    if (strncmp(line, ours, (size_t)n)) return RANK_RUNNING; /* of another launch, or not begun */
    return !strncmp(line + n, "ended", 5)    ? RANK_ENDED
           : !strncmp(line + n, "failed", 6) ? RANK_FAILED
                                             : RANK_RUNNING;
}

/* ---- begin and end ------------------------------------------------------------------------------ */

/* What the shared file `from` holds, if it is there, into the store at `to`. */
static polar_status take_in(cli_context *ctx, const char *to, const char *folder, const char *from)
{
    char copy[NAME_CHARS];
    const char *in[] = {copy};
    pl_merge_count did;
    if (access(from, F_OK) != 0) return POLAR_OK;
    snprintf(copy, sizeof copy, "%s/in.db", folder);
    PL_TRY(pl_store_copy(copy, from));
    polar_status st = merge_stores(&did, ctx, to, in, 1);
    remove_store(copy);
    return st;
}

static polar_status seed(run_ranks *r, cli_context *ctx, const char *folder)
{
    char mine[NAME_CHARS];
    shard_name(mine, r, r->launch.rank, "");
    PL_TRY(take_in(ctx, r->local, folder, r->store));
    return take_in(ctx, r->local, folder, mine);
}

polar_status run_ranks_begin(run_ranks *r, cli_context *ctx, const pl_launch *launch, const char *store)
{
    char folder[SCRATCH_CHARS];
    *r = (run_ranks){.launch = *launch, .store = store};
    PL_TRY(local_name(r));
    r->beaten = r->copied = pl_clock_seconds();
    PL_TRY(write_state(r, "running", 0));
    PL_TRY(scratch_open(folder));
    polar_status st = seed(r, ctx, folder);
    scratch_close(folder);
    return st == POLAR_OK ? POLAR_OK : run_ranks_end(r, st, 0);
}

polar_status run_ranks_end(run_ranks *r, polar_status st, int complete)
{
    char shared[NAME_CHARS], said[1200];
    snprintf(said, sizeof said, "%s", polar_error_message());
    shard_name(shared, r, r->launch.rank, "");
    polar_status copied = access(r->local, F_OK) == 0 ? pl_store_copy(shared, r->local) : POLAR_OK;
    int good = st == POLAR_OK && copied == POLAR_OK;
    polar_status told = write_state(r, good ? "ended" : "failed", 0);
    if (good && complete) remove_store(r->local);
    if (st != POLAR_OK) return pl_fail_again(st, said);
    return copied != POLAR_OK ? copied : told;
}

/* What is finished now, while jobs go on with the rest. */
static polar_status copy_now(run_ranks *r, cli_context *ctx)
{
    char folder[SCRATCH_CHARS], made[NAME_CHARS], shared[NAME_CHARS];
    const char *in[] = {r->local};
    pl_merge_count did;
    shard_name(shared, r, r->launch.rank, "");
    PL_TRY(scratch_open(folder));
    snprintf(made, sizeof made, "%s/now.db", folder);
    polar_status st = merge_stores(&did, ctx, made, in, 1);
    if (st == POLAR_OK) st = pl_store_copy(shared, made);
    scratch_close(folder);
    return st;
}

void run_ranks_beat(run_ranks *r, cli_context *ctx, int64_t done, double copy_every)
{
    double now = pl_clock_seconds();
    if (now - r->beaten >= BEAT_SECONDS) {
        r->beaten = now;
        (void)write_state(r, "running", ++r->beats); /* a full disk is told by what follows */
    }
    if (now - r->copied < copy_every || done == r->done) return;
    r->copied = now;
    r->done = done;
    if (copy_now(r, ctx) != POLAR_OK)
        fprintf(ctx->log, "rank %" PRId64 ": its finished runs could not be copied now: %s\n", r->launch.rank,
                polar_error_message());
}

/* ---- rank 0 ------------------------------------------------------------------------------------- */

typedef struct others {
    char (*lines)[LINE_CHARS];
    double *since; /* when the line was last another */
    rank_state *states;
} others;

static int64_t look(others *o, const run_ranks *r, double silence)
{
    char line[LINE_CHARS];
    int64_t running = 0;
    double now = pl_clock_seconds();
    for (int64_t k = 0; k < r->launch.size; k++) {
        if (o->states[k] != RANK_RUNNING) continue;
        read_state(line, r, k);
        if (strcmp(line, o->lines[k])) o->since[k] = now;
        memcpy(o->lines[k], line, sizeof line);
        o->states[k] = state_of(r, line);
        if (o->states[k] == RANK_RUNNING && now - o->since[k] > silence) o->states[k] = RANK_SILENT;
        running += o->states[k] == RANK_RUNNING;
    }
    return running;
}

static void wait_for(others *o, run_ranks *r, cli_context *ctx, double silence)
{
    struct timespec pause = {0, 20 * 1000 * 1000};
    double told = pl_clock_seconds();
    for (int64_t k = 0; k < r->launch.size; k++) o->since[k] = told;
    for (int64_t running; (running = look(o, r, silence)) > 0;) {
        double now = pl_clock_seconds();
        if (now - told >= TELL_SECONDS) {
            int64_t first = 0;
            while (o->states[first] != RANK_RUNNING) first++;
            fprintf(ctx->log, "waiting for %" PRId64 " of %" PRId64 " ranks, rank %" PRId64 " among them\n",
                    running, r->launch.size, first);
            told = now;
        }
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 500 * 1000 * 1000) pause.tv_nsec += pause.tv_nsec / 4;
    }
}

static polar_status join(others *o, run_ranks *r, cli_context *ctx, const char *folder)
{
    char made[NAME_CHARS], shared[NAME_CHARS];
    snprintf(made, sizeof made, "%s/joined.db", folder);
    PL_TRY(take_in(ctx, made, folder, r->store));
    for (int64_t k = 0; k < r->launch.size; k++) {
        shard_name(shared, r, k, "");
        if (o->states[k] != RANK_ENDED)
            fprintf(ctx->log,
                    "rank %" PRId64 " of %" PRId64
                    " %s: its runs are not all there; the same command goes on\n",
                    k, r->launch.size, o->states[k] == RANK_FAILED ? "has failed" : "gives no sign of life");
        ctx->check_failed |= o->states[k] != RANK_ENDED;
        PL_TRY(take_in(ctx, made, folder, shared));
    }
    PL_TRY(pl_store_copy(r->store, made));
    for (int64_t k = 0; k < r->launch.size; k++) { /* what a rank that still runs has, it copies again */
        shard_name(shared, r, k, "");
        (void)unlink(shared);
        shard_name(shared, r, k, ".state");
        (void)unlink(shared);
    }
    return POLAR_OK;
}

polar_status run_ranks_join(run_ranks *r, cli_context *ctx, const char *folder, double silence)
{
    size_t n = (size_t)r->launch.size;
    others o = {pl_calloc(n, sizeof *o.lines), pl_calloc(n, sizeof *o.since), pl_calloc(n, sizeof *o.states)};
    polar_status st = o.lines && o.since && o.states ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "%zu ranks", n);
    if (st == POLAR_OK) {
        wait_for(&o, r, ctx, silence);
        st = join(&o, r, ctx, folder);
    }
    pl_free(o.lines);
    pl_free(o.since);
    pl_free(o.states);
    return st;
}
