"""Sums of values padded with zeros between their elements, as sums that write each element once (`padded_sum`).

Comes in: a per-device program. Goes out: the program in which no such pad is made. Pads around their elements alone are left to loops,
which read them in place (`joined_pads`), unless they are added to others.
"""

from __future__ import annotations

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Equation, Literal, Program, Spread, Var, live_equations, map_equations, map_programs
from shardwise.ops.elementwise.binary import add_p
from shardwise.ops.shapes.padded_sum import PadConfig, count_cells, padded_sum_p
from shardwise.ops.shapes.pieces import pad_p
from shardwise.passes.parts import users
from shardwise.runtime import costs
from shardwise.runtime.env import Env


def with_pad_sums(program: Program, env: Env) -> Program:
    """`program` with large sums of pads as equations of their own."""
    return _sum_pads(program, env.spread)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Values that are padded with zeros, and added in order."""

    values: tuple[Atom, ...]
    configs: tuple[PadConfig, ...]

    @property
    def strided(self) -> bool:
        return any(between for config in self.configs for _, _, between in config)

    def cells(self, shape: tuple[int, ...]) -> int:
        return count_cells(shape, tuple(a.aval.shape for a in self.values), self.configs)


def _sum_pads(program: Program, spread: Spread) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _sum_pads(inner, spread)))
    if not any(
        e.op is pad_p and any(between for _, _, between in e.params["padding_config"]) for e in program.equations
    ):
        return program
    used, result_vars = users(program), {v for v in program.outputs if isinstance(v, Var)}
    terms: dict[Atom, _Terms] = {}
    sums: dict[Var, Equation] = {}

    def once(a: Atom) -> bool:
        return isinstance(a, Var) and a not in result_vars and len(used[a]) == 1

    for eqn in program.equations:
        if eqn.op is pad_p and _adds_zeros(eqn):
            terms[eqn.outputs[0]] = _Terms((eqn.inputs[0],), (eqn.params["padding_config"],))
        elif eqn.op is add_p:
            (a, b), (out,) = eqn.inputs, eqn.outputs
            if a is b or a not in terms or b not in terms or not (once(a) and once(b)):
                continue
            first, second = sorted((terms[a], terms[b]), key=lambda t: -len(t.values))
            both = _Terms(first.values + second.values, first.configs + second.configs)
            if len(second.values) > 1 or both.cells(out.aval.shape) > costs.PAD_CELLS:  # or the order would change
                continue
            terms[out] = both
            if both.strided and spread.elements(out.aval) > costs.FUSED_FEWEST:
                sums[out] = eqn
    if not sums:
        return program
    equations = [
        _sum_of(terms[e.outputs[0]], e) if e.op is add_p and e.outputs[0] in sums else e for e in program.equations
    ]
    whole = Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)
    return live_equations(whole)


def _adds_zeros(eqn: Equation) -> bool:
    """Whether a pad adds zeros, and cuts nothing away."""
    x, fill = eqn.inputs
    if not isinstance(fill, Literal) or any(fill.value.tobytes()) or x.aval.dtype.kind not in "iufc" or not x.aval.size:
        return False
    return all(min(entry) >= 0 for entry in eqn.params["padding_config"])


def _sum_of(terms: _Terms, eqn: Equation) -> Equation:
    params = {"shape": eqn.outputs[0].aval.shape, "configs": terms.configs}
    return Equation(padded_sum_p, terms.values, eqn.outputs, params, eqn.source)
