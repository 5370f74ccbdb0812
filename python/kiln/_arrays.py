# SPDX-License-Identifier: Apache-2.0
"""Tensors of other libraries, borrowed for a call by DLPack, and new ones of the same library.

A capsule of `__dlpack__` holds a DLManagedTensor, which begins with its DLTensor: the address in the
capsule is what the C API takes. No data is copied, and no object is made for a tensor.
"""
from __future__ import annotations

import contextlib
import ctypes
import sys
from ctypes import c_int64, c_void_p

from . import errors
from ._library import DLTensor

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
_VERSIONED_HEAD = 32  # bytes in front of the DLTensor of a DLManagedTensorVersioned

KDL_CPU, KDL_CUDA, KDL_CUDA_HOST, KDL_CUDA_MANAGED = 1, 2, 3, 13

# Kiln's name: (DLPack code, bits, NumPy's or ml_dtypes' name)
DTYPES = {
    "f16": (2, 16, "float16"),
    "f32": (2, 32, "float32"),
    "f64": (2, 64, "float64"),
    "bf16": (4, 16, "bfloat16"),
    "i8": (0, 8, "int8"),
    "i16": (0, 16, "int16"),
    "i32": (0, 32, "int32"),
    "i64": (0, 64, "int64"),
    "u8": (1, 8, "uint8"),
    "u16": (1, 16, "uint16"),
    "u32": (1, 32, "uint32"),
    "u64": (1, 64, "uint64"),
    "bool": (6, 8, "bool"),
    "int4": (0, 4, "int4"),
    "uint4": (1, 4, "uint4"),
    "int2": (0, 2, "int2"),
    "uint2": (1, 2, "uint2"),
    "f8e4m3fn": (10, 8, "float8_e4m3fn"),
    "f8e4m3fnuz": (11, 8, "float8_e4m3fnuz"),
    "f8e5m2": (12, 8, "float8_e5m2"),
    "f8e5m2fnuz": (13, 8, "float8_e5m2fnuz"),
    "f8e8m0": (14, 8, "float8_e8m0fnu"),
    "f4e2m1": (17, 4, "float4_e2m1fn"),
}


def numpy_dtype(name: str):
    """The NumPy type of Kiln's |name|; those that NumPy lacks are ml_dtypes'."""
    import numpy as np

    known = DTYPES.get(name)
    if known is None:
        raise errors.Unsupported(f"no NumPy type for {name}")
    try:
        return np.dtype(known[2])
    except TypeError:
        pass
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, known[2]))
    except (ImportError, AttributeError):
        raise errors.Unsupported(f"{name}: NumPy lacks this type; it needs the package ml_dtypes") from None


_names: dict = {}


def name_of_numpy(dtype) -> str:
    """Kiln's name of a NumPy type."""
    if not _names:
        _names.update({known[2]: name for name, known in DTYPES.items()})
    name = _names.get(dtype.name)
    if name is None:
        raise errors.BadInput(f"dtype: must be one that Kiln has, got {dtype}")
    return name


class Described:
    """A DLTensor over memory whose owner it keeps."""

    __slots__ = ("tensor", "shape", "strides", "owner", "address")

    def __init__(self, address, shape, strides, code, bits, owner, device=(KDL_CPU, 0)):
        n = len(shape)
        self.shape = (c_int64 * max(n, 1))(*shape)
        self.strides = (c_int64 * max(n, 1))(*strides) if strides is not None else None
        self.tensor = DLTensor(address, device[0], device[1], n, code, bits, 1, self.shape, self.strides, 0)
        self.owner = owner
        self.address = ctypes.addressof(self.tensor)


def describe_numpy(array) -> Described:
    """Describes an array for which NumPy makes no capsule: read-only memory, or a type of ml_dtypes."""
    code, bits, _ = DTYPES[name_of_numpy(array.dtype)]
    size = array.dtype.itemsize
    strides = None if array.flags.c_contiguous else [s // size for s in array.strides]
    return Described(array.__array_interface__["data"][0], array.shape, strides, code, bits, array)


def packed_numpy(array, library) -> Described:
    """Packs elements of fewer than 8 bits, which have a byte each in NumPy, as a Kiln tensor has them."""
    import numpy as np

    code, bits, _ = DTYPES[name_of_numpy(array.dtype)]
    plain = np.ascontiguousarray(array)
    packed = np.zeros((plain.size * bits + 7) // 8, np.uint8)
    out = Described(packed.ctypes.data, array.shape, None, code, bits, packed)
    if plain.size:
        library.kiln_tensor_pack(out.address, plain.view(np.uint8).ctypes.data)
    return out


def pointer_of(capsule) -> int:
    try:
        return _pointer(capsule, b"dltensor")
    except ValueError:
        return _pointer(capsule, b"dltensor_versioned") + _VERSIONED_HEAD


class Adapter:
    """The tensors of one library. `lend` gives the address of a DLTensor, and the object that must live as long."""

    def lend(self, tensor):
        capsule = tensor.__dlpack__()
        return pointer_of(capsule), capsule

    def empty(self, shape, dtype, device):
        """A new row-major tensor; |device| is (DLPack type, number)."""
        import numpy as np

        return np.empty(shape, numpy_dtype(dtype))

    def cut(self, tensor, shape):
        """The leading elements of each axis, for data-dependent shapes."""
        return tensor[tuple(slice(0, n) for n in shape)]

    def finish(self, tensor):
        """Converts an output to the object that the caller gets."""
        return tensor

    def stream(self, device) -> int:
        return 1 if device[0] == KDL_CUDA else 0

    def is_capturing(self) -> bool:
        return False

    def straight(self, tensor):
        """A row-major copy."""
        return tensor


@contextlib.contextmanager
def relaxed_capture():
    """Inside, a thread that captures a stream may allocate and load without invalidating the capture."""
    relaxed = 2
    mode = ctypes.c_int(relaxed)
    exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


class NumPy(Adapter):
    def __init__(self):
        import numpy as np

        self.np = np
        self.types: dict = {}

    def lend(self, tensor):
        try:
            capsule = tensor.__dlpack__()
            return _pointer(capsule, b"dltensor"), capsule
        except (BufferError, TypeError, AttributeError, ValueError):
            pass
        array = self.np.asarray(tensor)
        if not array.flags.aligned or not array.dtype.isnative:
            array = self.np.array(array, dtype=array.dtype.newbyteorder("="))
        bits = DTYPES[name_of_numpy(array.dtype)][1]
        if bits < 8:
            from ._library import runtime

            described = packed_numpy(array, runtime())
        else:
            described = describe_numpy(array)
        return described.address, described

    def empty(self, shape, dtype, device):
        try:
            return self.np.empty(shape, self.types[dtype])
        except KeyError:
            self.types[dtype] = numpy_dtype(dtype)
            return self.np.empty(shape, self.types[dtype])

    def straight(self, tensor):
        return self.np.ascontiguousarray(tensor).reshape(self.np.shape(tensor))


class Torch(Adapter):
    def __init__(self):
        import torch

        self.torch = torch
        self.to_dlpack = torch._C._to_dlpack
        self.types = {
            "f16": torch.float16,
            "f32": torch.float32,
            "f64": torch.float64,
            "bf16": torch.bfloat16,
            "i8": torch.int8,
            "i16": torch.int16,
            "i32": torch.int32,
            "i64": torch.int64,
            "u8": torch.uint8,
            "bool": torch.bool,
        }
        for name, other in (("u16", "uint16"), ("u32", "uint32"), ("u64", "uint64"), ("f8e5m2", "float8_e5m2")):
            if hasattr(torch, other):
                self.types[name] = getattr(torch, other)

    def lend(self, tensor):
        if tensor.requires_grad:
            tensor = tensor.detach()
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        capsule = self.to_dlpack(tensor)
        return _pointer(capsule, b"dltensor"), capsule

    def empty(self, shape, dtype, device):
        known = self.types.get(dtype)
        if known is None:
            raise errors.Unsupported(f"no PyTorch type for {dtype}")
        if device[0] == KDL_CPU:
            return self.torch.empty(shape, dtype=known)
        return self.torch.empty(shape, dtype=known, device=self.torch.device("cuda", device[1]))

    def stream(self, device):
        if device[0] != KDL_CUDA:
            return 0
        return self.torch.cuda.current_stream(device[1]).cuda_stream or 1

    def is_capturing(self):
        return self.torch.cuda.is_current_stream_capturing()

    def straight(self, tensor):
        return tensor.contiguous()


class CuPy(Adapter):
    def __init__(self):
        import cupy

        self.cupy = cupy

    def lend(self, tensor):
        capsule = tensor.toDlpack() if hasattr(tensor, "toDlpack") else tensor.__dlpack__(stream=-1)
        return pointer_of(capsule), capsule

    def empty(self, shape, dtype, device):
        if device[0] == KDL_CPU:
            return super().empty(shape, dtype, device)
        return self.cupy.empty(shape, numpy_dtype(dtype))

    def stream(self, device):
        return self.cupy.cuda.get_current_stream().ptr or 1 if device[0] == KDL_CUDA else 0

    def straight(self, tensor):
        return self.cupy.ascontiguousarray(tensor)


class Jax(Adapter):
    """JAX's arrays are immutable: an output is written to memory that JAX then takes without a copy."""

    def __init__(self):
        import jax

        self.jax = jax

    def lend(self, tensor):
        on_device = tensor.__dlpack_device__()[0] != KDL_CPU
        capsule = tensor.__dlpack__(stream=-1) if on_device else tensor.__dlpack__()
        if on_device:
            tensor.block_until_ready()
        return pointer_of(capsule), capsule

    def empty(self, shape, dtype, device):
        if device[0] != KDL_CPU:
            import cupy

            return cupy.empty(shape, numpy_dtype(dtype))
        import numpy as np

        kind = numpy_dtype(dtype)
        bytes_ = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        raw = np.empty(bytes_ + 64, np.uint8)  # JAX borrows memory that is aligned to 64 bytes
        skip = -raw.ctypes.data % 64
        return raw[skip : skip + bytes_].view(kind).reshape(shape)

    def finish(self, tensor):
        return self.jax.dlpack.from_dlpack(tensor)

    def straight(self, tensor):
        return self.jax.numpy.asarray(tensor)


_adapters: dict = {}
_made: dict = {}


def _find(kind: type) -> Adapter:
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        for name, make in (("torch", Torch), ("numpy", NumPy), ("cupy", CuPy), ("jaxlib", Jax), ("jax", Jax)):
            if root == name and name.replace("jaxlib", "jax") in sys.modules:
                return _made.setdefault(make, make())
    if hasattr(kind, "__dlpack__"):
        return _made.setdefault(Adapter, Adapter())
    return _made.setdefault(NumPy, NumPy())  # numbers, lists and objects with __array__


def adapter_of(tensor) -> Adapter:
    kind = type(tensor)
    found = _adapters.get(kind)
    if found is None:
        found = _adapters[kind] = _find(kind)
    return found


def numpy_adapter() -> Adapter:
    return _made.setdefault(NumPy, NumPy())
