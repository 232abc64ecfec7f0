/* sound_store.h -- a store to read, of which some runs may be damaged: they count as not done and are named
 * once on stderr. */
#ifndef POLAR_CLI_SOUND_STORE_H
#define POLAR_CLI_SOUND_STORE_H

#include "cli.h"
#include "store/store.h"

polar_status sound_store_open(pl_store **out, const cli_context *ctx, const char *path);

#endif
