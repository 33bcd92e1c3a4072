"""How often kernels of our own go over their rows, and what a program's executed form needs."""

from __future__ import annotations

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.planner.executed import executed_groups
from shardwise.planner.flops import work_of
from tests.planner.device_programs import array

X = array(512, 1024)
N = 512 * 1024 * 4


def executed(f, *types):
    return jax.jit(f).lower(*[jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]).compile().runtime_executable()  # type: ignore[attr-defined]


def kernels(f, *types):
    return executed_groups(executed(f, *types).plan.program, {})


def test_a_softmax_is_one_kernel_that_reads_memory_once():
    (group,) = kernels(jax.nn.softmax, X)
    read, summed, written = group.passes
    assert [sum(p.touched.values()) for p in group.passes] == [N, 0, N]
    assert [e.op.name for e in read.equations] == ["reduce_max"]
    assert "exp" in [e.op.name for e in summed.equations]
    assert summed.cached >= 2 * N and written.cached >= N


def test_elementwise_kernels_go_over_their_operands_once():
    (group,) = kernels(lambda x, y: jnp.tanh(x) * y + x, X, X)
    (one,) = group.passes
    assert sum(one.touched.values()) == 3 * N and one.cached == 0


def test_rows_that_the_cache_does_not_hold_are_read_again():
    far = array(4, 1 << 19)
    (group,) = kernels(jax.nn.softmax, far)
    assert [sum(p.touched.values()) for p in group.passes] == [far.nbytes] * 3


def test_pieces_of_a_value_are_views_of_it():
    found = kernels(lambda x: [jnp.sort(a) for a in jnp.split(jnp.sort(x), 2, axis=1)], X)
    assert [e.op.name for g in found for e in g.equations] == ["sort"] * 3
    whole = found[0].writes
    assert found[1].reads == found[2].reads == whole


def test_a_small_loop_counts_all_its_rounds():
    def f(x):
        return jax.lax.fori_loop(0, 100, lambda i, c: jnp.exp(c) * 0.1, x)

    (group,) = kernels(f, array(64))
    assert work_of(group.equations).transcendentals == 100 * 64


def test_an_update_of_a_value_that_is_still_needed_copies_it():
    places, rows = array(4), array(4, 1024)

    def touched(f):
        *_, update = kernels(f, X, places, rows)
        return sum(n for part in update.passes for n in part.touched.values())

    def write(x, i, rows):
        return x.at[i.astype(int)].set(rows)

    def write_over(x, i, rows):
        return write(jnp.sort(x), i, rows)

    assert touched(write) >= 2 * N  # an argument
    assert touched(write_over) < N / 4  # dies with the update


def test_places_that_are_looked_up_are_counted():
    def lookups(f, *types):
        return next(p.lookups[:2] for g in kernels(f, *types) for p in g.passes if p.lookups.places)

    places = array(20000)  # fewer run as small programs
    assert lookups(lambda x, i: x[i.astype(int)], X, places) == (20000, 0)
    assert lookups(lambda x, i: x.at[i.astype(int)].add(1.0), X, places) == (20000, 0)
    assert lookups(lambda x, i: x[i.astype(int), i.astype(int)], X, places) == (0, 20000)


def lookups(f, *types):
    (found,) = [p.lookups for g in kernels(f, *types) for p in g.passes if p.lookups.places]
    return found


def test_places_of_a_row_lie_in_that_row():
    found = lookups(lambda x, i: jnp.take_along_axis(x, i, 1), X, array(512, 1024, dtype="int32"))
    assert (found.elements, found.span) == (512 * 1024, 1024 * 4)
    found = lookups(lambda x, i: x[i], array(1 << 19), array(1 << 19, dtype="int32"))
    assert (found.elements, found.span) == (1 << 19, N)


def test_columns_are_looked_up_element_by_element():
    found = lookups(lambda x, i: x[:, i.astype(int)], X, array(300))
    assert (found.windows, found.pieces, found.width) == (300, 512, 512 * 4)
    assert lookups(lambda x, i: x[i.astype(int)], X, array(20000)).pieces == 1


def test_rows_that_a_loop_reads_again_come_from_near():
    def f(x, y):
        return jnp.einsum("bi,bj->bij", x, y)

    (part,) = [p for g in kernels(f, array(300, 40), array(300, 50)) for p in g.passes]
    assert part.cached == (40 - 1) * 300 * 50 * 4 // 2
    (part,) = [p for g in kernels(lambda x: x * 2 + 1, X) for p in g.passes]
    assert part.cached == 0


def test_windows_under_vmap_are_looked_up():
    def window(row, i):
        return jax.lax.dynamic_slice(row, (i,), (8,))

    found = lookups(jax.vmap(window), X, array(512, dtype="int32"))
    assert (found.windows, found.span, found.updates) == (512, 1024 * 4, False)

    def write(row, i, new):
        return jax.lax.dynamic_update_slice(row, new, (i,))

    found = lookups(jax.vmap(write), X, array(512, dtype="int32"), array(512, 8))
    assert (found.windows, found.combined, found.updates) == (512, 512 * 8, True)
    (one,) = [p for g in kernels(window, array(1 << 16), array(dtype="int32")) for p in g.passes]
    assert not one.lookups.places  # one place is a view, or a copy
