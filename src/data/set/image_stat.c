/* image_stat.c -- workers look at the pictures, one thread counts. */
#include "data/set/image_stat.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "data/set/image_loader.h"

#define MAX_PATH 4096

typedef struct seen {
    pl_image_info info;
    int64_t bytes;
    char *bad; /* the sentence */
} seen;

typedef struct stat_job {
    const pl_image_folder *f;
    const pl_image_pack *p;
    const pl_stat_opts *o;
    int64_t count[PL_IMAGE_SPLITS], classes;
    int64_t *side[3];  /* widths, heights, short sides of a split */
    int64_t *of_class; /* pictures */
    pl_image_stat *out;
} stat_job;

static pl_image_split split_of(const stat_job *j, int64_t item, int64_t *i)
{
    pl_image_split s = item < j->count[PL_IMAGES_TRAIN] ? PL_IMAGES_TRAIN : PL_IMAGES_TEST;
    *i = item - (s == PL_IMAGES_TEST ? j->count[PL_IMAGES_TRAIN] : 0);
    return s;
}

/* ---- one picture -------------------------------------------------------------------------------- */

static polar_status look_at_file(seen *s, const stat_job *j, pl_image_split split, int64_t i)
{
    char path[MAX_PATH];
    struct stat info;
    pl_image im;
    PL_TRY(pl_image_folder_path(path, sizeof path, j->f, split, i));
    PL_TRY(pl_image_measure_file(&s->info, path));
    if (stat(path, &info) == 0) s->bytes = info.st_size;
    if (!j->o->decode) return POLAR_OK;
    PL_TRY(pl_image_decode_file(&im, path));
    pl_image_destroy(&im);
    return POLAR_OK;
}

static polar_status look_at_packed(seen *s, const stat_job *j, pl_image_split split, int64_t i)
{
    pl_image im = pl_image_pack_view(j->p, split, i);
    s->info = (pl_image_info){.width = im.width, .height = im.height, .format = PL_IMAGE_OTHER};
    s->bytes = (int64_t)pl_image_bytes(&im);
    return j->o->decode ? pl_image_pack_check(j->p, split, i) : POLAR_OK;
}

static polar_status fill(void *user, int worker, int64_t item, void *out)
{
    const stat_job *j = user;
    seen *s = out;
    int64_t i;
    (void)worker;
    pl_image_split split = split_of(j, item, &i);
    *s = (seen){0};
    polar_status st = j->f ? look_at_file(s, j, split, i) : look_at_packed(s, j, split, i);
    if (st != POLAR_E_FORMAT || !j->o->skip_bad) return st;
    s->bad = pl_strdup(polar_error_message());
    PL_NEED(s->bad, POLAR_E_NOMEM, "a sentence");
    return POLAR_OK;
}

static void drop(void *user, void *item)
{
    (void)user;
    pl_free(((seen *)item)->bad);
    ((seen *)item)->bad = NULL;
}

/* ---- counting ----------------------------------------------------------------------------------- */

static int64_t whole_ones(const stat_job *j, pl_image_split s)
{
    return j->out[s].count - j->out[s].bad;
}

static void count_one(stat_job *j, const seen *s, int64_t item)
{
    int64_t i;
    pl_image_split split = split_of(j, item, &i);
    pl_image_stat *o = &j->out[split];
    o->count++;
    o->bad += s->bad != NULL;
    j->of_class[split * j->classes +
                (j->f ? j->f->items[split][i].label : pl_image_pack_label(j->p, split, i))]++;
    if (s->bad) {
        if (j->o->bad) j->o->bad(j->o->user, s->bad);
        return;
    }
    int64_t at = (split == PL_IMAGES_TEST ? j->count[PL_IMAGES_TRAIN] : 0) + whole_ones(j, split) - 1,
            w = s->info.width, h = s->info.height;
    j->side[0][at] = w;
    j->side[1][at] = h;
    j->side[2][at] = w < h ? w : h;
    o->bytes += s->bytes;
    if (s->info.format == PL_IMAGE_OTHER) return;
    o->formats[s->info.format]++;
    o->colours[s->info.colour]++;
    o->progressive += s->info.progressive != 0;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sum_up(stat_job *j)
{
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) {
        pl_image_stat *o = &j->out[s];
        int64_t n = whole_ones(j, s), *to[3] = {o->width, o->height, o->lesser};
        for (int k = 0; n && k < 3; k++) {
            int64_t *v = j->side[k] + (s == PL_IMAGES_TEST ? j->count[PL_IMAGES_TRAIN] : 0);
            qsort(v, (size_t)n, sizeof *v, compare);
            to[k][0] = v[0];
            to[k][1] = v[n / 2];
            to[k][2] = v[n - 1];
        }
        for (int64_t c = 0; c < j->classes; c++) {
            int64_t m = j->of_class[s * j->classes + c];
            if (c == 0 || m < o->class_least) o->class_least = m;
            if (c == 0 || m > o->class_most) o->class_most = m;
        }
    }
}

static polar_status look_at_all(stat_job *j, int *stopped)
{
    int64_t total = j->count[0] + j->count[1];
    pl_loader_opts lo = {.workers = j->o->workers,
                         .ahead = 4,
                         .items = total,
                         .batch = 64,
                         .item_bytes = sizeof(seen),
                         .fill = fill,
                         .drop = drop,
                         .user = j};
    pl_loader *l;
    int64_t bad = 0;
    PL_TRY(pl_loader_create(&l, &lo));
    polar_status st = POLAR_OK;
    for (pl_batch b = {.count = 1}; st == POLAR_OK && b.count && !*stopped;) {
        st = pl_loader_next(&b, l);
        for (int64_t i = 0; st == POLAR_OK && i < b.count; i++) {
            seen *s = (seen *)b.data + i;
            count_one(j, s, b.first + i);
            bad += s->bad != NULL;
            drop(j, s);
        }
        if (st == POLAR_OK && j->o->progress)
            j->o->progress(j->o->user, b.first + b.count < total ? b.first + b.count : total, total, bad);
        *stopped = j->o->stop && atomic_load(j->o->stop);
    }
    pl_loader_destroy(l);
    return st;
}

static polar_status measure(stat_job *j, int *stopped)
{
    polar_status st = POLAR_OK;
    size_t total = (size_t)(j->count[0] + j->count[1]);
    *stopped = 0;
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) j->out[s] = (pl_image_stat){0};
    for (int k = 0; k < 3; k++)
        if (!(j->side[k] = pl_calloc(total + 1, sizeof *j->side[k])) && st == POLAR_OK)
            st = PL_FAIL(POLAR_E_NOMEM, "the sizes of %zu pictures", total);
    j->of_class = pl_calloc((size_t)(PL_IMAGE_SPLITS * j->classes) + 1, sizeof *j->of_class);
    if (!j->of_class && st == POLAR_OK)
        st = PL_FAIL(POLAR_E_NOMEM, "counts of %lld classes", (long long)j->classes);
    if (st == POLAR_OK) st = look_at_all(j, stopped);
    if (st == POLAR_OK && !*stopped) sum_up(j);
    for (int k = 0; k < 3; k++) pl_free(j->side[k]);
    pl_free(j->of_class);
    return st;
}

polar_status pl_image_stat_folder(pl_image_stat out[PL_IMAGE_SPLITS], int *stopped, const pl_image_folder *f,
                                  const pl_stat_opts *o)
{
    stat_job j = {.f = f, .o = o, .count = {f->count[0], f->count[1]}, .classes = f->classes, .out = out};
    return measure(&j, stopped);
}

polar_status pl_image_stat_pack(pl_image_stat out[PL_IMAGE_SPLITS], int *stopped, const pl_image_pack *p,
                                const pl_stat_opts *o)
{
    const pl_pack_header *h = pl_image_pack_header(p);
    stat_job j = {.p = p,
                  .o = o,
                  .count = {(int64_t)h->count[0], (int64_t)h->count[1]},
                  .classes = (int64_t)h->classes,
                  .out = out};
    return measure(&j, stopped);
}
