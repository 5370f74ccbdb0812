#!/usr/bin/env python3
"""Writes the node tests of the installed ONNX package, which makes them in memory, as folders that `kiln test` reads.

usage: node_tests.py FOLDER

FOLDER/test_NAME/model.onnx, and test_data_set_K/{input,output}_J.pb: the layout of ONNX's own releases. A value is
written as what the model declares: a tensor, a sequence, an optional.
"""
import pathlib
import sys
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader


def serialized(value, declared):
    """A TensorProto, SequenceProto or OptionalProto of `value`, by its declared TypeProto."""
    kind = declared.type.WhichOneof("value")
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    if kind == "sequence_type":
        return numpy_helper.from_list(value, declared.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, declared.name).SerializeToString()
    return numpy_helper.from_array(numpy.asarray(value), declared.name).SerializeToString()


def write(case, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    graph = case.model.graph
    for k, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{k}"
        data.mkdir(exist_ok=True)
        for name, values, declared in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for j, (value, info) in enumerate(zip(values, declared)):
                (data / f"{name}_{j}.pb").write_bytes(serialized(value, info))


def main():
    target = pathlib.Path(sys.argv[1])
    warnings.simplefilter("ignore")  # overflows and the like are what some cases are about
    numpy.seterr(all="ignore")
    cases = loader.load_model_tests(kind="node")
    for case in cases:
        write(case, target / case.name)
    print(f"{len(cases)} tests of onnx {onnx.__version__}")


if __name__ == "__main__":
    main()
