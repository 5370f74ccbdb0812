#!/usr/bin/env python3
"""The `kiln` command where the system gives it little: under limits of its address space, from what the command needs to
start to what the work needs, it ends with a message and 1, or is right; never by a signal. It leaves no file behind.

usage: limits.py KILN [STEP]      limits grow by a factor of STEP (1.25)
"""
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("bad_input", HERE.parent / "error" / "bad_input.py")
onnx = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(onnx)

KILN = str(pathlib.Path(sys.argv[1]).resolve())
STEP = float(sys.argv[2]) if len(sys.argv) > 2 else 1.25
MEGABYTE = 1 << 20
LEAST, MOST = 8 * MEGABYTE, 8192 * MEGABYTE
LOADER = 127  # ld.so could not map a library
WHY = ("no memory left", "Cannot allocate memory", "out of memory", "the system must create", "failed to map")


def kiln(arguments, limit, folder):
    environment = {**os.environ, "KILN_CACHE_DIR": ""}
    return subprocess.run([KILN, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=600, env=environment, cwd=folder,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def starts(limit, folder):
    """Whether the command itself, without the compiler, can be started so: below that the kernel ends it."""
    return kiln(["--help"], limit, folder).returncode == 0


def complaint(done):
    if done.returncode == 0 or done.returncode == LOADER:
        return None
    if done.returncode != 1:
        return f"code {done.returncode}: {done.stderr[-300:]}"
    return None if any(why in done.stderr for why in WHY) else f"another message: {done.stderr[-300:]}"


def try_limits(name, arguments, folder):
    """How many of the limits are answered wrongly."""
    before, n_wrong, n_refused, limit = sorted(os.listdir(folder)), 0, 0, LEAST
    while limit < MOST:
        if starts(int(limit), folder):
            done = kiln(arguments, int(limit), folder)
            why = complaint(done)
            n_refused += done.returncode == 1
            left = set(os.listdir(folder)) - set(before)
            if left - ({"made.so"} if done.returncode == 0 else set()):
                why = why or f"files are left: {left}"
            (folder / "made.so").unlink(missing_ok=True)
            if why:
                print(f"{name}: {int(limit) // 1024} KB: {why}")
                n_wrong += 1
        limit *= STEP
    if done.returncode != 0:
        print(f"{name}: {int(limit) // 1024} KB must be enough: {done.stderr}")
        n_wrong += 1
    if not n_refused:
        print(f"{name}: some limit must be too low")
        n_wrong += 1
    return n_wrong


def main():
    sizes = ["--size", "M=40", "--size", "K=50", "--size", "N=60"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "m.onnx").write_bytes(onnx.RELU)
        (folder / "mm.tc").write_bytes(onnx.MATMUL_TC)
        if kiln(["compile", "m.onnx", "-o", "m.so"], MOST, folder).returncode:
            sys.exit("m.onnx must compile")
        wrong = 0
        for what, arguments in {"compile": ["compile", "m.onnx", "-o", "made.so"],
                                "run in memory": ["run", "m.onnx", "--reference"],
                                "run a module": ["run", "m.so", "--threads", "2"],
                                "simulate": ["run", "m.onnx", "--target=sim"],
                                "define": ["tc", "mm.tc", *sizes, "--reference"],
                                "schedule": ["tc", "mm.tc", *sizes, "--scheduler=max"]}.items():
            wrong += try_limits(what, arguments, folder)
        sys.exit(wrong > 0)


main()
