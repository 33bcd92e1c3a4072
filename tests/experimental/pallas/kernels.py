"""Kernels that run under shardwise and under JAX: each is a function of a `Library` that returns arrays."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

Library = SimpleNamespace  # jax, jnp, lax, pl, pltpu, plgpu
KERNELS: dict[str, Any] = {}


def kernel(function):
    KERNELS[function.__name__] = function
    return function


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def call(m, body, out, *args, dtype=np.float32, **options):
    shape = (
        m.jax.ShapeDtypeStruct(out, dtype) if isinstance(out, tuple) and all(isinstance(n, int) for n in out) else out
    )
    return m.pl.pallas_call(body, shape, interpret=True, **options)(*args)


# -- elementwise, edges ----------------------------------------------------------------------------------------------


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


# -- products --------------------------------------------------------------------------------------------------------


@kernel
def matmul(m):
    def body(x, y, o):
        o[...] = x[...] @ y[...]

    return call(
        m, body, (16, 24), normal(16, 8), normal(8, 24, seed=1), grid=(2, 3),
        in_specs=[m.pl.BlockSpec((8, 8), lambda i, j: (i, 0)), m.pl.BlockSpec((8, 8), lambda i, j: (0, j))],
        out_specs=m.pl.BlockSpec((8, 8), lambda i, j: (i, j)),
    )  # fmt: skip


@kernel
def matmul_with_accumulator(m):
    def body(x, y, o, acc):
        @m.pl.when(m.pl.program_id(2) == 0)
        def _():
            acc[...] = m.jnp.zeros_like(acc)

        acc[...] += m.jnp.dot(x[...], y[...], preferred_element_type=np.float32)

        @m.pl.when(m.pl.program_id(2) == m.pl.num_programs(2) - 1)
        def _():
            o[...] = m.jnp.maximum(acc[...], 0).astype(o.dtype)

    return call(
        m, body, (16, 16), normal(16, 32), normal(32, 16, seed=1), grid=(2, 2, 4),
        in_specs=[m.pl.BlockSpec((8, 8), lambda i, j, k: (i, k)), m.pl.BlockSpec((8, 8), lambda i, j, k: (k, j))],
        out_specs=m.pl.BlockSpec((8, 8), lambda i, j, k: (i, j)),
        scratch_shapes=[m.pltpu.VMEM((8, 8), np.float32)],
        compiler_params=m.pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )  # fmt: skip


@kernel
def matmul_into_the_output(m):
    def body(x, y, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = m.jnp.zeros_like(o)

        o[...] += x[...] @ y[...]

    return call(
        m, body, (4, 4), normal(4, 12), normal(12, 4, seed=1), grid=(3,),
        in_specs=[m.pl.BlockSpec((4, 4), lambda k: (0, k)), m.pl.BlockSpec((4, 4), lambda k: (k, 0))],
        out_specs=m.pl.BlockSpec((4, 4), lambda k: (0, 0)),
    )  # fmt: skip


@kernel
def matmul_in_bfloat16(m):
    def body(x, y, o):
        o[...] = m.plgpu.dot(x[...], y[...]).astype(o.dtype)

    x, y = m.jnp.asarray(normal(8, 16), m.jnp.bfloat16), m.jnp.asarray(normal(16, 8, seed=1), m.jnp.bfloat16)
    return call(m, body, (8, 8), x, y, dtype=m.jnp.bfloat16)


@kernel
def batched_matmul(m):
    def body(x, y, o):
        o[...] = x[...] @ y[...]

    specs = [m.pl.BlockSpec((None, 4, 6), lambda b: (b, 0, 0)), m.pl.BlockSpec((None, 6, 5), lambda b: (b, 0, 0))]
    out = m.pl.BlockSpec((None, 4, 5), lambda b: (b, 0, 0))
    return call(m, body, (3, 4, 5), normal(3, 4, 6), normal(3, 6, 5, seed=1), grid=(3,), in_specs=specs, out_specs=out)


# -- models ----------------------------------------------------------------------------------------------------------


@kernel
def softmax(m):
    def body(x, o):
        e = m.jnp.exp(x[...] - m.jnp.max(x[...], axis=-1, keepdims=True))
        o[...] = e / m.jnp.sum(e, axis=-1, keepdims=True)

    spec = m.pl.BlockSpec((1, 10), lambda i: (i, 0))
    return call(m, body, (6, 10), normal(6, 10), grid=(6,), in_specs=[spec], out_specs=spec)


@kernel
def softmax_with_masks(m):
    def body(x, o):
        row = m.pl.program_id(0)
        columns = m.jnp.arange(16)
        mask = columns < x.shape[1]
        values = m.plgpu.load(x.at[row, m.pl.ds(0, 16)], mask=mask, other=-m.jnp.inf)
        e = m.jnp.exp(values - m.jnp.max(values))
        m.plgpu.store(o.at[row, m.pl.ds(0, 16)], e / m.jnp.sum(e), mask=mask)

    return call(m, body, (4, 16), normal(4, 16), grid=(4,))


@kernel
def layer_norm(m):
    def body(x, scale, shift, o, mean, deviation):
        mu = m.jnp.mean(x[...], axis=-1, keepdims=True)
        rstd = m.lax.rsqrt(m.jnp.var(x[...], axis=-1, keepdims=True) + 1e-5)
        o[...] = (x[...] - mu) * rstd * scale[...] + shift[...]
        mean[...] = mu[:, 0]
        deviation[...] = rstd[:, 0]

    rows, whole, each = (
        m.pl.BlockSpec((2, 12), lambda i: (i, 0)),
        m.pl.BlockSpec((12,), lambda i: (0,)),
        m.pl.BlockSpec((2,), lambda i: (i,)),
    )
    outs = (m.jax.ShapeDtypeStruct((6, 12), np.float32), *[m.jax.ShapeDtypeStruct((6,), np.float32)] * 2)
    return call(
        m,
        body,
        outs,
        normal(6, 12),
        normal(12, seed=1),
        normal(12, seed=2),
        grid=(3,),
        in_specs=[rows, whole, whole],
        out_specs=(rows, each, each),
    )


def _attention(m, causal):
    length, width, block = 32, 8, 8

    def body(q, k, v, o, acc, top, total):
        i, j = m.pl.program_id(1), m.pl.program_id(2)

        @m.pl.when(j == 0)
        def _():
            acc[...] = m.jnp.zeros_like(acc)
            top[...] = m.jnp.full_like(top, -1e30)
            total[...] = m.jnp.zeros_like(total)

        @m.pl.when(j <= i if causal else j >= 0)
        def _():
            scores = (q[...] @ k[...].T) / math.sqrt(width)
            if causal:
                rows = i * block + m.lax.broadcasted_iota(np.int32, scores.shape, 0)
                columns = j * block + m.lax.broadcasted_iota(np.int32, scores.shape, 1)
                scores = m.jnp.where(rows >= columns, scores, -1e30)
            new = m.jnp.maximum(top[...], m.jnp.max(scores, axis=1, keepdims=True))
            kept, p = m.jnp.exp(top[...] - new), m.jnp.exp(scores - new)
            total[...] = total[...] * kept + m.jnp.sum(p, axis=1, keepdims=True)
            acc[...] = acc[...] * kept + p @ v[...]
            top[...] = new

        @m.pl.when(j == m.pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...] / total[...]

    rows = m.pl.BlockSpec((None, block, width), lambda h, i, j: (h, i, 0))
    columns = m.pl.BlockSpec((None, block, width), lambda h, i, j: (h, j, 0))
    scratch = [m.pltpu.VMEM((block, n), np.float32) for n in (width, 1, 1)]
    q, k, v = (normal(2, length, width, seed=s) for s in range(3))
    return call(
        m, body, (2, length, width), q, k, v, grid=(2, length // block, length // block),
        in_specs=[rows, columns, columns], out_specs=rows, scratch_shapes=scratch,
    )  # fmt: skip


@kernel
def flash_attention(m):
    return _attention(m, causal=False)


@kernel
def causal_flash_attention(m):
    return _attention(m, causal=True)


@kernel
def attention_with_an_inner_loop(m):
    def body(q, k, v, o):
        def step(j, state):
            acc, top, total = state
            keys, values = k[m.pl.ds(j * 4, 4), :], v[m.pl.ds(j * 4, 4), :]
            scores = q[...] @ keys.T
            new = m.jnp.maximum(top, m.jnp.max(scores, axis=1))
            kept, p = m.jnp.exp(top - new), m.jnp.exp(scores - new[:, None])
            return acc * kept[:, None] + p @ values, new, total * kept + m.jnp.sum(p, axis=1)

        begin = m.jnp.zeros((4, 8)), m.jnp.full((4,), -m.jnp.inf), m.jnp.zeros((4,))
        acc, _, total = m.lax.fori_loop(0, 4, step, begin)
        o[...] = acc / total[:, None]

    rows, whole = m.pl.BlockSpec((4, 8), lambda i: (i, 0)), m.pl.BlockSpec((16, 8), lambda i: (0, 0))
    q, k, v = (normal(16, 8, seed=s) for s in range(3))
    return call(m, body, (16, 8), q, k, v, grid=(4,), in_specs=[rows, whole, whole], out_specs=rows)


@kernel
def cross_entropy(m):
    def body(logits, labels, o):
        x = logits[...]
        shifted = x - m.jnp.max(x, axis=1, keepdims=True)
        picked = m.jnp.sum(
            m.jnp.where(m.lax.broadcasted_iota(np.int32, x.shape, 1) == labels[...][:, None], shifted, 0.0), axis=1
        )
        o[...] = m.jnp.log(m.jnp.sum(m.jnp.exp(shifted), axis=1)) - picked

    labels = np.arange(8, dtype=np.int32) % 5
    specs = [m.pl.BlockSpec((4, 5), lambda i: (i, 0)), m.pl.BlockSpec((4,), lambda i: (i,))]
    return call(m, body, (8,), normal(8, 5), labels, grid=(2,), in_specs=specs, out_specs=specs[1])


# -- reductions, scans -----------------------------------------------------------------------------------------------


@kernel
def sum_over_the_grid(m):
    def body(x, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = m.jnp.zeros_like(o)

        o[0] += m.jnp.sum(x[...])

    return call(
        m, body, (1,), normal(12), grid=(3,),
        in_specs=[m.pl.BlockSpec((4,), lambda i: (i,))], out_specs=m.pl.BlockSpec((1,), lambda i: (0,)),
    )  # fmt: skip


@kernel
def maximum_and_its_place(m):
    def body(x, top, place):
        i = m.pl.program_id(0)

        @m.pl.when(i == 0)
        def _():
            top[...] = m.jnp.full_like(top, -m.jnp.inf)
            place[...] = m.jnp.zeros_like(place)

        found = m.jnp.max(x[...])

        @m.pl.when(found > top[0])
        def _():
            top[0] = found
            place[0] = (i * 4 + m.jnp.argmax(x[...])).astype(np.int32)

    outs = (m.jax.ShapeDtypeStruct((1,), np.float32), m.jax.ShapeDtypeStruct((1,), np.int32))
    one = m.pl.BlockSpec((1,), lambda i: (0,))
    return call(
        m, body, outs, normal(16), grid=(4,), in_specs=[m.pl.BlockSpec((4,), lambda i: (i,))], out_specs=(one, one)
    )


@kernel
def running_sum(m):
    def body(x, o, carry):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            carry[0] = 0.0

        sums = m.jnp.cumsum(x[...]) + carry[0]
        o[...] = sums
        carry[0] = sums[3]

    spec = m.pl.BlockSpec((4,), lambda i: (i,))
    return call(
        m,
        body,
        (16,),
        normal(16),
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[m.pltpu.SMEM((1,), np.float32)],
    )


@kernel
def linear_recurrence(m):
    def body(a, b, o, state):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            state[...] = m.jnp.zeros_like(state)

        def step(t, h):
            h = a[t] * h + b[t]
            o[t] = h
            return h

        state[...] = m.lax.fori_loop(0, 4, step, state[...])

    spec = m.pl.BlockSpec((4, 3), lambda i: (i, 0))
    return call(
        m,
        body,
        (12, 3),
        normal(12, 3),
        normal(12, 3, seed=1),
        grid=(3,),
        in_specs=[spec] * 2,
        out_specs=spec,
        scratch_shapes=[m.pltpu.VMEM((3,), np.float32)],
    )


@kernel
def histogram(m):
    def body(x, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = m.jnp.zeros_like(o)

        o[...] += m.jnp.sum((x[...][:, None] == m.jnp.arange(5)[None]).astype(np.int32), axis=0)

    x = np.random.default_rng(0).integers(0, 5, 24).astype(np.int32)
    return call(
        m, body, (5,), x, dtype=np.int32, grid=(4,),
        in_specs=[m.pl.BlockSpec((6,), lambda i: (i,))], out_specs=m.pl.BlockSpec((5,), lambda i: (0,)),
    )  # fmt: skip


# -- Refs in kernels -------------------------------------------------------------------------------------------------


@kernel
def gather_rows(m):
    def body(indices, table, o):
        def step(i, _):
            o[i] = table[indices[i]]

        m.lax.fori_loop(0, 4, step, None)

    return call(m, body, (4, 6), np.array([3, 0, 7, 3], np.int32), normal(8, 6))


@kernel
def gather_by_prefetched_indices(m):
    def body(indices, x, o):
        o[...] = x[...] + indices[m.pl.program_id(0)]

    grid_spec = m.pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[m.pl.BlockSpec((1, 6), lambda i, indices: (indices[i], 0))],
        out_specs=m.pl.BlockSpec((1, 6), lambda i, indices: (i, 0)),
    )  # fmt: skip
    return call(m, body, (4, 6), np.array([3, 0, 7, 3], np.int32), normal(8, 6), grid_spec=grid_spec)


@kernel
def block_sparse_matmul(m):
    def body(blocks, x, y, o, acc):
        j = m.pl.program_id(1)

        @m.pl.when(j == 0)
        def _():
            acc[...] = m.jnp.zeros_like(acc)

        @m.pl.when(blocks[m.pl.program_id(0), j] >= 0)
        def _():
            acc[...] += x[...] @ y[...]

        @m.pl.when(j == 1)
        def _():
            o[...] = acc[...]

    spec = m.pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2, 2), in_specs=[
            m.pl.BlockSpec((4, 4), lambda i, j, blocks: (i, m.jnp.maximum(blocks[i, j], 0))),
            m.pl.BlockSpec((4, 4), lambda i, j, blocks: (m.jnp.maximum(blocks[i, j], 0), 0)),
        ],
        out_specs=m.pl.BlockSpec((4, 4), lambda i, j, blocks: (i, 0)), scratch_shapes=[m.pltpu.VMEM((4, 4), np.float32)],
    )  # fmt: skip
    return call(
        m, body, (8, 4), np.array([[0, 2], [1, -1]], np.int32), normal(8, 12), normal(12, 4, seed=1), grid_spec=spec
    )


@kernel
def masked_loads_and_stores(m):
    def body(x, o):
        i = m.pl.program_id(0)
        at = i * 4 + m.jnp.arange(4)
        mask = at < 10
        value = m.plgpu.load(x.at[m.pl.ds(i * 4, 4)], mask=mask, other=0.0)
        m.plgpu.store(o.at[m.pl.ds(i * 4, 4)], value + 1, mask=mask)

    return call(m, body, (12,), normal(12), grid=(3,))


@kernel
def loads_beyond_the_end(m):
    def body(x, o):
        at = m.pl.program_id(0)
        o[...] = m.plgpu.load(x.at[m.pl.ds(at * 4, 4)])[None]

    return call(m, body, (2, 4), normal(6), grid=(2,), out_specs=m.pl.BlockSpec((1, 4), lambda i: (i, 0)))


@kernel
def stores_beyond_the_end(m):
    def body(x, o):
        m.plgpu.store(o.at[m.pl.ds(m.pl.program_id(0) * 4, 4)], x[...])

    return call(m, body, (6,), normal(8), grid=(2,), in_specs=[m.pl.BlockSpec((4,), lambda i: (i,))])


@kernel
def slices_and_views(m):
    def body(x, o, p):
        o[m.pl.ds(0, 2), :] = x[m.pl.ds(2, 2), :]
        o.at[2:4].at[:, m.pl.ds(0, 3)][...] = x[0:2, 3:6]
        o[2:4, 3:] = x.at[:, 0:3][2:4]
        row = x.at[1]
        p[...] = row[...] * row[0]

    outs = (m.jax.ShapeDtypeStruct((4, 6), np.float32), m.jax.ShapeDtypeStruct((6,), np.float32))
    return call(m, body, outs, normal(4, 6))


@kernel
def inputs_that_are_written(m):
    def body(x, o):
        x[...] = x[...] + 1
        o[...] = x[...] * 10

    spec = m.pl.BlockSpec((2,), lambda i: (0,))
    return call(m, body, (4,), normal(4), grid=(2,), in_specs=[spec], out_specs=m.pl.BlockSpec((2,), lambda i: (i,)))


@kernel
def outputs_that_are_inputs(m):
    def body(x, y, o):
        @m.pl.when(m.pl.program_id(0) % 2 == 0)
        def _():
            o[...] = x[...] + y[...]

    spec = m.pl.BlockSpec((2,), lambda i: (i,))
    return call(
        m,
        body,
        (8,),
        normal(8),
        normal(8, seed=1),
        grid=(4,),
        in_specs=[spec] * 2,
        out_specs=spec,
        input_output_aliases={1: 0},
    )


@kernel
def trees_of_operands(m):
    def body(pair, x, o):
        o["sum"][...] = pair[0][...] + x["a"][...]
        o["product"][...] = pair[1][...] * x["a"][...]

    shape = m.jax.ShapeDtypeStruct((4,), np.float32)
    spec = m.pl.BlockSpec((2,), lambda i: (i,))
    return call(
        m, body, {"sum": shape, "product": shape}, (normal(4), normal(4, seed=1)), {"a": normal(4, seed=2)}, grid=(2,),
        in_specs=[(spec, spec), {"a": spec}], out_specs={"sum": spec, "product": spec},
    )  # fmt: skip


@kernel
def scratch_by_name(m):
    def body(x, o, *, buffer, flags):
        buffer[...] = x[...] * 2
        flags[0] = 3
        o[...] = buffer[...] + flags[0]

    scratch = {"buffer": m.pltpu.VMEM((4,), np.float32), "flags": m.pltpu.SMEM((2,), np.int32)}
    return call(m, body, (4,), normal(4), scratch_shapes=scratch)


@kernel
def memory_of_a_scope(m):
    def body(x, o):
        def inner(buffer):
            buffer[...] = x[...] + 1
            return m.jnp.sum(buffer[...])

        o[...] = x[...] * m.pl.run_scoped(inner, m.pltpu.VMEM((4,), np.float32))

    return call(m, body, (4,), normal(4))


@kernel
def copies(m):
    def body(x, o, buffer, sem):
        copy = m.pltpu.make_async_copy(x.at[m.pl.ds(2, 4)], buffer, sem)
        copy.start()
        copy.wait()
        o[...] = buffer[...] * 2
        m.pltpu.sync_copy(buffer.at[0:2], o.at[0:2])

    return call(
        m, body, (4,), normal(8), in_specs=[m.pl.BlockSpec(memory_space=m.pl.ANY)],
        scratch_shapes=[m.pltpu.VMEM((4,), np.float32), m.pltpu.SemaphoreType.DMA],
    )  # fmt: skip


@kernel
def semaphores(m):
    def body(o, sems):
        m.pl.semaphore_signal(sems.at[0], 5)
        m.pl.semaphore_signal(sems.at[1])
        m.pl.semaphore_wait(sems.at[0], 2)
        o[0] = m.pl.semaphore_read(sems.at[0])
        o[1] = m.pl.semaphore_read(sems.at[1])

    return call(m, body, (2,), dtype=np.int32, scratch_shapes=[m.pltpu.SemaphoreType.REGULAR((2,))])


# -- control flow ----------------------------------------------------------------------------------------------------


@kernel
def while_loop_over_refs(m):
    def body(x, o):
        o[...] = m.jnp.zeros_like(o)

        def going(state):
            return state[1] < x[0]

        def step(state):
            i, total = state
            o[...] = o[...] + i
            return i + 1, total + i

        m.lax.while_loop(going, step, (0, 0))

    return call(m, body, (2,), np.array([9], np.int32), dtype=np.int32)


@kernel
def loop_statement(m):
    def body(x, o):
        @m.pl.loop(0, 8, step=2)
        def _(i):
            o[i] = x[i] * 2
            o[i + 1] = -x[i + 1]

    return call(m, body, (8,), normal(8))


@kernel
def switch_on_the_step(m):
    def body(x, o):
        o[...] = m.lax.switch(m.pl.program_id(0), [lambda v: v, lambda v: v * 2, m.jnp.sin], x[...])

    spec = m.pl.BlockSpec((2,), lambda i: (i,))
    return call(m, body, (6,), normal(6), grid=(3,), in_specs=[spec], out_specs=spec)


@kernel
def grid_with_a_size_that_is_an_array(m):
    def f(n, x):
        def body(x, o):
            o[...] = x[...] + m.pl.num_programs(0)

        spec = m.pl.BlockSpec((2,), lambda i: (i,))
        return call(m, body, (8,), x, grid=(n,), in_specs=[spec], out_specs=spec, input_output_aliases={0: 0})

    return m.jax.jit(f)(np.int32(3), normal(8))


# -- transforms ------------------------------------------------------------------------------------------------------


def _scale(m, x, y):
    def body(x, y, o):
        o[...] = x[...] * y[...] + m.pl.program_id(0)

    spec = m.pl.BlockSpec((2,), lambda i: (i,))
    return call(m, body, (4,), x, y, grid=(2,), in_specs=[spec] * 2, out_specs=spec)


@kernel
def vmap(m):
    return m.jax.vmap(functools.partial(_scale, m))(normal(3, 4), normal(3, 4, seed=1))


@kernel
def vmap_of_one_operand(m):
    return m.jax.vmap(functools.partial(_scale, m), in_axes=(1, None))(normal(4, 3), normal(4, seed=1))


@kernel
def vmap_twice(m):
    return m.jax.vmap(m.jax.vmap(functools.partial(_scale, m), in_axes=(None, 0)), in_axes=(0, None))(
        normal(2, 4), normal(3, 4)
    )


@kernel
def vmap_with_scratch_and_prefetch(m):
    def f(indices, x):
        def body(indices, x, o, acc):
            @m.pl.when(m.pl.program_id(0) == 0)
            def _():
                acc[...] = m.jnp.zeros_like(acc)

            acc[...] += x[...]
            o[...] = acc[...]

        spec = m.pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(2,), in_specs=[m.pl.BlockSpec((1, 3), lambda i, indices: (indices[i], 0))],
            out_specs=m.pl.BlockSpec((1, 3), lambda i, indices: (0, 0)), scratch_shapes=[m.pltpu.VMEM((1, 3), np.float32)],
        )  # fmt: skip
        return call(m, body, (1, 3), indices, x, grid_spec=spec)

    return m.jax.vmap(f)(np.array([[0, 1], [3, 3]], np.int32), normal(2, 4, 3))


@kernel
def jit_with_other_work(m):
    return m.jax.jit(lambda x, y: m.jnp.sum(_scale(m, x + 1, y)) * 2)(normal(4), normal(4, seed=1))


@kernel
def jvp(m):
    def f(x, y):
        def body(x, y, o):
            o[...] = m.jnp.sin(x[...]) * y[...]

        spec = m.pl.BlockSpec((2,), lambda i: (i,))
        return call(m, body, (4,), x, y, grid=(2,), in_specs=[spec] * 2, out_specs=spec)

    args = normal(4), normal(4, seed=1)
    return m.jax.jvp(f, args, (normal(4, seed=2), normal(4, seed=3)))


@kernel
def grad_by_custom_rule(m):
    @m.jax.custom_vjp
    def square(x):
        def body(x, o):
            o[...] = x[...] ** 2

        return call(m, body, (4,), x)

    def backward(x, g):
        def body(x, g, o):
            o[...] = 2 * x[...] * g[...]

        return (call(m, body, (4,), x, g),)

    square.defvjp(lambda x: (square(x), x), backward)
    return m.jax.grad(lambda x: m.jnp.sum(m.jnp.sin(square(x))))(normal(4))


@kernel
def inside_a_scan(m):
    def step(carry, x):
        new = _scale(m, carry, x)
        return new, new.sum()

    return m.lax.scan(step, normal(4), normal(3, 4, seed=1))


@kernel
def inside_shard_map(m):
    mesh = m.jax.sharding.Mesh(np.array(m.jax.devices()[:2]), ("x",))
    spec = m.jax.sharding.PartitionSpec("x")
    f = m.jax.shard_map(functools.partial(_scale, m), mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False)
    return f(normal(8), normal(8, seed=1))


@kernel
def roll(m):
    def body(x, o):
        o[...] = m.pltpu.roll(x[...], 2, 1)

    return call(m, body, (4, 8), normal(4, 8))


@kernel
def state(m):
    def f(refs):
        x, y = refs
        x[...] += 1.0
        y[...] = x[...] * 2

    return m.pl.run_state(f)((m.jnp.asarray(normal(4)), m.jnp.asarray(normal(4, seed=1))))
