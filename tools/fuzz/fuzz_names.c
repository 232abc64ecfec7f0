/* fuzz_names.c -- any text as the name of a device, number format, map, rule, scale, table, communicator,
 * picture set or augmentation, and as patterns: an accepted name names the same again, a pattern fits what
 * its definition says. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/augment/rand_augment.h"
#include "data/set/image_set.h"
#include "optim/optim_impl.h"
#include "polar/polar.h"

void fuzz_begin(void)
{
    static const char *const names[] = {"ref",
                                        "guard:on=cpu,isa=scalar,threads=1",
                                        "cpu:isa=scalar,threads=2,spin=50",
                                        "cpu:threads=2,team=openmp",
                                        "cuda:0",
                                        "bf16",
                                        "float32",
                                        "ns_bf16_fused",
                                        "polaradamw",
                                        "paper",
                                        "jordan",
                                        "self",

                                        "synth:classes=3,train=5,test=3,size=12,seed=1,noise=3",
                                        "rand-m9-mstd0.5-inc1",
                                        "layers.*.W,b?,*\1layers.0.W"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[] = {(char)('a' + i), 0};
        fuzz_seed(name, names[i], strlen(names[i]));
    }
}

static void try_device(const char *name)
{
    polar_device *dev, *same;
    if (polar_device_open(&dev, name) != POLAR_OK) return;
    need(polar_device_open(&same, polar_device_name(dev)) == POLAR_OK);
    need(!strcmp(polar_device_name(dev), polar_device_name(same)));
    polar_device_close(same);
    polar_device_close(dev);
}

static void try_optim(const char *name)
{
    polar_rule rule;
    polar_optim_opts opts;
    polar_scale scale;
    polar_map_opts map;
    polar_dtype dtype, again;
    polar_coef coef[POLAR_MAX_STEPS];
    need((polar_rule_parse(&rule, name) == POLAR_OK) == (polar_optim_opts_parse(&opts, name) == POLAR_OK));
    (void)polar_scale_parse(&scale, name);
    (void)polar_map_opts_parse(&map, name);
    (void)polar_coef_table(coef, POLAR_MAX_STEPS, name);
    if (polar_dtype_parse(&dtype, name) == POLAR_OK)
        need(polar_dtype_parse(&again, polar_dtype_name(dtype)) == POLAR_OK && again == dtype);
}

static void try_data(const char *name)
{
    pl_rand_augment ra;
    pl_image_set *set;
    if (pl_rand_augment_parse(&ra, name) == POLAR_OK)
        need(ra.magnitude >= 0 && ra.magnitude <= 10 && ra.layers >= 0);
    if (strncmp(name, "synth:", 6) || pl_image_set_open(&set, name) != POLAR_OK) return;
    need(pl_image_set_count(set, PL_IMAGES_TRAIN) > 0 && pl_image_set_count(set, PL_IMAGES_TEST) > 0);
    pl_image_set_close(set);
}

/* The definition, by recursion; patterns end at a comma. */
static int fits(const char *p, const char *s)
{
    if (*p == '*') return fits(p + 1, s) || (*s && fits(p, s + 1));
    if (!*p || *p == ',') return !*s;
    return *s && (*p == '?' || *p == *s) && fits(p + 1, s + 1);
}

static void try_pattern(const char *patterns, const char *name)
{
    int one = 0, stars = 0;
    for (const char *p = patterns; *p; p++) stars += *p == '*';
    int found = pl_pattern_match(patterns, name);
    if (stars > 4 || strlen(name) > 24) return; /* by recursion it takes its time */
    for (const char *p = patterns; *p && !one; p += *p == ',') {
        one = *p != ',' && fits(p, name);
        p += strcspn(p, ",");
    }
    need(found == one);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    char *name = fuzz_part(data, size, 0), *other = fuzz_part(data, size, 1);
    polar_comm *comm;
    if (other) try_pattern(name, other);
    else {
        try_device(name);
        try_optim(name);
        try_data(name);
        /* MPI is not ours to fuzz: it would be loaded and started */
        if (strncmp(name, "mpi", 3) && polar_comm_open(&comm, name) == POLAR_OK) polar_comm_close(comm);
    }
    free(name);
    free(other);
}
