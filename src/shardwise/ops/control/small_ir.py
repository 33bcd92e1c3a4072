"""How ops are written in small programs, for those that are neither elementwise nor reductions.

Comes in: an equation of a per-device program. Goes out: whether it can be part of a small program (see `runtime.small.kernel`); the table
`WRITERS` says by what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.ir import Equation, Literal, Op, Program, Var, map_programs, subprograms
from shardwise.ir.op import all_ops, find_op
from shardwise.ops.control.cond import cond_p
from shardwise.ops.control.scan import scan_p
from shardwise.ops.control.while_loop import while_p
from shardwise.ops.devices.barrier import name_p
from shardwise.ops.devices.barrier import optimization_barrier_p as barrier_p
from shardwise.ops.elementwise.casts import bitcast_convert_type_p
from shardwise.ops.indexing.gather import gather_p
from shardwise.ops.indexing.gather_kernel import default_fill
from shardwise.ops.indexing.slicing import dynamic_slice_p, dynamic_update_slice_p
from shardwise.ops.indexing.window_numbers import GatherScatterMode
from shardwise.ops.linalg import small_factors
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.random.small_random import RANDOM, random_writable
from shardwise.ops.reductions.cumulative import cummax_p, cummin_p, cumprod_p, cumsum_p
from shardwise.ops.reductions.running import SUM
from shardwise.ops.rules.precision import DotAlgorithm, DotAlgorithmPreset
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.pieces import concatenate_p, pad_p, slice_p, split_p
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.ops.shapes.transpose import rev_p, squeeze_p, transpose_p
from shardwise.runtime.fused.space import fits
from shardwise.runtime.machine.lanes import TYPES
from shardwise.runtime.small import control, moves, windows
from shardwise.runtime.small.body import WRITERS, Body, has_form, same
from shardwise.runtime.small.code import Value, name_of
from shardwise.runtime.small.in_place import updates
from shardwise.runtime.small.loops import running
from shardwise.runtime.small.product import LARGEST as LARGEST_PRODUCT
from shardwise.runtime.small.product import product
from shardwise.runtime.small.triangular import LARGEST as LARGEST_SYSTEMS
from shardwise.runtime.small.triangular import triangular_solve

LARGEST = 1 << 14  # elements of a value; beyond, loops that threads share do better
LARGEST_TOUCHED = 1 << 18  # of one that a loop updates where it lies; it is copied once


def _view(body: Body, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    return moves.view(body.code, eqn, values)


def _constant(body: Body, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    array = moves.kernel_of(body.code, eqn)()
    return [body.code.known(array, name_of(eqn.outputs[0].aval))]


def _into(writer: Any) -> Any:
    """A writer of one result, to whom memory may be given."""

    return lambda body, eqn, values, wanted: writer(body.code, eqn, values, wanted[0])


def _product(body: Body, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    return product(body.code, eqn, values, wanted[0], [body.is_stable(a) for a in eqn.inputs])


def _dynamic_slice(body: Body, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    return moves.dynamic_slice(body.code, eqn, values)


def _gather(body: Body, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    given, dtype = eqn.params["fill_value"], eqn.outputs[0].aval.dtype
    fill = np.asarray(default_fill(dtype) if given is None else given).astype(dtype)
    clips = eqn.params["mode"] is not GatherScatterMode.FILL_OR_DROP
    return windows.gather(body.code, eqn, values, wanted[0], fill, clips)


def _scatter(body: Body, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    return windows.scatter(body.code, eqn, values, wanted[0], eqn.params["mode"] is GatherScatterMode.CLIP)


def _recast(body: Body, eqn: Equation, values: list[Value], wanted: list[Any]) -> list[Value]:
    """The same bits as another type of that size."""
    code, (x,), dtype = body.code, values, name_of(eqn.outputs[0].aval)
    if x.constant is not None:
        return [replace(x, dtype=dtype, constant=x.constant.view(dtype))]
    if x.lane is not None:
        return [replace(x, dtype=dtype, lane=code.at(x.width).bitcast(x.lane, dtype))]
    return [replace(x, dtype=dtype)]


def _lu(body: Body, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    return small_factors.lu(body.code, eqn, values, wanted)


def _running(name: str) -> Any:
    op = find_op(name)

    def write(body: Body, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
        axis = eqn.params["axis"] + body.code.lead
        begin = SUM.begin if name == "add" else None
        return [running(body.code, values[0], axis, eqn.params["reverse"], op, wanted[0], begin)]

    return write


_SCATTERS = tuple(find_op(name) for name in ("scatter", *(f"scatter_{c}" for c in ("add", "sub", "mul", "min", "max"))))

for _op in (slice_p, split_p, squeeze_p, reshape_p, transpose_p, rev_p, broadcast_in_dim_p):
    WRITERS[_op] = _view
WRITERS[iota_p] = _constant
WRITERS[concatenate_p] = _into(moves.concatenated)
WRITERS[pad_p] = _into(moves.padded)
WRITERS[dynamic_slice_p] = _dynamic_slice
WRITERS[dynamic_update_slice_p] = _into(moves.dynamic_update)
WRITERS[dot_general_p] = _product
WRITERS[gather_p] = _gather
WRITERS.update(dict.fromkeys(_SCATTERS, _scatter))
WRITERS[barrier_p] = same
WRITERS[name_p] = same
WRITERS[find_op("pvary")] = same
WRITERS[bitcast_convert_type_p] = _recast
_RUNNING = {cumsum_p: "add", cumprod_p: "mul", cummax_p: "max", cummin_p: "min"}
WRITERS.update({op: _running(name) for op, name in _RUNNING.items()})
_mapped_p = all_ops()["vmapped"]
WRITERS[_mapped_p] = control.mapped
WRITERS[scan_p] = control.scan
WRITERS[while_p] = control.while_loop
WRITERS[cond_p] = control.cond


# -- equations that hold programs ----------------------------------------------------------------------------------------------

_LOOPS = (scan_p, while_p)


def inner_programs(eqn: Equation) -> list[Program]:
    """The bodies of a loop, or the branches of a cond; none for other equations."""
    return [p for _, p in subprograms(eqn.params)] if eqn.op in (*_LOOPS, cond_p) else []


def with_inner_programs(eqn: Equation, change: Callable[[Program, bool], Program]) -> Equation:
    """`eqn` with `change(program, whether it runs repeatedly)` in the place of its inner programs."""
    if not inner_programs(eqn):
        return eqn
    return map_programs(eqn, lambda program: change(program, eqn.op in _LOOPS))


# -- what can be written -----------------------------------------------------------------------------------------------------


def writable(eqn: Equation, devices: int, in_place: bool = False) -> bool:
    """Whether an equation can be part of a small program on so many devices; `in_place`: its result is no new value."""
    if eqn.op not in WRITERS and _is_later(eqn.op):
        _TESTS[eqn.op], WRITERS[eqn.op] = _LATER[eqn.op.name]
    if not has_form(eqn) or eqn.op.has_effects(eqn.params):
        return False
    if any(name_of(a.aval) not in TYPES or not a.aval.size for a in (*eqn.inputs, *eqn.outputs)):
        return False
    test = _TESTS.get(eqn.op)
    if test is not None and not test(eqn, devices):
        return False
    return in_place or eqn.op in (scan_p, while_p) or _modest(eqn, devices)


def _modest(eqn: Equation, devices: int) -> bool:
    """Whether dtypes are known to the op's emitter, and results are small."""
    if any(v.aval.size * devices > LARGEST for v in eqn.outputs):
        return False
    if eqn.op in WRITERS:
        return True
    fold, emit = eqn.op.fold, eqn.op.emit
    if fold is not None:
        x, axes = eqn.inputs[0].aval, eqn.params["axes"]
        if x.size * devices > LARGEST or eqn.params.get("sum_axes") or (fold.positions and len(axes) != 1):
            return False
        return fits(x, fold.kinds)
    assert emit is not None
    if not all(fits(a.aval, emit.kinds) for a in eqn.inputs):
        return False
    # Vector code would round a result of float64 to float32 before it becomes float16.
    narrow = name_of(eqn.outputs[0].aval) in ("float16", "bfloat16")
    return not (narrow and any(name_of(a.aval) == "float64" for a in eqn.inputs))


def _body_writable(program: Program, devices: int, touched: Collection[Var] = ()) -> bool:
    return all(writable(e, devices, any(v in touched for v in e.outputs)) for e in program.equations)


def _carried(eqn: Equation, devices: int) -> bool:
    """Whether what goes round is small."""
    programs = [p for p in (eqn.params["body"], eqn.params.get("cond")) if p is not None]
    first = eqn.params.get("num_consts", eqn.params.get("body_consts", 0))
    n = eqn.params.get("num_carry", len(programs[0].outputs))
    carry = programs[0].inputs[first : first + n]
    chains = updates(programs[0], carry, programs[0].outputs[:n], devices)
    touched = {v for chain in chains for v in chain}  # in windows only
    if any(
        v.aval.size * devices > (LARGEST_TOUCHED if v in touched else LARGEST) for v in (*carry, *programs[0].outputs)
    ):
        return False
    return all(_body_writable(p, devices, touched) for p in programs)


def _scan_writable(eqn: Equation, devices: int) -> bool:
    return eqn.params["length"] > 0 and _carried(eqn, devices)


def _while_writable(eqn: Equation, devices: int) -> bool:
    return not eqn.params["cond"].out_types[0].vma and _carried(eqn, devices)


def _cond_writable(eqn: Equation, devices: int) -> bool:
    return not eqn.inputs[0].aval.vma and all(_body_writable(b, devices) for b in eqn.params["branches"])


def _starts_writable(first: int) -> Any:
    """Whether starts are the same on all devices, and no split dim is cut."""

    def test(eqn: Equation, devices: int) -> bool:
        if any(eqn.params.get("operand_axes") or ()):
            return False
        return all(isinstance(a, Literal) or not a.aval.vma for a in eqn.inputs[first:])

    return test


def _product_writable(eqn: Equation, devices: int) -> bool:
    params, dtype = eqn.params, name_of(eqn.outputs[0].aval)
    if (
        params.get("sum_axes")
        or isinstance(params.get("precision"), (DotAlgorithm, DotAlgorithmPreset))
        or dtype not in ("float32", "float64")
    ):
        return False
    if any(name_of(a.aval) != dtype for a in eqn.inputs):
        return False
    depth = 1
    for d in params["dimension_numbers"][0][0]:
        depth *= eqn.inputs[0].aval.shape[d]
    return eqn.outputs[0].aval.size * depth * devices <= LARGEST_PRODUCT


def _triangular_writable(eqn: Equation, devices: int) -> bool:
    a, b = (v.aval for v in eqn.inputs)
    return fits(b, "w") and b.size * a.shape[-1] * devices <= LARGEST_SYSTEMS


def _windows_writable(eqn: Equation, devices: int) -> bool:
    """Whether windows lie at positions that are the same on all devices, and no dim that is indexed is split."""
    params = eqn.params
    if any(params.get("operand_axes") or ()) or params.get("sum_axes") or params.get("update_axes"):
        return False
    if eqn.inputs[1].aval.vma or not isinstance(eqn.inputs[1], Var):
        return False
    combined = params.get("combine")
    form = find_op(combined).emit if combined else None
    return form is None or fits(eqn.outputs[0].aval, form.kinds)


def _recast_writable(eqn: Equation, devices: int) -> bool:
    """Whether the value's bits are those of its register: not for what lives in wider ones."""
    names = [name_of(a.aval) for a in (*eqn.inputs, *eqn.outputs)]
    same = eqn.inputs[0].aval.shape == eqn.outputs[0].aval.shape
    return same and not {"float16", "bfloat16", "bool"} & set(names)


def _running_writable(eqn: Equation, devices: int) -> bool:
    x = eqn.inputs[0].aval
    return fits(x, "iuw") and not any(eqn.params.get("sum_axes", ()))


def _mapped_writable(eqn: Equation, devices: int) -> bool:
    inner, params = eqn.params["op"], dict(eqn.params["inner"])
    if _is_later(inner):
        inputs = [
            Var(a.aval.update(shape=a.aval.shape[1:]) if m else a.aval)
            for a, m in zip(eqn.inputs, eqn.params["mapped"], strict=True)
        ]
        outputs = tuple(Var(v.aval.update(shape=v.aval.shape[1:])) for v in eqn.outputs)
        return writable(Equation(inner, tuple(inputs), outputs, params, eqn.source), devices * eqn.params["size"])
    if inner not in (dynamic_slice_p, dynamic_update_slice_p):
        return False
    return _starts_writable(1 if inner is dynamic_slice_p else 2)(
        Equation(inner, eqn.inputs, eqn.outputs, params), devices
    )


_TESTS: dict[Any, Any] = {
    bitcast_convert_type_p: _recast_writable,
    **dict.fromkeys(_RUNNING, _running_writable),
    _mapped_p: _mapped_writable,
    **dict.fromkeys(RANDOM, lambda eqn, devices: random_writable(eqn)),
    gather_p: _windows_writable,
    **dict.fromkeys(_SCATTERS, _windows_writable),
    scan_p: _scan_writable,
    while_p: _while_writable,
    cond_p: _cond_writable,
    dynamic_slice_p: _starts_writable(1),
    dynamic_update_slice_p: _starts_writable(2),
    dot_general_p: _product_writable,
    iota_p: lambda eqn, devices: not eqn.params.get("shard_axes"),
}

# Ops of modules that are imported when they are asked for.
_LATER: dict[str, tuple[Any, Any]] = {
    "triangular_solve": (_triangular_writable, _into(triangular_solve)),
    "cholesky": (small_factors.factors_writable, _into(small_factors.cholesky)),
    "solve": (small_factors.factors_writable, _into(small_factors.solve)),
    "lu": (small_factors.factors_writable, _lu),
}


def _is_later(op: Op) -> bool:
    return op.name in _LATER and all_ops().get(op.name) is op
