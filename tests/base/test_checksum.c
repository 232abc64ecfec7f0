/* test_checksum.c -- the checksum of checksum.h: pinned values, any pieces, every flipped bit; and the one in
 * a tensor file. */
#include "fixtures/strip_checksum.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/checksum_overlap.h"
#include "base/philox.h"

enum { MOST = 300 };

static unsigned char bytes[MOST];

/* Pinned: files hold them. */
static void test_values(void)
{
    static const struct {
        size_t n;
        uint64_t sum;
    } known[] = {{0, UINT64_C(0x83af0e5da8b9c729)},  {1, UINT64_C(0xace567fc8a332e46)},
                 {31, UINT64_C(0x6d6d672265e99d6b)}, {32, UINT64_C(0xe69cc19c64a6700a)},
                 {33, UINT64_C(0x8aefbefcfae62002)}, {300, UINT64_C(0x6e79cf312f53b174)}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t sum = pl_checksum_of(bytes, known[i].n);
        if (sum != known[i].sum) printf("%zu bytes: 0x%016llx\n", known[i].n, (unsigned long long)sum);
        wrong += sum != known[i].sum;
    }
    char text[PL_CHECKSUM_HEX];
    pl_checksum_print(text, UINT64_C(0x00ab));
    test_true("values that never change", !wrong && !strcmp(text, "00000000000000ab"), "%d differ", wrong);
}

/* A message cut anywhere, twice. */
static void test_pieces(void)
{
    int64_t wrong = 0;
    for (size_t n = 0; n <= 100; n++)
        for (size_t a = 0; a <= n; a++)
            for (size_t b = a; b <= n; b += 1 + n / 16) {
                pl_checksum c = pl_checksum_begin(n);
                pl_checksum_add(&c, bytes, a);
                pl_checksum_add(&c, bytes + a, b - a);
                pl_checksum_add(&c, bytes + b, n - b);
                wrong += pl_checksum_end(&c) != pl_checksum_of(bytes, n);
            }
    test_exact("in any pieces", wrong);
}

/* One bit always; two bits, and a length that differs in zeros, practically always: none of these few
 * million. */
static void test_flips(void)
{
    int64_t same = 0;
    for (size_t n = 1; n <= MOST; n += n < 70 ? 1 : 23) {
        uint64_t sum = pl_checksum_of(bytes, n);
        for (size_t i = 0; i < 8 * n; i++) {
            bytes[i / 8] ^= (unsigned char)(1 << i % 8);
            same += pl_checksum_of(bytes, n) == sum;
            for (size_t k = 0; n <= 40 && k < i; k++) {
                bytes[k / 8] ^= (unsigned char)(1 << k % 8);
                same += pl_checksum_of(bytes, n) == sum;
                bytes[k / 8] ^= (unsigned char)(1 << k % 8);
            }
            bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        }
    }
    static const unsigned char zeros[MOST];
    for (size_t n = 1; n <= MOST; n++) same += pl_checksum_of(zeros, n) == pl_checksum_of(zeros, n - 1);
    test_exact("flipped bits that are not seen", same);
}

/* More pieces than its ring has room for, of odd sizes; and without a thread. */
static void test_overlap(void)
{
    enum { PIECES = 1000 };
    static unsigned char data[PIECES * 97];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i >> 3);
    int wrong = 0;
    for (int alone = 0; alone < 2; alone++) {
        size_t total = 0;
        for (size_t k = 0; k < PIECES; k++) total += k % 97;
        pl_checksum sum = pl_checksum_begin(total);
        pl_checksum_overlap *o = alone ? NULL : pl_checksum_overlap_begin(&sum);
        wrong += !alone && !o;
        size_t at = 0;
        for (size_t k = 0; k < PIECES; at += k % 97, k++) pl_checksum_overlap_add(o, &sum, data + at, k % 97);
        pl_checksum_overlap_end(o);
        wrong += pl_checksum_end(&sum) != pl_checksum_of(data, total);
    }
    test_exact("by a thread of its own, and without it", wrong);
}

/* ---- in a tensor file --------------------------------------------------------------------------- */

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *in = fopen(path, "rb");
    unsigned char *all = malloc(1 << 16);
    if (!in || !all) exit(1);
    *size = fread(all, 1, 1 << 16, in);
    fclose(in);
    return all;
}

static polar_status open_changed(pl_safetensors **f, unsigned char *file, size_t size, const char *from,
                                 const char *to)
{
    unsigned char *copy = malloc(size);
    if (!copy) exit(1);
    memcpy(copy, file, size);
    char *at = memmem(copy, size, from, strlen(from));
    if (!at) exit(1);
    memcpy(at, to, strlen(to));
    polar_status st = pl_safetensors_open_bytes(f, copy, (int64_t)size, "t");
    free(copy);
    return st;
}

/* A file so large that the checksum is taken while it is read: sound, and with a bit flipped anywhere. */
static void test_large_file(void)
{
    enum { N = 5 << 20 };
    float *w = malloc(sizeof *w * N);
    char path[] = "/tmp/polar_checksum.XXXXXX";
    int fd = mkstemp(path);
    if (!w || fd < 0) exit(1);
    for (int i = 0; i < N; i++) w[i] = (float)i;
    pl_safetensors_entry e = {
        .name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 1, .shape = {N}, .data = w, .bytes = 4 * (int64_t)N};
    TEST_TRY(pl_safetensors_write(path, &e, 1, NULL, 0));
    close(fd);
    fd = open(path, O_RDWR);
    pl_safetensors *f;
    TEST_TRY(pl_safetensors_open(&f, path));
    test_true("a large file is checked",
              pl_safetensors_checked(f) && !memcmp(pl_safetensors_view(f, 0)->data, w, 4 * (size_t)N), "%s",
              "");
    pl_safetensors_close(f);
    int64_t taken = 0, size = lseek(fd, 0, SEEK_END);
    for (int k = 0; k < 8; k++) {
        int64_t at = size - 1 - k * (4 * (int64_t)N / 8);
        unsigned char byte, flipped;
        if (pread(fd, &byte, 1, at) != 1) exit(1);
        flipped = byte ^ (unsigned char)(1 << k);
        if (pwrite(fd, &flipped, 1, at) != 1) exit(1);
        taken += pl_safetensors_open(&f, path) != POLAR_E_FORMAT;
        pl_safetensors_close(f);
        if (pwrite(fd, &byte, 1, at) != 1) exit(1);
    }
    test_exact("... and its flipped bits are refused", taken);
    close(fd);
    unlink(path);
    free(w);
}

/* Every bit of the file; the checksum's own pair, which nobody else sees; files that have none. */
static void test_file(void)
{
    static const float w[6] = {1, 2, 3, 4, 5, 6};
    static const pl_safetensors_entry some[] = {
        {.name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = w, .bytes = 24},
        {.name = "none", .dtype_name = "I64", .ndim = 1, .shape = {0}, .data = w},
        {.name = "odd", .dtype_name = "U8", .ndim = 1, .shape = {3}, .data = w, .bytes = 3}};
    static const pl_safetensors_meta pair = {"format", "pt"};
    char path[] = "/tmp/polar_checksum.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || close(fd)) exit(1);
    pl_safetensors *f;
    size_t size;
    int64_t taken = 0;
    TEST_TRY(pl_safetensors_write(path, some, 3, &pair, 1));
    TEST_TRY(pl_safetensors_open(&f, path));
    int shown = pl_safetensors_meta_find(f, PL_SAFETENSORS_CHECKSUM) != NULL;
    test_true("a file of ours is checked",
              pl_safetensors_checked(f) && !shown && pl_safetensors_has_checksum(path), "%s", "");
    pl_safetensors_close(f);
    unsigned char *file = read_file(path, &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        taken += pl_safetensors_open_bytes(&f, file, (int64_t)size, "t") != POLAR_E_FORMAT;
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        pl_safetensors_close(f);
    }
    test_true("every bit of the file", !taken, "%zu bits, %lld flips were taken", 8 * size, (long long)taken);
    file[size - 1] ^= 1;
    polar_status st = pl_safetensors_open_bytes(&f, file, (int64_t)size, "t");
    test_true("what is said",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "'t' is damaged: its checksum says"),
              "%s", polar_error_message());
    file[size - 1] ^= 1;
    st = open_changed(&f, file, size, "polar.checksum", "polar.chackzum");
    test_true("its name damaged twice",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "was 'polar.checksum' once"), "%s",
              polar_error_message());
    st = open_changed(&f, file, size, "polar.checksum\":\"", "polar.checksum\":\"G");
    test_true("a digit that is none", st == POLAR_E_FORMAT && strstr(polar_error_message(), "16 digits"),
              "%s", polar_error_message());
    strip_checksum(file, size);
    TEST_TRY(pl_safetensors_open_bytes(&f, file, (int64_t)size, "t"));
    test_true("without one it is read unchecked",
              !pl_safetensors_checked(f) && pl_safetensors_meta_find(f, "other.metadata"), "%s", "");
    pl_safetensors_close(f);
    free(file);
    unlink(path);
    test_true("a golden file has none",
              !pl_safetensors_has_checksum(GOLDEN_DIR "/optim.safetensors") &&
                  !pl_safetensors_has_checksum("/nowhere"),
              "%s", "");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    for (uint64_t i = 0; i < MOST; i++) bytes[i] = (unsigned char)pl_philox(1, PL_STREAM_TEST, 0, i).x;
    test_values();
    test_pieces();
    test_flips();
    test_overlap();
    test_file();
    test_large_file();
    return test_end();
}
