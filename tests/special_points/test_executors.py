"""Eager ops, small programs, large loops and NumPy alone: equal where it counts, in NaN, infinities and the signs of zeros."""

from __future__ import annotations

from pathlib import Path

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
""".split()


def _bits(x):
    """What has to be equal: NaN, infinities and zeros, with their signs."""
    if x.dtype.kind == "c":
        return np.stack([_bits(x.real), _bits(x.imag)])
    if x.dtype.kind in "biu":
        return x
    small = np.abs(x) < np.finfo(x.dtype).tiny  # subnormal numbers may vanish
    kind = np.where(np.isnan(x), 4, np.where(np.isinf(x), 3, np.where(small, 1, 2)))
    return np.where(np.isnan(x), kind, np.copysign(kind, x))


def _run(function, given, how):
    if how == "large":
        given = {name: np.tile(x, -(-LARGE // len(x))) for name, x in given.items()}
    arrays = {name: shardwise.numpy.asarray(x) for name, x in given.items()}
    if how == "small":
        parts = [
            {name: x[i : i + 64] for name, x in arrays.items()} for i in range(0, len(next(iter(given.values()))), 64)
        ]
        return np.concatenate([np.asarray(shardwise.jit(function)(**part)) for part in parts])
    return np.asarray((function if how == "eager" else shardwise.jit(function))(**arrays))


def _case(expression, scope):
    given = {name: OPERANDS[name][:192] for name in operands_of(expression)}
    return eval(f"lambda {', '.join(given)}: {expression}", scope), given


@pytest.mark.parametrize("how", ["small", "large"])
def test_as_eager(how):
    scope = table.library("shardwise")
    failed = []
    for expression in EXPRESSIONS:
        function, given = _case(expression, scope)
        want = _run(function, given, "eager")
        got = _run(function, given, how)[: len(want)]
        off = _bits(got) != _bits(want)
        if off.any():
            places = np.flatnonzero(off.reshape(-1, len(want)).any(0))[:3]
            shown = [([float(np.real(given[n][i])) for n in given], want[i], got[i]) for i in places]
            failed.append(f"{expression}: {shown}")
    assert not failed, "\n".join(failed)


def test_without_machine_code(shell, tmp_path):
    """A process without LLVM gives the same."""
    path = tmp_path / "found.npz"
    found = shell("-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
                  f"from tests.special_points import test_executors\ntest_executors.save({str(path)!r})",
                  SHARDWISE_LLVM="0")  # fmt: skip
    assert not found.returncode, found.stderr
    scope = table.library("shardwise")
    failed = []
    with np.load(path) as alone:
        for number, expression in enumerate(EXPRESSIONS):
            want = _bits(_run(*_case(expression, scope), "eager"))
            if (alone[str(number)] != want).any():
                failed.append(expression)
    assert not failed


def save(path):
    """What the expressions give in large programs, in a file."""
    scope = table.library("shardwise")
    out = {}
    for number, expression in enumerate(EXPRESSIONS):
        function, given = _case(expression, scope)
        size = len(next(iter(given.values())))
        out[str(number)] = _bits(_run(function, given, "large")[:size])
    np.savez(path, **out)
