/* test_figure.c -- what reaches gnuplot: texts arrive in the drawing letter by letter and are nothing but
 * texts, and a script that tries to start a program cannot; and a drawing is whole or not there. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text_visible.h"
#include "fixtures/folder.h"
#include "report/figure/forbid_processes.h"
#include "report/figure/figure.h"
#include "report/figure/gnuplot.h"
#include "report/figure/svg_inline.h"
#include "test.h"

static char folder[64], text[1 << 17];

static const char *at(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
    return text;
}

static void put_file(const char *name, const char *content)
{
    FILE *f = fopen(at(name), "wb");
    if (!f) exit(1);
    fputs(content, f);
    fclose(f);
}

/* Every text that gnuplot's lexer knows a meaning for, as title, tic and name of a line: the drawing shows it
 * as it is (`shown`: as XML writes it). */
static int texts(void)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"`touch canary`", ">`touch canary`<"},
        {"\\\"; !touch canary", ">\\\"; !touch canary<"},
        {"it's '' {x} @svg # $x ; }", ">it's '' {x} @svg # $x ; }<"},
        {"%d %s %% %", ">%d %s %% %<"},
        {"'5 #77 %3 &1", ">'5 #77 %3 &amp;1<"},
        {"all\n4/4", ">4/4<"},
        {"a\x1b[2J", ">a\\x1b[2J<"},
        {"<b>&", ">&lt;b"},
        {"\xff\xc3\xa9", ">\\xff\xc3\xa9<"},
        {"\\140touch canary\\140", ">\\140touch canary\\140<"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_figure g;
        const char *t = cases[i].text;
        TEST_TRY(pl_figure_begin(&g, folder, "f", 400, 300));
        pl_figure_plot(&g);
        fputs("set title ", g.out.f);
        pl_figure_string(g.out.f, t);
        fputs("\nset xtics (", g.out.f);
        pl_figure_tic(g.out.f, t);
        fputs(" 1)\nplot x title ", g.out.f);
        pl_figure_string(g.out.f, t);
        fputc('\n', g.out.f);
        polar_status st = pl_figure_end(&g, POLAR_OK);
        if (st == POLAR_E_UNSUPPORTED) return 0;
        int n = 0;
        slurp(at("f.svg"));
        for (const char *s = strstr(text, cases[i].shown); s; s = strstr(s + 1, cases[i].shown)) n++;
        test_true(cases[i].shown, st == POLAR_OK && n == 3 && access(at("canary"), F_OK) != 0,
                  "drawn %d of 3 times: %s", n, st == POLAR_OK ? "" : polar_error_message());
    }
    return 1;
}

/* The second lock: the texts above never get so far. */
static void scripts(void)
{
    static const char *const tries[] = {"x = system('touch canary')\n", "print `touch canary`\n",
                                        "!touch canary\n", "set print '|touch canary'\nprint 1\n",
                                        "plot '<touch canary; echo 1'\n"};
    pid_t child = fork();
    int status = 0;
    if (child == 0) _exit(!pl_forbid_child_processes() ? 2 : fork() < 0 ? 0 : 1);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) exit(1);
    if (WEXITSTATUS(status) == 2) {
        printf("    this kernel has no such filter: not tested\n");
        return;
    }
    test_true("a process that may start no other cannot fork", WEXITSTATUS(status) == 0, "exit %d",
              WEXITSTATUS(status));
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        put_file("evil.gp", tries[i]);
        polar_status st = pl_gnuplot_run(folder, "evil.gp");
        test_true("a script that wants a program", access(at("canary"), F_OK) != 0,
                  "status %d, no canary: %.30s", st, tries[i]);
        unlink(at("canary"));
    }
}

/* No settings of the user's: in his start-up file he may have what he wants. */
static void settings(void)
{
    setenv("HOME", folder, 1);
    put_file(".gnuplot", "set print 'canary'\nprint 1\n");
    put_file("plain.gp", "set terminal svg\n");
    (void)pl_gnuplot_run(folder, "plain.gp");
    test_true("the user's start-up file is not read", access(at("canary"), F_OK) != 0, "no canary");
}

/* gnuplot ends as if all were well where it could not write. Both limits hold the script and not the PNG. */
static void cut_short(void)
{
    static const rlim_t limits[] = {16384, 4096};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit old, small;
        pl_figure g;
        getrlimit(RLIMIT_FSIZE, &old);
        small = old, small.rlim_cur = limits[i];
        signal(SIGXFSZ, SIG_IGN);
        TEST_TRY(pl_figure_begin(&g, folder, "cut", 400, 300));
        pl_figure_plot(&g);
        fputs("plot sin(x)\n", g.out.f);
        setrlimit(RLIMIT_FSIZE, &small);
        polar_status st = pl_figure_end(&g, POLAR_OK);
        setrlimit(RLIMIT_FSIZE, &old);
        signal(SIGXFSZ, SIG_DFL);
        int whole = access(at("cut.svg"), F_OK) != 0 || strstr(slurp(at("cut.svg")), "</svg>");
        test_true("a disk that is full", st == POLAR_E_IO && whole && access(at("cut.png"), F_OK) != 0, "%s",
                  st == POLAR_OK ? "taken" : polar_error_message());
    }
}

/* Only drawings go into the page. */
static void pages(void)
{
    static const struct {
        const char *svg;
        int fine;
    } cases[] = {
        {"<svg viewBox=\"0 0 10 10\"><g id='a' fill=\"url(#a)\"><use xlink:href='#a'/><text>x &gt; \"y\" "
         "onload=\"z\"</text></g></svg>",
         1},
        {"<svg viewBox=\"0 0 10 10\"><script>alert(1)</script></svg>", 0},
        {"<svg onload=\"alert(1)\"></svg>", 0},
        {"<svg><g ONCLICK='x'/></svg>", 0},
        {"<svg><use href=\"http://x/y.svg#a\"/></svg>", 0},
        {"<svg><rect fill=\"url(http://x)\"/></svg>", 0},
        {"<svg><image href=\"#a\"/></svg>", 0},
        {"<svg><foreignObject/></svg>", 0},
        {"<svg><g id='a'\fonload='x'/></svg>", 0},
        {"<svg><g\fonload='x'/></svg>", 0},
        {"<svg><g a'b='x'/></svg>", 0},
        {"<svg><g id 'a'/></svg>", 0},
        {"<svg><g id='<title>'/></title>' onload='x'/></svg>", 0}, /* what is left without the title */
        {"<svg><rect fill=\"&#117;rl(http://x)\"/></svg>", 0},
        {"<svg><rect style=\"fill:u\\72 l(http://x)\"/></svg>", 0},
        {"<svg><g id=\"a></svg>", 0},
        {"<svg><!-- x --></svg>", 0},
        {"<svg><g id=a onload=b></g></svg>", 0},
        {"<svg><a xlink:href='javascript:x'/></svg>", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int found = 0;
        put_file("p.svg", cases[i].svg);
        FILE *f = fopen(at("page"), "wb");
        if (!f) exit(1);
        polar_status st = pl_svg_inline(f, at("p.svg"), "p", "a \"label\"", &found);
        fclose(f);
        test_true(cases[i].svg,
                  cases[i].fine ? st == POLAR_OK && found : st == POLAR_E_FORMAT && !*slurp(at("page")), "%s",
                  st == POLAR_OK ? "taken" : polar_error_message());
    }
}

/* 400000 titles that never end, 2.8 MB: looked for once, and not from each of them to the end (560 GB). */
static void endless_titles(void)
{
    enum { TITLES = 400000 };
    FILE *svg = fopen(at("titles.svg"), "wb"), *page = fopen(at("titles.html"), "wb");
    int found = 0;
    if (!svg || !page) exit(1);
    fputs("<svg>", svg);
    for (int i = 0; i < TITLES; i++) fputs("<title>", svg);
    fclose(svg);
    clock_t begun = clock();
    polar_status st = pl_svg_inline(page, at("titles.svg"), "p", "x", &found);
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    fclose(page);
    remove(at("titles.svg"));
    remove(at("titles.html"));
    test_true("titles without an end", st == POLAR_OK && found && seconds < 5, "%.3f s", seconds);
}

/* The keys of a grid stand once below the axis, their values under each tic: names in every label would meet.
 */
static void labels(void)
{
    static const struct {
        const char *cells[2], *axis, *label;
    } cases[] = {
        {{"model.width=16", "model.width=32"}, "model.width", "32"},
        {{"model.width=16 optim.lr=0.01", "model.width=16 optim.lr=0.03"},
         "model.width, optim.lr",
         "16\n0.03"},
        {{"a=1 b=2", "b=2 a=1"}, "", "b=2\na=1"},
        {{"a=1", "a=1 b=2"}, "", "a=1\nb=2"},
        {{"a=x y", "a=z"}, "", "a=z"},
        {{"all", "all"}, "", "all"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *cells[2] = {cases[i].cells[0], cases[i].cells[1]};
        char axis[64], label[128];
        const pl_audit a = {.cells = cells, .cell_count = 2};
        pl_figure_axis(axis, &a);
        pl_figure_cell(label, &a, 1);
        test_true(cases[i].cells[1], !strcmp(axis, cases[i].axis) && !strcmp(label, cases[i].label),
                  "axis '%s', label '%s'", axis, label);
    }
}

static void visible(void)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"a\n\t\r\x1b\x7f", "a\\n\\t\\r\\x1b\\x7f"},
        {"\xc2\x9b"
         "1m",
         "\\xc2\\x9b1m"},
        {"\xe2\x80\xaex", "\\xe2\\x80\\xaex"},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"\xc3", "\\xc3"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"n\\n", "n\\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[128] = "", room[PL_VISIBLE_CHARS];
        for (const char *s = cases[i].text; *s;) {
            s += pl_text_visible(room, s);
            strcat(out, room);
        }
        int plain = !strcmp(cases[i].text, cases[i].shown);
        test_true("visible",
                  !strcmp(out, cases[i].shown) &&
                      pl_text_is_plain(cases[i].text, strlen(cases[i].text)) == plain,
                  "%s", out);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_test_figure.XXXXXX");
    if (!mkdtemp(folder)) return 1;
    visible();
    labels();
    pages();
    endless_titles();
    int drawn = texts();
    if (drawn) {
        scripts();
        settings();
        cut_short();
    } else printf("    no gnuplot here: what it reads is not tested\n");
    folder_remove(folder);
    int failed = test_end();
    return failed ? failed : drawn ? 0 : 77;
}
