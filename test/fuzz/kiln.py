"""Kiln's library by ctypes, and a process that runs it, so that a crash or a hang is seen and not shared.

As a program (`kiln.py LIBRARY`) it is that process: it reads pickled jobs from stdin and writes pickled results to stdout.
"""
import contextlib
import ctypes as c
import os
import pathlib
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np

STATUS = ["OK", "BAD_INPUT", "UNSUPPORTED", "NO_MEMORY", "NO_BUDGET", "DEVICE_ERROR", "INTERNAL"]
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
          "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_}
NAMES = {np.dtype(t): n for n, t in DTYPES.items()}
POISON = 0xAB  # what outputs hold before a run: an element that nobody writes is seen


class DimValue(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_int64)]


class DimRange(c.Structure):
    _fields_ = [("name", c.c_char_p), ("least", c.c_int64), ("most", c.c_int64), ("step", c.c_int64)]


class CompileOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("dims", c.POINTER(DimValue)), ("n_dims", c.c_size_t), ("shapes", c.c_void_p), ("n_shapes", c.c_size_t),
                ("threads", c.c_int32), ("dump", c.c_char_p), ("on_dump", c.c_void_p), ("dump_user", c.c_void_p), ("on_progress", c.c_void_p),
                ("progress_user", c.c_void_p), ("constant_names", c.c_void_p), ("constant_values", c.c_void_p), ("n_constants", c.c_size_t),
                ("read_only", c.c_int32), ("entry", c.c_char_p), ("schedule", c.c_char_p), ("op_files", c.c_void_p), ("n_op_files", c.c_size_t),
                ("target", c.c_char_p), ("scheduler", c.c_char_p), ("cache", c.c_int32), ("tune", c.c_int32), ("no_winograd", c.c_int32),
                ("no_connect", c.c_int32), ("dtype", c.c_char_p), ("weight_growth", c.c_double), ("stop", c.c_void_p), ("tune_seconds", c.c_double),
                ("tuned_for", c.c_char_p), ("tuned", c.c_char_p), ("orchestrate", c.c_int32), ("orchestration", c.c_char_p),
                ("n_without", c.c_size_t), ("without", c.c_void_p), ("n_with_rules", c.c_size_t), ("with_rules", c.c_void_p),
                ("memory_limit", c.c_uint64), ("solver_nodes", c.c_int32), ("backends", c.c_char_p), ("ranges", c.POINTER(DimRange)),
                ("n_ranges", c.c_size_t), ("sums", c.c_void_p), ("n_sums", c.c_size_t), ("no_beside", c.c_int32), ("clamp_indices", c.c_int32),
                ("overridable", c.c_void_p), ("n_overridable", c.c_size_t), ("dump_after", c.c_char_p), ("stop_after", c.c_char_p)]


class Port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_char_p), ("rank", c.c_int32), ("shape", c.POINTER(c.c_int64))]


class SessionOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("threads", c.c_int32), ("profile", c.c_int32), ("spin_us", c.c_int32), ("device", c.c_int32),
                ("is_async", c.c_int32), ("stream", c.c_void_p)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager_ctx", c.c_void_p), ("deleter", c.c_void_p), ("flags", c.c_uint64),
                ("tensor", DLTensor)]


DUMP = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
RESULT = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)


class SearchResult(c.Structure):
    _fields_ = [("script", c.c_char_p), ("choices", c.c_char_p), ("refused", c.c_char_p), ("right", c.c_int32), ("median_ms", c.c_double)]


class SearchOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("n", c.c_uint64), ("seed", c.c_uint64), ("rtol", c.c_double), ("atol", c.c_double), ("on_result", RESULT),
                ("user", c.c_void_p)]


class Failed(Exception):
    """A call that did not return OK: its status, and the messages."""

    def __init__(self, step, status, messages):
        super().__init__(f"{step}: {status}: {messages}")
        self.step, self.status, self.messages = step, status, messages


class Library:
    """libkiln.so; every call that fails raises Failed."""

    def __init__(self, path):
        self.lib = lib = c.CDLL(str(path))
        p, size, result = c.c_void_p, c.c_size_t, {}
        result[p] = ["kiln_diag_create"]
        result[c.POINTER(Managed)] = ["kiln_tensor_create"]
        result[c.c_char_p] = ["kiln_diag_message"]
        result[size] = ["kiln_diag_count", "kiln_module_input_count", "kiln_module_output_count"]
        result[Port] = ["kiln_module_input", "kiln_module_output"]
        result[c.POINTER(c.c_int64)] = ["kiln_session_output_shape", "kiln_model_output_shape"]
        for kind, names in result.items():
            for name in names:
                getattr(lib, name).restype = kind
        for name in ("kiln_diag_destroy", "kiln_diag_clear", "kiln_model_destroy", "kiln_module_release", "kiln_session_destroy", "kiln_tensor_destroy"):
            getattr(lib, name).restype = None
            getattr(lib, name).argtypes = [p]
        lib.kiln_diag_message.argtypes = [p, size]
        lib.kiln_diag_count.argtypes = [p]
        for name in ("kiln_module_input_count", "kiln_module_output_count"):
            getattr(lib, name).argtypes = [p]
        for name in ("kiln_module_input", "kiln_module_output", "kiln_session_output_shape", "kiln_model_output_shape"):
            getattr(lib, name).argtypes = [p, size]
        lib.kiln_tensor_create.argtypes = [c.c_char_p, c.c_int32, c.POINTER(c.c_int64), p]
        self.diag = p(lib.kiln_diag_create())

    def call(self, step, name, *arguments):
        self.lib.kiln_diag_clear(self.diag)
        status = getattr(self.lib, name)(*arguments)
        if status:
            texts = [self.lib.kiln_diag_message(self.diag, i).decode(errors="replace") for i in range(self.lib.kiln_diag_count(self.diag))]
            raise Failed(step, STATUS[status], texts)

    def tensor(self, dtype, shape):
        extents = (c.c_int64 * max(len(shape), 1))(*shape)
        t = self.lib.kiln_tensor_create(dtype.encode(), len(shape), extents, self.diag)
        if not t:
            raise Failed("tensor", "NO_MEMORY", [str(shape)])
        return t

    @staticmethod
    def bytes_of(t, dtype):
        n = int(np.prod([t.contents.tensor.shape[k] for k in range(t.contents.tensor.ndim)], dtype=np.int64))
        n *= np.dtype(DTYPES[dtype]).itemsize
        return (c.c_uint8 * n).from_address(t.contents.tensor.data) if n else b""


def views(tensors):
    return (c.POINTER(DLTensor) * max(len(tensors), 1))(*[c.pointer(t.contents.tensor) for t in tensors])


class Run:
    """One model, compiled with some options: results on some inputs."""

    def __init__(self, library, path, options):
        self.k, self.path, self.o, self.keep = library, str(path), options, []
        self.model, self.module = c.c_void_p(), c.c_void_p()

    def compile_options(self):
        o, co = self.o, CompileOptions()
        co.struct_size = c.sizeof(co)
        target = o.get("target")
        if target and target.startswith("sim"):
            target = target[4:] or None
        co.target = target.encode() if target else None
        co.dtype = o["dtype"].encode() if o.get("dtype") else None
        co.threads = o.get("threads", 0)
        co.schedule = o["schedule"].encode() if o.get("schedule") is not None else None
        co.scheduler = o["scheduler"].encode() if o.get("scheduler") else None
        co.stop_after = o["stop_after"].encode() if o.get("stop_after") else None
        for name in ("tune", "no_winograd", "no_connect", "orchestrate", "cache"):
            setattr(co, name, int(o.get(name, 0)))
        dims = o.get("dims", {})
        co.dims, co.n_dims = (DimValue * max(len(dims), 1))(*[(n.encode(), v) for n, v in dims.items()]), len(dims)
        ranges = o.get("ranges", {})
        co.ranges, co.n_ranges = (DimRange * max(len(ranges), 1))(*[(n.encode(), a, b, 1) for n, (a, b) in ranges.items()]), len(ranges)
        self.keep.append(co)
        return co

    def compile(self):
        k, co = self.k, self.compile_options()
        k.call("load", "kiln_model_load", self.path.encode(), c.byref(co), k.diag, c.byref(self.model))
        if self.o.get("ranges"):
            module = self.path + ".so"
            k.call("compile", "kiln_model_compile_to", self.model, module.encode(), k.diag)
            k.call("module", "kiln_module_load", module.encode(), k.diag, c.byref(self.module))
            os.unlink(module)
        else:
            k.call("compile", "kiln_model_compile", self.model, k.diag, c.byref(self.module))
        k.lib.kiln_model_destroy(self.model) if self.o.get("forget") else None

    def emit(self, level):
        """The text of one level of the compilation, which goes as far as that."""
        texts, co = [], self.compile_options()
        co.dump = level.encode()
        callback = DUMP(lambda user, name, text: texts.append(text.decode()))
        co.on_dump = c.cast(callback, c.c_void_p)
        self.keep.append(callback)
        self.k.call("load", "kiln_model_load", self.path.encode(), c.byref(co), self.k.diag, c.byref(self.model))
        self.k.call("emit", "kiln_model_emit", self.model, self.k.diag)
        return "".join(texts)

    def search(self, n, seed):
        """What became of |n| fillings of the schedule's holes: (the choices, why they were refused or None, whether they are right)."""
        found, co, so = [], self.compile_options(), SearchOptions()

        def on_result(user, result):
            r = c.cast(result, c.POINTER(SearchResult)).contents
            found.append(((r.choices or b"").decode(), r.refused and r.refused.decode(), bool(r.right)))
        so.struct_size, so.n, so.seed, so.on_result = c.sizeof(so), n, seed, RESULT(on_result)
        self.k.call("search", "kiln_schedule_search", self.path.encode(), c.byref(co), c.byref(so), self.k.diag)
        return found

    def ports(self, which):
        count, port = getattr(self.k.lib, f"kiln_module_{which}_count"), getattr(self.k.lib, f"kiln_module_{which}")
        return [port(self.module, i) for i in range(count(self.module))]

    def make_inputs(self, values):
        tensors = []
        for p in self.ports("input"):
            a = np.asarray(values[p.name.decode()], order="C")
            t = self.k.tensor(p.dtype.decode(), a.shape)
            if np.dtype(DTYPES[p.dtype.decode()]) != a.dtype:
                with np.errstate(over="ignore"):
                    a = a.astype(DTYPES[p.dtype.decode()])
            if a.size:
                c.memmove(t.contents.tensor.data, a.ctypes.data, a.nbytes)
            tensors.append(t)
        return tensors

    def output_shapes(self, inputs):
        k, shapes = self.k, []
        values = (c.c_int64 * 8)()
        if self.o.get("ranges"):
            k.call("dims", "kiln_module_find_dims", self.module, c.c_size_t(len(inputs)), views(inputs), k.diag, values)
        for i, p in enumerate(self.ports("output")):
            shape = (c.c_int64 * 8)()
            if self.o.get("ranges"):
                k.call("dims", "kiln_module_output_shape", self.module, c.c_size_t(i), values, k.diag, shape)
            else:
                shape[:p.rank] = p.shape[:p.rank]
            shapes.append(list(shape[:p.rank]))
        return shapes

    def results(self, values, how):
        """The outputs by name, in the shapes that the run found; |how| is session, simulate or reference."""
        k = self.k
        inputs, outputs = self.make_inputs(values), []
        try:
            ports = self.ports("output")
            for p, shape in zip(ports, self.output_shapes(inputs)):
                t = k.tensor(p.dtype.decode(), shape)
                outputs.append(t)
                data = k.bytes_of(t, p.dtype.decode())
                if len(data) and p.dtype != b"bool":
                    c.memset(t.contents.tensor.data, POISON, len(data))
            found = getattr(self, how)(inputs, outputs)
            return {p.name.decode(): self.array(t, p, shape) for p, t, shape in zip(ports, outputs, found)}
        finally:
            for t in inputs + outputs:
                k.lib.kiln_tensor_destroy(t)

    def array(self, t, port, shape):
        dtype = port.dtype.decode()
        full = [t.contents.tensor.shape[i] for i in range(t.contents.tensor.ndim)]
        a = np.frombuffer(bytes(self.k.bytes_of(t, dtype)), DTYPES[dtype]).reshape(full)
        return a[tuple(slice(0, n) for n in shape)].copy()

    def session(self, inputs, outputs):
        k, so, session = self.k, SessionOptions(), c.c_void_p()
        so.struct_size, so.threads, so.spin_us = c.sizeof(so), self.o.get("threads", 0), -1
        so.device = self.o.get("device", 0)
        k.call("session", "kiln_session_create", self.module, c.byref(so), k.diag, c.byref(session))
        try:
            ran, n, m = [], c.c_size_t(len(inputs)), c.c_size_t(len(outputs))
            for _ in range(2):
                k.call("run", "kiln_session_run", session, n, views(inputs), m, views(outputs), k.diag)
                ran.append([bytes(k.bytes_of(t, p.dtype.decode())) for t, p in zip(outputs, self.ports("output"))])
            if ran[0] != ran[1]:
                raise Failed("run", "DIFFERS", ["a second run of the same session gives other bytes"])
            return [self.found(k.lib.kiln_session_output_shape(session, i), t) for i, t in enumerate(outputs)]
        finally:
            k.lib.kiln_session_destroy(session)

    @staticmethod
    def found(shape, t):
        return [shape[i] for i in range(t.contents.tensor.ndim)]

    def from_model(self, inputs, outputs, name, *more):
        k = self.k
        k.call(name, f"kiln_model_{name}", self.model, c.c_size_t(len(inputs)), views(inputs), c.c_size_t(len(outputs)), views(outputs), k.diag, *more)
        return [self.found(k.lib.kiln_model_output_shape(self.model, i), t) for i, t in enumerate(outputs)]

    def reference(self, inputs, outputs):
        return self.from_model(inputs, outputs, "reference")

    def simulate(self, inputs, outputs):
        return self.from_model(inputs, outputs, "simulate", c.byref(c.c_char_p()))

    def close(self):
        self.k.lib.kiln_module_release(self.module)
        self.k.lib.kiln_model_destroy(self.model)


def work(library, job):
    """The results of a job: {"options", "model", "inputs": [values of each run], "reference"}."""
    options = job["options"]
    run = Run(library, job["model"], options)
    if "emit" in job or "search" in job:
        try:
            return {"status": "OK", "text": run.emit(job["emit"])} if "emit" in job else {"status": "OK", "found": run.search(*job["search"])}
        except Failed as f:
            return {"status": f.status, "step": f.step, "messages": f.messages}
        finally:
            run.close()
    how = "simulate" if (options.get("target") or "").startswith("sim") else "session"
    try:
        run.compile()
        out = {"status": "OK", "outputs": [run.results(values, how) for values in job["inputs"]]}
        if job.get("reference"):
            out["reference"] = [run.results(job["inputs"][0], "reference")]
        return out
    except Failed as f:
        return {"status": f.status, "step": f.step, "messages": f.messages}
    finally:
        run.close()


def serve(path):
    """Jobs from stdin until it ends. stdout is for results alone: whatever else is printed goes to stderr."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    library = Library(path)
    while header := sys.stdin.buffer.read(8):
        job = pickle.loads(sys.stdin.buffer.read(struct.unpack("<Q", header)[0]))
        data = pickle.dumps(work(library, job), protocol=5)
        results.write(struct.pack("<Q", len(data)) + data)
        results.flush()


class Worker:
    """A process that serves; one that ended is started anew."""
    CPU_SECONDS, WALL_SECONDS, MEMORY = 60, 1800, 6 << 30
    MOST_JOBS = 500  # what a longer life gathers would hide who took it

    def __init__(self, library, sanitizer=None, is_limited=True, most_jobs=MOST_JOBS):
        self.built, self.sanitizer, self.process = os.path.abspath(library), sanitizer, None
        self.is_limited = is_limited and not sanitizer  # a GPU's driver and sanitizers map more than they use
        self.folder = tempfile.TemporaryDirectory(prefix="kiln-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.log = open(os.path.join(self.folder.name, "stderr"), "w+b")
        self.jobs, self.most_jobs = 0, most_jobs

    def start(self):
        env = dict(os.environ, KILN_CACHE_DIR=os.path.join(self.folder.name, "cache"))
        if self.sanitizer:
            env |= {"LD_PRELOAD": self.sanitizer, "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}

        def limit():
            if self.is_limited:
                resource.setrlimit(resource.RLIMIT_AS, (self.MEMORY, self.MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.log.seek(0)
        self.log.truncate()
        self.process = subprocess.Popen([sys.executable, __file__, str(self.built)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        env=env, preexec_fn=limit, cwd=self.folder.name)
        self.jobs = 0

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # what was not sent yet
                self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_seconds(self, job):
        """Of processor time, until it counts as hanging: sanitizers and the simulator are slow."""
        is_simulated = (job["options"].get("target") or "").startswith("sim")
        return self.CPU_SECONDS * (10 if self.sanitizer else 1) * (5 if is_simulated else 1)

    def read(self, n, end):
        """|n| bytes of the result; None: the process ended; TimeoutError behind |end|, its time."""
        data = b""
        deadline = time.monotonic() + self.WALL_SECONDS
        while len(data) < n:
            ready, _, _ = select.select([self.process.stdout], [], [], 2)
            if ready:
                more = os.read(self.process.stdout.fileno(), n - len(data))
                if not more:
                    return None
                data += more
            elif self.cpu() > end or time.monotonic() > deadline:
                raise TimeoutError
        return data

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def run(self, job):
        """The result of |job|, whose "model" is bytes here."""
        if not self.process or self.jobs >= self.most_jobs:
            self.stop()
            self.start()
        self.jobs += 1
        path = os.path.join(self.folder.name, job.get("name", "model.onnx"))
        with open(path, "wb") as f:
            f.write(job["model"])
        data = pickle.dumps(dict(job, model=path), protocol=5)
        began, most = self.cpu(), self.most_seconds(job)
        try:
            self.process.stdin.write(struct.pack("<Q", len(data)) + data)
            self.process.stdin.flush()
            header = self.read(8, began + most)
            body = header and self.read(struct.unpack("<Q", header)[0], began + most)
        except TimeoutError:
            self.stop()
            return {"status": "HANG", "step": "?", "messages": [f"more than {most} s of processor time"]}
        except BrokenPipeError:
            body = None
        if body:
            return dict(pickle.loads(body), seconds=self.cpu() - began)
        code = self.process.wait()
        text = self.said()
        self.stop()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"status": "CRASH", "step": name, "messages": ([l for l in text.splitlines() if "ERROR" in l or "rror:" in l] + text.splitlines()[-3:])[:4],
                "log": text}


if __name__ == "__main__":
    serve(sys.argv[1])
