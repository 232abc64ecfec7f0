/* spec_list.c -- see spec_list.h. */
#include "spec_list.h"

#include <string.h>

#include "base/json_read.h"

static polar_status read_one(spec_list *l, const char *path, int known, const cli_list *set)
{
    int k = l->count++;
    PL_TRY(pl_spec_read(&l->specs[k], path, l->schemas, known, set->items, set->count));
    PL_TRY(pl_plan_create(&l->plans[k], l->specs[k]));
    return pl_testbed_find(&l->testbeds[k], l->specs[k]->schema.name);
}

/* Of several specs a sentence says which, where it does not yet. */
static polar_status name_spec(polar_status st, const char *path)
{
    char why[PL_WHY_CHARS];
    snprintf(why, sizeof why, "%s", pl_fail_sentence());
    return strstr(why, path) ? st : PL_FAIL(st, "%s: %s", pl_text_shown(path).text, why);
}

polar_status spec_list_read(spec_list *l, const cli_list *files, const cli_list *set, const char *command)
{
    *l = (spec_list){0};
    int known = pl_testbed_schemas(l->schemas);
    PL_NEED(files->count, POLAR_E_ARG,
            "%s: SPEC is missing: a spec file, as under specs/ (`polar %s --help` tells more)", command,
            command);
    for (int i = 0; i < files->count; i++) {
        polar_status st = read_one(l, files->items[i], known, set);
        if (st != POLAR_OK) return files->count > 1 ? name_spec(st, files->items[i]) : st;
        for (int k = 0; k < i; k++)
            PL_NEED(strcmp(l->specs[k]->name, l->specs[i]->name), POLAR_E_ARG,
                    "%s: '%s' and '%s' are both the spec %s: give it once", command,
                    pl_text_shown(files->items[k]).text, pl_text_shown(files->items[i]).text,
                    l->specs[i]->name);
    }
    return POLAR_OK;
}

void spec_list_free(spec_list *l)
{
    for (int k = 0; k < l->count; k++) {
        pl_plan_destroy(l->plans[k]);
        pl_spec_destroy(l->specs[k]);
    }
    *l = (spec_list){0};
}
