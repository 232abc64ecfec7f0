"""step.py -- the torch twin of `polar bench step`: torch.optim.Muon on DeiT-Tiny's 48 block matrices, torch.optim.AdamW on all its parameters.

    python bench/torch/step.py --device cpu --threads 2

Prints one JSON object per row: {"what", "seconds"}; the median of at least 15 samples.
"""
import argparse
import json
import statistics
import time

import torch


def matrices():
    return [s for _ in range(12) for s in ((576, 192), (192, 192), (768, 192), (192, 768))]


def everything():
    block = [(192,), (192,), (576, 192), (576,), (192, 192), (192,), (192,), (192,), (768, 192), (768,), (192, 768), (192,)]
    return [(1, 1, 192), (1, 197, 192), (192, 3, 16, 16), (192,)] + block * 12 + [(192,), (192,), (100, 192), (100,)]


def params(shapes, device):
    out = []
    for s in shapes:
        p = torch.nn.Parameter(0.02 * torch.randn(s, device=device))
        p.grad = 0.02 * torch.randn(s, device=device)
        out.append(p)
    return out


def median(fn, device, samples=31, budget=6.0):
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3):
        fn()
    sync()
    times, start = [], time.perf_counter()
    while len(times) < samples and (len(times) < 15 or time.perf_counter() - start < budget):
        t = time.perf_counter()
        fn()
        sync()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's choice")
    p.add_argument("--large", action="store_true", help="AdamW on 100 million weights too")
    a = p.parse_args()
    device = torch.device(a.device)
    if a.threads:
        torch.set_num_threads(a.threads)
    rows = [
        ("muon, matrices", lambda: torch.optim.Muon(params(matrices(), device), lr=5e-3)),
        ("adamw (fused), deit", lambda: torch.optim.AdamW(params(everything(), device), lr=5e-4, weight_decay=0.05, fused=True)),
    ]
    if a.large:
        rows.append(("adamw (fused), 100m", lambda: torch.optim.AdamW(params([(12500000,)] * 8, device), lr=5e-4, weight_decay=0.05, fused=True)))
    for what, make in rows:
        opt = make()
        print(json.dumps({"what": what, "seconds": median(opt.step, device), "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)


if __name__ == "__main__":
    main()
