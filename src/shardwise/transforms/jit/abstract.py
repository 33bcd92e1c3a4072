"""Abstract arguments: types without values, possibly with a sharding.

In: a call's arguments, arrays or `ShapeDtypeStruct`s. Out: a `BoundCall` whose leaves include `Abstract`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base.tree import tree_map
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.ordered import checked_order
from shardwise.engine.signature import Signature, array_type, order_named, signature
from shardwise.ir import Array, ShapedArray
from shardwise.ir.references import shows_reference
from shardwise.ops.rules.derivative import later
from shardwise.sharding import Device, Sharding, SingleDeviceSharding
from shardwise.sharding.backend import default_device
from shardwise.sharding.derive import is_abstract
from shardwise.sharding.formats import Format
from shardwise.transforms.interpreters.jvp import zeros
from shardwise.transforms.jit.abstract_meshes import over_devices
from shardwise.transforms.jit.references import ReferenceArgument
from shardwise.transforms.jit.traced_call import TracedCall
from shardwise.transforms.tracing import BoundCall, from_beginning, prune

if TYPE_CHECKING:
    from shardwise.transforms.jit.wrapped import JitWrapped


class Abstract(Array):
    """An argument without a value: its type, and possibly its sharding.

    Attributes:
        aval: the type.
        over: its sharding if that is over an `AbstractMesh`; the call's other arguments determine the devices.
    """

    __slots__ = ("_sig", "aval", "over")

    def __init__(self, aval: ShapedArray, sig: Signature, over: Sharding | None = None) -> None:
        self.aval = aval
        self._sig = sig
        self.over = over


def abstract_leaf(x: Any) -> Any:
    """`x` if it is a value; an `Abstract` for a ShapeDtypeStruct, or for anything else with a shape and a dtype.

    Raises:
        ReferenceArgument: `x` is a reference, or the type of one.
    """
    if shows_reference(x):
        raise ReferenceArgument
    if isinstance(x, ShapeDtypeStruct):
        if x.is_ref:
            raise ReferenceArgument
        struct = x
    elif isinstance(x, Array) or hasattr(x, "__array__") or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    else:
        sharding = getattr(x, "sharding", None)
        # Types without a mesh have an empty one.
        if not isinstance(sharding, Sharding) or (is_abstract(sharding) and sharding.mesh.empty):
            sharding = None
        struct = ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=getattr(x, "weak_type", False))
    sharding = struct.sharding
    if sharding is not None:
        sharding.check_compatible_aval(struct.shape)
        sharding.shard_shape(struct.shape)  # raises if it does not divide
        if not is_abstract(sharding):
            order = (
                None if struct.layout is None else order_named(checked_order(struct.layout, struct.shape, "structs"))
            )
            return Abstract(struct.aval, signature(struct.aval, sharding, True, order))
    return Abstract(struct.aval, signature(struct.aval, SingleDeviceSharding(default_device()), False), sharding)


_reference = later("shardwise.ref", "Ref")


def references_made(tree: Any) -> Any:
    """A tree of arguments with a reference in place of each ShapeDtypeStruct of one. It holds an `Abstract`."""

    def make_reference(x: Any) -> Any:
        if not (isinstance(x, ShapeDtypeStruct) and x.is_ref):
            return x
        value = abstract_leaf(x.update(is_ref=False))
        reference = _reference(value)
        reference.replace(value)  # the reference's alone: there are no data that others may have
        return reference

    return tree_map(make_reference, tree)


def refuse_types(fun: Any, values: Iterable[Any]) -> None:
    """TypeError if a value that `fun` uses is a type."""
    for x in values:
        if isinstance(x, Abstract):
            raise TypeError(
                f"{fun} uses an array of type {x.aval.str_short()} of which it got a ShapeDtypeStruct. This is not a valid JAX type: it "
                "has no value. Pass an array, or lower() the function for types."
            )


def with_placeholders(leaves: Sequence[Any], traced: TracedCall) -> Sequence[Any]:
    """The leaves of a call, with zeros in place of types that its program does not use."""
    if not any(isinstance(x, Abstract) for x in leaves):
        return leaves
    first = len(traced.consts)
    used = prune(traced.program, False)[1]
    return [zeros(x.aval) if isinstance(x, Abstract) and i + first not in used else x for i, x in enumerate(leaves)]


def over_signature(x: Any, sig: Signature, devices: tuple[Device, ...] | None) -> Signature:
    """The signature of a leaf; a sharding over an `AbstractMesh` is put over these devices."""
    if devices is None or not isinstance(x, Abstract) or x.over is None:
        return sig
    sharding = over_devices(x.over, devices)
    return signature(array_type(x.aval.shape, x.aval.dtype, x.aval.weak_type, sharding), sharding, True)


def struct_of(aval: ShapedArray, sharding: Sharding | Format | None = None) -> ShapeDtypeStruct:
    """A type as a ShapeDtypeStruct; explicit axes become its sharding."""
    if sharding is None and aval.mesh is not None and aval.mesh.explicit_axes and not aval.mesh.auto_axes:
        sharding = aval.sharding
    return ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, manual_axis_type=aval.vma
    )


def bind_abstract(wrapped: JitWrapped[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
    """The `BoundCall` of a call, with `Abstract`s for arguments given as types."""
    chosen = wrapped._options.args
    static = from_beginning(chosen.static_nums, len(args))
    abstract_args = tuple(a if i in static else tree_map(abstract_leaf, a) for i, a in enumerate(args))
    abstract_kwargs = {k: a if k in chosen.static_names else tree_map(abstract_leaf, a) for k, a in kwargs.items()}
    return wrapped._bind_arguments(abstract_args, abstract_kwargs)
