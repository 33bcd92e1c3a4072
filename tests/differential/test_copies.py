"""Copies of a value that differ: unchecked results of `shard_map` and arrays made of parts keep each device's, as JAX's do."""

from __future__ import annotations

import pytest

from tests import oracles
from tests.differential.eras import spelled
from tests.differential.oracle import compare

SETUP = """
mesh, grid = mesh_of((4,), ('x',)), mesh_of((2, 2), ('x', 'y'))
def own(f, ins, outs, on=mesh): return jax.shard_map(f, mesh=on, in_specs=ins, out_specs=outs, check_vma=False)
def shards(x): return [np.asarray(s.data) for s in x.addressable_shards]
def on(m, *spec): return NamedSharding(m, P(*spec))
def held(x, s): return jax.jit(lambda x: lax.with_sharding_constraint(x, s))(x)
four = jnp.arange(4.0)
v = own(lambda a: 2 * a, P('x'), P())(four)
w = own(lambda a: jnp.tile(a, 4) + 10 * four, P('x'), P())(four)
g = own(lambda a, b: a + b, (P('x'), P('y')), P('y'), grid)(four, 10 * four)
s = jax.device_put(jnp.arange(8.0), on(mesh, 'x'))
"""

PROGRAMS = {
    "shown and handed on": """
result = [shards(v), np.asarray(w), float(v[0]), shards(g), np.asarray(g), shards(own(lambda a: a + 1, P(), P('x'))(v)),
    shards(own(lambda a: a, P('x'), P('x'))(w)), shards(own(lambda a: a, P('y'), P(('x', 'y')), grid)(g)),
    shards(own(lambda a: a, P('x'), P(('x', 'y')), grid)(g)), shards(own(lambda a: lax.psum(a, 'x'), P(), P())(v)),
    shards(own(lambda a: lax.psum(a, 'x'), P('y'), P('y'), grid)(g)), w.addressable_data(2), v.is_fully_replicated]
""",
    "single ops": """
result = [shards(x) for x in [v + 1, w * v, w.sum(), w[1], w[1], w[jnp.array([3, 0])], w[::-1], w.astype(int), w.copy(), jnp.array(w), -w,
    jnp.sort(-w), jnp.cumsum(w), jnp.where(w > 2, w, 0), w.at[0].set(5), jnp.stack([v, v]), g * 2, g.sum(), g.reshape(2, 2).T, s * v,
    jnp.outer(w, s), jnp.roll(w, 1), lax.dynamic_update_slice(w, v, (2,)), v > 2]] + [shards(x) for x in w]
""",
    "layouts": """
result = [shards(x) for x in [jax.device_put(w, w.sharding), jax.device_put(w, on(mesh, 'x')), jax.device_put(w, jax.devices()[2]),
    jax.device_put(w, on(grid)), jax.device_put(w, on(grid, 'x')), held(w, on(mesh, 'x')), held(w, on(mesh)), held(w, on(grid, 'y')),
    held(g, on(grid, 'x')), jax.jit(lambda a: a * 1, out_shardings=on(grid))(g), jax.jit(lambda a: a + 1, out_shardings=on(mesh, 'x'))(w),
    jax.jit(lambda a: a + 1, in_shardings=on(mesh))(w), jax.jit(lambda a: a + 1, in_shardings=on(grid))(w)]]
""",
    "loops and branches": """
add = own(lambda a, b: a + b, (P(), P('x')), P())
result = [shards(x) for x in [jax.jit(lambda c, x: lax.fori_loop(0, 3, lambda i, c: add(c, x), c))(v, four),
    jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: add(c, x), jnp.zeros(1)))(four),
    *jax.jit(lambda c, x: lax.scan(lambda c, _: (add(c, x), c * 2), c, None, length=3))(v, four),
    jax.jit(lambda a: lax.while_loop(lambda c: c[0] < 5, lambda c: c * 3 + 1, a))(v),
    jax.jit(lambda a: lax.cond(a[0] > 2, lambda: a * 10, lambda: a))(v),
    jax.jit(lambda a, x: lax.cond(a[0] > -1, lambda: x.sum(), lambda: 0.0))(v, s),
    jax.jit(lambda a, x: lax.while_loop(lambda c: c[0].sum() < 50, lambda c: (c[0] + x.sum(), c[1]), (a, x))[0])(v, s),
    jax.jit(lambda a, i: a[i.astype(int)])(w, v[0] / 2)]]
""",
    "derivatives and vmap": """
square = own(lambda b: b ** 2, P(), P())
weigh = own(lambda b, c: b * c.sum(), (P(), P('x')), P())
result = [shards(x) for x in [jax.grad(lambda a: square(a).sum())(w), jax.jit(jax.grad(lambda a: (a ** 3).sum()))(v),
    *jax.grad(lambda a, x: weigh(a, x).sum(), argnums=(0, 1))(w, s),
    jax.grad(lambda x: (own(lambda a: a ** 2, P('x'), P())(x) * 3).sum())(four),
    jax.jvp(square, (w,), (w,))[1], jax.vmap(own(lambda a: a * 2, P('x'), P()))(jnp.arange(8.0).reshape(2, 4)), jax.vmap(jnp.sin)(w),
    jax.jit(jax.grad(lambda a: jax.checkpoint(lambda z: jnp.sin(square(z)))(a).sum()))(w)]]
""",
    "training with leaves that differ": """
def body(state, x):
    noise = jax.random.normal(state['rng'], state['w'].shape)
    slope = jax.grad(lambda w: ((x.sum() * w + noise) ** 2).mean())(state['w'])
    return {'w': state['w'] - 0.01 * slope, 'rng': jax.random.fold_in(state['rng'], lax.axis_index('x')), 'n': state['n'] + 1}
step = own(body, (P(), P('x')), P())
def train(step, state):
    for _ in range(3): state = step(state, s)
    return {k: shards(x) for k, x in state.items()}
def start(): return {'w': jnp.ones(3), 'rng': jax.random.PRNGKey(0), 'n': jnp.int32(0)}
result = [train(step, start()), train(jax.jit(step), start()), train(jax.jit(step, donate_argnums=0), start()),
    {k: shards(x) for k, x in jax.jit(lambda c: lax.fori_loop(0, 3, lambda i, c: step(c, s), c))(start()).items()}]
""",
    "arrays made of parts": """
parts = [jax.device_put(jnp.full(2, i), d) for i, d in enumerate(jax.devices()[:4])]
m = jax.make_array_from_single_device_arrays((2,), on(mesh), parts)
h = jax.make_array_from_single_device_arrays((4,), on(grid, 'y'), parts)
zeros = [jax.device_put(jnp.float32(i), d) for i, d in zip([0.0, -0.0] * 2, jax.devices())]
zero = jax.make_array_from_single_device_arrays((), on(mesh), zeros)
count = iter(range(9))
c = jax.make_array_from_callback((2,), on(grid, 'x'), lambda i: np.full(1, next(count)))
result = [shards(x) for x in [m, m + 1, h, h * 2, 1 / zero, c, c + c, held(m, on(mesh)), own(lambda a: a, P(), P('x'))(m)]]
""",
    "compiled ahead, donated, mapped": """
f = jax.jit(lambda a: a + 1)
plain = jax.device_put(jnp.zeros(1), on(mesh))
devices = jax.devices()[:4]
none = jax.pmap(lambda a: a * 2, out_axes=None, devices=devices)(four)
result = [shards(x) for x in [f.lower(v).compile()(v), f.lower(plain).compile()(v), f.lower(v).compile()(plain),
    jax.jit(lambda a: a + 1, donate_argnums=0)(v + 0), none, none * 2,
    *[jax.pmap(lambda a, b: a + b, in_axes=(None, 0), devices=devices)(x, four) for x in (v, none)]]]
""",
}


# Partitioners choose which copy counts where a value is moved: what is compared leaves them no choice.
@pytest.mark.parametrize("dialect", oracles.VERSIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_device_keeps_its_copy(name, dialect):
    compare(spelled(SETUP + PROGRAMS[name], dialect), dialect=dialect, ulps=16)
