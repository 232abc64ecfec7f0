/* test_nvjpeg.c -- JPEG files of every sampling, colour and coding through nvJPEG. On a CPU a library of the
 * test's stands in for it (fixtures/fake_nvjpeg.c): which files it is given, and that a hostile one touches
 * nothing outside of its pixels. On a GPU with nvJPEG: how far its pixels are from the host's.
 *
 *     ctest -R test_nvjpeg
 *     test_nvjpeg cuda:0                  77: there is no nvJPEG (POLAR_NVJPEG names one)
 */
#include "base/alloc.h"
#include "data/codec/image_nvjpeg.h"
#include "device/backend.h"
#include "fixtures/place.h"
#include "image_fixture.h"

#define ROOM (3 * 256 * 256)
#define ZONE 4096 /* bytes after a picture that nobody may touch */

/* The contract of pictures made on a device: the same inverse transform, and of colours that lie between one
 * rounding more or less. */
#define MOST 1 /* grey level */

static const struct {
    const char *name;
    made_jpeg_opts o;
    int given; /* to nvJPEG */
} kinds[] = {
    {"grey", {.components = 1}, 1},
    {"4:4:4", {.components = 3, .h = 1, .v = 1}, 1},
    {"4:2:2", {.components = 3, .h = 2, .v = 1}, 1},
    {"4:2:0", {.components = 3, .h = 2, .v = 2}, 1},
    {"4:2:0, restarts", {.components = 3, .h = 2, .v = 2, .restart = 3}, 1},
    {"4:2:0, quality 30", {.components = 3, .h = 2, .v = 2, .quality = 30}, 1},
    {"4:2:0, quality 100", {.components = 3, .h = 2, .v = 2, .quality = 100}, 1},
    {"4:2:0, progressive", {.components = 3, .h = 2, .v = 2, .scans = MADE_PROGRESSIVE}, 0},
    {"4:4:4, progressive", {.components = 3, .h = 1, .v = 1, .scans = MADE_PROGRESSIVE}, 0},
    {"4:4:4, separate scans", {.components = 3, .h = 1, .v = 1, .scans = MADE_SEPARATE}, 0},
    {"4:4:0", {.components = 3, .h = 1, .v = 2}, 0},
    {"4:1:1", {.components = 3, .h = 4, .v = 1}, 0},
    {"RGB", {.components = 3, .plain_rgb = 1}, 0},
    {"CMYK", {.components = 4}, 0},
    {"YCCK", {.components = 4, .ycck = 1}, 0},
    {"arithmetic coding", {.components = 3, .h = 2, .v = 2, .scans = MADE_ARITHMETIC}, 0},
};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static const int sizes[][2] = {{64, 64}, {250, 187}, {17, 200}, {1, 1}};

typedef struct {
    place at;
    pl_nvjpeg *n;
    uint8_t *there, *got; /* ROOM + ZONE */
    int fake;
} rig;

/* Decodes to the device, `width` x `height` being what the caller has room for; and brings it back. */
static polar_status decode(rig *r, const made *m, int64_t width, int64_t height)
{
    const pl_backend *b = r->at.dev->backend;
    memset(r->got, 0xa5, ROOM + ZONE);
    polar_queue_upload(r->at.q, r->there, r->got, ROOM + ZONE);
    TEST_TRY(polar_queue_sync(r->at.q));
    polar_status st = pl_nvjpeg_decode(r->n, 0, r->there, m->data, m->size, "a.jpg", width, height,
                                       b->queue_stream ? b->queue_stream(r->at.q) : NULL);
    TEST_TRY(polar_queue_sync(r->at.q));
    polar_queue_download(r->at.q, r->got, r->there, ROOM + ZONE);
    TEST_TRY(polar_queue_sync(r->at.q));
    return st;
}

static int64_t touched(const rig *r, int64_t from)
{
    int64_t n = 0;
    for (int64_t i = from; i < ROOM + ZONE; i++) n += r->got[i] != 0xa5;
    return n;
}

/* ---- files ---------------------------------------------------------------------------------------- */

static void test_kind(rig *r, int k)
{
    int64_t outside = 0, wrong = 0, count = 0, bytes = 0, off = 0;
    double most = 0;
    for (int s = 0; s < 4; s++) {
        made_jpeg_opts o = kinds[k].o;
        o.width = sizes[s][0], o.height = sizes[s][1], o.seed = (uint32_t)(31 * k + s);
        made m = made_jpeg(&o);
        pl_image im;
        int64_t n = 3 * (int64_t)o.width * o.height;
        TEST_TRY(pl_image_decode(&im, m.data, m.size, "a.jpg"));
        polar_status st = decode(r, &m, o.width, o.height);
        wrong += st != (kinds[k].given ? POLAR_OK : POLAR_E_UNSUPPORTED);
        outside += touched(r, st == POLAR_OK ? n : 0);
        for (int64_t i = 0; i < n && st == POLAR_OK; i++) {
            int d = abs(r->got[i] - im.data[i]);
            if (r->fake) wrong += r->got[i] != (uint8_t)((i + (int64_t)m.size) % 251);
            most = fmax(most, d), bytes++, off += d > 0;
        }
        count += st == POLAR_OK;
        pl_image_destroy(&im);
        free(m.data);
    }
    test_true(kinds[k].name, PART(!outside) && PART(!wrong), "%lld files are nvJPEG's", (long long)count);
    if (r->fake || !kinds[k].given) return;
    test_bound("... grey levels from the host's", most, MOST, "one grey level");
    printf("    %.6f of all bytes are off\n", (double)off / (double)bytes);
}

/* Files that were cut, and headers that claim what the bytes cannot hold: nvJPEG does not see them, or not
 * with more pixels than there is room for. */
static void test_hostile(rig *r)
{
    made_jpeg_opts o = {.components = 3, .h = 2, .v = 2, .width = 100, .height = 80};
    made m = made_jpeg(&o);
    int64_t taken = 0, outside = 0, frame = 2;
    for (size_t cut = 1; cut < m.size; cut += 1 + cut / 9) {
        made part = {m.data, m.size - cut};
        taken += decode(r, &part, o.width, o.height) != POLAR_E_UNSUPPORTED;
        outside += touched(r, 0);
    }
    test_exact("files that were cut", taken);
    while (m.data[frame + 1] != 0xc0) frame += 2 + (m.data[frame + 2] << 8 | m.data[frame + 3]);
    for (int k = 0; k < 4; k++) { /* height and width, of the file alone or of what the caller believes too */
        made lie = {malloc(m.size), m.size};
        memcpy(lie.data, m.data, m.size);
        lie.data[frame + (k % 2 ? 7 : 5)] = 0xff;
        pl_image_info info;
        TEST_TRY(pl_image_measure(&info, lie.data, lie.size, "a.jpg"));
        taken += decode(r, &lie, k < 2 ? o.width : info.width, k < 2 ? o.height : info.height) !=
                 POLAR_E_UNSUPPORTED;
        outside += touched(r, 0);
        free(lie.data);
    }
    made whole = m;
    taken += decode(r, &whole, o.width - 1, o.height) != POLAR_E_UNSUPPORTED;
    outside += touched(r, 0);
    test_exact("headers that lie", taken);
    test_exact("... bytes written", outside);
    /* noise in the place of coded pixels: whatever comes of it stays inside */
    outside = 0;
    for (uint32_t t = 0; t < 40; t++) {
        made noise = {malloc(m.size), m.size};
        memcpy(noise.data, m.data, m.size);
        for (uint32_t i = 0; i < 20; i++)
            noise.data[(uint32_t)frame + made_draw(500 + t, i, (uint32_t)(m.size - (size_t)frame))] =
                (uint8_t)made_draw(600 + t, i, 256);
        (void)decode(r, &noise, o.width, o.height);
        outside += touched(r, 3 * (int64_t)o.width * o.height);
        free(noise.data);
    }
    test_exact("damaged files: bytes written outside", outside);
    free(m.data);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    rig r = {.fake = strncmp(device, "cuda", 4) != 0};
    if (r.fake) setenv(PL_NVJPEG_VARIABLE, FAKE_NVJPEG, 1);
    r.at = place_open(device);
    polar_status st = pl_nvjpeg_open(&r.n, 1);
    if (st == POLAR_E_UNSUPPORTED && !r.fake) {
        printf("%s\n", polar_error_message());
        return 77;
    }
    TEST_TRY(st);
    TEST_TRY(polar_device_alloc(r.at.dev, (void **)&r.there, ROOM + ZONE));
    r.got = malloc(ROOM + ZONE);
    for (int k = 0; k < KINDS; k++) test_kind(&r, k);
    test_hostile(&r);
    free(r.got);
    polar_device_free(r.at.dev, r.there);
    pl_nvjpeg_close(r.n);
    place_close(r.at);
    return test_end();
}
