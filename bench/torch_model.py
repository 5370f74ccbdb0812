"""ONNX models as PyTorch code, for bench/gpu.py: the operators that the models here use.

A model is run once in float32 while its source is written: what depends on constants and shapes alone is computed there and
becomes a literal or a buffer, so that the code is straight and a compiler of PyTorch's sees no Python data structures.
"""
import math

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: F401  (the written code uses it)
from onnx import numpy_helper

TORCH_TYPES = {1: "DT", 10: "torch.float16", 6: "torch.int32", 7: "torch.int64", 9: "torch.bool", 11: "torch.float64"}


def gather(x, index, axis):
    if axis == 0 and x.dim() == 2:
        return F.embedding(index, x)
    picked = torch.index_select(x, axis, index.reshape(-1))
    return picked.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1:])


def depth_to_space_dcr(x, block):
    n, c, h, w = x.shape
    y = x.reshape(n, block, block, c // block ** 2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // block ** 2, h * block, w * block)


def pad(x, pads, mode, value):
    half = len(pads) // 2
    pairs = [p for k in range(half - 1, -1, -1) for p in (pads[k], pads[half + k])]
    if mode != "constant":
        while len(pairs) > 2 and pairs[-1] == 0 == pairs[-2]:
            pairs = pairs[:-2]
        return F.pad(x, pairs, mode="replicate" if mode == "edge" else mode)
    return F.pad(x, pairs, value=value)


def divide(a, b):
    whole = not any(torch.is_tensor(t) and t.is_floating_point() or isinstance(t, float) for t in (a, b))
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


class Writer:
    """One model: lines of code, buffers, and the values of the run that writes them."""

    def __init__(self, path, inputs, device):
        model = onnx.load(str(path))
        self.graph, self.device = model.graph, device
        self.static, self.live, self.buffers, self.lines = {}, {}, {}, []
        self.names = {}
        self.weights = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        for name, array in self.weights.items():
            self.static[name] = torch.from_numpy(np.array(array))
        self.inputs = [i.name for i in self.graph.input if i.name not in self.weights]
        for name in self.inputs:
            self.names[name] = f"x{len(self.names)}"
            self.live[name] = inputs[name].to(device)
        self.outputs = [o.name for o in self.graph.output]

    # operands ---------------------------------------------------------------------------------------------------------

    def buffer(self, name):
        """A constant on the device, by its name in the code."""
        key = f"p{len(self.buffers)}"
        if name not in self.names:
            self.names[name] = f"self.{key}"
            self.buffers[key] = self.static[name].to(self.device)
        return self.names[name]

    def operand(self, name, literal=False):
        if name in self.live:
            return self.names[name]
        value = self.static[name]
        if literal and value.numel() == 1:
            number = value.item()
            return f"float('{number}')" if isinstance(number, float) and not math.isfinite(number) else repr(number)
        return self.buffer(name)

    def list_of(self, node, i, otherwise=None):
        if i >= len(node.input) or not node.input[i]:
            return otherwise
        if node.input[i] not in self.static:
            raise NotImplementedError(f"{node.op_type}: operand {i} must be constant")
        return self.static[node.input[i]].reshape(-1).tolist()

    def shape(self, name):
        return tuple((self.live.get(name) if name in self.live else self.static[name]).shape)

    # operators --------------------------------------------------------------------------------------------------------

    def expression(self, n, a):
        """The code of node |n| with attributes |a|."""
        op, shape = n.op_type, self.shape(n.input[0]) if n.input and n.input[0] else ()
        simple = {"Sigmoid": "torch.sigmoid", "Sqrt": "torch.sqrt", "Relu": "F.relu", "Erf": "torch.erf", "Tanh": "torch.tanh",
                  "Exp": "torch.exp", "HardSwish": "F.hardswish", "Softplus": "F.softplus", "Identity": "", "MatMul":
                  "torch.matmul", "Where": "torch.where", "Not": "torch.logical_not", "Abs": "torch.abs", "Neg": "torch.neg",
                  "Floor": "torch.floor", "Cos": "torch.cos", "Sin": "torch.sin", "Log": "torch.log", "Reciprocal":
                  "torch.reciprocal", "Greater": "torch.gt", "Less": "torch.lt", "And": "torch.logical_and"}
        infix = {"Add": "+", "Sub": "-", "Mul": "*", "Pow": "**", "Equal": "==", "GreaterOrEqual": ">=", "Mod": "%"}
        if op in simple:
            return f"{simple[op]}({', '.join(self.operand(i) for i in n.input)})"
        if op in infix or op == "Div":
            ranks = [len(self.shape(i)) for i in n.input]
            x, y = (self.operand(i, literal=ranks[k] <= ranks[1 - k]) for k, i in enumerate(n.input))
            return f"divide({x}, {y})" if op == "Div" else f"{x} {infix[op]} {y}"
        x = self.operand(n.input[0]) if n.input and n.input[0] else ""
        if op in ("Conv", "ConvTranspose"):
            return self.convolution(n, a, x)
        if op == "Reshape":
            to = self.list_of(n, 1)
            return f"{x}.reshape({[shape[k] if d == 0 and not a.get('allowzero') else d for k, d in enumerate(to)]})"
        if op == "Transpose":
            return f"{x}.permute({a.get('perm', list(range(len(shape)))[::-1])})"
        if op == "Slice":
            return self.slice(n, x, shape)
        if op == "Unsqueeze":
            rank, text = len(shape) + len(self.list_of(n, 1)), x
            for axis in sorted(k % rank for k in self.list_of(n, 1)):
                text += f".unsqueeze({axis})"
            return text
        if op == "Squeeze":
            axes = self.list_of(n, 1, [k for k, d in enumerate(shape) if d == 1])
            return x + "".join(f".squeeze({k})" for k in sorted((k % len(shape) for k in axes), reverse=True))
        if op == "Gather":
            axis, index = a.get("axis", 0) % len(shape), n.input[1]
            if index in self.static and self.static[index].dim() == 0:
                return f"{x}.select({axis}, {self.static[index].item()})"
            return f"gather({x}, {self.operand(index)}, {axis})"
        if op == "Concat":
            return f"torch.cat([{', '.join(self.operand(i) for i in n.input)}], {a['axis']})"
        if op == "LayerNormalization":
            axis = a.get("axis", -1) % len(shape)
            rest = [self.operand(i) if i else "None" for i in list(n.input[1:]) + [""] * (3 - len(n.input))]
            return f"F.layer_norm({x}, {list(shape[axis:])}, {', '.join(rest)}, {a.get('epsilon', 1e-5)})"
        if op == "InstanceNormalization":
            return (f"F.instance_norm({x}, weight={self.operand(n.input[1])}, bias={self.operand(n.input[2])}, "
                    f"eps={a.get('epsilon', 1e-5)})")
        if op == "BatchNormalization":
            w, b, m, v = (self.operand(i) for i in n.input[1:])
            return f"F.batch_norm({x}, {m}, {v}, {w}, {b}, False, 0.0, {a.get('epsilon', 1e-5)})"
        if op == "Cast":
            return f"{x}.to({TORCH_TYPES[a['to']]})"
        if op in ("ReduceMean", "ReduceSum", "ReduceL2", "ReduceMax"):
            axes = a.get("axes") or self.list_of(n, 1, list(range(len(shape))))
            keep = bool(a.get("keepdims", 1))
            how = {"ReduceMean": "torch.mean", "ReduceSum": "torch.sum", "ReduceL2": "torch.linalg.vector_norm",
                   "ReduceMax": "torch.amax"}[op]
            return f"{how}({x}, dim={axes}, keepdim={keep})"
        if op == "Softmax":
            return f"torch.softmax({x}, {a.get('axis', -1)})"
        if op == "Expand":
            return f"{x}.expand({list(torch.broadcast_shapes(shape, tuple(self.list_of(n, 1))))})"
        if op == "Clip":
            low, high = (a.get("min", (self.list_of(n, 1) or [None])[0]), a.get("max", (self.list_of(n, 2) or [None])[0]))
            return f"torch.clamp({x}, {low}, {high})"
        if op == "LeakyRelu":
            return f"F.leaky_relu({x}, {a.get('alpha', 0.01)})"
        if op == "Split":
            axis = a.get("axis", 0) % len(shape)
            part = -(-shape[axis] // len(n.output))
            return f"torch.split({x}, {self.list_of(n, 1, part)}, {axis})"
        if op == "Pad":
            value = (self.list_of(n, 2) or [0])[0]
            return f"pad({x}, {self.list_of(n, 1)}, {a.get('mode', 'constant')!r}, {value})"
        if op == "Gemm":
            x = f"{x}.t()" if a.get("transA") else x
            y = self.operand(n.input[1])
            y = f"{y}.t()" if a.get("transB") else y
            scale = "" if a.get("alpha", 1.0) == 1.0 else f"{a['alpha']} * "
            if len(n.input) < 3:
                return f"{scale}({x} @ {y})"
            return f"torch.addmm({self.operand(n.input[2])}, {x}, {y}, beta={a.get('beta', 1.0)}, alpha={a.get('alpha', 1.0)})"
        if op in ("MaxPool", "AveragePool"):
            return self.pool(n, a, x)
        if op == "GlobalAveragePool":
            return f"torch.mean({x}, dim={list(range(2, len(shape)))}, keepdim=True)"
        if op == "Resize":
            return self.resize(n, a, x, shape)
        if op == "DepthToSpace":
            if a.get("mode", "DCR") == "CRD":
                return f"F.pixel_shuffle({x}, {a['blocksize']})"
            return f"depth_to_space_dcr({x}, {a['blocksize']})"
        if op == "Flatten":
            axis = a.get("axis", 1)
            return f"{x}.reshape({[math.prod(shape[:axis]), math.prod(shape[axis:])]})"
        if op == "Trilu":
            return f"torch.{'triu' if a.get('upper', 1) else 'tril'}({x}, {(self.list_of(n, 1) or [0])[0]})"
        if op == "ConstantOfShape":
            fill = numpy_helper.to_array(a["value"]).reshape(-1)[0].item() if "value" in a else 0.0
            return f"torch.full({self.list_of(n, 0)}, {fill})"
        if op == "Range":
            return f"torch.arange({', '.join(str(self.list_of(n, i)[0]) for i in range(3))})"
        raise NotImplementedError(op)

    def convolution(self, n, a, x):
        rank = len(self.shape(n.input[1])) - 2
        pads = a.get("pads", [0] * 2 * rank)
        if pads[:rank] != pads[rank:]:
            x, pads = f"pad({x}, {[0, 0] + pads[:rank] + [0, 0] + pads[rank:]}, 'constant', 0)", [0] * 2 * rank
        w, b = self.operand(n.input[1]), self.operand(n.input[2]) if len(n.input) > 2 else "None"
        stride, dilation = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
        if n.op_type == "Conv":
            return f"F.conv{rank}d({x}, {w}, {b}, {stride}, {pads[:rank]}, {dilation}, {a.get('group', 1)})"
        return (f"F.conv_transpose{rank}d({x}, {w}, {b}, {stride}, {pads[:rank]}, {a.get('output_padding', [0] * rank)}, "
                f"{a.get('group', 1)}, {dilation})")

    def slice(self, n, x, shape):
        starts, ends = self.list_of(n, 1), self.list_of(n, 2)
        axes, steps = self.list_of(n, 3, list(range(len(starts)))), self.list_of(n, 4, [1] * len(starts))
        parts, flips = [":"] * len(shape), []
        for start, end, axis, step in zip(starts, ends, axes, steps):
            axis %= len(shape)
            where = slice(start, end if abs(end) < 2 ** 62 else None, step).indices(shape[axis])
            if step > 0:
                parts[axis] = "{}:{}:{}".format(*where)
            else:
                chosen = list(range(*where))
                parts[axis] = f"{chosen[-1]}:{chosen[0] + 1}:{-step}" if chosen else "0:0"
                flips.append(axis)
        text = f"{x}[{', '.join(parts)}]"
        return f"torch.flip({text}, {flips})" if flips else text

    def pool(self, n, a, x):
        kernel = a["kernel_shape"]
        rank = len(kernel)
        pads, stride = a.get("pads", [0] * 2 * rank), a.get("strides", [1] * rank)
        if n.op_type == "MaxPool":
            if pads[:rank] != pads[rank:]:
                x = f"pad({x}, {[0, 0] + pads[:rank] + [0, 0] + pads[rank:]}, 'constant', float('-inf'))"
                pads = [0] * 2 * rank
            return (f"F.max_pool{rank}d({x}, {kernel}, {stride}, {pads[:rank]}, {a.get('dilations', [1] * rank)}, "
                    f"{bool(a.get('ceil_mode', 0))})")
        if pads[:rank] != pads[rank:]:
            raise NotImplementedError("AveragePool with pads that differ")
        return (f"F.avg_pool{rank}d({x}, {kernel}, {stride}, {pads[:rank]}, {bool(a.get('ceil_mode', 0))}, "
                f"{bool(a.get('count_include_pad', 0))})")

    def resize(self, n, a, x, shape):
        sizes, scales = self.list_of(n, 3), self.list_of(n, 2)
        to = sizes[2:] if sizes else [int(math.floor(d * s)) for d, s in zip(shape[2:], scales[2:])]
        mode, place = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
        if mode == "nearest" and place == "asymmetric":
            return f"F.interpolate({x}, size={to}, mode='nearest')"
        if mode == "linear" and place in ("half_pixel", "pytorch_half_pixel", "align_corners"):
            return f"F.interpolate({x}, size={to}, mode='bilinear', align_corners={place == 'align_corners'})"
        raise NotImplementedError(f"Resize: {mode}, {place}")

    # the run ----------------------------------------------------------------------------------------------------------

    def scope(self):
        return {"torch": torch, "F": F, "gather": gather, "pad": pad, "divide": divide, "DT": torch.float32,
                "depth_to_space_dcr": depth_to_space_dcr}

    def constant(self, n, a):
        if "value" in a:
            return torch.from_numpy(np.array(numpy_helper.to_array(a["value"])))
        return torch.tensor(a.get("value_float", a.get("value_int", a.get("value_ints", a.get("value_floats")))))

    def fold(self, n, a):
        """A node of constants: the same code on them."""
        at, self.live = self.live, {i: self.static[i] for i in n.input if i}
        kept = self.names
        self.names = {name: f"v{k}" for k, name in enumerate(self.live)}
        scope = self.scope() | {self.names[name]: value for name, value in self.live.items()}
        result = eval(self.expression(n, a), scope)  # noqa: S307  (our own text)
        self.live, self.names = at, kept
        return result

    def write(self):
        uses = {}
        for k, n in enumerate(self.graph.node):
            for i in n.input:
                uses[i] = k
        for k, n in enumerate(self.graph.node):
            a = {x.name: onnx.helper.get_attribute_value(x) for x in n.attribute}
            a = {key: v.decode() if isinstance(v, bytes) else list(v) if isinstance(v, (list, tuple)) else v
                 for key, v in a.items()}
            if n.op_type == "Gather":
                self.count_from_front(n, a)
            if n.op_type == "Constant":
                self.static[n.output[0]] = self.constant(n, a)
            elif n.op_type == "Shape":
                self.static[n.output[0]] = torch.tensor(self.shape(n.input[0])[a.get("start", 0):a.get("end")])
            elif all(i in self.static for i in n.input if i):
                result = self.fold(n, a)
                for name, value in zip(n.output, result if n.op_type == "Split" else [result]):
                    self.static[name] = value
            else:
                self.step(n, a)
            for i in n.input:  # what nobody reads again goes
                if uses.get(i) == k and i in self.live and i not in self.outputs and i not in self.inputs:
                    del self.live[i]
                    self.lines.append(f"del {self.names[i]}")
        returned = [self.operand(name) for name in self.outputs]
        self.lines.append(f"return ({', '.join(returned)},)")
        return [self.live[name] if name in self.live else self.static[name].to(self.device) for name in self.outputs]

    def count_from_front(self, n, a):
        """Constant indices that count from the end, as PyTorch's lookups do not."""
        index = self.static.get(n.input[1])
        if index is None or index.dim() == 0 or not bool((index < 0).any()):
            return
        shape = self.shape(n.input[0])
        name = f"{n.input[1]} of {n.input[0]}"
        self.static[name] = index % shape[a.get("axis", 0)]
        n.input[1] = name

    def step(self, n, a):
        text = self.expression(n, a)
        made = [name for name in n.output if name]
        scope = self.scope() | {self.names[i]: self.live[i] for i in n.input if i in self.live}
        scope["self"] = type("Buffers", (), self.buffers)
        result = eval(text, scope)  # noqa: S307  (our own text)
        for name in made:
            self.names[name] = f"v{len(self.names)}"
        several = n.op_type == "Split"
        self.lines.append(f"{', '.join(self.names[name] for name in made)}{',' if several else ''} = {text}")
        for name, value in zip(made, result if several else [result]):
            self.live[name] = value


class Model(torch.nn.Module):
    def __init__(self, writer, dtype, channels_last):
        super().__init__()
        for name, value in writer.buffers.items():
            value = value.to(dtype) if value.is_floating_point() else value
            if channels_last and value.dim() == 4:
                value = value.contiguous(memory_format=torch.channels_last)
            self.register_buffer(name, value)
        names = [writer.names[i] for i in writer.inputs]
        source = f"def forward(self, {', '.join(names)}):\n" + "".join(f"    {line}\n" for line in writer.lines)
        scope = writer.scope() | {"DT": dtype}
        exec(compile(source, "model", "exec"), scope)  # noqa: S102  (our own text)
        self.run = scope["forward"]

    def forward(self, *inputs):
        return self.run(self, *inputs)


def load(path, inputs, device):
    """(writer, outputs in float32); Model(writer, dtype, channels_last) is the module."""
    writer = Writer(path, inputs, device)
    with torch.no_grad():
        outputs = writer.write()
    return writer, outputs
