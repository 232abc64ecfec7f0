"""so3_train.py -- the torch twin of `polar bench so3`: the SO(3) point-cloud regressor in eager torch, same
shapes, same threads, same rules.

    python bench/torch/so3_train.py --threads 2 --width 16 --width 64 --points 32 --points 64 --batch 32

Prints one JSON object per row: {"what", "seconds", ...}; the median of at least 5 samples. Rows: forward (no
gradients kept), backward (forward and backward, less the forward with gradients kept), optimiser (the rule's
step alone), step (everything, as a training loop does it).
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    """Schur mixers, messages weighted by a radial MLP, the scalar products of vectors merged into the
    scalars, a gate on the vectors' norms.
    """

    def __init__(self, inputs, width, eps):
        super().__init__()
        self.width, self.eps, self.residual = width, eps, inputs == width
        self.W_00 = torch.nn.Linear(inputs, width)
        self.W_11 = torch.nn.Parameter(torch.empty(width, inputs).uniform_(-1, 1) / inputs**0.5)
        self.message = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.SiLU(),
                                           torch.nn.Linear(width, 2 * width))
        self.cg_proj = torch.nn.Linear(width + width * (width + 1) // 2, width)
        self.gate_weight = torch.nn.Parameter(torch.ones(width))
        self.gate_bias = torch.nn.Parameter(torch.zeros(width))
        self.upper = torch.triu_indices(width, width)

    def forward(self, scalars, vectors, distance):
        h, points = self.width, distance.shape[1]
        s = self.W_00(scalars)                                            # (B, N, h)
        v = torch.einsum("oi,bnid->bnod", self.W_11, vectors)             # (B, N, h, 3)
        w = self.message(distance)                                        # (B, N, N, 2h)
        s = s + torch.einsum("bijc,bjc->bic", w[..., :h], s) / points
        v = v + torch.einsum("bijc,bjcd->bicd", w[..., h:], v) / points
        products = (v @ v.transpose(-1, -2))[..., self.upper[0], self.upper[1]]
        s = F.silu(self.cg_proj(torch.cat([s, products], -1)))
        length = (v.square().sum(-1) + self.eps).sqrt()
        v = v * torch.sigmoid(self.gate_weight * length + self.gate_bias).unsqueeze(-1)
        return (s + scalars, v + vectors) if self.residual else (s, v)


class Regressor(torch.nn.Module):
    def __init__(self, width, layers=3, eps=1e-8):
        super().__init__()
        self.eps = eps
        self.layers = torch.nn.ModuleList(Layer(width if i else 1, width, eps) for i in range(layers))
        self.readout = torch.nn.Sequential(torch.nn.Linear(2 * width, width), torch.nn.SiLU(),
                                           torch.nn.Linear(width, 1))

    def forward(self, x):
        s, v = x.square().sum(-1, keepdim=True), x.unsqueeze(2)
        distance = ((x.unsqueeze(2) - x.unsqueeze(1)).square().sum(-1, keepdim=True) + self.eps).sqrt()
        for layer in self.layers:
            s, v = layer(s, v, distance)
        length = (v.square().sum(-1) + self.eps).sqrt()
        return self.readout(torch.cat([s.mean(1), length.mean(1)], -1)).squeeze(-1)


def target(x):
    return torch.linalg.eigvalsh(x.transpose(1, 2) @ x / x.shape[1])[:, -1]


TABLE = (3.4445, -4.7750, 2.0315)


def newton_schulz(g, steps=5):
    """The public Muon code's map: bf16, one rounding per operation."""
    a, b, c = TABLE
    x = g.bfloat16()
    if x.shape[0] > x.shape[1]:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return (x.T if g.shape[0] > g.shape[1] else x).float()


class PolarAdamW(torch.optim.Optimizer):
    """Adam's direction, then the polar map, on the matrices under layers.*; AdamW elsewhere is torch's own
    (see Rule).
    """

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                m, v = state["m"], state["v"]
                m.lerp_(p.grad, 1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                d = (m / (1 - b1 ** state["t"])) / ((v / (1 - b2 ** state["t"])).sqrt() + group["eps"])
                scale = (max(p.shape) / min(p.shape)) ** 0.5
                p.add_(newton_schulz(d), alpha=-lr * scale)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"].mul_(group["momentum"]).add_(p.grad)
                u = p.grad.add(m, alpha=group["momentum"])
                p.add_(newton_schulz(u), alpha=-group["lr"] * (max(p.shape) / min(p.shape)) ** 0.5)


class Rule:
    """One rule over the model: its matrices on the rule's route, the rest on AdamW."""

    def __init__(self, name, model, lr, under="layers."):
        matrices = [p for n, p in model.named_parameters() if n.startswith(under) and p.ndim == 2]
        others = [p for n, p in model.named_parameters() if not (n.startswith(under) and p.ndim == 2)]
        if name == "adamw":
            self.parts = [torch.optim.AdamW(matrices + others, lr=lr, weight_decay=0, fused=True)]
        else:
            first = PolarAdamW(matrices, lr) if name == "polaradamw" else Muon(matrices, lr)
            self.parts = [first, torch.optim.AdamW(others, lr=lr, weight_decay=0, fused=True)]

    def step(self):
        for p in self.parts:
            p.step()


def median(fn, samples, budget):
    for _ in range(2):
        fn()
    times, start = [], time.perf_counter()
    while len(times) < samples and (len(times) < 5 or time.perf_counter() - start < budget):
        t = time.perf_counter()
        fn()
        times.append(time.perf_counter() - t)
    return statistics.median(times), len(times)


def training(model, optim, predict, loss, label, samples, budget):
    """Rows of a model's forward, forward+backward, optimiser and whole step."""

    def forward():
        with torch.no_grad():
            predict()

    def gradients():
        for p in model.parameters():
            p.grad = None
        loss(predict()).backward()

    def step():
        gradients()
        optim.step()

    gradients()
    for what, fn in (("forward", forward), ("forward+backward", gradients), ("optimiser", optim.step),
                     ("step", step)):
        seconds, n = median(fn, samples, budget)
        yield {"what": f"{what} {label}", "seconds": seconds, "samples": n}


def rows(width, points, batch, rule, samples, budget):
    torch.manual_seed(0)
    model = Regressor(width)
    optim = Rule(rule, model, 1e-3)
    x = torch.randn(batch, points, 3)
    y = target(x)
    yield from training(model, optim, lambda: model(x), lambda z: F.mse_loss(z, y),
                        f"h={width} N={points} B={batch} {rule}", samples, budget)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=0, help="0: torch's choice")
    p.add_argument("--width", type=int, action="append", help="channels; may be given again (16, 64)")
    p.add_argument("--points",
                   type=int,
                   action="append",
                   help="points of a cloud; may be given again (32, 64)")
    p.add_argument("--batch", type=int, action="append", help="clouds of a step; may be given again (32)")
    p.add_argument("--rule",
                   action="append",
                   choices=("adamw", "muon", "polaradamw"),
                   help="may be given again (polaradamw)")
    p.add_argument("--samples", type=int, default=31)
    p.add_argument("--budget", type=float, default=4.0, help="seconds a row may take, after 5 samples")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    for width in a.width or (16, 64):
        for points in a.points or (32, 64):
            for batch in a.batch or (32,):
                for rule in a.rule or ("polaradamw",):
                    for row in rows(width, points, batch, rule, a.samples, a.budget):
                        print(json.dumps(row
                                         | {"torch": torch.__version__, "threads": torch.get_num_threads()}),
                              flush=True)


if __name__ == "__main__":
    main()
