/* report_metric.c -- see report_metric.h. */
#include "report/report_metric.h"

#include <string.h>

static const struct {
    const char *name;
    pl_metric m;
} metrics[] = {
    {"test_mse", {"test_mse", -1, 0}},
    {"trace_mse", {"trace_mse", -1, 0}},
    {"trace_anisotropy_mse", {"trace_anisotropy_mse", -1, 0}},
    {"wall", {"seconds", -1, 0}},
    {"l10", {"L10, %", 1, 1}},
    {"top1", {"test top-1, %", 1, 1}},
    {"best_top1", {"best test top-1, %", 1, 1}},
};

static const struct {
    const char *testbed;
    pl_curve_kind k;
} kinds[] = {
    {"so3",
     {"Validation error during training", "Validation error", "validation MSE",
      "so3_timing gives every arm the same work", 0, 0, 0}},
    {"deit",
     {"Test accuracy during training", "Test accuracy", "test top-1, %",
      "the table of seconds per epoch compares the same work", 1, 1, 1}},
};

pl_metric pl_metric_of(const char *name)
{
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (!strcmp(metrics[i].name, name)) return metrics[i].m;
    return (pl_metric){name, 0, 0};
}

const char *pl_metric_better(const char *name)
{
    int better = pl_metric_of(name).better;
    return better > 0 ? "higher" : better < 0 ? "lower" : "";
}

pl_curve_kind pl_curve_kind_of(const char *testbed)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].testbed, testbed)) return kinds[i].k;
    return kinds[0].k;
}
