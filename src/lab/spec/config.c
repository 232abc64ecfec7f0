/* config.c -- keys and their values; a value is kept as its canonical text, which is what the run id hashes.
 *
 *     ctest -R test_spec
 *
 * Invariants: a value that is set has passed pl_key_read; a default that is written (no "=", no derive)
 * passes it too, or the table is wrong (asserted).
 */
#include "lab/spec/config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/sha256.h"
#include "base/string_build.h"

typedef struct slot {
    int set;
    char text[PL_VALUE_CHARS];
} slot;

struct pl_config {
    pl_schema schema;
    slot *slots; /* one per key */
};

/* ---- configurations ----------------------------------------------------------------------------- */

const pl_schema *pl_config_schema(const pl_config *c)
{
    return &c->schema;
}

polar_status pl_config_create(pl_config **out, const pl_schema *schema)
{
    pl_config *c = pl_calloc(1, sizeof *c);
    *out = NULL;
    if (c) c->slots = pl_calloc((size_t)schema->key_count + 1, sizeof *c->slots);
    if (!c || !c->slots) {
        pl_config_destroy(c);
        return PL_FAIL(POLAR_E_NOMEM, "a configuration of %d keys", schema->key_count);
    }
    c->schema = *schema;
    *out = c;
    return POLAR_OK;
}

polar_status pl_config_copy(pl_config **out, const pl_config *c)
{
    PL_TRY(pl_config_create(out, &c->schema));
    memcpy((*out)->slots, c->slots, (size_t)c->schema.key_count * sizeof *c->slots);
    return POLAR_OK;
}

void pl_config_destroy(pl_config *c)
{
    if (c) pl_free(c->slots);
    pl_free(c);
}

polar_status pl_config_set(pl_config *c, const char *name, const char *text)
{
    char why[PL_WHY_CHARS], value[PL_VALUE_CHARS];
    const pl_key *k = pl_schema_find_key(why, &c->schema, name);
    PL_NEED(k && pl_key_read(value, why, k, text), POLAR_E_ARG, "%s", why);
    slot *s = &c->slots[k - c->schema.keys];
    s->set = 1;
    memcpy(s->text, value, sizeof s->text);
    return POLAR_OK;
}

polar_status pl_config_assign(pl_config *c, const char *assignment)
{
    char name[128];
    size_t n = strcspn(assignment, "=");
    PL_NEED(assignment[n] && n && n < sizeof name, POLAR_E_ARG, "'%s' is no assignment: key=value",
            pl_text_shown(assignment).text);
    memcpy(name, assignment, n);
    name[n] = 0;
    return pl_config_set(c, name, assignment + n + 1);
}

static const pl_key *known_key(const pl_config *c, const char *name)
{
    const pl_key *k = pl_schema_key(&c->schema, name);
    assert(k && "a key that is not in the table");
    return k;
}

static const slot *slot_of(const pl_config *c, const pl_key *k)
{
    return &c->slots[k - c->schema.keys];
}

static void print_default(char out[PL_VALUE_CHARS], const pl_config *c, const pl_key *k)
{
    char why[PL_WHY_CHARS], text[PL_VALUE_CHARS];
    const char *def = k->def;
    if (k->derive) {
        k->derive(text, c);
        def = text;
    } else if (*def == '=') {
        pl_config_value(out, c, def + 1);
        return;
    }
    int ok = pl_key_read(out, why, k, def);
    assert(ok && "a default that its own key refuses");
    (void)ok;
}

void pl_config_value(char out[PL_VALUE_CHARS], const pl_config *c, const char *name)
{
    const pl_key *k = known_key(c, name);
    const slot *s = slot_of(c, k);
    if (s->set) memcpy(out, s->text, PL_VALUE_CHARS);
    else print_default(out, c, k);
}

/* ---- getters ------------------------------------------------------------------------------------ */

static void typed_value(char out[PL_VALUE_CHARS], const pl_config *c, const char *name, pl_key_type type)
{
    assert(known_key(c, name)->type == type && "a key of another type");
    (void)type;
    pl_config_value(out, c, name);
}

int64_t pl_config_int(const pl_config *c, const char *name)
{
    char text[PL_VALUE_CHARS];
    typed_value(text, c, name, PL_KEY_INT);
    return strtoll(text, NULL, 10);
}

double pl_config_real(const pl_config *c, const char *name)
{
    char text[PL_VALUE_CHARS];
    typed_value(text, c, name, PL_KEY_REAL);
    return strtod(text, NULL);
}

int pl_config_bool(const pl_config *c, const char *name)
{
    char text[PL_VALUE_CHARS];
    typed_value(text, c, name, PL_KEY_BOOL);
    return !strcmp(text, "true");
}

int pl_config_choice(const pl_config *c, const char *name)
{
    char text[PL_VALUE_CHARS];
    typed_value(text, c, name, PL_KEY_CHOICE);
    const pl_key *k = known_key(c, name);
    int i = 0;
    while (strcmp(k->choices[i], text)) i++;
    return i;
}

const char *pl_config_text(const pl_config *c, const char *name)
{
    const pl_key *k = known_key(c, name);
    if (k->type == PL_KEY_CHOICE) return k->choices[pl_config_choice(c, name)];
    assert(k->type == PL_KEY_TEXT && !k->derive && "a key of another type");
    const slot *s = slot_of(c, k);
    if (s->set) return s->text;
    return *k->def == '=' ? pl_config_text(c, k->def + 1) : k->def;
}

/* ---- texts -------------------------------------------------------------------------------------- */

/* Whether the key is a part of the run id, and the value to print there. */
static int counts(char value[PL_VALUE_CHARS], const pl_config *c, const pl_key *k)
{
    char def[PL_VALUE_CHARS];
    if (!slot_of(c, k)->set || k->place || (k->applies && !k->applies(c))) return 0;
    pl_config_value(value, c, k->name);
    print_default(def, c, k);
    return strcmp(value, def) != 0;
}

/* The key that follows `last` (NULL: the first) in the order of the names. */
static const pl_key *next_key(const pl_schema *s, const pl_key *last)
{
    const pl_key *next = NULL;
    for (int i = 0; i < s->key_count; i++) {
        const pl_key *k = &s->keys[i];
        if ((!last || strcmp(k->name, last->name) > 0) && (!next || strcmp(k->name, next->name) < 0))
            next = k;
    }
    return next;
}

/* All of it but the seed, which comes last. */
static void add_settings(pl_string *s, const pl_config *c)
{
    char value[PL_VALUE_CHARS];
    pl_string_add(s, "%s v%d\n", c->schema.name, c->schema.version);
    for (const pl_key *k = NULL; (k = next_key(&c->schema, k));)
        if (counts(value, c, k)) pl_string_add(s, "%s=%s\n", k->name, value);
}

#define SEED_LINE "seed=%lld\n"

polar_status pl_config_canonical(char **out, const pl_config *c, int64_t seed)
{
    pl_string s = {0};
    add_settings(&s, c);
    pl_string_add(&s, SEED_LINE, (long long)seed);
    return pl_string_take(out, &s, "the canonical text of a run");
}

polar_status pl_config_id_begin(pl_sha256 *out, const pl_config *c)
{
    char *text;
    pl_string s = {0};
    add_settings(&s, c);
    PL_TRY(pl_string_take(&text, &s, "the canonical text of a run"));
    *out = pl_sha256_begin();
    pl_sha256_add(out, text, strlen(text));
    pl_free(text);
    return POLAR_OK;
}

void pl_config_id_end(char out[PL_RUN_ID_CHARS], const pl_sha256 *begun, int64_t seed)
{
    char hex[PL_SHA256_HEX], line[32];
    pl_sha256 h = *begun;
    pl_sha256_add(&h, line, (size_t)snprintf(line, sizeof line, SEED_LINE, (long long)seed));
    pl_sha256_end(hex, &h);
    memcpy(out, hex, PL_RUN_ID_CHARS - 1);
    out[PL_RUN_ID_CHARS - 1] = 0;
}

polar_status pl_config_run_id(char out[PL_RUN_ID_CHARS], const pl_config *c, int64_t seed)
{
    pl_sha256 h;
    PL_TRY(pl_config_id_begin(&h, c));
    pl_config_id_end(out, &h, seed);
    return POLAR_OK;
}

/* Text values hold no control characters (read_text). */
static void add_json_string(pl_string *s, const char *text)
{
    pl_string_add(s, "\"");
    for (; *text; text++) pl_string_add(s, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    pl_string_add(s, "\"");
}

polar_status pl_config_json(char **out, const pl_config *c)
{
    pl_string s = {0};
    char value[PL_VALUE_CHARS];
    const char *comma = "";
    pl_string_add(&s, "{");
    for (int i = 0; i < c->schema.key_count; i++) {
        const pl_key *k = &c->schema.keys[i];
        if (k->place) continue;
        pl_config_value(value, c, k->name);
        pl_string_add(&s, "%s\"%s\": ", comma, k->name);
        comma = ", ";
        if (k->type == PL_KEY_TEXT || k->type == PL_KEY_CHOICE) add_json_string(&s, value);
        else pl_string_add(&s, "%s", value);
    }
    pl_string_add(&s, "}");
    return pl_string_take(out, &s, "a configuration as JSON");
}
