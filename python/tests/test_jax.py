# SPDX-License-Identifier: Apache-2.0
"""JAX's arrays, on the CPU. Skipped without it."""
import kiln
import numpy as np
import pytest

jax = pytest.importorskip("jax")

from models import data, expected, product  # noqa: E402


def test_arrays_are_used_where_they_lie_and_results_are_arrays():
    from kiln import _arrays, _library

    module = kiln.compile(product(), dims={"N": 3}, threads=1, cache=False)
    x = jax.numpy.asarray(data(3))
    adapter = _arrays.adapter_of(x)
    address, owner = adapter.lend(x)
    assert _library.DLTensor.from_address(address).data == x.unsafe_buffer_pointer()
    y = module(x)
    assert isinstance(y, jax.Array)
    np.testing.assert_allclose(np.asarray(y), expected(data(3)), rtol=1e-5, atol=1e-5)
    made = adapter.empty((3, 16), "f32", (1, 0))
    given = adapter.finish(made)
    assert given.unsafe_buffer_pointer() == made.ctypes.data
    np.testing.assert_allclose(np.asarray(module(y + 0)), expected(expected(data(3))), rtol=1e-5, atol=1e-5)
