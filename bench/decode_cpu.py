#!/usr/bin/env python3
"""Times one step of LLaMA-shaped models with random weights: Kiln, llama.cpp, and the bandwidth of reading alone.

usage: bench/decode_cpu.py [--shape 125m|1b|7b]... [--weights int4|f16|int8|f32]... [--past N]... [--prefill N]... [--threads N]...
                           [--layers N] [--rounds N] [--build DIR] [--keep DIR] [--without-llama] [--kiln KILN]

needs: numpy, onnx; for llama.cpp: gguf and llama-cpp-py-sync, in the Python environment that runs this

A step of decoding is one token behind --past others; with --prefill it is a prompt of so many tokens behind none.
The ONNX model has the caches as inputs and gives the step's keys and values, and the last token's logits, batch 1; its weights are MatMulNBits (blocks of 32,
accuracy_level 4) or constants that are cast to f32 or dequantised. The GGUF file has the same shapes in Q4_0, F16, Q8_0 or F32.
Rounds interleave: reading of 256 MB by as many threads, a step of Kiln's, a step of llama.cpp's. One thread is timed by its
processor time, more by the clock. Printed are medians of a round's ratios, and the quarters around them: the bytes of weights and
caches over Kiln's time, as a share of the bandwidth; and llama.cpp's time over Kiln's. --layers cuts a model: its ratios are for trials only.
"""
import argparse
import ctypes
import mmap
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import kiln_rt

SHAPES = {  # hidden, inner, layers, heads, heads of keys, vocabulary
    "125m": (768, 2048, 12, 12, 12, 32000),
    "1b": (2048, 8192, 16, 32, 8, 128256),
    "7b": (4096, 11008, 32, 32, 32, 32000),
}
BLOCK = 32
READER = r"""
#include <pthread.h>
#include <stddef.h>
#include <time.h>
typedef long long v __attribute__((vector_size(64)));
typedef struct { const char *p; size_t n; v sum; } part;
static void *run(void *argument) {
  part *x = argument;
  const size_t quarter = x->n / 4 / 4096 * 4096;
  v s[4] = {0};
  for (size_t i = 0; i < quarter; i += sizeof(v))
    for (int k = 0; k < 4; k++) s[k] |= *(const v *)(x->p + (size_t)k * quarter + i);
  x->sum = s[0] | s[1] | s[2] | s[3];
  return NULL;
}
static double now(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
double bytes_s(const char *p, size_t n, int threads) {
  part parts[64];
  pthread_t all[64];
  const int clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double begin = now(clock);
  for (int i = 0; i < threads; i++) parts[i] = (part){p + n / threads / 4096 * 4096 * i, n / threads / 4096 * 4096, {0}};
  for (int i = 1; i < threads; i++) pthread_create(&all[i], NULL, run, &parts[i]);
  run(&parts[0]);
  for (int i = 1; i < threads; i++) pthread_join(all[i], NULL);
  return (double)n / (now(clock) - begin);
}
"""
RNG = np.random.default_rng(5)


def random_bytes(n):
    return np.frombuffer(RNG.bytes(n), np.uint8)


# --- the bandwidth of reading ---


class Reader:
    """Reads memory that nothing else reads."""

    def __init__(self, folder, size=256 << 20):
        source, library = folder / "reader.c", folder / "reader.so"
        source.write_text(READER)
        subprocess.run(["cc", "-O2", "-march=native", "-shared", "-fPIC", source, "-o", library, "-lpthread"], check=True)
        self.lib = ctypes.CDLL(str(library))
        self.lib.bytes_s.restype = ctypes.c_double
        self.lib.bytes_s.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.held = mmap.mmap(-1, size + (2 << 20))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.held.madvise(mmap.MADV_HUGEPAGE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.held))
        self.at, self.size = -(-at // (2 << 20)) * (2 << 20), size
        ctypes.memset(self.at, 1, size)

    def bandwidth(self, threads):
        return self.lib.bytes_s(self.at, self.size, threads)


# --- the ONNX model ---


class Graph:
    """A decoder for one token behind |past|, or for a prompt of |tokens|."""

    def __init__(self, shape, kind, past, tokens, layers):
        self.hidden, self.inner, self.layers, self.heads, self.kv, self.vocabulary = shape
        self.layers, self.kind, self.past, self.tokens = layers or self.layers, kind, past, tokens
        self.dim = self.hidden // self.heads
        self.nodes, self.held, self.inputs, self.outputs, self.n = [], [], [], [], 0
        self.bytes = 0

    def node(self, op, inputs, domain="", **attributes):
        self.n += 1
        out = f"t{self.n}"
        self.nodes.append(helper.make_node(op, inputs, [out], domain=domain, **attributes))
        return out

    def constant(self, array, name=None):
        self.n += 1
        name = name or f"c{self.n}"
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def port(self, name, shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weights(self, x, k, n):
        """x times weights (k, n) of this kind."""
        spread = float(1 / np.sqrt(k))
        if self.kind == "int4":
            codes = random_bytes(n * k // 2).reshape(n, k // BLOCK, BLOCK // 2)
            scales = ((RNG.random(n * k // BLOCK, dtype=np.float32) + 0.5) * spread / 4).astype(np.float16).astype(np.float32)
            self.bytes += codes.nbytes + scales.nbytes
            return self.node("MatMulNBits", [x, self.constant(codes), self.constant(scales)], "com.microsoft", K=k, N=n, bits=4,
                             block_size=BLOCK, accuracy_level=4)
        if self.kind == "int8":
            codes = random_bytes(n * k).view(np.int8).reshape(k, n)
            scales = (RNG.random(n, dtype=np.float32) + 0.5) * spread / 64
            self.bytes += codes.nbytes + scales.nbytes
            w = self.node("DequantizeLinear", [self.constant(codes), self.constant(scales)], axis=1)
            return self.node("MatMul", [x, w])
        values = RNG.standard_normal((k, n), dtype=np.float32) * spread
        if self.kind == "f32":
            self.bytes += values.nbytes
            return self.node("MatMul", [x, self.constant(values)])
        values = values.astype(np.float16)
        self.bytes += values.nbytes
        return self.node("MatMul", [x, self.node("Cast", [self.constant(values)], to=TensorProto.FLOAT)])

    def norm(self, x):
        squares = self.node("Mul", [x, x])
        mean = self.node("ReduceMean", [squares, self.constant(np.array([-1]))], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.constant(np.float32(1e-5))])])
        gain = self.constant(np.ones(self.hidden, np.float32))
        return self.node("Mul", [self.node("Div", [x, root]), gain])

    def heads_of(self, x, n):
        return self.node("Reshape", [x, self.constant(np.array([n, self.dim]))])

    def rotated(self, x):
        low, high = self.node_halves(x)
        turned = self.node("Concat", [self.node("Neg", [high]), low], axis=-1)
        return self.node("Add", [self.node("Mul", [x, "cos"]), self.node("Mul", [turned, "sin"])])

    def node_halves(self, x):
        half, axis = self.dim // 2, self.constant(np.array([-1]))
        bounds = [self.constant(np.array([at])) for at in (0, half, self.dim)]
        return [self.node("Slice", [x, bounds[i], bounds[i + 1], axis]) for i in range(2)]

    def cache(self, name):
        shape = [self.kv, self.past, self.dim]
        self.bytes += 2 * int(np.prod(shape))
        return self.node("Cast", [self.port(name, shape, TensorProto.FLOAT16)], to=TensorProto.FLOAT)

    def give(self, tensor, shape):
        self.outputs.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape))

    def attention(self, x, layer):
        group = self.heads // self.kv
        width = self.kv * self.dim
        q = self.rotated(self.heads_of(self.weights(x, self.hidden, self.hidden), self.heads))
        k = self.rotated(self.heads_of(self.weights(x, self.hidden, width), self.kv))
        v = self.heads_of(self.weights(x, self.hidden, width), self.kv)
        for t in (k, v):
            self.give(t, [self.kv, self.dim])
        k, v = [self.node("Reshape", [t, self.constant(np.array([self.kv, 1, self.dim]))]) for t in (k, v)]
        q = self.node("Reshape", [q, self.constant(np.array([self.kv, group, self.dim]))])
        keys = self.node("Concat", [self.cache(f"k{layer}"), k], axis=1)
        values = self.node("Concat", [self.cache(f"v{layer}"), v], axis=1)
        scores = self.node("MatMul", [q, self.node("Transpose", [keys], perm=[0, 2, 1])])
        scale = self.constant(np.float32(self.dim ** -0.5))
        p = self.node("Softmax", [self.node("Mul", [scores, scale])], axis=-1)
        out = self.node("Reshape", [self.node("MatMul", [p, values]), self.constant(np.array([1, self.hidden]))])
        return self.weights(out, self.hidden, self.hidden)

    def prompt(self, x, layer):
        """Causal attention of all tokens to one another; heads of a group are rows of one product."""
        t, group, width = self.tokens, self.heads // self.kv, self.kv * self.dim
        shape = lambda *extents: self.constant(np.array(extents))  # noqa: E731
        split = lambda y, n: self.node("Transpose", [self.node("Reshape", [y, shape(t, n, self.dim)])], perm=[1, 0, 2])  # noqa: E731
        q = self.rotated(split(self.weights(x, self.hidden, self.hidden), self.heads))
        k = self.rotated(split(self.weights(x, self.hidden, width), self.kv))
        v = split(self.weights(x, self.hidden, width), self.kv)
        for y in (k, v):
            self.give(y, [self.kv, t, self.dim])
        q = self.node("Reshape", [q, shape(self.kv, group * t, self.dim)])
        scores = self.node("MatMul", [q, self.node("Transpose", [k], perm=[0, 2, 1])])
        scores = self.node("Mul", [self.node("Reshape", [scores, shape(self.heads, t, t)]), self.constant(np.float32(self.dim ** -0.5))])
        p = self.node("Softmax", [self.node("Add", [scores, "causal"])], axis=-1)
        p = self.node("Reshape", [p, shape(self.kv, group * t, t)])
        out = self.node("Reshape", [self.node("MatMul", [p, v]), shape(self.heads, t, self.dim)])
        out = self.node("Reshape", [self.node("Transpose", [out], perm=[1, 0, 2]), shape(t, self.hidden)])
        return self.weights(out, self.hidden, self.hidden)

    def feed_forward(self, x):
        gate, up = [self.weights(x, self.hidden, self.inner) for _ in range(2)]
        gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
        return self.weights(self.node("Mul", [gate, up]), self.inner, self.hidden)

    def save(self, path):
        x, attention = self.port("x", [self.tokens, self.hidden]), self.attention
        for name in ("cos", "sin"):
            self.port(name, [self.tokens, self.dim] if self.tokens > 1 else [self.dim])
        if self.tokens > 1:
            attention = self.prompt
            self.constant(np.triu(np.full((self.tokens, self.tokens), -np.inf, np.float32), 1), "causal")
        for layer in range(self.layers):
            x = self.node("Add", [x, attention(self.norm(x), layer)])
            x = self.node("Add", [x, self.feed_forward(self.norm(x))])
        if self.tokens > 1:
            x = self.node("Gather", [x, self.constant(np.array([self.tokens - 1]))], axis=0)
        self.give(self.weights(self.norm(x), self.hidden, self.vocabulary), [1, self.vocabulary])
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.held)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path), save_as_external_data=True,
                  all_tensors_to_one_file=True, location=path.name + ".data", size_threshold=1024)
        return self.bytes


class Kiln:
    """A step of a compiled model on random inputs."""

    def __init__(self, kiln, build, path, threads):
        module = path.with_suffix(".so")
        subprocess.run([kiln, "compile", path, "-o", module, f"--threads={threads}", "--no-cache", "--quiet"], check=True)
        self.session = kiln_rt.Session(build, module, threads=threads)
        self.kept = []
        given = [self.tensor(p) for p in self.session.inputs]
        self.session.bind_tensors(given, [self.tensor(p) for p in self.session.output_ports], self.kept)
        self.session.outputs = None

    def tensor(self, port):
        shape = [port.shape[i] for i in range(port.rank)]
        dtype, bits = {"f32": (np.float32, 32), "f16": (np.float16, 16)}[port.dtype.decode()]
        data = (RNG.standard_normal(int(np.prod(shape)) + 32, dtype=np.float32) * 0.1).astype(dtype)
        at = -(-data.ctypes.data // 64) * 64
        self.kept.append(data)
        return kiln_rt.dl_tensor(at, (1, 0), shape, 2, bits)

    def step(self):
        self.session.run()

    def close(self):
        self.session.close()


# --- llama.cpp ---


def save_gguf(shape, kind, layers, path):
    """The same shapes; the table of embeddings is that of the logits, too."""
    import gguf
    hidden, inner, all_layers, heads, kv, vocabulary = shape
    layers = layers or all_layers
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("no_vocab")

    def weights(name, n, k):
        if kind in ("f16", "f32"):
            dtype = np.float16 if kind == "f16" else np.float32
            writer.add_tensor(name, (RNG.standard_normal((n, k), dtype=np.float32) / np.float32(np.sqrt(k))).astype(dtype))
            return
        size, dtype = {"int4": (18, gguf.GGMLQuantizationType.Q4_0), "int8": (34, gguf.GGMLQuantizationType.Q8_0)}[kind]
        blocks = random_bytes(n * k // 32 * size).reshape(n * k // 32, size).copy()
        blocks[:, :2] = np.full(len(blocks), (0.2 if kind == "int4" else 0.01) / np.sqrt(k), np.float16).view(np.uint8).reshape(-1, 2)
        writer.add_tensor(name, blocks.reshape(n, -1), raw_dtype=dtype)

    weights("token_embd.weight", vocabulary, hidden)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for i in range(layers):
        for name, n, k in (("attn_q", hidden, hidden), ("attn_k", kv * hidden // heads, hidden), ("attn_v", kv * hidden // heads, hidden),
                           ("attn_output", hidden, hidden), ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden),
                           ("ffn_down", hidden, inner)):
            weights(f"blk.{i}.{name}.weight", n, k)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama:
    """A step of llama.cpp's, of |tokens| behind |past| others."""

    def __init__(self, path, past, tokens, threads):
        from llama_cpp_py_sync import _cffi_bindings as bindings
        self.ffi, self.lib, self.past = bindings.get_ffi(), bindings.get_lib(), past
        self.tokens = [7 + i % 991 for i in range(tokens)]
        self.quiet = self.ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda *_: None)
        self.lib.llama_log_set(self.quiet, self.ffi.NULL)
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), self.lib.llama_model_default_params())
        p = self.lib.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch, p.no_perf = past + tokens + 64, 512, 512, threads, threads, True
        self.context = self.lib.llama_init_from_model(self.model, p)
        if self.context == self.ffi.NULL:
            raise RuntimeError(f"{path}: llama.cpp made no context")
        self.memory = self.lib.llama_get_memory(self.context)
        for begin in range(0, past, 512):
            self.decode([1 + i % 999 for i in range(min(512, past - begin))])

    def decode(self, tokens):
        given = self.ffi.new("llama_token[]", tokens)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(given, len(tokens))):
            raise RuntimeError("llama_decode failed")

    def step(self):
        self.decode(self.tokens)

    def back(self):
        self.lib.llama_memory_seq_rm(self.memory, 0, self.past, -1)

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


# --- rounds ---


def timed(step, threads):
    clock = time.thread_time if threads == 1 else time.perf_counter
    begin = clock()
    step()
    return clock() - begin


def measure(reader, kiln, llama, size, threads, rounds):
    """Quarters of a round's ratios: the share of the bandwidth, and llama.cpp's time over Kiln's."""
    shares, ratios = [], []
    for i in range(rounds + 2):
        bandwidth = reader.bandwidth(threads)
        ours = timed(kiln.step, threads)
        theirs = timed(llama.step, threads) if llama else 0
        if llama:
            llama.back()
        if i >= 2:
            shares.append(size / ours / bandwidth)
            ratios.append(theirs / ours)
    return statistics.quantiles(shares, n=4), statistics.quantiles(ratios, n=4)


def trial(args, reader, folder, step, gguf_file):
    shape, kind, past, tokens, threads = step
    model = folder / f"{shape}_{kind}_{past}_{tokens}.onnx"
    size = Graph(SHAPES[shape], kind, past, tokens, args.layers).save(model)
    kiln = Kiln(args.kiln or args.build / "kiln", args.build, model, threads)
    llama = None if args.without_llama else Llama(gguf_file, past, tokens, threads)
    share, ratio = measure(reader, kiln, llama, size, threads, args.rounds)
    of = f"past {past}: {share[1]:.2f} of the bandwidth of reading ({share[0]:.2f} to {share[2]:.2f})" if tokens == 1 else f"{tokens} tokens"
    print(f"{shape} {kind} threads {threads} {of}" +
          (f", {ratio[1]:.2f} of llama.cpp's speed ({ratio[0]:.2f} to {ratio[2]:.2f})" if llama else "") +
          (f", {args.layers} layers only" if args.layers else ""), flush=True)
    for run in (kiln, llama):
        if run:
            run.close()


def main():
    here = pathlib.Path(__file__).resolve().parent
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("shape", "125m"), ("weights", "int4"), ("past", 512), ("prefill", 512), ("threads", 1)):
        ap.add_argument(f"--{name}", action="append", type=type(default), default=[])
    ap.add_argument("--layers", type=int, default=0)
    ap.add_argument("--rounds", type=int, default=15)
    ap.add_argument("--build", type=pathlib.Path, default=here.parent / "build")
    ap.add_argument("--kiln", type=pathlib.Path)
    ap.add_argument("--keep", type=pathlib.Path)
    ap.add_argument("--without-llama", action="store_true")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or pathlib.Path(scratch)
        folder.mkdir(exist_ok=True)
        reader = Reader(folder)
        for shape in args.shape or ["125m"]:
            for kind in args.weights or ["int4"]:
                gguf_file = folder / f"{shape}_{kind}.gguf"
                if not args.without_llama:
                    save_gguf(SHAPES[shape], kind, args.layers, gguf_file)
                steps = [(past, 1) for past in args.past or ([] if args.prefill else [512, 2048])]
                for past, tokens in steps + [(0, tokens) for tokens in args.prefill]:
                    for threads in args.threads or [1, 2]:
                        trial(args, reader, folder, (shape, kind, past, tokens, threads), gguf_file)


if __name__ == "__main__":
    sys.exit(main())
