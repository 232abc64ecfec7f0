"""deit_timm.py -- timm's DeiT-Tiny in a plain loop with mixed precision, PolarAdamW in place of AdamW.

    pip install . torch torchvision timm
    python examples/python/deit_timm.py --data IMAGENET/train        # a folder of folders of pictures
    python examples/python/deit_timm.py                              # noise with labels, to see it run

qkv is one Linear in timm: `blocks=` has its three parts mapped each by itself. The same loop serves
torch.optim.AdamW.
"""
import argparse
import time

import timm
import torch
from torch.nn import functional as F

import polar


def batches(a):
    if not a.data:
        g = torch.Generator().manual_seed(0)
        x, y = torch.randn(a.batch, 3, 224, 224, generator=g), torch.randint(a.classes, (a.batch, ),
                                                                             generator=g)
        while True:
            yield x.to(a.device), y.to(a.device)
    from torchvision import datasets, transforms

    view = transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    ])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(a.data, view),
                                         a.batch,
                                         shuffle=True,
                                         num_workers=8,
                                         drop_last=True,
                                         pin_memory=True)
    while True:
        for x, y in loader:
            yield x.to(a.device, non_blocking=True), y.to(a.device, non_blocking=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data")
    p.add_argument("--classes", type=int, default=1000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    model = timm.create_model("deit_tiny_patch16_224", num_classes=a.classes).to(a.device)
    opt = polar.PolarAdamW(model,
                           lr=5e-3,
                           aux_lr=5e-4,
                           weight_decay=0.05,
                           aux_weight_decay=0.05,
                           blocks={"*.attn.qkv.weight": 3})
    print(opt.routes())
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, [g["lr"] for g in opt.param_groups],
                                                   total_steps=a.steps,
                                                   cycle_momentum=False)
    scaler = torch.amp.GradScaler(a.device, enabled=a.device == "cuda")
    start, source = time.perf_counter(), batches(a)
    for t in range(a.steps):
        x, y = next(source)
        opt.zero_grad()
        with torch.autocast(a.device, torch.float16 if a.device == "cuda" else torch.bfloat16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(opt)    # an overflow leaves weights, moments and counts as they are
        scaler.update()
        schedule.step()
        if t % 5 == 0 or t == a.steps - 1:
            print(f"step {t:4d}  loss {float(loss.detach()):.3f}  {time.perf_counter() - start:.1f} s")
    made = opt.stats()
    print(f"{made[0]['steps']} steps, {opt.skipped} left out, {made[0]['maps']} maps of {made[0]['name']}")


if __name__ == "__main__":
    main()
