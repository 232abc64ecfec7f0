"""test_jax.py -- libpolar's optimisers in JAX: the bits of the same rules in torch's dress, however weights
and state come and go; and the handlers themselves. On jax's default device, torch's twins beside it.
"""
import shutil
import subprocess
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not in the environment")
import jax.numpy as jnp    # noqa: E402
import torch    # noqa: E402

import polar    # noqa: E402
import polar.jax    # noqa: E402
from polar import jax_native    # noqa: E402

jax.config.update("jax_enable_x64", True)

LR, AUX_LR = 2.0**-6, 2.0**-9    # floats hold them, so rates by arrays are the numbers
RULES = polar._library.names(polar._lib.polar_rule_name)
DEVICE = "cuda" if jax.default_backend() == "gpu" else "cpu"    # torch's name of where jax computes
tree = jax.tree_util


def test_the_map_handler():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((2, 6, 4))
    x, y = jax.jit(lambda a, b: polar.jax.polar_map(a, b, map="exact"))(a, b)
    for mapped, m in ((x, a), (y, b)):
        assert np.array_equal(np.asarray(mapped), polar.polar(as_torch(m)).cpu().numpy())
    z = jax.vmap(lambda m: polar.jax.polar_map(m, map="ns_fp64")[0])(jnp.asarray(b))
    twin = polar.newton_schulz(as_torch(b), precision="fp64")
    assert np.abs(np.asarray(z) - twin.cpu().numpy()).max() < 1e-14
    h = polar.jax.polar_map(jnp.asarray(a, jnp.bfloat16))[0]
    assert h.dtype == jnp.bfloat16
    with pytest.raises(Exception, match="no polar map"):
        jax.block_until_ready(polar.jax.polar_map(jnp.asarray(a), map="ns_fp33"))


# ---- the bits of torch's dress ----------------------------------------------------------------------------

SHAPES = {
    "block": {"w": (12, 8), "square": (6, 6), "b": (12, )}, "embed": {"w": (6, 8)}, "out": {"w": (4, 12)}
}


def draw(shapes, dtype, seed):
    rng = np.random.default_rng(seed)
    return tree.tree_map(lambda s: jnp.asarray(rng.standard_normal(s), dtype), shapes,
                         is_leaf=lambda s: isinstance(s, tuple))


def leaves(params):
    return tree.tree_leaves(params)


def as_torch(x):    # where jax computes
    if x.dtype == jnp.bfloat16:    # which numpy does not have
        return torch.from_numpy(np.array(x, np.float32)).to(DEVICE, torch.bfloat16)
    return torch.from_numpy(np.array(x)).to(DEVICE)


def twin_of(opt, params, rule, **options):
    """The same in torch: its parameters, its optimiser."""
    twins = [torch.nn.Parameter(as_torch(p)) for p in leaves(params)]
    table = opt.routes(params)
    groups = [{"params": [t for t, r in zip(twins, table) if r.route == way], "route": way}
              for way in ("matrix", "adamw")]
    return twins, polar.Optimizer([g for g in groups if g["params"]], rule, LR, aux_lr=AUX_LR, **options)


def differ(params, twins):
    return [r for r, (p, t) in enumerate(zip(leaves(params), twins))
            if not np.array_equal(np.asarray(p, np.float64), t.detach().double().cpu().numpy())]


def walk(opt, params, state, steps, seed=100, twins=(), ref=None):
    step = jax.jit(opt.step, donate_argnums=(0, 2))
    shapes = tree.tree_map(lambda p: p.shape, params)
    kinds = tree.tree_map(lambda p: p.dtype, params)
    for t in range(steps):
        grads = tree.tree_map(lambda g, kind: g.astype(kind), draw(shapes, jnp.float64, seed + t), kinds)
        for twin, g in zip(twins, leaves(grads)):
            twin.grad = as_torch(g)
        if ref:
            ref.step()
        params, state = step(params, grads, state)
    return params, state


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_torchs_bits(rule):
    params = draw(SHAPES, jnp.float32, 0)
    opt = polar.jax.optimizer(rule, LR, aux_learning_rate=AUX_LR, aux_weight_decay=0.05, layout="out_in")
    twins, ref = twin_of(opt, params, rule)
    params, state = walk(opt, params, opt.init(params), 12, twins=twins, ref=ref)
    assert not differ(params, twins) and int(state.count) == 12


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
@pytest.mark.parametrize("rule", ["polaradamw", "normuon", "soap"])
def test_formats(rule, dtype):
    params = draw(SHAPES, dtype, 1)
    opt = polar.jax.optimizer(rule, LR, aux_learning_rate=AUX_LR, aux_weight_decay=0.05, layout="out_in")
    twins, ref = twin_of(opt, params, rule)
    params, _ = walk(opt, params, opt.init(params), 12, twins=twins, ref=ref)
    assert not differ(params, twins) and leaves(params)[0].dtype == dtype


def test_denormal_numbers():
    """XLA's threads take them as zero; a step does not: gradients of 1e-20 have squares of 1e-40."""
    params = draw({"b": (12, ), "w": (6, 5)}, jnp.float32, 14)
    small = dict(eps=2e-38, aux_eps=2e-38, weight_decay=0.0, aux_weight_decay=0.0)
    opt = polar.jax.optimizer("polaradamw", LR, aux_learning_rate=AUX_LR, layout="out_in", **small)
    twins, ref = twin_of(opt, params, "polaradamw", **small)
    state = opt.init(params)
    for t in range(3):
        rng = np.random.default_rng(600 + t)    # not XLA's arithmetic
        grads = {k: np.float32(1e-20 * rng.standard_normal(p.shape)) for k, p in params.items()}
        for twin, g in zip(twins, leaves(grads)):
            twin.grad = as_torch(g)
        ref.step()
        params, state = opt.step(params, grads, state)
    assert not differ(params, twins)
    tiny = np.float32(1e-40 * np.random.default_rng(15).standard_normal((5, 7)))
    mapped = polar.jax.polar_map(tiny, map="ns_fp32")[0]
    assert np.array_equal(np.asarray(mapped),
                          polar.newton_schulz(as_torch(tiny), precision="fp32").cpu().numpy())


def test_the_dresses_of_single_rules():
    params = draw(SHAPES, jnp.float32, 2)
    for ours, theirs in ((polar.jax.muon(LR, aux_learning_rate=AUX_LR, layout="out_in"),
                          dict(rule="muon", weight_decay=0.1, eps=0, adjust_lr_fn="original",
                               aux_weight_decay=0.01)),
                         (polar.jax.polaradamw(LR, aux_learning_rate=AUX_LR), dict(rule="polaradamw"))):
        twins, ref = twin_of(ours, params, **theirs)
        stepped, _ = walk(ours, tree.tree_map(jnp.copy, params), ours.init(params), 5, twins=twins, ref=ref)
        assert not differ(stepped, twins)


TURNED = ["muon", "normuon", "muoneq_r", "muoneq_c", "scion", "muon_cautious", "soap"]


@pytest.mark.parametrize("rule", TURNED)
def test_in_out_is_the_transpose(rule):
    """Matrices that are kept as (in, out) take the steps of their transposes; in double but for roundings."""
    shapes = {"w": (12, 8), "v": (5, 9)}
    params = draw(shapes, jnp.float64, 3)
    turned = tree.tree_map(jnp.transpose, params)
    options = dict(map="ns_fp64") if polar.jax.own_numbers(rule)["map"].startswith("ns") else {}
    out_in, in_out = (polar.jax.optimizer(rule, LR, scale="jordan" if rule == "muon" else None, layout=layout,
                                          **options) for layout in ("out_in", "in_out"))
    states = out_in.init(params), in_out.init(turned)
    for t in range(6):
        grads = draw(shapes, jnp.float64, 200 + t)
        params, a = out_in.step(params, grads, states[0])
        turned, b = in_out.step(turned, tree.tree_map(jnp.transpose, grads), states[1])
        states = a, b
    for k in shapes:
        # Newton-Schulz has the short side first in both; SOAP's eigenvectors are of turned factors
        assert np.abs(np.asarray(params[k].T - turned[k])).max() < 1e-9
    if rule not in ("muon_cautious", "soap"):    # whose stages have no sides
        start = draw(shapes, jnp.float64, 3)
        over = tree.tree_map(jnp.transpose, start)
        moved, _ = out_in.step(over, tree.tree_map(jnp.transpose, grads), out_in.init(over))
        right, _ = out_in.step(start, grads, out_in.init(start))
        assert max(np.abs(np.asarray(right[k].T - moved[k])).max() for k in shapes) > 1e-6


# ---- what a leaf holds ------------------------------------------------------------------------------------


def test_stacks_and_blocks_are_matrices_of_their_own():
    """(layers, in, 3 out) in one leaf, against nine leaves."""
    layers, rows, cols = 3, 6, 4
    rng = np.random.default_rng(4)
    for layout in ("in_out", "out_in"):
        fused = (layers, rows, 3 * cols) if layout == "in_out" else (layers, 3 * rows, cols)
        whole, one = rng.standard_normal(fused), rng.standard_normal(fused)
        axis = 2 if layout == "in_out" else 1

        def split(x):
            return {f"w{k}": jnp.asarray(m[0]) for k, m in enumerate(
                piece for third in np.split(x, 3, axis) for piece in np.split(third, layers, 0))}

        opt = polar.jax.optimizer("normuon", LR, layout=layout, matrix=["qkv"], blocks={"q*": 3})
        apart = polar.jax.optimizer("normuon", LR, layout=layout)
        params, pieces = {"qkv": jnp.asarray(whole)}, split(whole)
        assert f"9 of {rows}x{cols}" in str(opt.routes(params))
        state, states = opt.init(params), apart.init(pieces)
        for _ in range(3):
            params, state = opt.step(params, {"qkv": jnp.asarray(one)}, state)
            pieces, states = apart.step(pieces, split(one), states)
        same = split(np.asarray(params["qkv"]))
        assert all(np.array_equal(np.asarray(same[k]), np.asarray(pieces[k])) for k in same)


@pytest.mark.parametrize("layout", ["in_out", "out_in"])
def test_flattened_axes_are_one_matrix(layout):
    """Filters, heads and layers of heads, against the same numbers in leaves of two axes."""
    shapes = {"conv": (3, 2, 4, 5), "query": (6, 2, 4), "layers": (2, 6, 2, 4)}
    flat = {"conv": (3 * 2 * 4, 5), "query": (6, 2 * 4), "layers": (2, 6, 8)}
    rows = {"conv": 3, "qu*": 1, "layers": (1, 2)}
    params, grads = (draw(shapes, jnp.float32, 40 + k) for k in range(2))
    opt = polar.jax.optimizer("normuon", LR, layout=layout, flatten=rows, blocks={"query": 2})
    plain = polar.jax.optimizer("normuon", LR, layout=layout, matrix="*", blocks={"query": 2})
    two = [tree.tree_map(jnp.copy, params), {k: params[k].reshape(flat[k]) for k in flat}]
    table = str(opt.routes(params))
    assert "24x5" in table and "2 of 6x8" in table, table
    assert ("2 of 6x4" if layout == "in_out" else "2 of 3x8") in table
    states = opt.init(two[0]), plain.init(two[1])
    for _ in range(3):
        two[0], a = opt.step(two[0], grads, states[0])
        two[1], b = plain.step(two[1], {k: grads[k].reshape(flat[k]) for k in flat}, states[1])
        states = a, b
    for k in flat:
        assert np.array_equal(np.asarray(two[0][k]).reshape(flat[k]), np.asarray(two[1][k]))
    for wrong in (0, 4, (1, 1), (2, 1), (-1, 2)):
        with pytest.raises(ValueError, match="leaves no rows or no columns"):
            polar.jax.muon(flatten={"conv": wrong}).init(params)
    with pytest.warns(UserWarning, match="flatten: no parameter fits 'nobody'"):
        polar.jax.muon(flatten={"nobody": 1, **rows}).init(params)


def test_names_of_leaves():
    """Two dimensions each: names of things that are no matrices, and of matrices that sound like them."""
    no = ["token_embedder.table", "wte", "tok_emb.w", "classifier.kernel", "lm_head.kernel", "LMHead.w",
          "head", "mlp_head.kernel", "attn.query.bias", "layers.norm1", "layers.LayerNorm_0.scale",
          "layers.b1.bias.value", "gain"]
    yes = ["MultiHeadDotProductAttention_0.query", "multi_head_attention.query.w", "layers.heads.w",
           "attn.scaled.w", "biased.kernel", "again", "member.w"]
    table = polar.jax.polaradamw().routes({name: jnp.ones((3, 4)) for name in no + yes})
    assert {r.name for r in table if r.route == "matrix"} == set(yes)


def test_routes():
    params = {"params": {"block_0": {"kernel": jnp.ones((4, 6)), "bias": jnp.ones(6)},
                         "embed": jnp.ones((9, 4)), "conv": jnp.ones((3, 3, 4, 4)), "none": jnp.ones((0, 4)),
                         "scalar": jnp.ones(())}}
    with pytest.warns(UserWarning, match="stacks of matrices"):
        table = polar.jax.polaradamw().routes(params)
    assert {r.name: (r.route, r.why) for r in table} == {
        "params.block_0.bias": ("adamw", "a vector"), "params.block_0.kernel": ("matrix", "a matrix"),
        "params.conv": ("adamw", "more than two dimensions"),
        "params.embed": ("adamw", "an embedding, by its name"), "params.none": ("adamw", "empty"),
        "params.scalar": ("adamw", "a vector")}
    opt = polar.jax.polaradamw(matrix=["*conv", "*kernel"], adamw="*block_0*")
    assert [r.name for r in opt.routes(params) if r.route == "matrix"] == ["params.conv"]
    with pytest.warns(UserWarning, match="no parameter fits"):
        polar.jax.polaradamw(matrix=["*kernel", "*krnel"]).routes(params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt = polar.jax.polaradamw(matrix=lambda path, p: p.ndim == 2 and p.size > 0)
        new, _ = opt.step(params, tree.tree_map(jnp.ones_like, params), opt.init(params))
    moved = tree.tree_map(lambda a, b: bool((a != b).all()), params, new)
    assert all(leaves(moved))    # of nothing, all
    empty = {"w": jnp.ones((3, 3)), "layers": jnp.ones((0, 3, 4)), "rows": jnp.ones((2, 0, 4))}
    opt = polar.jax.polaradamw(matrix=["*"], blocks={"layers": 2})
    assert [r.why for r in opt.routes(empty)] == ["empty", "empty", "matrix='*'"]
    opt.step(empty, empty, opt.init(empty))
    one = polar.jax.polaradamw()
    assert one.routes(jnp.ones((3, 3)))[0].name == "params"
    assert [r.name for r in one.routes([jnp.ones((3, 3))])] == ["0"]


# ---- state that comes and goes ----------------------------------------------------------------------------


def test_a_state_is_all_there_is():
    """Two optimisers take turns on one state: that of gradients in bf16, and that of the same in float."""
    params = draw(SHAPES, jnp.float32, 5)
    for rule in ("polaradamw", "soap", "dion2", "adago"):
        opt = polar.jax.optimizer(rule, LR, aux_learning_rate=AUX_LR)
        ends = []
        for turns in (False, True):
            p, s = params, opt.init(params)
            for t in range(14):    # past SOAP's second look
                g = tree.tree_map(lambda x: x.astype(jnp.bfloat16), draw(SHAPES, jnp.float32, 300 + t))
                kind = jnp.bfloat16 if turns and t % 3 else jnp.float32
                p, s = opt.step(p, tree.tree_map(lambda x: x.astype(kind), g), s)
            ends.append(leaves(p))
        assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(*ends))


def test_a_file_goes_on(tmp_path):
    for rule, dtype in (("polaradamw", jnp.float32), ("kl_soap", jnp.bfloat16)):
        params = draw(SHAPES, dtype, 6)
        opt = polar.jax.optimizer(rule, lambda count: LR * (1 + count % 2), aux_learning_rate=AUX_LR)
        p, s = walk(opt, tree.tree_map(jnp.copy, params), opt.init(params), 4)
        path = tmp_path / f"{rule}.safetensors"
        opt.save(path, p, s)
        again = opt.load(path, p)
        assert int(again.count) == 4 and np.array_equal(np.asarray(again.memory), np.asarray(s.memory))
        q, _ = walk(opt, tree.tree_map(jnp.copy, p), again, 3, seed=500)
        p, _ = walk(opt, p, s, 3, seed=500)
        assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(p), leaves(q)))
    with pytest.raises(polar.PolarError, match="rule|momentum|precondition"):
        polar.jax.muon().load(path, params)


def test_as_optax_has_it():
    """(init, update): the updates lead where the step leads, to a rounding."""
    params = draw(SHAPES, jnp.float32, 7)
    opt = polar.jax.polaradamw(LR, aux_learning_rate=AUX_LR)
    init, update = opt
    new, _ = opt.step(params, params, opt.init(params))
    updates, state = jax.jit(update)(params, init(params), params)
    for p, u, n in zip(leaves(params), leaves(updates), leaves(new)):
        # p + (n - p): two roundings, each of at most half an ulp of the larger of p and n
        bound = np.finfo(np.float32).eps * np.maximum(np.abs(p), np.abs(n))
        assert (np.abs(np.asarray(p + u) - np.asarray(n)) <= bound).all()
    with pytest.raises(ValueError, match="params"):
        update(params, state)
    again = tree.tree_map(lambda x: x, opt)    # what flax's nnx does to whatever it holds
    assert str(again.routes(params)) == str(opt.routes(params)) and again == opt and hash(again) == hash(opt)
    late, _ = again.step(params, params, again.init(params))
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(new), leaves(late)))


def test_transformations_of_jax():
    params = draw({"w": (5, 4), "b": (3, )}, jnp.float32, 8)
    opt = polar.jax.muon(LR)
    stacked = tree.tree_map(lambda p: jnp.stack([p, 2 * p, -p]), params)
    states = jax.vmap(opt.init)(stacked)
    new, _ = jax.jit(jax.vmap(opt.step))(stacked, stacked, states)
    for k in range(3):
        one = tree.tree_map(lambda p: p[k], stacked)
        alone, _ = opt.step(one, one, opt.init(one))
        mine = tree.tree_map(lambda p: p[k], new)
        assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(alone), leaves(mine)))

    def body(carry, g):
        return opt.step(carry[0], g, carry[1]), None

    grads = tree.tree_map(lambda p: jnp.stack([p, -p, p]), params)
    (scanned, state), _ = jax.jit(lambda p, s: jax.lax.scan(body, (p, s), grads))(params, opt.init(params))
    p, s = params, opt.init(params)
    for k in range(3):
        p, s = opt.step(p, tree.tree_map(lambda g: g[k], grads), s)
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(p), leaves(scanned)))
    assert int(state.count) == 3
    shape = jax.eval_shape(opt.init, params)
    assert shape.memory.shape == s.memory.shape


def test_an_exported_step():
    pytest.importorskip("flatbuffers", reason="jax.export wants flatbuffers")
    params = draw(SHAPES, jnp.float32, 12)
    opt = polar.jax.muon(LR)
    state = opt.init(params)
    ours = [jax.export.DisabledSafetyCheck.custom_call("polar_step")]
    bytes_ = jax.export.export(jax.jit(opt.step), disabled_checks=ours)(params, params, state).serialize()
    new, after = jax.export.deserialize(bytes_).call(params, params, state)
    want, _ = opt.step(params, params, state)
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(new), leaves(want)))
    assert isinstance(after, polar.jax.State)


def test_schedules():
    params = draw(SHAPES, jnp.float32, 9)
    opt = polar.jax.polaradamw(lambda count: 0.0 * count,
                               aux_learning_rate=lambda count: jnp.where(count < 1, 0.0, 1e-3))
    first, state = opt.step(params, params, opt.init(params))
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(params), leaves(first)))
    second, state = opt.step(first, params, state)
    assert np.array_equal(np.asarray(second["block"]["w"]), np.asarray(params["block"]["w"]))
    assert (np.asarray(second["block"]["b"]) != np.asarray(params["block"]["b"])).all()


def test_a_step_that_is_left_out(tmp_path):
    params = draw(SHAPES, jnp.float32, 10)
    opt = polar.jax.polaradamw(LR, skip_nonfinite=True)
    state = opt.init(params)
    bad = tree.tree_map(lambda p: p.at[0].set(jnp.nan), params)
    new, after = opt.step(params, bad, state)
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(params), leaves(new)))
    good, _ = opt.step(params, params, state)
    late, after = opt.step(new, params, after)
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(leaves(good), leaves(late)))
    opt.save(tmp_path / "state", late, after)
    assert int(after.count) == int(opt.load(tmp_path / "state", late).count) == 2    # with what was left out


def test_threads_that_trace_side_by_side(monkeypatch):
    """They make one definition of a name: a second one's memory would go with it, and libpolar has its
    addresses.
    """
    params, made = draw({"w": (5, 4)}, jnp.float32, 13), []

    class Slow(jax_native.Definition):

        def __init__(self, name, *rest):
            made.append(name)
            time.sleep(0.1)
            super().__init__(name, *rest)

    monkeypatch.setattr(jax_native, "Definition", Slow)
    opt = polar.jax.polaradamw(weight_decay=2.0**-9)
    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(lambda _: opt.init(params), range(4)))
    assert len(made) == 1 and len({s.memory.shape for s in states}) == 1


# ---- what is refused --------------------------------------------------------------------------------------


def test_refusals():
    params = draw(SHAPES, jnp.float32, 11)
    opt = polar.jax.polaradamw()
    state = opt.init(params)
    with pytest.raises(ValueError, match="no rule 'moun'.*muon"):
        polar.jax.optimizer("moun")
    with pytest.raises(ValueError, match="layout"):
        polar.jax.optimizer(layout="rows")
    with pytest.raises(ValueError, match="matrix="):
        opt.init({"head": jnp.ones((3, 3))})
    with pytest.raises(ValueError, match="no parameters"):
        opt.init({})
    with pytest.raises(TypeError, match="'w' is int"):
        opt.init({"w": jnp.ones((3, 3), jnp.int32)})
    with pytest.raises(ValueError, match="vector|matrix="):
        polar.jax.polaradamw(matrix=lambda path, p: True).init({"b": jnp.ones(3)})
    with pytest.raises(TypeError, match="'gain' is a float; parameters are arrays"):
        opt.init({"w": jnp.ones((3, 3)), "gain": 1.0})
    with pytest.raises(TypeError, match="float"):
        polar.jax.polaradamw(blocks={"w": 2.5}).init({"w": jnp.ones((4, 4))})
    with pytest.raises(ValueError, match="not 5 equal blocks"):
        polar.jax.polaradamw(blocks={"w": 5}).init({"w": jnp.ones((4, 4))})
    with pytest.raises(ValueError, match="another optimiser's"):
        polar.jax.muon().step(params, params, state)
    with pytest.raises(ValueError, match="shape"):
        opt.step(params, tree.tree_map(jnp.transpose, params), state)
    with pytest.raises(ValueError, match="no gradient of out.w"):
        opt.step(params, {**params, "out": {"w": None}}, state)
    with pytest.raises(ValueError, match="no constant"):
        polar.jax.optimizer("muon", constants={"clip": 1})
    with pytest.raises(polar.PolarError, match="no polar map"):
        polar.jax.polaradamw(map="ns_fp33").init(params)
    with pytest.raises(polar.PolarError, match="beta2|aux_beta1|beta1"):
        polar.jax.polaradamw(b1=1.5).init(params)


def call(target, arrays, shapes, aliases, **attributes):
    out = [jax.ShapeDtypeStruct(s, d) for s, d in shapes]
    return jax.block_until_ready(
        jax_native.ffi.ffi_call(target, out, input_output_aliases=aliases)(*arrays, **attributes))


def test_a_handler_called_by_others():
    """Definitions that are not there, arrays that are not theirs: sentences, and the next call is served."""
    w = {"w": jnp.ones((4, 4), jnp.float32)}
    opt = polar.jax.polaradamw()
    opt.init(w)
    name, definition = list(jax_native._definitions.items())[-1]
    arrays = [w["w"], jnp.zeros(definition.shape[0], jnp.uint8)]
    shapes = [(a.shape, a.dtype) for a in arrays]
    both = {0: 0, 1: 1}
    for wrong, match in (((arrays, shapes, both, dict(definition="polar-none")), "has not defined"),
                         ((arrays, shapes, both, {}), "has not defined"),
                         ((arrays, shapes, {}, dict(definition=name)), "input_output_aliases"),
                         (([arrays[0].T[:2], arrays[1]], [((2, 4), jnp.float32), shapes[1]], both,
                           dict(definition=name)), "not those"),
                         (([arrays[0], arrays[1][:8]], [shapes[0], ((8, ), jnp.uint8)], both,
                           dict(definition=name)), "not those"),
                         (([arrays[0].astype(jnp.float64), arrays[1]], [((4, 4), jnp.float64), shapes[1]],
                           both, dict(definition=name)), "not those"),
                         ((arrays[:1], shapes[:1], {0: 0}, dict(definition=name)), "not those")):
        with pytest.raises(Exception, match=match):
            call("polar_begin", *wrong[:3], **wrong[3])
    weights, state = call("polar_begin", arrays, shapes, both, definition=name)
    assert np.array_equal(np.asarray(weights), np.asarray(w["w"])) and state.shape == arrays[1].shape


LAYOUTS = {    # ours: theirs, members of ours: of theirs
    ("xla_call", "XLA_FFI_CallFrame"): dict(api="api", context="ctx", stage="stage", args="args", rets="rets",
                                            attrs="attrs"),
    ("xla_buffers", "XLA_FFI_Args"): dict(size="size", types="types", buffers="args"),
    ("xla_buffers", "XLA_FFI_Rets"): dict(size="size", types="types", buffers="rets"),
    ("xla_attributes", "XLA_FFI_Attrs"): dict(size="size", types="types", names="names", values="attrs"),
    ("xla_buffer", "XLA_FFI_Buffer"): dict(dtype="dtype", data="data", rank="rank", dims="dims"),
    ("xla_string", "XLA_FFI_ByteSpan"): dict(text="ptr", length="len"),
    ("xla_scalar", "XLA_FFI_Scalar"): dict(dtype="dtype", value="value"),
    ("xla_metadata", "XLA_FFI_Metadata"): dict(api="api_version", traits="traits"),
    ("xla_metadata_extension", "XLA_FFI_Metadata_Extension"): dict(metadata="metadata"),
    ("xla_error_args", "XLA_FFI_Error_Create_Args"): dict(message="message", code="errc"),
    ("xla_stream_args", "XLA_FFI_Stream_Get_Args"): dict(context="ctx", stream="stream"),
    ("xla_ordinal_args", "XLA_FFI_DeviceOrdinal_Get_Args"): dict(context="ctx", ordinal="device_ordinal"),
    ("xla_api", "XLA_FFI_Api"): dict(internal="internal_api", error_create="XLA_FFI_Error_Create",
                                     error_destroy="XLA_FFI_Error_Destroy", stream_get="XLA_FFI_Stream_Get",
                                     ordinal_get="XLA_FFI_DeviceOrdinal_Get"),
}
CONSTANTS = dict(XLA_INVALID_ARGUMENT="XLA_FFI_Error_Code_INVALID_ARGUMENT",
                 XLA_SCALAR="XLA_FFI_AttrType_SCALAR",
                 XLA_STRING="XLA_FFI_AttrType_STRING", XLA_EXECUTE="XLA_FFI_ExecutionStage_EXECUTE",
                 **{f"XLA_{x}": f"XLA_FFI_DataType_{x}" for x in ("S64", "U8", "F16", "F32", "F64", "BF16")})


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_our_side_of_the_interface_is_jaxlibs(tmp_path):
    """Offsets and numbers of python/xla/xla_ffi.h against the header that comes with jaxlib."""
    header = Path(jax_native.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()

    def known(name):    # jaxlib 0.5.0 does not tell a handler which GPU it is on
        return not name.startswith("XLA_FFI_DeviceOrdinal") or "XLA_FFI_DeviceOrdinal_Get_Args" in header

    checks = [f"offsetof({a}, {x}) == offsetof({b}, {y})" for (a, b), both in LAYOUTS.items()
              for x, y in both.items() if known(b) and known(y)]
    checks += [f"(int){a} == (int){b}" for a, b in CONSTANTS.items()]
    source = tmp_path / "layout.c"
    head = '#include "xla_ffi.h"\n#include "xla/ffi/api/c_api.h"\n'
    source.write_text(head + "".join(f'_Static_assert({c}, "{c}");\n' for c in checks))
    ours = Path(__file__).resolve().parents[2] / "python" / "xla"
    command = ["cc", "-fsyntax-only", "-w", f"-I{ours}", f"-I{jax_native.ffi.include_dir()}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    source.write_text(head + '_Static_assert(offsetof(xla_call, context) == 8, "");\n')
    assert subprocess.run(command, capture_output=True).returncode != 0    # it can fail
