"""The base of functions with derivatives given by hand: splitting their arguments, and symbolic zeros."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Self, cast, overload

import numpy as np

from shardwise.base.dtypes import float0
from shardwise.base.signatures import P, Q, R
from shardwise.base.tree import PyTreeDef, tree_leaves, tree_unflatten
from shardwise.base.wrapping import copy_identity
from shardwise.ir import (
    Op,
    Program,
    ProgramTrace,
    ShapedArray,
    Tracer,
    current_trace,
    define_op,
    is_eager,
    trace_of_operands,
    tracing,
)
from shardwise.ir.program import called_effects
from shardwise.ir.reference_arguments import TracedArguments, close_over
from shardwise.ir.references import STEPPED_OUT, Reference, root_of, shows_reference, with_references
from shardwise.ops.elementwise.casts import stop_gradient
from shardwise.ops.rules.convert import as_array, given_to_user
from shardwise.ops.rules.derivative import has_tangent
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer, tangent_type, zeros
from shardwise.transforms.tracing import from_beginning

Flat = Callable[..., Sequence[Any]]


class CustomVJPException(Exception):
    """A value that a function with a custom_vjp closes over is differentiated: its rules know of the arguments alone."""


def check_captured(tangents: Sequence[Any], name: str) -> None:
    """CustomVJPException where values that the function closes over have tangents, which the rules would drop."""
    if any(t is not None for t in tangents):
        raise CustomVJPException(
            f"Detected differentiation of the custom_vjp function {name} with respect to a closed-over value. Its rules say how to "
            "differentiate it with respect to its arguments alone: pass the value as an argument, and let the rules take it."
        )


def results_of(fun: Callable[..., Any], tree: Any) -> Any:
    """The result of a function with rules; ValueError if there is a Ref in it."""
    reference = next(filter(shows_reference, tree_leaves(tree)), None)
    if reference is not None:
        raise root_of(reference).return_error(function_name(fun), "custom derivatives")
    return tree


def positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments by position, defaults filled in; keyword-only ones are refused."""
    try:
        if isinstance(fun, functools.partial):
            raise ValueError("the keyword arguments that it fixes have no positions")
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except ValueError:  # no signature: a builtin
        if kwargs:
            raise TypeError(
                f"{function_name(fun)} has no signature to match keyword arguments with; pass them by position."
            ) from None
        return args
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            "The following keyword arguments could not be resolved to positions: "
            f"{', '.join(bound.kwargs)}. Functions with custom derivatives take arguments by position."
        )
    return bound.args


def function_name(fun: Any) -> str:
    """The name of a function in errors."""
    return getattr(fun, "__name__", str(fun))


@contextmanager
def without_tangents(values: Sequence[Any]) -> Generator[bool]:
    """Context of a function of the user's that gets `values`: the trace around those that record tangents, if no value is a tangent.

    Gives whether that is another trace than the current one.
    """
    trace, left = current_trace(), STEPPED_OUT.get()
    owners = [x.owner for x in values if isinstance(x, Tracer)]
    while isinstance(trace, ProgramTrace) and trace.is_linear and trace not in owners:
        left = (*left, trace)
        trace = trace.parent
    if trace is current_trace():
        yield False
        return
    with STEPPED_OUT.override(left), tracing(trace):
        yield True


class SymbolicZero:
    """A zero tangent or cotangent that is not computed: has `aval`, `shape` and `dtype`."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero:
        """The zero tangent of a value."""
        return SymbolicZero(tangent_type(as_array(val).aval))


class CustomVJPPrimal:
    """An argument of a forward rule with symbolic zeros: its `value`, and whether it is being differentiated."""

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool) -> None:
        self.value = value
        self.perturbed = perturbed


def zero_tangent(x: Any) -> Any:
    """A zero in the users' form: an array, or float0 for integers."""
    return zeros(x.aval) if has_tangent(x.aval) else np.zeros(x.shape, float0)


def rule_setter(custom: Any, name: str) -> Any:
    """`defjvp`, `defvjp` and the like of a function that is custom in more than one way, from the inner object."""
    if not name.startswith("def"):
        raise AttributeError(f"{type(custom).__name__!r} object has no attribute {name!r}", name=name, obj=custom)
    return getattr(custom.fun, name)


class Custom(Generic[P, R]):
    """The base of both kinds: the function, its constant arguments, and the splitting of a call."""

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Any = (), nondiff_argnames: Sequence[str] = ()) -> None:
        copy_identity(self, fun)
        self.fun: Callable[..., Any] = fun
        names = list(inspect.signature(fun).parameters) if nondiff_argnames else []
        for name in nondiff_argnames:
            if name not in names:
                raise ValueError(
                    f"nondiff_argnames names {name!r}, but {function_name(fun)} has the parameters {names}."
                )
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        for n in nums:
            if not isinstance(n, int):
                raise TypeError(
                    f"nondiff_argnums takes ints, the positions of arguments of {function_name(fun)}, got {n!r}."
                )
        self.nondiff_argnums = tuple(sorted({*nums, *(names.index(n) for n in nondiff_argnames)}))

    if TYPE_CHECKING:
        # of a method
        @overload
        def __get__(self, instance: None, owner: Any = None) -> Self: ...
        @overload
        def __get__(self: Custom[Concatenate[Any, Q], R], instance: object, owner: Any = None) -> Callable[Q, R]: ...
    else:
        __getattr__ = rule_setter

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(cast(Any, self), instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_rules()
        values = positional(self.fun, args, kwargs)
        if is_eager():
            trace = trace_of_operands(tree_leaves(values))
            if trace is None:
                return self._called_on_values(values)
            with tracing(trace):
                return cast(Any, self)(*values)
        with without_tangents(tree_leaves(values)) as outside:
            if outside:
                return cast(Any, self)(*values)
        return with_references(lambda references: self._with_state(references, values), self._references(values))

    def _check_rules(self) -> None:
        """AttributeError where the function has no rules yet."""
        raise NotImplementedError

    def _references(self, args: tuple[Any, ...]) -> Sequence[Reference]:
        """The references that the rules differentiate by, among the arguments of a call."""
        return ()

    def _with_state(self, references: Sequence[Reference], args: tuple[Any, ...]) -> tuple[Sequence[Any], Any]:
        """The call with the arrays of references as arguments and results; also gives the last arrays."""
        if not references:
            return (), self._record_call(args)
        last, result = self._over_state(references)([r.held() for r in references], *args)
        return stop_gradient(last), result  # rules write values, without derivatives

    def _over_state(self, references: Sequence[Reference]) -> Custom[..., Any]:
        """The function of the references' arrays, too."""
        raise NotImplementedError

    def _record_call(self, args: tuple[Any, ...]) -> Any:
        """The call under a trace."""
        raise NotImplementedError

    def _called_on_values(self, args: tuple[Any, ...]) -> Any:
        """Call the function itself; NumPy arrays and scalars become Arrays of JAX's dtypes first. Results are as it gives them."""
        _, smooth, join = self._split(args)
        leaves, structure = flat_arrays(smooth)
        return results_of(self.fun, self.fun(*join(tree_unflatten(structure, leaves))))

    def _differentiable(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        nums = from_beginning(self.nondiff_argnums, len(args))
        return tuple(a for i, a in enumerate(args) if i not in nums)

    def _split(
        self, args: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]:
        """Constant arguments, differentiable ones, and how both make up the call."""
        nums = from_beginning(self.nondiff_argnums, len(args))
        beyond = sorted(n for n in nums if n >= len(args))
        if beyond:
            raise IndexError(
                f"nondiff_argnums of {function_name(self.fun)} names position {beyond[0]}, but the call has {len(args)} arguments."
            )
        constant = tuple(a for i, a in enumerate(args) if i in nums)
        smooth = self._differentiable(args)

        count = len(args)  # programs keep `joined`, and must not keep the arguments with it

        def join_arguments(values: Sequence[Any]) -> tuple[Any, ...]:
            rest, rest_of_constants = iter(values), iter(constant)
            return tuple(next(rest_of_constants) if i in nums else next(rest) for i in range(count))

        closure = close_over(smooth, TracedArguments(self.fun, type(self).__name__, args))
        if closure is None:
            return constant, smooth, join_arguments
        without, rebuild = closure
        return constant, without, lambda values: join_arguments(rebuild(tuple(values)))


def flat_call(
    fun: Callable[..., Any], structure: PyTreeDef, joined: Callable[[Sequence[Any]], tuple[Any, ...]], note: list[Any]
) -> Flat:
    """`fun` from flat values to flat values; `note` gets the tree of the result."""

    def flat(*leaves: Any) -> list[Any]:
        given = tree_unflatten(structure, given_to_user(leaves))
        outs, out_tree = flat_arrays(results_of(fun, fun(*joined(given))))
        note[:] = [out_tree]
        return outs

    return flat


def call_under_jvp(
    trace: JVPTrace, leaves: Sequence[Any], flat: Flat, note: list[Any], rule: Callable[..., Any]
) -> Any:
    """Differentiate at once, without a program. Returns the tree of the results and the results."""
    pairs = [trace.unwrap(x) for x in leaves]
    if all(t is None for _, t in pairs):
        primals = [p for p, _ in pairs]
        with tracing(trace.parent), without_tangents(primals):
            outs = flat(*primals)
        return note[0], outs
    with tracing(trace.parent):
        outs, touts = rule([p for p, _ in pairs], [t for _, t in pairs])
    return note[0], [o if t is None else JVPTracer(trace, o, t) for o, t in zip(outs, touts, strict=True)]


def define_call(name: str, **fields: Any) -> Op:
    """Define an op that calls the program among its params and has rules of the user's; `fields` are the others of `Op`."""
    return define_op(
        name,
        holds_functions=True,
        type_rule=_called_type,
        multiple_results=True,
        typed=True,
        inline=lambda eqn: eqn.params["program"],
        effects=called_effects,
        **fields,
    )


def _called_type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return program.out_types
