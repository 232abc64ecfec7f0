/* test_spec_tree.c -- the specs of this tree and the tables of keys in docs/specs.md: every file is a plan,
 * and runs that several specs ask for are the same. */
#include "spec_fixture.h"

#include <dirent.h>

#include "lab/run/testbed.h"

/* ---- the specs of this tree --------------------------------------------------------------------- */

static int64_t plan_file(const char *path, int64_t *distinct)
{
    pl_spec *s;
    pl_plan *p;
    pl_schema schemas[PL_TESTBED_MAX];
    TEST_TRY(pl_spec_read(&s, path, schemas, pl_testbed_schemas(schemas), NULL, 0));
    TEST_TRY(pl_plan_create(&p, s));
    int64_t count = p->count;
    const char *base = strrchr(path, '/') + 1;
    int named = strlen(base) == strlen(s->name) + 5 && !strncmp(base, s->name, strlen(s->name));
    int paper = !strstr(path, "/paper/");
    for (int64_t i = 0; i < count && !paper; i++)
        paper = strcmp(pl_config_text(p->runs[i].config, "map.rounding"), "reference") != 0;
    if (strstr(path, "/paper/")) test_true("the paper's rounding throughout", !paper, "%s", base);
    test_true("a spec of this tree", named, "%s: %d cells x %lld seeds x %d arms = %lld runs", base,
              p->cell_count, (long long)s->seed_count, s->arm_count, (long long)count);
    *distinct = p->distinct;
    pl_plan_destroy(p);
    pl_spec_destroy(s);
    return count;
}

static void test_tree(void)
{
    static const struct {
        const char *name;
        int64_t runs;
    } known[] = {
        {"paper/so3_capacity", 4 * 3 * 100},
        {"paper/so3_lr_sweep", 3 * 3 * 4},
        {"paper/so3_weight_decay", 2 * 7 * 4},
        {"paper/so3_timing", 4 * 3 * 3},
        {"open/so3_factorial", 4 * 6 * 100},
        {"open/so3_schur_only", 2 * 5 * 20},
        {"open/so3_rounding", 4 * 6 * 100},
        {"open/so3_rotation", 4 * 8 * 100},
        {"open/so3_noise", 2 * 10 * 40},
        {"open/so3_rates", 15 * 5 * 20},
        {"open/so3_atlas", 3 * 27 * 8},
        {"open/so3_choices", 3 * 63 * 20},
        {"open/so3_choice_pairs", 3 * 51 * 20},
        {"open/so3_gauge", 4 * 5 * 4},
        {"open/so3_spectrum_power", 12 * 4 * 100},
        {"open/so3_missing_cell", 21 * 13 * 100},
        {"open/so3_refresh", 2 * 8 * 28},
        {"open/so3_length", 12 * 3 * 20},
        {"demo/so3_small", 2 * 3 * 4},
        {"demo/so3_tiny", 2 * 3 * 4},
        {"paper/deit_minimal_100ep", 3 * 4},
        {"paper/deit_matched_aug_100ep", 3},
        {"paper/deit_style_300ep", 3 * 4},
        {"paper/deit_lr_scan", 12},
        {"paper/deit_adamw_lr_audit", 3},
        {"paper/deit_timing", 3},
        {"open/deit_muon_wd", 4 * 4},
        {"open/deit_qkv_split", 4},
        {"open/deit_rounding", 6 * 8},
        {"open/deit_factorial", 6 * 4},
        {"real/tiny_lr_scan", 16},
        {"real/tiny_minimal_100ep", 3 * 8},
        {"real/tiny_s1_100ep", 3},
        {"real/tiny_adamw_lr_audit", 3},
        {"real/tiny_s2_300ep", 3 * 2},
        {"real/tiny_factorial", 6 * 4},
        {"real/tiny_best_rates", 4 * 4},
        {"real/tiny_rules", 6 * 4},
        {"real/tiny_rules_scan", 6},
        {"real/tiny_muon_wd", 4 * 4},
        {"real/tiny_qkv_split", 4 * 4},
        {"real/tiny_rounding", 6 * 4},
        {"real/tiny_rule_augmentation", 3 * 4},
        {"real/cifar_lr_scan", 24},
        {"real/cifar_minimal_30ep", 6 * 8},
        {"real/cifar_factorial", 4 * 8},
        {"real/cifar_longer", 5 * 8},
        {"real/cifar_rules", 48},
        {"real/cifar_rules_scan", 11},
        {"real/cifar_decay", 3 * 8},
        {"real/cifar_decay_scan", 13},
        {"demo/deit_small", 3 * 2},
        {"demo/deit_tiny", 2},
    };
    static const char *const folders[] = {"paper", "open", "real", "demo"};
    char path[4096];
    int64_t distinct, wrong = 0, files = 0;
    int n = (int)(sizeof known / sizeof *known);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/specs/%s.yaml", SOURCE_DIR, known[i].name);
        wrong += plan_file(path, &distinct) != known[i].runs || distinct != known[i].runs;
    }
    test_exact("runs of each, no two alike", wrong);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/specs/%s", SOURCE_DIR, folders[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) files += e->d_name[0] != '.';
        if (d) closedir(d);
    }
    test_true("every file under specs/ is in this list", files == n, "%lld files", (long long)files);
}

/* Runs of these specs, and how many of them are different. */
static int64_t count_runs(int64_t *different, const char *const *names, size_t n)
{
    static char ids[128][PL_RUN_ID_CHARS];
    int64_t count = 0, runs = 0;
    for (size_t i = 0; i < n; i++) {
        char path[4096];
        pl_schema schemas[PL_TESTBED_MAX];
        pl_spec *s;
        pl_plan *p;
        snprintf(path, sizeof path, "%s/specs/%s.yaml", SOURCE_DIR, names[i]);
        TEST_TRY(pl_spec_read(&s, path, schemas, pl_testbed_schemas(schemas), NULL, 0));
        TEST_TRY(pl_plan_create(&p, s));
        for (int64_t k = 0; k < p->count; k++, runs++) {
            int64_t at = 0;
            while (at < count && strcmp(ids[at], p->runs[k].id)) at++;
            if (at == count && count < 128) memcpy(ids[count++], p->runs[k].id, PL_RUN_ID_CHARS);
        }
        pl_plan_destroy(p);
        pl_spec_destroy(s);
    }
    *different = count;
    return runs;
}

/* Runs that several specs ask for are the same runs: the winners of the scan, S1's AdamW, the arms that the
 * open questions compare with. */
static void test_shared(void)
{
    static const char *const paper[] = {
        "paper/deit_minimal_100ep", "paper/deit_matched_aug_100ep", "paper/deit_style_300ep",
        "paper/deit_lr_scan",       "paper/deit_adamw_lr_audit",    "paper/deit_timing",
        "open/deit_muon_wd",        "open/deit_qkv_split",          "open/deit_factorial"};
    static const char *const real[] = {
        "real/tiny_minimal_100ep",     "real/tiny_lr_scan",    "real/tiny_s1_100ep",
        "real/tiny_adamw_lr_audit",    "real/tiny_s2_300ep",   "real/tiny_muon_wd",
        "real/tiny_factorial",         "real/tiny_qkv_split",  "real/tiny_rounding",
        "real/tiny_rule_augmentation", "real/tiny_best_rates", "real/tiny_rules",
        "real/tiny_rules_scan"};
    int64_t different, runs = count_runs(&different, paper, sizeof paper / sizeof *paper);
    /* of the scan 3 are known, of AdamW's rates 1, of the decays 8, of qkv 2, of the factorial 4 + 4 */
    test_true("the DeiT specs share runs", runs == 89 && different == 89 - 22,
              "%lld runs, %lld of them different", (long long)runs, (long long)different);
    runs = count_runs(&different, real, sizeof real / sizeof *real);
    /* of the scan 3 + 1, of AdamW's rates 1, of the decays 8, of the factorial 4 + 4, of qkv 8, of the
     * roundings 8, of the augmentations 3 + 3, of the best rates 8 + 2, of
     * the rules 12, of their rates 3 */
    test_true("the specs of Tiny-ImageNet share runs", runs == 190 && different == 190 - 68,
              "%lld runs, %lld of them different", (long long)runs, (long long)different);
}

/* Rows of the section "## Keys of <testbed>" of docs/specs.md that are not the code's: those missing are
 * printed, to be pasted there. */
static int64_t check_section(const char *text, const pl_schema *schema)
{
    char row[2048], range[PL_WHY_CHARS];
    int64_t wrong = 0, rows = 0;
    snprintf(row, sizeof row, "\n## Keys of %s\n", schema->name);
    const char *begin = strstr(text, row), *end = begin ? strstr(begin + 4, "\n## ") : NULL;
    char *section = begin ? strndup(begin, end ? (size_t)(end + 1 - begin) : strlen(begin)) : strdup("");
    for (int i = 0; i < schema->key_count; i++) {
        const pl_key *k = &schema->keys[i];
        pl_key_range(range, k);
        snprintf(row, sizeof row, "\n| `%s` | %s | %s | %s | %s |\n", k->name, pl_key_type_name(k->type),
                 k->def, range, k->help);
        if (strstr(section, row)) continue;
        wrong++;
        printf("docs/specs.md lacks %s", row + 1);
    }
    for (const char *p = section; (p = strstr(p, "\n| `")); p++) rows++;
    free(section);
    return wrong + (rows != schema->key_count);
}

static void test_docs(void)
{
    pl_schema schemas[PL_TESTBED_MAX];
    char path[4096], *text = calloc(1, 200000);
    snprintf(path, sizeof path, "%s/docs/specs.md", SOURCE_DIR);
    FILE *f = fopen(path, "r");
    if (f && fread(text, 1, 199999, f) == 0) text[0] = 0;
    if (f) fclose(f);
    for (int i = 0, n = pl_testbed_schemas(schemas); i < n; i++)
        test_exact("docs/specs.md lists the keys", check_section(text, &schemas[i]));
    free(text);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    test_tree();
    test_shared();
    test_docs();
    return test_end();
}
