"""`vmap`: map a function over a dim of its arguments, by giving every op one more loop dim.

An op's kernel already broadcasts over leading dims (the device grid). `vmap` adds one more, so ops need no batching rule
of their own: elementwise ops apply as they are, others run inside the op `vmapped`, whose kernel calls theirs with one
more loop dim. Only ops with regions and collectives have batching rules of their own (`Op.batch`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.ir import (
    Array,
    Equation,
    Literal,
    Program,
    ShapedArray,
    SmallForm,
    Trace,
    Tracer,
    Var,
    bind,
    check_leaks,
    current_trace,
    define_op,
    eval_program,
    infer_types,
    tracing,
)
from shardwise.ir.axis_scope import AXIS_ENV, MAPPED_AXES, SPMD_AXES
from shardwise.ir.key_uses import KeyUses, UsesOf, equation_uses
from shardwise.ir.op import Op, Params, Types, UndefinedPrimal
from shardwise.ops.reductions.reduce import reduce_sum
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import later, repeated_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim, expand_dims
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime.env import Env
from shardwise.runtime.plan import kernel_of
from shardwise.sharding.rule import Rule, batched_rule
from shardwise.transforms.tracing.naming import described


class BatchTracer(Tracer):
    """A value with one more dim, `dim`, than it shows."""

    __slots__ = ("dim", "value")
    _kind = "BatchTracer"
    _trace_kind = "BatchTrace"

    def __init__(self, trace: BatchTrace, value: Any, dim: int) -> None:
        self.owner = trace
        self.value = value
        self.dim = dim
        aval = value.aval
        shape = aval.shape[:dim] + aval.shape[dim + 1 :]
        self.aval = aval.update(shape=shape, spec=aval.spec[:dim] + aval.spec[dim + 1 :])


class BatchTrace(Trace):
    """Applies each op to all elements of the mapped dim at once."""

    __slots__ = ("axis_name", "parent", "size", "spmd")

    def __init__(self, size: int, axis_name: Any, spmd: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.parent = current_trace()
        self.size = size
        self.axis_name = axis_name
        self.spmd = spmd

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        """The parent's value, and its mapped dim or None."""
        return (x.value, x.dim) if isinstance(x, BatchTracer) and x.owner is self else (x, None)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.unwrap(a) for a in args]
        if op.inline is not None and op.batch is None:
            called = Equation(op, tuple(Var(a.aval) for a in args), (), params)
            results = eval_program(op.inline(called), args)
            return results if op.multiple_results else results[0]
        named = self.axis_name is not None and self.axis_name in (params.get("axes") or ()) and op.collective
        with tracing(self.parent):
            if all(d is None for _, d in pairs) and not named:
                return bind(op, *args, **params)
            values, dims = [v for v, _ in pairs], [d for _, d in pairs]
            if named and op.batch is None:
                raise NotImplementedError(
                    f"{op.name} over {params['axes']}, of which {self.axis_name!r} is a vmap axis, has no batching rule; call it over mesh "
                    "axes, in shard_map."
                )
            out_dims: Sequence[int | None]
            if op.batch is not None:
                with SPMD_AXES.override(self.spmd):
                    outs, out_dims = op.batch(self.size, self.axis_name, values, dims, params)
            elif op.ufunc is not None or (op.rule is None and not op.multiple_results):
                outs, out_dims = [_elementwise(op, values, dims, params)], [0]
            else:
                outs = _general(op, self.size, values, dims, params)
                out_dims = [0] * len(outs)
        wrapped = [o if d is None else BatchTracer(self, o, d) for o, d in zip(outs, out_dims, strict=True)]
        return wrapped if op.multiple_results else wrapped[0]


def move_to_front(x: Array, dim: int) -> Array:
    """`x` with dim `dim` first."""
    return x if dim == 0 else transpose(x, (dim, *(d for d in range(x.ndim) if d != dim)))


def _elementwise(op: Op, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """Operands of equal rank get the mapped dim first (size 1 where they are not mapped); scalars stay scalars."""
    rank = max(v.ndim - (d is not None) for v, d in zip(values, dims, strict=True))
    aligned = []
    for v, d in zip(values, dims, strict=True):
        if d is None:
            aligned.append(v if v.ndim == 0 else expand_dims(v, (0,)))
        else:
            front = move_to_front(v, d)
            aligned.append(expand_dims(front, tuple(range(1, 1 + rank))) if front.ndim == 1 and rank else front)
    return bind(op, *aligned, **params)


def _general(op: Op, size: int, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> list[Any]:
    fronts = [v if d is None else move_to_front(v, d) for v, d in zip(values, dims, strict=True)]
    return bind(
        vmapped_op, *fronts, op=op, size=size, mapped=tuple(d is not None for d in dims), inner=tuple(params.items())
    )


def batch_program(
    program: Program, size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], list[int | None]]:
    """Results of a program on values with a mapped dim each (or None), and the results' mapped dims, moved to the front."""
    trace = BatchTrace(size, axis_name, SPMD_AXES.get())
    with tracing(trace):
        entered = [v if d is None else BatchTracer(trace, v, d) for v, d in zip(values, dims, strict=True)]
        outs = eval_program(program, entered)
    trace.closed = True
    pairs = [trace.unwrap(o) for o in outs]
    return [v if d is None else move_to_front(v, d) for v, d in pairs], [None if d is None else 0 for _, d in pairs]


# -- the op that runs another with one more loop dim ---------------------------------------------------------------------------


def _inner_types(types: Sequence[ShapedArray], mapped: Sequence[bool]) -> Types:
    return tuple(t.update(shape=t.shape[1:], spec=t.spec[1:]) if m else t for t, m in zip(types, mapped, strict=True))


def _all_inner(types: Sequence[ShapedArray]) -> Types:
    return _inner_types(types, [True] * len(types))


def _type(
    *types: ShapedArray, op: Op, size: int, mapped: tuple[bool, ...], inner: tuple[Any, ...]
) -> tuple[ShapedArray, ...]:
    outs = infer_types(op, _inner_types(types, mapped), dict(inner))
    specs = {t.spec[0] for t, m in zip(types, mapped, strict=True) if m and t.spec[0]}
    if len(specs) > 1:
        shown = " vs ".join(s[0] if len(s) == 1 else str(s) for s in specs)
        raise ValueError(
            f"Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: {shown}"
        )
    mesh = next((t.mesh for t in types if t.mesh is not None), None)
    axes = next(iter(specs), ())
    vma = frozenset().union(*[t.vma for t in types])
    return tuple(o.update(shape=(size, *o.shape), spec=(axes, *o.spec), mesh=mesh, vma=o.vma | vma) for o in outs)


def _kernel(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    op, mapped = params["op"], params["mapped"]
    inner_ins, inner_outs = _inner_types(in_types, mapped), _all_inner(out_types)
    equation = Equation(op, tuple(Var(t) for t in inner_ins), tuple(Var(t) for t in inner_outs), dict(params["inner"]))
    kernel = kernel_of(equation, env.deeper())
    lead = env.lead
    size = out_types[0].shape[0] if out_types else params["size"]

    return _Mapped(kernel, mapped, lead, size, op.multiple_results)


class _Mapped:
    """A kernel of blocks that have the mapped dim as a dim of the value if `mapped` is true for them, and lack it otherwise."""

    def __init__(self, kernel: Callable[..., Any], mapped: Sequence[bool], lead: int, size: int, many: bool) -> None:
        self._kernel: Any = kernel
        self._mapped, self._lead, self._size, self._many = mapped, lead, size, many
        if hasattr(kernel, "over"):
            self.over = self._over

    def __call__(self, *blocks: Any) -> Any:
        return self._full(self._kernel(*self._loops(blocks)))

    def _over(self, free: Sequence[int], blocks: list[Any]) -> Any:
        """The results, written over mapped operands of `free` that nothing but the list can reach."""
        loops = self._loops(blocks)
        kept = [i for i, m in enumerate(self._mapped) if not m]
        del blocks[:]
        return self._full(self._kernel.over([i for i in free if i not in kept], loops))

    def _loops(self, blocks: Sequence[Any]) -> list[Any]:
        lead = self._lead
        return [
            b if m else b.reshape(*b.shape[:lead], 1, *b.shape[lead:])
            for b, m in zip(blocks, self._mapped, strict=True)
        ]

    def _full(self, results: Any) -> tuple[Any, ...]:
        return tuple(_full(o, self._lead, self._size) for o in (results if self._many else (results,)))


def _full(block: Any, lead: int, size: int) -> Any:
    """The loop dim of vmap is a dim of the value: it has its full extent."""
    if block.shape[lead] == size:
        return block
    return np.broadcast_to(block, (*block.shape[:lead], size, *block.shape[lead + 1 :]))


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    op, mapped = params["op"], params["mapped"]
    inner = op.sharding_rule(_inner_types(in_types, mapped), _all_inner(out_types), dict(params["inner"]))
    return batched_rule(inner, params["size"], mapped)


def _localize(params: Params, in_types: Types, out_types: Types) -> Params:
    op = params["op"]
    inner = dict(params["inner"])
    if op.localize is not None:
        inner = dict(op.localize(inner, _inner_types(in_types, params["mapped"]), _all_inner(out_types)))
    return {**params, "inner": tuple(inner.items()), "size": out_types[0].shape[0]}


def _place(params: Params, in_dims: Any, out_dims: Any) -> Params:
    op = params["op"]
    if op.place is None:
        return params
    ins = tuple(d[1:] if m else d for d, m in zip(in_dims, params["mapped"], strict=True))
    inner = op.place(dict(params["inner"]), ins, tuple(d[1:] for d in out_dims))
    return {**params, "inner": tuple(inner.items())}


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    op: Op,
    size: int,
    mapped: tuple[bool, ...],
    inner: tuple[Any, ...],
) -> tuple[Any, Any]:
    """The map of the op's own rule."""
    from shardwise.transforms.interpreters.jvp import apply_jvp  # start-up time

    live = [t is not None for t in tangents]
    given = [t for t in tangents if t is not None]
    trace = BatchTrace(size, None, next((p.aval.spec[0] for p, m in zip(primals, mapped, strict=True) if m), ()))
    wrap = lambda x, m: BatchTracer(trace, x, 0) if m else x  # noqa: E731
    with tracing(trace):
        ps = [wrap(p, m) for p, m in zip(primals, mapped, strict=True)]
        source = iter(given)
        ts = [wrap(next(source), m) if alive else None for alive, m in zip(live, mapped, strict=True)]
        outs, touts = apply_jvp(op, ps, ts, dict(inner))
    return [lifted(trace, o) for o in outs], [None if t is None else lifted(trace, t) for t in touts]


def lifted(trace: BatchTrace, x: Any) -> Any:
    """A result of a mapped rule with its mapped dim first, made if it had none."""
    value, dim = trace.unwrap(x)
    if dim is not None:
        return move_to_front(value, dim)
    return _repeated(trace, value)


def _repeated(trace: BatchTrace, value: Any) -> Array:
    """`value`, the same for all elements, with the mapped dim in front."""
    dims, sharding = tuple(range(1, value.ndim + 1)), repeated_sharding(trace.size, value.aval, trace.spmd)
    return broadcast_in_dim(value, (trace.size, *value.shape), dims, out_sharding=sharding)


def _transpose(
    cts: Sequence[Any], *args: Any, op: Op, size: int, mapped: tuple[bool, ...], inner: tuple[Any, ...]
) -> list[Any]:
    """The map of the op's own rule; an operand that is not mapped gets the sum over the mapped dim."""
    from shardwise.transforms.interpreters.linearize import apply_transpose  # start-up time

    trace = BatchTrace(size, None)

    def enter(x: Any, m: bool) -> Any:
        if isinstance(x, UndefinedPrimal):
            return UndefinedPrimal(_inner_types([x.aval], [m])[0])
        return BatchTracer(trace, x, 0) if m else x

    with tracing(trace):
        results = apply_transpose(
            op,
            [None if c is None else BatchTracer(trace, c, 0) for c in cts],
            [enter(a, m) for a, m in zip(args, mapped, strict=True)],
            dict(inner),
        )
    outs = []
    for ct, m in zip(results, mapped, strict=True):
        full = None if ct is None else lifted(trace, ct)
        outs.append(full if full is None or m else reduce_sum(full, (0,)))
    return outs


def _keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """The op's uses of the keys of each element."""
    size, mapped = eqn.params["size"], eqn.params["mapped"]
    rows = lambda v: Var(v.aval.update(shape=v.aval.shape[1:]))  # noqa: E731
    inputs = tuple(rows(a) if m else a for a, m in zip(eqn.inputs, mapped, strict=True))
    inner = Equation(eqn.params["op"], inputs, tuple(map(rows, eqn.outputs)), dict(eqn.params["inner"]), eqn.source)
    uses = equation_uses(inner, uses_of)
    sinks = {
        i: np.broadcast_to(mask, (size, *mask.shape)) if mapped[i] and np.ndim(mask) else mask
        for i, mask in uses.sinks.items()
    }
    return KeyUses(sinks, uses.sources, uses.forwards)


vmapped_op = define_op(
    "vmapped",
    type_rule=_type,
    multiple_results=True,
    typed=True,
    numeric=True,
    compile=_kernel,
    rule=_rule,
    localize=_localize,
    place=_place,
    reduction=lambda params: params["op"].reduction_of(dict(params["inner"])),
    jvp=_jvp,
    transpose=_transpose,
    effects=lambda params: params["op"].has_effects(dict(params["inner"])),
    keys=_keys,
    extracts="copies",
    small=SmallForm(later("shardwise.runtime.small", "mapped"), later("shardwise.runtime.small", "mapped_fits")),
)


# -- public ----------------------------------------------------------------------------------------------------------------------


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[..., Any]:
    """`fun` mapped over dim `in_axes` of its arguments, results stacked along `out_axes`.

    `in_axes` and `out_axes` are ints, None (not mapped) or prefix trees of them. Inside, `axis_name` may be used by
    collectives, and sharding constraints and shard_maps split the mapped dim over the mesh axes `spmd_axis_name`.

    Raises ValueError if the mapped sizes differ, or if nothing is mapped and `axis_size` is not given.
    """
    if not callable(fun):
        raise TypeError(f"vmap: Expected a callable value, got {fun!r}")
    if sum_match:
        raise NotImplementedError(
            "vmap(sum_match=True) is not supported; sum over the mapped dim after the call instead."
        )
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not isinstance(in_axes, (int, tuple, type(None))) or isinstance(in_axes, bool):
        raise TypeError(
            f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments, got {in_axes!r}."
        )

    for axis in tree_leaves(out_axes):
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise TypeError(f"vmap out_axes must be an int, None, or a tree of them, got {axis!r}.")
    spmd = (
        ()
        if spmd_axis_name is None
        else (spmd_axis_name,)
        if isinstance(spmd_axis_name, str)
        else tuple(spmd_axis_name)
    )

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fun(*args, **kwargs)

    @functools.wraps(fun)
    @user_facing
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                f"positional arguments passed to "
                f"the function, but got len(in_axes)={len(in_axes)}, len(args)={len(args)}"
            )
        leaves, tree = tree_flatten((args, kwargs))
        axes = _flat_axes(in_axes, args, kwargs)
        values = [x if a is None else as_value(x) for x, a in zip(leaves, axes, strict=True)]
        dims = [_checked_axis(v, a) for v, a in zip(values, axes, strict=True)]
        size = _map_size(values, dims, axis_size)
        split = _checked_split(values, dims, spmd)
        trace = BatchTrace(size, axis_name, spmd or split)
        entered = lambda: [  # noqa: E731  nothing here holds on to the tracers
            x if d is None else BatchTracer(trace, v, d) for x, v, d in zip(leaves, values, dims, strict=True)
        ]
        result = _mapped(trace, lambda: call(*tree_unflatten(tree, entered())), out_axes)
        check_leaks(trace, "vmap")
        return result

    return described(mapped, "Vectorized version of {}.")


def _mapped(trace: BatchTrace, call: Callable[[], Any], out_axes: Any) -> Any:
    """The results of a function of mapped values, stacked along `out_axes`."""
    env, named = AXIS_ENV.get(), MAPPED_AXES.get()
    if trace.axis_name is not None:
        env, named = (*env, (trace.axis_name, trace.size)), named | {trace.axis_name}
    with tracing(trace), AXIS_ENV.override(env), MAPPED_AXES.override(named):
        outs, out_tree = tree_flatten(call())
        outs = [as_array(o) for o in outs]
    wanted = _prefixed(out_axes, tree_unflatten(out_tree, outs), "vmap out_axes")
    trace.closed = True
    return tree_unflatten(out_tree, [_leave(trace, o, w) for o, w in zip(outs, wanted, strict=True)])


_NOT_MAPPED = object()


def _prefixed(axes: Any, tree: Any, name: str) -> list[Any]:
    """The axis of each leaf of `tree`. None is an axis among `axes`, and an empty tree in `tree`."""
    marked = tree_map(lambda a: _NOT_MAPPED if a is None else a, axes, is_leaf=lambda a: a is None)
    try:
        found = broadcast_prefix(marked, tree, name=name)
    except ValueError as error:
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value, got {axes}: {error}"
        ) from None
    return [None if a is _NOT_MAPPED else a for a in found]


def _flat_axes(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return _prefixed(in_axes, args, "vmap in_axes") + [0] * len(tree_flatten(kwargs)[0])


def _checked_axis(value: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"vmap in_axes must be an int, None, or a tree of them: ints or None, got {axis!r}.")
    if isinstance(value, Literal) or not -value.ndim <= axis < value.ndim:
        raise ValueError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its rank should be at least "
            f"{axis + 1 if axis >= 0 else -axis}, but is only {value.ndim} (its shape is {value.shape})"
        )
    return axis % value.ndim


def _map_size(values: Sequence[Any], dims: Sequence[int | None], axis_size: int | None) -> int:
    if not values and axis_size is None:
        raise ValueError("vmap wrapped function must be passed at least one argument containing an array, got none.")
    sizes = {v.shape[d] for v, d in zip(values, dims, strict=True) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise ValueError("vmap must have at least one non-None value in in_axes, or axis_size=.")
    if len(sizes) > 1:
        shown = ", ".join(
            f"argument {i} has size {v.shape[d]} along dim {d}"
            for i, (v, d) in enumerate(zip(values, dims, strict=True))
            if d is not None
        )
        raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped: {shown}.")
    return sizes.pop()


def _checked_split(values: Sequence[Any], dims: Sequence[int | None], spmd: tuple[str, ...]) -> tuple[str, ...]:
    """The Explicit axes over which types split the mapped dims. ValueError if they differ, or `spmd` names some, too."""
    splits = {
        v.aval.spec[d] if v.aval.mesh is not None else () for v, d in zip(values, dims, strict=True) if d is not None
    }
    if len(splits) > 1:
        shown = " vs ".join(sorted(str(axes[0] if len(axes) == 1 else axes or None) for axes in splits))
        raise ValueError(
            f"Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: {shown}. "
            "Reshard the inputs first."
        )
    if spmd and splits - {(), spmd}:
        raise ValueError(
            "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. Got "
            f"spmd_axis_name={spmd} and arrays sharded over {splits.pop()}."
        )
    return next(iter(splits), ())


def _leave(trace: BatchTrace, x: Any, axis: Any) -> Any:
    value, dim = trace.unwrap(x)
    if axis is None:
        if dim is not None:
            named = "" if trace.axis_name is None else f" (axis_name={trace.axis_name!r})"
            raise ValueError(
                f"vmap has mapped output{named} but out_axes is None: at vmap out_axes, got axis spec None but output was batched. Use "
                "out_axes=0, or reduce it."
            )
        return value
    if dim is None:
        value, dim = _repeated(trace, value), 0
    axis = axis % value.ndim if -value.ndim <= axis < value.ndim else axis
    if not 0 <= axis < value.ndim:
        raise ValueError(f"vmap out_axes: axis {axis} is out of bounds for array of dimension {value.ndim}.")
    if axis == dim:
        return value
    order = [d for d in range(value.ndim) if d != dim]
    order.insert(axis, dim)
    return transpose(value, tuple(order))
