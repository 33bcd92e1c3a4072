"""Elementwise functions: values and types against the oracle, accuracy, the loop law, errors, shardings."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import Literal, ShapedArray, all_ops, infer_types, literal
from shardwise.ops import elementwise
from shardwise.ops.elementwise import binary, bitwise, casts, comparison, transcendental, unary
from shardwise.ops.elementwise import selection as select
from shardwise.ops.rules.operands import align_blocks, dtype_kind, operands
from shardwise.sharding import AbstractMesh, AxisType
from tests.ops.elementwise.blocks import BF16, DTYPES, RNG, WIDE, assert_close, grid, run, values
from tests.ops.loop_law import CASES, check_law, spread

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the executor runs kernels with these off

MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)

UNARY = {
    op.name: (op, accepts)
    for op, accepts in [
        (unary.neg_p, "iufc"),
        (unary.sign_p, "iufc"),
        (unary.floor_p, "f"),
        (unary.ceil_p, "f"),
        (unary.is_finite_p, "f"),
        (transcendental.exp_p, "fc"),
        (transcendental.exp2_p, "fc"),
        (transcendental.expm1_p, "fc"),
        (transcendental.log_p, "fc"),
        (transcendental.log1p_p, "fc"),
        (transcendental.sin_p, "fc"),
        (transcendental.cos_p, "fc"),
        (transcendental.tan_p, "fc"),
        (transcendental.tanh_p, "fc"),
        (transcendental.sinh_p, "fc"),
        (transcendental.cosh_p, "fc"),
        (transcendental.asin_p, "fc"),
        (transcendental.acos_p, "fc"),
        (transcendental.atan_p, "fc"),
        (transcendental.asinh_p, "fc"),
        (transcendental.acosh_p, "fc"),
        (transcendental.atanh_p, "fc"),
        (transcendental.sqrt_p, "fc"),
        (transcendental.rsqrt_p, "fc"),
        (transcendental.cbrt_p, "f"),
        (transcendental.logistic_p, "fc"),
        (unary.abs_p, "ifc"),
        (unary.square_p, "iufc"),
        (unary.real_p, "c"),
        (unary.imag_p, "c"),
        (unary.conj_p, "fc"),
        (unary.not_p, "biu"),
        (unary.population_count_p, "iu"),
        (unary.clz_p, "iu"),
    ]
}
BINARY = {
    op.name: (op, accepts)
    for op, accepts in [
        (binary.add_p, "iufc"),
        (binary.sub_p, "iufc"),
        (binary.mul_p, "iufc"),
        (binary.div_p, "iufc"),
        (binary.rem_p, "iuf"),
        (binary.max_p, "biufc"),
        (binary.min_p, "biufc"),
        (binary.atan2_p, "f"),
        (binary.nextafter_p, "f"),
        (binary.pow_p, "fc"),
        (binary.mulhi_p, "iu"),
        (bitwise.and_p, "biu"),
        (bitwise.or_p, "biu"),
        (bitwise.xor_p, "biu"),
        (bitwise.shift_left_p, "iu"),
        (bitwise.shift_right_logical_p, "iu"),
        (bitwise.shift_right_arithmetic_p, "iu"),
        (comparison.eq_p, "biufc"),
        (comparison.ne_p, "biufc"),
        (comparison.lt_p, "biuf"),
        (comparison.le_p, "biuf"),
        (comparison.gt_p, "biuf"),
        (comparison.ge_p, "biuf"),
    ]
}
PUBLIC = {"not": "bitwise_not", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}


# -- values -------------------------------------------------------------------------------------------------------------


def compare(dtype, table, blocks, jax):
    """All functions of one dtype in one compilation of the oracle."""
    chosen = {n: op for n, (op, accepts) in table.items() if dtype_kind(dtype) in accepts}
    if dtype.itemsize == 2:
        chosen.pop("conj", None)
    functions = {n: getattr(jax.lax, PUBLIC.get(n) or n) for n in chosen}
    wants = jax.jit(lambda *xs: {n: f(*xs) for n, f in functions.items()})(*blocks)
    for name, op in chosen.items():
        assert_close(run(op, *blocks), wants[name], f"{name} of {dtype}")
        types = [ShapedArray(b.shape, b.dtype) for b in blocks]
        assert op.type_rule(*types) == ShapedArray(wants[name].shape, wants[name].dtype), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unary_values_are_those_of_the_oracle(dtype):
    compare(dtype, UNARY, [values(dtype)], pytest.importorskip("jax"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_binary_values_are_those_of_the_oracle(dtype):
    compare(dtype, BINARY, list(grid(dtype)), pytest.importorskip("jax"))


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_64_bit_values_are_those_of_the_oracle(dtype):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        compare(dtype, UNARY, [values(dtype)], jax)
        compare(dtype, BINARY, list(grid(dtype)), jax)


REFERENCES = [
    (transcendental.exp_p, np.exp),
    (transcendental.log_p, np.log),
    (transcendental.log1p_p, np.log1p),
    (transcendental.expm1_p, np.expm1),
    (transcendental.sin_p, np.sin),
    (transcendental.cos_p, np.cos),
    (transcendental.tan_p, np.tan),
    (transcendental.tanh_p, np.tanh),
    (transcendental.sinh_p, np.sinh),
    (transcendental.cosh_p, np.cosh),
    (transcendental.atan_p, np.arctan),
    (transcendental.asinh_p, np.arcsinh),
    (transcendental.sqrt_p, np.sqrt),
    (transcendental.cbrt_p, np.cbrt),
    (transcendental.rsqrt_p, lambda x: 1 / np.sqrt(x)),
    (transcendental.logistic_p, lambda x: 1 / (1 + np.exp(-x))),
    (transcendental.exp2_p, np.exp2),
]


@pytest.mark.parametrize(("op", "exact"), REFERENCES, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float16"), BF16], ids=str)
def test_accuracy(op, exact, dtype):
    """Within 2 units of the last place of the exact result (4 for the chains that make tan and sinh)."""
    x = np.concatenate([RNG.normal(size=4000), RNG.uniform(-9, 9, 4000)]).astype(dtype)
    want = exact(x.astype(np.float64))
    got = run(op, x)
    assert got.dtype == dtype
    good = np.isfinite(want) & (np.abs(want) > 1e-4) & (np.abs(want) < 6e4)
    error = np.abs(got.astype(np.float64) - want)[good] / np.abs(np.spacing(want.astype(np.float32)))[good]
    scale = float(ml_dtypes.finfo(dtype).eps) / float(np.finfo(np.float32).eps)
    assert error.max() <= 4 * scale


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3b11fnuz"])
def test_all_numbers_of_a_byte_round_away_from_zero(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    every = np.arange(16 if name.startswith("float4") else 256, dtype=np.uint8).view(dtype)
    wide = every.astype(np.float32)
    want = np.trunc(wide + np.copysign(np.float32(0.5), wide)).astype(dtype)
    got = run(unary.round_p, every, rounding_method=elementwise.RoundingMethod.AWAY_FROM_ZERO)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_rounding_and_powers():
    lax = pytest.importorskip("jax").lax
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609.0, -0.2, np.nan, np.inf, -np.inf], np.float32)
    for dtype in (np.float32, np.float16, BF16):
        for method in elementwise.RoundingMethod:
            got = run(unary.round_p, x.astype(dtype), rounding_method=method)
            want = np.asarray(lax.round(x.astype(dtype), lax.RoundingMethod(int(method))))
            np.testing.assert_array_equal(got.view(f"u{got.itemsize}") & 0x7FFF, want.view(f"u{got.itemsize}") & 0x7FFF)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    for y in (0, 1, 2, 3, 5, 8, -1, -3):
        for dtype in DTYPES[1:] if y >= 0 else DTYPES[5:]:
            assert_close(
                run(unary.integer_pow_p, values(dtype), y=y), lax.integer_pow(values(dtype), y), f"{y} {dtype}"
            )
    i = np.array([0, 1, 2, 5, -3], np.int32)
    f = np.array([2.0, -3.0, 0.5, 1.0, 2.0], np.float32)
    assert_close(run(binary.pow_p, f, i), lax.pow(f, i), "float ** int")


def test_signs_of_zeros():
    zeros = np.array([0.0, -0.0], np.float32)
    for op in (unary.sign_p, transcendental.sin_p, unary.floor_p, transcendental.sqrt_p, transcendental.cbrt_p):
        np.testing.assert_array_equal(np.signbit(run(op, zeros)), [False, True], op.name)
    np.testing.assert_array_equal(run(transcendental.rsqrt_p, zeros), [np.inf, -np.inf])
    for dtype in (np.complex64, np.complex128):
        less_one = run(
            transcendental.expm1_p, np.array([complex(0.0, 0.0), complex(-0.0, 0.0), complex(-0.0, -0.0)], dtype)
        )
        assert not np.signbit(np.real(less_one)).any()
        np.testing.assert_array_equal(np.signbit(np.imag(less_one)), [False, False, True])


def test_logistic_is_stable():
    x = np.array([-1e30, -200.0, -50.0, 0.0, 50.0, 1e30, np.nan], np.float32)
    want = [0, 0, 1.9287498e-22, 0.5, 1, 1, np.nan]
    np.testing.assert_allclose(run(transcendental.logistic_p, x), want, rtol=1e-6)
    half = run(transcendental.logistic_p, np.array([-15.0], np.float16))
    np.testing.assert_array_equal(half, np.array([3.059e-07]).astype(np.float16))  # exp(15) overflows float16


def test_bools_add_and_multiply():
    """Not offered by lax.add, but wanted by what builds on the ops."""
    a, b = np.array([True, True, False]), np.array([True, False, False])
    np.testing.assert_array_equal(run(binary.add_p, a, b), [True, True, False])
    np.testing.assert_array_equal(run(binary.mul_p, a, b), [True, False, False])


# -- the loop law -------------------------------------------------------------------------------------------------------

PARAMS = {
    "round": {"rounding_method": elementwise.RoundingMethod.AWAY_FROM_ZERO},
    "integer_pow": {"y": 3},
    "convert_element_type": {"new_dtype": np.dtype("int8"), "weak_type": False},
    "bitcast_convert_type": {"new_dtype": np.dtype("uint8")},
    "reduce_precision": {"exponent_bits": 5, "mantissa_bits": 4},
}


def elementwise_ops():
    own = [*UNARY.values(), *BINARY.values(), (unary.round_p, "f"), (unary.integer_pow_p, "f"), (casts.reduce_precision_p, "f"),
           (casts.convert_element_type_p, "f"), (casts.bitcast_convert_type_p, "f"), (casts.copy_p, "f"),
           (casts.stop_gradient_p, "f"), (binary.complex_p, "f")]  # fmt: skip
    return [(op, "f" if "f" in a else a[-1]) for op, a in own]


@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_loop_law(lead, mix):
    dtypes = {"f": np.float32, "u": np.uint32, "c": np.complex64}
    change = lambda v, k: v + k  # noqa: E731
    for op, kind in elementwise_ops():
        x = (RNG.uniform(1, 5, (2, 3))).astype(dtypes[kind])
        arity = 2 if op.name in BINARY or op.name == "complex" else 1
        shapes = [x, x[:1], x[0, 0, ...]][:arity] if arity == 1 else [x, x[:, :1]]
        check_law(
            op.block_kernel,
            [spread(v, m, change) for v, m in zip(shapes, mix, strict=False)],
            lead,
            **PARAMS.get(op.name, {}),
        )
        if arity == 2:  # a scalar beside a matrix
            scalar = np.asarray(x[0, 1])
            check_law(op.block_kernel, [spread(scalar, mix[0], change), spread(x, mix[1], change)], lead)
    bools = RNG.random((2, 3)) < 0.5
    f = RNG.normal(size=(2, 3)).astype(np.float32)
    blocks = [
        spread(bools, mix[0], lambda v, k: v ^ (k % 2 == 1)),
        spread(f, mix[1], change),
        spread(f[0, 0], mix[2], change),
    ]
    check_law(select.select_n_p.block_kernel, blocks, lead)
    lows = [
        spread(np.asarray(np.float32(-1)), mix[0], change),
        spread(f, mix[1], change),
        spread(f + 1, mix[2], change),
    ]
    check_law(select.clamp_p.block_kernel, lows, lead)


def test_aligned_keeps_equal_ranks():
    a, b = np.zeros((2, 3)), np.zeros((2, 1))
    assert align_blocks((a, b))[1] is b


# -- types and errors ---------------------------------------------------------------------------------------------------


def typed(shape=(3,), dtype="float32", weak=False, spec=None):
    return ShapedArray(shape, np.dtype(dtype), weak, mesh=MESH if spec is not None else None, spec=spec)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: binary.add_p.type_rule(typed(), typed(dtype="int32")), TypeError, "float32, int32"),
        (lambda: binary.add_p.type_rule(typed(), typed((1, 3))), TypeError, "same number of dimensions"),
        (
            lambda: binary.add_p.type_rule(typed(), typed((2,))),
            TypeError,
            r"incompatible shapes for broadcasting: \(3,\), \(2,\)",
        ),
        (
            lambda: binary.rem_p.type_rule(typed(dtype="complex64"), typed(dtype="complex64")),
            TypeError,
            "complex64 at position 0",
        ),
        (lambda: transcendental.sin_p.type_rule(typed(dtype="int32")), TypeError, "sin does not accept dtype int32"),
        (lambda: unary.real_p.type_rule(typed()), TypeError, "complex floating"),
        (lambda: unary.integer_pow_p.type_rule(typed(dtype="int32"), y=-1), TypeError, "negative"),
        (
            lambda: binary.complex_p.type_rule(typed(dtype="int32"), typed(dtype="int32")),
            TypeError,
            "float32 or float64",
        ),
        (lambda: binary.pow_p.type_rule(typed(dtype="int32"), typed(dtype="int32")), TypeError, "pow"),
        (lambda: select.select_n_p.type_rule(typed(), typed(), typed()), TypeError, "bool or integer"),
        (lambda: select.select_n_p.type_rule(typed(dtype="bool"), typed(), typed(), typed()), TypeError, "at most 2"),
        (
            lambda: casts.reduce_precision_p.type_rule(typed(), exponent_bits=0, mantissa_bits=1),
            ValueError,
            "exponent_bits",
        ),
        (lambda: casts.convert_element_type(1.0, None), ValueError, "dtype"),
        (lambda: elementwise.neg("a"), TypeError, "lax.neg: argument 0 is str"),
        (lambda: elementwise.add(1.0, [2.0]), TypeError, "lax.add: argument 1 is list"),
        (lambda: elementwise.add(True, True), TypeError, "bool"),
        (lambda: elementwise.add(1, 2.0), TypeError, "int32, float32"),
        (lambda: elementwise.exp(1.0, accuracy="high"), TypeError, "accuracy"),
        (lambda: elementwise.exp(1.0, accuracy=elementwise.Tolerance(ulps=1)), NotImplementedError, "ulps"),
        (lambda: elementwise.integer_pow(1.0, 2.5), TypeError, "lax.pow"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_weak_types():
    add = binary.add_p.type_rule
    assert add(typed(weak=True), typed((), weak=True)).weak_type
    assert not add(typed(), typed((), weak=True)).weak_type
    assert comparison.lt_p.type_rule(typed(weak=True), typed(weak=True)).weak_type
    assert transcendental.sin_p.type_rule(typed(weak=True)).weak_type
    assert select.select_n_p.type_rule(typed((), "bool"), typed(weak=True), typed(weak=True)).weak_type


def test_python_scalars_adapt():
    array = literal(np.float16(1))
    for scalar, dtype in ((2.0, "float16"), (2, "int32"), (True, "bool")):
        _, value = operands("add", array, scalar)
        assert isinstance(value, Literal) and value.dtype == dtype
    assert operands("add", literal(np.uint8(1)), 255)[1].dtype == np.uint8
    assert operands("add", literal(np.uint8(1)), 256)[1].dtype == np.int32  # which add then refuses
    assert operands("add", 2, 3)[0].weak_type


def test_convert_literals_at_once():
    value = casts.convert(literal(2), np.dtype("float32"))
    assert isinstance(value, Literal) and value.dtype == np.float32 and not value.weak_type
    assert casts.convert(value, np.dtype("float32")) is value
    wrapped = casts.convert(literal(300.7), np.dtype("uint8"))
    assert isinstance(wrapped, Literal) and wrapped.value == 255


def test_every_function_is_that_of_the_oracle():
    lax = pytest.importorskip("jax").lax
    for name in elementwise.__all__:
        if name in ("zeros_like_array", "RoundingMethod", "AccuracyMode", "Tolerance"):
            continue
        ours = list(inspect.signature(getattr(elementwise, name)).parameters)
        assert ours == list(inspect.signature(getattr(lax, name)).parameters), name


# -- shardings ----------------------------------------------------------------------------------------------------------


def test_explicit_shardings():
    xy, xn, ny = (typed((8, 8), spec=s) for s in ((("x",), ("y",)), (("x",), ()), ((), ("y",))))
    (out,) = infer_types(binary.add_p, (xn, ny), {})
    assert out.spec == (("x",), ("y",))
    (out,) = infer_types(binary.add_p, (typed((8, 1), spec=(("x",), ())), typed((1, 8), spec=((), ("y",)))), {})
    assert out.spec == (("x",), ("y",))
    (out,) = infer_types(binary.add_p, (xy, typed(())), {})
    assert out.spec == xy.spec
    with pytest.raises(ShardingTypeError):
        infer_types(binary.add_p, (typed((8, 8), spec=(("x",), ())), typed((8, 8), spec=(("y",), ()))), {})
    with pytest.raises(ShardingTypeError, match="twice"):
        infer_types(binary.add_p, (typed((8, 8), spec=(("x",), ())), typed((8, 8), spec=((), ("x",)))), {})


def test_select_needs_equal_shardings():
    xy, xn = typed((8, 8), spec=(("x",), ("y",))), typed((8, 8), spec=(("x",), ()))
    pred = typed((8, 8), "bool", spec=xy.spec)
    (out,) = infer_types(select.select_n_p, (pred, xy, xy), {})
    assert out.spec == xy.spec
    for scalar in (typed(()), typed((8, 8))):  # of no mesh
        (out,) = infer_types(select.select_n_p, (pred, scalar, xy), {})
        assert out.spec == xy.spec
    with use_dialect("latest"):
        for which, a, b in ((pred, xy, xn), (typed((8, 8), "bool", spec=xn.spec), xy, xy)):
            with pytest.raises(ShardingTypeError, match="select_n"):
                infer_types(select.select_n_p, (which, a, b), {})


def test_clamp_and_bitcast_shardings():
    xy = typed((8, 8), spec=(("x",), ("y",)))
    (out,) = infer_types(select.clamp_p, (typed(()), xy, typed(())), {})
    assert out.spec == xy.spec
    (out,) = infer_types(casts.bitcast_convert_type_p, (xy,), {"new_dtype": np.dtype("int16")})
    assert out.shape == (8, 8, 2) and out.spec == (("x",), ("y",), ())


def test_elementwise_ops_have_no_rule_of_their_own():
    own = {"bitcast_convert_type"}
    for name in (*UNARY, *BINARY, "select_n", "clamp", "convert_element_type", "reduce_precision", "copy", "round"):
        assert (all_ops()[name].rule is None) == (name not in own), name
