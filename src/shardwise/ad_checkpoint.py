"""`shardwise.ad_checkpoint`: rematerialization, named as in jax.ad_checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import keystr, tree_flatten_with_path, tree_leaves, tree_unflatten
from shardwise.ir import Program, ProgramTracer, recording_trace, source_text, tracing
from shardwise.ops.devices.barrier import checkpoint_name as checkpoint_name
from shardwise.ops.devices.barrier import name_p, offload_p
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.derivatives.checkpoint import RECOMPUTE as _RECOMPUTE
from shardwise.transforms.derivatives.checkpoint import SAVEABLE as _SAVEABLE
from shardwise.transforms.derivatives.checkpoint import Offload as _Offload
from shardwise.transforms.derivatives.checkpoint import checkpoint as checkpoint
from shardwise.transforms.derivatives.checkpoint import checkpoint_op
from shardwise.transforms.derivatives.checkpoint import checkpoint_policies as checkpoint_policies
from shardwise.transforms.derivatives.checkpoint import remat as remat
from shardwise.transforms.interpreters.linearize import linearize_flat
from shardwise.transforms.jit.jit_op import jit_op

Saveable, Recompute, Offloadable = _SAVEABLE, _RECOMPUTE, _Offload


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[Any, str]]:
    """The residuals of reverse mode of ``f(*args, **kwargs)``: the type and the origin of each.

    >>> [str(kind) for kind, origin in jax.ad_checkpoint.saved_residuals(jnp.sin, 1.0)]
    ['ShapedArray(float32[], weak_type=True)']
    """

    paths, tree = tree_flatten_with_path((args, kwargs))
    trace = recording_trace(getattr(f, "__name__", "f"))
    with tracing(trace):
        values = [trace.new_arg(as_array(x).aval) for _, x in paths]

        def flat(*leaves: Any) -> list[Any]:
            inner_args, inner_kwargs = tree_unflatten(tree, leaves)
            return [as_array(x) for x in tree_leaves(f(*inner_args, **inner_kwargs))]

        lin = linearize_flat(flat, values)
        program, _ = trace.finish([r for r in lin.residuals if isinstance(r, ProgramTracer)])
    names = {
        v: f"from the argument {_argument(f, path)}"
        for v, (path, _) in zip(program.inputs[program.num_consts :], paths, strict=True)
    }
    order: dict[Any, int] = {
        v: i for i, v in enumerate([*program.inputs, *[o for eqn in program.equations for o in eqn.outputs]])
    }
    sorted_residuals = sorted(lin.residuals, key=lambda r: order.get(getattr(r, "variable", None), -1))
    return [(r.aval, _origin(program, getattr(r, "variable", None), names)) for r in sorted_residuals]


def _argument(f: Callable[..., Any], path: Any) -> str:
    """The name of a leaf of the arguments: ``params['w']``."""

    first, rest = path[1], keystr(path[2:])
    if path[0].idx == 1:  # by keyword
        return f"{first.key}{rest}"
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    before = [p for p in parameters[: first.idx + 1] if p.kind is not p.VAR_POSITIONAL]
    if first.idx < len(before):
        return f"{before[first.idx].name}{rest}"
    packed_names = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    return f"{packed_names[0]}[{first.idx - len(before)}]{rest}" if packed_names else f"[{first.idx}]{rest}"


def _origin(program: Program, var: Any, names: dict[Any, str]) -> str:
    """The maker of a value; for results of checkpointed or compiled functions, the equation inside."""
    if var in names:
        return names[var]
    for eqn in program.equations:
        if var not in eqn.outputs:
            continue
        if eqn.op is offload_p:
            return _origin(program, eqn.inputs[0], names)
        if eqn.op in (checkpoint_op, jit_op):
            inner: Program = eqn.params["program"]
            given = {v: _origin(program, x, names) for v, x in zip(inner.inputs, eqn.inputs, strict=True)}
            return _origin(inner, inner.outputs[eqn.outputs.index(var)], given)
        origin_text = f"named '{eqn.params['name']}'" if eqn.op is name_p else f"output of {eqn.op.name}"
        return f"{origin_text} from {source_text(eqn.source)}"
    return "from a constant"


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print the `saved_residuals` of ``f(*args, **kwargs)``, one per line.

    >>> jax.ad_checkpoint.print_saved_residuals(jnp.sin, 1.0)
    f32[] output of cos from ...
    """
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {origin}")


__dir__ = _listing(__name__)
