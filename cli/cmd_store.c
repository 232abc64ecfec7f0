/* cmd_store.c -- `polar store`: the family of commands about a store. Here: check, which says what is damaged
 * and what can be made again; merge is in merge_stores.c, import in import_tables.c. */
#include <inttypes.h>
#include <string.h>

#include "base/json_read.h"
#include "cli.h"
#include "store/store.h"

#define MOST_LINES 40 /* of damage; the rest is counted */

typedef struct check_args {
    const char *store;
    int drop;
} check_args;

static const cli_option options[] = {
    {"store", CLI_STRING(check_args, store), .value = "FILE", .def = "polar.db",
     .help = "where `polar run` put the results"},
    {"drop-damaged", CLI_FLAG(check_args, drop),
     .help = "forget the runs that are damaged, so that `polar run SPEC` makes them again"},
    {0},
};

typedef struct findings {
    FILE *out;
    pl_store *s;
    int64_t count;
    polar_status status;
} findings;

static int print_one(void *arg, const char *run, const char *what)
{
    findings *f = arg;
    char specs[200] = "";
    if (f->count++ >= MOST_LINES) return 1;
    pl_shown words = pl_text_shown(what);
    if (!*run) fprintf(f->out, "damaged: %s\n", words.text);
    else {
        f->status = pl_store_specs_of(specs, sizeof specs, f->s, run);
        fprintf(f->out, "damaged: run %.12s%s%s%s: %s\n", pl_text_shown(run).text, *specs ? " (" : "",
                pl_text_shown(specs).text, *specs ? ")" : "", words.text);
    }
    return f->status == POLAR_OK;
}

/* Everything that can be read and is not as it was written. */
static polar_status find_damage(findings *f)
{
    PL_TRY(pl_store_examine(f->s, print_one, f));
    PL_TRY(f->status);
    PL_TRY(pl_store_examine_checkpoints(f->s, print_one, f));
    PL_TRY(f->status);
    if (f->count > MOST_LINES) fprintf(f->out, "... and %" PRId64 " more\n", f->count - MOST_LINES);
    return POLAR_OK;
}

static polar_status check(cli_context *ctx, const check_args *a, findings *f)
{
    const char *path = pl_store_path(f->s);
    PL_TRY(find_damage(f));
    if (!f->count)
        fprintf(ctx->out, "%s is sound: every row and every checkpoint is as it was written\n", path);
    else if (!a->drop) {
        ctx->check_failed = 1;
        fprintf(ctx->out,
                "%s is damaged. Runs in it can be made again: `polar store check --store FILE "
                "--drop-damaged` forgets them, and nothing else; then\n"
                "`polar run SPEC`, with the spec named with each, makes them. A damaged structure SQLite "
                "cannot mend: `sqlite3 FILE .recover` may rescue it.\n",
                path);
    } else {
        PL_TRY(pl_store_drop_damaged(f->s));
        fprintf(ctx->out,
                "dropped; `polar run SPEC`, with the spec named with each, makes these runs again\n");
    }
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    check_args a = {0};
    findings f = {.out = ctx->out};
    pl_store *there;
    PL_TRY(cli_options_parse(&a, options, "store check", argc, argv));
    PL_TRY(pl_store_open(&there, a.store, PL_STORE_EXAMINE)); /* to write would make one */
    f.s = there;
    if (a.drop) {
        pl_store_close(there);
        PL_TRY(pl_store_open(&f.s, a.store, PL_STORE_WRITE));
    }
    polar_status st = check(ctx, &a, &f);
    pl_store_close(f.s);
    return st;
}

static const cli_command cli_store_check = {
    .name = "store check",
    .summary = "what of a store is damaged, and what can be made again",
    .usage = "[--store FILE] [--drop-damaged]",
    .options = options,
    .about = "Compares every row of the store with its checksum, counts the rows that must be there, lets "
             "SQLite look at the file's structure and\n"
             "reads the checkpoints in FILE.d. What is damaged is named, with the specs it belongs to (exit "
             "code 1). A number that rotted is never used:\n"
             "where a run's results or epochs are damaged, `polar audit`, `polar report` and `polar plan` "
             "name it and count it as not done, and `polar run`\n"
             "makes it again. Any other damage, of which specs and runs there are, they refuse, and `polar "
             "store merge` and `import` refuse both. With\n"
             "--drop-damaged the runs concerned are as if they had never been begun, and `polar run SPEC` "
             "makes them again, with the same numbers;\n"
             "all others stay.\n",
    .examples = "  polar store check\n"
                "  polar store check --store results.db --drop-damaged && polar run "
                "specs/paper/so3_capacity.yaml --store results.db\n",
    .run = run,
};

extern const cli_command cli_store_merge, cli_store_import;
const cli_command *const cli_store_parts[] = {&cli_store_check, &cli_store_merge, &cli_store_import, NULL};

const cli_command cli_cmd_store = {
    .name = "store",
    .summary = "look after stores of results: check, merge, import",
    .usage = "check | merge | import ...",
    .about = "A store is the file in which `polar run` keeps results (polar.db).\n",
    .examples = "  polar store check --store results.db\n"
                "  polar store merge audit.db shard-*.db\n"
                "  polar store import specs/paper/so3_capacity.yaml --runs so3_capacity_runs.csv\n",
};
