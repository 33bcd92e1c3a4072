"""Reductions over sliding windows: `reduce_window`, with an op for each common monoid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import index
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.ir import (
    Array,
    Equation,
    Halo,
    Literal,
    Op,
    Program,
    ShapedArray,
    Tracer,
    bind,
    define_op,
    eval_program,
    literal,
    trace_program,
)
from shardwise.ir.explicit import varying_specs
from shardwise.ir.op import Params, Steps, Types
from shardwise.ir.showing import SHOWING
from shardwise.ir.types import Spec
from shardwise.ops.elementwise.binary import add_p, max_p, min_p, mul_p
from shardwise.ops.elementwise.bitwise import and_p, or_p, xor_p
from shardwise.ops.elementwise.casts import strong
from shardwise.ops.products.conv_geometry import Pads, dilated_size, explicit_pads, padtype_to_pads, window_count
from shardwise.ops.reductions.initial import initial_value
from shardwise.ops.reductions.window_kernel import window_compile, window_kernel
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.operands import Value, check_kind, dtype_kind
from shardwise.ops.rules.small_programs import as_program
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.even_windows import Place, even_windows
from shardwise.ops.shapes.pieces import pad, slice
from shardwise.runtime.monoids import MONOIDS
from shardwise.sharding.rule import Kind, Rule

__all__ = [
    "reduce_window",
    "reduce_window_max_p",
    "reduce_window_min_p",
    "reduce_window_shape_tuple",
    "reduce_window_sum_p",
]


# -- types and rules -------------------------------------------------------------------------------------------------------


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Ints:
    """The number of windows along each dim for an operand of `operand_shape`; the other arguments are those of
    `reduce_window`: `window_dimensions`, `window_strides`, `base_dilation`, `window_dilation`, and `padding` as
    (low, high) pairs.

    >>> lax.reduce_window_shape_tuple((5, 5), (2, 2), (1, 1), [(0, 0), (0, 0)])
    (4, 4)
    """
    sizes = list(operand_shape) if base_dilation is None else map(dilated_size, operand_shape, base_dilation)
    windows = (
        list(window_dimensions) if window_dilation is None else map(dilated_size, window_dimensions, window_dilation)
    )
    padded_sizes = (n + low + high for n, (low, high) in zip(sizes, padding, strict=True))
    return tuple(map(window_count, padded_sizes, windows, window_strides))


def _check_window(x: ShapedArray, window_dimensions: Ints, **others: Sequence[Any]) -> None:
    """TypeError unless the window has a valid entry per dim of the operand."""
    if len(window_dimensions) != x.ndim:
        raise TypeError(
            f"reduce_window got the wrong number of window_dimensions for operand: operand shape {x.shape} with "
            f"window_dimensions {window_dimensions}."
        )
    for name, entries in others.items():
        if len(entries) != x.ndim:
            raise TypeError(
                f"reduce_window got inconsistent {name} and window_dimensions: {name} {entries} and "
                f"window_dimensions {window_dimensions}."
            )
    for name, entries in {"window_dimensions": window_dimensions, **others}.items():
        if name != "padding" and any(n < 1 for n in entries):
            raise TypeError(f"reduce_window {name} must be positive, got {entries}.")


def _window_type(name: str, accepts: str) -> Callable[..., ShapedArray]:
    def rule(
        x: ShapedArray,
        *,
        window_dimensions: Ints,
        window_strides: Ints,
        padding: Pads,
        base_dilation: Ints,
        window_dilation: Ints,
    ) -> ShapedArray:
        check_kind(name, x, accepts)
        _check_window(
            x,
            window_dimensions,
            window_strides=window_strides,
            padding=padding,
            base_dilation=base_dilation,
            window_dilation=window_dilation,
        )
        shape = reduce_window_shape_tuple(
            x.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
        )
        return ShapedArray(shape, x.dtype, x.weak_type)

    return rule


def _window_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Dims without a window keep their sharding, a dim that one window covers is reduced, others need a halo."""
    shape, out_shape = in_types[0].shape, out_types[0].shape
    kinds, out = list[Kind](), list[Ints]()
    for d, n in enumerate(shape):
        plain = params["padding"][d] == (0, 0) and params["base_dilation"][d] == params["window_dilation"][d] == 1
        window, stride = params["window_dimensions"][d], params["window_strides"][d]
        if plain and window == stride == 1:
            kinds.append(Kind.PASS)
        elif plain and window == n:
            kinds.append(Kind.REDUCE)
        else:
            kinds.append(Kind.PERMUTE)
        out.append((d,) if out_shape[d] != 1 and kinds[-1] is not Kind.REDUCE else ())
    return Rule((tuple((d,) if n != 1 else () for d, n in enumerate(shape)),), (tuple(out),), shape, tuple(kinds))


def _window_specs(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """The result has the operand's spec, also where one window covers a whole dim."""
    del params, rule
    return varying_specs("reduce_window", in_types, out_types)


def _localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """A window over a whole dim becomes one over the local part."""
    (x,), (out,) = in_types, out_types
    shape = reduce_window_shape_tuple(
        x.shape,
        *(params[k] for k in ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")),
    )
    windows = tuple(
        x.shape[d] if n != out.shape[d] else w
        for d, (n, w) in enumerate(zip(shape, params["window_dimensions"], strict=True))
    )
    return {**params, "window_dimensions": windows}


def _window_halo(reduction: str) -> Callable[..., Halo | None]:
    """Part i of the result reduces the windows from position ``i * out_local * stride - low``; beyond the ends is the identity."""

    def halo(params: Params, dim: int, in_types: Types, out_local: int) -> Halo | None:
        if params["base_dilation"][dim] != 1:
            return None
        stride, low = params["window_strides"][dim], params["padding"][dim][0]
        window = dilated_size(params["window_dimensions"][dim], params["window_dilation"][dim])
        whole = (*params["padding"][:dim], (0, 0), *params["padding"][dim + 1 :])
        fill = MONOIDS[reduction].identity(in_types[0].dtype)
        return Halo(stride * out_local, -low, stride * (out_local - 1) + window, {**params, "padding": whole}, fill)

    return halo


def _window_places(params: Params, ndim: int) -> list[Place]:
    return [Place(d, d, d, params["window_strides"][d]) for d in range(ndim) if params["base_dilation"][d] == 1]


# -- derivatives ---------------------------------------------------------------------------------------------------------------


def _sum_transpose(
    ct: Any,
    x: Any,
    *,
    window_dimensions: Ints,
    window_strides: Ints,
    padding: Pads,
    base_dilation: Ints,
    window_dilation: Ints,
) -> list[Any]:
    """Sum the cotangents of the windows that hold each element: a window reduction of the cotangent, dilated by the strides."""
    edges: list[tuple[int, int, int]] = []
    for n, m, window, stride, (low, _), base, gap in zip(
        x.aval.shape, ct.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation, strict=True
    ):
        reach = dilated_size(window, gap) - 1
        edges.append((reach - low, dilated_size(n, base) + low - dilated_size(m, stride), stride - 1))
    ones = (1,) * ct.ndim
    spread = do.pad(ct, 0, padding_config=tuple(edges))
    return [
        do.reduce_window_sum(
            spread,
            window_dimensions=window_dimensions,
            window_strides=base_dilation,
            padding=((0, 0),) * ct.ndim,
            base_dilation=ones,
            window_dilation=window_dilation,
        )
    ]


def _window_jvp(reduction: str) -> Callable[..., Any]:
    """Combine shifted slices of values and tangents dim by dim, by selection of the extremum or by the product rule."""
    keeps = {"max": "ge", "min": "le"}.get(reduction, "")

    def combine(x: Any, t: Any, y: Any, s: Any) -> tuple[Any, Any]:
        if not keeps:
            return do.mul(x, y), do.add(do.mul(t, y), do.mul(s, x))
        stays = getattr(do, keeps)(x, y)  # next to NaN the later element wins
        return do.select_n(stays, y, x), do.select_n(stays, s, t)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = getattr(do, f"reduce_window_{reduction}")(*primals, **params)
        fill, borders = MONOIDS[reduction].identity(out.dtype).item(), params["padding"]
        pair = [*primals, *tangents]
        for d, step in _last_first(params):
            # Each dim is padded when its turn comes: padded dims are of odd sizes, which devices do not share evenly.
            edges = [(0, 0, 0)] * out.ndim
            edges[d] = (*borders[d], params["base_dilation"][d] - 1)
            if edges[d] != (0, 0, 0):
                pair = [do.pad(v, x, padding_config=tuple(edges)) for v, x in zip(pair, (fill, 0), strict=True)]
            first, *others = [[do.slice(v, **part) for v in pair] for part in _taps(pair[0].shape, d, *step)]
            for other in others:
                first = combine(*first, *other)
            pair = first
        return out, pair[1]

    return jvp


def _last_first(params: Params) -> list[tuple[int, Ints]]:
    """Each dim with size, stride and dilation of its windows, the last dim first: so the first of a window's ties, row by row, wins."""
    steps = zip(params["window_dimensions"], params["window_strides"], params["window_dilation"], strict=True)
    return list(enumerate(steps))[::-1]


def _taps(shape: Ints, dim: int, size: int, stride: int, gap: int) -> list[dict[str, Any]]:
    """Params of the slices that hold the first, second, ... element of every window along `dim`."""
    count = window_count(shape[dim], dilated_size(size, gap), stride)
    parts: list[dict[str, Any]] = []
    for tap in range(size):
        starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
        first = tap * gap if count else 0
        starts[dim], limits[dim], steps[dim] = first, first + max(count - 1, 0) * stride + min(count, 1), stride
        parts.append(dict(start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(steps)))
    return parts


def _elements_of_windows(ins: Types, outs: Types, params: Params) -> Steps:
    return Steps("window", float(outs[0].size * math.prod(params["window_dimensions"])))


_STEPS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and_", "or": "or_", "xor": "xor_"}
_FEW_TAPS = 32  # of a window's dims together: each is a slice


def _has_few_taps(eqn: Equation) -> bool:
    return sum(eqn.params["window_dimensions"]) - eqn.inputs[0].aval.ndim < _FEW_TAPS


def _small_window(reduction: str, x: Any, **params: Any) -> Any:
    """Shifted slices combined dim by dim."""
    edges = tuple(
        (low, high, gap - 1) for (low, high), gap in zip(params["padding"], params["base_dilation"], strict=True)
    )
    x = do.pad(x, literal(MONOIDS[reduction].identity(x.dtype), x.dtype), padding_config=edges)
    combine = getattr(do, _STEPS[reduction])
    steps = zip(params["window_dimensions"], params["window_strides"], params["window_dilation"], strict=True)
    for d, step in enumerate(steps):
        if step != (1, 1, 1):
            x = reduce(combine, [do.slice(x, **part) for part in _taps(x.shape, d, *step)])
    return x


def _define(reduction: str, accepts: str, **derivative: Any) -> Op:
    name = f"reduce_window_{reduction}"
    return define_op(
        name,
        type_rule=_window_type(name, accepts),
        kernel=window_kernel(reduction),
        compile=window_compile(reduction),
        rule=_window_rule,
        explicit=_window_specs,
        reduction=reduction,
        localize=_localize,
        halo=_window_halo(reduction),
        partition=even_windows(_window_places),
        algorithm=_elements_of_windows,
        small=as_program(partial(_small_window, reduction), _has_few_taps),
        **derivative,
    )


reduce_window_sum_p = _define("sum", "iufc", makes_nan=True, jvp="linear", transpose=_sum_transpose)
reduce_window_prod_p = _define("prod", "iufc", makes_nan=True, jvp=_window_jvp("prod"))
reduce_window_max_p = _define("max", "biuf", jvp=_window_jvp("max"))
reduce_window_min_p = _define("min", "biuf", jvp=_window_jvp("min"))
reduce_window_and_p = _define("and", "biu")
reduce_window_or_p = _define("or", "biu")
reduce_window_xor_p = _define("xor", "biu")

_MONOIDS = {add_p: reduce_window_sum_p, mul_p: reduce_window_prod_p, max_p: reduce_window_max_p, min_p: reduce_window_min_p,
            and_p: reduce_window_and_p, or_p: reduce_window_or_p, xor_p: reduce_window_xor_p}  # fmt: skip
# Their results are as weakly typed as their operands, as those of JAX's primitives are.
_KEEP_WEAK_TYPES = (reduce_window_sum_p, reduce_window_max_p, reduce_window_min_p)


# -- public --------------------------------------------------------------------------------------------------------------------


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduce every window of `operand` (an array or a pytree of them) with `computation`, starting from `init_value`.

    `window_dimensions` and the options have an entry per dim. `computation` combines two values (pytrees like the operand) and
    must be associative and elementwise; the order of a window's elements is unspecified. Padding and the gaps of `base_dilation`
    hold `init_value`.

    Raises TypeError for windows, dtypes or shapes that do not fit, ValueError where the trees differ.

    Args:
        window_strides: steps of the window; 1 by default.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        window_dilation: gaps between the elements of a window; 1 for none.

    >>> lax.reduce_window(jnp.array([1, 2, 3, 4]), 0, lax.add, (2,), (2,))
    Array([3, 7], dtype=int32)
    """
    leaves, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    if tree != init_tree:
        raise ValueError(
            f"reduce_window operands must have the same tree structure as init_values: {tree} vs. {init_tree}."
        )
    if not leaves:
        raise ValueError("reduce_window must have at least one operand.")
    values = [as_value(x) for x in leaves]
    starts = [initial_value("reduce_window", v, x, computation, TypeError) for v, x in zip(inits, values, strict=True)]
    windows, rank = tuple(index(n) for n in window_dimensions), len(window_dimensions)
    ones = (1,) * rank
    strides = ones if window_strides is None else tuple(index(n) for n in window_strides)
    gaps = ones if base_dilation is None else tuple(index(n) for n in base_dilation)
    spread = ones if window_dilation is None else tuple(index(n) for n in window_dilation)
    if isinstance(padding, str):
        _check_window(values[0].aval, windows, window_strides=strides, window_dilation=spread)
        pads: Pads = tuple(
            padtype_to_pads(values[0].shape, tuple(map(dilated_size, windows, spread)), strides, padding)
        )
    else:
        pads = explicit_pads("reduce_window", padding)
    params = dict(
        window_dimensions=windows, window_strides=strides, padding=pads, base_dilation=gaps, window_dilation=spread
    )
    program, consts = _trace(computation, tree, values)
    op = _monoid(program, starts, values)
    if op is not None:
        out = bind(op, values[0], **params)
        return tree_unflatten(tree, [out if op in _KEEP_WEAK_TYPES else strong(out)])
    _check_window(
        values[0].aval, windows, window_strides=strides, padding=pads, base_dilation=gaps, window_dilation=spread
    )
    if SHOWING.get() and not consts:
        results = bind(_reduce_window_p, *values, *starts, consts=(), jaxpr=program, **params)
    else:
        results = _typed_slices(program, consts, values, starts, params)
    return tree_unflatten(tree, [strong(x) for x in results])


def _window_body(*values: Any, jaxpr: Program, consts: tuple[Any, ...], **params: Any) -> list[Any]:
    half = len(values) // 2
    return _typed_slices(jaxpr, list(consts), list(values[:half]), list(values[half:]), params)


_reduce_window_p = define_shown("reduce_window", _window_body, several=True)


def _trace(computation: Callable[..., Any], tree: Any, values: Sequence[Value]) -> tuple[Program, list[Any]]:
    """The program that combines two elements of every operand."""
    n = len(values)

    def combine(*scalars: Any) -> list[Any]:
        out = computation(tree_unflatten(tree, scalars[:n]), tree_unflatten(tree, scalars[n:]))
        flat, out_tree = tree_flatten(out)
        if out_tree != tree:
            raise ValueError(
                f"reduce_window output must have the same tree structure as the operands: {out_tree} vs. {tree}."
            )
        return [as_value(x) for x in flat]

    scalars = [ShapedArray((), x.dtype) for x in values]
    program, consts = trace_program(combine, scalars + scalars, "reduce_window")
    for have, want in zip(program.out_types, scalars, strict=True):
        if have.dtype != want.dtype or have.shape:
            raise TypeError(f"reduce_window: computation must return {want.str_short()}, got {have.str_short()}.")
    return program, consts


def _monoid(program: Program, inits: Sequence[Value], values: Sequence[Value]) -> Op | None:
    """The op of a computation that is one known equation and starts from its identity; else None."""
    if len(program.equations) != 1 or len(program.inputs) != 2 or program.num_consts or len(values) != 1:
        return None
    (eqn,) = program.equations
    op = _MONOIDS.get(eqn.op)
    if op is None or set(eqn.inputs) != set(program.inputs) or program.outputs != eqn.outputs:
        return None
    init = inits[0]
    known_init = init.value[()] if isinstance(init, Literal) else _concrete(init)
    if known_init is None or known_init != MONOIDS[op.reduction_of({})].identity(values[0].dtype):
        return None
    return None if op in (reduce_window_max_p, reduce_window_min_p) and dtype_kind(values[0].dtype) == "c" else op


def _concrete(x: Array) -> Any:
    """The value of a scalar array; None if it is traced."""

    return None if isinstance(x, Tracer) else np.asarray(x)[()]


def _typed_slices(
    program: Program, consts: list[Any], xs: list[Any], inits: list[Any], params: dict[str, Any]
) -> list[Any]:
    """`_by_slices` with the windowed dims whole on Explicit axes, which need not divide their padded and sliced sizes."""
    shape = reduce_window_shape_tuple(xs[0].shape, **params)
    specs = [
        varying_specs("reduce_window", (x.aval,), (x.aval.update(shape=shape, spec=((),) * x.ndim),))[0] for x in xs
    ]
    passes = [
        n == step == gap == 1 and edge == (0, 0)
        for n, step, gap, edge in zip(
            *(params[k] for k in ("window_dimensions", "window_strides", "base_dilation", "padding")), strict=True
        )
    ]
    whole = [tuple(axes if p else () for axes, p in zip(spec, passes, strict=True)) for spec in specs]
    out = _by_slices(program, consts, [_resplit(x, s) for x, s in zip(xs, whole, strict=True)], inits, params)
    return [_resplit(x, s) for x, s in zip(out, specs, strict=True)]


def _resplit(x: Any, spec: Spec) -> Any:
    """`x` with another spec on the mesh of its type, if it has one."""
    t = x.aval
    if t.mesh is None or t.spec == spec:
        return x
    return do.reshard(x, sharding=t.update(spec=spec).sharding, concrete=None)


def _by_slices(
    program: Program, consts: list[Any], xs: list[Any], inits: list[Any], params: dict[str, Any]
) -> list[Any]:
    """Any computation: combine shifted slices dim by dim, then the result with the initial value."""
    if any(e.op.rule is not None or e.op.multiple_results for e in program.equations):
        raise NotImplementedError(
            "reduce_window: computation must be elementwise. Use conv_general_dilated_patches and reduce."
        )

    def run(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return eval_program(program, [*consts, *left, *right])

    edges = [(low, high, gap - 1) for (low, high), gap in zip(params["padding"], params["base_dilation"], strict=True)]
    if any(edge != (0, 0, 0) for edge in edges):
        xs = [pad(x, v, edges) for x, v in zip(xs, inits, strict=True)]
    for d, step in _last_first(params):
        parts = None
        for part in _taps(xs[0].shape, d, *step):
            shifted_parts = [slice(x, **part) for x in xs]
            parts = shifted_parts if parts is None else run(parts, shifted_parts)
        assert parts is not None
        xs = parts
    full = [broadcast_in_dim(v, xs[0].shape, ()) for v in inits]
    return run(full, xs)
