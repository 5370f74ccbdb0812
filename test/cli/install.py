#!/usr/bin/env python3
"""What is installed compiles and runs where it lies, without the build; manual page and completions are those of the command.

usage: install.py CMAKE BUILD_DIR MODEL.onnx
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PAGES = {"man": "share/man/man1/kiln.1", "bash": "share/bash-completion/completions/kiln",
         "zsh": "share/zsh/site-functions/_kiln", "fish": "share/fish/vendor_completions.d/kiln.fish"}
PROGRAM = """#include <kiln/module.h>
int main(int argc, char **argv) {
  kiln_module *module = 0;
  return argc != 2 || kiln_module_load(argv[1], 0, &module) != KILN_OK;
}
"""


def run(*argv, **how):
    result = subprocess.run(argv, capture_output=True, text=True, timeout=600, **how)
    assert result.returncode == 0, f"{' '.join(map(str, argv))}: {result.stdout}{result.stderr}"
    return result.stdout


def main():
    cmake, build, model = sys.argv[1:]
    if not os.path.exists(model):
        print(f"{model}: not there")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        prefix = at / "prefix"
        run(cmake, "--install", build, "--prefix", str(prefix))
        kiln = str(prefix / "bin/kiln")
        for form, path in PAGES.items():
            assert (prefix / path).read_text() == run(kiln, "help", f"--format={form}"), path
        assert (prefix / "libexec/kiln/kiln-worker").stat().st_mode & 0o100
        run(kiln, "compile", model, "-o", str(at / "m.so"))
        run(kiln, "run", str(at / "m.so"))
        (at / "program.c").write_text(PROGRAM)
        run("cc", f"-I{prefix}/include", str(at / "program.c"), f"-L{prefix}/lib", "-lkiln_rt", f"-Wl,-rpath,{prefix}/lib",
            "-o", str(at / "program"))
        run(str(at / "program"), str(at / "m.so"))
    print("install: command, compiler, runtime, headers, pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
