"""Programs that take every second row, weave rows and merge dims that the axes do not divide; experts in 8 bits, inverse roots."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import add_function

ROWS = ("x",)


def _sums(e: Any, x: Any) -> Any:
    return e.lax.associative_scan(e.jnp.add, x)


def _haar(e: Any, x: Any) -> Any:
    return x[::2] + x[1::2], x[::2] - x[1::2]


def _haar_of_an_image(e: Any, x: Any) -> Any:
    return x[::2, ::2] + x[1::2, ::2] + x[::2, 1::2] - x[1::2, 1::2]


add_function("prefixes_of_few_rows", _sums, ((64, 16), ROWS), out=ROWS, x=8)
add_function("prefixes_of_uneven_rows", _sums, ((1000, 16), ROWS), out=ROWS, x=8)
add_function("wavelet_of_uneven_rows", _haar, ((1000, 16), ROWS), x=8)
add_function("wavelet_of_an_image", _haar_of_an_image, ((100, 60), ("x", "y")), x=4, y=2)
add_function("every_second_of_a_cut", lambda e, x: x[3:-2][::2] + 1, ((1024, 16), ROWS), x=8)
add_function("merged_differences", lambda e, x: (x[1:] - x[:-1]).reshape(-1), ((1024, 4), ROWS), x=8)
add_function(
    "woven_rows",
    lambda e, a, b: e.jnp.stack([a[1:], b[:-1]], 1).reshape(-1, 16) * 2,
    ((1024, 16), ROWS), ((1024, 16), ROWS), x=8,
)  # fmt: skip


def _gradient_of_thirds(e: Any, x: Any) -> Any:
    return e.jax.grad(lambda x: (x[::3] ** 2).sum())(x)


add_function("prefixes_of_100_rows", _sums, ((100, 8), ROWS), x=4)
add_function("gradient_of_thirds", _gradient_of_thirds, ((512, 64), ROWS), out=ROWS, x=8)
add_function("quarters_and_halves", lambda e, x: x[::4].sum() + x[::2].sum(), ((100, 8), ROWS), x=4)


def _preconditioned(e: Any, w: Any, left: Any, right: Any, g: Any) -> Any:
    """A step by inverse roots of two statistics, all split by rows."""
    jnp = e.jnp
    left, right = left + g @ g.T, right + g.T @ g

    def root(m: Any) -> Any:
        values, vectors = jnp.linalg.eigh(m + 1e-4 * jnp.eye(64))
        return (vectors * jnp.maximum(values, 1e-6) ** -0.25) @ vectors.T

    return [w - 0.1 * root(left) @ g @ root(right), left, right]


add_function("inverse_roots", _preconditioned, *[((64, 64), ROWS)] * 4, out=[ROWS] * 3, x=8)


def _narrow(e: Any, rule: str) -> Any:
    """A product of 8-bit floats, in the backward pass as well."""
    jnp, dtype = e.jnp, "float8_e4m3fn"

    def product(rule: str, a: Any, b: Any) -> Any:
        return jnp.einsum(rule, a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.bfloat16)

    @e.jax.custom_vjp
    def narrow(x: Any, w: Any) -> Any:
        return product(rule, x, w)

    operands, out = rule.split("->")
    left, right = operands.split(",")

    def backward(kept: Any, g: Any) -> Any:
        x, w = kept
        by_x, by_w = product(f"{out},{right}->{left}", g, w), product(f"{left},{out}->{right}", x, g)
        return by_x.astype(x.dtype), by_w.astype(w.dtype)

    narrow.defvjp(lambda x, w: (narrow(x, w), (x, w)), backward)
    return narrow


def _experts_in_8_bits(e: Any, x: Any, up: Any, down: Any) -> Any:
    def loss(up: Any, down: Any) -> Any:
        hidden = e.jax.nn.gelu(_narrow(e, "becd,edf->becf")(x, up))
        return (_narrow(e, "becf,efd->becd")(hidden, down).astype("float32") ** 2).mean()

    return list(e.jax.grad(loss, (0, 1))(up, down))


add_function(
    "experts_in_8_bits", _experts_in_8_bits,
    ((8, 8, 16, 64), ROWS, "bfloat16"), ((8, 64, 128), (None, "x")), ((8, 128, 64), (None, None, "x")),
    out=[(None, "x"), (None, None, "x")], x=8,
)  # fmt: skip
