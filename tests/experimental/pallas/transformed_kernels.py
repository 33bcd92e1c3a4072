"""Kernels with control flow inside, and kernels under transformations."""

from __future__ import annotations

import functools

import numpy as np

from tests.experimental.pallas.kernels import call, kernel, normal

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
    def plain(x):
        def body(x, o):
            o[...] = x[...] ** 2

        return call(m, body, (4,), x)

    square = m.jax.custom_vjp(plain)

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
