"""x[...], take, take_along_axis: values against NumPy and the oracle, eager, traced and sharded; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.base.errors import NonConcreteBooleanIndexError, ShardingTypeError
from shardwise.numpy.indexing import getitem, iterate, take, take_along_axis, take_index
from shardwise.ops.rules.convert import as_array
from shardwise.sharding import AxisType, Mesh, NamedSharding, P
from tests.numpy.index_forms import clipped, random_cases

RNG = np.random.default_rng(0)
X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


def data(shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"))


@pytest.mark.parametrize("out_of_bounds", [False, True])
def test_reads_are_numpys(out_of_bounds):
    for shape, index in random_cases(1, 300, out_of_bounds=out_of_bounds):
        x = data(shape)
        want = x[clipped(shape, index)]
        for got in (getitem(as_array(x), index), take_index(as_array(x), index)):
            assert got.shape == want.shape, (shape, index)
            np.testing.assert_array_equal(got, want, err_msg=f"{shape} {index}")


def dynamic(index):
    """`index` with its ints and arrays taken out, and a function that puts others in their place."""
    parts = index if isinstance(index, tuple) else (index,)
    moving = [isinstance(p, int) or (isinstance(p, np.ndarray) and p.dtype != bool) for p in parts]
    values = [np.asarray(p, np.int32) for p, m in zip(parts, moving, strict=True) if m]

    def rebuild(traced):
        rest = iter(traced)
        return tuple(next(rest) if m else p for p, m in zip(parts, moving, strict=True))

    return values, rebuild


def test_traced_reads_are_numpys():
    for shape, index in random_cases(2, 60, out_of_bounds=True):
        x = data(shape)
        values, rebuild = dynamic(index)
        got = shardwise.jit(lambda x, values, rebuild=rebuild: take_index(x, rebuild(values)))(x, values)
        np.testing.assert_array_equal(got, x[clipped(shape, index)], err_msg=f"{shape} {index}")


def test_sharding_never_changes_what_is_read(mesh):
    for k, (_, index) in enumerate(random_cases(3, 60, out_of_bounds=True)):
        spec = [P("x", "y"), P("y"), P(None, ("x", "y"))][k % 3]
        x = data((8, 4, 2))
        try:
            want = x[clipped(x.shape, index)]
        except IndexError:
            continue
        placed = shardwise.device_put(x, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(getitem(placed, index), want, err_msg=f"{index}")
        values, rebuild = dynamic(index)
        got = shardwise.jit(lambda x, values, rebuild=rebuild: take_index(x, rebuild(values)))(placed, values)
        np.testing.assert_array_equal(got, want, err_msg=f"{index}")


def test_modes_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    for shape, index in random_cases(4, 12, out_of_bounds=True):
        for dtype in (np.float32, np.int32):
            x = data(shape).astype(dtype)
            for mode, fill in ((None, None), ("fill", None), ("fill", 7), ("clip", None)):
                parts = index if isinstance(index, tuple) else (index,)
                narrow = tuple(p.astype(np.int32) if getattr(p, "dtype", None) == np.int64 else p for p in parts)
                want = jax.numpy.asarray(x).at[narrow].get(mode=mode, fill_value=fill)
                got = take_index(as_array(x), index, mode=mode, fill_value=fill)
                np.testing.assert_array_equal(got, want, err_msg=f"{shape} {index} {mode}")


def test_negative_indices_may_be_out_of_bounds():
    x = as_array(X)
    for index in (-1, np.array([-1])):
        got = take_index(x, index, mode="fill", wrap_negative_indices=False)
        assert np.isnan(np.asarray(got)).all()
        np.testing.assert_array_equal(np.ravel(take_index(x, index, wrap_negative_indices=False)), X[0])


def test_dtype_weakness_and_placement_stay():
    assert getitem(as_array(np.arange(3, dtype=np.int8)), 0).dtype == np.int8
    weak = shardwise.lax.full((3,), 2.0)
    for index in (0, slice(1, None), np.array([0, 1])):
        assert getitem(weak, index).weak_type == weak.weak_type
    device = shardwise.devices()[2]
    placed = shardwise.device_put(X, device)
    for index in (0, (slice(None), 1), np.array([0, 1])):
        got = getitem(placed, index)
        assert got.devices() == {device} and got.committed


def test_views_are_not_copied():
    x = as_array(data((1000, 1000)))
    assert np.shares_memory(np.asarray(getitem(x, slice(10, 20))), np.asarray(x))


def test_iterate():
    for row, want in zip(iterate(as_array(X)), X, strict=True):
        np.testing.assert_array_equal(row, want)
    with pytest.raises(TypeError, match="0-d"):
        iterate(as_array(np.float32(1)))
    rows = shardwise.jit(lambda x: [shardwise.lax.add(r, r) for r in iterate(x)])(X)
    np.testing.assert_array_equal(np.stack([np.asarray(r) for r in rows]), 2 * X)


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ([0, 1], TypeError, "non-tuple sequence"),
        (1.5, TypeError, "float64"),
        (np.zeros(2), TypeError, "integer or boolean"),
        (1j, TypeError, "integer or boolean"),
        ("a", TypeError, "string"),
        ((0, 0, 0), IndexError, "2-dimensional, but 3"),
        ((..., ...), IndexError, "ellipsis"),
        (np.ones((3, 3), bool), IndexError, "did not match shape"),
        (np.ones(4, bool), IndexError, "did not match shape"),
        (object(), IndexError, "only integers"),
        ({0: 1}, IndexError, "only integers"),
        (slice(None, None, 0), ValueError, "step"),
        (slice(1.0, 2), TypeError, "integer"),
        (2**40, OverflowError, "int32"),
        ((np.array([0, 1]), np.array([0, 1, 2])), ValueError, "broadcasting"),
    ],
)
def test_errors(index, error, words):
    jax = pytest.importorskip("jax")
    with pytest.raises(error):
        jax.numpy.asarray(X)[index]
    with pytest.raises(error, match=words):
        getitem(as_array(X), index)


def test_errors_of_empty_dims():
    empty = as_array(np.zeros((0, 3), np.float32))
    with pytest.raises(IndexError, match="size 0"):
        getitem(empty, 0)
    with pytest.raises(TypeError, match="gather"):
        getitem(empty, np.array([0]))
    assert getitem(empty, slice(1, 2)).shape == (0, 3)


def test_errors_while_tracing():
    with pytest.raises(IndexError, match="static integers"):
        shardwise.jit(lambda x, i: take_index(x, slice(i, None)))(X, 1)
    with pytest.raises(NonConcreteBooleanIndexError, match="concrete"):
        shardwise.jit(lambda x, m: take_index(x, m))(X, np.ones(3, bool))


def test_explicit_sharding():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = shardwise.device_put(data((8, 8)), NamedSharding(mesh, P(None, "y")))
    assert getitem(x, 0).aval.spec == (("y",),)
    assert getitem(x, slice(3)).aval.spec == ((), ("y",))
    assert getitem(x, np.array([1, 2])).aval.spec == ((), ("y",))
    with pytest.raises(ShardingTypeError, match="out_sharding"):
        getitem(x, (slice(None), np.array([1, 2])))
    got = take_index(x, (slice(None), np.array([1, 2])), out_sharding=NamedSharding(mesh, P("x", None)))
    assert got.aval.spec == (("x",), ())
    np.testing.assert_array_equal(got, data((8, 8))[:, [1, 2]])
    cut = shardwise.jit(lambda x: take_index(x, (slice(None), slice(4))))(x)
    assert cut.aval.spec == ((), ("y",))
    if config.dialect.explicit.eager_indexing_gathers:
        np.testing.assert_array_equal(getitem(x, (slice(None), 1)), data((8, 8))[:, 1])


TAKES = [
    (np.array([0, -1, 9]), None),
    (np.array([0, -1, 9]), 0),
    (np.array([[0, 1], [-4, -9]]), -1),
    (np.int32(1), 0),
    (True, 0),
    (np.zeros(0, np.int32), 0),
    (np.array([1, 200], np.uint8), 1),
]


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap"])
def test_take(mode):
    jax = pytest.importorskip("jax")
    for dtype in (np.float32, np.int32):
        for indices, axis in TAKES:
            if indices is True and mode in ("clip", "wrap"):
                continue
            want = jax.numpy.take(X.astype(dtype), indices, axis=axis, mode=mode)
            got = take(X.astype(dtype), indices, axis=axis, mode=mode)
            assert got.shape == want.shape
            np.testing.assert_array_equal(got, want, err_msg=f"{indices} {axis}")
            traced = shardwise.jit(lambda x, i, axis=axis: take(x, i, axis=axis, mode=mode))
            np.testing.assert_array_equal(traced(X.astype(dtype), indices), want)


def test_take_errors():
    refused: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (TypeError, (X, [0, 1])),
        (ValueError, (X, np.array([0.0]))),
        (ValueError, (X, 0, 3)),
        (NotImplementedError, (X, 0, 0, 1)),
        (NotImplementedError, (X, 0, 0, None, "raise")),
        (ValueError, (X, 0, 0, None, "foo")),
        (IndexError, (np.zeros((0, 3), np.float32), np.array([0]), 0)),
    ]
    for error, arguments in refused:
        with pytest.raises(error):
            take(*arguments)


def test_take_along_axis():
    jax = pytest.importorskip("jax")
    cases = [
        (X, np.array([[0], [-1], [9]]), 1),
        (X, np.array([[0, 1, 2, 9]]), 0),
        (X, np.array([0, 5, 99]), None),
        (X, np.array([[0, 1]] * 3), -1),
        (X[:1], np.array([[0, 1]] * 3), 1),
        (X, np.array([[1, 0]]), 1),
        (data((2, 3, 4)), RNG.integers(-3, 3, (2, 5, 4)), 1),
        (data((2, 3, 1)), RNG.integers(-3, 3, (1, 5, 4)), 1),
    ]
    for x, indices, axis in cases:
        settings: tuple[dict[str, Any], ...] = ({}, {"mode": "clip"}, {"fill_value": -5})
        for options in settings:
            index = indices.astype(np.int32)
            want = jax.numpy.take_along_axis(x, index, axis, **options)
            got = take_along_axis(x, index, axis, **options)
            assert got.shape == want.shape
            np.testing.assert_array_equal(got, want, err_msg=f"{indices} {axis} {options}")
    refused: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (ValueError, (X, np.array([0]), 1)),
        (TypeError, (X, np.array([[0.0]]), 1)),
        (ValueError, (X, np.array([[0, 1]] * 2), 1)),
        (ValueError, (X, np.array([[0, 1]] * 3), 5)),
        (ValueError, (X, np.array([[0, 1]] * 3), 1, "wrap")),
    ]
    for error, arguments in refused:
        with pytest.raises(error):
            jax.numpy.take_along_axis(*arguments)
        with pytest.raises(error):
            take_along_axis(*arguments)


def test_reading_nothing_from_an_empty_dim():
    x, i, none = jnp.zeros((0, 4)), jnp.int32(0), jnp.zeros(0, int)
    reads = [
        (lambda x, i: x[none], (0, 4)),
        (lambda x, i: x[none, i], (0,)),
        (lambda x, i: x[none[:, None], jnp.arange(4)], (0, 4)),
        (lambda x, i: jnp.take_along_axis(x, jnp.zeros((0, 4), int), 0), (0, 4)),
        (lambda x, i: x.T[i], (0,)),
    ]
    for read, shape in reads:
        assert read(x, i).shape == shardwise.jit(read)(x, i).shape == shape
    for read in (lambda x, i: x[i], lambda x, i: x[i, :2], lambda x, i: x.at[i].get(mode="fill")):
        with pytest.raises(IndexError, match="axis 0 with size 0"):
            shardwise.jit(read)(x, i)


@pytest.mark.parametrize("kind", ["auto", "explicit", "device"])
def test_repeated_indices_without_arrays(kind):
    """The second time the layout is known, and the part is taken from the whole: it is the same part, laid out the same."""
    host = np.arange(16 * 8 * 3, dtype=np.float32).reshape(16, 8, 3)
    if kind == "device":
        x = shardwise.device_put(host, shardwise.devices()[1])
    else:
        types = (shardwise.sharding.AxisType.Explicit if kind == "explicit" else shardwise.sharding.AxisType.Auto,) * 2
        mesh = shardwise.make_mesh((4, 2), ("x", "y"), axis_types=types)
        x = shardwise.device_put(host, shardwise.NamedSharding(mesh, shardwise.P("x", "y")))
    computed = x + 1  # of which only a block is there
    indices = [
        (3, 5), (-1, 0), (100, 15), ((3, 5), (2, 1)), ((..., 1), (..., 2)), ((None, 3), (None, 7)), ((2, slice(None), 1),) * 2,
        (slice(0, 8),) * 2, (slice(None, None, -1),) * 2, (slice(2, 3), slice(5, 6)), ((slice(4, 12, 2), 3), (slice(4, 12, 2), 1)),
        ((), ()), (np.int32(2), np.int32(3)), (slice(5, 5),) * 2,
    ]  # fmt: skip
    for pair in indices:
        for array, value in ((x, host), (computed, host + 1)):
            where = set()
            for index in pair * 2:
                y = array[index]
                np.testing.assert_array_equal(np.asarray(y), value[15 if index == 100 else index])
                where.add((y.sharding, y.aval, y.committed))
            assert len(where) == 1 or pair[0] == slice(2, 3), pair
    with pytest.raises(IndexError):
        x[1, 2, 3, 4]
    small = x[2, 1]
    assert not np.shares_memory(np.asarray(small), np.asarray(x))  # or it would keep all of x


@pytest.mark.parametrize(
    "read", [lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x.at[i].set(7), lambda x, i: x[i - 1]]
)
def test_arrays_may_hold_indices_beyond_int32(read):
    x, i = jnp.arange(9).reshape(3, 3), jnp.asarray(2**32 - 1, dtype="uint32")
    np.testing.assert_array_equal(read(x, i), shardwise.jit(read)(x, i))
    np.testing.assert_array_equal(read(x, np.uint32(2**32 - 1)), read(x, i))


OUTSIDE = {
    "int": lambda x: x[3],
    "negative": lambda x: x[-4],
    "second dim": lambda x: x[0, 4],
    "NumPy": lambda x: x[np.int32(3)],
    "new dim": lambda x: x[3, None],
    "ellipsis": lambda x: x[..., 4],
    "get": lambda x: x.at[3].get(),
    "promise": lambda x: x.at[3].get(mode="promise_in_bounds"),
}
ALLOWED = {
    "last": lambda x: x[-3],
    "slice": lambda x: x[2:9],
    "fill": lambda x: x.at[3].get(mode="fill"),
    "clip": lambda x: x.at[3].get(mode="clip"),
    "array": lambda x: x[jnp.array(5)],
    "index array": lambda x: x[np.array([0, 3])],
    "set": lambda x: x.at[3].set(0.0),
}


@pytest.mark.parametrize("jit", [lambda f: f, shardwise.jit], ids=["eager", "jit"])
def test_static_indices_are_checked_where_that_is_asked_for(jit):
    x = jnp.asarray(X)
    free = {name: jit(lambda x, f=f: f(x))(x).shape for name, f in {**OUTSIDE, **ALLOWED}.items()}
    with config.override("jax_check_static_indices", True):
        for name, read in OUTSIDE.items():
            with pytest.raises(IndexError, match="out of bounds for axis"):
                jit(lambda x, f=read: f(x))(x)
            assert free[name] is not None
        for name, read in ALLOWED.items():
            assert jit(lambda x, f=read: f(x))(x).shape == free[name]


@pytest.mark.parametrize(
    ("shape", "mask"), [((3,), (0,)), ((3, 4), (0,)), ((3, 4), (0, 4)), ((3, 4), (3, 0)), ((3, 4, 5), (3, 0))]
)
def test_an_empty_mask_chooses_nothing(shape, mask):
    x, none = np.ones(shape, np.float32), np.zeros(mask, bool)
    assert jnp.asarray(x)[none].shape == x[none].shape
    assert (jnp.asarray(x).at[none].set(2) == x).all()


@pytest.mark.parametrize(("shape", "mask"), [((3, 4), (2, 0)), ((3, 4), (0, 5)), ((0, 4), (3, 0))])
def test_an_empty_mask_of_other_sizes_is_refused(shape, mask):
    with pytest.raises(IndexError, match="boolean index did not match"):
        jnp.ones(shape)[np.zeros(mask, bool)]


ROWS = np.array([0, 1])


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), ROWS, ..., ROWS), (ROWS, ..., ROWS), (slice(None), 0, ..., ROWS), (slice(None), ROWS, ..., 0),
        (slice(1, None), ROWS, ..., ROWS, None), (None, slice(None), ROWS, ..., -1), (slice(None, None, 2), ROWS[:, None], ..., ROWS),
        (slice(None), np.array([True, False, True, False]), ..., ROWS), (slice(None), 1, ..., 2), (0, ..., ROWS, slice(3)),
        (..., ROWS, 1), (slice(None), ROWS, 1, ...), (slice(None), -1, ..., slice(1, 3)),
    ],
)  # fmt: skip
def test_an_ellipsis_of_no_dims_keeps_arrays_apart(index):
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    want, array = x[index], jnp.asarray(x)
    assert (got := array[index]).shape == want.shape and (np.asarray(got) == want).all()
    assert (np.asarray(shardwise.jit(lambda x: x[index])(array)) == want).all()
    changed = x.copy()
    changed[index] = np.arange(want.size).reshape(want.shape)
    assert (np.asarray(array.at[index].set(np.arange(want.size).reshape(want.shape))) == changed).all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex64"])
def test_elements_along_an_axis_by_rows_of_a_single_one(dtype):
    import shardwise.numpy as jnp

    x = jnp.arange(6).reshape(2, 3).astype(dtype)
    found = jnp.take_along_axis(x, jnp.array([[0, 5], [1, -1]]), 1, mode="one_hot", fill_value=7)
    assert found.dtype == x.dtype
    assert found.tolist() == jnp.array([[0, 0], [4, 5]]).astype(dtype).tolist()
