/* optim_state.c -- the state in a safetensors file: NAME.m, NAME.v, NAME.master in their own format, everything else in the metadata.
 *
 * Numbers in the metadata are written as hexadecimal floating point, so a resumed run has the same bits.
 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "optim/optim_impl.h"

#define KINDS      3
#define RULE_BYTES 400
#define MOST_STEPS ((int64_t)1 << 53)

static const char *const kind_names[KINDS] = {"m", "v", "master"};

static pl_mat *state_of(pl_optim_param *p, int kind)
{
    return kind == 0 ? &p->M : kind == 1 ? &p->V : &p->master;
}

/* What must agree between a file and an optimiser for the numbers to mean the same. */
static void describe_rule(char text[RULE_BYTES], const polar_optim *opt)
{
    const polar_rule *r = &opt->o.rule;
    snprintf(text, RULE_BYTES, "momentum %d, precondition %d, beta1 %.17g, beta2 %.17g, eps %.17g, aux %.17g %.17g %.17g", (int)r->momentum, (int)r->precondition, r->beta1, r->beta2, r->eps,
             opt->o.aux_beta1, opt->o.aux_beta2, opt->o.aux_eps);
}

static char *describe_members(const polar_optim *opt)
{
    size_t size = (size_t)opt->members * 128 + 1, used = 0;
    char *text = pl_alloc(size);
    if (!text) return NULL;
    text[0] = 0;
    for (int64_t i = 0; i < opt->members; i++) {
        const pl_optim_member *m = &opt->member[i];
        used += (size_t)snprintf(text + used, size - used, "%s%a %a %a %a %d", i ? " " : "", m->lr, m->aux_lr, m->decay, m->aux_decay, m->active);
    }
    return text;
}

/* ---- save ------------------------------------------------------------------------------------------ */

typedef struct {
    pl_safetensors_entry *entries;
    char                 *names;     /* all names, one after the other */
    char                 *bytes;     /* the state, copied from the device */
    char                 *members;
} state_image;

static void image_free(state_image *im)
{
    pl_free(im->entries);
    pl_free(im->names);
    pl_free(im->bytes);
    pl_free(im->members);
}

static polar_status image_take(state_image *im, const polar_optim *opt)
{
    size_t names = 0;
    for (int64_t i = 0; i < opt->n; i++) names += KINDS * (strlen(opt->params[i].name) + 16);
    im->entries = pl_calloc((size_t)opt->n * KINDS, sizeof *im->entries);
    im->names = pl_alloc(names);
    im->bytes = pl_alloc(opt->state_bytes);
    im->members = describe_members(opt);
    PL_NEED(im->entries && im->names && im->bytes && im->members, POLAR_E_NOMEM, "a copy of %zu bytes of state", opt->state_bytes);
    return POLAR_OK;
}

static int64_t image_fill(state_image *im, polar_optim *opt)
{
    int64_t n = 0;
    char *name = im->names;
    for (int64_t i = 0; i < opt->n; i++)
        for (int k = 0; k < KINDS; k++) {
            const pl_mat *m = state_of(&opt->params[i], k);
            if (!m->data) continue;
            pl_safetensors_entry *e = &im->entries[n++];
            *e = (pl_safetensors_entry){.name = name, .dtype = (int)m->dtype, .ndim = 3, .shape = {m->batch, m->rows, m->cols}, .bytes = (int64_t)pl_mat_bytes(m)};
            e->data = im->bytes + ((char *)m->data - (char *)opt->state);
            name += sprintf(name, "%s.%s", opt->params[i].name, kind_names[k]) + 1;
        }
    return n;
}

static polar_status save(polar_optim *opt, pl_queue *q, const char *path)
{
    state_image im = {0};
    char rule[RULE_BYTES], step[32];
    polar_status st = image_take(&im, opt);
    if (st == POLAR_OK) {
        polar_queue_download(q, im.bytes, opt->state, opt->state_bytes);
        st = polar_queue_sync(q);
    }
    if (st == POLAR_OK) {
        describe_rule(rule, opt);
        snprintf(step, sizeof step, "%" PRId64, opt->t);
        pl_safetensors_meta meta[] = {{"polar.optim", "1"}, {"polar.rule", rule}, {"polar.step", step}, {"polar.members", im.members}};
        st = pl_safetensors_write(path, im.entries, image_fill(&im, opt), meta, (int64_t)(sizeof meta / sizeof *meta));
    }
    image_free(&im);
    return st;
}

/* ---- load ------------------------------------------------------------------------------------------ */

static polar_status check_meta(const pl_safetensors *f, const polar_optim *opt, const char *path, int64_t *step)
{
    char rule[RULE_BYTES], *end = NULL;
    const char *version = pl_safetensors_meta_find(f, "polar.optim"), *has = pl_safetensors_meta_find(f, "polar.rule"), *t = pl_safetensors_meta_find(f, "polar.step");
    PL_NEED(version && has && t, POLAR_E_FORMAT, "'%s' holds no optimiser state", path);
    PL_NEED(!strcmp(version, "1"), POLAR_E_FORMAT, "'%s' is optimiser state of version '%s', this library reads version 1", path, pl_text_shown(version).text);
    describe_rule(rule, opt);
    size_t same = 0, item = 0;
    for (; rule[same] && rule[same] == has[same]; same++)
        if (rule[same] == ' ' && same && rule[same - 1] == ',') item = same + 1;    /* the item in which they differ begins here */
    PL_NEED(rule[same] == has[same], POLAR_E_FORMAT, "'%s' is the state of another rule: '%s' there, '%s' here", path, pl_text_shown(has + item).text, pl_text_shown(rule + item).text);
    int digits = *t && !t[strspn(t, "0123456789")];
    *step = strtoll(t, &end, 10);
    PL_NEED(digits && *step <= MOST_STEPS, POLAR_E_FORMAT, "'%s': step '%s' is no count of steps", path, pl_text_shown(t).text);
    return POLAR_OK;
}

static polar_status read_members(pl_optim_member *out, const pl_safetensors *f, const polar_optim *opt, const char *path)
{
    const char *p = pl_safetensors_meta_find(f, "polar.members");
    PL_NEED(p, POLAR_E_FORMAT, "'%s' does not say how its members were set", path);
    for (int64_t i = 0; i < opt->members; i++) {
        double v[5];
        for (int k = 0; k < 5; k++) {
            char *end;
            v[k] = strtod(p, &end);
            PL_NEED(end != p && v[k] >= 0 && v[k] - v[k] == 0 && (k < 4 || v[k] == 0 || v[k] == 1), POLAR_E_FORMAT, "'%s': the settings of member %lld of %lld cannot be read", path, (long long)i, (long long)opt->members);
            p = end;
        }
        out[i] = (pl_optim_member){v[0], v[1], v[2], v[3], v[4] != 0};
    }
    PL_NEED(!p[strspn(p, " ")], POLAR_E_FORMAT, "'%s' has settings for more than %lld members", path, (long long)opt->members);
    return POLAR_OK;
}

static const pl_safetensors_entry *find_state(const pl_safetensors *f, const char *param, int kind, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s.%s", param, kind_names[kind]);
    return pl_safetensors_find(f, name);
}

/* Every piece of state has its tensor, of the same format and shape, and there are no others; *all is laid out like the device's state. */
static polar_status check_tensors(char *all, const pl_safetensors *f, polar_optim *opt, const char *path)
{
    int64_t found = 0;
    char name[PL_OPTIM_NAME_MAX + 16];
    for (int64_t i = 0; i < opt->n; i++)
        for (int k = 0; k < KINDS; k++) {
            const pl_mat *m = state_of(&opt->params[i], k);
            if (!m->data) continue;
            const pl_safetensors_entry *e = find_state(f, opt->params[i].name, k, name, sizeof name);
            PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s': it is the state of another model", path, name);
            PL_NEED(e->dtype == (int)m->dtype && e->ndim == 3 && e->shape[0] == m->batch && e->shape[1] == m->rows && e->shape[2] == m->cols, POLAR_E_FORMAT,
                    "'%s': '%s' has another shape or number format than here (%s %lldx%lldx%lld)", path, name, polar_dtype_name(m->dtype), (long long)m->batch, (long long)m->rows,
                    (long long)m->cols);
            memcpy(all + ((char *)m->data - (char *)opt->state), e->data, (size_t)e->bytes);
            found++;
        }
    PL_NEED(found == pl_safetensors_count(f), POLAR_E_FORMAT, "'%s' holds %lld tensors, this optimiser has %lld: it is the state of another model", path,
            (long long)pl_safetensors_count(f), (long long)found);
    return POLAR_OK;
}

static polar_status load(polar_optim *opt, pl_queue *q, const char *path)
{
    pl_safetensors *f;
    int64_t step = 0;
    PL_TRY(pl_safetensors_open(&f, path));
    char *all = pl_calloc(1, opt->state_bytes);
    pl_optim_member *members = pl_calloc((size_t)opt->members, sizeof *members);
    polar_status st = all && members ? check_meta(f, opt, path, &step) : PL_FAIL(POLAR_E_NOMEM, "a copy of %zu bytes of state", opt->state_bytes);
    if (st == POLAR_OK) st = read_members(members, f, opt, path);
    if (st == POLAR_OK) st = check_tensors(all, f, opt, path);
    if (st == POLAR_OK) {
        polar_queue_upload(q, opt->state, all, opt->state_bytes);
        st = polar_queue_sync(q);
    }
    if (st == POLAR_OK) {
        memcpy(opt->member, members, (size_t)opt->members * sizeof *members);
        opt->t = step;
    }
    pl_free(members);
    pl_free(all);
    pl_safetensors_close(f);
    return st;
}

/* ---- both ------------------------------------------------------------------------------------------ */

/* Numbers in the file have a decimal point, whatever the program's locale says. */
static polar_status in_c_locale(polar_status (*work)(polar_optim *, pl_queue *, const char *), polar_optim *opt, pl_queue *q, const char *path)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    PL_NEED(plain, POLAR_E_NOMEM, "the C locale, for the numbers of '%s'", path);
    locale_t before = uselocale(plain);
    polar_status st = work(opt, q, path);
    uselocale(before);
    freelocale(plain);
    return st;
}

polar_status polar_optim_save(polar_optim *opt, polar_queue *q, const char *path)
{
    return in_c_locale(save, opt, q, path);
}

polar_status polar_optim_load(polar_optim *opt, polar_queue *q, const char *path)
{
    return in_c_locale(load, opt, q, path);
}
