/* file_signal.h -- the two signals that end a program for what happened to a file. */
#ifndef POLAR_FILE_SIGNAL_H
#define POLAR_FILE_SIGNAL_H

/* From now on a file that reaches the limit on the size of files (ulimit -f) is an error like a full disk
 * (EFBIG), and a mapped file that became shorter, or whose disk failed, ends the program with a sentence and
 * exit_code. */
void file_signal_begin(int exit_code);

#endif
