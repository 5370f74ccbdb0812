# SPDX-License-Identifier: Apache-2.0
"""Modules: compiled models, called with tensors.

A module is immutable. Each call takes an idle session of it, or makes one, so that threads run
concurrently; the interpreter's lock is released while kernels run.
"""
from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import tempfile
from ctypes import byref, c_char_p, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _arrays, _library, errors
from ._arrays import KDL_CPU, KDL_CUDA
from ._library import DLTensor

if TYPE_CHECKING:
    from .session import Session

_MAX_DIMS = _MAX_RANK = 8
_WANTS_MODEL = "the module was loaded from a file: its model is needed for this; kiln.compile keeps it"


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output. An extent that depends on a dimension with a range is -1."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_optional: bool = False


@dataclasses.dataclass(frozen=True)
class DimRange:
    name: str
    least: int
    most: int
    step: int


@dataclasses.dataclass(frozen=True)
class About:
    """The target of a module, and the compiler that made it."""

    target: str
    processor: str
    threads: int
    features: tuple[str, ...]
    compiler: str
    n_variants: int


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of a compiled module: its weights, the model's weights, and the arena of each session."""

    weight_bytes: int
    model_weight_bytes: int
    arena_bytes: int
    arena_lower_bound_bytes: int


@dataclasses.dataclass(frozen=True)
class Launch:
    """One launch of a run: its time, kernel and graph nodes."""

    kernel: str
    nodes: tuple[str, ...]
    flops: float
    bytes: float
    start_ns: int
    ns: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The comparison of one kernel's results with the reference interpreter's."""

    kernel: str
    nodes: tuple[str, ...]
    rel_l2: float
    max_abs: float
    passed: bool


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _port(port, is_optional=False) -> Port:
    shape = tuple(port.shape[k] for k in range(port.rank))
    return Port(_text(port.name), _text(port.dtype), shape, is_optional)


class _Runner:
    """A session with the arrays of pointers for its runs."""

    __slots__ = ("api", "session", "diag", "inputs", "outputs", "at")

    def __init__(self, module: "Module", **options):
        self.api = module._library
        self.session = None
        self.diag = _library.Diag(self.api)
        given = _library.SessionOptions(
            struct_size=ctypes.sizeof(_library.SessionOptions),
            threads=module.threads,
            spin_us=module._spin_us,
            **options,
        )
        session = c_void_p()
        self.diag.check(
            self.api.kiln_session_create(module._pointer, byref(given), self.diag.pointer, byref(session))
        )
        self._hold(module, session.value)

    @classmethod
    def of(cls, module: "Module", session: int) -> "_Runner":
        """That of a session that is made already."""
        runner = cls.__new__(cls)
        runner.api, runner.diag = module._library, _library.Diag(module._library)
        runner._hold(module, session)
        return runner

    def _hold(self, module, session):
        n_in, n_out = len(module.inputs), len(module.outputs)
        self.session = session
        self.inputs = (c_void_p * max(n_in, 1))()
        self.outputs = (c_void_p * max(n_out, 1))()
        # the arguments of kiln_session_run
        self.at = (
            c_void_p(self.session),
            c_size_t(n_in),
            c_void_p(ctypes.addressof(self.inputs)),
            c_size_t(n_out),
            c_void_p(ctypes.addressof(self.outputs)),
            c_void_p(self.diag.pointer),
        )

    def __del__(self):
        if getattr(self, "session", None):
            self.api.kiln_session_destroy(self.session)


class Module:
    """A compiled model; made by `kiln.compile` or `kiln.load`.

    `module(x, y)` or `module(x=x, y=y)` runs it. Inputs are tensors of any library with DLPack (NumPy,
    PyTorch, CuPy, JAX), which are not copied; outputs are new tensors of the first input's library, on
    its device, or those given as `out`. One output is returned as it is, several as a tuple.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dims: tuple[DimRange, ...]
    about: About
    threads: int
    dumps: dict[str, str]  # texts that `dump` of kiln.compile requested

    def __init__(self, library, pointer: int, *, threads=0, spin_us=0, device=0, path=None, model=None, keep=()):
        self._library, self._pointer = library, pointer
        self._spin_us, self._device = spin_us, device
        self._path, self._model, self._keep = path, model, keep
        self.threads, self.dumps = threads, {}
        self._memory: Optional[Memory] = None
        self._idle: list[_Runner] = []
        self._streams: dict[tuple, list[_Runner]] = {}
        self._captured: list[_Runner] = []  # of captured graphs; live as long as the module
        self._run = library.kiln_session_run
        self._describe()

    def _describe(self):
        lib, p = self._library, self._pointer
        self.inputs = tuple(
            _port(lib.kiln_module_input(p, i), bool(lib.kiln_module_input_is_optional(p, i)))
            for i in range(lib.kiln_module_input_count(p))
        )
        self.outputs = tuple(_port(lib.kiln_module_output(p, i)) for i in range(lib.kiln_module_output_count(p)))
        dims = [lib.kiln_module_dim(p, i) for i in range(lib.kiln_module_dim_count(p))]
        self.dims = tuple(DimRange(_text(d.name), d.least, d.most, d.step) for d in dims)
        info = lib.kiln_module_about(p)
        features = tuple(_text(info.features[i]) for i in range(info.n_features))
        self.about = About(
            _text(info.target), _text(info.processor), info.threads, features, _text(info.compiler), info.n_variants
        )
        self.threads = self.threads or info.threads
        self._n_in, self._n_out = len(self.inputs), len(self.outputs)
        self._places = {port.name: i for i, port in enumerate(self.inputs)}
        self._new = tuple((port.shape, port.dtype) for port in self.outputs)
        self._is_gpu = not self.about.target.startswith(("x86_64", "aarch64", "riscv64"))
        is_packed = any(_arrays.DTYPES[port.dtype][1] < 8 for port in self.outputs)
        self._is_plain = not (self._is_gpu or self.dims or is_packed)
        self._counted: Optional[tuple[int, ...]] = None  # outputs with data-dependent shapes

    def __del__(self):
        if getattr(self, "_pointer", None):
            self._idle.clear()
            self._streams.clear()
            self._captured.clear()
            self._library.kiln_module_release(self._pointer)
            self._pointer = None

    # --- calling ---

    def __call__(self, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Runs once. `out`: the output's tensor, or a sequence of them, written in place."""
        if named or len(tensors) != self._n_in:
            tensors = self._in_order(tensors, named)
        try:
            adapter = _arrays._adapters[type(tensors[0])]
        except (KeyError, IndexError):
            adapter = _arrays.adapter_of(tensors[0]) if tensors else _arrays.numpy_adapter()
        if not self._is_plain or out is not None:
            return self._call(adapter, tensors, out)
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._make_runner()
        adapters, inputs, outputs = _arrays._adapters, runner.inputs, runner.outputs
        held, results, i = [], [], 0
        try:
            for tensor in tensors:
                if tensor is None:
                    inputs[i] = None
                else:
                    lender = adapters.get(type(tensor)) or _arrays.adapter_of(tensor)
                    inputs[i], owner = lender.lend(tensor)
                    held.append(owner)
                i += 1
            i = 0
            for shape, dtype in self._new:
                result = adapter.empty(shape, dtype, (KDL_CPU, 0))
                outputs[i], owner = adapter.lend(result)
                held.append(owner)
                results.append(result)
                i += 1
            status = self._run(*runner.at)
            if status:
                self._again(status, runner, tensors, held)
            if self._counted is None:
                self._find_counted(runner)
            if self._counted:
                self._cut(adapter, runner, results)
        finally:
            self._idle.append(runner)
        if len(results) == 1:
            return adapter.finish(results[0])
        return tuple([adapter.finish(r) for r in results])

    def run(self, *tensors: Any, out: Any = None, **named: Any) -> tuple:
        """The same as a call, but always gives a tuple."""
        results = self(*tensors, out=out, **named)
        return results if self._n_out != 1 else (results,)

    def _make_runner(self, **options) -> _Runner:
        return _Runner(self, **options)

    def _in_order(self, tensors, named):
        given: list = [None] * self._n_in
        if len(tensors) > self._n_in:
            raise errors.BadInput(f"inputs: must be at most {self._n_in}, got {len(tensors)}")
        given[: len(tensors)] = tensors
        for name, tensor in named.items():
            place = self._places.get(name)
            if place is None:
                names = ", ".join(p.name for p in self.inputs)
                raise errors.BadInput(f"input: must be one of {names}, got {name}")
            if place < len(tensors):
                raise errors.BadInput(f"input {name}: must be given once")
            given[place] = tensor
        for port, tensor in zip(self.inputs, given):
            if tensor is None and not port.is_optional:
                raise errors.BadInput(f"input {port.name}: must be given")
        return tuple(given)

    def _again(self, status, runner, tensors, held):
        """After a refused run: runs with row-major copies of strided tensors; raises if there were none."""
        copies = 0
        for i, tensor in enumerate(tensors):
            if tensor is None or status != errors.BadInput.status:
                continue
            adapter = _arrays.adapter_of(tensor)
            straight = adapter.straight(tensor)
            if not hasattr(tensor, "__dlpack__"):
                straight = straight.astype(_arrays.numpy_dtype(self.inputs[i].dtype))
            if straight is tensor:
                continue
            copies += 1
            runner.inputs[i], owner = adapter.lend(straight)
            held.append((owner, straight))
        if copies:
            runner.diag.take()
            status = self._run(*runner.at)
        runner.diag.check(status)

    def _find_counted(self, runner):
        lib, found = self._library, []
        for i in range(self._n_out):
            own = ctypes.cast(lib.kiln_module_output(self._pointer, i).shape, c_void_p).value
            if self.outputs[i].shape and lib.kiln_session_output_shape(runner.session, i) != own:
                found.append(i)
        self._counted = tuple(found)

    def _cut(self, adapter, runner, results):
        for i in self._counted or ():
            rank = len(self.outputs[i].shape)
            at = self._library.kiln_session_output_shape(runner.session, i)
            shape = tuple((c_int64 * rank).from_address(at))
            if shape != tuple(results[i].shape):
                results[i] = adapter.cut(results[i], shape)

    # --- ranges, devices, packed elements, given outputs ---

    def _call(self, adapter, tensors, out):
        given = [None if t is None else _arrays.adapter_of(t).lend(t) for t in tensors]
        device, is_async, stream = (KDL_CPU, 0), 0, 0
        if self._is_gpu and given and all(self._on_device(g) for g in given if g):
            first = DLTensor.from_address(next(g for g in given if g)[0])
            device = (first.device_type, first.device_id)
            if device[0] == KDL_CUDA:
                is_async, stream = 1, adapter.stream(device)
        if is_async and adapter.is_capturing():
            return self._capture(adapter, tensors, given, out, device, stream)
        key = (device[1], is_async, stream)
        idle = self._streams.setdefault(key, []) if is_async else self._idle
        try:
            runner = idle.pop()
        except IndexError:
            where = device[1] if is_async else self._device
            runner = self._make_runner(device=where, is_async=is_async, stream=stream or None)
        try:
            return self._run_with(adapter, runner, tensors, given, out, device)
        finally:
            idle.append(runner)

    def _capture(self, adapter, tensors, given, out, device, stream):
        """Runs under the caller's CUDA graph capture, with a session of its own, whose memory the graph uses."""
        with _arrays.relaxed_capture():  # sessions allocate
            runner = self._make_runner(device=device[1], is_async=1, stream=stream)
            self._captured.append(runner)
            return self._run_with(adapter, runner, tensors, given, out, device)

    @staticmethod
    def _on_device(given) -> bool:
        return DLTensor.from_address(given[0]).device_type == KDL_CUDA

    def _shapes(self, runner):
        if not self.dims:
            return [port.shape for port in self.outputs]
        lib, values, shape = self._library, (c_int64 * _MAX_DIMS)(), (c_int64 * _MAX_RANK)()
        diag = runner.diag
        at = runner.at
        diag.check(lib.kiln_module_find_dims(self._pointer, at[1], at[2], diag.pointer, values))
        out = []
        for i, port in enumerate(self.outputs):
            diag.check(lib.kiln_module_output_shape(self._pointer, i, values, diag.pointer, shape))
            out.append(tuple(shape[: len(port.shape)]))
        return out

    def _run_with(self, adapter, runner, tensors, given, out, device):
        held = list(given)
        for i, g in enumerate(given):
            runner.inputs[i] = g[0] if g else None
        results = self._outputs_of(adapter, runner, out, device)
        packed: dict = {}
        for i, result in enumerate(results):
            code, bits, _ = _arrays.DTYPES[self.outputs[i].dtype]
            if bits < 8:
                packed[i] = _arrays.packed_numpy(result, self._library)
                runner.outputs[i] = packed[i].address
                continue
            runner.outputs[i], owner = _arrays.adapter_of(result).lend(result)
            held.append(owner)
        status = self._run(*runner.at)
        if status:
            self._again(status, runner, tensors, held)
        for i, described in packed.items():
            self._library.kiln_tensor_unpack(described.address, results[i].ctypes.data)
        if self._counted is None and not self.dims:
            self._find_counted(runner)
        if self._counted and out is None:
            self._cut(adapter, runner, results)
        results = [r if out is not None else adapter.finish(r) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _outputs_of(self, adapter, runner, out, device):
        if out is None:
            shapes = self._shapes(runner)
            return [adapter.empty(s, port.dtype, device) for s, port in zip(shapes, self.outputs)]
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != self._n_out:
            raise errors.BadInput(f"out: must be {self._n_out} tensors, got {len(given)}")
        return given

    def session(self) -> "Session":
        """A session whose runs keep the states that the module was compiled with."""
        from .session import Session

        return Session(self)

    def wait(self) -> None:
        """Waits for runs on a GPU that calls have enqueued, and raises their errors."""
        for idle in list(self._streams.values()):
            for runner in list(idle):
                runner.diag.check(self._library.kiln_session_wait(runner.session, runner.diag.pointer))

    # --- asking ---

    def profile(self, *tensors: Any, **named: Any) -> list[Launch]:
        """Runs twice, and gives the times of the second run's launches."""
        if named or len(tensors) != self._n_in:
            tensors = self._in_order(tensors, named)
        adapter = _arrays.adapter_of(tensors[0]) if tensors else _arrays.numpy_adapter()
        runner = self._make_runner(profile=1, device=self._device)
        for _ in range(2):
            given = [None if t is None else _arrays.adapter_of(t).lend(t) for t in tensors]
            self._run_with(adapter, runner, tensors, given, None, (KDL_CPU, 0))
        lib, out = self._library, []
        for i in range(lib.kiln_module_launch_count(self._pointer)):
            launch = lib.kiln_module_launch(self._pointer, i)
            ns = lib.kiln_session_launch_ns(runner.session, i)
            start = lib.kiln_session_launch_start_ns(runner.session, i)
            nodes = tuple(_text(launch.nodes).split("+"))
            out.append(Launch(_text(launch.kernel), nodes, launch.flops, launch.bytes, start, ns))
        return [launch for launch in out if launch.start_ns] if self.dims else out

    def explain(
        self,
        kernel: Optional[str] = None,
        *,
        why: Optional[tuple[str, str]] = None,
        measure: bool = False,
        json_: bool = False,
        orchestration: bool = False,
    ) -> Union[str, dict]:
        """The nodes of each kernel, its bottleneck, and the reasons against further fusion (docs/guide/explain.md)."""
        options = _library.ExplainOptions(struct_size=ctypes.sizeof(_library.ExplainOptions))
        options.kernel = kernel.encode() if kernel else None
        if why:
            options.why[0], options.why[1] = why[0].encode(), why[1].encode()
        options.measure, options.json, options.orchestration = int(measure), int(json_), int(orchestration)
        text = c_char_p()
        diag = _library.Diag(self._library)
        diag.check(
            self._library.kiln_model_explain(self._want_model(), byref(options), diag.pointer, byref(text))
        )
        shown = _text(text.value)
        return json.loads(shown) if json_ else shown

    def verify(self, seed: int = 0, *, simulate: bool = False, reproducer_dir: Optional[str] = None) -> list[Verdict]:
        """Checks every kernel against the reference interpreter on random data."""
        found: list[Verdict] = []

        def take(_, result):
            r = result.contents
            found.append(
                Verdict(_text(r.kernel), tuple(_text(r.nodes).split("+")), r.rel_l2, r.max_abs, bool(r.passed))
            )

        options = _library.VerifyOptions(
            struct_size=ctypes.sizeof(_library.VerifyOptions), seed=seed, simulate=int(simulate)
        )
        options.reproducer_dir = reproducer_dir.encode() if reproducer_dir else None
        options.on_result = _library.VerifyFn(take)
        failed = c_size_t()
        diag = _library.Diag(self._library)
        diag.check(
            self._library.kiln_model_verify(self._want_model(), byref(options), diag.pointer, byref(failed))
        )
        return found

    def reference(self, *tensors: Any, **named: Any) -> tuple:
        """The reference interpreter's results in double precision, as NumPy arrays."""
        if named or len(tensors) != self._n_in:
            tensors = self._in_order(tensors, named)
        numpy = _arrays.numpy_adapter()
        lent = [None if t is None else _arrays.adapter_of(t).lend(t) for t in tensors]
        results = [numpy.empty(p.shape, p.dtype, (KDL_CPU, 0)) for p in self.outputs]
        outs = [numpy.lend(r) for r in results]
        inputs = (c_void_p * max(len(lent), 1))(*[g[0] if g else None for g in lent])
        outputs = (c_void_p * max(len(outs), 1))(*[g[0] for g in outs])
        diag = _library.Diag(self._library)
        diag.check(
            self._library.kiln_model_reference(
                self._want_model(), len(lent), ctypes.addressof(inputs), len(outs), ctypes.addressof(outputs), diag.pointer
            )
        )
        return tuple(results)

    def report(self) -> dict:
        """The model as it was read: opsets, inputs, outputs, parameters, operators, dimensions."""
        return json.loads(_text(self._library.kiln_model_report(self._want_model(), 1)))

    def _want_model(self):
        if self._model is None:
            raise errors.Unsupported(_WANTS_MODEL)
        return self._model.pointer

    @property
    def memory(self) -> Memory:
        """The memory of the compiled module and of the model, by the compiler."""
        if self._memory is None:
            raise errors.Unsupported(_WANTS_MODEL)
        return self._memory

    @property
    def weight_bytes(self) -> int:
        return self._library.kiln_module_weight_bytes(self._pointer)

    @property
    def arena_bytes(self) -> int:
        """Memory that each session allocates."""
        return self._library.kiln_module_arena_bytes(self._pointer)

    # --- keeping ---

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the module file, as `kiln compile -o` does."""
        path = os.fspath(path)
        if self._path is not None:
            with open(self._path, "rb") as source, open(path, "wb") as target:
                target.write(source.read())
            return
        diag = _library.Diag(self._library)
        diag.check(self._library.kiln_model_compile_to(self._want_model(), os.fsencode(path), diag.pointer))

    def to_bytes(self) -> bytes:
        """The module file's bytes."""
        if self._path is not None:
            with open(self._path, "rb") as f:
                return f.read()
        with tempfile.TemporaryDirectory(prefix="kiln-") as folder:
            path = os.path.join(folder, "module.so")
            self.save(path)
            with open(path, "rb") as f:
                return f.read()

    def __reduce__(self):
        return from_bytes, (self.to_bytes(), self.threads, self._spin_us, self._device)

    def __repr__(self):
        def side(ports):
            return ", ".join(f"{p.dtype}{list(p.shape)} {p.name}" for p in ports)

        return f"<kiln.Module ({side(self.inputs)}) -> ({side(self.outputs)}) for {self.about.target}>"


def load(path: Union[str, os.PathLike], *, threads: int = 0, spin_us: int = 0, device: int = 0) -> Module:
    """Loads a module file. `threads`: 0 means the number that it was compiled for."""
    library = _library.runtime()
    diag, pointer = _library.Diag(library), c_void_p()
    diag.check(library.kiln_module_load(os.fsencode(os.fspath(path)), diag.pointer, byref(pointer)))
    return Module(
        library, pointer.value, threads=threads, spin_us=spin_us, device=device, path=os.path.abspath(os.fspath(path))
    )


class _Temporary:
    """A file that is deleted with the module that was loaded from it."""

    def __init__(self, suffix=".so"):
        self.folder = tempfile.TemporaryDirectory(prefix="kiln-")
        self.path = os.path.join(self.folder.name, "module" + suffix)


def load_temporary(temporary: _Temporary, **options) -> Module:
    module = load(temporary.path, **options)
    module._keep = (temporary,)
    return module


def from_bytes(data: bytes, threads: int = 0, spin_us: int = 0, device: int = 0) -> Module:
    """The module of `Module.to_bytes`."""
    temporary = _Temporary()
    with open(temporary.path, "wb") as f:
        f.write(data)
    return load_temporary(temporary, threads=threads, spin_us=spin_us, device=device)
