#!/usr/bin/env python3
"""Writes docs/operators.md: the operators Kiln compiles, with the ONNX node tests they pass.

usage: tools/operators_doc.py KILN (NODE_TEST_DIR RESULTS.json)...    writes docs/operators.md; needs the onnx package
       tools/operators_doc.py --check KILN                            says whether its list of operators is up to date

RESULTS.json is what `kiln test NODE_TEST_DIR --json RESULTS.json` wrote; NODE_TEST_DIR holds the test_* folders. The tables are of
the first pair; of the others, the sums are given.
"""
import collections
import pathlib
import json
import re
import subprocess
import sys

CATEGORIES = {  # by the operators that a test is about; what is in none is a map of elements
    "attention": "Attention FlexAttention LinearAttention RotaryEmbedding TensorScatter",
    "reductions, scans, sorting": "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin"
                                  " ReduceProd ReduceSum ReduceSumSquare TopK",
    "moving data": "CenterCropPad Col2Im Compress Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather GatherElements"
                   " GatherND Identity OneHot Pad Range Reshape ReverseSequence Scatter ScatterElements ScatterND Shape Size Slice"
                   " SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze",
    "normalizations, softmax": "BatchNormalization GroupNormalization Hardmax InstanceNormalization LayerNormalization LogSoftmax"
                               " LpNormalization LRN MeanVarianceNormalization RMSNormalization Softmax",
    "convolutions, pooling, regions": "AveragePool CausalConvWithState Conv ConvTranspose DeformConv GlobalAveragePool GlobalLpPool GlobalMaxPool"
                                      " LpPool MaxPool MaxRoiPool MaxUnpool RoiAlign",
    "resampling": "AffineGrid GridSample Resize Upsample",
    "quantized": "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear",
    "products": "Det Einsum Gemm MatMul",
    "recurrent": "GRU LSTM RNN",
    "types": "BitCast Cast CastLike",
    "signal": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "control flow": "If Loop Scan",
    "shapes that depend on data": "NonMaxSuppression NonZero Unique",
    "losses, training, random": "Adagrad Adam Bernoulli Dropout Momentum Multinomial NegativeLogLikelihoodLoss RandomNormal RandomNormalLike RandomUniform"
                                " RandomUniformLike SoftmaxCrossEntropyLoss",
    "sequences, optional values": "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty"
                                  " SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence",
    "strings, images": "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
}
CATEGORY_OF = {operator: name for name, operators in CATEGORIES.items() for operator in operators.split()}
MAPS = "maps of elements"
DOC = pathlib.Path(__file__).resolve().parent.parent / "docs" / "operators.md"


def operators(kiln):
    """(domain, operator) -> [(since, until, file)]"""
    out = subprocess.run([kiln, "operators"], check=True, capture_output=True, text=True).stdout
    rows = collections.defaultdict(list)
    for line in out.splitlines():
        domain, name, since, until, file = line.split("\t")
        rows[(domain, name)].append((int(since), int(until), file))
    return rows


def node_results(tests, results):
    """(domain, op) of each test's nodes -> [passed, all]; a test counts for every operator in its model."""
    import onnx
    counts = collections.defaultdict(lambda: [0, 0])
    for row in results:
        path = tests / pathlib.Path(row["test"].rstrip("/.")).name / "model.onnx"
        if not path.exists():
            continue
        for key in {(n.domain, n.op_type) for n in onnx.load(path).graph.node}:
            counts[key][0] += row["result"] == "passed"
            counts[key][1] += row["result"] != "skipped"
    return counts


def head_of(key, versions):
    """The columns that `kiln operators` alone decides."""
    opsets = ", ".join(f"{s}+" if u == 0 else (f"{s}" if s == u else f"{s}-{u}") for s, u, _ in sorted(set(versions)))
    files = ", ".join(f"`{f}`" for f in sorted({f for _, _, f in versions}))
    return f"| {key[1]} | {key[0] or 'ai.onnx'} | {opsets} | {files} |"


def category_of(tests, name):
    """Of a test: of an expanded function's, that of the function; sequences and control flow before what they hold."""
    import onnx
    plain = tests / re.sub(r"_expanded(_ver\d+)?$", "", name)
    path = plain if plain.exists() else tests / name
    nodes = [n for n in onnx.load(path / "model.onnx").graph.node if n.op_type != "Constant"]
    if any(n.domain == "ai.onnx.ml" for n in nodes):
        return "ai.onnx.ml"
    found = [CATEGORY_OF.get(n.op_type, MAPS) for n in nodes]
    for first in ("sequences, optional values", "control flow"):
        if first in found:
            return first
    return found[0] if found else CATEGORY_OF["Constant"]


def category_table(tests, results):
    counts = collections.defaultdict(lambda: [0, 0])
    for row in results:
        count = counts[category_of(tests, pathlib.Path(row["test"].rstrip("/.")).name)]
        count[0] += row["result"] == "passed"
        count[1] += 1
    yield "| category | node tests passed |\n|---|---|"
    for name, (done, total) in sorted(counts.items(), key=lambda item: -item[1][1]):
        yield f"| {name} | {done} of {total} |"


def document(kiln, runs):
    """`runs`: pairs of a folder and the results of its tests."""
    tests, results = runs[0]
    counts, rows = node_results(tests, results), operators(kiln)
    sums = [f"{sum(r['result'] == 'passed' for r in rows)} of {len(rows)}" for _, rows in runs]
    yield "# Operators\n"
    yield "Generated by `tools/operators_doc.py` from `kiln operators` and runs of `kiln test`. Of the node tests of the newest ONNX package (`make docs`"
    yield f"says which), {sums[0]} pass" + (f", of those of ONNX 1.12 {sums[1]}" if len(sums) > 1 else "") + ". A test counts for every operator in its model.\n"
    yield from category_table(tests, results)
    yield "\n| operator | domain | opsets | defined in | node tests passed |\n|---|---|---|---|---|"
    for key, versions in sorted(rows.items()):
        done, total = counts.get(key, (0, 0))
        yield f"{head_of(key, versions)} {f'{done} of {total}' if total else '-'} |"
    missing = sorted(k for k in counts if k not in rows)
    yield "\nOperators in the tests that no file of `ops/` defines: " + (", ".join(n for _, n in missing) or "none") + "."
    yield "If, Loop, Scan and FlexAttention, and sequences and optional values of known length, are resolved as the graph is read."


def check(kiln):
    want = {head_of(key, versions) for key, versions in operators(kiln).items()}
    got = {m[0] for m in re.finditer(r"^\| \S+ \| \S+ \| \d.*? \| `.*?` \|", DOC.read_text(), re.MULTILINE)}
    for line in sorted(want - got):
        print(f"{DOC.name} lacks  {line}")
    for line in sorted(got - want):
        print(f"{DOC.name} has    {line}")
    return 1 if want != got else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        return check(sys.argv[2])
    if len(sys.argv) < 4 or len(sys.argv) % 2:
        sys.exit(__doc__)
    runs = [(pathlib.Path(folder), json.loads(pathlib.Path(results).read_text())) for folder, results in zip(sys.argv[2::2], sys.argv[3::2])]
    DOC.write_text("\n".join(document(sys.argv[1], runs)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
