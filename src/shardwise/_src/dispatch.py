"""`dispatch`: running primitives, and waiting for started computations."""

from shardwise.transforms.programs.primitives import Primitive
from shardwise.transforms.programs.primitives import apply_primitive as apply_primitive
from shardwise.transforms.tracing import effects_barrier

wait_for_tokens = effects_barrier


class _Tokens:
    """Side effects to wait for: none, since a call returns when its effects are done."""

    def block_until_ready(self) -> None:
        """Return at once."""

    def clear(self) -> None:
        """Return at once."""


# The primitives whose rules ask for the devices, which rules here always know.
prim_requires_devices_during_lowering: set[Primitive] = set()
runtime_tokens = _Tokens()
