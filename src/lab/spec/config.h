/* config.h -- what a run is: a testbed, a value for every key of its table, and a seed; its name is a hash
 * of what it computes.
 *
 *     static const pl_key keys[] = {
 *         {"model.width",    PL_KEY_INT,    "16",   .min = 1, .max = 4096, .help = "channels h_c"},
 *         {"optim.rule",     PL_KEY_CHOICE, "muon", .choices = rules,      .help = "..."},
 *         // that key's value
 *         {"optim.aux_lr",   PL_KEY_REAL,   "=optim.lr", .min = 0, .max = 10, .help = "..."},
 *         // computed from the others
 *         {"optim.beta1",    PL_KEY_REAL,   "the rule's", .derive = rule_beta1, .min = 0, .max = 1, ...},
 *         // adamw has no map
 *         {"map.rounding",   PL_KEY_CHOICE, "fused", .choices = roundings, .applies = has_map, ...},
 *     };
 *     static const pl_schema so3 = {.name = "so3", .version = 1, .metric = "test_mse", .keys = keys,
 *         .key_count = 5, .check = so3_check};
 *
 *     PL_TRY(pl_config_create(&c, &so3));                   // all defaults
 *     // POLAR_E_ARG with the nearest key, the range, the choices
 *     PL_TRY(pl_config_set(c, "model.width", "32"));
 *     h = pl_config_int(c, "model.width");
 *     PL_TRY(pl_config_run_id(id, c, seed));                // 32 hex digits
 *     pl_config_destroy(c);
 *
 * The canonical text of a run is "so3 v1\n", then "key=value\n" in the order of the names for every key
 * that applies and differs from its default, then "seed=7\n"; the run id is the first 32 hex digits of its
 * SHA-256. So a new key, a default written out, a key without effect (.applies), the folder of the data
 * (.place) and the names of arms and specs change no id. What a new code computes differently under the
 * same keys needs a new version.
 */
#ifndef PL_LAB_CONFIG_H
#define PL_LAB_CONFIG_H

#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"
#include "store/store.h" /* PL_RUN_ID_CHARS */

#define PL_VALUE_CHARS 256 /* the longest value as text, with the zero */
#define PL_WHY_CHARS   512

typedef struct pl_config pl_config;

typedef enum pl_key_type {
    PL_KEY_INT,   /* a whole number in [min, max] */
    PL_KEY_REAL,  /* a finite number in [min, max] */
    PL_KEY_BOOL,  /* true or false */
    PL_KEY_TEXT,  /* one line of UTF-8, may be empty */
    PL_KEY_CHOICE /* one word of choices */
} pl_key_type;

typedef struct pl_key {
    const char *name; /* "model.width" */
    pl_key_type type;
    /* as one would write it; "=key": that key's value (of the same type); with derive: what help says it is
     */
    const char *def;
    double min, max;            /* PL_KEY_INT, PL_KEY_REAL; whole ones up to 2^53 */
    const char *const *choices; /* PL_KEY_CHOICE; ended by NULL */
    /* the default from other keys, as text; these must not derive from this one */
    void (*derive)(char out[PL_VALUE_CHARS], const pl_config *c);
    /* 0: no effect under the other keys, so no part of the id; NULL: always has */
    int (*applies)(const pl_config *c);
    const char *help; /* one line, no full stop */
    /* 1: where or how a run is made on this machine, without effect on its numbers: in no id and no stored
     * configuration */
    int place;
} pl_key;

typedef struct pl_metric { /* a result of a run, as a reader meets it */
    const char *name;      /* "test_mse" */
    const char *title;     /* of an axis: "L10, %"; NULL: the name */
    int better;            /* 1: higher, -1: lower, 0: neither (a count, an epoch) */
    int percent;           /* axes need not begin at 0, differences are points */
    /* a reference value: the result it is shown beside, its column's head and its line's name; else NULL */
    const char *beside, *head, *line;
} pl_metric;

typedef struct pl_curve_kind { /* what pl_epoch_row.valid of a testbed is */
    const char *progress;      /* in lines of progress: "top-1 %"; NULL: "valid" */
    const char *heading;       /* of the figure */
    const char *what, *axis;   /* "Validation error", "validation MSE" */
    const char *timing;        /* which times compare the same work */
    int higher;                /* is better */
    /* percent on a linear axis, none of the epochs left out; else an error by decades */
    int accuracy;
    /* a seed has its own task (class subset), so that values belong beside each other seed by seed */
    int seeds_differ;
} pl_curve_kind;

#define PL_SCHEMA_MAX_RESULTS 64

typedef struct pl_schema { /* of a testbed; static memory */
    const char *name;      /* "so3" */
    int version;           /* part of every run id */
    const char *metric;    /* what audits compare unless told: "test_mse" */
    const pl_key *keys;    /* unique names */
    int key_count;
    /* POLAR_E_ARG for keys that contradict each other; NULL: none can. Every run of a plan is asked. */
    polar_status (*check)(const pl_config *c);
    const pl_metric *results; /* of a run, ended by one without a name; NULL: not known before a run */
    pl_curve_kind curve;
    /* what its reference values are: a heading of their columns, a sentence below; NULL: it has none */
    const char *reference, *reference_note;
} pl_schema;

/* NULL when there is none */
const pl_key *pl_schema_key(const pl_schema *s, const char *name);
/* or the testbed does not say what it has */
int pl_schema_has_result(const pl_schema *s, const char *name);
/* ended by NULL */
void pl_schema_result_names(const char *out[PL_SCHEMA_MAX_RESULTS + 1], const pl_schema *s);
/* a result, or "wall"; the name itself for a title, and neither way, where it is not known; s may be NULL */
pl_metric pl_schema_metric(const pl_schema *s, const char *name);
/* "int", "real", "bool", "text", "choice" */
const char *pl_key_type_name(pl_key_type type);
/* what it takes: "1 to 1024", "fused, reference" */
void pl_key_range(char out[PL_WHY_CHARS], const pl_key *k);

/* For callers that know where a word stands (a file and its line): NULL or 0 leaves half a sentence in why.
 */
/* "no key 'model.wdth' in testbed so3 (did you mean model.width?)" */
const pl_key *pl_schema_find_key(char why[PL_WHY_CHARS], const pl_schema *s, const char *name);
/* the canonical form ("1e-3" -> "0.001"); "model.width wants ..." */
int pl_key_read(char out[PL_VALUE_CHARS], char why[PL_WHY_CHARS], const pl_key *k, const char *text);

/* whose keys it has; borrowed */
const pl_schema *pl_config_schema(const pl_config *c);
/* every key at its default; borrows the schema's key table */
polar_status pl_config_create(pl_config **out, const pl_schema *schema);
/* another of the same values */
polar_status pl_config_copy(pl_config **out, const pl_config *c);
void pl_config_destroy(pl_config *c); /* NULL is fine */
/* POLAR_E_ARG with a sentence: no such key, type, range */
polar_status pl_config_set(pl_config *c, const char *name, const char *text);
/* the same from "key=value" */
polar_status pl_config_assign(pl_config *c, const char *assignment);

/* Values with defaults resolved; a name that is not in the table, or of another type, is our mistake
 * (asserted). */
int64_t pl_config_int(const pl_config *c, const char *name); /* PL_KEY_INT */
double pl_config_real(const pl_config *c, const char *name); /* PL_KEY_REAL */
int pl_config_bool(const pl_config *c, const char *name);    /* PL_KEY_BOOL */
/* PL_KEY_CHOICE: the index in its choices */
int pl_config_choice(const pl_config *c, const char *name);
/* PL_KEY_TEXT (not derived), PL_KEY_CHOICE: borrowed until the next set */
const char *pl_config_text(const pl_config *c, const char *name);
/* any key, canonical text, defaults resolved */
void pl_config_value(char out[PL_VALUE_CHARS], const pl_config *c, const char *name);

/* the text that is hashed; free with pl_free */
polar_status pl_config_canonical(char **out, const pl_config *c, int64_t seed);
/* every key but places as one JSON object on one line; free with pl_free */
polar_status pl_config_json(char **out, const pl_config *c);
polar_status pl_config_run_id(char out[PL_RUN_ID_CHARS], const pl_config *c, int64_t seed); /* see above */
/* of many seeds: what all their ids share, */
polar_status pl_config_id_begin(pl_sha256 *out, const pl_config *c);
/* and the id of one */
void pl_config_id_end(char out[PL_RUN_ID_CHARS], const pl_sha256 *begun, int64_t seed);

#endif
