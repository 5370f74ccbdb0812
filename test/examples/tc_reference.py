"""What the definitions of examples/tc/ compute, in NumPy, and what they take.

KERNELS[entry] = (file, inputs, function). `inputs` is text: name(dims) in the order of the definition, a dim being a size's
name, a number or an expression of sizes; `name(dims):int32<E` has whole numbers below E. The function takes the inputs in
that order, of any float type, and the sizes it needs by name; it gives the outputs in order.
"""
import re

import numpy as np

KERNELS = {}


def kernel(file, inputs):
    def add(function):
        KERNELS[function.__name__] = (file, inputs, function)
        return function
    return add


def shapes_of(entry, sizes):
    """(name, shape, upper bound of whole numbers or None, dtype) of each input."""
    found = []
    for name, dims, dtype, bound in re.findall(r"(\w+)\(([^)]*)\)(?::(\w+)<([^ ]+))?", KERNELS[entry][1]):
        shape = tuple(int(eval(d, {}, sizes)) for d in dims.split(",") if d.strip())
        found.append((name, shape, int(eval(bound, {}, sizes)) if bound else None, dtype or "float32"))
    return found


def sizes_of(entry, sizes):
    """Those of the sizes that the definition has."""
    return {n: v for n, v in sizes.items() if re.search(rf"\b{n}\b", KERNELS[entry][1])}


def inputs_of(entry, sizes, seed=0):
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape, bound, dtype in shapes_of(entry, sizes):
        made[name] = (rng.integers(0, bound, shape).astype(dtype) if bound
                      else rng.standard_normal(shape, dtype=np.float32))
    return made


def call(entry, inputs, sizes):
    """The outputs as a tuple; floats are computed in the type of the inputs."""
    _, _, function = KERNELS[entry]
    wanted = function.__code__.co_varnames[:function.__code__.co_argcount]
    values = list(inputs.values())
    out = function(*values, *(sizes[n] for n in wanted[len(values):]))
    return out if isinstance(out, tuple) else (out,)


# --- matmul.tc

@kernel("matmul", "A(M,K) B(N,K)")
def tmm(A, B):
    return A @ B.T


@kernel("matmul", "A(M,K) B(K,N)")
def matmul(A, B):
    return A @ B


@kernel("matmul", "X(B,N,M) Y(B,M,K)")
def batch_matmul(X, Y):
    return X @ Y


@kernel("matmul", "A(M,K) B(K,N) dC(M,N)")
def matmul_grad(A, B, dC):
    return dC @ B.T, A.T @ dC


@kernel("matmul", "A(M,K) B(K,N)")
def triangular(A, B):
    return np.triu(A) @ B


# --- convolution.tc

def windows(I, kh, kw):
    """(..., H, W) to (..., H - kh + 1, W - kw + 1, kh, kw), a view."""
    return np.lib.stride_tricks.sliding_window_view(I, (kh, kw), axis=(-2, -1))


def correlate(I, Weight, stride=1):
    """The convolution of (N, C, H, W) and (F, C, KH, KW) as one product of matrices."""
    w = windows(I, *Weight.shape[2:])[:, :, ::stride, ::stride]
    return np.tensordot(w, Weight, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


@kernel("convolution", "I(N,C,H,W) Weight(F,C,KH,KW) Bias(F)")
def convolution(I, Weight, Bias):
    return correlate(I, Weight) + Bias[:, None, None]


@kernel("convolution", "I(N,C,H,W) Weight(F,C,KH,KW) Bias(F)")
def convolution_strided(I, Weight, Bias):
    return correlate(I, Weight, 2) + Bias[:, None, None]


@kernel("convolution", "I(N,C,H,W) Weight(F,C,KH,KW) dO(N,F,HO,WO)")
def convolution_grad(I, Weight, dO):
    kh, kw = Weight.shape[2:]
    around = np.pad(dO, ((0, 0), (0, 0), (kh - 1, kh - 1), (kw - 1, kw - 1)))
    dI = correlate(around, Weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    dWeight = np.tensordot(dO, windows(I, kh, kw), axes=((0, 2, 3), (0, 2, 3)))
    return dI, dWeight


@kernel("convolution", "I(N,C,H,W) Weight(F,C,KH,KW) Keep(N,H,W):uint8<2")
def masked_convolution(I, Weight, Keep):
    return correlate(I * Keep[:, None], Weight)


@kernel("convolution", "I(N,C,H,W) Weight(F,C,KH,KW) Row(N,L):int32<H-KH+1 Column(N,L):int32<W-KW+1")
def perforated_convolution(I, Weight, Row, Column):
    n = np.arange(I.shape[0])[:, None]
    w = windows(I, *Weight.shape[2:]).transpose(0, 2, 3, 1, 4, 5)[n, Row, Column]
    return np.tensordot(w, Weight, axes=((2, 3, 4), (1, 2, 3)))


@kernel("convolution", "I(N,G,H,W) Weight(F,KC,KH,KW)")
def local_sparse_convolution(I, Weight):
    return correlate(I[:, np.arange(Weight.shape[1]) % I.shape[1]], Weight)


@kernel("convolution", "I(X) Weight(K)")
def convolution_1d(I, Weight):
    return np.convolve(I, Weight[::-1], "valid")


@kernel("convolution", "I(X) Weight(K)")
def toeplitz(I, Weight):
    return np.convolve(Weight, I, "valid")


@kernel("group_convolution", "I(N,G,C,H,W) Weight(G,F,C,KH,KW) Bias(G,F)")
def group_convolution(I, Weight, Bias):
    parts = [correlate(I[:, g], Weight[g]) for g in range(I.shape[1])]
    return np.stack(parts, 1) + Bias[:, :, None, None]


@kernel("winograd", "I(N,C,H,W) Weight(F,C,3,3)")
def winograd(I, Weight):
    return correlate(I, Weight)


# --- moments.tc, group_normalization.tc, normalization.tc, softmax.tc

@kernel("moments", "I(N,K)")
def sum(I):
    return I.sum(1)


@kernel("moments", "I(N,K)")
def mean(I):
    return I.mean(1)


@kernel("moments", "I(N,K)")
def sum_squares(I):
    return np.einsum("nk,nk->n", I, I)


@kernel("moments", "I(N,K) Mean(N)")
def var(I, Mean):
    return np.einsum("nk,nk->n", I, I) / I.shape[1] - Mean * Mean


@kernel("moments", "I(N,K)")
def sum_and_squares(I):
    return I.sum(1), np.einsum("nk,nk->n", I, I)


@kernel("moments", "I(N,K)")
def moments2(I):
    return I.mean(1), I.var(1)


@kernel("group_normalization", "I(N,G,D,H,W)")
def group_moments(I):
    return I.mean((2, 3, 4)), I.var((2, 3, 4))


@kernel("group_normalization", "I(N,G,D,H,W) Gamma(G,D) Beta(G,D) Mean(N,G) Var(N,G):float32<9")
def group_scale(I, Gamma, Beta, Mean, Var):
    scale = Gamma / np.sqrt(Var + I.dtype.type(1e-5))[:, :, None]
    return scale[..., None, None] * (I - Mean[:, :, None, None, None]) + Beta[..., None, None]


@kernel("group_normalization", "I(N,G,D,H,W) Gamma(G,D) Beta(G,D)")
def group_normalization(I, Gamma, Beta):
    mean, var = group_moments(I)
    return group_scale(I, Gamma, Beta, mean, var)


@kernel("normalization", "I(T,B,C)")
def layernorm(I):
    mean, var = I.mean(2), I.var(2)
    centered = I - mean[..., None]
    return centered / np.sqrt(var + I.dtype.type(1e-5))[..., None], mean, centered, var


@kernel("normalization", "momentum() eps():float32<2 I(N,C,H,W) MeanIn(C) VarIn(C):float32<9")
def batchnorm(momentum, eps, I, MeanIn, VarIn):
    mean = I.mean((0, 2, 3))
    mean_out = (1 - momentum) * MeanIn + momentum * mean
    centered = I - mean_out[:, None, None]
    squared = centered * centered
    var = squared.mean((0, 2, 3))
    var_out = (1 - momentum) * VarIn + momentum * var
    scale = 1 / np.sqrt(var_out + eps)
    out = centered * scale[:, None, None]
    return out, mean_out, var_out, mean, centered, squared, var, scale, out.copy()


@kernel("softmax", "I(N,C)")
def softmax(I):
    e = np.exp(I - I.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@kernel("softmax", "I(N,C)")
def softmax_twice(I):
    return softmax(I)


# --- kronecker.tc, lut.tc, c3.tc, mlp.tc, wavenet.tc, tensordot.tc

@kernel("kronecker", "W2(D2,N2) X(M,N0,N1,N2)")
def kronecker3_1(W2, X):
    return X @ W2.T


@kernel("kronecker", "W1(D1,N1) XW2(M,N0,N1,D2)")
def kronecker3_2(W1, XW2):
    return W1 @ XW2


@kernel("kronecker", "W0(D0,N0) XW1(M,N0,D1,D2)")
def kronecker3_3(W0, XW1):
    m, n0, d1, d2 = XW1.shape
    return (W0 @ XW1.reshape(m, n0, d1 * d2)).reshape(m, -1, d1, d2)


@kernel("kronecker", "W0(D0,N0) W1(D1,N1) W2(D2,N2) X(M,N0,N1,N2)")
def kronecker3_full(W0, W1, W2, X):
    return kronecker3_3(W0, kronecker3_2(W1, kronecker3_1(W2, X)))


@kernel("lut", "Table(E,D) I(B,L):int32<E")
def lut1(Table, I):
    return Table[I].sum(1)


@kernel("lut", "Table1(E1,D) I1(B,L1):int32<E1 Table2(E2,D) I2(B,L2):int32<E2")
def lut2(Table1, I1, Table2, I2):
    return Table1[I1].sum(1), Table2[I2].sum(1)


@kernel("lut", "Table(E,D) I(B,L):int32<E-1")
def shifted_lut(Table, I):
    return Table[I + 1].sum(1)


@kernel("c3", "I(B,WX) W(WY,WX)")
def c3(I, W):
    return I @ W.T


@kernel("mlp", "I(B,M) W(N,M) Bias(N)")
def fcrelu(I, W, Bias):
    return np.maximum(I @ W.T + Bias, 0)


@kernel("mlp", "I(B,M) W1(N,M) Bias1(N) W2(O,N) Bias2(O)")
def fcrelu2(I, W1, Bias1, W2, Bias2):
    return fcrelu(fcrelu(I, W1, Bias1), W2, Bias2)


@kernel("mlp", "I(B,M) W1(N,M) Bias1(N) W2(O,N) Bias2(O) W3(P,O) Bias3(P)")
def fcrelu3(I, W1, Bias1, W2, Bias2, W3, Bias3):
    return fcrelu(fcrelu2(I, W1, Bias1, W2, Bias2), W3, Bias3)


@kernel("mlp", "I(B,M) W1(N,M) Bias1(N) W2(O,N) Bias2(O) W3(P,O) Bias3(P) W4(Q,P) Bias4(Q)")
def fcrelu4(I, W1, Bias1, W2, Bias2, W3, Bias3, W4, Bias4):
    return fcrelu(fcrelu3(I, W1, Bias1, W2, Bias2, W3, Bias3), W4, Bias4)


@kernel("mlp", "I(B,M) W1(M,N) Bias1(N)")
def mlp1(I, W1, Bias1):
    return np.maximum(I @ W1 + Bias1, 0)


@kernel("mlp", "O1(B,N) W2(O,N) Bias2(O) W3(P,O) Bias3(P) W4(Q,P) Bias4(Q)")
def mlp3(O1, W2, Bias2, W3, Bias3, W4, Bias4):
    o2 = fcrelu(O1, W2, Bias2)
    o3 = fcrelu(o2, W3, Bias3)
    return o2, o3, fcrelu(o3, W4, Bias4)


@kernel("wavenet", "Data(B,R,T) FilterWeight(D,R,2) FilterBias(D) GateWeight(D,R,2) GateBias(D) ResWeight(R,D) ResBias(R)"
        " SkipWeight(S,D) SkipBias(S) Steps(DILATION)")
def wavenet1(Data, FilterWeight, FilterBias, GateWeight, GateBias, ResWeight, ResBias, SkipWeight, SkipBias, Steps):
    past = np.pad(Data, ((0, 0), (0, 0), (len(Steps), 0)))[:, :, :Data.shape[2]]
    both = np.concatenate((past, Data), 1)
    filtered, gate = (np.concatenate((w[:, :, 0], w[:, :, 1]), 1) @ both + bias[:, None]
                      for w, bias in ((FilterWeight, FilterBias), (GateWeight, GateBias)))
    out = np.tanh(filtered) / (1 + np.exp(-gate))
    return ResWeight @ out + ResBias[:, None] + Data, SkipWeight @ out + SkipBias[:, None]


@kernel("tensordot", "I0(N,C1,C2,H,W) I1(N,C2,C3,H,W)")
def tensordot(I0, I1):
    return np.einsum("nabhw,nbchw->nachw", I0, I1)


# --- small.tc

@kernel("small", "I(N,C,H,W)")
def avgpool(I):
    return (I[:, :, 0::2, 0::2] + I[:, :, 0::2, 1::2] + I[:, :, 1::2, 0::2] + I[:, :, 1::2, 1::2]) * I.dtype.type(0.25)


@kernel("small", "A(M) B(M)")
def concat(A, B):
    return np.stack((A, B))


@kernel("small", "U(B,D) V(B,D) W(B,D)")
def batch_triple_hadamard(U, V, W):
    return U * V * W


@kernel("small", "I(N,K)")
def argmin(I):
    return I.min(1), I.argmin(1)


@kernel("small", "X(N,D) Y(M,D)")
def min_distance(X, Y):
    d = ((X[:, None] - Y[None]) ** 2).sum(2)
    return d.min(1), d.argmin(1)


@kernel("small", "I(M,N)")
def cast(I):
    return I.astype(np.int32)


# --- transformer.tc

@kernel("transformer", "Q(B,T,D) K(B,T,D) V(B,T,D)")
def causal_attention(Q, K, V):
    score = Q @ K.transpose(0, 2, 1) / np.sqrt(Q.shape[2])
    score = np.where(np.tri(Q.shape[1], dtype=bool), score, -np.inf)
    weight = np.exp(score - score.max(2, keepdims=True))
    return weight / weight.sum(2, keepdims=True) @ V


@kernel("transformer", "X(T,H,D)")
def rope(X):
    angle = np.arange(X.shape[0])[:, None] * 10000.0 ** (-2 * np.arange(X.shape[2] // 2) / X.shape[2])
    turned = (X[..., ::2] + 1j * X[..., 1::2]) * np.exp(1j * angle)[:, None]
    return np.stack((turned.real, turned.imag), 3).reshape(X.shape)


@kernel("transformer", "X(T,D) Gain(D)")
def rmsnorm(X, Gain):
    return X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-5) * Gain


@kernel("transformer", "Table(E,D) Item(L):int32<E Begin(B):int32<L")
def embedding_bag(Table, Item, Begin):
    return np.stack([Table[Item[a:b]].sum(0) for a, b in zip(Begin, (*Begin[1:], len(Item)))])


# --- quantized.tc

@kernel("quantized", "A(M,K):uint8<256 B(K,N):int8<128 za():uint8<256 ZB(N):int8<128")
def quantized_matmul(A, B, za, ZB):
    total = (A.astype(np.int32) - int(za)) @ (B.astype(np.int32) - ZB)
    return total, np.clip(np.rint(total / 1024), -128, 127).astype(np.int8)


# --- signal.tc

@kernel("signal", "EvenRe(H) EvenIm(H) OddRe(H) OddIm(H)")
def butterfly(EvenRe, EvenIm, OddRe, OddIm):
    even, odd = EvenRe + 1j * EvenIm, np.exp(-1j * np.pi * np.arange(len(OddRe)) / len(OddRe)) * (OddRe + 1j * OddIm)
    joined = np.concatenate((even + odd, even - odd))
    return joined.real, joined.imag


@kernel("signal", "A(M,K,2) B(K,N,2)")
def complex_matmul(A, B):
    C = (A[..., 0] + 1j * A[..., 1]) @ (B[..., 0] + 1j * B[..., 1])
    return np.stack((C.real, C.imag), 2)


@kernel("signal", "X(N,K)")
def prefixes(X):
    return np.cumsum(X, 1), np.maximum.accumulate(X, 1)


@kernel("signal", "X(N,K):uint8<256")
def row_histogram(X):
    bits = np.unpackbits(X[:, :, None], 2).sum(2)
    return np.stack([np.bincount(row, minlength=9) for row in bits])


# --- stencil.tc

@kernel("stencil", "U(H,W)")
def jacobi(U):
    P = np.pad(U, 1)
    return (P[:-2, 1:-1] + P[2:, 1:-1] + P[1:-1, :-2] + P[1:-1, 2:]) / 4


@kernel("stencil", "U(H,W)")
def jacobi3(U):
    return jacobi(jacobi(jacobi(U)))


@kernel("stencil", "I(H,W):uint8<256")
def opening(I):
    def window(A):
        return np.lib.stride_tricks.sliding_window_view(A, (3, 3))
    return window(window(np.pad(I, 2, mode="edge")).min((2, 3))).max((2, 3))


@kernel("stencil", "I(C,H,W)")
def upsample(I):
    for axis in (1, 2):
        at = np.arange(2 * I.shape[axis])
        near, next_ = at // 2, np.clip(at // 2 + at % 2 * 2 - 1, 0, I.shape[axis] - 1)
        I = 0.75 * np.take(I, near, axis) + 0.25 * np.take(I, next_, axis)
    return I


@kernel("stencil", "I(C,H,W) Weight(C,F,KH,KW)")
def transposed_convolution(I, Weight):
    (C, H, W), (_, F, KH, KW) = I.shape, Weight.shape
    O = np.zeros((F, 2 * (H - 1) + KH, 2 * (W - 1) + KW))
    for y, x in np.ndindex(H, W):
        O[:, 2 * y:2 * y + KH, 2 * x:2 * x + KW] += np.tensordot(I[:, y, x], Weight, 1)
    return O


# --- kmeans.tc

@kernel("kmeans", "X(N,D) Centre(K,D)")
def kmeans(X, Centre):
    nearest = ((X[:, None] - Centre) ** 2).sum(2).argmin(1)
    member = (nearest == np.arange(len(Centre))[:, None]).astype(int)
    return nearest, member @ X, member.sum(1)
