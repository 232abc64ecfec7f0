"""so3_mechanism.py -- SO(3) runs of several specs as one list, their paired differences, a figure of them:

    polar report SPEC.. --store FILE -o DIR
    python3 tools/so3_mechanism.py collect runs.csv DIR/tables/so3_*_runs.csv   # each run once, by its id
    python3 tools/so3_mechanism.py pairs runs.csv ..
    python3 tools/so3_mechanism.py figure pairs.svg runs.csv ..                 # wants gnuplot

Over the seeds that both arms have: n, means, mean difference with its 95 % interval by Student's t, t, signs.
"""
import csv
import subprocess
import sys

from paired_t import paired

COLUMNS = ("width", "arm", "seed", "test_mse", "plateau_epoch", "code", "device", "id")

# What is changed, arm, arm it is compared with. A run has the name of the first list that holds it.
PAIRS = (("roundings", "muon_fused", "muon"), ("roundings", "muon_f32", "muon"),
         ("roundings", "polaradamw_fused", "polaradamw"), ("roundings", "polaradamw_f32", "polaradamw"),
         ("noise and turns", "noise_0.1", "muon_f32"), ("noise and turns", "noise_0.7", "muon_f32"),
         ("noise and turns", "noise_2", "muon_f32"), ("noise and turns", "turn_0.7", "muon_f32"),
         ("noise and turns", "turn_0.7_fixed", "muon_f32"), ("noise and turns", "rate_0.755", "muon_f32"),
         ("noise and turns", "turn_1.4", "muon_f32"), ("noise and turns", "turn_1.4_fixed", "muon_f32"),
         ("noise and turns", "rate_0.02", "muon_f32"), ("noise and turns", "turn_0.7", "rate_0.755"),
         ("noise and turns", "turn_1.4", "rate_0.02"),
         ("coordinates", "muon_rotated", "muon"), ("coordinates", "muon_f32_rotated", "muon_f32"),
         ("coordinates", "adamw_rotated", "adamw"), ("coordinates", "polaradamw_rotated", "polaradamw"),
         ("coordinates", "adamw_rotated_1", "adamw"), ("coordinates", "polaradamw_rotated_1", "polaradamw"),
         ("coordinates", "polaradamw_rotated", "muon"),
         ("momentum, preconditioner", "polar_ema", "muon"), ("momentum, preconditioner", "muon_v", "muon"),
         ("momentum, preconditioner", "polaradamw", "polar_ema"),
         ("momentum, preconditioner", "polaradamw", "muon_v"),
         ("momentum, preconditioner", "polar_ema_b95", "polar_ema"),
         ("momentum, preconditioner", "polaradamw_b95", "polaradamw"),
         ("Schur blocks only", "muon_schur", "muon"), ("Schur blocks only", "polaradamw_schur", "polaradamw"),
         ("Schur blocks only", "polaradamw_schur", "muon_schur"),
         ("the whole gap", "polaradamw", "muon"))


def collect(out, paths):
    """Finished runs of lists as `polar report` writes them, whose cells are widths."""
    runs = {}
    for path in paths:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                if row["state"] == "done":
                    row["width"] = row["cell"].removeprefix("model.width=")
                    runs.setdefault(row["id"], row)
    with open(out, "w", newline="") as f:
        w = csv.DictWriter(f, COLUMNS, extrasaction="ignore", lineterminator="\n")
        w.writeheader()
        w.writerows(sorted(runs.values(), key=lambda r: (int(r["width"]), r["arm"], int(r["seed"]))))


def differences(paths):
    """(width, what, a, b, their difference)"""
    runs = {}
    for path in paths:
        with open(path, newline="") as f:
            for row in csv.DictReader(f):
                arm = runs.setdefault((int(row["width"]), row["arm"]), {})
                arm[int(row["seed"])] = float(row["test_mse"])
    for width in sorted({w for w, _ in runs}):
        for what, a, b in PAIRS:
            x, y = runs.get((width, a), {}), runs.get((width, b), {})
            d = paired(x, y)
            if d and d.n >= 6:
                yield width, what, a, b, d


def pairs(paths):
    print(f"h_c {'a':18} {'b':11}     n  mean a  mean b     a - b ------ 95 % ------       t   +   -")
    for width, _, a, b, d in differences(paths):
        print(f"{width:3} {a:18} {b:11} {d.n:5} {d.a:.5f} {d.b:.5f} {d.mean:+.6f} {d.mean - d.half:+.6f} "
              f"{d.mean + d.half:+.6f} {d.t:7.2f} {d.plus:3} {d.minus:3}")


def figure(out, paths):
    rows = list(differences(paths))
    widths = sorted({r[0] for r in rows})
    order = [p for p in PAIRS if any(r[1:4] == p for r in rows)]
    place, y, heads = {}, 0.0, []
    for i, p in enumerate(order):
        if i == 0 or order[i - 1][0] != p[0]:
            y -= 1.2
            heads.append((p[0], y + 1.0))
        place[p] = y
        y -= 1.0
    colours = {16: "#1b9e77", 32: "#d95f02", 64: "#7570b3", 128: "#e7298a"}
    labels = ", ".join(f'"{a} - {b}" {place[w, a, b]:.2f}' for w, a, b in order)
    script = [f'set terminal svg size 900,{int(140 + 22 * -y)} font "sans,12" background "white"',
              f'set output "{out}"', "set encoding utf8", f"set yrange [{y:.2f}:1.2]",
              f"set ytics ({labels}) noenhanced",
              "set xrange [-0.0019:0.0066]", 'set format x "%.3f"', "set grid xtics lc rgb '#dddddd'",
              "set arrow from 0, graph 0 to 0, graph 1 nohead lc rgb '#444444'", "set key top right",
              'set xlabel "difference of the test error, mean and 95 % interval (paired by seed)"']
    for text, at in heads:
        script.append(f'set label "{text}" at graph 0.01, first {at:.2f} font "sans-Bold,12" noenhanced')
    for k, w in enumerate(widths):
        script.append(f"$d{w} << E")
        shift = 0.22 * ((len(widths) - 1) / 2 - k)
        for r in rows:
            if r[0] == w:
                script.append(f"{r[4].mean:.8f} {place[r[1:4]] + shift:.3f} {r[4].half:.8f}")
        script.append("E")
    script.append("plot " + ", ".join(
        f'$d{w} using 1:2:3 with xerrorbars pt 7 ps 0.5 lw 1.5 lc rgb "{colours[w]}" '
        f'title "h_c = {w}" noenhanced' for w in widths))
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"] and len(sys.argv) > 3:
        collect(sys.argv[2], sys.argv[3:])
    elif sys.argv[1:2] == ["pairs"] and len(sys.argv) > 2:
        pairs(sys.argv[2:])
    elif sys.argv[1:2] == ["figure"] and len(sys.argv) > 3:
        figure(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)
