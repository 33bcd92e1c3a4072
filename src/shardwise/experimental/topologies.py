"""`shardwise.experimental.topologies`: the devices of machines that one does not have, to lower and compile programs for.

What is compiled for them cannot be called; `memory_analysis()`, `cost_analysis()` and `as_text()` say what it needs there. `shardwise.plan`
says more, of whole programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from shardwise.base.listing import listing as _listing
from shardwise.experimental.mesh_utils import create_device_mesh
from shardwise.planner import Machine, client_of
from shardwise.planner.machines import find
from shardwise.sharding import Device, Mesh
from shardwise.sharding import devices as all_devices

__all__ = ["TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]


class TopologyDescription:
    """The devices of a machine, in `devices`."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices: list[Device] = list(devices)


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices that there are, of that platform.

    Raises:
        RuntimeError: there are none of it.

    >>> len(jax.experimental.topologies.get_attached_topology().devices) == jax.device_count()
    True
    """
    return TopologyDescription(all_devices(platform))


def get_topology_desc(
    topology_name: str = "",
    platform: str | None = None,
    *,
    num_slices: int = 1,
    chips_per_host_bounds: Sequence[int] | None = None,
    chip_config_name: str = "default",
    wrap: Sequence[bool] | None = None,
) -> TopologyDescription:
    """The devices of a machine by its name.

    Args:
        topology_name: a generation and a shape, ``v5e:2x2``, or a name that `shardwise plan --on` takes, ``v5p-256``, ``h100-8``.
        platform: 'tpu', 'gpu' (or 'cuda') or 'cpu'; None: the one that the name means.
        num_slices: how many of these slices, joined by the data centre's network.
        chips_per_host_bounds: chips of one host along the dims of the torus, where they are not the usual ones.
        chip_config_name: 'default', or 'megacore' for chips whose cores are one device, as those of v4 and v5p are either way.
        wrap: for each dim of the torus, whether its ends are joined, where that is not as usual.

    Raises:
        ValueError: no machine has that name, or it is of another platform, hosts do not divide it, or it is no torus of so many dims.
        NotImplementedError: another chip configuration.

    >>> get_topology_desc("v5e:2x2").devices[3]
    TpuDevice(id=3, process_index=0, coords=(1, 1, 0), core_on_chip=0)
    """
    if chip_config_name not in ("default", "megacore"):
        raise NotImplementedError(
            f"chip_config_name={chip_config_name!r}: chips are described in their default configuration only; give 'default' or 'megacore'."
        )
    generation, colon, size = topology_name.partition(":")
    name = (
        ("v5p" if generation == "v5" and colon else generation) + colon.replace(":", "-") + size
    )  # libtpu calls v5p v5
    machine = find(name if num_slices == 1 else f"{num_slices}x-{name}")
    platform_name = {"cuda": "gpu", "rocm": "gpu"}.get(platform or "", platform)
    if platform_name is not None and platform_name != machine.chip.platform:
        raise ValueError(
            f"the topology {topology_name!r} is of the platform {machine.chip.platform!r}, not of {platform!r}: leave platform out."
        )
    if chips_per_host_bounds is not None:
        machine = _with_hosts(machine, tuple(chips_per_host_bounds))
    if wrap is not None:
        machine = _with_wrap(machine, tuple(map(bool, wrap)))
    return TopologyDescription(client_of(machine).devices())


def _with_hosts(machine: Machine, host: tuple[int, ...]) -> Machine:
    """The machine with other hosts."""
    torus = next((level.shape for level in machine.levels if not level.switched), ())
    shape = host[: len(torus)]
    if (
        len(shape) != len(torus)
        or any(n % h for n, h in zip(torus, shape, strict=True))
        or set(host[len(torus) :]) > {1}
    ):
        raise ValueError(f"chips_per_host_bounds={host}: hosts of that shape do not make up a slice of {torus} chips.")
    before, after = math.prod(machine.host), math.prod(shape)
    return replace(machine, host=shape, processes=machine.processes * before // after)


def _with_wrap(machine: Machine, wrap: tuple[bool, ...]) -> Machine:
    """The machine with other dims of its torus closed to rings."""
    torus = next((level for level in machine.levels if not level.switched), None)
    if torus is None or len(wrap) < len(torus.shape) or any(wrap[len(torus.shape) :]):
        shape = "no torus" if torus is None else f"a torus of {torus.shape}"
        raise ValueError(f"wrap={wrap}: {machine.name} is {shape}. Give a bool for each dim, or leave wrap out.")
    closed_torus = replace(torus, wrap=wrap[: len(torus.shape)])
    return replace(machine, levels=tuple(closed_torus if level is torus else level for level in machine.levels))


def make_mesh(
    topo: TopologyDescription,
    mesh_shape: Sequence[int],
    axis_names: tuple[str, ...],
    *,
    contiguous_submeshes: bool = False,
) -> Mesh:
    """A mesh of the devices of `topo`, of the sizes `mesh_shape` with the names `axis_names`, laid onto its network
    as `mesh_utils.create_device_mesh` does.

    `contiguous_submeshes` as there.

    Raises:
        ValueError: the shape does not take exactly all the devices.

    >>> topology = jax.experimental.topologies.get_attached_topology()
    >>> jax.experimental.topologies.make_mesh(topology, (2, 4), ("x", "y")).axis_names
    ('x', 'y')
    """
    devices = create_device_mesh(mesh_shape, topo.devices, contiguous_submeshes=contiguous_submeshes)
    return Mesh(devices, axis_names)


__dir__ = _listing(__name__)
