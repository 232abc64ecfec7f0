/* testbed.c -- the testbeds of this build. */
#include "lab/run/testbed.h"

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"

#define ADDRESS(name) &name,

static const pl_testbed *const testbeds[] = {PL_TESTBEDS(ADDRESS)};

#define TESTBED_COUNT ((int)(sizeof testbeds / sizeof *testbeds))

_Static_assert(TESTBED_COUNT <= PL_TESTBED_MAX, "pl_testbed_schemas has no room");

polar_status pl_testbed_find(const pl_testbed **out, const char *name)
{
    char known[256] = "";
    *out = NULL;
    for (int i = 0; i < TESTBED_COUNT; i++) {
        if (!strcmp(testbeds[i]->schema->name, name)) {
            *out = testbeds[i];
            return POLAR_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", testbeds[i]->schema->name);
    }
    return PL_FAIL(POLAR_E_ARG, "no testbed '%s' (there are: %s)", pl_text_shown(name).text, known);
}

int pl_testbed_schemas(pl_schema out[PL_TESTBED_MAX])
{
    for (int i = 0; i < TESTBED_COUNT; i++) out[i] = *testbeds[i]->schema;
    return TESTBED_COUNT;
}
