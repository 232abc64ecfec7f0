#!/usr/bin/env python3
# compare_pillow.py -- every picture of a folder as polar decodes it against Pillow's convert("RGB"); fails if
# a pixel differs.
#
#     ./polar data pack DIR /tmp/all.pack --size 0 --skip-bad
#     python3 tools/compare_pillow.py DIR /tmp/all.pack
#
# Pictures that only one of the two can read are named and counted, not failures: docs/data.md says which
# there are. Needs numpy and Pillow; reads the pack by itself (src/data/set/image_pack.h has the layout), so
# that it checks that too.
import os
import sys

import numpy
from PIL import Image

# at, hash, name; width, height, label, reserved
HEADER, ENTRY = 256, numpy.dtype("<u8,<u8,<u8,<u4,<u4,<u4,<u4")
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def read_pack(path):
    """{name: pixels} of every picture."""
    data = numpy.memmap(path, numpy.uint8, "r")
    magic, numbers = bytes(data[:8]), data[8:HEADER].view("<u8")
    if magic != b"polarpk\0" or numbers[0] != 1:
        sys.exit(path + " is no pack of version 1")
    train, test, index_at, names_at = (int(numbers[i]) for i in (4, 5, 8, 9))
    index = data[index_at:names_at].view(ENTRY)
    names = bytes(data[names_at:])
    pictures = {}
    for at, _, name, width, height, _, _ in index[: train + test]:
        text = names[name : names.index(b"\0", name)]
        pictures[text] = data[at : at + 3 * int(width) * int(height)].reshape(height, width, 3)
    return pictures


def by_pillow(path):
    try:
        with open(path, "rb") as f:
            return numpy.array(Image.open(f).convert("RGB"))
    except Exception as e:
        return str(e).split("<")[0] or type(e).__name__


def names_below(root):
    for split in (b"train", b"val", b"test"):
        for at, _, files in os.walk(os.path.join(root, split), followlinks=True):
            for f in files:
                if not f.startswith(b"."):
                    yield os.path.relpath(os.path.join(at, f), root)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: compare_pillow.py DIR PACK")
    root, packed = os.fsencode(sys.argv[1]), read_pack(sys.argv[2])
    equal = differ = only_ours = only_pillow = neither = 0
    for name in sorted(names_below(root)):
        ours, theirs = packed.get(name), by_pillow(os.path.join(root, name))
        shown = os.fsdecode(name)
        if ours is None and isinstance(theirs, str):
            neither += name.lower().endswith(tuple(e.encode() for e in ENDINGS))
        elif ours is None:
            only_pillow += 1
            print("only Pillow reads %s" % ascii(shown))
        elif isinstance(theirs, str):
            only_ours += 1
            print("only polar reads %s (%s)" % (ascii(shown), theirs))
        elif ours.shape == theirs.shape and (ours == theirs).all():
            equal += 1
        else:
            differ += 1
            print("differs: %s" % ascii(shown))
    print("%d equal, %d differ, %d only polar reads, %d only Pillow, %d neither" %
          (equal, differ, only_ours, only_pillow, neither))
    sys.exit(1 if differ or not equal else 0)


if __name__ == "__main__":
    main()
