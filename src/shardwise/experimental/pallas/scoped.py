"""Building blocks of kernels: conditions and loops over statements, memory of a scope, hints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.tree import tree_flatten, tree_map
from shardwise.experimental.pallas.memory import MemoryRef, uninitialized_array
from shardwise.experimental.pallas.sizes import cdiv
from shardwise.experimental.pallas.specs import CostEstimate
from shardwise.ir import Array, Tracer
from shardwise.ref import Ref
from shardwise.transforms.jit.jit import jit


def when(condition: Any, /) -> Callable[[Callable[[], None]], None]:
    """A decorator that calls the function if `condition` holds, which may be traced.

    >>> @when(True)
    ... def _():
    ...     print("called")
    called
    """

    def call(function: Callable[[], None]) -> None:
        if not isinstance(condition, bool):
            lax.cond(condition, function, lambda: None)
        elif condition:
            function()

    return call


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: int | bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that calls the function with `lower`, ``lower + step``, ... below `upper`, and the carry if there is one.

    The decorated name is the last carry.

    >>> @loop(0, 6, step=2, init_carry=0)
    ... def total(i, carry):
    ...     return carry + i
    >>> total
    Array(6, dtype=int32, weak_type=True)
    """
    zero: Any = 0
    if any(isinstance(bound, Tracer) for bound in (lower, upper, step)):
        dtype = jnp.result_type(lower, upper, step)
        lower, upper, step = (lax.convert_element_type(bound, dtype) for bound in (lower, upper, step))
        zero = jnp.zeros((), dtype)

    def run(body: Callable[..., Any]) -> Any:
        if init_carry is None:
            one: Callable[..., Any] = lambda i, _: body(lower + i * step)  # noqa: E731
        else:
            one = lambda i, carry: body(lower + i * step, carry)  # noqa: E731
        return lax.fori_loop(zero, cdiv(upper - lower, step), one, init_carry, unroll=unroll)

    return run


def run_scoped(
    f: Callable[..., Any], *types: Any, collective_axes: Hashable | tuple[Hashable, ...] = (), **kw_types: Any
) -> Any:
    """``f(*refs, **kw_refs)``, with Refs to new memory of these types; returns the result of `f`.

    NotImplementedError for `collective_axes`: steps run one after the other.
    """
    if collective_axes != ():
        raise NotImplementedError(
            f"run_scoped: collective_axes={collective_axes!r} is not available: the steps of a grid run one after the other. Use "
            "scratch_shapes, which all steps share."
        )
    refs, named_refs = tree_map(
        lambda t: Ref(uninitialized_array(t.get_array_aval().shape, t.get_array_aval().dtype)), (types, kw_types)
    )
    return f(*refs, **named_refs)


def with_scoped(
    *types: Any, collective_axes: Hashable | tuple[Hashable, ...] = (), **kw_types: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function also gets Refs to new memory, after its own arguments. As `run_scoped`."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any) -> Any:
            return run_scoped(
                lambda *refs, **named: f(*args, *refs, **named), *types, collective_axes=collective_axes, **kw_types
            )

        return inner

    return decorate


def run_state(f: Callable[..., None]) -> Callable[[Any], Any]:
    """A function of a tree of arrays that calls `f` with Refs to them and returns what they hold afterwards.

    >>> def twice(ref):
    ...     ref[...] = ref[...] * 2
    >>> run_state(twice)(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """

    def wrapper(args: Any) -> Any:
        refs = tree_map(Ref, args)
        f(refs)
        return tree_map(lambda ref: ref[...], refs)

    return wrapper


def empty(shape: Any, dtype: Any) -> Array:
    """An array of zeros, whose values nobody should use."""
    return jnp.zeros(shape, dtype)


def empty_like(x: Any) -> Any:
    """`empty` for each leaf of a tree."""
    return tree_map(lambda leaf: empty(leaf.shape, leaf.dtype), x)


def empty_ref_like(x: Any) -> Ref:
    """A Ref to new memory of the shape and dtype of `x`, a `MemoryRef` or a ShapeDtypeStruct; ValueError for others."""
    if not isinstance(x, MemoryRef) and type(x).__name__ != "ShapeDtypeStruct":
        raise ValueError(f"empty_ref_like does not support {type(x)}: give a MemoryRef or a ShapeDtypeStruct.")
    return Ref(empty(x.shape, x.dtype))


def multiple_of(x: Any, values: Any) -> Any:
    """`x`, which is a multiple of `values`: a hint for compilers."""
    return x


def max_contiguous(x: Any, values: Any) -> Any:
    """`x`, of which `values` elements lie side by side: a hint for compilers."""
    return x


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Array:
    """``1 / x``; with `approx` in bfloat16, as JAX's interpreter does. `full_range` is for compilers."""
    return jnp.reciprocal(x.astype(jnp.bfloat16)).astype(np.float32) if approx else jnp.reciprocal(x)


def broadcast_to(a: Any, shape: tuple[int, ...]) -> Array:
    """``jnp.broadcast_to(a, shape)``."""
    return jnp.broadcast_to(a, shape)


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None, precision: Any = None
) -> Array:
    """The product of two matrices, either transposed first; integers add up in int32, floats in float32, float64 in float64.

    ValueError for arrays that are no matrices, or both `allow_tf32` and `precision`.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"`a` and `b` must be 2D arrays, got shapes {a.shape} and {b.shape}.")
    if allow_tf32 is not None:
        if precision is not None:
            raise ValueError("Only one of allow_tf32 and precision can be specified")
        precision = lax.Precision.HIGH if allow_tf32 else lax.Precision.HIGHEST
    dtype = jnp.promote_types(a.dtype, b.dtype)
    out = np.int32 if jnp.issubdtype(dtype, np.integer) else np.float64 if dtype == np.float64 else np.float32
    dims = (((0 if trans_a else 1,), (1 if trans_b else 0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=out)


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The cost of a function on arguments, given as arrays or shapes: operations, and the bytes of its arguments and results.

    >>> estimate_cost(lambda a, b: a @ b, jnp.ones((4, 8)), jnp.ones((8, 2)))
    CostEstimate(flops=128, transcendentals=0, bytes_accessed=224, remote_bytes_transferred=0)
    """
    lowered_function = jit(fun).lower(*args, **kwargs)
    cost = lowered_function.cost_analysis()
    arrays = tree_flatten((lowered_function.in_avals, lowered_function.out_info))[0]
    moved_bytes = sum(int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize for x in arrays)
    return CostEstimate(int(cost.get("flops", 0)), int(cost.get("transcendentals", 0)), moved_bytes)
