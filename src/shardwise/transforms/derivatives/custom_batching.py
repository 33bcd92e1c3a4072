"""Batching given by hand: `custom_vmap`, a function with its own rule for `vmap`, and `sequential_vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from shardwise.base.tree import PyTreeDef, broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from shardwise.base.wrapping import copy_identity
from shardwise.ir import (
    Program,
    ShapedArray,
    Tracer,
    bind,
    current_trace,
    eval_program,
    is_eager,
    trace_of_operands,
    trace_program,
    tracing,
)
from shardwise.ir.op import Params
from shardwise.ops.control.scan import scan
from shardwise.ops.rules.convert import as_array, as_value, given_to_user
from shardwise.ops.rules.derivative import moved_to_front
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.transforms.bodies.derived_bodies import alive, pick_items, with_tangents
from shardwise.transforms.bodies.jit_rules import DerivedProgram
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.derivatives.custom_rules import define_call, function_name, positional, rule_setter
from shardwise.transforms.interpreters.batch_trace import BatchTrace, BatchTracer
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer, has_tangent, instantiate, jvp_program


class custom_vmap:
    """A function with its own rule for `vmap`.

    >>> @custom_vmap
    ... def f(x, y): ...
    >>> @f.def_vmap
    ... def f_vmap(axis_size, in_batched, x, y):
    ...     return out, out_batched

    `in_batched` and `out_batched` are trees of bools in the structure of the arguments and of the result; mapped values have
    their mapped dim first. AttributeError if the function is mapped without a rule.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        copy_identity(self, fun)
        self.fun = fun
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; returns it, for use as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(cast(Any, self), instance)

    __getattr__ = rule_setter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = positional(self.fun, args, kwargs)
        leaves, in_tree = flat_arrays(args)
        out_tree: PyTreeDef | None = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            outs, out_tree = flat_arrays(self.fun(*tree_unflatten(in_tree, values)))
            return outs

        program, consts = trace_program(flat, [x.aval for x in leaves], function_name(self.fun))
        assert out_tree is not None
        rule = _Rule(self, in_tree, out_tree)
        trace = trace_of_operands(leaves)
        if trace is None and is_eager():
            rule.check_defined()
            return tree_unflatten(out_tree, eval_program(program, [*consts, *leaves]))
        with tracing(trace or current_trace()):
            outs = bind(
                custom_vmap_op,
                *consts,
                *leaves,
                program=program,
                name=function_name(self.fun),
                count=len(consts),
                rule=rule,
            )
        return tree_unflatten(out_tree, outs)


class _Rule:
    """The user's rule, from flat values to flat values and their mapped dims."""

    __slots__ = ("custom", "in_tree", "out_tree")

    def __init__(self, custom: custom_vmap, in_tree: PyTreeDef, out_tree: PyTreeDef) -> None:
        self.custom = custom
        self.in_tree = in_tree
        self.out_tree = out_tree

    def check_defined(self) -> Callable[..., Any]:
        """The rule; AttributeError if none was set."""
        if self.custom.vmap_rule is None:
            name = function_name(self.custom.fun)
            raise AttributeError(f"No batching rule defined for custom_vmap function {name} using def_vmap.")
        return self.custom.vmap_rule

    def __call__(self, size: int, values: Sequence[Any], mapped: Sequence[bool]) -> tuple[list[Any], list[int | None]]:
        name, rule = function_name(self.custom.fun), self.check_defined()
        args, in_batched = tree_unflatten(self.in_tree, given_to_user(values)), tree_unflatten(self.in_tree, mapped)
        pair = rule(size, list(in_batched), *args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"The vmap rule of {name} must return a pair, the result and a tree of bools that says what of it is mapped, got {pair!r}."
            )
        out, out_batched = pair
        outs, tree = tree_flatten(out)
        if tree != self.out_tree:
            raise ValueError(
                f"structure of output value: the vmap rule of {name} must return the structure "
                f"that {name} returns, {self.out_tree}, got {tree}."
            )
        flags = broadcast_prefix(out_batched, out)
        return [as_array(as_value(o)) for o in outs], [0 if flag else None for flag in flags]


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    count = params["count"]
    if any(d is not None for d in dims[:count]):
        raise NotImplementedError(
            f"the custom_vmap function {params['name']} closes over a mapped value; pass it as an argument, so that the rule sees it."
        )
    fronts = [v if d is None else moved_to_front(v, d) for v, d in zip(values, dims, strict=True)]
    results, result_dims = params["rule"](size, fronts[count:], [d is not None for d in dims[count:]])
    for result, dim in zip(results, result_dims, strict=True):
        if dim is not None and (result.ndim == 0 or result.shape[0] != size):
            raise ValueError(
                f"The vmap rule of {params['name']} says that a result of shape {result.shape} is mapped, so its first dim must be {size}."
            )
    return results, result_dims


class _TangentRule:
    """The rule for the function of values and tangents: the derivative of the user's rule.

    `moving` says which arguments have tangents, `results` which results; `types` are those of the function's results.
    """

    __slots__ = ("moving", "results", "rule", "types")

    def __init__(
        self, rule: _FlatRule, moving: tuple[bool, ...], results: tuple[int, ...], types: Sequence[ShapedArray]
    ) -> None:
        self.rule = rule
        self.moving = moving
        self.results = results
        self.types = (*types, *[types[i] for i in results])

    def __call__(self, size: int, values: Sequence[Any], mapped: Sequence[bool]) -> tuple[list[Any], list[int | None]]:
        count, places = len(self.moving), [i for i, m in enumerate(self.moving) if m]
        tangents = dict(zip(places, mapped[count:], strict=True))
        if not any(mapped[i] and tangents.get(i, True) for i in range(count)):
            # No argument is mapped along with its tangent: the rule gets elements, and its derivative is mapped.
            outer = BatchTrace(size, None)
            with tracing(outer):
                one = [BatchTracer(outer, v, 0) if m else v for v, m in zip(values, mapped, strict=True)]
                outs, dims = self._push_mapped(size, one, [False] * count)
            outer.closed = True
            pairs = [outer.unwrap(o) for o in outs]
            # A rule that takes every argument for mapped says so of its result, too, which is one element of it.
            rows = [d is not None and v.ndim > t.ndim for (v, _), d, t in zip(pairs, dims, self.types, strict=True)]
            fronts = [v if d is None else moved_to_front(v, d) for v, d in pairs]
            return fronts, [0 if r or d is not None else None for (_, d), r in zip(pairs, rows, strict=True)]
        flags = [mapped[i] or tangents.get(i, False) for i in range(count)]
        wanted_flags = [*flags, *[flags[i] for i in places]]
        full = [
            broadcast_in_dim(v, (size, *v.shape), range(1, v.ndim + 1)) if want and not m else v
            for v, m, want in zip(values, mapped, wanted_flags, strict=True)
        ]
        return self._push_mapped(size, full, flags)

    def _push_mapped(self, size: int, values: Sequence[Any], flags: list[bool]) -> tuple[list[Any], list[int | None]]:
        """The results of the rule for values and tangents that are mapped alike."""
        count, given = len(self.moving), iter(values[len(self.moving) :])
        trace = JVPTrace()
        with tracing(trace):
            entry_values = [
                JVPTracer(trace, v, next(given)) if m else v for v, m in zip(values[:count], self.moving, strict=True)
            ]
            outs, dims = self.rule(size, entry_values, flags)
        trace.closed = True
        pairs = [trace.unwrap(o) for o in outs]
        tangents_out = [instantiate(pairs[i][1], pairs[i][0].aval) for i in self.results]
        return [*[p for p, _ in pairs], *tangents_out], [*dims, *[dims[i] for i in self.results]]


_FlatRule = _Rule | _TangentRule


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, name: str, count: int, rule: _FlatRule
) -> tuple[list[Any], list[Any]]:
    """One call for values and tangents, with the derivative of the rule.

    A reverse derivative is that of the function, and its maps are ordinary ones; so is the derivative of what the function closes over.
    """
    if any(map(_is_linear, tangents)) or any(t is not None for t in tangents[:count]):
        return jvp_program(program, primals, tangents)
    live = alive(tangents, primals)
    forced_results = tuple(has_tangent(t) for t in program.out_types)
    pushed_program: DerivedProgram = with_tangents(program, live, forced_results)
    outs = bind(
        custom_vmap_op,
        *pushed_program.consts,
        *primals,
        *pick_items(tangents, live),
        program=pushed_program.program,
        name=name,
        count=len(pushed_program.consts) + count,
        rule=_TangentRule(rule, live[count:], pushed_program.results, program.out_types),
    )
    total, tangent_of = (
        len(program.out_types),
        dict(zip(pushed_program.results, outs[len(program.out_types) :], strict=True)),
    )
    return outs[:total], [tangent_of.get(i) for i in range(total)]


def _is_linear(tangent: Any) -> bool:
    return isinstance(tangent, Tracer) and getattr(tangent.owner, "is_linear", False)


custom_vmap_op = define_call("custom_vmap_call", jvp=_jvp, batch=_batch)


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """`f`, whose `vmap` is a loop (`lax.scan`) over the mapped dim.

    >>> jax.vmap(jax.custom_batching.sequential_vmap(lambda x: x + 1))(jnp.arange(3))
    Array([1, 2, 3], dtype=int32)
    """

    mapped_function = custom_vmap(f)

    @mapped_function.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        flags = tree_flatten(in_batched)[0]

        def one(given: tuple[Any, ...]) -> Any:
            elements = iter(given)
            return f(*tree_unflatten(tree, [next(elements) if m else x for x, m in zip(leaves, flags, strict=True)]))

        rows = tuple(x for x, m in zip(leaves, flags, strict=True) if m)
        out = scan(lambda _, given: ((), one(given)), (), rows)[1]
        return out, tree_map(lambda _: True, out)

    return mapped_function
