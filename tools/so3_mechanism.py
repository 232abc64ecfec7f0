"""so3_mechanism.py -- paired differences between arms of SO(3) runs listed in a CSV, and a figure's data:
python3 tools/so3_mechanism.py docs/results/so3_mechanism/so3_mechanism_runs.csv.

Over the seeds that both arms have: n, means, mean difference with its 95 % interval by Student's t, t, signs.
"""
import csv
import math
import sys

PAIRS = (("muon_fused", "muon"), ("muon_f32", "muon"), ("polaradamw_fused", "polaradamw"),
         ("polaradamw_f32", "polaradamw"), ("adamw_rotated", "adamw"), ("polaradamw_rotated", "polaradamw"),
         ("adamw_rotated_1", "adamw"), ("polaradamw_rotated_1", "polaradamw"), ("muon_rotated", "muon"),
         ("muon_f32_rotated", "muon_f32"), ("noise_0.1", "muon"),
         ("noise_0.7", "muon"), ("noise_2", "muon"), ("turn_0.7", "muon"), ("turn_1.4", "muon"),
         ("turn_0.7_fixed", "muon"), ("turn_1.4_fixed", "muon"), ("polar_ema", "muon"), ("muon_v", "muon"),
         ("polaradamw", "polar_ema"), ("polaradamw", "muon_v"), ("polaradamw_b95", "polaradamw"),
         ("polar_ema_b95", "muon"), ("polaradamw_rotated", "muon"), ("polaradamw", "muon"))


def quantile(df):
    """0.975 of Student's t: Cornish and Fisher's series, good to 0.001 from five degrees of freedom on."""
    z = 1.959963984540054
    return (z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3))


def main(path):
    runs = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            runs.setdefault((int(row["width"]), row["arm"]), {})[int(row["seed"])] = float(row["test_mse"])
    for width in sorted({w for w, _ in runs}):
        for a, b in PAIRS:
            x, y = runs.get((width, a), {}), runs.get((width, b), {})
            both = sorted(set(x) & set(y))
            n = len(both)
            if n < 4:
                continue
            d = [x[s] - y[s] for s in both]
            mean = sum(d) / n
            error = math.sqrt(sum((v - mean) ** 2 for v in d) / (n - 1) / n)
            half = quantile(n - 1) * error
            print(f"{width:3} {a:19} {b:11} {n:4} {sum(x[s] for s in both) / n:.5f} "
                  f"{sum(y[s] for s in both) / n:.5f} {mean:+.6f} {mean - half:+.6f} {mean + half:+.6f} "
                  f"{mean / error:7.2f} {sum(v > 0 for v in d):3} {sum(v < 0 for v in d):3}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
