/* cli_options.h -- a command's options as a table: parsing, ranges, defaults and the help text come from
 * the same rows.
 *
 *     typedef struct { int64_t steps; int quick, format; double tol; const char *in; cli_list only; }
 *         map_args;
 *     static const cli_option options[] = {
 *         {"IN",     CLI_ARG(map_args, in),       .help = "a safetensors file"},
 *         {"steps",  CLI_INT(map_args, steps, 0, 32),   .value = "K",   .def = "5",    .help =
 *                    "Newton-Schulz steps"},
 *         {"tol",    CLI_DOUBLE(map_args, tol, 0, 1),   .value = "X",   .def = "1e-3", .help = "..."},
 *         {"quick",  CLI_FLAG(map_args, quick),         .help = "fewer samples"},
 *         {"only",   CLI_STRINGS(map_args, only),       .value = "PATTERN", .help = "may be given again"},
 *         {"format", CLI_CHOICE(map_args, format, cli_formats), .value = "F", .def = "text", .help =
 *             "of the table"},
 *         {0},
 *     };
 *
 * On the command line: --key value, --key=value, -k value where a row has a letter, flags without a value,
 * positional arguments in the order of their rows, and -- after which everything is positional. The last of
 * a repeated option counts, except for CLI_STRINGS. Everything wrong is POLAR_E_ARG with one sentence: the
 * nearest known name, the range, the choices. Strings are borrowed from argv.
 */
#ifndef POLAR_CLI_OPTIONS_H
#define POLAR_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef enum cli_kind {
    CLI_KIND_FLAG,    /* int: 1 when given */
    CLI_KIND_INT,     /* int64_t in [min, max] */
    CLI_KIND_DOUBLE,  /* double in [min, max], finite */
    CLI_KIND_CHOICE,  /* int: the index in choices */
    CLI_KIND_STRING,  /* const char * */
    CLI_KIND_STRINGS, /* cli_list: every occurrence */
    CLI_KIND_ARG,     /* const char *: a positional argument, wanted unless it has a def or is optional */
    /* cli_list: the remaining positional arguments, none or more; the last row of its sort */
    CLI_KIND_ARGS
} cli_kind;

#define CLI_MAX_LIST 1024 /* the stores of a cluster's shards */

typedef struct cli_list {
    int count;
    const char *items[CLI_MAX_LIST];
} cli_list;

typedef struct cli_option {
    /* "steps"; of a positional argument as help shows it, "IN"; NULL ends the table */
    const char *name;
    cli_kind kind;
    size_t offset;              /* of the field in the command's struct */
    double min, max;            /* whole ones up to 2^53 */
    const char *const *choices; /* ended by NULL */
    int optional;               /* CLI_KIND_ARG that may be missing */
    char letter;                /* 'o': -o VALUE means the same; 0 for none, not for flags */
    const char *value;          /* what help calls the value: "K" */
    /* as one would type it; without one the field is left as it was; not for lists */
    const char *def;
    const char *help; /* one line */
} cli_option;

/* The kind and the place of a field; a field of another type does not compile. */
#define CLI_AT(type, member, want) (offsetof(type, member) * _Generic(((type *)0)->member, want : (size_t)1))
#define CLI_FLAG(type, member)     .kind = CLI_KIND_FLAG, .offset = CLI_AT(type, member, int)
#define CLI_INT(type, member, lo, hi) \
    .kind = CLI_KIND_INT, .offset = CLI_AT(type, member, int64_t), .min = (lo), .max = (hi)
#define CLI_DOUBLE(type, member, lo, hi) \
    .kind = CLI_KIND_DOUBLE, .offset = CLI_AT(type, member, double), .min = (lo), .max = (hi)
#define CLI_CHOICE(type, member, list) \
    .kind = CLI_KIND_CHOICE, .offset = CLI_AT(type, member, int), .choices = (list)
#define CLI_STRING(type, member)  .kind = CLI_KIND_STRING, .offset = CLI_AT(type, member, const char *)
#define CLI_STRINGS(type, member) .kind = CLI_KIND_STRINGS, .offset = CLI_AT(type, member, cli_list)
#define CLI_ARG(type, member)     .kind = CLI_KIND_ARG, .offset = CLI_AT(type, member, const char *)
#define CLI_ARGS(type, member)    .kind = CLI_KIND_ARGS, .offset = CLI_AT(type, member, cli_list)

/* "text", "csv", "json", "tex", NULL: the order of pl_table_format (report/table.h) */
extern const char *const cli_formats[];
extern const char *const cli_map_names[]; /* what polar_map_opts_parse takes, ended by NULL */

/* fills the struct at out */
polar_status cli_options_parse(void *out, const cli_option *table, const char *command, int argc,
                               char *const *argv);
/* one line per row, with defaults and ranges */
void cli_options_help(FILE *out, const cli_option *table);
/* Text in lines of at most CLI_HELP_COLUMNS, the first of which has begun; where one is broken the next has
 * an indent. Lines that end a sentence stay, so does what is laid out by hand: it begins with a space. */
void cli_put_folded(FILE *out, const char *text, int begun, int indent);
#define CLI_HELP_COLUMNS 100
/* a whole number; `what` begins the sentence */
polar_status cli_parse_int(int64_t *out, const char *what, const char *text, int64_t min, int64_t max);
/* a finite number */
polar_status cli_parse_double(double *out, const char *what, const char *text, double min, double max);

#endif
