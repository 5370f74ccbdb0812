#!/usr/bin/env python3
"""Quantises models with ONNX Runtime's own tools and times Kiln's quantised module, its f32 one, and ONNX Runtime's two.

usage: bench/quantized.py [--threads N] [--build DIR] [--json FILE] [--seconds S] [--keep DIR] [--only PATTERN]... MODEL.onnx...

Convolutional models and those with MatMul become QDQ (u8 or s8 data, s8 weights or u8 ones with zero points, for each tensor or
each channel, of 7 bits as ONNX Runtime advises for processors without VNNI, or of 8) and dynamic ones; models named llama* become MatMulNBits. Calibration
data are two random inputs, uniform in [-1, 1) as the models' weights are random: what is measured is speed, and what the
format adds to the error, not a task's score. All four run in one process, in turns, medians. Errors are relative L2: of Kiln's run of the
quantised model to ONNX Runtime's of the same, with and without its fusions (which requantise by their own formulas, and saturate
sums of pairs in 16 bits on processors without VNNI), and to f32. PATTERN picks the ways (`qdq*`).
"""
import argparse
import fnmatch
import json
import logging
import os
import pathlib
import sys
import tempfile

import compare  # first: it sees to the environment

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

S8, U8 = QuantType.QInt8, QuantType.QUInt8
QDQ = {
    "qdq_u8s8_channel": dict(activation_type=U8, weight_type=S8, per_channel=True),
    "qdq_u8s8_channel_7": dict(activation_type=U8, weight_type=S8, per_channel=True, reduce_range=True),
    "qdq_u8s8_tensor": dict(activation_type=U8, weight_type=S8, per_channel=False),
    "qdq_s8s8_channel": dict(activation_type=S8, weight_type=S8, per_channel=True),
    "qdq_s8s8_tensor_7": dict(activation_type=S8, weight_type=S8, per_channel=False, reduce_range=True),
    "qdq_u8u8_channel": dict(activation_type=U8, weight_type=U8, per_channel=True),
    "qdq_u8u8_tensor": dict(activation_type=U8, weight_type=U8, per_channel=False),
    "qoperator_u8s8_7": dict(activation_type=U8, weight_type=S8, per_channel=True, reduce_range=True,
                             quant_format=QuantFormat.QOperator),
    "qoperator_u8u8": dict(activation_type=U8, weight_type=U8, per_channel=False, quant_format=QuantFormat.QOperator),
}
DYNAMIC = {
    "dynamic_s8_7": dict(weight_type=S8, per_channel=True, reduce_range=True),
    "dynamic_u8": dict(weight_type=U8),
    "dynamic_u8_channel": dict(weight_type=U8, per_channel=True),
}
BITS = {
    "int4_32": dict(bits=4, block_size=32, is_symmetric=True, accuracy_level=0),
    "int4_32_level4": dict(bits=4, block_size=32, is_symmetric=True, accuracy_level=4),
    "int4_128_zeros": dict(bits=4, block_size=128, is_symmetric=False, accuracy_level=0),
    "int4_32_qdq": dict(bits=4, block_size=32, is_symmetric=True, quant_format=QuantFormat.QDQ),
    "int4_64_zeros_qdq": dict(bits=4, block_size=64, is_symmetric=False, quant_format=QuantFormat.QDQ),
    "int8_32": dict(bits=8, block_size=32, is_symmetric=True, accuracy_level=0),
}


class RandomInputs(CalibrationDataReader):
    """|n| random inputs: floats uniform in [-1, 1), integers 0 or 1."""

    def __init__(self, path, n=2):
        rng = np.random.default_rng(1)
        inputs = ort.InferenceSession(str(path)).get_inputs()
        self.feeds = iter([{i.name: self.random(rng, i) for i in inputs} for _ in range(n)])

    @staticmethod
    def random(rng, port):
        if "float" in port.type:
            return rng.uniform(-1, 1, port.shape).astype(np.float32)
        return rng.integers(0, 2, port.shape).astype(np.int32 if "int32" in port.type else np.int64)

    def get_next(self):
        return next(self.feeds, None)


def whole(path, out):
    """The model in one file, with the shapes of its values, as the tools want it."""
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(str(path))), str(out))
    return out


def ways_of(path):
    return list(BITS) if pathlib.Path(path).stem.startswith("llama") else [*QDQ, *DYNAMIC]


def quantise(path, way, out):
    """Writes the model of |path|, as whole() makes it, quantised in one of the ways."""
    logging.getLogger().setLevel(logging.ERROR)  # the tools tell every node
    if way in QDQ:
        quantize_static(str(path), str(out), RandomInputs(path), **{"quant_format": QuantFormat.QDQ, **QDQ[way]})
    elif way in DYNAMIC:
        quantize_dynamic(str(path), str(out), **DYNAMIC[way])
    else:
        tool = MatMulNBitsQuantizer(onnx.load(str(path)), **BITS[way])
        tool.process()
        tool.model.save_model_to_file(str(out), False)


def unfused(path):
    """ONNX Runtime's session without any rewriting: QDQ in floats, the model's meaning."""
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(f32, quantised, threads, seconds, folder, rounds=7):
    """Times in ms and errors of the two models in the two engines."""
    runs, results = {}, {}
    for name, path in (("f32", f32), ("quantised", quantised)):
        module = folder / f"{pathlib.Path(path).stem}.so"
        compare.compile_module(path, threads, [], module)
        kiln, session = compare.Kiln(module, threads), compare.ort_session(path, threads)
        feeds = compare.make_feeds(kiln.inputs)
        kiln.bind(feeds)
        results["kiln", name] = [np.copy(y) for y in kiln.run()]
        results["ort", name] = session.run(None, feeds)
        runs["kiln", name] = kiln.run
        runs["ort", name] = lambda session=session, feeds=feeds: session.run(None, feeds)
    results["meaning"] = unfused(quantised).run(None, feeds)
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name] += compare.block(run, seconds / rounds)
    row = {"_".join(name): float(np.median(t)) for name, t in times.items()}
    mine = results["kiln", "quantised"]
    return row | {"faster_than_f32": row["kiln_f32"] / row["kiln_quantised"],
                  "faster_than_ort": row["ort_quantised"] / row["kiln_quantised"],
                  "ort_faster_than_f32": row["ort_f32"] / row["ort_quantised"],
                  "to_ort": compare.rel_l2(mine, results["ort", "quantised"]),
                  "to_meaning": compare.rel_l2(mine, results["meaning"]),
                  "ort_to_meaning": compare.rel_l2(results["ort", "quantised"], results["meaning"]),
                  "to_f32": compare.rel_l2(mine, results["ort", "f32"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of the four")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the quantised models, which are taken from there, too")
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    rows, failed = [], False
    print(f"ONNX Runtime {ort.__version__}, {args.threads} threads; ms, and errors: Kiln to ONNX Runtime, to the model's meaning in floats "
          "(ONNX Runtime to that), to f32")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        keep = args.keep or folder
        keep.mkdir(parents=True, exist_ok=True)
        for path in args.models:
            stem = pathlib.Path(path).stem
            f32 = keep / f"{stem}.f32.onnx"
            if not f32.exists():
                whole(path, f32)
            for way in ways_of(path):
                if args.only and not any(fnmatch.fnmatch(way, p) for p in args.only):
                    continue
                quantised = keep / f"{stem}.{way}.onnx"
                try:
                    if not quantised.exists():
                        quantise(f32, way, quantised)
                    row = measure(f32, quantised, args.threads, args.seconds, folder)
                except Exception as problem:  # one model's failure is a row of the table
                    failed = True
                    print(f"{stem:20} {way:20} {problem}"[:240], flush=True)
                    continue
                rows.append({"model": stem, "way": way, "threads": args.threads} | row)
                print(f"{stem:20} {way:20} Kiln {row['kiln_quantised']:8.2f} (f32 {row['kiln_f32']:8.2f})  ORT {row['ort_quantised']:8.2f} "
                      f"(f32 {row['ort_f32']:8.2f})  {row['faster_than_f32']:5.2f}x f32 {row['faster_than_ort']:5.2f}x ORT  "
                      f"{row['to_ort']:.4f} {row['to_meaning']:.4f} ({row['ort_to_meaning']:.4f}) {row['to_f32']:.4f}", flush=True)
                if args.json:
                    pathlib.Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
