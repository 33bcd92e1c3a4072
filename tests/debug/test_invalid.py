"""NaNs and infinities in compiled programs are blamed on the op and the line that gave them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, NamedSharding, PartitionSpec, make_mesh


def blamed(x):
    y = x * 2
    z = jnp.log(y)  # this line
    return (z * 2 + y).sum()


LINE = inspect.getsourcelines(blamed)[1] + 2
WRONG = np.array([1.0, -1.0, 2.0, 3.0], np.float32)


@pytest.mark.parametrize(
    "jit", [jax.jit, lambda f: jax.jit(jax.value_and_grad(f)), lambda f: jax.jit(lambda x: jax.jit(f)(x))]
)
def test_the_op_and_its_line(jit):
    with (
        jax.debug_nans(True),
        pytest.raises(FloatingPointError, match=rf"\(nan\) .* log at test_invalid\.py:{LINE}, in "),
    ):
        jit(blamed)(WRONG)
    with (
        jax.debug_infs(True),
        pytest.raises(FloatingPointError, match=rf"\(inf\) .* log at test_invalid\.py:{LINE}, in "),
    ):
        jit(blamed)(np.array([0.0], np.float32))


def test_on_several_devices():
    mesh = make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x = jax.device_put(np.tile(WRONG, 2), NamedSharding(mesh, PartitionSpec("x")))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=rf"log at test_invalid\.py:{LINE}"):
        jax.jit(blamed, donate_argnums=0)(x)
    assert not x.is_deleted()


@pytest.mark.parametrize("axes", [None, "x"])
@pytest.mark.parametrize("read", [lambda x: x[1], lambda x: x[0:2], lambda x: x[None, 1], lambda x: x[1:][0], list])
def test_what_is_read_without_an_op_is_checked(read, axes):
    lies = None if axes is None else NamedSharding(make_mesh((2,), ("x",)), PartitionSpec())
    x = jax.device_put(np.array([1.0, np.nan, 2.0], np.float32), lies)
    y = jax.device_put(np.array([1.0, np.inf, 2.0], np.float32), lies)
    _ = read(x), read(y), x[0]  # that is nothing new later
    with jax.debug_nans(True):
        assert x[0] == 1.0
        read(y)
        with pytest.raises(FloatingPointError, match=r"\(nan\)"):
            read(x)
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"\(inf\)"):
        read(y)


def test_an_argument_is_not_blamed_on_an_op():
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"\(nan\) encountered in <lambda>:"):
        jax.jit(lambda x: x * 2)(np.array([np.nan], np.float32))


def test_a_loop_is_named():
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.log(c), x) + 1)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"(while|scan).* at test_invalid\.py"):
        loop(WRONG)


def test_callbacks_are_not_called_again():
    seen = []

    def f(x):
        jax.debug.callback(lambda v: seen.append(v), x)
        return jnp.log(x)

    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"encountered in f:"):
        jax.jit(f)(WRONG)
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "complex64"])
def test_narrow_and_complex_dtypes_are_checked(dtype):
    wrong = lambda x: -(x - x) / (x - x) + x  # noqa: E731
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"\(nan\) .* div at test_invalid"):
        jax.jit(wrong)(jnp.ones(2, dtype))
    with jax.debug_nans(True):
        assert jax.jit(jnp.negative)(jnp.ones(2, dtype)).dtype == dtype


@pytest.mark.parametrize("value", [np.nan, [1.0, np.nan], np.array([np.nan]), complex(np.nan, 0.0)], ids=repr)
def test_arrays_made_of_nan_on_the_host_are_refused(value):
    for make in (jnp.array, jnp.asarray):
        with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"\(nan\)"):
            make(value)
    with jax.debug_infs(True):
        assert jnp.isnan(jnp.asarray(value)).any()
