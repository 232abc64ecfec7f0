/* bench_list.h -- lists of parameters that optimiser steps are timed on, by name. */
#ifndef PL_LAB_BENCH_LIST_H
#define PL_LAB_BENCH_LIST_H

#include "polar/tensor.h"

#define PL_BENCH_LIST_MAX 256 /* parameters of a list */

typedef struct pl_bench_list {
    int n;
    int64_t weights; /* of all members */
    int64_t members;
    char names[PL_BENCH_LIST_MAX][48]; /* "blocks.*" are those of the matrix route */
    /* f32, packed, data not set; with members > 1 these come first */
    polar_tensor shape[PL_BENCH_LIST_MAX];
} pl_bench_list;

/* an unknown name is an error that lists them */
polar_status pl_bench_list_make(pl_bench_list *out, const char *name);
const char *pl_bench_list_name(int i);    /* NULL past the end */
const char *pl_bench_list_summary(int i); /* one line for people */

#endif
