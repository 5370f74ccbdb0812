#!/usr/bin/env python3
"""Checks that outside src/target nothing asks which target or machine it is: what a pass wants to know is a field of
kiln_target or kiln_machine (src/target/target.h), so that a target may be added without touching the passes.

usage: check_targets.py [SOURCE_DIR]      prints each breach as file:line, exit 1 if there is one
"""
import pathlib
import re
import sys

ROW = re.compile(r"^KILN_TARGET\((\w+)\)", re.M)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")', re.S)
# The runtime stands below targets, and its drivers have names of their own.
APART = ("src/target/", "src/runtime/", "src/worker/")


def blank(text):
    """Comments become blanks, so that lines stay."""
    return COMMENT.sub(lambda m: m.group() if m.group(1) else re.sub(r"[^\n]", " ", m.group()), text)


def questions(rows):
    """(what asks which target it is, what it does wrong, an example)"""
    names = "|".join(sorted(rows | {"native"}))
    asks = [
        (rf"\bkiln_target_(?:{names})\b(?!\s*\()", "names a target", "t == &kiln_target_cpu"),
        (r"\bKILN_MACHINE_[A-Z]", "compares the machine's kind", "m->kind == KILN_MACHINE_CPU"),
        (r"\btarget(?:_of\([^()]*\))?\s*[!=]=\s*(?!NULL)[&\w]", "compares targets", "a->target != b->target"),
        (rf'\bstrn?cmp\s*\([^;"]*"(?:{names})[:"]', "compares with a target's name", 'strncmp(target, "cuda:", 5)'),
        (r"\bstrn?cmp\s*\([^;]*\b(?:target->name|gpu\.arch)\b", "compares a name of a target or an architecture",
         'strcmp(m->gpu.arch, "sm_80")'),
    ]
    for pattern, wrong, example in asks:
        assert re.search(pattern, example), f"{wrong}: must find {example}"
    return [(re.compile(pattern), wrong) for pattern, wrong, _ in asks]


def breaches(root):
    asks = questions(set(ROW.findall((root / "src/target/targets.def").read_text())))
    for file in (p for top in ("src", "ops") for p in sorted((root / top).rglob("*.[ch]"))):
        relative = file.relative_to(root).as_posix()
        if relative.startswith(APART):
            continue
        text = blank(file.read_text())
        for pattern, wrong in asks:
            for found in pattern.finditer(text):
                yield f"{relative}:{text.count(chr(10), 0, found.start()) + 1}: {wrong}: {' '.join(found.group().split())}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(breaches(root))
    print("\n".join(found) if found else "targets: nothing outside src/target asks which it is")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
