# SPDX-License-Identifier: Apache-2.0
"""Sessions: runs that keep state, as a decoder's key-value cache (`states` of kiln.compile)."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int64, c_void_p
from typing import Any, Optional, Union

from . import _arrays, errors
from ._arrays import KDL_CPU
from ._library import DLTensor
from .module import _MAX_DIMS, _MAX_RANK, Module, Port, _Runner


class Session:
    """Runs of a module one after another, each with the state that the one before left.

    `session(tokens)` takes and gives tensors of the ports that are no state (`inputs`, `outputs`), as
    a call of the module does. A state begins with zeros (of length 0 where it grows), and stays in
    memory of the session. A state's input may be given by name: it is used in place of the
    session's value in this run.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[str, ...]  # names of the states' inputs

    def __init__(self, module: Module, _runner: Optional[_Runner] = None):
        lib = module._library
        self._module, self._library = module, lib
        infos = [lib.kiln_module_state(module._pointer, i) for i in range(lib.kiln_module_state_count(module._pointer))]
        if not infos:
            raise errors.BadInput("session: the module must have states: compile it with states=..., got none")
        self.states = tuple(info.name.decode() for info in infos)
        kept_in, kept_out = {info.input for info in infos}, {info.output for info in infos}
        self._in = [i for i in range(len(module.inputs)) if i not in kept_in]
        self._out = [i for i in range(len(module.outputs)) if i not in kept_out]
        self.inputs = tuple(module.inputs[i] for i in self._in)
        self.outputs = tuple(module.outputs[i] for i in self._out)
        self._runner = _runner or module._make_runner()

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Runs once and keeps the new state. One output is given as it is, several as a tuple."""
        runner, held = self._runner, []
        given = self._given(tensors, named)
        first = next((t for t in given if t is not None), None)
        adapter = _arrays.numpy_adapter() if first is None else _arrays.adapter_of(first)
        for i, tensor in enumerate(given):
            runner.inputs[i] = None
            if tensor is not None:
                runner.inputs[i], owner = _arrays.adapter_of(tensor).lend(_arrays.adapter_of(tensor).straight(tensor))
                held.append(owner)
        results = []
        for i in range(len(self._module.outputs)):
            runner.outputs[i] = None
        for i, shape in zip(self._out, self._shapes()):
            result = adapter.empty(shape, self._module.outputs[i].dtype, (KDL_CPU, 0))
            runner.outputs[i], owner = adapter.lend(result)
            held.append(owner)
            results.append(result)
        runner.diag.check(self._module._run(*runner.at))
        results = [adapter.finish(r) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _given(self, tensors, named):
        if len(tensors) > len(self._in):
            raise errors.BadInput(f"inputs: must be at most {len(self._in)}, got {len(tensors)}")
        given: list = [None] * len(self._module.inputs)
        for i, tensor in zip(self._in, tensors):
            given[i] = tensor
        for name, tensor in named.items():
            place = self._module._places.get(name)
            if place is None:
                raise errors.BadInput(f"input: must be one of {', '.join(self._module._places)}, got {name}")
            if given[place] is not None:
                raise errors.BadInput(f"input {name}: must be given once")
            given[place] = tensor
        for i in self._in:
            port = self._module.inputs[i]
            if given[i] is None and not port.is_optional:
                raise errors.BadInput(f"input {port.name}: must be given")
        return given

    def _shapes(self):
        if not self._module.dims:
            return [port.shape for port in self.outputs]
        lib, runner = self._library, self._runner
        values, shape, at = (c_int64 * _MAX_DIMS)(), (c_int64 * _MAX_RANK)(), runner.at
        runner.diag.check(lib.kiln_session_find_dims(at[0], at[1], at[2], at[5], values))
        shapes = []
        for i in self._out:
            status = lib.kiln_module_output_shape(self._module._pointer, i, values, at[5], shape)
            runner.diag.check(status)
            shapes.append(tuple(shape[: len(self._module.outputs[i].shape)]))
        return shapes

    def state(self, name: str) -> Any:
        """A copy of a state as a NumPy array; None: it begins anew."""
        if name not in self.states:
            raise errors.BadInput(f"state: must be one of {', '.join(self.states)}, got {name}")
        at = self._library.kiln_session_state(self._runner.session, self.states.index(name))
        if not at:
            return None
        value = DLTensor.from_address(at)
        shape = tuple(value.shape[k] for k in range(value.ndim))
        dtype = self._module.inputs[self._module._places[name]].dtype
        copy = _arrays.numpy_adapter().empty(shape, dtype, (KDL_CPU, 0))
        ctypes.memmove(copy.ctypes.data, value.data, copy.nbytes)
        return copy

    def _do(self, function, *arguments):
        runner = self._runner
        runner.diag.check(getattr(self._library, function)(runner.session, *arguments, runner.diag.pointer))

    def reset(self) -> None:
        """All states begin anew."""
        self._do("kiln_session_state_reset")

    def truncate(self, length: int) -> None:
        """Keeps the first `length` elements of each state along the axis along which runs append."""
        self._do("kiln_session_state_truncate", c_int64(length))

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the states to a file."""
        self._do("kiln_session_state_save", os.fsencode(path))

    def load(self, path: Union[str, os.PathLike]) -> None:
        """Replaces the states by those of a file that `save` of a session of the same model wrote."""
        self._do("kiln_session_state_load", os.fsencode(path))

    def fork(self) -> "Session":
        """A new session with copies of the states, as for beams, or for requests that begin alike."""
        runner, forked = self._runner, c_void_p()
        status = self._library.kiln_session_fork(runner.session, runner.diag.pointer, byref(forked))
        runner.diag.check(status)
        return Session(self._module, _Runner.of(self._module, forked.value))
