"""Wrong programs: shardwise raises the error class that JAX raises, so that `except` clauses keep their meaning."""

from __future__ import annotations

import pytest

from tests import oracles
from tests.differential.eras import spelled
from tests.differential.oracle import compare, worker

MESH = """
mesh = mesh_of((2, 4), ('x', 'y'))
explicit = mesh_of((2, 4), ('x', 'y'), 'Explicit')
a = jax.device_put(data((8, 8)), NamedSharding(mesh, P('x', 'y')))
e = jax.device_put(data((8, 8)), NamedSharding(explicit, P('x', 'y')))
v = jnp.arange(8.0)
"""

PROGRAMS = {
    # meshes and specs
    "mesh: rank and names": "Mesh(np.array(jax.devices()), ('x', 'y'))",
    "mesh: too few devices": "jax.make_mesh((4, 4), ('x', 'y'))",
    "mesh: name None": "Mesh(np.array(jax.devices()), (None,))",
    "mesh: immutable": "mesh.axis_names = ('p', 'q')",
    "spec: unknown axis": "NamedSharding(mesh, P('z'))",
    "spec: axis twice": "NamedSharding(mesh, P('x', 'x'))",
    "spec: axis twice in a tuple": "NamedSharding(mesh, P(('x', 'y'), 'x'))",
    "unknown platform": "jax.devices('abacus')",
    "unknown option": "jax.config.update('jax_nonsense', 1)",
    "process index": "jax.local_devices(process_index=7)",
    # placing
    "device_put: indivisible": "jax.device_put(np.ones((3, 4)), NamedSharding(mesh, P('x')))",
    "device_put: spec too long": "jax.device_put(np.ones(4), NamedSharding(mesh, P('x', None)))",
    "device_put: no target": "jax.device_put(np.ones(4), 'cpu')",
    "device_put: tree": "jax.device_put((v, v), [NamedSharding(mesh, P())])",
    "device_put: spec without mesh": "jax.device_put(v, P('x'))",
    "device_put: text": "jax.device_put('abc')",
    "from callback: shape": "jax.make_array_from_callback((8,), NamedSharding(mesh, P('x')), lambda i: np.ones(3))",
    "from callback: sharding": "jax.make_array_from_callback((8,), jax.devices()[0], lambda i: np.ones(8))",
    "from arrays: count": "jax.make_array_from_single_device_arrays((8,), NamedSharding(mesh, P('x')), [v])",
    "from arrays: kind": "jax.make_array_from_single_device_arrays((8,), NamedSharding(mesh, P('x')), v)",
    "from arrays: nothing": "jax.make_array_from_single_device_arrays((8,), NamedSharding(mesh, P()), [])",
    "shard_shape: indivisible": "NamedSharding(mesh, P('x')).shard_shape((3,))",
    # arrays
    "truth of many": "bool(a)",
    "float of many": "float(a)",
    "index of float": "[1, 2][jnp.float32(1)]",
    "hash": "hash(a)",
    "length of scalar": "len(jnp.float32(1))",
    "iterate scalar": "iter(jnp.float32(1))",
    "assign item": "a[0] = 1",
    "list index": "a[[0, 1]]",
    "float index": "a[1.5]",
    "too many indices": "a[0, 0, 0]",
    "shapes": "a + jnp.ones(3)",
    "list operand": "jnp.sum([1, 2])",
    "matmul shapes": "a @ jnp.ones((3, 8))",
    "reshape size": "a.reshape(7, 9)",
    "axis": "a.sum(axis=2)",
    "concatenate": "jnp.concatenate([a, jnp.ones((2, 3))])",
    "transpose": "a.transpose(0, 0)",
    "lax dtypes": "lax.add(jnp.ones(3, 'float32'), jnp.ones(3, 'int32'))",
    "8-bit floats": "jnp.ones(3, 'float8_e4m3fn') + jnp.ones(3, 'float8_e5m2')",
    "overflow": "jnp.int32(1) + 2**40",
    "deleted": "a.delete(); a + 1",
    "deleted to numpy": "a.delete(); np.asarray(a)",
    "deleted in jit": "a.delete(); jax.jit(lambda x: x)(a)",
    "devices differ": "jax.device_put(v, jax.devices()[1]) + jax.device_put(v, jax.devices()[2])",
    "devices differ in jit": "jax.jit(lambda x, y: x + y)(jax.device_put(v, jax.devices()[1]), a)",
    # jit
    "tracer: if": "jax.jit(lambda x: 1 if x > 0 else 2)(1.0)",
    "tracer: int": "jax.jit(lambda x: [1, 2][x])(1)",
    "tracer: float": "jax.jit(lambda x: float(x))(1.0)",
    "tracer: numpy": "jax.jit(lambda x: np.sin(x))(v)",
    "tracer: item": "jax.jit(lambda x: x[0].item())(v)",
    "tracer: mask": "jax.jit(lambda x: x[x > 0])(v)",
    "tracer: shape": "jax.jit(lambda n: jnp.zeros(n))(3)",
    "tracer: leak": "leaked = []\njax.jit(lambda x: leaked.append(x))(v)\nleaked[0] + 1",
    "tracer: sharding": "jax.jit(lambda x: x.sharding.spec)(a)",
    "tracer: shards": "jax.jit(lambda x: x.addressable_shards)(a)",
    "not callable": "jax.jit(3)",
    "text argument": "jax.jit(lambda x: x)('abc')",
    "text result": "jax.jit(lambda x: 'abc')(v)",
    "unhashable static": "jax.jit(lambda x, y: x, static_argnums=1)(v, [1])",
    "static out of range": "jax.jit(lambda x: x, static_argnums=3)(v)",
    "static unknown name": "jax.jit(lambda x: x, static_argnames='y')(v)",
    "donate out of range": "jax.jit(lambda x: x, donate_argnums=3)(v)",
    "static and donated": "jax.jit(lambda x: x, static_argnums=0, donate_argnums=0)(v)",
    "donated used again": "jax.jit(lambda x: x + 1, donate_argnums=0)(v); np.asarray(v)",
    "donated twice": "jax.jit(lambda x, y: (x + y, x - y), donate_argnums=(0, 1))(v, v)",
    "in_shardings: tree": "jax.jit(lambda x, y: x, in_shardings=(NamedSharding(mesh, P()),))(v, v)",
    "in_shardings: leaf": "jax.jit(lambda x: x, in_shardings='x')(v)",
    "in_shardings: device": "jax.jit(lambda x: x, in_shardings=jax.devices()[0])(v)",
    "in_shardings: kwargs": "jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, P()))(x=v)",
    "in_shardings: spec": "jax.jit(lambda x: x, in_shardings=P('x'))(v)",
    "in_shardings: differ": "jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, P('y')))(a)",
    "in_shardings: rank": "jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, P('x', 'y')))(v)",
    "in_shardings: indivisible": "jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, P('x')))(jnp.ones(3))",
    "out_shardings: tree": "jax.jit(lambda x: x, out_shardings=(NamedSharding(mesh, P()),) * 2)(v)",
    "out_shardings: indivisible": "jax.jit(lambda x: x[:3], out_shardings=NamedSharding(mesh, P('x')))(v)",
    "constraint: spec": "lax.with_sharding_constraint(v, P('x'))",
    "lower: wrong avals": "jax.jit(lambda x: x).lower(v).compile()(jnp.ones(4))",
    "lower: wrong tree": "jax.jit(lambda x: x).lower(v).compile()((v,))",
    "lower: wrong sharding": "jax.jit(lambda x: x).lower(a).compile()(jax.device_put(a, NamedSharding(mesh, P())))",
    # explicit mode
    "explicit: elementwise": "e + e.T",
    "explicit: illegal": "jax.jit(lambda p, q: p + q)(e[:, None], jax.device_put(e, NamedSharding(explicit, P('y', 'x'))))",
    "explicit: contraction": "jax.jit(lambda p: p @ p)(e)",
    "explicit: ambiguous": "jax.jit(lambda p, q: p @ q)(e, jax.device_put(e, NamedSharding(explicit, P('y', None))))",
    "explicit: reshape": "jax.jit(lambda p: p.reshape(64))(jax.device_put(e, NamedSharding(explicit, P(None, 'y'))))",
    "explicit: cumsum": "jax.jit(lambda p: jnp.cumsum(p, axis=0))(e)",
    "explicit: gather": "jax.jit(lambda p: p[jnp.array([0, 1])])(e)",
    "explicit: concatenate": "jax.jit(lambda p: jnp.concatenate([p, jnp.ones((8, 8))]))(e)",
    "explicit: slice": "jax.jit(lambda p: p[:3])(e)",
    "explicit: scan": "jax.jit(lambda p: lax.scan(lambda c, r: (c, r), 0.0, p))(e)",
    "explicit: reshard none": "jax.reshard(e, None)",
    "explicit: auto axis": "jax.jit(lambda p: jax.reshard(p, P('x')))(a)",
    "explicit: auto_axes": "jax.sharding.auto_axes(lambda p: p)(e)",
    # shard_map
    "shard_map: no mesh": "jax.shard_map(lambda x: x, in_specs=P(), out_specs=P())(v)",
    "shard_map: spec type": "jax.shard_map(lambda x: x, mesh=mesh, in_specs='x', out_specs=P())(v)",
    "shard_map: unknown axis": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P('z'), out_specs=P())(v)",
    "shard_map: rank in": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P('x', 'y'), out_specs=P())(v)",
    "shard_map: rank out": "jax.shard_map(lambda x: x.sum(), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(v)",
    "shard_map: indivisible": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(jnp.ones(7))",
    "shard_map: tree": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=(P(), P()), out_specs=P())(v)",
    "shard_map: out tree": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=(P(), P()))(v)",
    "shard_map: not replicated": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P('x'), out_specs=P())(v)",
    "shard_map: gathered": "jax.shard_map(lambda x: lax.all_gather(x, 'x'), mesh=mesh, in_specs=P('x'), out_specs=P())(v)",
    "shard_map: unbound axis": "jax.shard_map(lambda x: lax.psum(x, 'z'), mesh=mesh, in_specs=P('x'), out_specs=P())(v)",
    "psum outside": "lax.psum(v, 'x')",
    "shard_map: kwargs": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=P())(x=v)",
    "shard_map: if": "jax.shard_map(lambda x: x if x[0] > 0 else -x, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(v)",
    "shard_map: axis_names type": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=P(), axis_names='x')(v)",
    "shard_map: axis_names": "jax.shard_map(lambda x: x, mesh=mesh, in_specs=P(), out_specs=P(), axis_names={'z'})(v)",
    "ppermute: unique": "jax.shard_map(lambda x: lax.ppermute(x, 'x', [(0, 1), (1, 1)]), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(v)",
    "psum_scatter: size": """jax.shard_map(lambda x: lax.psum_scatter(x, 'y', tiled=True), mesh=mesh, in_specs=P(),
        out_specs=P('y'))(jnp.ones(6))""",
    "all_to_all: size": """jax.shard_map(lambda x: lax.all_to_all(x, 'y', 0, 0, tiled=True), mesh=mesh, in_specs=P(),
        out_specs=P('y'))(jnp.ones(6))""",
    "scan: varying carry": """jax.jit(jax.shard_map(lambda x: lax.scan(lambda c, r: (c + r, None), 0.0, x)[0][None],
        mesh=mesh, in_specs=P('x'), out_specs=P('x')))(v)""",
    # control flow
    "cond: branches": "lax.cond(True, lambda: 1.0, lambda: v)",
    "cond: trees": "lax.cond(True, lambda: 1.0, lambda: (1.0,))",
    "scan: carry": "lax.scan(lambda c, r: (c.astype('int32'), r), 0.0, v)",
    "scan: lengths": "lax.scan(lambda c, r: (c, r[0]), 0.0, (v, jnp.ones(3)))",
    "while: predicate": "lax.while_loop(lambda c: c, lambda c: c, 1.5)",
    "fori: carry": "lax.fori_loop(0, 3, lambda i, c: (c, c), 1.0)",
    "vmap: sizes": "jax.vmap(lambda x, y: x + y)(v, jnp.ones(3))",
    "vmap: axis": "jax.vmap(lambda x: x, in_axes=3)(v)",
}


# Where JAX trips over an assertion of its own, the class that shardwise raises instead.
BETTER = {
    "latest": {"shard_map: unbound axis": "NameError"},
    "seed": {
        "explicit: reshard none": "ValueError",
        "explicit: gather": "ValueError",
        "explicit: cumsum": "ValueError",
    },
}
# What the seeds' JAX has no argument for.
NEWER = {"shard_map: no mesh", "shard_map: axis_names type", "shard_map: axis_names"}


@pytest.mark.parametrize("dialect", oracles.VERSIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_family_of_errors(name, dialect):
    if dialect == "seed" and name in NEWER:
        return
    program = spelled(MESH + PROGRAMS[name] + "\nresult = 'no error'", dialect)
    if name in BETTER[dialect]:
        answer = worker("shardwise", 8, dialect).run(program)
        assert answer["error"]["builtin"] == BETTER[dialect][name]
    else:
        compare(program, dialect=dialect)
