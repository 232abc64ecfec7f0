/* image_set.c -- three sources behind one face. A selection of classes is a list of the pictures kept,
 * whatever the source. */
#include "data/set/image_set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "data/set/image_pack.h"
#include "data/set/image_synth.h"

#define MAX_PATH 4096

struct pl_image_set {
    pl_image_source source;
    pl_image_folder *folder;
    pl_image_pack *pack;
    pl_synth_opts synth;
    int64_t classes, count[PL_IMAGE_SPLITS];
    /* pictures of the source, once classes were chosen; NULL: all of them */
    int64_t *kept[PL_IMAGE_SPLITS];
    int64_t *old_label; /* (classes) of the source */
    int32_t *new_label; /* (classes of the source), -1: not kept */
    char *synth_names;  /* (classes) of PL_SYNTH_NAME bytes */
};

/* ---- the three sources -------------------------------------------------------------------------- */

static int64_t source_label(const pl_image_set *s, pl_image_split split, int64_t i)
{
    switch (s->source) {
    case PL_SOURCE_FOLDER: return s->folder->items[split][i].label;
    case PL_SOURCE_PACK: return pl_image_pack_label(s->pack, split, i);
    default: return i / s->synth.per_class[split];
    }
}

static const char *source_class(const pl_image_set *s, int64_t label)
{
    switch (s->source) {
    case PL_SOURCE_FOLDER: return pl_image_folder_class(s->folder, label);
    case PL_SOURCE_PACK: return pl_image_pack_class(s->pack, label);
    default: return s->synth_names + PL_SYNTH_NAME * label;
    }
}

static const char *source_name(const pl_image_set *s, pl_image_split split, int64_t i)
{
    switch (s->source) {
    case PL_SOURCE_FOLDER: return pl_image_folder_name(s->folder, split, i);
    case PL_SOURCE_PACK: return pl_image_pack_name(s->pack, split, i);
    default: return source_class(s, source_label(s, split, i));
    }
}

/* "classes=10,train=400,test=100,size=64,seed=0,noise=12", any of them in any order. */
static polar_status parse_synth(pl_synth_opts *o, const char *text)
{
    static const struct {
        const char *key;
        int64_t min, max;
    } keys[] = {{"classes", 1, 100000}, {"train", 1, (1 << 20) - 1}, {"test", 1, (1 << 20) - 1},
                {"size", 1, 4096},      {"seed", 0, INT64_MAX},      {"noise", 0, 255}};
    while (*text) {
        size_t stem = strcspn(text, "=,"), k = 0;
        while (k < 6 && (strlen(keys[k].key) != stem || strncmp(keys[k].key, text, stem))) k++;
        PL_NEED(k < 6 && text[stem] == '=', POLAR_E_ARG,
                "synth: wants classes=, train=, test=, size=, seed=, noise= with commas between, got '%s'",
                pl_text_shown(text).text);
        char *end;
        errno = 0;
        long long v = strtoll(text + stem + 1, &end, 10);
        PL_NEED(end != text + stem + 1 && (!*end || *end == ',') && !errno && v >= keys[k].min &&
                    v <= keys[k].max,
                POLAR_E_ARG, "synth: %s wants a whole number from %lld to %lld, got '%s'", keys[k].key,
                (long long)keys[k].min, (long long)keys[k].max, pl_text_shown(text + stem + 1).text);
        switch (k) {
        case 0: o->classes = v; break;
        case 1: o->per_class[PL_IMAGES_TRAIN] = v; break;
        case 2: o->per_class[PL_IMAGES_TEST] = v; break;
        case 3: o->size = v; break;
        case 4: o->seed = (uint64_t)v; break;
        default: o->noise = (double)v;
        }
        text = *end ? end + 1 : end;
    }
    return POLAR_OK;
}

static polar_status open_synth(pl_image_set *s, const char *text)
{
    s->source = PL_SOURCE_SYNTH;
    s->synth = PL_SYNTH_OPTS_INIT;
    PL_TRY(parse_synth(&s->synth, text));
    s->classes = s->synth.classes;
    s->synth_names = pl_alloc((size_t)s->classes * PL_SYNTH_NAME);
    PL_NEED(s->synth_names, POLAR_E_NOMEM, "%lld class names", (long long)s->classes);
    for (int64_t c = 0; c < s->classes; c++)
        pl_image_synth_class(s->synth_names + PL_SYNTH_NAME * c, &s->synth, c);
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) s->count[k] = s->classes * s->synth.per_class[k];
    return POLAR_OK;
}

static polar_status open_any(pl_image_set *s, const char *what)
{
    struct stat info;
    if (!strncmp(what, "synth:", 6)) return open_synth(s, what + 6);
    if (stat(what, &info) == 0 && !S_ISDIR(info.st_mode)) {
        s->source = PL_SOURCE_PACK;
        PL_TRY(pl_image_pack_open(&s->pack, what));
        const pl_pack_header *h = pl_image_pack_header(s->pack);
        s->classes = (int64_t)h->classes;
        for (int k = 0; k < PL_IMAGE_SPLITS; k++) s->count[k] = (int64_t)h->count[k];
        return POLAR_OK;
    }
    s->source = PL_SOURCE_FOLDER;
    PL_TRY(pl_image_folder_open(&s->folder, what));
    s->classes = s->folder->classes;
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) s->count[k] = s->folder->count[k];
    return POLAR_OK;
}

/* ---- the set ------------------------------------------------------------------------------------ */

polar_status pl_image_set_open(pl_image_set **out, const char *what)
{
    *out = NULL;
    pl_image_set *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "a set of pictures");
    polar_status st = open_any(s, what);
    if (st == POLAR_OK) *out = s;
    else pl_image_set_close(s);
    return st;
}

void pl_image_set_close(pl_image_set *s)
{
    if (!s) return;
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) pl_free(s->kept[k]);
    pl_free(s->old_label);
    pl_free(s->new_label);
    pl_free(s->synth_names);
    pl_image_folder_close(s->folder);
    pl_image_pack_close(s->pack);
    pl_free(s);
}

polar_status pl_image_set_select(pl_image_set *s, const int64_t *chosen, int64_t n)
{
    PL_NEED(!s->new_label, POLAR_E_STATE, "classes were chosen already");
    PL_NEED(n >= 1 && n <= s->classes, POLAR_E_ARG, "%lld classes of %lld", (long long)n,
            (long long)s->classes);
    s->new_label = pl_alloc((size_t)s->classes * sizeof *s->new_label);
    s->old_label = pl_alloc((size_t)n * sizeof *s->old_label);
    PL_NEED(s->new_label && s->old_label, POLAR_E_NOMEM, "a choice of %lld classes", (long long)n);
    for (int64_t c = 0; c < s->classes; c++) s->new_label[c] = -1;
    for (int64_t i = 0; i < n; i++) {
        PL_NEED(chosen[i] >= 0 && chosen[i] < s->classes && s->new_label[chosen[i]] < 0, POLAR_E_ARG,
                "class %lld is chosen twice or is not one of %lld", (long long)chosen[i],
                (long long)s->classes);
        s->new_label[chosen[i]] = 0;
    }
    int64_t kept = 0;
    for (int64_t c = 0; c < s->classes; c++)
        if (s->new_label[c] == 0) {
            s->old_label[kept] = c;
            s->new_label[c] = (int32_t)kept++;
        }
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) {
        int64_t m = 0;
        s->kept[k] = pl_alloc((size_t)(s->count[k] + 1) * sizeof *s->kept[k]);
        PL_NEED(s->kept[k], POLAR_E_NOMEM, "a list of %lld pictures", (long long)s->count[k]);
        for (int64_t i = 0; i < s->count[k]; i++)
            if (s->new_label[source_label(s, k, i)] >= 0) s->kept[k][m++] = i;
        s->count[k] = m;
    }
    s->classes = n;
    return POLAR_OK;
}

pl_image_source pl_image_set_source(const pl_image_set *s)
{
    return s->source;
}

int64_t pl_image_set_classes(const pl_image_set *s)
{
    return s->classes;
}

const char *pl_image_set_class(const pl_image_set *s, int64_t label)
{
    return source_class(s, s->old_label ? s->old_label[label] : label);
}

int64_t pl_image_set_count(const pl_image_set *s, pl_image_split split)
{
    return s->count[split];
}

static int64_t source_item(const pl_image_set *s, pl_image_split split, int64_t i)
{
    return s->kept[split] ? s->kept[split][i] : i;
}

int64_t pl_image_set_label(const pl_image_set *s, pl_image_split split, int64_t i)
{
    int64_t label = source_label(s, split, source_item(s, split, i));
    return s->new_label ? s->new_label[label] : label;
}

polar_status pl_image_set_fingerprint(char out[PL_SHA256_HEX], const pl_image_set *s)
{
    pl_sha256 h = pl_sha256_begin();
    char line[128];
    if (s->source == PL_SOURCE_PACK) pl_sha256_add(&h, pl_image_pack_header(s->pack)->sha256, 64);
    if (s->source == PL_SOURCE_SYNTH) {
        int n = snprintf(line, sizeof line, "synth %lld %lld %lld %llu %.17g", (long long)s->synth.size,
                         (long long)s->synth.per_class[0], (long long)s->synth.per_class[1],
                         (unsigned long long)s->synth.seed, s->synth.noise);
        pl_sha256_add(&h, line, (size_t)n);
    }
    for (int64_t c = 0; c < s->classes; c++)
        pl_sha256_add(&h, pl_image_set_class(s, c), strlen(pl_image_set_class(s, c)) + 1);
    for (int k = 0; k < PL_IMAGE_SPLITS; k++)
        for (int64_t i = 0; i < s->count[k]; i++) {
            const char *name = source_name(s, k, source_item(s, k, i));
            pl_sha256_add(&h, name, strlen(name) + 1);
        }
    pl_sha256_end(out, &h);
    return POLAR_OK;
}

polar_status pl_image_set_measure(pl_image_info *out, const pl_image_set *s, pl_image_split split, int64_t i)
{
    char path[MAX_PATH];
    PL_NEED(i >= 0 && i < s->count[split], POLAR_E_ARG, "picture %lld of %lld", (long long)i,
            (long long)s->count[split]);
    *out = (pl_image_info){.width = s->synth.size, .height = s->synth.size, .format = PL_IMAGE_OTHER};
    if (s->source == PL_SOURCE_SYNTH) return POLAR_OK;
    if (s->source == PL_SOURCE_PACK) {
        pl_image im = pl_image_pack_view(s->pack, split, source_item(s, split, i));
        out->width = im.width, out->height = im.height;
        return POLAR_OK;
    }
    PL_TRY(pl_image_folder_path(path, sizeof path, s->folder, split, source_item(s, split, i)));
    return pl_image_measure_file(out, path);
}

/* ---- a picture ---------------------------------------------------------------------------------- */

polar_status pl_picture_path(char *out, size_t bytes, const pl_picture *p)
{
    return pl_image_folder_path(out, bytes, p->set->folder, p->split, p->item);
}

static polar_status open_file(pl_picture *p)
{
    char path[MAX_PATH];
    pl_image_info info;
    PL_TRY(pl_picture_path(path, sizeof path, p));
    PL_TRY(pl_file_bytes_read(&p->file, path, 0));
    PL_TRY(pl_image_measure(&info, p->file.data, p->file.size, path));
    p->width = info.width;
    p->height = info.height;
    return POLAR_OK;
}

static polar_status open_texture(pl_picture *p)
{
    const pl_synth_opts *o = &p->set->synth;
    if (p->decoded.width != o->size || p->decoded.height != o->size) {
        pl_image_destroy(&p->decoded);
        PL_TRY(pl_image_create(&p->decoded, o->size, o->size));
    }
    pl_image_synth_draw(&p->decoded, o, p->split, source_label(p->set, p->split, p->item),
                        p->item % o->per_class[p->split]);
    p->view = p->decoded;
    return POLAR_OK;
}

polar_status pl_picture_open(pl_picture *p, const pl_image_set *s, pl_image_split split, int64_t i)
{
    PL_NEED(i >= 0 && i < s->count[split], POLAR_E_ARG, "picture %lld of %lld", (long long)i,
            (long long)s->count[split]);
    p->set = s;
    p->split = split;
    p->item = source_item(s, split, i);
    p->label = pl_image_set_label(s, split, i);
    p->name = source_name(s, split, p->item);
    p->pixels = NULL;
    if (s->source == PL_SOURCE_FOLDER) return open_file(p);
    if (s->source == PL_SOURCE_PACK) p->view = pl_image_pack_view(s->pack, split, p->item);
    else PL_TRY(open_texture(p));
    p->width = p->view.width;
    p->height = p->view.height;
    return POLAR_OK;
}

polar_status pl_picture_read(pl_picture *p, pl_box box)
{
    if (p->set->source == PL_SOURCE_FOLDER) {
        char path[MAX_PATH];
        PL_TRY(pl_picture_path(path, sizeof path, p));
        pl_image_destroy(&p->decoded);
        int all = box.x == 0 && box.y == 0 && box.width == p->width && box.height == p->height;
        PL_TRY(all ? pl_image_decode(&p->decoded, p->file.data, p->file.size, path)
                   : pl_image_decode_crop(&p->decoded, p->file.data, p->file.size, path, box));
        p->pixels = p->decoded.data;
        p->stride = (int64_t)pl_image_row_bytes(&p->decoded);
        return POLAR_OK;
    }
    int inside = box.x >= 0 && box.y >= 0 && box.width > 0 && box.height > 0 &&
                 box.width <= p->width - box.x && box.height <= p->height - box.y;
    PL_NEED(inside, POLAR_E_ARG, "%s: a crop of %lld x %lld at %lld, %lld is not inside %lld x %lld", p->name,
            (long long)box.width, (long long)box.height, (long long)box.x, (long long)box.y,
            (long long)p->width, (long long)p->height);
    if (p->set->source == PL_SOURCE_PACK)
        PL_TRY(pl_image_pack_read(&p->view, p->set->pack, p->split, p->item));
    p->pixels = pl_image_at(&p->view, box.x, box.y);
    p->stride = (int64_t)pl_image_row_bytes(&p->view);
    return POLAR_OK;
}

polar_status pl_picture_take(const uint8_t **pixels, pl_image *own, pl_picture *p)
{
    *own = (pl_image){0};
    PL_TRY(pl_picture_read(p, (pl_box){0, 0, p->width, p->height}));
    *pixels = p->pixels;
    if (p->set->source == PL_SOURCE_PACK) return POLAR_OK;
    *own = p->decoded;
    p->decoded = p->view = (pl_image){0};
    p->pixels = NULL;
    return POLAR_OK;
}

void pl_picture_drop(pl_picture *p)
{
    pl_image_destroy(&p->decoded);
    pl_file_bytes_drop(&p->file);
    *p = (pl_picture){0};
}
