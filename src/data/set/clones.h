/* clones.h -- marks a loop that the compiler builds for several instruction sets, chosen when the program
 * starts. The loops so marked work on integers or round every operation on its own (no contraction), so all
 * copies give the same bytes. */
#ifndef PL_DATA_CLONES_H
#define PL_DATA_CLONES_H

/* The choice is made while the program is loaded, before the thread sanitizer is there, which it calls. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define PL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PL_CLONES
#endif

#endif
