#!/usr/bin/env python3
"""The models of dynamic.py with ranges of dimensions, in the simulator, which finds races and what is read out of range: each
run takes the kernels of the bucket of its extents, with as many blocks as the run needs; what is not computed is NaN.
Compared with ONNX Runtime: |got - want| <= 1e-5 + 1e-4 |want|, and of halves a relative L2 error of 1e-2.

usage: dynamic_simulated.py LIBRARY [MODEL...]      needs numpy, ml_dtypes, onnx and onnxruntime
"""
import ctypes as c, pathlib, sys, tempfile

sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parents[1] / "fuzz"), str(pathlib.Path(__file__).parent)]
NAMES, sys.argv[2:] = sys.argv[2:], []
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402
import dynamic  # noqa: E402
import kiln  # noqa: E402
import share  # noqa: E402

TARGETS = [("cuda:sm_90a", "f16"), ("cuda:sm_80", "f16"), ("cuda:sm_90a", "f32"), ("opencl", "f32"), (None, "f32")]
MOST_POINTS = 3


class DimSum(c.Structure):
    _fields_ = [("name", c.c_char_p), ("text", c.c_char_p)]


class Simulated(kiln.Run):
    """A model with ranges, which the simulator runs at any extents in them."""

    def __init__(self, library, path, target, dtype, ranges):
        super().__init__(library, path, {"target": target, "dtype": None if dtype == "f32" else dtype, "cache": 0})
        options, found, sums = self.compile_options(), [], []
        for text in ranges:
            name, form = text.split("=")
            if ".." in form:
                least, most = form.split("/")[0].split("..")
                found.append((name.encode(), int(least), int(most), int((form + "/1").split("/")[1])))
            else:
                sums.append((name.encode(), form.encode()))
        options.ranges, options.n_ranges = (kiln.DimRange * len(found))(*found), len(found)
        self.sums = (DimSum * max(len(sums), 1))(*sums)
        options.sums, options.n_sums = c.cast(self.sums, c.c_void_p), len(sums)
        self.k.call("load", "kiln_model_load", self.path.encode(), c.byref(options), self.k.diag, c.byref(self.model))

    def run(self, given, want):
        """Outputs of the shapes and types of |want|."""
        k = self.k
        inputs = [k.tensor(kiln.NAMES[x.dtype], x.shape) for x in given]
        outputs = [k.tensor(kiln.NAMES[x.dtype], x.shape) for x in want]
        try:
            for t, x in zip(inputs, given):
                if x.size:
                    c.memmove(t.contents.tensor.data, x.ctypes.data, x.nbytes)
            k.call("simulate", "kiln_model_simulate", self.model, c.c_size_t(len(inputs)), kiln.views(inputs), c.c_size_t(len(outputs)),
                   kiln.views(outputs), k.diag, c.byref(c.c_char_p()))
            return [np.frombuffer(bytes(k.bytes_of(t, kiln.NAMES[x.dtype])), x.dtype).reshape(x.shape) for t, x in zip(outputs, want)]
        finally:
            for t in inputs + outputs:
                k.lib.kiln_tensor_destroy(t)


def as_type(x, dtype):
    x = np.ascontiguousarray(x)
    return x.astype(np.float16) if dtype == "f16" and x.dtype == np.float32 else x


def is_right(got, want, dtype):
    got, want = got.astype(np.float64), want.astype(np.float64)
    if dtype == "f32":
        return np.allclose(got, want, rtol=1e-4, atol=1e-5)
    return np.linalg.norm((got - want).ravel()) <= 1e-2 * max(np.linalg.norm(want.ravel()), 1e-3) if got.size else True


def check(library, folder, build, ranges, shapes, target, dtype):
    made = build()
    onnx.save(made, folder / "m.onnx")
    reference = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    rng, wrong = np.random.default_rng(11), []
    try:
        model = Simulated(library, folder / "m.onnx", target, dtype, ranges)
        for dims in shapes:
            given = {n: as_type(x, dtype) for n, x in dynamic.make_inputs(made, dims, rng).items()}
            want = reference.run(None, {n: x.astype(np.float32) if x.dtype == np.float16 else x for n, x in given.items()})
            got = model.run(list(given.values()), [as_type(x, dtype) for x in want])
            wrong += [f"output {i} at {dims}" for i, (a, b) in enumerate(zip(got, want)) if not is_right(a, b, dtype)]
        model.k.lib.kiln_model_destroy(model.model)
    except kiln.Failed as problem:
        wrong.append(str(problem))
    return wrong


def main():
    library, failed = kiln.Library(sys.argv[1]), 0
    cases = [(t, r) for r in dynamic.RUN if not NAMES or r[0].__name__ in NAMES for t in TARGETS]
    for (target, dtype), (build, ranges, shapes) in cases if NAMES else share.some(cases):
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(library, pathlib.Path(folder), build, ranges, shapes[:MOST_POINTS], target, dtype)
        failed += len(wrong) > 0
        print(f"{build.__name__} {' '.join(ranges)} for {target} in {dtype}: {'FAILED: ' + '; '.join(wrong) if wrong else 'passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
