"""all_reduce on blocks of many devices: what groups of devices give, one after the other, is what all give at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardwise.ir import ShapedArray
from shardwise.ops.devices import all_reduce as module
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.monoids import MONOIDS

Groups = list[int]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """The numbers of groups in which blocks are reduced."""
    found: Groups = []
    before = module._reduced_twice

    def reduced_twice(reduce: Any, d: int, count: int, x: Any) -> Any:
        found.append(count)
        return before(reduce, d, count, x)

    monkeypatch.setattr(module, "_reduced_twice", reduced_twice)
    return found


def reducer(
    env: Env, kind: str, shape: tuple[int, ...], dtype: Any, axes: tuple[str, ...] = ("x",)
) -> Callable[..., Any]:
    aval = ShapedArray(shape, np.dtype(dtype))
    op = module.all_reduce
    assert op.compile is not None
    return op.compile(env, (aval,), (aval,), {"axes": axes, "kind": kind, "groups": None})


def drawn(kind: str, dtype: Any, *shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(7)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-(2**31), 2**31 - 1, shape).astype(dtype)
    return (1 + 1e-3 * rng.normal(size=shape) if kind == "prod" else rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
@pytest.mark.parametrize(("devices", "times"), [(512, 16), (4096, 64), (1000, 25)])
def test_groups_give_what_all_give_at_once(groups: Groups, kind: str, dtype: Any, devices: int, times: int) -> None:
    x = drawn(kind, dtype, devices, 8)
    out = reducer(Env(("x",), (devices,)), kind, (8,), dtype)(x)
    assert groups == [times]
    assert out.shape == (1, 8)
    assert out.dtype == dtype
    wide = x if x.dtype.kind == "i" else x.astype(np.float64)
    expected = MONOIDS[kind].merge.reduce(wide, 0, dtype=wide.dtype, keepdims=True)
    if x.dtype.kind == "i" or kind in ("max", "min"):
        np.testing.assert_array_equal(out, expected)
    else:
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_groups_of_bits(groups: Groups, kind: str) -> None:
    x = drawn(kind, np.uint32, 512, 3)
    out = reducer(Env(("x",), (512,)), kind, (3,), np.uint32)(x)
    np.testing.assert_array_equal(out, MONOIDS[kind].merge.reduce(x, 0, keepdims=True))
    assert groups == [16]


def test_a_nan_and_zeros_of_both_signs(groups: Groups) -> None:
    x = np.zeros((512, 4), np.float32)
    x[1::2] = -0.0
    x[300, 2] = np.nan
    low = reducer(Env(("x",), (512,)), "min", (4,), np.float32)(x)
    high = reducer(Env(("x",), (512,)), "max", (4,), np.float32)(x)
    assert groups == [16, 16]
    np.testing.assert_array_equal(np.isnan(low), [[False, False, True, False]])
    np.testing.assert_array_equal(np.isnan(high), np.isnan(low))
    assert np.signbit(low[0, [0, 1, 3]]).all()
    assert not np.signbit(high[0, [0, 1, 3]]).any()


def test_axes_beside_the_reduced_one(groups: Groups) -> None:
    x = drawn("sum", np.float64, 2, 600, 3, 2)
    out = reducer(Env(("y", "x", "z"), (2, 600, 3)), "sum", (2,), np.float64)(x)
    assert groups == [24]
    np.testing.assert_allclose(out, x.sum(1, keepdims=True), rtol=1e-10, atol=1e-10)
    turned = x.swapaxes(0, 1).copy().swapaxes(0, 1)
    np.testing.assert_array_equal(reducer(Env(("y", "x", "z"), (2, 600, 3)), "sum", (2,), np.float64)(turned), out)


@pytest.mark.parametrize(("devices", "elements"), [(8, 8), (511, 8), (521, 8), (512, 1), (512, 65), (512, 0)])
def test_others_are_reduced_at_once(groups: Groups, devices: int, elements: int) -> None:
    x = drawn("sum", np.float32, devices, elements)
    out = reducer(Env(("x",), (devices,)), "sum", (elements,), np.float32)(x)
    assert not groups
    np.testing.assert_array_equal(out, x.sum(0, keepdims=True))


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("turned", [False, True])
def test_parts_of_large_blocks_give_the_same_bits(kind: str, dtype: Any, turned: bool) -> None:
    x = drawn(kind, dtype, 5, 3, 70001)
    x = np.moveaxis(x, 1, 2) if turned else x
    assert x.nbytes >= costs.COPY_SHARED
    out = reducer(Env(("x",), (5,)), kind, x.shape[1:], dtype)(x)
    np.testing.assert_array_equal(out, MONOIDS[kind].merge.reduce(x, 0, dtype=x.dtype, keepdims=True), strict=True)
