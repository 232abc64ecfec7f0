"""test_misuse.py -- what goes wrong ends in an exception with a sentence: never a crash, never a hang,
nothing half done.
"""
import os
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from small_gpt import loss_of, make, train
from torch import nn

import polar


def refused(error, words, call):
    with pytest.raises(error) as e:
        call()
    assert words in str(e.value) and len(str(e.value)) > 20, str(e.value)


def parameter(*shape, dtype=torch.float32):
    return nn.Parameter(torch.randn(*shape).to(dtype))


def test_parameters_that_cannot_be_had():
    refused(ValueError, "not contiguous", lambda: polar.Muon([nn.Parameter(torch.randn(6, 4).T)]))
    refused(TypeError, "float16", lambda: polar.Muon([parameter(4, 4, dtype=torch.float16)]))
    refused(TypeError, "complex64",
            lambda: polar.Muon([nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))]))
    refused(TypeError, "sparse",
            lambda: polar.Muon([{"params": [nn.Parameter(torch.eye(4).to_sparse())], "route": "matrix"}]))
    refused(ValueError, "no memory", lambda: polar.Muon([nn.Parameter(torch.empty(4, 4, device="meta"))]))
    refused(TypeError, "tensors", lambda: polar.Muon(["w"]))
    refused(TypeError, "one tensor", lambda: polar.Muon(parameter(4, 4)))
    refused(ValueError, "empty", lambda: polar.Muon([]))
    refused(ValueError, "leaf", lambda: polar.Muon([parameter(4, 4) * 2]))
    w = parameter(4, 4)
    refused(ValueError, "one parameter", lambda: polar.Muon([w, w]))
    base = torch.randn(8, 4)
    refused(polar.PolarError, "same weights",
            lambda: polar.Muon([nn.Parameter(base[:6]), nn.Parameter(base[4:])]))


def test_numbers_that_make_no_sense():
    w = [parameter(4, 4)]
    refused(polar.PolarError, "lr", lambda: polar.Muon(w, lr=-1.0))
    refused(polar.PolarError, "beta1", lambda: polar.PolarAdamW(w, betas=(1.5, 0.9)))
    refused(polar.PolarError, "weight_decay", lambda: polar.AdamW(w, weight_decay=float("nan")))
    refused(polar.PolarError, "steps", lambda: polar.Muon(w, ns_steps=99, ns_coefficients=None))
    refused(ValueError, "99", lambda: polar.Muon(w, ns_steps=99))
    refused(ValueError, "three numbers", lambda: polar.Muon(w, ns_coefficients=(1, 2)))
    refused(polar.PolarError, "scale convention", lambda: polar.Muon(w, adjust_lr_fn="orignal"))
    refused(polar.PolarError, "ns_fp33", lambda: polar.Muon(w, map="ns_fp33"))
    refused(ValueError, "no rule 'muonn'", lambda: polar.Optimizer(w, rule="muonn"))
    refused(ValueError, "amsgrad", lambda: polar.AdamW(w, amsgrad=True))
    refused(ValueError, "divided", lambda: polar.Muon([("a", parameter(4, 4))], blocks={"a": 3}))
    opt = polar.Muon(w)
    w[0].grad = torch.randn(4, 4)
    before = w[0].detach().clone()
    opt.param_groups[0]["lr"] = float("nan")
    refused(polar.PolarError, "lr", opt.step)
    opt.param_groups[0]["lr"] = 0.1
    assert torch.equal(before, w[0].detach())
    opt.step()


@pytest.mark.parametrize("words, given", [
    ("lr is '0.1'", {"lr": "0.1"}), ("lr is None", {"lr": None}), ("lr is tensor", {"lr": torch.ones(2)}),
    ("betas is 0.9", {"betas": 0.9}), ("betas is (0.9,)", {"betas": (0.9, )}),
    ("betas is (0.9, 0.99, 0.999)", {"betas": (0.9, 0.99, 0.999)}),
    ("aux_betas is None", {"aux_betas": None}),
    ("a number of betas is 'x'", {"betas": ("x", 0.9)}), ("weight_decay is []", {"weight_decay": []}),
    ("ns_steps is 2.5", {"ns_steps": 2.5}), ("ns_steps is inf", {"ns_steps": float("inf")}),
    ("three numbers", {"ns_coefficients": ()}),
    ("three numbers", {"ns_coefficients": 3}), ("map is None", {"map": None}),
    ("adjust_lr_fn is 3", {"adjust_lr_fn": 3}),
])
def test_arguments_of_another_kind(words, given):
    with pytest.raises((TypeError, ValueError)) as e:
        polar.PolarAdamW([parameter(4, 4)], **given)
    assert words in str(e.value), str(e.value)


def test_parameters_of_another_kind():
    refused(TypeError, "got NoneType", lambda: polar.Muon(None))
    refused(TypeError, "got int", lambda: polar.Muon(3))
    refused(TypeError, "got dict", lambda: polar.Muon({"params": [parameter(4, 4)]}))
    refused(ValueError, "ReLU has no parameters", lambda: polar.Muon(nn.ReLU()))
    refused(ValueError, "no parameter has an entry", lambda: polar.AdamW([parameter(0, 4)]))
    refused(TypeError, "['lr']", lambda: polar.AdamW([{"lr": 1.0}]))
    refused(TypeError, "'params'", lambda: polar.AdamW([{"params": [parameter(4)]}, parameter(4)]))


def test_groups_that_are_refused_leave_nothing():
    w, late = parameter(4, 4), parameter(4, 4)
    opt = polar.Muon([w])
    for p in (w, late):
        p.grad = torch.randn(4, 4)
    opt.step()
    for error, words, group in ((polar.PolarError, "lr of group 1", {"params": [late], "lr": -1.0}),
                                (TypeError, "'params'", {"lr": 1.0}), (TypeError, "list", [late]),
                                (ValueError, "leaf", {"params": [late * 2]})):
        refused(error, words, lambda: opt.add_param_group(group))
        assert len(opt.param_groups) == len(opt.stats()) == len(opt.routes()) == 1
    before = late.detach().clone()
    opt.step()
    assert torch.equal(late.detach(), before) and opt.stats()[0]["steps"] == 2


def test_patterns_that_fit_nothing():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for given in ({"blocks": {"*.qkv": 2}}, {"views": {"qkv": [(2, 2)]}}, {"adamw": "router.*"},
                  {"matrix": ["0.weight", "block.*"]}):
        with pytest.warns(UserWarning, match="no parameter fits"):
            polar.Muon(model, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polar.Muon(model, blocks={"0.weight": 2}, adamw=["1.weight"])


def test_parameters_of_no_size_and_of_one():
    """An empty parameter has no state and no part in a step; a number is a vector of one."""
    w, empty, one = parameter(4, 4), parameter(0, 4), nn.Parameter(torch.tensor(2.0))
    opt = polar.Muon([{"params": [w, empty], "route": "matrix"}, {"params": [one], "route": "adamw"}])
    for p in (w, empty, one):
        p.grad = torch.ones_like(p)
    opt.step()
    state = opt.state_dict()
    assert sorted(state["state"]) == [0, 2] and state["state"][2]["exp_avg"].shape == ()
    opt.load_state_dict(state)
    opt.step()
    assert float(one.detach()) < 2.0 and opt.stats()[1]["steps"] == 2


def test_sparse_gradients():
    m = nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 4))
    opt = polar.Muon(m)
    m(torch.arange(4)).sum().backward()
    before = [p.detach().clone() for p in m.parameters()]
    refused(TypeError, "'0.weight'", opt.step)
    assert all(torch.equal(p.detach(), q) for p, q in zip(m.parameters(), before))
    m[0].weight.grad = m[0].weight.grad.to_dense()
    opt.step()


def test_wrong_shapes():
    w = parameter(4, 6)
    opt = polar.Muon([w])
    w.grad = torch.randn(4, 6)
    opt.step()
    w.data = torch.randn(6, 4)
    refused(ValueError, "(4, 6)", opt.step)
    w.grad = torch.randn(6, 4)
    refused(ValueError, "make a new one", opt.step)    # the state is of the old shape


def test_a_parameter_freed_while_in_use():
    w, v = parameter(4, 6), parameter(4, 6)
    opt = polar.Muon([w, v])
    for p in (w, v):
        p.grad = torch.randn(4, 6)
    opt.step()
    saved = v.detach().clone()
    w.untyped_storage().resize_(0)
    refused((polar.PolarError, ValueError), "memory", opt.step)
    assert torch.equal(v.detach(), saved)
    w.untyped_storage().resize_(4 * 6 * 4)
    opt.step()


def test_the_model_goes_before_the_optimiser():
    opt = polar.AdamW(make())
    import gc
    gc.collect()
    opt.step()
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    opt.step()


def test_after_a_fork():
    """The child goes on with what the parent had; the parent does not notice. As DataLoader's workers do it.
    """
    m = make(device="cpu")
    opt = polar.PolarAdamW(m)
    train(m, opt, 2, "cpu")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = b"failed"
        try:
            train(m, opt, 2, "cpu", first=2)
            code = str(sum(float(p.detach().double().sum()) for p in m.parameters())).encode()
        finally:
            os.write(write, code)
            os._exit(0)
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    train(m, opt, 2, "cpu", first=2)
    assert os.read(read, 100).decode() == str(sum(float(p.detach().double().sum()) for p in m.parameters()))


def test_beside_workers():
    data = torch.utils.data.TensorDataset(torch.randn(16, 4))
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    opt = polar.Muon(m)
    seen = 0
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
        m.zero_grad()
        m(x).square().sum().backward()
        opt.step()
        seen += 1
    assert seen == 4


ENDINGS = {
    "as it is": "",
    "optimiser last": "import builtins; builtins.kept = opt; del m",
    "model last": "import builtins; builtins.kept = m; del opt",
    "in a cycle": "opt.me = opt; m.opt = opt; del opt, m",
    "state alone": "kept = opt.state_dict(); del opt, m",
    "at exit":
    "import atexit; atexit.register(lambda: opt.step()); atexit.register(lambda: "
    "print(opt.state_dict()['param_groups'][0]['lr']))",
    "modules gone":
    "import sys; sys.modules.pop('polar.torch_optim'); sys.modules.pop('polar._library'); "
    "sys.modules.pop('torch')",
    "in a thread":
    "import threading; threading.Thread(target=lambda: [opt.step() for _ in range(200)], "
    "daemon=True).start()",
    "an exception": "raise SystemExit(0)",
}


def test_the_interpreter_ends():
    """Every ending in a child of one process that has only imported torch: the whole of Python's end, in any
    order.
    """
    script = textwrap.dedent("""
        import os, sys, torch, polar
        import polar.torch_optim, torch._dynamo    # which torch imports with the first optimiser, in seconds
        ending = None
        for name, code in ENDINGS.items():
            pid = os.fork()
            if pid == 0:
                ending = code
                break
            status = os.waitpid(pid, 0)[1]
            print(name, status, flush=True)
        if ending is not None:
            m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
            opt = polar.PolarAdamW(m)
            m(torch.randn(2, 8)).sum().backward()
            opt.step()
            exec(ending)
        """)
    done = subprocess.run([sys.executable, "-c", f"ENDINGS = {ENDINGS!r}\n{script}"],
                          capture_output=True,
                          text=True,
                          timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert [line for line in done.stdout.splitlines()
            if line.rsplit(" ", 1)[0] in ENDINGS] == [f"{name} 0" for name in ENDINGS], done.stdout


def test_without_torch():
    """import polar wants neither torch nor numpy, and says so where one of them is needed."""
    script = textwrap.dedent("""
        import sys
        sys.modules["torch"] = sys.modules["numpy"] = None
        import polar
        assert "cpu" in polar.backends()
        try:
            polar.Muon
        except ImportError as e:
            print(e)
        """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "torch" in done.stdout, done.stderr


def test_errors_have_their_status():
    with pytest.raises(polar.PolarError) as e:
        polar.Muon([parameter(4, 4)], lr=-1.0)
    assert e.value.status == "bad argument" and loss_of is not None
