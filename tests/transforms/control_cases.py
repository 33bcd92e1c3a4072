"""Programs of loops and branches under derivatives and `vmap`, written once for JAX and for shardwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any], Any]
X = np.linspace(0.1, 1, 4).astype("f4")
W = np.random.RandomState(0).randn(4, 4).astype("f4") * np.float32(0.5)
XS = np.random.RandomState(1).randn(5, 4).astype("f4")


def rnn(J: Any, c: Any, w: Any, xs: Any) -> Any:
    """A carry with a counter, outputs with None among them."""
    jnp = J.numpy

    def step(c, x):
        h = jnp.tanh(c["h"] @ w + x)
        return {"h": h, "n": c["n"] + 1}, (jnp.sin(h) * c["n"], None)

    c, (ys, _) = J.lax.scan(step, {"h": c, "n": 0}, xs)
    return jnp.sum(c["h"]) + jnp.sum(ys**2)


def on(J: Any) -> Callable[..., Any]:
    return lambda *args: rnn(J, *args)


def repeated(J: Any, times: int, f: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda c: J.numpy.sum(J.lax.fori_loop(0, times, f, c))


def closure(J: Any, y: Any) -> Any:
    def inner(v):
        return J.numpy.sum(J.lax.scan(lambda c, x: (c * y, c * x * v), v, XS)[1])

    return J.grad(inner)(y)


def nested(J: Any) -> Callable[[Any], Any]:
    def step(c, x):
        return J.lax.fori_loop(0, 3, lambda i, z: J.numpy.sin(z) * x, c), c

    return lambda c: J.numpy.sum(J.lax.scan(step, c, XS)[0])


SCAN: dict[str, Case] = {
    "grad": lambda J: J.grad(on(J), (0, 1, 2))(X, W, XS),
    "grad in jit": lambda J: J.jit(J.grad(on(J), (0, 1, 2)))(X, W, XS),
    "jvp": lambda J: J.jvp(on(J), (X, W, XS), (X, W, XS)),
    "linearize": lambda J: J.linearize(lambda c: rnn(J, c, W, XS), X)[1](X),
    "hessian": lambda J: J.hessian(on(J))(X, W, XS),
    "vmap": lambda J: J.vmap(on(J), (0, None, None))(np.stack([X, X + 1]), W, XS),
    "vmap of grad": lambda J: J.vmap(J.grad(on(J), (0, 1, 2)), (None, 0, 1))(X, np.stack([W, W + 1]), np.stack([XS, XS + 1], 1)),
    "grad of vmap": lambda J: J.grad(lambda w: J.numpy.sum(
        J.vmap(on(J), (0, None, 1))(np.stack([X, X + 1]), w, np.stack([XS, XS + 1], 1))))(W),
    "reverse": lambda J: J.grad(lambda c: J.numpy.sum(J.lax.scan(
        lambda c, x: (c * x + J.numpy.cos(c), c * c), c, XS, reverse=True, unroll=2)[1]))(X),
    "length": lambda J: J.grad(lambda c: J.lax.scan(lambda c, _: (c * c, None), c, None, length=3)[0])(1.1),
    "no steps": lambda J: J.grad(lambda c: J.numpy.sum(J.lax.scan(lambda c, x: (c * x, None), c, XS[:0])[0]))(X),
    "fori_loop": lambda J: J.grad(repeated(J, 4, lambda i, c: c * i + J.numpy.sin(c)))(X),
    "second order": lambda J: J.grad(J.grad(repeated(J, 4, lambda i, c: J.numpy.sin(c))))(1.1),
    "indexing": lambda J: J.grad(lambda v: J.lax.fori_loop(0, 4, lambda i, a: a + v[i] * i, 0.0))(X),
    "updates": lambda J: J.grad(lambda v: J.numpy.sum(J.lax.fori_loop(0, 4, lambda i, a: a.at[i].set(a[i - 1] * v[i]), v)))(X),
    "map": lambda J: J.grad(lambda v: J.numpy.sum(J.lax.map(lambda x: J.numpy.exp(x) * W[0], v)))(XS),
    "associative_scan": lambda J: J.grad(lambda v: J.numpy.sum(J.lax.associative_scan(J.numpy.multiply, v) ** 2))(XS),
    "closure": lambda J: J.grad(lambda y: J.numpy.sum(closure(J, y)))(X),
    "nested": lambda J: J.grad(nested(J))(X),
    "checkpoint": lambda J: J.grad(lambda c: J.numpy.sum(J.lax.scan(
        J.checkpoint(lambda c, x: (J.numpy.sin(c @ W) + x, None)), c, XS)[0]))(X),
    "transposed": lambda J: J.linear_transpose(lambda c: J.lax.fori_loop(0, 3, lambda i, z: z * i + z, c), 1.0)(2.0),
    "weak": lambda J: J.value_and_grad(lambda c: J.lax.scan(lambda c, x: (c * J.numpy.float32(2), c), c, None, length=2)[0])(3.0),
    "carries that become mapped": lambda J: J.vmap(lambda y: J.lax.scan(
        lambda c, x: ((c[1], c[1] * y, c[2] + 1), c[2]), (1.0, 2.0, 0), None, length=3))(X),
}  # fmt: skip


def branching(J: Any, p: Any, x: Any) -> Any:
    """Branches with different residuals, one with a captured constant."""
    jnp = J.numpy
    return jnp.sum(J.lax.cond(p > 0, lambda x, y: jnp.sin(x) * y * p, lambda x, y: jnp.cos(y * 3) @ W, x, 2 * x))


def choosing(J: Any, i: Any, x: Any) -> Any:
    return J.lax.switch(i, [lambda x: x, lambda x: J.numpy.sin(x) * x, lambda x: J.numpy.zeros_like(x)], x)


def each(J: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: f(J, *args)


COND: dict[str, Case] = {
    **{f"grad where {p}": lambda J, p=p: J.grad(each(J, branching), (0, 1))(p, X) for p in (-1.0, 1.0)},
    **{f"grad in jit where {p}": lambda J, p=p: J.jit(J.grad(each(J, branching), (0, 1)))(p, X) for p in (-1.0, 1.0)},
    **{f"jvp where {p}": lambda J, p=p: J.jvp(lambda x: branching(J, p, x), (X,), (X,)) for p in (-1.0, 1.0)},
    "hessian": lambda J: J.hessian(lambda x: branching(J, 1.0, x))(X),
    "mapped predicate": lambda J: J.vmap(each(J, branching), (0, None))(X - 0.5, X),
    "mapped operand": lambda J: J.vmap(each(J, branching), (None, 1))(1.0, W),
    "vmap of grad": lambda J: J.vmap(J.grad(each(J, branching), (0, 1)), (0, None))(X - 0.5, X),
    "grad of vmap": lambda J: J.grad(lambda x: J.numpy.sum(J.vmap(each(J, branching), (0, None))(X - 0.5, x)))(X),
    **{f"switch {i}": lambda J, i=i: J.grad(lambda x: J.numpy.sum(choosing(J, i, x) ** 2))(X) for i in range(4)},
    "vmap of switch": lambda J: J.vmap(each(J, choosing))(np.arange(4), W),
    "jacrev of vmap of switch": lambda J: J.jacrev(lambda x: J.vmap(each(J, choosing))(np.arange(4), x))(W),
    "in scan": lambda J: J.grad(lambda x: J.numpy.sum(J.lax.scan(
        lambda c, y: (J.lax.cond(y[0] > 0, lambda c: c * y, lambda c: J.numpy.sin(c), c), c), x, XS)[1]))(X),
}  # fmt: skip


def looping(J: Any, x: Any, n: Any) -> Any:
    """A carry with a counter and a value that no step changes."""
    step = lambda s: (s[0] + 1, J.numpy.sin(s[1]) * x, s[2])  # noqa: E731
    return J.lax.while_loop(lambda s: s[0] < n, step, (0, x, x * 2))[1]


def collatz(J: Any, n: Any) -> Any:
    def step(s):
        return J.lax.cond(s[0] % 2 == 0, lambda a: a // 2, lambda a: 3 * a + 1, s[0]), s[1] + 1

    return J.lax.while_loop(lambda s: s[0] > 1, step, (n, 0))[1]


WHILE: dict[str, Case] = {
    "jvp": lambda J: J.jvp(lambda x: looping(J, x, 3), (X,), (X,)),
    "jvp in jit": lambda J: J.jit(lambda x: J.jvp(lambda x: looping(J, x, 3), (x,), (x,)))(X),
    "linearize": lambda J: J.linearize(lambda x: looping(J, x, 3), X)[1](X),
    "second order": lambda J: J.jacfwd(J.jacfwd(lambda x: looping(J, x, 3)))(X),
    "one predicate": lambda J: J.vmap(each(J, looping), (0, None))(W, 3),
    "mapped predicate": lambda J: J.vmap(each(J, looping), (1, 0))(W, np.arange(4)),
    "only the predicate": lambda J: J.jit(J.vmap(each(J, looping), (None, 0)))(X, np.arange(4)),
    "vmap of vmap": lambda J: J.vmap(J.vmap(each(J, looping), (None, 0)), (0, None))(W, np.arange(4)),
    "jvp of vmap": lambda J: J.jvp(lambda x: J.vmap(each(J, looping), (None, 0))(x, np.arange(4)), (X,), (X,)),
    "collatz": lambda J: J.vmap(each(J, collatz))(np.arange(1, 12)),
    "traced bounds": lambda J: J.jit(lambda n, x: J.jvp(lambda x: J.lax.fori_loop(0, n, lambda i, c: c * x, 1.0), (x,), (1.0,)))(3, 2.0),
    "in scan": lambda J: J.vmap(lambda n: J.lax.scan(lambda c, x: (looping(J, c, n), c), X, None, length=2)[1])(np.arange(3)),
}  # fmt: skip
