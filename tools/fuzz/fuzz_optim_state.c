/* fuzz_optim_state.c -- any bytes as an optimiser's state: what is taken is saved to the same bytes after it
 * was saved and loaded again, with the tensors of the file; what is refused changes nothing. */
#include "fuzz_tensors.h"

#include "base/alloc.h"
#include "fixtures/optim_fixture.h"
#include "optim/optim_impl.h"

enum { RIGS = 3 };

static optim_rig rigs[RIGS];
static char bases[RIGS][512]; /* their states at the beginning */

static const param_spec
    plain[] = {{.name = "qkv", .ndim = 2, .shape = {6, 2}, .row_blocks = 3},
               {.name = "w", .ndim = 2, .shape = {2, 3}, .schur_group = 1, .schur_dim = 2},
               {.name = "b", .ndim = 1, .shape = {3}}},
    members[] = {{.name = "w", .ndim = 3, .shape = {2, 2, 3}}, {.name = "b", .ndim = 2, .shape = {2, 2}}};

static void open_rig(int i, const char *rule, const param_spec *specs, int n, polar_dtype weights)
{
    polar_optim_opts o;
    char name[16];
    need(polar_optim_opts_parse(&o, rule) == POLAR_OK);
    o.members = specs == members ? 2 : 1;
    if (i == 1) o.skip_nonfinite = POLAR_SKIP_NONFINITE;
    need(rig_open(&rigs[i], "ref", specs, n, weights, POLAR_DTYPE_F32, &o) == POLAR_OK);
    need(rig_step(&rigs[i], 0) == POLAR_OK);
    snprintf(name, sizeof name, "base%d", i);
    snprintf(bases[i], sizeof bases[i], "%s", fuzz_path(name));
    need(polar_optim_save(rigs[i].opt, rigs[i].q, bases[i]) == POLAR_OK);
    size_t size;
    uint8_t *bytes = fuzz_read(bases[i], &size);
    fuzz_seed(name, bytes, size);
    free(bytes);
}

void fuzz_begin(void)
{
    open_rig(0, "polaradamw", plain, 3, POLAR_DTYPE_F32);
    open_rig(1, "soap_muon", plain, 1, POLAR_DTYPE_BF16);
    open_rig(2, "normuon", members, 2, POLAR_DTYPE_F32);
}

/* The file's tensors are those of the saved state. */
static void compare_tensors(const char *path, const uint8_t *saved, size_t size)
{
    pl_safetensors *a, *b;
    need(pl_safetensors_open(&a, path) == POLAR_OK);
    need(pl_safetensors_open_bytes(&b, saved, (int64_t)size, "saved") == POLAR_OK);
    for (int64_t i = 0; i < pl_safetensors_count(a); i++) {
        const pl_safetensors_entry *x = pl_safetensors_view(a, i), *y = pl_safetensors_find(b, x->name);
        need(y && x->bytes == y->bytes && !memcmp(x->data, y->data, (size_t)x->bytes));
    }
    pl_safetensors_close(a);
    pl_safetensors_close(b);
}

static void try_rig(optim_rig *r, const char *base, const char *path, unsigned what)
{
    const char *first = fuzz_path("first"), *second = fuzz_path("second");
    uint64_t before = pl_checksum_of(r->opt->state, r->opt->state_bytes);
    size_t n, m;
    polar_status st = polar_optim_load_with(r->opt, r->q, path, what);
    need(st == POLAR_OK || (st == POLAR_E_FORMAT && strstr(polar_error_message(), path)));
    if (st != POLAR_OK) {
        need(pl_checksum_of(r->opt->state, r->opt->state_bytes) == before);
        return;
    }
    need(polar_optim_save(r->opt, r->q, first) == POLAR_OK);
    need(polar_optim_load_with(r->opt, r->q, first, POLAR_LOAD_SETTINGS) == POLAR_OK);
    need(polar_optim_save(r->opt, r->q, second) == POLAR_OK);
    uint8_t *x = fuzz_read(first, &n), *y = fuzz_read(second, &m);
    need(n == m && !memcmp(x, y, n));
    compare_tensors(path, x, n);
    free(x);
    free(y);
    need(rig_step(r, 1) == POLAR_OK); /* whatever the numbers are */
    need(polar_optim_load_with(r->opt, r->q, base, POLAR_LOAD_SETTINGS) == POLAR_OK);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(0, data, size);
    for (int i = 0; i < RIGS; i++) try_rig(&rigs[i], bases[i], path, size % 4);
}
