"""convert_cuda.py ROOT FROM TO -- a preprocessed .cu file (cc -E, with tests/cuda_host/include) as C++ that
runs on the host:

    kernel<<<grid, block, bytes, stream>>>(args)    cuda_host::launch_of(kernel, grid, block, ..)(args)
    (const void *)kernel                            cuda_host::address(kernel)
    extern __shared__ T name[];                     T *name = (T *)cuda_host::dynamic_shared();
    asm volatile("text" : "=r"(y) : "r"(x));        the text read once, then done with the operands' bits

Lines of files under ROOT are put into a namespace of the file, because nvcc keeps every file's kernels to
itself; other headers and the stand-ins for CUDA's stay as they are. Nothing else is looked at; what is not
understood is an error.
"""
import pathlib
import re
import sys

MARK = re.compile(r'# \d+ "([^"]*)"')


def closing(text, at):
    """Where the bracket that opens at `at` closes; strings are passed over."""
    pairs, depth, i = {"(": ")", "[": "]", "{": "}"}, [], at
    while i < len(text):
        c = text[i]
        if c == '"' or c == "'":
            i += 1
            while text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in pairs:
            depth.append(pairs[c])
        elif depth and c == depth[-1]:
            depth.pop()
            if not depth:
                return i
        i += 1
    sys.exit(f"convert_cuda: a bracket does not close: {text[at:at + 60]!r}")


def split(text, separator):
    """At separators outside of brackets and strings."""
    parts, begin, i = [], 0, 0
    while i < len(text):
        c = text[i]
        if c == '"':
            i += 1
            while text[i] != '"':
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            i = closing(text, i)
        elif c == separator:
            parts.append(text[begin:i])
            begin = i + 1
        i += 1
    return parts + [text[begin:]]


def operands(section):
    """(constraint, expression) of each."""
    found = []
    for part in split(section, ","):
        part = part.strip()
        if not part:
            continue
        m = re.fullmatch(r'"([=+]?)&?([rlfdhn])"\s*\((.*)\)', part, re.S)
        if not m:
            sys.exit(f"convert_cuda: an operand that is not known: {part!r}")
        found.append((m.group(1), m.group(3)))
    return found


def assembly(inside):
    inside = re.sub(r"^# \d+ .*$", "", inside, flags=re.M)
    sections = split(inside, ":") + ["", "", ""]
    outs, ins = operands(sections[1]), operands(sections[2])
    every = outs + ins
    regs = ", ".join("{0}" if mark == "=" else f"::cuda_host::reg_of({e})" for mark, e in every)
    back = " ".join(f"::cuda_host::reg_to({e}, r_[{i}]);" for i, (_, e) in enumerate(outs))
    return (f"do {{ static const ::cuda_host::ptx text_({sections[0].strip()}); "
            f"::cuda_host::reg r_[] = {{{regs or '{0}'}}}; text_.run(r_); {back} }} while (0)")


def kernel_before(text, end):
    """Where the name of a kernel, with its template arguments, begins that ends at `end`."""
    i = end
    while text[i - 1].isspace():
        i -= 1
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += (text[i] == ">") - (text[i] == "<")
            if depth == 0:
                break
        while text[i - 1].isspace():
            i -= 1
    while re.match(r"[\w:]", text[i - 1]):
        i -= 1
    return i


def launches(text):
    while (at := text.find("<<<")) >= 0:
        name = kernel_before(text, at)
        end = text.index(">>>", at)
        call = f"cuda_host::launch_of({text[name:at].rstrip()}, {text[at + 3:end]})"
        text = text[:name] + call + text[end + 3:]
    return text


def convert(text):
    text = re.sub(r"extern\s+static\s+thread_local\s+(?:__attribute__\(\(aligned\(\d+\)\)\)\s+)?"
                  r"([\w\s]+?)\s*(\w+)\[\];", r"\1 *\2 = (\1 *)cuda_host::dynamic_shared();", text)
    text = re.sub(r"\(const void \*\)\s*([A-Za-z_]\w*(?:<[^;(){}]*?>)?)(?=\s*[,;)}])",
                  r"cuda_host::address(\1)", text)
    text = launches(text)
    out, at = [], 0
    for m in re.finditer(r"\basm\b\s*(?:volatile)?\s*(?=\()", text):
        if m.start() < at:
            continue
        end = closing(text, m.end())
        out += [text[at:m.start()], assembly(text[m.end() + 1:end])]
        at = end + 1
    return "".join(out) + text[at:]


def main():
    root, source, target = sys.argv[1:]
    name, ours, piece, out = pathlib.Path(target).stem, False, [], []

    def flush():
        text = "".join(piece)
        out.append(f"namespace host_{name} {{\n{convert(text)}\n}}\n" if ours and text.strip() else text)
        piece.clear()

    for line in open(source, encoding="utf-8"):
        m = MARK.match(line)
        if m and (m.group(1).startswith(root) and "/cuda_host/include/" not in m.group(1)) != ours:
            flush()
            ours = not ours
        piece.append(line)
    flush()
    with open(target, "w", encoding="utf-8") as to:
        to.write("".join(out))


main()
