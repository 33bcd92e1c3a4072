"""What users pass becomes values: subclasses of ndarray lose their own arithmetic, masks are refused, all doors alike."""

from __future__ import annotations

import enum
import tempfile
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp


class Own(np.ndarray):
    """An ndarray whose arithmetic is another."""

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return "mine"


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


def subclasses():
    values = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.float32, "w+", shape=(2, 2))
        mapped[:] = values
        yield mapped
    yield np.matrix(values)
    yield values.view(Own)
    yield np.rec.array(values)


DOORS = {
    "jit": lambda x: sw.jit(lambda x: jnp.sum(x * x, 0))(x),
    "nested in a tree": lambda x: sw.jit(lambda t: jnp.sum(t["a"] * t["a"], 0))({"a": x}),
    "eager": lambda x: jnp.sum(jnp.asarray(x) * x, 0),
    "device_put": lambda x: jnp.sum(sw.device_put(x) * x, 0),
    "grad": lambda x: sw.grad(lambda x: jnp.sum(x * x) / 2)(x).sum(0) * 0 + jnp.sum(jnp.square(x), 0),
    "vmap": lambda x: sw.vmap(lambda column: jnp.sum(column * column), in_axes=1)(x),
    "where": lambda x: jnp.where(True, x, x).sum(0) * 0 + jnp.sum(jnp.square(x), 0),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_of_ndarray(door):
    for x in subclasses():
        for _ in range(2):  # the second call of a compiled function finds it by its key
            result = DOORS[door](x)
            assert isinstance(result, sw.Array) and result.shape == (2,), type(x)
            np.testing.assert_array_equal(result, [10, 20])


@pytest.mark.parametrize("door", [*DOORS, "asarray", "array without a copy"])
def test_masked_arrays_are_refused(door):
    masked = np.ma.masked_array(np.ones((2, 2), np.float32), [[False, True], [False, False]])
    call = DOORS.get(door) or {"asarray": jnp.asarray, "array without a copy": lambda x: jnp.array(x, copy=False)}[door]
    with pytest.raises(ValueError, match="masked arrays are not supported"):
        call(masked)


@pytest.mark.parametrize(
    "copied",
    [jnp.array, lambda x: jnp.array([x])[0], lambda x: jnp.array([jnp.ones(2), x])[1], lambda x: jnp.array(x, float)],
)
def test_copies_of_masked_arrays_have_the_data_alone(copied):
    masked = np.ma.masked_array(np.array([1, 2], np.float32), [False, True])
    np.testing.assert_array_equal(copied(masked), [1, 2])
    np.testing.assert_array_equal(sw.jit(lambda: copied(masked))(), [1, 2])


def test_numbers_of_subclasses_are_weak_as_their_base():
    assert jnp.asarray(Level.HIGH).weak_type and jnp.asarray(Level.HIGH) == 3
    assert not jnp.asarray(np.float64(3)).weak_type


def test_times_are_no_indices():
    with pytest.raises(TypeError, match="integer or boolean"):
        jnp.arange(5)[np.timedelta64(1)]


def test_the_mean_over_an_axis_of_integers_has_their_float():
    mean = sw.vmap(lambda x: sw.lax.pmean(x, "i"), axis_name="i")
    assert mean(np.ones(3, np.int8)).dtype == np.float32
    with sw.experimental.enable_x64():
        assert mean(np.ones(3, np.int64)).dtype == np.float64
        assert mean(np.ones(3, np.int8)).dtype == np.float32


def test_objects_that_look_names_up_say_that_there_is_no_such_attribute():
    from shardwise.ops.rules.derivative import do

    for name in ("__wrapped__", "no_such_op"):
        assert not hasattr(do, name)
        with pytest.raises(AttributeError):
            getattr(do, name)
