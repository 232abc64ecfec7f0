/* test_image_pack.c -- made textures, their folder, the packed set and the face of all three (image_set.h):
 * the same pixels everywhere, whole files or none, damage seen. */
#include "fixtures/folder.h"
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "data/codec/image_file.h"
#include "data/set/image_pack.h"
#include "data/set/image_set.h"
#include "data/set/image_stat.h"
#include "data/set/image_synth.h"
#include "../../cli/file_signal.c" /* as the program has it */

static char root[64], set_path[96], pack_path[96];

static pl_synth_opts small_set(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    o.classes = 5;
    o.per_class[PL_IMAGES_TRAIN] = 4;
    o.per_class[PL_IMAGES_TEST] = 2;
    o.size = 40;
    o.seed = 3;
    o.format = PL_IMAGE_PNG; /* lossless: files can be compared with what was drawn */
    return o;
}

static pl_image_folder *open_folder(void)
{
    pl_image_folder *f;
    TEST_TRY(pl_image_folder_open(&f, set_path));
    return f;
}

/* ---- textures ----------------------------------------------------------------------------------- */

static void test_synth(void)
{
    pl_synth_opts o = small_set();
    pl_image im, file;
    int stopped;
    int64_t wrong = 0;
    TEST_TRY(pl_image_synth_write(&stopped, &o, set_path));
    TEST_TRY(pl_image_create(&im, o.size, o.size));
    pl_image_folder *f = open_folder();
    for (int s = 0; s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; i < f->count[s]; i++) {
            char path[512];
            TEST_TRY(pl_image_folder_path(path, sizeof path, f, s, i));
            TEST_TRY(pl_image_decode_file(&file, path));
            pl_image_synth_draw(&im, &o, s, i / o.per_class[s], i % o.per_class[s]);
            wrong += file.width != o.size || file.height != o.size ||
                     memcmp(file.data, im.data, pl_image_bytes(&im)) ||
                     f->items[s][i].label != i / o.per_class[s];
            pl_image_destroy(&file);
        }
    test_true("files hold what was drawn",
              PART(!wrong) && PART(!stopped) && PART(f->classes == 5) && PART(f->count[0] == 20) &&
                  PART(f->count[1] == 10),
              "%lld of 30 differ", (long long)wrong);
    pl_image_folder_close(f);

    pl_image_synth_draw(&im, &o, PL_IMAGES_TRAIN, 2, 1);
    uint64_t one = pl_checksum_of(im.data, pl_image_bytes(&im));
    pl_image_synth_draw(&im, &o, PL_IMAGES_TEST, 2, 1);
    uint64_t other = pl_checksum_of(im.data, pl_image_bytes(&im));
    test_true("a texture's bytes, here as everywhere", one == 0x39e7f68c42ecfed5ull && one != other,
              "%016llx", (unsigned long long)one);
    pl_image_destroy(&im);

    polar_status st = pl_image_synth_write(&stopped, &o, set_path);
    test_true("a folder that is there is not overwritten",
              st == POLAR_E_ARG && strstr(polar_error_message(), "nothing is overwritten"), "%s",
              polar_error_message());
    char path[128];
    atomic_int stop = 1;
    o.stop = &stop;
    snprintf(path, sizeof path, "%s/never", root);
    TEST_TRY(pl_image_synth_write(&stopped, &o, path));
    test_true("stopped: no folder, no rest", stopped && access(path, F_OK) != 0 && folder_files(root) == 1,
              "%d files beside the set", folder_files(root) - 1);
}

/* ---- packing ------------------------------------------------------------------------------------ */

static void test_pixels(void)
{
    pl_image_folder *f = open_folder();
    pl_pack_result r;
    pl_pack_opts o = {.workers = 2};
    TEST_TRY(pl_image_pack_write(&r, pack_path, f, &o));
    pl_image_pack *p;
    TEST_TRY(pl_image_pack_open(&p, pack_path));
    const pl_pack_header *h = pl_image_pack_header(p);
    int64_t wrong = h->classes != 5 || h->count[0] != 20 || h->count[1] != 10 || r.bad || r.count[0] != 20 ||
                    r.bytes != (int64_t)h->file_bytes || memcmp(h->sha256, r.sha256, 64);
    for (int s = 0; !wrong && s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; i < f->count[s]; i++) {
            char path[512];
            pl_image file, packed = pl_image_pack_view(p, s, i);
            TEST_TRY(pl_image_folder_path(path, sizeof path, f, s, i));
            TEST_TRY(pl_image_decode_file(&file, path));
            wrong += packed.width != file.width || packed.height != file.height ||
                     memcmp(packed.data, file.data, pl_image_bytes(&file)) ||
                     (uintptr_t)packed.data % PL_PACK_ALIGN;
            wrong += strcmp(pl_image_pack_name(p, s, i), pl_image_folder_name(f, s, i)) ||
                     pl_image_pack_label(p, s, i) != f->items[s][i].label;
            wrong += pl_image_pack_check(p, s, i) != POLAR_OK;
            pl_image_destroy(&file);
        }
    for (int64_t c = 0; !wrong && c < 5; c++)
        wrong += strcmp(pl_image_pack_class(p, c), pl_image_folder_class(f, c)) != 0;
    test_exact("packed without resizing", wrong);
    pl_image_pack_close(p);
    pl_image_folder_close(f);
}

static void test_resized(void)
{
    pl_image_folder *f = open_folder();
    pl_resizer *z;
    TEST_TRY(pl_resizer_create(&z));
    for (int filter = 0; filter < PL_FILTERS; filter++) {
        pl_pack_result r;
        pl_file_bytes bytes[4] = {{0}};
        for (int w = 0; w < 4; w++) { /* 0, 1, 2, 4 workers */
            pl_pack_opts o = {.side = 17, .filter = (pl_filter)filter, .workers = w == 3 ? 4 : w};
            TEST_TRY(pl_image_pack_write(&r, pack_path, f, &o));
            TEST_TRY(pl_file_bytes_read(&bytes[w], pack_path, 0));
        }
        int64_t differ = 0;
        for (int w = 1; w < 4; w++)
            differ += bytes[w].size != bytes[0].size || memcmp(bytes[w].data, bytes[0].data, bytes[0].size);
        pl_image_pack *p;
        TEST_TRY(pl_image_pack_open(&p, pack_path));
        for (int64_t i = 0; i < f->count[0]; i++) {
            char path[512];
            uint8_t want[17 * 17 * 3];
            pl_image file, packed = pl_image_pack_view(p, PL_IMAGES_TRAIN, i);
            TEST_TRY(pl_image_folder_path(path, sizeof path, f, PL_IMAGES_TRAIN, i));
            TEST_TRY(pl_image_decode_file(&file, path));
            pl_resize_args a = {.out = want,
                                .src = file.data,
                                .src_width = 40,
                                .src_height = 40,
                                .src_stride = 120,
                                .out_width = 17,
                                .out_height = 17,
                                .filter = (pl_filter)filter};
            TEST_TRY(pl_resize(z, &a));
            differ += packed.width != 17 || packed.height != 17 || memcmp(packed.data, want, sizeof want);
            pl_image_destroy(&file);
        }
        test_exact(filter ? "bicubic to 17, 0 to 4 workers" : "bilinear to 17, 0 to 4 workers", differ);
        pl_image_pack_close(p);
        for (int w = 0; w < 4; w++) pl_file_bytes_drop(&bytes[w]);
    }
    pl_resizer_destroy(z);
    pl_image_folder_close(f);
}

/* ---- one face ----------------------------------------------------------------------------------- */

static int64_t sets_differ(const pl_image_set *a, const pl_image_set *b)
{
    pl_picture p = {0}, q = {0};
    int64_t wrong = pl_image_set_classes(a) != pl_image_set_classes(b);
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) {
        wrong += pl_image_set_count(a, s) != pl_image_set_count(b, s);
        for (int64_t i = 0; !wrong && i < pl_image_set_count(a, s); i++) {
            TEST_TRY(pl_picture_open(&p, a, s, i));
            TEST_TRY(pl_picture_open(&q, b, s, i));
            wrong += p.width != q.width || p.height != q.height || p.label != q.label ||
                     p.label != pl_image_set_label(a, s, i);
            for (int t = 0; t < 3; t++) {
                /* the first one is all of it */
                pl_box box = {t * (i % 7), t * 3, p.width - t * 11, p.height - t * 9};
                TEST_TRY(pl_picture_read(&p, box));
                TEST_TRY(pl_picture_read(&q, box));
                for (int64_t y = 0; y < box.height; y++)
                    wrong +=
                        memcmp(p.pixels + y * p.stride, q.pixels + y * q.stride, (size_t)box.width * 3) != 0;
            }
        }
    }
    for (int64_t c = 0; !wrong && c < pl_image_set_classes(a); c++)
        wrong += strcmp(pl_image_set_class(a, c), pl_image_set_class(b, c)) != 0;
    pl_picture_drop(&p);
    pl_picture_drop(&q);
    return wrong;
}

static void test_sets(void)
{
    static const char synth[] = "synth:classes=5,train=4,test=2,size=40,seed=3";
    static const int64_t chosen[] = {4, 0, 2};
    const char *const from[] = {set_path, pack_path, synth};
    pl_image_set *s[3];
    char print[3][PL_SHA256_HEX], again[PL_SHA256_HEX];
    pl_image_folder *f = open_folder();
    pl_pack_result r;
    pl_pack_opts o = {.workers = 1};
    TEST_TRY(pl_image_pack_write(&r, pack_path, f, &o));
    pl_image_folder_close(f);
    int64_t wrong = 0;
    for (int i = 0; i < 3; i++) {
        TEST_TRY(pl_image_set_open(&s[i], from[i]));
        wrong += pl_image_set_source(s[i]) != (pl_image_source)i;
        TEST_TRY(pl_image_set_fingerprint(print[i], s[i]));
    }
    wrong += sets_differ(s[0], s[1]) + sets_differ(s[0], s[2]);
    test_exact("folder, pack and textures on the fly", wrong);
    wrong = !strcmp(print[0], print[1]) || !strcmp(print[0], print[2]);
    for (int i = 0; i < 3; i++) {
        TEST_TRY(pl_image_set_select(s[i], chosen, 3));
        TEST_TRY(pl_image_set_fingerprint(again, s[i]));
        wrong += !strcmp(again, print[i]) || pl_image_set_count(s[i], PL_IMAGES_TRAIN) != 12 ||
                 strcmp(pl_image_set_class(s[i], 2), "texture_004");
        wrong += pl_image_set_select(s[i], chosen, 1) != POLAR_E_STATE;
    }
    wrong += sets_differ(s[0], s[1]) + sets_differ(s[0], s[2]);
    test_exact("three classes of five", wrong);
    pl_picture p = {0};
    polar_status st = pl_picture_open(&p, s[1], PL_IMAGES_TRAIN, 12);
    TEST_TRY(pl_picture_open(&p, s[1], PL_IMAGES_TRAIN, 11));
    polar_status box = pl_picture_read(&p, (pl_box){30, 30, 11, 5});
    test_true("no such picture, no such part", st == POLAR_E_ARG && box == POLAR_E_ARG, "%s",
              polar_error_message());
    for (int i = 0; i < 3; i++) pl_image_set_close(s[i]);
    static const char *const wrongs[] = {"synth:colour=3",   "synth:classes",    "synth:classes=0",
                                         "synth:classes=5x", "synth:size=99999", "/nowhere/at/all"};
    int64_t taken = 0;
    for (int i = 0; i < 6; i++) {
        pl_image_set *none;
        taken += pl_image_set_open(&none, wrongs[i]) != POLAR_E_ARG || none;
    }
    test_exact("sets that make no sense", taken);
}

/* ---- broken pictures ---------------------------------------------------------------------------- */

static void count_bad(void *user, const char *sentence)
{
    *(int64_t *)user += strstr(sentence, "texture_001/") != NULL;
}

static void test_broken(void)
{
    char path[256], pattern[256];
    int64_t named = 0;
    pl_pack_result r;
    pl_pack_opts o = {.workers = 2};
    snprintf(pattern, sizeof pattern, "%s/train/texture_001/%%05d.png", set_path);
    snprintf(path, sizeof path, pattern, 2);
    pl_image_folder *f = open_folder();
    if (truncate(path, 900) != 0) exit(1);
    unlink(pack_path);
    polar_status st = pl_image_pack_write(&r, pack_path, f, &o);
    test_true("a broken picture is an error",
              PART(st == POLAR_E_FORMAT) && PART(strstr(polar_error_message(), "texture_001/00002.png")) &&
                  PART(access(pack_path, F_OK) != 0) && PART(folder_files(root) == 1),
              "%s", polar_error_message());
    o.skip_bad = 1;
    o.bad = count_bad;
    o.user = &named;
    TEST_TRY(pl_image_pack_write(&r, pack_path, f, &o));
    pl_image_pack *p;
    TEST_TRY(pl_image_pack_open(&p, pack_path));
    int ok = r.bad == 1 && named == 1 && r.count[0] == 19 &&
             pl_image_pack_label(p, PL_IMAGES_TRAIN, 5) == 1 &&
             !strcmp(pl_image_pack_name(p, PL_IMAGES_TRAIN, 6), "train/texture_001/00003.png");
    pl_image_pack_close(p);
    test_true("left out and counted", ok, "%lld bad, %lld training pictures", (long long)r.bad,
              (long long)r.count[0]);

    pl_image_stat s[PL_IMAGE_SPLITS];
    int stopped;
    pl_stat_opts so = {.workers = 2, .decode = 1};
    st = pl_image_stat_folder(s, &stopped, f, &so);
    test_true("stat: the same error",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "texture_001/00002.png"), "%s",
              polar_error_message());
    so.skip_bad = 1;
    TEST_TRY(pl_image_stat_folder(s, &stopped, f, &so));
    ok = s[0].count == 20 && s[0].bad == 1 && s[1].count == 10 && !s[1].bad &&
         s[0].formats[PL_IMAGE_PNG] == 19 && s[0].lesser[1] == 40 && s[0].class_least == 4 &&
         s[0].colours[PL_COLOUR_RGB] == 19;
    test_true("stat: counted", ok, "%lld of %lld are bad", (long long)s[0].bad, (long long)s[0].count);

    struct stat before, after;
    stat(pack_path, &before);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, pattern, i);
        if (truncate(path, 100) != 0) exit(1);
    }
    st = pl_image_pack_write(&r, pack_path, f, &o);
    stat(pack_path, &after);
    test_true("a class of broken pictures is an error",
              PART(st == POLAR_E_FORMAT) &&
                  PART(strstr(polar_error_message(), "class 'texture_001' in train/")) &&
                  PART(before.st_ino == after.st_ino) && PART(folder_files(root) == 2),
              "%s", polar_error_message());
    pl_image_folder_close(f);
}

/* ---- damage ------------------------------------------------------------------------------------- */

static polar_status open_bytes(pl_image_pack **out, const uint8_t *data, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "%s/damaged", root);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) exit(1);
    return pl_image_pack_open(out, path);
}

/* Right sums over wrong numbers: every entry the first picture's place, which makes a small file a long read.
 */
static void test_shared(void)
{
    pl_file_bytes b = {0};
    pl_image_pack *p;
    pl_pack_header h;
    char hex[PL_SHA256_HEX];
    TEST_TRY(pl_file_bytes_read(&b, pack_path, 0));
    memcpy(&h, b.data, sizeof h);
    pl_pack_entry *index = (pl_pack_entry *)(void *)(b.data + h.index_at);
    for (uint64_t i = 1; i < h.count[0] + h.count[1]; i++)
        index[i].at = index[0].at, index[i].width = index[0].width, index[i].height = index[0].height;
    pl_sha256 sha = pl_sha256_begin();
    pl_sha256_add(&sha, b.data, offsetof(pl_pack_header, sha256));
    pl_sha256_add(&sha, b.data + h.index_at, b.size - h.index_at);
    pl_sha256_end(hex, &sha);
    memcpy(b.data + offsetof(pl_pack_header, sha256), hex, sizeof h.sha256);
    polar_status st = open_bytes(&p, b.data, b.size);
    test_true("pictures that share their pixels",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "entry 1 of"), "%s",
              polar_error_message());
    pl_image_pack_close(p);
    pl_file_bytes_drop(&b);
}

static void test_damage(void)
{
    pl_file_bytes b = {0};
    pl_image_pack *p;
    int64_t taken = 0, tried = 0, live = pl_alloc_live();
    TEST_TRY(pl_file_bytes_read(&b, pack_path, 0));
    pl_pack_header h;
    memcpy(&h, b.data, sizeof h);
    /* every byte of header, index and names */
    for (size_t at = 0; at < b.size; at += at < 255 || at >= h.index_at ? 1 : h.index_at - at, tried++) {
        b.data[at] ^= 0x10;
        polar_status st = open_bytes(&p, b.data, b.size);
        b.data[at] ^= 0x10;
        taken += st != POLAR_E_FORMAT || p;
        pl_image_pack_close(p);
    }
    static const size_t cuts[] = {0, 1, 255, 256, 257, 4000};
    for (int i = 0; i < 6; i++, tried++) {
        taken += open_bytes(&p, b.data, cuts[i]) != POLAR_E_FORMAT || p;
        taken += open_bytes(&p, b.data, b.size - 1 - cuts[i]) != POLAR_E_FORMAT || p;
    }
    test_true("damaged header, index or names", !taken && pl_alloc_live() == live + 1,
              "%lld tries, %lld opened", (long long)tried, (long long)taken);
    b.data[h.index_at / 2] ^= 1;
    TEST_TRY(open_bytes(&p, b.data, b.size));
    int64_t bad = 0;
    for (int s = 0; s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; i < (int64_t)h.count[s]; i++)
            bad += pl_image_pack_check(p, s, i) == POLAR_E_FORMAT;
    test_true("one bit of one picture", bad == 1, "%lld pictures are not those written", (long long)bad);
    pl_image_pack_close(p);
    pl_file_bytes_drop(&b);
    polar_status st = pl_image_pack_open(&p, set_path);
    test_true("a folder is no pack", st == POLAR_E_FORMAT && !p, "%s", polar_error_message());
}

/* Reads every picture through the face that training uses; a child, as it may end there. */
static int read_all_pictures(const pl_image_set *set)
{
    pl_picture p = {0};
    int64_t sum = 0;
    for (int s = 0; s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; i < pl_image_set_count(set, s); i++) {
            if (pl_picture_open(&p, set, s, i) != POLAR_OK) return 2;
            if (pl_picture_read(&p, (pl_box){0, 0, p.width, p.height}) != POLAR_OK) return 2;
            for (int64_t k = 0; k < 3 * p.width * p.height; k++) sum += p.pixels[k];
        }
    pl_picture_drop(&p);
    return sum ? 0 : 4;
}

/* A pack that becomes shorter while it is in use, and one whose pixels change: a sentence with the file's
 * name, not a signal, not a number. */
static void test_while_read(void)
{
    char said[512] = "", path[96];
    pl_image_set *set;
    pl_file_bytes b = {0};
    int out[2], status = 0;
    TEST_TRY(pl_file_bytes_read(&b, pack_path, 0));
    snprintf(path, sizeof path, "%s/damaged", root);
    pl_image_pack *p;
    TEST_TRY(open_bytes(&p, b.data, b.size));
    pl_image_pack_close(p);
    TEST_TRY(pl_image_set_open(&set, path));
    test_true("a whole pack is read", read_all_pictures(set) == 0, "%s", "");
    if (pipe(out) != 0) exit(1);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 2);
        file_signal_begin(3);
        if (truncate(path, 300) != 0) _exit(5);
        _exit(read_all_pictures(set));
    }
    close(out[1]);
    waitpid(child, &status, 0);
    ssize_t n = read(out[0], said, sizeof said - 1);
    close(out[0]);
    int ok = n > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 3 && strstr(said, path) &&
             strstr(said, "grew smaller while it was read");
    if (n > 0) said[n - 1] = 0; /* its newline */
    test_true("a pack that becomes shorter", ok, "%s", said);
    pl_image_set_close(set);
    const pl_pack_header *h = (const pl_pack_header *)b.data;
    b.data[h->index_at - 100] ^= 4;
    TEST_TRY(open_bytes(&p, b.data, b.size));
    pl_image_pack_close(p);
    TEST_TRY(pl_image_set_open(&set, path));
    ok = read_all_pictures(set) == 2 && strstr(polar_error_message(), path) &&
         strstr(polar_error_message(), "pack it again");
    test_true("a changed pixel is seen when the picture is first read", ok, "%s", polar_error_message());
    pl_image_set_close(set);
    pl_file_bytes_drop(&b);
    unlink(path);
}

/* ---- the end ------------------------------------------------------------------------------------ */

static void test_stop_and_memory(void)
{
    char path[96];
    pl_image_folder *f = open_folder();
    pl_pack_result r;
    atomic_int stop = 1;
    int files = folder_files(root);
    pl_pack_opts o = {.workers = 0, .side = 20, .skip_bad = 1, .stop = &stop};
    static const int64_t chosen[] = {0, 2};
    TEST_TRY(pl_image_folder_select(f, chosen, 2));
    snprintf(path, sizeof path, "%s/out.pack", root);
    TEST_TRY(pl_image_pack_write(&r, path, f, &o));
    test_true("stopped: no file, no rest", r.stopped && folder_files(root) == files, "%d files more",
              folder_files(root) - files);
    o.stop = NULL;
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0, early = 0;
    for (; st != POLAR_OK && n < 10000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = pl_image_pack_write(&r, path, f, &o);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && st != POLAR_E_NOMEM;
        early += st != POLAR_OK && folder_files(root) != files;
    }
    test_true("memory runs out",
              PART(st == POLAR_OK) && PART(n > 20) && PART(!leaks) && PART(!wrong) && PART(!early) &&
                  PART(r.count[0] == 8),
              "%lld allocations, %lld leaks, %lld other errors, %lld early files", (long long)n - 1,
              (long long)leaks, (long long)wrong, (long long)early);
    st = pl_image_pack_write(&r, "/nowhere/at/all.pack", f, &o);
    polar_status on_folder = pl_image_pack_write(&r, root, f, &o);
    test_true("where no file can be", st == POLAR_E_ARG && on_folder == POLAR_E_ARG, "%s",
              polar_error_message());
    pl_image_folder_close(f);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(root, sizeof root, "/tmp/polar_test_pack.XXXXXX");
    if (!mkdtemp(root)) return 1;
    snprintf(set_path, sizeof set_path, "%s/set", root);
    snprintf(pack_path, sizeof pack_path, "%s/set.pack", root);
    test_synth();
    test_pixels();
    test_resized();
    test_sets();
    test_broken();
    test_damage();
    test_shared();
    test_while_read();
    test_stop_and_memory();
    folder_remove(root);
    return test_end();
}
