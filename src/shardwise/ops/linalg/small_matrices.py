"""Decompositions in small programs, matrix by matrix, by the functions of NumPy's and SciPy's that the ops' kernels call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardwise.ir import Equation, Spread
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name
from shardwise.runtime.machine import RARE, call_lapack
from shardwise.runtime.small import BodyWriter, Code, Value, Wanted, by_gufunc, pointwise, store, transpose_view

_LOOPS = "numpy.linalg._umath_linalg."
# NumPy's letters of a type, and of the complex one.
_LETTERS = {"float32": ("f", "F"), "float64": ("d", "D"), "complex64": ("F", "F"), "complex128": ("D", "D")}
_PREFIXES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}  # of LAPACK's routines
_WORK = 64  # columns of a block: LAPACK's memory for each column


def matrices_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether matrices are small."""
    x = eqn.inputs[0].aval
    m, n = x.shape[-2:]
    has_known_types = all(dtype_name(a.aval) in _PREFIXES for a in (*eqn.inputs, *eqn.outputs))
    work, least = spread.elements(x) * min(m, n), m * n * min(m, n)
    return has_known_types and least <= costs.SMALL_DECOMPOSED and work <= costs.SMALL_DECOMPOSED_TOGETHER


def _results(code: Code, eqn: Equation, x: Value) -> list[Value]:
    """Memory for the results of a stack of matrices."""
    return [code.buffer(x.shape[: code.lead] + v.aval.shape, dtype_name(v.aval)) for v in eqn.outputs]


def eigh(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Eigenvectors and eigenvalues of Hermitian matrices."""
    code, x = body.code, body.code.in_memory(values[0])
    vectors, numbers = _results(code, eqn, x)
    own = _LETTERS[x.dtype][0]
    types = f"{own}->{_LETTERS[numbers.dtype][0]}{own}"
    name = f"{_LOOPS}eigh_{'lo' if eqn.params['lower'] else 'up'}"
    by_gufunc(code, name, types, x.shape[-1:], [x, numbers, vectors], [2, 1, 2])
    return [code.settle_value(vectors), code.settle_value(numbers)]


def svd_of_finite(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Singular values, descending, and u and vh."""
    code, x = body.code, body.code.in_memory(values[0])
    numbers, *vectors = _results(code, eqn, x)
    own, part = _LETTERS[x.dtype][0], _LETTERS[numbers.dtype][0]
    m, n = x.shape[-2:]
    if vectors:
        name, types = "svd_f" if eqn.params["full"] else "svd_s", f"{own}->{own}{part}{own}"
        results, ranks = [vectors[0], numbers, vectors[1]], [2, 2, 1, 2]
    else:
        name, types, results, ranks = "svd", f"{own}->{part}", [numbers], [2, 1]
    by_gufunc(code, _LOOPS + name, types, [m, n, min(m, n)], [x, *results], ranks)
    return [code.settle_value(v) for v in (numbers, *vectors)]


def eig_of_finite(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Eigenvalues, and right eigenvectors."""
    code, x = body.code, body.code.in_memory(values[0])
    results = _results(code, eqn, x)
    own, complex = _LETTERS[x.dtype]
    name = "eig" if len(results) > 1 else "eigvals"
    types = f"{own}->{complex * len(results)}"
    by_gufunc(code, _LOOPS + name, types, x.shape[-1:], [x, *results], [2, 1, 2][: 1 + len(results)])
    return [code.settle_value(v) for v in results]


# -- reflectors ----------------------------------------------------------------------------------------------------------


def geqrf(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """r above the diagonal, the reflectors below it, and their factors."""
    code, (x,) = body.code, values
    m, n = x.shape[-2:]
    taus = _results(code, eqn, x)[1]
    return _each_matrix(code, x, "geqrf", [taus], lambda a, work, info, tau: [m, n, a, m, tau, work, _WORK * n, info])


def householder_product(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The first columns of the product of the reflectors in the columns of a matrix."""
    code, (x, taus) = body.code, values
    m, n = x.shape[-2:]
    count = taus.shape[-1]
    name = "ungqr" if "complex" in x.dtype else "orgqr"
    return _each_matrix(
        code, x, name, [code.in_memory(taus)],
        lambda a, work, info, tau: [m, n, count, a, m, tau, work, _WORK * n, info],
    )[:1]  # fmt: skip


def hessenberg(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The packed Hessenberg form and the factors of its reflectors."""
    code, (x,) = body.code, values
    n = x.shape[-1]
    taus = _results(code, eqn, x)[1]
    return _each_matrix(
        code, x, "gehrd", [taus], lambda a, work, info, tau: [n, 1, n, a, n, tau, work, _WORK * n, info]
    )


def tridiagonal(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Packed reflectors, the diagonal, the one beside it, and the factors of the reflectors."""
    code, (x,) = body.code, values
    n, side = x.shape[-1], b"L" if eqn.params["lower"] else b"U"
    name = "hetrd" if "complex" in x.dtype else "sytrd"
    others = _results(code, eqn, x)[1:]
    return _each_matrix(
        code, x, name, others,
        lambda a, work, info, d, e, tau: [side, n, a, n, d, e, tau, work, _WORK * n, info],
    )  # fmt: skip


# -- systems of complex numbers ------------------------------------------------------------------------------------------


def cholesky(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The lower factors, of which a failure fills the lower half alone."""
    code, x = body.code, body.code.in_memory(values[0])
    (out,) = _results(code, eqn, x)
    letter = _LETTERS[x.dtype][0]
    by_gufunc(code, f"{_LOOPS}cholesky_lo", f"{letter}->{letter}", x.shape[-1:], [x, out], [2, 2])
    n = x.shape[-1]
    lower = code.constant_value(np.tri(n, dtype=np.bool_).reshape((1,) * (len(x.shape) - 2) + (n, n)), "bool")
    zero = code.constant_value(np.zeros((), x.dtype), x.dtype, (1,) * len(x.shape))
    return [pointwise(code, [lower, out, zero], lambda lanes: code.select(*lanes), x.dtype)]


def solve(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """x with a x = b; where a is singular, the solution that its LU factors give."""
    code, (a, b) = body.code, values
    if eqn.params["transposed"]:
        a = transpose_view(code.in_memory(a))
    n, k = b.shape[-2:]
    loops = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    factors, pivots = _columns(code, a, loops), code.buffer((*loops, n), "int32")
    prefix = _PREFIXES[b.dtype]

    def arguments(b: str, work: str, info: str, a: str, pivots: str) -> list[int | bytes | str]:
        return [n, k, a, n, pivots, b, n, info]

    def after(b: str, work: str, info: str, a: str, pivots: str) -> None:
        has_failed = code.value(f"icmp ne i32 {code.value(f'load i32, ptr {info}, align 4')}, 0")
        # OpenBLAS wakes its threads for this one, however small the system.
        rest = [b"N", n, k, a, n, pivots, b, n, info]
        code.branch(has_failed, lambda: call_lapack(code, f"{prefix}getrs", rest), mark=RARE)

    return _each_matrix(code, b, "gesv", [factors, pivots], arguments, (2, 1), after)[:1]


def _columns(code: Code, x: Value, loops: tuple[int, ...]) -> Value:
    """A copy of matrices, broadcast to such a stack, with columns side by side, as LAPACK has them."""
    m, n = x.shape[-2:]
    copy = transpose_view(code.buffer((*loops, n, m), x.dtype))
    store(code, x, copy)
    return copy


def _each_matrix(
    code: Code,
    x: Value,
    routine: str,
    others: Sequence[Value],
    arguments: Callable[..., list[int | bytes | str]],
    ranks: Sequence[int] = (),
    after: Callable[..., object] | None = None,
) -> list[Value]:
    """A routine of LAPACK for each matrix of a stack, which it writes over: the matrices then, and `others`, of these `ranks`, or vectors.

    ``arguments(matrix, memory, place of a number, *others)`` are those of the routine, and `after` it is called with the same.
    """
    n = x.shape[-1]
    stacks = list(zip(others, ranks or [1] * len(others), strict=True))
    loops = np.broadcast_shapes(x.shape[:-2], *[v.shape[: len(v.shape) - r] for v, r in stacks])
    a = _columns(code, x, loops)
    work, info = code.buffer((_WORK * max(n, 1),), x.dtype).place, code.buffer((1,), "int32").place
    stacks = [(a, 2), *stacks]
    steps = [
        tuple(0 if k == 1 else s for k, s in zip(v.shape[: len(v.shape) - r], v.steps, strict=False)) for v, r in stacks
    ]

    def one(places: list[str]) -> None:
        given = places[0], work, info, *places[1:]
        call_lapack(code, _PREFIXES[x.dtype] + routine, arguments(*given))
        if after is not None:
            after(*given)

    code.nest(loops, [v.place for v, _ in stacks], steps, one)
    return [code.settle_value(v) for v in (a, *others)]
