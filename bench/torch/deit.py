"""deit.py -- the torch twin of `polar bench deit`: DeiT-Tiny in eager torch, same shapes, same threads, same
rules.

    python bench/torch/deit.py --threads 2 --batch 32 --dtype bf16 --rule adamw --rule polaradamw

bf16 is autocast: weights, the residual stream and the norms' results as autocast has them; f32 is without.
Attention is torch's fused scaled_dot_product_attention. Prints one JSON object per row: {"what", "seconds",
...}; the median of at least 5 samples. Rows: forward (no gradients kept), forward+backward (with the loss),
optimiser (the rule's step alone), step (everything, as a training loop does it).
"""
import argparse
import json

import torch
import torch.nn.functional as F

from so3_train import Rule, training


class Block(torch.nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.LayerNorm(width, eps=1e-6)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.proj = torch.nn.Linear(width, width)
        self.norm2 = torch.nn.LayerNorm(width, eps=1e-6)
        self.fc1 = torch.nn.Linear(width, hidden)
        self.fc2 = torch.nn.Linear(hidden, width)

    def forward(self, x):
        images, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(images, tokens, 3, self.heads,
                                                  width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(images, tokens, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class DeiT(torch.nn.Module):
    def __init__(self, image=224, patch=16, width=192, depth=12, heads=3, classes=100):
        super().__init__()
        self.patch_embed = torch.nn.Conv2d(3, width, patch, patch)
        self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = torch.nn.Parameter(torch.randn(1, 1 + (image // patch) ** 2, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads, 4 * width) for _ in range(depth))
        self.norm = torch.nn.LayerNorm(width, eps=1e-6)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def rows(batch, dtype, rule, samples, budget):
    torch.manual_seed(0)
    model = DeiT()
    optim = Rule(rule, model, 1e-3, under="blocks.")
    x = (torch.rand(batch, 3, 224, 224) - 0.5) * 12**0.5
    y = F.one_hot(torch.arange(batch) * 7 % 100, 100) * 0.9 + 0.001

    def logits():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            return model(x).float()

    yield from training(model, optim, logits, lambda z: F.cross_entropy(z, y), f"B={batch} {dtype} {rule}",
                        samples, budget)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=0, help="0: torch's choice")
    p.add_argument("--batch", type=int, default=32, help="images of a step")
    p.add_argument("--dtype", default="bf16", choices=("bf16", "f32"))
    p.add_argument("--rule",
                   action="append",
                   choices=("adamw", "muon", "polaradamw"),
                   help="may be given again (polaradamw)")
    p.add_argument("--samples", type=int, default=31)
    p.add_argument("--budget", type=float, default=4.0, help="seconds a row may take, after 5 samples")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    for rule in a.rule or ("polaradamw",):
        for row in rows(a.batch, a.dtype, rule, a.samples, a.budget):
            print(json.dumps(row | {"torch": torch.__version__, "threads": torch.get_num_threads()}),
                  flush=True)


if __name__ == "__main__":
    main()
