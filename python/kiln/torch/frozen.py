# SPDX-License-Identifier: Apache-2.0
"""kiln.torch.compile(model): a model as a function whose calls look at their arguments only.

The model is traced by torch.export for each choice of shapes and types. Its modules and weights stay as they were then,
so that a call needs neither Dynamo's guards, which walk all modules, nor the weights, which the backend has read: it looks at
the tensors' shapes and types only. (To ask each weight whether it was modified takes 0.3 ms for MobileNet-v2, where the run
before has evicted them from the caches.) What torch.export cannot trace goes through torch.compile with the same backend.
"""

from __future__ import annotations

import time
from typing import Any, Callable

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

_PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _key_of(flat: list) -> tuple:
    return tuple([(x.shape, x.dtype, x.device) if isinstance(x, torch.Tensor) else (type(x), x) for x in flat])


class Unsuitable(Exception):
    """The model does more than computing results from its arguments."""


class Traced:
    """A model for arguments of one kind."""

    def __init__(self, model, args, kwargs, decompositions: dict, make: Callable):
        start = time.perf_counter()
        program = torch.export.export(model, args, kwargs, strict=False).run_decompositions(decompositions)
        signature = program.graph_signature
        if any(o.kind != OutputKind.USER_OUTPUT for o in signature.output_specs):
            raise Unsuitable("it modifies buffers or arguments")
        state = {**program.constants, **program.state_dict}
        weights, places = {}, []
        for i, spec in enumerate(signature.input_specs):
            if spec.kind in _PARAMETERS:
                weights[i] = state[spec.target]
            elif spec.kind == InputKind.USER_INPUT:
                places.append(i)
            else:
                raise Unsuitable(f"it has an input of kind {spec.kind}")
        self.out_spec = program.call_spec.out_spec
        self.is_single = self.out_spec.is_leaf()
        self.run = make(program.graph_module, weights, places, time.perf_counter() - start)

    def __call__(self, flat: list) -> Any:
        results = self.run(*flat)
        return results[0] if self.is_single else pytree.tree_unflatten(list(results), self.out_spec)


class Frozen:
    """What kiln.torch.compile gives: called as the model is, for inference."""

    def __init__(self, model, decompositions: dict, make: Callable, otherwise: Callable, most: int):
        self.model, self.decompositions, self.make, self.most = model, decompositions, make, most
        self.compile_otherwise = otherwise
        self.otherwise = None  # by torch.compile
        self.why = ""  # the reason for it
        self.renew()

    def renew(self) -> None:
        """Forgets what was compiled: later calls read the weights and modules as they are then."""
        self.traced: dict = {}

    def __call__(self, *args, **kwargs):
        if kwargs or not all(map(_is_tensor, args)):
            flat = pytree.tree_leaves((args, kwargs))
            key = (_key_of(flat), len(args), tuple(kwargs), pytree.tree_structure((args, kwargs)))
        else:
            flat = args
            key = _key_of(flat)
        traced = self.traced.get(key)
        if traced is None or (torch.is_grad_enabled() and self.wants_gradient(flat)):
            return self.slow(key, flat, args, kwargs)
        return traced(flat)

    def wants_gradient(self, flat) -> bool:
        return any(x.requires_grad for x in flat if isinstance(x, torch.Tensor)) or any(p.requires_grad for p in self.model.parameters())

    def slow(self, key, flat, args, kwargs):
        if torch.is_grad_enabled() and self.wants_gradient(flat):
            return self.model(*args, **kwargs)
        if self.otherwise is None and len(self.traced) < self.most:
            try:
                self.traced[key] = Traced(self.model, args, kwargs, self.decompositions, self.make)
                return self.traced[key](flat)
            except Exception as e:  # whatever torch.export refuses
                self.why = f"{type(e).__name__}: {e}".splitlines()[0]
        if self.otherwise is None:
            self.otherwise = self.compile_otherwise(self.model)
        return self.otherwise(*args, **kwargs)
