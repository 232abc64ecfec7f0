/* image_pack_write.c -- folder to pack: workers decode and resize ahead, one writer appends in order.
 *
 * The header comes last, and the file appears whole or not at all (whole_file.h). The bytes depend on the
 * pictures and the options only, not on the number of workers.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/whole_file.h"
#include "data/codec/image_decode.h"
#include "data/codec/image_file.h"
#include "data/set/image_loader.h"
#include "data/set/image_pack.h"

#define MAX_PATH 4096

typedef struct packed {
    pl_image im;
    uint64_t hash;
    char *bad; /* the sentence, instead of a picture */
} packed;

typedef struct scratch {
    pl_file_bytes file;
    pl_resizer *resizer;
} scratch;

typedef struct pack_job {
    const pl_image_folder *f;
    const pl_pack_opts *o;
    pl_whole_file file;
    uint64_t at;
    scratch *workers;
    pl_pack_entry *index;
    int64_t kept;
    pl_pack_result *out;
} pack_job;

static pl_image_split split_of(const pl_image_folder *f, int64_t item, int64_t *i)
{
    pl_image_split s = item < f->count[PL_IMAGES_TRAIN] ? PL_IMAGES_TRAIN : PL_IMAGES_TEST;
    *i = item - (s == PL_IMAGES_TEST ? f->count[PL_IMAGES_TRAIN] : 0);
    return s;
}

/* ---- a worker's part ---------------------------------------------------------------------------- */

/* torchvision's Resize(side): the short side becomes `side`, the long one int(side long / short). */
static polar_status shrink(pl_image *im, scratch *w, int64_t side, pl_filter filter)
{
    int64_t lesser = im->width < im->height ? im->width : im->height,
            longer = im->width < im->height ? im->height : im->width;
    if (!side || lesser <= side) return POLAR_OK;
    int64_t other = side * longer / lesser;
    pl_image small;
    if (!w->resizer) PL_TRY(pl_resizer_create(&w->resizer));
    PL_TRY(pl_image_create(&small, im->width < im->height ? side : other,
                           im->width < im->height ? other : side));
    pl_resize_args a = {.out = small.data,
                        .src = im->data,
                        .src_width = im->width,
                        .src_height = im->height,
                        .src_stride = (int64_t)pl_image_row_bytes(im),
                        .out_width = small.width,
                        .out_height = small.height,
                        .filter = filter};
    polar_status st = pl_resize(w->resizer, &a);
    pl_image_destroy(st == POLAR_OK ? im : &small);
    if (st == POLAR_OK) *im = small;
    return st;
}

static polar_status load(pl_image *im, pack_job *j, scratch *w, int64_t item)
{
    char path[MAX_PATH];
    int64_t i;
    pl_image_split s = split_of(j->f, item, &i);
    PL_TRY(pl_image_folder_path(path, sizeof path, j->f, s, i));
    PL_TRY(pl_file_bytes_read(&w->file, path, 0));
    PL_TRY(pl_image_decode(im, w->file.data, w->file.size, path));
    return shrink(im, w, j->o->side, j->o->filter);
}

static polar_status fill(void *user, int worker, int64_t item, void *out)
{
    pack_job *j = user;
    packed *p = out;
    *p = (packed){0};
    polar_status st = load(&p->im, j, &j->workers[worker], item);
    if (st == POLAR_OK) {
        p->hash = pl_checksum_of(p->im.data, pl_image_bytes(&p->im));
        return POLAR_OK;
    }
    pl_image_destroy(&p->im);
    if (st != POLAR_E_FORMAT || !j->o->skip_bad) return st;
    p->bad = pl_strdup(polar_error_message());
    PL_NEED(p->bad, POLAR_E_NOMEM, "a sentence");
    return POLAR_OK;
}

static void drop(void *user, void *item)
{
    packed *p = item;
    (void)user;
    pl_image_destroy(&p->im);
    pl_free(p->bad);
    *p = (packed){0};
}

/* ---- the writer's part -------------------------------------------------------------------------- */

static polar_status put(pack_job *j, const void *data, size_t bytes)
{
    PL_TRY(pl_write_all(j->file.fd, data, bytes, j->file.path));
    j->at += bytes;
    return POLAR_OK;
}

static polar_status align(pack_job *j)
{
    static const char zeros[PL_PACK_ALIGN];
    return put(j, zeros, (size_t)(-j->at % PL_PACK_ALIGN));
}

static polar_status put_picture(pack_job *j, const packed *p, int64_t item)
{
    int64_t i;
    pl_image_split s = split_of(j->f, item, &i);
    if (p->bad) {
        j->out->bad++;
        if (j->o->bad) j->o->bad(j->o->user, p->bad);
        return POLAR_OK;
    }
    PL_TRY(align(j));
    j->index[j->kept++] = (pl_pack_entry){.at = j->at,
                                          .hash = p->hash,
                                          .name = (uint64_t)item,
                                          .width = (uint32_t)p->im.width,
                                          .height = (uint32_t)p->im.height,
                                          /* name: the item, until the names are written */
                                          .label = (uint32_t)j->f->items[s][i].label};
    j->out->count[s]++;
    return put(j, p->im.data, pl_image_bytes(&p->im));
}

static polar_status put_pictures(pack_job *j)
{
    int64_t total = j->f->count[0] + j->f->count[1];
    pl_loader_opts lo = {.workers = j->o->workers,
                         .ahead = 4,
                         .items = total,
                         .batch = 8,
                         .item_bytes = sizeof(packed),
                         .fill = fill,
                         .drop = drop,
                         .user = j};
    pl_loader *l;
    PL_TRY(pl_loader_create(&l, &lo));
    polar_status st = POLAR_OK;
    for (pl_batch b = {.count = 1}; st == POLAR_OK && b.count && !j->out->stopped;) {
        st = pl_loader_next(&b, l);
        if (st != POLAR_OK) break;
        for (int64_t i = 0; i < b.count; i++) {
            packed *p = (packed *)b.data + i;
            if (st == POLAR_OK) st = put_picture(j, p, b.first + i);
            drop(j, p);
        }
        if (j->o->progress)
            j->o->progress(j->o->user, b.first + b.count < total ? b.first + b.count : total, total,
                           j->out->bad);
        j->out->stopped = j->o->stop && atomic_load(j->o->stop);
    }
    pl_loader_destroy(l);
    return st;
}

/* Leaving out broken pictures may empty a class. */
static polar_status check_classes(const pack_job *j)
{
    for (int64_t k = 0, s = 0; s < PL_IMAGE_SPLITS; s++) {
        int64_t next = 0; /* labels come in order */
        for (int64_t end = k + j->out->count[s]; k < end; k++)
            if (j->index[k].label == next) next++;
        PL_NEED(next == j->f->classes, POLAR_E_FORMAT, "every picture of class '%s' in %s/ of '%s' is broken",
                pl_image_folder_class(j->f, next < j->f->classes ? next : 0), j->f->split_name[s],
                j->f->root);
    }
    return POLAR_OK;
}

/* Index and names; the sum of their lengths is what the header says. */
static polar_status put_index(pack_job *j, pl_sha256 *sha, pl_pack_header *h)
{
    PL_TRY(align(j));
    h->index_at = j->at;
    for (int64_t c = 0; c < j->f->classes; c++) h->names_bytes += strlen(pl_image_folder_class(j->f, c)) + 1;
    int64_t *item = pl_alloc((size_t)j->kept * sizeof *item + 1), i;
    PL_NEED(item, POLAR_E_NOMEM, "a list of %lld pictures", (long long)j->kept);
    for (int64_t k = 0; k < j->kept; k++) {
        item[k] = (int64_t)j->index[k].name;
        pl_image_split s = split_of(j->f, item[k], &i);
        j->index[k].name = h->names_bytes;
        h->names_bytes += strlen(pl_image_folder_name(j->f, s, i)) + 1;
    }
    h->names_at = h->index_at + (uint64_t)j->kept * sizeof *j->index;
    h->file_bytes = h->names_at + h->names_bytes;
    pl_sha256_add(sha, h, offsetof(pl_pack_header, sha256));
    pl_sha256_add(sha, j->index, (size_t)j->kept * sizeof *j->index);
    polar_status st = put(j, j->index, (size_t)j->kept * sizeof *j->index);
    for (int64_t k = -j->f->classes; st == POLAR_OK && k < j->kept; k++) {
        const char *name = k < 0 ? pl_image_folder_class(j->f, k + j->f->classes) : NULL;
        if (!name) {
            pl_image_split s = split_of(j->f, item[k], &i);
            name = pl_image_folder_name(j->f, s, i);
        }
        pl_sha256_add(sha, name, strlen(name) + 1);
        st = put(j, name, strlen(name) + 1);
    }
    pl_free(item);
    return st;
}

static polar_status put_all(pack_job *j)
{
    pl_pack_header h = {.magic = PL_PACK_MAGIC,
                        .version = PL_PACK_VERSION,
                        .order = 0x0102030405060708u,
                        .classes = (uint64_t)j->f->classes,
                        .side = (uint64_t)j->o->side,
                        .filter = (uint64_t)j->o->filter};
    pl_sha256 sha = pl_sha256_begin();
    PL_TRY(put(j, &h, sizeof h));
    PL_TRY(put_pictures(j));
    if (j->out->stopped) return POLAR_OK;
    PL_TRY(check_classes(j));
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) h.count[s] = (uint64_t)j->out->count[s];
    PL_TRY(put_index(j, &sha, &h));
    pl_sha256_end(j->out->sha256, &sha);
    memcpy(h.sha256, j->out->sha256, sizeof h.sha256);
    PL_NEED(pwrite(j->file.fd, &h, sizeof h, 0) == sizeof h, POLAR_E_IO, "write '%s': %s", j->file.path,
            strerror(errno));
    j->out->bytes = (int64_t)h.file_bytes;
    return POLAR_OK;
}

static polar_status write_file(pack_job *j, const char *path)
{
    int n = j->o->workers > 0 ? j->o->workers : 1;
    j->workers = pl_calloc((size_t)n, sizeof *j->workers);
    j->index = pl_calloc((size_t)(j->f->count[0] + j->f->count[1]) + 1, sizeof *j->index);
    PL_NEED(j->workers && j->index, POLAR_E_NOMEM, "an index of %lld pictures",
            (long long)(j->f->count[0] + j->f->count[1]));
    PL_TRY(pl_whole_file_begin(&j->file, path));
    polar_status st = put_all(j);
    if (st == POLAR_OK && j->out->stopped) {
        pl_whole_file_end(&j->file, POLAR_E_STATE); /* removes what there is */
        return POLAR_OK;
    }
    return pl_whole_file_end(&j->file, st);
}

polar_status pl_image_pack_write(pl_pack_result *out, const char *path, const pl_image_folder *f,
                                 const pl_pack_opts *o)
{
    pack_job j = {.f = f, .o = o, .out = out};
    *out = (pl_pack_result){0};
    polar_status st = write_file(&j, path);
    for (int i = 0; j.workers && i < (o->workers > 0 ? o->workers : 1); i++) {
        pl_file_bytes_drop(&j.workers[i].file);
        pl_resizer_destroy(j.workers[i].resizer);
    }
    pl_free(j.workers);
    pl_free(j.index);
    return st;
}
