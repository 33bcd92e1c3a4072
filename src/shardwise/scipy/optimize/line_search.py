"""A step along a direction after which a function has fallen enough and its slope has flattened (the strong Wolfe conditions).

In: the function, where it stands and the direction. Out: a `Step`. The step is doubled until it brackets a good one,
then the bracket shrinks to a cubic's or a parabola's minimum, or by halves (Nocedal and Wright, algorithms 3.5 and 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shardwise import numpy as jnp
from shardwise.base.dtypes import finfo
from shardwise.lax import adaptive as lax
from shardwise.transforms.derivatives.autodiff import value_and_grad

__all__: list[str] = []

_FALL = 1e-4  # of the fall that the slope promises, this share must come true
_FLAT = 0.9  # of the slope, this share may be left
_ZOOMS = 30  # halvings of a bracket, at most


class Point(NamedTuple):
    """A step `a` along the direction: the function, its slope along the direction and its gradient there."""

    a: Any
    phi: Any
    dphi: Any
    g: Any


class Step(NamedTuple):
    """The step, the function there, and the status of the search: 0, 1 (no step in the bracket), 3 (out of steps)."""

    a: Any
    phi: Any
    g: Any
    failed: Any
    status: Any
    evaluations: Any


class _Zoom(NamedTuple):
    """A bracket: its better end, its other end, the end it had before, and the point that will do if there is one."""

    low: Point
    high: Point
    old_a: Any
    old_phi: Any
    best: Point
    done: Any
    failed: Any
    count: Any


def _pick(condition: Any, yes: Any, no: Any) -> Any:
    """Every field from one of two tuples of equal fields."""
    return type(no)(
        *(
            _pick(condition, y, n) if isinstance(n, tuple) else jnp.where(condition, y, n)
            for y, n in zip(yes, no, strict=True)
        )
    )


def _cubic(low: Point, high: Point, old_a: Any, old_phi: Any) -> Any:
    """The minimum of the cubic through three values and one slope."""
    b, c = high.a - low.a, old_a - low.a
    rise_b, rise_c = high.phi - low.phi - low.dphi * b, old_phi - low.phi - low.dphi * c
    scale = (b * c) ** 2 * (b - c)
    third = (c**2 * rise_b - b**2 * rise_c) / scale
    second = (b**3 * rise_c - c**3 * rise_b) / scale
    return low.a + (-second + jnp.sqrt(second * second - 3 * third * low.dphi)) / (3 * third)


def _parabola(low: Point, high: Point) -> Any:
    """The minimum of the parabola through two values and one slope."""
    b = high.a - low.a
    return low.a - low.dphi * b**2 / (2 * (high.phi - low.phi - low.dphi * b))


def _next_length(s: _Zoom) -> Any:
    """The next length to try in a bracket: where a cubic or a parabola is least, else the middle."""
    width = jnp.abs(s.high.a - s.low.a)
    left, right = jnp.minimum(s.low.a, s.high.a), jnp.maximum(s.low.a, s.high.a)
    # NaNs fail both comparisons, and the bracket is halved.
    cubic, parabola = _cubic(s.low, s.high, s.old_a, s.old_phi), _parabola(s.low, s.high)
    by_cubic = (s.count > 0) & (cubic > left + 0.2 * width) & (cubic < right - 0.2 * width)
    by_parabola = ~by_cubic & (parabola > left + 0.1 * width) & (parabola < right - 0.1 * width)
    return jnp.where(by_cubic, cubic, jnp.where(by_parabola, parabola, (s.low.a + s.high.a) / 2))


def _shrink(
    s: _Zoom, p: Point, too_high: Callable[[Point], Any], flat: Callable[[Point], Any], narrowest: float
) -> _Zoom:
    """The bracket with `p`, a point inside it, as one of its ends; it has failed once it is as narrow as `narrowest`."""
    worse = too_high(p) | (p.phi >= s.low.phi)
    good = ~worse & flat(p)
    is_turned = ~worse & ~good & (p.dphi * (s.high.a - s.low.a) >= 0)
    better = ~worse & ~good
    high = _pick(worse, p, _pick(is_turned, s.low, s.high))
    moves_high = worse | is_turned
    old_a = jnp.where(moves_high, s.high.a, jnp.where(better, s.low.a, s.old_a))
    old_phi = jnp.where(moves_high, s.high.phi, jnp.where(better, s.low.phi, s.old_phi))
    count = s.count + 1
    has_failed = s.failed | (jnp.abs(s.high.a - s.low.a) <= narrowest) | (count >= _ZOOMS)
    low, best = _pick(better, p, s.low), _pick(good, p, s.best)
    return _Zoom(low, high, old_a, old_phi, best, s.done | good, has_failed, count)


def line_search(
    f: Callable[[Any], Any], x: Any, direction: Any, value: Any, before: Any, gradient: Any, limit: int
) -> Step:
    """The step from `x` [n], where `f` is `value`; at most `limit` doublings.

    `before` was the value one step ago, from which the first length follows. Without it (None) that is the whole direction.
    """
    slope = jnp.real(jnp.dot(gradient, direction, precision=lax.Precision.HIGHEST))
    single = finfo(direction.dtype).bits < 64

    def at(a: Any) -> Point:
        a = jnp.asarray(a, slope.dtype)
        phi, g = value_and_grad(f)(x + a.astype(direction.dtype) * direction)
        dphi = jnp.real(jnp.dot(g, direction, precision=lax.Precision.HIGHEST))
        return Point(a, phi.astype(value.dtype), dphi.astype(slope.dtype), g.astype(gradient.dtype))

    too_high = lambda p: p.phi > value + _FALL * p.a * slope  # noqa: E731
    flat = lambda p: jnp.abs(p.dphi) <= -_FLAT * slope  # noqa: E731
    origin = Point(jnp.zeros((), slope.dtype), jnp.asarray(value), slope, jnp.asarray(gradient))

    def zoom_step(s: _Zoom) -> _Zoom:
        return _shrink(s, at(_next_length(s)), too_high, flat, 1e-5 if single else 1e-10)

    def zoom(low: Point, high: Point, wanted: Any) -> _Zoom:
        best = Point(jnp.ones((), slope.dtype), low.phi, low.dphi, origin.g)
        zero = jnp.asarray(0)
        start = _Zoom(low, high, (low.a + high.a) / 2, (low.phi + high.phi) / 2, best, zero > 0, zero > 0, zero)
        return lax.while_loop(lambda s: ~s.done & wanted & ~s.failed, zoom_step, start)

    guess = jnp.ones(()) if before is None else 1.01 * 2 * (value - before) / slope
    first = jnp.where(guess > 1, 1.0, guess).astype(slope.dtype)

    def step(state: Any) -> Any:
        is_done, has_failed, i, last, best, count = state
        p = at(jnp.where(i == 1, first, last.a * 2))
        over = too_high(p) | ((p.phi >= last.phi) & (i > 1))
        good = ~over & flat(p)
        past = ~over & ~good & (p.dphi >= 0)
        is_bracketed = over | past
        zoom_result = zoom(_pick(over, last, p), _pick(over, p, last), is_bracketed)
        best = _pick(is_bracketed, zoom_result.best, _pick(good, p, best))
        return (
            is_done | over | good | past,
            has_failed | (is_bracketed & zoom_result.failed),
            i + 1,
            p,
            best,
            count + 1 + zoom_result.count,
        )

    zero = jnp.asarray(0)
    start = (zero > 0, zero > 0, zero + 1, origin, origin, zero)
    goes_on = lambda s: ~s[0] & ~s[1] & (s[2] <= limit)  # noqa: E731
    is_done, has_failed, i, _, best, count = lax.while_loop(goes_on, step, start)
    status = jnp.where(has_failed, 1, jnp.where(i > limit, 3, 0))
    # In single precision a step this small would leave x where it is.
    a = jnp.where(jnp.abs(best.a) < 1e-8, jnp.sign(best.a) * 1e-8, best.a) if single else best.a
    return Step(a.astype(direction.dtype), best.phi, best.g, has_failed | ~is_done, status, count)
