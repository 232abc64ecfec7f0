/* test_cli_data.c -- `polar data` from outside: argv[1] is the program. Sets are made by `polar data synth`,
 * spoilt by the shell, and looked at, packed and divided; wrong use, odd names, what cannot be read, a full
 * disk, Ctrl-C and kill -9.
 *
 *     test_cli_data ./polar
 *
 * With POLAR_EDGE_DIR=<a folder of awkward pictures> those are looked at and packed too, one class for all of
 * them.
 */
#include "cli_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <time.h>

#include "base/json_read.h"

/* ---- help and wrong use ------------------------------------------------------------------------- */

static void test_help(void)
{
    static const char *const names[] = {"data", "data pack", "data stat", "data subset", "data synth"};
    for (int i = 0; i < 5; i++) helps(names[i]);
}

static void test_wrong_use(void)
{
    sh("$P data synth $D/set --classes 4 --train 6 --val 2 --size 32");
    refused("$P data", 2, "pack, stat, subset, synth");
    refused("$P data pak", 2, "did you mean pack?");
    refused("$P data --jobs 2", 2, "pack, stat, subset, synth");
    refused("$P help data pak", 2, "did you mean pack?");
    refused("$P data pack", 2, "DIR is missing");
    refused("$P data pack $D/set", 2, "OUT is missing");
    refused("$P data pack $D/set $D/x $D/y", 2, "what is");
    refused("$P data pack $D/set $D/x --size 8193", 2, "0 to 8192");
    refused("$P data pack $D/set $D/x --filter nearest", 2, "bilinear, bicubic");
    refused("$P data pack $D/set $D/x --seed abc", 2, "--seed wants a whole number");
    refused("$P data pack $D/set $D/x --classes 5", 2, "5 classes");
    refused("$P data pack $D/set $D/x --jobs 257", 2, "0 to 256");
    refused("$P data pack $D/set $D/x --skip-bda", 2, "--skip-bad");
    refused("$P data pack $D/nowhere $D/x", 2, "no folder");
    refused("$P data pack $D/set/train/texture_000/00000.jpg $D/x", 2, "is a file, no folder");
    refused("$P data pack $D/set $D/no/such/x", 2, "there is no folder for it");
    refused("$P data pack $D/set $D/set", 2, "not a regular file");
    refused("mkfifo $D/pipe; $P data pack $D/set $D/pipe", 2, "not a regular file");
    refused("$P data stat", 2, "SET is missing");
    refused("$P data stat $D/nowhere", 2, "no folder");
    refused("$P data stat ''", 2, "SET is empty");
    refused("$P data stat $D/set/train", 2, "holds no train/");
    refused("$P data stat $D/set/train/texture_000/00000.jpg", 2, "no packed set");
    refused("$P data stat $D/set --format yaml", 2, "text, csv, json, tex");
    refused("$P data subset --classes 11 --of 10", 2, "11 classes");
    refused("$P data subset --classes 0", 2, "from 1 to");
    refused("$P data subset --seed 1.5", 2, "--seed wants a whole number");
    refused("$P data subset --seed -1", 2, "from 0 to");
    refused("$P data subset -o $D/x", 2, "-o wants DIR and one seed");
    refused("$P data subset $D/set --classes 2 --seed 1 --seed 2 -o $D/x", 2, "-o wants DIR and one seed");
    refused("$P data subset $D/set --classes 2 --of 4", 2, "--of and DIR exclude each other");
    refused("$P data subset $D/set --classes 2 -o $D/set", 2, "nothing is overwritten");
    refused("$P data subset $D/set --classes 2 -o $D/no/such/x", 2, "the folder above it is not there");
    refused("$P data synth", 2, "OUT is missing");
    refused("$P data synth $D/set", 2, "nothing is overwritten");
    refused("$P data synth $D/set/train/texture_000/00000.jpg/x", 2, "the folder above it is not there");
    refused("mkdir $D/here && cd $D/here && $P data synth .", 2, "give it a name");
    refused("$P data synth $D/x --classes 0", 2, "1 to 100000");
    refused("$P data synth $D/x --noise -1", 2, "0 to 255");
    refused("$P data synth $D/x --files gif", 2, "jpeg, png");
    refused("$P data synth $D/x --quality 101", 2, "1 to 100");
    test_true("nothing was written, nothing is left", !exists("x") && !count_files(".tmp"),
              "%d temporary names", count_files(".tmp"));
}

/* Pictures made by a device: what cannot be timed. */
static void test_bench(void)
{
    static const struct {
        const char *command, *says;
    } cases[] = {
        {"$P bench input --device ref --data $D/set --size 16 --batch 4", "does not make pictures"},
        {"$P bench input --device cpu:threads=1 --data $D/set --size 30", "in patches of 16"},
        {"$P bench input --device cpu:threads=1 --data $D/set --size 16 --batch 25", "no batch of 25"},
        {"$P bench input --device cpu:threads=1 --data $D/nowhere --size 16", "no folder"}};
    for (int i = 0; i < 4; i++) {
        int code = sh(cases[i].command);
        test_true(cases[i].command, code == 2 && strstr(last.err, cases[i].says), "%s", last.err);
    }
}

/* ---- what a user does first --------------------------------------------------------------------- */

static void test_work(void)
{
    accepted("$P data synth $D/made --classes 3 --train 4 --val 2 --size 24 --seed 5",
             "made: 3 classes, 12 training and 6 test pictures of 24 x 24\n");
    accepted("ls $D/made/train/texture_002 | tr '\\n' ' '", "00000.jpg 00001.jpg 00002.jpg 00003.jpg ");
    accepted("$P data synth $D/again --classes 3 --train 4 --val 2 --size 24 --seed 5 --jobs 1 >/dev/null && "
             "diff -r $D/made $D/again && echo same",
             "same");
    accepted("$P data synth $D/other --classes 3 --train 4 --val 2 --size 24 --seed 6 >/dev/null; diff -rq "
             "$D/made $D/other | wc -l | tr -d ' '",
             "18\n");
    accepted("$P data synth $D/one/ --classes 1 --train 1 --val 1 --files png",
             "1 class, 1 training and 1 test pictures");
    accepted("$P data stat $D/made --format csv | cut -d, -f1-9", "\ntrain,12,0,");
    accepted("$P data stat $D/made --decode --jobs 1 --format csv | cut -d, -f1-3,5-13,18",
             "\nval,6,0,2,2,6,0,0,6,0,0,0,24\n");
    accepted("$P data stat $D/made", "3 classes\n");
    accepted("$P data pack $D/made $D/made.pack", "3 classes, 12 training and 6 test pictures");
    accepted(
        "$P data pack $D/made $D/one.pack --jobs 1 >/dev/null && cmp $D/made.pack $D/one.pack && echo same",
        "same");
    accepted("$P data pack $D/made $D/small.pack --size 16 --filter bicubic --jobs 3",
             "small.pack: 3 classes");
    accepted("$P data stat $D/small.pack --decode --format csv | cut -d, -f1-3,18", "\ntest,6,0,16\n");
    accepted("$P data pack $D/made $D/two.pack --classes 2 --seed 7",
             "two.pack: 2 classes, 8 training and 4 test pictures");
    accepted("$P data pack $D/made $D/two.pack --size 8", "two.pack: 3 classes"); /* a file is replaced */
    refused("$P data pack $D/made.pack $D/x.pack", 2, "is a file, no folder");

    accepted("$P data subset $D/made --classes 2 --seed 7 -o $D/two --format csv", "label,number,class\n0,");
    accepted("$P data stat $D/two --format csv | cut -d, -f1-3", "train,8,0\nval,4,0\n");
    accepted("$P data pack $D/two $D/link.pack >/dev/null; $P data pack $D/made $D/chosen.pack --classes 2 "
             "--seed 7 >/dev/null; cmp $D/link.pack $D/chosen.pack && echo same",
             "same");
    accepted("cd $D && $P data subset two --classes 1 -o nested >/dev/null && $P data stat nested --format "
             "csv | cut -d, -f1-3",
             "train,4,0\n");
    refused("mv $D/made $D/moved; $P data stat $D/two", 2, "is a link that leads nowhere");
    sh("mv $D/moved $D/made");

    accepted("mkdir $D/odd_out; cd $D/odd_out; $P data synth -- -set >/dev/null && $P data pack -- -set "
             "-pack >/dev/null && $P data stat -- -pack",
             "10 classes\n");
    accepted("$P data stat $D/made --format json | head -c 1", "[");
    accepted("$P data stat $D/made --format tex", "\\begin{tabular}");
}

/* The paper's table of classes that its four seeds share, and one choice of CPython's:
 * random.Random(42).sample(range(10), 4). */
static void test_paper_subset(void)
{
    accepted("$P data subset --seed 42 --seed 7 --seed 123 --seed 2024 --format csv",
             "42,100,10,17,9\n7,10,100,9,4\n123,17,9,100,6\n2024,9,4,6,100\n");
    accepted("$P data subset --classes 4 --of 10 --format csv | cut -d, -f2 | tr '\\n' ' '",
             "number 0 1 4 9 ");
    refused("$P data subset --seed 1 --seed 2 --seed 3 --seed 4 --seed 5 --seed 6 --seed 7 --seed 8 --seed 9 "
            "--seed 10 --seed 11 --seed 12 --seed 13 --seed 14 --seed 15 --seed 16 --seed 17",
            2, "at most 16 seeds");
}

/* More than a thousand classes: the order of names is still the order of numbers, so that a folder has the
 * labels of the set it was drawn from. */
static void test_many_classes(void)
{
    accepted("$P data synth $D/many --classes 1001 --train 1 --val 1 --size 1 --files png", "1001 classes");
    accepted("$P data subset $D/many --classes 1001 --format csv | tail -n 2 | tr '\\n' ' '",
             "999,999,texture_0999 1000,1000,texture_1000 ");
    sh("rm -r $D/many");
}

/* Test pictures in one heap with a list of their classes, as in Tiny-ImageNet: what is linked has the labels
 * of what it was linked from. */
static void test_listed(void)
{
    sh("rm -rf $D/listed; cp -r $D/made $D/listed && cd $D/listed/val && mkdir images && for c in texture_*; "
       "do "
       "for f in $c/*; do mv $f images/$c.${f##*/}; printf '%s.%s\\t%s\\t0\\t0\\n' $c ${f##*/} $c; done; "
       "rmdir "
       "$c; done >val_annotations.txt");
    accepted(
        "$P data subset $D/made --classes 2 --seed 7 -o $D/of_made >/dev/null && $P data subset $D/listed "
        "--classes 2 --seed 7 -o $D/of_listed >/dev/null && ls $D/of_listed/val && cat $D/of_made/val/*/* "
        "| cksum >$D/sums && cat $D/of_listed/val/*/* | cksum | cmp - $D/sums && echo same",
        "same");
    sh("rm -r $D/listed $D/of_made $D/of_listed $D/sums");
}

/* ---- folders that are not as they should be ----------------------------------------------------- */

static void fresh_set(void)
{
    sh("chmod -R u+rwx $D/bad; rm -rf $D/bad; cp -r $D/made $D/bad");
}

static void test_folders(void)
{
    static const struct {
        const char *spoil, *says;
    } cases[] = {
        {"rm -r $D/bad/train", "holds no train/"},
        {"rm -r $D/bad/val", "neither val/ nor test/"},
        {"rm $D/bad/train/texture_001/*", "train/texture_001' holds no JPEG or PNG picture"},
        {"rm $D/bad/val/texture_002/*", "val/texture_002' holds no JPEG or PNG picture"},
        {"rm -r $D/bad/train/texture_001", "class 'texture_001' is in val/ but not in train/"},
        {"rm -r $D/bad/val/texture_001", "class 'texture_001' is in train/ but not in val/"},
        {"rm -r $D/bad/train/* && cp $D/made/train/texture_000/* $D/bad/train",
         "train' holds no class folders"},
        {"ln -s /nowhere $D/bad/train/texture_000/x.jpg", "texture_000/x.jpg' is a link that leads nowhere"},
        {"ln -s /nowhere $D/bad/train/zebra; ln -s /nowhere $D/bad/val/zebra",
         "zebra' is a link that leads nowhere"},
        {"ln -s loop $D/bad/train/texture_000/loop", "loop' is a link that leads nowhere"},
        {"ln -s . $D/bad/train/texture_000/round", "folders deep"},
        {": >$D/bad/train/texture_000/x.jpg", "texture_000/x.jpg: the file is empty"},
        {"echo hello >$D/bad/val/texture_000/x.png", "val/texture_000/x.png: neither JPEG nor PNG"},
        {"printf 'GIF89a....' >$D/bad/val/texture_000/x.jpg", "it looks like GIF (convert it first)"},
        {"printf 'RIFF....WEBPVP8 ' >$D/bad/val/texture_000/x.webp", "it looks like WebP (convert it first)"},
        {"head -c 300 $D/made/train/texture_000/00000.jpg >$D/bad/train/texture_000/00000.jpg",
         "train/texture_000/00000.jpg: broken JPEG: ends early"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        fresh_set();
        snprintf(command, sizeof command, "%s; $P data pack $D/bad $D/x.pack", cases[i].spoil);
        refused(command, 2, cases[i].says);
        refused("$P data stat $D/bad --decode", 2, cases[i].says);
    }
    test_true("no pack of a folder that is wrong", !exists("x.pack") && !count_files(".tmp"),
              "%d temporary names", count_files(".tmp"));

    fresh_set();
    accepted(
        "mkdir $D/bad/train/texture_000/x.jpg; mkfifo $D/bad/train/texture_000/y.jpg; echo a "
        ">$D/bad/train/a.txt; : >$D/bad/train/texture_000/.x.jpg; $P data stat $D/bad --decode --format csv",
        "train,12,0,");
    test_true("a pipe and a text are spoken of", strstr(last.err, "note: 2 files are no pictures") != NULL,
              "%s", first_line(last.err));
    fresh_set();
    accepted("mv $D/bad/val $D/bad/test; $P data stat $D/bad --format csv", "\ntest,6,0,");
}

static void test_broken_pictures(void)
{
    fresh_set();
    sh("for i in 0 1 2; do head -c 200 $D/made/train/texture_001/0000$i.jpg "
       ">$D/bad/train/texture_001/0000$i.jpg; done");
    accepted("$P data stat $D/bad --decode --skip-bad --format csv | cut -d, -f1-3", "train,12,3\n");
    test_true("stat names them",
              last.err_lines == 3 && strstr(last.err, "broken: ") &&
                  strstr(last.err, "texture_001/00002.jpg: broken JPEG: ends early"),
              "%s", first_line(last.err));
    accepted("$P data pack $D/bad $D/skipped.pack --skip-bad", "left out as broken: 3\n");
    test_true("pack names them",
              strstr(last.err, "left out: ") && strstr(last.err, "texture_001/00000.jpg: "), "%s",
              first_line(last.err));
    accepted("$P data stat $D/skipped.pack --decode --format csv | cut -d, -f1-3", "train,9,0\n");
    sh("head -c 200 $D/made/train/texture_001/00003.jpg >$D/bad/train/texture_001/00003.jpg; $P data pack "
       "$D/bad $D/none.pack --skip-bad");
    test_true("a class without a whole picture",
              last.code == 2 && !exists("none.pack") &&
                  strstr(last.err, "every picture of class 'texture_001' in train/"),
              "exit %d", last.code);

    /* 30 of them: pack names twenty, stat every one */
    fresh_set();
    sh("for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t; do echo no "
       ">$D/bad/train/texture_000/$i.jpg; done; $P data pack $D/bad $D/thirty.pack --skip-bad");
    test_true("thirty: pack names twenty",
              last.code == 0 && last.err_lines == 22 && strstr(last.err, "... and 10 more"), "%d lines",
              last.err_lines);
    sh("$P data stat $D/bad --skip-bad");
    test_true("thirty: stat names all", last.code == 0 && last.err_lines == 30, "%d lines", last.err_lines);

    sh("cp $D/made.pack $D/hurt.pack; printf X | dd of=$D/hurt.pack bs=1 seek=5000 conv=notrunc 2>/dev/null");
    accepted("$P data stat $D/hurt.pack", "3 classes"); /* sizes only: pixels are not looked at */
    refused("$P data stat $D/hurt.pack --decode", 2, "are not those written (pack it again)");
    accepted("$P data stat $D/hurt.pack --decode --skip-bad --format csv | cut -d, -f1-3", "train,12,1\n");
    refused("head -c 9000 $D/made.pack >$D/cut.pack; $P data stat $D/cut.pack", 2, "cut short");
    refused(
        "printf 'X' | dd of=$D/hurt.pack bs=1 seek=40 conv=notrunc 2>/dev/null; $P data stat $D/hurt.pack", 2,
        "damaged");
}

/* ---- names -------------------------------------------------------------------------------------- */

static void test_names(void)
{
    char text[TEXT_BYTES];
    sh("mkdir -p $D/names/train $D/names/val; for c in '-dash' 'comma,class' 'quo\"te' 'per%s%n' '_&$#{}~^' "
       "'a b' 'back\\\\slash' \"$(printf 'bad\\377utf')\" \"$(printf '\\303\\274')\" "
       "\"$(printf 'l%0200d' 0)\" \"$(printf 'esc\\033[31m')\" \"$(printf 'new\\nline')\"; do for s in train "
       "val; do "
       "mkdir \"$D/names/$s/$c\" && cp $D/made/train/texture_000/00000.jpg \"$D/names/$s/$c/it's ; "
       "$c.JPeG\"; done; done");
    accepted("$P data stat $D/names --decode --format csv | cut -d, -f1-3", "train,12,0\nval,12,0\n");
    accepted("$P data pack $D/names $D/names.pack", "12 classes, 12 training and 12 test pictures");
    accepted("$P data subset $D/names --classes 12 -o $D/names_linked >/dev/null; $P data pack "
             "$D/names_linked $D/linked.pack >/dev/null; cmp $D/names.pack $D/linked.pack && echo same",
             "same");
    accepted("$P data subset $D/names --classes 12 --format csv", "\"comma,class\"\n");
    accepted("$P data subset $D/names --classes 12 --format json", "\"new\\nline\"");
    memcpy(text, last.out, sizeof text);
    int n = 0, ok = 1;
    pl_json p = pl_json_view(text, (int64_t)strlen(text), "subset");
    do {
        ok = pl_json_next(&p) == POLAR_OK;
        n += ok && p.token == PL_JSON_OBJECT;
    } while (ok && p.token != PL_JSON_END);
    test_true("JSON of odd names is JSON", ok && n == 12 && pl_utf8_valid(text, (int64_t)strlen(text)),
              "%d objects", n);
    sh("for f in $D/names/train/*/*; do : >\"$f\"; done; $P data stat $D/names --skip-bad");
    int lines = 0;
    for (const char *c = last.err; *c; c++)
        lines += *c == '\n', ok = ok && ((unsigned char)*c >= 0x20 || *c == '\n');
    test_true("a line for each, whatever it is called", last.code == 0 && ok && lines == 12,
              "%d lines for 12 broken pictures", lines);
}

/* ---- what cannot be read or written ------------------------------------------------------------- */

/* As `sh`, by a user to whom modes mean something: root may do everything. 0 where that cannot be. */
static int as_nobody(const char *command)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out = open("/dev/null", O_RDWR),
            err = open(in_folder("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (out < 0 || err < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(127);
        if (!geteuid() && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) _exit(126);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    last.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
    slurp(last.err, "stderr");
    return last.code != 126;
}

static void denied(const char *spoil, const char *command, const char *says)
{
    fresh_set();
    sh("chmod 777 $D; chmod -R a+rX $D/bad");
    sh(spoil);
    if (!as_nobody(command)) return;
    test_true(command, last.code == 3 && strstr(last.err, says) && strstr(last.err, "Permission denied"),
              "after %s: exit %d: %s", spoil, last.code, first_line(last.err));
}

static void test_permissions(void)
{
    sh("cp $P $D/polar; chmod 755 $D/polar"); /* from a place where everybody may run it */
    static const char look[] = "exec \"$D/polar\" data stat \"$D/bad\"";
    denied("chmod 0 $D/bad", look, "bad");
    denied("chmod 0 $D/bad/train", look, "bad/train");
    denied("chmod 0 $D/bad/val", look, "bad/val");
    denied("chmod 0 $D/bad/train/texture_001", look, "train/texture_001");
    denied("chmod 0 $D/bad/train/texture_001/00002.jpg", look, "texture_001/00002.jpg");
    /* unreadable is not broken */
    denied("chmod 0 $D/bad/train/texture_001/00002.jpg",
           "exec \"$D/polar\" data pack \"$D/bad\" \"$D/x.pack\" --skip-bad", "texture_001/00002.jpg");
    denied("cp $D/made.pack $D/bad/x; chmod 0 $D/bad/x", "exec \"$D/polar\" data stat \"$D/bad/x\"", "bad/x");
    denied("chmod 555 $D/bad", "exec \"$D/polar\" data pack \"$D/bad\" \"$D/bad/x.pack\"", "bad/x.pack");
    denied("chmod 555 $D/bad", "exec \"$D/polar\" data synth \"$D/bad/x\"", "bad/x");
    denied("chmod 555 $D/bad", "exec \"$D/polar\" data subset \"$D/bad\" --classes 1 -o \"$D/bad/x\"",
           "bad/x");
    test_true("nothing was written", !exists("x.pack") && !count_files(".tmp"), "%d temporary names",
              count_files(".tmp"));
}

/* A limit on the size of files stands for a full disk: the write that fails is the same one. */
static void test_full_disk(void)
{
    sh("echo old >$D/keep.pack");
    refused("trap '' XFSZ; ulimit -f 16; $P data pack $D/made $D/keep.pack", 3, "File too large");
    accepted("cat $D/keep.pack", "old\n");
    refused("trap '' XFSZ; ulimit -f 1; $P data synth $D/full --classes 2 --train 2 --val 1 --size 256", 3,
            "File too large");
    test_true("no rest of either", !exists("full") && !count_files(".tmp"), "%d temporary names",
              count_files(".tmp"));
    struct stat full;
    /* not on every machine */
    if (!stat("/dev/full", &full) && S_ISCHR(full.st_mode))
        refused("$P data stat $D/made >/dev/full", 3, "standard output");
}

/* ---- signals ------------------------------------------------------------------------------------ */

static void run_and_signal(char *const *words, int number, int milliseconds)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out = open("/dev/null", O_RDWR),
            err = open(in_folder("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        signal(SIGINT, SIG_DFL); /* a shell's background job ignores it */
        if (out < 0 || err < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(127);
        execv(program, words);
        _exit(127);
    }
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
    kill(child, number);
    int status = 0;
    waitpid(child, &status, 0);
    last.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    slurp(last.err, "stderr");
}

/* At whatever moment the signal comes: before the work began it kills, later the command leaves by itself
 * (130, and says so), or it was done. Nothing half made is seen. 24 moments, and later ones until five came
 * during the work: under a sanitizer or a load it begins late. */
static void test_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    char from[80], pack[80], set[80];
    snprintf(from, sizeof from, "%s/big", folder);
    snprintf(pack, sizeof pack, "%s/killed.pack", folder);
    snprintf(set, sizeof set, "%s/killed", folder);
    sh("$P data synth $D/big --classes 4 --train 60 --val 4 --size 200");
    char *const commands[3][8] = {{"polar", "data", "pack", from, pack, "--jobs", "2", NULL},
                                  {"polar", "data", "synth", set, "--train", "1000000", "--size=200", NULL},
                                  {"polar", "data", "stat", from, "--decode", "--jobs", "1", NULL}};
    int stopped = 0, wrong = 0, early = 0, done = 0, n = 0;
    for (; n < 24 || (stopped < 5 && n < 1000); n++) {
        run_and_signal(commands[n % 3], numbers[n / 3 % 3], n * 6);
        stopped += last.code == 130;
        early += last.code > 1000;
        done += last.code == 0;
        wrong += last.code == 130 ? !strstr(last.err, "stopped: ") || last.err_lines > 1
                                  : last.code && last.code < 1000;
        wrong += exists("killed") || count_files(".tmp");
        if (exists("killed.pack")) {
            sh("$P data stat $D/killed.pack --decode && rm $D/killed.pack");
            wrong += last.code != 0;
        }
    }
    test_true("stopped at 24 moments or more", !wrong && stopped > 4,
              "%d: %d said 130, %d before the work, %d done, %d wrong", n, stopped, early, done, wrong);

    /* kill -9 may leave a temporary name, never a half pack; the next run is not hindered by it */
    wrong = 0;
    for (int i = 0; i < 8; i++) {
        run_and_signal(commands[0], SIGKILL, 10 + 10 * i);
        if (!exists("killed.pack")) continue;
        sh("$P data stat $D/killed.pack --decode && rm $D/killed.pack");
        wrong += last.code != 0;
    }
    sh("$P data pack $D/big $D/killed.pack && $P data stat $D/killed.pack --decode");
    test_true("killed at 8 moments", !wrong && last.code == 0, "%d half packs; %d temporary names were left",
              wrong, count_files("killed.pack.tmp"));
}

/* ---- a folder of awkward pictures --------------------------------------------------------------- */

static void test_edge_folder(const char *edge)
{
    setenv("E", edge, 1);
    sh("mkdir -p $D/edge/train/all $D/edge/val/all && cp $E/* $D/edge/train/all && cp $E/* $D/edge/val/all "
       "&& $P data stat $D/edge --decode --skip-bad");
    test_true("POLAR_EDGE_DIR: stat", last.code == 0 && strstr(last.out, "1 class\n"), "%d are refused",
              last.err_lines);
    sh("$P data pack $D/edge $D/edge.pack --skip-bad && $P data stat $D/edge.pack --decode");
    test_true("POLAR_EDGE_DIR: pack", last.code == 0, "exit %d: %s", last.code, first_line(last.out));
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    test_help();
    test_wrong_use();
    test_bench();
    test_work();
    test_paper_subset();
    test_many_classes();
    test_listed();
    test_folders();
    test_broken_pictures();
    test_names();
    test_permissions();
    test_full_disk();
    test_signals();
    const char *edge = getenv("POLAR_EDGE_DIR");
    if (edge && *edge) test_edge_folder(edge);
    return cli_end();
}
