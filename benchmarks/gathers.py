"""Reads and updates at computed positions. Rows are split over the devices where it says so."""

from __future__ import annotations

from typing import Any

from registry import case, normal, placed, rows

FAMILY = "Reads at computed positions"


def _whole_numbers(np: Any, most: int, *shape: int) -> Any:
    return np.random.default_rng(1).integers(0, most, shape).astype(np.int32)


@case(FAMILY, devices=(1,))
def image_at_coordinates(jax, jnp, np):
    """`map_coordinates` of order 1 at 250,000 given points of an image of 512 x 512."""
    where = np.random.default_rng(0).uniform(-8, 520, (2, 500, 500)).astype(np.float32)
    f = jax.jit(lambda x, at: jax.scipy.ndimage.map_coordinates(x, [at[0], at[1]], 1))
    x, at = jnp.asarray(normal(np, 512, 512)), jnp.asarray(where)
    return lambda: f(x, at)


@case(FAMILY, devices=(1,))
def image_rotated(jax, jnp, np):
    """An image of 512 x 512 rotated by `map_coordinates` of order 1, its border repeated."""

    def f(x, angle):
        i, j = jnp.meshgrid(jnp.arange(512) - 255.5, jnp.arange(512) - 255.5, indexing="ij")
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jax.scipy.ndimage.map_coordinates(x, [c * i - s * j + 255.5, s * i + c * j + 255.5], 1, mode="nearest")

    f, x = jax.jit(f), jnp.asarray(normal(np, 512, 512))
    return lambda: f(x, 0.3)


@case(FAMILY, devices=(1, 8))
def image_resized(jax, jnp, np):
    """An image of 512 x 512 x 3 resized to 768 x 768 by four gathers, which are interpolated."""

    def f(x, i, j):
        y0, x0 = jnp.floor(i).astype(jnp.int32), jnp.floor(j).astype(jnp.int32)
        y1, x1 = jnp.minimum(y0 + 1, 511), jnp.minimum(x0 + 1, 511)
        wy, wx = (i - y0)[:, None, None], (j - x0)[None, :, None]
        top = x[y0[:, None], x0[None]] * (1 - wx) + x[y0[:, None], x1[None]] * wx
        low = x[y1[:, None], x0[None]] * (1 - wx) + x[y1[:, None], x1[None]] * wx
        return top * (1 - wy) + low * wy

    at = (np.arange(768) * (511 / 767)).astype(np.float32)
    f, x, i, j = jax.jit(f), jnp.asarray(normal(np, 512, 512, 3)), rows(jax, np, at), jnp.asarray(at)
    return lambda: f(x, i, j)


@case(FAMILY, devices=(1, 8))
def tree_ensemble(jax, jnp, np):
    """2048 rows of 32 features through 64 trees of depth 6."""
    x = rows(jax, np, normal(np, 2048, 32))
    feature = jnp.asarray(_whole_numbers(np, 32, 64, 63))
    threshold, leaf = jnp.asarray(normal(np, 64, 63)), jnp.asarray(normal(np, 64, 64))

    def f(x):
        trees, n = jnp.arange(64)[None], jnp.arange(x.shape[0])[:, None]
        node = jnp.zeros((x.shape[0], 64), jnp.int32)
        for _ in range(6):
            node = 2 * node + 1 + (x[n, feature[trees, node]] > threshold[trees, node])
        return leaf[trees, node - 63].sum(1)

    f = jax.jit(f)
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def sliding_windows(jax, jnp, np):
    """The greatest of each 32 neighbours of 100,000 numbers, by `x[i[:, None] + arange(32)]`."""
    x, i = jnp.asarray(normal(np, 100_032)), rows(jax, np, np.arange(100_000, dtype=np.int32))
    f = jax.jit(lambda x, i: x[i[:, None] + jnp.arange(32)].max(1))
    return lambda: f(x, i)


@case(FAMILY, devices=(1,))
def page_rank_by_edges(jax, jnp, np):
    """A round of PageRank over 500,000 edges between 50,000 pages: `segment_sum(r[source] / degree[source])`."""
    source, target = (jnp.asarray(a) for a in _whole_numbers(np, 50_000, 2, 500_000))
    degree, rank = jnp.ones(50_000), jnp.full(50_000, 1 / 50_000)

    def f(rank, degree, source, target):
        shares = jax.ops.segment_sum(rank[source] / degree[source], target, 50_000)
        return 0.15 / 50_000 + 0.85 * shares

    f = jax.jit(f)
    return lambda: f(rank, degree, source, target)


def _hash_grid(jax, jnp, np):
    """Features of points by tables at 4 levels: eight corners of a cell, each hashed, read and weighed."""
    corners = np.array([[i >> k & 1 for k in range(3)] for i in range(8)], np.uint32)

    def level(table, x, size):
        p = x * size
        low = jnp.floor(p)
        cell, w = low.astype(jnp.uint32), p - low
        found = 0
        for corner in corners:
            c = cell + corner
            i = c[:, 0] ^ (c[:, 1] * np.uint32(2654435761)) ^ (c[:, 2] * np.uint32(805459861))
            weight = jnp.prod(jnp.where(corner == 1, w, 1 - w), 1)
            found += table[(i % np.uint32(16384)).astype(jnp.int32)] * weight[:, None]
        return found

    return lambda tables, x: jnp.concatenate([level(tables[k], x, 16 * 1.5**k) for k in range(4)], 1)


@case(FAMILY, devices=(1, 8))
def hash_grid(jax, jnp, np):
    """Features of 32,768 points in space by 4 tables of 16,384 x 2, read at hashes of the corners of their cells."""
    x, tables = np.random.default_rng(0).random((32_768, 3)).astype(np.float32), jnp.asarray(normal(np, 4, 16_384, 2))
    f, x = jax.jit(_hash_grid(jax, jnp, np)), rows(jax, np, x)
    return lambda: f(tables, x)


@case(FAMILY, devices=(1,))
def hash_grid_gradient(jax, jnp, np):
    """The gradient of the squares of such features by the tables."""
    x, tables = np.random.default_rng(0).random((32_768, 3)).astype(np.float32), jnp.asarray(normal(np, 4, 16_384, 2))
    encode, x = _hash_grid(jax, jnp, np), jnp.asarray(x)
    f = jax.jit(jax.grad(lambda tables, x: jnp.square(encode(tables, x)).sum()))
    return lambda: f(tables, x)


@case(FAMILY, devices=(1, 8))
def embedding_gradient(jax, jnp, np):
    """The gradient of a table of 4096 rows of 64 of which 8192 are read and squared."""
    table, ids = jnp.asarray(normal(np, 4096, 64)), rows(jax, np, _whole_numbers(np, 4096, 8192))
    f = jax.jit(jax.grad(lambda table, ids: jnp.square(table[ids]).sum()))
    return lambda: f(table, ids)


@case(FAMILY, devices=(1,))
def sum_of_elements_read(jax, jnp, np):
    """`(x[i] * w).sum()` of 1,000,000 positions of 65,536 numbers."""
    x, i = jnp.asarray(normal(np, 65_536)), jnp.asarray(_whole_numbers(np, 65_536, 1_000_000))
    w, f = jnp.asarray(normal(np, 1_000_000)), jax.jit(lambda x, i, w: (x[i] * w).sum())
    return lambda: f(x, i, w)


@case(FAMILY, devices=(1, 8))
def many_rows_read_under_vmap(jax, jnp, np):
    """`vmap(lambda x, i: x[i])` over 256 rows of 512 numbers, 1024 of each."""
    x, i = rows(jax, np, normal(np, 256, 512)), rows(jax, np, _whole_numbers(np, 512, 256, 1024))
    f = jax.jit(jax.vmap(lambda x, i: jnp.tanh(x[i])))
    return lambda: f(x, i)


@case(FAMILY, devices=(1, 8))
def elements_added_under_vmap(jax, jnp, np):
    """`vmap(lambda x, i, v: x.at[i].add(v))` over 256 rows of 512 numbers, 1024 into each."""
    x, i = rows(jax, np, normal(np, 256, 512)), rows(jax, np, _whole_numbers(np, 512, 256, 1024))
    v = rows(jax, np, normal(np, 256, 1024))
    f = jax.jit(jax.vmap(lambda x, i, v: x.at[i].add(v)))
    return lambda: f(x, i, v)


@case(FAMILY, devices=(1, 8))
def palette(jax, jnp, np):
    """2,000,000 bytes replaced by what a table of 256 floats has for them, and scaled."""
    table, x = jnp.asarray(normal(np, 256)), placed(jax, np, _whole_numbers(np, 256, 2_000_000).astype(np.uint8), "x")
    f = jax.jit(lambda table, x: table[x] * 2 - 1)
    return lambda: f(table, x)


@case(FAMILY, devices=(1, 8))
def image_warped(jax, jnp, np):
    """An image of 256 x 256 x 3 at places that a field of displacements gives, interpolated between four pixels."""

    def f(x, flow):
        n, m, _ = x.shape
        i, j = jnp.meshgrid(jnp.arange(n), jnp.arange(m), indexing="ij")
        i, j = jnp.clip(i + flow[..., 0], 0, n - 1), jnp.clip(j + flow[..., 1], 0, m - 1)
        y0, x0 = jnp.floor(i).astype(jnp.int32), jnp.floor(j).astype(jnp.int32)
        y1, x1 = jnp.minimum(y0 + 1, n - 1), jnp.minimum(x0 + 1, m - 1)
        wy, wx = (i - y0)[..., None], (j - x0)[..., None]
        top, low = x[y0, x0] * (1 - wx) + x[y0, x1] * wx, x[y1, x0] * (1 - wx) + x[y1, x1] * wx
        return top * (1 - wy) + low * wy

    f, x, flow = jax.jit(f), jnp.asarray(normal(np, 256, 256, 3)), rows(jax, np, 4 * normal(np, 256, 256, 2))
    return lambda: f(x, flow)
