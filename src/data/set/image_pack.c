/* image_pack.c -- opens a pack: every number in it is checked before it is used, every picture when it is
 * first read. */
#include "data/set/image_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"

_Static_assert(sizeof(pl_pack_header) == 256 && sizeof(pl_pack_entry) == 40, "the file's layout");

struct pl_image_pack {
    uint8_t *map;
    size_t bytes;
    const pl_pack_entry *index;
    const char *names, **class_names;
    char *path;
    atomic_char *sound; /* one per picture: its pixels were compared with their checksum */
};

/* ---- what a signal handler can know ------------------------------------------------------------- */

/* The mappings, so that whoever catches SIGBUS can name the file. More than these work too, without a name.
 */
enum { MAPPINGS = 16 };
static struct {
    atomic_int taken;
    atomic_uintptr_t begin, end;
    _Atomic(const char *) path;
} mappings[MAPPINGS];

static void list_mapping(const pl_image_pack *p)
{
    for (int i = 0; i < MAPPINGS; i++) {
        if (atomic_exchange(&mappings[i].taken, 1)) continue;
        atomic_store(&mappings[i].path, p->path);
        atomic_store(&mappings[i].end, (uintptr_t)p->map + p->bytes);
        atomic_store(&mappings[i].begin, (uintptr_t)p->map);
        return;
    }
}

static void unlist_mapping(const pl_image_pack *p)
{
    for (int i = 0; i < MAPPINGS; i++) {
        if (atomic_load(&mappings[i].begin) != (uintptr_t)p->map) continue;
        atomic_store(&mappings[i].begin, 0);
        atomic_store(&mappings[i].end, 0);
        atomic_store(&mappings[i].taken, 0);
        return;
    }
}

const char *pl_image_pack_at(const void *address)
{
    for (int i = 0; i < MAPPINGS; i++)
        if ((uintptr_t)address >= atomic_load(&mappings[i].begin) &&
            (uintptr_t)address < atomic_load(&mappings[i].end))
            return atomic_load(&mappings[i].path);
    return NULL;
}

static const pl_pack_entry *entry(const pl_image_pack *p, pl_image_split split, int64_t i)
{
    return p->index + (split == PL_IMAGES_TEST ? pl_image_pack_header(p)->count[PL_IMAGES_TRAIN] : 0) + i;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static polar_status check_header(const pl_image_pack *p, const char *path)
{
    const pl_pack_header *h = pl_image_pack_header(p);
    PL_NEED(p->bytes >= sizeof *h && !memcmp(h->magic, PL_PACK_MAGIC, 8), POLAR_E_FORMAT,
            "'%s' is no packed set of pictures (`polar data pack` writes one)", path);
    PL_NEED(h->order == 0x0102030405060708u, POLAR_E_FORMAT,
            "'%s' was packed on a machine of another byte order", path);
    PL_NEED(h->version == PL_PACK_VERSION, POLAR_E_FORMAT,
            "'%s' is a pack of version %llu, this program reads %d", path, (unsigned long long)h->version,
            PL_PACK_VERSION);
    PL_NEED(h->file_bytes == p->bytes, POLAR_E_FORMAT,
            "'%s' has %zu bytes of %llu: cut short, or not copied to the end", path, p->bytes,
            (unsigned long long)h->file_bytes);
    uint64_t n = h->count[0] + h->count[1], limit = p->bytes / sizeof(pl_pack_entry);
    int ok = h->count[0] <= limit && h->count[1] <= limit && n <= limit && h->classes <= h->names_bytes &&
             h->index_at >= sizeof *h && h->index_at % 8 == 0 && h->index_at <= p->bytes &&
             h->names_at == h->index_at + n * sizeof(pl_pack_entry) && h->names_at <= p->bytes &&
             h->names_bytes == p->bytes - h->names_at && h->names_bytes;
    PL_NEED(ok, POLAR_E_FORMAT, "the header of '%s' is damaged: places outside the file", path);
    char hex[PL_SHA256_HEX];
    pl_sha256 sha = pl_sha256_begin();
    pl_sha256_add(&sha, h, offsetof(pl_pack_header, sha256));
    pl_sha256_add(&sha, p->map + h->index_at, p->bytes - h->index_at);
    pl_sha256_end(hex, &sha);
    PL_NEED(!memcmp(hex, h->sha256, sizeof h->sha256), POLAR_E_FORMAT,
            "the header or index of '%s' is damaged: its checksum differs", path);
    return POLAR_OK;
}

/* A right checksum says that the numbers are those written; that they make sense is looked at all the same.
 * Pictures lie one behind the other: one that many entries share would make a small file a long read. */
static polar_status check_index(pl_image_pack *p, const char *path)
{
    const pl_pack_header *h = pl_image_pack_header(p);
    p->index = (const pl_pack_entry *)(p->map + h->index_at);
    p->names = (const char *)p->map + h->names_at;
    PL_NEED(!p->names[h->names_bytes - 1], POLAR_E_FORMAT, "the names in '%s' have no end", path);
    p->class_names = pl_calloc((size_t)h->classes + 1, sizeof *p->class_names);
    p->sound = pl_calloc((size_t)(h->count[0] + h->count[1]) + 1, sizeof *p->sound);
    PL_NEED(p->class_names && p->sound, POLAR_E_NOMEM, "lists of %llu classes and %llu pictures",
            (unsigned long long)h->classes, (unsigned long long)(h->count[0] + h->count[1]));
    const char *name = p->names;
    for (uint64_t c = 0; c < h->classes; c++) {
        PL_NEED(name < p->names + h->names_bytes, POLAR_E_FORMAT, "'%s' has fewer class names than classes",
                path);
        p->class_names[c] = name;
        name += strlen(name) + 1;
    }
    for (uint64_t i = 0, end = sizeof *h; i < h->count[0] + h->count[1]; i++) {
        const pl_pack_entry *e = &p->index[i];
        uint64_t pixels = (uint64_t)e->width * e->height;
        int ok = e->width && e->height && pixels <= PL_IMAGE_MAX_PIXELS && e->at >= end &&
                 e->at <= h->index_at && pixels * PL_IMAGE_CHANNELS <= h->index_at - e->at &&
                 e->label < h->classes && e->name < h->names_bytes;
        PL_NEED(ok, POLAR_E_FORMAT, "entry %llu of '%s' is damaged", (unsigned long long)i, path);
        end = e->at + pixels * PL_IMAGE_CHANNELS;
    }
    return POLAR_OK;
}

static polar_status map_file(pl_image_pack *p, const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return PL_FAIL(errno == ENOENT ? POLAR_E_ARG : POLAR_E_IO, "open '%s': %s", path, strerror(errno));
    polar_status st = POLAR_OK;
    if (fstat(fd, &s) != 0) st = PL_FAIL(POLAR_E_IO, "'%s': %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode) || s.st_size < (off_t)sizeof(pl_pack_header))
        st =
            PL_FAIL(POLAR_E_FORMAT, "'%s' is no packed set of pictures (`polar data pack` writes one)", path);
    else {
        void *map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) st = PL_FAIL(POLAR_E_IO, "map '%s': %s", path, strerror(errno));
        else {
            p->map = map;
            p->bytes = (size_t)s.st_size;
            list_mapping(p);
        }
    }
    close(fd);
    return st;
}

polar_status pl_image_pack_open(pl_image_pack **out, const char *path)
{
    *out = NULL;
    pl_image_pack *p = pl_calloc(1, sizeof *p);
    PL_NEED(p, POLAR_E_NOMEM, "a pack of pictures");
    p->path = pl_strdup(path);
    polar_status st = p->path ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "the name of a pack");
    if (st == POLAR_OK) st = map_file(p, path);
    if (st == POLAR_OK) st = check_header(p, path);
    if (st == POLAR_OK) st = check_index(p, path);
    if (st == POLAR_OK) *out = p;
    else pl_image_pack_close(p);
    return st;
}

void pl_image_pack_close(pl_image_pack *p)
{
    if (!p) return;
    if (p->map) {
        unlist_mapping(p);
        munmap(p->map, p->bytes);
    }
    pl_free(p->class_names);
    pl_free(p->sound);
    pl_free(p->path);
    pl_free(p);
}

/* ---- reading ------------------------------------------------------------------------------------ */

const pl_pack_header *pl_image_pack_header(const pl_image_pack *p)
{
    return (const pl_pack_header *)p->map;
}

const char *pl_image_pack_class(const pl_image_pack *p, int64_t label)
{
    return p->class_names[label];
}

const char *pl_image_pack_name(const pl_image_pack *p, pl_image_split split, int64_t i)
{
    return p->names + entry(p, split, i)->name;
}

int64_t pl_image_pack_label(const pl_image_pack *p, pl_image_split split, int64_t i)
{
    return entry(p, split, i)->label;
}

pl_image pl_image_pack_view(const pl_image_pack *p, pl_image_split split, int64_t i)
{
    const pl_pack_entry *e = entry(p, split, i);
    return pl_image_view(p->map + e->at, e->width, e->height);
}

/* The pixels, and the zeros that fill up to the next picture: with header, index and names that is every byte
 * of the file. */
polar_status pl_image_pack_check(const pl_image_pack *p, pl_image_split split, int64_t i)
{
    const pl_pack_entry *e = entry(p, split, i);
    pl_image im = pl_image_pack_view(p, split, i);
    size_t bytes = pl_image_bytes(&im);
    int same = pl_checksum_of(im.data, bytes) == e->hash;
    for (uint64_t at = e->at + bytes; at % PL_PACK_ALIGN; at++) same &= !p->map[at];
    PL_NEED(same, POLAR_E_FORMAT, "'%s' is damaged: the pixels of %s are not those written (pack it again)",
            p->path, pl_image_pack_name(p, split, i));
    atomic_store_explicit(&p->sound[e - p->index], 1, memory_order_relaxed);
    return POLAR_OK;
}

polar_status pl_image_pack_read(pl_image *out, const pl_image_pack *p, pl_image_split split, int64_t i)
{
    *out = pl_image_pack_view(p, split, i);
    if (atomic_load_explicit(&p->sound[entry(p, split, i) - p->index], memory_order_relaxed)) return POLAR_OK;
    return pl_image_pack_check(p, split, i);
}
