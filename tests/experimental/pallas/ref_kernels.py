"""Kernels that read and write their Refs in other ways than whole: parts, masks, scratch memory, copies."""

from __future__ import annotations

import numpy as np

from tests.experimental.pallas.kernels import call, kernel, normal


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
