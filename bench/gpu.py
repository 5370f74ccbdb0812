#!/usr/bin/env python3
"""Times Kiln on this machine's GPU against PyTorch: same inputs, replays of graphs, interleaved, medians.

usage: bench/gpu.py [--dtypes f16,f32] [--limit SECONDS] [--jobs N] [--json FILE] [--build DIR] [--no-inductor] [--autotune]
                    [--target cuda] [MODEL.onnx | NAME]...

For every model (default: those of bench/models.txt) and type a child process compiles with `kiln compile --target`, runs the
module by libkiln_rt.so on tensors of PyTorch, and times it beside PyTorch eager and Inductor, f16 in channels-last, both
captured as CUDA graphs; the child has --limit seconds (300), and as much again without Inductor where that
is what takes too long: what hangs or crashes loses one row. --jobs children compile at once; once all of them are ready they are
timed one by one, alone on the GPU. Prints a table:
milliseconds, ratio = Inductor / Kiln (and eager / Kiln), and the relative L2 error of each against PyTorch eager in f32
without TF32. The JSON is written anew behind each row. Weights that are not in build/models are made by models/weights.py in
a temporary folder.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kiln_rt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 15
READY = "ready to be timed"
DL_TYPES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "f64": (2, 64), "i64": (0, 64), "i32": (0, 32), "bool": (6, 8),
            "u8": (1, 8), "i8": (0, 8)}


def torch_type(text):
    import torch
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64,
            "i32": torch.int32, "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8}[text]


class Kiln(kiln_rt.Session):
    """A compiled module and one asynchronous session in PyTorch's stream."""

    def __init__(self, build, path, stream):
        super().__init__(build, path, is_async=1, stream=stream)

    def dl_tensor(self, t, port):
        return kiln_rt.dl_tensor(t.data_ptr(), (2, t.device.index or 0), t.shape, *DL_TYPES[port.dtype.decode()])

    def bind(self, feeds):
        import torch
        given = [feeds[p.name.decode()].to(torch_type(p.dtype.decode())).contiguous() for p in self.inputs]
        self.outputs = [torch.empty(tuple(p.shape[:p.rank]), dtype=torch_type(p.dtype.decode()), device="cuda")
                        for p in self.output_ports]
        self.bind_tensors([self.dl_tensor(t, p) for t, p in zip(given, self.inputs)],
                          [self.dl_tensor(t, p) for t, p in zip(self.outputs, self.output_ports)], given)


def make_feeds(path):
    """Inputs by name, on the CPU: floats uniform in [-1, 1); integers 0 or 1, valid as indices, 1 where they are a vector."""
    import numpy as np
    import onnx
    import torch
    rng, feeds = np.random.default_rng(0), {}
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    for i in graph.input:
        if i.name in weights:
            continue
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        real = np.issubdtype(dtype, np.floating)
        data = rng.uniform(-1, 1, shape) if real else rng.integers(0 if len(shape) > 1 else 1, 2, shape)
        feeds[i.name] = torch.from_numpy(np.asarray(data, dtype))
    return feeds


def rel_l2(got, want):
    """The largest relative L2 error of the outputs, of any stream; infinite where a NaN is in one and not in the other."""
    import torch
    torch.cuda.synchronize()
    worst = 0.0
    for g, w in zip(got, want):
        g, w = g.double(), w.double()
        if g.shape != w.shape or bool((torch.isfinite(g) != torch.isfinite(w)).any()):
            return math.inf
        known = torch.isfinite(w)
        norm, error = float(w[known].norm()), float((g[known] - w[known]).norm())
        worst = max(worst, error / norm if norm else error)
    return worst


def captured(function, stream):
    """Replays of |function|, as one graph."""
    import torch
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function()
    torch.cuda.synchronize()
    return graph.replay, out


def time_all(runs):
    """Medians of milliseconds by name: blocks of replays between events, in turns."""
    import torch
    counts, times = {}, {name: [] for name in runs}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def block(run, n):
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / n

    for name, run in runs.items():
        block(run, 3)
        counts[name] = max(1, min(200, int(20 / max(block(run, 3), 1e-3))))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(block(run, counts[name]))
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def compile_module(o, path, dtype, out):
    command = [str(o.build / "kiln"), "compile", str(path), f"--target={o.target}", "-o", str(out)]
    command += [] if dtype == "f32" else [f"--dtype={dtype}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"kiln exited with {done.returncode}"])[0])


def put_kiln(o, path, dtype, feeds, stream, row, runs, scratch):
    module = pathlib.Path(scratch) / "model.kmod"
    compile_module(o, path, dtype, module)
    kiln = Kiln(o.build, module, stream)
    kiln.bind(feeds)
    for _ in range(3):  # the second is captured
        kiln.run()
    kiln.wait()
    row["kernels"] = kiln.launches
    runs["kiln"] = kiln.run
    return kiln


def one(o, path, dtype):
    """The row of one model, in this process."""
    import torch
    sys.path.insert(0, str(ROOT / "bench"))
    import torch_model
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    row, runs, results = {"model": path.stem, "dtype": dtype}, {}, {}
    stream = torch.cuda.Stream()
    feeds = {name: t.cuda() for name, t in make_feeds(path).items()}
    with tempfile.TemporaryDirectory() as scratch, torch.cuda.stream(stream):
        try:
            kiln = put_kiln(o, path, dtype, feeds, stream.cuda_stream, row, runs, scratch)
            results["kiln"] = kiln.outputs
        except (RuntimeError, OSError) as e:
            row["kiln_error"] = str(e)[:300]
        writer, want = torch_model.load(path, feeds, "cuda")
        torch.backends.cudnn.benchmark = True
        if dtype == "f32":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.tf32
        half = dtype != "f32"
        model = torch_model.Model(writer, torch_type(dtype), channels_last=half).cuda().eval()
        given = [feeds[i].to(torch_type(dtype)) if feeds[i].is_floating_point() else feeds[i] for i in writer.inputs]
        if half:
            given = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in given]
        contenders = {"eager": model}
        if not o.no_inductor:
            contenders["inductor"] = torch.compile(model, mode="max-autotune-no-cudagraphs" if o.autotune else None)
        for name, function in contenders.items():
            try:
                runs[name], results[name] = captured(lambda f=function: f(*given), stream)
                runs[name]()
            except Exception as e:  # noqa: BLE001  (whatever a compiler of others does, the row goes on)
                runs.pop(name, None)
                row[f"{name}_error"] = str(e).splitlines()[0][:300]
        torch.cuda.synchronize()
        for name, outputs in results.items():
            if name in runs:
                row[f"{name}_rel_l2"] = rel_l2(outputs, want)
        print(READY, flush=True)
        sys.stdin.readline()  # until the parent lets it run alone
        for name, ms in time_all(runs).items():
            row[f"{name}_ms"] = ms
    for name in ("eager", "inductor"):
        if f"{name}_ms" in row and "kiln_ms" in row:
            row[f"{name}_ratio"] = row[f"{name}_ms"] / row["kiln_ms"]
    return row


class Child:
    """The row of one model, measured in a process of its own."""

    def __init__(self, o, path, dtype, no_inductor):
        command = [sys.executable, __file__, "--one", "--dtypes", dtype, "--build", str(o.build), "--target", o.target, str(path)]
        command += [flag for flag, given in (("--no-inductor", no_inductor), ("--autotune", o.autotune), ("--tf32", o.tf32))
                    if given]
        self.row, self.limit, self.late = {"model": path.stem, "dtype": dtype}, o.limit, False
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.clock = threading.Timer(o.limit, self.stop)
        self.clock.start()

    def stop(self):
        self.late = True
        self.process.kill()

    def prepare(self):
        """Returns once the child has only to be timed, or has ended."""
        for line in self.process.stdout:
            if line.startswith(READY):
                return

    def finish(self):
        """Lets the child time what it has, and returns its row."""
        out = self.process.communicate("go\n")[0]
        self.clock.cancel()
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if self.process.returncode == 0 and lines:
            return json.loads(lines[-1])
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines() or [f"exited with {self.process.returncode}"]
        return self.row | {"error": f"more than {self.limit:g} s" if self.late else said[-1][:300]}


def measure(o, path, dtype, all_ready, alone):
    """The row of one model, timed while the lock |alone| is held; without Inductor where that took too long."""
    child = Child(o, path, dtype, o.no_inductor)
    child.prepare()
    all_ready.wait()
    with alone:
        row = child.finish()
        if child.late and not o.no_inductor:
            child = Child(o, path, dtype, True)
            child.prepare()
            row = child.finish() | {"inductor_error": row["error"]}
    return row


def measure_all(o, tasks):
    """The rows of |tasks|, pairs of a model and a type, in their order."""
    with concurrent.futures.ThreadPoolExecutor(len(tasks)) as pool:
        all_ready, alone = threading.Barrier(len(tasks)), threading.Lock()
        yield from pool.map(lambda task: measure(o, *task, all_ready, alone), tasks)


def find_model(text, scratch):
    path = pathlib.Path(text)
    if path.suffix == ".onnx":
        return path
    for made in (ROOT / "build" / "models" / f"{text}.onnx", pathlib.Path(scratch) / f"{text}.onnx"):
        if made.exists():
            return made
    subprocess.run([sys.executable, str(ROOT / "models" / "weights.py"), scratch, text], check=True, capture_output=True)
    return made


def figure(row, key, form):
    return form.format(row[key]) if key in row else "-"


def print_row(row):
    print("{:24} {:5} {:>9} {:>9} {:>9} {:>7} {:>7} {:>8} {:>8} {:>7}  {}".format(
        row["model"], row["dtype"], figure(row, "kiln_ms", "{:.3f}"), figure(row, "eager_ms", "{:.3f}"),
        figure(row, "inductor_ms", "{:.3f}"), figure(row, "eager_ratio", "{:.2f}"), figure(row, "inductor_ratio", "{:.2f}"),
        figure(row, "kiln_rel_l2", "{:.1e}"), figure(row, "inductor_rel_l2", "{:.1e}"), figure(row, "kernels", "{}"),
        row.get("error") or row.get("kiln_error") or row.get("inductor_error") or ""), flush=True)


def print_means(rows):
    for dtype in sorted({r["dtype"] for r in rows}):
        for key, what in (("inductor_ratio", "Inductor"), ("eager_ratio", "eager")):
            known = [r[key] for r in rows if r["dtype"] == dtype and key in r]
            if known:
                mean = math.exp(sum(map(math.log, known)) / len(known))
                print(f"{dtype}: geometric mean of {what} / Kiln over {len(known)} models: {mean:.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*")
    p.add_argument("--dtypes", default="f16,f32")
    p.add_argument("--limit", type=float, default=300)
    p.add_argument("--jobs", type=int, default=1, help="models compiled at once")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--target", default="cuda")
    p.add_argument("--no-inductor", action="store_true")
    p.add_argument("--autotune", action="store_true", help="Inductor with max-autotune")
    p.add_argument("--tf32", action="store_true", help="PyTorch may use TF32 where it is timed in f32")
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.one:
        print(json.dumps(one(o, pathlib.Path(o.models[0]), o.dtypes)))
        return 0
    names = o.models or [line.strip() for line in (ROOT / "bench" / "models.txt").read_text().splitlines()
                         if line.strip() and not line.startswith("#")]
    rows = []
    print(f"{'model':24} {'type':5} {'kiln ms':>9} {'eager ms':>9} {'induct ms':>9} {'eager/k':>7} {'ind/k':>7} {'err':>8} "
          f"{'ind err':>8} {'kernels':>7}")
    tasks = [(name, dtype) for name in names for dtype in o.dtypes.split(",")]
    for first in range(0, len(tasks), o.jobs):
        with tempfile.TemporaryDirectory() as scratch:
            batch = [(find_model(name, scratch), dtype) for name, dtype in tasks[first:first + o.jobs]]
            for row in measure_all(o, batch):
                rows.append(row)
                print_row(row)
                if o.json:
                    o.json.write_text(json.dumps(rows, indent=1))
    print_means(rows)
    return 1 if any("error" in r or "kiln_error" in r for r in rows) else 0


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "kiln-inductor"))
    sys.exit(main())
