/* host_ptx.cpp -- assembly texts of kernels, read and done: loads and stores, mbarriers, copies, barriers;
 * those of tensor cores are in host_tensor.cpp.
 *
 * A text is statements, `@p name operands;`, with operands %k of the C++ statement, numbers, and names that
 * the text itself declares (.reg). Brackets and braces only group, so they are passed over: an instruction
 * gets its operands in the order of the text, and PTX's manual says what each is.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <string>
#include <vector>

#include "host_race.h"

namespace cuda_host
{

constexpr int LOCALS = 4;

struct statement {
    instruction *act;
    form how;
    int predicate; /* a local, or -1 */
    std::vector<source> operands;
};

/* ---- mbarriers ---------------------------------------------------------------------------------- */

/* 64 bits: the phase (1), the arrivals of a phase (20), those still to come (20), bytes to come (23, signed).
 */
struct mbarrier {
    uint64_t phase;
    int arrivals, pending, bytes;
};

static mbarrier unpack(uint64_t w)
{
    return {w >> 63, (int)(w >> 43 & 0xfffff), (int)(w >> 23 & 0xfffff), (int)(w & 0x7fffff) - (1 << 22)};
}

static uint64_t pack(mbarrier b)
{
    if (b.pending < 0) stop("more arrivals at an mbarrier than it was made for");
    if (b.bytes < -(1 << 22) || b.bytes >= 1 << 22) stop("an mbarrier counts more bytes than it can");
    return b.phase << 63 | (uint64_t)b.arrivals << 43 | (uint64_t)b.pending << 23 |
           (uint64_t)(b.bytes + (1 << 22));
}

template <class CHANGE> static void change(uint32_t address, CHANGE with)
{
    bool complete = false;
    void *at = shared_pointer(address);
    cuda_host_atomic((uint64_t *)at, [&](uint64_t w) {
        mbarrier b = unpack(w);
        with(b);
        complete = !b.pending && !b.bytes;
        if (complete) b.phase ^= 1, b.pending = b.arrivals;
        return pack(b);
    });
    if (complete) race::mbarrier_complete(at);
}

void mbarrier_bytes(uint32_t address, int bytes)
{
    change(address, [=](mbarrier &b) { b.bytes -= bytes; });
}

static void mbarrier_init(const operands &o, const form &)
{
    int n = o[1].as<int>();
    uint64_t w = pack({0, n, n, 0});
    race::mbarrier_init(shared_pointer(o[0].as<uint32_t>()));
    __atomic_store_n((uint64_t *)shared_pointer(o[0].as<uint32_t>()), w, __ATOMIC_SEQ_CST);
}

static void mbarrier_expect(const operands &o, const form &) /* _, [bar], bytes */
{
    int bytes = o[2].as<int>();
    race::mbarrier_arrive(shared_pointer(o[1].as<uint32_t>()));
    change(o[1].as<uint32_t>(), [=](mbarrier &b) { b.bytes += bytes, b.pending--; });
}

static void mbarrier_arrive(const operands &o, const form &) /* _, [bar] */
{
    race::mbarrier_arrive(shared_pointer(o[1].as<uint32_t>()));
    change(o[1].as<uint32_t>(), [](mbarrier &b) { b.pending--; });
}

static void mbarrier_wait(const operands &o, const form &) /* p, [bar], parity */
{
    auto *at = (uint64_t *)shared_pointer(o[1].as<uint32_t>());
    for (int tries = 0; tries < 2; tries++) {
        uint32_t phase = (uint32_t)(__atomic_load_n(at, __ATOMIC_SEQ_CST) >> 63);
        o[0].set<uint32_t>(phase != (o[2].as<uint32_t>() & 1));
        race::mbarrier_seen(at, o[0].as<uint32_t>() != 0);
        if (o[0].as<uint32_t>()) return;
        if (tries == 0) catch_up(true);
    }
    polling_at("an mbarrier");
    poll();
}

/* ---- loads and stores --------------------------------------------------------------------------- */

static char *place_of(const operand &o, const form &f)
{
    char *at = f.shared ? (char *)shared_pointer(o.as<uint32_t>()) : o.as<char *>();
    if ((uintptr_t)at % (size_t)(f.bytes * f.lanes)) stop("an access that is not aligned to its size");
    return at;
}

static void load(const operands &o, const form &f) /* values, [address] */
{
    size_t bytes = (size_t)f.bytes;
    const char *at = place_of(o[f.lanes], f);
    if (!f.acquire) race::touch_as(0, at, bytes * (size_t)f.lanes, false);
    for (int i = 0; i < f.lanes; i++) {
        reg *to = o[i].to;
        to->bits = 0;
        memcpy(&to->bits, at + (size_t)i * bytes, bytes);
    }
    if (!f.acquire) return;
    uint32_t v = __atomic_load_n((const uint32_t *)at, __ATOMIC_SEQ_CST);
    race::acquire(at);
    bool same = v == (uint32_t)o[0].to->bits; /* somebody waits for a change, perhaps */
    o[0].set(v);
    if (same) {
        polling_at("a counter in memory");
        poll();
    }
}

static char *put(const operands &o, const form &f)
{
    size_t bytes = (size_t)f.bytes;
    char *at = place_of(o[0], f);
    for (int i = 0; i < f.lanes; i++) {
        uint64_t v = o[i + 1].bits();
        memcpy(at + (size_t)i * bytes, &v, bytes);
    }
    return at;
}

static void store(const operands &o, const form &f) /* [address], values */
{
    race::touch_as(0, put(o, f), (size_t)(f.bytes * f.lanes), true);
}

static void store_counted(const operands &o, const form &f) /* [address], values, [bar] */
{
    int bytes = f.lanes * f.bytes;
    uint32_t bar = o[f.lanes + 1].as<uint32_t>();
    race::counted(shared_pointer(bar), put(o, f), (size_t)bytes, true, 0);
    mbarrier_bytes(bar, bytes);
}

static void add_to_counter(const operands &o, const form &)
{
    race::release(o[0].as<uint32_t *>());
    __atomic_fetch_add(o[0].as<uint32_t *>(), o[1].as<uint32_t>(), __ATOMIC_SEQ_CST);
}

static void copy_16(const operands &o, const form &) /* [shared], [global], 16 */
{
    void *to = shared_pointer(o[0].as<uint32_t>());
    const void *from = o[1].as<const void *>();
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) stop("cp.async of 16 bytes that are not aligned");
    race::copy_own(to, from, 16);
    defer(false, [=] { memcpy(to, from, 16); });
}

static void own_copies(const operands &, const form &)
{
    catch_up(false);
    race::copies_commit(), race::copies_waited(0);
}

static void commit_copies(const operands &, const form &)
{
    end_group();
    race::copies_commit();
}

static void copies_come(const operands &o, const form &) /* groups that may be left */
{
    catch_up_groups(o[0].as<uint32_t>());
    race::copies_waited(o[0].as<uint32_t>());
}

static void commit_stores(const operands &, const form &)
{
    race::stores_commit();
}

static void own_stores(const operands &o, const form &f) /* groups that may be left */
{
    catch_up(false);
    race::stores_waited(o[0].as<uint32_t>(), f.read);
}

static void proxy_fence(const operands &, const form &f)
{
    race::fence_proxy(!f.shared);
}

static void launches_wait(const operands &, const form &)
{
    race::grid_wait();
}

static void launches_let(const operands &, const form &)
{
    race::grid_trigger();
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static void nothing(const operands &, const form &)
{
}

static void move(const operands &o, const form &)
{
    *o[0].to = {o[1].bits()};
}

static void timer(const operands &o, const form &)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    o[0].set((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
    /* a kernel's own watchdog: fibers are slower than threads, and polls have one of their own */
    static const uint64_t begin = o[0].to->bits;
    o[0].set(begin + (o[0].to->bits - begin) / 1000);
}

static void set_predicate(const operands &o, const form &)
{
    o[0].set<uint32_t>(o[1].as<uint32_t>() != o[2].as<uint32_t>());
}

static void select(const operands &o, const form &)
{
    *o[0].to = {o[3].as<uint32_t>() ? o[1].bits() : o[2].bits()};
}

static void pair_of_bf16(const operands &o, const form &)
{
    o[0].set((uint32_t)bf16_of(o[1].as<float>()) << 16 | bf16_of(o[2].as<float>()));
}

static void power2(const operands &o, const form &)
{
    float x = o[1].as<float>(), y = exp2f(fabsf(x) < 0x1p-126f ? 0 : x);
    o[0].set(fabsf(y) < 0x1p-126f ? 0.0f : y);
}

static void min_nan(const operands &o, const form &)
{
    float x = o[1].as<float>(), y = o[2].as<float>();
    o[0].set(x != x ? x : y != y ? y : fminf(x, y));
}

static void bar_sync(const operands &o, const form &)
{
    barrier(o[0].as<int>(), o[1].as<int>());
}

static void arrive_cluster(const operands &, const form &)
{
    cluster_arrive();
}

static void wait_cluster(const operands &, const form &)
{
    cluster_wait();
}

static void map_address(const operands &o, const form &)
{
    o[0].set(remote_address(o[1].as<uint32_t>(), o[2].as<uint32_t>()));
}

static void size_of_cluster(const operands &o, const form &)
{
    o[0].set(cluster_size());
}

static void rank_in_cluster(const operands &o, const form &)
{
    o[0].set(cluster_rank());
}

/* By the beginning of their names; the first that fits. */
static const struct {
    const char *begin;
    instruction *act;
} known[] = {
    {"mbarrier.init.", mbarrier_init},
    {"mbarrier.arrive.expect_tx.", mbarrier_expect},
    {"mbarrier.arrive.", mbarrier_arrive},
    {"mbarrier.try_wait.parity.", mbarrier_wait},
    {"mbarrier.test_wait.parity.", mbarrier_wait},
    {"st.async.", store_counted},
    {"ld.", load},
    {"st.", store},
    {"red.release.gpu.global.add.u32", add_to_counter},
    {"cp.async.cg.shared.global", copy_16},
    {"cp.async.wait_all", own_copies},
    {"cp.async.commit_group", commit_copies},
    {"cp.async.wait_group", copies_come},
    {"cp.async.bulk.wait_group", own_stores},
    {"cp.async.bulk.commit_group", commit_stores},
    {"fence.proxy.async", proxy_fence},
    {"fence.mbarrier_init.", nothing},
    {"prefetch", nothing},
    {"setmaxnreg.", nothing},
    {"griddepcontrol.wait", launches_wait},
    {"griddepcontrol.launch_dependents", launches_let},
    {"setp.ne.", set_predicate},
    {"selp.", select},
    {"mov.u64.globaltimer", timer},
    {"mov.u32.cluster_nctarank", size_of_cluster},
    {"mov.u32.cluster_ctarank", rank_in_cluster},
    {"mov.", move},
    {"cvt.rn.bf16x2.f32", pair_of_bf16},
    {"ex2.approx.ftz.f32", power2},
    {"min.NaN.f32", min_nan},
    {"bar.sync", bar_sync},
    {"barrier.cluster.arrive.", arrive_cluster},
    {"barrier.cluster.wait.", wait_cluster},
    {"mapa.", map_address},
};

static instruction *find(const std::string &name)
{
    for (auto &k : known)
        if (name.compare(0, strlen(k.begin), k.begin) == 0) return k.act;
    instruction *act = tensor_instruction(name.c_str());
    if (!act) fprintf(stderr, "cuda_host: an instruction that is not known: %s\n", name.c_str()), abort();
    return act;
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* The number behind a word of the name; 0: it is not there. */
static int number_behind(const char *name, const char *word)
{
    const char *at = strstr(name, word);
    return at ? atoi(at + strlen(word)) : 0;
}

static form form_of(const char *name)
{
    auto says = [=](const char *word) { return strstr(name, word) != nullptr; };
    const char *dot = strrchr(name, '.');
    form f = {};
    f.bytes = dot && dot[1] ? atoi(dot + 2) / 8 : 0;
    f.lanes = says(".v4.") ? 4 : says(".v2.") ? 2 : 1;
    f.n = number_behind(name, ".m64n");
    f.blocks = says(".x4.") ? 4 : says(".x2.") ? 2 : 1;
    f.rank = number_behind(name, "tensor.");
    f.shared = says(".shared"), f.acquire = says(".acquire"), f.read = says(".read");
    f.trans = says(".trans."), f.half = says(".f16.f16");
    f.commit = says("commit_group"), f.wait = says("wait_group");
    return f;
}

static source source_of(const std::string &word, std::vector<std::string> &locals)
{
    if (word[0] == '%') return {source::GIVEN, atoi(word.c_str() + 1), 0};
    if (isdigit((unsigned char)word[0]) || word[0] == '-')
        return {source::NUMBER, 0, (uint64_t)strtoll(word.c_str(), nullptr, 0)};
    for (size_t i = 0; i < locals.size(); i++)
        if (locals[i] == word) return {source::LOCAL, (int)i, 0};
    locals.push_back(word); /* "_", a result that nobody wants, too */
    return {source::LOCAL, (int)locals.size() - 1, 0};
}

static void read_statement(std::vector<statement> &out, const std::string &text,
                           std::vector<std::string> &locals)
{
    std::vector<std::string> words;
    std::string word;
    for (char c : text + " ")
        if (isspace((unsigned char)c) || strchr(",[]{}", c)) {
            if (!word.empty()) words.push_back(word);
            word.clear();
        } else word += c;
    if (words.empty() || words[0] == ".reg") return;
    statement s;
    s.predicate = -1;
    size_t at = 0;
    if (words[0][0] == '@') s.predicate = source_of(words[at++].substr(1), locals).index;
    std::string name = words[at++];
    if (at + 1 < words.size() && words[at + 1].compare(0, 2, "%%") == 0) { /* a special register */
        name += "." + words[at + 1].substr(2);
        words.pop_back();
    }
    for (; at < words.size(); at++) s.operands.push_back(source_of(words[at], locals));
    if (locals.size() > LOCALS) stop("an assembly text with too many names of its own");
    s.act = find(name);
    s.how = form_of(name.c_str());
    out.push_back(s);
}

ptx::ptx(const char *text)
{
    auto *list = new std::vector<statement>; /* as long as the program */
    std::vector<std::string> locals;
    std::string part;
    for (const char *c = text; *c; c++)
        if (*c == ';') {
            read_statement(*list, part, locals);
            part.clear();
        } else part += *c;
    first = list->data();
    count = (int)list->size();
}

void ptx::run(reg *given) const
{
    reg local[LOCALS] = {};
    if (now && now->clock) now->clock->pc = __builtin_return_address(0);
    for (const statement *s = first; s < first + count; s++) {
        if (s->predicate >= 0 && !(uint32_t)local[s->predicate].bits) continue;
        s->act({s->operands.data(), (int)s->operands.size(), given, local}, s->how);
    }
}

} // namespace cuda_host
