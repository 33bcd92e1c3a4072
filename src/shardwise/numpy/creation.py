"""Arrays from host values, and arrays of one value.

In: Python and NumPy values, shapes, dtypes; a place (`device=`) or a type-level split (`out_sharding=`). Out: arrays.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import (
    as_dtype,
    canonicalize,
    check_requested,
    default_dtype,
    dtype_of,
    is_weak,
    issubdtype,
    lattice_result_type,
)
from shardwise.engine.array import ArrayImpl, new_array
from shardwise.engine.device_put import as_target, place_created
from shardwise.engine.placement import incompatible_devices
from shardwise.ir import Array, Literal, Tracer, bind, is_eager, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import as_array, broadcast_to_shape, requested_dtype, shape_of, value
from shardwise.numpy._promote import astype as cast
from shardwise.ops.elementwise.casts import convert, copy_p, refuse_complex_scalar
from shardwise.ops.rules.convert import own_array, plain_ndarray, wide_int
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.fill import filled_like, full_array, sharding_for, varying_like
from shardwise.sharding import (
    AbstractMesh,
    Mesh,
    NamedSharding,
    PmapSharding,
    Sharding,
    get_abstract_mesh,
    get_concrete_mesh,
    use_mesh,
)

_PYTHON_KINDS: dict[type, str] = {bool: "b", int: "i", float: "f", complex: "c"}


_no_nans = config.setting("jax_debug_nans").get
_no_infs = config.setting("jax_debug_infs").get

# -- from host values ------------------------------------------------------------------------------------------


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of `object`: a scalar, an array, or nested sequences of these.

    Args:
        dtype: the result's; by default Python scalars give weakly typed arrays, sequences the dtype of their items.
        copy: False may share memory with `object`. Of a masked array of NumPy a copy has the data alone; without one it is refused.
        order: only None and 'K'.
        ndmin: at least this number of dims, by new ones in front.
        device: where the result lives: a Device, Sharding or PartitionSpec.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        TypeError: an item is no number, or sequences that hold arrays are ragged. ValueError: an item is None, or other
            sequences are ragged.
        OverflowError: an integer does not fit the dtype.
        NotImplementedError: `order` is 'C', 'F' or 'A'.

    >>> jnp.array([[1, 2], [3, 4]], dtype=jnp.float32)
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    if order not in (None, "K"):
        raise NotImplementedError(
            f"array: order={order!r} is not supported; arrays have no memory order. Use order='K'."
        )
    result_dtype = requested_dtype("array", dtype)
    if isinstance(object, Array):
        _refuse_move("array", object, device)
        result = _copy_buffer(object, result_dtype) if copy else as_array(value("array", object))
        if result_dtype is not None:
            result = as_array(cast(result, result_dtype))
    else:
        result = _from_host(_drop_mask(object) if copy or result_dtype is not None else object, result_dtype)
        if not isinstance(result, Tracer) and (_no_nans() or _no_infs() or not get_abstract_mesh().empty):
            result = bind(copy_p, result)  # new arrays live on the mesh in context; results of ops are checked
    if result.ndim < ndmin:
        result = lax.expand_dims(result, range(ndmin - result.ndim))
    if out_sharding is not None:
        target = resolve_out_sharding(out_sharding, "array", result.ndim)
        assert target is not None
        whole = isinstance(out_sharding, NamedSharding) and isinstance(out_sharding.mesh, Mesh)
        return place_created(result, NamedSharding(out_sharding.mesh, target.spec) if whole else target.spec)
    return place_created(result, device)


def _refuse_move(name: str, x: Array, device: Any) -> None:
    """ValueError if `x` is committed to other devices: only device_put moves such arrays."""
    if device is None or isinstance(x, Tracer) or not x.committed:  # type: ignore[attr-defined]
        return
    target = as_target(device)
    assert target is not None
    here = x.sharding.device_list  # type: ignore[attr-defined]
    if tuple(target.device_list) != tuple(here):
        first = f"argument 0 of {name} with shape {x.aval.str_short(False)}"
        raise incompatible_devices(name, first, here, "explicit output sharding", target.device_list)


def _copy_buffer(x: Array, wanted: Any) -> Array:
    """`x` in a buffer of its own, unless the cast to `wanted` that follows makes one."""
    concrete = type(x) is ArrayImpl and is_eager()
    if wanted is not None and (wanted != x.dtype or (x.weak_type and not concrete)):
        return x
    if concrete and isinstance(x, ArrayImpl) and type(x.sharding) is PmapSharding:
        return x._copy_dense()
    result = bind(copy_p, x)  # on the mesh in context
    return result._copy_dense() if concrete and type(result) is ArrayImpl else result


def _drop_mask(x: Any) -> Any:
    """`x`, without its mask if it is one of NumPy's masked arrays: as np.array, a copy has the data alone."""
    plain = type(x) is np.ndarray or not isinstance(x, np.ndarray)  # start-up time: to ask for `np.ma` imports it
    return x if plain or not isinstance(x, np.ma.MaskedArray) else x.data


def _from_host(x: Any, wanted: Any) -> Array:
    if isinstance(x, tuple(_PYTHON_KINDS)) and not isinstance(x, np.generic):
        if wanted is None:
            return as_array(literal(x))
        return _host(np.asarray(x, wanted if np.dtype(wanted).kind != "b" else None), wanted)
    if isinstance(x, list | tuple):
        return _from_sequence(x, wanted)
    if isinstance(x, Literal):
        return as_array(x if wanted is None else cast(x, wanted))
    if not isinstance(x, np.ndarray | np.generic) and hasattr(x, "__jax_array__"):
        return array(own_array(x), wanted)
    if x is None:
        raise ValueError("None is not a valid value for jnp.array")
    return _host(plain_ndarray(x) if isinstance(x, np.ndarray) else np.asarray(x), wanted)


def _host(x: np.ndarray[Any, Any], wanted: Any) -> Array:
    """An array of a host array, whose dtype may be any that NumPy casts to the one that is `wanted`."""
    dtype: Any = wanted
    if wanted is None:
        try:
            dtype = canonicalize(as_dtype(x.dtype))
        except TypeError:
            raise TypeError(
                f"{_short_repr(x)} with dtype {x.dtype} is not a valid JAX array type. Expected bools or numbers; "
                "convert it first, for example with np.asarray(x, float)."
            ) from None
    if dtype != x.dtype:
        x = x.astype(dtype)
    return new_array(x)


def _short_repr(x: Any) -> str:
    text = repr(x)
    return text if len(text) < 60 else text[:57] + "..."


def _from_sequence(x: Any, wanted_dtype: Any) -> Array:
    leaves: list[Any] = []
    _collect(x, leaves)
    kinds = {type(leaf) for leaf in leaves}
    if type(None) in kinds:
        raise ValueError("None is not a valid value for jnp.array")
    if _hold_arrays(kinds):
        dtype = wanted_dtype if wanted_dtype is not None else lattice_result_type(*leaves)[0]
        return _stack_nested(x, dtype)
    if wanted_dtype is None:
        if not leaves:
            wanted_dtype = default_dtype("f")
        elif kinds <= _PYTHON_KINDS.keys():
            if len(kinds) > 1:
                lattice_result_type(*[kind() for kind in kinds])  # raises if a setting forbids to mix them
            wanted_dtype = default_dtype(max((_PYTHON_KINDS[kind] for kind in kinds), key="bifc".index))
        elif all(isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray) for leaf in leaves):
            wanted_dtype = lattice_result_type(*leaves)[0]
    if wanted_dtype is not None and np.dtype(wanted_dtype).kind in "iufc":
        return new_array(np.array(x, dtype=wanted_dtype))  # raises OverflowError if a Python int does not fit
    return _host(np.array(x), wanted_dtype)


def _hold_arrays(kinds: set[type]) -> bool:
    """Whether there are arrays among items of these types."""
    return any(issubclass(kind, Array) or hasattr(kind, "__jax_array__") for kind in kinds)


def _collect(x: Any, leaves: list[Any]) -> None:
    for item in x:
        if isinstance(item, list | tuple):
            _collect(item, leaves)
        else:
            leaves.append(plain_ndarray(_drop_mask(item)) if isinstance(item, np.ndarray) else item)


def _stack_nested(x: Any, dtype: Any) -> Array:
    """Nested sequences with arrays among their items."""
    if isinstance(x, list | tuple):
        leaves: list[Any] = []
        _collect(x, leaves)
        if not _hold_arrays({*map(type, leaves)}):
            return _from_sequence(x, dtype)
        rows = [_stack_nested(item, dtype) for item in x]
        shapes = {row.shape for row in rows}
        if len(shapes) > 1:
            raise TypeError(f"array: items of one sequence have different shapes: {sorted(shapes)}.")
        return lax.concatenate([lax.expand_dims(row, (0,)) for row in rows], 0)
    return as_array(cast(value("array", _drop_mask(x)), dtype))


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """`a` as an array; an array of the right dtype as it is, unless `copy` is true. See `array`.

    Args:
        order: only None and 'K'.
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.asarray([1.5, 2.5])
    Array([1.5, 2.5], dtype=float32)
    """
    return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)


def copy(a: Any, order: str | None = None) -> Array:
    """A copy of the array `a` with its sharding.

    Args:
        order: only None and 'K'.

    >>> jnp.copy(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    value("copy", a)
    return array(a, copy=True, order=order)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """`x` cast to `dtype` (None: the default float). Complex values lose their imaginary part with a UserWarning;
    as bools they tell whether either part is not zero.

    Args:
        copy: make a copy also where the dtype stays.
        device: where the result lives: a Device or Sharding.

    >>> jnp.astype(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    v = value("astype", x)
    result_dtype: Any = default_dtype("f") if dtype is None else check_requested(dtype, "astype")
    if issubdtype(v.dtype, np.complexfloating) and np.dtype(result_dtype).kind == "b":
        v = lax.ne(as_array(v), as_array(np.zeros((), v.dtype)))
    elif issubdtype(v.dtype, np.complexfloating) and np.dtype(result_dtype).kind != "c":
        import warnings

        warnings.warn(
            "Casting from complex to real dtypes will discard the imaginary part; take it with real().",
            DeprecationWarning,
            stacklevel=3,
        )
        v = lax.real(v)
    result = as_array(v)
    _refuse_move("astype", result, device)
    if copy and result.dtype == result_dtype and not result.weak_type:
        result = _copy_buffer(result, result_dtype)
    return place_created(as_array(cast(result, result_dtype)), device)


def scalar_array(x: Any, dtype: Any) -> Array:
    """The result of calling a dtype: ``float32(3)``."""
    return asarray(x, dtype=dtype)


# -- one value everywhere --------------------------------------------------------------------------------------


def _fill_array(name: str, shape: Any, number: Literal, device: Any, out_sharding: Any) -> Array:
    sizes = shape_tuple(shape, name)
    return (
        _split(name, sizes, number, out_sharding)
        if out_sharding is not None
        else place_created(full_array(sizes, number), device)
    )


def _split(name: str, sizes: tuple[int, ...], number: Any, out_sharding: Any) -> Array:
    """An array filled with a scalar, split over Explicit axes by `out_sharding`."""
    target = resolve_out_sharding(out_sharding, name, len(sizes))
    with its_mesh(out_sharding):
        return on_its_mesh(full_array(sizes, number, target), out_sharding)


def its_mesh(out_sharding: Any) -> AbstractContextManager[Any]:
    """Where ops run at once for `out_sharding`: under the mesh that it names, if none is current."""
    mesh = getattr(out_sharding, "mesh", None)
    if isinstance(mesh, Mesh) and is_eager() and get_concrete_mesh().empty:
        return use_mesh(mesh)
    return nullcontext()


def on_its_mesh(x: Array, out_sharding: Any) -> Array:
    """`x` on the devices that `out_sharding` names, if it does: without a context its type alone would not move it."""
    is_named = isinstance(out_sharding, NamedSharding) and isinstance(out_sharding.mesh, Mesh)
    return place_created(x, out_sharding) if is_named else x


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of this shape and dtype (default float), placed or split as asked.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.zeros((2, 2))
    Array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    result_dtype = requested_dtype("zeros", dtype) or default_dtype("f")
    return _fill_array("zeros", shape, literal(0, result_dtype), device, out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones of this shape and dtype (default float), placed or split as asked.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.ones((2, 2), dtype=jnp.int32)
    Array([[1, 1],
           [1, 1]], dtype=int32)
    """
    result_dtype = requested_dtype("ones", dtype) or default_dtype("f")
    return _fill_array("ones", shape, literal(1, result_dtype), device, out_sharding)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of this `shape` and `dtype` (default float) with any contents: here zeros.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        TypeError: a size is no concrete integer of at least 0.

    >>> jnp.empty((2, 2))
    Array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    result_dtype = requested_dtype("empty", dtype) or default_dtype("f")
    return _fill_array("empty", shape, literal(0, result_dtype), device, out_sharding)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """`fill_value`, a scalar or an array to broadcast, in this shape; weakly typed if it is a Python number.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32, weak_type=True)
    """
    result_dtype = requested_dtype("full", dtype)
    v = value("full", fill_value if result_dtype is None else wide_int(fill_value, result_dtype), 1)
    if result_dtype is not None:
        refuse_complex_scalar("jnp.full", fill_value, result_dtype)
        v = cast(v, result_dtype)
    if isinstance(v, Literal):
        if device is not None:
            v = literal(v.value, v.dtype, False)
        return _fill_array("full", shape, v, device, out_sharding)
    sizes = shape_tuple(shape, "full")
    if not v.ndim:
        result = full_array(sizes, v) if out_sharding is None else _split("full", sizes, v, out_sharding)
    else:
        result = broadcast_to_shape(v, sizes)
        if out_sharding is not None:
            return place_created(result, out_sharding)
    return place_created(result, device)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """`fill_value` with the shape, dtype and place of `a` (an array or anything with shape and dtype) unless given.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.full_like(jnp.ones(2), 7)
    Array([7., 7.], dtype=float32)
    """
    return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros with the shape, dtype and place of `a` (an array or anything with shape and dtype) unless given.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.zeros_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones with the shape, dtype and place of `a` (an array or anything with shape and dtype) unless given.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.ones_like(jnp.arange(2))
    Array([1, 1], dtype=int32)
    """
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """An array like `prototype` with any contents: here zeros. `shape` and `dtype` replace the prototype's.

    Args:
        device: where the result lives: a Device or Sharding.

    >>> jnp.empty_like(jnp.arange(2))
    Array([0, 0], dtype=int32)
    """
    return _like("empty_like", prototype, 0, dtype, shape, device, None)


def _like(name: str, a: Any, fill: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any) -> Array:
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = value(name, 0 if type(a) is int else a)  # a number may be too large for its type, which alone matters here
    result_dtype, weak = requested_dtype(name, dtype), False
    if result_dtype is None:
        result_dtype, weak = dtype_of(a), is_weak(a)
    sizes = shape_of(a) if shape is None else shape_tuple(shape, name)
    if not weak:
        refuse_complex_scalar(f"jnp.{name}", fill, result_dtype)
    number = value(name, wide_int(fill, result_dtype), 1)
    number = convert(number, result_dtype, weak) if isinstance(number, Literal) else cast(number, result_dtype)
    if isinstance(number, Array) and number.ndim:
        return place_created(broadcast_to_shape(number, sizes), device)
    if out_sharding is not None:
        return _split(name, sizes, number, out_sharding)
    if device is not None:
        return place_created(full_array(sizes, number), device)
    if isinstance(a, Tracer):
        if sizes == a.shape:
            return filled_like(a, number)
    elif isinstance(a, Array):
        sharding = sharding_for(a, sizes)
        if sharding is not None:  # made on the devices of `a`
            return place_created(full_array(sizes, number), sharding)
    elif isinstance(getattr(a, "sharding", None), Sharding) and sizes == shape_of(a):  # a ShapeDtypeStruct
        if isinstance(a.sharding, NamedSharding) and isinstance(a.sharding.mesh, AbstractMesh):
            return _split(name, sizes, number, a.sharding)
        return place_created(full_array(sizes, number), a.sharding)
    return varying_like(a, full_array(sizes, number))


__all__ = [
    "array", "asarray", "astype", "copy", "empty", "empty_like", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip
