"""The definitions of examples/tc/ against NumPy: tc_kernels.py KILN

Each at small ragged sizes, in double precision on NumPy's side; at the sizes of bench/tc.py where both are quick.
"""
import pathlib
import subprocess
import sys
import tempfile

import environment

environment.enter("tc_kernels")

import numpy as np  # noqa: E402
import tc_reference as reference  # noqa: E402

IMAGE = dict(N=2, C=3, H=11, W=13, F=5, KH=3, KW=3)
FC = dict(B=5, M=37, N=19, O=13, P=7, Q=2)
CASES = [
    ("tmm", dict(M=13, N=35, K=19)), ("tmm", dict(M=32, N=128, K=256)), ("tmm", dict(M=128, N=256, K=32)),
    ("tmm", dict(M=128, N=1024, K=1024)), ("tmm", dict(M=3, N=700, K=65)), ("tmm", dict(M=700, N=3, K=65)),
    ("matmul", dict(M=13, N=35, K=19)), ("batch_matmul", dict(B=7, N=26, M=72, K=26)),
    ("batch_matmul", dict(B=500, N=26, M=72, K=26)), ("batch_matmul", dict(B=3, N=1, M=5, K=2)),
    ("matmul_grad", dict(M=13, N=35, K=19)), ("triangular", dict(M=13, N=35, K=19)),
    ("convolution", IMAGE), ("convolution", dict(N=32, C=4, F=4, H=56, W=56, KH=3, KW=3)),
    ("convolution_strided", IMAGE), ("convolution_grad", dict(IMAGE, HO=9, WO=11)),
    ("convolution_grad", dict(N=32, C=4, F=16, H=56, W=56, KH=1, KW=1, HO=56, WO=56)),
    ("masked_convolution", IMAGE), ("perforated_convolution", dict(IMAGE, L=17)),
    ("local_sparse_convolution", dict(N=2, G=3, H=11, W=13, F=5, KC=6, KH=3, KW=3)),
    ("convolution_1d", dict(X=37, K=5)), ("toeplitz", dict(X=37, K=90)),
    ("group_convolution", dict(N=2, G=3, C=4, F=5, H=11, W=13, KH=3, KW=3)),
    ("group_convolution", dict(N=2, G=4, C=32, F=32, H=7, W=7, KH=3, KW=3)),
    ("group_convolution", dict(N=2, G=4, C=16, F=16, H=14, W=14, KH=3, KW=3)),
    ("winograd", dict(N=2, C=3, H=10, W=12, F=5)), ("winograd", dict(N=1, C=16, H=30, W=30, F=16)),
    *((entry, dict(N=5, K=77)) for entry in ("sum", "mean", "sum_squares", "var", "sum_and_squares", "moments2")),
    ("sum", dict(N=128, K=2304)), ("moments2", dict(N=128, K=2304)), ("sum", dict(N=1, K=1000)),
    *((entry, sizes) for entry in ("group_moments", "group_scale", "group_normalization")
      for sizes in (dict(N=2, G=3, D=4, H=5, W=7), dict(N=4, G=32, D=16, H=12, W=12))),
    ("layernorm", dict(T=3, B=5, C=37)), ("layernorm", dict(T=16, B=16, C=128)),
    ("batchnorm", dict(N=3, C=5, H=6, W=7)),
    ("softmax", dict(N=5, C=33)), ("softmax_twice", dict(N=5, C=33)), ("softmax", dict(N=128, C=1000)),
    ("kronecker3_1", dict(M=5, D2=6, N0=3, N1=4, N2=7)), ("kronecker3_2", dict(M=5, D1=6, N0=3, N1=4, D2=7)),
    ("kronecker3_3", dict(M=5, D0=6, N0=3, D1=4, D2=7)),
    ("kronecker3_full", dict(M=5, D0=2, D1=3, D2=4, N0=5, N1=6, N2=7)),
    ("kronecker3_full", dict(M=16, D0=16, D1=16, D2=16, N0=32, N1=32, N2=32)),
    ("lut1", dict(E=100, D=13, B=5, L=7)), ("lut1", dict(E=100000, D=64, B=128, L=50)),
    ("lut2", dict(E1=100, E2=70, D=13, B=5, L1=7, L2=9)), ("shifted_lut", dict(E=100, D=13, B=5, L=7)),
    ("c3", dict(B=5, WX=33, WY=17)), ("c3", dict(B=128, WX=1000, WY=1024)),
    *((entry, FC) for entry in ("fcrelu", "fcrelu2", "fcrelu3", "fcrelu4", "mlp1", "mlp3")),
    ("mlp1", dict(B=128, M=2000, N=128)), ("mlp3", dict(B=128, N=128, O=64, P=32, Q=2)),
    ("wavenet1", dict(B=1, R=5, T=50, D=6, S=7, DILATION=4)),
    ("wavenet1", dict(B=1, R=32, D=32, S=256, T=4000, DILATION=1)),
    ("wavenet1", dict(B=1, R=32, D=32, S=256, T=4000, DILATION=32)),
    ("tensordot", dict(N=2, C1=5, C2=3, C3=2, H=6, W=7)), ("tensordot", dict(N=2, C1=33, C2=8, C3=2, H=28, W=28)),
    ("tensordot", dict(N=32, C1=8, C2=16, C3=2, H=17, W=25)),
    ("avgpool", dict(N=2, C=3, H=10, W=12)), ("concat", dict(M=33)), ("batch_triple_hadamard", dict(B=3, D=33)),
    ("argmin", dict(N=4, K=33)), ("min_distance", dict(N=5, D=3, M=37)), ("cast", dict(M=3, N=5)),
    ("causal_attention", dict(B=2, T=17, D=7)), ("causal_attention", dict(B=3, T=65, D=32)), ("rope", dict(T=9, H=3, D=10)),
    ("rmsnorm", dict(T=5, D=37)), ("embedding_bag", dict(E=50, D=13, L=23, B=5)),
    ("quantized_matmul", dict(M=5, K=37, N=19)), ("butterfly", dict(H=33)), ("butterfly", dict(H=1)),
    ("complex_matmul", dict(M=5, K=7, N=17)), ("prefixes", dict(N=3, K=37)), ("row_histogram", dict(N=3, K=77)),
    ("jacobi", dict(H=1, W=5)), ("jacobi3", dict(H=13, W=37)), ("opening", dict(H=9, W=37)), ("opening", dict(H=1, W=2)),
    ("upsample", dict(C=2, H=5, W=17)), ("upsample", dict(C=1, H=1, W=1)),
    ("transposed_convolution", dict(C=3, H=5, W=17, F=2, KH=3, KW=4)), ("kmeans", dict(N=37, D=5, K=7)),
]


def run(kiln, entry, sizes, inputs, scratch):
    """The outputs of the definition, by name, in the order in which it declares them."""
    np.savez(scratch / "in.npz", **inputs)
    out = scratch / "out.npz"
    command = [kiln, "tc", environment.ROOT / "examples/tc" / f"{reference.KERNELS[entry][0]}.tc", "--entry", entry,
               "--inputs", scratch / "in.npz", "--outputs", out]
    for name, value in reference.sizes_of(entry, sizes).items():
        command += ["--size", f"{name}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with np.load(out) as z:
        return {name: z[name] for name in z.files}


def is_close(got, want):
    if got.shape != want.shape:
        return False
    if want.dtype.kind in "iu":
        return np.array_equal(got, want)
    scale = np.sqrt(np.mean(np.square(want))) if want.size else 0
    return bool(np.all(np.abs(got - want) <= 1e-4 * np.abs(want) + 1e-5 * max(1, scale)))


def main():
    kiln, failed = pathlib.Path(sys.argv[1]).resolve(), 0
    missing = set(reference.KERNELS) - {entry for entry, _ in CASES}
    if missing:
        sys.exit(f"tc_kernels: error: cases: must hold every definition, got none of {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as scratch:
        for entry, sizes in CASES:
            inputs = reference.inputs_of(entry, sizes)
            got = run(kiln, entry, sizes, inputs, pathlib.Path(scratch))
            wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in inputs.items()}
            for (name, mine), want in zip(got.items(), reference.call(entry, wide, sizes), strict=True):
                if not is_close(mine, want):
                    failed += 1
                    print(f"{entry} {sizes}: {name}: differs from NumPy")
    print(f"{len(CASES)} cases, {failed} outputs differ")
    sys.exit(1 if failed else 0)


main()
