/* cli_options.c -- the parser of cli_options.h: a table of rows against argv.
 *
 *     ctest -R test_cli
 */
#include "cli_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "base/string_build.h"

#define MAX_WORD 48 /* of an option's name in a sentence */

const char *const cli_formats[] = {"text", "csv", "json", "tex", NULL};
const char *const cli_map_names[] = {"ns_bf16_fused", "ns_bf16_reference",
                                     "ns_bf16_gram",  "ns_fp16_fused",
                                     "ns_fp16_gram",  "ns_fp32",
                                     "ns_fp64",       "exact",
                                     "power",         "soft",
                                     "none",          NULL};

static int positional(const cli_option *o)
{
    return o->kind == CLI_KIND_ARG || o->kind == CLI_KIND_ARGS;
}

/* ---- values ------------------------------------------------------------------------------------- */

polar_status cli_parse_int(int64_t *out, const char *what, const char *text, int64_t min, int64_t max)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int ok = end != text && !*end && !errno && v >= min && v <= max;
    PL_NEED(ok, POLAR_E_ARG, "%s wants a whole number from %lld to %lld, got '%s'", what, (long long)min,
            (long long)max, pl_text_shown(text).text);
    *out = v;
    return POLAR_OK;
}

polar_status cli_parse_double(double *out, const char *what, const char *text, double min, double max)
{
    char *end;
    double v = strtod(text, &end);
    int ok = end != text && !*end && isfinite(v) && v >= min && v <= max;
    PL_NEED(ok, POLAR_E_ARG, "%s wants a number from %g to %g, got '%s'", what, min, max,
            pl_text_shown(text).text);
    *out = v;
    return POLAR_OK;
}

static void append(char *out, size_t bytes, const char *separator, const char *word)
{
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used ? separator : "", word);
}

static polar_status parse_choice(int *out, const char *what, const char *text, const char *const *choices)
{
    char all[256] = "";
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(choices[i], text)) {
            *out = i;
            return POLAR_OK;
        }
        append(all, sizeof all, ", ", choices[i]);
    }
    return PL_FAIL(POLAR_E_ARG, "%s wants one of %s, got '%s'", what, all, pl_text_shown(text).text);
}

/* Puts text in the row's field. */
static polar_status store(void *out, const cli_option *o, const char *command, const char *text)
{
    char what[96];
    void *field = (char *)out + o->offset;
    snprintf(what, sizeof what, "%s: %s%s", command, positional(o) ? "" : "--", o->name);
    switch (o->kind) {
    case CLI_KIND_FLAG: *(int *)field = 1; return POLAR_OK;
    case CLI_KIND_INT: return cli_parse_int(field, what, text, (int64_t)o->min, (int64_t)o->max);
    case CLI_KIND_DOUBLE: return cli_parse_double(field, what, text, o->min, o->max);
    case CLI_KIND_CHOICE: return parse_choice(field, what, text, o->choices);
    case CLI_KIND_STRING:
    case CLI_KIND_ARG:
        PL_NEED(*text, POLAR_E_ARG, "%s is empty", what);
        *(const char **)field = text;
        return POLAR_OK;
    case CLI_KIND_STRINGS:
    case CLI_KIND_ARGS: {
        cli_list *list = field;
        PL_NEED(*text, POLAR_E_ARG, "%s is empty", what);
        PL_NEED(list->count < CLI_MAX_LIST, POLAR_E_ARG, "%s is given more than %d times", what,
                CLI_MAX_LIST);
        list->items[list->count++] = text;
        return POLAR_OK;
    }
    }
    return POLAR_OK;
}

/* ---- the command line --------------------------------------------------------------------------- */

static polar_status unknown_option(const cli_option *table, const char *command, const char *name)
{
    const char *known[64];
    int n = 0;
    for (const cli_option *o = table; o->name && n < 63; o++)
        if (!positional(o)) known[n++] = o->name;
    known[n] = NULL;
    const char *near = pl_nearest(name, known);
    if (near)
        return PL_FAIL(POLAR_E_ARG, "%s: no option '--%s' (did you mean --%s?)", command,
                       pl_text_shown(name).text, near);
    return PL_FAIL(POLAR_E_ARG, "%s: no option '--%s' (`polar %s --help` lists them)", command,
                   pl_text_shown(name).text, command);
}

/* argv[*i] begins with "--"; a value may be taken from the next word. */
static polar_status take_option(void *out, const cli_option *table, const char *command, int argc,
                                char *const *argv, int *i)
{
    char name[MAX_WORD + 1];
    const char *word = argv[*i] + 2;
    size_t stem = strcspn(word, "=");
    const char *value = word[stem] ? word + stem + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)(stem < sizeof name ? stem : sizeof name - 1), word);
    const cli_option *o = table;
    while (o->name && (positional(o) || strlen(o->name) != stem || strncmp(o->name, word, stem))) o++;
    PL_NEED(o->name || strcmp(name, "help"), POLAR_E_ARG, "%s: --help takes no value, got '%s'", command,
            pl_text_shown(value ? value : "").text);
    if (!o->name) return unknown_option(table, command, name);
    if (o->kind == CLI_KIND_FLAG) {
        PL_NEED(!value, POLAR_E_ARG, "%s: --%s takes no value, got '%s'", command, o->name,
                pl_text_shown(value).text);
        return store(out, o, command, "");
    }
    if (!value) {
        int there = *i + 1 < argc && strncmp(argv[*i + 1], "--", 2);
        PL_NEED(there, POLAR_E_ARG, "%s: --%s wants a value: --%s %s", command, o->name, o->name,
                o->value ? o->value : "VALUE");
        value = argv[++*i];
    }
    return store(out, o, command, value);
}

/* argv[*i] is "-o" or "-oVALUE". */
static polar_status take_letter(void *out, const cli_option *table, const char *command, int argc,
                                char *const *argv, int *i)
{
    const char *word = argv[*i] + 1;
    const cli_option *o = table;
    while (o->name && o->letter != *word) o++;
    PL_NEED(o->name || *word != 'h', POLAR_E_ARG, "%s: -h takes no value, got '%s'", command,
            pl_text_shown(word + 1).text);
    PL_NEED(o->name, POLAR_E_ARG, "%s: no option '-%c' (`polar %s --help` lists them)", command, *word,
            command);
    PL_NEED(!word[1] || o->kind != CLI_KIND_FLAG, POLAR_E_ARG, "%s: -%c takes no value, got '%s'", command,
            *word, pl_text_shown(word + 1).text);
    PL_NEED(word[1] != '=', POLAR_E_ARG, "%s: -%c takes its value without '=': -%c %s", command, *word, *word,
            pl_text_shown(word + 2).text);
    if (word[1]) return store(out, o, command, word + 1);
    PL_NEED(*i + 1 < argc, POLAR_E_ARG, "%s: -%c wants a value: -%c %s", command, *word, *word,
            o->value ? o->value : "VALUE");
    return store(out, o, command, argv[++*i]);
}

/* The n-th positional argument goes to the n-th such row; a list takes all the rest. */
static polar_status take_positional(void *out, const cli_option *table, const char *command, const char *word,
                                    int n)
{
    for (const cli_option *o = table; o->name; o++)
        if (positional(o) && (n-- == 0 || o->kind == CLI_KIND_ARGS)) return store(out, o, command, word);
    return PL_FAIL(POLAR_E_ARG, "%s: what is '%s' for? (`polar %s --help` tells the arguments)", command,
                   pl_text_shown(word).text, command);
}

static polar_status need_positional(const cli_option *table, const char *command, int n)
{
    for (const cli_option *o = table; o->name; o++)
        if (o->kind == CLI_KIND_ARG && n-- <= 0)
            PL_NEED(o->def || o->optional, POLAR_E_ARG,
                    "%s: %s is missing: %s (`polar %s --help` tells more)", command, o->name, o->help,
                    command);
    return POLAR_OK;
}

polar_status cli_options_parse(void *out, const cli_option *table, const char *command, int argc,
                               char *const *argv)
{
    int n = 0, only_positional = 0;
    for (const cli_option *o = table; o->name; o++)
        if (o->def) PL_TRY(store(out, o, command, o->def));
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (only_positional || word[0] != '-' || !word[1])
            PL_TRY(take_positional(out, table, command, word, n++));
        else if (!strcmp(word, "--")) only_positional = 1;
        else if (word[1] == '-') PL_TRY(take_option(out, table, command, argc, argv, &i));
        else PL_TRY(take_letter(out, table, command, argc, argv, &i));
    }
    return need_positional(table, command, n);
}

/* ---- help --------------------------------------------------------------------------------------- */

/* A line that ends a sentence, or is laid out by hand, stays one; others go on in the next. */
static int line_ends(const char *from, const char *at)
{
    return at == from || strchr(".:;)", at[-1]) || !at[1] || at[1] == '\n' || at[1] == ' ';
}

void cli_put_folded(FILE *out, const char *text, int begun, int indent)
{
    int column = begun;
    for (const char *at = text; *at;) {
        const size_t word = strcspn(at, " \n"), gap = strspn(at + word, " ");
        const char *next = at + word + gap;
        const int breaks = *next == '\n' && line_ends(text, at + word);
        fprintf(out, "%.*s", (int)word, at);
        column += (int)word;
        if (*next == '\n') next++;
        if (!*next) break;
        if (breaks) fputc('\n', out), column = 0;
        else if (column + 1 + (int)strcspn(next, " \n") > CLI_HELP_COLUMNS)
            fprintf(out, "\n%*s", indent, ""), column = indent;
        else {
            const int spaces = gap ? (int)gap : 1;
            fprintf(out, "%*s", spaces, "");
            column += spaces;
        }
        at = next;
    }
    fputc('\n', out);
}

static void describe(pl_string *s, const cli_option *o)
{
    char choices[256] = "";
    pl_string_add(s, "%s", o->help ? o->help : "");
    for (int i = 0; o->kind == CLI_KIND_CHOICE && o->choices[i]; i++)
        append(choices, sizeof choices, ", ", o->choices[i]);
    if (*choices) pl_string_add(s, ": %s", choices);
    if (o->kind == CLI_KIND_INT) pl_string_add(s, ", %lld to %lld", (long long)o->min, (long long)o->max);
    if (o->kind == CLI_KIND_DOUBLE) pl_string_add(s, ", %g to %g", o->min, o->max);
    if (o->kind == CLI_KIND_STRINGS) pl_string_add(s, " (may be given again)");
    if (o->def) pl_string_add(s, " (default %s)", o->def);
}

void cli_options_help(FILE *out, const cli_option *table)
{
    enum { LEFT = 23 };
    for (const cli_option *o = table; o->name; o++) {
        char left[64], *right = NULL;
        pl_string text = {0};
        if (o->letter)
            snprintf(left, sizeof left, "-%c, --%s%s%s", o->letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
        else
            snprintf(left, sizeof left, "%s%s%s%s", positional(o) ? "" : "--", o->name, o->value ? " " : "",
                     o->value ? o->value : "");
        describe(&text, o);
        const int begun = fprintf(out, "  %-20s ", left);
        if (pl_string_take(&right, &text, "a line of help") == POLAR_OK)
            cli_put_folded(out, right, begun, LEFT);
        pl_free(right);
    }
    fprintf(out, "  %-20s %s\n", "--help", "this text");
}
