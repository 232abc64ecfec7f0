"""compare_builds.py -- two builds of polar by turns on the same cores: the ratio of every row of `polar
bench`, with its spread.

    # every bench, 1, 2 and 16 threads, alone and beside a neighbour
    python bench/compare_builds.py OLD NEW
    python bench/compare_builds.py OLD NEW --threads 16 --rounds 9 --busy 1 -- step --set matrices
    # a setting instead of a build
    python bench/compare_builds.py NEW NEW --new-device cpu:threads=16,spin=50 --threads 16 -- maps

OLD and NEW are `polar` programs. A round runs both, the other first in every second one. A row's figure is
the fastest sample quartile (q1) of a run; its ratio is NEW over OLD of the same round; printed are the median
of the rounds, their quartiles, and the ratio of the fastest runs. A row is called slower where the median and
the ratio of the fastest are both beyond the limit. --busy N: N loops that take turns on the same cores
meanwhile. Cores: the first --cores of those this process may use, as many as threads unless told. Exit code
1: a row is slower.
"""
import argparse
import csv
import io
import os
import statistics
import subprocess
import sys

ALL = [["maps"], ["step"], ["so3"], ["deit"], ["ops", "--scale", "4"]]


def rows(program, words, device, cores):
    out = subprocess.run([program, "bench", *words, "--device", device, "--format", "csv"],
                         stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL,
                         text=True,
                         check=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, cores)).stdout
    seen, table = {}, {}
    for r in csv.DictReader(io.StringIO(out)):
        if r["what"].startswith("peak"):
            continue
        seen[r["what"]] = seen.get(r["what"], 0) + 1    # rows of one name are told apart by their order
        table[(r["what"], seen[r["what"]])] = float(r["q1"])
    return table


def compare(a, words, threads, busy):
    cores = sorted(os.sched_getaffinity(0))[:a.cores or threads]
    devices = [a.old_device or f"cpu:threads={threads}", a.new_device or f"cpu:threads={threads}"]
    neighbours = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"],
                         preexec_fn=lambda: os.sched_setaffinity(0, cores)) for _ in range(busy)
    ]
    runs = [[], []]
    try:
        for k in range(a.rounds):
            for side in (0, 1) if k % 2 == 0 else (1, 0):
                runs[side].append(rows((a.old, a.new)[side], words, devices[side], cores))
    finally:
        for n in neighbours:
            n.kill()
            n.wait()
    slower = 0
    print(
        f"\n{' '.join(words)}: {threads} threads on {len(cores)} cores, {busy} neighbours, {a.rounds} rounds"
        f"\n  {'median':>7} {'q1':>7} {'q3':>7} {'fastest':>8}   {'old':>10}  row")
    for key in runs[0][0]:
        if not all(key in r for side in runs for r in side):
            continue
        ratio = sorted(n[key] / o[key] for o, n in zip(*runs))
        best = [min(r[key] for r in side) for side in runs]
        median, q1, q3 = statistics.median(ratio), ratio[len(ratio) // 4], ratio[(3 * len(ratio)) // 4]
        bad = min(median, best[1] / best[0]) > 1 + a.limit / 100
        slower += bad
        if bad or not a.quiet:
            print(
                f"  {median:7.3f} {q1:7.3f} {q3:7.3f} {best[1] / best[0]:8.3f}   {best[0] * 1e3:7.3f} ms  "
                f"{key[0]}{'   SLOWER' if bad else ''}",
                flush=True)
    return slower


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--threads", type=int, action="append", help="may be given again (default 1, 2, 16)")
    p.add_argument("--busy",
                   type=int,
                   action="append",
                   help="neighbours; may be given again (default 0 and 1)")
    p.add_argument("--cores", type=int, default=0)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--limit", type=float, default=3.0, help="per cent (default 3)")
    p.add_argument("--old-device")
    p.add_argument("--new-device")
    p.add_argument("--quiet", action="store_true", help="only rows that are slower")
    argv = sys.argv[1:]
    words = argv[argv.index("--") + 1:] if "--" in argv else None
    a = p.parse_args(argv[:argv.index("--")] if "--" in argv else argv)
    slower = 0
    for threads in a.threads or [1, 2, 16]:
        for busy in a.busy if a.busy is not None else [0, 1]:
            for what in [words] if words else ALL:
                slower += compare(a, what, threads, busy)
    print(f"\n{slower} rows slower by more than {a.limit:g} %")
    return slower > 0


if __name__ == "__main__":
    sys.exit(main())
