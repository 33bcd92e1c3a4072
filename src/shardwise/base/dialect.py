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
    """

    name: str
    device_format: str
    memory_kinds: tuple[str, ...]
    id_stride: int
    make_mesh_axis_type: str
    spec_name: str
    spec_is_tuple: bool


SEED = Dialect("seed", "TFRT_CPU_{}", ("unpinned_host",), 131072, "Auto", "PartitionSpec", True)
LATEST = Dialect("latest", "cpu:{}", ("device", "pinned_host", "unpinned_host"), 2048, "Explicit", "P", False)

DIALECTS = {dialect.name: dialect for dialect in (SEED, LATEST)}
