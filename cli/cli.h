/* cli.h -- what a command of the program `polar` is, and what it may count on.
 *
 *     typedef struct { int64_t steps; const char *in; } thing_args;
 *     static const cli_option options[] = { ... };                     // cli_options.h
 *     static polar_status run(cli_context *ctx, int argc, char **argv)
 *     {
 *         thing_args a = {0};
 *         PL_TRY(cli_options_parse(&a, options, "thing", argc, argv));
 *         // results; notes and progress go to ctx->log
 *         fprintf(ctx->out, "...\n");
 *         // exit code 1; the command has said why
 *         if (worst > bound) ctx->check_failed = 1;
 *         return POLAR_OK;
 *     }
 *     const cli_command cli_cmd_thing = {"thing", "does a thing", "IN [options]", options, about,
 *         examples, run};
 *
 * A command returns a status with its sentence and never exits. Only polar_main.c prints errors ("polar:
 * <sentence>", one line on stderr) and chooses the exit code: 0 done, 1 a check failed, 2 wrong use or bad
 * input, 3 the machine failed us, 130 stopped by Ctrl-C. Whether everything written to ctx->out arrived is
 * looked at there too: commands need not check their fprintf.
 */
#ifndef POLAR_CLI_H
#define POLAR_CLI_H

#include <stdio.h>

#include "base/status.h"
#include "cli_options.h"

typedef struct cli_context {
    const char *program; /* "polar", the last part of argv[0] */
    FILE *out;           /* results */
    FILE *log;           /* progress and notes, never results */
    int log_is_terminal; /* progress may rewrite its line (cli_line.h); otherwise plain lines */
    int check_failed;    /* set by a command whose check failed */
    int interrupted;     /* set by a command that Ctrl-C stopped; it has said how to go on */
} cli_context;

typedef struct cli_command {
    const char *name;
    const char *summary;       /* one line, no full stop */
    const char *usage;         /* what follows "polar <name>": "IN OUT [options]" */
    const cli_option *options; /* help lists them with their defaults */
    const char *about;         /* a paragraph or two, lines ended by \n */
    const char *examples;      /* two lines or more, each ended by \n */
    polar_status (*run)(cli_context *ctx, int argc, char **argv); /* what follows the command's name */
} cli_command;

extern const cli_command cli_cmd_audit, cli_cmd_bench, cli_cmd_data, cli_cmd_demo, cli_cmd_info, cli_cmd_map,
    cli_cmd_plan, cli_cmd_report, cli_cmd_run, cli_cmd_store, cli_cmd_train, cli_cmd_verify;
extern const cli_command *const cli_store_parts[]; /* `polar store`: likewise */
/* `polar data` is a family: "data pack", "data stat", ..., ended by NULL; options and run are theirs */
extern const cli_command *const cli_data_parts[];

/* what, options with defaults, examples */
void cli_command_help(FILE *out, const char *program, const cli_command *cmd);

#endif
