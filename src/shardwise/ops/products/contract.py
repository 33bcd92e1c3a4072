"""Products that sum over paired dims: `dot_general` and the functions built on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import check_requested, finfo, iinfo, issubdtype
from shardwise.base.shapes import Axes, Ndarray
from shardwise.ir import Array, Equation, ShapedArray, Shown, SmallForm, Spread, bind, define_op
from shardwise.ir.explicit import complete_types
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.all_reduce import all_reduce, sum_across
from shardwise.ops.products.dot_sharding import (
    check_unreduced,
    dot_explicit,
    dot_localize,
    dot_rule,
    free_dims,
    with_mapped_dim,
)
from shardwise.ops.products.gemm import compute_dtype, contract_as, product_workspace
from shardwise.ops.products.split_products import by_algorithm, check_algorithm
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import (
    cotangent_sharding,
    dims_sharding,
    do,
    is_linear,
    later,
    multilinear_jvp,
    with_dtype,
)
from shardwise.ops.rules.out_sharding import resolve_out_sharding, with_out_sharding
from shardwise.ops.rules.precision import (
    CanonicalPrecision,
    DotAlgorithm,
    DotAlgorithmPreset,
    Precision,
    PrecisionLike,
    canonicalize_precision,
)
from shardwise.runtime.env import Env
from shardwise.runtime.products import DotDims, expect, gemm_runner, small_product
from shardwise.sharding import NamedSharding

__all__ = ["DotAlgorithm", "DotAlgorithmPreset", "DotDimensionNumbers", "Precision", "PrecisionLike", "batch_matmul", "dot",
           "dot_general", "dot_general_p"]  # fmt: skip

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


# -- types ---------------------------------------------------------------------------------------------------------------


def _dot_type(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    dimension_numbers: DotDims,
    precision: CanonicalPrecision,
    preferred_element_type: np.dtype[Any] | None,
    out_sharding: NamedSharding | None = None,
    sum_axes: Axes = (),
    rhs_first: bool = False,
) -> ShapedArray:
    check_dot_dims(lhs, rhs, dimension_numbers)
    check_algorithm(precision, lhs.dtype, rhs.dtype)
    dtype = dot_dtype(lhs.dtype, rhs.dtype, precision, preferred_element_type)
    lhs_free, rhs_free = free_dims(dimension_numbers, lhs.ndim, rhs.ndim)
    shape = (
        *(lhs.shape[d] for d in dimension_numbers[1][0]),
        *(lhs.shape[d] for d in lhs_free),
        *(rhs.shape[d] for d in rhs_free),
    )
    out = ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)
    params = dict(dimension_numbers=dimension_numbers, out_sharding=out_sharding)
    (out,) = complete_types(dot_general_p, (lhs, rhs), (out,), params)
    if out_sharding is not None:
        check_unreduced(out_sharding, lhs, rhs, dimension_numbers)
        out = with_out_sharding(out, out_sharding)
    return out.update(vma=out.vma - set(sum_axes)) if sum_axes else out


def check_dot_dims(lhs: ShapedArray, rhs: ShapedArray, dims: DotDims) -> None:
    """TypeError unless dims pair up and have one size."""
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = dims
    for side, t, con, batch in (("lhs", lhs, lhs_con, lhs_batch), ("rhs", rhs, rhs_con, rhs_batch)):
        named_dims = (*con, *batch)
        if any(not 0 <= d < t.ndim for d in named_dims):
            raise TypeError(
                f"dot_general contracts dims {con} of {side} and batches over its dims {batch}, but {side} has "
                f"rank {t.ndim}: dims must be nonnegative and less than the rank."
            )
        if len(set(con)) != len(con) or len(set(batch)) != len(batch):
            raise TypeError(
                f"dot_general needs distinct dims, got {side} contracting dims {con} and batch dims {batch}."
            )
        if set(con) & set(batch):
            raise TypeError(
                f"dot_general cannot both contract a dim and batch over it: {side} contracts {con} and batches "
                f"over {batch}."
            )
    for what, left, right in (("batch", lhs_batch, rhs_batch), ("contracting", lhs_con, rhs_con)):
        if len(left) != len(right):
            raise TypeError(f"dot_general pairs {what} dims of lhs and rhs, got {left} and {right}.")
        left_sizes, right_sizes = tuple(lhs.shape[d] for d in left), tuple(rhs.shape[d] for d in right)
        if left_sizes != right_sizes:
            raise TypeError(
                f"dot_general requires {what} dimensions to have the same shape, got {left_sizes} (dims {left} of lhs "
                f"{lhs.str_short()}) and {right_sizes} (dims {right} of rhs {rhs.str_short()})."
            )


def dot_dtype(
    lhs: np.dtype[Any], rhs: np.dtype[Any], precision: CanonicalPrecision, preferred: np.dtype[Any] | None
) -> np.dtype[Any]:
    """The type of a product's result."""
    left, right = _width(lhs), _width(rhs)
    if left == right and lhs != rhs:
        raise TypeError(
            f"dot_general cannot choose a result type for operands of types {lhs} and {rhs}; convert one of them first."
        )
    result = lhs if left >= right else rhs
    if preferred is None or preferred == result:
        return result
    by_algorithm = isinstance(precision, (DotAlgorithm, DotAlgorithmPreset))
    if not by_algorithm and not issubdtype(result, np.floating) and _width(preferred)[3] < _width(result)[3]:
        raise TypeError(
            f"preferred_element_type must not be narrower than the type of the operands, got {preferred} for a "
            f"product of type {result}."
        )
    return preferred


def _width(dtype: np.dtype[Any]) -> tuple[bool, int, int, int, bool]:
    """The key that ranks dtypes where operands differ: complexness, exponent and mantissa bits, width of a part, signedness."""
    is_complex = dtype.kind == "c"
    part = np.dtype(f"f{dtype.itemsize // 2}") if is_complex else dtype
    if issubdtype(part, np.floating):
        info = finfo(part)
        return is_complex, int(info.maxexp), int(info.nmant), int(info.bits), True
    return (
        is_complex,
        -1,
        -1,
        1 if part.kind == "b" else int(iinfo(part).bits),
        not issubdtype(part, np.unsignedinteger),
    )


# -- kernel --------------------------------------------------------------------------------------------------------------


def _dot_kernel(
    env: Env,
    lhs: Ndarray,
    rhs: Ndarray,
    *,
    dimension_numbers: DotDims,
    precision: CanonicalPrecision,
    preferred_element_type: np.dtype[Any] | None,
    out_sharding: NamedSharding | None = None,
    sum_axes: Axes = (),
    rhs_first: bool = False,
) -> Ndarray:
    """One matrix product for all devices; loop dims of `sum_axes` are contracted, too (a psum in the same product)."""
    dtype = dot_dtype(lhs.dtype, rhs.dtype, precision, preferred_element_type)
    return _dot(env, lhs, rhs, dtype, dimension_numbers, precision, sum_axes)


def _dot(
    env: Env,
    lhs: Ndarray,
    rhs: Ndarray,
    dtype: np.dtype[Any],
    dims: DotDims,
    precision: CanonicalPrecision,
    sum_axes: Axes,
) -> Ndarray:
    sum_dims = tuple(env.dim(a) for a in sum_axes)
    alike = 1
    for a, d in zip(sum_axes, sum_dims, strict=True):
        if lhs.shape[d] == rhs.shape[d] == 1:
            alike *= env.extent(a)
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        product = lambda x, y, to: contract_as(to, x, y, env.lead, dims, sum_dims, alike)  # noqa: E731
        return by_algorithm(precision, product, lhs, rhs, dtype)
    return contract_as(dtype, lhs, rhs, env.lead, dims, sum_dims, alike)


def _dot_ahead(in_types: Types, params: Any) -> None:
    (left, right), dims = in_types, params["dimension_numbers"]
    left_free, right_free = free_dims(dims, left.ndim, right.ndim)
    (summed_dims, read), _ = dims
    is_transposed = left.ndim - 1 not in summed_dims, right.ndim - 1 in read
    m, n, k = (
        prod(t.shape[d] for d in chosen) for t, chosen in ((left, left_free), (right, right_free), (left, summed_dims))
    )
    expect(left.dtype.char, is_transposed, m, n, k)


def _dot_compile(env: Env, in_types: Types, out_types: Types, params: Any) -> Callable[[Ndarray, Ndarray], Ndarray]:
    dims, precision = params["dimension_numbers"], params["precision"]
    dtype, sum_axes = out_types[0].dtype, params.get("sum_axes", ())
    if not sum_axes and precision is None and {t.dtype.name for t in in_types} | {dtype.name} <= {"float32"}:
        small = None if env.lead else small_product(in_types[0].shape, in_types[1].shape, dims)
        return small or gemm_runner(env.lead, dims)
    return lambda lhs, rhs: _dot(env, lhs, rhs, dtype, dims, precision, sum_axes)


def _dot_workspace(in_types: Types, out_types: Types, params: Params) -> int:
    return product_workspace(*in_types, *out_types)


def _dot_computes_in(in_types: Types, out_types: Types, params: Params) -> np.dtype[Any] | None:
    """The float type that a product multiplies and adds in; None where more is asked for than that."""
    names = {t.dtype.name for t in (*in_types, *out_types)}
    if params["precision"] is not None or params["out_sharding"] is not None:
        return None
    if not names <= {"float16", "bfloat16", "float32"} and names != {"float64"}:
        return None
    return compute_dtype(*(t.dtype for t in (*in_types, *out_types)))


# -- derivative and batching -------------------------------------------------------------------------------------------------


def _dot_transpose(ct: Array, lhs: Any, rhs: Any, *, dimension_numbers: DotDims, **params: Any) -> list[Any]:
    """The cotangent times the other operand, over that one's free dims, then the dims put in the operand's order."""
    dims = dimension_numbers
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = dims
    lhs_free, rhs_free = free_dims(dims, lhs.aval.ndim, rhs.aval.ndim)
    batch = tuple(range(len(lhs_batch)))
    middle = len(batch) + len(lhs_free)
    if is_linear(lhs):
        right = tuple(range(middle, ct.ndim))
        by_rhs = sorted(range(len(rhs_con)), key=lambda i: rhs_con[i])  # free dims of rhs come in its own order
        order = (*lhs_batch, *lhs_free, *(lhs_con[i] for i in by_rhs))
        return [_dot_back(ct, rhs, ((right, rhs_free), (batch, rhs_batch)), order, lhs.aval, params, {}), None]
    left = tuple(range(len(batch), middle))
    by_lhs = sorted(range(len(lhs_con)), key=lambda i: lhs_con[i])
    order = (*rhs_batch, *(rhs_con[i] for i in by_lhs), *rhs_free)
    back = _dot_back(lhs, ct, ((lhs_free, left), (lhs_batch, batch)), order, rhs.aval, params, {"rhs_first": True})
    return [None, back]


def _dot_back(
    x: Any,
    y: Any,
    dims: DotDims,
    order: tuple[int, ...],
    aval: ShapedArray,
    params: dict[str, Any],
    first: dict[str, bool],
) -> Any:
    """The product, whose dim i is dim ``order[i]`` of the operand of type `aval`. Axes that both factors want go to the cotangent's."""
    sharding = dims_sharding(cotangent_sharding(aval, x.aval, y.aval), order)
    kept_params = {k: v for k, v in params.items() if k != "rhs_first"}
    out = do.dot_general(x, y, **{**kept_params, **first, "dimension_numbers": dims, "out_sharding": sharding})
    place = tuple(order.index(d) for d in range(len(order)))
    if place != tuple(range(len(order))):
        out = do.transpose(out, permutation=place)
    return with_dtype(out, aval)


def _dot_batch(size: int, axis_name: Any, values: Sequence[Array], dims: Sequence[int | None], params: Params) -> Any:
    """One product: a dim that only one operand has is a free dim of it, one that both have is a batch dim."""
    (lhs, rhs), (left, right) = values, dims
    numbers: DotDims = params["dimension_numbers"]
    shift = lambda ds, at: tuple(d + (at is not None and d >= at) for d in ds)  # noqa: E731
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = ((shift(pair[0], left), shift(pair[1], right)) for pair in numbers)
    if left is not None and right is not None:
        lhs_batch, rhs_batch, at = (left, *lhs_batch), (right, *rhs_batch), 0
    elif left is not None:
        at = len(lhs_batch) + sum(d < left for d in range(lhs.ndim) if d not in lhs_con and d not in lhs_batch)
    else:
        assert right is not None
        lhs_free, _ = free_dims(numbers, lhs.ndim, rhs.ndim - 1)
        before = sum(d < right for d in range(rhs.ndim) if d not in rhs_con and d not in rhs_batch)
        at = len(lhs_batch) + len(lhs_free) + before
    spec = with_mapped_dim(params["out_sharding"], at, (lhs, left), (rhs, right))
    new_params = {"dimension_numbers": ((lhs_con, rhs_con), (lhs_batch, rhs_batch)), "out_sharding": spec}
    return [bind(dot_general_p, lhs, rhs, **{**params, **new_params})], [at]


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    numbers = tuple(tuple(list(part) for part in pair) for pair in eqn.params["dimension_numbers"])
    return {**shown, "dimension_numbers": str(numbers)}


_product_fits = later("shardwise.runtime.small", "product_fits")


def _fits_small(eqn: Equation, spread: Spread) -> bool:
    by_parts = isinstance(eqn.params["precision"], (DotAlgorithm, DotAlgorithmPreset))
    return not by_parts and _product_fits(eqn, spread)


dot_general_p = define_op(
    "dot_general",
    type_rule=_dot_type,
    kernel=_dot_kernel,
    rule=dot_rule,
    explicit=dot_explicit,
    ahead=_dot_ahead,
    compile=_dot_compile,
    workspace=_dot_workspace,
    localize=dot_localize,
    typed=True,
    absorbs=all_reduce,
    contraction=_dot_computes_in,
    across=sum_across(_dot_kernel, _dot_compile),
    jvp=multilinear_jvp("dot_general", (0, 1)),
    transpose=_dot_transpose,
    batch=_dot_batch,
    shown=Shown(hidden=frozenset({"rhs_first", "out_sharding"}), change=_shown_params),
    makes_nan=True,
    product=True,
    small=SmallForm(
        later("shardwise.runtime.small", "matrix_product"),
        _fits_small,
        sums=later("shardwise.runtime.small", "axes_contracted"),
    ),
)


# -- public --------------------------------------------------------------------------------------------------------------


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Sum products of `lhs` and `rhs` over paired dims.

    ``dimension_numbers = ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))``. The result has the batch dims,
    then the remaining dims of lhs, then those of rhs. Its type is the operands' (the wider one's), or
    `preferred_element_type`; floats of 16 bits and less are added up in float32. `out_sharding` (a NamedSharding or, under a
    mesh, a PartitionSpec over Explicit axes) says how the result is split.

    Raises TypeError for dims or types that do not pair, ShardingTypeError where the result's sharding is ambiguous.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.

    >>> lax.dot_general(jnp.ones((4, 2, 3)), jnp.ones((4, 3, 5)), (((2,), (1,)), ((0,), (0,)))).shape
    (4, 2, 5)
    """
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = dimension_numbers
    dims = ((_ints(lhs_con), _ints(rhs_con)), (_ints(lhs_batch), _ints(rhs_batch)))
    dtype = None if preferred_element_type is None else check_requested(preferred_element_type, "dot_general")
    x, y = as_array(lhs), as_array(rhs)
    ndim = x.ndim + y.ndim - 2 * len(dims[0][0]) - len(dims[1][0])
    sharding = resolve_out_sharding(out_sharding, "dot_general", ndim)
    return bind(
        dot_general_p,
        x,
        y,
        dimension_numbers=dims,
        precision=canonicalize_precision(precision),
        preferred_element_type=dtype,
        out_sharding=sharding,
    )


def _ints(dims: Any) -> tuple[int, ...]:
    return (index(dims),) if hasattr(dims, "__index__") else tuple(index(d) for d in dims)


def dot(
    lhs: Any,
    rhs: Any,
    *args: Any,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """`dot_general`, or without `dimension_numbers` a product of vectors and matrices: last dim of lhs by first of
    rhs.

    `precision` and `preferred_element_type` may also be given by position (`args`), as the dialect 0.5 does.
    `out_sharding` as for `dot_general`.

    Raises:
        TypeError: shapes do not fit, or there are more than four positional arguments.

    >>> lax.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    if args:
        names = ("precision", "preferred_element_type")
        if len(args) > len(names):
            raise TypeError(f"dot takes at most {2 + len(names)} positional arguments, got {2 + len(args)}.")
        precision = args[0]
        preferred_element_type = args[1] if len(args) > 1 else preferred_element_type
    x, y = as_array(lhs), as_array(rhs)
    if dimension_numbers is None:
        fits = 1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]
        if not fits:
            kind = config.dialect.functions.dot_shape_error
            raise kind(
                f"dot without dimension_numbers takes vectors and matrices whose inner sizes agree, got shapes {x.shape} "
                f"and {y.shape}. Give dimension_numbers, or use jnp.matmul for batches."
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs: Any, rhs: Any, precision: PrecisionLike = None) -> Array:
    """Products of the matrices in the last two dims of `lhs` and `rhs`: [..., m, k] x [..., k, n] -> [..., m, n],
    batch dims equal.

    Raises ValueError unless both have the same rank of at least 2.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.

    >>> lax.batch_matmul(jnp.ones((4, 2, 3)), jnp.ones((4, 3, 5))).shape
    (4, 2, 5)
    """
    x, y = as_array(lhs), as_array(rhs)
    if min(x.ndim, y.ndim) < 2 or x.ndim != y.ndim:
        raise ValueError(f"batch_matmul takes operands of one rank, at least 2, got ranks {x.ndim} and {y.ndim}.")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)
