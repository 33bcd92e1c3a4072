"""`pmap`: one call per device on a slice of the arguments, as a `shard_map` over a hidden mesh of one axis.

In: a function and the mapped dims of its arguments. Out: results with a new dim over the devices.
New programs should use `shard_map`; `pmap` serves existing ones.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.collections_given import given_items
from shardwise.base.config import context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.removed import ABSENT, old_argument
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.base.wrapping import name_of
from shardwise.engine.array import ArrayImpl
from shardwise.engine.guards import guard_moves
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Array, ShapedArray, is_eager
from shardwise.ir.axis_scope import MAPPED_AXES
from shardwise.ops.devices.parallel import axes_in_scope
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.transpose import squeeze
from shardwise.sharding import Device, Mesh, NamedSharding, PartitionSpec, local_devices, use_mesh
from shardwise.sharding.ownership import spans_processes
from shardwise.transforms.interpreters.vmap import vmap
from shardwise.transforms.jit.abstract import struct_of
from shardwise.transforms.jit.binding import JitOptions
from shardwise.transforms.jit.entry import Entry
from shardwise.transforms.jit.stages import Lowered, Traced
from shardwise.transforms.jit.wrapped import JitWrapped, signature_of, wrap
from shardwise.transforms.manual.pmap_devices import check_backend, check_count, mapped_mesh
from shardwise.transforms.manual.pmap_layouts import Axis, axis_spec, lay_out_argument, out_signature, resign_result
from shardwise.transforms.manual.shard_map import ShardMap
from shardwise.transforms.tracing import StaticValue, argument_names, as_nums, select_arguments

HIDDEN_AXIS = "_internal_pmap_axis_name"


@dataclass(frozen=True)
class MappedBody(ShardMap):
    """A shard_map over the hidden mesh, regardless of the mesh in context; tracing the body determines out_specs."""

    out_axes: list[PartitionSpec] = field(default_factory=list)

    def resolve_mesh(self) -> Mesh:
        """The hidden mesh."""
        assert isinstance(self.mesh, Mesh)
        return self.mesh

    def flat_out_specs(self, out_tree: Any, outs: Sequence[Any]) -> list[PartitionSpec]:
        """One spec per result, as tracing the body determined them."""
        return self.out_axes


@dataclass(frozen=True)
class PmapOptions:
    """The options of one `pmap`."""

    axis_name: Any
    in_axes: Any
    out_axes: Any
    static_nums: tuple[int, ...]
    devices: tuple[Device, ...] | None
    axis_size: int | None
    donate_nums: tuple[int, ...]

    @property
    def name(self) -> Any:
        """The mesh axis that collectives in the body name."""
        return HIDDEN_AXIS if self.axis_name is None else self.axis_name


@dataclass(frozen=True)
class PmapCall:
    """One call's arguments: the key of the compiled function, and the values."""

    args: tuple[Any, ...]  # without the static ones
    kwargs: dict[str, Any]
    statics: tuple[tuple[int, StaticValue], ...]
    axes: tuple[Axis, ...]  # per leaf
    mesh: Mesh


class PmapWrapped:
    """A function mapped over devices; `lower` shows the program."""

    def __init__(self, fun: Callable[..., Any], options: PmapOptions) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._options = options
        self._compiled: dict[Any, JitWrapped[..., Any]] = {}
        self._ready: dict[Any, Ready] = {}

    def __repr__(self) -> str:
        return f"<PmapFunction of {self._fun!r}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's, for `inspect`."""
        return signature_of(self._fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_eager() or config.jax_disable_jit:
            around = {a: n for a, n in axes_in_scope().items() if a not in MAPPED_AXES.get()}
            if around:
                return self._run_nested(around, args, kwargs)
            call = self._bind(args, kwargs)
            if spans_processes(call.mesh.device_list):
                raise NotImplementedError(
                    "pmap over the devices of several processes cannot be called inside of jit or other transformations, where "
                    "arrays have one shape for all processes. Use shard_map there, or call pmap outside."
                )
            return self._inner(call)(*call.args, **call.kwargs)
        statics, dynamic = self._statics(args)
        leaves, tree = tree_flatten((dynamic, kwargs))
        values = [as_array(x) for x in leaves]
        key = (tree, statics, context_token(), *[getattr(x, "_sig", None) for x in values])
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._prepare_call(self._bind(args, kwargs))
        return ready.run(values)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays or ShapeDtypeStructs) without running."""
        call = self._bind(args, kwargs)
        placed_args, placed_kwargs = self._place_arguments(call)
        with use_mesh(call.mesh):
            return self._inner(call).trace(*placed_args, **placed_kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for these arguments. Compiled from it, results carry NamedShardings over the hidden mesh."""
        traced_stage = self.trace(*args, **kwargs)
        with use_mesh(self._bind(args, kwargs).mesh):
            return traced_stage.lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The result's tree of ShapeDtypeStructs."""
        return self.trace(*args, **kwargs).eval_shape()

    # -- arguments -------------------------------------------------------------------------------------------------------------

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PmapCall:
        statics, dynamic = self._statics(args)
        nums = {i for i, _ in statics}
        leaves = [_with_shape(x) for x in tree_leaves((dynamic, kwargs))]
        if not leaves:
            raise ValueError(
                "pmap wrapped function must be passed at least one argument containing an array, got only "
                f"args={dynamic} and kwargs={kwargs}."
            )
        axes = self._flat_in_axes(dynamic, kwargs, nums)
        names = argument_names(self._fun, args, kwargs, tuple(nums))
        size = self._axis_size(leaves, axes, names)
        axis_of_leaf = tuple(a if a is None else a % x.ndim for a, x in zip(axes, leaves, strict=True))
        return PmapCall(
            dynamic, kwargs, statics, axis_of_leaf, mapped_mesh(self._options.name, self._options.devices, size)
        )

    def _statics(self, args: tuple[Any, ...]) -> tuple[tuple[tuple[int, StaticValue], ...], tuple[Any, ...]]:
        """The static arguments with their positions, and the others."""
        static = self._options.static_nums
        if not static:
            return (), args
        for n in static:
            if not -len(args) <= n < len(args):
                raise ValueError(
                    f"pmapped function has static_broadcasted_argnums={static} but was called with only {len(args)} "
                    "positional arguments. All static broadcasted arguments must be passed positionally."
                )
        nums = {n % len(args) for n in static}
        return tuple((i, StaticValue(args[i])) for i in sorted(nums)), tuple(
            a for i, a in enumerate(args) if i not in nums
        )

    def _flat_in_axes(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: set[int]) -> list[Axis]:
        tree = self._options.in_axes
        if static and isinstance(tree, tuple):
            tree = tuple(a for i, a in enumerate(tree) if i not in static)
        try:
            flat = broadcast_prefix(tree, args, is_leaf=_is_none, name="pmap in_axes")
        except ValueError as error:
            error.add_note("in_axes must be a tree prefix of the tuple of positional arguments.")
            raise
        return [*flat, *[0] * len(tree_leaves(kwargs))]

    def _axis_size(self, leaves: Sequence[Any], axes: Sequence[Axis], names: Sequence[str]) -> int:
        if all(a is None for a in axes):
            raise ValueError(
                "pmap must have at least one non-None value in in_axes: it requires at least one argument with a mapped "
                "axis. For values that are the same everywhere use jit."
            )
        sizes: dict[int, list[str]] = {}
        for x, axis, name in zip(leaves, axes, names, strict=True):
            if axis is None:
                continue
            if not -x.ndim <= axis < x.ndim:
                needed_rank = axis + 1 if axis >= 0 else -axis
                raise ValueError(
                    f"pmap was requested to map its argument {name} along axis {axis}, which implies that its rank should be at "
                    f"least {needed_rank}, but is only {x.ndim} (its shape is {x.shape}). Give in_axes=None for whole arguments."
                )
            leaf_text = f"axis {axis} of argument {name} of type {x.dtype.name}[{','.join(map(str, x.shape))}]"
            sizes.setdefault(x.shape[axis], []).append(leaf_text)
        if len(sizes) > 1:
            sizes_text = ";\n".join(
                f"  * one axis had size {n}: {where[0]}"
                if len(where) == 1
                else f"  * {len(where)} axes had size {n}, as {where[0]}"
                for n, where in sizes.items()
            )
            raise ValueError(f"pmap got inconsistent sizes for array axes to be mapped:\n{sizes_text}")
        (size,) = sizes
        wanted_size = self._options.axis_size
        if wanted_size is not None and wanted_size != size:
            raise ValueError(f"Specified axis_size {wanted_size} doesn't match received axis_size {size}.")
        return size

    # -- the mapped function ---------------------------------------------------------------------------------------------------

    def _run_nested(self, around: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results inside another pmap: computed for all inner devices on the devices of the outer axis."""
        if not config.dialect.shard_map.pmap_nests:
            raise ValueError(
                f"pmap of {self._fun!r} is called inside another pmap or shard_map, over {', '.join(map(str, around))}: pmaps do not "
                f"nest. Use one shard_map over a mesh with both axes. {config.dialect.switch}"
            )
        if self._options.devices is not None:
            raise ValueError("Nested pmap with explicit devices argument. Give devices= to the outermost pmap.")
        call = self._bind(args, kwargs)
        outer, size = math.prod(around.values()), call.mesh.size
        check_count(outer * size, len(local_devices()))

        def inner(*leaves: Any) -> Any:
            own_args, own_kwargs = tree_unflatten(tree, leaves)
            own_args = list(own_args)
            for i, static in call.statics:
                own_args.insert(i, static.value)
            return self._fun(*own_args, **own_kwargs)

        leaves, tree = tree_flatten((call.args, call.kwargs))
        stack_axes = tree_map(lambda a: 0 if a is None else a, self._options.out_axes, is_leaf=_is_none)
        result = vmap(inner, call.axes, stack_axes, axis_name=self._options.axis_name, axis_size=size)(*leaves)
        outs, out_tree = tree_flatten(result)
        axes = self._flat_out_axes(result)
        first = [x if a is not None else index_in_dim(x, 0, 0, keepdims=False) for x, a in zip(outs, axes, strict=True)]
        return tree_unflatten(out_tree, first)

    def _inner(self, call: PmapCall) -> JitWrapped[..., Any]:
        key = (call.axes, call.statics, call.mesh, tuple(call.kwargs), len(call.args))
        inner = self._compiled.get(key)
        if inner is None:
            donated_places = self._donated_positions(len(call.args) + len(call.statics), {i for i, _ in call.statics})
            mapped_slices = self._map_slices(call)
            chosen = select_arguments(mapped_slices, None, None, donated_places, None)
            inner = self._compiled[key] = wrap(mapped_slices, JitOptions(args=chosen, asked_for=True))
        return inner

    def _donated_positions(self, count: int, static: set[int]) -> tuple[int, ...]:
        donated_args = {n % count for n in self._options.donate_nums if -count <= n < count}
        dynamic_args = [i for i in range(count) if i not in static]
        return tuple(dynamic_args.index(i) for i in sorted(donated_args) if i in dynamic_args)

    def _map_slices(self, call: PmapCall) -> Callable[..., Any]:
        """The function of whole arrays that maps `fun` over their slices."""
        fun, name, statics, axes = self._fun, self._options.name, call.statics, call.axes

        def whole(*args: Any, **kwargs: Any) -> Any:
            leaves, in_tree = tree_flatten((args, kwargs))
            specs: list[PartitionSpec] = []
            out_tree: Any = None

            def body(*blocks: Any) -> tuple[Array, ...]:
                nonlocal out_tree
                slices = [x if a is None else squeeze(x, (a,)) for x, a in zip(blocks, axes, strict=True)]
                own_args, own_kwargs = tree_unflatten(in_tree, slices)
                own_args = list(own_args)
                for i, static in statics:
                    own_args.insert(i, static.value)
                result = fun(*own_args, **own_kwargs)
                outs, out_tree = tree_flatten(result)
                blocks_out, specs[:] = self._stack_result(result, outs)
                return tuple(blocks_out)

            functools.update_wrapper(body, fun, updated=())
            in_specs = tuple(axis_spec(a, name) for a in axes)
            outs = MappedBody(body, call.mesh, in_specs, None, None, False, specs)(*leaves)
            return tree_unflatten(out_tree, outs)

        functools.update_wrapper(whole, fun, updated=())
        whole.__name__ = name_of(fun)
        del vars(whole)["__wrapped__"]  # its signature is that of `fun` without the static arguments
        return whole

    def _stack_result(self, result: Any, outs: Sequence[Any]) -> tuple[list[Array], list[PartitionSpec]]:
        """The results with a dim of size 1 at the position of the mapped axis, and the specs that join them along it."""
        blocks, specs = [], []
        for x, axis in zip(outs, self._flat_out_axes(result), strict=True):
            value = as_array(x)
            if axis is not None:
                if not -value.ndim - 1 <= axis <= value.ndim:
                    raise ValueError(
                        f"pmap out_axes: axis {axis} is out of bounds for array of dimension {value.ndim + 1}, the rank "
                        "that the result has with its mapped axis."
                    )
                axis %= value.ndim + 1
                value = expand_dims(value, (axis,))
            blocks.append(value)
            specs.append(axis_spec(axis, self._options.name))
        return blocks, specs

    def _flat_out_axes(self, result: Any) -> list[Axis]:
        tree = self._options.out_axes
        try:
            return broadcast_prefix(tree, result, is_leaf=_is_none, name="pmap out_axes")
        except ValueError as error:
            error.add_note("out_axes must be a tree prefix of the mapped function's result.")
            raise

    # -- running ---------------------------------------------------------------------------------------------------------------

    def _prepare_call(self, call: PmapCall) -> Ready:
        """The compiled function for arguments like these."""
        with use_mesh(call.mesh):
            placed_args, placed_kwargs = self._place_arguments(call)
            traced_stage = self._inner(call).trace(*placed_args, **placed_kwargs)
            entry = traced_stage.lower()._entry
        guard_moves(traced_stage.fun_name, tree_leaves((call.args, call.kwargs)), tuple(call.mesh.devices.flat))
        sigs = [x._sig for x in tree_leaves((placed_args, placed_kwargs))]
        wanted_axes, count = self._options.out_axes, len(entry.executable.out_sigs)
        one = wanted_axes is None or isinstance(wanted_axes, int)  # a user's class need not be made of types
        axes = [wanted_axes] * count if one else self._flat_out_axes(traced_stage.out_avals)
        outs = [out_signature(s, a, call.mesh) for s, a in zip(entry.executable.out_sigs, axes, strict=True)]
        return Ready(entry, sigs, outs)

    def _place_arguments(self, call: PmapCall) -> Any:
        """(args, kwargs) laid out over the devices."""
        leaves, tree = tree_flatten((call.args, call.kwargs))
        return tree_unflatten(tree, [self._place(x, a, call.mesh) for x, a in zip(leaves, call.axes, strict=True)])

    def _place(self, x: Any, axis: Axis, mesh: Mesh) -> Any:
        sharding = NamedSharding(mesh, axis_spec(axis, self._options.name))
        x = _with_shape(x)
        shape = list(x.shape)
        if axis is not None:
            shape[axis] = mesh.size  # each process has some of the rows
        if isinstance(x, ShapeDtypeStruct):
            return struct_of(ShapedArray(shape, x.dtype, x.weak_type), sharding)
        assert isinstance(x, ArrayImpl)
        x._check_alive()
        return lay_out_argument(x, signature(ShapedArray(shape, x.dtype, x.weak_type), sharding, True))


class Ready:
    """A compiled function with the layouts of its arguments and results."""

    def __init__(self, entry: Entry, in_sigs: Sequence[Signature], out_sigs: Sequence[Signature]) -> None:
        self.entry = entry
        self.in_sigs = in_sigs
        self.out_sigs = out_sigs

    def run(self, values: Sequence[Any]) -> Any:
        """The results for these argument leaves."""
        placed_values = [
            x if x._sig is sig else lay_out_argument(x, sig) for x, sig in zip(values, self.in_sigs, strict=True)
        ]
        result = self.entry.call(placed_values)
        for i, usable in self.entry.donated:
            if usable:
                values[i].delete()
        outs, tree = tree_flatten(result)
        return tree_unflatten(tree, [resign_result(x, sig) for x, sig in zip(outs, self.out_sigs, strict=True)])


def _is_none(x: Any) -> bool:
    return x is None


def _with_shape(x: Any) -> Any:
    return x if isinstance(x, (Array, ShapeDtypeStruct)) else as_array(x)


def _checked_axes(tree: Any, option: str) -> Any:
    for leaf in tree_leaves(tree, is_leaf=_is_none):
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, (int, np.integer))):
            raise TypeError(
                f"pmap {option} must be an int, None, or (nested) container with those types as leaves, but got {tree!r}."
            )
    return tree_map(lambda a: a if a is None else int(a), tree, is_leaf=_is_none)


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: Any = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
    global_arg_shapes: Any = ABSENT,
) -> PmapWrapped:
    """Map `fun` over the first dim of its arguments, one slice per device.

    `in_axes` gives the dim along which each argument is split (None: every device gets the whole value; keyword arguments
    are always split along dim 0), `out_axes` the position of the results' new dim (None: each device keeps
    its own value, and the array shows the first one's).
    Collectives in `fun` name `axis_name`. The mapped size may not exceed the number of local devices, or of `devices`.

    Results are committed: under the dialect 0.5 with PmapSharding, under 0.10 with a NamedSharding on a 1-D mesh.

    Args:
        static_broadcasted_argnums: positions of arguments that are constants of the trace.
        backend: None or 'cpu'; RuntimeError for another platform.
        axis_size: the mapped size, where no argument has it.
        donate_argnums: positions of arguments whose memory results may take.
        global_arg_shapes: not supported, use `jit`; only None.

    Raises:
        TypeError: `fun` is no function. ValueError: `devices` is empty, mapped sizes differ, or there are too few
            devices.

    >>> jax.pmap(lambda x: x - jax.lax.pmean(x, "i"), axis_name="i")(jnp.arange(4.0))
    Array([-1.5, -0.5,  0.5,  1.5], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    if old_argument("pmap", "global_arg_shapes", global_arg_shapes, "use jit with in_shardings") is not None:
        raise ValueError(
            "global_arg_shapes belonged to sharded_jit, which is long gone. Use jit with in_shardings and drop it."
        )
    in_axes, out_axes = _checked_axes(in_axes, "in_axes"), _checked_axes(out_axes, "out_axes")
    devices = (
        devices
        if devices is None
        else given_items(devices, "'devices' argument to pmap takes devices, as devices() lists them")
    )
    if devices is not None and len(devices) == 0:
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    if devices is not None and not all(isinstance(d, Device) for d in devices):
        raise TypeError(f"'devices' argument to pmap takes devices, as devices() lists them; got {devices!r}.")
    if devices is None:
        check_backend(backend)
    chosen = None if devices is None else tuple(devices)
    static = as_nums(static_broadcasted_argnums, "static_broadcasted_argnums")
    donated_nums = as_nums(donate_argnums, "donate_argnums")
    return PmapWrapped(fun, PmapOptions(axis_name, in_axes, out_axes, static, chosen, axis_size, donated_nums))
