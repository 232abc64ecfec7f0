/* gauge_shadow.c -- one optimiser without a map over (1 + K, n, m) blocks: member 0 is the twin, members 1 ..
 * K the shadows.
 *
 * At lr 1 and decay 1 a step writes W = 0 W - D, so that W is the direction before the map, D, with the sign
 * of an update; maps are odd, the sign cancels. Rotations, products and norms are those of conjugate.h. ctest
 * -R test_gauge_shadow
 */
#include "verify/gauge_shadow.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "verify/conjugate.h"

#define NAME_BYTES 24

typedef struct shadow_block {
    char *name;
    pl_mat source;  /* the model's gradient */
    pl_mat g, W, F; /* (1 + K, n, m): gradients, directions, mapped directions */
    pl_mat norms;   /* (2 K, 1, 2), see pl_conj_measure */
    pl_conj c;      /* K triples: P, Q, T, D its own; G, R, F, H views of g and F */
} shadow_block;

struct pl_gauge_shadow {
    pl_device *dev;
    int64_t count, shadows, map_count;
    shadow_block *blocks;
    polar_map_opts map[PL_GAUGE_MAX_MAPS];
    char map_name[PL_GAUGE_MAX_MAPS][NAME_BYTES];
    polar_optim *opt;
    pl_graph *graph;        /* the rotations of a step */
    polar_tensor *in, *out; /* W and F of every block, as polar_map_apply wants them */
    double *pairs;          /* norms of all blocks, downloaded */
};

int pl_gauge_step_wanted(int64_t step, int64_t every)
{
    if (every > 0) return step == 1 || step % every == 0;
    while (step >= 10 && step % 10 == 0) step /= 10;
    return step == 1 || step == 2 || step == 5;
}

int64_t pl_gauge_shadow_maps(const pl_gauge_shadow *s)
{
    return s->map_count;
}

const char *pl_gauge_shadow_map(const pl_gauge_shadow *s, int64_t map)
{
    return s->map_name[map];
}

const char *pl_gauge_shadow_block(const pl_gauge_shadow *s, int64_t block)
{
    return s->blocks[block].name;
}

polar_optim *pl_gauge_shadow_optim(pl_gauge_shadow *s)
{
    return s->opt;
}

/* ---- making ------------------------------------------------------------------------------------- */

static polar_status read_maps(pl_gauge_shadow *s, const pl_gauge_opts *o)
{
    const char *p = o->rule.map.kind == POLAR_MAP_NONE ? "none" : o->maps;
    for (size_t n; *p; p += n + (p[n] == ',')) {
        n = strcspn(p, ",");
        PL_NEED(s->map_count < PL_GAUGE_MAX_MAPS, POLAR_E_ARG, "more than %d maps to shadow in '%s'",
                PL_GAUGE_MAX_MAPS, o->maps);
        char *name = s->map_name[s->map_count];
        PL_NEED(n > 0 && n < NAME_BYTES, POLAR_E_ARG, "'%s' is no list of polar maps by commas", o->maps);
        memcpy(name, p, n);
        for (int64_t i = 0; i < s->map_count; i++)
            PL_NEED(strcmp(s->map_name[i], name), POLAR_E_ARG, "the map '%s' stands twice in '%s'", name,
                    o->maps);
        polar_map_opts *map = &s->map[s->map_count++];
        PL_TRY(polar_map_opts_parse(map, name));
        if (map->kind == o->rule.map.kind) map->power = o->rule.map.power;
        if (o->rule.map.kind != POLAR_MAP_NEWTON_SCHULZ) continue;
        map->steps = o->rule.map.steps;
        map->table = o->rule.map.table;
    }
    PL_NEED(s->map_count, POLAR_E_ARG, "no polar map to shadow was named");
    return POLAR_OK;
}

/* One matrix seen K times. */
static pl_mat repeated(pl_mat m, int64_t times)
{
    m.batch = times;
    m.bs = 0;
    return m;
}

static polar_status block_create(shadow_block *b, pl_device *dev, const pl_gauge_block *from, int64_t shadows,
                                 polar_dtype dtype)
{
    int64_t n = from->G.rows, m = from->G.cols, all = 1 + shadows;
    PL_NEED(from->G.batch == 1 && n >= 1 && m >= 1, POLAR_E_SHAPE, "'%s': a shadow follows one matrix",
            from->name);
    PL_NEED(n <= PL_HAAR_MAX_SIDE && m <= PL_HAAR_MAX_SIDE, POLAR_E_UNSUPPORTED,
            "'%s' is %lldx%lld: a shadow rotates sides of at most %d (gauge.blocks leaves blocks out)",
            from->name, (long long)n, (long long)m, PL_HAAR_MAX_SIDE);
    b->source = from->G;
    b->c = (pl_conj){.batch = shadows, .n = n, .m = m};
    b->name = pl_strdup(from->name);
    PL_NEED(b->name, POLAR_E_NOMEM, "the name of a block");
    PL_TRY(pl_mat_alloc(&b->g, dev, dtype, all, n, m));
    PL_TRY(pl_mat_alloc(&b->W, dev, dtype, all, n, m));
    PL_TRY(pl_mat_alloc(&b->F, dev, dtype, all, n, m));
    PL_TRY(pl_mat_alloc(&b->norms, dev, POLAR_DTYPE_F64, 2 * shadows, 1, 2));
    PL_TRY(pl_mat_alloc(&b->c.P, dev, dtype, shadows, n, n));
    PL_TRY(pl_mat_alloc(&b->c.Q, dev, dtype, shadows, m, m));
    PL_TRY(pl_mat_alloc(&b->c.T, dev, dtype, shadows, n, m));
    PL_TRY(pl_mat_alloc(&b->c.D, dev, dtype, shadows, n, m));
    b->c.G = repeated(b->g, shadows);
    b->c.F = repeated(b->F, shadows);
    b->c.R = pl_mat_at(b->g, 1, shadows);
    b->c.H = pl_mat_at(b->F, 1, shadows);
    return POLAR_OK;
}

static void block_destroy(shadow_block *b, pl_device *dev)
{
    pl_mat *all[] = {&b->g, &b->W, &b->F, &b->norms, &b->c.P, &b->c.Q, &b->c.T, &b->c.D};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], dev);
    pl_free(b->name);
}

/* Side x side rotations, one per shadow; host memory has one at a time (0.6 GB of side 8384). */
static polar_status draw_rotations(pl_queue *q, const pl_mat *m, const pl_draw *draw, int64_t block,
                                   const pl_gauge_opts *o)
{
    double *x = pl_alloc((size_t)(m->rows * m->cols) * sizeof *x);
    PL_NEED(x, POLAR_E_NOMEM, "a rotation of side %lld", (long long)m->rows);
    polar_status st = POLAR_OK;
    for (int64_t k = 0; k < m->batch && st == POLAR_OK; k++) {
        pl_draw d = *draw;
        d.sample = block << 8 | k;
        pl_mat one = pl_mat_at(*m, k, 1);
        st = pl_haar_draw(x, m->rows, &d);
        if (st == POLAR_OK) st = pl_mat_upload_f64(q, &one, x);
        if (st == POLAR_OK && o->drawn && o->drawn(o->drawn_arg))
            st = PL_FAIL(POLAR_E_STATE, "stopped while shadows' rotations were drawn");
    }
    pl_free(x);
    return st;
}

/* The first step multiplies W by 0: it must be a number. */
static polar_status clear(pl_queue *q, const pl_mat *W)
{
    void *zeros = pl_calloc(1, pl_mat_bytes(W));
    PL_NEED(zeros, POLAR_E_NOMEM, "%zu bytes of zeros", pl_mat_bytes(W));
    polar_queue_upload(q, W->data, zeros, pl_mat_bytes(W));
    pl_free(zeros);
    return POLAR_OK;
}

static polar_status fill(pl_gauge_shadow *s, pl_queue *q, const pl_gauge_block *blocks,
                         const pl_gauge_opts *o)
{
    polar_optim_opts opts = POLAR_OPTIM_OPTS_INIT;
    opts.rule = o->rule;
    opts.rule.map.kind = POLAR_MAP_NONE;
    opts.lr = opts.weight_decay = 1;
    opts.members = 1 + s->shadows;
    PL_TRY(read_maps(s, o));
    s->blocks = pl_calloc((size_t)s->count, sizeof *s->blocks);
    s->in = pl_calloc((size_t)s->count, sizeof *s->in);
    s->out = pl_calloc((size_t)s->count, sizeof *s->out);
    s->pairs = pl_calloc((size_t)s->count, (size_t)(4 * s->shadows) * sizeof *s->pairs);
    polar_param *params = pl_calloc((size_t)s->count, sizeof *params);
    polar_status st = s->blocks && s->in && s->out && s->pairs && params
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_NOMEM, "the shadows of %lld blocks", (long long)s->count);
    for (int64_t i = 0; i < s->count && st == POLAR_OK; i++) {
        shadow_block *b = &s->blocks[i];
        st = block_create(b, s->dev, &blocks[i], s->shadows, o->dtype);
        pl_draw draw = {.seed = o->seed, .kind = PL_DRAW_LEFT, .rows = b->c.n, .cols = b->c.m};
        if (st == POLAR_OK) st = draw_rotations(q, &b->c.P, &draw, i, o);
        draw.kind = PL_DRAW_RIGHT;
        if (st == POLAR_OK) st = draw_rotations(q, &b->c.Q, &draw, i, o);
        if (st == POLAR_OK) st = clear(q, &b->W);
        if (st != POLAR_OK) break;
        s->in[i] = pl_mat_tensor(&b->W);
        s->out[i] = pl_mat_tensor(&b->F);
        params[i] = (polar_param){
            .name = b->name, .weight = s->in[i], .grad = pl_mat_tensor(&b->g), .route = POLAR_ROUTE_MATRIX};
    }
    if (st == POLAR_OK) st = pl_graph_create(&s->graph, s->dev);
    if (st == POLAR_OK) st = polar_optim_create(&s->opt, s->dev, params, s->count, &opts);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    pl_free(params);
    return st;
}

polar_status pl_gauge_shadow_create(pl_gauge_shadow **out, polar_device *dev, polar_queue *q,
                                    const pl_gauge_block *blocks, int64_t count, const pl_gauge_opts *opts)
{
    *out = NULL;
    PL_NEED(count >= 1 && opts->shadows >= 1 && opts->shadows <= 64, POLAR_E_ARG,
            "%lld shadows of %lld blocks: 1 to 64 shadows and a block are wanted", (long long)opts->shadows,
            (long long)count);
    PL_NEED(opts->dtype == POLAR_DTYPE_F32 || opts->dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE,
            "shadows are followed in f32 or f64");
    pl_gauge_shadow *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "a gauge shadow");
    s->dev = dev;
    s->count = count;
    s->shadows = opts->shadows;
    polar_status st = fill(s, q, blocks, opts);
    if (st != POLAR_OK) {
        (void)polar_queue_sync(q); /* nothing may still use what is freed now */
        pl_gauge_shadow_destroy(s);
        return st;
    }
    *out = s;
    return POLAR_OK;
}

void pl_gauge_shadow_destroy(pl_gauge_shadow *s)
{
    if (!s) return;
    polar_optim_destroy(s->opt);
    pl_graph_destroy(s->graph);
    for (int64_t i = 0; s->blocks && i < s->count; i++) block_destroy(&s->blocks[i], s->dev);
    pl_free(s->blocks);
    pl_free(s->in);
    pl_free(s->out);
    pl_free(s->pairs);
    pl_free(s);
}

/* ---- following ---------------------------------------------------------------------------------- */

static void rotate_all(pl_queue *q, void *arg)
{
    const pl_gauge_shadow *s = arg;
    for (int64_t i = 0; i < s->count; i++) {
        const shadow_block *b = &s->blocks[i];
        PL_CALL(copy, q, .Y = pl_mat_at(b->g, 0, 1), .X = b->source);
        pl_conj_rotate(&b->c, q, b->c.R, b->c.G);
    }
}

polar_status pl_gauge_shadow_step(pl_gauge_shadow *s, polar_queue *q)
{
    PL_TRY(pl_graph_run(s->graph, q, rotate_all, s));
    return polar_optim_step(s->opt, q);
}

polar_status pl_gauge_shadow_measure(double *out, pl_gauge_shadow *s, polar_queue *q)
{
    for (int64_t k = 0; k < s->map_count; k++) {
        PL_TRY(polar_map_apply(q, s->out, s->in, s->count, &s->map[k]));
        for (int64_t i = 0; i < s->count; i++) {
            const shadow_block *b = &s->blocks[i];
            pl_conj_measure(&b->c, q, b->norms);
            polar_queue_download(q, s->pairs + i * 4 * s->shadows, b->norms.data, pl_mat_bytes(&b->norms));
        }
        PL_TRY(polar_queue_sync(q));
        for (int64_t i = 0; i < s->count; i++)
            for (int64_t j = 0; j < s->shadows; j++)
                out[(k * s->count + i) * s->shadows + j] =
                    pl_conj_delta(s->pairs + i * 4 * s->shadows, s->shadows, j);
    }
    return POLAR_OK;
}

/* ---- spectra ------------------------------------------------------------------------------------ */

int64_t pl_gauge_shadow_rank(const pl_gauge_shadow *s, int64_t block)
{
    const pl_conj *c = &s->blocks[block].c;
    return c->n < c->m ? c->n : c->m;
}

polar_status pl_gauge_shadow_values(double *out, pl_gauge_shadow *s, polar_queue *q, int64_t block,
                                    pl_gauge_spectrum of)
{
    const shadow_block *b = &s->blocks[block];
    pl_mat m = pl_mat_at(of == PL_GAUGE_GRADIENT ? b->g : b->W, 0, 1);
    int64_t n = m.rows * m.cols, rank = pl_gauge_shadow_rank(s, block), finite = 1;
    double *x = pl_alloc((size_t)n * sizeof *x);
    PL_NEED(x, POLAR_E_NOMEM, "a block of %lldx%lld", (long long)m.rows, (long long)m.cols);
    polar_status st = pl_mat_download_f64(q, &m, x);
    for (int64_t i = 0; i < n && st == POLAR_OK; i++) finite &= isfinite(x[i]) != 0;
    for (int64_t i = 0; i < rank; i++) out[i] = NAN;
    /* rows are LAPACK's columns: the transpose, which has the same values */
    if (st == POLAR_OK && finite) st = pl_lapack_svd(out, NULL, NULL, x, m.cols, m.rows);
    pl_free(x);
    return st;
}
