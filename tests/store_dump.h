/* store_dump.h -- what a store holds of a spec, as text without clocks and provenance: two of them are the same to the bit or they differ. */
#ifndef POLAR_STORE_DUMP_H
#define POLAR_STORE_DUMP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

/* Cells, arms, seeds, states, results, epochs and gauge rows, every bit of a number (%a). The caller frees it (free). */
static inline polar_status store_dump(char **out, const char *path, const char *spec)
{
    pl_store *s = NULL;
    pl_store_members m = {0};
    size_t bytes = 0;
    *out = NULL;
    PL_TRY(pl_store_open(&s, path, PL_STORE_READ));
    FILE *f = open_memstream(out, &bytes);
    polar_status st = f ? pl_store_select_members(&m, s, spec) : POLAR_E_NOMEM;
    for (int64_t i = 0; st == POLAR_OK && i < m.count; i++) {
        const pl_store_member *r = &m.rows[i];
        pl_store_epochs e = {0};
        pl_store_gauges g = {0};
        fprintf(f, "%s | %s | %lld | %s | %s\n", r->cell, r->arm, (long long)r->seed, r->id, pl_run_state_name(r->state));
        for (int64_t k = 0; k < r->result_count; k++) fprintf(f, "  %s %a\n", r->results[k].name, r->results[k].value);
        st = pl_store_select_epochs(&e, s, r->id);
        if (st == POLAR_OK) st = pl_store_select_gauges(&g, s, r->id);
        for (int64_t k = 0; k < e.count; k++)
            fprintf(f, "  %lld %a %a %a %d\n", (long long)e.rows[k].epoch, e.rows[k].train_loss, e.rows[k].valid, e.rows[k].lr, e.rows[k].improved);
        for (int64_t k = 0; k < g.count; k++)
            fprintf(f, "  %lld %s %lld %s %a\n", (long long)g.rows[k].step, g.rows[k].block, (long long)g.rows[k].shadow, g.rows[k].map, g.rows[k].deviation);
        pl_store_epochs_free(&e);
        pl_store_gauges_free(&g);
    }
    pl_store_members_free(&m);
    pl_store_close(s);
    if (f) fclose(f);
    if (st != POLAR_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

#endif
