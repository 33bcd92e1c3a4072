"""Complex numbers as vector code: arithmetic of their parts, and functions with the bits of the ops' kernels.

A function without vector code calls, for each lane, the loop of NumPy's that the kernel calls (`by_ufunc`). Special points are those of
`complex_points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shardwise.runtime.machine import RARE, Lane, Lanes, each_by_ufunc, libm

Parts = tuple[Lane, Lane]
Write = Callable[..., Lane]


def is_finite(w: Lanes, x: Lane) -> Lane:
    """A mask of the finite floats."""
    return w.compare("lt", w.abs(x), w.like(math.inf, x))


def or_complex(real: Write, complex: Write) -> Write:
    """`real` of floats, `complex` of complex values."""

    def write(w: Lanes, *operands: Lane, **params: object) -> Lane:
        return (complex if operands[0].complex else real)(w, *operands, **params)

    return write


# -- arithmetic ------------------------------------------------------------------------------------------------------


def by_part(write: Callable[..., Lane]) -> Callable[..., Lane]:
    """`write`; of complex values, of their real parts and of their imaginary ones."""

    def emit(w: Lanes, *operands: Lane) -> Lane:
        if not operands[0].complex:
            return write(w, *operands)
        real, imag = zip(*map(w.parts_of, operands), strict=True)
        return w.complex_of(write(w, *real), write(w, *imag))

    return emit


def of_parts(condition: str, joined: str) -> Callable[..., Lane]:
    """A comparison; of complex values, that of each part, joined."""

    def emit(w: Lanes, x: Lane, y: Lane) -> Lane:
        if not x.complex:
            return w.compare(condition, x, y)
        real, imag = (w.compare(condition, a, b) for a, b in zip(w.parts_of(x), w.parts_of(y), strict=True))
        return w.binary(joined, real, imag)

    return emit


def product(w: Lanes, x: Lane, y: Lane) -> Lane:
    """Of complex values with NumPy's roundings: in each part, the second product is rounded by itself."""
    if not x.complex:
        return w.mul(x, y)
    (a, b), (c, d) = w.parts_of(x), w.parts_of(y)
    return w.complex_of(w.fma(a, c, w.neg(w.mul(b, d))), w.fma(a, d, w.mul(b, c)))


def absolute(w: Lanes, x: Lane) -> Lane:
    """Of complex values their modulus; the squares of float32 neither overflow nor vanish in float64."""
    if not x.complex:
        return w.abs(x)
    parts = w.parts_of(x)
    if parts[0].dtype == "float64":
        (size,) = each_by_ufunc(w, "numpy.absolute", x, results=["float64"])
        return w.select(_no_nan(w, *parts), size, w.like(math.nan, size))
    real, imag = (w.convert(part, "float64") for part in parts)
    return w.convert(w.call("sqrt", w.fma(real, real, w.mul(imag, imag))), "float32")


def square(w: Lanes, x: Lane) -> Lane:
    """`x` times itself; where squares of parts overflow, their difference is (real - imag) * (real + imag)."""
    out = product(w, x, x)
    if not x.complex:
        return out
    (real, imag), (first, second) = w.parts_of(x), w.parts_of(out)
    odd = _not(w, _both_are_finite(w, first, second))

    def write_scaled() -> list[str]:
        far = w.mul(w.sub(real, imag), w.add(real, imag))
        twice = w.mul(w.like(2, real), w.mul(real, imag))
        return [w.select(odd, far, first).ref, w.select(odd, twice, second).ref]

    refs = w.branch(w.some(odd), write_scaled, [first.ref, second.ref], [w.vector(real.type)] * 2, RARE)
    return w.complex_of(*[Lane(ref, real.dtype) for ref in refs])


def conjugate(w: Lanes, x: Lane) -> Lane:
    """Complex values with imaginary parts of the other sign; of floats, complex values."""
    if not x.complex:
        return w.convert(x, "complex128" if x.type == "double" else "complex64")
    real, imag = w.parts_of(x)
    return w.complex_of(real, w.neg(imag))


def divided_parts(w: Lanes, a: Lane, b: Lane, c: Lane, d: Lane) -> tuple[Lane, Lane]:
    """The parts of (a + b i) / (c + d i), of floats, as NumPy divides: by the ratio of the divisor's parts."""
    first = w.compare("ge", w.abs(c), w.abs(d))
    large, small = w.select(first, c, d), w.select(first, d, c)
    ratio = w.div(small, large)
    scale = w.div(w.like(1, a), w.add(large, w.mul(small, ratio)))
    near, far = w.select(first, a, b), w.select(first, b, a)
    after, before = w.select(first, b, w.mul(b, ratio)), w.select(first, w.mul(a, ratio), a)
    return w.mul(w.add(near, w.mul(far, ratio)), scale), w.mul(w.sub(after, before), scale)


def quotient(w: Lanes, x: Lane, y: Lane) -> Lane:
    """Of complex values; quotients over zero, of infinite values and over them are those of `complex_points.divide`."""
    parts = (*w.parts_of(x), *w.parts_of(y))
    if parts[0].dtype == "float32":
        return _narrow_quotient(w, parts)
    real, imag = usual = divided_parts(w, *parts)
    lost_lanes = w.binary("and", w.isnan(real), w.isnan(imag))

    def write_lost() -> list[str]:
        return [out.ref for out in _lost_quotient(w, parts, lost_lanes, usual)]

    refs = w.branch(w.some(lost_lanes), write_lost, [v.ref for v in usual], [w.vector(real.type)] * 2, RARE)
    return w.complex_of(*[Lane(ref, "float64") for ref in refs])


def _narrow_quotient(w: Lanes, parts: tuple[Lane, Lane, Lane, Lane]) -> Lane:
    """x times conj(y) over the square of y's modulus, in float64, where squares of float32 neither overflow nor vanish.

    All terms take the sign of the divisor's larger part first: zeros get their signs as by the ratio of the parts.
    """
    a, b, c, d = parts
    larger = w.bits_of(w.select(w.compare("ge", w.abs(c), w.abs(d)), c, d))
    sign = w.binary("and", larger, w.like(-(2**31), larger))

    def flip_sign(v: Lane) -> Lane:
        return w.floats_of(w.binary("xor", w.bits_of(v), sign), "float32")

    a, b, c, d = (w.convert(v, "float64") for v in (a, b, flip_sign(c), flip_sign(d)))
    scale = w.div(w.like(1, a), w.fma(c, c, w.mul(d, d)))
    real, imag = w.fma(a, c, w.mul(b, d)), w.fma(b, c, w.neg(w.mul(a, d)))
    usual = [flip_sign(w.convert(w.mul(v, scale), "float32")) for v in (real, imag)]
    lost_lanes = w.binary("and", w.isnan(usual[0]), w.isnan(usual[1]))

    def write_lost() -> list[str]:
        wide_quotient = divided_parts(w, *(w.convert(v, "float64") for v in parts))
        narrow = [w.convert(v, "float32") for v in _lost_quotient(w, parts, lost_lanes, wide_quotient)]
        return [w.select(lost_lanes, new, old).ref for new, old in zip(narrow, usual, strict=True)]

    refs = w.branch(w.some(lost_lanes), write_lost, [v.ref for v in usual], [w.vector("float")] * 2, RARE)
    return w.complex_of(*[Lane(ref, "float32") for ref in refs])


def _lost_quotient(w: Lanes, parts: Sequence[Lane], lost_lanes: Lane, quotient: tuple[Lane, Lane]) -> tuple[Lane, Lane]:
    """The parts of a `quotient` that are `lost_lanes` as NaN: over zero, of infinite values, or over infinite ones."""
    infinite = [w.compare("eq", w.abs(v), w.like(math.inf, v)) for v in parts]
    far, away = (w.binary("or", x, y) for x, y in (infinite[:2], infinite[2:]))
    given, over = (w.binary("and", is_finite(w, x), is_finite(w, y)) for x, y in (parts[:2], parts[2:]))
    a, b, c, d = (w.convert(v, "float64") for v in parts)
    zero, one, inf = (w.like(v, a) for v in (0, 1, math.inf))
    nothing = w.binary("and", w.compare("eq", c, zero), w.compare("eq", d, zero))
    limit = w.copysign(inf, c)
    real, imag = (w.select(nothing, w.mul(limit, v), old) for v, old in zip((a, b), quotient, strict=True))
    lost_lanes = w.binary("and", lost_lanes, w.binary("and", w.isnan(real), w.isnan(imag)))
    of, by = w.binary("and", far, over), w.binary("and", away, given)
    lost_lanes = w.binary("and", lost_lanes, w.binary("or", of, by))
    a, b, c, d = (
        w.select(where, w.copysign(w.select(at, one, zero), v), v)
        for v, at, where in zip((a, b, c, d), infinite, (of, of, by, by), strict=True)
    )
    factor = w.select(of, inf, zero)
    real = w.select(lost_lanes, w.mul(factor, w.add(w.mul(a, c), w.mul(b, d))), real)
    return real, w.select(lost_lanes, w.mul(factor, w.sub(w.mul(b, c), w.mul(a, d))), imag)


# -- functions -------------------------------------------------------------------------------------------------------

Where = Callable[[Lanes, Lane, Lane], Lane]  # of the parts of an operand


def by_ufunc(ufunc: str) -> Write:
    """NumPy's function `ufunc` of values of one type."""
    return lambda w, *operands: each_by_ufunc(w, ufunc, *operands)[0]


def _define_where(function: Write, where: Where) -> Write:
    """`function`, but NaN in both parts unless ``where(real, imag)``."""

    def write(w: Lanes, x: Lane) -> Lane:
        is_defined = where(w, *w.parts_of(x))
        real, imag = w.parts_of(function(w, x))
        nan = w.like(math.nan, real)
        return w.complex_of(w.select(is_defined, real, nan), w.select(is_defined, imag, nan))

    return write


def _not(w: Lanes, x: Lane) -> Lane:
    return w.binary("xor", x, w.constant(True, "bool"))


def _first_is_finite(w: Lanes, first: Lane, second: Lane) -> Lane:
    return is_finite(w, first)


def _second_is_finite(w: Lanes, first: Lane, second: Lane) -> Lane:
    return is_finite(w, second)


def _both_are_finite(w: Lanes, first: Lane, second: Lane) -> Lane:
    return w.binary("and", is_finite(w, first), is_finite(w, second))


def _no_nan(w: Lanes, first: Lane, second: Lane) -> Lane:
    return _not(w, w.binary("or", w.isnan(first), w.isnan(second)))


def _one_is_known(w: Lanes, first: Lane, second: Lane) -> Lane:
    """A mask: the second part is finite, or the first one is not."""
    return w.binary("or", is_finite(w, second), _not(w, is_finite(w, first)))


def _other_is_known(w: Lanes, first: Lane, second: Lane) -> Lane:
    return _one_is_known(w, second, first)


def _cut_along(part: int, function: Write, where: Where) -> Write:
    """`function`, but on the branch cut ``where(real, imag)`` a part of -0.0 gives the same value as 0.0."""

    def write(w: Lanes, x: Lane) -> Lane:
        parts = list(w.parts_of(x))
        along = parts[part]
        cut = w.binary("and", w.compare("eq", along, w.like(0, along)), where(w, *parts))
        parts[part] = w.select(cut, w.like(0, along), along)
        is_defined = w.binary("or", _no_nan(w, *parts), _some_infinite(w, *parts))
        real, imag = w.parts_of(function(w, w.complex_of(*parts)))
        nan = w.like(math.nan, real)
        return w.complex_of(w.select(is_defined, real, nan), w.select(is_defined, imag, nan))

    return write


def _some_infinite(w: Lanes, first: Lane, second: Lane) -> Lane:
    real, imag = (w.compare("eq", w.abs(v), w.like(math.inf, v)) for v in (first, second))
    return w.binary("or", real, imag)


def _beyond_one(part: int) -> Where:
    return lambda w, *parts: w.compare("gt", w.abs(parts[part]), w.like(1, parts[part]))


def _below(limit: float) -> Where:
    return lambda w, real, imag: w.compare("lt", real, w.like(limit, real))


def exp_parts(w: Lanes, real: Lane, imag: Lane) -> Parts:
    """The parts of an exponential, of floats in float64."""
    size = libm.exp(w, real)
    return w.mul(size, libm.cos(w, imag)), w.mul(size, libm.sin(w, imag))


def sqrt_parts(w: Lanes, real: Lane, imag: Lane) -> Parts:
    """The parts of a square root, of floats in float64."""
    zero, half = w.like(0, real), w.like(0.5, real)
    size = w.call("sqrt", w.fma(real, real, w.mul(imag, imag)))
    t = w.call("sqrt", w.mul(half, w.add(w.abs(real), size)))
    u = w.select(w.compare("eq", t, zero), zero, w.div(w.mul(half, w.abs(imag)), t))
    right = w.compare("ge", real, zero)
    side = w.select(right, imag, w.add(imag, zero))  # on the cut, with imaginary part -0.0 too, the root above
    return w.select(right, t, u), w.copysign(w.select(right, u, t), side)


def _in_double(parts: Callable[..., Parts], special: Write) -> Write:
    """Of complex64 `parts` in float64, rounded once, but `special` where that is zero or not finite; `special` of complex128."""

    def write(w: Lanes, x: Lane) -> Lane:
        if x.dtype == "complex128":
            return special(w, x)
        wide = [w.convert(part, "float64") for part in w.parts_of(x)]
        real, imag = (w.convert(part, "float32") for part in parts(w, *wide))
        zero = w.like(0, real)
        nothing = w.binary("and", w.compare("eq", real, zero), w.compare("eq", imag, zero))
        odd = w.binary("or", nothing, _not(w, _both_are_finite(w, real, imag)))

        def write_special() -> list[str]:
            return [w.select(odd, y, z).ref for y, z in zip(w.parts_of(special(w, x)), (real, imag), strict=True)]

        refs = w.branch(w.some(odd), write_special, [real.ref, imag.ref], [w.vector("float")] * 2, RARE)
        return w.complex_of(*[Lane(ref, "float32") for ref in refs])

    return write


def _expm1(w: Lanes, x: Lane) -> Lane:
    """Real for real numbers. The real part is a difference, so that its zeros are positive."""
    real, imag = w.parts_of(_define_where(by_ufunc("numpy.expm1"), _second_is_finite)(w, x))
    given = w.parts_of(x)[1]
    whole = w.compare("eq", given, w.like(0, given))
    return w.complex_of(w.add(real, w.like(0, real)), w.select(whole, given, imag))


def _log1p_near_one(w: Lanes, x: Lane) -> Lane:
    """With all digits where 1 + x has a modulus near 1, as `complex_points.log1p`."""
    (out,) = each_by_ufunc(w, "numpy.log1p", x)
    a, b = (w.convert(part, "float64") for part in w.parts_of(x))
    terms = [w.mul(w.like(2, a), a), *_square_and_rest(w, a), *_square_and_rest(w, b)]
    excess, lost_bits = terms[0], w.like(0, a)
    for term in terms[1:]:
        total = w.add(excess, term)
        back = w.sub(total, excess)
        lost_bits = w.add(lost_bits, w.add(w.sub(excess, w.sub(total, back)), w.sub(term, back)))
        excess = total
    excess = w.add(excess, lost_bits)
    near = w.binary(
        "and",
        w.compare("lt", w.abs(excess), w.like(0.5, excess)),
        w.compare("lt", w.abs(a), w.like(3, a)),
    )
    (log,) = each_by_ufunc(w, "numpy.log1p", excess)
    real, imag = w.parts_of(out)
    return w.complex_of(w.select(near, w.convert(w.mul(w.like(0.5, log), log), real.dtype), real), imag)


def _square_and_rest(w: Lanes, a: Lane) -> Parts:
    """a * a, and its rounding error."""
    product = w.mul(a, a)
    return product, w.fma(a, a, w.neg(product))


def reciprocal(w: Lanes, x: Lane) -> Lane:
    """``1 / x``."""
    return quotient(w, w.like(1, x), x)


def _logistic(w: Lanes, x: Lane) -> Lane:
    real, imag = w.parts_of(exp(w, by_part(Lanes.neg)(w, x)))
    return reciprocal(w, w.complex_of(w.add(real, w.like(1, real)), imag))


def sign(w: Lanes, x: Lane) -> Lane:
    """`x` over its modulus, part by part; 0 of 0."""
    real, imag = w.parts_of(x)
    (size,) = each_by_ufunc(w, "numpy.absolute", x, results=[real.dtype])
    size = w.select(_no_nan(w, real, imag), size, w.like(math.nan, size))
    size = w.select(w.compare("eq", size, w.like(0, size)), w.like(1, size), size)
    return w.complex_of(w.div(real, size), w.div(imag, size))


def power(w: Lanes, x: Lane, y: Lane) -> Lane:
    """`x` to the power `y`, which may be an integer."""
    return by_ufunc("numpy.power")(w, x, w.convert(y, x.dtype))


def _root(w: Lanes, x: Lane) -> Lane:
    return _cut_along(1, _define_where(by_ufunc("numpy.sqrt"), _no_nan), _below(0))(w, x)


exp = _in_double(exp_parts, _define_where(by_ufunc("numpy.exp"), _second_is_finite))
sqrt = _in_double(sqrt_parts, _root)
FUNCTIONS: dict[str, Write] = {
    "exp": exp,
    "sqrt": sqrt,
    "rsqrt": lambda w, x: reciprocal(w, sqrt(w, x)),
    "logistic": _logistic,
    "expm1": _expm1,
    "exp2": _define_where(by_ufunc("numpy.exp2"), _both_are_finite),
    "log": _define_where(by_ufunc("numpy.log"), _no_nan),
    "log1p": _define_where(_log1p_near_one, _no_nan),
    "sin": _define_where(by_ufunc("numpy.sin"), _first_is_finite),
    "cos": _define_where(by_ufunc("numpy.cos"), _first_is_finite),
    "tan": _define_where(by_ufunc("numpy.tan"), _other_is_known),
    "sinh": _define_where(by_ufunc("numpy.sinh"), _second_is_finite),
    "cosh": _define_where(by_ufunc("numpy.cosh"), _second_is_finite),
    "tanh": _define_where(by_ufunc("numpy.tanh"), _one_is_known),
    "asin": _cut_along(1, by_ufunc("numpy.arcsin"), _beyond_one(0)),
    "acos": _cut_along(1, by_ufunc("numpy.arccos"), _beyond_one(0)),
    "atan": by_ufunc("numpy.arctan"),
    "asinh": _cut_along(0, by_ufunc("numpy.arcsinh"), _beyond_one(1)),
    "acosh": _cut_along(1, by_ufunc("numpy.arccosh"), _below(1)),
    "atanh": by_ufunc("numpy.arctanh"),
}
