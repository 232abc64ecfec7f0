"""so3_gauge.py -- the tables of docs/results/so3_gauge.md from stores with runs of so3_gauge:

    python3 tools/so3_gauge.py deviations STORE ..   # of updates, by width, rule, map and step
    python3 tools/so3_gauge.py spectra STORE ..      # of gradients and of directions before the map
    python3 tools/so3_gauge.py seen STORE ..         # deviation against the singular values that bf16 sees

Blocks with one column (W_00 and W_11 of the first layer) are left out: a map only divides them by their norm.
"""
import collections
import math
import re
import sqlite3
import sys

from paired_t import mean

ONE_COLUMN = ("layers.0.W_00.weight", "layers.0.W_11")
SEEN = 2.0 ** -8    # of the largest: below, a singular value is lost in bf16's rounding


def read(stores):
    """Rows of `gauge` of finished runs: (width, arm, run, step, block, shadow, map, value)."""
    rows = {}
    for path in stores:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            for cell, arm, *row in db.execute(
                    "SELECT m.cell, m.arm, g.run, g.step, g.block, g.shadow, g.map, g.deviation FROM gauge g "
                    "JOIN run r ON r.id = g.run AND r.state = 'done' "
                    "JOIN member m ON m.run = g.run AND m.spec = 'so3_gauge'"):
                width = int(re.search(r"model\.width=(\d+)", cell).group(1))
                if row[2] not in ONE_COLUMN:
                    rows[tuple(row[:5])] = (width, arm, *row)
    if not rows:
        sys.exit("so3_gauge: no finished runs of so3_gauge in " + ", ".join(stores))
    return list(rows.values())


def deviations(rows):
    by = collections.defaultdict(list)
    for width, arm, _, step, _, _, kind, value in rows:
        if not kind.startswith("spectrum:"):
            by[width, arm, kind, step].append(value)
    steps = sorted({k[3] for k in by})
    print("| h_c | rule | map | n | " + " | ".join(f"step {s}" for s in steps) + " |")
    print("| --- " * (4 + len(steps)) + "|")
    for width, arm, kind in sorted({k[:3] for k in by}):
        values = [by.get((width, arm, kind, s), ()) for s in steps]
        cells = [f"{mean(v):.2g}" if v else "" for v in values]
        print(f"| {width} | {arm} | {kind} | {max(map(len, values))} | " + " | ".join(cells) + " |")


def spectra_of(rows):
    """{(width, arm, gradient or direction, run, step, block): singular values, the largest first}"""
    by = collections.defaultdict(dict)
    for width, arm, run, step, block, place, kind, value in rows:
        if kind.startswith("spectrum:"):
            by[width, arm, kind[9:], run, step, block][place] = value
    return {k: [v[i] for i in sorted(v)] for k, v in by.items()}


def seen(values):
    return sum(v > SEEN * values[0] for v in values)


def spectra(rows):
    by = collections.defaultdict(list)
    for (width, arm, of, _, step, _), values in spectra_of(rows).items():
        if values[0] > 0:
            by[width, of, arm, step].append(values)
    print("| h_c | of | rule | step | n | above 2^-8 | second | third | median | last |")
    print("| --- " * 10 + "|")
    for key in sorted(by):
        lists = by[key]
        cells = [f"{mean(seen(v) for v in lists):.1f}"]
        for at in (lambda v: v[1], lambda v: v[2], lambda v: v[len(v) // 2], lambda v: v[-1]):
            shares = [at(v) / v[0] for v in lists]
            cells.append(f"{math.exp(mean(math.log(max(s, 1e-300)) for s in shares)):.1e}")
        print("| {} | {} | {} | {} |".format(*key), len(lists), "|", " | ".join(cells), "|")


def against(rows):
    """Muon and polar_ema, bf16 with reference roundings: a block and step is one point."""
    counts = {(k[3], k[4], k[5]): seen(v) for k, v in spectra_of(rows).items() if k[2] == "direction"}
    points = collections.defaultdict(lambda: collections.defaultdict(list))
    for width, arm, run, step, block, _, kind, value in rows:
        if arm in ("muon", "polar_ema") and kind == "ns_bf16_reference":
            points[width][run, step, block].append(value)
    for width in sorted(points):
        x, y = zip(*((counts[k], mean(v)) for k, v in points[width].items()))
        by = collections.defaultdict(list)
        for a, b in zip(x, y):
            by[a].append(b)
        mx, my = mean(x), mean(y)
        cov = sum((a - mx) * (b - my) for a, b in zip(x, y))
        r = cov / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
        print(f"h_c = {width}:", ", ".join(f"{k}: {mean(v):.2f} ({len(v)})" for k, v in sorted(by.items())),
              f"; correlation {r:.2f}, n = {len(x)}")


if __name__ == "__main__":
    tables = {"deviations": deviations, "spectra": spectra, "seen": against}
    if len(sys.argv) < 3 or sys.argv[1] not in tables:
        sys.exit(__doc__)
    tables[sys.argv[1]](read(sys.argv[2:]))
