#!/usr/bin/env python3
"""What is installed works without the build, also where it was moved to: the command, pages, and programs that find the libraries by
CMake, by pkg-config, or build them as a part of themselves.

usage: install.py CMAKE BUILD_DIR           CC and CXX are the compilers (cc, c++)
       install.py CMAKE BUILD_DIR --whole   a project that has all of Kiln as a part of itself is built and run, which takes minutes
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONSUMERS = ROOT / "test/consumers"
PAGES = {"man": "share/man/man1/kiln.1", "bash": "share/bash-completion/completions/kiln",
         "zsh": "share/zsh/site-functions/_kiln", "fish": "share/fish/vendor_completions.d/kiln.fish"}
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")


def run(*argv, **how):
    result = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **{"timeout": 600, **how})
    assert result.returncode == 0, f"{' '.join(map(str, argv))}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
    return result.stdout


def install(cmake, build, at):
    """Installs under DESTDIR, as packages are made, and moves what is there."""
    run(cmake, "--install", build, "--prefix", "/opt/kiln", env={**os.environ, "DESTDIR": str(at / "root")})
    prefix = at / "moved"
    (at / "root/opt/kiln").rename(prefix)
    return prefix


def check_command(prefix, at):
    kiln = prefix / "bin/kiln"
    for form, path in PAGES.items():
        assert (prefix / path).read_text() == run(kiln, "help", f"--format={form}"), path
    assert (prefix / "libexec/kiln/kiln-worker").stat().st_mode & 0o100
    run(kiln, "compile", CONSUMERS / "scale.tc", "--size", "N=4", "-o", at / "m.so")
    run(kiln, "run", at / "m.so")


def configure(cmake, source, to, *options):
    run(cmake, "-G", "Ninja", "-S", source, "-B", to, f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", *options)


def check_package(cmake, prefix, at):
    configure(cmake, CONSUMERS, at / "package", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror")
    run(cmake, "--build", at / "package")
    for name in ("run", "run_static"):
        run(at / "package" / name, at / "m.so")
    run(at / "package/compile", CONSUMERS / "scale.tc")
    run(at / "package/linked")
    needs = run("objdump", "-p", at / "package/run")
    assert "libkiln_rt.so.1" in needs and "KILN_1" in needs, needs


def check_pkg_config(prefix, at):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = lambda *words: run("pkg-config", "--cflags", "--libs", *words, env=env).split()
    path = f"-Wl,-rpath,{prefix}/lib"
    run(CC, CONSUMERS / "run.c", *flags("kiln_rt"), path, "-o", at / "p")
    run(at / "p", at / "m.so")
    run(CXX, CONSUMERS / "compile.cpp", *flags("kiln"), path, "-o", at / "q")
    run(at / "q", CONSUMERS / "scale.tc")
    static = [f"-l:lib{w[2:]}.a" if w == "-lkiln_rt" else w for w in flags("--static", "kiln_rt")]
    run(CC, CONSUMERS / "run.c", *static, "-o", at / "s")
    run(at / "s", at / "m.so")


def check_subproject(cmake, at):
    """The runtime is built and run; of the compiler, whose build takes minutes (check_whole), the targets are there."""
    configure(cmake, CONSUMERS / "subproject", at / "runtime", f"-DKILN={ROOT}", "-DKILN_COMPILER=OFF")
    run(cmake, "--build", at / "runtime")
    for name in ("run", "run_static"):
        run(at / "runtime" / name, at / "m.so")
    configure(cmake, CONSUMERS / "subproject", at / "whole", f"-DKILN={ROOT}")
    steps = run("ninja", "-C", at / "whole", "-t", "commands", "compile", "linked", "run")
    assert "libkiln.so.1" in steps and "linked.c" in steps and "test/unit" not in steps


def check_whole(cmake, at):
    """A program linked with kiln::kiln of the same build compiles a definition; another one has a model that the build compiled."""
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    configure(cmake, CONSUMERS / "subproject", at / "whole", f"-DKILN={ROOT}", *launcher)
    run(cmake, "--build", at / "whole", "--target", "compile", "linked", "run", "run_static", "kiln_tool", timeout=3000)
    built = at / "whole/_deps/kiln-build"
    run(built / "kiln", "compile", CONSUMERS / "scale.tc", "--size", "N=4", "-o", at / "m.so")
    for name in ("run", "run_static"):
        run(at / "whole" / name, at / "m.so")
    run(at / "whole/compile", CONSUMERS / "scale.tc")
    run(at / "whole/linked")
    tests = [p for p in built.iterdir() if p.name.endswith("_test")]
    assert not tests, f"a part of another project has no tests, got {tests}"


def main():
    cmake, build = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        if "--whole" in sys.argv[3:]:
            check_whole(cmake, at)
            print("install: all of Kiln as a part of another project")
            return 0
        prefix = install(cmake, build, at)
        check_command(prefix, at)
        check_package(cmake, prefix, at)
        check_pkg_config(prefix, at)
        check_subproject(cmake, at)
    print("install: command, pages, CMake package, pkg-config, subproject")
    return 0


if __name__ == "__main__":
    sys.exit(main())
