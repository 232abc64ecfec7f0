"""cifar_folder.py -- CIFAR-10 or CIFAR-100, the binary version, as a folder of pictures that polar reads:

    tar xzf cifar-100-binary.tar.gz
    python3 tools/cifar_folder.py cifar-100-binary cifar100    # cifar100/train/apple/00001.png ..
    polar data pack cifar100 cifar.pack --size 0

A picture is named by its place in its file, counted from 0. The folder must not be there.
"""
import os
import re
import struct
import sys
import zlib

SIDE = 32
PIXELS = 3 * SIDE * SIDE
# of a set: the file of names, bytes before a picture's pixels (the last is the label), files by part
SETS = (("fine_label_names.txt", 2, {"train": ["train.bin"], "test": ["test.bin"]}),
        ("batches.meta.txt", 1, {"train": [f"data_batch_{k}.bin" for k in range(1, 6)],
                                 "test": ["test_batch.bin"]}))


def png(planes):
    """The file of a picture whose red, green and blue lie one after the other."""
    lines = bytearray()
    for y in range(SIDE):
        lines.append(0)    # no filter
        row = slice(y * SIDE, (y + 1) * SIDE)
        for pixel in zip(*(planes[c * SIDE * SIDE:(c + 1) * SIDE * SIDE][row] for c in range(3))):
            lines += bytes(pixel)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(bytes(lines), 6)) + chunk(b"IEND", b""))


def records(path, before, classes):
    """(label, pixels) of every picture of a file."""
    with open(path, "rb") as f:
        data = f.read()
    size = before + PIXELS
    if not data or len(data) % size:
        sys.exit(f"cifar_folder: {path}: {len(data)} bytes are not pictures of {size} bytes each")
    for at in range(0, len(data), size):
        label = data[at + before - 1]
        if label >= classes:
            sys.exit(f"cifar_folder: {path}: a picture of class {label}, where there are {classes}")
        yield label, data[at + before:at + size]


def main(source, folder):
    found = [s for s in SETS if os.path.isfile(os.path.join(source, s[0]))]
    if not found:
        sys.exit(f"cifar_folder: {source} has neither {SETS[0][0]} nor {SETS[1][0]}; "
                 "the binary version of the set is wanted")
    names_file, before, parts = found[0]
    with open(os.path.join(source, names_file), encoding="ascii", errors="replace") as f:
        names = f.read().split()
    if len(set(names)) < len(names) or not all(re.fullmatch(r"\w[\w.-]*", name) for name in names):
        sys.exit(f"cifar_folder: {names_file}: a class has no name that a folder of its own can have")
    if os.path.exists(folder):
        sys.exit(f"cifar_folder: {folder} is there already")
    for part, files in parts.items():
        for name in names:
            os.makedirs(os.path.join(folder, part, name))
        count = 0
        for path in files:
            for label, planes in records(os.path.join(source, path), before, len(names)):
                with open(os.path.join(folder, part, names[label], f"{count:05}.png"), "wb") as f:
                    f.write(png(planes))
                count += 1
        print(f"{folder}/{part}: {count} pictures of {len(names)} classes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except OSError as e:
        sys.exit(f"cifar_folder: {e}")
