/* data_subset.c -- `polar data subset`: which classes a seed chooses, and a folder of links to them. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/set/class_subset.h"
#include "data/set/image_folder.h"
#include "data/set/image_tree.h"
#include "data_work.h"
#include "report/table/table.h"

#define MAX_SEEDS 16

typedef struct subset_args {
    const char *dir, *out;
    cli_list seeds;
    int64_t classes, of;
    int format;
} subset_args;

static const cli_option options[] = {
    {"DIR", CLI_ARG(subset_args, dir), .optional = 1,
     .help = "the folder that holds train/ and val/; without it classes are numbers below --of"},
    {"classes", CLI_INT(subset_args, classes, 1, 1000000), .value = "N", .def = "100", .help = "how many"},
    {"seed", CLI_STRINGS(subset_args, seeds), .value = "S",
     .help = "42 if none is given; with several the table shows how many classes they share"},
    {"of", CLI_INT(subset_args, of, 1, 1000000), .value = "N",
     .help = "classes there are, without DIR; ImageNet's 1000 if not given"},
    {"output", CLI_STRING(subset_args, out), .letter = 'o', .value = "OUT",
     .help = "a new folder of links to the chosen classes of DIR"},
    {"format", CLI_CHOICE(subset_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the table"},
    {0},
};

typedef struct choice {
    uint64_t seed;
    int64_t *classes; /* ascending */
} choice;

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t shared(const choice *a, const choice *b, int64_t n)
{
    int64_t m = 0;
    for (int64_t i = 0, j = 0; i < n && j < n;) {
        if (a->classes[i] == b->classes[j]) m++, i++, j++;
        else if (a->classes[i] < b->classes[j]) i++;
        else j++;
    }
    return m;
}

static polar_status print_overlap(cli_context *ctx, const subset_args *a, const choice *c, int n)
{
    char names[MAX_SEEDS][32];
    pl_table_column columns[MAX_SEEDS + 1] = {{"seed", "seed", NULL, PL_CELL_TEXT, 0}};
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%llu", (unsigned long long)c[i].seed);
        columns[i + 1] = (pl_table_column){names[i], names[i], "classes shared with", PL_CELL_INTEGER, 0};
    }
    pl_table *t;
    PL_TRY(pl_table_create(&t, "Classes that two seeds share", columns, n + 1));
    for (int i = 0; i < n; i++) {
        pl_table_row(t);
        pl_table_text(t, names[i]);
        for (int j = 0; j < n; j++) pl_table_integer(t, shared(&c[i], &c[j], a->classes));
    }
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    return st;
}

static polar_status print_classes(cli_context *ctx, const subset_args *a, const choice *c,
                                  const pl_image_folder *f, int64_t of)
{
    static const pl_table_column columns[] = {{"label", "label", NULL, PL_CELL_INTEGER, 0},
                                              {"number", "number", NULL, PL_CELL_INTEGER, 0},
                                              {"class", "class", NULL, PL_CELL_TEXT, 0}};
    char title[96];
    pl_table *t;
    snprintf(title, sizeof title, "%lld of %lld classes, seed %llu", (long long)a->classes, (long long)of,
             (unsigned long long)c->seed);
    PL_TRY(pl_table_create(&t, title, columns, f ? 3 : 2));
    for (int64_t i = 0; i < a->classes; i++) {
        pl_table_row(t);
        pl_table_integer(t, i);
        pl_table_integer(t, c->classes[i]);
        if (f) pl_table_text(t, pl_image_folder_class(f, c->classes[i]));
    }
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    return st;
}

/* `name` of the tree leads to `to` of the set. */
static polar_status link_one(const pl_image_tree *tree, const char *root, const char *to, const char *name)
{
    char from[PATH_MAX + 1024], at[PL_TREE_PATH + 1024];
    int fits = snprintf(from, sizeof from, "%s/%s", root, to) < (int)sizeof from &&
               snprintf(at, sizeof at, "%s/%s", tree->part, name) < (int)sizeof at;
    PL_NEED(fits, POLAR_E_ARG, "the name '%s' is too long", name);
    PL_NEED(symlink(from, at) == 0, POLAR_E_IO, "link '%s': %s", at, strerror(errno));
    return POLAR_OK;
}

/* A class of a heap: its pictures one by one. */
static polar_status link_pictures(const pl_image_tree *tree, const pl_image_folder *f, int64_t label,
                                  const char *folder, const char *root)
{
    PL_TRY(pl_image_tree_folder(tree, folder));
    for (int64_t i = 0; i < f->count[PL_IMAGES_TEST]; i++) {
        const pl_image_item *it = &f->items[PL_IMAGES_TEST][i];
        const char *picture = pl_image_folder_name(f, PL_IMAGES_TEST, i);
        char at[1024];
        if (it->label != label) continue;
        PL_NEED(snprintf(at, sizeof at, "%s%s", folder, picture + it->folder) < (int)sizeof at, POLAR_E_ARG,
                "the name '%s' is too long", picture);
        PL_TRY(link_one(tree, root, picture, at));
    }
    return POLAR_OK;
}

static polar_status link_classes(const pl_image_tree *tree, const pl_image_folder *f, const choice *c,
                                 int64_t n, const char *root)
{
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) {
        PL_TRY(pl_image_tree_folder(tree, f->split_name[s]));
        for (int64_t i = 0; i < n; i++) {
            char name[1024];
            const char *class = pl_image_folder_class(f, c->classes[i]);
            PL_NEED(snprintf(name, sizeof name, "%s/%s", f->split_name[s], class) < (int)sizeof name,
                    POLAR_E_ARG, "the name of class '%s' is too long", class);
            if (s == PL_IMAGES_TEST && f->listed) PL_TRY(link_pictures(tree, f, c->classes[i], name, root));
            else PL_TRY(link_one(tree, root, name, name));
        }
    }
    return POLAR_OK;
}

static polar_status make_folder(cli_context *ctx, const subset_args *a, const choice *c,
                                const pl_image_folder *f)
{
    char root[PATH_MAX];
    pl_image_tree tree;
    PL_NEED(realpath(a->dir, root), POLAR_E_IO, "'%s': %s", a->dir, strerror(errno));
    PL_TRY(pl_image_tree_begin(&tree, a->out));
    PL_TRY(pl_image_tree_end(&tree, link_classes(&tree, f, c, a->classes, root)));
    fprintf(ctx->log, "%s: links to %lld classes of %s\n", a->out, (long long)a->classes, a->dir);
    return POLAR_OK;
}

static polar_status work(cli_context *ctx, const subset_args *a, const pl_image_folder *f, choice *c)
{
    int n = a->seeds.count ? a->seeds.count : 1;
    PL_NEED(n <= MAX_SEEDS, POLAR_E_ARG, "data subset: at most %d seeds, got %d", MAX_SEEDS, n);
    PL_NEED(!f || !a->of, POLAR_E_ARG, "data subset: --of and DIR exclude each other: '%s' has %lld classes",
            a->dir, (long long)f->classes);
    int64_t of = f ? f->classes : a->of ? a->of : 1000;
    PL_NEED(!a->out || (f && n == 1), POLAR_E_ARG, "data subset: -o wants DIR and one seed");
    for (int i = 0; i < n; i++) {
        PL_TRY(data_parse_seed(&c[i].seed, a->seeds.count ? a->seeds.items[i] : "42"));
        PL_TRY(pl_class_subset(&c[i].classes, of, a->classes, c[i].seed));
        qsort(c[i].classes, (size_t)a->classes, sizeof *c[i].classes, compare);
    }
    if (a->out) PL_TRY(make_folder(ctx, a, c, f));
    return n > 1 ? print_overlap(ctx, a, c, n) : print_classes(ctx, a, c, f, of);
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    subset_args a = {0};
    choice c[MAX_SEEDS] = {{0}};
    pl_image_folder *f = NULL;
    PL_TRY(cli_options_parse(&a, options, "data subset", argc, argv));
    polar_status st = a.dir ? pl_image_folder_open(&f, a.dir) : POLAR_OK;
    if (st == POLAR_OK) st = work(ctx, &a, f, c);
    for (int i = 0; i < MAX_SEEDS; i++) pl_free(c[i].classes);
    pl_image_folder_close(f);
    return st;
}

const cli_command cli_data_subset = {
    .name = "data subset",
    .summary = "choose classes by a seed, as the paper did",
    .usage = "[DIR] [options]",
    .options = options,
    .about = "The classes are Python's random.Random(SEED).sample(range(M), N) over the M classes of DIR in "
             "the order of their\n"
             "names, which is how the paper chose its 100 of ImageNet's 1000. Labels follow the order of "
             "names again.\n",
    .examples = "  polar data subset imagenet --classes 100 --seed 42 -o imagenet100_s42\n"
                "  polar data subset --classes 100 --seed 42 --seed 7 --seed 123 --seed 2024\n",
    .run = run,
};
