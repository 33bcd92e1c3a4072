"""`custom_vjp`: a function whose reverse-mode derivative is given by a pair of rules.

The forward rule runs in place of the function; the backward pass records an equation that is linear in the tangents and
has only a transpose: the backward rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import float0, issubdtype
from shardwise.base.errors import UnexpectedTracerError
from shardwise.base.signatures import P, R
from shardwise.base.tree import (
    PyTreeDef,
    broadcast_prefix,
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
    treedef_is_leaf,
)
from shardwise.base.wrapping import name_of
from shardwise.ir import Equation, ShapedArray, Shown, Tracer, bind, current_trace, define_op, trace_program
from shardwise.ir.axis_scope import checks_variance
from shardwise.ir.op import Params
from shardwise.ir.references import EndedReferenceError, Reference
from shardwise.ops.elementwise.casts import convert, stop_gradient
from shardwise.ops.rules.convert import as_array, as_value, given_to_user
from shardwise.ops.rules.derivative import has_tangent
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.derivatives.custom_rules import (
    Custom,
    CustomVJPPrimal,
    SymbolicZero,
    call_under_jvp,
    check_captured,
    define_call,
    flat_call,
    function_name,
    results_of,
    without_tangents,
)
from shardwise.transforms.derivatives.mapped_rules import MappedRules, mapped_results
from shardwise.transforms.derivatives.reference_rules import over_state
from shardwise.transforms.interpreters.batch_trace import Alike
from shardwise.transforms.interpreters.jvp import JVPTrace, apart, tangent_type, zeros


class custom_vjp(Custom[P, R]):
    """A function whose reverse-mode derivative is given by a pair of rules.

    >>> sqrt = custom_vjp(jnp.sqrt)
    >>> sqrt.defvjp(lambda x: (jnp.sqrt(x), x), lambda x, ct: (jnp.where(x > 0, 0.5 * ct / jnp.sqrt(x), 0.0),))
    >>> print(jax.grad(sqrt)(0.0), jax.grad(sqrt)(4.0))
    0.0 0.25

    ``f_fwd(*args) -> (out, residuals)`` and ``f_bwd(*nondiff, residuals, ct) -> tuple of one cotangent (or None) per
    differentiable argument``. Forward mode raises TypeError.
    """

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Any = (), nondiff_argnames: Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rules. With `symbolic_zeros` `fwd` gets `CustomVJPPrimal`s and `bwd` may get `SymbolicZero`s.

        `optimize_remat` has no effect: `fwd` is always traced, so a checkpoint leaves out the parts that it does not need.
        """
        del optimize_remat
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def _check_rules(self) -> None:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {function_name(self.fun)} using defvjp.")

    def _references(self, args: tuple[Any, ...]) -> Sequence[Reference]:
        return [x for a in self._differentiable(args) for x in tree_leaves(a) if isinstance(x, Reference)]

    def _with_state(self, references: Sequence[Reference], args: tuple[Any, ...]) -> tuple[Sequence[Any], Any]:
        if not references:
            return (), self._record_call(args)
        passed_references, written_places = self._references(args), set[int]()
        fun, forward, backward = over_state(self, references, self._differentiable(args), written_places)
        over_values = custom_vjp(fun, tuple(n + 1 for n in self.nondiff_argnums))
        over_values.defvjp(forward, backward, self.symbolic_zeros)
        last, result = over_values._record_call(([r.held() for r in passed_references], *args))
        for i, r in enumerate(references):
            if i not in written_places:
                last[i] = r.held()
            elif i >= len(passed_references):
                last[i] = stop_gradient(last[i])  # rules write values, without derivatives
        return last, result

    def _record_call(self, args: tuple[Any, ...]) -> Any:
        constant, smooth, join = self._split(args)
        for leaf in tree_leaves(constant):
            if isinstance(leaf, Tracer):
                raise UnexpectedTracerError(
                    f"a traced array ({leaf.aval.str_short()}) was passed to the custom_vjp function "
                    f"{function_name(self.fun)} as an argument that "
                    "nondiff_argnums names. These are for functions and static values; pass arrays as differentiable arguments, and "
                    "return None for their cotangents."
                )
        leaves, structure = flat_arrays(smooth)
        note: list[Any] = []
        flat = flat_call(self.fun, structure, join, note)
        rules = _VjpRules(self, constant, structure, join, len(smooth))
        trace = current_trace()
        if isinstance(trace, JVPTrace):
            return tree_unflatten(
                *call_under_jvp(trace, leaves, flat, note, lambda ps, ts: _linear_tangents(rules, note, ps, ts))
            )
        program, consts = trace_program(flat, [x.aval for x in leaves], function_name(self.fun))
        out_tree = note[0]
        outs = bind(
            custom_vjp_op,
            *consts,
            *leaves,
            program=program,
            name=function_name(self.fun),
            count=len(consts),
            rules=rules,
            out_tree=out_tree,
        )
        return tree_unflatten(out_tree, outs)


_UNTRACED_TYPES = (bool, int, float, complex, Reference)


class _Constant:
    """A Python number or a reference among the residuals: part of their structure, so that the backward rule gets it unchanged."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


register_pytree_node(_Constant, lambda c: ((), (type(c.value), c.value)), lambda kept, _: _Constant(kept[1]))


class _VjpRules:
    """The user's two rules, on flat values."""

    def __init__(
        self,
        custom: custom_vjp[..., Any],
        constant: tuple[Any, ...],
        structure: PyTreeDef,
        joined: Callable[[Sequence[Any]], tuple[Any, ...]],
        count: int,
    ) -> None:
        self.custom = custom
        self.constant = constant
        self.structure = structure
        self.joined = joined
        self.count = count

    @property
    def symbolic_zeros(self) -> bool:
        """Whether the forward rule asks which arguments are differentiated."""
        return self.custom.symbolic_zeros

    def forward(
        self, primals: Sequence[Any], perturbed: Sequence[bool], note: list[Any]
    ) -> tuple[list[Any], list[Any], PyTreeDef]:
        """Results, residuals, and the residuals' tree."""
        custom = self.custom
        assert custom.fwd is not None
        primals = given_to_user(primals)
        given = (
            [CustomVJPPrimal(p, b) for p, b in zip(primals, perturbed, strict=True)]
            if custom.symbolic_zeros
            else primals
        )
        with without_tangents(primals):
            pair = custom.fwd(*self.joined(tree_unflatten(self.structure, given)))
        name, rule = function_name(custom.fun), function_name(custom.fwd)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                f"Custom VJP fwd rule {rule} for function {name} must produce a pair (list or tuple of "
                f"length two) where the first "
                f"element represents the primal output and the second element represents residuals, but "
                f"got {pair}."
            )
        outs, out_tree = flat_arrays(results_of(custom.fwd, pair[0]))
        if note and note[0] != out_tree:
            raise TypeError(
                f"Custom VJP fwd rule {rule} for function {name} must produce a pair whose first element "
                f"has the structure that "
                f"{name} returns, {note[0]}, but got {out_tree}."
            )
        note[:] = [out_tree]
        if any(isinstance(x, Reference) and x.has_ended for x in tree_leaves(pair[1])):
            raise EndedReferenceError
        wrapped_residuals = tree_map(lambda x: _Constant(x) if isinstance(x, _UNTRACED_TYPES) else x, pair[1])
        residuals, residual_tree = flat_arrays(wrapped_residuals)
        return outs, residuals, residual_tree

    def backward(
        self,
        residuals: Sequence[Any],
        residual_tree: PyTreeDef,
        cts: Sequence[Any],
        out_tree: PyTreeDef,
        types: Sequence[ShapedArray],
        ct_types: Sequence[ShapedArray],
    ) -> list[Any]:
        """A cotangent or None per flat input."""
        custom = self.custom
        assert custom.bwd is not None
        empty = (lambda t: SymbolicZero(tangent_type(t))) if custom.symbolic_zeros else _host_zero
        given = [empty(t) if c is None else c for c, t in zip(given_to_user(cts), ct_types, strict=True)]
        wrapped_residuals = tree_unflatten(residual_tree, given_to_user(residuals))
        is_constant = lambda x: isinstance(x, _Constant)  # noqa: E731
        own_residuals = tree_map(lambda x: x.value if is_constant(x) else x, wrapped_residuals, is_leaf=is_constant)
        cotangents = custom.bwd(*self.constant, own_residuals, tree_unflatten(out_tree, given))
        return self._check_cotangents(cotangents, types)

    def _check_cotangents(self, cotangents: Any, types: Sequence[ShapedArray]) -> list[Any]:
        name, rule = function_name(self.custom.fun), function_name(self.custom.bwd)
        if isinstance(cotangents, list):
            cotangents = tuple(cotangents)
        if not isinstance(cotangents, tuple) or len(cotangents) != self.count:
            raise TypeError(
                f"Custom VJP bwd rule {rule} must produce an output with the same container (pytree) "
                f"structure as the args tuple of "
                f"the primal function, and in particular must produce a tuple of length equal to the "
                f"number of arguments to the "
                f"primal function, but got "
                f"{'a tuple of length ' + str(len(cotangents)) if isinstance(cotangents, tuple) else type(cotangents)} "
                f"for {self.count} differentiable arguments of {name}."
            )
        empty = lambda x: x is None or isinstance(x, SymbolicZero)  # noqa: E731
        arguments = tree_unflatten(self.structure, list(types))
        flat: list[Any] = []
        for i, (ct, argument) in enumerate(zip(cotangents, arguments, strict=True)):
            argument_leaves, tree = tree_flatten(argument)
            if ct is None or (isinstance(ct, SymbolicZero) and not treedef_is_leaf(tree)):
                flat += [None] * len(argument_leaves)
                continue
            try:
                leaves = broadcast_prefix(ct, argument, is_leaf=empty)
            except ValueError:
                given = tree_flatten(ct, is_leaf=empty)[1]
                raise TypeError(
                    f"Custom VJP bwd rule {rule} must produce an output with the same container (pytree) structure as the "
                    f"args tuple of the primal function; for argument {i} of {name} that is {tree}, got {given}."
                ) from None
            flat += [self._leaf(c, t) for c, t in zip(leaves, argument_leaves, strict=True)]
        return flat

    def _leaf(self, ct: Any, aval: ShapedArray) -> Any:
        if ct is None or not has_tangent(aval):
            return None
        if isinstance(ct, SymbolicZero):
            if (ct.shape, ct.dtype) != (aval.shape, aval.dtype):
                raise ValueError(
                    f"Custom VJP bwd rule {function_name(self.custom.bwd)} for function {function_name(self.custom.fun)} produced a "
                    f"SymbolicZero with a shape/dtype that does not match the corresponding argument's, {aval.str_short()}: got "
                    f"{ct.aval.str_short()}. Consider just returning a None here."
                )
            return None
        value = as_array(as_value(ct))
        missing_axes = aval.vma - value.aval.vma
        if missing_axes and checks_variance():
            # A cotangent that varies over more axes is summed over them. One that varies over fewer may be such a sum already.
            raise ValueError(
                f"Custom VJP bwd rule {function_name(self.custom.bwd)} for function {function_name(self.custom.fun)} must produce an "
                f"output with the same type as the argument, {aval.str_short()}, but got {value.aval.str_short()}: the manual axis "
                f"types do not match. Leave out its sum over these axes, or apply jax.lax.pcast(..., {tuple(sorted(missing_axes))}, "
                "to='varying') to it."
            )
        if value.shape == aval.shape and apart(aval, value.aval):
            raise ValueError(
                f"Custom VJP bwd rule {function_name(self.custom.bwd)} for function {function_name(self.custom.fun)} must produce an "
                f"output with the same type as the argument, {aval.str_short()}, but got {value.aval.str_short()}: reshard it."
            )
        if value.shape == aval.shape and (issubdtype(aval.dtype, np.complexfloating) or value.dtype.kind != "c"):
            return convert(value, aval.dtype, value.weak_type and value.dtype == aval.dtype)
        if value.shape != aval.shape or value.dtype != aval.dtype:
            raise ValueError(
                f"Custom VJP bwd rule {function_name(self.custom.bwd)} for function "
                f"{function_name(self.custom.fun)} must produce cotangents with the "
                f"shapes and dtypes of the arguments: expected {aval.str_short()}, got {value.aval.str_short()}."
            )
        return value


def _host_zero(aval: ShapedArray) -> Any:
    return zeros(aval) if has_tangent(aval) else np.zeros(aval.shape, float0)


def _linear_tangents(
    rules: Any, note: list[Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Results, and tangents that have only a transpose."""
    outs, residuals, residual_tree = rules.forward(primals, [t is not None for t in tangents], note)
    return outs, tangents_by_rule(rules, residual_tree, note[0], primals, tangents, outs, residuals)


def tangents_by_rule(
    rules: Any,
    residual_tree: PyTreeDef,
    out_tree: PyTreeDef,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: Sequence[Any],
    residuals: Sequence[Any],
) -> list[Any]:
    """The tangents of `outs`, which the forward rule gave with `residuals`."""
    live_outs = [i for i, o in enumerate(outs) if has_tangent(o.aval)]
    touts = bind(
        custom_lin_op,
        *residuals,
        *[t for t in tangents if t is not None],
        rules=rules,
        residual_tree=residual_tree,
        count=len(residuals),
        types=tuple(p.aval for p in primals),
        live=tuple(t is not None for t in tangents),
        out_tree=out_tree,
        out_types=tuple(o.aval for o in outs),
    )
    tangent_of = dict(zip(live_outs, touts, strict=True))
    return [tangent_of.get(i) for i in range(len(outs))]


def _lin_type(*types: ShapedArray, out_types: tuple[ShapedArray, ...], **_: Any) -> tuple[ShapedArray, ...]:
    return tuple(tangent_type(t) for t in out_types if has_tangent(t))


def _lin_transpose(
    cts: Sequence[Any],
    *args: Any,
    rules: Any,
    residual_tree: PyTreeDef,
    count: int,
    types: tuple[ShapedArray, ...],
    live: tuple[bool, ...],
    out_tree: PyTreeDef,
    out_types: tuple[ShapedArray, ...],
) -> list[Any]:
    given = iter(cts)
    full = [next(given) if has_tangent(t) else None for t in out_types]
    cotangents = rules.backward(args[:count], residual_tree, full, out_tree, types, out_types)
    return [None] * count + [ct for ct, alive in zip(cotangents, live, strict=True) if alive]


def _forward_mode(*args: Any, **params: Any) -> Any:
    raise TypeError(
        "can't apply forward-mode differentiation (jvp) to a custom_vjp function. Use reverse mode (grad, vjp), or "
        "give the derivative with custom_jvp."
    )


def _lin_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """The batched backward rule; an operand that is not mapped gets the sum of its cotangents."""
    count, live, types = params["count"], params["live"], params["types"]
    tangent_dims = iter(dims[count:])
    own = tuple(next(tangent_dims) if alive else None for alive in live)
    rules = MappedRules(params["rules"], size, axis_name, own, tuple(dims[:count]), types)
    full = lambda t: t.update(shape=(size, *t.shape), spec=((), *t.spec))  # noqa: E731
    out_types = tuple(full(t) for t in params["out_types"])
    outs = bind(custom_lin_op, *values, **{**params, "rules": rules, "out_types": out_types, "types": rules.types})
    return outs, [0] * len(outs)


custom_lin_op = define_op(
    "custom_lin",
    holds_functions=True,
    type_rule=_lin_type,
    multiple_results=True,
    typed=True,
    jvp=_forward_mode,
    transpose=_lin_transpose,
    inline=_forward_mode,
    batch=_lin_batch,
)


def _custom_vjp_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, rules: Any, out_tree: PyTreeDef, **params: Any
) -> tuple[list[Any], list[Any]]:
    check_captured(tangents[:count], params["name"])
    if all(t is None for t in tangents[count:]):
        outs = bind(custom_vjp_op, *primals, count=count, rules=rules, out_tree=out_tree, **params)
        return outs, [None] * len(outs)
    outs, touts = _linear_tangents(rules, [out_tree], primals[count:], tangents[count:])
    check_forward_types(rules, params, outs)
    return outs, touts


def check_forward_types(rules: Any, params: Params, outs: Sequence[Any]) -> None:
    """TypeError unless the results of the forward rule, `outs`, have the types of the function's in a program that is recorded."""
    types = params["program"].out_types
    forward_types = [o.aval for o in outs]
    if [(t.shape, t.dtype) for t in forward_types] != [(t.shape, t.dtype) for t in types]:
        while isinstance(rules, MappedRules):
            rules = rules.rules
        raise TypeError(
            f"Custom VJP fwd rule {function_name(rules.custom.fwd)} for function {params['name']} must produce a pair (list or tuple of "
            f"length two) whose first element has the types of what {params['name']} returns, {[t.str_short() for t in types]}, but got "
            f"{[t.str_short() for t in forward_types]}."
        )


def _custom_vjp_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | Alike]]:
    count = params["count"]
    program, consts, alike = mapped_results(size, axis_name, values, dims, params["program"])
    rules = MappedRules(params["rules"], size, axis_name, tuple(dims[count:]))
    outs = bind(
        custom_vjp_op,
        *consts,
        *values,
        program=program,
        name=params["name"],
        count=len(consts) + count,
        rules=rules,
        out_tree=params["out_tree"],
    )
    return outs, alike


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """The rules by their names, and whether they ask for zeros, as in JAX."""
    custom = getattr(eqn.params["rules"], "custom", None)
    rules = {} if custom is None else {"fwd": name_of(custom.fwd), "bwd": name_of(custom.bwd)}
    return {**shown, **rules, "symbolic_zeros": custom is not None and custom.symbolic_zeros}


custom_vjp_op = define_call(
    "custom_vjp_call",
    jvp=_custom_vjp_jvp,
    batch=_custom_vjp_batch,
    shown=Shown(
        renamed={"program": "call_jaxpr"}, hidden=frozenset({"count", "rules", "out_tree"}), change=_shown_params
    ),
)
