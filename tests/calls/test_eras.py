"""What the JAX of today removed is taken by the seed dialect and refused by the latest one."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.custom_derivatives
import shardwise.numpy as jnp
import shardwise.scipy.stats

X = np.array([-1.0, 0.5, 2.0], np.float32)


@pytest.mark.parametrize("name", ["device_put_replicated", "device_put_sharded"])
def test_names_of_the_seed_era(name):
    assert callable(getattr(sw, name)) and name in dir(sw)


@pytest.mark.parametrize("name", ["device_put_replicated", "device_put_sharded"])
def test_names_that_are_gone(name, latest):
    assert name not in dir(sw)
    with pytest.raises(AttributeError, match="device_put"):
        getattr(sw, name)


@pytest.mark.parametrize("old", [{"a_min": 0.0}, {"a_max": 1.0}])
def test_old_keywords_of_clip(old):
    expected = np.clip(X, old.get("a_min"), old.get("a_max"))
    np.testing.assert_array_equal(jnp.clip(X, **old), expected)


@pytest.mark.parametrize("old", [{"a_min": 0.0}, {"a_max": 1.0}, {"a": 1.0}])
def test_old_keywords_of_clip_that_are_gone(old, latest):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        jnp.clip(X, **old)


def _identity(x):
    return x


GONE = [
    ("abstracted_axes", lambda **old: sw.jit(_identity, **old)),
    ("abstracted_axes", lambda **old: sw.make_jaxpr(_identity, **old)),
    ("global_arg_shapes", lambda **old: sw.pmap(_identity, **old)),
    ("vectorized", lambda **old: sw.pure_callback(_identity, sw.ShapeDtypeStruct((3,), np.float32), X, **old)),
]
NEVER = [
    ("vma", lambda **other: sw.ShapeDtypeStruct((3,), np.float32, **other)),
    ("named", lambda **other: sw.lax.cond(True, _identity, _identity, X, **other)),
    ("wrap_negative", lambda **other: sw.lax.gather(X, X, None, (1,), **other)),  # type: ignore[arg-type]
    ("policy", sw.checkpoint),
    ("inplace", lambda **other: jnp.asarray(X).byteswap(**other)),
    ("out_sharding", lambda **other: jnp.empty_like(X, **other)),
]


@pytest.mark.parametrize("name, call", GONE)
def test_arguments_of_the_seed_era(name, call):
    call(**{name: None})


@pytest.mark.parametrize("name, call", GONE)
def test_arguments_that_are_gone(name, call, latest):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        call(**{name: None})


@pytest.mark.parametrize("name, call", NEVER)
def test_arguments_that_no_era_has(name, call):
    with pytest.raises(TypeError):
        call(**{name: None})


def test_axes_by_the_plural_of_the_seed_era(latest):
    with pytest.raises(TypeError, match="out_shardings"):
        sw.sharding.auto_axes(_identity, out_shardings=None)


def test_an_operand_may_be_none():
    assert sw.lax.cond(True, lambda x: 1.0, lambda x: 2.0, operand=None) == 1.0
    assert sw.lax.switch(0, [lambda x: 1.0], operand=None) == 1.0


def test_savez_takes_allow_pickle_as_an_option(tmp_path):
    jnp.savez(tmp_path / "a.npz", X, allow_pickle=False)
    assert list(np.load(tmp_path / "a.npz")) == ["arr_0"]
    with pytest.raises(ValueError, match="allow_pickle"):
        jnp.savez(tmp_path / "b.npz", np.array([None]), allow_pickle=False)


def test_zero_from_primal():
    zero_from_primal = sw.custom_derivatives.zero_from_primal
    assert zero_from_primal((1.0, 2))[0] == 0.0 and zero_from_primal(2).dtype == sw.dtypes.float0
    assert isinstance(zero_from_primal(1.0, symbolic_zeros=True), sw.custom_derivatives.SymbolicZero)
