"""Elementwise arithmetic and mathematics: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise import lax
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error, over

CASES = (
    over(
        "exp sqrt sin cos sinh cosh tanh log log2 log10 degrees radians sinc "
        "reciprocal expm1 exp2 cbrt tan arcsin arccos arctan arcsinh arccosh arctanh log1p i0",
        """
jnp.@(v)
jnp.@(i)
jnp.@(k)
jnp.@(bf)
""",
    )
    + over(
        "exp sqrt sin cos sinh cosh tanh log log2 log10 sinc reciprocal",
        """
jnp.@(c)
""",
    )
    + over(
        "positive ceil trunc rint fabs sign absolute square floor round nan_to_num real imag conjugate angle",
        """
jnp.@(v)
jnp.@(h)
jnp.@(n)
""",
    )
    + over(
        "absolute square real imag conjugate angle",
        """
jnp.@(c)
""",
    )
    + over(
        "add subtract multiply maximum minimum fmin fmax true_divide divide "
        "arctan2 float_power hypot heaviside logaddexp logaddexp2 fmod floor_divide remainder divmod",
        """
jnp.@(v, w)
jnp.@(m, v)
jnp.@(m, n)
jnp.@(i, n)
jnp.@(v, f)
jnp.@(i, f)
jnp.@(k, v)
jnp.@(i, k)
jnp.@(u, n)
jnp.@(h, bf)
jnp.@(b, f)
jnp.@(k, f)
""",
    )
    + over(
        "subtract true_divide arctan2 float_power hypot heaviside fmin minimum fmax",
        """
jnp.@(gap, w)
""",
    )
    + """
jnp.degrees(c)
jnp.radians(c)
jnp.sign(gap)
jnp.sign(c)
jnp.round(gap)
jnp.round(c)
jnp.nan_to_num(gap)
jnp.angle(gap)
jnp.absolute(u)
jnp.absolute(b)
jnp.square(b)
jnp.floor(b)
jnp.negative(v)
jnp.negative(u)
jnp.negative(k)
jnp.round(f, 1)
jnp.round(v, 2)
jnp.round(m, -1)
jnp.round(h, 1)
jnp.nan_to_num(gap, nan=1, posinf=5, neginf=-5)
jnp.nan_to_num(f)
jnp.bitwise_count(n)
jnp.bitwise_count(u)
jnp.bitwise_count(b)
jnp.invert(n)
jnp.invert(b)
jnp.invert(u)
jnp.angle(c, deg=True)
jnp.clip(v, 0, 1)
jnp.clip(i, 1)
jnp.clip(i, 1.5, 3)
jnp.clip(i, None, m)
jnp.clip(u, 3, 300)
jnp.clip(i)
jnp.clip(k, 1, 2)
jnp.add(gap, w)
jnp.multiply(gap, w)
jnp.maximum(gap, w)
jnp.divide(gap, w)
jnp.floor_divide(gap, w)
jnp.remainder(gap, w)
jnp.fmod(gap, w)
jnp.divmod(gap, w)
jnp.power(v, w)
jnp.power(v, f)
jnp.power(i, f)
jnp.power(k, v)
jnp.power(i, k)
jnp.power(h, bf)
jnp.power(b, f)
jnp.power(k, f)
jnp.power(gap, w)
jnp.logaddexp2(gap, w)
jnp.power(w, i)
jnp.power(n, i)
jnp.power(i, 2)
jnp.power(k, 2)
jnp.power(u, np.int8(3))
jnp.power(b, 3)
jnp.power(v, 3)
jnp.power(v, -1)
jnp.power(2, i)
jnp.power(w, n)
jnp.power(c, 2)
jnp.power(2.0, i)
jnp.add(b, b)
jnp.multiply(b, b)
jnp.add(c, v)
jnp.multiply(c, k)
jnp.divide(c, w)
jnp.maximum(c, 1+2j)
jnp.minimum(c, v)
jnp.fmax(c, k)
jnp.logaddexp(c, v)
jnp.logaddexp2(c, v)
jnp.power(c, f)
jnp.logaddexp(gap, 3.0)
jnp.bitwise_and(i, n)
jnp.bitwise_or(i, u)
jnp.bitwise_xor(b, bm)
jnp.bitwise_and(i, 3)
jnp.left_shift(i, 2)
jnp.left_shift(i, j)
jnp.right_shift(n, 1)
jnp.right_shift(u, 1)
jnp.left_shift(True, 1)
jnp.gcd(i, n)
jnp.lcm(i, n)
jnp.gcd(i, 6)
jnp.gcd(12, 18)
jnp.gcd(u, j)
jnp.fmod(n, j)
jnp.remainder(n, j)
jnp.floor_divide(n, j)
jnp.divmod(n, j)
jnp.floor_divide(u, u)
jnp.remainder(u, 7)
jnp.floor_divide(n, 3)
jnp.remainder(n, 3)
jnp.floor_divide(n, -3)
jnp.remainder(n, -3)
jnp.floor_divide(m, 0.3)
jnp.remainder(m, 0.3)
jnp.remainder(m, -0.3)
jnp.nextafter(v, w)
jnp.nextafter(h, 0)
"""
)

ERRORS = """
jnp.sin([1])
jnp.sin("a")
jnp.add(None, 1)
jnp.add(v, [1])
jnp.negative(b)
jnp.subtract(b, b)
jnp.sign(b)
jnp.floor(c)
jnp.fabs(c)
jnp.cbrt(c)
jnp.round(i, -1)
jnp.clip(c, 0, 1)
jnp.clip()
jnp.left_shift(v, 2)
jnp.bitwise_and(v, 2)
jnp.invert(v)
jnp.gcd(v, 2)
jnp.floor_divide(c, 2)
jnp.remainder(c, 2)
jnp.hypot(c, 1)
jnp.power(i, -1)
jnp.power(2, -3)
jnp.add(v, a5)
jnp.add(m, odd)
jnp.add(m, a5)
jnp.add(2**40, 1)
jnp.add(i, 2**31)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_outer_promotes_no_rank():
    with shardwise.numpy_rank_promotion("raise"):
        assert jnp.add.outer(jnp.ones((2, 3)), jnp.ones(4)).shape == (2, 3, 4)
        assert jnp.multiply.outer(2.0, jnp.ones(4)).shape == (4,)
        assert jnp.frompyfunc(lambda a, b: a - b, 2, 1).outer(jnp.ones(2), jnp.ones((4, 1))).shape == (2, 4, 1)


@pytest.mark.parametrize("name", ["nin", "nout", "nargs", "identity"])
def test_what_a_ufunc_is_cannot_be_changed(name):
    with pytest.raises(AttributeError):
        setattr(jnp.add, name, 3)


def test_vectorize_refuses_none_where_the_signature_has_dims():
    first = jnp.vectorize(lambda x, y: x, signature="(k),(k)->(k)")
    with pytest.raises(ValueError, match=r"Cannot pass None at locations \{1\} with signature"):
        first(jnp.arange(3), None)


@pytest.mark.parametrize("results", [2, 4])
def test_vectorize_counts_results(results: int) -> None:
    f = jnp.vectorize(lambda *x: x[:1] * results, signature="()->(),(),()")
    with pytest.raises(TypeError, match="wrong number of output arguments"):
        f(1.0)
    with pytest.raises(TypeError, match="output must be a tuple"):
        jnp.vectorize(lambda x: x, signature="()->(),()")(1.0)


def test_vectorize_makes_arrays_of_its_arguments() -> None:
    class Own:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.arange(3.0, dtype="float32")

    doubled = jnp.vectorize(lambda x, y: x + y, signature="(),()->()")
    assert doubled(Own(), [1.0, 2.0, 3.0]).tolist() == [1.0, 3.0, 5.0]


def test_methods_are_the_functions_that_are_given():
    """Each method calls the function that the ufunc was made with, with JAX's arguments."""
    told: list[tuple[str, dict[str, object]]] = []

    def note(method) -> Any:
        return lambda *args, **options: told.append((method, options)) or args[0]

    add = jnp.ufunc(
        lax.add, 2, 1, identity=0, **{m: note(m) for m in ("call", "reduce", "accumulate", "at", "reduceat")}
    )
    x = jnp.arange(4)
    assert add(x, x) is x
    for result in (
        add.reduce(x),
        add.accumulate(x),
        add.at(x, 1, 2, inplace=False),
        add.reduceat(x, jnp.array([0, 2])),
    ):
        assert result is x
    assert [method for method, _ in told] == ["call", "reduce", "accumulate", "at", "reduceat"]
    assert told[-1][1] == {"axis": 0, "dtype": None}
