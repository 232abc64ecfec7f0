"""so3_claims.py -- the paper's claims about SO(3) against choices that it is silent on:

    polar plan specs/open/so3_choices.yaml --runs --format csv > plan.csv           # which runs are wanted
    polar report --store FILE -o DIR
    python3 tools/so3_claims.py collect runs.csv plan.csv .. DIR/tables/*_runs.csv .. # wanted ones, by id
    python3 tools/so3_claims.py means runs.csv      # every choice at every width, PolarAdamW - Muon
    python3 tools/so3_claims.py claims runs.csv     # the claims, the choices nearest to the paper first
    python3 tools/so3_claims.py check PAGE.md runs.csv    # whether the page has both tables as they are

An arm is called CHOICE_RULE; a choice has a run of each rule at a seed, and seeds are the same clouds at
every width, so that widths are paired too. Runs that several specs share are found by their id in any list
that has one. Verdicts, with 95 % intervals by Student's t and Holm's correction over a claim's tests of one
choice (over the choices nothing is corrected: of twenty that are alike one may stand out):

    order    Muon < PolarAdamW < AdamW at every width, paired by seed. yes: all differences have the sign and
             a corrected p below 0.05; no: one has the other sign and such a p; else open
    grows    PolarAdamW - Muon from each width to the next, paired by seed; as above
    flat     AdamW does not improve from the first width to the last. no: it does, corrected p below 0.05;
             yes: the interval excludes an improvement of 2 % (the paper's steps are +3 and +1 %); else open
    levels   yes: all means within 10 % of the paper's, intervals included; no: an interval beyond; else open

from: the distance of ours to the paper's table, the root mean square of ln(ours / paper) over the means that
there are; shape: the same after the best common factor. fall: Muon's error at the last width over that at the
first. trace: the error of least squares on the trace alone. sd: of PolarAdamW - Muon over the seeds; the
paper's follows from its t. left: runs of AdamW, Muon, PolarAdamW that left the plateau of the trace.
"""
import csv
import math
import pathlib
import re
import sys

from paired_t import holm, mean, paired, spread

COLUMNS = ("width", "choice", "rule", "seed", "test_mse", "trace_mse", "plateau_epoch", "code", "device",
           "id")
RULES = ("adamw", "muon", "polaradamw")
LEVEL, FLAT, ALPHA = 0.10, 0.02, 0.05

def published():
    """{width: {rule: mean}} and {width: (PolarAdamW - Muon, t, n)}, from the spec of the paper's table."""
    text = (pathlib.Path(__file__).parent.parent / "specs/paper/so3_capacity.yaml").read_text()
    row = r"model\.width: (\d+), " + ", ".join(rf"{rule}: (0[\d.]+)" for rule in RULES)
    means = {int(w): dict(zip(RULES, map(float, v))) for w, *v in re.findall(row, text)}
    row = r"model\.width: (\d+), a: polaradamw, b: muon, mean: ([\d.]+), t: ([\d.]+), n: (\d+)"
    return means, {int(w): (float(m), float(t), int(n)) for w, m, t, n in re.findall(row, text)}


PAPER, PAPER_GAP = published()


def collect(out, paths):
    """Lists with a test error are runs that were made, lists without are plans; those of both go to out."""
    wanted, made = {}, {}
    for path in paths:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                if "test_mse" not in row:
                    wanted.setdefault(row["id"], row)
                elif row.get("state", "done") in ("done", "diverged"):
                    made.setdefault(row["id"], row)
    rows = []
    for run, plan in wanted.items():
        if run in made:
            choice, _, rule = plan["arm"].rpartition("_")
            rows.append({**made[run], "width": plan["cell"].removeprefix("model.width="), "choice": choice,
                         "rule": rule, "seed": plan["seed"]})
    rows.sort(key=lambda r: (r["choice"], int(r["width"]), r["rule"], int(r["seed"])))
    with open(out, "w", newline="") as f:
        w = csv.DictWriter(f, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        w.writeheader()
        w.writerows(rows)


def read(path):
    """{choice: {width: {rule: {seed: error}}}}, of widths where every rule has two seeds; a run that diverged
    has an infinite error."""
    runs = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            error = float(row["test_mse"])
            rules = runs.setdefault(row["choice"], {}).setdefault(int(row["width"]), {})
            rules.setdefault(row["rule"], {})[int(row["seed"])] = error if math.isfinite(error) else math.inf
    whole = {choice: {w: rules for w, rules in sorted(widths.items())
                      if w in PAPER and all(len(rules.get(r, {})) > 1 for r in RULES)}
             for choice, widths in runs.items()}
    return {choice: widths for choice, widths in whole.items() if widths}


def minus(x, y):
    return {s: x[s] - y[s] for s in set(x) & set(y)}


def verdict(tests):
    """Of (difference, sign that the claim wants, corrected p)."""
    tests = list(tests)
    if any(p < ALPHA and d.mean * sign < 0 for d, sign, p in tests):
        return "no"
    return "yes" if tests and all(p < ALPHA for _, _, p in tests) else "open" if tests else "-"


class Claims:
    """Every claim's tests for every choice."""

    def __init__(self, runs):
        self.runs = runs
        self.order = self.corrected({
            c: [(paired(of[a], of[b]), 1) for of in widths.values()
                for a, b in (("polaradamw", "muon"), ("adamw", "polaradamw"))] for c, widths in runs.items()})
        self.grows = self.corrected({
            c: [(paired(self.gap(c, b), self.gap(c, a)), 1) for a, b in zip(list(w), list(w)[1:])]
            for c, w in runs.items()})
        self.flat = self.corrected({
            c: [(paired(w[list(w)[-1]]["adamw"], w[list(w)[0]]["adamw"]), -1)] if len(w) > 1 else []
            for c, w in runs.items()})

    @staticmethod
    def corrected(of):
        """{choice: [(difference, sign, p after Holm)]}; tests of fewer than two seeds are left out."""
        out = {}
        for c, tests in of.items():
            kept = [(d, sign) for d, sign in tests if d]
            out[c] = [(d, sign, p) for (d, sign), p in zip(kept, holm([d.p for d, _ in kept]))]
        return out

    def gap(self, choice, width):
        return minus(self.runs[choice][width]["polaradamw"], self.runs[choice][width]["muon"])

    def is_flat(self, choice):
        if not self.flat[choice]:
            return "-"
        d, _, p = self.flat[choice][0]
        if p < ALPHA and d.mean < 0:
            return "no"
        return "yes" if d.mean - d.half > -FLAT * d.b else "open"

    def levels(self, choice):
        inside = True
        for width, rules in self.runs[choice].items():
            for rule in RULES:
                m, half = spread(list(rules[rule].values()))
                low, high = PAPER[width][rule] * (1 - LEVEL), PAPER[width][rule] * (1 + LEVEL)
                if m + half < low or m - half > high:
                    return "no"
                inside &= low <= m - half and m + half <= high
        return "yes" if inside else "open"

    def distances(self, choice):
        """To the paper's table, and after the best common factor."""
        logs = [math.log(mean(rules[r].values()) / PAPER[w][r]) for w, rules in self.runs[choice].items()
                for r in RULES]
        m = mean(logs)
        return math.sqrt(mean(v * v for v in logs)), math.sqrt(mean((v - m) ** 2 for v in logs))

    def fall(self, choice):
        w = list(self.runs[choice].values())
        return mean(w[-1]["muon"].values()) / mean(w[0]["muon"].values()) if len(w) > 1 else math.nan


def trace_levels(path):
    """{(choice, width): {seed: error of least squares on the trace}}, where lists had it."""
    of = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            if row["trace_mse"]:
                seeds = of.setdefault((row["choice"], int(row["width"])), {})
                seeds[int(row["seed"])] = float(row["trace_mse"])
    return of


def leavers(path):
    """{(choice, width, rule): (runs that left the plateau of the trace, runs of which that is known)}"""
    of = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            if row["plateau_epoch"]:
                key = row["choice"], int(row["width"]), row["rule"]
                left, n = of.get(key, (0, 0))
                of[key] = left + (not math.isnan(float(row["plateau_epoch"]))), n + 1
    return of


def means(path):
    """Lines of the table of means."""
    runs, trace, left = read(path), trace_levels(path), leavers(path)
    names = "".join(f"  {name:^26}" for name in ("AdamW", "Muon", "PolarAdamW"))
    gap = f"{'PolarAdamW - Muon':^29}       sd      t       seeds  left"
    yield f"{'choice':23} h_c   n    trace{names}  {gap}"
    for w in sorted({w for widths in runs.values() for w in widths}):
        gap, t, n = PAPER_GAP[w]
        cells = "".join(f"  {PAPER[w][r]:.4f}{'':20}" for r in RULES)
        yield (f"{'the paper':23} {w:3} {n:3}        -{cells}  {gap:+.5f}{'':21}  "
               f"{gap / t * math.sqrt(n):.5f} {t:6.2f}")
    for choice in sorted(runs, key=lambda c: (c != "default", c)):
        for width, rules in runs[choice].items():
            d = paired(rules["polaradamw"], rules["muon"])
            if d is None:
                continue
            known = trace.get((choice, width), {})
            level = f"{mean(known.values()):.5f}" if set(rules["muon"]) <= set(known) else "-"
            cells = ""
            for rule in RULES:
                m, half = spread(list(rules[rule].values()))
                cells += f"  {m:.5f} [{m - half:.5f}, {m + half:.5f}]"
            sd = abs(d.mean / d.t) * math.sqrt(d.n) if d.t else 0.0
            gap = f"{d.mean:+.5f} [{d.mean - d.half:+.5f}, {d.mean + d.half:+.5f}]"
            yield (f"{choice:23} {width:3} {d.n:3}  {level:>7}{cells}  {gap}  "
                   f"{sd:.5f} {d.t:6.2f}  {d.plus:3} of {d.n:3}  "
                   + " ".join("%d/%d" % left.get((choice, width, r), (0, 0)) for r in RULES))


def claims(path):
    """Lines of the table of claims, the nearest choice first: those of all widths, then those of fewer."""
    c = Claims(read(path))
    yield (f"{'choice':23} {'widths':7} {'seeds':11} order  grows  flat  levels   from  shape  fall"
           "  PolarAdamW - Muon from width to width")
    w = [16, 32, 64]
    steps = "".join(f"{PAPER_GAP[b][0] - PAPER_GAP[a][0]:+.5f}{'':22}" for a, b in zip(w, w[1:])).rstrip()
    yield (f"{'the paper':23} {'16-64':7} {'100':11} yes    yes    yes   yes      0.00   0.00  "
           f"{PAPER[64]['muon'] / PAPER[16]['muon']:.2f}  {steps}")
    for choice in sorted(c.runs, key=lambda name: (-len(c.runs[name]), c.distances(name)[0])):
        widths = c.runs[choice]
        count = ",".join(str(min(len(of[r]) for r in RULES)) for of in widths.values())
        names = "-".join(map(str, sorted({min(widths), max(widths)})))
        distance, shape = c.distances(choice)
        fall = "   -" if math.isnan(c.fall(choice)) else f"{c.fall(choice):.2f}"
        steps = " ".join(f"{d.mean:+.5f} [{d.mean - d.half:+.5f}, {d.mean + d.half:+.5f}]"
                         for d, _, _ in c.grows[choice])
        line = (f"{choice:23} {names:7} {count:11} {verdict(c.order[choice]):6} {verdict(c.grows[choice]):6} "
                f"{c.is_flat(choice):5} {c.levels(choice):7} {distance:5.2f}  {shape:5.2f}  {fall}  {steps}")
        yield line.rstrip()


def check(page, path):
    """The page has every line of both tables, indented; nothing of an older table is left between them."""
    with open(page) as f:
        text = f.read()
    wrong = 0
    for name, table in (("means", means), ("claims", claims)):
        block = "".join(f"    {line}\n" for line in table(path))
        if f"\n{block}\n" not in text:
            wrong += 1
            print(f"{page} has not the table that `so3_claims.py {name} {path}` prints")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"] and len(sys.argv) > 4:
        collect(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["means"] and len(sys.argv) == 3:
        print("\n".join(means(sys.argv[2])))
    elif sys.argv[1:2] == ["claims"] and len(sys.argv) == 3:
        print("\n".join(claims(sys.argv[2])))
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 4:
        sys.exit(check(*sys.argv[2:]))
    else:
        sys.exit(__doc__)
