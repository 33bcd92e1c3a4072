"""The trace of `vmap`, and the op `vmapped` that runs another op with one more loop dim.

An op's kernel already broadcasts over leading dims (the device grid). A batch adds one more, so ops need no batching rule
of their own: elementwise ops apply as they are, others run inside `vmapped`, whose kernel calls theirs with one more loop
dim. Only ops with regions and collectives have batching rules of their own (`Op.batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import ENTRIES, recent
from shardwise.base.config import Override, Setting
from shardwise.ir import (
    Array,
    Equation,
    Program,
    ShapedArray,
    SmallForm,
    Spread,
    Trace,
    Tracer,
    Var,
    bind,
    current_trace,
    define_op,
    eval_program,
    infer_types,
    subprograms,
    tracing,
)
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.key_uses import KeyUses, UsesOf, equation_uses
from shardwise.ir.op import Op, Params, Types, UndefinedPrimal
from shardwise.ir.references import written_from_vmap
from shardwise.ops.reductions.reduce import reduce_sum
from shardwise.ops.rules.derivative import later, moved_to_front, repeated_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim, expand_dims
from shardwise.runtime.blocks import expand_dim
from shardwise.runtime.env import Env
from shardwise.runtime.plan import kernel_of
from shardwise.sharding.rule import Rule, batched_rule


class Alike:
    """Marks a mapped result whose elements are all the same; the rule of its function may give them tangents that differ."""

    __slots__ = ("_differ", "_taken")

    def __init__(self) -> None:
        self._differ = self._taken = False

    def take(self) -> None:
        """Note that one element stands for all. ValueError if their tangents differ."""
        self._taken = True
        self._check()

    def differ(self) -> None:
        """Note that the tangents differ. ValueError if one element stands for all."""
        self._differ = True
        self._check()

    def _check(self) -> None:
        if self._taken and self._differ:
            raise ValueError(
                "vmap has mapped output but out_axes is None: the value is the same for all elements, but its tangent is not. Use "
                "out_axes=0, or reduce it."
            )


class BatchTracer(Tracer):
    """A value with one more dim, `dim`, than it shows."""

    __slots__ = ("alike", "dim", "value")
    _trace_kind = "BatchTrace"

    def __init__(self, trace: BatchTrace, value: Any, dim: int, alike: Alike | None = None) -> None:
        self.owner = trace
        self.value = value
        self.dim = dim
        self.alike = alike
        aval = value.aval
        shape = aval.shape[:dim] + aval.shape[dim + 1 :]
        self.aval = aval.update(shape=shape, spec=aval.spec[:dim] + aval.spec[dim + 1 :])

    def _text(self) -> str:
        return f"VmapTracer(aval={self.aval}, batched={self.value.aval})"


# The object that all traces of one `vmap` share, while a batching rule of it runs.
_MAP: Setting[Any] = Setting("map", None, traced=False)


class BatchTrace(Trace):
    """Applies each op to all elements of the mapped dim at once.

    `of_rule`: it maps a function or a rule for the `vmap` whose rule is running, and takes the values of that, too: the function may
    have closed over some.
    """

    __slots__ = ("axis_name", "map", "parent", "size", "spmd")

    def __init__(self, size: int, axis_name: Any, spmd: tuple[str, ...] = (), *, of_rule: bool = False) -> None:
        super().__init__()
        self.parent = current_trace()
        self.size = size
        self.axis_name = axis_name
        self.spmd = spmd
        self.map: Any = (_MAP.get() if of_rule else None) or object()

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        """The parent's value, and its mapped dim or None."""
        if not isinstance(x, BatchTracer):
            return x, None
        if x.owner is self:
            return x.value, x.dim
        return (self._below(x.value), x.dim) if x.owner.map is self.map else (x, None)

    def _below(self, value: Any) -> Any:
        """A value of the map's first trace as this one's parent knows it: tangents of values that a rule has closed over are dropped."""
        while hasattr(type(value), "primal") and value.owner is not self.parent:
            value = value.primal
        return value

    def leave_reference(self, value: Any, reference: Any) -> Any:
        """No value: each element would write the same place."""
        raise written_from_vmap(reference)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        try:
            return self._batch_op(op, args, params)
        except (TypeError, ValueError) as error:
            of_one = _error_of_one(op, args, params)
            if of_one is None or type(of_one) is not type(error):
                raise
            raise of_one from None  # it speaks of the shapes that the user's function sees

    def _batch_op(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.unwrap(a) for a in args]
        if op.inline is not None and op.batch is None:
            call_equation = Equation(op, tuple(Var(a.aval) for a in args), (), params)
            results = eval_program(op.inline(call_equation), args)
            return results if op.multiple_results else results[0]
        names_axis = self.axis_name is not None and self.axis_name in _axes_named(op, params)
        with tracing(self.parent):
            if all(d is None for _, d in pairs) and not names_axis:
                return bind(op, *args, **params)
            values, dims = [v for v, _ in pairs], [d for _, d in pairs]
            if names_axis and op.batch is None:
                raise NotImplementedError(
                    f"{op.name} over {params['axes']}, of which {self.axis_name!r} is a vmap axis, has no batching rule; call it over mesh "
                    "axes, in shard_map."
                )
            out_dims: Sequence[int | Alike | None]
            if op.batch is not None:
                with SPMD_AXES.override(self.spmd), _MAP.override(self.map):
                    outs, out_dims = op.batch(self.size, self.axis_name, values, dims, params)
            elif op.ufunc is not None or (op.rule is None and not op.multiple_results):
                outs, out_dims = [_elementwise(op, values, dims, params)], [0]
            else:
                outs = _general(op, self.size, values, dims, params)
                out_dims = [0] * len(outs)
        tracers = [
            o if d is None else BatchTracer(self, o, 0, d) if isinstance(d, Alike) else BatchTracer(self, o, d)
            for o, d in zip(outs, out_dims, strict=True)
        ]
        return tracers if op.multiple_results else tracers[0]


def _error_of_one(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Exception | None:
    """The error that the op gives for one element of the batch."""
    try:
        infer_types(op, tuple(a.aval for a in args), params)
    except (TypeError, ValueError) as error:
        return error
    return None


def _axes_named(op: Op, params: Params) -> frozenset[Any]:
    """The axes over which an op communicates, itself or in the programs of its params."""
    own = frozenset(params.get("axes") or ()) if op.collective else frozenset()
    inner = [_axes_of(program) for _, program in subprograms(params)]
    return own.union(*inner) - params.get("manual", frozenset()) if inner else own


@recent(ENTRIES)
def _axes_of(program: Program) -> frozenset[Any]:
    return frozenset().union(*[_axes_named(eqn.op, eqn.params) for eqn in program.equations])


def _elementwise(op: Op, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """Operands of equal rank get the mapped dim first (size 1 where they are not mapped); scalars stay scalars."""
    rank = max(v.ndim - (d is not None) for v, d in zip(values, dims, strict=True))
    aligned_values = []
    for v, d in zip(values, dims, strict=True):
        if d is None:
            aligned_values.append(v if v.ndim == 0 else expand_dims(v, (0,)))
        else:
            front = moved_to_front(v, d)
            aligned_values.append(expand_dims(front, tuple(range(1, 1 + rank))) if front.ndim == 1 and rank else front)
    return bind(op, *aligned_values, **params)


def _general(op: Op, size: int, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> list[Any]:
    fronts = [v if d is None else moved_to_front(v, d) for v, d in zip(values, dims, strict=True)]
    return bind(
        vmapped_op,
        *fronts,
        mapped_op=op,
        size=size,
        mapped=tuple(d is not None for d in dims),
        inner=tuple(params.items()),
    )


def batch_program(
    program: Program, size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], list[int | None]]:
    """Results of a program on values with a mapped dim each (or None), and the results' mapped dims, moved to the front."""
    trace = BatchTrace(size, axis_name, SPMD_AXES.get(), of_rule=True)
    with tracing(trace):
        entry_values = [v if d is None else BatchTracer(trace, v, d) for v, d in zip(values, dims, strict=True)]
        outs = eval_program(program, entry_values)
    trace.closed = True
    pairs = [trace.unwrap(o) for o in outs]
    return [v if d is None else moved_to_front(v, d) for v, d in pairs], [None if d is None else 0 for _, d in pairs]


# -- the op that runs another with one more loop dim ---------------------------------------------------------------------------


def _inner_types(types: Sequence[ShapedArray], mapped: Sequence[bool]) -> Types:
    return tuple(t.update(shape=t.shape[1:], spec=t.spec[1:]) if m else t for t, m in zip(types, mapped, strict=True))


def _all_inner(types: Sequence[ShapedArray]) -> Types:
    return _inner_types(types, [True] * len(types))


def _type(
    *types: ShapedArray, mapped_op: Op, size: int, mapped: tuple[bool, ...], inner: tuple[Any, ...]
) -> tuple[ShapedArray, ...]:
    outs = infer_types(mapped_op, _inner_types(types, mapped), dict(inner))
    specs = {t.spec[0] for t, m in zip(types, mapped, strict=True) if m and t.spec[0]}
    if len(specs) > 1:
        specs_text = " vs ".join(s[0] if len(s) == 1 else str(s) for s in specs)
        raise ValueError(
            f"Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: {specs_text}"
        )
    mesh = next((t.mesh for t in types if t.mesh is not None), None)
    axes = next(iter(specs), ())
    vma = frozenset().union(*[t.vma for t in types])
    return tuple(o.update(shape=(size, *o.shape), spec=(axes, *o.spec), mesh=mesh, vma=o.vma | vma) for o in outs)


def _kernel(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    op, mapped_operands = params["mapped_op"], params["mapped"]
    inner_ins, inner_outs = _inner_types(in_types, mapped_operands), _all_inner(out_types)
    equation = Equation(op, tuple(Var(t) for t in inner_ins), tuple(Var(t) for t in inner_outs), dict(params["inner"]))
    kernel = kernel_of(equation, env.deeper())
    lead = env.lead
    size = out_types[0].shape[0] if out_types else params["size"]

    return _MappedKernel(kernel, mapped_operands, lead, size, op.multiple_results)


class _MappedKernel:
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
        unmapped_operands = [i for i, m in enumerate(self._mapped) if not m]
        del blocks[:]
        return self._full(self._kernel.over([i for i in free if i not in unmapped_operands], loops))

    def _loops(self, blocks: Sequence[Any]) -> list[Any]:
        lead = self._lead
        return [
            b if m else b.reshape(*b.shape[:lead], 1, *b.shape[lead:])
            for b, m in zip(blocks, self._mapped, strict=True)
        ]

    def _full(self, results: Any) -> tuple[Any, ...]:
        return tuple(expand_dim(o, self._lead, self._size) for o in (results if self._many else (results,)))


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    op, mapped_operands = params["mapped_op"], params["mapped"]
    inner = op.sharding_rule(_inner_types(in_types, mapped_operands), _all_inner(out_types), dict(params["inner"]))
    return batched_rule(inner, params["size"], mapped_operands)


def _localize(params: Params, in_types: Types, out_types: Types) -> Params:
    op = params["mapped_op"]
    inner = dict(params["inner"])
    if op.localize is not None:
        inner = dict(op.localize(inner, _inner_types(in_types, params["mapped"]), _all_inner(out_types)))
    return {**params, "inner": tuple(inner.items()), "size": out_types[0].shape[0]}


def _place(params: Params, in_dims: Any, out_dims: Any) -> Params:
    op = params["mapped_op"]
    if op.place is None:
        return params
    ins = tuple(d[1:] if m else d for d, m in zip(in_dims, params["mapped"], strict=True))
    inner = op.place(dict(params["inner"]), ins, tuple(d[1:] for d in out_dims))
    return {**params, "inner": tuple(inner.items())}


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    mapped_op: Op,
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
        outs, touts = apply_jvp(mapped_op, ps, ts, dict(inner))
    return [lift_result(trace, o) for o in outs], [None if t is None else lift_result(trace, t) for t in touts]


def mapping_again() -> Override:
    """A context in which the `vmap` whose rule is running now is the one whose rule is running."""
    return _MAP.override(_MAP.get())


def lift_result(trace: BatchTrace, x: Any) -> Any:
    """A result of a mapped rule with its mapped dim first, made if it had none."""
    value, dim = trace.unwrap(x)
    if dim is not None:
        return moved_to_front(value, dim)
    return repeat_value(trace, value)


def repeat_value(trace: BatchTrace, value: Any) -> Array:
    """`value`, the same for all elements, with the mapped dim in front."""
    dims, sharding = tuple(range(1, value.ndim + 1)), repeated_sharding(trace.size, value.aval, trace.spmd)
    return broadcast_in_dim(value, (trace.size, *value.shape), dims, out_sharding=sharding)


def _transpose(
    cts: Sequence[Any], *args: Any, mapped_op: Op, size: int, mapped: tuple[bool, ...], inner: tuple[Any, ...]
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
            mapped_op,
            [None if c is None else BatchTracer(trace, c, 0) for c in cts],
            [enter(a, m) for a, m in zip(args, mapped, strict=True)],
            dict(inner),
        )
    outs = []
    for ct, m in zip(results, mapped, strict=True):
        full = None if ct is None else lift_result(trace, ct)
        outs.append(full if full is None or m else reduce_sum(full, (0,)))
    return outs


def _keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """The op's uses of the keys of each element."""
    size, mapped_operands = eqn.params["size"], eqn.params["mapped"]
    rows = lambda v: Var(v.aval.update(shape=v.aval.shape[1:]))  # noqa: E731
    inputs = tuple(rows(a) if m else a for a, m in zip(eqn.inputs, mapped_operands, strict=True))
    inner = Equation(
        eqn.params["mapped_op"], inputs, tuple(map(rows, eqn.outputs)), dict(eqn.params["inner"]), eqn.source
    )
    uses = equation_uses(inner, uses_of)
    sinks = {
        i: np.broadcast_to(mask, (size, *mask.shape)) if mapped_operands[i] and np.ndim(mask) else mask
        for i, mask in uses.sinks.items()
    }
    return KeyUses(sinks, uses.sources, uses.forwards)


def _of_stack(eqn: Equation) -> Equation:
    """The equation of the op of each element, on the stacks."""
    return Equation(eqn.params["mapped_op"], eqn.inputs, eqn.outputs, dict(eqn.params["inner"]), eqn.source)


def _calls(eqn: Equation, spread: Spread) -> int:
    """Those of the op's kernel for a stack. An operand that all elements share counts as no stack."""
    form = eqn.params["mapped_op"].small
    return form.calls_for(_of_stack(eqn), spread) if form is not None and all(eqn.params["mapped"]) else 1


def _alike(eqn: Equation) -> bool:
    form = eqn.params["mapped_op"].small
    return form is None or form.is_alike(_of_stack(eqn))


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
    reduction=lambda params: params["mapped_op"].reduction_of(dict(params["inner"])),
    jvp=_jvp,
    transpose=_transpose,
    effects=lambda params: params["mapped_op"].has_effects(dict(params["inner"])),
    keys=_keys,
    extracts="copies",
    small=SmallForm(
        later("shardwise.runtime.small", "map_entries"),
        later("shardwise.runtime.small", "mapped_fits"),
        calls=_calls,
        alike=_alike,
    ),
)
