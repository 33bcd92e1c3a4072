"""Random programs, grown under the tracer: each statement is tried on abstract values before the next is chosen.

So every op may be offered any values, nested functions included: what the library refuses is dropped (and kept in
`Grower.refused`, for JAX to be asked whether it refuses as well). The numbers are kept tame by `Quality`: ops with jumps
(comparisons, `floor`, sorting, ...) are given exact values only, so that rounding never decides.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.differential import worker
from tests.fuzz.program import AXES, Function, Operand, Program, Quality, Shape, Statement, Value
from tests.fuzz.qualities import EPSILON, LARGEST_FLOAT, LARGEST_INT, NOISY, Unsuitable, cast, kind, settled

MESHES = (
    (1,), (2,), (3,), (2, 3), (6,), (8,), (1, 8), (1, 4), (4, 1), (2, 1, 2), (2, 2, 2), (1, 2, 3), (2, 4), (4, 2), (2, 2),
    (5,), (7,), (3, 2), (2, 1, 3), (3, 5), (5, 3), (15,), (4, 4), (2, 4, 2),
)  # fmt: skip
DTYPES = (
    ("float32",) * 6 + ("int32",) * 3 + ("bfloat16", "float16", "int8", "uint8", "int16", "uint32", "bool", "complex64")
)
MOST_ELEMENTS = 1 << 12


@dataclass
class Draft:
    """A statement on trial: its text, and the quality of its numbers if it turns out well."""

    expression: str
    quality: Quality | Callable[[str], Quality]
    functions: list[Function] = field(default_factory=list)


Op = Callable[["Grower"], Draft]
OPS: list[tuple[Op, float]] = []
MAPPED: list[Op] = []


def op(weight: float = 1.0, *, mapped: bool = False) -> Callable[[Op], Op]:
    """Register a function that drafts a statement; it is chosen in proportion to `weight`.

    Programs that are about `shard_map` choose those that are `mapped` more often.
    """

    def register(function: Op) -> Op:
        OPS.append((function, weight))
        if mapped:
            MAPPED.append(function)
        return function

    return register


class Grower:
    """Grows one program from a seed.

    Args:
        jax: the library on whose abstract values statements are tried.
        seed: what all choices are drawn from.
        statements: how many the program is to have, nested ones included.
        special: whether operands surely have infinities, NaNs, ties and extremes among them.
        large: whether there surely are large dims.
        mapping: whether there surely are bodies of `shard_map`, where the library takes any.
    """

    def __init__(
        self,
        jax: Any,
        seed: str,
        *,
        statements: int | None = None,
        special: bool = False,
        large: bool = False,
        mapping: bool = False,
    ):
        self.jax = jax
        self.random = random.Random(seed)
        self.budget = statements or self.random.randint(20, 60)
        self.special = self.random.random() < 0.12 or special
        self.large = self.random.random() < 0.12 or large
        self.mapping = self.random.random() < 0.12 or mapping
        self.mesh = self.random.choice([m for m in MESHES if len(m) > 1] if self.mapping else MESHES)
        self.axis_type = "Auto" if self.mapping else self.random.choice(("Auto", "Auto", "Explicit"))
        self.names = AXES[: len(self.mesh)]
        pool = (1, 2, 3, 4, 5, 6, 8, 12, 16)
        self.sizes = [*self.random.sample(pool, 3), math.prod(self.mesh), self.random.choice(self.mesh)]
        if self.large:
            self.sizes += [self.random.choice((96, 128, 192))] * 3
        if self.random.random() < 0.1:
            self.sizes.append(0)
        self.most = MOST_ELEMENTS * 16 if self.large else MOST_ELEMENTS
        self.count = 0
        self.scopes: list[list[Value]] = []
        self.blocks: list[list[Statement]] = []
        self.manual: tuple[str, ...] = ()  # the axes of the shard_maps around
        self.typed = True  # whether the innermost of them checks what varies
        self.smooth = 0  # how many differentiated functions are around: kinks only where values are exact
        self.maps = False
        self.depth = 0
        self.refused: list[tuple[int, Statement]] = []
        self.namespace: dict[str, Any] = {}

    # Choosing

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def choice(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def visible(self) -> Iterator[Value]:
        for scope in self.scopes:
            yield from scope

    def value(
        self, kinds: str = "fibc", *, ndim: int = 0, exact: bool = False, where: Callable[[Value], bool] | None = None
    ) -> Value:
        """A value in sight, a late one rather than an early one."""
        found = [
            v
            for v in self.visible()
            if kind(v.dtype) in kinds
            and v.ndim >= ndim
            and (not exact or v.quality.exact)
            and (where is None or where(v))
        ]
        if not found:
            raise Unsuitable
        among = self.random.random()
        return self.choice(found[-2:] if among < 0.4 else found[-8:] if among < 0.8 else found)

    def tame(
        self, kinds: str = "fic", *, ndim: int = 0, exact: bool = False, where: Callable[[Value], bool] | None = None
    ) -> Value:
        """A value whose numbers are small: one in sight, with a statement in between if they are large."""
        exact = exact or (self.special and self.chance(0.9))
        v = self.value(kinds, ndim=ndim, exact=exact, where=where)
        q = v.quality
        if kind(v.dtype) == "f" and (q.bound > 32 or (q.step is not None and q.step < 2**-4)):
            v = self.add(self.calmed(v))
        elif kind(v.dtype) == "c" and q.bound > 32:
            v = self.add(Draft(f"{v} / (1 + jnp.abs({v}))", Quality(None, 1.0, q.noise * 2 + 8 * EPSILON[v.dtype])))
        elif kind(v.dtype) == "i" and q.bound > 64:
            v = self.add(Draft(f"{v} % 5", Quality(1.0, 4.0)))
        return v

    def calmed(self, v: Value) -> Draft:
        """A draft of `v` made small."""
        q = v.quality
        if q.exact:
            return Draft(f"jnp.clip(jnp.round({v} * 2) / 2, -4, 4)", Quality(0.5, 4.0))
        return Draft(f"jnp.tanh({v})", Quality(None, 1.0, q.noise + 4 * EPSILON[v.dtype]))

    def shape(self, least: int = 0, most: int = 3) -> Shape:
        """A shape of the program's sizes, of not too many elements."""
        while True:
            shape = tuple(self.choice(self.sizes) for _ in range(self.integer(least, most)))
            if math.prod(shape) <= self.most:
                return shape

    def spec(self, shape: Shape, names: Sequence[str] | None = None) -> str:
        """The text of a spec whose axes divide `shape`; axes may share a dim."""
        parts: list[list[str]] = [[] for _ in shape]
        local = list(shape)
        for axis in self.random.sample(list(names or self.names), len(names or self.names)):
            n = self.mesh[self.names.index(axis)]
            fitting = [dim for dim, size in enumerate(local) if size % n == 0 and size]
            if fitting and self.chance(0.6):
                dim = self.choice(fitting)
                parts[dim].append(axis)
                local[dim] //= n
        entries = [None if not part else part[0] if len(part) == 1 else tuple(part) for part in parts]
        while entries and entries[-1] is None and self.chance(0.5):
            entries.pop()
        return f"P({', '.join(map(repr, entries))})"

    def name(self, letter: str = "v") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # Growing

    def add(self, draft: Draft) -> Value:
        """Run a drafted statement on the abstract values at hand, and write it down.

        Raises:
            Unsuitable: if the library refuses it, or its value is too large.
        """
        name = self.name()
        try:
            result = eval(draft.expression, self.namespace)
            shape, dtype = tuple(result.shape), str(result.dtype)
        except Unsuitable:
            raise
        except Exception as error:
            self._note_refusal(name, draft, error)
            raise Unsuitable from error
        if (
            math.prod(shape) > 4 * self.most
            or len(shape) > 5
            or not (dtype == "bool" or dtype in EPSILON or dtype in LARGEST_INT)
        ):
            raise Unsuitable
        quality = draft.quality(dtype) if callable(draft.quality) else draft.quality
        if kind(dtype) in "bi" and not quality.exact:
            raise Unsuitable
        quality = settled(dtype, quality)
        if kind(dtype) in "fc" and quality.bound > LARGEST_FLOAT.get(dtype, 1e6):
            raise Unsuitable
        value = Value(name, shape, dtype, quality)
        self.namespace[name] = result
        self.blocks[-1].append(Statement(name, draft.expression, shape, dtype, draft.functions))
        if quality.noise <= NOISY * max(quality.bound, 1e-3):
            self.scopes[-1].append(value)
        return value

    def _note_refusal(self, name: str, draft: Draft, error: Exception) -> None:
        if len(self.blocks) == 1 and not isinstance(error, (SyntaxError, NameError, AttributeError)):
            statement = Statement(name, draft.expression, (), "", draft.functions)
            self.refused.append((len(self.blocks[0]), statement))
        elif isinstance(error, (SyntaxError, NameError, AttributeError)):
            raise AssertionError(f"a draft that says nothing: {draft.expression}") from error

    def grow(self, statements: int) -> None:
        """Add about so many statements to the current block."""
        functions = [function for function, _ in OPS]
        weights = [weight * (8 if self.mapping and function in MAPPED else 1) for function, weight in OPS]
        tries = 0
        begin = len(self.blocks[-1])
        while len(self.blocks[-1]) - begin < statements and tries < 8 * statements + 20:
            tries += 1
            chosen = self.random.choices(functions, weights)[0]
            try:
                self.add(chosen(self))
            except Unsuitable:
                continue

    def function(
        self,
        qualities: Sequence[Quality],
        *,
        statements: int | None = None,
        like: Callable[[], tuple[Shape, str] | None] | None = None,
        finish: Callable[[Value], tuple[str, Quality]] | None = None,
        closed: bool = False,
        wrap: str = "{}",
        smooth: bool = False,
        decorator: str = "",
        after: str = "",
    ) -> tuple[Function, list[Value]]:
        """A local function whose body grows at its first call, and a list that then holds its result.

        Args:
            qualities: of its parameters.
            like: the type that its result must have.
            finish: makes the result of the last value.
            closed: whether it uses nothing from outside.
            wrap: says how the result is returned.
            smooth: whether it is differentiated.
        """
        if self.depth >= 3:
            raise Unsuitable
        function = Function(self.name("f"), [self.name() for _ in qualities], decorator=decorator)
        function.after = after.format(name=function.name)
        wanted = statements or self.integer(1, 5)
        outcome: list[Value] = []

        def grown(*arguments: Any) -> Any:
            self._enter(function, qualities, arguments, closed, smooth)
            try:
                self.grow(wanted)
                outcome.append(self._result(function, like() if like else None, finish))
                function.result = wrap.format(function.result)
                return eval(function.result, self.namespace)
            finally:
                self._leave(function, closed, smooth)

        def called(*arguments: Any) -> Any:
            if not outcome:
                return grown(*arguments)
            return self.namespace["_" + function.name](*arguments)

        self.namespace[function.name] = called
        return function, outcome

    def _enter(
        self, function: Function, qualities: Sequence[Quality], arguments: Sequence[Any], closed: bool, smooth: bool
    ) -> None:
        for name, argument in zip(function.parameters, arguments, strict=True):
            self.namespace[name] = argument
        parameters = [
            Value(name, tuple(np.shape(a)), str(a.dtype), q)
            for name, a, q in zip(function.parameters, arguments, qualities, strict=True)
        ]
        self.outer = getattr(self, "outer", [])
        self.outer.append(self.scopes)
        self.scopes = [parameters] if closed else [*self.scopes, parameters]
        self.blocks.append(function.statements)
        self.depth += 1
        self.smooth += smooth

    def _leave(self, function: Function, closed: bool, smooth: bool) -> None:
        self.scopes = self.outer.pop()
        self.blocks.pop()
        self.depth -= 1
        self.smooth -= smooth
        if function.result:
            lines = "\n".join(function.lines("")).replace(f"def {function.name}(", f"def _{function.name}(", 1)
            lines = lines.replace(function.after, "") if function.after else lines
            exec(lines.replace(function.decorator + "\n", "", 1) if function.decorator else lines, self.namespace)

    def _result(self, function: Function, like: tuple[Shape, str] | None, finish: Any) -> Value:
        """The last value of the current block that suits, and the text that returns it."""
        own = self.scopes[-1]
        if like is None:
            candidates = own[len(function.parameters) :] or own
            value = candidates[-1]
            if finish is not None:
                function.result, quality = finish(value)
                return Value("", value.shape, value.dtype, quality)
            function.result = value.name
            return value
        shape, dtype = like
        fitting = [
            v
            for v in own
            if v.shape == shape and (kind(v.dtype) == kind(dtype) or (kind(v.dtype) in "bi" and kind(dtype) == "f"))
        ]
        if not fitting:
            raise Unsuitable
        value = fitting[-1]
        if value.name in function.parameters:
            value = self._mixed(value, own[-1])
        if value.dtype != dtype:
            value = self.add(Draft(f"{value}.astype({dtype!r})", cast(value, dtype)))
        if finish is not None:
            function.result, quality = finish(value)
        else:
            function.result, quality = value.name, value.quality
        return Value("", shape, dtype, quality)

    def _mixed(self, value: Value, last: Value) -> Value:
        """A value of the type of `value` in which `last` has a part."""
        q, p = value.quality, last.quality
        if last is value or kind(last.dtype) == "c" or not p.exact or not last.size or self.special:
            verb = {"f": "{} + 0.5", "i": "{} ^ 1", "b": "~{}", "c": "{} * 1j"}[kind(value.dtype)]
            step = None if q.step is None else min(q.step, 0.5)
            bound = LARGEST_INT[value.dtype] if kind(value.dtype) == "i" else q.bound + 0.5
            return self.add(Draft(verb.format(value), Quality(step, bound, q.noise)))
        flag = self.add(Draft(f"{last}.any()", Quality(1.0, 1.0)))
        return self.add(
            Draft(
                f"jnp.where({flag}, -{value}, {value})" if kind(value.dtype) != "b" else f"{value} ^ {flag}",
                Quality(q.step, LARGEST_INT.get(value.dtype, q.bound), q.noise),
            )
        )

    def operand(self) -> Operand:
        """An argument: quarters of small integers, or, at times, with infinities and the like among them."""
        shape = self.shape(0 if self.chance(0.2) else 1)
        dtype = self.choice(DTYPES)
        name = self.name()
        seed = self.integer(0, 99)
        made = f"data({shape}, {dtype!r}, {seed})"
        if self.special and self.chance(0.6) and dtype != "bool":
            made = f"special({shape}, {dtype!r}, {seed})"
        return Operand(name, shape, dtype, made, self.spec(shape))

    def program(self) -> Program:
        """The program."""
        jax = self.jax
        self.namespace = namespace_of(jax)
        names = self.names
        mesh = self.namespace["mesh_of"](self.mesh, names, self.axis_type)
        self.namespace["mesh"] = mesh
        fix = jax.lax.with_sharding_constraint if self.axis_type == "Auto" else jax.sharding.reshard
        spec_of = lambda text: eval(text, self.namespace)  # noqa: E731
        self.namespace["constrain"] = lambda x, spec: fix(x, jax.sharding.NamedSharding(mesh, spec))
        self.namespace["whole"] = lambda x: x
        operands = [self.operand() for _ in range(self.integer(2, 5))]
        abstract = [
            jax.ShapeDtypeStruct(o.shape, o.dtype, sharding=jax.sharding.NamedSharding(mesh, spec_of(o.spec)))
            for o in operands
        ]
        statements: list[Statement] = []
        values = [
            Value(o.name, o.shape, o.dtype, settled(o.dtype, Quality(1.0 if kind(o.dtype) in "bi" else 0.25, 9.0)))
            for o in operands
        ]

        def body(*arguments: Any) -> Any:
            for o, argument in zip(operands, arguments, strict=True):
                self.namespace[o.name] = argument
            self.scopes, self.blocks = [values], [statements]
            while sum(_size(s) for s in statements) < self.budget:
                before = len(statements)
                self.grow(4)
                if len(statements) == before:
                    break
            return ()

        if self.axis_type == "Explicit":
            with jax.set_mesh(mesh):
                jax.eval_shape(body, *abstract)
        else:
            jax.eval_shape(body, *abstract)
        used = set().union(*(s.uses() for s in statements)) if statements else set()
        own = [v for v in self.values_of(statements, values) if v.noise >= 0]
        ends = [v for v in own if v.name not in used] or own[-1:]
        more = [v for v in own if v.name in used and v.noise == 0]
        ends = ends[-6:] + self.random.sample(more, min(2, len(more)))
        program = Program(
            self.mesh,
            self.axis_type,
            operands,
            statements,
            [v.name for v in ends],
            [v.noise for v in ends],
            maps=self.maps,
        )
        program = program.without_dead()
        program.jit = self._jit_arguments(program, ends)
        if self.refused:
            where, statement = self.choice(self.refused)
            kept = [*statements[:where], statement]
            refused = Program(self.mesh, self.axis_type, operands, kept, [statement.name], [0.0], maps=self.maps)
            program.refused = refused.without_dead()
        return program

    def values_of(self, statements: list[Statement], values: list[Value]) -> list[Any]:
        known = {v.name: v for v in self.scopes[0]}
        return [_End(s.name, s.shape, known[s.name].quality.noise) for s in statements if s.name in known]

    def _jit_arguments(self, program: Program, ends: list[Any]) -> str:
        """Shardings and donation, as the text of arguments of jit."""
        parts = []
        if self.axis_type == "Auto":
            if self.chance(0.25):
                specs = [f"NamedSharding(mesh, {self.spec(v.shape)})" for v in ends]
                parts.append(f"out_shardings=[{', '.join(specs)}]")
            if self.chance(0.15):
                parts.append(f"in_shardings=({''.join(f'NamedSharding(mesh, {o.spec}), ' for o in program.operands)})")
        if self.chance(0.3):
            n = len(program.operands)
            parts.append(f"donate_argnums={tuple(sorted(self.random.sample(range(n), self.integer(1, n))))}")
        return ", ".join(parts)


@dataclass
class _End:
    name: str
    shape: Shape
    noise: float


def _size(statement: Statement) -> int:
    return 1 + sum(_size(s) for function in statement.functions for s in function.statements)


def namespace_of(jax: Any) -> dict[str, Any]:
    """What programs find defined, as `worker.PREAMBLE` does it, with the library given."""
    import functools
    import operator

    preamble = worker.PREAMBLE[worker.PREAMBLE.index("def data") :]
    sharding = jax.sharding
    names: dict[str, Any] = {
        "functools": functools, "math": math, "operator": operator, "np": np, "jax": jax, "jnp": jax.numpy, "lax": jax.lax,
        "AxisType": sharding.AxisType, "Mesh": sharding.Mesh, "NamedSharding": sharding.NamedSharding,
        "P": sharding.PartitionSpec, "SingleDeviceSharding": sharding.SingleDeviceSharding,
    }  # fmt: skip
    exec(preamble, names)
    return names
