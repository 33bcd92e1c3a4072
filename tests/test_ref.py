"""Mutable references: eagerly, and within one traced function."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise import ref
from shardwise.sharding import NamedSharding, PartitionSpec
from shardwise.transforms.jit.references import OverValues


class Pair(NamedTuple):
    """A container for static arguments."""

    first: int
    second: str


def test_read_and_write() -> None:
    r = sw.new_ref(np.zeros(3, np.float32))
    r[0] = 1.0
    r[...] += 2.0
    np.testing.assert_array_equal(r[...], [3, 2, 2])
    assert ref.swap(r, 1, 7.0) == 2 and r.shape == (3,) and len(r) == 3
    ref.addupdate(r, slice(1, 3), np.ones(2, np.float32))
    frozen = sw.freeze(r)
    r[0] = 4.0  # where JAX executes at once, freezing reads
    np.testing.assert_array_equal(frozen, [3, 8, 3])
    with pytest.raises(ValueError, match="frozen"):
        sw.jit(lambda x: (lambda r: (sw.freeze(r), r[...]))(sw.new_ref(x)))(1.0)


def test_places_stay_as_weakly_typed_as_they_were_made() -> None:
    r = sw.new_ref(0)
    assert r[...].weak_type
    r[...] += 1
    assert r[...].weak_type and str(r) == "Ref(1, dtype=int32, weak_type=True)"
    r[...] = np.int32(3)
    assert r[...].weak_type
    strong = sw.new_ref(np.int32(0))
    strong[...] = jnp.asarray(2)
    assert not strong[...].weak_type
    written = sw.new_ref(0)
    sw.jit(lambda to: to.set(2))(written)
    assert written[...].weak_type
    # As a step of Adam does that counts in a Ref: the dtype of what is beside the count stays.
    assert sw.jit(lambda c: jnp.ones(3, jnp.bfloat16) / (1 - 0.9 ** c[...]))(written).dtype == jnp.bfloat16

    def count(i: Any, _: Any) -> Any:
        inner[...] += i
        return i + 1, None

    inner = sw.new_ref(0)
    assert sw.lax.scan(count, 0, length=4)[0] == 4
    assert int(inner[...]) == 6
    assert inner.unsafe_buffer_pointer() == inner[...].unsafe_buffer_pointer()


def test_in_traced_functions() -> None:
    def f(x):
        r = sw.new_ref(x)
        for i in range(2):
            r[i] = r[i] * 2 + ref.get(r, 2)
        return sw.freeze(r)

    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(sw.jit(f)(x), [2, 4, 2])
    np.testing.assert_array_equal(sw.jacrev(f)(x), [[2, 0, 1], [0, 2, 1], [0, 0, 1]])


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="dtype"):
        sw.new_ref(np.zeros(3, np.float32))[...] = np.zeros(3, np.int32)


def test_type_of_a_ref():
    ref = sw.new_ref(sw.numpy.ones(3))
    kind: Any = sw.typeof(ref)
    assert repr(kind) == "Ref{float32[3]}"
    assert (kind.shape, kind.inner_aval) == ((3,), sw.numpy.ones(3).aval)
    assert kind == sw.typeof(sw.new_ref(sw.numpy.zeros(3)))
    assert not isinstance(sw.typeof(sw.numpy.ones(3)), type(kind))


def test_compiled_functions_take_refs_and_write_them() -> None:
    """What JAX gives for the same calls: values after each call, and an array read before a call stays."""
    jax = pytest.importorskip("jax")

    def calls(lib: Any) -> list[Any]:
        first, second = lib.new_ref(lib.numpy.arange(4.0)), lib.new_ref(lib.numpy.zeros(()))

        @lib.jit
        def step(refs: Any, x: Any) -> Any:
            refs["a"][...] += x
            refs["b"][...] = refs["a"][1:3].sum()
            return refs["b"][...] * 2

        @lib.jit
        def around(a: Any, b: Any) -> Any:
            step({"a": a, "b": b}, 2.0)
            a[0] = b[...]
            return a[1]

        seen = []
        before = first[...]
        for x in (1.0, 2.0, 3.0):
            seen += [step({"a": first, "b": second}, x), first[...], second[...]]
        seen += [around(first, second), first[...], second[...], before]
        return [np.asarray(x) for x in seen]

    for ours, theirs in zip(calls(sw), calls(jax), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_refs_keep_layouts_beside_static_and_donated_arguments() -> None:
    mesh = sw.make_mesh((4,), ("x",), devices=sw.devices()[:4])
    split = sw.sharding.NamedSharding(mesh, sw.P("x"))
    r = sw.new_ref(sw.device_put(np.arange(8.0, dtype=np.float32), split))
    traces = []

    @functools.partial(sw.jit, static_argnums=0, static_argnames="sign", donate_argnums=2, out_shardings=split)
    def step(power: int, r: Any, x: Any, *, sign: int, shift: Any) -> Any:
        traces.append(power)
        r[...] = r[...] ** power * sign + shift[...]
        return x + r[...]

    shift = sw.new_ref(np.float32(1))
    for _ in range(3):
        given = sw.device_put(np.ones(8, np.float32), split)
        out = step(2, r, given, sign=1, shift=shift)
        assert given.is_deleted() and out.sharding == r.sharding == split
    np.testing.assert_array_equal(r[...], ((np.arange(8.0) ** 2 + 1) ** 2 + 1) ** 2 + 1)
    assert len(traces) <= 2 and shift[...] == 1  # the second call finds `shift` on the devices of `r`


@pytest.mark.parametrize("given", [(1, "a"), Pair(1, "a"), frozenset("a"), None])
def test_static_arguments_beside_refs_are_the_objects_given(given: Any) -> None:
    seen = []

    @functools.partial(sw.jit, static_argnums=1, static_argnames="named")
    def f(r: Any, static: Any, *, named: Any) -> None:
        seen.extend([static, named])
        r[0] = 1.0

    f(sw.new_ref(sw.numpy.zeros(2)), given, named=given)
    assert seen == [given, given] and all(x is given for x in seen)


@pytest.mark.parametrize("out", [None, "given"])
def test_clearing_caches_forgets_calls_with_refs(out: str | None) -> None:
    traces: list[Any] = []
    options: dict[str, Any] = (
        {} if out is None else {"out_shardings": sw.sharding.SingleDeviceSharding(sw.devices()[0])}
    )
    f = sw.jit(lambda r: traces.append(r) or r[0], **options)
    r = sw.new_ref(sw.numpy.zeros(2))
    counts = []
    for clear in (lambda: None, f.clear_cache, lambda: None, sw.clear_caches):
        clear()
        f(r)
        counts.append(len(traces))
    assert counts == [1, 2, 2, 3]


def test_a_ref_is_written_in_its_own_memory() -> None:
    r = sw.new_ref(sw.numpy.zeros(1_000_000))
    start = r[...]
    add = sw.jit(lambda r: r.__setitem__(..., r[...] + 1))
    add(r)
    place = r.held().unsafe_buffer_pointer()
    add(r)
    assert r.held().unsafe_buffer_pointer() == place
    kept = r[...]
    add(r)
    assert not start.is_deleted() and kept[0] == 2 and r[0] == 3 and start[0] == 0


def test_refs_that_compiled_functions_refuse() -> None:
    r = sw.new_ref(sw.numpy.zeros(3))
    with pytest.raises(ValueError, match="twice"):
        sw.jit(lambda a, b: a[0] + b[0])(r, r)
    with pytest.raises(TypeError, match="Read its array"):
        sw.numpy.sin(r)

    @sw.jit
    def fail(r: Any) -> Any:
        r[0] = 1.0
        raise KeyError("x")

    with pytest.raises(KeyError):
        fail(r)
    np.testing.assert_array_equal(r[...], np.zeros(3))


def test_repeated_calls_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    @sw.jit
    def add(r: Any, x: Any) -> Any:
        r[...] = r[...] + x
        return x * 2

    r, other, x = sw.new_ref(jnp.zeros(3)), sw.new_ref(jnp.ones(3)), jnp.arange(3.0)
    add(r, x)
    kept = r[...]
    counted: list[Any] = []
    bound = OverValues.bind_call
    with monkeypatch.context() as patch:
        patch.setattr(OverValues, "bind_call", lambda *given: counted.append(given) or bound(*given))
        np.testing.assert_array_equal(add(r, x), [0, 2, 4])
        add(other, x)
        for _ in range(20):
            add(sw.new_ref(jnp.ones(3)), x)
    assert len(counted) < 5  # one call in a long run of tests was seen to miss
    np.testing.assert_array_equal(kept, [0, 1, 2])
    np.testing.assert_array_equal(r[...], [0, 2, 4])
    np.testing.assert_array_equal(other[...], [1, 2, 3])
    add(r, r[...])
    np.testing.assert_array_equal(r[...], [0, 4, 8])
    add(r, 1.0)  # other types, and other kinds of arguments, are calls of their own
    add(sw.new_ref(jnp.zeros(2)), jnp.ones(2))
    add(r, x=x)
    np.testing.assert_array_equal(r[...], [1, 6, 11])
    with sw.disable_jit():
        add(r, x)
    np.testing.assert_array_equal(r[...], [1, 7, 13])
    add.clear_cache()
    add(r, x)
    np.testing.assert_array_equal(sw.freeze(r), [1, 8, 15])


def test_repeated_calls_check_their_references() -> None:
    @sw.jit
    def exchange(a: Any, b: Any) -> None:
        a[...], b[...] = b[...], a[...]

    a, b = sw.new_ref(jnp.zeros(2)), sw.new_ref(jnp.ones(2))
    for _ in range(3):
        exchange(a, b)
    np.testing.assert_array_equal(a[...], [1, 1])
    np.testing.assert_array_equal(b[...], [0, 0])
    with pytest.raises(ValueError, match="only one reference"):
        exchange(a, a)


def test_repeated_calls_under_a_mesh_of_other_layouts() -> None:
    mesh = sw.make_mesh((4,), ("x",))
    add = sw.jit(lambda r, x: r.__setitem__(..., r[...] + x))
    for sharding in (PartitionSpec("x"), PartitionSpec(), PartitionSpec("x"), PartitionSpec()):
        r = sw.new_ref(sw.device_put(jnp.arange(8.0), NamedSharding(mesh, sharding)))
        for _ in range(2):
            add(r, jnp.ones(8))
        np.testing.assert_array_equal(r[...], jnp.arange(8.0) + 2)
        assert r.sharding.is_equivalent_to(NamedSharding(mesh, sharding), 1)


def test_views() -> None:
    r = sw.new_ref(np.arange(6, dtype=np.float32).reshape(2, 3))
    row = r.at[1]
    row[0] = 9.0
    row.at[1:3][...] = jnp.ones(2)
    np.testing.assert_array_equal(r[...], [[0, 1, 2], [9, 1, 1]])
    assert row.shape == (3,) and row.get(0) == 9 and row.swap(jnp.zeros(3))[0] == 9
    r.reshape(6)[1] = 5.0
    r.T[2, 0] = 4.0
    r.at[0].addupdate(jnp.ones(3))
    np.testing.assert_array_equal(r[...], [[1, 6, 5], [0, 0, 0]])
    r.bitcast(np.int32).at[1].set(jnp.full(3, 1 << 30, np.int32))
    np.testing.assert_array_equal(r[1], [2, 2, 2])
    with pytest.raises(ValueError, match="Out of bound"):
        _ = r.at[5]
    with pytest.raises(TypeError, match=r"cannot reshape a Ref of shape \(2, 3\) into shape \(4,\)"):
        r.reshape(4)
    with pytest.raises(NotImplementedError, match="differ in width"):
        r.bitcast(np.int16)


def test_views_in_loops() -> None:
    @sw.jit
    def f(x: Any) -> Any:
        r = sw.new_ref(x)

        def step(i: Any, _: None) -> None:
            r.at[i].at[0:2][...] = r.at[i][0:2] * 2

        sw.lax.fori_loop(0, 2, step, None)
        return r[...]

    np.testing.assert_array_equal(f(jnp.ones((2, 3))), [[2, 2, 1], [2, 2, 1]])


@pytest.mark.parametrize("name", ["get", "set", "swap", "addupdate"])
def test_functions_of_refs_refuse_arrays(name):
    with pytest.raises(ValueError, match=f"Can only call `ref_{name}` on a `Ref`"):
        getattr(sw.ref, name)(jnp.ones(3), 0, *([] if name == "get" else [1.0]))
    with pytest.raises(ValueError, match="Can only call `mine` on a `Ref`"):
        swap: Any = sw.ref.swap
        swap(jnp.ones(3), 0, 1.0, _function_name="mine")
