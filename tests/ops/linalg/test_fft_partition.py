"""Transforms along split dims: NumPy's values on every layout, by all-to-alls where other dims can take the axes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.ops.linalg.fft_partition import Order, Transform, split_transforms
from shardwise.sharding import AxisType, Mesh, NamedSharding, P

MESH = Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
RNG = np.random.default_rng(0)


def transfers(f, *args):
    found = sw.jit(f).lower(*args).compile()._entry.executable.transfers
    return [(t.kind, t.bytes) for t in found]


def placed(x, *spec):
    return sw.device_put(x, NamedSharding(MESH, P(*spec)))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("shape", [(8, 6), (8, 3, 16)])
def test_values_on_every_layout(shape, name):
    x = RNG.normal(size=shape).astype(np.float32)
    x = x if name == "rfftn" else (x + 1j * RNG.normal(size=shape)).astype(np.complex64)
    for spec in itertools.permutations([None, "x", "y", ("x", "y")], len(shape)):
        axes = [a for entry in spec for a in entry or ()]
        ways = {None: 1, "x": 2, "y": 4, ("x", "y"): 8}
        if len(set(axes)) < len(axes) or any(n % ways[s] for n, s in zip(shape, spec, strict=True)):
            continue
        for count in {1, len(shape)}:
            dims = tuple(range(-count, 0))
            found = sw.jit(lambda v, dims=dims: getattr(jnp.fft, name)(v, axes=dims))(placed(x, *spec))
            want = getattr(np.fft, name)(x, axes=dims)
            assert found.shape == want.shape and found.dtype == want.astype(found.dtype).dtype
            scale = np.abs(want).max()
            np.testing.assert_allclose(np.asarray(found) / scale, want / scale, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "shape", "spec", "moved"),
    [
        ("fft2", (64, 32), ("x", None), 2),  # there and back
        ("fft2", (64, 32), (None, "x"), 2),
        ("rfft2", (64, 32), ("y", None), 2),  # 17 columns, padded to 20
        ("irfft2", (64, 17), ("y", None), 2),
        ("fftn", (16, 16, 16), ("x", "y", None), 4),  # pencils
        ("fftn", (16, 16, 16), ("x", None, None), 2),
    ],
)
def test_axes_move_to_dims_that_are_done(name, shape, spec, moved):
    x = placed(np.ones(shape, np.float32 if name == "rfft2" else np.complex64), *spec)
    sent = transfers(getattr(jnp.fft, name), x)
    assert {kind for kind, _ in sent} <= {"all_to_all", "permute"} and len(sent) <= moved
    ways = {"x": 2, "y": 4}
    parts = int(np.prod([ways[a] for a in spec if a]))
    largest = max(x.nbytes, getattr(jnp.fft, name)(np.asarray(x)).nbytes)
    assert sum(n for _, n in sent) <= 1.2 * moved * largest // parts
    assert sw.jit(getattr(jnp.fft, name))(x).sharding.spec == P(*spec)


def test_gradients_move_alike():
    x = placed(RNG.normal(size=(64, 64)).astype(np.float32), "x")
    f = sw.grad(lambda v: (jnp.abs(jnp.fft.fft2(v)) ** 2).sum())
    np.testing.assert_allclose(np.asarray(sw.jit(f)(x)) / (2 * 64 * 64), np.asarray(x), rtol=1e-5, atol=1e-6)
    assert "all_gather" not in {kind for kind, _ in transfers(f, x)}


@pytest.mark.parametrize("spec", ["y", ("x", "y"), ("y", "x")])
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_rows_are_transformed_together(name, spec):
    x = (RNG.normal(size=1024) + 1j * RNG.normal(size=1024)).astype(np.complex64)
    f, ways = getattr(jnp.fft, name), 4 if spec == "y" else 8
    assert transfers(f, placed(x, spec)) == [("fft", 3 * (ways - 1) * x.nbytes // ways**2)]
    found, want = np.asarray(sw.jit(f)(placed(x, spec))), getattr(np.fft, name)(x)
    np.testing.assert_allclose(found / np.abs(want).max(), want / np.abs(want).max(), atol=2e-6)


def test_rows_are_transformed_together_on_explicit_meshes():
    mesh = Mesh(np.array(sw.devices()), ("x",), axis_types=(AxisType.Explicit,))
    x = sw.device_put((RNG.normal(size=256) * (1 + 1j)).astype(np.complex64), NamedSharding(mesh, P("x")))
    assert [kind for kind, _ in transfers(jnp.fft.fft, x)] == ["fft"]
    found = sw.jit(jnp.fft.fft)(x)
    assert found.sharding == NamedSharding(mesh, P("x"))
    np.testing.assert_allclose(np.asarray(found), np.fft.fft(np.asarray(x)), atol=5e-5)


def test_what_cannot_move_is_gathered_and_said():
    x = placed(np.ones(64, np.complex64), "x")
    tall = placed(np.ones((64, 4), np.float32), "x")
    for f, v in ((jnp.fft.fft, x), (lambda a: jnp.linalg.svd(a, compute_uv=False), tall)):
        assert transfers(f, v) == [("all_gather", v.nbytes // 2)]
        assert f"all_gather over x of {'c64[64]' if v is x else 'f32[64,4]'}: {v.nbytes // 2} bytes" in (
            sw.jit(f).lower(v).compile().explain()
        )


def test_order_of_transforms():
    sizes = {"x": 2, "y": 4}
    rows, columns = (("x",), ()), ((), ("x",))
    first = split_transforms((8, 8), Order(2, 5, True, False), rows, rows, sizes)
    assert first == [Transform(rows, (8, 8), (1,), True), Transform(columns, (8, 6), (0,), False)]
    last = split_transforms((8, 5), Order(2, 8, False, True), rows, rows, sizes)
    assert last == [Transform(columns, (8, 6), (0,), False), Transform(rows, (8, 5), (1,), True)]
    assert split_transforms((8,), Order(1, 8, False, False), (("x",),), (("x",),), sizes) is None
