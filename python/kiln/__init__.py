# SPDX-License-Identifier: Apache-2.0
"""Kiln: compiles ONNX models and tensor-comprehension definitions, and runs the compiled modules.

    module = kiln.compile("resnet50.onnx", dims={"N": 1})
    y = module(x)                       # NumPy, PyTorch, CuPy, JAX: where the tensors lie
"""
from typing import TYPE_CHECKING, Any

from ._compile import Stop, compile
from .errors import (
    BadInput,
    DeviceError,
    Error,
    InternalError,
    KilnWarning,
    Message,
    NoBudget,
    NoMemory,
    Unsupported,
)
from .module import About, DimRange, Launch, Memory, Module, Port, Verdict, from_bytes, load

if TYPE_CHECKING:
    from ._tc import tc

__version__ = "0.1.0"
__all__ = [
    "About", "BadInput", "DeviceError", "DimRange", "Error", "InternalError", "KilnWarning", "Launch", "Memory",
    "Message", "Module", "NoBudget", "NoMemory", "Port", "Stop", "Unsupported", "Verdict", "compile",
    "from_bytes", "host", "load", "ort_library", "tc",
]  # fmt: skip


def host() -> str:
    """The processor, its vectors and features, as the compiler uses them."""
    from . import _library

    return _library.compiler().kiln_host().decode()


def ort_library() -> str:
    """The path of Kiln's execution provider, for onnxruntime.register_execution_provider_library.

    Raises ImportError if only kiln-runtime is installed: the provider is part of kiln-compiler.
    """
    import os

    from . import _library

    return os.path.abspath(_library.find(_library.PROVIDER))  # ONNX Runtime resolves relative paths in its own folder


def __getattr__(name: str) -> Any:
    if name == "tc":
        import importlib

        return importlib.import_module("._tc", __name__).tc
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")
