/* run_data.c -- a folder is a place (data.path), which is no part of a run's id; a synthetic set is the data
 * themselves (data.set). */
#include "run_data.h"

#include <string.h>

static polar_status add(cli_list *set, const char *assignment, const char *command)
{
    PL_NEED(set->count < CLI_MAX_LIST, POLAR_E_ARG, "%s: at most %d settings", command, CLI_MAX_LIST);
    set->items[set->count++] = assignment;
    return POLAR_OK;
}

static int is_set(const cli_list *set, const char *key)
{
    size_t n = strlen(key);
    for (int i = 0; i < set->count; i++)
        if (!strncmp(set->items[i], key, n) && set->items[i][n] == '=') return 1;
    return 0;
}

/* The last part of a path, without slashes behind it. */
static void last_name(char *out, size_t bytes, const char *path)
{
    size_t end = strlen(path), begin;
    while (end > 0 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';) begin--;
    snprintf(out, bytes, "%.*s", (int)(end - begin), path + begin);
}

polar_status run_data_settings(cli_list *set, run_data *d, int naming, const char *command)
{
    if (d->skip_bad) PL_TRY(add(set, "data.skip_bad=true", command));
    if (!d->data) return POLAR_OK;
    int synth = !strncmp(d->data, "synth:", 6),
        fits = snprintf(d->path, sizeof d->path, "data.%s=%s", synth ? "set" : "path", d->data) <
               (int)sizeof d->path;
    PL_NEED(*d->data && fits, POLAR_E_ARG,
            "%s: --data wants the folder that holds train/ and val/, or a pack", command);
    PL_NEED(!synth || !is_set(set, "data.set"), POLAR_E_ARG,
            "%s: --data synth: and --set data.set: both say which set it is", command);
    if (!synth && naming && !is_set(set, "data.set")) {
        char name[256];
        last_name(name, sizeof name, d->data);
        snprintf(d->name, sizeof d->name, "data.set=%s", name);
        if (*name && strcmp(name, ".") && strcmp(name, "..")) PL_TRY(add(set, d->name, command));
    }
    return add(set, d->path, command);
}
