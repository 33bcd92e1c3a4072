"""Eager ops, small programs, large loops and NumPy alone: equal where it counts, in NaN, infinities and the signs of zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise
from tests.special_points import table
from tests.special_points.answers import operands_of
from tests.special_points.points import OPERANDS

ROOT = Path(__file__).parent.parent.parent
LARGE = 120_000  # elements, more than programs for small values take

EXPRESSIONS = """
lax.abs(x) lax.acos(x) lax.acosh(x) lax.asin(x) lax.asinh(x) lax.atan(x) lax.atanh(x) lax.cbrt(x) lax.ceil(x) lax.cos(x) lax.cosh(x)
lax.erf(x) lax.erf_inv(x) lax.erfc(x) lax.exp(x) lax.exp2(x) lax.expm1(x) lax.floor(x) lax.is_finite(x) lax.log(x) lax.log1p(x)
lax.logistic(x) lax.neg(x) lax.reciprocal(x) lax.round(x) lax.rsqrt(x) lax.sign(x) lax.sin(x) lax.sinh(x) lax.sqrt(x) lax.square(x)
lax.tan(x) lax.tanh(x) lax.add(a,b) lax.atan2(a,b) lax.div(a,b) lax.eq(a,b) lax.max(a,b) lax.min(a,b) lax.mul(a,b) lax.nextafter(a,b)
lax.pow(a,b) lax.rem(a,b) lax.sub(a,b) lax.clamp(p,q,r) lax.integer_pow(x,3) lax.integer_pow(x,-2) jnp.clip(x,-0.0,1.0)
jnp.clip(x,0.0,0.0) jnp.power(x,0.5) jnp.power(x,-0.5) jnp.floor_divide(a,b) jnp.remainder(a,b) jnp.logaddexp(a,b) jnp.hypot(a,b)
jnp.fmax(a,b) jnp.copysign(a,b) nn.relu(x) nn.softplus(x) nn.gelu(x) special.xlogy(a,b) special.logit(x) lax.div(i,j) lax.rem(i,j)
lax.shift_left(i,j) lax.shift_right_logical(i,j) lax.shift_right_arithmetic(i,j) lax.max(i,j) lax.sqrt(z) lax.exp(z) lax.expm1(z)
lax.square(z) lax.abs(z) lax.mul(z,z) lax.add(z,z) lax.conj(z) lax.neg(z) lax.real(z) lax.imag(z) lax.eq(z,z)
lax.lgamma(x) lax.digamma(x) lax.bessel_i0e(x) lax.bessel_i1e(x) lax.igamma(a,b) lax.exp2(a) lax.logistic(z) lax.log(z) lax.sin(z)
lax.tanh(z) lax.cos(z) lax.tan(z) lax.sinh(z) lax.cosh(z) lax.asin(z) lax.acos(z) lax.atan(z) lax.asinh(z) lax.acosh(z) lax.atanh(z)
lax.exp2(z) lax.log1p(z) lax.rsqrt(z) lax.sign(z) lax.pow(z,z) lax.integer_pow(z,3) lax.div(z,z)
jnp.sinc(x) jnp.log2(x) jnp.log10(x) jnp.exp2(x) jnp.heaviside(a,b) nn.mish(x) nn.elu(x) nn.selu(x)
nn.log_sigmoid(x) nn.tanh(x) special.expit(x) special.ndtr(x) special.log_ndtr(x) special.entr(x) special.erf(x) special.gammaln(x)
special.xlog1py(a,b) special.rel_entr(a,b) special.i0e(x) lax.zeta(a,b) lax.polygamma(a,b)
special.gamma(z) special.loggamma(z) special.wofz(z) special.erfcx(z) special.hyp1f1(p,q,r)
jnp.gcd(i,j) jnp.power(i,j) lax.reduce_precision(x,5,10) lax.reduce_precision(x,8,7)
lax.reduce_precision(x,4,3) lax.reduce_precision(x,11,0)
lax.max(z,lax.conj(z)) lax.min(z,lax.conj(z))
special.sici(x)[0] special.sici(x)[1] special.fresnel(x)[0]
""".split()


# A document shows the logistic of few elements as NumPy's exponential rounds it; loops are nearer to what is true.
ROUNDS_APART = {"lax.logistic(x)", "special.expit(x)", "nn.log_sigmoid(x)", "nn.mish(x)"}


def _bits(x):
    """What has to be equal: NaN, infinities and zeros, with their signs."""
    if x.dtype.kind == "c":
        return np.stack([_bits(x.real), _bits(x.imag)])
    if x.dtype.kind in "biu":
        return x
    small = np.abs(x) < np.finfo(x.dtype).tiny  # subnormal numbers may vanish
    kind = np.where(np.isnan(x), 4, np.where(np.isinf(x), 3, np.where(small, 1, 2)))
    return np.where(np.isnan(x), kind, np.copysign(kind, x))


def _run(function: Callable[..., Any], given: dict[str, Any], how: str) -> Any:
    if how == "large":
        given = {name: np.tile(x, -(-LARGE // len(x))) for name, x in given.items()}
    arrays = {name: shardwise.numpy.asarray(x) for name, x in given.items()}
    count = len(next(iter(given.values())))
    if how in ("small", "few", "one"):
        size, most, run = {
            "small": (64, count, shardwise.jit(function)),
            "few": (7, 105, function),
            "one": (1, 16, function),
        }[how]
        starts = range(0, min(count, most), size)
        return np.concatenate(
            [np.asarray(run(**{name: x[i : i + size] for name, x in arrays.items()})) for i in starts]
        )
    if how in ("mapped", "split"):
        arrays = {name: x[: count - count % 4] for name, x in arrays.items()}
    if how == "mapped":
        rows = {name: x.reshape(4, -1) for name, x in arrays.items()}
        return np.asarray(shardwise.vmap(lambda row: function(**row))(rows)).reshape(-1)
    if how == "split":
        sharding = shardwise.NamedSharding(shardwise.make_mesh((4,), ("x",)), shardwise.P("x"))
        return np.asarray(function(**{name: shardwise.device_put(x, sharding) for name, x in arrays.items()}))
    return np.asarray((function if how == "eager" else shardwise.jit(function))(**arrays))


def _case(expression, scope):
    given = {name: OPERANDS[name][:192] for name in operands_of(expression)}
    return eval(f"lambda {', '.join(given)}: {expression}", scope), given


@pytest.mark.parametrize("how", ["one", "few", "small", "mapped", "split", "large"])
def test_as_eager(how):
    scope = table.library("shardwise")
    failed = []
    for expression in EXPRESSIONS:
        function, given = _case(expression, scope)
        want = _run(function, given, "eager")
        got = _run(function, given, how)[: len(want)]
        want = want[: len(got)]
        off = (_bits(got) != _bits(want)).reshape(-1, len(want)).any(0)
        if expression not in ROUNDS_APART:
            off |= (got != want) & ~np.isnan(want)  # whatever the number of elements, the last bit is the same
        if off.any():
            places = np.flatnonzero(off)[:3]
            shown = [([float(np.real(given[n][i])) for n in given], want[i], got[i]) for i in places]
            failed.append(f"{expression}: {shown}")
    assert not failed, "\n".join(failed)


# Of float16 and bfloat16 each op rounds once, wherever it runs; what is a polynomial is the same everywhere, bit for bit.
NARROW = [
    "x ** 3 + y ** 2",
    "x ** 5",
    "x ** -2",
    "3 * x ** 4 - 2 * x + 1",
    "x * y + x / y",
    "jnp.square(x) - y",
    "jnp.maximum(x, y) * x",
]
# Of float32 the exponential and its kin differ in the last bits between libraries; gelu is x times a sum of two terms about 1.
ROUNDED = ["nn.gelu(x)", "nn.gelu(x, approximate=False)", "nn.silu(x)", "jnp.tanh(x)"]
TERMS = 4  # units of the last place of 1, times x
ZEROS = ["jnp.max(rows, 1)", "jnp.min(rows, 1)", "jnp.max(rows, 0)", "jnp.min(rows, 0)", "jnp.max(rows)", "jnp.min(rows)",
         "lax.cummax(rows, 1)", "lax.cummin(rows, 1)", "lax.cummax(rows, 0)", "lax.cummin(rows, 0)", "lax.cumsum(rows, 1)",
         "lax.cumsum(rows, 0, reverse=True)", "jnp.sum(rows, 1)"]  # fmt: skip


def _function(names: str, expression: str, scope: dict[str, Any]) -> Callable[..., Any]:
    return eval(f"lambda {names}: {expression}", scope)


def _narrow(dtype):
    """What narrow floats give: in one program, and in programs of a few elements."""
    scope, rng = table.library("shardwise"), np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40_000)).astype(dtype)
    out = {}
    for expression in NARROW:
        function = shardwise.jit(_function("x, y", expression, scope))
        out[expression] = np.asarray(function(x, y)).astype(np.float32)
        few = np.asarray(function(x[:40], y[:40])).astype(np.float32)
        np.testing.assert_array_equal(few, out[expression][:40], err_msg=expression)
    return out


def _rounded():
    scope, x = table.library("shardwise"), np.linspace(-12, 12, 100_001, dtype=np.float32)
    return x, {e: np.asarray(shardwise.jit(_function("x", e, scope))(x)) for e in ROUNDED}


def _zeros(size):
    """Extrema and sums of nothing but zeros: their signs."""
    scope = table.library("shardwise")
    out = {}
    for pattern in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        for dtype in ("float32", "bfloat16"):
            rows = np.resize(np.array(pattern, np.float32), (3, size))
            rows = scope["jnp"].asarray(rows, dtype)
            for expression in ZEROS:
                function = eval(f"lambda rows: {expression}", scope)
                small = shardwise.jit(lambda rows, f=function: f(rows) * 1.0)  # several ops: one machine function
                plain, one, fused = (
                    np.signbit(np.asarray(f(rows), np.float32)) for f in (function, shardwise.jit(function), small)
                )
                np.testing.assert_array_equal(plain, one, err_msg=f"{expression} of {pattern} as {dtype}")
                np.testing.assert_array_equal(plain, fused, err_msg=f"{expression} of {pattern} as {dtype}")
                out[f"{expression}|{pattern}|{dtype}"] = plain
    return out


@pytest.mark.parametrize("size", [2, 37, 50_000])
def test_signs_of_zeros(size):
    """0.0 is greater than -0.0, and sums begin with 0.0."""
    for key, negative in _zeros(size).items():
        expression, pattern, _ = key.split("|")
        if "sum" in expression:
            assert not negative.any(), key
        elif pattern == "[-0.0, -0.0]":
            assert negative.all(), key
        elif expression in ("jnp.max(rows, 1)", "jnp.max(rows)"):
            assert not negative.any(), key
        elif expression in ("jnp.min(rows, 1)", "jnp.min(rows)"):
            assert negative.all(), key


def test_without_machine_code(shell, tmp_path):
    """A process without LLVM gives the same."""
    path = tmp_path / "found.npz"
    found = shell(
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.special_points import test_executors\ntest_executors.save({str(path)!r})",
        SHARDWISE_LLVM="0",
    )
    assert not found.returncode, found.stderr
    scope = table.library("shardwise")
    failed = []
    with np.load(path) as alone:
        for number, expression in enumerate(EXPRESSIONS):
            want = _bits(_run(*_case(expression, scope), "eager"))
            if (alone[str(number)] != want).any():
                failed.append(expression)
        assert not failed
        for key, negative in _zeros(700).items():
            np.testing.assert_array_equal(alone[f"zeros {key}"], negative, err_msg=key)
        for dtype in ("float16", "bfloat16"):
            for key, value in _narrow(getattr(ml_dtypes, dtype, dtype)).items():
                np.testing.assert_array_equal(alone[f"{dtype} {key}"], value, err_msg=key)
        x, rounded = _rounded()
        for key, value in rounded.items():
            allowed = 2.0**-23 * (TERMS * np.maximum(np.abs(x), 1) + TERMS * np.abs(value))
            assert (np.abs(alone[key] - value) <= allowed).all(), key


def save(path):
    """What the expressions give in large programs, in a file."""
    scope = table.library("shardwise")
    out = {}
    for number, expression in enumerate(EXPRESSIONS):
        function, given = _case(expression, scope)
        size = len(next(iter(given.values())))
        out[str(number)] = _bits(_run(function, given, "large")[:size])
    out |= {f"zeros {key}": value for key, value in _zeros(700).items()}
    for dtype in ("float16", "bfloat16"):
        out |= {f"{dtype} {key}": v for key, v in _narrow(getattr(ml_dtypes, dtype, dtype)).items()}
    out |= _rounded()[1]
    np.savez(path, **out)
