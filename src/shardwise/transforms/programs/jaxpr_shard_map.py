"""The params of a shard_map in JAX's form."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.ir.op import Params
from shardwise.ir.program import Atom, Equation, Program, Var, map_programs
from shardwise.sharding import PartitionSpec


def shard_map_params(params: Params) -> dict[str, Any]:
    """Specs, the mesh and the body under the names of the dialect."""
    mesh, manual, check = params["mesh"], params["manual"], params["check"]
    body = params["program"] if check else _drop_variance(params["program"])
    if not config.dialect.jaxprs.shard_map_shows_specs:
        return {
            "auto": frozenset(mesh.axis_names) - manual,
            "check_rep": check,
            "in_names": _names(params["in_dims"]),
            "jaxpr": body,
            "mesh": mesh,
            "out_names": _names(params["out_dims"]),
            "rewrite": check,
        }
    none = ((frozenset(), frozenset()),) * len(params["in_dims"])
    return {
        "check_vma": check,
        "in_specs": _specs(params["in_dims"], none),
        "jaxpr": body,
        "mesh": mesh,
        "newly_manual_axes": manual,
        "out_specs": _specs(params["out_dims"], params["out_marks"]),
    }


def _drop_variance(program: Program) -> Program:
    """The program without the axes over which its values vary: where types are not checked they do not say so."""
    new: dict[Var, Var] = {}

    def atom(a: Atom) -> Atom:
        return var(a) if isinstance(a, Var) else a

    def var(v: Var) -> Var:
        if v not in new:
            new[v] = Var(v.aval.update(vma=frozenset())) if v.aval.vma else v
        return new[v]

    def equation(eqn: Equation) -> Equation:
        inputs, outputs = tuple(map(atom, eqn.inputs)), tuple(map(var, eqn.outputs))
        return Equation(eqn.op, inputs, outputs, map_programs(eqn, _drop_variance).params, eqn.source)

    inputs, outputs = tuple(map(var, program.inputs)), tuple(map(atom, program.outputs))
    return Program(inputs, tuple(map(equation, program.equations)), outputs, program.num_consts, program.name)


def _names(dims: Any) -> tuple[dict[int, tuple[str, ...]], ...]:
    return tuple({i: axes for i, axes in enumerate(of_value) if axes} for of_value in dims)


def _specs(dims: Any, marks: Any) -> tuple[PartitionSpec, ...]:
    specs = []
    for of_value, (unreduced_axes, reduced_axes) in zip(dims, marks, strict=True):
        entries = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in of_value]
        while entries and entries[-1] is None:
            entries.pop()
        specs.append(PartitionSpec(*entries, unreduced=unreduced_axes, reduced=reduced_axes))
    return tuple(specs)
