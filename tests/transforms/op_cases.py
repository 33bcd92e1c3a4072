"""One case or more per differentiable op: a function of `lax` (ours or the oracle's) and arrays, and float64 arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """`function(lax, *args)`; `args` are arrays, of which those of floats and complex numbers are differentiated."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    second: bool = True  # whether to compare second derivatives
    numeric: bool = True  # whether finite differences apply (not at ties)
    oracle: bool = True  # whether JAX has the derivative

    def __repr__(self) -> str:
        return self.name


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 2.0, shape)


def within(low: float, high: float, *shape: int) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def compl(*shape: int) -> np.ndarray:
    return normal(*shape) + 1j * normal(*shape)


def distinct(*shape: int) -> np.ndarray:
    """Values at least 0.1 apart, so that small steps change no order."""
    return RNG.permutation(np.prod(shape)).reshape(shape) * 0.1 - 1.03


CASES: list[Case] = []


def case(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    CASES.append(Case(name, function, args, **options))


def _unary(name: str, *args: Any, **options: Any) -> None:
    for i, x in enumerate(args):
        case(f"{name}{i or ''}", lambda lax, x: getattr(lax, name)(x), x, **options)


_S = (3, 4)
for _name in (
    "neg",
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "asinh",
    "atan",
    "logistic",
    "square",
):
    _unary(_name, normal(*_S), 0.5 * compl(*_S))
for _name in ("log", "log1p", "sqrt", "rsqrt"):
    _unary(_name, positive(*_S), compl(*_S))
_unary("sin", normal(), np.zeros((2, 0)))
_unary("cbrt", positive(*_S), -positive(*_S))
_unary("asin", within(-0.9, 0.9, *_S), 0.5 * compl(*_S))
_unary("acos", within(-0.9, 0.9, *_S), 0.5 * compl(*_S))
_unary("atanh", within(-0.9, 0.9, *_S), 0.5 * compl(*_S))
_unary("acosh", within(1.2, 3, *_S), 2 + 0.5 * compl(*_S))
_unary("abs", normal(*_S), compl(*_S))
for _name in ("sign", "floor", "ceil", "round"):
    _unary(_name, normal(*_S))
for _name in ("real", "imag", "conj"):
    _unary(_name, compl(*_S))
_unary("conj", normal(*_S))
for _y in (-2, -1, 0, 1, 2, 3, 5):
    case(f"integer_pow_{_y}", lambda lax, x, y=_y: lax.integer_pow(x, y), positive(*_S))
case("integer_pow_c", lambda lax, x: lax.integer_pow(x, 3), compl(*_S))
for _name in ("erf", "erfc", "lgamma", "digamma", "bessel_i0e", "bessel_i1e"):
    _unary(_name, positive(*_S))
_unary("erf_inv", within(-0.8, 0.8, *_S))
case("polygamma", lambda lax, x: lax.polygamma(lax.full_like(x, 2), x), positive(*_S))
case("igamma_x", lambda lax, x: lax.igamma(lax.full_like(x, 1.5), x), positive(*_S))
case("igamma_a", lambda lax, x: lax.igamma(x, lax.full_like(x, 1.5)), positive(*_S), second=False)
case("igammac_x", lambda lax, x: lax.igammac(lax.full_like(x, 1.5), x), positive(*_S))
case("igammac_a", lambda lax, x: lax.igammac(x, lax.full_like(x, 1.5)), positive(*_S), second=False)
case("zeta_q", lambda lax, q: lax.zeta(lax.full_like(q, 2.5), q), positive(*_S), oracle=False)
case("betainc_x", lambda lax, x: lax.betainc(lax.full_like(x, 1.5), lax.full_like(x, 2.5), x), within(0.1, 0.9, *_S))

# -- two operands, equal shapes and broadcasting sizes of 1

for _name in ("add", "sub", "mul", "div", "atan2", "max", "min"):
    case(_name, lambda lax, x, y, n=_name: getattr(lax, n)(x, y), normal(*_S), positive(*_S))
    case(f"{_name}_1", lambda lax, x, y, n=_name: getattr(lax, n)(x, y), normal(3, 1), positive(1, 4))
for _name in ("add", "sub", "mul", "div"):
    case(f"{_name}_c", lambda lax, x, y, n=_name: getattr(lax, n)(x, y), compl(3, 1), compl(3, 4))
    case(f"{_name}_scalar", lambda lax, x, n=_name: getattr(lax, n)(x, 2.5), normal(*_S))
case(
    "max_ties",
    lambda lax, x, y: lax.max(x, y),
    np.array([1.0, 2, 3]),
    np.array([1.0, 3, 2]),
    numeric=False,
    second=False,
)
case("rem", lambda lax, x, y: lax.rem(x, y), 5 * normal(*_S), positive(*_S))
case("pow", lambda lax, x, y: lax.pow(x, y), positive(*_S), normal(*_S))
case(
    "pow_edges",
    lambda lax, x, y: lax.pow(x, y),
    np.array([0.0, 0, 2, -2]),
    np.array([1.0, 2, 0, 0]),
    numeric=False,
    second=False,
)
case("pow_int", lambda lax, x: lax.pow(x, np.array([[0, 1, 2, 3]] * 3, np.int32)), positive(*_S))
case("pow_c", lambda lax, x, y: lax.pow(x, y), compl(*_S), compl(*_S))
normal(2, *_S)  # drawn once for a case that is gone: what was recorded for the others has the numbers that follow
case("complex", lambda lax, x, y: lax.complex(x, y), normal(*_S), normal(*_S))
case("clamp", lambda lax, a, x, b: lax.clamp(a, x, b), np.float64(-0.5), normal(5, 5), np.float64(0.5), oracle=False)
case("clamp_full", lambda lax, a, x, b: lax.clamp(a, x, b), -positive(*_S), normal(*_S), positive(*_S))
_mask = RNG.uniform(size=_S) > 0.5
case("select_n", lambda lax, x, y: lax.select_n(_mask, x, y), normal(*_S), normal(*_S))
case(
    "select_n_int",
    lambda lax, x, y, z: lax.select_n(np.array([0, 1, 2, 1], np.int32), x, y, z),
    normal(4),
    normal(4),
    normal(4),
)
case(
    "select_n_scalar",
    lambda lax, x, y: lax.select_n(lax.gt(lax.reduce_max(x, (0, 1)), 0.0), x, y),
    normal(*_S),
    normal(*_S),
)

# -- casts

case("convert_f32", lambda lax, x: lax.convert_element_type(x, np.float32), normal(*_S), numeric=False)
case("convert_c", lambda lax, x: lax.convert_element_type(x, np.complex128), normal(*_S))
case(
    "convert_int",
    lambda lax, x: lax.mul(x, lax.convert_element_type(lax.convert_element_type(x, np.int32), np.float64)),
    normal(*_S),
)
case("reduce_precision", lambda lax, x: lax.reduce_precision(x, 8, 10), normal(*_S), numeric=False)
case("stop_gradient", lambda lax, x: lax.mul(lax.stop_gradient(lax.sin(x)), x), normal(*_S), numeric=False)

# -- shapes

case("broadcast_in_dim", lambda lax, x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 2)), normal(2, 1))
case("reshape", lambda lax, x: lax.reshape(x, (4, 3)), normal(*_S))
case("reshape_dims", lambda lax, x: lax.reshape(x, (4, 3), (1, 0)), normal(*_S))
case("transpose", lambda lax, x: lax.transpose(x, (2, 0, 1)), normal(2, 3, 4))
case("squeeze", lambda lax, x: lax.squeeze(x, (1,)), normal(3, 1, 4))
case("expand_dims", lambda lax, x: lax.expand_dims(x, (1, 3)), normal(3, 4))
case("rev", lambda lax, x: lax.rev(x, (0,)), normal(*_S))
case("slice", lambda lax, x: lax.slice(x, (1, 0), (5, 4)), normal(6, 5))
case("slice_strided", lambda lax, x: lax.slice(x, (1, 0), (6, 5), (2, 3)), normal(6, 5))
case("slice_empty", lambda lax, x: lax.slice(x, (2, 0), (2, 4), (2, 1)), normal(6, 5))
case("pad", lambda lax, x, v: lax.pad(x, v, ((1, 2, 0), (0, 1, 2))), normal(*_S), np.float64(0.3))
case("pad_negative", lambda lax, x, v: lax.pad(x, v, ((-1, 2, 1), (1, -2, 0))), normal(4, 5), np.float64(0.3))
case("concatenate", lambda lax, x, y, z: lax.concatenate([x, y, z], 1), normal(2, 3), normal(2, 1), normal(2, 2))
case("split", lambda lax, x: lax.mul(*lax.split(x, (2, 2), 1)), normal(3, 4))
case("split_unused", lambda lax, x: lax.split(x, (1, 3), 1)[1], normal(3, 4))
case("tile", lambda lax, x: lax.tile(x, (2, 3)), normal(2, 2))

# -- reductions

for _name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
    case(_name, lambda lax, x, n=_name: getattr(lax, n)(x, (0, 2)), distinct(3, 2, 5))
    case(f"{_name}_none", lambda lax, x, n=_name: getattr(lax, n)(x, ()), normal(3))
case("reduce_sum_c", lambda lax, x: lax.reduce_sum(x, (1,)), compl(*_S))
case("reduce_prod_zero", lambda lax, x: lax.reduce_prod(x, (0,)), np.array([2.0, 0, 3, 0.5, 1]))
case("reduce_max_ties", lambda lax, x: lax.reduce_max(x, (0,)), np.array([1.0, 3, 3, 2]), numeric=False, second=False)
case(
    "argmax",
    lambda lax, x: lax.mul(
        x, lax.convert_element_type(lax.broadcast_in_dim(lax.argmax(x, 1, np.int32), (3, 4), (0,)), np.float64)
    ),
    distinct(3, 4),
)
for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    for _reverse in (False, True):
        case(
            f"{_name}_{_reverse}", lambda lax, x, n=_name, r=_reverse: getattr(lax, n)(x, 1, reverse=r), distinct(2, 5)
        )

# -- order

case("sort", lambda lax, x: lax.sort(x, 1), distinct(3, 4))
case("sort_several", lambda lax, x, y: lax.mul(*lax.sort((x, y), 0, num_keys=1)), distinct(4, 3), normal(4, 3))
case(
    "sort_keys",
    lambda lax, x, y, z: lax.mul(*lax.sort((lax.floor(x), y, z), 0, num_keys=2)[1:]),
    normal(5),
    distinct(5),
    normal(5),
)
case("top_k", lambda lax, x: lax.top_k(x, 2)[0], distinct(3, 5))

# -- products

case("dot", lambda lax, x, y: lax.dot(x, y), normal(3, 4), normal(4, 5))
case("dot_vectors", lambda lax, x, y: lax.dot(x, y), normal(4), normal(4))
case("dot_c", lambda lax, x, y: lax.dot(x, y), compl(3, 4), compl(4, 2))
_dims = (((3, 0), (1, 2)), ((2,), (3,)))
case("dot_general", lambda lax, x, y: lax.dot_general(x, y, _dims), normal(4, 2, 3, 5), normal(2, 5, 4, 3))
case(
    "dot_general_2",
    lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((0, 3), (2, 0)))),
    normal(2, 3, 4, 5),
    normal(5, 3, 2, 6),
)
case("dot_outer", lambda lax, x, y: lax.dot_general(x, y, (((), ()), ((), ()))), normal(2, 3), normal(4))


def _conv(name: str, lhs: tuple[int, ...], rhs: tuple[int, ...], *args: Any, **options: Any) -> None:
    case(f"conv_{name}", lambda lax, x, w: lax.conv_general_dilated(x, w, *args, **options), normal(*lhs), normal(*rhs))


_conv("plain", (2, 3, 6, 5), (4, 3, 3, 2), (1, 1), "VALID")
_conv("strided", (2, 3, 7), (4, 3, 3), (2,), [(1, 2)])
_conv("dilated", (2, 3, 6), (4, 3, 2), (2,), [(1, 1)], lhs_dilation=(2,), rhs_dilation=(3,))
_conv("negative", (2, 3, 8), (4, 3, 3), (1,), [(-1, 2)])
_conv("groups", (2, 6, 5), (4, 3, 2), (1,), "SAME", feature_group_count=2)
_conv("batch_groups", (4, 3, 5), (6, 3, 2), (1,), "VALID", batch_group_count=2)
_conv("layout", (2, 6, 5, 3), (3, 2, 3, 4), (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

# -- windows


def _window(name: str, init: float, compute: str, x: np.ndarray, *args: Any, **options: Any) -> None:
    def function(lax: Any, x: Any) -> Any:
        return lax.reduce_window(x, np.float64(init), getattr(lax, compute), *args, **options)

    case(f"window_{name}", function, x, second=compute != "mul")


_window("sum", 0.0, "add", normal(4, 6), (2, 3), (2, 1), ((1, 0), (0, 2)))
_window("sum_dilated", 0.0, "add", normal(4, 6), (2, 2), (1, 2), ((1, 1), (0, 1)), (2, 1), (1, 3))
_window("max", -np.inf, "max", distinct(4, 6), (2, 3), (2, 1), ((1, 0), (0, 2)))
_window("min", np.inf, "min", distinct(5, 6), (2, 2), (2, 2), "SAME")

# -- positions


def _gather(
    name: str, x: np.ndarray, indices: Any, dims: dict[str, Any], sizes: tuple[int, ...], **options: Any
) -> None:
    def function(lax: Any, x: Any) -> Any:
        return lax.gather(x, np.array(indices, np.int32), lax.GatherDimensionNumbers(**dims), sizes, **options)

    case(f"gather_{name}", function, x)


_rows = dict(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_gather("rows", normal(5, 3), [[1], [4], [1]], _rows, (1, 3))
_gather("fill", normal(5, 3), [[1], [7], [-1]], _rows, (1, 3), mode="fill", fill_value=2.0)
_gather("clip", normal(5, 3), [[1], [7], [-1]], _rows, (1, 3), mode="clip")
_gather(
    "windows",
    normal(5, 6),
    [[1, 2], [0, 3]],
    dict(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1)),
    (2, 3),
)
_gather(
    "batching",
    normal(3, 5),
    [[[1], [0]], [[4], [4]], [[2], [3]]],
    dict(
        offset_dims=(),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    ),
    (1, 1),
)


def _scatter(op: str, name: str, indices: Any, updates: np.ndarray, **options: Any) -> None:
    def function(lax: Any, x: Any, u: Any) -> Any:
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
        )
        return getattr(lax, op)(x, np.array(indices, np.int32), u, numbers, **options)

    case(f"{op}_{name}", function, distinct(5, 3), updates, second=op not in ("scatter_min", "scatter_max"))


_scatter("scatter", "unique", [[1], [4], [2]], normal(3, 3), unique_indices=True)
_scatter("scatter", "repeated", [[1], [4], [1]], normal(3, 3))
_scatter("scatter_add", "repeated", [[1], [4], [1]], normal(3, 3))
_scatter("scatter_add", "outside", [[1], [9], [1]], normal(3, 3))
_scatter("scatter_add", "clipped", [[1], [9], [1]], normal(3, 3), mode="clip")
_scatter("scatter_sub", "repeated", [[1], [4], [1]], normal(3, 3))
_scatter("scatter_mul", "unique", [[1], [4], [2]], normal(3, 3), unique_indices=True)
_scatter("scatter_max", "repeated", [[1], [4], [1]], normal(3, 3))
_scatter("scatter_min", "repeated", [[1], [4], [1]], normal(3, 3))
case("dynamic_slice", lambda lax, x: lax.dynamic_slice(x, (np.int32(1), np.int32(2)), (2, 3)), normal(4, 5))
case("dynamic_slice_clamped", lambda lax, x: lax.dynamic_slice(x, (np.int32(9), np.int32(0)), (2, 3)), normal(4, 5))
case(
    "dynamic_update_slice",
    lambda lax, x, u: lax.dynamic_update_slice(x, u, (np.int32(1), np.int32(9))),
    normal(4, 5),
    normal(2, 3),
)

# -- transforms

for _type, _x in (("fft", compl(3, 6)), ("ifft", compl(3, 6)), ("rfft", normal(3, 6)), ("irfft", compl(3, 4))):
    case(_type, lambda lax, x, t=_type: lax.fft(x, t, (6,)), _x)
case("rfft_odd", lambda lax, x: lax.fft(x, "rfft", (3, 5)), normal(3, 5))
case("irfft_odd", lambda lax, x: lax.fft(x, "irfft", (3, 5)), compl(3, 3))
