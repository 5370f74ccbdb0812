# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime with Kiln as execution provider: found by the package, it takes the nodes."""
import os

import kiln
import pytest
from models import data, expected, product

PROVIDER = "KilnExecutionProvider"


@pytest.fixture(scope="module")
def ort():
    onnxruntime = pytest.importorskip("onnxruntime")
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} loads no providers at run time")
    onnxruntime.register_execution_provider_library("kiln", kiln.ort_library())
    yield onnxruntime
    onnxruntime.unregister_execution_provider_library("kiln")


def options_without_fallback(ort):
    """Options that make a session fail if a node is left to ONNX Runtime's own kernels."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def test_onnx_runtime_runs_every_node_by_kiln(ort):
    model = product().SerializeToString()
    options = options_without_fallback(ort)
    device = next(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER)
    options.add_provider_for_devices([device], {"threads": "1", "cache": "0", "dims": "N=3"})
    session = ort.InferenceSession(model, options)
    assert session.get_providers()[0] == PROVIDER
    x = data(3)
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    assert abs(y - expected(x)).max() < 1e-5


def test_without_kiln_the_same_session_is_not_made(ort):
    options = options_without_fallback(ort)
    with pytest.raises(Exception, match="assigned to the default CPU EP"):
        ort.InferenceSession(product().SerializeToString(), options)


def test_without_the_compiler_the_message_names_its_distribution(monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_LIBRARY", str(tmp_path))
    with pytest.raises(ImportError, match="libkiln_ort.so: .*pip install kiln-compiler"):
        kiln.ort_library()


def test_the_path_is_absolute_as_onnx_runtime_wants_it(monkeypatch, tmp_path):
    (tmp_path / "libkiln_ort.so").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KILN_LIBRARY", ".")
    assert os.path.isabs(kiln.ort_library())
