/* deit_checkpoint.c -- a member's weights as timm's state_dict in a safetensors file: the parameters'
 * names, shapes as torch has them.
 *
 *     timm.create_model("vit_tiny_patch16_224",
 *         num_classes=100).load_state_dict(load_file("polar.safetensors"))
 *     timm's save_file(model.state_dict(), "timm.safetensors") is what load takes
 *
 * The whole file is checked before any of it reaches the device.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/safetensors.h"
#include "device/queue.h"
#include "models/deit_impl.h"

/* The array's shape as torch has it; the dimensions' number. */
static int shape_of(const pl_param *p, int64_t shape[PL_PARAM_DIMS])
{
    if (p->ndim > 2) memcpy(shape, p->shape, sizeof p->shape);
    else if (p->ndim == 2) shape[0] = p->rows, shape[1] = p->cols;
    else shape[0] = p->cols;
    return p->ndim;
}

static polar_status check_member(const pl_deit *m, int64_t member)
{
    PL_NEED(member >= 0 && member < m->shape.members, POLAR_E_ARG, "member %lld of %lld", (long long)member,
            (long long)m->shape.members);
    return POLAR_OK;
}

polar_status pl_deit_save(pl_deit *m, polar_queue *q, int64_t member, const char *path)
{
    static const pl_safetensors_meta meta[] = {{"format", "pt"}, {"polar.weights", "deit 1"}};
    PL_TRY(check_member(m, member));
    pl_safetensors_entry *entries = pl_calloc((size_t)m->param_count, sizeof *entries);
    char *bytes = pl_alloc(m->memory.bytes.weights), *at = bytes;
    polar_status st = entries && bytes
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_NOMEM, "a copy of %zu bytes of weights", m->memory.bytes.weights);
    for (int64_t i = 0; st == POLAR_OK && i < m->param_count; i++) {
        const pl_param *p = &m->params[i];
        pl_mat w = pl_mat_at(p->W, member, 1);
        entries[i] = (pl_safetensors_entry){
            .name = p->name, .dtype = (int)w.dtype, .data = at, .bytes = (int64_t)pl_mat_bytes(&w)};
        entries[i].ndim = shape_of(p, entries[i].shape);
        polar_queue_download(q, at, w.data, pl_mat_bytes(&w));
        at += pl_mat_bytes(&w);
    }
    if (st == POLAR_OK) st = polar_queue_sync(q);
    if (st == POLAR_OK)
        st = pl_safetensors_write(path, entries, m->param_count, meta, (int64_t)(sizeof meta / sizeof *meta));
    pl_free(entries);
    pl_free(bytes);
    return st;
}

static polar_status find_array(const pl_safetensors_entry **out, const pl_safetensors *f, const char *path,
                               const pl_param *p)
{
    const pl_safetensors_entry *e = pl_safetensors_find(f, p->name);
    int64_t want[PL_PARAM_DIMS] = {0};
    int ndim = shape_of(p, want);
    PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s': it is no state_dict of such a vision transformer", path,
            p->name);
    PL_NEED(e->dtype >= 0, POLAR_E_FORMAT,
            "'%s': '%s' is %s; f64, f32 and bf16 can be read (save model.float().state_dict())", path,
            p->name, e->dtype_name);
    int same = e->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = e->shape[i] == want[i];
    PL_NEED(same, POLAR_E_FORMAT,
            "'%s': '%s' has %lld numbers of another shape than the %lld x %lld here (image, patch, width, "
            "mlp_ratio and classes must be the file's)",
            path, p->name, (long long)e->bytes / (long long)polar_dtype_size((polar_dtype)e->dtype),
            (long long)p->rows, (long long)p->cols);
    *out = e;
    return POLAR_OK;
}

static int is_param(const pl_deit *m, const char *name)
{
    for (int64_t i = 0; i < m->param_count; i++)
        if (!strcmp(m->params[i].name, name)) return 1;
    return 0;
}

static polar_status load(pl_deit *m, polar_queue *q, int64_t member, const pl_safetensors *f,
                         const char *path)
{
    const pl_safetensors_entry *e;
    int64_t most = 1;
    for (int64_t i = 0; i < m->param_count; i++) {
        PL_TRY(find_array(&e, f, path, &m->params[i]));
        if (m->params[i].rows * m->params[i].cols > most) most = m->params[i].rows * m->params[i].cols;
    }
    for (int64_t i = 0; i < pl_safetensors_count(f); i++)
        PL_NEED(is_param(m, pl_safetensors_view(f, i)->name), POLAR_E_FORMAT,
                "'%s' has a '%s', which is not in this model (%lld blocks)", path,
                pl_safetensors_view(f, i)->name, (long long)m->shape.depth);
    double *w = pl_alloc((size_t)most * sizeof *w);
    PL_NEED(w, POLAR_E_NOMEM, "%lld numbers of a weight", (long long)most);
    polar_status st = POLAR_OK;
    for (int64_t i = 0; st == POLAR_OK && i < m->param_count; i++) {
        pl_mat one = pl_mat_at(m->params[i].W, member, 1);
        st = find_array(&e, f, path, &m->params[i]);
        for (int64_t k = 0; st == POLAR_OK && k < one.rows * one.cols; k++)
            w[k] = pl_load_f64(e->data, (polar_dtype)e->dtype, k);
        if (st == POLAR_OK) st = pl_mat_upload_f64(q, &one, w);
    }
    pl_free(w);
    return st == POLAR_OK ? polar_queue_sync(q) : st;
}

polar_status pl_deit_load(pl_deit *m, polar_queue *q, int64_t member, const char *path)
{
    pl_safetensors *f;
    PL_TRY(check_member(m, member));
    PL_TRY(pl_safetensors_open(&f, path));
    polar_status st = load(m, q, member, f, path);
    pl_safetensors_close(f);
    return st;
}
