/* test.h -- a test line is a measurement with a reason (docs/STYLE.md, rule 11).
 *
 *     #include "test.h"
 *     int main(int argc, char **argv)
 *     {
 *         const char *device = test_begin(argc, argv);
 *         test_bound("gemm f32 64x64x64", err, tol, "8 eps sqrt(K)");    // err <= tol, prints the share
 *         test_exact("transpose", mismatches);                           // 0 wanted
 *         test_true("an unknown device is refused", st == POLAR_E_ARG, "%s", polar_error_message());
 *         return test_end();
 *     }
 */
#ifndef POLAR_TEST_H
#define POLAR_TEST_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "polar/device.h"
#include "polar/status.h"

static int test_passed, test_failed;
static const char *test_device = "none";

/* Of "cpu:isa=...": the instruction set that "cpu" takes by itself here. */
static inline int test_is_plain_cpu(const char *device)
{
    polar_device *dev;
    size_t n = strlen(device);
    if (strncmp(device, "cpu:isa=", 8) || polar_device_open(&dev, "cpu") != POLAR_OK) return 0;
    const char *name = polar_device_name(dev);
    int same = !strncmp(name, device, n) && name[n] == ',';
    polar_device_close(dev);
    return same;
}

/* POLAR_TEST_ONCE, which the list of tests sets: what `cpu` runs is not run again under its other name. */
static inline const char *test_begin(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) test_device = argv[1];
    if (getenv("POLAR_TEST_ONCE") && test_is_plain_cpu(test_device)) {
        printf("%s is cpu here: left out\n", test_device);
        exit(77);
    }
    return test_device;
}

/* The second argument "few": each kernel, but fewer calls and no large shapes, for slow checkers. */
static inline int test_few(int argc, char **argv)
{
    return argc > 2 && !strcmp(argv[2], "few");
}

#ifdef GOLDEN_DIR
/* Where a golden file lies: beside the sources, or in POLAR_GOLDEN_DIR where the tests were carried to
 * another machine. */
static inline const char *test_golden_path(const char *file)
{
    static char path[4096];
    const char *dir = getenv("POLAR_GOLDEN_DIR");
    snprintf(path, sizeof path, "%s/%s", dir && *dir ? dir : GOLDEN_DIR, file);
    return path;
}
#endif

static inline int test_count(int ok)
{
    if (ok) test_passed++;
    else test_failed++;
    return ok;
}

/* err <= tol; a NaN fails. */
static inline int test_bound(const char *what, double err, double tol, const char *why)
{
    int ok = test_count(err <= tol);
    printf("%-44s %-8s err %.2e  tol %.2e (%s)  %3.0f%%  %s\n", what, test_device, err, tol, why,
           tol > 0 ? 100 * err / tol : 0.0, ok ? "PASS" : "FAIL");
    return ok;
}

/* Equality demanded: `mismatches` counts the elements, bytes or lines that differ. */
static inline int test_exact(const char *what, int64_t mismatches)
{
    int ok = test_count(mismatches == 0);
    printf("%-44s %-8s mismatches %lld  %s\n", what, test_device, (long long)mismatches,
           ok ? "PASS" : "FAIL");
    return ok;
}

/* A part of a condition, named where it does not hold: test_true(what, PART(a == 1) && PART(b), ...). */
#define PART(...) test_part((__VA_ARGS__) ? 1 : 0, #__VA_ARGS__, __LINE__)

static inline int test_part(int ok, const char *text, int line)
{
    if (!ok) printf("line %d does not hold: %s\n", line, text);
    return ok;
}

static inline int test_true(const char *what, int cond, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int test_true(const char *what, int cond, const char *fmt, ...)
{
    int ok = test_count(cond);
    va_list ap;
    va_start(ap, fmt);
    printf("%-44s %-8s ", what, test_device);
    vprintf(fmt, ap);
    printf("  %s\n", ok ? "PASS" : "FAIL");
    va_end(ap);
    return ok;
}

/* A call that must work for the test to go on. */
#define TEST_TRY(call)                                                                                \
    do {                                                                                              \
        polar_status st_ = (call);                                                                    \
        if (st_ != POLAR_OK) {                                                                        \
            printf("%s:%d: %s failed: %s  FAIL\n", __FILE__, __LINE__, #call, polar_error_message()); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

static inline int test_end(void)
{
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed || !test_passed ? 1 : 0;
}

#endif
