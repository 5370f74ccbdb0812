#!/usr/bin/env python3
"""Checks that every folder includes only what cmake/includes.txt allows, that what it allows has no circle, and that no
folder of src/ has more than 40 files.

usage: check_includes.py [SOURCE_DIR]      prints each breach as file:line, exit 1 if there is one
"""
import pathlib
import re
import sys

MOST_FILES = 40
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def read_floors(path):
    floors = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            folder, _, below = line.partition(":")
            floors[folder] = set(below.split())
    return floors


def floor_of(path):
    """src/target/cpu/x.c -> target, ops/conv.c -> ops, tools/kiln/run.c -> tools"""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def breaches(root, floors):
    files = [p for top in ("src", "ops", "ort", "tools", "include") for p in sorted((root / top).rglob("*.[ch]"))]
    for file in files:
        relative = file.relative_to(root)
        floor = floor_of(relative)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            name = found.group(1)
            if (file.parent / name).exists() and floor in ("tools", "ops", "ort"):
                continue  # a neighbour
            target = "public" if name.startswith("kiln/") else name.split("/")[0]
            if target != floor and target not in floors.get(floor, set()) | {"public"}:
                yield f"{relative}:{number}: {floor} may not include {name} (cmake/includes.txt)"


def circles(floors):
    """Folders that may include each other, on whatever way."""
    rest = dict(floors)
    ends = True
    while ends:  # what stands at the bottom of the rest, or at its top, is in no circle
        below_others = {folder for below in rest.values() for folder in below}
        ends = [folder for folder, below in rest.items() if not below & set(rest) or folder not in below_others]
        for folder in ends:
            del rest[folder]
    if rest:
        yield f"cmake/includes.txt: {' '.join(rest)}: must not include each other, nor what does"


def crowds(root):
    for folder in sorted(p for p in (root / "src").rglob("*") if p.is_dir()):
        n = sum(1 for p in folder.iterdir() if p.is_file())
        if n > MOST_FILES:
            yield f"{folder.relative_to(root)}: must have at most {MOST_FILES} files, got {n}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    floors = read_floors(root / "cmake" / "includes.txt")
    found = list(circles(floors)) + list(breaches(root, floors)) + list(crowds(root))
    print("\n".join(found) if found else "includes: every folder keeps to its floor")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
