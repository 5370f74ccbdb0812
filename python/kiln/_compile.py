# SPDX-License-Identifier: Apache-2.0
"""Compiling: a model by path, as bytes or as a ModelProto, with the options of the C API."""
from __future__ import annotations

import collections.abc
import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_int64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Optional, Sequence, SupportsIndex, TypedDict, Union

from . import _arrays, _library, errors
from ._library import CompileOptions, DimRange, DimSum, DimValue, DumpFn, MemoryFile, ProgressFn, ShapeValue
from .module import Memory, Module, _Temporary, load_temporary

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

Dim = Union[SupportsIndex, str, Sequence[int]]  # a value, a sum, a range
Texts = Union[str, Sequence[str], None]  # one, or several: those of a list are joined by ","
Path = Union[str, "os.PathLike[str]", None]


class CommonOptions(TypedDict, total=False):
    """Options of the C API that are a number or a text, with the C names (docs/ref/c-api.md)."""

    schedule: Optional[str]
    scheduler: Optional[str]
    tune: int
    tune_seconds: float
    tuned_for: Optional[str]
    tuned: Path
    no_winograd: bool
    no_connect: bool
    no_beside: bool
    clamp_indices: bool
    most_extent: int
    weight_growth: float
    orchestrate: bool
    orchestration: Path
    memory_limit: int
    solver_nodes: int
    backends: Texts
    dump_after: Texts
    stop_after: Union[int, str, None]


class PlainOptions(CommonOptions, total=False):
    """The same, for files that may have several definitions."""

    entry: Optional[str]


PLAIN = frozenset(PlainOptions.__annotations__)


class Stop:
    """Ends tuning early: `set`, by another thread or a signal's handler, makes it take the best measured so far."""

    def __init__(self) -> None:
        self._flag = ctypes.c_int(0)

    def set(self) -> None:
        self._flag.value = 1

    def is_set(self) -> bool:
        return self._flag.value != 0


class _Model:
    """A kiln_model, and the objects that it borrows."""

    def __init__(self, library, pointer, keep):
        self.api, self.pointer, self.keep = library, pointer, keep

    def __del__(self):
        if getattr(self, "pointer", None):
            self.api.kiln_model_destroy(self.pointer)


def _progress(shown) -> Optional[Callable[[str, int, int], None]]:
    if shown is None or shown is False:
        return None
    if callable(shown):
        return shown
    try:
        from tqdm import tqdm
    except ImportError:

        def line(phase, done, total):
            sys.stderr.write(f"\r{phase:<12} {done}/{total}" + ("\n" if done == total else ""))

        return line
    bars: dict = {}

    def bar(phase, done, total):
        if phase not in bars:
            bars[phase] = tqdm(total=total, desc=phase, leave=False)
        bars[phase].n = done
        bars[phase].refresh()
        if done >= total:
            bars.pop(phase).close()

    return bar


class Options:
    """A kiln_compile_options, and the memory that it points to."""

    def __init__(self, stop: Optional[Stop] = None):
        self.struct = CompileOptions(struct_size=ctypes.sizeof(CompileOptions))
        self.stop = stop or Stop()
        self.struct.stop = ctypes.addressof(self.stop._flag)
        self.keep: list = []  # for the compilation
        self.borrowed: list = []  # as long as the module
        self.failed: list = []  # exceptions of callbacks
        self.dumps: dict[str, str] = {}

    def set(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            value = ",".join(value)
        elif isinstance(value, os.PathLike):
            value = os.fsencode(value)
        elif isinstance(value, bool):
            value = int(value)
        setattr(self.struct, name, value.encode() if isinstance(value, str) else value)

    def plain(self, options: Mapping[str, Any], caller: str) -> None:
        for name, value in options.items():
            if name not in PLAIN:
                raise TypeError(f"{caller}: no option {name}; there are {', '.join(sorted(PLAIN))}")
            self.set(name, str(value) if name == "stop_after" and isinstance(value, int) else value)

    def rows(self, name: str, kind, rows: list) -> None:
        array = (kind * max(len(rows), 1))(*rows)
        self.keep.append(array)
        setattr(self.struct, name, array)
        setattr(self.struct, "n_" + name, len(rows))

    def texts(self, name: str, values) -> None:
        array, n = _library.texts(values)
        self.keep.append(array)
        setattr(self.struct, name, array)
        setattr(self.struct, "n_" + name, n)

    def dims(self, dims: Mapping[str, Dim]) -> None:
        values, ranges, sums = [], [], []
        for name, is_ in dims.items():
            if isinstance(is_, str):
                sums.append(DimSum(name.encode(), is_.encode()))
            elif isinstance(is_, collections.abc.Sequence):
                if isinstance(is_, range):
                    is_ = (is_.start, is_[-1], is_.step)
                least, most, step = (*is_, 1)[:3]
                ranges.append(DimRange(name.encode(), least, most, step))
            else:
                values.append(DimValue(name.encode(), int(is_)))
        self.rows("dims", DimValue, values)
        self.rows("ranges", DimRange, ranges)
        self.rows("sums", DimSum, sums)

    def shapes(self, shapes: Mapping[str, Any]) -> None:
        rows = []
        for name, shape in shapes.items():
            n = len(shape)
            extents = (c_int64 * max(n, 1))(*[0 if isinstance(x, str) else x for x in shape])
            names = (c_char_p * max(n, 1))(*[x.encode() if isinstance(x, str) else None for x in shape])
            self.keep += [extents, names]
            rows.append(ShapeValue(name.encode(), n, extents, names))
        self.rows("shapes", ShapeValue, rows)

    def constants(self, constants: Mapping[str, Any]) -> None:
        array, n = _library.texts(constants)
        lent = [_arrays.adapter_of(t).lend(t) for t in constants.values()]
        pointers = (c_void_p * max(n, 1))(*[g[0] for g in lent])
        self.keep += [array, lent, pointers]
        self.struct.constant_names, self.struct.constant_values, self.struct.n_constants = array, pointers, n

    def files(self, files: Mapping[str, Any]) -> None:
        """|files|: bytes, or row-major tensors, by name."""
        rows = []
        for name, data in files.items():
            if isinstance(data, (bytes, bytearray, memoryview)):
                view = data if isinstance(data, bytes) else bytes(data)
                pointer = ctypes.cast(c_char_p(view), c_void_p).value
                rows.append(MemoryFile(name.encode(), pointer, len(view)))
                self.borrowed.append(view)
                continue
            adapter = _arrays.adapter_of(data)
            straight = adapter.straight(data)
            address, owner = adapter.lend(straight)
            t = _library.DLTensor.from_address(address)
            if t.device_type != _arrays.KDL_CPU:
                raise errors.BadInput(f"file {name}: must be a tensor in the host's memory")
            count = 1
            for k in range(t.ndim):
                count *= t.shape[k]
            n_bytes = (count * t.bits + 7) // 8
            rows.append(MemoryFile(name.encode(), (t.data or 0) + t.byte_offset if count else None, n_bytes))
            self.borrowed.append((straight, owner))
        self.rows("files", MemoryFile, rows)

    def dump(self, levels: Texts) -> None:
        """Takes the texts of |levels|, and of dump_after, into `dumps`."""

        def take(_, level, text):
            name = level.decode()
            self.dumps[name] = self.dumps.get(name, "") + text.decode(errors="replace")

        self.set("dump", levels)
        self.struct.on_dump = DumpFn(take)

    def progress(self, shown) -> None:
        function = _progress(shown)
        if function is None:
            return

        def told(_, phase, done, total):
            try:
                function(phase.decode(), done, total)
            except BaseException as e:  # a callback of C must not raise
                self.failed.append(e)
                self.stop.set()

        self.struct.on_progress = ProgressFn(told)


def _source(source: Any, name: Optional[str]) -> tuple[str, dict]:
    """The path to pass to Kiln, and the files in memory."""
    if hasattr(source, "SerializeToString"):
        source = source.SerializeToString()
    if isinstance(source, (bytes, bytearray, memoryview)):
        path = name or "model.onnx"
        return path, {path: source}
    return os.fspath(source), {}


def load_model(path: str, options: Options) -> _Model:
    library = _library.compiler()
    diag, pointer = _library.Diag(library), c_void_p()
    status = library.kiln_model_load(os.fsencode(path), byref(options.struct), diag.pointer, byref(pointer))
    if options.failed:
        raise options.failed[0]
    diag.check(status)
    return _Model(library, pointer.value, (options.borrowed, options.struct.on_dump, options.struct.on_progress, options.stop))


def make(path: str, options: Options, *, threads=0, spin_us=0, device=0, output=None) -> Module:
    """Compiles to a module in this process, or through a file if one is wanted or needed."""
    model = load_model(path, options)
    library = model.api
    diag, pointer = _library.Diag(library), c_void_p()
    session = dict(threads=threads, spin_us=spin_us, device=device)
    if output is None and not options.struct.n_ranges:
        status = library.kiln_model_compile(model.pointer, diag.pointer, byref(pointer))
        if options.failed:
            raise options.failed[0]
        diag.check(status)
        module = Module(library, pointer.value, model=model, keep=(options.borrowed,), **session)
    else:
        temporary = _Temporary()
        target = os.fspath(output) if output is not None else temporary.path
        diag.check(library.kiln_model_compile_to(model.pointer, os.fsencode(target), diag.pointer))
        temporary.path = target
        module = load_temporary(temporary, **session)
        module._model = model
    module.dumps = options.dumps
    took = library.kiln_model_memory(model.pointer)
    module._memory = Memory(*[getattr(took, name) for name, _ in took._fields_])
    return module


def compile(
    source: Any,
    *,
    target: Optional[str] = None,
    dtype: Optional[str] = None,
    dims: Optional[Mapping[str, Dim]] = None,
    shapes: Optional[Mapping[str, Sequence[Union[int, str]]]] = None,
    constants: Optional[Mapping[str, Any]] = None,
    overridable: Union[str, Iterable[str]] = (),
    marks: Union[str, Iterable[str]] = (),
    states: Union[str, Iterable[str]] = (),
    threads: int = 0,
    cache: bool = True,
    op_files: Union[str, Iterable[str]] = (),
    without: Union[str, Iterable[str]] = (),
    with_rules: Union[str, Iterable[str]] = (),
    files: Optional[Mapping[str, Any]] = None,
    name: Optional[str] = None,
    dump: Texts = None,
    progress: Union[bool, Callable[[str, int, int], None], None] = None,
    output: Path = None,
    stop: Optional[Stop] = None,
    spin_us: int = 0,
    device: int = 0,
    **options: Unpack[PlainOptions],
) -> Module:
    """Compiles a model: a path (.onnx, or .tc), a ModelProto, or bytes of one.

    dims: named dimensions: a number, a range (least, most[, step]) that the module keeps, or a sum of
    others ("past + t"). shapes: replaces declared shapes of inputs. constants: inputs that are bound.
    marks: inner values that become outputs as well; "*": all.
    states: "INPUT=OUTPUT" of what a session keeps between runs, or "auto": by the names past.. and present.. (Module.state).
    files: external data in memory, by location: tensors or bytes, which are not copied.
    name: the name of a model of bytes in messages. output: writes the module file as well. progress: True
    for a bar, or a function of (phase, done, total), whose exceptions end tuning, as `stop` does, and are
    raised. dump, dump_after: levels and passes, whose texts are then in `dumps`. Other options are those of the C API, by name.
    """
    o = Options(stop)
    o.plain(options, "kiln.compile")
    o.struct.threads, o.struct.cache = threads, int(cache)
    if target:
        o.set("target", target)
    if dtype:
        o.set("dtype", dtype)
    o.dims(dims or {})
    o.shapes(shapes or {})
    o.constants(constants or {})
    o.texts("overridable", overridable)
    o.texts("marks", marks)
    o.texts("states", states)
    o.texts("op_files", op_files)
    o.texts("without", without)
    o.texts("with_rules", with_rules)
    path, own = _source(source, name)
    o.files({**own, **(files or {})})
    if dump or options.get("dump_after"):
        o.dump(dump)
    o.progress(progress)
    return make(path, o, threads=threads, spin_us=spin_us, device=device, output=output)
