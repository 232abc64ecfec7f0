"""test_abi.py -- the generated ctypes agree with the headers: the file is what the generator writes, and
sizes, offsets, enums and functions are what the C compiler says. Needs a C compiler and nothing of Python's
beside itself.

    python3 tests/python/test_abi.py LIBRARY
"""
import ctypes
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


abi = load(ROOT / "python" / "polar" / "_abi.py")
failed = 0


def test(what, got, wanted):
    global failed
    if got != wanted:
        failed += 1
        print(f"{what}: {got!r}, the headers have {wanted!r} FAIL")


def compile_and_run(text):
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        pathlib.Path(source).write_text(text)
        subprocess.run([os.environ.get("CC", "cc"), f"-I{ROOT / 'include'}", source, "-o", program],
                       check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def layouts():
    """Sizes, offsets, enums as the C compiler has them, line by line."""
    text = [
        '#include <stdio.h>', '#include "polar/polar.h"', "#define SIZE(s, f) sizeof(((s *)0)->f)",
        "int main(void) {"
    ]
    for s in abi.STRUCTS:
        text.append(f'printf("{s.__name__} %zu\\n", sizeof({s.__name__}));')
        for field, *_ in s._fields_:
            text.append(
                f'printf("{s.__name__}.{field} %zu %zu\\n", offsetof({s.__name__}, {field}), '
                f'SIZE({s.__name__}, {field}));'
            )
    for members in abi.ENUMS.values():
        text += [f'printf("{m} %d\\n", (int){m});' for m in members]
    text += [
        'printf("POLAR_MAX_DIMS %d\\n", POLAR_MAX_DIMS);',
        'printf("POLAR_MAX_STEPS %d\\n", POLAR_MAX_STEPS);', "return 0; }"
    ]
    out = dict(line.split(" ", 1) for line in compile_and_run("\n".join(text)).splitlines())
    for s in abi.STRUCTS:
        test(f"sizeof {s.__name__}", str(ctypes.sizeof(s)), out[s.__name__])
        for field, *_ in s._fields_:
            d = getattr(s, field)
            test(f"{s.__name__}.{field}", f"{d.offset} {d.size}", out[f"{s.__name__}.{field}"])
    for members in abi.ENUMS.values():
        for m in members:
            test(m, str(getattr(abi, m)), out[m])
    test("POLAR_MAX_DIMS", str(abi.POLAR_MAX_DIMS), out["POLAR_MAX_DIMS"])
    test("POLAR_MAX_STEPS", str(abi.POLAR_MAX_STEPS), out["POLAR_MAX_STEPS"])


def c_type(t):
    """The C type of a ctypes argument, for a prototype of our own. Handles and const are told to be void *.
    """
    if t is None:
        return "void"
    named = {
        ctypes.c_int: "int", ctypes.c_uint: "unsigned", ctypes.c_int64: "int64_t", ctypes.c_size_t: "size_t",
        ctypes.c_double: "double", ctypes.c_float: "float", ctypes.c_char_p: "p", ctypes.c_void_p: "p"
    }
    return named.get(t) or ("p" if hasattr(t, "contents") else t.__name__)


def signatures():
    """Every prototype again from the compiler's own reading of the headers (-E), told in the same coarse
    words.
    """
    text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", f"-I{ROOT / 'include'}", "-x", "c", "-"],
                          input='#include "polar/polar.h"\n',
                          check=True,
                          capture_output=True,
                          text=True).stdout
    text = re.sub(r"__attribute__\s*\(\(visibility\(\"default\"\)\)\)", "POLAR_API", text)
    enums = set(re.findall(r"typedef enum (\w+)", text))

    def coarse(t):
        t = re.sub(r"\bconst\b", " ", t)
        if "*" in t:
            return "p"
        name = t.split()[0]
        return "int" if name in enums else name

    found = {}
    for kind, name, arguments in re.findall(r"POLAR_API ([^;(]*?)(polar_\w+)\(([^;]*?)\);",
                                            " ".join(text.split())):
        arguments = [] if arguments.strip() == "void" else [
            coarse(re.sub(r"\w+\s*$", "", a.strip())) for a in arguments.split(",")
        ]
        found[name] = (coarse(kind), arguments)
    mine = {
        name: (c_type(result), [c_type(a) for a in arguments])
        for name, (result, arguments) in abi.FUNCTIONS.items()
    }
    test("functions", sorted(mine), sorted(found))
    for name in mine:
        test(name, mine[name], found.get(name))
    return len(mine)


def exported(path, count):
    lib = ctypes.CDLL(path)
    missing = [name for name in abi.FUNCTIONS if not hasattr(lib, name)]
    test(f"functions missing from {path}", missing, [])
    lib.polar_version.restype = ctypes.c_char_p
    test("version", abi.POLAR_VERSION, lib.polar_version().decode())
    text = (ROOT / "pyproject.toml").read_text()
    test("version of the package",
         re.search(r'^version = "(.*)"$', text, flags=re.M).group(1), abi.POLAR_VERSION)
    return count


def main():
    generated = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gen_python.py"), "--check"], capture_output=True, text=True)
    test("the generator", generated.returncode, 0)
    print((generated.stdout + generated.stderr).strip())
    layouts()
    count = exported(sys.argv[1], signatures())
    print(
        f"{len(abi.STRUCTS)} structs, {sum(map(len, abi.ENUMS.values()))} enumerators, {count} functions: "
        f"{failed} differ"
    )
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
