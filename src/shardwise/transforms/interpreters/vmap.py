"""`vmap`: map a function over a dim of its arguments. `batch_trace` says how its ops run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.collections_given import given_items
from shardwise.base.signatures import P, R
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import Array, Literal, check_leaks, current_trace, tracing
from shardwise.ir.axis_scope import AXIS_ENV, MAPPED_AXES
from shardwise.ir.reference_arguments import check_distinct
from shardwise.ir.references import ProxiedReferences, is_reference, refuse_views
from shardwise.ir.types import kept_spec
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.rules.convert import as_array, as_value, hand_out
from shardwise.ops.shapes.iota import iota
from shardwise.ops.shapes.transpose import transpose
from shardwise.transforms.interpreters.batch_trace import BatchTrace, BatchTracer, repeat_value
from shardwise.transforms.interpreters.vmappable import count_below, is_vmappable, spec_types, vmappable_of
from shardwise.transforms.tracing import describe


def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[P, R]:
    """`fun` mapped over dim `in_axes` of its arguments, results stacked along `out_axes`.

    `in_axes` and `out_axes` are ints, None (not mapped) or prefix trees of them. Inside, `axis_name` may be used by
    collectives, and sharding constraints and shard_maps split the mapped dim over the mesh axes `spmd_axis_name`.

    Raises ValueError if the mapped sizes differ, or if nothing is mapped and `axis_size` is not given. `sum_match`
    can only be False.

    Raises:
        TypeError: `fun` is no function, or axes are no ints. NotImplementedError: `sum_match` is true.

    >>> jax.vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones((4, 3)))
    Array([3., 3., 3., 3.], dtype=float32)
    >>> jax.vmap(lambda row, v: row * v, in_axes=(0, None))(jnp.ones((2, 3)), 5.0)
    Array([[5., 5., 5.],
           [5., 5., 5.]], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"vmap: Expected a callable value, got {fun!r}")
    if sum_match:
        raise NotImplementedError(
            "vmap(sum_match=True) is not supported; sum over the mapped dim after the call instead."
        )
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(in_axes, out_axes)
    spmd = () if spmd_axis_name is None else (spmd_axis_name,)
    if not isinstance(spmd_axis_name, str | None):
        spmd = given_items(spmd_axis_name, "vmap spmd_axis_name takes an axis name, or a tuple of them")

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fun(*args, **kwargs)

    @wraps(fun)
    @user_facing
    def mapped_call(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                f"positional arguments passed to "
                f"the function, but got len(in_axes)={len(in_axes)}, len(args)={len(args)}"
            )
        leaves, tree = tree_flatten((args, kwargs), is_leaf=is_vmappable)
        whole = _with_whole_leaves(tree, leaves)
        axes = _flat_axes(in_axes, args, kwargs) if whole is None else _flat_axes(in_axes, *whole)
        references = [(x, a) for x, a in zip(leaves, axes, strict=True) if is_reference(x)]
        check_distinct([r for r, _ in references])
        refuse_views(leaves, "vmap")
        parts = _Parts()
        inputs = [parts.add(x, a) for x, a in zip(leaves, axes, strict=True)]
        size = _map_size(parts.values, parts.dims, axis_size)
        split = _check_split(parts.values, parts.dims, spmd)
        trace = BatchTrace(size, axis_name, spmd or split)
        enter = lambda: [  # noqa: E731  nothing here holds on to the tracers
            _enter(trace, x, a) for x, a in zip(inputs, axes, strict=True)
        ]
        if any(axis is not None for _, axis in references):
            return _with_elements(trace, references, enter, lambda given: call(*tree_unflatten(tree, given)), out_axes)
        result = _map_call(trace, lambda: call(*tree_unflatten(tree, enter())), out_axes)
        check_leaks(trace, "vmap")
        return result

    return describe(mapped_call, "Vectorized version of {}.")


def _check_axes(in_axes: Any, out_axes: Any) -> None:
    if not isinstance(in_axes, (int, tuple, type(None), *spec_types())) or isinstance(in_axes, bool):
        raise TypeError(
            f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments, got {in_axes!r}."
        )
    for axis in tree_leaves(out_axes):
        if not isinstance(axis, (int, *spec_types())) or isinstance(axis, bool):
            raise TypeError(f"vmap out_axes must be an int, None, or a tree of them, got {axis!r}.")


class _Parts:
    """The arrays that arguments consist of, and the dims along which they are mapped (None: not mapped)."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.dims: list[int | None] = []

    def add(self, x: Any, axis: Any) -> Any:
        """Note an argument, or the parts that its class maps. Gives the argument as a value."""
        vmappable = vmappable_of(x)
        if vmappable is not None:
            vmappable.to_elt(self._element, lambda: 0, x, axis)
            return x
        if is_reference(x) and axis is not None:
            self.add(x.held(), axis)
            return x
        value = x if axis is None else as_value(x)
        self.values.append(value)
        self.dims.append(_checked_axis(value, axis))
        return value

    def _element(self, x: Any, axis: Any) -> Any:
        """Note a part. Gives an element of its type: the size of the map is not known yet."""
        value = self.add(x, axis)
        if axis is None or is_vmappable(x) or is_reference(x):
            return value
        dim = axis % value.ndim
        return BatchTracer(BatchTrace(value.shape[dim], None), value, dim)


def _with_whole_leaves(tree: Any, leaves: Sequence[Any]) -> Any:
    """The tree with a leaf in place of each value that is mapped as a whole; None if there is none."""
    if not any(map(is_vmappable, leaves)):
        return None
    return tree_unflatten(tree, [0 if is_vmappable(x) else x for x in leaves])


def _enter(trace: BatchTrace, x: Any, axis: Any) -> Any:
    """The value that the mapped function gets for an argument."""
    vmappable = vmappable_of(x)
    if vmappable is not None:
        numbers = functools.cache(
            lambda: BatchTracer(trace, as_array(count_below(trace.size, lambda: iota(np.int32, trace.size))), 0)
        )
        return vmappable.to_elt(functools.partial(_enter, trace), numbers, x, axis)
    if axis is None:
        return x
    if is_reference(x):
        with tracing(trace):
            return x.another(_enter(trace, x.held(), axis))
    value = as_value(x)
    return BatchTracer(trace, value, axis % value.ndim)


def _with_elements(
    trace: BatchTrace,
    references: Sequence[tuple[Any, Any]],
    entered: Callable[[], list[Any]],
    call: Callable[[list[Any]], Any],
    out_axes: Any,
) -> Any:
    """The results of a function of references to elements, whose last values are written back."""
    mapped_references = [(r, axis) for r, axis in references if axis is not None]
    proxies = ProxiedReferences([r for r, _ in mapped_references])

    def results() -> Any:
        given = entered()
        outside = {id(r) for r, _ in references}
        own = [x for x in given if is_reference(x) and id(x) not in outside]
        return proxies.run(own, lambda: call(given))

    last, result = _map_call(trace, results, ([axis for _, axis in mapped_references], out_axes))
    proxies.store(last)
    return result


def _map_call(trace: BatchTrace, call: Callable[[], Any], out_axes: Any) -> Any:
    """The results of a function of mapped values, stacked along `out_axes`."""
    env, named_axes = AXIS_ENV.get(), MAPPED_AXES.get()
    if trace.axis_name is not None:
        env, named_axes = (*env, (trace.axis_name, trace.size)), named_axes | {trace.axis_name}
    with tracing(trace), AXIS_ENV.override(env), MAPPED_AXES.override(named_axes):
        outs, out_tree = tree_flatten(call(), is_leaf=is_vmappable)
        new_references = {i: o for i, o in enumerate(outs) if is_reference(o)}
        given = outs
        outs = [o if is_vmappable(o) else as_array(o.held() if is_reference(o) else o) for o in outs]
    whole = _with_whole_leaves(out_tree, outs)
    full = tree_unflatten(out_tree, outs) if whole is None else whole
    wanted_axes = _axes_of_leaves(out_axes, full, "vmap out_axes")
    # A number or a host array that is the same for all elements is returned unchanged.
    left = hand_out(
        g if w is None and isinstance(g, _HOST_VALUES) else _leave(trace, o, w)
        for g, o, w in zip(given, outs, wanted_axes, strict=True)
    )
    trace.closed = True
    return tree_unflatten(
        out_tree, [new_references[i].another(x) if i in new_references else x for i, x in enumerate(left)]
    )


_NOT_MAPPED = object()
_HOST_VALUES = (bool, int, float, complex, np.ndarray, np.generic)


def _axes_of_leaves(axes: Any, tree: Any, name: str) -> list[Any]:
    """The axis of each leaf of `tree`. None is an axis among `axes`, and an empty tree in `tree`."""
    marked_axes = tree_map(lambda a: _NOT_MAPPED if a is None else a, axes, is_leaf=lambda a: a is None)
    try:
        leaf_axes = broadcast_prefix(marked_axes, tree, name=name)
    except ValueError as error:
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value, got {axes}: {error}"
        ) from None
    return [None if a is _NOT_MAPPED else a for a in leaf_axes]


def _flat_axes(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return _axes_of_leaves(in_axes, args, "vmap in_axes") + [0] * len(tree_flatten(kwargs)[0])


def _checked_axis(value: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"vmap in_axes must be an int, None, or a tree of them: ints or None, got {axis!r}.")
    if isinstance(value, Literal) or not -value.ndim <= axis < value.ndim:
        raise ValueError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its rank should be at least "
            f"{axis + 1 if axis >= 0 else -axis}, but is only {value.ndim} (its shape is {value.shape})"
        )
    return axis % value.ndim


def _map_size(values: Sequence[Any], dims: Sequence[int | None], axis_size: int | None) -> int:
    if not values and axis_size is None:
        raise ValueError("vmap wrapped function must be passed at least one argument containing an array, got none.")
    sizes = {v.shape[d] for v, d in zip(values, dims, strict=True) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise ValueError("vmap must have at least one non-None value in in_axes, or axis_size=.")
    if len(sizes) > 1:
        sizes_text = ", ".join(
            f"argument {i} has size {v.shape[d]} along dim {d}"
            for i, (v, d) in enumerate(zip(values, dims, strict=True))
            if d is not None
        )
        sizes_text += "" if axis_size is None else f", axis_size is {axis_size}"
        raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped: {sizes_text}.")
    return sizes.pop()


def _check_split(values: Sequence[Any], dims: Sequence[int | None], spmd: tuple[str, ...]) -> tuple[str, ...]:
    """The Explicit axes over which types split the mapped dims. ValueError if they differ, or `spmd` names some, too."""
    splits = {
        v.aval.spec[d] if v.aval.mesh is not None else () for v, d in zip(values, dims, strict=True) if d is not None
    }
    if len(splits) > 1:
        specs_text = " vs ".join(sorted(str(axes[0] if len(axes) == 1 else axes or None) for axes in splits))
        raise ValueError(
            f"Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: {specs_text}. "
            "Reshard the inputs first."
        )
    mesh = next((v.aval.mesh for v, d in zip(values, dims, strict=True) if d is not None), None) if spmd else None
    if mesh is not None and splits - {(), kept_spec(mesh, (spmd,))[0]}:
        raise ValueError(
            "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. Got "
            f"spmd_axis_name={spmd} and arrays sharded over {splits.pop()}."
        )
    split = next(iter(splits), ())
    if split and not config.dialect.explicit.vmap_splits_unmapped_values:
        for v, d in zip(values, dims, strict=True):
            if (
                d is None
                and isinstance(v, Array)
                and v.aval.mesh is not None
                and any(a in split for dim in v.aval.spec for a in dim)
            ):
                raise ValueError(
                    "Unmapped values passed to vmap cannot be sharded along the mesh axis you are vmapping over. Got "
                    f"{v.aval.str_short()}, where {split} split the mapped dims. Reshard it first."
                )
    return split


def _leave(trace: BatchTrace, x: Any, axis: Any) -> Any:
    vmappable = vmappable_of(x)
    if vmappable is not None:
        around = current_trace()

        def part_of(_: Any, part: Any, dim: Any) -> Any:
            with tracing(around):
                return _leave(trace, part, dim)

        with tracing(trace):
            return vmappable.from_elt(part_of, trace.size, x, axis)
    value, dim = trace.unwrap(x)
    if axis is None:
        if dim is not None and x.alike is not None:
            x.alike.take()
            return index_in_dim(value, 0, dim, keepdims=False)
        if dim is not None:
            name_text = "" if trace.axis_name is None else f" (axis_name={trace.axis_name!r})"
            raise ValueError(
                f"vmap has mapped output{name_text} but out_axes is None: at vmap out_axes, got axis spec None but output was batched. Use "
                "out_axes=0, or reduce it."
            )
        return value
    if dim is None:
        value, dim = repeat_value(trace, value), 0
    axis = axis % value.ndim if -value.ndim <= axis < value.ndim else axis
    if not 0 <= axis < value.ndim:
        raise ValueError(f"vmap out_axes: axis {axis} is out of bounds for array of dimension {value.ndim}.")
    if axis == dim:
        return value
    order = [d for d in range(value.ndim) if d != dim]
    order.insert(axis, dim)
    return transpose(value, tuple(order))
