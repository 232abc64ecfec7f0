/* image_nvjpeg.c -- nvJPEG behind a face of ours; nothing is compiled against its header.
 *
 * Its ABI since CUDA 11: handles are pointers, enums are ints, an output has four pointers and four pitches.
 * One handle serves all threads, a state one. The entropy coding is undone on the calling thread and the rest
 * on the GPU (NVJPEG_BACKEND_HYBRID), whatever the chip has, so that a file's pixels are a function of the
 * file and of nvJPEG's version. Colours between the coded ones are interpolated
 * (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION, since 12.1), as libjpeg's are.
 */
#include "data/codec/image_nvjpeg.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/codec/image_codec.h"

enum {
    BACKEND_HYBRID = 1,
    FLAG_INTERPOLATION = 32,
    OUTPUT_RGBI = 5,
    SAMPLING_444 = 0,
    SAMPLING_420 = 2,
    SAMPLING_GREY = 6,
    COMPONENTS = 4,
    MAJOR_VERSION = 0,
    MINOR_VERSION = 1
};

/* of its calls */
enum {
    DONE,
    BAD_JPEG = 3,
    JPEG_NOT_SUPPORTED = 4,
    IMPLEMENTATION_NOT_SUPPORTED = 9,
    INCOMPLETE_BITSTREAM = 10
};

typedef struct nvjpeg_image {
    unsigned char *channel[COMPONENTS];
    size_t pitch[COMPONENTS];
} nvjpeg_image;

static struct {
    pthread_once_t once;
    int there, major, minor;
    int (*GetProperty)(int type, int *value);
    int (*CreateEx)(int backend, void *device_memory, void *pinned_memory, unsigned flags, void **handle);
    int (*Destroy)(void *handle);
    int (*JpegStateCreate)(void *handle, void **state);
    int (*JpegStateDestroy)(void *state);
    int (*GetImageInfo)(void *handle, const unsigned char *bytes, size_t size, int *components, int *sampling,
                        int *widths, int *heights);
    int (*Decode)(void *handle, void *state, const unsigned char *bytes, size_t size, int format,
                  nvjpeg_image *out, void *stream);
} nvjpeg = {.once = PTHREAD_ONCE_INIT};

struct pl_nvjpeg {
    void *handle;
    int workers;
    void **states; /* (workers) */
};

/* The library's path as the environment names it, or NULL. */
static const char *named(void)
{
    const char *path = getenv(PL_NVJPEG_VARIABLE);
    return path && *path ? path : NULL;
}

int pl_nvjpeg_named(void)
{
    return named() != NULL;
}

static void load(void)
{
    const struct {
        void **at;
        const char *name;
    } wanted[] = {
        {(void **)&nvjpeg.GetProperty, "nvjpegGetProperty"},
        {(void **)&nvjpeg.CreateEx, "nvjpegCreateEx"},
        {(void **)&nvjpeg.Destroy, "nvjpegDestroy"},
        {(void **)&nvjpeg.JpegStateCreate, "nvjpegJpegStateCreate"},
        {(void **)&nvjpeg.JpegStateDestroy, "nvjpegJpegStateDestroy"},
        {(void **)&nvjpeg.GetImageInfo, "nvjpegGetImageInfo"},
        {(void **)&nvjpeg.Decode, "nvjpegDecode"},
    };
    static const char *const names[] = {"libnvjpeg.so.13", "libnvjpeg.so.12"};
    const char *path = named();
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library && !path; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    nvjpeg.there = library != NULL;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && library; i++) {
        *wanted[i].at = dlsym(library, wanted[i].name);
        nvjpeg.there &= *wanted[i].at != NULL;
    }
    if (nvjpeg.there)
        nvjpeg.there = nvjpeg.GetProperty(MAJOR_VERSION, &nvjpeg.major) == DONE &&
                       nvjpeg.GetProperty(MINOR_VERSION, &nvjpeg.minor) == DONE;
}

static polar_status told(int status, const char *what, const char *name)
{
    static const char *const words[] = {"done",
                                        "not initialised",
                                        "an invalid parameter",
                                        "a bad JPEG",
                                        "a JPEG it does not know",
                                        "no memory",
                                        "a kernel failed",
                                        "not for this chip",
                                        "an internal error",
                                        "not implemented",
                                        "ends early"};
    int known = status >= 0 && status < (int)(sizeof words / sizeof *words);
    if (status == DONE) return POLAR_OK;
    int refused = status == BAD_JPEG || status == JPEG_NOT_SUPPORTED ||
                  status == IMPLEMENTATION_NOT_SUPPORTED || status == INCOMPLETE_BITSTREAM;
    return PL_FAIL(refused ? POLAR_E_UNSUPPORTED : POLAR_E_DEVICE, "%s%snvJPEG, %s: %s (status %d)", name,
                   *name ? ": " : "", what, known ? words[status] : "a word of its own", status);
}

static polar_status fill(pl_nvjpeg *n)
{
    n->states = pl_calloc((size_t)n->workers, sizeof *n->states);
    PL_NEED(n->states, POLAR_E_NOMEM, "%d decoders", n->workers);
    PL_TRY(
        told(nvjpeg.CreateEx(BACKEND_HYBRID, NULL, NULL, FLAG_INTERPOLATION, &n->handle), "beginning", ""));
    for (int i = 0; i < n->workers; i++)
        PL_TRY(told(nvjpeg.JpegStateCreate(n->handle, &n->states[i]), "making a decoder", ""));
    return POLAR_OK;
}

polar_status pl_nvjpeg_open(pl_nvjpeg **out, int workers)
{
    *out = NULL;
    pthread_once(&nvjpeg.once, load);
    PL_NEED(
        nvjpeg.there, POLAR_E_UNSUPPORTED,
        "no nvJPEG: neither libnvjpeg.so.13 nor libnvjpeg.so.12 can be loaded, nor what " PL_NVJPEG_VARIABLE
        " names");
    PL_NEED(nvjpeg.major > 12 || (nvjpeg.major == 12 && nvjpeg.minor >= 1), POLAR_E_UNSUPPORTED,
            "nvJPEG %d.%d does not interpolate colours as libjpeg does; 12.1 and newer do", nvjpeg.major,
            nvjpeg.minor);
    pl_nvjpeg *n = pl_calloc(1, sizeof *n);
    PL_NEED(n, POLAR_E_NOMEM, "a decoder");
    n->workers = workers;
    polar_status st = fill(n);
    if (st == POLAR_OK) *out = n;
    else pl_nvjpeg_close(n);
    return st;
}

void pl_nvjpeg_close(pl_nvjpeg *n)
{
    if (!n) return;
    for (int i = 0; n->states && i < n->workers; i++)
        if (n->states[i]) nvjpeg.JpegStateDestroy(n->states[i]);
    if (n->handle) nvjpeg.Destroy(n->handle);
    pl_free(n->states);
    pl_free(n);
}

/* ---- what it is given ---------------------------------------------------------------------------- */

/* Whether the markers lead to the end of the picture: nvJPEG takes what is there of a file that was cut, and
 * the host refuses it. */
static int is_whole(const uint8_t *b, size_t size)
{
    size_t at = 2;
    for (;;) {
        const uint8_t *next = at < size ? memchr(b + at, 0xff, size - at) : NULL;
        if (!next || (at = (size_t)(next - b)) + 1 >= size) return 0;
        int marker = b[at + 1];
        if (marker == 0xd9) return 1;
        if (marker == 0 || marker == 0xff || (marker >= 0xd0 && marker <= 0xd7)) {
            at += marker == 0xff ? 1 : 2; /* a fill byte; coded pixels, a restart */
            continue;
        }
        if (at + 3 >= size) return 0;
        at += 2 + (size_t)(b[at + 2] << 8 | b[at + 3]);
    }
}

polar_status pl_nvjpeg_decode(pl_nvjpeg *n, int worker, void *pixels, const uint8_t *bytes, size_t size,
                              const char *name, int64_t width, int64_t height, void *stream)
{
    const pl_codec_source src = {bytes, size, name};
    pl_image_info info;
    int components = 0, sampling = -1, widths[COMPONENTS] = {0}, heights[COMPONENTS] = {0};
    PL_NEED(pl_image_sniff(bytes, size) == PL_IMAGE_JPEG, POLAR_E_UNSUPPORTED, "%s: not a JPEG", name);
    PL_NEED(pl_jpeg_measure(&info, &src, 1) == POLAR_OK && info.plain && is_whole(bytes, size),
            POLAR_E_UNSUPPORTED, "%s: a JPEG for the host", name);
    PL_TRY(told(nvjpeg.GetImageInfo(n->handle, bytes, size, &components, &sampling, widths, heights),
                "its header", name));
    int known = sampling == SAMPLING_GREY || (sampling >= SAMPLING_444 && sampling <= SAMPLING_420);
    PL_NEED(known && widths[0] == info.width && heights[0] == info.height && info.width == width &&
                info.height == height,
            POLAR_E_UNSUPPORTED,
            "%s: to nvJPEG %d x %d pixels, sampled by its kind %d; to the host %lld x %lld of %lld x %lld",
            name, widths[0], heights[0], sampling, (long long)info.width, (long long)info.height,
            (long long)width, (long long)height);
    nvjpeg_image out = {.channel = {pixels}, .pitch = {3 * (size_t)width}};
    return told(nvjpeg.Decode(n->handle, n->states[worker], bytes, size, OUTPUT_RGBI, &out, stream),
                "decoding", name);
}
