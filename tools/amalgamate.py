#!/usr/bin/env python3
"""The runtime as one source and one header, kiln_rt.c and kiln_rt.h, for programs that build it as a part of themselves.

usage: tools/amalgamate.py FOLDER      where the two are written; the same sources give the same bytes

Files follow each other as they are; what one declares for itself gets the file's name in front where another has the same word. Kernels of libraries whose
headers a build would need (src/backend/*/needs.cmake) are left out.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = ["status.h", "dlpack.h", "tensor.h", "module.h", "gpu.h"]
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\w+|\s+|->|.", re.S)
INCLUDE = re.compile(r'^#include "([^"]+)"[^\n]*\n', re.M)

# Headers of the system come first, what is in them being visible; those of one processor, behind #if, stay where they are.
SYSTEM = re.compile(r"(?<!_\)\n)^#include <[^>]+>$", re.M)
SPECIAL = re.compile(r"(?<=_\)\n)(#include <[^>]+>)$", re.M)
VISIBLE = r"#pragma GCC visibility push(default)\n\1\n#pragma GCC visibility pop"


def sources():
    """Those of libkiln_rt, as CMake has them, and the backends' folders."""
    listed = re.search(r"set\(rt_sources (.*?)\)", (ROOT / "cmake/runtime.cmake").read_text(), re.S).group(1)
    more = [ROOT / p for p in re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(\S+\.c)", listed)]
    backends = [d for d in sorted((ROOT / "src/backend").iterdir()) if d.is_dir() and not (d / "needs.cmake").exists()]
    files = [*sorted((ROOT / "src/runtime").glob("**/*.c")), *sorted((ROOT / "src/backend").glob("*.c"))]
    return files + [f for d in backends for f in sorted(d.glob("*.c"))] + more, [d.name for d in backends]


# --- names


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def own_names(text):
    """What a file declares for itself, at its outermost level: functions, variables, types and enumerators."""
    text = without_comments(text)
    found = set(re.findall(r"^static [^;{=]*?\b(\w+)\(", text, re.M))
    found |= set(re.findall(r"^static [^;{(=]*?\b(\w+)(?:\[[^\]]*\])*(?:\s*=|;)", text, re.M))
    found |= set(re.findall(r"^(?:typedef )?(?:struct|enum|union) (\w+) \{", text, re.M))
    found |= set(re.findall(r"^\} (\w+)(?:\[\w*\])*(?:;| =)", text, re.M)) | set(re.findall(r"^typedef [^{;]*?\b(\w+);", text, re.M))
    for body in re.findall(r"^(?:typedef )?enum(?: \w+)? \{(.*?)\}", text, re.M | re.S):
        found |= {m.group(0) for m in (re.match(r"\w+", e.strip()) for e in body.split(",")) if m}
    return {n for n in found if not n.lower().startswith("kiln_")}  # those are everybody's


def is_field(tokens, i, in_struct):
    """Whether token |i| names a member: behind a point or an arrow, or declared in a structure's body."""
    before = next((t for t in reversed(tokens[max(0, i - 2):i]) if not t.isspace()), "")
    after = next((t for t in tokens[i + 1:i + 3] if not t.isspace()), "")
    return before in (".", "->") or (in_struct and after in (";", ",", "[", ":", ")"))


def renamed(text, names, prefix):
    """|text| with |prefix| in front of |names|, but where they name members: also in offsetof, and in a table's rows, as
    ROW("cuMemAlloc", allocate)."""
    rows = [m.span() for m in re.finditer(r"^ +\{?[A-Z][A-Z_]*\(.*\)\}?,?(?: +//.*)?$", text, re.M)]
    rows += [m.span(1) for m in re.finditer(r"\boffsetof\(\w+, (\w+)\)", text)]
    tokens, braces, out, at = TOKEN.findall(text), [], [], 0
    for i, t in enumerate(tokens):
        if t == "{":
            braces.append(bool(re.search(r"\b(struct|union)(\s+\w+)?\s*$", "".join(tokens[max(0, i - 12):i]))))
        elif t == "}" and braces:
            braces.pop()
        if t in names and not is_field(tokens, i, bool(braces) and braces[-1]) and not any(a <= at < b for a, b in rows):
            t, length = f"{prefix}_{t}", len(t)
        else:
            length = len(t)
        out.append(t)
        at += length
    return "".join(out)


# --- joining


class Joined:
    """The text so far, and the headers that are in it."""

    def __init__(self):
        self.headers, self.parts = set(), []

    def expand(self, text):
        """The text with lists (.def) where they are included, and headers in front of it."""
        for name in INCLUDE.findall(text):
            if name.endswith(".h"):
                self.header(name)
        return INCLUDE.sub(lambda m: "" if m.group(1).endswith(".h") else (ROOT / "src" / m.group(1)).read_text(), text)

    def header(self, name):
        if name in self.headers or name.startswith("kiln/"):
            return
        self.headers.add(name)
        self.parts.append(f"// ---- {name}\n" + self.expand((ROOT / "src" / name).read_text()))

    def source(self, path, shared):
        text = self.expand(path.read_text())
        text = renamed(text, own_names(text) & shared, path.stem)
        macros = re.findall(r"^#define (\w+)", text, re.M)
        undone = "".join(f"#undef {m}\n" for m in dict.fromkeys(macros))
        self.parts.append(f"// ---- {path.relative_to(ROOT / 'src')}\n{text}{undone}")


def public_header(version):
    parts = [f"// The runtime of Kiln {version} as one header; kiln_rt.c is its source. Made by tools/amalgamate.py.\n"]
    for name in PUBLIC:
        parts.append(INCLUDE.sub("", (ROOT / "include/kiln" / name).read_text()))
    return "\n".join(parts)


def table_of(backends):
    declared = "".join(f"extern const kiln_backend kiln_backend_{b};\n" for b in backends)
    return f"{declared}const kiln_backend *const kiln_backends[] = {{{', '.join('&kiln_backend_' + b for b in backends)}, 0}};\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    version = re.search(r"project\(kiln VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    files, backends = sources()
    # How many files have each word: names that one alone has stay as they are.
    counts = collections.Counter(w for f in files for w in set(re.findall(r"\w+", without_comments(f.read_text()))))
    joined = Joined()
    for f in files:
        joined.source(f, {n for n, k in counts.items() if k > 1})
    text = "\n".join([*joined.parts, table_of(backends)])
    head = f"""// The runtime of Kiln {version} as one source, in C11. Made by tools/amalgamate.py.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define KILN_BUILDING
#include "kiln_rt.h"

{chr(10).join(sorted(set(SYSTEM.findall(text))))}

#pragma GCC visibility push(hidden) // but what KILN_API marks
#pragma GCC diagnostic ignored "-Wunused-function" // of headers that have more than the runtime takes

"""
    (folder / "kiln_rt.h").write_text(public_header(version))
    (folder / "kiln_rt.c").write_text(head + SPECIAL.sub(VISIBLE, SYSTEM.sub("", text)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
