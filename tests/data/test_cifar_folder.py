"""test_cifar_folder.py -- tools/cifar_folder.py on sets made here: every pixel in its place, polar reads the
folder, sets that lie are refused. Plain Python.

    python3 tests/data/test_cifar_folder.py POLAR
"""
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
failed = 0


def test(what, good):
    global failed
    failed += not good
    print(f"{what:58} {'PASS' if good else 'FAIL'}")


def pixels(path):
    """Of a picture of 32 x 32 without filters: its bytes, red, green and blue of a pixel together."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(name + body)
        packed += body if name == b"IDAT" else b""
        at += 12 + size
    lines = zlib.decompress(packed)
    assert len(lines) == 32 * 97 and not any(lines[::97])
    return b"".join(lines[y * 97 + 1:y * 97 + 97] for y in range(32))


def made(folder, names_file, before, files):
    """A set of three classes; {(part, class, number): pixels as they should come out}"""
    rng, wanted = random.Random(7), {}
    folder.mkdir()
    (folder / names_file).write_text("apple\nbear\ncan\n\n")
    for part, paths in files.items():
        number = 0
        for path, count in paths:
            data = b""
            for _ in range(count):
                label, planes = number * 2 % 3, rng.randbytes(3072)
                data += bytes([200] * (before - 1) + [label]) + planes
                wanted[part, ("apple", "bear", "can")[label], number] = bytes(
                    planes[c * 1024 + i] for i in range(1024) for c in range(3))
                number += 1
            (folder / path).write_bytes(data)
    return wanted


def run(*args):
    return subprocess.run([sys.executable, str(ROOT / "tools/cifar_folder.py"), *map(str, args)],
                          capture_output=True, text=True, check=False)


def test_set(base, name, *shape):
    source, folder = base / f"{name}-binary", base / name
    wanted = made(source, *shape)
    test(f"{name}: made", run(source, folder).returncode == 0)
    got = {(p.parent.parent.name, p.parent.name, int(p.stem)): pixels(p) for p in folder.rglob("*.png")}
    test(f"{name}: {len(wanted)} pictures, every pixel", got == wanted and len(wanted) > 0)
    polar = subprocess.run([sys.argv[1], "data", "stat", str(folder), "--decode"], capture_output=True,
                           text=True, check=False)
    test(f"{name}: polar reads them", polar.returncode == 0 and "3 classes" in polar.stdout)
    again = run(source, folder)
    test(f"{name}: a folder that is there", again.returncode == 1 and "is there already" in again.stderr)


def test_lies(base):
    source = base / "cifar100-binary"
    whole = (source / "test.bin").read_bytes()
    for what, data, said in (("a file cut short", whole[:-1], "are not pictures"),
                             ("an empty file", b"", "are not pictures"),
                             ("a label too large", b"\0\x03" + whole[2:], "class 3, where there are 3")):
        (source / "test.bin").write_bytes(data)
        result = run(source, base / what.replace(" ", "_"))
        test(what, result.returncode == 1 and said in result.stderr)
    for what, names in (("a class named as a path", b"../apple\nbear\ncan\n"),
                        ("a class named twice", b"apple\nbear\napple\n"),
                        ("names that are no text", b"apple\nb\xff\0\ncan\n")):
        (source / "fine_label_names.txt").write_bytes(names)
        result = run(source, base / "out")
        test(what, result.returncode == 1 and "a class has no name" in result.stderr
             and not (base / "out").exists())
    result = run(base, base / "out")
    test("a folder without a set", result.returncode == 1 and "binary version" in result.stderr)


with tempfile.TemporaryDirectory() as top:
    test_set(pathlib.Path(top), "cifar100", "fine_label_names.txt", 2,
             {"train": [("train.bin", 20)], "test": [("test.bin", 7)]})
    test_set(pathlib.Path(top), "cifar10", "batches.meta.txt", 1,
             {"train": [(f"data_batch_{k}.bin", 4) for k in range(1, 6)], "test": [("test_batch.bin", 7)]})
    test_lies(pathlib.Path(top))
sys.exit(failed > 0)
