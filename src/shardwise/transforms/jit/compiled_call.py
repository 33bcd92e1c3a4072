"""Compiling one call of a jitted function.

In: a bound call and the signatures of its arguments. Out: an `Entry`, which runs calls with the same signatures.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardwise.engine.array import ArrayImpl
from shardwise.engine.compile import compile_program
from shardwise.engine.data_free import DataFree, UserCall
from shardwise.engine.guards import guard_moves
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.signature import Signature
from shardwise.ir import Literal, Program
from shardwise.sharding import Device, Mesh
from shardwise.transforms.jit.abstract import refuse_types
from shardwise.transforms.jit.entry import Entry, as_array_impl, usable_donations
from shardwise.transforms.jit.jit_shardings import context_mesh
from shardwise.transforms.jit.traced_call import TracedCall
from shardwise.transforms.tracing import BoundCall, as_constant, prune, typed_mesh, with_scalars

if TYPE_CHECKING:
    from shardwise.transforms.jit.wrapped import JitWrapped


def compile_call(
    wrapped: JitWrapped[..., Any],
    call: BoundCall,
    sigs: list[Signature],
    devices: tuple[Device, ...] | None = None,
    runs: bool = True,
) -> Entry:
    """Compile; only lower unless the program `runs` now. `devices` replace AbstractMeshes, and are the devices of a program that
    names none.
    """
    options = wrapped._options
    traced_call, placed_sigs, outs = wrapped.prepare(call, sigs, devices, tracing=False)
    orders = wrapped._asked.orders(call, sigs, traced_call)
    program, kept_inputs = prune(traced_call.program, options.keep_unused)
    consts = _captured_arrays(wrapped._fun, traced_call, program.name)
    program, kept_inputs = with_scalars(program, kept_inputs, consts)
    used_consts = [as_constant(consts[i]) for i in kept_inputs if i < len(consts)]
    used = [i - len(consts) for i in kept_inputs if i >= len(consts)]
    donations = call.donated_positions(options.args)
    deletions: list[tuple[int, bool]] = []
    warning = ""

    def owned_donations(shards: Sequence[tuple[int, ...]], out_sigs: Sequence[Signature], many: bool) -> list[int]:
        nonlocal deletions, warning
        has_shardings = all(s is not None for s in outs)
        places = {i: k for k, i in enumerate(used, len(used_consts))}
        shard_shapes = {i: shards[k] for i, k in places.items()}
        deletions, warning = usable_donations(
            call.leaves, donations, sigs, placed_sigs, shard_shapes, out_sigs, many, has_shardings
        )
        return [places[i] for i, is_deleted in deletions if is_deleted]

    mesh, legacy = _default_mesh(options.api, program, placed_sigs, devices)
    executable = compile_program(
        program,
        [c._sig for c in used_consts] + [placed_sigs[i] for i in used],
        outs,
        names=["a captured constant"] * len(used_consts) + [traced_call.names[i] for i in used],
        default_mesh=mesh,
        legacy=legacy,
        captured=len(used_consts),
        owned=owned_donations if donations else None,
        jitted=options.asked_for,
        runs=runs,
    )
    if warning:
        warnings.warn(warning, UserWarning, stacklevel=4)
    if isinstance(executable, DataFree):
        args, keywords = call.rebuild([_without_value(x) for x in call.leaves])
        executable.user_call = UserCall(wrapped, tuple(args), keywords, tuple([-1] * len(used_consts) + used))
    changes = [(k, placed_sigs[i]) for k, i in enumerate(used) if placed_sigs[i] is not sigs[i]]
    guard_moves(program.name, [call.leaves[i] for i in used], executable.grid.devices)
    entry = Entry(
        executable, used_consts, used, changes, deletions, traced_call.out_tree, len(call.leaves), program, outs, orders
    )
    if runs:
        entry.finish()
    return entry


def _captured_arrays(fun: Any, traced: TracedCall, name: str) -> list[ArrayImpl]:
    """The arrays that the function closes over; RuntimeError if one spans processes."""
    refuse_types(fun, traced.consts)
    consts = [as_array_impl(c) for c in traced.consts]
    if any(c._sig.spans for c in consts):
        raise RuntimeError(
            "Closing over jax.Array that spans non-addressable (non process local) devices is not allowed. Pass it to "
            f"{name} as an argument."
        )
    return consts


def _default_mesh(
    api: str, program: Program, sigs: Sequence[Signature], devices: tuple[Device, ...] | None
) -> tuple[Mesh | None, bool]:
    """The mesh for values that name none, and whether it is that of a `with mesh:` block around a pjit."""
    context = context_mesh(api)
    mesh = context or typed_mesh(program, sigs)
    if mesh is None and devices is not None and len(devices) == 1:
        mesh = Mesh(devices[0], ())
    return mesh, context is not None and api == "pjit"


def _without_value(x: Any) -> Any:
    """An argument's type and layout; numbers are unchanged."""
    if isinstance(x, Literal):
        return x
    sharding = x._sig.sharding if x._sig.committed else None
    return ShapeDtypeStruct(x.aval.shape, x.aval.dtype, sharding=sharding, weak_type=x.aval.weak_type)
