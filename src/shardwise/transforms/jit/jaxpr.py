"""Tracing without running: `make_jaxpr` and `eval_shape`.

In: a function, and arguments or their `ShapeDtypeStruct`s. Out: a `ClosedJaxpr`, which prints as JAX's does, or the tree
of the results' types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.removed import ABSENT, old_argument
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.base.wrapping import name_of, wraps
from shardwise.engine.signature import Signature, signature
from shardwise.ir import ReferenceType, ShapedArray, trace_program
from shardwise.ir.axis_scope import MAPPED_AXES
from shardwise.ir.reference_arguments import check_distinct
from shardwise.ir.references import BY_IDENTITY, Reference, ReferenceValue, closed_views, open_views
from shardwise.ops.devices.parallel import AXIS_ENV
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import SingleDeviceSharding
from shardwise.sharding.backend import default_device
from shardwise.transforms.jit.abstract import Abstract, bind_abstract, references_made, struct_of
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.references import ReferenceArgument
from shardwise.transforms.jit.shown_calls import showing_calls
from shardwise.transforms.jit.stages import trace_call
from shardwise.transforms.jit.wrapped import JitWrapped
from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr
from shardwise.transforms.tracing import TYPES_SUFFICE, check_output


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: Any = (),
    axis_env: Sequence[tuple[str, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = ABSENT,
) -> Callable[..., Any]:
    """A function that takes `fun`'s arguments and returns the program traced for them.

    `axis_env` lists (name, size) of the mesh axes that collectives in `fun` may use. With `return_shape` the result
    is a pair: the program, and the tree of the results' ShapeDtypeStructs. Nothing is computed; arguments may be
    ShapeDtypeStructs. `static_argnums` are constants of the trace.

    Raises:
        TypeError: `fun` is no function. NotImplementedError: `abstracted_axes` is given, as every shape has its own
            program.

    >>> jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0 in (c,) }
    """
    if not callable(fun):
        raise TypeError(f"make_jaxpr: the first argument must be callable, got {fun!r}")
    if old_argument("make_jaxpr", "abstracted_axes", abstracted_axes, "every shape has its own program") is not None:
        raise NotImplementedError(
            "abstracted_axes (shape polymorphism) is not supported: every shape has its own program. Drop the argument."
        )
    jit_function = jit(
        fun, static_argnums=tuple(static_argnums) if isinstance(static_argnums, (list, tuple)) else static_argnums
    )

    @wraps(fun)
    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            call = bind_abstract(jit_function, args, kwargs)
        except ReferenceArgument:
            args, kwargs = open_views(references_made((args, kwargs)))
            check_distinct([x for x in tree_leaves((args, kwargs)) if isinstance(x, Reference)])
            args, kwargs = tree_map(_stand_in_of, (args, kwargs))
            call = bind_abstract(jit_function, args, kwargs)
        out_tree: PyTreeDef | None = None
        name = name_of(fun)

        def flat(*tracers: Any) -> list[Any]:
            nonlocal out_tree
            call_args, call_kwargs = closed_views(call.rebuild(list(map(_enter_argument, tracers, call.leaves))))
            leaves, out_tree = tree_flatten(fun(*call_args, **call_kwargs))
            for leaf in leaves:
                check_output(leaf, name, ())
            return [as_value(leaf) for leaf in leaves]

        scope = dict(AXIS_ENV.get()) | dict(axis_env or ())
        named_axes = MAPPED_AXES.get() | {axis for axis, _ in axis_env or ()}
        with (
            AXIS_ENV.override(tuple(scope.items())),
            MAPPED_AXES.override(named_axes),
            BY_IDENTITY.override(True),
            showing_calls(),
        ):
            program, consts = trace_program(flat, [x.aval for x in call.leaves], name)
        closed_jaxpr = ClosedJaxpr(program, [c.reference if isinstance(c, ReferenceValue) else c for c in consts])
        if not return_shape:
            return closed_jaxpr
        assert out_tree is not None
        return closed_jaxpr, tree_unflatten(out_tree, [struct_of(t) for t in program.out_types])

    make.__module__ = "jax"
    for attribute in ("__name__", "__qualname__"):
        setattr(make, attribute, f"make_jaxpr({getattr(fun, attribute, type(fun).__name__)})")
    return make


def _stand_in_of(x: Any) -> Any:
    """The stand-in of a reference among the arguments; others as they are."""
    if not isinstance(x, Reference):
        return x
    aval = ReferenceType(x.held().aval)
    return _ReferenceArgument(aval, signature(aval, SingleDeviceSharding(default_device()), False), x)


class _ReferenceArgument(Abstract):
    """A reference as an argument of a program that is shown."""

    __slots__ = ("reference",)

    def __init__(self, aval: ShapedArray, sig: Signature, reference: Reference) -> None:
        super().__init__(aval, sig)
        self.reference = reference


def _enter_argument(tracer: Any, given: Any) -> Any:
    """The value that a function gets for an argument: a reference where one was given."""
    return type(given.reference).of_program(tracer) if isinstance(given, _ReferenceArgument) else tracer


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The results of `fun(*args, **kwargs)` as a tree of ShapeDtypeStructs; nothing is computed.

    Arguments may be arrays, ShapeDtypeStructs, or anything with a shape and a dtype; so may results.

    Raises:
        TypeError: `fun` is None, or an argument has no dtype.

    >>> jax.eval_shape(jnp.dot, jnp.ones((2, 3)), jnp.ones((3, 4)))
    ShapeDtypeStruct(shape=(2, 4), dtype=float32)
    """
    if fun is None:  # jit would return a decorator
        raise TypeError("Expected a callable value, got None. eval_shape takes a function and its arguments.")
    jit_function = fun if isinstance(fun, JitWrapped) else jit(fun)
    knows = config.dialect.jit.eval_shape_knows_shardings
    with TYPES_SUFFICE.override(True):
        return trace_call(jit_function, args, kwargs)._results(lambda t, s: struct_of(t, s if knows else None))
