/* host_team.h -- the threads of the OpenMP runtime that the process already holds, to run regions on.
 *
 * A program that trains with torch has a team of OpenMP threads which, after each of its own regions, look
 * for work for milliseconds before they sleep. Threads of another pool then share every core with them. Given
 * the region instead, they have what they look for.
 */
#ifndef PL_BASE_HOST_TEAM_H
#define PL_BASE_HOST_TEAM_H

typedef struct {
    /* fn(data) on each of `threads` threads, the calling one as number 0; returns when all have */
    void (*parallel)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
    int (*thread_num)(void); /* of the calling thread in its team */
} pl_host_team;

/* The runtime loaded first (GNU's, or LLVM's or Intel's, which have the same entries); NULL: none is. It
 * stays loaded from here on. */
const pl_host_team *pl_host_team_find(void);

#endif
