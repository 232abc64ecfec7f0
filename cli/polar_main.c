/* polar_main.c -- the program `polar`: finds the command, prints its error if there is one, chooses the exit
 * code.
 *
 *     0  done
 *     1  a check failed (the command has printed which)
 *     2  wrong use or bad input: one sentence on stderr
 *     3  the machine failed us: memory, files, devices, a full disk behind stdout
 *   130  stopped by Ctrl-C or another signal, work saved (the command has printed how to go on)
 *
 * A reader that closes the pipe early (`polar info | head`) ends the program silently by SIGPIPE.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_read.h"
#include "base/nearest.h"
#include "cli.h"
#include "cli_line.h"
#include "file_signal.h"

enum { EXIT_DONE = 0, EXIT_CHECK = 1, EXIT_USE = 2, EXIT_MACHINE = 3, EXIT_INTERRUPTED = 130 };

static const cli_command *const commands[] = {
    &cli_cmd_demo,  &cli_cmd_plan, &cli_cmd_run,    &cli_cmd_train, &cli_cmd_audit, &cli_cmd_report,
    &cli_cmd_store, &cli_cmd_data, &cli_cmd_verify, &cli_cmd_map,   &cli_cmd_bench, &cli_cmd_info};

#define N_COMMANDS ((int)(sizeof commands / sizeof *commands))

/* The members of a family of commands; NULL for a plain one. */
static const cli_command *const *parts_of(const cli_command *cmd)
{
    return cmd == &cli_cmd_data ? cli_data_parts : cmd == &cli_cmd_store ? cli_store_parts : NULL;
}

/* ---- help --------------------------------------------------------------------------------------- */

static void print_overview(FILE *out, const char *program)
{
    fprintf(out,
            "polar %s: polar maps and the matrix optimisers built on them\n\nusage: %s COMMAND [options]\n\n",
            polar_version(), program);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "  %-10s %s\n\n", "help", "this text, or that of a command: help COMMAND");
    fprintf(out, "`%s COMMAND --help` lists a command's options; `%s --version` prints the version.\n",
            program, program);
    fprintf(out, "Exit codes: 0 done, 1 a check failed, 2 wrong use or bad input, 3 the machine failed us, "
                 "130 stopped by Ctrl-C.\n");
}

void cli_command_help(FILE *out, const char *program, const cli_command *cmd)
{
    fprintf(out, "%s %s: %s\n\nusage: %s %s %s\n\n", program, cmd->name, cmd->summary, program, cmd->name,
            cmd->usage);
    cli_put_folded(out, cmd->about, 0, 0);
    fputc('\n', out);
    const cli_command *const *parts = parts_of(cmd);
    for (int i = 0; parts && parts[i]; i++) fprintf(out, "  %-20s %s\n", parts[i]->name, parts[i]->summary);
    if (parts) fprintf(out, "\n`%s %s WHAT --help` lists the options of each.\n", program, cmd->name);
    else cli_options_help(out, cmd->options);
    fprintf(out, "\nexamples:\n%s", cmd->examples);
}

/* ---- the command -------------------------------------------------------------------------------- */

static polar_status find_command(const cli_command **out, const char *name)
{
    const char *known[N_COMMANDS + 4] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++) {
        *out = commands[i];
        known[i] = commands[i]->name;
        if (!strcmp(known[i], name)) return POLAR_OK;
    }
    known[N_COMMANDS] = "help";
    known[N_COMMANDS + 1] = "--help";
    known[N_COMMANDS + 2] = "--version";
    const char *near = pl_nearest(name, known);
    if (near)
        return PL_FAIL(POLAR_E_ARG, "no command '%s' (did you mean `polar %s`?)", pl_text_shown(name).text,
                       near);
    return PL_FAIL(POLAR_E_ARG, "no command '%s' (`polar help` lists them)", pl_text_shown(name).text);
}

/* *cmd is a family; one of its parts takes its place. A part's name is "data pack", the word "pack". */
static polar_status find_part(const cli_command **cmd, const char *word)
{
    const cli_command *const *parts = parts_of(*cmd);
    const char *known[16] = {NULL};
    char all[256] = "";
    size_t stem = strlen((*cmd)->name) + 1;
    for (int i = 0; i < 15 && parts[i]; i++) {
        known[i] = parts[i]->name + stem;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", known[i]);
        if (word && !strcmp(known[i], word)) {
            *cmd = parts[i];
            return POLAR_OK;
        }
    }
    PL_NEED(word, POLAR_E_ARG, "%s wants one of %s (`polar %s --help` tells more)", (*cmd)->name, all,
            (*cmd)->name);
    const char *near = pl_nearest(word, known);
    if (near)
        return PL_FAIL(POLAR_E_ARG, "%s wants one of %s, got '%s' (did you mean %s?)", (*cmd)->name, all,
                       pl_text_shown(word).text, near);
    return PL_FAIL(POLAR_E_ARG, "%s wants one of %s, got '%s'", (*cmd)->name, all, pl_text_shown(word).text);
}

static int asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return 1;
    return 0;
}

/* argv: what follows the program's name. */
static polar_status dispatch(cli_context *ctx, int argc, char **argv)
{
    const cli_command *cmd = NULL;
    const char *name = argc ? argv[0] : "help";
    if (!strcmp(name, "--version")) {
        PL_NEED(argc == 1, POLAR_E_ARG, "--version stands alone, got '%s' after it",
                pl_text_shown(argv[1]).text);
        fprintf(ctx->out, "polar %s\n", polar_version());
        return POLAR_OK;
    }
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h")) {
        PL_NEED(argc <= 3, POLAR_E_ARG, "help wants one command, got %d words", argc - 1);
        PL_NEED(argc < 3 || strcmp(argv[1], "help"), POLAR_E_ARG, "help wants one command, got %d words",
                argc - 1);
        if (argc < 2 || !strcmp(argv[1], "help")) print_overview(ctx->out, ctx->program);
        else {
            PL_TRY(find_command(&cmd, argv[1]));
            PL_NEED(argc == 2 || parts_of(cmd), POLAR_E_ARG, "help wants one command, got %d words",
                    argc - 1);
            if (argc == 3) PL_TRY(find_part(&cmd, argv[2]));
            cli_command_help(ctx->out, ctx->program, cmd);
        }
        return POLAR_OK;
    }
    PL_TRY(find_command(&cmd, name));
    argc--, argv++;
    if (parts_of(cmd) && argc && argv[0][0] != '-') {
        PL_TRY(find_part(&cmd, argv[0]));
        argc--, argv++;
    }
    if (asks_for_help(argc, argv)) {
        cli_command_help(ctx->out, ctx->program, cmd);
        return POLAR_OK;
    }
    if (parts_of(cmd)) return find_part(&cmd, NULL);
    return cmd->run(ctx, argc, argv);
}

/* ---- the ends ----------------------------------------------------------------------------------- */

/* Without this a file opened later could become descriptor 1 or 2 and collect what is printed. Writes to the
 * stand-in fail. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) _exit(EXIT_MACHINE);
}

/* Everything a command printed must have arrived. */
static polar_status finish_output(FILE *out)
{
    int lost = ferror(out); /* an earlier write failed; its reason is gone */
    errno = 0;
    if (fclose(out) == 0 && !lost) return POLAR_OK;
    return PL_FAIL(POLAR_E_IO, "write to standard output: %s",
                   errno ? strerror(errno) : "some of it did not arrive");
}

static int exit_code(polar_status st, const cli_context *ctx)
{
    switch (st) {
    case POLAR_OK: return ctx->interrupted ? EXIT_INTERRUPTED : ctx->check_failed ? EXIT_CHECK : EXIT_DONE;
    case POLAR_E_ARG:
    case POLAR_E_SHAPE:
    case POLAR_E_DTYPE:
    case POLAR_E_FORMAT: return EXIT_USE;
    default: return EXIT_MACHINE;
    }
}

int main(int argc, char **argv)
{
    hold_standard_files();
    signal(SIGPIPE, SIG_DFL);
    file_signal_begin(EXIT_MACHINE);
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    cli_context ctx = {.program = slash ? slash + 1 : argc ? argv[0] : "polar", .out = stdout, .log = stderr};
    ctx.log_is_terminal = cli_line_possible(stderr);
    polar_status st = dispatch(&ctx, argc ? argc - 1 : 0, argv + 1);
    /* the command stumbled over its output: finish_output knows the sentence */
    int lost = st == POLAR_E_IO && ferror(ctx.out);
    if (st != POLAR_OK && !lost) fprintf(ctx.log, "polar: %s\n", polar_error_message());
    polar_status written = finish_output(ctx.out);
    if (written != POLAR_OK && (st == POLAR_OK || lost)) {
        st = written;
        fprintf(ctx.log, "polar: %s\n", polar_error_message());
    }
    return exit_code(st, &ctx);
}
