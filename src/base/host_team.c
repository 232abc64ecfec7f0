/* host_team.c -- finds an OpenMP runtime among the objects that the process has loaded; loads none.
 *
 * Invariants:
 *  1. `found` is written once, under the lock, before it is handed out, and never changes again. A search
 *     that finds nothing is made again by the next call: the program may load a runtime later.
 *  2. A forked child finds none: the runtime there still counts on threads that only the parent has, and
 *     would wait for them for ever. Forks are watched from the library's loading on, not from the first
 *     search: the parent may have used its team and never ours.
 */
#include "base/host_team.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

static pl_host_team found;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int forked;

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
    forked = 1;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Function pointers out of dlsym's void *, as POSIX wants it done. */
static int entries(void *object, pl_host_team *out)
{
    *(void **)&out->thread_num = dlsym(object, "omp_get_thread_num");
    *(void **)&out->parallel = dlsym(object, "GOMP_parallel");
    return out->thread_num && out->parallel;
}

/* Of one loaded object; 1 ends the search. */
static int look_at(struct dl_phdr_info *info, size_t size, void *out)
{
    static const char *const names[] = {"libgomp", "libiomp5", "libomp"};
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    int openmp = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        openmp |= !strncmp(name, names[i], strlen(names[i]));
    if (!openmp) return 0;
    void *object = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!object) return 0;
    if (entries(object, out)) return 1; /* held for good: regions may come until the process ends */
    dlclose(object);
    return 0;
}

const pl_host_team *pl_host_team_find(void)
{
    pl_host_team team;
    pthread_mutex_lock(&lock);
    if (!found.parallel && !forked && dl_iterate_phdr(look_at, &team)) found = team;
    int usable = found.parallel && !forked;
    pthread_mutex_unlock(&lock);
    return usable ? &found : NULL;
}
