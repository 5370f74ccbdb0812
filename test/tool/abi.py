#!/usr/bin/env python3
"""tools/abi.py finds what would break a program, and lets pass what would not; it compares with the last tag, or with the file."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import abi

OLD = """typedef struct a { size_t struct_size; int32_t x; // one
} a;
typedef struct b { int32_t x; } b;
typedef enum e { ONE = 1, TWO } e;
KILN_API KILN_MUST_USE kiln_status f(const a *options, void (*on)(void *user, int32_t n), KILN_GIVE b **out);
"""


def read(text, folder):
    (folder / "include/kiln").mkdir(parents=True, exist_ok=True)
    (folder / "include/kiln/x.h").write_text(text)
    abi.ROOT = folder
    return abi.read(["x.h"])


def git(folder, *words):
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)


def commit(folder, text, tag=None, number=1):
    """A commit whose headers and list of the interface are those of |text|, and perhaps a release."""
    now = read(text, folder)
    (folder / "CMakeLists.txt").write_text(f"set(KILN_ABI {number})\n")
    abi.KEPT = folder / "abi/kiln.txt"
    abi.KEPT.parent.mkdir(exist_ok=True)
    abi.KEPT.write_text("".join(f"{line}\n" for line in ["# list", f"abi\t{number}", *(f"{k}\t{n}\t{w}" for n, (k, w) in now.items())]))
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "a change")
    if tag:
        git(folder, "tag", "-a", tag, "-m", tag)


def check_release(folder):
    """Without a tag the file is what was promised; with tags the list of the nearest one, whatever the file says now."""
    git(folder, "init", "-q")
    narrow, wide = OLD, OLD.replace("int32_t n", "int64_t n")
    commit(folder, narrow)
    assert abi.last_release()[1] == "abi/kiln.txt" and not abi.broken(read(narrow, folder))
    said = abi.broken(read(wide, folder))
    assert len(said) == 1 and said[0].startswith("f: abi/kiln.txt has"), said
    commit(folder, wide)  # the list has been written anew without a release: nothing was promised yet
    assert not abi.broken(read(wide, folder))
    commit(folder, narrow, "v0.1.0")
    git(folder, "tag", "other-9")  # which is no release
    commit(folder, wide)
    said = abi.broken(read(wide, folder))
    assert abi.last_release()[1] == "v0.1.0" and len(said) == 1 and said[0].startswith("f: v0.1.0 has"), said
    (folder / "CMakeLists.txt").write_text("set(KILN_ABI 2)\n")
    assert not abi.broken(read(wide, folder))  # it says that it breaks
    commit(folder, wide, "v0.2.0", 2)
    assert abi.last_release()[1] == "v0.2.0" and not abi.broken(read(wide, folder)) and abi.broken(read(narrow, folder))


def main():
    if shutil.which("git"):
        with tempfile.TemporaryDirectory() as folder:
            check_release(pathlib.Path(folder))
    folder = pathlib.Path(sys.argv[1])
    old = read(OLD, folder)
    assert old["f"] == ("function", "kiln_status (const a *, void ( * ) ( void * , int32_t ), b * *)"), old["f"]
    assert old["TWO"] == ("enum", "2") and old["a"] == ("struct", "size_t struct_size; int32_t x")
    breaks = lambda a, b: {n for n, what in old.items() if not abi.is_kept(what, read(OLD.replace(a, b), folder).get(n))}
    assert not breaks("options,", "how,") and not breaks("void *user", "void *me")
    assert not breaks("int32_t x; // one\n", "int32_t x; // one\n float y;")  # at the end of what says its size
    assert breaks("{ int32_t x; } b", "{ int32_t x, y; } b") == {"b"}
    assert breaks("size_t struct_size; ", "size_t struct_size; int32_t w; ") == {"a"}
    assert breaks("TWO", "HALF, TWO") == {"TWO"} and breaks("int32_t n", "int64_t n") == {"f"}
    assert breaks("KILN_API KILN_MUST_USE kiln_status f", "KILN_API void f") == {"f"}
    return 0


if __name__ == "__main__":
    sys.exit(main())
