/* bench_pictures.h -- `polar bench input`: its own tables, of one core or of a device. */
#ifndef POLAR_CLI_BENCH_PICTURES_H
#define POLAR_CLI_BENCH_PICTURES_H

#include "cli.h"

typedef struct {
    const char *device; /* "cpu": one core, without a device's ops */
    int64_t size, patch, batch;
    int format;
} bench_pictures_args;

/* without sets: a folder of textures and its pack, made and removed */
polar_status bench_pictures(cli_context *ctx, const cli_list *sets, const bench_pictures_args *a);

#endif
