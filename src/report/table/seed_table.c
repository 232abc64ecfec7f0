/* seed_table.c -- see seed_table.h. */
#include "report/table/seed_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/audit/audit_print.h"

#define KEYS       (2 * (PL_SEED_TABLE_ARMS + 1))
#define KEY_CHARS  192
#define HEAD_CHARS 96

typedef struct {
    char keys[PL_SEED_TABLE_SECTIONS][KEYS][KEY_CHARS], heads[PL_SEED_TABLE_SECTIONS][HEAD_CHARS];
    pl_table_column columns[2 + PL_SEED_TABLE_SECTIONS * KEYS];
    int count;
} layout;

static int64_t arms_of(const pl_section *p)
{
    return p->audit->arm_count < PL_SEED_TABLE_ARMS ? p->audit->arm_count : PL_SEED_TABLE_ARMS;
}

/* The two arms whose difference has a column, a - b: the first published pair that is here, else the last arm
 * and the one before it. 0: there are not two. */
static int find_pair(const pl_section *p, int64_t *a, int64_t *b)
{
    const pl_published *pub = pl_section_published(p);
    for (int i = 0; pub && i < pub->pair_count; i++) {
        *a = pl_section_arm(p, pub->pairs[i].a);
        *b = pl_section_arm(p, pub->pairs[i].b);
        if (*a >= 0 && *b >= 0 && *a < arms_of(p) && *b < arms_of(p)) return 1;
    }
    *a = arms_of(p) - 1;
    *b = *a - 1;
    return *b >= 0;
}

static double published_seed(const pl_section *p, const char *cell, int64_t arm, int64_t seed)
{
    return pl_published_seed(pl_section_published(p), cell, p->audit->arms[arm], p->audit->metric, seed);
}

static int has_published(const pl_section *p)
{
    for (int64_t r = 0; r < arms_of(p); r++)
        for (int64_t k = 0; k < p->audit->seed_count; k++)
            for (int64_t c = 0; c < p->audit->cell_count; c++)
                if (!isnan(published_seed(p, p->audit->cells[c], r, p->audit->seeds[k]))) return 1;
    return 0;
}

/* ---- columns ---- */

/* The arms of one section, then the difference; of a table of several the keys carry the spec's name. */
static void add_columns(layout *l, const pl_section *p, int part, int several, int published,
                        const char *group)
{
    int64_t a = 0, b = 0, arms = arms_of(p);
    int d = pl_audit_digits(p->audit), first = published ? PL_SEED_TABLE_ARMS + 1 : 0,
        pair = find_pair(p, &a, &b);
    for (int64_t r = 0; r < arms + pair; r++) {
        char *key = l->keys[part][first + r], *head = l->heads[part];
        if (r == arms) snprintf(head, HEAD_CHARS, "%.40s - %.40s", p->audit->arms[a], p->audit->arms[b]);
        int used = snprintf(key, KEY_CHARS, "%s%.63s%s", published ? "published_" : "",
                            several ? p->spec->name : "", several ? "_" : "");
        if (r < arms) snprintf(key + used, KEY_CHARS - (size_t)used, "%.63s", p->audit->arms[r]);
        else
            snprintf(key + used, KEY_CHARS - (size_t)used, "%.40s_minus_%.40s", p->audit->arms[a],
                     p->audit->arms[b]);
        l->columns[l->count++] =
            (pl_table_column){key, r < arms ? p->audit->arms[r] : head, group, PL_CELL_FIXED, d};
    }
}

/* ---- cells ---- */

static void add_measured(pl_table *t, const pl_section *p, int64_t cell, int64_t seed)
{
    int64_t a, b;
    double v[PL_SEED_TABLE_ARMS], value;
    for (int64_t r = 0; r < arms_of(p); r++) {
        v[r] = NAN;
        if (cell >= 0 && seed >= 0 &&
            pl_audit_value(&value, pl_section_run(p, cell, seed, r), p->audit->metric) == PL_AUDIT_HAS_VALUE)
            v[r] = value;
        pl_table_maybe(t, v[r]);
    }
    if (find_pair(p, &a, &b)) pl_table_maybe(t, v[a] - v[b]);
}

static void add_published(pl_table *t, const pl_section *p, const char *cell, int64_t seed)
{
    int64_t a, b;
    double v[PL_SEED_TABLE_ARMS];
    for (int64_t r = 0; r < arms_of(p); r++) {
        v[r] = published_seed(p, cell, r, seed);
        pl_table_maybe(t, v[r]);
    }
    if (find_pair(p, &a, &b)) pl_table_maybe(t, v[a] - v[b]);
}

static void add_means(pl_table *t, const pl_section *p, const char *name)
{
    int64_t a, b, cell = pl_section_cell(p, name);
    const pl_audit *of = p->audit;
    for (int64_t r = 0; r < arms_of(p); r++)
        pl_table_maybe(t, cell < 0 ? NAN : of->arm_rows[cell * of->arm_count + r].s.mean);
    if (!find_pair(p, &a, &b)) return;
    double diff = NAN;
    for (int64_t i = 0; i < of->pair_count && cell >= 0; i++) {
        const pl_audit_pair *q = &of->pairs[i];
        if (q->cell != of->cells[cell]) continue;
        if (q->a == of->arms[a] && q->b == of->arms[b]) diff = q->s.mean_diff;
        if (q->a == of->arms[b] && q->b == of->arms[a]) diff = -q->s.mean_diff;
    }
    pl_table_maybe(t, diff);
}

static void add_published_means(pl_table *t, const pl_section *p, const char *cell)
{
    int64_t a, b;
    for (int64_t r = 0; r < arms_of(p); r++)
        pl_table_maybe(
            t, pl_published_value(pl_section_published(p), cell, p->audit->arms[r], p->audit->metric));
    if (find_pair(p, &a, &b))
        pl_table_maybe(t, pl_published_pair_of(pl_section_published(p), cell, p->audit->arms[a],
                                               p->audit->arms[b], p->audit->metric)
                              .mean);
}

/* ---- rows ---- */

static void add_rows(pl_table *t, const pl_section *const *sections, int count, int64_t cell)
{
    const pl_audit *first = sections[0]->audit;
    const char *name = first->cells[cell];
    for (int64_t k = 0; k <= first->seed_count; k++) {
        char text[32] = "mean";
        if (k < first->seed_count) snprintf(text, sizeof text, "%" PRId64, first->seeds[k]);
        pl_table_row(t);
        pl_table_text(t, name);
        pl_table_text(t, text);
        for (int i = 0; i < count; i++) {
            const pl_section *p = sections[i];
            if (k == first->seed_count) add_means(t, p, name);
            else add_measured(t, p, pl_section_cell(p, name), pl_section_seed(p, first->seeds[k]));
            if (!has_published(p)) continue;
            if (k == first->seed_count) add_published_means(t, p, name);
            else add_published(t, p, name, first->seeds[k]);
        }
    }
}

polar_status pl_seed_table(const pl_section *const *sections, const char *const *titles, int count, FILE *f,
                           pl_table_format format)
{
    layout l = {.count = 2};
    pl_table *t;
    l.columns[0] = (pl_table_column){"cell", "cell", NULL, PL_CELL_TEXT, 0};
    l.columns[1] = (pl_table_column){"seed", "seed", NULL, PL_CELL_TEXT, 0};
    for (int i = 0; i < count; i++) {
        add_columns(&l, sections[i], i, count > 1, 0, titles[i]);
        if (has_published(sections[i]))
            add_columns(&l, sections[i], i, count > 1, 1, pl_published_by(pl_section_published(sections[i])));
    }
    PL_TRY(pl_table_create(&t, NULL, l.columns, l.count));
    for (int64_t c = 0; c < sections[0]->audit->cell_count; c++) add_rows(t, sections, count, c);
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}
