# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX models as bytes, without the onnx package: the few messages of a graph, field by field."""

from __future__ import annotations

import operator
import struct
from typing import Any, Optional, Sequence

FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, BOOL = 1, 2, 3, 4, 5, 6, 7, 9
FLOAT16, DOUBLE, UINT32, UINT64, BFLOAT16 = 10, 11, 12, 13, 16
OPSET, IR_VERSION = 21, 10


def _varint(n: int) -> bytes:
    n = operator.index(n) & (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _int(field: int, n: int) -> bytes:
    return _varint(field << 3) + _varint(n)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _attribute(name: str, value: Any) -> bytes:
    out = _text(1, name)
    if isinstance(value, bool) or isinstance(value, int):
        out += _int(3, int(value)) + _int(20, 2)
    elif isinstance(value, float):
        out += _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    elif isinstance(value, str):
        out += _text(4, value) + _int(20, 3)
    elif value and isinstance(value[0], float):
        out += b"".join(_varint(7 << 3 | 5) + struct.pack("<f", x) for x in value) + _int(20, 6)
    elif value and isinstance(value[0], str):
        out += b"".join(_text(9, x) for x in value) + _int(20, 8)
    else:
        out += b"".join(_int(8, x) for x in value) + _int(20, 7)
    return out


def _value_info(name: str, kind: int, shape: Sequence) -> bytes:
    dims = b"".join(_bytes(1, b"" if d is None else _text(2, d) if isinstance(d, str) else _int(1, d)) for d in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _int(1, kind) + _bytes(2, dims)))


class Model:
    """A graph under construction; values are names."""

    def __init__(self, name: str):
        self.name, self.parts = name, []
        self.n_values = 0
        self.constants: dict = {}  # small ones, by content

    def fresh(self) -> str:
        self.n_values += 1
        return f"t{self.n_values}"

    def node(self, op: str, inputs: Sequence[Optional[str]], place: str, n_outputs: int = 1, /, **attributes: Any):
        """Appends a node named |place|; gives its output, or outputs."""
        outputs = [self.fresh() for _ in range(n_outputs)]
        inputs = list(inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        out = b"".join(_text(1, x or "") for x in inputs) + b"".join(_text(2, x) for x in outputs)
        out += _text(3, place) + _text(4, op)
        out += b"".join(_bytes(5, _attribute(k, v)) for k, v in attributes.items() if v is not None)
        self.parts.append(_bytes(1, out))
        return outputs[0] if n_outputs == 1 else outputs

    def input(self, name: str, kind: int, shape: Sequence) -> None:
        self.parts.append(_bytes(11, _value_info(name, kind, shape)))

    def output(self, name: str, kind: int, shape: Sequence) -> None:
        self.parts.append(_bytes(12, _value_info(name, kind, shape)))

    def tensor(self, kind: int, shape: Sequence[int], data: bytes) -> str:
        """A constant with its elements in the model; equal constants are shared."""
        key = (kind, tuple(shape), data)
        if key not in self.constants:
            name = self.constants[key] = self.fresh()
            dims = b"".join(_int(1, d) for d in shape)
            self.parts.append(_bytes(5, dims + _int(2, kind) + _text(8, name) + _bytes(9, data)))
        return self.constants[key]

    def external(self, name: str, kind: int, shape: Sequence[int]) -> None:
        """A constant whose elements are the file |name|."""
        dims = b"".join(_int(1, d) for d in shape)
        where = _bytes(13, _text(1, "location") + _text(2, name)) + _int(14, 1)
        self.parts.append(_bytes(5, dims + _int(2, kind) + _text(8, name) + where))

    def ints(self, values: Sequence[int]) -> str:
        if any(hasattr(v, "write") for v in values):  # dynamic sizes
            return self.node(
                "Concat", [v.write(self) if hasattr(v, "write") else self.ints([v]) for v in values], "sizes", axis=0
            )
        return self.tensor(INT64, [len(values)], struct.pack(f"<{len(values)}q", *values))

    def finish(self) -> bytes:
        graph = b"".join(self.parts) + _text(2, self.name)
        return _int(1, IR_VERSION) + _text(2, "kiln.torch") + _bytes(8, _text(1, "") + _int(2, OPSET)) + _bytes(7, graph)
