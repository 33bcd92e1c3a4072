"""Refs that functions close over and that transforms pass on, beside JAX: values, what Refs hold afterwards, classes of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from tests.ref_programs import PROGRAMS, cotangents_noted

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_with_refs(program: Any) -> None:
    ours, theirs = (lib.tree_util.tree_leaves(program(lib)) for lib in (sw, jax))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


def written(lib: Any, value: Any) -> Any:
    r = lib.new_ref(0.0)

    def f(x: Any) -> Any:
        r[...] = value(x)
        return x * 2

    return f


def returning(lib: Any) -> Any:
    made = lib.custom_vjp(lambda r: r)
    made.defvjp(lambda r: (r, None), lambda *_: (None,))
    return made


def deleted(lib: Any) -> Any:
    x = lib.numpy.ones(3)
    x.delete()
    return x


MISTAKES = {
    "returned by jit": lambda lib: lib.jit(lambda x: {"a": lib.new_ref(x)})(1.0),
    "argument returned": lambda lib: lib.jit(lambda r: r)(lib.new_ref(1.0)),
    "returned by scan": lambda lib: lib.lax.scan(lambda c, x: (c, lib.new_ref(x)), 0.0, lib.numpy.arange(4.0)),
    "carried": lambda lib: lib.lax.while_loop(lambda r: r[...] < 3, lambda r: r, lib.new_ref(0.0)),
    "returned by cond": lambda lib: (lambda r: lib.lax.cond(True, lambda: r, lambda: r))(lib.new_ref(0.0)),
    "passed twice": lambda lib: (lambda r: lib.jit(lambda a, b: a[...] + b[...])(r, r))(lib.new_ref(0.0)),
    "operands twice": lambda lib: (lambda r: lib.lax.cond(True, lambda a, b: 1, lambda a, b: 2, r, r))(lib.new_ref(0.0)),
    "closed over and passed": lambda lib: (lambda r: lib.jit(lambda q: q[...] + r[...])(r))(lib.new_ref(0.0)),
    "closed over, written and passed": lambda lib: (lambda r: lib.jit(lambda q: r.__setitem__(..., q[...]))(r))(lib.new_ref(0.0)),
    "tangent of a Ref": lambda lib: lib.jvp(lambda r: r[...], (lib.new_ref(1.0),), (1.0,)),
    "tangent of a linearized Ref": lambda lib: lib.linearize(lambda r: r[...], lib.new_ref(1.0))[1](1.0),
    "cotangent of a Ref": lambda lib: lib.grad(lambda r: r[...] * 2)(lib.new_ref(1.0)),
    "cotangent of a written Ref": lambda lib: lib.vjp(lambda r: (r.set(r[...] * 2), r[...])[1], lib.new_ref(1.0))[1](1.0),
    "made, array as cotangent": lambda lib: lib.vjp(lib.new_ref, 1.0)[1](1.0),
    "made in jvp, returned by jit": lambda lib: lib.jit(lambda x: lib.jvp(lib.new_ref, (x,), (x,)))(1.0),
    "gradient of a made one": lambda lib: lib.grad(lib.new_ref)(1.0),
    "jacrev of a made one": lambda lib: lib.jacrev(lib.new_ref)(np.ones(3, "f")),
    "jacfwd of a made one": lambda lib: lib.jacfwd(lib.new_ref)(np.ones(3, "f")),
    "hessian of a made one": lambda lib: lib.hessian(lib.new_ref)(np.ones(3, "f")),
    "transposed": lambda lib: lib.linear_transpose(lambda r: r, lib.new_ref(1.0))(1.0),
    "of a deleted array": lambda lib: lib.new_ref(deleted(lib)),
    "deleted array written": lambda lib: lib.new_ref(lib.numpy.ones(3)).__setitem__(..., deleted(lib)),
    "returned by custom_vjp": lambda lib: returning(lib)(lib.new_ref(1.0)),
    "returned by a compiled custom_vjp": lambda lib: lib.jit(returning(lib))(lib.new_ref(1.0)),
    "tangent written": lambda lib: lib.grad(written(lib, lambda x: x))(1.0),
    "tangent written in jvp": lambda lib: lib.jvp(written(lib, lambda x: x), (1.0,), (1.0,)),
    "element written": lambda lib: lib.vmap(written(lib, lambda x: x))(lib.numpy.arange(3.0)),
    "constant written under vmap": lambda lib: lib.vmap(written(lib, lambda x: 2.0))(lib.numpy.arange(3.0)),
    "mapped view": lambda lib: lib.jit(lambda: lib.vmap(lambda v: v[...])(lib.new_ref(np.zeros((3, 2), "f")).at[:2]))(),
    "wrong shape": lambda lib: lib.new_ref(lib.numpy.zeros(3)).__setitem__(..., np.ones(2, np.float32)),
    "wrong shape of a part": lambda lib: lib.new_ref(lib.numpy.zeros((2, 3))).__setitem__(0, np.float32(1)),
    "wrong dtype": lambda lib: lib.new_ref(lib.numpy.zeros(3)).__setitem__(0, 1),
    "out of bounds": lambda lib: lib.new_ref(lib.numpy.zeros(3)).__setitem__(7, np.float32(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_with_refs(name: str) -> None:
    found = []
    for lib in (sw, jax):
        with pytest.raises(Exception) as raised:
            MISTAKES[name](lib)
        found.append(type(raised.value))
    assert found[0] is found[1]


def test_views_are_leaves() -> None:
    r = sw.new_ref(sw.numpy.arange(4.0))
    view = r.at[1:3]
    assert sw.tree.leaves({"a": view}) == [view]
    sw.tree.map(lambda v, x: v.set(x), [view], [np.full(2, 7, np.float32)])
    np.testing.assert_array_equal(r[...], [0, 7, 7, 3])
    sw.jit(lambda v, by: v.reshape(1, 2).__setitem__((0, 0), by))(view.transpose((0,)), 9.0)
    np.testing.assert_array_equal(r[...], [0, 9, 7, 3])
    with pytest.raises(TypeError, match="take the view inside"):
        sw.vmap(lambda v: v[...])(view)
    with pytest.raises(TypeError, match="take the view inside"):
        sw.lax.while_loop(lambda v: False, lambda v: v, view)


def test_cotangents_noted_in_branches() -> None:
    noted = cotangents_noted(sw)
    r = sw.new_ref(0.0)

    @sw.jit
    def f(r: Any, x: Any) -> Any:
        def body(c: Any, y: Any) -> Any:
            return sw.lax.cond(y > 1, lambda c: noted(r, c), lambda c: c * y, c), c

        c, cs = sw.lax.scan(body, x, sw.numpy.arange(4.0))
        return c + cs.sum()

    for last in (1.0 * 2 + 2, (4.0 * 2 + 1) * 2 + 2):
        assert float(sw.grad(f, 1)(r, 0.5)) == 1.0
        assert float(r[...]) == last


def test_a_predicate_does_not_write() -> None:
    r = sw.new_ref(0.0)

    def going(i: Any) -> Any:
        r[...] += 1.0
        return i < 3

    with pytest.raises(NotImplementedError, match="Write it in body_fun"):
        sw.lax.while_loop(going, lambda i: i + 1, 0)
    assert r[...] == 0


@pytest.mark.parametrize("jitted", [False, True])
def test_devices_write_parts(jitted: bool) -> None:
    mesh = sw.make_mesh((4,), ("x",))
    part, total = sw.new_ref(sw.numpy.arange(8.0)), sw.new_ref(np.float32(0))

    def f(r: Any, x: Any) -> Any:
        r[...] += x
        total[...] += sw.lax.psum(r[...].sum(), "x")
        return r[...] * 2

    f = sw.shard_map(f, mesh=mesh, in_specs=(sw.P("x"), sw.P()), out_specs=sw.P("x"))
    f = sw.jit(f) if jitted else f
    for k in (1, 2):
        out = f(part, np.float32(1))
        np.testing.assert_array_equal(part[...], np.arange(8) + k)
        np.testing.assert_array_equal(out, part[...] * 2)
    assert total[...] == 36 + 44


@pytest.mark.usefixtures("latest")
def test_cotangents_are_added_to_refs() -> None:
    def program(lib: Any) -> Any:
        into = lib.new_ref(1.0)
        marks = lib.vjp(lambda x, r: x * 2.0, 3.0, lib.new_ref(2.0))[1].with_refs(into, lib.new_ref(5.0))(1.0)
        assert [type(m).__name__ for m in marks] == ["GradRef", "GradRef"]
        assert into[...] == 3.0
        g = lib.new_ref(lib.numpy.ones(3))
        x = lib.numpy.arange(3.0)
        _, pull = lib.vjp(lambda x, y, z: (lib.numpy.sin(x) * y * z).sum(), x, x + 1, x + 2)
        found = [pull.with_refs(g, lib.ad.GradValue(), lib.ad.DontWant())(ct) for ct in (1.0, 2.0)]
        lib.jit(lambda g: lib.vjp(lambda x: (x**2).sum(), x)[1].with_refs(g)(1.0) and None)(g)
        return [f[1] for f in found], g[...], [repr(f[0]) + repr(type(f[2]).__name__) for f in found]

    ours, theirs = (lib.tree_util.tree_leaves(program(lib)) for lib in (sw, jax))
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, str):
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.usefixtures("latest")
def test_cotangents_that_fit_no_ref() -> None:
    pull: Any = sw.vjp(lambda x: x * 2, sw.numpy.ones(3))[1]
    with pytest.raises(ValueError, match="cannot be added"):
        pull.with_refs(sw.new_ref(sw.numpy.ones(4)))
    with pytest.raises(ValueError, match="one entry per argument"):
        pull.with_refs()


def test_a_failed_trace_leaves_refs_as_they_were() -> None:
    r = sw.new_ref(1.0)

    def f(x: Any) -> Any:
        r[...] = 2.0
        raise KeyError("x")

    for call in (sw.jit(f), lambda x: sw.lax.scan(lambda c, _: (f(c), None), x, None, length=2), sw.checkpoint(f)):
        with pytest.raises(KeyError):
            call(1.0)
        assert r[...] == 1


def test_a_ref_closed_over_and_passed_to_a_compiled_function() -> None:
    r, q = sw.new_ref(1.0), sw.new_ref(2.0)
    f = sw.jit(lambda a: r.__setitem__(..., r[...] + a[...]))
    for _ in range(2):
        f(q)
    with pytest.raises(ValueError, match="closed over and passed as the argument a"):
        f(r)
    assert r[...] == 5


def test_a_ref_of_an_ended_trace() -> None:
    kept: list[Any] = []
    sw.jit(lambda x: kept.append(sw.new_ref(x)) or x)(1.0)
    with pytest.raises(ValueError, match="had ended"):
        kept[0][...]


@pytest.mark.parametrize("new", [False, True], ids=["old", "new"])
@pytest.mark.parametrize("transform", ["checkpoint", "shard_map", "jit", "scan"])
def test_a_returned_ref(transform: str, new: bool) -> None:
    old = sw.new_ref(1.0)
    mesh = sw.make_mesh((1,), ("x",), devices=sw.devices()[:1])
    wrapped: dict[str, Any] = {
        "checkpoint": lambda f: sw.checkpoint(f)(1.0),
        "shard_map": lambda f: sw.shard_map(f, mesh=mesh, in_specs=sw.P(), out_specs=sw.P())(1.0),
        "jit": lambda f: sw.jit(f)(1.0),
        "scan": lambda f: sw.lax.scan(lambda c, x: (c, f(x)), 0, np.ones(2, np.float32)),
    }
    with pytest.raises(ValueError, match="references cannot be returned"):
        wrapped[transform](sw.new_ref if new else lambda x: old)
