"""Pieces of programs in which a rule of the partitioner was wrong once, and their neighbours."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import add_function, program


@program(data=2, model=4)
def fewer_groups_than_devices(e: Any) -> Any:
    """Attention with 8 query heads in 2 groups over 4 devices, with rotary positions; a step of training."""

    def rotated(x: Any) -> Any:
        jnp = e.jnp
        angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
        sin, cos = jnp.sin(angle)[None, :, None], jnp.cos(angle)[None, :, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[n]) for n in "qkv")
        q = rotated(q).reshape(8, 64, 2, 4, 16)
        p = e.jax.nn.softmax(jnp.einsum("bskgd,btkd->bkgst", q, rotated(k)))
        out = jnp.einsum("bkgst,btkd->bskgd", p, v).reshape(8, 64, 8, 16)
        return ((x + jnp.einsum("bshd,hdm->bsm", out, w["o"])) ** 2).mean()

    w = {"q": e.arg((64, 8, 16), None, "model"), "o": e.arg((8, 16, 64), "model")}
    w |= {n: e.arg((64, 2, 16)) for n in "kv"}

    def step(w: Any, x: Any) -> Any:
        return e.jax.tree.map(lambda p, g: p - 0.1 * g, w, e.jax.grad(loss)(w, x))

    return step, (w, e.arg((8, 64, 64), "data")), e.like(w)


def _pooled(e: Any, x: Any, start: float, op: str) -> Any:
    return e.lax.reduce_window(x, start, getattr(e.lax, op), (1, 3, 3), (1, 1, 1), "SAME")


def _patches(e: Any, x: Any, w: Any) -> Any:
    """Each 4 x 4 pixels as one, whose rows the axes do not divide."""
    return e.lax.conv_general_dilated(x, w, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


add_function(
    "windows_with_three_fills",
    lambda e, x: [_pooled(e, x, 0.0, "add"), _pooled(e, x, -e.jnp.inf, "max"), _pooled(e, x, e.jnp.inf, "min")],
    ((4, 32, 32), (None, "x", "y")),
    out=[(None, "x", "y")] * 3,
    x=4,
    y=2,
)
add_function("turned_both_ways", lambda e, u: u + e.jnp.flip(u), ((64, 64), ("x", "y")), out=("x", "y"), x=4, y=2)
add_function("halves_mirrored", lambda e, u: u[:32] - e.jnp.flip(u[32:], 0), ((64, 64), ("x",)), out=("x",), x=8)
add_function(
    "concatenated_and_cut",
    lambda e, a, b: e.jnp.stack([a, b]).sum(0) + e.jnp.concatenate([a, b])[:64],
    ((64, 8), ("x",)),
    ((64, 8), ("x",)),
    out=("x",),
    x=8,
)
add_function(
    "gradient_of_a_padded_volume",
    lambda e, u: e.jax.grad(
        lambda u: ((e.jnp.pad(u, 1)[2:, 1:-1, 1:-1] - e.jnp.pad(u, 1)[:-2, 1:-1, 1:-1]) ** 2).sum()
    )(u),
    ((16, 16, 16), ("a", "b", "c")),
    out=("a", "b", "c"),
    a=2,
    b=2,
    c=2,
)
for _side, _spec in (("rows", (None, "x")), ("columns", (None, None, "x"))):
    add_function(f"qr_of_split_{_side}", lambda e, a: tuple(e.jnp.linalg.qr(a)), ((8, 16, 16), _spec), x=8)
    add_function(
        f"cholesky_of_split_{_side}",
        lambda e, a: e.jnp.linalg.cholesky(a @ a.swapaxes(-1, -2) + e.jnp.eye(16)),
        ((8, 16, 16), _spec),
        out=_spec,
        x=8,
    )
add_function("real_transform_of_split_rows", lambda e, x: e.jnp.fft.rfft(x, axis=0), ((64, 64), ("x",)), x=8)
add_function(
    "taken_in_order",
    lambda e, x: e.jnp.take_along_axis(x, e.jnp.argsort(x), 0),
    ((4096,), ("x",)),
    out=("x",),
    x=8,
)
add_function("ranks", lambda e, x: e.jnp.argsort(e.jnp.argsort(x)), ((4096,), ("x",)), out=("x",), x=8)
add_function(
    "shuffled_rows",
    lambda e, key, v: e.jax.random.permutation(e.jax.random.wrap_key_data(key), v),
    ((2,), (), "uint32"),
    ((1024, 16), ("x",)),
    out=("x",),
    x=8,
)
add_function(
    "rows_of_a_table_multiplied",
    lambda e, table, words, w: e.jax.nn.relu(table[words] @ w),
    ((480, 120), ("y",)),
    ((24, 60), (("x", "y"),), "int32"),
    ((120, 240), ("y",)),
    x=2,
    y=4,
)
add_function(
    "image_beside_a_smaller_one",
    lambda e, x, w: x + e.jnp.repeat(e.jnp.repeat(_patches(e, x, w), 4, 1), 4, 2),
    ((48, 24, 24, 30), ("x", "y")),
    ((4, 4, 30, 30), ()),
    out=("x", "y"),
    x=2,
    y=4,
)
