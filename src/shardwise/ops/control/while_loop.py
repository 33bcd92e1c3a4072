"""`while_loop`: one equation that holds two programs, run as a Python loop over two compiled plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.errors import ConcretizationTypeError
from shardwise.base.shapes import Ndarray
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import tree_map, tree_unflatten, treedef_tuple
from shardwise.ir import Atom, Equation, Loop, Program, ShapedArray, Shown, Var, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ir.references import Reference, hold_references, with_references
from shardwise.ops.control.bodies import (
    Body,
    check_carry,
    enter_carry,
    final_types,
    flat_values,
    joined_type,
    matches,
    program_effects,
    separate,
    trace_body,
)
from shardwise.ops.control.control_keys import while_keys
from shardwise.ops.control.narrow import narrow_while
from shardwise.ops.control.regions import (
    LoopKernel,
    active,
    check_uniform,
    choose_by_mask,
    disputed_axes,
    layout,
    local_program,
    loop_plan,
    move_operand,
    no_rule,
    plan_of,
    run_masked,
    settle_variance,
)
from shardwise.ops.control.unchanged import apart, merge_masked, read_inputs, unchanged_carries, with_constants
from shardwise.ops.devices.first_replica import first_replica
from shardwise.ops.rules.convert import as_array, given_to_user, hand_out
from shardwise.ops.rules.derivative import later
from shardwise.runtime.env import Env

_BOOL = np.dtype(np.bool_)


# -- the op ----------------------------------------------------------------------------------------------------------
# Operands: the values that `cond` captured, those that `body` captured, the carry.


def _while_type(
    *types: ShapedArray, cond: Program, body: Program, cond_consts: int, body_consts: int
) -> tuple[ShapedArray, ...]:
    return final_types(body.in_types[body_consts:], body.out_types)


def while_parts(items: Sequence[Any], params: Params) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Items, one per operand, for the captured values of `cond`, those of `body`, and the carry."""
    a = params["cond_consts"]
    b = a + params["body_consts"]
    return items[:a], items[a:b], items[b:]


def _while_region(eqn: Equation) -> Loop:
    a, end = eqn.params["cond_consts"], eqn.params["cond_consts"] + eqn.params["body_consts"]
    carry = slice(end, len(eqn.inputs))
    body, test = eqn.params["body"], eqn.params["cond"]
    return Loop(body, slice(a, end), carry, test=test, test_consts=slice(0, a), counted="body_consts")


def _while_edges(eqn: Equation) -> list[list[Atom]]:
    cond, body = eqn.params["cond"], eqn.params["body"]
    cond_args, body_args, init = while_parts(eqn.inputs, eqn.params)
    na, nb = len(cond_args), len(body_args)
    const_edges = [*zip(cond_args, cond.inputs[:na], strict=True), *zip(body_args, body.inputs[:nb], strict=True)]
    carry_edges = zip(init, body.inputs[nb:], cond.inputs[na:], body.outputs, eqn.outputs, strict=True)
    return [list(group) for group in (*const_edges, *carry_edges)]


def _while_partition(region: Any, eqn: Equation) -> None:
    cond, body = eqn.params["cond"], eqn.params["body"]
    cond_args, body_args, init = while_parts(eqn.inputs, eqn.params)
    na, nb = len(cond_args), len(body_args)
    cond_atoms = [move_operand(region, a, layout(region, v)) for a, v in zip(cond_args, cond.inputs[:na], strict=True)]
    body_atoms = [move_operand(region, a, layout(region, v)) for a, v in zip(body_args, body.inputs[:nb], strict=True)]
    dims = [layout(region, v) for v in body.inputs[nb:]]
    carry = [move_operand(region, a, d) for a, d in zip(init, dims, strict=True)]

    def build(axes: list[frozenset[str]]) -> tuple[tuple[Program, Program], list[frozenset[str]]]:
        carry_layouts = list(zip(dims, axes, strict=True))
        test = local_program(
            region, cond, [*_captured_layouts(region, cond.inputs[:na], cond_atoms), *carry_layouts], [()]
        )
        const_layouts = _captured_layouts(region, body.inputs[:nb], body_atoms)
        step = local_program(region, body, [*const_layouts, *carry_layouts], dims, (nb, None))
        if first_axes := disputed_axes(region, [test, step], test.out_types[0].vma):
            test = _of_first(test, first_axes)
        varying_axes = test.out_types[0].vma  # devices stop at different times
        check_uniform("a while_loop", [test, step], varying_axes)
        return (test, step), [t.vma | varying_axes for t in step.out_types]

    test, step = settle_variance(build, [a.aval.vma for a in carry])
    params = {**eqn.params, "cond": test, "body": step}
    outs = region.emit(while_p, [*cond_atoms, *body_atoms, *carry], params)
    for var, out, d in zip(eqn.outputs, outs, dims, strict=True):
        placement = region.placements.get(var, d)
        region.define(var, region.reshard(out, d, placement, var.aval), placement)


def _of_first(test: Program, axes: tuple[str, ...]) -> Program:
    """The test with the first device's result along these axes for all."""
    (out,) = test.outputs
    var = Var(out.aval.update(vma=out.aval.vma - set(axes)))
    last = Equation(first_replica, (out,), (var,), {"axes": axes}, None)
    return Program(test.inputs, (*test.equations, last), (var,), test.num_consts, test.name)


def _captured_layouts(region: Any, variables: Sequence[Any], atoms: Sequence[Atom]) -> list[Any]:
    return [(layout(region, v), a.aval.vma) for v, a in zip(variables, atoms, strict=True)]


def _while_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    na = params["body_consts"]
    test, step = plan_of(params["cond"], env), loop_plan(params["body"], env, na, len(params["body"].inputs) - na)

    def run(blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        carry: Sequence[Ndarray]
        cond_args, body_args, carry = while_parts(blocks, params)
        blocks.clear()
        mask = active()
        while True:
            (goes_on,) = test(*cond_args, *carry)
            if goes_on.size == 1 and mask is None:
                if not goes_on.item():
                    return tuple(carry)
                given = [*body_args, *carry]
                carry = ()  # so that only the list refers to the results of a step
                carry = step(given)
                continue
            if mask is not None:
                goes_on = goes_on & mask
            if not goes_on.any():
                return tuple(carry)
            new = run_masked(goes_on, lambda *blocks: step(list(blocks)), [*body_args, *carry])
            carry = [choose_by_mask(goes_on, n, o) for n, o in zip(new, carry, strict=True)]

    return LoopKernel(run)


def _while_steps(eqn: Equation, operands: Sequence[Ndarray], run: Any) -> Any:
    params = eqn.params
    first, second = params["cond_consts"], params["body_consts"]
    for_test, for_body = operands[:first], operands[first : first + second]
    carry = operands[first + second :]
    while True:
        (goes_on,) = yield from run(params["cond"], [*for_test, *carry])
        if not goes_on.item():
            return list(carry)
        carry = yield from run(params["body"], [*for_body, *carry])


while_p = define_op(
    "while",
    type_rule=_while_type,
    multiple_results=True,
    typed=True,
    rule=no_rule,
    edges=_while_edges,
    partition=_while_partition,
    compile=_while_compile,
    effects=program_effects,
    shown=Shown(
        renamed={
            "cond": "cond_jaxpr",
            "body": "body_jaxpr",
            "cond_consts": "cond_nconsts",
            "body_consts": "body_nconsts",
        }
    ),
    keys=while_keys,
    narrow=narrow_while,
    region=_while_region,
    steps=_while_steps,
    **{
        rule: later("shardwise.transforms.bodies.while_rules", f"while_{rule}")
        for rule in ("jvp", "linearize", "transpose", "batch")
    },
)


# -- public ----------------------------------------------------------------------------------------------------------


@user_facing
def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Apply `body_fun` to a value, beginning with `init_val`, as long as `cond_fun` of it is true.

    Args:
        cond_fun: from the carry (a tree of arrays) to a bool scalar.
        body_fun: from the carry to the next carry: the same structure, the same types.
        init_val: the first carry. Weakly typed leaves take the dtype that the body gives them.

    Raises:
        TypeError: the predicate is no bool scalar, or the body changes the carry's structure or types, shardings over
            Explicit axes included; the message shows both types of each leaf.

    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 1)
    Array(128, dtype=int32, weak_type=True)
    """
    if not (callable(cond_fun) and callable(body_fun)):
        raise TypeError(
            f"lax.while_loop: body_fun and cond_fun arguments should be callable, got {body_fun!r} and {cond_fun!r}."
        )
    if config.jax_disable_jit:
        try:
            return _in_python(cond_fun, body_fun, init_val)
        except ConcretizationTypeError:  # the predicate is traced by vmap or the like
            pass

    def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
        if not references:
            return (), _while(cond_fun, body_fun, init_val)

        def test_state(state: Any) -> Any:
            with hold_references(references, state[0]):
                predicate = cond_fun(state[1])
                if any(r.held() is not given for r, given in zip(references, state[0], strict=True)):
                    raise NotImplementedError("cond_fun of while_loop writes a Ref. Write it in body_fun.")
                return predicate

        def step(state: Any) -> Any:
            with hold_references(references, state[0]):
                value = body_fun(state[1])
                return [r.held() for r in references], value

        return _while(test_state, step, ([r.held() for r in references], init_val))

    return with_references(run)


def _while(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    values, tree = flat_values(init_val)
    types = [v.aval for v in values]
    in_tree = treedef_tuple([tree])
    while True:
        cond = trace_body(cond_fun, in_tree, types, "while_loop cond_fun", known_as=(cond_fun, "while cond"))
        body = trace_body(body_fun, in_tree, types, "while_loop body", known_as=(body_fun, "while body"))
        varying_axes = _check_predicate(cond)
        if body.out_tree != tree:
            check_carry("while_loop body", body_fun, init_val, types, body.out_tree, body.out_types)
        new = [joined_type(t, o, varying_axes) for t, o in zip(types, body.out_types, strict=True)]
        if new == types:
            break
        types = new
    gained_axes = [t.vma - v.aval.vma for t, v in zip(types, values, strict=True)]
    if not all(map(matches, types, body.out_types, gained_axes)):
        check_carry("while_loop body", body_fun, init_val, types, body.out_tree, body.out_types, gained_axes)
    entry_values = [enter_carry(v, t) for v, t in zip(values, types, strict=True)]
    return tree_unflatten(tree, hand_out(_bind_while(cond, body, entry_values)))


def _bind_while(cond: Body, body: Body, entering: Sequence[Any]) -> list[Any]:
    """The last carry of a loop whose programs and first carry fit."""
    test, step, first = cond.program, body.program, len(cond.consts)
    is_tested = read_inputs(test)[first:]
    is_unchanged = unchanged_carries(step, len(body.consts), len(entering))
    still = [u and not a for u, a in zip(is_unchanged, is_tested, strict=True)]
    constants, init = apart(entering, still)
    if constants:
        _, carry_inputs = apart(test.inputs[first:], still)
        test = Program((*test.inputs[:first], *carry_inputs), test.equations, test.outputs, test.num_consts, test.name)
        step = with_constants(step, len(body.consts), still)
    outs = bind(
        while_p,
        *cond.consts,
        *constants,
        *body.consts,
        *init,
        cond=separate(test),
        body=separate(step),
        cond_consts=len(cond.consts),
        body_consts=len(constants) + len(body.consts),
    )
    return merge_masked(still, given_to_user(constants), outs)


def _check_predicate(cond: Any) -> frozenset[str]:
    """The axes over which the predicate varies; TypeError if it is no bool scalar."""
    if cond.out_tree.num_nodes != 1 or len(cond.out_types) != 1:
        raise TypeError(f"cond_fun must return a boolean scalar, but got pytree {cond.out_tree}.")
    (aval,) = cond.out_types
    if aval.shape or aval.dtype != _BOOL:
        raise TypeError(f"cond_fun must return a boolean scalar, but got output type(s) [{aval.str_short()}].")
    return aval.vma


def _in_python(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    value = tree_map(as_array, init_val)
    while bool(cond_fun(value)):
        value = tree_map(as_array, body_fun(value))
    return value
