"""Dtypes and promotion against JAX, for every pair of types, with 64-bit types off and on."""

import enum
import itertools
import pickle
import types
import warnings

import ml_dtypes
import numpy as np
import pytest

from shardwise.base import dtypes, element_types
from shardwise.base.config import config, use_dialect
from shardwise.base.errors import TypePromotionError
from shardwise.base.overrides import enable_x64, numpy_dtype_promotion
from tests.counting import count_calls

NAMES = list(element_types.BY_NAME)
ONE_OF_EACH_KIND = ("bool", "int8", "uint32", "bfloat16", "float16", "complex64")


class Typed:
    """What promotion sees of an array."""

    def __init__(self, dtype, weak_type=False):
        self.dtype = dtype
        self.weak_type = weak_type


@pytest.fixture(params=["x32", "x64"])
def jax_and_x64(request):
    """The oracle with 64-bit types off or on, and ours in the same state and dialect."""
    jax = pytest.importorskip("jax")
    x64 = request.param == "x64"
    with jax.enable_x64(x64), enable_x64(x64), use_dialect("latest"):
        yield jax, x64


def outcome(fn, *args):
    """The result, or the kind of failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*args)
        except ValueError as err:
            return "TypePromotionError" if type(err).__name__ == "TypePromotionError" else "ValueError"


def operands(jax, x64):
    """(ours, theirs) for each strong dtype, weak dtype and Python scalar."""
    names = NAMES if x64 else [n for n in NAMES if n not in ("int64", "uint64", "float64", "complex128")]
    aval = jax.core.ShapedArray
    rows = []
    for name in names:
        dtype = element_types.BY_NAME[name]
        rows.append((Typed(dtype), jax_typed(aval((), dtype))))
        if name != "bool":
            rows.append((Typed(dtype, True), jax_typed(aval((), dtype, weak_type=True))))
    rows += [(s, s) for s in (True, 1, 1.0, 1j, int, float, complex, bool)]
    return rows


def jax_typed(aval):
    return types.SimpleNamespace(dtype=aval.dtype, aval=aval)


@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_lattice_result_type_of_every_pair(jax_and_x64, mode):
    jax, x64 = jax_and_x64
    from jax._src.dtypes import lattice_result_type as theirs

    rows = operands(jax, x64)
    with jax.numpy_dtype_promotion(mode), numpy_dtype_promotion(mode):
        for (a, ja), (b, jb) in itertools.combinations_with_replacement(rows, 2):
            expected = outcome(theirs, ja, jb)
            assert outcome(dtypes.lattice_result_type, a, b) == expected, (vars_of(a), vars_of(b))
            assert outcome(dtypes.lattice_result_type, b, a) == expected
        for a, ja in rows:
            assert outcome(dtypes.lattice_result_type, a) == outcome(theirs, ja)


def vars_of(x):
    return vars(x) if isinstance(x, Typed) else x


def test_result_type_of_three(jax_and_x64):
    jax, x64 = jax_and_x64
    rows = operands(jax, x64)
    few = [(a, b) for a, b in rows if not isinstance(a, Typed) or a.dtype.name in ONE_OF_EACH_KIND]
    from jax._src.dtypes import result_type as theirs

    for triple in itertools.combinations(few, 3):
        expected = outcome(lambda *xs: theirs(*xs, return_weak_type_flag=True), *[b for _, b in triple])
        ours = outcome(lambda *xs: dtypes.result_type(*xs, return_weak_type_flag=True), *[a for a, _ in triple])
        assert ours == expected, [vars_of(a) for a, _ in triple]


def test_promote_types_of_every_pair(jax_and_x64):
    jax, _ = jax_and_x64
    specs = [*map(np.dtype, NAMES[:1]), *[element_types.BY_NAME[n] for n in NAMES[1:]], int, float, complex, bool]
    for mode in ("standard", "strict"):
        with jax.numpy_dtype_promotion(mode), numpy_dtype_promotion(mode):
            for a, b in itertools.product(specs, specs):
                assert outcome(dtypes.promote_types, a, b) == outcome(jax.numpy.promote_types, a, b), (a, b)


def test_seed_promotes_uint32_and_int32_at_full_width():
    assert dtypes.promote_types("uint32", "int32") == np.int64
    assert dtypes.result_type("uint32", "int32") == np.int32
    with use_dialect("latest"):
        assert dtypes.promote_types("uint32", "int32") == np.int32


def test_numpy_values_narrow_before_they_promote():
    assert dtypes.lattice_result_type(np.zeros(2, np.uint64), np.int32(1)) == (np.int32, False)
    assert dtypes.lattice_result_type(np.float64(1), 1) == (np.float32, False)
    with enable_x64():
        assert dtypes.lattice_result_type(np.zeros(2, np.uint64), np.int32(1)) == (np.float64, True)


@pytest.mark.parametrize("fn", ["to_inexact", "to_complex", "to_floating"])
def test_casts(fn):
    oracle = pytest.importorskip("jax._src.dtypes")
    for name in NAMES:
        if name in ("int1", "uint1", "int2", "uint2"):
            assert getattr(dtypes, fn)(name).itemsize >= 4  # JAX leaves these as they are
            continue
        dtype = element_types.BY_NAME[name]
        assert getattr(dtypes, fn)(dtype) == getattr(oracle, fn + "_dtype")(dtype), name


def test_safe_to_cast(jax_and_x64):
    oracle = pytest.importorskip("jax._src.dtypes")
    for a, b in itertools.product([*NAMES, 1, 1.0], NAMES):
        assert outcome(dtypes.safe_to_cast, a, b) == outcome(oracle.safe_to_cast, a, b), (a, b)


def test_reduction_dtype(jax_and_x64):
    jax, x64 = jax_and_x64
    for name in NAMES:
        if name.lstrip("u") in ("int1", "int2", "int4") or name in element_types._TINY_FLOAT_NAMES:
            continue
        dtype = dtypes.canonicalize(element_types.BY_NAME[name])
        assert dtypes.reduction_dtype(dtype) == jax.eval_shape(jax.numpy.sum, aval(jax, dtype)).dtype
    assert dtypes.reduction_dtype("int4") == (np.int64 if x64 else np.int32)


def aval(jax, dtype):
    return jax.ShapeDtypeStruct((2,), dtype)


def test_issubdtype_of_every_pair():
    jnp = pytest.importorskip("jax.numpy")
    abstract = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact]
    abstract += [np.floating, np.complexfloating, np.bool_, np.flexible]
    concrete = [element_types.BY_NAME[n] for n in NAMES]
    for a, b in itertools.product(concrete, [*abstract, *concrete, int, float, complex, bool]):
        assert dtypes.issubdtype(a, b) == jnp.issubdtype(a, b), (a, b)
    assert dtypes.issubdtype(dtypes.bfloat16, np.floating)
    assert not dtypes.issubdtype("bfloat16", "float32")


def test_isdtype():
    jnp = pytest.importorskip("jax.numpy")
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating"]
    kinds += ["numeric", "float32", np.int8, ("bool", "int4"), ("integral", np.float16)]
    for name, kind in itertools.product(NAMES, kinds):
        dtype = element_types.BY_NAME[name]
        assert dtypes.isdtype(dtype, kind) == jnp.isdtype(dtype, kind), (dtype, kind)
    assert not dtypes.isdtype(dtypes.key_dtype, "numeric")
    with pytest.raises(ValueError, match="real floating"):
        dtypes.isdtype("int32", "foo")
    with pytest.raises(TypeError, match=r"3\.5"):
        dtypes.isdtype("int32", 3.5)


def test_short_names_and_sizes():
    oracle = pytest.importorskip("jax._src.dtypes")
    for name in NAMES:
        dtype = element_types.BY_NAME[name]
        assert dtypes.short_name(dtype) == oracle.short_dtype_name(dtype)
        assert dtypes.itemsize_bits(dtype) == oracle.itemsize_bits(dtype)
        assert dtypes.scalar_type_of(dtype) is oracle.scalar_type_of(np.zeros((), dtype))
    assert dtypes.short_name(dtypes.float0) == "float0"
    assert dtypes.short_name(dtypes.key_dtype) == "key<fry>"


def test_supports_inf():
    with_inf = {name for name in NAMES if dtypes.supports_inf(name)}
    assert {"float16", "bfloat16", "float32", "complex64", "float8_e5m2", "float8_e4m3"} <= with_inf
    assert not with_inf & {"int32", "bool", "float8_e4m3fn", "float8_e4m3fnuz", "float4_e2m1fn"}


def test_scalar_types():
    jnp = pytest.importorskip("jax.numpy")
    public = dtypes.SCALAR_TYPES | dtypes.SCALAR_ALIASES
    expected = {name for name in dir(jnp) if type(getattr(jnp, name)).__name__ == "_ScalarMeta"}
    assert expected <= set(public)
    for name in expected:
        ours, theirs = public[name], getattr(jnp, name)
        assert repr(ours) == repr(theirs).replace("jax.", "shardwise.")
        assert ours.dtype == theirs.dtype and np.dtype(ours) == theirs.dtype
        assert ours == theirs.dtype.type and hash(ours) == hash(theirs.dtype.type) and ours == ours.dtype
        assert theirs.dtype == ours and ours != np.void


def test_scalar_types_stand_for_dtypes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.zeros(2, dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert isinstance(np.float32(1), dtypes.float32) and not isinstance(1.0, dtypes.float32)
    assert np.issubdtype(dtypes.float32, np.floating)
    assert dtypes.result_type(dtypes.int8, dtypes.float16) == np.float16
    assert dtypes.float32 | None  # usable in annotations


def test_classes_may_inherit_from_scalar_types():
    class Level(dtypes.int8):  # type: ignore[misc]
        LOW = 0

    assert isinstance(Level, dtypes.ScalarType)
    assert (Level.__name__, Level.LOW, issubclass(Level, dtypes.int8)) == ("Level", 0, True)
    assert Level == dtypes.int8 == Level == np.int8
    assert hash(Level) == hash(dtypes.int8)
    assert np.dtype(Level) == np.int8 == dtypes.canonicalize(Level)


def test_scalar_types_make_arrays(monkeypatch):
    monkeypatch.setattr(element_types, "_construct_array", None)
    with pytest.raises(RuntimeError, match="import shardwise"):
        dtypes.float32(3)
    dtypes.set_array_constructor(lambda x, dtype: np.asarray(x, dtype))
    assert dtypes.float32(3).dtype == np.float32
    with pytest.raises(TypeError):
        dtypes.float32()  # type: ignore[call-arg]


def test_canonicalize():
    assert dtypes.canonicalize("i8") is np.dtype(np.int32)
    assert dtypes.canonicalize(dtypes.complex128) is np.dtype(np.complex64)
    assert dtypes.canonicalize(np.longlong) is np.dtype(np.int32)
    assert dtypes.canonicalize(">f4") is np.dtype(np.float32)
    assert dtypes.canonicalize(dtypes.key_dtype) is dtypes.key_dtype
    assert dtypes.canonicalize(float) is np.dtype(np.float32)
    with enable_x64():
        assert dtypes.canonicalize(np.longlong) is np.dtype(np.int64)
    for wrong in ("foo", "U3", "M8[s]", object, None, [1, 2]):
        with pytest.raises(TypeError):
            dtypes.canonicalize(wrong)


def test_check_requested_warns_about_truncation():
    with pytest.warns(
        UserWarning, match="Explicitly requested dtype int64 requested in zeros .* to dtype int32"
    ) as seen:
        assert dtypes.check_requested("int64", "zeros") == np.int32
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dtypes.check_requested(int, "zeros") == np.int32
        assert dtypes.check_requested("float32") == np.float32
        assert dtypes.check_requested(dtypes.key_dtype) is dtypes.key_dtype
        with enable_x64():
            assert dtypes.check_requested("int64") == np.int64
            assert dtypes.check_requested(int) == np.int64


def test_check_requested_refuses():
    with pytest.raises(TypeError, match=r"data type 'U3' not understood in zeros"):
        dtypes.check_requested("U3", "zeros")
    with pytest.raises(ValueError, match="zeros"):
        dtypes.check_requested(None, "zeros")
    assert dtypes.check_requested(Typed(np.dtype(np.int8)), "zeros") == np.int8  # a struct
    array = type("Array", (Typed,), {"__array__": None})(np.dtype(np.int8))
    with pytest.warns(DeprecationWarning, match=r"arr\.dtype"):
        assert dtypes.check_requested(array, "zeros") == np.int8
    with use_dialect("latest"), pytest.raises(ValueError, match=r"arr\.dtype"):
        dtypes.check_requested(array, "zeros")


def test_python_scalars():
    assert dtypes.scalar_dtype(True) == np.bool_
    assert dtypes.scalar_dtype(2**31 - 1) == np.int32
    assert dtypes.scalar_dtype(1.5) == np.float32
    for big in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError, match=str(big)):
            dtypes.scalar_dtype(big)
    with enable_x64():
        assert dtypes.scalar_dtype(2**31) == np.int64
        with pytest.raises(OverflowError):
            dtypes.scalar_dtype(2**63)


def test_dtype_of_and_is_weak():
    assert dtypes.dtype_of(3) == np.int32 and dtypes.is_weak(3)
    assert dtypes.dtype_of(True) == np.bool_ and not dtypes.is_weak(True)
    assert dtypes.dtype_of(np.float64(3)) == np.float32 and not dtypes.is_weak(np.float64(3))
    assert dtypes.dtype_of(np.zeros(2, "i8")) == np.int32
    assert dtypes.dtype_of(Typed(np.dtype("i8"))) == np.int64  # arrays keep what they have
    assert dtypes.is_weak(Typed(np.dtype("f4"), True)) and not dtypes.is_weak(Typed(np.dtype("f4")))
    member = enum.IntEnum("Color", "RED").RED
    assert dtypes.lattice_result_type(member) == (np.int32, False)
    for wrong in ([1, 2], None, object(), np.array("a"), np.array(None)):
        with pytest.raises(TypeError):
            dtypes.dtype_of(wrong)


def test_errors_of_promotion():
    with pytest.raises(TypePromotionError, match=r"float8_e5m2, float32.*8 bits.*astype"):
        dtypes.promote_types(dtypes.float8_e5m2, "float32")
    with pytest.raises(TypePromotionError, match=r"int4, int8.*4 bits"):
        dtypes.result_type("int4", "int8")
    with numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError, match="strict"):
        dtypes.result_type("int16", "int8")
    with pytest.raises(TypeError, match="key<fry>"):
        dtypes.result_type(dtypes.key_dtype, "float32")
    with pytest.raises(ValueError, match="at least one"):
        dtypes.result_type()


def test_settings_reach_the_cached_joins():
    assert dtypes.result_type(1, 2.0) == np.float32
    with enable_x64():
        assert dtypes.result_type(1, 2.0) == np.float64
    assert dtypes.result_type(None, "int8") == np.float32
    assert not config.x64


def test_key_dtype():
    key = dtypes.key_dtype
    assert str(key) == repr(key) == key.name == "key<fry>" and key.itemsize == 8
    assert dtypes.physical(key) == np.uint64 and dtypes.physical("int8") == np.int8
    assert key == dtypes.KeyDtype() and hash(key) == hash(dtypes.KeyDtype()) and key != np.dtype(np.uint64)
    assert pickle.loads(pickle.dumps(key)) == key
    assert dtypes.issubdtype(key, dtypes.prng_key) and dtypes.issubdtype(key, dtypes.extended)
    assert dtypes.issubdtype(key, np.generic) and not dtypes.issubdtype(key, np.number)
    assert not dtypes.issubdtype(np.float32, dtypes.extended)
    assert dtypes.result_type(key, key) is key


def test_float0_and_limits():
    jax = pytest.importorskip("jax")
    assert dtypes.float0 == jax.dtypes.float0
    assert dtypes.finfo(dtypes.bfloat16).max == jax.numpy.finfo(jax.numpy.bfloat16).max
    assert dtypes.iinfo(dtypes.int4).max == 7


def test_promotion_is_kept():
    """The second time it is looked up, which takes few calls."""
    a, b = np.zeros(2, np.float32), np.zeros(3, np.int32)
    dtypes.lattice_result_type(a, b)
    assert count_calls(dtypes.lattice_result_type, a, b) <= 20
