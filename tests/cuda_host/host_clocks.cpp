/* host_clocks.cpp -- vector clocks that are shared (host_clocks.h). */
#include "host_clocks.h"

#include <algorithm>

namespace cuda_host
{
namespace race
{

uint32_t count_of(const known &k, uint32_t who)
{
    return k && who < k->own.size() ? k->own[who] : 0;
}

uint32_t count_of(const known &k, uint32_t cluster, uint32_t who)
{
    if (!k) return 0;
    auto found = k->others.find(cluster);
    return found != k->others.end() && who < found->second->size() ? (*found->second)[who] : 0;
}

static bool within(const counts &a, const counts &b)
{
    for (size_t i = 0; i < a.size(); i++)
        if (a[i] && (i >= b.size() || a[i] > b[i])) return false;
    return true;
}

static bool within(const clocks &a, const clocks &b)
{
    if (!within(a.own, b.own)) return false;
    for (auto &o : a.others) {
        auto found = b.others.find(o.first);
        if (found == b.others.end()) return false;
        if (found->second != o.second && !within(*o.second, *found->second)) return false;
    }
    return true;
}

static void raise(counts &to, const counts &by)
{
    if (to.size() < by.size()) to.resize(by.size());
    for (size_t i = 0; i < by.size(); i++) to[i] = std::max(to[i], by[i]);
}

static void raise(clocks &to, const clocks &by)
{
    raise(to.own, by.own);
    for (auto &o : by.others) {
        auto &mine = to.others[o.first];
        if (!mine) mine = o.second;
        else if (mine != o.second) {
            auto both = std::make_shared<counts>(*mine);
            raise(*both, *o.second);
            mine = both;
        }
    }
}

/* The last few, since the threads of a warp do the same one after the other. */
template <class KEY> struct remembered {
    struct {
        known a, result;
        KEY key;
    } last[16];
    int next = 0;
    template <class MAKE> known get(const known &a, const KEY &key, MAKE make)
    {
        for (auto &l : last)
            if (l.result && l.a == a && l.key == key) return l.result;
        known result = make();
        last[next++ % 16] = {a, result, key};
        return result;
    }
};

known joined(const known &a, const known &b)
{
    if (!b || a == b) return a;
    if (!a) return b;
    static remembered<known> cache;
    return cache.get(a, b, [&]() -> known {
        if (within(*b, *a)) return a;
        if (within(*a, *b)) return b;
        auto both = std::make_shared<clocks>(*a);
        raise(*both, *b);
        return both;
    });
}

known common(const known &a, const known &b)
{
    if (!a || !b) return nullptr;
    if (a == b) return a;
    auto both = std::make_shared<clocks>();
    both->own.resize(std::min(a->own.size(), b->own.size()));
    for (size_t i = 0; i < both->own.size(); i++) both->own[i] = std::min(a->own[i], b->own[i]);
    return both;
}

known with(const known &k, uint32_t who, uint32_t count)
{
    if (count_of(k, who) >= count) return k;
    static remembered<std::pair<uint32_t, uint32_t>> cache;
    return cache.get(k, {who, count}, [&]() -> known {
        auto more = k ? std::make_shared<clocks>(*k) : std::make_shared<clocks>();
        if (more->own.size() <= who) more->own.resize(who + 1);
        more->own[who] = count;
        return more;
    });
}

views joined(const views &a, const views &b)
{
    views v;
    for (int i = 0; i < VIEWS; i++) v.of[i] = joined(a.of[i], b.of[i]);
    return v;
}

views outward(const views &v, uint32_t cluster, uint32_t who, const uint32_t count[VIEWS])
{
    views to;
    for (int i = 0; i < VIEWS; i++) {
        known own = with(v.of[i], who, count[i]);
        if (!own) continue;
        auto k = std::make_shared<clocks>();
        k->others = own->others;
        k->others[cluster] = std::make_shared<counts>(own->own);
        to.of[i] = k;
    }
    return to;
}

views inward(const views &v, uint32_t cluster)
{
    views to;
    for (int i = 0; i < VIEWS; i++) {
        if (!v.of[i]) continue;
        auto k = std::make_shared<clocks>(*v.of[i]);
        auto found = k->others.find(cluster);
        if (found != k->others.end()) {
            k->own = *found->second;
            k->others.erase(found);
        }
        to.of[i] = k;
    }
    return to;
}

void gathering::add(const views &v)
{
    for (int i = 0; i < VIEWS; i++)
        if (v.of[i] && std::find(parts[i].rbegin(), parts[i].rend(), v.of[i]) == parts[i].rend())
            parts[i].push_back(v.of[i]);
}

void gathering::add(const views &v, uint32_t who, const uint32_t count[VIEWS])
{
    add(v);
    for (int i = 0; i < VIEWS; i++)
        if (count[i]) single[i].push_back({who, count[i]});
}

void gathering::add(uint32_t who, uint32_t count)
{
    single[ORDER].push_back({who, count});
}

views gathering::result() const
{
    views v;
    for (int i = 0; i < VIEWS; i++) {
        if (single[i].empty() && parts[i].size() < 2) {
            if (!parts[i].empty()) v.of[i] = parts[i][0];
            continue;
        }
        auto all = std::make_shared<clocks>();
        for (auto &p : parts[i]) raise(*all, *p);
        for (auto &s : single[i]) {
            if (all->own.size() <= s.first) all->own.resize(s.first + 1);
            all->own[s.first] = std::max(all->own[s.first], s.second);
        }
        v.of[i] = all;
    }
    return v;
}

void gathering::clear()
{
    for (int i = 0; i < VIEWS; i++) parts[i].clear(), single[i].clear();
}

} // namespace race
} // namespace cuda_host
