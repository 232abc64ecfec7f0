/* optim_state.c -- the state in a safetensors file: NAME.m, NAME.v, NAME.master, NAME.post and those of
 * Kronecker factors in their own format, NAME.step where parameters count their own steps, everything else in
 * the metadata. Of a parameter with blocks NAME.m, NAME.v and NAME.master are laid out as the parameter is,
 * and each part has its own NAME[k].post, k its first block.
 *
 * A file of its own (polar_optim_save) is an image without a prefix; a trainer's checkpoint holds one image
 * or more beside its weights. Numbers in the metadata are written as hexadecimal floating point, so a resumed
 * run has the same bits. polar.members are the settings of group 0, polar.groups those of all groups; files
 * from before there were groups have the first alone. Files of version 1, from before there was a checksum,
 * are read as they are.
 */
#include <assert.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/sha256.h"
#include "compose/map.h"
#include "optim/optim_state.h"
#include "optim/shard.h"

#define VIEW_BYTES 100 /* of one parameter, its name not counted */
#define MOST_STEPS ((int64_t)1 << 53)
#define VERSION    "2" /* of the files we write: "1" and a checksum over the whole file */

/* of a parameter; of each of its parts */
static const char *const param_kinds[] = {"m", "v", "master", "step"}, *const part_kinds[] = {
                                                                           "post",         "left",
                                                                           "right",        "left_basis",
                                                                           "right_basis",  "left_factors",
                                                                           "right_factors"};

enum { PARAM_KINDS = sizeof param_kinds / sizeof *param_kinds, KIND_STEP = PARAM_KINDS - 1 };
enum { PART_KINDS = sizeof part_kinds / sizeof *part_kinds };
/* files from before the last three were written lack them */
enum { META_VERSION, META_RULE, META_STEP, META_MEMBERS, META_MAP, META_VIEWS, META_GROUPS };
static const char *const meta_keys[PL_OPTIM_META] = {
    "polar.optim", "polar.rule", "polar.step", "polar.members", "polar.map", "polar.views", "polar.groups"};

int pl_optim_state_item(pl_state_item *out, const polar_optim *opt, int64_t i, int64_t k)
{
    const pl_optim_param *p = &opt->params[i];
    if (k >= PARAM_KINDS + PART_KINDS * p->part_count) return 0;
    if (k < PARAM_KINDS) {
        const pl_mat *const state[PARAM_KINDS] = {&p->M, &p->V, &p->master, &p->T};
        *out = (pl_state_item){state[k], p->name, param_kinds[k], k < KIND_STEP, k == KIND_STEP};
        return 1;
    }
    const int64_t kind = (k - PARAM_KINDS) % PART_KINDS;
    const pl_optim_param *part = &opt->parts[p->first_part + (k - PARAM_KINDS) / PART_KINDS];
    const pl_mat *const state[PART_KINDS] = {&part->P,    &part->K[0], &part->K[1], &part->Q[0],
                                             &part->Q[1], &part->F[0], &part->F[1]};
    *out = (pl_state_item){state[kind], part->name, part_kinds[kind], 0, 0};
    return 1;
}

/* What tells one list of blocks from another, as a number. */
static int64_t digest_of(const pl_optim_param *p)
{
    char hex[PL_SHA256_HEX];
    pl_optim_blocks_digest(hex, p);
    hex[15] = 0;
    return (int64_t)strtoll(hex, NULL, 16);
}

/* How every parameter is seen: "route blocks group dim bytes:name;", the route m or a; or, of one with a list
 * of blocks, "b count group digest bytes:name;". */
static void describe_views(char *text, const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        size_t bytes = strlen(p->name);
        if (p->block_count) {
            text += snprintf(text, VIEW_BYTES + bytes, "b %" PRId64 " %" PRId64 " %" PRId64 " %zu:%s;",
                             p->block_count, p->schur_group, digest_of(p), bytes, p->name);
            continue;
        }
        text += snprintf(text, VIEW_BYTES + bytes, "%c %" PRId64 " %" PRId64 " %" PRId64 " %zu:%s;",
                         p->route == POLAR_ROUTE_MATRIX ? 'm' : 'a', p->row_blocks, p->schur_group,
                         p->schur_dim, bytes, p->name);
    }
}

/* the settings of one member, or one row of numbers, as text, and more than that */
#define MEMBER_BYTES 160
enum { MEMBER_NUMBERS = 5 }; /* of a member in polar.members */

static void describe_members(char *text, const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->members; i++) {
        const polar_hyper *m = pl_optim_hyper(opt, 0, 0, i), *a = pl_optim_hyper(opt, 0, 1, i);
        text += snprintf(text, MEMBER_BYTES, "%s%a %a %a %a %d", i ? " " : "", m->lr, a->lr, m->weight_decay,
                         a->weight_decay, opt->active[i]);
    }
}

static int64_t hyper_rows(const polar_optim *opt)
{
    return 2 * opt->groups * opt->members;
}

static void describe_groups(char *text, const polar_optim *opt)
{
    for (int64_t i = 0; i < hyper_rows(opt); i++) {
        const polar_hyper *h = &opt->hyper[i];
        text += snprintf(text, MEMBER_BYTES, "%s%a %a %a %a %a", i ? " " : "", h->lr, h->beta1, h->beta2,
                         h->eps, h->weight_decay);
    }
}

/* Numbers in the file have a decimal point, whatever the program's locale says. */
static polar_status plain_begin(locale_t *plain, locale_t *before)
{
    *plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    PL_NEED(*plain, POLAR_E_NOMEM, "the C locale, for the numbers of an optimiser's state");
    *before = uselocale(*plain);
    return POLAR_OK;
}

static void plain_end(locale_t plain, locale_t before)
{
    uselocale(before);
    freelocale(plain);
}

void pl_optim_image_free(pl_optim_image *im)
{
    if (!im) return;
    pl_free(im->entries);
    pl_free(im->text);
    pl_free(im->bytes);
    pl_free(im->hyper);
    pl_free(im->active);
    pl_free(im);
}

/* ---- save --------------------------------------------------------------------------------------- */

static polar_status image_create(pl_optim_image **out, const polar_optim *opt, const char *prefix)
{
    size_t text = PL_OPTIM_META * (strlen(prefix) + 32) +
                  (size_t)opt->groups * (PL_OPTIM_RULE_BYTES + PL_OPTIM_MAP_BYTES) + 32 +
                  (size_t)(opt->members + hyper_rows(opt)) * MEMBER_BYTES;
    size_t items = 0;
    for (int64_t i = 0; i < opt->n; i++) {
        pl_state_item it;
        text += VIEW_BYTES + strlen(opt->params[i].name);
        for (int64_t k = 0; pl_optim_state_item(&it, opt, i, k); k++, items++)
            text += strlen(prefix) + strlen(it.owner) + 24;
    }
    pl_optim_image *im = pl_calloc(1, sizeof *im);
    *out = im;
    PL_NEED(im, POLAR_E_NOMEM, "a copy of an optimiser's state");
    im->entries = pl_calloc(items, sizeof *im->entries);
    im->text = pl_calloc(1, text);
    im->bytes = pl_calloc(1, opt->state_bytes);
    im->hyper = pl_calloc((size_t)hyper_rows(opt), sizeof *im->hyper);
    im->active = pl_calloc((size_t)opt->members, sizeof *im->active);
    PL_NEED(im->entries && im->text && im->bytes && im->hyper && im->active, POLAR_E_NOMEM,
            "a copy of %zu bytes of state", opt->state_bytes);
    return POLAR_OK;
}

static char *describe_entries(pl_optim_image *im, polar_optim *opt, const char *prefix, char *text)
{
    pl_state_item it;
    for (int64_t i = 0; i < opt->n; i++)
        for (int64_t k = 0; pl_optim_state_item(&it, opt, i, k); k++) {
            const pl_mat *m = it.mat;
            if (!m->data) continue;
            pl_safetensors_entry *e = &im->entries[im->entry_count++];
            *e = (pl_safetensors_entry){.name = text,
                                        .dtype = (int)m->dtype,
                                        .ndim = 3,
                                        .shape = {m->batch, m->rows, m->cols},
                                        .bytes = (int64_t)pl_mat_bytes(m)};
            e->data = im->bytes + ((char *)m->data - (char *)opt->state);
            text += sprintf(text, "%s%s.%s", prefix, it.owner, it.kind) + 1;
        }
    return text;
}

static void describe_meta(pl_optim_image *im, const polar_optim *opt, const char *prefix, char *text)
{
    for (int i = 0; i < PL_OPTIM_META; i++) {
        im->meta[i].key = text;
        text += sprintf(text, "%s%s", prefix, meta_keys[i]) + 1;
        im->meta[i].value = text;
        if (i == META_VERSION) strcpy(text, VERSION);
        else if (i == META_RULE) pl_optim_describe_rule(text, opt);
        else if (i == META_STEP) sprintf(text, "%" PRId64, opt->t);
        else if (i == META_MEMBERS) describe_members(text, opt);
        else if (i == META_MAP) pl_optim_describe_map(text, opt);
        else if (i == META_VIEWS) describe_views(text, opt);
        else describe_groups(text, opt);
        text += strlen(text) + 1;
    }
}

/* The counts of all parameters, which lie in one piece. */
static double *counts_in(const pl_optim_image *im, const polar_optim *opt)
{
    return (double *)(im->bytes + ((char *)opt->params[0].T.data - (char *)opt->state));
}

polar_status pl_optim_image_take(pl_optim_image **out, polar_optim *opt, pl_queue *q, const char *prefix)
{
    locale_t plain, before = (locale_t)0;
    polar_status st = image_create(out, opt, prefix);
    if (st == POLAR_OK && opt->shard) st = pl_shard_state_gather(opt, q, (*out)->bytes);
    if (st == POLAR_OK && !opt->shard) {
        polar_queue_download(q, (*out)->bytes, opt->state, opt->state_bytes);
        st = polar_queue_sync(q);
    }
    if (st == POLAR_OK && opt->own_counts) pl_optim_step_count(opt, counts_in(*out, opt));
    if (st == POLAR_OK) st = plain_begin(&plain, &before);
    if (st == POLAR_OK) {
        describe_meta(*out, opt, prefix, describe_entries(*out, opt, prefix, (*out)->text));
        plain_end(plain, before);
        return POLAR_OK;
    }
    pl_optim_image_free(*out);
    *out = NULL;
    return st;
}

polar_status polar_optim_save(polar_optim *opt, polar_queue *q, const char *path)
{
    pl_optim_image *im;
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_NEED_ARG(path);
    PL_TRY(pl_optim_image_take(&im, opt, q, ""));
    int writes = !opt->shard || opt->shard->rank == 0;
    polar_status st =
        writes ? pl_safetensors_write(path, im->entries, im->entry_count, im->meta, PL_OPTIM_META) : POLAR_OK;
    pl_optim_image_free(im);
    return opt->shard ? pl_comm_agree(opt->shard->comm, st, "writing an optimiser's state") : st;
}

/* ---- load --------------------------------------------------------------------------------------- */

typedef struct source {
    const pl_safetensors *f;
    const char *path, *prefix;
    const pl_optim_pick *pick; /* or NULL: all of the file's members, in their order */
} source;

/* Members of the file, and which of them member i of the optimiser is. */
static int64_t there(const source *s, const polar_optim *opt)
{
    return s->pick ? s->pick->there : opt->members;
}
static int64_t from(const source *s, int64_t i)
{
    return s->pick ? s->pick->from[i] : i;
}

static const char *meta_of(const source *s, int key)
{
    char name[PL_OPTIM_PREFIX_MAX + 32];
    snprintf(name, sizeof name, "%s%s", s->prefix, meta_keys[key]);
    return pl_safetensors_meta_find(s->f, name);
}

typedef struct item {
    char text[80];
} item;

/* What stands from p to the next comma. */
static item item_at(const char *p)
{
    item it;
    snprintf(it.text, sizeof it.text, "%.*s", (int)strcspn(p, ","), p);
    return it;
}

/* Two descriptions agree, or the sentence has the first item, of those between commas, in which they do not.
 */
static polar_status check_items(const char *path, const char *what, const char *there, const char *here,
                                const char *hint)
{
    size_t same = 0, begin = 0;
    for (; here[same] && here[same] == there[same]; same++)
        if (here[same] == ' ' && same && here[same - 1] == ',') begin = same + 1;
    PL_NEED(here[same] == there[same], POLAR_E_FORMAT, "'%s' is the state of %s: '%s' there, '%s' here%s",
            path, what, pl_text_shown(item_at(there + begin).text).text,
            pl_text_shown(item_at(here + begin).text).text, hint);
    return POLAR_OK;
}

/* rule: room for a description of ours */
static polar_status check_meta(const source *s, const polar_optim *opt, char *rule, int64_t *step)
{
    char *end = NULL;
    const char *version = meta_of(s, META_VERSION), *has = meta_of(s, META_RULE), *t = meta_of(s, META_STEP),
               *path = s->path;
    PL_NEED(version && has && t, POLAR_E_FORMAT, "'%s' holds no optimiser state", path);
    int older = !strcmp(version, "1");
    PL_NEED(older || !strcmp(version, VERSION), POLAR_E_FORMAT,
            "'%s' is optimiser state of version '%s', this library reads 1 and " VERSION, path,
            pl_text_shown(version).text);
    PL_NEED(older || pl_safetensors_checked(s->f), POLAR_E_FORMAT,
            "'%s' is damaged, or another program wrote it: optimiser state of version " VERSION
            " has a checksum, this has none (take another copy of it)",
            path);
    pl_optim_describe_rule(rule, opt);
    PL_TRY(check_items(path, "another rule", has, rule, ""));
    int digits = *t && !t[strspn(t, "0123456789")];
    *step = strtoll(t, &end, 10);
    PL_NEED(digits && *step <= MOST_STEPS, POLAR_E_FORMAT, "'%s': step '%s' is no count of steps", path,
            pl_text_shown(t).text);
    return POLAR_OK;
}

/* The next of a row of numbers; 0: there is none that is finite and not negative. */
static int next_number(double *out, const char **text)
{
    char *end;
    *out = strtod(*text, &end);
    int good = end != *text && *out >= 0 && *out - *out == 0;
    *text = end;
    return good;
}

static polar_status read_members(pl_optim_image *im, const source *s, const polar_optim *opt)
{
    const char *p = meta_of(s, META_MEMBERS), *path = s->path;
    PL_NEED(p, POLAR_E_FORMAT, "'%s' does not say how its members were set", path);
    for (int64_t j = 0; j < there(s, opt); j++) {
        double v[MEMBER_NUMBERS];
        for (int k = 0; k < MEMBER_NUMBERS; k++)
            PL_NEED(next_number(&v[k], &p) && (k < 4 || v[k] == 0 || v[k] == 1), POLAR_E_FORMAT,
                    "'%s': the settings of member %lld of %lld cannot be read", path, (long long)j,
                    (long long)there(s, opt));
        for (int64_t i = 0; i < opt->members; i++) {
            if (from(s, i) != j) continue;
            polar_hyper *m = &im->hyper[i], *a = &im->hyper[opt->members + i]; /* group 0 */
            m->lr = v[0], a->lr = v[1], m->weight_decay = v[2], a->weight_decay = v[3];
            im->active[i] = v[4] != 0;
        }
    }
    PL_NEED(!p[strspn(p, " ")], POLAR_E_FORMAT, "'%s' has settings for more than %lld members", path,
            (long long)there(s, opt));
    return POLAR_OK;
}

/* The numbers of all groups; in a file from before there were any, those of group 0 stand in polar.members,
 * and the others stay as they are. */
static polar_status read_groups(pl_optim_image *im, const source *s, const polar_optim *opt)
{
    const char *p = meta_of(s, META_GROUPS), *path = s->path;
    if (!p) return POLAR_OK;
    int64_t n = there(s, opt);
    for (int64_t r = 0; r < 2 * opt->groups * n; r++) { /* by group and route, then member */
        double v[5];
        for (int k = 0; k < 5; k++)
            PL_NEED(next_number(&v[k], &p) && ((k != 1 && k != 2) || v[k] < 1), POLAR_E_FORMAT,
                    "'%s': the numbers of group %lld of %lld cannot be read", path, (long long)(r / n / 2),
                    (long long)opt->groups);
        for (int64_t i = 0; i < opt->members; i++)
            if (from(s, i) == r % n)
                im->hyper[r / n * opt->members + i] = (polar_hyper){v[0], v[1], v[2], v[3], v[4]};
    }
    PL_NEED(!p[strspn(p, " ")], POLAR_E_FORMAT, "'%s' has numbers for more than %lld groups", path,
            (long long)opt->groups);
    return POLAR_OK;
}

/* Counts as they come from a file are whole numbers; a file without them was written when all parameters had
 * made the same steps. */
static polar_status read_counts(pl_optim_image *im, const source *s, const polar_optim *opt, int64_t i,
                                const pl_safetensors_entry *e)
{
    double *t = counts_in(im, opt) + 2 * i * opt->members;
    for (int64_t k = 0; k < 2 * opt->members; k++) {
        if (!e) t[k] = k % 2 ? 0 : (double)im->step;
        PL_NEED(t[k] >= 0 && t[k] <= (double)MOST_STEPS && t[k] == (double)(int64_t)t[k], POLAR_E_FORMAT,
                "'%s': '%s.step' holds %g, which is no count of steps", s->path, opt->params[i].name, t[k]);
    }
    return POLAR_OK;
}

/* A tensor's members, each in one piece, that are the optimiser's; bytes: of all of these. */
static void take_members(char *to, const source *s, const polar_optim *opt, const pl_safetensors_entry *e,
                         size_t bytes)
{
    size_t each = bytes / (size_t)opt->members;
    for (int64_t i = 0; i < opt->members; i++)
        memcpy(to + (size_t)i * each, (const char *)e->data + (size_t)from(s, i) * each, each);
}

/* Every piece of state has its tensor, of the same format and shape, and, in a file of its own, there are no
 * others; im->bytes is laid out like the device's state. */
static polar_status check_tensors(pl_optim_image *im, const source *s, polar_optim *opt)
{
    int64_t found = 0;
    char name[PL_OPTIM_PREFIX_MAX + PL_OPTIM_NAME_MAX + 64];
    pl_state_item it;
    for (int64_t i = 0; i < opt->n; i++)
        for (int64_t k = 0; pl_optim_state_item(&it, opt, i, k); k++) {
            const pl_mat *m = it.mat;
            snprintf(name, sizeof name, "%s%s.%s", s->prefix, it.owner, it.kind);
            const pl_safetensors_entry *e = pl_safetensors_find(s->f, name);
            PL_NEED(!it.counts || m->data || !e, POLAR_E_FORMAT,
                    "'%s' counts the steps of every parameter ('%s'): an optimiser made with "
                    "opts.skip_missing or opts.skip_nonfinite reads it",
                    s->path, name);
            if (m->data && it.counts && !e) PL_TRY(read_counts(im, s, opt, i, NULL));
            if (!m->data || (it.counts && !e)) continue;
            PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s': it is the state of another model", s->path, name);
            int64_t batch = m->batch / opt->members * there(s, opt);
            PL_NEED(e->dtype == (int)m->dtype && e->ndim == 3 && e->shape[0] == batch &&
                        e->shape[1] == m->rows && e->shape[2] == m->cols,
                    POLAR_E_FORMAT,
                    "'%s': '%s' has another shape or number format than here (%s %lldx%lldx%lld)", s->path,
                    name, polar_dtype_name(m->dtype), (long long)batch, (long long)m->rows,
                    (long long)m->cols);
            take_members(im->bytes + ((char *)m->data - (char *)opt->state), s, opt, e, pl_mat_bytes(m));
            if (it.counts) PL_TRY(read_counts(im, s, opt, i, e));
            found++;
        }
    PL_NEED(*s->prefix || found == pl_safetensors_count(s->f), POLAR_E_FORMAT,
            "'%s' holds %lld tensors, this optimiser has %lld: it is the state of another model", s->path,
            (long long)pl_safetensors_count(s->f), (long long)found);
    return POLAR_OK;
}

typedef struct view {
    char route;
    int64_t blocks, group, dim;
    int64_t bytes; /* of the name */
    const char *name;
} view;

/* A whole number and the character behind it; the end of both, or NULL. sscanf would look to the end of the
 * text, which has an entry for every parameter. */
static const char *read_integer(int64_t *out, const char *p, char behind)
{
    char *end;
    if (!p || (*p != '-' && (*p < '0' || *p > '9'))) return NULL;
    *out = strtoll(p, &end, 10);
    return *end == behind ? end + 1 : NULL;
}

/* The entry at p; the end of it, or NULL where there is none. */
static const char *read_view(view *out, const char *p)
{
    out->route = *p;
    p = *p && p[1] == ' ' ? p + 2 : NULL;
    p = read_integer(&out->blocks, p, ' ');
    p = read_integer(&out->group, p, ' ');
    p = read_integer(&out->dim, p, ' ');
    p = read_integer(&out->bytes, p, ':');
    out->name = p;
    if (!p || out->bytes < 0 || out->bytes > PL_OPTIM_NAME_MAX) return NULL;
    return strnlen(p, (size_t)out->bytes) == (size_t)out->bytes && p[out->bytes] == ';' ? p + out->bytes + 1
                                                                                        : NULL;
}

/* Entries stand in the order of the saved optimiser's parameters, most often this one's: the search goes on
 * where it ended, once round. */
static const char *find_view(view *out, const char *views, const char *from, const char *name)
{
    const size_t bytes = strlen(name);
    for (int round = 0; round < 2; round++)
        for (const char *p = round ? views : from; p && *p;) {
            p = read_view(out, p);
            if (p && (size_t)out->bytes == bytes && !memcmp(out->name, name, bytes)) return p;
        }
    return NULL;
}

static polar_status check_views(const source *s, const polar_optim *opt)
{
    const char *views = meta_of(s, META_VIEWS), *at = views;
    for (int64_t i = 0; views && i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        view v;
        at = find_view(&v, views, at, p->name);
        PL_NEED(at, POLAR_E_FORMAT, "'%s' does not say how '%s' was seen", s->path, p->name);
        int matrix = p->route == POLAR_ROUTE_MATRIX;
#define HINT "(POLAR_LOAD_OTHER_MAP if that is meant)"
        PL_NEED((v.route == 'm' || v.route == 'b') == matrix, POLAR_E_FORMAT,
                "'%s': '%s' took the %s route there, it takes the %s route here " HINT, s->path, p->name,
                matrix ? "aux" : "matrix", matrix ? "matrix" : "aux");
        PL_NEED((v.route == 'b') == !!p->block_count &&
                    (!p->block_count ||
                     (v.blocks == p->block_count && v.group == p->schur_group && v.dim == digest_of(p))),
                POLAR_E_FORMAT, "'%s': '%s' was seen as %s there, it is seen as %s here " HINT, s->path,
                p->name, v.route == 'b' ? "blocks" : "a whole",
                !p->block_count  ? "a whole"
                : v.route == 'b' ? "others"
                                 : "blocks");
        if (p->block_count) continue;
        PL_NEED(v.blocks == p->row_blocks, POLAR_E_FORMAT,
                "'%s': '%s' had %" PRId64 " row blocks there, it has %" PRId64 " here " HINT, s->path,
                p->name, v.blocks, p->row_blocks);
        PL_NEED(v.group == p->schur_group && v.dim == p->schur_dim, POLAR_E_FORMAT,
                "'%s': '%s' had schur_group %" PRId64 " and schur_dim %" PRId64 " there, it has %" PRId64
                " and %" PRId64 " here " HINT,
                s->path, p->name, v.group, v.dim, p->schur_group, p->schur_dim);
    }
    return POLAR_OK;
}

static polar_status check_map(const source *s, const polar_optim *opt, char *here)
{
    const char *there = meta_of(s, META_MAP);
    pl_optim_describe_map(here, opt);
    if (there) PL_TRY(check_items(s->path, "another map", there, here, " " HINT));
    return check_views(s, opt);
}

int64_t pl_optim_image_members(const pl_safetensors *f, const char *prefix)
{
    const source s = {f, "", prefix, NULL};
    const char *p = meta_of(&s, META_MEMBERS);
    int64_t numbers = 0;
    for (; p && *p; p += strspn(p, " ")) {
        p += strcspn(p, " ");
        numbers++;
    }
    return numbers / MEMBER_NUMBERS;
}

polar_status pl_optim_image_read(pl_optim_image **out, polar_optim *opt, const pl_safetensors *f,
                                 const char *path, const char *prefix, const pl_optim_pick *pick,
                                 unsigned what)
{
    source s = {f, path, prefix, pick};
    locale_t plain, before = (locale_t)0;
    assert(strlen(prefix) <= PL_OPTIM_PREFIX_MAX);
    polar_status st = image_create(out, opt, prefix);
    if (st == POLAR_OK) st = check_meta(&s, opt, (*out)->text, &(*out)->step);
    if (st == POLAR_OK && !(what & POLAR_LOAD_OTHER_MAP)) st = check_map(&s, opt, (*out)->text);
    if (st == POLAR_OK) st = plain_begin(&plain, &before);
    if (st == POLAR_OK) {
        memcpy((*out)->hyper, opt->hyper, (size_t)hyper_rows(opt) * sizeof *opt->hyper);
        st = read_members(*out, &s, opt);
        if (st == POLAR_OK) st = read_groups(*out, &s, opt);
        plain_end(plain, before);
    }
    if (st == POLAR_OK) st = check_tensors(*out, &s, opt);
    if (st == POLAR_OK) return POLAR_OK;
    pl_optim_image_free(*out);
    *out = NULL;
    return st;
}

polar_status pl_optim_image_apply(const pl_optim_image *im, polar_optim *opt, pl_queue *q, unsigned what)
{
    if (opt->shard) PL_TRY(pl_shard_state_apply(opt, q, im->bytes, im->step));
    else polar_queue_upload(q, opt->state, im->bytes, opt->state_bytes);
    for (int64_t i = 0; i < opt->n && !opt->shard; i++)
        if (opt->params[i].master.data) PL_CALL(copy, q, .Y = opt->params[i].W, .X = opt->params[i].master);
    PL_TRY(polar_queue_sync(q));
    if (what & POLAR_LOAD_SETTINGS) {
        memcpy(opt->hyper, im->hyper, (size_t)hyper_rows(opt) * sizeof *im->hyper);
        memcpy(opt->active, im->active, (size_t)opt->members);
    }
    opt->t = im->step;
    opt->stepped = 0;
    if (opt->own_counts) pl_optim_step_count(opt, counts_in(im, opt));
    return POLAR_OK;
}

polar_status polar_optim_load_with(polar_optim *opt, polar_queue *q, const char *path, unsigned what)
{
    pl_safetensors *f;
    pl_optim_image *im;
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_NEED_ARG(path);
    PL_NEED(what <= (POLAR_LOAD_SETTINGS | POLAR_LOAD_OTHER_MAP), POLAR_E_ARG,
            "no polar_load %u: there are POLAR_LOAD_SETTINGS (1) and POLAR_LOAD_OTHER_MAP (2)", what);
    f = NULL;
    im = NULL;
    polar_status st = pl_safetensors_open(&f, path);
    if (st == POLAR_OK) st = pl_optim_image_read(&im, opt, f, path, "", NULL, what);
    pl_safetensors_close(f);
    if (opt->shard) st = pl_comm_agree(opt->shard->comm, st, "reading an optimiser's state");
    if (st == POLAR_OK) st = pl_optim_image_apply(im, opt, q, what);
    pl_optim_image_free(im);
    return st;
}
