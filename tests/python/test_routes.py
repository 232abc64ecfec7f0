"""test_routes.py -- which parameter goes where, and that nothing goes astray without a word."""
import warnings

import pytest
import torch
from small_gpt import make
from torch import nn

import polar


def ways(opt):
    return {r.name: r.route for r in opt.routes()}


def test_by_itself():
    m = make()
    w = ways(polar.PolarAdamW(m))
    assert {n
            for n, r in w.items() if r == "matrix"
            } == {f"blocks.{i}.{n}.weight"
                  for i in range(2)
                  for n in ("qkv", "proj", "up", "down")}
    assert set(w) == {n for n, _ in m.named_parameters()}
    why = {r.name: r.why for r in polar.PolarAdamW(m).routes()}
    assert why["wte.weight"] == "an embedding" and why["lm_head.weight"] == "a head" and why[
        "blocks.0.norm1.weight"] == "a vector"


def test_the_table_prints():
    text = str(polar.PolarAdamW(make()).routes())
    assert "blocks.0.qkv.weight" in text and "a head" in text and text.endswith(
        "8 of 29 parameters take the matrix rule"), text


def test_names_are_enough():
    m = make()
    named = ways(polar.Muon(m.named_parameters()))
    assert named == {**ways(polar.Muon(m))}


def test_patterns():
    m = make()
    assert [r.name for r in polar.Muon(m, matrix="*.up.weight").routes()
            if r.route == "matrix"] == ["blocks.0.up.weight", "blocks.1.up.weight"]
    assert "blocks.0.up.weight" not in [
        r.name for r in polar.Muon(m, adamw=["*.up.*"]).routes() if r.route == "matrix"
    ]


def test_a_matrix_outside_the_blocks_is_named():
    m = make()
    m.extra = nn.Linear(32, 32)
    with pytest.warns(UserWarning, match="extra.weight"):
        polar.Muon(m)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polar.Muon(m, adamw=["extra.weight"])
        polar.Muon(make())


def test_an_empty_matrix_route():
    m = nn.Sequential(nn.Embedding(4, 4), nn.LayerNorm(4))
    with pytest.raises(ValueError, match="none of 3 parameters takes the matrix route"):
        polar.Muon(m)
    polar.Muon(m, allow_no_matrix=True)


def test_without_names():
    a, b, v = (nn.Parameter(torch.randn(*s)) for s in ((4, 6), (6, 4), (5,)))
    assert set(ways(polar.Muon([a, b])).values()) == {"matrix"}
    with pytest.raises(ValueError, match="without names"):
        polar.Muon([a, b, v])
    opt = polar.Muon([{"params": [a, b], "route": "matrix", "lr": 0.5},
                      {"params": [v], "route": "adamw", "lr": 0.25}])
    assert [g["lr"] for g in opt.param_groups] == [0.5, 0.25]
    opt = polar.Muon([{"params": [a, b], "use_muon": True}, {"params": [v], "use_muon": False}])
    assert [g["route"] for g in opt.param_groups] == ["matrix", "adamw"]
    with pytest.raises(ValueError, match="route='matrx'"):
        polar.Muon([{"params": [a], "route": "matrx"}])


def test_groups_of_pairs_are_split():
    m = make()
    named = list(m.named_parameters())
    opt = polar.PolarAdamW(
        [{"params": named[:10], "lr": 1e-2, "aux_lr": 1e-4}, {"params": named[10:], "weight_decay": 0.0}],
        aux_lr=7e-4)
    assert [(g["route"], g["lr"], g["weight_decay"]) for g in opt.param_groups] == [
        ("matrix", 1e-2, 0.05), ("adamw", 1e-4, 0.05), ("matrix", 5e-3, 0.0), ("adamw", 7e-4, 0.05)]


def test_filters_are_flattened():
    m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    opt = polar.Muon(m, map="ns_fp32", lr=0.1, weight_decay=0.0, adjust_lr_fn="none")
    m(torch.randn(2, 3, 9, 9)).square().sum().backward()
    before = m[1].weight.detach().clone()
    opt.step()
    s = torch.linalg.svdvals((before - m[1].weight.detach()).reshape(8, 72) / 0.1)
    assert 0.6 < s.min() and s.max() < 1.3    # Jordan's table: 0.68 to 1.2, and a few roundings
    assert opt.stats()[1]["cols"] == 72


def test_flat_weights_as_matrices():
    class Path:
        def __init__(self, *shape):
            self.path_shape, self.has_weight = shape, True

    class Layer(nn.Module):    # as e3nn's o3.Linear keeps its weights
        def __init__(self):
            super().__init__()
            self.instructions = [Path(4, 6), Path(3, 2)]
            self.weight = nn.Parameter(torch.randn(30, dtype=torch.float64))

    m = nn.Sequential(Layer())
    opt = polar.Muon(m, map="exact", lr=0.1, weight_decay=0.0, adjust_lr_fn="none")
    assert "4x6+3x2" in str(opt.routes())
    explicit = polar.Muon(m, views={"*": [(4, 6), (3, 2)]})
    assert str(explicit.routes()) == str(opt.routes())
    before = m[0].weight.detach().clone()
    m[0].weight.grad = torch.randn(30, dtype=torch.float64)
    opt.step()
    step = (before - m[0].weight.detach()) / 0.1
    for block in (step[:24].view(4, 6), step[24:].view(3, 2)):
        assert torch.allclose(torch.linalg.svdvals(block),
                              torch.ones(min(block.shape), dtype=torch.float64),
                              atol=1e-12)
    state = opt.state_dict()["state"][0]
    assert state["momentum_buffer"].shape == (30,)
    again = polar.Muon(m, map="exact")
    again.load_state_dict(opt.state_dict())
    assert torch.equal(again.state_dict()["state"][0]["momentum_buffer"], state["momentum_buffer"])
    with pytest.raises(ValueError, match="make up its 30 entries"):
        polar.Muon(m, views={"*": [(4, 6)]})


def test_tied_weights():
    m = make()
    m.lm_head.weight = m.wte.weight
    assert ways(polar.Muon(m))["wte.weight"] == "adamw"
    with pytest.raises(ValueError, match="one parameter"):
        polar.Muon([{"params": [("a", m.wte.weight)], "route": "adamw"},
                    {"params": [("b", m.wte.weight)], "route": "matrix"}])
