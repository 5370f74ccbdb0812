#!/usr/bin/env python3
"""The binary interface: functions, structures and enumerators of include/kiln/, as abi/kiln.txt keeps them of the last release.

usage: tools/abi.py BUILD_DIR      the libraries must export the functions of the headers and nothing else, and everything that the last
                                   release had must be there as it was, or KILN_ABI in CMakeLists.txt must be raised
       tools/abi.py --renew        writes abi/kiln.txt, at a release

The last release is the nearest tag v* below HEAD; where there is none, abi/kiln.txt as it lies in the tree.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "abi/kiln.txt"
RUNTIME = ["status.h", "dlpack.h", "tensor.h", "module.h", "gpu.h"]
HEADERS = RUNTIME + ["compile.h"]
MARKS = re.compile(r"\b(KILN_API|KILN_MUST_USE|KILN_GIVE|KILN_TAKE)\b|\bKILN_PRINTF\([^)]*\)|\b__attribute__\(\(.*?\)\)")


# --- reading headers


def statements(text):
    """Declarations, without comments, directives and the frame for C++."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"#(?:\\\n|[^\n])*", " ", text)
    text = re.sub(r'extern "C" \{', " ", text)
    depth, begin, found = 0, 0, []
    for i, c in enumerate(text):
        depth += (c in "{(") - (c in "})")
        if depth < 0:  # the frame's end
            depth, begin = 0, i + 1
        elif c == ";" and depth == 0:
            found.append(" ".join(text[begin:i].split()))
            begin = i + 1
    return [s for s in found if s]


def split_list(text):
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [p for p in parts + [part.strip()] if p]


def spaced(text):
    return " ".join(re.sub(r"\s*([*(),\[\]])\s*", r" \1 ", text).split())


def unnamed(parameter):
    """A parameter's type: its name is no part of the interface."""
    called = re.match(r"(.*\(\s*\*)\s*\w*\s*\)\s*\((.*)\)$", parameter)
    if called:
        return spaced(called.group(1) + ")(" + ", ".join(map(unnamed, split_list(called.group(2)))) + ")")
    named = re.match(r"(.*[\s*])(\w+)\s*((?:\[[^\]]*\])*)$", parameter)
    is_name = named and named.group(1).strip() not in ("", "const", "unsigned", "struct", "enum")
    return spaced(named.group(1) + named.group(3)) if is_name else spaced(parameter)


def function(statement):
    head, name, parameters = re.match(r"(.*?)(\w+)\s*\((.*)\)$", statement).groups()
    return name, spaced(head) + " (" + ", ".join(map(unnamed, split_list(parameters))) + ")"


def fields(body):
    return [spaced(f) for f in body.split(";") if f.strip()]


def enumerators(body):
    found, value = {}, -1
    for e in split_list(body):
        name, _, given = (p.strip() for p in e.partition("="))
        value = int(found.get(given, given), 0) if given else value + 1
        found[name] = str(value)
    return found


def read(headers):
    """What each name is: ("function", its type), ("struct", its fields), ("enum", a value), ("type", another)."""
    rows = {}
    for header in headers:
        for s in statements((ROOT / "include/kiln" / header).read_text()):
            s = MARKS.sub(" ", s) if "KILN_API" not in s else "API " + MARKS.sub(" ", s)
            s = " ".join(s.split())
            enum = re.match(r"(?:typedef )?enum(?: \w+)? ?\{(.*)\} ?(\w*)$", s)
            struct = re.match(r"(?:typedef )?struct(?: \w+)? ?\{(.*)\} ?(\w*)$", s)
            if s.startswith("API "):
                name, text = function(s[4:])
                rows[name] = ("function", text)
            elif enum:
                rows.update({n: ("enum", v) for n, v in enumerators(enum.group(1)).items()})
            elif struct:
                rows[struct.group(2)] = ("struct", "; ".join(fields(struct.group(1))))
            elif s.startswith("typedef "):
                pointer = re.match(r"typedef (.*\(\s*\*)\s*(\w+)\s*(\).*)$", s)
                name = pointer.group(2) if pointer else s.split()[-1].lstrip("*")
                text = spaced(pointer.group(1) + pointer.group(3)) if pointer else spaced(s[8:])
                rows[name] = ("type", text)
    return rows


# --- comparing


def abi_number():
    return int(re.search(r"^set\(KILN_ABI (\d+)\)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1))


def last_release():
    """The text that was kept, and where."""
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*").stdout.strip()
    kept = git("show", f"{tag}:abi/kiln.txt").stdout if tag else ""
    return (kept, tag) if kept else (KEPT.read_text(), "abi/kiln.txt")


def parse(text):
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return int(lines[0][1]), {name: (kind, what) for kind, name, what in lines[1:]}


def is_kept(old, new):
    """A structure that says its size may grow at its end."""
    if new == old:
        return True
    return new and old[0] == new[0] == "struct" and old[1].startswith("size_t struct_size") and new[1].startswith(old[1] + "; ")


def broken(rows):
    text, release = last_release()
    number, before = parse(text)
    changed = [f"{name}: {release} has {what[1]}, now {rows.get(name, ('', 'nothing'))[1]}" for name, what in before.items()
               if not is_kept(what, rows.get(name))]
    return changed if abi_number() == number else []


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2].split("@")[0] for line in text.splitlines() if line.split()[1] != "A"}


def wrong_exports(build):
    for library, headers in (("libkiln.so", HEADERS), ("libkiln_rt.so", RUNTIME)):
        want = {n for n, (kind, _) in read(headers).items() if kind == "function"}
        for name in sorted(want ^ exported(build / library)):
            yield f"{library}: {name}: {'must be exported' if name in want else 'must not be exported'}"


def main():
    rows = read(HEADERS)
    if sys.argv[1:] == ["--renew"]:
        lines = [f"{kind}\t{name}\t{what}" for name, (kind, what) in sorted(rows.items())]
        KEPT.write_text("# The binary interface of the last release (tools/abi.py).\n" + "\n".join([f"abi\t{abi_number()}"] + lines) + "\n")
        return 0
    wrong = [*wrong_exports(pathlib.Path(sys.argv[1])), *broken(rows)]
    for line in wrong:
        print("abi:", line)
    print(f"abi: {len(rows)} names, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
