/* forbid_processes.h -- a process that can start no other: a second lock behind the first, should a text ever
 * get gnuplot to run a command. */
#ifndef PL_REPORT_FORBID_PROCESSES_H
#define PL_REPORT_FORBID_PROCESSES_H

/* from here on this process makes threads but no processes, across exec too; 0: the kernel does not offer it
 */
int pl_forbid_child_processes(void);

#endif
