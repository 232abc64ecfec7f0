/* run_table.h -- the table of `polar run`: what came out, by cell and arm.
 *
 * Of several plans text and TeX have a table each, headed by the spec's name; CSV and JSON are one table with
 * the columns `spec` and `metric` in front.
 */
#ifndef POLAR_CLI_RUN_TABLE_H
#define POLAR_CLI_RUN_TABLE_H

#include "cli.h"
#include "lab/spec/plan.h"
#include "report/table/table.h"

/* `store`: the file */
polar_status run_table_print(const cli_context *ctx, pl_table_format format, const char *store,
                             pl_plan *const *plans, int count);

#endif
