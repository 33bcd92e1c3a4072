"""Compositions of grad, vmap, jit, loops, checkpoint, custom rules and shard_map on sharded values, beside JAX.

Gradients have the values, the types (explicit mode shows layouts in them) and the shardings that JAX gives them.
"""

from __future__ import annotations

import pytest

from tests import oracles
from tests.differential.oracle import compare

SETUP = """
auto, explicit = mesh_of((4, 2), ("x", "y")), mesh_of((4, 2), ("x", "y"), "Explicit")
put = lambda mesh, x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
A, E = functools.partial(put, auto), functools.partial(put, explicit)
X, W, B = data((8, 4)), data((4, 6), seed=1), data((6,), seed=2)
loss = lambda w, b, x: jnp.sum((x @ w + b) ** 2) / 8

@jax.custom_jvp
def doubled(x):
    return x * 2
doubled.defjvp(lambda ps, ts: (doubled(ps[0]), ts[0] * 3))

@jax.custom_vjp
def clipped(x):
    return x * 2
clipped.defvjp(lambda x: (clipped(x), x), lambda x, ct: (jnp.clip(ct, -1, 1) * x,))

def layers(w, x):
    return lax.scan(lambda c, _: (jnp.maximum(c @ w, 0.25) / 4, jnp.sum(c)), x, None, length=3)
S = data((4, 4), seed=3)
"""

# Over automatic axes only values can be compared with what each compiler chooses, unless the shardings are asked for.
AUTO = {
    "grad": "jax.jit(jax.grad(loss, (0, 1, 2)))(A(W, None, 'y'), A(B, 'y'), A(X, 'x'))",
    "value_and_grad": "jax.jit(jax.value_and_grad(loss))(A(W, 'y'), B, A(X, 'x', 'y'))",
    "vmap of grad": "jax.jit(jax.vmap(jax.grad(loss), (None, None, 0)))(A(W, None, 'y'), B, A(X, 'x'))",
    "grad of vmap": "jax.jit(jax.grad(lambda w: jnp.sum(jax.vmap(lambda x: (x @ w) ** 2)(A(X, 'x')))))(A(W, 'y'))",
    "eager grad": "jax.grad(loss, (0, 2))(A(W, None, 'y'), A(B, 'y'), A(X, 'x'))",
    "jacrev": "jax.jit(jax.jacrev(lambda b: jnp.sin(b) * b[0]))(A(B, 'y'))",
    "jacfwd": "jax.jit(jax.jacfwd(lambda b: jnp.sin(b) * b[0]))(A(B, 'y'))",
    "hessian": "jax.jit(jax.hessian(lambda b: jnp.sum(b ** 3) * b[1]))(A(B, 'y'))",
    "scan": "jax.jit(jax.grad(lambda w, x: sum(jnp.sum(o) for o in layers(w, x)), (0, 1)))(A(S, None, 'y'), A(X, 'x'))",
    "checkpointed scan": "jax.jit(jax.grad(jax.checkpoint(lambda w, x: sum(jnp.sum(o) for o in layers(w, x)))))(A(S, 'y'), A(X, 'x'))",
    "cond": "jax.jit(jax.grad(lambda x: jnp.sum(lax.cond(jnp.sum(x) > 0, jnp.square, jnp.negative, x))))(A(X, 'x', 'y'))",
    "fori_loop": "jax.jit(jax.grad(lambda x: jnp.sum(lax.fori_loop(0, 3, lambda i, c: c * c / 8, x))))(A(X, 'x'))",
    "while_loop forward": "jax.jit(lambda x: jax.jvp(lambda x: lax.while_loop(lambda c: jnp.sum(c) < 99, lambda c: c * c + 1, x), "
    "(x,), (x,)))(A(X, 'x'))",
    "custom_jvp": "jax.jit(jax.grad(lambda x: jnp.sum(doubled(x) ** 2)))(A(X, 'x'))",
    "custom_vjp": "jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(clipped(x) ** 2))))(A(X, 'x'))",
    "indexing": "jax.jit(jax.grad(lambda x: jnp.sum(x[jnp.array([1, 7, 1])] ** 2)))(A(X, 'x'))",
    "second order": "jax.jit(jax.grad(lambda w: jnp.sum(jax.grad(loss)(w, B, X) ** 2)))(A(W, 'x', 'y'))",
    "linearize": "jax.jit(lambda x: jax.linearize(lambda x: jnp.sum(x ** 3, 1), x)[1](x))(A(X, 'x'))",
    "vjp out of jit": "jax.jit(lambda x: jax.vjp(lambda x: jnp.sum(x ** 3, 1), x))(A(X, 'x'))[1](data((8,)))",
    "fwd_and_bwd": "(lambda f: f[1](f[0](A(X, 'x'))[1], data((8,))))(jax.fwd_and_bwd(lambda x: jnp.sum(x ** 3, 1), 0))",
}

SHARDED_MAPS = {
    "psum of parts": ("lambda x, w: lax.psum(jnp.sum((x @ w) ** 2), 'x')", "(P('x'), P())", "P()"),
    "pmean": ("lambda x, w: lax.pmean(jnp.sum(x @ w), ('x', 'y'))", "(P('x', None), P(None, 'y'))", "P()"),
    "all_gather": (
        "lambda x, w: jnp.sum((lax.all_gather(x, 'x', tiled=True) @ w) ** 2)[None]",
        "(P('x'), P(None, 'y'))",
        "P(('x', 'y'))",
    ),
    "psum_scatter": (
        "lambda x, w: lax.psum_scatter(x @ w, 'y', scatter_dimension=1, tiled=True)",
        "(P('x', 'y'), P('y'))",
        "P('x', 'y')",
    ),
    "ppermute": (
        "lambda x, w: lax.ppermute(x * 2, 'x', [(i, (i + 1) % 4) for i in range(4)]) @ w",
        "(P('x'), P())",
        "P('x')",
    ),
    "all_to_all": ("lambda x, w: lax.all_to_all(x, 'x', 1, 0, tiled=True) @ w[:1]", "(P('x'), P())", "P('x')"),
    "axis_index": ("lambda x, w: x @ w * (1 + lax.axis_index('x'))", "(P('x'), P(None, 'y'))", "P('x', 'y')"),
    "scan with a collective": (
        "lambda x, w: lax.scan(lambda c, r: (c + lax.psum(jnp.sum(r * r), 'x'), c), lax.psum(0.0 * jnp.sum(x), 'x'), x @ w)[0]",
        "(P('x'), P())",
        "P()",
    ),
    "checkpoint": ("jax.checkpoint(lambda x, w: lax.psum(jnp.sin(x @ w), 'x'))", "(P('x'), P())", "P()"),
}


@pytest.mark.parametrize("dialect", oracles.VERSIONS)
@pytest.mark.parametrize("name", AUTO)
def test_automatic_axes(name: str, dialect: str) -> None:
    if dialect == "latest" or name != "fwd_and_bwd":  # the seeds' JAX has no jax.fwd_and_bwd
        compare(f"{SETUP}\nresult = {AUTO[name]}", dialect=dialect, ulps=64)


EXPLICIT = {
    "grad": "jax.grad(loss, (0, 1, 2))(E(W, None, 'y'), E(B, 'y'), E(X, 'x'))",
    "jit of grad": "jax.jit(jax.grad(loss, (0, 1, 2)))(E(W, None, 'y'), E(B, 'y'), E(X, 'x'))",
    "vmap of grad": "jax.vmap(jax.grad(lambda x: jnp.sum(x ** 3)))(E(X, 'x', 'y'))",
    "scan": "jax.jit(jax.grad(lambda w, x: sum(jnp.sum(o) for o in layers(w, x)), (0, 1)))(E(S), E(X, 'x'))",
    "checkpoint": "jax.jit(jax.grad(jax.checkpoint(lambda w, x: jnp.sum(jnp.sin(x @ w)))))(E(W, None, 'y'), E(X, 'x'))",
    "custom rules": "jax.jit(jax.grad(lambda x: jnp.sum(clipped(doubled(x)) ** 2)))(E(X, 'x', 'y'))",
    "cond": "jax.jit(jax.grad(lambda x: jnp.sum(lax.cond(jnp.sum(x) > 0, jnp.square, jnp.negative, x))))(E(X, 'x', 'y'))",
    "jvp": "jax.jit(lambda x: jax.jvp(lambda x: jnp.sum(x ** 2, 1), (x,), (x,)))(E(X, 'x', 'y'))",
    "broadcasting": "jax.grad(lambda b, x: jnp.sum(jnp.sin(x[:, :1]) * b))(E(B, 'y'), E(X, 'x'))",
    "second order": "jax.jit(jax.jvp, static_argnums=0)(jax.grad(lambda x: jnp.sum(x ** 3)), (E(X, 'x'),), (E(X, 'x'),))",
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_axes(name: str) -> None:
    compare(f"{SETUP}\nwith jax.set_mesh(explicit):\n    result = {EXPLICIT[name]}", ulps=64, types=True, spec=True)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("name", SHARDED_MAPS)
def test_shard_map(name: str, check_vma: bool) -> None:
    fun, in_specs, out_specs = SHARDED_MAPS[name]
    compare(
        f"{SETUP}\nf = jax.shard_map({fun}, mesh=auto, in_specs={in_specs}, out_specs={out_specs}, check_vma={check_vma})\n"
        "g = lambda x, w: jnp.sum(jnp.cos(jnp.arange(f(x, w).size).reshape(f(x, w).shape)) * f(x, w))\n"
        "args = (A(X, 'x'), A(W))\n"
        "result = [jax.jit(jax.grad(g, (0, 1)))(*args), jax.jit(lambda *a: jax.jvp(f, a, a))(*args)]",
        ulps=4096,
        types=True,
    )
