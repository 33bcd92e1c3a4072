"""Collectives as JAX's programs name them: psum, pmax, all_gather with their params.

Comes in: an equation. Goes out: its name and params under JAX's names, or None for an op that is no such collective.
"""

from __future__ import annotations

import math
from typing import Any

from shardwise.base import config
from shardwise.ir import Equation

_RENAMED = {
    "all_gather": {"dim": "all_gather_dimension", "axes": "axis_name"},
    "reduce_scatter": {"dim": "scatter_dimension", "axes": "axis_name"},
    "all_to_all": {"split": "split_axis", "concat": "concat_axis", "axes": "axis_name"},
    "ppermute": {"axes": "axis_name"},
    "axis_index": {"axes": "axis_name"},
}
_GROUPED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_OWN = ("sizes", "invariant", "kind", "groups")  # params of ours alone


def collective_name(eqn: Equation) -> str | None:
    """psum, pmax or pmin for an all_reduce; a psum whose result is typed as equal over the axes has a name of its own,
    and pvary has one in each dialect."""
    if eqn.op.name == "pvary":
        return config.dialect.jaxprs.pvary
    if eqn.op.name != "all_reduce":
        return None
    name = f"p{eqn.params['kind']}"
    return config.dialect.jaxprs.psum_of_varying if _is_psum_of_varying(eqn) else name


def _is_psum_of_varying(eqn: Equation) -> bool:
    """Whether it is a psum whose result is typed as equal over axes over which its operand varies."""
    summed = eqn.op.name == "all_reduce" and eqn.params["kind"] == "sum"
    return summed and bool(eqn.inputs[0].aval.vma & frozenset(eqn.params["axes"]))


def collective_params(eqn: Equation) -> dict[str, Any] | None:
    """The params of a collective under JAX's names."""
    name, params = eqn.op.name, eqn.params
    if name not in _RENAMED and name != "all_reduce":
        return None
    renamed = _RENAMED.get(name, {})
    shown = {renamed.get(k, k): v for k, v in params.items() if k not in _OWN}
    if name in _GROUPED and (config.dialect.jaxprs.psum_of_varying_shows_groups or not _is_psum_of_varying(eqn)):
        shown["axis_index_groups"] = params.get("groups")
    if name in ("all_gather", "reduce_scatter"):
        shown["axis_size"] = math.prod(params["sizes"])
    if name in ("axis_index", "all_to_all") and len(params["axes"]) == 1:
        shown["axis_name"] = params["axes"][0]
    return shown
