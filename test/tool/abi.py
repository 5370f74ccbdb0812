#!/usr/bin/env python3
"""tools/abi.py finds what would break a program, and lets pass what would not."""
import pathlib
import sys

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


def main():
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
