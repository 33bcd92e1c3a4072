"""`shardwise.ad_checkpoint`: rematerialization, named as in jax.ad_checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import keystr, tree_flatten_with_path, tree_leaves, tree_unflatten
from shardwise.ir import Program, recording_trace, source_text, tracing
from shardwise.ir.trace import ProgramTracer
from shardwise.ops.devices.barrier import checkpoint_name as checkpoint_name
from shardwise.ops.devices.barrier import name_p, offload_p
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.derivatives.checkpoint import RECOMPUTE as _RECOMPUTE
from shardwise.transforms.derivatives.checkpoint import SAVEABLE as _SAVEABLE
from shardwise.transforms.derivatives.checkpoint import Offload as _Offload
from shardwise.transforms.derivatives.checkpoint import checkpoint as checkpoint
from shardwise.transforms.derivatives.checkpoint import checkpoint_policies as checkpoint_policies
from shardwise.transforms.derivatives.checkpoint import remat as remat
from shardwise.transforms.interpreters.linearize import linearize_flat

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
    found = [(r.aval, _origin(program, r, names), getattr(r, "variable", None)) for r in lin.residuals]
    order: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
    return [(aval, origin) for aval, origin, _ in sorted(found, key=lambda one: order.get(one[2], len(order)))]


def _argument(f: Callable[..., Any], path: Any) -> str:
    """What a leaf of the arguments is called: ``params['w']``."""

    first, rest = path[1], keystr(path[2:])
    if path[0].idx == 1:  # by keyword
        return f"{first.key}{rest}"
    try:
        names = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        names = []
    return f"{names[first.idx] if first.idx < len(names) else f'[{first.idx}]'}{rest}"


def _origin(program: Program, residual: Any, names: dict[Any, str]) -> str:
    return _origin_of(program, getattr(residual, "variable", None), names)


def _origin_of(program: Program, var: Any, names: dict[Any, str]) -> str:
    if var in names:
        return names[var]
    for eqn in program.equations:
        if var in eqn.outputs:
            if eqn.op is offload_p:
                return _origin_of(program, eqn.inputs[0], names)
            named = f"named '{eqn.params['name']}'" if eqn.op is name_p else f"output of {eqn.op.name}"
            return f"{named} from {source_text(eqn.source)}"
    return "from a constant"


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print the `saved_residuals` of ``f(*args, **kwargs)``, one per line.

    >>> jax.ad_checkpoint.print_saved_residuals(jnp.sin, 1.0)
    f32[] output of cos from ...
    """
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {origin}")


__dir__ = _listing(__name__)
