/* image_folder.c -- walks the folders, sorts, and tells what is wrong with them. */
#include "data/set/image_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/codec/image_decode.h"
#include "data/codec/image_file.h"

#define MAX_PATH  4096
#define MAX_DEPTH 16 /* folders within a class */

/* torchvision's; those we cannot read are told when read */
static const char *const endings[] = {".jpg", ".jpeg", ".png",  ".ppm",  ".bmp",
                                      ".pgm", ".tif",  ".tiff", ".webp", NULL};

/* ---- names -------------------------------------------------------------------------------------- */

static polar_status keep_name(size_t *at, pl_image_folder *f, const char *name)
{
    size_t n = strlen(name) + 1;
    if (n > f->names_room - f->names_used) {
        size_t room = 2 * f->names_room + n + 4096;
        char *grown = pl_realloc(f->names, f->names_room, room);
        PL_NEED(grown, POLAR_E_NOMEM, "%zu bytes of file names", room);
        f->names = grown;
        f->names_room = room;
    }
    *at = f->names_used;
    memcpy(f->names + f->names_used, name, n);
    f->names_used += n;
    return POLAR_OK;
}

static polar_status keep_item(pl_image_folder *f, int split, const char *folder, const char *name,
                              int64_t label)
{
    char path[MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    PL_NEED(n < MAX_PATH, POLAR_E_ARG, "a file's name under '%s' is longer than %d bytes", f->root, MAX_PATH);
    if (f->count[split] == f->room[split]) {
        int64_t room = 2 * f->room[split] + 256;
        pl_image_item *grown =
            pl_realloc(f->items[split], (size_t)f->room[split] * sizeof *grown, (size_t)room * sizeof *grown);
        PL_NEED(grown, POLAR_E_NOMEM, "a list of %lld pictures", (long long)room);
        f->items[split] = grown;
        f->room[split] = room;
    }
    pl_image_item it = {.folder = (int32_t)strlen(folder), .label = (int32_t)label};
    PL_TRY(keep_name(&it.at, f, path));
    f->items[split][f->count[split]++] = it;
    return POLAR_OK;
}

/* By folder, then by name, each as bytes: the order of sorted(os.walk()) and sorted(names). */
static int compare_items(const void *a, const void *b, void *names)
{
    const pl_image_item *p = a, *q = b;
    const char *s = (const char *)names + p->at, *t = (const char *)names + q->at;
    int shorter = p->folder < q->folder ? p->folder : q->folder, c = memcmp(s, t, (size_t)shorter);
    if (c) return c;
    if (p->folder != q->folder) return p->folder < q->folder ? -1 : 1;
    return strcmp(s + p->folder, t + q->folder);
}

/* ---- folders ------------------------------------------------------------------------------------ */

static int looks_like_picture(const char *path, const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && endings[i]; i++)
        if (!strcasecmp(dot, endings[i])) return 1;
    uint8_t head[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0) close(fd);
    return n > 0 && pl_image_sniff(head, (size_t)n) != PL_IMAGE_OTHER;
}

/* The next name that is not hidden; NULL at the end, or with *st where the folder cannot be read on. */
static struct dirent *next_entry(polar_status *st, DIR *d, const char *root, const char *folder)
{
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno)
            *st = PL_FAIL(POLAR_E_IO, "read the folder '%s/%s': %s", root, folder, strerror(errno));
        if (!e || e->d_name[0] != '.') return e;
    }
}

/* stat failed on a name that is there: a link whose target was moved away is the user's to mend, the rest the
 * machine's. */
static polar_status not_there(const char *path)
{
    int link = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    if (link) return PL_FAIL(POLAR_E_ARG, "'%s' is a link that leads nowhere (was its target moved?)", path);
    return PL_FAIL(POLAR_E_IO, "'%s': %s", path, strerror(errno));
}

/* `folder` is below the root: "train/cat". */
static polar_status walk(pl_image_folder *f, int split, const char *folder, int64_t label, int depth)
{
    char path[MAX_PATH], inner[MAX_PATH];
    polar_status st = POLAR_OK;
    PL_NEED(depth <= MAX_DEPTH, POLAR_E_ARG, "'%s/%s' is %d folders deep (a link in a circle?)", f->root,
            folder, depth);
    PL_NEED(snprintf(path, sizeof path, "%s/%s", f->root, folder) < MAX_PATH, POLAR_E_ARG,
            "the name of '%s/%s' is too long", f->root, folder);
    DIR *d = opendir(path);
    PL_NEED(d, POLAR_E_IO, "open '%s': %s", path, strerror(errno));
    for (struct dirent *e; st == POLAR_OK && (e = next_entry(&st, d, f->root, folder));) {
        struct stat s;
        if (snprintf(path, sizeof path, "%s/%s/%s", f->root, folder, e->d_name) >= MAX_PATH)
            st = PL_FAIL(POLAR_E_ARG, "a name under '%s/%s' is too long", f->root, folder);
        else if (e->d_type != DT_REG && stat(path, &s) != 0) st = not_there(path);
        else if (e->d_type != DT_REG && S_ISDIR(s.st_mode)) {
            snprintf(inner, sizeof inner, "%s/%s", folder, e->d_name);
            st = walk(f, split, inner, label, depth + 1);
        } else if ((e->d_type == DT_REG || S_ISREG(s.st_mode)) && looks_like_picture(path, e->d_name))
            st = keep_item(f, split, folder, e->d_name, label);
        else f->passed_over++;
    }
    closedir(d);
    return st;
}

static int compare_names(const void *a, const void *b, void *names)
{
    return strcmp((const char *)names + *(const size_t *)a, (const char *)names + *(const size_t *)b);
}

/* The class folders of a split, sorted. */
static polar_status list_classes(size_t **out, int64_t *count, pl_image_folder *f, const char *split)
{
    char path[MAX_PATH];
    polar_status st = POLAR_OK;
    size_t *at = NULL;
    int64_t n = 0, room = 0;
    *out = NULL;
    PL_NEED(snprintf(path, sizeof path, "%s/%s", f->root, split) < MAX_PATH, POLAR_E_ARG,
            "the name '%s' is too long", f->root);
    DIR *d = opendir(path);
    PL_NEED(d, POLAR_E_IO, "open '%s': %s", path, strerror(errno));
    for (struct dirent *e; st == POLAR_OK && (e = next_entry(&st, d, f->root, split));) {
        struct stat s;
        if (snprintf(path, sizeof path, "%s/%s/%s", f->root, split, e->d_name) >= MAX_PATH) {
            st = PL_FAIL(POLAR_E_ARG, "a name under '%s/%s' is too long", f->root, split);
            break;
        }
        if (e->d_type != DT_DIR && stat(path, &s) != 0) {
            st = not_there(path);
            break;
        }
        if (e->d_type != DT_DIR && !S_ISDIR(s.st_mode)) {
            f->passed_over++;
            continue;
        }
        if (n == room) {
            size_t *grown = pl_realloc(at, (size_t)room * sizeof *at, (size_t)(2 * room + 64) * sizeof *at);
            if (!grown) {
                st = PL_FAIL(POLAR_E_NOMEM, "a list of classes");
                break;
            }
            at = grown;
            room = 2 * room + 64;
        }
        st = keep_name(&at[n++], f, e->d_name);
    }
    closedir(d);
    if (st == POLAR_OK && !n)
        st = PL_FAIL(POLAR_E_ARG, "'%s/%s' holds no class folders: pictures go into %s/<class>/", f->root,
                     split, split);
    if (st == POLAR_OK) {
        qsort_r(at, (size_t)n, sizeof *at, compare_names, f->names);
        *out = at;
        *count = n;
    } else pl_free(at);
    return st;
}

/* Both lists are sorted: the first name that only one of them has. */
static polar_status same_classes(const pl_image_folder *f, const size_t *test, int64_t n_test)
{
    const char *a = f->split_name[PL_IMAGES_TRAIN], *b = f->split_name[PL_IMAGES_TEST];
    for (int64_t i = 0, j = 0; i < f->classes || j < n_test; i++, j++) {
        const char *p = i < f->classes ? f->names + f->class_at[i] : NULL,
                   *q = j < n_test ? f->names + test[j] : NULL;
        int c = !p ? 1 : !q ? -1 : strcmp(p, q);
        PL_NEED(c <= 0, POLAR_E_ARG, "class '%s' is in %s/ but not in %s/ of '%s'", q, b, a, f->root);
        PL_NEED(c >= 0, POLAR_E_ARG, "class '%s' is in %s/ but not in %s/ of '%s'", p, a, b, f->root);
    }
    return POLAR_OK;
}

static polar_status read_split(pl_image_folder *f, int split)
{
    char folder[MAX_PATH];
    for (int64_t c = 0; c < f->classes; c++) {
        int64_t before = f->count[split];
        snprintf(folder, sizeof folder, "%s/%s", f->split_name[split], pl_image_folder_class(f, c));
        PL_TRY(walk(f, split, folder, c, 1));
        PL_NEED(f->count[split] > before, POLAR_E_ARG,
                "'%s/%s' holds no JPEG or PNG picture (fill the class or remove its folder)", f->root,
                folder);
        qsort_r(f->items[split] + before, (size_t)(f->count[split] - before), sizeof *f->items[split],
                compare_items, f->names);
    }
    return POLAR_OK;
}

/* ---- a heap of pictures with a list of their classes -------------------------------------------- */

/* The number of a class, -1 for none. */
static int64_t find_class(const pl_image_folder *f, const char *name)
{
    int64_t low = 0, high = f->classes;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int c = strcmp(pl_image_folder_class(f, middle), name);
        if (!c) return middle;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

static int compare_labels(const void *a, const void *b, void *names)
{
    const pl_image_item *p = a, *q = b;
    if (p->label != q->label) return p->label < q->label ? -1 : 1;
    return compare_items(a, b, names);
}

/* One line of the list: "val_0.JPEG<tab>n03444034<tab>0<tab>32<tab>44<tab>62". */
static polar_status read_annotation(pl_image_folder *f, int split, char *line, const char *list)
{
    char folder[64], path[MAX_PATH];
    char *name = line, *class = strchr(line, '\t');
    PL_NEED(class, POLAR_E_ARG, "'%s': '%.80s' is no file name, tab, class", list, line);
    *class ++ = 0;
    class[strcspn(class, "\t\r")] = 0;
    int64_t label = find_class(f, class);
    PL_NEED(label >= 0, POLAR_E_ARG, "'%s': class '%.80s' of '%.80s' is not in train/", list, class, name);
    snprintf(folder, sizeof folder, "%s/images", f->split_name[split]);
    PL_NEED(*name && !strchr(name, '/') &&
                snprintf(path, sizeof path, "%s/%s/%s", f->root, folder, name) < MAX_PATH &&
                access(path, F_OK) == 0,
            POLAR_E_ARG, "'%s' names '%.80s', which is not in %s/", list, name, folder);
    return keep_item(f, split, folder, name, label);
}

static polar_status read_annotations(pl_image_folder *f, int split, char *text, const char *list)
{
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        if (*line && *line != '\r') PL_TRY(read_annotation(f, split, line, list));
    }
    qsort_r(f->items[split], (size_t)f->count[split], sizeof *f->items[split], compare_labels, f->names);
    int64_t i = 0;
    for (int64_t c = 0; c < f->classes; c++) {
        PL_NEED(i < f->count[split] && f->items[split][i].label == c, POLAR_E_ARG,
                "'%s' has no picture of class '%s'", list, pl_image_folder_class(f, c));
        while (i < f->count[split] && f->items[split][i].label == c) i++;
    }
    return POLAR_OK;
}

/* Tiny-ImageNet's val/: val/images/ and val/val_annotations.txt, if that is what there is. */
static polar_status read_listed(pl_image_folder *f, int split)
{
    char list[MAX_PATH];
    const char *name = f->split_name[split];
    pl_file_bytes b = {0};
    int n = snprintf(list, sizeof list, "%s/%s/%s_annotations.txt", f->root, name, name);
    f->listed = n < MAX_PATH && access(list, F_OK) == 0;
    if (!f->listed) return POLAR_OK;
    polar_status st = pl_file_bytes_read(&b, list, 0);
    char *text = st == POLAR_OK ? pl_alloc(b.size + 1) : NULL;
    if (st == POLAR_OK && !text) st = PL_FAIL(POLAR_E_NOMEM, "the list '%s'", list);
    if (text) {
        memcpy(text, b.data, b.size);
        text[b.size] = 0;
        st = read_annotations(f, split, text, list);
    }
    pl_free(text);
    pl_file_bytes_drop(&b);
    return st;
}

static polar_status find_splits(pl_image_folder *f)
{
    static const char *const wanted[] = {"train", "val", "test"};
    int there[3];
    struct stat s;
    if (stat(f->root, &s) != 0) {
        int none = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG;
        return PL_FAIL(none ? POLAR_E_ARG : POLAR_E_IO,
                       "no folder '%s': %s (give the one that holds train/ and val/)", f->root,
                       strerror(errno));
    }
    PL_NEED(S_ISDIR(s.st_mode), POLAR_E_ARG,
            "'%s' is a file, no folder (give the one that holds train/ and val/)", f->root);
    for (int i = 0; i < 3; i++) {
        char path[MAX_PATH];
        PL_NEED(snprintf(path, sizeof path, "%s/%s", f->root, wanted[i]) < MAX_PATH, POLAR_E_ARG,
                "the name '%s' is too long", f->root);
        int known = stat(path, &s) == 0;
        PL_NEED(known || errno == ENOENT || errno == ENOTDIR || errno == ELOOP, POLAR_E_IO, "'%s': %s", path,
                strerror(errno));
        there[i] = known && S_ISDIR(s.st_mode);
    }
    PL_NEED(there[0], POLAR_E_ARG,
            "'%s' holds no train/ (give the folder that holds train/ and val/, with one sub-folder per class "
            "in each)",
            f->root);
    PL_NEED(there[1] || there[2], POLAR_E_ARG, "'%s' holds train/ but neither val/ nor test/", f->root);
    f->split_name[PL_IMAGES_TRAIN] = wanted[0];
    f->split_name[PL_IMAGES_TEST] = wanted[there[1] ? 1 : 2];
    return POLAR_OK;
}

static polar_status open_folder(pl_image_folder *f, const char *path)
{
    size_t *test = NULL;
    int64_t n_test = 0;
    f->root = pl_strdup(path);
    PL_NEED(f->root, POLAR_E_NOMEM, "the name of a folder");
    for (size_t n = strlen(f->root); n > 1 && f->root[n - 1] == '/'; n--) f->root[n - 1] = 0;
    PL_TRY(find_splits(f));
    PL_TRY(list_classes(&f->class_at, &f->classes, f, f->split_name[PL_IMAGES_TRAIN]));
    PL_TRY(read_split(f, PL_IMAGES_TRAIN));
    PL_TRY(read_listed(f, PL_IMAGES_TEST));
    if (f->listed) return POLAR_OK;
    PL_TRY(list_classes(&test, &n_test, f, f->split_name[PL_IMAGES_TEST]));
    polar_status st = same_classes(f, test, n_test);
    pl_free(test);
    return st == POLAR_OK ? read_split(f, PL_IMAGES_TEST) : st;
}

/* ---- entries ------------------------------------------------------------------------------------ */

polar_status pl_image_folder_open(pl_image_folder **out, const char *path)
{
    *out = NULL;
    pl_image_folder *f = pl_calloc(1, sizeof *f);
    PL_NEED(f, POLAR_E_NOMEM, "a folder of pictures");
    polar_status st = open_folder(f, path);
    if (st == POLAR_OK) *out = f;
    else pl_image_folder_close(f);
    return st;
}

void pl_image_folder_close(pl_image_folder *f)
{
    if (!f) return;
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) pl_free(f->items[s]);
    pl_free(f->class_at);
    pl_free(f->names);
    pl_free(f->root);
    pl_free(f);
}

const char *pl_image_folder_class(const pl_image_folder *f, int64_t label)
{
    return f->names + f->class_at[label];
}

const char *pl_image_folder_name(const pl_image_folder *f, pl_image_split split, int64_t i)
{
    return f->names + f->items[split][i].at;
}

polar_status pl_image_folder_path(char *out, size_t bytes, const pl_image_folder *f, pl_image_split split,
                                  int64_t i)
{
    const char *name = pl_image_folder_name(f, split, i);
    PL_NEED((size_t)snprintf(out, bytes, "%s/%s", f->root, name) < bytes, POLAR_E_ARG,
            "the name of '%s/%s' is too long", f->root, name);
    return POLAR_OK;
}

polar_status pl_image_folder_select(pl_image_folder *f, const int64_t *chosen, int64_t n)
{
    PL_NEED(n > 0, POLAR_E_ARG, "no class is chosen of '%s'", f->root);
    int32_t *label = pl_alloc((size_t)f->classes * sizeof *label); /* the new one, -1: not kept */
    PL_NEED(label, POLAR_E_NOMEM, "a list of classes");
    for (int64_t c = 0; c < f->classes; c++) label[c] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (chosen[i] >= 0 && chosen[i] < f->classes && label[chosen[i]] < 0) label[chosen[i]] = 0;
        else {
            pl_free(label);
            return PL_FAIL(POLAR_E_ARG, "class %lld of '%s', which has %lld, is chosen twice or is not there",
                           (long long)chosen[i], f->root, (long long)f->classes);
        }
    }
    int64_t kept = 0;
    for (int64_t c = 0; c < f->classes; c++)
        if (label[c] == 0) {
            label[c] = (int32_t)kept;
            f->class_at[kept++] = f->class_at[c];
        }
    f->classes = kept;
    for (int s = 0; s < PL_IMAGE_SPLITS; s++) {
        int64_t m = 0;
        for (int64_t i = 0; i < f->count[s]; i++) {
            pl_image_item it = f->items[s][i];
            it.label = label[it.label];
            if (it.label >= 0) f->items[s][m++] = it;
        }
        f->count[s] = m;
    }
    pl_free(label);
    return POLAR_OK;
}
