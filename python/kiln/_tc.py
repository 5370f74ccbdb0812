# SPDX-License-Identifier: Apache-2.0
"""Definitions in the notation of tensor comprehensions, called with tensors."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional, Union

from . import errors, gradient
from ._compile import CommonOptions, Options, load_model, make
from .module import Module, _text

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack


class TcOptions(CommonOptions, total=False):
    """The options of `kiln.compile` that apply to definitions."""

    target: Optional[str]
    dtype: Optional[str]
    threads: int
    cache: bool


class Definition:
    """A definition. A call takes sizes from its tensors; a module is kept for each combination of sizes."""

    def __init__(self, text: str, entry: Optional[str], grad: Union[str, bool, None], options: dict):
        self.text, self._entry, self._options = text, entry, options
        self._grad = grad
        self._gradient: Optional[Definition] = None
        self._modules: dict[Any, Module] = {}
        o = self._make_options()
        o.struct.read_only = 1
        model = load_model("definition.tc", o)
        lib, p = model.api, model.pointer
        self.inputs = [_text(lib.kiln_model_input(p, i).name) for i in range(lib.kiln_model_input_count(p))]
        self.outputs = [_text(lib.kiln_model_output(p, i).name) for i in range(lib.kiln_model_output_count(p))]
        self._dims = []  # of each input: the size parameter of each axis
        for i in range(len(self.inputs)):
            rank = lib.kiln_model_input(p, i).rank
            self._dims.append([lib.kiln_model_input_dim_name(p, i, k) for k in range(rank)])

    def _make_options(self) -> Options:
        o = Options()
        options = dict(self._options)
        o.struct.threads = options.pop("threads", 0)
        o.struct.cache = int(options.pop("cache", True))
        for key in ("target", "dtype"):
            o.set(key, options.pop(key, None))
        o.plain(options, "kiln.tc")
        if self._entry:
            o.set("entry", self._entry)
        o.files({"definition.tc": self.text.encode()})
        return o

    def compile(self, **sizes: int) -> Module:
        """The module for given sizes."""
        key = tuple(sorted(sizes.items()))
        if key not in self._modules:
            o = self._make_options()
            o.dims(sizes)
            self._modules[key] = make("definition.tc", o, threads=self._options.get("threads", 0))
        return self._modules[key]

    def _sizes(self, tensors) -> dict:
        sizes: dict[str, int] = {}
        for name, dims, tensor in zip(self.inputs, self._dims, tensors):
            shape = tensor.shape if hasattr(tensor, "shape") else ()
            if len(shape) != len(dims):
                raise errors.BadInput(f"{name}: must have {len(dims)} axes, got {len(shape)}")
            for dim, n in zip(dims, shape):
                if dim is None:
                    continue
                dim = dim.decode()
                if sizes.setdefault(dim, int(n)) != n:
                    raise errors.BadInput(f"{name}: {dim} must be {sizes[dim]} as before, got {n}")
        return sizes

    def module_for(self, *tensors: Any) -> Module:
        key = tuple([getattr(t, "shape", ()) for t in tensors])
        found = self._modules.get(key)
        if found is None:
            if len(tensors) != len(self.inputs):
                raise errors.BadInput(f"inputs: must be {', '.join(self.inputs)}, got {len(tensors)}")
            found = self._modules[key] = self.compile(**self._sizes(tensors))
        return found

    def __call__(self, *tensors: Any, out: Any = None, **named: Any) -> Any:
        if named:
            missing = [n for n in self.inputs[len(tensors) :] if n not in named]
            if missing or set(named) - set(self.inputs):
                raise errors.BadInput(f"inputs: must be {', '.join(self.inputs)}, got {', '.join(named)}")
            tensors = (*tensors, *[named[n] for n in self.inputs[len(tensors) :]])
        if self._grad and out is None and any(getattr(t, "requires_grad", False) for t in tensors):
            return _apply(self, tensors)
        return self.module_for(*tensors)(*tensors, out=out)

    @property
    def gradient(self) -> "Definition":
        """The definition that computes the gradients: that given as grad=, or derived.

        Its parameters are the inputs and a gradient of each output, its results the gradients of float inputs.
        """
        if self._gradient is None:
            text = self._grad if isinstance(self._grad, str) else gradient.derive(self.text, self._entry)
            entry = None if isinstance(self._grad, str) or not self._entry else self._entry + "_gradient"
            self._gradient = Definition(text, entry, None, self._options)
        return self._gradient


def _apply(definition: Definition, tensors):
    import torch

    backward = definition.gradient  # raises before anything runs if it cannot be derived
    module = definition.module_for(*tensors)

    class Apply(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return module(*[t.contiguous() for t in inputs])

        @staticmethod
        def backward(ctx, *grads):
            inputs = ctx.saved_tensors
            grads = [
                torch.zeros(p.shape, dtype=torch.float32) if g is None else g.contiguous()
                for g, p in zip(grads, module.outputs)
            ]
            found = backward.module_for(*inputs, *grads).run(*[t.contiguous() for t in inputs], *grads)
            results = iter(found)
            return tuple(next(results) if t.is_floating_point() else None for t in inputs)

    return Apply.apply(*tensors)


def tc(
    text: str, *, entry: Optional[str] = None, grad: Union[str, bool, None] = True, **options: Unpack[TcOptions]
) -> Definition:
    """Compiles a definition in TC notation, to be called with tensors.

    entry: the definition, where the text has several; else the last. grad: the text of a definition of
    its gradient, whose parameters are the inputs and then a gradient of each output, and whose results are
    gradients of the float inputs; True: derived on first use; None: none. Other options are those of
    `kiln.compile`.
    """
    return Definition(text, entry, grad, dict(options))


