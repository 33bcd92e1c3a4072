"""QR of tall matrices split by rows: triangles are exchanged, and signs are LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

P = PartitionSpec
RNG = np.random.default_rng(0)
MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))


def normal(*shape, dtype=np.float32):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def thin(x):
    return lax.linalg.qr(x, full_matrices=False)


def sent(f, x, spec, *outs):
    """`f` with results that lie so, else as propagation has it, and the bytes that a device sends."""
    outs = tuple(NamedSharding(MESH, s) for s in outs) or None
    compiled = sw.jit(f, out_shardings=outs).lower(sw.device_put(x, NamedSharding(MESH, spec))).compile()
    return compiled, sum(t.bytes for t in compiled.runtime_executable().transfers)


@pytest.mark.parametrize("spec", [P("x"), P(("y", "x")), P("x", "y")])
@pytest.mark.parametrize("shape, dtype", [((512, 4), np.float32), ((64, 8), np.float32), ((256, 6), np.complex64)])
def test_factors_are_those_of_one_device(shape, dtype, spec):
    x = normal(*shape, dtype=dtype)
    compiled, _ = sent(thin, x, spec, P(spec[0]), P())
    for got, expected in zip(compiled(sw.device_put(x, NamedSharding(MESH, spec))), np.linalg.qr(x), strict=True):
        assert_normwise(got, expected, 1e-5)


def test_batches_of_matrices_and_derivatives():
    x = normal(2, 128, 4)
    loss = lambda x: sum((jnp.sin(f) ** 2).sum() for f in thin(x))  # noqa: E731
    for spec in (P(None, "x"), P("y", "x")):
        placed = sw.device_put(x, NamedSharding(MESH, spec))
        got = sw.jit(sw.grad(loss), out_shardings=NamedSharding(MESH, spec))(placed)
        assert_normwise(got, sw.grad(loss)(x), 1e-4)  # through triangles that are solved twice
        q, _ = sw.jit(thin, out_shardings=(NamedSharding(MESH, spec), NamedSharding(MESH, P())))(placed)
        assert_normwise(q, thin(x)[0], 1e-5)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((128, 4), np.float32),
        np.pad(normal(32, 4), ((96, 0), (0, 0))),  # the first devices hold zeros
        np.pad(normal(4, 4), ((0, 124), (0, 0))),
        normal(128, 4) * np.array([1, 0, 1, 0], np.float32),
        normal(128, 2) @ np.array([[1, 0, 2, 1], [0, 1, 1, 3]], np.float32),
        np.eye(128, 4, dtype=np.float32)[::-1].copy(),
        normal(128, 4) * np.array([1, 1e-6, 1e6, 1], np.float32),
    ],
    ids=["zeros", "zeros first", "zeros behind", "columns of zeros", "rank 2", "units", "scales"],
)
def test_factors_of_degenerate_matrices_are_orthogonal(x):
    rows, whole = NamedSharding(MESH, P(("x", "y"))), NamedSharding(MESH, P())
    q, r = (np.asarray(f) for f in sw.jit(thin, out_shardings=(rows, whole))(sw.device_put(x, rows)))
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-5)
    assert_normwise(q @ r, x, 1e-5)
    assert not np.tril(r, -1).any()


def test_rows_stay_where_they_lie():
    x = normal(4096, 8)
    both, moved = sent(thin, x, P("x"), P("x"), P())
    assert moved == 3 * 8 * 8 * 4 + 2 * 3 * 8 * 8 * 4 // 4  # the triangles and the rows above them
    _, alone = sent(lambda x: lax.linalg.qr(x, full_matrices=False)[1], x, P("x"))
    assert alone == moved
    assert len(both.runtime_executable().transfers) == 2


def test_short_matrices_are_gathered():
    x = normal(32, 16)
    _, moved = sent(thin, x, P("x"), P("x"), P())
    assert moved == x.nbytes * 3 // 4
