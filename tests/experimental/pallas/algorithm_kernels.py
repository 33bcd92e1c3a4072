"""Kernels of whole algorithms: products, models, reductions, scans."""

from __future__ import annotations

import math

import numpy as np

from tests.experimental.pallas.kernels import call, kernel, normal

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
