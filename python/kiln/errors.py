# SPDX-License-Identifier: Apache-2.0
"""Exceptions: a class for each status of the C API."""
from __future__ import annotations

import dataclasses
import re
from typing import Optional

_NODE = re.compile(r'node (\d+)(?: "((?:[^"\\]|\\.)*)")?')
_LINE = re.compile(r":(\d+):(\d+)$")


@dataclasses.dataclass(frozen=True)
class Message:
    """One message of the compiler: "place: error: subject: what must hold, got what was found"."""

    text: str
    place: Optional[str] = None  # 'm.onnx: node 17 "layer1.conv2"', "op.tc:3:14"

    @property
    def is_warning(self) -> bool:
        return self.text[len(self.place) + 2 if self.place else 0 :].startswith("warning: ")

    @property
    def node(self) -> Optional[str]:
        """The name of the ONNX node, or its number where it has no name."""
        found = _NODE.search(self.place or "")
        return (found.group(2) or found.group(1)) if found else None

    @property
    def node_index(self) -> Optional[int]:
        found = _NODE.search(self.place or "")
        return int(found.group(1)) if found else None

    @property
    def line_column(self) -> Optional[tuple[int, int]]:
        """The position in a definition's text."""
        found = _LINE.search(self.place or "")
        return (int(found.group(1)), int(found.group(2))) if found else None


class Error(RuntimeError):
    """Base of all failures that Kiln reports. `messages` has all messages, str() is the first one."""

    status = 6

    def __init__(self, text: str = "", messages: tuple[Message, ...] = ()):
        super().__init__(text)
        self.messages = tuple(messages)

    def __reduce__(self):
        return type(self), (self.args[0], self.messages)

    @property
    def _first(self) -> Optional[Message]:
        return next((m for m in self.messages if not m.is_warning), None)

    @property
    def place(self) -> Optional[str]:
        return self._first.place if self._first else None

    @property
    def node(self) -> Optional[str]:
        return self._first.node if self._first else None

    @property
    def nodes(self) -> list[str]:
        """All nodes that messages name, in order."""
        return [m.node for m in self.messages if m.node is not None]


class BadInput(Error, ValueError):
    """The caller's data or request is wrong."""

    status = 1


class Unsupported(Error, NotImplementedError):
    """Valid, but this version cannot do it."""

    status = 2


class NoMemory(Error, MemoryError):
    """The system refused memory; all that the call made is freed."""

    status = 3


class NoBudget(Error):
    """A search exhausted its budget of steps without a result."""

    status = 4


class DeviceError(Error, OSError):
    """The machine, its driver or the operating system refused."""

    status = 5

    def __init__(self, text: str = "", messages: tuple[Message, ...] = ()):
        OSError.__init__(self, text)
        self.messages = tuple(messages)


class InternalError(Error):
    """A bug in Kiln."""

    status = 6


class KilnWarning(UserWarning):
    """A warning of the compiler."""


BY_STATUS = {c.status: c for c in (BadInput, Unsupported, NoMemory, NoBudget, DeviceError, InternalError)}
