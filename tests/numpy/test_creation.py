"""Arrays from host values and arrays of one value: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise as jax
import shardwise.numpy as jnp
from shardwise import dlpack
from shardwise.runtime import capsules
from shardwise.sharding import NamedSharding, P, SingleDeviceSharding, make_mesh
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.array(1)
jnp.array(1.0)
jnp.array(1j)
jnp.array(True)
jnp.array(np.float64(1))
jnp.array(np.int8(1))
jnp.array([1, 2])
jnp.array([1, 2.0])
jnp.array([True, 2])
jnp.array([1j, 2])
jnp.array([])
jnp.array([[], []])
jnp.array([1, np.int8(2)])
jnp.array([1.0, np.float16(2)])
jnp.array([1, jnp.float16(2)])
jnp.array([[1, jnp.array(2)], [3, 4.0]])
jnp.array((1, 2))
jnp.array(range(3))
jnp.array(memoryview(b"abc"))
jnp.array([np.array([1, 2]), np.array([3, 4])])
jnp.array([v, w])
jnp.array(m)
jnp.array(jnp.array(1))
jnp.array(jnp.asarray(1.0), dtype=float)
jnp.array(3.7, dtype=int)
jnp.array([1.5, 2], dtype=int)
jnp.array([0, 2], dtype=bool)
jnp.array(3, dtype=bool)
jnp.array([1, 2], dtype="bfloat16")
jnp.array([1, 2], ndmin=3)
jnp.array(n, dtype="int8")
jnp.asarray(3)
jnp.asarray(v)
jnp.asarray(v, dtype="float16")
jnp.asarray([1, 2], copy=False)
jnp.asarray(v, copy=True)
jnp.copy(m)
jnp.copy(3)
jnp.float32(3)
jnp.float32([1, 2])
jnp.array(np.array([1, 2], dtype=object), dtype=np.float32)
jnp.array(np.longdouble(1.5), dtype="float16")
jnp.array(__import__("fractions").Fraction(1, 2), dtype=np.float32)
jnp.array(2**70, dtype=bool)
jnp.int32(True)
jnp.bool_(3)
jnp.zeros(3)
jnp.zeros((2, 3), int)
jnp.zeros(())
jnp.zeros([2, 3])
jnp.zeros(np.array([2, 3]))
jnp.zeros(jnp.array(2))
jnp.ones((2, 3), "int8")
jnp.empty(3)
jnp.full(3, 1)
jnp.full(3, 1.0)
jnp.full(3, 1, float)
jnp.full((2, 8), v)
jnp.full((2,), np.float64(2))
jnp.full((8,), i, "int8")
jnp.ones_like(3)
jnp.ones_like(k, dtype=float)
jnp.zeros_like(m)
jnp.zeros_like(m, shape=(2,))
jnp.zeros_like(m, dtype=int)
jnp.full_like(i, 2.5)
jnp.full_like(3, 2.5)
jnp.full_like(m, v)
jnp.full_like(i, 2.5, dtype=float, shape=(2,))
jnp.empty_like(u)
jnp.zeros_like(jax.ShapeDtypeStruct((2,), np.int8))
jnp.frombuffer(b"ab", dtype="uint8")
jnp.fromstring("1 2", sep=" ")
jnp.astype(m, int)
jnp.astype(n, "float16")
jnp.astype(c, bool)
"""

ERRORS = """
jnp.array(None)
jnp.array([None])
jnp.array([None, 1], dtype=np.float32)
jnp.array(np.array([1, 2], dtype=object))
jnp.array("a")
jnp.array({1, 2})
jnp.array(b"abc")
jnp.array([2**40])
jnp.array(2**40)
jnp.array([300], dtype="uint8")
jnp.array(-1, dtype="uint8")
jnp.array([[1, 2], [3]])
jnp.array(np.array(["a"]))
jnp.array([1, 2], order="F")
jnp.zeros(-1)
jnp.zeros((2.5,))
jnp.zeros(2.0)
jnp.zeros("a")
jnp.full((3,), v)
jnp.full(2, [1, 2])
jnp.zeros_like([1, 2])
jnp.copy([1])
jnp.fromiter(range(3), "int32")
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_requested_64_bit_types_warn():
    with pytest.warns(UserWarning, match="truncated to dtype int32"):
        assert jnp.zeros(3, "int64").dtype == np.int32
    with pytest.warns(UserWarning, match="truncated to dtype float32"):
        assert jnp.array([1.0], dtype="float64").dtype == np.float32


def test_copies_do_not_share_memory_with_the_host():
    host = np.arange(4, dtype=np.float32)
    x = jnp.array(host)
    host[0] = 7
    assert x[0] == 0


def test_device_and_sharding():
    device = shardwise.devices()[3]
    assert jnp.zeros(3, device=device).sharding == SingleDeviceSharding(device)
    assert jnp.zeros(3, device=device).committed
    assert not jnp.zeros(3).committed
    mesh = make_mesh((2, 4), ("x", "y"))
    split = NamedSharding(mesh, P("x", "y"))
    for made in (
        jnp.ones((4, 8), device=split),
        jnp.full((4, 8), 2, device=split),
        jnp.asarray(np.eye(4, 8), device=split),
        jnp.arange(32.0, device=NamedSharding(mesh, P("x"))).reshape(4, 8),
    ):
        assert made.committed
        assert isinstance(made.sharding, NamedSharding) and made.sharding.mesh == mesh
    x = shardwise.device_put(np.ones((4, 8), np.float32), split)
    for like in (jnp.zeros_like(x), jnp.full_like(x, 3), jnp.copy(x), jnp.array(x), jnp.asarray(x)):
        assert like.sharding == split
        assert like.committed


def test_committed_arrays_are_not_moved():
    here, there = shardwise.devices()[1:3]
    x = shardwise.device_put(np.ones(8, np.float32), here)
    for move in (
        lambda: jnp.asarray(x, device=there),
        lambda: jnp.array(x, device=there),
        lambda: x.astype(int, device=there),
    ):
        with pytest.raises(ValueError, match=r"incompatible devices.*\[1\].*\[2\]"):
            move()
    assert jnp.asarray(x, device=here).devices() == {here}
    assert jnp.zeros_like(x, device=there).devices() == {there}


def test_save_and_load(tmp_path):
    x = jnp.arange(6).reshape(2, 3)
    jnp.save(tmp_path / "x.npy", x)
    assert jnp.array_equal(jnp.load(tmp_path / "x.npy"), x)
    jnp.save(tmp_path / "b.npy", x.astype("bfloat16"))
    loaded = jnp.load(tmp_path / "b.npy")
    assert loaded.dtype == jnp.bfloat16 and loaded.tolist() == x.tolist()
    jnp.savez(tmp_path / "x.npz", a=x)
    assert np.array_equal(jnp.load(tmp_path / "x.npz")["a"], x)


def test_dlpack():
    x = np.arange(4, dtype=np.float32)
    assert jnp.array_equal(jnp.from_dlpack(x), x)
    assert np.array_equal(np.from_dlpack(jnp.arange(3)), [0, 1, 2])
    assert np.array_equal(np.from_dlpack(Exporter(dlpack.to_dlpack(jnp.arange(3)))), [0, 1, 2])


@pytest.mark.parametrize("name", sorted(capsules.CODES))
def test_dlpack_of_types_that_numpy_does_not_exchange(name):
    x = np.array([[1, 2, 0.5], [4, 1, 2]]).astype(name)
    oracle = pytest.importorskip("jax")
    for here, there in ((jnp, oracle.numpy), (oracle.numpy, jnp), (jnp, jnp)):
        found = there.from_dlpack(here.asarray(x))
        assert found.dtype == x.dtype
        assert np.array_equal(np.asarray(found), x)
    capsule = dlpack.to_dlpack(jnp.asarray(x).T, max_version=(1, 0))
    assert np.array_equal(jnp.from_dlpack(Exporter(capsule), copy=False), x.T)


class Exporter:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_dlpack_copies_or_shares_as_asked():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    own, none, shared = (jnp.from_dlpack(x, copy=c) for c in (True, None, False))
    shared_t = dlpack.from_dlpack(x.T, copy=False)
    doubled = jax.jit(lambda v: v * 2, donate_argnums=0)(shared_t)  # does not take the memory for its own
    assert np.array_equal(doubled, x.T * 2)
    shared_t = dlpack.from_dlpack(x.T, copy=False, device=jax.devices()[1])
    assert shared_t.devices() == {jax.devices()[1]}
    x[0, 1] = 9
    assert (own[0, 1], none[0, 1], shared[0, 1], shared_t[1, 0]) == (1, 1, 9, 9)
    with pytest.raises(ValueError, match="requires a copy here: float64"):
        jnp.from_dlpack(np.zeros(3), copy=False)
    with pytest.raises(TypeError, match="__dlpack__"):
        jnp.from_dlpack([1, 2])
    y = jnp.arange(3.0)
    assert np.shares_memory(np.from_dlpack(Exporter(dlpack.to_dlpack(y, max_version=(1, 0)))), np.asarray(y))
    assert not np.shares_memory(np.from_dlpack(Exporter(dlpack.to_dlpack(y, copy=True))), np.asarray(y))
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"stream": 1}, ValueError),
        ({"src_device": jax.devices()[2]}, ValueError),
        ({"dl_device": (2, 0)}, BufferError),
    ]
    for given, error in refused:
        with pytest.raises(error):
            dlpack.to_dlpack(y, **given)
    assert dlpack.to_dlpack(y, src_device=jax.devices()[0], dl_device=(1, 0)) is not None
    with pytest.raises(TypeError, match="must be a jax"):
        dlpack.to_dlpack(np.zeros(3))


def test_questions_about_types_and_shapes():
    x = jnp.zeros((2, 3))
    assert (jnp.shape(x), jnp.ndim(x), jnp.size(x), jnp.size(x, 1), jnp.size(x, (0, 1))) == ((2, 3), 2, 6, 3, 6)
    assert jnp.result_type(1, np.float16(2)) == np.float16
    assert jnp.promote_types("int8", "uint8") == np.int16
    assert not jnp.can_cast("int32", "int8")
    assert jnp.can_cast(jnp.int8(1), "int32")
    assert jnp.isscalar(jnp.array(1)) and jnp.isscalar("a") and not jnp.isscalar(x)
    named = type("Named", (), {"__jax_array__": lambda self: jnp.array(1j)})()  # neither shape nor dtype of its own
    assert jnp.isscalar(named) and jnp.iscomplexobj(named) and not jnp.isrealobj(named)
    assert jnp.ndarray is shardwise.Array
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert jnp.iinfo(jnp.int8).max == 127
    assert jnp.dtype("int8") == jnp.int8


def test_copies_have_buffers_of_their_own():
    mesh = make_mesh((2, 4), ("x", "y"))
    for spec in (P("x", "y"), P("y"), P()):
        x = shardwise.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, spec))
        for copied in (
            jnp.array(x),
            jnp.array(x, dtype=np.float32),
            jnp.copy(x),
            x.copy(),
            x.astype(np.float32, copy=True),
        ):
            assert copied.sharding == x.sharding and not np.shares_memory(np.asarray(copied), np.asarray(x))
            np.testing.assert_array_equal(copied, x)
        assert np.shares_memory(np.asarray(jnp.asarray(x)), np.asarray(x))


def test_keys_stay_keys_under_astype():
    key = shardwise.random.key(0)
    assert jnp.astype(key, key.dtype).dtype == key.dtype and key.astype(key.dtype).dtype == key.dtype
    with pytest.raises(ValueError, match="PRNG keys convert to nothing else"):
        jnp.astype(key, "float32")


def test_objects_that_become_arrays():
    """Functions of shapes and dtypes ask `__jax_array__`, too."""

    class Wrapped:
        def __jax_array__(self):
            return jnp.arange(6, dtype=np.int8).reshape(2, 3)

    x = Wrapped()
    assert jnp.shape(x) == (2, 3) and jnp.ndim(x) == 2 and jnp.size(x) == 6 and jnp.size(x, 1) == 3
    for like in (jnp.zeros_like(x), jnp.ones_like(x), jnp.empty_like(x), jnp.full_like(x, 2)):
        assert like.shape == (2, 3) and like.dtype == np.int8


def test_complex_numbers_as_bools():
    """`astype` asks both parts, as in NumPy."""
    x = np.array([0, -3j, 1, complex(0, np.nan), complex(np.nan, 0), -0.0, complex(-0.0, -0.0), 2 - 1j], np.complex64)
    for f in (lambda v: v.astype(bool), lambda v: jnp.astype(v, np.bool_)):
        for run in (f, shardwise.jit(f), shardwise.vmap(f)):
            np.testing.assert_array_equal(run(jnp.asarray(x)), x.astype(bool))
    assert jnp.asarray(np.complex64(-3j)).astype(bool)


def test_arrays_of_float0():
    """Tangents of integers are arrays that hold nothing."""
    for make in (jnp.zeros, jnp.ones, jnp.empty):
        for run in (make, shardwise.jit(make, static_argnums=(0, 1))):
            x = run((2, 3), shardwise.dtypes.float0)
            assert x.shape == (2, 3) and x.dtype == shardwise.dtypes.float0
            host = np.asarray(x)
            assert host.dtype == x.dtype and host.shape == (2, 3) and repr(x)
    mapped = shardwise.pmap(lambda x: x)(np.zeros((1, 3), shardwise.dtypes.float0))
    assert mapped.dtype == shardwise.dtypes.float0 and mapped.shape == (1, 3)


def test_integers_beyond_the_default_type_fill_arrays_of_types_that_hold_them():
    most = 2**32 - 1
    x = jnp.zeros(2, jnp.uint32)
    for filled in (
        jnp.full(2, most, jnp.uint32),
        jax.lax.full((2,), most, jnp.uint32),
        jnp.full_like(x, most),
        jax.lax.full_like(x, most),
        jax.jit(lambda x: jnp.full_like(x, most))(x),
        x.at[:].set(most),
    ):
        assert filled.dtype == jnp.uint32 and np.asarray(filled).tolist() == [most, most]
    assert np.asarray(jnp.arange(most - 2, most, dtype=jnp.uint32)).tolist() == [most - 2, most - 1]
    assert float(jnp.full((), 2**40, jnp.float32)) == 2.0**40
    with pytest.raises(OverflowError):
        jnp.full(2, most)


def test_a_number_fills_each_word_of_keys():
    keys = jax.random.split(jax.random.key(0), 2)
    for filled in (jnp.full_like(keys, 5), jax.lax.full_like(keys, 5), jnp.full(2, 5, keys.dtype)):
        assert np.asarray(jax.random.key_data(filled)).tolist() == [[5, 5], [5, 5]]


class Itself:
    """Names itself as its array."""

    def __jax_array__(self):
        return self


def test_an_object_that_names_itself_as_its_array_is_refused():
    for convert in (jnp.asarray, jnp.sin):
        with pytest.raises(TypeError, match="__jax_array__"):
            convert(Itself())


@pytest.mark.parametrize("make", [jnp.array, jnp.asarray])
def test_numpy_reads_texts_and_objects_for_a_named_dtype(make):
    texts = ["3", b"3", np.array("3"), np.str_("3"), np.array(3, object), np.datetime64("1970-01-04")]
    for value in texts:
        assert make(value, jnp.int32).tolist() == 3
        with pytest.raises(TypeError, match="not a valid JAX array type"):
            make(value)
    assert make(np.array(["1", "2"]), jnp.float32).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="None is not a valid value"):
        make([1, None], jnp.float32)


def test_masked_arrays_have_their_data_where_a_dtype_is_given():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    assert jnp.asarray(masked, jnp.int8).tolist() == jnp.array(masked).tolist() == [1, 2]
    with pytest.raises(ValueError, match="masked"):
        jnp.asarray(masked)


@pytest.mark.parametrize("shape", [b"ab", bytearray(b"ab"), {2, 3}, {2: 3}], ids=repr)
@pytest.mark.parametrize(
    "make", [jnp.zeros, jnp.ones, jnp.empty, lambda s: jnp.full(s, 1), lambda s: jnp.broadcast_to(1, s)]
)
def test_no_sequence_of_sizes(make, shape):
    with pytest.raises(TypeError, match="Shapes must be 1D sequences"):
        make(shape)
