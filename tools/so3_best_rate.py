"""so3_best_rate.py -- arms of an SO(3) audit over a grid of rates, each at its best one:

    polar report SPEC --store FILE -o DIR
    python3 tools/so3_best_rate.py collect runs.csv DIR/tables/SPEC_runs.csv ..  # runs.csv too
    python3 tools/so3_best_rate.py table runs.csv                # every arm at every rate
    python3 tools/so3_best_rate.py pairs runs.csv a,b c,d ..     # paired differences, both at their best
    python3 tools/so3_best_rate.py figure runs.csv rates.svg     # wants gnuplot

A rate is chosen by the mean best validation error over the seeds that an arm has at all its rates, never by
the test error; "edge" says that it is the largest or smallest that was run, so a better one may lie beyond.
"""
import csv
import math
import re
import subprocess
import sys

from paired_t import mean, paired

COLUMNS = ("width", "rate", "arm", "seed", "test_mse", "best_valid", "code", "device", "id")


def collect(out, paths):
    """Finished runs of lists as `polar report` writes them, whose cells are a width and a rate, and of lists
    that were collected before."""
    runs = {}
    for path in paths:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                if row.get("state", "done") not in ("done", "diverged"):
                    continue
                if "cell" in row:
                    cell = dict(word.split("=") for word in row["cell"].split())
                    row["width"], row["rate"] = cell["model.width"], cell["optim.lr"]
                runs.setdefault(row["id"], row)
    with open(out, "w", newline="") as f:
        w = csv.DictWriter(f, COLUMNS, extrasaction="ignore", lineterminator="\n")
        w.writeheader()
        w.writerows(sorted(runs.values(), key=lambda r: (int(r["width"]), r["arm"], float(r["rate"]),
                                                         int(r["seed"]))))


def read(path):
    """{(width, arm): {rate: {seed: (test error, best validation error)}}}"""
    runs = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            if not re.fullmatch(r"[\w.+-]+", row["arm"]):    # it goes into a script of gnuplot's
                sys.exit(f"{path}: {row['arm']!r} is no name of an arm")
            rates = runs.setdefault((int(row["width"]), row["arm"]), {})
            rates.setdefault(float(row["rate"]), {})[int(row["seed"])] = (float(row["test_mse"]),
                                                                          float(row["best_valid"]))
    return runs


def best_rate(rates):
    """The rate, and whether it lies at the edge of those that were run."""
    common = set.intersection(*(set(seeds) for seeds in rates.values()))
    score = {rate: mean(seeds[s][1] for s in common) for rate, seeds in rates.items()}
    score = {rate: v if math.isfinite(v) else math.inf for rate, v in score.items()}
    rate = min(score, key=score.get)
    return rate, rate in (min(rates), max(rates))


def table(path):
    runs = read(path)
    rates = sorted({r for of in runs.values() for r in of})
    print("h_c arm             " + "".join(f"{r:>16g}" for r in rates) + "   best by validation")
    for (width, arm), of in sorted(runs.items()):
        cells = ""
        for r in rates:
            x = [v[0] for v in of[r].values()] if r in of else []
            cells += f"{mean(x):>10.5f} ({len(x):3})" if x else f"{'-':>16}"
        rate, edge = best_rate(of)
        print(f"{width:3} {arm:16}{cells}   {rate:g}{' (edge)' if edge else ''}")


def pairs(path, wanted):
    runs = read(path)
    print(f"h_c {'a':15} {'rate':>6} {'b':15} {'rate':>6}   n  mean a  mean b     a - b ------ 95 % ------"
          "      t  +  -")
    for width in sorted({w for w, _ in runs}):
        for a, b in wanted:
            if (width, a) not in runs or (width, b) not in runs:
                continue
            (ra, _), (rb, _) = best_rate(runs[width, a]), best_rate(runs[width, b])
            d = paired(*({s: v[0] for s, v in seeds.items()} for seeds in
                         (runs[width, a][ra], runs[width, b][rb])))
            if not d or d.n < 6:
                continue
            print(f"{width:3} {a:15} {ra:6g} {b:15} {rb:6g} {d.n:3} {d.a:.5f} {d.b:.5f} {d.mean:+.6f} "
                  f"{d.mean - d.half:+.6f} {d.mean + d.half:+.6f} {d.t:6.2f} {d.plus:2} {d.minus:2}")


def figure(path, out):
    runs = read(path)
    widths = sorted({w for w, _ in runs})
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
    points = (7, 5, 9, 11, 13, 4, 6, 8, 10, 12)    # of fourteen arms no two share colour and dashes
    arms = sorted({a for _, a in runs})
    script = [f'set terminal svg size {560 * len(widths)},420 font "sans,12" background "white"',
              f'set output "{out}"', "set encoding utf8", "set logscale xy", "set format x '%g'",
              "set grid ytics lc rgb '#dddddd'", 'set xlabel "rate"', "set xrange [0.0009:0.034]",
              "set yrange [0.0001:0.012]",
              f"set multiplot layout 1,{len(widths)}"]
    for width in widths:
        script += [f'set title "h_c = {width}" noenhanced', 'set ylabel "mean test error"',
                   "set key outside right top samplen 1.5 font ',11'"]
        lines = []
        for k, arm in enumerate(arms):
            if (width, arm) not in runs:
                continue
            script.append(f"$d{width}_{k} << E")
            script += [f"{r:g} {mean(v[0] for v in s.values()):.8f}" for r, s in
                       sorted(runs[width, arm].items())]
            script.append("E")
            lines.append(f'$d{width}_{k} using 1:2 with linespoints pt {points[k % 10]} ps 0.7 lw 1.5 '
                         f'dt {1 + k // 7} lc rgb "{colours[k % 7]}" title "{arm}" noenhanced')
        script.append("plot " + ", ".join(lines))
    script.append("unset multiplot")
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"] and len(sys.argv) > 3:
        collect(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["table"] and len(sys.argv) == 3:
        table(sys.argv[2])
    elif sys.argv[1:2] == ["pairs"] and len(sys.argv) > 3:
        pairs(sys.argv[2], [pair.split(",") for pair in sys.argv[3:]])
    elif sys.argv[1:2] == ["figure"] and len(sys.argv) == 4:
        figure(*sys.argv[2:])
    else:
        sys.exit(__doc__)
