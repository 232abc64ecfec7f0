"""char_gpt_jax.py -- the same small GPT in plain jax: layers stacked under lax.scan, one compiled step.

    pip install . jax numpy
    python examples/python/char_gpt_jax.py --steps 300
    python examples/python/char_gpt_jax.py --rule muon --lr 0.02

What is polar's are the lines marked below. The matrices of all layers lie in one array, (layer, in, out).
"""
import argparse
import math
import pathlib
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import polar.jax                                                                 # 1

HEADS = 4


def corpus():
    """The documentation of this tree: some hundred thousand characters."""
    root = pathlib.Path(__file__).resolve().parents[2]
    text = "".join(
        p.read_text(errors="ignore") for p in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]))
    letters, codes = np.unique(list(text), return_inverse=True)
    return codes.astype(np.int32), len(letters)


def first_params(key, words, width, depth, length):
    keys = iter(jax.random.split(key, 8))

    def normal(*shape):
        return 0.02 * jax.random.normal(next(keys), shape)

    layers = dict(norm1=jnp.ones((depth, width)), norm2=jnp.ones((depth, width)),
                  qkv=normal(depth, width, 3 * width), proj=normal(depth, width, width),
                  up=normal(depth, width, 4 * width), down=normal(depth, 4 * width, width))
    return dict(wte=normal(words, width), wpe=normal(length, width), layers=layers, norm=jnp.ones(width),
                head=normal(width, words))


def norm(x, gain):
    x = x - x.mean(-1, keepdims=True)
    return gain * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def layer(x, w):
    b, t, c = x.shape
    q, k, v = jnp.moveaxis((norm(x, w["norm1"]) @ w["qkv"]).reshape(b, t, 3, HEADS, c // HEADS), 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(c // HEADS)
    seen = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", seen, v).reshape(b, t, c) @ w["proj"]
    return x + jax.nn.gelu(norm(x, w["norm2"]) @ w["up"]) @ w["down"], None


def loss_of(params, rows):
    x, y = rows[:, :-1], rows[:, 1:]
    h = params["wte"][x] + params["wpe"][:x.shape[1]]
    h, _ = jax.lax.scan(layer, h, params["layers"])
    scores = jax.nn.log_softmax(norm(h, params["norm"]) @ params["head"])
    return -jnp.take_along_axis(scores, y[..., None], -1).mean()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rule", default="polaradamw")
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=16)
    a = p.parse_args()
    data, words = corpus()
    cut = len(data) * 9 // 10
    draw = np.random.default_rng(0)
    params = first_params(jax.random.key(0), words, a.width, a.depth, a.length)

    def cosine(peak):
        return lambda t: peak * jnp.minimum(1, (t + 1) / 20) * 0.5 * (1 + jnp.cos(jnp.pi * t / a.steps))

    matrices = [f"layers.{name}" for name in ("qkv", "proj", "up", "down")]
    opt = polar.jax.optimizer(a.rule, cosine(a.lr), aux_learning_rate=cosine(1e-3),
                              matrix=matrices, blocks={"layers.qkv": 3})         # 2
    print(opt.routes(params))
    state = opt.init(params)                                                     # 3

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, rows):
        loss, grads = jax.value_and_grad(loss_of)(params, rows)
        return *opt.step(params, grads, state), loss                             # 4

    def batch(source):
        at = draw.integers(len(source) - a.length - 1, size=(a.batch, 1))
        return source[at + np.arange(a.length + 1)]

    test = jax.jit(loss_of)
    start = time.perf_counter()
    for t in range(a.steps):
        params, state, loss = train(params, state, batch(data[:cut]))
        if t % 50 == 0 or t == a.steps - 1:
            held_out = sum(float(test(params, batch(data[cut:]))) for _ in range(8)) / 8
            print(f"step {t:4d}  train {float(loss):.3f}  held out {held_out:.3f}  "
                  f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
