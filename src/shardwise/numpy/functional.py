"""Functions of elements, slices and axes applied to whole arrays: `vectorize`, `apply_along_axis`, `apply_over_axes`.

In: a traceable function. Out: the function with `vmap` over all other dims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from shardwise.base.wrapping import wraps
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, as_array, broadcast_shapes, canonical_axis, report_rank_promotion, value
from shardwise.numpy.creation import asarray
from shardwise.transforms.interpreters.vmap import vmap

_DIMS = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(f"^{_DIMS}(?:,{_DIMS})*->{_DIMS}(?:,{_DIMS})*$")

CoreDims = list[tuple[str, ...]]


def _parse_signature(signature: str) -> tuple[CoreDims, CoreDims]:
    """The core dims of operands and results: ``(n,m),(m)->(n)``."""
    text = re.sub(r"\s+", "", signature)
    if not _SIGNATURE.match(text):
        raise ValueError(f"not a valid gufunc signature: {signature!r}. Expected for example '(n,m),(m)->(n)'.")
    left, right = text.split("->")
    return tuple(  # type: ignore[return-value]
        [tuple(name for name in dims[1:-1].split(",") if name) for dims in re.findall(_DIMS, side)]
        for side in (left, right)
    )


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[Any] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """`pyfunc` applied to all elements, or to all slices of the core dims in `signature`; other dims broadcast.

    Args:
        excluded: positions and names of arguments passed as they are.
        signature: the dims that one call sees, such as ``'(n),(n)->()'``; by default scalars.

    Raises:
        TypeError: `excluded` holds something else; another number of arguments than in `signature`.
        ValueError: arguments or results that do not fit the signature.

    >>> cosine = jnp.vectorize(lambda a, b: a @ b, signature='(n),(n)->()')
    >>> cosine(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    if any(not isinstance(x, int | str) for x in excluded):
        raise TypeError(f"jax.numpy.vectorize can only exclude integer or string arguments, but excluded={excluded!r}")
    if any(isinstance(x, int) and x < 0 for x in excluded):
        raise ValueError(f"excluded={excluded!r} contains negative numbers")

    @wraps(pyfunc)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        fixed_args = {i: x for i, x in enumerate(args) if i in excluded or x is None}
        missing_args = {i for i, x in enumerate(args) if x is None and i not in excluded}
        mapped_count = sum(i not in excluded for i in range(len(args)))
        if missing_args and signature is not None and len(_parse_signature(signature)[0]) == mapped_count:
            raise ValueError(
                f"Cannot pass None at locations {missing_args} with {signature=}: it names dims of these arguments. Name them in "
                "excluded, or leave their part out of the signature."
            )
        names = [k for k in kwargs if k not in excluded]
        given = [x for i, x in enumerate(args) if i not in fixed_args] + [kwargs[k] for k in names]
        constants = {k: x for k, x in kwargs.items() if k in excluded}

        def call(*operands: Any) -> Any:
            it = iter(operands)
            positional = [fixed_args[i] if i in fixed_args else next(it) for i in range(len(args))]
            return pyfunc(*positional, **{k: next(it) for k in names}, **constants)

        return _map_over_loops(call, [asarray(x) for x in given], signature)

    return wrapper


def _map_over_loops(call: Callable[..., Any], xs: list[Array], signature: str | None) -> Any:
    core_in, core_out = _parse_signature(signature) if signature is not None else ([()] * len(xs), None)
    if len(core_in) != len(xs):
        raise TypeError(f"wrong number of positional arguments: expected {len(core_in)}, got {len(xs)}")
    sizes: dict[str, int] = {}
    loops = []
    for x, dims in zip(xs, core_in, strict=True):
        if x.ndim < len(dims):
            raise ValueError(
                f"input with shape {x.shape} does not have enough dimensions for all core dimensions {dims}"
            )
        split = x.ndim - len(dims)
        loops.append(x.shape[:split])
        _check_sizes(dims, x.shape[split:], sizes, signature)
    shape = broadcast_shapes(*loops)
    if len({len(loop) for x, loop in zip(xs, loops, strict=True) if x.ndim}) > 1:
        report_rank_promotion(f"a vectorized function with signature {signature}", [x.shape for x in xs])
    function = _check_core_dims(call, core_out, sizes, signature)
    # Dims of size 1 that broadcast are dropped instead, so that nothing is computed twice.
    operands = []
    for x, loop in zip(xs, loops, strict=True):
        padded_values = (1,) * (len(shape) - len(loop)) + loop
        ones = [d for d, (n, m) in enumerate(zip(padded_values, shape, strict=True)) if n == 1 and m != 1]
        dims_gone = [d - (len(shape) - len(loop)) for d in ones if d >= len(shape) - len(loop)]
        operands.append(
            (
                lax.squeeze(x, dims_gone) if dims_gone else x,
                [d not in ones and d >= len(shape) - len(loop) for d in range(len(shape))],
            )
        )
    for d in reversed(range(len(shape))):
        axes = tuple(0 if mapped_dims[d] else None for _, mapped_dims in operands)
        if any(a is not None for a in axes):
            function = vmap(function, in_axes=axes, axis_size=shape[d])
        else:  # all operands broadcast along it: a loop of one call
            function = _repeat_results(function, shape[d])
    return function(*[x for x, _ in operands])


def _repeat_results(function: Callable[..., Any], n: int) -> Callable[..., Any]:
    def repeat_call(*operands: Any) -> Any:
        out = function(*operands)
        if isinstance(out, tuple | list):
            return tuple(lax.broadcast(as_array(value("vectorize", r)), (n,)) for r in out)
        return lax.broadcast(as_array(value("vectorize", out)), (n,))

    return repeat_call


def _check_sizes(dims: tuple[str, ...], shape: tuple[int, ...], sizes: dict[str, int], signature: str | None) -> None:
    for name, n in zip(dims, shape, strict=True):
        if name.isdigit() and int(name) != n:
            raise ValueError(f"core dim {name} of signature {signature!r} has size {n}.")
        if sizes.setdefault(name, n) != n:
            raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")


def _check_core_dims(
    call: Callable[..., Any], core_out: CoreDims | None, sizes: dict[str, int], signature: str | None
) -> Callable[..., Any]:
    if core_out is None:
        return call

    def checked_call(*operands: Any) -> Any:
        out = call(*operands)
        results = out if isinstance(out, tuple | list) else (out,)
        if len(core_out) > 1 and not isinstance(out, tuple | list):
            raise TypeError(f"output must be a tuple of length {len(core_out)} for signature {signature!r}: {out!r}")
        if len(results) != len(core_out):
            raise TypeError(
                f"wrong number of output arguments: expected {len(core_out)} for signature {signature!r}, got {len(results)}"
            )
        for result, dims in zip(results, core_out, strict=True):
            shape = as_array(value("vectorize", result)).shape
            if len(shape) != len(dims):
                raise ValueError(
                    f"output shape {shape} does not match core dimensions {dims} of signature {signature!r}"
                )
            _check_sizes(dims, shape, sizes, signature)
        return out

    return checked_call


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """`func1d` applied to all 1-d slices of `arr` along `axis`, and to `args` and `kwargs`; the dims of its results
    take the place of that axis.

    >>> jnp.apply_along_axis(lambda row: row / row.sum(), 1, jnp.array([[1.0, 3.0], [2.0, 2.0]]))
    Array([[0.25, 0.75],
           [0.5 , 0.5 ]], dtype=float32)
    """
    x = array("apply_along_axis", arr, 2)
    d = canonical_axis(axis, x.ndim)

    def function(row: Array) -> Any:
        return func1d(row, *args, **kwargs)

    for _ in range(x.ndim - d - 1):
        function = vmap(function, in_axes=-1, out_axes=-1)
    for _ in range(d):
        function = vmap(function, in_axes=0, out_axes=0)
    return function(x)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Sequence[int]) -> Array:
    """`func(a, axis)` applied over one of `axes` after the other; an axis that it removes is restored with size 1.

    Raises:
        ValueError: a result has neither as many dims as `a` nor one less.

    >>> jnp.apply_over_axes(jnp.sum, jnp.array([[1, 2], [3, 4]]), [0, 1])
    Array([[10]], dtype=int32)
    """
    x = array("apply_over_axes", a)
    for axis in axes:
        d = canonical_axis(axis, x.ndim)
        out = as_array(value("apply_over_axes", func(x, axis)))
        if out.ndim == x.ndim - 1:
            out = lax.expand_dims(out, (d,))
        if out.ndim != x.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        x = out
    return x


__all__ = ["apply_along_axis", "apply_over_axes", "vectorize"]
