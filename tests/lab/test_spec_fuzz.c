/* test_spec_fuzz.c -- mutated specs: each is read or refused with a sentence, never a crash, a leak or a
 * hang. The same mutations every time. */
#include "spec_fixture.h"

#include "base/philox.h"

static const char seed_text[] =
    "name: t\ntitle: 'Title'\ntestbed: toy\nmetric: loss\nabout: |\n  some\n  text\nseeds: [7, 0..2]\n"
    "arms:\n  adamw:\n  muon: {optim.beta1: 0.9}\n  slow: {optim.rule: muon, optim.lr: 1e-4}\n"
    "grid:\n  model.width: [16, 32]\n  map.rounding: [reference, fused]\nset: {route.matrix: \"*.W, x\", "
    "train.clip: true}\n"
    "published:\n  by: x\n  values:\n  - {model.width: 16, map.rounding: fused, muon: 1, slow: 2e-3}\n"
    "  - {model.width: 32, map.rounding: fused, seed: 7, muon: 1}\n  differences:\n"
    "  - {model.width: 16, map.rounding: fused, a: muon, b: slow, mean: -1, n: 3}\n"
    "compare: [{with: u, labels: [a, b], tables: [lift], since: {muon: 3}}]\n";

static const char *const bits[] = {
    ": ",    "\n",          "  ",   "- ",   "[",  "]",      "{",     "}",           ",",
    "'",     "\"",          "#",    "&a ",  "*a", "!!int ", "|\n",   ">\n",         "---\n",
    "...\n", "? ",          "\t",   "0..9", "-1", "1e999",  "muon",  "model.width", "\xc3\xa9",
    "\xff",  "%YAML 1.2\n", "<<: ", "null", "~",  "\r\n",   "\\x00", "seeds",       "\xef\xbb\xbf"};

static uint32_t draw(uint32_t trial, uint32_t k, uint32_t n)
{
    return pl_philox(20240501, PL_STREAM_TEST, trial, k).x % n;
}

/* One to three deletions, copies, replacements and insertions. */
static size_t mutate(char *out, size_t room, uint32_t trial)
{
    size_t n = sizeof seed_text - 1;
    memcpy(out, seed_text, n);
    uint32_t k = 0, changes = 1 + draw(trial, k++, 3);
    for (uint32_t c = 0; c < changes; c++) {
        size_t at = draw(trial, k++, (uint32_t)n + 1), span = draw(trial, k++, 12),
               word = draw(trial, k++, sizeof bits / sizeof *bits), add = strlen(bits[word]);
        switch (draw(trial, k++, 4)) {
        case 0: /* cut */
            if (at + span > n) span = n - at;
            memmove(out + at, out + at + span, n - at - span);
            n -= span;
            break;
        case 1: /* insert a word */
            if (n + add > room) break;
            memmove(out + at + add, out + at, n - at);
            memcpy(out + at, bits[word], add);
            n += add;
            break;
        case 2: /* another byte */
            if (at < n) out[at] = (char)draw(trial, k++, 256);
            break;
        default: /* double a stretch */
            if (at + span > n) span = n - at;
            if (n + span > room) break;
            memmove(out + at + span, out + at, n - at);
            n += span;
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    char text[4096];
    int64_t leaks = 0, wrong = 0, read = 0, refused = 0;
    spec_file_begin();
    for (uint32_t trial = 0; trial < 8000; trial++) {
        pl_spec *s = NULL;
        pl_plan *p = NULL;
        int64_t live = pl_alloc_live();
        spec_write(text, mutate(text, sizeof text, trial));
        polar_status st = spec_plan(&s, &p, NULL, 0);
        int told = st == POLAR_OK ? p != NULL
                                  : (st == POLAR_E_FORMAT || st == POLAR_E_ARG) && !p &&
                                        strstr(polar_error_message(), spec_path);
        if (!told) printf("trial %u: %d %s\n", trial, (int)st, polar_error_message());
        wrong += !told;
        read += st == POLAR_OK;
        refused += st != POLAR_OK;
        pl_plan_destroy(p);
        pl_spec_destroy(s);
        leaks += pl_alloc_live() != live;
    }
    spec_file_end();
    test_true("mutated specs are read or refused",
              PART(!wrong) && PART(!leaks) && PART(read > 200) && PART(refused > 1000),
              "%lld read, %lld refused, %lld untold, %lld leaks", (long long)read, (long long)refused,
              (long long)wrong, (long long)leaks);
    return test_end();
}
