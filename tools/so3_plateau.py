"""so3_plateau.py -- how much of a gap between two arms of an SO(3) audit goes with the epoch in which they
left the plateau of the trace: python3 tools/so3_plateau.py RUNS.csv [slower faster].

RUNS.csv is what `polar report` writes (docs/results/so3_capacity/so3_capacity_runs.csv). Per cell: how many
runs of each arm left, and when; then, over the seeds where both left, least squares of the difference in test
error on the difference in that epoch. The intercept is the gap of runs that left together.
"""
import csv
import math
import sys


def read(path):
    cells = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            if row["state"] == "planned":
                continue
            arms = cells.setdefault(row["cell"], {})
            epoch = float(row["plateau_epoch"])
            arms.setdefault(row["arm"], {})[int(row["seed"])] = (float(row["test_mse"]), epoch)
    return cells


def fit(x, y):
    """Intercept and slope with their standard errors, and the correlation."""
    n = len(x)
    mx, my = sum(x) / n, sum(y) / n
    sxx = sum((a - mx) ** 2 for a in x)
    sxy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    syy = sum((b - my) ** 2 for b in y)
    slope = sxy / sxx
    left = (syy - slope * sxy) / (n - 2)
    return my - slope * mx, math.sqrt(left * (1 / n + mx * mx / sxx)), slope, math.sqrt(
        left / sxx), sxy / math.sqrt(sxx * syy)


def main(path, slower="polaradamw", faster="muon"):
    for cell, arms in read(path).items():
        for arm, runs in arms.items():
            left = sorted(e for _, e in runs.values() if not math.isnan(e))
            quartiles = [left[int(q * (len(left) - 1))] for q in (0.25, 0.5, 0.75)] if left else []
            print(f"{cell}  {arm:12} left {len(left):3} of {len(runs)}  quartiles {quartiles}")
        a, b = arms[slower], arms[faster]
        both = [s for s in a if s in b and not math.isnan(a[s][1]) and not math.isnan(b[s][1])]
        x = [a[s][1] - b[s][1] for s in both]
        y = [a[s][0] - b[s][0] for s in both]
        base, base_error, slope, slope_error, r = fit(x, y)
        gap = sum(y) / len(y)
        print(
            f"{cell}  {slower} - {faster}, n {len(both)}: later by {sum(x) / len(x):.1f} epochs, gap "
            f"{gap:.5f}; "
            f"left together {base:.5f} +- {base_error:.5f}, per epoch {slope:.2e} +- {slope_error:.1e}, "
            f"r {r:.2f}: {100 * (1 - base / gap):.0f} % of the gap goes with leaving later")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
