"""`cond` and `switch`: one equation that holds a program per branch, of which one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.errors import ConcretizationTypeError
from shardwise.base.shapes import Ndarray
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import equality_errors, keystr, tree_leaves_with_path, tree_unflatten
from shardwise.base.wrapping import code_of, name_of
from shardwise.ir import Array, Atom, Branches, Equation, Program, ShapedArray, Var, bind, define_op
from shardwise.ir.axis_scope import checks_variance
from shardwise.ir.op import Params, Types
from shardwise.ir.reference_arguments import TracedArguments, close_over
from shardwise.ir.references import Reference, over_references, over_state, with_references
from shardwise.ops.control.bodies import (
    Body,
    difference,
    flat_values,
    intern_program,
    program_effects,
    separate,
    trace_body,
)
from shardwise.ops.control.control_keys import cond_keys
from shardwise.ops.control.narrow import narrow_cond
from shardwise.ops.control.regions import (
    active,
    check_uniform,
    choose_by_mask,
    disputed_axes,
    layout,
    local_program,
    loop_plan,
    move_operand,
    no_rule,
    run_masked,
)
from shardwise.ops.control.some_devices import SomeDevices, runs_apart
from shardwise.ops.devices.first_replica import first_replica
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.elementwise.comparison import ne
from shardwise.ops.elementwise.selection import clamp
from shardwise.ops.rules.convert import as_array, as_value, hand_out
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.operands import dtype_kind
from shardwise.runtime.env import Env

_INT32 = np.dtype(np.int32)


# -- the op ----------------------------------------------------------------------------------------------------------
# Operands: the int32 index of the branch, then the inputs that all branches have in common.


def _cond_type(index: ShapedArray, *types: ShapedArray, branches: tuple[Program, ...]) -> tuple[ShapedArray, ...]:
    outs = []
    for results in zip(*[b.out_types for b in branches], strict=True):
        first = results[0]
        vma = index.vma.union(*[t.vma for t in results])
        mesh = next((t.mesh for t in results if t.mesh is not None), None)
        outs.append(first.update(vma=vma, mesh=mesh))  # the first branch says whether the result is weakly typed
    return tuple(outs)


def _cond_edges(eqn: Equation) -> list[list[Atom]]:
    branches: tuple[Program, ...] = eqn.params["branches"]
    operand_edges = zip(eqn.inputs[1:], *[b.inputs for b in branches], strict=True)
    given = zip(*[b.outputs for b in branches], eqn.outputs, strict=True)
    return [list(group) for group in (*operand_edges, *given)]


def _cond_partition(region: Any, eqn: Equation) -> None:
    branches: tuple[Program, ...] = eqn.params["branches"]
    index, _ = region.read(eqn.inputs[0])
    in_dims = [layout(region, v) for v in branches[0].inputs]
    atoms = [move_operand(region, a, d) for a, d in zip(eqn.inputs[1:], in_dims, strict=True)]
    out_dims = [layout(region, v) for v in eqn.outputs]
    inputs = [(d, a.aval.vma) for a, d in zip(atoms, in_dims, strict=True)]
    local = tuple(local_program(region, b, inputs, out_dims) for b in branches)
    if axes := disputed_axes(region, local, index.aval.vma):
        index = region.emit(first_replica, [index], {"axes": axes})[0]
    check_uniform("a cond", local, index.aval.vma)
    outs = region.emit(cond_p, [index, *atoms], {**eqn.params, "branches": local})
    for var, out, dims in zip(eqn.outputs, outs, out_dims, strict=True):
        region.define(var, out, dims)


def _cond_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    branches: tuple[Program, ...] = params["branches"]
    plans = [loop_plan(b, env, 0, len(b.inputs)) for b in branches]
    return _BranchKernel(plans, SomeDevices(branches, env) if runs_apart(branches, env, in_types[0].vma) else None)


class _BranchKernel:
    """Branches over an index and blocks; handed these in a list, it may write over blocks that nothing else refers to."""

    __slots__ = ("_apart", "_last", "_plans")

    def __init__(
        self, plans: Sequence[Callable[[list[Ndarray]], tuple[Ndarray, ...]]], apart: SomeDevices | None
    ) -> None:
        self._plans = plans
        self._apart = apart
        self._last = len(plans) - 1

    def __call__(self, index: Ndarray, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        if index.size == 1:
            return self._plans[min(max(index.item(), 0), self._last)](list(blocks))  # the caller refers to them all
        outcome = self._some(index, list(blocks), ())
        if outcome is not None:
            return outcome[0]
        index, mask = index.clip(0, self._last), active()
        outs: tuple[Ndarray, ...] | None = None
        for i in _branches_taken(index, mask):
            here, plan = index == i, self._plans[i]
            new = run_masked(here, lambda *given, plan=plan: plan(list(given)), blocks)
            outs = new if outs is None else tuple(choose_by_mask(here, n, o) for n, o in zip(new, outs, strict=True))
        assert outs is not None
        return outs

    def _some(
        self, index: Ndarray, blocks: list[Ndarray], free: Sequence[int]
    ) -> tuple[tuple[Ndarray, ...], list[int]] | None:
        """Each branch on the devices that take it; None where all take part in all."""
        if self._apart is None or active() is not None:
            return None
        return self._apart(index, blocks, free)

    def over(self, free: Sequence[int], blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        """The results. They may overwrite the blocks at positions `free`, which only the list refers to."""
        index = blocks[0]
        if index.size != 1:
            del blocks[0]
            try:
                outcome = self._some(index, blocks, [i - 1 for i in free])
            finally:
                blocks.insert(0, index)
            if outcome is None:
                return self(*blocks)
            for n in outcome[1]:
                blocks[n + 1] = None  # type: ignore[call-overload]  its memory is a result's
            return outcome[0]
        index, *given = blocks
        blocks.clear()
        try:
            return self._plans[min(max(index.item(), 0), self._last)](given)
        except BaseException:
            blocks[:] = [index, *given]  # the remaining operands
            raise


def _branches_taken(index: Ndarray, mask: Ndarray | None) -> list[int]:
    """The branches that devices which count take."""
    if mask is None:
        return np.unique(index).tolist()
    index, mask = np.broadcast_arrays(index, mask)
    return np.unique(index[mask]).tolist() or [0]


def _cond_steps(eqn: Equation, operands: Sequence[Ndarray], run: Any) -> Any:
    branches = eqn.params["branches"]
    branch = branches[min(max(operands[0].item(), 0), len(branches) - 1)]
    return (yield from run(branch, operands[1:]))


cond_p = define_op(
    "cond",
    type_rule=_cond_type,
    multiple_results=True,
    typed=True,
    rule=no_rule,
    edges=_cond_edges,
    partition=_cond_partition,
    compile=_cond_compile,
    effects=program_effects,
    keys=cond_keys,
    narrow=narrow_cond,
    region=lambda eqn: Branches(eqn.params["branches"]),
    steps=_cond_steps,
    **{
        rule: later("shardwise.transforms.bodies.branch_rules", f"cond_{rule}")
        for rule in ("jvp", "linearize", "transpose", "batch")
    },
)


# -- branches --------------------------------------------------------------------------------------------------------


def _unify_branches(
    bodies: Sequence[Body], num_operands: int, true_first: bool
) -> tuple[tuple[Program, ...], list[Any]]:
    """The branches with equal inputs (the values that any branch captured, then the operands), and the captured values."""
    captured_consts: dict[int, Any] = {}
    for body in reversed(bodies) if true_first else bodies:
        captured_consts.update((id(c), c) for c in body.consts)
    programs = []
    for body in bodies:
        own = dict(zip(map(id, body.consts), body.program.inputs, strict=False))
        consts = tuple(own[i] if i in own else Var(c.aval) for i, c in captured_consts.items())
        p = body.program
        operands = p.inputs[len(body.consts) :]
        assert len(operands) == num_operands
        programs.append(
            separate(intern_program(Program((*consts, *operands), p.equations, p.outputs, len(consts), p.name)))
        )
    return tuple(programs), list(captured_consts.values())


def _names(functions: Sequence[Callable[..., Any]], labels: Sequence[str]) -> str:
    descriptions = []
    for label, fun in zip(labels, functions, strict=True):
        code = code_of(fun)
        at = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        descriptions.append(f"{label} is {name_of(fun)}{at}")
    return "; ".join(descriptions)


def _check_branches(functions: Sequence[Callable[..., Any]], labels: Sequence[str], bodies: Sequence[Body]) -> None:
    """TypeError unless all branches return one structure of equal types."""
    first, name = bodies[0], "cond" if labels[0].endswith("_fun") else "switch"
    for i, body in enumerate(bodies[1:], 1):
        pair, who = (labels[0], labels[i]), _names([functions[0], functions[i]], [labels[0], labels[i]])
        if first.out_tree != body.out_tree:
            into, out = (tree_unflatten(b.out_tree, list(b.out_types)) for b in (first, body))
            lines = [
                f"{pair[0]} output{keystr(path)} is {a}, but {pair[1]} has {b} there: {why}"
                for path, a, b, why in equality_errors(into, out)
            ]
            if lines:
                raise TypeError(
                    f"{name} branch outputs must have the same pytree structure, but they differ: "
                    f"{'; '.join(lines)}. {who}."
                )
        if not all(map(_alike, first.out_types, body.out_types)):
            paths = [path for path, _ in tree_leaves_with_path(tree_unflatten(first.out_tree, list(first.out_types)))]
            lines = [
                f"the output{keystr(path)} of {pair[0]} has type {a.str_short()}, that of {pair[1]} {b.str_short()}, so "
                f"the {difference(a, b)} do not match{_cast_hint(a, b)}"
                for path, a, b in zip(paths, first.out_types, body.out_types, strict=True)
                if not _alike(a, b)
            ]
            raise TypeError(f"{name} branches must have equal output types but they differ: {'; '.join(lines)}. {who}.")


def _alike(a: ShapedArray, b: ShapedArray) -> bool:
    strict = checks_variance()
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and a.spec == b.spec
        and a.unreduced == b.unreduced
        and (a.vma == b.vma or not strict)
    )


def _cast_hint(a: ShapedArray, b: ShapedArray) -> str:
    differing_axes = a.vma ^ b.vma
    if difference(a, b) != "manual axis types":
        return ""
    return f". This might be fixed by applying `jax.lax.pcast(..., {tuple(sorted(differing_axes))}, to='varying')` to the one that lacks it"


def _branch(
    index: Any,
    functions: Sequence[Callable[..., Any]],
    labels: Sequence[str],
    operands: tuple[Any, ...],
    true_first: bool = False,
) -> Any:
    """`true_first`: the last function is traced first, and its captured values come first, as `cond` has them."""
    closure = close_over(operands, TracedArguments(functions[0], "cond", operands))
    if closure is not None:
        operands, rebuild = closure
        functions = [over_references(f, rebuild) for f in functions]

    def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
        if not references:
            return (), _bind_branch(index, functions, labels, operands, true_first)
        stateful = [over_state(f, references) for f in functions]
        return _bind_branch(index, stateful, labels, ([r.held() for r in references], *operands), true_first)

    return with_references(run)


def _bind_branch(
    index: Any,
    functions: Sequence[Callable[..., Any]],
    labels: Sequence[str],
    operands: tuple[Any, ...],
    true_first: bool,
) -> Any:
    values, tree = flat_values(operands)
    types = [v.aval for v in values]
    order = -1 if true_first else 1
    functions_in_order = zip(functions[::order], labels[::order], strict=True)
    bodies = [trace_body(f, tree, types, label, known_as=(f, "branch")) for f, label in functions_in_order][::order]
    _check_branches(functions, labels, bodies)
    programs, captured_values = _unify_branches(bodies, len(values), true_first)
    outs = bind(cond_p, index, *captured_values, *values, branches=programs)
    return tree_unflatten(bodies[0].out_tree, hand_out(outs))


# -- public ----------------------------------------------------------------------------------------------------------


def _predicate(pred: Any) -> Any:
    """The branch that a predicate selects, int32: 1 if it is true."""
    try:
        value = as_value(pred)
    except TypeError:
        raise TypeError(f"cond: Pred must be a scalar, got {pred!r} of type {type(pred)}.") from None
    if value.ndim:
        raise TypeError(
            f"cond: Pred must be a scalar, got an array of shape {value.shape}. Reduce it with any() or all()."
        )
    kind = dtype_kind(value.dtype)
    if kind not in "biuf":
        raise TypeError(f"cond: Pred type must be either boolean or number, got {value.dtype.name}.")
    if kind != "b":
        value = ne(value, convert(as_value(np.int32(0)), value.dtype))
    return convert(value, _INT32)


class _NoOperand:
    """The default of `operand`; None is an operand, too."""

    def __repr__(self) -> str:
        return "<none given>"


_NO_OPERAND: Any = _NoOperand()


@user_facing
def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any, operand: Any = _NO_OPERAND
) -> Any:
    """``true_fun(*operands)`` if `pred` is true, else ``false_fun(*operands)``.

    Only one branch runs, unless `pred` differs between devices (inside shard_map) or elements (under vmap).

    Args:
        pred: a bool or number scalar.
        true_fun, false_fun: functions whose results have one structure and equal types.
        operands: trees of arrays; or one operand by keyword, as ``operand=``.

    The older form ``cond(pred, true_operand, true_fun, false_operand, false_fun)`` is understood too.

    Raises:
        TypeError: `pred` is no scalar, or the results of the branches differ in structure or type.

    >>> lax.cond(jnp.array(True), lambda x: x + 1, lambda x: x - 1, 10)
    Array(11, dtype=int32, weak_type=True)
    """
    if operand is not _NO_OPERAND:
        if operands:
            raise TypeError("cond takes operands by position or one by operand=, not both.")
        operands = (operand,)
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        return _with_own_operands(pred, true_fun, false_fun, *operands)
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError(
            f"lax.cond: true_fun and false_fun arguments should be callable, got {true_fun!r} and {false_fun!r}."
        )
    if config.jax_disable_jit:
        try:
            return true_fun(*operands) if bool(pred) else false_fun(*operands)
        except ConcretizationTypeError:
            pass
    pred = bool(pred) if type(pred) is int else pred  # of any size
    return _branch(_predicate(pred), (false_fun, true_fun), ("false_fun", "true_fun"), operands, true_first=True)


def _with_own_operands(pred: Any, true_operand: Any, true_fun: Any, false_operand: Any, false_fun: Any) -> Any:
    return cond(pred, lambda both: true_fun(both[0]), lambda both: false_fun(both[1]), (true_operand, false_operand))


@user_facing
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _NO_OPERAND) -> Any:
    """``branches[index](*operands)``; an index out of range takes the nearest branch.

    `operand` is an older way to give one operand.

    Raises:
        TypeError: `index` is no integer scalar, or the results of the branches differ in structure or type.
        ValueError: there are no branches.

    >>> lax.switch(jnp.array(1), [lambda x: x, lambda x: 10 * x], 2)
    Array(20, dtype=int32, weak_type=True)
    """
    if not all(callable(b) for b in branches):
        raise TypeError(f"lax.switch: branches argument should be a sequence of callables, got {branches!r}.")
    if operand is not _NO_OPERAND:
        if operands:
            raise TypeError("switch takes operands by position or one by operand=, not both.")
        operands = (operand,)
    value = as_value(index)
    if value.ndim:
        raise TypeError(f"switch: Branch index must be scalar, got an array of shape {value.shape}.")
    if dtype_kind(value.dtype) not in "iu":
        raise TypeError(f"switch: Index type must be an integer, got {index!r} as {value.dtype.name}.")
    functions = tuple(branches)
    if not functions:
        raise ValueError("switch: Empty branch sequence; give one function at least.")
    if len(functions) == 1:
        return functions[0](*operands)
    if config.jax_disable_jit:
        try:
            return functions[min(max(int(as_array(value)), 0), len(functions) - 1)](*operands)
        except ConcretizationTypeError:
            pass
    low, high = (as_value(np.int32(n)) for n in (0, len(functions) - 1))
    chosen_index = clamp(low, _int32(value), high)
    return _branch(chosen_index, functions, [f"branch {i}" for i in range(len(functions))], operands)


def _int32(value: Any) -> Array:
    return as_array(convert(value, _INT32))


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """The result of the function given in `per_platform` for this platform, ``cpu=``, or else of `default`, on
    `args`.

    NotImplementedError if neither is given.

    >>> lax.platform_dependent(2.0, cpu=lambda x: x + 1, default=lambda x: x)
    3.0
    """
    fun = per_platform.get("cpu", default)
    if fun is None:
        raise NotImplementedError(
            f"platform_dependent has functions for {', '.join(per_platform) or 'no platform'} only, and no "
            "default; this platform is cpu. Pass cpu= or default=."
        )
    return fun(*args)
