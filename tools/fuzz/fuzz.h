/* fuzz.h -- what the fuzzers share. An entry is a file with two functions, and fuzz_main.c is libFuzzer's
 * side of it:
 *
 *     void fuzz_begin(void) { fuzz_seed("one", bytes, size); }    // once: what is needed, first inputs
 *     void fuzz_try(const uint8_t *data, size_t size) { ... need(what must hold of all that is taken); }
 *
 * After every input as much memory is in use as before (pl_alloc_live). Files of an entry's own lie in
 * fuzz_path, which run.sh puts in memory and removes.
 */
#ifndef POLAR_FUZZ_H
#define POLAR_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* the entry's */
void fuzz_begin(void);
void fuzz_try(const uint8_t *data, size_t size);

/* stops the fuzzer, which keeps the input */
#define need(cond) fuzz_need((cond) ? 1 : 0, #cond, __FILE__, __LINE__)
void fuzz_need(int cond, const char *what, const char *file, int line);
/* an input to begin with */
void fuzz_seed(const char *name, const void *bytes, size_t size);
/* the same of a file, which is removed */
void fuzz_seed_file(const char *name, const char *path);
/* a word that the fuzzer may put in: its dictionary */
void fuzz_word(const char *word);
/* a file with these bytes, in memory, until the next call with this number (0 to 3); borrowed */
const char *fuzz_file(int i, const void *bytes, size_t size);
/* a name in the entry's own folder; of the last four calls */
const char *fuzz_path(const char *name);
/* all of a file, to be freed; ended by a zero that does not count */
uint8_t *fuzz_read(const char *path, size_t *size);
/* part i of an input that is cut at bytes 1, as a text to be freed; NULL: there are fewer */
char *fuzz_part(const uint8_t *data, size_t size, int i);

/* libFuzzer's */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

#endif
