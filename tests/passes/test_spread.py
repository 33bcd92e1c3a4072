"""Elements with padding between them, over parts that are no whole strides, come alone: not the padding, and not their whole parts."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

N, K = np.float32, 4  # columns


def compiled(f, rows, devices):
    x = np.random.default_rng(0).standard_normal((rows, K)).astype(N)
    place = NamedSharding(Mesh(np.array(sw.devices()[:devices]), ("x",)), P("x"))
    split = sw.device_put(x, place)
    made = sw.jit(f, out_shardings=place).lower(split).compile()
    np.testing.assert_allclose(made(split), f(x), rtol=1e-6)
    return sum(t.total for t in made.runtime_executable().transfers) // (K * 4)


@pytest.mark.parametrize("fill", [0.0, 7.0])
@pytest.mark.parametrize(
    "rows, devices, low, high, interior, most",
    [
        (16, 2, 0, 3, 1, 1),
        (18, 3, 0, -6, 2, 1),
        (18, 3, -4, -2, 2, 2),
        (8, 4, 3, 6, 2, 3),
        (8, 8, 5, 4, 2, 4),
        (15, 5, -3, 5, 1, 3),
    ],
)
def test_pads_between_elements(rows, devices, low, high, interior, most, fill):
    size = low + high + rows + (rows - 1) * interior
    high += -size % devices
    pad = lambda x: lax.pad(x, N(fill), ((low, high, interior), (0, 0, 0)))  # noqa: E731
    assert compiled(pad, rows, devices) <= most


@pytest.mark.parametrize("rows, devices, stride, most", [(48, 3, 3, 3), (100, 4, 2, 3), (40, 8, 3, 7), (512, 8, 3, 16)])
def test_gradients_of_strided_slices(rows, devices, stride, most):
    """`most` rows are those that XLA's partitioner sends."""
    assert compiled(sw.grad(lambda x: (x[::stride] ** 2).sum()), rows, devices) <= most
