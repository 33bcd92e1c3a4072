"""What is timed: cases, each with the family it belongs to, and the meshes and values that they share.

A case is a function `prepare(jax, jnp, np)` that sets up and returns the call. The same lines run with shardwise or with JAX
as `jax`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Prepare = Callable[[Any, Any, Any], Callable[[], Any]]
FEW, MOST = (1, 8, 64), (1, 8, 64, 512)


@dataclass(frozen=True)
class Case:
    """One thing that is timed, on so many devices; `copies` and `flops` say what a perfect library could not do without."""

    name: str
    family: str
    prepare: Prepare
    devices: tuple[int, ...] = FEW
    copies: float = 0.0  # bytes that must at least be read, plus bytes written
    flops: float = 0.0
    first: bool = False  # what counts is the first call: each call prepares anew

    @property
    def title(self) -> str:
        """What it does: the first line of its docstring."""
        return (self.prepare.__doc__ or self.name).strip().partition("\n")[0].rstrip(".")


CASES: dict[str, Case] = {}


def case(family: str, **fields: Any) -> Callable[[Prepare], Prepare]:
    """Register a case under the name of its function."""

    def register(prepare: Prepare) -> Prepare:
        if prepare.__name__ in CASES:
            raise ValueError(f"two cases are called {prepare.__name__!r}: rename this one of {family!r}")
        CASES[prepare.__name__] = Case(prepare.__name__, family, prepare, **fields)
        return prepare

    return register


def families() -> list[str]:
    """The families, in the order in which they were registered."""
    return list(dict.fromkeys(c.family for c in CASES.values()))


def row_mesh(jax: Any, np: Any) -> Any:
    """All devices along an axis ``x``."""
    return jax.sharding.Mesh(np.array(jax.devices()), ("x",))


def placed(jax: Any, np: Any, value: Any, *spec: Any) -> Any:
    """`value` laid out over all devices; spec entries name the axis ``x`` or are None."""
    sharding = jax.sharding.NamedSharding(row_mesh(jax, np), jax.sharding.PartitionSpec(*spec))
    return jax.device_put(value, sharding)


def rows(jax: Any, np: Any, value: Any) -> Any:
    """`value` with its rows split over all devices."""
    return placed(jax, np, value, "x")


def normal(np: Any, *shape: int) -> Any:
    """float32 values, the same each time."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)
