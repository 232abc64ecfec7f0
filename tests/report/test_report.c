/* test_report.c -- a report of a made-up store: its files, figures that are well-formed XML, a page that
 * loads nothing, numbers that are the store's; no gnuplot, folders that cannot be written, memory that runs
 * out.
 */
#include "base/alloc.h"
#include "fixtures/store_faults.h"
#include "report/audit/audit.h"
#include "report_fixture.h"

static double value(int cell, int seed, int arm)
{
    static const double mean[2][3] = {{0.0099, 0.0067, 0.0074}, {0.0102, 0.0064, 0.0074}};
    if (cell == 1 && seed == 3 && arm == 2) return NAN;
    return mean[cell][arm] + 0.0004 * sin(7 * seed) + 0.0002 * sin(31 * seed + 5 * arm + cell);
}

static const fake_plan plan = {.spec = "so3_capacity",
                               .cells = {"model.width=16", "model.width=32"},
                               .arms = {"adamw", "muon", "polaradamw"},
                               .n_cells = 2,
                               .n_arms = 3,
                               .n_seeds = 4,
                               .epochs = 12,
                               .gauge = 1};
static const fake_plan small = {.spec = "small",
                                .cells = {"all"},
                                .arms = {"a_&_<b>", "muon"},
                                .n_cells = 1,
                                .n_arms = 2,
                                .n_seeds = 2,
                                .epochs = 3};

static void make_store(const char *name, const fake_plan *a, const fake_plan *b)
{
    pl_store *s;
    TEST_TRY(pl_store_open(&s, at(name), PL_STORE_WRITE));
    fake_store_fill(s, a, value);
    if (b) fake_store_fill(s, b, value);
    pl_store_close(s);
}

/* ---- the report ---- */

static void check_numbers(const char *html)
{
    double sum = 0, shown;
    char text[64], id[PL_RUN_ID_CHARS];
    int64_t wrong = 0;
    for (int k = 0; k < 4; k++) sum += value(0, k, 1);
    char *csv = text_of(at("out/tables/so3_capacity_results.csv"));
    shown = csv_number(csv, "model.width=16,muon,", 5);
    /* four values near 0.0067, one mean: a few units in the last place */
    test_bound("table: the mean is the store's", fabs(shown - sum / 4), 4 * 2.3e-16 * 0.0067,
               "4 eps of the mean");
    test_true("table: the paper's value beside it", csv_number(csv, "model.width=16,muon,", 11) == 0.0067,
              "%g", csv_number(csv, "model.width=16,muon,", 11));
    free(csv);
    csv = text_of(at("out/tables/so3_capacity_pairs.csv"));
    test_true("table: the paper's difference",
              csv_number(csv, "model.width=16,polaradamw,muon,", 15) == 0.0007 &&
                  csv_number(csv, "model.width=32,polaradamw,muon,", 3) == 3,
              "+0.0007; n 3 of 4");
    free(csv);
    char *runs = text_of(at("out/tables/so3_capacity_runs.csv"));
    int64_t lines = 0;
    for (const char *s = runs; *s; s++) lines += *s == '\n';
    test_true("runs: a line each",
              lines == 25 && !strncmp(runs,
                                      "cell,arm,seed,state,best_epoch,diverged,epochs,test_mse,trace_"
                                      "anisotropy_mse,trace_mse,wall,code,device,id\n",
                                      103),
              "%lld lines", (long long)lines);
    for (int i = 0; i < 24; i++) {
        int c = i / 12, k = i / 3 % 4, r = i % 3;
        snprintf(text, sizeof text, "%s,%s,%d,%s,", plan.cells[c], plan.arms[r], k,
                 isnan(value(c, k, r)) ? "diverged" : "done");
        fake_id(id, &plan, c, k, r);
        const char *row = strstr(runs, text), *end = row ? strchr(row, '\n') : NULL,
                   *found = strstr(runs, id);
        wrong += !end || !found || found < row || found > end;
        if (!isnan(value(c, k, r))) wrong += csv_number(runs, text, 7) != value(c, k, r);
    }
    free(runs);
    test_exact("runs: every value to the last digit", wrong);
    csv = text_of(at("out/tables/so3_capacity_gauge.csv"));
    /* four runs, two shadows: 2e-2 (1 + 1) and the same + 1e-3 */
    double mean = csv_number(csv, "model.width=16,muon,ns_bf16_reference,10,4,8,", 6);
    test_bound("gauge: the mean of runs and shadows", fabs(mean - 0.0405), 8 * 2.3e-16 * 0.0405,
               "8 eps of the mean");
    free(csv);
    csv = text_of(at("out/tables/so3_capacity_spectra.csv"));
    const char *spectrum = "model.width=16,muon,gradient,layers.0.W_00.weight,1,";
    const double want[] = {4, 4, 3, 1.25 + 0x9p-18 + 0x1p-40, 0.5, 0x3p-9, 0x3p-9, 0x1p-20};
    double worst = 0; /* runs, values, above 2^-8, stable rank, second, third, middle, last */
    for (int i = 0; i < 8; i++) worst = fmax(worst, fabs(csv_number(csv, spectrum, 5 + i) / want[i] - 1));
    test_bound("spectra: what they say of four runs", worst, 16 * 2.3e-16, "16 eps: sums, logarithms");
    free(csv);
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 4; k++)
            for (int r = 0; r < 3; r++) {
                fake_id(id, &plan, c, k, r);
                const char *row = strstr(html, id);
                snprintf(text, sizeof text, "<td>%.6g</td>", value(c, k, r));
                const char *end = row ? strstr(row, "</tr>") : NULL, *number = row ? strstr(row, text) : NULL;
                if (isnan(value(c, k, r)))
                    wrong += !row || !strstr(row, "diverged") || strstr(row, "diverged") > end;
                else wrong += !number || number > end;
            }
    test_exact("page: every run with its id and value", wrong);
}

/* Tables and drawings outside of a container that scrolls: a phone would have to scroll the page. */
static int64_t not_in_wide(const char *html)
{
    int64_t n = 0;
    for (const char *s = html; (s = strpbrk(s, "<")); s++) {
        if (strncmp(s, "<table", 6) && strncmp(s, "<svg", 4)) continue;
        const char *box = NULL, *end = NULL, *at = html;
        while ((at = strstr(at, "<div class=\"wide\">")) && at < s) box = at++;
        for (at = box ? box : s; (at = strstr(at, "</div>")) && at < s;) end = at++;
        n += !box || end;
    }
    return n;
}

static int whole_report(void)
{
    static const char *const names[] = {"out/index.html",
                                        "out/tables/so3_capacity.json",
                                        "out/tables/so3_capacity_results.txt",
                                        "out/tables/so3_capacity_results.csv",
                                        "out/tables/so3_capacity_results.tex",
                                        "out/tables/so3_capacity_pairs.txt",
                                        "out/tables/so3_capacity_pairs.csv",
                                        "out/tables/so3_capacity_pairs.tex",
                                        "out/tables/so3_capacity_wall.csv",
                                        "out/tables/so3_capacity_wall_pairs.csv",
                                        "out/tables/small_results.csv",
                                        "out/tables/so3_capacity_runs.csv",
                                        "out/tables/so3_capacity_gauge.csv",
                                        "out/tables/so3_capacity_spectra.csv",
                                        "out/tables/small_runs.csv",
                                        "out/tables/so3_capacity_effects.csv",
                                        "out/tables/small_effects.txt"};
    static const char *const figures[] = {
        "so3_capacity_metric", "so3_capacity_differences", "so3_capacity_trajectories",
        "so3_capacity_wall",   "so3_capacity_gauge_0",     "so3_capacity_gauge_1",
        "small_metric",        "small_differences",        "small_trajectories",
        "small_wall"};
    static xml x;
    pl_report_outcome out;
    TEST_TRY(write_report(&out, at("two.db"), at("out"), NULL, 0));
    int drawn = !*out.note;
    test_true("report: files",
              PART(count_files(names, 17) == 17) &&
                  PART(access(at("out/tables/small_gauge.csv"), F_OK) != 0) && PART(out.tables == 14) &&
                  PART(out.specs == 2),
              "%lld tables, %lld figures: %s", (long long)out.tables, (long long)out.figures, out.page);
    char *html = text_of(at("out/index.html"));
    const char *bad = check_xml(&x, html, 1);
    test_true("page: well-formed, ids unique", !bad && !x.twice, "%d ids, %d twice%s%.40s", x.n_ids, x.twice,
              bad ? ", at " : "", bad ? bad : "");
    test_exact("page: nothing to load, no script", loads(html));
    test_exact("page: tables and figures scroll by themselves", not_in_wide(html));
    test_true("page: outside text is escaped",
              strstr(html, "Test MSE &lt;against&gt; width &amp; seeds") &&
                  strstr(html, "a_&amp;_&lt;b&gt;") && !strstr(html, "<against>"),
              "&lt; &amp;");
    test_true("page: where it comes from",
              PART(strstr(html, "0123456789abcdef")) && PART(strstr(html, "0.1.0-test")) &&
                  PART(strstr(html, "a processor")) && PART(strstr(html, "two.db")),
              "sha, code, processor, store");
    test_true("page: what is missing",
              strstr(html, "model.width=32, seed 3 (1): polaradamw diverged") != NULL, "one seed");
    check_numbers(html);
    if (drawn) {
        test_true("figures: all of them", out.figures == 10, "%lld", (long long)out.figures);
        for (int i = 0; i < 10; i++) check_svg(figures[i]);
        struct stat s = {0};
        int there = stat(at("out/figures/so3_capacity_metric.png"), &s) == 0;
        test_true("figures: PNG too", there && s.st_size > 5000, "%lld bytes", (long long)s.st_size);
        test_true("page: the figures are in it",
                  strstr(html, "<svg role=\"img\"") && strstr(html, "Figure 10."), "inline");
    } else printf("    no gnuplot here: %s\n", out.note);
    TEST_TRY(write_report(&out, at("two.db"), at("again"), NULL, 0));
    char *again = text_of(at("again/index.html"));
    test_true("the same store, the same page", again && !strcmp(html, again), "%zu bytes", strlen(html));
    free(again);
    free(html);
    return drawn;
}

static void one_spec(void)
{
    static const char *const wanted[] = {"small"}, *const unknown[] = {"small", "so3_smal"};
    pl_report_outcome out;
    TEST_TRY(write_report(&out, at("two.db"), at("one"), wanted, 1));
    test_true("one spec of two",
              out.specs == 1 && access(at("one/tables/small_pairs.csv"), F_OK) == 0 &&
                  access(at("one/tables/so3_capacity_pairs.csv"), F_OK) != 0,
              "%s", out.page);
    polar_status st = write_report(&out, at("two.db"), at("none"), unknown, 2);
    test_true("a spec the store does not know",
              st == POLAR_E_ARG && strstr(polar_error_message(), "it has: small, so3_capacity") &&
                  access(at("none"), F_OK) != 0,
              "%s", polar_error_message());
}

/* PATH leads nowhere: tables and page are there, one sentence says why there are no figures. */
static void without_gnuplot(void)
{
    pl_report_outcome out;
    TEST_TRY(write_report(&out, at("two.db"), at("bare"), NULL, 0));
    char *html = text_of(at("bare/index.html"));
    test_true("no gnuplot: one sentence", strstr(out.note, "gnuplot") && strstr(out.note, "apt-get install"),
              "%s", out.note);
    test_true("no gnuplot: tables and scripts are there",
              PART(access(at("bare/tables/so3_capacity_pairs.tex"), F_OK) == 0) &&
                  PART(access(at("bare/figures/so3_capacity_metric.gp"), F_OK) == 0) &&
                  PART(access(at("bare/figures/so3_capacity_metric.svg"), F_OK) != 0) && PART(!out.figures),
              "%lld tables", (long long)out.tables);
    test_true("no gnuplot: the page says so",
              html && strstr(html, "no program gnuplot found") && !strstr(html, "<svg"), "%zu bytes",
              html ? strlen(html) : 0);
    free(html);
}

/* A target, a margin, and another spec to be the same as: tables, files and page have them. */
static void with_tests(void)
{
    fake_plan one = plan, other = plan;
    pl_report_outcome out;
    pl_store *s;
    one.spec = "t_one";
    one.n_arms = other.n_arms = 2;
    one.gauge = other.gauge = 0;
    one.text = "name: t_one\ntestbed: so3\nseeds: 0..3\narms: [adamw, muon]\ngrid: {model.width: [16, 32]}\n"
               "tests: {target: 0.02, equivalence: 0.01}\n"
               "compare: [{with: t_other, equivalence: 0.002, tables: [lift]}]\n";
    other.spec = "t_other";
    other.text =
        "name: t_other\ntestbed: so3\nseeds: 0..3\narms: [adamw, muon]\ngrid: {model.width: [16, 32]}\n";
    TEST_TRY(pl_store_open(&s, at("tests.db"), PL_STORE_WRITE));
    fake_store_fill(s, &one, value);
    fake_store_fill(s, &other, value);
    pl_store_close(s);
    TEST_TRY(write_report(&out, at("tests.db"), at("tests"), NULL, 0));
    char *html = text_of(at("tests/index.html")), *effects = text_of(at("tests/tables/t_one_effects.csv")),
         *target = text_of(at("tests/tables/t_one_target.csv")),
         *race = text_of(at("tests/tables/t_one_target_pairs.csv")),
         *lift = text_of(at("tests/tables/t_one_t_other_lift.csv"));
    test_true("tests: the page has their tables",
              PART(html && strstr(html, "Epochs to the target")) &&
                  PART(strstr(html, "Who reaches the target sooner")) &&
                  PART(strstr(html, "Effect sizes, correction and equivalence")) &&
                  PART(strstr(html, "equivalence p")),
              "%zu bytes", html ? strlen(html) : 0);
    test_true(
        "tests: and so have the files",
        PART(effects && strstr(effects, "cell,a,b,n,g,g_ci95_lo,g_ci95_hi,p,p_holm,p_equivalence\n")) &&
            PART(target && strstr(target, "model.width=16,muon,4,4,")) &&
            PART(race && strstr(race, "model.width=16,muon,adamw,4,")) &&
            PART(lift && strstr(lift, ",published_lift,g,g_ci95_lo,g_ci95_hi,p,p_holm,p_equivalence\n")),
        "%s", target ? target : "none");
    /* both specs have the same values here: no difference, all of them equal */
    test_true("tests: a lift of nothing is within the margin",
              lift && csv_number(lift, "model.width=16,muon,4,", 16) == 0, "%s", lift ? lift : "none");
    test_true("tests: what a spec does not ask for is not there",
              access(at("tests/tables/t_other_target.csv"), F_OK) != 0 &&
                  access(at("tests/tables/t_other_effects.csv"), F_OK) == 0,
              "t_other");
    free(html);
    free(effects);
    free(target);
    free(race);
    free(lift);
}

static double lifted(int cell, int seed, int arm)
{
    static const double by[2][2] = {{0.0003, 0.0011}, {0.0001, 0.0004}};
    return value(cell, seed, arm) - by[cell][arm] + 0.0003 * sin(13 * seed + 3 * arm + cell);
}

/* Two specs with three seeds in common: effect sizes as of any pairs, p corrected for the four lifts. */
static void with_lifts(void)
{
    static const char *const rows[] = {"model.width=16,adamw,3,", "model.width=16,muon,3,",
                                       "model.width=32,adamw,3,", "model.width=32,muon,3,"};
    fake_plan one = plan, other = plan;
    pl_report_outcome out;
    pl_store *s;
    double p[4], worst = 0, holm = 0, least = 0;
    one.spec = "l_one";
    one.n_arms = other.n_arms = 2;
    one.gauge = other.gauge = 0;
    one.text = "name: l_one\ntestbed: so3\nseeds: 0..3\narms: [adamw, muon]\ngrid: {model.width: [16, 32]}\n"
               "compare: [{with: l_other, tables: [lift]}]\n";
    other.spec = "l_other";
    other.n_seeds = 3;
    other.text =
        "name: l_other\ntestbed: so3\nseeds: 0..2\narms: [adamw, muon]\ngrid: {model.width: [16, 32]}\n";
    TEST_TRY(pl_store_open(&s, at("lifts.db"), PL_STORE_WRITE));
    fake_store_fill(s, &one, value);
    fake_store_fill(s, &other, lifted);
    pl_store_close(s);
    TEST_TRY(write_report(&out, at("lifts.db"), at("lifts"), NULL, 0));
    char *lift = text_of(at("lifts/tables/l_one_l_other_lift.csv")), *html = text_of(at("lifts/index.html"));
    for (int i = 0; i < 4; i++) {
        double from[3], to[3], work[3];
        for (int k = 0; k < 3; k++) from[k] = value(i / 2, k, i % 2), to[k] = lifted(i / 2, k, i % 2);
        pl_paired pairs = pl_paired_measure(to, from, 3, work);
        pl_effect e = pl_effect_measure(&pairs);
        const double want[] = {e.g, e.lo, e.hi, pairs.p};
        for (int k = 0; k < 4; k++) worst = fmax(worst, fabs(csv_number(lift, rows[i], 11 + k) - want[k]));
        p[i] = pairs.p;
    }
    for (int rank = 0; rank < 4; rank++) { /* Holm's steps: the least p times 4, the next times 3, ... */
        int at_least = -1;
        for (int i = 0; i < 4; i++)
            if (p[i] < 2 && (at_least < 0 || p[i] < p[at_least])) at_least = i;
        least = fmin(1, fmax(least, (4 - rank) * p[at_least]));
        holm = fmax(holm, fabs(csv_number(lift, rows[at_least], 15) - least));
        p[at_least] = 2;
    }
    /* every digit is in the file, so the same calls give the same numbers */
    test_bound("lifts: effect sizes and p", worst, 0, "the same calls");
    test_bound("lifts: Holm's p of the table's four tests", holm, 1e-15, "two roundings");
    test_true("lifts: without a margin there is no test of it, and the page says what the family is",
              lift && !strstr(lift, "p_equivalence") && html &&
                  strstr(html, "corrected for the lifts of this table, every arm in every cell"),
              "%s", lift ? lift : "none");
    free(lift);
    free(html);
}

static void folders(void)
{
    pl_report_outcome out;
    FILE *f = fopen(at("a_file"), "w");
    fclose(f);
    polar_status st = write_report(&out, at("two.db"), at("a_file"), NULL, 0);
    test_true("the folder is a file", st == POLAR_E_IO && strstr(polar_error_message(), "a_file"), "%s",
              polar_error_message());
    mkdir(at("locked"), 0555);
    /* root may write anywhere but there */
    st = write_report(&out, at("two.db"), geteuid() ? at("locked/out") : "/proc/polar_report", NULL, 0);
    test_true("a folder that cannot be written",
              st == POLAR_E_IO && strstr(polar_error_message(), "make the folder"), "%s",
              polar_error_message());
    st = write_report(&out, at("no.db"), at("x"), NULL, 0);
    test_true("no such store", st != POLAR_OK && access(at("x"), F_OK) != 0, "%s", polar_error_message());
    pl_store *s;
    TEST_TRY(pl_store_open(&s, at("empty.db"), PL_STORE_WRITE));
    pl_store_close(s);
    st = write_report(&out, at("empty.db"), at("x"), NULL, 0);
    test_true("an empty store", st == POLAR_E_ARG && strstr(polar_error_message(), "no specs yet"), "%s",
              polar_error_message());
}

/* Every allocation fails once, of the store's opening some (store_faults.h): out of memory is said, nothing
 * is left over, no half-written file. */
static void faults(void)
{
    pl_report_outcome out;
    polar_status st = POLAR_E_NOMEM;
    const int64_t opening = store_opening(at("small.db"));
    int64_t n = 0, wrong = 0;
    TEST_TRY(write_report(&out, at("small.db"), at("faults"), NULL, 0));
    for (; st != POLAR_OK && n < 20000; n = store_next_fault(n, opening)) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = write_report(&out, at("small.db"), at("faults"), NULL, 0);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
        wrong += access(at("faults/index.html.part"), F_OK) == 0;
    }
    test_true("the n-th allocation fails", st == POLAR_OK && !wrong && n > 100,
              "%lld allocations, %lld wrong", (long long)n - 1, (long long)wrong);
}

/* A testbed that no report has heard of, and a user's spec: metrics, curve and reference values are what the
 * testbed declares, published values and comparisons what the spec has. */
static void any_testbed(void)
{
    static const char *const rules[] = {"adamw", "muon", NULL};
    static const pl_key keys[] = {
        {"model.width", PL_KEY_INT, "16", .min = 1, .max = 64, .help = "width"},
        {"optim.rule", PL_KEY_CHOICE, "muon", .choices = rules, .help = "rule"},
    };
    static const pl_metric results[] = {
        {.name = "test_mse", .title = "score <of> toys", .better = 1},
        {.name = "trace_mse", .beside = "test_mse", .head = "guess", .line = "a guess"},
        {.name = "epochs"},
        {0}};
    static const pl_schema toy = {.name = "toy",
                                  .version = 1,
                                  .metric = "test_mse",
                                  .keys = keys,
                                  .key_count = 2,
                                  .results = results,
                                  .curve = {.heading = "Toys over time",
                                            .what = "The score",
                                            .axis = "score",
                                            .higher = 1,
                                            .accuracy = 1},
                                  .reference = "guesses",
                                  .reference_note = "Guesses are not trained."};
    static const fake_plan plans[] = {
        {.spec = "toys",
         .cells = {"model.width=8"},
         .arms = {"adamw", "muon"},
         .n_cells = 1,
         .n_arms = 2,
         .n_seeds = 3,
         .epochs = 4,
         .code = "0.2-14-g4d0e1a7",
         .testbed = "toy",
         .text = "name: toys\ntestbed: toy\nseeds: 0..2\narms: [adamw, muon]\ngrid: {model.width: [8]}\n"
                 "published:\n  by: the makers\n  note: Of wood.\n  values:\n"
                 "    - {model.width: 8, adamw: 0.5, muon: 0.25}\n"
                 "    - {model.width: 8, seed: 1, adamw: 0.125}\n"
                 "compare: [{with: other_toys, name: both, title: Two boxes of toys, labels: [old, new]}]\n"},
        {.spec = "other_toys",
         .cells = {"model.width=8"},
         .arms = {"adamw", "muon"},
         .n_cells = 1,
         .n_arms = 2,
         .n_seeds = 2,
         .epochs = 5,
         .code = "4d0e1a7-dirty",
         .testbed = "toy",
         .text = "name: other_toys\ntestbed: toy\nseeds: 0..2\narms: [adamw, muon]\n"
                 "grid: {model.width: [8]}\npublished:\n  values:\n"
                 "    - {model.width: 8, seed: 1, adamw: 0.25}\n"}};
    pl_store *s;
    pl_report_outcome out;
    TEST_TRY(pl_store_open(&s, at("toys.db"), PL_STORE_WRITE));
    for (int i = 0; i < 2; i++) fake_store_fill(s, &plans[i], value);
    pl_report_opts o = {.dir = at("toys"), .schemas = &toy, .schema_count = 1, .code = "0.1.0-test"};
    TEST_TRY(pl_report_write(&out, s, &o));
    char *html = text_of(at("toys/index.html")), *csv = text_of(at("toys/tables/toys_results.csv")),
         *lift = text_of(at("toys/tables/both_lift.csv"));
    test_true("any testbed: its words on the page",
              PART(strstr(html, "Higher is better")) && PART(strstr(html, "Guesses are not trained.")) &&
                  PART(strstr(html, "Of wood.")) &&
                  PART(strstr(html, "Two boxes of toys: what the second adds")) &&
                  PART(strstr(html, "(a guess: ")),
              "%zu bytes", strlen(html));
    test_true("which code made the runs, clean or not",
              strstr(html, "0.2-14-g4d0e1a7, clean (6 runs)") &&
                  strstr(html, "4d0e1a7 and changes of its own (4 runs)"),
              "said");
    test_true("any testbed: published values beside ours",
              strstr(csv, ",published,trace_mse,epochs") &&
                  csv_number(csv, "model.width=8,muon,", 11) == 0.25 && strstr(html, "the makers"),
              "0.25");
    test_true("any testbed: specs compared, n and the published lift",
              PART(csv_number(lift, "model.width=8,adamw,", 2) == 2) &&
                  PART(csv_number(lift, "model.width=8,adamw,", 10) == 0.125) &&
                  PART(access(at("toys/tables/both_seeds.csv"), F_OK) == 0) &&
                  PART(access(at("toys/tables/both_crossover.tex"), F_OK) == 0),
              "two seeds, 0.25 - 0.125");
    free(html), free(csv), free(lift);
    o.dir = at("strange"), o.schema_count = 0;
    TEST_TRY(pl_report_write(&out, s, &o));
    html = text_of(at("strange/index.html"));
    test_true("a testbed this build lacks: said, and reported without",
              strstr(html, "cannot read the spec") && strstr(html, "no testbed") && strstr(html, "muon"),
              "%zu bytes", strlen(html));
    free(html);
    pl_store_close(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_report_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    make_store("two.db", &plan, &small);
    make_store("small.db", &small, NULL);
    whole_report();
    one_spec();
    folders();
    setenv("PATH", folder, 1);
    without_gnuplot();
    with_tests();
    with_lifts();
    faults();
    any_testbed();
    folder_remove(folder);
    return test_end();
}
