"""step.py -- the torch twin of `polar bench step`: torch's own Muon and AdamW over the same lists of
parameters.

    python bench/torch/step.py --device cpu --threads 2
    python bench/torch/step.py --device cuda --set matrices --set gpt124m --set llama430m --compile --dion

Prints one JSON object per row: {"what", "seconds"}; the median of at least 15 samples. --compile adds
torch.optim.Muon whose step is compiled; --dion adds microsoft/dion's Muon where the package `dion` can be
imported; --polar adds ours, Python included, with gradients that stay, that move before every step (the
moving is not timed), and captured in a torch.cuda.graph; --jax adds ours in jax and --optax
optax.contrib.muon, both jitted, on jax's default device, with weights and state donated; of ours also many
steps in one jitted call, and a call that does next to nothing with the same arrays: what is jax's own.
"""
import argparse
import itertools
import json
import statistics
import time

import torch


MANY = 20    # steps in one call of jax


def blocks(width, inner):
    return [(3 * width, width), (width, width), (inner, width), (width, inner)]


def vectors(width, inner):
    return [(width,)] * 6 + [(3 * width,), (inner,)]


LISTS = {  # name: (block matrices, everything else)
    "matrices": (blocks(192, 768) * 12, []),
    "deit": (blocks(192, 768) * 12,
             vectors(192, 768) * 12 + [(1, 1, 192), (1, 197, 192), (192, 3, 16, 16)] + [(192,)] * 3 +
             [(100, 192), (100,)]),
    "gpt124m": (blocks(768, 3072) * 12,
                vectors(768, 3072) * 12 + [(50257, 768), (1024, 768), (768,), (768,)]),
    "llama430m": (([(1024, 1024)] * 4 + [(4096, 1024)] * 2 + [(1024, 4096)]) * 24,
                  [(1024,)] * 49 + [(32000, 1024)]),
    "100m": ([], [(12500000,)] * 8),
}


def params(shapes, device):
    out = []
    for s in shapes:
        p = torch.nn.Parameter(0.02 * torch.randn(s, device=device))
        p.grad = 0.02 * torch.randn(s, device=device)
        out.append(p)
    return out


def median(fn, device, samples=31, budget=4.0):
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    before = getattr(fn, "before", lambda: None)
    for _ in range(5):
        before()
        fn()
    sync()
    times, start = [], time.perf_counter()
    while len(times) < samples and (len(times) < 15 or time.perf_counter() - start < budget):
        before()
        sync()
        t = time.perf_counter()
        fn()
        sync()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def steps(name, device, a):
    """(what, function) for every optimiser over the list."""
    matrices, rest = LISTS[name]
    aux = [torch.optim.AdamW(params(rest, device), lr=5e-4, weight_decay=0.05, fused=True)] if rest else []
    everything = torch.optim.AdamW(params(matrices + rest, device), lr=5e-4, weight_decay=0.05, fused=True)
    yield f"adamw (fused), {name}", everything.step
    if not matrices:
        return
    muon = torch.optim.Muon(params(matrices, device), lr=5e-3)

    def both(first):
        first()
        for o in aux:
            o.step()

    yield f"muon, {name}", lambda: both(muon.step)
    if a.compile:
        compiled = torch.compile(muon.step)
        yield f"muon (compiled), {name}", lambda: both(compiled)
    if a.dion:
        from dion import Muon as DionMuon

        groups = [dict(params=params(matrices, device))]
        if rest:
            groups.append(dict(params=params(rest, device), algorithm="adamw"))
        yield f"muon (dion), {name}", DionMuon(groups, lr=5e-3,
                                                  use_triton=device.type == "cuda" and not a.no_triton).step


def jax_steps(name, a):
    """Ours in jax, and optax's Muon: what is not a matrix goes to its AdamW by itself, as ours does; so do
    3-D and 4-D arrays.
    """
    import jax
    import jax.numpy as jnp

    matrices, rest = LISTS[name]
    shapes = {f"p{i:04}": s for i, s in enumerate(matrices + rest)}
    mapped = set(list(shapes)[:len(matrices)])
    rules = {}
    if a.jax:
        import polar.jax

        where = dict(matrix=sorted(mapped), adamw=["*"] if not mapped else None, layout="out_in")
        for rule in ("polaradamw", "muon") if mapped else ():
            rules[f"polar.jax {rule}"] = polar.jax.optimizer(rule, 5e-3, **where)
        rules["polar.jax adamw"] = polar.jax.optimizer("adamw", 5e-4)
    if a.optax and mapped:
        import optax

        dims = {k: optax.contrib.MuonDimensionNumbers() if k in mapped else None for k in shapes}
        rules["muon (optax)"] = optax.contrib.muon(5e-3, muon_weight_dimension_numbers=dims)
    keys = jax.random.split(jax.random.key(0), len(shapes))

    def draw():
        return {k: 0.02 * jax.random.normal(q, s, jnp.float32) for q, (k, s) in zip(keys, shapes.items())}

    def step_of(rule):
        def by_updates(weights, grads, state):
            updates, state = rule.update(grads, state, weights)
            return optax.apply_updates(weights, updates), state

        weights, grads = draw(), draw()
        held = [weights, rule.init(weights)]
        return timed(jax.jit(getattr(rule, "step", by_updates), donate_argnums=(0, 2)), held, grads)

    def timed(step, held, grads, steps=1):
        def call():
            held[:] = step(held[0], grads, held[1])
            jax.block_until_ready(held)

        call.steps = steps
        return call

    def many_of(rule):    # what a call costs is shared among its steps
        def loop(weights, grads, state):
            again = lambda _, held: tuple(rule.step(held[0], grads, held[1]))    # noqa: E731
            return jax.lax.fori_loop(0, MANY, again, (weights, state))

        weights, grads = draw(), draw()
        return timed(jax.jit(loop, donate_argnums=(0, 2)), [weights, rule.init(weights)], grads, MANY)

    def nothing_of(rule):    # as many arrays in and out, one of them touched
        def touch(weights, grads, state):
            first = next(iter(weights))
            return {**weights, first: weights[first] + grads[first]}, jax.tree.map(lambda x: x, state)

        weights, grads = draw(), draw()
        return timed(jax.jit(touch, donate_argnums=(0, 2)), [weights, rule.init(weights)], grads)

    for what, rule in rules.items():
        yield f"{what}, {jax.default_backend()}, {name}", step_of(rule)
        if hasattr(rule, "step"):
            yield f"{what}, {MANY} in one call, {jax.default_backend()}, {name}", many_of(rule)
            yield f"{what}, nothing done, {jax.default_backend()}, {name}", nothing_of(rule)


def moving(opt, every):
    """opt.step with gradients that lie elsewhere than in the step before."""
    sets, turn = [[q.grad for q in every], [q.grad.clone() for q in every]], [0]

    def before():
        turn[0] ^= 1
        for q, g in zip(every, sets[turn[0]]):
            q.grad = g

    step = lambda: opt.step()    # noqa: E731
    step.before = before
    return step


def captured(opt):
    for _ in range(3):
        opt.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        opt.step()
    return graph.replay


def polar_steps(name, device):
    """Ours: whole calls of opt.step()."""
    import polar

    matrices, rest = LISTS[name]
    for cls in (polar.PolarAdamW, polar.Muon, polar.AdamW):
        if not matrices and cls is not polar.AdamW:
            continue
        for how in ("stays", "moves") + (("captured",) if device.type == "cuda" else ()):
            m, r = params(matrices, device), params(rest, device)
            groups = [dict(params=q, route=route) for q, route in ((m, "matrix"), (r, "adamw")) if q]
            opt = cls(groups)
            step = opt.step if how == "stays" else moving(opt, m + r) if how == "moves" else captured(opt)
            yield f"polar.{cls.__name__}, {how}, {name}", step
            # the library's own captured step, without Python's part
            if how == "stays" and device.type == "cuda":
                from polar._library import lib

                yield f"libpolar {cls.__name__}, captured by itself, {name}", lambda: lib.polar_optim_step(
                    opt._native.handle.pointer, opt._native.queue.pointer)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's choice")
    p.add_argument("--set",
                   action="append",
                   choices=sorted(LISTS),
                   help="a list of parameters (default: matrices, deit)")
    p.add_argument("--compile", action="store_true", help="Muon's step compiled too")
    p.add_argument("--dion", action="store_true", help="dion's Muon too")
    p.add_argument("--no-triton", action="store_true", help="dion without its Triton kernels")
    p.add_argument("--optax", action="store_true", help="optax.contrib.muon too")
    p.add_argument("--polar", action="store_true", help="ours too: the package `polar`")
    p.add_argument("--jax", action="store_true", help="ours in jax too: polar.jax")
    p.add_argument("--only", default="", help="rows whose name has this in it")
    p.add_argument("--large", action="store_true", help="the same as --set 100m besides the others")
    a = p.parse_args()
    device = torch.device(a.device)
    if a.threads:
        torch.set_num_threads(a.threads)
    for name in (a.set or ["matrices", "deit"]) + (["100m"] if a.large else []):
        for what, step in itertools.chain(
                polar_steps(name, device) if a.polar else (), steps(name, device, a),
                jax_steps(name, a) if a.jax or a.optax else ()):
            if a.only not in what:
                continue
            row = {"what": what, "seconds": median(step, device) / getattr(step, "steps", 1)}
            print(json.dumps({**row, "torch": torch.__version__, "threads": torch.get_num_threads()}),
                  flush=True)


if __name__ == "__main__":
    main()
