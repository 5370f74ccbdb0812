#!/usr/bin/env python3
"""Compares operators of com.microsoft, and standard ones of sizes that the standard's tests do not have, with ONNX Runtime on
random data, a node a model.

usage: contrib.py KILN [PATTERN]...     in the Python environment of `make test`
"""
import fnmatch
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

CASES = {}
RNG = numpy.random.default_rng(7)
MS = "com.microsoft"


class Weight:
    """An input that the model holds."""

    def __init__(self, array):
        self.array = array


class Codes(Weight):
    """One of integers of few bits, of ONNX's type of that name."""

    def __init__(self, values, kind):
        super().__init__(values)
        self.kind = getattr(onnx.TensorProto, kind.upper())


def normal(*shape, dtype=numpy.float32, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def integers(low, high, *shape, dtype=numpy.int64):
    return RNG.integers(low, high, shape).astype(dtype)


def scalar(value, dtype=numpy.float32):
    return numpy.array(value, dtype)


def case(name, op, inputs, n_outputs=1, domain=MS, rtol=1e-4, atol=1e-5, same=None, like=None, **attributes):
    """`n_outputs` may be a list of whether each is wanted; `same`: inputs that mean the same and that ONNX Runtime takes; `like`:
    an operator, inputs and attributes that do."""
    wanted = [True] * n_outputs if isinstance(n_outputs, int) else n_outputs
    CASES[name] = (op, inputs, wanted, domain, rtol, atol, like or (op, same or inputs, attributes), attributes)


def model_of(op, inputs, wanted, domain, attributes):
    names, ports, weights = [], [], []
    for k, value in enumerate(inputs):
        names.append("" if value is None else f"x{k}")
        if isinstance(value, Codes):
            weights.append(helper.make_tensor(f"x{k}", value.kind, value.array.shape, value.array.ravel()))
        elif isinstance(value, Weight):
            weights.append(numpy_helper.from_array(value.array, f"x{k}"))
        elif value is not None:
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            ports.append(helper.make_tensor_value_info(f"x{k}", kind, value.shape))
    outputs = [f"y{k}" if use else "" for k, use in enumerate(wanted)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], op, ports, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def fed(inputs):
    return {f"x{k}": v for k, v in enumerate(inputs) if v is not None and not isinstance(v, Weight)}


def check(kiln, name, folder):
    """None, or what is wrong."""
    op, inputs, wanted, domain, rtol, atol, like, attributes = CASES[name]
    path = folder / "model.onnx"
    path.write_bytes(model_of(op, inputs, wanted, domain, attributes).SerializeToString())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = model_of(like[0], like[1], wanted, domain, like[2]).SerializeToString()
    command = [kiln, "run", path, "--threads", "1", "--rtol", str(rtol), "--atol", str(atol)]
    for port, value in fed(inputs).items():
        numpy.save(folder / f"{port}.npy", value)
        command += ["--input", f"{port}={folder}/{port}.npy"]
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results = session.run(None, fed(like[1]))
    except Exception as refused:  # its own classes, of no common base
        return f"ONNX Runtime: {refused}"
    for port, value in zip(session.get_outputs(), results):
        numpy.save(folder / f"{port.name}.npy", value)
        command += ["--expect", f"{port.name}={folder}/{port.name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def define_norms():
    x, skip = normal(2, 5, 24), normal(2, 5, 24)
    gamma, beta, bias = normal(24), normal(24), normal(24)
    case("rms", "SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-5, axis=-1, stash_type=1)
    case("skip", "SkipLayerNormalization", [x, skip, gamma, beta, bias], [True, False, False, True], epsilon=1e-5)
    case("skip_bare", "SkipLayerNormalization", [x, skip, gamma])
    case("skip_broadcast", "SkipLayerNormalization", [x, normal(5, 24), gamma, beta], epsilon=1e-5)
    case("skip_first", "SkipLayerNormalization", [x, normal(1, 5, 24), gamma, beta], epsilon=1e-5)
    case("skip_rms", "SkipSimplifiedLayerNormalization", [x, skip, gamma], [True, False, False, True], epsilon=1e-6)
    case("skip_rms_bias", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-6)
    ids = integers(0, 30, 2, 5, dtype=numpy.int32)
    segments = integers(0, 2, 2, 5, dtype=numpy.int32)
    tables = [Weight(normal(30, 24)), Weight(normal(8, 24)), Weight(normal(2, 24)), Weight(gamma), Weight(beta)]
    mask = (numpy.arange(5) < [[3], [5]]).astype(numpy.int32)
    case("embed", "EmbedLayerNormalization", [ids, segments, *tables, mask], 2, epsilon=1e-5)
    case("embed_no_mask", "EmbedLayerNormalization", [ids, segments, *tables], 3, epsilon=1e-5)
    words = [ids, None, tables[0], tables[1], None, *tables[3:]]
    case("embed_words", "EmbedLayerNormalization", words, 2, epsilon=1e-5)
    places = integers(0, 8, 2, 5, dtype=numpy.int32)
    case("embed_positions", "EmbedLayerNormalization", [ids, segments, *tables, mask, places], 2, epsilon=1e-5)
    case("embed_positions_shared", "EmbedLayerNormalization", [ids, segments, *tables, mask, places[:1]], 2)


def define_activations():
    x, bias = normal(2, 5, 24), normal(24)
    case("gelu", "Gelu", [x])
    case("fast_gelu", "FastGelu", [x])
    case("fast_gelu_bias", "FastGelu", [x, bias])
    case("bias_gelu", "BiasGelu", [x, bias])
    case("quick_gelu", "QuickGelu", [x], alpha=1.5)
    case("quick_gelu_default", "QuickGelu", [x])


def define_attention():
    x, w, b = normal(2, 5, 16), Weight(normal(16, 72, scale=0.2)), Weight(normal(72))
    past = normal(2, 2, 3, 4, 8)
    raw = (numpy.arange(5) < [[3], [5]]).astype(numpy.int32)
    case("attention", "Attention", [x, w, b], num_heads=3)
    case("attention_mask", "Attention", [x, w, b, raw], num_heads=3)
    case("attention_lengths", "Attention", [x, w, b, numpy.array([3, 5], numpy.int32)], num_heads=3)
    case("attention_ranges", "Attention", [x, w, b, numpy.array([4, 5, 1, 0], numpy.int32)], num_heads=3)
    case("attention_mask_3d", "Attention", [x, w, b, integers(0, 2, 2, 5, 5, dtype=numpy.int32)], num_heads=3)
    case("attention_causal", "Attention", [x, w, b, raw], num_heads=3, unidirectional=1)
    case("attention_past", "Attention", [x, w, b, None, past], 2, num_heads=3, unidirectional=1)
    case("attention_bias", "Attention", [x, w, b, None, None, normal(1, 3, 5, 5)], num_heads=3, scale=0.3)
    sizes = Weight(normal(16, 24 + 24 + 12, scale=0.2)), Weight(normal(60))
    case("attention_sizes", "Attention", [x, *sizes], num_heads=3, qkv_hidden_sizes=[24, 24, 12])
    # weights of 7 bits: without VNNI, ONNX Runtime adds pairs of products up in 16 bits, which saturate
    codes, weights = integers(0, 256, 2, 5, 16, dtype=numpy.uint8), Weight(integers(-64, 64, 16, 72, dtype=numpy.int8))
    parts = [codes, weights, b, Weight(scalar(0.02)), Weight(scalar(0.01)), None, Weight(scalar(120, numpy.uint8)),
             Weight(scalar(0, numpy.int8))]
    case("attention_bytes", "QAttention", parts, num_heads=3)
    case("attention_bytes_past", "QAttention", [*parts, past], 2, num_heads=3, unidirectional=1)
    q, k, v, bias = normal(2, 5, 24), normal(2, 7, 24), normal(2, 7, 24), normal(72)
    padding = (numpy.arange(7) < [[3], [7]]).astype(numpy.int32)
    case("mha", "MultiHeadAttention", [q, k, v], num_heads=3)
    case("mha_bias", "MultiHeadAttention", [q, k, v, bias], num_heads=3)
    case("mha_padding", "MultiHeadAttention", [q, k, v, None, padding], num_heads=3, mask_filter_value=-1e5)
    case("mha_lengths", "MultiHeadAttention", [q, k, v, None, numpy.array([3, 7], numpy.int32)], num_heads=3)
    case("mha_score_bias", "MultiHeadAttention", [q, k, v, None, None, normal(1, 3, 5, 7)], num_heads=3)
    case("mha_both", "MultiHeadAttention", [q, k, v, None, padding, normal(2, 1, 5, 7)], num_heads=3)
    old = normal(2, 3, 4, 8), normal(2, 3, 4, 8)
    self_kv = normal(2, 5, 24), normal(2, 5, 24)
    case("mha_past", "MultiHeadAttention", [q, *self_kv, bias, None, None, *old], 3, num_heads=3, unidirectional=1)
    case("mha_causal", "MultiHeadAttention", [q, *self_kv], num_heads=3, unidirectional=1)
    case("mha_cross", "MultiHeadAttention", [q, normal(2, 3, 7, 8), normal(2, 3, 7, 8)], num_heads=3)
    packed, kv = normal(2, 5, 3, 3, 8), normal(2, 7, 3, 2, 8)
    parts = [numpy.ascontiguousarray(packed[:, :, :, i]).reshape(2, 5, 24) for i in range(3)]
    halves = [numpy.ascontiguousarray(kv[:, :, :, i]).reshape(2, 7, 24) for i in range(2)]
    case("mha_packed", "MultiHeadAttention", [packed], same=parts, num_heads=3)
    case("mha_packed_bias", "MultiHeadAttention", [packed, None, None, bias], same=[*parts, bias], num_heads=3)
    case("mha_packed_kv", "MultiHeadAttention", [q, kv], same=[q, *halves], num_heads=3)


def define_groups():
    """Right-padded prompts leave rows that nobody defines: all lengths here are full."""
    heads = dict(num_heads=4, kv_num_heads=2)
    q, k, v = normal(2, 5, 64), normal(2, 5, 32), normal(2, 5, 32)
    nothing = numpy.zeros((2, 2, 0, 16), numpy.float32)
    prompt = [numpy.array([4, 4], numpy.int32), Weight(scalar(5, numpy.int32))]
    caches = Weight(normal(32, 8)), Weight(normal(32, 8))
    case("gqa", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt], 3, **heads)
    case("gqa_packed", "GroupQueryAttention", [normal(2, 5, 128), None, None, nothing, nothing, *prompt], 3, **heads)
    case("gqa_rotary", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt, *caches], 3, do_rotary=1, **heads)
    case("gqa_window", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt], 3, local_window_size=2, **heads)
    case("gqa_scale", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt], 3, scale=0.1, softcap=0.5, **heads)
    case("gqa_smooth", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt], 3, smooth_softmax=1, **heads)
    sink = [None, None, None, None, normal(4)]
    case("gqa_sink", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt, *sink], 3, **heads)
    bias = [None, None, None, normal(2, 4, 5, 5)]
    case("gqa_bias", "GroupQueryAttention", [q, k, v, nothing, nothing, *prompt, *bias], 3, **heads)
    old = normal(2, 2, 6, 16), normal(2, 2, 6, 16)
    token = [normal(2, 1, 64), normal(2, 1, 32), normal(2, 1, 32)]
    later = [numpy.array([6, 4], numpy.int32), Weight(scalar(7, numpy.int32))]
    case("gqa_token", "GroupQueryAttention", [*token, *old, *later, *caches], 3, do_rotary=1, **heads)
    case("gqa_token_interleaved", "GroupQueryAttention", [*token, *old, *later, *caches], 3, do_rotary=1,
         rotary_interleaved=1, **heads)
    case("gqa_token_window", "GroupQueryAttention", [*token, *old, *later], 3, local_window_size=3, **heads)


def define_rotary():
    caches = Weight(normal(32, 8)), Weight(normal(32, 8))
    x, places = normal(2, 5, 48), integers(0, 32, 2, 5)
    for interleaved in (0, 1):
        case(f"rotary_{interleaved}", "RotaryEmbedding", [x, places, *caches], interleaved=interleaved)
        case(f"rotary_4d_{interleaved}", "RotaryEmbedding", [normal(2, 3, 5, 16), places, *caches], interleaved=interleaved)
    case("rotary_packed", "RotaryEmbedding", [x, places, *caches], is_packed_batching=1)
    case("rotary_from", "RotaryEmbedding", [x, numpy.array([7]), *caches])
    case("rotary_part", "RotaryEmbedding", [normal(2, 5, 60), places, *caches], num_heads=3, rotary_embedding_dim=16)


def packed(codes, bits):
    """Numbers of few bits, the first in the low ones of a byte, along the last axis."""
    per = 8 // bits
    wide = numpy.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per) * per), numpy.uint8)
    wide[..., :codes.shape[-1]] = codes
    parts = wide.reshape(*wide.shape[:-1], -1, per) << (numpy.arange(per, dtype=numpy.uint8) * bits)
    return numpy.bitwise_or.reduce(parts, -1).astype(numpy.uint8)


def define_bits():
    k, n = 96, 40
    for bits in (4, 8):
        blocks, size = k // 32, 32 * bits // 8
        b, scales = Weight(integers(0, 256, n, blocks, size, dtype=numpy.uint8)), Weight(normal(n, blocks, scale=0.1))
        zeros = Weight(integers(0, 256, n, (blocks * bits + 7) // 8, dtype=numpy.uint8))
        about = dict(K=k, N=n, bits=bits, block_size=32, atol=1e-4)
        case(f"nbits_{bits}", "MatMulNBits", [normal(2, 5, k), b, scales], **about)
        case(f"nbits_{bits}_row", "MatMulNBits", [normal(1, k), b, scales], **about)
        case(f"nbits_{bits}_zeros", "MatMulNBits", [normal(5, k), b, scales, zeros], **about)
        case(f"nbits_{bits}_zeros_row", "MatMulNBits", [normal(1, 1, k), b, scales, zeros], **about)
        case(f"nbits_{bits}_bias", "MatMulNBits", [normal(5, k), b, scales, None, None, normal(n)], **about)
    b, scales = Weight(integers(0, 256, n, 3, 16, dtype=numpy.uint8)), Weight(normal(n, 3, scale=0.1))
    about = dict(K=80, N=n, bits=4, block_size=32, atol=1e-4)
    case("nbits_ragged", "MatMulNBits", [normal(5, 80), b, scales], **about)
    case("nbits_ragged_row", "MatMulNBits", [normal(1, 80), b, scales], **about)
    flat = Weight(scales.array.reshape(-1)), Weight(integers(0, 256, n * 2, dtype=numpy.uint8))
    case("nbits_flat", "MatMulNBits", [normal(5, 80), b, *flat], **about)
    real = Weight(normal(n, 3) + 8)
    case("nbits_real_zeros", "MatMulNBits", [normal(5, 80), b, scales, real], **about)
    # ONNX Runtime leaves packed zero points out where there are groups
    for name, groups in (("sorted", numpy.sort(integers(0, 3, 80))), ("mixed", integers(0, 3, 80)), ("blocks", numpy.arange(80) // 32)):
        groups = Weight(groups.astype(numpy.int32))
        case(f"nbits_groups_{name}", "MatMulNBits", [normal(5, 80), b, scales, None, groups], **about)
        case(f"nbits_groups_{name}_real", "MatMulNBits", [normal(1, 80), b, scales, real, groups], **about)
        x, points = normal(2, 80), integers(0, 16, n, 3, dtype=numpy.uint8)
        wide = Weight(points.astype(numpy.float32))
        case(f"nbits_groups_{name}_zeros", "MatMulNBits", [x, b, scales, Weight(packed(points, 4)), groups],
             same=[x, b, scales, wide, groups], **about)
    for bits in (2, 8):  # which it computes without groups
        codes, points = integers(0, 2**bits, n, 80, dtype=numpy.uint8), integers(0, 2**bits, n, 3, dtype=numpy.uint8)
        groups, size = integers(0, 3, 80), 32 * bits // 8
        bytes_ = packed(numpy.pad(codes, [(0, 0), (0, 16)]), bits).reshape(n, 3, size)
        real = (codes - points[:, groups].astype(numpy.float32)) * scales.array[:, groups]
        inputs = [normal(5, 80), Weight(bytes_), scales, Weight(packed(points, bits)), Weight(groups.astype(numpy.int32))]
        like = "FusedMatMul", [inputs[0], Weight(real.T.astype(numpy.float32).copy())], {}
        case(f"nbits_groups_{bits}", "MatMulNBits", inputs, like=like, **(about | dict(bits=bits)))
    for kind, low, high in (("int4", -8, 8), ("uint4", 0, 16)):
        for gathered, along in ((0, 1), (1, 0), (2, 1), (1, 1)):
            shape, blocks = [6, 5, 7], [6, 5, 7]
            shape[along], blocks[along] = 40, 3
            codes, points = (Codes(integers(low, high, *size), kind) for size in (shape, blocks))
            about = dict(block_size=16, gather_axis=gathered, quantize_axis=along)
            t = f"gather_{kind}_{gathered}{along}"
            case(t, "GatherBlockQuantized", [codes, integers(-5, 5, 2, 3), Weight(normal(*blocks))], **about)
            case(f"{t}_zeros", "GatherBlockQuantized", [codes, integers(0, 5, 4), Weight(normal(*blocks)), points], **about)
    for bits in (4, 8):
        data = Weight(integers(0, 256, 30, 64 * bits // 8, dtype=numpy.uint8))
        scales, zeros = Weight(normal(30, 4)), Weight(integers(0, 256, 30, 4 * bits // 8, dtype=numpy.uint8))
        about = dict(bits=bits, block_size=16, gather_axis=0, quantize_axis=1)
        case(f"gather_{bits}", "GatherBlockQuantized", [data, integers(-30, 30, 2, 5), scales], **about)
        case(f"gather_{bits}_zeros", "GatherBlockQuantized", [data, integers(0, 30, 3), scales, zeros], **about)


def define_fused():
    a, b = normal(2, 3, 5, 8), normal(2, 3, 8, 7)
    across = dict(rtol=1e-3)
    case("matmul", "FusedMatMul", [a, b], alpha=0.5)
    case("matmul_turned", "FusedMatMul", [a.swapaxes(2, 3).copy(), b.swapaxes(2, 3).copy()], transA=1, transB=1)
    case("matmul_batch", "FusedMatMul", [normal(5, 2, 3, 8), b], transBatchA=1)
    case("matmul_both", "FusedMatMul", [normal(8, 2, 3, 5), normal(7, 2, 3, 8)], transBatchA=1, transA=1, transBatchB=1,
         transB=1)
    case("gemm", "FusedGemm", [normal(5, 8), normal(8, 7), normal(7)], activation="LeakyRelu", activation_alpha=0.2, alpha=0.5)
    x, w, bias = normal(1, 4, 9, 9), normal(6, 4, 3, 3, scale=0.2), normal(6)
    for name, numbers in {"Relu": None, "Tanh": None, "Sigmoid": None, "LeakyRelu": [0.2], "Clip": [-0.5, 0.5],
                          "HardSigmoid": [0.3, 0.4]}.items():
        about = dict(activation_params=numbers) if numbers else {}
        case(f"conv_{name}", "FusedConv", [x, w, bias], activation=name, pads=[1, 1, 1, 1], **about, **across)
    case("conv_sum", "FusedConv", [x, w, bias, normal(1, 6, 9, 9)], activation="Relu", pads=[1, 1, 1, 1], **across)
    bytes_ = integers(0, 256, 1, 9, 9, 4, dtype=numpy.uint8)
    case("max_pool", "NhwcMaxPool", [bytes_], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def define_quantised():
    """Halves between two codes may round either way: their sums differ in the last bit."""
    step = dict(atol=1)
    for kind, low, high in ((numpy.int8, -128, 128), (numpy.uint8, 0, 256)):
        x, y = integers(low, high, 2, 4, 6, 6, dtype=kind), integers(low, high, 4, 1, 6, dtype=kind)
        one, other, result = Weight(scalar(0.05)), Weight(scalar(0.08)), Weight(scalar(0.1))
        zero, more, third = (Weight(scalar(v, kind)) for v in (3, 7, 5))
        t = kind.__name__
        case(f"q_add_{t}", "QLinearAdd", [x, one, zero, y, other, more, result, third], **step)
        case(f"q_mul_{t}", "QLinearMul", [x, one, zero, y, other, more, result, third], **step)
        case(f"q_sigmoid_{t}", "QLinearSigmoid", [x, one, zero, Weight(scalar(1 / 256)), third], **step)
        case(f"q_leaky_{t}", "QLinearLeakyRelu", [x, one, zero, result, third], alpha=0.2, **step)
        case(f"q_softmax_{t}", "QLinearSoftmax", [x, one, zero, Weight(scalar(1 / 256)), third], axis=-1, opset=13, **step)
        case(f"q_mean_{t}", "QLinearGlobalAveragePool", [x, one, zero, result, third], **step)
        case(f"q_pool_{t}", "QLinearAveragePool", [x, one, zero, result, third], kernel_shape=[3, 3], **step)
        parts = [x, one, zero, integers(low, high, 2, 3, 6, 6, dtype=kind), other, more]
        case(f"q_concat_{t}", "QLinearConcat", [result, third, *parts], axis=1, **step)
    none = Weight(scalar(0, numpy.uint8))
    case("q_add_bare", "QLinearAdd", [x, one, None, y, other, None, result], same=[x, one, none, y, other, none, result, none], **step)
    a, b = normal(2, 5, 24), Weight(integers(0, 256, 24, 16, dtype=numpy.uint8))
    scales, zeros = Weight(normal(16, scale=0.01)), Weight(integers(0, 256, 16, dtype=numpy.uint8))
    case("q_dynamic", "DynamicQuantizeMatMul", [a, b, Weight(scalar(0.02)), Weight(scalar(120, numpy.uint8)), normal(16)])
    case("q_dynamic_columns", "DynamicQuantizeMatMul", [a, b, scales, zeros])
    signed = Weight(integers(-64, 64, 24, 16, dtype=numpy.int8))
    case("q_dynamic_signed", "DynamicQuantizeMatMul", [a, signed, scales])
    codes, addend = integers(0, 256, 5, 24, dtype=numpy.uint8), Weight(integers(-900, 900, 16, dtype=numpy.int32))
    given = [codes, Weight(scalar(0.1)), Weight(scalar(99, numpy.uint8))]
    for name, weights in (("", signed), ("_turned", Weight(signed.array.T.copy()))):
        operands = [*given, weights, Weight(abs(scales.array)), Weight(numpy.zeros(16, numpy.int8)), addend]
        about = dict(transB=1 if name else 0)
        case(f"q_gemm{name}", "QGemm", operands, **about)
        case(f"q_gemm{name}_codes", "QGemm", [*operands, Weight(scalar(0.5)), Weight(scalar(120, numpy.uint8))], **about, **step)
    codes = integers(0, 256, 2, 5, 24, dtype=numpy.uint8)
    case("q_float", "MatMulIntegerToFloat", [codes, signed, Weight(scalar(0.1)), scales, Weight(scalar(99, numpy.uint8)), None,
                                             normal(16)])


def define_experts():
    """Tokens fewer than experts, more of them, and so many that the blocks of an expert are full."""
    for name, tokens, experts, k in (("one", 1, 8, 2), ("few", 5, 8, 2), ("many", 64, 4, 2), ("uneven", 37, 3, 1)):
        x, router = normal(tokens, 32), normal(tokens, experts)
        def weights(inner, fused=1):
            return [Weight(normal(experts, fused * inner, 32, scale=0.2)), Weight(normal(experts, fused * inner)),
                    Weight(normal(experts, 32, inner, scale=0.2)), Weight(normal(experts, 32))]
        for kind in ("relu", "gelu", "silu", "identity"):
            case(f"moe_{name}_{kind}", "MoE", [x, router, *weights(48)], k=k, activation_type=kind, normalize_routing_weights=1)
        fused = dict(k=k, activation_type="swiglu", swiglu_fusion=1)
        case(f"moe_{name}_plain", "MoE", [x, router, *weights(48)], k=k, activation_type="silu")
        case(f"moe_{name}_swiglu", "MoE", [x, router, *weights(48, 2)], **fused)
        case(f"moe_{name}_swiglu_limit", "MoE", [x, router, *weights(48, 2)], **fused, activation_alpha=1.702,
             activation_beta=1.0, swiglu_limit=1.5, normalize_routing_weights=1)
    half = [v.astype(numpy.float16) if isinstance(v, numpy.ndarray) else Weight(v.array.astype(numpy.float16))
            for v in [x, router, *weights(48, 2)]]
    case("moe_half", "MoE", half, **fused, rtol=2e-3, atol=2e-3)
    gate, gate_bias, second, bias, value, value_bias = [*weights(48), *weights(48)[:2]]
    def joined(a, b, alternate):
        both = numpy.stack([a.array, b.array], 2 if alternate else 1)
        return Weight(both.reshape(experts, 96, *a.array.shape[2:]))
    pairs = (gate, value), (gate_bias, value_bias)
    like = "MoE", [x, router, *[joined(*p, True) for p in pairs], second, bias], fused
    apart = [joined(*p, False) for p in pairs]
    case("moe_halves", "MoE", [x, router, *apart, second, bias], like=like, **(fused | dict(swiglu_fusion=2)))
    case("moe_three", "MoE", [x, router, gate, gate_bias, second, bias, value, value_bias], like=like, k=k, activation_type="swiglu")
    case("moe_three_silu", "MoE", [x, router, gate, gate_bias, second, bias, value, value_bias], like=like, k=k,
         activation_type="silu")
    first, _, second, _ = weights(48)
    case("moe_bare", "MoE", [normal(2, 6, 32), normal(12, 3), first, None, second], k=2, activation_type="relu")


def quantized_layer(experts, n, k, bits, block, zeros):
    """The four inputs of a layer of QMoE, and the two of MoE that mean the same."""
    codes, size = integers(0, 2**bits, experts, n, k, dtype=numpy.uint8), block or k
    shape = (experts, n, k // size)
    points = integers(0, 2**bits, *shape, dtype=numpy.uint8) if zeros else numpy.full(shape, 2 ** (bits - 1), numpy.uint8)
    scales, bias = normal(*shape, scale=0.2 / 2**bits), normal(experts, n)
    spread = [numpy.repeat(part.astype(numpy.float32), size, -1) for part in (points, scales)]
    if not block:
        points, scales = points[:, :, 0], scales[:, :, 0]
    parts = [Weight(packed(codes, bits)), Weight(scales), Weight(bias), Weight(packed(points, bits)) if zeros else None]
    return parts, [Weight((codes - spread[0]) * spread[1]), Weight(bias)]


def define_quantized_experts():
    """ONNX Runtime has 2 and 8 bits in blocks with activations of 8 bits only, so it gets these weights as floats."""
    routed = dict(k=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1)
    for bits in (2, 4, 8):
        for block in (0, 32):
            for name, tokens, experts in (("few", 3, 8), ("many", 64, 4)):
                for zeros in (False, True):
                    one, real_one = quantized_layer(experts, 128, 32, bits, block, zeros)
                    two, real_two = quantized_layer(experts, 32, 64, bits, block, zeros)
                    x, router = normal(tokens, 32), normal(tokens, experts)
                    inputs = [x, router, *one[:3], *two[:3], None, None, None, one[3], two[3]]
                    about = dict(routed, expert_weight_bits=bits, **(dict(block_size=block) if block else {}))
                    like = None if bits == 4 or not block else ("MoE", [x, router, *real_one, *real_two], routed)
                    t = f"qmoe_{bits}_{block}_{name}" + ("_zeros" if zeros else "")
                    case(t, "QMoE", inputs, like=like, **about)
                    if bits == 4 and block:
                        for normalizes in (0, 1):
                            case(f"{t}_shares_{normalizes}", "QMoE", [*inputs, None, abs(normal(tokens, experts))],
                                 **(about | dict(normalize_routing_weights=normalizes)))
    one, real_one = quantized_layer(4, 64, 32, 4, 32, False)
    two, real_two = quantized_layer(4, 32, 64, 8, 32, True)
    silu = dict(k=2, activation_type="silu")
    case("qmoe_mixed", "QMoE", [x, router, *one[:3], *two[:3], None, None, None, None, two[3]], **silu, block_size=32,
         expert_weight_bits=4, fc2_expert_weight_bits=8, like=("MoE", [x, router, *real_one, *real_two], silu))


def define_quantized_lstm():
    """Weights of 7 bits, as for attention. A code of the input or of the state, which lies in [-1, 1], may round otherwise: that
    moves a gate by one step of the code times a weight, and the cell and the output by no more."""
    steps, batch, width, hidden = 6, 3, 20, 16
    for direction in ("forward", "reverse", "bidirectional"):
        dirs = 2 if direction == "bidirectional" else 1
        for kind, low, high, by_column in ((numpy.uint8, 64, 192, 0), (numpy.int8, -64, 64, 0), (numpy.int8, -64, 64, 1)):
            def weights(rows):
                scale = abs(normal(*((dirs, 4 * hidden) if by_column else (dirs,)), scale=0.004)) + 0.001
                zero = numpy.full(scale.shape, 0 if kind == numpy.int8 else 128, kind)
                return Weight(integers(low, high, dirs, rows, 4 * hidden, dtype=kind)), Weight(scale), Weight(zero)
            (w, *of_w), (r, *of_r) = weights(width), weights(hidden)
            x, bias, peep = normal(steps, batch, width), Weight(normal(dirs, 8 * hidden)), Weight(normal(dirs, 3 * hidden))
            first = normal(dirs, batch, hidden, scale=0.5), normal(dirs, batch, hidden)
            t = f"qlstm_{direction}_{kind.__name__}" + ("_columns" if by_column else "")
            zero = 0 if kind == numpy.int8 else 128
            most_w, most_r = (float(abs(codes.array.astype(float) - zero).max() * scale.array.max())
                              for codes, scale in ((w, of_w[0]), (r, of_r[0])))
            step = float(max(x.max(), 0) - min(x.min(), 0)) / 255
            about = dict(hidden_size=hidden, direction=direction, atol=step * most_w + 2 / 255 * most_r, rtol=1e-4)
            case(t, "DynamicQuantizeLSTM", [x, w, r, bias, None, *first, peep, *of_w, *of_r], 3, **about)
            lengths = numpy.array([steps, 2, 4], numpy.int32)
            case(f"{t}_lengths", "DynamicQuantizeLSTM", [x, w, r, None, lengths, None, None, None, *of_w, *of_r], 3, **about)


def define_features():
    """Elements of the last axis by indices of any shape that is one list."""
    for name, x in (("vector", normal(9)), ("rows", normal(4, 9)), ("many", integers(0, 99, 2, 3, 9))):
        for shape in ((6,), (1, 6), (6, 1), (1, 1)):
            where = "x".join(map(str, shape))
            case(f"features_{name}_{where}", "ArrayFeatureExtractor", [x, integers(0, 9, *shape)], domain="ai.onnx.ml")


def define_sizes():
    """Many inputs, steps and elements along an axis."""
    case("z_concat", "Concat", [normal(3, 2) for _ in range(100)], domain="", axis=1)
    case("z_sum", "Sum", [normal(5, 7) for _ in range(80)], domain="")
    case("z_gru", "GRU", [normal(80, 2, 8), Weight(normal(1, 48, 8, scale=0.2)), Weight(normal(1, 48, 16, scale=0.2))], 2,
         domain="", hidden_size=16)
    case("z_lstm", "LSTM", [normal(70, 1, 8), Weight(normal(2, 64, 8, scale=0.2)), Weight(normal(2, 64, 16, scale=0.2))],
         [True, False, True], domain="", hidden_size=16, direction="bidirectional")
    for axis in (0, 1):
        case(f"z_cumsum_{axis}", "CumSum", [normal(300, 40), Weight(numpy.array(axis))], domain="", atol=1e-4, exclusive=axis)
    case("z_topk", "TopK", [RNG.permutation(4000).reshape(4, 1000).astype(numpy.float32), Weight(numpy.array([10]))], 2, domain="")
    case("z_depthwise", "Conv", [normal(1, 24, 30, 34), Weight(normal(24, 1, 3, 3))], domain="", group=24, pads=[1] * 4,
         strides=[2, 2])


def main():
    kiln, patterns = sys.argv[1], sys.argv[2:] or ["*"]
    for define in (define_norms, define_activations, define_attention, define_groups, define_rotary, define_bits,
                   define_fused, define_quantised, define_experts, define_quantized_experts,
                   define_quantized_lstm, define_features, define_sizes):
        define()
    names = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in patterns)]
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(kiln, name, pathlib.Path(folder))
        if wrong:
            failed += 1
            print(f"{name}: FAILED: {wrong}", flush=True)
    print(f"{len(names) - failed} of {len(names)} agree")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
