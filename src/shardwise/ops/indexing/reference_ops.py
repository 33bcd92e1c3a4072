"""Operations on references, as programs that are traced to be shown have them: `get`, `swap`, `addupdate`, `new_ref`, `freeze`.

In: what stands for a reference in such a program, values, and indices, `At`, whose computed parts are operands. Programs that run have
none of these: there a reference is its array. `eval_jaxpr` runs them by the methods of the references that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Equation, Op, ReferenceType, ShapedArray, Shown, define_op
from shardwise.ir.references import written_with_tangent
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import later


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of an index that is computed: which of the operands behind the others it is."""

    position: int


@dataclass(frozen=True, slots=True)
class Range:
    """The positions ``start + stride * i`` for i below `size`."""

    start: int | Operand
    size: int
    stride: int = 1


Part = int | Operand | Range


@dataclass(frozen=True, slots=True)
class At:
    """An index of an array of `shape`, a part for each dim."""

    parts: tuple[Part, ...]
    shape: tuple[int, ...]

    def index(self, operands: Sequence[Any], dynamic: Callable[..., Any]) -> tuple[Any, ...]:
        """The index itself; ``dynamic(start, size, stride)`` is one of computed positions."""

        def part(p: Part) -> Any:
            if isinstance(p, Range):
                if isinstance(p.start, Operand):
                    return dynamic(operands[p.start.position], p.size, p.stride)
                return slice(p.start, p.start + p.stride * p.size, p.stride)
            return operands[p.position] if isinstance(p, Operand) else p

        return tuple([part(p) for p in self.parts])

    def text(self, names: Sequence[str]) -> str:
        """The index as programs print it, in brackets."""
        if all(p == Range(0, n) for p, n in zip(self.parts, self.shape, strict=True)):
            return "[...]"

        def part(p: Part, size: int) -> str:
            if isinstance(p, Operand):
                return names[p.position]
            if not isinstance(p, Range):
                return str(p)
            if isinstance(p.start, Operand):
                start = names[p.start.position]
                return f"{start}:{start}+{p.size}"
            end = p.start + p.stride * (p.size - 1) + 1 if p.size else p.start
            first, last = ("" if p.start == 0 else str(p.start)), ("" if end == size else str(end))
            return f"{first}:{last}" if p.stride == 1 else f"{first}:{last}:{p.stride}"

        return f"[{','.join(part(p, n) for p, n in zip(self.parts, self.shape, strict=True))}]"


Index = tuple[At, ...]  # of views: one in another


def _place(name: str, index: Index, operands: Sequence[str]) -> str:
    return name + ("".join(at.text(operands) for at in index) or "[...]")


def _get_text(eqn: Equation, name: Callable[[Any], str], bound: Sequence[str]) -> str:
    ref, *operands = map(name, eqn.inputs)
    return f"{bound[0]} <- {_place(ref, eqn.params['index'], operands)}"


def _swap_text(eqn: Equation, name: Callable[[Any], str], bound: Sequence[str]) -> str:
    ref, value, *operands = map(name, eqn.inputs)
    place = _place(ref, eqn.params["index"], operands)
    return f"{place} <- {value}" if bound[0].startswith("_:") else f"{bound[0]}, {place} <- {place}, {value}"


def _add_text(eqn: Equation, name: Callable[[Any], str], bound: Sequence[str]) -> str:
    ref, value, *operands = map(name, eqn.inputs)
    return f"{_place(ref, eqn.params['index'], operands)} += {value}"


def _part_type(ref: ShapedArray, *operands: ShapedArray, index: Index, shape: tuple[int, ...]) -> ShapedArray:
    return ShapedArray(shape, ref.dtype, ref.weak_type, vma=ref.vma)


def _refuse_tangents(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise written_with_tangent(primals[0])


# -- on the references themselves --------------------------------------------------------------------------------------------------

_empty = later("shardwise.ref", "empty_ref")
_slice = later("shardwise.numpy.dynamic_index", "Slice")


def _at(ref: Any, index: tuple[At, ...], operands: Sequence[Any]) -> tuple[Any, Any]:
    """The view and the index in it that a program says."""
    if not index:
        return ref, ...
    indices = [at.index([as_array(x) for x in operands], _slice) for at in index]
    for outer in indices[:-1]:
        ref = ref.at[outer]
    return ref, indices[-1]


def _run_get(ref: Any, *operands: Any, index: tuple[At, ...], shape: Any) -> Any:
    place, at = _at(ref, index, operands)
    return as_value(place[at])


def _run_swap(ref: Any, value: Any, *operands: Any, index: tuple[At, ...], shape: Any) -> Any:
    place, at = _at(ref, index, operands)
    return as_value(place.swap(as_array(value), at))


def _run_addupdate(ref: Any, value: Any, *operands: Any, index: tuple[At, ...]) -> list[Any]:
    place, at = _at(ref, index, operands)
    place.addupdate(as_array(value), at)
    return []


def _define(name: str, type_rule: Callable[..., Any], **fields: Any) -> Op:
    return define_op(name, type_rule=type_rule, typed=True, effects=True, **fields)


get_p = _define("get", _part_type, shown=Shown(text=_get_text), eager=_run_get)
swap_p = _define("swap", _part_type, shown=Shown(text=_swap_text), jvp=_refuse_tangents, eager=_run_swap)
addupdate_p = _define(
    "addupdate",
    lambda *types, **params: (),
    multiple_results=True,
    shown=Shown(text=_add_text),
    jvp=_refuse_tangents,
    eager=_run_addupdate,
)
new_ref_p = _define(
    "new_ref",
    lambda x: ReferenceType(x),
    shown=Shown(whole=lambda params: {"kind": None, "memory_space": None}),
    eager=later("shardwise.ref", "new_ref"),
)
empty_ref_p = _define(
    "empty_ref",
    lambda *, ty: ReferenceType(ty),
    shown=Shown(whole=lambda params: {"memory_space": None, "ty": params["ty"].str_short(short_dtypes=False)}),
    eager=lambda *, ty: _empty(ty),
)
freeze_p = _define("freeze", lambda ref: ref.inner, eager=later("shardwise.ref", "freeze"))

REFERENCE_OPS = frozenset((get_p, swap_p, addupdate_p, new_ref_p, empty_ref_p, freeze_p))
