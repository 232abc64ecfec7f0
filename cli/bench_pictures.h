/* bench_pictures.h -- `polar bench input`: its own table, no device. */
#ifndef POLAR_CLI_BENCH_PICTURES_H
#define POLAR_CLI_BENCH_PICTURES_H

#include "cli.h"

/* without sets: a folder of textures and its pack, made and removed */
polar_status bench_pictures(cli_context *ctx, const cli_list *sets, int64_t size, int format);

#endif
