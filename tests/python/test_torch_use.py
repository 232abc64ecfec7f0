"""test_torch_use.py -- what scripts do with an optimiser: schedulers, accumulation, closures, GradScaler,
compile, new groups, copies.
"""
import copy
import math

import pytest
import torch
from small_gpt import DEVICE, batch, distance, loss_of, make, train
from torch.optim import lr_scheduler

import polar

needs_scaler = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"),
                                  reason="torch.amp.GradScaler came with torch 2.3")
RULES = [polar.PolarAdamW, polar.Muon, polar.AdamW]


def bits(model):
    return [p.detach().clone() for p in model.parameters()]


def same(model, saved):
    return all(torch.equal(p.detach(), q) for p, q in zip(model.parameters(), saved))


def backward(model, step=0):
    model.zero_grad(set_to_none=True)
    loss = loss_of(model, step)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("cls", RULES)
def test_state_is_there_from_the_beginning(cls):
    opt = cls(make())
    for group in opt.param_groups:
        for p in group["params"]:
            entry = opt.state[p]
            moment = entry["momentum_buffer" if cls is polar.Muon and group["route"] ==
                           "matrix" else "exp_avg"]
            assert moment.shape == p.shape and float(moment.abs().sum()) == 0 and float(entry["step"]) == 0


@pytest.mark.parametrize("cls", RULES)
def test_lr_0_changes_nothing(cls):
    m = make()
    before = bits(m)
    opt = cls(m, lr=0.0, weight_decay=0.5, **({} if cls is polar.AdamW else {"aux_lr": 0.0}))
    for t in range(3):
        backward(m, t)
        opt.step()
    assert same(m, before)


def test_every_scheduler_moves_both_rates():
    m = make()
    for make_scheduler in (lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
                           lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (t + 1)),
                           lambda o: lr_scheduler.OneCycleLR(o, [5e-3, 5e-4], total_steps=20),
                           lambda o: lr_scheduler.StepLR(o, 1, 0.5),
                           lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0)):
        opt = polar.PolarAdamW(m)
        scheduler = make_scheduler(opt)
        seen = set()
        for t in range(4):
            backward(m, t)
            opt.step()
            scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
            stats = {s["group"]: s["effective_lr"] / s["scale"] for s in opt.stats()}
            seen.add((round(stats[0], 12), round(stats[1], 12)))
        assert len(seen) > 1 and len({a for a, _ in seen}) > 1 and len({b for _, b in seen}) > 1, seen


def follow(model, momentum, beta1):
    """A step of Muon with these numbers for matrices and for the rest, by hand."""
    opt = polar.Muon(model, map="ns_fp32")
    for t, (m, b) in enumerate(zip(momentum, beta1)):
        opt.param_groups[0]["momentum"] = m
        opt.param_groups[1]["betas"] = (b, 0.999)
        backward(model, t), opt.step()


@pytest.mark.parametrize("make_scheduler", [
    lambda o: lr_scheduler.OneCycleLR(o, [1e-3, 3e-4], total_steps=8, div_factor=1.0, final_div_factor=1.0),
    lambda o: lr_scheduler.CyclicLR(o, [1e-3, 3e-4], [1e-3, 3e-4], step_size_up=3),
], ids=["OneCycleLR", "CyclicLR"])
def test_schedulers_that_cycle_momentum(make_scheduler):
    """torch moves `betas` where an optimiser has them: Muon's momentum is the first of them, in its steps, in
    its groups and in a checkpoint.
    """
    m, by_hand = make(), make()
    opt = polar.Muon(m, map="ns_fp32")
    scheduler, seen = make_scheduler(opt), []
    for t in range(5):
        backward(m, t), opt.step()
        matrices, rest = opt.param_groups
        assert matrices["momentum"] == matrices["betas"][0] == rest["betas"][0]
        seen.append(matrices["momentum"])
        scheduler.step()
    assert len(set(seen)) > 2, seen
    follow(by_hand, seen, seen)
    assert same(m, bits(by_hand))
    # the scheduler moved betas since the last step: copies and checkpoints know
    now = opt.param_groups[0]["betas"][0]
    assert now != seen[-1] and opt.state_dict()["param_groups"][0]["momentum"] == now
    assert copy.deepcopy(opt).param_groups[0]["momentum"] == now


def test_momentum_by_hand_and_by_betas():
    """Whichever was changed counts; a checkpoint's momentum does, whatever its betas."""
    m = make()
    opt = polar.Muon(m, momentum=0.9)
    group = opt.param_groups[0]
    assert group["betas"][0] == 0.9
    for change, want in (({"momentum": 0.8}, 0.8), ({"betas": (0.7, 0.99)}, 0.7),
                         ({"betas": (0.5, 0.99), "momentum": 0.6}, 0.6), ({"betas": [0.6, 0.9]}, 0.6)):
        group.update(change)
        backward(m), opt.step()
        assert group["momentum"] == group["betas"][0] == want
    old = opt.state_dict()
    old["param_groups"][0].update(momentum=0.95, betas=(0.9, 0.999))    # as before the two were one
    opt.load_state_dict(old)
    assert opt.param_groups[0]["momentum"] == opt.param_groups[0]["betas"][0] == 0.95
    ema = polar.PolarAdamW(make())
    ema.param_groups[0]["betas"] = (0.5, 0.9)
    ema.step()
    assert ema.param_groups[0]["momentum"] == 0.95 and ema.param_groups[0]["betas"] == (0.5, 0.9)


def test_a_scheduler_of_one_rate_is_felt():
    """The numbers of a group are those of the step: half the rate is half the move."""
    moves = []
    for factor in (1.0, 0.5):
        m = make()
        opt = polar.PolarAdamW(m, weight_decay=0.0, aux_weight_decay=0.0, map="ns_fp32")
        for g in opt.param_groups:
            g["lr"] *= factor
        start = make()
        backward(m)
        opt.step()
        moves.append(distance(m, start))
    assert math.isclose(moves[1] / moves[0], 0.5, rel_tol=1e-4)


@pytest.mark.parametrize("cls", RULES)
def test_accumulation_maps_once(cls):
    """Four micro-batches are one step, with one map for every matrix: the bits of the sum of their gradients.
    """
    a, b = make(), make()
    opt_a, opt_b = cls(a), cls(b)
    for t in range(3):
        a.zero_grad(set_to_none=True)
        for k in range(4):
            (loss_of(a, 10 * t + k) / 4).backward()
        opt_a.step()
        sums = [torch.zeros_like(p) for p in b.parameters()]
        for k in range(4):
            for s, g in zip(sums, torch.autograd.grad(loss_of(b, 10 * t + k) / 4, list(b.parameters()))):
                s += g
        for p, s in zip(b.parameters(), sums):
            p.grad = s
        opt_b.step()
    assert same(a, bits(b))
    for s in opt_a.stats():
        assert s["steps"] == 3 and s["maps"] == (3 if s["route"] == "matrix" else
                                                 0) and s["last_maps"] == (s["route"] == "matrix")


def test_closure_and_set_to_none():
    a, b = make(), make()
    opt_a, opt_b = polar.PolarAdamW(a), polar.PolarAdamW(b)
    for t in range(3):
        def closure():
            opt_a.zero_grad(set_to_none=False)
            loss = loss_of(a, t)
            loss.backward()
            return loss
        got = opt_a.step(closure)
        want = backward(b, t)
        opt_b.step()
        assert torch.equal(got.detach(), want)
    assert same(a, bits(b))


def test_missing_gradients_stay():
    m = make()
    opt = polar.PolarAdamW(m)
    quiet = m.blocks[0].up.weight
    for t in range(3):
        backward(m, t)
        if t != 1:
            quiet.grad = None
        before = quiet.detach().clone()
        opt.step()
        assert torch.equal(quiet.detach(), before) == (t != 1)
    by_name = {s["name"]: s for s in opt.stats()}
    assert by_name["blocks.0.up.weight"]["steps"] == 1 and by_name["blocks.1.up.weight"]["steps"] == 3
    assert float(opt.state[quiet]["step"]) == 1
    opt.zero_grad()
    before = bits(m)
    opt.step()    # nothing at all
    assert same(m, before)


@pytest.mark.parametrize("cls", RULES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_gradients_leave_everything(cls, bad):
    a, b = make(), make()
    opt_a, opt_b = cls(a, skip_nonfinite=True), cls(b, skip_nonfinite=True)
    for t in range(4):
        if t == 2:
            backward(a, 99)
            a.blocks[1].down.weight.grad[3, 4] = bad
            before, state = bits(a), copy.deepcopy(opt_a.state_dict()["state"])
            opt_a.step()
            assert same(a, before)
            after = opt_a.state_dict()["state"]
            assert all(torch.equal(after[i][k], state[i][k]) for i in state for k in state[i])
        backward(a, t), opt_a.step()
        backward(b, t), opt_b.step()
    assert same(a, bits(b)) and opt_a.skipped == 1 and opt_b.skipped == 0


@needs_scaler
def test_grad_scaler():
    """GradScaler's loop as it is written everywhere: the scale is taken off, an overflow leaves everything,
    the scale falls.
    """
    a, b = make(), make()
    opt_a, opt_b = polar.PolarAdamW(a), polar.PolarAdamW(b)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**12, growth_interval=1000)
    for t in range(4):
        a.zero_grad()
        scaler.scale(loss_of(a, t)).backward()
        if t == 2:
            a.wte.weight.grad[0, 0] = float("inf")
        before = bits(a)
        scaler.step(opt_a)
        scaler.update()
        assert same(a, before) == (t == 2)
        if t != 2:
            backward(b, t), opt_b.step()
    assert scaler.get_scale() == 2.0**11 and opt_a.skipped == 1
    assert same(a, bits(b))    # powers of two: the very same bits


@needs_scaler
def test_unscaled_and_clipped():
    a, b = make(), make()
    opt_a, opt_b = polar.Muon(a), polar.Muon(b)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**12)
    for t in range(3):
        a.zero_grad()
        scaler.scale(loss_of(a, t)).backward()
        scaler.unscale_(opt_a)
        torch.nn.utils.clip_grad_norm_(a.parameters(), 0.5)
        scaler.step(opt_a)
        scaler.update()
        backward(b, t)
        torch.nn.utils.clip_grad_norm_(b.parameters(), 0.5)
        opt_b.step()
    assert same(a, bits(b))


@needs_scaler
def test_a_plain_step_after_one_of_the_scalers():
    """Its flag and its scale are of its own step alone."""
    m = make()
    opt = polar.AdamW(m)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0)
    scaler.scale(loss_of(m, 0)).backward()
    m.wte.weight.grad[0, 0] = float("inf")
    scaler.step(opt)
    m.wte.weight.grad[0, 0] = 0.0
    before = bits(m)
    opt.step()
    assert not same(m, before)


def test_add_param_group():
    a, b = make(), make()
    names = dict(a.named_parameters())
    late = [n for n in names if n.startswith("blocks.1.")]
    opt = polar.PolarAdamW([(n, p) for n, p in a.named_parameters() if n not in late])
    ref = polar.PolarAdamW(b)
    early = [dict(b.named_parameters())[n] for n in late]
    for t in range(2):
        backward(a, t), backward(b, t)
        for p in early:
            p.grad = None
        opt.step(), ref.step()
    opt.add_param_group({"params": [(n, names[n]) for n in late]})
    assert len(opt.param_groups) == 4
    for t in range(2, 5):
        backward(a, t), opt.step()
        backward(b, t), ref.step()
    assert same(a, bits(b))    # state went on, the new ones began
    with pytest.raises(ValueError):
        opt.add_param_group({"params": [("again", names["wte.weight"])], "route": "adamw"})
    assert len(opt.param_groups) == 4
    backward(a, 5), opt.step()


def test_copies_and_pickles():
    import io
    m = make()
    opt = polar.PolarAdamW(m)
    train(m, opt, 3)
    twin, twin_opt = copy.deepcopy((m, opt))
    file = io.BytesIO()
    torch.save({"m": m, "opt": opt}, file)
    file.seek(0)
    third = torch.load(file, weights_only=False)
    for model, o in ((m, opt), (twin, twin_opt), (third["m"], third["opt"])):
        train(model, o, 3, first=3)
    assert same(twin, bits(m)) and same(third["m"], bits(m))


def test_parameters_that_move():
    """p.data anew, as some libraries do: the optimiser follows."""
    a, b = make(), make()
    opt_a, opt_b = polar.Muon(a), polar.Muon(b)
    for t in range(4):
        if t == 2:
            for p in a.parameters():
                p.data = p.data.clone()
        backward(a, t), opt_a.step()
        backward(b, t), opt_b.step()
    assert same(a, bits(b))


def test_gradients_of_any_stride():
    a, b = make(), make()
    opt_a, opt_b = polar.Muon(a), polar.Muon(b)
    backward(a), backward(b)
    for p in a.parameters():
        if p.ndim == 2:
            p.grad = p.grad.T.contiguous().T
    opt_a.step(), opt_b.step()
    assert same(a, bits(b))


@pytest.mark.parametrize("number", [{"ns_steps": 7}, {"ns_coefficients": (1.5, -0.5, 0.0)}, {"eps": 1e3},
                                    {"adjust_lr_fn": "match_rms_adamw"}])
def test_fixed_numbers_may_change(number):
    """Those that the library takes when it is made, eps of a map among them: it is made anew."""
    a, b, c = make(), make(), make()
    opt_a, opt_b, opt_c = polar.Muon(a), polar.Muon(b, **number), polar.Muon(c)
    opt_a.param_groups[0].update(number)
    for t in range(2):
        backward(a, t), opt_a.step()
        backward(b, t), opt_b.step()
        backward(c, t), opt_c.step()
    assert same(a, bits(b)) and not same(a, bits(c))


@pytest.mark.parametrize("key, before, after", [("betas", [0.9, 0.999], [0.5, 0.9]),
                                                ("ns_coefficients", [3.4445, -4.7750, 2.0315],
                                                 [1.5, -0.5, 0.0]),
                                                ("lr", torch.tensor(0.01), torch.tensor(0.02))])
def test_numbers_that_are_written_in_place(key, before, after):
    """Lists and tensors in param_groups are heard when their entries change."""
    a, b, c = make(), make(), make()
    opts = [polar.PolarAdamW(m, map="ns_fp32") for m in (a, b, c)]
    for opt in opts:
        opt.param_groups[0][key] = copy.deepcopy(before)
    backward(a), opts[0].step(), backward(b), opts[1].step(), backward(c), opts[2].step()
    if key == "lr":
        opts[0].param_groups[0][key].copy_(after)
    else:
        opts[0].param_groups[0][key][:] = after
    opts[1].param_groups[0][key] = copy.deepcopy(after)
    backward(a, 1), opts[0].step(), backward(b, 1), opts[1].step(), backward(c, 1), opts[2].step()
    assert same(a, bits(b)) and not same(a, bits(c))


@pytest.mark.parametrize("write", [
    lambda m, new: m.load_state_dict(new.state_dict()),
    lambda m, new: [setattr(p, "data", q.data.clone()) for p, q in zip(m.parameters(), new.parameters())],
], ids=["in place", "other memory"])
def test_bf16_weights_that_were_written(write):
    """The f32 master copies follow: the next step goes on from what was written, not from before."""
    a, b = make(dtype=torch.bfloat16), make(dtype=torch.bfloat16)
    opt_a = polar.Muon(a)
    backward(a), opt_a.step()
    new = make(seed=7, dtype=torch.bfloat16)
    with torch.no_grad():
        for p in new.parameters():
            p.add_(16)    # no entry is what a master copy rounds to
    write(a, new), write(b, new)
    opt_b = polar.Muon(b)
    opt_b.load_state_dict(opt_a.state_dict() | {"state": {
        i: {k: v for k, v in s.items() if k != "master"} for i, s in opt_a.state_dict()["state"].items()}})
    for t in range(1, 3):
        backward(a, t), opt_a.step()
        backward(b, t), opt_b.step()
    assert same(a, bits(b))


@pytest.mark.parametrize("weights_first", [True, False])
def test_bf16_weights_from_a_checkpoint_keep_their_master_copies(weights_first):
    """Writing what a master copy rounds to is no change: a resumed run has the same bits in either order."""
    a, b = make(dtype=torch.bfloat16), make(seed=3, dtype=torch.bfloat16)
    opt_a, opt_b = polar.Muon(a), polar.Muon(b)
    for t in range(3):
        backward(a, t), opt_a.step()
    order = [lambda: b.load_state_dict(a.state_dict()),
             lambda: opt_b.load_state_dict(copy.deepcopy(opt_a.state_dict()))]
    for load in order if weights_first else order[::-1]:
        load()
    for t in range(3, 6):
        backward(a, t), opt_a.step()
        backward(b, t), opt_b.step()
    assert same(a, bits(b))


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "increment_version"), reason="torch before 2.1")
def test_a_backward_through_weights_that_were_stepped():
    """torch refuses it after a step of its own optimisers; so it does after ours."""
    w, other = torch.nn.Parameter(torch.randn(4, 4)), torch.nn.Parameter(torch.randn(4, 4))
    opt = polar.Muon([w, other])
    loss, untouched = (w * w).sum(), (other * other).sum()
    loss.backward(retain_graph=True)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    untouched.backward()    # it had no gradient, and stayed as it was


def test_update_norms():
    m, start = make(), make()
    opt = polar.Muon(m, weight_decay=0.0, aux_weight_decay=0.0, measure=True)
    backward(m)
    opt.step()
    old = dict(start.named_parameters())
    for s in opt.stats():
        norm = float((dict(m.named_parameters())[s["name"]] - old[s["name"]]).detach().norm())
        assert math.isclose(s["update_norm"], norm, rel_tol=1e-3), s    # a weight's rounding against its move


@pytest.mark.skipif(not hasattr(torch, "compile") or tuple(map(int,
                                                               torch.__version__.split(".")[:2])) < (2, 2),
                    reason="torch.compile of today")
def test_compile_around_the_loop():
    """The whole training step compiled: forward and backward are traced, opt.step() is called; the bits are
    those of the plain loop.
    """
    a, b = make(), make()
    opt_a, opt_b = polar.PolarAdamW(a), polar.PolarAdamW(b)

    def work(model, opt, x, y):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    compiled = torch.compile(lambda x, y: work(a, opt_a, x, y), backend="eager")
    for t in range(4):
        data = batch(t)
        assert torch.equal(compiled(*data).detach(), work(b, opt_b, *data).detach())
    assert same(a, bits(b)) and opt_a.stats()[0]["steps"] == 4


def test_two_optimisers_in_two_threads():
    import threading
    alone = []
    for k in range(2):
        m = make(seed=k)
        train(m, polar.PolarAdamW(m), 5)
        alone.append(bits(m))
    models = [make(seed=k % 2) for k in range(4)]    # seeds are global: one after the other
    opts = [polar.PolarAdamW(m) for m in models]
    threads = [threading.Thread(target=lambda k=k: train(models[k], opts[k], 5)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        assert same(models[k], alone[k % 2])


def test_one_optimiser_in_two_threads():
    import threading
    m = make()
    opt = polar.AdamW(m, lr=0.0)
    backward(m)
    threads = [threading.Thread(target=lambda: [opt.step() for _ in range(50)]) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert float(opt.state[m.wte.weight]["step"]) == 100
