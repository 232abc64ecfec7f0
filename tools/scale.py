#!/usr/bin/env python3
"""scale.py -- what a training step takes on 8 to 1,024 GPUs: the formula of docs/scale.md, and a simulation
of every message of the exchange to hold it to.

    python3 tools/scale.py                          # the tables of docs/scale.md
    python3 tools/scale.py --model 7b --ranks 64    # one case: its terms, and the simulation's
    python3 tools/scale.py --check docs/scale.md    # the page has these; formula and simulation agree

Seconds, bytes and FLOPs throughout. Only what is marked MEASURED was (docs/SPEED.md, one H200); the rest is
assumed.
"""
import argparse
import heapq
import math
import sys

# ---- the machine ----------------------------------------------------------------------------------

GPUS = 8                    # of a node
# bytes/s in each direction of a GPU: what is on paper, and the share taken as reachable
NVLINK = 450e9 * 0.8
FABRIC = 50e9 * 0.8         # the same of its 400 Gb/s network port, one for each GPU
NVLINK_MESSAGE = 1e-6       # seconds that a message occupies a port beyond its bytes
FABRIC_MESSAGE = 2e-6
COPY = 4.17e12              # bytes/s of memory, MEASURED
MODEL_RATE = 400e12         # FLOP/s of forward and backward, 40 % of the peak
BATCH = 1 << 22             # tokens of a step, on all GPUs together
STEPS = 5                   # of Newton-Schulz
GRADIENT, WEIGHT = 4, 2     # bytes of an element on the way: f32 to the owner, bf16 from it
# bytes of memory traffic an element of AdamW or PolarAdamW, MEASURED 28 x 124e6 / 0.83 ms = COPY
STATE = 28

# MEASURED, one matrix n x n: seconds of the map (docs/SPEED.md), as nominal FLOP/s; 768: 48 matrices of a 124
# M GPT
MAP_SECONDS = {1024: 0.105e-3, 2048: 0.34e-3, 4096: 2.3e-3, 8192: 17.5e-3}
MAP_RATE = {768: 373e12, **{n: 6 * STEPS * n**3 / s for n, s in MAP_SECONDS.items()}}
# of twelve together 530e12: a single one leaves the GPU half empty
MAP_RATE[1024] = max(MAP_RATE[1024], MAP_RATE[768])


def map_rate(n):
    """FLOP/s for a short side n: straight between the measured ones in log n, constant outside."""
    known = sorted(MAP_RATE)
    n = min(max(n, known[0]), known[-1])
    for lo, hi in zip(known, known[1:]):
        if n <= hi:
            x = math.log(n / lo) / math.log(hi / lo)
            return MAP_RATE[lo] + x * (MAP_RATE[hi] - MAP_RATE[lo])


# ---- models ---------------------------------------------------------------------------------------


def model(name):
    """Matrices as (name, rows, columns, row blocks that are mapped each by itself), and how many numbers have
    no map (embeddings, norms).
    """
    if name == "deit":  # DeiT-Tiny, for the owners' table of docs/cluster.md
        shapes = [("qkv", 576, 192, 3), ("proj", 192, 192, 1), ("fc1", 768, 192, 1), ("fc2", 192, 768, 1)]
        return [(f"blocks.{i}.{k}", *shape) for i in range(12) for k, *shape in shapes], 400_000
    if name == "0.1b":  # GPT of 124 M
        shapes = [("qkv", 2304, 768), ("proj", 768, 768), ("fc1", 3072, 768), ("fc2", 768, 3072)]
        return [(f"h.{i}.{k}", r, c, 1) for i in range(12) for k, r, c in shapes], 39_400_000
    width, layers, hidden, key = {
        "1b": (2048, 24, 5504, 2048), "7b": (4096, 32, 11008, 4096), "13b": (5120, 40, 13824, 5120), "70b":
        (8192, 80, 28672, 1024)
    }[name]
    shapes = [("q", width, width), ("k", key, width), ("v", key, width), ("o", width, width),
              ("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)]
    return [(f"layers.{i}.{k}", r, c, 1) for i in range(layers) for k, r, c in shapes], 2 * 32000 * width


def cost(rows, columns, blocks):
    """n^3 T (4 a + 2) for each block of rows, as pl_shard_cost has it."""
    n, m = sorted((rows // blocks, columns))
    return blocks * STEPS * n * n * (4 * m + 2 * n)


def map_seconds(rows, columns, blocks):
    return cost(rows, columns, blocks) / map_rate(min(rows // blocks, columns))


class Load:
    """What a rank owns: elements, seconds of maps."""

    def __init__(self):
        self.cost = self.elements = self.seconds = 0.0


def relieve(jobs, rank, load):
    """The busiest rank gives a job away, or takes a smaller one for it, if that helps (shard_owner.c)."""
    busy = max(range(len(load)), key=lambda r: (load[r], -r))
    best, move = load[busy], None
    for j, given in enumerate(jobs):
        if rank[j] != busy:
            continue
        for k in range(-len(load), len(jobs)):
            r = k + len(load) if k < 0 else rank[k]
            less = given - (0 if k < 0 else jobs[k])
            most = max(load[busy] - less, load[r] + less)
            if r != busy and most < best:
                best, move = most, (j, k, r, less)
    if move:
        j, k, r, less = move
        load[busy] -= less
        load[r] += less
        rank[j] = r
        if k >= 0:
            rank[k] = busy
    return move


def owners(matrices, ranks):
    """Longest processing time first; of equals by name, to the lowest of the least loaded ranks; then moves
    and swaps that relieve the busiest (shard_owner.c).
    """
    matrices = sorted(matrices, key=lambda x: (-cost(*x[1:]), x[0]))
    jobs = [cost(*shape) for _, *shape in matrices]
    load, rank = [0.0] * ranks, []
    free = [(0.0, r) for r in range(ranks)]
    for job in jobs:
        _, r = heapq.heappop(free)
        load[r] += job
        rank.append(r)
        heapq.heappush(free, (load[r], r))
    turns = 0
    while turns < len(jobs) and relieve(jobs, rank, load):
        turns += 1
    loads = [Load() for _ in range(ranks)]
    for (_, *shape), r in zip(matrices, rank):
        loads[r].cost += cost(*shape)
        loads[r].elements += shape[0] * shape[1]
        loads[r].seconds += map_seconds(*shape)
    return loads


# ---- the formula ----------------------------------------------------------------------------------


def port_seconds(fabric, local, fabric_messages, local_messages):
    """A GPU's two ports work at once; each takes its bytes and its messages."""
    return max(fabric / FABRIC + fabric_messages * FABRIC_MESSAGE,
               local / NVLINK + local_messages * NVLINK_MESSAGE)


def exchange(segments, ranks, share=1.0):
    """Every rank sends share x segments[o] bytes to every owner o (the way back takes as long: ports are as
    fast in both directions). The busiest port, of a sender or of an owner.
    """
    there = [s * share for s in segments]
    near, total = min(GPUS, ranks), sum(there)
    some = sum(1 for s in there if s)
    worst = 0.0
    for r in range(ranks):
        node = there[r // near * near:r // near * near + near]
        out = port_seconds(total - sum(node),
                           sum(node) - there[r], some - sum(1 for s in node if s), near - 1)
        into = port_seconds(there[r] * (ranks - near), there[r] * (near - 1), (ranks - near) * (there[r] > 0),
                            near - 1)
        worst = max(worst, out, into)
    return worst


def exchange_levels(segments, ranks):
    """The same in two steps: within the node to whoever has the owner's place there, who adds; then between
    nodes.
    """
    near = min(GPUS, ranks)
    nodes = ranks // near
    first = second = 0.0
    places = [sum(segments[m * near + i] for m in range(nodes)) for i in range(near)]
    for i in range(near):
        first = max(first, port_seconds(0,
                                        sum(places) - places[i], 0, near - 1),
                    port_seconds(0, places[i] * (near - 1), 0, near - 1))
        for m in range(nodes):
            own = segments[m * near + i]
            second = max(second, port_seconds(places[i] - own, 0, nodes - 1, 0),
                         port_seconds(own * (nodes - 1), 0, nodes - 1, 0))
    return first + second


class Case:
    """A model on so many ranks: bytes of the owners, and the terms of a step."""

    def __init__(self, name, ranks):
        matrices, aux = model(name)
        self.ranks, self.loads = ranks, owners(matrices, ranks)
        self.elements = sum(r * c for _, r, c, _ in matrices) + aux
        owned = [load.elements + aux / ranks for load in self.loads]
        self.grads, self.weights = [GRADIENT * e for e in owned], [WEIGHT * e for e in owned]
        self.compute = 6 * self.elements * BATCH / (ranks * MODEL_RATE)
        self.map = max(load.seconds for load in self.loads)
        self.update = max(owned) * STATE / COPY
        self.add = max(owned) * GRADIENT * (ranks + 1) / COPY
        self.add_levels = sum(owned) / min(GPUS, ranks) * GRADIENT * (
            min(GPUS, ranks) + 1) / COPY + max(owned) * GRADIENT * (ranks // min(GPUS, ranks) + 1) / COPY
        everything = sum(map_seconds(*shape) for _, *shape in matrices)
        self.alone = everything + self.elements * STATE / COPY  # every rank steps all of it

    def whole(self, levels):
        """Seconds beside forward and backward: gradients in, sum, step, weights out."""
        if levels:
            return exchange_levels(self.grads,
                                   self.ranks) + self.add_levels + self.map + self.update + exchange_levels(
                                       self.weights, self.ranks)
        return exchange(self.grads, self.ranks) + self.add + self.map + self.update + exchange(
            self.weights, self.ranks)

    def ranges(self):
        """Sums in equal ranges first, by two levels; then the sums to the owners, as rows are; the same way
        back.
        """
        equal = self.elements / self.ranks
        near = min(GPUS, self.ranks)
        add = (equal * (self.ranks // near) * (near + 1) + equal * (self.ranks // near + 1)) * GRADIENT / COPY
        share = 1 / self.ranks
        inward = exchange_levels([equal * GRADIENT] * self.ranks, self.ranks) + add + exchange(
            self.grads, self.ranks, share)
        outward = exchange(self.weights, self.ranks, share) + exchange_levels([equal * WEIGHT] * self.ranks,
                                                                              self.ranks)
        return inward + self.map + self.update + outward

    def replicated(self):
        """An all-reduce in rings over all ports (its slowest cut is a node's ports), then the whole step
        everywhere.
        """
        near = min(GPUS, self.ranks)
        ring = 2 * self.elements * GRADIENT * (self.ranks - 1) / self.ranks
        return max(ring / NVLINK, ring / near / FABRIC if self.ranks > near else 0) + self.alone

    def rows(self):
        """Rows on every rank, as FSDP2: what torch moves (weights twice, gradients once, in rings) beside
        forward and backward, then ours: rows to the owners, step, rows back. Returns (torch's seconds, ours).
        """
        near = min(GPUS, self.ranks)
        moved = self.elements * (2 * WEIGHT + GRADIENT) * (self.ranks - 1) / self.ranks
        torch = max(moved / NVLINK, moved / near / FABRIC if self.ranks > near else 0)
        ours = exchange(self.grads, self.ranks, 1 / self.ranks) + self.map + self.update + exchange(
            self.weights, self.ranks, 1 / self.ranks)
        return torch, ours

    def memory(self):
        """Bytes of weights, gradients and of the state of what the busiest rank owns (master copy and two
        moments).
        """
        return self.elements * (WEIGHT + GRADIENT) + max(self.grads) / GRADIENT * 12


# ---- the simulation -------------------------------------------------------------------------------


def simulate(messages, ranks):
    """Seconds until the last message has arrived. messages[r]: of rank r, in order, (to, bytes). A GPU has a
    port to its node and one to the fabric, each for one message at a time in each direction; a rank has one
    message under way on each of the two, and its next waits until the receiver's port is free. Of those that
    wait the first comes first.
    """
    near = min(GPUS, ranks)
    queues, events = {}, []
    for r in range(ranks):
        for port in (0, 1):
            mine = [(to, size) for to, size in messages[r] if (to // near != r // near) == bool(port)]
            if mine:
                queues[r, port] = mine[::-1]
                heapq.heappush(events, (0.0, 0, r, port))
    free = {}
    order, last = 1, 0.0
    while events:
        now, _, r, port = heapq.heappop(events)
        to, size = queues[r, port][-1]
        ready = free.get((to, port), 0.0)
        if ready > now:
            heapq.heappush(events, (ready, order, r, port))  # after those that came before
            order += 1
            continue
        queues[r, port].pop()
        end = now + (FABRIC_MESSAGE + size / FABRIC if port else NVLINK_MESSAGE + size / NVLINK)
        free[to, port] = end
        last = max(last, end)
        if queues[r, port]:
            heapq.heappush(events, (end, order, r, port))
            order += 1
    return last


PIECE = 4 << 20  # bytes, at least: a large part goes in pieces, so that its receiver is not held for long,
TURNS = 6        # of which a part of the mean size has so many


def in_turns(parts):
    """Messages of one rank: a piece to everybody, then the next. parts: (to, bytes) in the order of the first
    turn.
    """
    left = [[to, size] for to, size in parts if size > 0]
    turn = max(PIECE, sum(size for _, size in left) / max(1, len(left)) / TURNS)
    out = []
    while left:
        for part in left:
            piece = min(turn, part[1])
            out.append((part[0], piece))
            part[1] -= piece
        left = [part for part in left if part[1] > 0]
    return out


def simulate_in(segments, ranks, share=1.0):
    """Gradients to their owners, rank r beginning with r + 1."""
    messages = [
        in_turns([((r + k) % ranks, segments[(r + k) % ranks] * share) for k in range(1, ranks)])
        for r in range(ranks)
    ]
    return simulate(messages, ranks)


def simulate_levels(segments, ranks):
    """Gradients in two steps."""
    near = min(GPUS, ranks)
    nodes = ranks // near
    places = [sum(segments[m * near + i] for m in range(nodes)) for i in range(near)]
    first = [
        in_turns([(r // near * near + (r + k) % near, places[(r + k) % near]) for k in range(1, near)])
        for r in range(ranks)
    ]
    second = [
        in_turns([((r + k * near) % ranks, segments[(r + k * near) % ranks]) for k in range(1, nodes)])
        for r in range(ranks)
    ]
    return simulate(first, ranks) + (simulate(second, ranks) if nodes > 1 else 0)


# ---- tables ---------------------------------------------------------------------------------------

MODELS = ["0.1b", "1b", "7b", "13b"]
RANKS = [8, 16, 64, 256, 1024]
SIMULATED = [("0.1b", 8), ("0.1b", 64), ("0.1b", 256), ("1b", 16), ("1b", 128), ("7b", 32), ("7b", 128),
             ("13b", 64), ("70b", 64)]


def percent(part, whole):
    return f"{100 * part / whole:.1f} %"


def ms(x):
    return f"{1e3 * x:.1f}" if x < 0.1 else f"{1e3 * x:.0f}"


def table_whole():
    yield ("| model | GPUs | forward, backward | gradients in | sum | maps | update | weights out | "
           "flat | two levels | ranges first | on every rank |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in MODELS:
        for ranks in RANKS:
            c = Case(name, ranks)
            terms = [c.compute, exchange(c.grads, ranks), c.add, c.map, c.update, exchange(c.weights, ranks)]
            shares = [
                percent(c.compute, c.compute + t)
                for t in (c.whole(False), c.whole(True), c.ranges(), c.replicated())
            ]
            yield f"| {name.upper()} | {ranks} | " + " | ".join(
                ms(t) for t in terms) + " | " + " | ".join(shares) + " |"


def table_rows():
    yield ("| model | GPUs | forward, backward | torch's exchange | rows to owners and back | maps | "
           "all of ours | efficiency |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in ["7b", "13b", "70b"]:
        for ranks in RANKS[1:]:
            c = Case(name, ranks)
            torch, ours = c.rows()
            moved = ours - c.map - c.update
            yield (f"| {name.upper()} | {ranks} | {ms(c.compute)} | {ms(torch)} | {ms(moved)} | "
                   f"{ms(c.map)} | {ms(ours)} | {percent(c.compute, max(c.compute, torch) + ours)} |")


def table_check():
    yield ("| model | GPUs | messages | flat: formula | simulated | ratio | two levels: formula | "
           "simulated | ratio |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, ranks in SIMULATED:
        c = Case(name, ranks)
        count = sum(
            len(in_turns([((r + k) % ranks, c.grads[(r + k) % ranks]) for k in range(1, ranks)]))
            for r in range(ranks))
        flat, levels = exchange(c.grads, ranks), exchange_levels(c.grads, ranks)
        seen, seen_levels = simulate_in(c.grads, ranks), simulate_levels(c.grads, ranks)
        yield (
            f"| {name.upper()} | {ranks} | {count:,} | {ms(flat)} | {ms(seen)} | {seen / flat:.2f} | "
            f"{ms(levels)} | {ms(seen_levels)} | "
            f"{seen_levels / levels:.2f} |")


TABLES = [("whole", table_whole), ("rows", table_rows), ("check", table_check)]

# ---- the test -------------------------------------------------------------------------------------


def check(page):
    failed = 0

    def verdict(what, ok, detail=""):
        nonlocal failed
        failed += not ok
        print(f"{what:<64} {detail} {'PASS' if ok else 'FAIL'}")

    text = open(page).read()
    for name, table in TABLES:
        lines = list(table())
        verdict(f"the page has the table '{name}'", "\n".join(lines) in text, f"{len(lines) - 2} rows")
        if name != "check":
            continue
        ratios = [float(cell) for line in lines[2:] for cell in (line.split("|")[6], line.split("|")[9])]
        # no order of messages beats the busiest port; that this order comes near it is what the formula
        # assumes
        verdict("simulated over predicted: from 1", min(ratios) >= 0.995, f"{min(ratios):.2f}")
        verdict("simulated over predicted: at most 1.25", max(ratios) <= 1.25, f"{max(ratios):.2f}")
        equal = [Case("7b", 128).elements * GRADIENT / 128] * 128
        ratio = simulate_levels(equal, 128) / exchange_levels(equal, 128)
        verdict("the same of equal ranges", 0.995 <= ratio <= 1.25, f"{ratio:.2f}")
    # the owners are those of the library: its page has the busiest over an equal share, worst of 2 to 64
    # ranks
    for name, want in (("deit", 1.75), ("0.1b", 1.71), ("7b", 1.16)):
        worst = 0.0
        for ranks in range(2, 65):
            loads = owners(model(name)[0], ranks)
            worst = max(worst, max(x.cost for x in loads) * ranks / sum(x.cost for x in loads))
        verdict(f"owners of {name}: busiest over equal share",
                abs(worst - want) < 0.006, f"{worst:.3f}, {want}")
    # by hand: two ranks of one node, one message each way; two nodes, one port; nothing to send
    verdict("one message", simulate([[(1, 3.6e11)], []], 2) == NVLINK_MESSAGE + 1.0)
    far = [[] for _ in range(16)]
    far[0] = [(8, 4e10), (9, 4e10)]
    far[1] = [(9, 4e10)]  # rank 9's port is taken when rank 0 comes
    verdict("a port takes one at a time",
            abs(simulate(far, 16) - 2 * (FABRIC_MESSAGE + 1.0)) < 1e-12, f"{simulate(far, 16):.6f}")
    far[2] = [(9, 4e10)]
    verdict("and the third waits",
            abs(simulate(far, 16) - 3 * (FABRIC_MESSAGE + 1.0)) < 1e-12, f"{simulate(far, 16):.6f}")
    verdict("nothing to send", simulate([[], []], 2) == 0)
    c = Case("1b", 16)
    sent = sum(size for r in range(16)
               for _, size in in_turns([((r + k) % 16, c.grads[(r + k) % 16]) for k in range(1, 16)]))
    verdict("bytes: (N - 1) P numbers", abs(sent / (15 * c.elements * GRADIENT) - 1) < 1e-12, f"{sent:.6g}")
    # MEASURED, 124 M weights on one GPU: 4.91 ms of PolarAdamW, of which 768's rate was taken; AdamW 0.83
    verdict("a 124 M step on one GPU, 4.91 ms",
            abs(Case("0.1b", 1).alone / 4.91e-3 - 1) < 0.03, f"{1e3 * Case('0.1b', 1).alone:.2f} ms")
    print(f"{failed} failed")
    return 1 if failed else 0


def one(name, ranks):
    c = Case(name, ranks)
    print(f"{name.upper()}, {c.elements / 1e9:.3g} G numbers, {ranks} GPUs, {BATCH // ranks} tokens each; ms")
    print(
        f"  forward and backward {ms(c.compute)}, maps {ms(c.map)}, update {ms(c.update)}, memory "
        f"{c.memory() / 1e9:.0f} GB"
    )
    print(
        f"  flat:       in {ms(exchange(c.grads, ranks))} (simulated {ms(simulate_in(c.grads, ranks))}), "
        f"sum {ms(c.add)}, out {ms(exchange(c.weights, ranks))}: "
        f"{percent(c.compute, c.compute + c.whole(False))}")
    print(
        f"  two levels: in {ms(exchange_levels(c.grads, ranks))} (simulated "
        f"{ms(simulate_levels(c.grads, ranks))}), sum {ms(c.add_levels)}, out "
        f"{ms(exchange_levels(c.weights, ranks))}: {percent(c.compute, c.compute + c.whole(True))}")
    print(f"  ranges first: {ms(c.ranges())}: {percent(c.compute, c.compute + c.ranges())}")
    print(f"  on every rank: {ms(c.replicated())}: {percent(c.compute, c.compute + c.replicated())}")


def main():
    p = argparse.ArgumentParser(description="predicted step times on many GPUs (docs/scale.md)")
    p.add_argument("--model", choices=["0.1b", "1b", "7b", "13b", "70b"])
    p.add_argument("--ranks", type=int, default=64, help="GPUs: up to 8, or a multiple of 8")
    p.add_argument("--check", metavar="PAGE", help="compare PAGE's tables, and formula with simulation")
    a = p.parse_args()
    if a.ranks < 1 or (a.ranks > GPUS and a.ranks % GPUS):
        p.error("--ranks wants up to 8, or a multiple of 8")
    if a.check:
        return check(a.check)
    if a.model:
        one(a.model, a.ranks)
        return 0
    for name, table in TABLES:
        print(f"\n{name}:\n")
        print("\n".join(table()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
