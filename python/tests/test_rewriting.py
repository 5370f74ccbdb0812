# SPDX-License-Identifier: Apache-2.0
"""kiln.export without PyTorch: sampling and paged caches as parts of a graph, and what is said where packages are missing."""
import os
import subprocess
import sys

import pytest

onnx = pytest.importorskip("onnx")

import numpy as np  # noqa: E402
from onnx.parser import parse_model  # noqa: E402

import kiln  # noqa: E402
from kiln import export  # noqa: E402


def logits_alone(vocabulary):
    return parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[batch,tokens,{vocabulary}] x)'
        f" => (float[batch,tokens,{vocabulary}] logits) {{ logits=Identity(x) }}"
    )


def chosen(logits, temperature, top_k, top_p, uniform, most_k, shift_p, shift_u):
    """The token in double precision. |shift_*| of 1 and -1 move what is compared by the bound of single precision: a sum of
    most_k terms, each with an error of exp's argument and a few roundings, so (most_k + 8 + |x|) units of 2**-23."""
    order = np.argsort(-logits, kind="stable")[:most_k]
    if temperature <= 0:
        return int(order[0])
    x = (logits[order].astype(np.float64) - logits[order[0]]) / np.float64(temperature)
    weights = np.exp(x)
    weights[top_k if 0 < top_k < most_k else most_k :] = 0
    bound = 2.0**-23 * np.sum(weights * (most_k + 8 + np.abs(x)))
    left = np.cumsum(weights) - weights < np.float64(top_p) * weights.sum() + shift_p * bound
    left[0] = True
    weights[~left] = 0
    reached = np.cumsum(weights) - weights <= np.float64(uniform) * weights.sum() + shift_u * bound
    return int(order[np.flatnonzero(reached & (weights > 0)).max(initial=0)])


@pytest.mark.parametrize(
    "vocabulary, most_k, positions", [(61, 61, "last"), (3000, 64, "each"), (3000, 20, "at"), (500, 1, "last")]
)
def test_sampling(vocabulary, most_k, positions):
    model = export.with_sampling(logits_alone(vocabulary), most_k=most_k, positions=positions)
    onnx.checker.check_model(model)
    module = kiln.compile(model, dims={"batch": (1, 6), "tokens": (1, 4)}, threads=1)
    rng = np.random.default_rng()
    n = n_undecided = 0
    for _ in range(30):
        batch, tokens = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        logits = (rng.standard_normal((batch, tokens, vocabulary)) * rng.choice([0.5, 3, 10])).astype(np.float32)
        logits[rng.random(logits.shape) < 0.1] = rng.standard_normal()  # ties: the first is the likelier
        given = {
            "temperature": rng.choice([0, 0.3, 1, 2.5], batch).astype(np.float32),
            "top_k": rng.choice([0, 1, 2, 7, 40, 10000], batch),
            "top_p": rng.choice([0, 0.1, 0.5, 0.9, 1], batch).astype(np.float32),
            "uniform": rng.random((batch, tokens if positions == "each" else 1), dtype=np.float32),
        }
        at = rng.integers(0, tokens, batch) if positions == "at" else np.full(batch, tokens - 1)
        more = {"at": at} if positions == "at" else {}
        got = np.asarray(module(x=logits, **given, **more))
        assert got.shape == given["uniform"].shape
        for (row, k), token in np.ndenumerate(got):
            numbers = [given[name][row] for name in ("temperature", "top_k", "top_p")] + [given["uniform"][row, k]]
            own = logits[row, k if positions == "each" else at[row]]
            allowed = {chosen(own, *numbers, most_k, p, u) for p in (-1, 0, 1) for u in (-1, 0, 1)}
            assert token in allowed, (given, row, k, token, allowed)
            n, n_undecided = n + 1, n_undecided + (len(allowed) > 1)
    assert n_undecided <= 0.05 * n


def test_sampling_takes_the_token_before_the_vocabulary(tmp_path):
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[batch,tokens,8] x, float[batch,tokens,8] y) => '
        "(float[batch,tokens,40] logits) { a=Add(x,y) b=MatMul(a,w) c=Div(b,s) logits=Tanh(c) }"
    )
    rng = np.random.default_rng()
    w = rng.standard_normal((8, 40)).astype(np.float32)
    for array, name in ((w, "w"), (np.float32(3), "s")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    made = export.with_sampling(model, positions="last", most_k=4)
    kinds = [node.op_type for node in made.graph.node]
    assert kinds.index("Slice") < kinds.index("MatMul") < kinds.index("Div") < kinds.index("Tanh") < kinds.index("TopK")
    kept = export.with_sampling(model, positions="last", most_k=4, keep_logits=True)
    x, y = (rng.standard_normal((2, 3, 8)).astype(np.float32) for _ in "xy")
    zeros = {"temperature": np.zeros(2, np.float32), "top_p": np.ones(2, np.float32), "top_k": np.zeros(2, np.int64)}
    for i, variant in enumerate((made, kept)):
        export.save(variant, tmp_path / f"{i}.onnx")
        assert not any(t.external_data for t in variant.graph.initializer)  # the model is as it was
        module = kiln.compile(tmp_path / f"{i}.onnx", dims={"batch": 2, "tokens": 3}, threads=1)
        results = module.run(x=x, y=y, uniform=np.zeros((2, 1), np.float32), **zeros)
        token = results["token"] if isinstance(results, dict) else results[-1]
        assert (np.asarray(token)[:, 0] == ((x + y)[:, -1] @ w).argmax(1)).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="most_k: must be 1 to 61"):
        export.with_sampling(logits_alone(61), most_k=62)
    with pytest.raises(ValueError, match="logits: must be one of logits, got scores"):
        export.with_sampling(logits_alone(61), "scores", most_k=1)
    with pytest.raises(ValueError, match="an output must be Concat"):
        export.paged(logits_alone(61))
    counted = parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (int64[batch,tokens] input_ids, int64[batch,kv] attention_mask,'
        " float[batch,1,past,4] past) => (float[batch,tokens,4] y, float[batch,1,kv,4] present)"
        "<int64 zero={0}, int64 one={1}, int64[1] a1={1}> { t=Shape<start=1>(input_ids) n=Squeeze(t) p=Range(zero,n,one)"
        " at=Gather(places,p) x=Gather(words,input_ids) y=Add(x,at) k=Unsqueeze(x,a1) present=Concat<axis=2>(past,k) }"
    )
    for name in ("places", "words"):
        counted.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((9, 4), np.float32), name))
    with pytest.raises(ValueError, match="positions: must be an input of the model"):
        export.paged(counted, positions=None)


@pytest.mark.parametrize("exporter", ["dynamo", "genai"])
def test_missing_packages_are_one_sentence(tmp_path, exporter):
    """Packages of these names that cannot be imported stand in front of those that may be installed."""
    for name in ("torch", "transformers"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('no such package here')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "kiln.export", "llama", "--tiny", "--exporter", exporter, "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and f"exporter {exporter}: torch, transformers" in line and "pip install torch transformers" in line
