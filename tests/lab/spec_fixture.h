/* spec_fixture.h -- a toy testbed with a key of every type, and specs written to a temporary file. */
#ifndef POLAR_SPEC_FIXTURE_H
#define POLAR_SPEC_FIXTURE_H

#include "test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "lab/spec/plan.h"

static const char *const toy_rules[] = {"adamw", "muon", "polaradamw", NULL};
static const char *const toy_roundings[] = {"fused", "reference", NULL};

static inline int toy_has_map(const pl_config *c)
{
    return strcmp(pl_config_text(c, "optim.rule"), "adamw") != 0;
}

static inline void toy_beta1(char out[PL_VALUE_CHARS], const pl_config *c)
{
    snprintf(out, PL_VALUE_CHARS, "%s", !strcmp(pl_config_text(c, "optim.rule"), "muon") ? "0.95" : "0.9");
}

static inline polar_status toy_check(const pl_config *c)
{
    PL_NEED(pl_config_int(c, "model.layers") <= pl_config_int(c, "model.width"), POLAR_E_ARG,
            "more layers than channels");
    return POLAR_OK;
}

static const pl_key toy_keys[] = {
    {"model.width", PL_KEY_INT, "16", .min = 1, .max = 4096, .help = "channels"},
    {"model.layers", PL_KEY_INT, "3", .min = 1, .max = 64, .help = "layers"},
    {"optim.rule", PL_KEY_CHOICE, "muon", .choices = toy_rules, .help = "rule"},
    {"optim.lr", PL_KEY_REAL, "1e-3", .min = 0, .max = 10, .help = "rate"},
    {"optim.aux_lr", PL_KEY_REAL, "=optim.lr", .min = 0, .max = 10, .help = "rate of the aux route"},
    {"optim.beta1", PL_KEY_REAL, "the rule's", .derive = toy_beta1, .min = 0, .max = 1, .help = "momentum"},
    {"map.rounding", PL_KEY_CHOICE, "fused", .choices = toy_roundings, .applies = toy_has_map,
     .help = "rounding"},
    {"route.matrix", PL_KEY_TEXT, "layers.*", .help = "patterns"},
    {"train.clip", PL_KEY_BOOL, "false", .help = "clipping"},
};

static const pl_metric toy_results[] = {{.name = "loss"}, {.name = "test_top1"}, {0}};
static const pl_schema toy_schema = {.name = "toy",
                                     .version = 1,
                                     .metric = "loss",
                                     .results = toy_results,
                                     .keys = toy_keys,
                                     .key_count = (int)(sizeof toy_keys / sizeof *toy_keys),
                                     .check = toy_check};

static char spec_path[64] = "/tmp/polar_test_spec.XXXXXX";

/* Makes the file; its name is in spec_path. */
static inline void spec_file_begin(void)
{
    int fd = mkstemp(spec_path);
    if (fd < 0) exit(1);
    close(fd);
}

static inline void spec_file_end(void)
{
    unlink(spec_path);
}

/* A new file each time: a file system may put a file that is written over on the disk before it goes on. */
static inline void spec_write(const void *text, size_t n)
{
    unlink(spec_path);
    FILE *f = fopen(spec_path, "wb");
    if (!f || fwrite(text, 1, n, f) != n || fclose(f)) exit(1);
}

/* Text -> file -> spec -> plan. */
static inline polar_status spec_plan(pl_spec **spec, pl_plan **plan, const char *const *overrides, int n)
{
    *plan = NULL;
    PL_TRY(pl_spec_read(spec, spec_path, &toy_schema, 1, overrides, n));
    return pl_plan_create(plan, *spec);
}

#endif
