#!/usr/bin/env python3
"""Times schedules of one definition against each other: the steps of docs/guide/schedules.md (examples/ladder/), and Halide's
pipelines (examples/halide/) with the naive loops, the hand schedule and Kiln's own. Interleaved blocks, medians, ratios.

usage: bench/schedules.py [--threads N] [--seconds S] [--build DIR] [NAME]...
"""
import argparse
import pathlib
import subprocess
import tempfile

import compare
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAIVE, OWN = "naive loops", "Kiln's own"

# the sizes of Halide's applications
PIPELINES = {
    "blur": dict(H=2402, W=3202), "matmul": dict(M=1024, N=1024, K=1024),
    "conv_layer": dict(N=5, H=82, W=102, CI=128, CO=128, KH=3, KW=3), "harris": dict(H=2560, W=1536),
    "unsharp": dict(H=2560, W=1536), "max_filter": dict(C=3, H=1280, W=768), "histogram": dict(H=2560, W=1536),
    "stencil_chain": dict(H=2560, W=1536), "bilateral_grid": dict(H=2560, W=1536), "interpolate": dict(H=2560, W=1536),
    "local_laplacian": dict(H=2560, W=1536),
}


def compiled(kiln, definition, sizes, schedule, threads, scratch):
    """A session on the module that |schedule| (a file; None: Kiln's own) gives."""
    module = scratch / f"{len(list(scratch.iterdir()))}.so"
    command = [kiln, "compile", definition, "-o", module, "--threads", str(threads)]
    command += [w for n, v in sizes.items() for w in ("--dim", f"{n}={v}")]
    command += ["--schedule", schedule] if schedule else []
    subprocess.run(command, check=True)
    return compare.Kiln(module, threads)


def feeds_of(session):
    random = np.random.default_rng(3)
    feeds = {}
    for port in session.inputs:
        dtype, shape = compare.numpy_dtype(port.dtype.decode()), tuple(port.shape[:port.rank])
        values = random.integers(0, 200, shape) if dtype.kind in "iu" else random.random(shape) + 0.05
        feeds[port.name.decode()] = np.asarray(values, dtype)
    return feeds


def measure(title, rows, threads, seconds, baseline):
    """Prints the median of every row and its ratio to |baseline|; |rows|: {label: session}."""
    feeds = feeds_of(next(iter(rows.values())))
    outputs, first = {}, {}
    for label, session in rows.items():
        session.bind(feeds)
        first[label] = compare.block(session.run, 0)[0]
        outputs[label] = [a.astype(np.float64) for a in session.outputs]
    times = {label: [ms] if ms > 2000 else [] for label, ms in first.items()}
    for _ in range(3):
        for label, session in rows.items():
            if first[label] <= 2000:
                times[label] += compare.block(session.run, seconds / 3)
    print(f"{title}, {threads} threads")
    base = np.median(times[baseline])
    for label, session in rows.items():
        ms = np.median(times[label])
        error = compare.rel_l2(outputs[label], outputs[baseline])
        print(f"  {label:32} {ms:10.3f} ms {base / ms:8.2f}x  rel. L2 {error:.1e}", flush=True)
        session.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each schedule")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("names", nargs="*", metavar="NAME", help="ladder, or pipelines (all)")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    kiln = args.build / "kiln"
    for name in args.names or ["ladder", *PIPELINES]:
        folder = ROOT / "examples" / ("ladder" if name == "ladder" else "halide")
        definition = folder / ("matmul.tc" if name == "ladder" else f"{name}.tc")
        sizes = PIPELINES["matmul" if name == "ladder" else name]
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            naive = scratch / "naive.schedule"
            naive.write_text("")
            steps = sorted(folder.glob("*.schedule" if name == "ladder" else f"{name}*.schedule"))
            files = ({} if name == "ladder" else {NAIVE: naive}) | {s.stem: s for s in steps} | {OWN: None}
            rows = {label: compiled(kiln, definition, sizes, file, args.threads, scratch) for label, file in files.items()}
            text = " ".join(f"{n}={v}" for n, v in sizes.items())
            measure(f"{name} {text}", rows, args.threads, args.seconds, next(iter(rows)))


if __name__ == "__main__":
    main()
