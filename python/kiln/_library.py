# SPDX-License-Identifier: Apache-2.0
"""The C API through ctypes: structures, functions, and where the libraries are.

libkiln_rt loads and runs modules; libkiln, which is in the compiler's distribution, also compiles
them. Both are looked for in the directory $KILN_LIBRARY (or as that file), in the installed packages,
and in the build directory of a source tree.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
import warnings
from collections.abc import Iterator
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p

from . import errors

HERE = pathlib.Path(__file__).resolve().parent
PROVIDER = "libkiln_ort.so"  # of ONNX Runtime


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Port(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("rank", c_int32), ("shape", POINTER(c_int64))]


class DimValue(Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class DimSum(Structure):
    _fields_ = [("name", c_char_p), ("is_", c_char_p)]


class DimRange(Structure):
    _fields_ = [("name", c_char_p), ("least", c_int64), ("most", c_int64), ("step", c_int64)]


class ShapeValue(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("dim_names", POINTER(c_char_p)),
    ]


class MemoryFile(Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("n_bytes", c_size_t)]


DumpFn = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
ProgressFn = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_size_t, c_size_t)


class CompileOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dims", POINTER(DimValue)),
        ("n_dims", c_size_t),
        ("shapes", POINTER(ShapeValue)),
        ("n_shapes", c_size_t),
        ("threads", c_int32),
        ("dump", c_char_p),
        ("on_dump", DumpFn),
        ("dump_user", c_void_p),
        ("on_progress", ProgressFn),
        ("progress_user", c_void_p),
        ("constant_names", POINTER(c_char_p)),
        ("constant_values", POINTER(c_void_p)),
        ("n_constants", c_size_t),
        ("read_only", c_int32),
        ("entry", c_char_p),
        ("schedule", c_char_p),
        ("op_files", POINTER(c_char_p)),
        ("n_op_files", c_size_t),
        ("target", c_char_p),
        ("scheduler", c_char_p),
        ("cache", c_int32),
        ("tune", c_int32),
        ("no_winograd", c_int32),
        ("no_connect", c_int32),
        ("dtype", c_char_p),
        ("weight_growth", c_double),
        ("stop", c_void_p),
        ("tune_seconds", c_double),
        ("tuned_for", c_char_p),
        ("tuned", c_char_p),
        ("orchestrate", c_int32),
        ("orchestration", c_char_p),
        ("n_without", c_size_t),
        ("without", POINTER(c_char_p)),
        ("n_with_rules", c_size_t),
        ("with_rules", POINTER(c_char_p)),
        ("memory_limit", c_uint64),
        ("solver_nodes", c_int32),
        ("backends", c_char_p),
        ("ranges", POINTER(DimRange)),
        ("n_ranges", c_size_t),
        ("sums", POINTER(DimSum)),
        ("n_sums", c_size_t),
        ("no_beside", c_int32),
        ("clamp_indices", c_int32),
        ("overridable", POINTER(c_char_p)),
        ("n_overridable", c_size_t),
        ("dump_after", c_char_p),
        ("stop_after", c_char_p),
        ("files", POINTER(MemoryFile)),
        ("n_files", c_size_t),
        ("marks", POINTER(c_char_p)),
        ("n_marks", c_size_t),
        ("most_extent", c_int64),
        ("states", POINTER(c_char_p)),
        ("n_states", c_size_t),
    ]


class Memory(Structure):
    _fields_ = [
        ("weight_bytes", c_uint64),
        ("model_weight_bytes", c_uint64),
        ("arena_bytes", c_uint64),
        ("arena_lower_bound_bytes", c_uint64),
    ]


class ExplainOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kernel", c_char_p),
        ("why", c_char_p * 2),
        ("measure", c_int32),
        ("json", c_int32),
        ("orchestration", c_int32),
    ]


class VerifyResult(Structure):
    _fields_ = [
        ("kernel", c_char_p),
        ("nodes", c_char_p),
        ("rel_l2", c_double),
        ("max_abs", c_double),
        ("passed", c_int32),
    ]


VerifyFn = ctypes.CFUNCTYPE(None, c_void_p, POINTER(VerifyResult))


class VerifyOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("rtol", c_double),
        ("atol", c_double),
        ("reproducer_dir", c_char_p),
        ("on_result", VerifyFn),
        ("user", c_void_p),
        ("simulate", c_int32),
    ]


class ModuleInfo(Structure):
    _fields_ = [
        ("target", c_char_p),
        ("processor", c_char_p),
        ("threads", c_int32),
        ("n_features", c_size_t),
        ("features", POINTER(c_char_p)),
        ("compiler", c_char_p),
        ("file_version", c_int32),
        ("plan_version", c_int32),
        ("n_variants", c_size_t),
    ]


class LaunchInfo(Structure):
    _fields_ = [("kernel", c_char_p), ("nodes", c_char_p), ("flops", c_double), ("bytes", c_double)]


class StateInfo(Structure):
    _fields_ = [("name", c_char_p), ("input", c_size_t), ("output", c_size_t)]


class SessionOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("profile", c_int32),
        ("spin_us", c_int32),
        ("device", c_int32),
        ("is_async", c_int32),
        ("stream", c_void_p),
    ]


# name: (result, arguments); a kiln_status is an int
_P = c_void_p
RUNTIME = {
    "kiln_diag_create": (_P, []),
    "kiln_diag_destroy": (None, [_P]),
    "kiln_diag_count": (c_size_t, [_P]),
    "kiln_diag_message": (c_char_p, [_P, c_size_t]),
    "kiln_diag_place": (c_char_p, [_P, c_size_t]),
    "kiln_diag_clear": (None, [_P]),
    "kiln_module_load": (c_int32, [c_char_p, _P, POINTER(_P)]),
    "kiln_module_release": (None, [_P]),
    "kiln_module_is_file": (c_int32, [c_char_p]),
    "kiln_module_input_count": (c_size_t, [_P]),
    "kiln_module_output_count": (c_size_t, [_P]),
    "kiln_module_input": (Port, [_P, c_size_t]),
    "kiln_module_output": (Port, [_P, c_size_t]),
    "kiln_module_input_is_optional": (c_int32, [_P, c_size_t]),
    "kiln_module_about": (ModuleInfo, [_P]),
    "kiln_module_dim_count": (c_size_t, [_P]),
    "kiln_module_dim": (DimRange, [_P, c_size_t]),
    "kiln_module_find_dims": (c_int32, [_P, c_size_t, _P, _P, POINTER(c_int64)]),
    "kiln_module_output_shape": (c_int32, [_P, c_size_t, POINTER(c_int64), _P, POINTER(c_int64)]),
    "kiln_module_arena_bytes": (c_size_t, [_P]),
    "kiln_module_weight_bytes": (c_size_t, [_P]),
    "kiln_module_launch_count": (c_size_t, [_P]),
    "kiln_module_launch": (LaunchInfo, [_P, c_size_t]),
    "kiln_session_create": (c_int32, [_P, POINTER(SessionOptions), _P, POINTER(_P)]),
    "kiln_session_destroy": (None, [_P]),
    "kiln_session_run": (c_int32, [_P, c_size_t, _P, c_size_t, _P, _P]),
    "kiln_session_output_shape": (_P, [_P, c_size_t]),
    "kiln_module_state_count": (c_size_t, [_P]),
    "kiln_module_state": (StateInfo, [_P, c_size_t]),
    "kiln_session_find_dims": (c_int32, [_P, c_size_t, _P, _P, POINTER(c_int64)]),
    "kiln_session_state": (_P, [_P, c_size_t]),
    "kiln_session_state_reset": (c_int32, [_P, _P]),
    "kiln_session_state_truncate": (c_int32, [_P, c_int64, _P]),
    "kiln_session_fork": (c_int32, [_P, _P, POINTER(_P)]),
    "kiln_session_state_save": (c_int32, [_P, c_char_p, _P]),
    "kiln_session_state_load": (c_int32, [_P, c_char_p, _P]),
    "kiln_session_wait": (c_int32, [_P, _P]),
    "kiln_session_launch_ns": (c_uint64, [_P, c_size_t]),
    "kiln_session_launch_start_ns": (c_uint64, [_P, c_size_t]),
    "kiln_tensor_unpack": (None, [_P, _P]),
    "kiln_tensor_pack": (None, [_P, _P]),
}
COMPILER = {
    "kiln_model_load": (c_int32, [c_char_p, POINTER(CompileOptions), _P, POINTER(_P)]),
    "kiln_model_destroy": (None, [_P]),
    "kiln_model_compile": (c_int32, [_P, _P, POINTER(_P)]),
    "kiln_model_compile_to": (c_int32, [_P, c_char_p, _P]),
    "kiln_model_memory": (Memory, [_P]),
    "kiln_model_explain": (c_int32, [_P, POINTER(ExplainOptions), _P, POINTER(c_char_p)]),
    "kiln_model_report": (c_char_p, [_P, ctypes.c_int]),
    "kiln_model_verify": (c_int32, [_P, POINTER(VerifyOptions), _P, POINTER(c_size_t)]),
    "kiln_model_reference": (c_int32, [_P, c_size_t, _P, c_size_t, _P, _P]),
    "kiln_model_input_count": (c_size_t, [_P]),
    "kiln_model_output_count": (c_size_t, [_P]),
    "kiln_model_input": (Port, [_P, c_size_t]),
    "kiln_model_output": (Port, [_P, c_size_t]),
    "kiln_model_input_dim_name": (c_char_p, [_P, c_size_t, c_int32]),
    "kiln_model_output_shape": (_P, [_P, c_size_t]),
    "kiln_version": (c_char_p, []),
    "kiln_host": (c_char_p, []),
}


def _folders() -> Iterator[pathlib.Path]:
    given = os.environ.get("KILN_LIBRARY")
    if given:
        yield pathlib.Path(given)
        return
    yield HERE / "lib"
    try:
        import kiln_compiler

        yield pathlib.Path(kiln_compiler.__file__).resolve().parent / "lib"
    except ImportError:
        pass
    yield HERE.parent.parent / "build"


def _candidates(name: str) -> Iterator[pathlib.Path]:
    for folder in _folders():
        if folder.is_file():  # the folder of libkiln and of the provider
            yield folder.with_name(name) if name == PROVIDER else folder
            continue
        yield folder / name
        if name != PROVIDER:
            yield folder / (name + ".1")  # the soname, the only name where nothing is linked against it


def find(name: str) -> pathlib.Path:
    tried = list(_candidates(name))
    found = next((p for p in tried if p.is_file()), None)
    if found is None:
        folders = ", ".join(dict.fromkeys(str(p.parent) for p in tried))
        package = "kiln-runtime" if name == "libkiln_rt.so" else "kiln-compiler"
        raise ImportError(
            f"{name}: must be in {folders}: install the distribution {package} (pip install {package}), "
            "or set KILN_LIBRARY to the directory of a build",
            name="kiln",
        )
    return found


def _open(name: str, functions: dict) -> ctypes.CDLL:
    found = find(name)
    library = ctypes.CDLL(str(found))
    library.path = found
    for function, (result, arguments) in functions.items():
        entry = getattr(library, function)
        entry.restype, entry.argtypes = result, arguments
    return library


_lock = threading.Lock()
_opened: dict[str, ctypes.CDLL] = {}


def compiler() -> ctypes.CDLL:
    """libkiln, which has the runtime as well."""
    with _lock:
        if "compiler" not in _opened:
            _opened["compiler"] = _open("libkiln.so", {**RUNTIME, **COMPILER})
        return _opened["compiler"]


def runtime() -> ctypes.CDLL:
    """The library that runs modules: libkiln if it is already open, otherwise libkiln_rt, otherwise libkiln."""
    with _lock:
        if "compiler" in _opened:
            return _opened["compiler"]
        if "runtime" not in _opened:
            try:
                _opened["runtime"] = _open("libkiln_rt.so", RUNTIME)
            except (ImportError, AttributeError):
                _opened["runtime"] = _open("libkiln.so", RUNTIME)
        return _opened["runtime"]


class Diag:
    """A kiln_diag of the caller's thread, turned into exceptions and warnings."""

    __slots__ = ("api", "pointer")

    def __init__(self, library: ctypes.CDLL):
        self.api, self.pointer = library, library.kiln_diag_create()
        if not self.pointer:
            raise MemoryError

    def __del__(self):
        if getattr(self, "pointer", None):
            self.api.kiln_diag_destroy(self.pointer)

    def take(self) -> list[errors.Message]:
        n = self.api.kiln_diag_count(self.pointer)
        out = []
        for i in range(n):
            place = self.api.kiln_diag_place(self.pointer, i)
            text = self.api.kiln_diag_message(self.pointer, i)
            out.append(errors.Message(text.decode(), place.decode() if place else None))
        self.api.kiln_diag_clear(self.pointer)
        return out

    def check(self, status: int) -> None:
        """Raises the exception of |status|; messages of a success become warnings."""
        messages = self.take()
        if status:
            failure = errors.BY_STATUS.get(status, errors.InternalError)
            text = "\n".join(m.text for m in messages) or f"status {status}"
            raise failure(text, tuple(messages))
        for m in messages:
            warnings.warn(m.text, errors.KilnWarning, stacklevel=4)


def texts(values) -> tuple[object, int]:
    """|values| as a char **, and their number."""
    if isinstance(values, str):
        values = [values]
    encoded = [os.fsencode(v) for v in values]
    return (c_char_p * max(len(encoded), 1))(*encoded), len(encoded)
