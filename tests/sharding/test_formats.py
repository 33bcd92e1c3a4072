"""Formats: row-major order is what arrays have; another one is refused by name wherever it would have to show."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.layout import Format, Layout, with_layout_constraint

S = sw.sharding.SingleDeviceSharding(sw.devices()[1])
ROWS, COLUMNS = Layout((0, 1)), Layout((1, 0))


def test_row_major_formats_place_arrays():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    for given in (Format(ROWS, S), Format(None, S)):
        y = sw.device_put(x, given)
        assert y.sharding == S and y.format == Format(Layout((0, 1), ()), S) and np.array_equal(y, x)
    assert sw.device_put(x, Format()).sharding.device_set == {sw.devices()[0]}
    a, b = sw.device_put([x, x], [Format(ROWS, S), None])
    assert a.sharding == S and b.sharding != S
    for options in (
        {"in_shardings": Format(ROWS, S)},
        {"out_shardings": Format(ROWS, S)},
        {"in_shardings": (Format(Layout.AUTO, S),)},
    ):
        assert sw.jit(lambda v: v * 2, **options)(x).sharding == S
    assert sw.jit(lambda v: v * 2, in_shardings=Format(Layout.AUTO))(x).shape == (2, 3)


def test_other_orders_are_refused():
    x = jnp.ones((2, 3))
    calls = {
        "device_put": lambda: sw.device_put(x, Format(COLUMNS, S)),
        "jit's in_shardings": lambda: sw.jit(lambda v: v, in_shardings=Format(COLUMNS, S))(x),
        "jit's out_shardings": lambda: sw.jit(lambda v: v, out_shardings=Format(COLUMNS, S))(x),
        "device_put: ": lambda: sw.device_put(x, Format(Layout((0, 1), ((8, 128),)), S)),
    }
    for where, call in calls.items():
        with pytest.raises(NotImplementedError, match=f"{where}.*row-major order.*transpose the array"):
            call()


def test_constraint_on_the_order_is_no_part_of_the_value():
    x = jnp.arange(6.0).reshape(2, 3)
    assert np.array_equal(with_layout_constraint(x, COLUMNS), x)
    with pytest.raises(ValueError, match="does not fit"):
        with_layout_constraint(x, Layout((0,)))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Layout((0, 0)), ValueError),
        (lambda: Layout((1,)), ValueError),
        (lambda: Layout(3), TypeError),
        (lambda: Layout(ROWS), TypeError),
        (lambda: Format((0, 1), S), TypeError),
        (lambda: Format(None, 3), TypeError),
        (lambda: Format(ROWS), ValueError),
        (lambda: sw.device_put(np.ones((2, 3)), Format(Layout.AUTO, S)), ValueError),
        (lambda: sw.device_put(np.ones((2, 3)), Format(Layout((0,)), S)), ValueError),
    ],
)
def test_what_is_no_format(make, error):
    with pytest.raises(error):
        make()


def test_equality():
    assert Layout([0, 1]) == ROWS and hash(Layout([0, 1])) == hash(ROWS) and ROWS != COLUMNS
    assert repr(Layout.AUTO) == "AUTO" and repr(Format()) == "Format(layout=None, sharding=None)"
