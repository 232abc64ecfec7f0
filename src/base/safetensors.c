/* safetensors.c -- the reader of safetensors.h: nothing in the file is believed before it was checked.
 *
 * The file is read, not mapped. A mapping of a file that somebody shortens kills the process with SIGBUS at
 * some later load, and tensors in it stand at any byte; reading costs one copy (our files are MBs to a few
 * GBs and are used whole) and gives every tensor its own 64-byte aligned place. A file that shrinks under us
 * is an ordinary POLAR_E_IO.
 *
 * Invariants of a handle that left this file:
 *  1. bytes of every entry = product of its shape times its dtype, and no such product overflows, zero
 * dimensions counted as one.
 *  2. The entries' ranges cover the data of the file exactly: no hole, no overlap, no tail.
 *  3. Names are unique, as are metadata keys; both are zero-terminated UTF-8 inside `strings`.
 *  4. A checksum that the file carries is that of its bytes.
 *     ctest -R test_safetensors
 */
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum_overlap.h"
#include "base/json_read.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are handed over as they stand in the file: little-endian");

#define ALIGNMENT 64
#define PIECE     ((int64_t)1 << 18) /* read, then added to the checksum while it is in the cache */
#define LARGE     ((int64_t)1 << 24) /* from so many bytes on a thread of its own adds them, ... */
#define OVERLAP   ((int64_t)1 << 20) /* ... piece by piece, while the next one is read */
#define DIGITS    (PL_CHECKSUM_HEX - 1)

typedef struct tensor {
    pl_safetensors_entry e; /* first: pl_named */
    int64_t begin, end;     /* in the file, counted from its data */
    int64_t at;             /* in `data` */
} tensor;

struct pl_safetensors {
    tensor *tensors;
    pl_named *tensors_by_name;
    int64_t n, room;
    pl_safetensors_meta *meta;
    pl_named *meta_by_key;
    int64_t n_meta, meta_room;
    /* names, dtype names, metadata; as large as the header, which held them in quotes */
    char *strings;
    int64_t strings_used;
    unsigned char *data;
    int checked;
};

/* What open works with and throws away. */
typedef struct reader {
    pl_safetensors *f;
    int fd;
    int in_memory; /* all of it at `bytes`, and no fd */
    int header_only;
    const char *bytes;
    int64_t size, header_size;
    const char *name; /* of the file */
    char *header;     /* owned; NULL when in memory */
    pl_json json;
    char where[400]; /* 'file': tensor 'name' */
    int seen_meta;
    int64_t sum_at;               /* of the checksum's digits in the header; 0: it has none */
    char sum[PL_CHECKSUM_HEX];    /* what they say */
    pl_checksum seen;             /* of what was read so far */
    pl_checksum_overlap *overlap; /* who takes it, where the file is large; otherwise NULL */
} reader;

/* ---- the file ----------------------------------------------------------------------------------- */

static polar_status read_at(reader *r, void *out, int64_t offset, int64_t bytes)
{
    char *to = out;
    if (r->in_memory) {
        memcpy(to, r->bytes + offset, (size_t)bytes);
        return POLAR_OK;
    }
    while (bytes > 0) {
        ssize_t got = pread(r->fd, to, (size_t)(bytes < 1 << 30 ? bytes : 1 << 30), (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        PL_NEED(got >= 0, POLAR_E_IO, "read '%s': %s", r->name, strerror(errno));
        PL_NEED(got > 0, POLAR_E_IO,
                "'%s' ended at byte %lld while it was read: does another program write it?", r->name,
                (long long)offset);
        to += got, offset += got, bytes -= got;
    }
    return POLAR_OK;
}

static polar_status open_file(reader *r)
{
    const char *path = r->name;
    struct stat info;
    /* nonblocking: a pipe in the place of a file must not hang us */
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int missing = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG;
    PL_NEED(r->fd >= 0, missing ? POLAR_E_ARG : POLAR_E_IO, "open '%s': %s", path, strerror(errno));
    PL_NEED(fstat(r->fd, &info) == 0, POLAR_E_IO, "look at '%s': %s", path, strerror(errno));
    PL_NEED(S_ISREG(info.st_mode), POLAR_E_ARG,
            "'%s' is not a regular file: give the path of one .safetensors file", path);
    r->size = (int64_t)info.st_size;
    return POLAR_OK;
}

static polar_status load_header(reader *r)
{
    unsigned char head[8];
    uint64_t size = 0;
    PL_NEED(r->size >= 8, POLAR_E_FORMAT, "'%s': %lld bytes, too short for a safetensors file", r->name,
            (long long)r->size);
    PL_TRY(read_at(r, head, 0, 8));
    for (int i = 7; i >= 0; i--) size = size << 8 | head[i];
    PL_NEED(size <= PL_SAFETENSORS_MAX_HEADER, POLAR_E_FORMAT,
            "'%s': a header of %llu bytes; the format allows %d: is this a safetensors file?", r->name,
            (unsigned long long)size, PL_SAFETENSORS_MAX_HEADER);
    PL_NEED((int64_t)size <= r->size - 8, POLAR_E_FORMAT,
            "'%s': a header of %llu bytes in a file of %lld: cut short?", r->name, (unsigned long long)size,
            (long long)r->size);
    r->header_size = (int64_t)size;
    const char *text = r->in_memory ? r->bytes + 8 : NULL;
    if (!r->in_memory) {
        text = r->header = pl_alloc((size_t)size);
        PL_NEED(r->header, POLAR_E_NOMEM, "'%s': a header of %llu bytes", r->name, (unsigned long long)size);
        PL_TRY(read_at(r, r->header, 8, r->header_size));
    }
    PL_NEED(size > 0 && text[0] == '{', POLAR_E_FORMAT,
            "'%s': the header does not begin with {: is this a safetensors file?", r->name);
    r->f->strings = pl_alloc((size_t)size);
    PL_NEED(r->f->strings, POLAR_E_NOMEM, "'%s': %llu bytes of names", r->name, (unsigned long long)size);
    r->json = pl_json_view(text, r->header_size, r->where);
    return POLAR_OK;
}

/* ---- the header --------------------------------------------------------------------------------- */

static void set_where(reader *r, const char *kind, const char *name)
{
    if (!name) snprintf(r->where, sizeof r->where, "'%.250s'", r->name);
    else snprintf(r->where, sizeof r->where, "'%.250s': %s '%s'", r->name, kind, pl_text_shown(name).text);
}

/* The key or string just read, decoded into `strings`. */
static polar_status keep_string(reader *r, const char **out)
{
    pl_safetensors *f = r->f;
    /* raw_size + 1 bytes are left: the header had two quotes around it */
    char *s = f->strings + f->strings_used;
    int64_t size = pl_json_decode(s, &r->json);
    PL_NEED(!memchr(s, 0, (size_t)size), POLAR_E_FORMAT, "%s: the string '%s' has a zero character inside",
            r->where, pl_text_shown(s).text);
    f->strings_used += size + 1;
    *out = s;
    return POLAR_OK;
}

/* Room for one more item in a list that doubles. */
static polar_status make_room(reader *r, void **items, int64_t n, int64_t *room, size_t item_bytes)
{
    if (n < *room) return POLAR_OK;
    int64_t more = n ? 2 * n : 16;
    void *grown = pl_realloc(*items, (size_t)n * item_bytes, (size_t)more * item_bytes);
    PL_NEED(grown, POLAR_E_NOMEM, "'%s': a list of %lld entries", r->name, (long long)more);
    *items = grown;
    *room = more;
    return POLAR_OK;
}

/* [a, b, ...], each an integer >= 0, at most `max` of them; `what` names the list. */
static polar_status read_sizes(reader *r, int64_t *out, int *n, int max, const char *what)
{
    pl_json *p = &r->json;
    PL_TRY(pl_json_need(p, PL_JSON_ARRAY));
    for (*n = 0;; (*n)++) {
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_ARRAY_END) return POLAR_OK;
        int good = p->token == PL_JSON_INTEGER && p->integer >= 0;
        PL_NEED(good, POLAR_E_FORMAT,
                "%s: %s wants integers from 0 to 2^63 - 1, not what ends at JSON byte %lld", r->where, what,
                (long long)p->pos);
        PL_NEED(*n < max, POLAR_E_FORMAT, "%s: %s has more than %d numbers", r->where, what, max);
        out[*n] = p->integer;
    }
}

static polar_status read_field(reader *r, tensor *t, unsigned *seen)
{
    pl_json *p = &r->json;
    int64_t offsets[2];
    int n = 0;
    unsigned field = pl_json_is(p, "dtype")          ? 1
                     : pl_json_is(p, "shape")        ? 2
                     : pl_json_is(p, "data_offsets") ? 4
                                                     : 0;
    PL_NEED(!(*seen & field), POLAR_E_FORMAT,
            "%s: dtype, shape or data_offsets stands there twice (JSON byte %lld)", r->where,
            (long long)p->pos);
    *seen |= field;
    /* fields of later versions are let through, as upstream does */
    if (field == 0) return pl_json_skip(p);
    if (field == 2) return read_sizes(r, t->e.shape, &t->e.ndim, POLAR_MAX_DIMS, "shape");
    if (field == 4) {
        PL_TRY(read_sizes(r, offsets, &n, 2, "data_offsets"));
        PL_NEED(n == 2, POLAR_E_FORMAT, "%s: data_offsets wants two numbers, got %d", r->where, n);
        t->begin = offsets[0], t->end = offsets[1];
        return POLAR_OK;
    }
    PL_TRY(pl_json_need(p, PL_JSON_STRING));
    return keep_string(r, &t->e.dtype_name);
}

static polar_status check_tensor(reader *r, tensor *t)
{
    int64_t data_size = r->size - 8 - r->header_size;
    const char *wrong = pl_safetensors_bytes(&t->e.bytes, t->e.dtype_name, t->e.ndim, t->e.shape);
    PL_NEED(!wrong, POLAR_E_FORMAT, "%s: dtype '%s': %s", r->where, pl_text_shown(t->e.dtype_name).text,
            wrong);
    t->e.dtype = pl_safetensors_dtype(t->e.dtype_name);
    PL_NEED(t->begin <= t->end && t->end <= data_size, POLAR_E_FORMAT,
            "%s: data_offsets [%lld, %lld] do not lie in the %lld bytes of data", r->where,
            (long long)t->begin, (long long)t->end, (long long)data_size);
    PL_NEED(t->end - t->begin == t->e.bytes, POLAR_E_FORMAT,
            "%s: data_offsets hold %lld bytes, dtype and shape want %lld", r->where,
            (long long)(t->end - t->begin), (long long)t->e.bytes);
    return POLAR_OK;
}

static polar_status read_tensor(reader *r)
{
    pl_safetensors *f = r->f;
    pl_json *p = &r->json;
    tensor t = {0};
    unsigned seen = 0;
    PL_TRY(keep_string(r, &t.e.name));
    set_where(r, "tensor", t.e.name);
    PL_TRY(pl_json_need(p, PL_JSON_OBJECT));
    for (;;) {
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_OBJECT_END) break;
        PL_TRY(read_field(r, &t, &seen));
    }
    PL_NEED(seen == 7, POLAR_E_FORMAT, "%s: has no %s", r->where,
            !(seen & 1)   ? "dtype"
            : !(seen & 2) ? "shape"
                          : "data_offsets");
    PL_TRY(check_tensor(r, &t));
    PL_TRY(make_room(r, (void **)&f->tensors, f->n, &f->room, sizeof t));
    f->tensors[f->n++] = t;
    return POLAR_OK;
}

/* The value of PL_SAFETENSORS_CHECKSUM: where it stands and what it says. */
static polar_status read_sum(reader *r)
{
    pl_json *p = &r->json;
    PL_NEED(!r->sum_at, POLAR_E_FORMAT, "%s: stands there twice", r->where);
    PL_TRY(pl_json_need(p, PL_JSON_STRING));
    int digits = p->raw_size == DIGITS;
    for (int i = 0; digits && i < DIGITS; i++) digits = strchr("0123456789abcdef", p->raw[i]) != NULL;
    PL_NEED(digits, POLAR_E_FORMAT, "%s: is damaged: %d digits of 0-9 and a-f are wanted", r->where, DIGITS);
    r->sum_at = p->raw - p->text;
    memcpy(r->sum, p->raw, DIGITS);
    return POLAR_OK;
}

/* A key that was PL_SAFETENSORS_CHECKSUM until a bit or two flipped: without it nothing else would be
 * checked. */
static int nearly_sum(const char *key)
{
    static const char ours[] = PL_SAFETENSORS_CHECKSUM;
    int differ = 0;
    if (strlen(key) != sizeof ours - 1) return 0;
    for (size_t i = 0; i < sizeof ours - 1; i++) differ += key[i] != ours[i];
    return differ <= 2;
}

static polar_status read_meta(reader *r)
{
    pl_safetensors *f = r->f;
    pl_json *p = &r->json;
    PL_NEED(!r->seen_meta, POLAR_E_FORMAT, "%s: __metadata__ stands there twice", r->where);
    r->seen_meta = 1;
    PL_TRY(pl_json_need(p, PL_JSON_OBJECT));
    for (;;) {
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_OBJECT_END) return POLAR_OK;
        pl_safetensors_meta pair;
        PL_TRY(keep_string(r, &pair.key));
        set_where(r, "metadata", pair.key);
        if (!strcmp(pair.key, PL_SAFETENSORS_CHECKSUM)) {
            PL_TRY(read_sum(r));
            continue;
        }
        PL_NEED(!nearly_sum(pair.key), POLAR_E_FORMAT,
                "%s: was '%s' once: the file is damaged, take another copy of it", r->where,
                PL_SAFETENSORS_CHECKSUM);
        PL_TRY(pl_json_need(p, PL_JSON_STRING));
        PL_TRY(keep_string(r, &pair.value));
        PL_TRY(make_room(r, (void **)&f->meta, f->n_meta, &f->meta_room, sizeof pair));
        f->meta[f->n_meta++] = pair;
    }
}

static polar_status read_header(reader *r)
{
    pl_json *p = &r->json;
    PL_TRY(pl_json_need(p, PL_JSON_OBJECT));
    for (;;) {
        set_where(r, NULL, NULL);
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_OBJECT_END) break;
        PL_TRY(pl_json_is(p, "__metadata__") ? read_meta(r) : read_tensor(r));
    }
    return pl_json_need(p, PL_JSON_END); /* only spaces may follow */
}

/* ---- what holds between tensors ----------------------------------------------------------------- */

static int compare_range(const void *a, const void *b)
{
    const tensor *x = *(const tensor *const *)a, *y = *(const tensor *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Each range begins where the one before ended, the last ends with the file. `order` is n pointers of
 * scratch. */
static polar_status check_cover(const reader *r, tensor **order)
{
    const pl_safetensors *f = r->f;
    int64_t at = 0, data_size = r->size - 8 - r->header_size;
    for (int64_t i = 0; i < f->n; i++) order[i] = &f->tensors[i];
    qsort(order, (size_t)f->n, sizeof *order, compare_range);
    for (int64_t i = 0; i < f->n; at = order[i++]->end)
        PL_NEED(order[i]->begin == at, POLAR_E_FORMAT,
                "'%s': tensor '%s' begins at byte %lld of the data, the one before it ends at %lld: %s",
                r->name, pl_text_shown(order[i]->e.name).text, (long long)order[i]->begin, (long long)at,
                order[i]->begin < at ? "they overlap" : "a hole");
    PL_NEED(at == data_size, POLAR_E_FORMAT, "'%s': %lld bytes after the last tensor belong to nothing",
            r->name, (long long)(data_size - at));
    return POLAR_OK;
}

static polar_status make_index(reader *r, pl_named **out, const void *items, int64_t n, size_t item_bytes)
{
    *out = pl_alloc((size_t)n * sizeof **out);
    PL_NEED(*out, POLAR_E_NOMEM, "'%s': an index of %lld names", r->name, (long long)n);
    pl_named_sort(*out, items, n, item_bytes);
    const char *twice = pl_named_twice(*out, n);
    PL_NEED(!twice, POLAR_E_FORMAT, "'%s': the name '%s' stands there twice", r->name,
            pl_text_shown(twice).text);
    return POLAR_OK;
}

/* ---- the data ----------------------------------------------------------------------------------- */

/* The header as it was when its checksum was taken: zeros for the digits. */
static void begin_sum(reader *r, const char *header)
{
    static const char zeros[] = "0000000000000000";
    unsigned char head[8];
    for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)r->header_size >> 8 * i);
    r->seen = pl_checksum_begin((uint64_t)r->size);
    pl_checksum_add(&r->seen, head, sizeof head);
    pl_checksum_add(&r->seen, header, (size_t)r->sum_at);
    pl_checksum_add(&r->seen, zeros, DIGITS);
    pl_checksum_add(&r->seen, header + r->sum_at + DIGITS, (size_t)(r->header_size - r->sum_at - DIGITS));
}

static polar_status load_tensor(reader *r, tensor *t)
{
    unsigned char *to = r->f->data + t->at;
    t->e.data = to;
    int64_t piece = r->overlap ? OVERLAP : PIECE;
    for (int64_t at = 0, n; at < t->e.bytes; at += n) {
        n = t->e.bytes - at < piece ? t->e.bytes - at : piece;
        PL_TRY(read_at(r, to + at, 8 + r->header_size + t->begin + at, n));
        if (r->sum_at) pl_checksum_overlap_add(r->overlap, &r->seen, to + at, (size_t)n);
    }
    return POLAR_OK;
}

static polar_status end_sum(reader *r)
{
    char sum[PL_CHECKSUM_HEX];
    pl_checksum_print(sum, pl_checksum_end(&r->seen));
    PL_NEED(
        !strcmp(sum, r->sum), POLAR_E_FORMAT,
        "'%s' is damaged: its checksum says %s, its bytes give %s: take another copy of it, or make it again "
        "(or has another program changed it and kept the metadata '%s'? Have that left out)",
        r->name, r->sum, sum, PL_SAFETENSORS_CHECKSUM);
    r->f->checked = 1;
    return POLAR_OK;
}

/* In the order of the file, as the checksum was taken. */
static polar_status load_data(reader *r, tensor *const *order)
{
    pl_safetensors *f = r->f;
    int64_t total = 0;
    for (int64_t i = 0; i < f->n; i++) {
        f->tensors[i].at = total;
        /* at most the file and 63 bytes each: no overflow */
        total += (f->tensors[i].e.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    f->data = pl_alloc((size_t)total);
    PL_NEED(f->data, POLAR_E_NOMEM, "'%s': %lld bytes of tensors", r->name, (long long)total);
    if (r->sum_at) begin_sum(r, r->json.text);
    if (r->sum_at && total >= LARGE) r->overlap = pl_checksum_overlap_begin(&r->seen);
    polar_status st = POLAR_OK;
    for (int64_t i = 0; i < f->n && st == POLAR_OK; i++) st = load_tensor(r, order[i]);
    pl_checksum_overlap_end(r->overlap);
    PL_TRY(st);
    return r->sum_at ? end_sum(r) : POLAR_OK;
}

static polar_status read_tensors(reader *r)
{
    pl_safetensors *f = r->f;
    tensor **order = pl_alloc((size_t)f->n * sizeof *order);
    PL_NEED(order, POLAR_E_NOMEM, "'%s': %lld tensors in order", r->name, (long long)f->n);
    polar_status st = check_cover(r, order);
    if (st == POLAR_OK) st = make_index(r, &f->tensors_by_name, f->tensors, f->n, sizeof *f->tensors);
    if (st == POLAR_OK) st = make_index(r, &f->meta_by_key, f->meta, f->n_meta, sizeof *f->meta);
    if (st == POLAR_OK && !r->header_only) st = load_data(r, order);
    pl_free(order);
    return st;
}

static polar_status read_all(reader *r)
{
    r->f = pl_calloc(1, sizeof *r->f);
    PL_NEED(r->f, POLAR_E_NOMEM, "'%s': a safetensors handle", r->name);
    set_where(r, NULL, NULL);
    PL_TRY(load_header(r));
    PL_TRY(read_header(r));
    return read_tensors(r);
}

/* ---- outside ------------------------------------------------------------------------------------ */

static polar_status open_reader(pl_safetensors **out, reader *r)
{
    *out = NULL;
    polar_status st = r->in_memory ? POLAR_OK : open_file(r);
    if (st != POLAR_OK) goto done;
    st = read_all(r);
    if (st != POLAR_OK) goto done;
    *out = r->f;
    r->f = NULL; /* handed to the caller */
done:
    pl_safetensors_close(r->f);
    pl_free(r->header);
    if (r->fd >= 0) close(r->fd);
    return st;
}

polar_status pl_safetensors_open(pl_safetensors **out, const char *path)
{
    reader r = {.fd = -1, .name = path};
    return open_reader(out, &r);
}

polar_status pl_safetensors_open_header(pl_safetensors **out, const char *path)
{
    reader r = {.fd = -1, .header_only = 1, .name = path};
    return open_reader(out, &r);
}

polar_status pl_safetensors_open_bytes(pl_safetensors **out, const void *bytes, int64_t size,
                                       const char *name)
{
    reader r = {.fd = -1, .in_memory = 1, .bytes = bytes, .size = size, .name = name};
    return open_reader(out, &r);
}

void pl_safetensors_close(pl_safetensors *f)
{
    if (!f) return;
    pl_free(f->data);
    pl_free(f->strings);
    pl_free(f->meta_by_key);
    pl_free(f->meta);
    pl_free(f->tensors_by_name);
    pl_free(f->tensors);
    pl_free(f);
}

int64_t pl_safetensors_count(const pl_safetensors *f)
{
    return f->n;
}

const pl_safetensors_entry *pl_safetensors_view(const pl_safetensors *f, int64_t i)
{
    return &f->tensors[i].e;
}

const pl_safetensors_entry *pl_safetensors_find(const pl_safetensors *f, const char *name)
{
    return pl_named_find(f->tensors_by_name, f->n, name);
}

int64_t pl_safetensors_meta_count(const pl_safetensors *f)
{
    return f->n_meta;
}

const pl_safetensors_meta *pl_safetensors_meta_view(const pl_safetensors *f, int64_t i)
{
    return &f->meta[i];
}

const char *pl_safetensors_meta_find(const pl_safetensors *f, const char *key)
{
    const pl_safetensors_meta *pair = pl_named_find(f->meta_by_key, f->n_meta, key);
    return pair ? pair->value : NULL;
}

int pl_safetensors_checked(const pl_safetensors *f)
{
    return f->checked;
}
