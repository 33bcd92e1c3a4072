"""Steps of factorizations: multiply-adds of float32, by which `Op.algorithm` of the ops on matrices counts.

Comes in: an algorithm's name. Goes out: the field of an op that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from shardwise.ir.op import Params, Steps, Types

QR_WORK = 64  # elements per column that LAPACK's routines for QR work with
_COLUMNS = 128  # of a block, of most processors
TILE = 64  # rows and columns of a matrix that are transposed at a time
BLOCKS_FROM = 256  # rows from which a Cholesky factorization runs in blocks
_SQUARE = 10  # how much more the decomposition of a square matrix takes than a product of two


def of_matrix(
    name: str, flops: Callable[[float, float], float], vectors: tuple[str, ...] = ()
) -> Callable[[Types, Types, Params], Steps]:
    """An algorithm that takes ``flops(m, n)`` multiply-adds for an [m, n] matrix.

    It is another one where only values are wanted: none of the params `vectors`.
    """

    def algorithm(ins: Types, outs: Types, params: Params) -> Steps:
        *batch, m, n = ins[0].shape
        algorithm_name = name if not vectors or any(params[p] for p in vectors) else f"{name}_values"
        return Steps(algorithm_name, prod(batch) * flops(m, n) * _width(ins), min(m, n), min(m, n))

    return algorithm


def lu_flops(m: float, n: float) -> float:
    """The multiply-adds of a factorization with pivots."""
    return m * n * n - n**3 / 3


def svd_flops(m: float, n: float) -> float:
    """The work of an SVD, n**3 for a square matrix. A tall matrix is reduced to a square one, which takes `_SQUARE` times as much again."""
    least = min(m, n)
    return (max(m, n) * least**2 + _SQUARE * least**3) / (1 + _SQUARE)


def qr_steps(ins: Types, outs: Types, params: Params) -> Steps:
    """The factors, and the rows of q that are wanted: all of them where it is full."""
    *batch, m, n = ins[0].shape
    k = min(m, n)
    factors = 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3
    q_flops = 2 * (m * m * k - m * k * k + k**3 / 3) if params.get("full") else m * k * k - k**3 / 3
    return Steps("qr", _width(ins) * prod(batch) * (factors + q_flops), k, k)


def solve_steps(ins: Types, outs: Types, params: Params) -> Steps:
    """A factorization per matrix, and two solutions per column."""
    n = ins[0].shape[-1]
    return Steps("solve", _width(ins) * (prod(ins[0].shape[:-2]) * 2 * n**3 / 3 + 2.0 * n * outs[0].size), n, n)


def triangular_steps(ins: Types, outs: Types, params: Params) -> Steps:
    """A solution per column."""
    n = ins[0].shape[-1]
    return Steps("triangular_solve", _width(ins) * float(n * outs[0].size), n, n)


def cholesky_workspace(ins: Types, outs: Types, params: Params) -> int:
    """The upper factor, of which the lower one is made, of a matrix that is factored in blocks, and two threads' tiles on its diagonal with
    their masks.
    """
    matrix, n = ins[0], ins[0].shape[-1]
    if n < BLOCKS_FROM or matrix.dtype.kind != "f":
        return 0
    tiles = 2 * TILE**2 * (2 * matrix.itemsize + 1)
    return n * -(-n // _COLUMNS) * _COLUMNS * matrix.itemsize + tiles


def lu_workspace(ins: Types, outs: Types, params: Params) -> int:
    """The factors of one matrix of a stack as LAPACK gives them."""
    return prod(ins[0].shape[-2:]) * ins[0].itemsize


def solve_workspace(ins: Types, outs: Types, params: Params) -> int:
    """Which elements of the results are finite."""
    return outs[0].size


def eig_workspace(ins: Types, outs: Types, params: Params) -> int:
    """A copy of the matrix, and vectors of each side as LAPACK gives them: real and imaginary parts apart."""
    sides = sum(bool(params[side]) for side in ("left", "right"))
    return (1 + 2 * sides) * prod(ins[0].shape[-2:]) * ins[0].itemsize


def qr_workspace(ins: Types, outs: Types, params: Params) -> int:
    """The packed factors, over which q is written unless it has more columns, with LAPACK's work, and then q before it is copied. Of a
    stack also r, and all at once: the results are there before.
    """
    (rows, columns), q, r = ins[0].shape[-2:], outs[0].shape[-2:], outs[1].shape[-2:]
    packed_elements = rows * columns if q[1] > columns else 0
    work = QR_WORK * columns
    single = prod(ins[0].shape[:-2]) <= 1
    return (max(prod(q), packed_elements + work) if single else prod(q) + prod(r) + packed_elements + work) * ins[
        0
    ].itemsize


def _width(ins: Types) -> float:
    """How much longer a number takes than one of float32."""
    dtype = ins[0].dtype
    return dtype.itemsize / 8 * 4 if dtype.kind == "c" else max(dtype.itemsize / 4, 1)
