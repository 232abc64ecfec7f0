"""so3_spectrum.py -- singular values of the SO(3) network's first gradients: how many does a bf16 polar map
still see?

    python bench/torch/so3_spectrum.py --width 16 --seeds 6

Prints one line per Schur block: how many singular values lie above 2^-8 of the largest (mean over the draws),
then the second, the third, the median and the last over the first (geometric means). Double precision; the
clouds and weights are torch's draws, not those of `polar run`.
"""
import argparse
import collections

import torch

from so3_train import Regressor, target


def first_gradients(width, seed, clouds, points):
    torch.manual_seed(seed)
    model = Regressor(width).double()
    x = torch.randn(clouds, points, 3, dtype=torch.float64)
    (model(x) - target(x)).square().mean().backward()
    for i, layer in enumerate(model.layers):
        yield f"layers.{i}.W_00", layer.W_00.weight.grad
        yield f"layers.{i}.W_11", layer.W_11.grad
        yield f"layers.{i}.cg_proj", layer.cg_proj.weight.grad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--seeds", type=int, default=6)
    p.add_argument("--clouds", type=int, default=32)
    p.add_argument("--points", type=int, default=64)
    a = p.parse_args()
    found, shape = collections.defaultdict(list), {}
    for seed in range(a.seeds):
        for name, g in first_gradients(a.width, seed, a.clouds, a.points):
            s = torch.linalg.svdvals(g)
            found[name].append(s / s[0])
            shape[name] = f"{g.shape[0]}x{g.shape[1]}"
    for name, rows in found.items():
        s = torch.stack(rows)
        n, mean = s.shape[1], s.log().mean(0).exp()
        seen = (s > 2**-8).double().sum(1).mean().item()
        tail = ""
        if n > 2:
            tail = f"  second {mean[1]:.1e}  third {mean[2]:.1e}"
            tail += f"  median {mean[n // 2]:.1e}  last {mean[-1]:.1e}"
        print(f"{name:18} {shape[name]:8} {seen:4.1f} of {n} above 2^-8{tail}")


if __name__ == "__main__":
    main()
