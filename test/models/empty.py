#!/usr/bin/env python3
"""Runs every operator with axes of no elements, of one and of odd extents, each axis in turn and all of them, and compares with ONNX
Runtime or the reference evaluator of the onnx package. What neither of them computes, Kiln computes or refuses with a message of its door.

usage: empty.py KILN [PATTERN]      in the Python environment of `make test`
"""
import concurrent.futures
import fnmatch
import multiprocessing
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

try:
    import ml_dtypes
    import numpy
    import onnx
    import onnx.reference
    import onnxruntime
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import batch

RNG = numpy.random.default_rng(28)
TYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64", "bool": "bool", "u32": "uint32"}
EXTENTS = {"N": 2, "C": 4, "H": 5, "W": 7, "M": 6, "K": 3, "S": 5, "T": 3, "D": 8, "A": 3, "B": 5, "E": 2, "P": 3, "Q": 2}
MS, ML, TRAINING = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"
INTERNAL = ["damaged plan", "must not be negative", "must not exceed its tensor", "must be computed before", "internal", "INTERNAL", "exit code -", "exit code 1 ",
            "Sanitizer", "sim: kernel", "buffer a", "to be read", "out of bounds"]
ROWS = []


def row(op, inputs, outputs=1, domain="", opset=21, judge="", tolerance=(1e-5, 1e-5), more=None, refuses="-", **attributes):
    """|inputs|: "TYPE EXTENT..." or "= expression"; "!" in front: known when compiling; "-": omitted. Letters are extents.

    Attributes that are strings beginning with "=" are expressions, too. |more| tells rows of an operator apart;
    |refuses| is what Kiln may say instead of a judge's results."""
    ROWS.append((f"{op}{'_' + more if more else ''}", op, [t.strip() for t in inputs.split(";")], outputs, domain, opset, judge, tolerance, attributes, refuses))


def maps(names, inputs, **more):
    for name in names.split():
        row(name, inputs, **more)


X = "f32 N A B"
CHOOSES = "chooses from an axis that must not be empty"  # indices that lie outside of what they choose from


def define_maps():
    maps("Relu Abs Neg Exp Tanh Sigmoid Erf Sqrt Ceil Floor Cos Sin Reciprocal Softplus Softsign Atan Asinh Sinh Cosh Tan Log Acos Asin Atanh Acosh Round "
         "Sign Identity HardSwish Mish LeakyRelu Elu Selu Celu ThresholdedRelu HardSigmoid Shrink IsNaN IsInf Gelu", "f32 N A")
    row("Swish", X, opset=24, judge="reference")
    row("Relu", "f16 N A B", more="f16")
    row("Not", "bool N A B")
    row("BitwiseNot", "i32 N A B")
    maps("Add Sub Mul Div Equal Greater GreaterOrEqual Less LessOrEqual PRelu", "f32 N A; f32 A")
    row("Mod", "f32 N A; f32 A", fmod=1)
    maps("Add Pow Mean", f"{X}; f32 N A B", more="same")
    maps("Add Mul", f"{X}; f32 1 A 1", more="broadcast")
    maps("Max Min Sum Mean", f"{X}; f32 B; f32 A 1")
    maps("Add Max", "i64 N A B; i64 A B", more="i64")
    maps("And Or Xor", "bool N A; bool A")
    maps("BitwiseAnd BitwiseOr BitwiseXor", "i32 N A; i32 A")
    row("BitShift", "u32 N A; u32 N A", direction="LEFT")
    row("Where", f"bool N A B; f32 A B; {X}")
    row("Clip", f"{X}; = f32(-0.5); = f32(0.5)")
    maps("Cast", X, to=7)
    row("CastLike", f"{X}; i32 1")
    row("BitCast", X, opset=26, to=6, judge="reference")
    row("Dropout", X, outputs=2)
    for name in ("Gelu", "FastGelu", "QuickGelu"):
        row(name, X, domain=MS)
    row("BiasGelu", f"{X}; f32 B", domain=MS)
    row("BiasSplitGelu", "f32 N A 2*D; f32 2*D", domain=MS, judge="none")
    row("SwiGLU", f"{X}; f32 N A B", opset=28, judge="reference")


def define_reductions():
    for k, name in enumerate("Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()):
        row(f"Reduce{name}", f"{X}; != i64([1])", keepdims=k % 2, more="middle")
        row(f"Reduce{name}", f"{X}; != i64([0, 2])", keepdims=0, more="two")
        row(f"Reduce{name}", "f32 N A", more="all")
    for name in "Sum Max Min Prod".split():
        row(f"Reduce{name}", "i64 N A; != i64([1])", keepdims=0, more="i64")
        row(f"Reduce{name}", "f16 N A; != i64([1])", keepdims=0, more="f16", tolerance=(2e-3, 2e-3))
        row(f"Reduce{name}", "f64 N A; != i64([1])", keepdims=0, more="f64")
    maps("ReduceMax ReduceMin", "u8 N A; != i64([0])", more="u8")
    maps("ReduceMax ReduceMin", "bool N A; != i64([0])", more="bool", judge="reference")
    maps("ArgMax ArgMin", X, axis=1)
    row("CumSum", f"{X}; != i64(1)")
    row("CumSum", "f32 N A B; != i64(1)", exclusive=1, reverse=1, more="reversed")
    row("CumProd", f"{X}; != i64(1)", opset=26, judge="reference")
    row("TopK", "f32 N A B; != i64([min(1, A)])", outputs=2, axis=1)
    row("TopK", "f32 N A B; != i64([0])", outputs=2, axis=1, more="none")
    maps("Softmax LogSoftmax Hardmax", X, axis=1)
    maps("Softmax LogSoftmax Hardmax", "f32 N A", axis=-1, more="last")
    maps("Softmax LogSoftmax Hardmax", X, axis=1, more="flat", opset=11)
    maps("GlobalAveragePool GlobalMaxPool GlobalLpPool", "f32 N C H W")
    row("Einsum", "f32 N A B; f32 N B P", equation="nab,nbp->nap")
    row("Einsum", "f32 A B", equation="ab->b", more="sum")


def define_norms():
    row("BatchNormalization", "f32 N C H W; f32 C; f32 C; f32 C; f32 C")
    row("InstanceNormalization", "f32 N C H W; f32 C; f32 C")
    row("GroupNormalization", "f32 N C H W; f32 C; f32 C", num_groups=2)
    row("LayerNormalization", f"{X}; f32 B; f32 B", axis=-1)
    row("LayerNormalization", f"{X}; f32 A B", axis=1, more="two")
    row("RMSNormalization", f"{X}; f32 B", opset=23, axis=-1)
    row("SimplifiedLayerNormalization", f"{X}; f32 B", axis=-1, opset=17, judge="runtime")
    row("SkipLayerNormalization", "f32 N S D; f32 N S D; f32 D; f32 D", domain=MS)
    row("SkipSimplifiedLayerNormalization", "f32 N S D; f32 N S D; f32 D", domain=MS)
    row("LpNormalization", X, axis=1)
    row("LRN", "f32 N C H W", size=3)
    row("MeanVarianceNormalization", "f32 N C H W")


def define_moves():
    row("Reshape", f"{X}; != i64([N * A, B])")
    row("Reshape", f"{X}; != i64([0, -1])", more="kept")
    row("Reshape", f"{X}; != i64([B, N, A])", allowzero=1, more="zeros")
    row("Flatten", X, axis=2)
    row("Squeeze", "f32 N 1 A; != i64([1])")
    row("Unsqueeze", "f32 N A; != i64([1])")
    row("Transpose", X, perm=[2, 0, 1])
    row("Expand", "f32 N 1 B; != i64([N, A, B])")
    row("Tile", "f32 N A; != i64([2, 3])")
    row("Tile", "f32 N A; != i64([E, P])", more="times")
    row("Concat", "f32 N A B; f32 N P B; f32 N 2 B", axis=1)
    row("Concat", "f32 N A; != numpy.ones([N, P], f32); f32 N 2", axis=1, more="constant")
    row("Concat", "f32 N A; !f32 0 A; f32 N A", axis=0, more="none")
    row("Concat", "bool N A; bool N P", axis=1, more="bool")
    row("Split", "f32 N A+P; != i64([A, P])", outputs=2, axis=1)
    row("Split", "f32 N 2*A", outputs=2, axis=1, num_outputs=2, more="number")
    row("Slice", "f32 N A B; != i64([1]); != i64([9]); != i64([1])")
    row("Slice", "f32 N A B; != i64([-1, 2]); != i64([-99, 0]); != i64([0, 1]); != i64([-1, -2])", more="reversed")
    row("Slice", "f32 N A B; != i64([0]); != i64([0]); != i64([1])", more="nothing")
    row("Slice", "f32 N A; i64 1; i64 1", more="run", judge="none")
    for mode in ("constant", "edge", "reflect", "wrap"):
        row("Pad", "f32 A B; != i64([1, 0, 2, 1])", mode=mode, more=mode)
    row("Gather", f"{X}; = i64([0, 0, 0])", axis=1, refuses=CHOOSES)
    row("Gather", f"{X}; = numpy.zeros([P, Q], i64)", axis=1, more="many", refuses=CHOOSES)
    row("GatherElements", "f32 A B; = numpy.zeros([A, P], i64)", axis=1)
    row("GatherND", f"{X}; = numpy.zeros([P, 2], i64)")
    row("Scatter", "f32 A B; = numpy.zeros([A, P], i64); f32 A P", axis=1, opset=9, judge="none")
    row("ScatterElements", "f32 A B; = numpy.arange(A * P).reshape(A, P) % P; f32 A P", axis=1)
    row("ScatterND", "f32 A B; = numpy.arange(P).reshape(P, 1); f32 P B")
    row("TensorScatter", "f32 N S D; f32 N P D; = numpy.zeros([N], i64)", opset=24, axis=1, judge="reference")
    row("DepthToSpace", "f32 N C H W", blocksize=2)
    row("SpaceToDepth", "f32 N C 2*H 2*W", blocksize=2)
    row("ReverseSequence", "f32 S N A; = numpy.full([N], S)", batch_axis=1, time_axis=0)
    row("Trilu", "f32 N A B; != i64(0)")
    row("EyeLike", "f32 A B", k=1)
    row("OneHot", "= numpy.zeros([A, B], i64); != i64(P); f32 2", axis=1)
    row("CenterCropPad", "f32 A B; != i64([P, Q])", judge="reference")
    row("Compress", "f32 A B; = numpy.arange(A) % 2 == 0", axis=0)
    row("Compress", "f32 A B; = numpy.arange(A * B) % 2 == 0", more="flat")
    row("NonZero", "f32 A B")
    row("Unique", "f32 A B", outputs=4, axis=0, judge="reference")
    row("Unique", "f32 A B", outputs=4, more="flat", judge="reference")
    maps("Shape Size", X)
    row("ConstantOfShape", "!= i64([A, B])")
    row("Range", "= f32(0); != f32(A); = f32(1)", judge="none")
    row("Range", "!= i64(0); != i64(A); != i64(1)", more="i64")
    row("Range", "!= i64(A); != i64(0); != i64(1)", more="backwards")
    row("ArrayFeatureExtractor", "f32 A B; = numpy.zeros([P], i64)", domain=ML, refuses="the dimension is empty")
    row("Binarizer", "f32 A B", domain=ML, threshold=0.25)
    row("Constant", "", value="= numpy.ones([A, B], f32)")
    row("AffineGrid", "f32 N 2 3; != i64([N, 3, H, W])", judge="reference")
    row("TfIdfVectorizer", "i32 N A", mode="TF", ngram_counts=[0], ngram_indexes=[0, 1, 2], pool_int64s=[0, 1, 2], min_gram_length=1, max_gram_length=1,
        max_skip_count=0)


def define_products():
    row("MatMul", f"{X}; f32 N B P")
    row("MatMul", f"{X}; f32 B P", more="shared")
    row("MatMul", "f32 A B; f32 B", more="vector")
    row("MatMul", "f32 B; f32 B", more="inner")
    row("MatMul", "f16 A B; f16 B P", more="f16", tolerance=(2e-3, 2e-3))
    row("MatMul", "i32 A B; i32 B P", more="i32")
    row("MatMul", f"{X}; !f32 B P", more="weights")
    row("Gemm", "f32 A B; f32 B P; f32 P", alpha=0.5, beta=2.0)
    row("Gemm", "f32 B A; f32 P B", transA=1, transB=1, more="turned")
    row("FusedMatMul", f"{X}; f32 B P", domain=MS, alpha=0.5)
    row("FusedGemm", "f32 A B; f32 B P; f32 P", domain=MS, activation="Relu")
    row("Conv", "f32 N C H W; f32 M C 3 3; f32 M", pads=[1] * 4)
    row("Conv", "f32 N C H W; !f32 M C 3 3", more="weights")
    row("Conv", "f32 N C W; f32 C 1 3", group="= C", more="depthwise")
    row("Conv", "f32 N C H W; f32 M C 3 3", pads=[1] * 4, strides=[2, 2], more="strides")
    row("Conv", "f32 N 4 H W; f32 M 2 3 3", group=2, pads=[1] * 4, more="groups")
    row("FusedConv", "f32 N C H W; f32 M C 3 3; f32 M", domain=MS, activation="Relu")
    row("ConvTranspose", "f32 N C H W; f32 C M 3 3; f32 M", strides=[2, 2])
    row("ConvTranspose", "f32 N 4 H W; f32 4 M 3 2", strides=[2, 3], group=2, more="groups")
    row("ConvInteger", "u8 N C H W; u8 M C 3 3; = u8(3)")
    row("MatMulInteger", "u8 A B; i8 B P; = u8(3)")
    row("DeformConv", "f32 N C H W; f32 M C 2 2; f32 N 8 H-1 W-1", kernel_shape=[2, 2], judge="reference")
    row("MaxPool", "f32 N C H W", kernel_shape=[3, 3], pads=[1] * 4)
    row("MaxPool", "f32 N C H W", kernel_shape=[3, 3], pads=[1] * 4, outputs=2, more="places")
    row("AveragePool", "f32 N C H W", kernel_shape=[3, 3], pads=[1] * 4)
    row("AveragePool", "f32 N C H W", kernel_shape=[2, 2], more="plain")
    row("LpPool", "f32 N C H W", kernel_shape=[2, 2], judge="reference")
    row("MaxUnpool", "f32 N C H W; = numpy.arange(N * C * H * W).reshape(N, C, H, W) * 4", kernel_shape=[2, 2], strides=[2, 2])
    row("NhwcMaxPool", "u8 N H W C", domain=MS, kernel_shape=[2, 2], judge="none")
    row("Col2Im", "f32 N C*4 20; != i64([5, 6]); != i64([2, 2])")
    row("Det", "f32 N A A")
    row("GridSample", "f32 N C H W; f32 N P Q 2")
    row("RoiAlign", "f32 N C H W; f32 P 4; = numpy.zeros([P], i64)", output_height=2, output_width=2, refuses="the dimension is empty")
    row("MaxRoiPool", "f32 N C H W; = numpy.zeros([P, 5], f32)", pooled_shape=[2, 2])
    for mode in ("nearest", "linear", "cubic"):
        row("Resize", "f32 N C H W; -; != f32([1, 1, 2, 1.5])", mode=mode, more=mode)
        row("Resize", "f32 N C H W; -; -; != i64([N, C, P, Q])", mode=mode, more=f"{mode}_sizes")
    row("Upsample", "f32 N C H W; != f32([1, 1, 2, 2])", opset=9)
    row("QLinearConv", "u8 N C H W; != f32(.1); != u8(3); u8 M C 3 3; != f32(.1); != u8(3); != f32(.5); != u8(3)", tolerance=(0, 1))
    row("QLinearMatMul", "u8 A B; = f32(.1); = u8(3); u8 B P; = f32(.1); = u8(2); = f32(.5); = u8(1)")
    row("DynamicQuantizeLinear", "f32 A B", outputs=3, judge="reference")
    row("QuantizeLinear", "f32 N A; = f32(.1); = u8(3)")
    row("QuantizeLinear", "f32 N A; = numpy.full([A], .1, f32); = numpy.zeros([A], u8)", axis=1, more="axis")
    row("DequantizeLinear", "u8 N A; = f32(.1); = u8(3)")
    row("DequantizeLinear", "u8 N A; = numpy.full([A], .1, f32); = numpy.zeros([A], u8)", axis=1, more="axis")
    row("QLinearAdd", "u8 N A; = f32(.1); = u8(3); u8 N A; = f32(.1); = u8(3); = f32(.1); = u8(3)", domain=MS)
    row("QLinearMul", "u8 N A; = f32(.1); = u8(3); u8 N A; = f32(.1); = u8(3); = f32(.1); = u8(3)", domain=MS)
    row("QLinearSigmoid", "u8 N A; != f32(.1); != u8(3); != f32(.1); != u8(3)", domain=MS)
    row("QLinearLeakyRelu", "u8 N A; != f32(.1); != u8(3); != f32(.1); != u8(3)", domain=MS)
    row("QLinearSoftmax", "u8 N A; != f32(.1); != u8(3); != f32(.1); != u8(3)", domain=MS, axis=-1, opset_=13)
    row("QLinearConcat", "= f32(.1); = u8(3); u8 N A; = f32(.1); = u8(3); u8 N P; = f32(.1); = u8(3)", domain=MS, axis=1)
    row("QLinearGlobalAveragePool", "u8 N C H W; = f32(.1); = u8(3); = f32(.1); = u8(3)", domain=MS)
    row("QLinearAveragePool", "u8 N C H W; = f32(.1); = u8(3); = f32(.1); = u8(3)", domain=MS, kernel_shape=[2, 2], tolerance=(0, 1))
    row("QGemm", "u8 A 5; = f32(.1); = u8(3); i8 5 P; = f32(.1); = i8(0); i32 P", domain=MS)
    row("MatMulIntegerToFloat", "u8 A 5; i8 5 P; = f32(.1); = f32(.1)", domain=MS)
    row("DynamicQuantizeMatMul", "f32 A 5; !u8 5 P; != f32(.1); != u8(3)", domain=MS)
    row("MatMulNBits", "f32 A 32; !u8 P 1 16; !f32 P 1", domain=MS, K=32, N="= P", bits=4, block_size=32, refuses="N and K: must be positive")
    row("GatherBlockQuantized", "!u8 A 16; = numpy.zeros([P], i64); !f32 A 2", domain=MS, bits=4, block_size=16, gather_axis=0, quantize_axis=1, refuses=CHOOSES)


def define_sequences():
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        row(name, f"f32 S N A; f32 1 {gates}*E A; f32 1 {gates}*E E", outputs=3 if name == "LSTM" else 2, hidden_size="= E")
    row("Attention", "f32 N 2 S D; f32 N 2 T D; f32 N 2 T D", opset=23, judge="reference")
    row("Attention", "f32 N 2 S D; f32 N 2 T D; f32 N 2 T D", opset=23, is_causal=1, more="causal", judge="reference")
    row("RotaryEmbedding", "f32 N 2 S 8; f32 S 4; f32 S 4; = numpy.zeros([N, S], i64)", opset=23, judge="reference")
    row("Attention", "f32 N S A; f32 A 24; f32 24", domain=MS, num_heads=2, more="ms")
    row("MultiHeadAttention", "f32 N S 8; f32 N T 8; f32 N T 8", domain=MS, num_heads=2)
    row("GroupQueryAttention", "f32 N S 64; f32 N S 32; f32 N S 32; f32 N 2 0 16; f32 N 2 0 16; = numpy.full([N], S - 1, i32); != i32(S)", domain=MS, outputs=3,
        num_heads=4, kv_num_heads=2)
    row("QAttention", "u8 N S 6; !i8 6 24; f32 24; != f32(.1); != f32(.1); -; != u8(3); != i8(0)", domain=MS, num_heads=2)
    row("CausalConvWithState", "f32 N C S; f32 C 1 3; f32 C; f32 N C 2", opset=27, outputs=2, judge="none")
    row("RotaryEmbedding", "f32 N S 16; = numpy.zeros([N, S], i64); f32 P 4; f32 P 4", domain=MS, num_heads=2, more="ms", judge="none")
    row("EmbedLayerNormalization", "= numpy.zeros([N, S], i32); = numpy.zeros([N, S], i32); f32 6 D; f32 6 D; f32 2 D; f32 D; f32 D", domain=MS, outputs=2)
    row("LinearAttention", "f32 N S 8; f32 N S 8; f32 N S 8", opset=27, update_rule="linear", q_num_heads=2, kv_num_heads=2, judge="none")
    row("DFT", "f32 N A 1; -; != i64(1)", opset=20, judge="reference", tolerance=(1e-4, 1e-4))
    row("STFT", "f32 N 32 1; != i64(P); !f32 8", judge="none")
    maps("HannWindow HammingWindow BlackmanWindow", "!= i64(A)", judge="reference")
    row("MelWeightMatrix", "!= i64(A); != i64(16); != i64(8000); != f32(0); != f32(4000)", judge="none")
    row("NegativeLogLikelihoodLoss", "f32 N C A; = numpy.zeros([N, A], i64)", reduction="none")
    for how in ("none", "sum", "mean"):
        row("SoftmaxCrossEntropyLoss", "f32 N C A; = numpy.zeros([N, A], i64)", reduction=how, more=how)
    row("NonMaxSuppression", "f32 N P 4; f32 N E P; != i64([3]); != f32([.5])")
    row("RandomUniformLike", X, judge="shape", seed=1.0)
    row("RandomNormalLike", X, judge="shape", seed=1.0)
    row("RandomUniform", "", judge="shape", seed=1.0, shape="= [A, B]")
    row("RandomNormal", "", judge="shape", seed=1.0, shape="= [A, B]")
    row("Bernoulli", "= numpy.full([A, B], .5, f32)", judge="shape", seed=1.0)
    row("Multinomial", "f32 N A", judge="shape", seed=1.0, sample_size=2)
    row("Adam", "= f32(.1); = i64(0); f32 A B; f32 A B; f32 A B; f32 A B", domain=TRAINING, outputs=3, judge="reference")
    row("Adagrad", "= f32(.1); = i64(0); f32 A B; f32 A B; f32 A B", domain=TRAINING, outputs=2, judge="reference", norm_coefficient=0.1, epsilon=1e-3, decay_factor=0.1)
    row("Momentum", "= f32(.1); = i64(0); f32 A B; f32 A B; f32 A B", domain=TRAINING, outputs=2, judge="reference", alpha=0.9, beta=0.1, mode="standard", norm_coefficient=0.1)


def body_of(nodes, inputs, outputs):
    infos = [onnx.helper.make_tensor_value_info(name, t, [None] * rank) for name, t, rank in inputs]
    infos += [onnx.helper.make_tensor_value_info(name, t, shape[0] if shape else None) for name, t, *shape in outputs]
    return onnx.helper.make_graph([onnx.helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes], "body", infos[:len(inputs)], infos[len(inputs):])


def unentered(*shape):
    """A loop's body whose outputs tell their extents: without an iteration ONNX Runtime takes extents that it does not know for 0."""
    float_, boolean = 1, 9
    return body_of([("Identity", ["c"], ["d"]), ("Add", ["s", "s"], ["t"]), ("Neg", ["s"], ["u"])], [("i", 7, 0), ("c", boolean, 0), ("s", float_, 3)],
                   [("d", boolean), ("t", float_, shape), ("u", float_, shape)])


def define_control():
    """Sub-graphs, and in the body of a loop what works on sequences and optional values."""
    float_, integer, boolean = 1, 7, 9
    step = [("i", integer, 0), ("c", boolean, 0), ("s", float_, 3)]
    once = "!= i64(1); != bool(True); " + X
    bodies = {
        "carried": [("Add", ["s", "s"], ["t"]), ("Neg", ["s"], ["u"])],
        "sequence": [("SequenceConstruct", ["s", "s"], ["q"]), ("SequenceInsert", ["q", "s"], ["r"]), ("SequenceErase", ["r", "i"], ["e"]),
                     ("SequenceAt", ["e", "i"], ["t"]), ("ConcatFromSequence", ["e"], ["u"], {"axis": 1})],
        "mapped": [("SequenceEmpty", [], ["e"], {"dtype": 1}), ("SequenceInsert", ["e", "s"], ["q"]),
                   ("SequenceMap", ["q"], ["r"], {"body": body_of([("Neg", ["x"], ["y"])], [("x", float_, 3)], [("y", float_)])}),
                   ("SequenceAt", ["r", "i"], ["t"]), ("SequenceLength", ["r"], ["n"]), ("Cast", ["n"], ["u"], {"to": 1})],
        "pieces": [("SplitToSequence", ["s"], ["q"], {"axis": 2}), ("SequenceLength", ["q"], ["n"]), ("Cast", ["n"], ["u"], {"to": 1}), ("Identity", ["s"], ["t"])],
        "optional": [("Optional", ["s"], ["o"]), ("OptionalHasElement", ["o"], ["h"]), ("OptionalGetElement", ["o"], ["t"]), ("Cast", ["h"], ["u"], {"to": 1})]}
    for name, nodes in bodies.items():
        body = body_of([("Identity", ["c"], ["d"]), *nodes], step, [("d", boolean), ("t", float_), ("u", float_)])
        row("Loop", once, outputs=2, body=body, more=name, judge="runtime")
    row("Loop", "!= i64(0); != bool(True); " + X, outputs=2, body="=unentered(N, A, B)", more="never", judge="runtime")
    row("Scan", "f32 A; f32 N A", outputs=2, num_scan_inputs=1,
        body=body_of([("Add", ["s", "x"], ["t"]), ("Neg", ["t"], ["u"])], [("s", float_, 1), ("x", float_, 1)], [("t", float_), ("u", float_)]))
    branch = body_of([("Constant", [], ["t"], {"value": onnx.numpy_helper.from_array(numpy.zeros([0, 3], "f4"))})], [], [("t", float_)])
    for way in ("True", "False"):
        row("If", f"!= bool({way})", then_branch=branch, else_branch=branch, more=way)


# --- rows to cases

def names_of(types, attributes):
    texts = [t for t in types] + [v for v in attributes.values() if isinstance(v, str) and v.startswith("=")]
    words = set(re.findall(r"\b[A-Z]\b", " ".join(texts)))
    return [n for n in EXTENTS if n in words]


def array_of(text, dims):
    """An operand, and whether it is known when compiling."""
    constant, text = text.startswith("!"), text.lstrip("! ")
    scope = {t: getattr(numpy, n + "_" * (n == "bool")) for t, n in TYPES.items()} | dims | {"numpy": numpy, "min": min}
    if text.startswith("="):
        return numpy.asarray(eval(text[1:], scope)), constant
    kind, *extents = text.split()
    shape = [eval(e, scope) for e in extents]
    if kind in ("f32", "f16", "f64"):
        return RNG.uniform(0.25, 0.75, shape).astype(TYPES[kind]), constant
    return RNG.integers(0, 2 if kind == "bool" else 5, shape).astype(TYPES[kind]), constant


def value_of(value, dims):
    if not isinstance(value, str) or not value.startswith("="):
        return value
    value = eval(value[1:], {"numpy": numpy, "f32": numpy.float32, "unentered": unentered} | dims)
    return onnx.numpy_helper.from_array(value) if isinstance(value, numpy.ndarray) else value


def case_of(named, dims):
    """A case without its results, or None: there are no such tensors."""
    name, op, texts, outputs, domain, opset, judge, tolerance, attributes, refuses = named
    inputs, constant = [], []
    try:
        for k, text in enumerate(t for t in texts if t):
            x, known = array_of(text, dims) if text != "-" else (None, False)
            inputs.append(x)
            if known:
                constant.append(k)
        attributes = {k: value_of(v, dims) for k, v in attributes.items()}
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    shown = "_".join(f"{k}{v}" for k, v in dims.items())
    made = batch.Case(f"{name}_{shown}", op, inputs, [numpy.zeros(0)] * outputs, constant=constant, tolerance=tolerance, domain=domain, opset=opset, **attributes)
    made.judge, made.refuses = judge, refuses
    return made


def define():
    """The cases: all extents as they are, each of no elements, all of none, all of one."""
    for part in (define_maps, define_reductions, define_norms, define_moves, define_products, define_sequences, define_control):
        part()
    cases = {}
    for named in ROWS:
        names = names_of(named[2], named[8])
        base = {n: EXTENTS[n] for n in names}
        some = [base] + [base | {n: 0} for n in names] + [dict.fromkeys(names, e) for e in (0, 1)]
        for dims in some:
            made = case_of(named, dims)
            if made:
                cases.setdefault(made.name, made)
    return list(cases.values())


# --- judges

def by_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def by_reference(model, feeds):
    with numpy.errstate(all="ignore"):
        return onnx.reference.ReferenceEvaluator(model).run(None, feeds)


JUDGES = {"runtime": by_runtime, "reference": by_reference}


def judged(case, judges=tuple(JUDGES)):
    """The results of the first judge that has some, or None."""
    model, feeds = batch.model_of([case])
    for name in judges:
        if case.judge and case.judge != name:
            continue
        try:
            results = JUDGES[name](model, feeds)
        except Exception:  # whatever a judge raises: it has no results
            continue
        if all(isinstance(r, (numpy.ndarray, numpy.generic)) for r in results):
            return [numpy.asarray(r) for r in results]
    return None


def judge_all(cases):
    """What a judge says of each case. It runs in a process beside: what crashes it has no results."""
    results, at = {}, 0
    while at < len(cases):
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            futures = [pool.submit(judged, c) for c in cases[at:]]
            for f in futures:
                try:
                    results[cases[at].name] = f.result()
                except concurrent.futures.process.BrokenProcessPool:
                    results[cases[at].name] = None
                    at += 1
                    break
                at += 1
    return results


def differences(case, got, want):
    """How outputs differ from a judge's, or None: they do not."""
    if want is None:
        return "no judge has results"
    return next((d for d in (batch.difference(g, w, case.tolerance) for g, w in zip(got, want)) if d), None)


def verdicts(cases, outputs, want):
    wrong = {}
    for k, c in enumerate(cases):
        got = [outputs[f"y{k}_{i}"] for i in range(len(c.want))]
        why = differences(c, got, want[c.name])
        if why and differences(c, got, judged(c, ["reference"])):
            wrong[c.name] = why
    return wrong


def main():
    kiln, cases = sys.argv[1], define()
    chosen = [c for c in cases if fnmatch.fnmatch(c.name, sys.argv[2])] if len(sys.argv) > 2 else share.some(cases)
    want = judge_all(chosen)
    sure = [c for c in chosen if want[c.name] is not None]
    rest = [c for c in chosen if want[c.name] is None]
    wrong, refused = batch.run_judged(kiln, sure, ["--clamp-indices"], lambda cases, outputs: verdicts(cases, outputs, want))
    may = {c.name: c.refuses for c in chosen}
    wrong |= {name: why for name, why in refused.items() if may[name] not in why}
    batch.SIZE = 1  # most are refused
    _, refused = batch.run_judged(kiln, rest, ["--clamp-indices"], lambda cases, outputs: {})
    wrong |= {name: why for name, why in refused.items() if any(w in why for w in INTERNAL)}
    return batch.report(wrong, len(chosen))


if __name__ == "__main__":
    sys.exit(main())
