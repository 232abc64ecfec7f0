"""char_gpt.py -- a character-level GPT on the pages of this tree, in a plain PyTorch loop.

    pip install . torch numpy
    python examples/python/char_gpt.py --steps 300
    python examples/python/char_gpt.py --optimizer adamw          # torch's own, for comparison

What is polar's are the three lines marked below.
"""
import argparse
import math
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional as F

import polar                                                                     # 1


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words, width, heads, depth, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.lm_head(self.norm(h))


def corpus():
    """The documentation of this tree: some hundred thousand characters."""
    root = pathlib.Path(__file__).resolve().parents[2]
    text = "".join(
        p.read_text(errors="ignore") for p in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]))
    letters = sorted(set(text))
    index = {c: i for i, c in enumerate(letters)}
    return torch.tensor([index[c] for c in text]), letters


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--optimizer", default="polaradamw", choices=["polaradamw", "muon", "adamw"])
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    torch.manual_seed(0)
    data, letters = corpus()
    train, valid = data[: len(data) * 9 // 10], data[len(data) * 9 // 10:]
    model = GPT(len(letters), a.width, 4, a.depth, a.length).to(a.device)
    if a.optimizer == "adamw":
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    elif a.optimizer == "muon":
        opt = polar.Muon(model, lr=0.02, aux_lr=1e-3)
    else:
        opt = polar.PolarAdamW(model, lr=5e-3, aux_lr=1e-3)                      # 2
    if a.optimizer != "adamw":
        print(opt.routes())                                                      # 3
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda t: min(1, (t + 1) / 20) * 0.5 * (1 + math.cos(math.pi * t / a.steps)))

    def batch(source):
        at = torch.randint(len(source) - a.length - 1, (a.batch,)).tolist()
        rows = torch.stack([source[i: i + a.length + 1] for i in at]).to(a.device)
        return rows[:, :-1], rows[:, 1:]

    def loss_of(source):
        x, y = batch(source)
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    start = time.perf_counter()
    for t in range(a.steps):
        opt.zero_grad(set_to_none=True)
        loss = loss_of(train)
        loss.backward()
        opt.step()
        schedule.step()
        if t % 50 == 0 or t == a.steps - 1:
            with torch.no_grad():
                held_out = sum(float(loss_of(valid)) for _ in range(8)) / 8
            print(
                f"step {t:4d}  train {float(loss.detach()):.3f}  held out {held_out:.3f}  "
                f"{time.perf_counter() - start:.1f} s"
            )


if __name__ == "__main__":
    main()
