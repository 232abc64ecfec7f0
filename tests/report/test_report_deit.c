/* test_report_deit.c -- reports of a made-up DeiT store: table 1, lifts, crossover and overtaking epochs,
 * seconds per epoch with the paper beside them; higher is better everywhere; both trajectory figures; results
 * that are not defined; memory that runs out.
 */
#include <float.h>

#include "base/alloc.h"
#include "fixtures/store_faults.h"
#include "report/table/compare_tables.h"
#include "report/findings.h"
#include "report/table/section_tables.h"
#include "report/table/run_tables.h"
#include "report_fixture.h"

#define ULPS (4 * DBL_EPSILON * 128) /* a few units in the last place of numbers below 128 */

/* ---- curves that end near the paper's values ---- */

static const int64_t seeds[] = {42, 7, 123, 2024};
static const double minimal_end[3][4] = {
    {63.08, 63.73, 64.56, 64.49}, {71.13, 72.17, 71.53, 71.31}, {73.11, 73.37, 73.75, 73.65}};
static const double style_end[3][4] = {
    {79.80, 79.95, 79.42, 80.75}, {83.72, 83.82, 84.97, 85.14}, {85.03, 85.42, 86.10, 86.56}};
static const double matched_end[3] = {66.27, 79.07, 80.67};

static double wobble(int seed, int arm, int epoch)
{
    return sin(1.7 * epoch + 3 * seed + 5 * arm) + sin(0.37 * epoch + seed);
}

static double minimal(int seed, int arm, int e)
{
    double x = e / 100.0;
    return minimal_end[arm][seed] * (1 - 0.96 * exp(-7 * x)) + 0.6 * (1 - x) * wobble(seed, arm, e);
}

static double matched(int seed, int arm, int e)
{
    double x = e / 100.0;
    return matched_end[arm] * (1 - exp(-2.8 * x)) / (1 - exp(-2.8)) +
           0.5 * (1 - x) * wobble(seed, arm, e + 9);
}

static double style(int seed, int arm, int e) /* PolarAdamW is behind Muon until late */
{
    double x = e / 300.0, muon = style_end[1][seed] * (1 - 0.97 * exp(-6 * x));
    if (arm == 2)
        return muon + (style_end[2][seed] - style_end[1][seed]) * (x - 0.75) / 0.25 +
               0.8 * (1 - x) * wobble(seed, 2, e);
    return (arm ? muon : style_end[0][seed] * (1 - 0.98 * exp(-4 * x))) +
           0.8 * (1 - x) * wobble(seed, arm, e);
}

static double flat(int seed, int arm, int e)
{
    return 5.0 * arm + e + seed;
}

static double there(int cell, int seed, int arm)
{
    (void)cell, (void)seed, (void)arm;
    return 0;
}

static double one_diverged(int cell, int seed, int arm)
{
    (void)cell;
    return seed == 1 && arm == 1 ? NAN : 0;
}

#define THREE .cells = {"all"}, .arms = {"adamw", "muon", "polaradamw"}, .n_cells = 1, .n_arms = 3

static const fake_plan minimal_plan = {
    .spec = "deit_minimal_100ep", THREE, .n_seeds = 4, .seeds = seeds, .epochs = 100, .accuracy = minimal};
static const fake_plan matched_plan = {.spec = "deit_matched_aug_100ep",
                                       THREE,
                                       .n_seeds = 1,
                                       .seeds = seeds,
                                       .epochs = 100,
                                       .accuracy = matched};
static const fake_plan style_plan = {.spec = "deit_style_300ep",
                                     THREE,
                                     .n_seeds = 4,
                                     .seeds = seeds,
                                     .epochs = 300,
                                     .accuracy = style,
                                     .seconds = 160};

/* ---- since when: by hand ---- */

static void ahead_by_hand(void)
{
    static const double a[] = {1, 3, 2, 4, 5}, b[] = {2, 2, 2, 3, 3};
    test_true("ahead since",
              PART(pl_ahead_since(a, b, 5, 1) == 4) && PART(pl_ahead_since(a, b, 2, 1) == 2) &&
                  PART(pl_ahead_since(a, b, 3, 1) == 0) && PART(pl_ahead_since(a + 3, b, 2, 1) == 1),
              "equal is not ahead; 0: not at the end");
    test_true("ahead since, lower is better",
              pl_ahead_since(b, a, 5, 0) == 4 && pl_ahead_since(a, b, 5, 0) == 0 &&
                  pl_ahead_since(a, b, 0, 0) == 0,
              "an error falls");
}

/* The definition itself: the least e after which no epoch is behind. curve: mean over n seeds. */
static int64_t brute_since(double (*x)(int, int, int), int x_arm, double (*y)(int, int, int), int y_arm,
                           int first_seed, int n, int epochs)
{
    for (int64_t from = 1; from <= epochs; from++) {
        int ahead = 1;
        for (int e = (int)from; e <= epochs; e++) {
            double gap = 0;
            for (int k = first_seed; k < first_seed + n; k++) gap += x(k, x_arm, e) - y(k, y_arm, e);
            ahead = ahead && gap > 0;
        }
        if (ahead) return from;
    }
    return 0;
}

/* ---- the tables ---- */

static char *table(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "out/tables/%s.csv", name);
    char *text = text_of(at(path));
    test_true("a table", text != NULL, "%s", path);
    return text;
}

static void check_table1(void)
{
    char *csv = table("deit_table1_seeds");
    static const char *const rows[] = {"all,42,", "all,7,", "all,123,", "all,2024,"};
    double worst = 0, worst_paper = 0, mean[3] = {0};
    for (int k = 0; k < 4; k++)
        for (int r = 0; r < 3; r++) {
            mean[r] += fake_l10(&style_plan, k, r) / 4;
            worst = fmax(worst, fabs(csv_number(csv, rows[k], 2 + r) - fake_l10(&minimal_plan, k, r)));
            worst = fmax(worst, fabs(csv_number(csv, rows[k], 10 + r) - fake_l10(&style_plan, k, r)));
            worst_paper = fmax(worst_paper, fabs(csv_number(csv, rows[k], 6 + r) - minimal_end[r][k]));
            worst_paper = fmax(worst_paper, fabs(csv_number(csv, rows[k], 14 + r) - style_end[r][k]));
        }
    test_exact("table 1: every value to the last digit", worst != 0);
    test_exact("table 1: the paper's", worst_paper != 0);
    test_bound(
        "table 1: P - M of a seed",
        fabs(csv_number(csv, "all,7,", 5) - (fake_l10(&minimal_plan, 1, 2) - fake_l10(&minimal_plan, 1, 1))),
        0, "the same subtraction");
    for (int r = 0; r < 3; r++)
        test_bound("table 1: means", fabs(csv_number(csv, "all,mean,", 10 + r) - mean[r]), ULPS,
                   "a sum of four, in another order");
    test_bound("table 1: mean P - M", fabs(csv_number(csv, "all,mean,", 13) - (mean[2] - mean[1])), 2 * ULPS,
               "mean of differences, difference of means");
    test_true(
        "table 1: the paper's means",
        PART(csv_number(csv, "all,mean,", 6) == 63.97) && PART(csv_number(csv, "all,mean,", 8) == 73.47) &&
            PART(csv_number(csv, "all,mean,", 9) == 1.93) &&
            PART(csv_number(csv, "all,mean,", 16) == 85.78) && PART(csv_number(csv, "all,mean,", 17) == 1.37),
        "63.97, 73.47, +1.93; 85.78, +1.37");
    test_true("table 1: keys are unique",
              !strncmp(csv, "cell,seed,deit_minimal_100ep_adamw,", 35) &&
                  strstr(csv, ",published_deit_style_300ep_polaradamw_minus_muon\n"),
              "%.60s", csv);
    free(csv);
    csv = table("deit_style_300ep_seeds"); /* audit S2's own table: three arms, P - M, then the paper's */
    test_true("S2: the paper's differences",
              PART(fabs(csv_number(csv, "all,42,", 9) - 1.31) < ULPS) &&
                  PART(fabs(csv_number(csv, "all,7,", 9) - 1.60) < ULPS) &&
                  PART(fabs(csv_number(csv, "all,123,", 9) - 1.13) < ULPS) &&
                  PART(fabs(csv_number(csv, "all,2024,", 9) - 1.42) < ULPS) &&
                  PART(csv_number(csv, "all,mean,", 9) == 1.37),
              "+1.31 +1.60 +1.13 +1.42, mean +1.37");
    free(csv);
}

static void check_lifts(void)
{
    static const char *const arms[] = {"all,adamw,", "all,muon,", "all,polaradamw,"};
    static const double recipe[] = {3.19, 7.94, 7.56}, budget[] = {13.53, 4.65, 4.36};
    char *csv = table("deit_recipe_lift"), *more = table("deit_budget_lift");
    double worst = 0, paper = 0;
    int64_t wrong = 0;
    for (int r = 0; r < 3; r++) {
        double s1 = fake_l10(&matched_plan, 0, r);
        wrong += csv_number(csv, arms[r], 2) != 1 || csv_number(more, arms[r], 2) != 1;
        worst = fmax(worst, fabs(csv_number(csv, arms[r], 5) - (s1 - fake_l10(&minimal_plan, 0, r))));
        worst = fmax(worst, fabs(csv_number(more, arms[r], 5) - (fake_l10(&style_plan, 0, r) - s1)));
        paper = fmax(paper, fabs(csv_number(csv, arms[r], 10) - recipe[r]));
        paper = fmax(paper, fabs(csv_number(more, arms[r], 10) - budget[r]));
    }
    test_exact("lifts: one seed in common", wrong);
    test_bound("lifts: on that seed", worst, ULPS, "one subtraction");
    test_bound("lifts: the paper's text and its table agree", paper, ULPS, "differences of two decimals");
    free(csv);
    free(more);
}

static void check_epochs(void)
{
    char *csv = table("deit_recipe_crossover"), *overtaking = table("deit_style_300ep_overtaking");
    int64_t since = brute_since(matched, 2, minimal, 2, 0, 1, 100),
            over = brute_since(style, 2, style, 1, 0, 4, 300);
    test_true("crossover: since when",
              PART(since > 40) && PART(since < 90) &&
                  PART(csv_number(csv, "all,polaradamw,", 5) == (double)since) &&
                  PART(csv_number(csv, "all,polaradamw,", 7) == (double)since),
              "%lld epochs", (long long)since);
    test_true("crossover: after 26 epochs",
              csv_number(csv, "all,polaradamw,", 3) == minimal(0, 2, 26) &&
                  csv_number(csv, "all,polaradamw,", 4) == matched(0, 2, 26),
              "%.2f, %.2f", minimal(0, 2, 26), matched(0, 2, 26));
    test_true("crossover: the paper's",
              csv_number(csv, "all,polaradamw,", 8) == 64.88 &&
                  csv_number(csv, "all,polaradamw,", 9) == 55.46 &&
                  csv_number(csv, "all,polaradamw,", 10) == 66,
              "its epochs 25 and 65, from 0");
    test_true("overtaking: since when",
              over > 200 && csv_number(overtaking, "all,polaradamw,muon,", 5) == (double)over, "%lld epochs",
              (long long)over);
    int64_t least = 300, most = 0;
    for (int k = 0; k < 4; k++) {
        int64_t of_seed = brute_since(style, 2, style, 1, k, 1, 300);
        least = of_seed < least ? of_seed : least;
        most = of_seed > most ? of_seed : most;
    }
    test_true("overtaking: seed by seed",
              PART(csv_number(overtaking, "all,polaradamw,muon,", 7) == 4) &&
                  PART(csv_number(overtaking, "all,polaradamw,muon,", 8) == (double)least) &&
                  PART(csv_number(overtaking, "all,polaradamw,muon,", 9) == (double)most) &&
                  PART(least < most),
              "%lld to %lld", (long long)least, (long long)most);
    test_true("overtaking: who is ahead stands first",
              strstr(overtaking, "\nall,muon,adamw,") && !strstr(overtaking, "\nall,adamw,"),
              "muon, then adamw");
    free(csv);
    free(overtaking);
    csv = table("deit_style_300ep_seconds"); /* 160, 176, 192 */
    test_true("seconds: of every epoch",
              csv_number(csv, "all,muon,", 3) == 1200 && csv_number(csv, "all,adamw,", 4) == 160 &&
                  fabs(csv_number(csv, "all,polaradamw,", 5) - 192) < 1200 * 192 * DBL_EPSILON,
              "1200 epochs");
    test_bound("seconds: a tenth more", fabs(csv_number(csv, "all,muon,", 8) - 10), 100 * 4 * DBL_EPSILON,
               "one quotient in percent");
    test_true("seconds: the paper's",
              csv_number(csv, "all,adamw,", 9) == 174 && csv_number(csv, "all,polaradamw,", 9) == 185,
              "174, 185");
    free(csv);
    csv = text_of(at("out/tables/deit_minimal_100ep_seconds.csv"));
    test_true("seconds: none in an old store", csv == NULL, "no table");
    free(csv);
    csv = table("deit_matched_aug_100ep_epochs");
    test_true("epochs: every value to the last digit",
              csv_number(csv, "all,muon,42,77,", 5) == matched(0, 1, 77), "%.17g", matched(0, 1, 77));
    free(csv);
}

/* ---- figures and the page ---- */

static int has_line(const char *path, const char *line)
{
    char *text = text_of(at(path));
    int found = text && strstr(text, line);
    free(text);
    return found;
}

static void check_figures(void)
{
    static const char *const names[] = {"deit_minimal_100ep_trajectories", "deit_style_300ep_trajectories",
                                        "deit_minimal_100ep_metric", "deit_style_300ep_differences"};
    char line[96];
    for (int i = 0; i < 4; i++) check_svg(names[i]);
    snprintf(line, sizeof line, "set arrow from %lld, graph ",
             (long long)brute_since(matched, 2, minimal, 2, 0, 1, 100));
    test_true("figure: the S1 curve dashed, the crossover dotted",
              has_line("out/figures/deit_minimal_100ep_trajectories.gp",
                       "$beside0 using 1:2 with lines dt (9,4)") &&
                  has_line("out/figures/deit_minimal_100ep_trajectories.gp", line),
              "%s", line);
    test_true("figure: no crossover of schedules of two lengths",
              has_line("out/figures/deit_style_300ep_trajectories.gp", "$beside0") &&
                  !has_line("out/figures/deit_style_300ep_trajectories.gp", "set arrow"),
              "S2");
    snprintf(line, sizeof line, "\"polaradamw  L10 %.2f\"",
             (fake_l10(&style_plan, 0, 2) + fake_l10(&style_plan, 1, 2) + fake_l10(&style_plan, 2, 2) +
              fake_l10(&style_plan, 3, 2)) /
                 4);
    test_true("figure: L10 inset", has_line("out/figures/deit_style_300ep_trajectories.gp", line), "%s",
              line);
    test_true("figure: accuracies are not by decades",
              !has_line("out/figures/deit_style_300ep_trajectories.gp", "set logscale y"), "linear");
}

static void whole_report(void)
{
    static xml x;
    pl_store *s;
    pl_report_outcome out;
    TEST_TRY(pl_store_open(&s, at("deit.db"), PL_STORE_WRITE));
    fake_store_fill(s, &minimal_plan, there);
    fake_store_fill(s, &matched_plan, there);
    fake_store_fill(s, &style_plan, there);
    pl_store_close(s);
    TEST_TRY(write_report(&out, at("deit.db"), at("out"), NULL, 0));
    check_table1();
    check_lifts();
    check_epochs();
    if (*out.note) printf("    no gnuplot here: %s\n", out.note);
    else check_figures();
    char *html = text_of(at("out/index.html"));
    const char *bad = check_xml(&x, html, 1);
    test_true("page: well-formed, ids unique", !bad && !x.twice, "%d ids, %d twice%s%.40s", x.n_ids, x.twice,
              bad ? ", at " : "", bad ? bad : "");
    test_exact("page: nothing to load, no script", loads(html));
    test_true("page: what was found, the best first",
              strstr(html, "all: polaradamw 85") && strstr(html, " &gt; muon 84") &&
                  strstr(html, "polaradamw - muon = +1"),
              "85 > 84 > 79");
    test_true("page: of the right testbed",
              PART(strstr(html, "Higher is better")) &&
                  PART(strstr(html, "Recipe lift: minimal to DeiT-style")) && PART(!strstr(html, "X^T X")) &&
                  PART(!strstr(html, "so3_timing")) && PART(!strstr(html, "cannot read the spec")),
              "no point clouds");
    free(html);
    TEST_TRY(write_report(&out, at("deit.db"), at("one"), (const char *const[]){"deit_style_300ep"}, 1));
    test_true("one spec: nothing across",
              access(at("one/tables/deit_table1_seeds.csv"), F_OK) != 0 &&
                  access(at("one/tables/deit_style_300ep_seeds.tex"), F_OK) == 0,
              "%lld tables", (long long)out.tables);
}

/* ---- corners ---- */

/* Six epochs: L10 is not defined, and one run diverged; the curves are there. */
static void short_runs(void)
{
    fake_plan p = {.spec = "short", THREE, .n_seeds = 2, .epochs = 6, .accuracy = flat};
    pl_store *s;
    pl_report_outcome out;
    TEST_TRY(pl_store_open(&s, at("short.db"), PL_STORE_WRITE));
    fake_store_fill(s, &p, one_diverged);
    pl_store_close(s);
    TEST_TRY(write_report(&out, at("short.db"), at("short"), NULL, 0));
    char *html = text_of(at("short/index.html"));
    test_true("no L10 of six epochs",
              html &&
                  strstr(html, "all, seed 0 (1): adamw undefined, muon undefined, polaradamw undefined") &&
                  strstr(html, "muon diverged"),
              "said, not called diverged");
    test_true("no L10: the curves are there",
              access(at("short/figures/short_trajectories.gp"), F_OK) == 0 &&
                  access(at("short/figures/short_metric.gp"), F_OK) != 0,
              "trajectories, no means");
    free(html);
}

/* Twelve arms have 66 pairs: no figure of panels, no table of seeds side by side. */
static void many_arms(void)
{
    fake_plan p = {.spec = "deit_lr_scan",
                   .cells = {"all"},
                   .arms = {"adamw_1e-4", "adamw_3e-4", "adamw_5e-4", "adamw_1e-3", "muon_2e-3", "muon_5e-3",
                            "muon_1e-2", "muon_2e-2", "polaradamw_2e-3", "polaradamw_5e-3", "polaradamw_1e-2",
                            "polaradamw_2e-2"},
                   .n_cells = 1,
                   .n_arms = 12,
                   .n_seeds = 1,
                   .seeds = seeds,
                   .epochs = 12,
                   .accuracy = flat};
    pl_store *s;
    pl_report_outcome out;
    TEST_TRY(pl_store_open(&s, at("scan.db"), PL_STORE_WRITE));
    fake_store_fill(s, &p, there);
    pl_store_close(s);
    TEST_TRY(write_report(&out, at("scan.db"), at("scan"), NULL, 0));
    char *csv = text_of(at("scan/tables/deit_lr_scan_results.csv"));
    test_true("the scan: the paper's winners",
              PART(csv_number(csv, "all,adamw_5e-4,", 11) == 63.08) &&
                  PART(csv_number(csv, "all,muon_5e-3,", 11) == 71.13) &&
                  PART(csv_number(csv, "all,polaradamw_5e-3,", 11) == 73.11) &&
                  PART(csv_number(csv, "all,adamw_1e-4,", 5) == 7.5),
              "mean of 3..12 is 7.5");
    test_true("the scan: no figure of 66 panels",
              access(at("scan/figures/deit_lr_scan_differences.gp"), F_OK) != 0 &&
                  access(at("scan/figures/deit_lr_scan_metric.gp"), F_OK) == 0,
              "means only");
    free(csv);
}

/* ---- which way is better ---- */

static void direction(void)
{
    char *sentence;
    pl_store *s;
    pl_store_members m;
    pl_audit_run runs[12];
    pl_audit *a;
    TEST_TRY(pl_store_open(&s, at("deit.db"), PL_STORE_READ));
    TEST_TRY(pl_store_select_members(&m, s, "deit_minimal_100ep"));
    for (int64_t i = 0; i < m.count; i++)
        runs[i] = (pl_audit_run){
            .cell = m.rows[i].cell, .arm = m.rows[i].arm, .seed = m.rows[i].seed, .run = &m.rows[i]};
    pl_audit_of of = {.spec = "deit_minimal_100ep", .metric = "l10", .schema = pl_testbed_deit.schema};
    TEST_TRY(pl_audit_create(&a, &of, runs, m.count));
    TEST_TRY(pl_findings_cell(&sentence, a, 0));
    test_true("findings: the best first",
              PART(strstr(sentence, "all: polaradamw 73") == sentence) &&
                  PART(strstr(sentence, " > muon 71")) && PART(strstr(sentence, " > adamw 6")) &&
                  PART(strstr(sentence, "\nmuon - adamw = +")),
              "%.60s", sentence);
    pl_free(sentence);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    TEST_TRY(pl_audit_print(a, f, PL_TABLE_JSON));
    TEST_TRY(pl_audit_print(a, f, PL_TABLE_TEXT));
    fclose(f);
    test_true("audit: says which way",
              strstr(text, "\"better\": \"higher\"") && strstr(text, "higher is better"), "JSON and text");
    test_true("audit: no clock", !strstr(text, "seconds"), "%zu bytes", size);
    free(text);
    pl_audit_destroy(a);
    pl_store_members_free(&m);
    pl_store_close(s);
}

/* Every table of three specs and across them, to nowhere. */
static polar_status print_all(const char *store, FILE *f)
{
    pl_store *s;
    pl_store_specs specs = {0};
    pl_section sections[3] = {{0}};
    pl_schema schemas[PL_TESTBED_MAX];
    pl_section_source from = {schemas, pl_testbed_schemas(schemas), NULL};
    pl_comparison *compared = NULL;
    int64_t count = 0, made = 0;
    PL_TRY(pl_store_open(&s, store, PL_STORE_READ));
    polar_status st = pl_store_select_specs(&specs, s);
    for (int i = 0; i < 3 && st == POLAR_OK; i++)
        st = pl_section_load(&sections[i], s, &specs.rows[i], &from);
    if (st == POLAR_OK) pl_comparisons_link(sections, 3);
    if (st == POLAR_OK) st = pl_comparisons_find(&compared, &count, sections, 3);
    for (int64_t i = 0; i < count && st == POLAR_OK; i++)
        for (const pl_compare_table *t = pl_compare_tables; t->name && st == POLAR_OK; t++)
            if (pl_comparison_wants(&compared[i], t)) {
                st = t->print(&compared[i], f, PL_TABLE_CSV);
                made++;
            }
    if (st == POLAR_OK && made != 4) st = POLAR_E_ARG; /* table 1, two lifts, a crossover */
    for (const pl_section_table *t = pl_section_tables; t->name; t++)
        for (int i = 0; i < 3 && st == POLAR_OK; i++)
            if (t->wanted(&sections[i])) st = t->print(&sections[i], f, PL_TABLE_CSV);
    for (int i = 0; i < 3 && st == POLAR_OK; i++) st = pl_section_epochs_csv(&sections[i], f);
    pl_free(compared);
    for (int i = 0; i < 3; i++) pl_section_free(&sections[i]);
    pl_store_specs_free(&specs);
    pl_store_close(s);
    return st;
}

/* Every allocation fails once: out of memory is said, nothing is left over. */
static void faults(void)
{
    fake_plan plans[] = {minimal_plan, matched_plan, style_plan};
    pl_store *s;
    TEST_TRY(pl_store_open(&s, at("faults.db"), PL_STORE_WRITE));
    for (int i = 0; i < 3; i++) {
        plans[i].epochs = 12 + i / 2;
        plans[i].n_seeds = 1;
        plans[i].seconds = 1;
        fake_store_fill(s, &plans[i], there);
    }
    pl_store_close(s);
    FILE *null = fopen("/dev/null", "w");
    char path[256];
    snprintf(path, sizeof path, "%s", at("faults.db"));
    polar_status st = POLAR_E_NOMEM;
    const int64_t opening = store_opening(path);
    int64_t n = 0, wrong = 0;
    TEST_TRY(print_all(path, null));
    for (; st != POLAR_OK && n < 20000; n = store_next_fault(n, opening)) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = print_all(path, null);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
    }
    fclose(null);
    test_true("the n-th allocation fails", st == POLAR_OK && !wrong && n > 100,
              "%lld allocations, %lld wrong", (long long)n - 1, (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_report_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    ahead_by_hand();
    whole_report();
    direction();
    short_runs();
    many_arms();
    faults();
    folder_remove(folder);
    return test_end();
}
