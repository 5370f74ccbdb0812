# SPDX-License-Identifier: Apache-2.0
"""PyTorch: exchange of tensors, autograd of definitions, and torch.compile. Skipped without it."""
import gc
import os
import weakref

import kiln
import numpy as np
import pytest

if os.environ.get("KILN_TEST_TORCH", "1") == "0":
    pytest.skip("it was asked for", allow_module_level=True)
torch = pytest.importorskip("torch")

import kiln.torch  # noqa: E402
from kiln.torch import lower  # noqa: E402
from models import data, expected, peak_kb, product  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    kiln.torch.reset()
    torch.manual_seed(0)
    torch.set_num_threads(1)


def compiled(function, **options):
    return torch.compile(function, backend=kiln.torch.backend, options={"cache": False, "threads": 1, **options})


def check(function, *args, left=0, rtol=1e-4, atol=1e-5):
    """Compiles and compares; only the operators |left| stay with PyTorch."""
    with torch.no_grad():
        want = function(*args)
        got = compiled(function)(*args)
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    reports = kiln.torch.report()
    assert sum(r.fallback for r in reports) == left, [r.refused for r in reports]
    return reports


# --- tensors ---


def test_tensors_are_used_where_they_lie_and_results_are_tensors():
    module = kiln.compile(product(), dims={"N": 3}, threads=1, cache=False)
    x = torch.from_numpy(data(3))
    y = module(x)
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), expected(x.numpy()), rtol=1e-5, atol=1e-5)
    from kiln import _arrays, _library

    address, _ = _arrays.adapter_of(x).lend(x)
    assert _library.DLTensor.from_address(address).data == x.data_ptr()
    out = torch.empty(3, 16)
    assert module(x.requires_grad_(), out=out) is out
    torch.testing.assert_close(out, y)
    torch.testing.assert_close(module(x.detach().flip(1).t().contiguous().t()), module(x.detach().flip(1)))


def test_tensors_are_not_kept():
    module = kiln.compile(product(), dims={"N": 3}, threads=1, cache=False)
    x = torch.from_numpy(data(3))
    y = module(x)
    refs = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_a_definition_is_a_node_of_autograd():
    mm = kiln.tc("def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * tanh(B(k, n)) }", cache=False)
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    weight = torch.randn(3, 5)
    (mm(a, b) * weight).sum().backward()
    got = a.grad, b.grad
    a.grad = b.grad = None
    ((a @ torch.tanh(b)) * weight).sum().backward()
    torch.testing.assert_close(got[0], a.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got[1], b.grad, rtol=1e-4, atol=1e-5)


# --- operators, as models use them ---

X = [2, 6, 8]
CASES = {
    "comparisons": lambda x: (x > 0).float() + (x <= x.mean()) + (x != 0).int(),
    "arithmetic": lambda x: (x * 2 + 1 - x / 3) ** 2 + torch.rsqrt(x.abs() + 1) - 3 * x + (1 - x),
    "rounding": lambda x: torch.floor(x) + torch.ceil(x) + torch.trunc(3 * x) + torch.div(x, 0.3, rounding_mode="floor"),
    "remainders": lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.7),
    "activations": lambda x: torch.nn.functional.gelu(x) + torch.nn.functional.silu(x) + torch.nn.functional.hardswish(x)
    + torch.nn.functional.mish(x) + torch.nn.functional.elu(x) + torch.nn.functional.leaky_relu(x) + torch.nn.functional.relu6(x)
    + torch.nn.functional.softplus(x) + torch.nn.functional.hardsigmoid(x) + torch.nn.functional.gelu(x, approximate="tanh"),
    "clamping": lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + torch.maximum(x, -x) + torch.minimum(x, x * 2),
    "views": lambda x: x.reshape(2, 48).view(2, 3, 16).transpose(1, 2).permute(2, 0, 1).flatten(1).unsqueeze(0).squeeze(),
    "slices": lambda x: x[:, 1:5:2, -3:] + x[:, :2, :3] + x[0, -1, 0],
    "splits and joins": lambda x: torch.cat([*x.split([2, 4], 1), x.chunk(2, 1)[1]], 1).sum(1) + torch.stack(x.unbind(1)[:1], 1)[:, 0],
    "rolls": lambda x: x.roll(2, 1).flip(2).roll((1, -1), (0, 2)),
    "padding": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=3.0),
    "reflection": lambda x: torch.nn.functional.pad(x, (1, 2), mode="reflect") + torch.nn.functional.pad(x, (2, 1), mode="replicate"),
    "reductions": lambda x: x.sum(1) + x.mean((1,)) + x.amax(1) + x.var(1) + x.std(1, unbiased=False) + x.norm(dim=1),
    "extremes": lambda x: (x.max(1).values, x.argmax(2), x.min(), *x.topk(3, 2)),
    "sums so far": lambda x: x.cumsum(1) + (x > 0).any(1, keepdim=True),
    "softmax": lambda x: x.softmax(-1) + x.log_softmax(1),
    "choices": lambda x: torch.where(x > 0, x, torch.zeros(())) + x.masked_fill(x > 1, -1.0) + x.tril()[..., :8],
    "gathers": lambda x: x[:, torch.tensor([0, 2, 5])] + x.index_select(1, torch.tensor([1, 1, 0]))
    + x.gather(1, torch.zeros(2, 3, 8, dtype=torch.int64)),
    "indices of several axes": lambda x: x[:, torch.tensor([[0], [2]]), torch.tensor([1, 3])],
    "indices apart": lambda x: x[torch.tensor([0, 1]), :, torch.tensor([1, 3])],
    "writes": lambda x: _write(x),
    "norms": lambda x: torch.nn.functional.layer_norm(x, (8,)) + torch.nn.functional.group_norm(x, 3),
    "rms norm": lambda x: torch.nn.functional.rms_norm(x, (8,)),
    "products": lambda x: (x @ x.transpose(1, 2)) @ x + torch.einsum("bij,bkj->bik", x, x) @ x,
    "einsum": lambda x: torch.einsum("bij,bik->jk", x, x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
    "masked attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x[:, None], x[:, None], x[:, None], attn_mask=torch.ones(6, 6, dtype=torch.bool).tril()),
    "grouped attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x.view(2, 6, 2, 4).transpose(1, 2), x[..., None, :4].transpose(1, 2), x[..., None, 4:].transpose(1, 2), enable_gqa=True),
    "types": lambda x: x.to(torch.float64).sum(1).to(torch.float32) + x.to(torch.int32) [:, 0] + x.half().float()[:, 0],
    "counting": lambda x: x + torch.arange(8) + torch.linspace(0, 1, 8) + torch.full((6, 1), 2.0),
    "repeats": lambda x: x.repeat(1, 2, 1) + x.repeat_interleave(2, 1) + x[:, :1].expand(2, 12, 8),
    "logic": lambda x: ((x > 0) & (x < 1)) | ~(x > -1),
}  # fmt: skip


def _write(x):
    y = x.clone()
    y[:, 1:3] = 5
    y[:, 0, :] += x[:, 1]
    y.index_put_((torch.tensor([0, 1]), torch.tensor([2, 3])), torch.zeros(2, 8))
    y[:, :, torch.tensor([0, 3])] = x[:, :, :2]
    y[:, torch.tensor([0, 0])] += 1
    return y.scatter_add(1, torch.zeros(2, 1, 8, dtype=torch.int64), x[:, :1])


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    check(CASES[name], torch.randn(X))


IMAGES = {
    "convolutions": lambda x, w: torch.conv2d(x, w, stride=2, padding=1, dilation=2),
    "convolutions in groups": lambda x, w: torch.conv2d(x, w[:3, :1], groups=3),
    "transposed": lambda x, w: torch.conv_transpose2d(x, w.transpose(0, 1), stride=2, padding=1, output_padding=1),
    "pooling": lambda x, w: torch.max_pool2d(x, 3, 2, 1)[..., :4, :4] + torch.nn.functional.avg_pool2d(x, 3, 2, 1)[..., :4, :4],
    "adaptive": lambda x, w: torch.nn.functional.adaptive_avg_pool2d(x, 1) + torch.nn.functional.adaptive_avg_pool2d(x, (3, 4)).sum(),
    "bilinear": lambda x, w: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "corners": lambda x, w: torch.nn.functional.interpolate(x, size=(13, 7), mode="bilinear", align_corners=True),
    "bicubic": lambda x, w: torch.nn.functional.interpolate(x, size=(12, 14), mode="bicubic"),
    "nearest": lambda x, w: torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
    + torch.nn.functional.interpolate(x, size=(20, 20), mode="nearest-exact"),
    "pixels": lambda x, w: torch.pixel_shuffle(x.repeat(1, 4, 1, 1), 2) + torch.pixel_unshuffle(x, 2).sum(),
    "windows": lambda x, w: torch.nn.functional.unfold(x, 3, padding=1),
    "folds": lambda x, w: torch.nn.functional.fold(torch.nn.functional.unfold(x, 2, stride=2), (10, 10), 2, stride=2),
    "batch norm": lambda x, w: torch.nn.functional.batch_norm(x, w.mean((0, 2, 3)), w.var((0, 2, 3)) + 1, w[0, :, 0, 0], None),
    "instance norm": lambda x, w: torch.nn.functional.instance_norm(x),
    "channels last": lambda x, w: torch.conv2d(x.contiguous(memory_format=torch.channels_last), w).permute(0, 2, 3, 1),
}


@pytest.mark.parametrize("name", IMAGES)
def test_operators_on_images(name):
    check(IMAGES[name], torch.randn(2, 3, 10, 10), torch.randn(4, 3, 3, 3))


# --- the backend ---


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)).eval()


def without_guards():
    """Options by which Dynamo does not look at modules before each call."""
    name = "skip_guard_on_inbuilt_nn_modules_unsafe"
    if not hasattr(torch.compiler, name):
        pytest.skip(f"this PyTorch has no torch.compiler.{name}")
    return {"guard_filter_fn": getattr(torch.compiler, name)}


@pytest.mark.parametrize("options", [dict, without_guards])
def test_weights_are_constants_and_are_followed_when_they_change(options):
    model = mlp()
    run = compiled(model, **options())
    x = torch.randn(3, 16)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))
        (report,) = kiln.torch.report()
        assert report.partitions == 1 and report.fallback == 0
        assert [m.inputs[0].shape for m in kiln.torch.modules()] == [(3, 16)]
        model[0].weight.mul_(2)
        torch.testing.assert_close(run(x), model(x))
        model[2].weight = torch.nn.Parameter(torch.randn(4, 64))
        torch.testing.assert_close(run(x), model(x))


def test_large_weights_are_borrowed():
    model = torch.nn.Embedding(1 << 18, 64).eval()
    run, x = compiled(model), torch.tensor([1, 2])
    with torch.no_grad():
        compiled(torch.nn.Embedding(8, 64).eval())(x)  # the memory of a first compilation
        before = peak_kb()
        torch.testing.assert_close(run(x), model(x))
    assert peak_kb() - before < 32 << 10  # of weights of 64 MiB


def test_what_is_not_compiled_stays_with_pytorch_and_is_counted():
    def function(x):
        y = torch.nn.functional.relu(x @ x.T)
        z = torch.linalg.svdvals(y)
        return torch.tanh(z) + 1

    (report,) = check(function, torch.randn(4, 4), left=1)
    assert report.partitions == 2
    ((name, why),) = report.refused.values()
    assert "svd" in name and "not among" in why


def test_a_gradient_is_left_to_pytorch():
    model, x = mlp(), torch.randn(3, 16)
    run = compiled(model)
    run(x).sum().backward()
    assert model[0].weight.grad is not None
    (report,) = kiln.torch.report()
    assert "gradient" in report.eager and report.compiled == 0


def test_breaks_of_the_graph_are_two_graphs():
    def function(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    assert len(check(function, torch.randn(3))) == 2


def test_dynamic_dimensions():
    model = mlp()
    run = torch.compile(model, backend=kiln.torch.backend, dynamic=True, options={"cache": False})
    with torch.no_grad():
        for n in (3, 5, 9, 5):
            x = torch.randn(n, 16)
            torch.testing.assert_close(run(x), model(x))
    assert len(kiln.torch.report()) == 1


def test_inputs_that_are_written_and_results_that_alias_them():
    def function(x, cache):
        cache[:, 1] = x[:, 0]
        return cache.t(), x.view(-1), x + cache.sum()

    x, cache = torch.randn(2, 3), torch.zeros(2, 3)
    other = cache.clone()
    with torch.no_grad():
        want = function(x, cache)
        got = compiled(function)(x, other)
    torch.testing.assert_close(other, cache)
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w)
        assert g.stride() == w.stride()


def test_layouts_of_results_are_those_of_pytorch():
    def function(x):
        return (x * 2).transpose(0, 1), x.contiguous(memory_format=torch.channels_last) + 1

    x = torch.randn(2, 3, 4, 5)
    with torch.no_grad():
        for got, want in zip(compiled(function)(x), function(x)):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    check(mlp().to(dtype), torch.randn(3, 16).to(dtype), rtol=2e-2, atol=2e-2)


def test_options_are_kilns_and_others_are_refused():
    with torch.no_grad(), pytest.raises(Exception, match="no option speed"):
        compiled(mlp(), speed=11)(torch.randn(1, 16))
    with torch.no_grad():
        compiled(mlp(), no_connect=True)(torch.randn(1, 16))


def test_the_table_is_of_operators_that_there_are():
    for name in lower.TABLE:
        space, _, operator = name.partition(".")
        assert space in ("aten", "prims")
        if operator not in ("relu6",):
            assert hasattr(getattr(torch.ops, space), operator) or "_for_mps" in operator, name


def test_a_dimension_with_a_range_is_one_module():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
            self.qkv = torch.nn.Linear(8, 24)
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x):
            y = torch.relu(self.norm(self.conv(x)))
            y = y.flatten(2).transpose(1, 2)
            q, k = y[:, 1:].split([7, 56], 1)
            y = y + q.mean(1, keepdim=True).expand(x.shape[0], 64, 8) + k.reshape(x.shape[0], -1).sum(1)[:, None, None]
            q, k, v = self.qkv(y).reshape(x.shape[0], 64, 3, 2, 4).permute(2, 0, 3, 1, 4)
            a = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return self.head(a.mean(1)), y.reshape(x.shape[0] * 2, -1)

    model = Model().eval()
    run = compiled(model)
    with torch.no_grad():
        for n in (3, 7, 2, 8):
            x = torch.randn(n, 3, 8, 8)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
            for got, want in zip(run(x), model(x)):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    (report,), (module,) = kiln.torch.report(), kiln.torch.modules()
    assert [(d.least, d.most) for d in module.dims] == [(2, 8)] and report.specialized == 0 and report.fallback == 0


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_that_pytorch_has_one_operator_for(norm_first):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first, activation="gelu").eval()
    check(layer, torch.randn(2, 5, 16))
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    check(lambda x: attention(x, x, x, need_weights=False)[0], x)


def test_weights_made_in_inference_mode():
    with torch.inference_mode():
        model, x = mlp(), torch.randn(3, 16)
        torch.testing.assert_close(compiled(model)(x), model(x))


# --- kiln.torch.compile ---


class Several(torch.nn.Module):
    """Arguments of several kinds, results in a dictionary."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x, scale=1.0, bias=None):
        y = torch.relu(self.first(x)) * scale
        y = y if bias is None else y + bias
        return {"y": self.second(y), "pair": (y, x)}


def frozen(model, **options):
    return kiln.torch.compile(model, cache=False, threads=1, **options)


def test_a_frozen_model_is_called_like_the_model():
    model, x = Several().eval(), torch.randn(3, 8)
    fast = frozen(model)
    with torch.no_grad():
        for given in (((x,), {}), ((x, 2.0), {}), ((x,), {"bias": torch.randn(16)}), ((torch.randn(5, 8),), {}), ((x,), {})):
            got, want = fast(*given[0], **given[1]), model(*given[0], **given[1])
            torch.testing.assert_close(got, want)
            assert got["pair"][1] is given[0][0]
    assert not fast.why and len(fast.traced) == 4
    assert [r.fallback for r in kiln.torch.report()] == [0] * 4


def test_a_frozen_model_keeps_its_weights_until_it_is_renewed():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval()
    fast, x = frozen(model), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        torch.testing.assert_close(fast(x), before)
        model[0].weight.mul_(2)
        model[0].bias = torch.nn.Parameter(torch.randn(16))
        fast.renew()
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))
    assert len(kiln.torch.report()) == 2


def test_a_frozen_model_leaves_gradients_to_pytorch():
    model, x = torch.nn.Linear(8, 16).eval(), torch.randn(3, 8)
    fast = frozen(model)
    fast(x).sum().backward()
    assert model.weight.grad is not None and not kiln.torch.report()


def test_what_cannot_be_traced_goes_through_torch_compile():
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    counted = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))  # in training: it writes its statistics
    x = torch.ones(2, 8)
    with torch.no_grad():
        for model in (Branches(), counted):
            fast = frozen(model)
            want = model(x) if model is not counted else torch.nn.functional.batch_norm(model[0](x), None, None, training=True)
            torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-4)
            assert fast.why and fast.otherwise is not None
    assert counted[1].num_batches_tracked == 1


def test_weights_that_dynamo_keeps_in_the_module_are_constants():
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval(), torch.randn(3, 8)
    if not hasattr(torch._dynamo.config, "install_free_tensors"):
        pytest.skip("this PyTorch does not")
    with torch._dynamo.config.patch(install_free_tensors=True), torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert [r.fallback for r in kiln.torch.report()] == [0]
