"""Random programs with Refs, beside JAX: reads, writes, swaps and views, in loops, branches, maps, calls and derivatives.

A program is a list of statements over named values and places, each a tuple of the method of `Run` that runs it and its arguments.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((), (3,), (2, 3), (3, 2))


@dataclass
class Scope:
    """What statements at one point of a program can name."""

    values: dict[str, Shape] = field(default_factory=dict[str, Shape])
    ints: list[str] = field(default_factory=list[str])  # each 0, 1 or 2
    places: dict[str, Shape] = field(default_factory=dict[str, Shape])
    root: dict[str, str] = field(default_factory=dict[str, str])  # the Ref of which a place is a view
    stopped: set[str] = field(default_factory=set[str])  # roots whose values have no derivative here
    readonly: set[str] = field(default_factory=set[str])
    depth: int = 0

    def inner(self) -> Scope:
        """A copy for the body of a function."""
        return replace(
            self,
            values=dict(self.values),
            ints=list(self.ints),
            places=dict(self.places),
            root=dict(self.root),
            stopped=set(self.stopped),
            readonly=set(self.readonly),
            depth=self.depth + 1,
        )


class Grow:
    """Grows programs."""

    def __init__(self, seed: int, jit: bool, mistakes: bool = False) -> None:
        self.rng = random.Random(seed)
        self.jit = jit  # JAX takes views and computed ranges in compiled functions alone
        self.mistakes = mistakes
        self.count = 0

    def name(self, kind: str) -> str:
        """A fresh name."""
        self.count += 1
        return f"{kind}{self.count}"

    def program(self) -> list[Any]:
        """A whole program."""
        scope = Scope({"x": (), "v": (3,), "m": (2, 3)}, ["i", "j"])
        out: list[Any] = []
        for _ in range(self.rng.randint(1, 2)):
            self.new(scope, out)
        return out + self.statements(scope, self.rng.randint(3, 6))

    def statements(self, scope: Scope, n: int) -> list[Any]:
        """Some statements."""
        out: list[Any] = []
        for _ in range(n):
            kinds = (
                "let new get get set set swap add".split()
                + ["view"] * self.jit
                + ["block"] * (3 if scope.depth < 3 else 0)
            )
            getattr(self, self.rng.choice(kinds))(scope, out)
        return out

    def value(self, scope: Scope) -> str:
        """The name of a value."""
        return self.rng.choice(list(scope.values))

    def let(self, scope: Scope, out: list[Any]) -> None:
        """A computed value."""
        a, b, to = self.value(scope), self.value(scope), self.name("y")
        out.append(("let", to, self.rng.choice(("mul", "add", "sin")), a, b))
        scope.values[to] = ()

    def new(self, scope: Scope, out: list[Any]) -> None:
        """A new Ref."""
        to, shape = self.name("r"), self.rng.choice(SHAPES)
        how = (
            self.rng.choice(("new", "new", "new", "empty", "weak"))
            if shape == ()
            else self.rng.choice(("new", "empty"))
        )
        out.append(("new", to, how, self.value(scope), shape))
        scope.places[to] = shape
        scope.root[to] = to

    def place(self, scope: Scope, out: list[Any], write: bool = False) -> str:
        """The name of a place, which may be written."""
        found = [p for p in scope.places if not (write and scope.root[p] in scope.readonly)]
        if not found or (write and self.mistakes and self.rng.random() < 0.1):
            found = list(scope.places)
        if not found or (write and all(scope.root[p] in scope.readonly for p in found) and not self.mistakes):
            self.new(scope, out)
            return list(scope.places)[-1]
        return self.rng.choice(found)

    def index(self, scope: Scope, shape: Shape) -> tuple[Any, Shape]:
        """An index, and the shape of the part."""
        rng, parts = self.rng, []
        result: list[int] = []
        if not shape or rng.random() < 0.2:
            return rng.choice(("...", "()", "none")), shape
        arrays = False
        for n in shape[: rng.randint(1, len(shape))]:
            kind = rng.choice("i i n s s t a".split() + ["d"] * self.jit)
            if kind == "a" and arrays:
                kind = "i"
            if kind in "in":
                parts.append((kind, rng.randrange(n) if kind == "i" else -rng.randint(1, n)))
            elif kind == "s":
                low, high = sorted(rng.choices(range(n + 1), k=2))
                part = slice(low, high, rng.choice((None, None, 2)))
                part = rng.choice((slice(None), part, slice(None, None, 2)))
                parts.append(("s", part.start, part.stop, part.step))
                part = slice(None) if len(range(n)[part]) == 0 else part
                parts[-1] = ("s", part.start, part.stop, part.step)
                result.append(len(range(n)[part]))
            elif kind == "t":
                parts.append(("t", rng.choice(scope.ints), n))
            elif kind == "d":
                size = rng.randint(1, n)
                parts.append(("d", rng.choice(scope.ints), size, n))
                result.append(size)
            else:
                arrays = True
                k = rng.randint(1, 3)
                parts.append(("a", [rng.randrange(n) for _ in range(k)]))
                result.append(k)
        kinds = [p[0] for p in parts]
        if any(p[0] == "s" and p[3] for p in parts) and len(parts) > 1:  # JAX takes steps beside slices alone
            parts = [next(p for p in parts if p[0] == "s" and p[3])]
            return parts, (len(range(shape[0])[slice(*parts[0][1:])]), *shape[1:])
        if arrays and len(parts) > 1 and any(k in "int" for k in kinds):  # advanced indices mixed: one alone is enough
            parts = [next(p for p in parts if p[0] == "a")]
            return parts, (len(parts[0][1]), *shape[1:])
        rest = shape[len(parts) :]
        if len(parts) < len(shape) and rng.random() < 0.3:
            parts.append(("e",))
        return parts, (*result, *rest)

    def get(self, scope: Scope, out: list[Any]) -> None:
        """A read."""
        place, to = self.place(scope, out), self.name("y")
        index, shape = self.index(scope, scope.places[place])
        out.append(("get", to, place, index))
        scope.values[to] = shape

    def written(self, scope: Scope, out: list[Any]) -> tuple[str, Any, str, Shape, bool]:
        place = self.place(scope, out, write=True)
        index, shape = self.index(scope, scope.places[place])
        stop = scope.root[place] in scope.stopped and not (self.mistakes and self.rng.random() < 0.1)
        return place, index, self.value(scope), shape, stop

    def set(self, scope: Scope, out: list[Any]) -> None:
        """A write."""
        out.append(("set", *self.written(scope, out)))

    def add(self, scope: Scope, out: list[Any]) -> None:
        """An addition."""
        out.append(("add", *self.written(scope, out)))

    def swap(self, scope: Scope, out: list[Any]) -> None:
        """A swap."""
        to = self.name("y")
        written = self.written(scope, out)
        out.append(("swap", to, *written))
        scope.values[to] = written[3]

    def view(self, scope: Scope, out: list[Any]) -> None:
        """A view of a place."""
        place, to = self.place(scope, out), self.name("w")
        index, shape = self.index(scope, scope.places[place])
        if not isinstance(index, str) and any(p[0] == "a" for p in index):
            return
        out.append(("view", to, place, index))
        scope.places[to] = shape
        scope.root[to] = scope.root[place]

    def block(self, scope: Scope, out: list[Any]) -> None:
        """A function of the kind: its body, what it is passed, and what it closes over."""
        rng = self.rng
        kind = rng.choice("jit cond fori scan while checkpoint vmap grad jvp vjp linearize custom".split())
        inner = scope.inner()
        passed: list[tuple[str, str]] = []  # places by their name outside and inside
        rows: list[str] = []  # which of them rows are taken of
        for root in [*dict.fromkeys(scope.root.values())]:
            choices = [p for p in scope.places if scope.root[p] == root]
            fate = rng.choice(("close", "pass", "hide"))
            if kind in ("fori", "while") or (kind == "custom" and fate == "pass"):
                fate = "close"
            if fate == "close":
                continue
            for p in choices:
                del inner.places[p], inner.root[p]
            if fate == "pass":
                place = rng.choice(choices) if kind not in ("vmap", "scan") else root
                if place not in choices:
                    continue
                name = self.name("p")
                shape = scope.places[place]
                if kind == "scan" or (kind == "vmap" and shape and rng.random() < 0.7):
                    if kind == "scan" and (not shape or shape[0] != 3):
                        continue
                    if shape[0] != 3:
                        continue
                    rows.append(place)
                    inner.readonly.discard(root)
                    shape = shape[1:]
                    if root in scope.readonly:
                        inner.readonly.add(name)
                elif root in scope.readonly or kind == "vmap":
                    inner.readonly.add(name)
                passed.append((place, name))
                inner.places[name] = shape
                inner.root[name] = name
                if root in scope.stopped:
                    inner.stopped.add(name)
        if kind == "vmap":
            inner.readonly |= {r for r in inner.root.values() if not any(r == n for p, n in passed if p in rows)}
        if kind in ("grad", "jvp", "vjp", "linearize", "custom"):
            inner.stopped |= set(inner.root.values())
        if kind == "custom":
            inner.readonly |= set(inner.root.values())
        arg, to = self.name("c"), self.name("y")
        inner.values[arg] = ()
        if kind in ("fori", "scan", "while"):
            inner.ints.append(arg + "i")
        bodies = []
        for _ in range(2 if kind == "cond" else 1):
            own = inner.inner()
            own.depth -= 1
            bodies.append((self.statements(own, rng.randint(1, 4)), self.value(own), self.value(own)))
        out.append(
            ("block", kind, to, arg, self.value(scope), tuple(passed), tuple(rows), bodies, rng.choice(scope.ints))
        )
        scope.values[to] = ()


class Run:
    """Runs a program by a library."""

    def __init__(self, lib: Any, jit: bool = False) -> None:
        self.lib = lib
        self.np = lib.numpy
        self.jit = jit

    def program(self, statements: list[Any]) -> list[Any]:
        """All values and last contents of Refs."""

        def whole(x: Any, v: Any, m: Any, i: Any, j: Any) -> Any:
            env: dict[str, Any] = {"x": x, "v": v, "m": m, "i": i, "j": j}
            self.statements(statements, env)
            contents = [r[...] for r in env.values() if is_place(r)]
            return [v for v in env.values() if not is_place(v)] + contents

        is_place = lambda v: isinstance(v, self.lib.Ref) or hasattr(v, "bitcast")  # noqa: E731
        args = (np.float32(0.4), np.arange(3, dtype=np.float32) / 2, np.arange(6, dtype=np.float32).reshape(2, 3) / 7)
        args = (*map(self.np.asarray, args), self.np.asarray(1, np.int32), self.np.asarray(2, np.int32))
        call: Any = self.lib.jit(whole) if self.jit else whole
        return call(*args)

    def statements(self, statements: list[Any], env: dict[str, Any]) -> None:
        """Run them in turn."""
        for what, *args in statements:
            getattr(self, what)(env, *args)

    def fit(self, value: Any, shape: Shape) -> Any:
        """A value of a shape, made of another one."""
        ramp = self.np.asarray(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) / 8)
        return self.np.sin(self.np.sum(value) + ramp)

    def at(self, env: dict[str, Any], index: Any) -> Any:
        """The index that a description stands for."""
        if isinstance(index, str):
            return {"...": ..., "()": (), "none": None}[index]

        def part(kind: str, *given: Any) -> Any:
            if kind in "in":
                return given[0]
            if kind == "s":
                return slice(*given)
            if kind == "e":
                return ...
            if kind == "a":
                return self.np.asarray(given[0])
            if kind == "t":
                return env[given[0]] % given[1]
            return self.lib.numpy.minimum(env[given[0]], given[2] - given[1]), given[1]

        found = []
        for p in index:
            one = part(*p)
            found.append(self.ds(*one) if p[0] == "d" else one)
        return tuple(found) if len(found) != 1 else found[0]

    def ds(self, start: Any, size: int) -> Any:
        """A range of computed beginning."""
        return self.lib.ds(start, size)

    def let(self, env: dict[str, Any], to: str, how: str, a: str, b: str) -> None:
        """A computed value."""
        x, y = self.np.sum(env[a]), self.np.sum(env[b])
        env[to] = {"mul": lambda: self.np.sin(x) * y, "add": lambda: x + y, "sin": lambda: self.np.sin(x - y)}[how]()

    def new(self, env: dict[str, Any], to: str, how: str, value: str, shape: Shape) -> None:
        """A new Ref."""
        if how == "empty":
            env[to] = self.lib.new_ref(self.np.zeros(shape, np.float32))
        else:
            env[to] = self.lib.new_ref(1.5 if how == "weak" else self.fit(env[value], shape))

    def get(self, env: dict[str, Any], to: str, place: str, index: Any) -> None:
        """A read."""
        at = self.at(env, index)
        env[to] = env[place][...] if at is None else env[place][at]

    def given(self, env: dict[str, Any], value: str, shape: Shape, stop: bool) -> Any:
        """A value to write."""
        found = self.fit(env[value], shape)
        return self.lib.lax.stop_gradient(found) if stop else found

    def set(self, env: dict[str, Any], place: str, index: Any, value: str, shape: Shape, stop: bool) -> None:
        """A write."""
        at = self.at(env, index)
        env[place][... if at is None else at] = self.given(env, value, shape, stop)

    def add(self, env: dict[str, Any], place: str, index: Any, value: str, shape: Shape, stop: bool) -> None:
        """An addition."""
        self.lib.ref.addupdate(env[place], self.at(env, index), self.given(env, value, shape, stop))

    def swap(self, env: dict[str, Any], to: str, place: str, index: Any, value: str, shape: Shape, stop: bool) -> None:
        """A swap."""
        env[to] = self.lib.ref.swap(env[place], self.at(env, index), self.given(env, value, shape, stop))

    def view(self, env: dict[str, Any], to: str, place: str, index: Any) -> None:
        """A view."""
        at = self.at(env, index)
        env[to] = env[place].at[... if at is None else at]

    def block(
        self,
        env: dict[str, Any],
        kind: str,
        to: str,
        arg: str,
        value: str,
        passed: Any,
        rows: Any,
        bodies: Any,
        pick: str,
    ) -> None:
        """A function and its call."""
        jax, given = self.lib, self.np.sum(env[value])

        def function(statements: Any, first: str, second: str) -> Any:
            def f(x: Any, *places: Any, i: Any = None) -> Any:
                inner = {**env, arg: x}
                if i is not None:
                    inner[arg + "i"] = i
                inner.update({name: p for (_, name), p in zip(passed, places, strict=False)})
                self.statements(statements, inner)
                return self.np.sin(self.np.sum(inner[first])) + 0.5 * self.np.sum(inner[second])

            return f

        f = function(*bodies[0])
        places = [env[p] for p, _ in passed]
        if kind == "jit":
            env[to] = jax.jit(f)(given, *places)
        elif kind == "checkpoint":
            env[to] = jax.checkpoint(f)(given, *places)
        elif kind == "cond":
            env[to] = jax.lax.cond(env[pick] > 1, f, function(*bodies[1]), given, *places)
        elif kind == "fori":
            env[to] = jax.lax.fori_loop(0, 2, lambda i, c: f(c, i=i), given)
        elif kind == "while":
            step = lambda s: (s[0] + 1, f(s[1], i=s[0]))  # noqa: E731
            env[to] = jax.lax.while_loop(lambda s: s[0] < 2, step, (self.np.int32(0), given))[1]
        elif kind == "scan":
            step = lambda c, x: (y := f(c, *x[1], i=x[0]), y)  # noqa: E731
            of_rows = [env[p] for p in rows]
            c, ys = jax.lax.scan(step, given, (self.np.arange(3), of_rows))
            env[to] = c + self.np.sum(ys)
        elif kind == "vmap":
            axes = (0, *[0 if p in rows else None for p, _ in passed])
            env[to] = self.np.sum(jax.vmap(f, in_axes=axes)(given + self.np.arange(3.0), *places))
        elif kind == "grad":
            env[to] = jax.grad(f)(given, *places)
        elif kind == "jvp":
            env[to] = sum(jax.jvp(lambda x: f(x, *places), (given,), (self.np.ones_like(given),)))
        elif kind == "vjp":
            y, back = jax.vjp(lambda x: f(x, *places), given)
            env[to] = y + back(self.np.ones_like(y))[0]
        elif kind == "linearize":
            y, push = jax.linearize(lambda x: f(x, *places), given)
            env[to] = y + push(self.np.ones_like(given))
        else:
            g = jax.custom_vjp(lambda x: f(x))
            g.defvjp(lambda x: (f(x), x), lambda x, t: (t * x,))
            env[to] = jax.value_and_grad(g)(given)[1] + g(given)


def outcome(lib: Any, program: list[Any], jit: bool) -> Any:
    """The values of a program, or the error that it raises."""
    try:
        return Run(lib, jit).program(program)
    except Exception as error:
        return error


def difference(ours: Any, theirs: Any) -> str | None:
    """What differs between two outcomes."""
    if isinstance(ours, Exception) or isinstance(theirs, Exception):
        if isinstance(theirs, Exception) and (isinstance(ours, Exception) or not _is_meant(theirs)):
            return None
        return f"{type(ours).__name__} {str(ours)[:300]!r} / {type(theirs).__name__} {str(theirs)[:300]!r}"
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"type {k}: {a.aval} / {b.aval}"
        # Roundings add up over the steps of a program, whose values grow.
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"value {k}: {np.asarray(a)} / {np.asarray(b)}"
    return None


def _is_meant(error: Exception) -> bool:
    """Whether JAX says that the program is wrong, and not that it cannot run it."""
    said = ("mutable array", "differentiated value", "vmapped value", "reference to")
    return type(error).__name__ != "UnexpectedTracerError" and any(s in str(error) for s in said)


def smaller(program: list[Any]) -> Any:
    """Programs with a statement less, or with a body in place of its block less one."""
    for k, s in enumerate(program):
        yield program[:k] + program[k + 1 :]
        if s[0] == "block":
            for b, (body, *outs) in enumerate(s[7]):
                for less in smaller(body):
                    bodies = [*s[7]]
                    bodies[b] = (less, *outs)
                    yield [*program[:k], (*s[:7], bodies, *s[8:]), *program[k + 1 :]]


def main() -> None:
    """``python -m tests.fuzz.references FIRST LAST [mistakes]``: compare, and print what differs, made small."""
    import jax

    import shardwise as sw

    first, last = int(sys.argv[1]), int(sys.argv[2])
    found = raised = 0
    for seed in range(first, last):
        jit = seed % 2 == 0
        program = Grow(seed, jit, "mistakes" in sys.argv).program()
        theirs = outcome(jax, program, jit)
        raised += isinstance(theirs, Exception)
        if isinstance(theirs, Exception) and "why" in sys.argv:
            print(seed, type(theirs).__name__, str(theirs)[:200].replace("\n", " "))
        ours = outcome(sw, program, jit)
        said = difference(ours, theirs)
        if said is None:
            continue
        found += 1
        kind = said.split()[0] + type(ours).__name__ + type(theirs).__name__
        again = True
        while again:
            again = False
            for less in smaller(program):
                a, b = outcome(sw, less, jit), outcome(jax, less, jit)
                if isinstance(a, (KeyError, NameError)):
                    continue
                d = difference(a, b)
                if d is not None and d.split()[0] + type(a).__name__ + type(b).__name__ == kind:
                    program, again, said = less, True, d
                    break
        print(f"seed {seed} jit={jit}: {said}", *program, sep="\n    ", flush=True)
    print(f"{last - first} programs, {raised} raise in JAX, {found} differ")


if __name__ == "__main__":
    main()
