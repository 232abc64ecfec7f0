#!/usr/bin/env python3
"""gen_python.py -- writes python/polar/_abi.py, the ctypes of include/polar, from the headers.

    python3 tools/gen_python.py            # writes the file
    python3 tools/gen_python.py --check    # fails where the file is not what the headers say

The headers are regular (docs/architecture.md): enums and structs by typedef, one POLAR_API prototype per
function. What does not fit that pattern is an error here. tests/python/test_abi.py compares the result
with what the C compiler says of the same headers.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ["status.h", "tensor.h", "device.h", "comm.h", "map.h", "optim.h"]
OUT = ROOT / "python" / "polar" / "_abi.py"

SCALARS = {
    "void": None, "int": "c_int", "unsigned": "c_uint", "size_t": "c_size_t", "int64_t": "c_int64",
    "uint64_t": "c_uint64", "double": "c_double", "float": "c_float", "char": "c_char",
}


def plain(text):
    """The declarations alone: no comments, no preprocessor lines, of #if branches those that a C program has.
    """
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"\\\n", " ", text)
    out, keep = [], []
    for line in text.split("\n"):
        word = re.match(r"\s*#\s*(\w+)\s*(\S*)", line)
        if not word:
            if all(keep):
                out.append(line)
            continue
        directive, name = word.groups()
        if directive in ("ifdef", "ifndef", "if"):
            keep.append(directive == "ifndef" or name.startswith("defined(__GNUC__)"))
        elif directive == "else":
            keep[-1] = not keep[-1]
        elif directive == "endif":
            keep.pop()
    return "\n".join(out)


def constants(text):
    """#define NAME number, or a string."""
    found = re.findall(r'^#define\s+(POLAR_\w+)\s+(\d+|"[^"]*")\s*(?:/\*.*)?$', text, flags=re.M)
    return [(name, value) for name, value in found]


class Headers:
    def __init__(self):
        self.constants, self.enums, self.structs, self.opaque, self.functions = [], [], [], [], []
        self.callbacks = {}    # name: [result, arguments...]; they stand among the structs, without fields
        for name in HEADERS:
            text = (ROOT / "include" / "polar" / name).read_text()
            self.constants += constants(text)
            self.read(plain(text))

    def read(self, text):
        text = re.sub(r"static inline [^{;]*\{.*?\n\}", " ", text, flags=re.S)
        text = re.sub(r"\s+", " ", text)
        for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\} \1;", text):
            self.enums.append((name, self.enumerators(body)))
        self.opaque += re.findall(r"typedef struct (\w+) \1;", text)
        both = r"typedef struct (\w+) \{(.*?)\} \1;|typedef (\w+ ?\**) ?\(\*(\w+)\)\((.*?)\);"
        for name, body, result, callback, arguments in re.findall(both, text):    # in order: some hold others
            if name:
                self.structs.append((name, self.fields(body)))
            else:
                self.callbacks[callback] = [self.type_of(result)] + self.arguments(arguments)
                self.structs.append((callback, None))
        for prototype in re.findall(r"POLAR_API ([^;]*);", text):
            self.functions.append(self.function(prototype))

    @staticmethod
    def enumerators(body):
        value, out = -1, []
        for item in filter(None, (part.strip() for part in body.split(","))):
            name, _, given = (part.strip() for part in item.partition("="))
            value = int(given) if given else value + 1
            out.append((name, value))
        return out

    def type_of(self, text):
        """The ctypes expression of a C type such as `const polar_map_opts *const *`."""
        stars = text.count("*")
        name = re.sub(r"\bconst\b|\bstruct\b|\*", " ", text).split()
        if len(name) != 1:
            raise SystemExit(f"gen_python: cannot read the type '{text}'")
        name = name[0]
        if name == "char" and stars:
            base, stars = "c_char_p", stars - 1
        elif name == "void" and stars:
            base, stars = "c_void_p", stars - 1
        elif name in self.opaque:
            base, stars = "c_void_p", stars - 1
        elif name in SCALARS:
            base = SCALARS[name]
        elif any(name == known for known, _ in self.enums + self.structs):
            base = name
        else:
            raise SystemExit(f"gen_python: unknown type '{text}'")
        for _ in range(stars):
            base = f"POINTER({base})"
        return base

    def fields(self, body):
        out = []
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            first, *rest = [part.strip() for part in declaration.split(",")]
            kind, stars, name, size = re.fullmatch(r"(.*?)\s*(\**)\s*(\w+)((?:\[\w+\])?)", first).groups()
            for stars, name, size in [
                (stars, name, size)
            ] + [re.fullmatch(r"(\**)\s*(\w+)((?:\[\w+\])?)", part).groups() for part in rest]:
                ctype = self.type_of(kind + stars)
                out.append((name, f"{ctype} * {size[1:-1]}" if size else ctype))
        return out

    def function(self, prototype):
        kind, name, arguments = re.fullmatch(r"(.*?)(polar_\w+)\((.*)\)", prototype.strip()).groups()
        return name, self.type_of(kind), self.arguments(arguments)

    def arguments(self, text):
        out = []
        for argument in [] if text.strip() == "void" else text.split(","):
            ctype, _ = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", argument).groups()
            out.append(self.type_of(ctype))
        return out


def generate():
    h = Headers()
    lines = [
        '"""_abi.py -- the ctypes of include/polar. Written by tools/gen_python.py: change the headers, not '
        'this."""',
        "# fmt: off",
        "from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int64, "
        "c_size_t, c_uint, c_void_p",
        "", ""
    ]
    lines += [f"{name} = {value}" for name, value in h.constants]
    for name, members in h.enums:
        lines += ["", f"{name} = c_int"] + [f"{member} = {value}" for member, value in members]
    for name, fields in h.structs:
        if fields is None:
            lines += ["", "", f"{name} = CFUNCTYPE({', '.join(map(str, h.callbacks[name]))})"]
            continue
        lines += ["", "", f"class {name}(Structure):", "    _fields_ = ["]
        lines += [f'        ("{field}", {ctype}),' for field, ctype in fields] + ["    ]"]
    lines += ["", "", "FUNCTIONS = {    # name: (result, arguments)"]
    for name, result, arguments in h.functions:
        lines.append(f'    "{name}": ({result}, [{", ".join(arguments)}]),')
    lines += ["}", "", "ENUMS = {"]
    for name, members in h.enums:
        lines.append(f'    "{name}": [{", ".join(repr(member) for member, _ in members)}],')
    lines += ["}", f"STRUCTS = [{', '.join(name for name, fields in h.structs if fields)}]", ""]
    return "\n".join(lines)


def main():
    text = generate()
    if "--check" in sys.argv[1:]:
        if not OUT.exists() or OUT.read_text() != text:
            raise SystemExit(
                f"gen_python: {OUT.relative_to(ROOT)} is not what the headers say; run tools/gen_python.py")
        print(f"gen_python: {OUT.relative_to(ROOT)} agrees with the headers")
        return
    OUT.write_text(text)


if __name__ == "__main__":
    main()
