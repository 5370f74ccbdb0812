# SPDX-License-Identifier: Apache-2.0
"""kiln.export: tiny language models of transformers, by both exporters, compiled and run beside PyTorch."""
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")

import numpy as np  # noqa: E402

import kiln  # noqa: E402
from kiln import export  # noqa: E402

DIMS = {"batch": 2, "tokens": 3, "past": 7, "source": 5}


def check(made, dims=DIMS):
    used = {n: dims[n] for n in made.graph.dims if n != "kv"}
    if "kv" in made.graph.dims:
        used["kv"] = used["past"] + used["tokens"]
    given = made.graph.make_inputs(used)
    with torch.no_grad():
        want = made.graph.module(*given.values())
    want = want if isinstance(want, tuple) else (want,)
    got = kiln.compile(made.path, dims=used, threads=1).run(**{k: v.numpy() for k, v in given.items()})
    assert len(got) == len(want) == len(made.graph.outputs)
    for g, w in zip(got, want):
        assert np.abs(np.asarray(g) - w.numpy()).max() <= 1e-4 * w.abs().max()


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "t5"])
def test_with_cache(tmp_path, family, exporter):
    for made in export.export(family, tmp_path, tiny=True, exporter=exporter):
        check(made)


def test_with_positions(tmp_path):
    for family, exporter in (("llama", "dynamo"), ("gpt2", "torchscript")):
        (made,) = export.export(family, tmp_path / family, tiny=True, exporter=exporter, with_positions=True)
        check(made)
    for family, words in (("bloom", "must be an argument"), ("t5", "must be those of a decoder")):
        with pytest.raises(ValueError, match=words):
            export.export(family, tmp_path / family, tiny=True, with_positions=True)


@pytest.mark.parametrize("family, positions", [("llama", True), ("opt", False)])
def test_paged(tmp_path, family, positions):
    """A step of two rows of lengths 5 and 0 is that of each alone; what it leaves in the pool serves the next."""
    (made,) = export.export(family, tmp_path, tiny=True, exporter="torchscript", with_positions=positions)
    paged = export.paged(made.path, block_size=4, positions="position_ids" if positions else None)
    export.save(paged, tmp_path / "paged.onnx")
    dims = {"batch": (1, 2), "tokens": (1, 4), "pages": (1, 3), "blocks": 7}
    session = kiln.compile(tmp_path / "paged.onnx", dims=dims, states="auto", threads=1).session()
    rng = np.random.default_rng()
    rows, tables = [list(rng.integers(1, 198, size=9)), list(rng.integers(1, 198, size=4))], [[3, 1, 6], [2, 5, 0]]
    steps = [((0,), (4,)), ((0,), (1,)), ((0, 1), (1, 3)), ((1, 0), (1, 3))]
    lengths = [0, 0]
    for which, counts in steps:
        ids = np.zeros((len(which), max(counts)), np.int64)
        for i, (row, n) in enumerate(zip(which, counts)):
            ids[i, :n] = rows[row][lengths[row] : lengths[row] + n]
        logits = session(
            input_ids=ids, lengths=np.array([lengths[r] for r in which]), counts=np.array(counts),
            table=np.array([tables[r] for r in which]),
        )  # fmt: skip
        for i, (row, n) in enumerate(zip(which, counts)):
            lengths[row] += n
            whole = torch.tensor([rows[row][: lengths[row]]])
            with torch.no_grad():
                want = made.graph.module.model(whole, use_cache=False).logits[0, -n:].numpy()
            assert np.abs(logits[i, :n] - want).max() <= 1e-4 * np.abs(want).max()
    if not positions:
        return
    (counted,) = export.export(family, tmp_path / "counted", tiny=True, exporter="torchscript")
    with pytest.raises(ValueError, match="positions: must be an input of the model"):
        export.paged(counted.path, positions=None)


@pytest.mark.parametrize("family", ["bloom", "mixtral", "whisper"])
def test_without_cache(tmp_path, family):
    (made,) = export.export(family, tmp_path, tiny=True, exporter="torchscript", with_cache=False)
    assert "past" not in made.graph.dims
    check(made)


def test_names_and_ranges(tmp_path):
    made, encoder = export.export("bart", tmp_path, tiny=True, exporter="torchscript")
    assert {"past.0.decoder.key", "past.1.encoder.value"} <= {p.name for p in made.graph.inputs}
    assert [p.name for p in made.graph.outputs][:2] == ["logits", "present.0.decoder.key"]
    assert "past.0.encoder.key" in {p.name for p in encoder.graph.outputs}
    assert "past=0..4096" in made.dim_options({}) and "source=1..512" in made.dim_options({})
    assert "tokens=1" in made.dim_options({"tokens": (1, 1)})


def test_weights_from_a_directory(tmp_path):
    first = export.export("gpt2", tmp_path / "a", tiny=True, exporter="torchscript", seed=3)[0]
    first.graph.module.model.save_pretrained(tmp_path / "weights")
    again = export.export(str(tmp_path / "weights"), tmp_path / "b", exporter="torchscript", seed=4)[0]
    given = first.graph.make_inputs(DIMS)
    with torch.no_grad():
        assert torch.equal(first.graph.module(*given.values())[0], again.graph.module(*given.values())[0])


def test_command(tmp_path):
    command = [sys.executable, "-m", "kiln.export", "llama", "--tiny", "--exporter", "torchscript", "-o", str(tmp_path)]
    done = subprocess.run([*command, "--layers", "1", "--no-cache"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["kiln", "compile"] and "tokens=1..512" in done.stdout
    cached = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--dim past=0..4096" in cached.stdout and "--dim kv=past+tokens" in cached.stdout
    wrong = subprocess.run([*command[:3], "no_such_model"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "must be a configuration" in wrong.stderr


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_genai(tmp_path, family):
    pytest.importorskip("onnxruntime_genai")
    (made,) = export.export(family, tmp_path, tiny=True, exporter="genai")
    assert made.graph.dims == ["batch", "tokens", "kv", "past"]
    check(made)
