"""Calls back into Python from compiled programs: `pure_callback`, `io_callback`, and the op that `shardwise.debug` prints with.

Programs run on the host, so a callback is a plain call, in program order. In Auto mode it sees global values and is called
once. Inside shard_map it is called once per device with the device's own blocks, in mesh order; under a predicate that
varies, only for the devices that took that way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import KeyDtype, as_dtype, canonicalize, is_key_dtype, physical
from shardwise.base.errors import JaxRuntimeError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.removed import ABSENT, old_argument
from shardwise.base.shapes import Ndarray
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.ir import Array, Equation, ShapedArray, bind, define_op, eagerly, is_eager
from shardwise.ir.axis_scope import PRINTS_ONCE
from shardwise.ir.key_uses import LEAVES
from shardwise.ir.op import Params
from shardwise.ops.control.regions import active, no_rule
from shardwise.ops.devices.first_replica import first_replica
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import moved_to_front
from shardwise.ops.rules.out_sharding import in_context
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.runtime.env import Env
from shardwise.sharding import SingleDeviceSharding, get_abstract_mesh

__all__ = ["debug_callback", "io_callback", "pure_callback"]

_VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


@dataclass(frozen=True, slots=True)
class Callback:
    """A user's function on flat operands: which of its leaves they are, and the leaves that are no arrays."""

    fun: Callable[..., Any]
    in_tree: PyTreeDef
    constant_leaves: tuple[tuple[int, Any], ...] = ()  # positions and values of leaves that are no arrays
    out_tree: PyTreeDef | None = None  # None: the result is ignored
    name: str = "callback"

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        leaves = list(values)
        for position, value in self.constant_leaves:
            leaves.insert(position, value)
        args, kwargs = tree_unflatten(self.in_tree, leaves)
        out = self.fun(*args, **kwargs)
        if self.out_tree is None:
            return []
        outs, tree = tree_flatten(out)
        if len(outs) != self.out_tree.num_leaves:  # lists for tuples and the like are the values that were asked for
            raise ValueError(f"it returned the structure {tree}, result_shape_dtypes says {self.out_tree}.")
        return outs

    # Functions that do not hash are told apart by identity.
    def __hash__(self) -> int:
        return hash((id(self.fun), self.in_tree, self.out_tree, self.name))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Callback)
            and self.fun is other.fun
            and self.in_tree == other.in_tree
            and self.out_tree == other.out_tree
            and self.name == other.name
            and _same(self.constant_leaves, other.constant_leaves)
        )


def _same(a: tuple[tuple[int, Any], ...], b: tuple[tuple[int, Any], ...]) -> bool:
    return len(a) == len(b) and all(i == j and _equal(x, y) for (i, x), (j, y) in zip(a, b, strict=True))


def _equal(x: Any, y: Any) -> bool:
    """Whether two users' values are surely equal: comparisons that raise, or give an array, do not say so."""
    if x is y:
        return True
    try:
        return type(x) is type(y) and bool(x == y)
    except Exception:
        return False


# -- the op ------------------------------------------------------------------------------------------------------------


def _callback_type(
    *types: ShapedArray,
    result_types: tuple[ShapedArray, ...],
    kind: str,
    axes: tuple[str, ...],
    loops: tuple[tuple[int, tuple[bool, ...]], ...],
    **_: Any,
) -> tuple[ShapedArray, ...]:
    vma = frozenset().union(*[t.vma for t in types])
    if kind == "io":  # each device's call may give something else
        vma |= frozenset(axes)
    sizes = tuple(n for n, _ in loops)
    return tuple(in_context(t.update(shape=sizes + t.shape, vma=vma)) for t in result_types)


def _partition(region: Any, eqn: Equation) -> None:
    """Operands come whole, over the automatic axes; or as they are, if the callback wants each device's part."""
    params = dict(eqn.params)
    params["axes"] = tuple(g for a in params["axes"] for g in region.scope.get(a, (a,)))
    atoms = []
    for operand in eqn.inputs:
        atom, have = region.read(operand)
        whole = ((),) * operand.aval.ndim
        if params["partitioned"]:
            params["axes"] = tuple(region.grid.names)
        else:
            atom = region.reshard(atom, have or whole, whole, operand.aval)
            # Where copies of a value differ the host sees the first one; in manual mode it sees the value of each device.
            if copies := tuple(sorted(atom.aval.vma - region.manual)):
                atom = region.emit(first_replica, [atom], {"axes": copies})[0]
        atoms.append(atom)
    outs = region.emit(callback_p, atoms, params)
    for var, out in zip(eqn.outputs, outs, strict=True):
        whole = ((),) * var.aval.ndim
        placement = region.placements.get(var, whole)
        region.define(var, region.reshard(out, whole, placement, var.aval), placement)


def _callback_kernel(
    env: Env,
    *blocks: Ndarray,
    callback: Callback,
    operand_dtypes: tuple[Any, ...],
    result_types: tuple[ShapedArray, ...],
    kind: str,
    axes: tuple[str, ...],
    loops: tuple[tuple[int, tuple[bool, ...]], ...],
    once: bool = False,
    **_: Any,
) -> tuple[Ndarray, ...]:
    lead = env.lead
    extents = _lead_extents(env, blocks, axes, every=kind != "pure" and not once)
    sizes = tuple(n for n, _ in loops)
    outs = [np.empty(extents + sizes + t.shape, physical(t.dtype)) for t in result_types]
    for at in _places(extents):
        # The innermost `vmap` makes the outermost loop, as if each `vmap` called what it maps once per element.
        for entry in (e[::-1] for e in itertools.product(*map(range, reversed(sizes)))):
            values = []
            for i, (block, dtype) in enumerate(zip(blocks, operand_dtypes, strict=True)):
                here = tuple(j if n > 1 else 0 for j, n in zip(at, block.shape, strict=False))
                loop_index = tuple(j for j, (_, mapped_args) in zip(entry, loops, strict=True) if mapped_args[i])
                values.append(_argument(block[here[:lead] + loop_index], dtype))
            for out, value in zip(outs, _call(callback, values, result_types), strict=True):
                out[at + entry] = value
    return tuple(outs)


def _lead_extents(env: Env, blocks: Sequence[Ndarray], axes: tuple[str, ...], every: bool) -> tuple[int, ...]:
    """How often to call along each leading dim: where operands differ, and with `every` on each device of `axes`."""
    if not env.lead:
        return ()
    extents = np.broadcast_shapes((1,) * env.lead, *[b.shape[: env.lead] for b in blocks])
    devices = range(env.lead - len(env.axis_names), env.lead)
    own = {env.dim(a): env.extent(a) for a in axes}
    return tuple((own[d] if every else n) if d in own else 1 if d in devices else n for d, n in enumerate(extents))


def _places(extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The places whose results count."""
    mask = active()
    if mask is None:
        return iter(itertools.product(*map(range, extents)))
    taking_part = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, extents))
    return (at for at in itertools.product(*map(range, extents)) if taking_part[at])


def _argument(block: Ndarray, dtype: Any) -> Array:
    """The argument of a callback: an array, for PRNG keys that of their words."""
    with eagerly():
        if isinstance(dtype, KeyDtype):
            return as_array(np.ascontiguousarray(block).reshape(*block.shape, 1).view(np.uint32))
        return as_array(np.asarray(block))


def _call(callback: Callback, values: Sequence[Any], result_types: tuple[ShapedArray, ...]) -> list[Ndarray]:
    try:
        with eagerly():
            results = callback(values)
            return [_check_result(i, r, t) for i, (r, t) in enumerate(zip(results, result_types, strict=True))]
    except (JaxRuntimeError, StopDebugging):
        raise
    except Exception as error:
        raise JaxRuntimeError(f"{callback.name} raised {type(error).__name__}: {error}") from error


def _check_result(position: int, value: Any, aval: ShapedArray) -> Ndarray:
    if is_key_dtype(aval.dtype):
        raise TypeError("callbacks return no PRNG keys; return key data and wrap it outside.")
    out = np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        out = out.astype(aval.dtype)
    if out.shape != aval.shape:
        raise ValueError(
            f"Incorrect output shape for return value #{position}: Expected: {aval.shape}, Actual: {out.shape}"
        )
    if canonicalize(out.dtype) != aval.dtype:
        raise ValueError(
            f"Incorrect output dtype for return value #{position}: Expected: {aval.dtype}, Actual: {out.dtype}"
        )
    return out


class StopDebugging(Exception):
    """Leave the program from a breakpoint."""


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Array], list[int]]:
    method = params["vmap_method"]
    if params["kind"] == "pure" and method is None:
        method = config.dialect.functions.callback_vmap_method
        if method is None:
            raise NotImplementedError(
                f"vmap is only supported for pure_callback when vmap_method is one of {_VMAP_METHODS[:-1]}; got None. "
                f"{config.dialect.switch}"
            )
    if params["kind"] == "io" and params["ordered"]:
        raise ValueError("Cannot `vmap` ordered IO callback. Drop ordered=True, or write the loop with lax.scan.")
    fronts = [v if d is None else moved_to_front(v, d) for v, d in zip(values, dims, strict=True)]
    if params["kind"] != "pure" or method in ("sequential", "sequential_unrolled"):
        loops = ((size, tuple(d is not None for d in dims)), *params["loops"])
        outs = bind(callback_p, *fronts, **{**params, "loops": loops})
        return outs, [0] * len(outs)
    if params["loops"]:
        raise NotImplementedError(
            f"vmap_method={method!r} around a vmap that calls one by one; use one method for both."
        )
    if method != "legacy_vectorized":
        n = size if method == "broadcast_all" else 1
        fronts = [
            f if d is not None else broadcast_in_dim(f, (n, *f.shape), tuple(range(1, f.ndim + 1)))
            for f, d in zip(fronts, dims, strict=True)
        ]
    types = tuple(t.update(shape=(size, *t.shape)) for t in params["result_types"])
    outs = bind(callback_p, *fronts, **{**params, "result_types": types})
    return outs, [0] * len(outs)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    if params["kind"] == "debug":
        return bind(callback_p, *primals, **params), []
    if params["kind"] == "io":
        raise ValueError("IO callbacks do not support JVP. Stop the gradient of their operands with lax.stop_gradient.")
    raise ValueError(
        "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while taking gradients."
    )


callback_p = define_op(
    "callback",
    type_rule=_callback_type,
    multiple_results=True,
    typed=True,
    kernel=_callback_kernel,
    rule=no_rule,
    partition=_partition,
    batch=_batch,
    jvp=_jvp,
    calls_user=True,
    effects=lambda params: params["kind"] != "pure",
    keys=LEAVES,
)


# -- calling it ---------------------------------------------------------------------------------------------------------


def _manual_axes() -> tuple[str, ...]:
    return tuple(get_abstract_mesh().manual_axes)


def _bind_callback(
    callback: Callback,
    values: Sequence[Any],
    types: tuple[ShapedArray, ...],
    kind: str,
    *,
    ordered: bool = False,
    vmap_method: str | None = None,
    partitioned: bool = False,
) -> list[Array]:
    return bind(
        callback_p,
        *values,
        callback=callback,
        operand_dtypes=tuple(v.dtype for v in values),
        result_types=types,
        kind=kind,
        ordered=ordered,
        vmap_method=vmap_method,
        partitioned=partitioned,
        axes=_manual_axes(),
        loops=(),
        once=kind == "debug" and PRINTS_ONCE.get(),
    )


def _result_types(result_shape_dtypes: Any) -> tuple[tuple[ShapedArray, ...], PyTreeDef]:
    leaves, tree = tree_flatten(result_shape_dtypes)
    types = []
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(
                f"result_shape_dtypes must hold objects with a shape and a dtype (ShapeDtypeStruct, arrays), got {leaf!r}."
            )
        dtype = as_dtype(leaf.dtype)
        if canonicalize(dtype) != dtype:
            raise ValueError(
                f"result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled; got {dtype.name}."
            )
        types.append(ShapedArray(tuple(leaf.shape), dtype))
    return tuple(types), tree


def _with_results(
    api: str,
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sharding: Any,
    kind: str,
    **options: Any,
) -> Any:
    if not callable(callback):
        raise TypeError(f"{api} takes a function, got {callback!r}.")
    if sharding is not None and not isinstance(sharding, SingleDeviceSharding):
        raise NotImplementedError(
            f"{api} only supports SingleDeviceSharding, but got {type(sharding)}. Drop sharding=: callbacks "
            "run on the host."
        )
    types, out_tree = _result_types(result_shape_dtypes)
    leaves, in_tree = tree_flatten((args, kwargs))
    values = [as_value(leaf) for leaf in leaves]
    outs = _bind_callback(
        Callback(callback, in_tree, (), out_tree, f"{api} {_name(callback)}"), values, types, kind, **options
    )
    return tree_unflatten(out_tree, outs)


def _name(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", repr(fun))


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    vectorized: bool | None = ABSENT,
    **kwargs: Any,
) -> Any:
    """The result of a Python function of arrays, called when the program runs.

    The function must have no effects: its calls may be merged, dropped or repeated.

    Args:
        callback: from Arrays to arrays or scalars of the structure and types of `result_shape_dtypes`.
        result_shape_dtypes: a tree of objects with a shape and a dtype.
        args, kwargs: trees of arrays.
        sharding: None or a SingleDeviceSharding; callbacks run on the host in either case.
        vmap_method: what `vmap` does: call for each element ('sequential', 'sequential_unrolled'), or once with a new first dim
            on the mapped operands and a dim of size 1 ('expand_dims') or of the mapped size ('broadcast_all') on the others.
        vectorized: the older form: True is 'legacy_vectorized' (nothing new on operands that are not mapped).

    Raises:
        ValueError: another `vmap_method`, 64-bit results while these are disabled.
        JaxRuntimeError: when it runs: the function raised, or returned something else than it said.

    >>> import numpy as np
    >>> jax.jit(lambda x: jax.pure_callback(np.sort, x, x))(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    vectorized = old_argument("pure_callback", "vectorized", vectorized, "use vmap_method")
    if vectorized is not None:
        if vmap_method is not None:
            raise ValueError("pure_callback takes one of vectorized= and vmap_method=, got both.")
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method not in _VMAP_METHODS:
        raise ValueError(
            f"vmap_method must be one of the allowed methods {list(_VMAP_METHODS)}, but got: {vmap_method!r}"
        )
    return _with_results(
        "pure_callback", callback, result_shape_dtypes, args, kwargs, sharding, "pure", vmap_method=vmap_method
    )


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Like `pure_callback` (`callback`, `result_shape_dtypes`, `args`, `sharding` and `kwargs` as there) for
    functions with effects: called exactly as often as the program says, in its order.

    `ordered` asks for that order, which holds anyway; with it `vmap` raises ValueError, since elements have none.

    >>> seen = []
    >>> jax.experimental.io_callback(lambda x: seen.append(float(x)), None, jnp.float32(2.0))
    >>> seen
    [2.0]
    """
    return _with_results(
        "io_callback", callback, result_shape_dtypes, args, kwargs, sharding, "io", ordered=bool(ordered)
    )


def debug_callback(
    callback: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    ordered: bool = False,
    partitioned: bool = False,
    name: str | None = None,
) -> None:
    """Call `callback` for its effects when the program runs. Leaves that are no arrays or scalars are passed as they are.

    With `partitioned` it is called per device with the device's part of sharded operands, so that nothing is gathered.

    Raises:
        JaxRuntimeError: the callback raised inside a compiled program. Called eagerly, its own error comes through.
    """
    if not callable(callback):
        raise TypeError(
            f"first argument to `debug_callback` must be callable, but got an object of type {type(callback)}"
        )
    leaves, in_tree = tree_flatten((args, kwargs))
    values, constant_leaves = [], []
    for i, leaf in enumerate(leaves):
        # Keys arrive as such from outside of programs.
        if is_eager() and isinstance(getattr(leaf, "dtype", None), KeyDtype):
            constant_leaves.append((i, leaf))
            continue
        try:
            values.append(as_value(leaf))
        except TypeError:
            constant_leaves.append((i, leaf))
    target = Callback(callback, in_tree, tuple(constant_leaves), None, name or f"debug callback {_name(callback)}")
    at_once = is_eager()
    try:
        _bind_callback(target, values, (), "debug", ordered=bool(ordered), partitioned=bool(partitioned))
    except JaxRuntimeError as error:
        if at_once and isinstance(error.__cause__, Exception):  # outside of programs it is a call like any other
            raise error.__cause__ from None
        raise
