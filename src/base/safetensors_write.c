/* safetensors_write.c -- the writer of safetensors.h.
 *
 * The file appears whole or not at all (whole_file.h).
 * The checksum stands first in the header, as zeros until the rest was written: data is added to it while it
 * goes out, in one pass. The header is padded with spaces to a multiple of 8. Order is the caller's; where
 * formats are mixed, wide ones first keeps every tensor aligned in the file for readers that map it (ours
 * does not care). ctest -R test_safetensors
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "base/whole_file.h"

/* ---- the header: written twice, once with at == NULL to learn its size -------------------------- */

typedef struct sink {
    char *at;
    int64_t size;
} sink;

static void put(sink *k, const char *s, size_t n)
{
    if (k->at) memcpy(k->at + k->size, s, n);
    k->size += (int64_t)n;
}

static void put_text(sink *k, const char *s)
{
    put(k, s, strlen(s));
}

static void put_string(sink *k, const char *s)
{
    char escaped[8];
    put(k, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') put(k, "\\", 1);
        if ((unsigned char)*s >= 0x20) put(k, s, 1);
        else put(k, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s));
    }
    put(k, "\"", 1);
}

/* "key":[a,b,...] */
static void put_sizes(sink *k, const char *key, const int64_t *v, int n)
{
    char number[32];
    put_string(k, key);
    put_text(k, ":[");
    for (int i = 0; i < n; i++)
        put(k, number, (size_t)snprintf(number, sizeof number, i ? ",%lld" : "%lld", (long long)v[i]));
    put_text(k, "]");
}

static const char *name_of_dtype(const pl_safetensors_entry *e)
{
    return e->dtype_name ? e->dtype_name : pl_safetensors_dtype_name(e->dtype);
}

/* What every header begins with; the digits come last, and then the closing quote. */
#define SUM_KEY "{\"__metadata__\":{\"" PL_SAFETENSORS_CHECKSUM "\":\""
#define SUM_AT  (sizeof SUM_KEY - 1)

static int64_t put_header(char *at, const pl_safetensors_entry *entries, int64_t n,
                          const pl_safetensors_meta *meta, int64_t n_meta)
{
    sink k = {at, 0};
    int64_t offsets[2] = {0, 0};
    put_text(&k, SUM_KEY "0000000000000000\"");
    for (int64_t i = 0; i < n_meta; i++) {
        put_text(&k, ",");
        put_string(&k, meta[i].key);
        put_text(&k, ":");
        put_string(&k, meta[i].value);
    }
    put_text(&k, n ? "}," : "}");
    for (int64_t i = 0; i < n; i++) {
        const pl_safetensors_entry *e = &entries[i];
        offsets[0] = offsets[1];
        offsets[1] += e->bytes;
        put_text(&k, i ? "," : "");
        put_string(&k, e->name);
        put_text(&k, ":{\"dtype\":");
        put_string(&k, name_of_dtype(e));
        put_text(&k, ",");
        put_sizes(&k, "shape", e->shape, e->ndim);
        put_text(&k, ",");
        put_sizes(&k, "data_offsets", offsets, 2);
        put_text(&k, "}");
    }
    put_text(&k, "}");
    while (k.size % 8) put_text(&k, " ");
    return k.size;
}

/* ---- what the caller can get wrong -------------------------------------------------------------- */

static polar_status check_entry(const pl_safetensors_entry *e, int64_t i)
{
    int64_t bytes;
    PL_NEED(e->name && pl_utf8_valid(e->name, (int64_t)strlen(e->name)), POLAR_E_ARG,
            "tensor %lld: wants a name in UTF-8", (long long)i);
    PL_NEED(strcmp(e->name, "__metadata__"), POLAR_E_ARG,
            "tensor %lld: the name __metadata__ is taken by the format", (long long)i);
    const char *dtype = name_of_dtype(e);
    PL_NEED(dtype, POLAR_E_ARG, "tensor '%s': number %d is not a polar_dtype; give dtype_name for others",
            pl_text_shown(e->name).text, e->dtype);
    const char *wrong = pl_safetensors_bytes(&bytes, dtype, e->ndim, e->shape);
    PL_NEED(!wrong, POLAR_E_ARG, "tensor '%s': dtype '%s': %s", pl_text_shown(e->name).text,
            pl_text_shown(dtype).text, wrong);
    PL_NEED(bytes == e->bytes, POLAR_E_ARG, "tensor '%s': %lld bytes given, %s and the shape want %lld",
            pl_text_shown(e->name).text, (long long)e->bytes, dtype, (long long)bytes);
    PL_NEED(e->data || !bytes, POLAR_E_ARG, "tensor '%s': no data", pl_text_shown(e->name).text);
    return POLAR_OK;
}

static polar_status check_meta(const pl_safetensors_meta *m, int64_t i)
{
    int ok = m->key && m->value && pl_utf8_valid(m->key, (int64_t)strlen(m->key)) &&
             pl_utf8_valid(m->value, (int64_t)strlen(m->value));
    PL_NEED(ok, POLAR_E_ARG, "metadata %lld: wants a key and a value in UTF-8", (long long)i);
    PL_NEED(strcmp(m->key, PL_SAFETENSORS_CHECKSUM), POLAR_E_ARG,
            "metadata %lld: '%s' is put there by the writer", (long long)i, m->key);
    return POLAR_OK;
}

static polar_status check_unique(const void *items, int64_t n, size_t item_bytes)
{
    pl_named *index = pl_alloc((size_t)n * sizeof *index);
    PL_NEED(index, POLAR_E_NOMEM, "an index of %lld names", (long long)n);
    pl_named_sort(index, items, n, item_bytes);
    const char *twice = pl_named_twice(index, n);
    pl_free(index);
    PL_NEED(!twice, POLAR_E_ARG, "the name '%s' is given twice", pl_text_shown(twice).text);
    return POLAR_OK;
}

static polar_status check_all(const pl_safetensors_entry *entries, int64_t n, const pl_safetensors_meta *meta,
                              int64_t n_meta)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        PL_TRY(check_entry(&entries[i], i));
        PL_NEED(!__builtin_add_overflow(total, entries[i].bytes, &total), POLAR_E_ARG,
                "the tensors have more than 2^63 bytes together");
    }
    for (int64_t i = 0; i < n_meta; i++) PL_TRY(check_meta(&meta[i], i));
    PL_TRY(check_unique(entries, n, sizeof *entries));
    return check_unique(meta, n_meta, sizeof *meta);
}

/* ---- the file ----------------------------------------------------------------------------------- */

#define PIECE ((int64_t)1 << 18) /* added to the checksum, then written from the cache */

typedef struct output {
    int fd;
    const char *path;
    pl_checksum sum;
} output;

static polar_status write_part(output *o, const void *data, int64_t bytes)
{
    for (const char *p = data; bytes > 0;) {
        size_t n = (size_t)(bytes < PIECE ? bytes : PIECE);
        pl_checksum_add(&o->sum, p, n);
        PL_TRY(pl_write_all(o->fd, p, n, o->path));
        p += n, bytes -= (int64_t)n;
    }
    return POLAR_OK;
}

static polar_status write_sum(const output *o)
{
    char digits[PL_CHECKSUM_HEX];
    const ssize_t n = PL_CHECKSUM_HEX - 1;
    pl_checksum_print(digits, pl_checksum_end(&o->sum));
    PL_NEED(pwrite(o->fd, digits, (size_t)n, 8 + SUM_AT) == n, POLAR_E_IO, "write '%s': %s", o->path,
            strerror(errno));
    return POLAR_OK;
}

static polar_status write_parts(int fd, const char *header, int64_t header_size,
                                const pl_safetensors_entry *entries, int64_t n, const char *path)
{
    unsigned char head[8];
    uint64_t total = 8 + (uint64_t)header_size;
    for (int64_t i = 0; i < n; i++) total += (uint64_t)entries[i].bytes;
    for (int i = 0; i < 8; i++) head[i] = (unsigned char)((uint64_t)header_size >> 8 * i);
    output o = {fd, path, pl_checksum_begin(total)};
    PL_TRY(write_part(&o, head, 8));
    PL_TRY(write_part(&o, header, header_size));
    for (int64_t i = 0; i < n; i++) PL_TRY(write_part(&o, entries[i].data, entries[i].bytes));
    return write_sum(&o);
}

polar_status pl_safetensors_write(const char *path, const pl_safetensors_entry *entries, int64_t n,
                                  const pl_safetensors_meta *meta, int64_t n_meta)
{
    polar_status st = check_all(entries, n, meta, n_meta);
    if (st != POLAR_OK) return st;
    int64_t header_size = put_header(NULL, entries, n, meta, n_meta);
    PL_NEED(header_size <= PL_SAFETENSORS_MAX_HEADER, POLAR_E_ARG,
            "'%s': names and metadata of %lld bytes, the format takes %d", path, (long long)header_size,
            PL_SAFETENSORS_MAX_HEADER);
    char *header = pl_alloc((size_t)header_size);
    PL_NEED(header, POLAR_E_NOMEM, "'%s': a header of %lld bytes", path, (long long)header_size);
    put_header(header, entries, n, meta, n_meta);
    pl_whole_file w;
    st = pl_whole_file_begin(&w, path);
    if (st == POLAR_OK) st = pl_whole_file_end(&w, write_parts(w.fd, header, header_size, entries, n, path));
    pl_free(header);
    return st;
}

int pl_safetensors_has_checksum(const char *path)
{
    char begin[8 + SUM_AT];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    int has =
        pread(fd, begin, sizeof begin, 0) == (ssize_t)sizeof begin && !memcmp(begin + 8, SUM_KEY, SUM_AT);
    close(fd);
    return has;
}
