"""test_so3_claims.py -- the statistics of tools/ against golden values and against `polar audit`, verdicts of
tools/so3_claims.py and tables of tools/so3_gauge.py on runs whose truth is known. Plain Python.

    python3 tests/report/test_so3_claims.py
"""
import contextlib
import csv
import io
import json
import math
import pathlib
import sqlite3
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import paired_t       # noqa: E402
import so3_claims     # noqa: E402
import so3_gauge      # noqa: E402

failed = 0


def test(what, good, line):
    global failed
    failed += not good
    print(f"{what:58} {line}  {'PASS' if good else 'FAIL'}")


def close(a, b, tol):
    return abs(a - b) <= tol * max(1e-300, abs(b))


def test_student():
    golden = json.loads((ROOT / "tests/golden/audit_stats.json").read_text())
    t, df, shift, below = golden["nct"][:4]
    assert shift == 0
    p = paired_t.p_value(t, df)
    # 1 - p of about 0.3 has the rounding of some ten operations: 1e-15 each
    test("p of Student's t, as scipy's", close(p, 2 * (1 - below), 1e-14), f"{p:.15f}")
    for i in range(5):
        corrected = paired_t.holm(golden[f"holm.{i}.p"])
        good = all(close(a, b, 1e-14) for a, b in zip(corrected, golden[f"holm.{i}"], strict=True))
        test("Holm's correction, as statsmodels'", good, f"{len(corrected)} tests")
    # Student's own table has four figures
    for df, q in ((1, 12.71), (2, 4.303), (7, 2.365), (8, 2.306), (19, 2.093), (99, 1.984)):
        got = paired_t.quantile(df)
        test("the quantile of the tables", close(got, q, 3e-4), f"df {df}: {got:.4f}")


def test_audit():
    """The same numbers as `polar audit` for the runs of docs/results/so3_capacity."""
    folder = ROOT / "docs/results/so3_capacity"
    runs = {}
    with open(folder / "so3_capacity_runs.csv", newline="") as f:
        for row in csv.DictReader(f):
            runs.setdefault((row["cell"], row["arm"]), {})[row["seed"]] = float(row["test_mse"])
    for pair in json.loads((folder / "so3_capacity.json").read_text())["pairs"]:
        d = paired_t.paired(runs[pair["cell"], pair["a"]], runs[pair["cell"], pair["b"]])
        # sums of 100 terms in another order: 100 u = 1e-14 of the largest, magnified tenfold by differences;
        # a p below 1e-15 is rounding here
        good = (d.n == pair["n"] and close(d.mean, pair["mean_diff"], 1e-12) and close(d.t, pair["t"], 1e-12)
                and close(d.mean - d.half, pair["ci95"][0], 1e-10) and abs(d.p - pair["p"]) < 1e-14
                and (d.plus, d.minus) == (pair["positive"], pair["negative"]))
        test("a pair as polar audit has it", good, f"{pair['cell']} {pair['a']} - {pair['b']}: t {d.t:.3f}")


def write(path, choices):
    """choices: {name: {width: (adamw, muon, polaradamw)}}; ten seeds that move all by up to 1 %, and each by
    up to 0.2 % of its own."""
    with open(path, "w", newline="") as f:
        w = csv.DictWriter(f, so3_claims.COLUMNS, restval="", lineterminator="\n")
        w.writeheader()
        for choice, widths in choices.items():
            for width, means in widths.items():
                for k, (rule, m) in enumerate(zip(so3_claims.RULES, means)):
                    for seed in range(10):
                        own = math.sin(7.3 * seed + 2.1 * k + 0.37 * width)
                        error = m * (1 + 0.01 * math.sin(3.7 * seed) + 0.002 * own)
                        w.writerow({"width": width, "choice": choice, "rule": rule, "seed": seed,
                                    "test_mse": error, "trace_mse": 0.01})


def test_verdicts():
    paper = {w: tuple(so3_claims.PAPER[w][r] for r in so3_claims.RULES) for w in (16, 32, 64)}
    choices = {
        "paper": paper,
        "turned": {w: (a, p, m) for w, (a, m, p) in paper.items()},          # PolarAdamW below Muon
        "shrinks": {16: (0.0099, 0.0060, 0.0074), 32: (0.0099, 0.0060, 0.0070)},
        "improves": {16: (0.0099, 0.0067, 0.0074), 64: (0.0090, 0.0055, 0.0067)},
        "alike": {16: (0.0099, 0.0074, 0.0074), 32: (0.0099, 0.0074, 0.0074)},  # Muon and PolarAdamW
        "double": {w: tuple(2 * v for v in means) for w, means in paper.items()},
        "one_width": {16: paper[16]},
        "near": {16: (0.0099 * 1.098, 0.0067, 0.0074)},                      # the interval crosses 10 %
    }
    wanted = {    # order, grows, flat, levels
        "paper": ("yes", "yes", "yes", "yes"), "turned": ("no", "no", "yes", "no"),
        "shrinks": ("yes", "no", "yes", "open"), "improves": ("yes", "yes", "no", "no"),
        "alike": ("open", "open", "yes", "no"), "double": ("yes", "yes", "yes", "no"),
        "one_width": ("yes", "-", "-", "yes"), "near": ("yes", "-", "-", "open"),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "runs.csv"
        write(path, choices)
        c = so3_claims.Claims(so3_claims.read(path))
        for name, verdicts in wanted.items():
            got = (so3_claims.verdict(c.order[name]), so3_claims.verdict(c.grows[name]), c.is_flat(name),
                   c.levels(name))
            test("verdicts: order, grows, flat, levels", got == verdicts, f"{name}: {', '.join(got)}")
        near, shape = c.distances("double")
        # the seeds' 1 % are not quite of mean 0
        test("twice the paper's errors: far, of its shape", close(near, math.log(2), 0.01) and shape < 0.001,
             f"from {near:.4f}, shape {shape:.5f}")
        lines = list(so3_claims.claims(path))
        test("the nearest comes first", lines[2].startswith("paper "), lines[2][:40].rstrip())
        page = pathlib.Path(folder) / "page.md"
        text = "".join(f"\n{''.join(f'    {line}{chr(10)}' for line in table(path))}\n"
                       for table in (so3_claims.means, so3_claims.claims))
        page.write_text(text)
        test("a page that has the tables", so3_claims.check(page, path) == 0, "")
        page.write_text(text.replace("0.0099", "0.0098", 1))
        test("one that has another number", so3_claims.check(page, path) == 1, "")


def test_collect():
    """Runs are found by their id, whatever a list calls them; plans say which are wanted and their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "plan.csv").write_text("id,cell,arm,seed\naa,model.width=16,slow_1000_muon,3\n"
                                         "bb,model.width=16,slow_1000_adamw,3\n")
        (folder / "a.csv").write_text("cell,arm,seed,state,test_mse,id\nx,muon,3,done,0.5,aa\n"
                                      "x,adamw,3,planned,,bb\n")
        (folder / "b.csv").write_text("width,arm,seed,test_mse,id\n16,muon,3,0.75,aa\n16,other,3,0.25,cc\n")
        out = folder / "runs.csv"
        so3_claims.collect(out, [folder / "plan.csv", folder / "a.csv", folder / "b.csv"])
        rows = list(csv.DictReader(out.open()))
        good = len(rows) == 1 and [rows[0][k] for k in ("choice", "rule", "width", "seed", "test_mse")] == [
            "slow_1000", "muon", "16", "3", "0.5"]
        test("wanted and made, the first list's", good, f"{len(rows)} run")


def test_gauge():
    """Two blocks of a run of Muon, one column in a third; a run that is not done does not count."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "store.db"
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE run(id, state)")
        db.execute("CREATE TABLE member(spec, cell, arm, seed, run)")
        db.execute("CREATE TABLE gauge(run, step, block, shadow, map, deviation)")
        for run, state in (("r", "done"), ("s", "planned")):
            db.execute("INSERT INTO run VALUES(?, ?)", (run, state))
            db.execute("INSERT INTO member VALUES('so3_gauge', 'model.width=4', 'muon', 0, ?)", (run,))
            for block, deviation, values in (("layers.0.W_11", 9, (1,)),
                                             ("layers.1.W_11", 0.5, (4, 2, 1, 1e-3)),
                                             ("layers.2.W_11", 0.25, (2, 1, 0.5, 0.25))):
                for shadow in (0, 1):
                    db.execute("INSERT INTO gauge VALUES(?, 1, ?, ?, 'ns_bf16_reference', ?)",
                               (run, block, shadow, deviation * (1 if run == "r" else 100)))
                for i, value in enumerate(values):
                    db.execute("INSERT INTO gauge VALUES(?, 1, ?, ?, 'spectrum:direction', ?)",
                               (run, block, i, value))
        db.execute("INSERT INTO gauge VALUES('r', 2, 'layers.1.W_11', 0, 'exact', 0.5)")
        db.commit()
        db.close()
        rows = so3_gauge.read([path])
        for table, wanted in (
                (so3_gauge.deviations, "| 4 | muon | ns_bf16_reference | 4 | 0.38 |  |"),
                (so3_gauge.deviations, "| 4 | muon | exact | 1 |  | 0.5 |"),    # a map at one step only
                (so3_gauge.spectra, "| 4 | direction | muon | 1 | 2 | 3.5 | 5.0e-01 | 2.5e-01 |"),
                (so3_gauge.against, "3: 0.50 (1), 4: 0.25 (1) ; correlation -1.00, n = 2")):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                table(rows)
            test(f"gauge: {table.__name__}", wanted in out.getvalue(), "")


test_student()
test_audit()
test_verdicts()
test_collect()
test_gauge()
sys.exit(failed > 0)
