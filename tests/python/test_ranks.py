"""test_ranks.py -- one optimiser over the ranks of a process group (gloo, on the CPU): under
DistributedDataParallel and fully_shard the weights are those of an optimiser that steps everything by itself,
bit for bit; checkpoints by torch.distributed.checkpoint.

The ranks are processes of their own, since a process has one default group; each makes all its checks and
says what failed.
"""
import copy
import importlib
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

RANKS = [2, 3]
STEPS = 6


def has(module, name):
    """Whether this torch has it: fully_shard came with 2.6, whole checkpoints' state dicts with 2.2."""
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


FSDP2 = has("torch.distributed.fsdp", "fully_shard")
CHECKPOINTS = has("torch.distributed.checkpoint.state_dict", "get_state_dict")


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def whole(model):
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
            for p in model.parameters()]


def moved(model, before):
    return sum(not torch.equal(x, y) for x, y in zip(whole(model), before))


def batch_of(rank, step):
    x = torch.randint(0, 32, (4, 17), generator=torch.Generator().manual_seed(1000 * step + rank))
    return x[:, :-1], x[:, 1:]


def loss_of(model, rank, step):
    x, y = batch_of(rank, step)
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())


def fresh(dtype=torch.float32):
    from small_gpt import SmallGPT
    torch.manual_seed(0)
    return SmallGPT(dtype=dtype)


def optimisers():
    import polar
    def rule(name):
        return lambda params, **given: polar.Optimizer(params, rule=name, **given)

    # those by name keep moments of what their maps returned, of lines or of entries; a moment under a root;
    # Kronecker factors with their eigenvalues
    return {"polaradamw": polar.PolarAdamW, "muon": polar.Muon, "adamw": polar.AdamW,
            **{name: rule(name) for name in ("normuon", "adamuon", "muon2_paper", "kl_soap")}}


# ---- what every rank does
# -------------------------------------------------------------------------------------------------


def under_ddp(rank, name, dtype):
    """The owner steps and the others are told: as if every rank had stepped everything."""
    from torch.nn.parallel import DistributedDataParallel
    cls = optimisers()[name]
    shared, alone = DistributedDataParallel(fresh(dtype)), DistributedDataParallel(fresh(dtype))
    opt, reference = cls(shared, lr=0.02, process_group=dist.group.WORLD), cls(alone, lr=0.02)
    before = whole(shared)
    for step in range(STEPS):
        for model, o in ((shared, opt), (alone, reference)):
            o.zero_grad()
            loss_of(model, rank, step).backward()
            if step == 3:    # a parameter without a gradient stays as it is
                model.module.blocks[0].up.weight.grad = None
            o.step()
        assert same(whole(shared), whole(alone)), f"{name} {dtype}: step {step} differs"
    assert moved(shared, before) == len(before)
    a, b = opt.state_dict(), reference.state_dict()
    assert a["state"].keys() == b["state"].keys()
    for i, entry in b["state"].items():
        assert entry.keys() == a["state"][i].keys()
        for key, value in entry.items():
            assert torch.equal(value, a["state"][i][key]), f"{name}: {key} of {i}"
    held = sum(v.numel() for s in opt.state.values() for k, v in s.items() if k != "step")
    total = sum(v.numel() for s in b["state"].values() for k, v in s.items() if k != "step")
    assert held < 0.75 * total, f"this rank keeps {held} of {total} numbers of state"


def by_itself(rank, ranks):
    """reduce_gradients: the mean of the ranks' gradients, without DistributedDataParallel."""
    import polar
    model, replica = fresh(), fresh()
    opt, reference = polar.PolarAdamW(model, process_group=dist.group.WORLD,
                                      reduce_gradients=True), polar.PolarAdamW(replica)
    for step in range(4):
        opt.zero_grad()
        loss_of(model, rank, step).backward()
        leaves = []
        for r in range(ranks):
            replica.zero_grad()
            loss_of(replica, r, step).backward()
            leaves.append([p.grad.clone() for p in replica.parameters()])
        for k, p in enumerate(replica.parameters()):
            total = leaves[0][k] + leaves[1][k]
            total = total + leaves[2][k] if ranks == 3 else total
            p.grad = total * (1 / ranks)
        opt.step()
        reference.step()
        assert same(whole(model), whole(replica)), f"step {step} differs"


def sharded(dtype=torch.float32):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model, mesh = fresh(dtype), init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step_both(model, opt, replica, reference, rank, step, rewritten=False):
    """A step of the sharded model, and one of a whole copy with the same gradients."""
    opt.zero_grad()
    loss_of(model, rank, step).backward()
    for p, q in zip(model.parameters(), replica.parameters()):
        q.grad = p.grad.full_tensor()
    writes = opt._writes
    assert rewritten or writes.rows_now() == writes.rows, "training by itself counts as writing"
    opt.step()
    reference.step()


def under_fsdp(rank, name, dtype):
    cls = optimisers()[name]
    model, replica = sharded(dtype), fresh(dtype)
    opt, reference = cls(model, lr=0.02), cls(replica, lr=0.02)    # the group is the mesh's
    assert same(whole(model), whole(replica))
    for step in range(STEPS):
        step_both(model, opt, replica, reference, rank, step)
        assert same(whole(model), whole(replica)), f"{name} {dtype}: step {step} differs"
    # weights that somebody wrote: the owners' copies follow
    with torch.no_grad():
        for p, q in zip(model.parameters(), replica.parameters()):
            p.mul_(0.5)
            q.mul_(0.5)
    step_both(model, opt, replica, reference, rank, STEPS, rewritten=True)
    assert same(whole(model), whole(replica)), f"{name}: weights that were written are not taken"


def numbers(opt):
    """All tensors of the optimiser's state, in the order of its parameters and keys."""
    state = opt.state_dict()["state"]
    return [t.full_tensor() if hasattr(t, "full_tensor") else t
            for k in sorted(state) for _, t in sorted(state[k].items()) if torch.is_tensor(t)]


def checkpoints(rank, ranks, folder, name):
    """Saved by torch.distributed.checkpoint, loaded into another optimiser: on to the same bits."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    cls = optimisers()[name]
    for kind in ("fsdp", "ddp") if FSDP2 else ("ddp",):
        def both():
            if kind == "fsdp":
                model = sharded()
                return model, cls(model, lr=0.02)
            model = torch.nn.parallel.DistributedDataParallel(fresh())
            return model, cls(model, lr=0.02, process_group=dist.group.WORLD)

        def train(model, opt, steps):
            for step in steps:
                opt.zero_grad()
                # one batch for all, so that ranks of other numbers can go on
                loss_of(model, 0, step).backward()
                opt.step()

        model, opt = both()
        train(model, opt, range(4))
        weights, state = get_state_dict(model, opt)
        torch.save((whole(model), numbers(opt)), f"{folder}/{kind}{ranks}.{rank}.pt")
        dcp.save({"model": weights, "optim": state}, checkpoint_id=f"{folder}/{kind}{ranks}")
        opt.param_groups[0]["lr"] = 0.01
        train(model, opt, range(4, 8))
        wanted = whole(model)
        model, opt = both()
        weights, state = get_state_dict(model, opt)
        dcp.load({"model": weights, "optim": state}, checkpoint_id=f"{folder}/{kind}{ranks}")
        set_state_dict(model, opt, model_state_dict=weights, optim_state_dict=state)
        opt.param_groups[0]["lr"] = 0.01
        train(model, opt, range(4, 8))
        assert same(whole(model), wanted), f"{kind}: a loaded run goes on otherwise"
    if ranks == 2 and os.path.isdir(f"{folder}/ddp3"):    # saved by three, loaded by two
        model, opt = both()
        weights, state = get_state_dict(model, opt)
        dcp.load({"model": weights, "optim": state}, checkpoint_id=f"{folder}/ddp3")
        set_state_dict(model, opt, model_state_dict=weights, optim_state_dict=state)
        weights, state = torch.load(f"{folder}/ddp3.0.pt")
        assert same(whole(model), weights), "loaded by two ranks, three ranks' weights are others"
        assert same(numbers(opt), state), "loaded by two ranks, three ranks' state is another"
        train(model, opt, range(4, 5))    # and goes on, by gloo's average of two


def later_groups(rank, dtype):
    """Groups that come after steps were made: their state begins, that of the others goes on."""
    import polar
    shared, alone = fresh(dtype), fresh(dtype)
    opts = []
    for model, group in ((shared, dist.group.WORLD), (alone, None)):
        first = [(n, p) for n, p in model.named_parameters() if not n.startswith("blocks.1.")]
        opts.append(polar.PolarAdamW(first, lr=0.02, process_group=group))
    for step in range(4):
        if step == 2:
            for model, opt in zip((shared, alone), opts):
                opt.add_param_group({"params": [(n, p) for n, p in model.named_parameters()
                                                if n.startswith("blocks.1.")]})
        for model, opt in zip((shared, alone), opts):
            opt.zero_grad()
            loss_of(model, 0, step).backward()    # one batch for all: gradients are alike
            opt.step()
        assert same(whole(shared), whole(alone)), f"{dtype}: step {step} differs"


def refusals(rank, ranks):
    import polar
    model = fresh()
    if rank == 1:
        model.blocks[0].up.weight = torch.nn.Parameter(model.blocks[0].up.weight[:-1].detach().clone())
    try:
        polar.PolarAdamW(model, process_group=dist.group.WORLD)
    except polar.PolarError as e:
        assert "rank 1 has other parameters" in str(e), str(e)
    else:
        raise AssertionError("ranks with unlike parameters were taken")
    opt = polar.PolarAdamW(fresh(), process_group=dist.group.WORLD)
    try:
        copy.deepcopy(opt)
    except polar.PolarError as e:
        assert "state_dict" in str(e)
    else:
        raise AssertionError("a copy of a part of an optimiser was made")


def work(rank, ranks, folder):
    dist.init_process_group("gloo",
                            init_method=f"file://{folder}/rendezvous{ranks}",
                            rank=rank,
                            world_size=ranks)
    torch.set_num_threads(1)
    for name in optimisers() if ranks == 3 else ["polaradamw"]:
        under_ddp(rank, name, torch.float32)
        if FSDP2:
            under_fsdp(rank, name, torch.float32)
    if ranks == 2 and FSDP2:    # gloo of older ones has no bfloat16
        under_ddp(rank, "polaradamw", torch.bfloat16)
        under_fsdp(rank, "polaradamw", torch.bfloat16)
    by_itself(rank, ranks)
    for dtype in (torch.float32, torch.bfloat16) if ranks == 2 else ():
        later_groups(rank, dtype)
    if CHECKPOINTS:
        for name in ("polaradamw", "normuon", "adamuon"):
            os.makedirs(f"{folder}/{name}", exist_ok=True)
            checkpoints(rank, ranks, f"{folder}/{name}", name)
    refusals(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


# ---- what pytest does
# -----------------------------------------------------------------------------------------------------


def all_ranks(folder):
    """Three ranks, then two, which load what the three saved: forks of this process, which has imported what
    they need and nothing more.
    """
    import polar    # noqa: F401
    import torch._dynamo    # noqa: F401
    import torch.distributed.fsdp    # noqa: F401
    fork, failed = multiprocessing.get_context("fork"), []
    for ranks in sorted(RANKS, reverse=True):
        running = [fork.Process(target=work, args=(rank, ranks, folder)) for rank in range(ranks)]
        for process in running:
            process.start()
        for process in running:
            process.join(300)
        failed += [
            f"rank {rank} of {ranks}: {p.exitcode}" for rank, p in enumerate(running) if p.exitcode != 0
        ]
        for process in running:
            process.kill()
    sys.exit("; ".join(failed) or 0)


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo")
def test_ranks(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, __file__, str(tmp_path)],
                          cwd=here,
                          stderr=subprocess.PIPE,
                          text=True,
                          timeout=700)
    assert done.returncode == 0, done.stderr[-6000:]


if __name__ == "__main__":
    all_ranks(sys.argv[1])
