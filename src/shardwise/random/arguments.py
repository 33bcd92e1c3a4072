"""Checks of samplers' arguments: dtypes of the right kind, shapes that fit the parameters, where results go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from shardwise.base.dtypes import check_requested, dtype_of, issubdtype, safe_to_cast
from shardwise.base.errors import TypePromotionError
from shardwise.base.shapes import Shape
from shardwise.ir import Array, bind
from shardwise.ops.devices.layout import reshard_op
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim, broadcast_shapes
from shardwise.ops.shapes.reshape import reshape
from shardwise.random.compiled import compile_sampler
from shardwise.random.keys import checked_key, typed_key
from shardwise.sharding import Mesh, NamedSharding, get_concrete_mesh, use_mesh


def float_dtype(name: str, dtype: Any, *, complex: bool = False) -> Any:
    """The dtype asked of a sampler of real (or complex) numbers; None means the default float. ValueError for others."""
    result_dtype = check_requested(float if dtype is None else dtype, name)
    if not issubdtype(result_dtype, np.inexact if complex else np.floating):
        kinds = "a float or complex dtype" if complex else "a float dtype"
        raise ValueError(f"dtype argument to `{name}` must be {kinds}, got {result_dtype.name}.")
    return result_dtype


def int_dtype(name: str, dtype: Any, error: type[Exception] = ValueError) -> Any:
    """The dtype asked of a sampler of integers; None means the default int. `error` for others."""
    result_dtype = check_requested(int if dtype is None else dtype, name)
    if not issubdtype(result_dtype, np.integer):
        raise error(f"dtype argument to `{name}` must be an int dtype, got {result_dtype.name}.")
    return result_dtype


def shape_of(x: Any) -> Shape:
    """The shape of a parameter: an array, tracer or scalar."""
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def sample_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """The shape of the result: `shape`, or that to which the parameters broadcast if it is None.

    Raises:
        ValueError: the parameters do not broadcast to `shape`.
    """
    shapes = [shape_of(p) for p in parameters]
    if shape is None:
        return tuple(broadcast_shapes(*shapes)) if shapes else ()
    full_shape = shape_tuple(shape, name)
    if shapes:
        check_shape(name, full_shape, *shapes)
    return full_shape


def check_shape(name: str, shape: Shape, *parameter_shapes: Shape) -> None:
    """ValueError unless parameters of these shapes broadcast to `shape`."""
    result_shape = tuple(broadcast_shapes(shape, *parameter_shapes))
    if result_shape != shape:
        raise ValueError(
            f"{name}: parameter shapes must be broadcast-compatible with shape argument, and the result of broadcasting "
            f"the shapes must equal the shape argument, but got result {result_shape} for shape argument {shape}."
        )


def check_safe(name: str, dtype: Any, *parameters: Any) -> None:
    """TypePromotionError for parameters whose dtype does not go into `dtype` unharmed."""
    for p in parameters:
        if not safe_to_cast(p, dtype):
            raise TypePromotionError(
                f"In arguments to {name}, cannot safely cast argument of type {dtype_of(p).name} to {dtype.name}. "
                "Cast it, or ask for a wider dtype."
            )


def parameter(x: Any, rank: int, dtype: Any) -> Any:
    """A parameter as a strongly typed value of `dtype` that ops broadcast against samples of this rank."""
    return aligned_rank(convert(as_value(x), dtype), rank)


def broadcast_to(x: Any, shape: Shape, sharding: NamedSharding | None = None) -> Array:
    """A parameter repeated to `shape`, as NumPy aligns it."""
    value = as_value(x)
    return broadcast_in_dim(value, shape, tuple(range(len(shape) - value.ndim, len(shape))), out_sharding=sharding)


def aligned_rank(x: Any, rank: int) -> Any:
    """A parameter with leading dims of size 1 up to `rank`; scalars stay scalars, and single elements are scalars of scalar samples."""
    value = as_value(x)
    if not rank and value.ndim and value.shape == (1,) * value.ndim:
        return reshape(value, ())
    if not value.ndim or value.ndim == rank:
        return value
    if value.ndim > rank:
        raise ValueError(
            f"parameters have to broadcast to the shape of the samples, with {rank} dims; got one of shape {tuple(value.shape)}."
        )
    shape = (1,) * (rank - value.ndim) + tuple(value.shape)
    return broadcast_in_dim(value, shape, tuple(range(rank - value.ndim, rank)))


def choose(which: Any, on_true: Any, on_false: Any) -> Array:
    """Elementwise choice in which all three broadcast."""
    return bind(select_n_p, which, on_false, on_true)


# -- samplers -----------------------------------------------------------------------------------------------------------------------------


def sampler(draw: Callable[..., Array]) -> Callable[..., Array]:
    """``draw(key, *parameters, **static)`` compiled per static values; the key arrives in typed form."""
    return _sampler(draw, compile_sampler(draw))  # shown by the name that JAX's has


def sampler_in_calls(draw: Callable[..., Array]) -> Callable[..., Array]:
    """`sampler`, for a function that JAX does not compile by itself: in programs that are shown its ops are the caller's."""
    return _sampler(draw, draw)


def _sampler(draw: Callable[..., Array], shown: Callable[..., Array]) -> Callable[..., Array]:

    def on_typed(key: Array, *parameters: Any, **static: Any) -> Array:
        return draw(typed_key(key), *parameters, **static)

    on_typed.__name__ = draw.__name__.lstrip("_")
    return compile_sampler(
        on_typed, lambda key, *parameters, **static: shown(typed_key(key), *map(as_value, parameters), **static)
    )


def draw_floats(
    draw: Callable[..., Array],
    name: str,
    key: Any,
    parameters: tuple[Any, ...],
    shape: Any,
    dtype: Any,
    out_sharding: Any,
    *,
    safe: bool = True,
    complex: bool = False,
) -> Array:
    """A sample of floats: runs the checks that all samplers share, then ``draw(key, *parameters, shape, dtype, sharding)``.

    With `safe` the parameters' dtypes must go into `dtype` unharmed.
    """
    own_key = checked_key(name, key)
    result_dtype = float_dtype(name, dtype, complex=complex)
    full_shape = sample_shape(name, shape, *parameters)
    if safe:
        check_safe(name, result_dtype, *parameters)
    return draw_in_mesh(
        name,
        out_sharding,
        len(full_shape),
        lambda sharding: draw(own_key, *parameters, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )


# -- placing results ------------------------------------------------------------------------------------------------------------------


def sampling_layout(
    name: str, out_sharding: Any, ndim: int
) -> tuple[NamedSharding | None, AbstractContextManager[Any]]:
    """`out_sharding` over the abstract mesh, and the context in which to sample.

    A NamedSharding brings its own mesh, in which the sample is made when no mesh is current.
    """
    sharding = resolve_out_sharding(out_sharding, f"random.{name}", ndim)
    mesh = getattr(out_sharding, "mesh", None)
    if isinstance(mesh, Mesh) and get_concrete_mesh().empty:
        return sharding, use_mesh(mesh)
    return sharding, nullcontext()


def draw_in_mesh(name: str, out_sharding: Any, ndim: int, sample: Callable[[NamedSharding | None], Array]) -> Array:
    """The result of `sample(sharding)`, in the mesh of `out_sharding`."""
    if out_sharding is None:
        return sample(None)
    sharding, context = sampling_layout(name, out_sharding, ndim)
    with context:
        if sharding is None or not sharding.spec.unreduced:
            return sample(sharding)
        # Parts are summed later, and what makes floats of bits is no sum: the sample is made whole.
        whole = NamedSharding(sharding.mesh, sharding.spec.update(unreduced=frozenset()))
        return reshard_sample(sample(whole), sharding)


def reshard_sample(x: Array, sharding: NamedSharding | None) -> Array:
    """`x` resharded to the user's `out_sharding`, for samplers that cannot sample in that layout."""
    return x if sharding is None else bind(reshard_op, x, sharding=sharding)


def extend_sharding(sharding: NamedSharding | None, leading: int = 0, trailing: int = 0) -> NamedSharding | None:
    """`sharding` for an array with additional unsplit dims, in front or behind."""
    if sharding is None:
        return None
    spec = sharding.spec
    return NamedSharding(
        sharding.mesh, spec.update(partitions=((None,) * leading + spec.partitions + (None,) * trailing))
    )
