"""Kernels on blocks: their edges, dims and order."""

from __future__ import annotations

import numpy as np

from tests.experimental.pallas.kernels import call, kernel, normal


@kernel
def add_vectors(m):
    def body(x, y, o):
        o[...] = x[...] + y[...]

    return call(m, body, (8,), normal(8), normal(8, seed=1))


@kernel
def add_blocks(m):
    def body(x, y, o):
        o[...] = x[...] + y[...]

    spec = m.pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return call(
        m, body, (8, 16), normal(8, 16), normal(8, 16, seed=1), grid=(2, 2), in_specs=[spec] * 2, out_specs=spec
    )


@kernel
def edge_blocks(m):
    def body(x, o):
        o[...] = x[...] * 2

    spec = m.pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return call(m, body, (7, 19), normal(7, 19), grid=(2, 3), in_specs=[spec], out_specs=spec)


@kernel
def edge_blocks_padding_is_seen(m):
    def body(x, o):
        o[...] = m.jnp.where(m.jnp.isnan(x[...]), -1.0, x[...])[:, None] * m.jnp.ones(2)

    return call(
        m, body, (8, 2), normal(6), grid=(2,),
        in_specs=[m.pl.BlockSpec((4,), lambda i: (i,))], out_specs=m.pl.BlockSpec((4, 2), lambda i: (i, 0)),
    )  # fmt: skip


@kernel
def edge_of_integers(m):
    def body(x, o):
        o[0] = m.jnp.min(x[...])

    return call(
        m, body, (2,), np.arange(6, dtype=np.int32), dtype=np.int32, grid=(2,),
        in_specs=[m.pl.BlockSpec((4,), lambda i: (i,))], out_specs=m.pl.BlockSpec((1,), lambda i: (i,)),
    )  # fmt: skip


@kernel
def never_written(m):
    def body(x, o, p, q):
        o[0] = x[0]

    outs = [m.jax.ShapeDtypeStruct((3,), d) for d in (np.float32, np.int32, np.bool_)]
    return call(m, body, outs, normal(3))


@kernel
def grid_of_rank_0(m):
    def body(x, o):
        o[...] = m.jnp.exp(x[...])

    return call(m, body, (5,), normal(5), grid=())


@kernel
def grid_of_rank_3(m):
    def body(o):
        i, j, k = (m.pl.program_id(a) for a in range(3))
        o[...] = m.jnp.full((1, 1, 1), 100 * i + 10 * j + k, np.int32)

    spec = m.pl.BlockSpec((1, 1, 1), lambda i, j, k: (i, j, k))
    return call(m, body, (2, 3, 4), dtype=np.int32, grid=(2, 3, 4), out_specs=spec)


@kernel
def one_integer_as_grid(m):
    def body(x, o):
        o[...] = x[...] + m.pl.program_id(0) + m.pl.num_programs(0)

    spec = m.pl.BlockSpec((2,), lambda i: (i,))
    return call(m, body, (6,), np.arange(6), dtype=np.int32, grid=3, in_specs=[spec], out_specs=spec)


@kernel
def squeezed_dims(m):
    def body(x, o):
        o[...] = x[...].T

    return call(
        m, body, (3, 8, 4), normal(3, 4, 8), grid=(3,),
        in_specs=[m.pl.BlockSpec((None, 4, 8), lambda i: (i, 0, 0))],
        out_specs=m.pl.BlockSpec((m.pl.Squeezed(), 8, 4), lambda i: (i, 0, 0)),
    )  # fmt: skip


@kernel
def element_dims(m):
    def body(x, o):
        o[...] = x[0:4] - x[2:6]

    return call(
        m, body, (8,), normal(12), grid=(2,),
        in_specs=[m.pl.BlockSpec((m.pl.Element(6),), lambda i: (i * 4,))], out_specs=m.pl.BlockSpec((4,), lambda i: (i,)),
    )  # fmt: skip


@kernel
def element_dims_with_padding(m):
    def body(x, o):
        o[...] = m.jnp.nansum(m.jnp.stack([x[0:4], x[1:5], x[2:6]]), 0)

    return call(
        m, body, (8,), normal(8), grid=(2,),
        in_specs=[m.pl.BlockSpec((m.pl.Element(6, (1, 1)),), lambda i: (i * 4,))],
        out_specs=m.pl.BlockSpec((4,), lambda i: (i,)),
    )  # fmt: skip


@kernel
def blocks_in_other_order(m):
    def body(x, o):
        o[...] = x[...]

    return call(
        m, body, (8, 4), normal(8, 4), grid=(4,),
        in_specs=[m.pl.BlockSpec((2, 4), lambda i: (3 - i, 0))], out_specs=m.pl.BlockSpec((2, 4), lambda i: ((i + 1) % 4, 0)),
    )  # fmt: skip
