/* store_log.c -- the write-ahead log beside a store ("<store>-wal"), looked through before SQLite reads it.
 *
 * SQLite takes a log up to the first entry whose checksum is wrong and calls that its end: right after a
 * power cut, and silent where a bit has changed in what was written long ago. So we look ourselves. An
 * entry belongs to the log if it carries the log's two salts; the rest of the file are entries of its
 * earlier lives. A wrong entry with the end of a transaction of the log after it is damage. One without may
 * be damage, the trace of a power cut (or of a kill within a microsecond), or what a transaction left that a
 * full disk cut off, with a shorter one written over its beginning since: what it held is lost, and a store
 * that is read says so; one that is written to goes on, as the runs it lacks are made again.
 *
 *     32 bytes    magic (its last bit: order of the words in checksums), version, page size, number,
 *         salt 1, salt 2, two checksums
 *     entries     page number, pages of the store if a transaction ends here, salt 1, salt 2, two checksums
 *                 (24 bytes); the page
 *
 * Numbers are big-endian. A checksum goes on from the entry before.
 * https://www.sqlite.org/fileformat2.html#the_write_ahead_log
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

#define MAGIC     0x377f0682u
#define HEADER    32
#define ENTRY     24
#define MOST_PAGE 65536
#define TRIES     10 /* a log that another process is writing looks wrong for a moment: */
#define RECENT    2  /* seconds since somebody wrote to it */

typedef struct log_file {
    int fd;
    int64_t entries; /* whole ones, by the file's size */
    uint32_t page, salt[2], sum[2];
    int swapped;           /* words of the checksums are big-endian */
    unsigned char *buffer; /* an entry */
} log_file;

static uint32_t big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void add_sum(uint32_t sum[2], const unsigned char *p, size_t bytes, int swapped)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint32_t x[2];
        memcpy(x, p + i, 8);
        if (swapped) x[0] = __builtin_bswap32(x[0]), x[1] = __builtin_bswap32(x[1]);
        sum[0] += x[0] + sum[1];
        sum[1] += x[1] + sum[0];
    }
}

static int read_whole(int fd, void *out, size_t bytes, int64_t at)
{
    return pread(fd, out, bytes, (off_t)at) == (ssize_t)bytes;
}

static int64_t place(const log_file *l, int64_t i)
{
    return HEADER + i * (int64_t)(ENTRY + l->page);
}

/* Whether the header is one, and its checksum right. */
static int read_header(log_file *l, int64_t size)
{
    unsigned char h[HEADER];
    if (!read_whole(l->fd, h, HEADER, 0) || (big(h) & ~1u) != MAGIC) return 0;
    l->swapped = (int)(big(h) & 1);
    l->page = big(h + 8);
    l->salt[0] = big(h + 16), l->salt[1] = big(h + 20);
    add_sum(l->sum, h, 24, l->swapped);
    int power = l->page >= 512 && l->page <= MOST_PAGE && !(l->page & (l->page - 1));
    if (!power || l->sum[0] != big(h + 24) || l->sum[1] != big(h + 28)) return 0;
    l->entries = (size - HEADER) / (ENTRY + (int64_t)l->page);
    return 1;
}

typedef enum entry_kind { ENTRY_RIGHT, ENTRY_WRONG, ENTRY_OLD } entry_kind;

static entry_kind look_at(log_file *l, int64_t i)
{
    unsigned char *e = l->buffer;
    /* the file has just become shorter */
    if (!read_whole(l->fd, e, ENTRY + l->page, place(l, i))) return ENTRY_OLD;
    int ours = (big(e + 8) == l->salt[0]) + (big(e + 12) == l->salt[1]);
    if (!ours) return ENTRY_OLD; /* a restarted log changes both */
    add_sum(l->sum, e, 8, l->swapped);
    add_sum(l->sum, e + ENTRY, l->page, l->swapped);
    return ours == 2 && l->sum[0] == big(e + 16) && l->sum[1] == big(e + 20) ? ENTRY_RIGHT : ENTRY_WRONG;
}

/* What entries from i on that bear the log's salts say of a wrong one before them. */
static pl_log_state state_after(const log_file *l, int64_t i, entry_kind wrong)
{
    unsigned char e[ENTRY];
    pl_log_state state = wrong == ENTRY_OLD ? PL_LOG_SOUND : PL_LOG_TORN;
    for (; i < l->entries; i++) {
        if (!read_whole(l->fd, e, ENTRY, place(l, i)) || big(e + 8) != l->salt[0] ||
            big(e + 12) != l->salt[1])
            continue;
        if (big(e + 4)) return PL_LOG_DAMAGED; /* a transaction ends here */
        state = PL_LOG_TORN;
    }
    return state;
}

static pl_log_state scan(log_file *l, int64_t size, int64_t *wrong)
{
    *wrong = 0;
    if (size < HEADER + ENTRY + 512) return PL_LOG_SOUND; /* no entry fits */
    if (!read_header(l, size)) return PL_LOG_DAMAGED;
    for (int64_t i = 0; i < l->entries; i++) {
        entry_kind kind = look_at(l, i);
        if (kind == ENTRY_RIGHT) continue;
        *wrong = i + 1;
        return state_after(l, i + 1, kind);
    }
    return PL_LOG_SOUND;
}

static polar_status scan_file(pl_log_state *out, int64_t *wrong, int *recent, const char *path)
{
    struct stat info;
    /* no lock is ever held on a log: closing it drops none */
    log_file l = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    *out = PL_LOG_SOUND;
    /* none, or SQLite will say why it cannot be read */
    if (l.fd < 0) return POLAR_OK;
    l.buffer = pl_alloc(ENTRY + MOST_PAGE);
    if (l.buffer && fstat(l.fd, &info) == 0) {
        *recent = llabs((long long)(time(NULL) - info.st_mtime)) <= RECENT;
        *out = scan(&l, (int64_t)info.st_size, wrong);
    }
    close(l.fd);
    PL_NEED(l.buffer, POLAR_E_NOMEM, "a page of the log");
    pl_free(l.buffer);
    return POLAR_OK;
}

polar_status pl_log_examine(pl_log_state *out, int64_t *wrong, const char *store)
{
    const struct timespec pause = {0, 20 * 1000 * 1000};
    size_t room = strlen(store) + 8;
    char *path = pl_alloc(room);
    PL_NEED(path, POLAR_E_NOMEM, "a path");
    snprintf(path, room, "%s-wal", store);
    int recent = 0;
    polar_status st = scan_file(out, wrong, &recent, path);
    for (int i = 1; st == POLAR_OK && *out != PL_LOG_SOUND && recent && i < TRIES; i++) {
        nanosleep(&pause, NULL);
        st = scan_file(out, wrong, &recent, path);
    }
    pl_free(path);
    return st;
}

polar_status pl_log_need(pl_store *s)
{
    pl_log_state state;
    int64_t wrong = 0;
    pl_shown path = pl_text_shown(s->path);
    PL_TRY(pl_log_examine(&state, &wrong, s->path));
    PL_NEED(state != PL_LOG_DAMAGED, POLAR_E_FORMAT,
            "the log '%s-wal' of the store is damaged (entry %lld; 0: its header): copy both files, then "
            "remove the log: what it"
            " held is lost, `polar store check` says what is missing and `polar run` makes it again",
            path.text, (long long)wrong);
    PL_NEED(state != PL_LOG_TORN || s->writes, POLAR_E_FORMAT,
            "the end of the log '%s-wal' of the store is not whole, after a power cut or a full disk or by "
            "damage: `polar run` goes on without it and makes again what it held",
            path.text);
    s->torn = state == PL_LOG_TORN;
    return POLAR_OK;
}
