"""Caches tell params apart by type and bits: every way in which an op runs gives each value of a param its own result."""

from __future__ import annotations

import struct
from itertools import combinations

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Emit, ExactParams, ShapedArray, all_ops, bind, define_op, exact, params_key
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

NAN, OTHER_NAN = struct.unpack("<2d", struct.pack("<2Q", 0x7FF8000000000000, 0xFFF8000000000001))

# Values no two of which are the same.
DIFFERENT = [
    0, 1, True, False, 0.0, -0.0, 1.0, 0j, complex(0.0, -0.0), complex(-0.0, 0.0), NAN, OTHER_NAN, None, "0", "1",
    np.float32(0), np.float32(-0.0), np.float64(0), np.int32(0), np.int64(0), np.bool_(False), np.uint32(1),
    (), (0,), (0.0,), (-0.0,), (False,), (0j,), ((0,),), ((-0.0,),), (np.float32(0),), frozenset({0}), frozenset({-0.0}),
    np.zeros(1), -np.zeros(1), np.zeros(1, np.float32), np.zeros((1, 1)), slice(0, 1), slice(0.0, 1), slice(False, 1),
    GatherDimensionNumbers((0,), (), ()), GatherDimensionNumbers((), (0,), ()), bool, float,
]  # fmt: skip


def test_exact_keys_differ_where_values_do():
    for a, b in combinations(DIFFERENT, 2):
        assert exact(a) != exact(b), (a, b)
        assert exact((a,)) != exact((b,)), (a, b)


def test_exact_keys_are_equal_where_values_are_the_same():
    again = [eval(f"{x!r}", {"nan": NAN}) for x in (0, 1.5, -0.0, (1, (2.0, True)), "a", None, 1j)]
    for x, y in zip((0, 1.5, -0.0, (1, (2.0, True)), "a", None, 1j), again, strict=True):
        assert exact(x) == exact(y)
        assert hash(exact(x)) == hash(exact(y))
    assert exact(float(NAN)) == exact(struct.unpack("<d", struct.pack("<d", NAN))[0])
    assert exact(np.arange(3.0)) == exact(np.arange(3.0))
    assert exact(GatherDimensionNumbers((0,), (), ())) == exact(GatherDimensionNumbers((0,), (), ()))


def test_exact_params_know_no_order():
    one, other = ExactParams({"a": 0.0, "b": (1,)}), ExactParams({"b": (1,), "a": 0.0})
    assert one == other
    assert hash(one) == hash(other)
    assert one != ExactParams({"a": -0.0, "b": (1,)})
    assert dict(one) == {"a": 0.0, "b": (1,)}
    with pytest.raises(TypeError, match="unhashable"):
        hash(ExactParams({"a": []}))


def test_a_forged_key_equals_no_other():
    assert exact(exact(True)) == exact(True)  # a mark stands for itself
    assert exact((exact(True), 1)) != exact((True, 1.0))


# -- every cache ------------------------------------------------------------------------------------------------------

# An op whose result shows its param: the kinds of kernels are those of any elementwise op.


def _echo_op(name: str, cost: int | None):
    def ufunc_of_params(env, x, value):
        return np.full_like(x, _shown(value))

    def write(lanes, x, value):
        return lanes.like(_shown(value), x)

    emit = None if cost is None else Emit(write, "f", cost=cost)
    return define_op(
        name,
        type_rule=lambda x, value: ShapedArray(x.shape, x.dtype),
        kernel=ufunc_of_params,
        emit=emit,
        localize=lambda params, ins, outs: params,
    )


def _shown(value):
    """The param as a number whose bits say which one it was."""
    number = value[0] if isinstance(value, tuple) else value
    kinds = (bool, int, float, np.float32, np.int32)
    return number if type(number) is float else 100 + 10 * kinds.index(type(number)) + float(number)


VALUES = [
    0.0,
    -0.0,
    0,
    False,
    1,
    1.0,
    True,
    np.float32(0),
    np.float32(1),
    np.int32(1),
    (0.0,),
    (-0.0,),
    (1.0,),
    (1,),
    (True,),
]
OPS = {cost: _echo_op(f"test_echo_{cost}", cost) for cost in (None, 1, 50)}
MESH = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))


def _bits(x) -> bytes:
    return np.asarray(x).reshape(-1)[:1].tobytes()


def _expected(value) -> bytes:
    return np.float32(_shown(value)).tobytes()


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
@pytest.mark.parametrize("cost", list(OPS))
def test_each_value_of_a_param_has_its_own_result(cost, order):
    op, values = OPS[cost], VALUES[::order]
    small, large = jnp.ones(4, jnp.float32), jnp.ones(1 << 17, jnp.float32)
    split = jax.device_put(jnp.ones(8, jnp.float32), NamedSharding(MESH, P("x")))

    def echo(x):
        return [bind(op, x, value=v) for v in values]

    def in_scan(x):
        return lax.scan(lambda c, _: (c + 1, echo(c)), x, None, length=3)[1]

    found = {
        "eager": echo(small),
        "eager, split": echo(split),
        "eager vmap": [jax.vmap(lambda x, v=v: bind(op, x, value=v))(jnp.ones((2, 3))) for v in values],
        "jit of each": [jax.jit(lambda x, v=v: bind(op, x, value=v))(small) for v in values],
        "jit of all": jax.jit(echo)(small),
        "jit of all, large": jax.jit(lambda x: [y * 1 for y in echo(x)])(large),
        "jit of all, split": jax.jit(echo)(split),
        "jit of vmap": jax.jit(jax.vmap(echo))(jnp.ones((2, 3))),
        "scan": jax.jit(in_scan)(small),
        "shard_map": jax.jit(jax.shard_map(echo, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False))(split),
        "cond": lax.cond(True, echo, echo, small),
    }
    for way, results in found.items():
        for value, result in zip(values, results, strict=True):
            assert _bits(result) == _expected(value), (way, value, result)


# Functions with settings that may be numbers of any kind: calls in either order give what they give alone.
CALLS = {
    "take": lambda x, v: jnp.take(x, jnp.array([9]), mode="fill", fill_value=v),
    "at get": lambda x, v: x.at[jnp.array([9])].get(mode="fill", fill_value=v),
    "nan_to_num": lambda x, v: jnp.nan_to_num(x * jnp.nan, nan=v),
    "leaky_relu": lambda x, v: jax.nn.leaky_relu(-x, v),
    "full": lambda x, v: jnp.full(2, v, jnp.float32),
    "full_like": lambda x, v: jnp.full_like(x, v),
    "where": lambda x, v: jnp.where(x > 9, x, v),
    "maximum": lambda x, v: jnp.copysign(x, v),
    "multiply": lambda x, v: x * v,
    "lax.pad": lambda x, v: lax.pad(x, np.float32(v), [(1, 0, 0)]),
    "pad": lambda x, v: jnp.pad(x, 1, constant_values=v),
    "reduce": lambda x, v: lax.reduce(x[:0], np.float32(v), lax.add, (0,)),
    "sum": lambda x, v: jnp.sum(x[:0] * -1, initial=v),
    "static": lambda x, v: jnp.sign(jnp.float32(v)) * 0 + jnp.float32(v),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_signs_of_zero_do_not_share_a_result(name):
    call, x = CALLS[name], jnp.ones(4, jnp.float32)
    found = {}
    for run in (call, lambda x, v: jax.jit(lambda x: call(x, v))(x), None):
        for order in ((0.0, -0.0, 0.0), (-0.0, 0.0, -0.0)):
            jax.clear_caches()
            outs = jax.jit(lambda x: [call(x, v) for v in order])(x) if run is None else [run(x, v) for v in order]  # noqa: B023
            for v, out in zip(order, outs, strict=True):
                found.setdefault(str(v), set()).add(_bits(out))
    assert all(len(bits) == 1 for bits in found.values()), found


def test_an_op_with_plain_params_keeps_the_short_key():
    op = all_ops()["reduce_sum"]
    assert params_key(op, {}) == ()
    jnp.ones((2, 3)).sum(axis=0)
    assert not op.numeric
    assert params_key(op, {"axes": (0,)}) != params_key(op, {"axes": 0})
