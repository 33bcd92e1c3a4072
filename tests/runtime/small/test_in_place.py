"""Carries that a loop updates where they lie: what is found to be so is right, and takes no second piece of memory."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import subprograms, trace_program
from shardwise.runtime.small import kernel as runtime_small
from shardwise.runtime.small.cost import small_cost
from shardwise.runtime.small.in_place import updates
from shardwise.runtime.small.kernel import available

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
SIZE, STEPS = 40_000, 300


def start(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def update(i, x):
    return x.at[i].set(i * 1.0)


def several(i, x):
    return x.at[i].add(x[i + 1] * 2).at[i + 2].set(3.0).at[-i].multiply(0.5)


def slices(i, x):
    window = lax.dynamic_slice(x, (i,), (4,))
    return lax.dynamic_update_slice(x, window[::-1], (i + 7,))


def gathered(i, x):
    read = x[jnp.stack([i, i + 3, 2 * i])]
    return x.at[jnp.stack([i + 3, i, 5 + i])].set(read + 1, mode="drop", unique_indices=False)


def outside(i, x):
    return x.at[i + SIZE - 10].set(1.0, mode="drop").at[i - 5].min(-2.0)


def wide_window(i, x):
    window, head = lax.dynamic_slice(x, (i,), (40,)), x[:32]
    return lax.dynamic_update_slice(x, window[::-1], (i + 7,)).at[3:35].add(head)


def most_of_it(i, x):
    window = lax.dynamic_slice(x, (i,), (x.size - STEPS,))
    return lax.dynamic_update_slice(x, window[::-1], (7,))


def all_of_it(i, x):
    return x.at[i].set(x.sum() * 1e-6)


def what_was_there(i, x):
    return x.at[i].set(1.0) + x * 0


IN_PLACE = (update, several, slices, gathered, outside, wide_window)
NOT = (most_of_it, all_of_it, what_was_there)


@pytest.fixture
def made(monkeypatch):
    """The small programs that are compiled while a test runs, each with its bytes of scratch memory."""
    found = []
    before = runtime_small.module

    def module(program, *args):
        text, scratch = before(program, *args)
        found.append((program, scratch))
        return text, scratch

    monkeypatch.setattr(runtime_small, "module", module)
    return found


def fori(step, n=STEPS):
    return lambda x: lax.fori_loop(0, n, step, x)


def repeated(step, n=STEPS):
    return lambda x: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, step(s[0], s[1])), (0, x))[1]


def plain(f, *args):
    """The result of NumPy's calls."""
    with config.override("shardwise_fused", "off"):
        return np.asarray(jax.jit(lambda *a: f(*a))(*args))


def plain_all(f, *args):
    """The results of NumPy's calls."""
    with config.override("shardwise_fused", "off"):
        return [np.array(y) for y in jax.jit(lambda *a: f(*a))(*args)]


def walk(program):
    """All equations, of inner programs too."""
    for e in program.equations:
        yield e
        for _, inner in subprograms(e.params):
            yield from walk(inner)


def loops_with(made, nbytes):
    """The compiled loops, and those of them that have scratch memory for another copy of the carry."""
    scratch = [s for p, s in made if any(e.op.name in ("scan", "while") for e in p.equations)]
    return len(scratch), sum(s >= nbytes for s in scratch)


@pytest.mark.parametrize("step", IN_PLACE)
@pytest.mark.parametrize("loop", [fori, repeated])
@pytest.mark.parametrize("size", [100, 10_000, SIZE])
def test_updates_touch_windows_only(made, step, loop, size):
    x = start(size)
    f = loop(step, min(STEPS, size // 3))
    got = np.asarray(jax.jit(f)(x))
    count, copies = loops_with(made, x.nbytes)
    assert count == 1
    assert not copies
    np.testing.assert_allclose(got, plain(f, x), rtol=1e-6)
    np.testing.assert_array_equal(x, start(size))


@pytest.mark.parametrize("step", NOT)
def test_what_needs_the_old_value_keeps_it(made, step):
    x = start(10_000)
    f = fori(step, 20)
    np.testing.assert_allclose(np.asarray(jax.jit(f)(x)), plain(f, x), rtol=2e-6)
    assert loops_with(made, x.nbytes) == (1, 1)
    made.clear()
    big = start(2 * SIZE)  # beyond what loops of few additions hold
    np.testing.assert_allclose(np.asarray(jax.jit(f)(big)), plain(f, big), rtol=2e-6)
    assert loops_with(made, big.nbytes) == (0, 0)


@pytest.mark.parametrize("step", [update, several, gathered])
@pytest.mark.parametrize("loop", [fori, repeated])
def test_under_vmap_and_on_a_mesh(made, step, loop):
    x = start(8, 5000)
    f = jax.vmap(loop(step))
    want = plain(f, x)
    np.testing.assert_allclose(np.asarray(jax.jit(f)(x)), want, rtol=1e-6)
    assert loops_with(made, x.nbytes) == (1, 0)
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    for spec in (jax.P("x"), jax.P(("x", "y"))):
        placed = jax.device_put(x, jax.NamedSharding(mesh, spec))
        np.testing.assert_allclose(np.asarray(jax.jit(f)(placed)), want, rtol=1e-6)
        np.testing.assert_array_equal(placed, x)


def test_carries_that_exchange_or_share_values():
    def exchanged(i, s):
        a, b = s
        return b.at[i].set(i * 2.0), a.at[i + 1].add(1.0)

    def shared(i, s):
        a, b = s
        return a.at[i].set(i * 2.0), a.at[i + 1].add(1.0) + b * 0.5

    def kept(i, s):
        a, _ = s
        return a.at[i].set(i * 2.0), a

    for step in (exchanged, shared, kept):
        for size in (90, 600):
            a, b = start(size), start(size) + 1
            got = jax.jit(lambda a, b, step=step: lax.fori_loop(0, 50, step, (a, b)))(a, b)
            with config.override("shardwise_fused", "off"):
                want = jax.jit(lambda a, b, step=step: lax.fori_loop(0, 50, step, (a, b)))(a, b)
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-6)


def test_stacked_rows_of_what_is_updated():
    def step(x, i):
        before, x = x[i], x.at[i].multiply(2.0)
        return x, (before, x[:12])

    x, index = start(200), jnp.arange(50) % 7
    got = jax.jit(lambda x: lax.scan(step, x, index))(x)
    with config.override("shardwise_fused", "off"):
        want = jax.jit(lambda x: lax.scan(step, x, index))(x)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_a_loop_inside_of_a_loop(made):
    def outer(i, x):
        return lax.fori_loop(0, 5, lambda j, x: x.at[i + j].add(1.0), x.at[i].set(2.0))

    f = fori(outer, 40)
    for size in (500, SIZE):
        x = start(size)
        np.testing.assert_allclose(np.asarray(jax.jit(f)(x)), plain(f, x), rtol=1e-6)
        assert loops_with(made, x.nbytes) == (1, 0)
        made.clear()


TALL = (512, 2048)  # beyond what small programs make


def written(i, x):
    return lax.dynamic_update_slice(x, x[:1] * 0 + i * 1.5, (i, 0))


def read_before(i, x):
    row = x[i]
    return x.at[i + 1].set(abs(row) + 1).at[0].add(row)


def scattered(i, x):
    return x.at[jnp.arange(3) * i].add(x[i])


@pytest.mark.parametrize("step", [written, read_before, scattered])
@pytest.mark.parametrize("loop", [fori, repeated])
def test_large_carries_are_written_over_where_they_are_donated(made, step, loop):
    f = loop(step, 30)
    want = plain(f, start(*TALL))
    run = jax.jit(f, donate_argnums=0)
    x = jnp.array(start(*TALL))
    at = x.unsafe_buffer_pointer()
    for _ in range(2):
        got = run(x)
        assert got.unsafe_buffer_pointer() == at
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)
        x, want = got, plain(f, want)
    count, copies = loops_with(made, x.nbytes)
    assert (count, copies) == (1, 0)
    kept = jnp.array(start(*TALL))
    np.testing.assert_allclose(np.asarray(jax.jit(f)(kept)), plain(f, start(*TALL)), rtol=1e-6)
    np.testing.assert_array_equal(kept, start(*TALL))


def test_large_carries_that_someone_else_sees_are_copied():
    run = jax.jit(fori(written, 30), donate_argnums=0)
    x = jnp.array(start(*TALL))
    seen = np.asarray(x)
    run(x)
    np.testing.assert_array_equal(seen, start(*TALL))


@pytest.mark.parametrize("step", [written, read_before, scattered])
@pytest.mark.parametrize("spec", [jax.P("x"), jax.P(None, "x"), jax.P(None, ("x", "y")), jax.P()])
def test_large_carries_on_a_mesh(step, spec):
    x, f = start(*TALL), fori(step, 9)
    want = plain(f, x)
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    placed = jax.device_put(x, jax.NamedSharding(mesh, spec))
    np.testing.assert_allclose(np.asarray(jax.jit(f)(placed)), want, rtol=1e-6)
    np.testing.assert_array_equal(placed, x)
    np.testing.assert_allclose(np.asarray(jax.jit(f, donate_argnums=0)(placed)), want, rtol=1e-6)


@pytest.mark.parametrize("loop", [fori, repeated])
def test_a_row_per_device_is_updated_where_it_lies(made, loop):
    """A window of the whole may be as large as a device's part."""
    mesh = jax.make_mesh((8,), ("x",))
    x = start(8, 12_000)
    f = loop(lambda i, x: x.at[3 * i % 8].add(x[i % 8] * 0.5).at[i % 8, 5].set(1.0), 30)
    want = plain(f, x)
    placed = jax.device_put(x, jax.NamedSharding(mesh, jax.P("x")))
    np.testing.assert_allclose(np.asarray(jax.jit(f)(placed)), want, rtol=1e-6)
    assert loops_with(made, x.nbytes) == (1, 0)
    np.testing.assert_array_equal(placed, x)


def test_updates_of_entries_under_vmap(made):
    x = start(4, 128, 2048)

    def one(x, at):
        return fori(lambda i, x: lax.dynamic_update_slice(x, x[:1] + 1.0, (at + i, 0)), 9)(x)

    f = jax.vmap(one)
    at = jnp.array([0, 5, 2, 130])
    want = plain(f, x, at)
    np.testing.assert_array_equal(np.asarray(jax.jit(f)(x, at)), want)
    assert loops_with(made, x.nbytes) == (1, 0)
    donated = jnp.array(x)
    place = donated.unsafe_buffer_pointer()
    got = jax.jit(f, donate_argnums=0)(donated, at)
    assert got.unsafe_buffer_pointer() == place
    np.testing.assert_array_equal(np.asarray(got), want)


def test_several_large_carries_and_loops_one_after_the_other(made):
    def both(i, s):
        a, b = s
        return a.at[i].set(b[i]), b.at[i + 1].add(a[i + 2])

    def f(a, b):
        a, b = lax.fori_loop(0, 9, both, (a, b))
        return fori(written, 5)(a), b

    a, b = start(*TALL), start(*TALL) + 1
    want = plain_all(f, a, b)
    for g, w in zip(jax.jit(f)(a, b), want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-6)
    x, y = jnp.array(a), jnp.array(b)
    places = {x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer()}
    got = jax.jit(f, donate_argnums=(0, 1))(x, y)
    assert {g.unsafe_buffer_pointer() for g in got} == places
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-6)


def test_what_is_written_is_computed_where_it_goes(made):
    x = start(*TALL)
    row = start(1, TALL[1])
    f = lambda x: lax.scan(lambda x, i: (lax.dynamic_update_slice(x, row * i, (i, 0)), None), x, jnp.arange(20))[0]  # noqa: E731
    np.testing.assert_array_equal(np.asarray(jax.jit(f)(x)), plain(f, x))
    ((_, scratch),) = made
    assert scratch == 0


def test_what_is_written_and_given_back():
    row = start(1, TALL[1])

    def step(x, i):
        new = row * i
        return lax.dynamic_update_slice(x, new, (i, 0)), new

    f = lambda x: lax.scan(step, x, jnp.arange(20))  # noqa: E731
    for got, want in zip(jax.jit(f)(start(*TALL)), plain_all(f, start(*TALL)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_rounds_that_update_count_the_windows_alone():
    program = trace_program(lambda x: [fori(update, 100)(x)], [jax.typeof(jnp.zeros(SIZE))])[0]
    assert small_cost(program) < 2000


def test_products_of_large_operands_stay_with_the_library(made):
    a, x = start(1024, 512), start(512)
    f = lambda a, x: lax.fori_loop(0, 3, lambda i, s: (s[0].at[i].set(s[1]), jnp.tanh(s[1] @ s[0].T)[:512]), (a, x))  # noqa: E731
    jax.jit(f)(a, x)
    assert not any(e.op.name == "dot_general" for p, _ in made for e in walk(p))


def test_what_is_found():
    """The values of each carry from the one that comes in to the one that goes out."""

    def body(f, *types):
        program = trace_program(f, types)[0]
        return [len(c) for c in updates(program, program.inputs[program.num_consts :], program.outputs)]

    x, i = jax.typeof(jnp.zeros(SIZE)), jax.typeof(jnp.int32(0))
    assert body(lambda x, i: (update(i, x), i + 1), x, i) == [2, 0]
    assert body(lambda x, i: (several(i, x), i + 1), x, i) == [4, 0]
    assert body(lambda x, i: (x, i), x, i) == [0, 0]
    assert body(lambda x, y: (update(3, y), update(4, x)), x, x) == [0, 0]
    for step in NOT:
        assert body(lambda x, i, step=step: (step(i, x), i + 1), x, i) == [0, 0]


def in_one_branch(i, x):
    return lax.cond(i % 3 > 0, lambda x: x.at[i].set(i * 1.0), lambda x: x, x)


def in_nested_branches(i, x):
    def loop(x):
        return lax.fori_loop(0, 2, lambda j, x: x.at[i + j].add(x[2 * i]), x)

    read = lax.cond(i % 5 > 0, lambda x: x[i], lambda x: x[0] + 1, x)
    x = lax.switch(
        i % 4,
        [lambda x: x, loop, lambda x: lax.cond(x[i] > 0, loop, update_at_read, x), lambda x: x.at[i].set(read)],
        x,
    )
    return x.at[i + 1].add(read)


def update_at_read(x):
    return x.at[3].set(x[4] + 1).at[5].multiply(0.5)


@pytest.mark.parametrize("step", [in_one_branch, in_nested_branches])
@pytest.mark.parametrize(("loop", "size"), [(fori, 100), (repeated, SIZE)])
def test_branches_update_what_others_pass_on(made, step, loop, size):
    x, f = start(size), loop(step, 30)
    np.testing.assert_allclose(np.asarray(jax.jit(f)(x)), plain(f, x), rtol=1e-6)
    assert loops_with(made, x.nbytes) == (1, 0)


def random_step(seed):
    """A step of three arrays: updates, reads, branches and loops of them, in any order, some of which overwrite nothing."""
    rng = np.random.default_rng(seed)

    def statements(depth):
        return [statement(depth) for _ in range(rng.integers(1, 4))]

    def statement(depth):
        kind = rng.choice(["set", "add", "read", "swap", "other", "cond", "switch", "loop"][: 5 if depth > 1 else 8])
        a, b, k = *map(int, rng.integers(0, 3, 2)), int(rng.integers(0, 5))
        inner = [statements(depth + 1) for _ in range({"cond": 2, "switch": 3, "loop": 1}.get(kind, 0))]
        return kind, a, b, k, [s if rng.random() < 0.7 else [] for s in inner]

    def run(todo, i, s):
        s = list(s)
        for kind, a, b, k, inner in todo:
            if kind == "set":
                s[a] = s[a].at[i + k].set(s[b][2 * k] + 1)
            elif kind == "add":
                s[a] = s[a].at[k].add(0.5 * s[b][i])
            elif kind == "read":
                s[3] = s[3] * 0.5 + s[a][i - k]
            elif kind == "swap":
                s[a], s[b] = (s[b], s[a]) if k == 0 else (s[a], s[b])
            elif kind == "other":
                s[a] = s[a] * 0.9 if k == 0 else s[a]
            elif kind == "loop":
                s = list(lax.fori_loop(0, 2, lambda j, s, todo=inner[0]: run(todo, i + j, s), tuple(s)))
            else:
                which = (s[3] > 0) * 1 if kind == "cond" else (i + k) % 3
                ways = [lambda s, todo=todo: run(todo, i, s) for todo in inner]
                s = list(lax.switch(which, ways, tuple(s)))
        return tuple(s)

    todo = statements(0)
    return lambda i, s: run(todo, i, s)


@pytest.mark.parametrize("seed", range(4))
def test_random_steps_of_several_carries(seed):
    step = random_step(seed)
    size = 20_000 if seed % 2 else 90
    s = (start(size), start(size) + 1, start(size) * 2, np.float32(0.3))
    f = lambda s: lax.fori_loop(0, 7, step, s)  # noqa: E731
    for g, w in zip(jax.jit(f)(s), plain_all(f, s), strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-5, atol=1e-6)
