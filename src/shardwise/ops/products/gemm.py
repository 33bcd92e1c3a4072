"""Contractions of blocks of any element types: the types that they compute in, on top of `runtime.products.contraction`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import issubdtype, name_of
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Equation, Program, ShapedArray, Var
from shardwise.ops.elementwise.casts import cast, convert_element_type_p
from shardwise.runtime.env import SINGLE
from shardwise.runtime.fused import GroupKernel
from shardwise.runtime.machine import available
from shardwise.runtime.products import DotDims, contract, gemm_plan
from shardwise.runtime.products.amx import has_amx


def contract_as(
    dtype: np.dtype[Any], lhs: Ndarray, rhs: Ndarray, lead: int, dims: DotDims, sum_dims: Ints = (), sum_size: int = 1
) -> Ndarray:
    """`contract` for operands of any element types, with a result of type `dtype`.

    16-bit and 8-bit floats are multiplied and added in float32. Integers wrap around as the type of the result does.
    """
    compute = compute_dtype(lhs.dtype, rhs.dtype, dtype)
    if not sum_dims and sum_size == 1 and (name_of(lhs.dtype), name_of(rhs.dtype), name_of(compute)) in _NARROW:
        out = _contract_narrow(lhs, rhs, lead, dims, compute)
        if out is not None:
            return cast_modulo(out, dtype) if compute.kind in "iu" else _cast(out, dtype)
    if compute.kind == "b":
        # A float product of zeros and ones is positive exactly where some pair is true.
        out = contract(lhs.astype(np.float32), rhs.astype(np.float32), lead, dims, sum_dims, sum_size)
        return (out != 0).astype(dtype, copy=False)
    if compute.kind in "iu":
        out = _contract_ints(compute, lhs, rhs, lead, dims, sum_dims, sum_size)
    else:
        out = contract(_cast(lhs, compute), _cast(rhs, compute), lead, dims, sum_dims, sum_size)
    return _cast(out, dtype)


# Element types that some processors multiply as they are, and the types in which products are wanted.
_NARROW = {("bfloat16", "bfloat16", "float32")} | {
    (f"{u}int8", f"{v}int8", f"{w}int{bits}")
    for u in ("", "u")
    for v in ("", "u")
    for w in ("", "u")
    for bits in (8, 16, 32)
}


def _contract_narrow(lhs: Ndarray, rhs: Ndarray, lead: int, dims: DotDims, compute: np.dtype[Any]) -> Ndarray | None:
    """The product by the processor's instructions for small types, with 32-bit sums; None where there are none."""
    plan = gemm_plan(lead, dims, (), lhs.shape, lhs.strides, rhs.shape, rhs.strides, lhs.dtype.itemsize, True)
    return plan.sum_narrow(lhs, rhs, np.dtype(np.int32) if compute.kind in "iu" else compute)


def product_workspace(lhs: ShapedArray, rhs: ShapedArray, out: ShapedArray) -> int:
    """Bytes of operands and result in the float type that a product computes in, or laid out for instructions on small types."""
    compute = compute_dtype(lhs.dtype, rhs.dtype, out.dtype)
    if compute.kind not in "fc":
        return 0  # how integers are multiplied depends on their values
    result = 0 if compute == out.dtype else out.size * compute.itemsize
    if (name_of(lhs.dtype), name_of(rhs.dtype), name_of(compute)) in _NARROW and has_amx():
        return result + rhs.nbytes
    return result + sum(x.size * compute.itemsize for x in (lhs, rhs) if x.dtype != compute)


@recent(512)
def compute_dtype(lhs: np.dtype[Any], rhs: np.dtype[Any], out: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which a product is computed."""
    if all(t.kind == "b" or issubdtype(t, np.integer) for t in (lhs, rhs)):
        if out.kind == "b":
            return np.dtype(np.bool_)
        return out if out.name in _NUMPY_INTS else np.dtype(np.int8 if issubdtype(out, np.integer) else np.float64)
    wide = any(t.name in ("float64", "complex128") for t in (lhs, rhs, out))
    if lhs.kind == "c" or rhs.kind == "c":
        return np.dtype(np.complex128 if wide else np.complex64)
    return np.dtype(np.float64 if wide else np.float32)


def _cast(x: Ndarray, dtype: np.dtype[Any]) -> Ndarray:
    """`x` as `dtype`. NumPy converts 16-bit floats one by one, so large blocks are left to a compiled loop."""
    if x.dtype == dtype:
        return x
    if x.size >= _COMPILE_FROM and {name_of(x.dtype), name_of(dtype)} <= _COMPILED_CASTS and available():
        return _cast_loop(x.shape, x.dtype, dtype)(x)[0]
    return cast(x, dtype)


_COMPILE_FROM = 1 << 15  # elements
_COMPILED_CASTS = frozenset(["float16", "bfloat16", "float32", "float64"])


@recent(512)
def _cast_loop(shape: Ints, source: np.dtype[Any], target: np.dtype[Any]) -> GroupKernel:
    x, y = Var(ShapedArray(shape, source)), Var(ShapedArray(shape, target))
    params = {"new_dtype": target, "weak_type": False}
    return GroupKernel(
        SINGLE, Program((x,), (Equation(convert_element_type_p, (x,), (y,), params, None),), (y,), 0, "cast")
    )


def _contract_ints(
    out: np.dtype[Any], lhs: Ndarray, rhs: Ndarray, lead: int, dims: DotDims, sum_dims: Ints, sum_size: int
) -> Ndarray:
    """Integer products by floating-point BLAS wherever no rounding can occur."""
    sums = [max(lhs.shape[d], rhs.shape[d]) for d in sum_dims]
    depth = prod(lhs.shape[d + lead] for d in dims[0][0]) * prod(sums) * sum_size
    work = depth * (lhs.size // max(1, depth)) * (rhs.size // max(1, depth))
    exact = lambda a, b, t: contract(a.astype(t), b.astype(t), lead, dims, sum_dims, sum_size)  # noqa: E731
    plain = lambda a, b: contract(_cast(a, out), _cast(b, out), lead, dims, sum_dims, sum_size)  # noqa: E731
    if work < 4096 or not lhs.size or not rhs.size:
        return plain(lhs, rhs)
    compute = exact_dtype(lhs, rhs, depth, out)
    step = (1 << 24) // max(1, _largest(lhs) * _largest(rhs))
    if compute == np.float64 and _LEAST_STEP <= step < depth and not sum_dims and sum_size == 1 and dims[0][0]:
        return _contract_in_steps(out, lhs, rhs, lead, dims, max(1, step * lhs.shape[dims[0][0][0] + lead] // depth))
    if compute.kind == "f":
        return cast_modulo(exact(lhs, rhs, compute), out)
    if out.itemsize == 4 and depth <= 1 << 20:
        # Modulo 2**32, (h 2**16 + l)(h' 2**16 + l') = (h l' + l h') 2**16 + l l': three exact float64 products.
        a, b = lhs.astype(np.uint32), rhs.astype(np.uint32)
        a_low, a_high, b_low, b_high = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
        middle = exact(a_high, b_low, np.float64).astype(np.uint64) + exact(a_low, b_high, np.float64).astype(np.uint64)
        low = exact(a_low, b_low, np.float64).astype(np.uint64)
        return cast_modulo(low + (middle << np.uint64(16)), out)
    return plain(lhs, rhs)


_LEAST_STEP = 128  # products that float32 must be able to add up for it to be faster than float64


def _contract_in_steps(out: np.dtype[Any], lhs: Ndarray, rhs: Ndarray, lead: int, dims: DotDims, step: int) -> Ndarray:
    """The sum of float32 products over `step` elements of the first contracted dim at a time."""
    left, right = dims[0][0][0] + lead, dims[0][1][0] + lead
    total: Ndarray | None = None
    for i in range(0, lhs.shape[left], step):
        a, b = (x[(*[slice(None)] * d, slice(i, i + step))].astype(np.float32) for x, d in ((lhs, left), (rhs, right)))
        part = cast_modulo(contract(a, b, lead, dims), out)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def exact_dtype(lhs: Ndarray, rhs: Ndarray, depth: int, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type in which sums of `depth` products of these integers do not round: a float type if one does, else `dtype`."""
    bound = depth * _largest(lhs) * _largest(rhs)
    return np.dtype(np.float32 if bound <= 1 << 24 else np.float64) if bound <= 1 << 53 else dtype


def _largest(x: Ndarray) -> int:
    """An upper bound of the magnitudes: that of the type where it is small, else of the elements."""
    if x.dtype.kind == "b" or not x.size:
        return 1
    info = np.iinfo(x.dtype) if x.dtype.name in _NUMPY_INTS else None
    if info is None:
        return 16  # the 1- to 4-bit types
    return max(-int(info.min), int(info.max)) if info.bits <= 16 else max(abs(int(x.min())), abs(int(x.max())))


_NUMPY_INTS = frozenset(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))


def cast_modulo(x: Ndarray, dtype: np.dtype[Any]) -> Ndarray:
    """Integral values cast to an integer type modulo its range (a plain cast of a float would saturate).

    Values of a float type are those that it counts without gaps, as `exact_dtype` sees to.
    """
    if x.dtype.kind == "f":
        x = x.astype(np.int32 if x.dtype == np.float32 else np.int64)
    return x.astype(dtype, copy=False)
