# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="kiln"): graphs of core ATen, compiled for inference.

Dynamo's graph goes through AOTAutograd, which makes it functional. Operators that lower.py can write
go to Kiln in partitions as large as possible, others stay with PyTorch; weights are constants, which
are not copied. `kiln.torch.report()` lists for each graph the compiled and the refused nodes, with reasons.

    torch.compile(model, backend="kiln", options={"threads": 2})   # options: those of kiln.compile
"""

from __future__ import annotations

import dataclasses
import operator
import os
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Optional, Sequence

import torch
import torch._dynamo
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._python_dispatch import _disable_current_modes

from .. import errors
from .._compile import Options, PLAIN, make
from . import decompose, elementwise, indices, lower, sums, windows  # noqa: F401  (these fill lower.TABLE)
from .frozen import Frozen

__all__ = ["backend", "compile", "modules", "report", "reset", "GraphReport"]

MOST_SPECIAL = 16  # variants of a graph for other weights or sizes; after that PyTorch runs it
MOST_EXTENT = 1 << 16  # of a dimension that one module takes any size of
_FOLDED_BYTES = 64 << 20  # the most bytes of folded constants


@dataclasses.dataclass
class GraphReport:
    """The result of compiling one graph of Dynamo's."""

    nodes: int = 0  # operators
    compiled: int = 0
    partitions: int = 0
    refused: dict = dataclasses.field(default_factory=dict)  # by node: its operator, and the reason
    seconds: float = 0.0  # to read, compile and load it
    trace_seconds: float = 0.0  # AOTAutograd's
    specialized: int = 0  # variants for sizes of dynamic dimensions
    eager: str = ""  # why PyTorch runs all of it

    @property
    def fallback(self) -> int:
        return self.nodes - self.compiled


_reports: list[GraphReport] = []
_modules: list = []  # weak references
_lock = threading.Lock()


def report() -> list[GraphReport]:
    """The reports of all graphs compiled since the last `reset`, in order."""
    return list(_reports)


def modules() -> list:
    """The modules of these graphs."""
    return [m for m in (w() for w in _modules) if m is not None]


def reset() -> None:
    _reports.clear()
    _modules.clear()


# --- partitions ---


class _Support(OperatorSupportBase):
    def __init__(self, refused: dict, outside: set):
        self.refused, self.outside = refused, outside

    def is_node_supported(self, submodules, node: fx.Node) -> bool:
        return node.op == "call_function" and node not in self.outside and node.name not in self.refused


def _strides_order(t: torch.Tensor) -> Optional[list[int]]:
    """A dense tensor's axes by descending stride; None if it is row-major or not dense."""
    if t.dim() < 2 or t.is_contiguous():
        return None
    order = sorted(range(t.dim()), key=lambda k: (-t.stride(k), k))
    return order if t.permute(order).is_contiguous() else None


def _inverse(order: Sequence[int]) -> list[int]:
    out = [0] * len(order)
    for i, k in enumerate(order):
        out[k] = i
    return out


class _Kernel(torch.nn.Module):
    """A compiled partition, called with tensors of PyTorch."""

    def __init__(self, module, takes, gives, is_single):
        super().__init__()
        self.is_single = is_single  # gives the result itself, and no tuple
        self.module = module
        self.takes = takes  # (number of the argument, the order of its axes)
        self.gives = gives  # the order of each result's axes

    def forward(self, *args):
        results = self.run(*args)
        return results[0] if self.is_single else results

    def run(self, *args) -> tuple:
        given = []
        for i, order in self.takes:
            t = args[i]
            if order is not None:
                t = t.permute(order)
            given.append(t if t.is_contiguous() else t.contiguous())
        if not given:  # no argument determines the device of results
            results = [torch.from_dlpack(r) for r in self.module.run()]
        else:
            results = self.module.run(*given)
        if any(self.gives):
            results = [r if order is None else r.permute(order) for r, order in zip(results, self.gives)]
        return tuple(results)


class _NoRange(Exception):
    """A graph cannot be compiled for a range of sizes."""


def _range_of(symbol, env) -> tuple:
    """The bounds of a dimension, if they were declared (torch._dynamo.mark_dynamic)."""
    found = env.var_to_range[symbol]
    try:
        least, most = int(found.lower), int(found.upper)
    except (AttributeError, TypeError, ValueError, OverflowError):  # sympy has several infinities
        raise _NoRange from None
    if most > MOST_EXTENT:
        raise _NoRange
    return max(least, 1), most


class _Graph:
    """An ATen graph with known weights and sizes, from which a callable is made."""

    def __init__(self, gm: fx.GraphModule, constants: dict, options: dict, told: GraphReport):
        self.gm, self.options, self.told = gm, options, told
        self.constants: dict[fx.Node, torch.Tensor] = constants  # weights and folded values
        self.refused: dict[str, str] = {}  # node name: why
        self.is_dynamic = _is_dynamic(gm)

    def make(self) -> Callable:
        self.fold()
        operators = [n for n in self.gm.graph.nodes if n.op == "call_function" and n not in self.constants]
        self.numbers = {n for n in operators if not _has_tensors(n)}
        self.told.nodes = sum(n not in self.numbers and n.target is not operator.getitem for n in operators)
        for n in operators:
            if n in self.numbers:
                self.refused[n.name] = "a number"
                continue
            why = lower.why_not(n)
            if why:
                self.refuse(n, why)
        while True:
            made = self.try_once()
            if made is not None:
                return made

    def refuse(self, node: fx.Node, why: str) -> None:
        self.refused[node.name] = why
        source = node.args[0] if node.target is operator.getitem else node
        for user in [source, *source.users]:
            if user is not node and (user is source or user.target is operator.getitem):
                self.refused.setdefault(user.name, why)

    def fold(self) -> None:
        """Folds values that depend on constants only, except views of weights, which cost nothing in kernels."""
        views = {"aten.permute", "aten.t", "aten.transpose", "aten.view", "aten.expand", "aten.unsqueeze", "aten.clone"}
        spent = 0
        for n in self.gm.graph.nodes:
            value = n.meta.get("val")
            if n.op == "get_attr":
                t = getattr(self.gm, str(n.target), None)
                if isinstance(t, torch.Tensor):
                    self.constants[n] = t
                continue
            if n.op != "call_function" or not lower.is_tensor(value) or n.target is operator.getitem:
                continue
            inputs = n.all_input_nodes
            if any(i not in self.constants for i in inputs) or not isinstance(n.target, torch._ops.OpOverload):
                continue
            if n.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in n.target.tags:
                continue
            if any(lower.number(k) is None for k in value.shape) or any(
                i.op != "get_attr" and not lower.is_tensor(i.meta.get("val")) for i in inputs
            ):
                continue
            bytes_ = value.numel() * value.element_size()
            if inputs and lower.name_of(n.target) in views and bytes_ > lower.INLINE_BYTES:
                continue
            if inputs and any(self.constants[i].numel() > 1 << 22 for i in inputs) or spent + bytes_ > _FOLDED_BYTES:
                continue
            args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), lambda i: self.constants[i])
            with torch.no_grad():
                self.constants[n] = n.target(*args, **kwargs)
            spent += bytes_

    def try_once(self) -> Optional[Callable]:
        support = _Support(self.refused, set(self.constants))
        copied = fx.GraphModule(self.gm, self._copy_graph())
        by_name = {n.name: n for n in self.gm.graph.nodes}
        constants = {n.name: t for n, t in self.constants.items()}
        support.outside = {n for n in copied.graph.nodes if n.name in constants}
        partitioner = CapabilityBasedPartitioner(copied, support, allows_single_node_partition=True)
        partitions = partitioner.propose_partitions()
        fused = partitioner.fuse_partitions(partitions)
        kernels, count = [], 0
        for call in list(fused.graph.nodes):
            if call.op != "call_module":
                continue
            inner = getattr(fused, call.target)
            kernel = self.compile(inner, call, constants, by_name)
            if kernel is None:
                return None
            setattr(fused, call.target, kernel)
            kernels.append(kernel)
            count += sum(n.op == "call_function" and n.target is not operator.getitem for n in inner.graph.nodes)
        self.told.compiled, self.told.partitions = count, len(kernels)
        self.told.refused = {
            n: (lower.name_of(by_name[n].target), why)
            for n, why in self.refused.items()
            if by_name[n] not in self.numbers and by_name[n].target is not operator.getitem
        }
        return self.finish(fused, constants, kernels)

    def _copy_graph(self) -> fx.Graph:
        graph, env = fx.Graph(), {}
        out = graph.graph_copy(self.gm.graph, env)
        graph.output(out)
        for old, new in env.items():
            new.name = old.name
        return graph

    def compile(self, inner: fx.GraphModule, call: fx.Node, constants: dict, by_name: dict) -> Optional[_Kernel]:
        g = lower.Graph("torch")
        takes, node, ranges = [], None, {}
        try:
            for i, (node, given) in enumerate(zip([n for n in inner.graph.nodes if n.op == "placeholder"], call.args)):
                node.meta["val"] = by_name[given.name].meta["val"] if given.name in by_name else node.meta["val"]
                if given.name in constants:
                    t = constants[given.name]
                    node.meta["val"] = t
                    g.values[node] = g.constant(t)
                    continue
                value = node.meta["val"]
                if not lower.is_tensor(value):
                    continue  # a number, which is known
                g.values[node] = name = f"x{i}"
                order = _strides_order(value)
                shape = g.shape(node) if order is None else [g.shape(node)[k] for k in order]
                for axis, n in enumerate(shape):
                    if not isinstance(n, lower.Size):
                        continue
                    if not n.expr.is_Symbol:
                        raise _NoRange
                    ranges[str(n.expr)] = _range_of(n.expr, _env(value))
                    g.places.setdefault(n.expr, (name, axis))
                    shape[axis] = str(n.expr)
                g.model.input(name, lower.KINDS[value.dtype], shape)
                if order is not None:
                    g.place = name
                    g.values[node] = g.node("Transpose", name, perm=_inverse(order))
                takes.append((i, order))
            for node in inner.graph.nodes:
                if node.op == "call_function":
                    node.meta["val"] = by_name[node.name].meta["val"]
                    lower.write(g, node)
        except (lower.Refused, KeyError, AttributeError, TypeError, ValueError, StopIteration) as e:
            if node is None or node.name not in by_name or by_name[node.name].op != "call_function":
                raise
            if self.is_dynamic:
                raise _NoRange from e
            self.refuse(by_name[node.name], f"{e}" if isinstance(e, lower.Refused) else repr(e))
            return None
        (results,) = next(n for n in inner.graph.nodes if n.op == "output").args
        is_single = isinstance(results, fx.Node)
        results = [results] if is_single else list(results)
        gives = []
        for r in results:
            value = r.meta["val"]
            order = _strides_order(value)
            y = g.values[r]
            shape = g.shape(r)
            g.place = r.name
            if order is not None:
                y, shape = g.node("Transpose", y, perm=order), [shape[i] for i in order]
            y = g.node("Identity", y)
            named = [str(n.expr) if n.expr.is_Symbol else None for n in shape if isinstance(n, lower.Size)]
            rest = iter(named)
            shape = [next(rest) if isinstance(n, lower.Size) else n for n in shape]
            g.model.output(y, lower.KINDS[value.dtype], shape)
            gives.append(None if order is None else _inverse(order))
        module = self.run_kiln(g, inner, by_name, ranges)
        if module is not None:
            _modules.append(weakref.ref(module))
        return module and _Kernel(module, takes, gives, is_single)

    def run_kiln(self, g, inner, by_name, ranges):
        device = next((n.meta["val"].device for n in inner.graph.nodes if lower.is_tensor(n.meta.get("val"))), None)
        o = Options()
        options = dict(self.options)
        threads = options.pop("threads", 0) or torch.get_num_threads()
        o.struct.threads, o.struct.cache = threads, int(options.pop("cache", True))
        if device is not None and device.type == "cuda":
            options.setdefault("target", "cuda")
        for key, value in options.items():
            o.set(key, int(value) if isinstance(value, bool) else value)
        model = g.model.finish()
        if os.environ.get("KILN_TORCH_DUMP"):
            with open(os.environ["KILN_TORCH_DUMP"], "wb") as f:
                f.write(model)
        o.dims(ranges)
        o.files({"graph.onnx": model, **{n: t.cpu() for n, t in g.files.items()}})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", errors.KilnWarning)
                module = make("graph.onnx", o, threads=threads, device=device.index or 0 if device else 0)
        except errors.Error as e:
            if self.is_dynamic:
                raise _NoRange from e
            named = [n for n in e.nodes if n in by_name and n not in self.refused]
            for n in named:
                said = next(m.text for m in e.messages if m.node == n)
                self.refuse(by_name[n], said.split("error: ", 1)[-1])
            if not named:
                for n in inner.graph.nodes:
                    if n.op == "call_function":
                        self.refused.setdefault(n.name, str(e).splitlines()[0])
            return None
        return module

    def finish(self, fused: fx.GraphModule, constants: dict, kernels: list) -> Callable:
        """A callable of the graph's arguments: the kernel itself if the whole graph is one."""
        placeholders = [n for n in fused.graph.nodes if n.op == "placeholder"]
        for n in list(fused.graph.nodes):
            if n.name in constants and n.users and any(u.op != "call_module" for u in n.users):
                name = f"constant_{n.name}"
                fused.register_buffer(name, constants[n.name], persistent=False)
                with fused.graph.inserting_before(next(iter(fused.graph.nodes))):
                    held = fused.graph.get_attr(name)
                n.replace_all_uses_with(held, delete_user_cb=lambda u: u.op != "call_module")
        whole = self._whole(fused, placeholders)
        if whole is not None:
            return whole
        for n in list(fused.graph.nodes):  # constants of the kernel, which are no arguments
            if n.op == "call_module":
                used = {i for i, _ in getattr(fused, n.target).takes}
                n.args = tuple(a if i in used else None for i, a in enumerate(n.args))
        fused.graph.eliminate_dead_code()
        fused.recompile()
        return fused.forward

    @staticmethod
    def _whole(fused, placeholders) -> Optional[Callable]:
        rest = [n for n in fused.graph.nodes if n.op in ("call_function", "call_module")]
        calls = [n for n in rest if n.op == "call_module"]
        output = next(n for n in fused.graph.nodes if n.op == "output")
        if len(calls) != 1 or any(n.target is not operator.getitem for n in rest if n is not calls[0]):
            return None
        call = calls[0]
        kernel = getattr(fused, call.target)
        if any(call.args[i] not in placeholders for i, _ in kernel.takes):
            return None
        kernel.takes = [(placeholders.index(call.args[i]), order) for i, order in kernel.takes]
        picks = []
        for r in output.args[0]:
            if r is call:
                picks.append(0)
            elif isinstance(r, fx.Node) and r.target is operator.getitem and r.args[0] is call:
                picks.append(r.args[1])
            else:
                return None
        if picks == list(range(len(kernel.gives))):
            return kernel.run

        def pick(*args):
            results = kernel.run(*args)
            return tuple([results[i] for i in picks])

        return pick


def _has_tensors(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(lower.is_tensor(v) for v in values)


# --- graphs ---


def _env(value: torch.Tensor):
    return next(n for n in value.shape if lower.number(n) is None).node.shape_env


def _is_dynamic(gm: fx.GraphModule) -> bool:
    def open_(value):
        if isinstance(value, (tuple, list)):
            return any(map(open_, value))
        if lower.is_tensor(value):
            return any(isinstance(n, torch.SymInt) and lower.number(n) is None for n in value.shape)
        return isinstance(value, torch.SymInt) and lower.number(value) is None

    return any(open_(n.meta.get("val")) for n in gm.graph.nodes)


def _with_sizes(gm: fx.GraphModule, args: Sequence) -> fx.GraphModule:
    """A copy of the graph with the sizes of |args|."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    copied = fx.GraphModule(gm, gm.graph)
    graph, env = fx.Graph(), {}
    out = graph.graph_copy(gm.graph, env)
    graph.output(out)
    for old, new in env.items():
        new.name = old.name
    copied = fx.GraphModule(gm, graph)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        given = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        FakeTensorProp(copied, mode).propagate_dont_convert_inputs(*given)
    for n in copied.graph.nodes:
        if "val" not in n.meta and n.op == "placeholder":
            n.meta["val"] = n.meta.get("tensor_meta")
    return copied


_version = operator.attrgetter("_version")


def _picker(places: list) -> Callable:
    """A function of all arguments that gives those at |places|, as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda args: tuple([args[i] for i in places])


class _Compiled:
    """A compiled graph of AOTAutograd's, called with the weights that it was compiled for, or others."""

    def __init__(self, gm, weights: dict, options: dict, told: GraphReport):
        self.gm, self.options, self.told = gm, options, told
        self.is_dynamic = _is_dynamic(gm)
        self.places = sorted(weights)
        self.variants: dict = {}
        self.n_made = 0
        self.pick = _picker(self.places)
        self.watch([weights[i] for i in self.places])
        self.fixed = self.make_fixed(weights)

    def watch(self, weights: list) -> None:
        self.weights = weights
        self.watched = [w for w in weights if not w.is_inference()]  # inference tensors have no version, and are not modified
        self.versions = list(map(_version, self.watched))

    def make_fixed(self, weights: dict) -> Optional[Callable]:
        """A callable for all sizes of the graph; None if each size needs its own."""
        try:
            return self.make(weights, None)
        except _NoRange:
            return None

    def make(self, weights: dict, args) -> Callable:
        start = time.perf_counter()
        with _disable_current_modes():  # AOTAutograd calls this among fake tensors: these are real
            gm = self.gm if args is None else _with_sizes(self.gm, args)
            placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
            constants = {placeholders[i]: w.detach() for i, w in weights.items()}
            run = _Graph(gm, constants, self.options, self.told).make()
        self.told.seconds += time.perf_counter() - start
        self.told.specialized += args is not None
        return run

    def __call__(self, *args):
        if not all(map(operator.is_, self.pick(args), self.weights)):
            return self.other(args)
        if list(map(_version, self.watched)) != self.versions:
            return self.other(args)
        if self.fixed is not None:
            return self.fixed(*args)
        key = tuple([tuple(a.shape) if isinstance(a, torch.Tensor) else a for i, a in enumerate(args) if i not in self.places])
        run = self.variants.get(key)
        if run is None:
            if len(self.variants) >= MOST_SPECIAL:
                return self.gm(*args)
            run = self.variants[key] = self.make(dict(zip(self.places, self.weights)), args)
        return run(*args)

    def other(self, args):
        """Compiles again for other weights, or weights that were modified in place, up to a limit."""
        self.n_made += 1
        if self.n_made > MOST_SPECIAL:
            self.told.eager = "weights change from run to run"
            return self.gm(*args)
        self.watch([args[i] for i in self.places])
        self.variants = {}
        self.fixed = self.make_fixed(dict(zip(self.places, self.weights)))
        return self(*args)


def _decompositions():
    table = dict(core_aten_decompositions())
    for overload in list(table):
        if lower.name_of(overload) in lower.TABLE and lower.name_of(overload) not in _DECOMPOSED:
            del table[overload]
    table.update(decompose.TABLE)
    return table


# Operators that are lowered as a whole, instead of by their decompositions.
_DECOMPOSED = {"aten.empty_like", "aten.new_empty", "aten.split", "aten.chunk", "aten.contiguous", "aten.stack"}


def _options_of(kwargs: dict) -> dict:
    options = dict(kwargs.get("options") or {})
    known = PLAIN | {"threads", "cache", "target", "dtype"}
    for name in options:
        if name not in known:
            raise TypeError(f'backend "kiln": no option {name}; there are {", ".join(sorted(known))}')
    return options


def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable:
    """The backend for torch.compile."""
    options, told = _options_of(kwargs), GraphReport()
    with _lock:
        _reports.append(told)
    wants = [t for t in example_inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if torch.is_grad_enabled() and wants:
        told.nodes = sum(n.op.startswith("call_") for n in gm.graph.nodes)
        told.eager = "a gradient is wanted: call it under torch.no_grad() or torch.inference_mode()"
        return gm.forward
    weights = {
        i: t
        for i, t in enumerate(example_inputs)
        if isinstance(t, torch.Tensor)
        and (isinstance(t, torch.nn.Parameter) or getattr(t, "_dynamo_static_input_type", None) is not None)
    }
    start = time.perf_counter()

    def compile_aten(aten: fx.GraphModule, fakes):
        told.trace_seconds = time.perf_counter() - start
        n = sum(node.op == "placeholder" for node in aten.graph.nodes)
        # AOTAutograd passes arguments on as they are, but for those that alias each other.
        known = weights if n == len(example_inputs) else {}
        if held and n == len(held) + len(example_inputs):
            known = {i: t for i, (_, t) in enumerate(held)}
            known.update((len(held) + i, t) for i, t in weights.items())
        return _Compiled(aten, known, options, told)

    # weights that Dynamo left in the module come in front of the arguments
    held = [*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False)]

    return aot_module_simplified(
        gm, list(example_inputs), fw_compiler=compile_aten, inference_compiler=compile_aten,
        decompositions=_decompositions(),
    )  # fmt: skip


def compile(model: torch.nn.Module, **options: Any) -> Callable:
    """The model as a function for inference, whose modules and weights stay as they are at its first call.

    Calls cost less than through torch.compile, which looks at all modules and hands on all weights each time; they look at
    the shapes and types of the arguments, for each choice of which, at most 16, there is a module. After a change of the
    model, `fast.renew()` reads it anew. Where a gradient is wanted, PyTorch runs the model; what torch.export cannot trace
    goes through torch.compile, and `fast.why` says why.

        fast = kiln.torch.compile(model.eval(), threads=2)     # options: those of kiln.compile
    """
    options = _options_of({"options": options})

    def make(gm, weights: dict, places: list, seconds: float) -> Callable:
        told = GraphReport(trace_seconds=seconds)
        with _lock:
            _reports.append(told)
        compiled = _Compiled(gm, weights, options, told)
        return _without_weights(compiled, len(weights) + len(places), places)

    def otherwise(model):
        return torch.compile(model, backend=backend, options=options)

    return Frozen(model, _decompositions(), make, otherwise, MOST_SPECIAL)


def _without_weights(compiled: _Compiled, n: int, places: list) -> Callable:
    """The graph as a function of its arguments at |places|; the others are weights."""
    kernel = getattr(compiled.fixed, "__self__", None)
    if isinstance(kernel, _Kernel):
        kernel.takes = [(places.index(i), order) for i, order in kernel.takes]
        return kernel.run
    given = [None] * n
    for i, w in zip(compiled.places, compiled.weights):
        given[i] = w
    run = compiled.fixed if compiled.fixed is not None else compiled

    def call(*args):
        every = list(given)
        for i, x in zip(places, args):
            every[i] = x
        return run(*every)

    return call
