/* map_table.h -- what `polar map --verbose` says of each mapped tensor. */
#ifndef POLAR_CLI_MAP_TABLE_H
#define POLAR_CLI_MAP_TABLE_H

#include "base/safetensors.h"
#include "report/table/table.h"

polar_status map_table_create(pl_table **out, const char *title); /* borrows title */
/* result: in mapped, in host memory */
polar_status map_table_add(pl_table *t, const pl_safetensors_entry *in, const polar_tensor *result);

#endif
