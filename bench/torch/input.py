"""input.py -- the torchvision twin of `polar bench input`: JPEG files to normalised (3, 224, 224) floats on
one core, CPU time of one thread.

    python bench/torch/input.py --data DIR        # DIR holds train/ and val/, one sub-folder per class
    # ... and `polar bench input` in turn with it, round by round: ratios
    python bench/torch/input.py --data DIR --pack SET.pack --polar ./polar

Two ways of torchvision: "PIL", the one of its training references and of DeiT (Image.open, convert,
transforms v1), and "tensor", the fastest it has on a CPU (torchvision.io.decode_jpeg to uint8 tensors,
transforms v2, antialiased); grey, CMYK and other files than JPEG go through PIL in both. The deit row is
timm's create_transform (RandAugment rand-m9-mstd0.5-inc1, erasing 0.25, bicubic). Prints one JSON object per
row: the median over samples of `pictures` pictures each, one thread.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
import torchvision
from PIL import Image
from torchvision import io, transforms
from torchvision.transforms import InterpolationMode, v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def files(folder):
    return sorted(os.path.join(d, f) for d, _, fs in os.walk(folder) for f in fs)


def pil_open(path):
    with open(path, "rb") as f:
        return Image.open(f).convert("RGB")


def tensor_open(path):
    try:
        return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)
    except RuntimeError:
        return v2.functional.pil_to_tensor(pil_open(path))


def chains(size):
    tail = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    v2_tail = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    side = size * 256 // 224
    rows = [
        ("train, minimal", "PIL", pil_open,
         transforms.Compose([transforms.RandomResizedCrop(size),
                             transforms.RandomHorizontalFlip()] + tail)),
        ("train, minimal", "tensor", tensor_open,
         v2.Compose([v2.RandomResizedCrop(size, antialias=True),
                     v2.RandomHorizontalFlip()] + v2_tail)),
        ("test", "PIL", pil_open,
         transforms.Compose([transforms.Resize(side), transforms.CenterCrop(size)] + tail)),
        ("test", "tensor", tensor_open,
         v2.Compose([v2.Resize(side, antialias=True), v2.CenterCrop(size)] + v2_tail)),
    ]
    try:
        from timm.data import create_transform
        deit = create_transform(size,
                                is_training=True,
                                auto_augment="rand-m9-mstd0.5-inc1",
                                interpolation="bicubic",
                                re_prob=0.25,
                                re_mode="pixel",
                                re_count=1)
        rows.insert(2, ("train, deit", "PIL, timm", pil_open, deit))
    except ImportError:
        pass
    return rows


def sample(read, transform, paths, pictures):
    step = max(1, len(paths) // pictures)
    t = time.thread_time()
    for i in range(pictures):
        x = transform(read(paths[i * step % len(paths)]))
    t = time.thread_time() - t
    assert x.dtype == torch.float32 and x.shape[0] == 3
    return t / pictures


def ours(polar, sets, size):
    args = [polar, "bench", "input", "--size",
            str(size), "--format", "json"] + [a for s in sets for a in ("--data", s)]
    return json.loads(
        subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="a folder with train/ and val/")
    p.add_argument("--pack", help="the pack of the same folder, for polar")
    p.add_argument("--polar", help="the program polar: timed between the rounds")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--samples", type=int, default=5, help="of a row in a round")
    p.add_argument("--pictures", type=int, default=32, help="of a sample")
    a = p.parse_args()
    torch.set_num_threads(1)
    train = files(os.path.join(a.data, "train"))
    test = files(
        os.path.join(a.data, next(d for d in ("val", "test") if os.path.isdir(os.path.join(a.data, d)))))
    rows, times, polar = chains(a.size), {}, {}
    for r in range(a.rounds + 1):    # the first is not counted
        for what, way, read, transform in rows:
            for _ in range(a.samples if r else 1):
                t = sample(read, transform, test if what == "test" else train, a.pictures)
                if r:
                    times.setdefault((what, way), []).append(t)
        if a.polar and r:
            for row in ours(a.polar, [a.data] + ([a.pack] if a.pack else []), a.size):
                polar.setdefault((row["what"], row["set"]), []).append(row["ms"] / 1e3)
    versions = {
        "torch": torch.__version__, "torchvision": torchvision.__version__, "pillow": Image.__version__
    }
    for (what, way), t in times.items():
        print(json.dumps({
            "what": what, "way": way, "images_per_s": round(1 / statistics.median(t), 1), "ms":
            round(1e3 * statistics.median(t), 3), **versions
        }),
              flush=True)
    for (what, where), t in polar.items():
        row = {
            "what": what, "way": "polar", "set": where, "images_per_s": round(1 / statistics.median(t), 1),
            "ms": round(1e3 * statistics.median(t), 3)
        }
        for (other, way), o in times.items():
            if other == what:
                row["times " + way] = round(statistics.median(o) / statistics.median(t), 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
