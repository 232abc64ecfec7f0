/* test_config.c -- keys, values, defaults, and the names of runs: what changes an id and what does not. */
#include "spec_fixture.h"

#include "base/json_read.h"
#include "lab/deit/deit_keys.h"
#include "lab/so3/so3_keys.h"

/* A configuration after some assignments ("key=value key=value"). */
static pl_config *configure(const pl_schema *schema, const char *assignments)
{
    pl_config *c;
    char word[256];
    TEST_TRY(pl_config_create(&c, schema));
    for (const char *p = assignments; *p;) {
        size_t n = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        TEST_TRY(pl_config_assign(c, word));
        p += n + (p[n] == ' ');
    }
    return c;
}

static char *canonical(const pl_schema *schema, const char *assignments, int64_t seed)
{
    char *text;
    pl_config *c = configure(schema, assignments);
    TEST_TRY(pl_config_canonical(&text, c, seed));
    pl_config_destroy(c);
    return text;
}

static void expect(const char *what, const char *assignments, const char *want)
{
    char *text = canonical(&toy_schema, assignments, 7);
    test_true(what, !strcmp(text, want), "'%s'", assignments);
    pl_free(text);
}

static void test_canonical(void)
{
    expect("no key: the seed alone", "", "toy v1\nseed=7\n");
    expect("a default written out is no change",
           "model.width=16 optim.lr=0.001 route.matrix=layers.* train.clip=false", "toy v1\nseed=7\n");
    expect("another spelling of a number", "optim.lr=10.0e-4 model.width=+016", "toy v1\nseed=7\n");
    expect("minus zero is zero", "optim.lr=-0.0", "toy v1\noptim.lr=0\nseed=7\n");
    expect("sorted by name, whatever came first", "train.clip=true optim.lr=3e-4 model.width=32",
           "toy v1\nmodel.width=32\noptim.lr=0.0003\ntrain.clip=true\nseed=7\n");
    expect("a default that follows another key", "optim.lr=0.01 optim.aux_lr=0.01",
           "toy v1\noptim.lr=0.01\nseed=7\n");
    expect("... and does not", "optim.lr=0.01 optim.aux_lr=0.001",
           "toy v1\noptim.aux_lr=0.001\noptim.lr=0.01\nseed=7\n");
    expect("a derived default written out", "optim.rule=adamw optim.beta1=0.9",
           "toy v1\noptim.rule=adamw\nseed=7\n");
    expect("... and not the default of this rule", "optim.rule=muon optim.beta1=0.9",
           "toy v1\noptim.beta1=0.9\nseed=7\n");
    expect("a key without effect under this rule", "optim.rule=adamw map.rounding=reference",
           "toy v1\noptim.rule=adamw\nseed=7\n");
    expect("... and with", "map.rounding=reference", "toy v1\nmap.rounding=reference\nseed=7\n");
    expect("an empty text", "route.matrix=", "toy v1\nroute.matrix=\nseed=7\n");
}

/* A later version of the table with a key more: the same ids. */
static void test_new_key(void)
{
    pl_key more[16];
    pl_schema later = toy_schema;
    memcpy(more, toy_keys, sizeof toy_keys);
    more[later.key_count] =
        (pl_key){"model.act", PL_KEY_CHOICE, "fused", .choices = toy_roundings, .help = "new"};
    later.keys = more;
    later.key_count++;
    char *old = canonical(&toy_schema, "model.width=32", 3), *new = canonical(&later, "model.width=32", 3);
    test_true("a new key changes no id", !strcmp(old, new), "%zu bytes", strlen(new));
    pl_free(old);
    pl_free(new);
}

/* Where the data lie and how they are read: in no id and no stored configuration. */
static void test_places(void)
{
    static const char *const here = "data.path=/data/imagenet data.workers=3 data.skip_bad=true";
    char *plain = canonical(&pl_deit_schema, "data.set=photos", 3), *placed, *json, words[160];
    snprintf(words, sizeof words, "data.set=photos %s", here);
    placed = canonical(&pl_deit_schema, words, 3);
    pl_config *c = configure(&pl_deit_schema, words);
    TEST_TRY(pl_config_json(&json, c));
    test_true("a place changes no id", !strcmp(plain, placed) && strstr(plain, "data.set=photos"),
              "%zu bytes", strlen(plain));
    test_true("... and is not stored",
              PART(!strstr(json, "imagenet")) && PART(!strstr(json, "data.path")) &&
                  PART(!strstr(json, "workers")) && PART(strstr(json, "\"data.set\": \"photos\"")) &&
                  PART(!strcmp(pl_config_text(c, "data.path"), "/data/imagenet")),
              "%zu bytes", strlen(json));
    pl_free(plain);
    pl_free(placed);
    pl_free(json);
    pl_config_destroy(c);
}

/* The recipe's mixing and the rule's lr are defaults: written out they change no id. */
static void test_deit_defaults(void)
{
    static const char *const same[][2] = {
        {"", "data.recipe=minimal mix.mixup=0 mix.cutmix=0 mix.smoothing=0 mix.prob=0.3 optim.lr=5e-3 "
             "optim.weight_decay=0.05 data.subset_seed=-1 data.classes=100"},
        {"optim.rule=muon", "optim.rule=muon optim.lr=0.005 optim.weight_decay=0 optim.aux_lr=5e-4 "
                            "optim.aux_weight_decay=0.05 train.warmup=5"},
        {"optim.rule=adamw", "optim.rule=adamw optim.lr=0.0005 optim.weight_decay=0.05 "
                             "route.split=*.qkv.weight map.rounding=reference"},
        {"data.recipe=deit",
         "data.recipe=deit mix.mixup=0.8 mix.cutmix=1 mix.prob=1 mix.switch=0.5 mix.smoothing=0.1"},
        {"data.set=synth:classes=3", "data.set=synth:classes=3 data.classes=0 data.subset_seed=5"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *a = canonical(&pl_deit_schema, same[i][0], 1), *b = canonical(&pl_deit_schema, same[i][1], 1);
        test_true("defaults of deit written out", !strcmp(a, b), "%s", same[i][1]);
        pl_free(a);
        pl_free(b);
    }
}

static void expect_id(const pl_schema *schema, const char *assignments, int64_t seed, const char *want)
{
    char id[PL_RUN_ID_CHARS];
    pl_config *c = configure(schema, assignments);
    TEST_TRY(pl_config_run_id(id, c, seed));
    test_true("a pinned id", !strcmp(id, want), "%s seed %lld: %s", schema->name, (long long)seed, id);
    pl_config_destroy(c);
}

/* Stored runs are found again by these names: a change here orphans every store. */
static void test_ids(void)
{
    expect_id(&toy_schema, "", 0, "4a7563b69c1bd3d68c731aa01b9ac1b3");
    expect_id(&toy_schema, "model.width=32 optim.rule=polaradamw", 7, "a47cd73d915b69c225cea74fbd7b5612");
    expect_id(&pl_so3_schema, "optim.rule=muon map.rounding=reference model.width=64", 99,
              "e1b002a42f73785924fcc559ef8849ee");
    expect_id(&pl_so3_schema, "optim.rule=adamw map.rounding=reference", 42,
              "d070125ff0bafdeeee961faedcae6a8d");
    expect_id(&pl_deit_schema, "optim.rule=muon map.rounding=reference", 42,
              "69643bbd0579436a691d026fa4e73298");
    expect_id(&pl_deit_schema, "data.recipe=deit optim.rule=adamw optim.lr=6.25e-5 train.epochs=300", 7,
              "8cc6b2e77c0d6d32a67884ce4904daf8");
}

static void refuse(const char *assignment, const char *part)
{
    pl_config *c;
    TEST_TRY(pl_config_create(&c, &toy_schema));
    polar_status st = pl_config_assign(c, assignment);
    int ok = st == POLAR_E_ARG && strstr(polar_error_message(), part) != NULL;
    test_true("refused", ok, "%s", polar_error_message());
    pl_config_destroy(c);
}

static void test_refusals(void)
{
    char longest[400];
    refuse("model.wdth=3", "did you mean model.width?");
    refuse("width=3", "did you mean model.width?");
    refuse("zzzzzz=3", "polar plan --keys toy");
    refuse("model.width", "key=value");
    refuse("=3", "key=value");
    refuse("model.width=-3", "from 1 to 4096");
    refuse("model.width=0", "from 1 to 4096");
    refuse("model.width=4097", "from 1 to 4096");
    refuse("model.width=", "whole number");
    refuse("model.width=1e2", "whole number");
    refuse("model.width=12x", "whole number");
    refuse("model.width= 12", "whole number");
    refuse("model.width=99999999999999999999", "whole number");
    refuse("optim.lr=nan", "a number from 0 to 10");
    refuse("optim.lr=inf", "a number from 0 to 10");
    refuse("optim.lr=0x1p-3", "a number from 0 to 10");
    refuse("optim.lr=1e999", "a number from 0 to 10");
    refuse("optim.lr=-1e-9", "a number from 0 to 10");
    refuse("optim.lr=1e-3e", "a number from 0 to 10");
    refuse("optim.rule=muno", "adamw, muon, polaradamw, got 'muno'");
    refuse("train.clip=yes", "false, true, got 'yes'");
    refuse("route.matrix=a\nb", "one line");
    refuse("route.matrix=\xff", "one line");
    snprintf(longest, sizeof longest, "route.matrix=%0300d", 0);
    refuse(longest, "at most 255 bytes");
}

static void test_getters(void)
{
    pl_config *c, *d;
    char *json;
    TEST_TRY(pl_config_create(&c, &toy_schema));
    TEST_TRY(pl_config_set(c, "route.matrix", "a\"b\\c, *"));
    TEST_TRY(pl_config_set(c, "optim.lr", "3e-4"));
    TEST_TRY(pl_config_set(c, "optim.rule", "polaradamw"));
    TEST_TRY(pl_config_copy(&d, c));
    TEST_TRY(pl_config_set(d, "optim.lr", "1"));
    int ok = pl_config_int(c, "model.width") == 16 && pl_config_real(c, "optim.lr") == 3e-4 &&
             pl_config_real(c, "optim.aux_lr") == 3e-4 && pl_config_real(c, "optim.beta1") == 0.9 &&
             !pl_config_bool(c, "train.clip") && pl_config_choice(c, "optim.rule") == 2 &&
             !strcmp(pl_config_text(c, "optim.rule"), "polaradamw") &&
             !strcmp(pl_config_text(c, "map.rounding"), "fused") && pl_config_real(d, "optim.aux_lr") == 1;
    test_true("values of every type, defaults resolved", ok, "aux_lr %g", pl_config_real(c, "optim.aux_lr"));
    TEST_TRY(pl_config_json(&json, c));
    int64_t keys = 0;
    pl_json p = pl_json_view(json, (int64_t)strlen(json), "json");
    TEST_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        TEST_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) break;
        keys++;
        int matrix = pl_json_is(&p, "route.matrix"), lr = pl_json_is(&p, "optim.aux_lr");
        TEST_TRY(pl_json_next(&p));
        if (matrix) ok = ok && p.token == PL_JSON_STRING && pl_json_is(&p, "a\"b\\c, *");
        if (lr) ok = ok && p.number == 3e-4;
    }
    TEST_TRY(pl_json_need(&p, PL_JSON_END));
    test_true("JSON of every key", ok && keys == toy_schema.key_count && !strchr(json, '\n'), "%lld keys",
              (long long)keys);
    pl_free(json);
    pl_config_destroy(c);
    pl_config_destroy(d);
}

static polar_status use_all(void)
{
    pl_config *c = NULL, *d = NULL;
    char *a = NULL, *b = NULL, id[PL_RUN_ID_CHARS];
    polar_status st = pl_config_create(&c, &toy_schema);
    if (st == POLAR_OK) st = pl_config_assign(c, "model.width=32");
    if (st == POLAR_OK) st = pl_config_copy(&d, c);
    if (st == POLAR_OK) st = pl_config_canonical(&a, d, 1);
    if (st == POLAR_OK) st = pl_config_json(&b, d);
    if (st == POLAR_OK) st = pl_config_run_id(id, d, 1);
    pl_free(a);
    pl_free(b);
    pl_config_destroy(c);
    pl_config_destroy(d);
    return st;
}

/* Ids that stores hold already: new keys, and defaults written out, change none of them. */
static void test_old_ids(void)
{
    static const struct {
        const pl_schema *schema;
        const char *set, *id;
        int64_t seed;
    } runs[] = {
        {&pl_so3_schema, "optim.rule=adamw map.rounding=reference", "9c5c9e6f3a178817a5de54a3e78d61ef", 0},
        {&pl_so3_schema, "optim.rule=muon map.rounding=reference", "3d934ad5bda6e6447f5e6118a29882cb", 0},
        {&pl_so3_schema, "optim.rule=polaradamw map.rounding=reference optim.beta1=0.95",
         "161148116e9fc895d6322ea821a05ca8", 0},
        {&pl_deit_schema, "optim.rule=adamw optim.lr=5e-4 map.rounding=reference",
         "6a8a355d51b2d458e021685fd0adae23", 42},
        {&pl_deit_schema, "optim.rule=muon optim.lr=5e-3 optim.weight_decay=0 map.rounding=reference",
         "69643bbd0579436a691d026fa4e73298", 42},
        {&pl_deit_schema, "optim.rule=muon map.rounding=reference data.recipe=deit model.drop_path=0.1",
         "278d00d39fbf37e6514d8cc901dd6f2e", 42},
    };
    static const char *const written[] = {"train.schedule=step route.no_decay=",
                                          "train.schedule=step route.no_decay= train.last_batch=drop "
                                          "data.erase=const data.test_filter=bilinear"};
    int64_t wrong = 0, same = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char set[400], id[PL_RUN_ID_CHARS];
        for (int more = 0; more < 2; more++) {
            snprintf(set, sizeof set, "%s%s%s", runs[i].set, more ? " " : "",
                     more ? written[runs[i].schema == &pl_deit_schema] : "");
            pl_config *c = configure(runs[i].schema, set);
            TEST_TRY(pl_config_run_id(id, c, runs[i].seed));
            wrong += strcmp(id, runs[i].id) != 0;
            pl_config_destroy(c);
        }
        snprintf(set, sizeof set, "%s train.schedule=epoch", runs[i].set);
        pl_config *c = configure(runs[i].schema, set);
        TEST_TRY(pl_config_run_id(id, c, runs[i].seed));
        same += !strcmp(id, runs[i].id);
        pl_config_destroy(c);
    }
    test_exact("ids of runs that were made before the newest keys", wrong);
    test_exact("... and others where a new key says so", same);
}

static void test_faults(void)
{
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0;
    for (; st != POLAR_OK && n < 1000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = use_all();
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && st != POLAR_E_NOMEM;
    }
    test_true("memory runs out at every allocation",
              PART(st == POLAR_OK) && PART(n > 5) && PART(!leaks) && PART(!wrong),
              "%lld allocations, %lld leaks", (long long)n - 1, (long long)leaks);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    test_canonical();
    test_new_key();
    test_places();
    test_deit_defaults();
    test_ids();
    test_old_ids();
    test_refusals();
    test_getters();
    test_faults();
    return test_end();
}
