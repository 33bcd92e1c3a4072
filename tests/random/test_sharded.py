"""Samples do not depend on the mesh, nor on how the result is asked for."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh, use_mesh

SPECS = [P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P(None, "y"), P()]
SAMPLERS = {
    "bits": lambda key, **kw: random.bits(key, (16, 8, 6), **kw),
    "uniform": lambda key, **kw: random.uniform(key, (16, 8, 6), minval=0.3, maxval=4.7, **kw),
    "normal": lambda key, **kw: random.normal(key, (16, 8, 6), **kw),
    "randint": lambda key, **kw: random.randint(key, (16, 8, 6), 0, 100, **kw),
    "gamma": lambda key, **kw: random.gamma(key, 2.5, (16, 8, 6), **kw),
    "poisson": lambda key, **kw: random.poisson(key, 3.5, (16, 8, 6), **kw),
    "bernoulli": lambda key, **kw: random.bernoulli(key, 0.3, (16, 8, 6), mode="high", **kw),
    "permutation": lambda key, **kw: random.permutation(key, np.arange(16 * 8 * 6).reshape(16, 8, 6), **kw),
}


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sharding_the_result_does_not_change_it(mesh, name, spec):
    sharding = NamedSharding(mesh, spec)
    sample = SAMPLERS[name]
    out = sw.jit(sample, out_shardings=sharding)(random.PRNGKey(3))
    assert out.sharding.is_equivalent_to(sharding, 3)
    assert (np.asarray(out) == np.asarray(sample(random.PRNGKey(3)))).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_out_sharding_over_explicit_axes(name):
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    sample = SAMPLERS[name]
    expected = np.asarray(sample(random.PRNGKey(3)))
    wanted = P("x", "y", None)
    with use_mesh(mesh):
        out = sample(random.PRNGKey(3), out_sharding=P("x", "y"))
        assert tuple(out.aval.sharding.spec) == tuple(wanted)
        assert (np.asarray(out) == expected).all()
        jitted = sw.jit(lambda k: sample(k, out_sharding=P("x", "y")))(random.PRNGKey(3))
        assert tuple(jitted.aval.sharding.spec) == tuple(wanted)
        parts = sw.jit(lambda k: sample(k, out_sharding=P("x", unreduced={"y"})))(random.PRNGKey(3))
        assert parts.aval.sharding.spec.unreduced == {"y"}
        assert (np.asarray(sw.reshard(parts, P())) == expected).all()
    out = sample(random.PRNGKey(3), out_sharding=NamedSharding(mesh, P("x", "y")))
    assert out.sharding == NamedSharding(mesh, wanted)
    assert (np.asarray(out) == expected).all()


@pytest.mark.parametrize("shape", [(64, 32), (256, 128)])
def test_each_device_makes_its_own_block_only(mesh, shape):
    """No collective, and no array larger than a block beyond the key."""
    f = sw.jit(lambda key: random.normal(key, shape), out_shardings=NamedSharding(mesh, P("x", "y")))
    from shardwise.engine.compile import compile_program
    from shardwise.engine.signature import signature
    from shardwise.ir import ShapedArray, trace_program

    key = random.key(0)
    program, consts = trace_program(lambda k: [random.normal(k, shape)], [ShapedArray((), key.dtype)])
    assert not consts
    executable = compile_program(
        program, [signature(key.aval, key.sharding, False)], [NamedSharding(mesh, P("x", "y"))]
    )
    assert not executable.transfers
    assert max(v.aval.size for e in executable.device_program.equations for v in e.outputs) == shape[0] * shape[1] // 8
    np.testing.assert_allclose(np.asarray(f(key)), np.asarray(random.normal(key, shape)), rtol=1e-6)


def test_keys_can_be_sharded(mesh):
    keys = random.split(random.key(1), 8)
    sharding = NamedSharding(mesh, P("y"))
    out = sw.jit(lambda k: random.key_data(random.split(k, 8)), out_shardings=sharding)(random.key(1))
    assert out.sharding.is_equivalent_to(sharding, 2)
    assert (np.asarray(out) == np.asarray(random.key_data(keys))).all()


@pytest.mark.parametrize(
    "move",
    [
        lambda keys: keys[::-1],
        lambda keys: keys[1:5],
        lambda keys: sw.numpy.roll(keys, 1),
        lambda keys: sw.numpy.concatenate([keys[5:], keys[:5]]),
        lambda keys: sw.vmap(lambda row: row[::-1])(keys.reshape(4, 2)),
    ],
    ids=["reversed", "sliced", "rolled", "joined", "mapped"],
)
def test_sharded_keys_move_as_others_do(mesh, move):
    keys = random.split(random.key(7), 8)
    expected = random.key_data(move(keys))
    got = sw.jit(lambda keys: sw.lax.with_sharding_constraint(move(keys), NamedSharding(mesh, P("y"))))(
        sw.device_put(keys, NamedSharding(mesh, P("y")))
    )
    assert (np.asarray(random.key_data(got)) == np.asarray(expected)).all()
