/* forbid_processes.c -- a seccomp filter that refuses fork, vfork and clone, except for threads. exec stays
 * allowed: gnuplot is yet to be executed, and popen() and system() need a process first. clone3 hides its
 * flags from a filter: ENOSYS, and libc takes clone.
 */
#include "report/figure/forbid_processes.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#define FOREIGN_ABI 0x40000000 /* x32 on x86-64 */

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* the next statement, else skip that many */
#define IF_EQUAL(k, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (k), 0, (skip))
#define RETURN_ERRNO(e)   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (e))
#define RETURN_ALLOW      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int pl_forbid_child_processes(void)
{
    struct sock_filter filter[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        RETURN_ERRNO(EPERM),
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FOREIGN_ABI, 0, 1),
        RETURN_ERRNO(EPERM),
#ifdef SYS_fork
        IF_EQUAL(SYS_fork, 1),
        RETURN_ERRNO(EPERM),
        IF_EQUAL(SYS_vfork, 1),
        RETURN_ERRNO(EPERM),
#endif
        IF_EQUAL(SYS_clone3, 1),
        RETURN_ERRNO(ENOSYS),
        IF_EQUAL(SYS_clone, 3),
        LOAD(args[0]), /* the lower half: both machines are little-endian */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
        RETURN_ERRNO(EPERM),
        RETURN_ALLOW,
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#else

int pl_forbid_child_processes(void)
{
    return 0;
}

#endif
