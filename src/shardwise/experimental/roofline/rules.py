"""How each equation of a device program counts.

In: an equation with local types, and the sizes of the mesh axes. Out: its `RooflineResult`, by what its op declares, or by a rule that
the user registered for its primitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from shardwise.experimental.roofline import network
from shardwise.experimental.roofline.result import RooflineResult, RooflineRuleContext, RooflineShape
from shardwise.ir import Atom, Collective, Equation, Var, unwrap_op
from shardwise.planner import operations_of, product_of, touched_bytes
from shardwise.transforms.programs.jaxpr_views import JaxprEqn
from shardwise.transforms.programs.primitives import Primitive

Rule = TypeVar("Rule", bound=Callable[..., RooflineResult])
_rules: dict[Primitive, Callable[..., RooflineResult]] = {}


def register_roofline(prim: Primitive) -> Callable[[Rule], Rule]:
    """Count equations of the primitive `prim` by ``rule(ctx, *shapes, **params)``, which gives a `RooflineResult`,
    and not as usual.

    Raises:
        NotImplementedError: it is the user's own primitive. Programs hold the equations of its lowering, and those are counted.

    >>> @jax.experimental.roofline.register_roofline(jax.lax.igamma_p)
    ... def rule(ctx, *shapes, **params):
    ...     return jax.experimental.roofline.RooflineResult(unfused_flops=1)
    """
    if not prim.is_ours:
        raise NotImplementedError(
            f"register_roofline({prim.name}): a primitive of your own is counted by the ops that it is made of. Register rules for those."
        )

    def register(rule: Rule) -> Rule:
        _rules[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Primitive) -> None:
    """Count equations of the primitive `prim` as nothing.

    >>> jax.experimental.roofline.register_standard_roofline(jax.lax.nextafter_p)
    """
    register_roofline(prim)(lambda ctx, *shapes, **params: RooflineResult.zeros())


def count_equation(eqn: Equation, sizes: Mapping[str, int], ctx: dict[str, Any]) -> RooflineResult:
    """The work of a device for an equation that holds no program. `ctx`: fields of the rules' context that are the same for all."""
    if _rules:
        shown_equation = JaxprEqn(eqn)
        rule = _rules.get(shown_equation.primitive)
        if rule is not None:
            ins, outs = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
            context = RooflineRuleContext(
                primitive=shown_equation.primitive, avals_in=ins, avals_out=outs, jaxpr_eqn_ctx=None, **ctx
            )
            return rule(context, *map(RooflineShape.from_aval, ins), **shown_equation.params)
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    if op.collective is not None:
        return _count_collective(op.collective, eqn, params, sizes)
    if op.product:
        return _product(eqn, ctx["pin_lhs_in_vmem"], ctx["pin_rhs_in_vmem"])
    moves = op.view or op.boxes is not None or (op.emit is not None and op.emit.moves)
    flops = 0
    if not moves:
        operations = operations_of(eqn)
        flops = int(operations.arithmetic + operations.functions)
        if op.fold is not None:  # the first element of each result is added to nothing
            flops -= sum(v.aval.size for v in eqn.outputs)
    return RooflineResult(unfused_flops=flops, unfused_hbm_bytes=0 if moves else _unfused_bytes(eqn))


def _unfused_bytes(eqn: Equation) -> int:
    reads: list[Atom] = list(eqn.inputs)
    bytes_by_value = touched_bytes((eqn,), reads, eqn.outputs)
    literals = sum(a.aval.nbytes for a in reads if not isinstance(a, Var))
    return sum(bytes_by_value.values()) + literals


def _product(eqn: Equation, pin_lhs: bool, pin_rhs: bool) -> RooflineResult:
    lhs, rhs, out = eqn.inputs[0].aval.nbytes, eqn.inputs[1].aval.nbytes, eqn.outputs[0].aval.nbytes
    flops = int(product_of(eqn).flops)
    moved_bytes = (0 if pin_lhs else lhs + out) + (0 if pin_rhs else rhs)
    return RooflineResult(flops=flops, unfused_flops=flops, hbm_bytes=moved_bytes, unfused_hbm_bytes=moved_bytes)


def _count_collective(
    collective: Collective, eqn: Equation, params: Mapping[str, Any], sizes: Mapping[str, int]
) -> RooflineResult:
    axes: Sequence[str] = params["axes"]
    if not collective.counted or not axes:
        return RooflineResult.zeros()
    extents = [sizes.get(a, 1) for a in axes]
    count, nbytes = math.prod(extents), sum(a.aval.nbytes for a in eqn.inputs)
    if count == 1:
        traffic = 0, 0
    elif collective.pattern == "gather":
        traffic = network.ring(nbytes, extents)
    elif collective.pattern in ("scatter", "reduce"):
        carried_bytes, hops = network.ring(nbytes / count, extents)
        both = 2 if collective.pattern == "reduce" else 1  # first each device combines a part, then all get all parts
        traffic = both * carried_bytes, both * hops
    elif collective.pattern == "transpose":
        traffic = network.transpose(nbytes, extents)
    elif "perm" in params:
        traffic = network.permutation(nbytes, params["perm"], extents)
    else:  # rows for the neighbours
        traffic = collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, sizes), 1
    carried_bytes, hops = network.per_axis(traffic, axes)
    return RooflineResult(ici_bytes=carried_bytes, ici_latency=hops)
