"""Explicit mode: result specs at trace time, derived from the op's sharding rule.

In: an op's local type rule results (shape, dtype) and the operand types with their specs.
Out: complete result types, or an error where the result's sharding would be ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardwise.base import config
from shardwise.base.errors import ShardingNotImplementedErrorSeed, ShardingTypeError
from shardwise.base.shapes import Axes
from shardwise.ir.types import NO_AXES, ShapedArray, Spec
from shardwise.sharding import AbstractMesh, PartitionSpec
from shardwise.sharding.rule import Kind, Rule

if TYPE_CHECKING:
    from shardwise.ir.op import Op

Types = tuple[ShapedArray, ...]


def complete_types(op: Op, in_types: Types, outs: Types, params: dict[str, Any]) -> Types:
    """`outs` with the varying axes and, on explicit meshes, the specs that follow from `in_types`."""
    mesh: AbstractMesh | None = None
    vma: frozenset[str] = NO_AXES
    for t in in_types:
        if t.vma:
            vma |= t.vma
        if t.mesh is not None and t.mesh is not mesh:
            mesh = _same_mesh(mesh, t)
    # Nothing is explicit, or the op gives complete types (out_sharding=).
    if mesh is None or all(t.mesh is not None for t in outs):
        partial = _unreduced_axes(op, in_types) if mesh is None else NO_AXES
        same = _reduced_axes(op, in_types) if mesh is None else NO_AXES
        if not (vma or partial or same):
            return outs
        return tuple(t.update(vma=vma | t.vma, unreduced=partial | t.unreduced, reduced=same | t.reduced) for t in outs)
    unreduced_axes, reduced_axes = _unreduced_axes(op, in_types), _reduced_axes(op, in_types)
    specs = explicit_specs(op, in_types, outs, params)
    result = []
    for out, spec in zip(outs, specs, strict=True):
        _check_legal(op, in_types, out, spec)
        result.append(out.update(mesh=mesh, spec=spec, vma=vma, unreduced=unreduced_axes, reduced=reduced_axes))
    return tuple(result)


def _same_mesh(mesh: AbstractMesh | None, t: ShapedArray) -> AbstractMesh:
    assert t.mesh is not None
    if (
        mesh is None
        or mesh == t.mesh
        or (mesh.shape_tuple == t.mesh.shape_tuple and mesh.axis_types == t.mesh.axis_types)
    ):
        return t.mesh
    raise ValueError(f"the operands lie on two meshes: {mesh} and {t.mesh}. Move one of them with device_put first.")


def _unreduced_axes(op: Op, in_types: Types) -> frozenset[str]:
    """The axes over which the results are partial sums: those of all operands, or those of one whose co-factors are `reduced`."""
    if not any(t.unreduced for t in in_types):
        return NO_AXES
    added_types = () if op.additive is False else in_types if op.additive is True else in_types[slice(*op.additive)]
    if (
        added_types
        and len({t.unreduced for t in added_types}) == 1
        and not any(t.unreduced for t in in_types if t not in added_types)
    ):
        return added_types[0].unreduced
    partial_operands = [i for i, t in enumerate(in_types) if t.unreduced]
    if len(partial_operands) == 1 and partial_operands[0] < op.scales:
        axes = in_types[partial_operands[0]].unreduced
        if all(t.reduced == axes or _is_unplaced(t) for i, t in enumerate(in_types) if i != partial_operands[0]):
            return axes
    kind = ShardingTypeError if op.additive is not False or op.scales else ShardingNotImplementedErrorSeed
    raise kind(
        f"{op.name} does not take operands with partial sums ({', '.join(t.str_short() for t in in_types)}) mixed so; "
        "reduce them first with reshard(x, P(...))."
    )


def _reduced_axes(op: Op, in_types: Types) -> frozenset[str]:
    """The axes over which the results are `reduced`: those of the operands, unless one of them is partial sums there.

    Beside an operand that varies over an axis, one that is `reduced` over it becomes varying, too."""
    # As in JAX, which types products as invariant.
    if not any(t.reduced for t in in_types) or op.contraction is not None:
        return NO_AXES
    varying_axes = frozenset[str]().union(*(t.vma for t in in_types))
    states = {t.reduced - varying_axes for t in in_types if t.reduced - varying_axes}
    if not states:
        return NO_AXES
    axes = next(iter(states))
    dtypes = {t.dtype for t in in_types if t.reduced}
    for t in in_types:
        index = t.dtype.kind in "biu" and t.dtype not in dtypes
        if len(states) > 1 or not (t.reduced - varying_axes == axes or t.unreduced == axes or index or _is_unplaced(t)):
            type_list = ", ".join(t.str_short() for t in in_types)
            raise ShardingTypeError(
                f"{op.name} got operands of which some are reduced over {sorted(axes)} and others are not ({type_list}). All inputs should "
                "be reduced across the same mesh axes: reshard the others, or reshard(x, P(...)) the reduced ones."
            )
    return NO_AXES if any(t.unreduced for t in in_types) else axes


def _is_unplaced(t: ShapedArray) -> bool:
    """Whether a type names no mesh: that of scalars and of arrays that nobody has placed."""
    return t.mesh is None and not t.vma


def explicit_specs(op: Op, in_types: Types, outs: Types, params: dict[str, Any]) -> tuple[Spec, ...]:
    """The specs of the results; raises where operands disagree or a dim cannot stay split."""
    rule = op.sharding_rule(in_types, outs, params)
    if op.rule is None:  # elementwise: a dim of size 1 that grows is split over axes of size 1 only, and stays so
        rule = replace(rule, inputs=tuple(tuple((d,) for d in range(t.ndim)) for t in in_types))
    if op.explicit is not None:
        return tuple(op.explicit(in_types, outs, params, rule))
    return specs_from_rule(op.name, in_types, outs, rule)


def specs_from_rule(name: str, in_types: Types, outs: Types, rule: Rule) -> tuple[Spec, ...]:
    """Merge the specs of the operands factor by factor: equal ones agree, an unsplit dim yields, others clash."""
    factor_axes: dict[int, Axes] = {}
    for t, dims in zip(in_types, rule.inputs, strict=True):
        for d, (axes, factors) in enumerate(zip(t.spec, dims, strict=True)):
            if not axes or not factors:
                continue
            first, *rest = factors
            if rest:
                raise type_error(
                    f"{name} on {t.str_short()}: dim {d} is split over {axes} and takes part in several dims "
                    "of the result. Give out_sharding=, or reshard first."
                )
            if rule.kinds[first] is Kind.REPLICATE:
                raise type_error(
                    f"{name} needs dim {d} of {t.str_short()} whole, but it is split over {axes}. "
                    f"Reshard it to None in that dim first."
                )
            known_axes = factor_axes.setdefault(first, axes)
            if known_axes != axes:
                type_list = ", ".join(str(spec_tuple(u)) for u in in_types if u.ndim)
                raise elementwise_error(
                    f"{name} got operands whose shardings clash when broadcast: {type_list}. Reshard one."
                )
    specs = []
    for out, dims in zip(outs, rule.outputs, strict=True):
        spec = []
        for d, factors in enumerate(dims):
            axes = factor_axes.get(factors[0], ()) if len(factors) == 1 else ()
            if axes and rule.kinds[factors[0]] is Kind.PERMUTE:
                check_divisible(name, in_types, out, d, axes)
            spec.append(axes)
        specs.append(tuple(spec))
    return tuple(specs)


def agreed_split(*splits: Axes) -> Axes | None:
    """The axes of a dim shared by several operands: those that split any of them; None if two are split differently."""
    known_splits = {axes for axes in splits if axes}
    return None if len(known_splits) > 1 else next(iter(known_splits), ())


def is_whole(t: ShapedArray) -> bool:
    """Whether every device has all of a value: its spec names no axes, or axes of size 1 only."""
    return t.mesh is None or all(t.mesh.axis_size(a) == 1 for axes in t.spec for a in axes)


def varying_specs(name: str, in_types: Types, outs: Types) -> tuple[Spec, ...]:
    """Results of the first operand's rank keep its spec; a split dim may change to a size that its axes still divide."""
    operand = in_types[0]
    for out in outs:
        for d, axes in enumerate(operand.spec):
            if axes and out.shape[d] != operand.shape[d]:
                check_divisible(name, in_types, out, d, axes)
    return (operand.spec,) * len(outs)


def check_divisible(name: str, in_types: Sequence[ShapedArray], out: ShapedArray, dim: int, axes: Axes) -> None:
    """A changed split dim must stay divisible by its axes; else NotImplementedError with advice."""
    mesh = next(t.mesh for t in in_types if t.mesh is not None)
    ways = 1
    for a in axes:
        ways *= mesh.shape[a]
    if out.shape[dim] % ways:
        raise window_error(
            f"{name} on a split dim whose result size ({out.shape[dim]}) is not divisible by its mesh axes {axes} ({ways}) "
            "is not implemented. Reshard that dim to None first."
        )


def _check_legal(op: Op, in_types: Types, out: ShapedArray, spec: Spec) -> None:
    used: set[str] = set()
    for axes in spec:
        for a in axes:
            if a in used:
                type_list = ", ".join(t.str_short() for t in in_types)
                dims = ",".join(
                    f"{n}@{x[0] if len(x) == 1 else x}" if x else str(n) for n, x in zip(out.shape, spec, strict=True)
                )
                raise type_error(
                    f"{op.name} of {type_list} would give [{dims}], which uses mesh axis {a!r} twice. "
                    "Reshard an operand, or give out_sharding=."
                )
            used.add(a)


def spec_tuple(t: ShapedArray) -> PartitionSpec:
    """A type's spec in the form that users write."""
    return t.sharding.spec


def type_error(message: str) -> Exception:
    """The error of an ambiguous result sharding."""
    return config.dialect.explicit.ambiguous_error(message)


def window_error(message: str) -> Exception:
    """The error of a result dim that cannot stay split."""
    return config.dialect.explicit.window_error(message)


def elementwise_error(message: str) -> Exception:
    """The error of clashing elementwise operands."""
    return config.dialect.explicit.elementwise_error(message)
