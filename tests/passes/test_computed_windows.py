"""Windows that loops compute where they lie: the equations that the pass makes, and that no bit changes."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.ops.indexing.window_groups import computed_window_p
from shardwise.passes import computed_windows
from shardwise.passes.computed_windows import with_computed_windows
from shardwise.passes.inline import inline_calls
from shardwise.passes.schedule import schedule
from shardwise.passes.simplify import simplify
from shardwise.runtime.env import Env

P = jax.sharding.PartitionSpec
RNG = np.random.default_rng(0)
SHAPES = [(128, 256), (160, 333), (120, 500)]  # rows of 255, 330 and 497 leave masked vectors over


def passed(f):
    """The names of the equations after the pass."""
    types = [ShapedArray(SHAPES[0], np.dtype(np.float32))] * 2
    program = simplify(inline_calls(trace_program(lambda x, y: [f(x, y)], types)[0]), 1)
    program = with_computed_windows(schedule(program, Env()), Env())
    verify(program, after="computed_windows")
    return [e.op.name for e in program.equations if e.op.name != "slice"]


def same(one, other):
    """Compare elements, and signs of zeros."""
    one, other = (np.asarray(x).astype(np.float64) for x in (one, other))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.signbit(one)[~np.isnan(one)], np.signbit(other)[~np.isnan(one)])


def rounds(x, y):
    def step(_, c):
        x, y = c
        x = x.at[:-1].add(0.1 * (y[1:] - y[:-1]))
        return x, y.at[:, 1:].add(0.1 * (x[:, 1:] - x[:, :-1]))

    return lax.fori_loop(0, 3, step, (x, y))


IN_PLACE = {
    "added": lambda x, y: x.at[1:, :-1].add(y[1:, 1:] * 2),
    "replaced": lambda x, y: x.at[:-2, 3:].set(y[2:, 3:] * 2 + 1),
    "read twice": lambda x, y: x.at[1:, 1:].set(jnp.where(y[1:, 1:] > 0, x[1:, 1:] * x[1:, 1:], y[1:, 1:])),
    "turned": lambda x, y: x.T.at[1:].multiply(y.T[1:] + 1),
    "from the end": lambda x, y: x.at[-120:, -200:].add(jnp.abs(y[-120:, :200])),
    "by a row": lambda x, y: x.at[1:].add(y[0] * x[1:]),
}
APART = {
    "another part of the array": lambda x, y: x.at[:-1].set(x[1:] + y[1:]),
    "its neighbours": lambda x, y: x.at[:, 1:].add(x[:, :-1] * y[:, 1:]),
    "an unknown place": lambda x, y: lax.dynamic_update_slice(x, y[1:] * 2, (y[0, 0].astype(int), 0)),
    "a value that is read again": lambda x, y: (lambda z: x.at[1:].set(z) * z.max())(y[1:] * 2),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_one_equation_computes_a_window(name):
    assert passed(IN_PLACE[name]).count("computed_window") == 1


@pytest.mark.parametrize("name", APART)
def test_others_are_written_apart(name):
    assert "computed_window" not in passed(APART[name])


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
@pytest.mark.parametrize("kind", ["kept", "donated", "sharded"])
def test_no_bit_changes(monkeypatch, kind, dtype):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    programs = [
        *IN_PLACE.values(),
        *APART.values(),
        *([rounds, lambda x, y: rounds(x, x)] if dtype == "float32" else []),
    ]
    for shape in SHAPES:
        given = [jnp.asarray(RNG.normal(size=shape) * 3).astype(dtype) for _ in range(2)]
        if dtype != "int32":
            given[0] = given[0].at[5, 7].set(np.nan).at[6, 8:].set(-0.0)
        if kind == "sharded":
            given = [jax.device_put(x, jax.sharding.NamedSharding(mesh, P("x"))) for x in given]
        before = [np.array(x) for x in given]

        def f(x, y):
            return [p(x, y) for p in programs]

        with monkeypatch.context() as without:
            without.setattr(computed_windows, "with_computed_windows", lambda program, env: program)
            want = [np.array(o) for o in jax.tree.leaves(jax.jit(lambda x, y: f(x, y))(*given))]
        run = jax.jit(f, donate_argnums=(0, 1) if kind == "donated" else ())
        got = jax.tree.leaves(run(*[x.copy() for x in given] if kind == "donated" else given))
        for one, other in zip(got, want, strict=True):
            same(one, other)
        if kind != "donated":
            for one, other in zip(given, before, strict=True):
                same(one, other)


def test_reports_know_what_a_window_takes():
    """The result of an array that dies takes no memory, and its window is no value of its own."""
    x = jnp.ones((256, 256))
    f = jax.jit(IN_PLACE["added"], donate_argnums=0)
    found = f.lower(x, x).compile().memory_analysis()
    assert found.temp_size_in_bytes == 0 and found.alias_size_in_bytes == x.nbytes


def test_parts_of_one_array_are_kept_apart():
    """Operands that lie in the array's memory, at other places than the window, are read before it changes."""
    x = RNG.normal(size=(256, 128)).astype(np.float32)
    types = [ShapedArray((256, 128), x.dtype), ShapedArray((255, 128), x.dtype)]
    program = simplify(inline_calls(trace_program(lambda x, y: [x.at[1:].add(y * 2)], types)[0]), 1)
    (eqn,) = [e for e in with_computed_windows(schedule(program, Env()), Env()).equations if e.op is computed_window_p]
    assert computed_window_p.compile is not None
    kernel = computed_window_p.compile(Env(), types, types[:1], dict(eqn.params))
    for y in (x[:-1], x[1:], x[:0:-1], np.broadcast_to(x[3], (255, 128))):
        want = x.copy()
        want[1:] += y * 2
        np.testing.assert_array_equal(kernel.run((x.copy(), y), True), want)
        kept = x.copy()
        got = kernel.run((x, y), True)  # over the array, of which `y` is a part
        np.testing.assert_array_equal(got, want)
        x[...] = kept
