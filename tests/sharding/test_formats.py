"""Formats: arrays lie in memory in the order that is asked for; beside JAX, which shows the same orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.layout import Format, Layout, with_layout_constraint

S = sw.sharding.SingleDeviceSharding(sw.devices()[1])
MESH = sw.make_mesh((2, 2), ("a", "b"), devices=sw.devices()[:4])
N = sw.sharding.NamedSharding(MESH, sw.P("a", "b"))
ROWS, COLUMNS = Layout((0, 1)), Layout((1, 0))
X = np.arange(24.0, dtype=np.float32).reshape(4, 6)


def order(x: Any) -> Any:
    """The order that the format says, after a check that the memory has it."""
    found = x.format.layout.major_to_minor
    strides = np.asarray(x).strides
    assert not x.size or [strides[d] for d in found] == sorted(strides, reverse=True)
    return found


def test_row_major_formats_place_arrays():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    for given in (Format(ROWS, S), Format(None, S)):
        y = sw.device_put(x, given)
        assert y.sharding == S and y.format == Format(Layout((0, 1), ()), S) and np.array_equal(y, x)
    assert sw.device_put(x, Format()).sharding.device_set == {sw.devices()[0]}
    a, b = sw.device_put([x, x], [Format(ROWS, S), None])
    assert a.sharding == S and b.sharding != S
    options: dict[str, Any]
    for options in (
        {"in_shardings": Format(ROWS, S)},
        {"out_shardings": Format(ROWS, S)},
        {"in_shardings": (Format(Layout.AUTO, S),)},
    ):
        assert sw.jit(lambda v: v * 2, **options)(x).sharding == S
    assert sw.jit(lambda v: v * 2, in_shardings=Format(Layout.AUTO))(x).shape == (2, 3)


@pytest.mark.parametrize("sharding", [S, N])
def test_arrays_lie_in_the_order_asked_for(sharding: Any) -> None:
    column = Format(COLUMNS, sharding)
    made = [
        sw.device_put(X, column),
        sw.device_put(jnp.asarray(X), column),
        sw.device_put({"a": X}, column)["a"],
        sw.make_array_from_callback((4, 6), column, lambda i: X[i]),
        sw.make_array_from_process_local_data(column, X),
        sw.jit(lambda v: v + 0, out_shardings=column)(X),
        with_layout_constraint(sw.device_put(X, sharding), COLUMNS),
        sw.jit(lambda v: with_layout_constraint(v, COLUMNS))(sw.device_put(X, sharding)),
        sw.jit(lambda v: v + 0, in_shardings=column, out_shardings=column).lower(X).compile()(X),
    ]
    for y in made:
        assert order(y) == (1, 0) and y.sharding == sharding and np.array_equal(y, X)
        assert {order(s.data) for s in y.addressable_shards} == {(1, 0)}
        assert order(sw.device_put(y, Format(ROWS, sharding))) == (0, 1)
        assert sw.device_put(y, sharding).format == y.format == sw.device_put(y).format
        for z in (y * 2, y.T, y[:2], y.copy(), jnp.copy(y), sw.jit(lambda v: v * 2)(y)):
            assert z.format.layout.major_to_minor == (0, 1)
        np.testing.assert_array_equal(y @ y.T, X @ X.T)
    assert np.array_equal(sw.grad(lambda v: (with_layout_constraint(v, COLUMNS) ** 2).sum())(made[0]), 2 * X)
    assert np.array_equal(sw.vmap(lambda v: with_layout_constraint(v, Layout((0,))))(made[0]), X)


def test_parts_in_an_order_make_an_array_in_it():
    parts = [s.data for s in sw.device_put(X, Format(COLUMNS, N)).addressable_shards]
    assert order(sw.make_array_from_single_device_arrays((4, 6), N, parts)) == (1, 0)
    first = sw.make_array_from_single_device_arrays(parts[0].shape, parts[0].sharding, parts[:1])
    assert order(first) == (1, 0)
    rest = [sw.device_put(p, Format(ROWS, p.sharding)) for p in parts[1:]]
    assert order(sw.make_array_from_single_device_arrays((4, 6), N, [parts[0], *rest])) == (1, 0)


def test_three_dims_and_none():
    y = sw.device_put(np.arange(24).reshape(2, 3, 4), Format(Layout((2, 0, 1)), S))
    assert order(y) == (2, 0, 1) and np.asarray(y).strides == (12, 4, 24)
    assert order(sw.device_put(1.0, Format(Layout(()), S))) == ()
    assert order(sw.device_put(np.zeros((0, 3)), Format(COLUMNS, S))) == (1, 0)


def test_arguments_in_an_order():
    double = sw.jit(lambda v: v * 2, in_shardings=Format(COLUMNS, N))
    columns, rows = sw.device_put(X, Format(COLUMNS, N)), sw.device_put(X, N)
    for given in (X, jnp.asarray(X), columns):
        np.testing.assert_array_equal(double(given), X * 2)
    with pytest.raises(ValueError, match=r"does not match the layout on the respective arg.*device_put"):
        double(rows)
    with pytest.raises(ValueError, match="does not match the layout on the respective arg"):
        sw.jit(lambda v: v, in_shardings=Format(ROWS, N))(columns)
    with pytest.raises(ValueError, match=r"`Layout.AUTO` but the arg has one"):
        sw.jit(lambda v: v, in_shardings=Format(Layout.AUTO, N))(columns)
    np.testing.assert_array_equal(sw.jit(lambda v: v * 2, in_shardings=N)(columns), X * 2)
    with pytest.raises(ValueError, match="pytree key path v is incompatible with its layout annotation"):
        sw.jit(lambda v: v, in_shardings=Format(Layout((0,)), N))(X)
    with pytest.raises(ValueError, match="result is incompatible with its layout annotation"):
        sw.jit(lambda v: v, out_shardings=Format(Layout((0,)), N))(X)
    with pytest.raises(ValueError, match="rank of the value"):
        with_layout_constraint(jnp.asarray(X), Layout((0,)))


def test_formats_of_compiled_calls():
    columns = sw.device_put(X, Format(COLUMNS, N))
    f = sw.jit(lambda v, w: v * 2, in_shardings=(Format(COLUMNS, N), N), out_shardings=Format(COLUMNS, N))
    compiled = f.lower(X, X).compile()
    (first, second), _ = compiled.input_formats
    assert first.layout.major_to_minor == (1, 0) and second.layout is None
    assert compiled.output_formats.layout.major_to_minor == order(compiled(columns, X)) == (1, 0)
    with pytest.raises(ValueError, match="disagree with the layouts of arguments"):
        compiled(sw.device_put(X, N), X)
    given = sw.jit(lambda v: v * 2).lower(columns).compile()
    assert given.input_formats[0][0].layout.major_to_minor == (1, 0)
    plain = sw.jit(lambda v: v * 2).lower(sw.device_put(X, N)).compile()
    with pytest.raises(ValueError, match="required layout: Layout"):
        plain(columns)
    struct = sw.ShapeDtypeStruct((4, 6), jnp.float32, sharding=Format(COLUMNS, N))
    assert struct.format == Format(COLUMNS, N) and struct.update(shape=(2, 6)).format == struct.format
    assert sw.jit(lambda v: v).lower(struct).compile().input_formats[0][0].layout.major_to_minor == (1, 0)
    automatic = sw.jit(lambda v: v * 2, in_shardings=Format(Layout.AUTO, N), out_shardings=Format(Layout.AUTO, N))
    compiled = automatic.lower(sw.ShapeDtypeStruct((4, 6), jnp.float32)).compile()
    y = compiled(sw.device_put(X, compiled.input_formats[0][0]))
    assert y.format.layout == compiled.output_formats.layout


def test_results_in_an_order_take_donated_arguments():
    f = sw.jit(lambda v: v + 1, in_shardings=Format(COLUMNS, N), out_shardings=Format(COLUMNS, N), donate_argnums=0)
    x = sw.device_put(X, Format(COLUMNS, N))
    y = f(x)
    assert x.is_deleted() and order(y) == (1, 0) and np.array_equal(y, X + 1)


def test_trees_of_formats():
    a, b = sw.jit(lambda v: (v + 0, v * 2), out_shardings=(Format(COLUMNS, N), N))(X)
    assert order(a) == (1, 0) and b.format.layout.major_to_minor == (0, 1) and np.array_equal(b, X * 2)


def test_tiles_are_refused():
    with pytest.raises(NotImplementedError, match="no tiles"):
        sw.device_put(X, Format(Layout((0, 1), ((8, 128),)), S))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Layout((0, 0)), ValueError),
        (lambda: Layout((1,)), ValueError),
        (lambda: Layout(3), TypeError),
        (lambda: Layout(ROWS), ValueError),
        (lambda: Format((0, 1), S), TypeError),  # type: ignore[arg-type]
        (lambda: Format(None, 3), TypeError),  # type: ignore[arg-type]
        (lambda: Format(ROWS), ValueError),
        (lambda: sw.device_put(np.ones((2, 3)), Format(Layout.AUTO, S)), ValueError),
        (lambda: sw.device_put(np.ones((2, 3)), Format(Layout((0,)), S)), ValueError),
        (lambda: sw.device_put(np.ones((2, 3)), ROWS), ValueError),
        (lambda: sw.jit(lambda v: v, in_shardings=ROWS)(X), ValueError),
        (lambda: sw.make_array_from_callback((4, 6), Format(Layout.AUTO, N), lambda i: X[i]), TypeError),
    ],
)
def test_what_is_no_format(make, error):
    with pytest.raises(error):
        make()


def test_equality():
    assert Layout([0, 1]) == ROWS and hash(Layout([0, 1])) == hash(ROWS) and ROWS != COLUMNS
    assert repr(Layout.AUTO) == "AUTO" and repr(Format()) == "Format(layout=None, sharding=None)"
