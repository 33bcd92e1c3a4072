"""The two dialects: one table of what differs between JAX 0.5.3 (`seed`) and JAX 0.10 (`latest`).

Code that behaves differently reads a named field of `config.dialect` (or the shorthand `config.latest`) when
it is called, so that a switch at run time takes effect at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """What one era of JAX prints and assumes.

    Attributes:
        name: `"seed"` or `"latest"`.
        device_format: `str(device)`, as a format of the device id.
        memory_kinds: the memory kinds that a CPU device addresses, the default one first.
        id_stride: process `p` numbers its devices from `p * id_stride`.
        make_mesh_axis_type: name of the `AxisType` that `make_mesh` gives when none is asked for.
        spec_name: how a `PartitionSpec` calls itself.
        spec_is_tuple: whether a spec equals a plain tuple and `+` yields one.
        frozen_mesh_error: what assigning to an attribute of a mesh raises.
        psum_keeps_weak_type: whether reductions over mesh axes are weakly typed where their operands are.
        uneven_results_whole: whether a result of a jitted function with a dim that its mesh axes do not divide lies whole on
            every device; else only that dim does.
    """

    name: str
    device_format: str
    memory_kinds: tuple[str, ...]
    id_stride: int
    make_mesh_axis_type: str
    spec_name: str
    spec_is_tuple: bool
    frozen_mesh_error: type[Exception]
    psum_keeps_weak_type: bool
    uneven_results_whole: bool


SEED = Dialect(
    name="seed",
    device_format="TFRT_CPU_{}",
    memory_kinds=("unpinned_host",),
    id_stride=131072,
    make_mesh_axis_type="Auto",
    spec_name="PartitionSpec",
    spec_is_tuple=True,
    frozen_mesh_error=RuntimeError,
    psum_keeps_weak_type=False,
    uneven_results_whole=True,
)
LATEST = Dialect(
    name="latest",
    device_format="cpu:{}",
    memory_kinds=("device", "pinned_host", "unpinned_host"),
    id_stride=2048,
    make_mesh_axis_type="Explicit",
    spec_name="P",
    spec_is_tuple=False,
    frozen_mesh_error=AttributeError,
    psum_keeps_weak_type=True,
    uneven_results_whole=False,
)

DIALECTS = {dialect.name: dialect for dialect in (SEED, LATEST)}
