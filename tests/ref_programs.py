"""Programs with Refs under all transformations: each takes the library, shardwise or JAX, and returns what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np


def without_derivatives(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros(()), kind="no_grad_no_remat")
    made = lambda y: lib.new_ref(y, kind="no_grad_no_remat")[...] * y  # noqa: E731

    def f(y: Any, r: Any) -> Any:
        r[...] = r[...] + y * y
        return y * y + r[...] / 2

    grads = [wrap(lib.grad(wrap(f)))(2.0, r) for wrap in (lambda f: f, lib.jit, lib.checkpoint)]
    return grads, r[...], lib.grad(made)(3.0)


def read_by_an_inner_custom_vjp(lib: Any) -> Any:
    def with_rules(f: Any) -> Any:
        made = lib.custom_vjp(f)
        made.defvjp(lambda x: (f(x), None), lambda _, ct: (2 * ct,))
        return made

    def outer(x: Any) -> Any:
        r = lib.new_ref(2.0)
        out = with_rules(lambda y: r[...] * y)(x)
        r[...] += 1.0
        return out + r[...]

    fun = with_rules(outer)
    return [wrap(lib.grad(wrap(fun)))(3.0) for wrap in (lambda f: f, lib.jit)], fun(3.0)


def closed_over_by_jit(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros(3))

    @lib.jit
    def f(x: Any) -> Any:
        r[1] += x
        return r[...].sum()

    return f(1.0), f(2.0), r[...]


def closed_over_again_and_again(lib: Any) -> Any:
    r, q = lib.new_ref(lib.numpy.zeros(3)), lib.new_ref(lib.numpy.zeros(3))

    @lib.jit
    def counted() -> None:
        r[0] += 1

    @lib.jit
    def both(a: Any, x: Any) -> Any:
        a[...] += x
        r[1] += x
        return a[0]

    found = []
    for x in (1.0, 2.0, 3.0):
        counted()
        found += [r[...], both(q, x), q[...]]
    r[...] = found[0]  # which the next call may not write over
    counted()
    return found, found[0], r[...], q[...]


def read_by_jit(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros(3))
    f = lib.jit(lambda x: r[...] + x)
    before = f(1.0)
    r[...] = lib.numpy.ones(3)
    return before, f(1.0)


def jits_in_jits(lib: Any) -> Any:
    r = lib.new_ref(0.0)

    @lib.jit
    def g(x: Any) -> Any:
        r[...] += x
        return r[...]

    return lib.jit(lambda x: g(x) + g(2 * x))(1.0), r[...]


def scan(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros(()))

    def body(c: Any, x: Any) -> Any:
        r[...] += x
        return c + 1, r[...]

    return lib.lax.scan(body, 0, lib.numpy.arange(4.0)), lib.lax.scan(body, 0, lib.numpy.arange(4.0)), r[...]


def scan_over_rows(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.arange(6.0).reshape(3, 2))

    def body(c: Any, row: Any) -> Any:
        row[0] += c
        return c + row[1], None

    return lib.lax.scan(body, 0.0, r, reverse=True), r[...]


def while_loop(lib: Any) -> Any:
    r = lib.new_ref(np.float32(0))

    def body(i: Any) -> Any:
        r[...] += i
        return i + 1

    return lib.lax.while_loop(lambda i: i < 4, body, np.float32(0)), r[...]


def fori_loops_in_jit(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros((2, 4)))

    @lib.jit
    def f(n: Any) -> Any:
        def inner(i: Any, j: Any, c: Any) -> Any:
            r[i, j] = i * 2.0 + j
            return c + r[i, j]

        return lib.lax.fori_loop(0, 2, lambda i, c: lib.lax.fori_loop(0, n, lambda j, c: inner(i, j, c), c), 0.0)

    return f(3), r[...]


def branches(lib: Any) -> Any:
    r, q = lib.new_ref(lib.numpy.zeros(())), lib.new_ref(lib.numpy.zeros(()))

    def add(k: float) -> Any:
        def f(q: Any, x: Any) -> Any:
            r[...] += k * x
            q[...] = r[...]
            return x

        return f

    return [lib.lax.switch(i, [add(1.0), add(10.0), add(100.0)], q, 2.0) for i in range(3)], r[...], q[...]


def cond_in_jit(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.zeros(()))

    def write() -> float:
        r[...] += 1
        return 1.0

    f = lib.jit(lambda p: lib.lax.cond(p, write, lambda: 2.0))
    return f(True), f(False), f(True), r[...]


def inside_derivatives(lib: Any) -> Any:
    def f(x: Any) -> Any:
        r = lib.new_ref(x)

        def body(i: Any, _: Any) -> None:
            r[...] = lib.numpy.sin(r[...])

        lib.lax.fori_loop(0, 3, body, None)
        return r[...]

    x = np.float32(1)
    return lib.grad(f)(x), lib.jvp(f, (x,), (x,)), lib.vjp(f, x)[1](x), lib.grad(lib.checkpoint(f))(x)


def around_derivatives(lib: Any) -> Any:
    r = lib.new_ref(0.0)

    def f(x: Any) -> Any:
        r[...] += lib.lax.stop_gradient(x)
        return x**2 + r[...]

    @lib.jit
    def g(x: Any) -> Any:
        return lib.grad(f)(x)

    return lib.grad(f)(3.0), r[...], g(3.0), r[...], lib.grad(lib.jit(f))(2.0), lib.jvp(f, (3.0,), (1.0,)), r[...]


def scan_in_grad(lib: Any) -> Any:
    r = lib.new_ref(0.0)

    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            r[...] += lib.lax.stop_gradient(c)
            return lib.numpy.sin(c), None

        return lib.lax.scan(body, x, None, length=3)[0]

    return lib.grad(f)(3.0), r[...]


def cotangents_by_custom_vjp(lib: Any) -> Any:
    r = lib.new_ref(0.0)

    @lib.custom_vjp
    def f(x: Any, r: Any) -> Any:
        return x

    f.defvjp(lambda x, r: (x, r), lambda r, g: (r.__setitem__(..., g), (g, None))[1])
    g = lib.jit(lib.grad(lambda x, r: f(x, r) * 3))
    return lib.grad(lambda x: f(x, r) * 2)(1.0), r[...], g(1.0, r), r[...]


def custom_vjp_that_writes(lib: Any) -> Any:
    r = lib.new_ref(0.0)

    @lib.custom_vjp
    def f(x: Any) -> Any:
        r[...] = x
        return x

    def forward(x: Any) -> Any:
        r[...] = x * 2
        return x, None

    f.defvjp(forward, lambda _, g: (g * 7,))
    return f(5.0), r[...], lib.grad(f)(1.0), r[...], lib.jit(f)(6.0), r[...], lib.grad(lib.jit(f))(2.0), r[...]


def custom_vjp_of_differentiated_refs(lib: Any) -> Any:
    """Cotangents that a backward rule gives for Refs in a tree, one of which the function writes, beside those of what they hold later."""

    @lib.custom_vjp
    def f(t: Any, x: Any) -> Any:
        y = t["a"][...] * x * t["b"][0][...]
        t["b"][0][...] = y
        return y

    f.defvjp(lambda t, x: (f(t, x), x), lambda x, g: ({"a": 5 * g, "b": (3 * g * x,)}, None))

    def make(call: Any) -> Any:
        def g(x: Any, y: Any) -> Any:
            t: dict[str, Any] = {"a": lib.new_ref(x), "b": (lib.new_ref(y * 2),)}
            return call(t, y) + 10 * t["a"][...] + 20 * t["b"][0][...]

        return lib.grad(g, (0, 1)), lib.grad(lib.jit(g), (0, 1)), lib.vmap(lib.grad(g, (0, 1)), (None, 0))

    calls = [f, lib.jit(f), lambda t, x: lib.lax.scan(lambda c, _: (c + f(t, c), None), x, None, length=2)[0]]
    pairs = [make(call) for call in calls]
    return [(a(2.0, 3.0), b(2.0, 3.0), c(2.0, lib.numpy.arange(2.0))) for a, b, c in pairs]


def checkpoint(lib: Any) -> Any:
    r, q = lib.new_ref(0.0), lib.new_ref(1.0)

    def f(x: Any, q: Any) -> Any:
        r[...] += 1.0
        q[...] *= 2
        return lib.numpy.sin(x) * 2

    return lib.checkpoint(f)(1.0, q), lib.jit(lib.checkpoint(f))(1.0, q), r[...], q[...]


def vmap_inside(lib: Any) -> Any:
    def f(x: Any) -> Any:
        r = lib.new_ref(lib.numpy.zeros(()))
        r[...] += x
        return r[...]

    return lib.vmap(f)(lib.numpy.arange(3.0))


def vmap_of_rows(lib: Any) -> Any:
    r, q = lib.new_ref(lib.numpy.arange(3.0)), lib.new_ref(np.float32(2))

    def f(r: Any, q: Any, x: Any) -> Any:
        r[...] += x * q[...]
        return r[...] * 2

    f = lib.vmap(f, in_axes=(0, None, 0))
    return f(r, q, lib.numpy.ones(3)), r[...], lib.jit(f)(r, q, lib.numpy.ones(3)), r[...]


def vmap_that_returns(lib: Any) -> Any:
    return lib.vmap(lambda x: lib.new_ref(x * 2))(lib.numpy.arange(3.0))[...]


def vmap_reads(lib: Any) -> Any:
    r = lib.new_ref(lib.numpy.arange(3.0))
    return lib.vmap(lambda i: r[i])(lib.numpy.arange(3)[::-1])


def ahead_of_time(lib: Any) -> Any:
    r, q = lib.new_ref(1.0), lib.new_ref(2.0)

    def f(r: Any, x: Any) -> Any:
        r[...] = x + q[...]
        q[...] += 1.0
        return r[...] * 2

    compiled = lib.jit(f).lower(r, 2.0).compile()
    assert lib.eval_shape(f, r, 2.0).shape == ()
    return compiled(r, 3.0), r[...], compiled(r, 3.0), r[...], q[...]


def linearize(lib: Any) -> Any:
    r = lib.new_ref(1.0)

    def f(x: Any) -> Any:
        r[...] += 1
        return lib.numpy.sin(x)

    y, push = lib.linearize(f, 1.0)
    return y, push(1.0), r[...]


def cotangents_noted(lib: Any) -> Any:
    """A function that keeps, in its first argument, a Ref, the cotangent that comes back to it."""
    noted = lib.custom_vjp(lambda r, x: x)

    def note(r: Any, g: Any) -> Any:
        r[...] = 2 * r[...] + g
        return None, g

    noted.defvjp(lambda r, x: (x, r), note)
    return noted


def cotangents_noted_in_jit(lib: Any) -> Any:
    noted, sin = cotangents_noted(lib), lib.numpy.sin
    r = lib.new_ref(np.float32(0))
    f = lib.jit(lambda r, x: sin(noted(r, sin(noted(r, x)))))
    outs = [lib.grad(f, 1)(r, np.float32(x)) for x in (1.0, 2.0)]
    closing = lib.jit(lambda x: f(r, x))
    outs += [lib.grad(closing)(np.float32(1)), lib.jit(lib.grad(closing))(np.float32(2)), r[...]]
    another = lib.new_ref(np.float32(1))
    return outs, lib.grad(f, 1)(another, np.float32(1)), another[...], r[...]


def cotangents_noted_in_loops(lib: Any) -> Any:
    noted, sin = cotangents_noted(lib), lib.numpy.sin
    r = lib.new_ref(np.float32(0))

    def f(r: Any, x: Any, ys: Any, again: bool) -> Any:
        def body(c: Any, y: Any) -> Any:
            c = sin(noted(r, c * y))
            return c, c * y

        return lib.lax.scan(lib.checkpoint(body) if again else body, x, ys)[1].sum()

    outs = []
    for again in (False, True):
        for jit in (lambda f, **_: f, lib.jit):
            of_both = lib.grad(jit(f, static_argnums=3), (1, 2))
            outs += [of_both(r, np.float32(0.5), lib.numpy.arange(1.0, 4.0), again), r[...]]
    return outs


def views_as_arguments(lib: Any) -> Any:
    def mapped_by_devices(f: Any) -> Any:
        explicit = (lib.sharding.AxisType.Explicit,)
        return lib.shard_map(f, out_specs=None, mesh=lib.make_mesh((1,), ("x",), axis_types=explicit))

    def branches(f: Any) -> Any:
        return lambda v: lib.lax.cond(lib.numpy.array(True), f, lambda v: None, v)

    def write(v: Any) -> None:
        v[1] = 5.0
        v[0] += 1.0

    def by(call: Any, i: Any) -> Any:
        r = lib.new_ref(lib.numpy.zeros((3, 7)))
        call(write)(r.at[i].at[lib.ds(i + 1, 3)])
        lib.jit(lambda both: both["v"].set(2.0))({"v": r.at[2, i], "x": 1})
        return r[...]

    calls = (lib.jit, lib.checkpoint, branches, mapped_by_devices)
    return [lib.jit(lambda i, call=call: by(call, i))(1) for call in calls]


def view_in_grad(lib: Any) -> Any:
    def f(x: Any) -> Any:
        r = lib.new_ref(lib.numpy.zeros(3))
        r[0] = x
        lib.jit(lambda v: v.set(v[...] * 3.0))(r.at[0])
        return r[...].sum()

    return lib.jit(lib.grad(f))(2.0)


def vmap_of_calls_that_read(lib: Any) -> Any:
    r, xs = lib.new_ref(2.0), lib.numpy.arange(3.0)
    loop = lambda r: lambda c: lib.lax.fori_loop(0, 2, lambda i, c: c * r[...] + i, c)  # noqa: E731
    found = [
        lib.vmap(lib.jit(loop(r)))(xs),
        lib.jit(lib.vmap(lib.jit(loop(r))))(xs),
        lib.vmap(lib.grad(lib.jit(loop(r))))(xs),
    ]
    return found, lib.vmap(lib.jit(lambda x, r: loop(r)(x)), in_axes=(0, None))(xs, r)


def tangents_of_refs(lib: Any) -> Any:
    def write(r: Any, x: Any) -> Any:
        r[0] = r[1] * x
        return r[...].sum() + x

    def loop(r: Any, x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            r[...] = lib.numpy.sin(r[...]) * c
            return c + r[0], None

        return lib.lax.cond(x > 0, lambda: lib.lax.scan(body, x, None, length=2)[0], lambda: x)

    def pushed(fun: Any, ways: Any) -> Any:
        r, t = lib.new_ref(lib.numpy.array([2.0, 3.0])), lib.new_ref(lib.numpy.array([1.0, -1.0]))
        return ways(fun, r, t), r[...], t[...]

    def linearized(f: Any, r: Any, t: Any) -> Any:
        out, push = lib.linearize(f, r, 3.0)
        return out, push(t, 10.0), push(t, 1.0)

    by_jvp = lambda f, r, t: lib.jvp(f, (r, 3.0), (t, 10.0))  # noqa: E731
    ways = [
        by_jvp,
        linearized,
        lambda f, r, t: by_jvp(lib.jit(f), r, t),
        lambda f, r, t: lib.jit(lambda r, t: by_jvp(f, r, t))(r, t),
        lambda f, r, t: by_jvp(lib.checkpoint(f), r, t),
    ]
    return [pushed(write, way) for way in ways[1:]], pushed(loop, by_jvp)


def tangents_of_mapped_refs(lib: Any) -> Any:
    r, t = lib.new_ref(lib.numpy.array([2.0, 3.0])), lib.new_ref(lib.numpy.array([1.0, -1.0]))

    def f(r: Any) -> Any:
        r[...] = r[...] * r[...]
        return r[...]

    return lib.vmap(lambda r, t: lib.jvp(f, (r,), (t,)))(r, t), r[...], t[...]


def tangents_of_other_refs(lib: Any) -> Any:
    r, t, n = lib.new_ref(2.0), lib.new_ref(1.0), lib.new_ref(3)
    float0 = np.zeros((), lib.dtypes.float0)
    returned, moved = lib.jvp(lambda r: r, (r,), (t,))
    assert (returned, moved) == (r, t)
    outs = [lib.jvp(lambda r, n: r[...] * n[...], (r, n), (t, x)) for x in (float0, lib.new_ref(1))]
    return (
        outs,
        lib.jvp(lambda r: lib.freeze(r), (lib.new_ref(2.0),), (t,)),
        lib.jvp(lambda x: 2 * x, (r[...],), (t[...],)),
    )


def cotangents_beside_refs(lib: Any) -> Any:
    r = lib.new_ref(2.0)

    def f(x: Any, r: Any) -> Any:
        r[...] = lib.lax.stop_gradient(r[...] + 1.0)
        return x * r[...]

    found = [lib.grad(f)(3.0, r), lib.value_and_grad(f)(3.0, r), r[...]]
    both = lib.grad(lambda x, r: x * lib.lax.stop_gradient(r[...]), (0, 1))(3.0, r)
    return found, both[0], both[1][...], lib.vjp(lambda x, r: x * 2.0, 3.0, r)[1](1.0)[1][...]


def traced_once(lib: Any) -> Any:
    r, q, counted = lib.new_ref(1.0), lib.new_ref(2.0), []

    def f(x: Any, *, y: Any) -> Any:
        counted.append(1)
        r[...] += x
        return y + q[...]

    once = lib.jit(f)

    def g(a: Any, x: Any) -> Any:
        counted.append(1)
        a[...] += x * q[...]
        return once(x, y=a[...])

    def of_new(x: Any) -> Any:
        made = lib.new_ref(x)
        return lib.jit(lambda y: (counted.append(1), made[...] * y)[1])(x)

    a = lib.new_ref(0.0)
    found = [once(1.0, y=2.0), r[...]]  # which no later call may write over
    found += [lib.jit(g)(a, 3.0), a[...], r[...], once.lower(1.0, y=1.0).compile()(1.0, y=1.0)]
    return found, lib.grad(of_new)(3.0), lib.jit(lib.grad(of_new))(3.0), r[...], np.int32(len(counted))


def made_and_returned(lib: Any) -> Any:
    double = lambda x: lib.new_ref(2 * x)  # noqa: E731
    x, t = np.float32(3), np.float32(5)
    primal, tangent = lib.jvp(double, (x,), (t,))
    primal[...] = np.float32(7)
    out, push = lib.linearize(double, x)
    pushed = [push(t)[...], push(x)[...]]
    aux = lambda y: (y, double(y))  # noqa: E731
    beside = [
        lib.vjp(double, x)[0],
        lib.vjp(aux, x, has_aux=True)[2],
        lib.linearize(aux, x, has_aux=True)[2],
        lib.jvp(aux, (x,), (t,), has_aux=True)[2],
        lib.grad(aux, has_aux=True)(x)[1],
        lib.jacrev(aux, has_aux=True)(x)[1],
    ]
    squared = lambda y: lib.jvp(lambda z: lib.new_ref(z * y), (y,), (y,))[1][...]  # noqa: E731
    return (
        primal[...],
        tangent[...],
        out[...],
        pushed,
        [r[...] for r in beside],
        [wrap(squared)(x) for wrap in (lib.jit, lib.grad)],
    )


def closed_over_and_returned(lib: Any) -> Any:
    r = lib.new_ref(np.float32(1))
    f = lambda x: (r, x)  # noqa: E731
    x = np.float32(3)
    (primal, _), (tangent, _) = lib.jvp(f, (x,), (x,))
    linearized, push = lib.linearize(f, x)
    back, pull = lib.vjp(f, x)
    same = [np.bool_(other is r) for other in (primal, tangent, linearized[0], back[0], push(x)[0])]
    passed = lib.linearize(lambda q: q, lib.new_ref(x))[1](lib.new_ref(x))
    return same, tangent[...], push(x)[0][...], pull((lib.new_ref(x), x)), passed[...]


PROGRAMS = [
    made_and_returned, closed_over_and_returned,
    tangents_of_refs, tangents_of_mapped_refs, tangents_of_other_refs, cotangents_beside_refs, traced_once,
    views_as_arguments, view_in_grad, vmap_of_calls_that_read, without_derivatives,
    read_by_an_inner_custom_vjp,
    cotangents_noted_in_jit, cotangents_noted_in_loops,
    closed_over_by_jit, closed_over_again_and_again,
    read_by_jit, jits_in_jits, scan, scan_over_rows, while_loop, fori_loops_in_jit, branches, cond_in_jit,
    inside_derivatives, around_derivatives, scan_in_grad, cotangents_by_custom_vjp, custom_vjp_that_writes,
    custom_vjp_of_differentiated_refs, checkpoint, vmap_inside,
    vmap_of_rows, vmap_that_returns, vmap_reads, ahead_of_time, linearize,
]  # fmt: skip
