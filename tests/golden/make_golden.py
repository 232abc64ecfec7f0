"""make_golden.py -- makes the golden vectors of this folder from torch, timm, Pillow and scipy.

    pip install -r tests/golden/requirements.txt
    python tests/golden/make_golden.py OUT               # into the folder OUT
    python tests/golden/make_golden.py --compare OUT     # ... and compares with what lies here
    python tests/golden/make_golden.py --add OUT         # what lies here, and the rules and kinds it lacks

Double precision throughout, inputs exactly representable in float32, one thread, seed 1. What the files
hold is in README.md, their hashes in MANIFEST (`sha256sum *.json *.safetensors` made it). Another version
of torch or another CPU sums in another order and may draw an initial weight one ulp of float32 away; another
Pillow may resize differently (13.0 does where the width grows and the height shrinks). --compare therefore
allows 2^-23 of an array's norm, and 1 of 255 in a picture, and says how many arrays are the same to the bit.
"""
import argparse
import io
import json
import os
import random
import sys
import zlib

import numpy as np
import scipy.stats
import timm
import timm.data.auto_augment as aa
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer

import optim_reference as opt
import so3_reference as so3

SEED = 1
HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = [(8, 1), (8, 8), (8, 44), (4, 16), (16, 4), (33, 17), (64, 192), (192, 64)]
LARGE = [(64, 192), (192, 64)]    # of these only three rules' trajectories are kept
# drawn one after the other; a later rule has a seed of its own
FIRST = ("sgdm", "adamw", "muon", "polaradamw", "muon_v", "polar_ema")


def f32(t):
    return t.detach().to(torch.float32).contiguous()


def exact(*shape):
    """Normal doubles that float32 holds exactly."""
    return torch.randn(*shape, dtype=torch.float64).float().double()


def save(tensors, path):
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)


def maps_and_rules(out):
    """Polar maps of eight matrices; six steps of every rule."""
    T = {}
    for n, m in SHAPES:
        k = f"{n}x{m}"
        G = exact(n, m)
        T[f"map.{k}.in"] = f32(G)
        T[f"map.{k}.polar"] = opt.polar(G)
        T[f"map.{k}.ns5_fp64"] = opt.ns5(G)
        T[f"map.{k}.ns5_bf16_reference"] = f32(opt.ns5_bf16_reference(G))
        for rule in FIRST:
            path = six_steps(rule, n, m)
            if (n, m) not in LARGE or rule in ("adamw", "muon", "polaradamw"):
                T.update({f"traj.{k}.{rule}.{name}": v for name, v in path.items()})
    save(T | later_rules(T), f"{out}/optim.safetensors")
    T = load_file(f"{HERE}/so3.safetensors")
    save(T | so3_kinds(T), f"{out}/so3.safetensors")


def later_rules(T):
    """The trajectories that T lacks, of rules that came after the first six."""
    new = {}
    for rule in opt.RULES:
        if f"traj.8x8.{rule}.w0" not in T:
            torch.manual_seed(zlib.crc32(rule.encode()))
            for n, m in SHAPES:
                if (n, m) not in LARGE:
                    new |= {f"traj.{n}x{m}.{rule}.{name}": v for name, v in six_steps(rule, n, m).items()}
    return new


def six_steps(rule, n, m):
    """Step i at lr = 0.02 (i + 1) / 6, the rule's decay."""
    W = exact(n, m)
    state = dict(t=0, m=torch.zeros_like(W), v=torch.zeros_like(W))
    path = {"w0": f32(W)}
    for i in range(6):
        g = (torch.randn(n, m) * (10.0 ** (i % 3 - 1))).float().double()
        W = opt.step(rule, W, g, state, lr=0.02 * (i + 1) / 6, wd=opt.RULES[rule][4])
        path[f"g{i}"] = f32(g)
        if i in (0, 5):
            path[f"w{i + 1}"] = W.clone()
    if rule == "adamw":
        check_adamw(path)
    return path


def check_adamw(path):
    """The reference against torch's own AdamW."""
    p = torch.nn.Parameter(path["w0"].double().clone())
    o = torch.optim.AdamW([p], lr=0.1, weight_decay=0.05)
    for i in range(6):
        for group in o.param_groups:
            group["lr"] = 0.02 * (i + 1) / 6
        p.grad = path[f"g{i}"].double()
        o.step()
    assert (p.detach() - path["w6"]).abs().max() < 1e-12


def so3_set(name, h, points, batch, **kinds):
    """Predictions, loss and gradients of one SO(3) network; its invariance is checked on the way."""
    P = {k: v.requires_grad_(True) for k, v in so3.init(h, SEED, dtype=torch.float64, **kinds).items()}
    X = exact(batch, points, 3)
    y = so3.target(X)
    pred = so3.forward(P, X, h, **kinds)
    loss = ((pred - y) ** 2).mean()
    loss.backward()
    T = {f"{name}.x": f32(X), f"{name}.y": y, f"{name}.pred": pred.detach()}
    T[f"{name}.loss"] = loss.detach().reshape(1)
    for k, v in P.items():
        T[f"{name}.param.{k}"] = v.detach().clone()
        T[f"{name}.grad.{k}"] = torch.zeros_like(v) if v.grad is None else v.grad
    Q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    assert (so3.forward(P, X @ Q.T, h, **kinds) - pred).abs().max() < 1e-10
    return T


def so3_kinds(T):
    """The network's other messages, gate and readout, as far as T lacks them; each draws on its own."""
    state, more = torch.get_rng_state(), {}
    for kinds in (dict(message="shared"), dict(message="shared_bounded"), dict(message="kernel"),
                  dict(message="scalars_only"), dict(gate="linear"), dict(readout="scalars")):
        name = "_".join(kinds.values())
        if f"{name}.x" not in T:
            torch.manual_seed(zlib.crc32(name.encode()))
            more |= so3_set(name, 6, 9, 2, **kinds)
    torch.set_rng_state(state)
    return more


def so3_model(out):
    T = so3_set("h8", 8, 10, 3)
    T |= so3_set("h16", 16, 32, 2)
    save(T | so3_kinds(T), f"{out}/so3.safetensors")


VIT = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=10)


def vit(out):
    """A small vision transformer of timm: logits, gradients, eight full-batch steps of every rule."""
    cfg = VIT
    model = VisionTransformer(**cfg).double()
    for p in model.parameters():
        p.data = (p.data.float() + 0.02 * torch.randn_like(p.data.float())).double()
    X = torch.randn(6, 3, cfg["img_size"], cfg["img_size"]).double()
    y = torch.randint(0, cfg["num_classes"], (6,))
    first = {k: v.detach().clone() for k, v in model.state_dict().items()}
    logits = model(X)
    loss = torch.nn.functional.cross_entropy(logits, y)
    loss.backward()
    T = {"x": f32(X), "y": y.to(torch.int64), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for k, p in model.named_parameters():
        T["param." + k] = f32(p)
        T["grad." + k] = p.grad.clone()
    for rule in opt.RULES:
        T |= train(model, first, rule, X, y)
    save(T, f"{out}/vit.safetensors")
    json.dump(cfg, open(f"{out}/vit.json", "w"))
    tiny = timm.create_model("vit_tiny_patch16_224", num_classes=100, drop_path_rate=0.1)
    names = [[k, list(p.shape)] for k, p in tiny.named_parameters()]
    json.dump(names, open(f"{out}/vit_tiny_patch16_224_params.json", "w"), indent=0)


def train(model, first, rule, X, y):
    """Matrices under blocks. at the rule's lr and decay, the rest AdamW's."""
    model.load_state_dict(first)
    state = {k: dict(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p)) for k, p in model.named_parameters()}
    losses = []
    for _ in range(8):
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(X), y)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for k, p in model.named_parameters():
                matrix = p.ndim == 2 and k.startswith("blocks.")
                its = rule if matrix else "adamw"
                p.copy_(opt.step(its, p, p.grad, state[k], lr=opt.RULES[its][3], wd=opt.RULES[its][4]))
    last = model.state_dict()["blocks.0.attn.qkv.weight"].clone()
    return {f"train.{rule}.losses": torch.tensor(losses, dtype=torch.float64),
            f"train.{rule}.final.blocks.0.attn.qkv.weight": last}


AUGMENTATIONS = ("AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing",
                 "SolarizeAdd", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing",
                 "SharpnessIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
FILTERS = ((Image.BILINEAR, "bilinear"), (Image.BICUBIC, "bicubic"))


def pictures(out, rng):
    """timm's RandAugment operations at level 9, Pillow's crop and resize, a JPEG and what Pillow reads in it.
    """
    h, w = 80, 96
    yy, xx = np.mgrid[0:h, 0:w]
    base = np.stack([128 + 100 * np.sin(xx / 7) * np.cos(yy / 11), xx * 255 / w, yy * 255 / h], -1)
    img = Image.fromarray((base + rng.normal(0, 18, (h, w, 3))).clip(0, 255).astype(np.uint8))
    array = lambda picture: torch.from_numpy(np.array(picture))
    T, meta = {"image": array(img)}, {}
    for name in AUGMENTATIONS:
        for seed in (0, 1):
            random.seed(seed)
            level = aa.LEVEL_TO_ARG[name]
            args = level(9, {}) if level else ()
            for resample, filter_name in FILTERS:
                key = f"aug.{name}.{seed}.{filter_name}"
                T[key] = array(aa.NAME_TO_OP[name](img, *args, fillcolor=(124, 116, 104), resample=resample))
                meta[key] = [float(a) for a in args]
    whole = (0, 0, w, h)
    boxes = [((3, 5, 67, 61), (64, 64)), (whole, (32, 32)), ((10, 2, 40, 70), (64, 64)), (whole, (160, 160))]
    for i, (box, size) in enumerate(boxes):
        for resample, filter_name in FILTERS:
            key = f"resize.{i}.{filter_name}"
            T[key] = array(img.crop(box).resize(size, resample))
            meta[key] = list(box) + list(size)
    b = io.BytesIO()
    img.save(b, "JPEG", quality=88)
    T["jpeg.bytes"] = torch.from_numpy(np.frombuffer(b.getvalue(), np.uint8).copy())
    T["jpeg.decoded"] = array(Image.open(io.BytesIO(b.getvalue())).convert("RGB"))
    save(T, f"{out}/image.safetensors")
    json.dump(meta, open(f"{out}/image.json", "w"), indent=0)


def statistics(out, rng):
    """A paired t-test and a Wilcoxon test by scipy."""
    x = rng.normal(0.007, 0.001, 40)
    y = x + rng.normal(0.0004, 0.001, 40)
    r = scipy.stats.ttest_rel(y, x)
    json.dump(dict(a=y.tolist(), b=x.tolist(), t=float(r.statistic), p=float(r.pvalue),
                   ci95=[float(c) for c in r.confidence_interval(0.95)],
                   wilcoxon_p=float(scipy.stats.wilcoxon(y, x).pvalue)), open(f"{out}/stats.json", "w"))


def difference(a, b):
    """How far two arrays are apart, in units of what is allowed; 0 where they are equal."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if torch.equal(a, b):
        return 0.0
    if a.dtype == torch.uint8:
        return float((a.int() - b.int()).abs().max())
    return ((a.double() - b.double()).norm() / b.double().norm() / 2**-23).item()


def add(out):
    """The files that lie here with the rules and kinds they lack; each array that is there stays as it is."""
    T = load_file(f"{HERE}/optim.safetensors")
    save(T | later_rules(T), f"{out}/optim.safetensors")
    T = load_file(f"{HERE}/vit.safetensors")
    model = VisionTransformer(**VIT).double()
    first = {k.removeprefix("param."): v.double() for k, v in T.items() if k.startswith("param.")}
    for rule in opt.RULES:
        if f"train.{rule}.losses" not in T:
            T |= train(model, first, rule, T["x"].double(), T["y"])
    save(T, f"{out}/vit.safetensors")


def compare(out):
    bad = 0
    for name in sorted(f for f in os.listdir(HERE) if f.endswith((".json", ".safetensors"))):
        if name.endswith(".json"):
            equal = json.load(open(f"{out}/{name}")) == json.load(open(f"{HERE}/{name}"))
            worst, same, total = 0.0 if equal else float("inf"), int(equal), 1
        else:
            new, old = load_file(f"{out}/{name}"), load_file(f"{HERE}/{name}")
            d = [difference(new[k], old[k]) if k in new else float("inf") for k in old]
            d += [float("inf")] * len(new.keys() - old.keys())
            worst, same, total = max(d), d.count(0.0), len(d)
        print(
            f"{name:36} {same} of {total} arrays the same, largest difference {worst:.2g} of what is allowed")
        bad += worst > 1
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="a folder; made if missing")
    p.add_argument("--compare", action="store_true", help="with the files beside this program")
    p.add_argument("--add",
                   action="store_true",
                   help="optim and vit with the rules they lack, so3 with its kinds, nothing else made anew")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    if a.add:
        return add(a.out)
    maps_and_rules(a.out)
    so3_model(a.out)
    vit(a.out)
    pictures(a.out, rng)
    statistics(a.out, rng)
    return compare(a.out) if a.compare else 0


if __name__ == "__main__":
    sys.exit(main())
