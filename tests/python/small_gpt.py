"""small_gpt.py -- a small transformer, its data, and the rules in plain torch: what the optimisers are
compared with.
"""
import os

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = os.environ.get("POLAR_TEST_DEVICE", "cpu")    # cuda: the same tests on a GPU
if DEVICE != "cpu":    # two runs have the same bits
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
JORDAN = (3.4445, -4.7750, 2.0315)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class SmallGPT(nn.Module):
    def __init__(self, words=32, width=32, heads=2, depth=2, length=16, dtype=torch.float32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.to(dtype)

    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.lm_head(self.norm(h))


def make(seed=0, device=DEVICE, dtype=torch.float32, **sizes):
    torch.manual_seed(seed)
    return SmallGPT(dtype=dtype, **sizes).to(device)


def batch(step, device=DEVICE, words=32, length=16, rows=8):
    """Sequences in which every word follows from the two before it, with some noise."""
    g = torch.Generator().manual_seed(1000 + step)
    x = torch.randint(words, (rows, length + 1), generator=g)
    for t in range(2, length + 1):
        keep = torch.rand(rows, generator=g) < 0.9
        x[:, t] = torch.where(keep, (x[:, t - 1] + 3 * x[:, t - 2]) % words, x[:, t])
    return x[:, :-1].to(device), x[:, 1:].to(device)


def loss_of(model, step, device=DEVICE):
    x, y = batch(step, device)
    logits = model(x).flatten(0, 1)
    return F.cross_entropy(logits.float() if logits.dtype is torch.bfloat16 else logits, y.flatten())


def matrices(model):
    """What the router sends to the rule: weights of two dimensions inside the blocks."""
    return [p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2]


def others(model):
    chosen = {id(p) for p in matrices(model)}
    return [p for p in model.parameters() if id(p) not in chosen]


def newton_schulz(g, steps=5, coefficients=JORDAN):
    """The iteration as written in papers, in the format of g, which is enough to be exact about the rest."""
    a, b, c = coefficients
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / x.norm()
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


class PlainPolarAdamW:
    """PolarAdamW for matrices, AdamW for the rest, as one would write it down."""

    def __init__(self,
                 matrices,
                 others,
                 lr=5e-3,
                 aux_lr=5e-4,
                 betas=(0.9, 0.999),
                 eps=1e-8,
                 weight_decay=0.05,
                 maps=newton_schulz):
        self.sets = [(list(matrices), lr, True), (list(others), aux_lr, False)]
        self.betas, self.eps, self.decay, self.maps, self.t = betas, eps, weight_decay, maps, 0
        self.state = {
            p: (torch.zeros_like(p), torch.zeros_like(p))
            for params, _, _ in self.sets
            for p in params
        }

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for params, lr, mapped in self.sets:
            for p in params:
                m, v = self.state[p]
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                d = (m / (1 - b1**self.t)) / ((v / (1 - b2**self.t)).sqrt() + self.eps)
                if mapped:
                    d = self.maps(d) * (max(d.shape) / min(d.shape)) ** 0.5
                p.mul_(1 - lr * self.decay).sub_(d, alpha=lr)


@torch.no_grad()
def distance(a, b):
    """||a - b|| / ||b|| over all parameters of two models."""
    top = sum(((p.double() - q.double()) ** 2).sum() for p, q in zip(a.parameters(), b.parameters()))
    return float((top / sum((q.double() ** 2).sum() for q in b.parameters())) ** 0.5)


def train(model, opt, steps, device=DEVICE, first=0, before=None):
    """Losses of so many steps."""
    out = []
    for t in range(first, first + steps):
        for p in model.parameters():
            p.grad = None
        loss = loss_of(model, t, device)
        loss.backward()
        if before:
            before(t)
        opt.step()
        out.append(float(loss.detach()))
    return out
