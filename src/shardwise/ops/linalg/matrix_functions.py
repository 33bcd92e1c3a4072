"""Functions of matrices: exponential, square root, Sylvester's equation, complex Schur form."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Array, bind
from shardwise.ops.linalg.lapack import each, lapack_routine, nan_of
from shardwise.ops.linalg.lapack import solve as solve_stacks
from shardwise.ops.linalg.matrix_op import Result, as_steps, define_matrix_op, square_size
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.fill import full_like
from shardwise.ops.shapes.joining import concatenate
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.runtime.products import matmul

__all__: list[str] = []


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


# -- exponential ---------------------------------------------------------------------------------------------------------------


def _expm_results(shape: Ints, *, max_squarings: int) -> list[Result]:
    square_size("expm", shape)
    return [(shape, "same")]


# Of the rational function that approximates the exponential (Pade's, Higham 2005): the coefficients of its numerator, and the norm up to
# which it is exact to rounding.
_SINGLE = (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.92572478313866
_DOUBLE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800, 33522128640,
    1323241920, 40840800, 960960, 16380, 182, 1,
), 5.371920351148152  # fmt: skip
PADE = {"float32": _SINGLE, "float64": _DOUBLE}


def _expm(x: Ndarray, max_squarings: int) -> Ndarray:
    """By scaling and squaring, all matrices at once; NaN where that takes more than `max_squarings`."""
    if not x.size:
        return x
    coefficients, largest = PADE[x.real.dtype.name]
    loops, n = x.shape[:-2], x.shape[-1]
    with np.errstate(all="ignore"):
        stack = np.ascontiguousarray(x).reshape(-1, n, n)
        norms = np.abs(stack).sum(axis=-2).max(axis=-1)
        valid = norms < largest * 2.0 ** (max_squarings + 1)
        squarings = np.where(valid, np.ceil(np.log2(np.maximum(norms / largest, 1))), 0).astype(np.int32)
        stack = np.where(valid[:, None, None], stack, stack.dtype.type(0))
        if len(stack) < _FEW:
            from scipy.linalg import expm as exponential

            out = exponential(stack).astype(x.dtype, copy=False)
        else:
            out = _expm_at_once(stack, squarings, coefficients)
    out[~valid] = nan_of(x.dtype)
    return out.reshape(*loops, n, n)


_FEW = 12  # matrices that SciPy computes one after the other: of 4 x 4 one takes 17 us so, 119 by `_expm_at_once`; 16 174 and 135


def _expm_at_once(stack: Ndarray, squarings: Ndarray, coefficients: Sequence[int]) -> Ndarray:
    stack = stack * np.exp2(-squarings)[:, None, None].astype(stack.real.dtype)
    odd, even = _parts(stack, coefficients)
    out = solve_stacks(even - odd, even + odd, False)
    for i in range(squarings.max()):
        more = squarings > i
        out[more] = _times(out[more], out[more])
    return out


def _parts(x: Ndarray, coefficients: Sequence[int]) -> tuple[Ndarray, Ndarray]:
    """The odd and the even part of the polynomial with these coefficients, the lowest power's first."""
    one = np.eye(x.shape[-1], dtype=x.dtype)
    powers = [one, square := _times(x, x)]
    while len(powers) < 4:
        powers.append(_times(powers[-1], square))

    return _times(x, _series(powers, coefficients[1::2])), _series(powers, coefficients[::2])


def _series(powers: Sequence[Ndarray], terms: Sequence[int]) -> Ndarray:
    """The sum of the terms times powers, of which there are the first four."""
    of = powers[0]
    low = sum((of.dtype.type(c) * p for c, p in zip(terms, powers, strict=False)), np.zeros_like(of))
    return low + _times(powers[3], _series(powers, (0, *terms[4:]))) if len(terms) > 4 else low


def _times(x: Ndarray, y: Ndarray) -> Ndarray:
    out = np.empty_like(x)
    matmul(x, y, out)
    return out


expm_p = define_matrix_op(
    "expm",
    (2,),
    _expm_results,
    _expm,
    multiple=False,
    rules=("jvp",),
    derivatives="spectral_derivative",
    small=as_steps("expm", "is_real"),
)


def _frechet_results(x: Ints, direction: Ints, *, max_squarings: int) -> list[Result]:
    square_size("expm", x)
    if x != direction:
        raise ValueError(f"the derivative of expm at a matrix {x} needs a direction of that shape, got {direction}.")
    return [(x, "same")]


def _frechet(x: Ndarray, direction: Ndarray, max_squarings: int) -> Ndarray:
    """The upper right block of the exponential of [[x, direction], [0, x]]."""
    n = x.shape[-1]
    loops = np.broadcast_shapes(x.shape[:-2], direction.shape[:-2])
    both = np.zeros((*loops, 2 * n, 2 * n), x.dtype)
    both[..., :n, :n] = both[..., n:, n:] = x
    both[..., :n, n:] = direction
    return _expm(both, max_squarings)[..., :n, n:]


# The derivative of expm in a direction, in which it is linear.
expm_frechet_p = define_matrix_op(
    "expm_frechet",
    (2, 2),
    _frechet_results,
    _frechet,
    multiple=False,
    rules=("jvp", "transpose"),
    derivatives="spectral_derivative",
    small=as_steps("expm_frechet", "is_real"),
)


def expm(x: Array, max_squarings: int = 16) -> Array:
    """The exponentials of square matrices f[..., n, n]."""
    return bind(expm_p, as_array(x), max_squarings=int(max_squarings))


def expm_and_derivative(x: Array, direction: Array) -> tuple[Array, Array]:
    """exp(x) and its derivative in a direction: blocks of the exponential of [[x, direction], [0, x]]."""
    n, last = x.shape[-1], x.ndim - 1
    upper = concatenate([x, direction], last)
    lower = concatenate([full_like(x, 0), x], last)
    both = expm(concatenate([upper, lower], last - 1))
    top = slice_in_dim(both, 0, n, axis=last - 1)
    return slice_in_dim(top, 0, n, axis=last), slice_in_dim(top, n, 2 * n, axis=last)


# -- others ----------------------------------------------------------------------------------------------------------------------


def _sqrtm_results(shape: Ints) -> list[Result]:
    square_size("sqrtm", shape)
    return [(shape, "complex")]


def _sqrtm(x: Ndarray) -> Ndarray:
    from scipy.linalg import sqrtm as one

    result = _complex(x.dtype)

    def call(a: Ndarray) -> tuple[Ndarray]:
        if np.isfinite(a).all():
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of singular matrices, for which the result speaks
                root = np.asarray(one(a))
            if np.isfinite(root).all():
                return (root,)
        return (np.full(a.shape, nan_of(result)),)  # there is none

    return each(call, (2,), (x,), [(x.shape[-2:], result)])[0] if x.size else x.astype(result)


sqrtm_p = define_matrix_op(
    "sqrtm", (2,), _sqrtm_results, _sqrtm, multiple=False, rules=("jvp",), derivatives="spectral_derivative"
)


def sqrtm(x: Array) -> Array:
    """The principal square roots of matrices f[..., n, n] -> c[..., n, n]."""
    return bind(sqrtm_p, as_array(x))


def _sylvester_results(a: Ints, b: Ints, c: Ints, *, tol: float) -> list[Result]:
    if a != (c[0], c[0]) or b != (c[1], c[1]):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {a}\nB: {b}\nC: {c}")
    return [(c, "same")]


def _sylvester(a: Ndarray, b: Ndarray, c: Ndarray, tol: float) -> Ndarray:
    """By Schur forms r, s of a and b^H (Bartels and Stewart): r y + y s^H = u^H c v."""
    if not c.size:
        return c
    gees, trsyl = lapack_routine("gees", c.dtype), lapack_routine("trsyl", c.dtype)

    def form(x: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray]:
        triangular, _, *eigenvalues, vectors, _, _ = gees(lambda *_: None, x, lwork=64 * len(x))
        return triangular, vectors, eigenvalues[0] if len(eigenvalues) == 1 else eigenvalues[0] + 1j * eigenvalues[1]

    def call(p: Ndarray, q: Ndarray, f: Ndarray) -> tuple[Ndarray]:
        failure = (np.full(f.shape, nan_of(f.dtype)),)
        if not (np.isfinite(p).all() and np.isfinite(q).all() and np.isfinite(f).all()):
            return failure
        with np.errstate(all="ignore"):
            (r, u, left), (s, v, right) = form(p), form(q.conj().T)
            if (np.abs(left[:, None] + right.conj()) < tol).any():
                return failure
            y, scale, info = trsyl(r, s, u.conj().T @ f @ v, tranb="C")
            return (u @ (y * scale) @ v.conj().T,) if info >= 0 else failure

    return each(call, (2, 2, 2), (a, b, c), [(c.shape[-2:], c.dtype)])[0]


solve_sylvester_p = define_matrix_op(
    "solve_sylvester",
    (2, 2, 2),
    _sylvester_results,
    _sylvester,
    multiple=False,
    rules=("jvp", "transpose"),
    derivatives="spectral_derivative",
)


def solve_sylvester(a: Array, b: Array, c: Array, tol: float) -> Array:
    """x with a x + x b = c: f[..., m, m], f[..., n, n], f[..., m, n] -> f[..., m, n].

    NaN where an eigenvalue of a and one of b sum to less than `tol`.
    """
    return bind(solve_sylvester_p, as_array(a), as_array(b), as_array(c), tol=float(tol))


def _rsf2csf_results(t: Ints, z: Ints) -> list[Result]:
    return [(t, "complex"), (z, "complex")]


def _rsf2csf(t: Ndarray, z: Ndarray) -> tuple[Ndarray, ...]:
    from scipy.linalg import rsf2csf as one

    result = _complex(t.dtype)
    if not t.size:
        return t.astype(result), z.astype(result)
    return tuple(each(lambda a, b: one(a, b, check_finite=False), (2, 2), (t, z), [(t.shape[-2:], result)] * 2))


rsf2csf_p = define_matrix_op("rsf2csf", (2, 2), _rsf2csf_results, _rsf2csf)


def rsf2csf(t: Array, z: Array) -> tuple[Array, Array]:
    """Triangular Schur forms and their vectors from real ones with 2 by 2 blocks."""
    return tuple(bind(rsf2csf_p, as_array(t), as_array(z)))  # type: ignore[return-value]
