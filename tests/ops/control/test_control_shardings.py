"""Control flow over devices: layouts of carries, explicit types, and devices that take ways of their own."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.experimental.shard_map import shard_map
from shardwise.ir import subprograms
from shardwise.ops import control
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh, use_mesh

f32 = np.float32


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture(scope="module")
def explicit_mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def blocks(x):
    """The blocks of an (8, 8) array on the (2, 4) mesh, as views."""
    return [x[4 * i : 4 * i + 4, 2 * j : 2 * j + 2] for i in range(2) for j in range(4)]


def matrix(shift=0.0):
    return np.arange(64, dtype=f32).reshape(8, 8) / f32(64) + f32(shift)


BOTH = pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])


# -- automatic sharding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [P("x", "y"), P("y"), P(None, ("x", "y"))], ids=str)
def test_loops_keep_the_sharding_of_their_carry(mesh, spec):
    sharding = NamedSharding(mesh, spec)
    x = sw.device_put(matrix(), sharding)
    expected = matrix()
    for _ in range(4):
        expected = expected @ expected

    def square(c):
        return lax.dot(c, c)

    def by_while(c):
        return control.while_loop(lambda s: lax.lt(s[0], 4), lambda s: (lax.add(s[0], 1), square(s[1])), (0, c))[1]

    for run in (by_while, lambda c: control.fori_loop(0, 4, lambda i, c: square(c), c)):
        out = sw.jit(run)(x)
        assert out.sharding.is_equivalent_to(sharding, 2)
        np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-6)


def test_a_predicate_over_a_sharded_carry_is_one_for_all(mesh):
    x = sw.device_put(matrix(), NamedSharding(mesh, P("x", "y")))
    out = sw.jit(
        lambda c: control.while_loop(
            lambda c: lax.lt(lax.reduce_sum(c, (0, 1)), f32(1000)), lambda c: lax.mul(c, f32(2)), c
        )
    )(x)
    expected = matrix()
    while expected.sum() < 1000:
        expected = expected * 2
    np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize(
    ("carry_spec", "xs_spec", "carry_out", "ys_out"),
    [(P("y"), P("x", "y"), P("y"), P(None, "y")), (P(), P(None, "y"), P("y"), P(None, "y"))],
)
def test_scan_splits_entries_and_outputs_alike(mesh, carry_spec, xs_spec, carry_out, ys_out):
    xs = np.arange(96, dtype=f32).reshape(12, 8)
    start = np.ones(8, f32)
    carry, ys = sw.jit(lambda c, xs: control.scan(lambda c, x: (lax.add(c, x), lax.mul(c, x)), c, xs))(
        sw.device_put(start, NamedSharding(mesh, carry_spec)), sw.device_put(xs, NamedSharding(mesh, xs_spec))
    )
    assert carry.sharding.is_equivalent_to(NamedSharding(mesh, carry_out), 1)
    assert ys.sharding.is_equivalent_to(NamedSharding(mesh, ys_out), 2)
    sums = start + np.concatenate([np.zeros((1, 8), f32), np.cumsum(xs, 0)[:-1]])
    np.testing.assert_allclose(np.asarray(ys), sums * xs, rtol=1e-6)


def test_branches_agree_on_a_layout(mesh):
    x = sw.device_put(matrix(), NamedSharding(mesh, P("x", "y")))
    y = sw.device_put(matrix(1), NamedSharding(mesh, P()))
    run = sw.jit(lambda p, x, y: control.cond(p, lambda x, y: lax.add(x, y), lambda x, y: lax.mul(x, y), x, y))
    for p, expected in ((True, matrix() + matrix(1)), (False, matrix() * matrix(1))):
        out = run(p, x, y)
        assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)
        np.testing.assert_array_equal(np.asarray(out), expected)


def test_bodies_become_local_programs(mesh):
    """A loop over sharded values moves nothing, and each device works on its own block."""
    x = sw.device_put(matrix(), NamedSharding(mesh, P("x", "y")))
    f = sw.jit(lambda c: control.fori_loop(0, 3, lambda i, c: lax.sin(c), c))
    f(x)
    (entry,) = {id(e): e for e in f._fast.values()}.values()
    assert not entry.executable.transfers
    (loop,) = [e for e in entry.executable.device_program.equations if e.op.name == "scan"]
    ((_, body),) = subprograms(loop.params)
    assert {v.aval.shape for e in body.equations for v in e.outputs if e.op.name == "sin"} == {(4, 2)}


def test_two_loops_with_one_body_are_laid_out_apart(mesh):
    def double(c, _):
        return lax.add(c, c), None

    def run(a, b):
        return control.scan(double, a, None, length=2)[0], control.scan(double, b, None, length=2)[0]

    a = sw.device_put(matrix(), NamedSharding(mesh, P("x")))
    b = sw.device_put(matrix(), NamedSharding(mesh, P(None, "y")))
    outs = sw.jit(run)(a, b)
    assert [o.sharding.spec for o in outs] == [P("x"), P(None, "y")]


# -- explicit sharding ----------------------------------------------------------------------------------------------------------------


def test_explicit_carries_keep_their_type(explicit_mesh):
    with use_mesh(explicit_mesh):
        x = sw.device_put(matrix(), NamedSharding(explicit_mesh, P("x", None)))
        out = sw.jit(lambda c: control.fori_loop(0, 3, lambda i, c: lax.sin(c), c))(x)
        assert out.sharding.spec == P("x", None)
        ys = sw.jit(lambda c: control.scan(lambda c, _: (lax.sin(c), c), c, None, length=3)[1])(x)
        assert ys.sharding.spec == P(None, "x", None)


def test_explicit_types_must_match(explicit_mesh):
    with use_mesh(explicit_mesh):
        x = sw.device_put(matrix(), NamedSharding(explicit_mesh, P("x", None)))
        with pytest.raises(TypeError, match=r"f32\[8@x,8\].*f32\[8,8@x\].*so the shardings"):
            sw.jit(lambda c: control.fori_loop(0, 3, lambda i, c: lax.transpose(c, (1, 0)), c))(x)
        with pytest.raises(TypeError, match="so the shardings do not match"):
            sw.jit(lambda c: control.cond(True, lambda c: c, lambda c: lax.transpose(c, (1, 0)), c))(x)
        with pytest.raises(ValueError, match="0th dimension of all xs should be replicated"):
            sw.jit(lambda xs: control.scan(lambda c, x: (c, x), 0, xs))(x)


# -- per device, inside shard_map ---------------------------------------------------------------------------------------------------------


def per_device(mesh, f, out_specs=None):
    spec = P("x", "y")
    return shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec if out_specs is None else out_specs)


def largest(x):
    return lax.reduce_max(x, (0, 1))


@BOTH
def test_devices_leave_a_while_loop_one_by_one(mesh, wrap):
    def triple(x):
        return control.while_loop(lambda c: lax.lt(largest(c), f32(50)), lambda c: lax.mul(c, f32(3)), x)

    expected = matrix(0.01)
    for block in blocks(expected):
        while block.max() < 50:
            block *= 3
    assert (np.asarray(wrap(per_device(mesh, triple))(matrix(0.01))) == expected).all()


@BOTH
def test_devices_take_different_branches(mesh, wrap):
    def choose(x):
        i = lax.convert_element_type(lax.mul(largest(x), f32(3)), np.int32)
        return control.switch(i, [lambda x: lax.neg(x), lambda x: lax.mul(x, f32(2)), lambda x: x], x)

    expected = matrix()
    for block in blocks(expected):
        i = min(int(block.max() * 3), 2)
        block[...] = [-block, block * 2, block][i]
    assert (np.asarray(wrap(per_device(mesh, choose))(matrix())) == expected).all()


def test_a_loop_inside_a_loop_waits_for_no_device_that_is_done(mesh):
    """Some devices would never leave the inner loop once they have left the outer one."""

    def run(x):
        def outer(state):
            x, left = state
            # diverges for the blocks that are done (left <= 0)
            y = control.while_loop(
                lambda s: lax.gt(s[1], f32(0)),
                lambda s: (lax.add(s[0], f32(1)), lax.sub(s[1], lax.max(left, f32(0)))),
                (x, lax.abs(left)),
            )[0]
            return y, lax.sub(left, f32(1))

        return control.while_loop(lambda s: lax.gt(s[1], f32(0)), outer, (x, lax.ceil(lax.mul(largest(x), f32(4)))))[0]

    expected = matrix(0.01)
    for block in blocks(expected):
        block += np.ceil(block.max() * 4)
    np.testing.assert_allclose(np.asarray(sw.jit(per_device(mesh, run))(matrix(0.01))), expected, rtol=1e-6)


def test_carries_that_become_varying(mesh):
    def add_up(x):
        return control.scan(lambda c, _: (lax.add(c, x), c), lax.full(x.shape, 0, f32), None, length=3)

    total, steps = sw.jit(per_device(mesh, add_up, (P("x", "y"), P(None, "x", "y"))))(matrix())
    np.testing.assert_array_equal(np.asarray(total), 3 * matrix())
    np.testing.assert_array_equal(np.asarray(steps), [0 * matrix(), matrix(), 2 * matrix()])


def test_carries_that_become_varying_are_refused_by_the_latest_dialect(mesh, latest):
    def add_up(x):
        return control.fori_loop(0, 3, lambda i, c: lax.add(c, x), lax.full(x.shape, 0, f32))

    with pytest.raises(TypeError, match=r"pcast\(..., \('x', 'y'\), to='varying'\)"):
        sw.jit(per_device(mesh, add_up))(matrix())

    def cast_first(x):
        start = lax.pcast(lax.full(x.shape, 0, f32), ("x", "y"), to="varying")
        return control.fori_loop(0, 3, lambda i, c: lax.add(c, x), start)

    np.testing.assert_array_equal(np.asarray(sw.jit(per_device(mesh, cast_first))(matrix())), 3 * matrix())
    with pytest.raises(TypeError, match="pcast"):
        sw.jit(per_device(mesh, lambda x: control.cond(True, lambda: x, lambda: lax.full(x.shape, 0, f32))))(matrix())


def test_collectives_need_a_predicate_that_their_devices_share(mesh):
    def divergent(x):
        return control.cond(lax.gt(largest(x), f32(0.5)), lambda x: lax.psum(x, "x"), lambda x: x, x)

    def divergent_loop(x):
        return control.while_loop(
            lambda c: lax.lt(largest(c), f32(9)), lambda c: lax.add(c, lax.psum(x, ("x", "y"))), x
        )

    for body in (divergent, divergent_loop):
        with pytest.raises(ValueError, match="predicate varies"):
            sw.jit(per_device(mesh, body))(matrix())

    def shared(x):
        p = lax.gt(lax.psum(largest(x), "x"), f32(1.3))
        return control.cond(p, lambda x: lax.psum(x, "x"), lambda x: lax.mul(x, f32(2)), x)

    out = np.asarray(sw.jit(per_device(mesh, shared))(matrix()))
    x = matrix().reshape(2, 4, 4, 2).transpose(0, 2, 1, 3)
    together = x.max((2, 3)).sum(0) > 1.3
    assert together.any() and not together.all()
    expected = np.where(together[None, :, None, None], x.sum(0, keepdims=True) + 0 * x, 2 * x)
    np.testing.assert_allclose(out, expected.transpose(0, 2, 1, 3).reshape(8, 8), rtol=1e-6)
