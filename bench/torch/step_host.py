"""step_host.py -- what Python costs in opt.step(): the library's own step is replaced by a call that does
nothing, torch's AdamW stands beside it whole.

    POLAR_LIBRARY=build/cpu/libpolar.so PYTHONPATH=python python bench/torch/step_host.py

One thread; microseconds of that thread's CPU time, the least of many. "stays": the gradients lie where they
lay in the step before; "moves": they do not, as after zero_grad(set_to_none=True). Matrices are 12 x 12, so
that torch's own steps are nearly all host, too.
"""
import argparse
import time

import torch

import polar
from polar._library import lib

LISTS = {
    "152 parameters": ([(12, 12)] * 48, [(12, )] * 104),
    "10 parameters": ([(12, 12)] * 4, [(12, )] * 6),
}


def params(shapes, dtype):
    out = [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]
    for p in out:
        p.grad = torch.randn(p.shape).to(dtype)
    return out


def least(fn, samples, before=lambda: None):
    best = float("inf")
    for _ in range(samples):
        before()
        t = time.thread_time()
        fn()
        best = min(best, time.thread_time() - t)
    return 1e6 * best


def moves(every):
    """A function that gives every parameter another gradient of two."""
    sets, turn = [[p.grad for p in every], [p.grad.clone() for p in every]], [0]

    def move():
        turn[0] ^= 1
        for p, g in zip(every, sets[turn[0]]):
            p.grad = g

    return move


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--samples", type=int, default=3000)
    n = a.parse_args().samples
    torch.set_num_threads(1)
    real = lib.polar_optim_step
    for name, (matrices, rest) in LISTS.items():
        for dtype in (torch.float32, torch.bfloat16):
            m, r = params(matrices, dtype), params(rest, dtype)
            opt = polar.PolarAdamW([dict(params=m, route="matrix"), dict(params=r, route="adamw")])
            opt.step()
            lib.polar_optim_step = lambda *_: 0
            try:
                stays, other = least(opt.step, n), least(opt.step, n, moves(m + r))
            finally:
                lib.polar_optim_step = real
            print(f"{name}, {str(dtype)[6:]}: polar.PolarAdamW without the library's step: "
                  f"stays {stays:.1f} us, moves {other:.1f}", flush=True)
        for kind in ("fused", "foreach"):
            theirs = torch.optim.AdamW(params(matrices + rest, torch.float32), **{kind: True})
            theirs.step()
            print(f"{name}, float32: torch.optim.AdamW, {kind}, whole: {least(theirs.step, n // 10):.1f} us",
                  flush=True)


if __name__ == "__main__":
    main()
