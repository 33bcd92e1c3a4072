"""`shardwise.test_util`: derivatives checked against differences, along one random direction.

For a function ``f``, a point ``x`` and a direction ``v``, ``(f(x + h v) - f(x - h v)) / 2h`` is the derivative along
``v`` up to O(h^2). Forward mode must agree with it; reverse mode must satisfy for a random cotangent ``ct``:
``<ct, J v> = <vjp(ct), v>``, the real part of the plain product where values are complex.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from shardwise.base.dtypes import dtype_of, float0, issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import tree_flatten, tree_leaves, tree_map, tree_structure
from shardwise.transforms.derivatives.autodiff import jvp, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

Tolerance = float | Mapping[Any, float] | None

# The step of the differences, where rounding and truncation errors are about equal, by the bytes of a real part.
_STEPS = {1: 1e-1, 2: 5e-2, 4: 2e-3, 8: 1e-4}

# How far derivatives may be from such differences; bfloat16 has as few digits as a byte of a float.
_TOLERANCES = {1: 1e-1, 2: 1e-2, 4: 2e-3, 8: 1e-5}
_BFLOAT16_TOLERANCE = _TOLERANCES[1]


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check ``f_jvp(args, tangents)``, as ``partial(jax.jvp, f)`` is, against differences of `f` along random tangents.

    Args:
        atol, rtol: tolerances, times the number of elements; a number or a mapping from dtypes to numbers.
        eps: the step of the differences; by default one that suits the narrowest dtype.
        err_msg: the beginning of the error.

    Raises:
        AssertionError: values or derivatives do not match.

    >>> from functools import partial
    >>> from shardwise.test_util import check_jvp
    >>> check_jvp(jnp.sin, partial(jax.jvp, jnp.sin), (1.0,), atol=0.01, rtol=0.01)
    """
    rng = np.random.default_rng(0)
    args = tuple(args)
    tangents = tree_map(functools.partial(_random_like, rng), args)
    value, tangent = f_jvp(args, tangents)
    check_close(f(*args), value, atol, rtol, err_msg or "the value beside the derivative")
    expected_change = _difference(f, args, tangents, eps)
    check_close(
        expected_change, tree_map(_differentiable, tangent), atol, rtol, err_msg or "the derivative of forward mode"
    )


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check ``f_vjp(*args) -> (value, pull)``, as ``partial(jax.vjp, f)`` is, against differences of `f`.

    `atol`, `rtol`, `eps`, `err_msg` and errors as in `check_jvp`.

    >>> from functools import partial
    >>> from shardwise.test_util import check_vjp
    >>> check_vjp(jnp.sin, partial(jax.vjp, jnp.sin), (1.0,), atol=0.01, rtol=0.01)
    """
    rng = np.random.default_rng(0)
    args = tuple(args)
    value, pull = f_vjp(*args)
    check_close(f(*args), value, atol, rtol, err_msg or "the value beside the derivative")
    tangents = tree_map(functools.partial(_random_like, rng), args)
    cotangents = tree_map(functools.partial(_random_like, rng), value)
    expected_change = _product(cotangents, _difference(f, args, tangents, eps))
    derivative = _product(tangents, tree_map(_differentiable, pull(cotangents)))
    check_close(expected_change, derivative, atol, rtol, err_msg or "the derivative of reverse mode")


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of `f` at `args` up to this order, in every combination of the modes, against
    differences.

    Args:
        modes: of 'fwd' and 'rev'.
        atol, rtol, eps: as in `check_jvp`.

    Raises:
        AssertionError: they do not match; the message names the modes in the order in which they were taken.
        ValueError: a mode of another name.

    >>> from shardwise.test_util import check_grads
    >>> check_grads(jnp.sin, (1.0,), order=2, atol=0.01, rtol=0.01)
    """
    for mode in modes:
        if mode not in ("fwd", "rev"):
            raise ValueError(f"check_grads takes the modes 'fwd' and 'rev', got {mode!r}.")
    _check_orders(f, tuple(args), order, tuple(modes), atol, rtol, eps, "")


def _check_orders(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    order: int,
    modes: tuple[str, ...],
    atol: Tolerance,
    rtol: Tolerance,
    eps: float | None,
    taken: str,
) -> None:
    if order < 1:
        return
    rng = np.random.default_rng(order)
    for mode in modes:
        path = f"{taken} of {mode}" if taken else mode
        if mode == "fwd":
            check_jvp(f, functools.partial(jvp, f), args, atol, rtol, eps, f"jvp ({path})")
            derived_function = _push_through(f, tree_map(functools.partial(_random_like, rng), args))
        else:
            check_vjp(f, functools.partial(vjp, f), args, atol, rtol, eps, f"vjp ({path})")
            derived_function = _pull_through(f, tree_map(functools.partial(_random_like, rng), f(*args)))
        _check_orders(derived_function, args, order - 1, modes, atol, rtol, eps, path)


def _push_through(f: Callable[..., Any], tangents: Any) -> Callable[..., Any]:
    return lambda *xs: tree_map(_differentiable, jvp(f, xs, tangents)[1])


def _pull_through(f: Callable[..., Any], cotangents: Any) -> Callable[..., Any]:
    return lambda *xs: tree_map(_differentiable, vjp(f, *xs)[1](cotangents))


def _random_like(rng: np.random.Generator, x: Any) -> Any:
    """A random tangent of `x`: of its shape and dtype, float0 if it has no derivative."""
    dtype: Any = dtype_of(x)
    shape = np.shape(x)
    if not issubdtype(dtype, np.inexact):
        return np.zeros(shape, float0)
    sample = rng.standard_normal(shape)
    if issubdtype(dtype, np.complexfloating):
        sample = sample + 1j * rng.standard_normal(shape)
    return np.asarray(sample).astype(dtype)


def _differentiable(x: Any) -> Any:
    """`x`, but float0 zeros as plain zeros, which compare and add."""
    return np.zeros(np.shape(x)) if dtype_of(x) == float0 else x


def _difference(f: Callable[..., Any], args: tuple[Any, ...], tangents: Any, given: float | None) -> Any:
    widths = [_real_bytes(dtype_of(x)) for x in tree_leaves((args, f(*args))) if issubdtype(dtype_of(x), np.inexact)]
    eps = given or _STEPS[min(widths, default=8)]

    def shift(step: float) -> Any:
        def along(x: Any, v: Any) -> Any:
            return x if v.dtype == float0 else (np.asarray(x) + step * v).astype(v.dtype)

        return f(*tree_map(along, args, tangents))

    def quotient(up: Any, down: Any) -> Any:
        if not issubdtype(dtype_of(up), np.inexact):
            return np.zeros(np.shape(up))
        up, down = np.asarray(up), np.asarray(down)
        dtype = up.dtype
        wide = np.result_type(up.dtype, np.float64) if up.dtype.kind in "fc" else np.dtype(np.float64)
        up, down = up.astype(wide), down.astype(wide)
        difference = np.subtract(
            up, down, out=np.zeros_like(up), where=up != down
        )  # equal infinities differ by nothing
        return (difference / (2 * eps)).astype(dtype)

    return tree_map(quotient, shift(eps), shift(-eps))


def _product(a: Any, b: Any) -> np.ndarray[Any, Any]:
    pairs = [
        (np.asarray(x), np.asarray(y))
        for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True)
        if dtype_of(x) != float0
    ]
    total = sum(np.real(np.sum(x.astype(np.complex128) * y.astype(np.complex128))) for x, y in pairs)
    narrow = min((_real_bytes(v.dtype) for pair in pairs for v in pair), default=8)
    if any(v.dtype.name == "bfloat16" for pair in pairs for v in pair):
        return np.asarray(total, bfloat16)
    return np.asarray(total, {1: np.float16, 2: np.float16, 4: np.float32, 8: np.float64}[narrow])


def _real_bytes(dtype: Any) -> int:
    size = np.dtype(dtype).itemsize
    return size // 2 if issubdtype(dtype, np.complexfloating) else size


def check_close(
    expected: Any, found: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "the values"
) -> None:
    """AssertionError with `err_msg` where two trees of arrays are further apart than the tolerances, or those of their dtypes."""
    if tree_structure(expected) != tree_structure(found):
        raise AssertionError(f"{err_msg}: trees differ, {tree_structure(expected)} and {tree_structure(found)}")
    for x, y in zip(tree_flatten(expected)[0], tree_flatten(found)[0], strict=True):
        a, b = np.asarray(x), np.asarray(y)
        assert a.shape == b.shape, f"{err_msg}: shapes differ, {a.shape} and {b.shape}"
        bounds = [max(_tolerance(v.dtype, given) for v in (a, b)) * max(a.size, 1) for given in (atol, rtol)]
        wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
        np.testing.assert_allclose(b.astype(wide), a.astype(wide), atol=bounds[0], rtol=bounds[1], err_msg=err_msg)


def _tolerance(dtype: Any, given: Tolerance) -> float:
    exact = not issubdtype(dtype, np.inexact)
    default = 0.0 if exact else _TOLERANCES[_real_bytes(dtype)] if dtype != bfloat16 else _BFLOAT16_TOLERANCE
    if given is None:
        return default
    if isinstance(given, Mapping):
        return next((float(t) for d, t in given.items() if np.dtype(d) == dtype), default)
    return float(given)


__dir__ = _listing(__name__)
