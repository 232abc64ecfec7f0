/* test_safetensors.c -- tensor files: round trip, every kind of malformed file, a full disk, no memory, and
 * 20000 mutations. ctest -R test_safetensors
 *
 * pread, write, pwrite, fsync and rename are defined here, over the C library's, so that each can be made to
 * fail: a disk that is full or broken.
 */
#include "fixtures/folder.h"
#include "fixtures/strip_checksum.h"
#include "safetensors_mutate.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/safetensors.h"

enum { CALL_NONE, CALL_PREAD, CALL_PREAD_SHORT, CALL_WRITE, CALL_PWRITE, CALL_FSYNC, CALL_RENAME };
static int failing_call, failing_errno;
static char folder[256]; /* of this run's files, removed at the end */

static long refuse(void)
{
    errno = failing_errno;
    return -1;
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    if (failing_call == CALL_PREAD_SHORT) return 0;
    return failing_call == CALL_PREAD ? refuse() : syscall(SYS_pread64, fd, out, n, at);
}

ssize_t write(int fd, const void *from, size_t n)
{
    return failing_call == CALL_WRITE ? refuse() : syscall(SYS_write, fd, from, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    return failing_call == CALL_PWRITE ? refuse() : syscall(SYS_pwrite64, fd, from, n, at);
}

int fsync(int fd)
{
    return (int)(failing_call == CALL_FSYNC ? refuse() : syscall(SYS_fsync, fd));
}

int rename(const char *from, const char *to)
{
    return (int)(failing_call == CALL_RENAME ? refuse()
                                             : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The lowest descriptor that is free: the same before and after a call that leaks none. */
static int free_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* ---- a file with some of everything ------------------------------------------------------------- */

static const float w[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const double v[2] = {0.1, -1e300};
static const unsigned char odd[3] = {1, 2, 255};
static const uint16_t h[4] = {0x3f80, 0xbf80, 0, 0x7fc0};
static const pl_safetensors_entry some[] = {
    {.name = "odd", .dtype_name = "U8", .ndim = 1, .shape = {3}, .data = odd, .bytes = 3},
    {.name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = w, .bytes = 24},
    {.name = "block.0.\"v\"\\\n\xc3\xa9",
     .dtype = POLAR_DTYPE_F64,
     .ndim = 3,
     .shape = {1, 2, 1},
     .data = v,
     .bytes = 16},
    {.name = "", .dtype_name = "BOOL", .ndim = 0, .data = odd, .bytes = 1},
    {.name = "empty", .dtype_name = "I64", .ndim = 2, .shape = {0, 5}, .data = NULL, .bytes = 0},
    {.name = "h", .dtype = POLAR_DTYPE_BF16, .ndim = 1, .shape = {4}, .data = h, .bytes = 8},
    {.name = "four", .dtype_name = "F4", .ndim = 2, .shape = {2, 2}, .data = odd, .bytes = 2}};
enum { N_SOME = sizeof some / sizeof *some };
static const pl_safetensors_meta pairs[] = {
    {"format", "pt"}, {"step", "125\t\x01 \xf0\x9f\x98\x80"}, {"", ""}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* How f differs from what was written. */
static int64_t differences(const pl_safetensors *f, const pl_safetensors_entry *e, int64_t n,
                           const pl_safetensors_meta *m, int64_t n_meta)
{
    int64_t wrong = 0;
    if (pl_safetensors_count(f) != n || pl_safetensors_meta_count(f) != n_meta) return -1;
    for (int64_t i = 0; i < n; i++) {
        const pl_safetensors_entry *got = pl_safetensors_view(f, i);
        const char *dtype = e[i].dtype_name ? e[i].dtype_name : pl_safetensors_dtype_name(e[i].dtype);
        wrong += strcmp(got->name, e[i].name) || strcmp(got->dtype_name, dtype) ||
                 got->dtype != pl_safetensors_dtype(dtype);
        wrong +=
            got->ndim != e[i].ndim || memcmp(got->shape, e[i].shape, sizeof(int64_t) * (size_t)e[i].ndim);
        wrong += got->bytes != e[i].bytes || (got->bytes && memcmp(got->data, e[i].data, (size_t)got->bytes));
        wrong += !got->data || (uintptr_t)got->data % 64 || pl_safetensors_find(f, e[i].name) != got;
    }
    for (int64_t i = 0; i < n_meta; i++) {
        const pl_safetensors_meta *got = pl_safetensors_meta_view(f, i);
        wrong += strcmp(got->key, m[i].key) || strcmp(got->value, m[i].value) ||
                 pl_safetensors_meta_find(f, m[i].key) != got->value;
    }
    return wrong;
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *in = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 16);
    if (!in || !bytes) exit(1);
    *size = fread(bytes, 1, 1 << 16, in);
    fclose(in);
    return bytes;
}

static void test_round_trip(void)
{
    pl_safetensors *f;
    size_t size, again_size;
    TEST_TRY(pl_safetensors_write(in_folder("a"), some, N_SOME, pairs, N_PAIRS));
    TEST_TRY(pl_safetensors_open(&f, in_folder("a")));
    test_exact("round trip", differences(f, some, N_SOME, pairs, N_PAIRS));
    test_true("a name that is not there", !pl_safetensors_find(f, "W") && !pl_safetensors_meta_find(f, "w"),
              "NULL");
    pl_safetensors_close(f);
    unsigned char *bytes = read_file(in_folder("a"), &size);
    test_true("the data begins at a multiple of 8",
              bytes[0] % 8 == 0 && (int64_t)size == 8 + bytes[0] + 256 * bytes[1] + 54, "header %d",
              bytes[0] + 256 * bytes[1]);
    TEST_TRY(pl_safetensors_write(in_folder("a"), some, N_SOME, pairs, N_PAIRS));
    unsigned char *again = read_file(in_folder("a"), &again_size);
    test_exact("the same bytes again, over the old file", size != again_size || memcmp(bytes, again, size));
    free(bytes);
    free(again);
    TEST_TRY(pl_safetensors_write(in_folder("a"), NULL, 0, NULL, 0));
    TEST_TRY(pl_safetensors_open(&f, in_folder("a")));
    test_exact("a file of nothing", differences(f, NULL, 0, NULL, 0) || pl_safetensors_find(f, "w") ||
                                        pl_safetensors_meta_find(f, "w"));
    pl_safetensors_close(f);
    pl_safetensors_close(NULL);
    test_true("no other file beside it", folder_files(folder) == 1, "%d file", folder_files(folder));
}

static void test_golden(void)
{
    pl_safetensors *f;
    uint64_t bits = 0;
    TEST_TRY(pl_safetensors_open(&f, GOLDEN_DIR "/optim.safetensors"));
    const pl_safetensors_entry *e = pl_safetensors_find(f, "map.16x4.ns5_fp64");
    if (e) memcpy(&bits, e->data, 8);
    int ok = e && e->dtype == POLAR_DTYPE_F64 && e->ndim == 2 && e->shape[0] == 16 && e->shape[1] == 4 &&
             e->bytes == 512;
    test_true("golden/optim.safetensors", pl_safetensors_count(f) == 410 && ok, "%lld tensors",
              (long long)pl_safetensors_count(f));
    test_true("its first number, from the file's bytes", bits == 0xbfa4cdf24a0559ccu, "%016llx",
              (unsigned long long)bits);
    pl_safetensors_close(f);
}

/* ---- malformed ---------------------------------------------------------------------------------- */

/* Header and n zero bytes of data, in a block of exactly that size: the address sanitizer sees one byte too
 * far. */
static polar_status open_text(pl_safetensors **f, const char *header, size_t n)
{
    size_t size = strlen(header);
    unsigned char *file = calloc(1, 8 + size + n);
    if (!file) exit(1);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)size >> 8 * i);
    memcpy(file + 8, header, size);
    polar_status st = pl_safetensors_open_bytes(f, file, (int64_t)(8 + size + n), "t");
    free(file);
    return st;
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    int data;
    const char *says;
} malformed[] = {{"", 0, "begin with {"},
                 {" {}", 0, "begin with {"},
                 {"[]", 0, "begin with {"},
                 {"{", 0, "key in quotes"},
                 {"{} x", 0, "more text"},
                 {"{}{}", 0, "more text"},
                 {"{}", 1, "1 bytes after the last tensor"},
                 {"{\"a\":1}", 0, "'a': JSON byte 6: an object"},
                 {"{\"a\":{}}", 0, "'a': has no dtype"},
                 {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'a': has no data_offsets"},
                 {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a': has no shape"},
                 {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                  "stands there twice"},
                 {"{\"a\":{\"dtype\":8}}", 0, "a string wanted"},
                 {"{\"a\":" T("F31", "[1]", "[0,4]") "}", 4, "'a': dtype 'F31': not a number format"},
                 {"{\"a\":" T("f32", "[1]", "[0,4]") "}", 4, "dtype 'f32'"},
                 {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "[1e0]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "[NaN]", "[0,4]") "}", 4, "not a JSON value"},
                 {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "[[1]]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "1", "[0,4]") "}", 4, "an array wanted"},
                 {"{\"a\":" T("F32", "[9223372036854775808]", "[0,4]") "}", 4, "shape wants integers"},
                 {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "more than 8"},
                 {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "2^63 bits"},
                 {"{\"a\":" T("F32", "[9223372036854775807]", "[0,4]") "}", 4, "2^63 bits"},
                 {"{\"a\":" T("U8", "[0,4611686018427387904,4]", "[0,0]") "}", 0, "2^63 bits"},
                 {"{\"a\":" T("U8", "[4294967296,2147483648,2]", "[0,0]") "}", 0, "2^63 bits"},
                 {"{\"a\":" T("F4", "[3]", "[0,1]") "}", 1, "whole bytes"},
                 {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "wants two numbers"},
                 {"{\"a\":" T("F32", "[1]", "[0,4,4]") "}", 4, "more than 2"},
                 {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "do not lie in the 4 bytes"},
                 {"{\"a\":" T("F32", "[1]", "[1,5]") "}", 4, "do not lie in the 4 bytes"},
                 {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "data_offsets wants integers"},
                 {"{\"a\":" T("F32", "[2]", "[0,4]") "}", 4, "hold 4 bytes, dtype and shape want 8"},
                 {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 3,
                  "'b' begins at byte 1 of the data, the one before it ends at 2: they overlap"},
                 {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[0,2]") "}", 2, "they overlap"},
                 {"{\"a\":" T("U8", "[1]", "[1,2]") "}", 2, "a hole"},
                 {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"b\":" T("U8", "[1]", "[2,3]") "}", 3,
                  "'b' begins at byte 2 of the data, the one before it ends at 1: a hole"},
                 {"{\"a\":" T("U8", "[4]", "[0,4]") ",\"b\":" T("U8", "[0]", "[2,2]") "}", 4, "they overlap"},
                 {"{\"a\":" T("U8", "[1]", "[0,1]") "}", 3, "2 bytes after"},
                 {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"\\u0061\":" T("U8", "[1]", "[1,2]") "}", 2,
                  "the name 'a' stands there twice"},
                 {"{\"a\\u0000b\":" T("U8", "[1]", "[0,1]") "}", 1, "zero character"},
                 {"{\"\xff\":" T("U8", "[1]", "[0,1]") "}", 1, "UTF-8"},
                 {"{\"\\u001b[2J\":{}}", 0, "tensor '?[2J'"},
                 {"{\"__metadata__\":{\"a\":1}}", 0, "metadata 'a': JSON byte 22: a string wanted"},
                 {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands there twice"},
                 {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "the name 'a' stands there twice"},
                 {"{\"__metadata__\":null}", 0, "an object wanted"},
                 {"{\"__metadata__\":[]}", 0, "an object wanted"}};

static void test_malformed(void)
{
    int64_t wrong = 0;
    pl_safetensors *f;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        polar_status st = open_text(&f, malformed[i].header, (size_t)malformed[i].data);
        if (st == POLAR_E_FORMAT && !f && strstr(polar_error_message(), malformed[i].says) &&
            strstr(polar_error_message(), "'t'"))
            continue;
        printf("%s\n  wanted '%s', got %s\n", (wrong++, malformed[i].header), malformed[i].says,
               st ? polar_error_message() : "ok");
        pl_safetensors_close(f);
    }
    test_exact("malformed headers, each with its sentence", wrong);
}

static void test_lengths(void)
{
    static const unsigned char lies[][10] = {
        {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'},     {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'},
        {0, 0, 0, 0, 0, 0, 0, 128, '{', '}'},   {0, 225, 245, 5, 0, 0, 0, 0, '{', '}'},
        {1, 225, 245, 5, 0, 0, 0, 0, '{', '}'}, {0},
        {1, 0, 0, 0, 0, 0, 0, 0, '{', '}'}};
    int64_t wrong = 0;
    pl_safetensors *f;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        wrong += pl_safetensors_open_bytes(&f, lies[i], 10, "t") != POLAR_E_FORMAT;
    for (int64_t n = 0; n < 8; n++) wrong += pl_safetensors_open_bytes(&f, lies[0], n, "t") != POLAR_E_FORMAT;
    test_exact("header lengths that lie", wrong);
}

static void test_unusual(void)
{
    static const struct {
        const char *header;
        int data;
    } fine[] = {
        {"{}", 0},
        {"{}      ", 0},
        {"{ }\n", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"a\":" T("U8", "[]", "[0,1]") "}", 1},
        {"{\"a\":" T("F4", "[3,0]", "[0,0]") "}", 0},
        {"{\"a\":{\"data_offsets\":[0,1],\"new\":[{\"dtype\":1}],\"shape\":[1],\"dt\\u0079pe\":\"U8\"}}", 1},
        {"{\"b\":" T("U8", "[1]", "[2,3]") ",\"e\":" T("U8", "[0]", "[2,2]") ",\"a\":" T("U8", "[2]",
                                                                                         "[0,2]") "}",
         3}};
    int64_t wrong = 0;
    pl_safetensors *f;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        if (open_text(&f, fine[i].header, (size_t)fine[i].data) != POLAR_OK)
            printf("refused: %s: %s\n", fine[i].header, (wrong++, polar_error_message()));
        pl_safetensors_close(f);
    }
    test_exact("unusual but right", wrong);
}

/* ---- the operating system ----------------------------------------------------------------------- */

static void test_open_fails(void)
{
    pl_safetensors *f;
    int fd = free_fd();
    polar_status st = pl_safetensors_open(&f, in_folder("missing"));
    test_true("a missing file",
              st == POLAR_E_ARG && !f && strstr(polar_error_message(), "missing': No such file"), "%s",
              polar_error_message());
    test_true("a folder", pl_safetensors_open(&f, folder) == POLAR_E_ARG, "%s", polar_error_message());
    TEST_TRY(mkfifo(in_folder("pipe"), 0600) ? POLAR_E_IO : POLAR_OK);
    test_true("a pipe does not hang", pl_safetensors_open(&f, in_folder("pipe")) == POLAR_E_ARG, "%s",
              polar_error_message());
    unlink(in_folder("pipe"));
    TEST_TRY(pl_safetensors_write(in_folder("a"), some, N_SOME, pairs, N_PAIRS));
    failing_call = CALL_PREAD, failing_errno = EIO;
    st = pl_safetensors_open(&f, in_folder("a"));
    failing_call = CALL_NONE;
    test_true("a disk that cannot be read",
              st == POLAR_E_IO && !f && strstr(polar_error_message(), strerror(EIO)), "%s",
              polar_error_message());
    failing_call = CALL_PREAD_SHORT;
    st = pl_safetensors_open(&f, in_folder("a"));
    failing_call = CALL_NONE;
    test_true("a file that shrinks while it is read", st == POLAR_E_IO && !f, "%s", polar_error_message());
    test_exact("descriptors left open", free_fd() - fd);
}

/* After a write that failed: path holds what it held, and nothing else lies in the folder. */
static void test_write_failed(const char *what, polar_status st, polar_status want, const char *says)
{
    pl_safetensors *f;
    test_true(what, st == want && strstr(polar_error_message(), says), "%s", polar_error_message());
    TEST_TRY(pl_safetensors_open(&f, in_folder("a")));
    test_exact("    the old file stands, alone",
               differences(f, some, N_SOME, pairs, N_PAIRS) || folder_files(folder) != 1);
    pl_safetensors_close(f);
}

static void test_write_fails(void)
{
    static const struct {
        const char *what;
        int call, error;
    } failures[] = {{"a full disk", CALL_WRITE, ENOSPC},
                    {"a disk that does not take the checksum", CALL_PWRITE, EIO},
                    {"a disk that fails at fsync", CALL_FSYNC, EIO},
                    {"a rename that fails", CALL_RENAME, EACCES}};
    int fd = free_fd();
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        failing_call = failures[i].call, failing_errno = failures[i].error;
        polar_status st = pl_safetensors_write(in_folder("a"), some, 1, NULL, 0);
        failing_call = CALL_NONE;
        test_write_failed(failures[i].what, st, POLAR_E_IO, strerror(failures[i].error));
    }
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old, small.rlim_cur = 1000;
    static char large[100000];
    pl_safetensors_entry e = {.name = "large",
                              .dtype_name = "U8",
                              .ndim = 1,
                              .shape = {sizeof large},
                              .data = large,
                              .bytes = sizeof large};
    fflush(stdout);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    polar_status st = pl_safetensors_write(in_folder("a"), &e, 1, NULL, 0);
    setrlimit(RLIMIT_FSIZE, &old);
    test_write_failed("a file that may not grow so large", st, POLAR_E_IO, strerror(EFBIG));
    test_write_failed("a missing folder", pl_safetensors_write(in_folder("none/a"), some, 1, NULL, 0),
                      POLAR_E_ARG, strerror(ENOENT));
    struct stat info;
    /* stands for a device: never risk a real one, a broken build would replace it */
    TEST_TRY(mkfifo(in_folder("pipe"), 0600) ? POLAR_E_IO : POLAR_OK);
    st = pl_safetensors_write(in_folder("pipe"), some, 1, NULL, 0);
    int kept = stat(in_folder("pipe"), &info) == 0 && S_ISFIFO(info.st_mode);
    unlink(in_folder("pipe"));
    test_write_failed("a pipe or device in the place of the file", kept ? st : POLAR_OK, POLAR_E_ARG,
                      "not a regular file");
    test_exact("descriptors left open", free_fd() - fd);
}

static void test_write_refuses(void)
{
    const pl_safetensors_entry good = some[1];
    struct {
        const char *says;
        pl_safetensors_entry e;
    } bad[] = {{"name in UTF-8", good},
               {"name in UTF-8", good},
               {"taken by the format", good},
               {"not a polar_dtype", good},
               {"not a number format", good},
               {"negative dimension", good},
               {"more dimensions", good},
               {"want 24", good},
               {"no data", good},
               {"2^63", good}};
    bad[0].e.name = NULL, bad[1].e.name = "\xc0\x80", bad[2].e.name = "__metadata__", bad[3].e.dtype = -1,
    bad[4].e.dtype_name = "f32", bad[5].e.shape[0] = -2;
    bad[6].e.ndim = 9, bad[7].e.bytes = 23, bad[8].e.data = NULL, bad[9].e.shape[0] = INT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        test_write_failed("an entry that is wrong",
                          pl_safetensors_write(in_folder("a"), &bad[i].e, 1, NULL, 0), POLAR_E_ARG,
                          bad[i].says);
    pl_safetensors_entry huge[16];
    const pl_safetensors_entry one = {
        .name = "w", .dtype_name = "U8", .ndim = 1, .shape = {1ll << 59}, .data = w, .bytes = 1ll << 59};
    for (int i = 0; i < 16; i++) huge[i] = one;
    test_write_failed("sizes that overflow together", pl_safetensors_write(in_folder("a"), huge, 16, NULL, 0),
                      POLAR_E_ARG, "2^63 bytes together");
    const pl_safetensors_entry twice[] = {good, some[0], good};
    test_write_failed("a name twice", pl_safetensors_write(in_folder("a"), twice, 3, NULL, 0), POLAR_E_ARG,
                      "'w' is given twice");
    const pl_safetensors_meta keys[] = {{"k", "1"}, {"k", "2"}}, no_value = {"k", NULL};
    test_write_failed("a metadata key twice", pl_safetensors_write(in_folder("a"), NULL, 0, keys, 2),
                      POLAR_E_ARG, "'k' is given twice");
    char *text = malloc(PL_SAFETENSORS_MAX_HEADER + 1);
    if (!text) exit(1);
    memset(text, 'x', PL_SAFETENSORS_MAX_HEADER);
    text[PL_SAFETENSORS_MAX_HEADER] = 0;
    const pl_safetensors_meta large = {"k", text};
    test_write_failed("a header larger than the format takes",
                      pl_safetensors_write(in_folder("a"), NULL, 0, &large, 1), POLAR_E_ARG,
                      "the format takes");
    free(text);
    test_write_failed("metadata without value", pl_safetensors_write(in_folder("a"), NULL, 0, &no_value, 1),
                      POLAR_E_ARG, "metadata 0");
    const pl_safetensors_meta sum = {PL_SAFETENSORS_CHECKSUM, "0123456789abcdef"};
    test_write_failed("a checksum of the caller's", pl_safetensors_write(in_folder("a"), NULL, 0, &sum, 1),
                      POLAR_E_ARG, "put there by the writer");
}

/* ---- no memory ---------------------------------------------------------------------------------- */

static polar_status write_call(void)
{
    return pl_safetensors_write(in_folder("a"), some, N_SOME, pairs, N_PAIRS);
}

static polar_status open_call(void)
{
    pl_safetensors *f;
    polar_status st = pl_safetensors_open(&f, in_folder("a"));
    if ((st == POLAR_OK) != (f != NULL)) exit(1);
    pl_safetensors_close(f);
    return st;
}

static polar_status open_bytes_call(void)
{
    pl_safetensors *f;
    polar_status st = open_text(&f, "{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("U8", "[1]", "[0,1]") "}", 1);
    pl_safetensors_close(f);
    return st;
}

static polar_status open_golden_call(void)
{
    pl_safetensors *f;
    /* 410 tensors: the list grows */
    polar_status st = pl_safetensors_open(&f, GOLDEN_DIR "/optim.safetensors");
    pl_safetensors_close(f);
    return st;
}

/* The n-th allocation fails, n = 1, 2, ... until the call works. */
static void test_no_memory(const char *what, polar_status (*call)(void))
{
    int64_t live = pl_alloc_live(), n = 1, wrong = 0;
    int fd = free_fd();
    for (polar_status st = POLAR_E_NOMEM; st != POLAR_OK && n < 1000; n++) {
        pl_alloc_fail_at(n);
        st = call();
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live || free_fd() != fd ||
                 folder_files(folder) != 1;
    }
    test_exact(what, wrong);
    test_true("    allocations made to fail", n > 4 && n < 1000, "%lld", (long long)n - 2);
}

/* ---- mutations ---------------------------------------------------------------------------------- */

/* What must hold for a file that was taken, from the definition; every byte is read, and they are the file's.
 */
static int64_t violations(const pl_safetensors *f, const mutant *m)
{
    int64_t total = 0, sum = 0, wrong = 0;
    for (int64_t i = 0; i < pl_safetensors_count(f); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(f, i);
        const unsigned char *d = e->data;
        for (int64_t b = 0; b < e->bytes; b++) sum += d[b];
        for (int k = 0; k < e->ndim; k++) wrong += e->shape[k] < 0;
        total += e->bytes;
        wrong += (uintptr_t)d % 64 != 0 || pl_safetensors_find(f, e->name) != e || e->ndim > POLAR_MAX_DIMS;
    }
    for (size_t b = 8 + header_size(m); b < m->size; b++) sum -= m->bytes[b];
    return wrong + (sum != 0) + (total != (int64_t)(m->size - 8 - header_size(m)));
}

/* What open takes, write takes back. */
static int64_t rewrite_differs(const pl_safetensors *f)
{
    pl_safetensors_entry entries[2 * N_SOME];
    pl_safetensors_meta meta[2 * N_PAIRS];
    int64_t n = pl_safetensors_count(f), n_meta = pl_safetensors_meta_count(f);
    pl_safetensors *again = NULL;
    if (n > 2 * N_SOME || n_meta > 2 * N_PAIRS) return 0;
    for (int64_t i = 0; i < n; i++) entries[i] = *pl_safetensors_view(f, i);
    for (int64_t i = 0; i < n_meta; i++) meta[i] = *pl_safetensors_meta_view(f, i);
    polar_status st = pl_safetensors_write(in_folder("a"), entries, n, meta, n_meta);
    if (st == POLAR_OK) st = pl_safetensors_open(&again, in_folder("a"));
    int64_t wrong = st == POLAR_OK ? differences(again, entries, n, meta, n_meta) : 1;
    pl_safetensors_close(again);
    return wrong;
}

static void test_mutations(void)
{
    enum { ROUNDS = 20000 };
    uint64_t x = 1234567;
    int64_t wrong = 0, differs = 0, taken = 0, live = pl_alloc_live();
    size_t size;
    TEST_TRY(pl_safetensors_write(in_folder("a"), some, N_SOME, pairs, N_PAIRS));
    unsigned char *valid = read_file(in_folder("a"), &size);
    strip_checksum(valid, size); /* with it nearly every mutation would end there */
    for (int round = 0; round < ROUNDS; round++) {
        mutant m = {.size = size};
        pl_safetensors *f;
        memcpy(m.bytes, valid, size);
        for (uint64_t n = 1 + draw(&x, 3); n > 0; n--) mutate(&m, &x);
        unsigned char *exact = malloc(m.size ? m.size : 1); /* for the address sanitizer */
        if (!exact) exit(1);
        memcpy(exact, m.bytes, m.size);
        polar_status st = pl_safetensors_open_bytes(&f, exact, (int64_t)m.size, "mutation");
        free(exact);
        wrong += (st != POLAR_OK && st != POLAR_E_FORMAT) || (st == POLAR_OK) != (f != NULL);
        if (f) wrong += violations(f, &m);
        if (f && taken++ % 8 == 0) differs += rewrite_differs(f);
        pl_safetensors_close(f);
    }
    free(valid);
    test_exact("mutations", wrong);
    test_exact("what was taken can be written and read again", differs);
    test_true("some are taken, most are not", taken > ROUNDS / 100 && taken < ROUNDS / 2, "%lld of %d",
              (long long)taken, ROUNDS);
    test_exact("blocks left behind", pl_alloc_live() - live);
}

int main(int argc, char **argv)
{
    const char *base = getenv("TMPDIR");
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "%s/test_safetensors.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) return perror(folder), 1;
    test_round_trip();
    test_golden();
    test_malformed();
    test_lengths();
    test_unusual();
    test_open_fails();
    test_write_fails();
    test_write_refuses();
    test_no_memory("no memory for write", write_call);
    test_no_memory("no memory for open", open_call);
    test_no_memory("no memory for open_bytes", open_bytes_call);
    test_no_memory("no memory for open, a large file", open_golden_call);
    test_mutations();
    unlink(in_folder("a"));
    if (rmdir(folder)) test_true("the folder is empty at the end", 0, "%s", folder);
    return test_end();
}
