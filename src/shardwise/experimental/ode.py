"""`shardwise.experimental.ode`: `odeint`, ordinary differential equations by Dormand's and Prince's steps of the fifth order.

In: the time derivative of a tree of arrays, the tree at the first time, the times. Out: the tree at all times.
Derivatives solve the adjoint equation backwards, from each time to the one before, so that no steps are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.base.overrides import default_matmul_precision
from shardwise.base.tree import tree_leaves, tree_map
from shardwise.flatten_util import ravel_pytree
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.transforms.derivatives.autodiff import vjp
from shardwise.transforms.derivatives.custom_derivatives import closure_convert, custom_vjp
from shardwise.transforms.interpreters.vmap import vmap
from shardwise.transforms.jit.jit import jit

__all__ = ["odeint"]

# Dormand and Prince: the stages' nodes, their weights of earlier stages, the weights of the fifth-order step, and of its error.
_AT = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_OF = np.zeros((6, 7))
_OF[0, :1] = [1 / 5]
_OF[1, :2] = [3 / 40, 9 / 40]
_OF[2, :3] = [44 / 45, -56 / 15, 32 / 9]
_OF[3, :4] = [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]
_OF[4, :5] = [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]
_OF[5, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]
_STEP = _OF[5]
_ERROR = _STEP - np.array([1951 / 21600, 0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60])
# Half a step, for the polynomial between.
_MIDDLE = (
    np.array(
        [
            6025192743 / 30085553152,
            0,
            51252292925 / 65400821598,
            -2691868925 / 45128329728,
            187940372067 / 1594534317056,
            -1776094331 / 19743644256,
            11237099 / 235043384,
        ]
    )
    / 2
)
# Columns: how much of dt * dy0, dt * dy1, y0, y1 and y_middle each coefficient of the quartic takes, highest power first.
_QUARTIC = np.array([[-2, 2, -8, -8, 16], [5, -3, 18, 14, -32], [-4, 1, -11, -5, 16], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]])

Flow = Callable[[Any, Any], Any]  # (y, t) -> dy/dt, y a vector


def _like(table: np.ndarray, x: Any) -> Any:
    return jnp.asarray(table, x.dtype)


def _stages(flow: Flow, y: Any, f: Any, t: Any, dt: Any) -> Any:
    """The derivatives at the seven stages of one step, [7, n]."""
    at, of, size = _like(_AT, dt), _like(_OF, f), dt.astype(f.dtype)

    def stage(i: Any, k: Any) -> Any:
        return k.at[i].set(flow(y + size * jnp.dot(of[i - 1], k), t + dt * at[i - 1]))

    return lax.fori_loop(1, 7, stage, jnp.zeros((7, *f.shape), f.dtype).at[0].set(f))


def _ratio(error: Any, rtol: Any, atol: Any, y: Any, next_y: Any) -> Any:
    """The error's size, as a multiple of the tolerance."""
    tolerance = atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(next_y))
    return jnp.sqrt(jnp.mean(jnp.square(jnp.abs(error / tolerance.astype(error.dtype)))))


def _next_size(dt: Any, ratio: Any) -> Any:
    """The step that should make an error a little less than is allowed; it grows tenfold or shrinks to a fifth at most."""
    least = jnp.where(ratio < 1, 1.0, 0.2)
    factor = jnp.minimum(10.0, jnp.maximum(ratio ** (-1 / 5) * 0.9, least))
    return dt * jnp.where(ratio == 0, 10.0, factor)


def _first_size(flow: Flow, t: Any, y: Any, f: Any, rtol: Any, atol: Any) -> Any:
    """A first step, from how fast the solution and its derivative change (Hairer, Norsett and Wanner, section II.4)."""
    scale = (atol + jnp.abs(y) * rtol).astype(y.dtype)
    d0, d1 = jnp.linalg.norm(y / scale), jnp.linalg.norm(f / scale)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    d2 = jnp.linalg.norm((flow(y + h0.astype(y.dtype) * f, t + h0) - f) / scale) / h0
    still = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = jnp.where(still, jnp.maximum(1e-6, h0 * 1e-3), (0.01 / jnp.maximum(d1, d2)) ** (1 / 5))
    return jnp.minimum(100.0 * h0, h1)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _solve(func: Callable[..., Any], rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Any, ts: Any, *args: Any) -> Any:
    """The vectors [times, n] at the times `ts`, starting with `y0` [n]."""
    flow = lambda y, t: func(y, t, *args)  # noqa: E731

    def until(carry: Any, target: Any) -> Any:
        def before(state: Any) -> Any:
            count, _, _, t, dt, _, _ = state
            return (t < target) & (count < mxstep) & (dt > 0)

        def step(state: Any) -> Any:
            count, y, f, t, dt, last, quartic = state
            k, size = _stages(flow, y, f, t, dt), dt.astype(f.dtype)
            next_y = size * jnp.dot(_like(_STEP, f), k) + y
            ratio = _ratio(size * jnp.dot(_like(_ERROR, f), k), rtol, atol, y, next_y)
            middle = y + size * jnp.dot(_like(_MIDDLE, f), k)
            points = jnp.stack([size * k[0], size * k[-1], y, next_y, middle])
            new_size = jnp.clip(_next_size(dt, ratio), 0.0, hmax).astype(dt.dtype)
            next_state = (next_y, k[-1], t + dt, t, jnp.dot(_like(_QUARTIC, y), points))
            next_values = [
                jnp.where(ratio <= 1, a, b) for a, b in zip(next_state, (y, f, t, last, quartic), strict=True)
            ]
            return [count + 1, *next_values[:3], new_size, *next_values[3:]]

        _, *carry = lax.while_loop(before, step, [0, *carry])
        _, _, t, _, last, quartic = carry
        share = (target - last) / (t - last)
        return carry, jnp.polyval(quartic, share.astype(quartic.dtype))

    f0 = flow(y0, ts[0])
    dt = jnp.clip(_first_size(flow, ts[0], y0, f0, rtol, atol), 0.0, hmax).astype(ts.dtype)
    _, ys = lax.scan(until, [y0, f0, ts[0], dt, ts[0], jnp.stack([y0] * 5)], ts[1:])
    return jnp.concatenate([y0[None], ys])


def _forward(func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Any, ts: Any, *args: Any) -> Any:
    ys = _solve(func, rtol, atol, mxstep, hmax, y0, ts, *args)
    return ys, (ys, ts, args)


def _backward(func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, kept: Any, ct: Any) -> Any:
    """The adjoint equation, in negative time: the state, its cotangent and those of time and arguments go back together."""
    ys, ts, args = kept

    def adjoint(state: Any, negative: Any, *args: Any) -> Any:
        y, y_ct, *_ = state
        slope, pull = vjp(func, y, -negative, *args)
        return (-slope, *pull(y_ct))

    def back(carry: Any, i: Any) -> Any:
        y_ct, first_ct, args_ct = carry
        # A later time would have let the solution run on.
        t_ct = jnp.real(jnp.dot(func(ys[i], ts[i], *args), ct[i])).astype(ts.dtype)
        state = (ys[i], y_ct, first_ct - t_ct, args_ct)
        between = odeint(
            adjoint, state, jnp.stack([-ts[i], -ts[i - 1]]), *args, rtol=rtol, atol=atol, mxstep=mxstep, hmax=hmax
        )
        _, y_ct, first_ct, args_ct = tree_map(lambda x: x[1], between)
        return (y_ct + ct[i - 1], first_ct, args_ct), t_ct

    start = (ct[-1], jnp.zeros((), ts.dtype), tree_map(jnp.zeros_like, args))
    (y_ct, first_ct, args_ct), ts_ct = lax.scan(back, start, jnp.arange(len(ts) - 1, 0, -1))
    return (y_ct, jnp.concatenate([first_ct[None], ts_ct[::-1]]), *args_ct)


_solve.defvjp(_forward, _backward)


@functools.partial(jit, static_argnums=(0, 1, 2, 3, 4))
def _on_trees(func: Any, rtol: Any, atol: Any, mxstep: Any, hmax: Any, y0: Any, ts: Any, *args: Any) -> Any:
    flat, unravel = ravel_pytree(y0)
    with default_matmul_precision("highest"):
        ys = _solve(
            lambda y, t, *a: ravel_pytree(func(unravel(y), t, *a))[0], rtol, atol, mxstep, hmax, flat, ts, *args
        )
    return vmap(unravel)(ys)


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: Any = jnp.inf,
    hmax: Any = jnp.inf,
) -> Any:
    """The solution of dy/dt = func(y, t, *args) at the increasing times `t` [times], starting with y0 at t[0].

    `y0` is an array or a tree of arrays; the result is the same with a first dim [times]. Each step's error is kept under
    `atol + rtol * |y|`; `mxstep` bounds the steps between two times and `hmax` their length. Derivatives are taken of y0, t,
    args and the captured values of `func`. TypeError if t is not floating or args hold something else than arrays.

    >>> times = jnp.array([0.0, 1.0])
    >>> jax.experimental.ode.odeint(lambda y, t: -y, jnp.float32(1.0), times).round(3)
    Array([1.   , 0.368], dtype=float32)
    """
    for arg in tree_leaves(args):
        if not isinstance(arg, (Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise TypeError(f"The contents of odeint *args must be arrays or scalars, but got {arg}.")
    if not issubdtype(t.dtype, np.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.")
    closed_function, consts = closure_convert(func, y0, t[0], *args)
    return _on_trees(closed_function, rtol, atol, mxstep, hmax, y0, t, *args, *consts)


__dir__ = _listing(__name__)
