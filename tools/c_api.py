#!/usr/bin/env python3
"""Writes docs/ref/c-api.md: the declarations of include/kiln/, each with its comment.

usage: tools/c_api.py            writes the page
       tools/c_api.py --check    compares: fails where the headers say something else
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/ref/c-api.md"
HEADERS = ["status.h", "tensor.h", "module.h", "gpu.h", "compile.h"]
FIELDS = ["shapes", "units", "needs", "keeps", "gives", "errors", "threads", "cost"]
FRAME = re.compile(r"#|extern \"C\"|}$|// SPDX")


class Entry:
    """Declarations that share a comment."""

    def __init__(self, comment):
        self.comment, self.declarations = comment, []


def depth_of(text):
    code = re.sub(r"//.*", "", text)
    return sum(code.count(c) for c in "({") - sum(code.count(c) for c in ")}")


def read(header):
    """The comment at a header's head, and its entries."""
    comment, entries, lines = [], [], []
    head = None
    for line in (ROOT / "include/kiln" / header).read_text().split("\n") + [""]:
        if lines:
            lines.append(line)
        elif line.startswith("//") and not FRAME.match(line):
            comment.append(line[2:].removeprefix(" "))
            continue
        elif not line or FRAME.match(line):
            if head is None and comment:
                head = comment
            comment = comment if line and head is not comment else []
            entries.append(None)  # what follows shares no comment with what came before
            continue
        else:
            lines = [line]
        if depth_of("\n".join(lines)) == 0 and re.search(r";\s*(//.*)?$", line):
            if comment or not entries or not entries[-1]:
                entries.append(Entry(comment))
            entries[-1].declarations.append(lines)
            comment, lines = [], []
    return head, [e for e in entries if e]


def name_of(lines):
    text = re.sub(r"//.*", "", "\n".join(lines))
    patterns = [r"^enum \{ (\w+)", r"^typedef [\w ]+\(\*(\w+)\)\(", r"}\s*(\w+);\s*$", r"(kiln_\w+)\(", r"(\w+);\s*$"]
    return next(found.group(1) for found in (re.search(p, text) for p in patterns) if found)


def declared(lines):
    """A declaration as code: functions without the marks of the library, wrapped anew."""
    text = "\n".join(lines)
    if "KILN_API" not in text:
        return text
    note = re.search(r";\s*(//.*)$", text)
    text = re.sub(r"\s+", " ", re.sub(r"//.*", "", text)).strip()
    text = re.sub(r"KILN_API |KILN_MUST_USE ", "", text)
    text = re.sub(r"\* (\w)", r"*\1", text)
    bound = re.sub(r"(?<!,) ", "\0", text)  # lines end behind a comma
    wrapped = textwrap.wrap(bound, 96, subsequent_indent="\0" * 4, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped).replace("\0", " ") + (" " + note.group(1) if note else "")


def prose(lines):
    """A comment as Markdown: its sentences, then a list of the fields."""
    out, field = [], False
    for line in lines:
        found = re.match(rf"({'|'.join(FIELDS)}): +(.*)", line)
        text = re.sub(r"\|([^|]+)\|", r"`\1`", (found.group(2) if found else line).strip()).replace("*", r"\*")
        if found:
            out += [] if field or not out or not out[-1] else [""]
            out.append(f"- **{found.group(1)}**: {text}")
            field = True
        else:
            out.append(("  " if field and text else "") + text)
    return "\n".join(out).strip("\n")


def page():
    yield "# The C API\n"
    yield "<!-- Written by tools/c_api.py (make docs) from include/kiln; a test compares. -->\n"
    yield "How to use it, with a program that runs: [C](../guide/c.md). `KILN_GIVE` marks what becomes the caller's, `KILN_TAKE` what a call takes from"
    yield "the caller. A call that returns `kiln_status` must not be ignored. Tensors are those of DLPack (`kiln/dlpack.h`).\n"
    for header in HEADERS:
        head, entries = read(header)
        yield f"## kiln/{header}\n\n{prose(head)}\n"
        for entry in entries:
            names = list(dict.fromkeys(name_of(d) for d in entry.declarations))
            yield "### " + ", ".join(f"`{n}`" for n in names) + "\n"
            yield "```c\n" + "\n".join(declared(d) for d in entry.declarations) + "\n```\n"
            if entry.comment:
                yield prose(entry.comment) + "\n"


def main():
    text = "\n".join(page()).rstrip("\n") + "\n"
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/ref/c-api.md is stale: tools/c_api.py")
        return print(f"c-api.md: {text.count('### ')} entries")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
