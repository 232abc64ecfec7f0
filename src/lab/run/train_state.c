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

void pl_state_may_lack(pl_state *s)
{
    s->arrays[s->array_count - 1].lacked = 1;
}

static void add_optim(pl_state *s, pl_state_optim o)
{
    assert(s->optim_count < s->optim_room);
    s->optims[s->optim_count++] = o;
}

void pl_state_add_groups(pl_state *s, const pl_train_group *groups, int64_t count)
{
    for (int64_t g = 0; g < count; g++)
        add_optim(s, (pl_state_optim){"optim", g, groups[g].first, groups[g].count, groups[g].opt});
}

void pl_state_add_own(pl_state *s, polar_optim *opt, int64_t run, const char *stem)
{
    add_optim(s, (pl_state_optim){stem, run, run, 0, opt});
}

typedef struct prefix {
    char text[PL_OPTIM_PREFIX_MAX];
} prefix;

static prefix prefix_of(const char *stem, int64_t number)
{
    prefix p;
    snprintf(p.text, sizeof p.text, "%s%" PRId64 ".", stem, number);
    return p;
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
        const pl_state_optim *o = &s->optims[i];
        PL_TRY(pl_optim_image_take(&im->optims[i], o->opt, q, prefix_of(o->stem, o->number).text));
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
    /* of a file of more runs, or in another order: which of them each of ours is; else NULL */
    int64_t *from;
    int64_t there; /* runs of the file */
};

void pl_state_close(pl_state_file *f)
{
    if (!f) return;
    for (int64_t i = 0; f->optims && i < f->optim_count; i++) pl_optim_image_free(f->optims[i]);
    pl_free(f->optims);
    pl_free(f->from);
    pl_safetensors_close(f->f);
    pl_free(f);
}

/* The number of the word at w among those of text, -1 if it is none; *words: how many there are. */
static int64_t word_in(const char *text, const char *w, int64_t *words)
{
    size_t n = strcspn(w, " ");
    int64_t found = -1;
    *words = 0;
    for (const char *p = text; *p; p += strspn(p, " "), ++*words) {
        size_t k = strcspn(p, " ");
        if (found < 0 && k == n && !memcmp(p, w, n)) found = *words;
        p += k;
    }
    return found;
}

/* Whether all words of a are among those of b. */
static int words_in(const char *a, const char *b)
{
    int64_t words;
    for (; *a; a += strcspn(a, " "), a += strspn(a, " "))
        if (word_in(b, a, &words) < 0) return 0;
    return 1;
}

/* Where our runs are among the file's. */
static polar_status find_runs(pl_state_file *f, const pl_state *s, const char *runs, const char *path)
{
    f->there = s->run_count;
    if (!strcmp(runs, s->runs)) return POLAR_OK;
    (void)word_in(runs, s->runs, &f->there);
    PL_NEED(s->run_count <= f->there && words_in(s->runs, runs), POLAR_E_FORMAT,
            "'%s' is the checkpoint of other runs", path);
    f->from = pl_calloc((size_t)s->run_count, sizeof *f->from);
    PL_NEED(f->from, POLAR_E_NOMEM, "a checkpoint");
    const char *run = s->runs;
    for (int64_t i = 0; i < s->run_count; i++, run += PL_RUN_ID_CHARS)
        f->from[i] = word_in(runs, run, &f->there);
    return POLAR_OK;
}

static polar_status check_origin(pl_state_file *file, pl_state *s, const char *path)
{
    const pl_safetensors *f = file->f;
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
    PL_TRY(find_runs(file, s, runs, path));
    int same = !s->data || (data && (file->from ? words_in(s->data, data) : !strcmp(data, s->data)));
    PL_NEED(same, POLAR_E_ARG,
            "the run was begun with other data than is given now (other classes, names or number of "
            "pictures): go on with the same, or remove '%s'",
            path);
    PL_NEED(epochs && *epochs && !epochs[strspn(epochs, "0123456789")], POLAR_E_FORMAT,
            "'%s' does not say how many epochs were made", path);
    s->made = strtoll(epochs, NULL, 10);
    return POLAR_OK;
}

/* *out: NULL where the file lacks what it may lack. */
static polar_status find_array(const pl_safetensors_entry **out, const pl_state_file *f, const pl_state *s,
                               const char *path, const pl_state_array *a)
{
    const pl_safetensors_entry want = entry_of(a), *e = pl_safetensors_find(f->f, a->name);
    *out = e;
    if (!e && a->lacked) return POLAR_OK;
    PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s'", path, a->name);
    int same = want.dtype >= 0 ? e->dtype == want.dtype : !strcmp(e->dtype_name, "I64");
    if (!f->from || a->mat.data) same = same && e->ndim == want.ndim;
    for (int i = f->from != NULL; same && i < want.ndim && e->ndim == want.ndim; i++)
        same = e->shape[i] == want.shape[i];
    if (f->from) same = same && e->ndim && e->shape[0] == f->there;
    PL_NEED(same && e->bytes == want.bytes / s->run_count * f->there, POLAR_E_FORMAT,
            "'%s': '%s' has another shape or number format than here", path, a->name);
    return POLAR_OK;
}

/* The bytes of run i in an array of ours, and where they stand in the file's. */
static size_t run_bytes(const pl_state *s, const pl_state_array *a)
{
    return (size_t)(entry_of(a).bytes / s->run_count);
}
static const char *run_at(const pl_state_file *f, const pl_safetensors_entry *e, int64_t i, size_t bytes)
{
    return (const char *)e->data + (size_t)(f->from ? f->from[i] : i) * bytes;
}

/* An optimiser's state: of a group the members that are ours, of a run's own all of it. */
static polar_status read_optim(pl_state_file *f, const pl_state *s, int64_t i, const char *path)
{
    const pl_state_optim *o = &s->optims[i];
    const unsigned what = POLAR_LOAD_SETTINGS;
    if (!f->from || !o->count) {
        int64_t number = f->from ? f->from[o->number] : o->number;
        return pl_optim_image_read(&f->optims[i], o->opt, f->f, path, prefix_of(o->stem, number).text, NULL,
                                   what);
    }
    int64_t g = 0, first = 0, there, lowest = f->from[o->first];
    while ((there = pl_optim_image_members(f->f, prefix_of(o->stem, g).text)) && first + there <= lowest)
        first += there, g++;
    int64_t *from = pl_calloc((size_t)o->count, sizeof *from);
    PL_NEED(from, POLAR_E_NOMEM, "a checkpoint");
    int within = there > 0;
    for (int64_t k = 0; k < o->count; k++) {
        from[k] = f->from[o->first + k] - first;
        within = within && from[k] >= 0 && from[k] < there;
    }
    polar_status st = within
                          ? pl_optim_image_read(&f->optims[i], o->opt, f->f, path, prefix_of(o->stem, g).text,
                                                &(pl_optim_pick){from, there}, what)
                          : PL_FAIL(POLAR_E_FORMAT, "'%s' has these runs under other rules", path);
    pl_free(from);
    return st;
}

static polar_status read_all(pl_state_file *f, pl_state *s, const char *path)
{
    const pl_safetensors_entry *e;
    PL_TRY(pl_safetensors_open(&f->f, path));
    PL_TRY(check_origin(f, s, path));
    f->optims = pl_calloc((size_t)s->optim_count + 1, sizeof *f->optims);
    PL_NEED(f->optims, POLAR_E_NOMEM, "a list of optimisers");
    f->optim_count = s->optim_count;
    for (int64_t i = 0; i < s->array_count; i++) PL_TRY(find_array(&e, f, s, path, &s->arrays[i]));
    for (int64_t i = 0; i < s->optim_count; i++) PL_TRY(read_optim(f, s, i, path));
    for (int64_t i = 0; i < s->array_count; i++) {
        const pl_state_array *a = &s->arrays[i];
        PL_TRY(find_array(&e, f, s, path, a));
        size_t n = run_bytes(s, a);
        for (int64_t k = 0; e && !a->mat.data && k < s->run_count; k++)
            memcpy((char *)a->host + (size_t)k * n, run_at(f, e, k, n), n);
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
        const pl_state_array *a = &s->arrays[i];
        const pl_safetensors_entry *e = pl_safetensors_find(f->f, a->name);
        if (!a->mat.data) continue;
        size_t n = run_bytes(s, a);
        if (!f->from) polar_queue_upload(q, a->mat.data, e->data, (size_t)e->bytes);
        for (int64_t k = 0; f->from && k < s->run_count; k++)
            polar_queue_upload(q, (char *)a->mat.data + (size_t)k * n, run_at(f, e, k, n), n);
    }
    for (int64_t i = 0; i < s->optim_count; i++)
        PL_TRY(pl_optim_image_apply(f->optims[i], s->optims[i].opt, q, POLAR_LOAD_SETTINGS));
    return polar_queue_sync(q);
}
