"""`plan(f, *args, on=...)`: the plan of one function on a machine that one does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.collector import pause_collector
from shardwise.base.tree import tree_map
from shardwise.engine.data_free import DataFree
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.plan.advise import plan_advice
from shardwise.plan.session import on as planned_run
from shardwise.planner import Advice, Machine, Plan, device_program_of, for_chip, make_plan
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import devices as all_devices
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.wrapped import JitWrapped


def plan(f: Callable[..., Any], *args: Any, on: str | Machine, **kwargs: Any) -> Plan:
    """The plan of one call ``f(*args, **kwargs)`` on the machine `on`.

    Args:
        f: a function, jitted or not.
        *args: arrays, or ShapeDtypeStructs with shardings over a mesh of as many devices as the machine has (or fewer): a Mesh of
            the devices of a planned run, of this machine's, or an AbstractMesh.
        on: the machine's name, such as ``v5p-256``, or a `Machine`.
        **kwargs: passed by name.

    Raises:
        ValueError: there is no such machine, or the mesh does not fit it.

    >>> x = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    >>> plan = jax.plan.plan(lambda x: x @ x, x, on="v5e-1")
    >>> plan.fits, plan.flops == 2 * 1024**3
    (True, True)
    """
    return _plan_step(f, args, kwargs, on)


def advise(
    f: Callable[..., Any], args: Sequence[Any], *, on: str | Machine, kwargs: Mapping[str, Any] | None = None
) -> tuple[Advice, ...]:
    """Advice for ``f(*args, **kwargs)`` on the machine `on`: that of its plan, and policies of `checkpoint` and batches worth trying, even
    if the step fits as it is.

    >>> step = lambda x, w: jnp.tanh(x @ w).sum()
    >>> args = jax.ShapeDtypeStruct((64, 256), jnp.float32), jax.ShapeDtypeStruct((256, 256), jnp.float32)
    >>> for advice in jax.plan.advise(step, args, on="v5e-1"):
    ...     print(advice.change)
    Take a batch of 1,024 in place of 64
    """
    return _plan_step(f, args, kwargs or {}, on, thorough=True).advice


@pause_collector
def _plan_step(
    f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], on: str | Machine, thorough: bool = False
) -> Plan:
    with planned_run(on) as run:
        executable = executable_of(f, args, kwargs, run.machine)
        program = device_program_of(executable, for_chip(run.machine.chip))
        return plan_advice(make_plan(program, run.machine, notes=run.notes), executable, run.machine, thorough)


def executable_of(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], machine: Machine) -> DataFree:
    """The program of a call, compiled for the machine in a planned run."""
    jitted_function = f if isinstance(f, JitWrapped) else jit(f)
    args, kwargs = tree_map(lambda x: _on_devices(x, machine), (tuple(args), dict(kwargs)))
    return jitted_function.lower(*args, **kwargs)._entry.executable


def _on_devices(x: Any, machine: Machine) -> Any:
    """A struct over an AbstractMesh, moved to the first devices of the machine."""
    sharding = x.sharding if isinstance(x, ShapeDtypeStruct) else None
    if not isinstance(sharding, NamedSharding) or isinstance(sharding.mesh, Mesh):
        return x
    mesh = sharding.mesh
    if mesh.size > machine.devices:
        raise ValueError(
            f"An argument lies on the mesh {dict(mesh.shape)} of {mesh.size} devices, but {machine.name} has {machine.devices}. Plan on a "
            "larger machine, or make the mesh smaller."
        )
    devices = np.array(all_devices()[: mesh.size], object).reshape(mesh.axis_sizes)
    placement = NamedSharding(
        Mesh(devices, mesh.axis_names, mesh.axis_types), sharding.spec, memory_kind=sharding.memory_kind
    )
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=placement, weak_type=x.weak_type)
