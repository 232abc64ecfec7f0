"""maps.py -- the torch twin of `polar bench maps`: Newton-Schulz in bf16 over the same sets of matrices,
batched by shape.

    python bench/torch/maps.py --device cuda --set deit --set 4096

Prints one JSON object per row: {"what", "mode", "seconds", "flops", "peak_share"}; the median of at least 30
samples. The peak is the best bf16 product of the same run. Modes: eager, compiled (torch.compile), graph (one
CUDA graph of the eager calls).
"""
import argparse
import json
import statistics
import time

import torch

A, B, C = 3.4445, -4.7750, 2.0315
SETS = {
    "deit": [(12, 576, 192), (12, 192, 192), (12, 768, 192), (12, 192, 768)],
    "mlp": [(12, 192, 768)],
    "small": [(100, 16, 16), (100, 16, 152)],
    "1024": [(1, 1024, 1024)],
    "2048": [(1, 2048, 2048)],
    "4096": [(1, 4096, 4096)],
    "4096x16384": [(1, 4096, 16384)],
    "8192": [(1, 8192, 8192)],
}


def ns5(G, steps):
    X = G.bfloat16()
    tall = X.size(-2) > X.size(-1)
    if tall:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        S = X @ X.mT
        X = A * X + (B * S + C * S @ S) @ X
    return (X.mT if tall else X).float()


def group(tensors):
    """One batch per shape, a tall matrix counted as its transpose: what `polar` does."""
    groups = {}
    for t in tensors:
        t = t.mT.contiguous() if t.size(-2) > t.size(-1) else t
        groups.setdefault(tuple(t.shape[-2:]), []).append(t)
    return [torch.cat(g) for g in groups.values()]


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def median(fn, device, samples=31, budget=4.0):
    for _ in range(3):
        fn()
    wait(device)
    t = time.perf_counter()
    fn()
    wait(device)
    replays = max(1, int(5e-3 / max(time.perf_counter() - t, 1e-7)))
    times, start = [], time.perf_counter()
    while len(times) < samples and (len(times) < 5 or time.perf_counter() - start < budget):
        t = time.perf_counter()
        for _ in range(replays):
            fn()
        wait(device)
        times.append((time.perf_counter() - t) / replays)
    return statistics.median(times)


def captured(fn):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return g.replay


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--set", action="append", choices=SETS, help="may be given again; default deit")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's choice")
    p.add_argument("--mode",
                   action="append",
                   choices=["eager", "compiled", "graph"],
                   help="default: eager and, on cuda, graph")
    a = p.parse_args()
    device = torch.device(a.device)
    if a.threads:
        torch.set_num_threads(a.threads)
    modes = a.mode or (["eager", "graph"] if device.type == "cuda" else ["eager"])
    if "graph" in modes and device.type != "cuda":
        p.error("--mode graph is a CUDA graph: it wants --device cuda")

    peak = 0.0
    for side in (1024, 2048, 4096, 8192) if device.type == "cuda" else (512, 1024):
        x = torch.randn(side, side, device=device, dtype=torch.bfloat16)
        y = torch.randn(side, side, device=device, dtype=torch.bfloat16)
        peak = max(peak, 2 * side**3 / median(lambda: x @ y, device))
    print(
        json.dumps({"what": "peak", "mode": "product", "flops_per_second": peak, "torch": torch.__version__}))

    for name in a.set or ["deit"]:
        shapes = SETS[name]
        tensors = [torch.randn(s, device=device) for s in shapes]
        flops = sum(b * a.steps * (4 * min(r, c) ** 2 * max(r, c) + 2 * min(r, c) ** 3) for b, r, c in shapes)
        batches = group(tensors)
        work = lambda f: [f(t, a.steps) for t in batches]
        for mode in modes:
            fn = torch.compile(ns5, dynamic=False) if mode == "compiled" else ns5
            call = captured(lambda: work(fn)) if mode == "graph" else lambda: work(fn)
            s = median(call, device)
            print(
                json.dumps({
                    "what": name, "mode": mode, "seconds": s, "flops": flops, "peak_share": flops / s / peak
                }))


if __name__ == "__main__":
    with torch.no_grad():
        main()
