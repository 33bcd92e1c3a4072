"""`scan`: a loop of known length over the leading dim of arrays, run as a Python loop over one compiled plan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import physical
from shardwise.base.errors import ConcretizationTypeError
from shardwise.base.shapes import Ndarray
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten, treedef_children, treedef_tuple
from shardwise.ir import Atom, Equation, Loop, Program, ShapedArray, Shown, Tracer, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ir.reference_arguments import check_distinct
from shardwise.ir.references import (
    ProxiedReferences,
    Reference,
    hold_references,
    is_reference,
    refuse_views,
    with_references,
)
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
from shardwise.ops.control.body_change import changed_body
from shardwise.ops.control.control_keys import scan_keys
from shardwise.ops.control.narrow import narrow_scan
from shardwise.ops.control.regions import (
    LoopKernel,
    layout,
    local_program,
    loop_plan,
    move_operand,
    no_rule,
    settle_variance,
)
from shardwise.ops.control.step_stack import StepStack
from shardwise.ops.control.unchanged import (
    apart,
    handed_entries,
    merge_masked,
    unchanged_carries,
    with_constants,
    with_results,
)
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.rules.convert import as_array, as_value, given_to_user, hand_out
from shardwise.ops.rules.derivative import later
from shardwise.ops.shapes import stack
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.env import Env
from shardwise.runtime.loop import loop_of

# -- the op ----------------------------------------------------------------------------------------------------------
# Operands: the values that the body captured, the carry, the arrays scanned over. Results: the carry, the stacked outputs.


def _scan_type(
    *types: ShapedArray,
    body: Program,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool,
) -> tuple[ShapedArray, ...]:
    carry = final_types(body.in_types[num_consts : num_consts + num_carry], body.out_types[:num_carry])
    return (*carry, *[stacked_type(t, length) for t in body.out_types[num_carry:]])


def stacked_type(t: ShapedArray, length: int) -> ShapedArray:
    """The type of `length` values of type `t`, stacked along a new, unsplit first dim."""
    return t.update(shape=(length, *t.shape), spec=((), *t.spec))


def slice_type(t: ShapedArray) -> ShapedArray:
    """The type of one entry along the first dim."""
    return t.update(shape=t.shape[1:], spec=t.spec[1:])


def _parts(items: Sequence[Any], params: Params) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Items, one per operand, for the captured values, the carry and the scanned arrays."""
    a = params["num_consts"]
    b = a + params["num_carry"]
    return items[:a], items[a:b], items[b:]


def _scan_region(eqn: Equation) -> Loop:
    params = eqn.params
    a, end = params["num_consts"], params["num_consts"] + params["num_carry"]
    rows = slice(end, len(eqn.inputs))
    return Loop(
        params["body"], slice(0, a), slice(a, end), rows, params["length"], params["reverse"], counted="num_consts"
    )


def _scan_edges(eqn: Equation) -> list[list[Any]]:
    body, n = eqn.params["body"], eqn.params["num_carry"]
    (consts, init, xs), (const_vars, carry_vars, x_vars) = (
        _parts(eqn.inputs, eqn.params),
        _parts(body.inputs, eqn.params),
    )
    groups: list[list[Any]] = [list(pair) for pair in zip(consts, const_vars, strict=True)]
    groups += [list(g) for g in zip(init, carry_vars, body.outputs[:n], eqn.outputs[:n], strict=True)]
    groups += [[(x, 1), (v, 0)] for x, v in zip(xs, x_vars, strict=True)]
    groups += [[(y, 0), (out, 1)] for y, out in zip(body.outputs[n:], eqn.outputs[n:], strict=True)]
    return groups


def _scan_partition(region: Any, eqn: Equation) -> None:
    params, body = eqn.params, eqn.params["body"]
    n = params["num_carry"]
    const_dims, carry_dims, x_dims = _parts([layout(region, v) for v in body.inputs], params)
    consts, init, xs = _parts(eqn.inputs, params)
    wanted_layouts = [*const_dims, *carry_dims, *[((), *d) for d in x_dims]]
    atoms: list[Atom] = [move_operand(region, a, d) for a, d in zip((*consts, *init, *xs), wanted_layouts, strict=True)]
    const_atoms, carry, x_atoms = _parts(atoms, params)
    y_dims = [layout(region, v)[1:] for v in eqn.outputs[n:]]

    def build(axes: list[frozenset[str]]) -> tuple[Program, list[frozenset[str]]]:
        inputs = [
            *zip(const_dims, [a.aval.vma for a in const_atoms], strict=True),
            *zip(carry_dims, axes, strict=True),
            *zip(x_dims, [a.aval.vma for a in x_atoms], strict=True),
        ]
        loop = (params["num_consts"], params["length"])
        local = local_program(region, body, inputs, [*carry_dims, *y_dims], loop)
        return local, [t.vma for t in local.out_types[:n]]

    local = settle_variance(build, [a.aval.vma for a in carry])
    outs = region.emit(scan_p, atoms, {**params, "body": local})
    for var, out, dims in zip(eqn.outputs, outs, [*carry_dims, *[((), *d) for d in y_dims]], strict=True):
        placement = region.placements.get(var, dims)
        region.define(var, region.reshard(out, dims, placement, var.aval), placement)


def _scan_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    if not env.lead:
        settings = [params[k] for k in ("num_consts", "num_carry", "length", "reverse")]
        return LoopKernel(loop_of(params["body"], env, *settings))
    step = loop_plan(params["body"], env, params["num_consts"], params["num_carry"])
    lead, n, length = env.lead, params["num_carry"], params["length"]
    order = range(length - 1, -1, -1) if params["reverse"] else range(length)
    y_types = out_types[n:]

    def run_carry(blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        carry: Sequence[Ndarray]
        consts, carry, _ = _parts(blocks, params)
        blocks.clear()
        for _ in order:
            given = [*consts, *carry]
            carry = ()  # so that only the list refers to the results of a step
            carry = step(given)
        return tuple(carry)

    def run(blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        carry: Sequence[Ndarray]
        consts, carry, xs = _parts(blocks, params)
        blocks.clear()
        rows = [with_dim_at(x, lead, 0) for x in xs]
        stacks = [StepStack(length) for _ in y_types]
        for i in order:
            given = [*consts, *carry, *[r[i] for r in rows]]
            carry = outs = ()
            outs = step(given)
            carry = outs[:n]
            for s, y in zip(stacks, outs[n:], strict=True):
                s.put(i, y)
            del outs
        return (*carry, *[s.block(lead, t) for s, t in zip(stacks, y_types, strict=True)])

    return LoopKernel(run if y_types or len(in_types) > params["num_consts"] + n else run_carry)


def _scan_steps(eqn: Equation, operands: Sequence[Ndarray], run: Any) -> Any:
    params = eqn.params
    first, n = params["num_consts"], params["num_carry"]
    consts, carry, xs = operands[:first], operands[first : first + n], operands[first + n :]
    rows: list[Sequence[Ndarray]] = [()] * params["length"]
    for i in reversed(range(len(rows))) if params["reverse"] else range(len(rows)):
        outs = yield from run(params["body"], [*consts, *carry, *[np.asarray(x[i]) for x in xs]])
        carry, rows[i] = outs[:n], outs[n:]
    stacked_results = [
        np.stack([row[k] for row in rows]) if rows else np.empty(v.aval.shape, physical(v.aval.dtype))
        for k, v in enumerate(eqn.outputs[n:])
    ]
    return [*carry, *stacked_results]


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    more = {"linear": (False,) * len(eqn.inputs), "_split_transpose": False}
    return {"unroll": 1, **(more if config.dialect.jaxprs.scan_shows_linear else {}), **shown}


scan_p = define_op(
    "scan",
    type_rule=_scan_type,
    multiple_results=True,
    typed=True,
    rule=no_rule,
    edges=_scan_edges,
    partition=_scan_partition,
    compile=_scan_compile,
    effects=program_effects,
    rewrite=later("shardwise.transforms.bodies.scan_fission", "split_scan"),
    shown=Shown(renamed={"body": "jaxpr"}, change=_shown_params),
    keys=scan_keys,
    narrow=narrow_scan,
    region=_scan_region,
    steps=_scan_steps,
    **{
        rule: later("shardwise.transforms.bodies.scan_rules", f"scan_{rule}")
        for rule in ("jvp", "linearize", "transpose", "batch")
    },
)


# -- public ----------------------------------------------------------------------------------------------------------


@user_facing
def scan(
    f: Callable[[Any, Any], tuple[Any, ...] | list[Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Carry a value through the entries of `xs` along their first dim: ``carry, y = f(carry, x)`` for each.

    Args:
        f: from a carry and an entry of `xs` to the next carry (same structure, same types) and an output.
        init: the first carry. Weakly typed leaves take the dtype that `f` gives them.
        xs: a tree of arrays that share the size of their first dim, which must be unsplit over Explicit axes; or None.
        length: the number of steps; needed where `xs` has no arrays.
        reverse: go from the last entry to the first.
        unroll, _split_transpose: hints for XLA's loops. They are checked and change nothing: no step has a cost of its own.

    Returns:
        The last carry, and the outputs stacked along a new first dim.

    Raises:
        TypeError: `f` returns no pair, or changes the carry's structure or types; the message shows both types of each leaf.
        ValueError: no length, or lengths that differ; a split first dim.

    >>> lax.scan(lambda total, x: (total + x, total), 0, jnp.array([1, 2, 3]))
    (Array(6, dtype=int32), Array([0, 1, 3], dtype=int32, weak_type=True))
    """
    if not callable(f):
        raise TypeError(f"lax.scan: f argument should be a callable, got {f!r}.")
    check_unroll(unroll)
    leaves = tree_leaves(xs)
    refuse_views(leaves, "scan")
    if any(map(is_reference, leaves)):
        return _over_rows(f, init, xs, length, reverse)
    x_values, x_tree = _scan_operands(xs)
    n = _scan_length(x_values, length)
    if config.jax_disable_jit:
        try:
            return _in_python(f, init, x_values, x_tree, n, reverse)
        except ConcretizationTypeError:
            pass
    body = changed_body(f)
    return scan_body(body, init, x_values, x_tree, n, reverse, "scan body", known_as=(body, "scan"), blame=f)


def scan_body(
    f: Callable[..., Any],
    init: Any,
    x_values: Sequence[Any],
    x_tree: Any,
    length: int,
    reverse: bool,
    name: str,
    *,
    known_as: tuple[Any, str],
    blame: Callable[..., Any],
) -> tuple[Any, Any]:
    """`scan` after its checks. `blame` is the user's function, whose parameter names errors show."""
    rest = (x_values, x_tree, length, reverse, name)

    def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
        if not references:
            return (), _scan_body(f, init, *rest, known_as, blame)

        def step(state: Any, x: Any) -> Any:
            with hold_references(references, state[0]):
                carry, y = f(state[1], x)
                return ([r.held() for r in references], carry), y

        entry_carry = ([r.held() for r in references], init)
        (last, carry), ys = _scan_body(step, entry_carry, *rest, (step, "scan"), blame)
        return last, (carry, ys)

    return with_references(run)


def _over_rows(f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool) -> tuple[Any, Any]:
    """`scan` with references in `xs`: each step gets references to the rows."""
    references = [x for x in tree_leaves(xs) if is_reference(x)]
    check_distinct(references)
    proxies = ProxiedReferences(references)

    def step(carry: Any, given: Any) -> Any:
        rows, others = given
        own = [r.another(row) for r, row in zip(references, rows, strict=True)]
        left, right = iter(own), iter(others)
        given = tree_map(lambda x: next(left) if is_reference(x) else next(right), xs)
        last, (carry, y) = proxies.run(own, lambda: f(carry, given))
        return carry, (last, y)

    others = [x for x in tree_leaves(xs) if not is_reference(x)]
    carry, (last, ys) = scan(step, init, ([r.held() for r in references], others), length, reverse)
    proxies.store(last)
    return carry, ys


def _scan_body(
    f: Callable[..., Any],
    init: Any,
    x_values: Sequence[Any],
    x_tree: Any,
    length: int,
    reverse: bool,
    name: str,
    known_as: tuple[Any, str],
    blame: Callable[..., Any],
) -> tuple[Any, Any]:
    values, tree = flat_values(init)
    types = [v.aval for v in values]
    x_types = [slice_type(x.aval) for x in x_values]
    in_tree = treedef_tuple([tree, x_tree])
    while True:
        body = trace_body(f, in_tree, [*types, *x_types], name, known_as=known_as)
        carry_tree, y_tree = _pair(body, name)
        out_types = body.out_types[: carry_tree.num_leaves]
        if carry_tree != tree:
            check_carry(name, blame, init, types, carry_tree, out_types)
        new = [joined_type(t, o) for t, o in zip(types, out_types, strict=True)]
        if new == types:
            break
        types = new
    if not all(map(matches, types, out_types)):
        check_carry(name, blame, init, types, carry_tree, out_types)
    entry_values = [enter_carry(v, t) for v, t in zip(values, types, strict=True)]
    carry, ys = _bind_scan(body, entry_values, x_values, length, bool(reverse))
    return tree_unflatten(tree, hand_out(carry)), tree_unflatten(y_tree, hand_out(ys))


def _bind_scan(
    body: Body, entering: Sequence[Any], x_values: Sequence[Any], length: int, reverse: bool
) -> tuple[list[Any], list[Any]]:
    """The last carry and the stacked outputs of a loop whose body and first carry fit."""
    program, n = body.program, len(entering)
    still = unchanged_carries(program, len(body.consts), n)
    entries = list(handed_entries(program, n, len(x_values)))
    constants, init = apart(entering, still)
    if constants:
        program = with_constants(program, len(body.consts), still)
    if any(e is not None for e in entries):
        program = with_results(program, [True] * len(init) + [e is None for e in entries])
    outs = bind(
        scan_p,
        *constants,
        *body.consts,
        *init,
        *x_values,
        body=separate(program),
        num_consts=len(constants) + len(body.consts),
        num_carry=len(init),
        length=length,
        reverse=reverse,
    )
    stacked_outs = iter(outs[len(init) :])
    ys = [next(stacked_outs) if e is None else x_values[e] for e in entries]
    return merge_masked(still, given_to_user(constants), outs[: len(init)]), ys


def _pair(body: Body, name: str) -> tuple[Any, Any]:
    """The structures of the carry and of the output that a body returns."""
    children = treedef_children(body.out_tree)
    root = body.out_tree.node_data()
    if len(children) != 2 or root is None or not issubclass(root[0], (tuple, list)):
        raise TypeError(
            f"{name} output must be a pair, got {tree_unflatten(body.out_tree, list(body.out_types))}. "
            "Return (carry, output)."
        )
    return children[0], children[1]


def check_unroll(unroll: Any) -> None:
    """Raise unless `unroll` is a bool or an integer of at least 0 that is known while tracing."""
    if isinstance(unroll, Tracer):
        raise unroll.concretization_error("the `unroll` argument to `scan`")
    if not isinstance(unroll, bool) and operator.index(unroll) < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll!r}.")


def _scan_operands(xs: Any) -> tuple[list[Any], Any]:
    """The arrays to scan over, and their structure."""
    leaves, tree = tree_flatten(xs)
    values = [as_value(leaf) for leaf in leaves]
    bare = [leaf for leaf, v in zip(leaves, values, strict=True) if not v.ndim]
    if bare:
        raise ValueError(f"scan got value with no leading axis to scan over: {', '.join(map(str, bare))}.")
    return values, tree


def _scan_length(values: Sequence[Any], length: Any) -> int:
    if any(v.aval.spec[0] for v in values):
        specs_text = ", ".join(str(v.aval.sharding.spec) for v in values)
        raise ValueError(
            f"0th dimension of all xs should be replicated. Got {specs_text}. Reshard that dim to None first."
        )
    lengths = [v.shape[0] for v in values]
    if length is not None:
        if isinstance(length, Tracer):
            raise length.concretization_error(
                "the `length` argument to `scan` (use while_loop or fori_loop for a length that is not known)"
            )
        n = int(length)
        if any(m != n for m in lengths):
            raise ValueError(f"scan got `length` argument of {n} which disagrees with leading axis sizes {lengths}.")
        return n
    if not lengths:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    if len(set(lengths)) > 1:
        raise ValueError(f"scan got values with different leading axis sizes: {', '.join(map(str, lengths))}.")
    return lengths[0]


def _in_python(
    f: Callable[..., Any], init: Any, x_values: Sequence[Any], x_tree: Any, length: int, reverse: bool
) -> tuple[Any, Any]:
    """The loop as Python runs it, for `disable_jit`."""
    if not length:
        raise ValueError("zero-length scan is not supported in disable_jit() mode because the output type is unknown.")
    carry = tree_map(as_array, init)
    ys: list[Any] = []
    for i in range(length - 1, -1, -1) if reverse else range(length):
        carry, y = f(carry, tree_unflatten(x_tree, [index_in_dim(x, i, 0, keepdims=False) for x in x_values]))
        ys.append(y)
    if reverse:
        ys.reverse()
    _, y_tree = tree_flatten(ys[0])
    columns = zip(*[tree_leaves(y) for y in ys], strict=True)
    return carry, tree_unflatten(y_tree, [stack([as_array(v) for v in column]) for column in columns])
