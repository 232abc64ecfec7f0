"""test_rules.py -- every rule of the table from torch: checkpoints, gradients that are missing, steps that
are left out, bf16 weights, numbers of single stages.
"""
import copy
import io

import pytest
import torch

import polar
from polar._library import lib, names

RULES = names(lib.polar_rule_name)
KRON = ["shampoo", "shampoo_polar", "pmuon", "mousse", "soap", "soap_warm", "soap_muon", "kl_soap_warm"]


def parameters(dtype):
    g = torch.Generator().manual_seed(1)
    shapes = {"wide": (6, 9), "tall": (10, 4), "square": (7, 7), "bias": (5,)}
    draw = {n: torch.randn(s, generator=g, dtype=torch.float64) for n, s in shapes.items()}
    return {n: torch.nn.Parameter(x.to(dtype)) for n, x in draw.items()}


def gradients(params, t):
    g = torch.Generator().manual_seed(100 + t)
    return {n: torch.randn(p.shape, generator=g, dtype=torch.float64).to(p.dtype) for n, p in params.items()}


def optimizer(params, rule, **kw):
    return polar.Optimizer(params.items(), rule, aux_lr=0.01, allow_no_matrix=True, **kw)


def step(opt, params, t, without=(), spoilt=None):
    for n, g in gradients(params, t).items():
        params[n].grad = None if n in without else g
        if n == spoilt:
            g.view(-1)[2] = float("nan")
    opt.step()


def same(a, b):
    return all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_checkpoint_goes_on_with_the_same_bits(rule, dtype):
    whole, parts = parameters(dtype), parameters(dtype)
    one, two = optimizer(whole, rule), optimizer(parts, rule)
    for t in range(14):
        step(one, whole, t)
    for t in range(7):
        step(two, parts, t)
    file = io.BytesIO()
    torch.save(two.state_dict(), file)
    file.seek(0)
    again = {n: torch.nn.Parameter(p.detach().clone()) for n, p in parts.items()}
    three = optimizer(again, rule)
    three.load_state_dict(torch.load(file, weights_only=True))
    for t in range(7, 14):
        step(three, again, t)
    assert same(whole, again)
    assert not same(parts, again)


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_gradient_leaves_its_parameter_as_it_is(rule):
    some, all_ = parameters(torch.float32), parameters(torch.float32)
    one, two = optimizer(some, rule), optimizer(all_, rule)
    for t in range(8):
        before = some["wide"].detach().clone()
        gone = t in (0, 3, 4)
        step(one, some, t, without=("wide",) if gone else ())
        assert not gone or torch.equal(before, some["wide"])
    for t in range(8):
        step(two, all_, t)
    # the others have not noticed
    assert all(torch.equal(some[n], all_[n]) for n in some if n != "wide")
    # and it is where its own five gradients take it
    alone = {"wide": parameters(torch.float32)["wide"]}
    three = optimizer(alone, rule)
    for t in (1, 2, 5, 6, 7):
        alone["wide"].grad = gradients(parameters(torch.float32), t)["wide"]
        three.step()
    assert torch.equal(alone["wide"], some["wide"])


@pytest.mark.parametrize("rule", RULES)
def test_a_step_left_out_is_none(rule):
    with_, without = parameters(torch.float32), parameters(torch.float32)
    one = optimizer(with_, rule, skip_nonfinite=True)
    two = optimizer(without, rule, skip_nonfinite=True)
    for t in range(9):
        step(one, with_, t, spoilt="tall" if t in (0, 5) else None)
        if t not in (0, 5):
            step(two, without, t)
    assert same(with_, without)


@pytest.mark.parametrize("rule", KRON)
def test_a_copy_goes_on_alike(rule):
    params = parameters(torch.float32)
    opt = optimizer(params, rule)
    for t in range(5):
        step(opt, params, t)
    twin, other = copy.deepcopy((opt, params))
    for t in range(5, 9):
        step(opt, params, t)
        step(twin, other, t)
    assert same(params, other)


@pytest.mark.parametrize("rule, constants", [("adago", {"clip": 0.1}), ("muon_floor", {"strength": 3.0}),
                                             ("muon_brake", {"strength": 1.0}),
                                             ("dion2", {"fraction": 0.5}), ("scion", {"radius": 7.0}),
                                             ("shampoo", {"kron_power": 0.5}), ("soap", {"refresh": 2}),
                                             ("soap", {"first_basis": 3})])
def test_constants(rule, constants):
    own, other, same_ = (parameters(torch.float32) for _ in range(3))
    one, two = optimizer(own, rule), optimizer(other, rule, constants=constants)
    three = optimizer(same_, rule, constants=constants)
    for t in range(8):
        for o, p in ((one, own), (two, other), (three, same_)):
            step(o, p, t)
    assert same(other, same_)
    assert not same(own, other)


@pytest.mark.parametrize("rule", KRON)
def test_factors_in_tf32(rule):
    own, other, same_ = (parameters(torch.float32) for _ in range(3))
    one, two = optimizer(own, rule), optimizer(other, rule, kron_tf32=True)
    three = optimizer(same_, rule, kron_tf32=True)
    for t in range(5):
        for o, p in ((one, own), (two, other), (three, same_)):
            step(o, p, t)
    assert same(other, same_)
    assert not same(own, other)


def test_constants_that_a_rule_lacks():
    with pytest.raises(ValueError, match="rule 'muon' has no constant 'clip'"):
        optimizer(parameters(torch.float32), "muon", constants={"clip": 1.0})
    with pytest.raises(polar.PolarError, match="clip"):
        optimizer(parameters(torch.float32), "adago", constants={"clip": 0.0})
