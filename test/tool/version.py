#!/usr/bin/env python3
"""tools/version.py: the files of the tree agree on the version, one that does not is found, and a release sets all of them."""
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import version

PATHS = sorted({p for p, _ in version.PLACES} | {version.CHANGELOG, version.DEBIAN})


def main():
    wrong = list(version.disagreements(ROOT))
    assert not wrong, wrong
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path in PATHS:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, root / path)
        for path, pattern in version.PLACES[1:]:
            before = (root / path).read_text()
            version.substitute(root, path, lambda text: version.re.sub(pattern, "", text, flags=version.re.M))
            assert any(path in w for w in version.disagreements(root)), path
            (root / path).write_text(before)
        version.release(root, "7.8.9", 1.8e9)
        assert version.current(root) == "7.8.9" and not list(version.disagreements(root))
        assert "## 7.8.9 (2027-01-15)\n" in (root / version.CHANGELOG).read_text()
        entries = (root / version.DEBIAN).read_text()
        assert entries.startswith("kiln (7.8.9) unstable") and "Fri, 15 Jan 2027 08:00:00" in entries, entries
        version.release(root, "7.9.0", 1.8e9)
        assert (root / version.DEBIAN).read_text().endswith(entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
