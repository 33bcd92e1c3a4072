"""Copies of a value that differ from device to device: however programs run, and what ends them. `tests/differential` asks JAX."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.experimental.serialize_executable import deserialize_and_load, serialize
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

GRID = np.array(sw.devices()[:8]).reshape(4, 2)
MESH, LINE = Mesh(GRID, ("x", "y")), Mesh(GRID.reshape(8), ("z",))


def own(f, ins, outs, mesh=MESH):
    return sw.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)


def shards(x):
    return [np.asarray(s.data) for s in x.addressable_shards]


def differing(*spec):
    """f32[4] with this layout: device i has i added to its part."""
    number = lambda a: a + 2.0 * lax.axis_index("x") + lax.axis_index("y")  # noqa: E731
    return own(number, P(*spec), P(*spec))(jnp.arange(4.0) * 100)


def per_device(f, *spec):
    """The shards of `f` of a value of copies that differ, each computed by itself from that device's shard."""
    return [np.asarray(f(jnp.asarray(part))) for part in shards(differing(*spec))]


LOCAL = {
    "elementwise": lambda a: jnp.sin(a) * a + 1,
    "rows": lambda a: jnp.cumsum(jnp.sort(-a)) + a[0] * a.max(),
    "products": lambda a: jnp.outer(a, a) @ jnp.outer(a, a),
    "large": lambda a: jnp.tanh(jnp.tile(a, 30000) * 1e-3).reshape(-1, 8).max(0),
    "branches": lambda a: lax.cond(a[0] > 3, lambda: a * 2, lambda: -a),
    "loops": lambda a: lax.while_loop(lambda c: c[0] < 40, lambda c: 2 * c + 1, a),
    "scans": lambda a: lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros(()), a)[1],
    "gathers": lambda a: a[a.astype(int) % 4] + a.at[a.astype(int) % 3].add(1.0),
    "slopes": sw.grad(lambda a: (a**3).sum()),
    "drawn": lambda a: sw.random.normal(sw.random.fold_in(sw.random.key(0), a[0].astype(int)), (4,)),
}


@pytest.mark.parametrize("name", LOCAL)
def test_devices_compute_with_their_copies(name):
    f = LOCAL[name]
    expected = per_device(sw.jit(f))
    for result in (f(differing()), sw.jit(f)(differing()), sw.jit(f, donate_argnums=0)(differing())):
        np.testing.assert_allclose(shards(result), expected, rtol=1e-6, atol=1e-6)
    with config.override("shardwise_stepped", True):
        np.testing.assert_allclose(shards(sw.jit(f)(differing())), expected, rtol=1e-6, atol=1e-6)


def test_stepping_keeps_copies():
    with sw.disable_jit():
        x = differing()
        np.testing.assert_array_equal(shards(x), shards(differing()))
        np.testing.assert_array_equal(own(lambda a: a[None], P(), P(("x", "y")))(x), shards(x))


def test_other_meshes_over_the_same_devices():
    x = differing()
    for on in (own(lambda a: a + 1, P(), P(), LINE), lambda a: sw.device_put(a, NamedSharding(LINE, P())) + 1):
        np.testing.assert_array_equal(shards(on(x)), [part + 1 for part in shards(x)])
    np.testing.assert_array_equal(own(lambda a: a[None], P(), P("z"), LINE)(x), shards(x))
    np.testing.assert_array_equal(
        sw.jit(own(lambda a: a[None], P("y"), P(("x", "y"))))(differing("y")), shards(differing("y"))
    )


def test_what_devices_exchange_does_not_differ():
    rows = sw.device_put(jnp.arange(8.0), NamedSharding(LINE, P("z")))
    gather = lambda a: lax.all_gather(a, "z", tiled=True)  # noqa: E731
    layers = lambda a: lax.scan(lambda c, _: (gather(c[:1]), None), gather(a), None, length=2)[0]  # noqa: E731
    for f in (gather, layers, lambda a: lax.psum(a, "z"), lambda a: lax.pmax(gather(a).sum(), "z")):
        assert own(f, P("z"), P(), LINE)(rows)._sig.varies == ()
    x = differing()
    assert x._sig.varies == (0, 1) and own(lambda a: lax.psum(a, "y"), P(), P())(x)._sig.varies == (0,)


def test_the_host_sees_the_first_copy(capfd):
    x, seen = differing(), []

    @sw.jit
    def f(a):
        sw.debug.callback(lambda v: seen.append(v.tolist()), a)
        return sw.pure_callback(lambda v: np.asarray(v) + 1, sw.ShapeDtypeStruct(a.shape, a.dtype), a)

    np.testing.assert_array_equal(shards(f(x)), [shards(x)[0] + 1] * 8)
    assert seen == [shards(x)[0].tolist()] and float(x[1]) == 100.0 and f"{x[1]}" == "100.0"


def test_all_devices_go_the_way_of_the_first_where_they_exchange_values():
    x, rows = differing(), sw.device_put(jnp.arange(8.0), NamedSharding(MESH, P("x")))
    f = sw.jit(lambda a, b: lax.cond(a[0] > 3, lambda: 0.0, lambda: b.sum()))
    assert {float(part) for part in shards(f(x, rows))} == {28.0}
    g = sw.jit(
        lambda a, b: lax.while_loop(lambda c: c[0] + c[1].sum() < 100, lambda c: (c[0] + 10, c[1] + 1), (a[0], b))
    )
    assert len({float(part) - i for i, part in enumerate(shards(g(x, rows)[0]))}) == 1


def test_compiled_ahead():
    x, plain = differing(), sw.device_put(jnp.ones(4), NamedSharding(MESH, P()))
    compiled = sw.jit(lambda a: a * 2).lower(plain).compile()
    for f in (compiled, deserialize_and_load(*serialize(compiled))):
        np.testing.assert_array_equal(shards(f(x)), [2 * part for part in shards(x)])
        np.testing.assert_array_equal(f(plain), np.full(4, 2.0))
    other = deserialize_and_load(*serialize(sw.jit(lambda a: a * 2).lower(x).compile()))
    np.testing.assert_array_equal(shards(other(x)), [2 * part for part in shards(x)])


def test_parts_are_equal_bit_by_bit():
    nan, zero = np.float32(np.nan), np.float32(0)
    put = lambda parts: sw.make_array_from_single_device_arrays(  # noqa: E731
        (), NamedSharding(MESH, P()), [sw.device_put(p, d) for p, d in zip(parts, GRID.flat, strict=True)]
    )
    assert put([nan] * 8)._sig.varies == () and put([zero] * 8)._sig.varies == ()
    assert put([zero, -zero] * 4)._sig.varies == (1,) and put([zero] * 4 + [-zero] * 4)._sig.varies == (0,)
    signs = [str(float(part)) for part in shards(put([zero, -zero] * 4) * 1)]
    assert signs == ["0.0", "-0.0"] * 4
