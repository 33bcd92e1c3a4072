"""Explicit mode by hand: `reshard`, and the switches between modes, `auto_axes` and `explicit_axes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.config import TODAY
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.engine.array import ArrayImpl
from shardwise.engine.device_put import check_placeable, place
from shardwise.engine.placement import incompatible_devices
from shardwise.ir import Array, ProgramTrace, ShownTrace, bind, current_trace, is_eager
from shardwise.ops.devices.layout import enter_auto_op, reshard_op
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    get_abstract_mesh,
    get_concrete_mesh,
    use_abstract_mesh,
)
from shardwise.transforms.jit.jit import jit

_NOT_GIVEN: Any = object()


def _is_target(x: Any) -> bool:
    return x is None or isinstance(x, (NamedSharding, PartitionSpec))


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The tree `xs` with each leaf's explicit sharding changed to `out_shardings` (a NamedSharding, a spec, or a prefix tree).

    Specs may name only Explicit axes and need a mesh in context. Differentiable; moves data and computes nothing.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    >>> with jax.set_mesh(mesh):
    ...     print(jax.typeof(jax.reshard(jnp.arange(4), jax.P("x"))))
    ShapedArray(int32[4@x])
    """
    return reshard_as(TODAY, xs, out_shardings)


def reshard_as(era: str, xs: Any, out_shardings: Any) -> Any:
    """`reshard` of an era of JAX."""
    leaves, tree = tree_flatten(xs)
    targets = (
        [out_shardings] * len(leaves)
        if _is_target(out_shardings)
        else broadcast_prefix(out_shardings, xs, is_leaf=_is_target)
    )
    return tree_unflatten(tree, [_reshard_leaf(x, t, era) for x, t in zip(leaves, targets, strict=True)])


def _reshard_leaf(x: Any, target: Any, era: str) -> Array:
    value = as_array(x)
    if not isinstance(target, (NamedSharding, PartitionSpec)):
        raise ValueError(
            f"`reshard` should only be used with out_shardings which are non-None and doesn't contain `AxisType.Auto`; got "
            f"{target!r} for a value of type {value.aval.str_short()}. Pass a PartitionSpec or a NamedSharding."
        )
    sharding = resolve_out_sharding(target, "reshard", value.ndim)
    assert sharding is not None
    given = sharding.spec
    check_placeable(sharding, value.aval, "reshard args")
    concrete = None
    if isinstance(target, NamedSharding) and isinstance(target.mesh, Mesh):
        concrete = NamedSharding(target.mesh, given, memory_kind=target.memory_kind)
    is_named = concrete is not None
    if concrete is None:
        mesh = get_concrete_mesh()
        if not mesh.empty and mesh.axis_names == sharding.mesh.axis_names:
            concrete = NamedSharding(mesh, given)
    if isinstance(value, ArrayImpl) and is_eager():
        if concrete is None and isinstance(value.sharding, NamedSharding):
            concrete = NamedSharding(value.sharding.mesh, given)
        _check_devices(value, concrete, is_named and config.dialect_of(era).explicit.reshard_changes_devices, sharding)
        unreduced_axes = getattr(given, "unreduced", None) or value.aval.unreduced
        if concrete is not None and not unreduced_axes and not sharding.mesh.auto_axes:  # those stay unchanged
            value._check_alive()
            return value if value.sharding == concrete else place(value, concrete)
        return jit(lambda v: bind(reshard_op, v, sharding=sharding, concrete=concrete))(value)
    return bind(reshard_op, value, sharding=sharding, concrete=concrete)


def _check_devices(value: ArrayImpl, target: NamedSharding | None, may_change: bool, typed: NamedSharding) -> None:
    """Raise ValueError for a committed value on other devices: reshard moves data only between the value's own devices.

    A concrete sharding may name other devices in the era of JAX 0.5, over a mesh of the same axes.
    """
    if target is None or not value.committed or value._sig.devices == target.device_list:
        return
    shape = value.aval.str_short()
    if not may_change:
        raise incompatible_devices(
            "reshard", f"argument x of reshard with shape {shape}", value._sig.devices, "its target", target.device_list
        )
    if value.aval.mesh is not None and value.aval.mesh != typed.mesh:
        raise ValueError(
            f"Mesh of the input {value.aval.mesh} does not equal the mesh of the target sharding {typed.mesh} for shape "
            f"{shape}. Move it with device_put."
        )


def _axes_of(axes: Any, mesh: AbstractMesh, api: str) -> tuple[str, ...]:
    switchable = tuple(a for a in mesh.axis_names if a not in mesh.manual_axes)
    names = switchable if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    for name in names:
        if name not in mesh.axis_names:
            raise ValueError(f"{api}: axis {name!r} is not in the mesh {mesh}.")
        if mesh.shape and dict(zip(mesh.axis_names, mesh.axis_types, strict=True))[name] is AxisType.Manual:
            raise NotImplementedError(
                f"{api} cannot switch axis {name!r}, which is Manual here. Use it outside of shard_map."
            )
    return tuple(names)


def _mesh_of(values: list[Array], out_sharding: Any) -> AbstractMesh:
    context = get_abstract_mesh()
    if not context.empty:
        return context
    for v in values:
        if v.aval.mesh is not None:
            return v.aval.mesh
    for s in tree_flatten(out_sharding, is_leaf=_is_target)[0]:
        if isinstance(s, NamedSharding):
            return s.mesh.abstract_mesh if isinstance(s.mesh, Mesh) else s.mesh
    return context


def _keyword(old: dict[str, Any], spellings: tuple[str, ...], given: Any, api: str) -> Any:
    """The value given by any of the keyword's spellings; TypeError for another keyword."""
    for name in spellings:
        given = old.pop(name, given)
    if old:
        raise TypeError(f"{api} got an unexpected keyword argument {next(iter(old))!r}")
    return given


def auto_axes(f: Any = None, /, *, axes: Any = None, out_sharding: Any = None, **old: Any) -> Any:
    """`f` with the mesh axes `axes` (default: all except Manual ones) automatic inside, its results resharded to
    `out_sharding`.

    `out_sharding` (a spec, NamedSharding or prefix tree) is given here or at the call; without either: TypeError.
    `old` takes the names of these arguments in 0.5.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    >>> with jax.set_mesh(mesh):
    ...     f = jax.sharding.auto_axes(lambda x: x * 2, out_sharding=jax.P("x"))
    ...     print(jax.typeof(f(jnp.arange(4))))
    ShapedArray(int32[4@x])
    """
    given = _NOT_GIVEN if out_sharding is None else out_sharding
    return auto_axes_as(TODAY, f, axes=axes, out_sharding=given, **old)


def _pop_sharding(kwargs: dict[str, Any], spellings: Sequence[str], given: Any) -> Any:
    """The sharding that a call gives under one of these names, which leaves `kwargs`; else the one given before."""
    for name in spellings:
        if name in kwargs:
            given = kwargs.pop(name)
    return given


def auto_axes_as(era: str, f: Any = None, /, *, axes: Any = None, out_sharding: Any = _NOT_GIVEN, **old: Any) -> Any:
    """`auto_axes` of an era of JAX."""
    rules = config.dialect_of(era).explicit
    given = _keyword(old, rules.out_sharding_keywords, out_sharding, "auto_axes")
    if f is None:
        return lambda g: auto_axes_as(era, g, axes=axes, **({} if given is _NOT_GIVEN else {"out_sharding": given}))

    @wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        spellings = rules.out_sharding_keywords
        wanted_sharding = _pop_sharding(kwargs, spellings, given)
        values = [as_array(leaf) for leaf in tree_flatten((args, kwargs))[0]]
        mesh = _mesh_of(values, None if wanted_sharding is _NOT_GIVEN else wanted_sharding)
        if mesh.empty:
            return f(*args, **kwargs)
        if wanted_sharding is _NOT_GIVEN or wanted_sharding is None:
            raise TypeError(
                f"Missing required keyword argument: '{spellings[-1]}'. auto_axes needs it to type the results: give it to "
                "auto_axes or to the call."
            )
        names = _axes_of(axes, mesh, "auto_axes")
        nothing_to_switch = bool(names) and set(names) <= set(mesh.auto_axes)
        if nothing_to_switch and rules.auto_axes_of_auto_is_call:
            return f(*args, **kwargs)

        def body(*inner_args: Any, **inner_kwargs: Any) -> Any:
            entry_values = tree_map(lambda v: bind(enter_auto_op, as_array(v), axes=names), (inner_args, inner_kwargs))
            with use_abstract_mesh(mesh.update_axis_types(dict.fromkeys(names, AxisType.Auto))):
                out = f(*entry_values[0], **entry_values[1])
            return _reshard_results(out, wanted_sharding, mesh, era)

        return _run(body, args, kwargs)

    return wrapper


def _reshard_results(out: Any, wanted: Any, mesh: AbstractMesh, era: str) -> Any:
    leaves, tree = tree_flatten(out)
    targets = [wanted] * len(leaves) if _is_target(wanted) else broadcast_prefix(wanted, out, is_leaf=_is_target)
    results = []
    for leaf, target in zip(leaves, targets, strict=True):
        if isinstance(target, PartitionSpec) and get_abstract_mesh().empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Pass a NamedSharding as "
                f"out_sharding, or enter a mesh. Got {target}"
            )
        with use_abstract_mesh(mesh):
            results.append(_reshard_leaf(leaf, target, era))
    return tree_unflatten(tree, results)


def explicit_axes(f: Any = None, /, *, axes: Any = None, in_sharding: Any = None, **old: Any) -> Any:
    """`f` with the mesh axes `axes` (default: all) explicit inside; arguments are resharded to `in_sharding` on
    entry.

    `old` takes the names of these arguments in 0.5.

    >>> mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    >>> show = lambda x: (print(jax.typeof(x)), x)[1]
    >>> with jax.set_mesh(mesh):
    ...     _ = jax.jit(jax.sharding.explicit_axes(show, in_sharding=jax.P("x")))(jnp.arange(4))
    ShapedArray(int32[4@x])
    """
    given = _NOT_GIVEN if in_sharding is None else in_sharding
    return explicit_axes_as(TODAY, f, axes=axes, in_sharding=given, **old)


def explicit_axes_as(era: str, f: Any = None, /, *, axes: Any = None, in_sharding: Any = _NOT_GIVEN, **old: Any) -> Any:
    """`explicit_axes` of an era of JAX."""
    rules = config.dialect_of(era).explicit
    given = _keyword(old, rules.in_sharding_keywords, in_sharding, "explicit_axes")
    if f is None:
        return lambda g: explicit_axes_as(era, g, axes=axes, **({} if given is _NOT_GIVEN else {"in_sharding": given}))

    @wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        spellings = rules.in_sharding_keywords
        wanted_sharding = _pop_sharding(kwargs, spellings, given)
        mesh = get_abstract_mesh()
        if mesh.empty:
            raise ValueError(
                f"explicit_axes needs a mesh in context: call it under {config.dialect_of(era).meshes.entered_by}(mesh)."
            )
        if wanted_sharding is _NOT_GIVEN:
            raise TypeError(
                f"Missing required keyword argument: '{spellings[-1]}'. explicit_axes needs it to type the arguments."
            )
        names = _axes_of(axes, mesh, "explicit_axes")
        inside = mesh.update_axis_types(dict.fromkeys(names, AxisType.Explicit))
        left = tuple(a for a in names if a not in mesh.explicit_axes)

        def body(*inner: Any) -> Any:
            leaves, tree = tree_flatten(inner)
            targets = (
                [wanted_sharding] * len(leaves)
                if _is_target(wanted_sharding)
                else broadcast_prefix(wanted_sharding, inner, is_leaf=_is_target)
            )
            with use_abstract_mesh(inside):
                typed_leaves = [_place_leaf(leaf, target, inside) for leaf, target in zip(leaves, targets, strict=True)]
                out = f(*tree_unflatten(tree, typed_leaves), **kwargs)
            return tree_map(lambda v: bind(enter_auto_op, as_array(v), axes=left) if left else as_array(v), out)

        return _run(body, args, {})

    return wrapper


def _place_leaf(leaf: Any, target: Any, mesh: AbstractMesh) -> Array:
    spec = target.spec if isinstance(target, NamedSharding) else target
    return bind(
        reshard_op,
        as_array(leaf),
        sharding=resolve_out_sharding(NamedSharding(mesh, spec), "explicit_axes", as_array(leaf).ndim),
        concrete=None,
    )


def _run(body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body with the modes switched, inside a traced program; otherwise (eagerly, under grad or vmap) trace it for this call."""
    return body(*args, **kwargs) if type(current_trace()) in (ProgramTrace, ShownTrace) else jit(body)(*args, **kwargs)
