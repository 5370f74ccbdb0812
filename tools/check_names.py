#!/usr/bin/env python3
"""Checks that a type of the project has one meaning: kiln_NAME is defined in one file.

usage: check_names.py      prints each that is not, exit 1 if there is one
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEFINED = re.compile(r"^typedef (?:struct|union|enum) (kiln_\w+) (?:\{|kiln_\w+;)|^\} (kiln_\w+);", re.M)


def main():
    files = collections.defaultdict(set)
    for top in ("include", "src", "ops"):
        for path in (ROOT / top).rglob("*.[ch]"):
            for names in DEFINED.findall(path.read_text()):
                for name in filter(None, names):
                    files[name].add(str(path.relative_to(ROOT)))
    several = {name: sorted(found) for name, found in sorted(files.items()) if len(found) > 1}
    for name, found in several.items():
        print(f"{name}: must be defined once, is in {', '.join(found)}")
    return bool(several)


if __name__ == "__main__":
    sys.exit(main())
