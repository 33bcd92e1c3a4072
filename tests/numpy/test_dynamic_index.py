"""`jax.ds`: positions from a start, of arrays and Refs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp


def test_positions_from_a_start() -> None:
    x = jnp.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(x[sw.ds(1, 2)], x[1:3])
    np.testing.assert_array_equal(x[:, sw.ds(1, 3, 2)], x[:, 1:7:2])
    np.testing.assert_array_equal(x[sw.ds(2), sw.ds(1, 2)], x[:2, 1:3])
    np.testing.assert_array_equal(sw.jit(lambda x, i: x[sw.ds(i, 2)])(x, 2), x[2:])
    np.testing.assert_array_equal(sw.jit(lambda x, i: x.at[:, sw.ds(i, 2)].set(0))(x, 1), x.at[:, 1:3].set(0))
    assert repr(sw.ds(1, 2)) == "Slice(start=1, size=2, stride=1)"


def test_several_parts_are_a_box() -> None:
    x = jnp.arange(24).reshape(4, 6)
    rows = jnp.array([3, 0])
    read = sw.jit(
        lambda x, i: (
            x[sw.ds(i, 2), sw.ds(i + 1, 3)],
            x[sw.ds(i, 2), rows],
            x[i, sw.ds(i, 2)],
            x[sw.ds(i, 2), None, ::-2],
        )
    )
    box, columns, row, backwards = read(x, 1)
    np.testing.assert_array_equal(box, x[1:3, 2:5])
    np.testing.assert_array_equal(columns, x[1:3, rows])
    np.testing.assert_array_equal(row, x[1, 1:3])
    np.testing.assert_array_equal(backwards, x[1:3, None, ::-2])
    np.testing.assert_array_equal(
        sw.jit(lambda x, i: x.at[sw.ds(i, 2), sw.ds(i, 3)].add(jnp.ones((2, 3), int)))(x, 1), x.at[1:3, 1:4].add(1)
    )
    np.testing.assert_array_equal(sw.jit(lambda x, i: x.at[sw.ds(i, 2), rows].set(-1))(x, 1), x.at[1:3, rows].set(-1))


@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize(("start", "first"), [(-2, 4), (-1, 3), (4, 3), (9, 3)])
def test_reads_out_of_bounds_move_the_window_inside(start: int, first: int, jitted: bool) -> None:
    x = jnp.arange(6)
    size = 2 if start == -2 else 3
    read = lambda x, i: x[sw.ds(i, size)]  # noqa: E731
    found = sw.jit(read)(x, start) if jitted else read(x, start)
    np.testing.assert_array_equal(found, x[first : first + size])


@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize("start", [-1, 4, 9])
def test_writes_out_of_bounds_are_left_out(start: int, jitted: bool) -> None:
    x = jnp.arange(6)
    write = lambda x, i: x.at[sw.ds(i, 3)].set(9)  # noqa: E731
    np.testing.assert_array_equal(sw.jit(write)(x, start) if jitted else write(x, start), x)


def test_filled_out_of_bounds() -> None:
    read = sw.jit(lambda x, i: x.at[sw.ds(i, 3)].get(mode="fill", fill_value=7))
    np.testing.assert_array_equal(read(jnp.arange(6), 4), [7, 7, 7])
    np.testing.assert_array_equal(read(jnp.arange(6), 3), [3, 4, 5])


def test_strided_positions_apart_from_others() -> None:
    x = jnp.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(sw.jit(lambda x, i: x[i, sw.ds(i, 2, 2)])(x, 1), x[1, 1:5:2])
    with pytest.raises(NotImplementedError, match="two steps"):
        sw.jit(lambda x, i: x[sw.ds(i, 2, 2), sw.ds(i, 2, 2)])(x, 0)


def test_derivatives_and_maps() -> None:
    x = jnp.arange(4.0)
    np.testing.assert_array_equal(sw.grad(lambda x: sw.jit(lambda x, i: x[sw.ds(i, 2)].sum())(x, 1))(x), [0, 1, 1, 0])
    np.testing.assert_array_equal(sw.vmap(lambda i: x[sw.ds(i, 2)])(jnp.arange(3)), [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(sw.vmap(lambda i: x.at[sw.ds(i, 2)].set(9)[0])(jnp.arange(2)), [9, 0])


def test_refs_write_where_they_read() -> None:
    """Out of bounds, too: the part moves inside."""
    r = sw.new_ref(jnp.arange(6.0))

    @sw.jit
    def move(i: Any) -> None:
        r[sw.ds(i, 2)] = r[sw.ds(i, 2)] + 10
        r[i] = r[i] + 100

    move(9)
    np.testing.assert_array_equal(r[...], [0, 1, 2, 3, 14, 115])


def test_parts_of_a_ref() -> None:
    r = sw.new_ref(jnp.arange(6.0))
    r[sw.ds(2, 2)] = jnp.zeros(2)
    np.testing.assert_array_equal(r[sw.ds(1, 3)], [1, 0, 0])


@pytest.mark.parametrize("arguments", [(0, 2, -1), (0, 2, 0), (0, -1)])
def test_what_is_no_range(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"step|size"):
        sw.ds(*arguments)


@pytest.mark.parametrize("part", [(3, 2), (0, 9), (1, 2, 3), (-1, 1)])
def test_parts_of_a_ref_lie_inside(part: tuple[int, ...]) -> None:
    r = sw.new_ref(jnp.arange(4.0))
    with pytest.raises(ValueError, match="Out of bound"):
        r[sw.ds(*part)]
    with pytest.raises(ValueError, match="Out of bound"):
        r[sw.ds(*part)] = jnp.zeros(part[1])
    r[sw.ds(0, 2, 3)] = jnp.ones(2)
    r[sw.ds(2, 0)] = jnp.ones(0)
    np.testing.assert_array_equal(r[...], [1, 1, 2, 1])
