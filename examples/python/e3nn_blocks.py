"""e3nn_blocks.py -- an equivariant model of e3nn whose flat weights are seen as blocks.

    pip install . torch e3nn
    python examples/python/e3nn_blocks.py

e3nn keeps the weights of all paths of a layer in one vector. To AdamW that is all the same; a polar map wants
the matrices. The routes show each flat weight as one matrix (channels in, channels out) for every path,
without being asked.
"""
import argparse

import torch
from e3nn import o3
from e3nn.nn import Gate

import polar


class Network(torch.nn.Module):
    """Scalars and vectors in, mixed, gated, mixed again, a vector out."""

    def __init__(self):
        super().__init__()
        hidden = o3.Irreps("16x0e + 16x1o")
        self.gate = Gate("16x0e", [torch.nn.functional.silu], "16x0e", [torch.sigmoid], "16x1o")
        self.first = o3.Linear("4x0e + 8x1o", self.gate.irreps_in)
        self.square = o3.FullyConnectedTensorProduct(hidden, hidden, hidden)
        self.last = o3.Linear(hidden, "1x1o")

    def forward(self, x):
        h = self.gate(self.first(x))
        return self.last(h + self.square(h, h))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=100)
    a = p.parse_args()
    torch.manual_seed(0)
    model, teacher = Network(), Network()
    opt = polar.PolarAdamW(model, lr=1e-2, aux_lr=1e-3)
    print(opt.routes())
    irreps = o3.Irreps("4x0e + 8x1o")
    for t in range(a.steps):
        x = irreps.randn(256, -1)
        opt.zero_grad()
        with torch.no_grad():
            target = teacher(x)
        loss = (model(x) - target).square().mean() / target.square().mean()
        loss.backward()
        opt.step()
        if t % 20 == 0 or t == a.steps - 1:
            print(f"step {t:4d}  relative error {float(loss.detach()):.4f}")
    with torch.no_grad():
        R = o3.rand_matrix()
        x = irreps.randn(64, -1)
        turned = model(x @ irreps.D_from_matrix(R).T) - model(x) @ o3.Irreps("1x1o").D_from_matrix(R).T
        print(f"equivariant to {float(turned.abs().max() / model(x).abs().max()):.1e}")


if __name__ == "__main__":
    main()
