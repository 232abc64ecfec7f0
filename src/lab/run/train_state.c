/* train_state.c -- checkpoints: a list of arrays and optimisers to a file and back. */
#include "lab/run/train_state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { OWN_META = 4 }; /* metadata pairs of ours, at most */

/* ---- the list ----------------------------------------------------------------------------------- */

polar_status pl_state_create(pl_state *out, const char *kind, int64_t arrays, int64_t optims, int64_t runs)
{
    *out = (pl_state){.kind = kind, .array_room = arrays, .optim_room = optims, .run_room = runs};
    out->arrays = pl_calloc((size_t)arrays + 1, sizeof *out->arrays);
    out->optims = pl_calloc((size_t)optims + 1, sizeof *out->optims);
    out->runs = pl_calloc((size_t)runs, PL_RUN_ID_CHARS);
    if (out->arrays && out->optims && out->runs) return POLAR_OK;
    pl_state_destroy(out);
    return PL_FAIL(POLAR_E_NOMEM, "a checkpoint of %lld arrays", (long long)arrays);
}

void pl_state_destroy(pl_state *s)
{
    pl_free(s->arrays);
    pl_free(s->optims);
    pl_free(s->runs);
    *s = (pl_state){0};
}

polar_status pl_state_add_run(pl_state *s, const pl_config *config, uint64_t seed)
{
    assert(s->run_count < s->run_room);
    char *at = s->runs + s->run_count * PL_RUN_ID_CHARS;
    if (s->run_count++) at[-1] = ' ';
    return pl_config_run_id(at, config, (int64_t)seed);
}

static pl_state_array *add_array(pl_state *s)
{
    assert(s->array_count < s->array_room);
    return &s->arrays[s->array_count++];
}

void pl_state_add_mat(pl_state *s, pl_mat m, const char *fmt, ...)
{
    pl_state_array *a = add_array(s);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->name, sizeof a->name, fmt, ap);
    va_end(ap);
    a->mat = m;
}

static void add_host(pl_state *s, void *x, int whole, int64_t rows, int64_t cols, const char *name)
{
    pl_state_array *a = add_array(s);
    *a = (pl_state_array){.host = x, .whole = whole, .rows = rows, .cols = cols};
    snprintf(a->name, sizeof a->name, "%s", name);
}

void pl_state_add_reals(pl_state *s, double *x, int64_t rows, int64_t cols, const char *name)
{
    add_host(s, x, 0, rows, cols, name);
}
void pl_state_add_counts(pl_state *s, int64_t *x, int64_t rows, int64_t cols, const char *name)
{
    add_host(s, x, 1, rows, cols, name);
}

void pl_state_add_optim(pl_state *s, polar_optim *opt, const char *fmt, ...)
{
    assert(s->optim_count < s->optim_room);
    pl_state_optim *o = &s->optims[s->optim_count++];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->prefix, sizeof o->prefix, fmt, ap);
    va_end(ap);
    o->opt = opt;
}

/* What the file says of an array, without the bytes' place. */
static pl_safetensors_entry entry_of(const pl_state_array *a)
{
    pl_safetensors_entry e = {.name = a->name};
    if (a->mat.data) {
        e.dtype = (int)a->mat.dtype;
        e.ndim = 3;
        e.shape[0] = a->mat.batch, e.shape[1] = a->mat.rows, e.shape[2] = a->mat.cols;
        e.bytes = (int64_t)pl_mat_bytes(&a->mat);
        return e;
    }
    if (a->whole) e.dtype_name = "I64";
    e.dtype = a->whole ? -1 : (int)POLAR_DTYPE_F64;
    e.ndim = a->cols ? 2 : 1;
    e.shape[0] = a->rows, e.shape[1] = a->cols;
    e.bytes = 8 * a->rows * (a->cols ? a->cols : 1);
    return e;
}

/* ---- saving ------------------------------------------------------------------------------------- */

typedef struct image {
    pl_optim_image **optims;
    pl_safetensors_entry *entries;
    pl_safetensors_meta *meta;
    int64_t entry_count, meta_count;
    char *bytes; /* of what lies on the device */
} image;

static void image_free(image *im, const pl_state *s)
{
    for (int64_t i = 0; im->optims && i < s->optim_count; i++) pl_optim_image_free(im->optims[i]);
    pl_free(im->optims);
    pl_free(im->entries);
    pl_free(im->meta);
    pl_free(im->bytes);
}

static polar_status image_take(image *im, const pl_state *s, polar_queue *q)
{
    size_t bytes = 1;
    int64_t entries = s->array_count;
    im->optims = pl_calloc((size_t)s->optim_count + 1, sizeof *im->optims);
    PL_NEED(im->optims, POLAR_E_NOMEM, "a list of optimisers");
    for (int64_t i = 0; i < s->optim_count; i++) {
        PL_TRY(pl_optim_image_take(&im->optims[i], s->optims[i].opt, q, s->optims[i].prefix));
        entries += im->optims[i]->entry_count;
    }
    for (int64_t i = 0; i < s->array_count; i++)
        if (s->arrays[i].mat.data) bytes += pl_mat_bytes(&s->arrays[i].mat);
    im->entries = pl_calloc((size_t)entries + 1, sizeof *im->entries);
    im->meta = pl_calloc((size_t)(OWN_META + PL_OPTIM_META * s->optim_count), sizeof *im->meta);
    im->bytes = pl_alloc(bytes);
    PL_NEED(im->entries && im->meta && im->bytes, POLAR_E_NOMEM, "a checkpoint of %zu bytes", bytes);
    return POLAR_OK;
}

static void put_arrays(image *im, const pl_state *s, polar_queue *q)
{
    char *at = im->bytes;
    for (int64_t i = 0; i < s->array_count; i++) {
        const pl_state_array *a = &s->arrays[i];
        pl_safetensors_entry e = entry_of(a);
        e.data = a->mat.data ? at : a->host;
        if (a->mat.data) {
            polar_queue_download(q, at, a->mat.data, (size_t)e.bytes);
            at += e.bytes;
        }
        im->entries[im->entry_count++] = e;
    }
}

static polar_status save(image *im, const pl_state *s, polar_queue *q, const char *path)
{
    char epochs[32];
    PL_TRY(image_take(im, s, q));
    put_arrays(im, s, q);
    PL_TRY(polar_queue_sync(q));
    snprintf(epochs, sizeof epochs, "%" PRId64, s->made);
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.checkpoint", s->kind};
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.runs", s->runs};
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.epochs", epochs};
    if (s->data) im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.data", s->data};
    for (int64_t i = 0; i < s->optim_count; i++) {
        const pl_optim_image *o = im->optims[i];
        if (o->entry_count)
            memcpy(im->entries + im->entry_count, o->entries, (size_t)o->entry_count * sizeof *o->entries);
        memcpy(im->meta + im->meta_count, o->meta, sizeof o->meta);
        im->entry_count += o->entry_count;
        im->meta_count += PL_OPTIM_META;
    }
    polar_comm *comm =
        s->optim_count ? s->optims[0].opt->o.comm : NULL; /* all ranks have the same: one writes */
    if (polar_comm_rank(comm) == 0)
        PL_TRY(pl_safetensors_write(path, im->entries, im->entry_count, im->meta, im->meta_count));
    return POLAR_OK;
}

polar_status pl_state_save(const pl_state *s, polar_queue *q, const char *path)
{
    image im = {0};
    polar_status st = save(&im, s, q, path);
    if (st != POLAR_OK) (void)polar_queue_sync(q); /* no download may arrive in what is freed now */
    image_free(&im, s);
    return st;
}

/* ---- reading ------------------------------------------------------------------------------------ */

struct pl_state_file {
    pl_safetensors *f;
    pl_optim_image **optims;
    int64_t optim_count;
};

void pl_state_close(pl_state_file *f)
{
    if (!f) return;
    for (int64_t i = 0; f->optims && i < f->optim_count; i++) pl_optim_image_free(f->optims[i]);
    pl_free(f->optims);
    pl_safetensors_close(f->f);
    pl_free(f);
}

static polar_status check_origin(const pl_safetensors *f, pl_state *s, const char *path)
{
    const char *kind = pl_safetensors_meta_find(f, "polar.checkpoint"),
               *runs = pl_safetensors_meta_find(f, "polar.runs"),
               *epochs = pl_safetensors_meta_find(f, "polar.epochs"),
               *data = pl_safetensors_meta_find(f, "polar.data");
    PL_NEED(kind && runs, POLAR_E_FORMAT, "'%s' is no checkpoint", path);
    int older = s->older && !strcmp(kind, s->older);
    PL_NEED(older || !strcmp(kind, s->kind), POLAR_E_FORMAT, "'%s' is a checkpoint of another kind than '%s'",
            path, s->kind);
    PL_NEED(older || pl_safetensors_checked(f), POLAR_E_FORMAT,
            "'%s' is damaged: a checkpoint has a checksum, this has none", path);
    PL_NEED(!strcmp(runs, s->runs), POLAR_E_FORMAT, "'%s' is the checkpoint of other runs", path);
    PL_NEED(!s->data || (data && !strcmp(data, s->data)), POLAR_E_ARG,
            "the run was begun with other data than is given now (other classes, names or number of "
            "pictures): go on with the same, or remove '%s'",
            path);
    PL_NEED(epochs && *epochs && !epochs[strspn(epochs, "0123456789")], POLAR_E_FORMAT,
            "'%s' does not say how many epochs were made", path);
    s->made = strtoll(epochs, NULL, 10);
    return POLAR_OK;
}

static polar_status find_array(const pl_safetensors_entry **out, const pl_safetensors *f, const char *path,
                               const pl_state_array *a)
{
    const pl_safetensors_entry want = entry_of(a), *e = pl_safetensors_find(f, a->name);
    PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s'", path, a->name);
    int same =
        e->ndim == want.ndim && (want.dtype >= 0 ? e->dtype == want.dtype : !strcmp(e->dtype_name, "I64"));
    for (int i = 0; same && i < want.ndim; i++) same = e->shape[i] == want.shape[i];
    PL_NEED(same, POLAR_E_FORMAT, "'%s': '%s' has another shape or number format than here", path, a->name);
    *out = e;
    return POLAR_OK;
}

static polar_status read_all(pl_state_file *f, pl_state *s, const char *path)
{
    const pl_safetensors_entry *e;
    PL_TRY(pl_safetensors_open(&f->f, path));
    PL_TRY(check_origin(f->f, s, path));
    f->optims = pl_calloc((size_t)s->optim_count + 1, sizeof *f->optims);
    PL_NEED(f->optims, POLAR_E_NOMEM, "a list of optimisers");
    f->optim_count = s->optim_count;
    for (int64_t i = 0; i < s->array_count; i++) PL_TRY(find_array(&e, f->f, path, &s->arrays[i]));
    for (int64_t i = 0; i < s->optim_count; i++)
        PL_TRY(pl_optim_image_read(&f->optims[i], s->optims[i].opt, f->f, path, s->optims[i].prefix,
                                   POLAR_LOAD_SETTINGS));
    for (int64_t i = 0; i < s->array_count; i++) {
        if (s->arrays[i].mat.data) continue;
        PL_TRY(find_array(&e, f->f, path, &s->arrays[i]));
        memcpy(s->arrays[i].host, e->data, (size_t)e->bytes);
    }
    return POLAR_OK;
}

polar_status pl_state_open(pl_state_file **out, pl_state *s, const char *path)
{
    pl_state_file *f = pl_calloc(1, sizeof *f);
    *out = NULL;
    PL_NEED(f, POLAR_E_NOMEM, "a checkpoint");
    polar_status st = read_all(f, s, path);
    if (st == POLAR_OK) *out = f;
    else pl_state_close(f);
    return st;
}

polar_status pl_state_apply(pl_state_file *f, const pl_state *s, polar_queue *q)
{
    for (int64_t i = 0; i < s->array_count; i++) {
        const pl_safetensors_entry *e = pl_safetensors_find(f->f, s->arrays[i].name);
        if (s->arrays[i].mat.data) polar_queue_upload(q, s->arrays[i].mat.data, e->data, (size_t)e->bytes);
    }
    for (int64_t i = 0; i < s->optim_count; i++)
        PL_TRY(pl_optim_image_apply(f->optims[i], s->optims[i].opt, q, POLAR_LOAD_SETTINGS));
    return polar_queue_sync(q);
}
