#!/usr/bin/env python3
"""Halide's example pipelines in the notation (examples/halide/) against NumPy.

usage: halide.py KILN

Every definition runs with Kiln's own schedule and with each of its hand schedules (NAME.schedule, NAME.*.schedule), at the sizes
below; the ragged ones leave partial tiles.
"""
import pathlib
import subprocess
import sys
import tempfile

import environment

environment.enter("halide")

import numpy as np  # noqa: E402
import halide_reference as reference  # noqa: E402

FOLDER = environment.ROOT / "examples/halide"
RANDOM = np.random.default_rng(7)


def image(*shape):
    return RANDOM.random(shape, dtype=np.float32)


def pixels(high, *shape):
    return RANDOM.integers(0, high, shape)


# NAME: (sizes, a function that makes the inputs, absolute and relative tolerance)
CASES = {
    "blur": ([dict(H=67, W=133), dict(H=130, W=514)],
             lambda H, W: dict(In=pixels(21846, H, W).astype(np.uint16)), 0, 0),
    "matmul": ([dict(M=65, N=97, K=43), dict(M=128, N=128, K=128)],
               lambda M, N, K: dict(A=image(M, K), B=image(K, N)), 1e-5, 1e-5),
    "conv_layer": ([dict(N=2, H=11, W=13, CI=24, CO=40, KH=3, KW=3), dict(N=1, H=18, W=34, CI=32, CO=32, KH=3, KW=3)],
                   lambda N, H, W, CI, CO, KH, KW: dict(In=image(N, H, W, CI), Filter=image(KH, KW, CI, CO) - 0.5,
                                                        Bias=image(CO)), 1e-4, 1e-4),
    "harris": ([dict(H=45, W=77), dict(H=132, W=260)], lambda H, W: dict(In=image(3, H, W)), 1e-6, 1e-4),
    "unsharp": ([dict(H=45, W=77), dict(H=128, W=256)], lambda H, W: dict(In=image(3, H, W) + 0.1), 1e-5, 1e-5),
    "max_filter": ([dict(C=2, H=45, W=77)], lambda C, H, W: dict(In=image(C, H, W)), 0, 0),
    "histogram": ([dict(H=45, W=77), dict(H=128, W=256)],
                  lambda H, W: dict(In=pixels(256, 3, H, W).astype(np.uint8)), 1, 0),
    "stencil_chain": ([dict(H=77, W=301), dict(H=128, W=256)],
                      lambda H, W: dict(In=pixels(65536, H, W).astype(np.uint16)), 0, 0),
    "bilateral_grid": ([dict(H=40, W=72), dict(H=45, W=77)], lambda H, W: dict(In=image(H, W)), 1e-5, 1e-4),
    "interpolate": ([dict(H=64, W=96), dict(H=45, W=77)],
                    lambda H, W: dict(In=np.concatenate([image(3, H, W), (image(1, H, W) < 0.3).astype(np.float32)])),
                    1e-5, 1e-4),
    "local_laplacian": ([dict(H=64, W=96), dict(H=45, W=77)],
                        lambda H, W: dict(In=image(3, H, W), alpha=np.float32(0.1), beta=np.float32(0.8)), 1e-5, 1e-4),
}


def run(kiln, name, sizes, inputs, schedule):
    """The output, or None after a message."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", **inputs)
        command = [kiln, "tc", f"{FOLDER}/{name}.tc", "--inputs", f"{folder}/in.npz", "--outputs", f"{folder}/out.npz"]
        for size, value in sizes.items():
            command += ["--size", f"{size}={value}"]
        if schedule:
            command += ["--schedule", str(schedule)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            with np.load(f"{folder}/out.npz") as out:
                return next(iter(out.values()))
        print(done.stderr)
        return None


def check(kiln, name, sizes, schedule):
    _, make, atol, rtol = CASES[name]
    inputs = make(**sizes)
    want = getattr(reference, name)(**inputs).astype(np.float64)
    got = run(kiln, name, sizes, inputs, schedule)
    what = f"{name} {sizes} {schedule.name if schedule else 'own schedule'}"
    if got is None:
        print(f"FAILED {what}")
        return False
    if got.shape != want.shape:
        print(f"FAILED {what}: shape must be {want.shape}, got {got.shape}")
        return False
    wrong = np.abs(got - want) > atol + rtol * np.abs(want)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        print(f"FAILED {what}: {wrong.sum()} elements differ; [{at}] must be {want[at]}, got {got[at]}")
        return False
    print(f"ok {what}")
    return True


def main():
    kiln = sys.argv[1]
    only = sys.argv[2:] or CASES
    failed = 0
    for name in only:
        schedules = [None] + sorted(FOLDER.glob(f"{name}.schedule")) + sorted(FOLDER.glob(f"{name}.*.schedule"))
        for sizes in CASES[name][0]:
            for schedule in schedules:
                failed += not check(kiln, name, sizes, schedule)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
