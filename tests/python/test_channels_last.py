"""test_channels_last.py -- filters that lie channels-last: the steps of contiguous ones, their checkpoints.
"""
import copy

import pytest
import torch
from torch import nn

import polar


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, (2, 3)), nn.Conv2d(6, 5, 1)).to(dtype)


def step(model, opt, t, odd=False):
    generator = torch.Generator().manual_seed(t)
    for p in model.parameters():
        g = torch.randn(p.shape, generator=generator).to(p.dtype)
        p.grad = g if odd else torch.empty_like(p).copy_(g)    # odd: not as the parameter lies
    opt.step()


def pair(rule, **options):
    plain, last = network(), network().to(memory_format=torch.channels_last)
    assert not last[0].weight.is_contiguous()
    return plain, last, [polar.Optimizer(m, rule, lr=0.02, map="exact", **options) for m in (plain, last)]


def close(a, b):
    """Gradients and moments are alike to the bit; the maps are exact in double, of matrices whose columns
    differ in order: an SVD's 1e-14 over their smallest singular value, above 1e-2 here, times five steps.
    """
    return all(torch.allclose(x, y, rtol=0, atol=1e-11) for x, y in zip(a.parameters(), b.parameters()))


@pytest.mark.parametrize("rule", ["polaradamw", "muon", "normuon", "adamw"])
@pytest.mark.parametrize("odd", [False, True])
def test_as_contiguous(rule, odd):
    plain, last, (a, b) = pair(rule)
    before = last[1].weight.detach().clone()
    for t in range(5):
        step(plain, a, t)
        step(last, b, t, odd)
        assert close(plain, last)
    assert not close(nn.ParameterList([before]), nn.ParameterList([last[1].weight.detach()]))
    assert not last[0].weight.is_contiguous()


def test_checkpoints_go_either_way():
    plain, last, (a, b) = pair("polaradamw")
    for t in range(3):
        step(plain, a, t)
    last.load_state_dict(plain.state_dict())
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    for x, y in zip(plain.parameters(), last.parameters()):
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(a.state[x][key], b.state[y][key]) and b.state[y][key].shape == y.shape
    for t in range(3, 6):
        step(plain, a, t)
        step(last, b, t)
    assert close(plain, last)
    back = polar.Optimizer(plain, "polaradamw", lr=0.02, map="exact")
    back.load_state_dict(b.state_dict())
    assert all(torch.equal(back.state[x]["exp_avg"], b.state[y]["exp_avg"])
               for x, y in zip(plain.parameters(), last.parameters()))


def test_a_model_that_changes_its_format():
    plain, other = network(), network()
    a, b = [polar.PolarAdamW(m, lr=0.02, map="exact") for m in (plain, other)]
    for t in range(4):
        if t == 2:
            other.to(memory_format=torch.channels_last)
        step(plain, a, t)
        step(other, b, t)
    assert close(plain, other) and not other[0].weight.is_contiguous()


def test_bf16_masters():
    model = network(torch.bfloat16).to(memory_format=torch.channels_last)
    opt = polar.PolarAdamW(model, lr=0.02)
    step(model, opt, 0)
    for p in model.parameters():
        assert torch.equal(opt.state[p]["master"].bfloat16(), p.detach())
