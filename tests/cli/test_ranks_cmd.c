/* test_ranks_cmd.c -- `mpirun polar run SPEC`, from outside: ranks by the environment that launchers set,
 * each with its own database, joined by rank 0 into the store of one run; ranks that fail, are killed, never
 * start. With Open MPI itself where it is installed. */
#include "cli_fixture.h"

#include <signal.h>
#include <time.h>

#define RUN  "$P run $D/small.yaml --device ref --store $D/shared/r.db"
#define SAME "$P audit small --store $D/shared/r.db --format json | cmp - $D/one.json && echo same"

static void begin_anew(void)
{
    sh("rm -rf $D/shared $D/tmp; mkdir $D/shared $D/tmp");
}

/* Nothing but the joined store is left, neither beside it nor under TMPDIR. */
static void tidy(const char *what)
{
    sh("ls $D/shared; ls $D/tmp/polar-*; ls $D/tmp | wc -l");
    test_true(what, !strcmp(last.out, "r.db\n1\n"), "left: %s", last.out);
}

/* Ranks 0 to n - 1 as `env` says, with @ for the number, rank 0 in the foreground. */
static void launch(const char *env, int n, const char *options)
{
    char command[1024], one[400];
    size_t at = 0;
    for (const char *c = env; *c && at < sizeof one - 8; c++)
        at += (size_t)snprintf(one + at, sizeof one - at, *c == '@' ? "$k" : "%c", *c);
    one[at] = 0;
    snprintf(command, sizeof command,
             "k=%d; while [ $k -gt 0 ]; do %s " RUN " %s & k=$((k - 1)); done; %s " RUN
             " %s; code=$?; wait; exit $code",
             n - 1, one, options, one, options);
    sh(command);
}

#define OPEN_MPI "OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=a/b.1"
#define PMI      "PMI_RANK=@ PMI_SIZE=4"
#define SLURM    "SLURM_PROCID=@ SLURM_NTASKS=4 SLURM_JOB_ID=77 SLURM_STEP_ID=0"

static void joined(const char *what)
{
    int ok = last.code == 0 && strstr(last.out, "polaradamw") && strstr(last.err, "5 of 5 runs are done");
    test_true(what, ok, "exit %d: %s %s", last.code, first_line(last.out), first_line(last.err));
    accepted(SAME, "same");
    tidy("  nothing else is left");
}

static void test_launchers(void)
{
    static const char *const all[] = {OPEN_MPI, PMI, SLURM};
    for (int i = 0; i < 3; i++) {
        begin_anew();
        launch(all[i], 4, "");
        joined(all[i]);
    }
    launch(OPEN_MPI, 4, "");
    test_true("the same again makes nothing again",
              last.code == 0 && strstr(last.err, "5 of 5 runs are done\n"), "exit %d: %s", last.code,
              first_line(last.err));
    accepted(SAME, "same");
    begin_anew();
    accepted("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=77 " RUN " 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs"); /* a batch script itself */
    accepted("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 " RUN " --shard 1/1 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs");
    accepted("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 " RUN " 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs");
    refused("OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4 " RUN, 2, "says rank 4 of 4: they count from 0");
    begin_anew();
    refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1023 " RUN
            " --device cuda",
            3, "cuda:1023"); /* a GPU of its own, which no machine has */
    refused("SLURM_LOCALID=1022 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_ID=0 " RUN " --device cuda", 3,
            "cuda:1022");
    refused("MPI_LOCALRANKID=1021 PMI_RANK=1 PMI_SIZE=4 " RUN " --device cuda", 3, "cuda:1021");
    refused("LOCAL_RANK=1020 PMI_RANK=1 PMI_SIZE=4 " RUN " --device cuda", 3, "cuda:1020");
    refused("PMI_RANK=1 PMI_SIZE=4 " RUN " --device cuda", 2, "set LOCAL_RANK, or give --device cuda:N");
    refused("PMI_RANK=x PMI_SIZE=4 " RUN, 2, "PMI_RANK is 'x'");
    refused("PMI_RANK=0 PMI_SIZE=-3 " RUN, 2, "PMI_SIZE is '-3'");
}

static void test_mpirun(void)
{
    begin_anew();
    if (sh("mpirun --version") != 0) {
        printf("no mpirun here: Open MPI itself is not tried\n");
        return;
    }
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    sh("mpirun --oversubscribe -n 4 " RUN);
    joined("Open MPI's mpirun");
}

/* One that fails, one that never starts: what the others did is joined, and the next launch does the rest. */
static void test_missing(void)
{
    begin_anew();
    sh("export PMI_SIZE=3; PMI_RANK=2 " RUN " --device nonsense & PMI_RANK=1 " RUN " & PMI_RANK=0 " RUN
       "; code=$?; wait; "
       "exit $code");
    test_true("a rank that fails is named",
              last.code == 1 && strstr(last.err, "rank 2 of 3 has failed") && strstr(last.err, "nonsense"),
              "exit %d: %s", last.code, first_line(last.err));
    accepted("$P audit small --store $D/shared/r.db --format json | grep -c 'not run'", "");
    launch("PMI_RANK=@ PMI_SIZE=2", 2, "");
    test_true("another number of ranks goes on", last.code == 0 && strstr(last.err, "9 of 9 runs are done"),
              "exit %d: %s", last.code, first_line(last.err));
    accepted(SAME, "same");
    begin_anew();
    sh("export PMI_SIZE=3; PMI_RANK=1 " RUN " & PMI_RANK=0 " RUN " --rank-wait 1; code=$?; wait; exit $code");
    test_true("a rank that never starts is named",
              last.code == 1 && strstr(last.err, "rank 2 of 3 gives no sign of life"), "exit %d: %s",
              last.code, last.err);
    launch("PMI_RANK=@ PMI_SIZE=3", 3, "");
    test_true("  and the next launch does the rest", last.code == 0, "exit %d: %s", last.code,
              first_line(last.err));
    accepted(SAME, "same");
}

/* A state that an earlier launch of the same name left behind costs runs that the next one makes, never a
 * bit. */
static void test_stale(void)
{
    begin_anew();
    sh("echo 'launch= ended 0' >$D/shared/r.db.rank-1-of-2.state; PMI_SIZE=2 PMI_RANK=0 " RUN);
    test_true("a stale state", last.code == 0, "exit %d: %s", last.code, first_line(last.err));
    launch("PMI_RANK=@ PMI_SIZE=2", 2, "");
    accepted(SAME, "same");
    tidy("  nothing else is left");
}

/* Rank 1 of 2, killed after so many microseconds, 0: not. Whether it was before its end. */
static int one_rank(useconds_t after)
{
    int status;
    pid_t pid = fork();
    if (!pid) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
        setenv("PMI_RANK", "1", 1);
        setenv("PMI_SIZE", "2", 1);
        execl(program, "polar", "run", in_folder("small.yaml"), "--device", "ref", "--save-every", "0",
              "--store", in_folder("shared/r.db"), (char *)NULL);
        _exit(1);
    }
    if (after) {
        usleep(after);
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status);
}

/* It is killed at random moments of what it takes undisturbed, the launch is given again: the same bits. */
static void test_kill(void)
{
    uint64_t x = 88172645463325252ull;
    int killed = 0;
    struct timespec begun, ended;
    begin_anew();
    clock_gettime(CLOCK_MONOTONIC, &begun);
    one_rank(0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double whole =
        (double)(ended.tv_sec - begun.tv_sec) * 1e6 + (double)(ended.tv_nsec - begun.tv_nsec) / 1e3;
    for (int i = 0; i < 12; i++) {
        if (i % 4 == 0) begin_anew(); /* from the start, and from what was left */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        killed += one_rank((useconds_t)(1 + whole * (double)(x % 1000) / 1000));
    }
    launch("PMI_RANK=@ PMI_SIZE=2", 2, "");
    test_true("a rank killed again and again", last.code == 0 && killed > 0, "%d kills, exit %d: %s", killed,
              last.code, first_line(last.err));
    accepted(SAME, "same");
}

/* A machine that is gone with its disk: what was copied of its rank is there, and is not made again. */
static void test_copies(void)
{
    begin_anew();
    pid_t pid = fork();
    if (!pid) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
        setenv("PMI_RANK", "1", 1);
        setenv("PMI_SIZE", "2", 1);
        execl(program, "polar", "run", in_folder("small.yaml"), "--device", "ref", "--copy-every", "0",
              "--store", in_folder("shared/r.db"), (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < 20000 && !exists("shared/r.db.rank-1-of-2"); i++) usleep(1000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    accepted("$P store check --store $D/shared/r.db.rank-1-of-2; rm $D/shared/*.lock; rm -r $D/tmp/polar-*",
             "is sound");
    accepted("$P store merge $D/some.db $D/shared/r.db.rank-1-of-2", " of 18 runs are done");
    int done = 0;
    const char *count = strstr(last.out, "some.db: ");
    if (count) done = atoi(count + 9);
    test_true("finished runs were copied on the way", done >= 1 && done <= 9, "%d of 9", done);
    sh("PMI_SIZE=2 PMI_RANK=1 " RUN " & PMI_SIZE=2 PMI_RANK=0 " RUN "; code=$?; wait; exit $code");
    test_true("a rank goes on from its file on another machine", last.code == 0, "exit %d: %s", last.code,
              first_line(last.err));
    accepted(SAME, "same");
}

static void test_folder(void)
{
    begin_anew();
    sh("mkdir -p $D/tmp/polar-$(id -u); chmod 777 $D/tmp/polar-$(id -u)");
    refused("PMI_RANK=1 PMI_SIZE=2 " RUN, 3, "others may write there");
    refused("PMI_RANK=1 PMI_SIZE=2 $P run $D/small.yaml --store $D/none/r.db", 2, "no folder for it");
}

/* tools/slurm/audit_array.sh, with the variables that Slurm sets. */
static void test_array(void)
{
    begin_anew();
    sh("for k in 1 2 3; do POLAR=$P OUT=$D/shared SLURM_ARRAY_TASK_ID=$k SLURM_ARRAY_TASK_COUNT=3 "
       "sh " SOURCE_DIR "/tools/slurm/audit_array.sh $D/small.yaml --device ref || exit; done");
    test_true("a Slurm array", last.code == 0 && strstr(last.out, "18 of 18 runs are done, 18 of them new"),
              "exit %d: %s", last.code, first_line(last.err));
    accepted("mv $D/shared/audit.db $D/shared/r.db; " SAME, "same");
    sh("POLAR=$P OUT=$D/shared SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_COUNT=3 sh " SOURCE_DIR
       "/tools/slurm/audit_array.sh $D/small.yaml --device ref");
    test_true("  a task given again makes nothing again",
              last.code == 0 && strstr(last.err, "6 of 6 runs are done\n"), "exit %d: %s", last.code,
              first_line(last.err));
    sh("SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_MAX=7 "
       "OUT=$D/shared sh " SOURCE_DIR "/tools/slurm/audit_array.sh $D/small.yaml");
    test_true("  an array with gaps is refused", last.code == 2, "exit %d", last.code);
    accepted("ls $D/tmp | wc -l", "0\n");
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    setenv("TMPDIR", in_folder("tmp"), 1);
    cli_write_small_spec();
    begin_anew();
    accepted("$P run $D/small.yaml --device ref --store $D/one.db 2>$D/log && $P audit small --store "
             "$D/one.db --format "
             "json >$D/one.json && echo made",
             "made");
    test_launchers();
    test_missing();
    test_stale();
    test_kill();
    test_copies();
    test_folder();
    test_array();
    test_mpirun();
    return cli_end();
}
