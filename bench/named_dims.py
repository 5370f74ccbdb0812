#!/usr/bin/env python3
"""A random sample of graphs with named dimensions: exported, compiled once for ranges, and right at points of them.

usage: named_dims.py BUILD [--sample 60] [--seed S] [--groups vision,encoders,audio,graphs,detection] [--exporters script,dynamo]
                     [--read] [--points 12] [--seconds 300] [--threads 2] [--keep DIR] [--json FILE] [NAME...]

Models are drawn by the rule of bench/named_models.py, a group in turn, until --sample graphs were exported; NAMEs take the sample's
place. Each model is exported by both of PyTorch's exporters with named dimensions: batch 1..8, tokens and frames 1..512, samples of
a waveform 400..16,000, heights and widths 32..1,024, nodes 1..512, edges 1..1,024. A graph that ONNX Runtime does not run at all points is
exported again with heights and widths as numbers, or left out: the exporter then took an extent for a number.

With --read graphs are only read, that is lowered for all parts of their ranges without making code, which tells what is refused.

A line each: whether it compiled, or the first line of the error; how many points are right; the greatest error, and the bound
that it is beside. Points: the least values, the greatest, and others of the corners, primes and chance, of at most --volume
elements in batch x height x width. The error of an output is its greatest difference, by the greatest element. What is right is said by the original
module in double precision, where ONNX Runtime agrees with that to 1e-3, and 10 times ONNX Runtime's error, and not less than
1e-5, is the bound; elsewhere ONNX Runtime says it, within 1e-4.
"""

import argparse
import copy
import json
import logging
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]
import named_models  # noqa: E402
from decoders import error_of, first_line  # noqa: E402

PRIMES = (2, 3, 5, 7, 13, 31, 61, 127, 251, 509, 1021, 4093, 8191)
OPSETS = {"script": 17, "dynamo": 20}
AGREES, FLOOR, BESIDE = 1e-3, 1e-5, 1e-4
DOUBLE = 1 << 19  # elements of all inputs up to which the module runs in double precision


def points_of(made, n, seed, volume):
    """Choices of the dimensions: the corners' least and greatest first."""
    rng, ranges = random.Random(seed), made.ranges

    def at(value, d):
        least, most, step = ranges[d]
        return max(least, min(most, value // step * step))

    def some(d):
        least, most, step = ranges[d]
        primes = [p for p in PRIMES if least <= p <= most] if step == 1 else []
        return at(rng.choice([least, least + step, most, most - step, *primes[:4], *primes[-2:], rng.randint(least, most)]), d)

    def held(point):
        point = dict(point)
        while point.get("batch", 1) * point.get("height", 1) * point.get("width", 1) > volume:
            if point.get("batch", 1) > 1:
                point["batch"] -= 1
            else:
                point["width"] = at(point["width"] // 2, "width")
                point["height"] = at(point["height"] // 2, "height") if point["height"] > point["width"] else point["height"]
        return tuple(sorted(point.items()))

    out = dict.fromkeys([held({d: r[0] for d, r in ranges.items()}), held({d: r[1] for d, r in ranges.items()})])
    for _ in range(100 * n):
        if len(out) >= n:
            break
        out[held({d: some(d) for d in ranges})] = None
    return [dict(p) for p in out]


# --- a graph, in a process of its own ---


def example(made):
    return {d: min(r[1], max(r[0] + r[2] * (3 + i), 2)) for i, (d, r) in enumerate(made.ranges.items())}


def export(made, how, path, torch):
    named = [{i: a for i, a in enumerate(axes) if isinstance(a, str)} for axes in made.axes]
    given = tuple(named_models.give(made, example(made), 0, torch))
    if how == "script":
        torch.onnx.export(made.module, given, str(path), dynamo=False, opset_version=OPSETS[how], input_names=made.names,
                          dynamic_axes=dict(zip(made.names, named)))  # fmt: skip
    else:
        torch.onnx.export(made.module, given, str(path), dynamo=True, opset_version=OPSETS[how], input_names=made.names,
                          dynamic_shapes=(tuple(named),), verbose=False)  # fmt: skip


def reference_runs(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return names, lambda given: session.run(None, {n: t for n, t in given.items() if n in names})


def exported(made, how, path, points, o, torch):
    """The inputs that the graph has, and a reference for it that runs at all points."""
    export(made, how, path, torch)
    names, run = reference_runs(path, o.threads)
    near = {d: min(r[1], 3 * r[0] // r[2] * r[2] or r[2]) for d, r in made.ranges.items()}
    for point in (points[0], near) if o.read else (points[0], points[-1]):
        run({n: t.numpy() for n, t in zip(made.names, named_models.give(made, point, 1, torch))})
    return names, run


def check_point(made, exact, module, names, run, point, torch):
    given = named_models.give(made, point, 1, torch)
    arrays = {n: t.numpy() for n, t in zip(made.names, given)}
    try:
        beside = run(arrays)
    except Exception as e:  # noqa: BLE001: of any kind: what the exporter took for a number
        return {"dims": point, "no_reference": str(e)[:160]}
    want = None
    if exact is not None and sum(t.numel() for t in given) <= DOUBLE:
        try:
            with torch.no_grad():
                want = [t.numpy() for t in exact(*[t.double() if t.dtype == torch.float32 else t for t in given])]
        except Exception:  # noqa: BLE001: of any kind: a module of one precision only
            want = None
    start = time.perf_counter()
    got = module.run(**{n: t for n, t in arrays.items() if n in names})
    seconds, rows = time.perf_counter() - start, []
    for i, (g, b) in enumerate(zip(got, beside)):
        apart = error_of(b, want[i]) if want is not None and i < len(want) else float("inf")
        error, bound = (error_of(g, want[i]), max(10 * apart, FLOOR)) if apart <= AGREES else (error_of(g, b), BESIDE)
        rows.append((error / bound, error, bound, i))
    _, error, bound, i = max(rows)
    return {"dims": point, "error": error, "bound": bound, "output": i, "right": error <= bound, "seconds": seconds}


def dim_options(ranges):
    return [x for d, (least, most, step) in ranges.items() for x in ("--dim", f"{d}={least}..{most}" + (f"/{step}" if step > 1 else ""))]


def compile_graph(path, options, out, o):
    """The first line of the error, if there is one, and the seconds of the processor that it took."""
    command = [pathlib.Path(o.build) / "kiln", "compile", path, *options, "--threads", str(o.threads), "--no-cache", "--quiet", "-o", out]

    def bounded():
        resource.setrlimit(resource.RLIMIT_CPU, (o.seconds, o.seconds))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", preexec_fn=bounded)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode and seconds > 0.98 * o.seconds:
        return first_line(None, o.seconds), seconds
    return (first_line(done, o.seconds) if done.returncode else None), seconds


def read_graph(path, ranges):
    """The same of reading a model, up to its programs."""
    from kiln import _compile, errors

    options, start = _compile.Options(), time.process_time()
    options.dims(ranges)
    error = None
    try:
        _compile.load_model(str(path), options)
    except errors.Error as e:
        error = str(e).replace("\n", " ")
    return error, time.process_time() - start


def child(name, how, o):
    """Exports a graph and checks it; the last line of JSON is its row."""
    import torch

    torch.set_num_threads(o.threads)
    row = {"graph": f"{name} {how}", "refused": [], "points": [], "seconds": 0.0}
    folder = pathlib.Path(o.keep or tempfile.mkdtemp()) / f"{name.replace('/', '.')}.{how}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "graph.onnx"
    try:
        made = named_models.make(name, o.seed, torch)
    except NotImplementedError as e:
        print(json.dumps({**row, "left_out": str(e)}), flush=True)
        return
    choices, words = [made], []
    if "height" in made.ranges and "batch" in made.ranges:
        size = max(224, made.ranges["height"][0]) // made.ranges["height"][2] * made.ranges["height"][2]
        choices.append(named_models.without_sizes(made, size))
    for made in choices:
        points = points_of(made, o.points, o.seed, o.volume)
        try:
            names, run = exported(made, how, path, points, o, torch)
            break
        except Exception as e:  # noqa: BLE001: of any kind
            words.append(f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:160]}")
    else:
        print(json.dumps({**row, "not_exported": words[-1]}), flush=True)
        return
    options = dim_options(made.ranges)
    row |= {"dims": options[1::2], "n": len(points)}
    (folder / "options").write_text(" ".join(options) + "\n")
    print(json.dumps({**row, "begun": "compile"}), flush=True)
    if o.read:
        error, row["seconds"] = read_graph(path, made.ranges)
    else:
        error, row["seconds"] = compile_graph(path, options, folder / "m.so", o)
    if error or o.read:
        row["refused"] += [error] if error else []
    else:
        check_points(row, made, folder, names, run, points, torch)
    print(json.dumps({**row, "done": True}), flush=True)


def check_points(row, made, folder, names, run, points, torch):
    import kiln

    try:
        exact = copy.deepcopy(made.module).double()
    except Exception:  # noqa: BLE001: of any kind
        exact = None
    module = kiln.load(folder / "m.so")
    for point in points:
        print(json.dumps({**row, "begun": point}), flush=True)
        try:
            row["points"].append(check_point(made, exact, module, names, run, point, torch))
        except Exception as e:  # noqa: BLE001: of any kind
            row["points"].append({"dims": point, "right": False, "failed": f"{type(e).__name__}: {e}"[:300]})


# --- the sample ---


def import_libraries(o):
    os.environ["HF_HUB_OFFLINE"] = "1"  # a configuration that would fetch a file is left out
    os.environ["KILN_LIBRARY"] = str(pathlib.Path(o.build).resolve())
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    import onnxruntime  # noqa: F401
    import timm  # noqa: F401
    import torch
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    torch.set_num_threads(1)


def run_child(name, how, o):
    """A row, made by a fork of this process, which has imported the libraries but used no threads."""
    end, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(begin, 1)
            resource.setrlimit(resource.RLIMIT_AS, (o.memory << 30, o.memory << 30))
            resource.setrlimit(resource.RLIMIT_CPU, (3 * o.seconds, 3 * o.seconds))
            child(name, how, o)
            code = 0
        except BaseException:  # noqa: BLE001: of any kind: the parent reads the last line
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(code)
    os.close(begin)
    with os.fdopen(end, errors="replace") as pipe:
        out = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    last = None
    for line in out.splitlines():
        if line.startswith("{"):
            last = json.loads(line)
    last = last or {"graph": f"{name} {how}", "points": [], "refused": [], "seconds": 0.0}
    if not any(k in last for k in ("done", "left_out", "not_exported")):
        words = f"killed by signal {-code}" if code < 0 else (out.strip().splitlines() or ["?"])[-1][:200]
        if "begun" in last:
            last["refused"].append(f"{words} at {last['begun']}")
        else:
            last["not_exported"] = words
    return last


def text_of(row):
    if "left_out" in row or "not_exported" in row:
        return f"{row['graph']:48} {'left out' if 'left_out' in row else 'not exported'}: {row.get('left_out', row.get('not_exported'))[:120]}"
    told = [p for p in row["points"] if "no_reference" not in p]
    errors = [p for p in told if "error" in p]
    worst = max(errors, key=lambda p: p["error"] / p["bound"], default=None)
    numbers = f"{worst['error']:9.1e} {worst['bound']:8.1e}" if worst else f"{'-':>9} {'-':>8}"
    words = [*row["refused"], *[f"{p['dims']}: {p['failed']}" for p in told if "failed" in p]]
    words += [f"wrong at {p['dims']}, output {p['output']}: {p['error']:.1e}" for p in errors if not p["right"]]
    right = f"{sum(p['right'] for p in told)}/{len(told)}"
    return (f"{row['graph']:48} {'no' if row['refused'] else 'yes':>8} {right:>6} {numbers} {row['seconds']:7.1f}  {' '.join(row['dims'])}"
            f"  {'; '.join(words)[:400]}")  # fmt: skip


def is_right(row):
    told = [p for p in row["points"] if "no_reference" not in p]
    return not row["refused"] and bool(told) and all(p["right"] for p in told)


def sampled(o):
    """Rows of graphs, until as many were exported as are wanted."""
    n = 0
    for name in o.names or named_models.draw(o.seed, o.groups.split(",")):
        for how in o.exporters.split(","):
            row = run_child(name, how, o)
            n += "dims" in row
            yield row
            if "left_out" in row:
                break
            if n >= o.sample and not o.names:
                return


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build")
    arguments.add_argument("names", nargs="*", metavar="NAME", help="GROUP/SOURCE/MODEL")
    arguments.add_argument("--sample", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--groups", default=",".join(named_models.GROUPS))
    arguments.add_argument("--exporters", default="script,dynamo")
    arguments.add_argument("--read", action="store_true", help="read the graphs only")
    arguments.add_argument("--points", type=int, default=12)
    arguments.add_argument("--volume", type=int, default=1 << 20)
    arguments.add_argument("--seconds", type=int, default=300, help="of the processor, for a compilation")
    arguments.add_argument("--memory", type=int, default=16, help="GiB of addresses that a graph's process may take")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--keep", help="where graphs and modules stay, a folder each")
    arguments.add_argument("--json", help="a file for the rows")
    o = arguments.parse_args()
    import_libraries(o)
    print(f"{'graph':48} {'compiled':>8} {'right':>6} {'error':>9} {'bound':>8} {'seconds':>7}  why not", flush=True)
    every = []
    for row in sampled(o):
        every.append(row)
        print(text_of(row), flush=True)
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(every, indent=1) + "\n")
    every = [r for r in every if "dims" in r]
    if o.read:
        print(f"{sum(not r['refused'] for r in every)} of {len(every)} graphs are taken when read")
        return any(r["refused"] for r in every)
    right = sum(map(is_right, every))
    print(f"{right} of {len(every)} graphs are compiled and right at every point")
    return right != len(every)


if __name__ == "__main__":
    sys.exit(main())
