"""Programs as users see them: `make_jaxpr`, and arguments of which only the type is known.

Comes in: a function, and arguments or their `ShapeDtypeStruct`s. Goes out: a `ClosedJaxpr`, which prints as JAX's does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.removed import ABSENT, old_argument
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_map, tree_unflatten
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Array, ShapedArray, trace_program
from shardwise.ir.axis_scope import MAPPED_AXES
from shardwise.ops.devices.parallel import AXIS_ENV
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding, get_concrete_mesh
from shardwise.sharding.device import default_device
from shardwise.transforms.jit.jit import JitWrapped, jit
from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr
from shardwise.transforms.tracing.arguments import from_beginning
from shardwise.transforms.tracing.bound_call import BoundCall
from shardwise.transforms.tracing.traced import check_output

# -- arguments without data --------------------------------------------------------------------------------------------------


class Abstract(Array):
    """An argument of which only the type and perhaps the sharding are known."""

    __slots__ = ("_sig", "aval")

    def __init__(self, aval: ShapedArray, sig: Signature) -> None:
        self.aval = aval
        self._sig = sig


def abstract_leaf(x: Any) -> Any:
    """`x` if it is a value; an `Abstract` for a ShapeDtypeStruct, or for anything else with a shape and a dtype."""
    if isinstance(x, ShapeDtypeStruct):
        struct = x
    elif isinstance(x, Array) or hasattr(x, "__array__") or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    else:
        sharding = getattr(x, "sharding", None)
        struct = ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding if isinstance(sharding, Sharding) else None)
    sharding = struct.sharding
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        mesh = get_concrete_mesh()
        known = not mesh.empty and mesh.abstract_mesh.shape_tuple == sharding.mesh.shape_tuple
        sharding = NamedSharding(mesh, sharding.spec) if known else None
    if sharding is None:
        return Abstract(struct.aval, signature(struct.aval, SingleDeviceSharding(default_device()), False))
    sharding.check_compatible_aval(struct.shape)
    sharding.shard_shape(struct.shape)  # raises where it does not divide
    return Abstract(struct.aval, signature(struct.aval, sharding, True))


def struct_of(aval: ShapedArray, sharding: Sharding | None = None) -> ShapeDtypeStruct:
    """A type as a ShapeDtypeStruct; explicit axes show as a sharding."""
    if sharding is None and aval.mesh is not None and aval.mesh.explicit_axes:
        sharding = aval.sharding
    return ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, manual_axis_type=aval.vma
    )


def bind_abstract(wrapped: JitWrapped, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
    """A call's arguments taken apart, with `Abstract`s where only types are given."""
    chosen = wrapped._options.args
    static = from_beginning(chosen.static_nums, len(args))
    typed = tuple(a if i in static else tree_map(abstract_leaf, a) for i, a in enumerate(args))
    named = {k: a if k in chosen.static_names else tree_map(abstract_leaf, a) for k, a in kwargs.items()}
    return wrapped._bind_arguments(typed, named)


# -- programs as users see them ------------------------------------------------------------------------------------------------

ClosedProgram = ClosedJaxpr


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: Any = (),
    axis_env: Sequence[tuple[str, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = ABSENT,
) -> Callable[..., Any]:
    """A function that takes `fun`'s arguments and gives the program that they make `fun` into.

    `axis_env` lists (name, size) of mesh axes that collectives in `fun` may use. With `return_shape` the result is a
    pair: the program, and the tree of the results' ShapeDtypeStructs. Nothing is computed, and arguments may be
    ShapeDtypeStructs.
    """
    if not callable(fun):
        raise TypeError(f"make_jaxpr: the first argument must be callable, got {fun!r}")
    if old_argument("make_jaxpr", "abstracted_axes", abstracted_axes, "every shape has its own program") is not None:
        raise NotImplementedError(
            "abstracted_axes (shape polymorphism) is not supported: every shape has its own program. Drop the argument."
        )
    wrapped = jit(
        fun, static_argnums=tuple(static_argnums) if isinstance(static_argnums, (list, tuple)) else static_argnums
    )

    @functools.wraps(fun, updated=())
    def make(*args: Any, **kwargs: Any) -> Any:
        call = bind_abstract(wrapped, args, kwargs)
        out_tree: PyTreeDef | None = None
        name = getattr(fun, "__name__", type(fun).__name__)

        def flat(*tracers: Any) -> list[Any]:
            nonlocal out_tree
            call_args, call_kwargs = call.rebuild(tracers)
            leaves, out_tree = tree_flatten(fun(*call_args, **call_kwargs))
            for leaf in leaves:
                check_output(leaf, name, ())
            return [as_value(leaf) for leaf in leaves]

        scope = dict(AXIS_ENV.get()) | dict(axis_env or ())
        named = MAPPED_AXES.get() | {axis for axis, _ in axis_env or ()}
        with AXIS_ENV.override(tuple(scope.items())), MAPPED_AXES.override(named):
            program, consts = trace_program(flat, [x.aval for x in call.leaves], name)
        closed = ClosedJaxpr(program, consts)
        if not return_shape:
            return closed
        assert out_tree is not None
        return closed, tree_unflatten(out_tree, [struct_of(t) for t in program.out_types])

    make.__module__ = "jax"
    for attribute in ("__name__", "__qualname__"):
        setattr(make, attribute, f"make_jaxpr({getattr(fun, attribute, type(fun).__name__)})")
    return make
