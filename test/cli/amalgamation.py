#!/usr/bin/env python3
"""The runtime as one source and one header: clean C11 for gcc and clang, in a program with no other library, which runs modules.

usage: amalgamation.py KILN        compilers that are not there are left out
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONSUMERS = ROOT / "test/consumers"
sys.path.insert(0, str(ROOT / "tools"))
import abi

FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def run(*argv):
    result = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, f"{' '.join(map(str, argv))}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
    return result.stdout


def check(compiler, at):
    run(compiler, *FLAGS, "-fPIC", "-c", at / "kiln_rt.c", "-o", at / "kiln_rt.o")
    run(compiler, *FLAGS, at / "run.c", at / "kiln_rt.o", "-o", at / "run")  # libc alone
    run(at / "run", at / "m.so")
    run(compiler, "-shared", at / "kiln_rt.o", "-o", at / "rt.so")
    functions = {n for n, (kind, _) in abi.read(abi.RUNTIME).items() if kind == "function"}
    assert abi.exported(at / "rt.so") == functions, abi.exported(at / "rt.so") ^ functions


def main():
    kiln = sys.argv[1]
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        run(sys.executable, ROOT / "tools/amalgamate.py", at)
        (at / "run.c").write_text((CONSUMERS / "run.c").read_text().replace("<kiln/module.h>", '"kiln_rt.h"'))
        (at / "use.cpp").write_text('#include "kiln_rt.h"\nkiln_diag *made() { return kiln_diag_create(); }\n')
        run(kiln, "compile", CONSUMERS / "scale.tc", "--size", "N=4", "-o", at / "m.so")
        for compiler in compilers:
            check(compiler, at)
        run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-c", at / "use.cpp", "-o", at / "use.o")
        again = at / "again"
        run(sys.executable, ROOT / "tools/amalgamate.py", again)
        assert all((again / n).read_bytes() == (at / n).read_bytes() for n in ("kiln_rt.c", "kiln_rt.h"))
    print("amalgamation:", *compilers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
