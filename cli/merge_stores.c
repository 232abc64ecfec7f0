/* merge_stores.c -- `polar store merge OUT IN...`: the stores of an audit's shards become one. */
#include "merge_stores.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_read.h"

/* ---- a folder of our own ------------------------------------------------------------------------ */

polar_status scratch_open(char out[SCRATCH_CHARS])
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(out, SCRATCH_CHARS, "%s/polar-merge.XXXXXX", base && *base ? base : "/tmp");
    PL_NEED(n < SCRATCH_CHARS - 64 && mkdtemp(out), POLAR_E_IO, "make a folder '%s': %s (TMPDIR says where)",
            pl_text_shown(out).text, n < SCRATCH_CHARS - 64 ? strerror(errno) : "its name is too long");
    return POLAR_OK;
}

void scratch_close(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir) closedir(dir);
    (void)rmdir(folder);
}

/* ---- joining ------------------------------------------------------------------------------------ */

int cli_print_difference(void *arg, const char *run, const char *what)
{
    cli_differences *t = arg;
    pl_shown words = pl_text_shown(what);
    if (t->lines++ >= MOST_DIFFERENCES) return 0;
    if (*run) fprintf(t->out, "differs: run %.12s: %s\n", run, words.text);
    else fprintf(t->out, "differs: %s\n", words.text);
    return 1;
}

static polar_status merge_into(pl_merge_count *did, cli_context *ctx, const char *out, const char *const *in,
                               int64_t count)
{
    cli_differences t = {.out = ctx->out};
    pl_store *s;
    *did = (pl_merge_count){0};
    PL_TRY(pl_store_open(&s, out, PL_STORE_WRITE));
    polar_status st = pl_store_verify(s);
    if (st == POLAR_OK) st = pl_store_merge(did, s, in, count, cli_print_difference, &t);
    if (did->differ > MOST_DIFFERENCES)
        fprintf(ctx->out, "... and %" PRId64 " more\n", did->differ - MOST_DIFFERENCES);
    if (st == POLAR_OK) st = pl_store_sweep(s); /* checkpoints of runs that came finished */
    pl_store_close(s);
    return st;
}

polar_status merge_stores(pl_merge_count *did, cli_context *ctx, const char *out, const char *const *in,
                          int64_t count)
{
    char folder[SCRATCH_CHARS], made[SCRATCH_CHARS + 16];
    if (access(out, F_OK) == 0) return merge_into(did, ctx, out, in, count);
    PL_TRY(scratch_open(folder));
    snprintf(made, sizeof made, "%s/merged.db", folder);
    polar_status st = merge_into(did, ctx, made, in, count);
    if (st == POLAR_OK) st = pl_store_copy(out, made);
    scratch_close(folder);
    return st;
}

/* ---- the command -------------------------------------------------------------------------------- */

typedef struct merge_args {
    const char *out;
    cli_list in;
} merge_args;

static const cli_option options[] = {
    {"OUT", CLI_ARG(merge_args, out), .help = "the store that gets everything; made where there is none"},
    {"IN..", CLI_ARGS(merge_args, in), .help = "the stores to join"},
    {0},
};

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    merge_args a = {0};
    pl_merge_count did;
    PL_TRY(cli_options_parse(&a, options, "store merge", argc, argv));
    PL_NEED(a.in.count, POLAR_E_ARG, "store merge: IN is missing: the stores to join into '%s'",
            pl_text_shown(a.out).text);
    polar_status st = merge_stores(&did, ctx, a.out, a.in.items, a.in.count);
    if (did.differ) { /* said which; a check that failed */
        fprintf(ctx->out, "%s: %" PRId64 " disagreement%s, nothing was joined\n", a.out, did.differ,
                did.differ == 1 ? "" : "s");
        ctx->check_failed = 1;
        return POLAR_OK;
    }
    PL_TRY(st);
    fprintf(ctx->out, "%s: %" PRId64 " of %" PRId64 " runs are done, %" PRId64 " of them new\n", a.out,
            did.finished, did.runs, did.put);
    return POLAR_OK;
}

const cli_command cli_store_merge = {
    .name = "store merge",
    .summary = "join the stores of an audit's shards into one",
    .usage = "OUT IN..",
    .options = options,
    .about =
        "Everything the stores IN hold goes into OUT, all of it or nothing: specs, runs, results, epochs, "
        "gauge "
        "rows. OUT may be there, and\n"
        "keeps what it has. A run that two stores have finished must be the same in every bit but clocks and "
        "machines; those that are not\n"
        "are named, with the first number that differs, and nothing is joined (exit code 1). A damaged store "
        "is "
        "refused, as everywhere.\n"
        "Unfinished runs are planned in OUT; their checkpoints stay where they are. A new OUT is made under "
        "TMPDIR and copied to its\n"
        "place as one file, so it may lie on a network file system.\n",
    .examples = "  polar store merge audit.db shard-*.db\n"
                "  polar store merge all.db first.db second.db && polar audit so3_capacity --store all.db\n",
    .run = run,
};
