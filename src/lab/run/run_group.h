/* run_group.h -- inside a job: one ensemble of claimed runs, shared by run_group.c and run_leave.c. */
#ifndef PL_LAB_RUN_GROUP_H
#define PL_LAB_RUN_GROUP_H

#include "lab/run/runner_impl.h"

typedef struct pl_member {
    const pl_plan_run *run;
    pl_epoch_row *epochs; /* since the last time they were put */
    pl_gauge_row *gauges;
    int64_t epoch_count, epoch_room, gauge_count, gauge_room;
    int64_t made; /* epochs in all */
    double wall;
    double part; /* seconds of the epoch under way */
} pl_member;

typedef struct pl_group {
    pl_job *job;
    const pl_testbed *tb;
    pl_train *t;
    int64_t n;
    pl_member *m;
    const pl_config **configs;
    uint64_t *seeds;
    pl_epoch_row *rows;
    int64_t *made;
    int *active, *was_active;
    char *path; /* of the checkpoint */
    double saved_at, save_took, begin_took;
    double idle;          /* seconds spent on members that had ended, since the ensemble was begun */
    int within;           /* an epoch, of which a part is done */
    double counted_since; /* its speed is measured since then, */
    int64_t counted_from; /* when so much was done; -1: not known yet */
    const char *begins;   /* what was counted last before the first epoch */
    int left;             /* told to leave before it had begun */
} pl_group;

typedef struct pl_outcome { /* of a member that has ended */
    pl_result results[PL_MAX_RESULTS];
    int count;
    pl_run_state state;
} pl_outcome;

/* ---- run_group.c ---- */
/* g->path, by the members */
polar_status pl_group_name(pl_group *g);
/* g->t before its first epoch */
polar_status pl_group_begin(pl_group *g);
int64_t pl_group_active(const pl_group *g); /* members that go on */
polar_status pl_group_save(pl_group *g);    /* epochs to the store, then the checkpoint */
polar_status pl_group_take_outcome(pl_outcome *out, pl_group *g, int64_t i);
/* to the store; its checkpoints go */
polar_status pl_group_put_outcome(pl_group *g, const pl_member *m, const pl_outcome *o);

/* ---- run_leave.c ---- */
/* whether those that have ended shall leave now */
int pl_group_leaving_pays(const pl_group *g);
/* those left go on in a smaller ensemble, the others are finished */
polar_status pl_group_leave(pl_group *g);

#endif
