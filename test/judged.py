"""Models of random nodes, compiled for several targets and judged by the reference interpreter: what tests of such models share.
Without numpy or onnx a test that imports this is skipped."""
import contextlib
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

SEED = int(os.environ.get("KILN_SEED", 7))


class Model:
    """Nodes in their order, each with one output of a name of its own."""

    def __init__(self, rng):
        self.rng, self.nodes, self.inputs, self.constants = rng, [], [], []

    def integers(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def chance(self, one_in):
        return self.integers(1, one_in) == 1

    def input(self, *shape, name=None, elem=onnx.TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name or f"x{len(self.inputs)}", elem, shape))
        return self.inputs[-1].name

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def results(self):
        return [self.nodes[-1].output[0]]

    def proto(self):
        ports = [helper.make_tensor_value_info(r, onnx.TensorProto.FLOAT, None) for r in self.results()]
        graph = helper.make_graph(self.nodes, "model", self.inputs, ports, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@contextlib.contextmanager
def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model.proto(), f"{folder}/m.onnx")
        yield f"{folder}/m.onnx"


class Judge:
    """Runs the command KILN on models, and counts what is wrong."""

    def __init__(self):
        self.kiln, self.n, self.wrong = sys.argv[1], 0, 0

    def call(self, verb, path, target, dtype, *options):
        command = [self.kiln, verb, path, f"--target={target}", "--no-cache", *options]
        command += [f"--dtype={dtype}"] if dtype != "f32" else []
        return subprocess.run(command, capture_output=True, text=True, errors="replace")

    def check(self, holds, message):
        self.n += 1
        if not holds:
            self.wrong += 1
            print("FAILED", message)

    def run(self, path, name, target, dtype="f32"):
        """Results must be near the interpreter's. Targets that are not here do not count."""
        done = self.call("run", path, target, dtype, "--reference")
        if done.returncode and "no OpenCL driver" in done.stderr:
            return
        self.check(not done.returncode, f"{name} {target}: exit code {done.returncode}: {(done.stderr + done.stdout)[-300:]}")

    def plan(self, path, target, dtype, *options):
        """The plan of its launches; None, and the message, if it is refused."""
        done = self.call("compile", path, target, dtype, "--dump=plan", *options)
        return None if done.returncode else done.stdout, done.stderr[-300:]

    def end(self):
        print(f"{self.n - self.wrong} passed, {self.wrong} failed")
        sys.exit(1 if self.wrong or self.n == 0 else 0)
