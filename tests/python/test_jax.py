"""test_jax.py -- PolarAdamW and Muon in JAX against the same rules in torch's dress, and the handler itself.
"""
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not in the environment")
import jax.numpy as jnp    # noqa: E402
import torch    # noqa: E402

import polar    # noqa: E402
import polar.jax    # noqa: E402

jax.config.update("jax_enable_x64", True)


def test_the_handler():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((2, 6, 4))
    x, y = jax.jit(lambda a, b: polar.jax.polar_map(a, b, map="exact"))(a, b)
    assert np.array_equal(np.asarray(x), polar.polar(a)) and np.array_equal(np.asarray(y), polar.polar(b))
    z = jax.vmap(lambda m: polar.jax.polar_map(m, map="ns_fp64")[0])(jnp.asarray(b))
    assert np.abs(np.asarray(z) - polar.newton_schulz(b, precision="fp64")).max() < 1e-14
    h = polar.jax.polar_map(jnp.asarray(a, jnp.bfloat16))[0]
    assert h.dtype == jnp.bfloat16
    with pytest.raises(Exception, match="no polar map"):
        jax.block_until_ready(polar.jax.polar_map(jnp.asarray(a), map="ns_fp33"))


def problem(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"block": {"w": (12, 8), "b": (12,)}, "embed": {"w": (6, 8)}, "out": {"w": (4, 12)}}
    params = jax.tree_util.tree_map(lambda s: jnp.asarray(rng.standard_normal(s)),
                                    shapes,
                                    is_leaf=lambda s: isinstance(s, tuple))
    x = jnp.asarray(rng.standard_normal((6, 6)))

    def loss(p):
        h = jnp.tanh(x @ p["embed"]["w"] @ p["block"]["w"].T + p["block"]["b"])
        return ((h @ p["out"]["w"].T) ** 2).mean()

    return params, loss


@pytest.mark.parametrize("rule", ["polaradamw", "muon"])
def test_fifty_steps_are_torchs(rule):
    """The same gradients in both: what differs is roundings in double."""
    params, loss = problem()
    if rule == "polaradamw":
        opt = polar.jax.polaradamw(5e-3, aux_learning_rate=5e-4, map="ns_fp64")
    else:
        opt = polar.jax.muon(2e-2, aux_learning_rate=1e-3, map="ns_fp64")
    leaves = jax.tree_util.tree_leaves_with_path(params)
    names = [jax.tree_util.keystr(k) for k, _ in leaves]
    twins = [torch.nn.Parameter(torch.from_numpy(np.array(p))) for _, p in leaves]
    pick = [n for n in names if "embed" not in n and n.endswith("['w']")]
    options = dict(map="ns_fp64", matrix=[n.replace("[", "?").replace("]", "?") for n in pick])
    ref = polar.PolarAdamW(list(zip(names, twins)), **options) if rule == "polaradamw" else \
        polar.Muon(list(zip(names, twins)), lr=2e-2, aux_lr=1e-3, **options)
    assert sum(r.route == "matrix" for r in ref.routes()) == 2
    state = opt.init(params)
    step = jax.jit(lambda p, s: opt.update(jax.grad(loss)(p), s, p))
    first = float(loss(params))
    for _ in range(50):
        grads = jax.grad(loss)(params)
        for t, g in zip(twins, jax.tree_util.tree_leaves(grads)):
            t.grad = torch.from_numpy(np.array(g))
        ref.step()
        updates, state = step(params, state)
        params = jax.tree_util.tree_map(lambda p, u: p + u, params, updates)
    for t, p in zip(twins, jax.tree_util.tree_leaves(params)):
        # t of the bias correction is a float in jax
        assert np.abs(np.asarray(p) - t.detach().numpy()).max() < 1e-6
    assert float(loss(params)) < first and int(state.count) == 50


def test_schedules_and_an_empty_route():
    params, loss = problem()
    opt = polar.jax.polaradamw(lambda count: 0.0 * count,
                               aux_learning_rate=lambda count: jnp.where(count < 1, 0.0, 1e-3))
    state = opt.init(params)
    updates, state = opt.update(jax.grad(loss)(params), state, params)
    assert all(float(jnp.abs(u).sum()) == 0 for u in jax.tree_util.tree_leaves(updates))
    updates, state = opt.update(jax.grad(loss)(params), state, params)
    assert float(jnp.abs(updates["block"]["w"]).sum()) == 0 and float(jnp.abs(
        updates["block"]["b"]).sum()) > 0
    with pytest.raises(ValueError, match="matrix="):
        polar.jax.polaradamw().init({"head": params["block"]["b"]})
