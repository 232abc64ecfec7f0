/* paper_covariance.c -- Delta over 50 triples (G, P, Q), as the paper prints it. Its labels "tall" and "wide"
 * are kept though swapped. */
#include "verify/paper_covariance.h"

#include <stddef.h>

static const pl_paper_covariance rows[PL_PAPER_COVARIANCE_ROWS] = {
    /*                               n    m    polar   NS fp64 NS bf16 rho_0 and its sd */
    {"W_00 / W_11 layer 0", 8, 1, 4.0e-08, 4.0e-08, 3.2e-02, 0.78, 0.18},
    {"W_00 / W_11 layer k", 8, 8, 1.7e-07, 2.3e-07, 5.4e-02, 0.86, 0.06},
    {"cg_proj", 8, 44, 1.4e-07, 1.8e-07, 4.6e-02, 0.85, 0.03},
    {"DeiT-Tiny attn.qkv", 192, 192, 4.1e-07, 5.2e-07, 3.5e-02, 0.85, 0.00},
    {"DeiT-Tiny mlp.fc1", 768, 192, 3.2e-07, 5.2e-07, 3.7e-02, 0.85, 0.00},
    {"tiny square", 4, 4, 1.4e-07, 1.9e-07, 5.2e-02, 0.79, 0.13},
    {"small square", 16, 16, 2.1e-07, 2.5e-07, 4.5e-02, 0.85, 0.03},
    {"medium square", 32, 32, 2.6e-07, 3.1e-07, 4.3e-02, 0.85, 0.02},
    {"medium-large square", 128, 128, 3.7e-07, 4.5e-07, 3.6e-02, 0.85, 0.00},
    {"tall non-square", 4, 16, 1.1e-07, 1.7e-07, 5.3e-02, 0.85, 0.07},
    {"wide non-square", 16, 4, 1.1e-07, 1.7e-07, 5.0e-02, 0.84, 0.07},
    {"tall non-square", 8, 32, 1.4e-07, 2.0e-07, 4.7e-02, 0.85, 0.03},
    {"wide non-square", 32, 8, 1.5e-07, 2.2e-07, 4.8e-02, 0.86, 0.03},
    {"DeiT-Tiny mlp.fc2", 192, 768, 3.2e-07, 5.2e-07, 3.7e-02, 0.85, 0.00},
    {"large square", 768, 768, 5.4e-07, 5.9e-07, 3.1e-02, 0.85, 0.00},
};

const pl_paper_covariance *pl_paper_covariance_row(int i)
{
    return i >= 0 && i < PL_PAPER_COVARIANCE_ROWS ? &rows[i] : NULL;
}

const pl_paper_covariance *pl_paper_covariance_find(int64_t n, int64_t m)
{
    for (int i = 0; i < PL_PAPER_COVARIANCE_ROWS; i++)
        if (rows[i].n == n && rows[i].m == m) return &rows[i];
    return NULL;
}
