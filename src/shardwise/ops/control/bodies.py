"""Loop bodies and branches: functions traced to programs once, and the types that a loop's carry settles on.

Comes in: a function of trees, and the types of its arguments. Goes out: a `Body`: its program, the values that it captured,
the structure of its results. Equal programs are one object, so that the compiled form of one serves all.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token
from shardwise.base.dtypes import result_type
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, equality_errors, keystr, tree_flatten, tree_leaves_with_path, tree_unflatten
from shardwise.ir import (
    Equation,
    Literal,
    Program,
    ProgramTrace,
    ShapedArray,
    Tracer,
    Var,
    bind,
    current_trace,
    exact,
    kept_equations,
    recording_trace,
    subprograms,
    trace_program,
)
from shardwise.ir.axis_scope import checks_variance
from shardwise.ir.references import Reference, refuse_views, root_of, shows_reference
from shardwise.ops.devices.variance import pvary_op
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value


@dataclass(frozen=True, slots=True)
class Body:
    """A traced function: `program`'s leading inputs are the captured `consts`."""

    program: Program
    consts: tuple[Any, ...]
    out_tree: PyTreeDef

    @property
    def out_types(self) -> tuple[ShapedArray, ...]:
        """Types of the results."""
        return self.program.out_types


# -- tracing, once ---------------------------------------------------------------------------------------------------

_bodies: weakref.WeakKeyDictionary[Any, dict[Any, Body]] = weakref.WeakKeyDictionary()


def trace_body(
    fun: Callable[..., Any],
    in_tree: PyTreeDef,
    types: Sequence[ShapedArray],
    name: str,
    *,
    known_as: tuple[Any, str] | None = None,
) -> Body:
    """Trace ``fun(*args)`` for arguments of this structure and these types.

    `known_as` is the user's function and how it is used here: with it, a later call for the same types finds the body
    without tracing. Results must be arrays or scalars (TypeError).
    """
    target, use = known_as or (fun, name)
    cache = _cache_of(target)
    key = (use, in_tree, tuple(types), context_token())
    cached_body = None if cache is None else cache.get(key)
    if cached_body is not None:
        return cached_body
    out_tree: PyTreeDef | None = None

    def flat(*tracers: Any) -> list[Any]:
        nonlocal out_tree
        result = fun(*tree_unflatten(in_tree, tracers))
        leaves, out_tree = tree_flatten(result)
        return [_result(leaf, name, _KINDS.get(use, use)) for leaf in leaves]

    trace = recording_trace(name)
    program, consts = trace_program(flat, types, name, trace=trace)
    assert out_tree is not None
    body = Body(intern_program(kept_equations(program)), tuple(consts), out_tree)
    if cache is not None and not trace.used_references and not any(isinstance(c, Tracer) for c in consts):
        cache[key] = body
    return body


def _cache_of(target: Any) -> dict[Any, Body] | None:
    try:
        return _bodies.setdefault(target, {})
    except TypeError:  # no weak references, or no hash
        return None


_KINDS = {"branch": "cond", "while body": "while_body", "while cond": "while_cond"}  # names of uses in errors


def _result(leaf: Any, name: str, kind: str) -> Any:
    if shows_reference(leaf):
        raise root_of(leaf).return_error(name, kind)
    try:
        return as_value(leaf)
    except TypeError:
        raise TypeError(
            f"{name} must return arrays, scalars, and containers of them; got {leaf!r} of type {type(leaf)}."
        ) from None


# -- equal programs are one ------------------------------------------------------------------------------------------

_programs: Bounded[Any, Program] = Bounded()
at_clear(_programs.clear)


def intern_program(program: Program) -> Program:
    """`program`, or an equal one (the same equations on the same types) that was interned before."""
    try:
        key = _structure(program)
        hash(key)
    except TypeError:  # params that do not hash
        return program
    interned_program = _programs.get(key)
    if interned_program is None:
        interned_program = _programs[key] = program
    return interned_program


def separate(program: Program) -> Program:
    """`program`, or a copy of it while an outer program is recorded: there each equation's body is laid out on its own."""
    trace: Any = current_trace()
    while trace is not None:
        if isinstance(trace, ProgramTrace):
            return _copy_program(program)
        trace = getattr(trace, "parent", None)
    return program


def _copy_program(program: Program) -> Program:
    names: dict[Var, Var] = {}

    def new(var: Var) -> Var:
        return names.setdefault(var, Var(var.aval))

    def atom(a: Any) -> Any:
        return a if isinstance(a, Literal) else new(a)

    def value(param: Any) -> Any:
        if isinstance(param, Program):
            return _copy_program(param)
        return (
            tuple(map(value, param))
            if isinstance(param, tuple) and any(isinstance(p, Program) for p in param)
            else param
        )

    inputs = tuple(map(new, program.inputs))
    equations = tuple(
        Equation(
            e.op,
            tuple(map(atom, e.inputs)),
            tuple(map(new, e.outputs)),
            {k: value(v) for k, v in e.params.items()},
            e.source,
        )
        for e in program.equations
    )
    return Program(inputs, equations, tuple(map(atom, program.outputs)), program.num_consts, program.name)


def _structure(program: Program) -> Any:
    numbers: dict[Var, int] = {v: i for i, v in enumerate(program.inputs)}

    def atom(a: Any) -> Any:
        return (a.aval, a.value.tobytes()) if isinstance(a, Literal) else numbers[a]

    equations = []
    for eqn in program.equations:
        inputs = tuple([atom(a) for a in eqn.inputs])
        params = tuple([(k, _param(v)) for k, v in eqn.params.items()])
        equations.append((eqn.op, inputs, tuple([v.aval for v in eqn.outputs]), params))
        for v in eqn.outputs:
            numbers[v] = len(numbers)
    outputs = tuple([atom(a) for a in program.outputs])
    return program.in_types, tuple(equations), outputs, program.num_consts, program.name


def _param(value: Any) -> Any:
    if isinstance(value, Program):
        return _structure(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        return tuple([_param(v) for v in value])
    return exact(value)


def program_effects(params: Any) -> bool:
    """Whether any program held by an equation's params has an equation with effects."""
    return any(p.has_effects for _, p in subprograms(params))


# -- carries ---------------------------------------------------------------------------------------------------------


def flat_values(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree as op operands, and its structure."""
    leaves, treedef = tree_flatten(tree)
    refuse_views(leaves, "loops")
    for leaf in leaves:
        if isinstance(leaf, Reference):
            raise ValueError(
                f"a mutable array reference of type {leaf.aval} is carried, but mutable array references cannot be returned from one step "
                "to the next. Close over it, and carry arrays."
            )
    return [as_value(leaf) for leaf in leaves], treedef


def joined_type(carry: ShapedArray, out: ShapedArray, also_varying: frozenset[str] = frozenset()) -> ShapedArray:
    """The carry's type once the body's result is known: weak types yield other dtypes, known meshes and varying axes enter.

    Where the two do not fit it is the carry's own type as far as that goes; `matches` tells.
    """
    dtype, weak = carry.dtype, carry.weak_type
    if carry.dtype != out.dtype and carry.weak_type:
        dtype, weak = result_type(carry, out), False
    vma = carry.vma | also_varying
    if not checks_variance():
        vma |= out.vma
    mesh = carry.mesh if carry.mesh is not None else out.mesh
    return carry.update(dtype=dtype, weak_type=weak, vma=vma, mesh=mesh)


def matches(carry: ShapedArray, out: ShapedArray, gained: frozenset[str] = frozenset()) -> bool:
    """Whether a body's result of type `out` can be its next argument of type `carry`, which varies over `gained` without need.

    Where varying axes are checked (today's shard_map), a result that lost some of the carry's is refused.
    """
    is_checked = checks_variance()
    return (
        carry.shape == out.shape
        and carry.dtype == out.dtype
        and carry.spec == out.spec
        and out.vma <= carry.vma
        and not (is_checked and carry.vma - out.vma - gained)
        and carry.unreduced == out.unreduced
    )


def final_types(carry: Sequence[ShapedArray], out: Sequence[ShapedArray]) -> tuple[ShapedArray, ...]:
    """The types that a loop leaves its carry with: those it enters with, as weak as the body's results."""
    return tuple(
        t if t.weak_type == o.weak_type else t.update(weak_type=o.weak_type) for t, o in zip(carry, out, strict=True)
    )


def enter_carry(value: Any, aval: ShapedArray) -> Any:
    """An initial value as the carry type wants it."""
    value = convert(value, aval.dtype, aval.weak_type)
    missing_axes = tuple(sorted(aval.vma - value.aval.vma))
    return bind(pvary_op, as_array(value), axes=missing_axes) if missing_axes else value


def check_carry(
    name: str,
    fun: Callable[..., Any],
    init: Any,
    types: Sequence[ShapedArray],
    out_tree: PyTreeDef,
    out_types: Sequence[ShapedArray],
    gained_axes: Sequence[frozenset[str]] | None = None,
) -> None:
    """TypeError, leaf by leaf, unless the body's results have the structure and the types of its carry."""
    label = _first_parameter(fun)
    _, in_tree = tree_flatten(init)
    if in_tree != out_tree:
        out = tree_unflatten(out_tree, list(out_types))
        into = tree_unflatten(in_tree, list(types))
        lines = [
            f"the input carry {label}{keystr(path)} is {a}, but the output has {b} there: {why}"
            for path, a, b, why in equality_errors(into, out)
        ]
        if lines:
            raise TypeError(
                f"{name} function carry input and carry output must have the same pytree structure, but they differ:\n"
                f"{_list_lines(lines)}\nLet the function return the structure that it takes."
            )
    lines, casts = [], []
    gained_axes = gained_axes or [frozenset()] * len(types)
    for (path, _), a, b, extra in zip(tree_leaves_with_path(init), types, out_types, gained_axes, strict=True):
        if matches(a, b, extra):
            continue
        where = f"{label}{keystr(path)}"
        lines.append(
            f"the input carry {where} has type {a.str_short()}, the output {b.str_short()}, so the {difference(a, b)} do "
            "not match"
        )
        more = b.vma - a.vma
        if more and difference(a, b) == "manual axis types":
            casts.append(
                f"applying `jax.lax.pcast(..., {tuple(sorted(more))}, to='varying')` to the initial value of {where}"
            )
        elif a.vma - b.vma and difference(a, b) == "manual axis types":
            lost_axes = tuple(sorted(a.vma - b.vma))
            casts.append(
                f"applying `jax.lax.pcast(..., {lost_axes}, to='varying')` to what the function returns for {where}"
            )
    if lines:
        hint = f" This might be fixed by {', and by '.join(casts)}." if casts else ""
        raise TypeError(
            f"{name} function carry input and carry output must have equal types, but they differ:\n{_list_lines(lines)}\n"
            f"Let the function return the types that it takes.{hint}"
        )


def difference(a: ShapedArray, b: ShapedArray) -> str:
    """The property in which two types differ, as a plural noun."""
    if a.shape != b.shape:
        return "shapes"
    if a.dtype != b.dtype:
        return "dtypes"
    if a.spec != b.spec:
        return "shardings"
    return "manual axis types" if a.vma != b.vma else "unreduced axes"


def _list_lines(lines: Sequence[str]) -> str:
    return "".join(f"  * {line}\n" for line in lines).rstrip("\n")


def _first_parameter(fun: Callable[..., Any]) -> str:
    try:
        return next(iter(inspect.signature(fun).parameters), "")
    except (TypeError, ValueError):
        return ""
