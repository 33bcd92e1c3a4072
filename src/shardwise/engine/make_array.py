"""Building Arrays from parts: from a callback, from single-device arrays, from process-local data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.dtypes import DType, canonicalize, physical
from shardwise.base.errors import IndivisibleError, InvalidInputException, UnexpectedTracerError
from shardwise.base.shapes import Shape
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.engine.array import ArrayImpl, nothing
from shardwise.engine.data_free import without_data
from shardwise.engine.device_put import as_target, check_placeable, device_put
from shardwise.engine.host_values import allows_host_values, host_values
from shardwise.engine.ordered import checked_order, in_order
from shardwise.engine.planned import check_attached
from shardwise.engine.replicas import array_of_parts, same_bits
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.engine.transfer import complete_dense
from shardwise.ir import Array, Tracer
from shardwise.ir.digest import encode_params
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.runtime.processes import MASK, checksum, history, number_of
from shardwise.sharding import NamedSharding, Sharding
from shardwise.sharding.formats import Format, Layout
from shardwise.sharding.ownership import (
    local_index,
    local_part,
    own_coordinates,
    owned_positions,
    ownership,
    spans_processes,
    takes_part,
)
from shardwise.sharding.tiling import indivisible_text

SINGLE = "jax.make_array_from_single_device_arrays"


def _is_planned(sharding: Sharding, processes: int = 1) -> bool:
    """Whether the devices belong to a planned run, in which nobody holds data, of at least `processes` processes."""
    first = sharding.device_list[0].client
    return first.stands_for_all and first.topology.process_count >= processes


def _checked_shape(shape: Any, api: str) -> Shape:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"{api}: shape must be a tuple of ints, got {shape!r} of type {type(shape)}.")
    if any(isinstance(n, str) for n in shape):
        raise TypeError(f"{api}: shape must be a tuple of ints, got {shape!r}.")
    return tuple(int(n) for n in shape)


def _check_sharding(sharding: Any) -> None:
    if not isinstance(sharding, Sharding):
        raise TypeError(f"sharding should be an instance of `jax.sharding`. Got {sharding} of type {type(sharding)}")
    check_attached(sharding)


def _fit_spec_to_rank(sharding: Sharding, ndim: int) -> Sharding:
    """`sharding` without None entries beyond the rank, which checkpoint libraries write for scalars."""
    if not isinstance(sharding, NamedSharding):
        return sharding
    entries = sharding.spec.partitions
    fits = len(entries) <= ndim or any(entries[ndim:])
    return sharding if fits else sharding.update(spec=sharding.spec.update(partitions=entries[:ndim]))


def _check_divides(sharding: Sharding, shape: Shape) -> None:
    sharding.check_compatible_aval(shape)
    tiling = sharding.tiling(len(shape))
    for dim, (size, ways) in enumerate(zip(shape, tiling.ways, strict=True)) if tiling is not None else ():
        if size % ways:
            raise IndivisibleError(indivisible_text(sharding, dim, shape, tiling.ways))  # type: ignore[union-attr]


def _single_device_arrays(arrays: Sequence[Array], dtype: Any) -> tuple[list[ArrayImpl], DType]:
    """The arrays, each known to be concrete and on one device, and the dtype asked for or, without one, that of the first."""
    for a in arrays:
        if isinstance(a, Tracer):
            raise ValueError(
                f"{SINGLE} requires a list of concrete arrays as input, but got a traced one ({a.aval.str_short()}). Call it "
                "outside of jit and other transformations."
            )
        if not isinstance(a, ArrayImpl):
            raise TypeError(
                f"Unsupported type for elements in `arrays`: {type(a)}. Make them with device_put(x, device)."
            )
    given = [a for a in arrays if isinstance(a, ArrayImpl)]
    want = canonicalize(dtype) if dtype is not None else given[0].dtype
    if given and dtype is not None and want != given[0].dtype:
        raise ValueError(
            f"If `dtype` is provided to `{SINGLE}`, it must match the dtype of the addressable shards. Got dtype={want} and "
            f"shard dtype={given[0].dtype}`."
        )
    for a in given:
        if len(a.sharding.device_set) != 1:
            raise ValueError(
                "When making an array from single-device arrays the input arrays must have one shard each. An argument "
                f"array had {len(a.sharding.device_set)} shard(s)."
            )
    return given, want


def make_array_from_single_device_arrays(
    shape: Shape, sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> ArrayImpl:
    """The Array of global `shape` whose content on each device is the given single-device array.

    `arrays` holds one array per addressable device of `sharding`, in any order: each is matched by its device. All have
    the shard's shape and one dtype. `dtype` must be given if `arrays` is empty, and else must agree.

    Raises:
        TypeError: `arrays` is no sequence of Arrays.
        ValueError: arrays are traced, of several devices each, or of other number, shapes, dtypes or devices than `sharding`.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> parts = [jax.device_put(jnp.full(2, i), d) for i, d in enumerate(mesh.devices)]
    >>> jax.make_array_from_single_device_arrays((4,), jax.NamedSharding(mesh, jax.P("x")), parts)
    Array([0, 0, 1, 1], dtype=int32, weak_type=True)
    """
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(
            f"{SINGLE} `arrays` argument must be a {config.dialect.arrays.list_text}, but got {type(arrays)}."
        )
    shape = _checked_shape(shape, SINGLE)
    _check_sharding(sharding)
    if not arrays and dtype is None:
        raise ValueError(
            f"If the Array has no addressable shards, `dtype` must be provided via the `dtype` argument to `{SINGLE}`."
        )
    given, want = _single_device_arrays(arrays, dtype)
    local_devices = [d for d in sharding.device_list if d.is_local]
    if len(given) != len(local_devices):
        raise ValueError(
            f"Expected {len(local_devices)} per-device arrays (this is how many devices are addressable by the sharding), "
            f"but got {len(given)}"
        )
    by_device = {a._sig.devices[0]: a for a in given}
    if len(by_device) != len(given):
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from distinct devices, but got device "
            f"IDs {[a._sig.devices[0].id for a in given]}"
        )
    _check_devices(set(local_devices), set(by_device))
    sharding = _fit_spec_to_rank(sharding, len(shape))
    _check_divides(sharding, shape)
    shard_shape = sharding.shard_shape(shape)
    aval = array_type(shape, want, given[0].weak_type if given else False, sharding)
    for a in given:
        if a.dtype != want:
            raise ValueError(
                f"Input buffers to `Array` must have matching dtypes. Got {a.dtype}, expected {want} for buffer: {a}"
            )
        if a.shape != shard_shape:
            raise ValueError(
                f"Expected shard shape {shard_shape} doesn't match the single device array shape {a.shape}. Shape of Array is "
                f"{want.name}[{','.join(map(str, shape))}] with sharding {sharding}"
            )
    sig = signature(aval, sharding, True)
    if _is_planned(sharding):
        return without_data(sig)
    parts = [by_device[d].dense for d in local_devices]
    if sig.spans:
        return _of_parts(sig, parts, want)
    if sig.tiling is None:
        return ArrayImpl(
            sig, dense=_assemble_parts(shape, sharding, dict(zip(local_devices, parts, strict=True)), want)
        )
    order = by_device[local_devices[0]]._sig.order
    if not sig.form.grid:
        return in_order(ArrayImpl(sig, dense=parts[0]), order)
    return in_order(array_of_parts(sig, parts), order)


def _of_parts(sig: Signature, parts: Sequence[Any], dtype: Any) -> ArrayImpl:
    """This process's part of an array, from the parts on its devices in device order; the first of equal replicas counts."""
    if sig.absent:
        return nothing(sig)
    assert sig.tiling is not None
    shape = sig.aval.shape
    dense = np.empty(sig.form.shape, physical(dtype))
    index_map = sig.sharding.addressable_devices_indices_map(shape)
    for index, part in reversed(list(zip(index_map.values(), parts, strict=True))):
        dense[local_index(index, shape, sig.tiling.ways, sig.positions)] = part  # type: ignore[arg-type]
    if sig.kept_whole:
        complete_dense(sig, dense)
    return _make_from_local(sig, dense)


def _make_from_local(sig: Signature, dense: Any) -> ArrayImpl:
    """An array over several processes from this process's part. If every process passes the whole value, the value identifies it."""
    if not sig.spans or sig.absent:
        return ArrayImpl(sig, dense=dense)
    what, ranks = _kind(sig), tuple(sorted({d.process_index for d in sig.devices}))
    if sig.sharding.is_fully_replicated:
        origin = hash((what, checksum(dense))) & MASK if config.shardwise_check_replicas else what
    else:
        origin = history.make_origin(ranks, what)
    return ArrayImpl(sig, dense=dense, origin=origin)


@recent(4096)
def _kind(sig: Signature) -> int:
    """A number that identifies a type and a sharding, the same on all processes."""
    return number_of(encode_params((sig.aval, sig.sharding)).hex())


def _assemble_parts(shape: Shape, sharding: Sharding, parts: dict[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    out = np.empty(shape, physical(dtype))
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        out[index] = parts[device]
    return out


def _check_devices(wanted: set[Any], given: set[Any]) -> None:
    if wanted == given:
        return
    text = "Addressable devices and per-device arrays devices do not match."
    if wanted - given:
        text += (
            f" Sharding contains devices { {d.id for d in wanted - given} } that are not present in per-device arrays."
        )
    if given - wanted:
        text += f" Per-device arrays contain devices { {d.id for d in given - wanted} } that are not present in the sharding."
    raise ValueError(text)


def make_array_from_callback(
    shape: Shape, sharding: Sharding | Format, data_callback: Callable[[Any], Any], dtype: Any = None
) -> ArrayImpl:
    """The Array of global `shape` whose shard at index `idx` (a tuple of slices) is `data_callback(idx)`.

    The callback runs once per addressable device, in the sharding's device order. It runs once in total if the array
    is fully replicated, or in a planned run, which needs only the type of its result. `dtype`: that of the Array;
    needed where this process holds no part.

    Raises:
        TypeError: `sharding` is no Sharding or has an automatic layout.
        ValueError: a part has another shape than its place, or `dtype` is needed and missing.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> jax.make_array_from_callback((4,), jax.NamedSharding(mesh, jax.P("x")), lambda idx: jnp.arange(4)[idx] * 10)
    Array([ 0, 10, 20, 30], dtype=int32)
    """
    api = "jax.make_array_from_callback"
    shape = _checked_shape(shape, api)
    if isinstance(sharding, Format):
        if sharding.layout is Layout.AUTO or sharding.sharding is None:
            raise TypeError(
                f"`Layout.AUTO` cannot be used in place of a device-local layout when calling `{api}`, which needs a sharding, too. Got "
                f"{sharding}"
            )
        orders = None if sharding.order is None else checked_order(sharding.layout, shape, "the arguments")
        return in_order(make_array_from_callback(shape, sharding.sharding, data_callback, dtype), orders)
    _check_sharding(sharding)
    if not takes_part(sharding.device_list):
        _check_divides(sharding, shape)
        if dtype is None:
            raise ValueError(
                f"If the Array has no addressable shards, `dtype` must be provided via the `dtype` argument to `{api}`."
            )
        return nothing(signature(array_type(shape, canonicalize(dtype), False, sharding), sharding, True))
    calls = _calls(shape, sharding)
    part_check = _PartCheck(calls, dtype, api)
    if not calls.into_place:
        parts = [part_check.values(data_callback(index)) for index in calls.indices]
        sig = _committed_signature(shape, part_check.dtype, sharding)
        if calls.replicated:
            return _make_from_local(sig, parts[0])
        return without_data(sig) if calls.planned else _of_parts(sig, parts, part_check.dtype)
    return _written_into_place(calls, part_check, data_callback)


def _written_into_place(calls: _Calls, part_check: _PartCheck, data_callback: Callable[[Any], Any]) -> ArrayImpl:
    """The array of a callback's parts, each of which is written once, directly into its place. Copies of a part may differ."""
    indices, shard_shape, free = calls.indices, calls.shard_shape, allows_host_values()
    first = part_check.values(data_callback(indices[0]))
    dense = np.empty(calls.shape, physical(part_check.dtype))
    dense[indices[0]], known_dtype = first, part_check.dtype
    others: dict[int, Any] = {}  # copies unlike the first, by the place of their device
    for place, index in enumerate(indices[1:], 1):
        part = data_callback(index)
        as_expected = free and type(part) is np.ndarray and part.dtype is known_dtype and part.shape == shard_shape
        part = part if as_expected else part_check.values(part)
        if place not in calls.copies:
            dense[index] = part
        elif not same_bits(dense[index], part):
            others[place] = part.copy()
    sig = _committed_signature(calls.shape, known_dtype, calls.sharding)
    if others and sig.tiling is not None:
        return array_of_parts(sig, [others.get(i, dense[index]) for i, index in enumerate(indices)])
    return ArrayImpl(sig, dense=dense)


class _Calls:
    """For which parts a callback is called; `into_place`: each is written into the one array of this process as soon as it is there."""

    __slots__ = ("copies", "indices", "into_place", "planned", "replicated", "shape", "shard_shape", "sharding")

    def __init__(self, shape: Shape, sharding: Sharding) -> None:
        _check_divides(sharding, shape)
        self.shape, self.sharding, self.shard_shape = shape, sharding, sharding.shard_shape(shape)
        self.replicated, self.planned = sharding.is_fully_replicated, _is_planned(sharding)
        spans = spans_processes(sharding.device_list)
        if self.replicated:
            indices: list[Any] = [tuple(slice(None) for _ in shape)]
        else:
            here = sharding.addressable_devices_indices_map if spans else sharding.devices_indices_map
            indices = list(here(shape).values())
        self.indices = indices[:1] if self.planned else indices
        self.into_place = not (self.replicated or self.planned or spans)
        parts = [tuple([(c.start, c.stop) for c in index]) for index in self.indices] if self.into_place else []
        firsts = {part: i for i, part in reversed(list(enumerate(parts)))}
        # Places of devices whose part an earlier one has.
        self.copies = {i for i, part in enumerate(parts) if firsts[part] != i}


@recent(256)  # each holds an index per part
def _calls(shape: Shape, sharding: Sharding) -> _Calls:
    return _Calls(shape, sharding)


@recent(4096)
def _committed_signature(shape: Shape, dtype: DType, sharding: Sharding) -> Signature:
    """The signature of committed arrays with a strong type."""
    return signature(array_type(shape, dtype, False, sharding), sharding, True)


class _PartCheck:
    """Checks the results of a callback: each must have the shard's shape, and all must have one dtype."""

    __slots__ = ("_api", "_called", "_given", "dtype")

    def __init__(self, called: _Calls, dtype: Any, api: str) -> None:
        self._called, self._given, self._api = called, dtype, api
        self.dtype: Any = None  # of all results, set by the first

    def values(self, x: Any) -> np.ndarray[Any, Any]:
        """The values of a result, in memory that the callback does not write to again."""
        found_dtype, part = _callback_result(x)
        if self.dtype is None:
            self.dtype = found_dtype if self._given is None else canonicalize(self._given)
            if found_dtype != self.dtype:
                raise ValueError(
                    f"If `dtype` is provided to `{self._api}`, it must match the dtype of the addressable shards. Got "
                    f"dtype={self.dtype} and shard dtype={found_dtype}`."
                )
        if found_dtype is not self.dtype and found_dtype != self.dtype:
            raise ValueError(
                f"Input buffers to `Array` must have matching dtypes. Got {found_dtype}, expected {self.dtype} for buffer: {part}"
            )
        calls = self._called
        if part.shape != calls.shard_shape:
            raise ValueError(
                f"Expected shard shape {calls.shard_shape} doesn't match the single device array shape {part.shape}. Shape of "
                f"Array is {self.dtype.name}[{','.join(map(str, calls.shape))}] with sharding {calls.sharding}"
            )
        return part


def _callback_result(x: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """The dtype and the values of a result, copied if the callback could write to the same memory again."""
    if type(x) is np.ndarray:
        values = host_values(x)
        return values.dtype, values
    try:
        value = as_array(x)
    except TypeError:
        raise InvalidInputException(
            f"Argument '{x}' of type {type(x)} is not a valid JAX type. The callback must return an array."
        ) from None
    if isinstance(value, Tracer):
        raise UnexpectedTracerError(
            f"jax.make_array_from_callback cannot be called within a traced context: the callback gave a traced array "
            f"({value.aval.str_short()}). Call it outside of jit, on concrete data."
        )
    assert isinstance(value, ArrayImpl)
    return value.dtype, value.dense


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """The global Array of which this process holds `local_data`. With one process, `local_data` is the whole array.

    Both arguments may be trees, `sharding` a prefix. Without `global_shape` each dim is multiplied by the number of different
    parts that processes hold of it. A dim of `local_data` that already has the global size is cut to this process's part.

    Raises:
        ValueError: a dim has neither the global size nor the size of this process's part; or processes hold parts of
            different sizes and `global_shape` is not given.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> jax.make_array_from_process_local_data(jax.NamedSharding(mesh, jax.P("x")), jnp.arange(4))
    Array([0, 1, 2, 3], dtype=int32)
    """

    leaves, tree = tree_flatten(local_data)
    whole = isinstance(sharding, (Sharding, Format))
    shardings = [sharding] * len(leaves) if whole else broadcast_prefix(sharding, local_data)
    if global_shape is None or isinstance(global_shape, tuple):
        shapes = [global_shape] * len(leaves)
    else:
        shapes = tree_flatten(global_shape, is_leaf=lambda s: isinstance(s, tuple))[0]
    out = []
    for leaf, target, shape in zip(leaves, shardings, shapes, strict=True):
        value = as_value(leaf)
        target_sharding = as_target(target)
        assert target_sharding is not None
        if spans_processes(target_sharding.device_list) or _is_planned(target_sharding, processes=2):
            new_array = _from_local(target_sharding, value, shape)
            out.append(in_order(new_array, target.order if isinstance(target, Format) else None))
            continue
        checks_shape = config.dialect.arrays.local_data_checks_shape
        if checks_shape and shape is not None and tuple(shape) != value.shape:
            raise ValueError(
                "When calling `make_array_from_process_local_data` on a single process, global_shape must be None or equal to "
                f"local_data.shape; got {shape} for data of shape {value.shape}."
            )
        check_placeable(target_sharding, value.aval, "device_put args")
        out.append(device_put(leaf, target))
    return tree_unflatten(tree, out)


def _from_local(sharding: Sharding, value: Any, shape: Shape | None) -> ArrayImpl:
    """One array over several processes, from this process's part."""
    value = as_array(value)
    if isinstance(value, Tracer):
        raise TypeError("make_array_from_process_local_data takes host values; it cannot be used inside of jit.")
    assert isinstance(value, ArrayImpl)
    if not value.is_fully_addressable and not _is_planned(sharding):
        raise ValueError(f"make_array_from_process_local_data takes data of this process; got {value}.")
    sharding.check_compatible_aval(value.shape)
    tiling = sharding.tiling(value.ndim)
    if tiling is None:
        raise NotImplementedError(f"no device grid describes {sharding}; use make_array_from_single_device_arrays.")
    is_planned = _is_planned(sharding)
    if is_planned:  # only this process's part is checked; the others are like it
        coordinates = own_coordinates(sharding.device_list, tiling.mesh_shape)
        mine, block_by_place = owned_positions(tiling.dims, tiling.mesh_shape, coordinates), {}
        if shape is None:
            ways = [1 if p is None else w // len(p) for w, p in zip(tiling.ways, mine, strict=True)]
            shape = tuple(n * w for n, w in zip(value.shape, ways, strict=True))
    else:
        owners = ownership(sharding.device_list, tiling.mesh_shape)
        block_by_place = {r: owned_positions(tiling.dims, tiling.mesh_shape, c) for r, c in owners.owned.items()}
        mine = block_by_place[owners.me]
        if shape is None and owners.kept_whole:
            raise ValueError(
                "Unable to compute global_shape due to non-uniform sharding. Specify global shape directly, and give data of that shape: "
                f"among the devices of {sharding} processes form no grid."
            )
    if shape is None:
        shape = _inferred_shape(value.shape, tiling.ways, block_by_place.values())
    shape = _checked_shape(shape, "jax.make_array_from_process_local_data")
    if len(shape) != value.ndim:
        raise ValueError(f"global_shape {shape} has another rank than the data, whose shape is {value.shape}.")
    _check_divides(sharding, shape)
    own = [n if p is None else n // w * len(p) for n, w, p in zip(shape, tiling.ways, mine, strict=True)]
    take = []
    for d, (have, part, whole) in enumerate(zip(value.shape, own, shape, strict=True)):
        if have not in (part, whole):
            raise ValueError(
                "Invalid host data, each dimension should match either global or process shape. In dimension "
                f"{d}, the process data has {have} elements. Process addresses {part} elements and global_shape={shape}. "
            )
        take.append(mine[d] if have != part else None)
    sig = signature(array_type(shape, value.dtype, value.weak_type, sharding), sharding, True)
    if is_planned:
        return without_data(sig)
    if sig.kept_whole:  # of the data only the parts on this process's devices count
        indices = sharding.addressable_devices_indices_map(shape).values()
        return _of_parts(sig, [value.dense[index] for index in indices], value.dtype)
    return _make_from_local(sig, local_part(value.dense, tiling.ways, take))


def _inferred_shape(local: Shape, ways: Shape, held: Iterable[Sequence[Any]]) -> Shape:
    """The local shape times the number of different parts of each dim."""
    everyone = list(held)
    shape = []
    for d, size in enumerate(local):
        different = {tuple(h[d]) if h[d] is not None else None for h in everyone}
        sizes = {len(p) for p in different if p is not None}
        if None not in different and (len(sizes) > 1 or sum(map(len, filter(None, different))) != ways[d]):
            raise ValueError(
                "Unable to compute global_shape due to non-uniform sharding. Specify global shape directly. The processes hold "
                f"{sorted(sizes)} of the {ways[d]} parts of dimension {d}, some of them the same."
            )
        if None in different and len(different) > 1:
            raise ValueError(
                "Unable to compute global_shape due to non-uniform sharding. Specify global shape directly. Some processes hold "
                f"all of dimension {d}, others a part of it."
            )
        shape.append(size * len(different))
    return tuple(shape)
