"""jax_mesh_check.py -- what test_jax_mesh.py asks of a process with several devices: prints a line for each
thing that is not as it should be, then "checked N".
"""
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import polar
import polar.jax

tree, checked = jax.tree_util, 0
RULES = ["polaradamw", "normuon", "adago", "dion2", "kl_soap"]    # every kind of state
if "all" in sys.argv:
    RULES = polar._library.names(polar._lib.polar_rule_name)
SHAPES = {"b": (7, ), "big": (40, ), "embed": (30, 7), "layers": (5, 8, 24), "none": (0, 4), "out": (4, 12),
          "plain": (4, 6, 5), "s": (), "w": (12, 8)}
OPTIONS = dict(aux_learning_rate=2.0**-9, matrix=["layers", "out", "plain", "w"], blocks={"layers": 3})
mesh = Mesh(np.array(jax.devices()), ("d", ))


def check(what, right):
    global checked
    checked += 1
    if not right:
        print("NOT SO:", what)


def draw(seed, dtype):
    rng = np.random.default_rng(seed)
    return {k: jnp.asarray(rng.standard_normal(s), dtype) for k, s in SHAPES.items()}


def same(a, b):
    return all(np.array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64))
               for x, y in zip(tree.tree_leaves(a), tree.tree_leaves(b), strict=True))


def pair(rule, **options):
    return (polar.jax.optimizer(rule, 2.0**-6, **OPTIONS, **options),
            polar.jax.optimizer(rule, 2.0**-6, **OPTIONS, **options, mesh=mesh, axis="d"))


def everywhere(params):
    return jax.device_put(params, NamedSharding(mesh, PartitionSpec()))


def walk(opt, params, state, first, last, bad=()):
    step = jax.jit(opt.step, donate_argnums=(0, 2))
    for t in range(first, last):
        grads = draw(100 + t, tree.tree_leaves(params)[0].dtype)
        if t in bad:
            grads["b"] = grads["b"].at[3].set(jnp.inf)
        params, state = step(params, grads, state)
    return params, state


def copies(params):
    return tree.tree_map(jnp.copy, params)


def rules(folder):
    for rule in RULES:
        alone, shared = pair(rule)
        params = draw(0, jnp.float32)
        ours, state = walk(shared, everywhere(copies(params)), shared.init(everywhere(params)), 0, 5)
        theirs, whole = walk(alone, copies(params), alone.init(params), 0, 5)
        check(f"{rule}: the bits of one device", same(ours, theirs))
        rows = {s.index[0].start or 0 for s in state.memory.addressable_shards}
        check(f"{rule}: a row of the state on each device", len(rows) == len(jax.devices()))
        path = folder / f"{rule}.safetensors"
        shared.save(path, ours, state)
        again = alone.load(path, theirs)
        check(f"{rule}: its file is the whole one's state", np.array_equal(again.memory, whole.memory))
        back = shared.load(path, ours)
        check(f"{rule}: and its count", int(back.count) == 5)
        ours, _ = walk(shared, ours, back, 5, 12)
        theirs, _ = walk(alone, theirs, whole, 5, 12)
        check(f"{rule}: and goes on from it", same(ours, theirs))


def formats():
    for dtype in (jnp.bfloat16, jnp.float64):
        alone, shared = pair("normuon", skip_nonfinite=True)
        params = draw(1, dtype)
        ours, state = everywhere(copies(params)), shared.init(everywhere(params))
        ours, state = walk(shared, ours, state, 0, 6, bad=(2, 3))
        theirs, _ = walk(alone, copies(params), alone.init(params), 0, 6, bad=(2, 3))
        check(f"{dtype.__name__}: the bits, with two steps left out", same(ours, theirs))
        check(f"{dtype.__name__}: six steps", int(state.count) == 6)
        before = copies(ours)
        after, _ = walk(shared, ours, state, 6, 7, bad=(6, ))
        check(f"{dtype.__name__}: left out on every device", same(before, after))


def training():
    """Data parallel under jit: the loss's gradient over the devices' pieces of a batch."""
    x = jax.device_put(jnp.asarray(np.random.default_rng(2).standard_normal((12, 12)), jnp.float32),
                       NamedSharding(mesh, PartitionSpec("d")))
    opt = polar.jax.muon(0.05, mesh=mesh, axis="d")
    params = everywhere({"w": jnp.full((12, 6), 0.1) + jnp.eye(12, 6), "v": jnp.ones((6, 3))})
    state = opt.init(params)

    @jax.jit
    def train(params, state):
        loss, grads = jax.value_and_grad(lambda p: ((jnp.tanh(x @ p["w"]) @ p["v"] - 1)**2).mean())(params)
        return *opt.step(params, grads, state), loss

    losses = []
    for _ in range(20):
        params, state, loss = train(params, state)
        losses.append(float(loss))
    check("training goes on", losses[-1] < 0.7 * losses[0])
    updates, state = jax.jit(opt.update)(params, state, params)
    check("as optax has it", tree.tree_structure(updates) == tree.tree_structure(params))


def few_leaves():
    one = {"w": jnp.ones((3, 4))}
    opt = polar.jax.muon(0.05, mesh=mesh, axis="d")
    new, _ = opt.step(one, one, opt.init(one))
    alone = polar.jax.muon(0.05)
    check("fewer leaves than devices", same(new, alone.step(one, one, alone.init(one))[0]))
    try:
        polar.jax.muon(0.05, mesh=mesh, axis="nobody")
        check("an axis that is none", False)
    except ValueError as e:
        check("an axis that is none", "'d'" in str(e))


warnings.simplefilter("error", UserWarning)
jax.config.update("jax_enable_x64", True)
rules(Path(sys.argv[1]))
formats()
training()
few_leaves()
print(f"checked {checked} on {len(jax.devices())} devices")
