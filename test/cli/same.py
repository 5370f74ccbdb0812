#!/usr/bin/env python3
"""The same options give the same module, byte for byte, and the same outputs, bit for bit.

usage: same.py KILN MODEL.onnx...

Compiled without a cache, again, into an empty cache, and out of it twice; the outputs of two runs of the first module and of one of the
last are compared. (That threads do not matter to code, test/unit/cpu/emit_test.c shows.)
exit: 0 right, 1 something differs, 77 no model is there (weights are made by the Makefile)
"""
import filecmp
import os
import pathlib
import subprocess
import sys
import tempfile

WAYS = [("plain", ["--no-cache"]), ("again", ["--no-cache"]), ("cold", []), ("warm", []),
        ("warmer", [])]


def check(kiln, model, folder):
    environment = dict(os.environ, KILN_CACHE_DIR=str(folder / "cache"))
    modules = []
    for name, options in WAYS:
        modules.append(folder / f"{name}.so")
        subprocess.run([kiln, "compile", str(model), "-o", str(modules[-1]), "--threads", "2", *options], env=environment,
                       check=True)
    right = True
    for m in modules[1:]:
        if not filecmp.cmp(modules[0], m, shallow=False):
            print(f"DIFFERS {model.stem}: the module {m.stem} from {modules[0].stem}")
            right = False
    results = []
    for k, m in enumerate([modules[0], modules[0], modules[-1]]):
        results.append(folder / f"{model.stem}{k}")
        subprocess.run([kiln, "run", str(m), "--threads", "2", "--output-dir", str(results[-1])], stdout=subprocess.DEVNULL,
                       check=True)
    names = sorted(p.name for p in results[0].iterdir())
    for r in results[1:]:
        _, wrong, missing = filecmp.cmpfiles(results[0], r, names, shallow=False)
        if wrong or missing or not names:
            print(f"DIFFERS {model.stem}: outputs {wrong + missing} of {r.name}")
            right = False
    print(f"{'same   ' if right else 'WRONG  '} {model.stem}")
    return right


def main():
    models = [pathlib.Path(m) for m in sys.argv[2:] if pathlib.Path(m).with_suffix(".weights").exists()]
    if not models:
        return 77
    right = True
    for m in models:
        with tempfile.TemporaryDirectory() as folder:
            right &= check(sys.argv[1], m, pathlib.Path(folder))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
