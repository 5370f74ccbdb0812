# SPDX-License-Identifier: Apache-2.0
"""GPUs of CUDA: PyTorch's memory, streams and graphs. Skipped without one."""
import kiln
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU of CUDA", allow_module_level=True)

import kiln.torch  # noqa: E402
from models import data, product  # noqa: E402


@pytest.fixture(scope="module")
def module():
    return kiln.compile(product(), dims={"N": 3}, target="cuda", cache=False)


def reference(x):
    from models import weights

    return torch.relu(x @ torch.from_numpy(weights()).to(x.device))


def test_tensors_of_the_device_are_used_where_they_lie(module):
    from kiln import _arrays, _library

    x = torch.from_numpy(data(3)).cuda()
    address, _ = _arrays.adapter_of(x).lend(x)
    assert _library.DLTensor.from_address(address).data == x.data_ptr()
    out = torch.empty(3, 16, device="cuda")
    assert module(x, out=out) is out
    y = module(x)
    assert y.device == x.device
    torch.testing.assert_close(y, reference(x))
    torch.testing.assert_close(out, y)
    host = module(x.cpu())
    assert host.device.type == "cpu"
    torch.testing.assert_close(host, y.cpu())


def test_runs_go_into_the_current_stream(module):
    x = torch.zeros(3, 16, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.copy_(torch.from_numpy(data(3)), non_blocking=True)  # behind the sleep: a run elsewhere would see zeros
        y = module(x)
    stream.synchronize()
    torch.testing.assert_close(y, reference(x))
    module.wait()


def test_runs_are_captured_in_graphs(module):
    x = torch.from_numpy(data(3)).cuda()
    module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(module(x))
    for seed in (5, 6):
        x.copy_(torch.from_numpy(data(3, seed=seed)))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, reference(reference(x)))


def test_torch_compile_on_the_device_and_in_graphs():
    torch._dynamo.reset()
    kiln.torch.reset()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).cuda().eval()
    run = torch.compile(model, backend=kiln.torch.backend, options={"cache": False})
    x = torch.randn(2, 3, 16, 16, device="cuda")
    with torch.inference_mode():
        torch.testing.assert_close(run(x), model(x), rtol=1e-3, atol=1e-3)
        assert [r.fallback for r in kiln.torch.report()] == [0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, model(x), rtol=1e-3, atol=1e-3)


def test_a_frozen_model_on_the_device_and_in_graphs():
    kiln.torch.reset()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).cuda().eval()
    run = kiln.torch.compile(model, cache=False)
    x = torch.randn(2, 3, 16, 16, device="cuda")
    with torch.inference_mode():
        torch.testing.assert_close(run(x), model(x), rtol=1e-3, atol=1e-3)
        assert not run.why and [r.fallback for r in kiln.torch.report()] == [0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, model(x), rtol=1e-3, atol=1e-3)


def test_cupy(module):
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(data(3))
    y = module(x)
    assert isinstance(y, cupy.ndarray)
    module.wait()
    torch.testing.assert_close(torch.from_dlpack(y), reference(torch.from_dlpack(x)))
