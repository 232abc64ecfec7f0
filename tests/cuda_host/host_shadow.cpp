/* host_shadow.cpp -- the last accesses to every byte that threads share, and what is said of two that nothing
 * orders (host_race.h); the functions that -fsanitize=thread calls.
 *
 * A page of 4096 bytes has a cell for each 4 bytes, and, once an access is narrower, for 2 or 1. A cell has
 * the last write and up to READS reads that do not know of each other (beyond that one gives way), each as a
 * stamp, who and when:
 *
 *     launch (12 bits), cluster (18), who in it (14), its count (20)
 *
 * Invariants
 *  1. Shared memory's cells are those of one cluster: stamps of another launch or cluster count as none.
 *  2. Memory that is neither shared nor given out by cudaMalloc is not looked at.
 */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <set>

#include "host_race.h"

namespace cuda_host
{
namespace race
{

constexpr int PAGE_BITS = 12, GRID_BITS = 12, CLUSTER_BITS = 18, WHO_BITS = 14, COUNT_BITS = 20;
constexpr size_t PAGE = 1 << PAGE_BITS, READS = 8, SITES = 1 << 14;

struct access {
    uint64_t stamp; /* 0: none */
    uint16_t site_how;
};

struct cell {
    uint64_t write, read;
    uint16_t write_site, read_site; /* 4 times a site, and how */
    uint32_t more;                  /* reads: 0, or one more than their place */
};

enum space { UNKNOWN, IGNORED, SHARED, GLOBAL };

struct page {
    space in = UNKNOWN;
    int shift = 2;
    cell *cells = nullptr;
};

typedef std::array<access, READS - 1> readers;

struct area {
    const char *begin;
    size_t bytes;
    bool dynamic;
};

static struct memory {
    std::unordered_map<uintptr_t, page> pages;
    struct {
        uintptr_t number = 0;
        page *is = nullptr;
    } recent[1024];
    std::deque<readers> more;
    std::vector<uint32_t> free_more;
    std::vector<area> areas;
    std::unordered_map<const void *, uint16_t> site_numbers;
    std::vector<const void *> sites{nullptr};
    std::unordered_map<uint32_t, grid *> grids;
    std::set<std::array<uint32_t, 3>> told;
    int races = 0;
} &all = *new memory;

/* ---- stamps ------------------------------------------------------------------------------------- */

struct stamp_parts {
    uint32_t grid, cluster, who, count;
};

static stamp_parts parts_of(uint64_t s)
{
    return {(uint32_t)(s >> (CLUSTER_BITS + WHO_BITS + COUNT_BITS)),
            (uint32_t)(s >> (WHO_BITS + COUNT_BITS)) & ((1u << CLUSTER_BITS) - 1),
            (uint32_t)(s >> COUNT_BITS) & ((1u << WHO_BITS) - 1), (uint32_t)s & ((1u << COUNT_BITS) - 1)};
}

uint64_t stamp_of(const group *in, uint32_t who, uint32_t count)
{
    if (in->number >> CLUSTER_BITS || who >> WHO_BITS || count >> COUNT_BITS)
        stop("more blocks, threads or waits than the race detector can tell apart");
    return (uint64_t)in->in->number << (CLUSTER_BITS + WHO_BITS + COUNT_BITS) |
           (uint64_t)in->number << (WHO_BITS + COUNT_BITS) | (uint64_t)who << COUNT_BITS | count;
}

static bool same_actor(uint64_t a, uint64_t b)
{
    return (a ^ b) >> COUNT_BITS == 0;
}

static uint16_t site_of(const void *pc)
{
    auto found = all.site_numbers.find(pc);
    if (found != all.site_numbers.end()) return found->second;
    uint16_t n = all.sites.size() < SITES ? (uint16_t)all.sites.size() : 0;
    if (n) all.sites.push_back(pc);
    return all.site_numbers[pc] = n;
}

/* ---- launches ----------------------------------------------------------------------------------- */

grid *grid_of(uint32_t number)
{
    auto found = all.grids.find(number);
    return found == all.grids.end() ? nullptr : found->second;
}

void grids_keep(grid *latest)
{
    if (!latest) {
        for (auto &g : all.grids) delete g.second;
        all.grids.clear();
    } else all.grids[latest->number] = latest;
}

void forget_all()
{
    for (auto &p : all.pages) free(p.second.cells);
    all.pages.clear();
    for (auto &r : all.recent) r.is = nullptr;
    all.more.clear();
    all.free_more.clear();
}

/* ---- pages -------------------------------------------------------------------------------------- */

void memory_is_new(const void *at, size_t bytes)
{
    if (!on) return;
    for (uintptr_t n = (uintptr_t)at >> PAGE_BITS; n <= ((uintptr_t)at + bytes - 1) >> PAGE_BITS; n++) {
        auto found = all.pages.find(n);
        if (found == all.pages.end()) continue;
        free(found->second.cells);
        found->second = page();
    }
}

static __thread const char *own_stacks; /* what is there is not shared */
static __thread size_t own_stack_bytes;

void shared_areas(const char *dynamic, const char *in_statics, const char *stacks, size_t stack_bytes)
{
    if (!on) return;
    own_stacks = stacks, own_stack_bytes = stack_bytes;
    struct search {
        const char *in;
        area found;
    } statics = {in_statics, {in_statics, 1, false}};
    dl_iterate_phdr(
        [](struct dl_phdr_info *info, size_t, void *to) {
            search *look = (search *)to;
            const char *from = (const char *)info->dlpi_tls_data;
            for (int i = 0; from && i < info->dlpi_phnum; i++) {
                size_t bytes = info->dlpi_phdr[i].p_memsz;
                if (info->dlpi_phdr[i].p_type == PT_TLS && look->in >= from && look->in < from + bytes)
                    look->found = {from, bytes, false};
            }
            return 0;
        },
        &statics);
    turn_take();
    all.areas.push_back({dynamic, SHARED_MOST, true});
    all.areas.push_back(statics.found);
    turn_give();
}

static const area *area_of(const void *at)
{
    for (const area &a : all.areas)
        if ((const char *)at >= a.begin && (const char *)at < a.begin + a.bytes) return &a;
    return nullptr;
}

static space space_of(const void *at)
{
    struct cudaPointerAttributes attributes;
    uintptr_t first = (uintptr_t)at & ~(PAGE - 1);
    for (const area &a : all.areas)
        if ((uintptr_t)a.begin < first + PAGE && (uintptr_t)a.begin + a.bytes > first) return SHARED;
    for (uintptr_t p : {(uintptr_t)at, first, first + PAGE - 1}) { /* an allocation ends near a page's end */
        cudaPointerGetAttributes(&attributes, (const void *)p);
        if (attributes.type != cudaMemoryTypeUnregistered) return GLOBAL;
    }
    return IGNORED;
}

static page *page_of(const void *at)
{
    uintptr_t n = (uintptr_t)at >> PAGE_BITS;
    auto &slot = all.recent[n % 1024];
    if (!slot.is || slot.number != n) slot = {n, &all.pages[n]};
    page *p = slot.is;
    if (p->in == UNKNOWN) {
        p->in = space_of(at);
        if (p->in != IGNORED) p->cells = (cell *)calloc(PAGE >> p->shift, sizeof(cell));
    }
    return p;
}

static void refine(page *p, int shift)
{
    size_t times = (size_t)1 << (p->shift - shift), n = PAGE >> shift;
    cell *finer = (cell *)malloc(n * sizeof *finer);
    for (size_t i = 0; i < n; i++) {
        finer[i] = p->cells[i / times];
        if (i % times && finer[i].more) {
            all.more.push_back(all.more[finer[i].more - 1]);
            finer[i].more = (uint32_t)all.more.size();
        }
    }
    free(p->cells);
    p->cells = finer, p->shift = shift;
}

/* ---- reports ------------------------------------------------------------------------------------ */

/* What addr2line says of a place in the program: function, FILE:LINE, and those that it is inlined into. */
static std::vector<std::string> lines_of(uintptr_t pc, bool behind_a_call)
{
    static char exe[4096];
    static struct dl_phdr_info self;
    if (!*exe) {
        ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
        exe[n > 0 ? n : 0] = 0;
        dl_iterate_phdr([](struct dl_phdr_info *i, size_t, void *to) { return *(dl_phdr_info *)to = *i, 1; },
                        &self);
    }
    char command[4400], line[4096];
    std::vector<std::string> lines;
    snprintf(command, sizeof command, "addr2line -f -C -i -e '%s' 0x%zx 2>/dev/null", exe,
             (size_t)(pc - self.dlpi_addr - behind_a_call));
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        lines.push_back(line);
    }
    if (f) pclose(f);
    return lines;
}

/* FILE:LINE, and the two that it is inlined into; the stand-ins for CUDA's own functions are passed over. */
static std::string place_of(const void *pc)
{
    std::string text;
    int deep = 0;
    std::vector<std::string> lines = lines_of((uintptr_t)pc, true);
    for (size_t i = 1; i < lines.size() && deep < 3; i += 2) {
        std::string at = lines[i].substr(0, lines[i].find(" ("));
        if (at.find("/cuda_host/include/") != std::string::npos || at[0] == '?') continue;
        text += (deep++ ? " < " : "") + at.substr(at.rfind('/') + 1);
    }
    return deep ? text : "an unknown place";
}

static std::string kernel_name(const grid *g)
{
    std::vector<std::string> lines = lines_of((uintptr_t)g->what.kernel, false);
    std::string name = lines.empty() ? "??" : lines[0];
    size_t list = name.find(">("); /* template arguments may have brackets of their own */
    name = name.substr(0, list != std::string::npos ? list + 1 : name.find('('));
    size_t space = name.find("::");
    if (space != std::string::npos && space < name.find('<')) name = name.substr(space + 2);
    return name == "??" ? "a kernel" : name;
}

static std::string name_of(const stamp_parts &s)
{
    const grid *g = grid_of(s.grid);
    if (!g) return "somebody";
    uint32_t size = (uint32_t)g->what.cluster, threads = g->what.block.x * g->what.block.y * g->what.block.z;
    if (s.who < size * threads)
        return "thread " + std::to_string(s.who % threads) + " of block " +
               std::to_string(s.cluster * size + s.who / threads);
    auto found = g->others.find((uint64_t)s.cluster << 32 | s.who);
    std::string block = size == 1 ? " of block " + std::to_string(s.cluster) : "";
    return (found == g->others.end() ? "a copy" : found->second) + block;
}

static std::string memory_of(const void *at)
{
    char text[96];
    const area *a = area_of(at);
    if (a)
        snprintf(text, sizeof text, "%s shared memory at %zu", a->dynamic ? "dynamic" : "static",
                 (size_t)((const char *)at - a->begin));
    else snprintf(text, sizeof text, "device memory at %p", at);
    return text;
}

static const char *remedy(const asker &a, const stamp_parts &now_, const stamp_parts &then, bool proxy)
{
    const grid *g = a.in->in;
    uint32_t threads = g->what.block.x * g->what.block.y * g->what.block.z;
    if (proxy) return "no fence.proxy.async lies between";
    if (then.grid != now_.grid) return "it begins before that one ends: no griddepcontrol.wait lies between";
    if (then.cluster != now_.cluster) return "blocks run side by side: no release and acquire lies between";
    if (then.who > a.in->threads) return "it was not waited for";
    if (now_.who > a.in->threads) return "its issue comes after nothing that orders them";
    if (then.who / threads != now_.who / threads) return "no barrier of the cluster lies between";
    if (then.who / 32 == now_.who / 32) return "no __syncwarp and no barrier lies between";
    return "no barrier lies between";
}

static void finish()
{
    if (!all.races) return;
    fprintf(stderr, "cuda_host: %d races\n", all.races);
    fflush(nullptr);
    _exit(9);
}

static void report(const asker &a, const void *at, size_t bytes, bool write, uint16_t site, uint64_t then,
                   uint16_t then_site, bool wrote, bool proxy)
{
    std::array<uint32_t, 3> key = {site, (uint32_t)(then_site / 4),
                                   (uint32_t)(write + 2 * wrote + 4 * proxy)};
    if (!all.told.insert(key).second) return;
    stamp_parts n = parts_of(a.stamp), t = parts_of(then);
    const grid *g = a.in->in, *before = grid_of(t.grid);
    if (!all.races++) atexit(finish);
    std::string earlier = before && before != g ? " in " + kernel_name(before) : "";
    fprintf(stderr, "cuda_host: race in %s: %s %s %zu bytes of %s (%s) that %s%s %s (%s): %s\n",
            kernel_name(g).c_str(), name_of(n).c_str(), write ? "writes" : "reads", bytes,
            memory_of(at).c_str(), place_of(all.sites[site]).c_str(), name_of(t).c_str(), earlier.c_str(),
            wrote ? "wrote" : "read", place_of(all.sites[then_site / 4]).c_str(), remedy(a, n, t, proxy));
}

/* CUDA_HOST_EARLY=1: any access of a kernel that begins early, before its wait, whatever was before it. */
static void report_early(const asker &a, const void *at, size_t bytes, bool write, const void *pc)
{
    static const char *const wanted = getenv("CUDA_HOST_EARLY");
    if (!wanted || *wanted != '1' || !a.in->in->what.early || after_launches(a)) return;
    uint16_t site = site_of(pc);
    if (!all.told.insert({site, 0, (uint32_t)(8 + write)}).second) return;
    if (!all.races++) atexit(finish);
    fprintf(stderr, "cuda_host: early: %s: %s %s %zu bytes of %s (%s) before griddepcontrol.wait\n",
            kernel_name(a.in->in).c_str(), name_of(parts_of(a.stamp)).c_str(), write ? "writes" : "reads",
            bytes, memory_of(at).c_str(), place_of(pc).c_str());
}

/* ---- accesses ----------------------------------------------------------------------------------- */

/* The earlier one is none any more, or happened before, as far as this view goes. */
static bool ordered(const asker &a, uint64_t then, space in, view v)
{
    uint64_t differ = (then ^ a.stamp) >> COUNT_BITS;
    stamp_parts t = parts_of(then);
    if (differ >> WHO_BITS) {
        if (in == SHARED) return true;
        if (t.grid != a.in->in->number) {
            const std::vector<uint32_t> &beside =
                after_launches(a) ? a.in->in->after_wait : a.in->in->at_begin;
            for (uint32_t n : beside)
                if (n == t.grid) return false;
            return true;
        }
        return count_of(a.sees->of[v], t.cluster, t.who) >= t.count;
    }
    if (t.who == a.self) return v == ORDER || t.count <= a.own[v];
    return count_of(a.sees->of[v], t.who) >= t.count;
}

static void remember_read(const asker &a, cell *c, space in, uint16_t site_how)
{
    auto gives_way = [&](uint64_t stamp, uint16_t how) {
        return !stamp || same_actor(stamp, a.stamp) ||
               ((how & ASYNC) == (site_how & ASYNC) && ordered(a, stamp, in, ORDER));
    };
    if (gives_way(c->read, c->read_site)) {
        c->read = a.stamp, c->read_site = site_how;
        return;
    }
    if (!c->more) {
        if (all.free_more.empty()) {
            all.more.push_back({});
            c->more = (uint32_t)all.more.size();
        } else {
            c->more = all.free_more.back();
            all.free_more.pop_back();
            all.more[c->more - 1] = {};
        }
    }
    readers &r = all.more[c->more - 1];
    for (access &x : r)
        if (gives_way(x.stamp, x.site_how)) {
            x = {a.stamp, site_how};
            return;
        }
    r[(a.stamp >> COUNT_BITS) % r.size()] = {a.stamp, site_how};
}

static void touch_cell(const asker &a, cell *c, space in, const void *at, size_t bytes, bool write,
                       uint16_t site)
{
    uint16_t site_how = (uint16_t)(site * 4 + a.how);
    auto both_atomic = [&](uint16_t how) { return (how & ATOMIC) && (a.how & ATOMIC); };
    if (c->write && !both_atomic(c->write_site)) {
        view fenced = in == SHARED ? PROXY_SHARED : PROXY_ALL;
        if (!ordered(a, c->write, in, ORDER))
            report(a, at, bytes, write, site, c->write, c->write_site, true, false);
        else if ((a.how & ASYNC) && !(c->write_site & ASYNC) && parts_of(c->write).grid == a.in->in->number &&
                 !ordered(a, c->write, in, fenced))
            report(a, at, bytes, write, site, c->write, c->write_site, true, true);
    }
    if (!write) return remember_read(a, c, in, site_how);
    if (c->read && !both_atomic(c->read_site) && !ordered(a, c->read, in, ORDER))
        report(a, at, bytes, true, site, c->read, c->read_site, false, false);
    if (c->more) {
        for (const access &x : all.more[c->more - 1])
            if (x.stamp && !both_atomic(x.site_how) && !ordered(a, x.stamp, in, ORDER))
                report(a, at, bytes, true, site, x.stamp, x.site_how, false, false);
        all.free_more.push_back(c->more);
    }
    *c = {a.stamp, 0, site_how, 0, 0};
}

void touch(const asker &a, const void *at, size_t bytes, bool write, const void *pc)
{
    uintptr_t p = (uintptr_t)at, end = p + bytes;
    uint16_t site = 0;
    while (p < end) {
        page *in = page_of((const void *)p);
        uintptr_t next = (p | (PAGE - 1)) + 1, stop_at = end < next ? end : next;
        if (in->in == IGNORED) {
            p = stop_at;
            continue;
        }
        if (in->in == GLOBAL && a.in->in->what.early) report_early(a, (const void *)p, bytes, write, pc);
        int narrow = __builtin_ctz((unsigned)(p | stop_at | 4));
        if (narrow < in->shift) refine(in, narrow);
        for (; p < stop_at; p += (uintptr_t)1 << in->shift) {
            cell *c = &in->cells[(p & (PAGE - 1)) >> in->shift];
            bool again = a.self != NOBODY && (c->read_site & 3) == a.how; /* the same as its last */
            if (!write && again && c->read == a.stamp && !c->more) continue;
            if (write && c->write == a.stamp && (c->write_site & 3) == a.how && !c->read) continue;
            if (!site) site = site_of(pc);
            touch_cell(a, c, in->in, (const void *)p, bytes, write, site);
        }
    }
}

void touch_as(unsigned how, const void *at, size_t bytes, bool write)
{
    if (!on || !now) return;
    actor *a = now->clock;
    asker as = {a->in, &a->sees, a->own, a->self, a->plain.stamp, how};
    touch(as, at, bytes, write, a->pc);
}

} // namespace race
} // namespace cuda_host

/* ---- what the compiler calls -------------------------------------------------------------------- */

using namespace cuda_host;

/* Of the host's own code nothing. */
static inline void plain(const void *at, size_t bytes, bool write, const void *pc)
{
    if (!now || (size_t)((const char *)at - race::own_stacks) < race::own_stack_bytes) return;
    race::actor *a = now->clock;
    race::asker as = {a->in, &a->sees, a->own, a->self, a->plain.stamp, 0};
    race::touch(as, at, bytes, write, pc);
}

extern "C" {

#define ACCESS(name, bytes, write)                            \
    void __tsan_##name(void *at);                             \
    void __tsan_##name(void *at)                              \
    {                                                         \
        plain(at, bytes, write, __builtin_return_address(0)); \
    }
#define ACCESSES(bytes)                         \
    ACCESS(read##bytes, bytes, false)           \
    ACCESS(write##bytes, bytes, true)           \
    ACCESS(unaligned_read##bytes, bytes, false) \
    ACCESS(unaligned_write##bytes, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
    plain(at, bytes, false, __builtin_return_address(0));
}

void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
    plain(at, bytes, true, __builtin_return_address(0));
}

/* Whether a static object has been made: an assembly text, of which threads know nothing. */
unsigned char __tsan_atomic8_load(const volatile unsigned char *at, int);
unsigned char __tsan_atomic8_load(const volatile unsigned char *at, int)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

void __tsan_init(void);
void __tsan_init(void)
{
    race::on = true;
}
}
