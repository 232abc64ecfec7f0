"""test_views.py -- matrices within a parameter (`views=`): the bits of the same matrices as parameters.
"""
import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn    # noqa: E402

import polar    # noqa: E402

OPTIONS = dict(lr=0.02, aux_lr=0.01, aux_weight_decay=0.1)


def index_of(view):
    """The entries of (offset, rows, cols, ld) in a flat parameter."""
    at, rows, cols, ld = view
    return torch.cat([torch.arange(at + i * ld, at + i * ld + cols) for i in range(rows)])


class Pair:
    """A flat parameter with views, and what they show as parameters of their own."""

    def __init__(self, size, views, dtype=torch.float32, rule="polaradamw", shape=None, **options):
        generator = torch.Generator().manual_seed(1)
        self.index = [index_of(v) for v in views]
        covered = torch.zeros(size, dtype=torch.bool)
        for i in self.index:
            covered[i] = True
        if not covered.all():
            self.index.append((~covered).nonzero().flatten())
        flat = torch.randn(size, generator=generator).to(dtype)
        self.whole = nn.Parameter(flat.clone().view(shape or (size, )))
        self.apart = [
            nn.Parameter(flat[i].view(v[1:3] if v else (-1, )).clone())
            for i, v in zip(self.index, list(views) + [None])
        ]
        self.a = polar.Optimizer([("w", self.whole)], rule, views={"w": views}, **{**OPTIONS, **options})
        named = [(f"w{k}", p) for k, p in enumerate(self.apart)]
        groups = [{"params": named[:len(views)], "route": "matrix"}]
        if len(named) > len(views):
            groups.append({"params": named[len(views):], "route": "adamw", "lr": 0.01, "weight_decay": 0.1})
        self.b = polar.Optimizer(groups, rule, **{**OPTIONS, **options})

    def step(self, t, poison=None):
        g = torch.randn(self.whole.numel(), generator=torch.Generator().manual_seed(100 + t))
        if poison is not None:
            g[poison] = float("inf")
        g = g.to(self.whole.dtype)
        self.whole.grad = g.view(self.whole.shape)
        for p, i in zip(self.apart, self.index):
            p.grad = g[i].view(p.shape)
        self.a.step()
        self.b.step()

    def same(self):
        return all(torch.equal(self.whole.detach().flatten()[i], p.detach().flatten())
                   for p, i in zip(self.apart, self.index))


FLAT = (100, [(0, 6, 4, 4), (24, 6, 4, 4), (50, 3, 8, 8), (80, 5, 3, 3)])
HEADS = (180, [(0, 12, 5, 15), (5, 12, 5, 15), (10, 12, 5, 15)])


@pytest.mark.parametrize("rule", ["polaradamw", "muon", "normuon", "adamuon", "muonh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", [FLAT, HEADS], ids=["flat", "heads"])
def test_as_apart(rule, dtype, case):
    pair = Pair(*case, dtype=dtype, rule=rule, shape=None if case is FLAT else (12, 15))
    before = pair.whole.detach().clone()
    for t in range(4):
        pair.step(t)
        assert pair.same()
    assert not torch.equal(before, pair.whole.detach())


def test_schedules_move_the_rest_too():
    pair = Pair(*FLAT)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (pair.a, pair.b)]
    for t in range(3):
        pair.step(t)
        for s in schedulers:
            s.step()
    assert pair.same()
    rest = pair.whole.detach().clone()[95:]
    pair.a.param_groups[0]["lr"] = pair.b.param_groups[0]["lr"] = pair.b.param_groups[1]["lr"] = 0.0
    pair.step(3)
    assert pair.same() and torch.equal(rest, pair.whole.detach()[95:])


@pytest.mark.parametrize("poison", [30, 99], ids=["in a block", "in the rest"])
def test_steps_left_out(poison):
    pair = Pair(*FLAT, skip_nonfinite=True)
    pair.step(0)
    before = pair.whole.detach().clone()
    pair.step(1, poison)
    assert torch.equal(before, pair.whole.detach()) and pair.same()
    pair.whole.grad = None
    pair.a.step()
    for t in range(2, 5):
        pair.step(t)
    assert pair.same() and pair.a.skipped == 1


@pytest.mark.parametrize("rule", ["polaradamw", "normuon"])
def test_state(rule):
    pair, through = Pair(*FLAT, dtype=torch.bfloat16, rule=rule), Pair(*FLAT, dtype=torch.bfloat16, rule=rule)
    for t in range(5):
        through.step(t)
    for t in range(3):
        pair.step(t)
    state = copy.deepcopy(pair.a.state_dict())
    entry = state["state"][0]
    moment = "exp_avg" if rule == "polaradamw" else "momentum_buffer"
    assert entry[moment].shape == (100, ) and entry["master"].shape == (100, ) and int(entry["step"]) == 3
    apart = pair.b.state_dict()["state"]
    for k, i in enumerate(pair.index):
        key = moment if moment in apart[k] else "exp_avg"
        assert torch.equal(entry[moment][i], apart[k][key].flatten())
    if rule == "normuon":
        assert torch.equal(entry["post"], torch.cat([apart[k]["post"].flatten() for k in range(4)]))
    again = Pair(*FLAT, dtype=torch.bfloat16, rule=rule)
    again.whole.data.copy_(pair.whole.data)
    again.a.load_state_dict(state)
    for t in range(3, 5):
        again.step(t)
    assert torch.equal(again.whole, through.whole)


@pytest.mark.parametrize("rule", ["adamuon", "normuon", "mousse"])
def test_state_of_each_matrix(rule):
    """What a rule keeps of every matrix goes on, too, of heads within a matrix."""
    through, first, second = (Pair(*HEADS, rule=rule, shape=(12, 15)) for _ in range(3))
    for t in range(4):
        through.step(t)
    for t in range(2):
        first.step(t)
    second.whole.data.copy_(first.whole.data)
    second.a.load_state_dict(copy.deepcopy(first.a.state_dict()))
    for t in range(2, 4):
        second.step(t)
    assert torch.equal(second.whole, through.whole)


WRONG = [
    ([(4, 6)], "make up its 30 entries"),
    ([(4, 6, 1, 1, 1)], "neither"),
    ([], "make up"),
    ([(0, 4, 6), (23, 3, 2)], "share element 23"),
    ([(28, 3, 2)], "30 elements"),
    ([(0, 0, 5)], "no entries"),
    ([(0, 2, 5, 4)], "apart"),
    ([(-1, 2, 5)], "30 elements"),
]


def test_wrong_views():
    p = nn.Parameter(torch.zeros(30))
    for views, words in WRONG:
        with pytest.raises((ValueError, polar.PolarError), match=words):
            polar.Muon([("w", p)], views={"w": views})
    with pytest.raises(TypeError):
        polar.Muon([("w", p)], views={"w": [(2.5, 4)]})
    routes = str(polar.Muon([("w", p)], views={"w": [(6, 3, 4), (18, 3, 4)]}).routes())
    assert "2 of 3x4, 6 by AdamW" in routes


def test_e3nn():
    """Layers of e3nn: every path's matrix mapped by itself, without being asked."""
    o3 = pytest.importorskip("e3nn.o3", reason="e3nn is not here")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = o3.Linear("8x0e + 4x1o", "6x0e + 5x1o", biases=True)
            self.square = o3.FullyConnectedTensorProduct("6x0e + 5x1o", "6x0e + 5x1o", "4x0e + 3x1o")
            # one weight a channel, and a matrix
            self.each = o3.TensorProduct("4x0e + 3x1o", "4x0e", "4x0e + 3x1o",
                                         [(0, 0, 0, "uuu", True), (1, 0, 1, "uvu", True)])
            self.radial = nn.Linear(3, 7)

        def forward(self, x):
            h = self.mix(x)
            y = self.square(h, h)
            return self.each(y, y[..., :4])

    torch.manual_seed(0)
    model = Model()
    opt = polar.Muon(model, map="exact", lr=0.1, weight_decay=0.0, adjust_lr_fn="none", aux_lr=0.01,
                     aux_weight_decay=0.0)
    table = {r.name: r for r in opt.routes()}
    assert [v[:3] for v in table["mix.weight"].views] == [(0, 8, 6), (48, 4, 5)]
    assert table["mix.bias"].route == "adamw"
    paths = [tuple(i.path_shape) for i in model.square.instructions]
    assert [v[1:3] for v in table["square.weight"].views] == [(a * b, c) for a, b, c in paths]
    assert [v[:3] for v in table["each.weight"].views] == [(4, 3, 4)] and table["each.weight"].rest == 4
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    x = o3.Irreps("8x0e + 4x1o").randn(16, -1)
    model(x).square().sum().backward()
    opt.step()
    for name in ("mix.weight", "square.weight", "each.weight"):
        step = (before[name] - dict(model.named_parameters())[name].detach()) / 0.1
        for at, rows, cols, _ in table[name].views:
            s = torch.linalg.svdvals(step[at:at + rows * cols].view(rows, cols).double())
            assert torch.allclose(s, torch.ones_like(s), atol=1e-4)    # float's roundings of the weights
    step = (before["each.weight"] - model.each.weight.detach())[:4] / 0.01
    assert torch.allclose(step.abs(), torch.ones(4), atol=1e-3)    # AdamW's first step
