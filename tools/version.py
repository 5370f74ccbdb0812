#!/usr/bin/env python3
"""The version of Kiln is that of project() in CMakeLists.txt; other files repeat it.

usage: tools/version.py            what repeats it must agree
       tools/version.py VERSION    sets it in all of them, for a release (CONTRIBUTING.md)
"""
import email.utils
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMBER = r"\d+\.\d+\.\d+"
# Where it stands: the first and only group of the pattern, once in a file at least.
PLACES = [
    ("CMakeLists.txt", rf"^project\(kiln VERSION ({NUMBER})"),
    ("python/pyproject.toml", rf'^version = "({NUMBER})"'),
    ("python/pyproject.toml", rf'"kiln-compiler==({NUMBER})"'),
    ("python/compiler/pyproject.toml", rf'^version = "({NUMBER})"'),
    ("python/compiler/pyproject.toml", rf'"kiln-runtime==({NUMBER})"'),
    ("python/kiln/__init__.py", rf'^__version__ = "({NUMBER})"'),
    ("docs/start/install.md", rf"^kiln ({NUMBER})"),
    ("test/unit/driver/compile_test.c", rf'kiln_version\(\), "({NUMBER})"'),
]
CHANGELOG, DEBIAN = "CHANGELOG.md", "debian/changelog"


def current(root):
    path, pattern = PLACES[0]
    return re.search(pattern, (root / path).read_text(), re.M).group(1)


def disagreements(root):
    version = current(root)
    for path, pattern in PLACES:
        found = re.findall(pattern, (root / path).read_text(), re.M)
        if set(found) != {version}:
            yield f"{path}: must have the version {version}, got {found or 'none'}"
    if not re.match(rf"kiln \({re.escape(version)}\)", (root / DEBIAN).read_text()):
        yield f"{DEBIAN}: its first entry must be of version {version}"
    heads = re.findall(r"^## (.*)$", (root / CHANGELOG).read_text(), re.M)
    if not any(h == f"Unreleased ({version})" or h.startswith(f"{version} (") for h in heads):
        yield f"{CHANGELOG}: must have a part \"Unreleased ({version})\" or \"{version} (DATE)\""


def substitute(root, path, change):
    file = root / path
    file.write_text(change(file.read_text()))


def release(root, version, time=None):
    """Sets the version, dates what is unreleased, and begins an entry of Debian's changelog."""
    date = email.utils.formatdate(time)
    day = "{:04}-{:02}-{:02}".format(*email.utils.parsedate(date)[:3])
    for path, pattern in PLACES:
        put = lambda m: m.group(0).replace(m.group(1), version)
        substitute(root, path, lambda text: re.sub(pattern, put, text, flags=re.M))
    substitute(root, CHANGELOG, lambda text: re.sub(r"^## Unreleased.*$", f"## {version} ({day})", text, count=1, flags=re.M))
    who = re.search(r"^ -- (.*>)  ", (root / DEBIAN).read_text(), re.M).group(1)
    entry = f"kiln ({version}) unstable; urgency=medium\n\n  * Version {version} (CHANGELOG.md).\n\n -- {who}  {date}\n\n"
    older = lambda text: text[text.index("\n\nkiln (") + 2:] if "\n\nkiln (" in text else ""
    is_same = lambda text: text.startswith(f"kiln ({version})")
    substitute(root, DEBIAN, lambda text: entry + (older(text) if is_same(text) else text))


def main():
    if len(sys.argv) > 1:
        if len(sys.argv) > 2 or not re.fullmatch(NUMBER, sys.argv[1]):
            print(__doc__.strip(), file=sys.stderr)
            return 2
        release(ROOT, sys.argv[1])
    wrong = list(disagreements(ROOT))
    print("\n".join(wrong) if wrong else f"version: {current(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
