/* test_cli_fault.c -- commands when memory runs out: the N-th allocation fails, N = 1, 2, ... until the
 * command succeeds. Each time: out of memory with a sentence, no block left over, no file half-written.
 */
#include "fixtures/folder.h"
#include "test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/safetensors.h"

#include "../../cli/cli.h"

static char folder[64];

static void test_faults(const char *what, FILE *null, int argc, char **argv)
{
    cli_context ctx = {.program = "polar", .out = null, .log = null};
    char *out = argv[1];
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0, written = 0;
    unlink(out);
    for (; st != POLAR_OK && n < 100000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = cli_cmd_map.run(&ctx, argc, argv);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
        written += st != POLAR_OK && access(out, F_OK) == 0;
    }
    /* the table is printed after the file stands: out of memory there is too late to undo it */
    int64_t allowed = strstr(what, "verbose") ? 1 : 0;
    int ok = st == POLAR_OK && n > 5 && !leaks && !wrong && written <= allowed && folder_files(folder) == 2;
    test_true(what, ok, "%lld allocations, %lld leaks, %lld other errors, %lld early files", (long long)n - 1,
              (long long)leaks, (long long)wrong, (long long)written);
}

int main(int argc, char **argv)
{
    char *device = (char *)test_begin(argc, argv);
    char in[80], out[80];
    float w[24];
    snprintf(folder, sizeof folder, "/tmp/polar_test_fault.XXXXXX");
    FILE *null = fopen("/dev/null", "w");
    if (!mkdtemp(folder) || !null) return 1;
    snprintf(in, sizeof in, "%s/in", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    for (int i = 0; i < 24; i++) w[i] = (float)(i % 7) - 2;
    const pl_safetensors_entry e[] = {
        {.name = "w", .dtype = POLAR_DTYPE_F32, .ndim = 2, .shape = {4, 6}, .data = w, .bytes = 96},
        {.name = "batch", .dtype = POLAR_DTYPE_F32, .ndim = 3, .shape = {2, 3, 4}, .data = w, .bytes = 96},
        {.name = "bias", .dtype = POLAR_DTYPE_F32, .ndim = 1, .shape = {6}, .data = w, .bytes = 24},
    };
    TEST_TRY(pl_safetensors_write(in, e, 3, NULL, 0));
    char *plain[] = {in, out, "--device", device}, *exact[] = {in, out, "--device", device, "--map", "exact"};
    char *verbose[] = {in, out, "--device", device, "--dtype", "f64", "--verbose"};
    test_faults("map", null, 4, plain);
    test_faults("map --map exact", null, 6, exact);
    test_faults("map --verbose", null, 7, verbose);
    unlink(in);
    unlink(out);
    rmdir(folder);
    fclose(null);
    return test_end();
}
