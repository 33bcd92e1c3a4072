"""`image.resize` and `scale_and_translate`, beside JAX's, and their derivatives and shardings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import image
from shardwise import numpy as jnp
from tests.differential.oracle import compare

PICTURE = (np.arange(60, dtype=np.float32).reshape(1, 5, 6, 2) ** 1.5) % 17
METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]


@pytest.mark.parametrize("method", METHODS)
def test_as_jax(method: str) -> None:
    jax = pytest.importorskip("jax")
    if method.upper().replace("-", "_") not in jax.image.ResizeMethod.__members__:
        pytest.skip("this JAX does not have the method")
    for shape in ((1, 8, 4, 2), (1, 5, 9, 2)):
        for antialias in (True, False):
            ours = np.asarray(image.resize(PICTURE, shape, method, antialias=antialias))
            theirs = jax.image.resize(PICTURE, shape, method, antialias=antialias)
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    if method != "nearest":
        args = ((8, 7), (0, 1), np.array([1.5, 0.7], np.float32), np.array([0.3, -1], np.float32), method)
        for antialias in (True, False):
            ours = np.asarray(image.scale_and_translate(PICTURE[0, :, :, 0], *args, antialias))
            theirs = jax.image.scale_and_translate(PICTURE[0, :, :, 0], *args, antialias)
            np.testing.assert_allclose(ours, theirs, rtol=5e-6, atol=5e-6)


def test_dtypes_and_shardings() -> None:
    assert image.resize(np.arange(4), (8,), "nearest").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_allclose(
        np.asarray(image.resize(np.arange(4), (8,), image.ResizeMethod.LINEAR))[1:3], [0.25, 0.75]
    )
    assert image.resize(jnp.ones((4,), jnp.bfloat16), (2,), "bilinear").dtype == jnp.bfloat16
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    batch = sw.device_put(np.concatenate([PICTURE, PICTURE]), sw.NamedSharding(mesh, sw.P("x")))
    resize = lambda x: image.resize(x, (2, 7, 8, 2), "cubic")  # noqa: E731
    out = sw.jit(resize)(batch)
    assert isinstance(out.sharding, sw.NamedSharding) and out.sharding.spec[0] == "x"
    np.testing.assert_allclose(np.asarray(out), np.asarray(resize(np.asarray(batch))), rtol=2e-6, atol=2e-6)


def test_dims_that_shrink_go_first() -> None:
    """Sums over devices are of the smaller of both intermediate pictures."""
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    split = sw.ShapeDtypeStruct((64, 64), np.float32, sharding=sw.NamedSharding(mesh, sw.P("x", "y")))
    for shape in ((100, 33), (33, 100)):
        found = sw.jit(lambda x, shape=shape: image.resize(x, shape, "linear")).lower(split).compile()
        sums = {t.value for t in found.runtime_executable().transfers if t.kind == "all_reduce" and "," in t.value}
        assert all("33" in value for value in sums)
        assert sums


def test_derivatives() -> None:
    small = PICTURE[0, :3, :4, 0]
    gradient = sw.grad(lambda x: jnp.sum(image.resize(x, (6, 8), "linear")))(small)
    np.testing.assert_allclose(gradient, np.full((3, 4), 4.0), rtol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="length equal"):
        image.resize(np.ones(3), (3, 3), "linear")
    with pytest.raises(ValueError, match="Unknown resize method"):
        image.resize(np.ones(3), (3,), "line")
    with pytest.raises(ValueError, match="name of one or a ResizeMethod, got 99"):
        image.resize(jnp.ones((2, 3)), (2, 2), 99)
    with pytest.raises(ValueError, match="use resize"):
        image.scale_and_translate(np.ones(3), (3,), (0,), [1.0], [0.0], "nearest")
    with pytest.raises(ValueError, match="spatial_dims"):
        image.scale_and_translate(np.ones((3, 4)), (4, 5), (0,), [1.0], [0.0], "linear")


def test_complex_pictures_and_strict_promotion() -> None:
    """Weights are real numbers of the picture's precision."""
    compare(
        """
x = (jnp.arange(20.) - 3j).reshape(4, 5)
args = (6, 3), (0, 1), jnp.array([1.5, 0.7]), jnp.array([0.3, -1.]), 'cubic'
with jax.numpy_dtype_promotion('strict'):
    result = [jax.image.scale_and_translate(x, *args), jax.image.resize(x, (2, 9), 'linear'),
        jax.image.scale_and_translate(x.real.astype(jnp.bfloat16), *args).dtype]
""",
        ulps=64,
    )


@pytest.mark.parametrize("shape", [(10.5, 7), (2.0, 3), ("3", 2)])
def test_sizes_are_integers(shape: tuple[Any, ...]) -> None:
    for resized in (
        lambda: image.resize(np.ones((3, 4)), shape, "cubic"),
        lambda: image.scale_and_translate(np.ones((3, 4)), shape, (0, 1), np.ones(2), np.ones(2), "cubic"),
    ):
        with pytest.raises(TypeError, match="integer type"):
            resized()
