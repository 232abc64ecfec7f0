/* test_image_folder.c -- folders of pictures: torchvision's order and labels, what is passed over, every
 * complaint, subsets, and memory that runs out. */
#include "fixtures/folder.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/image.h"
#include "data/set/image_folder.h"
#include "data/set/image_set.h"
#include "data/codec/image_write.h"

static char root[64];

static void path_of(char out[512], const char *name)
{
    snprintf(out, 512, "%s/%s", root, name);
}

static void make_folder(const char *name)
{
    char path[512];
    path_of(path, name);
    for (char *p = path + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0777);
            *p = '/';
        }
    if (mkdir(path, 0777) != 0 && errno != EEXIST) exit(1);
}

/* A file with its folders: a small picture, or the given text. */
static void make_file(const char *name, const char *text)
{
    char path[512], folder[512];
    snprintf(folder, sizeof folder, "%s", name);
    *strrchr(folder, '/') = 0;
    make_folder(folder);
    path_of(path, name);
    unlink(path);
    if (text) {
        FILE *f = fopen(path, "w");
        if (!f) exit(1);
        fputs(text, f);
        fclose(f);
        return;
    }
    uint8_t pixels[3 * 12 * 10];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7 + strlen(name));
    pl_image im = pl_image_view(pixels, 12, 10);
    TEST_TRY(pl_image_write(path, &im, strstr(name, "png") ? PL_IMAGE_PNG : PL_IMAGE_JPEG, 90));
}

static void make_set(const char *name)
{
    static const char *const files[] = {"train/b/2.jpg",        "train/b/10.JPEG",     "train/b/sub/1.png",
                                        "train/b/sub-a/1.jpg",  "train/b/sub/x/0.jpg", "train/a/x.jpg",
                                        "train/\xc3\xa9/y.png", "train/B/z.jpg",       "val/a/1.jpg",
                                        "val/b/1.jpg",          "val/\xc3\xa9/1.jpg",  "val/B/1.jpg"};
    char path[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        make_file(path, NULL);
    }
}

static void test_order(void)
{
    char path[512];
    pl_image_folder *f;
    make_set("good");
    make_file("good/train/a/picture_without_ending", NULL); /* a JPEG by its content */
    make_file("good/train/a/notes.txt", "not a picture");
    make_file("good/train/a/.hidden.jpg", "never looked at");
    make_file("good/train/README", "beside the classes");
    path_of(path, "good//");
    TEST_TRY(pl_image_folder_open(&f, path));
    static const char *const classes[] = {"B", "a", "b", "\xc3\xa9"};
    /* sorted(os.walk()) compares folders as strings: "b", "b/sub", "b/sub-a", "b/sub/x" */
    static const char *const train[] = {"train/B/z.jpg",       "train/a/picture_without_ending",
                                        "train/a/x.jpg",       "train/b/10.JPEG",
                                        "train/b/2.jpg",       "train/b/sub/1.png",
                                        "train/b/sub-a/1.jpg", "train/b/sub/x/0.jpg",
                                        "train/\xc3\xa9/y.png"};
    static const int labels[] = {0, 1, 1, 2, 2, 2, 2, 2, 3};
    int64_t wrong = f->classes != 4 || f->count[PL_IMAGES_TRAIN] != 9 || f->count[PL_IMAGES_TEST] != 4 ||
                    f->passed_over != 2 || strcmp(f->split_name[PL_IMAGES_TEST], "val");
    for (int i = 0; !wrong && i < 4; i++) wrong += strcmp(pl_image_folder_class(f, i), classes[i]) != 0;
    for (int i = 0; !wrong && i < 9; i++) {
        char full[512], want[600];
        wrong += strcmp(pl_image_folder_name(f, PL_IMAGES_TRAIN, i), train[i]) ||
                 f->items[PL_IMAGES_TRAIN][i].label != labels[i];
        TEST_TRY(pl_image_folder_path(full, sizeof full, f, PL_IMAGES_TRAIN, i));
        snprintf(want, sizeof want, "%s/good/%s", root, train[i]);
        wrong += strcmp(full, want) != 0;
    }
    test_exact("classes, order, labels", wrong);

    static const int64_t chosen[] = {3, 1}, twice[] = {1, 1}, outside[] = {4};
    polar_status a = pl_image_folder_select(f, twice, 2), b = pl_image_folder_select(f, outside, 1);
    test_true("a choice of classes that are not there",
              a == POLAR_E_ARG && b == POLAR_E_ARG && f->classes == 4, "%s", polar_error_message());
    TEST_TRY(pl_image_folder_select(f, chosen, 2));
    wrong = f->classes != 2 || strcmp(pl_image_folder_class(f, 0), "a") ||
            strcmp(pl_image_folder_class(f, 1), "\xc3\xa9") || f->count[0] != 3 || f->count[1] != 2;
    for (int i = 0; !wrong && i < 3; i++) wrong += f->items[0][i].label != (i == 2);
    test_exact("two classes chosen", wrong);
    pl_image_folder_close(f);
}

static void expect(const char *what, const char *name, const char *says, const char *says_too)
{
    char path[512];
    pl_image_folder *f;
    int64_t live = pl_alloc_live();
    path_of(path, name);
    polar_status st = pl_image_folder_open(&f, path);
    int ok = st == POLAR_E_ARG && !f && strstr(polar_error_message(), says) &&
             strstr(polar_error_message(), says_too) && pl_alloc_live() == live;
    test_true(what, ok, "%s", polar_error_message());
    pl_image_folder_close(f);
}

static void test_complaints(void)
{
    char from[512], to[512];
    expect("no folder at all", "nowhere", "no folder", "train/ and val/");
    make_folder("empty");
    expect("an empty folder", "empty", "holds no train/", "one sub-folder per class");
    make_file("file.txt/x", "x");
    expect("a file instead", "file.txt/x", "no folder", "x");
    make_file("half/train/a/1.jpg", NULL);
    expect("without val/", "half", "neither val/ nor test/", "half");
    make_file("flat/train/1.jpg", NULL);
    make_file("flat/val/1.jpg", NULL);
    expect("pictures without class folders", "flat", "no class folders", "train/<class>/");
    make_set("hollow");
    make_folder("hollow/train/nothing");
    make_file("hollow/val/nothing/1.jpg", NULL);
    expect("an empty class", "hollow", "train/nothing' holds no JPEG or PNG picture", "hollow");
    make_file("hollow/train/nothing/notes.txt", "words only");
    expect("a class of texts", "hollow", "train/nothing' holds no JPEG or PNG picture", "hollow");
    make_set("more");
    make_file("more/val/c/1.jpg", NULL);
    expect("a class in val/ only", "more", "class 'c' is in val/ but not in train/", "more");
    make_set("fewer");
    make_file("fewer/train/0/1.jpg", NULL);
    expect("a class in train/ only", "fewer", "class '0' is in train/ but not in val/", "fewer");
    make_set("circle");
    path_of(from, "circle/train/a");
    path_of(to, "circle/train/a/again");
    if (symlink(from, to) != 0) exit(1);
    expect("a link in a circle", "circle", "folders deep", "circle");
}

/* test/ where there is no val/; with both, val/. */
static void test_splits(void)
{
    char path[512];
    pl_image_folder *f;
    make_file("tested/train/a/1.jpg", NULL);
    make_file("tested/test/a/1.jpg", NULL);
    make_file("tested/test/a/2.jpg", NULL);
    path_of(path, "tested");
    TEST_TRY(pl_image_folder_open(&f, path));
    int ok = f->count[PL_IMAGES_TEST] == 2 && !strcmp(f->split_name[PL_IMAGES_TEST], "test");
    pl_image_folder_close(f);
    make_file("tested/val/a/1.jpg", NULL);
    TEST_TRY(pl_image_folder_open(&f, path));
    ok = ok && f->count[PL_IMAGES_TEST] == 1 && !strcmp(f->split_name[PL_IMAGES_TEST], "val");
    pl_image_folder_close(f);
    test_true("val/ before test/", ok, "2 pictures of test/, then 1 of val/");
}

/* As Tiny-ImageNet comes: train/<class>/images/, val/images/ with a list of classes. */
#define LIST "val/val_annotations.txt"

static void make_listed(const char *name, const char *list)
{
    static const char *const files[] = {"train/n2/images/n2_0.JPEG", "train/n2/images/n2_1.JPEG",
                                        "train/n1/images/n1_0.JPEG", "val/images/val_0.JPEG",
                                        "val/images/val_1.JPEG",     "val/images/val_10.JPEG",
                                        "val/images/val_2.JPEG",     "test/images/test_0.JPEG"};
    char path[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        make_file(path, NULL);
    }
    snprintf(path, sizeof path, "%s/train/n2/n2_boxes.txt", name);
    make_file(path, "n2_0.JPEG\t0\t0\t9\t9\n");
    snprintf(path, sizeof path, "%s/%s", name, LIST);
    make_file(path, list);
}

static void test_listed(void)
{
    static const char *const val[] = {"val/images/val_10.JPEG", "val/images/val_2.JPEG",
                                      "val/images/val_0.JPEG", "val/images/val_1.JPEG"};
    static const int labels[] = {0, 0, 1, 1};
    char path[512];
    pl_image_folder *f;
    make_listed("tiny", "val_0.JPEG\tn2\t0\t32\t44\t62\nval_1.JPEG\tn2\t1\t2\t3\t4\r\nval_10.JPEG\tn1\n\n"
                        "val_2.JPEG\tn1\t0\t0\t1\t1");
    path_of(path, "tiny");
    TEST_TRY(pl_image_folder_open(&f, path));
    int64_t wrong = f->classes != 2 || f->count[PL_IMAGES_TRAIN] != 3 || f->count[PL_IMAGES_TEST] != 4 ||
                    f->passed_over != 1;
    for (int i = 0; !wrong && i < 4; i++)
        wrong += strcmp(pl_image_folder_name(f, PL_IMAGES_TEST, i), val[i]) ||
                 f->items[PL_IMAGES_TEST][i].label != labels[i];
    static const int64_t second[] = {1};
    TEST_TRY(pl_image_folder_select(f, second, 1));
    wrong += f->count[PL_IMAGES_TRAIN] != 2 || f->count[PL_IMAGES_TEST] != 2;
    pl_image_folder_close(f);
    test_exact("val/ as a heap with a list of classes", wrong);
    make_file("tiny/" LIST, "val_0.JPEG\tn2\nval_3.JPEG\tn1\n");
    expect("a listed picture that is not there", "tiny", "val_3.JPEG", "not in val/images/");
    make_file("tiny/" LIST, "val_0.JPEG\tn2\nval_1.JPEG\tn3\n");
    expect("a listed class that is not there", "tiny", "class 'n3'", "not in train/");
    make_file("tiny/" LIST, "val_0.JPEG\tn2\n");
    expect("a class that the list leaves out", "tiny", "no picture of class 'n1'", "val_annotations.txt");
    make_file("tiny/" LIST, "val_0.JPEG n2\n");
    expect("a line without a tab", "tiny", "no file name, tab, class", "val_0.JPEG n2");
}

static void test_memory(void)
{
    char path[512];
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0;
    path_of(path, "good");
    for (; st != POLAR_OK && n < 1000; n++) {
        int64_t live = pl_alloc_live();
        pl_image_set *s;
        pl_picture p = {0};
        pl_alloc_fail_at(n + 1);
        st = pl_image_set_open(&s, path);
        static const int64_t chosen[] = {2, 0};
        if (st == POLAR_OK) st = pl_image_set_select(s, chosen, 2);
        if (st == POLAR_OK) st = pl_picture_open(&p, s, PL_IMAGES_TRAIN, 1);
        if (st == POLAR_OK) st = pl_picture_read(&p, (pl_box){1, 2, 5, 4});
        pl_alloc_fail_at(0);
        wrong += st != POLAR_OK && st != POLAR_E_NOMEM;
        pl_picture_drop(&p);
        pl_image_set_close(s);
        wrong += pl_alloc_live() != live;
    }
    test_true("memory runs out", st == POLAR_OK && n > 5 && !wrong, "%lld allocations, %lld wrong",
              (long long)n - 1, (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(root, sizeof root, "/tmp/polar_test_folder.XXXXXX");
    if (!mkdtemp(root)) return 1;
    test_order();
    test_complaints();
    test_splits();
    test_listed();
    test_memory();
    folder_remove(root);
    return test_end();
}
