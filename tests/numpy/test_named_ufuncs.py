"""The methods of ufuncs: values and dtypes as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.base.config import use_dialect
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.add.reduce(m)
jnp.add.reduce(n, axis=1)
jnp.add.reduce(m, axis=None)
jnp.add.reduce(m, axis=1, keepdims=True)
jnp.add.accumulate(m, axis=1)
jnp.add.accumulate(i)
jnp.add.outer(v, i)
jnp.add.at(v, i, 2.0, inplace=False)
jnp.add.at(v, i, w, inplace=False)
jnp.add.reduce(n, initial=2)
jnp.multiply.reduce(m)
jnp.multiply.reduce(n, axis=1)
jnp.multiply.reduce(m, axis=None)
jnp.multiply.reduce(m, axis=1, keepdims=True)
jnp.multiply.accumulate(m, axis=1)
jnp.multiply.accumulate(i)
jnp.multiply.outer(v, i)
jnp.multiply.at(v, i, 2.0, inplace=False)
jnp.multiply.at(v, i, w, inplace=False)
jnp.multiply.reduce(n, initial=2)
jnp.maximum.reduce(m)
jnp.maximum.reduce(n, axis=1)
jnp.maximum.reduce(m, axis=None)
jnp.maximum.reduce(m, axis=1, keepdims=True)
jnp.maximum.accumulate(m, axis=1)
jnp.maximum.accumulate(i)
jnp.maximum.outer(v, i)
jnp.maximum.at(v, i, 2.0, inplace=False)
jnp.maximum.at(v, i, w, inplace=False)
jnp.maximum.reduce(n, initial=2)
jnp.minimum.reduce(m)
jnp.minimum.reduce(n, axis=1)
jnp.minimum.reduce(m, axis=None)
jnp.minimum.reduce(m, axis=1, keepdims=True)
jnp.minimum.accumulate(m, axis=1)
jnp.minimum.accumulate(i)
jnp.minimum.outer(v, i)
jnp.minimum.at(v, i, 2.0, inplace=False)
jnp.minimum.at(v, i, w, inplace=False)
jnp.minimum.reduce(n, initial=2)
jnp.add.reduceat(v, np.array([0, 3, 5]))
jnp.add.reduceat(m, np.array([1, 0, 1], np.uint8), 1)
jnp.add.reduceat(i.astype(jnp.int8), np.array([-1, 0, 9, 2], np.int8))
jnp.subtract.reduceat(v, np.arange(0))
jnp.subtract.reduceat(v, np.array([0, 1, 0]))
jnp.logical_or.reduceat(i, np.array([0, 0]))
jnp.maximum.accumulate(b)
jnp.minimum.accumulate(v, dtype=bool)
jnp.logaddexp.accumulate(b)
jnp.logaddexp.accumulate(i, dtype=jnp.float16)
jnp.add.at(b, np.array([0, 0, 1]), b[0], inplace=False)
jnp.multiply.at(b, np.array([0, 0, 1]), b[1], inplace=False)
jnp.logical_or.at(i, np.array([0, 0, 2]), 0.5, inplace=False)
jnp.logaddexp.at(i, np.array([0, 0, 2]), 1, inplace=False)
jnp.logaddexp.at(v.astype(jnp.float16), np.array([0, 0, 2]), np.float32(1), inplace=False)
jnp.bitwise_xor.at(i.astype(jnp.int8), np.array([0, 0, 2]), np.int32(300), inplace=False)
jnp.frompyfunc(lambda x, y: x + 2 * y, 2, 1).at(i, np.array([0, 0, 2]), np.float32(0.3), inplace=False)
jnp.frompyfunc(jnp.sin, 1, 1).at(i, np.array([0, 0, 2]), inplace=False)
jax.jit(jnp.subtract.reduceat)(v, np.array([-1, 0, 2, 1]))
jax.grad(lambda v: jnp.multiply.reduceat(v, np.array([1, 0])).sum())(v)
jnp.add.reduce(m, where=bm)
jnp.subtract.reduce(v)
jnp.subtract.reduce(m, axis=1)
jnp.subtract.accumulate(i)
jnp.subtract.at(v, i, 1.0, inplace=False)
jnp.logical_and.reduce(n)
jnp.logical_or.reduce(n, axis=1)
jnp.logical_xor.reduce(i)
jnp.bitwise_and.reduce(i)
jnp.bitwise_or.reduce(n)
jnp.bitwise_xor.reduce(n, axis=1)
jnp.logaddexp.reduce(v)
jnp.logaddexp.accumulate(v)
jnp.add.accumulate(m, axis=None)
jnp.logaddexp2.reduce(m, axis=1)
jnp.negative(v)
jnp.frompyfunc(lambda a, b: a * b + 1, 2, 1)(m, v)
jnp.frompyfunc(lambda a, b: a * b, 2, 1).reduce(v)
jnp.frompyfunc(lambda a, b: a * b, 2, 1).accumulate(v)
jnp.frompyfunc(lambda a, b: a * b, 2, 1).outer(v, i)
jnp.frompyfunc(lambda a, b: a * b, 2, 1).at(v, i, 2.0, inplace=False)
jnp.frompyfunc(lambda a, b: a * b, 2, 1, identity=1).reduce(v, where=b)
"""

ERRORS = """
jnp.add.at(v, i, 1.0)
jnp.maximum.reduce(z[:, 0])
jnp.maximum.reduce(v, where=b)
jnp.negative.reduce(v)
jnp.add(v, w, out=v)
jnp.add(v, w, where=b)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_names():
    import shardwise.numpy as jnp

    assert repr(jnp.add) == "<jnp.ufunc 'add'>"
    assert (jnp.add.nin, jnp.add.nout, jnp.add.nargs, jnp.add.identity) == (2, 1, 2, 0)
    assert isinstance(jnp.maximum, jnp.ufunc)
    assert jnp.frompyfunc(max, 2, 1) == jnp.frompyfunc(max, 2, 1)


# Ufuncs without reductions of their own, which go through a loop over the elements.
FOLDED = ["subtract", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]


@pytest.mark.parametrize("name", FOLDED)
def test_accumulate_has_the_dtype_of_a_result(name):
    import numpy as np

    import shardwise.numpy as jnp

    values = np.array([[5, 0, 2], [3, 7, 0]], np.int32)
    values = values.astype(np.float32) if name.startswith(("sub", "logical")) else values
    for axis in (0, 1):
        want = getattr(np, name).accumulate(values, axis=axis)
        for found in (
            getattr(jnp, name).accumulate(values, axis=axis),
            sw.jit(lambda x, axis=axis: getattr(jnp, name).accumulate(x, axis=axis))(values),
        ):
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)


def test_methods_are_loops_whatever_the_size():
    import shardwise.numpy as jnp

    methods = [
        jnp.logaddexp.reduce,
        jnp.logical_xor.reduce,
        jnp.subtract.accumulate,
        lambda x: jnp.logaddexp.reduce(x, where=x > 3, initial=1.0),
        lambda x: jnp.logaddexp.at(x, jnp.arange(x.size), 1.0, inplace=False),
    ]
    for method in methods:
        short, long = (len(sw.make_jaxpr(method)(jnp.ones(n)).eqns) for n in (4, 400))
        assert short == long < 40


def test_methods_keep_to_their_devices():
    import numpy as np

    import shardwise.numpy as jnp

    P = sw.sharding.PartitionSpec
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    x = np.linspace(-1, 2, 24, dtype=np.float32)

    def body(x):
        return jnp.logaddexp.reduce(x, initial=0.5)[None], jnp.subtract.accumulate(x), jnp.logical_xor.reduce(x)[None]

    for dialect in ("seed", "latest"):
        with use_dialect(dialect):
            found = sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
            parts = x.reshape(4, 6)
            np.testing.assert_allclose(found[0], np.logaddexp.reduce(parts, axis=1, initial=0.5), rtol=1e-6)
            np.testing.assert_array_equal(found[1].reshape(4, 6), np.subtract.accumulate(parts, axis=1))
            np.testing.assert_array_equal(found[2], np.logical_xor.reduce(parts, axis=1))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_initial_values_of_bits(name: str) -> None:
    x, where = np.array([[7, 6], [5, 3]], np.int32), np.array([[True, False], [True, True]])
    ours, numpys = getattr(sw.numpy, name), getattr(np, name)
    for options in ({"axis": 1}, {"axis": None, "where": where}, {"axis": 0, "keepdims": True}):
        got = sw.jit(lambda x, o=options: ours.reduce(x, initial=12, **o))(x)
        np.testing.assert_array_equal(got, numpys.reduce(x, initial=12, **options), strict=True)


BEYOND = 5


@pytest.mark.parametrize(
    "index", [np.array([1, 1]), np.array([2, -1, 7]), BEYOND, (np.array([0, 2]), slice(1, 3)), (slice(None), 1)]
)
def test_places_may_be_traced_and_those_out_of_bounds_are_left_out(index):
    import shardwise as sw
    import shardwise.numpy as jnp

    x = jnp.arange(12).reshape(3, 4)
    folds = jnp.frompyfunc(lambda a, b: 2 * a + b, 2, 1)
    rows = index if isinstance(index, tuple) else (index,)
    expected = np.arange(12)
    inside = [r[r < 3] if isinstance(r, np.ndarray) else r for r in rows if r is not BEYOND]
    for place in np.arange(12).reshape(3, 4)[tuple(inside)].ravel() if inside else ():
        expected[place] = 2 * expected[place] + 1
    expected = expected.reshape(3, 4)

    def at(x, *traced):
        given = iter(traced)
        return folds.at(x, tuple(r if isinstance(r, slice) else next(given) for r in rows), 1, inplace=False)

    traced = [r for r in rows if not isinstance(r, slice)]
    assert (at(x, *traced) == expected).all() and (sw.jit(at)(x, *traced) == expected).all()
