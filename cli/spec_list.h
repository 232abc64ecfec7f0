/* spec_list.h -- the specs of `polar run` and `polar plan`, in the order given, with their plans.
 *
 *     spec_list l;
 *     polar_status st = spec_list_read(&l, &a.specs, &a.set, "run");
 *     ...                                        // l.plans[0] to l.plans[l.count - 1]
 *     spec_list_free(&l);                        // also after a failure
 *
 * Settings hold for all of them. A complaint names the file; two files of one name are refused, because a
 * store knows a spec by its name.
 */
#ifndef POLAR_CLI_SPEC_LIST_H
#define POLAR_CLI_SPEC_LIST_H

#include "cli.h"
#include "lab/run/testbed.h"
#include "lab/spec/plan.h"

typedef struct spec_list {
    pl_schema schemas[PL_TESTBED_MAX];
    int count;
    pl_spec *specs[CLI_MAX_LIST];
    pl_plan *plans[CLI_MAX_LIST];
    const pl_testbed *testbeds[CLI_MAX_LIST];
} spec_list;

polar_status spec_list_read(spec_list *l, const cli_list *files, const cli_list *set, const char *command);
void spec_list_free(spec_list *l);

#endif
