"""x.at[...], put, put_along_axis: values against NumPy and the oracle, eager, traced and sharded; casts and errors."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import shardwise
from shardwise import lax
from shardwise.base.errors import NonConcreteBooleanIndexError, ShardingTypeError, TypePromotionError
from shardwise.ir import trace_program
from shardwise.numpy.at import at
from shardwise.numpy.putting import put, put_along_axis
from shardwise.ops.rules.convert import as_array
from shardwise.sharding import AxisType, Mesh, NamedSharding, P
from tests.numpy.index_forms import clipped, random_cases
from tests.numpy.test_indexing import data, dynamic

RNG = np.random.default_rng(0)
X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def values_for(shape, index):
    want = np.zeros(shape)[clipped(shape, index)].shape
    some = tuple(1 if RNG.random() < 0.2 else n for n in want)
    return RNG.integers(-3, 4, some).astype(np.float32)


def written(x, index, values, name):
    out = x.copy()
    index = clipped(x.shape, index)
    if name == "set":
        out[index] = values
    else:
        UFUNCS[name].at(out, index, values)
    return out


@pytest.mark.parametrize("name", ["set", *UFUNCS])
def test_writes_are_numpys(name):
    for shape, index in random_cases(11, 80):
        x, values = data(shape), values_for(shape, index)
        got = getattr(at(as_array(x))[index], name)(values)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, written(x, index, values, name), err_msg=f"{shape} {index}")


@pytest.mark.parametrize("name", ["set", "add", "max"])
def test_traced_writes_are_numpys(name):
    for shape, index in random_cases(12, 30):
        x, values = data(shape), values_for(shape, index)
        where, rebuild = dynamic(index)
        write = shardwise.jit(lambda x, where, v, rebuild=rebuild: getattr(at(x)[rebuild(where)], name)(v))
        np.testing.assert_array_equal(
            write(x, where, values), written(x, index, values, name), err_msg=f"{shape} {index}"
        )


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min"])
def test_sharding_never_changes_what_is_written(name):
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"))
    x = data((8, 4, 2))
    for k, (_, index) in enumerate(random_cases(13, 40)):
        try:
            values = values_for(x[index].shape, ())
        except IndexError:
            continue
        want = written(x, index, values, name)
        placed = shardwise.device_put(x, NamedSharding(mesh, [P("x", "y"), P("y"), P(None, ("x", "y"))][k % 3]))
        got = getattr(at(placed)[index], name)(values)
        np.testing.assert_array_equal(got, want, err_msg=f"{index}")
        where, rebuild = dynamic(index)
        write = shardwise.jit(lambda x, where, v, rebuild=rebuild: getattr(at(x)[rebuild(where)], name)(v))
        np.testing.assert_array_equal(write(placed, where, values), want, err_msg=f"{index}")


GRIDS = {
    "even": np.s_[..., ::2],
    "odd rows": np.s_[1::2],
    "backwards": np.s_[:, ::-2],
    "within": np.s_[:, 1:8:2],
    "of most rows": np.s_[:5, ::2],
    "new dims": np.s_[None, :, 1::2, None],
}


@pytest.mark.parametrize("dtype", ["float32", "bool", "int32", "complex64", "bfloat16"])
@pytest.mark.parametrize("name", GRIDS)
def test_strided_slices_of_half_a_value_are_written_in_one_loop(name, dtype):
    index = GRIDS[name]
    x = data((6, 8)).astype(dtype)
    values = RNG.integers(0, 5, x[index].shape).astype(dtype)
    want = x.copy()
    want[index] = values
    got = shardwise.jit(lambda x, v: at(x)[index].set(v))(x, values)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    types = [as_array(a).aval for a in (x, values)]
    program, _ = trace_program(lambda x, v: [at(x)[index].set(v)], types)
    assert "scatter" not in [e.op.name for e in program.equations]
    shown = str(shardwise.make_jaxpr(lambda x, v: at(x)[index].set(v))(x, values))
    assert "scatter" in shown and "select_n" not in shown


def test_strided_slices_of_keys_and_of_a_small_part_are_scattered():
    keys = shardwise.random.split(shardwise.random.key(0), 8)
    got = shardwise.random.key_data(shardwise.jit(lambda x: at(x)[1::2].set(x[0]))(keys))
    want = np.array(shardwise.random.key_data(keys))
    want[1::2] = want[0]
    np.testing.assert_array_equal(got, want)
    program, _ = trace_program(lambda x: [at(x)[::3].set(0.0)], [as_array(data((9,))).aval])
    assert "scatter" in [e.op.name for e in program.equations]


def test_the_result_lies_as_the_operand():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"))
    x = shardwise.device_put(data((8, 4)), NamedSharding(mesh, P("x", "y")))
    for index in (0, slice(2, 5), np.array([0, 3]), (slice(None), np.array([1]))):
        assert at(x)[index].set(1.0).sharding.is_equivalent_to(x.sharding, 2)
        assert at(x)[index].add(1.0).sharding.is_equivalent_to(x.sharding, 2)


def test_split_updates_are_reduced():
    """Updates that lie split over devices are added where they are; a reduction completes the sum."""
    mesh = Mesh(np.array(shardwise.devices()[:4]), ("x",))
    rows = shardwise.device_put(RNG.integers(0, 9, (16, 3)).astype(np.float32), NamedSharding(mesh, P("x")))
    where = shardwise.device_put(RNG.integers(0, 5, 16).astype(np.int32), NamedSharding(mesh, P("x")))
    for name in ("add", "multiply", "min", "max"):
        write = shardwise.jit(lambda x, i, v, name=name: getattr(at(x)[i], name)(v))
        got = write(np.ones((5, 3), np.float32), where, rows)
        np.testing.assert_array_equal(
            got, written(np.ones((5, 3), np.float32), np.asarray(where), np.asarray(rows), name)
        )


def test_out_of_bounds_and_modes():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    indices = [
        7,
        -7,
        np.array([-1, 7, 1]),
        (slice(1, 9), 9),
        (0, 9),
        (slice(None), np.array([0, 9])),
        np.array([[5, 0]]),
    ]
    modes = (None, "drop", "clip", "promise_in_bounds")
    for (index, mode), name in zip(itertools.product(indices, modes), itertools.cycle(("set", "add", "min"))):
        want = getattr(x.at[index], name)(-1.0, mode=mode)
        got = getattr(at(as_array(X))[index], name)(-1.0, mode=mode)
        np.testing.assert_array_equal(got, want, err_msg=f"{index} {mode} {name}")
    want = x.at[np.array([0, -1])].set(9, wrap_negative_indices=False)
    np.testing.assert_array_equal(at(as_array(X))[np.array([0, -1])].set(9, wrap_negative_indices=False), want)


def test_dtypes_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    cases = [
        (np.int32, 2.5, "set"), (np.int32, 2.5, "add"), (np.int32, True, "set"), (np.int32, -0.5, "min"),
        (np.int32, 2.5, "multiply"), (np.uint8, -1, "add"), (np.uint8, -1, "set"), (np.uint8, 300, "set"),
        (np.float32, 1, "add"), (np.float32, np.float16(1), "add"), (np.float16, np.float32(1), "set"),
        (np.float32, 1j, "set"), (np.bool_, False, "set"), (np.bool_, True, "max"), (np.int32, 2, "divide"),
        (np.float32, 2, "divide"), (np.int32, 2, "power"), (np.float32, 2, "power"), (np.int32, 0, "divide"),
    ]  # fmt: skip
    for dtype, value, name in cases:
        for index in (0, np.array([0, 0, 2])):
            x = np.arange(3).astype(dtype)
            with warnings.catch_warnings(record=True) as theirs:
                warnings.simplefilter("always")
                want = getattr(jax.numpy.asarray(x).at[index], name)(value)
            with warnings.catch_warnings(record=True) as ours:
                warnings.simplefilter("always")
                got = getattr(at(as_array(x))[index], name)(value)
            assert got.dtype == want.dtype, (dtype, value, name)
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} {value} {name}")
            told = FutureWarning, np.exceptions.ComplexWarning
            kinds = [{w.category for w in caught if w.category in told} for caught in (theirs, ours)]
            assert kinds[0] == kinds[1], (dtype, value, name)


def test_weak_types_stay():
    weak = lax.full((3,), 2.0)
    assert at(weak)[0].set(2.0).weak_type == weak.weak_type


def test_apply():
    jax = pytest.importorskip("jax")

    def double(v):
        return lax.add(lax.mul(v, 2.0), 1.0)

    for index in (0, np.array([0, 0, 1]), (slice(None), np.array([1, 1])), (slice(None, None, 2), 1), np.array([7, 0])):
        want = jax.numpy.asarray(X).at[index].apply(lambda v: v * 2 + 1)
        np.testing.assert_array_equal(at(as_array(X))[index].apply(double), want)
        np.testing.assert_array_equal(shardwise.jit(lambda x, index=index: at(x)[index].apply(double))(X), want)
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"))
    x = shardwise.device_put(data((8, 4)), NamedSharding(mesh, P("x", "y")))
    want = data((8, 4))
    want[[1, 5]] *= -1
    np.testing.assert_array_equal(at(x)[np.array([1, 5])].apply(lax.neg), want)
    want = jax.numpy.asarray(X).at[np.array([0, 0])].apply(lambda v: v + 5)
    five = as_array(np.float32(5))
    np.testing.assert_array_equal(at(as_array(X))[np.array([0, 0])].apply(lambda v: lax.add(v, five)), want)
    with pytest.raises(TypeError, match="scalars of int32"):
        at(as_array(np.arange(3, dtype=np.int32)))[0].apply(lambda v: lax.convert_element_type(v, np.float32))


def test_explicit_sharding():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = shardwise.device_put(data((8, 8)), NamedSharding(mesh, P(None, "y")))
    rows = shardwise.device_put(np.ones((2, 8), np.float32), NamedSharding(mesh, P(None, "y")))
    got = at(x)[np.array([1, 2])].add(rows)
    assert got.aval.spec == ((), ("y",))
    split = shardwise.device_put(data((8, 8)), NamedSharding(mesh, P("x", None)))
    with pytest.raises(ShardingTypeError, match="out_sharding"):
        at(split)[np.array([1, 2])].add(1.0)
    got = at(split)[np.array([1, 2])].add(1.0, out_sharding=NamedSharding(mesh, P("x", None)))
    want = data((8, 8))
    want[[1, 2]] += 1
    np.testing.assert_array_equal(got, want)
    assert got.aval.spec == (("x",), ())
    auto = NamedSharding(Mesh(mesh.devices, ("x", "y"), axis_types=(AxisType.Auto,) * 2), P("x"))
    for f in (lambda h: h.get(out_sharding=auto), lambda h: h.add(1.0, out_sharding=auto)):
        with pytest.raises(ValueError, match="of type Auto"):
            f(at(shardwise.device_put(data((8,)), auto))[np.array([1, 2])])


def test_values_of_other_kinds():
    x = as_array(X)
    np.testing.assert_array_equal(at(x)[0].set([1, 2, 3, 4]), np.concatenate([[[1, 2, 3, 4]], X[1:]]))
    got = shardwise.jit(lambda x, a: at(x)[0].set([a, a, a, a]))(X, np.float32(3))
    assert np.asarray(got)[0].tolist() == [3, 3, 3, 3]
    np.testing.assert_array_equal(at(x)[0].set(range(4)), np.concatenate([[[0, 1, 2, 3]], X[1:]]))
    got = shardwise.jit(lambda x, a: at(x)[:2, :2].set([[a, 1], [2, 3]]))(X, np.float32(3))
    assert np.asarray(got)[:2, :2].tolist() == [[3, 1], [2, 3]]
    np.testing.assert_array_equal(at(x)[...].set(3), np.full((3, 4), 3, np.float32))
    np.testing.assert_array_equal(at(x)[True].set(1.0), np.ones((3, 4)))
    np.testing.assert_array_equal(at(x)[np.asarray(X) > 3].set(0.0), np.where(X > 3, 0, X))


def test_errors():
    x = as_array(X)
    for index, value, error in (
        ([0, 1], 1.0, TypeError),
        (0, np.ones(3), ValueError),
        (0, np.ones((1, 1, 4)), ValueError),
        (np.asarray(X) > 3, np.arange(3.0), ValueError),
        (0, "a", TypeError),
        (1.5, 1.0, TypeError),
        ((0, 0, 0), 1.0, IndexError),
    ):
        with pytest.raises(error):
            at(x)[index].set(value)
    with pytest.raises(ValueError, match="Unknown gather mode 'foo'"):
        at(x)[0].set(1, mode="foo")
    with pytest.raises(TypeError, match="bools"):
        at(as_array(X > 2))[np.array([0])].add(True)
    with pytest.raises(IndexError, match="size 0"):
        at(as_array(np.zeros((0, 3), np.float32)))[0].set(1.0)
    with pytest.raises(NonConcreteBooleanIndexError):
        shardwise.jit(lambda x, m: at(x)[m].set(0.0))(X, np.ones(3, bool))
    assert repr(at(x)[0]).startswith("_IndexUpdateRef(Array([[ 0.,")


def test_put():
    jax = pytest.importorskip("jax")
    cases = [
        (np.array([0, -1]), np.array([5.0, 6.0]), None),
        (np.array([0, 99]), np.array([5.0, 6.0]), None),
        (np.array([0, 13]), 5.0, "wrap"),
        (np.array([0, 1, 2]), np.array([5.0, 6.0]), None),
        (np.array([1, 99, -99, -1]), 5.0, "clip"),
        (np.array([1, 99, -99, -1]), 5.0, None),
        (np.array([0, 1]), np.zeros(0), None),
        (np.array([[0], [1]]), np.arange(6.0), None),
    ]
    for where, value, mode in cases:
        value = np.asarray(value, np.float32)
        want = jax.numpy.put(X, where.astype(np.int32), value, mode=mode, inplace=False)
        np.testing.assert_array_equal(put(X, where.astype(np.int32), value, mode=mode, inplace=False), want)
    with pytest.raises(ValueError, match="immutable"):
        put(X, 0, 5.0)
    with pytest.raises(NotImplementedError, match="raise"):
        put(X, 0, 5.0, mode="raise", inplace=False)


def test_put_along_axis():
    jax = pytest.importorskip("jax")
    cases = [
        (np.array([[0], [1], [2]]), 9.0, 1, None),
        (np.array([[0, 9, 1, 2]]), 9.0, 0, None),
        (np.array([0, 3]), 9.0, None, None),
        (np.array([[9], [1], [2]]), 9.0, 1, "clip"),
        (np.array([[0, 1], [1, 1], [2, 3]]), np.arange(6.0).reshape(3, 2), 1, None),
    ]
    for where, value, axis, mode in cases:
        where, value = where.astype(np.int32), np.asarray(value, np.float32)
        want = jax.numpy.put_along_axis(X, where, value, axis, inplace=False, mode=mode)
        np.testing.assert_array_equal(put_along_axis(X, where, value, axis, inplace=False, mode=mode), want)
    with pytest.raises(ValueError, match="immutable"):
        put_along_axis(X, np.array([[0], [1], [2]]), 9.0, 1)


def test_a_whole_update_lies_as_the_array():
    mesh = shardwise.make_mesh((4, 2), ("x", "y"))
    x = shardwise.device_put(X[:2].repeat(4, 0), NamedSharding(mesh, P("x", "y")))
    for result in (x.at[:].set(0.0), shardwise.jit(lambda x: x.at[...].set(0.0))(x), x.at[:].add(1.0)):
        assert result.sharding.spec == P("x", "y")


@pytest.mark.parametrize("index", [-1, 99, (slice(1, 3), -1), (..., 0), (None, 1), slice(5, 1, -1), (2, slice(0, 0))])
@pytest.mark.parametrize("value", [3, 2.5, np.int32(-4)])
def test_scalars_put_into_windows_again_and_again(index, value):
    """Places are kept by index: a second call, and other values, give what the first one under jit gives."""
    mode = "clip" if value == 3 else None
    for x in (
        shardwise.numpy.arange(32.0).reshape(8, 4),
        shardwise.numpy.arange(32).reshape(8, 4),
        shardwise.numpy.ones((8, 4), bool),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            want = shardwise.jit(lambda x: x.at[index].set(value, mode=mode))(x)
        for _ in range(2):
            with warnings.catch_warnings(record=True) as again:
                warnings.simplefilter("always")
                got = x.at[index].set(value, mode=mode)
            assert got.aval == want.aval
            np.testing.assert_array_equal(got, want)
            assert [str(w.message) for w in again] == [str(w.message) for w in caught]


@pytest.mark.parametrize("index", [np.int64(1), np.zeros((2, 2), int), (0, 0, 0), 1.5, (slice(None), np.int64(0))])
def test_of_two_mistakes_the_index_is_named_first(index):
    """As under jit: the index is read before the value, of arrays that exist as well."""
    x = shardwise.numpy.ones(())
    with pytest.raises((IndexError, TypeError)) as traced:
        shardwise.jit(lambda x: x.at[index].set(None))(x)
    with pytest.raises(type(traced.value)) as eager:
        x.at[index].set(None)
    assert str(eager.value) == str(traced.value)


def test_updates_on_a_split_explicit_dim_ask_for_out_sharding():
    mesh = shardwise.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = shardwise.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), NamedSharding(mesh, P("x", "y")))
    with shardwise.set_mesh(mesh):
        for index, combine in ((2, "set"), (slice(0, 2), "add"), (np.array([1, 2]), "add")):
            with pytest.raises(Exception, match=rf"x\.at\[\.\.\.\]\.{combine}\(\.\.\., out_sharding=P") as info:
                getattr(x.at[index], combine)(np.ones(4, np.float32))
            assert "Sharding" in type(info.value).__name__
            updated = getattr(x.at[index], combine)(np.ones(4, np.float32), out_sharding=P("x", "y"))
            expected = np.asarray(x).copy()
            expected[index] = 1 if combine == "set" else expected[index] + 1
            np.testing.assert_array_equal(np.asarray(updated), expected)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_a_bool_meets_integers_under_strict_promotion(dtype):
    x = shardwise.numpy.ones(3, dtype)
    with shardwise.numpy_dtype_promotion("strict"):
        assert x.at[0].set(False).tolist() == x.at[0].min(False).tolist() == [0, 1, 1]
        with pytest.raises(TypePromotionError):
            x.at[0].set(np.True_)
        with pytest.raises(TypePromotionError):
            shardwise.numpy.ones(3).at[0].set(False)


WIDE_INDICES = {
    "set": lambda x, n: x.at[n].set(1),
    "add": lambda x, n: x.at[n].add(1),
    "fill": lambda x, n: x.at[n].get(mode="fill", fill_value=7),
    "get": lambda x, n: x.at[n].get(),
    "read": lambda x, n: x[n],
    "column": lambda x, n: x.reshape(1, -1).at[0, n].set(5),
}


@pytest.mark.parametrize("wide_types", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("number", [2**31, 2**63 - 1, -(2**31) - 1, -(2**63), 10**30], ids=str)
@pytest.mark.parametrize("name", WIDE_INDICES)
def test_a_python_int_of_any_size_as_index(name, number, jitted, wide_types):
    """What no 32 bits hold is beyond the end, where JAX keeps its upper bits, and refused where JAX refuses it."""
    jax = pytest.importorskip("jax")
    found = []
    for lib, x64 in ((shardwise, shardwise.enable_x64), (jax, jax.enable_x64)):
        with x64(wide_types):
            f = lambda x: WIDE_INDICES[name](x, number)  # noqa: E731
            x = lib.numpy.arange(5)
            try:
                found.append((lib.jit(f) if jitted else f)(x).tolist())
            except OverflowError:
                found.append("OverflowError")
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["set", *UFUNCS])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_writes_of_nothing_have_derivatives(name, shape):
    """No window fits into an empty dim, so that none can be read for the derivative."""
    x, where = np.zeros(shape, np.float32), np.zeros(0, np.int32)
    out, pull = shardwise.vjp(lambda x, y: getattr(at(x)[where], name)(y), as_array(x), as_array(x[where]))
    assert out.shape == shape
    assert [ct.shape for ct in pull(out)] == [shape, x[where].shape]
