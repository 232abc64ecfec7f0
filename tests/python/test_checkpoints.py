"""test_checkpoints.py -- state that goes on: saved and loaded, from torch's optimisers to ours and back, and
what is refused.
"""
import copy
import io

import pytest
import torch
from small_gpt import distance, make, matrices, others, train

import polar

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"),
                                reason="torch.optim.Muon came with torch 2.9")


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def bits(model):
    return [p.detach().clone() for p in model.parameters()]


def same(model, saved):
    return all(torch.equal(p.detach(), q) for p, q in zip(model.parameters(), saved))


@pytest.mark.parametrize("cls", [polar.PolarAdamW, polar.Muon, polar.AdamW])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_has_the_same_bits(cls, dtype):
    straight, first = make(dtype=dtype), make(dtype=dtype)
    train(straight, cls(straight), 6)
    opt = cls(first)
    train(first, opt, 3)
    model, state = through_a_file(first.state_dict()), through_a_file(opt.state_dict())
    second = make(seed=5, dtype=dtype)
    again = cls(second)
    second.load_state_dict(model)
    again.load_state_dict(state)
    train(second, again, 3, first=3)
    assert same(second, bits(straight))


def test_the_keys_are_torchs():
    m = make()
    opt, ref = polar.AdamW(m), torch.optim.AdamW(m.parameters())
    train(m, opt, 1), train(m, ref, 1)
    ours, theirs = opt.state_dict(), ref.state_dict()
    assert ours["state"].keys() == theirs["state"].keys()
    for i in ours["state"]:
        assert set(ours["state"][i]) == set(theirs["state"][i])
        assert ours["state"][i]["step"].dtype is theirs["state"][i]["step"].dtype and ours["state"][i][
            "step"].shape == ()
    assert [g["params"] for g in ours["param_groups"]] == [g["params"] for g in theirs["param_groups"]]
    assert set(polar.Muon(m).state_dict()["state"][0]) == {"momentum_buffer", "step"}


def test_adamw_both_ways():
    """Ten steps of torch's AdamW, ten of ours, ten of torch's: the run of thirty by one of them, in double.
    """
    a, b = make(dtype=torch.float64), make(dtype=torch.float64)
    train(a, torch.optim.AdamW(a.parameters(), lr=2e-3, weight_decay=0.1), 30)
    one = torch.optim.AdamW(b.parameters(), lr=2e-3, weight_decay=0.1)
    train(b, one, 10)
    two = polar.AdamW(b.parameters())    # its lr and decay come with the checkpoint
    two.load_state_dict(through_a_file(one.state_dict()))
    assert two.param_groups[0]["lr"] == 2e-3 and two.param_groups[0]["weight_decay"] == 0.1
    train(b, two, 10, first=10)
    three = torch.optim.AdamW(b.parameters())
    three.load_state_dict(through_a_file(two.state_dict()))
    train(b, three, 10, first=20)
    assert distance(b, a) < 1e-11


@needs_muon
def test_muon_and_adamw_become_one_and_two_again():
    """torch.optim.Muon keeps its buffer in the weights' format and maps in bf16, so moves agree to 5 % and
    the buffers exactly.
    """
    a, b, start = make(), make(), make()

    def two_of_torchs(m):
        return torch.optim.Muon(matrices(m), lr=0.02), torch.optim.AdamW(others(m), lr=1e-3)

    class Both:
        def __init__(self, *opts):
            self.step = lambda: [o.step() for o in opts]

    train(a, Both(*two_of_torchs(a)), 30)
    muon, adamw = two_of_torchs(b)
    train(b, Both(muon, adamw), 10)
    ours = polar.Muon(b)
    ours.load_state_dict(through_a_file(polar.join_state_dicts(muon.state_dict(), adamw.state_dict())))
    for p in matrices(b):
        assert torch.equal(ours.state[p]["momentum_buffer"], muon.state[p]["momentum_buffer"])
    for p in others(b):
        assert torch.equal(ours.state[p]["exp_avg_sq"], adamw.state[p]["exp_avg_sq"])
    assert [g["lr"] for g in ours.param_groups] == [0.02, 1e-3]
    train(b, ours, 10, first=10)
    muon, adamw = two_of_torchs(b)
    for o, state in zip((muon, adamw), polar.split_state_dict(through_a_file(ours.state_dict()))):
        o.load_state_dict(state)
    assert float(adamw.state[others(b)[0]]["step"]) == 20
    train(b, Both(muon, adamw), 10, first=20)
    assert 0 < distance(b, a) / distance(a, start) < 0.05 * 1.5


@needs_muon
def test_a_muon_of_matrices_alone():
    m = make()
    ref = torch.optim.Muon(matrices(m), lr=0.03, ns_steps=4, nesterov=False, adjust_lr_fn="match_rms_adamw")
    train(m, ref, 2)
    opt = polar.Muon(matrices(m))
    opt.load_state_dict(ref.state_dict())
    g = opt.param_groups[0]
    assert (g["lr"], g["ns_steps"], g["nesterov"], g["adjust_lr_fn"]) == (0.03, 4, False, "match_rms_adamw")
    twin = polar.Muon(matrices(m), lr=0.03, ns_steps=4, nesterov=False, adjust_lr_fn="match_rms_adamw")
    # what is fixed in the library is made anew
    assert [s["scale"] for s in opt.stats()] == [s["scale"] for s in twin.stats()]


def test_what_is_refused_changes_nothing():
    m = make()
    opt = polar.Muon(m)
    train(m, opt, 2)
    before = copy.deepcopy(opt.state_dict())
    good = opt.state_dict()
    wrong = [
        ("groups", {"state": {}, "param_groups": good["param_groups"][:1]}),
        ("parameters", {
            "state": {}, "param_groups": [{**good["param_groups"][0], "params": [0]}, good["param_groups"][1]]
        }),
        ("momentum_buffer", polar.PolarAdamW(m).state_dict()),
        ("shape",
         {**good, "state": {**good["state"], 0: {**good["state"][0], "momentum_buffer": torch.zeros(3, 3)}}}),
        ("route", {**good, "param_groups": [{**g, "route": "adamw"} for g in good["param_groups"]]}),
    ]
    for word, state in wrong:
        with pytest.raises(ValueError, match=word):
            opt.load_state_dict(state)
    after = opt.state_dict()
    assert all(
        torch.equal(after["state"][i][k], before["state"][i][k]) for i in before["state"]
        for k in before["state"][i])
    train(m, opt, 1)


def test_numbers_that_are_refused_change_nothing():
    m = make()
    opt = polar.Muon(m, lr=0.01)
    train(m, opt, 2)
    before = copy.deepcopy(opt.state_dict())
    for group, number in ((0, {"lr": -1.0}), (1, {"betas": (2.0, 0.9)}), (0, {"ns_steps": 99})):
        wrong = copy.deepcopy(before)
        wrong["param_groups"][0]["lr"] = 0.5    # which could be had
        wrong["param_groups"][group].update(number)
        for s in wrong["state"].values():
            s["step"] += 7
        with pytest.raises((ValueError, polar.PolarError)):
            opt.load_state_dict(wrong)
        after = opt.state_dict()
        assert after["param_groups"] == before["param_groups"]
        assert all(torch.equal(after["state"][i][k], before["state"][i][k]) for i in before["state"]
                   for k in before["state"][i])
    assert [s["effective_lr"] / s["scale"] for s in opt.stats()][0] == 0.01
    with pytest.raises(ValueError, match="'param_groups'"):
        opt.load_state_dict({})


@pytest.mark.skipif(not hasattr(torch.optim.Optimizer, "register_state_dict_pre_hook"),
                    reason="hooks of state dicts came with torch 2.1")
def test_hooks_see_the_state():
    """torch's hooks get the state as it is saved and loaded, and may change it."""
    m = make()
    opt, seen = polar.Muon(m), []
    train(m, opt, 1)
    opt.register_state_dict_pre_hook(lambda o: seen.append("saving"))
    opt.register_state_dict_post_hook(lambda o, sd: {**sd, "more": len(sd["state"])})
    opt.register_load_state_dict_pre_hook(lambda o, sd: {**sd, "param_groups": [
        {**g, "lr": 0.5} for g in sd["param_groups"]]} if sd["more"] == len(sd["state"]) else None)
    opt.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    state = opt.state_dict()
    assert state["more"] == len(state["state"]) == len(list(m.parameters()))
    opt.load_state_dict(state)
    assert seen == ["saving", 0.5]


def test_other_blocks_are_refused_before_anything_changes():
    """Kronecker factors and moments of lines have the sizes of the matrices a parameter is seen as."""
    for rule in ("shampoo", "normuon"):
        m, n = make(), make()
        there = polar.Optimizer(n, rule=rule, views={"blocks.*.qkv.weight": [(96 * 32 // 16, 16)]})
        here = polar.Optimizer(m, rule=rule, lr=0.007)
        train(n, there, 1), train(m, here, 1)
        before = copy.deepcopy(here.state_dict())
        with pytest.raises(ValueError, match="other blocks or views"):
            here.load_state_dict(there.state_dict())
        after = here.state_dict()
        assert after["param_groups"] == before["param_groups"]
        assert all(torch.equal(after["state"][i][k], before["state"][i][k]) for i in before["state"]
                   for k in before["state"][i])


def test_entries_that_never_were():
    """torch saves nothing of a parameter that never had a gradient: its state begins at zero."""
    m = make()
    ref = torch.optim.AdamW(m.parameters())
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    m.wpe.weight.grad = None
    ref.step()
    opt = polar.AdamW(m)
    train(m, opt, 2)
    opt.load_state_dict(ref.state_dict())
    assert float(opt.state[m.wpe.weight]["step"]) == 0 and float(
        opt.state[m.wpe.weight]["exp_avg"].abs().sum()) == 0
    assert float(opt.state[m.wte.weight]["step"]) == 1


def test_schedulers_resume():
    m = make()
    opt = polar.PolarAdamW(m)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    for _ in range(5):
        train(m, opt, 1)
        schedule.step()
    again = polar.PolarAdamW(m)
    again.load_state_dict(opt.state_dict())
    assert [g["lr"] for g in again.param_groups] == [g["lr"] for g in opt.param_groups]
    assert [g["initial_lr"] for g in again.param_groups] == [5e-3, 5e-4]
    torch.optim.lr_scheduler.CosineAnnealingLR(again, 20, last_epoch=5)


def test_views_outlive_the_optimiser():
    m = make()
    opt = polar.AdamW(m)
    train(m, opt, 2)
    state = opt.state_dict()
    copied = copy.deepcopy(state)
    del opt
    import gc
    gc.collect()
    junk = [torch.randn(1000) for _ in range(100)]    # memory that was freed would be taken by these
    assert all(
        torch.equal(state["state"][i][k], copied["state"][i][k]) for i in copied["state"]
        for k in copied["state"][i])
    assert len(junk) == 100
