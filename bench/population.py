#!/usr/bin/env python3
"""Kiln on models that nobody chose: a random sample of torchvision, timm and transformers, beside the peers of the device.

usage: bench/population.py [--sample 40] [--seed 1] [--target cpu|cuda] [--dtype f32|f16|bf16] [--batch 1] [--threads N]
                           [--exporters script,dynamo] [--autotune K] [--sources torchvision,timm,transformers]
                           [--most-params 60] [--limit 600] [--jobs N] [--json FILE] [NAME...]

The sample is drawn from the libraries' own catalogues by the rule of bench/zoo.py; NAMEs (timm/resnet18) take its place. A model has
random weights and is exported to ONNX by both of PyTorch's exporters; Kiln compiles each export untuned. In the same process,
in turns, medians of

  cuda   the original PyTorch module, eager and compiled by Inductor (the first K also with max-autotune), with SDPA, images in
         contiguous and in channels-last layout, whichever is faster; all as CUDA graphs
  cpu    ONNX Runtime and OpenVINO on the same exports, whichever export is faster for each

ratio = the best peer / Kiln. Errors are against the original module in double precision. Rows below 1 name the kernel that
takes most of Kiln's time. --jobs models are prepared at once, in processes of their own, and then timed one by one. The summary has
the geometric mean, the 5th percentile and the least ratio for each exporter, and what failed.
"""
import argparse
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import zoo  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 7
READY = "ready to be timed"
EXPORTERS = {"script": {"dynamo": False, "opset_version": 17}, "dynamo": {"dynamo": True, "opset_version": 20}}


# --- one model, in a process of its own ---


def export(model, inputs, how, path, torch):
    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return tuple(zoo.tensors(self.inner(x), torch))

    torch.onnx.export(Flat().eval(), tuple(inputs), str(path), input_names=["x"], **EXPORTERS[how])


def compile_module(o, path, out):
    command = [str(o.build / "kiln"), "compile", str(path), f"--target={o.target}", "-o", str(out), "--no-cache", "--quiet"]
    command += [] if o.dtype == "f32" else [f"--dtype={o.dtype}"]
    command += ["--threads", str(o.threads)] if o.target == "cpu" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"kiln exited with {done.returncode}"])[0])


def costly_kernel(o, module):
    """The kernel that takes most of a run, its share, and the nodes that it computes."""
    command = [str(o.build / "kiln"), "bench", str(module), "--profile", "--iterations", "5", "--quiet"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith("kernel ")), len(lines))
    part = lines[at + 1].split() if at + 1 < len(lines) else []
    return f"{part[0]} {part[3]} % ({part[-1][:60]})" if len(part) > 6 else ""


def relative_error(got, want):
    """The largest relative L2 error of the results; infinite where one is not a number and the other is."""
    worst = 0.0
    for g, w in zip(got, want):
        g, w = g.double().cpu(), w.double().cpu()
        if g.shape != w.shape or bool((g.isfinite() != w.isfinite()).any()):
            return math.inf
        known = w.isfinite()
        norm, off = float(w[known].norm()), float((g[known] - w[known]).norm())
        worst = max(worst, off / norm if norm else off)
    return worst


def medians(runs, seconds, wait):
    """Milliseconds by name: blocks of runs, in turns."""
    counts, times = {}, {name: [] for name in runs}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        wait()
        counts[name] = max(1, min(500, int(seconds / ROUNDS / max(time.perf_counter() - start, 1e-6))))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()  # caches as in the runs that follow
            wait()
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            wait()
            times[name].append((time.perf_counter() - start) * 1e3 / counts[name])
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def add_cpu(o, how, path, module, inputs, runs, results, row, torch):
    import kiln_rt
    import numpy as np
    import onnxruntime as ort

    x = np.ascontiguousarray(inputs[0].numpy())
    kinds = {"f": 2, "i": 0, "u": 1, "b": 6}
    session = kiln_rt.Session(o.build, module, threads=o.threads)
    names = {"f32": "float32", "i64": "int64", "f64": "float64", "bool": "bool", "i32": "int32"}
    outputs = [np.zeros(p.shape[: p.rank], names[p.dtype.decode()]) for p in session.output_ports]
    view = [kiln_rt.dl_tensor(a.ctypes.data, (1, 0), a.shape, kinds[a.dtype.kind], 8 * a.dtype.itemsize) for a in [x, *outputs]]
    session.bind_tensors(view[:1], view[1:], x)
    session.outputs = outputs
    runs[f"kiln {how}"] = session.run
    results[f"kiln {how}"] = [torch.from_numpy(a) for a in session.run()]
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = o.threads, 1, 3
    peer = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    runs[f"onnxruntime {how}"] = lambda: peer.run(None, {"x": x})
    try:
        import openvino

        settings = {"INFERENCE_NUM_THREADS": o.threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
        request.infer({"x": x})
        runs[f"openvino {how}"] = lambda: request.infer({"x": x}, share_inputs=True, share_outputs=True)
    except Exception as e:  # noqa: BLE001  (a peer that refuses a model has no figure)
        row[f"openvino {how}"] = str(e).splitlines()[0][:200]


def add_gpu(o, how, module, inputs, runs, results, torch):
    import gpu

    session = gpu.Kiln(o.build, module, torch.cuda.current_stream().cuda_stream)
    session.bind({session.inputs[0].name.decode(): inputs[0]})
    for _ in range(3):  # the second is captured
        session.run()
    session.wait()
    runs[f"kiln {how}"], results[f"kiln {how}"] = session.run, session.outputs


def add_pytorch(o, model, inputs, runs, row, torch):
    """The original module in both layouts, eager and compiled."""
    import gpu

    modes = {"eager": None, "inductor": {}} | ({"autotuned": {"mode": "max-autotune-no-cudagraphs"}} if o.autotune else {})
    for layout in ("contiguous_format", "channels_last"):
        if layout == "channels_last" and inputs[0].dim() != 4:
            continue
        form = getattr(torch, layout)
        inner, given = model.to(memory_format=form), [t.contiguous(memory_format=form) for t in inputs]
        for name, options in modes.items():
            torch._dynamo.reset()
            function = inner if options is None else torch.compile(inner, **options)
            try:
                runs[f"{name} {layout}"], _ = gpu.captured(lambda f=function, g=given: f(*g), None)
            except Exception as e:  # noqa: BLE001  (whatever a compiler of others does, the row goes on)
                row[f"{name} {layout}"] = str(e).splitlines()[0][:200] if str(e) else type(e).__name__


def in_double(model, inputs, device, torch):
    """The model's results in double precision, on the CPU; a model that refuses its own input is not of the population."""
    exact = model.double().to(device)
    try:
        result = exact(*[t.to(device, torch.double) if t.is_floating_point() else t.to(device) for t in inputs])
    except (RuntimeError, ValueError, TypeError, IndexError) as e:
        raise NotImplementedError(f"{type(e).__name__}: {e}") from e
    want = zoo.tensors(result, torch)
    model.float().cpu()
    return [t.cpu() for t in want]


def one(o, name):
    import torch

    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    torch.set_num_threads(o.threads)
    model, inputs = zoo.build(name, o.batch, torch)
    row, runs, results = {"model": name, "batch": o.batch, "dtype": o.dtype}, {}, {}
    want = in_double(model, inputs, o.target, torch)
    half = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[o.dtype]
    with tempfile.TemporaryDirectory() as scratch:
        modules = {}
        for how in o.exporters.split(","):
            path, module = pathlib.Path(scratch) / f"{how}.onnx", pathlib.Path(scratch) / f"{how}.so"
            try:
                export(model, inputs, how, path, torch)
            except Exception as e:  # noqa: BLE001  (an exporter's failure is a row's remark)
                row[f"export {how}"] = f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"
                continue
            try:
                start = time.perf_counter()
                compile_module(o, path, module)
                row[f"compiled {how}"] = time.perf_counter() - start
                if o.target == "cpu":
                    add_cpu(o, how, path, module, inputs, runs, results, row, torch)
                else:
                    add_gpu(o, how, module, [t.cuda() for t in inputs], runs, results, torch)
                modules[how] = module
            except RuntimeError as e:
                row[f"kiln {how}"] = str(e)[:300]
        if o.target != "cpu":
            model = model.to(half).cuda()
            add_pytorch(o, model, [t.to(half).cuda() if t.is_floating_point() else t.cuda() for t in inputs], runs, row, torch)
        print(READY, flush=True)
        sys.stdin.readline()  # until the parent lets it run alone
        row["ms"] = medians(runs, o.seconds, (lambda: None) if o.target == "cpu" else torch.cuda.synchronize)
        row["error"] = {how: relative_error(r, want) for how, r in results.items()}
        peer = min((ms for run, ms in row["ms"].items() if not run.startswith("kiln")), default=None)
        row["ratio"] = {how: peer / row["ms"][f"kiln {how}"] for how in modules if peer}
        slow = [how for how, ratio in row["ratio"].items() if ratio < 1]
        row["kernel"] = {how: costly_kernel(o, modules[how]) for how in slow}
    return row


# --- the sample ---


class Child:
    """A model in a process of its own."""

    def __init__(self, o, name, autotune):
        command = [sys.executable, __file__, "--one", name]
        for key in ("target", "dtype", "batch", "threads", "exporters", "seconds", "build"):
            command += [f"--{key.replace('_', '-')}", str(getattr(o, key))]
        command += ["--autotune", "1"] if autotune else []
        self.name, self.limit, self.late, self.line, self.errors = name, o.limit, False, "", tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=os.environ | {"HF_HUB_OFFLINE": "1"})
        self.clock = threading.Timer(o.limit, self.stop)
        self.clock.start()

    def stop(self):
        self.late = True
        self.process.kill()

    def prepare(self):
        """Returns once the model has only to be timed, or its process has ended."""
        for self.line in self.process.stdout:
            if self.line.startswith((READY, "{")):
                return

    def finish(self):
        """The row of the model, or what ended its process; None where the rule leaves it out."""
        try:
            out = self.process.communicate("go\n")[0]
        except (BrokenPipeError, ValueError):
            out = ""
        self.clock.cancel()
        lines = [line for line in [self.line, *out.splitlines()] if line.startswith("{")]
        if lines:
            row = json.loads(lines[-1])
            return None if "left out" in row else row
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines() or ["no word"]
        named = [line for line in said if "Error: " in line] or said  # hints of PyTorch's follow an error
        why = f"more than {self.limit:g} s" if self.late else f"exited with {self.process.returncode}: {named[-1][:200]}"
        return {"model": self.name, "failed": why}


def measured(o, names, n_autotuned):
    """The rows of models that are prepared at once, and timed one by one."""
    children = [Child(o, name, i < n_autotuned) for i, name in enumerate(names)]
    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:
        list(pool.map(Child.prepare, children))
    return [child.finish() for child in children]


def print_row(o, row):
    if "failed" in row:
        print(f"{row['model'][:40]:40} {row['failed']}", flush=True)
        return
    peers = [n for n in row["ms"] if not n.startswith("kiln")]
    best = min(peers, key=row["ms"].get) if peers else "-"
    text = f"{row['model'][:40]:40} {row['ms'].get(best, math.nan):9.3f} {best:22}"
    for how in o.exporters.split(","):
        said = row.get(f"export {how}") or row.get(f"kiln {how}")
        text += f" {how}: {said[:80]}" if said else (
            f" {row['ms'][f'kiln {how}']:9.3f} {row['ratio'].get(how, math.nan):6.2f} {row['error'][f'kiln {how}']:8.0e}")
        text += f" {row['kernel'][how]}" if row["kernel"].get(how) else ""
    print(text, flush=True)


def summarize(o, rows):
    for how in o.exporters.split(","):
        ratios = sorted(r["ratio"][how] for r in rows if how in r.get("ratio", {}))
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{how}: {len(ratios)} of {len(rows)} models, best peer / Kiln: geometric mean {mean:.3f}, "
              f"5th percentile {ratios[int(0.05 * len(ratios))]:.3f}, least {ratios[0]:.3f}, {sum(r < 1 for r in ratios)} below 1")
    failures = [r["model"] for r in rows if "failed" in r or any(k.startswith("kiln ") for k in r)]
    print(f"failed or refused by Kiln: {', '.join(failures) or 'none'}")


def drawn(o, left_out):
    """Names of the sample, without end; those that the rule leaves out are appended to |left_out|."""
    import torch

    def admits(name):
        fits = zoo.admits(name, o.batch, torch, o.most_params * 1e6)
        left_out.extend([] if fits else [name])
        return fits

    return zoo.draw(o.sources.split(","), o.seed, admits)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--sample", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--target", default="cpu")
    p.add_argument("--dtype", default="f32")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--exporters", default="script,dynamo")
    p.add_argument("--autotune", type=int, default=0)
    p.add_argument("--sources", default="torchvision,timm,transformers")
    p.add_argument("--most-params", type=float, default=60, help="millions")
    p.add_argument("--limit", type=float, default=600, help="seconds a model may take")
    p.add_argument("--seconds", type=float, default=2, help="of timing, for each of the runs of a model")
    p.add_argument("--jobs", type=int, default=1, help="models prepared at once")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.one:
        try:
            print(json.dumps(one(o, o.names[0])))
        except NotImplementedError as e:
            print(json.dumps({"left out": str(e)}))
        return 0
    rows, left_out = [], []
    heads = "".join(f" {how + ' ms':>9} {'ratio':>6} {'error':>8}" for how in o.exporters.split(","))
    print(f"{'model':40} {'peer ms':>9} {'peer':22}{heads}")
    names = iter(o.names) if o.names else drawn(o, left_out)
    while batch := list(itertools.islice(names, min(o.jobs, (len(o.names) or o.sample) - len(rows)))):
        for name, row in zip(batch, measured(o, batch, o.autotune - len(rows))):
            if row is None:
                left_out.append(name)
                continue
            rows.append(row)
            print_row(o, row)
            if o.json:
                o.json.write_text(json.dumps(rows, indent=1))
    print(f"{len(left_out)} names drawn that the rule leaves out")
    summarize(o, rows)
    return 1 if any("failed" in r for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
